/* SPDX-License-Identifier: Apache-2.0 */
/* See txn_workers.h: a request is made of what comes next, its answer says what comes after. */
#include "tests/sim/txn_workers.h"

#include <string.h>

#include "base/crc32c.h"
#include "dataplane/core/core_types.h"
#include "protocol/errors.h"
#include "protocol/messages.h"

enum {
    BODY_BYTES = 2048,
    BATCHES_MAX = 4, /* of a transaction, to each of its partitions */
    TIMEOUT_MS = 3000,
    INIT_VERSION = 1,
    ADD_VERSION = 1,
    END_VERSION = 1,
    OFFSETS_VERSION = 2,
    PRODUCE_VERSION = 7,
    /* of transactions of version 2 */
    END_BUMPS_VERSION = 5,
    OFFSETS_ADDS_VERSION = 5, /* or, with the topic's id, the next */
    PRODUCE_ADDS_VERSION = 12,
};

/* --- requests ----------------------------------------------------------------------------------
 */

static void send(struct worker *worker, int16_t key, int16_t version, const uint8_t *body,
                 const struct mill_writer *to, enum doing doing)
{
    uint8_t tagged[1 + BODY_BYTES];
    MILL_ASSERT_EQ(to->error, 0);
    worker->flexible = version >= mill_api_find(key)->flexible_from;
    worker->version = version;
    worker->doing = doing;
    if (!worker->flexible) {
        world_send(&worker->client, key, version, body, to->size_bytes);
        return;
    }
    tagged[0] = 0; /* tags of the header */
    memcpy(tagged + 1, body, to->size_bytes);
    world_send(&worker->client, key, version, tagged, to->size_bytes + 1);
}

static void init(struct worker *worker)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_init_producer_id_request message;
    mill_init_producer_id_request_defaults(&message);
    message.transactional_id = mill_wstr_of(worker->id);
    message.transaction_timeout_ms = TIMEOUT_MS;
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    (void)mill_init_producer_id_request_encode(&to, INIT_VERSION, &message);
    send(worker, MILL_API_KEY_INIT_PRODUCER_ID, INIT_VERSION, body, &to, INITING);
}

static void get_added(const void *context, int32_t index, void *ret_element)
{
    *(int32_t *)ret_element = (int32_t)((const struct worker *)context)->to[index];
}

static void get_added_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_add_partitions_to_txn_request_v3_and_below_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->partitions = (struct mill_warray){.count = 2, .get = get_added, .context = context};
}

static void add(struct worker *worker)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_add_partitions_to_txn_request message;
    mill_add_partitions_to_txn_request_defaults(&message);
    message.v3_and_below_transactional_id = mill_wstr_of(worker->id);
    message.v3_and_below_producer_id = worker->me.producer_id;
    message.v3_and_below_producer_epoch = worker->me.epoch;
    message.v3_and_below_topics =
        (struct mill_warray){.count = 1, .get = get_added_topic, .context = worker};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    (void)mill_add_partitions_to_txn_request_encode(&to, ADD_VERSION, &message);
    send(worker, MILL_API_KEY_ADD_PARTITIONS_TO_TXN, ADD_VERSION, body, &to, ADDING);
}

/* One record, whose value is the transaction's number. */
static uint32_t build(const struct identity *who, uint32_t txn, uint32_t partition, uint8_t *to)
{
    uint32_t at = MILL_BATCH_HEADER_BYTES;
    static const uint8_t head[] = {28, 0, 0, 0, 1, 16};
    memset(to, 0, MILL_BATCH_HEADER_BYTES);
    memcpy(to + at, head, sizeof(head));
    at += sizeof(head);
    mill_store_be64(to + at, txn);
    at += 8;
    to[at++] = 0;
    mill_store_be32(to + 8, at - 12);
    to[16] = 2;
    mill_store_be16(to + 21, MILL_BATCH_TRANSACTIONAL);
    mill_store_be64(to + 27, 1700000000000);
    mill_store_be64(to + 35, 1700000000000);
    mill_store_be64(to + 43, (uint64_t)who->producer_id);
    mill_store_be16(to + 51, (uint16_t)who->epoch);
    mill_store_be32(to + 53, (uint32_t)who->sequences[partition]);
    mill_store_be32(to + 57, 1);
    mill_store_be32(to + 17, mill_crc32c(to + 21, at - 21));
    return at;
}

struct produce_of {
    uint32_t partition;
    const uint8_t *batch;
    uint32_t batch_bytes;
};

static void get_data(const void *context, int32_t index, void *ret_element)
{
    const struct produce_of *from = context;
    struct mill_produce_request_topic_data_partition_data *element = ret_element;
    MILL_UNUSED(index);
    element->index = (int32_t)from->partition;
    element->records =
        (struct mill_wrecords){.length = (int32_t)from->batch_bytes, .ptr = from->batch};
}

static void get_data_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_produce_request_topic_data *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->partition_data = (struct mill_warray){.count = 1, .get = get_data, .context = context};
}

static void produce(struct worker *worker, const struct identity *who, uint32_t txn,
                    uint32_t partition, int16_t version, enum doing doing)
{
    uint8_t body[BODY_BYTES];
    uint8_t batch[256];
    struct mill_writer to;
    struct mill_produce_request message;
    const struct produce_of from = {partition, batch, build(who, txn, partition, batch)};
    mill_produce_request_defaults(&message);
    message.transactional_id = mill_wstr_of(worker->id);
    message.acks = -1;
    message.timeout_ms = 10000;
    message.topic_data = (struct mill_warray){.count = 1, .get = get_data_topic, .context = &from};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    (void)mill_produce_request_encode(&to, version, &message);
    send(worker, MILL_API_KEY_PRODUCE, version, body, &to, doing);
}

/* A batch of the last transaction, on a way that took long: one that was sent before, or one to a
 * partition that the transaction had not. */
static void come_late(struct run *run, struct worker *worker)
{
    struct identity who = worker->last;
    uint32_t partition = mill_random_below(&run->world.random, PARTITIONS);
    worker->again = run->txns[worker->last_txn].sent[partition] > 0;
    who.sequences[partition] -= worker->again;
    produce(worker, &who, worker->last_txn, partition, PRODUCE_ADDS_VERSION, COMING_LATE);
    worker->last_txn = 0;
}

static void add_offsets(struct worker *worker)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_add_offsets_to_txn_request message;
    mill_add_offsets_to_txn_request_defaults(&message);
    message.transactional_id = mill_wstr_of(worker->id);
    message.producer_id = worker->me.producer_id;
    message.producer_epoch = worker->me.epoch;
    message.group_id = mill_wstr_of(worker->id);
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    (void)mill_add_offsets_to_txn_request_encode(&to, ADD_VERSION, &message);
    send(worker, MILL_API_KEY_ADD_OFFSETS_TO_TXN, ADD_VERSION, body, &to, ADDING_OFFSETS);
}

static void get_offset(const void *context, int32_t index, void *ret_element)
{
    const struct worker *worker = context;
    struct mill_txn_offset_commit_request_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->committed_offset = worker->txn;
    element->committed_metadata = mill_wstr_of("");
}

static void get_offset_topic(const void *context, int32_t index, void *ret_element)
{
    const struct worker *worker = context;
    struct mill_txn_offset_commit_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->topic_id =
        mill_map_topic_by_name(worker->client.world->map, topic, (uint32_t)strlen(topic))->id;
    element->partitions = (struct mill_warray){.count = 1, .get = get_offset, .context = context};
}

static void commit_offset(struct worker *worker)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_txn_offset_commit_request message;
    mill_txn_offset_commit_request_defaults(&message);
    message.transactional_id = mill_wstr_of(worker->id);
    message.group_id = mill_wstr_of(worker->id);
    message.producer_id = worker->me.producer_id;
    message.producer_epoch = worker->me.epoch;
    message.topics = (struct mill_warray){.count = 1, .get = get_offset_topic, .context = worker};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    int16_t version =
        worker->bumps ? OFFSETS_ADDS_VERSION + (int16_t)(worker->txn % 2) : OFFSETS_VERSION;
    (void)mill_txn_offset_commit_request_encode(&to, version, &message);
    send(worker, MILL_API_KEY_TXN_OFFSET_COMMIT, version, body, &to, COMMITTING_OFFSET);
}

static void end(struct run *run, struct worker *worker)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_end_txn_request message;
    mill_end_txn_request_defaults(&message);
    message.transactional_id = mill_wstr_of(worker->id);
    message.producer_id = worker->me.producer_id;
    message.producer_epoch = worker->me.epoch;
    message.committed = worker->commit;
    run->txns[worker->txn].fate = worker->commit ? COMMITTING : OPEN;
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    int16_t version = worker->bumps ? END_BUMPS_VERSION : END_VERSION;
    (void)mill_end_txn_request_encode(&to, version, &message);
    send(worker, MILL_API_KEY_END_TXN, version, body, &to, ENDING);
}

/* --- answers -----------------------------------------------------------------------------------
 */

bool worker_may_repeat(int16_t error)
{
    return error == MILL_KERR_COORDINATOR_NOT_AVAILABLE ||
           error == MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS || error == MILL_KERR_NOT_COORDINATOR ||
           error == MILL_KERR_CONCURRENT_TRANSACTIONS || error == MILL_KERR_REQUEST_TIMED_OUT ||
           error == MILL_KERR_NOT_LEADER_OR_FOLLOWER || error == MILL_KERR_NOT_ENOUGH_REPLICAS ||
           error == MILL_KERR_KAFKA_STORAGE_ERROR || error == MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
}

/* The transaction's fate is known: the next thing is another one, or another epoch. */
static void over(struct run *run, struct worker *worker, enum fate fate)
{
    run->txns[worker->txn].fate = (uint8_t)fate;
    run->commits += fate == COMMITTED;
    run->aborts += fate == ABORTED;
    worker->txn = 0;
}

/* What an error leads to. ret: true when there was none. */
static bool goes_on(struct run *run, struct worker *worker, int16_t error)
{
    if (error == MILL_KERR_NONE) {
        return true;
    }
    if (!worker_may_repeat(error)) {
        /* Its time was over: the coordinator has aborted it and fenced this epoch. */
        bool decided = worker->bumps && worker->next == ENDING && worker->commit &&
                       error == MILL_KERR_INVALID_TXN_STATE;
        bool fenced = worker->bumps && worker->next == ENDING && error == MILL_KERR_PRODUCER_FENCED;
        MILL_ASSERT(decided || fenced || error == MILL_KERR_INVALID_PRODUCER_EPOCH);
        if (worker->txn != 0) {
            over(run, worker, ABORTED);
        }
        worker->next = INITING;
    }
    return false;
}

static void transaction_begin(struct run *run, struct worker *worker)
{
    worker->txn = ++run->txns_count;
    MILL_ASSERT_LT(worker->txn, (uint32_t)TXNS_MAX);
    run->txns[worker->txn] = (struct txn){.worker = (uint8_t)(worker - run->workers)};
    worker->to[0] = mill_random_below(&run->world.random, PARTITIONS);
    worker->to[1] =
        (worker->to[0] + 1 + mill_random_below(&run->world.random, PARTITIONS - 1)) % PARTITIONS;
    worker->at = 0;
    worker->left = 1 + mill_random_below(&run->world.random, BATCHES_MAX - 1);
    worker->commit = mill_random_below(&run->world.random, 4) > 0;
    worker->with_offset = mill_random_below(&run->world.random, 2) == 0;
    worker->bumps = worker->bumps_next;
    worker->bumps_next = mill_random_below(&run->world.random, 3) > 0;
    worker->last_txn = 0;
}

static void inited(struct run *run, struct worker *worker, struct mill_cursor *at)
{
    struct mill_init_producer_id_response message;
    MILL_ASSERT_EQ(mill_init_producer_id_response_decode(at, INIT_VERSION, &message), 0);
    if (message.error_code != MILL_KERR_NONE) {
        MILL_ASSERT(worker_may_repeat(message.error_code));
        return;
    }
    MILL_ASSERT(message.producer_id != worker->me.producer_id ||
                message.producer_epoch > worker->me.epoch);
    worker->me = (struct identity){message.producer_id, message.producer_epoch, {0}};
    run->inits++;
    worker->next = ADDING;
}

static void added(struct run *run, struct worker *worker, struct mill_cursor *at)
{
    struct mill_add_partitions_to_txn_response message;
    struct mill_add_partitions_to_txn_response_results_by_topic_v3_and_below one;
    struct mill_add_partitions_to_txn_response_results_by_topic_v3_and_below_results_by_partition
        part;
    MILL_ASSERT_EQ(mill_add_partitions_to_txn_response_decode(at, ADD_VERSION, &message), 0);
    MILL_ASSERT(mill_add_partitions_to_txn_response_results_by_topic_v3_and_below_next(
        &message.results_by_topic_v3_and_below, ADD_VERSION, &one));
    MILL_ASSERT(
        mill_add_partitions_to_txn_response_results_by_topic_v3_and_below_results_by_partition_next(
            &one.results_by_partition, ADD_VERSION, &part));
    if (goes_on(run, worker, part.partition_error_code)) {
        worker->next = PRODUCING;
    }
}

static int16_t produce_error(const struct worker *worker, struct mill_cursor *at)
{
    struct mill_produce_response message;
    struct mill_produce_response_responses one;
    struct mill_produce_response_responses_partition_responses part;
    int16_t version = worker->version;
    MILL_ASSERT_EQ(mill_produce_response_decode(at, version, &message), 0);
    MILL_ASSERT(mill_produce_response_responses_next(&message.responses, version, &one));
    MILL_ASSERT(mill_produce_response_responses_partition_responses_next(&one.partition_responses,
                                                                         version, &part));
    return part.error_code;
}

/* What comes after the end is in no transaction. */
static void came_late(struct run *run, const struct worker *worker, struct mill_cursor *at)
{
    int16_t error = produce_error(worker, at);
    MILL_ASSERT((worker->again && error == MILL_KERR_NONE) || worker_may_repeat(error) ||
                error == MILL_KERR_INVALID_PRODUCER_EPOCH);
    run->late += error == MILL_KERR_INVALID_PRODUCER_EPOCH;
}

static void produced(struct run *run, struct worker *worker, struct mill_cursor *at)
{
    uint32_t partition = worker->to[worker->at];
    if (!goes_on(run, worker, produce_error(worker, at))) {
        return;
    }
    worker->me.sequences[partition]++;
    run->txns[worker->txn].sent[partition]++;
    if (--worker->left > 0) {
        return;
    }
    worker->left = 1 + mill_random_below(&run->world.random, BATCHES_MAX - 1);
    if (++worker->at == 2) {
        worker->next = !worker->with_offset ? ENDING
                       : worker->bumps      ? COMMITTING_OFFSET
                                            : ADDING_OFFSETS;
    }
}

static void offsets_added(struct run *run, struct worker *worker, struct mill_cursor *at)
{
    struct mill_add_offsets_to_txn_response message;
    MILL_ASSERT_EQ(mill_add_offsets_to_txn_response_decode(at, ADD_VERSION, &message), 0);
    if (goes_on(run, worker, message.error_code)) {
        worker->next = COMMITTING_OFFSET;
    }
}

static void offset_committed(struct run *run, struct worker *worker, struct mill_cursor *at)
{
    struct mill_txn_offset_commit_response message;
    struct mill_txn_offset_commit_response_topics one;
    struct mill_txn_offset_commit_response_topics_partitions part;
    int16_t version = worker->version;
    MILL_ASSERT_EQ(mill_txn_offset_commit_response_decode(at, version, &message), 0);
    MILL_ASSERT(mill_txn_offset_commit_response_topics_next(&message.topics, version, &one));
    MILL_ASSERT(
        mill_txn_offset_commit_response_topics_partitions_next(&one.partitions, version, &part));
    if (goes_on(run, worker, part.error_code)) {
        run->txns[worker->txn].offset = true;
        worker->next = ENDING;
    }
}

static void ended(struct run *run, struct worker *worker, struct mill_cursor *at)
{
    struct mill_end_txn_response message;
    MILL_ASSERT_EQ(mill_end_txn_response_decode(at, worker->version, &message), 0);
    if (goes_on(run, worker, message.error_code)) {
        if (worker->bumps) {
            MILL_ASSERT_EQ(message.producer_id, worker->me.producer_id);
            MILL_ASSERT_EQ(message.producer_epoch, worker->me.epoch + 1);
            worker->last = worker->me;
            worker->last_txn = worker->txn;
            worker->me = (struct identity){message.producer_id, message.producer_epoch, {0}};
            run->bumped++;
        }
        over(run, worker, worker->commit ? COMMITTED : ABORTED);
        /* From version 1 to 2 clients ask for an epoch: until the markers are written, a batch that
         * asks nobody would belong to what was ended. */
        worker->next = worker->bumps_next && !worker->bumps ? INITING : ADDING;
    }
}

static void answer_take(struct run *run, struct worker *worker, uint32_t size)
{
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, worker->client.answer, size);
    enum doing doing = worker->doing;
    MILL_ASSERT_EQ(mill_cursor_skip(&at, 4 + worker->flexible), 0); /* correlation id, tags */
    worker->doing = IDLE;
    switch (doing) {
    case INITING:
        inited(run, worker, &at);
        break;
    case ADDING:
        added(run, worker, &at);
        break;
    case PRODUCING:
        produced(run, worker, &at);
        break;
    case ADDING_OFFSETS:
        offsets_added(run, worker, &at);
        break;
    case COMMITTING_OFFSET:
        offset_committed(run, worker, &at);
        break;
    case ENDING:
        ended(run, worker, &at);
        break;
    case COMING_LATE:
        came_late(run, worker, &at);
        break;
    case IDLE:
        MILL_ASSERT(false);
    }
}

/* --- workers -----------------------------------------------------------------------------------
 */

static void ask(struct run *run, struct worker *worker)
{
    switch (worker->next) {
    case IDLE:
    case INITING:
        init(worker);
        break;
    case ADDING:
        if (worker->txn == 0) {
            transaction_begin(run, worker);
        }
        if (!worker->bumps) {
            add(worker);
            break;
        }
        worker->next = PRODUCING;
        __attribute__((fallthrough));
    case PRODUCING:
        produce(worker, &worker->me, worker->txn, worker->to[worker->at],
                worker->bumps ? PRODUCE_ADDS_VERSION : PRODUCE_VERSION, PRODUCING);
        break;
    case ADDING_OFFSETS:
        add_offsets(worker);
        break;
    case COMMITTING_OFFSET:
        commit_offset(worker);
        break;
    case ENDING:
        end(run, worker);
        break;
    case COMING_LATE:
        MILL_ASSERT(false); /* is never next */
    }
}

static void worker_disconnect(struct worker *worker)
{
    if (worker->connected) {
        world_disconnect(&worker->client);
        worker->connected = false;
        worker->doing = IDLE;
    }
}

void workers_disconnect(struct run *run)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_disconnect(&run->workers[i]);
    }
}

void worker_step(struct run *run, struct worker *worker, bool begin)
{
    uint32_t size = 0;
    if (!worker->connected) {
        world_connect(&run->world, &worker->client,
                      mill_random_below(&run->world.random, run->world.cores_count));
        worker->connected = true;
    }
    while (worker->doing != IDLE && world_answer(&worker->client, &size)) {
        answer_take(run, worker, size);
    }
    if (mem_ended(worker->client.peer)) {
        worker_disconnect(worker);
    } else if (worker->doing == IDLE && mill_random_below(&run->world.random, 3) == 0 &&
               (begin || worker->txn != 0 || worker->next == INITING)) {
        if (worker->last_txn != 0 && mill_random_below(&run->world.random, 2) == 0) {
            come_late(run, worker);
        } else {
            ask(run, worker);
        }
    }
}

void worker_die(struct run *run, struct worker *worker)
{
    /* Whether its last request arrived nobody knows. */
    if (worker->txn == 0 || run->txns[worker->txn].fate == COMMITTING) {
        return;
    }
    worker_disconnect(worker);
    over(run, worker, ABORTED);
    worker->next = INITING;
}
