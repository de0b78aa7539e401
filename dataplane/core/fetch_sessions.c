/* SPDX-License-Identifier: Apache-2.0 */
/* Incremental fetch sessions of a core; see sessions.h. */
#include "dataplane/core/fetch_sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/siphash.h"

#define NONE ((uint32_t)MILL_FETCH_SESSION_NONE)

enum {
    EVICT_FOR_PARTS = 16, /* sessions that may go for the partitions of one */
};

/* Not used for so long: it makes room for any other. Not older than that: it is spared. As Kafka's
 * FetchSessionCache. */
static const uint64_t evict_ns = 120 * MILL_NS_PER_S;

/* Indices of entries that were never used come from `fresh`: what is not needed stays untouched. */
struct pool {
    uint32_t free; /* first of a list */
    uint32_t fresh;
    uint32_t max;
};

struct mill_fetch_sessions {
    struct mill_fetch_session_limits limits;
    struct mill_fetch_session_stats stats;
    struct mill_fetch_session *sessions;
    struct pool session_pool;
    uint32_t used_first;
    uint32_t used_last;
    struct mill_fetch_fetch_session_part *parts;
    struct pool part_pool;
    uint32_t *part_buckets; /* index + 1 */
    uint32_t part_mask;
    struct mill_fetch_session_topic *topics;
    struct pool topic_pool;
    uint32_t *topic_buckets; /* index + 1 */
    uint32_t topic_mask;
    uint64_t ids_made;
};

/* --- making ----------------------------------------------------------------------------------- */

static uint32_t buckets_for(uint32_t count)
{
    uint32_t buckets = 1;
    while (buckets < count) {
        buckets <<= 1;
    }
    return buckets;
}

static struct pool pool_of(uint32_t max)
{
    return (struct pool){.free = NONE, .max = max};
}

int mill_fetch_sessions_create(const struct mill_fetch_session_limits *limits,
                               struct mill_fetch_sessions **ret_sessions)
{
    struct mill_fetch_sessions *made = calloc(1, sizeof(*made));
    if (!made) {
        return -ENOMEM;
    }
    MILL_ASSERT_LE(limits->fetch_sessions_max, (uint32_t)MILL_FETCH_SESSIONS_MAX);
    made->limits = *limits;
    made->used_first = NONE;
    made->used_last = NONE;
    made->session_pool = pool_of(limits->fetch_sessions_max);
    made->part_pool = pool_of(limits->parts_max);
    made->topic_pool = pool_of(limits->topics_max);
    made->part_mask = buckets_for(limits->parts_max) - 1;
    made->topic_mask = buckets_for(limits->topics_max) - 1;
    made->sessions = calloc(limits->fetch_sessions_max + 1u, sizeof(made->sessions[0]));
    made->parts = calloc(limits->parts_max + 1u, sizeof(made->parts[0]));
    made->topics = calloc(limits->topics_max + 1u, sizeof(made->topics[0]));
    made->part_buckets = calloc(made->part_mask + 1u, sizeof(made->part_buckets[0]));
    made->topic_buckets = calloc(made->topic_mask + 1u, sizeof(made->topic_buckets[0]));
    if (!made->sessions || !made->parts || !made->topics || !made->part_buckets ||
        !made->topic_buckets) {
        mill_fetch_sessions_destroy(made);
        return -ENOMEM;
    }
    *ret_sessions = made;
    return 0;
}

void mill_fetch_sessions_destroy(struct mill_fetch_sessions *sessions)
{
    if (!sessions) {
        return;
    }
    free(sessions->sessions);
    free(sessions->parts);
    free(sessions->topics);
    free(sessions->part_buckets);
    free(sessions->topic_buckets);
    free(sessions);
}

uint64_t mill_fetch_sessions_bytes(const struct mill_fetch_session_limits *limits)
{
    return limits->fetch_sessions_max * sizeof(struct mill_fetch_session) +
           limits->parts_max * sizeof(struct mill_fetch_fetch_session_part) +
           limits->topics_max * sizeof(struct mill_fetch_session_topic) +
           (buckets_for(limits->parts_max) + buckets_for(limits->topics_max)) * sizeof(uint32_t);
}

const struct mill_fetch_session_stats *
mill_fetch_sessions_stats(const struct mill_fetch_sessions *sessions)
{
    return &sessions->stats;
}

/* --- topics ----------------------------------------------------------------------------------- */

static uint32_t *topic_bucket(struct mill_fetch_sessions *sessions, const struct mill_uuid *id,
                              const char *name, uint32_t length)
{
    uint64_t hash = length > 0 ? mill_siphash(sessions->limits.key, name, length)
                               : mill_siphash(sessions->limits.key, id->b, sizeof(id->b));
    return &sessions->topic_buckets[hash & sessions->topic_mask];
}

uint32_t mill_fetch_session_topic_take(struct mill_fetch_sessions *sessions,
                                       const struct mill_uuid *id, const char *name)
{
    uint32_t length = (uint32_t)strnlen(name, MILL_TOPIC_NAME_MAX);
    uint32_t *bucket = topic_bucket(sessions, id, name, length);
    for (uint32_t at = *bucket; at > 0; at = sessions->topics[at - 1].hash_next) {
        struct mill_fetch_session_topic *topic = &sessions->topics[at - 1];
        if (topic->name_length == length && memcmp(topic->name, name, length) == 0 &&
            mill_uuid_equal(&topic->id, id)) {
            topic->refs++;
            return at - 1;
        }
    }
    struct pool *pool = &sessions->topic_pool;
    uint32_t index = pool->free;
    if (index != NONE) {
        pool->free = sessions->topics[index].hash_next;
    } else if (pool->fresh < pool->max) {
        index = pool->fresh++;
    } else {
        return NONE;
    }
    struct mill_fetch_session_topic *topic = &sessions->topics[index];
    topic->id = *id;
    topic->refs = 1;
    topic->name_length = (uint16_t)length;
    memcpy(topic->name, name, length);
    topic->name[length] = '\0';
    topic->hash_next = *bucket;
    *bucket = index + 1;
    return index;
}

void mill_fetch_session_topic_give(struct mill_fetch_sessions *sessions, uint32_t index)
{
    struct mill_fetch_session_topic *topic = &sessions->topics[index];
    MILL_ASSERT_LT(0u, topic->refs);
    if (--topic->refs > 0) {
        return;
    }
    uint32_t *link = topic_bucket(sessions, &topic->id, topic->name, topic->name_length);
    while (*link != index + 1) {
        MILL_ASSERT(*link > 0);
        link = &sessions->topics[*link - 1].hash_next;
    }
    *link = topic->hash_next;
    topic->hash_next = sessions->topic_pool.free;
    sessions->topic_pool.free = index;
}

const struct mill_fetch_session_topic *
mill_fetch_session_topic_at(const struct mill_fetch_sessions *sessions, uint32_t topic)
{
    return &sessions->topics[topic];
}

/* --- parts ------------------------------------------------------------------------------------ */

static uint32_t session_index(const struct mill_fetch_sessions *sessions,
                              const struct mill_fetch_session *session)
{
    return (uint32_t)(session - sessions->sessions);
}

static uint32_t *part_bucket(struct mill_fetch_sessions *sessions, uint32_t session, uint32_t topic,
                             int32_t partition)
{
    const uint32_t name[3] = {session, topic, (uint32_t)partition};
    uint64_t hash = mill_siphash(sessions->limits.key, name, sizeof(name));
    return &sessions->part_buckets[hash & sessions->part_mask];
}

/* ret: the word that leads to the part, or the 0 at the end of its bucket. */
static uint32_t *part_find(struct mill_fetch_sessions *sessions, uint32_t session, uint32_t topic,
                           int32_t partition)
{
    uint32_t *link = part_bucket(sessions, session, topic, partition);
    while (*link > 0) {
        struct mill_fetch_fetch_session_part *part = &sessions->parts[*link - 1];
        if (part->session == session && part->topic == topic && part->partition == partition) {
            break;
        }
        link = &part->hash_next;
    }
    return link;
}

static void part_link(struct mill_fetch_sessions *sessions, struct mill_fetch_session *session,
                      uint32_t index)
{
    struct mill_fetch_fetch_session_part *part = &sessions->parts[index];
    part->next = NONE;
    part->prev = session->last;
    if (session->last == NONE) {
        session->first = index;
    } else {
        sessions->parts[session->last].next = index;
    }
    session->last = index;
}

static void part_unlink(struct mill_fetch_sessions *sessions, struct mill_fetch_session *session,
                        uint32_t index)
{
    const struct mill_fetch_fetch_session_part *part = &sessions->parts[index];
    if (part->prev == NONE) {
        session->first = part->next;
    } else {
        sessions->parts[part->prev].next = part->next;
    }
    if (part->next == NONE) {
        session->last = part->prev;
    } else {
        sessions->parts[part->next].prev = part->prev;
    }
}

uint32_t mill_fetch_session_part_put(struct mill_fetch_sessions *sessions,
                                     struct mill_fetch_session *session, uint32_t topic,
                                     int32_t partition)
{
    uint32_t of = session_index(sessions, session);
    uint32_t *link = part_find(sessions, of, topic, partition);
    if (*link > 0) {
        return *link - 1;
    }
    struct pool *pool = &sessions->part_pool;
    uint32_t index = pool->free;
    if (session->count == sessions->limits.fetch_session_parts_max) {
        return NONE;
    }
    if (index != NONE) {
        pool->free = sessions->parts[index].next;
    } else if (pool->fresh < pool->max) {
        index = pool->fresh++;
    } else {
        return NONE;
    }
    sessions->parts[index] = (struct mill_fetch_fetch_session_part){
        .session = of,
        .topic = topic,
        .partition = partition,
        .high_watermark = -1,
        .start_offset = -1,
    };
    *link = index + 1;
    part_link(sessions, session, index);
    sessions->topics[topic].refs++;
    session->count++;
    sessions->stats.parts++;
    return index;
}

static void part_free(struct mill_fetch_sessions *sessions, struct mill_fetch_session *session,
                      uint32_t *link)
{
    uint32_t index = *link - 1;
    struct mill_fetch_fetch_session_part *part = &sessions->parts[index];
    *link = part->hash_next;
    part_unlink(sessions, session, index);
    mill_fetch_session_topic_give(sessions, part->topic);
    part->next = sessions->part_pool.free;
    sessions->part_pool.free = index;
    session->count--;
    sessions->stats.parts--;
}

bool mill_fetch_session_part_forget(struct mill_fetch_sessions *sessions,
                                    struct mill_fetch_session *session, uint32_t topic,
                                    int32_t partition)
{
    uint32_t *link = part_find(sessions, session_index(sessions, session), topic, partition);
    if (*link == 0) {
        return false;
    }
#ifndef MILL_MUTANT_CORE_FETCH_SESSION_FORGOTTEN_KEPT
    part_free(sessions, session, link);
#endif
    return true;
}

struct mill_fetch_fetch_session_part *
mill_fetch_session_part_at(struct mill_fetch_sessions *sessions, uint32_t part)
{
    return &sessions->parts[part];
}

void mill_fetch_session_part_last(struct mill_fetch_sessions *sessions,
                                  struct mill_fetch_session *session, uint32_t part)
{
#ifndef MILL_MUTANT_CORE_FETCH_SESSION_UNFAIR
    part_unlink(sessions, session, part);
    part_link(sessions, session, part);
#endif
}

bool mill_fetch_session_part_told(struct mill_fetch_fetch_session_part *part, bool failed,
                                  uint32_t bytes, int64_t high_watermark, int64_t start_offset)
{
    bool changed = failed || bytes > 0 || part->high_watermark != high_watermark ||
                   part->start_offset != start_offset;
    part->high_watermark = failed ? -1 : high_watermark;
    part->start_offset = failed ? part->start_offset : start_offset;
#ifdef MILL_MUTANT_CORE_FETCH_SESSION_UNCHANGED_TOLD
    changed = true;
#endif
    return changed;
}

/* --- sessions --------------------------------------------------------------------------------- */

static void used_unlink(struct mill_fetch_sessions *sessions,
                        const struct mill_fetch_session *session)
{
    if (session->used_prev == NONE) {
        sessions->used_first = session->used_next;
    } else {
        sessions->sessions[session->used_prev].used_next = session->used_next;
    }
    if (session->used_next == NONE) {
        sessions->used_last = session->used_prev;
    } else {
        sessions->sessions[session->used_next].used_prev = session->used_prev;
    }
}

static void used_link(struct mill_fetch_sessions *sessions, struct mill_fetch_session *session)
{
    uint32_t index = session_index(sessions, session);
    session->used_next = NONE;
    session->used_prev = sessions->used_last;
    if (sessions->used_last == NONE) {
        sessions->used_first = index;
    } else {
        sessions->sessions[sessions->used_last].used_next = index;
    }
    sessions->used_last = index;
}

struct mill_fetch_session *mill_fetch_session_find(struct mill_fetch_sessions *sessions, int32_t id)
{
    const struct mill_fetch_session_limits *limits = &sessions->limits;
    if (id <= 0 || limits->fetch_sessions_max == 0) {
        return NULL;
    }
    uint32_t slot = (uint32_t)id % (limits->fetch_sessions_max * limits->cores_count);
    uint32_t index =
        slot - limits->core * limits->fetch_sessions_max; /* of another core: too large */
    if (index >= limits->fetch_sessions_max || sessions->sessions[index].id != id) {
        return NULL;
    }
    return &sessions->sessions[index];
}

/* The slot is what an id leaves when divided by all slots of all cores; the rest is chance. */
static int32_t id_make(struct mill_fetch_sessions *sessions, uint32_t index)
{
    const struct mill_fetch_session_limits *limits = &sessions->limits;
    uint32_t slots = limits->fetch_sessions_max * limits->cores_count;
    uint64_t made = sessions->ids_made++;
    uint64_t chance = mill_siphash(limits->key, &made, sizeof(made));
    uint32_t high = 1 + (uint32_t)(chance % ((uint32_t)INT32_MAX / slots - 1));
    return (int32_t)(high * slots + limits->core * limits->fetch_sessions_max + index);
}

int32_t mill_fetch_session_epoch_after(int32_t epoch)
{
    return epoch == INT32_MAX ? 1 : epoch + 1;
}

void mill_fetch_session_close(struct mill_fetch_sessions *sessions,
                              struct mill_fetch_session *session)
{
    while (session->first != NONE) {
        const struct mill_fetch_fetch_session_part *part = &sessions->parts[session->first];
        part_free(sessions, session,
                  part_find(sessions, part->session, part->topic, part->partition));
    }
    used_unlink(sessions, session);
    session->id = 0;
    session->used_next = sessions->session_pool.free;
    sessions->session_pool.free = session_index(sessions, session);
    sessions->stats.sessions--;
}

void mill_fetch_session_refuse(struct mill_fetch_sessions *sessions,
                               struct mill_fetch_session *session)
{
    sessions->stats.refused++;
    mill_fetch_session_close(sessions, session);
}

/* Order of worth: a follower's above a client's, then by partitions, then by id. */
static bool worth_less(const struct mill_fetch_session *a, const struct mill_fetch_session *b)
{
    if (a->privileged != b->privileged) {
        return b->privileged;
    }
    return a->count != b->count ? a->count < b->count : a->id < b->id;
}

/* The one that goes first for a newcomer, or NULL. O(sessions): only when there is no room. */
static struct mill_fetch_session *least(struct mill_fetch_sessions *sessions,
                                        const struct mill_fetch_session *newcomer, uint64_t now_ns)
{
    struct mill_fetch_session *found = NULL;
    for (uint32_t at = sessions->used_first; at != NONE;) {
        struct mill_fetch_session *session = &sessions->sessions[at];
        at = session->used_next;
        bool old = now_ns - session->created_ns > evict_ns;
#ifdef MILL_MUTANT_CORE_FETCH_SESSION_YOUNG_EVICTED
        old = true;
#endif
        bool open = old || (newcomer->privileged && !session->privileged);
        if (open && (!found || worth_less(session, found))) {
            found = session;
        }
    }
    return found && worth_less(found, newcomer) ? found : NULL;
}

static bool evict(struct mill_fetch_sessions *sessions, const struct mill_fetch_session *newcomer,
                  uint64_t now_ns)
{
    if (sessions->used_first == NONE) {
        return false;
    }
    struct mill_fetch_session *gone = &sessions->sessions[sessions->used_first];
    if (now_ns - gone->used_ns <= evict_ns) {
        gone = least(sessions, newcomer, now_ns);
    }
    if (!gone) {
        return false;
    }
    mill_fetch_session_close(sessions, gone);
#ifndef MILL_MUTANT_CORE_FETCH_SESSION_EVICTION_UNCOUNTED
    sessions->stats.evictions++;
#endif
    return true;
}

/* ret: true when there is a slot and room for count partitions. */
static bool room_make(struct mill_fetch_sessions *sessions,
                      const struct mill_fetch_session *newcomer, uint64_t now_ns)
{
    const struct mill_fetch_session_limits *limits = &sessions->limits;
    if (newcomer->count > limits->fetch_session_parts_max || newcomer->count > limits->parts_max) {
        return false;
    }
    for (uint32_t i = 0; i <= EVICT_FOR_PARTS; i++) {
        if (sessions->stats.sessions < limits->fetch_sessions_max &&
            limits->parts_max - sessions->stats.parts >= newcomer->count) {
            return true;
        }
        if (!evict(sessions, newcomer, now_ns)) {
            return false;
        }
    }
    return false;
}

struct mill_fetch_session *mill_fetch_session_open(struct mill_fetch_sessions *sessions,
                                                   uint32_t count, bool by_id, bool privileged,
                                                   uint64_t now_ns)
{
    struct mill_fetch_session newcomer = {
        .epoch = 1,
        .by_id = by_id,
        .privileged = privileged,
        .count = count,
        .first = NONE,
        .last = NONE,
        .created_ns = now_ns,
        .used_ns = now_ns,
    };
    if (!room_make(sessions, &newcomer, now_ns)) {
        sessions->stats.refused += sessions->limits.fetch_sessions_max > 0;
        return NULL;
    }
    struct pool *pool = &sessions->session_pool;
    uint32_t index = pool->free;
    if (index != NONE) {
        pool->free = sessions->sessions[index].used_next;
    } else {
        MILL_ASSERT_LT(pool->fresh, pool->max);
        index = pool->fresh++;
    }
    newcomer.count = 0;
    newcomer.id = id_make(sessions, index);
    struct mill_fetch_session *session = &sessions->sessions[index];
    *session = newcomer;
    used_link(sessions, session);
    sessions->stats.sessions++;
    return session;
}

void mill_fetch_session_touch(struct mill_fetch_sessions *sessions,
                              struct mill_fetch_session *session, uint64_t now_ns)
{
    used_unlink(sessions, session);
    used_link(sessions, session);
    session->used_ns = now_ns;
    session->epoch = mill_fetch_session_epoch_after(session->epoch);
}
