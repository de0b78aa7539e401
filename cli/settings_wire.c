/* SPDX-License-Identifier: Apache-2.0 */
/* Settings as librdkafka 2.0 cannot ask for them: those of groups and the default of all brokers,
 * and changes of single settings (KIP-339), which lose nothing that others change meanwhile; see
 * wire.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/settings.h"
#include "cli/wire.h"
#include "protocol/errors.h"

enum {
    DESCRIBE_LEAST = 1, /* synonyms */
    DESCRIBE_MOST = 4,
    ALTER_MOST = 1,
    OPERATION_SET = 0,
    OPERATION_DELETE = 1,
    TEXT_BYTES = 1024,
};

/* The broker of that number, or any one. ret: NULL none was reached. */
static struct wire *open_broker(rd_kafka_t *client, const struct settings_of *of)
{
    const struct rd_kafka_metadata *metadata = client_metadata(client, NULL);
    bool any = of->kind != SETTINGS_BROKER || !of->name[0];
    struct wire *wire = NULL;
    for (int i = 0; metadata && !wire && i < metadata->broker_cnt; i++) {
        if (any || metadata->brokers[i].id == atoi(of->name)) {
            wire = wire_open(metadata->brokers[i].host, metadata->brokers[i].port);
        }
    }
    if (metadata) {
        rd_kafka_metadata_destroy(metadata);
    }
    return wire;
}

/* Tells an answer's error. ret: exit code. */
static int answer_code(const struct settings_of *of, int16_t error, const struct mill_wstr *message)
{
    char text[TEXT_BYTES];
    if (error == MILL_KERR_NONE) {
        return CLI_OK;
    }
    const char *name = mill_kerr_name(error);
    return mill_wstr_copy(message, text, sizeof(text)) > 0
               ? cli_fail(CLI_FAILED, "%s: %s (%s)", settings_title(of), text, name)
               : cli_fail(CLI_FAILED, "%s: %s", settings_title(of), name);
}

/* --- describe ------------------------------------------------------------------------------------
 */

static void get_described(const void *context, int32_t index, void *ret_element)
{
    const struct settings_of *of = context;
    struct mill_describe_configs_request_resources *resource = ret_element;
    MILL_UNUSED(index);
    mill_describe_configs_request_resources_defaults(resource);
    resource->resource_type = (int8_t)of->kind;
    resource->resource_name = mill_wstr_of(of->name);
    resource->configuration_keys.count = -1; /* every one */
}

static int encode_describe(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_describe_configs_request_encode(to, version, message);
}

static json_t *text_json(const struct mill_wstr *text)
{
    char *copy = text->length < 0 ? NULL : malloc((size_t)text->length + 1);
    bool whole = copy && mill_wstr_copy(text, copy, (uint32_t)text->length + 1) >= 0;
    json_t *value = whole ? json_string(copy) : NULL;
    free(copy);
    return value ? value : json_null();
}

static json_t *synonyms_json(const struct mill_warray *array, int16_t version)
{
    struct mill_describe_configs_response_results_configs_synonyms synonym;
    struct mill_warray synonyms = *array;
    json_t *list = json_array();
    while (mill_describe_configs_response_results_configs_synonyms_next(&synonyms, version,
                                                                        &synonym)) {
        json_array_append_new(list, json_pack("{s:o, s:o, s:s}", "name", text_json(&synonym.name),
                                              "value", text_json(&synonym.value), "source",
                                              settings_source(synonym.source)));
    }
    return list;
}

static json_t *entries_json(struct mill_describe_configs_response_results *result, int16_t version)
{
    struct mill_describe_configs_response_results_configs entry;
    json_t *list = json_array();
    while (mill_describe_configs_response_results_configs_next(&result->configs, version, &entry)) {
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:s, s:b, s:b, s:o}", "name",
                                        text_json(&entry.name), "value", text_json(&entry.value),
                                        "source", settings_source(entry.config_source), "read_only",
                                        entry.read_only, "sensitive", entry.is_sensitive,
                                        "synonyms", synonyms_json(&entry.synonyms, version)));
    }
    return list;
}

json_t *wire_settings(rd_kafka_t *client, const struct settings_of *of)
{
    struct mill_describe_configs_request in;
    struct mill_describe_configs_response out;
    struct mill_describe_configs_response_results result;
    struct mill_cursor body;
    struct wire *wire = open_broker(client, of);
    const int16_t key = MILL_API_KEY_DESCRIBE_CONFIGS;
    int16_t version = wire ? wire_version(wire, key, DESCRIBE_LEAST, DESCRIBE_MOST) : -1;
    json_t *list = NULL;
    mill_describe_configs_request_defaults(&in);
    in.resources = (struct mill_warray){.count = 1, .get = get_described, .context = of};
    in.include_synonyms = true;
    if (version < 0 || wire_ask(wire, key, version, encode_describe, &in, &body) < 0 ||
        mill_describe_configs_response_decode(&body, version, &out) < 0 ||
        !mill_describe_configs_response_results_next(&out.results, version, &result)) {
        cli_fail(CLI_FAILED, "%s: no broker could be asked for its settings", settings_title(of));
    } else if (answer_code(of, result.error_code, &result.error_message) == CLI_OK) {
        list = entries_json(&result, version);
    }
    wire_close(wire);
    return list;
}

/* --- alter ---------------------------------------------------------------------------------------
 */

/* What a call changes, and of what. */
struct change {
    const struct cli_call *call;
    const struct settings_of *of;
};

static int32_t count_values(const struct cli_call *call, const char *option)
{
    uint32_t count = 0;
    while (cli_value_at(call, option, count)) {
        count++;
    }
    return (int32_t)count;
}

/* Those of --config, then those of --default. */
static void get_setting(const void *context, int32_t index, void *ret_element)
{
    const struct change *change = context;
    struct mill_incremental_alter_configs_request_resources_configs *config = ret_element;
    int32_t set = count_values(change->call, "--config");
    mill_incremental_alter_configs_request_resources_configs_defaults(config);
    if (index < set) {
        const char *pair = cli_value_at(change->call, "--config", (uint32_t)index);
        const char *equals = strchr(pair, '='); /* settings_check_call has looked */
        config->name = mill_wstr_of_bytes(pair, (int32_t)(equals - pair));
        config->config_operation = OPERATION_SET;
        config->value = mill_wstr_of(equals + 1);
    } else {
        config->name =
            mill_wstr_of(cli_value_at(change->call, "--default", (uint32_t)(index - set)));
        config->config_operation = OPERATION_DELETE;
        config->value = mill_wstr_of(NULL);
    }
}

static void get_altered(const void *context, int32_t index, void *ret_element)
{
    const struct change *change = context;
    struct mill_incremental_alter_configs_request_resources *resource = ret_element;
    MILL_UNUSED(index);
    mill_incremental_alter_configs_request_resources_defaults(resource);
    resource->resource_type = (int8_t)change->of->kind;
    resource->resource_name = mill_wstr_of(change->of->name);
    resource->configs = (struct mill_warray){.count = count_values(change->call, "--config") +
                                                      count_values(change->call, "--default"),
                                             .get = get_setting,
                                             .context = change};
}

static int encode_alter(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_incremental_alter_configs_request_encode(to, version, message);
}

int wire_settings_alter(const struct cli_call *call, rd_kafka_t *client,
                        const struct settings_of *of)
{
    const struct change change = {.call = call, .of = of};
    struct mill_incremental_alter_configs_request in;
    struct mill_incremental_alter_configs_response out;
    struct mill_incremental_alter_configs_response_responses result;
    struct mill_cursor body;
    struct wire *wire = open_broker(client, of);
    const int16_t key = MILL_API_KEY_INCREMENTAL_ALTER_CONFIGS;
    int16_t version = wire ? wire_version(wire, key, 0, ALTER_MOST) : -1;
    mill_incremental_alter_configs_request_defaults(&in);
    in.resources = (struct mill_warray){.count = 1, .get = get_altered, .context = &change};
    int code = -EOPNOTSUPP;
    if (version >= 0) {
        bool answered = wire_ask(wire, key, version, encode_alter, &in, &body) == 0 &&
                        mill_incremental_alter_configs_response_decode(&body, version, &out) == 0 &&
                        mill_incremental_alter_configs_response_responses_next(&out.responses,
                                                                               version, &result);
        code = answered ? answer_code(of, result.error_code, &result.error_message)
                        : cli_fail(CLI_FAILED, "%s: no answer; whether it was changed is not known",
                                   settings_title(of));
    }
    wire_close(wire);
    return code;
}
