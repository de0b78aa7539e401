/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions of control; see controller.h; changes of topics: topic_changes.c. Order of every
 * change: checked, committed in the store, noted in the table, published in the map. A process
 * killed between commit and publish finds the difference at its next start
 * (mill_controller_publish). */
#include "control/controller/controller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log_line.h"
#include "control/meta/data.h"
#include "protocol/errors.h"

enum {
    STRAYS_TOLD = 8,
};

int16_t mill_controller_store_failure(struct mill_controller *controller, int rc)
{
    controller->counters.store_failed++;
    mill_log_line(MILL_LEVEL_ERROR, "control.store-failed", "%s", controller->report.text);
    return rc == -ENOSPC || rc == -EROFS || rc == -EIO ? MILL_KERR_KAFKA_STORAGE_ERROR
                                                       : MILL_KERR_UNKNOWN_SERVER_ERROR;
}

/* --- open, load, publish -----------------------------------------------------------------------
 */

int mill_controller_open(struct mill_controller *controller, const struct mill_config *config,
                         const struct mill_meta *meta, struct mill_map *map,
                         mill_control_random random, void *random_context,
                         struct mill_report *report)
{
    *controller = (struct mill_controller){
        .config = config,
        .settings = {.config = config},
        .meta = *meta,
        .map = map,
        .random = random,
        .random_context = random_context,
        .node_id = (int32_t)mill_config_int(config, MILL_KEY_NODE_ID),
        .topics_max = mill_map_slots_max(map),
    };
    int rc = mill_topics_init(&controller->topics, controller->topics_max);
    if (rc < 0) {
        return mill_fail(report, rc, "control: out of memory");
    }
    random(random_context, controller->topics.key, sizeof(controller->topics.key));
    rc = mill_map_writer_open(map, &controller->writer, report);
    if (rc < 0) {
        mill_controller_close(controller);
    }
    return rc;
}

void mill_controller_close(struct mill_controller *controller)
{
    mill_settings_clear(&controller->settings);
    mill_group_settings_clear(&controller->group_settings);
    mill_topics_clear(&controller->topics);
    mill_quota_clear(&controller->quotas);
    mill_map_writer_close(controller->writer);
    controller->writer = NULL;
}

static int load_topic(void *context, const struct mill_meta_topic *kept)
{
    struct mill_controller *controller = context;
    const struct mill_map_topic *record = kept->record;
    struct mill_topic *topic =
        mill_topic_new(record->name, record->name_length, record->partitions_count);
    if (!topic) {
        return -ENOMEM;
    }
    memcpy(topic->record, record,
           sizeof(*record) + record->partitions_count * sizeof(record->partitions[0]));
    for (uint32_t i = 0; i < kept->configs_count; i++) {
        int rc = mill_topic_set_config(topic, kept->configs[i].name, kept->configs[i].value);
        if (rc < 0) {
            mill_topic_free(topic);
            return rc;
        }
    }
    mill_settings_resolve(&controller->settings, topic);
    mill_topics_link(&controller->topics, topic);
    return 0;
}

void mill_controller_random_id(const struct mill_controller *controller, struct mill_uuid *ret_id)
{
    do {
        controller->random(controller->random_context, ret_id->b, sizeof(ret_id->b));
        /* Version 4 of RFC 9562, as Kafka makes them; 0 and 1 are reserved there. */
        ret_id->b[6] = (uint8_t)((ret_id->b[6] & 0x0f) | 0x40);
        ret_id->b[8] = (uint8_t)((ret_id->b[8] & 0x3f) | 0x80);
        /* A text that begins with '-' looks like an option on a command line. */
    } while ((ret_id->b[0] & 0xfc) == 0xf8);
}

int mill_controller_load(struct mill_controller *controller, struct mill_report *report)
{
    const struct mill_meta_calls *calls = controller->meta.calls;
    void *store = controller->meta.store;
    struct mill_uuid fresh;
    mill_controller_random_id(controller, &fresh);
    int rc = calls->broker(store, controller->node_id, report);
    if (rc == 0) {
        rc = calls->cluster_id(store, &fresh, &controller->cluster_id, report);
    }
    if (rc == 0) {
        rc = mill_controller_load_broker(controller, report);
    }
    if (rc == 0) {
        rc = calls->load(store, load_topic, controller, report);
        if (rc == -ENOMEM) {
            return mill_fail(report, rc, "control: out of memory");
        }
    }
    return rc == 0 ? mill_controller_load_quotas(controller, report) : rc;
}

struct strays {
    struct mill_controller *controller;
    uint32_t count;
};

/* A partition's directory that no topic knows: left alone, and named. */
static int tell_stray(void *context, const char *dir, const char *name)
{
    struct strays *strays = context;
    const char *dash = strrchr(name, '-');
    size_t length = (size_t)(dash - name);
    unsigned long partition = strtoul(dash + 1, NULL, 10);
    const struct mill_topic *topic =
        mill_topics_by_name(&strays->controller->topics, name, (uint32_t)length);
    if (topic && partition < topic->record->partitions_count) {
        return 0;
    }
    for (topic = strays->controller->topics.first; topic; topic = topic->next) {
        if ((topic->record->flags & MILL_TOPIC_DELETING) && topic->record->name_length == length &&
            memcmp(topic->record->name, name, length) == 0 &&
            partition < topic->record->partitions_count) {
            return 0;
        }
    }
    if (mill_meta_holds_data(dir, name) && strays->count++ < STRAYS_TOLD) {
        mill_log_line(MILL_LEVEL_WARN, "control.stray",
                      "a partition that the metadata does not know: left alone path=%s/%s", dir,
                      name);
    }
    return 0;
}

void mill_controller_tell_strays(struct mill_controller *controller)
{
    struct strays strays = {.controller = controller};
    struct mill_report report = {""};
    const char *const *dirs = NULL;
    uint32_t count = mill_config_log_dirs(controller->config, &dirs);
    int rc = mill_meta_find_data(dirs, count, tell_stray, &strays, &report);
    if (rc < 0) {
        mill_log_line(MILL_LEVEL_WARN, "control.stray", "%s", report.text);
    } else if (strays.count > STRAYS_TOLD) {
        mill_log_line(MILL_LEVEL_WARN, "control.stray", "more such partitions count=%u",
                      strays.count - STRAYS_TOLD);
    }
}

static int publish_cluster(struct mill_controller *controller, struct mill_report *report)
{
    const struct mill_config_listener *listeners = NULL;
    uint32_t count = mill_config_listeners(controller->config, &listeners);
    struct mill_map_cluster *cluster = calloc(1, sizeof(*cluster) + sizeof(struct mill_map_broker));
    if (!cluster) {
        return mill_fail(report, -ENOMEM, "control: out of memory");
    }
    char id[MILL_UUID_TEXT_BYTES];
    mill_uuid_format(&controller->cluster_id, id);
    memcpy(cluster->cluster_id, id, sizeof(id));
    cluster->controller_id = controller->node_id;
    cluster->brokers_count = 1;
    cluster->auto_create = mill_config_bool(controller->config, MILL_KEY_AUTO_CREATE_TOPICS_ENABLE);
    mill_settings_broker(&controller->settings, &cluster->settings);
    struct mill_map_broker *broker = &cluster->brokers[0];
    broker->node_id = controller->node_id;
    broker->cores_count = mill_config_core_endpoints(controller->config);
    broker->endpoints_count = MILL_MIN(count, (uint32_t)MILL_MAP_LISTENERS_MAX);
    for (uint32_t i = 0; i < broker->endpoints_count; i++) {
        struct mill_map_endpoint *endpoint = &broker->endpoints[i];
        static_assert(sizeof(endpoint->listener) == sizeof(listeners->name), "same room");
        static_assert(sizeof(endpoint->host) == sizeof(listeners->advertised_host), "same room");
        memcpy(endpoint->listener, listeners[i].name, sizeof(endpoint->listener));
        memcpy(endpoint->host, listeners[i].advertised_host, sizeof(endpoint->host));
        endpoint->port = listeners[i].advertised_port;
    }
    const struct mill_map_cluster *old = mill_map_cluster_read(controller->map);
    int rc = 0;
    if (!old || old->brokers_count != 1 ||
        memcmp(old, cluster, sizeof(*cluster) + sizeof(*broker)) != 0) {
        rc = mill_map_put_cluster(controller->writer, cluster);
    }
    free(cluster);
    return rc < 0 ? mill_fail(report, rc, "partition map: no room for the cluster record") : 0;
}

/* True when the map holds the topic as it is. */
static bool is_published(const struct mill_controller *controller, const struct mill_topic *topic)
{
    const struct mill_map_topic *there = mill_map_topic_by_id(controller->map, &topic->record->id);
    if (!there) {
        return false;
    }
    topic->record->slot = there->slot;
    return there->partitions_count == topic->record->partitions_count &&
           memcmp(there, topic->record,
                  sizeof(*there) + there->partitions_count * sizeof(struct mill_map_partition)) ==
               0;
}

static int publish_topics(struct mill_controller *controller, bool deleting,
                          struct mill_report *report)
{
    for (struct mill_topic *topic = controller->topics.first; topic; topic = topic->next) {
        bool is_deleting = (topic->record->flags & MILL_TOPIC_DELETING) != 0;
        if (is_deleting != deleting || is_published(controller, topic)) {
            continue;
        }
        int rc = mill_map_put_topic(controller->writer, topic->record);
        if (rc < 0) {
            return mill_fail(report, rc, "partition map: no room for topic %s",
                             topic->record->name);
        }
    }
    return 0;
}

int mill_controller_publish(struct mill_controller *controller, struct mill_report *report)
{
    int rc = publish_cluster(controller, report);
    if (rc == 0 && mill_controller_publish_quotas(controller) < 0) {
        rc = mill_fail(report, -ENOSPC, "partition map: no room for the quotas");
    }
    /* What the map has and the store does not: the store was put back to an older copy. The files
     * are not touched, and somebody must hear of it. */
    for (uint32_t slot = 0; slot < mill_map_slots(controller->map); slot++) {
        const struct mill_map_topic *there = mill_map_topic_at(controller->map, slot);
        if (there && !mill_topics_by_id(&controller->topics, &there->id)) {
            mill_log_line(MILL_LEVEL_WARN, "control.topic-unknown",
                          "a topic of the partition map is not in the metadata store topic=%s",
                          there->name);
            struct mill_uuid id = there->id;
            int removed = mill_map_remove_topic(controller->writer, &id);
            MILL_UNUSED(removed);
        }
    }
    /* Those being deleted first, so that a serving topic of the same name has the name. */
    if (rc == 0) {
        rc = publish_topics(controller, true, report);
    }
#ifdef MILL_MUTANT_CONTROL_START_UNPUBLISHED
    return rc;
#endif
    return rc == 0 ? publish_topics(controller, false, report) : rc;
}

/* --- published again ---------------------------------------------------------------------------
 */

void mill_controller_republish(struct mill_controller *controller)
{
    struct mill_report report = {0};
    for (struct mill_topic *topic = controller->topics.first; topic; topic = topic->next) {
        mill_settings_resolve(&controller->settings, topic);
    }
    int rc = publish_cluster(controller, &report);
    rc = rc < 0 ? rc : publish_topics(controller, false, &report);
    if (rc < 0) {
        controller->counters.map_full++;
        controller->unpublished = true; /* mill_controller_sweep tries again */
    }
}

/* --- deletion ----------------------------------------------------------------------------------
 */

int16_t mill_controller_delete(struct mill_controller *controller, struct mill_topic **topics,
                               uint32_t topics_count)
{
    struct mill_uuid *ids = calloc(MILL_MAX(topics_count, 1u), sizeof(*ids));
    if (!ids) {
        return MILL_KERR_UNKNOWN_SERVER_ERROR;
    }
    for (uint32_t i = 0; i < topics_count; i++) {
        ids[i] = topics[i]->record->id;
    }
    int rc = controller->meta.calls->mark_deleting(controller->meta.store, ids, topics_count,
                                                   &controller->report);
    free(ids);
    if (rc < 0) {
        return mill_controller_store_failure(controller, rc);
    }
    for (uint32_t i = 0; i < topics_count; i++) {
        topics[i]->record->flags |= MILL_TOPIC_DELETING;
        controller->topics.deleting_count++;
        controller->counters.topics_deleted++;
        rc = mill_map_put_topic(controller->writer, topics[i]->record);
        if (rc < 0) {
            controller->counters.map_full++; /* mill_controller_sweep tries again */
        }
    }
    return MILL_KERR_NONE;
}

/* All its partitions serve, and the store does not know yet. */
static bool is_newly_made(const struct mill_topic *topic)
{
    return (topic->record->flags & (MILL_TOPIC_MADE | MILL_TOPIC_DELETING)) == 0 &&
           topic->serving_count == topic->record->partitions_count;
}

bool mill_controller_note(struct mill_controller *controller,
                          const struct mill_event_partition *event)
{
    struct mill_topic *topic = mill_topics_by_id(&controller->topics, &event->topic_id);
    uint32_t failed_before = topic ? topic->failed_count : 0;
    bool changed = topic && mill_topic_note_state(topic, event->partition, event->state);
    if (changed) {
        controller->counters.partitions_failed += topic->failed_count;
        controller->counters.partitions_failed -= failed_before;
        controller->made_count += is_newly_made(topic) ? 1 : 0;
    }
    return changed;
}

void mill_controller_forget_states(struct mill_controller *controller)
{
    mill_topics_forget_states(&controller->topics);
    controller->counters.partitions_failed = 0;
}

const struct mill_controller_counters *mill_controller_count(struct mill_controller *controller)
{
    const struct mill_topics *topics = &controller->topics;
    controller->counters.topics = topics->count - topics->deleting_count;
    controller->counters.partitions = topics->partitions_count;
    controller->counters.topics_deleting = topics->deleting_count;
    return &controller->counters;
}

void mill_controller_keep_made(struct mill_controller *controller)
{
    struct mill_uuid *ids = calloc(controller->topics.count + 1, sizeof(ids[0]));
    uint32_t count = 0;
    for (struct mill_topic *topic = controller->topics.first; ids && topic; topic = topic->next) {
        if (is_newly_made(topic)) {
            ids[count++] = topic->record->id;
        }
    }
    int rc = ids ? 0 : -ENOMEM;
    if (count > 0) {
        rc = controller->meta.calls->mark_made(controller->meta.store, ids, count,
                                               &controller->report);
    }
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        mill_topics_by_id(&controller->topics, &ids[i])->record->flags |= MILL_TOPIC_MADE;
    }
    controller->made_count = rc < 0 ? controller->made_count : 0;
    free(ids);
}

/* What was committed while the map had no room. */
static void publish_waiting(struct mill_controller *controller)
{
    struct mill_report report = {0};
    if (controller->quotas_unpublished) {
        controller->counters.map_full += mill_controller_publish_quotas(controller) < 0 ? 1 : 0;
    }
    if (controller->unpublished) {
        int rc = publish_cluster(controller, &report);
        rc = rc < 0 ? rc : publish_topics(controller, false, &report);
        controller->counters.map_full += rc < 0 ? 1 : 0;
        controller->unpublished = rc < 0;
    }
}

uint32_t mill_controller_sweep(struct mill_controller *controller)
{
    uint32_t removed = 0;
    publish_waiting(controller);
    struct mill_topic *next = NULL;
    for (struct mill_topic *topic = controller->topics.first;
         topic && controller->topics.deleting_count > 0; topic = next) {
        next = topic->next;
        if ((topic->record->flags & MILL_TOPIC_DELETING) == 0) {
            continue;
        }
        if (topic->gone_count < topic->record->partitions_count) {
            if (!is_published(controller, topic)) {
                int rc = mill_map_put_topic(controller->writer, topic->record);
                controller->counters.map_full += rc < 0 ? 1 : 0;
            }
            continue;
        }
        int rc = controller->meta.calls->remove_topic(controller->meta.store, &topic->record->id,
                                                      &controller->report);
        if (rc < 0) {
            mill_controller_store_failure(controller, rc);
            break; /* stays flagged; tried again with the next event or second */
        }
        rc = mill_map_remove_topic(controller->writer, &topic->record->id);
        if (rc < 0 && rc != -ENOENT) {
            mill_log_line(MILL_LEVEL_WARN, "control.map-remove", "topic=%s error=%d",
                          topic->record->name, rc);
        }
        mill_topics_unlink(&controller->topics, topic);
        mill_topic_free(topic);
        controller->counters.topics_gone++;
        removed++;
    }
    return removed;
}

int mill_controller_take_ids(struct mill_controller *controller, int64_t *ret_first)
{
    int rc = controller->meta.calls->take_ids(controller->meta.store, MILL_CONTROL_ID_BLOCK,
                                              ret_first, &controller->report);
    if (rc < 0) {
        mill_controller_store_failure(controller, rc);
    } else {
        controller->counters.id_blocks++;
    }
    return rc;
}
