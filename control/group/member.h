/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a classic group: their memory, which counts against the limit of all groups, what they
 * support, and what was assigned to them. The state machine (group.c) decides when. Pure; control's
 * thread. */
#ifndef MILL_CONTROL_GROUP_MEMBER_H
#define MILL_CONTROL_GROUP_MEMBER_H

#include "control/group/group.h"

/* NULL gives NULL. */
char *mill_text_copy(const char *text);
/* ret: false no memory; *to is then empty. */
bool mill_blob_copy(struct mill_group_blob *to, const struct mill_group_blob *from);

/* Protocols of a member: their memory, a copy (ret: NULL no memory), and its end; NULL is fine. */
uint64_t mill_protocols_bytes(const struct mill_group_protocol *protocols, uint32_t count);
struct mill_group_protocol *mill_protocols_copy(const struct mill_group_protocol *from,
                                                uint32_t count);
void mill_protocols_free(struct mill_group_protocol *protocols, uint32_t count);
bool mill_protocols_equal(const struct mill_group_protocol *a, uint32_t a_count,
                          const struct mill_group_protocol *b, uint32_t b_count);

/* Adds a member at the end. loading: the log has it, and the limit does not hold. ret: NULL no
 * memory, or over the limit (counted). */
struct mill_group_member *mill_member_add(struct mill_group_env *env, struct mill_group *group,
                                          const char *member_id, const struct mill_group_join *join,
                                          bool loading);
/* Takes over what a known member says of itself now. ret: false no memory, or over the limit. */
bool mill_member_update(struct mill_group_env *env, struct mill_group_member *member,
                        const struct mill_group_join *join);
/* Takes a member out of the list; the group goes on without it. Freed by the caller. */
void mill_member_unlink(struct mill_group *group, struct mill_group_member *member);
void mill_member_free(struct mill_group_env *env, struct mill_group_member *member);
/* prefix "-" and a random UUID. ret: malloc; NULL no memory. */
char *mill_member_id_make(struct mill_group_env *env, const char *prefix);

struct mill_group_member *mill_group_find_static(const struct mill_group *group,
                                                 const char *instance_id);

/* Whether the one that joins has a protocol that all members support. */
bool mill_group_protocols_fit(const struct mill_group *group, const struct mill_group_join *join);
/* The one that most members vote for, of those that all support; NULL none. */
const char *mill_group_elect_protocol(const struct mill_group *group);
bool mill_member_same_protocols(const struct mill_group_member *member,
                                const struct mill_group_join *join);

/* Keeps what the leader assigned. ret: false no memory, or over the limit (counted). */
bool mill_group_assign(struct mill_group_env *env, struct mill_group *group,
                       const struct mill_group_sync *sync);
/* Forgets what was assigned. */
void mill_member_unassign(struct mill_group_env *env, struct mill_group_member *member);

#endif
