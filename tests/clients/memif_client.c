/* SPDX-License-Identifier: Apache-2.0 */
/* A patient Kafka client on our own stack, over a memif to a real broker: it reads what is in
 * partition 0 of a topic, produces COUNT numbered batches more, one request at a time, and reads
 * everything again. A lost connection is opened anew and an unanswered batch sent again,
 * so a number may be there twice, but never missing, changed or out of order.
 *
 *   memif_client DEVICE BROKER-ADDRESS TOPIC COUNT      SIGTERM: no more batches
 *
 * Prints "acked N" at the start and as it goes and "equal N batches D again" at the end; exit 1
 * with a reason otherwise. tests/faults/memif.py kills it and the broker. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/random.h"
#include "protocol/batch.h"
#include "tests/clients/own_client.h"

enum {
    RECORDS = 4,
    VALUE_BYTES = 1000,
    BATCH_MAX = 8192,
    FETCH_BYTES = 1 << 20,
    TOLD_EACH = 50,
};

static volatile sig_atomic_t enough;

struct client {
    struct own_client own;
    const char *topic;
    uint8_t batch[BATCH_MAX];
};

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

/* --- requests ----------------------------------------------------------------------------------
 */

/* Answers of both kinds: topic and partition of the only one asked for. ret: its error code. */
static uint16_t error_of(const struct client *client, uint32_t at)
{
    at += 4 + 2 + (uint32_t)strlen(client->topic) + 4 + 4;
    MILL_ASSERT_LE(at + 2, client->own.answer_bytes);
    return mill_load_be16(client->own.answer + at);
}

/* ret: false when it must be sent again. */
static bool produce(struct client *client, uint64_t number)
{
    uint32_t size_bytes = batch_make(number, client->batch);
    struct bytes request = own_request(&client->own, PRODUCE_KEY, PRODUCE_VERSION);
    put16(&request, -1);
    put16(&request, -1); /* acks=all */
    put32(&request, 10000);
    put32(&request, 1);
    put_text(&request, client->topic);
    put32(&request, 1);
    put32(&request, 0);
    put32(&request, (int32_t)size_bytes);
    put(&request, client->batch, size_bytes);
    return own_ask(&client->own, &request) && error_of(client, 8) == 0;
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
            own_fail("a batch is missing", *next);
        }
        if (batch_make(number, client->batch) != whole ||
            memcmp(client->batch + MILL_BATCH_MAGIC_AT, at + MILL_BATCH_MAGIC_AT,
                   whole - MILL_BATCH_MAGIC_AT) != 0) {
            own_fail("a batch was changed", number);
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
        struct bytes request = own_request(&client->own, FETCH_KEY, FETCH_VERSION);
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
        if (!own_ask(&client->own, &request) || error_of(client, 12) != 0) {
            own_turn(&client->own); /* not served yet, after a restart */
            continue;
        }
        uint32_t at = 12 + 4 + 2 + (uint32_t)strlen(client->topic) + 4 + 4 + 2;
        int64_t end = (int64_t)mill_load_be64(client->own.answer + at);
        at += 8 + 8 + 4; /* high watermark, last stable offset, no aborted transactions */
        uint32_t records = mill_load_be32(client->own.answer + at);
        offset +=
            RECORDS * check_batches(client, client->own.answer + at + 4, records, &next, ret_again);
        if (offset >= end) {
            return next;
        }
    }
}

static void on_term(int number)
{
    MILL_UNUSED(number);
    enough = 1;
}

int main(int argc, char **argv)
{
    static struct client client;
    uint64_t again = 0;
    if (argc != 5) {
        fprintf(stderr, "usage: memif_client DEVICE BROKER-ADDRESS TOPIC COUNT\n");
        return 2;
    }
    client.topic = argv[3];
    (void)signal(SIGTERM, on_term);
    own_open(&client.own, argv[1], argv[2]);
    uint64_t number = read_all(&client, &again);
    uint64_t count = number + strtoull(argv[4], NULL, 10);
    for (bool tell = true; number < count && !enough; tell = number % TOLD_EACH == 0) {
        if (tell) {
            printf("acked %llu\n", (unsigned long long)number);
            fflush(stdout);
        }
        number += produce(&client, number);
    }
    uint64_t found = read_all(&client, &again);
    if (found < number) {
        own_fail("batches are missing at the end", found);
    }
    printf("equal %llu batches %llu again\n", (unsigned long long)found, (unsigned long long)again);
    own_close(&client.own);
    return 0;
}
