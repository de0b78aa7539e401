/* SPDX-License-Identifier: Apache-2.0 */
/* What a store has helpers do: syncs of several partitions side by side, cold reads, leaving the
 * page cache. A job names a partition and open files; both stay until it is back (counts of jobs
 * and pins), though compaction or trimming take a segment away meanwhile. run_... is called on a
 * helper's thread and touches nothing but its job and the files; all else is the store's thread. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/log_line.h"

#define READ_TOLD_NS (10 * MILL_NS_PER_S)

enum {
    DROP_PARTS = 64, /* files of one job */
    CURSORS = 256,   /* power of two: places of sequential readers that are remembered */
};

/* A range of one file that is to leave the page cache. */
struct drop_part {
    struct store_file *slot; /* pinned */
    struct store_partition *partition;
    uint64_t pos_bytes;
    uint64_t size_bytes;
    uint64_t counted_bytes;
    int result;
};

struct store_job {
    struct mill_helper_job helper;
    struct store_job *next; /* of the store's ended ones */
    const struct mill_store *store;
    struct store_partition *partition;
    struct store_file *files[2]; /* pinned; NULL none */
    struct drop_part *parts;     /* a drop's, in place of partition and files */
    uint32_t parts_count;
    int result;
    uint64_t took_ns; /* a sync's, where times are kept */
    union {
        struct {
            int64_t offset; /* everything below was written */
            bool dir;       /* the directory has names that are not synced */
        } sync;
        struct {
            struct mill_link_read ask;
            struct store_segment segment;
            bool known; /* from_bytes is where the batch begins */
            uint64_t from_bytes;
            bool gap_before;     /* result: records are missing before the batch */
            uint32_t gap_bytes;  /* ... what is read up to the first gap in it */
            uint32_t size_bytes; /* ... of whole batches */
            int64_t end_offset;  /* ... of which this is the next one's offset, -1 unknown */
        } read;
    };
};

static struct store_job *job_of(struct mill_helper_job *helper)
{
    return MILL_CONTAINER_OF(helper, struct store_job, helper);
}

uint32_t mill_store_jobs_max(const struct mill_store *store)
{
    /* Of two files each, beside a quarter of all for what leaves the page cache. */
    return MILL_MIN(MILL_MAX(store->config.open_files_max / 8, 1u), 1024u);
}

/* --- giving and taking ----------------------------------------------------------------------- */

static struct store_job *job_make(struct mill_store *store, struct store_partition *partition,
                                  enum mill_helper_kind kind,
                                  void (*run)(struct mill_helper_job *helper))
{
    struct store_job *job = calloc(1, sizeof(*job));
    if (job) {
        job->helper.kind = kind;
        job->helper.run = run;
        job->store = store;
        job->partition = partition;
    }
    return job;
}

/* Unpins what a job used and puts it with those to be finished. */
static void job_back(struct mill_store *store, struct mill_helper_job *helper)
{
    struct store_job *job = job_of(helper);
    for (uint32_t i = 0; i < MILL_COUNT_OF(job->files); i++) {
        if (job->files[i]) {
            mill_store_file_unpin(store, job->files[i]);
        }
    }
    for (uint32_t i = 0; i < job->parts_count; i++) {
        mill_store_file_unpin(store, job->parts[i].slot);
    }
    job->next = NULL;
    *store->ended_last = job;
    store->ended_last = &job->next;
    store->jobs--;
}

static void job_give(struct mill_store *store, struct store_job *job)
{
    while (store->jobs >= mill_store_jobs_max(store)) {
        job_back(store, mill_helpers_wait(store->helpers));
    }
    store->jobs++;
    if (job->partition) {
        job->partition->jobs++;
    }
    mill_helpers_give(store->helpers, &job->helper);
}

/* --- syncs ----------------------------------------------------------------------------------- */

int mill_store_sync_timed(const struct mill_store *store, int file, uint64_t *ret_took_ns)
{
    bool timed = store->config.flush_times != NULL;
    uint64_t begun_ns = timed ? mill_now_read().mono_ns : 0;
    int r = store->calls->sync(store->calls->context, file);
    *ret_took_ns = timed ? mill_now_read().mono_ns - begun_ns : 0;
    return r;
}

void mill_store_sync_count(struct mill_store *store, uint64_t took_ns)
{
#ifdef MILL_MUTANT_STORE_FLUSH_UNTIMED
    return;
#endif
    if (store->config.flush_times) {
        mill_hist_add(store->config.flush_times, took_ns);
    }
}

static void run_sync(struct mill_helper_job *helper)
{
    struct store_job *job = job_of(helper);
    const struct mill_file_calls *calls = job->store->calls;
    job->result = mill_store_sync_timed(job->store, job->files[0]->file, &job->took_ns);
    if (job->result == 0 && job->sync.dir) {
        job->result = calls->sync_dir(calls->context, job->partition->path);
    }
}

int mill_store_sync_begin(struct mill_store *store, struct store_partition *partition)
{
    struct store_segment *segment = &partition->segments[partition->segments_count - 1];
    int file = mill_store_file(store, partition, segment, STORE_FILE_LOG);
    struct store_job *job =
        file < 0 ? NULL : job_make(store, partition, MILL_HELPER_SYNC, run_sync);
    if (!job) {
        return file < 0 ? file : -ENOMEM;
    }
    job->files[0] = mill_store_file_pin(store, partition, segment, STORE_FILE_LOG);
    job->sync.offset = partition->written_offset;
    job->sync.dir = partition->dir_unsynced;
    partition->syncing = true;
    job_give(store, job);
    return 0;
}

/* Notes what the sync made durable. */
static void sync_note(struct mill_store *store, const struct store_job *job)
{
    struct store_partition *partition = job->partition;
    partition->syncing = false;
    mill_store_sync_count(store, job->took_ns);
    if (job->result == 0) {
        partition->dir_unsynced = partition->dir_unsynced && !job->sync.dir;
        partition->synced_offset = MILL_MAX(partition->synced_offset, job->sync.offset);
        mill_store_points_moved(store);
    }
}

static void sync_finish(struct mill_store *store, const struct store_job *job)
{
    sync_note(store, job);
    mill_store_synced(store, job->partition, job->result);
}

/* At the store's end nobody is told any more: what was being synced is whole all the same. */
static void sync_end(struct mill_store *store, const struct store_job *job)
{
    sync_note(store, job);
    if (job->result < 0) {
        mill_log_dirs_fence(store->dirs, job->partition->dir, job->result);
        return;
    }
#ifndef MILL_MUTANT_STORE_STOP_IN_SYNC
    job->partition->writing = false;
#endif
}

/* --- directories ----------------------------------------------------------------------------- */

static void run_make(struct mill_helper_job *helper)
{
    struct store_job *job = job_of(helper);
    job->result = mill_store_dir_make(job->store, job->partition);
}

int mill_store_make_begin(struct mill_store *store, struct store_partition *partition)
{
    struct store_job *job = job_make(store, partition, MILL_HELPER_SYNC, run_make);
    if (!job) {
        return -ENOMEM;
    }
    partition->making = true;
    job_give(store, job);
    return 0;
}

/* --- leaving the page cache ------------------------------------------------------------------ */

static void run_drop(struct mill_helper_job *helper)
{
    struct store_job *job = job_of(helper);
    const struct mill_file_calls *calls = job->store->calls;
    for (uint32_t i = 0; i < job->parts_count; i++) {
        /* Begun for all, so that the disk has them at once; how it went is told below. */
        const struct drop_part *part = &job->parts[i];
        int r = calls->uncache(calls->context, part->slot->file, part->pos_bytes, part->size_bytes,
                               MILL_UNCACHE_BEGIN);
        MILL_UNUSED(r);
    }
    for (uint32_t i = 0; i < job->parts_count; i++) {
        struct drop_part *part = &job->parts[i];
        part->result = calls->uncache(calls->context, part->slot->file, part->pos_bytes,
                                      part->size_bytes, MILL_UNCACHE_WRITE);
    }
}

struct store_job *mill_store_drop_make(struct mill_store *store)
{
    struct store_job *job = job_make(store, NULL, MILL_HELPER_DROP, run_drop);
    if (job) {
        job->parts = calloc(DROP_PARTS, sizeof(job->parts[0]));
        if (!job->parts) {
            free(job);
            return NULL;
        }
    }
    return job;
}

bool mill_store_drop_add(struct mill_store *store, struct store_job *job,
                         struct store_partition *partition, uint64_t pos_bytes, uint64_t size_bytes,
                         uint64_t counted_bytes)
{
    struct store_segment *segment = &partition->segments[partition->segments_count - 1];
    bool room = job->parts_count < DROP_PARTS &&
                store->pinned < MILL_MAX(store->config.open_files_max / 4, 1u);
    int file = room ? mill_store_file(store, partition, segment, STORE_FILE_LOG) : -ENOSPC;
    if (file < 0) {
        return false;
    }
    job->parts[job->parts_count++] = (struct drop_part){
        .slot = mill_store_file_pin(store, partition, segment, STORE_FILE_LOG),
        .partition = partition,
        .pos_bytes = pos_bytes,
        .size_bytes = size_bytes,
        .counted_bytes = counted_bytes,
    };
    partition->jobs++;
    store->dropping_bytes += counted_bytes;
    return true;
}

bool mill_store_drop_begin(struct mill_store *store, struct store_job *job)
{
    if (job->parts_count == 0) {
        free(job->parts);
        free(job);
        return false;
    }
    job_give(store, job);
    return true;
}

static void drop_finish(struct mill_store *store, const struct store_job *job)
{
    for (uint32_t i = 0; i < job->parts_count; i++) {
        const struct drop_part *part = &job->parts[i];
        store->dropping_bytes -= part->counted_bytes;
        store->cached_bytes -= part->counted_bytes;
        part->partition->jobs--;
        if (part->result < 0) {
            /* The kernel tells a failed write once: nobody else will hear of this one. */
            mill_log_dirs_fence(store->dirs, part->partition->dir, part->result);
        }
    }
}

/* --- cold reads ------------------------------------------------------------------------------ */

static struct store_cursor *cursor_of(struct mill_store *store,
                                      const struct store_partition *partition, int64_t offset)
{
    uint64_t hash = ((uint64_t)offset ^ ((uint64_t)partition->slot << 40)) * 0x9e3779b97f4a7c15ull;
    return &store->cursors[hash >> 56 & (CURSORS - 1)];
}

/* Position of a batch at or before the one that holds the offset, by the index. */
static int index_look(const struct store_job *job, uint64_t *ret_pos)
{
    const struct mill_file_calls *calls = job->store->calls;
    const struct store_segment *segment = &job->read.segment;
    uint64_t low = 0;
    uint64_t high = job->files[1] ? segment->index_bytes / STORE_INDEX_ENTRY_BYTES : 0;
    *ret_pos = 0;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint8_t entry[STORE_INDEX_ENTRY_BYTES];
        int r = mill_store_read_all(calls, job->files[1]->file, entry, sizeof(entry),
                                    middle * STORE_INDEX_ENTRY_BYTES);
        if (r < 0) {
            return r;
        }
        if (segment->base_offset + mill_load_be32(entry) <= job->read.ask.offset) {
            *ret_pos = mill_load_be32(entry + 4);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 0;
}

/* A header that can be one of this segment at this place. */
static bool plausible(const struct store_segment *segment, const struct mill_batch *batch,
                      uint64_t left_bytes)
{
    bool fits = batch->magic == 2 &&
                batch->batch_length >= MILL_BATCH_HEADER_BYTES - MILL_BATCH_PREFIX_BYTES &&
                mill_batch_size_bytes(batch) <= left_bytes;
#ifdef MILL_MUTANT_STORE_READ_UNBOUND
    return fits && batch->last_offset_delta >= 0;
#endif
    return fits && mill_batch_has_offsets(batch) &&
           mill_batch_last_offset(batch) < segment->next_offset;
}

/* Walks headers up to the batch that holds the offset, or the first one above it. Offsets are not
 * in the batches' sums: those beside it vouch for each. ret: 0; -ENODATA there is none in this
 * segment; -EIO no header where one is due, -errno. */
static int batch_seek(struct store_job *job)
{
    const struct mill_file_calls *calls = job->store->calls;
    uint64_t end = job->read.segment.log_bytes;
    uint64_t pos = 0;
    int64_t next = -1;
    int r = index_look(job, &pos);
    while (r == 0 && end - MILL_MIN(pos, end) >= MILL_BATCH_HEADER_BYTES) {
        uint8_t header[MILL_BATCH_HEADER_BYTES];
        struct mill_batch batch;
        r = mill_store_read_all(calls, job->files[0]->file, header, sizeof(header), pos);
        if (r < 0) {
            return r;
        }
        mill_batch_read(header, &batch);
        if (!plausible(&job->read.segment, &batch, end - pos) || batch.base_offset < next) {
            return -EIO;
        }
        job->read.gap_before = job->read.gap_before || (next >= 0 && batch.base_offset != next);
        next = mill_batch_last_offset(&batch) + 1;
        if (next > job->read.ask.offset) {
            job->read.gap_before = job->read.gap_before || batch.base_offset > job->read.ask.offset;
            job->read.from_bytes = pos;
            return 0;
        }
        pos += mill_batch_size_bytes(&batch);
    }
#ifdef MILL_MUTANT_STORE_CUT_IS_GAP
    return r < 0 ? r : -ENODATA;
#endif
    /* What is left is less than a header, or the index names a place behind the end: damage, even
     * where gaps are legal. */
    return r < 0 ? r : pos == end ? -ENODATA : -EIO;
}

static bool is_whole(const uint8_t *bytes, const struct mill_batch *batch)
{
#ifdef MILL_MUTANT_STORE_READ_UNSUMMED
    return true;
#endif
    return mill_crc32c(bytes + MILL_BATCH_SUMMED_AT,
                       mill_batch_size_bytes(batch) - MILL_BATCH_SUMMED_AT) == batch->crc;
}

/* The first batch of what was read. ret: 0, -EMSGSIZE it is larger than the room, -EIO no batch
 * that can hold the offset, -ENOENT what is in memory begins before it. */
static int first_check(struct store_job *job, const struct mill_batch *batch, uint64_t left_bytes)
{
    const struct mill_link_read *ask = &job->read.ask;
    if (!plausible(&job->read.segment, batch, left_bytes)) {
        return -EIO;
    }
    bool holds = job->read.known ? batch->base_offset == ask->offset
                                 : mill_batch_last_offset(batch) >= ask->offset;
    if (!holds) {
        return -EIO;
    }
    if (batch->base_offset >= ask->limit_offset) {
        return -ENOENT;
    }
    if (mill_batch_size_bytes(batch) > ask->size_bytes) {
        job->read.size_bytes = mill_batch_size_bytes(batch);
        return -EMSGSIZE;
    }
    return 0;
}

/* Counts whole batches with right sums of what was read, and notes where the first gap is. What is
 * damaged further on is told to who asks for it. ret: 0, or as first_check. */
static int batches_count(struct store_job *job, const uint8_t *bytes, uint32_t read_bytes)
{
    const struct store_segment *segment = &job->read.segment;
    uint64_t left = segment->log_bytes - job->read.from_bytes;
    uint32_t size = 0;
    while (read_bytes - size >= MILL_BATCH_HEADER_BYTES) {
        struct mill_batch batch;
        mill_batch_read(bytes + size, &batch);
        int r = size == 0 ? first_check(job, &batch, left) : 0;
        if (r < 0) {
            return r;
        }
        bool fits = plausible(segment, &batch, left - size) &&
                    mill_batch_size_bytes(&batch) <= read_bytes - size &&
                    batch.base_offset < job->read.ask.limit_offset;
        if (!fits || (size > 0 && batch.base_offset < job->read.end_offset) ||
            !is_whole(bytes + size, &batch)) {
            break;
        }
        int64_t next = mill_batch_last_offset(&batch) + 1;
        bool last = size + mill_batch_size_bytes(&batch) == left;
        bool gap = (size > 0 && batch.base_offset != job->read.end_offset) ||
                   (last && next != segment->next_offset);
        job->read.gap_bytes = gap ? MILL_MIN(job->read.gap_bytes, size) : job->read.gap_bytes;
        size += mill_batch_size_bytes(&batch);
        job->read.end_offset = next;
    }
    job->read.size_bytes = size;
    return size > 0 ? 0 : -EBADMSG;
}

static void run_read(struct mill_helper_job *helper)
{
    struct store_job *job = job_of(helper);
    const struct mill_store *store = job->store;
    const struct mill_link_read *ask = &job->read.ask;
    job->read.end_offset = -1;
    job->read.gap_bytes = UINT32_MAX;
    job->result = job->read.known ? 0 : batch_seek(job);
    if (job->result < 0) {
        return;
    }
    uint32_t want = (uint32_t)MILL_MIN((uint64_t)ask->size_bytes,
                                       job->read.segment.log_bytes - job->read.from_bytes);
    struct mill_ref to = {.extent = ask->extent, .size_bytes = want};
    uint8_t *bytes = mill_ref_data(mill_arena_base(store->config.arena), &to);
    int file = job->files[0]->file;
    job->result = mill_store_read_all(store->calls, file, bytes, want, job->read.from_bytes);
    if (job->result < 0) {
        return;
    }
    job->result = batches_count(job, bytes, want);
    mill_store_forget(store, file, job->read.from_bytes, want);
    if (job->read.known && job->result < 0 && job->result != -EMSGSIZE) {
        job->result = -ESTALE; /* the segment may have been written anew since: look again */
    }
}

/* A reader asks again and again: told once in a while. */
static void read_failed(struct mill_store *store, struct store_partition *partition, int64_t offset,
                        int error)
{
    if (store->now.mono_ns < partition->read_told_ns + READ_TOLD_NS &&
        partition->read_told_ns != 0) {
        return;
    }
    partition->read_told_ns = store->now.mono_ns;
    mill_log_dirs_say(store->dirs, MILL_LEVEL_ERROR, "store.read",
                      "partition=%s offset=%" PRId64 " cannot be read: %s", partition->path, offset,
                      error == -EBADMSG ? "what the file holds does not match its sum"
                                        : strerror(-error));
}

static int read_in(struct mill_store *store, struct store_partition *partition,
                   struct store_segment *segment, const struct mill_link_read *read)
{
    const struct store_cursor *cursor = cursor_of(store, partition, read->offset);
    bool known = cursor->generation == partition->generation && cursor->slot == partition->slot &&
                 cursor->offset == read->offset && cursor->segment == segment->base_offset &&
                 cursor->pos_bytes > 0 && cursor->pos_bytes < segment->log_bytes;
    if (!known) {
        mill_store_waiting_show(store, partition, segment);
    }
    bool index = !known && segment->index_bytes > 0;
    int file = index ? mill_store_file(store, partition, segment, STORE_FILE_INDEX) : 0;
    file = file < 0 ? file : mill_store_file(store, partition, segment, STORE_FILE_LOG);
    struct store_job *job =
        file < 0 ? NULL : job_make(store, partition, MILL_HELPER_READ, run_read);
    if (!job) {
        return file < 0 ? file : -ENOMEM;
    }
    job->files[0] = mill_store_file_pin(store, partition, segment, STORE_FILE_LOG);
    job->files[1] = index ? mill_store_file_pin(store, partition, segment, STORE_FILE_INDEX) : NULL;
    job->read.ask = *read;
    job->read.segment = *segment;
    job->read.known = known;
    job->read.from_bytes = known ? cursor->pos_bytes : 0;
    job_give(store, job);
    return 0;
}

/* Reads in the first segment above a base that may hold the offset: a compacted one may end below
 * the next one's base, or hold nothing. */
static int read_above(struct mill_store *store, struct store_partition *partition,
                      const struct mill_link_read *read, int64_t above_base)
{
    struct store_segment *segment = mill_store_segment_of(partition, read->offset);
    segment = segment ? segment : partition->segments; /* trimmed meanwhile: as a gap before it */
    const struct store_segment *end = partition->segments + partition->segments_count;
    for (; segment && segment < end; segment++) {
        if (segment->base_offset > above_base && segment->next_offset > read->offset &&
            segment->base_offset < read->limit_offset) {
            return read_in(store, partition, segment, read);
        }
    }
    return mill_store_gap_illegal(store, partition) ? -EIO : -ENOENT;
}

int mill_store_read_begin(struct mill_store *store, struct store_partition *partition,
                          const struct mill_link_read *read)
{
    int r = read_above(store, partition, read, -1);
    if (r == -EIO) {
        read_failed(store, partition, read->offset, r);
    }
    return r;
}

/* Whether what lies behind a gap may be served only the store knows. ret: the read's result; 1:
 * the answer follows, from the next segment. */
static int gap_judge(struct mill_store *store, struct store_job *job)
{
    bool none = job->result == -ENODATA || job->result == -ENOENT;
    bool gap = none || job->read.gap_before || job->read.gap_bytes < job->read.size_bytes;
    if ((job->result < 0 && !none) || !gap) {
        return job->result;
    }
    if (mill_store_gap_illegal(store, job->partition)) {
        job->read.end_offset = -1; /* where it ends is not known */
        job->read.size_bytes = none || job->read.gap_before ? 0 : job->read.gap_bytes;
        if (job->result == -ENODATA) {
            return -EIO; /* the index promised more than the file holds */
        }
        return job->read.size_bytes > 0 ? 0 : -EBADMSG;
    }
    if (job->result == -ENODATA) {
        int r = read_above(store, job->partition, &job->read.ask, job->read.segment.base_offset);
        return r == 0 ? 1 : r;
    }
    return job->result;
}

static void read_finish(struct mill_store *store, struct store_job *job)
{
    struct store_partition *partition = job->partition;
    if (job->result == -ESTALE) {
        *cursor_of(store, partition, job->read.ask.offset) = (struct store_cursor){0};
        job->result = mill_store_read_begin(store, partition, &job->read.ask);
        if (job->result == 0) {
            return;
        }
    }
    job->result = gap_judge(store, job);
    if (job->result == 1) {
        return;
    }
    if (job->result == 0 && job->read.end_offset >= 0) {
        *cursor_of(store, partition, job->read.end_offset) =
            (struct store_cursor){.slot = partition->slot,
                                  .generation = partition->generation,
                                  .offset = job->read.end_offset,
                                  .segment = job->read.segment.base_offset,
                                  .pos_bytes = job->read.from_bytes + job->read.size_bytes};
    } else if (job->result == -EIO || job->result == -EBADMSG) {
        read_failed(store, partition, job->read.ask.offset, job->result);
    }
    struct mill_link_read_done *to =
        mill_store_tell(store, partition, MILL_LINK_READ_DONE, sizeof(*to));
    to->request = job->read.ask.request;
    to->extent = job->read.ask.extent;
    to->status = job->result;
    to->size_bytes = job->read.size_bytes;
}

/* --- the end of jobs ------------------------------------------------------------------------- */

static void partition_done(struct mill_store *store, struct store_partition *partition)
{
    if (partition->doomed && partition->jobs == 0) {
        mill_store_delete(store, partition);
    }
}

static void job_finish(struct mill_store *store, struct store_job *job)
{
    struct store_partition *partition = job->partition;
    if (job->helper.run == run_drop) {
        drop_finish(store, job);
        for (uint32_t i = 0; i < job->parts_count; i++) {
            partition_done(store, job->parts[i].partition);
        }
        free(job->parts);
        free(job);
        return;
    }
    partition->jobs--;
    if (job->helper.run == run_sync) {
        sync_finish(store, job);
    } else if (job->helper.run == run_make) {
        partition->making = false;
        mill_store_made(store, partition, job->result);
    } else {
        read_finish(store, job);
    }
    free(job);
    partition_done(store, partition);
}

uint32_t mill_store_jobs_run(struct mill_store *store)
{
    struct mill_helper_job *helper;
    uint32_t work = 0;
    while (store->jobs > 0 && (helper = mill_helpers_take(store->helpers)) != NULL) {
        job_back(store, helper);
    }
    while (store->ended && mill_store_out_room(store)) {
        struct store_job *job = store->ended;
        store->ended = job->next;
        store->ended_last = store->ended ? store->ended_last : &store->ended;
        job_finish(store, job);
        work++;
    }
    while (!mill_store_link_empty(&store->paused) && !mill_store_cached_full(store) &&
           mill_store_out_room(store)) {
        struct store_partition *partition =
            MILL_CONTAINER_OF(store->paused.next, struct store_partition, paused);
        mill_store_link_remove(&partition->paused);
        mill_store_write_go_on(store, partition);
        work++;
    }
    mill_store_cached_run(store);
    return work;
}

void mill_store_jobs_end(struct mill_store *store)
{
    while (store->jobs > 0) {
        job_back(store, mill_helpers_wait(store->helpers));
    }
    while (store->ended) {
        struct store_job *job = store->ended;
        store->ended = job->next;
        if (job->helper.run == run_drop) {
            drop_finish(store, job);
        } else {
            job->partition->jobs--;
        }
        if (job->helper.run == run_sync) {
            sync_end(store, job);
        }
        free(job->parts);
        free(job);
    }
    store->ended_last = &store->ended;
}

int mill_store_jobs_init(struct mill_store *store)
{
    store->ended_last = &store->ended;
    mill_store_link_init(&store->cached);
    mill_store_link_init(&store->paused);
    store->cursors = calloc(CURSORS, sizeof(store->cursors[0]));
    if (!store->cursors) {
        return -ENOMEM;
    }
    return mill_helpers_create(store->config.helpers, &store->config.bell, &store->helpers);
}

void mill_store_jobs_fini(struct mill_store *store)
{
    mill_helpers_destroy(store->helpers);
    free(store->cursors);
}
