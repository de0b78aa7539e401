/* SPDX-License-Identifier: Apache-2.0 */
/* The load's connections: what they send and how they check the answers; see ring_client.h. */
#include "tests/perf/ring_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "hugepages/arena.h"
#include "protocol/batch.h"
#include "tests/lib/bytes.h"
#include "tests/perf/ring_end.h"

enum {
    NODE_ID = 2, /* of our end of the port */
    VISIT_REQUESTS = 2,
    VISITS_PER_S = 100,
    ARENA_BYTES = 32 << 20,
    FETCH_BYTES = 1 << 20,
    FETCH_BATCHES = FETCH_BYTES / RING_BATCH_BYTES,
    RECENT_BATCHES = 1024, /* the reader stays this close behind the newest batch */
    RUN_FETCHES = 16,
    COLD_RUNS = 4, /* each so many-th run begins at offset 0, long written to the files */
    TAIL_WAIT_MS = 100,
    RX_WINDOW_BYTES = 2 << 20,
    RECORD_OVERHEAD_BYTES = 9, /* a record of this size without its value */
    SILENCE_MS = 10000,        /* no answer at all for so long is a failure */
    LINGER_NS = 200000000,
};

/* --- batches
 * ---------------------------------------------------------------------------------------- */

static void put_record(struct bytes *to, int32_t index, uint32_t size_bytes,
                       struct mill_random *random)
{
    uint32_t value_bytes = size_bytes - RECORD_OVERHEAD_BYTES;
    put_varint(to, (int32_t)size_bytes - 2); /* its own two bytes do not count */
    put8(to, 0);
    put_varint(to, 0);
    put_varint(to, index);
    put_varint(to, -1);
    put_varint(to, (int32_t)value_bytes);
    for (uint32_t i = 0; i < value_bytes; i++) {
        put8(to, (int)(mill_random_next(random) & 255));
    }
    put_varint(to, 0);
}

/* A batch of random records, RING_BATCH_BYTES long; its base offset is the broker's to write. */
static void template_make(uint8_t *at, struct mill_random *random, int64_t wall_ms)
{
    struct bytes batch = {.at = at, .capacity_bytes = RING_BATCH_BYTES};
    uint32_t each = (RING_BATCH_BYTES - MILL_BATCH_HEADER_BYTES) / RING_BATCH_RECORDS;
    put64(&batch, 0);
    put32(&batch, RING_BATCH_BYTES - MILL_BATCH_PREFIX_BYTES);
    put32(&batch, 0);
    put8(&batch, 2);
    put32(&batch, 0);
    put16(&batch, 0);
    put32(&batch, RING_BATCH_RECORDS - 1);
    put64(&batch, wall_ms);
    put64(&batch, wall_ms);
    put64(&batch, -1);
    put16(&batch, -1);
    put32(&batch, -1);
    put32(&batch, RING_BATCH_RECORDS);
    for (int32_t i = 0; i < RING_BATCH_RECORDS; i++) {
        bool last = i == RING_BATCH_RECORDS - 1;
        put_record(&batch, i, last ? RING_BATCH_BYTES - batch.size_bytes : each, random);
    }
    MILL_ASSERT_EQ(batch.size_bytes, (uint32_t)RING_BATCH_BYTES);
    mill_store_be32(at + MILL_BATCH_CRC_AT, mill_crc32c(at + MILL_BATCH_SUMMED_AT,
                                                        RING_BATCH_BYTES - MILL_BATCH_SUMMED_AT));
}

/* What the broker must have made of the first bytes of batch `number`: its base offset, and leader
 * epoch 0. */
static void expected_start(uint64_t number, uint8_t ret_bytes[MILL_BATCH_MAGIC_AT])
{
    mill_store_be64(ret_bytes, number * RING_BATCH_RECORDS);
    mill_store_be32(ret_bytes + MILL_BATCH_LENGTH_AT, RING_BATCH_BYTES - MILL_BATCH_PREFIX_BYTES);
    mill_store_be32(ret_bytes + MILL_BATCH_EPOCH_AT, 0);
}

/* Compares a run of fetched bytes that begins at pos_bytes of the batches from `first` on. */
static void check_records(const struct ring_client *client, uint64_t first, uint32_t pos_bytes,
                          const uint8_t *at, uint32_t size_bytes)
{
    while (size_bytes > 0) {
        uint64_t number = first + pos_bytes / RING_BATCH_BYTES;
        uint32_t within = pos_bytes % RING_BATCH_BYTES;
        uint32_t part = RING_BATCH_BYTES - within;
        uint8_t start[MILL_BATCH_MAGIC_AT];
        const uint8_t *expected;
        if (within < MILL_BATCH_MAGIC_AT) {
            expected_start(number, start);
            expected = start + within;
            part = MILL_BATCH_MAGIC_AT - within;
        } else {
            expected = mill_ref_data(mill_arena_base(client->arena),
                                     &client->templates[number % RING_TEMPLATES]) +
                       within;
        }
        part = MILL_MIN(part, size_bytes);
        MILL_ASSERT(memcmp(at, expected, part) == 0);
        at += part;
        pos_bytes += part;
        size_bytes -= part;
    }
}

/* --- requests
 * ---------------------------------------------------------------------------------------- */

static void put_head(struct bytes *to, struct ring_conn *conn, int key, int version)
{
    put32(to, 0); /* the size, set when it is known */
    put16(to, key);
    put16(to, version);
    put32(to, ++conn->asked);
    put_text(to, "ring");
}

static bool room(const struct ring_conn *conn)
{
    uint32_t refs = 0;
    uint32_t bytes = 0;
    conn->stream->ops->room(conn->stream, &refs, &bytes);
    return refs >= 4 && bytes >= 2 * RING_HEAD_BYTES_MAX;
}

static void send_head(struct ring_conn *conn, struct bytes *head, uint32_t behind_bytes)
{
    mill_store_be32(head->at, head->size_bytes - 4 + behind_bytes);
    MILL_ASSERT_EQ(conn->stream->ops->send_bytes(conn->stream, head->at, head->size_bytes), 0);
}

static void produce(struct ring_conn *conn)
{
    struct ring_client *client = conn->client;
    uint8_t memory[2 * RING_HEAD_BYTES_MAX];
    struct bytes head = {.at = memory, .capacity_bytes = sizeof(memory)};
    put_head(&head, conn, PRODUCE_KEY, PRODUCE_VERSION);
    put16(&head, -1); /* no transactional id */
    put16(&head, -1); /* acks=all */
    put32(&head, 10000);
    put32(&head, 1);
    put_text(&head, client->topic);
    put32(&head, 1);
    put32(&head, conn->partition);
    put32(&head, RING_BATCH_BYTES);
    send_head(conn, &head, RING_BATCH_BYTES);
    const struct mill_ref *batch = &client->templates[conn->position % RING_TEMPLATES];
    MILL_ASSERT_EQ(conn->stream->ops->send_ref(conn->stream, batch), 0);
    conn->stream->ops->push(conn->stream);
    conn->position++;
}

static void fetch(struct ring_conn *conn)
{
    bool tail = conn->kind == RING_TAIL;
    uint8_t memory[2 * RING_HEAD_BYTES_MAX];
    struct bytes head = {.at = memory, .capacity_bytes = sizeof(memory)};
    put_head(&head, conn, FETCH_KEY, FETCH_VERSION);
    put32(&head, -1);
    put32(&head, tail ? TAIL_WAIT_MS : 10000);
    put32(&head, tail ? FETCH_BYTES : 1);
    put32(&head, FETCH_BYTES);
    put8(&head, 0);
    put32(&head, 1);
    put_text(&head, conn->client->topic);
    put32(&head, 1);
    put32(&head, conn->partition);
    put64(&head, (int64_t)(conn->position * RING_BATCH_RECORDS));
    put32(&head, FETCH_BYTES);
    send_head(conn, &head, 0);
    conn->stream->ops->push(conn->stream);
}

/* A run over recent batches begins: where? ret: false when nothing is there yet. */
static bool run_begin(struct ring_conn *conn)
{
    uint64_t acked = conn->client->acked[conn->partition];
    if (acked < FETCH_BATCHES) {
        return false;
    }
    bool cold = ++conn->passes % COLD_RUNS == 0;
    conn->position = cold || acked < RECENT_BATCHES ? 0 : acked - RECENT_BATCHES;
    conn->left = RUN_FETCHES;
    return true;
}

static void connect_one(struct ring_conn *conn)
{
    struct mill_stream_maker *maker = mill_net_maker(conn->client->net);
    struct mill_stream *stream = NULL;
    uint8_t address[16];
    ring_address(RING_BROKER_ADDRESS, address);
    conn->connecting = true;
    ring_need(maker->ops->connect(maker, address, RING_BROKER_PORT, conn, &stream), "connect",
              NULL);
}

static void close_one(struct ring_conn *conn)
{
    if (conn->stream && !conn->closing) {
        conn->closing = true;
        conn->stream->ops->close(conn->stream);
    }
}

/* The next step of a visit: versions, then metadata of our topic, then good-bye. */
static uint32_t visit(struct ring_conn *conn, uint64_t now_ns)
{
    struct ring_client *client = conn->client;
    uint8_t memory[2 * RING_HEAD_BYTES_MAX];
    struct bytes head = {.at = memory, .capacity_bytes = sizeof(memory)};
    if (client->start_ns == 0 || conn->connecting || conn->closing ||
        conn->asked != conn->answered) {
        return 0;
    }
    if (!conn->stream) {
        uint64_t due = (now_ns - client->start_ns) / (MILL_NS_PER_S / VISITS_PER_S);
        if (client->stopping || conn->passes >= due) {
            return 0;
        }
        conn->passes++;
        conn->left = VISIT_REQUESTS;
        connect_one(conn);
        return 1;
    }
    if (conn->left == 0) {
        close_one(conn);
        return 0;
    }
    if (conn->left-- == VISIT_REQUESTS) {
        put_head(&head, conn, API_VERSIONS_KEY, 0);
    } else {
        put_head(&head, conn, METADATA_KEY, METADATA_VERSION);
        put32(&head, 1);
        put_text(&head, client->topic);
    }
    send_head(conn, &head, 0);
    conn->stream->ops->push(conn->stream);
    return 1;
}

/* Sends what this connection may send now. ret: requests sent. */
static uint32_t pump(struct ring_conn *conn, uint64_t now_ns)
{
    struct ring_client *client = conn->client;
    uint32_t sent = 0;
    if (conn->kind == RING_VISITOR) {
        return visit(conn, now_ns);
    }
    if (!conn->stream || client->stopping || client->start_ns == 0) {
        return 0;
    }
    if (conn->kind == RING_PRODUCER) {
        uint64_t share = client->produce_bytes_per_s / RING_PARTITIONS;
        uint64_t allowed = (now_ns - client->start_ns) / MILL_NS_PER_US * share / 1000000;
        while (conn->asked - conn->answered < RING_PIPELINE && room(conn) &&
               conn->position * RING_BATCH_BYTES < allowed) {
            produce(conn);
            sent++;
        }
    } else if (conn->asked == conn->answered && room(conn)) {
        bool end = conn->left == 0 || conn->position == client->acked[conn->partition];
        if (conn->kind == RING_TAIL || !end || run_begin(conn)) {
            fetch(conn);
            conn->left -= conn->kind == RING_READER;
            sent++;
        }
    }
    return sent;
}

/* --- answers
 * ----------------------------------------------------------------------------------------- */

/* Both answers begin alike. ret: where the partition's error code is. */
static const uint8_t *check_head(const struct ring_conn *conn, const uint8_t *at)
{
    uint16_t topic_bytes = (uint16_t)strlen(conn->client->topic);
    MILL_ASSERT_EQ(mill_load_be32(at), 1u);
    MILL_ASSERT_EQ(mill_load_be16(at + 4), topic_bytes);
    MILL_ASSERT(memcmp(at + 6, conn->client->topic, topic_bytes) == 0);
    at += 6 + topic_bytes;
    MILL_ASSERT_EQ(mill_load_be32(at), 1u);
    MILL_ASSERT_EQ(mill_load_be32(at + 4), (uint32_t)conn->partition);
    MILL_ASSERT_EQ(mill_load_be16(at + 8), 0);
    return at + 8;
}

static void produced(struct ring_conn *conn)
{
    struct ring_client *client = conn->client;
    uint64_t *acked = &client->acked[conn->partition];
    const uint8_t *at = check_head(conn, conn->head + 8);
    MILL_ASSERT_EQ(mill_load_be32(conn->head), client->produce_head_bytes - 4);
    MILL_ASSERT_EQ(mill_load_be64(at + 2), *acked * RING_BATCH_RECORDS);
    (*acked)++;
    client->totals.produced++;
}

static void fetched_head(struct ring_conn *conn)
{
    const uint8_t *at = check_head(conn, conn->head + 12);
    uint64_t end = mill_load_be64(at + 2);
    conn->records_bytes = mill_load_be32(at + 22);
    conn->records_read = 0;
    MILL_ASSERT_EQ(mill_load_be32(conn->head),
                   conn->client->fetch_head_bytes - 4 + conn->records_bytes);
    MILL_ASSERT_EQ(conn->records_bytes % RING_BATCH_BYTES, 0u);
    MILL_ASSERT_LE(conn->records_bytes, (uint32_t)FETCH_BYTES);
    MILL_ASSERT_LE((conn->position + conn->records_bytes / RING_BATCH_BYTES) * RING_BATCH_RECORDS,
                   end);
    MILL_ASSERT(conn->records_bytes > 0 || conn->kind == RING_TAIL);
}

/* An answer to a visit's request: no error, and the broker and topic that are there. */
static void visited(struct ring_conn *conn)
{
    const uint8_t *at = conn->head + 8;
    if (conn->left == VISIT_REQUESTS - 1) {
        MILL_ASSERT_EQ(mill_load_be16(at), 0); /* ApiVersions: its error code */
        return;
    }
    MILL_ASSERT_EQ(mill_load_be32(at), 1u); /* one broker */
    uint16_t host_bytes = mill_load_be16(at + 8);
    MILL_ASSERT_EQ((size_t)host_bytes, strlen(RING_BROKER_HOST));
    MILL_ASSERT(memcmp(at + 10, RING_BROKER_HOST, host_bytes) == 0);
    MILL_ASSERT_EQ(mill_load_be32(at + 10 + host_bytes), (uint32_t)RING_BROKER_PORT);
    at += 10 + host_bytes + 4 + 2 + 4; /* port, no rack, controller */
    MILL_ASSERT_EQ(mill_load_be32(at), 1u);
    MILL_ASSERT_EQ(mill_load_be16(at + 4), 0); /* the topic's error code */
    conn->client->totals.visits++;
}

static void answer_end(struct ring_conn *conn)
{
    struct ring_client *client = conn->client;
    MILL_ASSERT_EQ(mill_load_be32(conn->head + 4), (uint32_t)conn->answered + 1);
    conn->answered++;
    if (conn->kind == RING_PRODUCER) {
        produced(conn);
    } else if (conn->kind == RING_VISITOR) {
        visited(conn);
    } else {
        conn->position += conn->records_bytes / RING_BATCH_BYTES;
        client->totals.fetches++;
        client->totals.fetches_empty += conn->records_bytes == 0;
        client->totals.fetched_bytes += conn->records_bytes;
    }
    conn->head_bytes = 0;
    conn->records_bytes = 0;
    conn->records_read = 0;
}

/* Bytes to gather before the records, or before what a visitor does not look at. */
static uint32_t head_whole(const struct ring_conn *conn)
{
    switch (conn->kind) {
    case RING_PRODUCER:
        return conn->client->produce_head_bytes;
    case RING_VISITOR:
        return conn->head_bytes < 4
                   ? 4
                   : MILL_MIN(4 + mill_load_be32(conn->head), (uint32_t)RING_HEAD_BYTES_MAX);
    default:
        return conn->client->fetch_head_bytes;
    }
}

/* The head is whole: what follows it? */
static void head_end(struct ring_conn *conn)
{
    if (conn->kind == RING_VISITOR) {
        conn->records_bytes = 4 + mill_load_be32(conn->head) - conn->head_bytes;
    } else if (conn->kind != RING_PRODUCER) {
        fetched_head(conn);
    }
}

/* Takes one run of received bytes. ret: how many of them belong to this step. */
static uint32_t take(struct ring_conn *conn, const uint8_t *at, uint32_t size_bytes)
{
    uint32_t missing = head_whole(conn) - conn->head_bytes;
    uint32_t used;
    if (missing > 0) {
        used = MILL_MIN(missing, size_bytes);
        memcpy(conn->head + conn->head_bytes, at, used);
        conn->head_bytes += used;
        if (conn->head_bytes == head_whole(conn)) {
            head_end(conn);
        }
    } else {
        used = MILL_MIN(conn->records_bytes - conn->records_read, size_bytes);
        if (conn->kind != RING_VISITOR) {
            check_records(conn->client, conn->position, conn->records_read, at, used);
        }
        conn->records_read += used;
    }
    if (conn->head_bytes == head_whole(conn) && conn->records_read == conn->records_bytes) {
        answer_end(conn);
    }
    return used;
}

static void on_received(void *context, struct mill_stream *stream)
{
    struct ring_client *client = context;
    struct ring_conn *conn = stream->user;
    struct mill_cursor cursor = mill_chain_cursor(&stream->rx);
    uint32_t all = cursor.left_bytes;
    const uint8_t *at;
    uint32_t run;
    while ((run = mill_cursor_run(&cursor, &at)) > 0) {
        uint32_t used = take(conn, at, run);
        MILL_ASSERT_EQ(mill_cursor_skip(&cursor, used), 0);
        client->progress_ns = 0; /* the loop knows the time */
    }
    stream->ops->consume(stream, all);
    MILL_ASSERT(!stream->rx_ended || conn->closing);
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    MILL_UNUSED(context);
    MILL_ASSERT_EQ(error, 0);
    struct ring_conn *conn = stream->user;
    conn->stream = stream;
    conn->connecting = false;
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    struct ring_conn *conn = stream->user;
    MILL_UNUSED(context);
    MILL_ASSERT(conn->closing);
    MILL_ASSERT(end == MILL_END_CLOSED);
    conn->stream = NULL;
    conn->closing = false;
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
    MILL_UNUSED(stream); /* the loop looks for room by itself */
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    MILL_UNUSED(size_bytes);
}

static const struct mill_stream_events client_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .received = on_received,
    .room = on_room,
    .acked = on_acked,
    .closed = on_closed,
};

/* --- making and ending
 * ------------------------------------------------------------------------------ */

static void templates_make(struct ring_client *client)
{
    struct mill_random random = {.state = 20};
    int64_t wall_ms = mill_now_read().wall_ms;
    for (uint32_t i = 0; i < RING_TEMPLATES; i++) {
        uint32_t extent;
        ring_need(mill_extent_alloc(client->extents, RING_BATCH_BYTES, &extent), "client's batches",
                  NULL);
        client->templates[i] = (struct mill_ref){.extent = extent, .size_bytes = RING_BATCH_BYTES};
        template_make(mill_extent_data(client->extents, extent), &random, wall_ms);
    }
}

static void net_make(struct ring_client *client, const char *device)
{
    struct mill_report report = {""};
    struct mill_port_info info;
    client->port = ring_port_open(device, NODE_ID, client->arena, client->loans_of_queues);
    mill_port_info(client->port, &info);
    struct mill_net_config config = {
        .address = RING_CLIENT_ADDRESS,
        .prefix_bits = RING_PREFIX_BITS,
        .secret = {4, 5},
        .random_seed = 6,
        .connections_max = 4 * RING_CONNS,
        .rx_window_max = RX_WINDOW_BYTES,
        .rx_budget_bytes = info.rx_pool_bytes / 2,
    };
    mill_net_config_defaults(&config);
    ring_need(mill_net_create(&config, mill_port_link(client->port, 0), &client->loans,
                              mill_arena_base(client->arena), &client_events, client, &client->net,
                              &report),
              "client's net", &report);
}

void ring_client_open(struct ring_client *client, const char *dir, const char *device,
                      const char *topic)
{
    struct mill_report report = {""};
    struct mill_arena_options options = {
        .dir = dir,
        .size_bytes = ARENA_BYTES,
        .nodes = 1,
        .cores = 1,
        .partitions_max = 16,
        .extent_bytes_max = 1 << 20,
    };
    bool taken = false;
    uint32_t topic_bytes = (uint32_t)strlen(topic);
    client->topic = topic;
    client->produce_head_bytes = 4 + 4 + 4 + 2 + topic_bytes + 4 + 4 + 2 + 8 + 8 + 8 + 4;
    client->fetch_head_bytes = 4 + 4 + 4 + 4 + 2 + topic_bytes + 4 + 4 + 2 + 8 + 8 + 4 + 4;
    MILL_ASSERT_LE(client->fetch_head_bytes, (uint32_t)RING_HEAD_BYTES_MAX);
    ring_need(mill_arena_open(&options, &client->arena, &taken, &report), "client's arena",
              &report);
    uint32_t units = mill_arena_units(client->arena);
    ring_need(mill_loans_init(&client->loans, units, units), "client's loans", NULL);
    ring_need(mill_extents_create(client->arena, 0, -1, &client->extents), "client's extents",
              NULL);
    client->loans_of_queues[0] = &client->loans;
    templates_make(client);
    net_make(client, device);
}

void ring_client_close(struct ring_client *client)
{
    mill_port_close(client->port);
    mill_extents_destroy(client->extents);
    mill_loans_fini(&client->loans);
    mill_arena_close(client->arena, true);
}

/* --- the load
 * ---------------------------------------------------------------------------------------- */

static uint32_t turn(struct ring_client *client)
{
    struct mill_stream_maker *maker = mill_net_maker(client->net);
    uint64_t now_ns = mill_now_read().mono_ns;
    uint32_t work = maker->ops->step(maker, now_ns);
    for (uint32_t i = 0; i < RING_CONNS; i++) {
        work += pump(&client->conns[i], now_ns);
    }
    if (client->progress_ns == 0) {
        client->progress_ns = now_ns;
    }
    MILL_ASSERT_LE(now_ns - client->progress_ns, SILENCE_MS * MILL_NS_PER_MS);
    return work;
}

static bool all_connected(const struct ring_client *client)
{
    for (uint32_t i = 0; i < RING_LASTING; i++) {
        if (!client->conns[i].stream) {
            return false;
        }
    }
    return true;
}

static bool all_answered(const struct ring_client *client)
{
    for (uint32_t i = 0; i < RING_CONNS; i++) {
        const struct ring_conn *conn = &client->conns[i];
        if (conn->asked != conn->answered || conn->connecting) {
            return false;
        }
    }
    return true;
}

static bool all_closed(const struct ring_client *client)
{
    for (uint32_t i = 0; i < RING_CONNS; i++) {
        if (client->conns[i].stream) {
            return false;
        }
    }
    return true;
}

/* A SYN into a link that is down would be sent again a second later. */
static void link_wait(struct ring_client *client)
{
    struct mill_port_info info;
    do {
        turn(client);
        mill_port_info(client->port, &info);
    } while (!info.link_up);
}

static void connect_all(struct ring_client *client)
{
    for (uint32_t i = 0; i < RING_CONNS; i++) {
        struct ring_conn *conn = &client->conns[i];
        *conn = (struct ring_conn){.client = client, .kind = RING_VISITOR};
        if (i < RING_LASTING) {
            conn->kind = (enum ring_kind)(i % RING_KINDS);
            conn->partition = (int32_t)(i / RING_KINDS);
            connect_one(conn);
        }
    }
    while (!all_connected(client)) {
        turn(client);
    }
}

void ring_client_run(struct ring_client *client, uint64_t duration_ns,
                     void (*started)(void *context), void (*ended)(void *context), void *context)
{
    struct mill_stream_maker *maker = mill_net_maker(client->net);
    client->progress_ns = mill_now_read().mono_ns;
    link_wait(client);
    connect_all(client);
    started(context);
    client->start_ns = mill_now_read().mono_ns;
    while (mill_now_read().mono_ns - client->start_ns < duration_ns) {
        turn(client);
    }
    ended(context);
    client->stopping = true;
    while (!all_answered(client)) {
        turn(client);
    }
    for (uint32_t i = 0; i < RING_CONNS; i++) {
        close_one(&client->conns[i]);
    }
    while (!all_closed(client)) {
        turn(client);
    }
    /* Our last acknowledgements go out, and what the broker read in place comes back. */
    uint64_t closed_ns = mill_now_read().mono_ns;
    while (mill_now_read().mono_ns - closed_ns < LINGER_NS) {
        turn(client);
    }
    MILL_ASSERT_EQ(client->loans.loaned_bytes, 0u);
    maker->ops->destroy(maker);
}
