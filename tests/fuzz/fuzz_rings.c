/* SPDX-License-Identifier: Apache-2.0 */
/* Rings and frames that the other process wrote into shared memory: whatever stands there, the
 * reader stays inside it, ends, and a sound producer that comes after is understood. An input is
 * the ring's whole memory: two positions, then data. */
#include "tests/fuzz/fuzz.h"

#include "hugepages/ring.h"
#include "ipc/frames.h"

enum {
    RING_BYTES = 1024,
    SEGMENT_SCRATCH_BYTES = 4096,
    MESSAGES_MAX = RING_BYTES / MILL_RING_HEADER_BYTES + 1, /* that can lie in it */
    KIND = 5,
    SIZE = 40,
};

static struct mill_ipc_segment *segment;
static uint64_t segment_bytes;

/* Reads every byte that a reader was given. */
static volatile uint8_t sum;

static void touch(const uint8_t *bytes, uint32_t size)
{
    for (uint32_t i = 0; bytes && i < size; i++) {
        sum = (uint8_t)(sum + bytes[i]);
    }
}

/* A frame message's body, as either side takes it. */
static void frame_look(const uint8_t *message, uint32_t size)
{
    struct mill_frame_request head;
    if (size < sizeof(head)) {
        return;
    }
    memcpy(&head, message, sizeof(head));
    struct mill_ipc_scratch *scratch = &segment->cores[0].scratch_out;
    touch(mill_frame_body(segment, segment_bytes, scratch, message, sizeof(head), size,
                          head.scratch, head.size_bytes),
          head.size_bytes);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    MILL_UNUSED(argc);
    MILL_UNUSED(argv);
    segment_bytes = mill_ipc_bytes(1, SEGMENT_SCRATCH_BYTES);
    segment = aligned_alloc(MILL_CACHE_SPACING_BYTES,
                            mill_round_up(segment_bytes, MILL_CACHE_SPACING_BYTES));
    assert_non_null(segment);
    memset(segment, 0, segment_bytes);
    mill_ipc_format(segment, 1, SEGMENT_SCRATCH_BYTES);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.at = data, .left = size};
    uint64_t bytes = mill_ring_bytes(RING_BYTES);
    /* Exactly as large, so that a byte behind it is noticed. */
    void *memory = aligned_alloc(MILL_CACHE_SPACING_BYTES, bytes);
    assert_non_null(memory);
    memset(memory, 0, bytes);
    struct mill_ring_shared *shared = mill_ring_format(memory, RING_BYTES);
    struct mill_ring ring;
    assert_int_equal(mill_ring_attach_consumer(&ring, shared, bytes), 0);
    uint64_t tail = 0;
    for (uint32_t i = 0; i < sizeof(tail); i++) {
        tail = tail << 8 | fuzz_byte(&input);
    }
    atomic_store(&shared->tail, fuzz_byte(&input) & 1 ? tail : tail % (2 * RING_BYTES));
    memcpy(shared->data, input.at, MILL_MIN(input.left, (size_t)RING_BYTES));
    uint32_t kind = 0;
    uint32_t message_bytes = 0;
    uint32_t messages = 0;
    const uint8_t *message;
    while ((message = mill_ring_next(&ring, &kind, &message_bytes)) != NULL) {
        assert_true(message >= shared->data);
        assert_true(message_bytes <= RING_BYTES);
        touch(message, message_bytes);
        frame_look(message, message_bytes);
        assert_true(++messages <= MESSAGES_MAX);
    }
    mill_ring_release(&ring);
    struct mill_ring producer;
    if (atomic_load(&shared->tail) % MILL_RING_ALIGN_BYTES == 0 &&
        mill_ring_attach_producer(&producer, shared, bytes) == 0) {
        void *to = mill_ring_claim(&producer, KIND, SIZE);
        assert_non_null(to);
        memset(to, 0, SIZE);
        mill_ring_publish(&producer);
        assert_non_null(mill_ring_next(&ring, &kind, &message_bytes));
        assert_int_equal(kind, KIND);
        assert_int_equal(message_bytes, SIZE);
    }
    free(memory);
    return 0;
}
