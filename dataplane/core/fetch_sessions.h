/* SPDX-License-Identifier: Apache-2.0 */
/* Incremental fetch sessions of one core (KIP-227): what a client asks for again and again, and
 * what it was told last, so that neither has to be sent anew. Pure: no clock, no map, no request;
 * called by its core only, takes all memory when it is made.
 *
 *   session --first..last--> part --> part --> ...   in the order of answers
 *                              |        |
 *                              +-> topic (name or id), shared by all sessions of the core
 *
 * Bounded in sessions, in partitions and in topics. Who may push out whom is Kafka's rule: see
 * mill_fetch_session_open.
 */
#ifndef MILL_DATAPLANE_SESSIONS_H
#define MILL_DATAPLANE_SESSIONS_H

#include "base/check.h"
#include "base/uuid.h"
#include "ipc/map.h"

enum {
    MILL_FETCH_SESSIONS_MAX = 4096, /* of one core; more slots in the configuration are not used */
    MILL_FETCH_SESSION_NONE = UINT32_MAX,
};

struct mill_fetch_session_limits {
    uint32_t fetch_sessions_max;      /* 0: no sessions, every call refuses */
    uint32_t parts_max;               /* partitions of all sessions together */
    uint32_t fetch_session_parts_max; /* of one */
    uint32_t topics_max;              /* different topics of all sessions */
    uint32_t core;                    /* ids of different cores differ */
    uint32_t cores_count;
    uint64_t key[2]; /* ids and hashes cannot be guessed without it */
};

/* A topic as the session's client names it: by id from version 13 on, else by name. */
struct mill_fetch_session_topic {
    struct mill_uuid id; /* zero where a name is used */
    uint32_t refs;       /* parts, and callers between take and give */
    uint32_t hash_next;
    uint16_t name_length;
    char name[MILL_TOPIC_NAME_MAX + 1]; /* terminated; empty where an id is used */
};

struct mill_fetch_fetch_session_part {
    uint32_t next; /* in its session, or free; index */
    uint32_t prev;
    uint32_t hash_next;
    uint32_t session;
    uint32_t topic;
    int32_t partition;
    /* what is asked */
    int32_t bytes_max;
    int32_t leader_epoch;
    int32_t last_epoch;
    int64_t offset;
    /* what was told last; -1: must be told */
    int64_t high_watermark;
    int64_t start_offset;
};

struct mill_fetch_session {
    int32_t id;    /* 0: free */
    int32_t epoch; /* of the next request */
    bool by_id;
    bool privileged; /* a follower's */
    uint32_t count;
    uint32_t first; /* part, or MILL_FETCH_SESSION_NONE */
    uint32_t last;
    uint32_t used_next; /* least recently used first; index of session */
    uint32_t used_prev;
    uint64_t created_ns;
    uint64_t used_ns;
};

struct mill_fetch_session_stats {
    uint64_t sessions;  /* now */
    uint64_t parts;     /* now */
    uint64_t evictions; /* pushed out for another */
    uint64_t refused;   /* asked for and not given, or ended because a bound was reached */
};

struct mill_fetch_sessions;

/* ret: 0, -ENOMEM. */
int mill_fetch_sessions_create(const struct mill_fetch_session_limits *limits,
                               struct mill_fetch_sessions **ret_sessions) MILL_WARN_UNUSED;
void mill_fetch_sessions_destroy(struct mill_fetch_sessions *sessions);
uint64_t mill_fetch_sessions_bytes(const struct mill_fetch_session_limits *limits);
const struct mill_fetch_session_stats *
mill_fetch_sessions_stats(const struct mill_fetch_sessions *sessions);

/* The session of this core with this id, or NULL. */
struct mill_fetch_session *mill_fetch_session_find(struct mill_fetch_sessions *sessions,
                                                   int32_t id);

/* A session for count partitions, empty as yet. When there is no room, one that was not used for
 * two minutes makes room, else the least of those that are worth less: a client's before a
 * follower's, then the one with fewer partitions. One that is younger than two minutes is spared,
 * but for a client's when a follower comes.
 * ret: NULL refused: nobody makes room, or count is more than a session may have. */
struct mill_fetch_session *mill_fetch_session_open(struct mill_fetch_sessions *sessions,
                                                   uint32_t count, bool by_id, bool privileged,
                                                   uint64_t now_ns);
/* Forgets it; O(its partitions). */
void mill_fetch_session_close(struct mill_fetch_sessions *sessions,
                              struct mill_fetch_session *session);
/* The same, counted: a bound keeps it from going on. */
void mill_fetch_session_refuse(struct mill_fetch_sessions *sessions,
                               struct mill_fetch_session *session);
/* It was used: it is the most recent, and waits for its next epoch. */
void mill_fetch_session_touch(struct mill_fetch_sessions *sessions,
                              struct mill_fetch_session *session, uint64_t now_ns);
/* The epoch after this one: 1 comes after the greatest, 0 never. */
int32_t mill_fetch_session_epoch_after(int32_t epoch);

/* A topic's index, with a reference to be given back. Zero id: by name, terminated.
 * ret: MILL_FETCH_SESSION_NONE: no room. */
uint32_t mill_fetch_session_topic_take(struct mill_fetch_sessions *sessions,
                                       const struct mill_uuid *id, const char *name);
void mill_fetch_session_topic_give(struct mill_fetch_sessions *sessions, uint32_t topic);
const struct mill_fetch_session_topic *
mill_fetch_session_topic_at(const struct mill_fetch_sessions *sessions, uint32_t topic);

/* The part of a session for a partition: the one there is, or a new one at the end, whose
 * arguments the caller fills in. ret: MILL_FETCH_SESSION_NONE: no room. */
uint32_t mill_fetch_session_part_put(struct mill_fetch_sessions *sessions,
                                     struct mill_fetch_session *session, uint32_t topic,
                                     int32_t partition);
/* ret: false: it was not in the session. */
bool mill_fetch_session_part_forget(struct mill_fetch_sessions *sessions,
                                    struct mill_fetch_session *session, uint32_t topic,
                                    int32_t partition);
struct mill_fetch_fetch_session_part *
mill_fetch_session_part_at(struct mill_fetch_sessions *sessions, uint32_t part);
/* To the end of the order: the others come first next time. */
void mill_fetch_session_part_last(struct mill_fetch_sessions *sessions,
                                  struct mill_fetch_session *session, uint32_t part);
/* Notes what an answer says of a partition. An error (failed) is told each time, and what comes
 * after it, too. ret: whether it has to be told: records, an error, or anything that changed. */
bool mill_fetch_session_part_told(struct mill_fetch_fetch_session_part *part, bool failed,
                                  uint32_t bytes, int64_t high_watermark, int64_t start_offset);

#endif
