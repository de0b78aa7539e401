/* SPDX-License-Identifier: Apache-2.0 */
/* User's side of steer.bpf.c: what hangs on an interface before the AF_XDP driver attaches the
 * program, and the program's maps after it did. The driver loads and attaches; nothing here does.
 *
 * Threads: start and stop on one thread, in the interface's network namespace; targets on the same;
 * counters on any one thread at a time. System calls at every call: never on a core's turn.
 */
#ifndef MILL_BPF_STEER_LOAD_H
#define MILL_BPF_STEER_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/report.h"
#include "bpf/steer.h"

/* Descriptors of the maps of an attached program. */
struct mill_steer {
    uint32_t program_id;
    int targets_fd;
    int config_fd;
    int counters_fd;
    bool generic; /* the interface's driver has no XDP of its own: the kernel's slow way */
};

/* Makes the interface free for the driver. A program that is ours by name and tag was left by a run
 * that was killed (the caller has made sure that none runs): it is detached. ret: 0, -EBUSY another
 * program is attached (report names it and the command that removes it), -errno. */
int mill_steer_clear(uint32_t ifindex, const char *iface,
                     struct mill_report *report) MILL_WARN_UNUSED;

/* Finds the maps of our program on the interface. ret: 0, -ENOENT no program or not ours, -errno.
 */
int mill_steer_open(uint32_t ifindex, const char *iface, struct mill_steer *ret_steer,
                    struct mill_report *report) MILL_WARN_UNUSED;
/* Closes the descriptors; the program stays. Takes what was never opened, too (all zero). */
void mill_steer_close(struct mill_steer *steer);

/* Sends packets to this address and port (host order) to the sockets from now on.
 * protocol: IPPROTO_TCP or IPPROTO_UDP. ret: 0, -E2BIG the table is full, -errno. */
int mill_steer_add(const struct mill_steer *steer, uint32_t address, uint16_t port,
                   uint8_t protocol, struct mill_report *report) MILL_WARN_UNUSED;

/* Sets limits and the range of own source ports. ret: 0, -errno. */
int mill_steer_configure(const struct mill_steer *steer, const struct mill_steer_config *config,
                         struct mill_report *report) MILL_WARN_UNUSED;

/* Sums over all CPUs, by enum mill_steer_reason. ret: 0, -errno (nothing written). */
int mill_steer_counters(const struct mill_steer *steer,
                        uint64_t ret_counts[MILL_STEER_REASON_COUNT]) MILL_WARN_UNUSED;

#endif
