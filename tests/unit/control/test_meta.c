/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a metadata store that was damaged, emptied or belongs to another is refused, and never
 * gives anything else than what was written. Method: a store with topics, settings and ids; its
 * file is damaged page by page, in many places of each; then it is opened and read whole. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "base/siphash.h"
#include "control/meta/data.h"
#include "control/meta/meta.h"

enum {
    TOPICS = 40,
    PARTITIONS = 3,
    BIT_FLIPS_PER_PAGE = 24,
    PAGE_BYTES = 4096,
};

static char dir[64];
static char file[96];
static uint8_t *good;
static long good_bytes;

static const uint64_t hash_key[2] = {1, 2};

static struct mill_map_topic *record_new(uint32_t number)
{
    struct mill_map_topic *record =
        calloc(1, sizeof(*record) + PARTITIONS * sizeof(record->partitions[0]));
    assert_non_null(record);
    record->id.b[0] = 1;
    record->id.b[15] = (uint8_t)number;
    record->name_length =
        (uint16_t)snprintf(record->name, sizeof(record->name), "topic-%u", number);
    record->partitions_count = PARTITIONS;
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        record->partitions[i] = (struct mill_map_partition){
            .leader = 1, .replicas_count = 1, .isr_count = 1, .replicas = {1}, .isr_bits = 1};
    }
    return record;
}

static int open_meta(struct mill_meta *ret_meta)
{
    struct mill_report report = {""};
    return mill_meta_sqlite_open(file, 0, ret_meta, &report);
}

static void fill(void)
{
    struct mill_meta meta;
    struct mill_report report = {""};
    struct mill_uuid fresh = {{7}};
    struct mill_uuid id;
    int64_t first;
    assert_int_equal(open_meta(&meta), 0);
    assert_int_equal(meta.calls->broker(meta.store, 1, &report), 0);
    assert_int_equal(meta.calls->cluster_id(meta.store, &fresh, &id, &report), 0);
    assert_int_equal(meta.calls->take_ids(meta.store, 1000, &first, &report), 0);
    const struct mill_meta_config altered[] = {{"log.retention.ms", "5000"},
                                               {"log.segment.bytes", "1048576"}};
    assert_int_equal(meta.calls->set_settings(meta.store, 1, altered, 1, &report), 0);
    assert_int_equal(meta.calls->set_settings(meta.store, -1, altered, 2, &report), 0);
    const struct mill_meta_quota quotas[] = {{"", "=loud", "producer_byte_rate", 1048576},
                                             {"*", "", "request_percentage", 12.5}};
    assert_int_equal(meta.calls->set_quotas(meta.store, quotas, 2, &report), 0);
    for (uint32_t i = 0; i < TOPICS; i++) {
        const struct mill_meta_config configs[] = {{"retention.ms", "86400000"},
                                                   {"cleanup.policy", "compact"}};
        struct mill_map_topic *record = record_new(i);
        struct mill_meta_topic topic = {.record = record, .configs = configs, .configs_count = 2};
        assert_int_equal(meta.calls->add_topics(meta.store, &topic, 1, &report), 0);
        if (i % 4 == 0) {
            assert_int_equal(meta.calls->mark_made(meta.store, &record->id, 1, &report), 0);
        }
        if (i % 5 == 0) {
            assert_int_equal(meta.calls->mark_deleting(meta.store, &record->id, 1, &report), 0);
        }
        if (i % 10 == 0) {
            assert_int_equal(meta.calls->remove_topic(meta.store, &record->id, &report), 0);
        }
        free(record);
    }
    mill_meta_close(&meta);
}

static int add_hash(void *context, const struct mill_meta_topic *topic)
{
    uint64_t *hash = context;
    *hash ^= mill_siphash(hash_key, topic->record,
                          sizeof(*topic->record) +
                              topic->record->partitions_count * sizeof(struct mill_map_partition));
    for (uint32_t i = 0; i < topic->configs_count; i++) {
        *hash = *hash * 31 +
                mill_siphash(hash_key, topic->configs[i].name, strlen(topic->configs[i].name));
        *hash = *hash * 31 +
                mill_siphash(hash_key, topic->configs[i].value, strlen(topic->configs[i].value));
    }
    return 0;
}

static int add_setting(void *context, int32_t node_id, const struct mill_meta_config *config)
{
    uint64_t *hash = context;
    *hash = *hash * 31 + (uint64_t)(uint32_t)node_id +
            mill_siphash(hash_key, config->name, strlen(config->name));
    *hash = *hash * 31 + mill_siphash(hash_key, config->value, strlen(config->value));
    return 0;
}

static int add_quota(void *context, const struct mill_meta_quota *quota)
{
    uint64_t *hash = context;
    const char *const texts[] = {quota->user, quota->client, quota->key};
    for (size_t i = 0; i < MILL_COUNT_OF(texts); i++) {
        *hash = *hash * 31 + mill_siphash(hash_key, texts[i], strlen(texts[i]));
    }
    *hash = *hash * 31 + (uint64_t)(quota->value * 1000);
    return 0;
}

/* Everything that the store gives, as one number. ret: 0, or the refusal. */
static int read_all(uint64_t *ret_hash)
{
    struct mill_meta meta;
    struct mill_report report = {""};
    struct mill_uuid fresh = {{9}};
    struct mill_uuid id = {{0}};
    int64_t first = -1;
    *ret_hash = 0;
    int rc = open_meta(&meta);
    if (rc < 0) {
        return rc;
    }
    rc = meta.calls->broker(meta.store, 1, &report);
    rc = rc < 0 ? rc : meta.calls->cluster_id(meta.store, &fresh, &id, &report);
    rc = rc < 0 ? rc : meta.calls->take_ids(meta.store, 1, &first, &report);
    rc = rc < 0 ? rc : meta.calls->load(meta.store, add_hash, ret_hash, &report);
    rc = rc < 0 ? rc : meta.calls->load_settings(meta.store, add_setting, ret_hash, &report);
    rc = rc < 0 ? rc : meta.calls->load_quotas(meta.store, add_quota, ret_hash, &report);
    *ret_hash ^= mill_siphash(hash_key, &id, sizeof(id)) + (uint64_t)first;
    mill_meta_close(&meta);
    return rc;
}

static void remove_all(void)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < MILL_COUNT_OF(ends); i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s%s", file, ends[i]);
        unlink(path);
    }
}

static void put_back(void)
{
    remove_all();
    FILE *out = fopen(file, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(good, 1, (size_t)good_bytes, out), good_bytes);
    fclose(out);
}

static void flip_at(long at, uint8_t bits)
{
    FILE *both = fopen(file, "r+b");
    uint8_t byte = good[at] ^ bits;
    assert_non_null(both);
    fseek(both, at, SEEK_SET);
    assert_int_equal(fwrite(&byte, 1, 1, both), 1);
    fclose(both);
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/dev/shm/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/millrace.db", dir);
    fill();
    FILE *in = fopen(file, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    good_bytes = ftell(in);
    rewind(in);
    good = malloc((size_t)good_bytes);
    assert_non_null(good);
    assert_int_equal(fread(good, 1, (size_t)good_bytes, in), good_bytes);
    fclose(in);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[160];
    free(good);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

/* --- damage ---------------------------------------------------------------------------------- */

static void test_flipped_bits_are_refused_or_harmless(void **state)
{
    (void)state;
    struct mill_random random = {.state = 5};
    uint64_t whole;
    uint32_t refused = 0;
    uint32_t harmless = 0;
    put_back();
    assert_int_equal(read_all(&whole), 0);
    for (long page = 0; page < good_bytes / PAGE_BYTES; page++) {
        for (uint32_t i = 0; i < BIT_FLIPS_PER_PAGE; i++) {
            uint64_t hash;
            put_back();
            flip_at(page * PAGE_BYTES + mill_random_below(&random, PAGE_BYTES),
                    (uint8_t)(1u << mill_random_below(&random, 8)));
            if (read_all(&hash) < 0) {
                refused++;
            } else {
                assert_true(hash == whole);
                harmless++; /* a place that holds nothing */
            }
        }
    }
    print_message("%u flips refused, %u harmless\n", refused, harmless);
    assert_true(refused > 0);
}

static void test_damaged_pages_are_refused(void **state)
{
    (void)state;
    uint64_t whole;
    put_back();
    assert_int_equal(read_all(&whole), 0);
    for (long page = 0; page < good_bytes / PAGE_BYTES; page++) {
        for (int zero = 0; zero < 2; zero++) {
            uint64_t hash;
            put_back();
            for (long at = page * PAGE_BYTES; at < (page + 1) * PAGE_BYTES; at++) {
                flip_at(at, zero ? good[at] : 0xff);
            }
            int rc = read_all(&hash);
            assert_true(rc < 0 || hash == whole); /* a free page may hold anything */
            assert_true(page > 0 || rc < 0);
        }
    }
}

static void test_truncated_file_is_refused(void **state)
{
    (void)state;
    for (long size = PAGE_BYTES / 2; size < good_bytes; size += PAGE_BYTES / 2) {
        uint64_t hash;
        put_back();
        assert_int_equal(truncate(file, size), 0);
        assert_true(read_all(&hash) < 0);
    }
}

/* --- a store that is not there --------------------------------------------------------------- */

static void make(const char *path, bool folder)
{
    if (folder) {
        assert_int_equal(mkdir(path, 0755), 0);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    close(fd);
}

static void test_missing_or_empty_is_seen(void **state)
{
    (void)state;
    struct mill_report report = {""};
    put_back();
    assert_int_equal(mill_meta_sqlite_there(file, &report), 1);
    assert_int_equal(truncate(file, 0), 0);
    assert_int_equal(mill_meta_sqlite_there(file, &report), 0);
    remove_all();
    assert_int_equal(mill_meta_sqlite_there(file, &report), 0);
    assert_int_equal(access(file, F_OK), -1); /* looking makes nothing */
}

static void test_data_without_a_store_is_refused(void **state)
{
    (void)state;
    struct mill_report report = {""};
    char logs[96];
    char absent[96];
    char path[200];
    snprintf(logs, sizeof(logs), "%s/logs", dir);
    snprintf(absent, sizeof(absent), "%s/absent", dir);
    const char *dirs[] = {absent, logs};
    make(logs, true);
    snprintf(path, sizeof(path), "%s/holiday-1", logs);
    make(path, true); /* no partition's: it holds neither segment nor metadata */
    snprintf(path, sizeof(path), "%s/00000000000000000000.log", logs);
    make(path, false);
    assert_int_equal(mill_meta_refuse_data(dirs, 2, file, &report), 0);
    snprintf(path, sizeof(path), "%s/orders-0", logs);
    make(path, true);
    snprintf(path, sizeof(path), "%s/orders-0/00000000000000000000.log", logs);
    make(path, false);
    assert_int_equal(mill_meta_refuse_data(dirs, 2, file, &report), -EEXIST);
    assert_non_null(strstr(report.text, "orders-0"));
    assert_non_null(strstr(report.text, "metadata.dir"));
}

static void test_symbolic_link_is_refused(void **state)
{
    (void)state;
    char elsewhere[128];
    struct mill_meta meta;
    put_back();
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere.db", dir);
    assert_int_equal(rename(file, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, file), 0);
    assert_true(open_meta(&meta) < 0);
    unlink(file);
    assert_int_equal(rename(elsewhere, file), 0);
    assert_int_equal(open_meta(&meta), 0);
    mill_meta_close(&meta);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flipped_bits_are_refused_or_harmless),
        cmocka_unit_test(test_damaged_pages_are_refused),
        cmocka_unit_test(test_truncated_file_is_refused),
        cmocka_unit_test(test_missing_or_empty_is_seen),
        cmocka_unit_test(test_data_without_a_store_is_refused),
        cmocka_unit_test(test_symbolic_link_is_refused),
    };
    return cmocka_run_group_tests_name("metadata store", tests, setup, teardown);
}
