/* SPDX-License-Identifier: Apache-2.0 */
/* A log and its store in one thread, over an arena on tmpfs and any table of file calls, stepped on
 * virtual time; and a maker of record batches that knows nothing of the code under test. */
#ifndef MILL_TESTS_UNIT_LOG_FIXTURE_H
#define MILL_TESTS_UNIT_LOG_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "dataplane/log/log.h"
#include "dataplane/log/store_link.h"
#include "dataplane/store/store.h"

enum {
    FIXTURE_RING_BYTES = 64 << 10,
    FIXTURE_SAID_MAX = 16,
};

struct fixture {
    char dir[64]; /* arena */
    char logs[80];
    const char *log_dirs[1];
    struct mill_arena_options options;
    struct mill_log_dirs *dirs;
    struct mill_arena *arena;
    struct mill_extents *extents;
    struct mill_loans loans;
    void *memory;
    struct mill_bell_shared bells[2];
    struct mill_bell store_bell;
    struct mill_bell core_bell;
    const struct mill_file_calls *files;
    struct mill_log_limits limits;
    uint32_t open_files_max;
    uint64_t clean_map_bytes;
    uint64_t clean_rate;
    const struct mill_store_tuning *tuning;
    struct mill_clean_slots *clean_slots;
    struct mill_hist *flush_times;
    uint32_t helpers;
    struct mill_log *log;
    struct mill_store *store;
    bool with_loaders; /* partitions are loaded by threads: the files must be the kernel's */
    struct mill_loaders *loaders;
    struct mill_now now;
    struct mill_report report;
    struct mill_takeup_result takeup;
    char said[FIXTURE_SAID_MAX][64]; /* ids of what the take-up told */
    uint32_t said_count;
    uint32_t fired;
    uint32_t fired_changed;
    uint32_t gone;
    uint32_t failed;
};

static inline void fixture_state(void *context, struct mill_partition *partition, bool gone)
{
    struct fixture *f = context;
    f->gone += gone ? 1 : 0;
    f->failed += !gone && mill_partition_state_of(partition) == MILL_LOG_FAILED ? 1 : 0;
}

static inline void fixture_watch(void *context, struct mill_log_watch *watch)
{
    struct fixture *f = context;
    f->fired++;
    f->fired_changed += watch->reason == MILL_WATCH_CHANGED ? 1 : 0;
    *(bool *)watch->user = true;
}

static const struct mill_log_events fixture_events = {.state = fixture_state,
                                                      .watch = fixture_watch};

static inline void fixture_say(void *context, int level, const char *id, const char *text)
{
    struct fixture *f = context;
    MILL_UNUSED(level);
    MILL_UNUSED(text);
    if (f->said_count < FIXTURE_SAID_MAX) {
        snprintf(f->said[f->said_count++], sizeof(f->said[0]), "%s", id);
    }
}

static inline bool fixture_was_said(const struct fixture *f, const char *id)
{
    for (uint32_t i = 0; i < f->said_count; i++) {
        if (strcmp(f->said[i], id) == 0) {
            return true;
        }
    }
    return false;
}

/* Folders and defaults; nothing is open. files NULL: the kernel's, in a folder of its own. */
static inline void fixture_make(struct fixture *f, const struct mill_file_calls *files)
{
    memset(f, 0, sizeof(*f));
    snprintf(f->dir, sizeof(f->dir), "/dev/shm/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->logs, sizeof(f->logs), "%s/logs", f->dir);
    f->log_dirs[0] = f->logs;
    f->files = files ? files : &mill_file_calls_posix;
    f->options = (struct mill_arena_options){
        .dir = f->dir,
        .size_bytes = 32 << 20,
        .nodes = 1,
        .cores = 1,
        .partitions_max = 64,
        .extent_bytes_max = 4 << 20,
    };
    f->limits = (struct mill_log_limits){
        .partitions_max = 32,
        .producers_max = 64,
        .transactions_max = 64,
        .aborted_max = 16,
        .watches_max = 64,
        .dirty_max_bytes = 8 << 20,
        .cold_max_bytes = 8 << 20,
        .producer_expiration_ms = 86400000,
    };
    f->open_files_max = 32;
    f->clean_map_bytes = 1 << 20;
    f->now = (struct mill_now){.mono_ns = 1000 * MILL_NS_PER_S, .wall_ms = 1700000000000};
    f->memory = aligned_alloc(128, mill_ring_bytes(FIXTURE_RING_BYTES) * 2 + 256);
    assert_non_null(f->memory);
    f->store_bell = (struct mill_bell){.shared = &f->bells[0], .fd = -1};
    f->core_bell = (struct mill_bell){.shared = &f->bells[1], .fd = -1};
}

static inline void fixture_must(struct fixture *f, int r)
{
    if (r != 0) {
        print_message("%s\n", f->report.text);
    }
    assert_int_equal(r, 0);
}

static inline int fixture_try_dirs(struct fixture *f)
{
    struct mill_log_dirs_options options = {.files = f->files,
                                            .paths = f->log_dirs,
                                            .count = 1,
                                            .node_id = 1,
                                            .cluster_id = "cluster-of-the-test",
                                            .say = fixture_say,
                                            .say_context = f};
    return mill_log_dirs_open(&options, &f->dirs, &f->report);
}

static inline void fixture_dirs_open(struct fixture *f)
{
    fixture_must(f, fixture_try_dirs(f));
}

/* Frees whatever is open, as a process that ends without a clean stop. */
static inline void fixture_abandon(struct fixture *f)
{
    mill_log_destroy(f->log);
    mill_store_abandon(f->store);
    mill_loaders_destroy(f->loaders);
    mill_log_dirs_abandon(f->dirs);
    mill_extents_destroy(f->extents);
    mill_loans_fini(&f->loans);
    mill_arena_close(f->arena, false);
    mill_store_kept_free(&f->takeup.kept);
    f->log = NULL;
    f->store = NULL;
    f->loaders = NULL;
    f->dirs = NULL;
    f->extents = NULL;
    f->arena = NULL;
}

/* Log and store over what is open. */
static inline int fixture_try_make(struct fixture *f)
{
    uint64_t bytes = (mill_ring_bytes(FIXTURE_RING_BYTES) + 127) / 128 * 128;
    struct mill_ring_shared *to = mill_ring_format(f->memory, FIXTURE_RING_BYTES);
    struct mill_ring_shared *from =
        mill_ring_format((uint8_t *)f->memory + bytes, FIXTURE_RING_BYTES);
    struct mill_log_config config = {
        .limits = f->limits,
        .extents = f->extents,
        .arena = f->arena,
        .loans = &f->loans,
        .store_bell = f->store_bell,
        .events = &fixture_events,
        .context = f,
    };
    int r = f->with_loaders ? mill_loaders_create(f->dirs, 2, &f->loaders, &f->report) : 0;
    if (r < 0) {
        return r;
    }
    struct mill_store_config store = {
        .tuning = f->tuning,
        .dirs = f->dirs,
        .loaders = f->loaders,
        .bell = f->store_bell,
        .arena = f->arena,
        .kept = &f->takeup.kept,
        .core_bell = f->core_bell,
        .open_files_max = f->open_files_max,
        .helpers = f->helpers,
        .cached_max_bytes = f->helpers > 0 ? 0 : 1 << 20,
        .producers_max = f->limits.producers_max,
        .transactions_max = f->limits.transactions_max,
        .producer_expiration_ms = f->limits.producer_expiration_ms,
        .checkpoint_interval_ms = 60000,
        .retention_check_ms = 300000,
        .clean_map_bytes = f->clean_map_bytes,
        .clean_bytes_per_second = f->clean_rate,
        .clean_backoff_ms = 15000,
        .clean_slots = f->clean_slots,
        .flush_times = f->flush_times,
        .clean_secret = {{9, 8, 7, 6, 5, 4, 3, 2, 1}},
    };
    fixture_must(f, mill_ring_attach_producer(&config.store_out, to, bytes));
    fixture_must(f, mill_ring_attach_consumer(&store.in, to, bytes));
    fixture_must(f, mill_ring_attach_producer(&store.out, from, bytes));
    fixture_must(f, mill_ring_attach_consumer(&config.store_in, from, bytes));
    r = mill_log_create(&config, &f->log);
    return r < 0 ? r : mill_store_create(&store, &f->store, &f->report);
}

/* Opens the arena, takes up, makes log and store. ret: 0; -errno, and all is freed again. */
static inline int fixture_try_open(struct fixture *f)
{
    bool taken = false;
    int r = mill_arena_open(&f->options, &f->arena, &taken, &f->report);
    r = r < 0 ? r : fixture_try_dirs(f);
    r = r < 0 ? r : mill_store_takeup(f->dirs, f->arena, taken, &f->takeup, &f->report);
    r = r < 0 ? r : mill_extents_create(f->arena, 0, -1, &f->extents);
    r = r < 0 ? r : mill_loans_init(&f->loans, mill_arena_units(f->arena), 64);
    if (r == 0) {
        mill_extents_check_loans(f->extents, &f->loans);
        r = fixture_try_make(f);
    }
    if (r < 0) {
        fixture_abandon(f);
    }
    return r;
}

static inline void fixture_open(struct fixture *f)
{
    fixture_must(f, fixture_try_open(f));
}

/* One turn of both, ms later. */
static inline uint32_t fixture_step(struct fixture *f, uint64_t ms)
{
    f->now.mono_ns += ms * MILL_NS_PER_MS;
    f->now.wall_ms += (int64_t)ms;
    uint32_t work = mill_log_step(f->log, f->now);
    work += mill_store_step(f->store, f->now);
    return work;
}

/* Steps until nobody finds work twice. */
static inline void fixture_settle(struct fixture *f)
{
    uint32_t idle = 0;
    for (uint32_t i = 0; i < 100000 && idle < 3; i++) {
        idle = fixture_step(f, 0) == 0 ? idle + 1 : 0;
        if (idle > 0 && f->helpers > 0) {
            usleep(5000); /* for what helpers have under way */
        }
    }
    assert_int_equal(idle, 3);
}

/* Ends log and store; remove: a clean stop that deletes the arena. Else as after a kill: what the
 * store was not asked for yet is in extents only. */
static inline void fixture_close(struct fixture *f, bool remove)
{
    if (!remove) {
        fixture_abandon(f);
        return;
    }
    mill_log_flush_all(f->log);
    fixture_settle(f);
    mill_log_destroy(f->log);
    f->log = NULL;
    assert_true(mill_store_close(f->store, f->now));
    f->store = NULL;
    mill_loaders_destroy(f->loaders);
    f->loaders = NULL;
    assert_int_equal(mill_log_dirs_close(f->dirs, true), 0);
    f->dirs = NULL;
    mill_extents_destroy(f->extents);
    f->extents = NULL;
    mill_loans_fini(&f->loans);
    mill_arena_close(f->arena, true);
    f->arena = NULL;
    fixture_abandon(f);
}

static inline void fixture_free(struct fixture *f)
{
    char command[128];
    free(f->memory);
    snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
}

static inline struct mill_log_settings fixture_settings(void)
{
    return (struct mill_log_settings){
        .max_message_bytes = 1048588,
        .timestamp_before_max_ms = INT64_MAX,
        .timestamp_after_max_ms = 3600000,
        .flush_messages = INT64_MAX,
        .flush_ms = INT64_MAX,
        .segment_bytes = 1 << 30,
        .segment_ms = 604800000,
        .index_interval_bytes = 4096,
        .segment_index_bytes = 10 << 20,
        .min_cleanable_ppm = 500000,
        .delete_retention_ms = 86400000,
        .max_compaction_lag_ms = INT64_MAX,
        .compression = 255,
    };
}

static inline struct mill_partition *fixture_partition(struct fixture *f, int32_t index,
                                                       const struct mill_log_settings *settings)
{
    struct mill_uuid id = {{7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
    struct mill_partition *partition = NULL;
    fixture_must(f, mill_log_open(f->log, &id, "topic-a", index, 3, settings, &partition));
    fixture_settle(f);
    for (uint32_t k = 0;
         k < 1000 && f->helpers > 0 && mill_partition_state_of(partition) == MILL_LOG_OPENING;
         k++) {
        fixture_settle(f);
    }
    assert_int_equal(mill_partition_state_of(partition), MILL_LOG_SERVING);
    return partition;
}

/* --- batches --------------------------------------------------------------------------------- */

struct maker {
    uint8_t bytes[64 << 10];
    uint32_t size;
    int64_t timestamp;   /* of the first record; each next is one later */
    int64_t producer_id; /* -1 none */
    int16_t epoch;
    int32_t sequence;
    int16_t attributes;
    uint32_t value_bytes; /* of each record */
    bool no_keys;
    uint8_t fill;
};

static inline uint32_t put_varlong(uint8_t *to, int64_t value)
{
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    uint32_t size = 0;
    while (zigzag >= 0x80) {
        to[size++] = (uint8_t)(zigzag | 0x80);
        zigzag >>= 7;
    }
    to[size++] = (uint8_t)zigzag;
    return size;
}

/* Sums what lies in bytes again, after a test changed a field. */
static inline void maker_sum(struct maker *m)
{
    mill_store_be32(m->bytes + MILL_BATCH_CRC_AT,
                    mill_crc32c(m->bytes + MILL_BATCH_SUMMED_AT, m->size - MILL_BATCH_SUMMED_AT));
}

static inline struct maker *maker_new(void)
{
    struct maker *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    m->timestamp = 1700000000000;
    m->producer_id = -1;
    m->epoch = -1;
    m->sequence = -1;
    m->value_bytes = 20;
    return m;
}

/* Builds a batch of count records. */
static inline void maker_build(struct maker *m, int32_t count)
{
    uint8_t *b = m->bytes;
    uint32_t at = MILL_BATCH_HEADER_BYTES;
    for (int32_t i = 0; i < count; i++) {
        uint8_t body[2048];
        uint32_t size = 0;
        body[size++] = 0;
        size += put_varlong(body + size, i);
        size += put_varlong(body + size, i);
        if (m->no_keys) {
            size += put_varlong(body + size, -1);
        } else {
            size += put_varlong(body + size, 3);
            memcpy(body + size, "key", 3);
            size += 3;
        }
        size += put_varlong(body + size, m->value_bytes);
        memset(body + size, m->fill + i, m->value_bytes);
        size += m->value_bytes;
        size += put_varlong(body + size, 0);
        at += put_varlong(b + at, size);
        memcpy(b + at, body, size);
        at += size;
    }
    m->size = at;
    mill_store_be64(b, 0);
    mill_store_be32(b + 8, at - 12);
    mill_store_be32(b + 12, UINT32_MAX);
    b[16] = 2;
    mill_store_be16(b + 21, (uint16_t)m->attributes);
    mill_store_be32(b + 23, (uint32_t)(count - 1));
    mill_store_be64(b + 27, (uint64_t)m->timestamp);
    mill_store_be64(b + 35, (uint64_t)(m->timestamp + count - 1));
    mill_store_be64(b + 43, (uint64_t)m->producer_id);
    mill_store_be16(b + 51, (uint16_t)m->epoch);
    mill_store_be32(b + 53, (uint32_t)m->sequence);
    mill_store_be32(b + 57, (uint32_t)count);
    maker_sum(m);
}

static inline int maker_append(struct fixture *f, struct mill_partition *partition,
                               const struct maker *m, struct mill_append_result *ret)
{
    /* In two buffers, so that borders are crossed. */
    struct mill_buf second = {.data = (uint8_t *)(uintptr_t)m->bytes + 33,
                              .size_bytes = m->size > 33 ? m->size - 33 : 0};
    struct mill_buf first = {.next = &second,
                             .data = (uint8_t *)(uintptr_t)m->bytes,
                             .size_bytes = MILL_MIN(m->size, 33u)};
    struct mill_append append = {
        .records = {.buf = &first, .left_bytes = m->size},
        .size_bytes = m->size,
        .api_version = 9,
        .acks = -1,
    };
    return mill_log_append(partition, &append, f->now, NULL, ret);
}

static inline struct mill_append_result
maker_must(struct fixture *f, struct mill_partition *partition, const struct maker *m)
{
    struct mill_append_result result;
    int r = maker_append(f, partition, m, &result);
    for (uint32_t i = 0; r == -EAGAIN && i < 100; i++) {
        fixture_settle(f);
        r = maker_append(f, partition, m, &result);
    }
    assert_int_equal(r, 0);
    if (result.error != MILL_KERR_NONE) {
        print_message("%s\n", result.message);
    }
    assert_int_equal(result.error, MILL_KERR_NONE);
    return result;
}

/* Reads, waiting for cold data. */
static inline void fixture_read(struct fixture *f, struct mill_partition *partition,
                                const struct mill_read *read, struct mill_read_result *ret)
{
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    for (uint32_t i = 0; i < 20; i++) {
        int r = mill_log_read(partition, read, &watch, ret);
        if (r == 0) {
            return;
        }
        fixture_settle(f);
        for (uint32_t k = 0; k < 1000 && f->helpers > 0 && r == -EINPROGRESS && !fired; k++) {
            fixture_settle(f); /* a helper may be slow */
        }
        assert_true(r == -EAGAIN || fired);
        fired = false;
    }
    fail_msg("no data after twenty reads");
}

#endif
