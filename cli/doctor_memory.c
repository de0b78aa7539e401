/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of hugepages, their mount, and limits of memory and files. */
#include "cli/doctor_probes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILES_WANTED = 32768, /* connections and segment files of a default broker */
};

void doctor_probe_hugepages(const struct doctor *doctor, struct doctor_finding *finding)
{
    const char *text = doctor_file(doctor, "/proc/meminfo");
    uint64_t wanted_mb = (uint64_t)mill_config_int(doctor->config, MILL_KEY_HUGEPAGES_SIZE_MB);
    wanted_mb += doctor_uses_dpdk(doctor->config)
                     ? (uint64_t)mill_config_int(doctor->config, MILL_KEY_DPDK_MEMORY_MB)
                     : 0;
    if (!mill_config_bool(doctor->config, MILL_KEY_HUGEPAGES) || !text) {
        return;
    }
    uint64_t page_mb = doctor_number_behind(text, "Hugepagesize:") / 1024;
    page_mb = page_mb ? page_mb : 2;
    uint64_t wanted = (wanted_mb + page_mb - 1) / page_mb;
    uint64_t free_pages = doctor_number_behind(text, "HugePages_Free:");
    uint64_t total = doctor_number_behind(text, "HugePages_Total:");
    if (free_pages >= wanted) {
        return;
    }
    uint64_t missing = wanted - free_pages;
    bool no_memory = doctor_number_behind(text, "MemAvailable:") / 1024 < missing * page_mb;
    doctor_found(
        finding, no_memory ? DOCTOR_BAD : DOCTOR_ADVICE, "%llu of %llu hugepages are free%s",
        (unsigned long long)free_pages, (unsigned long long)wanted,
        no_memory ? ", and there is no memory for the others"
                  : "; millrace start adds the others, which may fail later in fragmented memory");
    doctor_mend(finding, "sysctl -w vm.nr_hugepages=%llu", (unsigned long long)(total + missing));
}

void doctor_probe_hugetlbfs(const struct doctor *doctor, struct doctor_finding *finding)
{
    char type[DOCTOR_NAME_BYTES] = "";
    char options[DOCTOR_NAME_BYTES * 4] = "";
    const char *dir = mill_config_text(doctor->config, MILL_KEY_HUGEPAGES_DIR);
    if (!mill_config_bool(doctor->config, MILL_KEY_HUGEPAGES) ||
        !doctor_mount_of(doctor, dir, type, options)) {
        return;
    }
    if (strcmp(type, "hugetlbfs") != 0) {
        doctor_found(finding, DOCTOR_ADVICE,
                     "%s is no hugetlbfs mount; millrace start makes it one as root", dir);
        doctor_mend(finding, "mount -t hugetlbfs -o pagesize=2M hugetlbfs %s", dir);
    } else if (strstr(options, "pagesize=1024M")) {
        doctor_found(finding, DOCTOR_ADVICE,
                     "%s has pages of 1 GiB: the arena is rounded up to whole ones", dir);
        doctor_mend(finding, "umount %s && mount -t hugetlbfs -o pagesize=2M hugetlbfs %s", dir,
                    dir);
    }
}

void doctor_probe_thp(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[DOCTOR_LINE_BYTES];
    const char *file = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (doctor_line(doctor, text, "%s", file) && strstr(text, "[always]")) {
        doctor_found(finding, DOCTOR_ADVICE, "transparent hugepages are always on");
        doctor_mend(finding, "echo madvise > %s", file);
    }
}

void doctor_probe_swap(const struct doctor *doctor, struct doctor_finding *finding)
{
    const char *text = doctor_file(doctor, "/proc/swaps");
    if (text && strchr(text, '\n') && strchr(text, '\n')[1]) {
        doctor_found(finding, DOCTOR_ADVICE, "swap is on");
        doctor_mend(finding, "swapoff -a");
    }
}

/* Soft limit in /proc/self/limits; UINT64_MAX: unlimited. */
static bool limit_of(const struct doctor *doctor, const char *name, uint64_t *ret_limit)
{
    const char *text = doctor_file(doctor, "/proc/self/limits");
    const char *at = text ? strstr(text, name) : NULL;
    if (!at) {
        return false;
    }
    at += strlen(name);
    at += strspn(at, " ");
    *ret_limit = strncmp(at, "unlimited", 9) == 0 ? UINT64_MAX : strtoull(at, NULL, 10);
    return true;
}

void doctor_probe_memlock(const struct doctor *doctor, struct doctor_finding *finding)
{
    uint64_t limit;
    uint64_t wanted = (uint64_t)mill_config_int(doctor->config, MILL_KEY_HUGEPAGES_SIZE_MB) << 20;
    if (limit_of(doctor, "Max locked memory", &limit) && limit < wanted) {
        doctor_found(finding, DOCTOR_ADVICE, "%llu KiB may be locked, the arena has %llu MiB",
                     (unsigned long long)(limit >> 10), (unsigned long long)(wanted >> 20));
        doctor_mend(finding, "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity)");
    }
}

void doctor_probe_nofile(const struct doctor *doctor, struct doctor_finding *finding)
{
    uint64_t limit;
    if (limit_of(doctor, "Max open files", &limit) && limit < FILES_WANTED) {
        doctor_found(finding, DOCTOR_ADVICE,
                     "%llu files may be open, connections and segments want %d",
                     (unsigned long long)limit, FILES_WANTED);
        doctor_mend(finding, "ulimit -n %d (systemd: LimitNOFILE=%d)", FILES_WANTED, FILES_WANTED);
    }
}
