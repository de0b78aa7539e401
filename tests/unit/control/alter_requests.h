/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that alter settings, sent to a control beside a fake core, and what comes of them. Test
 * code. */
#ifndef MILL_TESTS_UNIT_CONTROL_ALTER_REQUESTS_H
#define MILL_TESTS_UNIT_CONTROL_ALTER_REQUESTS_H

#include "tests/unit/control/fake_core.h"

static inline void get_topic(const void *context, int32_t index, void *element)
{
    struct mill_create_topics_request_topics *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of(context);
    to->num_partitions = 1;
    to->replication_factor = 1;
}

static inline int16_t create_one(struct fake *f, const char *name)
{
    struct mill_create_topics_request in;
    struct mill_create_topics_response out;
    struct mill_create_topics_response_topics topic = {0};
    mill_create_topics_request_defaults(&in);
    in.topics = (struct mill_warray){.count = 1, .get = get_topic, .context = name};
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_CREATE_TOPICS, 7);
    assert_int_equal(mill_create_topics_request_encode(&writer, 7, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_CREATE_TOPICS, 7);
    assert_int_equal(mill_create_topics_response_decode(&at, 7, &out), 0);
    assert_true(mill_create_topics_response_topics_next(&out.topics, 7, &topic));
    return topic.error_code;
}

static inline const struct mill_map_topic *find(const struct fake *f, const char *name)
{
    return mill_map_topic_by_name(f->map, name, (uint32_t)strlen(name));
}

static inline void restart(struct fake *f, uint32_t pages_max)
{
    mill_control_close(f->control);
    assert_int_equal(fake_start_control(f, pages_max), 0);
    fake_turns(f, 3);
    assert_true(mill_control_is_serving(f->control));
}

/* One setting of one request: of a topic, or of what type says. */
struct alteration {
    const char *name;
    const char *value;
    int8_t operation;
};

struct altered {
    const char *topic;
    const struct alteration *configs;
    int32_t count;
    int8_t type; /* 0: a topic */
};

static inline void get_alteration(const void *context, int32_t index, void *element)
{
    const struct alteration *one = &((const struct alteration *)context)[index];
    struct mill_incremental_alter_configs_request_resources_configs *to = element;
    to->name = mill_wstr_of(one->name);
    to->value = mill_wstr_of(one->value);
    to->config_operation = one->operation;
}

static inline void get_whole(const void *context, int32_t index, void *element)
{
    const struct alteration *one = &((const struct alteration *)context)[index];
    struct mill_alter_configs_request_resources_configs *to = element;
    to->name = mill_wstr_of(one->name);
    to->value = mill_wstr_of(one->value);
}

static inline void get_altered(const void *context, int32_t index, void *element)
{
    const struct altered *one = &((const struct altered *)context)[index];
    struct mill_incremental_alter_configs_request_resources *to = element;
    to->resource_type = one->type ? one->type : 2;
    to->resource_name = mill_wstr_of(one->topic);
    to->configs =
        (struct mill_warray){.count = one->count, .get = get_alteration, .context = one->configs};
}

static inline void get_altered_whole(const void *context, int32_t index, void *element)
{
    const struct altered *one = &((const struct altered *)context)[index];
    struct mill_alter_configs_request_resources *to = element;
    to->resource_type = one->type ? one->type : 2;
    to->resource_name = mill_wstr_of(one->topic);
    to->configs =
        (struct mill_warray){.count = one->count, .get = get_whole, .context = one->configs};
}

/* ret: error of the last resource. */
static inline int16_t alter_many(struct fake *f, const struct altered *resources, int32_t count,
                                 int16_t version, bool validate_only)
{
    struct mill_incremental_alter_configs_request in;
    struct mill_incremental_alter_configs_response out;
    struct mill_incremental_alter_configs_response_responses one = {.error_code = -2};
    mill_incremental_alter_configs_request_defaults(&in);
    in.resources = (struct mill_warray){.count = count, .get = get_altered, .context = resources};
    in.validate_only = validate_only;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_INCREMENTAL_ALTER_CONFIGS, version);
    assert_int_equal(mill_incremental_alter_configs_request_encode(&writer, version, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_INCREMENTAL_ALTER_CONFIGS, version);
    assert_int_equal(mill_incremental_alter_configs_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    assert_int_equal(out.responses.count, count);
    while (mill_incremental_alter_configs_response_responses_next(&out.responses, version, &one)) {
        assert_int_equal(one.error_code != 0, one.error_message.length > 0);
    }
    return one.error_code;
}

static inline int16_t alter_one(struct fake *f, const char *topic, const char *name,
                                int8_t operation, const char *value)
{
    const struct alteration config = {name, value, operation};
    const struct altered resource = {topic, &config, 1, 0};
    return alter_many(f, &resource, 1, 1, false);
}

static inline int16_t alter_whole(struct fake *f, const struct altered *resource, int16_t version)
{
    struct mill_alter_configs_request in;
    struct mill_alter_configs_response out;
    struct mill_alter_configs_response_responses one;
    mill_alter_configs_request_defaults(&in);
    in.resources = (struct mill_warray){.count = 1, .get = get_altered_whole, .context = resource};
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_ALTER_CONFIGS, version);
    assert_int_equal(mill_alter_configs_request_encode(&writer, version, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_ALTER_CONFIGS, version);
    assert_int_equal(mill_alter_configs_response_decode(&at, version, &out), 0);
    assert_true(mill_alter_configs_response_responses_next(&out.responses, version, &one));
    return one.error_code;
}

static inline const struct mill_topic_settings *settings_of(const struct fake *f, const char *name)
{
    return &find(f, name)->settings;
}

static inline const char *config_of(const struct fake *f, const char *name, const char *key)
{
    return mill_topic_config(mill_topics_by_name(&mill_control_controller(f->control)->topics, name,
                                                 (uint32_t)strlen(name)),
                             key);
}

/* What DescribeConfigs says of one key. */
struct told {
    bool there;
    char value[64];
    int8_t source;
    bool read_only;
    int8_t sources[8]; /* of the synonyms */
    int32_t sources_count;
};

struct asked {
    int8_t type;
    const char *name;
};

static inline void get_asked(const void *context, int32_t index, void *element)
{
    const struct asked *one = context;
    struct mill_describe_configs_request_resources *to = element;
    MILL_UNUSED(index);
    to->resource_type = one->type;
    to->resource_name = mill_wstr_of(one->name);
    to->configuration_keys = (struct mill_warray){.count = -1};
}

/* ret: how many keys were told in all. */
static inline int32_t describe_config(struct fake *f, int8_t type, const char *name,
                                      const char *key, struct told *ret_told)
{
    struct mill_describe_configs_request in;
    struct mill_describe_configs_response out;
    struct mill_describe_configs_response_results result;
    struct mill_describe_configs_response_results_configs config;
    struct mill_describe_configs_response_results_configs_synonyms synonym;
    const struct asked asked = {type, name};
    const int16_t version = 4;
    mill_describe_configs_request_defaults(&in);
    in.resources = (struct mill_warray){.count = 1, .get = get_asked, .context = &asked};
    in.include_synonyms = true;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_DESCRIBE_CONFIGS, version);
    assert_int_equal(mill_describe_configs_request_encode(&writer, version, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_DESCRIBE_CONFIGS, version);
    assert_int_equal(mill_describe_configs_response_decode(&at, version, &out), 0);
    assert_true(mill_describe_configs_response_results_next(&out.results, version, &result));
    assert_int_equal(result.error_code, 0);
    int32_t count = result.configs.count;
    *ret_told = (struct told){0};
    while (mill_describe_configs_response_results_configs_next(&result.configs, version, &config)) {
        if (!mill_wstr_equal(&config.name, key, (uint32_t)strlen(key))) {
            continue;
        }
        ret_told->there = true;
        assert_true(config.value.length < 0 ||
                    mill_wstr_copy(&config.value, ret_told->value, sizeof(ret_told->value)) >= 0);
        ret_told->source = config.config_source;
        ret_told->read_only = config.read_only;
        while (mill_describe_configs_response_results_configs_synonyms_next(&config.synonyms,
                                                                            version, &synonym)) {
            assert_true(ret_told->sources_count < (int32_t)MILL_COUNT_OF(ret_told->sources));
            ret_told->sources[ret_told->sources_count++] = synonym.source;
        }
    }
    return count;
}

#endif
