/* SPDX-License-Identifier: Apache-2.0 */
/* A server that answers as a broker and does nothing of its work: what it gives is the most that
 * the generator, the transport and the machine can carry. It has a small log of one extent, read
 * over and over; what is produced to it is dropped. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "bench/batch.h"
#include "bench/transport.h"
#include "protocol/messages.h"

enum {
    LOG_BYTES = 16 << 20,
    ANSWER_BYTES = 4096,
    CONNECTIONS_MAX = 2048,
    WAIT_NS = 20000000,
    LOOK_NS = 20000000, /* between two looks at signals */
    NODE_ID = 1,
    PRODUCER_ID = 1000,
};

struct null_server {
    const struct mill_bench_null_options *options;
    struct bench_transport transport;
    struct mill_ref log;
    uint32_t batch_bytes;
    uint32_t batch_records;
    uint32_t batches;
    uint8_t answer[ANSWER_BYTES];
};

/* One question being answered. */
struct asked {
    struct null_server *server;
    struct mill_request_header header;
    struct mill_cursor at; /* behind the header */
    struct mill_writer to;
    struct mill_writer_hole hole;
    struct mill_ref records; /* size 0: none */
    bool silent;             /* acks=0 */
    struct mill_wstr topic;  /* the only one of the request */
    char name[MILL_BENCH_TOPIC_BYTES];
};

BENCH_ONE(one_broker, struct mill_metadata_response_brokers)
BENCH_ONE(one_topic, struct mill_metadata_response_topics)
BENCH_ONE(one_node, int32_t)
BENCH_ONE(one_created, struct mill_create_topics_response_topics)
BENCH_ONE(one_listed, struct mill_list_offsets_response_topics)
BENCH_ONE(one_offset, struct mill_list_offsets_response_topics_partitions)
BENCH_ONE(one_produced, struct mill_produce_response_responses)
BENCH_ONE(one_taken, struct mill_produce_response_responses_partition_responses)
BENCH_ONE(one_fetched, struct mill_fetch_response_responses)
BENCH_ONE(one_read, struct mill_fetch_response_responses_partitions)

/* A name may lie across two buffers; encoding wants it in one. */
static bool topic_keep(struct asked *asked, const struct mill_wstr *name)
{
    if (mill_wstr_copy(name, asked->name, sizeof(asked->name)) < 0) {
        return false;
    }
    asked->topic = mill_wstr_of(asked->name);
    return true;
}

/* --- the rare questions ----------------------------------------------------------------------- */

static void get_api(const void *context, int32_t index, void *ret_element)
{
    const struct mill_api *api = &mill_apis[index];
    struct mill_api_versions_response_api_keys *key = ret_element;
    MILL_UNUSED(context);
    *key = (struct mill_api_versions_response_api_keys){
        .api_key = api->key, .min_version = api->version_min, .max_version = api->version_max};
}

static bool answer_versions(struct asked *asked, int16_t version)
{
    struct mill_api_versions_response answer;
    mill_api_versions_response_defaults(&answer);
    answer.api_keys = (struct mill_warray){.count = (int32_t)mill_apis_count, .get = get_api};
    return mill_api_versions_response_encode(&asked->to, version, &answer) == 0;
}

static void get_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_metadata_response_topics_partitions *partition = ret_element;
    partition->partition_index = index;
    partition->leader_id = NODE_ID;
    partition->replica_nodes =
        (struct mill_warray){.count = 1, .get = one_node, .context = context};
    partition->isr_nodes = partition->replica_nodes;
}

static bool answer_metadata(struct asked *asked, int16_t version)
{
    static const int32_t node = NODE_ID;
    struct mill_metadata_request request;
    struct mill_metadata_request_topics wanted;
    if (mill_metadata_request_decode(&asked->at, version, &request) < 0 ||
        !mill_metadata_request_topics_next(&request.topics, version, &wanted) ||
        !topic_keep(asked, &wanted.name)) {
        return false;
    }
    struct mill_metadata_response answer;
    struct mill_metadata_response_brokers broker;
    struct mill_metadata_response_topics topic;
    mill_metadata_response_defaults(&answer);
    mill_metadata_response_brokers_defaults(&broker);
    mill_metadata_response_topics_defaults(&topic);
    broker.node_id = NODE_ID;
    broker.host = mill_wstr_of(asked->server->options->host);
    broker.port = asked->server->options->port;
    topic.name = asked->topic;
    topic.partitions = (struct mill_warray){.count = (int32_t)asked->server->options->partitions,
                                            .get = get_partition,
                                            .context = &node};
    answer.controller_id = NODE_ID;
    answer.brokers = (struct mill_warray){.count = 1, .get = one_broker, .context = &broker};
    answer.topics = (struct mill_warray){.count = 1, .get = one_topic, .context = &topic};
    return mill_metadata_response_encode(&asked->to, version, &answer) == 0;
}

static bool answer_create(struct asked *asked, int16_t version)
{
    struct mill_create_topics_request request;
    struct mill_create_topics_request_topics wanted;
    if (mill_create_topics_request_decode(&asked->at, version, &request) < 0 ||
        !mill_create_topics_request_topics_next(&request.topics, version, &wanted) ||
        !topic_keep(asked, &wanted.name)) {
        return false;
    }
    struct mill_create_topics_response answer;
    struct mill_create_topics_response_topics topic;
    mill_create_topics_response_defaults(&answer);
    mill_create_topics_response_topics_defaults(&topic);
    topic.name = asked->topic;
    answer.topics = (struct mill_warray){.count = 1, .get = one_created, .context = &topic};
    return mill_create_topics_response_encode(&asked->to, version, &answer) == 0;
}

static bool answer_offsets(struct asked *asked, int16_t version)
{
    const struct null_server *server = asked->server;
    struct mill_list_offsets_request request;
    struct mill_list_offsets_request_topics wanted;
    struct mill_list_offsets_request_topics_partitions one;
    if (mill_list_offsets_request_decode(&asked->at, version, &request) < 0 ||
        !mill_list_offsets_request_topics_next(&request.topics, version, &wanted) ||
        !mill_list_offsets_request_topics_partitions_next(&wanted.partitions, version, &one) ||
        !topic_keep(asked, &wanted.name)) {
        return false;
    }
    struct mill_list_offsets_response answer;
    struct mill_list_offsets_response_topics topic;
    struct mill_list_offsets_response_topics_partitions partition;
    mill_list_offsets_response_defaults(&answer);
    mill_list_offsets_response_topics_defaults(&topic);
    mill_list_offsets_response_topics_partitions_defaults(&partition);
    partition.partition_index = one.partition_index;
    partition.offset = one.timestamp == -2 ? 0 : (int64_t)server->batches * server->batch_records;
    topic.name = asked->topic;
    topic.partitions = (struct mill_warray){.count = 1, .get = one_offset, .context = &partition};
    answer.topics = (struct mill_warray){.count = 1, .get = one_listed, .context = &topic};
    return mill_list_offsets_response_encode(&asked->to, version, &answer) == 0;
}

static bool answer_producer(struct asked *asked, int16_t version)
{
    struct mill_init_producer_id_response answer;
    mill_init_producer_id_response_defaults(&answer);
    answer.producer_id = PRODUCER_ID;
    return mill_init_producer_id_response_encode(&asked->to, version, &answer) == 0;
}

/* --- produce and fetch ------------------------------------------------------------------------ */

static bool answer_produce(struct asked *asked, int16_t version)
{
    struct mill_produce_request request;
    struct mill_produce_request_topic_data wanted;
    struct mill_produce_request_topic_data_partition_data one;
    if (mill_produce_request_decode(&asked->at, version, &request) < 0 ||
        !mill_produce_request_topic_data_next(&request.topic_data, version, &wanted) ||
        !mill_produce_request_topic_data_partition_data_next(&wanted.partition_data, version,
                                                             &one) ||
        !topic_keep(asked, &wanted.name)) {
        return false;
    }
    asked->silent = request.acks == 0;
    struct mill_produce_response answer;
    struct mill_produce_response_responses topic;
    struct mill_produce_response_responses_partition_responses partition;
    mill_produce_response_defaults(&answer);
    mill_produce_response_responses_partition_responses_defaults(&partition);
    partition.index = one.index;
    topic.name = asked->topic;
    topic.partition_responses =
        (struct mill_warray){.count = 1, .get = one_taken, .context = &partition};
    answer.responses = (struct mill_warray){.count = 1, .get = one_produced, .context = &topic};
    return mill_produce_response_encode(&asked->to, version, &answer) == 0;
}

/* Whole batches from an offset on, at least one. */
static void log_read(const struct null_server *server, int64_t offset, int32_t bytes_max,
                     struct mill_ref *ret_records)
{
    uint32_t index = (uint32_t)((uint64_t)offset / server->batch_records);
    *ret_records = (struct mill_ref){0};
    if (offset < 0 || index >= server->batches) {
        return;
    }
    uint32_t count = bytes_max > 0 ? (uint32_t)bytes_max / server->batch_bytes : 0;
    count = MILL_MIN(MILL_MAX(count, 1u), server->batches - index);
    *ret_records = server->log;
    ret_records->pos_bytes += index * server->batch_bytes;
    ret_records->size_bytes = count * server->batch_bytes;
}

static bool answer_fetch(struct asked *asked, int16_t version)
{
    const struct null_server *server = asked->server;
    struct mill_fetch_request request;
    struct mill_fetch_request_topics wanted;
    struct mill_fetch_request_topics_partitions one;
    if (mill_fetch_request_decode(&asked->at, version, &request) < 0 ||
        !mill_fetch_request_topics_next(&request.topics, version, &wanted) ||
        !mill_fetch_request_topics_partitions_next(&wanted.partitions, version, &one) ||
        !topic_keep(asked, &wanted.topic)) {
        return false;
    }
    log_read(server, one.fetch_offset, MILL_MIN(one.partition_max_bytes, request.max_bytes),
             &asked->records);
    struct mill_fetch_response answer;
    struct mill_fetch_response_responses topic;
    struct mill_fetch_response_responses_partitions partition;
    mill_fetch_response_defaults(&answer);
    mill_fetch_response_responses_partitions_defaults(&partition);
    partition.partition_index = one.partition;
    partition.high_watermark = (int64_t)server->batches * server->batch_records;
    partition.records = (struct mill_wrecords){.length = (int32_t)asked->records.size_bytes};
    topic.topic = asked->topic;
    topic.partitions = (struct mill_warray){.count = 1, .get = one_read, .context = &partition};
    answer.responses = (struct mill_warray){.count = 1, .get = one_fetched, .context = &topic};
    return mill_fetch_response_encode(&asked->to, version, &answer) == 0;
}

/* --- requests --------------------------------------------------------------------------------- */

static bool answer(struct asked *asked)
{
    int16_t version = asked->header.api_version;
    switch (asked->header.api_key) {
    case 0:
        return answer_produce(asked, version);
    case 1:
        return answer_fetch(asked, version);
    case 2:
        return answer_offsets(asked, version);
    case 3:
        return answer_metadata(asked, version);
    case 18:
        return answer_versions(asked, version);
    case 19:
        return answer_create(asked, version);
    case 22:
        return answer_producer(asked, version);
    default:
        return false;
    }
}

/* Sends the answer, with the records in its hole. */
static bool answer_send(struct asked *asked, struct mill_stream *stream)
{
    const struct mill_stream_ops *ops = stream->ops;
    uint32_t head = asked->to.holes_count > 0 ? asked->hole.pos_bytes : asked->to.size_bytes;
    if (asked->silent) {
        return true;
    }
    if (mill_response_finish(&asked->to) < 0 ||
        ops->send_bytes(stream, asked->to.bytes, head) < 0) {
        return false;
    }
    if (asked->to.holes_count > 0 && ops->send_ref(stream, &asked->records) < 0) {
        return false;
    }
    uint32_t tail = asked->to.size_bytes - head;
    return tail == 0 || ops->send_bytes(stream, asked->to.bytes + head, tail) == 0;
}

/* Answers the request at the front. ret: false when it is not whole yet, or has no room for its
 * answer; a request that is none ends the connection. */
static bool serve_one(struct null_server *server, struct mill_stream *stream)
{
    uint8_t head[4];
    uint32_t refs = 0;
    uint32_t bytes = 0;
    struct mill_cursor at = mill_chain_cursor(&stream->rx);
    if (mill_cursor_read(&at, head, sizeof(head)) < 0) {
        return false;
    }
    uint32_t size = mill_load_be32(head);
    stream->ops->room(stream, &refs, &bytes);
    if (size > stream->rx_bytes_max - 4) {
        stream->ops->abort(stream);
        return false;
    }
    if (at.left_bytes < size || refs < 1 || bytes < ANSWER_BYTES) {
        return false;
    }
    struct asked asked = {.server = server, .at = mill_cursor_slice(&at, size)};
    if (mill_request_header_decode(&asked.at, &asked.header) < 0) {
        stream->ops->abort(stream);
        return false;
    }
    mill_writer_init(&asked.to, server->answer, sizeof(server->answer), &asked.hole, 1);
    mill_response_begin(&asked.to, asked.header.api_key, asked.header.api_version,
                        asked.header.correlation_id);
    if (!answer(&asked) || !answer_send(&asked, stream)) {
        stream->ops->abort(stream);
        return false;
    }
    stream->ops->consume(stream, 4 + size);
    return true;
}

static void on_received(void *context, struct mill_stream *stream)
{
    bool served = false;
    if (stream->dead) {
        return;
    }
    while (serve_one(context, stream)) {
        served = true;
    }
    if (served) {
        stream->ops->push(stream);
    }
    if (stream->rx_ended) {
        stream->ops->close(stream);
    }
}

static int on_accepted(void *context, struct mill_stream *stream)
{
    stream->user = context;
    return 0;
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    MILL_UNUSED(error); /* it opens none */
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    MILL_UNUSED(size_bytes);
    if (stream->rx.size_bytes > 0) {
        on_received(context, stream);
    }
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    MILL_UNUSED(end); /* nothing is kept for a connection */
}

static const struct mill_stream_events events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .received = on_received,
    .room = on_received,
    .acked = on_acked,
    .closed = on_closed,
};

/* --- life ------------------------------------------------------------------------------------- */

static int log_make(struct null_server *server, struct mill_report *report)
{
    const struct mill_bench_null_options *options = server->options;
    server->batch_records = bench_batch_records(options->batch_bytes, options->record_bytes);
    if (server->batch_records == 0) {
        return mill_fail(report, -EINVAL, "a batch of %u bytes holds no record of %u bytes",
                         options->batch_bytes, options->record_bytes);
    }
    server->batch_bytes = (uint32_t)bench_batch_bytes(server->batch_records, options->record_bytes);
    server->batches = LOG_BYTES / server->batch_bytes;
    int r = bench_transport_alloc(&server->transport, LOG_BYTES, &server->log, report);
    uint8_t *at = r < 0 ? NULL : mill_ref_data(server->transport.maker->arena_base, &server->log);
    for (uint32_t i = 0; r == 0 && i < server->batches; i++, at += server->batch_bytes) {
        bench_batch_encode(at, server->batch_records, options->record_bytes,
                           mill_now_read().wall_ms, i);
        mill_store_be64(at, (uint64_t)i * server->batch_records);
    }
    return r;
}

static void serve(struct null_server *server)
{
    struct mill_stream_maker *maker = server->transport.maker;
    uint64_t begin_ns = bench_now();
    uint64_t looked_ns = begin_ns;
    for (;;) {
        uint64_t now_ns = bench_now();
        if (now_ns - looked_ns > LOOK_NS) {
            if (server->options->stop() || now_ns - begin_ns > server->options->duration_ns) {
                return;
            }
            looked_ns = now_ns;
        }
        if (maker->ops->step(maker, now_ns) == 0) {
            bench_transport_wait(&server->transport, server->options->busy, WAIT_NS);
        }
    }
}

static int open_and_serve(struct null_server *server, void (*ready)(void *context, uint16_t port),
                          void *context, struct mill_report *report)
{
    const struct mill_bench_null_options *options = server->options;
    uint8_t address[16];
    int r = bench_transport_open(&server->transport, &options->transport, CONNECTIONS_MAX,
                                 LOG_BYTES, &events, server, report);
    if (r < 0) {
        return r;
    }
    r = log_make(server, report);
    if (r == 0) {
        r = bench_transport_resolve(&server->transport, options->host, address, report);
    }
    if (r == 0) {
        struct mill_stream_maker *maker = server->transport.maker;
        r = maker->ops->listen(maker, address, options->port, 0, report);
    }
    if (r == 0 && server->transport.port) {
        r = mill_port_listen(server->transport.port, options->transport.address, options->port,
                             IPPROTO_TCP, report);
    }
    if (r == 0) {
        ready(context, options->port);
        serve(server);
    }
    bench_transport_close(&server->transport);
    return r;
}

int mill_bench_null_server(const struct mill_bench_null_options *options,
                           void (*ready)(void *context, uint16_t port), void *context,
                           struct mill_report *report)
{
    struct null_server *server = calloc(1, sizeof(*server));
    if (!server) {
        return mill_fail(report, -ENOMEM, "no memory");
    }
    server->options = options;
    int r = open_and_serve(server, ready, context, report);
    free(server);
    return r;
}
