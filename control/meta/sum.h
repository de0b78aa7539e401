/* SPDX-License-Identifier: Apache-2.0 */
/* A sum over all rows of the metadata store, kept by triggers of the connection in the same
 * transaction as each change: SQLite checks the structure of its pages, not the values in them.
 * Control's thread. */
#ifndef MILL_CONTROL_META_SUM_H
#define MILL_CONTROL_META_SUM_H

#include <sqlite3.h>

#include "base/report.h"

/* Checks the rows against the sum in meta (makes it where there is none: an older store), then
 * keeps it up to date for as long as the connection is open.
 * ret: 0; -EBADMSG the rows are not those that were written; -EIO. */
int mill_meta_sum_begin(sqlite3 *db, struct mill_report *report) MILL_WARN_UNUSED;

#endif
