/* SPDX-License-Identifier: Apache-2.0 */
/* The table of busy partitions in the shared counters. What was used since the last look gets a
 * row; when all are taken, the row that was used least recently. Part of the core's publishing:
 * bounded, a few times a second and before sleep. */
#include "dataplane/core/core_types.h"

#include <string.h>

static bool row_is(const struct mill_core_row *row, const struct mill_partition *partition)
{
    return row->used && row->index == mill_partition_index(partition) &&
           mill_uuid_equal(&row->topic_id, mill_partition_topic_id(partition));
}

static void row_clear(struct mill_core *core, uint32_t number)
{
    struct mill_shared_partition *to = &core->shared->busy[number];
    core->rows[number].used = false;
    mill_counter_set(&to->used, 0);
#define MILL_ROW_CLEAR(name, help) mill_counter_set(&to->name, 0);
    MILL_PARTITION_COUNTERS(MILL_ROW_CLEAR)
#undef MILL_ROW_CLEAR
}

/* A row for a partition that has none. */
static uint32_t row_take(struct mill_core *core, const struct mill_partition *partition)
{
    uint32_t oldest = 0;
    for (uint32_t i = 0; i < MILL_COUNTERS_PARTITIONS_MAX; i++) {
        const struct mill_core_row *row = &core->rows[i];
        if (!row->used) {
            oldest = i;
            break;
        }
        oldest = row->used_ns < core->rows[oldest].used_ns ? i : oldest;
    }
    core->words.partition_rows_full += core->rows[oldest].used ? 1 : 0;
    row_clear(core, oldest);
    core->rows[oldest] = (struct mill_core_row){.topic_id = *mill_partition_topic_id(partition),
                                                .index = mill_partition_index(partition),
                                                .used = true};
    struct mill_shared_partition *to = &core->shared->busy[oldest];
    memcpy(to->topic, mill_partition_topic(partition), MILL_LOG_NAME_MAX + 1);
    to->partition = mill_partition_index(partition);
    return oldest;
}

void mill_rows_open(struct mill_core *core)
{
    for (uint32_t i = 0; i < MILL_COUNTERS_PARTITIONS_MAX; i++) {
        row_clear(core, i);
    }
}

void mill_rows_publish(struct mill_core *core, struct mill_now now)
{
    struct mill_partition *recent[MILL_COUNTERS_PARTITIONS_MAX];
    uint32_t count =
        mill_log_recent(core->log, core->rows_ns, recent, MILL_COUNTERS_PARTITIONS_MAX);
    core->rows_ns = now.mono_ns;
#ifdef MILL_MUTANT_CORE_ROWS_STALE
    count = 0;
#endif
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = mill_partition_row(recent[i]);
        if (number >= MILL_COUNTERS_PARTITIONS_MAX || !row_is(&core->rows[number], recent[i])) {
            number = row_take(core, recent[i]);
            mill_partition_row_set(recent[i], number);
        }
        struct mill_shared_partition *to = &core->shared->busy[number];
        core->rows[number].used_ns = now.mono_ns;
        mill_counter_set(&to->bytes_in, mill_partition_bytes_in(recent[i]));
        mill_counter_set(&to->bytes_out, mill_partition_bytes_out(recent[i]));
        mill_counter_set(&to->start_offset, (uint64_t)mill_partition_start(recent[i]));
        mill_counter_set(&to->end_offset, (uint64_t)mill_partition_end(recent[i]));
        mill_counter_set(&to->used, 1);
    }
}

void mill_rows_gone(struct mill_core *core, const struct mill_partition *partition)
{
    uint32_t number = mill_partition_row(partition);
    if (number < MILL_COUNTERS_PARTITIONS_MAX && row_is(&core->rows[number], partition)) {
        row_clear(core, number);
    }
}
