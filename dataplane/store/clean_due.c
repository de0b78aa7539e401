/* SPDX-License-Identifier: Apache-2.0 */
/* Which partition is due for compaction: what of it may be compacted, and how much of that is
 * dirty. See clean_types.h. ref: KIP-58, KIP-354 (lags) */
#include "dataplane/store/clean_types.h"

/* Open transactions and what is not in the files are above it. */
static int64_t stable_offset(const struct store_partition *partition)
{
    const struct store_producers *producers = &partition->producers;
#ifdef MILL_MUTANT_STORE_CLEAN_UNSTABLE
    return partition->written_offset;
#endif
    return producers->open_length > 0
               ? MILL_MIN(partition->written_offset, producers->open[0].first_offset)
               : partition->written_offset;
}

static void range_of(struct mill_store *store, struct store_partition *partition,
                     struct clean_range *ret_range)
{
    const struct mill_log_settings *settings = &partition->settings;
    int64_t now = store->now.wall_ms;
    uint32_t last = partition->segments_count - 1; /* the active one is left alone */
    int64_t stable = MILL_MIN(stable_offset(partition), partition->segments[last].base_offset);
    *ret_range = (struct clean_range){.dirty_offset = partition->clean_offset};
    if (partition->clean_offset < partition->start_offset ||
        partition->clean_offset > partition->written_offset) {
        /* None was noted, the log start has passed it, or it is of another log. */
        ret_range->dirty_offset = partition->start_offset;
    }
    ret_range->upper_offset = stable;
    for (uint32_t i = 0; i < last; i++) {
        struct store_segment *segment = &partition->segments[i];
        bool dirty = partition->segments[i + 1].base_offset > ret_range->dirty_offset;
        bool young = settings->min_compaction_lag_ms > 0 &&
                     segment->max_timestamp > now - settings->min_compaction_lag_ms;
#ifdef MILL_MUTANT_STORE_CLEAN_YOUNG
        young = false;
#endif
        if (partition->segments[i + 1].base_offset > stable || (dirty && young)) {
            ret_range->upper_offset = segment->base_offset; /* always a segment's */
            break;
        }
        if (!dirty) {
            ret_range->clean_bytes += segment->log_bytes;
            continue;
        }
        ret_range->dirty_bytes += segment->log_bytes;
        if (settings->max_compaction_lag_ms < INT64_MAX) {
            int64_t first = mill_store_first_timestamp(store, partition, segment);
            ret_range->overdue =
                ret_range->overdue || (first > 0 && first < now - settings->max_compaction_lag_ms);
        }
    }
}

int64_t mill_clean_dirt(struct mill_store *store, struct store_partition *partition,
                        struct clean_range *ret_range)
{
    ret_range->share_ppm = 0;
    if (!mill_store_is_whole(store, partition) || !partition->settings.compact ||
        partition->uncleanable || partition->opening || partition->kept_count > 0) {
        return -1;
    }
    range_of(store, partition, ret_range);
    uint64_t all = ret_range->clean_bytes + ret_range->dirty_bytes;
    if (ret_range->dirty_bytes == 0 || ret_range->upper_offset <= ret_range->dirty_offset) {
        return -1;
    }
    int64_t share = (int64_t)(ret_range->dirty_bytes * 1000000 / all);
    ret_range->share_ppm = share;
    return ret_range->overdue || share > partition->settings.min_cleanable_ppm ? share : -1;
}
