/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in the log directories, held against the metadata: data is never left alone with an
 * empty store. At control's start, on its thread. */
#ifndef MILL_CONTROL_META_DATA_H
#define MILL_CONTROL_META_DATA_H

#include <stdbool.h>

#include "base/report.h"

/* One entry that is called like a partition's, TOPIC-PARTITION. ret: 0 go on, else the search ends
 * with it. */
typedef int (*mill_meta_found)(void *context, const char *dir, const char *name);

/* Calls found for each such entry. Directories that are not there have none.
 * ret: 0, what found returned, or -errno (report says which). */
int mill_meta_find_data(const char *const *dirs, uint32_t dirs_count, mill_meta_found found,
                        void *context, struct mill_report *report) MILL_WARN_UNUSED;
/* Whether it is a directory with a segment, or one that names its topic. */
bool mill_meta_holds_data(const char *dir, const char *name);
/* For a store that is new: ret: 0; -EEXIST there are partitions: report names one and the remedy.
 */
int mill_meta_refuse_data(const char *const *dirs, uint32_t dirs_count, const char *file,
                          struct mill_report *report) MILL_WARN_UNUSED;

#endif
