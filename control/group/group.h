/* SPDX-License-Identifier: Apache-2.0 */
/* One consumer group of the classic protocol, as a pure state machine: calls in, answers and
 * records out through a table, time as an argument.
 *
 *            join            all rejoined, or time           leader's sync is in the log
 *   Empty ---------> Preparing ---------------> Completing ---------------------------> Stable
 *     ^                  ^  |                        |                                    |
 *     +--- nobody left --+--+---- join, leave, ------+---- a member silent, or changed ---+
 *
 * A member whose request is parked (join, sync) does not expire; one that is new and whose client
 * died does after NEW_MEMBER_NS. Members are kept in the order in which they joined. */
#ifndef MILL_CONTROL_GROUP_GROUP_H
#define MILL_CONTROL_GROUP_GROUP_H

#include "base/heap.h"
#include "base/compiler.h"

enum {
    MILL_GROUP_PROTOCOLS_MAX = 32, /* of one member; a bit each */
};

enum mill_group_state {
    MILL_GROUP_EMPTY,
    MILL_GROUP_PREPARING,
    MILL_GROUP_COMPLETING,
    MILL_GROUP_STABLE,
    MILL_GROUP_DEAD, /* being deleted */
    /* As shown of a group of the consumer protocol; mill_group.state is none of these. */
    MILL_GROUP_ASSIGNING,
    MILL_GROUP_RECONCILING,
    MILL_GROUP_STATE_COUNT,
};

enum mill_group_type {
    MILL_GROUP_CLASSIC,
    MILL_GROUP_CONSUMER,
    MILL_GROUP_TYPE_COUNT,
};

struct mill_group_blob {
    uint8_t *bytes; /* malloc; NULL when empty */
    uint32_t size_bytes;
};

struct mill_group_protocol {
    char *name;
    struct mill_group_blob metadata;
};

struct mill_group_member {
    struct mill_group_member *next;
    char *id;
    char *instance_id; /* NULL: dynamic */
    char *client_id;
    char *client_host;
    int32_t rebalance_timeout_ms;
    int32_t session_timeout_ms;
    struct mill_group_protocol *protocols;
    uint32_t protocols_count;
    struct mill_group_blob assignment;
    void *join; /* parked requests */
    void *sync;
    bool is_new;       /* in its first join */
    bool sync_missing; /* of the present generation */
    uint64_t expires_ns;
};

struct mill_group_pending {
    struct mill_group_pending *next;
    uint64_t expires_ns;
    char id[];
};

struct mill_group_offset;   /* groups.h */
struct mill_consumer_group; /* consumer.h */
struct mill_consumer_write; /* api_consumer.c */
struct mill_admin_request;

struct mill_group {
    struct mill_group *next; /* in its bucket */
    struct mill_group *shard_next;
    struct mill_group *shard_prev;
    struct mill_heap_item timer;
    int32_t shard; /* partition of __consumer_offsets */
    enum mill_group_state state;
    int64_t state_ms;    /* wall clock of its last change */
    int32_t generation;  /* of the consumer protocol: the group's epoch */
    char *protocol_type; /* NULL: none, simple consumers only */
    char *protocol;      /* chosen one; NULL none */
    struct mill_group_member *leader;
    struct mill_group_member *members;
    struct mill_group_member **members_last;
    uint32_t members_count;
    uint32_t joined_count; /* with a parked join */
    struct mill_group_pending *pending;
    uint32_t pending_count;
    uint64_t join_due_ns;                  /* preparing: when it ends at the latest; MILL_NEVER */
    uint64_t delay_left_ns;                /* of the initial delay, what may be added */
    bool delaying;                         /* in the initial delay */
    bool member_added;                     /* since it last began */
    uint64_t sync_due_ns;                  /* who has not synced by then is removed; MILL_NEVER */
    int32_t stored_generation;             /* whose assignments went to the log last */
    bool turned_back;                      /* from the consumer protocol by the record read last */
    uint32_t commits;                      /* on their way to the log; the group stays */
    struct mill_consumer_group *consumers; /* NULL: classic */
    struct mill_consumer_write *write;     /* of the consumer protocol, on its way to the log */
    struct mill_admin_request *queued;     /* requests that wait for it, the oldest first */
    struct mill_admin_request **queued_last;
    struct mill_group_offset *offsets;
    uint32_t offsets_count;
    char id[];
};

/* --- what a caller gives --------------------------------------------------------------------- */

struct mill_group_calls;

/* What all groups share. */
struct mill_group_env {
    const struct mill_group_calls *calls;
    void *context;
    int64_t session_timeout_min_ms; /* group.min.session.timeout.ms */
    int64_t session_timeout_max_ms;
    int64_t initial_delay_ms; /* group.initial.rebalance.delay.ms */
    int64_t size_max;         /* group.max.size */
    uint64_t bytes_max;       /* memory of members and offsets of all groups */
    uint64_t bytes;           /* of these, used */
    uint64_t members_count;   /* of all groups */
    uint64_t rebalances;
    uint64_t expired_members;
    uint64_t full;
    uint64_t now_ns;
    int64_t now_ms;
};

struct mill_group_join {
    const char *member_id; /* "" none */
    const char *instance_id;
    const char *client_id;
    const char *client_host;
    int32_t rebalance_timeout_ms;
    int32_t session_timeout_ms;
    const char *protocol_type;
    const struct mill_group_protocol *protocols; /* copied */
    uint32_t protocols_count;
    bool id_required;    /* version 4 on: a dynamic member joins again with the id it is told */
    bool skip_supported; /* version 9 on */
    void *waiter;        /* the request, answered through calls */
};

struct mill_group_join_answer {
    int16_t error; /* enum mill_kerr */
    const char *member_id;
    const struct mill_group *group; /* NULL with most errors */
    const char *leader;             /* id; NULL: the group's */
    bool members;                   /* with the list of members: to the leader only */
    bool skip_assignment;
};

struct mill_group_sync {
    const char *member_id;
    const char *instance_id;
    int32_t generation;
    const char *protocol_type; /* NULL: not said */
    const char *protocol;
    uint32_t assignments_count;
    const struct mill_group_assignment {
        const char *member_id;
        struct mill_group_blob bytes;
    } * assignments; /* copied */
    void *waiter;
};

enum mill_group_store {
    MILL_GROUP_STORE_EMPTY,  /* nobody waits for it */
    MILL_GROUP_STORE_SYNC,   /* mill_group_synced follows */
    MILL_GROUP_STORE_STATIC, /* mill_group_replaced follows */
};

struct mill_group_calls {
    void (*joined)(void *waiter, const struct mill_group_join_answer *answer);
    /* group and member NULL with an error. */
    void (*synced)(void *waiter, int16_t error, const struct mill_group *group,
                   const struct mill_group_member *member);
    /* Begins to write the group's record as it is now. skip: of MILL_GROUP_STORE_STATIC, given back
     * with it. ret: 0, or enum mill_kerr when it cannot be. */
    int16_t (*store)(void *context, struct mill_group *group, enum mill_group_store why,
                     struct mill_group_member *member, bool skip);
    void (*random)(void *context, void *ret_bytes, size_t size_bytes);
    /* The next moment at which mill_group_time has something to do changed. */
    void (*timer)(void *context, struct mill_group *group, uint64_t at_ns);
};

/* --- calls ----------------------------------------------------------------------------------- */

/* ret: NULL out of memory. */
struct mill_group *mill_group_new(const char *id);
/* Frees it with its members and ids; offsets and parked requests are gone before. */
void mill_group_free(struct mill_group_env *env, struct mill_group *group);

void mill_group_join(struct mill_group_env *env, struct mill_group *group,
                     const struct mill_group_join *join);
void mill_group_sync(struct mill_group_env *env, struct mill_group *group,
                     const struct mill_group_sync *sync);
/* ret: enum mill_kerr of the answer. */
int16_t mill_group_heartbeat(struct mill_group_env *env, struct mill_group *group,
                             const char *member_id, const char *instance_id, int32_t generation);
int16_t mill_group_leave(struct mill_group_env *env, struct mill_group *group,
                         const char *member_id, const char *instance_id);
/* Whether this member may commit now. ret: enum mill_kerr. */
int16_t mill_group_may_commit(struct mill_group_env *env, struct mill_group *group,
                              const char *member_id, const char *instance_id, int32_t generation);
/* The same for offsets inside a transaction: who names no member may always (KIP-447). */
int16_t mill_group_may_commit_txn(struct mill_group_env *env, struct mill_group *group,
                                  const char *member_id, const char *instance_id,
                                  int32_t generation);

/* The record of the leader's assignments is in the log, or not (error). */
void mill_group_synced(struct mill_group_env *env, struct mill_group *group, int32_t generation,
                       int16_t error);
/* The record of a static member's new id is in the log, or not. */
void mill_group_replaced(struct mill_group_env *env, struct mill_group *group,
                         const char *member_id, int32_t generation, bool skip, int16_t error);

/* A timer of the group is due. */
void mill_group_time(struct mill_group_env *env, struct mill_group *group);
/* Answers every parked request with error; nobody is removed. */
void mill_group_release(struct mill_group_env *env, struct mill_group *group, int16_t error);

/* --- for loading ----------------------------------------------------------------------------- */

/* Adds a member as a record tells it, whatever the limit. ret: NULL no memory. */
struct mill_group_member *mill_group_restore_member(struct mill_group_env *env,
                                                    struct mill_group *group,
                                                    const struct mill_group_join *join,
                                                    const struct mill_group_blob *assignment);
void mill_group_clear_members(struct mill_group_env *env, struct mill_group *group);
/* Its record was buried: what is left of it are offsets. Whoever still waits is told to join again.
 */
void mill_group_forget_classic(struct mill_group_env *env, struct mill_group *group);
/* It was one of the consumer protocol: time-outs begin now, and a rebalance unless everybody has
 * what the record says. */
void mill_group_turned_back(struct mill_group_env *env, struct mill_group *group, bool rebalance);
/* Loaded: the time-outs begin now. */
void mill_group_resume(struct mill_group_env *env, struct mill_group *group);
/* Replaces a text of the group (type, protocol). value NULL: none. ret: 0, -ENOMEM. */
int mill_group_set_text(char **to, const char *value) MILL_WARN_UNUSED;

struct mill_group_member *mill_group_find(const struct mill_group *group, const char *member_id);
const char *mill_group_state_name(enum mill_group_state state);
/* Metadata of the member for the chosen protocol. */
const struct mill_group_blob *mill_group_metadata(const struct mill_group *group,
                                                  const struct mill_group_member *member);

#endif
