/* SPDX-License-Identifier: Apache-2.0 */
/* The sum over the rows; see sum.h. Each row adds a hash of its table's name and its values, so
 * that order does not matter and a change takes the old row's hash away. The triggers are
 * temporary: the file holds nothing but the sum. */
#include "control/meta/sum.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/siphash.h"

enum {
    TEXT_BYTES = 512,
};

struct table {
    const char *name;
    const char *only; /* rows that count, behind the row's name; NULL: all */
    const char *columns[8];
};

static const struct table tables[] = {
    {"meta", "key <> 'sum'", {"key", "value"}},
    {"broker", NULL, {"node_id"}},
    {"topics", NULL, {"id", "name", "flags", "partitions"}},
    {"partitions",
     NULL,
     {"topic_id", "partition", "leader", "leader_epoch", "partition_epoch", "replicas",
      "isr_bits"}},
    {"configs", NULL, {"topic_id", "name", "value"}},
    {"settings", NULL, {"node_id", "name", "value"}},
    {"quotas", NULL, {"user", "client", "key", "value"}},
};

static const uint64_t key[2] = {0x6d65746164617461ull, 0x726f77732773756dull};

/* mill_sum(SUM, SIGN, VALUES...): SUM with the hash of VALUES added, or taken away. */
static void sum_values(sqlite3_context *context, int count, sqlite3_value **values)
{
    uint64_t hash = 0;
    for (int i = 2; i < count; i++) {
        const void *bytes = sqlite3_value_blob(values[i]); /* as text, where it is no blob */
        int size = sqlite3_value_bytes(values[i]);
        uint64_t part[3] = {hash, (uint64_t)size,
                            bytes ? mill_siphash(key, bytes, (size_t)size) : 0};
        hash = mill_siphash(key, part, sizeof(part));
    }
    uint64_t sum = (uint64_t)sqlite3_value_int64(values[0]);
    sum += sqlite3_value_int(values[1]) < 0 ? 0 - hash : hash;
    sqlite3_result_int64(context, (int64_t)sum);
}

static int fail(sqlite3 *db, struct mill_report *report)
{
    int code = sqlite3_errcode(db);
    return mill_fail(report, code == SQLITE_CORRUPT || code == SQLITE_NOTADB ? -EBADMSG : -EIO,
                     "metadata store: sum: %s", sqlite3_errmsg(db));
}

/* "mill_sum(FROM, SIGN, 'TABLE', ROW.column, ...)" */
static void call_text(const struct table *table, const char *from, int sign, const char *row,
                      char *ret_text, size_t capacity)
{
    int at = snprintf(ret_text, capacity, "mill_sum(%s, %d, '%s'", from, sign, table->name);
    for (int i = 0; i < 8 && table->columns[i]; i++) {
        at += snprintf(ret_text + at, capacity - (size_t)at, ", %s%s", row, table->columns[i]);
    }
    snprintf(ret_text + at, capacity - (size_t)at, ")");
}

static int rows_sum(sqlite3 *db, int64_t *ret_sum, struct mill_report *report)
{
    *ret_sum = 0;
    for (size_t i = 0; i < MILL_COUNT_OF(tables); i++) {
        char call[TEXT_BYTES];
        char text[TEXT_BYTES + 128];
        sqlite3_stmt *statement = NULL;
        call_text(&tables[i], "0", 1, "", call, sizeof(call));
        snprintf(text, sizeof(text), "SELECT %s FROM %s WHERE %s", call, tables[i].name,
                 tables[i].only ? tables[i].only : "1");
        if (sqlite3_prepare_v2(db, text, -1, &statement, NULL) != SQLITE_OK) {
            return fail(db, report);
        }
        int step;
        while ((step = sqlite3_step(statement)) == SQLITE_ROW) {
            *ret_sum = (int64_t)((uint64_t)*ret_sum + (uint64_t)sqlite3_column_int64(statement, 0));
        }
        sqlite3_finalize(statement);
        if (step != SQLITE_DONE) {
            return fail(db, report);
        }
    }
    return 0;
}

/* Compares, or keeps a first sum. */
static int compare(sqlite3 *db, int64_t sum, struct mill_report *report)
{
    sqlite3_stmt *statement = NULL;
    char text[128];
    if (sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE key='sum'", -1, &statement, NULL) !=
        SQLITE_OK) {
        return fail(db, report);
    }
    int step = sqlite3_step(statement);
    bool same = step == SQLITE_ROW && sqlite3_column_int64(statement, 0) == sum;
    sqlite3_finalize(statement);
    if (step == SQLITE_ROW) {
#ifdef MILL_MUTANT_CONTROL_UNSUMMED
        return 0;
#endif
        return same ? 0
                    : mill_fail(report, -EBADMSG,
                                "metadata store: damaged: its rows are not those that were "
                                "written; put back a copy");
    }
    if (step != SQLITE_DONE) {
        return fail(db, report);
    }
    snprintf(text, sizeof(text), "INSERT INTO meta VALUES('sum', %lld)", (long long)sum);
    return sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(db, report);
}

static int trigger_make(sqlite3 *db, const struct table *table, const char *event, bool old,
                        bool new, struct mill_report *report)
{
    char text[3 * TEXT_BYTES];
    char call[TEXT_BYTES];
    char inner[TEXT_BYTES] = "value";
    const char *row = new ? "NEW." : "OLD.";
    if (old) {
        call_text(table, "value", -1, "OLD.", inner, sizeof(inner));
    }
    snprintf(call, sizeof(call), "%s", inner);
    if (new) {
        call_text(table, inner, 1, "NEW.", call, sizeof(call));
    }
    snprintf(text, sizeof(text),
             "CREATE TEMP TRIGGER sum_%s_%s AFTER %s ON main.%s WHEN %s%s BEGIN "
             "UPDATE meta SET value = %s WHERE key = 'sum'; END",
             table->name, event, event, table->name, table->only ? row : "",
             table->only ? table->only : "1", call);
    return sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(db, report);
}

int mill_meta_sum_begin(sqlite3 *db, struct mill_report *report)
{
    int64_t sum = 0;
    if (sqlite3_create_function(db, "mill_sum", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
                                sum_values, NULL, NULL) != SQLITE_OK) {
        return fail(db, report);
    }
    int rc = rows_sum(db, &sum, report);
    rc = rc < 0 ? rc : compare(db, sum, report);
    for (size_t i = 0; rc == 0 && i < MILL_COUNT_OF(tables); i++) {
        rc = trigger_make(db, &tables[i], "INSERT", false, true, report);
        rc = rc < 0 ? rc : trigger_make(db, &tables[i], "DELETE", true, false, report);
        rc = rc < 0 ? rc : trigger_make(db, &tables[i], "UPDATE", true, true, report);
    }
    return rc;
}
