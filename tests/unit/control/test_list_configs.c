/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: ListConfigResources names what has settings, of the types asked for and no others. Method:
 * requests against a fake core on virtual time. */
#include "tests/unit/control/alter_requests.h"

enum {
    TOPIC = 2,
    BROKER = 4,
    BROKER_LOGGER = 8,
    CLIENT_METRICS = 16,
    GROUP = 32,
    DELETE_VERSION = 5,
    NAME_BYTES = 64,
};

static struct fake f;

static void get_type(const void *context, int32_t index, void *element)
{
    *(int8_t *)element = ((const int8_t *)context)[index];
}

/* What was told, in its order, as "TYPE:NAME ...". ret: the error. */
static int16_t list(int16_t version, const int8_t *types, int32_t count, char *ret_text,
                    size_t text_bytes)
{
    struct mill_list_config_resources_request in;
    struct mill_list_config_resources_response out;
    struct mill_list_config_resources_response_config_resources one;
    size_t used = 0;
    mill_list_config_resources_request_defaults(&in);
    in.resource_types = (struct mill_warray){.count = count, .get = get_type, .context = types};
    struct mill_writer writer = fake_begin(&f, MILL_API_KEY_LIST_CONFIG_RESOURCES, version);
    assert_int_equal(mill_list_config_resources_request_encode(&writer, version, &in), 0);
    struct mill_cursor at = fake_call(&f, &writer, MILL_API_KEY_LIST_CONFIG_RESOURCES, version);
    assert_int_equal(f.outcome, MILL_OUTCOME_BYTES);
    assert_int_equal(mill_list_config_resources_response_decode(&at, version, &out), 0);
    assert_int_equal(at.left_bytes, 0);
    ret_text[0] = '\0';
    while (mill_list_config_resources_response_config_resources_next(&out.config_resources, version,
                                                                     &one)) {
        char name[NAME_BYTES];
        assert_true(mill_wstr_copy(&one.resource_name, name, sizeof(name)) > 0);
        used += (size_t)snprintf(ret_text + used, text_bytes - used, "%s%d:%s", used ? " " : "",
                                 one.resource_type, name);
        assert_true(used < text_bytes);
    }
    return out.error_code;
}

static void expect(const int8_t *types, int32_t count, const char *want)
{
    char text[512];
    assert_int_equal(list(1, types, count, text, sizeof(text)), 0);
    assert_string_equal(text, want);
}

static void get_deleted(const void *context, int32_t index, void *element)
{
    MILL_UNUSED(index);
    *(struct mill_wstr *)element = mill_wstr_of(context);
}

static void delete_one(const char *name)
{
    struct mill_delete_topics_request in;
    mill_delete_topics_request_defaults(&in);
    in.topic_names = (struct mill_warray){.count = 1, .get = get_deleted, .context = name};
    struct mill_writer writer = fake_begin(&f, MILL_API_KEY_DELETE_TOPICS, DELETE_VERSION);
    assert_int_equal(mill_delete_topics_request_encode(&writer, DELETE_VERSION, &in), 0);
    (void)fake_call(&f, &writer, MILL_API_KEY_DELETE_TOPICS, DELETE_VERSION);
    assert_int_equal(f.outcome, MILL_OUTCOME_BYTES);
}

static void setup(const char *const *sets, uint32_t count)
{
    const struct alteration config = {"consumer.session.timeout.ms", "50000", 0};
    const struct altered group = {"tuned", &config, 1, GROUP};
    fake_open(&f, sets, count);
    assert_int_equal(create_one(&f, "here"), 0);
    assert_int_equal(alter_many(&f, &group, 1, 1, false), 0);
}

static void test_types_choose(void **state)
{
    MILL_UNUSED(state);
    static const int8_t every[] = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP};
    static const int8_t groups_twice[] = {GROUP, GROUP};
    setup(NULL, 0);
    const char *const all = "32:tuned 8:1 4:1 2:here";
    expect(NULL, 0, all);
    expect(every, MILL_COUNT_OF(every), all);
    expect(&every[0], 1, "2:here");
    expect(&every[1], 1, "4:1");
    expect(&every[2], 1, "8:1");
    expect(&every[3], 1, "");
    expect(groups_twice, 2, "32:tuned");
    fake_close(&f);
}

/* With core endpoints each core is a node to clients. */
static void test_every_node_is_told(void **state)
{
    MILL_UNUSED(state);
    static const int8_t broker = BROKER;
    static const char *const sets[] = {"dataplane.cores=0,1", "dataplane.core.endpoints=on"};
    setup(sets, MILL_COUNT_OF(sets));
    expect(&broker, 1, "4:1 4:1000001");
    fake_close(&f);
}

static void test_version_0_asks_for_metrics(void **state)
{
    MILL_UNUSED(state);
    char text[512];
    setup(NULL, 0);
    assert_int_equal(list(0, NULL, 0, text, sizeof(text)), 0);
    assert_string_equal(text, "");
    fake_close(&f);
}

static void test_unknown_type_is_refused(void **state)
{
    MILL_UNUSED(state);
    static const int8_t wrong[] = {0, 1, 3, 6, 64, -1, INT8_MIN};
    char text[512];
    setup(NULL, 0);
    for (size_t i = 0; i < MILL_COUNT_OF(wrong); i++) {
        const int8_t types[] = {TOPIC, wrong[i]};
        assert_int_equal(list(1, types, 2, text, sizeof(text)), MILL_KERR_UNSUPPORTED_VERSION);
        assert_string_equal(text, "");
    }
    fake_close(&f);
}

static void test_topic_on_its_way_out_is_not_told(void **state)
{
    MILL_UNUSED(state);
    static const int8_t topic = TOPIC;
    setup(NULL, 0);
    assert_int_equal(create_one(&f, "leaving"), 0);
    f.serve = false; /* its files stay for now */
    delete_one("leaving");
    assert_int_equal(mill_control_controller(f.control)->topics.deleting_count, 1);
    expect(&topic, 1, "2:here");
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_choose),
        cmocka_unit_test(test_every_node_is_told),
        cmocka_unit_test(test_version_0_asks_for_metrics),
        cmocka_unit_test(test_unknown_type_is_refused),
        cmocka_unit_test(test_topic_on_its_way_out_is_not_told),
    };
    return cmocka_run_group_tests_name("list_configs", tests, NULL, NULL);
}
