/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the partition map does what a plain table does (model test), gives bytes back only when no
 * core can hold them, refuses damage, and survives a writer killed at any instruction: readers find
 * the old or the new record, whole. Method: samples whose bytes follow from id and version; a
 * seeded model; a child process that writes and is killed at random moments. */
#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/unit/ipc/map_sample.h"

enum {
    SIZE_BYTES = 1 << 20,
    TOPICS_MAX = 64,
    NUMBERS = 48, /* ids of the model */
    NAMES = 16,   /* names they share */
    KILL_ROUNDS = 40,
};

struct fixture {
    void *memory;
    struct mill_map *map;
    struct mill_map_writer *writer;
    struct mill_map_topic *topic;
};

static struct fixture open_fixture(uint64_t size_bytes, uint32_t topics_max)
{
    struct fixture f = {.memory = sample_memory(size_bytes, topics_max), .topic = sample_room()};
    assert_int_equal(mill_map_open(f.memory, size_bytes, &f.map), 0);
    assert_int_equal(mill_map_writer_open(f.map, &f.writer, NULL), 0);
    return f;
}

static void close_fixture(struct fixture *f, uint64_t size_bytes)
{
    mill_map_writer_close(f->writer);
    mill_map_close(f->map);
    free(f->topic);
    munmap(f->memory, size_bytes);
}

static void reopen_writer(struct fixture *f)
{
    mill_map_writer_close(f->writer);
    assert_int_equal(mill_map_writer_open(f->map, &f->writer, NULL), 0);
}

/* --- model -------------------------------------------------------------------------------------
 */

struct model {
    bool there[NUMBERS];
    uint32_t version[NUMBERS];
    uint32_t flags[NUMBERS];
    int holder[NAMES]; /* number that the name leads to, -1 none */
};

static void model_put(struct fixture *f, struct model *m, uint32_t number, uint32_t flags)
{
    uint32_t name = number % NAMES;
    uint32_t version = m->version[number] + 1;
    sample_fill(f->topic, number, name, version, flags);
    assert_int_equal(mill_map_put_topic(f->writer, f->topic), 0);
    if (m->holder[name] < 0 || ((m->flags[m->holder[name]] & MILL_TOPIC_DELETING) != 0 &&
                                (flags & MILL_TOPIC_DELETING) == 0)) {
        m->holder[name] = (int)number;
    }
    m->there[number] = true;
    m->version[number] = version;
    m->flags[number] = flags;
}

static void model_remove(struct fixture *f, struct model *m, uint32_t number)
{
    struct mill_uuid id = sample_id(number);
    int expected = m->there[number] ? 0 : -ENOENT;
    assert_int_equal(mill_map_remove_topic(f->writer, &id), expected);
    m->there[number] = false;
    if (m->holder[number % NAMES] == (int)number) {
        m->holder[number % NAMES] = -1;
    }
}

static void model_compare(struct fixture *f, const struct model *m)
{
    uint32_t seen = 0;
    uint32_t there = 0;
    for (uint32_t number = 0; number < NUMBERS; number++) {
        struct mill_uuid id = sample_id(number);
        const struct mill_map_topic *topic = mill_map_topic_by_id(f->map, &id);
        assert_int_equal(topic != NULL, m->there[number]);
        if (topic) {
            assert_true(sample_is_whole(topic));
            assert_int_equal(topic->settings.retention_ms, m->version[number]);
            assert_int_equal(topic->flags, m->flags[number]);
            there++;
        }
    }
    for (uint32_t name = 0; name < NAMES; name++) {
        char text[32];
        int length = snprintf(text, sizeof(text), "topic-%u", name);
        const struct mill_map_topic *topic = mill_map_topic_by_name(f->map, text, (uint32_t)length);
        assert_int_equal(topic != NULL, m->holder[name] >= 0);
        if (topic) {
            struct mill_uuid id = sample_id((uint32_t)m->holder[name]);
            assert_memory_equal(&topic->id, &id, sizeof(id));
        }
    }
    for (uint32_t slot = 0; slot < mill_map_slots(f->map); slot++) {
        seen += mill_map_topic_at(f->map, slot) != NULL;
    }
    assert_int_equal(seen, there);
}

/* After a restart a name whose holder is gone or going leads to another topic that has it. */
static void model_adopt(struct fixture *f, struct model *m)
{
    for (uint32_t name = 0; name < NAMES; name++) {
        char text[32];
        int length = snprintf(text, sizeof(text), "topic-%u", name);
        const struct mill_map_topic *topic = mill_map_topic_by_name(f->map, text, (uint32_t)length);
        uint32_t number;
        if (!topic ||
            (m->holder[name] >= 0 && ((m->flags[m->holder[name]] & MILL_TOPIC_DELETING) == 0 ||
                                      (topic->flags & MILL_TOPIC_DELETING) != 0))) {
            continue;
        }
        memcpy(&number, topic->id.b + 4, sizeof(number));
        assert_int_equal(number % NAMES, name);
        m->holder[name] = (int)number;
    }
}

static void test_map_random_changes_equal_model(void **state)
{
    (void)state;
    struct fixture f = open_fixture(SIZE_BYTES, TOPICS_MAX);
    struct mill_random random = {.state = 11};
    struct model m = {0};
    for (int i = 0; i < NAMES; i++) {
        m.holder[i] = -1;
    }
    for (int round = 0; round < 20000; round++) {
        uint32_t number = mill_random_below(&random, NUMBERS);
        uint32_t what = mill_random_below(&random, 100);
        if (what < 55) {
            bool deleting = m.there[number] && mill_random_below(&random, 4) == 0;
            model_put(&f, &m, number, deleting ? MILL_TOPIC_DELETING : 0);
        } else if (what < 95) {
            model_remove(&f, &m, number);
        } else if (what < 99) {
            mill_map_turn(f.map, mill_random_below(&random, 3));
        } else {
            for (uint32_t core = 0; core < 3; core++) {
                mill_map_reader_state(f.map, core, false);
            }
        }
        mill_map_turn(f.map, 0);
        mill_map_turn(f.map, 1);
        mill_map_turn(f.map, 2);
        mill_map_reclaim(f.writer);
        if (round % 500 == 0) {
            /* A name without holder may go to another topic at restart only. */
            model_compare(&f, &m);
            reopen_writer(&f);
            model_adopt(&f, &m);
        }
        if (round % 50 == 0) {
            model_compare(&f, &m);
        }
    }
    assert_int_equal(mill_map_full_count(f.map), 0);
    close_fixture(&f, SIZE_BYTES);
}

/* --- single rules ------------------------------------------------------------------------------
 */

static void test_map_put_takes_name_of_deleting(void **state)
{
    (void)state;
    struct fixture f = open_fixture(SIZE_BYTES, TOPICS_MAX);
    struct mill_uuid old = sample_id(1);
    struct mill_uuid new = sample_id(2);
    sample_fill(f.topic, 1, 5, 1, 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    sample_fill(f.topic, 1, 5, 2, MILL_TOPIC_DELETING);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    sample_fill(f.topic, 2, 5, 1, 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    assert_memory_equal(&mill_map_topic_by_name(f.map, "topic-5", 7)->id, &new, sizeof(new));
    assert_int_equal(mill_map_topic_by_id(f.map, &old)->flags, MILL_TOPIC_DELETING);
    /* A change of the old one does not steal the name back; its end does not hurt the new one. */
    sample_fill(f.topic, 1, 5, 3, MILL_TOPIC_DELETING);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    assert_memory_equal(&mill_map_topic_by_name(f.map, "topic-5", 7)->id, &new, sizeof(new));
    assert_int_equal(mill_map_remove_topic(f.writer, &old), 0);
    assert_null(mill_map_topic_by_id(f.map, &old));
    assert_memory_equal(&mill_map_topic_by_name(f.map, "topic-5", 7)->id, &new, sizeof(new));
    close_fixture(&f, SIZE_BYTES);
}

static void test_map_generation_rises_with_each_change(void **state)
{
    (void)state;
    struct fixture f = open_fixture(SIZE_BYTES, TOPICS_MAX);
    uint64_t before = mill_map_generation(f.map);
    struct mill_uuid id = sample_id(1);
    sample_fill(f.topic, 1, 1, 1, 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    assert_int_equal(mill_map_remove_topic(f.writer, &id), 0);
    assert_int_equal(mill_map_generation(f.map), before + 3);
    close_fixture(&f, SIZE_BYTES);
}

static void test_map_awake_reader_keeps_old_record(void **state)
{
    (void)state;
    struct fixture f = open_fixture(SIZE_BYTES, TOPICS_MAX);
    sample_fill(f.topic, 1, 1, 1, 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    mill_map_turn(f.map, 7);
    struct mill_uuid id = sample_id(1);
    const struct mill_map_topic *held = mill_map_topic_by_id(f.map, &id);
    for (uint32_t version = 2; version < 200; version++) {
        sample_fill(f.topic, 1, 1, version, 0);
        assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
        mill_map_reclaim(f.writer);
        assert_true(sample_is_whole(held));
        assert_int_equal(held->settings.retention_ms, 1);
    }
    assert_true(mill_map_reclaim_pending(f.writer));
    mill_map_reader_state(f.map, 7, false);
    mill_map_reclaim(f.writer);
    mill_map_reclaim(f.writer);
    assert_false(mill_map_reclaim_pending(f.writer));
    close_fixture(&f, SIZE_BYTES);
}

/* A successor knows nothing of what its predecessor retired: it takes everything below the high
 * mark as held until all cores have turned. */
static void test_map_writer_open_spares_held_records(void **state)
{
    (void)state;
    struct fixture f = open_fixture(SIZE_BYTES, TOPICS_MAX);
    sample_fill(f.topic, 1, 1, 1, 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    mill_map_turn(f.map, 0);
    struct mill_uuid id = sample_id(1);
    const struct mill_map_topic *held = mill_map_topic_by_id(f.map, &id);
    assert_int_equal(mill_map_remove_topic(f.writer, &id), 0);
    reopen_writer(&f);
    for (uint32_t number = 10; number < 50; number++) {
        sample_fill(f.topic, number, number, 1, 0);
        assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    }
    assert_true(sample_is_whole(held));
    assert_int_equal(held->settings.retention_ms, 1);
    close_fixture(&f, SIZE_BYTES);
}

static void test_map_full_counts_and_recovers(void **state)
{
    (void)state;
    struct fixture f = open_fixture(SIZE_BYTES, TOPICS_MAX);
    uint32_t number = 0;
    int rc = 0;
    for (; rc == 0; number++) {
        sample_fill(f.topic, number, number, 1, 0);
        rc = mill_map_put_topic(f.writer, f.topic);
    }
    assert_int_equal(rc, -ENOSPC);
    assert_int_equal(number, TOPICS_MAX + 1);
    assert_int_equal(mill_map_full_count(f.map), 1);
    /* What is there can be changed and removed; then there is room again. */
    sample_fill(f.topic, 0, 0, 2, 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    struct mill_uuid id = sample_id(0);
    assert_int_equal(mill_map_remove_topic(f.writer, &id), 0);
    sample_fill(f.topic, TOPICS_MAX + 1, 0, 1, 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    close_fixture(&f, SIZE_BYTES);
}

static void test_map_bytes_full_returns_enospc(void **state)
{
    (void)state;
    enum { SMALL_BYTES = 64 << 10 };
    struct fixture f = open_fixture(SMALL_BYTES, 1024);
    uint32_t put = 0;
    int rc = 0;
    while (rc == 0) {
        sample_fill(f.topic, put, put, 1, 0);
        rc = mill_map_put_topic(f.writer, f.topic);
        put += rc == 0;
    }
    assert_int_equal(rc, -ENOSPC);
    assert_in_range(put, 5, 100);
    /* Nothing of the refused one is left, everything before it is whole. */
    for (uint32_t number = 0; number <= put; number++) {
        struct mill_uuid id = sample_id(number);
        const struct mill_map_topic *topic = mill_map_topic_by_id(f.map, &id);
        assert_int_equal(topic != NULL, number < put);
        assert_true(!topic || sample_is_whole(topic));
    }
    reopen_writer(&f);
    close_fixture(&f, SMALL_BYTES);
}

static void test_map_put_wrong_topic_refused(void **state)
{
    (void)state;
    struct fixture f = open_fixture(SIZE_BYTES, TOPICS_MAX);
    sample_fill(f.topic, 1, 1, 1, 0);
    f.topic->name_length = 0;
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), -EINVAL);
    f.topic->name_length = MILL_TOPIC_NAME_MAX + 1;
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), -EINVAL);
    sample_fill(f.topic, 1, 1, 1, 0);
    f.topic->partitions_count = 0;
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), -EINVAL);
    sample_fill(f.topic, 1, 1, 1, 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
    sample_fill(f.topic, 1, 2, 1, 0);
    assert_int_equal(mill_map_put_topic(f.writer, f.topic), -EINVAL);
    assert_null(mill_map_topic_by_name(f.map, "topic-2", 7));
    close_fixture(&f, SIZE_BYTES);
}

static void test_map_cluster_swapped_whole(void **state)
{
    (void)state;
    struct fixture f = open_fixture(SIZE_BYTES, TOPICS_MAX);
    assert_null(mill_map_cluster_read(f.map));
    struct mill_map_cluster *cluster =
        calloc(1, sizeof(*cluster) + 2 * sizeof(struct mill_map_broker));
    assert_non_null(cluster);
    for (uint32_t i = 0; i < 100; i++) {
        cluster->brokers_count = 1 + i % 2;
        cluster->brokers[i % 2].node_id = (int32_t)i;
        cluster->brokers[i % 2].endpoints_count = 1;
        assert_int_equal(mill_map_put_cluster(f.writer, cluster), 0);
        const struct mill_map_cluster *got = mill_map_cluster_read(f.map);
        assert_non_null(got);
        assert_int_equal(got->brokers[i % 2].node_id, i);
        mill_map_reclaim(f.writer);
    }
    free(cluster);
    close_fixture(&f, SIZE_BYTES);
}

/* --- damage ------------------------------------------------------------------------------------
 */

static void test_map_open_wrong_header_refused(void **state)
{
    (void)state;
    void *memory = sample_memory(SIZE_BYTES, TOPICS_MAX);
    struct mill_map *map = NULL;
    assert_int_equal(mill_map_open(memory, SIZE_BYTES - 1, &map), -EBADMSG);
    assert_int_equal(mill_map_open(memory, 16, &map), -EBADMSG);
    for (uint32_t word = 0; word < 5; word++) {
        uint32_t *at = (uint32_t *)memory + word;
        uint32_t kept = *at;
        *at ^= 0x1001;
        assert_int_equal(mill_map_open(memory, SIZE_BYTES, &map), -EBADMSG);
        *at = kept;
    }
    assert_null(map);
    munmap(memory, SIZE_BYTES);
}

/* Random bytes over the whole map behind the header: readers must neither crash nor read outside
 * (the map ends at an unmapped page), and a writer refuses or opens, but does not crash either. */
static void test_map_damaged_memory_is_survived(void **state)
{
    (void)state;
    enum { SMALL_BYTES = 64 << 10, HEADER_BYTES = 256 };
    struct mill_random random = {.state = 5};
    uint32_t refused = 0;
    for (int round = 0; round < 400; round++) {
        struct fixture f = open_fixture(SMALL_BYTES, 16);
        for (uint32_t number = 0; number < 12; number++) {
            sample_fill(f.topic, number, number, 1, 0);
            assert_int_equal(mill_map_put_topic(f.writer, f.topic), 0);
        }
        uint8_t *bytes = f.memory;
        for (int i = 0; i < 3000; i++) {
            uint32_t at = HEADER_BYTES + mill_random_below(&random, SMALL_BYTES - HEADER_BYTES);
            bytes[at] = (uint8_t)mill_random_next(&random);
        }
        uint64_t sum = 0;
        for (uint32_t number = 0; number < 16; number++) {
            struct mill_uuid id = sample_id(number);
            char text[32];
            int length = snprintf(text, sizeof(text), "topic-%u", number);
            const struct mill_map_topic *found[3] = {
                mill_map_topic_by_id(f.map, &id),
                mill_map_topic_by_name(f.map, text, (uint32_t)length),
                mill_map_topic_at(f.map, number),
            };
            for (int i = 0; i < 3; i++) {
                if (found[i] && found[i]->partitions_count > 0) {
                    sum += (uint64_t)found[i]->partitions[found[i]->partitions_count - 1].leader;
                }
            }
        }
        (void)mill_map_cluster_read(f.map);
        struct mill_map_writer *second = NULL;
        struct mill_report report = {0};
        int rc = mill_map_writer_open(f.map, &second, &report);
        assert_true(rc == 0 || rc == -EBADMSG);
        refused += rc < 0;
        assert_true(rc == 0 || report.text[0] != '\0');
        mill_map_writer_close(second);
        close_fixture(&f, SMALL_BYTES);
        assert_true(sum != 1); /* the sum is there so that the reads are not left out */
    }
    assert_true(refused > 100);
}

/* --- kill --------------------------------------------------------------------------------------
 */

static void churn_forever(void *memory, uint64_t seed)
{
    struct mill_map *map = NULL;
    struct mill_map_writer *writer = NULL;
    struct mill_map_topic *topic = sample_room();
    struct mill_random random = {.state = seed};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mill_map_open(memory, SIZE_BYTES, &map) < 0 ||
        mill_map_writer_open(map, &writer, NULL) < 0) {
        _exit(1);
    }
    for (;;) {
        uint32_t number = mill_random_below(&random, NUMBERS);
        uint32_t what = mill_random_below(&random, 10);
        struct mill_uuid id = sample_id(number);
        if (what < 7) {
            sample_fill(topic, number, number % NAMES, (uint32_t)mill_random_next(&random) >> 8,
                        what == 0 ? MILL_TOPIC_DELETING : 0);
            int rc = mill_map_put_topic(writer, topic);
            if (rc < 0 && rc != -ENOSPC) {
                _exit(2);
            }
        } else {
            int rc = mill_map_remove_topic(writer, &id);
            if (rc < 0 && rc != -ENOENT) {
                _exit(3);
            }
        }
        mill_map_reclaim(writer);
    }
}

/* ret: records seen. */
static uint32_t read_all(struct mill_map *map)
{
    uint32_t seen = 0;
    mill_map_turn(map, 0);
    for (uint32_t number = 0; number < NUMBERS; number++) {
        struct mill_uuid id = sample_id(number);
        char text[32];
        int length = snprintf(text, sizeof(text), "topic-%u", number % NAMES);
        const struct mill_map_topic *topic = mill_map_topic_by_id(map, &id);
        if (topic) {
            assert_true(sample_is_whole(topic));
            assert_memory_equal(&topic->id, &id, sizeof(id));
            seen++;
        }
        topic = mill_map_topic_by_name(map, text, (uint32_t)length);
        if (topic) {
            assert_true(sample_is_whole(topic));
            assert_string_equal(topic->name, text);
        }
    }
    return seen;
}

static void test_map_writer_killed_leaves_old_or_new(void **state)
{
    (void)state;
    void *memory = sample_memory(SIZE_BYTES, TOPICS_MAX);
    struct mill_map *map = NULL;
    struct mill_random random = {.state = 77};
    uint64_t seen = 0;
    assert_int_equal(mill_map_open(memory, SIZE_BYTES, &map), 0);
    for (int round = 0; round < KILL_ROUNDS; round++) {
        uint64_t seed = mill_random_next(&random);
        uint64_t before = mill_map_generation(map);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            churn_forever(memory, seed);
        }
        /* At work first, however slow the machine is; at most ten seconds. Reading on gives the
         * writer its old records back. */
        struct timespec pause = {.tv_nsec = 200000};
        for (uint32_t i = 0; i < 50000 && mill_map_generation(map) < before + 100; i++) {
            seen += read_all(map);
            nanosleep(&pause, NULL);
        }
        uint64_t until = mill_now_read().mono_ns + MILL_NS_PER_MS +
                         mill_random_below(&random, 8 * MILL_NS_PER_MS);
        while (mill_now_read().mono_ns < until) {
            seen += read_all(map);
        }
        kill(child, SIGKILL);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        seen += read_all(map);
        /* The successor finds every record by id, and each name leads to one that has it. */
        struct mill_map_writer *writer = NULL;
        struct mill_report report = {0};
        assert_int_equal(mill_map_writer_open(map, &writer, &report), 0);
        for (uint32_t slot = 0; slot < mill_map_slots(map); slot++) {
            const struct mill_map_topic *topic = mill_map_topic_at(map, slot);
            if (topic) {
                assert_ptr_equal(mill_map_topic_by_id(map, &topic->id), topic);
                const struct mill_map_topic *named =
                    mill_map_topic_by_name(map, topic->name, topic->name_length);
                assert_non_null(named);
                assert_string_equal(named->name, topic->name);
            }
        }
        mill_map_writer_close(writer);
    }
    assert_true(seen > 0);
    mill_map_close(map);
    munmap(memory, SIZE_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_random_changes_equal_model),
        cmocka_unit_test(test_map_put_takes_name_of_deleting),
        cmocka_unit_test(test_map_generation_rises_with_each_change),
        cmocka_unit_test(test_map_awake_reader_keeps_old_record),
        cmocka_unit_test(test_map_writer_open_spares_held_records),
        cmocka_unit_test(test_map_full_counts_and_recovers),
        cmocka_unit_test(test_map_bytes_full_returns_enospc),
        cmocka_unit_test(test_map_put_wrong_topic_refused),
        cmocka_unit_test(test_map_cluster_swapped_whole),
        cmocka_unit_test(test_map_open_wrong_header_refused),
        cmocka_unit_test(test_map_damaged_memory_is_survived),
        cmocka_unit_test(test_map_writer_killed_leaves_old_or_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
