/* SPDX-License-Identifier: Apache-2.0 */
/* millrace topic: creation, list, description and deletion through the Kafka protocol. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/client.h"
#include "cli/table.h"

/* Waits for the answer of an admin call. ret: NULL after cli_fail. */
static rd_kafka_event_t *await(rd_kafka_queue_t *queue)
{
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 2 * CLIENT_TIMEOUT_MS);
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

/* Prints each topic's outcome. tolerated: an error that is no failure, 0 none. */
static int print_results(const rd_kafka_topic_result_t **results, size_t count, const char *verb,
                         rd_kafka_resp_err_t tolerated)
{
    int code = CLI_OK;
    for (size_t i = 0; i < count; i++) {
        rd_kafka_resp_err_t error = rd_kafka_topic_result_error(results[i]);
        const char *name = rd_kafka_topic_result_name(results[i]);
        if (!error) {
            printf("%s %s\n", verb, name);
        } else if (tolerated && error == tolerated) {
            printf("%s: %s\n", name, rd_kafka_err2str(error));
        } else {
            const char *text = rd_kafka_topic_result_error_string(results[i]);
            code = cli_fail(CLI_FAILED, "%s: %s (%s)", name, text ? text : rd_kafka_err2str(error),
                            rd_kafka_err2name(error));
        }
    }
    return code;
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
                  uint32_t count)
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
        rd_kafka_event_t *event = await(queue);
        if (event) {
            size_t results_count;
            const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(
                rd_kafka_event_CreateTopics_result(event), &results_count);
            bool tolerant = cli_value(call, "--if-not-exists", NULL) != NULL;
            code = print_results(results, results_count, "created",
                                 tolerant ? RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS : 0);
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
    char reason[CLIENT_TEXT_BYTES];
    int64_t partitions;
    int64_t replicas;
    uint32_t count = 0;
    int code;
    if (cli_number(call, "-p", -1, 1, 1000000, &partitions) < 0 ||
        cli_number(call, "-r", -1, 1, INT16_MAX, &replicas) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return code;
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
    code = code == CLI_OK ? create(call, client, topics, count) : code;
    rd_kafka_NewTopic_destroy_array(topics, count);
    rd_kafka_destroy(client);
    return code;
}

int cli_topic_delete(const struct cli_call *call)
{
    rd_kafka_DeleteTopic_t *topics[CLI_OPERANDS_MAX];
    int code;
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return code;
    }
    for (uint32_t i = 0; i < call->operands_count; i++) {
        topics[i] = rd_kafka_DeleteTopic_new(call->operands[i]);
    }
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DeleteTopics(client, topics, call->operands_count, NULL, queue);
    rd_kafka_event_t *event = await(queue);
    code = CLI_FAILED;
    if (event) {
        size_t count;
        const rd_kafka_topic_result_t **results =
            rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
        bool tolerant = cli_value(call, "--if-exists", NULL) != NULL;
        code = print_results(results, count, "deleted",
                             tolerant ? RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART : 0);
        rd_kafka_event_destroy(event);
    }
    rd_kafka_DeleteTopic_destroy_array(topics, call->operands_count);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
    return code;
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

static const char *source_name(rd_kafka_ConfigSource_t source)
{
    switch (source) {
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG:
        return "topic";
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG:
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG:
        return "broker";
    case RD_KAFKA_CONFIG_SOURCE_STATIC_BROKER_CONFIG:
        return "file";
    case RD_KAFKA_CONFIG_SOURCE_DEFAULT_CONFIG:
        return "default";
    case RD_KAFKA_CONFIG_SOURCE_UNKNOWN_CONFIG:
    case RD_KAFKA_CONFIG_SOURCE__CNT:
        break;
    }
    return "unknown";
}

static json_t *entries_json(rd_kafka_event_t *event)
{
    json_t *list = json_array();
    size_t resources;
    const rd_kafka_ConfigResource_t **resource = rd_kafka_DescribeConfigs_result_resources(
        rd_kafka_event_DescribeConfigs_result(event), &resources);
    for (size_t i = 0; i < resources; i++) {
        size_t count;
        const rd_kafka_ConfigEntry_t **entries =
            rd_kafka_ConfigResource_configs(resource[i], &count);
        for (size_t j = 0; j < count; j++) {
            const char *value = rd_kafka_ConfigEntry_value(entries[j]);
            json_array_append_new(
                list, json_pack("{s:s, s:s?, s:s}", "name", rd_kafka_ConfigEntry_name(entries[j]),
                                "value", value, "source",
                                source_name(rd_kafka_ConfigEntry_source(entries[j]))));
        }
    }
    return list;
}

static json_t *settings_json(rd_kafka_t *client, const char *topic)
{
    rd_kafka_ConfigResource_t *resource =
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DescribeConfigs(client, &resource, 1, NULL, queue);
    rd_kafka_event_t *event = await(queue);
    json_t *list = event ? entries_json(event) : NULL;
    if (event) {
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_ConfigResource_destroy(resource);
    return list;
}

/* ret: NULL after cli_fail. */
static json_t *topic_json(rd_kafka_t *client, const char *name)
{
    const struct rd_kafka_metadata *metadata = client_metadata(client, name);
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
    json_t *settings = settings_json(client, name);
    return json_pack("{s:s, s:o, s:o}", "name", name, "partitions", partitions, "settings",
                     settings ? settings : json_array());
}

int cli_topic_describe(const struct cli_call *call)
{
    static const char *const partition_columns[] = {"partition", "leader", "start",
                                                    "end",       "state",  NULL};
    static const char *const setting_columns[] = {"name", "value", "source", NULL};
    /* To look at a topic must not create it. */
    static const struct client_setting settings[] = {{"allow.auto.create.topics", "false"},
                                                     {NULL, NULL}};
    json_t *all = json_array();
    bool json;
    int code;
    if (cli_wants_json(call, &json) < 0) {
        json_decref(all);
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_CONSUMER, settings, &code);
    for (uint32_t i = 0; client && i < call->operands_count; i++) {
        json_t *topic = topic_json(client, call->operands[i]);
        code = topic ? code : CLI_FAILED;
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
