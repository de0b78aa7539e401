/* SPDX-License-Identifier: Apache-2.0 */
/* The checks; see doctor.h. A file that is not there is no finding: that machine has no such thing,
 * or hides it. */
#include "cli/doctor.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/device_drivers.h"

enum {
    PATH_BYTES = 640,
    LINE_BYTES = 256,
    NAME_BYTES = 64,
    FILES_WANTED = 32768, /* connections and segment files of a default broker */
    SPACE_MIN_MB = 1024,
    CAP_SYS_ADMIN_BIT = 21,
    CAP_PERFMON_BIT = 38,
    CAP_BPF_BIT = 39,
};

/* --- files below the root -----------------------------------------------------------------------
 */

static void path_of(const struct doctor *doctor, char ret_path[PATH_BYTES], const char *format, ...)
    MILL_PRINTF(3, 4);
static void path_of(const struct doctor *doctor, char ret_path[PATH_BYTES], const char *format, ...)
{
    va_list args;
    size_t used = (size_t)snprintf(ret_path, PATH_BYTES, "%s", doctor->root);
    used = MILL_MIN(used, (size_t)PATH_BYTES - 1);
    va_start(args, format);
    vsnprintf(ret_path + used, PATH_BYTES - used, format, args);
    va_end(args);
}

/* Up to size_bytes - 1 of a file, terminated. ret: false when it cannot be read. */
static bool read_into(const struct doctor *doctor, const char *path, char *ret_text,
                      size_t size_bytes)
{
    char full[PATH_BYTES];
    path_of(doctor, full, "%s", path);
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got = -1;
    while (fd >= 0 && used < size_bytes - 1 &&
           (got = read(fd, ret_text + used, size_bytes - 1 - used)) > 0) {
        used += (size_t)got;
    }
    if (fd >= 0) {
        close(fd);
    }
    ret_text[used] = '\0';
    return fd >= 0 && got >= 0;
}

/* A whole file in the doctor's scratch memory, until the next call. NULL: cannot be read. */
static char *read_file(const struct doctor *doctor, const char *path)
{
    return read_into(doctor, path, doctor->scratch, DOCTOR_SCRATCH_BYTES) ? doctor->scratch : NULL;
}

/* The file's first line without its end. */
static bool read_line(const struct doctor *doctor, char ret_text[LINE_BYTES], const char *format,
                      ...) MILL_PRINTF(3, 4);
static bool read_line(const struct doctor *doctor, char ret_text[LINE_BYTES], const char *format,
                      ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    bool is_there = read_into(doctor, path, ret_text, LINE_BYTES);
    ret_text[strcspn(ret_text, "\n")] = '\0';
    return is_there;
}

static bool exists(const struct doctor *doctor, const char *path)
{
    char full[PATH_BYTES];
    path_of(doctor, full, "%s", path);
    return access(full, F_OK) == 0;
}

static void found(struct doctor_finding *finding, enum doctor_level level, const char *format, ...)
    MILL_PRINTF(3, 4);
static void found(struct doctor_finding *finding, enum doctor_level level, const char *format, ...)
{
    va_list args;
    finding->level = level;
    va_start(args, format);
    vsnprintf(finding->what, sizeof(finding->what), format, args);
    va_end(args);
}

static void mend(struct doctor_finding *finding, const char *format, ...) MILL_PRINTF(2, 3);
static void mend(struct doctor_finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->mend, sizeof(finding->mend), format, args);
    va_end(args);
}

/* "0-3,8" holds cpu. */
static bool list_has(const char *list, uint32_t cpu)
{
    for (const char *at = list; *at;) {
        char *end;
        unsigned long first = strtoul(at, &end, 10);
        if (end == at) {
            return false;
        }
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        if (cpu >= first && cpu <= last) {
            return true;
        }
        at = *end == ',' ? end + 1 : "";
    }
    return false;
}

static uint64_t number_behind(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static bool uses_dpdk(const struct mill_config *config)
{
    const struct mill_config_listener *listeners;
    uint32_t count = mill_config_listeners(config, &listeners);
    for (uint32_t i = 0; i < count; i++) {
        if (listeners[i].transport == MILL_TRANSPORT_DPDK) {
            return true;
        }
    }
    return false;
}

/* --- memory -------------------------------------------------------------------------------------
 */

static void probe_hugepages(const struct doctor *doctor, struct doctor_finding *finding)
{
    const char *text = read_file(doctor, "/proc/meminfo");
    uint64_t wanted_mb = (uint64_t)mill_config_int(doctor->config, MILL_KEY_HUGEPAGES_SIZE_MB);
    wanted_mb += uses_dpdk(doctor->config)
                     ? (uint64_t)mill_config_int(doctor->config, MILL_KEY_DPDK_MEMORY_MB)
                     : 0;
    if (!mill_config_bool(doctor->config, MILL_KEY_HUGEPAGES) || !text) {
        return;
    }
    uint64_t page_mb = number_behind(text, "Hugepagesize:") / 1024;
    page_mb = page_mb ? page_mb : 2;
    uint64_t wanted = (wanted_mb + page_mb - 1) / page_mb;
    uint64_t free_pages = number_behind(text, "HugePages_Free:");
    uint64_t total = number_behind(text, "HugePages_Total:");
    if (free_pages >= wanted) {
        return;
    }
    uint64_t missing = wanted - free_pages;
    bool no_memory = number_behind(text, "MemAvailable:") / 1024 < missing * page_mb;
    found(finding, no_memory ? DOCTOR_BAD : DOCTOR_ADVICE, "%llu of %llu hugepages are free%s",
          (unsigned long long)free_pages, (unsigned long long)wanted,
          no_memory
              ? ", and there is no memory for the others"
              : "; millrace start adds the others, which may fail later in fragmented memory");
    mend(finding, "sysctl -w vm.nr_hugepages=%llu", (unsigned long long)(total + missing));
}

/* Mount point, type and options of the mount that holds path. */
static bool mount_of(const struct doctor *doctor, const char *path, char ret_type[NAME_BYTES],
                     char ret_options[NAME_BYTES * 4])
{
    char *text = read_file(doctor, "/proc/mounts");
    char point[PATH_BYTES];
    char type[NAME_BYTES];
    char options[NAME_BYTES * 4];
    size_t best = 0;
    char *rest = NULL;
    if (!text) {
        return false;
    }
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (sscanf(line, "%*s %639s %63s %255s", point, type, options) != 3) {
            continue;
        }
        size_t size = strcmp(point, "/") == 0 ? 0 : strlen(point);
        bool holds = strncmp(path, point, size) == 0 && (path[size] == '/' || path[size] == '\0');
        if (holds && size + 1 >= best) {
            best = size + 1;
            snprintf(ret_type, NAME_BYTES, "%s", type);
            snprintf(ret_options, NAME_BYTES * 4, "%s", options);
        }
    }
    return best > 0;
}

static void probe_hugetlbfs(const struct doctor *doctor, struct doctor_finding *finding)
{
    char type[NAME_BYTES] = "";
    char options[NAME_BYTES * 4] = "";
    const char *dir = mill_config_text(doctor->config, MILL_KEY_HUGEPAGES_DIR);
    if (!mill_config_bool(doctor->config, MILL_KEY_HUGEPAGES) ||
        !mount_of(doctor, dir, type, options)) {
        return;
    }
    if (strcmp(type, "hugetlbfs") != 0) {
        found(finding, DOCTOR_ADVICE,
              "%s is no hugetlbfs mount; millrace start makes it one as root", dir);
        mend(finding, "mount -t hugetlbfs -o pagesize=2M hugetlbfs %s", dir);
    } else if (strstr(options, "pagesize=1024M")) {
        found(finding, DOCTOR_ADVICE,
              "%s has pages of 1 GiB: the arena is rounded up to whole ones", dir);
        mend(finding, "umount %s && mount -t hugetlbfs -o pagesize=2M hugetlbfs %s", dir, dir);
    }
}

static void probe_thp(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[LINE_BYTES];
    const char *file = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (read_line(doctor, text, "%s", file) && strstr(text, "[always]")) {
        found(finding, DOCTOR_ADVICE, "transparent hugepages are always on");
        mend(finding, "echo madvise > %s", file);
    }
}

static void probe_swap(const struct doctor *doctor, struct doctor_finding *finding)
{
    const char *text = read_file(doctor, "/proc/swaps");
    if (text && strchr(text, '\n') && strchr(text, '\n')[1]) {
        found(finding, DOCTOR_ADVICE, "swap is on");
        mend(finding, "swapoff -a");
    }
}

/* Soft limit in /proc/self/limits; UINT64_MAX: unlimited. */
static bool limit_of(const struct doctor *doctor, const char *name, uint64_t *ret_limit)
{
    const char *text = read_file(doctor, "/proc/self/limits");
    const char *at = text ? strstr(text, name) : NULL;
    if (!at) {
        return false;
    }
    at += strlen(name);
    at += strspn(at, " ");
    *ret_limit = strncmp(at, "unlimited", 9) == 0 ? UINT64_MAX : strtoull(at, NULL, 10);
    return true;
}

static void probe_memlock(const struct doctor *doctor, struct doctor_finding *finding)
{
    uint64_t limit;
    uint64_t wanted = (uint64_t)mill_config_int(doctor->config, MILL_KEY_HUGEPAGES_SIZE_MB) << 20;
    if (limit_of(doctor, "Max locked memory", &limit) && limit < wanted) {
        found(finding, DOCTOR_ADVICE, "%llu KiB may be locked, the arena has %llu MiB",
              (unsigned long long)(limit >> 10), (unsigned long long)(wanted >> 20));
        mend(finding, "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity)");
    }
}

static void probe_nofile(const struct doctor *doctor, struct doctor_finding *finding)
{
    uint64_t limit;
    if (limit_of(doctor, "Max open files", &limit) && limit < FILES_WANTED) {
        found(finding, DOCTOR_ADVICE, "%llu files may be open, connections and segments want %d",
              (unsigned long long)limit, FILES_WANTED);
        mend(finding, "ulimit -n %d (systemd: LimitNOFILE=%d)", FILES_WANTED, FILES_WANTED);
    }
}

/* --- CPUs ---------------------------------------------------------------------------------------
 */

static bool is_busy(const struct doctor *doctor)
{
    return strcmp(mill_config_text(doctor->config, MILL_KEY_DATAPLANE_IDLE), "busy") == 0;
}

static void probe_cpus(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[LINE_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    uint32_t online = 0;
    if (!read_line(doctor, text, "/sys/devices/system/cpu/online")) {
        return;
    }
    for (uint32_t cpu = 0; cpu < 4096; cpu++) {
        online += list_has(text, cpu) ? 1 : 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!list_has(text, cpus[i])) {
            found(finding, DOCTOR_BAD, "CPU %u of dataplane.cores is not online (%s are)", cpus[i],
                  text);
            mend(finding, "echo 1 > /sys/devices/system/cpu/cpu%u/online", cpus[i]);
            return;
        }
    }
    if (is_busy(doctor) && count >= online) {
        found(finding, DOCTOR_BAD,
              "busy cores take all %u CPUs: control, stores and the kernel's "
              "work share them",
              online);
        mend(finding, "set dataplane.idle=adaptive, or name fewer CPUs in dataplane.cores");
    }
}

static void probe_siblings(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[LINE_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    for (uint32_t i = 0; i < count; i++) {
        if (!read_line(doctor, text, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                       cpus[i]) ||
            !strpbrk(text, ",-")) {
            continue;
        }
        for (uint32_t n = 0; n < count; n++) {
            if (n != i && list_has(text, cpus[n])) {
                found(finding, DOCTOR_BAD,
                      "cores on CPUs %u and %u are siblings (%s) of one "
                      "processor core",
                      cpus[i], cpus[n], text);
                mend(finding, "name one CPU of each pair in dataplane.cores");
                return;
            }
        }
        if (is_busy(doctor)) {
            found(finding, DOCTOR_ADVICE, "the busy core on CPU %u shares a processor core (%s)",
                  cpus[i], text);
            mend(finding, "echo 0 > /sys/devices/system/cpu/cpuN/online for its sibling");
        }
    }
}

static void probe_isolation(const struct doctor *doctor, struct doctor_finding *finding)
{
    char isolated[LINE_BYTES] = "";
    char text[LINE_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    if (!is_busy(doctor) || !read_line(doctor, isolated, "/sys/devices/system/cpu/isolated")) {
        return;
    }
    bool ticks = read_line(doctor, text, "/sys/devices/system/cpu/nohz_full");
    for (uint32_t i = 0; i < count; i++) {
        bool ticking = ticks && !list_has(text, cpus[i]);
        if (!list_has(isolated, cpus[i]) || ticking) {
            found(finding, DOCTOR_ADVICE, "the kernel %s CPU %u of a busy core",
                  list_has(isolated, cpus[i]) ? "ticks on" : "schedules others on", cpus[i]);
            mend(finding, "boot with isolcpus=%u nohz_full=%u rcu_nocbs=%u", cpus[i], cpus[i],
                 cpus[i]);
            return;
        }
    }
}

/* Path of our group in a hierarchy of /proc/self/cgroup: its line begins with "N:controllers:". */
static bool group_of(const struct doctor *doctor, bool v2, char ret_path[PATH_BYTES / 2])
{
    char *text = read_file(doctor, "/proc/self/cgroup");
    char *rest = NULL;
    if (!text) {
        return false;
    }
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *names = strchr(line, ':');
        const char *path = names ? strchr(names + 1, ':') : NULL;
        bool is_v2 = path && path == names + 1;
        bool is_cpu = path && (strncmp(names, ":cpu:", 5) == 0 || strncmp(names, ":cpu,", 5) == 0);
        if (v2 ? is_v2 : is_cpu) {
            snprintf(ret_path, PATH_BYTES / 2, "%s", strcmp(path + 1, "/") == 0 ? "" : path + 1);
            return true;
        }
    }
    return false;
}

static void probe_quota(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[LINE_BYTES];
    char group[PATH_BYTES / 2];
    const uint32_t *cpus;
    uint64_t quota_us = 0;
    uint64_t period_us = 100000;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    const char *file = "cpu.max";
    if (group_of(doctor, true, group) &&
        read_line(doctor, text, "/sys/fs/cgroup%s/cpu.max", group)) {
        quota_us = strtoull(text, NULL, 10); /* "max": 0 */
        period_us = strchr(text, ' ') ? strtoull(strchr(text, ' '), NULL, 10) : period_us;
    } else if (group_of(doctor, false, group) &&
               read_line(doctor, text, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", group)) {
        file = "cpu.cfs_quota_us";
        quota_us = text[0] == '-' ? 0 : strtoull(text, NULL, 10);
        if (read_line(doctor, text, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", group)) {
            period_us = strtoull(text, NULL, 10);
        }
    }
    /* One more: control and the stores run beside the cores. */
    if (quota_us > 0 && period_us > 0 && quota_us / period_us < (uint64_t)count + 1) {
        found(finding, quota_us / period_us < count ? DOCTOR_BAD : DOCTOR_ADVICE,
              "the control group gives %llu ms of CPU in %llu ms to %u cores and their helpers",
              (unsigned long long)quota_us / 1000, (unsigned long long)period_us / 1000, count);
        bool v1 = strcmp(file, "cpu.max") != 0;
        mend(finding, "echo %s > /sys/fs/cgroup%s%s/%s", v1 ? "-1" : "max", v1 ? "/cpu" : "", group,
             file);
    }
}

static void probe_governor(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[LINE_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    for (uint32_t i = 0; i < count; i++) {
        if (read_line(doctor, text, "/sys/devices/system/cpu/cpu%u/cpufreq/scaling_governor",
                      cpus[i]) &&
            strcmp(text, "performance") != 0) {
            found(finding, DOCTOR_ADVICE, "CPU %u has the governor %.32s", cpus[i], text);
            mend(finding, "cpupower -c %u frequency-set -g performance", cpus[i]);
            return;
        }
    }
}

static void probe_clocksource(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[LINE_BYTES];
    const char *dir = "/sys/devices/system/clocksource/clocksource0";
    if (!read_line(doctor, text, "%s/current_clocksource", dir)) {
        return;
    }
    /* These are read without a system call. */
    static const char *const fast[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page",
                                       "arch_sys_counter"};
    for (uint32_t i = 0; i < MILL_COUNT_OF(fast); i++) {
        if (strcmp(text, fast[i]) == 0) {
            return;
        }
    }
    found(finding, DOCTOR_ADVICE, "the clock is %.32s: each reading is a system call", text);
    mend(finding, "echo tsc > %s/current_clocksource", dir);
}

/* --- network ------------------------------------------------------------------------------------
 */

/* iface=NAME among a device's arguments. */
static bool iface_of(const struct mill_config_port *port, char ret_name[NAME_BYTES])
{
    const char *at = strstr(port->device, "iface=");
    if (!at) {
        return false;
    }
    at += strlen("iface=");
    snprintf(ret_name, NAME_BYTES, "%.*s", (int)MILL_MIN(strcspn(at, ","), (size_t)NAME_BYTES - 1),
             at);
    return true;
}

static bool has_driver(const struct mill_config_port *port, const char *driver)
{
    return strncmp(port->device, driver, strlen(driver)) == 0;
}

static bool is_pci(const struct mill_config_port *port)
{
    return strchr(port->device, ':') != NULL && !has_driver(port, "net_");
}

static void probe_device(const struct doctor *doctor, struct doctor_finding *finding)
{
    const struct mill_config_port *ports;
    uint32_t count = mill_config_ports(doctor->config, &ports);
    char path[PATH_BYTES];
    char name[NAME_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        if (has_driver(&ports[i], MILL_DEVICE_TAP) && !exists(doctor, "/dev/net/tun")) {
            found(finding, DOCTOR_BAD, "port %s needs /dev/net/tun, which is not there",
                  ports[i].name);
            mend(finding, "modprobe tun");
        } else if (has_driver(&ports[i], MILL_DEVICE_AF_XDP) && iface_of(&ports[i], name)) {
            snprintf(path, sizeof(path), "/sys/class/net/%s", name);
            if (!exists(doctor, path) && !mill_config_text(doctor->config, MILL_KEY_DPDK_NETNS)) {
                found(finding, DOCTOR_BAD, "port %s: there is no interface %s", ports[i].name,
                      name);
                mend(finding, "ip link show");
            }
        }
    }
}

static void probe_mtu(const struct doctor *doctor, struct doctor_finding *finding)
{
    const struct mill_config_port *ports;
    uint32_t count = mill_config_ports(doctor->config, &ports);
    char text[LINE_BYTES];
    char name[NAME_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        /* In a namespace of its own it cannot be seen here. */
        if (iface_of(&ports[i], name) && !mill_config_text(doctor->config, MILL_KEY_DPDK_NETNS) &&
            read_line(doctor, text, "/sys/class/net/%s/mtu", name) &&
            strtoul(text, NULL, 10) != ports[i].mtu) {
            found(finding, DOCTOR_BAD, "interface %s has MTU %.16s, port %s has %u", name, text,
                  ports[i].name, ports[i].mtu);
            mend(finding, "ip link set %s mtu %u", name, ports[i].mtu);
        }
    }
}

/* veth: no device below it, and a peer with another number. */
static void probe_offloads(const struct doctor *doctor, struct doctor_finding *finding)
{
    const struct mill_config_port *ports;
    uint32_t count = mill_config_ports(doctor->config, &ports);
    char link[LINE_BYTES];
    char index[LINE_BYTES];
    char name[NAME_BYTES];
    char path[PATH_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        if (!has_driver(&ports[i], MILL_DEVICE_AF_XDP) || !iface_of(&ports[i], name)) {
            continue;
        }
        snprintf(path, sizeof(path), "/sys/class/net/%s/device", name);
        if (!exists(doctor, path) && read_line(doctor, link, "/sys/class/net/%s/iflink", name) &&
            read_line(doctor, index, "/sys/class/net/%s/ifindex", name) &&
            strcmp(link, index) != 0) {
            found(
                finding, DOCTOR_ADVICE,
                "%s is a veth: what its peer leaves to offloads arrives without sums, or too long",
                name);
            mend(finding, "ethtool -K PEER tx off tso off gso off (PEER: interface %.16s)", link);
        }
    }
}

static void probe_vfio(const struct doctor *doctor, struct doctor_finding *finding)
{
    const struct mill_config_port *ports;
    uint32_t count = mill_config_ports(doctor->config, &ports);
    for (uint32_t i = 0; i < count; i++) {
        char path[PATH_BYTES];
        char target[PATH_BYTES];
        char address[NAME_BYTES];
        snprintf(address, sizeof(address), "%.*s",
                 (int)MILL_MIN(strcspn(ports[i].device, ","), sizeof(address) - 1),
                 ports[i].device);
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", address);
        if (!is_pci(&ports[i])) {
            continue;
        }
        if (!exists(doctor, path)) {
            found(finding, DOCTOR_BAD, "port %s: there is no PCI device %s", ports[i].name,
                  address);
            mend(finding, "lspci -D");
            return;
        }
        path_of(doctor, path, "/sys/bus/pci/devices/%s/driver", address);
        ssize_t size = readlink(path, target, sizeof(target) - 1);
        target[MILL_MAX(size, 0)] = '\0';
        const char *driver = strrchr(target, '/') ? strrchr(target, '/') + 1 : target;
        if (strcmp(driver, "vfio-pci") != 0) {
            found(finding, DOCTOR_BAD, "%s has the driver \"%.32s\", not vfio-pci", address,
                  driver);
            mend(finding, "dpdk-devbind.py --bind=vfio-pci %s", address);
            return;
        }
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", address);
        if (!exists(doctor, path)) {
            found(finding, DOCTOR_BAD, "%s is in no IOMMU group", address);
            mend(finding, "boot with intel_iommu=on (or amd_iommu=on), and switch it on in the "
                          "firmware");
            return;
        }
    }
}

static void probe_numa(const struct doctor *doctor, struct doctor_finding *finding)
{
    char nodes[LINE_BYTES];
    char text[LINE_BYTES];
    char path[PATH_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    if (!mill_config_bool(doctor->config, MILL_KEY_HUGEPAGES) ||
        !read_line(doctor, nodes, "/sys/devices/system/node/online") || !strpbrk(nodes, ",-")) {
        return;
    }
    for (uint32_t node = 0; node < 64; node++) {
        bool has_core = false;
        for (uint32_t i = 0; i < count; i++) {
            snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpu%u", node, cpus[i]);
            has_core = has_core || exists(doctor, path);
        }
        if (has_core &&
            read_line(doctor, text,
                      "/sys/devices/system/node/node%u/hugepages/hugepages-2048kB/nr_hugepages",
                      node) &&
            strtoull(text, NULL, 10) == 0) {
            found(finding, DOCTOR_ADVICE,
                  "node %u has cores but no hugepages of its own: their memory is another node's",
                  node);
            mend(finding,
                 "echo %lld > "
                 "/sys/devices/system/node/node%u/hugepages/hugepages-2048kB/nr_hugepages",
                 (long long)mill_config_int(doctor->config, MILL_KEY_HUGEPAGES_SIZE_MB) / 2, node);
            return;
        }
    }
}

/* --- what the kernel permits --------------------------------------------------------------------
 */

static void probe_io_uring(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[LINE_BYTES];
    if (read_line(doctor, text, "/proc/sys/kernel/io_uring_disabled") && text[0] != '0') {
        found(finding, DOCTOR_ADVICE, "io_uring is switched off (%.8s): epoll takes its place",
              text);
        mend(finding, "sysctl -w kernel.io_uring_disabled=0");
    }
}

static void probe_bpf(const struct doctor *doctor, struct doctor_finding *finding)
{
    const char *text = read_file(doctor, "/proc/self/status");
    const char *at = text ? strstr(text, "CapEff:") : NULL;
    uint64_t caps = at ? strtoull(at + strlen("CapEff:"), NULL, 16) : UINT64_MAX;
    bool permitted = ((caps >> CAP_BPF_BIT) & (caps >> CAP_PERFMON_BIT) & 1) ||
                     ((caps >> CAP_SYS_ADMIN_BIT) & 1);
    if (!exists(doctor, "/sys/kernel/btf/vmlinux")) {
        found(finding, DOCTOR_ADVICE, "the kernel has no BTF");
        mend(finding, "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y");
    } else if (!permitted) {
        found(finding, DOCTOR_ADVICE, "this user may not load eBPF programs");
        mend(finding, "start as root (systemd: AmbientCapabilities=CAP_BPF CAP_PERFMON)");
    }
}

/* --- disk ---------------------------------------------------------------------------------------
 */

static void probe_disk(const struct doctor *doctor, struct doctor_finding *finding)
{
    static const char *const slow[] = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "overlay"};
    const char *const *dirs;
    uint32_t count = mill_config_log_dirs(doctor->config, &dirs);
    for (uint32_t i = 0; i < count && finding->level == DOCTOR_FINE; i++) {
        char type[NAME_BYTES] = "";
        char options[NAME_BYTES * 4];
        char path[PATH_BYTES];
        struct statvfs info;
        path_of(doctor, path, "%s", dirs[i]);
        for (char *slash;
             statvfs(path, &info) != 0 && (slash = strrchr(path, '/')) && slash > path;) {
            *slash = '\0'; /* not made yet: where it will be made */
        }
        if (statvfs(path, &info) == 0 &&
            (uint64_t)info.f_bavail * info.f_frsize >> 20 < SPACE_MIN_MB) {
            found(finding, DOCTOR_BAD, "%s has %llu MiB of space", dirs[i],
                  (unsigned long long)((uint64_t)info.f_bavail * info.f_frsize >> 20));
            mend(finding, "du -sh %s/* | sort -h", dirs[i]);
            return;
        }
        if (!mount_of(doctor, dirs[i], type, options)) {
            continue;
        }
        if (strcmp(type, "tmpfs") == 0) {
            found(finding, DOCTOR_ADVICE, "%s is on tmpfs: the log ends with the machine", dirs[i]);
            mend(finding, "set log.dirs to a directory on a disk");
        }
        for (uint32_t n = 0; n < MILL_COUNT_OF(slow); n++) {
            if (strncmp(type, slow[n], strlen(slow[n])) == 0) {
                found(finding, DOCTOR_ADVICE, "%s is on %s", dirs[i], type);
                mend(finding, "set log.dirs to a directory on ext4 or XFS");
            }
        }
    }
}

/* --- the table ----------------------------------------------------------------------------------
 */

static const struct doctor_check checks[] = {
    {"hugepages", "free hugepages for arena and DPDK",
     "The arena lies in hugepages; without them the broker does not start.", probe_hugepages},
    {"hugetlbfs", "the mount of hugepages.dir", "The arena's files live there.", probe_hugetlbfs},
    {"numa", "hugepages on the nodes of the cores",
     "Memory of another node costs about half of the bandwidth.", probe_numa},
    {"cpus", "the CPUs of dataplane.cores", "A core runs on its CPU alone.", probe_cpus},
    {"siblings", "hardware threads beside the cores",
     "Two threads of one processor core share its units: each runs at about half speed.",
     probe_siblings},
    {"isolation", "isolcpus and nohz_full for busy cores",
     "Every other task and each timer tick on the CPU is a gap in the poll loop.", probe_isolation},
    {"quota", "the control group's CPU quota",
     "A throttled core stands still for most of each period: latency grows to the period.",
     probe_quota},
    {"governor", "the frequency governor", "A CPU that clocks down answers its first request late.",
     probe_governor},
    {"clocksource", "the clock source", "The clock is read once a turn.", probe_clocksource},
    {"thp", "transparent hugepages", "khugepaged moves memory under running threads: pauses.",
     probe_thp},
    {"swap", "swap", "A page that was swapped out stops the core that touches it.", probe_swap},
    {"memlock", "the limit of locked memory",
     "DMA and registered buffers count against it; what cannot be registered is copied.",
     probe_memlock},
    {"nofile", "the limit of open files",
     "At the limit connections are refused and segments are closed and opened again.",
     probe_nofile},
    {"io_uring", "whether io_uring is permitted",
     "Kernel sockets cost a system call per operation without it.", probe_io_uring},
    {"bpf", "whether eBPF is permitted", "Who takes a core's CPU is not told without it.",
     probe_bpf},
    {"device", "the devices of dpdk.ports", "A port that cannot be opened ends the start.",
     probe_device},
    {"mtu", "MTU of interface and port",
     "Frames larger than the other side's MTU are lost without a word.", probe_mtu},
    {"offloads", "offloads of kernel peers", "Packets without sums or too long are dropped here.",
     probe_offloads},
    {"vfio", "driver and IOMMU group of PCI ports",
     "Only vfio-pci with an IOMMU lets a process drive a card safely.", probe_vfio},
    {"disk", "space and file system of log.dirs",
     "Without space produce is refused; over a network file system every sync waits for it.",
     probe_disk},
};

const struct doctor_check *doctor_checks(uint32_t *ret_count)
{
    *ret_count = MILL_COUNT_OF(checks);
    return checks;
}
