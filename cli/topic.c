/* SPDX-License-Identifier: Apache-2.0 */
/* millrace topic: creation, list, description, other settings, trimming and deletion through the
 * Kafka protocol. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client.h"
#include "cli/outcome.h"
#include "cli/settings.h"
#include "cli/table.h"

static void add_results(struct outcomes *outcomes, const rd_kafka_topic_result_t **results,
                        size_t count, rd_kafka_resp_err_t tolerated)
{
    for (size_t i = 0; i < count; i++) {
        outcomes_add(outcomes, rd_kafka_topic_result_name(results[i]),
                     rd_kafka_topic_result_error(results[i]), tolerated,
                     rd_kafka_topic_result_error_string(results[i]));
    }
}

/* Adds --config settings. ret: exit code. */
static int add_settings(const struct cli_call *call, rd_kafka_NewTopic_t *topic)
{
    const char *pair;
    for (uint32_t i = 0; (pair = cli_value_at(call, "--config", i)); i++) {
        const char *equals = strchr(pair, '=');
        char key[CLIENT_TEXT_BYTES];
        if (!equals || equals == pair || (size_t)(equals - pair) >= sizeof(key)) {
            return cli_fail(CLI_USAGE, "option --config needs KEY=VALUE, not \"%s\"", pair);
        }
        snprintf(key, sizeof(key), "%.*s", (int)(equals - pair), pair);
        if (rd_kafka_NewTopic_set_config(topic, key, equals + 1)) {
            return cli_fail(CLI_USAGE, "setting \"%s\" cannot be sent", pair);
        }
    }
    return CLI_OK;
}

static int create(const struct cli_call *call, rd_kafka_t *client, rd_kafka_NewTopic_t **topics,
                  uint32_t count, struct outcomes *outcomes)
{
    char reason[CLIENT_TEXT_BYTES];
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    int code = CLI_FAILED;
    if (rd_kafka_AdminOptions_set_operation_timeout(options, CLIENT_TIMEOUT_MS, reason,
                                                    sizeof(reason))) {
        cli_fail(CLI_FAILED, "%s", reason);
    } else {
        rd_kafka_CreateTopics(client, topics, count, options, queue);
        rd_kafka_event_t *event = client_await(queue);
        if (event) {
            size_t results_count;
            const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(
                rd_kafka_event_CreateTopics_result(event), &results_count);
            bool tolerant = cli_value(call, "--if-not-exists", NULL) != NULL;
            add_results(outcomes, results, results_count,
                        tolerant ? RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS : 0);
            code = CLI_OK;
            rd_kafka_event_destroy(event);
        }
    }
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(queue);
    return code;
}

int cli_topic_create(const struct cli_call *call)
{
    rd_kafka_NewTopic_t *topics[CLI_OPERANDS_MAX];
    struct outcomes outcomes;
    char reason[CLIENT_TEXT_BYTES];
    int64_t partitions;
    int64_t replicas;
    uint32_t count = 0;
    int code;
    if (cli_number(call, "-p", -1, 1, 1000000, &partitions) < 0 ||
        cli_number(call, "-r", -1, 1, INT16_MAX, &replicas) < 0 ||
        outcomes_begin(call, "created", &outcomes) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return outcomes_end(&outcomes, code);
    }
    for (uint32_t i = 0; i < call->operands_count && code == CLI_OK; i++) {
        topics[count] = rd_kafka_NewTopic_new(call->operands[i], (int)partitions, (int)replicas,
                                              reason, sizeof(reason));
        if (!topics[count]) {
            code = cli_fail(CLI_USAGE, "%s: %s", call->operands[i], reason);
        } else {
            code = add_settings(call, topics[count++]);
        }
    }
    code = code == CLI_OK ? create(call, client, topics, count, &outcomes) : code;
    rd_kafka_NewTopic_destroy_array(topics, count);
    rd_kafka_destroy(client);
    return outcomes_end(&outcomes, code);
}

int cli_topic_add_partitions(const struct cli_call *call)
{
    rd_kafka_NewPartitions_t *topics[CLI_OPERANDS_MAX];
    struct outcomes outcomes;
    char reason[CLIENT_TEXT_BYTES];
    int64_t partitions;
    uint32_t count = 0;
    int code;
    if (cli_number(call, "-p", 0, 1, 1000000, &partitions) < 0) {
        return CLI_USAGE;
    }
    if (partitions == 0) {
        return cli_fail(CLI_USAGE,
                        "option -p is missing: how many partitions there shall be in all");
    }
    if (outcomes_begin(call, "added partitions to", &outcomes) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return outcomes_end(&outcomes, code);
    }
    for (uint32_t i = 0; i < call->operands_count && code == CLI_OK; i++) {
        topics[count] = rd_kafka_NewPartitions_new(call->operands[i], (size_t)partitions, reason,
                                                   sizeof(reason));
        if (!topics[count]) {
            code = cli_fail(CLI_USAGE, "%s: %s", call->operands[i], reason);
        } else {
            count++;
        }
    }
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_event_t *event = NULL;
    if (code == CLI_OK) {
        rd_kafka_CreatePartitions(client, topics, count, NULL, queue);
        event = client_await(queue);
        code = event ? CLI_OK : CLI_FAILED;
    }
    if (event) {
        size_t results_count;
        const rd_kafka_topic_result_t **results = rd_kafka_CreatePartitions_result_topics(
            rd_kafka_event_CreatePartitions_result(event), &results_count);
        add_results(&outcomes, results, results_count, 0);
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewPartitions_destroy_array(topics, count);
    rd_kafka_destroy(client);
    return outcomes_end(&outcomes, code);
}

int cli_topic_delete(const struct cli_call *call)
{
    rd_kafka_DeleteTopic_t *topics[CLI_OPERANDS_MAX];
    struct outcomes outcomes;
    int code;
    if (outcomes_begin(call, "deleted", &outcomes) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return outcomes_end(&outcomes, code);
    }
    for (uint32_t i = 0; i < call->operands_count; i++) {
        topics[i] = rd_kafka_DeleteTopic_new(call->operands[i]);
    }
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DeleteTopics(client, topics, call->operands_count, NULL, queue);
    rd_kafka_event_t *event = client_await(queue);
    code = event ? CLI_OK : CLI_FAILED;
    if (event) {
        size_t count;
        const rd_kafka_topic_result_t **results =
            rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
        bool tolerant = cli_value(call, "--if-exists", NULL) != NULL;
        add_results(&outcomes, results, count,
                    tolerant ? RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART : 0);
        rd_kafka_event_destroy(event);
    }
    rd_kafka_DeleteTopic_destroy_array(topics, call->operands_count);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
    return outcomes_end(&outcomes, code);
}

int cli_topic_list(const struct cli_call *call)
{
    static const char *const columns[] = {"name", "partitions", NULL};
    bool json;
    int code;
    if (cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return code;
    }
    const struct rd_kafka_metadata *metadata = client_metadata(client, NULL);
    if (metadata) {
        json_t *rows = json_array();
        for (int i = 0; i < metadata->topic_cnt; i++) {
            json_array_append_new(rows, json_pack("{s:s, s:i}", "name", metadata->topics[i].topic,
                                                  "partitions", metadata->topics[i].partition_cnt));
        }
        if (json) {
            table_json(rows);
        } else {
            table_print(rows, columns);
        }
        json_decref(rows);
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_destroy(client);
    return metadata ? CLI_OK : CLI_FAILED;
}

/* --- describe -----------------------------------------------------------------------------------
 */

static json_t *ids_json(const int32_t *ids, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(list, json_integer(ids[i]));
    }
    return list;
}

static json_t *partition_json(rd_kafka_t *client, const char *topic,
                              const struct rd_kafka_metadata_partition *partition)
{
    int64_t low = 0;
    int64_t high = 0;
    rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(client, topic, partition->id, &low,
                                                                 &high, CLIENT_TIMEOUT_MS);
    return json_pack(
        "{s:i, s:i, s:o, s:o, s:o, s:o, s:s}", "partition", partition->id, "leader",
        partition->leader, "replicas", ids_json(partition->replicas, partition->replica_cnt), "isr",
        ids_json(partition->isrs, partition->isr_cnt), "start",
        error ? json_null() : json_integer(low), "end", error ? json_null() : json_integer(high),
        "state", partition->err ? rd_kafka_err2name(partition->err) : "ok");
}

/* ret: NULL after cli_fail; *ret_code is CLI_FAILED when a part is missing. */
static json_t *topic_json(const struct cli_call *call, rd_kafka_t *client, const char *name,
                          int *ret_code)
{
    const struct rd_kafka_metadata *metadata = client_metadata(client, name);
    *ret_code = CLI_FAILED;
    if (!metadata) {
        return NULL;
    }
    const struct rd_kafka_metadata_topic *topic = &metadata->topics[0];
    if (metadata->topic_cnt != 1 || topic->err) {
        cli_fail(CLI_FAILED, "%s: %s", name,
                 rd_kafka_err2str(metadata->topic_cnt == 1 ? topic->err
                                                           : RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC));
        rd_kafka_metadata_destroy(metadata);
        return NULL;
    }
    json_t *partitions = json_array();
    for (int i = 0; i < topic->partition_cnt; i++) {
        json_array_append_new(partitions, partition_json(client, name, &topic->partitions[i]));
    }
    rd_kafka_metadata_destroy(metadata);
    const struct settings_of of = {SETTINGS_TOPIC, name};
    json_t *settings = settings_describe(call, client, &of);
    *ret_code = settings ? CLI_OK : CLI_FAILED;
    return json_pack("{s:s, s:o, s:o}", "name", name, "partitions", partitions, "settings",
                     settings ? settings : json_array());
}

int cli_topic_describe(const struct cli_call *call)
{
    static const char *const partition_columns[] = {"partition", "leader", "replicas", "isr",
                                                    "start",     "end",    "state",    NULL};
    static const char *const setting_columns[] = {"name", "value", "source", NULL};
    json_t *all = json_array();
    bool json;
    int code;
    if (cli_wants_json(call, &json) < 0) {
        json_decref(all);
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_CONSUMER, client_look_only, &code);
    for (uint32_t i = 0; client && i < call->operands_count; i++) {
        int one;
        json_t *topic = topic_json(call, client, call->operands[i], &one);
        code = code == CLI_OK ? one : code;
        if (topic && !json) {
            printf("topic %s\n", call->operands[i]);
            table_print(json_object_get(topic, "partitions"), partition_columns);
            table_print(json_object_get(topic, "settings"), setting_columns);
        }
        if (topic) {
            json_array_append_new(all, topic);
        }
    }
    if (json && client) {
        table_json(all);
    }
    json_decref(all);
    if (client) {
        rd_kafka_destroy(client);
    }
    return code;
}

/* --- alter ---------------------------------------------------------------------------------------
 */

int cli_topic_alter(const struct cli_call *call)
{
    static const char *const columns[] = {"topic", "name", "value", "source", NULL};
    bool json;
    int code;
    if (settings_check_call(call) != CLI_OK || cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return code;
    }
    json_t *rows = json_array();
    for (uint32_t i = 0; i < call->operands_count; i++) {
        const struct settings_of of = {SETTINGS_TOPIC, call->operands[i]};
        int one = settings_alter(call, client, &of, "topic", rows);
        code = one == CLI_OK ? code : one;
    }
    if (json) {
        table_json(rows);
    } else if (json_array_size(rows) > 0) {
        table_print(rows, columns);
    }
    json_decref(rows);
    rd_kafka_destroy(client);
    return code;
}

/* --- trim ----------------------------------------------------------------------------------------
 */

/* Adds the partitions that are to be cut. ret: false after cli_fail. */
static bool trim_add(rd_kafka_t *client, const char *topic, int64_t only, int64_t offset,
                     rd_kafka_topic_partition_list_t *list)
{
    const struct rd_kafka_metadata *metadata = client_metadata(client, topic);
    if (!metadata) {
        return false;
    }
    const struct rd_kafka_metadata_topic *found = &metadata->topics[0];
    bool there = metadata->topic_cnt == 1 && !found->err;
    bool any = false;
    for (int i = 0; there && i < found->partition_cnt; i++) {
        int32_t id = found->partitions[i].id;
        if (only < 0 || id == only) {
            rd_kafka_topic_partition_list_add(list, topic, id)->offset = offset;
            any = true;
        }
    }
    rd_kafka_metadata_destroy(metadata);
    if (!any) {
        cli_fail(CLI_FAILED, "%s: there is no such topic or partition", topic);
    }
    return any;
}

/* Rows of the answer. ret: exit code. */
static int trim_rows(const rd_kafka_topic_partition_list_t *list, json_t *rows)
{
    int code = CLI_OK;
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *part = &list->elems[i];
        if (part->err) {
            code = cli_fail(CLI_FAILED, "%s partition %d: %s (%s)", part->topic, part->partition,
                            rd_kafka_err2str(part->err), rd_kafka_err2name(part->err));
        } else {
            json_array_append_new(rows,
                                  json_pack("{s:s, s:i, s:I}", "topic", part->topic, "partition",
                                            part->partition, "start", (json_int_t)part->offset));
        }
    }
    return code;
}

static int trim(rd_kafka_t *client, const rd_kafka_topic_partition_list_t *list, json_t *rows)
{
    rd_kafka_DeleteRecords_t *records = rd_kafka_DeleteRecords_new(list);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DeleteRecords(client, &records, 1, NULL, queue);
    rd_kafka_event_t *event = client_await(queue);
    int code = CLI_FAILED;
    if (event) {
        code = trim_rows(
            rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event)),
            rows);
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_DeleteRecords_destroy(records);
    return code;
}

int cli_topic_trim(const struct cli_call *call)
{
    static const char *const columns[] = {"topic", "partition", "start", NULL};
    const char *before = cli_value(call, "--before", NULL);
    int64_t offset = RD_KAFKA_OFFSET_END;
    int64_t only;
    bool json;
    int code;
    if (!before) {
        return cli_fail(CLI_USAGE, "give --before OFFSET, or --before end");
    }
    if (cli_number(call, "-p", -1, 0, INT32_MAX, &only) < 0 || cli_wants_json(call, &json) < 0 ||
        (strcmp(before, "end") != 0 &&
         cli_number(call, "--before", 0, 0, INT64_MAX, &offset) < 0)) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_CONSUMER, client_look_only, &code);
    if (!client) {
        return code;
    }
    json_t *rows = json_array();
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(16);
    for (uint32_t i = 0; i < call->operands_count && code == CLI_OK; i++) {
        code = trim_add(client, call->operands[i], only, offset, list) ? CLI_OK : CLI_FAILED;
    }
    code = code == CLI_OK ? trim(client, list, rows) : code;
    if (json) {
        table_json(rows);
    } else if (json_array_size(rows) > 0) {
        table_print(rows, columns);
    }
    json_decref(rows);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(client);
    return code;
}
