/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every fault of a configuration is found and told so that it can be mended. Method: a table
 * of files, each with the severity, line, key and words of the fault it must give; a fault that is
 * not in the row's file fails the row. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "config/config.h"

struct row {
    const char *text; /* of the file */
    bool error;
    uint32_t line;
    const char *key;
    const char *words;
};

#define NIC                                                                                        \
    "listeners=NIC://198.18.0.1:9092\nlistener.NIC.transport=dpdk\nlistener.NIC.device=nic0\n"     \
    "dpdk.ports=nic0\n"
#define TAP  "dpdk.port.nic0.device=net_tap0,iface=mill0\n"
#define ADDR "dpdk.port.nic0.address=198.18.0.1/24\n"

static const struct row rows[] = {
    /* numbers */
    {"node.id=-1", true, 1, "node.id", "-1 is out of range; give 0 to 999999"},
    {"node.id=1000000", true, 1, "node.id", "out of range"},
    {"#\nbroker.id=x", true, 2, "broker.id", "\"x\" is not a whole number"},
    {"node.id=", true, 1, "node.id", "\"\" is not a whole number"},
    {"node.id=1.5", true, 1, "node.id", "not a whole number"},
    {"node.id=99999999999999999999", true, 1, "node.id", "out of range"},
    {"num.partitions=0", true, 1, "num.partitions", "0 is out of range; give 1 to"},
    {"message.max.bytes=-1", true, 1, "message.max.bytes", "give 0 to 2147483647 bytes"},
    {"message.max.bytes=200000000", true, 1, "message.max.bytes",
     "larger than socket.request.max.bytes (104857600)"},
    {"message.max.bytes=5000000\nhugepages.size.mb=16", true, 1, "message.max.bytes",
     "more than a quarter of the arena (hugepages.size.mb=16)"},
    {"log.roll.hours=0", true, 1, "log.roll.hours", "give 1 to 2147483647 hours"},
    {"log.segment.bytes=13", true, 1, "log.segment.bytes", "give 14 to"},
    {"log.dirty.max.mb=0", true, 1, "log.dirty.max.mb", "give 1 to 1048576 MiB"},
    {"control.request.timeout.ms=1", true, 1, "control.request.timeout.ms", "give 10 to 600000 ms"},
    {"hugepages.size.mb=large", true, 1, "hugepages.size.mb", "MiB, or auto"},
    {"hugepages.size.mb=15", true, 1, "hugepages.size.mb", "give 16 to"},
    {"hugepages.size.mb=16000000", true, 1, "hugepages.size.mb", "MiB of this machine"},
    {"dpdk.memory.mb=1", true, 1, "dpdk.memory.mb", "give 32 to"},
    {"log.cleaner.min.cleanable.ratio=2", true, 1, "log.cleaner.min.cleanable.ratio",
     "not a number from 0 to 1"},
    {"log.cleaner.min.cleanable.ratio=nan", true, 1, "log.cleaner.min.cleanable.ratio",
     "not a number"},
    {"default.replication.factor=40000", true, 1, "default.replication.factor", "out of range"},
    /* addresses */
    {"max.connections.per.ip=0", true, 1, "max.connections.per.ip", "lets nobody in"},
    {"max.connections.per.ip=0\nmax.connections.per.ip.overrides=,", true, 1,
     "max.connections.per.ip", "lets nobody in"},
    {"max.connections.per.ip=0\nmax.connections.per.ip.overrides=10.0.0.1:0", true, 1,
     "max.connections.per.ip", "lets nobody in"},
    {"max.connections.per.ip.overrides=10.0.0.1", true, 1, "max.connections.per.ip.overrides",
     "\"10.0.0.1\" is not ADDRESS:COUNT"},
    {"max.connections.per.ip.overrides=10.0.0.1:x", true, 1, "max.connections.per.ip.overrides",
     "the count is no number"},
    {"max.connections.per.ip.overrides=10.0.0.1:-1", true, 1, "max.connections.per.ip.overrides",
     "the count is no number"},
    {"max.connections.per.ip.overrides=10.0.0.1:2147483648", true, 1,
     "max.connections.per.ip.overrides", "the count is no number"},
    {"max.connections.per.ip.overrides=10.0.0.1:2,host.example:1", true, 1,
     "max.connections.per.ip.overrides", "\"host.example\" is not an IPv4 or IPv6 address"},
    {"max.connections.per.ip.overrides=10.0.0.1:2,::ffff:10.0.0.1:3", true, 1,
     "max.connections.per.ip.overrides", "named twice"},
    /* words */
    {"hugepages=maybe", true, 1, "hugepages", "\"maybe\" is none of on|off"},
    {"delete.topic.enable=1", true, 1, "delete.topic.enable", "\"1\" is none of true|false"},
    {"dataplane.idle=lazy", true, 1, "dataplane.idle", "none of adaptive|busy"},
    {"metadata.store=etcd", true, 1, "metadata.store", "none of sqlite|zookeeper"},
    {"log.message.timestamp.type=createtime", true, 1, "log.message.timestamp.type",
     "none of CreateTime|LogAppendTime"},
    {"log.cleanup.policy=delete,shrink", true, 1, "log.cleanup.policy", "\"shrink\" is none of"},
    /* a port for each core */
    {"dataplane.cores=0,1\ndataplane.core.endpoints=on\n"
     "listeners=A://127.0.0.1:9092,B://127.0.0.1:9093",
     true, 3, "listeners", "A takes ports 9092 to 9093 and B takes 9093 to 9094"},
    {"dataplane.cores=0,1\ndataplane.core.endpoints=on\nlisteners=A://127.0.0.1:65535", true, 3,
     "listeners", "go beyond 65535"},
    {"dataplane.cores=0,1\ndataplane.core.endpoints=on\nlisteners=A://127.0.0.1:9643", true, 0,
     "http.listener", "already that of listener A"},
    {"dataplane.cores=0,1\ndataplane.core.endpoints=on\n"
     "listeners=A://127.0.0.1:9092,B://127.0.0.1:9192\n"
     "advertised.listeners=A://h:7001,B://h:7000",
     true, 4, "advertised.listeners", "overlapping ports of h"},
    /* what does not exist yet */
    {"metadata.store=zookeeper", true, 1, "metadata.store", "not available yet; use sqlite"},
    {"authorizer.class.name=kafka.security.authorizer.AclAuthorizer", true, 1,
     "authorizer.class.name", "not available yet"},
    {"listeners=SSL://127.0.0.1:9092", true, 1, "listeners",
     "protocol SSL, which is not available"},
    {"listeners=A://127.0.0.1:9092\nlistener.security.protocol.map=A:SASL_SSL", true, 1,
     "listeners", "protocol SASL_SSL, which is not available"},
    {"listener.security.protocol.map=A:TLS", true, 1, "listener.security.protocol.map",
     "\"TLS\" is no protocol"},
    {"listener.security.protocol.map=A", true, 1, "listener.security.protocol.map",
     "no NAME:PROTOCOL pair"},
    {"num.io.threads=8", false, 1, "num.io.threads", "has no effect yet"},
    /* unknown and doubled */
    {"nod.id=1", false, 1, "nod.id", "unknown key; did you mean \"node.id\"?"},
    {"log.dir=/tmp/a\nlog.dirty.max.mbs=1", false, 2, "log.dirty.max.mbs",
     "did you mean \"log.dirty.max.mb\"?"},
    {"zzz.yyy=1", false, 1, "zzz.yyy", "unknown key"},
    {"retention.ms=1", false, 1, "retention.ms", "broker-wide it is \"log.retention.ms\""},
    {"node.id=1\n\nnode.id=2", false, 3, "node.id", "given twice, in lines 1 and 3; line 3 counts"},
    {"node.id=1\nbroker.id=2", false, 2, "broker.id", "given twice, in lines 1 and 2"},
    {"listener.LOCAL.required=true\nlistener.LOCAL.required=false", false, 2,
     "listener.LOCAL.required", "given twice, in lines 1 and 2"},
    {"listener.LOCAL.transprt=kernel", false, 1, "listener.LOCAL.transprt",
     "did you mean \"transport\"?"},
    {"listener.OTHER.transport=kernel", false, 1, "listener.OTHER.transport",
     "\"OTHER\" is not named in listeners"},
    {"dpdk.port.nic9.mtu=1500", false, 1, "dpdk.port.nic9.mtu",
     "\"nic9\" is not named in dpdk.ports"},
    {"listener.name.local.ssl.client.auth=none", false, 1, "listener.name.local.ssl.client.auth",
     "no effect yet"},
    /* syntax */
    {"node.id=\\u00", true, 1, "", "four hexadecimal digits"},
    {"run.dir=\\u0000", true, 1, "", "\\u0000 is not allowed"},
    {"run.dir=\\ud83d", true, 1, "", "surrogate"},
    {"=1", true, 1, "", "no key before the separator"},
    /* listeners */
    {"listeners=", true, 1, "listeners", "names no listener"},
    {"listeners=127.0.0.1:9092", true, 1, "listeners", "give NAME://HOST:PORT"},
    {"listeners=A://127.0.0.1", true, 1, "listeners", "has no port"},
    {"listeners=A://127.0.0.1:0", true, 1, "listeners", "port 0 is out of range"},
    {"listeners=A://127.0.0.1:65536", true, 1, "listeners", "give 1 to 65535"},
    {"listeners=A B://127.0.0.1:9092", true, 1, "listeners", "is no listener name"},
    {"listeners=A://::1:9092", true, 1, "listeners", "in brackets: [::1]:9092"},
    {"listeners=A://host name:9092", true, 1, "listeners", "is no host name"},
    {"listeners=A://no-such-host.invalid:9092", true, 1, "listeners", "cannot be resolved"},
    {"listeners=A://127.0.0.1:9092,a://127.0.0.1:9093", true, 1, "listeners", "A is named twice"},
    {"listeners=A://127.0.0.1:9092,B://127.0.0.1:9092", true, 1, "listeners",
     "A and B have the same port 9092"},
    {"listeners=A://:9092,B://127.0.0.1:9092", true, 1, "listeners", "have the same port"},
    {"listeners=A://127.0.0.1:1,B://127.0.0.1:2,C://127.0.0.1:3,D://127.0.0.1:4,E://127.0.0.1:5,"
     "F://127.0.0.1:6,G://127.0.0.1:7,H://127.0.0.1:8,I://127.0.0.1:9",
     true, 1, "listeners", "more than 8 listeners"},
    {"listeners=A://127.0.0.1:9644", true, 0, "http.listener", "already that of listener A"},
    {"http.listener=nowhere", true, 1, "http.listener", "has no port"},
    {"advertised.listeners=LOCL://h:1", true, 1, "advertised.listeners",
     "LOCL is not named in listeners; did you mean \"LOCAL\"?"},
    {"advertised.listeners=LOCAL://0.0.0.0:9092", true, 1, "advertised.listeners",
     "no client can connect to 0.0.0.0"},
    {"advertised.listeners=LOCAL://a:1,LOCAL://b:2", true, 1, "advertised.listeners",
     "LOCAL is named twice"},
    {"listeners=A://127.0.0.1:9092,C://127.0.0.1:9093\ncontroller.listener.names=C", false, 1,
     "listeners", "C is not opened"},
    /* dpdk */
    {"listener.LOCAL.transport=dpdk", true, 0, "listeners", "dpdk listener without a device"},
    {"listener.LOCAL.transport=tap", true, 1, "listener.LOCAL.transport", "none of kernel|dpdk"},
    {"listener.LOCAL.device=nic0", true, 1, "listener.LOCAL.device", "uses kernel sockets"},
    {"listener.LOCAL.required=perhaps", true, 1, "listener.LOCAL.required", "none of true|false"},
    {NIC ADDR, true, 4, "dpdk.ports", "add dpdk.port.nic0.device="},
    {NIC TAP, true, 4, "dpdk.ports", "add dpdk.port.nic0.address="},
    {"listeners=NIC://198.18.0.1:9092\nlistener.NIC.transport=dpdk\nlistener.NIC.device=nic1\n"
     "dpdk.ports=nic0\n" TAP ADDR,
     true, 3, "listener.NIC.device", "\"nic1\" is not named in dpdk.ports; did you mean \"nic0\"?"},
    {NIC TAP "dpdk.port.nic0.address=198.18.0.2/24", true, 1, "listeners",
     "its port nic0 has another address"},
    {NIC TAP "dpdk.port.nic0.address=198.18.0.1", true, 6, "dpdk.port.nic0.address",
     "with a prefix of 1 to 30 bits"},
    {NIC TAP "dpdk.port.nic0.address=198.18.0.1/31", true, 6, "dpdk.port.nic0.address",
     "1 to 30 bits"},
    {NIC TAP "dpdk.port.nic0.address=198.18.0.300/24", true, 6, "dpdk.port.nic0.address",
     "\"198.18.0.300\" is not an IPv4 address"},
    {NIC TAP "dpdk.port.nic0.address=198.18.0.0/24", true, 6, "dpdk.port.nic0.address",
     "give a host's"},
    {NIC TAP "dpdk.port.nic0.address=224.0.0.1/24", true, 6, "dpdk.port.nic0.address",
     "give a host's"},
    {NIC TAP ADDR "dpdk.port.nic0.gateway=10.0.0.1", true, 7, "dpdk.port.nic0.gateway",
     "not another host of the port's network"},
    {NIC TAP ADDR "dpdk.port.nic0.gateway=router", true, 7, "dpdk.port.nic0.gateway",
     "not an IPv4 address"},
    {NIC TAP ADDR "dpdk.port.nic0.dma.peer=198.18.0.1", true, 7, "dpdk.port.nic0.dma.peer",
     "not another host of the port's network"},
    {NIC TAP ADDR "dpdk.port.nic0.mtu=575", true, 7, "dpdk.port.nic0.mtu", "give 576 to 9000"},
    {NIC TAP ADDR "dpdk.port.nic0.mtu=9001", true, 7, "dpdk.port.nic0.mtu", "give 576 to 9000"},
    {NIC TAP ADDR "dpdk.port.nic0.mac=02:00:00:00:01", true, 7, "dpdk.port.nic0.mac",
     "not an Ethernet address"},
    {NIC TAP ADDR "dpdk.port.nic0.mac=01:00:5e:00:00:01", true, 7, "dpdk.port.nic0.mac",
     "group address"},
    {NIC TAP ADDR "dpdk.port.nic0.rx.csum=never", true, 7, "dpdk.port.nic0.rx.csum",
     "none of auto|trust|verify"},
    {NIC TAP ADDR "dpdk.port.nic0.tx.csum=off", true, 7, "dpdk.port.nic0.tx.csum",
     "off is for net_memif and net_ring"},
    {NIC "dpdk.port.nic0.device=net_tapp0,iface=mill0\n" ADDR, true, 5, "dpdk.port.nic0.device",
     "did you mean \"net_tap0\"?"},
    {NIC "dpdk.port.nic0.device=net_tap,iface=mill0\n" ADDR, true, 5, "dpdk.port.nic0.device",
     "did you mean \"net_tap0\"?"},
    {NIC "dpdk.port.nic0.device=eth0\n" ADDR, true, 5, "dpdk.port.nic0.device", "or a PCI address"},
    {NIC TAP ADDR "dpdk.netns=mill-nowhere", true, 7, "dpdk.netns",
     "make it with: ip netns add mill-nowhere"},
    {NIC TAP ADDR "dpdk.netns=mill-nowhere\nlistener.NIC.required=false", false, 7, "dpdk.netns",
     "there is no network namespace mill-nowhere"},
    {"dpdk.ports=nic.0", true, 1, "dpdk.ports", "is no port name"},
    {"dpdk.ports=nic0,nic0\n" TAP ADDR, true, 1, "dpdk.ports", "\"nic0\" is named twice"},
    {"dpdk.ports=nic0,nic1\n" TAP ADDR "dpdk.port.nic1.device=net_null0\n"
     "dpdk.port.nic1.address=198.18.0.1/24",
     true, 1, "dpdk.ports", "have the same address"},
    /* the machine */
    {"dataplane.cores=9999", true, 1, "dataplane.cores", "is not a CPU list"},
    {"dataplane.cores=1023", true, 1, "dataplane.cores", "CPU 1023 does not exist"},
    {"dataplane.cores=0,0", true, 1, "dataplane.cores", "CPU 0 is named twice"},
    {"dataplane.cores=0-", true, 1, "dataplane.cores", "\"0-\" is not a CPU list"},
    {"dataplane.cores=2-1", true, 1, "dataplane.cores", "is not a CPU list"},
    {"dataplane.cores=", true, 1, "dataplane.cores", "names no CPU"},
    {"log.dirs=", true, 1, "log.dirs", "names no directory"},
    {"log.dirs=/tmp/a,/tmp/a/", true, 1, "log.dirs", "/tmp/a is named twice"},
    {"run.dir=/tmp/a\nlog.dirs=/tmp/a", true, 1, "run.dir", "is also a log directory"},
    {"run.dir=", true, 1, "run.dir", "is empty"},
};

static void write_file(const char *text, char path[64])
{
    snprintf(path, 64, "/tmp/millrace-test-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void check_row(const struct row *row, bool strict)
{
    char path[64];
    struct mill_config *config = NULL;
    const struct mill_config_fault *faults;
    write_file(row->text, path);
    int r = mill_config_load(path, NULL, 0, strict, &config);
    unlink(path);
    uint32_t count = mill_config_faults(config, &faults);
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        found = found || (faults[i].error == row->error && faults[i].line == row->line &&
                          strcmp(faults[i].key, row->key) == 0 &&
                          strstr(faults[i].text, row->words) && strcmp(faults[i].file, path) == 0);
    }
    if (!found || (r == -EINVAL) != row->error) {
        print_error("row \"%s\" gave %d and:\n", row->text, r);
        for (uint32_t i = 0; i < count; i++) {
            print_error("  %s:%u %d %s: %s\n", faults[i].file, faults[i].line, faults[i].error,
                        faults[i].key, faults[i].text);
        }
        fail_msg("wanted line %u, %s: %s", row->line, row->key, row->words);
    }
    mill_config_free(config);
}

static void test_load_faulty_files_tell_each_fault(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        check_row(&rows[i], false);
    }
    assert_true(MILL_COUNT_OF(rows) >= 60);
}

static void test_load_strict_unknown_key_is_an_error(void **state)
{
    (void)state;
    check_row(&(struct row){"nod.id=1", true, 1, "nod.id", "did you mean \"node.id\"?"}, true);
    check_row(&(struct row){"listener.LOCAL.transprt=kernel", true, 1, "listener.LOCAL.transprt",
                            "unknown key"},
              true);
}

static void test_load_missing_file_says_which(void **state)
{
    (void)state;
    struct mill_config *config = NULL;
    const struct mill_config_fault *faults;
    assert_int_equal(mill_config_load("/nowhere/x.properties", NULL, 0, false, &config), -ENOENT);
    assert_int_equal(mill_config_faults(config, &faults), 1);
    assert_string_equal(faults[0].file, "/nowhere/x.properties");
    assert_non_null(strstr(faults[0].text, "cannot be read: No such file"));
    mill_config_free(config);
}

static void test_load_many_faults_are_bounded(void **state)
{
    (void)state;
    char *text = calloc(1, 4096);
    char path[64];
    struct mill_config *config = NULL;
    const struct mill_config_fault *faults;
    for (uint32_t i = 0; i < 200; i++) {
        strcat(text, "node.id=x\n");
    }
    write_file(text, path);
    assert_int_equal(mill_config_load(path, NULL, 0, false, &config), -EINVAL);
    assert_int_equal(mill_config_faults(config, &faults), MILL_CONFIG_FAULTS_MAX);
    assert_non_null(strstr(faults[MILL_CONFIG_FAULTS_MAX - 1].text, "more faults"));
    mill_config_free(config);
    unlink(path);
    free(text);
}

static void test_load_wrong_set_is_told(void **state)
{
    (void)state;
    static const char *const sets[] = {"node.id", "num.partitions=x"};
    struct mill_config *config = NULL;
    const struct mill_config_fault *faults;
    assert_int_equal(mill_config_load(NULL, sets, 2, false, &config), -EINVAL);
    assert_int_equal(mill_config_faults(config, &faults), 2);
    assert_string_equal(faults[0].file, "--set");
    assert_non_null(strstr(faults[0].text, "--set key=value"));
    assert_string_equal(faults[1].key, "num.partitions");
    mill_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_faulty_files_tell_each_fault),
        cmocka_unit_test(test_load_strict_unknown_key_is_an_error),
        cmocka_unit_test(test_load_missing_file_says_which),
        cmocka_unit_test(test_load_many_faults_are_bounded),
        cmocka_unit_test(test_load_wrong_set_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
