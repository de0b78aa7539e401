/* SPDX-License-Identifier: Apache-2.0 */
/* Adds that came before the end of the transaction before: a client of version 2 goes on as soon as
 * its end is decided, while markers are still under way. They are asked again here when it is over,
 * which is a few milliseconds; the client's own retry would be a tenth of a second. Control's
 * thread; bounded, in number and in time. ref: KIP-890 */
#ifndef MILL_CONTROL_TXN_WAITS_H
#define MILL_CONTROL_TXN_WAITS_H

#include "control/txn/txns.h"

/* Keeps an add, with copies of what it names. ret: false no room (bytes_max, too) or
 * memory: answer it now. */
bool mill_txn_wait_add(struct mill_txns *txns, const char *id, const struct mill_txn_holder *holder,
                       const struct mill_txn_partition *added, uint32_t added_count,
                       mill_txns_done done, void *context);
/* Asks again for those whose id is not busy any more, and answers those whose time is over. ret:
 * when the next one's is. */
uint64_t mill_txn_waits_step(struct mill_txns *txns);
/* Answers all. */
void mill_txn_waits_close(struct mill_txns *txns);

#endif
