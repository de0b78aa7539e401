/* SPDX-License-Identifier: Apache-2.0 */
/* .txnindex files: the aborted transactions of a segment, in the order of their markers. An entry
 * is written with the bytes of its marker; a segment that is walked has them made anew, from
 * producers as they were at its start. The store's thread only. ref: KIP-98 (transaction index)
 *
 *   int16 version 0 | producer id | first offset | last offset (marker) | last stable offset after
 */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    VERSION = 0,
    ENTRIES_AT_ONCE = 64,
};

void mill_store_txn_entry(struct store_entries *entries, const struct store_aborted *aborted)
{
    uint8_t *at = entries->txn + entries->txn_count++ * STORE_TXN_ENTRY_BYTES;
    mill_store_be16(at, VERSION);
    mill_store_be64(at + 2, (uint64_t)aborted->producer_id);
    mill_store_be64(at + 10, (uint64_t)aborted->first_offset);
    mill_store_be64(at + 18, (uint64_t)aborted->last_offset);
    mill_store_be64(at + 26, (uint64_t)aborted->stable_offset);
}

/* ret: false when these bytes are no entry. */
static bool entry_read(const uint8_t *at, struct store_aborted *ret_aborted)
{
    *ret_aborted = (struct store_aborted){
        .producer_id = (int64_t)mill_load_be64(at + 2),
        .first_offset = (int64_t)mill_load_be64(at + 10),
        .last_offset = (int64_t)mill_load_be64(at + 18),
        .stable_offset = (int64_t)mill_load_be64(at + 26),
    };
    return mill_load_be16(at) == VERSION && ret_aborted->first_offset >= 0 &&
           ret_aborted->first_offset <= ret_aborted->last_offset &&
           ret_aborted->last_offset < INT64_MAX && /* something can come behind it */
           ret_aborted->stable_offset >= 0 &&
           ret_aborted->stable_offset <= ret_aborted->last_offset + 1;
}

static int entry_at(struct mill_store *store, int file, uint64_t number,
                    struct store_aborted *ret_aborted)
{
    uint8_t bytes[STORE_TXN_ENTRY_BYTES];
    int r = mill_store_read_all(store->calls, file, bytes, sizeof(bytes),
                                number * STORE_TXN_ENTRY_BYTES);
    return r < 0 ? r : entry_read(bytes, ret_aborted) ? 0 : -EIO;
}

/* Number of the first entry whose marker is at or above offset. ret: 0, -errno. */
static int lookup(struct mill_store *store, int file, uint64_t count, int64_t offset,
                  uint64_t *ret_number)
{
    uint64_t low = 0;
    uint64_t high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct store_aborted aborted;
        int r = entry_at(store, file, middle, &aborted);
        if (r < 0) {
            return r;
        }
        if (aborted.last_offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *ret_number = low;
    return 0;
}

/* --- loading ---------------------------------------------------------------------------------- */

int64_t mill_store_txn_size(struct mill_store *store, const struct store_partition *partition,
                            int64_t base_offset)
{
    const struct mill_file_calls *files = store->calls;
    char path[STORE_PATH_BYTES];
    mill_store_segment_path(partition, base_offset, STORE_FILE_TXNINDEX, path, sizeof(path));
    int file = files->open(files->context, path, MILL_FILE_READ);
    if (file < 0) {
        return file == -ENOENT ? 0 : file;
    }
    int64_t size = files->size(files->context, file);
    struct store_aborted last = {.last_offset = base_offset};
    bool bad = size >= 0 && size % STORE_TXN_ENTRY_BYTES != 0;
    if (!bad && size > 0) {
        int r = entry_at(store, file, (uint64_t)size / STORE_TXN_ENTRY_BYTES - 1, &last);
        bad = r < 0 || last.last_offset < base_offset;
    }
    int closed = files->close(files->context, file);
    MILL_UNUSED(closed); /* nothing was written */
    return bad ? -ENODATA : size;
}

int mill_store_txn_begin(struct mill_store *store, struct store_partition *partition,
                         struct store_segment *segment, int64_t from_offset)
{
    const struct mill_file_calls *files = store->calls;
    int64_t size = mill_store_txn_size(store, partition, segment->base_offset);
    segment->txn_bytes = 0;
    if (size <= 0 || from_offset <= segment->base_offset) {
        return size == -ENODATA ? 0 : (int)MILL_MIN(size, 0);
    }
    char path[STORE_PATH_BYTES];
    mill_store_segment_path(partition, segment->base_offset, STORE_FILE_TXNINDEX, path,
                            sizeof(path));
    int file = files->open(files->context, path, MILL_FILE_READ);
    if (file < 0) {
        return file;
    }
    uint64_t kept = 0;
    int r = lookup(store, file, (uint64_t)size / STORE_TXN_ENTRY_BYTES, from_offset, &kept);
    int closed = files->close(files->context, file);
    MILL_UNUSED(closed); /* nothing was written */
    segment->txn_bytes = kept * STORE_TXN_ENTRY_BYTES;
    return r;
}

int mill_store_txn_end(struct mill_store *store, struct store_partition *partition,
                       struct store_segment *segment)
{
    const struct mill_file_calls *files = store->calls;
    if (segment->txn_bytes > 0) {
        int file = mill_store_file(store, partition, segment, STORE_FILE_TXNINDEX);
        int r = file < 0 ? file : files->truncate(files->context, file, segment->txn_bytes);
        /* Made anew below a recovery point that stands: no later start would do it again. */
        return r < 0 ? r : files->sync(files->context, file);
    }
    char path[STORE_PATH_BYTES];
    mill_store_segment_path(partition, segment->base_offset, STORE_FILE_TXNINDEX, path,
                            sizeof(path));
    int r = files->remove_file(files->context, path);
    return r == -ENOENT ? 0 : r;
}

int64_t mill_store_txn_last(struct mill_store *store, struct store_partition *partition)
{
    for (uint32_t i = partition->segments_count; i > 0; i--) {
        struct store_segment *segment = &partition->segments[i - 1];
        if (segment->txn_bytes == 0) {
            continue;
        }
        struct store_aborted last;
        int file = mill_store_file(store, partition, segment, STORE_FILE_TXNINDEX);
        int r = file < 0
                    ? file
                    : entry_at(store, file, segment->txn_bytes / STORE_TXN_ENTRY_BYTES - 1, &last);
        return r < 0 ? r : last.last_offset + 1;
    }
    return 0;
}

/* --- look-ups --------------------------------------------------------------------------------- */

struct find {
    const struct mill_link_aborted *ask;
    struct mill_link_aborted_done *answer;
    uint8_t *to;
    int64_t stable_offset; /* of the last entry given */
    bool complete;         /* no later entry can matter */
};

/* Leaves out of the list what begins at or above end: it tells about less data then. */
static void list_cut(struct find *find, int64_t end)
{
    struct mill_link_aborted_done *answer = find->answer;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < answer->count; i++) {
        const uint8_t *at = find->to + (size_t)i * MILL_LOG_ABORTED_BYTES;
        if ((int64_t)mill_load_be64(at + 8) < end) {
            memmove(find->to + (size_t)kept++ * MILL_LOG_ABORTED_BYTES, at, MILL_LOG_ABORTED_BYTES);
        }
    }
    answer->count = kept;
    answer->end_offset = end;
}

static int by_offset(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

/* Cuts what begins behind the data's first offset in half, so that a batch at least can be read.
 * more: the entry it has no room for. ret: 0, -ENOMEM, -EMSGSIZE more overlap the first batch than
 * fit. */
static int half_of(const struct find *find, const struct store_aborted *more, int64_t *ret_end)
{
    uint32_t count = find->answer->count;
    int64_t *firsts = malloc((count + 1u) * sizeof(firsts[0]));
    if (!firsts) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        firsts[i] = (int64_t)mill_load_be64(find->to + (size_t)i * MILL_LOG_ABORTED_BYTES + 8);
    }
    firsts[count++] = more->first_offset;
    qsort(firsts, count, sizeof(firsts[0]), by_offset);
    uint32_t behind = 0;
    while (behind < count && firsts[behind] <= find->ask->offset) {
        behind++;
    }
    *ret_end = behind < count ? firsts[behind + (count - behind) / 2] : 0;
    free(firsts);
    return behind < count ? 0 : -EMSGSIZE;
}

/* The list is full: it is told for less data. ret: 0, as half_of. */
static int list_shorten(struct find *find, const struct store_aborted *more)
{
    /* What the entries so far tell is all about the data below their stable offset. */
    int64_t end = find->stable_offset;
    int r = 0;
    if (end <= find->ask->offset) {
        r = half_of(find, more, &end);
    }
    if (r == 0) {
        list_cut(find, end);
    }
    return r;
}

/* ret: 0, as half_of. */
static int entry_give(struct find *find, const struct store_aborted *aborted)
{
    if (aborted->first_offset < find->answer->end_offset &&
        find->answer->count == find->ask->most) {
#ifdef MILL_MUTANT_STORE_ABORTED_UNCUT
        return -EMSGSIZE;
#endif
        int r = list_shorten(find, aborted);
        if (r < 0) {
            return r;
        }
    }
    if (aborted->first_offset < find->answer->end_offset) {
        uint8_t *to = find->to + (size_t)find->answer->count++ * MILL_LOG_ABORTED_BYTES;
        mill_store_be64(to, (uint64_t)aborted->producer_id);
        mill_store_be64(to + 8, (uint64_t)aborted->first_offset);
    }
    find->stable_offset = aborted->stable_offset;
    find->complete = aborted->stable_offset >= find->answer->end_offset;
    return 0;
}

static int segment_find(struct mill_store *store, struct store_partition *partition,
                        struct store_segment *segment, struct find *find)
{
    uint64_t count = segment->txn_bytes / STORE_TXN_ENTRY_BYTES;
    uint64_t number = 0;
    int file = mill_store_file(store, partition, segment, STORE_FILE_TXNINDEX);
    int r = file < 0 ? file : lookup(store, file, count, find->ask->offset, &number);
    while (r == 0 && number < count && !find->complete) {
        uint8_t bytes[ENTRIES_AT_ONCE * STORE_TXN_ENTRY_BYTES];
        uint64_t some = MILL_MIN(count - number, (uint64_t)ENTRIES_AT_ONCE);
        r = mill_store_read_all(store->calls, file, bytes, some * STORE_TXN_ENTRY_BYTES,
                                number * STORE_TXN_ENTRY_BYTES);
        for (uint64_t i = 0; r == 0 && i < some && !find->complete; i++) {
            struct store_aborted aborted;
            r = entry_read(bytes + i * STORE_TXN_ENTRY_BYTES, &aborted) ? 0 : -EIO;
            r = r < 0 ? r : entry_give(find, &aborted);
        }
        number += some;
    }
    return r;
}

void mill_store_txn_find(struct mill_store *store, struct store_partition *partition,
                         const struct mill_link_aborted *ask,
                         struct mill_link_aborted_done *ret_answer)
{
    struct mill_ref to = {.extent = ask->extent};
    *ret_answer =
        (struct mill_link_aborted_done){.request = ask->request, .end_offset = ask->end_offset};
    if (!partition || !partition->loaded || partition->status < 0) {
        ret_answer->status = -ENOENT;
        return;
    }
    struct find find = {.ask = ask,
                        .answer = ret_answer,
                        .to = mill_ref_data(mill_arena_base(store->config.arena), &to),
                        .stable_offset = ask->offset};
    struct store_segment *first = mill_store_segment_of(partition, ask->offset);
    uint32_t i = first ? (uint32_t)(first - partition->segments) : 0;
    int r = 0;
    for (; r == 0 && i < partition->segments_count && !find.complete; i++) {
        if (partition->segments[i].txn_bytes > 0) {
            r = segment_find(store, partition, &partition->segments[i], &find);
        }
    }
    ret_answer->status = r;
    ret_answer->known_offset = partition->written_offset;
}
