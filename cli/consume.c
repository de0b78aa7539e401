/* SPDX-License-Identifier: Apache-2.0 */
/* millrace consume: reads partitions that it names itself, without a group and without commits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client.h"
#include "cli/table.h"

enum {
    BATCH_LENGTH = 256,
    WAIT_MS = 100,
};

struct consumer {
    const struct cli_call *call;
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    rd_kafka_queue_t *queue;
    const char *format;
    bool json;
    bool end_at_eof;
    int64_t count_max; /* -1: none */
    int64_t count;
    int32_t open_partitions; /* not yet at their end */
    struct progress progress;
};

/* --- output --------------------------------------------------------------------------------------
 */

static void put_bytes(const void *bytes, size_t size)
{
    if (size > 0) {
        fwrite(bytes, 1, size, stdout);
    }
}

/* Sizes of what is not there are -1, as kcat prints them. */
static void put_field(const rd_kafka_message_t *message, char field)
{
    switch (field) {
    case 's':
        put_bytes(message->payload, message->len);
        break;
    case 'k':
        put_bytes(message->key, message->key_len);
        break;
    case 'S':
        printf("%lld", message->payload ? (long long)message->len : -1ll);
        break;
    case 'K':
        printf("%lld", message->key ? (long long)message->key_len : -1ll);
        break;
    case 't':
        printf("%s", rd_kafka_topic_name(message->rkt));
        break;
    case 'p':
        printf("%d", message->partition);
        break;
    case 'o':
        printf("%lld", (long long)message->offset);
        break;
    case 'T':
        printf("%lld", (long long)rd_kafka_message_timestamp(message, NULL));
        break;
    default: /* '%': the format was checked */
        putchar(field);
        break;
    }
}

static void put_format(const rd_kafka_message_t *message, const char *format)
{
    for (const char *at = format; *at; at++) {
        if (*at == '%') {
            put_field(message, *++at);
        } else if (*at == '\\' && at[1] == 'n') {
            putchar('\n');
            at++;
        } else if (*at == '\\' && at[1] == 't') {
            putchar('\t');
            at++;
        } else {
            putchar(*at);
        }
    }
}

static bool format_fits(const char *format)
{
    for (const char *at = format; *at; at++) {
        if (*at == '%' && (at[1] == '\0' || !strchr("sSkKtpoT%", *++at))) {
            return false;
        }
    }
    return true;
}

/* Bytes that are not UTF-8 cannot stand in JSON: then null, and the size tells. */
static json_t *bytes_json(const void *bytes, size_t size)
{
    json_t *value = bytes ? json_stringn(bytes, size) : NULL;
    return value ? value : json_null();
}

static void put_json(const rd_kafka_message_t *message)
{
    json_t *object = json_pack(
        "{s:s, s:i, s:I, s:I, s:o, s:o, s:I}", "topic", rd_kafka_topic_name(message->rkt),
        "partition", message->partition, "offset", (json_int_t)message->offset, "timestamp",
        (json_int_t)rd_kafka_message_timestamp(message, NULL), "key",
        bytes_json(message->key, message->key_len), "value",
        bytes_json(message->payload, message->len), "value_size", (json_int_t)message->len);
    json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(object);
}

/* --- start ---------------------------------------------------------------------------------------
 */

/* Offset at which a partition starts. ret: 0, or an exit code after cli_fail. */
static int start_offset(const struct consumer *consumer, int32_t partition, int64_t *ret_offset)
{
    const char *text = cli_value(consumer->call, "-o", "beginning");
    char *end = NULL;
    if (strcmp(text, "beginning") == 0 || strcmp(text, "end") == 0) {
        *ret_offset = text[0] == 'b' ? RD_KAFKA_OFFSET_BEGINNING : RD_KAFKA_OFFSET_END;
        return 0;
    }
    errno = 0;
    long long number = strtoll(text + (text[0] == '@'), &end, 10);
    if (end == text + (text[0] == '@') || *end || errno) {
        return cli_fail(CLI_USAGE, "option -o needs beginning, end, a number or @MS, not \"%s\"",
                        text);
    }
    if (text[0] != '@') {
        *ret_offset = number >= 0 ? number : RD_KAFKA_OFFSET_TAIL(-number);
        return 0;
    }
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    const char *topic = rd_kafka_topic_name(consumer->topic);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = number;
    rd_kafka_resp_err_t error =
        rd_kafka_offsets_for_times(consumer->client, list, CLIENT_TIMEOUT_MS);
    error = error ? error : list->elems[0].err;
    *ret_offset = list->elems[0].offset >= 0 ? list->elems[0].offset : RD_KAFKA_OFFSET_END;
    rd_kafka_topic_partition_list_destroy(list);
    return error ? cli_fail(CLI_FAILED, "cannot find the offset of time %lld: %s", number,
                            rd_kafka_err2str(error))
                 : 0;
}

static int start_partition(struct consumer *consumer, int32_t partition)
{
    int64_t offset = 0;
    int code = start_offset(consumer, partition, &offset);
    if (code != 0) {
        return code;
    }
    if (rd_kafka_consume_start_queue(consumer->topic, partition, offset, consumer->queue) != 0) {
        return cli_fail(CLI_FAILED, "partition %d: %s", partition,
                        rd_kafka_err2str(rd_kafka_last_error()));
    }
    consumer->open_partitions++;
    return 0;
}

/* Starts -p, or every partition there is. */
static int start_all(struct consumer *consumer)
{
    int64_t wanted;
    const char *name = rd_kafka_topic_name(consumer->topic);
    if (cli_number(consumer->call, "-p", -1, 0, INT32_MAX, &wanted) < 0) {
        return CLI_USAGE;
    }
    const struct rd_kafka_metadata *metadata = client_metadata(consumer->client, name);
    if (!metadata) {
        return CLI_FAILED;
    }
    const struct rd_kafka_metadata_topic *topic = &metadata->topics[0];
    int code = CLI_OK;
    if (metadata->topic_cnt != 1 || topic->err) {
        code =
            cli_fail(CLI_FAILED, "%s: %s", name,
                     rd_kafka_err2str(metadata->topic_cnt == 1 ? topic->err
                                                               : RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC));
    } else if (wanted >= topic->partition_cnt) {
        code = cli_fail(CLI_FAILED, "%s has partitions 0 to %d, not %lld", name,
                        topic->partition_cnt - 1, (long long)wanted);
    }
    for (int i = 0; i < topic->partition_cnt && code == CLI_OK; i++) {
        if (wanted < 0 || topic->partitions[i].id == wanted) {
            code = start_partition(consumer, topic->partitions[i].id);
        }
    }
    rd_kafka_metadata_destroy(metadata);
    return code;
}

/* --- read ----------------------------------------------------------------------------------------
 */

/* ret: exit code of an error that ends the reading, 0: go on. */
static int take(struct consumer *consumer, const rd_kafka_message_t *message)
{
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        consumer->open_partitions -= consumer->end_at_eof;
        return 0;
    }
    if (message->err) {
        return cli_fail(CLI_FAILED, "partition %d: %s", message->partition,
                        rd_kafka_message_errstr(message));
    }
    if (consumer->json) {
        put_json(message);
    } else {
        put_format(message, consumer->format);
    }
    consumer->count++;
    progress_add(&consumer->progress, message->len + message->key_len);
    return 0;
}

static bool is_done(const struct consumer *consumer)
{
    return consumer->open_partitions == 0 ||
           (consumer->count_max >= 0 && consumer->count >= consumer->count_max);
}

static int read_all(struct consumer *consumer)
{
    rd_kafka_message_t *messages[BATCH_LENGTH];
    int code = CLI_OK;
    progress_start(&consumer->progress);
    while (code == CLI_OK && !is_done(consumer) && !signal_taken()) {
        ssize_t count =
            rd_kafka_consume_batch_queue(consumer->queue, WAIT_MS, messages, BATCH_LENGTH);
        for (ssize_t i = 0; i < count; i++) {
            bool more = code == CLI_OK && !is_done(consumer);
            code = more ? take(consumer, messages[i]) : code;
            rd_kafka_message_destroy(messages[i]);
        }
        rd_kafka_poll(consumer->client, 0);
        if (count <= 0 && fflush(stdout) != 0) {
            code = cli_fail(CLI_FAILED, "cannot write to standard output: %s", strerror(errno));
        }
        progress_look(&consumer->progress);
    }
    progress_end(&consumer->progress, "consumed");
    return code;
}

static int consume(struct consumer *consumer, const char *name)
{
    int code;
    const struct client_setting settings[] = {
        {"enable.partition.eof", "true"},
        {"allow.auto.create.topics", "false"},
        {NULL, NULL},
    };
    signals_hold();
    consumer->client = client_open(consumer->call, RD_KAFKA_CONSUMER, settings, &code);
    if (!consumer->client) {
        return code;
    }
    consumer->topic = rd_kafka_topic_new(consumer->client, name, NULL);
    consumer->queue = rd_kafka_queue_new(consumer->client);
    if (!consumer->topic) {
        code = cli_fail(CLI_FAILED, "%s: %s", name, rd_kafka_err2str(rd_kafka_last_error()));
    } else {
        code = start_all(consumer);
        code = code == CLI_OK ? read_all(consumer) : code;
        rd_kafka_topic_destroy(consumer->topic);
    }
    rd_kafka_queue_destroy(consumer->queue);
    /* Partitions end with the client; nothing is committed. */
    rd_kafka_destroy(consumer->client);
    return code;
}

int cli_consume(const struct cli_call *call)
{
    const char *name = cli_value(call, "-t", NULL);
    struct consumer consumer = {
        .call = call,
        .format = cli_value(call, "-f", "%s\\n"),
        .json = cli_value(call, "-J", NULL) != NULL,
        .end_at_eof = cli_value(call, "-e", NULL) != NULL,
    };
    if (!name) {
        return cli_fail(CLI_USAGE, "consume: which topic? give -t TOPIC");
    }
    if (!format_fits(consumer.format)) {
        return cli_fail(CLI_USAGE, "option -f: unknown field in \"%s\"; see: millrace help consume",
                        consumer.format);
    }
    if (cli_number(call, "-c", -1, 0, INT64_MAX, &consumer.count_max) < 0) {
        return CLI_USAGE;
    }
    return consume(&consumer, name);
}
