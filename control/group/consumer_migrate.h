/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that change their protocol while they have members (KIP-848, group.consumer.migration.
 * policy). For consumer_plan.c: the whole change is one plan, one append. */
#ifndef MILL_CONTROL_GROUP_CONSUMER_MIGRATE_H
#define MILL_CONTROL_GROUP_CONSUMER_MIGRATE_H

#include "control/group/consumer_work.h"

/* A classic group with members as one of this protocol: each member where it is, in the epoch that
 * is its generation, with what it was assigned last. Becomes work->consumers; its records are the
 * plan's first ones. ret: enum mill_kerr; -EBADMSG what the members told each other cannot be read.
 */
int mill_plan_upgrade(struct mill_plan_work *work) MILL_WARN_UNUSED;
/* After a plan is made: when only members of the classic protocol are left by it, the group is
 * turned back, and the plan becomes that. rests: without a rebalance. ret: false no memory. */
bool mill_plan_maybe_downgrade(struct mill_plan_work *work, bool rests) MILL_WARN_UNUSED;

#endif
