/* SPDX-License-Identifier: Apache-2.0 */
/* The markers of transactions that end: one to every partition, again until it is there. For
 * txns.c. Control's thread. */
#ifndef MILL_CONTROL_TXN_MARKS_H
#define MILL_CONTROL_TXN_MARKS_H

#include "control/txn/txns.h"

/* The transaction's end is in the log: begins. Out of memory: tried again by mill_txn_marks_step.
 */
void mill_txn_marks_begin(struct mill_txns *txns, struct mill_txn *txn);
/* Forgets them; those on their way arrive all the same. */
void mill_txn_marks_drop(struct mill_txns *txns, struct mill_txn *txn);
/* Sends what waits. complete is called for each transaction whose partitions all have theirs. ret:
 * when to look again, MILL_NEVER. */
uint64_t mill_txn_marks_step(struct mill_txns *txns,
                             void (*complete)(struct mill_txns *txns, struct mill_txn *txn));

#endif
