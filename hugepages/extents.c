/* SPDX-License-Identifier: Apache-2.0 */
/* Extents of one core: buddies inside 2 MiB chunks that this core took from the arena by
 * compare-and-swap. A struct mill_extents belongs to its core's thread alone; only the chunk table
 * is shared. After create nothing allocates, locks or calls the kernel.
 *
 *   class 0..9 (4 KiB .. 2 MiB): block inside one chunk   |  class 10..: neighbouring chunks
 *
 *   chunk:  [ 4K ][ 4K ][   8K   ][       16K        ][           32K ...
 *   blocks:  U0    F0    U1   0     F2   0   0   0      ...   first unit says what the block is
 *
 * Single chunks are taken from the low end of a file, runs from the high end, so that long-lived
 * small extents do not cut up what a large one needs.
 */
#include "hugepages/arena_private.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "hugepages/loans.h"

enum {
    BLOCK_USED = 0x80,
    BLOCK_FREE = 0x40,
    BLOCK_CLASS = 0x1f,
};
static_assert((int)ARENA_CLASS_MAX <= (int)BLOCK_CLASS, "class fits in a block's byte");

/* End of a free list; unit 0 is never in one (the header lies there). */
#define NO_UNIT UINT32_MAX

struct mill_extents {
    struct mill_arena *arena;
    const struct mill_loans *loans; /* NULL: frees are not checked against loans */
    uint32_t owner;                 /* this core's mark in the chunk table */
    uint32_t first_file;            /* of the preferred node */
    uint32_t class_max;
    uint32_t free_classes; /* bit per class below ARENA_CLASS_CHUNK with a free block */
    uint32_t free_head[ARENA_CLASS_CHUNK];
    uint32_t cached_chunk; /* one wholly free chunk of ours, NO_UNIT none: its first unit */
    uint32_t chunk_hint[MILL_ARENA_NODES_MAX]; /* per file: where the last search ended */
    uint64_t used_bytes;
    uint64_t full_count;
};

/* --- chunks --------------------------------------------------------------------------------------
 */

static uint32_t file_chunks(const struct mill_arena *arena)
{
    return arena->file_units / MILL_CHUNK_UNITS;
}

static bool chunk_claim(struct mill_extents *extents, uint32_t chunk)
{
    _Atomic uint32_t *word = &extents->arena->chunk_owner[chunk];
    uint32_t seen = ARENA_CHUNK_FREE;
    if (atomic_load_explicit(word, memory_order_relaxed) != ARENA_CHUNK_FREE) {
        return false;
    }
#ifdef MILL_MUTANT_MEMORY_CHUNK_NO_SWAP
    atomic_store_explicit(word, extents->owner, memory_order_relaxed);
    atomic_fetch_sub_explicit(&extents->arena->chunks_free, 1, memory_order_relaxed);
    return true;
#endif
    /* Acquire pairs with the release store in chunk_give: what the last owner wrote about the
     * chunk is seen, and is over. */
    if (!atomic_compare_exchange_strong_explicit(word, &seen, extents->owner, memory_order_acquire,
                                                 memory_order_relaxed)) {
        return false;
    }
    atomic_fetch_sub_explicit(&extents->arena->chunks_free, 1, memory_order_relaxed);
    return true;
}

static void chunk_give(struct mill_extents *extents, uint32_t chunk)
{
    /* Release pairs with the acquire in chunk_claim. */
    atomic_store_explicit(&extents->arena->chunk_owner[chunk], ARENA_CHUNK_FREE,
                          memory_order_release);
    atomic_fetch_add_explicit(&extents->arena->chunks_free, 1, memory_order_relaxed);
}

/* Index of the n-th file to search: the preferred one first. */
static uint32_t file_in_order(const struct mill_extents *extents, uint32_t n)
{
    return (extents->first_file + n) % extents->arena->geometry.files_length;
}

/* Takes one chunk from the low end. ret: its first unit, NO_UNIT none free. */
static uint32_t chunk_take(struct mill_extents *extents)
{
    struct mill_arena *arena = extents->arena;
    const uint32_t chunks = file_chunks(arena);
    if (atomic_load_explicit(&arena->chunks_free, memory_order_relaxed) == 0) {
        return NO_UNIT;
    }
    for (uint32_t n = 0; n < arena->geometry.files_length; n++) {
        uint32_t file = file_in_order(extents, n);
        uint32_t hint = extents->chunk_hint[file];
        for (uint32_t step = 0; step < chunks; step++) {
            uint32_t in_file = hint + step < chunks ? hint + step : hint + step - chunks;
            uint32_t chunk = file * chunks + in_file;
            if (chunk_claim(extents, chunk)) {
                extents->chunk_hint[file] = in_file;
                return chunk * MILL_CHUNK_UNITS;
            }
        }
    }
    return NO_UNIT;
}

/* Takes count neighbouring chunks from the high end of one file. A claim lost to another core, or a
 * chunk in use, starts the run anew below it. ret: first unit, NO_UNIT none. */
static uint32_t run_take(struct mill_extents *extents, uint32_t count)
{
    struct mill_arena *arena = extents->arena;
    const uint32_t chunks = file_chunks(arena);
    if (atomic_load_explicit(&arena->chunks_free, memory_order_relaxed) < count) {
        return NO_UNIT;
    }
    for (uint32_t n = 0; n < arena->geometry.files_length; n++) {
        uint32_t first = file_in_order(extents, n) * chunks;
        uint32_t length = 0; /* claimed: chunks [at, at + length) */
        for (uint32_t at = first + chunks; at-- > first;) {
            if (chunk_claim(extents, at)) {
                if (++length == count) {
                    return at * MILL_CHUNK_UNITS;
                }
                continue;
            }
#ifdef MILL_MUTANT_MEMORY_RUN_LEAK
            length = 0;
#endif
            for (; length > 0; length--) {
                chunk_give(extents, at + length);
            }
        }
        for (; length > 0; length--) {
            chunk_give(extents, first + length - 1);
        }
    }
    return NO_UNIT;
}

/* Gives a wholly free chunk back, or keeps it when none is kept: a partition that comes and goes
 * does not move a chunk each time. */
static void chunk_retire(struct mill_extents *extents, uint32_t unit)
{
    struct mill_arena *arena = extents->arena;
    if (extents->cached_chunk == NO_UNIT) {
        extents->cached_chunk = unit;
        return;
    }
    uint32_t chunk = unit / MILL_CHUNK_UNITS;
    uint32_t file = unit / arena->file_units;
    extents->chunk_hint[file] =
        MILL_MIN(extents->chunk_hint[file], chunk - file * file_chunks(arena));
    chunk_give(extents, chunk);
}

void mill_extents_trim(struct mill_extents *extents)
{
    if (extents->cached_chunk != NO_UNIT) {
        chunk_give(extents, extents->cached_chunk / MILL_CHUNK_UNITS);
        extents->cached_chunk = NO_UNIT;
    }
}

/* --- buddies -------------------------------------------------------------------------------------
 */

static void list_push(struct mill_extents *extents, uint32_t unit, uint32_t class)
{
    struct arena_link *links = extents->arena->links;
    uint32_t head = extents->free_head[class];
    links[unit] = (struct arena_link){.next = head, .prev = NO_UNIT};
    if (head != NO_UNIT) {
        links[head].prev = unit;
    }
    extents->free_head[class] = unit;
    extents->free_classes |= 1u << class;
    extents->arena->blocks[unit] = (uint8_t)(BLOCK_FREE | class);
}

static void list_remove(struct mill_extents *extents, uint32_t unit, uint32_t class)
{
    struct arena_link *links = extents->arena->links;
    struct arena_link link = links[unit];
    if (link.prev == NO_UNIT) {
        extents->free_head[class] = link.next;
    } else {
        links[link.prev].next = link.next;
    }
    if (link.next != NO_UNIT) {
        links[link.next].prev = link.prev;
    }
    if (extents->free_head[class] == NO_UNIT) {
        extents->free_classes &= ~(1u << class);
    }
    extents->arena->blocks[unit] = 0;
}

/* Takes a block of at most one chunk. O(classes), or a search in the chunk table. */
static uint32_t block_take(struct mill_extents *extents, uint32_t class)
{
    uint32_t from = ARENA_CLASS_CHUNK;
    uint32_t unit;
    uint32_t larger = extents->free_classes >> class;
    if (larger != 0) {
        from = class + (uint32_t)__builtin_ctz(larger);
        unit = extents->free_head[from];
        list_remove(extents, unit, from);
    } else if (extents->cached_chunk != NO_UNIT) {
        unit = extents->cached_chunk;
        extents->cached_chunk = NO_UNIT;
    } else {
        unit = chunk_take(extents);
        if (unit == NO_UNIT) {
            return NO_UNIT;
        }
    }
    while (from > class) {
        from--;
        list_push(extents, unit + (1u << from), from);
    }
    return unit;
}

/* Gives a block back and joins it with its free buddies. O(classes). */
static void block_give(struct mill_extents *extents, uint32_t unit, uint32_t class)
{
    uint8_t *blocks = extents->arena->blocks;
    while (class < ARENA_CLASS_CHUNK) {
        uint32_t buddy = unit ^ (1u << class);
        if (blocks[buddy] != (BLOCK_FREE | class)) {
            list_push(extents, unit, class);
            return;
        }
        list_remove(extents, buddy, class);
        unit = MILL_MIN(unit, buddy);
        class ++;
    }
    chunk_retire(extents, unit);
}

/* --- extents -------------------------------------------------------------------------------------
 */

/* Smallest class that holds size_bytes. */
static uint32_t class_of(uint32_t size_bytes)
{
    uint32_t units =
        (uint32_t)(((uint64_t)size_bytes + MILL_EXTENT_UNIT_BYTES - 1) >> MILL_EXTENT_UNIT_SHIFT);
    return units <= 1 ? 0 : 32u - (uint32_t)__builtin_clz(units - 1);
}

int mill_extents_create(struct mill_arena *arena, uint32_t core, int node_preferred,
                        struct mill_extents **ret_extents)
{
    if (core >= arena->cores) {
        return -EINVAL;
    }
    struct mill_extents *extents = calloc(1, sizeof(*extents));
    if (extents == NULL) {
        return -ENOMEM;
    }
    uint64_t bit = 1ull << core;
    if ((atomic_fetch_or_explicit(&arena->cores_made, bit, memory_order_relaxed) & bit) != 0) {
        free(extents);
        return -EEXIST;
    }
    extents->arena = arena;
    extents->owner = core + 1;
    extents->cached_chunk = NO_UNIT;
    extents->class_max = class_of(arena->geometry.extent_bytes_max);
    for (uint32_t i = 0; i < ARENA_CLASS_CHUNK; i++) {
        extents->free_head[i] = NO_UNIT;
    }
    for (uint32_t i = 0; i < arena->geometry.files_length; i++) {
        if (node_preferred >= 0 && arena->files[i].node == node_preferred) {
            extents->first_file = i;
        }
    }
    *ret_extents = extents;
    return 0;
}

void mill_extents_destroy(struct mill_extents *extents)
{
    if (extents == NULL) {
        return;
    }
    /* Chunks with extents in them stay claimed: their descriptors may be valid, and what they
     * describe is to be found by the next process. */
    mill_extents_trim(extents);
    if (extents->used_bytes == 0) {
        atomic_fetch_and_explicit(&extents->arena->cores_made, ~(1ull << (extents->owner - 1)),
                                  memory_order_relaxed);
    }
    free(extents);
}

void mill_extents_check_loans(struct mill_extents *extents, const struct mill_loans *loans)
{
    extents->loans = loans;
}

uint32_t mill_extents_prefer(struct mill_extents *extents, uint32_t file)
{
    uint32_t before = extents->first_file;
    MILL_ASSERT_LT(file, extents->arena->geometry.files_length);
    extents->first_file = file;
    return before;
}

/* Whole neighbouring chunks for a class above a chunk's. The kept chunk may be what a run lacks. */
static uint32_t chunks_take(struct mill_extents *extents, uint32_t class)
{
    uint32_t count = 1u << (class - ARENA_CLASS_CHUNK);
    mill_extents_trim(extents);
    return run_take(extents, count);
}

int mill_extent_alloc(struct mill_extents *extents, uint32_t size_bytes, uint32_t *ret_extent)
{
    struct mill_arena *arena = extents->arena;
    uint32_t class = class_of(size_bytes);
    if (class > extents->class_max) {
        return -EFBIG;
    }
    /* What an earlier process left would be overwritten. */
    MILL_ASSERT(!arena->taken);
    uint32_t unit =
        class <= ARENA_CLASS_CHUNK ? block_take(extents, class) : chunks_take(extents, class);
    if (MILL_UNLIKELY(unit == NO_UNIT)) {
#ifndef MILL_MUTANT_MEMORY_FULL_UNCOUNTED
        extents->full_count++;
#endif
        return -ENOSPC;
    }
    struct mill_extent_desc *desc = mill_arena_desc(arena, unit);
    MILL_ASSERT_EQ(atomic_load_explicit(&desc->state, memory_order_relaxed),
                   (uint32_t)MILL_EXTENT_FREE);
    arena->blocks[unit] = (uint8_t)(BLOCK_USED | class);
    desc->generation++;
    desc->class_shift = (uint8_t) class;
    atomic_store_explicit(&desc->committed_bytes, 0, memory_order_relaxed);
#ifdef MILL_MUTANT_MEMORY_PUBLISH_EARLY
    atomic_store_explicit(&desc->state, MILL_EXTENT_LOG, memory_order_release);
#endif
    extents->used_bytes += (uint64_t)MILL_EXTENT_UNIT_BYTES << class;
    *ret_extent = unit;
    return 0;
}

/* Class of a live extent that this core owns; anything else is a fault of ours. */
static uint32_t own_class(const struct mill_extents *extents, uint32_t extent)
{
    const struct mill_arena *arena = extents->arena;
    MILL_ASSERT_LT(extent, arena->units);
    MILL_ASSERT_EQ(
        atomic_load_explicit(&arena->chunk_owner[extent / MILL_CHUNK_UNITS], memory_order_relaxed),
        extents->owner);
    uint8_t block = arena->blocks[extent];
#ifndef MILL_MUTANT_MEMORY_EXTENT_FREE_TWICE
    MILL_ASSERT((block & BLOCK_USED) != 0);
#endif
    return block & BLOCK_CLASS;
}

void mill_extent_publish(struct mill_extents *extents, uint32_t extent,
                         enum mill_extent_state state)
{
    (void)own_class(extents, extent);
    MILL_ASSERT(state == MILL_EXTENT_LOG || state == MILL_EXTENT_SCRATCH);
    /* Release: a process killed before this store leaves FREE, after it all fields. Pairs with the
     * acquire loads of take-up and of other cores. */
    atomic_store_explicit(&mill_arena_desc(extents->arena, extent)->state, state,
                          memory_order_release);
}

void mill_extent_free(struct mill_extents *extents, uint32_t extent)
{
    struct mill_arena *arena = extents->arena;
    uint32_t class = own_class(extents, extent);
    MILL_ASSERT(extents->loans == NULL || mill_loan_free(extents->loans, extent));
    atomic_store_explicit(&mill_arena_desc(arena, extent)->state, MILL_EXTENT_FREE,
                          memory_order_release);
    /* The descriptor ends before anything of the extent is used anew: a release store alone lets
     * the compiler move later stores before it. */
    atomic_signal_fence(memory_order_seq_cst);
    MILL_ASSERT_LE((uint64_t)MILL_EXTENT_UNIT_BYTES << class, extents->used_bytes);
    extents->used_bytes -= (uint64_t)MILL_EXTENT_UNIT_BYTES << class;
    arena->blocks[extent] = 0;
    if (class <= ARENA_CLASS_CHUNK) {
        block_give(extents, extent, class);
        return;
    }
    uint32_t first = extent / MILL_CHUNK_UNITS;
    for (uint32_t i = 0; i < 1u << (class - ARENA_CLASS_CHUNK); i++) {
        chunk_give(extents, first + i);
    }
}

uint32_t mill_extent_size_bytes(const struct mill_extents *extents, uint32_t extent)
{
    /* Also asked for a borrowed extent: its owner's write of the byte came with the reference. */
    MILL_ASSERT_LT(extent, extents->arena->units);
    uint8_t block = extents->arena->blocks[extent];
    MILL_ASSERT((block & BLOCK_USED) != 0);
    return (uint32_t)MILL_EXTENT_UNIT_BYTES << (block & BLOCK_CLASS);
}

uint8_t *mill_extent_data(const struct mill_extents *extents, uint32_t extent)
{
    return extents->arena->base + ((uint64_t)extent << MILL_EXTENT_UNIT_SHIFT);
}

uint64_t mill_extents_used_bytes(const struct mill_extents *extents)
{
    return extents->used_bytes;
}

uint64_t mill_extents_full_count(const struct mill_extents *extents)
{
    return extents->full_count;
}
