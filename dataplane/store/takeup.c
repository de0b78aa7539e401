/* SPDX-License-Identifier: Apache-2.0 */
/* Take-up after a kill: what extents of an earlier process hold beyond the files is written to
 * them. Descriptors say what is valid, each batch is checked again; only what follows the files
 * without a gap is written. Partitions whose files have everything are left to their loaders; what
 * was loaded of others is handed to them, so that no file is read twice. Nothing of the arena is
 * given up before everything was written; then arena and directories begin a new incarnation.
 * Start-up only, one thread. */
#include "dataplane/store/load.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/crc32c.h"
#include "base/log_line.h"

struct home {
    struct mill_uuid topic_id;
    int32_t partition;
    uint32_t dir;
    char name[NAME_MAX + 1];
};

struct takeup {
    struct mill_log_dirs *dirs;
    const struct mill_file_calls *files;
    struct mill_arena *arena;
    struct mill_takeup_result *result;
    struct mill_report *report;
    struct store_meta metas[STORE_DIRS_MAX];
    struct mill_store *store; /* never stepped: its files and walks are used */
    struct home *homes;       /* by topic id and partition, once all are found */
    uint32_t homes_count;
    uint32_t homes_capacity;
    uint32_t dir; /* being listed */
    bool full;    /* the rest of this partition is kept, not written */
    bool wrote[STORE_DIRS_MAX];
    const struct mill_partition_mark **marks; /* as homes */
    uint32_t marks_count;
    uint32_t *extents;
    uint32_t extents_count;
};

/* --- what is there --------------------------------------------------------------------------- */

static int home_note(void *context, const char *name)
{
    struct takeup *takeup = context;
    long partition =
        mill_log_dir_names_partition(name) ? strtol(strrchr(name, '-') + 1, NULL, 10) : INT64_MAX;
    if (partition > INT32_MAX || strlen(name) > NAME_MAX) {
        return 0;
    }
    char path[STORE_PATH_BYTES];
    struct mill_uuid id;
    snprintf(path, sizeof(path), "%s/%s", takeup->dirs->dirs[takeup->dir].path, name);
    if (mill_store_dir_id(takeup->files, path, &id) < 0) {
        return 0;
    }
    if (takeup->homes_count == takeup->homes_capacity) {
        uint32_t capacity = MILL_MAX(64u, takeup->homes_capacity * 2);
        struct home *grown = realloc(takeup->homes, capacity * sizeof(grown[0]));
        if (!grown) {
            return -ENOMEM;
        }
        takeup->homes = grown;
        takeup->homes_capacity = capacity;
    }
    struct home *home = &takeup->homes[takeup->homes_count++];
    *home = (struct home){.topic_id = id, .partition = (int32_t)partition, .dir = takeup->dir};
    snprintf(home->name, sizeof(home->name), "%s", name);
    return 0;
}

static int by_names(const struct mill_uuid *left_id, int32_t left, const struct mill_uuid *right_id,
                    int32_t right)
{
    int r = memcmp(left_id, right_id, sizeof(*left_id));
    return r != 0 ? r : left < right ? -1 : left > right;
}

static int by_home(const void *a, const void *b)
{
    const struct home *left = a;
    const struct home *right = b;
    int r = by_names(&left->topic_id, left->partition, &right->topic_id, right->partition);
    return r != 0 ? r : left->dir < right->dir ? -1 : left->dir > right->dir;
}

/* The first of a partition, NULL none. */
static const struct home *home_of(const struct takeup *takeup, const struct mill_uuid *topic_id,
                                  int32_t partition)
{
    uint32_t low = 0;
    uint32_t high = takeup->homes_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct home *home = &takeup->homes[middle];
        if (by_names(&home->topic_id, home->partition, topic_id, partition) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct home *home = &takeup->homes[low];
    bool found = low < takeup->homes_count &&
                 by_names(&home->topic_id, home->partition, topic_id, partition) == 0;
    return found ? home : NULL;
}

static int homes_find(struct takeup *takeup)
{
    for (uint32_t i = 0; i < takeup->dirs->count; i++) {
        takeup->dir = i;
        int r = takeup->files->list(takeup->files->context, takeup->dirs->dirs[i].path, home_note,
                                    takeup);
        if (r < 0) {
            return mill_fail(takeup->report, r, "log directory %s cannot be read: %s",
                             takeup->dirs->dirs[i].path, strerror(-r));
        }
    }
    if (takeup->homes_count > 0) {
        qsort(takeup->homes, takeup->homes_count, sizeof(takeup->homes[0]), by_home);
    }
    return 0;
}

static int by_place(const void *a, const void *b, void *context)
{
    struct mill_arena *arena = context;
    const struct mill_extent_desc *left = mill_arena_desc(arena, *(const uint32_t *)a);
    const struct mill_extent_desc *right = mill_arena_desc(arena, *(const uint32_t *)b);
    int r = memcmp(&left->topic_id, &right->topic_id, sizeof(left->topic_id));
    if (r == 0) {
        r = left->partition < right->partition ? -1 : left->partition > right->partition;
    }
    if (r == 0) {
        r = left->base_offset < right->base_offset ? -1 : left->base_offset > right->base_offset;
    }
    return r != 0 ? r : left->order < right->order ? -1 : left->order > right->order;
}

static int extents_find(struct takeup *takeup)
{
    uint32_t cursor = 0;
    uint32_t count = 0;
    while (mill_arena_next_log(takeup->arena, &cursor)) {
        count++;
    }
    takeup->extents = calloc(MILL_MAX(count, 1u), sizeof(takeup->extents[0]));
    if (!takeup->extents) {
        return mill_fail(takeup->report, -ENOMEM, "no memory for the take-up");
    }
    cursor = 0;
    while (takeup->extents_count < count && mill_arena_next_log(takeup->arena, &cursor)) {
        takeup->extents[takeup->extents_count++] = cursor - 1;
    }
    qsort_r(takeup->extents, takeup->extents_count, sizeof(takeup->extents[0]), by_place,
            takeup->arena);
    if (mill_arena_implausible_count(takeup->arena) > 0) {
        mill_log_dirs_say(takeup->dirs, MILL_LEVEL_WARN, "store.take-up.implausible",
                          "descriptors that make no sense were skipped count=%u",
                          mill_arena_implausible_count(takeup->arena));
    }
    return 0;
}

static int by_mark(const void *a, const void *b)
{
    const struct mill_partition_mark *left = *(const struct mill_partition_mark *const *)a;
    const struct mill_partition_mark *right = *(const struct mill_partition_mark *const *)b;
    return by_names(&left->topic_id, left->partition, &right->topic_id, right->partition);
}

static int marks_find(struct takeup *takeup)
{
    uint32_t length = mill_arena_marks_length(takeup->arena);
    takeup->marks = calloc(MILL_MAX(length, 1u), sizeof(takeup->marks[0]));
    if (!takeup->marks) {
        return mill_fail(takeup->report, -ENOMEM, "no memory for the take-up");
    }
    for (uint32_t i = 0; i < length; i++) {
        const struct mill_partition_mark *mark = mill_arena_mark_at(takeup->arena, i);
        if (mark) {
            takeup->marks[takeup->marks_count++] = mark;
        }
    }
    qsort(takeup->marks, takeup->marks_count, sizeof(takeup->marks[0]), by_mark);
    return 0;
}

static const struct mill_partition_mark *mark_of(const struct takeup *takeup,
                                                 const struct mill_extent_desc *desc)
{
    struct mill_partition_mark key = {.topic_id = desc->topic_id, .partition = desc->partition};
    const struct mill_partition_mark *wanted = &key;
    const struct mill_partition_mark *const *found =
        bsearch(&wanted, takeup->marks, takeup->marks_count, sizeof(takeup->marks[0]), by_mark);
    return found ? *found : NULL;
}

/* --- one partition --------------------------------------------------------------------------- */

/* A header that can be right at pos of an extent. */
static bool batch_fits(const uint8_t *data, uint32_t pos, uint32_t end,
                       struct mill_batch *ret_batch)
{
    if (end - pos < MILL_BATCH_HEADER_BYTES) {
        return false;
    }
    mill_batch_read(data + pos, ret_batch);
    return ret_batch->magic == 2 &&
           ret_batch->batch_length >= MILL_BATCH_HEADER_BYTES - MILL_BATCH_PREFIX_BYTES &&
           mill_batch_has_offsets(ret_batch) && mill_batch_size_bytes(ret_batch) <= end - pos;
}

/* Checks the batch at pos of an extent. ret: its size, 0 when it is no whole, valid batch. */
static uint32_t batch_check(const uint8_t *data, uint32_t pos, uint32_t end,
                            struct mill_batch *ret_batch)
{
    if (!batch_fits(data, pos, end, ret_batch)) {
        return 0;
    }
    uint32_t size = mill_batch_size_bytes(ret_batch);
    uint32_t crc = mill_crc32c(data + pos + MILL_BATCH_SUMMED_AT, size - MILL_BATCH_SUMMED_AT);
    return crc == ret_batch->crc ? size : 0;
}

/* Writes one batch, or keeps it when there is no space. */
static int batch_write(struct takeup *takeup, struct store_partition *partition,
                       const struct mill_ref *ref, const struct mill_batch *batch)
{
    uint32_t done = 0;
    const uint8_t *bytes = mill_ref_data(mill_arena_base(takeup->arena), ref);
    int r = takeup->full
                ? -ENOSPC
                : mill_store_append(takeup->store, partition, bytes, ref->size_bytes, &done);
    if (mill_store_full(r)) {
        takeup->full = true;
        takeup->result->bytes_kept += ref->size_bytes;
        partition->written_offset = mill_batch_last_offset(batch) + 1; /* as far as looked at */
        return mill_store_keep(&takeup->result->kept, &partition->topic_id, partition->index, ref);
    }
    if (r == 0) {
        mill_store_epoch_note(partition, batch); /* its producer the append has noted */
        takeup->result->batches_written++;
        takeup->result->bytes_written += ref->size_bytes;
    }
    return r;
}

/* Writes what one extent holds beyond the files. ret: 1 go on, 0 stop here (told), -errno. */
static int extent_write(struct takeup *takeup, struct store_partition *partition, uint32_t extent,
                        int64_t limit_offset)
{
    const struct mill_extent_desc *desc = mill_arena_desc(takeup->arena, extent);
    uint32_t end = atomic_load_explicit(&desc->committed_bytes, memory_order_acquire);
    const uint8_t *data =
        mill_arena_base(takeup->arena) + ((size_t)extent << MILL_EXTENT_UNIT_SHIFT);
    uint32_t pos = 0;
    while (pos < end) {
        struct mill_batch batch;
        uint32_t size = batch_check(data, pos, end, &batch);
        if (size == 0 || mill_batch_last_offset(&batch) >= limit_offset) {
            mill_log_dirs_say(
                takeup->dirs, MILL_LEVEL_ERROR, "store.take-up.bad-batch",
                "partition=%s extent=%u pos=%u: not a valid batch; the rest is discarded",
                partition->path, extent, pos);
            return 0;
        }
        if (mill_batch_last_offset(&batch) < partition->written_offset) {
            pos += size;
            continue;
        }
#ifdef MILL_MUTANT_STORE_TRUST_TAKEUP
        partition->written_offset = batch.base_offset;
#endif
        if (batch.base_offset != partition->written_offset) {
            mill_log_dirs_say(takeup->dirs, MILL_LEVEL_ERROR, "store.take-up.gap",
                              "partition=%s files end at %" PRId64
                              ", the next batch begins at %" PRId64 ": the rest is discarded",
                              partition->path, partition->written_offset, batch.base_offset);
            return 0;
        }
#ifdef MILL_MUTANT_STORE_LOSE_TAKEUP
        if (pos + size == end) {
            return 1;
        }
#endif
        struct mill_ref ref = {.extent = extent, .pos_bytes = pos, .size_bytes = size};
        int r = batch_write(takeup, partition, &ref, &batch);
        if (r < 0) {
            return mill_fail(takeup->report, r,
                             "%s cannot be written: %s; nothing was lost, mend it and start again",
                             partition->path, strerror(-r));
        }
        pos += size;
    }
    return 1;
}

static int partition_write(struct takeup *takeup, struct store_partition *partition,
                           const uint32_t *extents, uint32_t count,
                           const struct mill_partition_mark *mark)
{
    int64_t written = mark ? atomic_load_explicit(&mark->written_offset, memory_order_acquire) : 0;
    int64_t cut = mark ? atomic_load_explicit(&mark->truncate_offset, memory_order_acquire) : -1;
    uint64_t before = takeup->result->bytes_written;
#ifdef MILL_MUTANT_STORE_TRUST_TAKEUP
    written = 0;
#endif
    if (partition->written_offset < written) {
        mill_log_dirs_say(takeup->dirs, MILL_LEVEL_ERROR, "store.take-up.older-copy",
                          "partition=%s files end at %" PRId64 " but had been written to %" PRId64
                          ": an older copy; its extents are discarded count=%u",
                          partition->path, partition->written_offset, written, count);
        takeup->result->extents_discarded += count;
        return 0;
    }
    takeup->full = false;
    for (uint32_t i = 0; i < count; i++) {
        int r = extent_write(takeup, partition, extents[i], cut < 0 ? INT64_MAX : cut);
        if (r < 0) {
            return r;
        }
        if (r == 0) {
            takeup->result->extents_discarded += count - i;
            break;
        }
    }
    if (takeup->full) {
        mill_log_dirs_say(takeup->dirs, MILL_LEVEL_ERROR, "store.take-up.full",
                          "partition=%s: no space; what is not in the files stays in memory and is "
                          "served from there until it can be written",
                          partition->path);
    }
    if (takeup->result->bytes_written > before) {
        takeup->result->partitions++;
        takeup->wrote[partition->dir] = true;
    }
    return 0;
}

/* Everything in the extents is in the files, too, says the mark: the files need not be read before
 * their loader reads them. Then *ret_written is how far they reach. */
static bool is_written(const struct takeup *takeup, const uint32_t *extents, uint32_t count,
                       const struct mill_partition_mark *mark, int64_t *ret_written)
{
#ifdef MILL_MUTANT_STORE_TRUST_TAKEUP
    return false;
#endif
    if (!mark || atomic_load_explicit(&mark->truncate_offset, memory_order_acquire) >= 0) {
        return false;
    }
    int64_t written = atomic_load_explicit(&mark->written_offset, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        const struct mill_extent_desc *desc = mill_arena_desc(takeup->arena, extents[i]);
        uint32_t end = atomic_load_explicit(&desc->committed_bytes, memory_order_acquire);
        const uint8_t *data =
            mill_arena_base(takeup->arena) + ((size_t)extents[i] << MILL_EXTENT_UNIT_SHIFT);
        struct mill_batch batch;
        for (uint32_t pos = 0; pos < end; pos += mill_batch_size_bytes(&batch)) {
            if (!batch_fits(data, pos, end, &batch) || mill_batch_last_offset(&batch) >= written) {
                return false;
            }
        }
    }
    *ret_written = written;
    return true;
}

/* Leaves the partition to its loader, who finds out whether its files are as old as they should be.
 */
static int written_note(struct takeup *takeup, const struct home *home, int64_t written)
{
    struct store_offset *offset =
        mill_store_offset(&takeup->dirs->dirs[home->dir].offsets, home->name, true);
    if (!offset) {
        return mill_fail(takeup->report, -ENOMEM, "no memory for the take-up");
    }
    offset->reached_offset = written;
    return 0;
}

/* mark: of what it had in files, NULL none. */
static struct store_partition *partition_make(const struct takeup *takeup, const struct home *home,
                                              const struct mill_partition_mark *mark)
{
    struct store_partition *partition = calloc(1, sizeof(*partition));
    if (!partition || mill_store_names_take(takeup->dirs, partition, home->name) < 0) {
        free(partition);
        return NULL;
    }
    partition->topic_id = home->topic_id;
    partition->index = home->partition;
    partition->dir = home->dir;
    partition->settings =
        (struct mill_log_settings){.segment_bytes = 1 << 30,
                                   .segment_ms = INT64_MAX,
                                   .index_interval_bytes = 4096,
                                   .segment_index_bytes = 10 << 20,
                                   .compact = true}; /* Kafka's defaults: a topic's own come with
                                                        its opening; gaps are judged then */
    /* Had it files, it is not begun anew without them. */
    partition->settings.made = mark && atomic_load(&mark->written_offset) > 0;
    snprintf(partition->path, partition->path_bytes, "%s/%s", takeup->dirs->dirs[home->dir].path,
             home->name);
    return partition;
}

static int group_write(struct takeup *takeup, const uint32_t *extents, uint32_t count)
{
    const struct mill_extent_desc *desc = mill_arena_desc(takeup->arena, extents[0]);
    const struct home *home = home_of(takeup, &desc->topic_id, desc->partition);
    const struct mill_partition_mark *mark = mark_of(takeup, desc);
    int64_t written = 0;
    struct mill_uuid ours = mill_arena_incarnation(takeup->arena);
    char id[MILL_UUID_TEXT_BYTES];
    mill_uuid_format(&desc->topic_id, id);
    if (!home) {
        mill_log_dirs_say(
            takeup->dirs, MILL_LEVEL_WARN, "store.take-up.no-files",
            "topic_id=%s partition=%d has no files (deleted, or the directory was replaced): its "
            "extents are discarded count=%u",
            id, desc->partition, count);
        takeup->result->extents_discarded += count;
        return 0;
    }
#ifdef MILL_MUTANT_STORE_TRUST_TAKEUP
    ours = takeup->metas[home->dir].incarnation;
#endif
    if (mill_uuid_is_zero(&ours) ||
        !mill_uuid_equal(&ours, &takeup->metas[home->dir].incarnation)) {
        mill_log_dirs_say(
            takeup->dirs, MILL_LEVEL_ERROR, "store.take-up.foreign",
            "partition=%s/%s: memory and files are of different runs; its extents are discarded "
            "count=%u",
            takeup->dirs->dirs[home->dir].path, home->name, count);
        takeup->result->extents_discarded += count;
        return 0;
    }
    if (is_written(takeup, extents, count, mark, &written)) {
        return written_note(takeup, home, written);
    }
    struct store_partition *partition = partition_make(takeup, home, mark);
    if (!partition) {
        return mill_fail(takeup->report, -ENOMEM, "no memory for the take-up");
    }
    int r = mill_store_load(takeup->store, partition);
    if (r == -EUCLEAN) {
        /* One damaged partition does not keep the others from being served. */
        mill_log_dirs_say(takeup->dirs, MILL_LEVEL_ERROR, "store.take-up.damaged",
                          "partition=%s: its files are damaged; its extents are discarded count=%u",
                          partition->path, count);
        takeup->result->extents_discarded += count;
        r = 0;
    } else if (r < 0) {
        r = mill_fail(takeup->report, r, "%s cannot be loaded: %s", partition->path, strerror(-r));
    } else {
        r = partition_write(takeup, partition, extents, count, mark);
    }
    /* Without a batch its opening has to find out whether there should be one. */
    bool whole = r == 0 && partition->loaded && !takeup->full && partition->written_offset > 0;
    if (whole && mill_store_hand_over(takeup->store, partition)) {
        return 0;
    }
    mill_store_unload(takeup->store, partition);
    mill_store_names_free(partition);
    free(partition);
    return r;
}

static int groups_write(struct takeup *takeup)
{
    uint32_t first = 0;
    while (first < takeup->extents_count) {
        const struct mill_extent_desc *desc =
            mill_arena_desc(takeup->arena, takeup->extents[first]);
        uint32_t end = first + 1;
        while (end < takeup->extents_count) {
            const struct mill_extent_desc *next =
                mill_arena_desc(takeup->arena, takeup->extents[end]);
            if (next->partition != desc->partition ||
                !mill_uuid_equal(&next->topic_id, &desc->topic_id)) {
                break;
            }
            end++;
        }
        int r = group_write(takeup, takeup->extents + first, end - first);
        if (r < 0) {
            return r;
        }
        first = end;
    }
    return 0;
}

/* Together: a sync of each partition takes as long as one of the disk. */
static int written_sync(struct takeup *takeup)
{
    for (uint32_t i = 0; i < takeup->dirs->count; i++) {
        const char *path = takeup->dirs->dirs[i].path;
        int r = takeup->wrote[i] ? takeup->files->sync_all(takeup->files->context, path) : 0;
        if (r < 0) {
            return mill_fail(takeup->report, r, "%s cannot be synced: %s", path, strerror(-r));
        }
    }
    return 0;
}

/* Log starts that the process had moved since the last checkpoint. */
static int starts_note(struct takeup *takeup)
{
    for (uint32_t i = 0; i < takeup->marks_count; i++) {
        const struct mill_partition_mark *mark = takeup->marks[i];
        int64_t start = atomic_load_explicit(&mark->start_offset, memory_order_acquire);
        if (start <= 0 || start == INT64_MAX) {
            continue; /* INT64_MAX: its deletion had begun */
        }
        const struct home *end = takeup->homes + takeup->homes_count;
        const struct home *home = home_of(takeup, &mark->topic_id, mark->partition);
        for (; home && home < end && home->partition == mark->partition &&
               mill_uuid_equal(&home->topic_id, &mark->topic_id);
             home++) {
            struct store_offset *offset =
                mill_store_offset(&takeup->dirs->dirs[home->dir].offsets, home->name, true);
            if (!offset) {
                return mill_fail(takeup->report, -ENOMEM, "no memory for the take-up");
            }
            offset->start_offset = MILL_MAX(offset->start_offset, start);
        }
    }
    return 0;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Gives every directory this incarnation. Directories come before the arena: killed in between, the
 * arena is of an older run and what it holds is in the files. */
static int incarnation_write(struct takeup *takeup, const struct mill_uuid *id)
{
    for (uint32_t i = 0; i < takeup->dirs->count; i++) {
        struct store_meta meta = takeup->metas[i];
        if (mill_uuid_equal(&meta.incarnation, id)) {
            continue;
        }
        meta.incarnation = *id;
        int r = mill_store_meta_write(takeup->files, takeup->dirs->dirs[i].path, &meta);
        if (r < 0) {
            return mill_fail(takeup->report, r, "%s/meta.properties cannot be written: %s",
                             takeup->dirs->dirs[i].path, strerror(-r));
        }
        takeup->metas[i] = meta;
    }
    return 0;
}

/* A new one for each run; the old one as long as extents of it are kept, or when a full disk takes
 * no other: nothing else is left of its run. */
static int incarnation_begin(struct takeup *takeup)
{
    struct mill_store_kept *kept = &takeup->result->kept;
    struct mill_uuid old = takeup->metas[0].incarnation;
    struct mill_uuid id = mill_arena_incarnation(takeup->arena);
    int r = 0;
    if (kept->parts_count == 0 && getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
        return mill_fail(takeup->report, -EIO, "no random numbers from the kernel");
    }
    r = incarnation_write(takeup, &id);
    if (mill_store_full(r) && kept->parts_count == 0 && !mill_uuid_is_zero(&old)) {
        id = old;
        r = incarnation_write(takeup, &id);
    }
    uint32_t *extents = calloc(MILL_MAX(kept->parts_count, 1u), sizeof(extents[0]));
    if (r < 0 || !extents) {
        free(extents);
        return r < 0 ? r : mill_fail(takeup->report, -ENOMEM, "no memory for the take-up");
    }
    for (uint32_t i = 0; i < kept->parts_count; i++) {
        extents[i] = kept->parts[i].ref.extent;
    }
    mill_arena_reset_but(takeup->arena, &id, extents, kept->parts_count);
    atomic_store_explicit(&kept->left, kept->parts_count, memory_order_relaxed);
    free(extents);
    return 0;
}

int mill_store_takeup(struct mill_log_dirs *dirs, struct mill_arena *arena, bool taken,
                      struct mill_takeup_result *ret_result, struct mill_report *report)
{
    struct takeup *takeup = calloc(1, sizeof(*takeup));
    *ret_result = (struct mill_takeup_result){0};
    if (!takeup) {
        return mill_fail(report, -ENOMEM, "the take-up cannot begin");
    }
    takeup->dirs = dirs;
    takeup->files = dirs->options.files;
    takeup->arena = arena;
    takeup->result = ret_result;
    takeup->report = report;
    struct mill_store_config config = {.dirs = dirs,
                                       .arena = arena,
                                       .open_files_max = 16,
                                       .producers_max = UINT32_MAX,
                                       .producer_expiration_ms = INT64_MAX};
    int r = mill_store_create(&config, &takeup->store, report);
    for (uint32_t i = 0; r == 0 && i < dirs->count; i++) {
        r = mill_store_meta_read(takeup->files, dirs->dirs[i].path, &takeup->metas[i]);
        if (r < 0) {
            mill_fail(report, r, "%s/meta.properties cannot be read: %s", dirs->dirs[i].path,
                      strerror(-r));
        }
    }
    if (r == 0 && taken) {
        r = homes_find(takeup);
        r = r < 0 ? r : marks_find(takeup);
        r = r < 0 ? r : starts_note(takeup);
        r = r < 0 ? r : extents_find(takeup);
        r = r < 0 ? r : groups_write(takeup);
        r = r < 0 ? r : written_sync(takeup);
    }
    r = r < 0 ? r : incarnation_begin(takeup);
    mill_store_abandon(takeup->store);
    if (r < 0) {
        mill_store_kept_free(&ret_result->kept);
    }
    free(takeup->homes);
    free(takeup->marks);
    free(takeup->extents);
    free(takeup);
    return r;
}
