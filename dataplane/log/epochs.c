/* SPDX-License-Identifier: Apache-2.0 */
/* Leader epochs of a partition: at which offset each began. The newest are kept, bounded; the store
 * keeps them in leader-epoch-checkpoint. Owner core only. ref: KIP-101, KIP-279, KIP-320 */
#include "dataplane/log/log_types.h"

#include <string.h>

void mill_log_epoch_begin(struct mill_partition *partition, int32_t epoch)
{
    struct mill_link_epoch *epochs = partition->epochs;
    if (epoch < 0 ||
        (partition->epochs_count > 0 && epochs[partition->epochs_count - 1].epoch >= epoch)) {
        return;
    }
    /* An epoch without a single batch never was, for whoever compares logs. */
    while (partition->epochs_count > 0 &&
           epochs[partition->epochs_count - 1].start_offset >= partition->end_offset) {
        partition->epochs_count--;
    }
    if (partition->epochs_count == MILL_LINK_EPOCHS_MAX) {
        memmove(&epochs[0], &epochs[1], (MILL_LINK_EPOCHS_MAX - 1) * sizeof(epochs[0]));
        partition->epochs_count--;
    }
    epochs[partition->epochs_count++] =
        (struct mill_link_epoch){.epoch = epoch, .start_offset = partition->end_offset};
    partition->epochs_wanted = true;
    mill_log_todo(partition);
}

int32_t mill_log_epoch_at(const struct mill_partition *partition, int64_t offset)
{
    for (uint32_t i = partition->epochs_count; i-- > 0;) {
        if (partition->epochs[i].start_offset <= offset) {
            return partition->epochs[i].epoch;
        }
    }
    return -1;
}

void mill_log_epoch_end(const struct mill_partition *partition, int32_t epoch, int32_t *ret_epoch,
                        int64_t *ret_end_offset)
{
    const struct mill_link_epoch *epochs = partition->epochs;
    uint32_t count = partition->epochs_count;
    *ret_epoch = -1;
    *ret_end_offset = -1;
    if (epoch < 0 || count == 0 || epoch > epochs[count - 1].epoch) {
        return;
    }
    if (epoch < epochs[0].epoch) {
        *ret_epoch = epoch;
        *ret_end_offset = epochs[0].start_offset;
        return;
    }
    uint32_t at = count - 1;
    while (epochs[at].epoch > epoch) {
        at--;
    }
    *ret_epoch = epochs[at].epoch;
    *ret_end_offset = at + 1 < count ? epochs[at + 1].start_offset : partition->end_offset;
}
