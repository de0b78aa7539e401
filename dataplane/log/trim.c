/* SPDX-License-Identifier: Apache-2.0 */
/* Moving the log start: at once for readers, then recorded by the store, which removes segments.
 * Owner core only. ref: KIP-107 */
#include "dataplane/log/log_types.h"

#include <errno.h>

static void start_move(struct mill_partition *partition, int64_t start_offset)
{
    if (start_offset > partition->start_offset) {
        partition->start_offset = start_offset;
        mill_log_stable_update(partition);
        partition->trim_wanted = true;
        mill_log_todo(partition);
    }
}

int mill_log_trim(struct mill_partition *partition, int64_t offset, struct mill_log_watch *watch)
{
    if (partition->state != MILL_LOG_SERVING) {
        return -EIO;
    }
    int64_t to = offset == MILL_TRIM_ALL ? partition->high_watermark : offset;
    /* Asked again after a wait: another may have moved the start further meanwhile. */
    if (to < 0 || to > partition->high_watermark) {
        return -ERANGE;
    }
    start_move(partition, to);
    if (partition->trimmed_offset >= MILL_MIN(to, partition->start_offset)) {
        return 0;
    }
    mill_log_watch_add(partition, &partition->watch_parked, watch);
    return -EINPROGRESS;
}

void mill_log_old(struct mill_partition *partition, int64_t start_offset)
{
    if (partition->state == MILL_LOG_SERVING && start_offset <= partition->high_watermark) {
        start_move(partition, start_offset);
    }
}
