/* SPDX-License-Identifier: Apache-2.0 */
/* What groups of the consumer protocol see of the controller: its topics, and their settings. */
#include <stdio.h>
#include <string.h>

#include "control/group/groups.h"

static bool topic_by_name(void *context, const char *name, struct mill_assign_topic *ret)
{
    struct mill_groups *groups = context;
    const struct mill_topic *topic =
        mill_topics_by_name(&groups->controller->topics, name, (uint32_t)strlen(name));
    if (topic) {
        *ret = (struct mill_assign_topic){.id = topic->record->id,
                                          .partitions_count = topic->record->partitions_count};
    }
    return topic != NULL;
}

static const char *topic_by_id(void *context, const struct mill_uuid *id)
{
    struct mill_groups *groups = context;
    const struct mill_topic *topic = mill_topics_by_id(&groups->controller->topics, id);
    return topic ? topic->record->name : NULL;
}

/* Also internal ones, as in Kafka: clients that want none of them leave them out themselves. */
static void topics_each(void *context, void (*visit)(void *visitor, const char *name),
                        void *visitor)
{
    struct mill_groups *groups = context;
    for (const struct mill_topic *topic = groups->controller->topics.first; topic;
         topic = topic->next) {
        const struct mill_map_topic *record = topic->record;
        if (mill_topics_by_name(&groups->controller->topics, record->name, record->name_length) ==
            topic) {
            visit(visitor, record->name);
        }
    }
}

uint64_t mill_consumers_topics_version(const struct mill_groups *groups)
{
    const struct mill_controller_counters *counters = &groups->controller->counters;
    return 1 + counters->topics_created + counters->topics_deleted + counters->topics_grown;
}

static void own_times(void *context, const char *group_id, struct mill_consumer_times *ret)
{
    const struct mill_controller *controller = context;
    if (mill_group_settings_find(controller, group_id)) {
        *ret = (struct mill_consumer_times){
            .session_timeout_ms =
                mill_group_setting(controller, group_id, MILL_GROUP_KEY_SESSION_TIMEOUT),
            .heartbeat_ms =
                mill_group_setting(controller, group_id, MILL_GROUP_KEY_HEARTBEAT_INTERVAL),
            .assignment_interval_ms =
                mill_group_setting(controller, group_id, MILL_GROUP_KEY_ASSIGNMENT_INTERVAL)};
    }
}

/* Which assignors the setting names, and the first of them. */
static void assignors_set(struct mill_groups *groups)
{
    const char *list = mill_config_text(groups->config, MILL_KEY_GROUP_CONSUMER_ASSIGNORS);
    char copy[256];
    char *rest = copy;
    snprintf(copy, sizeof(copy), "%s", list);
    for (char *word = strtok_r(copy, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        enum mill_assignor assignor = mill_assignor_of(word);
        if (assignor == MILL_ASSIGNOR_COUNT) {
            continue; /* the list of words is checked when the file is read */
        }
        if (groups->consumer.assignors == 0) {
            groups->consumer.preferred = assignor;
        }
        groups->consumer.assignors |= 1u << assignor;
    }
}

void mill_consumers_open(struct mill_groups *groups)
{
    groups->consumer = (struct mill_consumer_env){
        .group = &groups->env,
        .topics = {.context = groups,
                   .version = mill_consumers_topics_version(groups),
                   .by_name = topic_by_name,
                   .by_id = topic_by_id,
                   .each = topics_each},
        .times = {.session_timeout_ms =
                      mill_config_int(groups->config, MILL_KEY_GROUP_CONSUMER_SESSION_TIMEOUT_MS),
                  .heartbeat_ms = mill_config_int(groups->config,
                                                  MILL_KEY_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),
                  .assignment_interval_ms = mill_config_int(
                      groups->config, MILL_KEY_GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS)},
        .own_times = own_times,
        .own_context = groups->controller,
        .size_max = mill_config_int(groups->config, MILL_KEY_GROUP_CONSUMER_MAX_SIZE),
    };
    const char *policy = mill_config_text(groups->config, MILL_KEY_GROUP_CONSUMER_MIGRATION_POLICY);
    bool both = strcasecmp(policy, "bidirectional") == 0;
    groups->consumer.upgrades = both || strcasecmp(policy, "upgrade") == 0;
    groups->consumer.downgrades = both || strcasecmp(policy, "downgrade") == 0;
    assignors_set(groups);
}
