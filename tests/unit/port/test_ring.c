/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: frames cross a net_ring pair byte for byte, in order, without the receiver writing a byte
 * of the log, and every loan comes home - also when the other side runs on another thread or holds
 * frames while the sender closes. Method: both sides in this process, the arena read-only. */
#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit/port/support.h"

struct ring_world {
    struct test_world world;
    struct mill_port *port[2];
    const struct mill_link *link[2];
};

static void open_side(struct ring_world *ring, int side, struct mill_port_options options)
{
    struct mill_report report = {.text = ""};
    int code = mill_port_open(&options, &ring->world.arena, ring->world.loans_of, &ring->port[side],
                              &report);
    if (code < 0) {
        print_error("%s\n", report.text);
    }
    assert_int_equal(code, 0);
    ring->link[side] = mill_port_link(ring->port[side], 0);
}

static void open_pair(struct ring_world *ring)
{
    open_side(ring, 0, test_options("net_ring_pair:test:0"));
    open_side(ring, 1, test_options("net_ring_pair:test:1"));
}

static int setup(void **state)
{
    struct ring_world *ring = calloc(1, sizeof(*ring));
    *state = ring;
    test_world_init(&ring->world);
    /* Trap 11: any write into the log by either side ends the test. */
    return mprotect(ring->world.arena.base, TEST_ARENA_BYTES, PROT_READ);
}

static int teardown(void **state)
{
    struct ring_world *ring = *state;
    mill_port_close(ring->port[0]);
    mill_port_close(ring->port[1]);
    test_world_fini(&ring->world);
    free(ring);
    return 0;
}

static struct mill_frame *make(struct ring_world *ring, const struct mill_ref *pieces,
                               uint16_t count)
{
    return test_tcp_frame(ring->link[0], ring->link[1]->caps.mac, NULL, 0, pieces, count);
}

static uint32_t send_all(struct ring_world *ring, struct mill_frame **frames, uint32_t count)
{
    return ring->link[0]->ops->send(ring->link[0]->context, frames, count);
}

static struct mill_buf *receive_one(struct ring_world *ring)
{
    struct mill_buf *frame = NULL;
    (void)ring->link[1]->ops->receive(ring->link[1]->context, &frame, 1);
    return frame;
}

static struct mill_port_counters counters_of(struct mill_port *port)
{
    struct mill_port_counters counters;
    mill_port_counters(port, &counters);
    return counters;
}

static void test_pieces_cross_in_place_and_loans_return(void **state)
{
    struct ring_world *ring = *state;
    static const uint32_t sizes[][5] = {{1446}, {1}, {3, 5, 7, 11, 13}, {512, 700}, {0}};
    static uint8_t wanted[1600];
    static uint8_t got[1600];
    open_pair(ring);
    uint64_t used = counters_of(ring->port[0]).mbufs_used;
    for (size_t row = 0; row < MILL_COUNT_OF(sizes); row++) {
        struct mill_ref pieces[5];
        uint16_t count = 0;
        uint32_t buffers = 0;
        for (; count < 5 && sizes[row][count] > 0; count++) {
            pieces[count] = test_ref(100000u * (count + 1) + 7u, sizes[row][count]);
        }
        uint32_t size_bytes = test_payload(&ring->world, NULL, 0, pieces, count, wanted);
        struct mill_frame *frame = make(ring, pieces, count);
        assert_int_equal(send_all(ring, &frame, 1), 1);
        assert_int_equal(ring->world.loans.loaned_bytes, size_bytes);
        struct mill_buf *in = receive_one(ring);
        assert_non_null(in);
        if (count > 0) {
            /* Not a copy: the receiver looks at the log itself. */
            assert_ptr_equal(in->next->data, mill_ref_data(ring->world.arena.base, &pieces[0]));
        }
        assert_int_equal(in->size_bytes, TEST_HEADERS_BYTES);
        assert_true(in->charge_bytes >= in->size_bytes);
        assert_int_equal(test_take(in, got, sizeof(got), &buffers),
                         TEST_HEADERS_BYTES + size_bytes);
        assert_int_equal(buffers, 1 + count);
        assert_memory_equal(got + TEST_HEADERS_BYTES, wanted, size_bytes);
        assert_true(test_sums_right(got, TEST_HEADERS_BYTES + size_bytes));
        mill_port_tx_done(ring->port[0], 0);
        assert_int_equal(ring->world.loans.loaned_bytes, 0);
    }
    assert_int_equal(counters_of(ring->port[0]).mbufs_used, used);
    assert_int_equal(counters_of(ring->port[0]).bytes_linearised, 0);
    assert_int_equal(counters_of(ring->port[1]).rx_packets, MILL_COUNT_OF(sizes));
    assert_int_equal(counters_of(ring->port[1]).rx_bytes, counters_of(ring->port[0]).tx_bytes);
}

/* A reference is cut where a huge page may end: the rest was lost in silence. */
static void test_piece_over_page_border_is_split(void **state)
{
    struct ring_world *ring = *state;
    static uint8_t wanted[1600];
    static uint8_t got[1600];
    open_pair(ring);
    for (uint32_t before = 0; before <= 1000; before += 250) {
        struct mill_ref ref = test_ref(MILL_CHUNK_BYTES - before, 1000);
        uint32_t buffers = 0;
        (void)test_payload(&ring->world, NULL, 0, &ref, 1, wanted);
        struct mill_frame *frame = make(ring, &ref, 1);
        assert_int_equal(send_all(ring, &frame, 1), 1);
        struct mill_buf *in = receive_one(ring);
        assert_int_equal(in->next->size_bytes, before == 0 || before == 1000 ? 1000 : before);
        assert_int_equal(test_take(in, got, sizeof(got), &buffers), TEST_HEADERS_BYTES + 1000);
        assert_int_equal(buffers, before == 0 || before == 1000 ? 2 : 3);
        assert_memory_equal(got + TEST_HEADERS_BYTES, wanted, 1000);
    }
    mill_port_tx_done(ring->port[0], 0);
    assert_int_equal(ring->world.loans.loaned_bytes, 0);
}

/* The driver takes fewer than offered; nothing is lost, doubled or swapped, and the caller
 * keeps what was not taken. */
static void txburst_short_order(void **state)
{
    struct ring_world *ring = *state;
    struct mill_frame *frames[100];
    static uint8_t got[1600];
    uint32_t sent = 0;
    uint32_t received = 0;
    open_side(ring, 0, test_options("net_ring_pair:small:0:8"));
    open_side(ring, 1, test_options("net_ring_pair:small:1"));
    for (uint32_t i = 0; i < 100; i++) {
        struct mill_ref ref = test_ref(i * 4096, 600 + i);
        frames[i] = make(ring, &ref, 1);
    }
    sent = send_all(ring, frames, 100);
    assert_in_range(sent, 7, 7 + 32); /* the ring's room and one burst pending */
    assert_int_equal(send_all(ring, frames + sent, 100 - sent), 0);
    for (int i = 0; i < 1000 && received < 100; i++) {
        struct mill_buf *in = receive_one(ring);
        if (in != NULL) {
            uint32_t size_bytes = test_take(in, got, sizeof(got), NULL);
            assert_int_equal(size_bytes, TEST_HEADERS_BYTES + 600 + received);
            assert_memory_equal(got + TEST_HEADERS_BYTES, ring->world.arena.base + received * 4096,
                                600 + received);
            received++;
        } else if (sent < 100) {
            sent += send_all(ring, frames + sent, 100 - sent);
        } else {
            mill_port_tx_done(ring->port[0], 0);
        }
    }
    assert_int_equal(received, 100);
    mill_port_tx_done(ring->port[0], 0);
    assert_int_equal(ring->world.loans.loaned_bytes, 0);
    assert_int_equal(counters_of(ring->port[0]).tx_packets, 100);
    assert_int_equal(counters_of(ring->port[0]).tx_stuck, 0);
}

static void test_linearised_bytes_are_equal_and_counted(void **state)
{
    struct ring_world *ring = *state;
    static uint8_t wanted[1600];
    static uint8_t got[1600];
    struct mill_port_options options = test_options("net_ring_pair:flat:0");
    struct mill_port_info info;
    uint32_t buffers = 0;
    options.linearise = true;
    open_side(ring, 0, options);
    open_side(ring, 1, test_options("net_ring_pair:flat:1"));
    struct mill_ref pieces[3] = {test_ref(1, 333), test_ref(MILL_CHUNK_BYTES - 10, 20),
                                 test_ref(5000, 1001)};
    uint32_t size_bytes = test_payload(&ring->world, "xyz", 3, pieces, 3, wanted);
    struct mill_frame *frame =
        test_tcp_frame(ring->link[0], ring->link[1]->caps.mac, "xyz", 3, pieces, 3);
    assert_int_equal(send_all(ring, &frame, 1), 1);
    assert_int_equal(ring->world.loans.loaned_bytes, 0);
    assert_int_equal(test_take(receive_one(ring), got, sizeof(got), &buffers),
                     TEST_HEADERS_BYTES + size_bytes);
    assert_int_equal(buffers, 1);
    assert_memory_equal(got + TEST_HEADERS_BYTES, wanted, size_bytes);
    assert_true(test_sums_right(got, TEST_HEADERS_BYTES + size_bytes));
    assert_int_equal(counters_of(ring->port[0]).bytes_linearised, 333 + 20 + 1001);
    mill_port_info(ring->port[0], &info);
    assert_false(info.zero_copy);
    mill_port_info(ring->port[1], &info);
    assert_true(info.zero_copy);
    assert_true(info.rx_pool_bytes > 4096ull * 2048);
}

/* Frames that can never be sent are dropped, counted, and hold nothing. */
static void test_unsound_frames_are_dropped_and_counted(void **state)
{
    struct ring_world *ring = *state;
    open_pair(ring);
    uint64_t used = counters_of(ring->port[0]).mbufs_used;
    struct mill_ref most[2] = {test_ref(0, 1000), test_ref(8192, 460)};
    for (uint32_t fault = 0; fault < 6; fault++) {
        struct mill_frame *frame = make(ring, most, 2);
        switch (fault) {
        case 0: /* one byte over the MTU */
            frame->pieces[1].size_bytes = 461;
            frame->pieces_bytes = 1461;
            break;
        case 1: /* the sum does not match */
            frame->pieces_bytes--;
            break;
        case 2: /* past the arena's end */
            frame->pieces[0].extent = TEST_ARENA_BYTES / MILL_EXTENT_UNIT_BYTES - 1;
            frame->pieces[0].pos_bytes = 3097;
            break;
        case 3: /* an empty piece */
            frame->pieces[0].size_bytes = 0;
            frame->pieces_bytes = 460;
            break;
        case 4: /* segmentation, which no port offers */
            frame->flags |= MILL_FRAME_TSO;
            break;
        default: /* shorter than an Ethernet header */
            frame->header_bytes = 13;
            break;
        }
        assert_int_equal(send_all(ring, &frame, 1), 1);
        assert_null(receive_one(ring));
        assert_int_equal(counters_of(ring->port[0]).tx_errors, fault + 1);
        assert_int_equal(ring->world.loans.loaned_bytes, 0);
    }
    assert_int_equal(counters_of(ring->port[0]).mbufs_used, used);
    struct mill_frame *frame = make(ring, most, 2); /* exactly the MTU */
    assert_int_equal(send_all(ring, &frame, 1), 1);
    static uint8_t got[1600];
    assert_int_equal(test_take(receive_one(ring), got, sizeof(got), NULL), 1514);
}

static void test_frames_run_out_and_come_back(void **state)
{
    struct ring_world *ring = *state;
    struct mill_frame **frames = calloc(4096, sizeof(*frames));
    uint32_t count = 0;
    open_pair(ring);
    while (count < 4096) {
        frames[count] = ring->link[0]->ops->frame_get(ring->link[0]->context);
        if (frames[count] == NULL) {
            break;
        }
        assert_true(frames[count]->header_capacity >= MILL_FRAME_HEADER_BYTES_MAX);
        count++;
    }
    assert_in_range(count, 1024, 4095);
    assert_int_equal(counters_of(ring->port[0]).frames_empty, 1);
    for (uint32_t i = 0; i < count; i++) {
        ring->link[0]->ops->frame_put(ring->link[0]->context, frames[i]);
    }
    frames[0] = ring->link[0]->ops->frame_get(ring->link[0]->context);
    assert_non_null(frames[0]);
    ring->link[0]->ops->frame_put(ring->link[0]->context, frames[0]);
    free(frames);
}

/* --- another thread ----------------------------------------------------------------------------
 */

enum {
    THREAD_FRAMES = 20000,
};

struct reader {
    const struct mill_link *link;
    const struct test_world *world;
    uint64_t wrong;
    _Atomic uint32_t received;
};

static uint32_t size_of(uint32_t index)
{
    return 1 + index * 37 % 1400;
}

static void *read_thread(void *context)
{
    struct reader *reader = context;
    uint8_t got[1600];
    struct mill_buf *in[32];
    uint32_t received = 0;
    MILL_ASSERT_EQ(mill_port_thread_register(), 0);
    while (received < THREAD_FRAMES) {
        uint32_t count = reader->link->ops->receive(reader->link->context, in, 32);
        for (uint32_t i = 0; i < count; i++, received++) {
            uint32_t size_bytes = test_take(in[i], got, sizeof(got), NULL);
            uint32_t pos = received % 1000 * 4096;
            if (size_bytes != TEST_HEADERS_BYTES + size_of(received) ||
                memcmp(got + TEST_HEADERS_BYTES, reader->world->arena.base + pos,
                       size_of(received)) != 0) {
                reader->wrong++;
            }
        }
        atomic_store_explicit(&reader->received, received, memory_order_release);
        if (count == 0) {
            sched_yield(); /* two CPUs are shared with everything else */
        }
    }
    mill_port_thread_unregister();
    return NULL;
}

/* The receiver frees on its own thread; loans are counted by the sender's alone. */
static void test_loans_return_from_another_thread(void **state)
{
    struct ring_world *ring = *state;
    pthread_t thread;
    open_pair(ring);
    struct reader reader = {.link = ring->link[1], .world = &ring->world};
    assert_int_equal(pthread_create(&thread, NULL, read_thread, &reader), 0);
    for (uint32_t sent = 0; sent < THREAD_FRAMES;) {
        struct mill_ref ref = test_ref(sent % 1000 * 4096, size_of(sent));
        struct mill_frame *frame = make(ring, &ref, 1);
        if (frame == NULL || send_all(ring, &frame, 1) == 0) {
            if (frame != NULL) {
                ring->link[0]->ops->frame_put(ring->link[0]->context, frame);
            }
            mill_port_tx_done(ring->port[0], 0);
            sched_yield();
            continue;
        }
        sent++;
    }
    while (atomic_load_explicit(&reader.received, memory_order_acquire) < THREAD_FRAMES) {
        mill_port_tx_done(ring->port[0], 0);
        sched_yield();
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    mill_port_tx_done(ring->port[0], 0);
    assert_int_equal(reader.wrong, 0);
    assert_int_equal(ring->world.loans.loaned_bytes, 0);
}

/* Either side may close first, with frames on their way; names can be used again after. */
static void test_pair_closes_in_any_order_and_reopens(void **state)
{
    struct ring_world *ring = *state;
    static uint8_t got[1600];
    for (int round = 0; round < 6; round++) {
        int first = round & 1;
        open_pair(ring);
        struct mill_ref ref = test_ref(0, 1000);
        struct mill_frame *frames[2] = {make(ring, &ref, 1), make(ring, &ref, 1)};
        assert_int_equal(send_all(ring, frames, 2), 2);
        struct mill_buf *in = receive_one(ring);
        mill_port_close(ring->port[first]);
        assert_int_equal(test_take(in, got, sizeof(got), NULL), TEST_HEADERS_BYTES + 1000);
        mill_port_close(ring->port[1 - first]);
        ring->port[0] = ring->port[1] = NULL;
        assert_int_equal(ring->world.loans.loaned_bytes, 0);
    }
}

static void test_wrong_pair_is_refused_with_reason(void **state)
{
    struct ring_world *ring = *state;
    static const char *const wrong[] = {"net_ring_pair:a",     "net_ring_pair:a:2",
                                        "net_ring_pair:a:0:7", "net_ring_pair:a:0:8x",
                                        "net_ring_pair::0",    "net_ring_pair:thisnameistoolong:0"};
    struct mill_report report;
    struct mill_port *port = NULL;
    for (size_t i = 0; i < MILL_COUNT_OF(wrong); i++) {
        struct mill_port_options options = test_options(wrong[i]);
        assert_int_equal(
            mill_port_open(&options, &ring->world.arena, ring->world.loans_of, &port, &report),
            -EINVAL);
        assert_non_null(strstr(report.text, wrong[i]));
    }
    open_side(ring, 0, test_options("net_ring_pair:test:0"));
    struct mill_port_options options = test_options("net_ring_pair:test:0");
    assert_int_equal(
        mill_port_open(&options, &ring->world.arena, ring->world.loans_of, &port, &report),
        -EEXIST);
    assert_null(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pieces_cross_in_place_and_loans_return, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_piece_over_page_border_is_split, setup, teardown),
        cmocka_unit_test_setup_teardown(txburst_short_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_linearised_bytes_are_equal_and_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_unsound_frames_are_dropped_and_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_frames_run_out_and_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loans_return_from_another_thread, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pair_closes_in_any_order_and_reopens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_pair_is_refused_with_reason, setup, teardown),
    };
    if (test_eal_start("mill-test-ring") < 0) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mill_eal_stop();
    return failed;
}
