/* SPDX-License-Identifier: Apache-2.0 */
/* Commits and deletions of offsets while they are on their way; see offset_change.h. */
#include "control/group/offset_change.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

char *mill_change_text(struct mill_pool *pool, const struct mill_wstr *text)
{
    if (text->length < 0) {
        return NULL;
    }
    char *copy = mill_pool_take(pool, (uint64_t)text->length + 1);
    return copy && mill_wstr_copy(text, copy, (uint32_t)text->length + 1) >= 0 ? copy : NULL;
}

bool mill_change_is_nothing(const struct mill_change *change)
{
    for (uint32_t i = 0; i < change->topics_count; i++) {
        for (uint32_t k = 0; k < change->topics[i].count; k++) {
            int16_t error = change->topics[i].entries[k].error;
            if (error != MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION &&
                error != MILL_KERR_UNKNOWN_TOPIC_ID) {
                return false;
            }
        }
    }
    return true;
}

bool mill_change_exists(const struct mill_groups *groups, const struct mill_change_topic *topic,
                        int32_t partition)
{
    const struct mill_topic *found =
        topic->name
            ? mill_topics_by_name(&groups->controller->topics, topic->name, topic->name_length)
            : NULL;
    return found && partition >= 0 && (uint32_t)partition < found->record->partitions_count;
}

/* A text could not be copied for want of memory: it must not be taken for none. */
bool mill_change_lost(const struct mill_wstr *text, const char *copy)
{
    return text->length >= 0 && !copy;
}

struct mill_change *mill_change_new(struct mill_groups *groups, struct mill_admin_request *request,
                                    const struct mill_wstr *group_id, int32_t topics_count)
{
    struct mill_change *change = calloc(1, sizeof(*change));
    if (!change) {
        return NULL;
    }
    change->groups = groups;
    change->request = request;
    change->producer = (struct mill_journal_producer){.id = -1, .epoch = -1};
    change->pool.limit_bytes = request->pool.limit_bytes * 4;
    change->group_id = mill_change_text(&change->pool, group_id);
    change->topics = mill_pool_take(&change->pool,
                                    (uint64_t)MILL_MAX(topics_count, 0) * sizeof(*change->topics));
    if (!change->group_id || !change->topics || topics_count > MILL_CHANGE_PARTITIONS_MAX) {
        mill_pool_clear(&change->pool);
        free(change);
        return NULL;
    }
    return change;
}

void mill_change_free(struct mill_change *change)
{
    for (uint32_t i = 0; i < change->topics_count; i++) {
        for (uint32_t k = 0; k < change->topics[i].count; k++) {
            mill_txn_offset_free(change->groups, change->topics[i].entries[k].pending);
        }
    }
    mill_pool_clear(&change->pool);
    free(change);
}

/* Adds a topic with room for its partitions. ret: NULL no memory, or over the limit. */
struct mill_change_topic *mill_change_add_topic(struct mill_change *change,
                                                const struct mill_wstr *name, int32_t count)
{
    struct mill_change_topic *topic = &change->topics[change->topics_count];
    topic->name = mill_change_text(&change->pool, name);
    topic->name_length = (uint32_t)MILL_MAX(name->length, 0);
    topic->entries =
        count <= MILL_CHANGE_PARTITIONS_MAX
            ? mill_pool_take(&change->pool, (uint64_t)MILL_MAX(count, 0) * sizeof(*topic->entries))
            : NULL;
    if (!topic->name || !topic->entries) {
        return NULL;
    }
    change->topics_count++;
    return topic;
}

/* A copy of the name of the topic with this id, kept for as long as the pool; NULL none. */
const char *mill_topic_name_by_id(const struct mill_groups *groups, const struct mill_uuid *id,
                                  struct mill_pool *pool)
{
    const struct mill_topic *topic = mill_topics_by_id(&groups->controller->topics, id);
    bool serves = topic && mill_topics_by_name(&groups->controller->topics, topic->record->name,
                                               topic->record->name_length) == topic;
    return serves ? mill_pool_text(pool, "%s", topic->record->name) : NULL;
}

/* Adds a topic that is named by its id. ret: as change_topic. */
struct mill_change_topic *mill_change_add_topic_id(struct mill_change *change,
                                                   const struct mill_uuid *id, int32_t count)
{
    const struct mill_wstr none = {0};
    struct mill_change_topic *topic = mill_change_add_topic(change, &none, count);
    if (topic) {
        topic->id = *id;
        topic->name = mill_topic_name_by_id(change->groups, id, &change->pool);
        topic->name_length = topic->name ? (uint32_t)strlen(topic->name) : 0;
    }
    return topic;
}
