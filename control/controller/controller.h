/* SPDX-License-Identifier: Apache-2.0 */
/* What control decides: topics made and deleted, where their partitions lie, their settings,
 * producer id blocks, and the partition map that tells the cores. A change is committed in the
 * store first, then published in the map; a failure of the store leaves both as they were.
 * Control's thread only; no clock, no ring, no socket. */
#ifndef MILL_CONTROL_CONTROLLER_CONTROLLER_H
#define MILL_CONTROL_CONTROLLER_CONTROLLER_H

#include "base/counter_lists.h"
#include "config/config.h"
#include "control/controller/group_settings.h"
#include "control/controller/quotas.h"
#include "control/controller/topics.h"
#include "control/pool.h"

enum {
    /* A topic's record is rewritten whole with each change of it. */
    MILL_CONTROL_TOPIC_PARTITIONS_MAX = 10000,
    MILL_CONTROL_PARTITIONS_MAX = 200000,
    MILL_CONTROL_ID_BLOCK = 1000,
};

/* The list is MILL_CONTROLLER_COUNTERS in base/counter_lists.h. */
struct mill_controller_counters {
#define MILL_CONTROLLER_COUNTER(name, help) uint64_t name;
    MILL_CONTROLLER_COUNTERS(MILL_CONTROLLER_COUNTER)
#undef MILL_CONTROLLER_COUNTER
};

/* Random bytes: getrandom in the program, a seed in tests. */
typedef void (*mill_control_random)(void *context, void *ret_bytes, size_t size_bytes);

/* Where an altered setting of the broker stands; the first that has it counts. */
enum mill_settings_level {
    MILL_SETTINGS_BROKER,  /* this broker's own */
    MILL_SETTINGS_CLUSTER, /* of every broker without one of its own */
    MILL_SETTINGS_LEVELS,
};

/* What holds where a topic has nothing of its own: altered settings, then the configuration. */
struct mill_settings {
    const struct mill_config *config;
    char *altered[MILL_SETTINGS_LEVELS][MILL_KEY_COUNT]; /* broker keys; NULL: none */
};

struct mill_controller {
    const struct mill_config *config;
    struct mill_settings settings;
    struct mill_group_settings_table group_settings;
    struct mill_meta meta;
    struct mill_map *map;
    struct mill_map_writer *writer;
    mill_control_random random;
    void *random_context;
    int32_t node_id;
    uint32_t topics_max;
    struct mill_uuid cluster_id;
    struct mill_topics topics;
    struct mill_quota_set quotas;
    uint32_t made_count; /* topics that served for the first time, not kept yet */
    struct mill_controller_counters counters;
    bool unpublished;          /* a committed change waits for room in the map */
    bool quotas_unpublished;   /* the same of quotas */
    struct mill_report report; /* of the last store failure */
};

/* Takes config, meta and map, which outlive it. ret: 0, -ENOMEM, -EBADMSG damaged map. */
int mill_controller_open(struct mill_controller *controller, const struct mill_config *config,
                         const struct mill_meta *meta, struct mill_map *map,
                         mill_control_random random, void *random_context,
                         struct mill_report *report) MILL_WARN_UNUSED;
/* Reads the store. ret: 0, or the store's error. */
int mill_controller_load(struct mill_controller *controller,
                         struct mill_report *report) MILL_WARN_UNUSED;
/* Names partitions in the log directories that no topic knows; nothing is touched. Once per start:
 * O(entries), by name. */
void mill_controller_tell_strays(struct mill_controller *controller);
/* Makes the map agree with the store; what agrees already is not touched. ret: 0, -ENOSPC. */
int mill_controller_publish(struct mill_controller *controller,
                            struct mill_report *report) MILL_WARN_UNUSED;
void mill_controller_close(struct mill_controller *controller);

/* One topic to be made. In: the upper part. Out: the rest, all texts from the request's pool. */
struct mill_create {
    const char *name; /* terminated */
    uint32_t name_length;
    int32_t partitions;         /* -1 default */
    int32_t replication_factor; /* -1 default */
    bool assigned;              /* partitions and replicas follow from assignment */
    const struct mill_map_partition *assignment;
    int32_t assignment_count;
    int16_t assignment_error; /* enum mill_kerr; told when name and settings are right */
    const char *assignment_fault;
    const struct mill_meta_config *configs; /* value NULL: null was sent */
    uint32_t configs_count;
    bool repeated; /* another item has the same name and answers for both */

    int16_t error;            /* enum mill_kerr; may be set before: then nothing is done */
    const char *message;      /* NULL none */
    struct mill_topic *topic; /* as checked; linked when created, else the caller frees it */
    struct mill_uuid id;      /* of a created one */
    bool created;
};

/* Checks each and, unless validate_only, makes those that passed in one commit. */
void mill_controller_create(struct mill_controller *controller, struct mill_create *items,
                            uint32_t items_count, bool validate_only, struct mill_pool *pool);

/* New settings of one topic. In: the upper part; what it will have, all of it, in the request's
 * memory. Out: the rest. */
struct mill_alter {
    struct mill_topic *topic; /* NULL: there is none, which is told when the settings are right */
    struct mill_meta_config *configs;
    uint32_t configs_count;

    int16_t error;       /* enum mill_kerr; may be set before: then nothing is done */
    const char *message; /* NULL none */
};

/* Checks each and, unless validate_only, sets those that passed in one commit; the cores follow in
 * their next turn. */
void mill_controller_alter(struct mill_controller *controller, struct mill_alter *const *items,
                           uint32_t items_count, bool validate_only, struct mill_pool *pool);

/* A topic that is to have more partitions. In: the upper part. Out: the rest. */
struct mill_grow {
    const char *name; /* terminated */
    uint32_t name_length;
    struct mill_topic *topic;
    int32_t count;                               /* it shall have in all */
    const struct mill_map_partition *assignment; /* of the new ones; NULL: placed here */
    int32_t assignment_count;
    const char *assignment_fault; /* NULL none; told when count and number are right */
    bool repeated;                /* another item has the same name and answers for both */

    int16_t error; /* enum mill_kerr; may be set before: then nothing is done */
    const char *message;
    struct mill_uuid id; /* of a grown one */
    bool grown;
};

/* Checks each and, unless validate_only, adds partitions to those that passed in one commit. */
void mill_controller_grow(struct mill_controller *controller, struct mill_grow *items,
                          uint32_t items_count, bool validate_only, struct mill_pool *pool);

/* One value of a quota that is to be set, 0 to be taken away. */
struct mill_quota_change {
    const struct mill_quota_name *user;
    const struct mill_quota_name *client;
    enum mill_quota_kind kind;
    double value;
};
/* What the store has; what holds into the map, when it has another record. ret: 0, -errno. */
int mill_controller_load_quotas(struct mill_controller *controller,
                                struct mill_report *report) MILL_WARN_UNUSED;
int mill_controller_publish_quotas(struct mill_controller *controller);
/* What an idle client may use at once, as time of its limit: all samples but one. */
uint64_t mill_quota_burst_ns(const struct mill_config *config);
/* Sets all of them in one commit; the cores follow in their next turn. ret: 0, or enum mill_kerr;
 * nothing is changed then. */
int16_t mill_controller_set_quotas(struct mill_controller *controller,
                                   const struct mill_quota_change *changes, uint32_t count,
                                   struct mill_pool *pool);

/* Begins the deletion of topics in one commit. ret: 0, or enum mill_kerr of the store's failure. */
int16_t mill_controller_delete(struct mill_controller *controller, struct mill_topic **topics,
                               uint32_t topics_count);

/* The error a client is told when the store failed; counted and told. */
int16_t mill_controller_store_failure(struct mill_controller *controller, int rc);
/* An id that nobody has. */
void mill_controller_random_id(const struct mill_controller *controller, struct mill_uuid *ret_id);

/* A core said something of a partition. ret: true when it changed something. */
bool mill_controller_note(struct mill_controller *controller,
                          const struct mill_event_partition *event);
/* Another data plane runs now: nothing is known of any partition. */
void mill_controller_forget_states(struct mill_controller *controller);
/* The counters, levels as they are now. */
const struct mill_controller_counters *mill_controller_count(struct mill_controller *controller);
/* Keeps which topics have served with all their partitions since the last call, in one commit. What
 * cannot be kept is tried again. */
void mill_controller_keep_made(struct mill_controller *controller);
/* Removes topics whose partitions are all gone. ret: how many. */
uint32_t mill_controller_sweep(struct mill_controller *controller);

/* ret: 0, or the store's error. */
int mill_controller_take_ids(struct mill_controller *controller,
                             int64_t *ret_first) MILL_WARN_UNUSED;

/* One broker's altered settings, or those of all. In: the upper part; what it will have, all of it.
 * Out: the rest. */
struct mill_alter_broker {
    enum mill_settings_level level;
    const struct mill_meta_config *configs;
    uint32_t configs_count;

    int16_t error; /* enum mill_kerr; may be set before: then nothing is done */
    const char *message;
};

/* Checks and, unless validate_only, commits; topics and cores follow at once (alter_broker.c). */
void mill_controller_alter_broker(struct mill_controller *controller,
                                  struct mill_alter_broker *item, bool validate_only,
                                  struct mill_pool *pool);
/* Reads what was altered; before the topics. ret: 0, or the store's error. */
int mill_controller_load_broker(struct mill_controller *controller,
                                struct mill_report *report) MILL_WARN_UNUSED;
/* Resolves every topic's settings anew and publishes what has changed, and the broker's own. */
void mill_controller_republish(struct mill_controller *controller);

/* --- settings (settings.c) ------------------------------------------------------------------- */

/* Value of a topic or broker key: the topic's own, or what the broker gives; NULL when there is
 * none. */
const char *mill_settings_text(const struct mill_settings *settings, const struct mill_topic *topic,
                               enum mill_key key);
/* config_source of DescribeConfigs: 1 topic, 2 altered for this broker, 3 altered for all, 4 file,
 * 5 default. */
int8_t mill_settings_source(const struct mill_settings *settings, const struct mill_topic *topic,
                            enum mill_key key);
/* Fills record->settings. */
void mill_settings_resolve(const struct mill_settings *settings, struct mill_topic *topic);
/* Those of the broker that the data plane follows. */
void mill_settings_broker(const struct mill_settings *settings, struct mill_broker_settings *ret);
/* Sets or, with NULL, takes away. ret: 0, -ENOMEM. */
int mill_settings_put(struct mill_settings *settings, enum mill_settings_level level,
                      enum mill_key key, const char *value) MILL_WARN_UNUSED;
void mill_settings_clear(struct mill_settings *settings);

/* Topics that control writes itself, whoever makes them. */
bool mill_topic_is_internal(const char *name, uint32_t length);

/* ret: NULL when a topic may be called so, else the reason. */
const char *mill_topic_name_fault(const char *name, uint32_t length);

#endif
