/* SPDX-License-Identifier: Apache-2.0 */
/* Grants: the cores learn who may write to which partition, before a client is told that its
 * partition is part of the transaction. A marker takes the grant back in the same core; it cannot
 * be overtaken, because the journal sends both in one order (docs/decisions/0023). For txns.c.
 * Control's thread. */
#ifndef MILL_CONTROL_TXN_GRANTS_H
#define MILL_CONTROL_TXN_GRANTS_H

#include "control/txn/txns.h"

/* Grants the partitions to the producer id and epoch of values; both are copied. done is called
 * once, at once or later. error: enum mill_kerr; PRODUCER_FENCED a newer epoch has written, else
 * the first failure, after which all of it is to be asked for again. A topic that is gone counts as
 * granted. */
void mill_txn_grants_begin(struct mill_txns *txns, const struct mill_txn_values *values,
                           const struct mill_txn_partition *partitions, uint32_t count,
                           void (*done)(void *context, int16_t error), void *context);

#endif
