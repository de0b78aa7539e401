/* SPDX-License-Identifier: Apache-2.0 */
/* All consumer groups of this coordinator, their committed offsets, and __consumer_offsets behind
 * them: loading, storing, timers, expiry. What a client is told of a change, it is told after the
 * log has the record. A partition whose last append has an unknown outcome is read on from the last
 * known offset before it serves again, so that memory never contradicts the log.
 *
 * A request that cannot be answered at once is taken over (mill_admin_request.taken) and given back
 * by mill_groups_answered. Control's thread; bounded by limits that are counted. */
#ifndef MILL_CONTROL_GROUP_GROUPS_H
#define MILL_CONTROL_GROUP_GROUPS_H

#include "base/clock.h"
#include "control/admin/request.h"
#include "control/group/consumer.h"
#include "control/group/group.h"
#include "control/group/records.h"
#include "control/group/txn_offsets.h"
#include "control/journal/shards.h"
#include "ipc/counters.h"

enum {
    MILL_GROUPS_MAX = 100000,
    MILL_GROUP_OFFSETS_MAX = 1000000, /* of all groups */
    MILL_GROUP_BYTES_MAX = 512 << 20, /* memory of members and offsets */
    MILL_GROUP_PARKED_MAX = 50000,    /* joins and syncs that wait for others */
    MILL_GROUP_TOPIC_PARTITIONS_MAX = MILL_CONTROL_TOPIC_PARTITIONS_MAX,
};

/* A committed offset. */
struct mill_group_offset {
    struct mill_group_offset *next_hash;
    struct mill_group_offset *next; /* of its group */
    struct mill_group_offset *prev;
    struct mill_group *group;
    struct mill_offset_value value; /* its metadata lies behind topic */
    int32_t partition;
    uint32_t size_bytes;
    char topic[];
};

/* What a look at all offsets and groups is for. Offsets of topics that are gone go by either. */
enum {
    MILL_LOOK_TOPICS = 1u << 0, /* a topic went: groups stay, even those that it leaves nothing */
    MILL_LOOK_AGE = 1u << 1,    /* offsets by their age, and groups that nothing is left of */
};

/* Such a look, some of them each turn. */
struct mill_expiry {
    uint32_t looks;      /* MILL_LOOK_...; 0: none runs */
    uint32_t looks_next; /* from the first once more when it ends */
    uint32_t shard;
    struct mill_group *group;         /* next one; NULL: of the next shard */
    struct mill_group_offset *offset; /* next one of it; NULL: all were looked at */
};

struct mill_groups {
    struct mill_group_env env;
    struct mill_consumer_env consumer;
    struct mill_controller *controller;
    const struct mill_config *config;
    int64_t commit_timeout_ms;
    int64_t retention_ms;
    int64_t check_interval_ms;
    int64_t metadata_bytes_max;
    uint64_t key[2]; /* of the hash tables */
    struct mill_group **buckets;
    struct mill_group_offset **offset_buckets;
    uint32_t groups_count;
    uint32_t offsets_count;
    struct mill_heap timers;
    struct mill_shards shards; /* of __consumer_offsets */
    struct mill_txn_offsets txn_offsets;
    struct mill_expiry expiry;
    int64_t buried_offset; /* of the last epoch of a consumer group that a load saw buried */
    uint64_t buried_key;   /* hash of that group's id; loads of several shards take turns */
    uint64_t check_due_ns;
    uint64_t topics_deleted; /* the controller's count as it was looked at last */
    uint32_t parked_count;
    struct mill_admin_request *answered;
    struct mill_admin_request **answered_last;
    uint64_t joins;
    uint64_t commits;
    uint64_t commits_failed;
    uint64_t offsets_expired;
};

/* ret: 0, -ENOMEM. */
int mill_groups_open(struct mill_groups *groups, struct mill_controller *controller,
                     struct mill_journal *journal) MILL_WARN_UNUSED;
/* After the journal was closed. */
void mill_groups_close(struct mill_groups *groups);

/* Another millraced runs: parked requests have nobody to hear the answer; what the journal had
 * under way was ended before. */
void mill_groups_attach(struct mill_groups *groups);
/* Loads, fires timers, expires. ret: when the next look is due. */
uint64_t mill_groups_step(struct mill_groups *groups, const struct mill_now *now);
/* The next request that was taken and is answered now; NULL none. The caller owns it. */
struct mill_admin_request *mill_groups_answered(struct mill_groups *groups);
/* A value of the counters' list (MILL_GROUP_COUNTERS). */
void mill_groups_publish(const struct mill_groups *groups, struct mill_shared_control *shared);

/* True for the APIs that are handled here. */
bool mill_groups_has_api(int16_t api_key);
void mill_groups_request(struct mill_groups *groups, struct mill_admin_request *request,
                         struct mill_cursor *at);
/* A marker of the producer is in that partition: what was committed in its transaction is decided,
 * when the topic is that of the offsets. */
void mill_groups_txn_ended(struct mill_groups *groups, const char *topic, int32_t partition,
                           int64_t producer_id, bool commit);
/* Partitions of __consumer_offsets; makes it when there is none. ret: 0 not yet. */
uint32_t mill_groups_shards(struct mill_groups *groups, struct mill_admin_request *request);
/* FindCoordinator waits until the internal topic that it made serves. */
void mill_find_coordinator_continue(struct mill_admin_request *request, uint64_t now_ns);

/* --- for the files of this folder ------------------------------------------------------------ */

struct mill_group *mill_groups_find(const struct mill_groups *groups, const char *group_id);
/* Finds or makes. ret: NULL at a limit (counted), or no memory. */
struct mill_group *mill_groups_make(struct mill_groups *groups, const char *group_id);
/* Forgets a group and its offsets; nothing of it is on its way. */
void mill_groups_remove(struct mill_groups *groups, struct mill_group *group);

struct mill_group_offset *mill_groups_offset(const struct mill_groups *groups,
                                             const struct mill_group *group, const char *topic,
                                             int32_t partition);
/* Sets or replaces. ret: false at a limit (counted), or no memory. */
bool mill_groups_offset_set(struct mill_groups *groups, struct mill_group *group, const char *topic,
                            int32_t partition, const struct mill_offset_value *value);
void mill_groups_offset_remove(struct mill_groups *groups, struct mill_group_offset *offset);
/* Memory for the hash table of all offsets. ret: false none. */
bool mill_groups_offsets_open(struct mill_groups *groups);
enum mill_group_type mill_group_type(const struct mill_group *group);
/* "classic" or "consumer". */
const char *mill_group_type_name(enum mill_group_type type);
/* As its protocol has it. */
enum mill_group_state mill_group_shown_state(const struct mill_group *group);
/* An empty group of the consumer protocol becomes a classic one; its records there are buried.
 * ret: enum mill_kerr when it has members, or a change of it is on its way. */
int16_t mill_groups_make_classic(struct mill_groups *groups, struct mill_group *group);
/* True when a member's subscription names the topic; *ret_known false: the group's protocol is not
 * "consumer", or a subscription cannot be read. */
bool mill_group_subscribes(const struct mill_group *group, const char *topic, bool *ret_known);

/* Appends records of a group. ret: 0, or enum mill_kerr. */
int16_t mill_groups_append(struct mill_groups *groups, int32_t shard,
                           const struct mill_journal_record *records, uint32_t records_count,
                           mill_journal_done done, void *context);
/* Hands a taken request back: it is answered. */
void mill_groups_give(struct mill_groups *groups, struct mill_admin_request *request);
/* The same for one that may have been parked or queued: parked_count follows. */
void mill_groups_done(struct mill_groups *groups, struct mill_admin_request *request);
/* Takes a request that waits: its frame is not needed any more. */
void mill_groups_take(struct mill_admin_request *request);
/* mill_group_calls.store. */
int16_t mill_groups_store(void *context, struct mill_group *group, enum mill_group_store why,
                          struct mill_group_member *member, bool skip);
/* A classic group's record. ret: false when it was of no use, or there is no memory: the group has
 * no members then. */
bool mill_groups_apply_group(struct mill_groups *groups, const struct mill_group_record *record);
/* groups_load.c: how the records of a shard become groups and offsets. */
extern const struct mill_shards_calls mill_groups_load_calls;
/* expiry.c: goes on at the group's first offset; NULL at the next shard. */
void mill_groups_expiry_enter(struct mill_groups *groups, struct mill_group *group);
/* A look at everything begins, for MILL_LOOK_...; one that runs is followed by another. */
void mill_groups_expiry_begin(struct mill_groups *groups, uint32_t looks);
/* One turn's part: as many offsets and groups as hold up nobody. */
void mill_groups_expiry_step(struct mill_groups *groups);
/* Tombstones of offsets and, when group_too, of the group. done may be NULL. ret: as append. */
int16_t mill_groups_bury(struct mill_groups *groups, struct mill_group *group,
                         struct mill_group_offset *const *offsets, uint32_t offsets_count,
                         bool group_too, mill_journal_done done, void *context);
/* api_members.c, api_offset_*.c, api_groups.c */
void mill_join_group(struct mill_groups *groups, struct mill_admin_request *request,
                     struct mill_cursor *at);
void mill_sync_group(struct mill_groups *groups, struct mill_admin_request *request,
                     struct mill_cursor *at);
void mill_heartbeat(struct mill_groups *groups, struct mill_admin_request *request,
                    struct mill_cursor *at);
void mill_leave_group(struct mill_groups *groups, struct mill_admin_request *request,
                      struct mill_cursor *at);
void mill_offset_commit(struct mill_groups *groups, struct mill_admin_request *request,
                        struct mill_cursor *at);
void mill_txn_offset_commit(struct mill_groups *groups, struct mill_admin_request *request,
                            struct mill_cursor *at);
void mill_offset_fetch(struct mill_groups *groups, struct mill_admin_request *request,
                       struct mill_cursor *at);
void mill_offset_delete(struct mill_groups *groups, struct mill_admin_request *request,
                        struct mill_cursor *at);
void mill_find_coordinator(struct mill_groups *groups, struct mill_admin_request *request,
                           struct mill_cursor *at);
void mill_list_groups(struct mill_groups *groups, struct mill_admin_request *request,
                      struct mill_cursor *at);
void mill_describe_groups(struct mill_groups *groups, struct mill_admin_request *request,
                          struct mill_cursor *at);
void mill_delete_groups(struct mill_groups *groups, struct mill_admin_request *request,
                        struct mill_cursor *at);
/* A text of a request in its pool; "" when it is null or there is no memory. */
const char *mill_groups_text(struct mill_admin_request *request, const struct mill_wstr *text);
/* "/1.2.3.4", as Kafka names a member's host. */
const char *mill_groups_host(struct mill_admin_request *request);
/* Answers a Heartbeat. error: enum mill_kerr. */
void mill_heartbeat_answer(struct mill_groups *groups, struct mill_admin_request *request,
                           int16_t error);
/* Answers a LeaveGroup. */
void mill_leave_answer(struct mill_groups *groups, struct mill_admin_request *request,
                       int16_t error, const struct mill_consumer_leaving *members, int32_t count);
/* Answers of the state machine. */
void mill_members_joined(void *waiter, const struct mill_group_join_answer *answer);
void mill_members_synced(void *waiter, int16_t error, const struct mill_group *group,
                         const struct mill_group_member *member);

/* consumer_topics.c: what groups of the consumer protocol share, by the settings. */
void mill_consumers_open(struct mill_groups *groups);
/* Another number whenever a topic came, went or grew. */
uint64_t mill_consumers_topics_version(const struct mill_groups *groups);
/* api_consumer.c */
void mill_consumer_group_heartbeat(struct mill_groups *groups, struct mill_admin_request *request,
                                   struct mill_cursor *at);
void mill_consumer_group_describe(struct mill_groups *groups, struct mill_admin_request *request,
                                  struct mill_cursor *at);
/* A timer of a group of this protocol is due. */
void mill_consumers_time(struct mill_groups *groups, struct mill_group *group);
/* Whether a change is on its way after which members of the group, or its protocol, are others:
 * requests of the classic protocol wait in its queue. */
bool mill_consumers_hold(const struct mill_group *group);
/* The request waits in the group's queue, with its frame, and is handled anew. ret: false no room
 * (counted). */
bool mill_consumers_queue(struct mill_groups *groups, struct mill_group *group,
                          struct mill_admin_request *request);
/* Writes what a request asks for, or answers it by its plan, or queues it. */
void mill_consumers_plan_run(struct mill_groups *groups, struct mill_group *group,
                             struct mill_admin_request *request, struct mill_consumer_plan *plan);
/* api_classic.c: requests of the classic protocol in a group of the consumer protocol. */
void mill_classic_join(struct mill_groups *groups, struct mill_group *group,
                       struct mill_admin_request *request, struct mill_group_join *join);
void mill_classic_sync(struct mill_groups *groups, struct mill_group *group,
                       struct mill_admin_request *request, const struct mill_group_sync *sync);
void mill_classic_leave(struct mill_groups *groups, struct mill_group *group,
                        struct mill_admin_request *request,
                        const struct mill_consumer_leaving *leaving, uint32_t count);
/* Answers by a plan that is done, or failed. */
void mill_classic_joined(struct mill_groups *groups, struct mill_admin_request *request,
                         struct mill_group *group, const struct mill_consumer_plan *plan);
void mill_classic_left(struct mill_groups *groups, struct mill_admin_request *request,
                       const struct mill_consumer_plan *plan);
/* Answers every request that waits in the group's queue with error. */
void mill_consumers_release(struct mill_groups *groups, struct mill_group *group, int16_t error);

#endif
