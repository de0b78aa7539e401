/* SPDX-License-Identifier: Apache-2.0 */
/* Control's own table of topics: what the store holds and what the cores said of it. Names are
 * hashed with '_' in place of '.', so that two names that collide in metrics meet in one bucket.
 * Control's thread only. */
#ifndef MILL_CONTROL_CONTROLLER_TOPICS_H
#define MILL_CONTROL_CONTROLLER_TOPICS_H

#include "control/meta/meta.h"
#include "ipc/frames.h"

struct mill_topic {
    struct mill_topic *next_name; /* bucket chains */
    struct mill_topic *next_id;
    struct mill_topic *next; /* all topics */
    struct mill_topic *prev;
    struct mill_map_topic *record; /* as published; its settings are resolved */
    struct mill_meta_config *configs;
    uint32_t configs_count;
    uint32_t serving_count; /* partitions in this state */
    uint32_t failed_count;
    uint32_t gone_count;
    uint8_t *states; /* enum mill_partition_state per partition, 0 unknown */
};

struct mill_topics {
    struct mill_topic **names;
    struct mill_topic **ids;
    struct mill_topic *first;
    uint32_t mask;
    uint32_t count;
    uint32_t deleting_count;
    uint64_t partitions_count;
    uint64_t key[2];
};

int mill_topics_init(struct mill_topics *topics, uint32_t topics_max) MILL_WARN_UNUSED;
void mill_topics_clear(struct mill_topics *topics);

/* An unlinked topic with zeroed record. ret: NULL out of memory. */
struct mill_topic *mill_topic_new(const char *name, uint32_t length, uint32_t partitions_count);
/* Sets or replaces a setting. ret: 0, -ENOMEM. */
int mill_topic_set_config(struct mill_topic *topic, const char *name,
                          const char *value) MILL_WARN_UNUSED;
/* Takes the settings of another topic, and gives it its own. */
void mill_topic_swap_configs(struct mill_topic *topic, struct mill_topic *other);
/* Value of the topic's own setting, or NULL. */
const char *mill_topic_config(const struct mill_topic *topic, const char *name);
/* Gives a linked topic a record with more partitions: takes record, frees the old one. states grow
 * with it. ret: 0; -ENOMEM, nothing changed and record still the caller's. */
int mill_topic_grow(struct mill_topics *topics, struct mill_topic *topic,
                    struct mill_map_topic *record) MILL_WARN_UNUSED;
void mill_topic_free(struct mill_topic *topic);

void mill_topics_link(struct mill_topics *topics, struct mill_topic *topic);
void mill_topics_unlink(struct mill_topics *topics, struct mill_topic *topic);

/* The topic that serves under this name (not one being deleted). */
struct mill_topic *mill_topics_by_name(const struct mill_topics *topics, const char *name,
                                       uint32_t length);
/* Another serving topic whose name differs only by '.' against '_'. */
struct mill_topic *mill_topics_colliding(const struct mill_topics *topics, const char *name,
                                         uint32_t length);
struct mill_topic *mill_topics_by_id(const struct mill_topics *topics, const struct mill_uuid *id);

/* Notes what a core said of a partition. ret: true when something changed. */
bool mill_topic_note_state(struct mill_topic *topic, int32_t partition, uint32_t state);
/* Forgets all states: another data plane runs now. */
void mill_topics_forget_states(struct mill_topics *topics);

#endif
