/* SPDX-License-Identifier: Apache-2.0 */
/* See client.h. */
#include "cli/client.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define CLIENT_BROKER "127.0.0.1:9092"

const struct client_setting client_look_only[] = {{"allow.auto.create.topics", "false"},
                                                  {NULL, NULL}};

static int set(rd_kafka_conf_t *conf, const char *key, const char *value)
{
    char reason[CLIENT_TEXT_BYTES];
    if (rd_kafka_conf_set(conf, key, value, reason, sizeof(reason)) != RD_KAFKA_CONF_OK) {
        return cli_fail(CLI_USAGE, "%s", reason);
    }
    return CLI_OK;
}

/* Errors come back from the calls; only what kills the client is worth a line here. */
static void on_log(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    MILL_UNUSED(client);
    if (level <= 3 && strcmp(facility, "FAIL") != 0 && strcmp(facility, "ERROR") != 0) {
        fprintf(stderr, "millrace: client: %s\n", text);
    }
}

/* Takes ours, then -X. ret: exit code. */
static int set_all(rd_kafka_conf_t *conf, const struct cli_call *call,
                   const struct client_setting *settings)
{
    const char *pair;
    int code = set(conf, "bootstrap.servers", cli_value(call, "-b", CLIENT_BROKER));
    for (uint32_t i = 0; settings && settings[i].key && code == CLI_OK; i++) {
        code = set(conf, settings[i].key, settings[i].value);
    }
    for (uint32_t i = 0; code == CLI_OK && (pair = cli_value_at(call, "-X", i)); i++) {
        char key[CLIENT_TEXT_BYTES];
        const char *equals = strchr(pair, '=');
        if (!equals || (size_t)(equals - pair) >= sizeof(key)) {
            return cli_fail(CLI_USAGE, "option -X needs KEY=VALUE, not \"%s\"", pair);
        }
        snprintf(key, sizeof(key), "%.*s", (int)(equals - pair), pair);
        code = set(conf, key, equals + 1);
    }
    return code;
}

/* Takes conf, whatever comes of it. */
static rd_kafka_t *open_conf(rd_kafka_conf_t *conf, const struct cli_call *call,
                             rd_kafka_type_t type, const struct client_setting *settings,
                             int *ret_code)
{
    char reason[CLIENT_TEXT_BYTES];
    rd_kafka_conf_set_log_cb(conf, on_log);
    *ret_code = set_all(conf, call, settings);
    rd_kafka_t *client =
        *ret_code == CLI_OK ? rd_kafka_new(type, conf, reason, sizeof(reason)) : NULL;
    if (client) {
        return client;
    }
    rd_kafka_conf_destroy(conf);
    *ret_code = *ret_code == CLI_OK ? cli_fail(CLI_USAGE, "%s", reason) : *ret_code;
    return NULL;
}

/* Ends a client that reaches nobody. ret: the client, NULL after cli_fail. */
static rd_kafka_t *reached(rd_kafka_t *client, int *ret_code)
{
    *ret_code = client ? client_reach(client, CLIENT_TIMEOUT_MS) : *ret_code;
    if (client && *ret_code != CLI_OK) {
        rd_kafka_destroy(client);
        return NULL;
    }
    return client;
}

rd_kafka_t *client_open(const struct cli_call *call, rd_kafka_type_t type,
                        const struct client_setting *settings, int *ret_code)
{
    return reached(open_conf(rd_kafka_conf_new(), call, type, settings, ret_code), ret_code);
}

rd_kafka_t *client_open_with(const struct cli_call *call, rd_kafka_type_t type,
                             const struct client_setting *settings,
                             void (*on_delivery)(rd_kafka_t *, const rd_kafka_message_t *, void *),
                             void *opaque, int *ret_code)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_opaque(conf, opaque);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return open_conf(conf, call, type, settings, ret_code);
}

rd_kafka_t *client_open_group(const struct cli_call *call, const struct client_setting *settings,
                              void (*on_rebalance)(rd_kafka_t *, rd_kafka_resp_err_t,
                                                   rd_kafka_topic_partition_list_t *, void *),
                              void *opaque, int *ret_code)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_opaque(conf, opaque);
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    return reached(open_conf(conf, call, RD_KAFKA_CONSUMER, settings, ret_code), ret_code);
}

/* The addresses that a client was given, cut where room ends. */
static void name_broker(const rd_kafka_t *client, char ret_text[CLIENT_TEXT_BYTES])
{
    size_t size = CLIENT_TEXT_BYTES;
    if (rd_kafka_conf_get(rd_kafka_conf((rd_kafka_t *)(uintptr_t)client), "bootstrap.servers",
                          ret_text, &size) != RD_KAFKA_CONF_OK) {
        snprintf(ret_text, CLIENT_TEXT_BYTES, "the broker");
    }
}

static bool is_silence(rd_kafka_resp_err_t error)
{
    return error == RD_KAFKA_RESP_ERR__TRANSPORT || error == RD_KAFKA_RESP_ERR__TIMED_OUT ||
           error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || error == RD_KAFKA_RESP_ERR__RESOLVE;
}

/* Asks until there is an answer; the first second of silence is told. */
static rd_kafka_resp_err_t metadata_wait(rd_kafka_t *client, bool all, rd_kafka_topic_t *topic,
                                         int64_t limit_ms,
                                         const struct rd_kafka_metadata **ret_metadata)
{
    char broker[CLIENT_TEXT_BYTES];
    uint64_t begin_ns = mill_now_read().mono_ns;
    bool told = false;
    for (;;) {
        int64_t passed_ms = (int64_t)((mill_now_read().mono_ns - begin_ns) / MILL_NS_PER_MS);
        int64_t left_ms = MILL_MAX(limit_ms - passed_ms, (int64_t)1);
        rd_kafka_resp_err_t error = rd_kafka_metadata(
            client, all, topic, ret_metadata, (int)MILL_MIN(left_ms, (int64_t)CLIENT_NOTICE_MS));
        passed_ms = (int64_t)((mill_now_read().mono_ns - begin_ns) / MILL_NS_PER_MS);
        /* Who holds the signals is stopped by them here, too. */
        if (!is_silence(error) || passed_ms >= limit_ms || signal_taken()) {
            return error;
        }
        if (!told) {
            name_broker(client, broker);
            fprintf(stderr, "millrace: no answer from %s yet (%s); trying for %lld s\n", broker,
                    rd_kafka_err2str(error), (long long)(limit_ms / 1000));
            told = true;
        }
    }
}

/* ret: CLI_FAILED. */
static int fail_silence(const rd_kafka_t *client, int64_t limit_ms, rd_kafka_resp_err_t error)
{
    char broker[CLIENT_TEXT_BYTES];
    name_broker(client, broker);
    return cli_fail(CLI_FAILED, "no answer from %s within %lld s: %s; is a broker there?", broker,
                    (long long)(limit_ms / 1000), rd_kafka_err2str(error));
}

int client_reach(rd_kafka_t *client, int64_t limit_ms)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_resp_err_t error = metadata_wait(client, false, NULL, limit_ms, &metadata);
    if (error) {
        return fail_silence(client, limit_ms, error);
    }
    rd_kafka_metadata_destroy(metadata);
    return CLI_OK;
}

const struct rd_kafka_metadata *client_metadata(rd_kafka_t *client, const char *topic)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *handle = topic ? rd_kafka_topic_new(client, topic, NULL) : NULL;
    if (topic && !handle) {
        cli_fail(CLI_FAILED, "%s: %s", topic, rd_kafka_err2str(rd_kafka_last_error()));
        return NULL;
    }
    rd_kafka_resp_err_t error =
        metadata_wait(client, topic == NULL, handle, CLIENT_TIMEOUT_MS, &metadata);
    if (handle) {
        rd_kafka_topic_destroy(handle);
    }
    if (error) {
        fail_silence(client, CLIENT_TIMEOUT_MS, error);
        return NULL;
    }
    return metadata;
}

rd_kafka_event_t *client_await(rd_kafka_queue_t *queue)
{
    return client_checked(rd_kafka_queue_poll(queue, 2 * CLIENT_TIMEOUT_MS));
}

rd_kafka_event_t *client_checked(rd_kafka_event_t *event)
{
    if (!event) {
        cli_fail(CLI_FAILED, "no answer from the broker within %d s", 2 * CLIENT_TIMEOUT_MS / 1000);
        return NULL;
    }
    if (rd_kafka_event_error(event)) {
        cli_fail(CLI_FAILED, "%s", rd_kafka_event_error_string(event));
        rd_kafka_event_destroy(event);
        return NULL;
    }
    return event;
}

/* --- progress -----------------------------------------------------------------------------------
 */

void progress_start(struct progress *progress)
{
    uint64_t now = mill_now_read().mono_ns;
    *progress = (struct progress){
        .shown = isatty(STDERR_FILENO), .start_ns = now, .next_ns = now + MILL_NS_PER_S};
}

void progress_add(struct progress *progress, uint64_t bytes)
{
    progress->records++;
    progress->bytes += bytes;
}

static void rate_print(const struct progress *progress, uint64_t now_ns, const char *before,
                       const char *after)
{
    double seconds = (double)(now_ns - progress->start_ns) / 1e9;
    seconds = seconds > 0 ? seconds : 1e-9;
    fprintf(stderr, "%s%llu records, %.1f MB, %.0f records/s, %.1f MB/s%s", before,
            (unsigned long long)progress->records, (double)progress->bytes / 1e6,
            (double)progress->records / seconds, (double)progress->bytes / 1e6 / seconds, after);
}

void progress_look(struct progress *progress)
{
    uint64_t now = progress->shown ? mill_now_read().mono_ns : 0;
    if (progress->shown && now >= progress->next_ns) {
        progress->next_ns = now + MILL_NS_PER_S;
        rate_print(progress, now, "\r", "\033[K");
    }
}

void progress_end(struct progress *progress, const char *verb)
{
    char before[64];
    snprintf(before, sizeof(before), "%smillrace: %s ", progress->shown ? "\r\033[K" : "", verb);
    rate_print(progress, mill_now_read().mono_ns, before, "\n");
}

/* --- signals ------------------------------------------------------------------------------------
 */

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

void signals_hold(void)
{
    sigset_t set;
    stop_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

bool signal_taken(void)
{
    sigset_t set;
    stop_signals(&set);
    return sigtimedwait(&set, NULL, &(struct timespec){0}) > 0;
}
