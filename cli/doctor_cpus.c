/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of the cores' CPUs: siblings, isolation, quota, frequency, clock. */
#include "cli/doctor_probes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_busy(const struct doctor *doctor)
{
    return strcmp(mill_config_text(doctor->config, MILL_KEY_DATAPLANE_IDLE), "busy") == 0;
}

void doctor_probe_cpus(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[DOCTOR_LINE_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    uint32_t online = 0;
    if (!doctor_line(doctor, text, "/sys/devices/system/cpu/online")) {
        return;
    }
    for (uint32_t cpu = 0; cpu < 4096; cpu++) {
        online += doctor_list_has(text, cpu) ? 1 : 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!doctor_list_has(text, cpus[i])) {
            doctor_found(finding, DOCTOR_BAD, "CPU %u of dataplane.cores is not online (%s are)",
                         cpus[i], text);
            doctor_mend(finding, "echo 1 > /sys/devices/system/cpu/cpu%u/online", cpus[i]);
            return;
        }
    }
    if (is_busy(doctor) && count >= online) {
        doctor_found(finding, DOCTOR_BAD,
                     "busy cores take all %u CPUs: control, stores and the kernel's "
                     "work share them",
                     online);
        doctor_mend(finding, "set dataplane.idle=adaptive, or name fewer CPUs in dataplane.cores");
    }
}

void doctor_probe_siblings(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[DOCTOR_LINE_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    for (uint32_t i = 0; i < count; i++) {
        if (!doctor_line(doctor, text,
                         "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpus[i]) ||
            !strpbrk(text, ",-")) {
            continue;
        }
        for (uint32_t n = 0; n < count; n++) {
            if (n != i && doctor_list_has(text, cpus[n])) {
                doctor_found(finding, DOCTOR_BAD,
                             "cores on CPUs %u and %u are siblings (%s) of one "
                             "processor core",
                             cpus[i], cpus[n], text);
                doctor_mend(finding, "name one CPU of each pair in dataplane.cores");
                return;
            }
        }
        if (is_busy(doctor)) {
            doctor_found(finding, DOCTOR_ADVICE,
                         "the busy core on CPU %u shares a processor core (%s)", cpus[i], text);
            doctor_mend(finding, "echo 0 > /sys/devices/system/cpu/cpuN/online for its sibling");
        }
    }
}

void doctor_probe_isolation(const struct doctor *doctor, struct doctor_finding *finding)
{
    char isolated[DOCTOR_LINE_BYTES] = "";
    char text[DOCTOR_LINE_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    if (!is_busy(doctor) || !doctor_line(doctor, isolated, "/sys/devices/system/cpu/isolated")) {
        return;
    }
    bool ticks = doctor_line(doctor, text, "/sys/devices/system/cpu/nohz_full");
    for (uint32_t i = 0; i < count; i++) {
        bool ticking = ticks && !doctor_list_has(text, cpus[i]);
        if (!doctor_list_has(isolated, cpus[i]) || ticking) {
            doctor_found(finding, DOCTOR_ADVICE, "the kernel %s CPU %u of a busy core",
                         doctor_list_has(isolated, cpus[i]) ? "ticks on" : "schedules others on",
                         cpus[i]);
            doctor_mend(finding, "boot with isolcpus=%u nohz_full=%u rcu_nocbs=%u", cpus[i],
                        cpus[i], cpus[i]);
            return;
        }
    }
}

/* Path of our group in a hierarchy of /proc/self/cgroup: its line begins with "N:controllers:". */
static bool group_of(const struct doctor *doctor, bool v2, char ret_path[DOCTOR_PATH_BYTES / 2])
{
    char *text = doctor_file(doctor, "/proc/self/cgroup");
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
            snprintf(ret_path, DOCTOR_PATH_BYTES / 2, "%s",
                     strcmp(path + 1, "/") == 0 ? "" : path + 1);
            return true;
        }
    }
    return false;
}

void doctor_probe_quota(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[DOCTOR_LINE_BYTES];
    char group[DOCTOR_PATH_BYTES / 2];
    const uint32_t *cpus;
    uint64_t quota_us = 0;
    uint64_t period_us = 100000;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    const char *file = "cpu.max";
    if (group_of(doctor, true, group) &&
        doctor_line(doctor, text, "/sys/fs/cgroup%s/cpu.max", group)) {
        quota_us = strtoull(text, NULL, 10); /* "max": 0 */
        period_us = strchr(text, ' ') ? strtoull(strchr(text, ' '), NULL, 10) : period_us;
    } else if (group_of(doctor, false, group) &&
               doctor_line(doctor, text, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", group)) {
        file = "cpu.cfs_quota_us";
        quota_us = text[0] == '-' ? 0 : strtoull(text, NULL, 10);
        if (doctor_line(doctor, text, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", group)) {
            period_us = strtoull(text, NULL, 10);
        }
    }
    /* One more: control and the stores run beside the cores. */
    if (quota_us > 0 && period_us > 0 && quota_us / period_us < (uint64_t)count + 1) {
        doctor_found(
            finding, quota_us / period_us < count ? DOCTOR_BAD : DOCTOR_ADVICE,
            "the control group gives %llu ms of CPU in %llu ms to %u cores and their helpers",
            (unsigned long long)quota_us / 1000, (unsigned long long)period_us / 1000, count);
        bool v1 = strcmp(file, "cpu.max") != 0;
        doctor_mend(finding, "echo %s > /sys/fs/cgroup%s%s/%s", v1 ? "-1" : "max", v1 ? "/cpu" : "",
                    group, file);
    }
}

void doctor_probe_governor(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[DOCTOR_LINE_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    for (uint32_t i = 0; i < count; i++) {
        if (doctor_line(doctor, text, "/sys/devices/system/cpu/cpu%u/cpufreq/scaling_governor",
                        cpus[i]) &&
            strcmp(text, "performance") != 0) {
            doctor_found(finding, DOCTOR_ADVICE, "CPU %u has the governor %.32s", cpus[i], text);
            doctor_mend(finding, "cpupower -c %u frequency-set -g performance", cpus[i]);
            return;
        }
    }
}

void doctor_probe_clocksource(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[DOCTOR_LINE_BYTES];
    const char *dir = "/sys/devices/system/clocksource/clocksource0";
    if (!doctor_line(doctor, text, "%s/current_clocksource", dir)) {
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
    doctor_found(finding, DOCTOR_ADVICE, "the clock is %.32s: each reading is a system call", text);
    doctor_mend(finding, "echo tsc > %s/current_clocksource", dir);
}
