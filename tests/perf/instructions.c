/* SPDX-License-Identifier: Apache-2.0 */
/* What a request costs in instructions: a stream of frames is recorded, then played over TCP (two
 * of our stacks, an in-memory link, virtual time) to a core with its log. Under callgrind only the
 * core's turns are counted, without the link, the store's thread, control and the client.
 *
 * tests/perf/instructions.py runs it and compares; each part ends in a dump with its name. Nothing
 * here depends on real time, addresses or the environment, so the same program gives the same
 * figure. One thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/crc.h>
#include <valgrind/callgrind.h>

#include "base/byteorder.h"
#include "dataplane/net/net.h"
#include "tests/sim/link_model.h"
#include "tests/sim/world.h"

enum {
    REQUESTS = 256,     /* counted, of each kind */
    WARM = 64,          /* before them */
    BATCH_RECORDS = 74, /* with 200 B of value: a batch of 16 KiB */
    BATCH_PADDING = 200,
    FETCH_BYTES = 64 << 10,
    FRAME_BYTES_MAX = 32 << 10,
    CLIENT_UNITS = 64, /* memory that the client sends from */
    TURN_NS = 20000,
    TURNS_MAX = 10000,
    PORT = 9092,
    MTU = 1500,
};

/* ISA-L chooses by the CPU when it is loaded; here always the same routine (the program is linked
 * with --wrap=crc32_iscsi). */
unsigned int __wrap_crc32_iscsi(unsigned char *buffer, int size_bytes, unsigned int crc);
unsigned int crc32_iscsi_01(unsigned char *buffer, int size_bytes, unsigned int crc);

unsigned int __wrap_crc32_iscsi(unsigned char *buffer, int size_bytes, unsigned int crc)
{
    return crc32_iscsi_01(buffer, size_bytes, crc);
}

struct frame {
    uint8_t bytes[FRAME_BYTES_MAX];
    uint32_t size_bytes;
};

struct player {
    struct world world;
    struct mill_link_model *model;
    struct mill_link counted_link; /* the server's end, not counted inside */
    struct mill_net *server;
    struct mill_net *client;
    struct mill_loans client_loans;
    uint8_t *client_arena;
    struct mill_stream *stream;
    struct world_client maker; /* of frames */
    struct frame frame;        /* the last one made */
    uint32_t answer_left;      /* bytes of the answer still to come; of its size field below 0 */
    uint8_t size_field[4];
    uint32_t size_got;
    uint32_t answer_bytes; /* of the last answer */
    bool answered;
};

/* --- a link that is not counted ------------------------------------------------------------------
 */

static const struct mill_link *model_end(void *link)
{
    return mill_link_model_end(((struct player *)link)->model, 1);
}

static uint32_t link_receive(void *link, struct mill_buf **ret_frames, uint32_t max)
{
    const struct mill_link *end = model_end(link);
    CALLGRIND_TOGGLE_COLLECT;
    uint32_t count = end->ops->receive(end->context, ret_frames, max);
    CALLGRIND_TOGGLE_COLLECT;
    return count;
}

static struct mill_frame *link_frame_get(void *link)
{
    const struct mill_link *end = model_end(link);
    CALLGRIND_TOGGLE_COLLECT;
    struct mill_frame *frame = end->ops->frame_get(end->context);
    CALLGRIND_TOGGLE_COLLECT;
    return frame;
}

static void link_frame_put(void *link, struct mill_frame *frame)
{
    const struct mill_link *end = model_end(link);
    CALLGRIND_TOGGLE_COLLECT;
    end->ops->frame_put(end->context, frame);
    CALLGRIND_TOGGLE_COLLECT;
}

static uint32_t link_send(void *link, struct mill_frame **frames, uint32_t count)
{
    const struct mill_link *end = model_end(link);
    CALLGRIND_TOGGLE_COLLECT;
    uint32_t taken = end->ops->send(end->context, frames, count);
    CALLGRIND_TOGGLE_COLLECT;
    return taken;
}

static const struct mill_link_ops link_ops = {
    .receive = link_receive,
    .frame_get = link_frame_get,
    .frame_put = link_frame_put,
    .send = link_send,
};

/* The world's own streams, by which the topic was made: looked at in each turn, not counted. */
static const struct mill_stream_maker_ops *mem_ops;

static uint32_t mem_step(struct mill_stream_maker *maker, uint64_t now_ns)
{
    CALLGRIND_TOGGLE_COLLECT;
    uint32_t work = mem_ops->step(maker, now_ns);
    CALLGRIND_TOGGLE_COLLECT;
    return work;
}

static void mem_uncounted(struct mill_stream_maker *maker)
{
    static struct mill_stream_maker_ops ops;
    mem_ops = maker->ops;
    ops = *maker->ops;
    ops.step = mem_step;
    maker->ops = &ops;
}

/* --- the client's side ---------------------------------------------------------------------------
 */

static int on_accepted(void *context, struct mill_stream *stream)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    return -1; /* it does not listen */
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    struct player *player = context;
    MILL_ASSERT_EQ(error, 0);
    player->stream = stream;
}

/* Takes answers apart by their size fields; their contents are for other tests. */
static void on_received(void *context, struct mill_stream *stream)
{
    struct player *player = context;
    uint32_t size = stream->rx.size_bytes;
    struct mill_cursor at = mill_chain_cursor(&stream->rx);
    for (uint32_t left = size; left > 0;) {
        MILL_ASSERT(!player->answered); /* one request at a time */
        uint32_t step = 1;
        if (player->size_got < sizeof(player->size_field)) {
            MILL_ASSERT_EQ(mill_cursor_read(&at, &player->size_field[player->size_got], 1), 0);
            player->size_got++;
            player->answer_left = mill_load_be32(player->size_field);
            player->answer_bytes = player->answer_left;
        } else {
            step = MILL_MIN(left, player->answer_left);
            MILL_ASSERT_EQ(mill_cursor_skip(&at, step), 0);
            player->answer_left -= step;
        }
        left -= step;
        player->answered =
            player->size_got == sizeof(player->size_field) && player->answer_left == 0;
    }
    stream->ops->consume(stream, size);
}

static void on_room(void *context, struct mill_stream *stream)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    MILL_UNUSED(size_bytes);
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    MILL_UNUSED(stream);
    MILL_UNUSED(end);
    ((struct player *)context)->stream = NULL;
}

static const struct mill_stream_events client_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .received = on_received,
    .room = on_room,
    .acked = on_acked,
    .closed = on_closed,
};

/* --- turns --------------------------------------------------------------------------------------
 */

/* One turn of everything; the core's is counted. */
static void turn(struct player *player)
{
    struct world *world = &player->world;
    struct mill_stream_maker *client = mill_net_maker(player->client);
    world->now.mono_ns += TURN_NS;
    world->now.wall_ms = 1700000000000 + (int64_t)(world->now.mono_ns / MILL_NS_PER_MS);
    mill_link_model_advance(player->model, world->now.mono_ns);
    client->ops->step(client, world->now.mono_ns);
    mill_link_model_advance(player->model, world->now.mono_ns);
    mill_store_step(world->cores[0].store, world->now);
    CALLGRIND_TOGGLE_COLLECT;
    mill_core_step(world->cores[0].core, world->now);
    CALLGRIND_TOGGLE_COLLECT;
}

static void record(void *context, const void *frame, uint32_t size_bytes)
{
    struct player *player = context;
    MILL_ASSERT_LE(size_bytes, (uint32_t)FRAME_BYTES_MAX);
    memcpy(player->frame.bytes, frame, size_bytes);
    player->frame.size_bytes = size_bytes;
}

/* Sends the recorded frame and takes the whole answer. */
static void play(struct player *player)
{
    struct mill_stream *stream = player->stream;
    struct mill_ref ref = {.extent = 0, .pos_bytes = 0, .size_bytes = player->frame.size_bytes};
    memcpy(player->client_arena, player->frame.bytes, player->frame.size_bytes);
    player->answered = false;
    player->size_got = 0;
    MILL_ASSERT_EQ(stream->ops->send_ref(stream, &ref), 0);
    stream->ops->push(stream);
    for (uint32_t turns = 0; !player->answered; turns++) {
        MILL_ASSERT_LT(turns, (uint32_t)TURNS_MAX);
        turn(player);
    }
    /* The server's acknowledgements and the store's work of this request belong to it, too. */
    while (!mill_loan_free(&player->client_loans, 0)) {
        turn(player);
    }
}

/* --- start --------------------------------------------------------------------------------------
 */

static struct mill_net *net_make(struct player *player, uint32_t number,
                                 const struct mill_link *link, struct mill_loans *loans,
                                 uint8_t *arena, const struct mill_stream_events *events,
                                 void *context)
{
    struct mill_net *net = NULL;
    struct mill_report report = {""};
    struct mill_net_config config = {
        .address = 0xc6120001u + number,
        .prefix_bits = 24,
        .secret = {player->world.seed, number},
        .random_seed = player->world.seed + number,
        .connections_max = 4,
        .half_open_max = 4,
        .time_wait_max = 4,
        .neighbours_max = 4,
        .rx_window_max = 1 << 20,
        .rx_budget_bytes = 64 << 20,
    };
    mill_net_config_defaults(&config);
    int r = mill_net_create(&config, link, loans, arena, events, context, &net, &report);
    MILL_ASSERT_EQ(r, 0);
    return net;
}

static void link_make(struct player *player)
{
    struct world_core *core = &player->world.cores[0];
    struct mill_link_model_config config = {
        .seed = player->world.seed,
        .delay_ns = TURN_NS / 4,
        .mtu = MTU,
        .pieces_max = 8,
        .inline_bytes = 64,
        .verified = true, /* as a card does */
    };
    struct mill_loans *loans[2] = {&player->client_loans, &core->loans};
    uint8_t *arenas[2] = {player->client_arena, mill_arena_base(player->world.arena)};
    player->model = mill_link_model_create(&config, loans, arenas);
    MILL_ASSERT(player->model != NULL);
    player->counted_link = *mill_link_model_end(player->model, 1);
    player->counted_link.ops = &link_ops;
    player->counted_link.context = player;
}

static void player_open(struct player *player)
{
    static const uint8_t any[16] = {0};
    static const uint8_t server[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 0, 2};
    struct world *world = &player->world;
    struct world_core *core = &world->cores[0];
    struct mill_stream *stream;
    world_open(world, 1, 1);
    world_topic(world, "t", 1, "retention.ms", "-1");
    MILL_ASSERT_EQ(mill_loans_init(&player->client_loans, CLIENT_UNITS, 1), 0);
    player->client_arena = aligned_alloc(4096, (size_t)CLIENT_UNITS * MILL_EXTENT_UNIT_BYTES);
    MILL_ASSERT(player->client_arena != NULL);
    mem_uncounted(mem_maker_base(core->maker));
    link_make(player);
    player->server = net_make(player, 1, &player->counted_link, &core->loans,
                              mill_arena_base(world->arena), &mill_core_events, core->core);
    mill_core_add_maker(core->core, mill_net_maker(player->server), player->server, 0);
    player->client = net_make(player, 0, mill_link_model_end(player->model, 0),
                              &player->client_loans, player->client_arena, &client_events, player);
    struct mill_stream_maker *maker = mill_net_maker(player->server);
    MILL_ASSERT_EQ(maker->ops->listen(maker, any, PORT, 0, NULL), 0);
    maker = mill_net_maker(player->client);
    maker->ops->step(maker, world->now.mono_ns);
    MILL_ASSERT_EQ(maker->ops->connect(maker, server, PORT, player, &stream), 0);
    for (uint32_t turns = 0; !player->stream; turns++) {
        MILL_ASSERT_LT(turns, (uint32_t)TURNS_MAX);
        turn(player);
    }
    player->maker = (struct world_client){.world = world, .send = record, .send_context = player};
}

static void player_close(struct player *player)
{
    player->stream->ops->abort(player->stream);
    for (uint32_t turns = 0; turns < 100; turns++) {
        turn(player);
    }
    struct mill_stream_maker *client = mill_net_maker(player->client);
    client->ops->destroy(client);
    world_close(&player->world); /* the core frees its makers */
    mill_link_model_destroy(player->model);
    mill_loans_fini(&player->client_loans);
    free(player->client_arena);
}

/* --- parts --------------------------------------------------------------------------------------
 */

static void make_produce(struct player *player, uint32_t number, uint32_t count, uint32_t padding)
{
    world_produce_send(&player->maker, "t", 0, -1, -1, (uint64_t)number * count, count, padding);
}

static void make_batch(struct player *player, uint32_t number)
{
    make_produce(player, number, BATCH_RECORDS, BATCH_PADDING);
}

static void make_record(struct player *player, uint32_t number)
{
    make_produce(player, number, 1, BATCH_PADDING);
}

static void make_fetch(struct player *player, uint32_t number)
{
    struct world_fetch_options options = {
        .bytes_min = 1,
        .bytes_max = FETCH_BYTES,
        .partition_bytes_max = FETCH_BYTES,
        .session_epoch = -1,
        .offset = (int64_t)(number % 64) * BATCH_RECORDS,
    };
    world_fetch_send(&player->maker, "t", 1, &options);
}

static void part(struct player *player, const char *name,
                 void (*make)(struct player *, uint32_t number))
{
    for (uint32_t i = 0; i < WARM + REQUESTS; i++) {
        make(player, i);
        if (i == WARM) {
            CALLGRIND_ZERO_STATS;
        }
        play(player);
    }
    CALLGRIND_DUMP_STATS_AT(name);
}

/* What was counted was the work meant: batches went into the log, a fetch was full. */
static void check_log(struct player *player, uint32_t batches)
{
    struct world *world = &player->world;
    const struct mill_shared_core *shared = &world->counters->cores[0];
    mill_core_publish(world->cores[0].core, world->now);
    MILL_ASSERT_EQ(mill_counter_get(&shared->batches_in), (uint64_t)batches);
    MILL_ASSERT_EQ(mill_counter_get(&shared->batches_refused), (uint64_t)0);
}

int main(void)
{
    struct player *player = calloc(1, sizeof(*player));
    MILL_ASSERT(player != NULL);
    player_open(player);
    part(player, "produce-16k", make_batch);
    check_log(player, WARM + REQUESTS);
    part(player, "fetch-64k", make_fetch);
    MILL_ASSERT_LT((uint32_t)FETCH_BYTES / 2, player->answer_bytes);
    part(player, "produce-1", make_record);
    check_log(player, 2 * (WARM + REQUESTS));
    player_close(player);
    free(player);
    printf("%d requests of each kind\n", REQUESTS);
    return 0;
}
