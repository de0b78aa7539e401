/* SPDX-License-Identifier: Apache-2.0 */
/* What control must not forget, behind one table of calls: cluster id, broker, topics with their
 * partitions and settings, deletions, producer ids. SQLite stands behind it here (sqlite.c); an
 * ensemble can stand behind it later. Control's thread only; calls may block on the disk.
 *
 * Every call that changes something is all or nothing, also when the process is killed inside it.
 * ret of all: 0; -ENOSPC disk or database full; -EROFS read-only; -EIO any other failure; report
 * says what happened. */
#ifndef MILL_CONTROL_META_META_H
#define MILL_CONTROL_META_META_H

#include "base/report.h"
#include "base/uuid.h"
#include "ipc/map.h"

enum {
    MILL_META_SCHEMA_VERSION = 3, /* 2: settings; 3: quotas */
};

struct mill_meta_config {
    const char *name;
    const char *value;
};

/* One value of a quota. user and client: "" the entity does not say, "*" the default, "=NAME". */
struct mill_meta_quota {
    const char *user;
    const char *client;
    const char *key;
    double value; /* 0: taken away */
};
/* ret: 0, or an error that ends the load with it. */
typedef int (*mill_meta_visit_quota)(void *context, const struct mill_meta_quota *quota);

/* A topic as it is kept: id, name, flags and partitions of the record; slot and settings are not
 * kept, they follow from the map and from configs. */
struct mill_meta_topic {
    const struct mill_map_topic *record;
    const struct mill_meta_config *configs;
    uint32_t configs_count;
};

/* A setting of one broker, or of all of them (node_id -1); -2: of groups (group_settings.h). ret:
 * 0, or an error that ends the load. */
typedef int (*mill_meta_visit_setting)(void *context, int32_t node_id,
                                       const struct mill_meta_config *config);

/* ret: 0, or an error that ends the load with it. */
typedef int (*mill_meta_visit)(void *context, const struct mill_meta_topic *topic);

struct mill_meta_calls {
    /* The cluster id; fresh is kept and given back when there is none yet. */
    int (*cluster_id)(void *store, const struct mill_uuid *fresh, struct mill_uuid *ret_id,
                      struct mill_report *report);
    /* Says who uses the store. ret: also -EEXIST it belongs to another broker. */
    int (*broker)(void *store, int32_t node_id, struct mill_report *report);
    /* All topics, those being deleted first. */
    int (*load)(void *store, mill_meta_visit visit, void *context, struct mill_report *report);
    /* All settings of brokers that were altered. */
    int (*load_settings)(void *store, mill_meta_visit_setting visit, void *context,
                         struct mill_report *report);
    /* Settings in place of those that the broker (-1: all of them) had. */
    int (*set_settings)(void *store, int32_t node_id, const struct mill_meta_config *configs,
                        uint32_t configs_count, struct mill_report *report);
    /* Several new topics at once: all or none. ret: also -EEXIST an id or serving name is taken. */
    int (*add_topics)(void *store, const struct mill_meta_topic *topics, uint32_t topics_count,
                      struct mill_report *report);
    /* Settings in place of those that the topics had; records give ids only. ret: also -ENOENT. */
    int (*set_configs)(void *store, const struct mill_meta_topic *topics, uint32_t topics_count,
                       struct mill_report *report);
    /* Records with more partitions than the store has of these topics: the new ones are added. All
     * or none. ret: also -ENOENT. */
    int (*add_partitions)(void *store, const struct mill_map_topic *const *records,
                          uint32_t records_count, struct mill_report *report);
    /* Flags topics as being deleted: all or none. ret: also -ENOENT. */
    int (*mark_deleting)(void *store, const struct mill_uuid *ids, uint32_t ids_count,
                         struct mill_report *report);
    /* Flags topics whose partitions have all served: all or none. ret: also -ENOENT. */
    int (*mark_made)(void *store, const struct mill_uuid *ids, uint32_t ids_count,
                     struct mill_report *report);
    int (*remove_topic)(void *store, const struct mill_uuid *id, struct mill_report *report);
    /* A block of producer ids that nobody had or will have. */
    int (*take_ids)(void *store, int64_t count, int64_t *ret_first, struct mill_report *report);
    /* Several values at once: all or none. */
    int (*set_quotas)(void *store, const struct mill_meta_quota *quotas, uint32_t quotas_count,
                      struct mill_report *report);
    int (*load_quotas)(void *store, mill_meta_visit_quota visit, void *context,
                       struct mill_report *report);
    void (*close)(void *store);
};

struct mill_meta {
    const struct mill_meta_calls *calls;
    void *store;
};

/* Opens or makes the SQLite file. pages_max: 0, or a bound of its size (tests of a full disk).
 * ret: 0; -EBADMSG damaged, or of a newer schema; -EROFS, -ENOSPC, -EIO. */
int mill_meta_sqlite_open(const char *file, uint32_t pages_max, struct mill_meta *ret_meta,
                          struct mill_report *report) MILL_WARN_UNUSED;
/* Whether a file holds a store: 1; 0 there is none, or an empty one; -errno as above. */
int mill_meta_sqlite_there(const char *file, struct mill_report *report) MILL_WARN_UNUSED;
void mill_meta_close(struct mill_meta *meta);

#endif
