/* SPDX-License-Identifier: Apache-2.0 */
/* All groups; see groups.h. A shard is a partition of __consumer_offsets. */
#include "control/group/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log_line.h"
#include "base/siphash.h"
#include "protocol/errors.h"

enum {
    BUCKETS = 1 << 16,
    TIMERS_PER_STEP = 1024,
    RETRY_NS = 100000000,
};

/* --- groups ------------------------------------------------------------------------------------
 */

static struct mill_group **bucket_of(const struct mill_groups *groups, const char *group_id)
{
    return &groups->buckets[mill_siphash(groups->key, group_id, strlen(group_id)) & (BUCKETS - 1)];
}

struct mill_group *mill_groups_find(const struct mill_groups *groups, const char *group_id)
{
    struct mill_group *group = *bucket_of(groups, group_id);
    while (group && strcmp(group->id, group_id) != 0) {
        group = group->next;
    }
    return group;
}

struct mill_group *mill_groups_make(struct mill_groups *groups, const char *group_id)
{
    struct mill_group *group = mill_groups_find(groups, group_id);
    if (group) {
        return group;
    }
    if (groups->groups_count >= MILL_GROUPS_MAX) {
        groups->env.full++;
        return NULL;
    }
    group = mill_group_new(group_id);
    if (!group) {
        return NULL;
    }
    struct mill_group **bucket = bucket_of(groups, group_id);
    group->next = *bucket;
    *bucket = group;
    group->shard = mill_shard_of(group_id, groups->shards.count);
    group->state_ms = groups->env.now_ms;
    struct mill_shard *shard = &groups->shards.items[group->shard];
    group->shard_next = shard->first;
    if (group->shard_next) {
        group->shard_next->shard_prev = group;
    }
    shard->first = group;
    groups->groups_count++;
    return group;
}

void mill_groups_remove(struct mill_groups *groups, struct mill_group *group)
{
    struct mill_group **at = bucket_of(groups, group->id);
    while (*at != group) {
        at = &(*at)->next;
    }
    *at = group->next;
    if (group->shard_prev) {
        group->shard_prev->shard_next = group->shard_next;
    } else {
        groups->shards.items[group->shard].first = group->shard_next;
    }
    if (group->shard_next) {
        group->shard_next->shard_prev = group->shard_prev;
    }
    while (group->offsets) {
        mill_groups_offset_remove(groups, group->offsets);
    }
    if (groups->expiry.group == group) {
        mill_groups_expiry_enter(groups, group->shard_next);
    }
    mill_heap_remove(&groups->timers, &group->timer);
    mill_group_free(&groups->env, group);
    groups->groups_count--;
}

enum mill_group_type mill_group_type(const struct mill_group *group)
{
    return group->consumers ? MILL_GROUP_CONSUMER : MILL_GROUP_CLASSIC;
}

const char *mill_group_type_name(enum mill_group_type type)
{
    static const char *const names[MILL_GROUP_TYPE_COUNT] = {"classic", "consumer"};
    return names[type];
}

enum mill_group_state mill_group_shown_state(const struct mill_group *group)
{
    return group->consumers ? mill_consumer_group_state(group) : group->state;
}

/* --- requests that wait ------------------------------------------------------------------------
 */

void mill_groups_take(struct mill_admin_request *request)
{
    request->taken = true;
    free(request->frame);
    request->frame = NULL;
    mill_pool_clear(&request->pool);
}

void mill_groups_give(struct mill_groups *groups, struct mill_admin_request *request)
{
    if (!request->taken) {
        return; /* its handler still has it */
    }
    request->next = NULL;
    *groups->answered_last = request;
    groups->answered_last = &request->next;
}

void mill_groups_done(struct mill_groups *groups, struct mill_admin_request *request)
{
    groups->parked_count -= request->taken ? 1 : 0;
    mill_groups_give(groups, request);
}

struct mill_admin_request *mill_groups_answered(struct mill_groups *groups)
{
    struct mill_admin_request *request = groups->answered;
    if (request) {
        groups->answered = request->next;
        if (!groups->answered) {
            groups->answered_last = &groups->answered;
        }
        request->next = NULL;
    }
    return request;
}

/* --- the turn ----------------------------------------------------------------------------------
 */

static void group_timer(void *context, struct mill_group *group, uint64_t at_ns)
{
    struct mill_groups *groups = context;
    if (at_ns == MILL_NEVER) {
        mill_heap_remove(&groups->timers, &group->timer);
    } else {
        mill_heap_set(&groups->timers, &group->timer, at_ns);
    }
}

static void timers_run(struct mill_groups *groups)
{
    for (uint32_t i = 0; i < TIMERS_PER_STEP; i++) {
        struct mill_heap_item *first = mill_heap_first(&groups->timers);
        if (!first || first->at_ns > groups->env.now_ns) {
            return;
        }
        struct mill_group *group = MILL_CONTAINER_OF(first, struct mill_group, timer);
        mill_heap_remove(&groups->timers, first);
        if (group->consumers) {
            mill_consumers_time(groups, group);
        } else if (!group->write) { /* else it is becoming one of the consumer protocol */
            mill_group_time(&groups->env, group);
        }
    }
}

uint64_t mill_groups_step(struct mill_groups *groups, const struct mill_now *now)
{
    groups->env.now_ns = now->mono_ns;
    groups->env.now_ms = now->wall_ms;
    groups->consumer.topics.version = mill_consumers_topics_version(groups);
    bool loading = mill_shards_step(&groups->shards);
    timers_run(groups);
    if (groups->check_due_ns == 0) {
        groups->check_due_ns = now->mono_ns + (uint64_t)groups->check_interval_ms * MILL_NS_PER_MS;
    }
    uint64_t deleted = groups->controller->counters.topics_deleted;
    bool topics_gone = deleted != groups->topics_deleted && groups->shards.loading_count == 0;
    if (topics_gone) {
        groups->topics_deleted = deleted; /* a topic of the same name begins without offsets */
        uint32_t looks = MILL_LOOK_TOPICS;
#ifdef MILL_MUTANT_GROUP_TOPIC_AGES
        looks = MILL_LOOK_AGE;
#endif
        mill_groups_expiry_begin(groups, looks);
    }
    if (now->mono_ns >= groups->check_due_ns) {
        groups->check_due_ns = now->mono_ns + (uint64_t)groups->check_interval_ms * MILL_NS_PER_MS;
        mill_groups_expiry_begin(groups, MILL_LOOK_AGE);
    }
    mill_groups_expiry_step(groups);
    uint64_t next_ns = groups->check_due_ns;
    const struct mill_heap_item *first = mill_heap_first(&groups->timers);
    if (first) {
        next_ns = MILL_MIN(next_ns, first->at_ns);
    }
    if (loading) {
        next_ns = MILL_MIN(next_ns, now->mono_ns + RETRY_NS);
    }
    return groups->answered || groups->expiry.looks ? now->mono_ns : next_ns;
}

void mill_groups_attach(struct mill_groups *groups)
{
    for (uint32_t i = 0; i < groups->shards.count; i++) {
        for (struct mill_group *group = groups->shards.items[i].first; group;
             group = group->shard_next) {
            /* The clients are gone with their connections; answers are dropped by their cores. */
            mill_group_release(&groups->env, group, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
            mill_consumers_release(groups, group, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        }
    }
}

/* --- open, close, counters ---------------------------------------------------------------------
 */

static void random_bytes(void *context, void *ret_bytes, size_t size_bytes)
{
    struct mill_groups *groups = context;
    groups->controller->random(groups->controller->random_context, ret_bytes, size_bytes);
}

int mill_groups_open(struct mill_groups *groups, struct mill_controller *controller,
                     struct mill_journal *journal)
{
    static const struct mill_group_calls calls = {
        .joined = mill_members_joined,
        .synced = mill_members_synced,
        .store = mill_groups_store,
        .random = random_bytes,
        .timer = group_timer,
    };
    const struct mill_config *config = controller->config;
    *groups = (struct mill_groups){
        .env = {.calls = &calls,
                .session_timeout_min_ms =
                    mill_config_int(config, MILL_KEY_GROUP_MIN_SESSION_TIMEOUT_MS),
                .session_timeout_max_ms =
                    mill_config_int(config, MILL_KEY_GROUP_MAX_SESSION_TIMEOUT_MS),
                .initial_delay_ms =
                    mill_config_int(config, MILL_KEY_GROUP_INITIAL_REBALANCE_DELAY_MS),
                .size_max = mill_config_int(config, MILL_KEY_GROUP_MAX_SIZE),
                .bytes_max = MILL_GROUP_BYTES_MAX},
        .controller = controller,
        .config = config,
        .commit_timeout_ms = mill_config_int(config, MILL_KEY_OFFSETS_COMMIT_TIMEOUT_MS),
        .retention_ms = mill_config_int(config, MILL_KEY_OFFSETS_RETENTION_MINUTES) * 60000,
        .check_interval_ms = mill_config_int(config, MILL_KEY_OFFSETS_RETENTION_CHECK_INTERVAL_MS),
        .metadata_bytes_max = mill_config_int(config, MILL_KEY_OFFSET_METADATA_MAX_BYTES),
        .shards = {.calls = &mill_groups_load_calls,
                   .context = groups,
                   .journal = journal,
                   .topics = &controller->topics,
                   .topic_name = MILL_OFFSETS_TOPIC},
    };
    groups->env.context = groups;
    mill_consumers_open(groups);
    groups->answered_last = &groups->answered;
    controller->random(controller->random_context, groups->key, sizeof(groups->key));
    groups->buckets = calloc(BUCKETS, sizeof(struct mill_group *));
    if (!groups->buckets || !mill_groups_offsets_open(groups) ||
        mill_txn_offsets_open(&groups->txn_offsets) < 0 ||
        mill_heap_init(&groups->timers, MILL_GROUPS_MAX) < 0) {
        mill_groups_close(groups);
        return -ENOMEM;
    }
    return 0;
}

void mill_groups_close(struct mill_groups *groups)
{
    if (groups->buckets) {
        mill_shards_drop(&groups->shards);
    }
    struct mill_admin_request *request = NULL;
    while (groups->controller && (request = mill_groups_answered(groups)) != NULL) {
        mill_admin_free(request);
    }
    mill_heap_fini(&groups->timers);
    mill_txn_offsets_close(&groups->txn_offsets);
    free(groups->buckets);
    free(groups->offset_buckets);
    groups->buckets = NULL;
    groups->offset_buckets = NULL;
}

void mill_groups_publish(const struct mill_groups *groups, struct mill_shared_control *shared)
{
    mill_counter_set(&shared->groups, groups->groups_count);
    mill_counter_set(&shared->group_members, groups->env.members_count);
    mill_counter_set(&shared->group_offsets, groups->offsets_count);
    mill_counter_set(&shared->group_bytes, groups->env.bytes);
    mill_counter_set(&shared->group_joins, groups->joins);
    mill_counter_set(&shared->group_rebalances, groups->env.rebalances);
    mill_counter_set(&shared->group_expired_members, groups->env.expired_members);
    mill_counter_set(&shared->group_commits, groups->commits);
    mill_counter_set(&shared->group_commits_failed, groups->commits_failed);
    mill_counter_set(&shared->group_offsets_expired, groups->offsets_expired);
    mill_counter_set(&shared->group_full, groups->env.full);
    mill_counter_set(&shared->group_loads, groups->shards.loads);
    mill_counter_set(&shared->group_records_bad, groups->shards.records_bad);
}

/* --- dispatch ----------------------------------------------------------------------------------
 */

static const struct {
    int16_t key;
    void (*handle)(struct mill_groups *groups, struct mill_admin_request *request,
                   struct mill_cursor *at);
} handlers[] = {
    {MILL_API_KEY_OFFSET_COMMIT, mill_offset_commit},
    {MILL_API_KEY_TXN_OFFSET_COMMIT, mill_txn_offset_commit},
    {MILL_API_KEY_OFFSET_FETCH, mill_offset_fetch},
    {MILL_API_KEY_FIND_COORDINATOR, mill_find_coordinator},
    {MILL_API_KEY_JOIN_GROUP, mill_join_group},
    {MILL_API_KEY_HEARTBEAT, mill_heartbeat},
    {MILL_API_KEY_LEAVE_GROUP, mill_leave_group},
    {MILL_API_KEY_SYNC_GROUP, mill_sync_group},
    {MILL_API_KEY_DESCRIBE_GROUPS, mill_describe_groups},
    {MILL_API_KEY_LIST_GROUPS, mill_list_groups},
    {MILL_API_KEY_DELETE_GROUPS, mill_delete_groups},
    {MILL_API_KEY_OFFSET_DELETE, mill_offset_delete},
    {MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, mill_consumer_group_heartbeat},
    {MILL_API_KEY_CONSUMER_GROUP_DESCRIBE, mill_consumer_group_describe},
};

bool mill_groups_has_api(int16_t api_key)
{
    for (size_t i = 0; i < MILL_COUNT_OF(handlers); i++) {
        if (handlers[i].key == api_key) {
            return true;
        }
    }
    return false;
}

void mill_groups_request(struct mill_groups *groups, struct mill_admin_request *request,
                         struct mill_cursor *at)
{
    groups->consumer.topics.version = mill_consumers_topics_version(groups);
    for (size_t i = 0; i < MILL_COUNT_OF(handlers); i++) {
        if (handlers[i].key == request->header.api_key) {
            handlers[i].handle(groups, request, at);
            return;
        }
    }
    mill_admin_close(request);
}
