/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever is killed when, a transaction is whole or nothing: each record of a committed one
 * is read once by who reads committed records, no record of another one, and the offset that was
 * committed with it is the group's. Method: a whole broker on virtual time (world.h); producers
 * with transactional ids, each with a group, do what clients do: they begin anew where they are
 * told to and repeat what may be repeated. Each transaction is of either version of KIP-890, and a
 * batch of one of version 2 may come once more after its end. Control and the data plane are killed
 * between any two turns. test_transactions [SEED]     one seed in place of the usual ones */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "dataplane/core/core_types.h"
#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/world.h"
#include "tests/unit/test.h"

enum {
    PARTITIONS = 5,
    WORKERS = 4,
    TXNS_MAX = 20000,
    ROUNDS = 12,
    TURNS_PER_ROUND = 700,
    SEEDS_DEFAULT = 10,
    SEEDS_FULL = 400,
    BODY_BYTES = 2048,
    BATCHES_MAX = 4, /* of a transaction, to each of its partitions */
    TIMEOUT_MS = 3000,
    FIND_VERSION = 1,
    INIT_VERSION = 1,
    ADD_VERSION = 1,
    END_VERSION = 1,
    OFFSETS_VERSION = 2,
    PRODUCE_VERSION = 7,
    FETCH_VERSION = 5,
    /* of transactions of version 2 */
    END_BUMPS_VERSION = 5,
    OFFSETS_ADDS_VERSION = 5,
    PRODUCE_ADDS_VERSION = 12,
};

static const char topic[] = "sim";

enum fate { OPEN, COMMITTING, COMMITTED, ABORTED };

/* What was done in a transaction. */
struct txn {
    uint8_t fate;
    uint8_t worker;
    uint8_t sent[PARTITIONS]; /* batches acknowledged */
    bool offset;              /* its number was committed as an offset */
};

enum doing {
    IDLE,
    INITING,
    ADDING,
    PRODUCING,
    ADDING_OFFSETS,
    COMMITTING_OFFSET,
    ENDING,
    COMING_LATE,
};

/* Whose transactions they are, and how far their batches are. */
struct identity {
    int64_t producer_id;
    int16_t epoch;
    int32_t sequences[PARTITIONS];
};

struct worker {
    struct world_client client;
    bool connected;
    char id[16];
    enum doing doing; /* asked */
    enum doing next;
    bool flexible;   /* the answer that is waited for */
    int16_t version; /* of that */
    struct identity me;
    bool bumps; /* the transaction is of version 2 */
    bool bumps_next;
    uint32_t txn;         /* number; 0 none */
    struct identity last; /* of the last transaction of version 2 */
    uint32_t last_txn;    /* its number, until a batch of it came late; 0 none */
    bool again;           /* that batch is one that was sent before */
    uint32_t to[2];
    uint32_t at;   /* of to */
    uint32_t left; /* batches for the present partition */
    bool commit;
    bool with_offset;
};

struct run {
    struct world world;
    struct worker workers[WORKERS];
    struct txn txns[TXNS_MAX];
    uint32_t txns_count;
    uint32_t commits;
    uint32_t aborts;
    uint32_t inits;
    uint32_t bumped; /* ends that gave out an epoch */
    uint32_t late;   /* batches of it that were refused */
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
    struct mill_txn_offset_commit_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
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
    int16_t version = worker->bumps ? OFFSETS_ADDS_VERSION : OFFSETS_VERSION;
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

static bool is_retriable(int16_t error)
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
    if (!is_retriable(error)) {
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
        MILL_ASSERT(is_retriable(message.error_code));
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
    MILL_ASSERT((worker->again && error == MILL_KERR_NONE) || is_retriable(error) ||
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

static void workers_disconnect(struct run *run)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_disconnect(&run->workers[i]);
    }
}

/* begin: may begin another transaction. */
static void worker_step(struct run *run, struct worker *worker, bool begin)
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

/* A client's process dies; what it had begun, another one of its id ends. */
static void worker_die(struct run *run, struct worker *worker)
{
    /* Whether its last request arrived nobody knows. */
    if (worker->txn == 0 || run->txns[worker->txn].fate == COMMITTING) {
        return;
    }
    worker_disconnect(worker);
    over(run, worker, ABORTED);
    worker->next = INITING;
}

/* --- readers -----------------------------------------------------------------------------------
 */

enum {
    ABORTED_SEEN_MAX = 4000,
};

struct reader {
    int64_t aborted[ABORTED_SEEN_MAX][2]; /* producer id, first offset */
    uint32_t aborted_count;
    uint8_t seen[TXNS_MAX];
};

static bool is_aborted(struct reader *reader, const struct mill_batch *batch, const uint8_t *bytes)
{
    struct mill_marker marker;
    bool control = (batch->attributes & MILL_BATCH_CONTROL) != 0;
    bool ends = control && mill_marker_read(bytes, mill_batch_size_bytes(batch), &marker) == 0 &&
                marker.type == MILL_MARKER_ABORT;
    for (uint32_t i = 0; i < reader->aborted_count; i++) {
        if (reader->aborted[i][0] != batch->producer_id ||
            reader->aborted[i][1] > batch->base_offset) {
            continue;
        }
        if (ends) {
            reader->aborted_count--;
            memmove(&reader->aborted[i], &reader->aborted[i + 1],
                    (reader->aborted_count - i) * sizeof(reader->aborted[0]));
        }
        return true;
    }
    return false;
}

/* Takes one answer of a Fetch version 10. ret: the next offset. */
static int64_t answer_read(struct run *run, struct reader *reader, const uint8_t *answer,
                           int64_t offset)
{
    uint32_t pos = 4 + 4 + 2 + 4 + 4 + 2 + (uint32_t)strlen(topic) + 4 + 4;
    MILL_ASSERT_EQ((int16_t)mill_load_be16(answer + pos), 0);
    pos += 2 + 8 + 8 + 8;
    reader->aborted_count = mill_load_be32(answer + pos);
    MILL_ASSERT_LT(reader->aborted_count, (uint32_t)ABORTED_SEEN_MAX);
    pos += 4;
    for (uint32_t i = 0; i < reader->aborted_count; i++, pos += 16) {
        reader->aborted[i][0] = (int64_t)mill_load_be64(answer + pos);
        reader->aborted[i][1] = (int64_t)mill_load_be64(answer + pos + 8);
    }
    uint32_t size = mill_load_be32(answer + pos);
    const uint8_t *bytes = answer + pos + 4;
    for (uint32_t at = 0; at < size;) {
        struct mill_batch batch;
        mill_batch_read(bytes + at, &batch);
        bool aborted = is_aborted(reader, &batch, bytes + at);
        if (!aborted && !(batch.attributes & MILL_BATCH_CONTROL) && batch.base_offset >= offset) {
            uint64_t number = mill_load_be64(bytes + at + MILL_BATCH_HEADER_BYTES + 6);
            MILL_ASSERT_LT(number, (uint64_t)TXNS_MAX);
            /* None of one that is not committed, or about to be. */
            MILL_ASSERT(run->txns[number].fate == COMMITTED ||
                        run->txns[number].fate == COMMITTING);
            reader->seen[number]++;
        }
        at += mill_batch_size_bytes(&batch);
        offset = mill_batch_last_offset(&batch) + 1;
    }
    return offset;
}

/* Reads committed records of a partition. all: every transaction has ended. */
static void read_partition(struct run *run, int32_t partition, bool all)
{
    static struct reader reader;
    struct world_client client;
    int64_t offset = 0;
    memset(&reader, 0, sizeof(reader));
    world_connect(&run->world, &client,
                  mill_random_below(&run->world.random, run->world.cores_count));
    for (;;) {
        const struct world_fetch_options options = {
            .bytes_min = 1,
            .bytes_max = 1 << 20,
            .partition_bytes_max = 1 << 20,
            .first_partition = partition,
            .offset = offset,
            .session_epoch = -1,
            .committed = true,
        };
        world_fetch_send(&client, topic, 1, &options);
        world_await(&client);
        int64_t next = answer_read(run, &reader, client.answer, offset);
        if (next == offset) {
            break;
        }
        offset = next;
    }
    world_disconnect(&client);
    for (uint32_t i = 1; i <= run->txns_count; i++) {
        const struct txn *txn = &run->txns[i];
        MILL_ASSERT_LE((uint32_t)reader.seen[i], (uint32_t)txn->sent[partition]);
        if (all && txn->fate == COMMITTED) {
            MILL_ASSERT_EQ(reader.seen[i], txn->sent[partition]);
        }
    }
}

static void get_index(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(int32_t *)ret_element = 0;
}

static void get_fetch_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_fetch_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->partition_indexes =
        (struct mill_warray){.count = 1, .get = get_index, .context = context};
}

static int64_t group_offset(struct run *run, const struct worker *worker)
{
    struct world_client client;
    uint8_t body[BODY_BYTES];
    world_connect(&run->world, &client, 0);
    for (uint32_t tries = 0;; tries++) {
        struct mill_writer to;
        struct mill_buf buf;
        struct mill_offset_fetch_request asked;
        struct mill_offset_fetch_response message;
        struct mill_offset_fetch_response_topics one;
        struct mill_offset_fetch_response_topics_partitions part;
        MILL_ASSERT_LT(tries, 1000u);
        mill_offset_fetch_request_defaults(&asked);
        asked.group_id = mill_wstr_of(worker->id);
        asked.topics = (struct mill_warray){.count = 1, .get = get_fetch_topic};
        mill_writer_init(&to, body, sizeof(body), NULL, 0);
        (void)mill_offset_fetch_request_encode(&to, FETCH_VERSION, &asked);
        world_send(&client, MILL_API_KEY_OFFSET_FETCH, FETCH_VERSION, body, to.size_bytes);
        struct mill_cursor at = mill_cursor_over(&buf, client.answer, world_await(&client));
        MILL_ASSERT_EQ(mill_cursor_skip(&at, 4), 0);
        MILL_ASSERT_EQ(mill_offset_fetch_response_decode(&at, FETCH_VERSION, &message), 0);
        if (message.error_code != MILL_KERR_NONE) {
            MILL_ASSERT(is_retriable(message.error_code));
            continue;
        }
        MILL_ASSERT(mill_offset_fetch_response_topics_next(&message.topics, FETCH_VERSION, &one));
        MILL_ASSERT(mill_offset_fetch_response_topics_partitions_next(&one.partitions,
                                                                      FETCH_VERSION, &part));
        world_disconnect(&client);
        return part.committed_offset;
    }
}

/* The group of each worker stands where its last committed transaction left it. */
static void check_offsets(struct run *run)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        int64_t want = -1;
        for (uint32_t i = 1; i <= run->txns_count; i++) {
            const struct txn *txn = &run->txns[i];
            want = txn->worker == w && txn->offset && txn->fate == COMMITTED ? i : want;
        }
        MILL_ASSERT_EQ(group_offset(run, &run->workers[w]), want);
    }
}

/* --- the run -----------------------------------------------------------------------------------
 */

static void turns(struct run *run, uint32_t count, bool begin)
{
    for (uint32_t i = 0; i < count; i++) {
        worker_step(run, &run->workers[mill_random_below(&run->world.random, WORKERS)], begin);
        world_turn(&run->world, MILL_NS_PER_MS);
    }
}

static void disturb(struct run *run)
{
    switch (mill_random_below(&run->world.random, 7)) {
    case 0: /* killed while nothing reaches the files */
        run->world.store_stopped = true;
        turns(run, 60, true);
        run->world.store_stopped = false;
        __attribute__((fallthrough));
    case 1:
        workers_disconnect(run);
        world_crash(&run->world);
        break;
    case 2:
        workers_disconnect(run);
        world_restart(&run->world);
        break;
    case 3:
    case 4:
        world_crash_control(&run->world);
        break;
    case 5:
        worker_die(run, &run->workers[mill_random_below(&run->world.random, WORKERS)]);
        break;
    default: /* a pause */
        for (uint32_t i = 0; i < 300; i++) {
            world_turn(&run->world, 5 * MILL_NS_PER_MS);
        }
        break;
    }
}

/* Makes the topic of a kind of key. */
static void find_coordinator(struct world *world, int8_t key_type)
{
    struct world_client client;
    int16_t error = -1;
    world_connect(world, &client, 0);
    for (uint32_t tries = 0; error != 0; tries++) {
        uint8_t body[64];
        struct mill_writer to;
        struct mill_find_coordinator_request message;
        MILL_ASSERT_LT(tries, 100u);
        mill_find_coordinator_request_defaults(&message);
        message.key = mill_wstr_of("any");
        message.key_type = key_type;
        mill_writer_init(&to, body, sizeof(body), NULL, 0);
        (void)mill_find_coordinator_request_encode(&to, FIND_VERSION, &message);
        world_send(&client, MILL_API_KEY_FIND_COORDINATOR, FIND_VERSION, body, to.size_bytes);
        world_await(&client);
        error = (int16_t)mill_load_be16(client.answer + 8);
    }
    world_disconnect(&client);
}

static void run_seed(uint64_t seed, uint32_t cores)
{
    static struct run run;
    memset(&run, 0, sizeof(run));
    world_open(&run.world, cores, seed);
    world_topic(&run.world, topic, PARTITIONS, "segment.bytes", "1048576");
    find_coordinator(&run.world, 0);
    find_coordinator(&run.world, 1);
    for (uint32_t i = 0; i < WORKERS; i++) {
        snprintf(run.workers[i].id, sizeof(run.workers[i].id), "worker-%u", i);
        run.workers[i].me.producer_id = -1;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        turns(&run, TURNS_PER_ROUND, true);
        disturb(&run);
        if (round % 3 == 2) {
            workers_disconnect(&run);
            world_settle(&run.world, 200);
            read_partition(&run, (int32_t)mill_random_below(&run.world.random, PARTITIONS), false);
        }
    }
    for (uint32_t i = 0, open = 1; open > 0; i++) {
        MILL_ASSERT_LT(i, 1000u);
        turns(&run, 100, false);
        open = 0;
        for (uint32_t w = 0; w < WORKERS; w++) {
            open += run.workers[w].txn != 0 || run.workers[w].next == INITING;
        }
    }
    /* What a dead worker left ends by its time-out, at the latest. */
    workers_disconnect(&run);
    for (uint32_t i = 0; i < 4000; i++) {
        world_turn(&run.world, 5 * MILL_NS_PER_MS);
    }
    for (int32_t p = 0; p < PARTITIONS; p++) {
        read_partition(&run, p, true);
    }
    check_offsets(&run);
    world_crash_control(&run.world); /* what is read in the log is what was in memory */
    check_offsets(&run);
    world_settle(&run.world, 10000);
    for (uint32_t i = 0; i < cores; i++) {
        MILL_ASSERT_EQ(run.world.cores[i].loans.loaned_bytes, 0ull);
        MILL_ASSERT_EQ(mill_log_stats(run.world.cores[i].core->log)->transactions, 0ull);
    }
    MILL_ASSERT_LT(10u, run.commits);
    MILL_ASSERT_LT(10u, run.bumped);
    MILL_ASSERT_LT(5u, run.late);
    world_close(&run.world);
    printf("seed %llu cores %u: %u committed, %u aborted, %u epochs asked for, %u with an end, "
           "%u late batches refused\n",
           (unsigned long long)seed, cores, run.commits, run.aborts, run.inits, run.bumped,
           run.late);
}

static void test_transactions_are_whole_or_nothing(void **state)
{
    MILL_UNUSED(state);
    const char *full = getenv("MILLRACE_FULL");
    uint64_t count = full && strcmp(full, "1") == 0 ? SEEDS_FULL : SEEDS_DEFAULT;
    for (uint64_t seed = 1; seed <= count; seed++) {
        printf("seed %llu\n", (unsigned long long)seed);
        run_seed(seed, 1 + (uint32_t)(seed % 3));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transactions_are_whole_or_nothing)};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) {
        uint64_t seed = strtoull(argv[1], NULL, 0);
        run_seed(seed, 1 + (uint32_t)(seed % 3));
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
