/* SPDX-License-Identifier: Apache-2.0 */
/* What clients ask of the transactions' coordinator: InitProducerId with a transactional id,
 * AddPartitionsToTxn, AddOffsetsToTxn, EndTxn; DescribeTransactions and ListTransactions.
 * TxnOffsetCommit, which the groups keep, is in control/group. Control's thread. */
#ifndef MILL_CONTROL_TXN_API_H
#define MILL_CONTROL_TXN_API_H

#include "control/admin/request.h"

/* Each answers the request, or takes it until the log has what was asked for. */
void mill_init_producer_id(struct mill_admin_request *request, struct mill_cursor *at);
void mill_add_partitions_to_txn(struct mill_admin_request *request, struct mill_cursor *at);
void mill_add_offsets_to_txn(struct mill_admin_request *request, struct mill_cursor *at);
void mill_end_txn(struct mill_admin_request *request, struct mill_cursor *at);
/* Answered at once (api_list.c). */
void mill_describe_transactions(struct mill_admin_request *request, struct mill_cursor *at);
void mill_list_transactions(struct mill_admin_request *request, struct mill_cursor *at);

#endif
