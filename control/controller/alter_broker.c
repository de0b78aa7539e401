/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the broker that are altered while it runs: kept in the store by level, in the table
 * of settings, and in the map at once. Control's thread only. ref: KIP-226 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"
#include "control/controller/controller.h"
#include "protocol/errors.h"

/* In the store one broker's settings stand under its id, those of all under this. */
enum {
    NODE_ALL = -1,
};

static int32_t node_of(const struct mill_controller *controller, enum mill_settings_level level)
{
    return level == MILL_SETTINGS_BROKER ? controller->node_id : NODE_ALL;
}

/* A setting that this program does not know, or no longer takes, stays in the store. */
static int load_one(void *context, int32_t node_id, const struct mill_meta_config *config)
{
    struct mill_controller *controller = context;
    struct mill_report report = {0};
    enum mill_key key = mill_key_find(MILL_SCOPE_BROKER, config->name);
    if (node_id == MILL_GROUP_SETTINGS_NODE) {
        return mill_group_settings_load(controller, config);
    }
    if (node_id != NODE_ALL && node_id != controller->node_id) {
        return 0;
    }
    if (key == MILL_KEY_COUNT || !mill_key_is_dynamic(key) ||
        mill_key_check(key, config->value, &report) < 0) {
        mill_log_line(MILL_LEVEL_WARN, "control.setting-unknown",
                      "an altered setting is left out setting=%s value=%s %s", config->name,
                      config->value, report.text);
        return 0;
    }
    return mill_settings_put(&controller->settings,
                             node_id == NODE_ALL ? MILL_SETTINGS_CLUSTER : MILL_SETTINGS_BROKER,
                             key, config->value);
}

int mill_controller_load_broker(struct mill_controller *controller, struct mill_report *report)
{
    return controller->meta.calls->load_settings(controller->meta.store, load_one, controller,
                                                 report);
}

/* ret: 0, -EINVAL with the reason. */
static int check(const struct mill_meta_config *config, struct mill_report *report)
{
    enum mill_key key = mill_key_find(MILL_SCOPE_BROKER, config->name);
    if (key == MILL_KEY_COUNT) {
        const char *near = mill_key_nearest(MILL_SCOPE_BROKER, config->name);
        return mill_fail(report, -EINVAL, "unknown setting of a broker %s%s%s%s", config->name,
                         near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
    }
#ifndef MILL_MUTANT_CONTROL_ALTER_ALL
    if (!mill_key_is_dynamic(key)) {
        return mill_fail(report, -EINVAL,
                         "%s is read when the broker starts and cannot be altered "
                         "while it runs",
                         config->name);
    }
#endif
    int rc = mill_key_check(key, config->value, report);
    return rc < 0
               ? mill_fail_in(report, rc, "invalid value %s for %s: ", config->value, config->name)
               : 0;
}

/* The settings as they would be, as far as they must fit each other. */
enum together {
    LAG_MIN,
    LAG_MAX,
    PER_IP,
    PER_IP_OVERRIDES,
    TOGETHER_COUNT,
};

static const enum mill_key together_keys[TOGETHER_COUNT] = {
    [LAG_MIN] = MILL_KEY_LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    [LAG_MAX] = MILL_KEY_LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    [PER_IP] = MILL_KEY_MAX_CONNECTIONS_PER_IP,
    [PER_IP_OVERRIDES] = MILL_KEY_MAX_CONNECTIONS_PER_IP_OVERRIDES,
};

/* Fills in, at every level, what the key will have. */
static int put_next(const struct mill_controller *controller, const struct mill_alter_broker *item,
                    enum mill_key key, struct mill_settings *next)
{
    int rc = 0;
    for (uint32_t level = 0; level < MILL_SETTINGS_LEVELS && rc == 0; level++) {
        const char *value = controller->settings.altered[level][key];
        value = level == (uint32_t)item->level ? NULL : value;
        for (uint32_t k = 0; level == (uint32_t)item->level && k < item->configs_count; k++) {
            bool same = strcmp(item->configs[k].name, mill_key_info(key)->name) == 0;
            value = same ? item->configs[k].value : value;
        }
        rc = mill_settings_put(next, level, key, value);
    }
    return rc;
}

static int64_t next_number(const struct mill_settings *next, enum together which)
{
    const char *text = mill_settings_text(next, NULL, together_keys[which]);
    return text ? strtoll(text, NULL, 10) : 0;
}

static int check_together(const struct mill_controller *controller,
                          const struct mill_alter_broker *item, struct mill_report *report)
{
    struct mill_settings next = {.config = controller->settings.config};
    int rc = 0;
    for (uint32_t i = 0; i < TOGETHER_COUNT && rc == 0; i++) {
        rc = put_next(controller, item, together_keys[i], &next);
    }
    int64_t lag_min = next_number(&next, LAG_MIN);
    int64_t lag_max = next_number(&next, LAG_MAX);
    const char *overrides = mill_settings_text(&next, NULL, together_keys[PER_IP_OVERRIDES]);
    bool nobody =
        next_number(&next, PER_IP) == 0 && (!overrides || !mill_config_addresses_let_in(overrides));
    mill_settings_clear(&next);
    if (rc < 0) {
        return mill_fail(report, rc, "out of memory");
    }
    if (nobody) {
        return mill_fail(report, -EINVAL, "%s may be 0 only where %s lets somebody in",
                         mill_key_info(together_keys[PER_IP])->name,
                         mill_key_info(together_keys[PER_IP_OVERRIDES])->name);
    }
    return lag_min <= lag_max
               ? 0
               : mill_fail(report, -EINVAL, "%s (%lld) is above %s (%lld)",
                           mill_key_info(together_keys[LAG_MIN])->name, (long long)lag_min,
                           mill_key_info(together_keys[LAG_MAX])->name, (long long)lag_max);
}

static const char *value_of(const struct mill_alter_broker *item, const char *name)
{
    for (uint32_t i = 0; i < item->configs_count; i++) {
        if (strcmp(item->configs[i].name, name) == 0) {
            return item->configs[i].value;
        }
    }
    return NULL;
}

/* Puts the whole level in place, key by key: a value may be the very text that is there. What there
 * is no memory for is as it was until the next start reads the store: told, because it cannot be
 * undone here. */
static void take(struct mill_controller *controller, const struct mill_alter_broker *item)
{
    for (enum mill_key key = 0; key < MILL_KEY_COUNT; key++) {
        const struct mill_key_info *info = mill_key_info(key);
        const char *value = info->scope == MILL_SCOPE_BROKER ? value_of(item, info->name) : NULL;
        value = value || !info->alias ? value : value_of(item, info->alias);
        if (mill_settings_put(&controller->settings, item->level, key, value) < 0) {
            mill_log_line(MILL_LEVEL_ERROR, "control.no-memory",
                          "an altered setting holds from the next start on setting=%s", info->name);
        }
    }
}

void mill_controller_alter_broker(struct mill_controller *controller,
                                  struct mill_alter_broker *item, bool validate_only,
                                  struct mill_pool *pool)
{
    struct mill_report report = {0};
    int rc = 0;
    for (uint32_t i = 0; i < item->configs_count && rc == 0; i++) {
        rc = check(&item->configs[i], &report);
    }
    rc = rc < 0 ? rc : check_together(controller, item, &report);
    if (rc < 0) {
        /* Not INVALID_CONFIG: Kafka refuses settings of a broker so. */
        item->error = rc == -ENOMEM ? MILL_KERR_UNKNOWN_SERVER_ERROR : MILL_KERR_INVALID_REQUEST;
        item->message = mill_pool_text(pool, "%s", report.text);
        return;
    }
    if (validate_only) {
        return;
    }
#ifndef MILL_MUTANT_CONTROL_ALTER_UNSTORED
    rc = controller->meta.calls->set_settings(controller->meta.store,
                                              node_of(controller, item->level), item->configs,
                                              item->configs_count, &controller->report);
#endif
    if (rc < 0) {
        item->error = mill_controller_store_failure(controller, rc);
        item->message = mill_pool_text(pool, "%s", controller->report.text);
        return;
    }
    take(controller, item);
    mill_controller_republish(controller);
}
