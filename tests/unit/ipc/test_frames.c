/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the segment's parts lie apart and inside it, a damaged one is refused, and a frame arrives
 * whole through the ring or the scratch slot, or is refused without a trace. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/counters.h"
#include "ipc/frames.h"

enum {
    SCRATCH_BYTES = 1 << 20,
    CORES = 3,
};

struct fixture {
    struct mill_ipc_segment *segment;
    uint64_t size_bytes;
    struct mill_ring producer;
    struct mill_ring consumer;
};

static struct fixture open_fixture(void)
{
    struct fixture f = {.size_bytes = mill_ipc_bytes(CORES, SCRATCH_BYTES)};
    f.segment = aligned_alloc(MILL_CACHE_SPACING_BYTES, f.size_bytes);
    assert_non_null(f.segment);
    memset(f.segment, 0, f.size_bytes);
    mill_ipc_format(f.segment, CORES, SCRATCH_BYTES);
    void *ring = mill_ipc_at(f.segment, f.segment->cores[1].frames_out);
    uint64_t limit = mill_ring_bytes(MILL_FRAME_RING_BYTES);
    assert_int_equal(mill_ring_attach_producer(&f.producer, ring, limit), 0);
    assert_int_equal(mill_ring_attach_consumer(&f.consumer, ring, limit), 0);
    return f;
}

static int put(struct fixture *f, const uint8_t *bytes, uint32_t size_bytes)
{
    struct mill_frame_request request = {.ticket = size_bytes};
    struct mill_buf buf;
    struct mill_cursor body = mill_cursor_over(&buf, bytes, size_bytes);
    int rc = mill_frame_put(&f->producer, f->segment, &f->segment->cores[1].scratch_out,
                            MILL_FRAME_REQUEST, &request, sizeof(request), &body);
    mill_ring_publish(&f->producer);
    return rc;
}

static void expect(struct fixture *f, const uint8_t *bytes, uint32_t size_bytes)
{
    uint32_t kind = 0;
    uint32_t message_bytes = 0;
    struct mill_frame_request request;
    struct mill_ipc_scratch *scratch = &f->segment->cores[1].scratch_out;
    const void *message = mill_ring_next(&f->consumer, &kind, &message_bytes);
    assert_non_null(message);
    assert_int_equal(kind, MILL_FRAME_REQUEST);
    memcpy(&request, message, sizeof(request));
    assert_int_equal(request.ticket, size_bytes);
    assert_int_equal(request.size_bytes, size_bytes);
    const uint8_t *body =
        mill_frame_body(f->segment, f->size_bytes, scratch, message, sizeof(request), message_bytes,
                        request.scratch, request.size_bytes);
    assert_non_null(body);
    assert_memory_equal(body, bytes, size_bytes);
    if (request.scratch) {
        mill_scratch_release(scratch);
    }
    mill_ring_release(&f->consumer);
}

static uint8_t *make_bytes(void)
{
    uint8_t *bytes = malloc(SCRATCH_BYTES + 1);
    assert_non_null(bytes);
    for (uint32_t i = 0; i <= SCRATCH_BYTES; i++) {
        bytes[i] = (uint8_t)(i * 31 + (i >> 9));
    }
    return bytes;
}

static void test_frame_put_sizes_arrive_whole(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    uint8_t *bytes = make_bytes();
    const uint32_t quarter = MILL_FRAME_RING_BYTES / 4;
    const uint32_t head = sizeof(struct mill_frame_request);
    const uint32_t sizes[] = {0,       1,           7,           quarter - head,
                              quarter, quarter + 1, quarter * 2, SCRATCH_BYTES};
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < MILL_COUNT_OF(sizes); i++) {
            assert_int_equal(put(&f, bytes, sizes[i]), 0);
            expect(&f, bytes, sizes[i]);
        }
    }
    free(bytes);
    free(f.segment);
}

static void test_frame_put_limits(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    uint8_t *bytes = make_bytes();
    assert_int_equal(put(&f, bytes, SCRATCH_BYTES + 1), -EMSGSIZE);
    assert_true(mill_ring_empty(&f.consumer));
    /* One scratch slot: a second large frame waits for the first to be read. */
    assert_int_equal(put(&f, bytes, SCRATCH_BYTES), 0);
    assert_int_equal(put(&f, bytes, SCRATCH_BYTES - 1), -EAGAIN);
    assert_int_equal(put(&f, bytes, 100), 0);
    expect(&f, bytes, SCRATCH_BYTES);
    expect(&f, bytes, 100);
    assert_int_equal(put(&f, bytes, SCRATCH_BYTES - 1), 0);
    expect(&f, bytes, SCRATCH_BYTES - 1);
    int rc = 0;
    uint32_t count = 0;
    while ((rc = put(&f, bytes, 100000)) == 0) {
        count++;
    }
    assert_int_equal(rc, -EAGAIN);
    assert_in_range(count, 8, 10);
    for (; count > 0; count--) {
        expect(&f, bytes, 100000);
    }
    assert_int_equal(put(&f, bytes, 100000), 0);
    free(bytes);
    free(f.segment);
}

static void test_frame_body_malformed_is_null(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    struct mill_ipc_scratch *scratch = &f.segment->cores[0].scratch_out;
    uint8_t message[200] = {0};
    const uint32_t head = sizeof(struct mill_frame_request);
    assert_null(mill_frame_body(f.segment, f.size_bytes, scratch, message, head, head - 1, 0, 0));
    assert_null(mill_frame_body(f.segment, f.size_bytes, scratch, message, head, head + 4, 0, 5));
    assert_non_null(
        mill_frame_body(f.segment, f.size_bytes, scratch, message, head, head + 4, 0, 4));
    assert_null(mill_frame_body(f.segment, f.size_bytes, scratch, message, head, head, 1, 4));
    atomic_store(&scratch->busy, 1);
    assert_non_null(mill_frame_body(f.segment, f.size_bytes, scratch, message, head, head, 1, 4));
    scratch->offset = f.size_bytes - 3;
    assert_null(mill_frame_body(f.segment, f.size_bytes, scratch, message, head, head, 1, 4));
    scratch->offset = UINT64_MAX;
    assert_null(mill_frame_body(f.segment, f.size_bytes, scratch, message, head, head, 1, 4));
    free(f.segment);
}

static void test_ipc_check_damaged_refused(void **state)
{
    (void)state;
    struct fixture f = open_fixture();
    assert_int_equal(mill_ipc_check(f.segment, f.size_bytes), 0);
    assert_int_equal(mill_ipc_check(f.segment, f.size_bytes - 1), -EBADMSG);
    assert_int_equal(mill_ipc_check(f.segment, 8), -EBADMSG);
    f.segment->cores_count = 4;
    assert_int_equal(mill_ipc_check(f.segment, f.size_bytes), -EBADMSG);
    f.segment->cores_count = CORES;
    f.segment->version++;
    assert_int_equal(mill_ipc_check(f.segment, f.size_bytes), -EBADMSG);
    f.segment->version--;
    uint64_t kept = f.segment->cores[2].commands;
    const uint64_t wrong[] = {0, kept + 1, f.size_bytes, UINT64_MAX - 127};
    for (size_t i = 0; i < MILL_COUNT_OF(wrong); i++) {
        f.segment->cores[2].commands = wrong[i];
        assert_int_equal(mill_ipc_check(f.segment, f.size_bytes), -EBADMSG);
    }
    f.segment->cores[2].commands = kept;
    assert_int_equal(mill_ipc_check(f.segment, f.size_bytes), 0);
    free(f.segment);
}

static void test_counters_check(void **state)
{
    (void)state;
    uint64_t size_bytes = mill_counters_bytes(2);
    struct mill_counters *counters =
        aligned_alloc(MILL_CACHE_SPACING_BYTES, mill_round_up(size_bytes, 128));
    assert_non_null(counters);
    memset(counters, 0, size_bytes);
    assert_int_equal(mill_counters_check(counters, size_bytes), -EBADMSG);
    mill_counters_format(counters, 2);
    assert_int_equal(mill_counters_check(counters, size_bytes), 0);
    assert_int_equal(mill_counters_check(counters, size_bytes - 1), -EBADMSG);
    counters->cores_count = 3;
    assert_int_equal(mill_counters_check(counters, size_bytes), -EBADMSG);
    counters->cores_count = 2;
    counters->ports_count = MILL_COUNTERS_PORTS_MAX + 1;
    assert_int_equal(mill_counters_check(counters, size_bytes), -EBADMSG);
    free(counters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_put_sizes_arrive_whole),
        cmocka_unit_test(test_frame_put_limits),
        cmocka_unit_test(test_frame_body_malformed_is_null),
        cmocka_unit_test(test_ipc_check_damaged_refused),
        cmocka_unit_test(test_counters_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
