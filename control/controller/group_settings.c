/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of groups; see group_settings.h. */
#include "control/controller/group_settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"
#include "control/controller/controller.h"
#include "protocol/errors.h"

static const struct mill_group_key_info infos[MILL_GROUP_KEY_COUNT] = {
    [MILL_GROUP_KEY_SESSION_TIMEOUT] = {"consumer.session.timeout.ms",
                                        MILL_KEY_GROUP_CONSUMER_SESSION_TIMEOUT_MS,
                                        MILL_KEY_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
                                        MILL_KEY_GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS},
    [MILL_GROUP_KEY_HEARTBEAT_INTERVAL] = {"consumer.heartbeat.interval.ms",
                                           MILL_KEY_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
                                           MILL_KEY_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
                                           MILL_KEY_GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS},
    [MILL_GROUP_KEY_ASSIGNMENT_INTERVAL] = {"consumer.assignment.interval.ms",
                                            MILL_KEY_GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
                                            MILL_KEY_GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
                                            MILL_KEY_GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS},
};

const struct mill_group_key_info *mill_group_key_info(enum mill_group_key key)
{
    return &infos[key];
}

enum mill_group_key mill_group_key_find(const char *name)
{
    uint32_t key = 0;
    while (key < MILL_GROUP_KEY_COUNT && strcmp(infos[key].name, name) != 0) {
        key++;
    }
    return (enum mill_group_key)key;
}

/* --- looking -----------------------------------------------------------------------------------
 */

static struct mill_group_settings **place_of(struct mill_group_settings_table *table,
                                             const char *group_id)
{
    struct mill_group_settings **at = &table->first;
    while (*at && strcmp((*at)->group_id, group_id) != 0) {
        at = &(*at)->next;
    }
    return at;
}

const struct mill_group_settings *mill_group_settings_find(const struct mill_controller *controller,
                                                           const char *group_id)
{
    const struct mill_group_settings *settings = controller->group_settings.first;
    while (settings && strcmp(settings->group_id, group_id) != 0) {
        settings = settings->next;
    }
    return settings;
}

int64_t mill_group_setting(const struct mill_controller *controller, const char *group_id,
                           enum mill_group_key key)
{
    const struct mill_config *config = controller->config;
    const struct mill_group_settings *own = mill_group_settings_find(controller, group_id);
    if (!own || !own->set[key]) {
        return mill_config_int(config, infos[key].broker);
    }
    int64_t most = MILL_MIN(own->values[key], mill_config_int(config, infos[key].max));
    return MILL_MAX(most, mill_config_int(config, infos[key].min));
}

/* --- checking ----------------------------------------------------------------------------------
 */

/* ret: 0, -EINVAL with the reason. */
static int check_one(const struct mill_controller *controller,
                     const struct mill_meta_config *config, struct mill_group_settings *into,
                     struct mill_report *report)
{
    enum mill_group_key key = mill_group_key_find(config->name);
    if (key == MILL_GROUP_KEY_COUNT) {
        bool other = strncmp(config->name, "share.", 6) == 0 ||
                     strncmp(config->name, "streams.", 8) == 0 ||
                     strncmp(config->name, "errors.", 7) == 0;
        return mill_fail(report, -EINVAL,
                         other ? "share and streams groups are not served: %s"
                               : "Unknown group config name: %s",
                         config->name);
    }
    char *end = NULL;
    errno = 0;
    long long value = strtoll(config->value, &end, 10);
    if (errno != 0 || end == config->value || *end != '\0' || value < 0 || value > INT32_MAX) {
        return mill_fail(report, -EINVAL, "Invalid value %s for configuration %s", config->value,
                         config->name);
    }
#ifndef MILL_MUTANT_GROUP_SETTING_UNBOUNDED
    if (value < mill_config_int(controller->config, infos[key].min)) {
        return mill_fail(report, -EINVAL, "%s must be greater than or equal to %s", config->name,
                         mill_key_info(infos[key].min)->name);
    }
    if (value > mill_config_int(controller->config, infos[key].max)) {
        return mill_fail(report, -EINVAL, "%s must be less than or equal to %s", config->name,
                         mill_key_info(infos[key].max)->name);
    }
#endif
    into->set[key] = true;
    into->values[key] = value;
    return 0;
}

/* The group as it will be. ret: 0, -EINVAL with the reason. */
static int check(const struct mill_controller *controller, const struct mill_alter_group *item,
                 struct mill_group_settings *into, struct mill_report *report)
{
    int rc = 0;
    int64_t times[MILL_GROUP_KEY_COUNT];
    for (uint32_t i = 0; i < item->configs_count && rc == 0; i++) {
        rc = check_one(controller, &item->configs[i], into, report);
    }
    for (uint32_t key = 0; key < MILL_GROUP_KEY_COUNT; key++) {
        times[key] = into->set[key] ? into->values[key]
                                    : mill_config_int(controller->config, infos[key].broker);
    }
    if (rc == 0 &&
        times[MILL_GROUP_KEY_SESSION_TIMEOUT] <= times[MILL_GROUP_KEY_HEARTBEAT_INTERVAL]) {
        rc = mill_fail(report, -EINVAL, "%s must be greater than %s",
                       infos[MILL_GROUP_KEY_SESSION_TIMEOUT].name,
                       infos[MILL_GROUP_KEY_HEARTBEAT_INTERVAL].name);
    }
    return rc;
}

/* --- the store ---------------------------------------------------------------------------------
 */

static bool put(struct mill_pool *pool, const struct mill_group_settings *settings,
                struct mill_meta_config *rows, uint32_t *count)
{
    for (uint32_t key = 0; key < MILL_GROUP_KEY_COUNT; key++) {
        if (!settings->set[key]) {
            continue;
        }
        size_t name_bytes = strlen(infos[key].name) + strlen(settings->group_id) + 2;
        char *name = mill_pool_take(pool, name_bytes);
        char *value = mill_pool_text(pool, "%lld", (long long)settings->values[key]);
        if (!name || !value) {
            return false;
        }
        snprintf(name, name_bytes, "%s %s", infos[key].name, settings->group_id);
        rows[(*count)++] = (struct mill_meta_config){.name = name, .value = value};
    }
    return true;
}

/* Writes all groups, this one as it will be. ret: 0, -ENOMEM, or the store's error. */
static int keep(struct mill_controller *controller, const struct mill_group_settings *next)
{
    struct mill_pool pool = {.limit_bytes = 64 << 20};
    uint32_t count = 0;
    const uint64_t most = ((uint64_t)controller->group_settings.count + 1) * MILL_GROUP_KEY_COUNT;
    struct mill_meta_config *rows = mill_pool_take(&pool, most * sizeof(*rows));
    bool whole = rows && put(&pool, next, rows, &count);
    for (const struct mill_group_settings *one = controller->group_settings.first; one && whole;
         one = one->next) {
        whole = strcmp(one->group_id, next->group_id) == 0 || put(&pool, one, rows, &count);
    }
    int rc = whole ? controller->meta.calls->set_settings(controller->meta.store,
                                                          MILL_GROUP_SETTINGS_NODE, rows, count,
                                                          &controller->report)
                   : -ENOMEM;
    mill_pool_clear(&pool);
    return rc;
}

static bool is_empty(const struct mill_group_settings *settings)
{
    for (uint32_t key = 0; key < MILL_GROUP_KEY_COUNT; key++) {
        if (settings->set[key]) {
            return false;
        }
    }
    return true;
}

/* Takes the place of what the group had; frees it when nothing is left. */
static void replace(struct mill_group_settings_table *table, struct mill_group_settings *next)
{
    struct mill_group_settings **at = place_of(table, next->group_id);
    struct mill_group_settings *old = *at;
    if (old) {
        *at = old->next;
        table->count--;
        free(old);
    }
    if (is_empty(next)) {
        free(next);
        return;
    }
    next->next = table->first;
    table->first = next;
    table->count++;
}

static struct mill_group_settings *settings_new(const char *group_id)
{
    size_t bytes = strlen(group_id) + 1;
    struct mill_group_settings *settings = calloc(1, sizeof(*settings) + bytes);
    if (settings) {
        memcpy(settings->group_id, group_id, bytes);
    }
    return settings;
}

void mill_controller_alter_group(struct mill_controller *controller, struct mill_alter_group *item,
                                 bool validate_only, struct mill_pool *pool)
{
    struct mill_report report = {0};
    struct mill_group_settings_table *table = &controller->group_settings;
    struct mill_group_settings *next = settings_new(item->group_id);
    int rc = next ? check(controller, item, next, &report) : -ENOMEM;
    if (rc == 0 && table->count >= MILL_GROUP_SETTINGS_MAX && !*place_of(table, item->group_id)) {
        rc = mill_fail(&report, -EINVAL, "%d groups have settings of their own: no more can",
                       (int)MILL_GROUP_SETTINGS_MAX);
    }
    if (rc < 0) {
        item->error = rc == -ENOMEM ? MILL_KERR_UNKNOWN_SERVER_ERROR : MILL_KERR_INVALID_CONFIG;
        item->message = mill_pool_text(pool, "%s", rc == -ENOMEM ? "out of memory" : report.text);
    } else if (!validate_only && (rc = keep(controller, next)) < 0) {
        item->error = mill_controller_store_failure(controller, rc);
        item->message = mill_pool_text(pool, "%s", controller->report.text);
    } else if (!validate_only) {
        replace(table, next);
        next = NULL;
    }
    free(next);
}

int mill_group_settings_load(struct mill_controller *controller,
                             const struct mill_meta_config *config)
{
    struct mill_group_settings_table *table = &controller->group_settings;
    const char *space = strchr(config->name, ' ');
    uint32_t key = 0;
    while (space && key < MILL_GROUP_KEY_COUNT &&
           (strlen(infos[key].name) != (size_t)(space - config->name) ||
            memcmp(infos[key].name, config->name, (size_t)(space - config->name)) != 0)) {
        key++;
    }
    if (!space || key == MILL_GROUP_KEY_COUNT) {
        mill_log_line(MILL_LEVEL_WARN, "control.setting-unknown",
                      "a setting of a group is left out setting=%s value=%s", config->name,
                      config->value);
        return 0;
    }
    struct mill_group_settings *settings = *place_of(table, space + 1);
    if (!settings) {
        settings = settings_new(space + 1);
        if (!settings) {
            return -ENOMEM;
        }
        settings->next = table->first;
        table->first = settings;
        table->count++;
    }
    settings->set[key] = true;
    settings->values[key] = strtoll(config->value, NULL, 10);
    return 0;
}

void mill_group_settings_clear(struct mill_group_settings_table *table)
{
    while (table->first) {
        struct mill_group_settings *next = table->first->next;
        free(table->first);
        table->first = next;
    }
    table->count = 0;
}
