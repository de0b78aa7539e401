/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: several queues look like one link: nothing is missed or kept waiting, and a flow stays on
 * one queue in order. Method: links by hand that count what they are given. */
#include "tests/unit/test.h"

#include <string.h>

#include "base/byteorder.h"
#include "bench/queues.h"

enum {
    QUEUES = 3,
    FRAMES = 64,
};

struct fake {
    struct mill_link link;
    uint32_t waiting; /* frames to receive */
    uint32_t room;    /* frames to be taken by send */
    struct mill_frame *sent[FRAMES];
    uint32_t sent_count;
};

static struct mill_buf some;

static uint32_t fake_receive(void *context, struct mill_buf **ret_frames, uint32_t max)
{
    struct fake *fake = context;
    uint32_t count = MILL_MIN(fake->waiting, max);
    for (uint32_t i = 0; i < count; i++) {
        ret_frames[i] = &some;
    }
    fake->waiting -= count;
    return count;
}

static uint32_t fake_send(void *context, struct mill_frame **frames, uint32_t count)
{
    struct fake *fake = context;
    uint32_t taken = MILL_MIN(fake->room, count);
    for (uint32_t i = 0; i < taken; i++) {
        fake->sent[fake->sent_count++] = frames[i];
    }
    fake->room -= taken;
    return taken;
}

static const struct mill_link_ops fake_ops = {.receive = fake_receive, .send = fake_send};

struct world {
    struct fake fakes[QUEUES];
    struct bench_queues queues;
    struct mill_frame frames[FRAMES];
    uint8_t headers[FRAMES][64];
    struct mill_frame *all[FRAMES];
};

static void make(struct world *world)
{
    const struct mill_link *links[QUEUES];
    memset(world, 0, sizeof(*world));
    for (uint32_t i = 0; i < QUEUES; i++) {
        world->fakes[i].link = (struct mill_link){.ops = &fake_ops, .context = &world->fakes[i]};
        world->fakes[i].room = FRAMES;
        links[i] = &world->fakes[i].link;
    }
    bench_queues_init(&world->queues, links, QUEUES);
    for (uint32_t i = 0; i < FRAMES; i++) {
        struct mill_frame *frame = &world->frames[i];
        frame->header = world->headers[i];
        frame->header_bytes = 54;
        mill_store_be16(frame->header + 12, 0x0800);
        mill_store_be16(frame->header + 34, (uint16_t)(61000 + i % 16)); /* 16 flows */
        mill_store_be16(frame->header + 36, 9092);
        world->all[i] = frame;
    }
}

static uint32_t send_all(struct world *world, uint32_t from)
{
    const struct mill_link *link = &world->queues.link;
    return link->ops->send(link->context, world->all + from, FRAMES - from);
}

static void test_frames_of_all_queues_are_received(void **state)
{
    (void)state;
    static struct world world;
    struct mill_buf *frames[8];
    const struct mill_link *link = &world.queues.link;
    make(&world);
    for (uint32_t i = 0; i < QUEUES; i++) {
        world.fakes[i].waiting = 5;
    }
    uint32_t got = 0;
    for (int i = 0; i < 2; i++) {
        got += link->ops->receive(link->context, frames, MILL_COUNT_OF(frames));
    }
    assert_int_equal(got, 15);
    /* One that is never empty keeps no other one waiting for longer than a round. */
    world.fakes[0].waiting = UINT32_MAX;
    world.fakes[2].waiting = 1;
    for (int i = 0; i < QUEUES; i++) {
        (void)link->ops->receive(link->context, frames, MILL_COUNT_OF(frames));
    }
    assert_int_equal(world.fakes[2].waiting, 0);
}

static void test_flow_stays_on_one_queue_in_order(void **state)
{
    (void)state;
    static struct world world;
    uint32_t seen = 0;
    make(&world);
    assert_int_equal(send_all(&world, 0), FRAMES);
    int8_t queue_of[16];
    memset(queue_of, -1, sizeof(queue_of));
    for (uint32_t i = 0; i < QUEUES; i++) {
        uint32_t last[16] = {0};
        seen += world.fakes[i].sent_count > 0;
        for (uint32_t f = 0; f < world.fakes[i].sent_count; f++) {
            uint32_t number = (uint32_t)(world.fakes[i].sent[f] - world.frames) + 1;
            uint32_t flow = (number - 1) % 16;
            assert_true(queue_of[flow] == -1 || queue_of[flow] == (int8_t)i);
            queue_of[flow] = (int8_t)i;
            assert_true(number > last[flow]);
            last[flow] = number;
        }
    }
    assert_int_equal(seen, QUEUES);
}

static void test_full_queue_ends_the_call_and_loses_nothing(void **state)
{
    (void)state;
    static struct world world;
    make(&world);
    for (uint32_t i = 0; i < QUEUES; i++) {
        world.fakes[i].room = 1;
    }
    uint32_t done = 0;
    for (uint32_t calls = 0; done < FRAMES; calls++) {
        assert_true(calls < FRAMES * 2);
        done += send_all(&world, done);
        for (uint32_t i = 0; i < QUEUES; i++) {
            world.fakes[i].room = 1;
        }
    }
    uint32_t sum = 0;
    for (uint32_t i = 0; i < QUEUES; i++) {
        sum += world.fakes[i].sent_count;
    }
    assert_int_equal(sum, FRAMES);
}

static void test_other_frames_take_the_first_queue(void **state)
{
    (void)state;
    static struct world world;
    make(&world);
    for (uint32_t i = 0; i < FRAMES; i++) {
        mill_store_be16(world.headers[i] + 12, 0x0806);
    }
    assert_int_equal(send_all(&world, 0), FRAMES);
    assert_int_equal(world.fakes[0].sent_count, FRAMES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_of_all_queues_are_received),
        cmocka_unit_test(test_flow_stays_on_one_queue_in_order),
        cmocka_unit_test(test_full_queue_ends_the_call_and_loses_nothing),
        cmocka_unit_test(test_other_frames_take_the_first_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
