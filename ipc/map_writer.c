/* SPDX-License-Identifier: Apache-2.0 */
/* The only writer of the partition map: control, one thread (map.h). It keeps which bytes are free
 * in its private memory, so that nothing a killed writer left half-done can mislead its successor:
 * that one walks what is reachable and takes the rest as free. It never waits for a reader; bytes
 * that a reader may still hold are retired and freed by mill_map_reclaim.
 *
 *   put:    room -> fill record -> slot -> id entry -> name entry -> generation
 *   remove: empty the slot -> clear entries -> generation
 *   retired bytes: waiting (being gathered) -> grace (words of all cores noted) -> free
 */
#include "ipc/map_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Free or retired bytes of the map; slot: to be freed along with them. */
struct run {
    uint64_t offset;
    uint64_t size_bytes;
    uint32_t slot;
};

#define NO_SLOT UINT32_MAX

struct runs {
    struct run *items;
    uint32_t length;
    uint32_t capacity;
};

enum slot_state {
    SLOT_FREE,
    SLOT_USED,
    SLOT_RETIRED, /* emptied, but a reader may be on its way to it */
};

struct mill_map_writer {
    struct mill_map *map;
    struct runs free; /* ascending, neighbours joined */
    struct runs waiting;
    struct runs grace;
    uint64_t words[MILL_MAP_CORES_MAX]; /* of the readers when grace began */
    uint8_t *slot_states;               /* enum slot_state */
    uint32_t slot_hint;                 /* no free slot below */
};

/* --- runs --------------------------------------------------------------------------------------
 */

static int runs_reserve(struct runs *runs, uint32_t more)
{
    if (runs->length + more <= runs->capacity) {
        return 0;
    }
    uint32_t capacity = MILL_MAX(runs->capacity * 2, runs->length + more + 16);
    struct run *items = realloc(runs->items, capacity * sizeof(*items));
    if (!items) {
        return -ENOMEM;
    }
    runs->items = items;
    runs->capacity = capacity;
    return 0;
}

/* Index of the first run at or behind offset. */
static uint32_t runs_lower_bound(const struct runs *runs, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = runs->length;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (runs->items[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void runs_erase(struct runs *runs, uint32_t index)
{
    memmove(&runs->items[index], &runs->items[index + 1],
            (runs->length - index - 1) * sizeof(*runs->items));
    runs->length--;
}

/* Gives bytes back to the free space and joins them with their neighbours. Room was reserved. */
static void free_add(struct runs *runs, uint64_t offset, uint64_t size_bytes)
{
    uint32_t at = runs_lower_bound(runs, offset);
    bool joins_before =
        at > 0 && runs->items[at - 1].offset + runs->items[at - 1].size_bytes == offset;
    bool joins_behind = at < runs->length && offset + size_bytes == runs->items[at].offset;
    if (joins_before) {
        runs->items[at - 1].size_bytes += size_bytes;
        if (joins_behind) {
            runs->items[at - 1].size_bytes += runs->items[at].size_bytes;
            runs_erase(runs, at);
        }
        return;
    }
    if (joins_behind) {
        runs->items[at].offset = offset;
        runs->items[at].size_bytes += size_bytes;
        return;
    }
    MILL_ASSERT_LT(runs->length, runs->capacity);
    memmove(&runs->items[at + 1], &runs->items[at], (runs->length - at) * sizeof(*runs->items));
    runs->items[at] = (struct run){.offset = offset, .size_bytes = size_bytes, .slot = NO_SLOT};
    runs->length++;
}

/* Bytes that a record of this size takes: whole units, in steps of an eighth of its power of two,
 * so that a hole left by one record fits the next of about its size. */
static uint64_t class_bytes(uint64_t size_bytes)
{
    uint64_t step = MAP_RECORD_ALIGN_BYTES;
    while (step * 16 < size_bytes) {
        step *= 2;
    }
    return mill_round_up(size_bytes, step);
}

/* Takes the first run that is large enough. ret: offset, 0 none. */
static uint64_t free_take(struct runs *runs, uint64_t size_bytes)
{
    for (uint32_t i = 0; i < runs->length; i++) {
        struct run *run = &runs->items[i];
        if (run->size_bytes < size_bytes) {
            continue;
        }
        uint64_t offset = run->offset;
        run->offset += size_bytes;
        run->size_bytes -= size_bytes;
        if (run->size_bytes == 0) {
            runs_erase(runs, i);
        }
        return offset;
    }
    return 0;
}

/* --- grace -------------------------------------------------------------------------------------
 */

static uint64_t reader_word(const struct mill_map *map, uint32_t core)
{
    return atomic_load_explicit(&map->header->readers[core].word, memory_order_seq_cst);
}

/* True when every core has slept or made a turn since grace began. */
static bool grace_passed(const struct mill_map_writer *writer)
{
#ifdef MILL_MUTANT_MAP_RECLAIM_EARLY
    return true;
#endif
    for (uint32_t core = 0; core < MILL_MAP_CORES_MAX; core++) {
        uint64_t now = reader_word(writer->map, core);
        if ((now & 1) != 0 && now == writer->words[core]) {
            return false;
        }
    }
    return true;
}

static void free_grace(struct mill_map_writer *writer)
{
    if (runs_reserve(&writer->free, writer->grace.length) < 0) {
        return; /* stays retired; the next turn tries again */
    }
    for (uint32_t i = 0; i < writer->grace.length; i++) {
        const struct run *run = &writer->grace.items[i];
        if (run->size_bytes > 0) {
            free_add(&writer->free, run->offset, run->size_bytes);
        }
        if (run->slot != NO_SLOT) {
            writer->slot_states[run->slot] = SLOT_FREE;
            writer->slot_hint = MILL_MIN(writer->slot_hint, run->slot);
        }
    }
    writer->grace.length = 0;
}

void mill_map_reclaim(struct mill_map_writer *writer)
{
    if (writer->grace.length > 0 && grace_passed(writer)) {
        free_grace(writer);
    }
    if (writer->grace.length == 0 && writer->waiting.length > 0) {
        struct runs empty = writer->grace;
        writer->grace = writer->waiting;
        writer->waiting = empty;
        for (uint32_t core = 0; core < MILL_MAP_CORES_MAX; core++) {
            writer->words[core] = reader_word(writer->map, core);
        }
        if (grace_passed(writer)) {
            free_grace(writer);
        }
    }
}

bool mill_map_reclaim_pending(const struct mill_map_writer *writer)
{
    return writer->grace.length + writer->waiting.length > 0;
}

/* Room for the note is reserved before the swap that makes the note necessary. */
static void retire(struct mill_map_writer *writer, uint64_t offset, uint64_t size_bytes,
                   uint32_t slot)
{
    MILL_ASSERT_LT(writer->waiting.length, writer->waiting.capacity);
    writer->waiting.items[writer->waiting.length++] =
        (struct run){.offset = offset, .size_bytes = size_bytes, .slot = slot};
}

/* --- room --------------------------------------------------------------------------------------
 */

static int count_full(struct mill_map_writer *writer)
{
    _Atomic uint64_t *count = &writer->map->header->full_count;
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return -ENOSPC;
}

/* Bytes for a record, and the note of the retired one it may replace. ret: 0, -ENOSPC (counted). */
static int take_room(struct mill_map_writer *writer, uint64_t size_bytes, uint64_t *ret_offset)
{
    uint64_t taken_bytes = class_bytes(size_bytes);
    uint64_t offset = free_take(&writer->free, taken_bytes);
    if (offset == 0) {
        mill_map_reclaim(writer);
        offset = free_take(&writer->free, taken_bytes);
    }
    if (offset == 0) {
        return count_full(writer);
    }
    if (runs_reserve(&writer->waiting, 1) < 0) {
        free_add(&writer->free, offset, taken_bytes);
        return count_full(writer);
    }
    struct map_header *header = writer->map->header;
    if (offset + taken_bytes > atomic_load_explicit(&header->used_bytes, memory_order_relaxed)) {
        /* Before the bytes are used: a successor trusts what lies behind to be held by nobody. */
        atomic_store_explicit(&header->used_bytes, offset + taken_bytes, memory_order_release);
    }
    *ret_offset = offset;
    return 0;
}

static void *record_at(const struct mill_map_writer *writer, uint64_t offset)
{
    return (uint8_t *)writer->map->header + offset;
}

static uint32_t free_slot(struct mill_map_writer *writer)
{
    for (uint32_t slot = writer->slot_hint; slot < writer->map->topics_max; slot++) {
        if (writer->slot_states[slot] == SLOT_FREE) {
            writer->slot_hint = slot;
            return slot;
        }
    }
    return NO_SLOT;
}

/* --- table entries -----------------------------------------------------------------------------
 */

static uint32_t entry_at(const _Atomic uint32_t *table, uint32_t at)
{
    return atomic_load_explicit(&table[at], memory_order_relaxed);
}

/* Release pairs with the acquire of the reader's probe: the slot was filled before. */
static void entry_set(_Atomic uint32_t *table, uint32_t at, uint32_t entry)
{
    atomic_store_explicit(&table[at], entry, memory_order_release);
}

/* Sets an entry for a key that has none. Tables have twice as many entries as there are slots, and
 * at most one per slot is in use: a free one is always found. */
static void entry_link(const struct mill_map *map, _Atomic uint32_t *table, const void *key,
                       uint32_t key_bytes, uint32_t slot)
{
    uint32_t at = map_hash(map, key, key_bytes) & map->table_mask;
    for (uint32_t i = 0; i <= map->table_mask; i++, at = (at + 1) & map->table_mask) {
        if (entry_at(table, at) <= MAP_ENTRY_CLEARED) {
            entry_set(table, at, slot + MAP_ENTRY_SLOT0);
            return;
        }
    }
    MILL_ASSERT(false); /* unreachable: see above */
}

/* Clears an entry; when the next one is empty nothing can lie behind it, and it and the cleared
 * ones before it become empty, which keeps probes short. */
static void entry_clear(const struct mill_map *map, _Atomic uint32_t *table, uint32_t at)
{
    uint32_t next = (at + 1) & map->table_mask;
    if (entry_at(table, next) != MAP_ENTRY_EMPTY) {
        entry_set(table, at, MAP_ENTRY_CLEARED);
        return;
    }
    do {
        entry_set(table, at, MAP_ENTRY_EMPTY);
        at = (at - 1) & map->table_mask;
    } while (entry_at(table, at) == MAP_ENTRY_CLEARED);
}

/* Clears the entry of key that leads to slot, if there is one. The slot itself may be empty. */
static void entry_unlink(const struct mill_map *map, _Atomic uint32_t *table, const void *key,
                         uint32_t key_bytes, uint32_t slot)
{
    uint32_t at = map_hash(map, key, key_bytes) & map->table_mask;
    for (uint32_t i = 0; i <= map->table_mask; i++, at = (at + 1) & map->table_mask) {
        uint32_t entry = entry_at(table, at);
        if (entry == MAP_ENTRY_EMPTY) {
            return;
        }
        if (entry == slot + MAP_ENTRY_SLOT0) {
            entry_clear(map, table, at);
            return;
        }
    }
}

/* Makes the name lead to the topic when nobody has it, or when its holder is being deleted and the
 * topic is not. */
static void link_name(const struct mill_map *map, const struct mill_map_topic *topic)
{
    const struct mill_map_topic *holder = NULL;
    uint32_t at = map_find_name(map, topic->name, topic->name_length, &holder);
    if (!holder) {
        entry_link(map, map->names, topic->name, topic->name_length, topic->slot);
    } else if ((holder->flags & MILL_TOPIC_DELETING) != 0 &&
               (topic->flags & MILL_TOPIC_DELETING) == 0) {
        entry_set(map->names, at, topic->slot + MAP_ENTRY_SLOT0);
    }
}

static void publish(struct mill_map *map)
{
    _Atomic uint64_t *generation = &map->header->generation;
    /* Release pairs with the acquire of mill_map_generation. */
    atomic_store_explicit(generation, atomic_load_explicit(generation, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* --- writing -----------------------------------------------------------------------------------
 */

static void swap_slot(struct mill_map *map, uint32_t slot, uint64_t offset)
{
    /* Sequentially consistent: pairs with the reader's count and look, see map_layout.h. */
    atomic_store_explicit(&map->slots[slot], offset, memory_order_seq_cst);
}

static void fill_topic(const struct mill_map_writer *writer, uint64_t offset,
                       const struct mill_map_topic *topic, uint32_t slot)
{
    struct mill_map_topic *record = record_at(writer, offset);
    memcpy(record, topic, map_topic_bytes(topic->partitions_count));
    record->slot = slot;
    record->name[record->name_length] = '\0';
}

static void place_topic(const struct mill_map_writer *writer, uint64_t offset,
                        const struct mill_map_topic *topic, uint32_t slot)
{
#ifdef MILL_MUTANT_MAP_PUBLISH_EARLY
    swap_slot(writer->map, slot, offset);
#endif
    fill_topic(writer, offset, topic, slot);
    swap_slot(writer->map, slot, offset);
}

static int put_new(struct mill_map_writer *writer, const struct mill_map_topic *topic)
{
    struct mill_map *map = writer->map;
    uint64_t offset;
    uint32_t slot = free_slot(writer);
    if (slot == NO_SLOT) {
        mill_map_reclaim(writer);
        slot = free_slot(writer);
    }
    if (slot == NO_SLOT) {
        return count_full(writer);
    }
    int rc = take_room(writer, map_topic_bytes(topic->partitions_count), &offset);
    if (rc < 0) {
        return rc;
    }
    writer->slot_states[slot] = SLOT_USED;
    place_topic(writer, offset, topic, slot);
    if (slot >= atomic_load_explicit(&map->header->slots_bound, memory_order_relaxed)) {
        atomic_store_explicit(&map->header->slots_bound, slot + 1, memory_order_release);
    }
    entry_link(map, map->ids, topic->id.b, sizeof(topic->id.b), slot);
    link_name(map, record_at(writer, offset));
    publish(map);
    return 0;
}

static int put_changed(struct mill_map_writer *writer, const struct mill_map_topic *old,
                       const struct mill_map_topic *topic)
{
    struct mill_map *map = writer->map;
    uint32_t slot = old->slot;
    uint64_t offset;
    int rc = take_room(writer, map_topic_bytes(topic->partitions_count), &offset);
    if (rc < 0) {
        return rc;
    }
    uint64_t old_offset = atomic_load_explicit(&map->slots[slot], memory_order_relaxed);
    uint64_t old_bytes = class_bytes(map_topic_bytes(old->partitions_count));
    place_topic(writer, offset, topic, slot);
    link_name(map, record_at(writer, offset));
    publish(map);
    retire(writer, old_offset, old_bytes, NO_SLOT);
    return 0;
}

int mill_map_put_topic(struct mill_map_writer *writer, const struct mill_map_topic *topic)
{
    const struct mill_map_topic *old = NULL;
    if (topic->name_length == 0 || topic->name_length > MILL_TOPIC_NAME_MAX ||
        topic->partitions_count == 0 || mill_uuid_is_zero(&topic->id)) {
        return -EINVAL;
    }
    (void)map_find_id(writer->map, &topic->id, &old);
    if (!old) {
        return put_new(writer, topic);
    }
    /* An id keeps its name for life; entries could not follow a change. */
    if (old->name_length != topic->name_length ||
        memcmp(old->name, topic->name, old->name_length) != 0) {
        return -EINVAL;
    }
    return put_changed(writer, old, topic);
}

int mill_map_remove_topic(struct mill_map_writer *writer, const struct mill_uuid *id)
{
    struct mill_map *map = writer->map;
    const struct mill_map_topic *topic = NULL;
    (void)map_find_id(map, id, &topic);
    if (!topic) {
        return -ENOENT;
    }
    if (runs_reserve(&writer->waiting, 1) < 0) {
        return -ENOMEM;
    }
    uint32_t slot = topic->slot;
    uint64_t offset = atomic_load_explicit(&map->slots[slot], memory_order_relaxed);
    swap_slot(map, slot, 0);
    entry_unlink(map, map->ids, topic->id.b, sizeof(topic->id.b), slot);
    entry_unlink(map, map->names, topic->name, topic->name_length, slot);
    publish(map);
    writer->slot_states[slot] = SLOT_RETIRED;
    retire(writer, offset, class_bytes(map_topic_bytes(topic->partitions_count)), slot);
    return 0;
}

int mill_map_put_cluster(struct mill_map_writer *writer, const struct mill_map_cluster *cluster)
{
    struct mill_map *map = writer->map;
    uint64_t size_bytes = map_cluster_bytes(cluster->brokers_count);
    uint64_t offset;
    int rc = take_room(writer, size_bytes, &offset);
    if (rc < 0) {
        return rc;
    }
    const struct mill_map_cluster *old = mill_map_cluster_read(map);
    uint64_t old_offset = atomic_load_explicit(&map->header->cluster, memory_order_relaxed);
    memcpy(record_at(writer, offset), cluster, size_bytes);
    atomic_store_explicit(&map->header->cluster, offset, memory_order_seq_cst);
    publish(map);
    if (old) {
        retire(writer, old_offset, class_bytes(map_cluster_bytes(old->brokers_count)), NO_SLOT);
    }
    return 0;
}

int mill_map_put_quotas(struct mill_map_writer *writer, const struct mill_map_quotas *quotas)
{
    struct mill_map *map = writer->map;
    uint64_t size_bytes = map_quotas_bytes(quotas->count);
    uint64_t offset;
    int rc = take_room(writer, size_bytes, &offset);
    if (rc < 0) {
        return rc;
    }
    uint64_t old_offset = atomic_load_explicit(&map->header->quotas, memory_order_relaxed);
    const struct mill_map_quotas *old =
        old_offset == 0 ? NULL : map_quotas_checked(map, old_offset);
    memcpy(record_at(writer, offset), quotas, size_bytes);
    atomic_store_explicit(&map->header->quotas, offset, memory_order_seq_cst);
    publish(map);
    if (old) {
        retire(writer, old_offset, class_bytes(map_quotas_bytes(old->count)), NO_SLOT);
    }
    return 0;
}

/* --- taking up what a predecessor left ---------------------------------------------------------
 */

static int by_offset(const void *a, const void *b)
{
    const struct run *left = a;
    const struct run *right = b;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* All reachable records, ascending. Marks their slots as used. */
static int gather(struct mill_map_writer *writer, struct runs *records, struct mill_report *report)
{
    struct mill_map *map = writer->map;
    if (runs_reserve(records, map->topics_max + 2) < 0) {
        return -ENOMEM;
    }
    for (uint32_t slot = 0; slot < map->topics_max; slot++) {
        uint64_t offset = atomic_load_explicit(&map->slots[slot], memory_order_seq_cst);
        if (offset == 0) {
            continue;
        }
        const struct mill_map_topic *topic = map_topic_checked(map, offset, slot);
        if (!topic || mill_uuid_is_zero(&topic->id)) {
            return mill_fail(report, -EBADMSG, "partition map: slot %u holds no topic record",
                             slot);
        }
        writer->slot_states[slot] = SLOT_USED;
        records->items[records->length++] = (struct run){
            .offset = offset,
            .size_bytes = class_bytes(map_topic_bytes(topic->partitions_count)),
        };
    }
    uint64_t offset = atomic_load_explicit(&map->header->cluster, memory_order_seq_cst);
    if (offset != 0) {
        const struct mill_map_cluster *cluster = map_cluster_checked(map, offset);
        if (!cluster) {
            return mill_fail(report, -EBADMSG, "partition map: the cluster record is damaged");
        }
        records->items[records->length++] = (struct run){
            .offset = offset, .size_bytes = class_bytes(map_cluster_bytes(cluster->brokers_count))};
    }
    offset = atomic_load_explicit(&map->header->quotas, memory_order_seq_cst);
    if (offset != 0) {
        const struct mill_map_quotas *quotas = map_quotas_checked(map, offset);
        if (!quotas) {
            return mill_fail(report, -EBADMSG, "partition map: the record of quotas is damaged");
        }
        records->items[records->length++] = (struct run){
            .offset = offset, .size_bytes = class_bytes(map_quotas_bytes(quotas->count))};
    }
    qsort(records->items, records->length, sizeof(*records->items), by_offset);
    return 0;
}

/* A gap between records below the high mark may hold what a core still reads: it is retired. What
 * lies behind the mark was never used and is free at once. */
static void note_gap(struct mill_map_writer *writer, uint64_t from, uint64_t to)
{
    uint64_t mark = atomic_load_explicit(&writer->map->header->used_bytes, memory_order_acquire);
    uint64_t border = MILL_MAX(from, MILL_MIN(to, mill_round_up(mark, MAP_RECORD_ALIGN_BYTES)));
    if (border > from) {
        retire(writer, from, border - from, NO_SLOT);
    }
    if (to > border) {
        free_add(&writer->free, border, to - border);
    }
}

static int rebuild_space(struct mill_map_writer *writer, const struct runs *records,
                         struct mill_report *report)
{
    uint64_t end = writer->map->size_bytes & ~(uint64_t)(MAP_RECORD_ALIGN_BYTES - 1);
    uint64_t at = writer->map->records_start;
    if (runs_reserve(&writer->waiting, records->length + 1) < 0 ||
        runs_reserve(&writer->free, records->length + 1) < 0) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < records->length; i++) {
        const struct run *record = &records->items[i];
        if (record->offset < at || record->size_bytes > end - record->offset) {
            return mill_fail(report, -EBADMSG, "partition map: records overlap at %llu",
                             (unsigned long long)record->offset);
        }
        note_gap(writer, at, record->offset);
        at = record->offset + record->size_bytes;
    }
    note_gap(writer, at, end);
    return 0;
}

/* Clears entries that lead nowhere: to an empty slot, or past the slots. */
static void clear_stale(const struct mill_map_writer *writer, _Atomic uint32_t *table)
{
    const struct mill_map *map = writer->map;
    for (uint32_t at = 0; at <= map->table_mask; at++) {
        uint32_t entry = entry_at(table, at);
        if (entry > MAP_ENTRY_CLEARED &&
            (entry - MAP_ENTRY_SLOT0 >= map->topics_max ||
             writer->slot_states[entry - MAP_ENTRY_SLOT0] != SLOT_USED)) {
            entry_clear(map, table, at);
        }
    }
}

/* Sets the entries that a killed put did not come to. */
static int link_missing(struct mill_map_writer *writer, struct mill_report *report)
{
    struct mill_map *map = writer->map;
    for (uint32_t slot = 0; slot < map->topics_max; slot++) {
        if (writer->slot_states[slot] != SLOT_USED) {
            continue;
        }
        const struct mill_map_topic *topic = mill_map_topic_at(map, slot);
        const struct mill_map_topic *holder = NULL;
        MILL_ASSERT(topic); /* gather() checked it, and we are the only writer */
        (void)map_find_id(map, &topic->id, &holder);
        if (!holder) {
            entry_link(map, map->ids, topic->id.b, sizeof(topic->id.b), slot);
        } else if (holder->slot != slot) {
            return mill_fail(report, -EBADMSG, "partition map: slots %u and %u hold one topic id",
                             holder->slot, slot);
        }
        if (slot >= atomic_load_explicit(&map->header->slots_bound, memory_order_relaxed)) {
            atomic_store_explicit(&map->header->slots_bound, slot + 1, memory_order_release);
        }
    }
    return 0;
}

/* Names nobody leads to: killed between id entry and name entry. Those that are being deleted come
 * last, so that a serving topic has its name whatever the order of slots. */
static void link_missing_names(struct mill_map_writer *writer)
{
    for (uint32_t deleting = 0; deleting < 2; deleting++) {
        for (uint32_t slot = 0; slot < writer->map->topics_max; slot++) {
            const struct mill_map_topic *topic = mill_map_topic_at(writer->map, slot);
            if (topic && ((topic->flags & MILL_TOPIC_DELETING) != 0) == (deleting != 0)) {
                link_name(writer->map, topic);
            }
        }
    }
}

int mill_map_writer_open(struct mill_map *map, struct mill_map_writer **ret_writer,
                         struct mill_report *report)
{
    struct runs records = {0};
    struct mill_map_writer *writer = calloc(1, sizeof(*writer));
    if (writer) {
        writer->map = map;
        writer->slot_states = calloc(map->topics_max, 1);
    }
    int rc = writer && writer->slot_states ? 0 : -ENOMEM;
    if (rc == 0) {
        rc = gather(writer, &records, report);
    }
    if (rc == 0) {
        rc = rebuild_space(writer, &records, report);
    }
    if (rc == 0) {
        clear_stale(writer, map->ids);
        clear_stale(writer, map->names);
        rc = link_missing(writer, report);
    }
    free(records.items);
    if (rc < 0) {
        mill_map_writer_close(writer);
        return rc == -ENOMEM ? mill_fail(report, rc, "partition map: out of memory") : rc;
    }
    link_missing_names(writer);
    mill_map_reclaim(writer);
    publish(map);
    *ret_writer = writer;
    return 0;
}

void mill_map_writer_close(struct mill_map_writer *writer)
{
    if (writer) {
        free(writer->free.items);
        free(writer->waiting.items);
        free(writer->grace.items);
        free(writer->slot_states);
        free(writer);
    }
}
