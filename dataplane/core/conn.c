/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of a core: frames out of received bytes, staging of large requests, ends and limits.
 * Runs on the core; received bytes stay in the maker's buffers until their request is finished. */
#include "dataplane/core/core_types.h"

#include <errno.h>
#include <string.h>
#ifdef MILL_MUTANT_CORE_FRAME_MEMORY
#include <stdlib.h>
#endif

#include "base/byteorder.h"

struct mill_listener_words *mill_conn_words(struct mill_core *core, const struct mill_conn *conn)
{
    uint32_t index = MILL_MIN((uint32_t)conn->stream->listener, (uint32_t)MILL_LISTENER_CONTROL);
    return &core->listener_words[index];
}

void mill_conn_ready(struct mill_core *core, struct mill_conn *conn)
{
    if (!mill_node_linked(&conn->ready)) {
        mill_list_add(&core->ready, &conn->ready);
    }
}

void mill_conn_abort(struct mill_core *core, struct mill_conn *conn)
{
    MILL_UNUSED(core);
    conn->closing = true;
    conn->stream->ops->abort(conn->stream);
}

/* --- staging --------------------------------------------------------------------------------- */

/* A staging buffer's struct lies at its extent's start, so the extent follows from the address. */
static void stage_buf_free(struct mill_buf *buf)
{
    struct mill_core *core = buf->owner;
    uint32_t extent =
        (uint32_t)(((uintptr_t)buf - (uintptr_t)core->arena_base) >> MILL_EXTENT_UNIT_SHIFT);
#ifndef MILL_MUTANT_CORE_STAGED_STAYS
    core->staged_now -= buf->charge_bytes;
#endif
    mill_extent_free(core->extents, extent);
}

static void stage_wanted_set(struct mill_core *core, struct mill_conn *conn, bool wanted)
{
    core->stage_wanted = core->stage_wanted - (uint32_t)conn->want_stage + (uint32_t)wanted;
    conn->want_stage = wanted;
}

static struct mill_buf *stage_buf_new(struct mill_core *core, uint32_t frame_left)
{
    uint32_t want =
        MILL_MIN(frame_left + (uint32_t)sizeof(struct mill_buf), (uint32_t)MILL_STAGE_EXTENT_BYTES);
    uint32_t extent;
    if (mill_log_scratch(core->log, want, &extent) < 0) {
        core->words.stage_full++;
        return NULL;
    }
    struct mill_buf *buf = (void *)mill_extent_data(core->extents, extent);
    *buf = (struct mill_buf){
        .data = (uint8_t *)buf + sizeof(*buf),
        .charge_bytes = mill_extent_size_bytes(core->extents, extent),
        .flags = MILL_BUF_STAGED,
        .free = stage_buf_free,
        .owner = core,
    };
    core->staged_now += buf->charge_bytes;
    return buf;
}

/* Moves received bytes of the frame under way into arena memory. ret: true when all of it is there.
 */
static bool stage_more(struct mill_core *core, struct mill_conn *conn)
{
    struct mill_stream *stream = conn->stream;
    while (conn->stage.size_bytes < conn->frame_bytes && stream->rx.size_bytes > 0) {
        struct mill_buf *tail = conn->stage.tail;
        uint32_t room = 0;
        if (tail) {
            uint8_t *end = (uint8_t *)tail + tail->charge_bytes;
            room = (uint32_t)(end - (tail->data + tail->size_bytes));
        }
        uint32_t left = conn->frame_bytes - conn->stage.size_bytes;
        if (room == 0) {
            tail = stage_buf_new(core, left);
            if (!tail) {
                stage_wanted_set(core, conn, true);
                return false;
            }
            mill_chain_append(&conn->stage, tail);
            continue;
        }
        struct mill_cursor from = mill_chain_cursor(&stream->rx);
        const uint8_t *bytes = NULL;
        uint32_t run = mill_cursor_run(&from, &bytes);
        uint32_t part = MILL_MIN(MILL_MIN(run, room), left);
        memcpy(tail->data + tail->size_bytes, bytes, part);
        tail->size_bytes += part;
        conn->stage.size_bytes += part;
        core->words.staged_total += part;
        if (conn->frame_is_produce) {
            mill_conn_words(core, conn)->bytes_copied_in += part;
        }
        stream->ops->consume(stream, part);
    }
    return conn->stage.size_bytes == conn->frame_bytes;
}

/* Decides whether the frame under way must leave the receive buffers: it is larger than one
 * connection may pin, or all connections together pin too much. ret: true when staging has begun.
 */
static bool stage_begin(struct mill_core *core, struct mill_conn *conn)
{
    uint32_t pinned_max = MILL_MIN(core->limits.pinned_bytes_max, conn->stream->rx_bytes_max / 2);
    bool large = conn->frame_bytes > pinned_max;
    bool crowded = core->pinned_bytes > core->limits.pinned_total_bytes;
    if (!large && !crowded) {
        return false;
    }
    if (conn->frame_bytes > core->limits.staged_bytes_max) {
        core->words.bad_frames++;
        mill_conn_abort(core, conn);
        return false;
    }
    /* The whole frame's memory is reserved at once: partly staged requests could otherwise hold all
     * of it while none completes. */
    if (core->stage_reserved + conn->frame_bytes > core->limits.staged_bytes_max) {
        if (!conn->want_stage) {
            core->words.stage_full++;
        }
        stage_wanted_set(core, conn, true);
        return false;
    }
    stage_wanted_set(core, conn, false);
    conn->stage_reserved = conn->frame_bytes;
    conn->gather_ns = core->now.mono_ns;
    core->stage_reserved += conn->frame_bytes;
    return true;
}

static void pinned_set(struct mill_core *core, struct mill_conn *conn, uint32_t bytes)
{
    core->pinned_bytes = core->pinned_bytes - conn->pinned_bytes + bytes;
    conn->pinned_bytes = bytes;
}

static void stage_end(struct mill_core *core, struct mill_conn *conn)
{
    core->stage_reserved -= conn->stage_reserved;
    conn->stage_reserved = 0;
    stage_wanted_set(core, conn, false);
    if (core->stage_wanted == 0) {
        return;
    }
    /* Rare: someone waits for staging memory. */
    for (struct mill_node *node = core->conns_all.next; node != &core->conns_all;
         node = node->next) {
        struct mill_conn *other = MILL_CONTAINER_OF(node, struct mill_conn, all);
        if (other->want_stage) {
            mill_conn_ready(core, other);
        }
    }
}

/* --- frames ---------------------------------------------------------------------------------- */

/* Reads size and, when there, key and version of the next frame. ret: 0, -EAGAIN too few bytes,
 * -EBADMSG close. */
static int frame_peek(struct mill_core *core, struct mill_conn *conn)
{
    struct mill_cursor at = mill_chain_cursor(&conn->stream->rx);
    uint8_t head[MILL_FRAME_SIZE_BYTES + 4];
    if (mill_cursor_read(&at, head, MILL_FRAME_SIZE_BYTES) < 0) {
        return -EAGAIN;
    }
    uint32_t size = mill_load_be32(head);
    if (size < MILL_REQUEST_HEADER_MIN_BYTES || size > core->limits.request_bytes_max) {
        return -EBADMSG;
    }
    if (conn->frame_bytes == 0) {
        conn->frame_bytes = size + MILL_FRAME_SIZE_BYTES;
        conn->frame_begun_ns = core->now.mono_ns;
        conn->gather_ns = core->now.mono_ns;
    }
    if (mill_cursor_read(&at, head + MILL_FRAME_SIZE_BYTES, 4) < 0) {
        return 0;
    }
    /* A frame that will be refused is not worth gathering. */
    int16_t key = (int16_t)mill_load_be16(head + MILL_FRAME_SIZE_BYTES);
    int16_t version = (int16_t)mill_load_be16(head + MILL_FRAME_SIZE_BYTES + 2);
    const struct mill_api *api = mill_api_find(key);
    bool served = api && version >= api->version_min && version <= api->version_max;
    if (!served && key != MILL_API_KEY_API_VERSIONS) {
        core->words.unknown_apis++;
        return -EOPNOTSUPP;
    }
    if (mill_frame_too_large(core, key, size)) {
        return -EBADMSG;
    }
    conn->frame_is_produce = key == MILL_API_KEY_PRODUCE;
    return 0;
}

/* True when the next frame is complete, in the receive buffers or staged. */
static bool frame_complete(struct mill_core *core, struct mill_conn *conn)
{
    struct mill_stream *stream = conn->stream;
    if (conn->stage_reserved == 0) {
        int r = frame_peek(core, conn);
        if (r == -EBADMSG || r == -EOPNOTSUPP) {
            core->words.bad_frames += r == -EBADMSG;
#ifndef MILL_MUTANT_CORE_BAD_FRAME_KEPT
            mill_conn_abort(core, conn);
#endif
            return false;
        }
#ifdef MILL_MUTANT_CORE_FRAME_MEMORY
        uint8_t *volatile memory = r == 0 ? malloc(conn->frame_bytes * 8ul) : NULL;
        for (size_t at = 0; memory && at < conn->frame_bytes * 8ul; at += 4096) {
            memory[at] = 1;
        }
#endif
        if (r == 0 && stream->rx.size_bytes >= conn->frame_bytes) {
            pinned_set(core, conn, 0);
            return true;
        }
        pinned_set(core, conn, stream->rx.charge_bytes);
        if (r < 0 || !stage_begin(core, conn)) {
            return false;
        }
        pinned_set(core, conn, 0);
    }
    return stage_more(core, conn);
}

/* Nothing more will come: close when nothing is left to answer. */
static void frame_missing(struct mill_core *core, struct mill_conn *conn)
{
    if (conn->closing || !conn->stream->rx_ended) {
        return;
    }
    if (conn->frame_bytes > 0 || conn->stream->rx.size_bytes > 0) {
        core->words.bad_frames++;
    }
    conn->closing = true;
    conn->stream->ops->close(conn->stream);
}

/* What a muted connection received stays until its wait is over. It is counted, so that others'
 * requests leave the receive buffers when those become few, and nothing is added to it. Who sent
 * nothing is read on: its end is to be seen. */
static void muted_look(struct mill_core *core, struct mill_conn *conn)
{
    struct mill_stream *stream = conn->stream;
#ifndef MILL_MUTANT_CORE_QUOTA_UNCOUNTED
    pinned_set(core, conn, stream->rx.charge_bytes);
#endif
    if (stream->rx.size_bytes == 0) {
        frame_missing(core, conn);
        return;
    }
#ifndef MILL_MUTANT_CORE_QUOTA_UNPAUSED
    stream->ops->pause(stream, true);
#endif
}

/* Once a second. A maker may report neither bytes that were on their way nor an end while it is
 * paused, so a connection that is silent for long is read again: a buffer or two at a time until
 * the end is seen. From then on it may be idle for too long. */
static void muted_sweep(struct mill_core *core, struct mill_conn *conn, uint64_t still_ns)
{
    struct mill_stream *stream = conn->stream;
    pinned_set(core, conn, stream->rx.charge_bytes);
#ifndef MILL_MUTANT_CORE_QUOTA_END_UNSEEN
    if (still_ns > core->limits.stall_timeout_ns) {
        stream->ops->pause(stream, false);
    }
#endif
}

static uint32_t conn_look(struct mill_core *core, struct mill_conn *conn)
{
    struct mill_stream *stream = conn->stream;
    uint32_t work = 0;
    for (uint32_t i = 0; i < MILL_FRAMES_PER_TURN; i++) {
        if (conn->closing || conn->request) {
            return work;
        }
        if (core->stopping) {
            conn->closing = true;
            stream->ops->close(stream);
            return work + 1;
        }
        if (MILL_UNLIKELY(conn->mute.place > 0)) {
            muted_look(core, conn);
            return work; /* mill_quota_run makes it ready again */
        }
        if (stream->ops->unacked_bytes(stream) > core->limits.reader_bytes_max) {
            return work; /* an acknowledgement makes it ready again */
        }
        if (!frame_complete(core, conn)) {
            frame_missing(core, conn);
            return work;
        }
        bool staged = conn->stage_reserved > 0;
        struct mill_cursor at = mill_chain_cursor(staged ? &conn->stage : &stream->rx);
        at = mill_cursor_slice(&at, conn->frame_bytes);
        int skipped = mill_cursor_skip(&at, MILL_FRAME_SIZE_BYTES);
        MILL_ASSERT_EQ(skipped, 0);
        int r = mill_request_begin(core, conn, at, conn->frame_bytes);
        work++;
        if (r == -EAGAIN) {
            break;
        }
        if (r < 0) {
            core->words.bad_frames++;
            mill_conn_abort(core, conn);
            return work;
        }
    }
    mill_conn_ready(core, conn);
    return work;
}

uint32_t mill_conn_run(struct mill_core *core)
{
    uint32_t work = 0;
    struct mill_node todo;
    mill_list_init(&todo);
    /* What becomes ready during this pass waits for the next turn. */
    for (uint32_t i = 0; i < MILL_CONNS_PER_TURN && !mill_list_empty(&core->ready); i++) {
        struct mill_node *node = core->ready.next;
        mill_list_remove(node);
        mill_list_add(&todo, node);
    }
    while (!mill_list_empty(&todo)) {
        struct mill_conn *conn = MILL_CONTAINER_OF(todo.next, struct mill_conn, ready);
        mill_list_remove(&conn->ready);
        work += conn_look(core, conn);
    }
    return work;
}

void mill_conn_finish(struct mill_core *core, struct mill_conn *conn, uint32_t frame_bytes)
{
    conn->request = NULL;
    if (frame_bytes > 0) {
        if (conn->stage_reserved > 0) {
            mill_chain_clear(&conn->stage);
            stage_end(core, conn);
        } else {
            conn->stream->ops->consume(conn->stream, frame_bytes);
        }
    }
    conn->frame_bytes = 0;
    mill_conn_ready(core, conn);
}

/* --- events of makers ------------------------------------------------------------------------ */

/* What an address may have. */
static int64_t address_max(const struct mill_broker_settings *settings,
                           const uint8_t address[MILL_ADDRESS_BYTES])
{
#ifndef MILL_MUTANT_CORE_OVERRIDES_IGNORED
    for (uint32_t i = 0; i < settings->overrides_count; i++) {
        if (memcmp(settings->overrides[i].address, address, MILL_ADDRESS_BYTES) == 0) {
            return settings->overrides[i].connections_max;
        }
    }
#endif
    return settings->address_connections_max;
}

/* Notes one more new connection, when max.connection.creation.rate has one left: a line in time as
 * for quotas (quota.h). Who is refused is not noted, so that trying again costs nobody anything. */
static bool rate_take(struct mill_core *core)
{
    const struct mill_broker_settings *settings = &core->settings;
    struct mill_quota_client *accepts = &core->quotas->accepts;
    if (settings->connections_per_second >= INT32_MAX) {
        return true;
    }
    uint64_t rate = (uint64_t)settings->connections_per_second;
    if (rate == 0) {
        return false;
    }
#ifndef MILL_MUTANT_CORE_ACCEPTS_UNBOUNDED
    if (mill_quota_owed(accepts, 0, rate, core->now.mono_ns) > 0) {
#ifdef MILL_MUTANT_CORE_REFUSALS_CHARGED
        (void)mill_quota_use(accepts, 0, 0, rate, 1, settings->connections_burst_ns,
                             core->now.mono_ns);
#endif
        return false;
    }
#endif
    (void)mill_quota_use(accepts, 0, 0, rate, 1, settings->connections_burst_ns, core->now.mono_ns);
    return true;
}

/* Counts a client's connection among all and among those of its address, when both have room for
 * it and it does not come too soon. Control's own is none. Cores share the count alone, so that
 * relaxed accesses do. */
static bool connection_count(struct mill_core *core, uint32_t listener,
                             const struct mill_stream *stream, uint32_t *ret_place)
{
    struct mill_listener_words *words = &core->listener_words[listener];
    *ret_place = 0;
    if (listener == MILL_LISTENER_CONTROL) {
        return true;
    }
    int64_t before = atomic_fetch_add_explicit(core->connections_all, 1, memory_order_relaxed);
#ifdef MILL_MUTANT_CORE_CONNECTIONS_UNBOUNDED
    before = -1;
#endif
    if (before >= core->settings.connections_max) {
        atomic_fetch_sub_explicit(core->connections_all, 1, memory_order_relaxed);
        words->refused_connections++;
        return false;
    }
    if (mill_address_take(core->addresses, stream->peer.address,
                          address_max(&core->settings, stream->peer.address), ret_place) < 0) {
        atomic_fetch_sub_explicit(core->connections_all, 1, memory_order_relaxed);
        words->refused_address++;
        return false;
    }
    if (!rate_take(core)) {
        atomic_fetch_sub_explicit(core->connections_all, 1, memory_order_relaxed);
        mill_address_give(core->addresses, *ret_place);
        words->refused_rate++;
        return false;
    }
    return true;
}

static int accepted(void *context, struct mill_stream *stream)
{
    struct mill_core *core = context;
    uint32_t listener = MILL_MIN((uint32_t)stream->listener, (uint32_t)MILL_LISTENER_CONTROL);
    uint32_t address_place = 0;
    if (core->conns_free_count == 0 || core->stopping ||
        !connection_count(core, listener, stream, &address_place)) {
        core->listener_words[listener].refused++;
        return -ENFILE;
    }
    uint32_t index = core->conns_free[--core->conns_free_count];
    struct mill_conn *conn = &core->conns[index];
    *conn = (struct mill_conn){
        .index = index,
        .in_use = true,
        .stream = stream,
        .address_place = address_place,
        .progress_ns = core->now.mono_ns,
        .acked_ns = core->now.mono_ns,
    };
    stream->user = conn;
    mill_list_add(&core->conns_all, &conn->all);
    core->listener_words[listener].accepted++;
    core->listener_words[listener].connections++;
    core->words.connections++;
    return 0;
}

static void received(void *context, struct mill_stream *stream)
{
    struct mill_core *core = context;
    struct mill_conn *conn = stream->user;
    conn->progress_ns = core->now.mono_ns;
    if (stream->rx_ended && conn->request && conn->request->phase == MILL_PHASE_WATCHES) {
        /* Most likely nobody is there any more; who is gets an early answer. */
        mill_request_expired(core, conn->request);
        return;
    }
    mill_conn_ready(core, conn);
}

static void room(void *context, struct mill_stream *stream)
{
    struct mill_core *core = context;
    struct mill_conn *conn = stream->user;
    if (conn->request && conn->request->phase == MILL_PHASE_ANSWER) {
        mill_answer_continue(core, conn->request);
    }
}

static void acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    struct mill_core *core = context;
    struct mill_conn *conn = stream->user;
    conn->acked_bytes += size_bytes;
    conn->progress_ns = core->now.mono_ns;
    conn->acked_ns = core->now.mono_ns;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < conn->marks_count; i++) {
        struct mill_ack_mark *mark = &conn->marks[i];
        if (mark->at_bytes <= conn->acked_bytes) {
            mill_hist_add(&core->shared->stages[mark->api][MILL_STAGE_ACKED],
                          core->now.mono_ns - mark->queued_ns);
        } else {
            conn->marks[kept++] = *mark;
        }
    }
    conn->marks_count = kept;
    if (!conn->request) {
        mill_conn_ready(core, conn);
    }
}

static void closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    struct mill_core *core = context;
    struct mill_conn *conn = stream->user;
    MILL_UNUSED(end);
    if (!conn) {
        return;
    }
    if (conn->request) {
        mill_request_orphan(core, conn->request);
        conn->request = NULL;
    }
    mill_chain_clear(&conn->stage);
    stage_end(core, conn);
    pinned_set(core, conn, 0);
    uint32_t listener = MILL_MIN((uint32_t)stream->listener, (uint32_t)MILL_LISTENER_CONTROL);
    if (listener != MILL_LISTENER_CONTROL) {
        atomic_fetch_sub_explicit(core->connections_all, 1, memory_order_relaxed);
        mill_address_give(core->addresses, conn->address_place);
    }
    core->listener_words[listener].connections--;
    core->words.connections--;
    mill_quota_mute_end(core, conn);
    mill_list_remove(&conn->ready);
    mill_list_remove(&conn->all);
    stream->user = NULL;
    conn->in_use = false;
    conn->stream = NULL;
    core->conns_free[core->conns_free_count++] = conn->index;
}

static void connected(void *context, struct mill_stream *stream, int error)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    MILL_UNUSED(error); /* a core opens no connections of its own yet */
}

const struct mill_stream_events mill_core_events = {
    .accepted = accepted,
    .connected = connected,
    .received = received,
    .room = room,
    .acked = acked,
    .closed = closed,
};

/* --- limits ---------------------------------------------------------------------------------- */

/* A request that comes so slowly that it is taken for an attack: a byte now and then is progress,
 * but must not hold buffers, or staging memory that others wait for, for ever. */
static bool frame_late(const struct mill_core *core, const struct mill_conn *conn)
{
    if (conn->request || conn->frame_bytes == 0 || conn->want_stage) {
        return false;
    }
#ifdef MILL_MUTANT_CORE_DRIP_KEPT
    return false;
#endif
    bool wanted = conn->stage_reserved > 0 && core->stage_wanted > 0;
    uint64_t rate = wanted ? MILL_FRAME_RATE_WANTED : MILL_FRAME_RATE_MIN;
    uint64_t granted_ns = conn->frame_bytes * MILL_NS_PER_S / rate;
    return core->now.mono_ns - conn->gather_ns > core->limits.stall_timeout_ns + granted_ns;
}

void mill_conn_sweep(struct mill_core *core)
{
    uint64_t now = core->now.mono_ns;
    struct mill_node *next;
    for (struct mill_node *node = core->conns_all.next; node != &core->conns_all; node = next) {
        next = node->next;
        struct mill_conn *conn = MILL_CONTAINER_OF(node, struct mill_conn, all);
        if (conn->want_stage) {
            mill_conn_ready(core, conn);
        }
        if (conn->closing) {
            continue;
        }
        uint64_t still_ns = now - MILL_MIN(conn->progress_ns, now);
        bool unread = conn->stream->ops->unacked_bytes(conn->stream) > 0;
        /* Sending requests is no progress of a peer that does not read its answers. */
        conn->acked_ns = unread ? conn->acked_ns : now;
        bool unread_long = now - MILL_MIN(conn->acked_ns, now) > core->limits.stall_timeout_ns;
        bool muted = conn->mute.place > 0;
        if (MILL_UNLIKELY(muted)) {
            muted_sweep(core, conn, still_ns);
        }
        bool partial =
            !conn->request && !muted && (conn->frame_bytes > 0 || conn->stream->rx.size_bytes > 0);
        bool partial_long =
            partial && !conn->want_stage && still_ns > core->limits.stall_timeout_ns;
        if (unread_long || partial_long) {
            core->words.slow_readers++;
            mill_conn_abort(core, conn);
        } else if (frame_late(core, conn)) {
            core->words.slow_writers++;
            mill_conn_abort(core, conn);
        } else if (core->limits.idle_timeout_ns > 0 && !conn->request && !unread &&
                   (!muted || conn->stream->rx_ended) && still_ns > core->limits.idle_timeout_ns) {
            conn->closing = true;
            conn->stream->ops->close(conn->stream);
        }
    }
}
