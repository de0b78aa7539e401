/* SPDX-License-Identifier: Apache-2.0 */
/* What each end of a load needs, whichever it is: addresses, a port, a folder. Main thread only;
 * whatever cannot be made ends the program with its reason. */
#ifndef MILL_TESTS_PERF_RING_END_H
#define MILL_TESTS_PERF_RING_END_H

#include "dataplane/port/port.h"

#define RING_BROKER_HOST "198.18.0.1"

enum {
    RING_BROKER_ADDRESS = 0xc6120001, /* the same */
    RING_CLIENT_ADDRESS = 0xc6120002,
    RING_PREFIX_BITS = 24,
    RING_BROKER_PORT = 9092,
    RING_DIR_BYTES = 64,
};

/* An address as streams have it. */
void ring_address(uint32_t address, uint8_t ret_bytes[16]);
/* Opens one end. node_id: another one at each end, as addresses are made from it. */
struct mill_port *ring_port_open(const char *device, int32_t node_id, struct mill_arena *arena,
                                 struct mill_loans *const *loans);
/* An empty folder on tmpfs named after this process, and its end. */
void ring_memory_dir(char ret_dir[RING_DIR_BYTES]);
void ring_remove_dir(const char *dir);
/* Ends the program when r is negative. */
void ring_need(int r, const char *what, const struct mill_report *report);

#endif
