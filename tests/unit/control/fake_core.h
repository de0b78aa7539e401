/* SPDX-License-Identifier: Apache-2.0 */
/* A broker's shared memory with one fake core beside a real control, on virtual time, in one
 * process. The core forwards encoded frames, reads answers, and says of partitions what the test
 * wants. Test code. */
#ifndef MILL_TESTS_UNIT_CONTROL_FAKE_CORE_H
#define MILL_TESTS_UNIT_CONTROL_FAKE_CORE_H

#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "base/check.h"
#include "base/random.h"
#include "control/control.h"
#include "protocol/errors.h"
#include "protocol/messages.h"

enum {
    FAKE_SCRATCH_BYTES = 1 << 20,
    FAKE_MAP_BYTES = 4 << 20,
    FAKE_TOPICS_MAX = 128,
    FAKE_FRAME_BYTES = 1 << 20,
    FAKE_INCARNATION = 77,
};

struct fake {
    char dir[64];
    char file[96];
    struct mill_config *config;
    void *map_memory;
    struct mill_map *map;
    struct mill_ipc_segment *segment;
    uint64_t segment_bytes;
    struct mill_ring frames_out;
    struct mill_ring frames_in;
    struct mill_ring events;
    struct mill_ring commands;
    int bell;
    struct mill_random random;
    struct mill_control *control;
    struct mill_shared_control *shared;
    struct mill_now now;
    uint64_t incarnation;
    uint64_t ticket;
    uint64_t generation; /* of the map as the core followed it last */
    bool serve;          /* report partitions as a good core does */
    uint32_t serve_as;   /* enum mill_partition_state of new partitions */
    uint32_t looks;      /* MILL_COMMAND_LOOK seen */
    int64_t ids_first;   /* last block, -1 none */
    uint8_t *frame;
    uint32_t answer_bytes; /* of the last answer */
    uint32_t outcome;
    struct mill_buf answer_buf;
    uint8_t *answer;
};

static inline void fake_random(void *context, void *ret_bytes, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        ((uint8_t *)ret_bytes)[i] = (uint8_t)mill_random_next(context);
    }
}

static inline void *fake_memory(uint64_t size_bytes)
{
    void *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MILL_ASSERT(memory != MAP_FAILED);
    return memory;
}

/* Starts control on what is there; pages_max bounds the store. ret: mill_control_open's. */
static inline int fake_start_control(struct fake *f, uint32_t pages_max)
{
    struct mill_report report = {0};
    struct mill_control_options options = {.config = f->config,
                                           .map = f->map,
                                           .segment = f->segment,
                                           .segment_bytes = f->segment_bytes,
                                           .core_bells = &f->bell,
                                           .shared = f->shared,
                                           .random = fake_random,
                                           .random_context = &f->random};
    int rc = mill_meta_sqlite_open(f->file, pages_max, &options.meta, &report);
    if (rc == 0) {
        rc = mill_control_open(&options, &f->control, &report);
        if (rc < 0) {
            mill_meta_close(&options.meta);
        }
    }
    if (rc < 0) {
        print_message("%s\n", report.text);
    }
    return rc;
}

static inline void fake_attach(struct fake *f)
{
    const uint64_t frames = mill_ring_bytes(MILL_FRAME_RING_BYTES);
    const uint64_t commands = mill_ring_bytes(MILL_COMMAND_RING_BYTES);
    struct mill_ipc_core *core = &f->segment->cores[0];
    struct mill_ipc_segment *segment = f->segment;
    int rc =
        mill_ring_attach_producer(&f->frames_out, mill_ipc_at(segment, core->frames_out), frames);
    rc |= mill_ring_attach_consumer(&f->frames_in, mill_ipc_at(segment, core->frames_in), frames);
    rc |= mill_ring_attach_producer(&f->events, mill_ipc_at(segment, core->events), commands);
    rc |= mill_ring_attach_consumer(&f->commands, mill_ipc_at(segment, core->commands), commands);
    assert_int_equal(rc, 0);
    atomic_store(&f->segment->dataplane.incarnation, f->incarnation);
}

static inline void fake_open(struct fake *f, const char *const *sets, uint32_t sets_count)
{
    *f = (struct fake){.random = {.state = 4},
                       .now = {.mono_ns = 1000 * MILL_NS_PER_S, .wall_ms = 1},
                       .incarnation = FAKE_INCARNATION,
                       .serve = true,
                       .serve_as = MILL_PARTITION_SERVING,
                       .ids_first = -1};
    struct mill_map_limits limits = {.size_bytes = FAKE_MAP_BYTES, .topics_max = FAKE_TOPICS_MAX};
    snprintf(f->dir, sizeof(f->dir), "/dev/shm/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->file, sizeof(f->file), "%s/millrace.db", f->dir);
    assert_int_equal(mill_config_load(NULL, sets, sets_count, true, &f->config), 0);
    f->map_memory = fake_memory(FAKE_MAP_BYTES);
    mill_map_format(f->map_memory, &limits);
    assert_int_equal(mill_map_open(f->map_memory, FAKE_MAP_BYTES, &f->map), 0);
    f->segment_bytes = mill_ipc_bytes(1, FAKE_SCRATCH_BYTES);
    f->segment = fake_memory(f->segment_bytes);
    f->shared = fake_memory(sizeof(*f->shared));
    mill_ipc_format(f->segment, 1, FAKE_SCRATCH_BYTES);
    f->bell = eventfd(0, EFD_NONBLOCK);
    f->frame = malloc(FAKE_FRAME_BYTES);
    f->answer = malloc(FAKE_FRAME_BYTES);
    assert_non_null(f->frame);
    assert_non_null(f->answer);
    fake_attach(f);
    assert_int_equal(fake_start_control(f, 0), 0);
}

static inline void fake_close(struct fake *f)
{
    char path[128];
    mill_control_close(f->control);
    mill_map_close(f->map);
    mill_config_free(f->config);
    munmap(f->map_memory, FAKE_MAP_BYTES);
    munmap(f->segment, f->segment_bytes);
    munmap(f->shared, sizeof(*f->shared));
    close(f->bell);
    free(f->frame);
    free(f->answer);
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s%s", f->file, ends[i]);
        unlink(path);
    }
    rmdir(f->dir);
}

static inline void fake_say(struct fake *f, const struct mill_uuid *id, uint32_t partition,
                            uint32_t state)
{
    struct mill_event_partition *event =
        mill_ring_claim(&f->events, MILL_EVENT_PARTITION, sizeof(*event));
    assert_non_null(event);
    *event = (struct mill_event_partition){.core_incarnation = f->incarnation,
                                           .topic_id = *id,
                                           .partition = (int32_t)partition,
                                           .state = state};
    mill_ring_publish(&f->events);
}

static inline void fake_say_all(struct fake *f)
{
    for (uint32_t slot = 0; slot < mill_map_slots(f->map); slot++) {
        const struct mill_map_topic *topic = mill_map_topic_at(f->map, slot);
        for (uint32_t i = 0; topic && i < topic->partitions_count; i++) {
            bool deleting = (topic->flags & MILL_TOPIC_DELETING) != 0;
            fake_say(f, &topic->id, i, deleting ? MILL_PARTITION_GONE : f->serve_as);
        }
    }
}

/* One turn of the core, then one of control. */
static inline int fake_turn(struct fake *f)
{
    struct mill_report report = {0};
    uint32_t kind = 0;
    uint32_t size_bytes = 0;
    uint64_t next_ns = 0;
    const void *message;
    bool look = false;
    mill_map_turn(f->map, 0);
    while ((message = mill_ring_next(&f->commands, &kind, &size_bytes))) {
        if (kind == MILL_COMMAND_LOOK) {
            look = true;
            f->looks++;
        } else if (kind != MILL_COMMAND_GRANTS_TOLD) {
            struct mill_command_id_block block;
            assert_int_equal(kind, MILL_COMMAND_ID_BLOCK);
            memcpy(&block, message, sizeof(block));
            assert_int_equal(block.core_incarnation, f->incarnation);
            assert_int_equal(block.count, MILL_CONTROL_ID_BLOCK);
            f->ids_first = block.first;
        }
    }
    mill_ring_release(&f->commands);
    uint64_t generation = mill_map_generation(f->map);
    if (f->serve && (look || generation != f->generation)) {
        f->generation = generation;
        fake_say_all(f);
    }
    f->now.mono_ns += MILL_NS_PER_MS;
    int rc = mill_control_step(f->control, &f->now, &next_ns, &report);
    if (rc < 0) {
        print_message("%s\n", report.text);
    }
    return rc;
}

static inline void fake_turns(struct fake *f, int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(fake_turn(f), 0);
    }
}

/* Begins a request's frame in f->frame with header v1 or v2. */
static inline struct mill_writer fake_begin(struct fake *f, int16_t key, int16_t version)
{
    struct mill_writer writer;
    mill_writer_init(&writer, f->frame, FAKE_FRAME_BYTES, NULL, 0);
    mill_write_i16(&writer, key);
    mill_write_i16(&writer, version);
    mill_write_i32(&writer, 4711);
    mill_write_i16(&writer, 4);
    mill_write_bytes(&writer, "test", 4);
    if (version >= mill_api_find(key)->flexible_from) {
        mill_write_uvarint(&writer, 0);
    }
    return writer;
}

/* Forwards the frame. */
static inline void fake_send(struct fake *f, uint32_t size_bytes)
{
    struct mill_frame_request head = {.core_incarnation = f->incarnation,
                                      .ticket = ++f->ticket,
                                      .deadline_ns = f->now.mono_ns + MILL_NS_PER_S};
    struct mill_buf buf;
    struct mill_cursor body = mill_cursor_over(&buf, f->frame, size_bytes);
    assert_int_equal(mill_frame_put(&f->frames_out, f->segment, &f->segment->cores[0].scratch_out,
                                    MILL_FRAME_REQUEST, &head, sizeof(head), &body),
                     0);
    mill_ring_publish(&f->frames_out);
}

/* Takes an answer if one is there. */
static inline bool fake_take(struct fake *f)
{
    uint32_t kind = 0;
    uint32_t size_bytes = 0;
    struct mill_frame_answer head;
    struct mill_ipc_scratch *scratch = &f->segment->cores[0].scratch_in;
    const void *message = mill_ring_next(&f->frames_in, &kind, &size_bytes);
    if (!message) {
        return false;
    }
    memcpy(&head, message, sizeof(head));
    assert_int_equal(kind, MILL_FRAME_ANSWER);
    assert_int_equal(head.core_incarnation, f->incarnation);
    const uint8_t *body = mill_frame_body(f->segment, f->segment_bytes, scratch, message,
                                          sizeof(head), size_bytes, head.scratch, head.size_bytes);
    assert_non_null(body);
    assert_true(head.size_bytes <= FAKE_FRAME_BYTES);
    memcpy(f->answer, body, head.size_bytes);
    f->answer_bytes = head.size_bytes;
    f->outcome = head.outcome;
    if (head.scratch) {
        mill_scratch_release(scratch);
    }
    mill_ring_release(&f->frames_in);
    return true;
}

/* Sends and turns until the answer is there. ret: a cursor at the answer's body. */
static inline struct mill_cursor fake_call(struct fake *f, const struct mill_writer *writer,
                                           int16_t key, int16_t version)
{
    assert_int_equal(writer->error, 0);
    fake_send(f, writer->size_bytes);
    for (int i = 0; i < 3000 && !fake_take(f); i++) {
        assert_int_equal(fake_turn(f), 0);
    }
    struct mill_cursor at = mill_cursor_over(&f->answer_buf, f->answer, f->answer_bytes);
    if (f->outcome == MILL_OUTCOME_BYTES) {
        assert_int_equal(mill_load_be32(f->answer), f->answer_bytes - 4);
        assert_int_equal(mill_load_be32(f->answer + 4), 4711);
        bool tags = version >= mill_api_find(key)->flexible_from;
        assert_int_equal(mill_cursor_skip(&at, tags ? 9 : 8), 0);
    }
    f->ticket++;
    return at;
}

#endif
