/* SPDX-License-Identifier: Apache-2.0 */
/* millrace produce: a record per line of standard input. Counts what the broker acknowledged, not
 * what was handed to the client. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client.h"
#include "cli/table.h"

enum {
    POLL_EVERY = 256, /* lines between two looks at acknowledgements */
    FLUSH_STEP_MS = 200,
    TIMEOUT_S = 30,
    TIMEOUT_S_MAX = 86400,
};

struct producer {
    struct progress progress; /* acknowledged */
    uint64_t failed;
    char first_error[CLIENT_TEXT_BYTES];
};

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    struct producer *producer = opaque;
    MILL_UNUSED(client);
    if (!message->err) {
        progress_add(&producer->progress, message->len + message->key_len);
        return;
    }
    if (producer->failed++ == 0) {
        snprintf(producer->first_error, sizeof(producer->first_error), "%s",
                 rd_kafka_err2str(message->err));
    }
}

/* Hands one line to the client, waiting while its queue is full. ret: exit code. */
static int send_line(rd_kafka_t *client, rd_kafka_topic_t *topic, int32_t partition,
                     const char *delimiter, char *line, size_t size)
{
    char *value = line;
    size_t key_size = 0;
    if (delimiter) {
        char *found = memmem(line, size, delimiter, strlen(delimiter));
        key_size = found ? (size_t)(found - line) : 0;
        value = found ? found + strlen(delimiter) : line;
    }
    const char *key = value != line ? line : NULL;
    size_t value_size = size - (size_t)(value - line);
    while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, value, value_size, key, key_size,
                            NULL) != 0) {
        rd_kafka_resp_err_t error = rd_kafka_last_error();
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            return cli_fail(CLI_FAILED, "%s: %s", rd_kafka_topic_name(topic),
                            rd_kafka_err2str(error));
        }
        rd_kafka_poll(client, 100);
    }
    return CLI_OK;
}

static int send_all(rd_kafka_t *client, rd_kafka_topic_t *topic, int32_t partition,
                    const char *delimiter, struct producer *producer)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    int code = CLI_OK;
    for (uint64_t count = 0; code == CLI_OK && (size = getline(&line, &room, stdin)) >= 0;
         count++) {
        size -= size > 0 && line[size - 1] == '\n';
        code = send_line(client, topic, partition, delimiter, line, (size_t)size);
        if (count % POLL_EVERY == 0) {
            rd_kafka_poll(client, 0);
            progress_look(&producer->progress);
        }
    }
    free(line);
    while (rd_kafka_outq_len(client) > 0) {
        rd_kafka_flush(client, FLUSH_STEP_MS); /* ends: message.timeout.ms bounds every record */
        progress_look(&producer->progress);
    }
    return code;
}

static int produce(const struct cli_call *call, rd_kafka_t *client, const char *name,
                   struct producer *producer, int32_t partition)
{
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    if (!topic) {
        return cli_fail(CLI_FAILED, "%s: %s", name, rd_kafka_err2str(rd_kafka_last_error()));
    }
    progress_start(&producer->progress);
    int code = send_all(client, topic, partition, cli_value(call, "-K", NULL), producer);
    rd_kafka_topic_destroy(topic);
    progress_end(&producer->progress, "produced");
    if (producer->failed > 0) {
        code = cli_fail(CLI_FAILED, "%llu records were not accepted; the first because: %s",
                        (unsigned long long)producer->failed, producer->first_error);
    }
    return code;
}

/* ret: true after the reason was printed. */
static bool is_wrong_use(const struct cli_call *call)
{
    const char *delimiter = cli_value(call, "-K", NULL);
    const char *acks = cli_value(call, "--acks", "all");
    if (!cli_value(call, "-t", NULL)) {
        cli_fail(CLI_USAGE, "produce: which topic? give -t TOPIC");
        return true;
    }
    if (delimiter && !delimiter[0]) {
        cli_fail(CLI_USAGE, "produce: option -K needs a delimiter, not an empty text");
        return true;
    }
    if (strcmp(acks, "0") != 0 && strcmp(acks, "1") != 0 && strcmp(acks, "all") != 0) {
        cli_fail(CLI_USAGE, "produce: option --acks needs 0, 1 or all, not \"%s\"", acks);
        return true;
    }
    return false;
}

int cli_produce(const struct cli_call *call)
{
    struct producer *producer = calloc(1, sizeof(*producer));
    const char *name = cli_value(call, "-t", NULL);
    char timeout_ms[24];
    int64_t partition;
    int64_t timeout_s;
    bool json;
    int code;
    const struct client_setting settings[] = {
        {"compression.codec", cli_value(call, "-z", "none")},
        {"acks", cli_value(call, "--acks", "all")},
        {"linger.ms", "5"},
        {"message.timeout.ms", timeout_ms},
        {NULL, NULL},
    };
    if (!producer) {
        return cli_fail(CLI_FAILED, "no memory");
    }
    if (is_wrong_use(call) || cli_wants_json(call, &json) < 0 ||
        cli_number(call, "-p", RD_KAFKA_PARTITION_UA, 0, INT32_MAX, &partition) < 0 ||
        cli_number(call, "--timeout", TIMEOUT_S, 1, TIMEOUT_S_MAX, &timeout_s) < 0) {
        free(producer);
        return CLI_USAGE;
    }
    snprintf(timeout_ms, sizeof(timeout_ms), "%lld", (long long)timeout_s * 1000);
    rd_kafka_t *client =
        client_open_with(call, RD_KAFKA_PRODUCER, settings, on_delivery, producer, &code);
    if (client) {
        code = client_reach(client, call, timeout_s * 1000);
    }
    if (client && code == CLI_OK) {
        code = produce(call, client, name, producer, (int32_t)partition);
    }
    if (client) {
        rd_kafka_destroy(client);
    }
    if (client && json) {
        json_t *result =
            json_pack("{s:I, s:I, s:I}", "records", (json_int_t)producer->progress.records, "bytes",
                      (json_int_t)producer->progress.bytes, "failed", (json_int_t)producer->failed);
        table_json(result);
        json_decref(result);
    }
    free(producer);
    return code;
}
