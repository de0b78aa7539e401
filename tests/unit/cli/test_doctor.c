/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each check of the doctor is fine on a good machine and finds its fault, with the command
 * that mends it, on a machine that has only that. Method: a tree of /proc and /sys files below a
 * folder; a row writes or removes one file, or sets one key. */
#include "tests/unit/test.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor.h"

enum {
    PATH_BYTES = 512,
    SETS_MAX = 8,
};

static char root[64];
static char scratch[DOCTOR_SCRATCH_BYTES];

struct file {
    const char *path;
    const char *text; /* NULL: is not there; "->X": a link to X */
};

/* A machine on which nothing is to be mended. */
static const struct file good[] = {
    {"/proc/meminfo", "MemAvailable: 8000000 kB\nHugePages_Total: 1000\nHugePages_Free: 1000\n"
                      "Hugepagesize: 2048 kB\n"},
    {"/proc/mounts",
     "/dev/vda / ext4 rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n"
     "tmpfs /ram tmpfs rw 0 0\nserver:/x /net nfs4 rw 0 0\n"},
    {"/proc/swaps", "Filename Type Size Used Priority\n"},
    {"/proc/self/limits", "Limit Soft Hard Units\n"
                          "Max open files            1048576   1048576  files\n"
                          "Max locked memory         unlimited unlimited bytes\n"},
    {"/proc/self/status", "Name: x\nCapEff:\t000001ffffffffff\n"},
    {"/proc/self/cgroup", "4:cpu,cpuacct:/old\n0::/new\n"},
    {"/sys/fs/cgroup/new/cpu.max", "max 100000\n"},
    {"/sys/devices/system/cpu/online", "0-3\n"},
    {"/sys/devices/system/cpu/isolated", "0\n"},
    {"/sys/devices/system/cpu/nohz_full", "0\n"},
    {"/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0\n"},
    {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"},
    {"/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"},
    {"/sys/devices/system/node/online", "0-1\n"},
    {"/sys/devices/system/node/node0/cpu0", "x"},
    {"/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "500\n"},
    {"/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "500\n"},
    {"/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"},
    {"/sys/kernel/btf/vmlinux", "x"},
    {"/proc/sys/kernel/io_uring_disabled", "0\n"},
    {"/dev/net/tun", "x"},
    {"/sys/class/net/eth7/mtu", "1500\n"},
    {"/sys/class/net/eth7/device", "x"},
    {"/sys/class/net/eth7/iflink", "8\n"},
    {"/sys/class/net/eth7/ifindex", "7\n"},
    {"/sys/bus/pci/devices/0000:03:00.0/driver", "->../../vfio-pci"},
    {"/sys/bus/pci/devices/0000:03:00.0/iommu_group", "x"},
    {"/data/x", "x"},
};

#define PORT(device)                                                                               \
    "dpdk.ports=nic0", "dpdk.port.nic0.address=198.18.0.1/24", "dpdk.port.nic0.device=" device
#define XDP PORT("net_af_xdp0,iface=eth7")
#define PCI PORT("0000:03:00.0")

struct row {
    const char *check;
    enum doctor_level level;
    struct file file;           /* what is different */
    const char *sets[SETS_MAX]; /* and the configuration */
    const char *mend;
};

static const struct row rows[] = {
    {"hugepages",
     DOCTOR_ADVICE,
     {"/proc/meminfo", "MemAvailable: 8000000 kB\nHugePages_Total: 10\nHugePages_Free: 4\n"
                       "Hugepagesize: 2048 kB\n"},
     {NULL},
     "sysctl -w vm.nr_hugepages=38"},
    {"hugepages",
     DOCTOR_BAD,
     {"/proc/meminfo", "MemAvailable: 1000 kB\nHugePages_Total: 0\nHugePages_Free: 0\n"
                       "Hugepagesize: 2048 kB\n"},
     {NULL},
     "sysctl -w vm.nr_hugepages=32"},
    {"hugetlbfs",
     DOCTOR_ADVICE,
     {"/proc/mounts", "/dev/vda / ext4 rw 0 0\n"},
     {NULL},
     "mount -t hugetlbfs -o pagesize=2M hugetlbfs /dev/hugepages"},
    {"numa",
     DOCTOR_ADVICE,
     {"/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "0\n"},
     {NULL},
     "echo 32 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"},
    {"cpus",
     DOCTOR_BAD,
     {"/sys/devices/system/cpu/online", "1-3\n"},
     {NULL},
     "echo 1 > /sys/devices/system/cpu/cpu0/online"},
    {"cpus",
     DOCTOR_BAD,
     {"/sys/devices/system/cpu/online", "0\n"},
     {"dataplane.idle=busy"},
     "dataplane.idle=adaptive"},
    {"siblings",
     DOCTOR_ADVICE,
     {"/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n"},
     {"dataplane.idle=busy"},
     "echo 0 > /sys/devices/system/cpu/cpuN/online"},
    {"isolation",
     DOCTOR_ADVICE,
     {"/sys/devices/system/cpu/isolated", "\n"},
     {"dataplane.idle=busy"},
     "isolcpus=0 nohz_full=0"},
    {"isolation",
     DOCTOR_ADVICE,
     {"/sys/devices/system/cpu/nohz_full", "3\n"},
     {"dataplane.idle=busy"},
     "nohz_full=0"},
    {"quota",
     DOCTOR_BAD,
     {"/sys/fs/cgroup/new/cpu.max", "10000 100000\n"},
     {NULL},
     "echo max > /sys/fs/cgroup/new/cpu.max"},
    {"governor",
     DOCTOR_ADVICE,
     {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"},
     {NULL},
     "cpupower -c 0 frequency-set -g performance"},
    {"clocksource",
     DOCTOR_ADVICE,
     {"/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"},
     {NULL},
     "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"},
    {"thp",
     DOCTOR_ADVICE,
     {"/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"},
     {NULL},
     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"},
    {"swap",
     DOCTOR_ADVICE,
     {"/proc/swaps", "Filename Type\n/swap file 1 0 -2\n"},
     {NULL},
     "swapoff -a"},
    {"memlock",
     DOCTOR_ADVICE,
     {"/proc/self/limits", "Max open files 1048576 1048576 files\n"
                           "Max locked memory         8388608   8388608  bytes\n"},
     {NULL},
     "ulimit -l unlimited"},
    {"nofile",
     DOCTOR_ADVICE,
     {"/proc/self/limits", "Max open files            1024      1048576  files\n"},
     {NULL},
     "ulimit -n 32768"},
    {"io_uring",
     DOCTOR_ADVICE,
     {"/proc/sys/kernel/io_uring_disabled", "2\n"},
     {NULL},
     "sysctl -w kernel.io_uring_disabled=0"},
    {"bpf",
     DOCTOR_ADVICE,
     {"/proc/self/status", "CapEff:\t0000000000000000\n"},
     {NULL},
     "CAP_BPF CAP_PERFMON"},
    {"bpf", DOCTOR_ADVICE, {"/sys/kernel/btf/vmlinux", NULL}, {NULL}, "CONFIG_DEBUG_INFO_BTF"},
    {"device", DOCTOR_BAD, {"/dev/net/tun", NULL}, {PORT("net_tap0,iface=mill0")}, "modprobe tun"},
    {"device", DOCTOR_BAD, {"/dev/net/tun", "x"}, {PORT("net_af_xdp0,iface=eth8")}, "ip link show"},
    {"mtu", DOCTOR_BAD, {"/sys/class/net/eth7/mtu", "9000\n"}, {XDP}, "ip link set eth7 mtu 1500"},
    {"offloads",
     DOCTOR_ADVICE,
     {"/sys/class/net/eth7/device", NULL},
     {XDP},
     "ethtool -K PEER tx off tso off gso off"},
    {"vfio",
     DOCTOR_BAD,
     {"/sys/bus/pci/devices/0000:03:00.0/driver", "->../../e1000e"},
     {PCI},
     "dpdk-devbind.py --bind=vfio-pci 0000:03:00.0"},
    {"vfio",
     DOCTOR_BAD,
     {"/sys/bus/pci/devices/0000:03:00.0/iommu_group", NULL},
     {PCI},
     "intel_iommu=on"},
    {"vfio", DOCTOR_BAD, {"/data/x", "x"}, {PORT("0000:09:00.0")}, "lspci -D"},
    {"disk", DOCTOR_ADVICE, {"/data/x", "x"}, {"log.dirs=/ram/log"}, "set log.dirs"},
    {"disk", DOCTOR_ADVICE, {"/data/x", "x"}, {"log.dirs=/net/log"}, "ext4 or XFS"},
};

/* --- the tree -----------------------------------------------------------------------------------
 */

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    MILL_UNUSED(info);
    MILL_UNUSED(type);
    MILL_UNUSED(where);
    return remove(path);
}

static void put(const struct file *file)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s%s", root, file->path);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
    if (unlink(path) != 0 && errno == EISDIR) {
        nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    if (file->text && strncmp(file->text, "->", 2) == 0) {
        assert_int_equal(symlink(file->text + 2, path), 0);
    } else if (file->text) {
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        fputs(file->text, out);
        fclose(out);
    }
}

static int make_good(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < MILL_COUNT_OF(good); i++) {
        put(&good[i]);
    }
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static struct mill_config *configure(const char *const *more)
{
    struct mill_config *config = NULL;
    const char *sets[SETS_MAX + 4] = {"dataplane.cores=0", "hugepages.size.mb=64",
                                      "log.dirs=/data"};
    uint32_t count = 3;
    for (uint32_t i = 0; i < SETS_MAX && more && more[i]; i++) {
        sets[count++] = more[i];
    }
    assert_int_equal(mill_config_load(NULL, sets, count, true, &config), 0);
    return config;
}

static const struct file *good_of(const char *path)
{
    for (size_t i = 0; i < MILL_COUNT_OF(good); i++) {
        if (strcmp(good[i].path, path) == 0) {
            return &good[i];
        }
    }
    return NULL;
}

/* Runs every check; ret: how many are not fine. The finding of one name comes back. */
static uint32_t run(const char *const *sets, const char *name, struct doctor_finding *ret_finding)
{
    uint32_t count;
    uint32_t found = 0;
    const struct doctor_check *checks = doctor_checks(&count);
    struct mill_config *config = configure(sets);
    struct doctor doctor = {.root = root, .config = config, .scratch = scratch};
    for (uint32_t i = 0; i < count; i++) {
        struct doctor_finding finding = {.level = DOCTOR_FINE};
        checks[i].probe(&doctor, &finding);
        found += finding.level != DOCTOR_FINE;
        if (finding.level != DOCTOR_FINE && (!name || strcmp(checks[i].name, name) != 0)) {
            print_message("%s: %s\n", checks[i].name, finding.what);
        }
        if (name && strcmp(checks[i].name, name) == 0) {
            *ret_finding = finding;
        }
    }
    mill_config_free(config);
    return found;
}

static void test_good_machine_has_nothing_to_mend(void **state)
{
    static const char *const xdp[SETS_MAX] = {XDP};
    static const char *const pci[SETS_MAX] = {PCI, "dataplane.idle=busy"};
    (void)state;
    assert_int_equal(run(NULL, NULL, NULL), 0);
    assert_int_equal(run(xdp, NULL, NULL), 0);
    assert_int_equal(run(pci, NULL, NULL), 0);
}

static void test_each_fault_is_found_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        struct doctor_finding finding = {.level = DOCTOR_FINE};
        put(&rows[i].file);
        uint32_t found = run(rows[i].sets, rows[i].check, &finding);
        put(good_of(rows[i].file.path));
        if (finding.level != rows[i].level || !strstr(finding.mend, rows[i].mend) || found != 1 ||
            finding.what[0] == '\0') {
            fail_msg("row %zu (%s): %u found, level %d, what \"%s\", mend \"%s\"", i, rows[i].check,
                     found, finding.level, finding.what, finding.mend);
        }
    }
}

static void test_every_check_has_a_row(void **state)
{
    uint32_t count;
    const struct doctor_check *checks = doctor_checks(&count);
    (void)state;
    for (uint32_t i = 0; i < count; i++) {
        bool has_row = false;
        for (size_t n = 0; n < MILL_COUNT_OF(rows); n++) {
            has_row = has_row || strcmp(rows[n].check, checks[i].name) == 0;
        }
        if (!has_row) {
            fail_msg("no row for the check %s", checks[i].name);
        }
        assert_true(checks[i].looks[0] && checks[i].why[0]);
    }
}

/* Nothing readable: nothing is claimed. */
static void test_empty_machine_has_no_findings_but_bpf(void **state)
{
    (void)state;
    struct doctor_finding finding = {.level = DOCTOR_FINE};
    char saved[sizeof(root)];
    memcpy(saved, root, sizeof(root));
    strcat(root, "/none");
    assert_int_equal(run(NULL, "bpf", &finding), 1);
    assert_int_equal(finding.level, DOCTOR_ADVICE);
    memcpy(root, saved, sizeof(root));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_machine_has_nothing_to_mend),
        cmocka_unit_test(test_each_fault_is_found_alone),
        cmocka_unit_test(test_every_check_has_a_row),
        cmocka_unit_test(test_empty_machine_has_no_findings_but_bpf),
    };
    return cmocka_run_group_tests(tests, make_good, remove_all);
}
