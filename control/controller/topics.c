/* SPDX-License-Identifier: Apache-2.0 */
/* Control's table of topics; see topics.h. */
#include "control/controller/topics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/siphash.h"

int mill_topics_init(struct mill_topics *topics, uint32_t topics_max)
{
    uint32_t buckets = 64;
    while (buckets < topics_max) {
        buckets *= 2;
    }
    *topics = (struct mill_topics){.mask = buckets - 1};
    topics->names = calloc(buckets, sizeof(struct mill_topic *));
    topics->ids = calloc(buckets, sizeof(struct mill_topic *));
    if (!topics->names || !topics->ids) {
        mill_topics_clear(topics);
        return -ENOMEM;
    }
    return 0;
}

void mill_topics_clear(struct mill_topics *topics)
{
    while (topics->first) {
        struct mill_topic *topic = topics->first;
        topics->first = topic->next;
        mill_topic_free(topic);
    }
    free(topics->names);
    free(topics->ids);
    *topics = (struct mill_topics){0};
}

struct mill_topic *mill_topic_new(const char *name, uint32_t length, uint32_t partitions_count)
{
    MILL_ASSERT_LE(length, (uint32_t)MILL_TOPIC_NAME_MAX);
    struct mill_topic *topic = calloc(1, sizeof(*topic));
    if (!topic) {
        return NULL;
    }
    topic->record = calloc(1, sizeof(*topic->record) +
                                  (size_t)partitions_count * sizeof(struct mill_map_partition));
    topic->states = calloc(MILL_MAX(partitions_count, 1u), 1);
    if (!topic->record || !topic->states) {
        mill_topic_free(topic);
        return NULL;
    }
    topic->record->partitions_count = partitions_count;
    topic->record->name_length = (uint16_t)length;
    memcpy(topic->record->name, name, length);
    return topic;
}

void mill_topic_free(struct mill_topic *topic)
{
    if (!topic) {
        return;
    }
    for (uint32_t i = 0; i < topic->configs_count; i++) {
        free((char *)(uintptr_t)topic->configs[i].name);
        free((char *)(uintptr_t)topic->configs[i].value);
    }
    free(topic->configs);
    free(topic->record);
    free(topic->states);
    free(topic);
}

int mill_topic_set_config(struct mill_topic *topic, const char *name, const char *value)
{
    char *kept = strdup(value);
    if (!kept) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < topic->configs_count; i++) {
        if (strcmp(topic->configs[i].name, name) == 0) {
            free((char *)(uintptr_t)topic->configs[i].value);
            topic->configs[i].value = kept;
            return 0;
        }
    }
    struct mill_meta_config *more =
        realloc(topic->configs, (topic->configs_count + 1) * sizeof(topic->configs[0]));
    if (more) {
        topic->configs = more;
        more[topic->configs_count] = (struct mill_meta_config){.name = strdup(name), .value = kept};
    }
    if (!more || !more[topic->configs_count].name) {
        free(kept);
        return -ENOMEM;
    }
    topic->configs_count++;
    return 0;
}

void mill_topic_swap_configs(struct mill_topic *topic, struct mill_topic *other)
{
    struct mill_meta_config *configs = topic->configs;
    uint32_t count = topic->configs_count;
    topic->configs = other->configs;
    topic->configs_count = other->configs_count;
    other->configs = configs;
    other->configs_count = count;
}

const char *mill_topic_config(const struct mill_topic *topic, const char *name)
{
    for (uint32_t i = 0; i < topic->configs_count; i++) {
        if (strcmp(topic->configs[i].name, name) == 0) {
            return topic->configs[i].value;
        }
    }
    return NULL;
}

static uint32_t name_bucket(const struct mill_topics *topics, const char *name, uint32_t length)
{
    char plain[MILL_TOPIC_NAME_MAX];
    MILL_ASSERT_LE(length, (uint32_t)sizeof(plain));
    for (uint32_t i = 0; i < length; i++) {
        plain[i] = name[i] == '.' ? '_' : name[i];
    }
    return (uint32_t)mill_siphash(topics->key, plain, length) & topics->mask;
}

/* NULL also for a name that no topic can have: clients and logs say what they like. */
static struct mill_topic *first_named(const struct mill_topics *topics, const char *name,
                                      uint32_t length)
{
#ifndef MILL_MUTANT_CONTROL_NAME_ANY_LENGTH
    if (length > MILL_TOPIC_NAME_MAX) {
        return NULL;
    }
#endif
    return topics->names[name_bucket(topics, name, length)];
}

static uint32_t id_bucket(const struct mill_topics *topics, const struct mill_uuid *id)
{
    return (uint32_t)mill_siphash(topics->key, id->b, sizeof(id->b)) & topics->mask;
}

static bool is_deleting(const struct mill_topic *topic)
{
    return (topic->record->flags & MILL_TOPIC_DELETING) != 0;
}

void mill_topics_link(struct mill_topics *topics, struct mill_topic *topic)
{
    const struct mill_map_topic *record = topic->record;
    struct mill_topic **name =
        &topics->names[name_bucket(topics, record->name, record->name_length)];
    struct mill_topic **id = &topics->ids[id_bucket(topics, &record->id)];
    topic->next_name = *name;
    *name = topic;
    topic->next_id = *id;
    *id = topic;
    topic->prev = NULL;
    topic->next = topics->first;
    if (topics->first) {
        topics->first->prev = topic;
    }
    topics->first = topic;
    topics->count++;
    topics->partitions_count += record->partitions_count;
    topics->deleting_count += is_deleting(topic) ? 1 : 0;
}

void mill_topics_unlink(struct mill_topics *topics, struct mill_topic *topic)
{
    const struct mill_map_topic *record = topic->record;
    struct mill_topic **at = &topics->names[name_bucket(topics, record->name, record->name_length)];
    while (*at != topic) {
        at = &(*at)->next_name;
    }
    *at = topic->next_name;
    at = &topics->ids[id_bucket(topics, &record->id)];
    while (*at != topic) {
        at = &(*at)->next_id;
    }
    *at = topic->next_id;
    if (topic->prev) {
        topic->prev->next = topic->next;
    } else {
        topics->first = topic->next;
    }
    if (topic->next) {
        topic->next->prev = topic->prev;
    }
    topics->count--;
    topics->partitions_count -= record->partitions_count;
    topics->deleting_count -= is_deleting(topic) ? 1 : 0;
}

static bool same_but_dots(const char *a, const char *b, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        if (a[i] != b[i] && !((a[i] == '.' || a[i] == '_') && (b[i] == '.' || b[i] == '_'))) {
            return false;
        }
    }
    return true;
}

struct mill_topic *mill_topics_by_name(const struct mill_topics *topics, const char *name,
                                       uint32_t length)
{
    struct mill_topic *topic = first_named(topics, name, length);
    while (topic && (is_deleting(topic) || topic->record->name_length != length ||
                     memcmp(topic->record->name, name, length) != 0)) {
        topic = topic->next_name;
    }
    return topic;
}

struct mill_topic *mill_topics_colliding(const struct mill_topics *topics, const char *name,
                                         uint32_t length)
{
    struct mill_topic *topic = first_named(topics, name, length);
    while (topic && (is_deleting(topic) || topic->record->name_length != length ||
                     memcmp(topic->record->name, name, length) == 0 ||
                     !same_but_dots(topic->record->name, name, length))) {
        topic = topic->next_name;
    }
    return topic;
}

struct mill_topic *mill_topics_by_id(const struct mill_topics *topics, const struct mill_uuid *id)
{
    struct mill_topic *topic = topics->ids[id_bucket(topics, id)];
    while (topic && !mill_uuid_equal(&topic->record->id, id)) {
        topic = topic->next_id;
    }
    return topic;
}

static uint32_t *count_of(struct mill_topic *topic, uint32_t state)
{
    switch (state) {
    case MILL_PARTITION_SERVING:
        return &topic->serving_count;
    case MILL_PARTITION_FAILED:
        return &topic->failed_count;
    case MILL_PARTITION_GONE:
        return &topic->gone_count;
    default:
        return NULL;
    }
}

int mill_topic_grow(struct mill_topics *topics, struct mill_topic *topic,
                    struct mill_map_topic *record)
{
    uint32_t old_count = topic->record->partitions_count;
    MILL_ASSERT_LE(old_count, record->partitions_count);
    uint8_t *states = realloc(topic->states, record->partitions_count);
    if (!states) {
        return -ENOMEM;
    }
    memset(states + old_count, 0, record->partitions_count - old_count);
    topic->states = states;
    topics->partitions_count += record->partitions_count - old_count;
    free(topic->record);
    topic->record = record;
    return 0;
}

bool mill_topic_note_state(struct mill_topic *topic, int32_t partition, uint32_t state)
{
    uint32_t *count = count_of(topic, state);
    if (!count || partition < 0 || (uint32_t)partition >= topic->record->partitions_count ||
        topic->states[partition] == state) {
        return false;
    }
    uint32_t *old = count_of(topic, topic->states[partition]);
    if (old) {
        (*old)--;
    }
    (*count)++;
    topic->states[partition] = (uint8_t)state;
    return true;
}

void mill_topics_forget_states(struct mill_topics *topics)
{
    for (struct mill_topic *topic = topics->first; topic; topic = topic->next) {
        memset(topic->states, 0, topic->record->partitions_count);
        topic->serving_count = topic->failed_count = topic->gone_count = 0;
    }
}
