/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the protocol by which a core goes to sleep (thread.c: nap, hugepages/ring.c: bells) loses
 * no message, and each of its three parts is needed: the producer's fence, the consumer's fence,
 * the look after "asleep" was published. Method: every interleaving of one producer of two messages
 * and one consumer on a machine whose stores wait in a buffer per thread before others see them
 * (x86).
 *
 *   producer: message | fence | load asleep, when 1: ring
 *   consumer: look | asleep = 1 | fence | look again | sleep until rung | asleep = 0 | clear bell
 */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum {
    MESSAGES = 2,
    BUFFER_MAX = 4,
    STATES_MAX = 1 << 16,
};

struct rules {
    bool producer_fence;
    bool consumer_fence;
    bool second_look;
};

enum producer_step { SEND, SEND_FENCE, LOAD_ASLEEP, RING, PRODUCER_END };
enum consumer_step { LOOK, PUBLISH, PUBLISH_FENCE, LOOK_AGAIN, SLEEP, AWAKE, CLEAR, CONSUMER_END };

/* Bytes only: states are compared with memcmp. */
struct state {
    uint8_t producer; /* step */
    uint8_t consumer;
    uint8_t sent; /* messages the producer stored, maybe still in its buffer */
    uint8_t taken;
    uint8_t messages; /* in memory */
    uint8_t asleep;   /* in memory */
    uint8_t bell;     /* the kernel's: seen at once */
    uint8_t buffer_count[2];
    uint8_t buffer[2][BUFFER_MAX];
};

struct world {
    struct rules rules;
    struct state *seen;
    uint32_t seen_count;
    uint32_t lost; /* states in which nobody moves and a message waits */
};

/* ret: false while the buffer is full: the thread waits. */
static bool store(struct state *state, int thread, uint8_t value)
{
    if (state->buffer_count[thread] == BUFFER_MAX) {
        return false;
    }
    state->buffer[thread][state->buffer_count[thread]++] = value;
    return true;
}

static void drain_one(struct state *state, int thread)
{
    uint8_t value = state->buffer[thread][0];
    memmove(state->buffer[thread], state->buffer[thread] + 1, BUFFER_MAX - 1);
    state->buffer[thread][BUFFER_MAX - 1] = 0;
    state->buffer_count[thread]--;
    if (thread == 0) {
        state->messages = value;
    } else {
        state->asleep = value;
    }
}

/* ret: false when the thread cannot move now; the state is void then. */
static bool producer_move(const struct rules *rules, struct state *state)
{
    switch (state->producer) {
    case SEND:
        state->producer = rules->producer_fence ? SEND_FENCE : LOAD_ASLEEP;
        return store(state, 0, ++state->sent);
    case SEND_FENCE:
        state->producer = LOAD_ASLEEP;
        return state->buffer_count[0] == 0;
    case LOAD_ASLEEP:
        state->producer = state->asleep ? RING : state->sent < MESSAGES ? SEND : PRODUCER_END;
        return true;
    case RING:
        state->bell = 1;
        state->producer = state->sent < MESSAGES ? SEND : PRODUCER_END;
        return true;
    default:
        return false;
    }
}

static bool look(struct state *state)
{
    bool found = state->messages > state->taken;
    state->taken = state->messages;
    return found;
}

static bool consumer_move(const struct rules *rules, struct state *state)
{
    switch (state->consumer) {
    case LOOK:
        state->consumer = look(state) ? LOOK : PUBLISH;
        state->consumer = state->taken == MESSAGES ? CONSUMER_END : state->consumer;
        return true;
    case PUBLISH:
        state->consumer = rules->consumer_fence ? PUBLISH_FENCE : LOOK_AGAIN;
        return store(state, 1, 1);
    case PUBLISH_FENCE:
        state->consumer = LOOK_AGAIN;
        return state->buffer_count[1] == 0;
    case LOOK_AGAIN:
        state->consumer = rules->second_look && look(state) ? AWAKE : SLEEP;
        return true;
    case SLEEP:
        state->consumer = AWAKE;
        return state->bell != 0;
    case AWAKE:
        state->consumer = CLEAR;
        return store(state, 1, 0);
    case CLEAR:
        state->bell = 0;
        state->consumer = LOOK;
        return true;
    default:
        return false;
    }
}

static bool is_new(struct world *world, const struct state *state)
{
    for (uint32_t i = 0; i < world->seen_count; i++) {
        if (memcmp(&world->seen[i], state, sizeof(*state)) == 0) {
            return false;
        }
    }
    assert_true(world->seen_count < STATES_MAX);
    world->seen[world->seen_count++] = *state;
    return true;
}

/* Every state that can be reached from the start, breadth first. */
static void explore(struct world *world)
{
    struct state start = {0};
    (void)is_new(world, &start);
    for (uint32_t i = 0; i < world->seen_count; i++) {
        bool moved = false;
        for (int move = 0; move < 4; move++) {
            struct state next = world->seen[i];
            bool can = false;
            if (move < 2) {
                can = next.buffer_count[move] > 0;
                if (can) {
                    drain_one(&next, move);
                }
            } else {
                can = move == 2 ? producer_move(&world->rules, &next)
                                : consumer_move(&world->rules, &next);
            }
            moved = moved || can;
            if (can) {
                (void)is_new(world, &next);
            }
        }
        const struct state *state = &world->seen[i];
        world->lost += !moved && state->taken < MESSAGES;
        /* Nobody moves any more, so everything was sent and taken. */
        assert_true(moved || state->producer == PRODUCER_END);
    }
}

static uint32_t lost_with(struct rules rules)
{
    struct world world = {.rules = rules, .seen = calloc(STATES_MAX, sizeof(struct state))};
    assert_non_null(world.seen);
    explore(&world);
    print_message("fences %d %d, second look %d: %u states, %u lose a message\n",
                  rules.producer_fence, rules.consumer_fence, rules.second_look, world.seen_count,
                  world.lost);
    assert_true(world.seen_count > 50);
    free(world.seen);
    return world.lost;
}

static void test_sleep_protocol_loses_no_message(void **state)
{
    MILL_UNUSED(state);
    assert_int_equal(lost_with((struct rules){true, true, true}), 0);
}

static void test_sleep_protocol_needs_each_part(void **state)
{
    MILL_UNUSED(state);
    assert_true(lost_with((struct rules){false, true, true}) > 0);
    assert_true(lost_with((struct rules){true, false, true}) > 0);
    assert_true(lost_with((struct rules){true, true, false}) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sleep_protocol_loses_no_message),
        cmocka_unit_test(test_sleep_protocol_needs_each_part),
    };
    return cmocka_run_group_tests_name("idle_model", tests, NULL, NULL);
}
