/* SPDX-License-Identifier: Apache-2.0 */
/* A single-producer single-consumer ring of messages in memory that two threads or two processes
 * map. Used between control and cores, between cores, and between a core and its workers.
 *
 *   | shared header | line: tail (producer) | line: head (consumer) | data: capacity bytes ... |
 *   message: u32 size | u32 kind | bytes, padded to 8; a message never wraps (a filler does)
 *
 * Positions count bytes for ever and only rise. The producer claims, fills, and publishes all
 * claims with one release store of tail; the consumer looks, and frees all it took with one release
 * store of head. A process killed at any instruction leaves both positions consistent: an
 * unpublished claim never happened, an unfreed message is seen again by the next consumer.
 */
#ifndef MILL_HUGEPAGES_RING_H
#define MILL_HUGEPAGES_RING_H

#include <stdatomic.h>

#include "base/compiler.h"

enum {
    MILL_RING_MAGIC = 0x4d4c5247, /* "MLRG" */
    MILL_RING_HEADER_BYTES = 8,
    MILL_RING_ALIGN_BYTES = 8,
};

struct mill_ring_shared {
    uint32_t magic;
    uint32_t version;
    uint64_t capacity_bytes; /* power of two */
    MILL_SPACED _Atomic uint64_t tail;
    MILL_SPACED _Atomic uint64_t head;
    MILL_SPACED uint8_t data[];
};

/* One end. The producer's and the consumer's are separate structs in private memory. */
struct mill_ring {
    struct mill_ring_shared *shared;
    uint64_t mask;
    uint64_t mine;   /* producer: next claim; consumer: next to look at */
    uint64_t theirs; /* the other side's position as last read */
    uint64_t full_count;
    uint64_t bad_count; /* consumer: malformed message of a broken peer; the ring was emptied */
};

/* Bytes that a ring of this capacity (power of two) takes. */
uint64_t mill_ring_bytes(uint64_t capacity_bytes);

/* Makes an empty ring at memory (128-byte aligned). */
struct mill_ring_shared *mill_ring_format(void *memory, uint64_t capacity_bytes);

/* Attaches an end to a formatted ring and goes on where the last one of that end stopped.
 * limit_bytes is the memory that is there (mill_ring_bytes of the capacity, or more).
 * ret: 0, -EBADMSG when the header is not one of a ring that lies within limit_bytes. */
int mill_ring_attach_producer(struct mill_ring *ring, struct mill_ring_shared *shared,
                              uint64_t limit_bytes) MILL_WARN_UNUSED;
int mill_ring_attach_consumer(struct mill_ring *ring, struct mill_ring_shared *shared,
                              uint64_t limit_bytes) MILL_WARN_UNUSED;

/* Producer: room for one message of size_bytes (at most a quarter of the capacity), 8-byte aligned.
 * Several may be claimed before one publish. ret: NULL when full (counted). */
void *mill_ring_claim(struct mill_ring *ring, uint32_t kind, uint32_t size_bytes);
/* Makes all claims visible. */
void mill_ring_publish(struct mill_ring *ring);
/* Bytes free for claims, as last known after a fresh look; a message takes its header and padding
 * from them, and what is left up to the end of the data when it would wrap. */
uint64_t mill_ring_room(struct mill_ring *ring);
/* True when a claim of size_bytes would succeed now. Counts nothing. */
bool mill_ring_fits(struct mill_ring *ring, uint32_t size_bytes);

/* Consumer: the next message, NULL when there is none. Stays valid until mill_ring_release. */
const void *mill_ring_next(struct mill_ring *ring, uint32_t *ret_kind, uint32_t *ret_size_bytes);
/* Frees everything that mill_ring_next has returned. */
void mill_ring_release(struct mill_ring *ring);
bool mill_ring_empty(const struct mill_ring *ring);

/* --- bells: waking a consumer that sleeps ---------------------------------------------------- */

/* Shared word and eventfd of one consumer thread. The consumer publishes asleep = 1 (sequentially
 * consistent), looks at every source once more, then blocks on fd; a producer publishes, then looks
 * at the word (after a full fence) and writes the fd only when it is 1. */
struct mill_bell_shared {
    MILL_SPACED _Atomic uint32_t asleep;
    _Atomic uint64_t rung_ns; /* when it was first rung since the consumer asked; 0: not */
};

struct mill_bell {
    struct mill_bell_shared *shared;
    int fd;         /* eventfd, non-blocking */
    uint64_t rings; /* times this producer wrote it */
};

/* Producer, after publish. */
void mill_bell_ring(struct mill_bell *bell);
/* Consumer: about to sleep, and awake again (clears word and eventfd). */
void mill_bell_asleep(struct mill_bell *bell);
void mill_bell_awake(struct mill_bell *bell);
/* Consumer: monotonic time of the first ring since the last call, 0 when there was none. */
uint64_t mill_bell_rung(struct mill_bell *bell);

#endif
