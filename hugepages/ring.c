/* SPDX-License-Identifier: Apache-2.0 */
/* The single-producer single-consumer ring and the bell (ring.h). Each end belongs to one thread,
 * which may live in another process than the other end. Never allocates or waits; the only system
 * calls are those of a bell that really has to wake somebody, or to clear that waking.
 *
 * The other end is not trusted: whatever it writes, this end reads and writes inside the ring only,
 * does a bounded amount of work per call, and counts what it could not understand.
 *
 *   data: |....|m1 |m2    |m3 |filler|        positions rise for ever; data index = pos & mask
 *              ^ head          ^ tail         head <= tail <= head + capacity
 */
#include "hugepages/ring.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

enum {
    RING_VERSION = 1,
    /* Two of the largest messages and their headers fit beside a filler. */
    RING_CAPACITY_MIN_BYTES = 128,
};

/* Kind of the message that pads to the end of the data, so that the next one does not wrap. */
#define RING_KIND_FILLER UINT32_MAX

/* Message header, read and written as one word: a peer that rewrites it while it is read cannot
 * make the checked size and the used size differ. */
union ring_header {
    uint64_t word;
    struct {
        uint32_t size_bytes;
        uint32_t kind;
    } part;
};
static_assert(sizeof(union ring_header) == MILL_RING_HEADER_BYTES, "one word");
static_assert(offsetof(struct mill_ring_shared, tail) == 128, "shared layout");
static_assert(offsetof(struct mill_ring_shared, head) == 256, "shared layout");
static_assert(offsetof(struct mill_ring_shared, data) == 384, "shared layout");
static_assert(sizeof(struct mill_ring_shared) == 384, "shared layout");

static uint64_t message_bytes(uint32_t size_bytes)
{
    return MILL_RING_HEADER_BYTES + mill_round_up(size_bytes, MILL_RING_ALIGN_BYTES);
}

static bool is_capacity(uint64_t capacity_bytes)
{
    return capacity_bytes >= RING_CAPACITY_MIN_BYTES &&
           (capacity_bytes & (capacity_bytes - 1)) == 0;
}

uint64_t mill_ring_bytes(uint64_t capacity_bytes)
{
    return sizeof(struct mill_ring_shared) + capacity_bytes;
}

struct mill_ring_shared *mill_ring_format(void *memory, uint64_t capacity_bytes)
{
    struct mill_ring_shared *shared = memory;
    MILL_ASSERT(is_capacity(capacity_bytes));
    MILL_ASSERT_EQ((uintptr_t)memory % MILL_CACHE_SPACING_BYTES, 0u);
    shared->version = RING_VERSION;
    shared->capacity_bytes = capacity_bytes;
    atomic_store_explicit(&shared->tail, 0, memory_order_relaxed);
    atomic_store_explicit(&shared->head, 0, memory_order_relaxed);
    shared->magic = MILL_RING_MAGIC;
    return shared;
}

/* Checks the header and takes both positions: capacity is read once, so that mask stays right
 * whatever the peer does to the header later. */
static int attach(struct mill_ring *ring, struct mill_ring_shared *shared, uint64_t limit_bytes,
                  uint64_t *ret_head, uint64_t *ret_tail)
{
    if (limit_bytes < sizeof(*shared) || shared->magic != MILL_RING_MAGIC ||
        shared->version != RING_VERSION) {
        return -EBADMSG;
    }
    uint64_t capacity_bytes = shared->capacity_bytes;
    if (!is_capacity(capacity_bytes) || capacity_bytes > limit_bytes - sizeof(*shared)) {
        return -EBADMSG;
    }
    /* Acquire pairs with the release stores of mill_ring_publish and mill_ring_release. */
    uint64_t head = atomic_load_explicit(&shared->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&shared->tail, memory_order_acquire);
    if ((head | tail) % MILL_RING_ALIGN_BYTES != 0 || tail - head > capacity_bytes) {
        return -EBADMSG;
    }
    *ring = (struct mill_ring){.shared = shared, .mask = capacity_bytes - 1};
    *ret_head = head;
    *ret_tail = tail;
    return 0;
}

int mill_ring_attach_producer(struct mill_ring *ring, struct mill_ring_shared *shared,
                              uint64_t limit_bytes)
{
    return attach(ring, shared, limit_bytes, &ring->theirs, &ring->mine);
}

int mill_ring_attach_consumer(struct mill_ring *ring, struct mill_ring_shared *shared,
                              uint64_t limit_bytes)
{
    return attach(ring, shared, limit_bytes, &ring->mine, &ring->theirs);
}

/* --- producer ----------------------------------------------------------------------------------
 */

/* Takes a fresh look at the consumer's position. A value that no sound consumer can have written is
 * not believed: the ring then stays as full as it was last known to be. */
static void look_at_head(struct mill_ring *ring)
{
    /* Acquire pairs with the release store in mill_ring_release: the consumer's reads of the freed
     * bytes are over before we write them. */
    uint64_t head = atomic_load_explicit(&ring->shared->head, memory_order_acquire);
    if (ring->mine - head <= ring->mask + 1) {
        ring->theirs = head;
    }
}

/* Bytes that a message takes at the producer's position, with the filler before it if it would
 * wrap; ret_filler_bytes is 0 or what is left up to the end of the data. */
static uint64_t needed_bytes(const struct mill_ring *ring, uint32_t size_bytes,
                             uint64_t *ret_filler_bytes)
{
    uint64_t total_bytes = message_bytes(size_bytes);
    uint64_t rest_bytes = ring->mask + 1 - (ring->mine & ring->mask);
    *ret_filler_bytes = total_bytes > rest_bytes ? rest_bytes : 0;
    return total_bytes + *ret_filler_bytes;
}

static uint64_t free_bytes(const struct mill_ring *ring)
{
    return ring->mask + 1 - (ring->mine - ring->theirs);
}

static void put_header(struct mill_ring *ring, uint32_t kind, uint32_t size_bytes)
{
    union ring_header header = {.part = {.size_bytes = size_bytes, .kind = kind}};
    memcpy(&ring->shared->data[ring->mine & ring->mask], &header.word, sizeof(header.word));
}

bool mill_ring_fits(struct mill_ring *ring, uint32_t size_bytes)
{
    uint64_t filler_bytes;
    uint64_t needed = needed_bytes(ring, size_bytes, &filler_bytes);
    if (needed > free_bytes(ring)) {
        look_at_head(ring);
    }
    return size_bytes <= (ring->mask + 1) / 4 && needed <= free_bytes(ring);
}

void *mill_ring_claim(struct mill_ring *ring, uint32_t kind, uint32_t size_bytes)
{
    MILL_ASSERT_LE((uint64_t)size_bytes, (ring->mask + 1) / 4);
    MILL_ASSERT(kind != RING_KIND_FILLER);
    uint64_t filler_bytes;
    uint64_t needed = needed_bytes(ring, size_bytes, &filler_bytes);
    if (needed > free_bytes(ring)) {
        look_at_head(ring);
        if (MILL_UNLIKELY(needed > free_bytes(ring))) {
            ring->full_count++;
            return NULL;
        }
    }
    if (MILL_UNLIKELY(filler_bytes > 0)) {
        put_header(ring, RING_KIND_FILLER, (uint32_t)(filler_bytes - MILL_RING_HEADER_BYTES));
        ring->mine += filler_bytes;
    }
    put_header(ring, kind, size_bytes);
#ifdef MILL_MUTANT_MEMORY_RING_PUBLISH_EARLY
    atomic_store_explicit(&ring->shared->tail, ring->mine + needed - filler_bytes,
                          memory_order_release);
#endif
    uint8_t *bytes = &ring->shared->data[ring->mine & ring->mask] + MILL_RING_HEADER_BYTES;
    ring->mine += needed - filler_bytes;
    return bytes;
}

void mill_ring_publish(struct mill_ring *ring)
{
    /* Release pairs with the acquire load in look_at_tail: whoever sees the new tail sees headers
     * and bytes below it. */
    atomic_store_explicit(&ring->shared->tail, ring->mine, memory_order_release);
}

uint64_t mill_ring_room(struct mill_ring *ring)
{
    look_at_head(ring);
    return free_bytes(ring);
}

/* --- consumer ----------------------------------------------------------------------------------
 */

/* A peer wrote what no producer writes: what is in the ring cannot be understood from here on, so
 * all of it is dropped. ret: NULL, for the caller to return. */
static MILL_COLD const void *drop_all(struct mill_ring *ring, uint64_t tail)
{
    ring->bad_count++;
    ring->mine = tail & ~(uint64_t)(MILL_RING_ALIGN_BYTES - 1);
    ring->theirs = ring->mine;
    mill_ring_release(ring);
    return NULL;
}

static uint64_t look_at_tail(const struct mill_ring *ring)
{
    /* Acquire pairs with the release store in mill_ring_publish. */
    return atomic_load_explicit(&ring->shared->tail, memory_order_acquire);
}

const void *mill_ring_next(struct mill_ring *ring, uint32_t *ret_kind, uint32_t *ret_size_bytes)
{
    const uint64_t capacity_bytes = ring->mask + 1;
    if (ring->mine == ring->theirs) {
        uint64_t tail = look_at_tail(ring);
        if (tail == ring->mine) {
            return NULL;
        }
        if (tail % MILL_RING_ALIGN_BYTES != 0 || tail - ring->mine > capacity_bytes) {
            return drop_all(ring, tail);
        }
        ring->theirs = tail;
    }
    /* Two rounds at most: a filler ends at the end of the data, and none begins there. */
    for (;;) {
        uint64_t there_bytes = ring->theirs - ring->mine;
        uint64_t at_bytes = ring->mine & ring->mask;
        uint64_t rest_bytes = capacity_bytes - at_bytes;
        const uint8_t *at = &ring->shared->data[at_bytes];
        union ring_header header;
        if (MILL_UNLIKELY(there_bytes == 0)) {
            return drop_all(ring, ring->theirs); /* a filler with nothing behind it */
        }
        header.word = __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
        uint64_t total_bytes = message_bytes(header.part.size_bytes);
#ifdef MILL_MUTANT_MEMORY_RING_TRUST_SIZE
        total_bytes = MILL_MIN(total_bytes, rest_bytes);
        there_bytes = rest_bytes;
#endif
        if (MILL_UNLIKELY(total_bytes > there_bytes || total_bytes > rest_bytes)) {
            return drop_all(ring, ring->theirs);
        }
        if (MILL_UNLIKELY(header.part.kind == RING_KIND_FILLER)) {
            if (at_bytes == 0 || total_bytes != rest_bytes) {
                return drop_all(ring, ring->theirs);
            }
            ring->mine += total_bytes;
            continue;
        }
        if (MILL_UNLIKELY(header.part.size_bytes > capacity_bytes / 4)) {
            return drop_all(ring, ring->theirs);
        }
        ring->mine += total_bytes;
#ifdef MILL_MUTANT_MEMORY_RING_RELEASE_EARLY
        mill_ring_release(ring);
#endif
        *ret_kind = header.part.kind;
        *ret_size_bytes = header.part.size_bytes;
        return at + MILL_RING_HEADER_BYTES;
    }
}

void mill_ring_release(struct mill_ring *ring)
{
    /* Release pairs with the acquire load in look_at_head: our reads end before the bytes are
     * handed out again. */
    atomic_store_explicit(&ring->shared->head, ring->mine, memory_order_release);
}

bool mill_ring_empty(const struct mill_ring *ring)
{
    return look_at_tail(ring) == ring->mine;
}

/* --- bells -------------------------------------------------------------------------------------
 *
 * The two sides are Dekker's: each writes its own word, then reads the other's. Without a full
 * fence between, a store may still sit in the store buffer while the load is done, both miss each
 * other, and the consumer sleeps on a full ring. */

/* Full fence. TSan does not know fences: there an ordered no-op on the word stands in for it. */
static inline void full_fence(_Atomic uint32_t *word)
{
#ifdef __SANITIZE_THREAD__
    (void)atomic_fetch_or_explicit(word, 0, memory_order_seq_cst);
#else
    (void)word;
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

void mill_bell_ring(struct mill_bell *bell)
{
    /* Orders our store of tail (mill_ring_publish) before the load of asleep; pairs with the fence
     * in mill_bell_asleep. */
#ifndef MILL_MUTANT_MEMORY_BELL_NO_FENCE
    full_fence(&bell->shared->asleep);
#endif
    if (MILL_LIKELY(atomic_load_explicit(&bell->shared->asleep, memory_order_relaxed) == 0)) {
        return;
    }
    const uint64_t one = 1;
    uint64_t silent = 0;
    (void)atomic_compare_exchange_strong_explicit(&bell->shared->rung_ns, &silent,
                                                  mill_now_read().mono_ns, memory_order_relaxed,
                                                  memory_order_relaxed);
    /* EAGAIN: the counter is at its maximum, so the descriptor is readable, which is all we want.
     */
    if (write(bell->fd, &one, sizeof(one)) == (ssize_t)sizeof(one)) {
        bell->rings++;
    }
}

uint64_t mill_bell_rung(struct mill_bell *bell)
{
    return atomic_exchange_explicit(&bell->shared->rung_ns, 0, memory_order_relaxed);
}

void mill_bell_asleep(struct mill_bell *bell)
{
    /* The caller looks at every source after this; the fence orders that look after the store.
     * Pairs with the fence in mill_bell_ring. */
    atomic_store_explicit(&bell->shared->asleep, 1, memory_order_relaxed);
#ifndef MILL_MUTANT_MEMORY_BELL_SLEEP_NO_FENCE
    full_fence(&bell->shared->asleep);
#endif
}

void mill_bell_awake(struct mill_bell *bell)
{
    uint64_t rung;
    atomic_store_explicit(&bell->shared->asleep, 0, memory_order_relaxed);
    /* Clears the descriptor; not rung (EAGAIN) is fine too. A producer that saw asleep just before
     * may still write: then the next sleep ends at once, which costs a turn and loses nothing. */
    ssize_t got = read(bell->fd, &rung, sizeof(rung));
    MILL_UNUSED(got);
}
