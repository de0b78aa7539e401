/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata store on SQLite (meta.h): one file in WAL mode with synchronous=FULL, so that a
 * committed transaction outlives a power cut. Control's thread only. Each change is one
 * transaction; a failing statement rolls it back and leaves the connection usable.
 *
 *   meta(key, value)   broker(node_id)   topics(id, name, flags)
 *   partitions(topic_id, partition, leader, epochs, replicas, isr)   configs(topic_id, name, value)
 *   settings(node_id, name, value)   quotas(user, client, key, value)
 */
#include "control/meta/meta.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "control/meta/sum.h"

struct store {
    sqlite3 *db;
};

/* Version 2 has this beside what version 1 had, -1 is every broker; version 3 the quotas: their
 * values as text, to all digits. */
#define SETTINGS_TABLE                                                                             \
    "CREATE TABLE settings(node_id INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,"     \
    " PRIMARY KEY(node_id, name)) WITHOUT ROWID;"
#define QUOTAS_TABLE                                                                               \
    "CREATE TABLE quotas(user TEXT NOT NULL, client TEXT NOT NULL, key TEXT NOT NULL,"             \
    " value TEXT NOT NULL, PRIMARY KEY(user, client, key)) WITHOUT ROWID;"

static const char schema_text[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "CREATE TABLE broker(node_id INTEGER PRIMARY KEY);"
    "CREATE TABLE topics(id BLOB PRIMARY KEY, name TEXT NOT NULL, flags INTEGER NOT NULL,"
    " partitions INTEGER NOT NULL) WITHOUT ROWID;"
    /* A serving name is unique; one that is being deleted may be there beside it. 2: DELETING. */
    "CREATE UNIQUE INDEX topics_name ON topics(name) WHERE (flags & 2) = 0;"
    "CREATE TABLE partitions(topic_id BLOB NOT NULL, partition INTEGER NOT NULL,"
    " leader INTEGER NOT NULL, leader_epoch INTEGER NOT NULL, partition_epoch INTEGER NOT NULL,"
    " replicas BLOB NOT NULL, isr_bits INTEGER NOT NULL, PRIMARY KEY(topic_id, partition))"
    " WITHOUT ROWID;"
    "CREATE TABLE configs(topic_id BLOB NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,"
    " PRIMARY KEY(topic_id, name)) WITHOUT ROWID;" SETTINGS_TABLE QUOTAS_TABLE
    "INSERT INTO meta VALUES('schema_version', 3);"
    "INSERT INTO meta VALUES('next_producer_id', 0);";
static_assert(MILL_META_SCHEMA_VERSION == 3, "schema_text writes the version");
static_assert(MILL_TOPIC_DELETING == 2, "the index names the flag");
static_assert(MILL_TOPIC_MADE == 4, "store_add_partitions clears the flag");

static int fail_sqlite(const struct store *store, struct mill_report *report, const char *what)
{
    int code = sqlite3_extended_errcode(store->db);
    int rc = -EIO;
    switch (code & 0xff) {
    case SQLITE_FULL:
        rc = -ENOSPC;
        break;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        rc = -EROFS;
        break;
    case SQLITE_CONSTRAINT:
        rc = -EEXIST;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        rc = -EBADMSG;
        break;
    default:
        break;
    }
    return mill_fail(report, rc, "metadata store: %s: %s (%d)", what, sqlite3_errmsg(store->db),
                     code);
}

static int run_text(const struct store *store, const char *text, struct mill_report *report)
{
    return sqlite3_exec(store->db, text, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : fail_sqlite(store, report, text);
}

static int prepare(const struct store *store, const char *text, sqlite3_stmt **ret_statement,
                   struct mill_report *report)
{
    return sqlite3_prepare_v2(store->db, text, -1, ret_statement, NULL) == SQLITE_OK
               ? 0
               : fail_sqlite(store, report, "prepare");
}

/* Runs a bound statement to its end and makes it ready for the next values. */
static int run_once(const struct store *store, sqlite3_stmt *statement, const char *what,
                    struct mill_report *report)
{
    int rc = sqlite3_step(statement) == SQLITE_DONE ? 0 : fail_sqlite(store, report, what);
    sqlite3_reset(statement);
    return rc;
}

static void bind_id(sqlite3_stmt *statement, int column, const struct mill_uuid *id)
{
    sqlite3_bind_blob(statement, column, id->b, sizeof(id->b), SQLITE_STATIC);
}

/* Ends a transaction: commits when rc is 0, else rolls back. A failed commit rolls back too. */
static int finish(const struct store *store, int rc, struct mill_report *report)
{
    if (rc == 0) {
#ifdef MILL_MUTANT_CONTROL_UNCOMMITTED
        static int commits;
        return run_text(store, ++commits > 8 ? "ROLLBACK" : "COMMIT", report);
#endif
        rc = run_text(store, "COMMIT", report);
    }
    if (rc < 0 && !sqlite3_get_autocommit(store->db)) {
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return rc;
}

static int begin(const struct store *store, struct mill_report *report)
{
    return run_text(store, "BEGIN IMMEDIATE", report);
}

/* --- meta --------------------------------------------------------------------------------------
 */

static int store_cluster_id(void *context, const struct mill_uuid *fresh, struct mill_uuid *ret_id,
                            struct mill_report *report)
{
    const struct store *store = context;
    sqlite3_stmt *read = NULL;
    sqlite3_stmt *write = NULL;
    struct mill_uuid id = *fresh;
    int rc = begin(store, report);
    if (rc == 0) {
        rc = prepare(store, "SELECT value FROM meta WHERE key='cluster_id'", &read, report);
    }
    int step = rc == 0 ? sqlite3_step(read) : SQLITE_ERROR;
    if (rc == 0 && step == SQLITE_ROW) {
        if (sqlite3_column_bytes(read, 0) == (int)sizeof(id.b)) {
            memcpy(id.b, sqlite3_column_blob(read, 0), sizeof(id.b));
        } else {
            rc = mill_fail(report, -EBADMSG, "metadata store: the cluster id is damaged");
        }
    } else if (rc == 0 && step == SQLITE_DONE) {
        rc = prepare(store, "INSERT INTO meta VALUES('cluster_id', ?1)", &write, report);
        if (rc == 0) {
            bind_id(write, 1, &id);
            rc = run_once(store, write, "cluster id", report);
        }
    } else if (rc == 0) {
        rc = fail_sqlite(store, report, "cluster id");
    }
    sqlite3_finalize(read);
    sqlite3_finalize(write);
    rc = finish(store, rc, report);
    if (rc == 0) {
        *ret_id = id;
    }
    return rc;
}

static int store_broker(void *context, int32_t node_id, struct mill_report *report)
{
    const struct store *store = context;
    sqlite3_stmt *read = NULL;
    sqlite3_stmt *write = NULL;
    int rc = begin(store, report);
    if (rc == 0) {
        rc = prepare(store, "SELECT node_id FROM broker", &read, report);
    }
    int step = rc == 0 ? sqlite3_step(read) : SQLITE_ERROR;
    if (rc == 0 && step == SQLITE_ROW) {
        int kept = sqlite3_column_int(read, 0);
        if (kept != node_id) {
            rc = mill_fail(report, -EEXIST,
                           "metadata store: it belongs to node.id %d, this is node.id %d; give "
                           "each broker its own metadata.dir and log.dirs",
                           kept, node_id);
        }
    } else if (rc == 0 && step == SQLITE_DONE) {
        rc = prepare(store, "INSERT INTO broker VALUES(?1)", &write, report);
        if (rc == 0) {
            sqlite3_bind_int(write, 1, node_id);
            rc = run_once(store, write, "broker", report);
        }
    } else if (rc == 0) {
        rc = fail_sqlite(store, report, "broker");
    }
    sqlite3_finalize(read);
    sqlite3_finalize(write);
    return finish(store, rc, report);
}

static int store_take_ids(void *context, int64_t count, int64_t *ret_first,
                          struct mill_report *report)
{
    const struct store *store = context;
    sqlite3_stmt *read = NULL;
    sqlite3_stmt *write = NULL;
    int64_t first = -1;
    int rc = begin(store, report);
    if (rc == 0) {
        rc = prepare(store, "SELECT value FROM meta WHERE key='next_producer_id'", &read, report);
    }
    if (rc == 0) {
        first = sqlite3_step(read) == SQLITE_ROW ? sqlite3_column_int64(read, 0) : -1;
        if (first < 0 || first > INT64_MAX - count) {
            rc = mill_fail(report, -EIO, "metadata store: no producer ids left");
        }
    }
    if (rc == 0) {
        rc =
            prepare(store, "UPDATE meta SET value=?1 WHERE key='next_producer_id'", &write, report);
    }
    if (rc == 0) {
        sqlite3_bind_int64(write, 1, first + count);
        rc = run_once(store, write, "producer ids", report);
    }
    sqlite3_finalize(read);
    sqlite3_finalize(write);
    rc = finish(store, rc, report);
    if (rc == 0) {
        *ret_first = first;
    }
    return rc;
}

/* --- topics ------------------------------------------------------------------------------------
 */

/* Prepared statements of one transaction that adds topics. */
struct adding {
    sqlite3_stmt *topic;
    sqlite3_stmt *partition;
    sqlite3_stmt *config;
};

static int add_partition(const struct store *store, const struct adding *adding,
                         const struct mill_map_topic *record, uint32_t index,
                         struct mill_report *report)
{
    const struct mill_map_partition *partition = &record->partitions[index];
    sqlite3_stmt *statement = adding->partition;
    bind_id(statement, 1, &record->id);
    sqlite3_bind_int64(statement, 2, index);
    sqlite3_bind_int(statement, 3, partition->leader);
    sqlite3_bind_int(statement, 4, partition->leader_epoch);
    sqlite3_bind_int(statement, 5, partition->partition_epoch);
    sqlite3_bind_blob(statement, 6, partition->replicas,
                      (int)(partition->replicas_count * sizeof(partition->replicas[0])),
                      SQLITE_STATIC);
    sqlite3_bind_int64(statement, 7, partition->isr_bits);
    return run_once(store, statement, "partition", report);
}

/* The settings of one topic; the store has none of it. */
static int add_configs(const struct store *store, sqlite3_stmt *statement,
                       const struct mill_meta_topic *topic, struct mill_report *report)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < topic->configs_count; i++) {
        bind_id(statement, 1, &topic->record->id);
        sqlite3_bind_text(statement, 2, topic->configs[i].name, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 3, topic->configs[i].value, -1, SQLITE_STATIC);
        rc = run_once(store, statement, "topic setting", report);
    }
    return rc;
}

static int add_topic(const struct store *store, const struct adding *adding,
                     const struct mill_meta_topic *topic, struct mill_report *report)
{
    const struct mill_map_topic *record = topic->record;
    bind_id(adding->topic, 1, &record->id);
    sqlite3_bind_text(adding->topic, 2, record->name, record->name_length, SQLITE_STATIC);
    sqlite3_bind_int64(adding->topic, 3, record->flags);
    sqlite3_bind_int64(adding->topic, 4, record->partitions_count);
    int rc = run_once(store, adding->topic, "topic", report);
    for (uint32_t i = 0; rc == 0 && i < record->partitions_count; i++) {
        rc = add_partition(store, adding, record, i, report);
    }
    return rc < 0 ? rc : add_configs(store, adding->config, topic, report);
}

static int store_add_topics(void *context, const struct mill_meta_topic *topics,
                            uint32_t topics_count, struct mill_report *report)
{
    const struct store *store = context;
    struct adding adding = {0};
    int rc = begin(store, report);
    if (rc == 0) {
        rc = prepare(store, "INSERT INTO topics VALUES(?1,?2,?3,?4)", &adding.topic, report);
    }
    if (rc == 0) {
        rc = prepare(store, "INSERT INTO partitions VALUES(?1,?2,?3,?4,?5,?6,?7)",
                     &adding.partition, report);
    }
    if (rc == 0) {
        rc = prepare(store, "INSERT INTO configs VALUES(?1,?2,?3)", &adding.config, report);
    }
    for (uint32_t i = 0; rc == 0 && i < topics_count; i++) {
        rc = add_topic(store, &adding, &topics[i], report);
    }
    sqlite3_finalize(adding.topic);
    sqlite3_finalize(adding.partition);
    sqlite3_finalize(adding.config);
    return finish(store, rc, report);
}

static int store_set_configs(void *context, const struct mill_meta_topic *topics,
                             uint32_t topics_count, struct mill_report *report)
{
    const struct store *store = context;
    sqlite3_stmt *there = NULL;
    sqlite3_stmt *clear = NULL;
    sqlite3_stmt *add = NULL;
    int rc = begin(store, report);
    if (rc == 0) {
        rc = prepare(store, "SELECT 1 FROM topics WHERE id = ?1", &there, report);
    }
    if (rc == 0) {
        rc = prepare(store, "DELETE FROM configs WHERE topic_id = ?1", &clear, report);
    }
    if (rc == 0) {
        rc = prepare(store, "INSERT INTO configs VALUES(?1,?2,?3)", &add, report);
    }
    for (uint32_t i = 0; rc == 0 && i < topics_count; i++) {
        bind_id(there, 1, &topics[i].record->id);
        if (sqlite3_step(there) != SQLITE_ROW) {
            rc = mill_fail(report, -ENOENT, "metadata store: no such topic");
        }
        sqlite3_reset(there);
        bind_id(clear, 1, &topics[i].record->id);
        rc = rc < 0 ? rc : run_once(store, clear, "topic settings", report);
        rc = rc < 0 ? rc : add_configs(store, add, &topics[i], report);
    }
    sqlite3_finalize(there);
    sqlite3_finalize(clear);
    sqlite3_finalize(add);
    return finish(store, rc, report);
}

/* One topic's partitions that the store does not have yet. */
static int grow_topic(const struct store *store, sqlite3_stmt *there, sqlite3_stmt *update,
                      const struct adding *adding, const struct mill_map_topic *record,
                      struct mill_report *report)
{
    int rc = 0;
    bind_id(there, 1, &record->id);
    int64_t first = sqlite3_step(there) == SQLITE_ROW ? sqlite3_column_int64(there, 0) : -1;
    sqlite3_reset(there);
    if (first < 0) {
        return mill_fail(report, -ENOENT, "metadata store: no such topic");
    }
    bind_id(update, 1, &record->id);
    sqlite3_bind_int64(update, 2, record->partitions_count);
    rc = run_once(store, update, "partition count", report);
    for (uint32_t i = (uint32_t)first; rc == 0 && i < record->partitions_count; i++) {
        rc = add_partition(store, adding, record, i, report);
    }
    return rc;
}

static int store_add_partitions(void *context, const struct mill_map_topic *const *records,
                                uint32_t records_count, struct mill_report *report)
{
    const struct store *store = context;
    struct adding adding = {0};
    sqlite3_stmt *there = NULL;
    sqlite3_stmt *update = NULL;
    int rc = begin(store, report);
    if (rc == 0) {
        rc = prepare(store, "SELECT partitions FROM topics WHERE id = ?1", &there, report);
    }
    if (rc == 0) {
        /* 4: MADE; the new partitions have not served yet. */
        rc = prepare(store, "UPDATE topics SET partitions = ?2, flags = flags & ~4 WHERE id = ?1",
                     &update, report);
    }
    if (rc == 0) {
        rc = prepare(store, "INSERT INTO partitions VALUES(?1,?2,?3,?4,?5,?6,?7)",
                     &adding.partition, report);
    }
    for (uint32_t i = 0; rc == 0 && i < records_count; i++) {
        rc = grow_topic(store, there, update, &adding, records[i], report);
    }
    sqlite3_finalize(there);
    sqlite3_finalize(update);
    sqlite3_finalize(adding.partition);
    return finish(store, rc, report);
}

static int mark(const struct store *store, uint32_t flag, const struct mill_uuid *ids,
                uint32_t ids_count, struct mill_report *report)
{
    sqlite3_stmt *statement = NULL;
    int rc = begin(store, report);
    if (rc == 0) {
        rc = prepare(store, "UPDATE topics SET flags = flags | ?2 WHERE id = ?1", &statement,
                     report);
    }
    for (uint32_t i = 0; rc == 0 && i < ids_count; i++) {
        bind_id(statement, 1, &ids[i]);
        sqlite3_bind_int64(statement, 2, flag);
        rc = run_once(store, statement, "flag of a topic", report);
        if (rc == 0 && sqlite3_changes(store->db) == 0) {
            rc = mill_fail(report, -ENOENT, "metadata store: no such topic");
        }
    }
    sqlite3_finalize(statement);
    return finish(store, rc, report);
}

static int store_mark_deleting(void *context, const struct mill_uuid *ids, uint32_t ids_count,
                               struct mill_report *report)
{
    return mark(context, MILL_TOPIC_DELETING, ids, ids_count, report);
}

static int store_mark_made(void *context, const struct mill_uuid *ids, uint32_t ids_count,
                           struct mill_report *report)
{
    return mark(context, MILL_TOPIC_MADE, ids, ids_count, report);
}

static int store_remove_topic(void *context, const struct mill_uuid *id, struct mill_report *report)
{
    static const char *const texts[] = {"DELETE FROM configs WHERE topic_id = ?1",
                                        "DELETE FROM partitions WHERE topic_id = ?1",
                                        "DELETE FROM topics WHERE id = ?1"};
    const struct store *store = context;
    int rc = begin(store, report);
    for (size_t i = 0; rc == 0 && i < MILL_COUNT_OF(texts); i++) {
        sqlite3_stmt *statement = NULL;
        rc = prepare(store, texts[i], &statement, report);
        if (rc == 0) {
            bind_id(statement, 1, id);
            rc = run_once(store, statement, "removal", report);
        }
        sqlite3_finalize(statement);
    }
    return finish(store, rc, report);
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

static int load_partitions(const struct store *store, sqlite3_stmt *rows, struct loading *loading,
                           struct mill_report *report)
{
    struct mill_map_topic *record = loading->record;
    uint32_t count = 0;
    int step;
    bind_id(rows, 1, &record->id);
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
        return fail_sqlite(store, report, "partitions");
    }
    return count == record->partitions_count ? 0 : fail_damaged(report, record->name);
}

static int load_configs(const struct store *store, sqlite3_stmt *rows, struct loading *loading,
                        struct mill_report *report)
{
    int step;
    int rc = 0;
    bind_id(rows, 1, &loading->record->id);
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
        rc = fail_sqlite(store, report, "configs");
    }
    sqlite3_reset(rows);
    return rc;
}

static int store_load(void *context, mill_meta_visit visit, void *visit_context,
                      struct mill_report *report)
{
    const struct store *store = context;
    sqlite3_stmt *topics = NULL;
    sqlite3_stmt *partitions = NULL;
    sqlite3_stmt *configs = NULL;
    int rc = prepare(store,
                     "SELECT id, name, flags, partitions FROM topics ORDER BY flags & 2 DESC, name",
                     &topics, report);
    if (rc == 0) {
        rc = prepare(store,
                     "SELECT partition, leader, leader_epoch, partition_epoch, replicas, isr_bits "
                     "FROM partitions WHERE topic_id = ?1 ORDER BY partition",
                     &partitions, report);
    }
    if (rc == 0) {
        rc = prepare(store, "SELECT name, value FROM configs WHERE topic_id = ?1 ORDER BY name",
                     &configs, report);
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
        rc = fail_sqlite(store, report, "topics");
    }
    sqlite3_finalize(topics);
    sqlite3_finalize(partitions);
    sqlite3_finalize(configs);
    return rc;
}

/* --- settings of brokers -----------------------------------------------------------------------
 */

static int store_load_settings(void *context, mill_meta_visit_setting visit, void *visit_context,
                               struct mill_report *report)
{
    const struct store *store = context;
    sqlite3_stmt *statement = NULL;
    int step = SQLITE_DONE;
    int rc = prepare(store, "SELECT node_id, name, value FROM settings ORDER BY node_id, name",
                     &statement, report);
    while (rc == 0 && (step = sqlite3_step(statement)) == SQLITE_ROW) {
        const struct mill_meta_config config = {
            .name = (const char *)sqlite3_column_text(statement, 1),
            .value = (const char *)sqlite3_column_text(statement, 2)};
        rc = config.name && config.value
                 ? visit(visit_context, sqlite3_column_int(statement, 0), &config)
                 : mill_fail(report, -EBADMSG, "metadata store: a damaged setting");
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = fail_sqlite(store, report, "settings");
    }
    sqlite3_finalize(statement);
    return rc;
}

static int store_set_settings(void *context, int32_t node_id,
                              const struct mill_meta_config *configs, uint32_t configs_count,
                              struct mill_report *report)
{
    const struct store *store = context;
    sqlite3_stmt *clear = NULL;
    sqlite3_stmt *add = NULL;
    int rc = begin(store, report);
    if (rc == 0) {
        rc = prepare(store, "DELETE FROM settings WHERE node_id = ?1", &clear, report);
    }
    if (rc == 0) {
        rc = prepare(store, "INSERT INTO settings VALUES(?1,?2,?3)", &add, report);
    }
    if (rc == 0) {
        sqlite3_bind_int(clear, 1, node_id);
        rc = run_once(store, clear, "settings", report);
    }
    for (uint32_t i = 0; rc == 0 && i < configs_count; i++) {
        sqlite3_bind_int(add, 1, node_id);
        sqlite3_bind_text(add, 2, configs[i].name, -1, SQLITE_STATIC);
        sqlite3_bind_text(add, 3, configs[i].value, -1, SQLITE_STATIC);
        rc = run_once(store, add, "setting", report);
    }
    sqlite3_finalize(clear);
    sqlite3_finalize(add);
    return finish(store, rc, report);
}

/* --- quotas ------------------------------------------------------------------------------------
 */

static int store_set_quotas(void *context, const struct mill_meta_quota *quotas,
                            uint32_t quotas_count, struct mill_report *report)
{
    const struct store *store = context;
    sqlite3_stmt *clear = NULL;
    sqlite3_stmt *add = NULL;
#ifdef MILL_MUTANT_CONTROL_QUOTA_UNKEPT
    quotas_count = 0;
#endif
    int rc = begin(store, report);
    if (rc == 0) {
        rc = prepare(store, "DELETE FROM quotas WHERE user = ?1 AND client = ?2 AND key = ?3",
                     &clear, report);
    }
    if (rc == 0) {
        rc = prepare(store, "INSERT INTO quotas VALUES(?1,?2,?3,?4)", &add, report);
    }
    for (uint32_t i = 0; rc == 0 && i < quotas_count; i++) {
        const struct mill_meta_quota *quota = &quotas[i];
        const char *const names[] = {quota->user, quota->client, quota->key};
        char value[64];
        for (int column = 0; column < (int)MILL_COUNT_OF(names); column++) {
            sqlite3_bind_text(clear, column + 1, names[column], -1, SQLITE_STATIC);
            sqlite3_bind_text(add, column + 1, names[column], -1, SQLITE_STATIC);
        }
        rc = run_once(store, clear, "quota", report);
        if (rc == 0 && quota->value != 0) {
            snprintf(value, sizeof(value), "%.17g", quota->value);
            sqlite3_bind_text(add, 4, value, -1, SQLITE_STATIC);
            rc = run_once(store, add, "quota", report);
        }
    }
    sqlite3_finalize(clear);
    sqlite3_finalize(add);
    return finish(store, rc, report);
}

static int store_load_quotas(void *context, mill_meta_visit_quota visit, void *visit_context,
                             struct mill_report *report)
{
    const struct store *store = context;
    sqlite3_stmt *read = NULL;
    int step = SQLITE_DONE;
    int rc = prepare(store, "SELECT user, client, key, value FROM quotas", &read, report);
    while (rc == 0 && (step = sqlite3_step(read)) == SQLITE_ROW) {
        const struct mill_meta_quota quota = {
            .user = (const char *)sqlite3_column_text(read, 0),
            .client = (const char *)sqlite3_column_text(read, 1),
            .key = (const char *)sqlite3_column_text(read, 2),
            .value = sqlite3_column_double(read, 3),
        };
        rc = quota.user && quota.client && quota.key
                 ? visit(visit_context, &quota)
                 : mill_fail(report, -EIO, "metadata store: out of memory");
    }
    if (rc == 0 && step != SQLITE_DONE) {
        rc = fail_sqlite(store, report, "quotas");
    }
    sqlite3_finalize(read);
    return rc;
}

/* --- open and close ----------------------------------------------------------------------------
 */

static void store_close(void *context)
{
    struct store *store = context;
    if (store) {
        sqlite3_close(store->db);
        free(store);
    }
}

static const struct mill_meta_calls calls = {
    .cluster_id = store_cluster_id,
    .broker = store_broker,
    .load = store_load,
    .load_settings = store_load_settings,
    .set_settings = store_set_settings,
    .add_topics = store_add_topics,
    .set_configs = store_set_configs,
    .add_partitions = store_add_partitions,
    .mark_deleting = store_mark_deleting,
    .mark_made = store_mark_made,
    .remove_topic = store_remove_topic,
    .take_ids = store_take_ids,
    .set_quotas = store_set_quotas,
    .load_quotas = store_load_quotas,
    .close = store_close,
};

/* First column of the first row as a number; fallback when there is no row. */
static int read_number(const struct store *store, const char *text, int64_t fallback,
                       int64_t *ret_value, struct mill_report *report)
{
    sqlite3_stmt *statement = NULL;
    int rc = prepare(store, text, &statement, report);
    if (rc == 0) {
        int step = sqlite3_step(statement);
        if (step == SQLITE_ROW) {
            *ret_value = sqlite3_column_int64(statement, 0);
        } else if (step == SQLITE_DONE) {
            *ret_value = fallback;
        } else {
            rc = fail_sqlite(store, report, text);
        }
    }
    sqlite3_finalize(statement);
    return rc;
}

static int check_whole(const struct store *store, struct mill_report *report)
{
    sqlite3_stmt *statement = NULL;
    int rc = prepare(store, "PRAGMA quick_check(1)", &statement, report);
    if (rc == 0 && sqlite3_step(statement) != SQLITE_ROW) {
        rc = fail_sqlite(store, report, "quick_check");
    }
    if (rc == 0 && strcmp((const char *)sqlite3_column_text(statement, 0), "ok") != 0) {
        rc = mill_fail(report, -EBADMSG, "metadata store: damaged: %s",
                       (const char *)sqlite3_column_text(statement, 0));
    }
    sqlite3_finalize(statement);
    return rc;
}

static int prepare_schema(const struct store *store, struct mill_report *report)
{
    int64_t tables = 0;
    int64_t version = 0;
    int rc = read_number(store, "SELECT count(*) FROM sqlite_master", 0, &tables, report);
    if (rc == 0 && tables == 0) {
        rc = begin(store, report);
        if (rc == 0) {
            rc = run_text(store, schema_text, report);
            rc = finish(store, rc, report);
        }
    }
    if (rc == 0) {
        rc = read_number(store, "SELECT value FROM meta WHERE key='schema_version'", -1, &version,
                         report);
    }
    bool older = version >= 1 && version < MILL_META_SCHEMA_VERSION;
    if (rc == 0 && version == 1) { /* upgrades go on when the rows' sum was checked */
        rc = run_text(store, "DROP TABLE IF EXISTS settings;" SETTINGS_TABLE, report);
    }
    if (rc == 0 && older) {
        rc = run_text(store, "DROP TABLE IF EXISTS quotas;" QUOTAS_TABLE, report);
    } else if (rc == 0 && version != MILL_META_SCHEMA_VERSION) {
        rc = mill_fail(report, -EBADMSG,
                       "metadata store: its schema is version %lld, this program knows %d",
                       (long long)version, MILL_META_SCHEMA_VERSION);
    }
    return rc;
}

/* Writes the version of the schema that the tables have now. */
static int finish_schema(const struct store *store, struct mill_report *report)
{
    return run_text(store, "UPDATE meta SET value = 3 WHERE key = 'schema_version' AND value < 3",
                    report);
}

int mill_meta_sqlite_there(const char *file, struct mill_report *report)
{
    struct stat status;
    struct store store = {0};
    int64_t tables = 0;
    if (stat(file, &status) < 0) {
        return errno == ENOENT
                   ? 0
                   : mill_fail(report, -EIO, "%s: metadata store: %s", file, strerror(errno));
    }
    int rc = 0;
    if (sqlite3_open_v2(file, &store.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, NULL) !=
        SQLITE_OK) {
        rc = store.db ? fail_sqlite(&store, report, "open")
                      : mill_fail(report, -ENOMEM, "metadata store: out of memory");
    }
    rc =
        rc < 0 ? rc : read_number(&store, "SELECT count(*) FROM sqlite_master", 0, &tables, report);
    sqlite3_close(store.db);
    return rc < 0 ? mill_fail_in(report, rc, "%s: ", file) : tables > 0;
}

int mill_meta_sqlite_open(const char *file, uint32_t pages_max, struct mill_meta *ret_meta,
                          struct mill_report *report)
{
    struct store *store = calloc(1, sizeof(*store));
    if (!store) {
        return mill_fail(report, -ENOMEM, "metadata store: out of memory");
    }
    int rc = 0;
    if (sqlite3_open_v2(file, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW,
                        NULL) != SQLITE_OK) {
        rc = store->db ? fail_sqlite(store, report, "open")
                       : mill_fail(report, -ENOMEM, "metadata store: out of memory");
    }
    if (rc == 0) {
        rc = run_text(store,
                      "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA busy_timeout=1000;"
                      " PRAGMA temp_store=MEMORY;",
                      report);
    }
    if (rc == 0 && pages_max > 0) {
        char text[64];
        snprintf(text, sizeof(text), "PRAGMA max_page_count=%u", pages_max);
        rc = run_text(store, text, report);
    }
    if (rc == 0) {
        rc = check_whole(store, report);
    }
    if (rc == 0) {
        rc = prepare_schema(store, report);
    }
    if (rc == 0) {
        rc = mill_meta_sum_begin(store->db, report);
    }
    if (rc == 0) {
        rc = finish_schema(store, report);
    }
    if (rc < 0) {
        store_close(store);
        return mill_fail_in(report, rc, "%s: ", file);
    }
    *ret_meta = (struct mill_meta){.calls = &calls, .store = store};
    return 0;
}

void mill_meta_close(struct mill_meta *meta)
{
    if (meta && meta->calls) {
        meta->calls->close(meta->store);
        *meta = (struct mill_meta){0};
    }
}
