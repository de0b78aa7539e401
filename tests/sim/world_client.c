/* SPDX-License-Identifier: Apache-2.0 */
/* A scripted client of a simulated data plane; its frames and batches are made by hand. */
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/crc32c.h"
#include "dataplane/store/store_types.h"
#include "protocol/batch.h"
#include "tests/sim/world.h"
#include "tests/unit/store/pack.h"

enum {
    PRODUCE_KEY = 0,
    FETCH_KEY = 1,
    FIND_COORDINATOR_KEY = 10,
    API_VERSIONS_KEY = 18,
    CREATE_TOPICS_KEY = 19,
    PRODUCE_VERSION = 7,
    FETCH_VERSION = 10, /* the first that may read zstd */
    AWAIT_TURNS = 200000,
    FRAME_BYTES_MAX = 2 << 20,
};

struct bytes {
    uint8_t *at;
    uint32_t size;
};

static void put(struct bytes *to, const void *data, uint32_t size)
{
    MILL_ASSERT_LE(to->size + size, (uint32_t)FRAME_BYTES_MAX);
    memcpy(to->at + to->size, data, size);
    to->size += size;
}

static void put16(struct bytes *to, int16_t value)
{
    be16 wire = be16_make((uint16_t)value);
    put(to, wire.b, 2);
}

static void put32(struct bytes *to, int32_t value)
{
    be32 wire = be32_make((uint32_t)value);
    put(to, wire.b, 4);
}

static void put64(struct bytes *to, int64_t value)
{
    be64 wire = be64_make((uint64_t)value);
    put(to, wire.b, 8);
}

static void put_text(struct bytes *to, const char *text)
{
    put16(to, (int16_t)strlen(text));
    put(to, text, (uint32_t)strlen(text));
}

static void put_varint(struct bytes *to, int32_t value)
{
    uint32_t left = ((uint32_t)value << 1) ^ (uint32_t)(value >> 31);
    do {
        uint8_t byte = (uint8_t)(left & 127) | (left > 127 ? 128 : 0);
        put(to, &byte, 1);
        left >>= 7;
    } while (left > 0);
}

static struct bytes bytes_new(void)
{
    struct bytes bytes = {.at = malloc(FRAME_BYTES_MAX)};
    MILL_ASSERT(bytes.at != NULL);
    return bytes;
}

/* --- connection ------------------------------------------------------------------------------ */

void world_connect(struct world *world, struct world_client *client, uint32_t core)
{
    *client = (struct world_client){.world = world, .core = core};
    client->answer = malloc(WORLD_ANSWER_BYTES);
    client->peer = mem_connect(world->cores[core].maker);
    MILL_ASSERT(client->answer != NULL && client->peer != NULL);
}

void world_disconnect(struct world_client *client)
{
    if (client->peer) {
        mem_forget(client->peer);
    }
    free(client->answer);
    *client = (struct world_client){0};
}

void world_send(struct world_client *client, int16_t key, int16_t version, const void *body,
                uint32_t body_bytes)
{
    struct bytes frame = bytes_new();
    put32(&frame, 0);
    put16(&frame, key);
    put16(&frame, version);
    put32(&frame, ++client->correlation);
    put_text(&frame, client->id ? client->id : "sim");
    put(&frame, body, body_bytes);
    mill_store_be32(frame.at, frame.size - 4);
    if (client->send) {
        client->send(client->send_context, frame.at, frame.size);
    } else {
        mem_send(client->peer, frame.at, frame.size);
    }
    free(frame.at);
}

bool world_answer(struct world_client *client, uint32_t *ret_bytes)
{
    uint32_t want = 4;
    for (;;) {
        if (client->answer_bytes >= 4) {
            want = 4 + mill_load_be32(client->answer);
            MILL_ASSERT_LE(want, (uint32_t)WORLD_ANSWER_BYTES);
        }
        if (client->answer_bytes >= 4 && client->answer_bytes == want) {
            *ret_bytes = want - 4;
            client->answer_bytes = 0;
            memmove(client->answer, client->answer + 4, want - 4);
            return true;
        }
        /* The peer reads in pieces of any size. */
        uint32_t most = MILL_MIN(want - client->answer_bytes,
                                 1 + mill_random_below(&client->world->random, 60000));
        uint32_t got = mem_take(client->peer, client->answer + client->answer_bytes, most);
        if (got == 0) {
            return false;
        }
        client->answer_bytes += got;
    }
}

uint32_t world_await(struct world_client *client)
{
    uint32_t bytes = 0;
    for (uint32_t turn = 0; turn < AWAIT_TURNS; turn++) {
        if (world_answer(client, &bytes)) {
            return bytes;
        }
        MILL_ASSERT(!mem_ended(client->peer));
        world_turn(client->world, MILL_NS_PER_MS);
    }
    MILL_ASSERT(false); /* no answer */
    return 0;
}

/* --- through the codec ----------------------------------------------------------------------- */

void world_ask_send(struct world_client *client, int16_t key, int16_t version, world_encode encode,
                    const void *message)
{
    struct bytes body = bytes_new();
    struct mill_writer writer;
    bool flexible = version >= mill_api_find(key)->flexible_from;
    uint8_t tags = 0; /* of the header */
    put(&body, &tags, 1);
    mill_writer_init(&writer, body.at + 1, FRAME_BYTES_MAX - 1, NULL, 0);
    int r = encode(&writer, version, message);
    MILL_ASSERT_EQ(r, 0);
    world_send(client, key, version, flexible ? body.at : body.at + 1,
               writer.size_bytes + (flexible ? 1 : 0));
    free(body.at);
}

struct mill_cursor world_asked(struct world_client *client, int16_t key, int16_t version,
                               uint32_t answer_bytes)
{
    struct mill_cursor at = mill_cursor_over(&client->answer_buf, client->answer, answer_bytes);
    bool flexible = version >= mill_api_find(key)->flexible_from;
    bool tags = flexible && key != API_VERSIONS_KEY;
    MILL_ASSERT_EQ(mill_cursor_skip(&at, tags ? 5 : 4), 0);
    return at;
}

struct mill_cursor world_ask(struct world_client *client, int16_t key, int16_t version,
                             world_encode encode, const void *message)
{
    world_ask_send(client, key, version, encode, message);
    return world_asked(client, key, version, world_await(client));
}

/* --- topics ---------------------------------------------------------------------------------- */

void world_topic(struct world *world, const char *name, uint32_t partitions, const char *key,
                 const char *value)
{
    struct world_client client;
    struct bytes body = bytes_new();
    uint8_t no = 0;
    put32(&body, 1);
    put_text(&body, name);
    put32(&body, (int32_t)partitions);
    put16(&body, 1);
    put32(&body, 0); /* assignments */
    put32(&body, 1);
    put_text(&body, key);
    put_text(&body, value);
    put32(&body, 30000);
    put(&body, &no, 1); /* not only to validate */
    world_connect(world, &client, 0);
    world_send(&client, CREATE_TOPICS_KEY, 2, body.at, body.size);
    uint32_t size = world_await(&client);
    /* correlation, throttle time, one topic, its name, error */
    uint32_t at = 4 + 4 + 4 + 2 + (uint32_t)strlen(name);
    MILL_ASSERT_LT(at + 2, size);
    MILL_ASSERT_EQ((int16_t)mill_load_be16(client.answer + at), 0);
    world_disconnect(&client);
    free(body.at);
}

void world_coordinator(struct world *world, uint8_t key_type)
{
    struct world_client client;
    struct bytes body = bytes_new();
    int16_t error = -1;
    put_text(&body, "any");
    put(&body, &key_type, sizeof(key_type));
    world_connect(world, &client, 0);
    for (uint32_t tries = 0; error != 0; tries++) {
        MILL_ASSERT_LT(tries, 100u);
        world_send(&client, FIND_COORDINATOR_KEY, 1, body.at, body.size);
        MILL_ASSERT_LE(10u, world_await(&client));
        /* Behind the correlation id and the throttle time. */
        error = (int16_t)mill_load_be16(client.answer + 8);
    }
    world_disconnect(&client);
    free(body.at);
}

void world_offsets_topic(struct world *world)
{
    world_coordinator(world, 0);
}

/* --- produce --------------------------------------------------------------------------------- */

static void put_record(struct bytes *to, bool keyless, uint32_t index, uint64_t value,
                       uint32_t padding)
{
    struct bytes body = bytes_new();
    uint8_t zero = 0;
    put(&body, &zero, 1);
    put_varint(&body, 0);
    put_varint(&body, (int32_t)index);
    put_varint(&body, keyless ? -1 : 1);
    put(&body, "k", keyless ? 0 : 1);
    put_varint(&body, (int32_t)(8 + padding));
    put64(&body, (int64_t)value);
    for (uint32_t i = 0; i < padding; i++) {
        uint8_t byte = (uint8_t)(value + i);
        put(&body, &byte, 1);
    }
    put_varint(&body, 0);
    put_varint(to, (int32_t)body.size);
    put(to, body.at, body.size);
    free(body.at);
}

/* Adds records in the client's codec. */
static void put_packed(struct bytes *to, enum mill_codec codec, const struct bytes *records)
{
    for (uint32_t i = 0; i < MILL_COUNT_OF(packers); i++) {
        if (packers[i].codec == codec) {
            to->size += (uint32_t)packers[i].pack(to->at + to->size, FRAME_BYTES_MAX - to->size,
                                                  records->at, records->size);
            return;
        }
    }
    put(to, records->at, records->size);
}

static void put_batch(struct bytes *to, const struct world_client *client, int64_t producer_id,
                      int32_t sequence, uint64_t first, uint32_t count, uint32_t padding)
{
    struct bytes tail = bytes_new();
    struct bytes records = bytes_new();
    put16(&tail, (int16_t)client->codec);
    put32(&tail, (int32_t)count - 1);
    put64(&tail, 1700000000000);
    put64(&tail, 1700000000000);
    put64(&tail, producer_id);
    put16(&tail, producer_id < 0 ? -1 : 0);
    put32(&tail, producer_id < 0 ? -1 : sequence);
    put32(&tail, (int32_t)count);
    for (uint32_t i = 0; i < count; i++) {
        put_record(&records, client->keyless, i, first + i, padding);
    }
    put_packed(&tail, client->codec, &records);
    put64(to, 0);
    put32(to, (int32_t)(tail.size + 9));
    put32(to, -1);
    uint8_t magic = 2;
    put(to, &magic, 1);
    put32(to, (int32_t)mill_crc32c(tail.at, tail.size));
    put(to, tail.at, tail.size);
    free(tail.at);
    free(records.at);
}

static void put_produce_head(struct bytes *body, const struct world_client *client,
                             const char *topic, uint32_t partitions_count)
{
    put16(body, -1);                         /* no transactional id */
    put16(body, client->acks_none ? 0 : -1); /* -1: acks=all */
    put32(body, client->timeout_ms > 0 ? client->timeout_ms : 10000);
    put32(body, 1);
    put_text(body, topic);
    put32(body, (int32_t)partitions_count);
}

static void put_partition(struct bytes *body, int32_t partition, const struct bytes *batch)
{
    put32(body, partition);
    put32(body, (int32_t)batch->size);
    put(body, batch->at, batch->size);
}

void world_produce_many_send(struct world_client *client, const char *topic,
                             uint32_t partitions_count, uint64_t first_value, uint32_t count,
                             uint32_t padding)
{
    struct bytes batch = bytes_new();
    struct bytes body = bytes_new();
    put_batch(&batch, client, -1, -1, first_value, count, padding);
    put_produce_head(&body, client, topic, partitions_count);
    for (uint32_t i = 0; i < partitions_count; i++) {
        put_partition(&body, (int32_t)i, &batch);
    }
    world_send(client, PRODUCE_KEY, PRODUCE_VERSION, body.at, body.size);
    free(batch.at);
    free(body.at);
}

void world_produce_send(struct world_client *client, const char *topic, int32_t partition,
                        int64_t producer_id, int32_t sequence, uint64_t first_value, uint32_t count,
                        uint32_t padding)
{
    struct bytes batch = bytes_new();
    struct bytes body = bytes_new();
    put_batch(&batch, client, producer_id, sequence, first_value, count, padding);
    put_produce_head(&body, client, topic, 1);
    put_partition(&body, partition, &batch);
    world_send(client, PRODUCE_KEY, PRODUCE_VERSION, body.at, body.size);
    free(batch.at);
    free(body.at);
}

struct world_produced world_produced_read(const struct world_client *client, const char *topic)
{
    /* correlation, one topic, its name, one partition, index, error, base offset */
    const uint8_t *at = client->answer + 4 + 4 + 2 + strlen(topic) + 4 + 4;
    return (struct world_produced){
        .error = (int16_t)mill_load_be16(at),
        .base_offset = (int64_t)mill_load_be64(at + 2),
    };
}

/* --- fetch ----------------------------------------------------------------------------------- */

static void check_batch(const uint8_t *bytes, uint32_t size)
{
    uint32_t crc = mill_load_be32(bytes + MILL_BATCH_CRC_AT);
    MILL_ASSERT_EQ(crc, mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, size - MILL_BATCH_SUMMED_AT));
}

/* Walks the records; each value must be the one before plus one. */
static void check_values(const uint8_t *bytes, uint32_t size, const struct mill_batch *batch,
                         uint64_t *next_value, uint64_t *first_value, uint64_t *count)
{
    struct mill_buf buf;
    uint8_t *plain = NULL;
    struct mill_cursor at =
        mill_cursor_over(&buf, bytes + MILL_BATCH_HEADER_BYTES, size - MILL_BATCH_HEADER_BYTES);
    if (mill_batch_codec(batch) != MILL_CODEC_NONE) {
        int64_t made =
            mill_unpack(mill_batch_codec(batch), bytes + MILL_BATCH_HEADER_BYTES,
                        size - MILL_BATCH_HEADER_BYTES, MILL_STORE_PLAIN_MAX_BYTES, &plain);
        MILL_ASSERT_LE((int64_t)0, made);
        at = mill_cursor_over(&buf, plain, (uint32_t)made);
    }
    for (int32_t i = 0; i < batch->records_count; i++) {
        struct mill_record record;
        be64 wire;
        MILL_ASSERT_EQ(mill_record_next(&at, &record), 0);
        MILL_ASSERT_EQ(mill_cursor_read(&record.value, wire.b, sizeof(wire)), 0);
        uint64_t value = be64_get(wire);
        if (*count == 0) {
            *first_value = value;
        } else {
            MILL_ASSERT_EQ(value, *next_value);
        }
        *next_value = value + 1;
        (*count)++;
    }
    MILL_ASSERT_EQ(at.left_bytes, 0u);
    free(plain);
}

void world_fetch_send(struct world_client *client, const char *topic, uint32_t partitions_count,
                      const struct world_fetch_options *options)
{
    struct bytes body = bytes_new();
    uint8_t isolation = options->committed ? 1 : 0;
    put32(&body, -1);
    put32(&body, options->wait_ms);
    put32(&body, options->bytes_min);
    put32(&body, options->bytes_max);
    put(&body, &isolation, 1);
    put32(&body, options->session_id);
    put32(&body, options->session_epoch);
    put32(&body, 1);
    put_text(&body, topic);
    put32(&body, (int32_t)partitions_count);
    for (uint32_t i = 0; i < partitions_count; i++) {
        put32(&body, options->first_partition + (int32_t)i);
        put32(&body, -1); /* any leader epoch */
        put64(&body, options->offset);
        put64(&body, -1);
        put32(&body, options->partition_bytes_max);
    }
    put32(&body, 0);
    world_send(client, FETCH_KEY, FETCH_VERSION, body.at, body.size);
    free(body.at);
}

int64_t world_fetch(struct world_client *client, const char *topic, int32_t partition,
                    int64_t offset, uint32_t bytes_max, int codec, uint64_t *ret_first_value,
                    uint64_t *ret_values, int16_t *ret_error)
{
    struct world_fetch_options options = {
        .bytes_min = 1,
        .bytes_max = (int32_t)bytes_max,
        .partition_bytes_max = (int32_t)bytes_max,
        .first_partition = partition,
        .offset = offset,
        .session_epoch = -1,
    };
    world_fetch_send(client, topic, 1, &options);
    uint32_t bytes = world_await(client);
    uint32_t pos = 4 + 4 + 2 + 4 + 4 + 2 + (uint32_t)strlen(topic) + 4 + 4;
    *ret_error = (int16_t)mill_load_be16(client->answer + pos);
    pos += 2 + 8 + 8 + 8 + 4; /* aborted transactions: null */
    uint32_t size = mill_load_be32(client->answer + pos);
    pos += 4;
    MILL_ASSERT_EQ(pos + size, bytes);
    uint64_t next_value = 0;
    *ret_values = 0;
    *ret_first_value = 0;
    for (uint32_t at = 0; at < size;) {
        struct mill_batch batch;
        mill_batch_read(client->answer + pos + at, &batch);
        uint32_t whole = mill_batch_size_bytes(&batch);
        MILL_ASSERT_LE(at + whole, size);
        MILL_ASSERT(codec < 0 || (int)mill_batch_codec(&batch) == codec);
        check_batch(client->answer + pos + at, whole);
        check_values(client->answer + pos + at, whole, &batch, &next_value, ret_first_value,
                     ret_values);
        offset = mill_batch_last_offset(&batch) + 1;
        at += whole;
    }
    return offset;
}
