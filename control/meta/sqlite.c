/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata store on SQLite (meta.h): one file in WAL mode with synchronous=FULL, so that a
 * committed transaction outlives a power cut. Control's thread only. Each change is one
 * transaction; a failing statement rolls it back and leaves the connection usable. Topics:
 * sqlite_topics.c.
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
#include "control/meta/sqlite.h"
#include "control/meta/sum.h"

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
static_assert(MILL_TOPIC_MADE == 4, "mill_sqlite_add_partitions clears the flag");

int mill_sqlite_fail(const struct mill_sqlite *store, struct mill_report *report, const char *what)
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

int mill_sqlite_run(const struct mill_sqlite *store, const char *text, struct mill_report *report)
{
    return sqlite3_exec(store->db, text, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : mill_sqlite_fail(store, report, text);
}

int mill_sqlite_prepare(const struct mill_sqlite *store, const char *text,
                        sqlite3_stmt **ret_statement, struct mill_report *report)
{
    return sqlite3_prepare_v2(store->db, text, -1, ret_statement, NULL) == SQLITE_OK
               ? 0
               : mill_sqlite_fail(store, report, "prepare");
}

int mill_sqlite_run_once(const struct mill_sqlite *store, sqlite3_stmt *statement, const char *what,
                         struct mill_report *report)
{
    int rc = sqlite3_step(statement) == SQLITE_DONE ? 0 : mill_sqlite_fail(store, report, what);
    sqlite3_reset(statement);
    return rc;
}

void mill_sqlite_bind_id(sqlite3_stmt *statement, int column, const struct mill_uuid *id)
{
    sqlite3_bind_blob(statement, column, id->b, sizeof(id->b), SQLITE_STATIC);
}

int mill_sqlite_finish(const struct mill_sqlite *store, int rc, struct mill_report *report)
{
    if (rc == 0) {
#ifdef MILL_MUTANT_CONTROL_UNCOMMITTED
        static int commits;
        return mill_sqlite_run(store, ++commits > 8 ? "ROLLBACK" : "COMMIT", report);
#endif
        rc = mill_sqlite_run(store, "COMMIT", report);
    }
    if (rc < 0 && !sqlite3_get_autocommit(store->db)) {
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return rc;
}

int mill_sqlite_begin(const struct mill_sqlite *store, struct mill_report *report)
{
    return mill_sqlite_run(store, "BEGIN IMMEDIATE", report);
}

/* --- meta --------------------------------------------------------------------------------------
 */

static int store_cluster_id(void *context, const struct mill_uuid *fresh, struct mill_uuid *ret_id,
                            struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    sqlite3_stmt *read = NULL;
    sqlite3_stmt *write = NULL;
    struct mill_uuid id = *fresh;
    int rc = mill_sqlite_begin(store, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "SELECT value FROM meta WHERE key='cluster_id'", &read,
                                 report);
    }
    int step = rc == 0 ? sqlite3_step(read) : SQLITE_ERROR;
    if (rc == 0 && step == SQLITE_ROW) {
        if (sqlite3_column_bytes(read, 0) == (int)sizeof(id.b)) {
            memcpy(id.b, sqlite3_column_blob(read, 0), sizeof(id.b));
        } else {
            rc = mill_fail(report, -EBADMSG, "metadata store: the cluster id is damaged");
        }
    } else if (rc == 0 && step == SQLITE_DONE) {
        rc =
            mill_sqlite_prepare(store, "INSERT INTO meta VALUES('cluster_id', ?1)", &write, report);
        if (rc == 0) {
            mill_sqlite_bind_id(write, 1, &id);
            rc = mill_sqlite_run_once(store, write, "cluster id", report);
        }
    } else if (rc == 0) {
        rc = mill_sqlite_fail(store, report, "cluster id");
    }
    sqlite3_finalize(read);
    sqlite3_finalize(write);
    rc = mill_sqlite_finish(store, rc, report);
    if (rc == 0) {
        *ret_id = id;
    }
    return rc;
}

static int store_broker(void *context, int32_t node_id, struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    sqlite3_stmt *read = NULL;
    sqlite3_stmt *write = NULL;
    int rc = mill_sqlite_begin(store, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "SELECT node_id FROM broker", &read, report);
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
        rc = mill_sqlite_prepare(store, "INSERT INTO broker VALUES(?1)", &write, report);
        if (rc == 0) {
            sqlite3_bind_int(write, 1, node_id);
            rc = mill_sqlite_run_once(store, write, "broker", report);
        }
    } else if (rc == 0) {
        rc = mill_sqlite_fail(store, report, "broker");
    }
    sqlite3_finalize(read);
    sqlite3_finalize(write);
    return mill_sqlite_finish(store, rc, report);
}

static int store_take_ids(void *context, int64_t count, int64_t *ret_first,
                          struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    sqlite3_stmt *read = NULL;
    sqlite3_stmt *write = NULL;
    int64_t first = -1;
    int rc = mill_sqlite_begin(store, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "SELECT value FROM meta WHERE key='next_producer_id'",
                                 &read, report);
    }
    if (rc == 0) {
        first = sqlite3_step(read) == SQLITE_ROW ? sqlite3_column_int64(read, 0) : -1;
        if (first < 0 || first > INT64_MAX - count) {
            rc = mill_fail(report, -EIO, "metadata store: no producer ids left");
        }
    }
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "UPDATE meta SET value=?1 WHERE key='next_producer_id'",
                                 &write, report);
    }
    if (rc == 0) {
        sqlite3_bind_int64(write, 1, first + count);
        rc = mill_sqlite_run_once(store, write, "producer ids", report);
    }
    sqlite3_finalize(read);
    sqlite3_finalize(write);
    rc = mill_sqlite_finish(store, rc, report);
    if (rc == 0) {
        *ret_first = first;
    }
    return rc;
}

/* --- settings of brokers -----------------------------------------------------------------------
 */

static int store_load_settings(void *context, mill_meta_visit_setting visit, void *visit_context,
                               struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    sqlite3_stmt *statement = NULL;
    int step = SQLITE_DONE;
    int rc = mill_sqlite_prepare(store,
                                 "SELECT node_id, name, value FROM settings ORDER BY node_id, name",
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
        rc = mill_sqlite_fail(store, report, "settings");
    }
    sqlite3_finalize(statement);
    return rc;
}

static int store_set_settings(void *context, int32_t node_id,
                              const struct mill_meta_config *configs, uint32_t configs_count,
                              struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    sqlite3_stmt *clear = NULL;
    sqlite3_stmt *add = NULL;
    int rc = mill_sqlite_begin(store, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "DELETE FROM settings WHERE node_id = ?1", &clear, report);
    }
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "INSERT INTO settings VALUES(?1,?2,?3)", &add, report);
    }
    if (rc == 0) {
        sqlite3_bind_int(clear, 1, node_id);
        rc = mill_sqlite_run_once(store, clear, "settings", report);
    }
    for (uint32_t i = 0; rc == 0 && i < configs_count; i++) {
        sqlite3_bind_int(add, 1, node_id);
        sqlite3_bind_text(add, 2, configs[i].name, -1, SQLITE_STATIC);
        sqlite3_bind_text(add, 3, configs[i].value, -1, SQLITE_STATIC);
        rc = mill_sqlite_run_once(store, add, "setting", report);
    }
    sqlite3_finalize(clear);
    sqlite3_finalize(add);
    return mill_sqlite_finish(store, rc, report);
}

/* --- quotas ------------------------------------------------------------------------------------
 */

static int store_set_quotas(void *context, const struct mill_meta_quota *quotas,
                            uint32_t quotas_count, struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    sqlite3_stmt *clear = NULL;
    sqlite3_stmt *add = NULL;
#ifdef MILL_MUTANT_CONTROL_QUOTA_UNKEPT
    quotas_count = 0;
#endif
    int rc = mill_sqlite_begin(store, report);
    if (rc == 0) {
        rc = mill_sqlite_prepare(store,
                                 "DELETE FROM quotas WHERE user = ?1 AND client = ?2 AND key = ?3",
                                 &clear, report);
    }
    if (rc == 0) {
        rc = mill_sqlite_prepare(store, "INSERT INTO quotas VALUES(?1,?2,?3,?4)", &add, report);
    }
    for (uint32_t i = 0; rc == 0 && i < quotas_count; i++) {
        const struct mill_meta_quota *quota = &quotas[i];
        const char *const names[] = {quota->user, quota->client, quota->key};
        char value[64];
        for (int column = 0; column < (int)MILL_COUNT_OF(names); column++) {
            sqlite3_bind_text(clear, column + 1, names[column], -1, SQLITE_STATIC);
            sqlite3_bind_text(add, column + 1, names[column], -1, SQLITE_STATIC);
        }
        rc = mill_sqlite_run_once(store, clear, "quota", report);
        if (rc == 0 && quota->value != 0) {
            snprintf(value, sizeof(value), "%.17g", quota->value);
            sqlite3_bind_text(add, 4, value, -1, SQLITE_STATIC);
            rc = mill_sqlite_run_once(store, add, "quota", report);
        }
    }
    sqlite3_finalize(clear);
    sqlite3_finalize(add);
    return mill_sqlite_finish(store, rc, report);
}

static int store_load_quotas(void *context, mill_meta_visit_quota visit, void *visit_context,
                             struct mill_report *report)
{
    const struct mill_sqlite *store = context;
    sqlite3_stmt *read = NULL;
    int step = SQLITE_DONE;
    int rc =
        mill_sqlite_prepare(store, "SELECT user, client, key, value FROM quotas", &read, report);
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
        rc = mill_sqlite_fail(store, report, "quotas");
    }
    sqlite3_finalize(read);
    return rc;
}

/* --- open and close ----------------------------------------------------------------------------
 */

static void store_close(void *context)
{
    struct mill_sqlite *store = context;
    if (store) {
        sqlite3_close(store->db);
        free(store);
    }
}

static const struct mill_meta_calls calls = {
    .cluster_id = store_cluster_id,
    .broker = store_broker,
    .load = mill_sqlite_load,
    .load_settings = store_load_settings,
    .set_settings = store_set_settings,
    .add_topics = mill_sqlite_add_topics,
    .set_configs = mill_sqlite_set_configs,
    .add_partitions = mill_sqlite_add_partitions,
    .mark_deleting = mill_sqlite_mark_deleting,
    .mark_made = mill_sqlite_mark_made,
    .remove_topic = mill_sqlite_remove_topic,
    .take_ids = store_take_ids,
    .set_quotas = store_set_quotas,
    .load_quotas = store_load_quotas,
    .close = store_close,
};

/* First column of the first row as a number; fallback when there is no row. */
static int read_number(const struct mill_sqlite *store, const char *text, int64_t fallback,
                       int64_t *ret_value, struct mill_report *report)
{
    sqlite3_stmt *statement = NULL;
    int rc = mill_sqlite_prepare(store, text, &statement, report);
    if (rc == 0) {
        int step = sqlite3_step(statement);
        if (step == SQLITE_ROW) {
            *ret_value = sqlite3_column_int64(statement, 0);
        } else if (step == SQLITE_DONE) {
            *ret_value = fallback;
        } else {
            rc = mill_sqlite_fail(store, report, text);
        }
    }
    sqlite3_finalize(statement);
    return rc;
}

static int check_whole(const struct mill_sqlite *store, struct mill_report *report)
{
    sqlite3_stmt *statement = NULL;
    int rc = mill_sqlite_prepare(store, "PRAGMA quick_check(1)", &statement, report);
    if (rc == 0 && sqlite3_step(statement) != SQLITE_ROW) {
        rc = mill_sqlite_fail(store, report, "quick_check");
    }
    if (rc == 0 && strcmp((const char *)sqlite3_column_text(statement, 0), "ok") != 0) {
        rc = mill_fail(report, -EBADMSG, "metadata store: damaged: %s",
                       (const char *)sqlite3_column_text(statement, 0));
    }
    sqlite3_finalize(statement);
    return rc;
}

static int prepare_schema(const struct mill_sqlite *store, struct mill_report *report)
{
    int64_t tables = 0;
    int64_t version = 0;
    int rc = read_number(store, "SELECT count(*) FROM sqlite_master", 0, &tables, report);
    if (rc == 0 && tables == 0) {
        rc = mill_sqlite_begin(store, report);
        if (rc == 0) {
            rc = mill_sqlite_run(store, schema_text, report);
            rc = mill_sqlite_finish(store, rc, report);
        }
    }
    if (rc == 0) {
        rc = read_number(store, "SELECT value FROM meta WHERE key='schema_version'", -1, &version,
                         report);
    }
    bool older = version >= 1 && version < MILL_META_SCHEMA_VERSION;
    if (rc == 0 && version == 1) { /* upgrades go on when the rows' sum was checked */
        rc = mill_sqlite_run(store, "DROP TABLE IF EXISTS settings;" SETTINGS_TABLE, report);
    }
    if (rc == 0 && older) {
        rc = mill_sqlite_run(store, "DROP TABLE IF EXISTS quotas;" QUOTAS_TABLE, report);
    } else if (rc == 0 && version != MILL_META_SCHEMA_VERSION) {
        rc = mill_fail(report, -EBADMSG,
                       "metadata store: its schema is version %lld, this program knows %d",
                       (long long)version, MILL_META_SCHEMA_VERSION);
    }
    return rc;
}

/* Writes the version of the schema that the tables have now. */
static int finish_schema(const struct mill_sqlite *store, struct mill_report *report)
{
    return mill_sqlite_run(
        store, "UPDATE meta SET value = 3 WHERE key = 'schema_version' AND value < 3", report);
}

int mill_meta_sqlite_there(const char *file, struct mill_report *report)
{
    struct stat status;
    struct mill_sqlite store = {0};
    int64_t tables = 0;
    if (stat(file, &status) < 0) {
        return errno == ENOENT
                   ? 0
                   : mill_fail(report, -EIO, "%s: metadata store: %s", file, strerror(errno));
    }
    int rc = 0;
    if (sqlite3_open_v2(file, &store.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, NULL) !=
        SQLITE_OK) {
        rc = store.db ? mill_sqlite_fail(&store, report, "open")
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
    struct mill_sqlite *store = calloc(1, sizeof(*store));
    if (!store) {
        return mill_fail(report, -ENOMEM, "metadata store: out of memory");
    }
    int rc = 0;
    if (sqlite3_open_v2(file, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW,
                        NULL) != SQLITE_OK) {
        rc = store->db ? mill_sqlite_fail(store, report, "open")
                       : mill_fail(report, -ENOMEM, "metadata store: out of memory");
    }
    if (rc == 0) {
        rc = mill_sqlite_run(
            store,
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA busy_timeout=1000;"
            " PRAGMA temp_store=MEMORY;",
            report);
    }
    if (rc == 0 && pages_max > 0) {
        char text[64];
        snprintf(text, sizeof(text), "PRAGMA max_page_count=%u", pages_max);
        rc = mill_sqlite_run(store, text, report);
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
