/* SPDX-License-Identifier: Apache-2.0 */
/* See live.h. Each table is a list of columns with their place in the shared structs. */
#include "cli/live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* A column: a counter's rate per second, or its value now. */
struct column {
    const char *name;
    size_t at;
    bool is_rate;
};

#define RATE(type, name, member)                                                                   \
    {                                                                                              \
        name, offsetof(struct type, member), true                                                  \
    }
#define LEVEL(type, member)                                                                        \
    {                                                                                              \
#member, offsetof(struct type, member), false                                              \
    }

static const struct column core_columns[] = {
    RATE(mill_shared_core, "requests_s", requests),
    RATE(mill_shared_core, "batches_s", batches_in),
    RATE(mill_shared_core, "bytes_in_s", log_bytes_in),
    RATE(mill_shared_core, "bytes_out_s", log_bytes_out),
    RATE(mill_shared_core, "turns_s", turns),
    RATE(mill_shared_core, "handed_over_s", handed_over),
    RATE(mill_shared_core, "misdirected_s", misdirected),
    RATE(mill_shared_core, "wakeups_s", wakeups_sent),
    LEVEL(mill_shared_core, connections),
    LEVEL(mill_shared_core, partitions),
    LEVEL(mill_shared_core, waiting_fetches),
    LEVEL(mill_shared_core, loaned_bytes),
    LEVEL(mill_shared_core, arena_used_bytes),
    LEVEL(mill_shared_core, dirty_bytes),
    LEVEL(mill_shared_core, stalls),
};
static const struct column port_columns[] = {
    RATE(mill_shared_port, "rx_packets_s", rx_packets),
    RATE(mill_shared_port, "rx_bytes_s", rx_bytes),
    RATE(mill_shared_port, "tx_packets_s", tx_packets),
    RATE(mill_shared_port, "tx_bytes_s", tx_bytes),
    RATE(mill_shared_port, "rx_missed_s", rx_missed),
    RATE(mill_shared_port, "rx_nombuf_s", rx_nombuf),
    RATE(mill_shared_port, "tx_errors_s", tx_errors),
    LEVEL(mill_shared_port, mbufs_used),
};
static const struct column listener_columns[] = {
    RATE(mill_shared_listener, "bytes_in_s", bytes_in),
    RATE(mill_shared_listener, "bytes_out_s", bytes_out),
    RATE(mill_shared_listener, "accepted_s", accepted),
    RATE(mill_shared_listener, "refused_s", refused),
    LEVEL(mill_shared_listener, connections),
};
static const struct column partition_columns[] = {
    RATE(mill_shared_partition, "bytes_in_s", bytes_in),
    RATE(mill_shared_partition, "bytes_out_s", bytes_out),
    RATE(mill_shared_partition, "records_s", end_offset),
    LEVEL(mill_shared_partition, start_offset),
    LEVEL(mill_shared_partition, end_offset),
};
static const struct column net_columns[] = {
    RATE(mill_shared_net, "rx_frames_s", rx_frames),
    RATE(mill_shared_net, "tx_frames_s", tx_frames),
    RATE(mill_shared_net, "established_s", established),
    RATE(mill_shared_net, "retransmits_s", retransmits),
    RATE(mill_shared_net, "out_of_order_s", out_of_order),
    RATE(mill_shared_net, "resets_in_s", resets_in),
    RATE(mill_shared_net, "resets_out_s", resets_out),
    RATE(mill_shared_net, "syn_dropped_s", syn_dropped),
    RATE(mill_shared_net, "checksum_errors_s", checksum_errors),
};

/* --- readings -----------------------------------------------------------------------------------
 */

int live_read(const struct mill_counters *counters, struct live_reading *reading)
{
    uint64_t size_bytes = mill_counters_bytes(counters->cores_count);
    if (!reading->counters) {
        reading->counters = aligned_alloc(128, mill_round_up(size_bytes, 128));
        if (!reading->counters) {
            return -ENOMEM;
        }
    }
    reading->at_ns = mill_now_read().mono_ns;
    memcpy(reading->counters, counters, size_bytes);
    /* A writer of another version cannot come while the supervisor lives; its bounds may still be
     * those of a moment in which it wrote them. */
    reading->counters->cores_count = counters->cores_count;
    reading->counters->ports_count =
        MILL_MIN(reading->counters->ports_count, (uint32_t)MILL_COUNTERS_PORTS_MAX);
    reading->counters->listeners_count =
        MILL_MIN(reading->counters->listeners_count, (uint32_t)MILL_MAP_LISTENERS_MAX);
    return 0;
}

void live_free(struct live_reading *reading)
{
    free(reading->counters);
    *reading = (struct live_reading){0};
}

/* --- columns ------------------------------------------------------------------------------------
 */

static uint64_t word_at(const void *base, size_t at)
{
    return mill_counter_get((const _Atomic uint64_t *)(const void *)((const uint8_t *)base + at));
}

static double seconds_between(const struct live_reading *before, const struct live_reading *after)
{
    return (double)MILL_MAX(after->at_ns - before->at_ns, (uint64_t)1) / 1e9;
}

/* Sums a column over count structs of stride bytes. before NULL: everything since is new. */
static void columns_add(json_t *row, const struct column *columns, uint32_t columns_count,
                        const void *before, const void *after, size_t stride, uint32_t count,
                        double seconds)
{
    for (uint32_t i = 0; i < columns_count; i++) {
        uint64_t now = 0;
        uint64_t then = 0;
        for (uint32_t n = 0; n < count; n++) {
            now += word_at((const uint8_t *)after + n * stride, columns[i].at);
            then += before ? word_at((const uint8_t *)before + n * stride, columns[i].at) : 0;
        }
        if (columns[i].is_rate) {
            uint64_t more = now > then ? now - then : 0;
            json_object_set_new(row, columns[i].name, json_real((double)more / seconds));
        } else {
            json_object_set_new(row, columns[i].name, json_integer((json_int_t)now));
        }
    }
}

json_t *live_text(const char *text, size_t size_bytes)
{
    json_t *value = json_stringn(text, strnlen(text, size_bytes));
    return value ? value : json_string("?"); /* not UTF-8 */
}

static double share(uint64_t before, uint64_t after, double seconds)
{
    uint64_t more = after > before ? after - before : 0;
    return MILL_MIN((double)more / 1e9 / seconds, 1.0);
}

/* --- tables -------------------------------------------------------------------------------------
 */

static json_t *cores(const struct live_reading *before, const struct live_reading *after)
{
    double seconds = seconds_between(before, after);
    json_t *rows = json_array();
    for (uint32_t i = 0; i < after->counters->cores_count; i++) {
        const struct mill_shared_core *then = &before->counters->cores[i];
        const struct mill_shared_core *now = &after->counters->cores[i];
        json_t *row = json_object();
        json_object_set_new(row, "core", json_integer(i));
        json_object_set_new(row, "cpu", json_integer(now->cpu));
        json_object_set_new(row, "busy_ratio",
                            json_real(share(then->busy_ns, now->busy_ns, seconds)));
        json_object_set_new(
            row, "stolen_ratio",
            json_real(share(then->jitter.stolen_ns, now->jitter.stolen_ns, seconds)));
        columns_add(row, core_columns, MILL_COUNT_OF(core_columns), then, now, 0, 1, seconds);
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *ports(const struct live_reading *before, const struct live_reading *after)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < after->counters->ports_count; i++) {
        const struct mill_shared_port *now = &after->counters->ports[i];
        json_t *row = json_object();
        json_object_set_new(row, "name", live_text(now->name, sizeof(now->name)));
        json_object_set_new(row, "driver", live_text(now->driver, sizeof(now->driver)));
        json_object_set_new(row, "link", json_string(now->link_up ? "up" : "down"));
        columns_add(row, port_columns, MILL_COUNT_OF(port_columns), &before->counters->ports[i],
                    now, 0, 1, seconds_between(before, after));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *listeners(const struct live_reading *before, const struct live_reading *after)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < after->counters->listeners_count; i++) {
        const struct mill_shared_listener_info *info = &after->counters->listeners[i];
        json_t *row = json_object();
        json_object_set_new(row, "name", live_text(info->name, sizeof(info->name)));
        json_object_set_new(row, "address", live_text(info->address, sizeof(info->address)));
        json_object_set_new(row, "transport", live_text(info->transport, sizeof(info->transport)));
        columns_add(row, listener_columns, MILL_COUNT_OF(listener_columns),
                    &before->counters->cores[0].listeners[i],
                    &after->counters->cores[0].listeners[i], sizeof(struct mill_shared_core),
                    after->counters->cores_count, seconds_between(before, after));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *tcp(const struct live_reading *before, const struct live_reading *after)
{
    json_t *row = json_object();
    columns_add(row, net_columns, MILL_COUNT_OF(net_columns), &before->counters->cores[0].net,
                &after->counters->cores[0].net, sizeof(struct mill_shared_core),
                after->counters->cores_count, seconds_between(before, after));
    return row;
}

/* The same partition's row in the reading before; its place in the table may have changed. */
static const struct mill_shared_partition *busy_before(const struct mill_shared_core *core,
                                                       const struct mill_shared_partition *now)
{
    for (uint32_t i = 0; i < MILL_COUNTERS_PARTITIONS_MAX; i++) {
        const struct mill_shared_partition *then = &core->busy[i];
        if (mill_counter_get(&then->used) && then->partition == now->partition &&
            strncmp(then->topic, now->topic, sizeof(now->topic)) == 0) {
            return then;
        }
    }
    return NULL;
}

static json_t *partitions(const struct live_reading *before, const struct live_reading *after)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < after->counters->cores_count; i++) {
        for (uint32_t n = 0; n < MILL_COUNTERS_PARTITIONS_MAX; n++) {
            const struct mill_shared_partition *now = &after->counters->cores[i].busy[n];
            if (!mill_counter_get(&now->used)) {
                continue;
            }
            const struct mill_shared_partition *then =
                busy_before(&before->counters->cores[i], now);
            json_t *row = json_object();
            json_object_set_new(row, "topic", live_text(now->topic, sizeof(now->topic)));
            json_object_set_new(row, "partition", json_integer(now->partition));
            json_object_set_new(row, "core", json_integer(i));
            /* New in the table: its counters do not say since when, so it has no rate yet. */
            columns_add(row, partition_columns, MILL_COUNT_OF(partition_columns), then ? then : now,
                        now, 0, 1, seconds_between(before, after));
            json_array_append_new(rows, row);
        }
    }
    return rows;
}

/* --- stages and takers --------------------------------------------------------------------------
 */

static void hist_add(struct mill_hist *sum, const struct mill_hist *now,
                     const struct mill_hist *then)
{
    for (uint32_t i = 0; i < MILL_HIST_BUCKETS; i++) {
        uint64_t more = now->bucket[i] - (then ? MILL_MIN(then->bucket[i], now->bucket[i]) : 0);
        sum->bucket[i] += more;
        sum->count += more;
    }
    sum->max_ns = MILL_MAX(sum->max_ns, now->max_ns);
}

static json_t *us(uint64_t ns)
{
    return json_real((double)ns / 1e3);
}

json_t *live_stages(const struct mill_counters *before, const struct mill_counters *after)
{
    json_t *rows = json_array();
    for (uint32_t api = 0; api < MILL_STAGE_API_COUNT; api++) {
        for (uint32_t stage = 0; stage < MILL_STAGE_COUNT; stage++) {
            static struct mill_hist sum; /* too large for the stack; this program has one thread */
            memset(&sum, 0, sizeof(sum));
            for (uint32_t i = 0; i < after->cores_count; i++) {
                hist_add(&sum, &after->cores[i].stages[api][stage],
                         before ? &before->cores[i].stages[api][stage] : NULL);
            }
            uint64_t max_ns = sum.max_ns;
            json_array_append_new(
                rows, json_pack("{s:s, s:s, s:I, s:o, s:o, s:o}", "api", mill_stage_api_names[api],
                                "stage", mill_stage_names[stage], "count", (json_int_t)sum.count,
                                "p50_us", us(MILL_MIN(mill_hist_quantile(&sum, 0.5), max_ns)),
                                "p99_us", us(MILL_MIN(mill_hist_quantile(&sum, 0.99), max_ns)),
                                "max_us", us(max_ns)));
        }
    }
    return rows;
}

static json_int_t time_of(const json_t *row)
{
    return json_integer_value(json_object_get(row, "time_ns"));
}

json_t *live_takers(const struct mill_shared_jitter *jitter)
{
    static const char *const kinds[MILL_TAKER_KIND_COUNT] = {"thread", "nobody", "softirq",
                                                             "interrupt"};
    json_t *rows = json_array();
    for (uint32_t i = 0; i < MILL_COUNTERS_TAKERS_MAX; i++) {
        const struct mill_shared_taker *taker = &jitter->takers[i];
        json_int_t time_ns = (json_int_t)mill_counter_get(&taker->time_ns);
        size_t at = 0;
        if (mill_counter_get(&taker->count) == 0) {
            continue;
        }
        while (at < json_array_size(rows) && time_of(json_array_get(rows, at)) >= time_ns) {
            at++;
        }
        json_array_insert_new(
            rows, at,
            json_pack("{s:o, s:i, s:s, s:I, s:I, s:I}", "name",
                      live_text(taker->name, sizeof(taker->name)), "pid", (int)taker->pid, "kind",
                      kinds[MILL_MIN(taker->kind, MILL_TAKER_KIND_COUNT - 1u)], "time_ns", time_ns,
                      "count", (json_int_t)mill_counter_get(&taker->count), "max_ns",
                      (json_int_t)mill_counter_get(&taker->max_ns)));
    }
    return rows;
}

static json_t *takers(const struct live_reading *after)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < after->counters->cores_count; i++) {
        json_t *of_core = live_takers(&after->counters->cores[i].jitter);
        size_t index;
        json_t *row;
        json_array_foreach(of_core, index, row)
        {
            json_object_set_new(row, "core", json_integer(i));
            json_array_append(rows, row);
        }
        json_decref(of_core);
    }
    return rows;
}

json_t *live_json(const struct live_reading *before, const struct live_reading *after)
{
    json_t *root = json_object();
    const struct mill_counters *counters = after->counters;
    json_object_set_new(root, "interval_s", json_real(seconds_between(before, after)));
    json_object_set_new(root, "cores", cores(before, after));
    json_object_set_new(root, "listeners", listeners(before, after));
    json_object_set_new(root, "ports", ports(before, after));
    json_object_set_new(root, "tcp", tcp(before, after));
    json_object_set_new(root, "partitions", partitions(before, after));
    json_object_set_new(root, "stages", live_stages(before->counters, counters));
    json_object_set_new(root, "taken", takers(after));
    json_object_set_new(root, "jitter",
                        live_text(counters->jitter_state, sizeof(counters->jitter_state)));
    return root;
}
