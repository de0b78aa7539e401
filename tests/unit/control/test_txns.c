/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whoever is killed when and whatever the log says, a transaction whose end is in the log is
 * ended in every partition of it before that is called complete, and a marker never meets another
 * transaction than its own. Method: all of a coordinator's ids over a journal of the test's own,
 * whose appends and markers are taken, refused, or end unknown (and are there, or not), in one
 * order drawn from a seed; the coordinator is closed and opened anew between any two steps. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "control/txn/records.h"
#include "control/txn/txns.h"
#include "protocol/errors.h"

enum {
    SHARDS = 4,
    IDS = 5,
    PARTITIONS = 8, /* of the data's topic */
    LOG_MAX = 20000,
    TODO_MAX = 256,
    SEEDS = 40,
    STEPS = 6000,
    CALM_STEPS = 1000,
    TIMEOUT_MS = 20000,
};

/* --- the journal -------------------------------------------------------------------------------
 */

struct logged {
    uint8_t *bytes; /* key, then value */
    uint32_t key_bytes;
    int32_t value_bytes;
};

enum kind { APPEND, READ, MARK, GRANT };

struct todo {
    enum kind kind;
    int32_t partition;
    int64_t offset;
    struct logged record;
    struct mill_journal_marker marker;
    mill_journal_done done;
    mill_journal_read_done read_done;
    void *context;
};

/* What the log says of an id. */
struct told {
    struct mill_txn_values last;
    uint32_t set;    /* partitions of the transaction, a bit each */
    uint32_t marked; /* since it was prepared */
    uint32_t granted;
};

struct mill_journal {
    struct mill_random random;
    bool calm; /* nothing fails any more */
    struct logged *logs[SHARDS];
    uint32_t counts[SHARDS];
    uint32_t synced[SHARDS]; /* of these, what can be read */
    struct todo todo[TODO_MAX];
    uint32_t todo_count;
    struct told told[IDS];
    uint32_t completes;
    uint32_t resent;
    uint32_t grants;
};

/* What a read gives, in place of batches. */
struct given {
    const struct mill_journal *journal;
    int32_t partition;
    uint32_t count;
};

static struct todo *todo_add(struct mill_journal *journal, enum kind kind, int32_t partition)
{
    struct todo *todo = &journal->todo[journal->todo_count++];
    assert_true(journal->todo_count <= TODO_MAX);
    *todo = (struct todo){.kind = kind, .partition = partition};
    return todo;
}

int mill_journal_append_txn(struct mill_journal *journal, const struct mill_map_topic *topic,
                            int32_t partition, const struct mill_journal_producer *producer,
                            const struct mill_journal_record *records, uint32_t records_count,
                            int64_t now_ms, mill_journal_done done, void *context)
{
    struct todo *todo = todo_add(journal, APPEND, partition);
    size_t value_bytes = (size_t)MILL_MAX(records->value_bytes, 0);
    MILL_UNUSED(now_ms);
    assert_int_equal(producer->id, -1);
    assert_string_equal(topic->name, MILL_TXN_TOPIC);
    assert_int_equal(records_count, 1);
    todo->record = (struct logged){.bytes = malloc(records->key_bytes + value_bytes + 1),
                                   .key_bytes = records->key_bytes,
                                   .value_bytes = records->value_bytes};
    assert_non_null(todo->record.bytes);
    memcpy(todo->record.bytes, records->key, records->key_bytes);
    if (value_bytes > 0) {
        memcpy(todo->record.bytes + records->key_bytes, records->value, value_bytes);
    }
    todo->done = done;
    todo->context = context;
    return 0;
}

int mill_journal_read(struct mill_journal *journal, const struct mill_map_topic *topic,
                      int32_t partition, int64_t offset, mill_journal_read_done done, void *context)
{
    struct todo *todo = todo_add(journal, READ, partition);
    MILL_UNUSED(topic);
    todo->offset = offset;
    todo->read_done = done;
    todo->context = context;
    return 0;
}

int mill_journal_mark(struct mill_journal *journal, const struct mill_map_topic *topic,
                      int32_t partition, const struct mill_journal_marker *marker,
                      mill_journal_done done, void *context)
{
    struct todo *todo = todo_add(journal, marker->grant ? GRANT : MARK, partition);
    assert_string_equal(topic->name, "data");
    todo->marker = *marker;
    todo->done = done;
    todo->context = context;
    return 0;
}

static void record_over(const struct logged *from, struct mill_buf bufs[2], struct mill_record *ret)
{
    *ret = (struct mill_record){.key_length = (int32_t)from->key_bytes,
                                .value_length = from->value_bytes};
    ret->key = mill_cursor_over(&bufs[0], from->bytes, from->key_bytes);
    ret->value = mill_cursor_over(&bufs[1], from->bytes + from->key_bytes,
                                  (uint32_t)MILL_MAX(from->value_bytes, 0));
}

int64_t mill_journal_walk(const uint8_t *records, uint32_t records_bytes, int64_t from,
                          const struct mill_journal_visitor *visitor, uint32_t *ret_skipped)
{
    const struct given *given = (const void *)records;
    assert_int_equal(records_bytes, sizeof(*given));
    *ret_skipped = 0;
    for (uint32_t i = 0; i < given->count; i++) {
        struct mill_buf bufs[2];
        struct mill_record record;
        record_over(&given->journal->logs[given->partition][from + i], bufs, &record);
        const struct mill_journal_at at = {.offset = from + i, .producer_id = -1};
        visitor->record(visitor->context, &at, &record);
    }
    return from + given->count;
}

/* --- what must be true -------------------------------------------------------------------------
 */

static uint32_t bits_of(const struct mill_txn_record *record)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < record->partitions_count; i++) {
        bits |= 1u << record->partitions[i].index;
    }
    return bits;
}

static bool is_prepared(enum mill_txn_state state)
{
    return state == MILL_TXN_PREPARE_COMMIT || state == MILL_TXN_PREPARE_ABORT;
}

static void log_take(struct mill_journal *journal, int32_t partition, struct logged *record)
{
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    struct mill_buf bufs[2];
    struct mill_record raw;
    struct mill_txn_record read;
    record_over(record, bufs, &raw);
    assert_int_equal(mill_txn_record_read(&raw, &pool, &read), 0);
    struct told *told = &journal->told[read.id[2] - '0'];
    assert_int_equal(partition, mill_shard_of(read.id, SHARDS));
    if (is_prepared(told->last.state)) {
        assert_int_equal(read.values.state, told->last.state + 2);
        assert_int_equal(told->marked, told->set); /* complete: everywhere */
        assert_int_equal(told->granted, 0);
        journal->completes++;
    }
    told->last = read.values;
    if (is_prepared(read.values.state)) {
        assert_int_equal(bits_of(&read), told->set);
        told->marked = 0;
    }
    told->set = bits_of(&read);
    mill_pool_clear(&pool);
    assert_true(journal->counts[partition] < LOG_MAX);
    journal->logs[partition][journal->counts[partition]++] = *record;
    record->bytes = NULL;
}

static void marker_take(struct mill_journal *journal, const struct todo *todo)
{
    for (uint32_t i = 0; i < IDS; i++) {
        struct told *told = &journal->told[i];
        if (told->last.producer_id != todo->marker.producer_id ||
            told->last.state == MILL_TXN_EMPTY) {
            continue;
        }
        assert_true(is_prepared(told->last.state));
        assert_int_equal(todo->marker.commit, told->last.state == MILL_TXN_PREPARE_COMMIT);
        assert_int_equal(todo->marker.producer_epoch, told->last.producer_epoch);
        assert_int_equal(todo->marker.version, told->last.version);
        assert_true(told->set & (1u << todo->partition));
        journal->resent += (told->marked >> todo->partition) & 1;
        told->marked |= 1u << todo->partition;
        told->granted &= ~(1u << todo->partition);
        return;
    }
    fail_msg("a marker of nobody's");
}

/* Whom a core lets in may write: only while the log says that the partition is part of an ongoing
 * transaction, or the marker that takes it back is still to come. */
static void grant_take(struct mill_journal *journal, const struct todo *todo)
{
    for (uint32_t i = 0; i < IDS; i++) {
        struct told *told = &journal->told[i];
        if (told->last.producer_id != todo->marker.producer_id ||
            told->last.state == MILL_TXN_EMPTY) {
            continue;
        }
        uint32_t bit = 1u << todo->partition;
        assert_true(told->set & bit);
        assert_true(told->last.state == MILL_TXN_ONGOING || is_prepared(told->last.state));
        assert_true(told->last.state == MILL_TXN_ONGOING || !(told->marked & bit));
        told->granted |= bit;
        journal->grants++;
        return;
    }
    fail_msg("a grant of nobody's");
}

/* Ends what was asked first. lost: it was on its way when its stream was. */
static void journal_one(struct mill_journal *journal, bool lost)
{
    struct todo todo = journal->todo[0];
    struct mill_journal_result result = {.outcome = MILL_JOURNAL_DONE};
    uint32_t draw = journal->calm ? 0 : mill_random_below(&journal->random, 20);
    bool there = draw < 14;
    if (draw >= 13 || lost) {
        result.outcome = MILL_JOURNAL_UNKNOWN;
    }
    if (draw >= 16 && !lost) {
        result = (struct mill_journal_result){.outcome = MILL_JOURNAL_REFUSED,
                                              .error = MILL_KERR_NOT_LEADER_OR_FOLLOWER};
    }
    memmove(journal->todo, journal->todo + 1, --journal->todo_count * sizeof(todo));
    bool whole = result.outcome == MILL_JOURNAL_DONE;
    for (uint32_t i = 0; i < SHARDS; i++) {
        if (journal->calm || mill_random_below(&journal->random, 16) == 0) {
            journal->synced[i] = journal->counts[i];
        }
    }
    if (todo.kind == READ && todo.offset == MILL_JOURNAL_END) {
        const struct mill_journal_read read = {.outcome = there && !lost ? MILL_JOURNAL_DONE
                                                                         : MILL_JOURNAL_REFUSED,
                                               .high_watermark = -1,
                                               .log_end = journal->counts[todo.partition]};
        todo.read_done(todo.context, &read);
        return;
    }
    if (todo.kind == READ) {
        uint32_t end = journal->synced[todo.partition];
        struct given given = {journal, todo.partition, 0};
        struct mill_journal_read read = {.outcome = MILL_JOURNAL_REFUSED};
        if (there && !lost) {
            given.count = MILL_MIN(end - (uint32_t)todo.offset, 5u); /* a few at a time */
            read = (struct mill_journal_read){.outcome = MILL_JOURNAL_DONE,
                                              .records = (const void *)&given,
                                              .records_bytes = sizeof(given),
                                              .high_watermark = end};
        }
        todo.read_done(todo.context, &read);
        return;
    }
    if (there && todo.kind == APPEND) {
        log_take(journal, todo.partition, &todo.record);
        if (whole) { /* an answer waits for the sync, of what lies before, too */
            journal->synced[todo.partition] = journal->counts[todo.partition];
        }
    } else if (there && todo.kind == MARK) {
        marker_take(journal, &todo);
    } else if (there) {
        grant_take(journal, &todo);
    }
    result.next_offset = result.outcome == MILL_JOURNAL_DONE && todo.kind == APPEND
                             ? journal->counts[todo.partition]
                             : 0;
    free(todo.record.bytes);
    todo.done(todo.context, &result);
}

/* --- a coordinator and its clients --------------------------------------------------------------
 */

struct client {
    struct rig *rig;
    char id[8];
    bool waits;
    bool inits;
    struct mill_txn_holder holder;
    uint32_t commits; /* told */
    int32_t adds;     /* partition of the add that is waited for; -1 none */
    bool ends;
    enum mill_txn_version version; /* of its present transaction */
};

struct rig {
    struct mill_journal journal;
    struct mill_topics topics;
    struct mill_txns txns;
    struct mill_now now;
    int64_t ids;
    struct client clients[IDS];
    uint32_t loads;
};

static int producer_id(void *context, int64_t *ret_id)
{
    *ret_id = 1000 + ((struct rig *)context)->ids++;
    return 0;
}

static void coordinator_open(struct rig *rig)
{
    const struct mill_txns_options options = {
        .journal = &rig->journal,
        .topics = &rig->topics,
        .producer_id = producer_id,
        .context = rig,
        .timeout_max_ms = 900000,
        .expiration_ms = 1000000000,
        .bytes_max = 64 << 20,
        .timeouts_interval_ms = 1000,
        .expiry_interval_ms = 3600000,
        .key = {1, 2},
    };
    assert_int_equal(mill_txns_open(&rig->txns, &options), 0);
}

/* Killed: what was on its way may be in the log, nobody is told. */
static void coordinator_kill(struct rig *rig)
{
    while (rig->journal.todo_count > 0) {
        journal_one(&rig->journal, true);
    }
    rig->loads += (uint32_t)rig->txns.shards.loads;
    mill_txns_close(&rig->txns);
    assert_int_equal(rig->txns.env.bytes, 0);
    for (uint32_t i = 0; i < IDS; i++) {
        rig->clients[i].waits = false;
    }
}

static void topic_add(struct rig *rig, const char *name, uint32_t partitions_count)
{
    struct mill_topic *topic = mill_topic_new(name, (uint32_t)strlen(name), partitions_count);
    assert_non_null(topic);
    topic->record->id.b[0] = (uint8_t)name[0];
    mill_topics_link(&rig->topics, topic);
    for (uint32_t i = 0; i < partitions_count; i++) {
        assert_true(mill_topic_note_state(topic, (int32_t)i, MILL_PARTITION_SERVING));
    }
}

static void rig_open(struct rig *rig, uint64_t seed)
{
    *rig = (struct rig){.journal = {.random = {.state = seed}},
                        .now = {.mono_ns = MILL_NS_PER_S, .wall_ms = 1}};
    assert_int_equal(mill_topics_init(&rig->topics, 16), 0);
    topic_add(rig, MILL_TXN_TOPIC, SHARDS);
    topic_add(rig, "data", PARTITIONS);
    for (uint32_t i = 0; i < SHARDS; i++) {
        rig->journal.logs[i] = calloc(LOG_MAX, sizeof(struct logged));
        assert_non_null(rig->journal.logs[i]);
    }
    for (uint32_t i = 0; i < IDS; i++) {
        rig->clients[i] = (struct client){.rig = rig, .holder = {-1, -1}};
        snprintf(rig->clients[i].id, sizeof(rig->clients[i].id), "id%u", i);
        rig->journal.told[i].last.producer_id = -1;
    }
    coordinator_open(rig);
}

static void rig_close(struct rig *rig)
{
    coordinator_kill(rig);
    for (uint32_t i = 0; i < SHARDS; i++) {
        for (uint32_t k = 0; k < rig->journal.counts[i]; k++) {
            free(rig->journal.logs[i][k].bytes);
        }
        free(rig->journal.logs[i]);
    }
    mill_topics_clear(&rig->topics);
}

static void heard(void *context, int16_t error, const struct mill_txn_values *now)
{
    struct client *client = context;
    assert_true(client->waits);
    client->waits = false;
    if (client->inits && error == MILL_KERR_NONE) {
        client->holder = (struct mill_txn_holder){now->producer_id, now->producer_epoch};
    }
    if (client->adds >= 0 && error == MILL_KERR_NONE) {
        /* What is told to be part of the transaction can be written to. */
        const struct told *told = &client->rig->journal.told[client->id[2] - '0'];
        assert_true(told->last.state != MILL_TXN_ONGOING || (told->granted & (1u << client->adds)));
    }
    if (client->ends && error == MILL_KERR_NONE) {
        client->holder = mill_txn_next_holder(now);
    }
    client->commits += client->ends && now && now->state == MILL_TXN_PREPARE_COMMIT;
    if (error == MILL_KERR_PRODUCER_FENCED) {
        client->holder = (struct mill_txn_holder){-1, -1};
    }
}

static void client_asks(struct rig *rig, struct client *client)
{
    uint32_t kind = mill_random_below(&rig->journal.random, 10);
    const struct mill_txn_partition partition = {
        "data", (int32_t)mill_random_below(&rig->journal.random, PARTITIONS)};
    client->waits = true;
    client->inits = client->holder.producer_id < 0 || kind == 0;
    client->adds = !client->inits && kind < 7 ? partition.index : -1;
    client->ends = !client->inits && kind >= 7;
    if (client->inits) {
        mill_txns_init(&rig->txns, client->id, TIMEOUT_MS, &client->holder, heard, client);
    } else if (kind < 7) {
        const struct mill_txn *txn = mill_txns_find(&rig->txns, client->id);
        if (!txn || txn->now.state != MILL_TXN_ONGOING) {
            client->version =
                mill_random_below(&rig->journal.random, 2) == 0 ? MILL_TXN_PLAIN : MILL_TXN_BUMPED;
        }
        mill_txns_add(&rig->txns, client->id, &client->holder, client->version, &partition, 1,
                      heard, client);
    } else {
        mill_txns_end(&rig->txns, client->id, &client->holder, client->version, kind > 7, heard,
                      client);
    }
}

static void rig_step(struct rig *rig)
{
    struct client *client = &rig->clients[mill_random_below(&rig->journal.random, IDS)];
    uint64_t passed_ms = mill_random_below(&rig->journal.random, 50);
    rig->now.mono_ns += passed_ms * MILL_NS_PER_MS;
    rig->now.wall_ms += (int64_t)passed_ms;
    mill_txns_step(&rig->txns, &rig->now);
    if (rig->journal.todo_count > 0 && mill_random_below(&rig->journal.random, 4) > 0) {
        journal_one(&rig->journal, false);
    }
    if (!rig->journal.calm && !client->waits && mill_random_below(&rig->journal.random, 3) == 0) {
        client_asks(rig, client);
    }
}

static void storm(uint64_t seed, uint32_t *ret_commits, uint32_t *ret_resent)
{
    static struct rig rig;
    rig_open(&rig, seed);
    for (uint32_t i = 0; i < STEPS; i++) {
        if (mill_random_below(&rig.journal.random, 150) == 0) {
            coordinator_kill(&rig);
            coordinator_open(&rig);
        }
        rig_step(&rig);
    }
    coordinator_kill(&rig);
    coordinator_open(&rig);
    rig.journal.calm = true;
    for (uint32_t i = 0; i < CALM_STEPS; i++) {
        rig_step(&rig);
    }
    assert_int_equal(rig.txns.shards.records_bad, 0);
    for (uint32_t i = 0; i < IDS; i++) {
        const struct mill_txn *txn = mill_txns_find(&rig.txns, rig.clients[i].id);
        const struct told *told = &rig.journal.told[i];
        assert_false(is_prepared(told->last.state)); /* none hangs */
        assert_int_equal(txn ? txn->now.state : MILL_TXN_EMPTY, told->last.state);
        *ret_commits += rig.clients[i].commits;
    }
    *ret_resent += rig.journal.resent;
    rig_close(&rig);
}

static void test_ended_means_ended_everywhere(void **state)
{
    MILL_UNUSED(state);
    uint32_t commits = 0;
    uint32_t resent = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        storm(seed, &commits, &resent);
    }
    print_message("commits=%u resent=%u\n", commits, resent);
    assert_true(commits > SEEDS && resent > SEEDS); /* it has met what it is about */
}

/* --- an add before the end of the transaction before --------------------------------------------
 */

struct answer {
    int heard;
    int16_t error;
    struct mill_txn_holder next;
};

static void heard_answer(void *context, int16_t error, const struct mill_txn_values *now)
{
    struct answer *answer = context;
    answer->heard++;
    answer->error = error;
    if (error == MILL_KERR_NONE) {
        answer->next = mill_txn_next_holder(now);
    }
}

static void step_ms(struct rig *rig, uint64_t passed_ms)
{
    rig->now.mono_ns += passed_ms * MILL_NS_PER_MS;
    rig->now.wall_ms += (int64_t)passed_ms;
    mill_txns_step(&rig->txns, &rig->now);
}

/* Until there is an answer. */
static void await(struct rig *rig, const struct answer *answer, int heard)
{
    for (uint32_t i = 0; answer->heard < heard; i++) {
        assert_true(i < 1000);
        step_ms(rig, 1);
        if (rig->journal.todo_count > 0) {
            journal_one(&rig->journal, false);
        }
    }
    assert_int_equal(answer->heard, heard);
}

/* Up to an add with the epoch that the end gave out, whose markers are not written. */
static void add_too_early(struct rig *rig, struct answer *answer)
{
    const struct mill_txn_partition partition = {"data", 3};
    const struct mill_txn_holder none = {-1, -1};
    rig_open(rig, 1);
    rig->journal.calm = true;
    for (uint32_t i = 0; i < 3; i++) { /* where the logs end, and what they have */
        step_ms(rig, 1);
        while (rig->journal.todo_count > 0) {
            journal_one(&rig->journal, false);
        }
    }
    *answer = (struct answer){0};
    mill_txns_init(&rig->txns, "id0", TIMEOUT_MS, &none, heard_answer, answer);
    await(rig, answer, 1);
    mill_txns_add(&rig->txns, "id0", &answer->next, MILL_TXN_BUMPED, &partition, 1, heard_answer,
                  answer);
    await(rig, answer, 2);
    mill_txns_end(&rig->txns, "id0", &answer->next, MILL_TXN_BUMPED, true, heard_answer, answer);
    await(rig, answer, 3);
    assert_int_equal(answer->next.producer_epoch, 1);
    mill_txns_add(&rig->txns, "id0", &answer->next, MILL_TXN_BUMPED, &partition, 1, heard_answer,
                  answer);
    assert_int_equal(answer->heard, 3);
}

static void test_add_waits_for_the_end_before(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct answer answer;
    add_too_early(&rig, &answer);
    await(&rig, &answer, 4);
    assert_int_equal(answer.error, MILL_KERR_NONE);
    assert_int_equal(mill_txns_find(&rig.txns, "id0")->now.state, MILL_TXN_ONGOING);
    assert_int_equal(answer.next.producer_epoch, 1);
    assert_int_equal(rig.txns.waits_count, 0);
    rig_close(&rig);
    /* Not for ever; one of version 1 not at all. */
    add_too_early(&rig, &answer);
    step_ms(&rig, 999);
    assert_int_equal(answer.heard, 3);
    step_ms(&rig, 2);
    assert_int_equal(answer.heard, 4);
    assert_int_equal(answer.error, MILL_KERR_CONCURRENT_TRANSACTIONS);
    const struct mill_txn_partition partition = {"data", 3};
    mill_txns_add(&rig.txns, "id0", &answer.next, MILL_TXN_PLAIN, &partition, 1, heard_answer,
                  &answer);
    assert_int_equal(answer.heard, 5);
    assert_int_equal(answer.error, MILL_KERR_CONCURRENT_TRANSACTIONS);
    rig_close(&rig);
    /* Nobody is forgotten when control ends. */
    add_too_early(&rig, &answer);
    rig_close(&rig);
    assert_int_equal(answer.heard, 4);
    assert_int_equal(answer.error, MILL_KERR_NOT_COORDINATOR);
}

/* The next thing that was asked of the journal, some time later. */
static void journal_late(struct rig *rig, uint64_t passed_ms)
{
    step_ms(rig, passed_ms);
    assert_true(rig->journal.todo_count > 0);
    journal_one(&rig->journal, false);
    step_ms(rig, 0);
}

/* Many that wait for one id, whose log is slow: each until its own time, however often another one
 * of them was asked again meanwhile. */
static void test_adds_wait_until_their_own_time(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct answer first;
    struct answer others[4] = {0};
    add_too_early(&rig, &first);
    for (int32_t i = 0; i < 4; i++) {
        const struct mill_txn_partition partition = {"data", i % 2};
        mill_txns_add(&rig.txns, "id0", &first.next, MILL_TXN_BUMPED, &partition, 1, heard_answer,
                      &others[i]);
    }
    assert_int_equal(rig.txns.waits_count, 5);
    journal_late(&rig, 100); /* the marker */
    journal_late(&rig, 100); /* that all have it */
    assert_int_equal(rig.txns.waits_count, 4);
    journal_late(&rig, 300); /* the first add; the next one is asked */
    assert_int_equal(rig.txns.waits_count, 3);
    step_ms(&rig, 499);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(others[i].heard, 0);
    }
    step_ms(&rig, 2);
    for (int32_t i = 1; i < 4; i++) {
        assert_int_equal(others[i].heard, 1);
        assert_int_equal(others[i].error, MILL_KERR_CONCURRENT_TRANSACTIONS);
    }
    assert_int_equal(others[0].heard, 0);
    assert_int_equal(rig.txns.waits_count, 0);
    await(&rig, &others[0], 1);
    assert_int_equal(others[0].error, MILL_KERR_NONE);
    rig_close(&rig);
    /* Those that need no record follow at once. */
    add_too_early(&rig, &first);
    for (int32_t i = 0; i < 4; i++) {
        const struct mill_txn_partition partition = {"data", 3};
        mill_txns_add(&rig.txns, "id0", &first.next, MILL_TXN_BUMPED, &partition, 1, heard_answer,
                      &others[i]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        journal_late(&rig, 1);
    }
    assert_int_equal(rig.txns.waits_count, 0);
    while (rig.journal.todo_count > 0) {
        journal_one(&rig.journal, false);
    }
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(others[i].error, MILL_KERR_NONE);
    }
    assert_int_equal(first.heard, 4);
    rig_close(&rig);
}

static void test_waits_are_within_the_memory(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    struct answer first;
    struct answer other = {0};
    const struct mill_txn_partition partition = {"data", 0};
    add_too_early(&rig, &first);
    rig.txns.env.bytes_max = rig.txns.env.bytes + 8;
    mill_txns_add(&rig.txns, "id0", &first.next, MILL_TXN_BUMPED, &partition, 1, heard_answer,
                  &other);
    assert_int_equal(other.heard, 1);
    assert_int_equal(other.error, MILL_KERR_CONCURRENT_TRANSACTIONS);
    assert_int_equal(rig.txns.waits_count, 1);
    assert_int_equal(rig.txns.env.full, 1);
    rig_close(&rig);
}

static void heard_error(void *context, int16_t error, const struct mill_txn_values *now)
{
    assert_null(now);
    *(int16_t *)context = error;
}

static void test_ids_that_were_never_stored_are_forgotten(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    const struct mill_txn_holder none = {-1, -1};
    int16_t error = 0;
    rig_open(&rig, 1);
    rig.journal.calm = true;
    mill_txns_init(&rig.txns, "id0", TIMEOUT_MS, &none, heard_error, &error);
    assert_int_equal(error, MILL_KERR_COORDINATOR_NOT_AVAILABLE); /* nothing is known yet */
    mill_txns_step(&rig.txns, &rig.now);
    mill_txns_init(&rig.txns, "id0", TIMEOUT_MS, &none, heard_error, &error);
    assert_int_equal(error, MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS);
    for (uint32_t i = 0; i < 2; i++) { /* where the logs end, and what they have */
        while (rig.journal.todo_count > 0) {
            journal_one(&rig.journal, false);
        }
        mill_txns_step(&rig.txns, &rig.now);
    }
    assert_int_equal(rig.journal.todo_count, 0);
    mill_txns_init(&rig.txns, "id0", 0, &none, heard_error, &error);
    assert_int_equal(error, MILL_KERR_INVALID_TRANSACTION_TIMEOUT);
    assert_int_equal(rig.txns.count, 0);
    mill_txns_init(&rig.txns, "id0", TIMEOUT_MS, &none, heard_error, &error);
    assert_int_equal(rig.txns.count, 1);
    rig.journal.calm = false;
    journal_one(&rig.journal, true); /* unknown */
    assert_int_equal(error, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(rig.txns.count, 0);
    assert_int_equal(rig.txns.env.bytes, 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_that_were_never_stored_are_forgotten),
        cmocka_unit_test(test_add_waits_for_the_end_before),
        cmocka_unit_test(test_adds_wait_until_their_own_time),
        cmocka_unit_test(test_waits_are_within_the_memory),
        cmocka_unit_test(test_ended_means_ended_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
