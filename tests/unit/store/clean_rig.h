/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of compaction share: keyed batches in any codec, a plain model of what a compacted
 * log must still hold, and a table of file calls that stops working at a chosen call, as if the
 * process were killed there. */
#ifndef MILL_TESTS_UNIT_STORE_CLEAN_RIG_H
#define MILL_TESTS_UNIT_STORE_CLEAN_RIG_H

#include "tests/unit/test.h"

#include <errno.h>

#include "base/random.h"
#include "dataplane/store/store_types.h"
#include "tests/sim/disk_model.h"
#include "tests/unit/log/fixture.h"
#include "tests/unit/store/pack.h"

enum {
    RIG_KEYS = 12,
    RIG_RECORDS_MAX = 20000,
    RIG_PLAIN_BYTES = 32 << 10,
    RIG_BACKOFF_MS = 15000,
};

/* One appended record, by offset. */
struct rig_record {
    int32_t key;   /* -1: no key, or the offset was never assigned to data */
    int32_t value; /* -1 a tombstone */
    int64_t timestamp;
};

struct rig {
    struct fixture f;
    struct disk_model *disk;
    struct mill_file_calls calls; /* the disk's, until calls_left is used up */
    uint64_t calls_left;
    uint64_t calls_made;
    const char *fault_from; /* the next rename of a file whose name ends so fails once; NULL none */
    int fault;              /* with this */
    const char *fault_open; /* each open of a file whose name ends so fails; NULL none */
    bool fault_sync;        /* the rename goes well, and the next sync of a directory fails */
    bool fault_next;
    struct mill_log_settings settings;
    struct mill_partition *partition;
    struct mill_random random;
    struct maker *m;
    struct rig_record appended[RIG_RECORDS_MAX];
    int64_t end_offset;
    bool there[RIG_RECORDS_MAX]; /* by the last reading: what survives */
    uint32_t there_count;
    uint32_t empty_batches;
    uint32_t horizons;
    int64_t read_end; /* after the last batch */
};

/* --- file calls ---------------------------------------------------------------------------------
 */

static inline bool rig_goes(struct rig *rig)
{
    rig->calls_made++;
    if (rig->calls_left == 0) {
        return false;
    }
    rig->calls_left -= rig->calls_left == UINT64_MAX ? 0 : 1;
    return true;
}

#define RIG_CALL(rig, name, ...)                                                                   \
    (rig_goes(rig) ? disk_model_calls((rig)->disk)                                                 \
                         ->name(disk_model_calls((rig)->disk)->context, __VA_ARGS__)               \
                   : -EIO)

static inline int rig_open_file(void *context, const char *path, uint32_t flags)
{
    const struct rig *rig = context;
    if (rig->fault_open && mill_store_name_ends(path, rig->fault_open)) {
        return rig->fault;
    }
    return RIG_CALL((struct rig *)context, open, path, flags);
}
static inline int rig_close_file(void *context, int file)
{
    struct rig *rig = context; /* a killed process closes, too */
    const struct mill_file_calls *calls = disk_model_calls(rig->disk);
    return calls->close(calls->context, file);
}
static inline ssize_t rig_read_at(void *context, int file, void *to, size_t size, uint64_t pos)
{
    return RIG_CALL((struct rig *)context, read_at, file, to, size, pos);
}
static inline ssize_t rig_write_at(void *context, int file, const struct iovec *parts, int count,
                                   uint64_t pos)
{
    return RIG_CALL((struct rig *)context, write_at, file, parts, count, pos);
}
static inline int64_t rig_size(void *context, int file)
{
    return RIG_CALL((struct rig *)context, size, file);
}
static inline int rig_truncate(void *context, int file, uint64_t size)
{
    return RIG_CALL((struct rig *)context, truncate, file, size);
}
static inline int rig_sync(void *context, int file)
{
    return RIG_CALL((struct rig *)context, sync, file);
}
static inline int rig_sync_dir(void *context, const char *path)
{
    struct rig *rig = context;
    if (rig->fault_next) {
        rig->fault_next = false;
        return rig->fault;
    }
    return RIG_CALL((struct rig *)context, sync_dir, path);
}
static inline int rig_sync_all(void *context, const char *path)
{
    return RIG_CALL((struct rig *)context, sync_all, path);
}
static inline int rig_make_dir(void *context, const char *path)
{
    return RIG_CALL((struct rig *)context, make_dir, path);
}
static inline int rig_remove_file(void *context, const char *path)
{
    return RIG_CALL((struct rig *)context, remove_file, path);
}
static inline int rig_remove_dir(void *context, const char *path)
{
    return RIG_CALL((struct rig *)context, remove_dir, path);
}
static inline int rig_rename(void *context, const char *from, const char *to)
{
    struct rig *rig = context;
    if (rig->fault_from && mill_store_name_ends(from, rig->fault_from)) {
        rig->fault_from = NULL;
        rig->fault_next = rig->fault_sync;
        if (!rig->fault_sync) {
            return rig->fault;
        }
    }
    return RIG_CALL((struct rig *)context, rename, from, to);
}
static inline int rig_list(void *context, const char *path, int (*each)(void *, const char *),
                           void *each_context)
{
    return RIG_CALL((struct rig *)context, list, path, each, each_context);
}

/* --- life ---------------------------------------------------------------------------------------
 */

static inline void rig_serve(struct rig *rig)
{
    fixture_open(&rig->f);
    rig->partition = fixture_partition(&rig->f, 0, &rig->settings);
}

/* A compacted topic of small segments; nothing is dirty enough by itself unless a test says so. */
static inline struct rig *rig_new(uint64_t seed)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    MILL_ASSERT(rig != NULL);
    rig->disk = disk_model_new(seed);
    assert_non_null(rig->disk);
    rig->calls_left = UINT64_MAX;
    rig->calls = (struct mill_file_calls){
        .context = rig,
        .open = rig_open_file,
        .close = rig_close_file,
        .read_at = rig_read_at,
        .write_at = rig_write_at,
        .size = rig_size,
        .truncate = rig_truncate,
        .sync = rig_sync,
        .sync_dir = rig_sync_dir,
        .sync_all = rig_sync_all,
        .make_dir = rig_make_dir,
        .remove_file = rig_remove_file,
        .remove_dir = rig_remove_dir,
        .rename = rig_rename,
        .list = rig_list,
    };
    fixture_make(&rig->f, &rig->calls);
    rig->f.log_dirs[0] = "/disk/logs";
    rig->f.options.size_bytes = 8 << 20; /* made anew at each kill */
    rig->f.options.extent_bytes_max = 1 << 20;
    rig->random.state = seed;
    rig->m = maker_new();
    rig->settings = fixture_settings();
    rig->settings.compact = true;
    rig->settings.segment_bytes = 6000;
    rig->settings.index_interval_bytes = 500;
    rig->settings.min_cleanable_ppm = 0;
    rig->settings.retention_ms = -1;
    rig->settings.retention_bytes = -1;
    rig->settings.file_delete_delay_ms = 1000;
    for (uint32_t i = 0; i < RIG_RECORDS_MAX; i++) {
        rig->appended[i].key = -1;
    }
    return rig;
}

static inline void rig_free(struct rig *rig)
{
    fixture_free(&rig->f);
    disk_model_free(rig->disk);
    free(rig->m);
    free(rig);
}

static inline void rig_end(struct rig *rig)
{
    fixture_close(&rig->f, false);
    rig_free(rig);
}

/* kill: what the store was not asked for yet is in extents only, and written at the next start. */
static inline void rig_restart(struct rig *rig, bool kill)
{
    fixture_close(&rig->f, !kill);
    rig_serve(rig);
}

static inline struct store_partition *rig_stored(const struct rig *rig)
{
    return rig->f.store->partitions[0];
}

/* As the log was told. */
static inline const struct mill_log_clean_stats *rig_stats(const struct rig *rig)
{
    return &mill_log_stats(rig->f.log)->clean;
}

/* Where the active segment begins: nothing from there on is ever compacted. */
static inline int64_t rig_active(const struct rig *rig)
{
    const struct store_partition *stored = rig_stored(rig);
    return stored->segments[stored->segments_count - 1].base_offset;
}

/* --- writing ------------------------------------------------------------------------------------
 */

/* Puts one record behind what is at to. ret: its size. */
static inline uint32_t rig_record_put(uint8_t *to, int32_t index, int64_t delta, int32_t key,
                                      int32_t value)
{
    uint8_t body[256];
    uint32_t size = 0;
    body[size++] = 0;
    size += put_varlong(body + size, delta);
    size += put_varlong(body + size, index);
    char text[64];
    size += put_varlong(body + size, snprintf(text, sizeof(text), "key-%d", key));
    memcpy(body + size, text, strlen(text));
    size += (uint32_t)strlen(text);
    if (value < 0) {
        size += put_varlong(body + size, -1);
    } else {
        size += put_varlong(body + size, snprintf(text, sizeof(text), "value-%d-and-more", value));
        memcpy(body + size, text, strlen(text));
        size += (uint32_t)strlen(text);
    }
    size += put_varlong(body + size, 0);
    uint32_t head = put_varlong(to, size);
    memcpy(to + head, body, size);
    return head + size;
}

static inline size_t rig_pack(enum mill_codec codec, uint8_t *to, size_t room, const uint8_t *from,
                              size_t size)
{
    switch (codec) {
    case MILL_CODEC_GZIP:
        return pack_gzip(to, room, from, size);
    case MILL_CODEC_SNAPPY:
        return pack_xerial(to, room, from, size);
    case MILL_CODEC_LZ4:
        return pack_lz4(to, room, from, size);
    case MILL_CODEC_ZSTD:
        return pack_zstd(to, room, from, size);
    default:
        return pack_none(to, room, from, size);
    }
}

struct rig_entry {
    int32_t key;
    int32_t value;
};

/* Appends what lies in the maker, through the look inside where the topic wants one. */
static inline struct mill_append_result rig_append_made(struct rig *rig)
{
    struct mill_append_result result = {0};
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    struct mill_buf buf = {.data = rig->m->bytes, .size_bytes = rig->m->size};
    struct mill_append append = {
        .records = {.buf = &buf, .left_bytes = rig->m->size},
        .size_bytes = rig->m->size,
        .api_version = 9,
        .acks = -1,
    };
    int r = -EAGAIN;
    for (uint32_t i = 0; (r == -EAGAIN || r == -EINPROGRESS) && i < 100; i++) {
        r = mill_log_append(rig->partition, &append, rig->f.now, &watch, &result);
        if (r != 0) {
            fixture_step(&rig->f, 0);
        }
    }
    assert_int_equal(r, 0);
    return result;
}

/* Appends a batch of these entries; times are the wall clock's. */
static inline void rig_append(struct rig *rig, const struct rig_entry *entries, int32_t count,
                              enum mill_codec codec)
{
    static uint8_t plain[RIG_PLAIN_BYTES];
    uint32_t size = 0;
    struct maker *m = rig->m;
    m->attributes = (int16_t)codec;
    m->timestamp = rig->f.now.wall_ms;
    maker_build(m, count); /* its header; the records are ours */
    for (int32_t i = 0; i < count; i++) {
        assert_true(size + 256 < sizeof(plain));
        size += rig_record_put(plain + size, i, i, entries[i].key, entries[i].value);
    }
    size_t made = rig_pack(codec, m->bytes + MILL_BATCH_HEADER_BYTES,
                           sizeof(m->bytes) - MILL_BATCH_HEADER_BYTES, plain, size);
    m->size = MILL_BATCH_HEADER_BYTES + (uint32_t)made;
    mill_store_be32(m->bytes + 8, m->size - 12);
    maker_sum(m);
    struct mill_append_result result = rig_append_made(rig);
    assert_int_equal(result.error, MILL_KERR_NONE);
    if (result.duplicate) {
        return;
    }
    assert_int_equal(result.base_offset, rig->end_offset);
    for (int32_t i = 0; i < count; i++) {
        rig->appended[rig->end_offset++] = (struct rig_record){
            .key = entries[i].key, .value = entries[i].value, .timestamp = m->timestamp + i};
    }
    if (m->producer_id >= 0) {
        m->sequence = (int32_t)(((uint32_t)m->sequence + (uint32_t)count) & INT32_MAX);
    }
}

static inline void rig_append_one(struct rig *rig, int32_t key, int32_t value)
{
    struct rig_entry entry = {key, value};
    rig_append(rig, &entry, 1, MILL_CODEC_NONE);
}

/* Several segments of one key after the other. */
static inline void rig_append_rounds(struct rig *rig, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        for (int32_t key = 0; key < RIG_KEYS; key++) {
            rig_append_one(rig, key, (int32_t)(i * 100) + key);
        }
        fixture_settle(&rig->f);
    }
}

/* A batch of up to 20 records of random keys. */
static inline void rig_append_random(struct rig *rig)
{
    struct rig_entry entries[20];
    int32_t count = 1 + (int32_t)mill_random_below(&rig->random, MILL_COUNT_OF(entries));
    for (int32_t i = 0; i < count; i++) {
        entries[i].key = (int32_t)mill_random_below(&rig->random, RIG_KEYS);
        entries[i].value = mill_random_below(&rig->random, 4) == 0
                               ? -1
                               : (int32_t)mill_random_below(&rig->random, 1000000);
    }
    rig_append(rig, entries, count,
               (enum mill_codec)mill_random_below(&rig->random, MILL_CODEC_COUNT));
}

/* Lets compaction come to its end: until it has looked and found nothing. */
static inline void rig_clean(struct rig *rig)
{
    fixture_settle(&rig->f);
    fixture_step(&rig->f, RIG_BACKOFF_MS);
    fixture_settle(&rig->f);
}

/* Times pass, so that what is written is no longer in memory. */
static inline void rig_evict(struct rig *rig)
{
    fixture_settle(&rig->f);
    for (uint32_t i = 0; i < 8; i++) {
        fixture_step(&rig->f, 1000);
    }
}

/* --- reading ------------------------------------------------------------------------------------
 */

static inline int32_t rig_number_of(const struct mill_cursor *at, int32_t length,
                                    const char *before)
{
    char text[64] = "";
    if (length < 0) {
        return -1;
    }
    assert_true(length < (int32_t)sizeof(text));
    memcpy(text, at->buf->data + at->pos_bytes, (size_t)length);
    assert_int_equal(strncmp(text, before, strlen(before)), 0);
    return atoi(text + strlen(before));
}

/* Takes one batch that was read: it is what was appended, as far as it is there. */
static inline void rig_take_batch(struct rig *rig, const uint8_t *bytes,
                                  const struct mill_batch *batch)
{
    uint32_t size = mill_batch_size_bytes(batch) - MILL_BATCH_HEADER_BYTES;
    const uint8_t *records = bytes + MILL_BATCH_HEADER_BYTES;
    uint8_t *plain = NULL;
    int64_t made = size;
    int64_t greatest = -1;
    assert_int_equal(mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, size + MILL_BATCH_HEADER_BYTES - 21),
                     batch->crc);
    if (mill_batch_codec(batch) != MILL_CODEC_NONE) {
        made = mill_unpack(mill_batch_codec(batch), records, size, 1 << 20, &plain);
        assert_true(made >= 0);
        records = plain;
    }
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, records, (uint32_t)made);
    for (int32_t i = 0; i < batch->records_count; i++) {
        struct mill_record record;
        assert_int_equal(mill_record_next(&at, &record), 0);
        int64_t offset = batch->base_offset + record.offset_delta;
        assert_in_range(offset, 0, rig->end_offset - 1);
        const struct rig_record *was = &rig->appended[offset];
        assert_int_equal(rig_number_of(&record.key, record.key_length, "key-"), was->key);
        assert_int_equal(rig_number_of(&record.value, record.value_length, "value-"), was->value);
        int64_t timestamp = batch->base_timestamp + record.timestamp_delta;
        assert_int_equal(timestamp, was->timestamp);
        greatest = MILL_MAX(greatest, timestamp);
        rig->there[offset] = true;
        rig->there_count++;
    }
    assert_int_equal(at.left_bytes, 0);
    free(plain);
    rig->empty_batches += batch->records_count == 0 ? 1 : 0;
    rig->horizons += batch->attributes & MILL_BATCH_DELETE_HORIZON ? 1 : 0;
    if (batch->records_count > 0) {
        assert_int_equal(batch->max_timestamp, greatest);
    }
}

/* Reads the whole log. */
static inline void rig_read(struct rig *rig)
{
    static struct mill_read_result got;
    memset(rig->there, 0, sizeof(rig->there));
    rig->there_count = rig->empty_batches = rig->horizons = 0;
    rig->read_end = mill_partition_start(rig->partition);
    while (rig->read_end < rig->end_offset) {
        struct mill_read read = {.offset = rig->read_end,
                                 .bytes_max = 1 << 20,
                                 .first_whole = true,
                                 .current_epoch = -1,
                                 .last_epoch = -1,
                                 .refs_max = 8};
        fixture_read(&rig->f, rig->partition, &read, &got);
        assert_int_equal(got.error, MILL_KERR_NONE);
        if (got.refs_count == 0) {
            break;
        }
        for (uint32_t i = 0; i < got.refs_count; i++) {
            const uint8_t *at = mill_ref_data(mill_arena_base(rig->f.arena), &got.refs[i]);
            const uint8_t *end = at + got.refs[i].size_bytes;
            while (at < end) {
                struct mill_batch batch;
                mill_batch_read(at, &batch);
                if (mill_batch_last_offset(&batch) >= rig->read_end) {
                    rig_take_batch(rig, at, &batch);
                    rig->read_end = mill_batch_last_offset(&batch) + 1;
                }
                at += mill_batch_size_bytes(&batch);
            }
        }
    }
}

/* Every key ends with its last record, or with nothing where that was a tombstone; at or above
 * dirty_offset all is there. Returns with what was read. */
static inline void rig_check(struct rig *rig, int64_t dirty_offset)
{
    int64_t last[RIG_KEYS];
    int64_t last_there[RIG_KEYS];
    rig_read(rig);
    int64_t start = mill_partition_start(rig->partition);
    for (int32_t key = 0; key < RIG_KEYS; key++) {
        last[key] = last_there[key] = -1;
    }
    for (int64_t offset = start; offset < rig->end_offset; offset++) {
        const struct rig_record *record = &rig->appended[offset];
        if (record->key < 0) {
            continue;
        }
        last[record->key] = offset;
        last_there[record->key] = rig->there[offset] ? offset : last_there[record->key];
        if (offset >= dirty_offset && !rig->there[offset]) {
            fail_msg("offset %lld is missing, dirty from %lld", (long long)offset,
                     (long long)dirty_offset);
        }
    }
    for (int32_t key = 0; key < RIG_KEYS; key++) {
        bool deleted = last[key] >= 0 && rig->appended[last[key]].value < 0;
        if (last_there[key] != last[key] && !(deleted && last_there[key] == -1)) {
            fail_msg("key %d ends at %lld in place of %lld", key, (long long)last_there[key],
                     (long long)last[key]);
        }
    }
}

/* No key has two records below the offset. */
static inline void rig_check_once(struct rig *rig, int64_t below)
{
    uint32_t seen[RIG_KEYS] = {0};
    for (int64_t offset = 0; offset < below; offset++) {
        if (rig->there[offset]) {
            assert_int_equal(seen[rig->appended[offset].key]++, 0);
        }
    }
}

static inline uint32_t rig_files(struct rig *rig, const char *end)
{
    uint32_t count = 0;
    for (int64_t base = 0; base <= rig->end_offset; base++) {
        char path[200];
        uint64_t size;
        snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.%s", (long long)base, end);
        count += disk_model_bytes(rig->disk, path, &size) != NULL;
    }
    return count;
}

#endif
