/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics under the names of Kafka's own, in snake case and with Prometheus' units, where they have
 * a meaning in one broker. A rate of Kafka's is a counter here (rate() makes it one), a percentile
 * a histogram. Names: Kafka's documentation, section Monitoring. */
#include "control/http/metrics.h"

#include <stdio.h>
#include <string.h>

#include "protocol/errors.h"
#include "protocol/wire.h"

#define BROKER_TOPIC    "kafka_server_broker_topic_metrics_"
#define REPLICA_MANAGER "kafka_server_replica_manager_"
#define SESSION_CACHE   "kafka_server_fetch_session_cache_"
#define CONTROLLER      "kafka_controller_kafka_controller_"
#define CLEANER         "kafka_log_log_cleaner_"
#define CLEANER_MANAGER "kafka_log_log_cleaner_manager_"
#define REQUESTS        "kafka_network_request_metrics_"

enum {
    KEY_PRODUCE = 0,
    KEY_FETCH = 1,
    NUMBER_BYTES = 24,
};

/* --- single values -----------------------------------------------------------------------------
 */

/* A value that is the sum of one word over all cores. */
struct core_sum {
    const char *name;
    const char *type;
    const char *help;
    size_t at_bytes; /* in struct mill_shared_core */
};

#define CORE_SUM(name, type, word, help)                                                           \
    {                                                                                              \
        name, type, help, offsetof(struct mill_shared_core, word)                                  \
    }

static const struct core_sum core_sums[] = {
    CORE_SUM(BROKER_TOPIC "messages_in_total", "counter", records_in, "records appended"),
    CORE_SUM(BROKER_TOPIC "bytes_in_total", "counter", log_bytes_in,
             "record-batch bytes received, refused ones too"),
    CORE_SUM(BROKER_TOPIC "bytes_out_total", "counter", log_bytes_out,
             "record-batch bytes given to fetches"),
    CORE_SUM(BROKER_TOPIC "failed_produce_requests_total", "counter", produce_failed,
             "produce requests with an error for a partition"),
    CORE_SUM(BROKER_TOPIC "failed_fetch_requests_total", "counter", fetch_failed,
             "fetch requests with an error"),
    CORE_SUM(REPLICA_MANAGER "partitions", "gauge", partitions, "partitions here"),
    CORE_SUM(REPLICA_MANAGER "leaders", "gauge", partitions, "partitions led here"),
    CORE_SUM(REPLICA_MANAGER "producer_ids", "gauge", producers,
             "idempotent producers whose state is kept"),
    CORE_SUM(SESSION_CACHE "num_incremental_fetch_sessions", "gauge", fetch_sessions,
             "incremental fetch sessions kept"),
    CORE_SUM(SESSION_CACHE "num_incremental_fetch_partitions_cached", "gauge",
             fetch_session_partitions, "partitions of these sessions"),
    CORE_SUM(SESSION_CACHE "incremental_fetch_session_evictions_total", "counter",
             fetch_sessions_evicted, "fetch sessions pushed out to make room for another"),
};

static void put_core_sums(const struct mill_counters *counters, struct mill_text *text)
{
    for (uint32_t i = 0; i < MILL_COUNT_OF(core_sums); i++) {
        const struct core_sum *sum = &core_sums[i];
        uint64_t value = 0;
        for (uint32_t core = 0; core < counters->cores_count; core++) {
            value += mill_counter_get(
                (const _Atomic uint64_t *)((const char *)&counters->cores[core] + sum->at_bytes));
        }
        mill_text_metric(text, sum->name, sum->type, sum->help);
        mill_text_sample_u64(text, sum->name, "", NULL, 0, value);
    }
}

static void put_value(struct mill_text *text, const char *name, const char *type, const char *help,
                      uint64_t value)
{
    mill_text_metric(text, name, type, help);
    mill_text_sample_u64(text, name, "", NULL, 0, value);
}

static void put_controller(const struct mill_metrics_source *source, struct mill_text *text)
{
    const struct mill_shared_control *control = &source->counters->control;
    uint64_t failed = mill_counter_get(&control->partitions_failed);
    bool active = false;
    for (uint32_t i = 0; i < source->processes_count; i++) {
        active |= strcmp(source->processes[i].name, "control") == 0 && source->processes[i].serving;
    }
    put_value(text, CONTROLLER "active_controllers", "gauge", "1 where the cluster's controller is",
              active);
    put_value(text, CONTROLLER "global_topics", "gauge", "topics",
              mill_counter_get(&control->topics));
    put_value(text, CONTROLLER "global_partitions", "gauge", "partitions",
              mill_counter_get(&control->partitions));
    put_value(text, CONTROLLER "topics_to_delete", "gauge", "topics whose deletion is under way",
              mill_counter_get(&control->topics_deleting));
    /* With one replica a partition that could not be opened is without leader. */
    put_value(text, CONTROLLER "offline_partitions", "gauge", "partitions that nobody can serve",
              failed);
    put_value(text, REPLICA_MANAGER "offline_replicas", "gauge",
              "replicas whose directory could not be opened", failed);
}

/* --- by listener -------------------------------------------------------------------------------
 */

static uint64_t listener_sum(const struct mill_counters *counters, uint32_t listener,
                             size_t at_bytes)
{
    uint64_t sum = 0;
    for (uint32_t core = 0; core < counters->cores_count; core++) {
        const char *words = (const char *)&counters->cores[core].listeners[listener];
        sum += mill_counter_get((const _Atomic uint64_t *)(words + at_bytes));
    }
    return sum;
}

static void put_listeners(const struct mill_counters *counters, struct mill_text *text)
{
    uint32_t count = MILL_MIN(counters->listeners_count, (uint32_t)MILL_MAP_LISTENERS_MAX);
    const char *name = "kafka_server_socket_server_metrics_connections";
    uint64_t rejected = 0;
    mill_text_metric(text, name, "gauge", "connections open now");
    for (uint32_t i = 0; i < count; i++) {
        const struct mill_label label = mill_label_of("listener", counters->listeners[i].name,
                                                      sizeof(counters->listeners[i].name));
        mill_text_sample_u64(
            text, name, "", &label, 1,
            listener_sum(counters, i, offsetof(struct mill_shared_listener, connections)));
        rejected +=
            listener_sum(counters, i, offsetof(struct mill_shared_listener, bytes_rejected));
    }
    put_value(text, BROKER_TOPIC "bytes_rejected_total", "counter",
              "record-batch bytes received and refused", rejected);
}

/* --- by API ------------------------------------------------------------------------------------
 */

static const char *api_name(int16_t key)
{
    const struct mill_api *api = mill_api_find(key);
    return api ? api->name : NULL;
}

static uint64_t requests_of(const struct mill_counters *counters, int16_t key, int16_t version)
{
    uint64_t sum = 0;
    for (uint32_t core = 0; core < counters->cores_count; core++) {
        sum += mill_counter_get(&counters->cores[core].apis[key][version]);
    }
    return sum;
}

static uint64_t errors_of(const struct mill_counters *counters, int16_t key, int16_t code)
{
    uint64_t sum = 0;
    for (uint32_t core = 0; core < counters->cores_count; core++) {
        sum += mill_counter_get(&counters->cores[core].errors[key][code + 1]);
    }
    return sum;
}

static void put_requests(const struct mill_counters *counters, struct mill_text *text)
{
    const char *name = REQUESTS "requests_total";
    uint64_t sums[2] = {0};
    mill_text_metric(text, name, "counter", "requests answered, by API and version");
    for (int16_t key = 0; key < MILL_COUNTERS_API_KEYS; key++) {
        const char *api = api_name(key);
        for (int16_t version = 0; api && version < MILL_COUNTERS_API_VERSIONS; version++) {
            char number[NUMBER_BYTES];
            uint64_t count = requests_of(counters, key, version);
            snprintf(number, sizeof(number), "%d", version);
            const struct mill_label labels[] = {
                mill_label_of("request", api, strlen(api)),
                mill_label_of("version", number, sizeof(number)),
            };
            if (count > 0) {
                mill_text_sample_u64(text, name, "", labels, MILL_COUNT_OF(labels), count);
            }
            sums[MILL_MIN(key, (int16_t)1)] += key <= KEY_FETCH ? count : 0;
        }
    }
    put_value(text, BROKER_TOPIC "total_produce_requests_total", "counter",
              "produce requests answered", sums[KEY_PRODUCE]);
    put_value(text, BROKER_TOPIC "total_fetch_requests_total", "counter", "fetch requests answered",
              sums[KEY_FETCH]);
}

static void put_errors(const struct mill_counters *counters, struct mill_text *text)
{
    const char *name = REQUESTS "errors_total";
    mill_text_metric(text, name, "counter", "errors that partitions got, by API and name");
    for (int16_t key = 0; key < MILL_COUNTERS_ERROR_APIS; key++) {
        const char *api = api_name(key);
        for (int16_t code = -1; api && code < MILL_COUNTERS_ERRORS - 1; code++) {
            uint64_t count = errors_of(counters, key, code);
            const char *error = count > 0 ? mill_kerr_name(code) : NULL;
            if (error) {
                const struct mill_label labels[] = {
                    mill_label_of("request", api, strlen(api)),
                    mill_label_of("error", error, strlen(error)),
                };
                mill_text_sample_u64(text, name, "", labels, MILL_COUNT_OF(labels), count);
            }
        }
    }
    put_value(text, BROKER_TOPIC "invalid_message_crc_records_total", "counter",
              "batches refused for their checksum",
              errors_of(counters, KEY_PRODUCE, MILL_KERR_CORRUPT_MESSAGE));
}

/* A stage under the name that Kafka gives to the same time. */
static const struct {
    enum mill_stage stage;
    const char *name;
    const char *help;
} times[] = {
    {MILL_STAGE_TOTAL, REQUESTS "total_time_seconds", "whole request there to its answer queued"},
    {MILL_STAGE_APPENDED, REQUESTS "local_time_seconds", "time at the partitions' cores"},
    {MILL_STAGE_REPLICATED, REQUESTS "remote_time_seconds", "wait for followers"},
    {MILL_STAGE_ANSWERED, REQUESTS "response_queue_time_seconds",
     "wait of the answer for the connection"},
    {MILL_STAGE_ACKED, REQUESTS "response_send_time_seconds",
     "answer queued to the client's TCP having it"},
};

static void put_times(const struct mill_counters *counters, struct mill_text *text)
{
    static const char *const requests[MILL_STAGE_API_COUNT] = {"Produce", "Fetch", "Other"};
    const struct mill_hist *hists[MILL_MAP_CORES_MAX];
    for (uint32_t i = 0; i < MILL_COUNT_OF(times); i++) {
        mill_text_metric(text, times[i].name, "histogram", times[i].help);
        for (uint32_t api = 0; api < MILL_STAGE_API_COUNT; api++) {
            const struct mill_label label =
                mill_label_of("request", requests[api], strlen(requests[api]));
            for (uint32_t core = 0; core < counters->cores_count; core++) {
                hists[core] = &counters->cores[core].stages[api][times[i].stage];
            }
            mill_metrics_hist(text, times[i].name, &label, 1, hists, counters->cores_count);
        }
    }
}

/* What waits, by what it waits in: a Fetch for data, an append of a Produce for its sync. */
static const struct {
    const char *operation;
    size_t at_bytes; /* in struct mill_shared_core */
} waiting[] = {
    {"Fetch", offsetof(struct mill_shared_core, waiting_fetches)},
    {"Produce", offsetof(struct mill_shared_core, waiting_syncs)},
};

static uint64_t core_word(const struct mill_counters *counters, uint32_t core, size_t at_bytes)
{
    const char *words = (const char *)&counters->cores[core];
    return mill_counter_get((const _Atomic uint64_t *)(words + at_bytes));
}

static void put_waiting(const struct mill_counters *counters, struct mill_text *text)
{
    const char *name = "kafka_server_delayed_operation_purgatory_purgatory_size";
    mill_text_metric(text, name, "gauge", "operations that wait for data or for a sync");
    for (uint32_t i = 0; i < MILL_COUNT_OF(waiting); i++) {
        const struct mill_label label =
            mill_label_of("delayed_operation", waiting[i].operation, NUMBER_BYTES);
        uint64_t sum = 0;
        for (uint32_t core = 0; core < counters->cores_count; core++) {
            sum += core_word(counters, core, waiting[i].at_bytes);
        }
        mill_text_sample_u64(text, name, "", &label, 1, sum);
    }
}

static void put_flushes(const struct mill_counters *counters, struct mill_text *text)
{
    const char *name = "kafka_log_log_flush_stats_log_flush_rate_and_time_seconds";
    const struct mill_hist *hists[MILL_MAP_CORES_MAX];
    for (uint32_t core = 0; core < counters->cores_count; core++) {
        hists[core] = &counters->cores[core].flush;
    }
    mill_text_metric(text, name, "histogram", "syncs of segments");
    mill_metrics_hist(text, name, NULL, 0, hists, counters->cores_count);
}

static void put_gauge(struct mill_text *text, const char *name, const char *help, double value)
{
    mill_text_metric(text, name, "gauge", help);
    mill_text_sample(text, name, "", NULL, 0, value);
}

/* The last compaction of each core's store is what Kafka tells of each of its threads. */
static void put_cleaner(const struct mill_counters *counters, struct mill_text *text)
{
    uint64_t time_ns = 0;
    uint64_t bytes_in = 0;
    uint64_t bytes_out = 0;
    uint64_t dirty_ppm = 0;
    double full = 0;
    for (uint32_t i = 0; i < counters->cores_count; i++) {
        const struct mill_shared_core *core = &counters->cores[i];
        uint64_t keys_max = mill_counter_get(&core->compaction_last_keys_max);
        double keys = (double)mill_counter_get(&core->compaction_last_keys);
        time_ns = MILL_MAX(time_ns, mill_counter_get(&core->compaction_last_ns));
        bytes_in += mill_counter_get(&core->compaction_last_bytes_in);
        bytes_out += mill_counter_get(&core->compaction_last_bytes_out);
        dirty_ppm = MILL_MAX(dirty_ppm, mill_counter_get(&core->compaction_dirty_ppm));
        full = MILL_MAX(full, keys_max > 0 ? keys / (double)keys_max : 0);
    }
    put_gauge(text, CLEANER "max_clean_time_seconds", "longest of the cores' last compactions",
              (double)time_ns / 1e9);
    put_gauge(text, CLEANER "cleaner_recopy_ratio", "share of the bytes that these left",
              bytes_in > 0 ? (double)bytes_out / (double)bytes_in : 0);
    put_gauge(text, CLEANER "max_buffer_utilization_ratio", "how full the fullest map of keys was",
              full);
    put_gauge(text, CLEANER_MANAGER "max_dirty_ratio",
              "share that is not compacted yet of the partition with most",
              (double)dirty_ppm / 1e6);
}

void mill_metrics_kafka(const struct mill_metrics_source *source, struct mill_text *text)
{
    const struct mill_counters *counters = source->counters;
    put_core_sums(counters, text);
    put_controller(source, text);
    put_listeners(counters, text);
    put_requests(counters, text);
    put_errors(counters, text);
    put_times(counters, text);
    put_waiting(counters, text);
    put_flushes(counters, text);
    put_cleaner(counters, text);
}
