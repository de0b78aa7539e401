/* SPDX-License-Identifier: Apache-2.0 */
/* Markers of transactions that end; see marks.h. */
#include "control/txn/marks.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

enum {
    RETRY_NS = 100000000,
};

enum mark_state {
    MARK_TO_SEND,
    MARK_ON_ITS_WAY,
    MARK_DONE,
};

struct mill_txn_marks {
    struct mill_txn_marks *next; /* of all */
    struct mill_txn_marks *prev;
    struct mill_txns *txns;
    struct mill_txn *txn; /* NULL: dropped, kept for those on their way */
    uint32_t left;        /* partitions without a marker */
    uint32_t flying;
    uint64_t retry_ns; /* not before */
    uint8_t states[];  /* enum mark_state, as the transaction's partitions */
};

/* One marker on its way. */
struct flight {
    struct mill_txn_marks *marks;
    uint32_t index;
};

void mill_txn_marks_begin(struct mill_txns *txns, struct mill_txn *txn)
{
    uint32_t count = txn->now.partitions ? txn->now.partitions->count : 0;
    struct mill_txn_marks *marks = calloc(1, sizeof(*marks) + count);
    if (!marks) {
        return;
    }
    *marks = (struct mill_txn_marks){.next = txns->marks, .txns = txns, .txn = txn, .left = count};
    if (txns->marks) {
        txns->marks->prev = marks;
    }
    txns->marks = marks;
    txn->marks = marks;
}

void mill_txn_marks_drop(struct mill_txns *txns, struct mill_txn *txn)
{
    struct mill_txn_marks *marks = txn->marks;
    if (!marks) {
        return;
    }
    if (marks->prev) {
        marks->prev->next = marks->next;
    } else {
        txns->marks = marks->next;
    }
    if (marks->next) {
        marks->next->prev = marks->prev;
    }
    txn->marks = NULL;
    marks->txn = NULL;
    if (marks->flying == 0) {
        free(marks);
    }
}

static void arrived(void *context, const struct mill_journal_result *result)
{
    struct flight *flight = context;
    struct mill_txn_marks *marks = flight->marks;
    uint32_t index = flight->index;
    free(flight);
    marks->flying--;
    if (!marks->txn) {
        if (marks->flying == 0) {
            free(marks);
        }
        return;
    }
    /* A partition that knows a newer epoch of this producer has seen this transaction's end. */
    bool done =
        result->outcome == MILL_JOURNAL_DONE || (result->outcome == MILL_JOURNAL_REFUSED &&
                                                 result->error == MILL_KERR_INVALID_PRODUCER_EPOCH);
#ifdef MILL_MUTANT_TXN_MARK_LOST
    done = true;
#endif
    marks->states[index] = done ? MARK_DONE : MARK_TO_SEND;
    marks->left -= done;
    if (done && marks->txns->ended) {
        const struct mill_txn_partition *where = &marks->txn->now.partitions->items[index];
        marks->txns->ended(marks->txns->ended_context, where->topic, where->index,
                           marks->txn->now.producer_id,
                           marks->txn->now.state == MILL_TXN_PREPARE_COMMIT);
    }
    if (!done) {
        marks->txns->marks_again++;
        marks->retry_ns = marks->txns->now_ns + RETRY_NS;
    }
}

/* ret: false when no more can be sent now. */
static bool send_one(struct mill_txn_marks *marks, const struct mill_topic *state_topic,
                     uint32_t index)
{
    struct mill_txns *txns = marks->txns;
    const struct mill_txn *txn = marks->txn;
    const struct mill_txn_partition *to = &txn->now.partitions->items[index];
    const struct mill_topic *topic =
        mill_topics_by_name(txns->shards.topics, to->topic, (uint32_t)strlen(to->topic));
    if (!topic || (uint32_t)to->index >= topic->record->partitions_count) {
        marks->states[index] = MARK_DONE; /* deleted: nobody reads it */
        marks->left--;
        return true;
    }
    struct flight *flight = malloc(sizeof(*flight));
    if (!flight) {
        return false;
    }
    *flight = (struct flight){marks, index};
    const struct mill_journal_marker marker = {
        .producer_id = txn->now.producer_id,
        .producer_epoch = txn->now.producer_epoch,
        .commit = txn->now.state == MILL_TXN_PREPARE_COMMIT,
        .version = (int8_t)txn->now.version,
        .coordinator_epoch = state_topic->record->partitions[txn->shard].leader_epoch};
    if (mill_journal_mark(txns->shards.journal, topic->record, to->index, &marker, arrived,
                          flight) < 0) {
        free(flight);
        return false;
    }
    marks->states[index] = MARK_ON_ITS_WAY;
    marks->flying++;
    return true;
}

static void send_all(struct mill_txn_marks *marks)
{
    const struct mill_topic *state_topic = mill_shards_topic(&marks->txns->shards);
    const struct mill_txn_set *set = marks->txn->now.partitions;
    for (uint32_t i = 0; set && i < set->count; i++) {
        if (marks->states[i] == MARK_TO_SEND &&
            (!state_topic || !send_one(marks, state_topic, i))) {
            marks->retry_ns = marks->txns->now_ns + RETRY_NS;
            return;
        }
    }
}

uint64_t mill_txn_marks_step(struct mill_txns *txns,
                             void (*complete)(struct mill_txns *txns, struct mill_txn *txn))
{
    uint64_t next_ns = MILL_NEVER;
    struct mill_txn_marks *next = NULL;
    for (struct mill_txn_marks *marks = txns->marks; marks; marks = next) {
        next = marks->next;
        if (marks->left > marks->flying && txns->now_ns >= marks->retry_ns) {
            send_all(marks);
        }
        if (marks->left > marks->flying) {
            next_ns = MILL_MIN(next_ns, marks->retry_ns);
        }
        if (marks->left == 0) {
            complete(txns, marks->txn);
            next_ns = MILL_MIN(next_ns, txns->now_ns + RETRY_NS); /* when it could not */
        }
    }
    return next_ns;
}
