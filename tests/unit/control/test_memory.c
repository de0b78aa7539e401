/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whichever allocation of control or of its SQLite fails, a request is answered, closed or
 * left to its core's deadline, or control ends as one that cannot start; what was answered well is
 * there in the next control, and what a start cannot read is not taken for nothing. Method: a fake
 * core and a scenario of administration, run again and again; each time another allocation fails,
 * alone or with all that follow (alloc_fail.h). Groups: sim/groups. */
#include "tests/unit/alloc_fail.h"
#include "tests/unit/control/fake_core.h"

#include <errno.h>
#include <sqlite3.h>

enum {
    PARTITIONS = 2,
    GROWN = 4,
    RUNS_MIN = 100,
    CALLS_MAX = 100000,
    RETENTION_MS = 100000,
    RETENTION_LATER_MS = 200000,
};

/* What became of a request. */
enum became { ANSWERED_WELL, REFUSED, UNKNOWN };

struct outcomes {
    enum became create_stays;
    enum became create_goes;
    enum became grow;
    enum became alter;
    enum became delete_goes;
};

static bool sweeping; /* allocations inside control count */
static bool ended;    /* control gave up */
static sqlite3_mem_methods sqlite_memory;

/* --- what fails ---------------------------------------------------------------------------------
 */

int __real_mill_control_step(struct mill_control *control, const struct mill_now *now,
                             uint64_t *ret_next_ns, struct mill_report *report);
int __wrap_mill_control_step(struct mill_control *control, const struct mill_now *now,
                             uint64_t *ret_next_ns, struct mill_report *report);

int __wrap_mill_control_step(struct mill_control *control, const struct mill_now *now,
                             uint64_t *ret_next_ns, struct mill_report *report)
{
    alloc_fail.armed = sweeping;
    int r = __real_mill_control_step(control, now, ret_next_ns, report);
    alloc_fail.armed = false;
    if (r < 0 && sweeping) {
        assert_true(report->text[0] != '\0'); /* it is logged */
        ended = true;
        return 0;
    }
    return r;
}

static void *sqlite_malloc(int size)
{
    return alloc_refused() ? NULL : sqlite_memory.xMalloc(size);
}

static void *sqlite_realloc(void *old, int size)
{
    return alloc_refused() ? NULL : sqlite_memory.xRealloc(old, size);
}

static int memory_take(void **state)
{
    MILL_UNUSED(state);
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory), SQLITE_OK);
    sqlite3_mem_methods methods = sqlite_memory;
    methods.xMalloc = sqlite_malloc;
    methods.xRealloc = sqlite_realloc;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods), SQLITE_OK);
    return 0;
}

static void sweep_begin(uint64_t at, bool for_good)
{
    alloc_arm(at, for_good);
    alloc_disarm();
    sweeping = true;
    ended = false;
}

/* --- requests ----------------------------------------------------------------------------------
 */

/* Sends, and turns until the answer, the end of control, or the core's deadline. ret:
 * ANSWERED_WELL: the answer is in *ret_at; UNKNOWN. */
static enum became call(struct fake *f, const struct mill_writer *writer, int16_t key,
                        int16_t version, struct mill_cursor *ret_at)
{
    assert_int_equal(writer->error, 0);
    if (ended) {
        return UNKNOWN;
    }
    fake_send(f, writer->size_bytes);
    for (int i = 0; i < 1500 && !ended; i++) {
        if (fake_take(f)) {
            if (f->outcome != MILL_OUTCOME_BYTES) {
                return UNKNOWN; /* closed: it may be done, and the answer had no memory */
            }
            *ret_at = mill_cursor_over(&f->answer_buf, f->answer, f->answer_bytes);
            bool tags = version >= mill_api_find(key)->flexible_from;
            assert_int_equal(mill_cursor_skip(ret_at, tags ? 9 : 8), 0);
            return ANSWERED_WELL;
        }
        assert_int_equal(fake_turn(f), 0);
    }
    return UNKNOWN;
}

/* What an error in an answer means. REQUEST_TIMED_OUT: it is done, or will be. */
static enum became of_error(int16_t error)
{
    return error == MILL_KERR_NONE                ? ANSWERED_WELL
           : error == MILL_KERR_REQUEST_TIMED_OUT ? UNKNOWN
                                                  : REFUSED;
}

static void get_config(const void *context, int32_t index, void *element)
{
    struct mill_create_topics_request_topics_configs *to = element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    to->name = mill_wstr_of("retention.ms");
    to->value = mill_wstr_of("100000");
}

static void get_topic(const void *context, int32_t index, void *element)
{
    struct mill_create_topics_request_topics *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of(context);
    to->num_partitions = PARTITIONS;
    to->replication_factor = 1;
    to->configs = (struct mill_warray){.count = 1, .get = get_config};
}

static enum became create(struct fake *f, const char *name)
{
    struct mill_create_topics_request in;
    struct mill_create_topics_response out;
    struct mill_create_topics_response_topics one;
    struct mill_cursor at;
    mill_create_topics_request_defaults(&in);
    in.topics = (struct mill_warray){.count = 1, .get = get_topic, .context = name};
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_CREATE_TOPICS, 7);
    assert_int_equal(mill_create_topics_request_encode(&writer, 7, &in), 0);
    enum became became = call(f, &writer, MILL_API_KEY_CREATE_TOPICS, 7, &at);
    if (became != ANSWERED_WELL) {
        return became;
    }
    assert_int_equal(mill_create_topics_response_decode(&at, 7, &out), 0);
    assert_true(mill_create_topics_response_topics_next(&out.topics, 7, &one));
    return of_error(one.error_code);
}

static void get_growth(const void *context, int32_t index, void *element)
{
    struct mill_create_partitions_request_topics *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of(context);
    to->count = GROWN;
    to->assignments.count = -1;
}

static enum became grow(struct fake *f, const char *name)
{
    struct mill_create_partitions_request in;
    struct mill_create_partitions_response out;
    struct mill_create_partitions_response_results one;
    struct mill_cursor at;
    mill_create_partitions_request_defaults(&in);
    in.topics = (struct mill_warray){.count = 1, .get = get_growth, .context = name};
    in.timeout_ms = 1000;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_CREATE_PARTITIONS, 3);
    assert_int_equal(mill_create_partitions_request_encode(&writer, 3, &in), 0);
    enum became became = call(f, &writer, MILL_API_KEY_CREATE_PARTITIONS, 3, &at);
    if (became != ANSWERED_WELL) {
        return became;
    }
    assert_int_equal(mill_create_partitions_response_decode(&at, 3, &out), 0);
    assert_true(mill_create_partitions_response_results_next(&out.results, 3, &one));
    return of_error(one.error_code);
}

static void get_setting(const void *context, int32_t index, void *element)
{
    struct mill_incremental_alter_configs_request_resources_configs *to = element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    to->name = mill_wstr_of("retention.ms");
    to->value = mill_wstr_of("200000");
    to->config_operation = 0;
}

static void get_altered(const void *context, int32_t index, void *element)
{
    struct mill_incremental_alter_configs_request_resources *to = element;
    MILL_UNUSED(index);
    to->resource_type = 2;
    to->resource_name = mill_wstr_of(context);
    to->configs = (struct mill_warray){.count = 1, .get = get_setting};
}

static enum became alter(struct fake *f, const char *name)
{
    struct mill_incremental_alter_configs_request in;
    struct mill_incremental_alter_configs_response out;
    struct mill_incremental_alter_configs_response_responses one;
    struct mill_cursor at;
    mill_incremental_alter_configs_request_defaults(&in);
    in.resources = (struct mill_warray){.count = 1, .get = get_altered, .context = name};
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_INCREMENTAL_ALTER_CONFIGS, 1);
    assert_int_equal(mill_incremental_alter_configs_request_encode(&writer, 1, &in), 0);
    enum became became = call(f, &writer, MILL_API_KEY_INCREMENTAL_ALTER_CONFIGS, 1, &at);
    if (became != ANSWERED_WELL) {
        return became;
    }
    assert_int_equal(mill_incremental_alter_configs_response_decode(&at, 1, &out), 0);
    assert_true(mill_incremental_alter_configs_response_responses_next(&out.responses, 1, &one));
    return of_error(one.error_code);
}

static void get_doomed(const void *context, int32_t index, void *element)
{
    struct mill_delete_topics_request_topics *to = element;
    MILL_UNUSED(index);
    to->name = mill_wstr_of(context);
}

static enum became delete_topic(struct fake *f, const char *name)
{
    struct mill_delete_topics_request in;
    struct mill_delete_topics_response out;
    struct mill_delete_topics_response_responses one;
    struct mill_cursor at;
    mill_delete_topics_request_defaults(&in);
    in.topics = (struct mill_warray){.count = 1, .get = get_doomed, .context = name};
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_DELETE_TOPICS, 6);
    assert_int_equal(mill_delete_topics_request_encode(&writer, 6, &in), 0);
    enum became became = call(f, &writer, MILL_API_KEY_DELETE_TOPICS, 6, &at);
    if (became != ANSWERED_WELL) {
        return became;
    }
    assert_int_equal(mill_delete_topics_response_decode(&at, 6, &out), 0);
    assert_true(mill_delete_topics_response_responses_next(&out.responses, 6, &one));
    return of_error(one.error_code);
}

/* --- the sweeps --------------------------------------------------------------------------------
 */

static struct outcomes scenario(struct fake *f)
{
    struct outcomes did;
    did.create_stays = create(f, "stays");
    did.create_goes = create(f, "goes");
    did.grow = grow(f, "stays");
    did.alter = alter(f, "stays");
    did.delete_goes = delete_topic(f, "goes");
    return did;
}

static const struct mill_map_topic *find(const struct fake *f, const char *name)
{
    return mill_map_topic_by_name(f->map, name, (uint32_t)strlen(name));
}

/* A control with enough memory, after whatever the last one did. */
static void restart(struct fake *f)
{
    sweeping = false;
    mill_control_close(f->control);
    f->control = NULL;
    while (fake_take(f)) {
    }
    assert_int_equal(fake_start_control(f, 0), 0);
    fake_turns(f, 40);
    assert_true(mill_control_is_serving(f->control));
}

static void check(struct fake *f, const struct outcomes *did)
{
    const struct mill_map_topic *stays = find(f, "stays");
    if (did->create_stays == ANSWERED_WELL) {
        assert_non_null(stays);
    } else if (did->create_stays == REFUSED) {
        assert_null(stays);
    }
    if (stays) {
        if (did->grow != UNKNOWN) {
            assert_int_equal(stays->partitions_count,
                             did->grow == ANSWERED_WELL ? GROWN : PARTITIONS);
        }
        if (did->alter != UNKNOWN) {
            assert_int_equal(stays->settings.retention_ms,
                             did->alter == ANSWERED_WELL ? RETENTION_LATER_MS : RETENTION_MS);
        }
    }
    if (did->delete_goes == ANSWERED_WELL) {
        assert_null(find(f, "goes"));
    } else if (did->delete_goes == REFUSED && did->create_goes == ANSWERED_WELL) {
        assert_non_null(find(f, "goes"));
    }
}

/* ret: the allocation was reached. */
static bool run(uint64_t at, bool for_good)
{
    struct fake f;
    fake_open(&f, NULL, 0);
    fake_turns(&f, 5);
    sweep_begin(at, for_good);
    struct outcomes did = scenario(&f);
    bool reached = alloc_fail.failed > 0;
    restart(&f);
    check(&f, &did);
    fake_close(&f);
    return reached;
}

static void sweep(bool for_good)
{
    uint64_t runs = 0;
    for (uint64_t at = 1; run(at, for_good); at = alloc_next(at)) {
        assert_in_range(at, 1, CALLS_MAX);
        runs++;
    }
    print_message("%llu runs\n", (unsigned long long)runs);
    assert_true(runs > RUNS_MIN);
}

static void test_each_allocation_fails_alone(void **state)
{
    MILL_UNUSED(state);
    sweep(false);
}

static void test_memory_ends_for_good(void **state)
{
    MILL_UNUSED(state);
    sweep(true);
}

/* A start with topics in its store: it serves all of them, or it ends. */
static void test_each_allocation_of_a_start(void **state)
{
    MILL_UNUSED(state);
    struct fake f;
    fake_open(&f, NULL, 0);
    fake_turns(&f, 5);
    struct outcomes did = scenario(&f);
    assert_int_equal(did.alter, ANSWERED_WELL);
    uint64_t failures = 0;
    bool reached = true;
    for (uint64_t at = 1; reached; at = alloc_next(at)) {
        assert_in_range(at, 1, CALLS_MAX);
        mill_control_close(f.control);
        f.control = NULL;
        sweep_begin(at, false);
        alloc_fail.armed = true;
        int r = fake_start_control(&f, 0);
        alloc_fail.armed = false;
        for (int i = 0; i < 40 && r == 0 && !ended; i++) {
            r = fake_turn(&f);
        }
        reached = alloc_fail.failed > 0;
        sweeping = false;
        if (r < 0 || ended) {
            assert_true(reached);
            failures++;
            restart(&f);
        }
        assert_true(mill_control_is_serving(f.control));
        check(&f, &did);
    }
    assert_true(failures > 20);
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation_fails_alone),
        cmocka_unit_test(test_memory_ends_for_good),
        cmocka_unit_test(test_each_allocation_of_a_start),
    };
    return cmocka_run_group_tests_name("control memory", tests, memory_take, NULL);
}
