/* SPDX-License-Identifier: Apache-2.0 */
/* A running load: sends by schedule or as room comes, counts what is answered; see load.h. */
#include "bench/load.h"

#include <errno.h>
#include <string.h>

#include "hugepages/loans.h"

enum {
    SEND_MARGIN_BYTES = BENCH_INLINE_BYTES,
};

/* --- counting --------------------------------------------------------------------------------- */

static void error_count(struct mill_bench_result *result, int16_t code)
{
    result->errors++;
    for (uint32_t i = 0; i < result->errors_count; i++) {
        if (result->error[i].code == code) {
            result->error[i].count++;
            return;
        }
    }
    if (result->errors_count < MILL_BENCH_ERRORS_MAX) {
        result->error[result->errors_count++] = (struct mill_bench_error){code, 1};
    }
}

/* One request, or end to end one record, is done. A late answer counts by its latency too: what was
 * due in the window belongs to it, whenever it came. */
static void done_count(struct bench_load *load, uint64_t due_ns, uint64_t now_ns, uint64_t records,
                       uint64_t bytes)
{
    struct mill_bench_result *result = load->result;
    if (bench_in_window(load, now_ns)) {
        result->requests++;
        result->records += records;
        result->bytes += bytes;
    }
#ifdef MILL_MUTANT_BENCH_COORDINATED
    due_ns = MILL_MAX(due_ns, load->heard_ns); /* a stall hides what it kept from being sent */
#endif
    if (bench_in_window(load, due_ns)) {
        mill_hist_add(&result->latency, now_ns - MILL_MIN(due_ns, now_ns));
    }
}

void bench_load_touch(struct bench_conn *conn)
{
    if (!conn->dirty) {
        conn->dirty = true;
        conn->load->dirty[conn->load->dirty_count++] = conn;
    }
}

/* --- sending ---------------------------------------------------------------------------------- */

/* A copy of the batch that nobody reads any more. ret: NULL when all are in use. */
static const struct mill_ref *copy_take(struct bench_conn *conn)
{
    struct bench_load *load = conn->load;
    for (uint32_t i = 0; i < conn->copies_count; i++) {
        const struct mill_ref *copy = &conn->copies[conn->next_copy];
        conn->next_copy = (conn->next_copy + 1) % conn->copies_count;
        if (mill_loan_free(&load->transport.loans, copy->extent)) {
            return copy;
        }
    }
    return NULL;
}

/* Head and batch as one piece, patched where it lies: the stream copies it at once. */
static int send_inline(struct bench_conn *conn, struct bench_place *place)
{
    struct bench_load *load = conn->load;
    const struct bench_head *head = &load->produce_head;
    uint8_t *frame = load->frames[load->next_template];
    mill_store_be32(frame + head->correlation_at, conn->sent);
    mill_store_be32(frame + head->partition_at, (uint32_t)place->partition);
    if (load->options->idempotent) {
        uint8_t *batch = frame + head->size_bytes;
        /* The producer's id differs from connection to connection: a frame of its own each. */
        batch = mill_ref_data(load->transport.maker->arena_base, &conn->copies[0]);
        bench_batch_set_sequence(batch, &load->shift, place->sequence);
        memcpy(frame + head->size_bytes, batch, load->batch_bytes);
    }
    load->next_template = (load->next_template + 1) % BENCH_TEMPLATES;
    return conn->stream->ops->send_bytes(conn->stream, frame, head->size_bytes + load->batch_bytes);
}

static int send_large(struct bench_conn *conn, struct bench_place *place)
{
    struct bench_load *load = conn->load;
    struct bench_head *head = &load->produce_head;
    const struct mill_ref *batch = &load->templates[load->next_template];
    if (load->options->idempotent) {
        batch = copy_take(conn);
        if (!batch) {
            return -EAGAIN;
        }
        bench_batch_set_sequence(mill_ref_data(load->transport.maker->arena_base, batch),
                                 &load->shift, place->sequence);
    }
    mill_store_be32(head->bytes + head->correlation_at, conn->sent);
    mill_store_be32(head->bytes + head->partition_at, (uint32_t)place->partition);
    load->next_template = (load->next_template + 1) % BENCH_TEMPLATES;
    int r = conn->stream->ops->send_bytes(conn->stream, head->bytes, head->size_bytes);
    return r < 0 ? r : conn->stream->ops->send_ref(conn->stream, batch);
}

static int send_produce(struct bench_conn *conn, uint32_t place_index)
{
    struct bench_load *load = conn->load;
    struct bench_place *place = &conn->places[place_index];
    int r = load->inlined ? send_inline(conn, place) : send_large(conn, place);
    if (r == 0) {
        place->sequence = (int32_t)((uint32_t)place->sequence + load->batch_records) & INT32_MAX;
    }
    return r;
}

static int send_fetch(struct bench_conn *conn, uint32_t place_index)
{
    struct bench_head *head = &conn->load->fetch_head;
    struct bench_place *place = &conn->places[place_index];
    mill_store_be32(head->bytes + head->correlation_at, conn->sent);
    mill_store_be32(head->bytes + head->partition_at, (uint32_t)place->partition);
    mill_store_be64(head->bytes + head->offset_at, (uint64_t)place->position);
    int r = conn->stream->ops->send_bytes(conn->stream, head->bytes, head->size_bytes);
    place->busy = r == 0;
    return r;
}

/* Requests that a connection keeps under way: of fetches one per partition. */
static uint32_t depth(const struct bench_conn *conn)
{
    uint32_t in_flight_max = conn->load->options->in_flight;
    return conn->fetches ? MILL_MIN(in_flight_max, conn->places_count) : in_flight_max;
}

/* May this connection send one more request? */
static bool may_send(const struct bench_conn *conn)
{
    const struct bench_load *load = conn->load;
    uint32_t refs = 0;
    uint32_t bytes = 0;
    /* The reader of an end-to-end run reads until the last record is there. */
    bool reader = load->due_ns && conn->fetches && load->phase == BENCH_DRAIN;
    bool counted = load->options->count > 0 && load->sent >= load->options->count;
    bool open = load->phase == BENCH_RUN && (!counted || (load->due_ns && conn->fetches));
    if (!conn->stream || conn->closing || !(open || reader) ||
        bench_in_flight(conn) == depth(conn)) {
        return false;
    }
    conn->stream->ops->room(conn->stream, &refs, &bytes);
    return refs >= 1 && bytes >= SEND_MARGIN_BYTES;
}

/* ret: false when it could not be sent now. */
static bool send_one(struct bench_conn *conn, uint64_t due_ns)
{
    struct bench_load *load = conn->load;
    uint32_t place = conn->next_place;
    if (conn->fetches && conn->places[place].busy) {
        return false;
    }
    int r = conn->fetches ? send_fetch(conn, place) : send_produce(conn, place);
    if (r < 0) {
        return false;
    }
    conn->slots[conn->sent % load->options->in_flight] =
        (struct bench_slot){.due_ns = due_ns, .place = place};
    conn->next_place = place + 1 == conn->places_count ? 0 : place + 1;
    conn->sent++;
    load->sent += load->options->mode != MILL_BENCH_END_TO_END || !conn->fetches;
    if (!conn->fetches && load->options->acks == 0) {
        conn->answered++; /* nothing will come */
        load->heard_ns = bench_now();
        done_count(load, due_ns, load->heard_ns, load->batch_records, load->batch_bytes);
    }
    return true;
}

/* Closed loop: as many as have room. ret: requests sent. */
static uint32_t fill(struct bench_conn *conn, uint64_t now_ns)
{
    uint32_t sent = 0;
    /* Without answers there is no bound but room: a turn's worth, then the stream's step. */
    while (sent < conn->load->options->in_flight && may_send(conn) && send_one(conn, now_ns)) {
        sent++;
    }
    if (sent > 0) {
        conn->stream->ops->push(conn->stream);
    }
    return sent;
}

/* The next connection in turn with room. */
static struct bench_conn *conn_next(struct bench_load *load)
{
    bool one = load->options->mode == MILL_BENCH_END_TO_END;
    for (uint32_t i = 0; i < (one ? 1 : load->conns_count); i++) {
        struct bench_conn *conn = &load->conns[one ? 0 : load->next_conn];
        load->next_conn = load->next_conn + 1 == load->conns_count ? 0 : load->next_conn + 1;
        if (may_send(conn) && (!conn->fetches || !conn->places[conn->next_place].busy)) {
            return conn;
        }
    }
    return NULL;
}

/* Open loop: sends what is due, and leaves due what has no room. */
static uint32_t send_due(struct bench_load *load, uint64_t now_ns)
{
    uint32_t sent = 0;
    while (load->schedule.next_ns <= now_ns && load->phase == BENCH_RUN &&
           load->sent - load->received < BENCH_DUE_LENGTH) {
        struct bench_conn *conn = conn_next(load);
        uint64_t due_ns = load->schedule.next_ns;
        if (!conn || !send_one(conn, due_ns)) {
            break;
        }
        if (load->due_ns) {
            load->due_ns[(load->sent - 1) % BENCH_DUE_LENGTH] = due_ns;
        }
        (void)bench_schedule_take(&load->schedule);
        conn->stream->ops->push(conn->stream);
        sent++;
    }
    return sent;
}

/* --- answers ---------------------------------------------------------------------------------- */

static void conn_lose(struct bench_conn *conn)
{
    if (!conn->closing && conn->stream) {
        conn->closing = true;
        conn->stream->ops->abort(conn->stream);
    }
}

static void on_produced(struct bench_conn *conn, const struct bench_slot *slot, uint64_t now_ns)
{
    struct bench_load *load = conn->load;
    const struct bench_answered *found = &conn->answer.found;
    if (found->error != 0) {
        error_count(load->result, found->error);
        return;
    }
    if (load->options->mode != MILL_BENCH_END_TO_END) {
        done_count(load, slot->due_ns, now_ns, load->batch_records, load->batch_bytes);
        return;
    }
    /* Records are told apart by their offsets alone: the topic must be ours. */
    if (found->base_offset != load->first_offset + (int64_t)load->acked) {
        load->result->malformed++;
        conn_lose(conn);
        return;
    }
    load->acked++;
}

/* End to end: records up to `end` arrived. */
static void records_arrived(struct bench_load *load, int64_t end, uint64_t now_ns)
{
    uint64_t until = (uint64_t)(end - load->first_offset);
    for (; load->received < until && load->received < load->sent; load->received++) {
        done_count(load, load->due_ns[load->received % BENCH_DUE_LENGTH], now_ns, 1,
                   load->batch_bytes);
    }
}

static void on_fetched(struct bench_conn *conn, const struct bench_slot *slot, uint64_t now_ns)
{
    struct bench_load *load = conn->load;
    const struct bench_answered *found = &conn->answer.found;
    struct bench_place *place = &conn->places[slot->place];
    place->busy = false;
    if (found->error != 0) {
        error_count(load->result, found->error);
        return;
    }
    if (found->next_offset > place->position) {
        place->position = found->next_offset;
    } else if (place->position < found->high_watermark) {
        load->result->malformed++; /* there is more, and it sends nothing */
        conn_lose(conn);
        return;
    }
    if (load->options->mode == MILL_BENCH_END_TO_END) {
        records_arrived(load, place->position, now_ns);
        return;
    }
    done_count(load, slot->due_ns, now_ns, found->records, found->records_bytes);
    if (place->position >= found->high_watermark) {
        place->position = place->start;
        load->result->restarts++;
    }
}

/* A whole answer. ret: false when it is none that may come. */
static bool on_answer(struct bench_conn *conn, uint64_t now_ns)
{
    struct bench_load *load = conn->load;
    if (bench_in_flight(conn) == 0 || conn->answer.found.correlation_id != conn->answered) {
        return false;
    }
    const struct bench_slot *slot = &conn->slots[conn->answered % load->options->in_flight];
    if (conn->answer.found.partition != conn->places[slot->place].partition) {
        return false;
    }
    conn->answered++;
    load->answered++;
    load->heard_ns = now_ns;
    if (conn->fetches) {
        on_fetched(conn, slot, now_ns);
    } else {
        on_produced(conn, slot, now_ns);
    }
    return true;
}

static void take_run(struct bench_conn *conn, const uint8_t *at, uint32_t run, uint64_t now_ns)
{
    while (run > 0 && !conn->closing) {
        uint32_t used = 0;
        int r = bench_answer_take(&conn->answer, at, run, &used);
        if (r < 0 || (r > 0 && !on_answer(conn, now_ns))) {
            conn->load->result->malformed++;
            conn_lose(conn);
            return;
        }
        at += used;
        run -= used;
    }
}

static void on_received(void *context, struct mill_stream *stream)
{
    struct bench_load *load = context;
    struct bench_conn *conn = stream->user;
    if (!conn || load->phase == BENCH_SETUP) {
        return; /* setup.c reads it where it lies */
    }
    struct mill_cursor cursor = mill_chain_cursor(&stream->rx);
    uint32_t all = cursor.left_bytes;
    uint64_t now_ns = bench_now();
    const uint8_t *at;
    uint32_t run;
    while ((run = mill_cursor_run(&cursor, &at)) > 0) {
        take_run(conn, at, run, now_ns);
        if (mill_cursor_skip(&cursor, run) < 0) {
            break;
        }
    }
    stream->ops->consume(stream, all);
    if (stream->rx_ended) {
        conn_lose(conn);
    }
    bench_load_touch(conn);
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    MILL_UNUSED(context);
    struct bench_conn *conn = stream->user;
    conn->connecting = false;
    conn->error = error;
    conn->stream = error == 0 ? stream : NULL;
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    struct bench_load *load = context;
    struct bench_conn *conn = stream->user;
    MILL_UNUSED(end);
    if (!conn) {
        return;
    }
    conn->stream = NULL;
    conn->closing = true;
    if (load->phase == BENCH_RUN || load->phase == BENCH_DRAIN) {
        load->result->connections_lost++;
        load->result->unanswered += bench_in_flight(conn);
        conn->answered = conn->sent;
        load->conns_open--;
    }
}

static int on_accepted(void *context, struct mill_stream *stream)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    return -1; /* nobody listens here */
}

static void on_room(void *context, struct mill_stream *stream)
{
    MILL_UNUSED(context);
    struct bench_conn *conn = stream->user;
    if (conn && conn->slots) {
        bench_load_touch(conn);
    }
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    MILL_UNUSED(size_bytes);
    on_room(context, stream);
}

const struct mill_stream_events bench_load_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .received = on_received,
    .room = on_room,
    .acked = on_acked,
    .closed = on_closed,
};

/* --- a turn's sending --------------------------------------------------------------------------
 */

/* Serves the connections that were touched. ret: requests sent. */
static uint32_t serve_dirty(struct bench_load *load)
{
    uint64_t now_ns = bench_now();
    uint32_t count = load->dirty_count;
    uint32_t sent = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct bench_conn *conn = load->dirty[i];
        conn->dirty = false;
        /* The reader of an end-to-end run asks again as soon as it was answered. */
        if (load->options->rate == 0 || (load->due_ns && conn->fetches)) {
            sent += fill(conn, now_ns);
        }
        load->dirty[i] = NULL;
    }
    /* Events come inside the stream's step only, so that the list cannot have grown. */
    load->dirty_count = 0;
    return sent;
}

uint32_t bench_load_send(struct bench_load *load, uint64_t now_ns)
{
    uint32_t sent = serve_dirty(load);
    return load->options->rate > 0 ? sent + send_due(load, now_ns) : sent;
}
