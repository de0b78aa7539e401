/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: lines of Prometheus' format are well formed whatever the bytes in shared memory are, names
 * and values follow from the lists of counters, histograms add up, and health tells who is stuck.
 * Method: a segment of counters in memory, filled by hand. The server itself:
 * tests/clients/metrics.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "control/http/health.h"
#include "control/http/metrics.h"

enum {
    CORES = 2,
    NOW_S = 1000,
};

struct fixture {
    struct mill_counters *counters;
    struct mill_ipc_segment *ipc;
    struct mill_text text;
};

/* As the supervisor maps it. */
static void *zeroed(uint64_t size_bytes)
{
    uint64_t room_bytes = (size_bytes + MILL_CACHE_SPACING_BYTES - 1) / MILL_CACHE_SPACING_BYTES *
                          MILL_CACHE_SPACING_BYTES;
    void *memory = aligned_alloc(MILL_CACHE_SPACING_BYTES, room_bytes);
    assert_non_null(memory);
    return memset(memory, 0, room_bytes);
}

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    f.counters = zeroed(mill_counters_bytes(CORES));
    f.ipc = zeroed(mill_ipc_bytes(CORES, 1 << 20));
    mill_counters_format(f.counters, CORES);
    mill_ipc_format(f.ipc, CORES, 1 << 20);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    free(f->counters);
    free(f->ipc);
    free(f->text.bytes);
    return 0;
}

static const char *rendered(struct fixture *f)
{
    static const struct mill_metrics_process processes[] = {{"control", 7, true}};
    const struct mill_metrics_source source = {
        .counters = f->counters, .wall_ms = 5000, .processes = processes, .processes_count = 1};
    f->text.used_bytes = 0;
    mill_metrics_render(&source, &f->text);
    assert_false(f->text.failed);
    return f->text.bytes;
}

static void assert_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    size_t length = strlen(line);
    while (at && ((at != text && at[-1] != '\n') || at[length] != '\n')) {
        at = strstr(at + 1, line);
    }
    if (!at) {
        fail_msg("not there: %s", line);
    }
}

static void test_text_labels_are_escaped(void **state)
{
    struct fixture *f = *state;
    static const char odd[] = "a\"b\\c\nd\x01\xff";
    const struct mill_label labels[] = {mill_label_of("x", odd, sizeof(odd)),
                                        mill_label_of("cut", "abcdef", 3)};
    mill_text_metric(&f->text, "m", "gauge", "line\nand \"quotes\" \\");
    mill_text_sample_u64(&f->text, "m", "", labels, 2, UINT64_MAX);
    mill_text_sample(&f->text, "m", "_x", NULL, 0, 0.25);
    assert_string_equal(f->text.bytes,
                        "# HELP m line\\nand \"quotes\" \\\\\n# TYPE m gauge\n"
                        "m{x=\"a\\\"b\\\\c\\nd??\",cut=\"abc\"} 18446744073709551615\n"
                        "m_x 0.25\n");
}

static void test_text_over_the_bound_fails(void **state)
{
    struct fixture *f = *state;
    static char large[1 << 20];
    memset(large, 'x', sizeof(large) - 1);
    for (int i = 0; i < 32 && !f->text.failed; i++) {
        mill_text_add(&f->text, "%s", large);
    }
    assert_false(f->text.failed);
    mill_text_add(&f->text, "%s", large);
    assert_true(f->text.failed);
}

static void test_metrics_follow_from_the_lists(void **state)
{
    struct fixture *f = *state;
    struct mill_shared_core *core = &f->counters->cores[1];
    mill_counter_set(&core->turns, 12);
    mill_counter_set(&core->busy_ns, 1500000000);
    mill_counter_set(&core->connections, 3);
    mill_counter_set(&core->staged_total, 9);
    mill_counter_set(&core->net.retransmits, 4);
    f->counters->ports_count = 1;
    memset(f->counters->ports[0].name, 'p', sizeof(f->counters->ports[0].name)); /* no end */
    mill_counter_set(&f->counters->ports[0].mbufs_total, 77);
    f->counters->listeners_count = 1;
    strcpy(f->counters->listeners[0].name, "A");
    strcpy(f->counters->listeners[0].state, "not \"there\"");
    mill_counter_set(&core->listeners[0].bytes_in, 5);
    const char *text = rendered(f);
    assert_line(text, "millrace_core_turns_total{core=\"1\"} 12");
    assert_line(text, "millrace_core_turns_total{core=\"0\"} 0");
    assert_line(text, "millrace_core_busy_seconds_total{core=\"1\"} 1.5");
    assert_line(text, "# TYPE millrace_core_connections gauge");
    assert_line(text, "millrace_core_connections{core=\"1\"} 3");
    assert_line(text, "millrace_core_staged_total{core=\"1\"} 9");
    assert_line(text, "millrace_tcp_retransmits_total{core=\"1\"} 4");
    assert_line(text, "millrace_port_mbufs{port=\"pppppppppppppppppppppppppppppppp\"} 77");
    assert_line(text, "millrace_listener_bytes_in_total{listener=\"A\",core=\"1\"} 5");
    assert_line(text, "millrace_listener_info{listener=\"A\",address=\"\",transport=\"\","
                      "state=\"not \\\"there\\\"\"} 1");
    assert_line(text, "kafka_controller_kafka_controller_active_controllers 1");
    assert_null(strstr(text, "millrace_partition_end_offset{"));
}

static void test_metrics_histogram_adds_up(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < CORES; i++) {
        struct mill_hist *hist =
            &f->counters->cores[i].stages[MILL_STAGE_API_PRODUCE][MILL_STAGE_TOTAL];
        mill_hist_add(hist, 1023);
        mill_hist_add(hist, 1024);
        mill_hist_add(hist, UINT64_MAX >> 1); /* beyond the last bound */
    }
    const char *text = rendered(f);
#define TOTAL "kafka_network_request_metrics_total_time_seconds"
    assert_line(text, "# TYPE " TOTAL " histogram");
    assert_line(text, TOTAL "_bucket{request=\"Produce\",le=\"1.023e-06\"} 2");
    assert_line(text, TOTAL "_bucket{request=\"Produce\",le=\"2.047e-06\"} 4");
    assert_line(text, TOTAL "_bucket{request=\"Produce\",le=\"34.359738367\"} 4");
    assert_line(text, TOTAL "_bucket{request=\"Produce\",le=\"+Inf\"} 6");
    assert_line(text, TOTAL "_count{request=\"Produce\"} 6");
    assert_line(text, "millrace_request_stage_seconds_count{core=\"1\",api=\"produce\","
                      "stage=\"total\"} 3");
}

static void test_metrics_count_apis_and_errors(void **state)
{
    struct fixture *f = *state;
    mill_counter_set(&f->counters->cores[0].apis[0][9], 2);
    mill_counter_set(&f->counters->cores[1].apis[0][9], 3);
    mill_counter_set(&f->counters->cores[1].apis[95][23], 1); /* no such API */
    mill_counter_set(&f->counters->cores[0].errors[1][0], 4); /* -1 */
    mill_counter_set(&f->counters->cores[0].errors[0][1 + 2], 1);
    const char *text = rendered(f);
    assert_line(
        text, "kafka_network_request_metrics_requests_total{request=\"Produce\",version=\"9\"} 5");
    assert_line(text, "kafka_server_broker_topic_metrics_total_produce_requests_total 5");
    assert_line(text, "kafka_network_request_metrics_errors_total{request=\"Fetch\","
                      "error=\"UNKNOWN_SERVER_ERROR\"} 4");
    assert_line(text, "kafka_server_broker_topic_metrics_invalid_message_crc_records_total 1");
}

/* --- health ------------------------------------------------------------------------------------
 */

static void all_well(struct fixture *f)
{
    struct mill_ipc_side *sides[] = {&f->ipc->control, &f->ipc->dataplane};
    for (uint32_t i = 0; i < MILL_COUNT_OF(sides); i++) {
        atomic_store(&sides[i]->serving, 1);
        atomic_store(&sides[i]->beat_ns, (uint64_t)NOW_S * MILL_NS_PER_S);
    }
    for (uint32_t i = 0; i < CORES; i++) {
        mill_counter_set(&f->counters->cores[i].jitter.standstill_ns, 0);
    }
}

static void assert_health(struct fixture *f, const char *live, const char *ready)
{
    uint64_t now_ns = (uint64_t)NOW_S * MILL_NS_PER_S + MILL_NS_PER_MS;
    f->text.used_bytes = 0;
    bool is_live = mill_health_live(f->counters, f->ipc, now_ns, &f->text);
    assert_string_equal(f->text.bytes, live);
    assert_int_equal(is_live, strcmp(live, "ok\n") == 0);
    f->text.used_bytes = 0;
    bool is_ready = mill_health_ready(f->counters, f->ipc, now_ns, &f->text);
    assert_string_equal(f->text.bytes, ready);
    assert_int_equal(is_ready, strcmp(ready, "ok\n") == 0);
}

static void test_health_start(void **state)
{
    struct fixture *f = *state;
    assert_health(f, "ok\n", "control: starting\nmillraced: starting\n");
    all_well(f);
    assert_health(f, "ok\n", "ok\n");
    atomic_store(&f->ipc->dataplane.serving, 0); /* the supervisor restarts it */
    atomic_store(&f->ipc->dataplane.beat_ns, 1);
    assert_health(f, "ok\n", "millraced: starting\n");
}

static void test_health_stuck(void **state)
{
    struct fixture *f = *state;
    all_well(f);
    mill_counter_set(&f->counters->cores[1].jitter.standstill_ns, 1000 * MILL_NS_PER_MS);
    assert_health(f, "ok\n", "ok\n");
    mill_counter_set(&f->counters->cores[1].jitter.standstill_ns, 3000 * MILL_NS_PER_MS);
    assert_health(f, "ok\n", "core 1: no turn for 3000 ms while awake\n");
    mill_counter_set(&f->counters->cores[1].jitter.standstill_ns, 11000 * MILL_NS_PER_MS);
    assert_health(f, "core 1: no turn for 11000 ms while awake\n",
                  "core 1: no turn for 11000 ms while awake\n");
    all_well(f);
    atomic_store(&f->ipc->dataplane.beat_ns, (NOW_S - 20) * MILL_NS_PER_S);
    assert_health(f, "millraced: its main thread has not run for 20001 ms\n",
                  "millraced: its main thread has not run for 20001 ms\n");
    all_well(f);
    /* What has a leader is served without control. */
    atomic_store(&f->ipc->control.beat_ns, (NOW_S - 20) * MILL_NS_PER_S);
    assert_health(f, "control: no turn for 20001 ms\n", "ok\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text_labels_are_escaped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_text_over_the_bound_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_follow_from_the_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_histogram_adds_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_count_apis_and_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_health_start, setup, teardown),
        cmocka_unit_test_setup_teardown(test_health_stuck, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
