/* SPDX-License-Identifier: Apache-2.0 */
/* See metrics.h. Each kind of counters is a table of rows made from its list, and a function that
 * finds the kind's instances: all samples of one name stand together, as the format wants. */
#include "control/http/metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum {
    NAME_BYTES = 96,
    NUMBER_BYTES = 24,
    HIST_BITS_MIN = 10, /* bounds of buckets: every power of two from about 1 us */
    HIST_BITS_MAX = 35, /* to about 34 s */
};

/* A counter of a kind. */
struct row {
    const char *name;
    const char *help;
    size_t at_bytes; /* in the kind's struct */
    bool is_total;
};

/* Where one instance's words are, and what tells it from others. */
struct place {
    const void *words; /* NULL: this one does not exist */
    uint32_t labels_count;
    struct mill_label labels[MILL_TEXT_LABELS_MAX];
    char numbers[2][NUMBER_BYTES];
};

struct kind {
    const char *prefix;
    const struct row *rows;
    uint32_t rows_count;
    uint32_t (*count)(const struct mill_counters *counters);
    void (*find)(const struct mill_counters *counters, uint32_t index, struct place *place);
};

#define TOTAL_IN(type, name, help) {#name, help, offsetof(struct type, name), true},
#define LEVEL_IN(type, name, help) {#name, help, offsetof(struct type, name), false},

#define CORE_TOTAL(name, help)      TOTAL_IN(mill_shared_core, name, help)
#define CORE_LEVEL(name, help)      LEVEL_IN(mill_shared_core, name, help)
#define NET_TOTAL(name, help)       TOTAL_IN(mill_shared_net, name, help)
#define LISTENER_TOTAL(name, help)  TOTAL_IN(mill_shared_listener, name, help)
#define LISTENER_LEVEL(name, help)  LEVEL_IN(mill_shared_listener, name, help)
#define PORT_TOTAL(name, help)      TOTAL_IN(mill_shared_port, name, help)
#define PORT_LEVEL(name, help)      LEVEL_IN(mill_shared_port, name, help)
#define JITTER_TOTAL(name, help)    TOTAL_IN(mill_shared_jitter, name, help)
#define JITTER_LEVEL(name, help)    LEVEL_IN(mill_shared_jitter, name, help)
#define CONTROL_TOTAL(name, help)   TOTAL_IN(mill_shared_control, name, help)
#define CONTROL_LEVEL(name, help)   LEVEL_IN(mill_shared_control, name, help)
#define HTTP_TOTAL(name, help)      TOTAL_IN(mill_shared_http, name, help)
#define HTTP_LEVEL(name, help)      LEVEL_IN(mill_shared_http, name, help)
#define PARTITION_TOTAL(name, help) TOTAL_IN(mill_shared_partition, name, help)
#define PARTITION_LEVEL(name, help) LEVEL_IN(mill_shared_partition, name, help)

static const struct row core_rows[] = {MILL_CORE_TOTALS(CORE_TOTAL) MILL_CORE_LEVELS(CORE_LEVEL)};
static const struct row net_rows[] = {MILL_NET_COUNTERS(NET_TOTAL)};
static const struct row listener_rows[] = {MILL_LISTENER_TOTALS(LISTENER_TOTAL)
                                               MILL_LISTENER_LEVELS(LISTENER_LEVEL)};
static const struct row port_rows[] = {MILL_PORT_TOTALS(PORT_TOTAL) MILL_PORT_LEVELS(PORT_LEVEL)};
static const struct row jitter_rows[] = {MILL_JITTER_TOTALS(JITTER_TOTAL)
                                             MILL_JITTER_LEVELS(JITTER_LEVEL)};
static const struct row control_rows[] = {
    MILL_CONTROL_COUNTERS(CONTROL_TOTAL) MILL_CONTROLLER_TOTALS(CONTROL_TOTAL)
        MILL_CONTROLLER_LEVELS(CONTROL_LEVEL) MILL_JOURNAL_COUNTERS(CONTROL_TOTAL)
            MILL_GROUP_TOTALS(CONTROL_TOTAL) MILL_GROUP_LEVELS(CONTROL_LEVEL)
                MILL_TXN_TOTALS(CONTROL_TOTAL) MILL_TXN_LEVELS(CONTROL_LEVEL)};
static const struct row http_rows[] = {MILL_HTTP_TOTALS(HTTP_TOTAL) MILL_HTTP_LEVELS(HTTP_LEVEL)};
static const struct row partition_rows[] = {MILL_PARTITION_TOTALS(PARTITION_TOTAL)
                                                MILL_PARTITION_LEVELS(PARTITION_LEVEL)};

/* --- instances ---------------------------------------------------------------------------------
 */

static void label(struct place *place, const char *name, const char *value, size_t size_bytes)
{
    place->labels[place->labels_count++] = mill_label_of(name, value, size_bytes);
}

static void label_number(struct place *place, const char *name, int64_t value)
{
    char *number = place->numbers[place->numbers[0][0] == '\0' ? 0 : 1];
    snprintf(number, NUMBER_BYTES, "%lld", (long long)value);
    label(place, name, number, NUMBER_BYTES);
}

static uint32_t one(const struct mill_counters *counters)
{
    MILL_UNUSED(counters);
    return 1;
}

static uint32_t cores(const struct mill_counters *counters)
{
    return counters->cores_count;
}

static void find_core(const struct mill_counters *counters, uint32_t index, struct place *place)
{
    place->words = &counters->cores[index];
    label_number(place, "core", index);
}

static void find_net(const struct mill_counters *counters, uint32_t index, struct place *place)
{
    find_core(counters, index, place);
    place->words = &counters->cores[index].net;
}

static void find_jitter(const struct mill_counters *counters, uint32_t index, struct place *place)
{
    find_core(counters, index, place);
    place->words = &counters->cores[index].jitter;
}

static uint32_t ports(const struct mill_counters *counters)
{
    return MILL_MIN(counters->ports_count, (uint32_t)MILL_COUNTERS_PORTS_MAX);
}

static void find_port(const struct mill_counters *counters, uint32_t index, struct place *place)
{
    place->words = &counters->ports[index];
    label(place, "port", counters->ports[index].name, sizeof(counters->ports[index].name));
}

static uint32_t listeners(const struct mill_counters *counters)
{
    return MILL_MIN(counters->listeners_count, (uint32_t)MILL_MAP_LISTENERS_MAX);
}

static uint32_t listeners_by_core(const struct mill_counters *counters)
{
    return listeners(counters) * counters->cores_count;
}

static void find_listener(const struct mill_counters *counters, uint32_t index, struct place *place)
{
    uint32_t listener = index / counters->cores_count;
    uint32_t core = index % counters->cores_count;
    const struct mill_shared_listener_info *info = &counters->listeners[listener];
    place->words = &counters->cores[core].listeners[listener];
    label(place, "listener", info->name, sizeof(info->name));
    label_number(place, "core", core);
}

static void find_control(const struct mill_counters *counters, uint32_t index, struct place *place)
{
    MILL_UNUSED(index);
    place->words = &counters->control;
}

static void find_http(const struct mill_counters *counters, uint32_t index, struct place *place)
{
    MILL_UNUSED(index);
    place->words = &counters->http;
}

static uint32_t partitions(const struct mill_counters *counters)
{
    return counters->cores_count * MILL_COUNTERS_PARTITIONS_MAX;
}

static void find_partition(const struct mill_counters *counters, uint32_t index,
                           struct place *place)
{
    const struct mill_shared_partition *row = &counters->cores[index / MILL_COUNTERS_PARTITIONS_MAX]
                                                   .busy[index % MILL_COUNTERS_PARTITIONS_MAX];
    if (mill_counter_get(&row->used) != 0) {
        place->words = row;
        label(place, "topic", row->topic, sizeof(row->topic));
        label_number(place, "partition", row->partition);
    }
}

static const struct kind kinds[] = {
    {"millrace_core", core_rows, MILL_COUNT_OF(core_rows), cores, find_core},
    {"millrace_core", jitter_rows, MILL_COUNT_OF(jitter_rows), cores, find_jitter},
    {"millrace_tcp", net_rows, MILL_COUNT_OF(net_rows), cores, find_net},
    {"millrace_listener", listener_rows, MILL_COUNT_OF(listener_rows), listeners_by_core,
     find_listener},
    {"millrace_port", port_rows, MILL_COUNT_OF(port_rows), ports, find_port},
    {"millrace_control", control_rows, MILL_COUNT_OF(control_rows), one, find_control},
    {"millrace_http", http_rows, MILL_COUNT_OF(http_rows), one, find_http},
    {"millrace_partition", partition_rows, MILL_COUNT_OF(partition_rows), partitions,
     find_partition},
};

/* --- rows --------------------------------------------------------------------------------------
 */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* A counter's name by Prometheus' habits. ret: true when its words are nanoseconds. */
static bool metric_name(const struct kind *kind, const struct row *row, char ret_name[NAME_BYTES])
{
    int length = (int)strlen(row->name);
    bool is_time = ends_with(row->name, "_ns");
    length -= is_time ? 3 : ends_with(row->name, "_total") ? 6 : 0;
    snprintf(ret_name, NAME_BYTES, "%s_%.*s%s%s", kind->prefix, length, row->name,
             is_time ? "_seconds" : "", row->is_total ? "_total" : "");
    return is_time;
}

static double seconds(uint64_t time_ns)
{
    return (double)time_ns / (double)MILL_NS_PER_S;
}

static void put_row(const struct mill_counters *counters, const struct kind *kind,
                    const struct row *row, struct mill_text *text)
{
    char name[NAME_BYTES];
    bool is_time = metric_name(kind, row, name);
    mill_text_metric(text, name, row->is_total ? "counter" : "gauge", row->help);
    uint32_t count = kind->count(counters);
    for (uint32_t i = 0; i < count; i++) {
        struct place place = {0};
        kind->find(counters, i, &place);
        if (!place.words) {
            continue;
        }
        uint64_t value =
            mill_counter_get((const _Atomic uint64_t *)((const char *)place.words + row->at_bytes));
        if (is_time) {
            mill_text_sample(text, name, "", place.labels, place.labels_count, seconds(value));
        } else {
            mill_text_sample_u64(text, name, "", place.labels, place.labels_count, value);
        }
    }
}

/* --- histograms --------------------------------------------------------------------------------
 */

void mill_metrics_hist(struct mill_text *text, const char *name, const struct mill_label *labels,
                       uint32_t labels_count, const struct mill_hist *const *hists,
                       uint32_t hists_count)
{
    struct mill_label all[MILL_TEXT_LABELS_MAX];
    char bound[NUMBER_BYTES];
    uint64_t count = 0;
    uint64_t sum_ns = 0;
    for (uint32_t i = 0; i < labels_count; i++) {
        all[i] = labels[i];
    }
    for (uint32_t bits = HIST_BITS_MIN; bits <= HIST_BITS_MAX + 1; bits++) {
        bool is_last = bits > HIST_BITS_MAX;
        count = 0;
        for (uint32_t i = 0; i < hists_count; i++) {
            count += mill_hist_below(hists[i], is_last ? MILL_HIST_ALL : bits);
        }
        /* Values are whole nanoseconds: below the power of two is at most one less. */
        snprintf(bound, sizeof(bound), is_last ? "+Inf" : "%.12g", seconds((1ull << bits) - 1));
        all[labels_count] = mill_label_of("le", bound, sizeof(bound));
        mill_text_sample_u64(text, name, "_bucket", all, labels_count + 1, count);
    }
    for (uint32_t i = 0; i < hists_count; i++) {
        sum_ns += mill_counter_get(&hists[i]->sum_ns);
    }
    mill_text_sample(text, name, "_sum", labels, labels_count, seconds(sum_ns));
    mill_text_sample_u64(text, name, "_count", labels, labels_count, count);
}

/* Labels of core index's stage: core, api, stage. */
static void stage_labels(struct place *place, uint32_t core, uint32_t api, uint32_t stage)
{
    *place = (struct place){0};
    label_number(place, "core", core);
    label(place, "api", mill_stage_api_names[api], NUMBER_BYTES);
    label(place, "stage", mill_stage_names[stage], NUMBER_BYTES);
}

static void put_stages(const struct mill_counters *counters, bool maxima, struct mill_text *text)
{
    const char *name =
        maxima ? "millrace_request_stage_max_seconds" : "millrace_request_stage_seconds";
    mill_text_metric(text, name, maxima ? "gauge" : "histogram",
                     maxima ? "longest time of a stage since the start"
                            : "time of a request's stages, each measured from the one before");
    for (uint32_t i = 0; i < counters->cores_count; i++) {
        for (uint32_t api = 0; api < MILL_STAGE_API_COUNT; api++) {
            for (uint32_t stage = 0; stage < MILL_STAGE_COUNT; stage++) {
                const struct mill_hist *hist = &counters->cores[i].stages[api][stage];
                struct place place;
                stage_labels(&place, i, api, stage);
                if (maxima) {
                    mill_text_sample(text, name, "", place.labels, place.labels_count,
                                     seconds(mill_counter_get(&hist->max_ns)));
                } else {
                    mill_metrics_hist(text, name, place.labels, place.labels_count, &hist, 1);
                }
            }
        }
    }
}

static void put_wakes(const struct mill_counters *counters, struct mill_text *text)
{
    const char *name = "millrace_core_wake_seconds";
    mill_text_metric(text, name, "histogram", "time from a ring of the core's bell to its look");
    for (uint32_t i = 0; i < counters->cores_count; i++) {
        const struct mill_hist *hist = &counters->cores[i].wake;
        struct place place = {0};
        find_core(counters, i, &place);
        mill_metrics_hist(text, name, place.labels, place.labels_count, &hist, 1);
    }
}

/* --- what is no counter -------------------------------------------------------------------------
 */

static void put_number(struct mill_text *text, const char *name, const char *help, double value)
{
    mill_text_metric(text, name, "gauge", help);
    mill_text_sample(text, name, "", NULL, 0, value);
}

static void put_instance(const struct mill_metrics_source *source, struct mill_text *text)
{
    const struct mill_counters *counters = source->counters;
    const struct mill_label version = mill_label_of("version", MILL_VERSION, sizeof(MILL_VERSION));
    const struct mill_label jitter =
        mill_label_of("state", counters->jitter_state, sizeof(counters->jitter_state));
    uint64_t start_ms = mill_counter_get(&counters->start_wall_ms);
    int64_t up_ms = start_ms > 0 ? source->wall_ms - (int64_t)start_ms : 0;
    mill_text_metric(text, "millrace_build_info", "gauge", "version of the programs");
    mill_text_sample_u64(text, "millrace_build_info", "", &version, 1, 1);
    put_number(text, "millrace_uptime_seconds", "time since millraced started",
               (double)MILL_MAX(up_ms, (int64_t)0) / 1e3);
    put_number(text, "millrace_arena_bytes", "memory of the arena",
               (double)mill_counter_get(&counters->arena_bytes));
    mill_text_metric(text, "millrace_jitter_info", "gauge",
                     "whether it is watched who takes the cores' CPUs, or why not");
    mill_text_sample_u64(text, "millrace_jitter_info", "", &jitter, 1, 1);
}

static void put_processes(const struct mill_metrics_source *source, struct mill_text *text)
{
    mill_text_metric(text, "millrace_process_info", "gauge", "processes of this instance");
    for (uint32_t i = 0; i < source->processes_count; i++) {
        const struct mill_metrics_process *process = &source->processes[i];
        struct place place = {0};
        label(&place, "process", process->name, strlen(process->name));
        label_number(&place, "pid", process->pid);
        mill_text_sample_u64(text, "millrace_process_info", "", place.labels, place.labels_count,
                             1);
    }
    mill_text_metric(text, "millrace_process_serving", "gauge", "1 when its start is over");
    for (uint32_t i = 0; i < source->processes_count; i++) {
        const struct mill_metrics_process *process = &source->processes[i];
        struct mill_label name = mill_label_of("process", process->name, strlen(process->name));
        mill_text_sample_u64(text, "millrace_process_serving", "", &name, 1, process->serving);
    }
}

static void put_infos(const struct mill_counters *counters, struct mill_text *text)
{
    mill_text_metric(text, "millrace_listener_info", "gauge",
                     "listeners; state is serving, or why not");
    for (uint32_t i = 0; i < listeners(counters); i++) {
        const struct mill_shared_listener_info *info = &counters->listeners[i];
        struct place place = {0};
        label(&place, "listener", info->name, sizeof(info->name));
        label(&place, "address", info->address, sizeof(info->address));
        label(&place, "transport", info->transport, sizeof(info->transport));
        label(&place, "state", info->state, sizeof(info->state));
        mill_text_sample_u64(text, "millrace_listener_info", "", place.labels, place.labels_count,
                             1);
    }
    mill_text_metric(text, "millrace_core_info", "gauge", "CPU and thread of each core");
    for (uint32_t i = 0; i < counters->cores_count; i++) {
        char number[NUMBER_BYTES];
        struct place place = {0};
        find_core(counters, i, &place);
        label_number(&place, "cpu", counters->cores[i].cpu);
        snprintf(number, sizeof(number), "%u", counters->cores[i].tid);
        label(&place, "tid", number, sizeof(number));
        mill_text_sample_u64(text, "millrace_core_info", "", place.labels, place.labels_count, 1);
    }
}

static void put_ports(const struct mill_counters *counters, struct mill_text *text)
{
    mill_text_metric(text, "millrace_port_info", "gauge", "DPDK ports");
    for (uint32_t i = 0; i < ports(counters); i++) {
        const struct mill_shared_port *port = &counters->ports[i];
        char mac[NUMBER_BYTES];
        struct place place = {0};
        find_port(counters, i, &place);
        snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", port->mac[0], port->mac[1],
                 port->mac[2], port->mac[3], port->mac[4], port->mac[5]);
        label(&place, "driver", port->driver, sizeof(port->driver));
        label(&place, "mac", mac, sizeof(mac));
        label(&place, "address", port->address, sizeof(port->address));
        label_number(&place, "mtu", port->mtu);
        label(&place, "zero_copy", port->zero_copy ? "true" : "false", NUMBER_BYTES);
        label(&place, "remark", port->remark, sizeof(port->remark));
        mill_text_sample_u64(text, "millrace_port_info", "", place.labels, place.labels_count, 1);
    }
    mill_text_metric(text, "millrace_port_link_up", "gauge", "1 when the port's link is up");
    for (uint32_t i = 0; i < ports(counters); i++) {
        struct place place = {0};
        find_port(counters, i, &place);
        mill_text_sample_u64(text, "millrace_port_link_up", "", place.labels, place.labels_count,
                             counters->ports[i].link_up ? 1 : 0);
    }
}

static void put_takers(const struct mill_counters *counters, struct mill_text *text)
{
    static const char *const taker_kinds[MILL_TAKER_KIND_COUNT] = {"thread", "idle", "softirq",
                                                                   "irq"};
    const char *name = "millrace_core_taken_seconds_total";
    mill_text_metric(text, name, "counter", "time that others had a core's CPU, by who had it");
    for (uint32_t i = 0; i < counters->cores_count * MILL_COUNTERS_TAKERS_MAX; i++) {
        const struct mill_shared_taker *taker = &counters->cores[i / MILL_COUNTERS_TAKERS_MAX]
                                                     .jitter.takers[i % MILL_COUNTERS_TAKERS_MAX];
        struct place place = {0};
        if (mill_counter_get(&taker->count) == 0 || taker->kind >= MILL_TAKER_KIND_COUNT) {
            continue;
        }
        find_core(counters, i / MILL_COUNTERS_TAKERS_MAX, &place);
        label(&place, "kind", taker_kinds[taker->kind], NUMBER_BYTES);
        label(&place, "by", taker->name, sizeof(taker->name));
        label_number(&place, "pid", taker->pid);
        mill_text_sample(text, name, "", place.labels, place.labels_count,
                         seconds(mill_counter_get(&taker->time_ns)));
    }
}

void mill_metrics_render(const struct mill_metrics_source *source, struct mill_text *text)
{
    const struct mill_counters *counters = source->counters;
    put_instance(source, text);
    put_processes(source, text);
    put_infos(counters, text);
    for (uint32_t i = 0; i < MILL_COUNT_OF(kinds); i++) {
        for (uint32_t row = 0; row < kinds[i].rows_count; row++) {
            put_row(counters, &kinds[i], &kinds[i].rows[row], text);
        }
    }
    put_ports(counters, text);
    put_takers(counters, text);
    put_stages(counters, false, text);
    put_stages(counters, true, text);
    put_wakes(counters, text);
    mill_metrics_kafka(source, text);
}
