/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the metadata store on SQLite, for control/meta only: statements and transactions. ret
 * of all: as meta.h says. Control's thread. */
#ifndef MILL_CONTROL_META_SQLITE_H
#define MILL_CONTROL_META_SQLITE_H

#include <sqlite3.h>

#include "control/meta/meta.h"

struct mill_sqlite {
    sqlite3 *db;
};

/* --- sqlite.c ----------------------------------------------------------------------------------
 */

/* The error that the connection has, as an errno, reported. */
int mill_sqlite_fail(const struct mill_sqlite *store, struct mill_report *report, const char *what);
int mill_sqlite_run(const struct mill_sqlite *store, const char *text, struct mill_report *report);
int mill_sqlite_prepare(const struct mill_sqlite *store, const char *text,
                        sqlite3_stmt **ret_statement, struct mill_report *report);
/* Runs a bound statement to its end and makes it ready for the next values. */
int mill_sqlite_run_once(const struct mill_sqlite *store, sqlite3_stmt *statement, const char *what,
                         struct mill_report *report);
void mill_sqlite_bind_id(sqlite3_stmt *statement, int column, const struct mill_uuid *id);
int mill_sqlite_begin(const struct mill_sqlite *store, struct mill_report *report);
/* Ends a transaction: commits when rc is 0, else rolls back. A failed commit rolls back too. */
int mill_sqlite_finish(const struct mill_sqlite *store, int rc, struct mill_report *report);

/* --- sqlite_topics.c: calls of meta.h ----------------------------------------------------------
 */

int mill_sqlite_add_topics(void *context, const struct mill_meta_topic *topics,
                           uint32_t topics_count, struct mill_report *report);
int mill_sqlite_set_configs(void *context, const struct mill_meta_topic *topics,
                            uint32_t topics_count, struct mill_report *report);
int mill_sqlite_add_partitions(void *context, const struct mill_map_topic *const *records,
                               uint32_t records_count, struct mill_report *report);
int mill_sqlite_mark_deleting(void *context, const struct mill_uuid *ids, uint32_t ids_count,
                              struct mill_report *report);
int mill_sqlite_mark_made(void *context, const struct mill_uuid *ids, uint32_t ids_count,
                          struct mill_report *report);
int mill_sqlite_remove_topic(void *context, const struct mill_uuid *id, struct mill_report *report);
int mill_sqlite_load(void *context, mill_meta_visit visit, void *visit_context,
                     struct mill_report *report);

#endif
