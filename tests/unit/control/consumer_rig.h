/* SPDX-License-Identifier: Apache-2.0 */
/* One group of the consumer protocol alone: a log that keeps what the test lets through, topics
 * that the test makes, time that it moves, and clients that do what they are told. Test code. */
#ifndef MILL_TESTS_UNIT_CONTROL_CONSUMER_RIG_H
#define MILL_TESTS_UNIT_CONTROL_CONSUMER_RIG_H

#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "control/group/consumer.h"
#include "control/group/records.h"
#include "protocol/errors.h"

enum {
    RIG_TOPICS = 8,
    RIG_LOG_MAX = 200000,
    RIG_PARTS = 64,
    SESSION_MS = 45000,
    REBALANCE_MS = 60000,
    BEAT_MS = 5000,
};

struct rig_topic {
    char name[32];
    uint32_t partitions; /* 0 none */
};

/* A record as it is in the log. */
struct rig_record {
    uint8_t *key;
    uint32_t key_bytes;
    uint8_t *value;
    int32_t value_bytes;
};

struct rig {
    struct mill_group_env shared;
    struct mill_consumer_env env;
    struct mill_group *group;
    struct mill_random random;
    uint64_t due_ns;
    struct rig_topic topics[RIG_TOPICS];
    struct rig_record *log;
    uint32_t log_count;
    bool lose;                     /* what is written next does not reach the log */
    void (*planning)(bool begins); /* before and after a heartbeat is thought over; NULL none */
};

/* A client: what it says, and what it was told. */
struct client {
    char id[40];
    const char *instance;
    const char *topic;  /* the one it names; NULL none */
    const char *topic2; /* and another */
    const char *regex;
    const char *assignor;
    int32_t rebalance_ms; /* 0: REBALANCE_MS */
    int32_t epoch;
    struct mill_part owned[RIG_PARTS];
    uint32_t owned_count;
    int16_t error; /* of the last answer */
    char message[200];
    bool told; /* an assignment came with it */
};

static inline void rig_random(void *context, void *ret_bytes, size_t size_bytes)
{
    struct rig *rig = context;
    for (size_t i = 0; i < size_bytes; i++) {
        ((uint8_t *)ret_bytes)[i] = (uint8_t)mill_random_next(&rig->random);
    }
}

static inline void rig_timer(void *context, struct mill_group *group, uint64_t at_ns)
{
    MILL_UNUSED(group);
    ((struct rig *)context)->due_ns = at_ns;
}

static inline bool rig_by_name(void *context, const char *name, struct mill_assign_topic *ret)
{
    struct rig *rig = context;
    for (uint32_t i = 0; i < RIG_TOPICS; i++) {
        if (rig->topics[i].partitions > 0 && strcmp(rig->topics[i].name, name) == 0) {
            *ret = (struct mill_assign_topic){.id = {{(uint8_t)(i + 1)}},
                                              .partitions_count = rig->topics[i].partitions};
            return true;
        }
    }
    return false;
}

static inline const char *rig_by_id(void *context, const struct mill_uuid *id)
{
    struct rig *rig = context;
    uint32_t index = id->b[0] - 1u;
    return index < RIG_TOPICS && rig->topics[index].partitions > 0 ? rig->topics[index].name : NULL;
}

static inline void rig_each(void *context, void (*visit)(void *visitor, const char *name),
                            void *visitor)
{
    struct rig *rig = context;
    for (uint32_t i = 0; i < RIG_TOPICS; i++) {
        if (rig->topics[i].partitions > 0) {
            visit(visitor, rig->topics[i].name);
        }
    }
}

static inline void rig_topic(struct rig *rig, uint32_t index, const char *name, uint32_t partitions)
{
    snprintf(rig->topics[index].name, sizeof(rig->topics[index].name), "%s", name);
    rig->topics[index].partitions = partitions;
    rig->env.topics.version++;
}

static inline void rig_open(struct rig *rig, uint64_t seed)
{
    static const struct mill_group_calls calls = {.random = rig_random, .timer = rig_timer};
    *rig = (struct rig){
        .shared = {.calls = &calls, .bytes_max = 16 << 20, .now_ns = MILL_NS_PER_S, .now_ms = 1000},
        .env = {.times = {.session_timeout_ms = SESSION_MS, .heartbeat_ms = BEAT_MS},
                .size_max = 1000,
                .assignors = 3,
                .preferred = MILL_ASSIGNOR_UNIFORM},
        .random = {.state = seed},
        .due_ns = MILL_NEVER,
    };
    rig->shared.context = rig;
    rig->env.group = &rig->shared;
    rig->env.topics = (struct mill_consumer_topics){
        .context = rig, .version = 1, .by_name = rig_by_name, .by_id = rig_by_id, .each = rig_each};
    rig->group = mill_group_new("group");
    rig->log = calloc(RIG_LOG_MAX, sizeof(rig->log[0]));
    assert_non_null(rig->group);
    assert_non_null(rig->log);
}

static inline void rig_close(struct rig *rig)
{
    mill_group_free(&rig->shared, rig->group);
    assert_int_equal(rig->shared.bytes, 0);
    assert_int_equal(rig->shared.members_count, 0);
    for (uint32_t i = 0; i < rig->log_count; i++) {
        free(rig->log[i].key);
        free(rig->log[i].value);
    }
    free(rig->log);
}

/* Replays one record into a group. */
static inline void rig_apply(struct mill_consumer_env *env, struct mill_group *group,
                             const struct rig_record *from)
{
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    struct mill_buf key;
    struct mill_buf value;
    struct mill_group_record read;
    struct mill_record record = {
        .key_length = (int32_t)from->key_bytes,
        .value_length = from->value_bytes,
        .key = mill_cursor_over(&key, from->key, from->key_bytes),
        .value = mill_cursor_over(&value, from->value, (uint32_t)MILL_MAX(from->value_bytes, 0)),
    };
    assert_int_equal(mill_group_record_read(&record, &pool, &read), 0);
    if (read.kind == MILL_GROUP_RECORD_CONSUMER) {
        assert_true(mill_consumer_apply(env, group, &read.consumer));
    } else {
        assert_true(read.kind == MILL_GROUP_RECORD_GROUP && read.tombstone);
        mill_group_forget_classic(env->group, group);
    }
    mill_pool_clear(&pool);
}

static inline uint8_t *rig_copy(const void *bytes, uint32_t size_bytes)
{
    uint8_t *copy = malloc(size_bytes + 1);
    assert_non_null(copy);
    if (size_bytes > 0) {
        memcpy(copy, bytes, size_bytes);
    }
    return copy;
}

/* The log takes a plan, and memory follows; or it does not (rig->lose). ret: enum mill_kerr. */
static inline int16_t rig_write(struct rig *rig, const struct mill_consumer_plan *plan)
{
    if (plan->records_count > 0 && rig->lose) {
        return MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    for (uint32_t i = 0; i < plan->records_count; i++) {
        const struct mill_journal_record *from = &plan->records[i];
        assert_true(rig->log_count < RIG_LOG_MAX);
        struct rig_record *to = &rig->log[rig->log_count++];
        to->key = rig_copy(from->key, from->key_bytes);
        to->key_bytes = from->key_bytes;
        to->value_bytes = from->value_bytes;
        to->value = rig_copy(from->value, (uint32_t)MILL_MAX(from->value_bytes, 0));
        rig_apply(&rig->env, rig->group, to);
    }
    if (plan->records_count > 0) {
        mill_consumer_done(&rig->env, rig->group, plan);
    }
    return MILL_KERR_NONE;
}

/* What a client owns after an answer: what it was told, when it was told something. */
static inline void rig_told(struct rig *rig, struct client *client)
{
    const struct mill_consumer *member = mill_consumer_find(rig->group, client->id);
    assert_non_null(member);
    assert_true(member->assigned.count <= RIG_PARTS);
    client->owned_count = member->assigned.count;
    if (client->owned_count > 0) {
        memcpy(client->owned, member->assigned.items,
               client->owned_count * sizeof(client->owned[0]));
    }
}

/* A heartbeat with this epoch. whole: everything is said, as when joining; owned: what it owns. */
static inline void rig_beat(struct rig *rig, struct client *client, int32_t epoch, bool whole,
                            bool owned)
{
    struct mill_consumer_plan plan = {.pool = {.limit_bytes = 1 << 20}};
    char *names[2];
    uint32_t names_count = 0;
    bool joins = epoch == MILL_CONSUMER_JOINS;
    whole = whole || joins;
    if (client->topic) {
        names[names_count++] = (char *)(uintptr_t)client->topic;
    }
    if (client->topic2) {
        names[names_count++] = (char *)(uintptr_t)client->topic2;
    }
    struct mill_consumer_beat beat = {
        .member_id = client->id,
        .epoch = epoch,
        .instance_id = client->instance,
        .client_id = "client",
        .client_host = "/127.0.0.1",
        .rebalance_timeout_ms = !whole                 ? -1
                                : client->rebalance_ms ? client->rebalance_ms
                                                       : REBALANCE_MS,
        .names = whole && (names_count > 0 || !client->regex) ? names : NULL,
        .names_count = whole ? names_count : 0,
        .regex = whole ? client->regex : NULL,
        .assignor = whole ? client->assignor : NULL,
        .owned_told = owned || joins,
        .id_required = true,
    };
    if (owned && !joins) {
        beat.owned = (struct mill_parts){.items = client->owned, .count = client->owned_count};
    }
    if (rig->planning) {
        rig->planning(true);
    }
    mill_consumer_beat(&rig->env, rig->group, &beat, &plan);
    if (rig->planning) {
        rig->planning(false);
    }
    client->error = plan.error ? plan.error : rig_write(rig, &plan);
    snprintf(client->message, sizeof(client->message), "%s", plan.message ? plan.message : "");
    client->told = client->error == 0 && plan.assignment;
    if (client->error == 0) {
        client->epoch = plan.epoch;
    }
    if (client->told) {
        rig_told(rig, client);
    }
    mill_consumer_plan_free(&plan);
}

static inline void rig_join(struct rig *rig, struct client *client)
{
    client->owned_count = 0;
    rig_beat(rig, client, MILL_CONSUMER_JOINS, true, true);
}

/* As clients do it: what they own is said when it changed. */
static inline void rig_go_on(struct rig *rig, struct client *client)
{
    bool changed = client->told;
    rig_beat(rig, client, client->epoch, false, changed);
}

/* Moves time and fires the timer whenever it is due. */
static inline void rig_pass(struct rig *rig, uint64_t ms)
{
    uint64_t until = rig->shared.now_ns + ms * MILL_NS_PER_MS;
    uint32_t fired = 0;
    while (rig->due_ns <= until) {
        assert_true(++fired < 10000); /* each look does something */
        struct mill_consumer_plan plan = {.pool = {.limit_bytes = 1 << 20}};
        rig->shared.now_ns = MILL_MAX(rig->due_ns, rig->shared.now_ns);
        rig->due_ns = MILL_NEVER;
        mill_consumer_time(&rig->env, rig->group, &plan);
        assert_int_equal(plan.error, 0);
        if (rig_write(rig, &plan) != 0) {
            rig->due_ns = rig->shared.now_ns + MILL_NS_PER_S;
        } else if (plan.records_count == 0) {
            mill_consumer_timer(&rig->env, rig->group);
        }
        mill_consumer_plan_free(&plan);
    }
    rig->shared.now_ns = until;
    rig->shared.now_ms = (int64_t)(until / MILL_NS_PER_MS);
}

static inline bool rig_owns(const struct client *client, uint32_t topic, int32_t partition)
{
    struct mill_parts owned = {(void *)(uintptr_t)client->owned, client->owned_count};
    struct mill_uuid id = {{(uint8_t)(topic + 1)}};
    return mill_parts_find(&owned, &id, partition) != NULL;
}

#endif
