/* SPDX-License-Identifier: Apache-2.0 */
/* Topics that are made, grown and altered: what a request asks is checked, committed in the store,
 * noted in the table and published in the map. See controller.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "control/controller/controller.h"
#include "protocol/errors.h"

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
    mill_controller_random_id(controller, &item->topic->record->id);
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
