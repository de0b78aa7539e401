/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever was appended, trimmed, killed, cut off by a power loss or damaged in between, the
 * last stable offset, the aborted transactions that a reader is told, and every byte of .txnindex
 * files are what the batches in the log say. Method: random transactions of several producers over
 * the disk model, with small segments and a small table of aborted ones, beside a plain list of
 * what was appended; each expectation is computed from that list alone. */
#include "tests/unit/test.h"

#include <errno.h>

#include "base/random.h"
#include "dataplane/store/store_types.h"
#include "tests/sim/disk_model.h"
#include "tests/unit/log/txn_maker.h"

enum {
    PRODUCERS = 6,
    EVENTS_MAX = 6000,
    ROUNDS = 60,
    ENTRY_BYTES = 34,
    SEEDS = 4,
};

enum kind { PLAIN, DATA, COMMIT, ABORT };

struct event {
    int64_t base;
    int32_t count;
    int64_t id;
    enum kind kind;
};

struct ended {
    int64_t id;
    int64_t first;
    int64_t last;
    int64_t stable; /* after it */
};

static struct fixture f;
static struct disk_model *disk;
static struct maker *m;
static struct mill_random random_;
static struct mill_partition *partition;
static struct event events[EVENTS_MAX];
static uint32_t events_count;
static struct ended aborted[EVENTS_MAX];
static uint32_t aborted_count;
static int64_t open_first[PRODUCERS]; /* -1 none */
static int32_t sequences[PRODUCERS];
static struct mill_read_result got;
static struct txn_read seen;

static struct mill_log_settings settings_of_test(void)
{
    struct mill_log_settings settings = fixture_settings();
    settings.segment_bytes = 20000;
    return settings;
}

/* --- the model ------------------------------------------------------------------------------- */

static int64_t first_open(void)
{
    int64_t first = -1;
    for (int i = 0; i < PRODUCERS; i++) {
        if (open_first[i] >= 0 && (first < 0 || open_first[i] < first)) {
            first = open_first[i];
        }
    }
    return first;
}

/* Goes through all events anew. */
static void model_run(void)
{
    aborted_count = 0;
    for (int i = 0; i < PRODUCERS; i++) {
        open_first[i] = -1;
        sequences[i] = 0;
    }
    for (uint32_t i = 0; i < events_count; i++) {
        const struct event *event = &events[i];
        if (event->kind == DATA) {
            sequences[event->id] += event->count;
            open_first[event->id] = open_first[event->id] < 0 ? event->base : open_first[event->id];
        } else if (event->kind != PLAIN && open_first[event->id] >= 0) {
            int64_t first = open_first[event->id];
            open_first[event->id] = -1;
            if (event->kind == ABORT) {
                int64_t stable = first_open();
                aborted[aborted_count++] = (struct ended){event->id, first, event->base,
                                                          stable < 0 ? event->base + 1 : stable};
            }
        }
    }
}

static int64_t model_end(void)
{
    return events_count == 0 ? 0 : events[events_count - 1].base + events[events_count - 1].count;
}

static int64_t model_stable(void)
{
    int64_t first = first_open();
    int64_t stable = first < 0 ? model_end() : first;
    return MILL_MAX(stable, mill_partition_start(partition));
}

static void event_add(int64_t base, int32_t count, int64_t id, enum kind kind)
{
    assert_true(events_count < EVENTS_MAX);
    assert_int_equal(base, model_end());
    events[events_count++] = (struct event){base, count, id, kind};
    model_run();
}

/* --- what is done ----------------------------------------------------------------------------- */

static void write_data(int64_t id)
{
    int32_t count = 1 + (int32_t)mill_random_below(&random_, 3);
    m->value_bytes = 10 + mill_random_below(&random_, 1000);
    struct mill_append_result result =
        txn_write(&f, partition, m, 100 + id, 0, sequences[id], count, true);
    assert_int_equal(result.error, 0);
    event_add(result.base_offset, count, id, DATA);
}

static void write_plain(void)
{
    m->producer_id = -1;
    m->epoch = -1;
    m->sequence = -1;
    m->attributes = 0;
    maker_build(m, 2);
    event_add(maker_must(&f, partition, m).base_offset, 2, -1, PLAIN);
}

static void write_marker(int64_t id)
{
    bool commit = mill_random_below(&random_, 3) == 0;
    struct mill_append_result result = txn_end(&f, partition, 100 + id, 0, commit, 7);
    assert_int_equal(result.error, 0);
    event_add(result.base_offset, 1, id, commit ? COMMIT : ABORT);
}

static void work(uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        uint32_t what = mill_random_below(&random_, 100);
        int64_t id = mill_random_below(&random_, PRODUCERS);
        if (what < 55) {
            write_data(id);
        } else if (what < 65) {
            write_plain();
        } else if (what < 90) {
            write_marker(id);
        } else if (what < 98) {
            fixture_step(&f, 1);
        } else {
            fixture_settle(&f);
            fixture_step(&f, 4000); /* what is written leaves memory */
            fixture_step(&f, 4000);
        }
    }
}

/* --- what is checked -------------------------------------------------------------------------- */

static void check_read(int64_t offset)
{
    txn_read(&f, partition, offset, 500 + mill_random_below(&random_, 20000), &got, &seen);
    assert_int_equal(got.error, 0);
    assert_int_equal(got.stable_offset, model_stable());
    assert_true(seen.data_end <= MILL_MAX(offset, model_stable()));
    assert_true(offset >= model_stable() || seen.data_end > offset);
    uint32_t at = 0;
    for (uint32_t i = 0; i < aborted_count && seen.data_end > offset; i++) {
        if (aborted[i].last < offset || aborted[i].first >= seen.data_end) {
            continue;
        }
        assert_true(at < seen.aborted_count);
        assert_int_equal(seen.aborted[at][0], 100 + aborted[i].id);
        assert_int_equal(seen.aborted[at][1], aborted[i].first);
        at++;
    }
    assert_int_equal(at, seen.aborted_count);
}

static void check(uint32_t reads)
{
    int64_t start = mill_partition_start(partition);
    int64_t end = mill_partition_end(partition);
    assert_int_equal(end, model_end());
    assert_int_equal(mill_partition_stable(partition), model_stable());
    for (uint32_t i = 0; i < reads && end > start; i++) {
        check_read(start + (int64_t)mill_random_below(&random_, (uint32_t)(end - start)));
    }
}

/* Every .txnindex, byte by byte. ret: entries. */
static uint32_t check_files(void)
{
    uint32_t entries = 0;
    static int64_t bases[1000];
    uint32_t count = 0;
    uint64_t size;
    char path[200];
    for (int64_t offset = 0; offset <= model_end(); offset++) {
        snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.log", (long long)offset);
        if (disk_model_bytes(disk, path, &size)) {
            bases[count++] = offset;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        int64_t next = i + 1 < count ? bases[i + 1] : INT64_MAX;
        snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.txnindex", (long long)bases[i]);
        const uint8_t *bytes = disk_model_bytes(disk, path, &size);
        uint32_t here = 0;
        for (uint32_t k = 0; k < aborted_count; k++) {
            if (aborted[k].last < bases[i] || aborted[k].last >= next) {
                continue;
            }
            assert_non_null(bytes);
            assert_true((here + 1) * ENTRY_BYTES <= size);
            const uint8_t *at = bytes + here++ * ENTRY_BYTES;
            assert_int_equal(mill_load_be16(at), 0);
            assert_int_equal(mill_load_be64(at + 2), 100 + aborted[k].id);
            assert_int_equal(mill_load_be64(at + 10), aborted[k].first);
            assert_int_equal(mill_load_be64(at + 18), aborted[k].last);
            assert_int_equal(mill_load_be64(at + 26), aborted[k].stable);
        }
        assert_true(here > 0 || !bytes); /* none is made for nothing */
        assert_true(!bytes || here * ENTRY_BYTES == size);
        entries += here;
    }
    return entries;
}

/* --- ends and starts ---------------------------------------------------------------------------
 */

static void open_again(void)
{
    struct mill_log_settings settings = settings_of_test();
    fixture_open(&f);
    partition = fixture_partition(&f, 0, &settings);
}

/* The machine loses its power: unsynced bytes are gone at random, memory too. */
static void cut_power(void)
{
    disk_model_crash(disk);
    disk_model_faults(disk)->write_error = -EIO;
    fixture_close(&f, false);
    fixture_must(&f, mill_arena_discard(f.dir, &f.report));
    disk_model_faults(disk)->write_error = 0;
    open_again();
    while (events_count > 0 && model_end() > mill_partition_end(partition)) {
        events_count--;
    }
    model_run();
}

/* Killed while the disk is full: what the files lack waits in memory, and comes to them later. */
static void kill_on_a_full_disk(void)
{
    fixture_settle(&f);
    disk_model_faults(disk)->space_bytes = mill_random_below(&random_, 3000);
    for (int i = 0; i < 12; i++) { /* the store does not see them */
        int64_t id = mill_random_below(&random_, PRODUCERS);
        write_data(id);
        if (i % 2 == 0) {
            write_marker(id);
        }
    }
    fixture_close(&f, false);
    open_again();
    check(20);
    disk_model_faults(disk)->space_bytes = UINT64_MAX;
    fixture_step(&f, 1000);
    fixture_settle(&f);
}

/* Damages one .txnindex: removed, cut within an entry, or its last entry made nonsense. */
static void damage_file(void)
{
    char path[200];
    uint64_t size = 0;
    const struct mill_file_calls *calls = disk_model_calls(disk);
    for (int tries = 0; tries < 200 && size == 0; tries++) {
        int64_t offset = (int64_t)mill_random_below(&random_, (uint32_t)model_end() + 1);
        for (; offset >= 0 && size == 0; offset--) {
            snprintf(path, sizeof(path), "/disk/logs/topic-a-0/%020lld.txnindex",
                     (long long)offset);
            size = disk_model_bytes(disk, path, &size) ? size : 0;
        }
    }
    if (size == 0) {
        return;
    }
    int file = calls->open(disk, path, MILL_FILE_WRITE);
    if (mill_random_below(&random_, 2) == 0) {
        assert_int_equal(calls->truncate(disk, file, size - 5), 0);
    } else {
        uint8_t nonsense[ENTRY_BYTES];
        memset(nonsense, 0xee, sizeof(nonsense));
        struct iovec part = {.iov_base = nonsense, .iov_len = sizeof(nonsense)};
        assert_int_equal(calls->write_at(disk, file, &part, 1, size - ENTRY_BYTES), ENTRY_BYTES);
    }
    assert_int_equal(calls->close(disk, file), 0);
}

static void run(uint64_t seed)
{
    bool power = seed % 2 == 0;
    random_ = (struct mill_random){.state = seed};
    disk = disk_model_new(seed);
    assert_non_null(disk);
    fixture_make(&f, disk_model_calls(disk));
    f.log_dirs[0] = "/disk/logs";
    m = maker_new();
    events_count = 0;
    model_run();
    open_again();
    for (int round = 0; round < ROUNDS; round++) {
        work(40);
        check(20);
        uint32_t what = mill_random_below(&random_, 8);
        if (what < 2) {
            fixture_close(&f, what == 0);
            if (mill_random_below(&random_, 2) == 0) {
                damage_file();
            }
            open_again();
        } else if (what == 2 && power) {
            cut_power();
        } else if (what == 2) {
            bool fired = false;
            struct mill_log_watch watch = {.user = &fired};
            int64_t to = mill_partition_start(partition) + mill_random_below(&random_, 50);
            int r = mill_log_trim(partition, MILL_MIN(to, model_end()), &watch);
            fixture_settle(&f);
            assert_true(r == 0 || fired);
        } else if (what == 4) {
            kill_on_a_full_disk();
        } else if (what == 3) {
            fixture_settle(&f);
            fixture_step(&f, 61000); /* checkpoints */
            fixture_settle(&f);
        }
        check(5);
    }
    fixture_close(&f, true);
    assert_in_range(check_files(), 1, EVENTS_MAX);
    fixture_free(&f);
    disk_model_free(disk);
    free(m);
}

static void test_model(void **state)
{
    MILL_UNUSED(state);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
    };
    return cmocka_run_group_tests_name("txn", tests, NULL, NULL);
}
