/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each change of a port is told once, a flapping one once a second, blank checksums once a
 * minute, and a port whose interface is gone never again. Method: looks by hand on virtual time. */
#include "tests/unit/test.h"

#include "base/clock.h"
#include "dataplane/core/port_events.h"

#define LOOK_NS (250 * MILL_NS_PER_MS)

static void test_link_changes_are_told_once(void **state)
{
    (void)state;
    struct mill_port_told told = {0};
    struct mill_port_seen seen = {.up = true};
    uint64_t now = MILL_NS_PER_S;
    assert_int_equal(mill_port_event(&told, &seen, now), MILL_PORT_EVENT_LINK_UP);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(mill_port_event(&told, &seen, now += LOOK_NS), MILL_PORT_EVENT_NONE);
    }
    seen.up = false;
    assert_int_equal(mill_port_event(&told, &seen, now += LOOK_NS), MILL_PORT_EVENT_LINK_DOWN);
    seen.up = true;
    assert_int_equal(mill_port_event(&told, &seen, now += LOOK_NS), MILL_PORT_EVENT_NONE);
    assert_int_equal(mill_port_event(&told, &seen, now += MILL_NS_PER_S), MILL_PORT_EVENT_LINK_UP);
    seen.downs++; /* down and up between two looks */
    assert_int_equal(mill_port_event(&told, &seen, now += MILL_NS_PER_S), MILL_PORT_EVENT_LINK_UP);
}

static void test_flapping_port_is_told_once_a_second(void **state)
{
    (void)state;
    struct mill_port_told told = {0};
    struct mill_port_seen seen = {0};
    uint64_t now = MILL_NS_PER_S;
    uint32_t lines = 0;
    for (uint32_t i = 0; i < 240; i++, now += LOOK_NS) { /* a minute */
        seen.up = i % 2 == 0;
        seen.mtu_small = i % 3 == 0;
        lines += mill_port_event(&told, &seen, now) != MILL_PORT_EVENT_NONE;
    }
    assert_in_range(lines, 30, 60);
}

static void test_gone_is_told_once_and_ends_it(void **state)
{
    (void)state;
    struct mill_port_told told = {0};
    struct mill_port_seen seen = {.gone = true, .mtu_small = true};
    assert_int_equal(mill_port_event(&told, &seen, 1), MILL_PORT_EVENT_GONE);
    for (uint32_t i = 0; i < 100; i++) {
        seen.up = i % 2 == 0;
        seen.checksum_wrong = seen.frames += 1000;
        assert_int_equal(mill_port_event(&told, &seen, i * MILL_NS_PER_S), MILL_PORT_EVENT_NONE);
    }
}

static void test_mtu_is_told_both_ways(void **state)
{
    (void)state;
    struct mill_port_told told = {0};
    struct mill_port_seen seen = {.mtu_small = true};
    assert_int_equal(mill_port_event(&told, &seen, 1), MILL_PORT_EVENT_MTU_SMALL);
    seen.mtu_small = false;
    assert_int_equal(mill_port_event(&told, &seen, MILL_NS_PER_S * 2), MILL_PORT_EVENT_MTU_FITS);
}

static void test_checksums_need_more_than_half(void **state)
{
    (void)state;
    struct mill_port_told told = {0};
    struct mill_port_seen seen = {0};
    uint64_t now = MILL_NS_PER_S;
    uint32_t lines = 0;
    for (uint32_t i = 0; i < 1000; i++) { /* a line that damages every other frame at worst */
        seen.frames += 100;
        seen.checksum_wrong += 50;
        lines += mill_port_event(&told, &seen, now += LOOK_NS) != MILL_PORT_EVENT_NONE;
    }
    assert_int_equal(lines, 0);
    seen.frames += 9; /* SYNs of a peer that tries again and again */
    seen.checksum_wrong += 9;
    assert_int_equal(mill_port_event(&told, &seen, now += LOOK_NS), MILL_PORT_EVENT_NONE);
    seen.frames += 1;
    seen.checksum_wrong += 1;
    assert_int_equal(mill_port_event(&told, &seen, now += LOOK_NS), MILL_PORT_EVENT_CHECKSUMS);
    for (uint32_t i = 0; i < 4 * 60; i++) {
        seen.frames += 100;
        seen.checksum_wrong += 100;
        lines += mill_port_event(&told, &seen, now += LOOK_NS) == MILL_PORT_EVENT_CHECKSUMS;
    }
    assert_int_equal(lines, 1); /* a minute later, again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link_changes_are_told_once),
        cmocka_unit_test(test_flapping_port_is_told_once_a_second),
        cmocka_unit_test(test_gone_is_told_once_and_ends_it),
        cmocka_unit_test(test_mtu_is_told_both_ways),
        cmocka_unit_test(test_checksums_need_more_than_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
