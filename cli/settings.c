/* SPDX-License-Identifier: Apache-2.0 */
/* See settings.h; and millrace config. */
#include "cli/settings.h"

#include <stdio.h>
#include <string.h>

#include "cli/table.h"

/* --- describe ------------------------------------------------------------------------------------
 */

static const char *source_name(rd_kafka_ConfigSource_t source)
{
    switch (source) {
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG:
        return "topic";
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG:
        return "broker";
    case RD_KAFKA_CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG:
        return "cluster";
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

static json_t *synonyms_json(const rd_kafka_ConfigEntry_t *entry)
{
    json_t *list = json_array();
    size_t count;
    const rd_kafka_ConfigEntry_t **synonyms = rd_kafka_ConfigEntry_synonyms(entry, &count);
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(
            list, json_pack("{s:s, s:s?, s:s}", "name", rd_kafka_ConfigEntry_name(synonyms[i]),
                            "value", rd_kafka_ConfigEntry_value(synonyms[i]), "source",
                            source_name(rd_kafka_ConfigEntry_source(synonyms[i]))));
    }
    return list;
}

/* ret: NULL after cli_fail. */
static json_t *entries_json(rd_kafka_event_t *event, const char *name)
{
    json_t *list = json_array();
    size_t resources;
    const rd_kafka_ConfigResource_t **resource = rd_kafka_DescribeConfigs_result_resources(
        rd_kafka_event_DescribeConfigs_result(event), &resources);
    for (size_t i = 0; i < resources; i++) {
        size_t count;
        rd_kafka_resp_err_t error = rd_kafka_ConfigResource_error(resource[i]);
        const char *text = rd_kafka_ConfigResource_error_string(resource[i]);
        if (error) {
            cli_fail(CLI_FAILED, "%s: %s (%s)", name, text ? text : rd_kafka_err2str(error),
                     rd_kafka_err2name(error));
            json_decref(list);
            return NULL;
        }
        const rd_kafka_ConfigEntry_t **entries =
            rd_kafka_ConfigResource_configs(resource[i], &count);
        for (size_t j = 0; j < count; j++) {
            json_array_append_new(
                list, json_pack("{s:s, s:s?, s:s, s:b, s:b, s:o}", "name",
                                rd_kafka_ConfigEntry_name(entries[j]), "value",
                                rd_kafka_ConfigEntry_value(entries[j]), "source",
                                source_name(rd_kafka_ConfigEntry_source(entries[j])), "read_only",
                                rd_kafka_ConfigEntry_is_read_only(entries[j]) == 1, "sensitive",
                                rd_kafka_ConfigEntry_is_sensitive(entries[j]) == 1, "synonyms",
                                synonyms_json(entries[j])));
        }
    }
    return list;
}

json_t *settings_describe(rd_kafka_t *client, rd_kafka_ResourceType_t type, const char *name)
{
    rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(type, name);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DescribeConfigs(client, &resource, 1, NULL, queue);
    rd_kafka_event_t *event = client_await(queue);
    json_t *list = event ? entries_json(event, name) : NULL;
    if (event) {
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_ConfigResource_destroy(resource);
    return list;
}

/* --- alter ---------------------------------------------------------------------------------------
 */

int settings_check_call(const struct cli_call *call)
{
    const char *text;
    for (uint32_t i = 0; (text = cli_value_at(call, "--config", i)); i++) {
        const char *equals = strchr(text, '=');
        if (!equals || equals == text || equals - text >= CLIENT_TEXT_BYTES) {
            return cli_fail(CLI_USAGE, "option --config needs KEY=VALUE, not \"%s\"", text);
        }
    }
    if (!cli_value(call, "--config", NULL) && !cli_value(call, "--default", NULL)) {
        return cli_fail(CLI_USAGE, "give --config KEY=VALUE or --default KEY");
    }
    return CLI_OK;
}

/* What the resource is to have: its own settings as they are, then those of the call. AlterConfigs
 * takes the whole set, which every broker knows; two alterations at once may lose one. ret: exit
 * code. */
static int fill(const struct cli_call *call, rd_kafka_t *client,
                rd_kafka_ConfigResource_t *resource, const char *own)
{
    char key[CLIENT_TEXT_BYTES];
    const char *text;
    size_t index;
    const json_t *entry;
    const char *name = rd_kafka_ConfigResource_name(resource);
    json_t *settings = settings_describe(client, rd_kafka_ConfigResource_type(resource), name);
    if (!settings) {
        return CLI_FAILED;
    }
    json_t *wanted = json_object();
    int code = CLI_OK;
    json_array_foreach(settings, index, entry)
    {
        const char *setting = json_string_value(json_object_get(entry, "name"));
        bool is_own = strcmp(json_string_value(json_object_get(entry, "source")), own) == 0;
        if (is_own && json_is_true(json_object_get(entry, "sensitive"))) {
            code = cli_fail(CLI_FAILED,
                            "%s: %s is secret and set: it cannot be read, and would be lost", name,
                            setting);
        } else if (is_own) {
            json_object_set(wanted, setting, json_object_get(entry, "value"));
        }
    }
    json_decref(settings);
    for (uint32_t i = 0; (text = cli_value_at(call, "--config", i)); i++) {
        const char *equals = strchr(text, '=');
        snprintf(key, sizeof(key), "%.*s", (int)(equals - text), text);
        json_object_set_new(wanted, key, json_string(equals + 1));
    }
    for (uint32_t i = 0; (text = cli_value_at(call, "--default", i)); i++) {
        json_object_del(wanted, text);
    }
    json_t *value;
    json_object_foreach(wanted, text, value)
    {
        rd_kafka_ConfigResource_set_config(resource, text, json_string_value(value));
    }
    json_decref(wanted);
    return code;
}

/* ret: exit code of one resource's answer. */
static int result_code(rd_kafka_event_t *event, const char *name)
{
    size_t count;
    const rd_kafka_ConfigResource_t **results =
        rd_kafka_AlterConfigs_result_resources(rd_kafka_event_AlterConfigs_result(event), &count);
    for (size_t i = 0; i < count; i++) {
        rd_kafka_resp_err_t error = rd_kafka_ConfigResource_error(results[i]);
        const char *text = rd_kafka_ConfigResource_error_string(results[i]);
        if (error) {
            return cli_fail(CLI_FAILED, "%s: %s (%s)", name, text ? text : rd_kafka_err2str(error),
                            rd_kafka_err2name(error));
        }
    }
    return CLI_OK;
}

static bool is_named(const struct cli_call *call, const char *name)
{
    const char *text;
    size_t length = strlen(name);
    for (uint32_t i = 0; (text = cli_value_at(call, "--config", i)); i++) {
        if (strncmp(text, name, length) == 0 && text[length] == '=') {
            return true;
        }
    }
    for (uint32_t i = 0; (text = cli_value_at(call, "--default", i)); i++) {
        if (strcmp(text, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Rows of what the call named, as the broker tells it now. */
static void add_rows(const struct cli_call *call, rd_kafka_t *client, rd_kafka_ResourceType_t type,
                     const char *name, const char *column, json_t *rows)
{
    json_t *settings = settings_describe(client, type, name);
    size_t index;
    json_t *entry;
    json_array_foreach(settings, index, entry)
    {
        if (is_named(call, json_string_value(json_object_get(entry, "name")))) {
            json_object_set_new(entry, column, json_string(name));
            json_array_append(rows, entry);
        }
    }
    json_decref(settings);
}

int settings_alter(const struct cli_call *call, rd_kafka_t *client, rd_kafka_ResourceType_t type,
                   const char *name, const char *column, json_t *rows)
{
    rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(type, name);
    const char *own = type == RD_KAFKA_RESOURCE_TOPIC ? "topic" : "broker";
    int code = fill(call, client, resource, own);
    if (code == CLI_OK) {
        rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
        rd_kafka_AlterConfigs(client, &resource, 1, NULL, queue);
        rd_kafka_event_t *event = client_await(queue);
        code = event ? result_code(event, name) : CLI_FAILED;
        if (event) {
            rd_kafka_event_destroy(event);
        }
        rd_kafka_queue_destroy(queue);
    }
    rd_kafka_ConfigResource_destroy(resource);
    if (code == CLI_OK) {
        add_rows(call, client, type, name, column, rows);
    }
    return code;
}

/* --- millrace config -----------------------------------------------------------------------------
 */

/* --broker ID or -t TOPIC. ret: exit code. */
static int take_resource(const struct cli_call *call, rd_kafka_ResourceType_t *ret_type,
                         const char **ret_name)
{
    const char *topic = cli_value(call, "-t", NULL);
    int64_t broker;
    if ((topic != NULL) == (cli_value(call, "--broker", NULL) != NULL)) {
        return cli_fail(CLI_USAGE, "%s: whose settings? give -t TOPIC or --broker ID",
                        call->command->name);
    }
    if (cli_number(call, "--broker", 0, 0, INT32_MAX, &broker) < 0) {
        return CLI_USAGE;
    }
    *ret_type = topic ? RD_KAFKA_RESOURCE_TOPIC : RD_KAFKA_RESOURCE_BROKER;
    *ret_name = topic ? topic : cli_value(call, "--broker", NULL);
    return CLI_OK;
}

/* Whether a row is asked for: by its name, or because it is not the default. */
static bool is_wanted(const struct cli_call *call, const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    for (uint32_t i = 0; i < call->operands_count; i++) {
        if (strcmp(call->operands[i], name) == 0) {
            return true;
        }
    }
    return call->operands_count == 0 &&
           (cli_value(call, "--all", NULL) ||
            strcmp(json_string_value(json_object_get(row, "source")), "default") != 0);
}

int cli_config_describe(const struct cli_call *call)
{
    static const char *const columns[] = {"name", "value", "source", "read_only", NULL};
    static const struct client_setting settings[] = {{"allow.auto.create.topics", "false"},
                                                     {NULL, NULL}};
    rd_kafka_ResourceType_t type;
    const char *name;
    bool json;
    int code = take_resource(call, &type, &name);
    if (code != CLI_OK || cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_CONSUMER, settings, &code);
    if (!client) {
        return code;
    }
    json_t *all = settings_describe(client, type, name);
    rd_kafka_destroy(client);
    if (!all) {
        return CLI_FAILED;
    }
    json_t *rows = json_array();
    size_t index;
    json_t *row;
    json_array_foreach(all, index, row)
    {
        if (is_wanted(call, row)) {
            json_array_append(rows, row);
        }
    }
    for (uint32_t i = 0; i < call->operands_count; i++) {
        bool found = false;
        json_array_foreach(rows, index, row)
        {
            found = found ||
                    strcmp(json_string_value(json_object_get(row, "name")), call->operands[i]) == 0;
        }
        if (!found) {
            code = cli_fail(CLI_FAILED, "%s: there is no setting %s", name, call->operands[i]);
        }
    }
    if (json) {
        table_json(rows);
    } else {
        table_print(rows, columns);
    }
    json_decref(rows);
    json_decref(all);
    return code;
}

int cli_config_alter(const struct cli_call *call)
{
    rd_kafka_ResourceType_t type;
    const char *name;
    bool json;
    int code = take_resource(call, &type, &name);
    if (code != CLI_OK || settings_check_call(call) != CLI_OK || cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    const char *column = type == RD_KAFKA_RESOURCE_TOPIC ? "topic" : "broker";
    const char *const columns[] = {column, "name", "value", "source", NULL};
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return code;
    }
    json_t *rows = json_array();
    code = settings_alter(call, client, type, name, column, rows);
    rd_kafka_destroy(client);
    if (json) {
        table_json(rows);
    } else if (code == CLI_OK) {
        table_print(rows, columns);
    }
    json_decref(rows);
    return code;
}
