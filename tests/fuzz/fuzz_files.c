/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a log as a broken disk, another program or a careless hand would leave them: segments,
 * their indexes, snapshots, checkpoints, what says whose a directory is, and the extents with their
 * table. Small directories are made at the start, as a kill and as a clean end leave them. An input
 * is a byte of choices and a list of damages (damage.h). The store starts on what is left, is read
 * to its end, compacts, is appended to, ends, and starts again.
 *
 * Held: nothing crashes or goes on forever; no batch is given with a wrong sum; a damage that takes
 * something away is told; a second start finds what the first one had. */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "base/random.h"
#include "base/siphash.h"
#include "dataplane/store/store_types.h"
#include "tests/fuzz/damage.h"
#include "tests/sim/disk_model.h"
#include "tests/unit/log/txn_maker.h"
#include "tests/unit/store/pack.h"

enum {
    PARTITIONS = 2,
    PLAIN = 0,
    COMPACTED = 1,
    KILLED = 0, /* images */
    CLEAN = 1,
    IMAGES = 2,
    DAMAGES_MAX = 4,
    SERVED_MAX = 128, /* batches of a partition */
    TRIES = 20,
    BACKOFF_MS = 15000,
    CHECKPOINT_MS = 61000,
    NAME_WAIT_MS = 2100,
    IDEMPOTENT = 7, /* producers */
    ABORTING = 8,
    OPEN = 9,
    /* Choices of an input. */
    CHOICE_CLEAN = 1, /* image */
    CHOICE_END = 2,   /* the first run ends cleanly */
};

/* A batch that was read. */
struct served {
    int64_t base;
    int64_t next;
    uint64_t hash; /* of its bytes, but the leader epoch, which no sum covers */
};

struct reading {
    bool serves;
    int64_t start;
    int64_t end;
    int64_t stable;
    uint32_t errors; /* offsets that were refused */
    uint32_t count;
    struct served served[SERVED_MAX];
};

static const char *const folders[] = {"/disk", "/disk/logs", "/disk/logs/topic-a-0",
                                      "/disk/logs/topic-a-1"};
static const uint64_t hash_key[2] = {1, 2};
static struct fixture f;
static struct disk_model *disk;
static struct maker *m;
static struct mill_partition *partitions[PARTITIONS];
static struct image images[IMAGES];
static struct reading expected[IMAGES][PARTITIONS]; /* without any damage */
static struct mill_now start_of_time;
static bool tells; /* what is done and said, for who looks at a finding */

static struct mill_log_settings settings_of(int32_t index, bool cleans)
{
    struct mill_log_settings settings = fixture_settings();
    settings.segment_bytes = 900;
    settings.index_interval_bytes = 150;
    settings.compact = index == COMPACTED;
    settings.min_cleanable_ppm = cleans ? 0 : 1000000;
    settings.file_delete_delay_ms = 1000;
    settings.retention_ms = settings.retention_bytes = -1;
    settings.made = true;
    return settings;
}

/* --- the directories ------------------------------------------------------------------------- */

static struct mill_append_result append(struct mill_partition *partition)
{
    struct mill_append_result result = {.error = MILL_KERR_KAFKA_STORAGE_ERROR};
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    struct mill_buf buf;
    struct mill_append call = {.records = mill_cursor_over(&buf, m->bytes, m->size),
                               .size_bytes = m->size,
                               .api_version = 9,
                               .acks = -1};
    int r = mill_log_append(partition, &call, f.now, &watch, &result);
    for (uint32_t i = 0; r != 0 && i < TRIES; i++) {
        fixture_settle(&f);
        r = mill_log_append(partition, &call, f.now, &watch, &result);
    }
    assert_int_equal(r, 0);
    return result;
}

static void producer_set(int64_t id, int32_t sequence)
{
    m->producer_id = id;
    m->epoch = id < 0 ? -1 : 0;
    m->sequence = sequence;
    m->attributes = 0;
}

static void append_must(struct mill_partition *partition)
{
    assert_int_equal(append(partition).error, MILL_KERR_NONE);
}

/* A batch with a key of its number, so that compaction has something to leave. */
static void append_keyed(struct mill_partition *partition, int number)
{
    producer_set(-1, -1);
    m->timestamp += 10;
    maker_build(m, 1);
    uint8_t *key = memmem(m->bytes + MILL_BATCH_HEADER_BYTES, m->size, "key", 3);
    assert_non_null(key);
    key[2] = (uint8_t)('a' + number);
    maker_sum(m);
    append_must(partition);
}

static void append_packed(struct mill_partition *partition)
{
    uint8_t packed[2048];
    producer_set(-1, -1);
    m->timestamp += 10;
    m->attributes = MILL_CODEC_LZ4;
    maker_build(m, 3);
    size_t size = pack_lz4(packed, sizeof(packed), m->bytes + MILL_BATCH_HEADER_BYTES,
                           m->size - MILL_BATCH_HEADER_BYTES);
    memcpy(m->bytes + MILL_BATCH_HEADER_BYTES, packed, size);
    m->size = MILL_BATCH_HEADER_BYTES + (uint32_t)size;
    mill_store_be32(m->bytes + MILL_BATCH_LENGTH_AT, m->size - MILL_BATCH_PREFIX_BYTES);
    maker_sum(m);
    append_must(partition);
}

static void append_plain(struct mill_partition *partition, int32_t sequence)
{
    producer_set(IDEMPOTENT, sequence);
    m->timestamp += 10;
    maker_build(m, 2);
    append_must(partition);
}

static void append_transaction(struct mill_partition *partition, int64_t id, int32_t sequence,
                               bool ends)
{
    m->timestamp += 10;
    assert_int_equal(txn_write(&f, partition, m, id, 0, sequence, 1, true).error, MILL_KERR_NONE);
    if (ends) {
        assert_int_equal(txn_end(&f, partition, id, 0, false, 3).error, MILL_KERR_NONE);
    }
}

/* What one round leaves in either partition. */
static void append_round(int32_t round)
{
    append_plain(partitions[PLAIN], round * 2);
    append_transaction(partitions[PLAIN], ABORTING, round, true);
    append_packed(partitions[PLAIN]);
    for (int key = 0; key < 4; key++) {
        append_keyed(partitions[COMPACTED], key);
    }
    append_transaction(partitions[COMPACTED], ABORTING, round, true);
}

static void log_make(void)
{
    fixture_open(&f);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        struct mill_log_settings settings = settings_of(i, true);
        settings.made = false;
        partitions[i] = fixture_partition(&f, i, &settings);
    }
    int32_t round = 0;
    for (; round < 3; round++) {
        append_round(round);
        fixture_settle(&f);
    }
    fixture_step(&f, BACKOFF_MS); /* compacted once */
    fixture_settle(&f);
    struct mill_log_settings settings = settings_of(COMPACTED, false);
    mill_log_update(partitions[COMPACTED], 3, &settings);
    for (; round < 6; round++) {
        append_round(round);
        fixture_settle(&f);
    }
    append_transaction(partitions[PLAIN], OPEN, 0, false);
    fixture_settle(&f);
    fixture_step(&f, CHECKPOINT_MS);
    fixture_settle(&f);
    append_round(round++);
    fixture_settle(&f);
    append_round(round); /* in extents only */
}

static void images_make(void)
{
    char path[128];
    disk = disk_model_new(1);
    assert_non_null(disk);
    f.files = disk_model_calls(disk);
    log_make();
    fixture_close(&f, false);
    image_keep(&images[KILLED], disk, folders, MILL_COUNT_OF(folders));
    snprintf(path, sizeof(path), "%s/arena0", f.dir);
    image_keep_arena(&images[KILLED], path);
    fixture_open(&f);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        struct mill_log_settings settings = settings_of(i, false);
        fixture_partition(&f, i, &settings);
    }
    fixture_close(&f, true);
    image_keep(&images[CLEAN], disk, folders, MILL_COUNT_OF(folders));
    disk_model_free(disk);
}

/* --- starting and ending --------------------------------------------------------------------- */

static void tell_start(void)
{
    print_message("start: %s\n", f.report.text);
    for (uint32_t i = 0; i < f.said_count; i++) {
        print_message("  %s\n", f.said[i]);
    }
    for (int i = 0; f.log && i < PARTITIONS; i++) {
        print_message("  partition %d: state %d, %lld to %lld, stable %lld\n", i,
                      (int)mill_partition_state_of(partitions[i]),
                      (long long)mill_partition_start(partitions[i]),
                      (long long)mill_partition_end(partitions[i]),
                      (long long)mill_partition_stable(partitions[i]));
    }
}

/* ret: whether the broker runs; if not, it said why. */
static bool start_quietly(void)
{
    f.said_count = 0;
    f.report.text[0] = '\0';
    int r = fixture_try_open(&f);
    if (r == -ESTALE) {
        /* The arena is not understood: told, put away, and begun anew, as millraced does. */
        fixture_must(&f, mill_arena_discard(f.dir, &f.report));
        r = fixture_try_open(&f);
    }
    if (r < 0) {
        assert_true(f.report.text[0] != '\0');
        return false;
    }
    struct mill_uuid id = {{7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
    for (int32_t i = 0; i < PARTITIONS; i++) {
        struct mill_log_settings settings = settings_of(i, true);
        fixture_must(&f, mill_log_open(f.log, &id, "topic-a", i, 3, &settings, &partitions[i]));
        fixture_settle(&f);
        for (int k = 0; k < 4 && mill_partition_state_of(partitions[i]) == MILL_LOG_OPENING; k++) {
            fixture_step(&f, NAME_WAIT_MS);
            fixture_settle(&f);
        }
        enum mill_log_state state = mill_partition_state_of(partitions[i]);
        assert_true(state == MILL_LOG_SERVING || state == MILL_LOG_FAILED);
        assert_true(state == MILL_LOG_SERVING || f.said_count > 0);
    }
    return true;
}

static bool start(void)
{
    bool runs = start_quietly();
    if (tells) {
        tell_start();
    }
    return runs;
}

static void end(bool clean)
{
    if (clean) {
        mill_log_flush_all(f.log);
        fixture_settle(&f);
        mill_log_destroy(f.log);
        f.log = NULL;
        bool whole = mill_store_close(f.store, f.now);
        f.store = NULL;
        int r = mill_log_dirs_close(f.dirs, whole);
        f.dirs = NULL;
        mill_extents_destroy(f.extents);
        f.extents = NULL;
        mill_loans_fini(&f.loans);
        mill_arena_close(f.arena, r == 0 && whole);
        f.arena = NULL;
    }
    fixture_abandon(&f);
}

/* --- reading --------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint8_t *bytes, uint32_t size)
{
    const uint32_t at = MILL_BATCH_EPOCH_AT;
    return mill_siphash(hash_key, bytes, at) ^
           mill_siphash(hash_key, bytes + at + 4, size - at - 4);
}

/* Takes the batches of an answer; each is whole and rightly summed. ret: the next offset. */
static int64_t answer_take(const struct mill_read_result *got, int64_t offset,
                           struct reading *reading)
{
    for (uint32_t i = 0; i < got->refs_count; i++) {
        const uint8_t *bytes = mill_ref_data(mill_arena_base(f.arena), &got->refs[i]);
        uint32_t left = got->refs[i].size_bytes;
        while (left > 0) {
            struct mill_batch batch;
            assert_true(left >= MILL_BATCH_HEADER_BYTES);
            mill_batch_read(bytes, &batch);
            uint32_t size = mill_batch_size_bytes(&batch);
            assert_true(batch.batch_length > 0 && size <= left);
            assert_int_equal(mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, size - MILL_BATCH_SUMMED_AT),
                             batch.crc);
            int64_t last;
            assert_false(__builtin_add_overflow(batch.base_offset, batch.last_offset_delta, &last));
            assert_true(last >= offset && last < reading->end);
            assert_true(reading->count < SERVED_MAX);
            reading->served[reading->count++] = (struct served){
                .base = batch.base_offset, .next = last + 1, .hash = hash_of(bytes, size)};
            offset = last + 1;
            bytes += size;
            left -= size;
        }
    }
    return offset;
}

static void read_at(struct mill_partition *partition, int64_t offset, bool committed,
                    struct mill_read_result *ret)
{
    struct mill_read read = {.offset = offset,
                             .bytes_max = 400,
                             .first_whole = true,
                             .current_epoch = -1,
                             .last_epoch = -1,
                             .refs_max = 4,
                             .committed = committed};
    fixture_read(&f, partition, &read, ret);
}

/* Where a reader that was refused an offset may go on: the next batch there was. */
static int64_t behind(const struct reading *was, int64_t offset)
{
    for (uint32_t i = 0; was && i < was->count; i++) {
        if (was->served[i].base > offset) {
            return was->served[i].base;
        }
    }
    return INT64_MAX;
}

/* Reads all of a partition. was: what there should be, NULL: not known. */
static void read_all(int32_t index, bool committed, const struct reading *was,
                     struct reading *reading)
{
    static struct mill_read_result got;
    struct mill_partition *partition = partitions[index];
    *reading = (struct reading){.serves = mill_partition_state_of(partition) == MILL_LOG_SERVING};
    if (!reading->serves) {
        return;
    }
    reading->start = mill_partition_start(partition);
    reading->end = mill_partition_end(partition);
    reading->stable = mill_partition_stable(partition);
    assert_true(reading->start >= 0 && reading->start <= reading->end);
    assert_true(reading->stable >= reading->start && reading->stable <= reading->end);
    for (int64_t offset = reading->start; offset < reading->end;) {
        read_at(partition, offset, committed, &got);
        if (got.error != MILL_KERR_NONE) {
            assert_int_equal(got.error, MILL_KERR_KAFKA_STORAGE_ERROR);
            reading->errors++;
            offset = behind(was, offset);
            continue;
        }
        const uint8_t *aborted = mill_ref_data(mill_arena_base(f.arena), &got.aborted);
        for (uint32_t i = 0; i < got.aborted.size_bytes; i += MILL_LOG_ABORTED_BYTES) {
            assert_true((int64_t)mill_load_be64(aborted + i + 8) >= 0);
        }
        int64_t next = answer_take(&got, offset, reading);
        if (got.aborted.size_bytes > 0) {
            mill_extent_free(f.extents, got.aborted.extent);
        }
        if (got.refs_count == 0) {
            break; /* what is left holds no batch, or is not committed */
        }
        assert_true(next > offset);
        offset = next;
    }
}

static void find_time(struct mill_partition *partition, int64_t time_ms)
{
    bool fired = false;
    struct mill_log_watch watch = {.user = &fired};
    struct mill_time_result found;
    int r = -EINPROGRESS;
    for (int i = 0; i < TRIES && r != 0; i++) {
        r = mill_log_find_time(partition, time_ms, false, &watch, &found);
        if (r != 0) {
            fixture_settle(&f);
        }
    }
    assert_int_equal(r, 0);
    assert_true(found.error == MILL_KERR_NONE || found.error == MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_true(found.error != MILL_KERR_NONE || found.offset == -1 ||
                (found.offset >= mill_partition_start(partition) &&
                 found.offset < mill_partition_end(partition)));
}

static void look(int32_t index, const struct reading *was)
{
    static struct reading committed;
    if (mill_partition_state_of(partitions[index]) != MILL_LOG_SERVING) {
        return;
    }
    read_all(index, true, was, &committed);
    const int64_t times[] = {0, 1700000000050, 1700000000150, INT64_MAX, MILL_TIME_MAX};
    for (size_t i = 0; i < MILL_COUNT_OF(times); i++) {
        find_time(partitions[index], times[i]);
    }
}

/* --- what is held ---------------------------------------------------------------------------- */

/* Damage in one place, sums left alone: what is given is what was there, and what is not is told.
 */
static bool is_judged(const struct damage *damages, uint32_t count, const struct image *image)
{
    const struct damage *damage = &damages[0];
    const char *path = count == 1 ? image->files[damage->file].path : "";
    bool log = strstr(path, "/topic-a-0/") && strstr(path, ".log");
    bool other =
        strstr(path, "/topic-a-0/") && (strstr(path, ".index") || strstr(path, ".timeindex") ||
                                        strstr(path, ".txnindex") || strstr(path, ".snapshot"));
    /* A run of bytes, or one field, can hold a batch's sum and what it covers. */
    bool one = damage->kind == DAMAGE_OVERWRITE ? damage->length <= 4 : damage->kind != DAMAGE_COPY;
    return count == 1 && !damage->sums && (other || (log && one));
}

static void judge(const struct reading *was, const struct reading *is)
{
    uint32_t at = 0;
    for (uint32_t i = 0; is->serves && i < is->count; i++) {
        while (at < was->count && was->served[at].base < is->served[i].base) {
            at++;
        }
        assert_true(at < was->count);
        assert_int_equal(was->served[at].base, is->served[i].base);
        assert_true(was->served[at].hash == is->served[i].hash);
    }
    assert_true(is->count == was->count || is->errors > 0 || f.said_count > 0);
}

/* What one start gave, the next one gives; what it refuses of that it tells. */
static void agree(const struct reading *first, const struct reading *second)
{
    if (!first->serves) {
        return; /* damage that a second start can mend is no harm */
    }
    /* A clean start believes older segments by their size; one after a kill looks behind their last
     * batches, and refuses what it finds there. */
    assert_true(second->serves || fixture_was_said(&f, "store.damaged"));
    if (!second->serves) {
        return;
    }
    assert_int_equal(first->end, second->end);
    assert_int_equal(first->start, second->start);
    uint32_t at = 0;
    for (uint32_t i = 0; i < second->count; i++) {
        while (at < first->count && first->served[at].base < second->served[i].base) {
            at++;
        }
        bool same = at < first->count && first->served[at].base == second->served[i].base;
        assert_true(same || first->errors > 0);
        assert_true(!same || first->served[at].hash == second->served[i].hash);
    }
    assert_true(first->count == second->count || first->errors + second->errors > 0);
    assert_true(first->stable == second->stable || first->errors > 0);
}

/* --- one input ------------------------------------------------------------------------------- */

static void first_run(const struct reading *was, bool judged, bool clean_end,
                      struct reading readings[static PARTITIONS])
{
    for (int32_t i = 0; i < PARTITIONS; i++) {
        read_all(i, false, was ? &was[i] : NULL, &readings[i]);
        if (judged && i == PLAIN) {
            judge(&was[i], &readings[i]);
        }
        look(i, was ? &was[i] : NULL);
    }
    fixture_step(&f, BACKOFF_MS);
    fixture_settle(&f);
    for (int32_t i = 0; i < PARTITIONS; i++) {
        if (mill_partition_state_of(partitions[i]) == MILL_LOG_SERVING) {
            m->timestamp = f.now.wall_ms;
            append_keyed(partitions[i], 0);
        }
    }
    fixture_settle(&f);
    assert_false(fixture_was_said(&f, "store.fenced"));
    for (int32_t i = 0; i < PARTITIONS; i++) {
        read_all(i, false, was ? &was[i] : NULL, &readings[i]);
    }
    end(clean_end);
}

static void second_run(const struct reading *was, const struct reading first[static PARTITIONS])
{
    static struct reading second;
    assert_true(start());
    for (int32_t i = 0; i < PARTITIONS; i++) {
        read_all(i, false, was ? &was[i] : NULL, &second);
        agree(&first[i], &second);
        look(i, was ? &was[i] : NULL);
    }
    assert_false(fixture_was_said(&f, "store.fenced"));
    end(false);
}

static void run(const struct image *image, const struct reading *was, bool judged, bool clean_end)
{
    static struct reading first[PARTITIONS];
    disk = disk_model_new(1);
    assert_non_null(disk);
    f.files = disk_model_calls(disk);
    f.now = start_of_time;
    image_put(image, disk);
    if (start()) {
        first_run(was, judged, clean_end, first);
        second_run(was, first);
    }
    fixture_must(&f, mill_arena_discard(f.dir, &f.report));
    disk_model_free(disk);
}

/* What is there without damage; all of it is. */
static void expect(int which)
{
    disk = disk_model_new(1);
    assert_non_null(disk);
    f.files = disk_model_calls(disk);
    f.now = start_of_time;
    image_put(&images[which], disk);
    assert_true(start());
    for (int32_t i = 0; i < PARTITIONS; i++) {
        read_all(i, false, NULL, &expected[which][i]);
        assert_true(expected[which][i].serves && expected[which][i].errors == 0);
        assert_true(expected[which][i].count > 10 || i == COMPACTED);
    }
    assert_int_equal(f.said_count, 0);
    end(false);
    fixture_must(&f, mill_arena_discard(f.dir, &f.report));
    disk_model_free(disk);
}

static void leave(void)
{
    fixture_free(&f);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    MILL_UNUSED(argc);
    MILL_UNUSED(argv);
    fixture_make(&f, NULL);
    atexit(leave);
    tells = getenv("MILLRACE_FUZZ_TELL") != NULL;
    f.log_dirs[0] = "/disk/logs";
    f.options.size_bytes = 6 << 20;
    f.options.extent_bytes_max = 1 << 20; /* cold reads take such ones */
    ;
    start_of_time = f.now;
    m = maker_new();
    images_make();
    start_of_time = f.now;
    for (int i = 0; i < IMAGES; i++) {
        expect(i);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.at = data, .left = size};
    struct damage damages[DAMAGES_MAX];
    struct image image;
    uint32_t count = 0;
    uint8_t choices = fuzz_byte(&input);
    int which = choices & CHOICE_CLEAN ? CLEAN : KILLED;
    image_copy(&images[which], &image);
    for (; count < DAMAGES_MAX && input.left >= DAMAGE_BYTES; count++) {
        damage_read(input.at, &image, &damages[count]);
        if (tells) {
            damage_tell(&image, &damages[count]);
        }
        damage_do(&image, &damages[count]);
        input.at += DAMAGE_BYTES;
        input.left -= DAMAGE_BYTES;
    }
    run(&image, expected[which], is_judged(damages, count, &image), choices & CHOICE_END);
    image_free(&image);
    return 0;
}

/* --- new inputs ------------------------------------------------------------------------------ */

/* One damage is made, changed or left out; numbers are those that fields are apt to be wrong by. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    static const int64_t numbers[] = {0,         1,         -1,        2,         INT16_MAX,
                                      INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, INT64_MAX - 1,
                                      61,        1 << 20,   40,        1LL << 32, 1LL << 62};
    struct mill_random random = {.state = seed};
    uint32_t count = size > 0 ? (uint32_t)((size - 1) / DAMAGE_BYTES) : 0;
    if (size == 0 || mill_random_below(&random, 3) == 0) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    uint32_t which = mill_random_below(&random, count + 1);
    if (which == count && (count >= DAMAGES_MAX || 1 + (count + 1) * DAMAGE_BYTES > max_size)) {
        which = 0;
    }
    uint8_t *at = data + 1 + (size_t)which * DAMAGE_BYTES;
    if (which == count) {
        count++;
        memset(at, 0, DAMAGE_BYTES);
        at[0] = (uint8_t)mill_random_below(&random, 256);
        at[1] = (uint8_t)mill_random_below(&random, 256);
    }
    switch (mill_random_below(&random, 5)) {
    case 0:
        at[0] = (uint8_t)mill_random_below(&random, 256);
        break;
    case 1:
        at[1] = (uint8_t)mill_random_below(&random, 256);
        break;
    case 2:
        mill_store_be32(at + 2, mill_random_below(&random, 1u << mill_random_below(&random, 17)));
        break;
    case 3:
        at[1] = DAMAGE_FIELD | (mill_random_below(&random, 2) ? DAMAGE_SUMS : 0);
        break;
    default:
        mill_store_be64(at + 8,
                        (uint64_t)numbers[mill_random_below(&random, MILL_COUNT_OF(numbers))]);
        break;
    }
    data[0] ^=
        mill_random_below(&random, 8) == 0 ? (uint8_t)(1u << mill_random_below(&random, 2)) : 0;
    return 1 + (size_t)count * DAMAGE_BYTES;
}
