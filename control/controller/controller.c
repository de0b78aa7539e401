/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions of control; see controller.h. Order of every change: checked, committed in the store,
 * noted in the table, published in the map. A process killed between commit and publish finds the
 * difference at its next start (mill_controller_publish). */
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

static void random_id(const struct mill_controller *controller, struct mill_uuid *ret_id)
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
    random_id(controller, &fresh);
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

/* --- creation ----------------------------------------------------------------------------------
 */

static void refuse(struct mill_create *item, int16_t error, const char *message)
{
    item->error = error;
    item->message = message;
}

/* A new partition. One broker here: it leads everything. A cluster's placement walks its brokers.
 */
static struct mill_map_partition placed(const struct mill_controller *controller)
{
    return (struct mill_map_partition){
        .leader = controller->node_id,
        .replicas_count = 1,
        .isr_count = 1,
        .replicas = {controller->node_id},
        .isr_bits = 1,
    };
}

static void place(const struct mill_controller *controller, struct mill_topic *topic)
{
    for (uint32_t i = 0; i < topic->record->partitions_count; i++) {
        topic->record->partitions[i] = placed(controller);
    }
}

/* ret: 0, -EINVAL with the reason. */
static int config_check(const struct mill_meta_config *config, struct mill_report *report)
{
    enum mill_key key = mill_key_find(MILL_SCOPE_TOPIC, config->name);
    if (key == MILL_KEY_COUNT) {
        const char *near = mill_key_nearest(MILL_SCOPE_TOPIC, config->name);
        return mill_fail(report, -EINVAL, "unknown topic setting %s%s%s%s", config->name,
                         near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (!config->value) {
        return mill_fail(report, -EINVAL, "null is no value for topic setting %s", config->name);
    }
    int rc = mill_key_check(key, config->value, report);
    return rc < 0
               ? mill_fail_in(report, rc, "invalid value %s for topic setting %s: ", config->value,
                              config->name)
               : 0;
}

/* Gives a topic its settings, checked each for itself and together; fills the record's. ret: 0;
 * -EINVAL with the reason, -ENOMEM. */
static int configs_set(const struct mill_controller *controller, struct mill_topic *topic,
                       const struct mill_meta_config *configs, uint32_t configs_count,
                       struct mill_report *report)
{
    for (uint32_t i = 0; i < configs_count; i++) {
        int rc = config_check(&configs[i], report);
        if (rc < 0) {
            return rc;
        }
        if (mill_topic_set_config(topic, configs[i].name, configs[i].value) < 0) {
            return mill_fail(report, -ENOMEM, "out of memory");
        }
    }
    mill_settings_resolve(&controller->settings, topic);
    const struct mill_topic_settings *settings = &topic->record->settings;
#ifndef MILL_MUTANT_CONTROL_LAGS_CROSS
    if (settings->min_compaction_lag_ms > settings->max_compaction_lag_ms) {
        return mill_fail(
            report, -EINVAL, "min.compaction.lag.ms (%lld) is above max.compaction.lag.ms (%lld)",
            (long long)settings->min_compaction_lag_ms, (long long)settings->max_compaction_lag_ms);
    }
#endif
    return 0;
}

static int16_t config_error(int rc)
{
    return rc == -ENOMEM ? MILL_KERR_UNKNOWN_SERVER_ERROR : MILL_KERR_INVALID_CONFIG;
}

/* Before there is a topic: what is wrong with settings comes before what is wrong with numbers. */
static bool check_configs(const struct mill_controller *controller, struct mill_create *item,
                          struct mill_pool *pool)
{
    struct mill_report report = {0};
    struct mill_topic *topic = mill_topic_new(item->name, item->name_length, 0);
    int rc = topic ? configs_set(controller, topic, item->configs, item->configs_count, &report)
                   : mill_fail(&report, -ENOMEM, "out of memory");
    if (rc < 0) {
        refuse(item, config_error(rc), mill_pool_text(pool, "%s", report.text));
    }
    mill_topic_free(topic);
    return rc == 0;
}

static bool check_name(const struct mill_controller *controller, struct mill_create *item,
                       struct mill_pool *pool)
{
    if (mill_topics_by_name(&controller->topics, item->name, item->name_length)) {
        refuse(item, MILL_KERR_TOPIC_ALREADY_EXISTS,
               mill_pool_text(pool, "Topic '%s' already exists.", item->name));
        return false;
    }
    const struct mill_topic *other =
        mill_topics_colliding(&controller->topics, item->name, item->name_length);
    if (other) {
        refuse(item, MILL_KERR_INVALID_TOPIC_EXCEPTION,
               mill_pool_text(pool, "topic %s collides in metric names with topic %s", item->name,
                              other->record->name));
        return false;
    }
    return true;
}

static bool check_numbers(const struct mill_controller *controller, struct mill_create *item,
                          struct mill_pool *pool, uint32_t *ret_partitions)
{
    int64_t partitions = item->partitions;
    int64_t replicas = item->replication_factor;
    if (item->assignment_error != 0) {
        refuse(item, item->assignment_error, item->assignment_fault);
        return false;
    }
    if (item->assigned) {
        *ret_partitions = (uint32_t)item->assignment_count;
        return true;
    }
    if (partitions == -1) {
        partitions = mill_config_int(controller->config, MILL_KEY_NUM_PARTITIONS);
    }
    if (replicas == -1) {
        replicas = mill_config_int(controller->config, MILL_KEY_DEFAULT_REPLICATION_FACTOR);
    }
    if (replicas <= 0) {
        refuse(item, MILL_KERR_INVALID_REPLICATION_FACTOR, "a partition has at least one replica");
        return false;
    }
    if (partitions <= 0) {
        refuse(item, MILL_KERR_INVALID_PARTITIONS, "a topic has at least one partition");
        return false;
    }
    if (replicas > 1) {
        refuse(item, MILL_KERR_INVALID_REPLICATION_FACTOR,
               mill_pool_text(pool, "replication factor %lld is above the number of brokers, 1",
                              (long long)replicas));
        return false;
    }
    *ret_partitions = (uint32_t)MILL_MIN(partitions, (int64_t)INT32_MAX);
    return true;
}

static bool check_limits(struct mill_controller *controller, struct mill_create *item,
                         struct mill_pool *pool, uint32_t partitions, uint64_t more_topics,
                         uint64_t more_partitions)
{
    if (partitions > MILL_CONTROL_TOPIC_PARTITIONS_MAX ||
        controller->topics.partitions_count + more_partitions + partitions >
            MILL_CONTROL_PARTITIONS_MAX) {
        controller->counters.partitions_full++;
        refuse(item, MILL_KERR_POLICY_VIOLATION,
               mill_pool_text(pool, "too many partitions: at most %d per topic and %d together",
                              MILL_CONTROL_TOPIC_PARTITIONS_MAX, MILL_CONTROL_PARTITIONS_MAX));
        return false;
    }
    if (controller->topics.count + more_topics >= controller->topics_max) {
        controller->counters.topics_full++;
        refuse(item, MILL_KERR_POLICY_VIOLATION,
               mill_pool_text(pool, "too many topics: at most %u", controller->topics_max));
        return false;
    }
    return true;
}

static bool check_create(struct mill_controller *controller, struct mill_create *item,
                         struct mill_pool *pool, uint64_t more_topics, uint64_t more_partitions)
{
    struct mill_report report = {0};
    uint32_t partitions = 0;
    if (item->error != 0 || !check_name(controller, item, pool) ||
        !check_configs(controller, item, pool) ||
        !check_numbers(controller, item, pool, &partitions) ||
        !check_limits(controller, item, pool, partitions, more_topics, more_partitions)) {
        return false;
    }
    item->topic = mill_topic_new(item->name, item->name_length, partitions);
    if (!item->topic ||
        configs_set(controller, item->topic, item->configs, item->configs_count, &report) < 0) {
        refuse(item, MILL_KERR_UNKNOWN_SERVER_ERROR, "out of memory");
        return false;
    }
    if (mill_topic_is_internal(item->name, item->name_length)) {
        item->topic->record->flags |= MILL_TOPIC_INTERNAL;
    }
    place(controller, item->topic);
    if (item->assigned) {
        memcpy(item->topic->record->partitions, item->assignment,
               partitions * sizeof(item->assignment[0]));
    }
    random_id(controller, &item->topic->record->id);
    return true;
}

/* Puts a committed topic into the map; when there is no room it is taken out of the store again. */
static void publish_created(struct mill_controller *controller, struct mill_create *item)
{
    int rc = mill_map_put_topic(controller->writer, item->topic->record);
    if (rc == 0) {
        mill_topics_link(&controller->topics, item->topic);
        item->created = true;
        item->id = item->topic->record->id;
        controller->counters.topics_created++;
        return;
    }
    controller->counters.map_full++;
    refuse(item, MILL_KERR_POLICY_VIOLATION, "the partition map is full");
    rc = controller->meta.calls->remove_topic(controller->meta.store, &item->topic->record->id,
                                              &controller->report);
    if (rc < 0) {
        /* It stays in the store and is served once the map has room: say what is known. */
        refuse(item, mill_controller_store_failure(controller, rc), "the partition map is full");
    }
}

void mill_controller_create(struct mill_controller *controller, struct mill_create *items,
                            uint32_t items_count, bool validate_only, struct mill_pool *pool)
{
    struct mill_meta_topic *kept = mill_pool_take(pool, items_count * sizeof(*kept));
    uint32_t kept_count = 0;
    uint64_t partitions = 0;
    for (uint32_t i = 0; i < items_count; i++) {
        struct mill_create *item = &items[i];
        if (!kept) {
            refuse(item, MILL_KERR_UNKNOWN_SERVER_ERROR, "out of memory");
        } else if (check_create(controller, item, pool, kept_count, partitions)) {
            partitions += item->topic->record->partitions_count;
            kept[kept_count++] =
                (struct mill_meta_topic){.record = item->topic->record,
                                         .configs = item->topic->configs,
                                         .configs_count = item->topic->configs_count};
        }
    }
    if (validate_only || kept_count == 0) {
        return;
    }
    int rc = controller->meta.calls->add_topics(controller->meta.store, kept, kept_count,
                                                &controller->report);
    int16_t error = rc < 0 ? mill_controller_store_failure(controller, rc) : 0;
    for (uint32_t i = 0; i < items_count; i++) {
        if (items[i].error != 0) {
            continue;
        }
        if (rc < 0) {
            refuse(&items[i], error, mill_pool_text(pool, "%s", controller->report.text));
        } else {
            publish_created(controller, &items[i]);
        }
    }
}

/* --- growth ------------------------------------------------------------------------------------
 */

static void grow_refuse(struct mill_grow *item, int16_t error, const char *message)
{
    item->error = error;
    item->message = message;
}

static bool check_grow(struct mill_controller *controller, struct mill_grow *item,
                       struct mill_pool *pool, uint64_t more_partitions)
{
    if (item->error != 0) {
        return false;
    }
    int64_t now = item->topic->record->partitions_count;
    if ((item->topic->record->flags & MILL_TOPIC_INTERNAL) != 0) {
        /* Its records are spread by the number of partitions that it has. */
        grow_refuse(item, MILL_KERR_INVALID_REQUEST, "an internal topic cannot grow");
    } else if (item->count <= now) {
        grow_refuse(
            item, MILL_KERR_INVALID_PARTITIONS,
            item->count == now
                ? mill_pool_text(pool, "Topic already has %lld partition(s).", (long long)now)
                : mill_pool_text(pool,
                                 "Topic currently has %lld partitions, which is higher "
                                 "than the requested %d.",
                                 (long long)now, item->count));
    } else if (item->assignment && item->assignment_count != item->count - now) {
        grow_refuse(item, MILL_KERR_INVALID_REPLICA_ASSIGNMENT,
                    mill_pool_text(pool, "%lld partitions are new, but %d are assigned",
                                   (long long)(item->count - now), item->assignment_count));
    } else if (item->assignment_fault) {
        grow_refuse(item, MILL_KERR_INVALID_REPLICA_ASSIGNMENT, item->assignment_fault);
    } else if (item->count > MILL_CONTROL_TOPIC_PARTITIONS_MAX ||
               controller->topics.partitions_count + more_partitions +
                       (uint64_t)(item->count - now) >
                   MILL_CONTROL_PARTITIONS_MAX) {
        controller->counters.partitions_full++;
        grow_refuse(item, MILL_KERR_POLICY_VIOLATION,
                    mill_pool_text(pool,
                                   "too many partitions: at most %d per topic and %d together",
                                   MILL_CONTROL_TOPIC_PARTITIONS_MAX, MILL_CONTROL_PARTITIONS_MAX));
    }
    return item->error == 0;
}

/* The topic's record with the new partitions. NULL out of memory. */
static struct mill_map_topic *grown(const struct mill_controller *controller,
                                    const struct mill_grow *item)
{
    const struct mill_map_topic *old = item->topic->record;
    uint32_t count = (uint32_t)item->count;
    struct mill_map_topic *record =
        calloc(1, sizeof(*record) + count * sizeof(record->partitions[0]));
    if (!record) {
        return NULL;
    }
    memcpy(record, old, sizeof(*old) + old->partitions_count * sizeof(old->partitions[0]));
    record->partitions_count = count;
    /* The new partitions have no directory yet; it is made again once they serve. */
#ifndef MILL_MUTANT_CONTROL_GROW_MADE
    record->flags &= ~(uint32_t)MILL_TOPIC_MADE;
#endif
    for (uint32_t i = old->partitions_count; i < count; i++) {
        record->partitions[i] =
            item->assignment ? item->assignment[i - old->partitions_count] : placed(controller);
    }
    return record;
}

/* Gives the topic what was committed and tells the cores. */
static void publish_grown(struct mill_controller *controller, struct mill_grow *item,
                          struct mill_map_topic *record)
{
    if (mill_topic_grow(&controller->topics, item->topic, record) < 0) {
        /* The next start reads it from the store. */
        free(record);
        grow_refuse(item, MILL_KERR_UNKNOWN_SERVER_ERROR, "out of memory");
        return;
    }
    item->grown = true;
    item->id = record->id;
    controller->counters.topics_grown++;
    if (mill_map_put_topic(controller->writer, record) < 0) {
        controller->counters.map_full++;
        controller->unpublished = true; /* mill_controller_sweep tries again */
    }
}

void mill_controller_grow(struct mill_controller *controller, struct mill_grow *items,
                          uint32_t items_count, bool validate_only, struct mill_pool *pool)
{
    struct mill_map_topic **records =
        mill_pool_take(pool, items_count * sizeof(struct mill_map_topic *));
    const struct mill_map_topic **kept =
        mill_pool_take(pool, items_count * sizeof(const struct mill_map_topic *));
    uint32_t kept_count = 0;
    uint64_t more = 0;
    for (uint32_t i = 0; i < items_count; i++) {
        bool good = check_grow(controller, &items[i], pool, more);
        if (good && records && kept) {
            more += (uint64_t)items[i].count - items[i].topic->record->partitions_count;
            records[i] = grown(controller, &items[i]);
        }
        if (good && (!records || !kept || !records[i])) {
            grow_refuse(&items[i], MILL_KERR_UNKNOWN_SERVER_ERROR, "out of memory");
        } else if (good) {
            kept[kept_count++] = records[i];
        }
    }
    bool is_stored = kept_count > 0 && !validate_only;
#ifdef MILL_MUTANT_CONTROL_GROW_UNSTORED
    is_stored = false;
#endif
    int rc = is_stored ? controller->meta.calls->add_partitions(controller->meta.store, kept,
                                                                kept_count, &controller->report)
                       : 0;
    int16_t error = rc < 0 ? mill_controller_store_failure(controller, rc) : 0;
    for (uint32_t i = 0; i < items_count; i++) {
        if (items[i].error != 0) {
            continue;
        }
        if (rc == 0 && !validate_only) {
            publish_grown(controller, &items[i], records[i]);
            continue;
        }
        free(records[i]);
        if (rc < 0) {
            grow_refuse(&items[i], error, mill_pool_text(pool, "%s", controller->report.text));
        }
    }
}

/* --- settings ----------------------------------------------------------------------------------
 */

/* A topic of the same name with the new settings only, checked. NULL with the error set. */
static struct mill_topic *altered(const struct mill_controller *controller, struct mill_alter *item,
                                  struct mill_pool *pool)
{
    const struct mill_map_topic *record = item->topic ? item->topic->record : NULL;
    struct mill_topic *next =
        record ? mill_topic_new(record->name, record->name_length, 0) : mill_topic_new("", 0, 0);
    struct mill_report report = {0};
    int rc = next ? configs_set(controller, next, item->configs, item->configs_count, &report)
                  : mill_fail(&report, -ENOMEM, "out of memory");
    if (rc < 0) {
        item->error = config_error(rc);
        item->message = mill_pool_text(pool, "%s", report.text);
        mill_topic_free(next);
        return NULL;
    }
    if (record) {
        next->record->id = record->id;
    }
    return next;
}

/* Gives the topic what was committed and tells the cores. */
static void publish_altered(struct mill_controller *controller, struct mill_topic *topic,
                            struct mill_topic *next)
{
    mill_topic_swap_configs(topic, next);
    topic->record->settings = next->record->settings;
    controller->counters.topics_altered++;
    int rc = mill_map_put_topic(controller->writer, topic->record);
    if (rc < 0) {
        controller->counters.map_full++;
        controller->unpublished = true; /* mill_controller_sweep tries again */
    }
}

void mill_controller_alter(struct mill_controller *controller, struct mill_alter *const *items,
                           uint32_t items_count, bool validate_only, struct mill_pool *pool)
{
    struct mill_topic **nexts = mill_pool_take(pool, items_count * sizeof(struct mill_topic *));
    struct mill_meta_topic *kept = mill_pool_take(pool, items_count * sizeof(*kept));
    uint32_t kept_count = 0;
    for (uint32_t i = 0; i < items_count; i++) {
        if (items[i]->error == 0 && (!nexts || !kept)) {
            items[i]->error = MILL_KERR_UNKNOWN_SERVER_ERROR;
            items[i]->message = "out of memory";
        } else if (items[i]->error == 0) {
            nexts[i] = altered(controller, items[i], pool);
        }
        if (items[i]->error == 0 && !items[i]->topic) {
            mill_topic_free(nexts[i]);
            items[i]->error = MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION;
            items[i]->message = "there is no such topic";
        } else if (items[i]->error == 0) {
            kept[kept_count++] = (struct mill_meta_topic){.record = nexts[i]->record,
                                                          .configs = nexts[i]->configs,
                                                          .configs_count = nexts[i]->configs_count};
        }
    }
    int rc = kept_count == 0 || validate_only
                 ? 0
                 : controller->meta.calls->set_configs(controller->meta.store, kept, kept_count,
                                                       &controller->report);
    int16_t error = rc < 0 ? mill_controller_store_failure(controller, rc) : 0;
    for (uint32_t i = 0; i < items_count; i++) {
        if (items[i]->error != 0) {
            continue;
        }
        if (rc < 0) {
            items[i]->error = error;
            items[i]->message = mill_pool_text(pool, "%s", controller->report.text);
        } else if (!validate_only) {
            publish_altered(controller, items[i]->topic, nexts[i]);
        }
        mill_topic_free(nexts[i]);
    }
}

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
