/* SPDX-License-Identifier: Apache-2.0 */
/* See settings.h; and millrace config. */
#include "cli/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/table.h"
#include "cli/wire.h"

enum {
    PAUSE_MS = 50, /* between two looks whether a broker has taken over what was altered */
    TAKEN_TRIES = 40,
};

/* --- describe ------------------------------------------------------------------------------------
 */

const char *settings_title(const struct settings_of *of)
{
    return of->kind == SETTINGS_BROKER && !of->name[0] ? "default" : of->name;
}

const char *settings_source(int source)
{
    static const char *const names[] = {
        [1] = "topic", [2] = "broker",  [3] = "cluster",
        [4] = "file",  [5] = "default", [8] = "group",
    };
    bool known = source >= 0 && (size_t)source < MILL_COUNT_OF(names) && names[source];
    return known ? names[source] : "unknown";
}

/* The source of what was altered. */
static const char *own_source(const struct settings_of *of)
{
    switch (of->kind) {
    case SETTINGS_TOPIC:
        return "topic";
    case SETTINGS_GROUP:
        return "group";
    case SETTINGS_BROKER:
        break;
    }
    return of->name[0] ? "broker" : "cluster";
}

/* librdkafka 2.0 knows topics and single brokers; its numbers of them are Kafka's. */
static bool is_known_to_client(const struct settings_of *of)
{
    return of->kind == SETTINGS_TOPIC || (of->kind == SETTINGS_BROKER && of->name[0]);
}

/* ret: exit code. */
static int fail_unknown_to_client(const struct settings_of *of)
{
    return cli_fail(CLI_FAILED, "%s: these settings can be asked for in plain TCP only",
                    settings_title(of));
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
                            settings_source((int)rd_kafka_ConfigEntry_source(synonyms[i]))));
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
                                settings_source((int)rd_kafka_ConfigEntry_source(entries[j])),
                                "read_only", rd_kafka_ConfigEntry_is_read_only(entries[j]) == 1,
                                "sensitive", rd_kafka_ConfigEntry_is_sensitive(entries[j]) == 1,
                                "synonyms", synonyms_json(entries[j])));
        }
    }
    return list;
}

json_t *settings_describe(const struct cli_call *call, rd_kafka_t *client,
                          const struct settings_of *of)
{
    if (!is_known_to_client(of)) {
        if (wire_may(call)) {
            return wire_settings(client, of);
        }
        fail_unknown_to_client(of);
        return NULL;
    }
    rd_kafka_ConfigResource_t *resource =
        rd_kafka_ConfigResource_new((rd_kafka_ResourceType_t)of->kind, of->name);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DescribeConfigs(client, &resource, 1, NULL, queue);
    rd_kafka_event_t *event = client_await(queue);
    json_t *list = event ? entries_json(event, of->name) : NULL;
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

/* The whole set for AlterConfigs: settings as they are, then those of the call. ret: exit code. */
static int fill(const struct cli_call *call, const json_t *settings,
                rd_kafka_ConfigResource_t *resource, const struct settings_of *of)
{
    char key[CLIENT_TEXT_BYTES];
    const char *text;
    size_t index;
    const json_t *entry;
    json_t *wanted = json_object();
    int code = CLI_OK;
    json_array_foreach(settings, index, entry)
    {
        const char *setting = json_string_value(json_object_get(entry, "name"));
        const char *source = json_string_value(json_object_get(entry, "source"));
        bool is_own = strcmp(source, own_source(of)) == 0;
        if (is_own && json_is_true(json_object_get(entry, "sensitive"))) {
            code = cli_fail(CLI_FAILED,
                            "%s: %s is secret and set: it cannot be read, and would be lost",
                            of->name, setting);
        } else if (is_own) {
            json_object_set(wanted, setting, json_object_get(entry, "value"));
        }
    }
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

/* Where the client library must do it: two alterations at once may lose one. ret: exit code. */
static int alter_whole(const struct cli_call *call, rd_kafka_t *client,
                       const struct settings_of *of, const json_t *settings)
{
    if (!is_known_to_client(of)) {
        return fail_unknown_to_client(of);
    }
    rd_kafka_ConfigResource_t *resource =
        rd_kafka_ConfigResource_new((rd_kafka_ResourceType_t)of->kind, of->name);
    int code = fill(call, settings, resource, of);
    if (code == CLI_OK) {
        rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
        rd_kafka_AlterConfigs(client, &resource, 1, NULL, queue);
        rd_kafka_event_t *event = client_await(queue);
        code = event ? result_code(event, of->name) : CLI_FAILED;
        if (event) {
            rd_kafka_event_destroy(event);
        }
        rd_kafka_queue_destroy(queue);
    }
    rd_kafka_ConfigResource_destroy(resource);
    return code;
}

/* The setting of that name. ret: NULL none. */
static json_t *find(const json_t *settings, const char *name, size_t length)
{
    size_t index;
    json_t *entry;
    json_array_foreach((json_t *)(uintptr_t)settings, index, entry)
    {
        const char *one = json_string_value(json_object_get(entry, "name"));
        if (strncmp(one, name, length) == 0 && !one[length]) {
            return entry;
        }
    }
    return NULL;
}

/* A misspelt --default would change nothing and look like success. ret: exit code. */
static int check_defaults(const struct cli_call *call, const struct settings_of *of,
                          const json_t *settings)
{
    const char *text;
    for (uint32_t i = 0; (text = cli_value_at(call, "--default", i)); i++) {
        if (!find(settings, text, strlen(text))) {
            return cli_fail(CLI_FAILED, "%s: there is no setting %s", settings_title(of), text);
        }
    }
    return CLI_OK;
}

/* Whether what was altered can be read: a broker may answer before it has taken it over. */
static bool is_taken(const struct cli_call *call, const struct settings_of *of,
                     const json_t *settings)
{
    const char *text;
    for (uint32_t i = 0; (text = cli_value_at(call, "--config", i)); i++) {
        const char *equals = strchr(text, '=');
        const json_t *entry = find(settings, text, (size_t)(equals - text));
        const char *value = json_string_value(json_object_get(entry, "value"));
        if (!entry || strcmp(json_string_value(json_object_get(entry, "source")), own_source(of)) ||
            (value && strcmp(value, equals + 1) != 0)) {
            return false;
        }
    }
    for (uint32_t i = 0; (text = cli_value_at(call, "--default", i)); i++) {
        const json_t *entry = find(settings, text, strlen(text));
        if (entry &&
            strcmp(json_string_value(json_object_get(entry, "source")), own_source(of)) == 0) {
            return false;
        }
    }
    return true;
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
static void add_rows(const struct cli_call *call, rd_kafka_t *client, const struct settings_of *of,
                     const char *column, json_t *rows)
{
    static const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    json_t *settings = settings_describe(call, client, of);
    for (int i = 0; settings && i < TAKEN_TRIES && !is_taken(call, of, settings); i++) {
        nanosleep(&pause, NULL);
        json_decref(settings);
        settings = settings_describe(call, client, of);
    }
    size_t index;
    json_t *entry;
    json_array_foreach(settings, index, entry)
    {
        if (is_named(call, json_string_value(json_object_get(entry, "name")))) {
            json_object_set_new(entry, column, json_string(settings_title(of)));
            json_array_append(rows, entry);
        }
    }
    json_decref(settings);
}

int settings_alter(const struct cli_call *call, rd_kafka_t *client, const struct settings_of *of,
                   const char *column, json_t *rows)
{
    json_t *settings = settings_describe(call, client, of);
    int code = settings ? check_defaults(call, of, settings) : CLI_FAILED;
    if (code == CLI_OK) {
        code = wire_may(call) ? wire_settings_alter(call, client, of) : -EOPNOTSUPP;
        code = code == -EOPNOTSUPP ? alter_whole(call, client, of, settings) : code;
    }
    json_decref(settings);
    if (code == CLI_OK) {
        add_rows(call, client, of, column, rows);
    }
    return code;
}

/* --- millrace config -----------------------------------------------------------------------------
 */

/* -t TOPIC, --group GROUP or --broker ID. ret: exit code. */
static int take_resource(const struct cli_call *call, struct settings_of *ret)
{
    const char *topic = cli_value(call, "-t", NULL);
    const char *group = cli_value(call, "--group", NULL);
    const char *broker = cli_value(call, "--broker", NULL);
    int64_t number;
    if ((topic != NULL) + (group != NULL) + (broker != NULL) != 1) {
        return cli_fail(CLI_USAGE,
                        "%s: whose settings? give -t TOPIC, --group GROUP or --broker ID",
                        call->command->name);
    }
    if (topic || group) {
        *ret = topic ? (struct settings_of){SETTINGS_TOPIC, topic}
                     : (struct settings_of){SETTINGS_GROUP, group};
        return CLI_OK;
    }
    bool all = strcmp(broker, "default") == 0;
    *ret = (struct settings_of){SETTINGS_BROKER, all ? "" : broker};
    return all || cli_number(call, "--broker", 0, 0, INT32_MAX, &number) == 0 ? CLI_OK : CLI_USAGE;
}

/* The client would wait for a broker that there is not. ret: exit code. */
static int check_broker(rd_kafka_t *client, const struct settings_of *of)
{
    if (of->kind != SETTINGS_BROKER || !of->name[0]) {
        return CLI_OK;
    }
    const struct rd_kafka_metadata *metadata = client_metadata(client, NULL);
    if (!metadata) {
        return CLI_FAILED;
    }
    bool found = false;
    for (int i = 0; i < metadata->broker_cnt; i++) {
        found = found || metadata->brokers[i].id == atoi(of->name);
    }
    rd_kafka_metadata_destroy(metadata);
    return found ? CLI_OK : cli_fail(CLI_FAILED, "there is no broker %s", of->name);
}

/* ret: NULL after cli_fail; ret_code tells the exit code. */
static rd_kafka_t *open_for(const struct cli_call *call, const struct settings_of *of,
                            int *ret_code)
{
    rd_kafka_t *client = client_open(call, RD_KAFKA_CONSUMER, client_look_only, ret_code);
    if (client && (*ret_code = check_broker(client, of)) != CLI_OK) {
        rd_kafka_destroy(client);
        return NULL;
    }
    return client;
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
    struct settings_of of;
    bool json;
    int code = take_resource(call, &of);
    if (code != CLI_OK || cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = open_for(call, &of, &code);
    if (!client) {
        return code;
    }
    json_t *all = settings_describe(call, client, &of);
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
        if (!find(rows, call->operands[i], strlen(call->operands[i]))) {
            code = cli_fail(CLI_FAILED, "%s: there is no setting %s", settings_title(&of),
                            call->operands[i]);
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
    struct settings_of of;
    bool json;
    int code = take_resource(call, &of);
    if (code != CLI_OK || settings_check_call(call) != CLI_OK || cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    const char *column = of.kind == SETTINGS_TOPIC   ? "topic"
                         : of.kind == SETTINGS_GROUP ? "group"
                                                     : "broker";
    const char *const columns[] = {column, "name", "value", "source", NULL};
    rd_kafka_t *client = open_for(call, &of, &code);
    if (!client) {
        return code;
    }
    json_t *rows = json_array();
    code = settings_alter(call, client, &of, column, rows);
    rd_kafka_destroy(client);
    if (json) {
        table_json(rows);
    } else if (code == CLI_OK) {
        table_print(rows, columns);
    }
    json_decref(rows);
    return code;
}
