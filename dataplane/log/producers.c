/* SPDX-License-Identifier: Apache-2.0 */
/* State of idempotent producers: per partition and producer id the last five batches. One bounded
 * table per core: when it is full the least recently written producer is forgotten, which Kafka
 * allows (a producer without state starts anew with any sequence). Owner core only.
 * ref: KIP-98, KIP-360 */
#include "dataplane/log/log_types.h"

#include <errno.h>
#include <stdlib.h>

#include "base/siphash.h"

enum {
    SWEEP_ENTRIES = 512,
};

/* In place of its transaction's number while its TXN has not come: an opening is told producers
 * first. */
#define TXN_AWAITED (MILL_LOG_NONE - 1)

static uint32_t bucket_of(const struct log_producers *producers, uint32_t slot, int64_t id)
{
    /* Ids come from clients: a keyed hash, so that nobody can aim at one bucket. */
    uint64_t words[2] = {(uint64_t)id, slot};
    return (uint32_t)mill_siphash(producers->key, words, sizeof(words)) & producers->mask;
}

int mill_log_producers_init(struct log_producers *producers, uint32_t length)
{
    uint32_t buckets = 16;
    while (buckets < length && buckets < (1u << 30)) {
        buckets *= 2;
    }
    *producers = (struct log_producers){
        .entries = calloc(length, sizeof(producers->entries[0])),
        .buckets = malloc(buckets * sizeof(producers->buckets[0])),
        .length = length,
        .mask = buckets - 1,
        .oldest = MILL_LOG_NONE,
        .newest = MILL_LOG_NONE,
        /* The table's own address is as good a secret as is needed here (address randomisation). */
        .key = {(uint64_t)(uintptr_t)producers, 0x6d696c6c70726f64ull},
    };
    if (!producers->entries || !producers->buckets) {
        mill_log_producers_fini(producers);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < buckets; i++) {
        producers->buckets[i] = MILL_LOG_NONE;
    }
    for (uint32_t i = 0; i < length; i++) {
        producers->entries[i].producer_id = -1;
        producers->entries[i].hash_next = i + 1 < length ? i + 1 : MILL_LOG_NONE;
    }
    return 0;
}

void mill_log_producers_fini(struct log_producers *producers)
{
    free(producers->entries);
    free(producers->buckets);
    *producers = (struct log_producers){0};
}

static struct log_producer *find(const struct mill_partition *partition, int64_t id)
{
    const struct log_producers *producers = &partition->log->producers;
    uint32_t at = producers->buckets[bucket_of(producers, partition->slot, id)];
    while (at != MILL_LOG_NONE) {
        struct log_producer *entry = &producers->entries[at];
        if (entry->producer_id == id && entry->partition == partition->slot) {
            return entry;
        }
        at = entry->hash_next;
    }
    return NULL;
}

static uint32_t number_of(const struct log_producers *producers, const struct log_producer *entry)
{
    return (uint32_t)(entry - producers->entries);
}

/* Must not be forgotten: a transaction of it is open, or may begin. */
static bool is_held(const struct log_producer *entry)
{
    return entry->txn != MILL_LOG_NONE || entry->granted >= 0;
}

/* What keeps the entry: the epoch that was let in, -1 none, and its open transaction. */
static void hold_set(struct log_producers *producers, struct log_producer *entry, int16_t granted,
                     uint32_t txn)
{
    producers->granted -= entry->granted >= 0 && entry->txn == MILL_LOG_NONE ? 1 : 0;
    producers->granted += granted >= 0 && txn == MILL_LOG_NONE ? 1 : 0;
    entry->granted = granted;
    entry->txn = txn;
}

static void age_remove(struct log_producers *producers, struct log_producer *entry)
{
    if (entry->older == MILL_LOG_NONE) {
        producers->oldest = entry->newer;
    } else {
        producers->entries[entry->older].newer = entry->newer;
    }
    if (entry->newer == MILL_LOG_NONE) {
        producers->newest = entry->older;
    } else {
        producers->entries[entry->newer].older = entry->older;
    }
}

static void age_newest(struct log_producers *producers, struct log_producer *entry)
{
    uint32_t number = number_of(producers, entry);
    entry->older = producers->newest;
    entry->newer = MILL_LOG_NONE;
    if (producers->newest == MILL_LOG_NONE) {
        producers->oldest = number;
    } else {
        producers->entries[producers->newest].newer = number;
    }
    producers->newest = number;
}

static void forget(struct mill_log *log, struct log_producer *entry)
{
    struct log_producers *producers = &log->producers;
    uint32_t number = number_of(producers, entry);
    uint32_t *link =
        &producers->buckets[bucket_of(producers, entry->partition, entry->producer_id)];
    while (*link != number) {
        link = &producers->entries[*link].hash_next;
    }
    *link = entry->hash_next;
    if (!is_held(entry)) {
        age_remove(producers, entry);
    }
    if (entry->mine_prev == MILL_LOG_NONE) {
        log->partitions[entry->partition].producers = entry->mine_next;
    } else {
        producers->entries[entry->mine_prev].mine_next = entry->mine_next;
    }
    if (entry->mine_next != MILL_LOG_NONE) {
        producers->entries[entry->mine_next].mine_prev = entry->mine_prev;
    }
    hold_set(producers, entry, -1, MILL_LOG_NONE);
    entry->producer_id = -1;
    entry->generation++;
    entry->hash_next = producers->free_head;
    producers->free_head = number;
    log->partitions[entry->partition].producers_count--;
    log->stats.producers--;
}

/* Every producer of the table is held. */
static bool is_full(const struct log_producers *producers)
{
    return producers->free_head == MILL_LOG_NONE && producers->oldest == MILL_LOG_NONE;
}

static struct log_producer *make(struct mill_partition *partition, int64_t id)
{
    struct mill_log *log = partition->log;
    struct log_producers *producers = &log->producers;
    if (is_full(producers)) {
        return NULL;
    }
    if (producers->free_head == MILL_LOG_NONE) {
        log->stats.producers_evicted++;
        forget(log, &producers->entries[producers->oldest]);
    }
    uint32_t number = producers->free_head;
    struct log_producer *entry = &producers->entries[number];
    producers->free_head = entry->hash_next;
    uint32_t *bucket = &producers->buckets[bucket_of(producers, partition->slot, id)];
    *entry = (struct log_producer){
        .producer_id = id,
        .partition = partition->slot,
        .hash_next = *bucket,
        .mine_next = partition->producers,
        .mine_prev = MILL_LOG_NONE,
        .txn = MILL_LOG_NONE,
        .coordinator_epoch = -1,
        .generation = entry->generation,
        .epoch = -1,
        .granted = -1,
    };
    *bucket = number;
    if (partition->producers != MILL_LOG_NONE) {
        producers->entries[partition->producers].mine_prev = number;
    }
    partition->producers = number;
    partition->producers_count++;
    age_newest(producers, entry);
    log->stats.producers++;
    return entry;
}

/* Sequences are 31 bits and wrap. */
static int32_t sequence_add(int32_t sequence, int32_t delta)
{
    return (int32_t)(((uint32_t)sequence + (uint32_t)delta) & 0x7fffffffu);
}

static const struct log_producer_batch *batch_at(const struct log_producer *entry, uint32_t nth)
{
    return &entry->batches[(entry->first + nth) % MILL_LOG_PRODUCER_BATCHES];
}

/* The batch among the known ones that this one repeats, or NULL. */
static const struct log_producer_batch *repeated(const struct log_producer *entry,
                                                 const struct mill_batch *batch)
{
    int32_t last = sequence_add(batch->base_sequence, batch->last_offset_delta);
    for (uint32_t i = 0; batch->producer_epoch == entry->epoch && i < entry->count; i++) {
        const struct log_producer_batch *known = batch_at(entry, i);
        if (known->first_sequence == batch->base_sequence && known->last_sequence == last) {
            return known;
        }
    }
    return NULL;
}

/* The batch adds its partition to the transaction, when need be. */
static bool adds(const struct mill_append *append, const struct mill_batch *batch)
{
    return append->api_version >= MILL_LOG_ADDS_VERSION && !append->internal_client &&
           (batch->attributes & MILL_BATCH_TRANSACTIONAL) != 0;
}

static bool is_vouched(const struct log_producer *entry, const struct mill_batch *batch)
{
#ifdef MILL_MUTANT_LOG_TXN_UNVERIFIED
    return true;
#endif
    bool open = entry && entry->txn != MILL_LOG_NONE;
    return entry && (entry->granted == batch->producer_epoch ||
                     (open && entry->epoch == batch->producer_epoch));
}

bool mill_log_producer_unvouched(const struct mill_partition *partition,
                                 const struct mill_append *append, const struct mill_batch *batch)
{
    if (batch->producer_id < 0 || !adds(append, batch)) {
        return false;
    }
#ifdef MILL_MUTANT_LOG_ADDS_UNASKED
    return false;
#endif
    const struct log_producer *entry = find(partition, batch->producer_id);
    return !is_vouched(entry, batch) &&
           !(entry && (batch->producer_epoch < entry->epoch || repeated(entry, batch)));
}

/* Epoch and sequence against what is known; a producer without state may begin anywhere, but with
 * sequence 0 where each transaction has an epoch of its own. */
static enum log_sequence sequence_check(const struct log_producer *entry,
                                        const struct mill_batch *batch, bool sequenced,
                                        bool from_zero)
{
    int32_t first = batch->base_sequence;
    if (!entry || entry->epoch < 0) {
        return from_zero && sequenced && first != 0 ? LOG_SEQUENCE_WRONG : LOG_SEQUENCE_NEXT;
    }
    if (batch->producer_epoch < entry->epoch) {
        return LOG_SEQUENCE_OLD_EPOCH;
    }
    if (!sequenced) {
        return LOG_SEQUENCE_NEXT;
    }
    if (batch->producer_epoch > entry->epoch || entry->count == 0) {
        return first == 0 ? LOG_SEQUENCE_NEXT : LOG_SEQUENCE_WRONG;
    }
    int32_t known_last = batch_at(entry, entry->count - 1u)->last_sequence;
    return first == sequence_add(known_last, 1) ? LOG_SEQUENCE_NEXT : LOG_SEQUENCE_WRONG;
}

enum log_sequence mill_log_producer_check(const struct mill_partition *partition,
                                          const struct mill_append *append,
                                          const struct mill_batch *batch,
                                          const struct log_producer_batch **ret_batch)
{
    const struct mill_log *log = partition->log;
    const struct log_producer *entry = find(partition, batch->producer_id);
    bool transactional = (batch->attributes & MILL_BATCH_TRANSACTIONAL) != 0;
    bool open = entry && entry->txn != MILL_LOG_NONE;
    bool sequenced = batch->base_sequence >= 0;
    if (entry && sequenced && (*ret_batch = repeated(entry, batch)) != NULL) {
        return LOG_SEQUENCE_DUPLICATE;
    }
    if (entry && batch->producer_epoch < entry->epoch) {
        return LOG_SEQUENCE_OLD_EPOCH; /* said before anything else: its holder is fenced */
    }
    if (transactional && !is_vouched(entry, batch)) {
        return append->grants_late ? LOG_SEQUENCE_GRANTS_LATE : LOG_SEQUENCE_NO_TRANSACTION;
    }
    enum log_sequence sequence = sequence_check(entry, batch, sequenced, adds(append, batch));
    if (sequence != LOG_SEQUENCE_NEXT) {
        return sequence;
    }
    if (open && !transactional) {
        return LOG_SEQUENCE_IN_TRANSACTION;
    }
    bool room =
        (entry || !is_full(&log->producers)) && (open || !transactional || mill_log_txn_room(log));
    return room ? LOG_SEQUENCE_NEXT : LOG_SEQUENCE_FULL;
}

/* The producer's entry, as the newest of all, with this epoch. ret: NULL no room. */
static struct log_producer *entry_use(struct mill_partition *partition, int64_t id, int16_t epoch)
{
    struct log_producers *producers = &partition->log->producers;
    struct log_producer *entry = find(partition, id);
    if (!entry) {
        entry = make(partition, id);
    } else if (!is_held(entry)) {
        age_remove(producers, entry);
        age_newest(producers, entry);
    }
    if (entry && entry->epoch != epoch) {
        entry->epoch = epoch;
        entry->count = 0;
        entry->first = 0;
    }
    return entry;
}

static void batch_add(struct log_producer *entry, const struct log_producer_batch *batch)
{
    if (entry->count == MILL_LOG_PRODUCER_BATCHES) {
        entry->first = (uint8_t)((entry->first + 1) % MILL_LOG_PRODUCER_BATCHES);
        entry->count--;
    }
    uint32_t index = (uint32_t)(entry->first + entry->count) % MILL_LOG_PRODUCER_BATCHES;
    entry->batches[index] = *batch;
    entry->count++;
}

/* An entry with an open transaction is in no order of age: it cannot be given up. */
static void txn_open(struct mill_partition *partition, struct log_producer *entry,
                     int64_t first_offset, uint64_t stream_pos)
{
    if (!is_held(entry)) {
        age_remove(&partition->log->producers, entry);
    }
    hold_set(&partition->log->producers, entry, entry->granted,
             mill_log_txn_begin(partition, entry->producer_id, first_offset, stream_pos));
}

void mill_log_producer_note(struct mill_partition *partition, const struct mill_batch *batch,
                            uint64_t stream_pos, int64_t written_ms)
{
    struct log_producer *entry = entry_use(partition, batch->producer_id, batch->producer_epoch);
    MILL_ASSERT(entry != NULL); /* the check had found room */
    if (batch->base_sequence >= 0) {
        struct log_producer_batch noted = {
            .base_offset = batch->base_offset,
            .last_offset = mill_batch_last_offset(batch),
            .timestamp = batch->max_timestamp,
            .first_sequence = batch->base_sequence,
            .last_sequence = sequence_add(batch->base_sequence, batch->last_offset_delta),
        };
        batch_add(entry, &noted);
    }
    entry->written_ms = written_ms;
    entry->last_timestamp = batch->max_timestamp;
    if ((batch->attributes & MILL_BATCH_TRANSACTIONAL) && entry->txn == MILL_LOG_NONE) {
        txn_open(partition, entry, batch->base_offset, stream_pos);
    }
}

enum mill_kerr mill_log_grant(struct mill_partition *partition, int64_t producer_id,
                              int16_t producer_epoch)
{
    struct log_check check;
    struct log_producer *entry = find(partition, producer_id);
    if (entry && producer_epoch < entry->epoch) {
        return MILL_KERR_INVALID_PRODUCER_EPOCH;
    }
    if (mill_log_append_refuses(partition, &check)) {
        return MILL_KERR_KAFKA_STORAGE_ERROR;
    }
    /* Grants without a batch cost a client nothing: they must not push out who does write. */
    struct log_producers *producers = &partition->log->producers;
    bool room = (entry && is_held(entry)) || producers->granted < producers->length / 4;
#ifdef MILL_MUTANT_LOG_GRANTS_UNBOUNDED
    room = true;
#endif
    entry = entry || !room ? entry : make(partition, producer_id);
    if (!entry || !room) {
        partition->log->stats.transactions_full++;
        return MILL_KERR_KAFKA_STORAGE_ERROR;
    }
    if (!is_held(entry)) {
        age_remove(producers, entry);
    }
    hold_set(producers, entry, producer_epoch, entry->txn);
    return MILL_KERR_NONE;
}

enum mill_kerr mill_log_marker_check(const struct mill_partition *partition,
                                     const struct mill_marker_append *marker, bool *ret_aborts)
{
    const struct log_producer *entry = find(partition, marker->producer_id);
    *ret_aborts = entry && entry->txn != MILL_LOG_NONE && marker->marker.type == MILL_MARKER_ABORT;
    if (!entry) {
        return is_full(&partition->log->producers) ? MILL_KERR_KAFKA_STORAGE_ERROR : MILL_KERR_NONE;
    }
#ifdef MILL_MUTANT_LOG_MARKER_UNFENCED
    return MILL_KERR_NONE;
#endif
    if (marker->producer_epoch < entry->epoch) {
        return MILL_KERR_INVALID_PRODUCER_EPOCH;
    }
#ifndef MILL_MUTANT_LOG_MARKER_ENDS_NEXT
    /* Its transaction is over: what is open now began with the epoch that this marker gave out. */
    if (marker->bumped && marker->producer_epoch == entry->epoch && entry->txn != MILL_LOG_NONE &&
        entry->epoch < INT16_MAX) {
        return MILL_KERR_INVALID_PRODUCER_EPOCH;
    }
#endif
    return marker->marker.coordinator_epoch < entry->coordinator_epoch
               ? MILL_KERR_TRANSACTION_COORDINATOR_FENCED
               : MILL_KERR_NONE;
}

void mill_log_marker_note(struct mill_partition *partition, const struct mill_batch *batch,
                          const struct mill_marker_append *marker, int64_t written_ms)
{
    struct log_producer *entry = entry_use(partition, batch->producer_id, batch->producer_epoch);
    MILL_ASSERT(entry != NULL);
    entry->coordinator_epoch = marker->marker.coordinator_epoch;
    entry->written_ms = written_ms;
    entry->last_timestamp = batch->max_timestamp;
    bool held = is_held(entry);
#ifndef MILL_MUTANT_LOG_GRANT_OUTLIVES_MARKER
    /* Whoever comes now was let in for a transaction that is over; with its marker's own epoch,
     * for the next one. */
    bool next = marker->bumped && entry->granted == batch->producer_epoch &&
                batch->producer_epoch < INT16_MAX;
    if (entry->granted <= batch->producer_epoch && !next) {
        hold_set(&partition->log->producers, entry, -1, entry->txn);
    }
#endif
    if (entry->txn != MILL_LOG_NONE) {
        mill_log_txn_end(partition, entry->txn, batch->base_offset,
                         marker->marker.type == MILL_MARKER_ABORT);
        hold_set(&partition->log->producers, entry, entry->granted, MILL_LOG_NONE);
    }
    if (held && !is_held(entry)) {
        age_newest(&partition->log->producers, entry);
    }
}

/* --- opening ---------------------------------------------------------------------------------- */

bool mill_log_producer_restore(struct mill_partition *partition,
                               const struct mill_link_producer *from, int64_t written_ms)
{
    struct log_producer *entry = entry_use(partition, from->producer_id, from->epoch);
    if (!entry) {
        return false;
    }
    if (from->first_sequence >= 0) {
        int32_t delta = (int32_t)(from->last_offset - from->base_offset);
        struct log_producer_batch batch = {
            .base_offset = from->base_offset,
            .last_offset = from->last_offset,
            .timestamp = from->timestamp,
            .first_sequence = from->first_sequence,
            .last_sequence = sequence_add(from->first_sequence, delta),
        };
        batch_add(entry, &batch);
    }
    entry->coordinator_epoch = from->coordinator_epoch;
    entry->written_ms = written_ms;
    entry->last_timestamp = from->last_timestamp;
#ifndef MILL_MUTANT_LOG_TXN_UNAWAITED
    if (from->txn_open && entry->txn == MILL_LOG_NONE) {
        if (!is_held(entry)) {
            age_remove(&partition->log->producers, entry);
        }
        hold_set(&partition->log->producers, entry, entry->granted, TXN_AWAITED);
    }
#endif
    return true;
}

bool mill_log_txn_restore(struct mill_partition *partition, const struct mill_link_txn *from)
{
    struct log_producer *entry = find(partition, from->producer_id);
    if (!entry || !mill_log_txn_room(partition->log)) {
        return false;
    }
    /* Before all bytes that this process counts. */
    txn_open(partition, entry, from->first_offset, 0);
    return true;
}

void mill_log_producers_drop(struct mill_partition *partition)
{
    struct mill_log *log = partition->log;
    while (partition->producers != MILL_LOG_NONE) {
        forget(log, &log->producers.entries[partition->producers]);
    }
}

void mill_log_producers_sweep(struct mill_log *log)
{
    struct log_producers *producers = &log->producers;
    int64_t expired = log->now.wall_ms - log->config.limits.producer_expiration_ms;
    for (uint32_t i = 0; i < SWEEP_ENTRIES && i < producers->length; i++) {
        struct log_producer *entry = &producers->entries[producers->sweep];
        producers->sweep = (producers->sweep + 1) % producers->length;
        if (entry->producer_id >= 0 && entry->written_ms < expired && !is_held(entry)) {
            forget(log, entry);
        }
    }
}

void mill_log_producers_expire_after(struct mill_log *log, int64_t expiration_ms)
{
    log->config.limits.producer_expiration_ms = expiration_ms;
}
