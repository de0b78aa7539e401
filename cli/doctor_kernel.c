/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of what the kernel permits, and of the disks of log.dirs. */
#include "cli/doctor_probes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
    SPACE_MIN_MB = 1024,
    CAP_SYS_ADMIN_BIT = 21,
    CAP_PERFMON_BIT = 38,
    CAP_BPF_BIT = 39,
};

void doctor_probe_io_uring(const struct doctor *doctor, struct doctor_finding *finding)
{
    char text[DOCTOR_LINE_BYTES];
    if (doctor_line(doctor, text, "/proc/sys/kernel/io_uring_disabled") && text[0] != '0') {
        doctor_found(finding, DOCTOR_ADVICE,
                     "io_uring is switched off (%.8s): epoll takes its place", text);
        doctor_mend(finding, "sysctl -w kernel.io_uring_disabled=0");
    }
}

void doctor_probe_bpf(const struct doctor *doctor, struct doctor_finding *finding)
{
    const char *text = doctor_file(doctor, "/proc/self/status");
    const char *at = text ? strstr(text, "CapEff:") : NULL;
    uint64_t caps = at ? strtoull(at + strlen("CapEff:"), NULL, 16) : UINT64_MAX;
    bool permitted = ((caps >> CAP_BPF_BIT) & (caps >> CAP_PERFMON_BIT) & 1) ||
                     ((caps >> CAP_SYS_ADMIN_BIT) & 1);
    if (!doctor_exists(doctor, "/sys/kernel/btf/vmlinux")) {
        doctor_found(finding, DOCTOR_ADVICE, "the kernel has no BTF");
        doctor_mend(finding, "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y");
    } else if (!permitted) {
        doctor_found(finding, DOCTOR_ADVICE, "this user may not load eBPF programs");
        doctor_mend(finding, "start as root (systemd: AmbientCapabilities=CAP_BPF CAP_PERFMON)");
    }
}

void doctor_probe_disk(const struct doctor *doctor, struct doctor_finding *finding)
{
    static const char *const slow[] = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "overlay"};
    const char *const *dirs;
    uint32_t count = mill_config_log_dirs(doctor->config, &dirs);
    for (uint32_t i = 0; i < count && finding->level == DOCTOR_FINE; i++) {
        char type[DOCTOR_NAME_BYTES] = "";
        char options[DOCTOR_NAME_BYTES * 4];
        char path[DOCTOR_PATH_BYTES];
        struct statvfs info;
        doctor_path(doctor, path, "%s", dirs[i]);
        for (char *slash;
             statvfs(path, &info) != 0 && (slash = strrchr(path, '/')) && slash > path;) {
            *slash = '\0'; /* not made yet: where it will be made */
        }
        if (statvfs(path, &info) == 0 &&
            (uint64_t)info.f_bavail * info.f_frsize >> 20 < SPACE_MIN_MB) {
            doctor_found(finding, DOCTOR_BAD, "%s has %llu MiB of space", dirs[i],
                         (unsigned long long)((uint64_t)info.f_bavail * info.f_frsize >> 20));
            doctor_mend(finding, "du -sh %s/* | sort -h", dirs[i]);
            return;
        }
        if (!doctor_mount_of(doctor, dirs[i], type, options)) {
            continue;
        }
        if (strcmp(type, "tmpfs") == 0) {
            doctor_found(finding, DOCTOR_ADVICE, "%s is on tmpfs: the log ends with the machine",
                         dirs[i]);
            doctor_mend(finding, "set log.dirs to a directory on a disk");
        }
        for (uint32_t n = 0; n < MILL_COUNT_OF(slow); n++) {
            if (strncmp(type, slow[n], strlen(slow[n])) == 0) {
                doctor_found(finding, DOCTOR_ADVICE, "%s is on %s", dirs[i], type);
                doctor_mend(finding, "set log.dirs to a directory on ext4 or XFS");
            }
        }
    }
}
