/* SPDX-License-Identifier: Apache-2.0 */
/* What the doctor's probes share: files below its root, words of findings, and the probes by
 * subject. A file that is not there is no finding: that machine has no such thing, or hides it. */
#ifndef MILL_CLI_DOCTOR_PROBES_H
#define MILL_CLI_DOCTOR_PROBES_H

#include "cli/doctor.h"

enum {
    DOCTOR_PATH_BYTES = 640,
    DOCTOR_LINE_BYTES = 256,
    DOCTOR_NAME_BYTES = 64,
};

/* --- doctor_files.c --- */

/* A path below the root. */
void doctor_path(const struct doctor *doctor, char ret_path[DOCTOR_PATH_BYTES], const char *format,
                 ...) MILL_PRINTF(3, 4);
/* A whole file in the doctor's scratch memory, until the next call. NULL: cannot be read. */
char *doctor_file(const struct doctor *doctor, const char *path);
/* A file's first line without its end. ret: false when it cannot be read. */
bool doctor_line(const struct doctor *doctor, char ret_text[DOCTOR_LINE_BYTES], const char *format,
                 ...) MILL_PRINTF(3, 4);
bool doctor_exists(const struct doctor *doctor, const char *path);
/* Mount point, type and options of the mount that holds path. */
bool doctor_mount_of(const struct doctor *doctor, const char *path,
                     char ret_type[DOCTOR_NAME_BYTES], char ret_options[DOCTOR_NAME_BYTES * 4]);

/* What is wrong, and the command that mends it. */
void doctor_found(struct doctor_finding *finding, enum doctor_level level, const char *format, ...)
    MILL_PRINTF(3, 4);
void doctor_mend(struct doctor_finding *finding, const char *format, ...) MILL_PRINTF(2, 3);

/* Whether a list such as "0-3,8" holds a CPU. */
bool doctor_list_has(const char *list, uint32_t cpu);
/* The number behind the first name in a text; 0: the name is not there. */
uint64_t doctor_number_behind(const char *text, const char *name);
bool doctor_uses_dpdk(const struct mill_config *config);

/* --- probes: each leaves the finding alone when all is well --- */

/* doctor_memory.c */
void doctor_probe_hugepages(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_hugetlbfs(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_thp(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_swap(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_memlock(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_nofile(const struct doctor *doctor, struct doctor_finding *finding);

/* doctor_cpus.c */
void doctor_probe_cpus(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_siblings(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_isolation(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_quota(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_governor(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_clocksource(const struct doctor *doctor, struct doctor_finding *finding);

/* doctor_network.c */
void doctor_probe_device(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_mtu(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_offloads(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_vfio(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_numa(const struct doctor *doctor, struct doctor_finding *finding);

/* doctor_kernel.c */
void doctor_probe_io_uring(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_bpf(const struct doctor *doctor, struct doctor_finding *finding);
void doctor_probe_disk(const struct doctor *doctor, struct doctor_finding *finding);

#endif
