/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of the classic protocol that its files share: group.c (sync, heartbeat, leave, commit,
 * timers), group_join.c, group_rebalance.c. Each leaves the timer as it is, unless it says so;
 * whoever took steps calls mill_group_timer_look last. */
#ifndef MILL_CONTROL_GROUP_GROUP_STEPS_H
#define MILL_CONTROL_GROUP_GROUP_STEPS_H

#include "control/group/group.h"

/* --- time ------------------------------------------------------------------------------------ */

/* Tells the timer when something of the group is due next. */
void mill_group_timer_look(struct mill_group_env *env, struct mill_group *group);
uint64_t mill_group_ms_later(const struct mill_group_env *env, int64_t ms);
/* Something came from the member. The timer stays where it is when it is earlier: it looks again.
 */
void mill_group_timeout_renew(struct mill_group_env *env, struct mill_group_member *member);
void mill_group_state_set(struct mill_group_env *env, struct mill_group *group,
                          enum mill_group_state state);

/* --- answers --------------------------------------------------------------------------------- */

void mill_group_join_refuse(struct mill_group_env *env, void *waiter, const char *member_id,
                            int16_t error);
void mill_group_join_answer(struct mill_group_env *env, struct mill_group *group,
                            struct mill_group_member *member, void *waiter);
/* Ends a parked join, or sync; nothing when there is none. */
void mill_group_join_end(struct mill_group_env *env, struct mill_group *group,
                         struct mill_group_member *member, int16_t error);
void mill_group_sync_end(struct mill_group_env *env, struct mill_group *group,
                         struct mill_group_member *member, int16_t error);
void mill_group_join_park(struct mill_group_env *env, struct mill_group *group,
                          struct mill_group_member *member, void *waiter);

/* --- rebalance ------------------------------------------------------------------------------- */

/* Begins a rebalance: everybody has to join again. */
void mill_group_prepare(struct mill_group_env *env, struct mill_group *group);
/* The same unless one is under way, which ends when everybody is there. */
void mill_group_maybe_prepare(struct mill_group_env *env, struct mill_group *group);
void mill_group_try_complete(struct mill_group_env *env, struct mill_group *group);
/* The rebalance ends with those who joined. */
void mill_group_complete_join(struct mill_group_env *env, struct mill_group *group);
void mill_group_syncs_reset(struct mill_group_env *env, struct mill_group *group, int16_t error);
void mill_group_member_remove(struct mill_group_env *env, struct mill_group *group,
                              struct mill_group_member *member);
/* A member is gone: what that means for the others. */
void mill_group_after_removal(struct mill_group_env *env, struct mill_group *group);

/* --- ids that nobody joined with yet --------------------------------------------------------- */

void mill_group_pending_drop(struct mill_group_env *env, struct mill_group *group,
                             struct mill_group_pending **at);
/* ret: where it hangs; *ret NULL when there is none. */
struct mill_group_pending **mill_group_pending_find(struct mill_group *group,
                                                    const char *member_id);

#endif
