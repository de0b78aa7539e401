/* SPDX-License-Identifier: Apache-2.0 */
/* millrace status: the shared counters as JSON or tables. Counters come by the lists of
 * base/counter_lists.h, so a new counter shows up by itself. Only reads; never waits for a writer.
 */
#include "cli/instance.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/live.h"
#include "cli/table.h"

enum {
    SAMPLE_MS = 100, /* window of busy_ratio */
};

struct sample {
    uint64_t at_ns;
    uint64_t busy_ns[MILL_MAP_CORES_MAX];
};

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static void sample_take(const struct mill_counters *counters, struct sample *sample)
{
    sample->at_ns = mill_now_read().mono_ns;
    for (uint32_t i = 0; i < counters->cores_count && i < MILL_MAP_CORES_MAX; i++) {
        sample->busy_ns[i] = mill_counter_get(&counters->cores[i].busy_ns);
    }
}

static json_t *listener_json(const struct mill_counters *counters, uint32_t index)
{
    const struct mill_shared_listener_info *info = &counters->listeners[index];
    json_t *object = json_object();
    json_object_set_new(object, "name", live_text(info->name, sizeof(info->name)));
    json_object_set_new(object, "address", live_text(info->address, sizeof(info->address)));
    json_object_set_new(object, "transport", live_text(info->transport, sizeof(info->transport)));
    json_object_set_new(object, "state", live_text(info->state, sizeof(info->state)));
#define ADD_SUM(name, help)                                                                        \
    {                                                                                              \
        uint64_t sum = 0;                                                                          \
        for (uint32_t i = 0; i < counters->cores_count; i++) {                                     \
            sum += mill_counter_get(&counters->cores[i].listeners[index].name);                    \
        }                                                                                          \
        json_object_set_new(object, #name, number(sum));                                           \
    }
    MILL_LISTENER_COUNTERS(ADD_SUM)
#undef ADD_SUM
    return object;
}

static json_t *hist_json(const struct mill_hist *hist)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "count", number(mill_counter_get(&hist->count)),
                     "p50_ns", number(mill_hist_quantile(hist, 0.5)), "p99_ns",
                     number(mill_hist_quantile(hist, 0.99)), "max_ns",
                     number(mill_counter_get(&hist->max_ns)));
}

static json_t *stages_json(const struct mill_shared_core *core)
{
    json_t *object = json_object();
    for (uint32_t api = 0; api < MILL_STAGE_API_COUNT; api++) {
        json_t *list = json_object();
        for (uint32_t stage = 0; stage < MILL_STAGE_COUNT; stage++) {
            json_object_set_new(list, mill_stage_names[stage],
                                hist_json(&core->stages[api][stage]));
        }
        json_object_set_new(object, mill_stage_api_names[api], list);
    }
    return object;
}

/* Who had the core's CPU while the core could have run; most time first. */
static json_t *stolen_json(const struct mill_shared_jitter *jitter)
{
    json_t *object = json_object();
#define ADD_COUNTER(name, help)                                                                    \
    json_object_set_new(object, #name, number(mill_counter_get(&jitter->name)));
    MILL_JITTER_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
    json_object_set_new(object, "by", live_takers(jitter));
    return object;
}

static json_t *core_json(const struct mill_counters *counters, uint32_t index,
                         const struct sample *before, const struct sample *after)
{
    const struct mill_shared_core *core = &counters->cores[index];
    json_t *object = json_object();
    uint64_t busy_ns = after->busy_ns[index] - before->busy_ns[index];
    uint64_t window_ns = MILL_MAX(after->at_ns - before->at_ns, (uint64_t)1);
    bool backwards = after->busy_ns[index] < before->busy_ns[index]; /* restarted in between */
    double ratio = backwards ? 0.0 : (double)busy_ns / (double)window_ns;
    json_object_set_new(object, "cpu", number(core->cpu));
    json_object_set_new(object, "tid", number(core->tid));
    json_object_set_new(object, "busy_ratio", json_real(MILL_MIN(ratio, 1.0)));
#define ADD_COUNTER(name, help)                                                                    \
    json_object_set_new(object, #name, number(mill_counter_get(&core->name)));
    MILL_CORE_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
    json_object_set_new(object, "stages", stages_json(core));
    json_object_set_new(object, "wake", hist_json(&core->wake));
    json_object_set_new(object, "stolen", stolen_json(&core->jitter));
    return object;
}

static json_t *port_json(const struct mill_shared_port *port)
{
    json_t *object = json_object();
    char mac[24];
    snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", port->mac[0], port->mac[1],
             port->mac[2], port->mac[3], port->mac[4], port->mac[5]);
    json_object_set_new(object, "name", live_text(port->name, sizeof(port->name)));
    json_object_set_new(object, "driver", live_text(port->driver, sizeof(port->driver)));
    json_object_set_new(object, "mac", json_string(mac));
    json_object_set_new(object, "address", live_text(port->address, sizeof(port->address)));
    json_object_set_new(object, "mtu", number(port->mtu));
    json_object_set_new(object, "link", json_string(port->link_up ? "up" : "down"));
    json_object_set_new(object, "zero_copy", json_boolean(port->zero_copy != 0));
    json_object_set_new(object, "remark", live_text(port->remark, sizeof(port->remark)));
#define ADD_COUNTER(name, help)                                                                    \
    json_object_set_new(object, #name, number(mill_counter_get(&port->name)));
    MILL_PORT_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
    return object;
}

static json_t *tcp_json(const struct mill_counters *counters)
{
    json_t *object = json_object();
    uint64_t connections = 0;
    for (uint32_t l = 0; l < counters->listeners_count; l++) {
        bool ours = strcmp(counters->listeners[l].transport, "dpdk") == 0;
        for (uint32_t i = 0; i < counters->cores_count && ours; i++) {
            connections += mill_counter_get(&counters->cores[i].listeners[l].connections);
        }
    }
    json_object_set_new(object, "connections", number(connections));
#define ADD_SUM(name, help)                                                                        \
    {                                                                                              \
        uint64_t sum = 0;                                                                          \
        for (uint32_t i = 0; i < counters->cores_count; i++) {                                     \
            sum += mill_counter_get(&counters->cores[i].net.name);                                 \
        }                                                                                          \
        json_object_set_new(object, #name, number(sum));                                           \
    }
    MILL_NET_COUNTERS(ADD_SUM)
#undef ADD_SUM
    return object;
}

/* How far a start is with the files of its partitions. */
static json_t *loading_json(const struct mill_counters *counters)
{
    return json_pack("{s:o, s:o, s:o}", "partitions",
                     number(mill_counter_get(&counters->loading_partitions)), "loaded",
                     number(mill_counter_get(&counters->loaded_partitions)), "bytes",
                     number(mill_counter_get(&counters->loaded_bytes)));
}

static void memory_and_log(const struct mill_counters *counters, json_t *root)
{
    uint64_t used = 0;
    uint64_t loaned = 0;
    uint64_t staged = 0;
    uint64_t partitions = 0;
    uint64_t bytes_in = 0;
    uint64_t bytes_out = 0;
    uint64_t dirty = 0;
    uint64_t compactions = 0;
    uint64_t compacted_records = 0;
    uint64_t mbufs_total = 0;
    uint64_t mbufs_used = 0;
    for (uint32_t i = 0; i < counters->cores_count; i++) {
        const struct mill_shared_core *core = &counters->cores[i];
        used += mill_counter_get(&core->arena_used_bytes);
        loaned += mill_counter_get(&core->loaned_bytes);
        staged += mill_counter_get(&core->bytes_staged);
        partitions += mill_counter_get(&core->partitions);
        bytes_in += mill_counter_get(&core->log_bytes_in);
        bytes_out += mill_counter_get(&core->log_bytes_out);
        dirty += mill_counter_get(&core->dirty_bytes);
        compactions += mill_counter_get(&core->compactions);
        compacted_records += mill_counter_get(&core->compaction_records_removed);
    }
    for (uint32_t i = 0; i < counters->ports_count; i++) {
        mbufs_total += mill_counter_get(&counters->ports[i].mbufs_total);
        mbufs_used += mill_counter_get(&counters->ports[i].mbufs_used);
    }
    json_object_set_new(root, "memory",
                        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "arena_bytes",
                                  number(mill_counter_get(&counters->arena_bytes)),
                                  "arena_used_bytes", number(used), "loaned_bytes", number(loaned),
                                  "bytes_staged", number(staged), "mbufs_total",
                                  number(mbufs_total), "mbufs_used", number(mbufs_used)));
    json_object_set_new(root, "log",
                        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "partitions",
                                  number(partitions), "bytes_in", number(bytes_in), "bytes_out",
                                  number(bytes_out), "dirty_bytes", number(dirty), "compactions",
                                  number(compactions), "compaction_records_removed",
                                  number(compacted_records), "loading", loading_json(counters)));
}

static json_t *process_json(pid_t pid, const struct mill_ipc_side *side)
{
    const char *state = "dead";
    if (pid > 0 && (kill(pid, 0) == 0 || errno == EPERM)) {
        state = "running"; /* the ipc file is the owner's: for others this is all there is */
        if (side) {
            state = atomic_load(&side->serving) ? "serving" : "starting";
        }
    }
    return json_pack("{s:i, s:s}", "pid", (int)pid, "state", state);
}

static json_t *status_json(const struct instance *instance)
{
    const struct mill_counters *counters = instance->counters;
    struct sample before;
    struct sample after;
    json_t *root = json_object();
    json_t *listeners = json_array();
    json_t *cores = json_array();
    json_t *ports = json_array();
    sample_take(counters, &before);
    nanosleep(&(struct timespec){.tv_nsec = SAMPLE_MS * 1000000l}, NULL);
    sample_take(counters, &after);
    uint64_t start_ms = mill_counter_get(&counters->start_wall_ms);
    int64_t up_ms = start_ms ? mill_now_read().wall_ms - (int64_t)start_ms : 0;
    for (uint32_t i = 0; i < counters->listeners_count; i++) {
        json_array_append_new(listeners, listener_json(counters, i));
    }
    for (uint32_t i = 0; i < counters->cores_count; i++) {
        json_array_append_new(cores, core_json(counters, i, &before, &after));
    }
    for (uint32_t i = 0; i < counters->ports_count; i++) {
        json_array_append_new(ports, port_json(&counters->ports[i]));
    }
    json_object_set_new(root, "version", json_string(MILL_VERSION));
    json_object_set_new(root, "uptime_s", json_real((double)MILL_MAX(up_ms, 0) / 1000.0));
    json_object_set_new(root, "listeners", listeners);
    json_object_set_new(root, "cores", cores);
    json_object_set_new(root, "ports", ports);
    json_object_set_new(root, "tcp", tcp_json(counters));
    memory_and_log(counters, root);
    json_object_set_new(root, "stages", live_stages(NULL, counters));
    json_object_set_new(
        root, "jitter",
        json_pack("{s:o}", "state",
                  live_text(counters->jitter_state, sizeof(counters->jitter_state))));
    const struct mill_ipc_segment *ipc = instance->ipc;
    json_t *control = process_json(instance->control, ipc ? &ipc->control : NULL);
#define ADD_COUNTER(name, help)                                                                    \
    json_object_set_new(control, #name, number(mill_counter_get(&counters->control.name)));
    MILL_CONTROL_COUNTERS(ADD_COUNTER)
    MILL_CONTROLLER_COUNTERS(ADD_COUNTER)
    MILL_JOURNAL_COUNTERS(ADD_COUNTER)
    MILL_GROUP_COUNTERS(ADD_COUNTER)
    MILL_TXN_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
    json_object_set_new(root, "control", control);
    json_t *http = json_object();
#define ADD_COUNTER(name, help)                                                                    \
    json_object_set_new(http, #name, number(mill_counter_get(&counters->http.name)));
    MILL_HTTP_COUNTERS(ADD_COUNTER)
#undef ADD_COUNTER
    json_object_set_new(root, "http", http);
    json_object_set_new(root, "dataplane",
                        process_json(instance->dataplane, ipc ? &ipc->dataplane : NULL));
    json_object_set_new(root, "supervisor", json_pack("{s:i}", "pid", (int)instance->supervisor));
    return root;
}

static void status_table(const json_t *root)
{
    static const char *const listener_columns[] = {
        "name",     "address",   "transport",      "state",           "connections",
        "bytes_in", "bytes_out", "bytes_rejected", "bytes_copied_in", "bytes_inlined",
        NULL};
    static const char *const core_columns[] = {
        "cpu",        "tid",         "busy_ratio",  "requests",     "connections",
        "partitions", "handed_over", "misdirected", "wakeups_sent", NULL};
    static const char *const port_columns[] = {"name",       "driver",    "mac",        "address",
                                               "mtu",        "link",      "rx_packets", "rx_missed",
                                               "tx_packets", "tx_errors", NULL};
    static const char *const stage_columns[] = {"api",    "stage",  "count", "p50_us",
                                                "p99_us", "max_us", NULL};
    table_line("millrace", root);
    table_line("supervisor", json_object_get(root, "supervisor"));
    table_line("dataplane", json_object_get(root, "dataplane"));
    table_line("control", json_object_get(root, "control"));
    table_line("memory", json_object_get(root, "memory"));
    table_line("log", json_object_get(root, "log"));
    printf("\n");
    table_print(json_object_get(root, "listeners"), listener_columns);
    printf("\n");
    table_print(json_object_get(root, "cores"), core_columns);
    if (json_array_size(json_object_get(root, "ports")) > 0) {
        printf("\n");
        table_print(json_object_get(root, "ports"), port_columns);
    }
    printf("\n");
    table_print(json_object_get(root, "stages"), stage_columns);
}

int cli_status(const struct cli_call *call)
{
    struct instance instance;
    bool json;
    if (cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    int code = instance_find(call, &instance);
    code = code != 0 ? code : instance_open(&instance);
    if (code != 0) {
        return code;
    }
    json_t *root = status_json(&instance);
    if (json) {
        table_json(root);
    } else {
        status_table(root);
    }
    json_decref(root);
    return CLI_OK;
}
