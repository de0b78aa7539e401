/* SPDX-License-Identifier: Apache-2.0 */
/* See own_client.h. */
#include "tests/clients/own_client.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    NODE_ID = 3,
    ARENA_BYTES = 8 << 20,
    EAL_MB = 64,
    RX_WINDOW_BYTES = 2 << 20,
    ANSWER_MS = 2000,    /* then the connection is given up */
    PATIENCE_MS = 60000, /* without any answer */
    IDLE_NS = 20000,
};

void own_fail(const char *reason, uint64_t value)
{
    printf("failed: %s (%llu)\n", reason, (unsigned long long)value);
    exit(1);
}

static int on_accepted(void *context, struct mill_stream *stream)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    return -1;
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    struct own_client *client = context;
    client->connecting = false;
    client->stream = error == 0 ? stream : NULL;
}

static void on_stream(void *context, struct mill_stream *stream)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream); /* the loop looks by itself */
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    MILL_UNUSED(size_bytes);
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    struct own_client *client = context;
    MILL_UNUSED(end);
    if (client->stream == stream) {
        client->stream = NULL;
    }
}

static const struct mill_stream_events events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .received = on_stream,
    .room = on_stream,
    .acked = on_acked,
    .closed = on_closed,
};

void own_turn(struct own_client *client)
{
    struct mill_stream_maker *maker = mill_net_maker(client->net);
    const struct timespec nap = {.tv_nsec = IDLE_NS};
    uint64_t now_ns = mill_now_read().mono_ns;
    if (maker->ops->step(maker, now_ns) == 0) {
        nanosleep(&nap, NULL); /* two CPUs for everybody */
    }
    if (now_ns - client->answered_ns > PATIENCE_MS * MILL_NS_PER_MS) {
        own_fail("no answer from the broker for ms", PATIENCE_MS);
    }
}

/* Opens the connection unless it is open. */
static void connect_one(struct own_client *client)
{
    struct mill_stream_maker *maker = mill_net_maker(client->net);
    struct mill_stream *stream = NULL;
    struct mill_port_info info;
    while (!client->stream) {
        mill_port_info(client->port, &info);
        if (!client->connecting && info.link_up) {
            client->connecting =
                maker->ops->connect(maker, client->address, RING_BROKER_PORT, client, &stream) == 0;
        }
        own_turn(client);
    }
}

static void drop(struct own_client *client)
{
    struct mill_stream *stream = client->stream;
    client->stream = NULL;
    if (stream) {
        stream->ops->abort(stream);
    }
}

/* Takes a whole answer. ret: false when the connection is lost or too slow. */
static bool answer_take(struct own_client *client)
{
    uint64_t end = mill_now_read().mono_ns + ANSWER_MS * MILL_NS_PER_MS;
    uint32_t wanted = 4;
    while (client->stream && mill_now_read().mono_ns < end) {
        struct mill_stream *stream = client->stream;
        if (stream->rx.size_bytes < wanted) {
            if (stream->rx_ended) {
                return false;
            }
            own_turn(client);
            continue;
        }
        struct mill_cursor cursor = mill_chain_cursor(&stream->rx);
        MILL_ASSERT_EQ(mill_cursor_read(&cursor, client->answer, wanted), 0);
        if (wanted == 4) {
            wanted += mill_load_be32(client->answer);
            MILL_ASSERT_LE(wanted, (uint32_t)OWN_ANSWER_MAX);
            continue;
        }
        stream->ops->consume(stream, wanted);
        client->answer_bytes = wanted;
        client->answered_ns = mill_now_read().mono_ns;
        return mill_load_be32(client->answer + 4) == (uint32_t)client->correlation;
    }
    return false;
}

/* Sends a request and waits for its answer. ret: false when there is none. */
bool own_ask(struct own_client *client, struct bytes *request)
{
    connect_one(client);
    mill_store_be32(request->at, request->size_bytes - 4);
    client->sent_ns = mill_now_read().mono_ns;
    for (uint32_t at = 0; at < request->size_bytes && client->stream;) {
        struct mill_stream *stream = client->stream;
        uint32_t part = MILL_MIN(request->size_bytes - at, (uint32_t)MILL_STREAM_BYTES_MAX);
        if (stream->ops->send_bytes(stream, request->at + at, part) == 0) {
            at += part;
            stream->ops->push(stream);
        } else {
            own_turn(client);
        }
    }
    if (answer_take(client)) {
        return true;
    }
    drop(client);
    return false;
}

struct bytes own_request(struct own_client *client, int key, int version)
{
    struct bytes request = {.at = client->request, .capacity_bytes = sizeof(client->request)};
    put32(&request, 0); /* the size, set when it is known */
    put16(&request, key);
    put16(&request, version);
    put32(&request, ++client->correlation);
    put_text(&request, "own");
    return request;
}

static void open_all(struct own_client *client, const char *device, uint32_t broker)
{
    struct mill_report report = {""};
    struct mill_port_info info;
    struct mill_arena_options options = {.dir = client->dir,
                                         .size_bytes = ARENA_BYTES,
                                         .nodes = 1,
                                         .cores = 1,
                                         .partitions_max = 16,
                                         .extent_bytes_max = 1 << 20};
    bool taken = false;
    ring_need(mill_arena_open(&options, &client->arena, &taken, &report), "arena", &report);
    uint32_t units = mill_arena_units(client->arena);
    ring_need(mill_loans_init(&client->loans, units, units), "loans", NULL);
    client->loans_of_queues[0] = &client->loans;
    client->port = ring_port_open(device, NODE_ID, client->arena, client->loans_of_queues);
    mill_port_info(client->port, &info);
    struct mill_net_config config = {
        .address = (broker & 0xffffff00u) | 2u, /* its neighbour, whatever it is */
        .prefix_bits = RING_PREFIX_BITS,
        .secret = {(uint64_t)getpid(), mill_now_read().mono_ns},
        .random_seed = mill_now_read().mono_ns,
        .connections_max = 64,
        .rx_window_max = RX_WINDOW_BYTES,
        .rx_budget_bytes = info.rx_pool_bytes / 2,
    };
    mill_net_config_defaults(&config);
    ring_need(mill_net_create(&config, mill_port_link(client->port, 0), &client->loans,
                              mill_arena_base(client->arena), &events, client, &client->net,
                              &report),
              "net", &report);
}

void own_open(struct own_client *client, const char *device, const char *broker)
{
    struct mill_report report = {""};
    struct in_addr address;
    char prefix[48];
    if (inet_pton(AF_INET, broker, &address) != 1) {
        own_fail("not an IPv4 address", 0);
    }
    ring_address(ntohl(address.s_addr), client->address);
    snprintf(prefix, sizeof(prefix), "mill-own-client-%d", (int)getpid());
    struct mill_eal_options options = {.file_prefix = prefix, .memory_mb = EAL_MB};
    ring_need(mill_eal_start(&options, &report), "EAL", &report);
    ring_memory_dir(client->dir);
    client->answered_ns = mill_now_read().mono_ns;
    open_all(client, device, ntohl(address.s_addr));
}

void own_close(struct own_client *client)
{
    drop(client);
    mill_net_maker(client->net)->ops->destroy(mill_net_maker(client->net));
    mill_port_close(client->port);
    mill_loans_fini(&client->loans);
    mill_arena_close(client->arena, true);
    ring_remove_dir(client->dir);
    mill_eal_stop();
}
