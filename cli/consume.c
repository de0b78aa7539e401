/* SPDX-License-Identifier: Apache-2.0 */
/* millrace consume: reads partitions that it names itself, without a group and without commits; or,
 * with --group, those that the group gives it, and commits what it has written out. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client.h"
#include "cli/format.h"
#include "cli/table.h"

enum {
    BATCH_LENGTH = 256,
    WAIT_MS = 100,
    COMMIT_RECORDS = 1000, /* of a group: a commit after so many, and when none is left */
};

enum start_at {
    START_BEGINNING,
    START_END,
    START_OFFSET,
    START_TAIL,
    START_TIME,
};

/* -o of a reader without a group. */
struct start {
    enum start_at at;
    int64_t number; /* offset, records before the end, or milliseconds since 1970 */
};

struct consumer {
    const struct cli_call *call;
    struct start start;
    int64_t only; /* -p; -1: all partitions */
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    rd_kafka_queue_t *queue;
    struct format format;
    bool json;
    bool end_at_eof;
    bool commits;      /* of a group */
    int64_t count_max; /* -1: none */
    int64_t count;
    int32_t open_partitions; /* not yet at their end; without a group */
    bool assigned;           /* a group gave partitions, or that there is none for us */
    rd_kafka_topic_partition_list_t *at_end; /* of those it gave */
    struct progress progress;
};

/* --- output --------------------------------------------------------------------------------------
 */

/* Bytes that are not UTF-8 cannot stand in JSON: then null, and the size tells. */
static json_t *bytes_json(const void *bytes, size_t size)
{
    json_t *value = bytes ? json_stringn(bytes, size) : NULL;
    return value ? value : json_null();
}

/* In their order: a name may come twice. */
static json_t *headers_json(const rd_kafka_message_t *message)
{
    json_t *list = json_array();
    rd_kafka_headers_t *headers = NULL;
    const char *name;
    const void *value;
    size_t size;
    if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return list;
    }
    for (size_t i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &size); i++) {
        json_array_append_new(
            list, json_pack("{s:s, s:o}", "name", name, "value", bytes_json(value, size)));
    }
    return list;
}

static void put_json(const rd_kafka_message_t *message)
{
    json_t *object = json_pack("{s:s, s:i, s:I, s:I, s:o, s:o, s:I, s:o}", "topic",
                               rd_kafka_topic_name(message->rkt), "partition", message->partition,
                               "offset", (json_int_t)message->offset, "timestamp",
                               (json_int_t)rd_kafka_message_timestamp(message, NULL), "key",
                               bytes_json(message->key, message->key_len), "value",
                               bytes_json(message->payload, message->len), "value_size",
                               (json_int_t)message->len, "headers", headers_json(message));
    json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(object);
}

/* --- start ---------------------------------------------------------------------------------------
 */

/* Reads -o. ret: exit code. */
static int start_parse(const struct cli_call *call, struct start *ret)
{
    const char *text = cli_value(call, "-o", "beginning");
    char *end = NULL;
    if (strcmp(text, "beginning") == 0 || strcmp(text, "end") == 0) {
        ret->at = text[0] == 'b' ? START_BEGINNING : START_END;
        return CLI_OK;
    }
    ret->at = text[0] == '@' ? START_TIME : text[0] == '-' ? START_TAIL : START_OFFSET;
    const char *digits = ret->at == START_OFFSET ? text : text + 1;
    errno = 0;
    ret->number = strtoll(digits, &end, 10);
    if (!isdigit((unsigned char)digits[0]) || *end || errno) {
        return cli_fail(CLI_USAGE,
                        "consume: option -o needs beginning, end, an offset, -N or @MS, not \"%s\"",
                        text);
    }
    return CLI_OK;
}

/* The offset of a time, the end when no record is as young. ret: exit code. */
static int offset_at(const struct consumer *consumer, int32_t partition, int64_t *ret_offset)
{
    long long time_ms = consumer->start.number;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    const char *topic = rd_kafka_topic_name(consumer->topic);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = time_ms;
    rd_kafka_resp_err_t error =
        rd_kafka_offsets_for_times(consumer->client, list, CLIENT_TIMEOUT_MS);
    error = error ? error : list->elems[0].err;
    *ret_offset = list->elems[0].offset >= 0 ? list->elems[0].offset : RD_KAFKA_OFFSET_END;
    rd_kafka_topic_partition_list_destroy(list);
    return error ? cli_fail(CLI_FAILED, "cannot find the offset of time %lld: %s", time_ms,
                            rd_kafka_err2str(error))
                 : CLI_OK;
}

/* The offset kept inside of the log: the client would go on at the end from one that is no longer
 * there, past all that is. ret: exit code. */
static int offset_inside(const struct consumer *consumer, int32_t partition, int64_t *ret_offset)
{
    int64_t low = 0;
    int64_t high = 0;
    const char *topic = rd_kafka_topic_name(consumer->topic);
    rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(consumer->client, topic, partition,
                                                                 &low, &high, CLIENT_TIMEOUT_MS);
    if (error) {
        return cli_fail(CLI_FAILED, "partition %d: %s", partition, rd_kafka_err2str(error));
    }
    int64_t number = consumer->start.number;
    int64_t wanted = consumer->start.at == START_OFFSET ? number : high - MILL_MIN(number, high);
    *ret_offset = MILL_MIN(MILL_MAX(wanted, low), high);
    if (consumer->start.at == START_OFFSET && *ret_offset != wanted) {
        fprintf(stderr, "millrace: partition %d has offsets %lld to %lld, not %lld: from %lld\n",
                partition, (long long)low, (long long)high, (long long)wanted,
                (long long)*ret_offset);
    }
    return CLI_OK;
}

/* Offset at which a partition starts. ret: exit code. */
static int start_offset(const struct consumer *consumer, int32_t partition, int64_t *ret_offset)
{
    switch (consumer->start.at) {
    case START_TIME:
        return offset_at(consumer, partition, ret_offset);
    case START_OFFSET:
    case START_TAIL:
        return offset_inside(consumer, partition, ret_offset);
    case START_BEGINNING:
    case START_END:
        break;
    }
    *ret_offset =
        consumer->start.at == START_BEGINNING ? RD_KAFKA_OFFSET_BEGINNING : RD_KAFKA_OFFSET_END;
    return CLI_OK;
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
    int64_t wanted = consumer->only;
    const char *name = rd_kafka_topic_name(consumer->topic);
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
        format_print(&consumer->format, message, stdout);
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

/* --- in a group ----------------------------------------------------------------------------------
 */

/* Commits what was written to standard output. ret: exit code. */
static int commit(struct consumer *consumer)
{
    if (fflush(stdout) != 0) {
        return cli_fail(CLI_FAILED, "cannot write to standard output: %s", strerror(errno));
    }
    rd_kafka_resp_err_t error = consumer->commits ? rd_kafka_commit(consumer->client, NULL, 0)
                                                  : RD_KAFKA_RESP_ERR__NO_OFFSET;
    /* Nothing new, or others have the partitions now and read what was not committed again. */
    bool fine = !error || error == RD_KAFKA_RESP_ERR__NO_OFFSET ||
                error == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION ||
                error == RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID ||
                error == RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    return fine ? CLI_OK
                : cli_fail(CLI_FAILED, "commit of group %s: %s",
                           cli_value(consumer->call, "--group", ""), rd_kafka_err2str(error));
}

/* What was written is committed before partitions go to other members. */
static void on_rebalance(rd_kafka_t *client, rd_kafka_resp_err_t event,
                         rd_kafka_topic_partition_list_t *partitions, void *opaque)
{
    struct consumer *consumer = opaque;
    consumer->at_end->cnt = 0;
    consumer->assigned = event == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    if (consumer->assigned) {
        rd_kafka_assign(client, partitions);
        return;
    }
    if (!rd_kafka_assignment_lost(client)) {
        int code = commit(consumer);
        MILL_UNUSED(code); /* told; the next owner reads them again */
    }
    rd_kafka_assign(client, NULL);
}

static bool group_is_done(struct consumer *consumer)
{
    if (consumer->count_max >= 0 && consumer->count >= consumer->count_max) {
        return true;
    }
    rd_kafka_topic_partition_list_t *ours = NULL;
    if (!consumer->end_at_eof || !consumer->assigned ||
        rd_kafka_assignment(consumer->client, &ours) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return false;
    }
    int count = ours->cnt;
    rd_kafka_topic_partition_list_destroy(ours);
    return consumer->at_end->cnt >= count;
}

/* ret: exit code of an error that ends the reading, 0: go on. */
static int group_take(struct consumer *consumer, const rd_kafka_message_t *message)
{
    const char *topic = message->rkt ? rd_kafka_topic_name(message->rkt) : "";
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        if (!rd_kafka_topic_partition_list_find(consumer->at_end, topic, message->partition)) {
            rd_kafka_topic_partition_list_add(consumer->at_end, topic, message->partition);
        }
        return 0;
    }
    /* The client tries again by itself, but for these. */
    if (message->err == RD_KAFKA_RESP_ERR__TRANSPORT ||
        message->err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ||
        message->err == RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED) {
        return 0;
    }
    int code = message->err ? cli_fail(CLI_FAILED, "%s", rd_kafka_message_errstr(message))
                            : take(consumer, message);
    if (code == 0) {
        rd_kafka_topic_partition_list_del(consumer->at_end, topic, message->partition);
        rd_kafka_offset_store(message->rkt, message->partition, message->offset);
    }
    return code;
}

static int group_read(struct consumer *consumer)
{
    int code = CLI_OK;
    int64_t committed = 0;
    progress_start(&consumer->progress);
    while (code == CLI_OK && !group_is_done(consumer) && !signal_taken()) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer->client, WAIT_MS);
        if (message) {
            code = group_take(consumer, message);
            rd_kafka_message_destroy(message);
        }
        bool idle = !message && committed < consumer->count;
        if (code == CLI_OK && (idle || consumer->count - committed >= COMMIT_RECORDS)) {
            code = commit(consumer);
            committed = consumer->count;
        }
        progress_look(&consumer->progress);
    }
    int last = commit(consumer);
    progress_end(&consumer->progress, consumer->commits ? "consumed and committed" : "consumed");
    return code == CLI_OK ? last : code;
}

static int consume_in_group(struct consumer *consumer, const char *name)
{
    int code;
    const char *from = cli_value(consumer->call, "-o", "beginning");
    const struct client_setting settings[] = {
        {"group.id", cli_value(consumer->call, "--group", NULL)},
        {"auto.offset.reset", strcmp(from, "end") == 0 ? "latest" : "earliest"},
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
        {"enable.partition.eof", "true"},
        {"allow.auto.create.topics", "false"},
        {NULL, NULL},
    };
    signals_hold();
    consumer->client = client_open_group(consumer->call, settings, on_rebalance, consumer, &code);
    if (!consumer->client) {
        return code;
    }
    rd_kafka_poll_set_consumer(consumer->client);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, name, RD_KAFKA_PARTITION_UA);
    consumer->at_end = rd_kafka_topic_partition_list_new(1);
    rd_kafka_resp_err_t error = rd_kafka_subscribe(consumer->client, topics);
    code = error ? cli_fail(CLI_FAILED, "%s: %s", name, rd_kafka_err2str(error))
                 : group_read(consumer);
    rd_kafka_topic_partition_list_destroy(topics);
    rd_kafka_consumer_close(consumer->client);
    rd_kafka_topic_partition_list_destroy(consumer->at_end);
    rd_kafka_destroy(consumer->client);
    return code;
}

/* ret: true after the reason was printed. */
static bool is_wrong_use(const struct cli_call *call)
{
    const char *group = cli_value(call, "--group", NULL);
    const char *from = cli_value(call, "-o", "beginning");
    if (!cli_value(call, "-t", NULL)) {
        cli_fail(CLI_USAGE, "consume: which topic? give -t TOPIC");
        return true;
    }
    if (!group && cli_value(call, "--no-commit", NULL)) {
        cli_fail(CLI_USAGE, "consume: --no-commit is for --group: nothing else commits");
        return true;
    }
    if (group && cli_value(call, "-p", NULL)) {
        cli_fail(CLI_USAGE, "consume: the group gives the partitions; leave out -p or --group");
        return true;
    }
    if (cli_value(call, "-J", NULL) && cli_value(call, "-f", NULL)) {
        cli_fail(CLI_USAGE, "consume: give -J or -f, not both");
        return true;
    }
    if (group && strcmp(from, "beginning") != 0 && strcmp(from, "end") != 0) {
        cli_fail(CLI_USAGE,
                 "consume: a group begins where it committed; move it with millrace group reset "
                 "--to, or give -o beginning or end for what it did not commit");
        return true;
    }
    return false;
}

int cli_consume(const struct cli_call *call)
{
    char reason[CLIENT_TEXT_BYTES];
    const char *name = cli_value(call, "-t", NULL);
    if (is_wrong_use(call)) {
        return CLI_USAGE;
    }
    struct consumer *consumer = calloc(1, sizeof(*consumer));
    if (!consumer) {
        return cli_fail(CLI_FAILED, "no memory");
    }
    consumer->call = call;
    consumer->json = cli_value(call, "-J", NULL) != NULL;
    consumer->end_at_eof = cli_value(call, "-e", NULL) != NULL;
    consumer->commits = cli_value(call, "--no-commit", NULL) == NULL;
    int code = CLI_USAGE;
    if (format_parse(cli_value(call, "-f", "%s\\n"), &consumer->format, reason, sizeof(reason)) <
        0) {
        cli_fail(CLI_USAGE, "consume: option -f: %s; see: millrace help consume", reason);
    } else if (cli_number(call, "-c", -1, 0, INT64_MAX, &consumer->count_max) == 0 &&
               cli_number(call, "-p", -1, 0, INT32_MAX, &consumer->only) == 0 &&
               start_parse(call, &consumer->start) == CLI_OK) {
        code = cli_value(call, "--group", NULL) ? consume_in_group(consumer, name)
                                                : consume(consumer, name);
    }
    free(consumer);
    return code;
}
