/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions of partitions: which are open, where the last stable offset is, which were aborted.
 * Two tables per core, taken at start. Owner core only.
 *
 *   txns       one list per partition by first offset: open ones, and ended ones whose marker the
 *              high watermark has not passed (Kafka: unreplicated). The first one's first offset
 *              bounds what a read_committed reader sees.
 *   aborted    a ring over all partitions, the newest aborted ones. What falls out of it is in
 *              .txnindex files, where the store finds it (aborted.c); so an entry whose marker is
 *              not in the files yet is never overwritten: the next abort waits.
 *
 * ref: KIP-98 (data flow 5.2 and 5.3, last stable offset, transaction index) */
#include "dataplane/log/log_types.h"

#include <errno.h>
#include <stdlib.h>

int mill_log_txns_init(struct log_txns *txns, uint32_t length, uint32_t aborted_length)
{
    MILL_ASSERT_LE(aborted_length, (uint32_t)MILL_LOG_ABORTED_MAX);
    *txns = (struct log_txns){
        .entries = calloc(length, sizeof(txns->entries[0])),
        .aborted = calloc(aborted_length, sizeof(txns->aborted[0])),
        .length = length,
        .aborted_length = aborted_length,
        .aborted_next = 1, /* 0 names none */
    };
    if (!txns->entries || !txns->aborted) {
        mill_log_txns_fini(txns);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < length; i++) {
        txns->entries[i].next = i + 1 < length ? i + 1 : MILL_LOG_NONE;
    }
    return 0;
}

void mill_log_txns_fini(struct log_txns *txns)
{
    free(txns->entries);
    free(txns->aborted);
    *txns = (struct log_txns){0};
}

/* --- the last stable offset ------------------------------------------------------------------- */

static void entry_unlink(struct mill_partition *partition, uint32_t number)
{
    struct log_txns *txns = &partition->log->txns;
    struct log_txn *txn = &txns->entries[number];
    if (txn->prev == MILL_LOG_NONE) {
        partition->txn_first = txn->next;
    } else {
        txns->entries[txn->prev].next = txn->next;
    }
    if (txn->next == MILL_LOG_NONE) {
        partition->txn_last = txn->prev;
    } else {
        txns->entries[txn->next].prev = txn->prev;
    }
    txn->next = txns->free_head;
    txns->free_head = number;
    partition->log->stats.transactions--;
}

void mill_log_stable_update(struct mill_partition *partition)
{
    struct log_txns *txns = &partition->log->txns;
    while (partition->txn_ended != MILL_LOG_NONE &&
           txns->entries[partition->txn_ended].last_offset < partition->high_watermark) {
        uint32_t number = partition->txn_ended;
        partition->txn_ended = txns->entries[number].ended_next;
        entry_unlink(partition, number);
    }
    partition->stable_offset = partition->high_watermark;
    partition->stream_stable = partition->stream_ready;
#ifdef MILL_MUTANT_LOG_STABLE_IS_WATERMARK
    return;
#endif
    if (partition->txn_first != MILL_LOG_NONE) {
        const struct log_txn *txn = &txns->entries[partition->txn_first];
        partition->stable_offset = MILL_MIN(partition->stable_offset, txn->first_offset);
        partition->stream_stable = MILL_MIN(partition->stream_stable, txn->stream_pos);
    }
    partition->stable_offset = MILL_MAX(partition->stable_offset, partition->start_offset);
}

bool mill_log_txn_room(const struct mill_log *log)
{
    return log->txns.free_head != MILL_LOG_NONE;
}

uint32_t mill_log_txn_begin(struct mill_partition *partition, int64_t producer_id,
                            int64_t first_offset, uint64_t stream_pos)
{
    struct log_txns *txns = &partition->log->txns;
    uint32_t number = txns->free_head;
    MILL_ASSERT(number != MILL_LOG_NONE); /* mill_log_txn_room was asked */
    struct log_txn *txn = &txns->entries[number];
    txns->free_head = txn->next;
    *txn = (struct log_txn){
        .producer_id = producer_id,
        .first_offset = first_offset,
        .last_offset = -1,
        .stream_pos = stream_pos,
        .next = MILL_LOG_NONE,
        .prev = partition->txn_last,
        .ended_next = MILL_LOG_NONE,
    };
    if (partition->txn_last == MILL_LOG_NONE) {
        partition->txn_first = number;
    } else {
        txns->entries[partition->txn_last].next = number;
    }
    partition->txn_last = number;
    partition->log->stats.transactions++;
    return number;
}

void mill_log_txn_end(struct mill_partition *partition, uint32_t number, int64_t last_offset,
                      bool aborted)
{
    struct log_txns *txns = &partition->log->txns;
    struct log_txn *txn = &txns->entries[number];
    txn->last_offset = last_offset;
    if (partition->txn_ended == MILL_LOG_NONE) {
        partition->txn_ended = number;
    } else {
        txns->entries[partition->txn_ended_last].ended_next = number;
    }
    partition->txn_ended_last = number;
    if (aborted) {
        mill_log_aborted_add(partition, txn->producer_id, txn->first_offset, last_offset);
    }
}

void mill_log_txns_drop(struct mill_partition *partition)
{
    while (partition->txn_first != MILL_LOG_NONE) {
        entry_unlink(partition, partition->txn_first);
    }
    partition->txn_ended = MILL_LOG_NONE;
    partition->aborted_newest = 0;
}

/* --- aborted ones ----------------------------------------------------------------------------- */

/* The partition of a ring's entry, NULL when it is gone. */
static struct mill_partition *aborted_partition(struct mill_log *log,
                                                const struct log_aborted *entry)
{
    struct mill_partition *partition = &log->partitions[entry->slot];
    bool same = partition->log && partition->generation == entry->generation && !partition->gone;
    return same ? partition : NULL;
}

bool mill_log_aborted_room(struct mill_log *log)
{
    struct log_txns *txns = &log->txns;
    if (txns->aborted_next <= txns->aborted_length) {
        return true;
    }
    const struct log_aborted *oldest = &txns->aborted[txns->aborted_next % txns->aborted_length];
    struct mill_partition *partition = aborted_partition(log, oldest);
#ifdef MILL_MUTANT_LOG_ABORTED_OVERWRITTEN
    return true;
#endif
    return !partition || partition->state != MILL_LOG_SERVING ||
           oldest->last_offset < partition->written_offset;
}

void mill_log_aborted_add(struct mill_partition *partition, int64_t producer_id,
                          int64_t first_offset, int64_t last_offset)
{
    struct mill_log *log = partition->log;
    struct log_txns *txns = &log->txns;
    uint64_t serial = txns->aborted_next++;
    struct log_aborted *entry = &txns->aborted[serial % txns->aborted_length];
    if (serial > txns->aborted_length) {
        struct mill_partition *forgotten = aborted_partition(log, entry);
        if (forgotten) {
            forgotten->aborted_from = entry->last_offset + 1;
        }
    }
    *entry = (struct log_aborted){
        .producer_id = producer_id,
        .first_offset = first_offset,
        .last_offset = last_offset,
        .older = partition->aborted_newest,
        .slot = partition->slot,
        .generation = partition->generation,
    };
    partition->aborted_newest = serial;
}

const struct log_aborted *mill_log_aborted_at(const struct mill_log *log, uint64_t serial)
{
    const struct log_txns *txns = &log->txns;
    bool there = serial != 0 && serial + txns->aborted_length >= txns->aborted_next;
    return there ? &txns->aborted[serial % txns->aborted_length] : NULL;
}
