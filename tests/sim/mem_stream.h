/* SPDX-License-Identifier: Apache-2.0 */
/* A maker of streams without any network: the test plays the peer. Bytes that the peer sends arrive
 * in buffers of seeded sizes; what the core sends is read from its references when the peer takes
 * it, so that a reference given back too early shows as wrong bytes. Capacity of the send queue and
 * the pace at which the peer takes bytes are the test's, so every "no room" path runs.
 */
#ifndef MILL_TESTS_SIM_MEM_STREAM_H
#define MILL_TESTS_SIM_MEM_STREAM_H

#include "base/random.h"
#include "dataplane/stream/stream.h"

enum {
    MEM_STREAMS_MAX = 64,
    MEM_PIECES_MAX = 16,
    MEM_SMALL_BYTES_MAX = 8192,
};

struct mem_maker;

struct mem_peer; /* the test's end of one connection */

/* Makes a maker for a core; seed decides buffer sizes. Aborts the test when memory is out. */
struct mem_maker *mem_maker_create(struct mill_loans *loans, uint8_t *arena_base,
                                   const struct mill_stream_events *events, void *context,
                                   uint64_t seed);
struct mill_stream_maker *mem_maker_base(struct mem_maker *maker);

/* Connections opened from here on come from 10.0.0.last; the first ones from 10.0.0.0. */
void mem_address(struct mem_maker *maker, uint8_t last);
/* Opens a connection to the core; NULL when the core refused. */
struct mem_peer *mem_connect(struct mem_maker *maker);
/* The peer sends bytes; they arrive with the next step. */
void mem_send(struct mem_peer *peer, const void *bytes, uint32_t size_bytes);
/* The peer takes up to capacity bytes of what the core has sent. ret: how many. */
uint32_t mem_take(struct mem_peer *peer, void *ret_bytes, uint32_t capacity);
/* Bytes the core has queued and the peer has not taken. */
uint64_t mem_queued(const struct mem_peer *peer);
/* The peer sends FIN, or resets. */
void mem_finish(struct mem_peer *peer);
void mem_reset(struct mem_peer *peer);
/* True when the core ended the connection. */
bool mem_ended(const struct mem_peer *peer);
/* Forgets the peer's end; resets it when still open. */
void mem_forget(struct mem_peer *peer);

#endif
