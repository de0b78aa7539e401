/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for a group of the consumer protocol while it is made: its records, and who subscribes to
 * what once it is done. For consumer_plan.c. Memory from the plan's pool. */
#ifndef MILL_CONTROL_GROUP_CONSUMER_WORK_H
#define MILL_CONTROL_GROUP_CONSUMER_WORK_H

#include "control/group/consumer.h"
#include "control/group/consumer_records.h"

/* A plan being made. */
struct mill_plan_work {
    struct mill_consumer_env *env;
    struct mill_group *group;
    const struct mill_consumer_group *consumers;
    struct mill_consumer_plan *plan;
    const struct mill_consumer *old; /* the member as it is; NULL new */
    struct mill_consumer *next;      /* as it will be; NULL: nobody changes */
    const struct mill_consumer **removed;
    uint32_t removed_count;
    struct mill_consumer_regex *regexes; /* looked at anew */
    const struct mill_consumer **who;    /* everybody as they will be, next last */
    struct mill_assign_member *members;  /* the same, for the assignors */
    uint32_t members_count;
    int32_t epoch; /* the group's */
    int64_t hash;
};

/* Adds a record. value_bytes -1: a tombstone; key NULL, or value NULL without being one: no memory,
 * which the plan keeps. */
void mill_plan_put(struct mill_consumer_plan *plan, const uint8_t *key, uint32_t key_bytes,
                   const uint8_t *value, int32_t value_bytes);
/* The same with a key of the group. about: as of mill_consumer_key. value NULL: no memory. */
void mill_plan_put_value(struct mill_plan_work *work, enum mill_consumer_record_type type,
                         const char *about, const uint8_t *value, uint32_t value_bytes);
void mill_plan_put_tombstone(struct mill_consumer_plan *plan, const struct mill_group *group,
                             enum mill_consumer_record_type type, const char *about);

/* Each adds one record. */
void mill_plan_put_member(struct mill_plan_work *work, const struct mill_consumer *member);
void mill_plan_put_epoch(struct mill_plan_work *work, int32_t epoch, int64_t hash);
void mill_plan_put_target(struct mill_plan_work *work, const char *member_id,
                          const struct mill_parts *parts);
/* That targets were made for the epoch now. */
void mill_plan_put_target_epoch(struct mill_plan_work *work, int32_t epoch);
void mill_plan_put_current(struct mill_plan_work *work, const struct mill_consumer *member);

/* Sorts, and drops what stands twice. ret: how many are left. */
uint32_t mill_plan_names_sort(char **names, uint32_t count);
/* NULL equals NULL only. */
bool mill_plan_text_equal(const char *a, const char *b);
bool mill_plan_texts_equal(char *const *a, uint32_t a_count, char *const *b, uint32_t b_count);
bool mill_plan_same_subscription(const struct mill_consumer *a, const struct mill_consumer *b);

bool mill_plan_is_removed(const struct mill_plan_work *work, const struct mill_consumer *member);
/* Lists everybody as they will be, once. Neighbours often subscribe to the same: they share a list
 * of topics. ret: false no memory. */
bool mill_plan_everybody(struct mill_plan_work *work);
/* Sets work->hash: what all topics subscribed to are like; another value, and the assignment may be
 * another. ret: false no memory. */
bool mill_plan_hash(struct mill_plan_work *work);
/* Looks at regular expressions of the group again when topics came or went, at a few of them in one
 * plan; a new one of the member that speaks must be good, and not one too many. O(topics), all
 * matches of one expression bounded together (pattern.h). ret: enum mill_kerr, with the plan's
 * message. */
int16_t mill_plan_regexes_look(struct mill_plan_work *work);
/* What the plan looked at counts: its records are in memory, or it needed none. */
void mill_plan_looked(struct mill_consumer_group *consumers, const struct mill_consumer_plan *plan);
/* Adds records of what regular expressions match now, and tombstones of those nobody has any more.
 */
void mill_plan_regexes_put(struct mill_plan_work *work);

#endif
