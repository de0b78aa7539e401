/* SPDX-License-Identifier: Apache-2.0 */
/* Topics in the metadata store on SQLite: their changes, and how they are loaded. See sqlite.c. */
#include "control/meta/sqlite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* --- topics ------------------------------------------------------------------------------------
 */

/* Prepared statements of one transaction that adds topics. */
struct adding {
    sqlite3_stmt *topic;
    sqlite3_stmt *partition;
    sqlite3_stmt *config;
};

static int add_partition(const struct mill_sqlite *store, const struct adding *adding,
                         const struct mill_map_topic *record, uint32_t index,
                         struct mill_report *report)
{
    const struct mill_map_partition *partition = &record->partitions[index];
    sqlite3_stmt *statement = adding->partition;
    mill_sqlite_bind_id(statement, 1, &record->id);
    sqlite3_bind_int64(statement, 2, index);
    sqlite3_bind_int(statement, 3, partition->leader);
    sqlite3_bind_int(statement, 4, partition->leader_epoch);
    sqlite3_bind_int(statement, 5, partition->partition_epoch);
    sqlite3_bind_blob(statement, 6, partition->replicas,
                      (int)(partition->replicas_count * sizeof(partition->replicas[0])),
                      SQLITE_STATIC);
    sqlite3_bind_int64(statement, 7, partition->isr_bits);
    return mill_sqlite_run_once(store, statement, "partition", report);
}

/* The settings of one topic; the store has none of it. */
static int add_configs(const struct mill_sqlite *store, sqlite3_stmt *statement,
                       const struct mill_meta_topic *topic, struct mill_report *report)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < topic->configs_count; i++) {
        mill_sqlite_bind_id(statement, 1, &topic->record->id);
        sqlite3_bind_text(statement, 2, topic->configs[i].name, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 3, topic->configs[i].value, -1, SQLITE_STATIC);
        rc = mill_sqlite_run_once(store, statement, "topic setting", report);
    }
    return rc;
}

static int add_topic(const struct mill_sqlite *store, const struct adding *adding,
                     const struct mill_meta_topic *topic, struct mill_report *report)
{
    const struct mill_map_topic *record = topic->record;
    mill_sqlite_bind_id(adding->topic, 1, &record->id);
    sqlite3_bind_text(adding->topic, 2, record->name, record->name_length, SQLITE_STATIC);
    sqlite3_bind_int64(adding->topic, 3, record->flags);
    sqlite3_bind_int64(adding->topic, 4, record->partitions_count);
    int rc = mill_sqlite_run_once(store, adding->topic, "topic", report);
    for (uint32_t i = 0; rc == 0 && i < record->partitions_count; i++) {
        rc = add_partition(store, adding, record, i, report);
    }
    return rc < 0 ? rc : add_configs(store, adding->config, topic, report);
}

int mill_sqlite_add_topics(void *context, const struct mill_meta_topic *topics,
                           uint32_t topics_count, struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    struct adding adding = {0};
    int rc = mill_sqlite_begin(store, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "INSERT INTO topics VALUES(?1,?2,?3,?4)", &adding.topic,
                                 report);
    }
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "INSERT INTO partitions VALUES(?1,?2,?3,?4,?5,?6,?7)",
                                 &adding.partition, report);
    }
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "INSERT INTO configs VALUES(?1,?2,?3)", &adding.config,
                                 report);
    }
    for (uint32_t i = 0; rc == 0 && i < topics_count; i++) {
        rc = add_topic(store, &adding, &topics[i], report);
    }
    sqlite3_finalize(adding.topic);
    sqlite3_finalize(adding.partition);
    sqlite3_finalize(adding.config);
    return mill_sqlite_finish(store, rc, report);
}

int mill_sqlite_set_configs(void *context, const struct mill_meta_topic *topics,
                            uint32_t topics_count, struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    sqlite3_stmt *there = NULL;
    sqlite3_stmt *clear = NULL;
    sqlite3_stmt *add = NULL;
    int rc = mill_sqlite_begin(store, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "SELECT 1 FROM topics WHERE id = ?1", &there, report);
    }
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "DELETE FROM configs WHERE topic_id = ?1", &clear, report);
    }
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "INSERT INTO configs VALUES(?1,?2,?3)", &add, report);
    }
    for (uint32_t i = 0; rc == 0 && i < topics_count; i++) {
        mill_sqlite_bind_id(there, 1, &topics[i].record->id);
        if (sqlite3_step(there) != SQLITE_ROW) {
            rc = mill_fail(report, -ENOENT, "metadata store: no such topic");
        }
        sqlite3_reset(there);
        mill_sqlite_bind_id(clear, 1, &topics[i].record->id);
        rc = rc < 0 ? rc : mill_sqlite_run_once(store, clear, "topic settings", report);
        rc = rc < 0 ? rc : add_configs(store, add, &topics[i], report);
    }
    sqlite3_finalize(there);
    sqlite3_finalize(clear);
    sqlite3_finalize(add);
    return mill_sqlite_finish(store, rc, report);
}

/* One topic's partitions that the store does not have yet. */
static int grow_topic(const struct mill_sqlite *store, sqlite3_stmt *there, sqlite3_stmt *update,
                      const struct adding *adding, const struct mill_map_topic *record,
                      struct mill_report *report)
{
    int rc = 0;
    mill_sqlite_bind_id(there, 1, &record->id);
    int64_t first = sqlite3_step(there) == SQLITE_ROW ? sqlite3_column_int64(there, 0) : -1;
    sqlite3_reset(there);
    if (first < 0) {
        return mill_fail(report, -ENOENT, "metadata store: no such topic");
    }
    mill_sqlite_bind_id(update, 1, &record->id);
    sqlite3_bind_int64(update, 2, record->partitions_count);
    rc = mill_sqlite_run_once(store, update, "partition count", report);
    for (uint32_t i = (uint32_t)first; rc == 0 && i < record->partitions_count; i++) {
        rc = add_partition(store, adding, record, i, report);
    }
    return rc;
}

int mill_sqlite_add_partitions(void *context, const struct mill_map_topic *const *records,
                               uint32_t records_count, struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    struct adding adding = {0};
    sqlite3_stmt *there = NULL;
    sqlite3_stmt *update = NULL;
    int rc = mill_sqlite_begin(store, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "SELECT partitions FROM topics WHERE id = ?1", &there,
                                 report);
    }
    if (rc == 0) {
        /* 4: MADE; the new partitions have not served yet. */
        rc = mill_sqlite_prepare(
            store, "UPDATE topics SET partitions = ?2, flags = flags & ~4 WHERE id = ?1", &update,
            report);
    }
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "INSERT INTO partitions VALUES(?1,?2,?3,?4,?5,?6,?7)",
                                 &adding.partition, report);
    }
    for (uint32_t i = 0; rc == 0 && i < records_count; i++) {
        rc = grow_topic(store, there, update, &adding, records[i], report);
    }
    sqlite3_finalize(there);
    sqlite3_finalize(update);
    sqlite3_finalize(adding.partition);
    return mill_sqlite_finish(store, rc, report);
}

static int mark(const struct mill_sqlite *store, uint32_t flag, const struct mill_uuid *ids,
                uint32_t ids_count, struct mill_report *report)
{
    sqlite3_stmt *statement = NULL;
    int rc = mill_sqlite_begin(store, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "UPDATE topics SET flags = flags | ?2 WHERE id = ?1",
                                 &statement, report);
    }
    for (uint32_t i = 0; rc == 0 && i < ids_count; i++) {
        mill_sqlite_bind_id(statement, 1, &ids[i]);
        sqlite3_bind_int64(statement, 2, flag);
        rc = mill_sqlite_run_once(store, statement, "flag of a topic", report);
        if (rc == 0 && sqlite3_changes(store->db) == 0) {
            rc = mill_fail(report, -ENOENT, "metadata store: no such topic");
        }
    }
    sqlite3_finalize(statement);
    return mill_sqlite_finish(store, rc, report);
}

int mill_sqlite_mark_deleting(void *context, const struct mill_uuid *ids, uint32_t ids_count,
                              struct mill_report *report)
{
    return mark(context, MILL_TOPIC_DELETING, ids, ids_count, report);
}

int mill_sqlite_mark_made(void *context, const struct mill_uuid *ids, uint32_t ids_count,
                          struct mill_report *report)
{
    return mark(context, MILL_TOPIC_MADE, ids, ids_count, report);
}

int mill_sqlite_remove_topic(void *context, const struct mill_uuid *id, struct mill_report *report)
{
    static const char *const texts[] = {"DELETE FROM configs WHERE topic_id = ?1",
                                        "DELETE FROM partitions WHERE topic_id = ?1",
                                        "DELETE FROM topics WHERE id = ?1"};
    const struct mill_sqlite *store = context;
    int rc = mill_sqlite_begin(store, report);
    for (size_t i = 0; rc == 0 && i < MILL_COUNT_OF(texts); i++) {
        sqlite3_stmt *statement = NULL;
        rc = mill_sqlite_prepare(store, texts[i], &statement, report);
        if (rc == 0) {
            mill_sqlite_bind_id(statement, 1, id);
            rc = mill_sqlite_run_once(store, statement, "removal", report);
        }
        sqlite3_finalize(statement);
    }
    return mill_sqlite_finish(store, rc, report);
}

/* --- load --------------------------------------------------------------------------------------
 */

/* One topic while it is put together. */
struct loading {
    struct mill_map_topic *record;
    struct mill_meta_config *configs;
    uint32_t configs_count;
};

static void loading_clear(struct loading *loading)
{
    for (uint32_t i = 0; i < loading->configs_count; i++) {
        free((char *)(uintptr_t)loading->configs[i].name);
        free((char *)(uintptr_t)loading->configs[i].value);
    }
    free(loading->configs);
    free(loading->record);
    *loading = (struct loading){0};
}

static int fail_damaged(struct mill_report *report, const char *what)
{
    return mill_fail(report, -EBADMSG, "metadata store: damaged: %s", what);
}

static int load_head(sqlite3_stmt *row, struct loading *loading, struct mill_report *report)
{
    int64_t partitions_count = sqlite3_column_int64(row, 3);
    int name_bytes = sqlite3_column_bytes(row, 1);
    if (sqlite3_column_bytes(row, 0) != (int)sizeof(struct mill_uuid) || name_bytes < 1 ||
        name_bytes > MILL_TOPIC_NAME_MAX || partitions_count < 1 || partitions_count > INT32_MAX) {
        return fail_damaged(report, "topic");
    }
    loading->record = calloc(1, sizeof(*loading->record) +
                                    (size_t)partitions_count * sizeof(struct mill_map_partition));
    if (!loading->record) {
        return mill_fail(report, -ENOMEM, "metadata store: out of memory");
    }
    memcpy(loading->record->id.b, sqlite3_column_blob(row, 0), sizeof(struct mill_uuid));
    memcpy(loading->record->name, sqlite3_column_text(row, 1), (size_t)name_bytes);
    loading->record->name_length = (uint16_t)name_bytes;
    loading->record->flags = (uint32_t)sqlite3_column_int64(row, 2);
    loading->record->partitions_count = (uint32_t)partitions_count;
    return 0;
}

static int load_partitions(const struct mill_sqlite *store, sqlite3_stmt *rows,
                           struct loading *loading, struct mill_report *report)
{
    struct mill_map_topic *record = loading->record;
    uint32_t count = 0;
    int step;
    mill_sqlite_bind_id(rows, 1, &record->id);
    while ((step = sqlite3_step(rows)) == SQLITE_ROW) {
        int bytes = sqlite3_column_bytes(rows, 4);
        int unit = (int)sizeof(record->partitions[0].replicas[0]);
        if (count >= record->partitions_count || sqlite3_column_int64(rows, 0) != count ||
            bytes < unit || bytes % unit != 0 || bytes / unit > MILL_MAP_REPLICAS_MAX) {
            sqlite3_reset(rows);
            return fail_damaged(report, record->name);
        }
        struct mill_map_partition *partition = &record->partitions[count++];
        partition->leader = sqlite3_column_int(rows, 1);
        partition->leader_epoch = sqlite3_column_int(rows, 2);
        partition->partition_epoch = sqlite3_column_int(rows, 3);
        memcpy(partition->replicas, sqlite3_column_blob(rows, 4), (size_t)bytes);
        partition->replicas_count = (uint8_t)(bytes / unit);
        partition->isr_bits = (uint32_t)sqlite3_column_int64(rows, 5);
        partition->isr_count = (uint8_t)__builtin_popcount(partition->isr_bits);
    }
    sqlite3_reset(rows);
    if (step != SQLITE_DONE) {
        return mill_sqlite_fail(store, report, "partitions");
    }
    return count == record->partitions_count ? 0 : fail_damaged(report, record->name);
}

static int load_configs(const struct mill_sqlite *store, sqlite3_stmt *rows,
                        struct loading *loading, struct mill_report *report)
{
    int step;
    int rc = 0;
    mill_sqlite_bind_id(rows, 1, &loading->record->id);
    while (rc == 0 && (step = sqlite3_step(rows)) == SQLITE_ROW) {
        struct mill_meta_config *more =
            realloc(loading->configs, (loading->configs_count + 1) * sizeof(loading->configs[0]));
        char *name = strdup((const char *)sqlite3_column_text(rows, 0));
        char *value = strdup((const char *)sqlite3_column_text(rows, 1));
        loading->configs = more ? more : loading->configs;
        if (!more || !name || !value) {
            free(name);
            free(value);
            rc = mill_fail(report, -ENOMEM, "metadata store: out of memory");
            break;
        }
        loading->configs[loading->configs_count++] =
            (struct mill_meta_config){.name = name, .value = value};
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = mill_sqlite_fail(store, report, "configs");
    }
    sqlite3_reset(rows);
    return rc;
}

int mill_sqlite_load(void *context, mill_meta_visit visit, void *visit_context,
                     struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    sqlite3_stmt *topics = NULL;
    sqlite3_stmt *partitions = NULL;
    sqlite3_stmt *configs = NULL;
    int rc = mill_sqlite_prepare(
        store, "SELECT id, name, flags, partitions FROM topics ORDER BY flags & 2 DESC, name",
        &topics, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(
            store,
            "SELECT partition, leader, leader_epoch, partition_epoch, replicas, isr_bits "
            "FROM partitions WHERE topic_id = ?1 ORDER BY partition",
            &partitions, report);
    }
    if (rc == 0) {
        rc = mill_sqlite_prepare(
            store, "SELECT name, value FROM configs WHERE topic_id = ?1 ORDER BY name", &configs,
            report);
    }
    int step = SQLITE_DONE;
    while (rc == 0 && (step = sqlite3_step(topics)) == SQLITE_ROW) {
        struct loading loading = {0};
        rc = load_head(topics, &loading, report);
        if (rc == 0) {
            rc = load_partitions(store, partitions, &loading, report);
        }
#ifndef MILL_MUTANT_CONTROL_LOSE_CONFIG
        if (rc == 0) {
            rc = load_configs(store, configs, &loading, report);
        }
#endif
        if (rc == 0) {
            struct mill_meta_topic topic = {.record = loading.record,
                                            .configs = loading.configs,
                                            .configs_count = loading.configs_count};
            rc = visit(visit_context, &topic);
        }
        loading_clear(&loading);
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = mill_sqlite_fail(store, report, "topics");
    }
    sqlite3_finalize(topics);
    sqlite3_finalize(partitions);
    sqlite3_finalize(configs);
    return rc;
}
