/* SPDX-License-Identifier: Apache-2.0 */
/* Records of __transaction_state: keys and values as Kafka's schemas lay them out
 * (TransactionLogKey/Value), so that Kafka's own tools and brokers read them. Pure. */
#ifndef MILL_CONTROL_TXN_RECORDS_H
#define MILL_CONTROL_TXN_RECORDS_H

#include "control/pool.h"
#include "control/txn/txn.h"
#include "protocol/batch.h"

/* A record as it was read. The id and the names are in the pool. */
struct mill_txn_record {
    const char *id; /* NULL: of another kind, or a newer one: left alone */
    bool tombstone;
    struct mill_txn_values values; /* without partitions */
    struct mill_txn_partition *partitions;
    uint32_t partitions_count;
};

/* Each writes into the pool. ret: NULL no memory; *ret_bytes the size. */
uint8_t *mill_txn_key_write(struct mill_pool *pool, const char *id, uint32_t *ret_bytes);
uint8_t *mill_txn_value_write(struct mill_pool *pool, const struct mill_txn_values *values,
                              uint32_t *ret_bytes);

/* ret: 0, -EBADMSG no such record, -ENOMEM. */
int mill_txn_record_read(const struct mill_record *record, struct mill_pool *pool,
                         struct mill_txn_record *ret) MILL_WARN_UNUSED;

#endif
