/* SPDX-License-Identifier: Apache-2.0 */
/* What a Fetch says of its session, and what the session says of the answer (KIP-227).
 *
 *   epoch 0     every partition is named, a session is wanted: it begins with the answer
 *   epoch -1    every partition is named, none is wanted
 *   epoch n     changes only, to be put into the session with this id, which waits for n
 *
 * Both full forms end the session whose id they name. While a request of a session waits, another
 * may end the session or go on with it: a session is found again by its id and epoch, and an op's
 * place in it counts only as long as both are the request's. */
#include "dataplane/core/core_types.h"

#include <errno.h>

enum {
    EPOCH_INITIAL = 0,
    EPOCH_FINAL = -1,
    SESSIONS_VERSION = 7,
    IDS_VERSION = 13, /* topics are named by their ids from here on (KIP-516) */
};

static uint32_t topic_take(struct mill_core *core, int16_t version, const struct mill_wstr *name,
                           const struct mill_uuid *id)
{
    static const struct mill_uuid none = {{0}};
    char text[MILL_TOPIC_NAME_MAX + 1] = "";
    if (version < IDS_VERSION && mill_wstr_copy(name, text, sizeof(text)) < 0) {
        return MILL_FETCH_SESSION_NONE;
    }
    return mill_fetch_session_topic_take(core->fetch_sessions, version < IDS_VERSION ? &none : id,
                                         text);
}

static void told(struct mill_fetch_fetch_session_part *part, struct mill_op *op)
{
    bool failed = op->error != MILL_KERR_NONE;
    op->told = mill_fetch_session_part_told(part, failed, op->bytes, op->high_watermark,
                                            op->start_offset) ||
               op->diverging_epoch >= 0;
}

/* Puts what the request asks for into the session; ops: its answers, for a session that begins.
 * ret: 0, -ENOSPC a bound is reached. */
static int asked_put(struct mill_core *core, struct mill_fetch_session *session,
                     const struct mill_fetch_request *message, int16_t version, struct mill_op *ops)
{
    struct mill_warray topics = message->topics;
    struct mill_fetch_request_topics topic;
    int r = 0;
    while (r == 0 && mill_fetch_request_topics_next(&topics, version, &topic)) {
        struct mill_fetch_request_topics_partitions asked;
        struct mill_warray parts = topic.partitions;
        uint32_t of = topic_take(core, version, &topic.topic, &topic.topic_id);
        if (of == (uint32_t)MILL_FETCH_SESSION_NONE) {
            return -ENOSPC;
        }
        while (r == 0 && mill_fetch_request_topics_partitions_next(&parts, version, &asked)) {
            uint32_t at =
                mill_fetch_session_part_put(core->fetch_sessions, session, of, asked.partition);
            if (at == (uint32_t)MILL_FETCH_SESSION_NONE) {
                r = -ENOSPC;
                break;
            }
            struct mill_fetch_fetch_session_part *part =
                mill_fetch_session_part_at(core->fetch_sessions, at);
            part->bytes_max = asked.partition_max_bytes;
            part->leader_epoch = asked.current_leader_epoch;
            part->last_epoch = asked.last_fetched_epoch;
            part->offset = asked.fetch_offset;
            if (ops) {
                told(part, ops++);
            }
        }
        mill_fetch_session_topic_give(core->fetch_sessions, of);
    }
    return r;
}

static void forgotten_drop(struct mill_core *core, struct mill_fetch_session *session,
                           const struct mill_fetch_request *message, int16_t version)
{
    struct mill_warray topics = message->forgotten_topics_data;
    struct mill_fetch_request_forgotten_topics_data topic;
    while (mill_fetch_request_forgotten_topics_data_next(&topics, version, &topic)) {
        int32_t partition;
        uint32_t of = topic_take(core, version, &topic.topic, &topic.topic_id);
        if (of == (uint32_t)MILL_FETCH_SESSION_NONE) {
            continue; /* no session can have it */
        }
        while (mill_warray_next_i32(&topic.partitions, &partition)) {
            (void)mill_fetch_session_part_forget(core->fetch_sessions, session, of, partition);
        }
        mill_fetch_session_topic_give(core->fetch_sessions, of);
    }
}

static void go_on(struct mill_core *core, struct mill_request *request,
                  const struct mill_fetch_request *message)
{
    int16_t version = request->header.api_version;
    struct mill_fetch_session *session =
        mill_fetch_session_find(core->fetch_sessions, message->session_id);
    bool late = session && session->epoch != message->session_epoch;
#ifdef MILL_MUTANT_CORE_FETCH_SESSION_EPOCH_UNCHECKED
    late = false;
#endif
    if (!session || late) {
        request->top_error =
            session ? MILL_KERR_INVALID_FETCH_SESSION_EPOCH : MILL_KERR_FETCH_SESSION_ID_NOT_FOUND;
        return;
    }
    if (session->by_id != (version >= IDS_VERSION)) {
        request->top_error = MILL_KERR_FETCH_SESSION_TOPIC_ID_ERROR;
        return;
    }
    if (asked_put(core, session, message, version, NULL) < 0) {
        /* The client begins anew, without a session if there is no room for it. */
        mill_fetch_session_refuse(core->fetch_sessions, session);
        request->top_error = MILL_KERR_FETCH_SESSION_ID_NOT_FOUND;
        return;
    }
    forgotten_drop(core, session, message, version);
    if (session->count == 0) {
        mill_fetch_session_close(core->fetch_sessions, session);
        request->session = MILL_FETCH_SESSION_ENDED;
        return;
    }
    mill_fetch_session_touch(core->fetch_sessions, session, core->now.mono_ns);
    request->session = MILL_FETCH_SESSION_GOES_ON;
    request->session_id = session->id;
    request->session_epoch = session->epoch;
}

void mill_api_fetch_session_begin(struct mill_core *core, struct mill_request *request,
                                  const struct mill_fetch_request *message)
{
    int16_t version = request->header.api_version;
    if (request->fetch_session_begun || version < SESSIONS_VERSION) {
        return; /* begun: it was held back for memory */
    }
    request->fetch_session_begun = true;
    if (message->session_epoch != EPOCH_INITIAL && message->session_epoch != EPOCH_FINAL) {
        go_on(core, request, message);
        return;
    }
    if (message->session_id != 0) {
        struct mill_fetch_session *session =
            mill_fetch_session_find(core->fetch_sessions, message->session_id);
        if (session) {
            mill_fetch_session_close(core->fetch_sessions, session);
        }
    }
    if (message->session_epoch == EPOCH_INITIAL) {
        request->session = MILL_FETCH_SESSION_WANTED;
    }
}

struct mill_fetch_session *mill_api_fetch_session(struct mill_core *core,
                                                  struct mill_request *request)
{
    struct mill_fetch_session *session =
        mill_fetch_session_find(core->fetch_sessions, request->session_id);
    if (session && session->epoch == request->session_epoch) {
        return session;
    }
    request->top_error =
        session ? MILL_KERR_INVALID_FETCH_SESSION_EPOCH : MILL_KERR_FETCH_SESSION_ID_NOT_FOUND;
    request->session_id = 0;
    return NULL;
}

/* Begins the session that was asked for; without room the client is told none and asks in full. */
static void session_begin(struct mill_core *core, struct mill_request *request)
{
    int16_t version = request->header.api_version;
    struct mill_fetch_request message;
    struct mill_cursor at = request->body;
    int r = mill_fetch_request_decode(&at, version, &message);
    MILL_ASSERT_EQ(r, 0); /* it was decoded before */
    struct mill_fetch_session *session =
        mill_fetch_session_open(core->fetch_sessions, request->ops_count, version >= IDS_VERSION,
                                message.replica_id >= 0 || (message.has_replica_state &&
                                                            message.replica_state.replica_id >= 0),
                                core->now.mono_ns);
    if (!session) {
        return;
    }
    if (asked_put(core, session, &message, version, request->ops) < 0) {
        mill_fetch_session_refuse(core->fetch_sessions, session);
        return;
    }
    request->session_id = session->id;
}

uint32_t mill_api_fetch_session_answer(struct mill_core *core, struct mill_request *request)
{
    if (request->session == MILL_FETCH_SESSION_WANTED) {
        session_begin(core, request);
        return 0;
    }
    struct mill_fetch_session *session = request->session == MILL_FETCH_SESSION_GOES_ON
                                             ? mill_api_fetch_session(core, request)
                                             : NULL;
    if (!session) {
        return 0;
    }
    uint32_t topics = 0;
    uint32_t last = MILL_FETCH_SESSION_NONE;
    for (uint32_t i = 0; i < request->ops_count; i++) {
        struct mill_op *op = &request->ops[i];
        struct mill_fetch_fetch_session_part *part =
            mill_fetch_session_part_at(core->fetch_sessions, op->fetch_session_part);
        told(part, op);
        if (op->told) {
            topics += part->topic != last;
            last = part->topic;
        }
        if (op->bytes > 0) {
            mill_fetch_session_part_last(core->fetch_sessions, session, op->fetch_session_part);
        }
    }
    return topics;
}
