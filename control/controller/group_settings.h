/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of single groups (KIP-848, resource type GROUP): what an administrator set for one in
 * place of the broker's group.consumer.*, whether that group exists or not. Kept in the metadata
 * store, within the broker's least and greatest. Control's thread. */
#ifndef MILL_CONTROL_CONTROLLER_GROUP_SETTINGS_H
#define MILL_CONTROL_CONTROLLER_GROUP_SETTINGS_H

#include "config/config.h"
#include "control/meta/meta.h"
#include "control/pool.h"

struct mill_controller;

enum {
    MILL_GROUP_SETTINGS_MAX = 1000, /* groups that have some: all are written with each change */
};

enum mill_group_key {
    MILL_GROUP_KEY_SESSION_TIMEOUT,
    MILL_GROUP_KEY_HEARTBEAT_INTERVAL,
    MILL_GROUP_KEY_ASSIGNMENT_INTERVAL,
    MILL_GROUP_KEY_COUNT,
};

struct mill_group_key_info {
    const char *name;
    enum mill_key broker; /* holds for groups without one of their own */
    enum mill_key min;
    enum mill_key max;
};

/* What was set for one group. */
struct mill_group_settings {
    struct mill_group_settings *next;
    bool set[MILL_GROUP_KEY_COUNT];
    int64_t values[MILL_GROUP_KEY_COUNT];
    char group_id[];
};

struct mill_group_settings_table {
    struct mill_group_settings *first;
    uint32_t count;
};

/* One group's settings. In: the upper part; what it will have, all of it. Out: the rest. */
struct mill_alter_group {
    const char *group_id;
    const struct mill_meta_config *configs;
    uint32_t configs_count;

    int16_t error; /* enum mill_kerr */
    const char *message;
};

const struct mill_group_key_info *mill_group_key_info(enum mill_group_key key);
/* ret: MILL_GROUP_KEY_COUNT none. */
enum mill_group_key mill_group_key_find(const char *name);
/* ret: NULL: nothing was set for it. */
const struct mill_group_settings *mill_group_settings_find(const struct mill_controller *controller,
                                                           const char *group_id);
/* What holds for the group now: its own within the broker's bounds, else the broker's. */
int64_t mill_group_setting(const struct mill_controller *controller, const char *group_id,
                           enum mill_group_key key);

/* Checks and, unless validate_only, commits. */
void mill_controller_alter_group(struct mill_controller *controller, struct mill_alter_group *item,
                                 bool validate_only, struct mill_pool *pool);
/* Takes a setting over from the store, under the node MILL_GROUP_SETTINGS_NODE. ret: 0, -ENOMEM. */
int mill_group_settings_load(struct mill_controller *controller,
                             const struct mill_meta_config *config);
void mill_group_settings_clear(struct mill_group_settings_table *table);

/* In the store's settings of brokers these stand under this id, each as "KEY GROUP": a program that
 * does not know them leaves them alone. */
enum {
    MILL_GROUP_SETTINGS_NODE = -2,
};

#endif
