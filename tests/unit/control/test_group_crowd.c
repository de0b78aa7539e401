/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: in one generation no two members of a classic group own one partition, whatever dies,
 * leaves, comes back or fails to be written. Method: a seeded crowd of members over the state
 * machine (group_rig.h). */
#include "tests/unit/control/group_rig.h"

enum {
    PARTITIONS = 12,
    SEEDS = 60,
    STEPS = 3000,
};

enum doing {
    AWAY,
    JOINING,
    SYNCING,
    WORKING,
};

struct person {
    struct member member;
    struct waiter waiter;
    struct waiter joined_as;
    enum doing doing;
    int32_t generation;
    uint32_t owned; /* bits of partitions, while working in generation */
};

/* Leaders share the partitions out among those they were told of. */
static void share_out(const struct waiter *lead, char texts[MEMBERS][64],
                      const char *ret_assigned[MEMBERS])
{
    for (uint32_t i = 0; i < lead->members_count; i++) {
        uint32_t bits = 0;
        for (uint32_t p = i; p < PARTITIONS; p += lead->members_count) {
            bits |= 1u << p;
        }
        snprintf(texts[i], 64, "%u", bits);
        ret_assigned[i] = texts[i];
    }
}

static void person_restart(struct person *person)
{
    /* A dead process: what it waited for is answered to nobody, so its waiter must stay. */
    bool is_static = person->member.instance_id != NULL;
    person->doing = AWAY;
    person->owned = 0;
    if (is_static || person->waiter.error != MILL_KERR_REBALANCE_IN_PROGRESS) {
        person->member.id[0] = '\0';
    }
}

static void person_step(struct rig *rig, struct person *person)
{
    char texts[MEMBERS][64];
    const char *assigned[MEMBERS];
    if ((person->doing == JOINING || person->doing == SYNCING) && !person->waiter.answered) {
        return;
    }
    if (person->doing == AWAY) {
        person->doing = JOINING;
        join(rig, &person->member, &person->waiter);
    } else if (person->doing == JOINING) {
        if (person->waiter.error == MILL_KERR_MEMBER_ID_REQUIRED || person->waiter.error == 0) {
            memcpy(person->member.id, person->waiter.member_id, sizeof(person->member.id));
        }
        if (person->waiter.error != 0) {
            if (person->waiter.error != MILL_KERR_MEMBER_ID_REQUIRED) {
                person_restart(person);
            }
            person->doing = AWAY;
            return;
        }
        person->joined_as = person->waiter;
        person->generation = person->waiter.generation;
        person->doing = SYNCING;
        share_out(&person->joined_as, texts, assigned);
        sync_as(rig, &person->member, person->generation, &person->joined_as, assigned,
                &person->waiter);
    } else if (person->doing == SYNCING) {
        if (person->waiter.error != 0) {
            person_restart(person);
            return;
        }
        person->doing = WORKING;
        person->owned = (uint32_t)strtoul(person->waiter.assignment, NULL, 10);
    } else {
        int16_t error = beat(rig, &person->member, person->generation);
        if (error != 0) {
            person->waiter.error = error;
            person_restart(person);
        }
    }
}

/* In one generation nobody owns what another one owns. */
static void check_owners(const struct person *crowd)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        for (uint32_t k = i + 1; k < MEMBERS; k++) {
            if (crowd[i].doing == WORKING && crowd[k].doing == WORKING &&
                crowd[i].generation == crowd[k].generation) {
                assert_int_equal(crowd[i].owned & crowd[k].owned, 0);
            }
        }
    }
}

static void crowd_run(uint64_t seed)
{
    static struct rig rig;
    static struct person crowd[MEMBERS];
    static const char *const instances[MEMBERS] = {"i0", "i1", NULL, NULL, NULL, NULL, NULL, NULL};
    uint32_t stable = 0;
    rig_open(&rig, seed);
    rig.env.initial_delay_ms = seed % 2 ? 500 : 0;
    memset(crowd, 0, sizeof(crowd));
    for (uint32_t i = 0; i < MEMBERS; i++) {
        crowd[i].member = (struct member){.instance_id = instances[i],
                                          .protocols = {"range", i % 2 ? "sticky" : NULL},
                                          .id_required = i % 3 == 0};
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        struct person *person = &crowd[mill_random_below(&rig.random, MEMBERS)];
        uint32_t dice = mill_random_below(&rig.random, 100);
        bool waits =
            (person->doing == JOINING || person->doing == SYNCING) && !person->waiter.answered;
        if (dice < 60) {
            person_step(&rig, person);
        } else if (dice < 62 && person->doing == WORKING && !person->member.instance_id) {
            mill_group_leave(&rig.env, rig.group, person->member.id, NULL);
            person_restart(person);
            person->member.id[0] = '\0';
        } else if (dice < 64 && !waits && person->doing != AWAY) {
            person_restart(person); /* killed, and started again */
            person->member.id[0] = '\0';
        } else if (dice < 90) {
            pass(&rig, mill_random_below(&rig.random, dice < 66 ? TIMEOUT_MS : 400));
        }
        if (rig.stores_count > STORES_MAX / 2 || mill_random_below(&rig.random, 3) == 0) {
            while (rig.stores_count > 0) {
                store_end(&rig, mill_random_below(&rig.random, 10) == 0
                                    ? MILL_KERR_COORDINATOR_NOT_AVAILABLE
                                    : 0);
            }
        }
        stable += rig.group->state == MILL_GROUP_STABLE;
        check_owners(crowd);
    }
    assert_true(stable > 10); /* it did come to rest now and then */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crowd_never_owns_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
