/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever members of a group of the consumer protocol do, and whatever does not reach the
 * log, no partition is owned by two of them; memory is what the log says; and once nothing happens
 * any more, everything is shared out and at rest. Method: a seeded crowd over the state machine
 * (consumer_rig.h) that joins, speaks, gives up late, leaves, dies, comes back under its name or
 * with another subscription, while topics come, grow and go, answers are lost and writes fail; the
 * log is replayed into another group now and then. And the assignors alone, on random groups. */
#include "tests/unit/control/consumer_rig.h"

#include <time.h>

enum {
    CROWD = 7,
    SEEDS = 60,
    STEPS = 2500,
    TOPICS = 3,
};

struct person {
    struct client client;
    bool in;      /* it thinks that it is a member */
    bool owns;    /* and that it has what it was told */
    bool clings;  /* it gives up late */
    uint32_t ids; /* it had */
};

static void check_owners(const struct rig *rig, const struct person *crowd)
{
    for (uint32_t i = 0; i < CROWD; i++) {
        for (uint32_t k = i + 1; k < CROWD; k++) {
            const struct client *a = &crowd[i].client;
            const struct client *b = &crowd[k].client;
            /* One that was removed meanwhile is fenced: its commits are refused. */
            bool both = crowd[i].in && crowd[k].in && mill_consumer_find(rig->group, a->id) &&
                        mill_consumer_find(rig->group, b->id);
            for (uint32_t p = 0; both && p < a->owned_count; p++) {
                struct mill_parts other = {(void *)(uintptr_t)b->owned, b->owned_count};
                assert_null(mill_parts_find(&other, &a->owned[p].topic, a->owned[p].partition));
            }
        }
    }
}

/* The group as it stands in the log is the group in memory. */
static void check_log(struct rig *rig)
{
    struct mill_group *loaded = mill_group_new("group");
    const struct mill_group *known = rig->group;
    assert_non_null(loaded);
    uint64_t due_ns = rig->due_ns;
    for (uint32_t i = 0; i < rig->log_count; i++) {
        rig_apply(&rig->env, loaded, &rig->log[i]);
    }
    if (loaded->consumers) {
        mill_consumer_resume(&rig->env, loaded);
    }
    rig->due_ns = due_ns;
    assert_int_equal(loaded->generation, known->generation);
    assert_int_equal(loaded->consumers != NULL, known->consumers != NULL);
    if (known->consumers) {
        assert_int_equal(loaded->consumers->count, known->consumers->count);
        assert_int_equal(loaded->consumers->assignment_epoch, known->consumers->assignment_epoch);
        assert_int_equal(loaded->consumers->hash, known->consumers->hash);
    }
    const struct mill_consumer *member = known->consumers ? known->consumers->first : NULL;
    for (; member; member = member->next) {
        const struct mill_consumer *other = mill_consumer_find(loaded, member->id);
        assert_non_null(other);
        assert_int_equal(other->epoch, member->epoch);
        assert_int_equal(other->previous_epoch, member->previous_epoch);
        assert_int_equal(other->state, member->state);
        assert_int_equal(other->names_count, member->names_count);
        assert_true(mill_parts_equal(&other->assigned, &member->assigned));
        assert_true(mill_parts_equal(&other->revoking, &member->revoking));
        assert_true(mill_parts_equal(&other->target, &member->target));
    }
    mill_group_free(&rig->shared, loaded);
}

static void choose(struct rig *rig, struct person *person)
{
    static const char *const names[TOPICS] = {"logs", "more", "late"};
    struct client *client = &person->client;
    uint32_t dice = mill_random_below(&rig->random, 6);
    client->topic = names[mill_random_below(&rig->random, TOPICS)];
    client->topic2 = dice < 3 ? names[mill_random_below(&rig->random, TOPICS)] : NULL;
    client->regex = dice == 3 ? "l.*" : dice == 4 ? "[m-z].+" : "";
    client->assignor = mill_random_below(&rig->random, 4) == 0 ? "range" : NULL;
}

static void begin_anew(struct rig *rig, struct person *person, uint32_t index)
{
    snprintf(person->client.id, sizeof(person->client.id), "p%u-%u", index, person->ids++);
    person->client.owned_count = 0;
    person->in = false;
    if (mill_random_below(&rig->random, 2) == 0) {
        choose(rig, person);
    }
}

static void person_speaks(struct rig *rig, struct person *person, uint32_t index)
{
    struct client *client = &person->client;
    static struct client lost;
    bool deaf = mill_random_below(&rig->random, 12) == 0; /* the answer does not arrive */
    rig->lose = mill_random_below(&rig->random, 12) == 0;
    lost = *client;
    if (!person->in) {
        rig_join(rig, client);
        person->in = client->error == 0 && !deaf;
    } else if (person->clings && client->told && mill_random_below(&rig->random, 3) > 0) {
        rig_beat(rig, client, client->epoch, false,
                 false); /* still busy with what it must give up */
    } else {
        rig_go_on(rig, client);
    }
    rig->lose = false;
    if (client->error == MILL_KERR_COORDINATOR_NOT_AVAILABLE || (deaf && client->error == 0)) {
        bool joined = person->in || client->error == 0;
        int16_t error = client->error;
        *client = lost;
        client->error = error;
        client->told = joined; /* it says everything again */
    } else if (client->error != 0) {
        assert_true(client->error == MILL_KERR_FENCED_MEMBER_EPOCH ||
                    client->error == MILL_KERR_UNKNOWN_MEMBER_ID ||
                    client->error == MILL_KERR_FENCED_INSTANCE_ID ||
                    client->error == MILL_KERR_GROUP_ID_NOT_FOUND ||
                    client->error == MILL_KERR_UNRELEASED_INSTANCE_ID);
        begin_anew(rig, person, index);
    }
}

static void disturb(struct rig *rig, struct person *crowd)
{
    uint32_t index = mill_random_below(&rig->random, CROWD);
    struct person *person = &crowd[index];
    uint32_t dice = mill_random_below(&rig->random, 10);
    if (dice < 3) {
        bool awhile = person->client.instance && dice == 0;
        if (person->in) {
            rig_beat(rig, &person->client,
                     awhile ? MILL_CONSUMER_LEAVES_AWHILE : MILL_CONSUMER_LEAVES, false, false);
        }
        begin_anew(rig, person, index);
    } else if (dice < 5) {
        begin_anew(rig, person, index); /* killed */
    } else if (dice < 8) {
        static const char *const names[TOPICS] = {"logs", "more", "late"};
        uint32_t topic = mill_random_below(&rig->random, TOPICS);
        uint32_t count = mill_random_below(&rig->random, 6);
        count = count == 0 ? 0 : MILL_MAX(count, rig->topics[topic].partitions);
        rig_topic(rig, topic, names[topic], count);
    } else {
        rig_pass(rig, mill_random_below(&rig->random, SESSION_MS));
    }
    check_log(rig);
}

/* Everybody speaks until nothing changes any more; then all is shared out. */
static void check_rest(struct rig *rig, struct person *crowd)
{
    for (uint32_t i = 0; i < CROWD; i++) {
        crowd[i].clings = false;
        crowd[i].client.topic = "logs";
        crowd[i].client.topic2 = "more";
        crowd[i].client.regex = "";
        crowd[i].client.assignor = NULL;
        if (crowd[i].in) {
            rig_beat(rig, &crowd[i].client, MILL_CONSUMER_LEAVES, false, false);
        }
        begin_anew(rig, &crowd[i], i + 100);
        crowd[i].client.topic = "logs";
        crowd[i].client.topic2 = "more";
        crowd[i].client.regex = "";
        crowd[i].client.assignor = NULL;
    }
    rig_topic(rig, 0, "logs", 9);
    rig_topic(rig, 1, "more", 8);
    rig_pass(rig, SESSION_MS + 1);
    for (uint32_t round = 0; round < 8; round++) {
        for (uint32_t i = 0; i < CROWD; i++) {
            struct client *client = &crowd[i].client;
            if (round == 0) {
                rig_join(rig, client);
            } else {
                rig_go_on(rig, client);
            }
            assert_int_equal(client->error, 0);
            crowd[i].in = true;
        }
        check_owners(rig, crowd);
    }
    uint32_t owned = 0;
    for (uint32_t i = 0; i < CROWD; i++) {
        assert_in_range(crowd[i].client.owned_count, 17 / CROWD, 17 / CROWD + 1);
        assert_int_equal(crowd[i].client.epoch, rig->group->generation);
        owned += crowd[i].client.owned_count;
    }
    assert_int_equal(owned, 17);
    assert_int_equal(mill_consumer_group_state(rig->group), MILL_GROUP_STABLE);
    check_log(rig);
}

static void crowd_run(uint64_t seed)
{
    static struct rig rig;
    static struct person crowd[CROWD];
    uint32_t assigned = 0;
    rig_open(&rig, seed);
    rig_topic(&rig, 0, "logs", 4);
    memset(crowd, 0, sizeof(crowd));
    for (uint32_t i = 0; i < CROWD; i++) {
        crowd[i].client.instance = i == 0 ? "first" : i == 1 ? "second" : NULL;
        crowd[i].clings = i % 3 == 2;
        choose(&rig, &crowd[i]);
        begin_anew(&rig, &crowd[i], i);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t index = mill_random_below(&rig.random, CROWD);
        person_speaks(&rig, &crowd[index], index);
        assigned += crowd[index].client.owned_count > 0;
        check_owners(&rig, crowd);
        rig_pass(&rig, mill_random_below(&rig.random, 1000));
        if (mill_random_below(&rig.random, 40) == 0) {
            disturb(&rig, crowd);
            check_owners(&rig, crowd);
        }
    }
    assert_true(assigned > STEPS / 10);
    check_rest(&rig, crowd);
    rig_close(&rig);
}

static void test_crowd_never_owns_twice(void **state)
{
    MILL_UNUSED(state);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        crowd_run(seed);
    }
}

/* --- assignors ------------------------------------------------------------------------------- */

enum {
    ASSIGN_MEMBERS = 9,
    ASSIGN_TOPICS = 5,
};

struct case_of {
    struct mill_assign_topic topics[ASSIGN_TOPICS];
    uint32_t topics_count;
    struct mill_assign_member members[ASSIGN_MEMBERS];
    struct mill_assign_topic subscribed[ASSIGN_MEMBERS][ASSIGN_TOPICS];
    char ids[ASSIGN_MEMBERS][12];
    uint32_t count;
};

static void case_make(struct mill_random *random, struct case_of *of, bool same)
{
    of->topics_count = 1 + mill_random_below(random, ASSIGN_TOPICS);
    of->count = 1 + mill_random_below(random, ASSIGN_MEMBERS);
    for (uint32_t t = 0; t < of->topics_count; t++) {
        of->topics[t] = (struct mill_assign_topic){
            .id = {{(uint8_t)(t + 1)}}, .partitions_count = mill_random_below(random, 12)};
    }
    for (uint32_t i = 0; i < of->count; i++) {
        struct mill_assign_member *member = &of->members[i];
        snprintf(of->ids[i], sizeof(of->ids[i]), "m%u", i);
        *member = (struct mill_assign_member){.id = of->ids[i], .topics = of->subscribed[i]};
        for (uint32_t t = 0; t < of->topics_count; t++) {
            if (same || mill_random_below(random, 2) == 0) {
                of->subscribed[i][member->topics_count++] = of->topics[t];
            }
        }
    }
}

static bool subscribes(const struct mill_assign_member *member, const struct mill_uuid *topic)
{
    for (uint32_t t = 0; t < member->topics_count; t++) {
        if (mill_uuid_equal(&member->topics[t].id, topic)) {
            return true;
        }
    }
    return false;
}

/* Every partition of a topic with a subscriber has one owner, who subscribes to it. */
static void check_whole(const struct case_of *of)
{
    for (uint32_t t = 0; t < of->topics_count; t++) {
        for (uint32_t p = 0; p < of->topics[t].partitions_count; p++) {
            uint32_t owners = 0;
            uint32_t subscribers = 0;
            for (uint32_t i = 0; i < of->count; i++) {
                bool may = subscribes(&of->members[i], &of->topics[t].id);
                bool has = mill_parts_find(&of->members[i].after, &of->topics[t].id, (int32_t)p);
                assert_true(may || !has);
                owners += has;
                subscribers += may;
            }
            assert_int_equal(owners, subscribers > 0);
        }
    }
}

/* No single move makes it more even. */
static void check_even(const struct case_of *of)
{
    for (uint32_t i = 0; i < of->count; i++) {
        const struct mill_assign_member *rich = &of->members[i];
        for (uint32_t p = 0; p < rich->after.count; p++) {
            for (uint32_t k = 0; k < of->count; k++) {
                if (subscribes(&of->members[k], &rich->after.items[p].topic)) {
                    assert_true(rich->after.count <= of->members[k].after.count + 1);
                }
            }
        }
    }
}

static void test_assignors_share_everything_out_evenly(void **state)
{
    MILL_UNUSED(state);
    static struct case_of of;
    struct mill_random random = {.state = 7};
    for (uint32_t round = 0; round < 3000; round++) {
        struct mill_pool pool = {.limit_bytes = 1 << 20};
        enum mill_assignor assignor = round % 3 == 0 ? MILL_ASSIGNOR_RANGE : MILL_ASSIGNOR_UNIFORM;
        case_make(&random, &of, round % 2 == 0);
        assert_true(mill_assign(assignor, of.members, of.count, &pool));
        check_whole(&of);
        if (assignor == MILL_ASSIGNOR_UNIFORM) {
            check_even(&of);
            /* Asked again nothing moves; with one less only what that one had. */
            uint32_t gone = mill_random_below(&random, of.count);
            struct mill_parts left = of.members[gone].after;
            for (uint32_t i = 0; i < of.count; i++) {
                of.members[i].before = of.members[i].after;
            }
            assert_true(mill_assign(assignor, of.members, of.count, &pool));
            for (uint32_t i = 0; i < of.count; i++) {
                assert_true(mill_parts_equal(&of.members[i].before, &of.members[i].after));
            }
            of.members[gone] = of.members[--of.count];
            if (round % 2 == 0) {
                assert_true(mill_assign(assignor, of.members, of.count, &pool));
                check_even(&of);
                for (uint32_t i = 0; i < of.count; i++) {
                    assert_true(mill_parts_within(&of.members[i].before, &of.members[i].after));
                }
                MILL_UNUSED(left);
            }
        }
        mill_pool_clear(&pool);
    }
}

static void test_range_gives_runs_and_static_members_first(void **state)
{
    MILL_UNUSED(state);
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    const struct mill_assign_topic topics[] = {{{{1}}, 5}, {{{2}}, 2}};
    struct mill_assign_member members[] = {
        {.id = "b", .topics = topics, .topics_count = 2},
        {.id = "c", .topics = topics, .topics_count = 1},
        {.id = "a", .instance_id = "z", .topics = topics, .topics_count = 2},
    };
    assert_true(mill_assign(MILL_ASSIGNOR_RANGE, members, 3, &pool));
    static const struct mill_part want[] = {
        {{{1}}, 0, 0}, {{{1}}, 1, 0}, {{{2}}, 0, 0}, /* the static one */
        {{{1}}, 2, 0}, {{{1}}, 3, 0}, {{{2}}, 1, 0}, /* b */
        {{{1}}, 4, 0},                               /* c */
    };
    assert_int_equal(members[2].after.count, 3);
    assert_memory_equal(members[2].after.items, &want[0], 3 * sizeof(want[0]));
    assert_int_equal(members[0].after.count, 3);
    assert_memory_equal(members[0].after.items, &want[3], 3 * sizeof(want[0]));
    assert_int_equal(members[1].after.count, 1);
    assert_memory_equal(members[1].after.items, &want[6], sizeof(want[0]));
    mill_pool_clear(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_assignors_share_everything_out_evenly),
        cmocka_unit_test(test_range_gives_runs_and_static_members_first),
        cmocka_unit_test(test_crowd_never_owns_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
