/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a driver without chains gets one buffer per frame, a port without buffers counts that, and
 * receive keeps to its bound. Method: net_null, which swallows and produces without end. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/port/support.h"

static struct test_world world;

static struct mill_port *open_null(struct mill_port_options options)
{
    struct mill_report report = {.text = ""};
    struct mill_port *port = NULL;
    int code = mill_port_open(&options, &world.arena, world.loans_of, &port, &report);
    if (code < 0) {
        print_error("%s\n", report.text);
    }
    assert_int_equal(code, 0);
    return port;
}

/* net_null reports no multi-segment support; with copy=1 it reads the first segment only. */
static void test_send_without_chains_copies_and_counts(void **state)
{
    struct mill_port *port = open_null(test_options("net_null0,no-rx=1"));
    const struct mill_link *link = mill_port_link(port, 0);
    struct mill_port_counters counters;
    MILL_UNUSED(state);
    for (int i = 0; i < 100; i++) {
        struct mill_ref ref = test_ref(0, 1400);
        struct mill_frame *frame = test_tcp_frame(link, link->caps.mac, NULL, 0, &ref, 1);
        assert_non_null(frame);
        assert_int_equal(link->ops->send(link->context, &frame, 1), 1);
        assert_int_equal(world.loans.loaned_bytes, 0);
    }
    mill_port_counters(port, &counters);
    assert_int_equal(counters.tx_packets, 100);
    assert_int_equal(counters.bytes_linearised, 100 * 1400);
    assert_int_equal(counters.mbufs_used, 0);
    assert_true(counters.mbufs_total > 0);
    int fd;
    assert_int_equal(mill_port_fds(port, 0, &fd, 1), 0);
    mill_port_close(port);
}

static void test_receive_stops_at_max_and_at_empty_pool(void **state)
{
    struct mill_port_options options = test_options("net_null1,size=60");
    static struct mill_buf *frames[1024];
    struct mill_port_counters counters;
    uint32_t held = 0;
    MILL_UNUSED(state);
    options.rx_buffers = 511;
    struct mill_port *port = open_null(options);
    const struct mill_link *link = mill_port_link(port, 0);
    assert_int_equal(link->ops->receive(link->context, frames, 5), 5);
    held = 5;
    for (int i = 0; i < 40; i++) {
        held += link->ops->receive(link->context, frames + held, 20);
    }
    assert_in_range(held, 480, 511);
    mill_port_counters(port, &counters);
    assert_int_equal(counters.rx_packets, held);
    assert_int_equal(counters.rx_bytes, 60u * held);
    assert_int_equal(counters.mbufs_used, held);
    for (uint32_t i = 0; i < held; i++) {
        assert_null(frames[i]->next);
        frames[i]->free(frames[i]);
    }
    assert_int_equal(link->ops->receive(link->context, frames, 5), 5);
    for (uint32_t i = 0; i < 5; i++) {
        frames[i]->free(frames[i]);
    }
    mill_port_close(port);
}

static void test_open_unknown_device_names_it(void **state)
{
    static const struct {
        const char *device;
        int code;
        const char *says;
    } rows[] = {
        {"net_tpa0,iface=x", -ENODEV, "net_tpa0"},
        {"", -ENODEV, "(empty)"},
        {"0000:ff:1f.7", -ENODEV, "lspci"},
        {"net_null2,nonsense=1", -EINVAL, "net_null2"},
    };
    struct mill_report report;
    struct mill_port *port = NULL;
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        struct mill_port_options options = test_options(rows[i].device);
        int code = mill_port_open(&options, &world.arena, world.loans_of, &port, &report);
        assert_true(code < 0);
        assert_non_null(strstr(report.text, "dpdk port nic0: "));
        if (strstr(report.text, rows[i].says) == NULL) {
            fail_msg("%s: %s", rows[i].device, report.text);
        }
        assert_null(port);
    }
}

static void test_open_device_twice_is_refused(void **state)
{
    struct mill_report report;
    struct mill_port *second = NULL;
    struct mill_port *port = open_null(test_options("net_null3,no-rx=1"));
    struct mill_port_options options = test_options("net_null3,no-rx=1");
    MILL_UNUSED(state);
    assert_int_equal(mill_port_open(&options, &world.arena, world.loans_of, &second, &report),
                     -EEXIST);
    assert_non_null(strstr(report.text, "net_null3"));
    mill_port_close(port);
    mill_port_close(open_null(options));
}

static void test_eal_starts_once(void **state)
{
    struct mill_report report;
    struct mill_eal_options options = {.file_prefix = "mill-test-null", .memory_mb = 64};
    MILL_UNUSED(state);
    assert_int_equal(mill_eal_start(&options, &report), -EALREADY);
    assert_non_null(strstr(report.text, "once per process"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_send_without_chains_copies_and_counts),
        cmocka_unit_test(test_receive_stops_at_max_and_at_empty_pool),
        cmocka_unit_test(test_open_unknown_device_names_it),
        cmocka_unit_test(test_open_device_twice_is_refused),
        cmocka_unit_test(test_eal_starts_once),
    };
    test_world_init(&world);
    if (test_eal_start("mill-test-null") < 0) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mill_eal_stop();
    test_world_fini(&world);
    return failed;
}
