/* SPDX-License-Identifier: Apache-2.0 */
/* What the port's tests share: an arena of plain memory, EAL without hugepages, and frames. One EAL
 * per process, so each test file is a binary that starts it once. */
#ifndef MILL_TESTS_UNIT_PORT_SUPPORT_H
#define MILL_TESTS_UNIT_PORT_SUPPORT_H

#include "dataplane/port/port.h"

enum {
    TEST_ARENA_BYTES = 8 << 20,
    TEST_QUEUES_MAX = 32,
    TEST_ETH_BYTES = 14,
    TEST_HEADERS_BYTES = 54, /* Ethernet, IPv4, TCP without options */
};

/* The arena that a port sees: the fake answers for hugepages/arena.c. */
struct mill_arena {
    uint8_t *base; /* 2 MiB aligned, so that page borders are where the test wants them */
    uint64_t size_bytes;
};

struct test_world {
    struct mill_arena arena;
    struct mill_loans loans;
    struct mill_loans *loans_of[TEST_QUEUES_MAX]; /* all the same: one thread owns every queue */
};

/* Arena filled with a pattern that differs at each place, and empty loans. Aborts on failure. */
void test_world_init(struct test_world *world);
void test_world_fini(struct test_world *world);

/* Starts EAL as a machine without hugepages does; prefix is the test's name. ret: 0. */
int test_eal_start(const char *prefix);

/* Options of one queue on a device. */
struct mill_port_options test_options(const char *device);

/* A reference to size_bytes from pos_bytes of the arena on (extent 0 .. by units). */
struct mill_ref test_ref(uint32_t pos_bytes, uint32_t size_bytes);

/* A TCP frame with blank sums as net/ writes it, over the pieces; both addresses fixed. inlined
 * bytes follow the headers. Takes it from the link; NULL when there is none. */
struct mill_frame *test_tcp_frame(const struct mill_link *link, const uint8_t to_mac[6],
                                  const void *inlined, uint32_t inlined_bytes,
                                  const struct mill_ref *pieces, uint16_t count);

/* The frame's payload bytes as they must arrive. ret: their number. */
uint32_t test_payload(const struct test_world *world, const void *inlined, uint32_t inlined_bytes,
                      const struct mill_ref *pieces, uint16_t count, uint8_t *ret_bytes);

/* Copies a received frame out of its buffers and frees them. ret: its bytes. */
uint32_t test_take(struct mill_buf *buf, uint8_t *ret_bytes, uint32_t max, uint32_t *ret_buffers);

/* IPv4 and TCP sums of a whole frame by the plainest method, 16 bits at a time. */
bool test_sums_right(const uint8_t *frame, uint32_t size_bytes);

/* Runs a command, output hidden. ret: exit code. */
int test_run(const char *format, ...) MILL_PRINTF(1, 2);

/* A packet socket at the kernel's end of a TAP in a namespace. ret: descriptor or -1. */
int test_peer_open(const char *netns, const char *iface);

/* Next frame that the port sent, waiting up to a fifth of a second. ret: its bytes, 0: none. */
uint32_t test_peer_take(int peer, uint8_t *ret_bytes, uint32_t max);

/* Whether TAPs and namespaces can be made here; prints the reason when not. Then namespaces of this
 * name are this process's alone: once per process. */
bool test_can_tap(const char *name);

#endif
