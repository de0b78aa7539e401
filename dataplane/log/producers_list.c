/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the active producers of a partition a few at a time, while they change. Owner core only.
 *
 * The partition's own list is the short way. The entry where a walk stands may be forgotten between
 * two steps, and its place be another producer's: then the caller begins anew over the whole table,
 * where a place never moves, so that every walk ends however often producers come and go.
 * ref: KIP-664 */
#include "dataplane/log/log_types.h"

#include <errno.h>

enum {
    SCAN_PER_TOLD = 8, /* entries of the table looked at, for each one that may be told */
};

uint32_t mill_log_producers_count(const struct mill_partition *partition)
{
    return partition->producers_count;
}

static void tell(const struct mill_partition *partition, const struct log_producer *entry,
                 struct mill_log_producer_state *ret)
{
    const struct log_producer_batch *last =
        &entry->batches[(entry->first + entry->count + MILL_LOG_PRODUCER_BATCHES - 1) %
                        MILL_LOG_PRODUCER_BATCHES];
    bool open = entry->txn < partition->log->txns.length;
    *ret = (struct mill_log_producer_state){
        .producer_id = entry->producer_id,
        .last_timestamp = entry->last_timestamp,
        .txn_first_offset = open ? partition->log->txns.entries[entry->txn].first_offset : -1,
        .last_sequence = entry->count > 0 ? last->last_sequence : -1,
        .coordinator_epoch = entry->coordinator_epoch,
        .epoch = entry->epoch,
    };
}

/* One that was only let in has nothing in the log. */
static bool is_active(const struct mill_partition *partition, const struct log_producer *entry)
{
    bool wrote = entry->epoch >= 0;
#ifdef MILL_MUTANT_LOG_LIST_TELLS_GRANTED
    wrote = true;
#endif
    return entry->producer_id >= 0 && entry->partition == partition->slot && wrote;
}

static int list_scan(const struct mill_partition *partition, struct mill_log_producers_at *at,
                     struct mill_log_producer_state *ret, uint32_t most)
{
    const struct log_producers *producers = &partition->log->producers;
    int told = 0;
    for (uint32_t i = 0;
         i < most * SCAN_PER_TOLD && at->number < producers->length && told < (int)most;
         i++, at->number++) {
        const struct log_producer *entry = &producers->entries[at->number];
        if (is_active(partition, entry)) {
            tell(partition, entry, &ret[told++]);
        }
    }
    at->ended = at->number >= producers->length;
    return told;
}

int mill_log_producers_list(const struct mill_partition *partition,
                            struct mill_log_producers_at *at, struct mill_log_producer_state *ret,
                            uint32_t most)
{
    const struct log_producers *producers = &partition->log->producers;
    int told = 0;
    if (at->scan) {
        return list_scan(partition, at, ret, most);
    }
    if (!at->begun) {
        at->number = partition->producers;
        at->begun = true;
#ifndef MILL_MUTANT_LOG_LIST_TRUSTS_PLACE
    } else if (producers->entries[at->number].generation != at->generation) {
        *at = (struct mill_log_producers_at){.begun = true, .scan = true};
        return -ESTALE;
#endif
    }
    for (uint32_t i = 0; i < most && at->number != MILL_LOG_NONE; i++) {
        const struct log_producer *entry = &producers->entries[at->number];
        if (is_active(partition, entry)) {
            tell(partition, entry, &ret[told++]);
        }
        at->number = entry->mine_next;
    }
    at->ended = at->number == MILL_LOG_NONE;
    at->generation = at->ended ? 0 : producers->entries[at->number].generation;
    return told;
}
