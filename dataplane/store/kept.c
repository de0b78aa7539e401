/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that a take-up found in extents and could not write for lack of space: read from there,
 * written as soon as there is room, and then their extents are free. The take-up's thread makes the
 * list; each partition's part of it belongs to the store that opens the partition. */
#include "dataplane/store/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool mill_store_full(int r)
{
    return r == -ENOSPC || r == -EDQUOT;
}

void mill_store_kept_free(struct mill_store_kept *kept)
{
    free(kept->parts);
    kept->parts = NULL;
    kept->parts_count = 0;
    kept->parts_capacity = 0;
}

int mill_store_keep(struct mill_store_kept *kept, const struct mill_uuid *topic_id,
                    int32_t partition, const struct mill_ref *batch)
{
    struct mill_kept_part *last =
        kept->parts_count > 0 ? &kept->parts[kept->parts_count - 1] : NULL;
    if (last && last->ref.extent == batch->extent) {
        last->ref.size_bytes += batch->size_bytes; /* the next batch of the same extent */
        return 0;
    }
    if (kept->parts_count == kept->parts_capacity) {
        uint32_t capacity = MILL_MAX(16u, kept->parts_capacity * 2);
        struct mill_kept_part *grown = realloc(kept->parts, capacity * sizeof(grown[0]));
        if (!grown) {
            return -ENOMEM;
        }
        kept->parts = grown;
        kept->parts_capacity = capacity;
    }
    kept->parts[kept->parts_count++] =
        (struct mill_kept_part){.topic_id = *topic_id, .partition = partition, .ref = *batch};
    return 0;
}

static void part_end(struct mill_store *store, struct store_partition *partition)
{
    mill_arena_kept_free(store->config.arena, partition->kept->ref.extent);
    /* Release pairs with the load of who decides whether the arena may go. */
    atomic_fetch_sub_explicit(&store->config.kept->left, 1, memory_order_release);
    partition->kept++;
    partition->kept_count--;
}

static bool is_of(const struct mill_kept_part *part, const struct store_partition *partition)
{
    return part->partition == partition->index &&
           mill_uuid_equal(&part->topic_id, &partition->topic_id);
}

static const uint8_t *part_bytes(const struct mill_store *store, const struct mill_kept_part *part)
{
    return mill_ref_data(mill_arena_base(store->config.arena), &part->ref);
}

/* Notes one batch, and what a marker in it aborts: its .txnindex entry is written with it. */
static int batch_begin(struct store_partition *partition, const struct mill_batch *batch,
                       const uint8_t *bytes)
{
    struct store_aborted aborted;
    if (mill_store_txn_aborts(&partition->producers, batch, bytes, &aborted)) {
        struct store_aborted *grown =
            realloc(partition->kept_aborted,
                    (partition->kept_aborted_count + 1) * sizeof(partition->kept_aborted[0]));
        if (!grown) {
            return -ENOMEM;
        }
        partition->kept_aborted = grown;
        grown[partition->kept_aborted_count++] = aborted;
    }
    return mill_store_batch_note(partition, batch, bytes);
}

/* Notes the batches of one part. What a try before had brought into the file, although it failed
 * later on, is passed by. ret: 0, -EIO it does not follow the file, -ENOMEM. */
static int part_begin(struct mill_store *store, struct store_partition *partition,
                      struct mill_kept_part *part)
{
    const uint8_t *bytes = part_bytes(store, part);
    uint32_t done = 0;
    for (uint32_t pos = 0; pos < part->ref.size_bytes;) {
        struct mill_batch batch;
        mill_batch_read(bytes + pos, &batch);
        pos += mill_batch_size_bytes(&batch);
        if (mill_batch_last_offset(&batch) < partition->end_offset) {
            done = pos;
            continue;
        }
        int r = batch.base_offset == partition->end_offset
                    ? batch_begin(partition, &batch, bytes + pos - mill_batch_size_bytes(&batch))
                    : -EIO;
        if (r < 0) {
            return r;
        }
        partition->end_offset = mill_batch_last_offset(&batch) + 1;
    }
    part->ref.pos_bytes += done;
    part->ref.size_bytes -= done;
    return 0;
}

int mill_store_kept_begin(struct mill_store *store, struct store_partition *partition)
{
    struct mill_store_kept *kept = store->config.kept;
    int r = 0;
    partition->end_offset = partition->written_offset;
#ifdef MILL_MUTANT_STORE_KEPT_LOST
    return 0;
#endif
    if (!kept || atomic_load_explicit(&kept->left, memory_order_relaxed) == 0) {
        return 0;
    }
    uint32_t first = 0;
    while (first < kept->parts_count && !is_of(&kept->parts[first], partition)) {
        first++;
    }
    partition->kept = kept->parts + first;
    for (uint32_t i = first; r == 0 && i < kept->parts_count && is_of(&kept->parts[i], partition);
         i++) {
        r = part_begin(store, partition, &kept->parts[i]);
        partition->kept_count++;
    }
    while (r == 0 && partition->kept_count > 0 && partition->kept->ref.size_bytes == 0) {
        part_end(store, partition);
    }
    return r;
}

int mill_store_kept_write(struct mill_store *store, struct store_partition *partition)
{
    while (partition->kept_count > 0) {
        struct mill_ref *ref = &partition->kept->ref;
        uint32_t done = 0;
        int r = mill_store_append(store, partition, part_bytes(store, partition->kept),
                                  ref->size_bytes, &done);
        ref->pos_bytes += done;
        ref->size_bytes -= done;
        if (r < 0) {
            return r;
        }
        part_end(store, partition);
    }
    return 0;
}

void mill_store_kept_drop(struct mill_store *store, struct store_partition *partition)
{
    while (partition->kept_count > 0) {
        part_end(store, partition);
    }
}

/* Copies whole batches of one part from the one that holds the offset on. ret: 0 and size, 0 when
 * it is not in this part; -EMSGSIZE: the first one alone is larger. */
static int part_read(const struct mill_store *store, const struct mill_kept_part *part,
                     const struct mill_link_read *read, uint32_t *ret_size)
{
    const uint8_t *bytes = part_bytes(store, part);
    struct mill_ref to = {.extent = read->extent, .size_bytes = read->size_bytes};
    uint32_t start = 0;
    uint32_t size = 0;
    for (uint32_t pos = 0; pos < part->ref.size_bytes;) {
        struct mill_batch batch;
        mill_batch_read(bytes + pos, &batch);
        uint32_t batch_size = mill_batch_size_bytes(&batch);
        bool wanted = mill_batch_last_offset(&batch) >= read->offset;
        if (wanted && size == 0 && batch_size > read->size_bytes) {
            *ret_size = batch_size;
            return -EMSGSIZE;
        }
        if (wanted && (size + batch_size > read->size_bytes ||
                       (size > 0 && batch.base_offset >= read->limit_offset))) {
            break;
        }
        start = wanted && size == 0 ? pos : start;
        size += wanted ? batch_size : 0;
        pos += batch_size;
    }
    memcpy(mill_ref_data(mill_arena_base(store->config.arena), &to), bytes + start, size);
    *ret_size = size;
    return 0;
}

int mill_store_kept_read(struct mill_store *store, const struct store_partition *partition,
                         const struct mill_link_read *read, uint32_t *ret_size)
{
    *ret_size = 0;
    int r = 0;
    for (uint32_t i = 0; r == 0 && *ret_size == 0 && i < partition->kept_count; i++) {
        r = part_read(store, &partition->kept[i], read, ret_size);
    }
    return r == 0 && *ret_size == 0 ? -ENOENT : r;
}
