/* SPDX-License-Identifier: Apache-2.0 */
/* millrace bench: options of a load, and what came of it as a table or JSON. The work is bench/. */
#include "bench/bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client.h"
#include "cli/table.h"

enum {
    HOST_BYTES = 256,
    TIMEOUT_MS = 10000,
    WARMUP_MS = 500,
    SECONDS = 5,
    SECONDS_MAX = 86400,
    RATE_MAX = 100000000,
    PRODUCE_IN_FLIGHT = 5,        /* as Kafka's own producer */
    IDEMPOTENT_IN_FLIGHT_MAX = 5, /* what a broker remembers of a producer (KIP-98) */
    RECORD_BYTES = 200,
    BATCH_BYTES = 16384,
    RATE = 1000,
    END_TO_END_IN_FLIGHT = 64,
    EAL_MB = 256,
    EAL_MB_MAX = 65536,
};

struct host {
    char text[HOST_BYTES];
    uint16_t port;
};

/* --- options ---------------------------------------------------------------------------------- */

/* A whole number into a field of any width. ret: 0, -EINVAL after cli_fail. */
#define TAKE(call, option, fallback, min, max, to)                                                 \
    ({                                                                                             \
        int64_t number_ = 0;                                                                       \
        int r_ = cli_number(call, option, fallback, min, max, &number_);                           \
        *(to) = (__typeof__(*(to)))number_;                                                        \
        r_;                                                                                        \
    })

static int take_host(const struct cli_call *call, struct host *ret_host)
{
    const char *text = cli_value(call, "-b", "127.0.0.1:9092");
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    size_t size = colon ? (size_t)(colon - text) : 0;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    bool bracketed = size > 2 && text[0] == '[' && text[size - 1] == ']';
    if (size == 0 || size >= HOST_BYTES || end == colon + 1 || *end || port == 0 ||
        port > UINT16_MAX) {
        cli_fail(CLI_USAGE, "%s: option -b needs HOST:PORT, not \"%s\"", call->command->name, text);
        return -EINVAL;
    }
    snprintf(ret_host->text, HOST_BYTES, "%.*s", (int)(bracketed ? size - 2 : size),
             bracketed ? text + 1 : text);
    ret_host->port = (uint16_t)port;
    return 0;
}

/* One of two words. ret: 0 first, 1 second, -EINVAL after cli_fail. */
static int take_word(const struct cli_call *call, const char *option, const char *first,
                     const char *second)
{
    const char *text = cli_value(call, option, first);
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0) {
        cli_fail(CLI_USAGE, "%s: option %s needs %s or %s, not \"%s\"", call->command->name, option,
                 first, second, text);
        return -EINVAL;
    }
    return strcmp(text, second) == 0;
}

static int take_ipv4(const struct cli_call *call, const char *option, const char *text,
                     uint32_t *ret_address)
{
    struct in_addr address;
    if (inet_pton(AF_INET, text, &address) != 1) {
        cli_fail(CLI_USAGE, "%s: option %s needs an IPv4 address in numbers, not \"%s\"",
                 call->command->name, option, text);
        return -EINVAL;
    }
    *ret_address = ntohl(address.s_addr);
    return 0;
}

static int take_cidr(const struct cli_call *call, struct mill_bench_transport *to)
{
    char text[32];
    const char *given = cli_value(call, "--address", "198.18.0.2/24");
    const char *slash = strchr(given, '/');
    char *end = NULL;
    unsigned long bits = slash ? strtoul(slash + 1, &end, 10) : 0;
    if (!slash || end == slash + 1 || *end || bits == 0 || bits > 32 ||
        slash - given >= (long)sizeof(text)) {
        cli_fail(CLI_USAGE,
                 "%s: option --address needs an address with its prefix, as 198.18.0.2/24, "
                 "not \"%s\"",
                 call->command->name, given);
        return -EINVAL;
    }
    snprintf(text, sizeof(text), "%.*s", (int)(slash - given), given);
    to->prefix_bits = (uint8_t)bits;
    return take_ipv4(call, "--address", text, &to->address);
}

static int take_transport(const struct cli_call *call, struct mill_bench_transport *to)
{
    const char *gateway = cli_value(call, "--gateway", NULL);
    int rx_csum = take_word(call, "--rx-csum", "verify", "trust");
    int tx_csum = take_word(call, "--tx-csum", "auto", "off");
    to->device = cli_value(call, "--device", NULL);
    to->netns = cli_value(call, "--netns", NULL);
    to->eal_args = cli_value(call, "--eal-args", NULL);
    to->rx_csum_trusted = rx_csum == 1;
    to->tx_csum_off = tx_csum == 1;
    return rx_csum < 0 || tx_csum < 0 || take_cidr(call, to) < 0 ||
                   (gateway && take_ipv4(call, "--gateway", gateway, &to->gateway) < 0) ||
                   TAKE(call, "--mtu", 1500, 576, 9000, &to->mtu) < 0 ||
                   TAKE(call, "--queues", 1, 1, MILL_BENCH_QUEUES_MAX, &to->queues) < 0 ||
                   TAKE(call, "--memory", EAL_MB, 64, EAL_MB_MAX, &to->memory_mb) < 0
               ? -EINVAL
               : 0;
}

/* How long: by time, by count, or by whichever comes first. */
static int take_end(const struct cli_call *call, struct mill_bench_options *to)
{
    uint64_t warmup_ms = 0;
    uint64_t seconds = 0;
    if (TAKE(call, "--count", 0, 1, INT64_MAX, &to->count) < 0 ||
        TAKE(call, "--warmup", to->count ? 0 : WARMUP_MS, 0, 1000 * SECONDS_MAX, &warmup_ms) < 0 ||
        TAKE(call, "--seconds", to->count ? 0 : SECONDS, 1, SECONDS_MAX, &seconds) < 0 ||
        TAKE(call, "--timeout", TIMEOUT_MS, 1, 1000 * SECONDS_MAX, &to->timeout_ms) < 0) {
        return -EINVAL;
    }
    to->warmup_ns = warmup_ms * MILL_NS_PER_MS;
    to->duration_ns = seconds ? seconds * MILL_NS_PER_S : MILL_NEVER;
    return 0;
}

static int take_topic(const struct cli_call *call, struct mill_bench_options *to)
{
    to->topic = cli_value(call, "-t", NULL);
    if (!to->topic || !to->topic[0] || strlen(to->topic) >= MILL_BENCH_TOPIC_BYTES) {
        cli_fail(CLI_USAGE, "%s: which topic? give -t TOPIC, at most %d bytes", call->command->name,
                 MILL_BENCH_TOPIC_BYTES - 1);
        return -EINVAL;
    }
    return 0;
}

static int take_acks(const struct cli_call *call, struct mill_bench_options *to)
{
    const char *text = cli_value(call, "--acks", "all");
    bool none_allowed = to->mode == MILL_BENCH_PRODUCE && !to->idempotent;
    if (strcmp(text, "all") == 0) {
        to->acks = -1;
    } else if (strcmp(text, "1") == 0 && !to->idempotent) {
        to->acks = 1;
    } else if (strcmp(text, "0") == 0 && none_allowed) {
        to->acks = 0;
    } else {
        cli_fail(CLI_USAGE, "%s: option --acks needs %s, not \"%s\"", call->command->name,
                 to->idempotent ? "all with --idempotent"
                 : none_allowed ? "0, 1 or all"
                                : "1 or all",
                 text);
        return -EINVAL;
    }
    return 0;
}

/* What every load has. */
static int take_load(const struct cli_call *call, struct mill_bench_options *to, struct host *host)
{
    int64_t rate = 0;
    to->poisson = cli_value(call, "--poisson", NULL);
    to->busy = cli_value(call, "--busy", NULL);
    to->create = cli_value(call, "--create", NULL);
    to->offset = INT64_MIN;
    if (take_host(call, host) < 0 || take_topic(call, to) < 0 || take_end(call, to) < 0 ||
        take_transport(call, &to->transport) < 0 ||
        cli_number(call, "--rate", to->mode == MILL_BENCH_END_TO_END ? RATE : 0, 1, RATE_MAX,
                   &rate) < 0 ||
        TAKE(call, "-p", 0, 1, MILL_BENCH_PARTITIONS_MAX, &to->partitions) < 0 ||
        TAKE(call, "--connections", 1, 1, MILL_BENCH_CONNECTIONS_MAX, &to->connections) < 0) {
        return -EINVAL;
    }
    if (to->poisson && rate == 0) {
        cli_fail(CLI_USAGE, "%s: option --poisson needs --rate", call->command->name);
        return -EINVAL;
    }
    to->host = host->text;
    to->port = host->port;
    to->rate = (double)rate;
    return 0;
}

static int take_records(const struct cli_call *call, uint32_t *ret_record, uint32_t *ret_batch)
{
    return TAKE(call, "--record-bytes", RECORD_BYTES, MILL_BENCH_RECORD_BYTES_MIN,
                MILL_BENCH_BATCH_BYTES_MAX / 2, ret_record) < 0 ||
                   TAKE(call, "--batch-bytes", BATCH_BYTES, 128, MILL_BENCH_BATCH_BYTES_MAX,
                        ret_batch) < 0
               ? -EINVAL
               : 0;
}

/* --- results ---------------------------------------------------------------------------------- */

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static double microseconds(uint64_t value_ns)
{
    return (double)value_ns / 1e3;
}

static json_t *latency_json(const struct mill_hist *hist)
{
    return json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:f}", "count", number(hist->count), "p50",
                     microseconds(mill_hist_quantile(hist, 0.5)), "p90",
                     microseconds(mill_hist_quantile(hist, 0.9)), "p99",
                     microseconds(mill_hist_quantile(hist, 0.99)), "p99.9",
                     microseconds(mill_hist_quantile(hist, 0.999)), "max",
                     microseconds(hist->max_ns), "mean",
                     hist->count ? microseconds(hist->sum_ns / hist->count) : 0.0);
}

static json_t *errors_json(const struct mill_bench_result *result)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < result->errors_count; i++) {
        char name[96];
        snprintf(name, sizeof(name), "%s", mill_bench_error_name(result->error[i].code));
        json_object_set_new(object, name, number(result->error[i].count));
    }
    return object;
}

static json_t *result_json(const struct mill_bench_result *result)
{
    double seconds = (double)MILL_MAX(result->window_ns, (uint64_t)1) / 1e9;
    double cpu = (double)(result->cpu_user_ns + result->cpu_system_ns) / 1e9;
    double gigabytes = (double)result->bytes / 1e9;
    return json_pack(
        "{s:f, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o}",
        "seconds", seconds, "requests", number(result->requests), "records",
        number(result->records), "bytes", number(result->bytes), "requests_per_s",
        (double)result->requests / seconds, "records_per_s", (double)result->records / seconds,
        "bytes_per_s", (double)result->bytes / seconds, "cpu_user_s",
        (double)result->cpu_user_ns / 1e9, "cpu_system_s", (double)result->cpu_system_ns / 1e9,
        "cpu_share", cpu / seconds, "cpu_s_per_gb", gigabytes > 0 ? cpu / gigabytes : 0.0, "unsent",
        number(result->unsent), "unanswered", number(result->unanswered), "connections_lost",
        number(result->connections_lost), "malformed", number(result->malformed), "restarts",
        number(result->restarts), "errors", number(result->errors), "error", errors_json(result),
        "latency_us", latency_json(&result->latency));
}

static void result_print(const struct mill_bench_result *result, bool json)
{
    json_t *object = result_json(result);
    if (json) {
        table_json(object);
    } else {
        const char *name;
        json_t *value;
        json_object_foreach(object, name, value)
        {
            if (json_is_real(value)) {
                printf("%-18s %.3f\n", name, json_real_value(value));
            } else if (json_is_integer(value)) {
                printf("%-18s %" JSON_INTEGER_FORMAT "\n", name, json_integer_value(value));
            }
        }
        table_line("error", json_object_get(object, "error"));
        table_line("latency_us", json_object_get(object, "latency_us"));
    }
    json_decref(object);
}

/* A load as parsed: runs and prints. ret: exit code. */
static int run(const struct cli_call *call, const struct mill_bench_options *options)
{
    struct mill_bench_result *result = calloc(1, sizeof(*result));
    struct mill_report report = {""};
    bool json;
    if (!result) {
        return cli_fail(CLI_FAILED, "no memory");
    }
    if (cli_wants_json(call, &json) < 0) {
        free(result);
        return CLI_USAGE;
    }
    int code = CLI_OK;
    int r = mill_bench_run(options, result, &report);
    if (r < 0) {
        code = cli_fail(r == -EINVAL ? CLI_USAGE : CLI_FAILED, "%s: %s", call->command->name,
                        report.text);
    } else {
        result_print(result, json);
        if (!mill_bench_clean(result)) {
            code = cli_fail(
                CLI_FAILED,
                "%s: %llu errors of the broker%s%s, %llu malformed answers, %llu "
                "connections lost, %llu requests without an answer",
                call->command->name, (unsigned long long)result->errors,
                result->errors_count ? ", first " : "",
                result->errors_count ? mill_bench_error_name(result->error[0].code) : "",
                (unsigned long long)result->malformed, (unsigned long long)result->connections_lost,
                (unsigned long long)result->unanswered);
        }
    }
    free(result);
    return code;
}

/* --- commands --------------------------------------------------------------------------------- */

int cli_bench_produce(const struct cli_call *call)
{
    struct host host;
    struct mill_bench_options options = {.mode = MILL_BENCH_PRODUCE,
                                         .fetch_bytes = MILL_BENCH_BATCH_BYTES_MAX};
    options.idempotent = cli_value(call, "--idempotent", NULL);
    uint32_t most = options.idempotent ? IDEMPOTENT_IN_FLIGHT_MAX : MILL_BENCH_IN_FLIGHT_MAX;
    if (take_load(call, &options, &host) < 0 || take_acks(call, &options) < 0 ||
        take_records(call, &options.record_bytes, &options.batch_bytes) < 0 ||
        TAKE(call, "--records", 0, 1, MILL_BENCH_BATCH_BYTES_MAX / MILL_BENCH_RECORD_BYTES_MIN,
             &options.records) < 0 ||
        TAKE(call, "--in-flight", PRODUCE_IN_FLIGHT, 1, most, &options.in_flight) < 0) {
        return CLI_USAGE;
    }
    return run(call, &options);
}

int cli_bench_fetch(const struct cli_call *call)
{
    struct host host;
    struct mill_bench_options options = {.mode = MILL_BENCH_FETCH,
                                         .acks = -1,
                                         .record_bytes = RECORD_BYTES,
                                         .batch_bytes = BATCH_BYTES};
    if (take_load(call, &options, &host) < 0 ||
        TAKE(call, "--in-flight", 1, 1, MILL_BENCH_IN_FLIGHT_MAX, &options.in_flight) < 0 ||
        TAKE(call, "--offset", INT64_MIN, 0, INT64_MAX, &options.offset) < 0 ||
        TAKE(call, "--max-bytes", 1 << 20, 1, INT32_MAX, &options.fetch_bytes) < 0 ||
        TAKE(call, "--max-wait", 500, 0, 1000 * SECONDS_MAX, &options.fetch_wait_ms) < 0) {
        return CLI_USAGE;
    }
    return run(call, &options);
}

int cli_bench_end_to_end(const struct cli_call *call)
{
    struct host host;
    struct mill_bench_options options = {.mode = MILL_BENCH_END_TO_END,
                                         .records = 1,
                                         .in_flight = END_TO_END_IN_FLIGHT,
                                         .fetch_bytes = 1 << 20,
                                         .fetch_wait_ms = 500};
    if (take_load(call, &options, &host) < 0 || take_acks(call, &options) < 0 ||
        TAKE(call, "--record-bytes", RECORD_BYTES, MILL_BENCH_RECORD_BYTES_MIN,
             MILL_BENCH_BATCH_BYTES_MAX / 2, &options.record_bytes) < 0) {
        return CLI_USAGE;
    }
    options.partitions = 1;
    return run(call, &options);
}

/* Told on standard output, as a broker's ready line. */
static void say_ready(void *context, uint16_t port)
{
    MILL_UNUSED(context);
    if (port) {
        printf("millrace bench: ready port=%u\n", port);
    } else {
        printf("millrace bench: ready\n");
    }
    fflush(stdout);
}

int cli_bench_null_server(const struct cli_call *call)
{
    struct host host;
    struct mill_report report = {""};
    struct mill_bench_null_options options = {.stop = signal_taken};
    uint64_t seconds = 0;
    options.busy = cli_value(call, "--busy", NULL);
    if (take_host(call, &host) < 0 || take_transport(call, &options.transport) < 0 ||
        take_records(call, &options.record_bytes, &options.batch_bytes) < 0 ||
        TAKE(call, "-p", 1, 1, MILL_BENCH_NULL_PARTITIONS_MAX, &options.partitions) < 0 ||
        TAKE(call, "--seconds", 0, 1, SECONDS_MAX, &seconds) < 0) {
        return CLI_USAGE;
    }
    options.host = host.text;
    options.port = host.port;
    options.duration_ns = seconds ? seconds * MILL_NS_PER_S : MILL_NEVER;
    signals_hold();
    int r = mill_bench_null_server(&options, say_ready, NULL, &report);
    return r == 0 ? CLI_OK
                  : cli_fail(r == -EINVAL ? CLI_USAGE : CLI_FAILED, "%s: %s", call->command->name,
                             report.text);
}

int cli_bench_echo(const struct cli_call *call)
{
    struct mill_bench_result *result = calloc(1, sizeof(*result));
    struct mill_report report = {""};
    struct mill_bench_echo_options options = {.stop = signal_taken};
    uint64_t seconds = 0;
    uint64_t warmup_ms = 0;
    bool json = false;
    int r = result ? 0 : -ENOMEM;
    options.server = cli_value(call, "--server", NULL);
    if (r < 0 || cli_wants_json(call, &json) < 0 || take_transport(call, &options.transport) < 0 ||
        TAKE(call, "--frame-bytes", 64, MILL_BENCH_FRAME_BYTES_MIN, MILL_BENCH_FRAME_BYTES_MAX,
             &options.frame_bytes) < 0 ||
        TAKE(call, "--warmup", WARMUP_MS, 0, 1000 * SECONDS_MAX, &warmup_ms) < 0 ||
        TAKE(call, "--seconds", options.server ? 0 : SECONDS, 1, SECONDS_MAX, &seconds) < 0 ||
        TAKE(call, "--timeout", TIMEOUT_MS, 1, 1000 * SECONDS_MAX, &options.timeout_ms) < 0) {
        free(result);
        return r < 0 ? cli_fail(CLI_FAILED, "no memory") : CLI_USAGE;
    }
    if (!options.transport.device) {
        free(result);
        return cli_fail(CLI_USAGE, "%s: over which device? give --device DEVICE",
                        call->command->name);
    }
    options.warmup_ns = warmup_ms * MILL_NS_PER_MS;
    options.duration_ns = seconds ? seconds * MILL_NS_PER_S : MILL_NEVER;
    if (options.server) {
        signals_hold();
    }
    r = mill_bench_echo(&options, say_ready, NULL, result, &report);
    if (r == 0 && !options.server) {
        result_print(result, json);
    }
    free(result);
    return r == 0 ? CLI_OK : cli_fail(CLI_FAILED, "%s: %s", call->command->name, report.text);
}
