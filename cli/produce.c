/* SPDX-License-Identifier: Apache-2.0 */
/* millrace produce: records from standard input, a line each or as a format says. Counts what the
 * broker acknowledged, not what was handed to the client. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client.h"
#include "cli/format.h"
#include "cli/table.h"

enum {
    POLL_EVERY = 256, /* records between two looks at acknowledgements */
    FLUSH_STEP_MS = 200,
    TIMEOUT_S = 30,
    TIMEOUT_S_MAX = 86400,
};

struct producer {
    struct format format;
    struct format_record record;
    rd_kafka_headers_t *headers; /* of every record; NULL none */
    const char *key;             /* of every record that has none; NULL none */
    const char *delimiter;       /* -K */
    int32_t partition;           /* of every record without one */
    bool empty_is_null;
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

/* -f, or a line. ret: 0, -EINVAL after cli_fail. */
static int take_format(const struct cli_call *call, struct format *ret_format)
{
    char reason[CLIENT_TEXT_BYTES];
    int r = format_parse(cli_value(call, "-f", "%s\\n"), ret_format, reason, sizeof(reason));
    r = r < 0 ? r : format_check_reading(ret_format, reason, sizeof(reason));
    if (r < 0) {
        cli_fail(CLI_USAGE, "produce: option -f: %s; see: millrace help produce", reason);
    }
    return r;
}

/* -H NAME=VALUE. ret: 0, -EINVAL after cli_fail. */
static int take_headers(const struct cli_call *call, struct producer *producer)
{
    const char *pair;
    for (uint32_t i = 0; (pair = cli_value_at(call, "-H", i)); i++) {
        const char *equals = strchr(pair, '=');
        if (!equals || equals == pair) {
            cli_fail(CLI_USAGE, "produce: option -H needs NAME=VALUE, not \"%s\"", pair);
            return -EINVAL;
        }
        producer->headers = producer->headers ? producer->headers : rd_kafka_headers_new(4);
        rd_kafka_header_add(producer->headers, pair, equals - pair, equals + 1, -1);
    }
    return 0;
}

/* The headers of one record: those of every record, then its own. NULL none. */
static rd_kafka_headers_t *headers_of(const struct producer *producer)
{
    const struct format_record *record = &producer->record;
    if (!producer->headers && record->headers_count == 0) {
        return NULL;
    }
    rd_kafka_headers_t *headers = producer->headers ? rd_kafka_headers_copy(producer->headers)
                                                    : rd_kafka_headers_new(record->headers_count);
    for (uint32_t i = 0; i < record->headers_count; i++) {
        rd_kafka_header_add(headers, record->headers[i].name, -1, record->headers[i].value,
                            (ssize_t)record->headers[i].value_bytes);
    }
    return headers;
}

struct piece {
    const char *bytes; /* NULL: null */
    size_t size_bytes;
};

static struct piece piece_of(const struct producer *producer, const struct format_field *field)
{
    bool is_null = field->is_null || (producer->empty_is_null && field->size_bytes == 0);
    return is_null ? (struct piece){0}
                   : (struct piece){.bytes = field->bytes, .size_bytes = field->size_bytes};
}

/* -K: what stands before the delimiter is the key; a line without one is a value. */
static void split(const struct producer *producer, struct piece *key, struct piece *value)
{
    size_t size = producer->delimiter ? strlen(producer->delimiter) : 0;
    const char *found = size > 0 && value->size_bytes > 0
                            ? memmem(value->bytes, value->size_bytes, producer->delimiter, size)
                            : NULL;
    if (found) {
        *key = (struct piece){.bytes = value->bytes, .size_bytes = (size_t)(found - value->bytes)};
        value->bytes = found + size;
        value->size_bytes -= key->size_bytes + size;
        if (producer->empty_is_null && value->size_bytes == 0) {
            *value = (struct piece){0};
        }
    }
}

/* Hands the record to the client, waiting while its queue is full. ret: exit code. */
static int send_record(rd_kafka_t *client, rd_kafka_topic_t *topic, struct producer *producer)
{
    const struct format_record *record = &producer->record;
    struct piece key = piece_of(producer, &record->key);
    struct piece value = piece_of(producer, &record->value);
    split(producer, &key, &value);
    if (!key.bytes && producer->key) {
        key = (struct piece){.bytes = producer->key, .size_bytes = strlen(producer->key)};
    }
    for (;;) {
        rd_kafka_headers_t *headers = headers_of(producer);
        /* Headers are the client's when it takes the record. */
        rd_kafka_resp_err_t error = rd_kafka_producev(
            client, RD_KAFKA_V_RKT(topic), RD_KAFKA_V_PARTITION(record->partition),
            RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
            RD_KAFKA_V_VALUE((void *)(uintptr_t)value.bytes, value.size_bytes),
            RD_KAFKA_V_KEY(key.bytes, key.size_bytes), RD_KAFKA_V_TIMESTAMP(record->time_ms),
            RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
        if (error && headers) {
            rd_kafka_headers_destroy(headers);
        }
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            return error ? cli_fail(CLI_FAILED, "%s: %s", rd_kafka_topic_name(topic),
                                    rd_kafka_err2str(error))
                         : CLI_OK;
        }
        rd_kafka_poll(client, 100);
    }
}

static int send_all(rd_kafka_t *client, rd_kafka_topic_t *topic, struct producer *producer)
{
    char reason[CLIENT_TEXT_BYTES];
    int code = CLI_OK;
    int more = 1;
    uint64_t count = 0;
    while (code == CLI_OK && more > 0) {
        producer->record.partition = producer->partition;
        producer->record.time_ms = 0;
        more = format_read(&producer->format, stdin, &producer->record, reason, sizeof(reason));
        if (more > 0) {
            code = send_record(client, topic, producer);
        }
        if (++count % POLL_EVERY == 0) {
            rd_kafka_poll(client, 0);
            progress_look(&producer->progress);
        }
    }
    if (more == -EBADMSG) {
        code = cli_fail(CLI_FAILED, "record %llu does not fit the format: %s",
                        (unsigned long long)count, reason);
    } else if (more < 0) {
        code = cli_fail(CLI_FAILED, "cannot read standard input");
    }
    while (rd_kafka_outq_len(client) > 0) {
        rd_kafka_flush(client, FLUSH_STEP_MS); /* ends: message.timeout.ms bounds every record */
        progress_look(&producer->progress);
    }
    return code;
}

static int produce(rd_kafka_t *client, const char *name, struct producer *producer)
{
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    if (!topic) {
        return cli_fail(CLI_FAILED, "%s: %s", name, rd_kafka_err2str(rd_kafka_last_error()));
    }
    progress_start(&producer->progress);
    int code = send_all(client, topic, producer);
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
    if (delimiter && cli_value(call, "-f", NULL)) {
        cli_fail(CLI_USAGE, "produce: give -K or -f, not both; -f names the key as %%k");
        return true;
    }
    if (strcmp(acks, "0") != 0 && strcmp(acks, "1") != 0 && strcmp(acks, "all") != 0) {
        cli_fail(CLI_USAGE, "produce: option --acks needs 0, 1 or all, not \"%s\"", acks);
        return true;
    }
    return false;
}

static void free_producer(struct producer *producer)
{
    format_record_clear(&producer->record);
    if (producer->headers) {
        rd_kafka_headers_destroy(producer->headers);
    }
    free(producer);
}

static int run(const struct cli_call *call, struct producer *producer, int64_t timeout_s, bool json)
{
    char timeout_ms[24];
    int code;
    const struct client_setting settings[] = {
        {"compression.codec", cli_value(call, "-z", "none")},
        {"acks", cli_value(call, "--acks", "all")},
        {"linger.ms", "5"},
        {"message.timeout.ms", timeout_ms},
        {NULL, NULL},
    };
    snprintf(timeout_ms, sizeof(timeout_ms), "%lld", (long long)timeout_s * 1000);
    rd_kafka_t *client =
        client_open_with(call, RD_KAFKA_PRODUCER, settings, on_delivery, producer, &code);
    if (!client) {
        return code;
    }
    code = client_reach(client, timeout_s * 1000);
    if (code == CLI_OK) {
        code = produce(client, cli_value(call, "-t", NULL), producer);
    }
    rd_kafka_destroy(client);
    if (json) {
        json_t *result =
            json_pack("{s:I, s:I, s:I}", "records", (json_int_t)producer->progress.records, "bytes",
                      (json_int_t)producer->progress.bytes, "failed", (json_int_t)producer->failed);
        table_json(result);
        json_decref(result);
    }
    return code;
}

int cli_produce(const struct cli_call *call)
{
    struct producer *producer = calloc(1, sizeof(*producer));
    int64_t partition;
    int64_t timeout_s;
    bool json;
    if (!producer) {
        return cli_fail(CLI_FAILED, "no memory");
    }
    producer->key = cli_value(call, "-k", NULL);
    producer->delimiter = cli_value(call, "-K", NULL);
    producer->empty_is_null = cli_value(call, "-Z", NULL) != NULL;
    int code = CLI_USAGE;
    if (!is_wrong_use(call) && cli_wants_json(call, &json) == 0 &&
        cli_number(call, "-p", RD_KAFKA_PARTITION_UA, 0, INT32_MAX, &partition) == 0 &&
        cli_number(call, "--timeout", TIMEOUT_S, 1, TIMEOUT_S_MAX, &timeout_s) == 0 &&
        take_format(call, &producer->format) == 0 && take_headers(call, producer) == 0) {
        producer->partition = (int32_t)partition;
        code = run(call, producer, timeout_s, json);
    }
    free_producer(producer);
    return code;
}
