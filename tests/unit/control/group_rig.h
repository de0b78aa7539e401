/* SPDX-License-Identifier: Apache-2.0 */
/* One classic group alone: a log that the test answers, time that the test moves, and clients whose
 * requests wait in plain structs. Test code. */
#ifndef MILL_TESTS_UNIT_CONTROL_GROUP_RIG_H
#define MILL_TESTS_UNIT_CONTROL_GROUP_RIG_H

#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "control/group/groups.h"
#include "protocol/errors.h"

enum {
    STORES_MAX = 64,
    TIMEOUT_MS = 10000,
    REBALANCE_MS = 30000,
    MEMBERS = 8,
};

/* One request of a client. */
struct waiter {
    bool answered;
    int16_t error;
    int32_t generation;
    char member_id[64];
    char leader[64];
    bool members_untold;    /* do not note them: there are too many */
    uint32_t members_count; /* told to it */
    char members[MEMBERS][64];
    bool skip;
    char assignment[64];
};

struct store {
    enum mill_group_store why;
    char member_id[64];
    int32_t generation;
    bool skip;
};

struct rig {
    struct mill_group_env env;
    struct mill_group *group;
    struct mill_random random;
    uint64_t due_ns;
    struct store stores[STORES_MAX];
    uint32_t stores_count;
    int16_t refuse; /* error of the next store */
};

static inline void joined(void *context, const struct mill_group_join_answer *answer)
{
    struct waiter *waiter = context;
    assert_false(waiter->answered);
    waiter->answered = true;
    waiter->error = answer->error;
    waiter->skip = answer->skip_assignment;
    snprintf(waiter->member_id, sizeof(waiter->member_id), "%s",
             answer->member_id ? answer->member_id : "");
    if (!answer->group) {
        return;
    }
    const char *leader = answer->leader ? answer->leader : answer->group->leader->id;
    waiter->generation = answer->group->generation;
    snprintf(waiter->leader, sizeof(waiter->leader), "%s", leader);
    for (const struct mill_group_member *member = answer->group->members;
         answer->members && member && !waiter->members_untold; member = member->next) {
        snprintf(waiter->members[waiter->members_count++], 64, "%s", member->id);
    }
}

static inline void synced(void *context, int16_t error, const struct mill_group *group,
                          const struct mill_group_member *member)
{
    struct waiter *waiter = context;
    assert_false(waiter->answered);
    waiter->answered = true;
    waiter->error = error;
    if (group) {
        waiter->generation = group->generation;
        snprintf(waiter->assignment, sizeof(waiter->assignment), "%.*s",
                 (int)member->assignment.size_bytes, (const char *)member->assignment.bytes);
    }
}

static inline int16_t store(void *context, struct mill_group *group, enum mill_group_store why,
                            struct mill_group_member *member, bool skip)
{
    struct rig *rig = context;
    if (rig->refuse != 0) {
        int16_t error = rig->refuse;
        rig->refuse = 0;
        return error;
    }
    assert_true(rig->stores_count < STORES_MAX);
    struct store *made = &rig->stores[rig->stores_count++];
    *made = (struct store){.why = why, .generation = group->generation, .skip = skip};
    snprintf(made->member_id, sizeof(made->member_id), "%s", member ? member->id : "");
    return 0;
}

static inline void random_bytes(void *context, void *ret_bytes, size_t size_bytes)
{
    struct rig *rig = context;
    for (size_t i = 0; i < size_bytes; i++) {
        ((uint8_t *)ret_bytes)[i] = (uint8_t)mill_random_next(&rig->random);
    }
}

static inline void timer(void *context, struct mill_group *group, uint64_t at_ns)
{
    MILL_UNUSED(group);
    ((struct rig *)context)->due_ns = at_ns;
}

static inline void rig_open(struct rig *rig, uint64_t seed)
{
    static const struct mill_group_calls calls = {
        .joined = joined, .synced = synced, .store = store, .random = random_bytes, .timer = timer};
    *rig = (struct rig){
        .env = {.calls = &calls,
                .session_timeout_min_ms = 100,
                .session_timeout_max_ms = 60000,
                .size_max = 1000,
                .bytes_max = 1 << 20,
                .now_ns = MILL_NS_PER_S,
                .now_ms = 1},
        .random = {.state = seed},
        .due_ns = MILL_NEVER,
    };
    rig->env.context = rig;
    rig->group = mill_group_new("group");
    assert_non_null(rig->group);
}

static inline void rig_close(struct rig *rig)
{
    mill_group_release(&rig->env, rig->group, MILL_KERR_NOT_COORDINATOR);
    mill_group_free(&rig->env, rig->group);
    assert_int_equal(rig->env.bytes, 0);
    assert_int_equal(rig->env.members_count, 0);
}

/* The log has what was stored first; or not (error). */
static inline void store_end(struct rig *rig, int16_t error)
{
    assert_true(rig->stores_count > 0);
    struct store first = rig->stores[0];
    memmove(&rig->stores[0], &rig->stores[1], --rig->stores_count * sizeof(first));
    if (first.why == MILL_GROUP_STORE_SYNC) {
        mill_group_synced(&rig->env, rig->group, first.generation, error);
    } else if (first.why == MILL_GROUP_STORE_STATIC) {
        mill_group_replaced(&rig->env, rig->group, first.member_id, first.generation, first.skip,
                            error);
    }
}

/* Moves time and fires the timer whenever it is due. */
static inline void pass(struct rig *rig, uint64_t ms)
{
    uint64_t until = rig->env.now_ns + ms * MILL_NS_PER_MS;
    while (rig->due_ns <= until) {
        rig->env.now_ns = MILL_MAX(rig->due_ns, rig->env.now_ns);
        rig->due_ns = MILL_NEVER;
        mill_group_time(&rig->env, rig->group);
    }
    rig->env.now_ns = until;
    rig->env.now_ms = (int64_t)(until / MILL_NS_PER_MS);
}

struct member {
    const char *instance_id;
    const char *protocols[3]; /* ends with NULL */
    char id[64];
    int32_t session_timeout_ms;
    bool id_required;
    bool skip;
};

static inline void join(struct rig *rig, struct member *member, struct waiter *waiter)
{
    struct mill_group_protocol protocols[3];
    uint32_t count = 0;
    for (; member->protocols[count]; count++) {
        protocols[count] = (struct mill_group_protocol){
            .name = (char *)(uintptr_t)member->protocols[count],
            .metadata = {.bytes = (uint8_t *)(uintptr_t) "metadata", .size_bytes = 8}};
    }
    struct mill_group_join message = {
        .member_id = member->id,
        .instance_id = member->instance_id,
        .client_id = "client",
        .client_host = "/127.0.0.1",
        .rebalance_timeout_ms = REBALANCE_MS,
        .session_timeout_ms = member->session_timeout_ms ? member->session_timeout_ms : TIMEOUT_MS,
        .protocol_type = "consumer",
        .protocols = protocols,
        .protocols_count = count,
        .id_required = member->id_required,
        .skip_supported = member->skip,
        .waiter = waiter,
    };
    *waiter = (struct waiter){0};
    mill_group_join(&rig->env, rig->group, &message);
}

static inline void sync_as(struct rig *rig, const struct member *member, int32_t generation,
                           const struct waiter *joined_as, const char *const *assigned,
                           struct waiter *waiter)
{
    struct mill_group_assignment assignments[MEMBERS];
    uint32_t count = joined_as ? joined_as->members_count : 0;
    for (uint32_t i = 0; i < count; i++) {
        assignments[i] =
            (struct mill_group_assignment){.member_id = joined_as->members[i],
                                           .bytes = {.bytes = (uint8_t *)(uintptr_t)assigned[i],
                                                     .size_bytes = (uint32_t)strlen(assigned[i])}};
    }
    struct mill_group_sync message = {.member_id = member->id,
                                      .instance_id = member->instance_id,
                                      .generation = generation,
                                      .assignments = assignments,
                                      .assignments_count = count,
                                      .waiter = waiter};
    *waiter = (struct waiter){0};
    mill_group_sync(&rig->env, rig->group, &message);
}

static inline int16_t beat(struct rig *rig, const struct member *member, int32_t generation)
{
    return mill_group_heartbeat(&rig->env, rig->group, member->id, member->instance_id, generation);
}

/* Two members, stable: a leads. */
static inline void two_stable(struct rig *rig, struct member *a, struct member *b,
                              struct waiter *wa, struct waiter *wb)
{
    static const char *const assigned[] = {"one", "two"};
    join(rig, a, wa);
    assert_true(wa->answered);
    snprintf(a->id, sizeof(a->id), "%s", wa->member_id);
    join(rig, b, wb);
    assert_false(wb->answered);
    join(rig, a, wa);
    assert_true(wa->answered && wb->answered);
    snprintf(b->id, sizeof(b->id), "%s", wb->member_id);
    struct waiter lead = *wa;
    int32_t generation = wa->generation;
    sync_as(rig, b, generation, NULL, NULL, wb);
    sync_as(rig, a, generation, &lead, assigned, wa);
    assert_false(wa->answered || wb->answered);
    store_end(rig, 0);
    assert_string_equal(wa->assignment, "one");
    assert_string_equal(wb->assignment, "two");
    assert_int_equal(rig->group->state, MILL_GROUP_STABLE);
}

#endif
