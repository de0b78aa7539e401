/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the send queue keeps the order of bytes, counts loans exactly and never runs out of entries
 * before references or arena bytes do.
 * Method: seeded random calls beside a model that is one flat array of bytes. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/ksock/ksock_impl.h"

enum {
    UNITS = 8,
    REFS = 5,
    ARENA = 4096,
    MODEL_BYTES = 1 << 22,
};

struct bed {
    struct mill_ksock_queue queue;
    struct mill_stream_maker maker;
    struct mill_loans loans;
    struct mill_ref entries[2 * REFS + 2];
    uint8_t small[ARENA];
    uint8_t arena[UNITS * MILL_EXTENT_UNIT_BYTES];
    uint8_t model[MODEL_BYTES]; /* all bytes ever queued */
    size_t queued;
    size_t taken;
};

static struct bed *bed_new(void)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    assert_non_null(bed);
    const struct mill_ksock_config config = {.refs_per_connection = REFS,
                                             .arena_bytes_per_connection = ARENA};
    assert_int_equal(mill_ksock_queue_entries(&config), MILL_COUNT_OF(bed->entries));
    mill_ksock_queue_init(&bed->queue, bed->entries, bed->small, &config);
    assert_int_equal(mill_loans_init(&bed->loans, UNITS, 1), 0);
    bed->maker.loans = &bed->loans;
    bed->maker.arena_base = bed->arena;
    for (size_t i = 0; i < sizeof(bed->arena); i++) {
        bed->arena[i] = (uint8_t)(i * 31 + i / 251);
    }
    return bed;
}

static void bed_free(struct bed *bed)
{
    mill_ksock_queue_drop(&bed->queue, &bed->loans);
    assert_int_equal(bed->loans.loaned_bytes, 0);
    for (unsigned i = 0; i < UNITS; i++) {
        assert_int_equal(bed->loans.uses[i], 0);
    }
    mill_loans_fini(&bed->loans);
    free(bed);
}

static void queue_ref(struct bed *bed, unsigned random)
{
    struct mill_ref ref = {.extent = random % UNITS, .pos_bytes = random % 1000};
    ref.size_bytes = 1 + random / 7 % 3000;
    bool full = bed->queue.refs_count == REFS;
    int error = mill_ksock_queue_ref(&bed->queue, &ref, &bed->maker);
    assert_int_equal(error, full ? -EAGAIN : 0);
    if (error == 0) {
        memcpy(bed->model + bed->queued, mill_ref_data(bed->arena, &ref), ref.size_bytes);
        bed->queued += ref.size_bytes;
    }
}

static void queue_small(struct bed *bed, unsigned random)
{
    uint8_t bytes[1500];
    uint32_t size = 1 + random % sizeof(bytes);
    memset(bytes, (int)(random >> 8), size);
    bytes[0] ^= 0x55;
    bool full = size > ARENA - bed->queue.arena_used;
    int error = mill_ksock_queue_bytes(&bed->queue, bytes, size);
    assert_int_equal(error, full ? -EAGAIN : 0);
    if (error == 0) {
        memcpy(bed->model + bed->queued, bytes, size);
        bed->queued += size;
    }
}

/* What a sendmsg would show the kernel is the model's next bytes. */
static void compare(struct bed *bed)
{
    struct iovec iov[MILL_KSOCK_IOV_MAX];
    uint64_t bytes = 0;
    uint32_t count = mill_ksock_queue_iov(&bed->queue, bed->arena, iov, &bytes);
    size_t at = bed->taken;
    for (uint32_t i = 0; i < count; i++) {
        assert_memory_equal(iov[i].iov_base, bed->model + at, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    assert_int_equal(at, bed->queued);
    assert_int_equal(bytes, bed->queue.bytes);
    assert_int_equal(bed->queue.bytes, bed->queued - bed->taken);
}

static void test_queue_random_calls_same_as_model(void **state)
{
    (void)state;
    struct bed *bed = bed_new();
    srand48(20261130);
    while (bed->queued < MODEL_BYTES - 8192) {
        unsigned random = (unsigned)lrand48();
        unsigned choice = (unsigned)lrand48() % 4;
        if (choice == 0) {
            queue_ref(bed, random);
        } else if (choice == 1) {
            queue_small(bed, random);
        } else if (bed->queue.bytes > 0) {
            uint64_t size = 1 + (uint64_t)lrand48() % bed->queue.bytes;
            mill_ksock_queue_advance(&bed->queue, &bed->maker, size);
            bed->taken += size;
        }
        compare(bed);
    }
    const struct mill_stream_stats *stats = &bed->maker.stats;
    assert_int_equal(stats->bytes_sent_refs + stats->bytes_sent_small, bed->taken);
    assert_int_equal(stats->bytes_copied_out, 0);
    bed_free(bed);
}

/* The worst mix: a small piece before and behind each reference, with the arena wrapped. */
static void test_queue_alternating_pieces_entries_suffice(void **state)
{
    (void)state;
    struct bed *bed = bed_new();
    uint8_t bytes[1];
    assert_int_equal(mill_ksock_queue_bytes(&bed->queue, bed->small, ARENA - 1), 0);
    mill_ksock_queue_advance(&bed->queue, &bed->maker, ARENA - 2);
    struct mill_ref ref = {.extent = 1, .size_bytes = 10};
    for (unsigned i = 0; i < REFS; i++) {
        bytes[0] = (uint8_t)i;
        assert_int_equal(mill_ksock_queue_ref(&bed->queue, &ref, &bed->maker), 0);
        assert_int_equal(mill_ksock_queue_bytes(&bed->queue, bytes, 1), 0);
    }
    assert_int_equal(mill_ksock_queue_ref(&bed->queue, &ref, &bed->maker), -EAGAIN);
    assert_int_equal(bed->loans.uses[1], REFS);
    assert_int_equal(mill_ksock_queue_bytes(&bed->queue, bed->arena, 4000), 0);
    assert_true(bed->queue.count <= bed->queue.entries_max);
    bed_free(bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue_random_calls_same_as_model),
        cmocka_unit_test(test_queue_alternating_pieces_entries_suffice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
