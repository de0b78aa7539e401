/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as a hostile client sends them to a whole broker: cores, stores and control of the
 * simulation (tests/sim/world.h), whose clock the target moves. An input is a list of runs on one
 * connection: a byte that says whether the frame's size is put before it, then the run. The broker
 * goes on from input to input, and is made anew once in a while. */
#include "tests/fuzz/fuzz.h"

#include "tests/sim/world.h"

enum {
    INPUTS = 400,    /* of one broker */
    TURNS = 6,       /* after each frame */
    LAST_TURNS = 40, /* so that what waits comes to its end */
    TURN_MS = 20,
    FRAMES_MAX = 32,
    ROOM_BYTES = 64 << 10,
};

static struct world world;
static uint32_t inputs;

static void begin(void)
{
    world_open(&world, 1, 1);
    world_topic(&world, "frames", 2, "cleanup.policy", "delete");
    world_topic(&world, "compacted", 1, "cleanup.policy", "compact");
}

static void take(struct world_client *client)
{
    static uint8_t room[ROOM_BYTES];
    while (mem_take(client->peer, room, sizeof(room)) > 0) {
    }
}

static void turns(struct world_client *client, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        world_turn(&world, TURN_MS * MILL_NS_PER_MS);
        take(client);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.at = data, .left = size};
    struct world_client client;
    if (inputs++ % INPUTS == 0) {
        if (inputs > 1) {
            world_close(&world);
        }
        begin();
    }
    world_connect(&world, &client, 0);
    for (uint32_t i = 0; i < FRAMES_MAX && input.left > 0 && !mem_ended(client.peer); i++) {
        bool sized = fuzz_byte(&input) & 1;
        const uint8_t *bytes;
        size_t count = fuzz_run(&input, &bytes);
        be32 prefix;
        mill_store_be32(&prefix, (uint32_t)count);
        if (sized) {
            mem_send(client.peer, &prefix, sizeof(prefix));
        }
        if (count > 0) {
            mem_send(client.peer, bytes, (uint32_t)count);
        }
        turns(&client, TURNS);
    }
    turns(&client, LAST_TURNS);
    world_disconnect(&client);
    world_turn(&world, MILL_NS_PER_MS);
    return 0;
}
