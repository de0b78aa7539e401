/* SPDX-License-Identifier: Apache-2.0 */
/* The table of partition marks in the arena's first file: open addressing by a hash of topic id and
 * partition. Cores look for different partitions at once: a slot is claimed by compare-and-swap,
 * filled, then released as used. A partition itself has one owner, who alone looks for it. Slow
 * path (a partition is opened or closed); bounded by the table's length; never waits.
 *
 *   free(0) -> filling(2) -> used(1) -> freed(3) -> filling(2) ...   a search stops at free only
 */
#include "hugepages/arena_private.h"

#include <string.h>

#include "base/check.h"

static uint32_t mark_start(const struct mill_arena *arena, const struct mill_uuid *topic_id,
                           int32_t partition)
{
    /* Topic ids are drawn at random by control, so that a stranger cannot aim at one slot; the
     * mixing spreads the partitions of one topic. */
    uint64_t words[2];
    memcpy(words, topic_id->b, sizeof(words));
    uint64_t mixed = words[0] ^ (words[1] * 0x9e3779b97f4a7c15ull) ^
                     ((uint64_t)(uint32_t)partition * 0xbf58476d1ce4e5b9ull);
    mixed = (mixed ^ (mixed >> 31)) * 0x94d049bb133111ebull;
    return (uint32_t)((mixed >> 32) % arena->geometry.marks_length);
}

/* Claims a free slot, fills it and releases it. ret: false when another core was faster. */
static bool mark_claim(struct mill_partition_mark *mark, uint32_t seen,
                       const struct mill_uuid *topic_id, int32_t partition)
{
    /* Acquire: the fields' earlier use by another core ended before its store of freed. */
    if (!atomic_compare_exchange_strong_explicit(&mark->state, &seen, ARENA_MARK_FILLING,
                                                 memory_order_acquire, memory_order_relaxed)) {
        return false;
    }
    mark->topic_id = *topic_id;
    mark->partition = partition;
    atomic_store_explicit(&mark->written_offset, 0, memory_order_relaxed);
    atomic_store_explicit(&mark->start_offset, 0, memory_order_relaxed);
    atomic_store_explicit(&mark->truncate_offset, -1, memory_order_relaxed);
    /* Release pairs with the acquire load of a search and of mill_arena_mark_at. */
    atomic_store_explicit(&mark->state, ARENA_MARK_USED, memory_order_release);
    return true;
}

struct mill_partition_mark *mill_arena_mark(struct mill_arena *arena,
                                            const struct mill_uuid *topic_id, int32_t partition)
{
    const uint32_t length = arena->geometry.marks_length;
    const uint32_t start = mark_start(arena, topic_id, partition);
    /* A lost claim means that another core took a slot; there are length of them. */
    for (uint32_t tries = 0; tries < length; tries++) {
        struct mill_partition_mark *spare = NULL;
        uint32_t spare_state = ARENA_MARK_FREE;
        for (uint32_t step = 0; step < length; step++) {
            uint32_t index = (uint32_t)(((uint64_t)start + step) % length);
            struct mill_partition_mark *mark = &arena->marks[index];
            uint32_t state = atomic_load_explicit(&mark->state, memory_order_acquire);
            if (state == ARENA_MARK_USED && mark->partition == partition &&
                mill_uuid_equal(&mark->topic_id, topic_id)) {
                return mark;
            }
            bool reusable = state == ARENA_MARK_FREE || state == ARENA_MARK_FREED;
            if (reusable && spare == NULL) {
                spare = mark;
                spare_state = state;
            }
            if (state == ARENA_MARK_FREE) {
                break;
            }
        }
        if (spare == NULL) {
            return NULL;
        }
        if (mark_claim(spare, spare_state, topic_id, partition)) {
            return spare;
        }
    }
    return NULL;
}

uint32_t mill_arena_marks_length(const struct mill_arena *arena)
{
    return arena->geometry.marks_length;
}

struct mill_partition_mark *mill_arena_mark_at(struct mill_arena *arena, uint32_t index)
{
    if (index >= arena->geometry.marks_length) {
        return NULL;
    }
    struct mill_partition_mark *mark = &arena->marks[index];
    uint32_t state = atomic_load_explicit(&mark->state, memory_order_acquire);
    return state == ARENA_MARK_USED ? mark : NULL;
}

void mill_arena_mark_free(struct mill_partition_mark *mark)
{
    MILL_ASSERT_EQ(atomic_load_explicit(&mark->state, memory_order_relaxed),
                   (uint32_t)ARENA_MARK_USED);
    /* Release pairs with the acquire of the next claim. */
    atomic_store_explicit(&mark->state, ARENA_MARK_FREED, memory_order_release);
}
