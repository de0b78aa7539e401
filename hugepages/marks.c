/* SPDX-License-Identifier: Apache-2.0 */
/* The table of partition marks in the arena's first file: open addressing by a hash of topic id and
 * partition. Cores look for different partitions at once: a slot is claimed by compare-and-swap,
 * filled, then released as used. A partition itself has one owner, who alone looks for it. Slow
 * path (a partition is opened or closed); bounded by the table's length; never waits.
 *
 *   free(0) -> filling(2) -> used(1) -> freed(3) -> filling(2) ...   a search stops at free only
 *
 * A search may read a slot while another core frees and refills it. Without a check it could see
 * the old partition number beside the new topic and take a stranger's mark for its own; `uses`
 * rises before the fields change, and a search that sees it move does not believe what it read.
 */
#include "hugepages/arena_private.h"

#include <string.h>

#include "base/check.h"

static_assert(offsetof(struct mill_partition_mark, topic_id) == 0, "read as two words");
static_assert(offsetof(struct mill_partition_mark, uses) == 48, "shared layout");

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
    uint64_t words[2];
    memcpy(words, topic_id->b, sizeof(words));
    /* Release pairs with the first load in mark_is: whoever sees the new count sees filling, or
     * the slot complete. The fields are released one by one: whoever sees one of them sees the new
     * count (last load in mark_is). */
    uint64_t uses = atomic_load_explicit(&mark->uses, memory_order_relaxed);
    atomic_store_explicit(&mark->uses, uses + 1, memory_order_release);
    uint64_t *id = (uint64_t *)(void *)mark->topic_id.b;
    __atomic_store_n(&id[0], words[0], __ATOMIC_RELEASE);
    __atomic_store_n(&id[1], words[1], __ATOMIC_RELEASE);
    __atomic_store_n(&mark->partition, partition, __ATOMIC_RELEASE);
    atomic_store_explicit(&mark->written_offset, 0, memory_order_relaxed);
    atomic_store_explicit(&mark->start_offset, 0, memory_order_relaxed);
    atomic_store_explicit(&mark->truncate_offset, -1, memory_order_relaxed);
    /* Release pairs with the acquire loads of a search and of mill_arena_mark_at. */
    atomic_store_explicit(&mark->state, ARENA_MARK_USED, memory_order_release);
    return true;
}

/* True when the slot is this partition's. A slot that changes meanwhile is another's: nobody but
 * the caller makes or frees the mark it looks for. */
static bool mark_is(const struct mill_partition_mark *mark, const struct mill_uuid *topic_id,
                    int32_t partition, uint32_t *ret_state)
{
    uint64_t words[2];
    memcpy(words, topic_id->b, sizeof(words));
    uint64_t uses = atomic_load_explicit(&mark->uses, memory_order_acquire);
    *ret_state = atomic_load_explicit(&mark->state, memory_order_acquire);
    if (*ret_state != ARENA_MARK_USED) {
        return false;
    }
    const uint64_t *id = (const uint64_t *)(const void *)mark->topic_id.b;
    bool same = __atomic_load_n(&id[0], __ATOMIC_ACQUIRE) == words[0] &&
                __atomic_load_n(&id[1], __ATOMIC_ACQUIRE) == words[1] &&
                __atomic_load_n(&mark->partition, __ATOMIC_ACQUIRE) == partition;
    return same && atomic_load_explicit(&mark->uses, memory_order_relaxed) == uses;
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
            uint32_t state;
            if (mark_is(mark, topic_id, partition, &state)) {
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
