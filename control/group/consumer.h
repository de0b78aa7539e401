/* SPDX-License-Identifier: Apache-2.0 */
/* One group of the consumer protocol (KIP-848), as a pure state machine whose memory is nothing but
 * the replay of its records:
 *
 *   heartbeat, time-out --> plan: the records of the change, and the answer
 *                             | appended to the log
 *                             v
 *   apply(record): memory, here and at a load alike  --> answer
 *
 * A plan changes nothing by itself, so a change that never reached the log never happened. Plans of
 * a group are made one after the other: the next one when the one before is applied, or given up.
 *
 * A member goes to the group's target epoch by epoch: what it must give up is taken from its
 * assignment first (UNREVOKED) and it stays in its epoch until it says that it does not own it any
 * more, at most for its rebalance time-out; what others still own comes later (UNRELEASED).
 *
 * A group may hold members of the classic protocol, too (consumer_classic.c): they join, sync and
 * beat as ever, their epoch is their generation, and they take each step by joining again. A
 * classic group becomes one of this protocol when the first member of it joins, and is turned back
 * when the last one has gone (consumer_migrate.c). */
#ifndef MILL_CONTROL_GROUP_CONSUMER_H
#define MILL_CONTROL_GROUP_CONSUMER_H

#include "control/group/assignors.h"
#include "control/group/group.h"
#include "control/group/parts.h"
#include "control/journal/journal.h"

/* The type of classic groups whose members are consumers. */
#define MILL_CONSUMER_TYPE "consumer"

enum {
    MILL_CONSUMER_NAMES_MAX = 10000,  /* topics that one member names */
    MILL_CONSUMER_OWNED_MAX = 200000, /* partitions that one heartbeat names */
    MILL_CONSUMER_ID_BYTES_MAX = 249, /* of a member, or of an instance */
    MILL_CONSUMER_REGEXES_MAX = 64,   /* of a group */
    MILL_CONSUMER_LOOKS_MAX = 4, /* regular expressions that one plan matches with all topics */
};

/* Epochs with a meaning, in requests. */
enum {
    MILL_CONSUMER_JOINS = 0,
    MILL_CONSUMER_LEAVES = -1,
    MILL_CONSUMER_LEAVES_AWHILE = -2, /* a static member that will be back */
};

/* As in records. */
enum mill_consumer_state {
    MILL_CONSUMER_STABLE = 0,
    MILL_CONSUMER_UNREVOKED = 1,
    MILL_CONSUMER_UNRELEASED = 2,
};

/* A member. */
struct mill_consumer {
    struct mill_consumer *next;
    char *id;
    char *instance_id; /* NULL dynamic */
    char *rack_id;
    char *client_id;
    char *client_host;
    char **names; /* ascending, each once */
    uint32_t names_count;
    char *regex;    /* NULL or "" none */
    char *assignor; /* it would like; NULL any */
    int32_t rebalance_timeout_ms;
    int32_t epoch;
    int32_t previous_epoch;
    enum mill_consumer_state state;
    bool known;                          /* its own record was there; else only what it is to own */
    struct mill_group_protocol *classic; /* of a member of the classic protocol; else NULL */
    uint32_t classic_count;
    int32_t classic_session_ms;
    struct mill_parts assigned;
    struct mill_parts revoking; /* taken from it, and not given up yet */
    struct mill_parts target;
    uint64_t expires_ns;    /* silent for too long */
    uint64_t revoke_due_ns; /* what it must give up; MILL_NEVER nothing */
    uint64_t join_due_ns;   /* a classic one that was told to join again; MILL_NEVER */
    uint64_t sync_due_ns;   /* and one that joined and has not synced yet */
};

/* Topics that a regular expression matched when it was looked at last. */
struct mill_consumer_regex {
    struct mill_consumer_regex *next;
    char *text;
    char **topics; /* ascending */
    uint32_t topics_count;
    uint64_t topics_seen; /* version of the topics then; 0: of another start of control */
};

/* The part of a group that this protocol has. Its epoch is mill_group.generation. */
struct mill_consumer_group {
    struct mill_consumer *first;
    struct mill_consumer **last;
    uint32_t count;
    struct mill_consumer_regex *regexes;
    int32_t assignment_epoch;
    int64_t assigned_ms;   /* wall clock of the last assignment; 0 not known */
    int64_t hash;          /* of all topics subscribed to, as they were at its epoch */
    uint64_t topics_seen;  /* version of the topics that it was compared with */
    uint32_t removals_max; /* of one batch, as the log took them; 0: not known yet */
};

/* The topics there are. */
struct mill_consumer_topics {
    void *context;
    uint64_t version; /* another one: something changed */
    /* ret: false there is none. */
    bool (*by_name)(void *context, const char *name, struct mill_assign_topic *ret);
    /* ret: its name; NULL there is none. */
    const char *(*by_id)(void *context, const struct mill_uuid *id);
    /* Calls visit for each that a regular expression may match. */
    void (*each)(void *context, void (*visit)(void *visitor, const char *name), void *visitor);
};

/* What a group may have of its own. */
struct mill_consumer_times {
    int64_t session_timeout_ms;     /* group.consumer.session.timeout.ms */
    int64_t heartbeat_ms;           /* group.consumer.heartbeat.interval.ms */
    int64_t assignment_interval_ms; /* group.consumer.assignment.interval.ms */
};

/* What all groups of the protocol share. */
struct mill_consumer_env {
    struct mill_group_env *group; /* time, memory, timer */
    struct mill_consumer_topics topics;
    struct mill_consumer_times times; /* of groups without their own */
    /* Takes those over that the group has of its own; NULL none has. */
    void (*own_times)(void *context, const char *group_id, struct mill_consumer_times *ret);
    void *own_context;
    int64_t size_max;             /* group.consumer.max.size */
    bool upgrades;                /* group.consumer.migration.policy: classic groups become these */
    bool downgrades;              /* and are turned back */
    uint32_t assignors;           /* bits of those allowed, group.consumer.assignors */
    enum mill_assignor preferred; /* the first of them */
};

/* A heartbeat. */
struct mill_consumer_beat {
    const char *member_id; /* "" none (version 0) */
    int32_t epoch;
    const char *instance_id;
    const char *rack_id;
    const char *client_id;
    const char *client_host;
    int32_t rebalance_timeout_ms; /* -1 as before */
    char **names;                 /* NULL as before; sorted here */
    uint32_t names_count;
    const char *regex;    /* NULL as before */
    const char *assignor; /* NULL as before */
    bool owned_told;
    bool owned_named;        /* a topic, if without partitions */
    struct mill_parts owned; /* sorted */
    bool id_required;        /* version 1 on */
    /* A JoinGroup: epoch is that of joining; names and owned are those of its subscription. */
    const struct mill_group_protocol *classic; /* NULL: no JoinGroup */
    uint32_t classic_count;
    int32_t classic_session_ms;
    bool fresh; /* its member id was made for it */
};

/* One of those that a LeaveGroup names. */
struct mill_consumer_leaving {
    const char *member_id;
    const char *instance_id; /* NULL dynamic */
    int16_t error;           /* enum mill_kerr */
};

/* What is to be written, and what is answered when it is. */
struct mill_consumer_plan {
    struct mill_pool pool;
    struct mill_journal_record *records;
    uint32_t records_count;
    uint32_t records_room;
    bool no_memory;
    bool rebalances;                             /* the group's epoch rises */
    bool removes;                                /* a member, or lets one leave for a while */
    bool converts;                               /* to the other protocol: requests wait for it */
    bool rests;                                  /* turned back without a rebalance */
    uint32_t expired;                            /* members that it removes because of time */
    uint64_t topics_seen;                        /* version of the topics it was made with */
    const char *looked[MILL_CONSUMER_LOOKS_MAX]; /* regular expressions, held against these */
    uint32_t looked_count;
    int16_t error;       /* enum mill_kerr: nothing is written */
    const char *message; /* NULL none */
    const char *member_id;
    int32_t epoch;
    bool assignment;                       /* told with the answer */
    const char *protocol;                  /* of a classic member that joined: the first of its */
    struct mill_consumer_leaving *leaving; /* of a LeaveGroup */
    uint32_t leaving_count;
};

/* What is wrong with a heartbeat itself, whatever the group. ret: enum mill_kerr, with the message
 * in plan. */
int16_t mill_consumer_beat_check(struct mill_consumer_env *env,
                                 const struct mill_consumer_beat *beat,
                                 struct mill_consumer_plan *plan);
/* Makes a plan for a heartbeat, checked first. plan is empty, its pool's limit set; it may be done
 * with no record. group may have no consumers yet. */
void mill_consumer_beat(struct mill_consumer_env *env, struct mill_group *group,
                        struct mill_consumer_beat *beat, struct mill_consumer_plan *plan);
/* Makes a plan that removes members that were silent for too long, or whose time to give up
 * partitions is over. */
void mill_consumer_time(struct mill_consumer_env *env, struct mill_group *group,
                        struct mill_consumer_plan *plan);
/* The log does not take so many records as the plan has. ret: false: it cannot remove fewer. */
bool mill_consumer_remove_fewer(struct mill_group *group, const struct mill_consumer_plan *plan);
/* Tombstones of everything that a group has in the log but its offsets and members. */
void mill_consumer_bury_group(const struct mill_group *group, struct mill_consumer_plan *plan);
/* The same as a plan, of an empty group. */
void mill_consumer_bury(const struct mill_group *group, struct mill_consumer_plan *plan);
/* The log has the plan's records, which were applied: what stands in no record follows. */
void mill_consumer_done(struct mill_consumer_env *env, struct mill_group *group,
                        const struct mill_consumer_plan *plan);
void mill_consumer_plan_free(struct mill_consumer_plan *plan);

struct mill_consumer_record; /* consumer_records.h */
/* Takes a record over into memory. ret: false no memory. */
bool mill_consumer_apply(struct mill_consumer_env *env, struct mill_group *group,
                         const struct mill_consumer_record *record);
/* Loaded: forgets members of whom nothing but an assignment is known; time-outs begin now. */
void mill_consumer_resume(struct mill_consumer_env *env, struct mill_group *group);
/* What holds for the group now. */
struct mill_consumer_times mill_consumer_times(const struct mill_consumer_env *env,
                                               const struct mill_group *group);
/* Something came from the member: silence is counted from now on. */
void mill_consumer_renew(const struct mill_consumer_env *env, const struct mill_group *group,
                         struct mill_consumer *member);
/* Tells the timer when the next member is due. */
void mill_consumer_timer(struct mill_consumer_env *env, struct mill_group *group);
/* Frees what the group has of this protocol; NULL is fine. */
void mill_consumer_drop(struct mill_group_env *env, struct mill_group *group);

/* Whether this member (NULL: one that the group does not have) may commit the partition now. ret:
 * enum mill_kerr. topic_id NULL: no partition is meant. */
int16_t mill_consumer_may_commit(const struct mill_group *group, const struct mill_consumer *member,
                                 int32_t epoch, int16_t version, const struct mill_uuid *topic_id,
                                 int32_t partition);
/* Whether this member may ask for offsets. member_id NULL: anyone does. ret: enum mill_kerr. */
int16_t mill_consumer_may_fetch(const struct mill_group *group, const char *member_id,
                                int32_t epoch);

/* --- members of the classic protocol: consumer_classic.c ---------------------------------------
 */

/* Whether a JoinGroup may be asked at all. ret: enum mill_kerr. */
int16_t mill_consumer_may_join(const struct mill_consumer_env *env, const struct mill_group *group,
                               const struct mill_group_join *join);
/* The JoinGroup as a heartbeat that joins; texts and protocols are not copied. ret: 0, -EBADMSG its
 * subscription cannot be read, -ENOMEM. */
int mill_consumer_join_beat(const struct mill_consumer_env *env, const struct mill_group_join *join,
                            struct mill_pool *pool,
                            struct mill_consumer_beat *ret) MILL_WARN_UNUSED;
/* A member joined: its next step is to sync, within the rebalance time-out. */
void mill_consumer_joined(struct mill_consumer_env *env, struct mill_group *group,
                          const char *member_id);
/* ret: enum mill_kerr; without an error *ret_assignment is its assignment, in the pool. */
int16_t mill_consumer_sync(struct mill_consumer_env *env, struct mill_group *group,
                           const struct mill_group_sync *sync, struct mill_pool *pool,
                           struct mill_group_blob *ret_assignment);
/* ret: enum mill_kerr. */
int16_t mill_consumer_heartbeat(struct mill_consumer_env *env, struct mill_group *group,
                                const char *member_id, const char *instance_id, int32_t generation);
/* Makes a plan that removes those of plan->leaving who are members, and says of each what became of
 * it. plan is empty but for them. */
void mill_consumer_leave(struct mill_consumer_env *env, struct mill_group *group,
                         struct mill_consumer_plan *plan);

/* ------------------------------------------------------------------------------------------------
 */

struct mill_consumer *mill_consumer_find(const struct mill_group *group, const char *member_id);
struct mill_consumer *mill_consumer_find_static(const struct mill_consumer_group *consumers,
                                                const char *instance_id);
/* Whether anybody but one member has the partition, or has not given it up yet. */
bool mill_consumer_is_owned(const struct mill_consumer_group *consumers,
                            const struct mill_part *part, const struct mill_consumer *but);
bool mill_consumer_subscribes(const struct mill_group *group, const char *topic);
/* Empty, assigning, reconciling, stable or dead. */
enum mill_group_state mill_consumer_group_state(const struct mill_group *group);
/* Counts what a member would like. */
void mill_consumer_vote(const struct mill_consumer *member, uint32_t votes[MILL_ASSIGNOR_COUNT]);
/* The one that most would like; without a vote, or with as many for each, the preferred one. */
enum mill_assignor mill_consumer_elect(const struct mill_consumer_env *env,
                                       const uint32_t votes[MILL_ASSIGNOR_COUNT]);

#endif
