/* SPDX-License-Identifier: Apache-2.0 */
/* What a load must know before it begins, asked one question at a time: is it a broker with the
 * versions we speak, the topic's partitions and leaders, offsets, ids of producers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load.h"
#include "protocol/errors.h"
#include "protocol/messages.h"

enum {
    PRODUCE_KEY = 0,
    FETCH_KEY = 1,
    LIST_OFFSETS_KEY = 2,
    LIST_OFFSETS_VERSION = 1,
    METADATA_KEY = 3,
    METADATA_VERSION = 4, /* the first that need not create what it asks for */
    API_VERSIONS_KEY = 18,
    API_VERSIONS_VERSION = 0,
    CREATE_TOPICS_KEY = 19,
    CREATE_TOPICS_VERSION = 2,
    INIT_PRODUCER_ID_KEY = 22,
    INIT_PRODUCER_ID_VERSION = 0,
    QUESTION_BYTES_MAX = 2048,
    METADATA_TRIES = 200, /* a new topic's leaders: 20 ms apart */
    METADATA_GAP_NS = 20000000,
    STEP_NS = 10000000,
    CLOSE_NS = 500000000,
    HOST_BYTES = 256,
};

/* --- one question at a time ------------------------------------------------------------------- */

struct question {
    struct mill_writer to;
    int16_t key;
    int16_t version;
    uint8_t bytes[QUESTION_BYTES_MAX];
};

static struct mill_writer *begin(struct question *question, int16_t key, int16_t version)
{
    struct mill_request_header header = {
        .api_key = key, .api_version = version, .client_id = mill_wstr_of("millrace-bench")};
    question->key = key;
    question->version = version;
    mill_writer_init(&question->to, question->bytes, sizeof(question->bytes), NULL, 0);
    mill_wire_request_begin(&question->to, &header);
    return &question->to;
}

static void turn(struct bench_load *load)
{
    struct mill_stream_maker *maker = load->transport.maker;
    if (maker->ops->step(maker, bench_now()) == 0) {
        bench_transport_wait(&load->transport, load->options->busy, STEP_NS);
    }
}

/* Steps for so long. */
static void pass(struct bench_load *load, uint64_t time_ns)
{
    for (uint64_t until_ns = bench_now() + time_ns; bench_now() < until_ns;) {
        turn(load);
    }
}

/* Sends and waits for the whole answer, which stays in the stream until `answered`.
 * ret: 0 with a cursor behind the answer's header. */
static int ask(struct bench_load *load, struct bench_conn *conn, struct question *question,
               struct mill_cursor *ret_body, struct mill_report *report)
{
    const char *name = mill_api_find(question->key)->name;
    uint64_t limit_ns = bench_now() + load->options->timeout_ms * MILL_NS_PER_MS;
    int64_t size = mill_wire_request_finish(&question->to);
    if (size < 0) {
        return mill_fail(report, (int)size, "%s: the request cannot be encoded", name);
    }
    if (conn->stream->ops->send_bytes(conn->stream, question->bytes, question->to.size_bytes) < 0) {
        return mill_fail(report, -EPIPE, "%s: the connection takes no request", name);
    }
    conn->stream->ops->push(conn->stream);
    for (;;) {
        uint8_t head[4] = {0};
        int32_t correlation = 0;
        if (!conn->stream) {
            return mill_fail(report, -ECONNRESET, "%s: the broker closed the connection", name);
        }
        struct mill_cursor at = mill_chain_cursor(&conn->stream->rx);
        if (mill_cursor_read(&at, head, sizeof(head)) == 0) {
            uint32_t wanted = mill_load_be32(head);
            if (wanted > conn->stream->rx_bytes_max) {
                return mill_fail(report, -EPROTO, "%s: an answer of %u bytes", name, wanted);
            }
            if (at.left_bytes >= wanted) {
                *ret_body = mill_cursor_slice(&at, wanted);
                return mill_response_header_decode(ret_body, question->key, question->version,
                                                   &correlation) < 0
                           ? mill_fail(report, -EPROTO, "%s: malformed answer", name)
                           : 0;
            }
        }
        if (bench_now() > limit_ns) {
            return mill_fail(report, -ETIMEDOUT, "%s: no answer within %u ms", name,
                             load->options->timeout_ms);
        }
        turn(load);
    }
}

static void answered(struct bench_conn *conn)
{
    uint8_t head[4] = {0};
    struct mill_cursor at = mill_chain_cursor(&conn->stream->rx);
    if (mill_cursor_read(&at, head, sizeof(head)) == 0) {
        conn->stream->ops->consume(conn->stream, 4 + mill_load_be32(head));
    }
}

static int refused(struct mill_report *report, const char *what, int16_t code)
{
    return mill_fail(report, -EPROTO, "%s: the broker answers %s (%d)", what, mill_kerr_name(code),
                     code);
}

/* --- connections ------------------------------------------------------------------------------ */

int bench_setup_connect(struct bench_load *load, struct bench_conn *conn,
                        struct mill_report *report)
{
    struct mill_stream_maker *maker = load->transport.maker;
    struct mill_stream *stream = NULL;
    uint64_t limit_ns = bench_now() + load->options->timeout_ms * MILL_NS_PER_MS;
    conn->load = load;
    conn->connecting = true;
    int r = maker->ops->connect(maker, conn->address, conn->port, conn, &stream);
    while (r == 0 && conn->connecting) {
        turn(load);
        r = bench_now() > limit_ns ? -ETIMEDOUT : conn->error;
    }
    if (r < 0) {
        return mill_fail(report, r, "cannot connect to %s port %u: %s", load->options->host,
                         conn->port, strerror(-r));
    }
    return 0;
}

void bench_setup_close(struct bench_load *load, struct bench_conn *conn)
{
    uint64_t limit_ns = bench_now() + CLOSE_NS;
    if (conn->stream && !conn->closing) {
        conn->closing = true;
        conn->stream->ops->close(conn->stream);
    }
    while (conn->stream && bench_now() < limit_ns) {
        turn(load);
    }
}

/* --- versions --------------------------------------------------------------------------------- */

struct need {
    int16_t key;
    int16_t version;
    bool met;
};

static int versions_check(struct bench_load *load, struct mill_report *report)
{
    struct need needs[] = {
        {PRODUCE_KEY, BENCH_PRODUCE_VERSION, false},
        {FETCH_KEY, BENCH_FETCH_VERSION, false},
        {LIST_OFFSETS_KEY, LIST_OFFSETS_VERSION, false},
        {METADATA_KEY, METADATA_VERSION, false},
    };
    struct question question;
    struct mill_cursor body;
    struct mill_api_versions_response answer;
    struct mill_api_versions_response_api_keys api;
    (void)begin(&question, API_VERSIONS_KEY, API_VERSIONS_VERSION);
    int r = ask(load, &load->control, &question, &body, report);
    if (r < 0) {
        return r;
    }
    if (mill_api_versions_response_decode(&body, API_VERSIONS_VERSION, &answer) < 0) {
        return mill_fail(report, -EPROTO, "ApiVersions: malformed answer; is it a Kafka broker?");
    }
    while (mill_api_versions_response_api_keys_next(&answer.api_keys, API_VERSIONS_VERSION, &api)) {
        for (uint32_t i = 0; i < MILL_COUNT_OF(needs); i++) {
            bool served =
                needs[i].version >= api.min_version && needs[i].version <= api.max_version;
            needs[i].met = needs[i].met || (api.api_key == needs[i].key && served);
        }
    }
    answered(&load->control);
    for (uint32_t i = 0; i < MILL_COUNT_OF(needs); i++) {
        if (!needs[i].met) {
            return mill_fail(report, -EPROTO, "the broker does not serve %s version %d",
                             mill_api_find(needs[i].key)->name, needs[i].version);
        }
    }
    return answer.error_code == 0 ? 0 : refused(report, "ApiVersions", answer.error_code);
}

/* --- topic ------------------------------------------------------------------------------------ */

BENCH_ONE(one_name, struct mill_metadata_request_topics)
BENCH_ONE(one_new_topic, struct mill_create_topics_request_topics)
BENCH_ONE(one_topic, struct mill_list_offsets_request_topics)
BENCH_ONE(one_partition, struct mill_list_offsets_request_topics_partitions)

static int topic_create(struct bench_load *load, struct mill_report *report)
{
    struct question question;
    struct mill_cursor body;
    struct mill_create_topics_response answer;
    struct mill_create_topics_response_topics result = {0};
    struct mill_create_topics_request_topics topic;
    mill_create_topics_request_topics_defaults(&topic);
    topic.name = mill_wstr_of(load->options->topic);
    topic.num_partitions = (int32_t)MILL_MAX(load->options->partitions, 1u);
    topic.replication_factor = 1;
    struct mill_create_topics_request request;
    mill_create_topics_request_defaults(&request);
    request.topics = (struct mill_warray){.count = 1, .get = one_new_topic, .context = &topic};
    request.timeout_ms = (int32_t)load->options->timeout_ms;
    struct mill_writer *to = begin(&question, CREATE_TOPICS_KEY, CREATE_TOPICS_VERSION);
    (void)mill_create_topics_request_encode(to, CREATE_TOPICS_VERSION, &request);
    int r = ask(load, &load->control, &question, &body, report);
    if (r < 0) {
        return r;
    }
    if (mill_create_topics_response_decode(&body, CREATE_TOPICS_VERSION, &answer) < 0 ||
        !mill_create_topics_response_topics_next(&answer.topics, CREATE_TOPICS_VERSION, &result)) {
        return mill_fail(report, -EPROTO, "CreateTopics: malformed answer");
    }
    answered(&load->control);
    bool fine = result.error_code == 0 || result.error_code == MILL_KERR_TOPIC_ALREADY_EXISTS ||
                result.error_code == MILL_KERR_REQUEST_TIMED_OUT; /* looked for below */
    return fine ? 0 : refused(report, "CreateTopics", result.error_code);
}

static int leader_add(struct bench_load *load, const struct mill_metadata_response *answer,
                      int32_t node, uint32_t *ret_leader, struct mill_report *report)
{
    struct mill_warray brokers = answer->brokers;
    struct mill_metadata_response_brokers broker;
    char host[HOST_BYTES];
    for (uint32_t i = 0; i < load->leaders_count; i++) {
        if (load->leaders[i].node == node) {
            *ret_leader = i;
            return 0;
        }
    }
    while (mill_metadata_response_brokers_next(&brokers, METADATA_VERSION, &broker)) {
        if (broker.node_id != node || load->leaders_count == BENCH_BROKERS_MAX) {
            continue;
        }
        struct bench_leader *leader = &load->leaders[load->leaders_count];
        if (mill_wstr_copy(&broker.host, host, sizeof(host)) < 0 || broker.port <= 0 ||
            broker.port > UINT16_MAX) {
            break;
        }
        *leader = (struct bench_leader){.node = node, .port = (uint16_t)broker.port};
        *ret_leader = load->leaders_count++;
        return bench_transport_resolve(&load->transport, host, leader->address, report);
    }
    return mill_fail(report, -EPROTO, "Metadata: no address of node %d", node);
}

/* Takes the topic's partitions. ret: 0, -EAGAIN one has no leader yet, negative. */
static int partitions_take(struct bench_load *load, const struct mill_metadata_response *answer,
                           struct mill_warray *partitions, struct mill_report *report)
{
    struct mill_metadata_response_topics_partitions one;
    uint32_t all = (uint32_t)MILL_MAX(partitions->count, 0);
    uint32_t wanted = load->options->partitions ? load->options->partitions : all;
    if (all < wanted || wanted == 0 || wanted > MILL_BENCH_PARTITIONS_MAX) {
        return mill_fail(report, -EINVAL,
                         "topic %s has %u partitions, %u are asked for (at most %d)",
                         load->options->topic, all, wanted, MILL_BENCH_PARTITIONS_MAX);
    }
    uint32_t found = 0;
    while (mill_metadata_response_topics_partitions_next(partitions, METADATA_VERSION, &one)) {
        if ((uint32_t)one.partition_index >= wanted) {
            continue;
        }
        if (one.leader_id < 0) {
            return -EAGAIN;
        }
        int r = leader_add(load, answer, one.leader_id,
                           &load->partitions[one.partition_index].leader, report);
        if (r < 0) {
            return r;
        }
        found++;
    }
    load->partitions_count = wanted;
    return found == wanted ? 0 : -EAGAIN;
}

/* Asks for the topic once. ret: 0, -ENOENT no such topic, -EAGAIN not ready, negative. */
static int topic_look(struct bench_load *load, struct mill_report *report)
{
    struct question question;
    struct mill_cursor body;
    struct mill_metadata_request_topics name = {.name = mill_wstr_of(load->options->topic)};
    struct mill_metadata_request request;
    struct mill_metadata_response answer;
    struct mill_metadata_response_topics topic;
    mill_metadata_request_defaults(&request);
    request.topics = (struct mill_warray){.count = 1, .get = one_name, .context = &name};
    request.allow_auto_topic_creation = false;
    struct mill_writer *to = begin(&question, METADATA_KEY, METADATA_VERSION);
    (void)mill_metadata_request_encode(to, METADATA_VERSION, &request);
    int r = ask(load, &load->control, &question, &body, report);
    if (r < 0) {
        return r;
    }
    struct mill_warray topics;
    if (mill_metadata_response_decode(&body, METADATA_VERSION, &answer) < 0 ||
        (topics = answer.topics,
         !mill_metadata_response_topics_next(&topics, METADATA_VERSION, &topic))) {
        return mill_fail(report, -EPROTO, "Metadata: malformed answer");
    }
    load->leaders_count = 0;
    if (topic.error_code == MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION) {
        r = -ENOENT;
    } else if (topic.error_code != 0 && mill_kerr_retriable(topic.error_code)) {
        r = -EAGAIN;
    } else if (topic.error_code != 0) {
        r = refused(report, "Metadata", topic.error_code);
    } else {
        r = partitions_take(load, &answer, &topic.partitions, report);
    }
    answered(&load->control);
    return r;
}

static int topic_find(struct bench_load *load, struct mill_report *report)
{
    int r = topic_look(load, report);
    if (r == -ENOENT && load->options->create) {
        r = topic_create(load, report);
        r = r == 0 ? -EAGAIN : r;
    }
    for (uint32_t tries = 0; tries < METADATA_TRIES && (r == -EAGAIN || r == -ENOENT); tries++) {
        if (r == -ENOENT && !load->options->create) {
            break;
        }
        pass(load, METADATA_GAP_NS);
        r = topic_look(load, report);
    }
    if (r == -ENOENT) {
        return mill_fail(report, r, "no topic %s; create it, or give --create",
                         load->options->topic);
    }
    return r == -EAGAIN
               ? mill_fail(report, r, "topic %s: a partition has no leader", load->options->topic)
               : r;
}

/* --- offsets ---------------------------------------------------------------------------------- */

/* Offsets are the leader's to tell, so it is asked on a connection to it. */
static int offset_ask(struct bench_load *load, struct bench_conn *conn, int32_t partition,
                      int64_t timestamp, int64_t *ret_offset, struct mill_report *report)
{
    struct question question;
    struct mill_cursor body;
    struct mill_list_offsets_request_topics_partitions one;
    mill_list_offsets_request_topics_partitions_defaults(&one);
    one.partition_index = partition;
    one.timestamp = timestamp;
    struct mill_list_offsets_request_topics topic = {
        .name = mill_wstr_of(load->options->topic),
        .partitions = {.count = 1, .get = one_partition, .context = &one}};
    struct mill_list_offsets_request request;
    mill_list_offsets_request_defaults(&request);
    request.replica_id = -1;
    request.topics = (struct mill_warray){.count = 1, .get = one_topic, .context = &topic};
    struct mill_writer *to = begin(&question, LIST_OFFSETS_KEY, LIST_OFFSETS_VERSION);
    (void)mill_list_offsets_request_encode(to, LIST_OFFSETS_VERSION, &request);
    int r = ask(load, conn, &question, &body, report);
    if (r < 0) {
        return r;
    }
    struct mill_list_offsets_response answer;
    struct mill_list_offsets_response_topics topics;
    struct mill_list_offsets_response_topics_partitions found;
    if (mill_list_offsets_response_decode(&body, LIST_OFFSETS_VERSION, &answer) < 0 ||
        !mill_list_offsets_response_topics_next(&answer.topics, LIST_OFFSETS_VERSION, &topics) ||
        !mill_list_offsets_response_topics_partitions_next(&topics.partitions, LIST_OFFSETS_VERSION,
                                                           &found)) {
        return mill_fail(report, -EPROTO, "ListOffsets: malformed answer");
    }
    answered(conn);
    *ret_offset = found.offset;
    if (found.error_code != 0) {
        (void)refused(report, "ListOffsets", found.error_code);
        return mill_kerr_retriable(found.error_code) ? -EAGAIN : -EPROTO;
    }
    return 0;
}

/* A leader that was just chosen may not know it yet. */
static int offset_find(struct bench_load *load, struct bench_conn *conn, int32_t partition,
                       int64_t timestamp, int64_t *ret_offset, struct mill_report *report)
{
    int r = offset_ask(load, conn, partition, timestamp, ret_offset, report);
    for (uint32_t tries = 0; tries < METADATA_TRIES && r == -EAGAIN; tries++) {
        pass(load, METADATA_GAP_NS);
        r = offset_ask(load, conn, partition, timestamp, ret_offset, report);
    }
    return r;
}

static int partition_offsets(struct bench_load *load, struct bench_conn *conn, uint32_t index,
                             struct mill_report *report)
{
    struct bench_partition *partition = &load->partitions[index];
    int r = offset_find(load, conn, (int32_t)index, -1, &partition->end, report);
    if (r == 0) {
        r = offset_find(load, conn, (int32_t)index, -2, &partition->start, report);
    }
    partition->start = MILL_MAX(partition->start, load->options->offset);
    if (r == 0 && load->options->mode == MILL_BENCH_FETCH && partition->start >= partition->end) {
        return mill_fail(report, -ENODATA,
                         "partition %u of %s holds nothing from offset %lld on; produce first",
                         index, load->options->topic, (long long)partition->start);
    }
    return r;
}

static int offsets_find(struct bench_load *load, struct mill_report *report)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < load->leaders_count; i++) {
        struct bench_conn conn = {.port = load->leaders[i].port};
        memcpy(conn.address, load->leaders[i].address, sizeof(conn.address));
        r = bench_setup_connect(load, &conn, report);
        for (uint32_t p = 0; r == 0 && p < load->partitions_count; p++) {
            if (load->partitions[p].leader == i) {
                r = partition_offsets(load, &conn, p, report);
            }
        }
        bench_setup_close(load, &conn);
        if (conn.stream) {
            conn.stream->user = NULL; /* ends without us */
        }
    }
    return r;
}

int bench_setup_topic(struct bench_load *load, struct mill_report *report)
{
    load->control.port = load->options->port;
    int r = bench_transport_resolve(&load->transport, load->options->host, load->control.address,
                                    report);
    if (r == 0) {
        r = bench_setup_connect(load, &load->control, report);
    }
    if (r == 0) {
        r = versions_check(load, report);
    }
    if (r == 0) {
        r = topic_find(load, report);
    }
    if (r == 0) {
        r = offsets_find(load, report);
    }
    bench_setup_close(load, &load->control);
    return r;
}

int bench_setup_producer(struct bench_load *load, struct bench_conn *conn, int64_t *ret_id,
                         int16_t *ret_epoch, struct mill_report *report)
{
    struct question question;
    struct mill_cursor body;
    struct mill_init_producer_id_request request;
    struct mill_init_producer_id_response answer;
    mill_init_producer_id_request_defaults(&request);
    request.transactional_id = mill_wstr_of(NULL);
    request.transaction_timeout_ms = (int32_t)load->options->timeout_ms;
    struct mill_writer *to = begin(&question, INIT_PRODUCER_ID_KEY, INIT_PRODUCER_ID_VERSION);
    (void)mill_init_producer_id_request_encode(to, INIT_PRODUCER_ID_VERSION, &request);
    int r = ask(load, conn, &question, &body, report);
    if (r < 0) {
        return r;
    }
    if (mill_init_producer_id_response_decode(&body, INIT_PRODUCER_ID_VERSION, &answer) < 0) {
        return mill_fail(report, -EPROTO, "InitProducerId: malformed answer");
    }
    answered(conn);
    *ret_id = answer.producer_id;
    *ret_epoch = answer.producer_epoch;
    return answer.error_code == 0 ? 0 : refused(report, "InitProducerId", answer.error_code);
}
