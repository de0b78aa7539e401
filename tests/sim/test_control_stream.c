/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: control's stream is a client like any other, whose death at any moment leaves nothing
 * behind; and what waits for control waits no longer than it lives. Method: a whole broker on
 * virtual time (world.h), in which the test writes control's ring by hand, reads nothing for a
 * while, or lets control hang. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/core/core_types.h"
#include "protocol/errors.h"
#include "tests/sim/world.h"
#include "tests/unit/test.h"

enum {
    FRAME_BYTES_MAX = 1 << 20,
    ANSWER_BYTES_MAX = 4 << 20,
    PADDING_BYTES = 200000, /* of a record, more than a ring half */
};

static const char topic[] = "stream";

/* The far end of the stream. */
struct far {
    struct world *world;
    struct mill_ring out;
    struct mill_ring in;
    uint64_t incarnation;
    uint64_t stream_id;
    uint64_t pos_bytes;
    bool ended;
    uint8_t *frame; /* made by a client without a connection */
    uint32_t frame_bytes;
    uint8_t *answer;
    uint32_t answer_bytes;
};

static void keep_frame(void *context, const void *frame, uint32_t size_bytes)
{
    struct far *far = context;
    assert_true(size_bytes <= FRAME_BYTES_MAX);
    memcpy(far->frame, frame, size_bytes);
    far->frame_bytes = size_bytes;
}

static void far_open(struct far *far, struct world *world)
{
    const uint64_t bytes = mill_ring_bytes(MILL_STREAM_RING_BYTES);
    const struct mill_ipc_core *core = &world->ipc->cores[0];
    *far = (struct far){.world = world, .incarnation = world->incarnation, .stream_id = 11};
    assert_int_equal(
        mill_ring_attach_producer(&far->out, mill_ipc_at(world->ipc, core->stream_in), bytes), 0);
    assert_int_equal(
        mill_ring_attach_consumer(&far->in, mill_ipc_at(world->ipc, core->stream_out), bytes), 0);
    far->frame = malloc(FRAME_BYTES_MAX);
    far->answer = malloc(ANSWER_BYTES_MAX);
    assert_non_null(far->frame);
    assert_non_null(far->answer);
}

static void far_close(struct far *far)
{
    free(far->frame);
    free(far->answer);
}

/* Puts bytes of the frame into the ring, turning when it is full. */
static void far_send(struct far *far, uint32_t from, uint32_t size_bytes)
{
    for (uint32_t at = from; at < from + size_bytes;) {
        uint32_t part = MILL_MIN(from + size_bytes - at, (uint32_t)MILL_STREAM_PART_BYTES);
        struct mill_stream_part head = {.core_incarnation = far->incarnation,
                                        .stream_id = far->stream_id,
                                        .pos_bytes = far->pos_bytes,
                                        .size_bytes = part};
        uint8_t *message =
            mill_ring_claim(&far->out, MILL_STREAM_PART, (uint32_t)sizeof(head) + part);
        if (!message) {
            world_turn(far->world, MILL_NS_PER_MS);
            continue;
        }
        memcpy(message, &head, sizeof(head));
        memcpy(message + sizeof(head), far->frame + at, part);
        mill_ring_publish(&far->out);
        far->pos_bytes += part;
        at += part;
    }
}

/* Takes what is there of the stream. */
static void far_take(struct far *far)
{
    const uint8_t *message;
    uint32_t kind;
    uint32_t size;
    while ((message = mill_ring_next(&far->in, &kind, &size)) != NULL) {
        struct mill_stream_part head;
        assert_true(size >= sizeof(head));
        memcpy(&head, message, sizeof(head));
        if (head.stream_id == far->stream_id && kind == MILL_STREAM_END) {
            far->ended = true;
        } else if (head.stream_id == far->stream_id) {
            assert_true(far->answer_bytes + head.size_bytes <= ANSWER_BYTES_MAX);
            memcpy(far->answer + far->answer_bytes, message + sizeof(head), head.size_bytes);
            far->answer_bytes += head.size_bytes;
        }
        mill_ring_release(&far->in);
    }
}

/* ret: true when a whole answer is there. */
static bool far_answered(struct far *far, uint32_t turns)
{
    for (uint32_t i = 0; i < turns && !far->ended; i++) {
        far_take(far);
        if (far->answer_bytes >= 4 && far->answer_bytes == 4 + mill_load_be32(far->answer)) {
            return true;
        }
        world_turn(far->world, MILL_NS_PER_MS);
    }
    return false;
}

static void produce_frame(struct far *far, const char *to, uint32_t padding_bytes)
{
    struct world_client client = {.world = far->world, .send = keep_frame, .send_context = far};
    world_produce_send(&client, to, 0, -1, -1, 1, 1, padding_bytes);
}

/* Error of the produce answer that is there. */
static int16_t produce_error(struct far *far, const char *to)
{
    struct world_client client = {.world = far->world, .answer = far->answer + 4};
    return world_produced_read(&client, to).error;
}

static void test_stream_answers_in_parts_whatever_the_room(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct far far;
    struct world_client client = {.world = &world, .send = keep_frame, .send_context = &far};
    const struct world_fetch_options all = {
        .bytes_min = 1, .bytes_max = 1 << 20, .partition_bytes_max = 1 << 20, .session_epoch = -1};
    world_open(&world, 1, 3);
    world_topic(&world, topic, 1, "flush.messages", "100000");
    world.control_stopped = true; /* the test is at its end of the rings */
    far_open(&far, &world);
    for (int i = 0; i < 4; i++) {
        far.answer_bytes = 0;
        produce_frame(&far, topic, PADDING_BYTES);
        far_send(&far, 0, far.frame_bytes);
        assert_true(far_answered(&far, 2000));
        assert_int_equal(produce_error(&far, topic), 0);
    }
    /* 800 kB come through a ring of 256: nobody reads for a while. */
    far.answer_bytes = 0;
    world_fetch_send(&client, topic, 1, &all);
    far_send(&far, 0, far.frame_bytes);
    for (int i = 0; i < 300; i++) {
        world_turn(&world, MILL_NS_PER_MS);
    }
    assert_true(world.cores[0].loans.loaned_bytes > 0);
    assert_true(far_answered(&far, 5000));
    assert_true(far.answer_bytes > 4 * PADDING_BYTES);
    world_settle(&world, 1000);
    assert_int_equal(world.cores[0].loans.loaned_bytes, 0);
    world.control_stopped = false;
    far_close(&far);
    world_close(&world);
}

static void test_stream_parts_of_others_are_left_alone(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct far far;
    world_open(&world, 1, 3);
    world_topic(&world, topic, 1, "flush.messages", "100000");
    world.control_stopped = true; /* the test is at its end of the rings */
    far_open(&far, &world);
    produce_frame(&far, topic, 10);
    far.incarnation++; /* meant for a millraced that is gone */
    far_send(&far, 0, far.frame_bytes);
    assert_false(far_answered(&far, 300));
    far.incarnation--;
    far.pos_bytes = 100; /* the middle of a stream whose beginning is gone */
    far_send(&far, 0, far.frame_bytes);
    assert_false(far_answered(&far, 300));
    assert_false(far.ended);
    far.pos_bytes = 0;
    far_send(&far, 0, far.frame_bytes);
    assert_true(far_answered(&far, 2000));
    assert_int_equal(produce_error(&far, topic), 0);
    assert_int_equal(mill_partition_end(mill_log_at(world.cores[0].core->log, 0)), 1);
    far.pos_bytes += 7; /* a hole: nothing after it can be right */
    far_send(&far, 0, far.frame_bytes);
    far.answer_bytes = 0;
    assert_false(far_answered(&far, 300));
    assert_true(far.ended);
    world.control_stopped = false;
    far_close(&far);
    world_close(&world);
}

/* A control that dies in the middle of a request has appended nothing; the next begins anew. */
static void test_stream_half_a_request_dies_with_its_sender(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct far far;
    world_open(&world, 1, 3);
    world_topic(&world, topic, 1, "flush.messages", "100000");
    world.control_stopped = true; /* the test is at its end of the rings */
    far_open(&far, &world);
    for (int i = 0; i < 5; i++) {
        produce_frame(&far, topic, PADDING_BYTES);
        far_send(&far, 0, far.frame_bytes / 6 * ((uint32_t)i + 1));
        for (int turn = 0; turn < 50; turn++) {
            world_turn(&world, MILL_NS_PER_MS);
        }
        far.stream_id++;
        far.pos_bytes = 0;
    }
    far_send(&far, 0, far.frame_bytes);
    assert_true(far_answered(&far, 2000));
    assert_int_equal(produce_error(&far, topic), 0);
    assert_int_equal(mill_partition_end(mill_log_at(world.cores[0].core->log, 0)), 1);
    world_settle(&world, 1000);
    assert_int_equal(world.cores[0].core->staged_now, 0);
    assert_int_equal(world.cores[0].core->stage_reserved, 0);
    assert_int_equal(world.cores[0].core->pinned_bytes, 0);
    world.control_stopped = false;
    far_close(&far);
    world_close(&world);
}

static void test_internal_topics_are_written_by_control_only(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    static const char offsets[] = "__consumer_offsets";
    struct world_client client;
    world_open(&world, 1, 3);
    world_offsets_topic(&world);
    world_connect(&world, &client, 0);
    world_produce_send(&client, offsets, 0, -1, -1, 1, 1, 10);
    world_await(&client);
    assert_int_equal(world_produced_read(&client, offsets).error,
                     MILL_KERR_INVALID_TOPIC_EXCEPTION);
    world_disconnect(&client);
    world_close(&world);
}

/* --- waiting for control --------------------------------------------------------------------- */

/* JoinGroup version 0 of a group whose other member never joins again. */
static void join_send(struct world_client *client, const char *group)
{
    uint8_t body[256];
    struct mill_writer to;
    struct mill_join_group_request message;
    mill_join_group_request_defaults(&message);
    message.group_id = mill_wstr_of(group);
    message.session_timeout_ms = 60000;
    message.protocol_type = mill_wstr_of("consumer");
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    mill_write_i16(&to, (int16_t)strlen(group));
    mill_write_bytes(&to, group, (uint32_t)strlen(group));
    mill_write_i32(&to, message.session_timeout_ms);
    mill_write_i16(&to, 0); /* no member id */
    mill_write_i16(&to, 8);
    mill_write_bytes(&to, "consumer", 8);
    mill_write_i32(&to, 1);
    mill_write_i16(&to, 5);
    mill_write_bytes(&to, "range", 5);
    mill_write_i32(&to, 0);
    world_send(client, MILL_API_KEY_JOIN_GROUP, 0, body, to.size_bytes);
}

/* Two members of a group: the first has joined, the second waits for it. */
static void two_join(struct world *world, struct world_client *first, struct world_client *second)
{
    uint32_t bytes;
    world_offsets_topic(world);
    world_connect(world, first, 0);
    world_connect(world, second, 0);
    for (int16_t error = -1; error != 0;) {
        join_send(first, "pair");
        world_await(first);
        error = (int16_t)mill_load_be16(first->answer + 4);
        assert_true(error == 0 || error == MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS);
    }
    join_send(second, "pair");
    for (int i = 0; i < 20000; i++) { /* ten seconds, ten times control.request.timeout.ms */
        world_turn(world, MILL_NS_PER_MS);
        assert_false(world_answer(second, &bytes));
    }
}

static void test_join_waits_as_long_as_control_lives(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client first;
    struct world_client second;
    uint32_t bytes;
    world_open(&world, 1, 3);
    two_join(&world, &first, &second);
    world.control_stopped = true;
    uint64_t begun_ns = world.now.mono_ns;
    while (!world_answer(&second, &bytes)) {
        world_turn(&world, MILL_NS_PER_MS);
        assert_true(world.now.mono_ns - begun_ns < 4 * MILL_NS_PER_S);
    }
    assert_int_equal((int16_t)mill_load_be16(second.answer + 4),
                     MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    world.control_stopped = false;
    world_disconnect(&first);
    world_disconnect(&second);
    world_close(&world);
}

static void test_join_ends_with_a_killed_control(void **state)
{
    MILL_UNUSED(state);
    static struct world world;
    struct world_client first;
    struct world_client second;
    uint32_t bytes;
    world_open(&world, 1, 3);
    two_join(&world, &first, &second);
    world_crash_control(&world);
    uint64_t begun_ns = world.now.mono_ns;
    while (!world_answer(&second, &bytes)) {
        world_turn(&world, MILL_NS_PER_MS);
        assert_true(world.now.mono_ns - begun_ns < MILL_NS_PER_S);
    }
    assert_int_equal((int16_t)mill_load_be16(second.answer + 4),
                     MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    world_disconnect(&first);
    world_disconnect(&second);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream_answers_in_parts_whatever_the_room),
        cmocka_unit_test(test_stream_parts_of_others_are_left_alone),
        cmocka_unit_test(test_stream_half_a_request_dies_with_its_sender),
        cmocka_unit_test(test_internal_topics_are_written_by_control_only),
        cmocka_unit_test(test_join_waits_as_long_as_control_lives),
        cmocka_unit_test(test_join_ends_with_a_killed_control),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
