/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions as compaction sees them: batches of aborted ones go; a marker stays while a batch of
 * its transaction does. See clean_types.h. ref: KIP-98, KIP-534 */
#include "dataplane/store/clean_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int mill_clean_txns_add(struct clean_txns *txns, const uint8_t *entries, size_t size_bytes)
{
    if (size_bytes % CLEAN_TXN_ENTRY_BYTES != 0) {
        return -EBADMSG;
    }
    for (const uint8_t *at = entries; at < entries + size_bytes; at += CLEAN_TXN_ENTRY_BYTES) {
        if (mill_load_be16(at) != 0) {
            return -EBADMSG; /* another version */
        }
        if (txns->aborted_count == txns->aborted_capacity) {
            uint32_t capacity = MILL_MAX(16u, txns->aborted_capacity * 2);
            void *grown = realloc(txns->aborted, capacity * sizeof(txns->aborted[0]));
            if (!grown) {
                return -ENOMEM;
            }
            txns->aborted = grown;
            txns->aborted_capacity = capacity;
        }
        txns->aborted[txns->aborted_count++] = (struct clean_aborted){
            .producer_id = (int64_t)mill_load_be64(at + 2),
            .first_offset = (int64_t)mill_load_be64(at + 10),
            .last_offset = (int64_t)mill_load_be64(at + 18),
            .stable_offset = (int64_t)mill_load_be64(at + 26),
        };
    }
    return 0;
}

static int by_first(const void *a, const void *b)
{
    const struct clean_aborted *left = a;
    const struct clean_aborted *right = b;
    return left->first_offset < right->first_offset ? -1 : left->first_offset > right->first_offset;
}

void mill_clean_txns_begin(struct clean_txns *txns)
{
    if (txns->aborted_count > 0) {
        qsort(txns->aborted, txns->aborted_count, sizeof(txns->aborted[0]), by_first);
    }
    txns->next = 0;
    txns->open_count = 0;
}

void mill_clean_txns_fini(struct clean_txns *txns)
{
    free(txns->aborted);
    free(txns->open);
    *txns = (struct clean_txns){0};
}

static struct clean_txn *find(struct clean_txns *txns, int64_t producer_id, bool is_aborted)
{
    for (uint32_t i = 0; i < txns->open_count; i++) {
        struct clean_txn *txn = &txns->open[i];
        if (txn->aborted.producer_id == producer_id && txn->is_aborted == is_aborted) {
            return txn;
        }
    }
    return NULL;
}

static int open_add(struct clean_txns *txns, const struct clean_txn *txn)
{
    if (txns->open_count == txns->open_capacity) {
        uint32_t capacity = MILL_MAX(16u, txns->open_capacity * 2);
        void *grown = realloc(txns->open, capacity * sizeof(txns->open[0]));
        if (!grown) {
            return -ENOMEM;
        }
        txns->open = grown;
        txns->open_capacity = capacity;
    }
    txns->open[txns->open_count++] = *txn;
    return 0;
}

/* Begins the aborted transactions whose first record is at or below offset. */
static int begin_up_to(struct clean_txns *txns, int64_t offset)
{
    while (txns->next < txns->aborted_count && txns->aborted[txns->next].first_offset <= offset) {
        struct clean_txn txn = {.aborted = txns->aborted[txns->next++], .is_aborted = true};
        struct clean_txn *there = find(txns, txn.aborted.producer_id, true);
        if (there) {
            *there = txn; /* its marker is gone already */
            continue;
        }
        int r = open_add(txns, &txn);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int mill_clean_txns_batch(struct clean_txns *txns, const struct mill_batch *batch)
{
    int r = begin_up_to(txns, mill_batch_last_offset(batch));
    if (r < 0 || !(batch->attributes & MILL_BATCH_TRANSACTIONAL)) {
        return r;
    }
    struct clean_txn *aborted = find(txns, batch->producer_id, true);
    if (aborted) {
        aborted->observed = true;
        return 1;
    }
    struct clean_txn *open = find(txns, batch->producer_id, false);
    struct clean_txn txn = {.aborted = {.producer_id = batch->producer_id}, .observed = true};
    return open ? 0 : open_add(txns, &txn);
}

int mill_clean_txns_marker(struct clean_txns *txns, const struct mill_batch *batch, bool commit,
                           struct clean_aborted *ret_entry, bool *ret_needed)
{
    int r = begin_up_to(txns, mill_batch_last_offset(batch));
    struct clean_txn *txn = find(txns, batch->producer_id, !commit);
    bool observed = txn && txn->observed;
    if (observed && !commit) {
        *ret_entry = txn->aborted;
        *ret_needed = true;
    }
    if (txn) {
        *txn = txns->open[--txns->open_count];
    }
    return r < 0 ? r : !observed;
}
