/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a session is what was put into it, in its order, until it is closed; who is pushed out for
 * whom is Kafka's rule; bounds hold and are counted; nothing leaks. Method: the cases by hand on
 * virtual time, then random calls beside a model in plain arrays; the seed is printed. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "dataplane/core/fetch_sessions.h"

#define NONE ((uint32_t)MILL_FETCH_SESSION_NONE)

enum {
    SLOTS = 4,
    PARTS = 40,
    SESSION_PARTS = 16,
    TOPICS = 6,
    TOPICS_MADE = 8, /* more than there is room for */
    PARTITIONS = 5,
    ROUNDS = 60000,
};

static const uint64_t old_ns = 121 * MILL_NS_PER_S;

static struct mill_fetch_sessions *sessions_make(uint32_t core, uint32_t cores_count)
{
    const struct mill_fetch_session_limits limits = {
        .fetch_sessions_max = SLOTS,
        .parts_max = PARTS,
        .fetch_session_parts_max = SESSION_PARTS,
        .topics_max = TOPICS,
        .core = core,
        .cores_count = cores_count,
        .key = {7, 9},
    };
    struct mill_fetch_sessions *sessions = NULL;
    assert_int_equal(mill_fetch_sessions_create(&limits, &sessions), 0);
    return sessions;
}

static uint32_t take(struct mill_fetch_sessions *sessions, uint32_t number)
{
    char name[16];
    struct mill_uuid id = {{0}};
    if (number % 2 == 0) { /* every other by its id */
        id.b[3] = (uint8_t)(number + 1);
        return mill_fetch_session_topic_take(sessions, &id, "");
    }
    snprintf(name, sizeof(name), "topic-%u", number);
    return mill_fetch_session_topic_take(sessions, &id, name);
}

static uint32_t put(struct mill_fetch_sessions *sessions, struct mill_fetch_session *session,
                    uint32_t number, int32_t partition)
{
    uint32_t topic = take(sessions, number);
    if (topic == NONE) {
        return NONE;
    }
    uint32_t part = mill_fetch_session_part_put(sessions, session, topic, partition);
    mill_fetch_session_topic_give(sessions, topic);
    return part;
}

static struct mill_fetch_session *make(struct mill_fetch_sessions *sessions, uint32_t count,
                                       bool privileged, uint64_t now_ns)
{
    struct mill_fetch_session *session =
        mill_fetch_session_open(sessions, count, false, privileged, now_ns);
    for (uint32_t i = 0; session && i < count; i++) {
        assert_int_not_equal(put(sessions, session, 1, (int32_t)i), NONE);
    }
    return session;
}

/* --- by hand ---------------------------------------------------------------------------------- */

static void test_ids_lead_to_their_core_only(void **state)
{
    (void)state;
    struct mill_fetch_sessions *cores[3];
    for (uint32_t i = 0; i < 3; i++) {
        cores[i] = sessions_make(i, 3);
    }
    for (uint32_t i = 0; i < 3 * SLOTS; i++) {
        struct mill_fetch_session *session = make(cores[i % 3], 1, false, 1);
        assert_non_null(session);
        assert_true(session->id > 0);
        for (uint32_t k = 0; k < 3; k++) {
            assert_ptr_equal(mill_fetch_session_find(cores[k], session->id),
                             k == i % 3 ? session : NULL);
        }
    }
    assert_null(mill_fetch_session_find(cores[0], 0));
    assert_null(mill_fetch_session_find(cores[0], -5));
    for (uint32_t i = 0; i < 3; i++) {
        mill_fetch_sessions_destroy(cores[i]);
    }
}

static void test_old_id_is_not_a_newer_sessions(void **state)
{
    (void)state;
    struct mill_fetch_sessions *sessions = sessions_make(0, 1);
    int32_t ids[64];
    for (uint32_t i = 0; i < MILL_COUNT_OF(ids); i++) {
        struct mill_fetch_session *session = make(sessions, 1, false, 1);
        ids[i] = session->id;
        for (uint32_t k = 0; k < i; k++) {
            assert_null(mill_fetch_session_find(sessions, ids[k]));
        }
        mill_fetch_session_close(sessions, session);
    }
    mill_fetch_sessions_destroy(sessions);
}

static void test_epochs_count_and_wrap_to_one(void **state)
{
    (void)state;
    struct mill_fetch_sessions *sessions = sessions_make(0, 1);
    struct mill_fetch_session *session = make(sessions, 1, false, 1);
    assert_int_equal(session->epoch, 1);
    mill_fetch_session_touch(sessions, session, 2);
    assert_int_equal(session->epoch, 2);
    session->epoch = INT32_MAX;
    mill_fetch_session_touch(sessions, session, 3);
    assert_int_equal(session->epoch, 1);
    mill_fetch_sessions_destroy(sessions);
}

static void test_told_is_what_changed(void **state)
{
    (void)state;
    struct mill_fetch_fetch_session_part part = {.high_watermark = -1, .start_offset = -1};
    assert_true(mill_fetch_session_part_told(&part, false, 0, 5, 0)); /* the first time */
    assert_false(mill_fetch_session_part_told(&part, false, 0, 5, 0));
    assert_true(mill_fetch_session_part_told(&part, false, 10, 5, 0)); /* records */
    assert_true(mill_fetch_session_part_told(&part, false, 0, 6, 0));  /* high watermark */
    assert_true(mill_fetch_session_part_told(&part, false, 0, 6, 2));  /* start */
    assert_false(mill_fetch_session_part_told(&part, false, 0, 6, 2));
    assert_true(mill_fetch_session_part_told(&part, true, 0, -1, -1)); /* each time */
    assert_true(mill_fetch_session_part_told(&part, true, 0, -1, -1));
    assert_true(mill_fetch_session_part_told(&part, false, 0, 6, 2)); /* and its end */
    assert_false(mill_fetch_session_part_told(&part, false, 0, 6, 2));
}

/* Full of sessions of 2 to 5 partitions; the newcomer comes later_ns after them. */
static struct mill_fetch_sessions *full(bool privileged)
{
    struct mill_fetch_sessions *sessions = sessions_make(0, 1);
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_non_null(make(sessions, 2 + i, privileged, MILL_NS_PER_S));
    }
    return sessions;
}

static void test_young_sessions_stay(void **state)
{
    (void)state;
    struct mill_fetch_sessions *sessions = full(false);
    assert_null(make(sessions, 9, false, 100 * MILL_NS_PER_S));
    assert_int_equal(mill_fetch_sessions_stats(sessions)->refused, 1);
    assert_int_equal(mill_fetch_sessions_stats(sessions)->sessions, SLOTS);
    /* A follower pushes out the least of a client's sessions, young or not. */
    struct mill_fetch_session *follower = make(sessions, 9, true, 100 * MILL_NS_PER_S);
    assert_non_null(follower);
    assert_int_equal(mill_fetch_sessions_stats(sessions)->evictions, 1);
    assert_int_equal(mill_fetch_sessions_stats(sessions)->parts, 3 + 4 + 5 + 9);
    mill_fetch_sessions_destroy(sessions);
}

static void test_unused_session_makes_room_for_any(void **state)
{
    (void)state;
    struct mill_fetch_sessions *sessions = full(true);
    uint64_t now_ns = MILL_NS_PER_S + old_ns;
    assert_non_null(make(sessions, 1, false, now_ns)); /* of a client, and the smallest */
    assert_int_equal(mill_fetch_sessions_stats(sessions)->evictions, 1);
    mill_fetch_sessions_destroy(sessions);
}

static void test_old_but_used_yield_to_greater_ones(void **state)
{
    (void)state;
    struct mill_fetch_sessions *sessions = sessions_make(0, 1);
    struct mill_fetch_session *made[SLOTS];
    for (uint32_t i = 0; i < SLOTS; i++) {
        made[i] = make(sessions, 2 + i, false, MILL_NS_PER_S);
    }
    int32_t least = made[0]->id;
    for (uint32_t i = 0; i < SLOTS; i++) {
        mill_fetch_session_touch(sessions, made[i], 100 * MILL_NS_PER_S);
    }
    uint64_t now_ns = MILL_NS_PER_S + old_ns;
    assert_null(make(sessions, 2, false, now_ns)); /* as small as the least: worth no more */
    assert_non_null(mill_fetch_session_find(sessions, least));
    assert_non_null(make(sessions, 3, false, now_ns));
    assert_null(mill_fetch_session_find(sessions, least));
    mill_fetch_sessions_destroy(sessions);
}

static void test_partitions_are_bounded(void **state)
{
    (void)state;
    struct mill_fetch_sessions *sessions = sessions_make(0, 1);
    assert_null(make(sessions, SESSION_PARTS + 1, false, 1));
    for (uint32_t i = 0; i < 2; i++) {
        assert_non_null(make(sessions, SESSION_PARTS, false, 1));
    }
    assert_null(make(sessions, PARTS - 2 * SESSION_PARTS + 1, false, 1));
    struct mill_fetch_session *last = make(sessions, PARTS - 2 * SESSION_PARTS, false, 1);
    assert_non_null(last);
    assert_int_equal(put(sessions, last, 1, 77), NONE);
    assert_int_equal(mill_fetch_sessions_stats(sessions)->refused, 2);
    mill_fetch_session_refuse(sessions, last);
    assert_int_equal(mill_fetch_sessions_stats(sessions)->refused, 3);
    assert_int_equal(mill_fetch_sessions_stats(sessions)->parts, 2 * SESSION_PARTS);
    mill_fetch_sessions_destroy(sessions);
}

static void test_topics_are_bounded_and_come_back(void **state)
{
    (void)state;
    struct mill_fetch_sessions *sessions = sessions_make(0, 1);
    uint32_t topics[TOPICS];
    for (uint32_t i = 0; i < TOPICS; i++) {
        topics[i] = take(sessions, i);
        assert_int_not_equal(topics[i], NONE);
    }
    assert_int_equal(take(sessions, TOPICS), NONE);
    assert_int_equal(take(sessions, 2), topics[2]); /* a second reference */
    mill_fetch_session_topic_give(sessions, topics[2]);
    mill_fetch_session_topic_give(sessions, topics[2]);
    assert_int_equal(take(sessions, TOPICS), topics[2]);
    mill_fetch_sessions_destroy(sessions);
}

static void test_no_slots_refuse_quietly(void **state)
{
    (void)state;
    const struct mill_fetch_session_limits limits = {.cores_count = 1};
    struct mill_fetch_sessions *sessions = NULL;
    assert_int_equal(mill_fetch_sessions_create(&limits, &sessions), 0);
    assert_null(mill_fetch_session_open(sessions, 1, false, false, 1));
    assert_null(mill_fetch_session_find(sessions, 5));
    assert_int_equal(mill_fetch_sessions_stats(sessions)->refused, 0);
    mill_fetch_sessions_destroy(sessions);
}

/* --- model ------------------------------------------------------------------------------------ */

struct model_part {
    uint32_t number; /* of its topic */
    int32_t partition;
    int64_t offset;
};

struct model_session {
    struct mill_fetch_session *real; /* NULL: free */
    int32_t id;
    bool privileged;
    uint64_t created_ns;
    uint64_t used_ns;
    uint64_t used_order;
    uint32_t count;
    struct model_part parts[SESSION_PARTS];
};

struct model {
    struct mill_fetch_sessions *sessions;
    struct mill_random random;
    uint64_t now_ns;
    uint64_t order;
    uint64_t evictions;
    struct model_session all[SLOTS];
};

static uint32_t model_parts(const struct model *model)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        sum += model->all[i].real ? model->all[i].count : 0;
    }
    return sum;
}

static uint32_t model_topics(const struct model *model)
{
    bool used[TOPICS_MADE] = {false};
    uint32_t sum = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        for (uint32_t k = 0; model->all[i].real && k < model->all[i].count; k++) {
            sum += !used[model->all[i].parts[k].number];
            used[model->all[i].parts[k].number] = true;
        }
    }
    return sum;
}

static bool topic_known(const struct model *model, uint32_t number)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        for (uint32_t k = 0; model->all[i].real && k < model->all[i].count; k++) {
            if (model->all[i].parts[k].number == number) {
                return true;
            }
        }
    }
    return false;
}

/* Kafka's key of eviction, as one number. */
static uint64_t worth(bool privileged, uint32_t count, int32_t id)
{
    return (uint64_t)privileged << 63 | (uint64_t)count << 32 | (uint32_t)id;
}

/* ret: who goes for the newcomer; SLOTS: nobody. */
static uint32_t model_victim(const struct model *model, bool privileged, uint32_t count)
{
    uint32_t oldest = SLOTS;
    uint32_t least = SLOTS;
    for (uint32_t i = 0; i < SLOTS; i++) {
        const struct model_session *one = &model->all[i];
        if (!one->real) {
            continue;
        }
        if (oldest == SLOTS || one->used_order < model->all[oldest].used_order) {
            oldest = i;
        }
        bool open = model->now_ns - one->created_ns > 120 * MILL_NS_PER_S ||
                    (privileged && !one->privileged);
        if (open && (least == SLOTS || worth(one->privileged, one->count, one->id) <
                                           worth(model->all[least].privileged,
                                                 model->all[least].count, model->all[least].id))) {
            least = i;
        }
    }
    if (oldest < SLOTS && model->now_ns - model->all[oldest].used_ns > 120 * MILL_NS_PER_S) {
        return oldest;
    }
    bool yields = least < SLOTS && worth(model->all[least].privileged, model->all[least].count,
                                         model->all[least].id) < worth(privileged, count, 0);
    return yields ? least : SLOTS;
}

/* ret: free slot of the model when there is room after it made some; SLOTS: refused. */
static uint32_t model_room(struct model *model, bool privileged, uint32_t count)
{
    if (count > SESSION_PARTS) {
        return SLOTS;
    }
    for (;;) {
        uint32_t slot = SLOTS;
        for (uint32_t i = 0; i < SLOTS; i++) {
            slot = model->all[i].real ? slot : i;
        }
        if (slot < SLOTS && PARTS - model_parts(model) >= count) {
            return slot;
        }
        uint32_t victim = model_victim(model, privileged, count);
        if (victim == SLOTS) {
            return SLOTS;
        }
        model->all[victim] = (struct model_session){0};
        model->evictions++;
    }
}

/* A part put into both. */
static void put_both(struct model *model, struct model_session *one)
{
    uint32_t number = mill_random_below(&model->random, TOPICS_MADE);
    int32_t partition = (int32_t)mill_random_below(&model->random, PARTITIONS);
    int64_t offset = (int64_t)mill_random_below(&model->random, 1000);
    uint32_t at = 0;
    while (at < one->count &&
           (one->parts[at].number != number || one->parts[at].partition != partition)) {
        at++;
    }
    bool room = topic_known(model, number) || model_topics(model) < TOPICS;
    room = at < one->count || (room && one->count < SESSION_PARTS && model_parts(model) < PARTS);
    uint32_t part = put(model->sessions, one->real, number, partition);
    assert_int_equal(part != NONE, room);
    if (!room) {
        return;
    }
    mill_fetch_session_part_at(model->sessions, part)->offset = offset;
    one->parts[at] = (struct model_part){number, partition, offset};
    one->count += at == one->count;
}

static void open_both(struct model *model)
{
    uint32_t count = mill_random_below(&model->random, SESSION_PARTS + 2);
    bool privileged = mill_random_below(&model->random, 4) == 0;
    uint32_t slot = model_room(model, privileged, count);
    struct mill_fetch_session *real =
        mill_fetch_session_open(model->sessions, count, false, privileged, model->now_ns);
    assert_int_equal(real != NULL, slot < SLOTS);
    if (!real) {
        return;
    }
    struct model_session *one = &model->all[slot];
    *one = (struct model_session){
        .real = real,
        .id = real->id,
        .privileged = privileged,
        .created_ns = model->now_ns,
        .used_ns = model->now_ns,
        .used_order = ++model->order,
    };
    for (uint32_t i = 0; i < count; i++) {
        put_both(model, one);
    }
}

static void forget_both(struct model *model, struct model_session *one)
{
    uint32_t number = mill_random_below(&model->random, TOPICS_MADE);
    int32_t partition = (int32_t)mill_random_below(&model->random, PARTITIONS);
    uint32_t topic = take(model->sessions, number);
    if (topic == NONE) {
        return;
    }
    bool had = false;
    for (uint32_t i = 0; i < one->count; i++) {
        if (one->parts[i].number == number && one->parts[i].partition == partition) {
            memmove(&one->parts[i], &one->parts[i + 1],
                    (one->count - i - 1) * sizeof(one->parts[0]));
            one->count--;
            had = true;
            break;
        }
    }
    assert_int_equal(mill_fetch_session_part_forget(model->sessions, one->real, topic, partition),
                     had);
    mill_fetch_session_topic_give(model->sessions, topic);
}

static void last_both(struct model *model, struct model_session *one)
{
    if (one->count == 0) {
        return;
    }
    uint32_t at = mill_random_below(&model->random, one->count);
    uint32_t part = one->real->first;
    for (uint32_t i = 0; i < at; i++) {
        part = mill_fetch_session_part_at(model->sessions, part)->next;
    }
    mill_fetch_session_part_last(model->sessions, one->real, part);
    struct model_part moved = one->parts[at];
    memmove(&one->parts[at], &one->parts[at + 1], (one->count - at - 1) * sizeof(moved));
    one->parts[one->count - 1] = moved;
}

static void compare(const struct model *model)
{
    const struct mill_fetch_session_stats *stats = mill_fetch_sessions_stats(model->sessions);
    uint32_t count = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        const struct model_session *one = &model->all[i];
        if (!one->real) {
            continue;
        }
        count++;
        assert_ptr_equal(mill_fetch_session_find(model->sessions, one->id), one->real);
        assert_int_equal(one->real->count, one->count);
        uint32_t part = one->real->first;
        for (uint32_t k = 0; k < one->count; k++) {
            const struct mill_fetch_fetch_session_part *real =
                mill_fetch_session_part_at(model->sessions, part);
            const struct mill_fetch_session_topic *topic =
                mill_fetch_session_topic_at(model->sessions, real->topic);
            const struct model_part *wanted = &one->parts[k];
            assert_int_equal(real->partition, wanted->partition);
            assert_int_equal(real->offset, wanted->offset);
            if (wanted->number % 2 == 0) {
                assert_int_equal(topic->id.b[3], wanted->number + 1);
            } else {
                assert_int_equal(strtol(topic->name + strlen("topic-"), NULL, 10), wanted->number);
            }
            part = real->next;
        }
        assert_int_equal(part, NONE);
    }
    assert_int_equal(stats->sessions, count);
    assert_int_equal(stats->parts, model_parts(model));
    assert_int_equal(stats->evictions, model->evictions);
}

static void test_random_calls_same_as_model(void **state)
{
    (void)state;
    static struct model model;
    const char *given = getenv("MILL_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 20;
    printf("seed %llu\n", (unsigned long long)seed);
    model = (struct model){.sessions = sessions_make(1, 2), .random = {seed}};
    model.now_ns = 1000 * MILL_NS_PER_S;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct model_session *one = &model.all[mill_random_below(&model.random, SLOTS)];
        uint32_t what = mill_random_below(&model.random, 16);
        model.now_ns += mill_random_below(&model.random, 8) * MILL_NS_PER_S;
        if (what < 2) {
            open_both(&model);
        } else if (one->real && what < 3) {
            mill_fetch_session_close(model.sessions, one->real);
            *one = (struct model_session){0};
        } else if (one->real && what < 7) {
            put_both(&model, one);
        } else if (one->real && what < 10) {
            forget_both(&model, one);
        } else if (one->real && what < 13) {
            last_both(&model, one);
        } else if (one->real) {
            mill_fetch_session_touch(model.sessions, one->real, model.now_ns);
            one->used_ns = model.now_ns;
            one->used_order = ++model.order;
        }
        compare(&model);
    }
    assert_true(model.evictions > ROUNDS / 1000);
    mill_fetch_sessions_destroy(model.sessions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_lead_to_their_core_only),
        cmocka_unit_test(test_old_id_is_not_a_newer_sessions),
        cmocka_unit_test(test_epochs_count_and_wrap_to_one),
        cmocka_unit_test(test_told_is_what_changed),
        cmocka_unit_test(test_young_sessions_stay),
        cmocka_unit_test(test_unused_session_makes_room_for_any),
        cmocka_unit_test(test_old_but_used_yield_to_greater_ones),
        cmocka_unit_test(test_partitions_are_bounded),
        cmocka_unit_test(test_topics_are_bounded_and_come_back),
        cmocka_unit_test(test_no_slots_refuse_quietly),
        cmocka_unit_test(test_random_calls_same_as_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
