/* SPDX-License-Identifier: Apache-2.0 */
/* A patient Kafka client on our own stack, over a memif to a real broker: it reads what is in
 * partition 0 of a topic, produces COUNT numbered batches more, one request at a time, and reads
 * everything again. A lost connection is opened anew and an unanswered batch sent again,
 * so a number may be there twice, but never missing, changed or out of order.
 *
 *   memif_client DEVICE BROKER-ADDRESS TOPIC COUNT
 *
 * Prints "acked N" at the start and as it goes and "equal N batches D again" at the end; exit 1
 * with a reason otherwise. tests/faults/memif.py kills it and the broker. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "dataplane/net/net.h"
#include "dataplane/port/port.h"
#include "protocol/batch.h"
#include "tests/lib/bytes.h"
#include "tests/perf/ring_end.h"

enum {
    NODE_ID = 3,
    BROKER_PORT = 9092,
    ARENA_BYTES = 8 << 20,
    EAL_MB = 64,
    RECORDS = 4,
    VALUE_BYTES = 1000,
    BATCH_MAX = 8192,
    ANSWER_MAX = 2 << 20,
    FETCH_BYTES = 1 << 20,
    RX_WINDOW_BYTES = 2 << 20,
    ANSWER_MS = 2000,    /* then the connection is given up */
    PATIENCE_MS = 60000, /* without any answer */
    IDLE_NS = 20000,
    TOLD_EACH = 50,
};

struct client {
    struct mill_arena *arena;
    struct mill_loans loans;
    struct mill_loans *loans_of_queues[1];
    struct mill_port *port;
    struct mill_net *net;
    uint8_t address[16];
    const char *topic;
    struct mill_stream *stream; /* NULL: not connected */
    bool connecting;
    int32_t correlation;
    uint64_t answered_ns;
    uint8_t request[BATCH_MAX + 256];
    uint8_t batch[BATCH_MAX];
    uint8_t answer[ANSWER_MAX];
    uint32_t answer_bytes;
};

static void give_up(const char *reason, uint64_t value)
{
    printf("failed: %s (%llu)\n", reason, (unsigned long long)value);
    exit(1);
}

/* --- batches: made from their number alone ------------------------------------------------------
 */

static uint32_t batch_make(uint64_t number, uint8_t ret_bytes[BATCH_MAX])
{
    struct mill_random random = {.state = number + 1};
    struct bytes batch = {.at = ret_bytes, .capacity_bytes = BATCH_MAX};
    put64(&batch, 0);
    put32(&batch, 0);
    put32(&batch, -1);
    put8(&batch, 2);
    put32(&batch, 0);
    put16(&batch, 0);
    put32(&batch, RECORDS - 1);
    put64(&batch, 1700000000000);
    put64(&batch, 1700000000000);
    put64(&batch, -1);
    put16(&batch, -1);
    put32(&batch, -1);
    put32(&batch, RECORDS);
    for (int32_t i = 0; i < RECORDS; i++) {
        put_varint(&batch, VALUE_BYTES + 7);
        put8(&batch, 0);
        put_varint(&batch, 0);
        put_varint(&batch, i);
        put_varint(&batch, -1);
        put_varint(&batch, VALUE_BYTES);
        put64(&batch, (int64_t)number); /* a value begins with its batch's number */
        for (uint32_t b = 8; b < VALUE_BYTES; b++) {
            put8(&batch, (int)(mill_random_next(&random) & 255));
        }
        put_varint(&batch, 0);
    }
    mill_store_be32(ret_bytes + MILL_BATCH_LENGTH_AT, batch.size_bytes - MILL_BATCH_PREFIX_BYTES);
    mill_store_be32(
        ret_bytes + MILL_BATCH_CRC_AT,
        mill_crc32c(ret_bytes + MILL_BATCH_SUMMED_AT, batch.size_bytes - MILL_BATCH_SUMMED_AT));
    return batch.size_bytes;
}

enum {
    /* Of the first record's value: length, attributes, time and offset deltas, no key, length. */
    NUMBER_AT = MILL_BATCH_HEADER_BYTES + 2 + 1 + 1 + 1 + 1 + 2,
};

/* --- the stream --------------------------------------------------------------------------------
 */

static int on_accepted(void *context, struct mill_stream *stream)
{
    MILL_UNUSED(context);
    MILL_UNUSED(stream);
    return -1;
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    struct client *client = context;
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
    struct client *client = context;
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

static void turn(struct client *client)
{
    struct mill_stream_maker *maker = mill_net_maker(client->net);
    const struct timespec nap = {.tv_nsec = IDLE_NS};
    uint64_t now_ns = mill_now_read().mono_ns;
    if (maker->ops->step(maker, now_ns) == 0) {
        nanosleep(&nap, NULL); /* two CPUs for everybody */
    }
    if (now_ns - client->answered_ns > PATIENCE_MS * MILL_NS_PER_MS) {
        give_up("no answer from the broker for ms", PATIENCE_MS);
    }
}

/* Opens the connection unless it is open. */
static void connect_one(struct client *client)
{
    struct mill_stream_maker *maker = mill_net_maker(client->net);
    struct mill_stream *stream = NULL;
    struct mill_port_info info;
    while (!client->stream) {
        mill_port_info(client->port, &info);
        if (!client->connecting && info.link_up) {
            client->connecting =
                maker->ops->connect(maker, client->address, BROKER_PORT, client, &stream) == 0;
        }
        turn(client);
    }
}

static void drop(struct client *client)
{
    struct mill_stream *stream = client->stream;
    client->stream = NULL;
    if (stream) {
        stream->ops->abort(stream);
    }
}

/* Takes a whole answer. ret: false when the connection is lost or too slow. */
static bool answer_take(struct client *client)
{
    uint64_t end = mill_now_read().mono_ns + ANSWER_MS * MILL_NS_PER_MS;
    uint32_t wanted = 4;
    while (client->stream && mill_now_read().mono_ns < end) {
        struct mill_stream *stream = client->stream;
        if (stream->rx.size_bytes < wanted) {
            if (stream->rx_ended) {
                return false;
            }
            turn(client);
            continue;
        }
        struct mill_cursor cursor = mill_chain_cursor(&stream->rx);
        MILL_ASSERT_EQ(mill_cursor_read(&cursor, client->answer, wanted), 0);
        if (wanted == 4) {
            wanted += mill_load_be32(client->answer);
            MILL_ASSERT_LE(wanted, (uint32_t)ANSWER_MAX);
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
static bool ask(struct client *client, struct bytes *request)
{
    connect_one(client);
    mill_store_be32(request->at, request->size_bytes - 4);
    for (uint32_t at = 0; at < request->size_bytes && client->stream;) {
        struct mill_stream *stream = client->stream;
        uint32_t part = MILL_MIN(request->size_bytes - at, (uint32_t)MILL_STREAM_BYTES_MAX);
        if (stream->ops->send_bytes(stream, request->at + at, part) == 0) {
            at += part;
            stream->ops->push(stream);
        } else {
            turn(client);
        }
    }
    if (answer_take(client)) {
        return true;
    }
    drop(client);
    return false;
}

static void head(struct client *client, struct bytes *request, int key, int version)
{
    put32(request, 0);
    put16(request, key);
    put16(request, version);
    put32(request, ++client->correlation);
    put_text(request, "memif");
}

/* --- requests ----------------------------------------------------------------------------------
 */

/* Answers of both kinds: topic and partition of the only one asked for. ret: its error code. */
static uint16_t error_of(const struct client *client, uint32_t at)
{
    at += 4 + 2 + (uint32_t)strlen(client->topic) + 4 + 4;
    MILL_ASSERT_LE(at + 2, client->answer_bytes);
    return mill_load_be16(client->answer + at);
}

/* ret: false when it must be sent again. */
static bool produce(struct client *client, uint64_t number)
{
    struct bytes request = {.at = client->request, .capacity_bytes = sizeof(client->request)};
    uint32_t size_bytes = batch_make(number, client->batch);
    head(client, &request, PRODUCE_KEY, PRODUCE_VERSION);
    put16(&request, -1);
    put16(&request, -1); /* acks=all */
    put32(&request, 10000);
    put32(&request, 1);
    put_text(&request, client->topic);
    put32(&request, 1);
    put32(&request, 0);
    put32(&request, (int32_t)size_bytes);
    put(&request, client->batch, size_bytes);
    return ask(client, &request) && error_of(client, 8) == 0;
}

/* Checks the batches of an answer. Numbers go up by one, or begin again at one that was sent twice.
 * ret: their number. */
static uint32_t check_batches(struct client *client, const uint8_t *at, uint32_t size_bytes,
                              uint64_t *next, uint64_t *again)
{
    uint32_t count = 0;
    while (size_bytes >= MILL_BATCH_HEADER_BYTES) {
        uint32_t whole = MILL_BATCH_PREFIX_BYTES + mill_load_be32(at + MILL_BATCH_LENGTH_AT);
        if (whole > size_bytes) {
            break; /* cut at the limit */
        }
        uint64_t number = mill_load_be64(at + NUMBER_AT);
        if (number > *next) {
            give_up("a batch is missing", *next);
        }
        if (batch_make(number, client->batch) != whole ||
            memcmp(client->batch + MILL_BATCH_MAGIC_AT, at + MILL_BATCH_MAGIC_AT,
                   whole - MILL_BATCH_MAGIC_AT) != 0) {
            give_up("a batch was changed", number);
        }
        *again += number < *next;
        *next += number == *next;
        at += whole;
        size_bytes -= whole;
        count++;
    }
    return count;
}

/* Reads the partition from its start. ret: number after the last batch. */
static uint64_t read_all(struct client *client, uint64_t *ret_again)
{
    uint64_t next = 0;
    int64_t offset = 0;
    *ret_again = 0;
    for (;;) {
        struct bytes request = {.at = client->request, .capacity_bytes = sizeof(client->request)};
        head(client, &request, FETCH_KEY, FETCH_VERSION);
        put32(&request, -1);
        put32(&request, 0);
        put32(&request, 0);
        put32(&request, FETCH_BYTES);
        put8(&request, 0);
        put32(&request, 1);
        put_text(&request, client->topic);
        put32(&request, 1);
        put32(&request, 0);
        put64(&request, offset);
        put32(&request, FETCH_BYTES);
        if (!ask(client, &request) || error_of(client, 12) != 0) {
            turn(client); /* not served yet, after a restart */
            continue;
        }
        uint32_t at = 12 + 4 + 2 + (uint32_t)strlen(client->topic) + 4 + 4 + 2;
        int64_t end = (int64_t)mill_load_be64(client->answer + at);
        at += 8 + 8 + 4; /* high watermark, last stable offset, no aborted transactions */
        uint32_t records = mill_load_be32(client->answer + at);
        offset +=
            RECORDS * check_batches(client, client->answer + at + 4, records, &next, ret_again);
        if (offset >= end) {
            return next;
        }
    }
}

/* --- making ------------------------------------------------------------------------------------
 */

static void open_all(struct client *client, const char *device, const char *dir)
{
    struct mill_report report = {""};
    struct mill_port_info info;
    struct mill_arena_options options = {.dir = dir,
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
    uint32_t broker = ((uint32_t)client->address[12] << 24) |
                      ((uint32_t)client->address[13] << 16) | ((uint32_t)client->address[14] << 8) |
                      client->address[15];
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

int main(int argc, char **argv)
{
    static struct client client;
    char prefix[48];
    char dir[RING_DIR_BYTES];
    struct in_addr broker;
    struct mill_report report = {""};
    uint64_t again = 0;
    if (argc != 5 || inet_pton(AF_INET, argv[2], &broker) != 1) {
        fprintf(stderr, "usage: memif_client DEVICE BROKER-ADDRESS TOPIC COUNT\n");
        return 2;
    }
    client.topic = argv[3];
    ring_address(ntohl(broker.s_addr), client.address);
    snprintf(prefix, sizeof(prefix), "mill-memif-client-%d", (int)getpid());
    struct mill_eal_options options = {.file_prefix = prefix, .memory_mb = EAL_MB};
    ring_need(mill_eal_start(&options, &report), "EAL", &report);
    ring_memory_dir(dir);
    client.answered_ns = mill_now_read().mono_ns;
    open_all(&client, argv[1], dir);
    uint64_t number = read_all(&client, &again);
    uint64_t count = number + strtoull(argv[4], NULL, 10);
    for (bool tell = true; number < count; tell = number % TOLD_EACH == 0) {
        if (tell) {
            printf("acked %llu\n", (unsigned long long)number);
            fflush(stdout);
        }
        number += produce(&client, number);
    }
    uint64_t found = read_all(&client, &again);
    if (found < count) {
        give_up("batches are missing at the end", found);
    }
    printf("equal %llu batches %llu again\n", (unsigned long long)found, (unsigned long long)again);
    drop(&client);
    mill_net_maker(client.net)->ops->destroy(mill_net_maker(client.net));
    mill_port_close(client.port);
    mill_loans_fini(&client.loans);
    mill_arena_close(client.arena, true);
    ring_remove_dir(dir);
    mill_eal_stop();
    return 0;
}
