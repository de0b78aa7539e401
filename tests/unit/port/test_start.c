/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a process of its own must show: a persistent TAP outlives kill -9 with its address and
 * opens again; missing rights and missing hugepages are named with their remedy. Method: this
 * process never starts EAL; children do, and answer by exit code and a pipe. */
#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "tests/unit/port/support.h"

#define NETNS "mill-port-kill"

static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

static int wait_for(pid_t pid)
{
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) {
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A child's work: opens the TAP, sends one frame, tells the parent, receives one if asked to. */
static int child_port(int ready, bool until_killed)
{
    static struct test_world world;
    struct mill_report report = {.text = ""};
    struct mill_port *port = NULL;
    struct mill_port_options options = test_options("net_tap0,iface=mill0");
    options.netns = NETNS;
    test_world_init(&world);
    if (test_eal_start(NETNS) < 0) {
        return 10;
    }
    if (mill_port_open(&options, &world.arena, world.loans_of, &port, &report) < 0) {
        fprintf(stderr, "%s\n", report.text);
        return 11;
    }
    const struct mill_link *link = mill_port_link(port, 0);
    struct mill_ref ref = test_ref(0, 100);
    struct mill_frame *frame = test_tcp_frame(link, broadcast, NULL, 0, &ref, 1);
    if (frame == NULL || link->ops->send(link->context, &frame, 1) != 1 ||
        write(ready, "r", 1) != 1) {
        return 12;
    }
    for (int i = 0; until_killed || i < 3000; i++) {
        struct mill_buf *in;
        uint8_t got[2048];
        if (link->ops->receive(link->context, &in, 1) == 1 &&
            test_take(in, got, sizeof(got), NULL) == 100 && mill_load_be16(got + 12) == 0x88b5 &&
            !until_killed) {
            mill_port_close(port);
            mill_eal_stop();
            return 0;
        }
        usleep(1000);
    }
    return 13;
}

static pid_t start_child(bool until_killed)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ready[0]);
        _exit(child_port(ready[1], until_killed));
    }
    close(ready[1]);
    ssize_t got = read(ready[0], &byte, 1);
    close(ready[0]);
    assert_int_equal(got, 1);
    return pid;
}

static void test_persistent_tap_outlives_kill_and_reopens(void **state)
{
    uint8_t frame[100] = {0};
    uint8_t got[2048];
    MILL_UNUSED(state);
    if (!test_can_tap(NETNS)) {
        skip();
    }
    (void)test_run("ip netns del " NETNS);
    assert_int_equal(test_run("ip netns add " NETNS), 0);
    assert_int_equal(test_run("ip -n " NETNS " tuntap add dev mill0 mode tap multi_queue"), 0);
    assert_int_equal(test_run("ip -n " NETNS " addr add 198.18.0.2/24 dev mill0"), 0);
    assert_int_equal(test_run("ip -n " NETNS " link set mill0 up"), 0);
    int peer = test_peer_open(NETNS, "mill0");
    assert_true(peer >= 0);
    for (int round = 0; round < 3; round++) {
        pid_t pid = start_child(true);
        assert_int_equal(test_peer_take(peer, got, sizeof(got)), TEST_HEADERS_BYTES + 100);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(wait_for(pid), 128 + SIGKILL);
        assert_int_equal(test_run("ip -n " NETNS " addr show mill0 | grep -q 198.18.0.2/24"), 0);
    }
    pid_t pid = start_child(false);
    assert_int_equal(test_peer_take(peer, got, sizeof(got)), TEST_HEADERS_BYTES + 100);
    memset(frame, 0xff, 6);
    mill_store_be16(frame + 12, 0x88b5);
    assert_int_equal(send(peer, frame, sizeof(frame), 0), sizeof(frame));
    assert_int_equal(wait_for(pid), 0);
    close(peer);
    assert_int_equal(test_run("ip netns del " NETNS), 0);
}

/* As an ordinary user: EAL starts without hugepages, a TAP and a namespace are refused in words. */
static int child_without_rights(void)
{
    static struct test_world world;
    struct mill_report report = {.text = ""};
    struct mill_port *port = NULL;
    struct mill_port_options options = test_options("net_tap0,iface=millx");
    test_world_init(&world);
    if (setgid(65534) != 0 || setuid(65534) != 0 || test_eal_start("mill-test-user") < 0) {
        return 20;
    }
    int code = mill_port_open(&options, &world.arena, world.loans_of, &port, &report);
    if (code != -EPERM || strstr(report.text, "millx") == NULL ||
        strstr(report.text, "CAP_NET_ADMIN") == NULL || strstr(report.text, "ip tuntap") == NULL) {
        fprintf(stderr, "%d: %s\n", code, report.text);
        return 21;
    }
    options.netns = "/proc/self/ns/net";
    code = mill_port_open(&options, &world.arena, world.loans_of, &port, &report);
    if (code != -EPERM || strstr(report.text, "CAP_SYS_ADMIN") == NULL) {
        fprintf(stderr, "%d: %s\n", code, report.text);
        return 22;
    }
    /* What needs no rights works for such a user. */
    options = test_options("net_null0,no-rx=1");
    code = mill_port_open(&options, &world.arena, world.loans_of, &port, &report);
    return code == 0 ? 0 : 23;
}

static void test_without_rights_tap_is_refused_in_words(void **state)
{
    MILL_UNUSED(state);
    if (geteuid() != 0 || access("/dev/net/tun", R_OK | W_OK) != 0) {
        printf("skipped: needs root to give rights up, and /dev/net/tun\n");
        skip();
    }
    pid_t pid = fork();
    if (pid == 0) {
        _exit(child_without_rights());
    }
    assert_int_equal(wait_for(pid), 0);
}

/* More pages than any machine has free. */
static int child_without_pages(void)
{
    struct mill_report report = {.text = ""};
    struct mill_eal_options options = {
        .file_prefix = "mill-test-pages", .memory_mb = 1u << 24, .hugepages = true};
    int code = mill_eal_start(&options, &report);
    if (code != -ENOMEM || strstr(report.text, "vm.nr_hugepages") == NULL) {
        fprintf(stderr, "%d: %s\n", code, report.text);
        return 30;
    }
    /* It cannot be tried a second time, and says so. */
    return mill_eal_start(&options, &report) == -EALREADY ? 0 : 31;
}

static void test_without_pages_start_names_the_sysctl(void **state)
{
    MILL_UNUSED(state);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(child_without_pages());
    }
    assert_int_equal(wait_for(pid), 0);
}

/* The production way: EAL in hugepages without a file of its own; a frame crosses a pair. */
static int child_with_pages(void)
{
    static struct test_world world;
    static uint8_t got[2048];
    struct mill_report report = {.text = ""};
    struct mill_eal_options options = {
        .file_prefix = "mill-test-huge", .memory_mb = 96, .hugepages = true};
    const struct mill_link *link[2];
    test_world_init(&world);
    if (mill_eal_start(&options, &report) < 0) {
        fprintf(stderr, "%s\n", report.text);
        return 50;
    }
    for (int side = 0; side < 2; side++) {
        struct mill_port *port = NULL;
        struct mill_port_options pair =
            test_options(side == 0 ? "net_ring_pair:huge:0" : "net_ring_pair:huge:1");
        if (mill_port_open(&pair, &world.arena, world.loans_of, &port, &report) < 0) {
            fprintf(stderr, "%s\n", report.text);
            return 51;
        }
        link[side] = mill_port_link(port, 0);
    }
    struct mill_ref ref = test_ref(5, 1000);
    struct mill_buf *in = NULL;
    struct mill_frame *frame = test_tcp_frame(link[0], broadcast, NULL, 0, &ref, 1);
    if (frame == NULL || link[0]->ops->send(link[0]->context, &frame, 1) != 1 ||
        link[1]->ops->receive(link[1]->context, &in, 1) != 1 ||
        test_take(in, got, sizeof(got), NULL) != TEST_HEADERS_BYTES + 1000 ||
        mill_port_thread_register() != 0) {
        return 52;
    }
    return access("/var/run/dpdk/mill-test-huge", F_OK) == 0 ? 53 : 0;
}

static void test_start_in_hugepages_leaves_no_file(void **state)
{
    MILL_UNUSED(state);
    if (test_run("test $(awk '/HugePages_Free/ {print $2}' /proc/meminfo) -ge 56") != 0) {
        printf("skipped: needs 56 free hugepages; sysctl -w vm.nr_hugepages=64\n");
        skip();
    }
    pid_t pid = fork();
    if (pid == 0) {
        _exit(child_with_pages());
    }
    assert_int_equal(wait_for(pid), 0);
}

static void test_wrong_arguments_are_refused(void **state)
{
    MILL_UNUSED(state);
    pid_t pid = fork();
    if (pid == 0) {
        struct mill_report report = {.text = ""};
        struct mill_eal_options options = {
            .file_prefix = "mill-test-args", .memory_mb = 64, .extra_args = " --nonsense  7"};
        int code = mill_eal_start(&options, &report);
        fprintf(stderr, "expected: %s\n", report.text);
        _exit(code < 0 && strstr(report.text, "DPDK did not start") != NULL ? 0 : 40);
    }
    assert_int_equal(wait_for(pid), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_persistent_tap_outlives_kill_and_reopens),
        cmocka_unit_test(test_without_rights_tap_is_refused_in_words),
        cmocka_unit_test(test_without_pages_start_names_the_sysctl),
        cmocka_unit_test(test_start_in_hugepages_leaves_no_file),
        cmocka_unit_test(test_wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
