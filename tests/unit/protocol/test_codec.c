/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every message of every API and version means the same bytes in both directions, whatever
 * buffers carry it, and no cut or broken message is read past its end.
 * Method: messages with random contents from printed seeds, from a table that the generator made.
 * Inputs are copied to heap blocks of their exact size, so that ASan sees any over-read. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/protocol/codec_table.h"

enum {
    SEEDS = 12,
    BROKEN_ROUNDS = 60,
    JUNK_BYTES = 5,
    CUTS_MAX = 400,
};

static uint8_t room[CODEC_ROOM_BYTES];
static uint8_t again[CODEC_ROOM_BYTES];
static uint8_t junk_room[CODEC_ROOM_BYTES];

typedef void (*check_fn)(const struct codec_row *row, int16_t version, uint64_t seed);

static void for_each_message(check_fn check)
{
    for (uint32_t i = 0; i < codec_rows_count; i++) {
        const struct codec_row *row = &codec_rows[i];
        for (int16_t version = row->version_min; version <= row->version_max; version++) {
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                check(row, version, seed * 1000 + (uint64_t)version);
            }
        }
    }
}

static void say(const struct codec_row *row, int16_t version, uint64_t seed, const char *what)
{
    fail_msg("%s v%d seed %llu: %s", row->name, version, (unsigned long long)seed, what);
}

/* Decodes, encodes what came out, and compares. left_bytes must stay on the cursor. */
static void check_same(const struct codec_row *row, int16_t version, uint64_t seed,
                       struct mill_cursor at, uint32_t size_bytes, uint32_t left_bytes)
{
    alignas(16) uint8_t message[CODEC_MESSAGE_BYTES_MAX];
    struct mill_writer to;
    memset(message, 0xa5, sizeof(message));
    if (row->decode(&at, version, message) != 0) {
        say(row, version, seed, "its own bytes are refused");
    }
    if (at.left_bytes != left_bytes) {
        say(row, version, seed, "the cursor is not behind the message");
    }
    mill_writer_init(&to, again, sizeof(again), NULL, 0);
    if (row->encode(&to, version, message) != 0 || to.size_bytes != size_bytes ||
        memcmp(room, again, size_bytes) != 0) {
        say(row, version, seed, "other bytes after decode and encode");
    }
}

static void check_cuts(const struct codec_row *row, int16_t version, uint64_t seed)
{
    const uint32_t size_bytes = codec_make(row, version, seed, room, sizeof(room));
    const uint32_t step = size_bytes / CUTS_MAX + 1;
    memcpy(junk_room, room, size_bytes);
    memset(junk_room + size_bytes, 0xff, JUNK_BYTES);
    const uint32_t whole = size_bytes + JUNK_BYTES;
    for (uint32_t cut = 0; cut <= size_bytes; cut += step) {
        struct mill_buf empty = {.data = junk_room};
        struct mill_buf second = {.data = junk_room + cut, .size_bytes = whole - cut};
        struct mill_buf first = {.data = junk_room, .size_bytes = cut, .next = &empty};
        empty.next = &second;
        struct mill_cursor at = {.buf = &first, .left_bytes = whole};
        check_same(row, version, seed, at, size_bytes, JUNK_BYTES);
    }
    struct mill_buf *bytes = calloc(whole, sizeof(*bytes));
    for (uint32_t i = 0; i < whole; i++) {
        bytes[i] = (struct mill_buf){.data = junk_room + i, .size_bytes = 1};
        bytes[i].next = i + 1 < whole ? &bytes[i + 1] : NULL;
    }
    struct mill_cursor at = {.buf = bytes, .left_bytes = whole};
    check_same(row, version, seed, at, size_bytes, JUNK_BYTES);
    free(bytes);
}

static void test_decode_any_borders_encodes_same_bytes(void **state)
{
    (void)state;
    for_each_message(check_cuts);
}

/* Decodes a copy of exactly that size. */
static int decode_exact(const struct codec_row *row, int16_t version, const uint8_t *from,
                        uint32_t size_bytes, bool encode_too)
{
    alignas(16) uint8_t message[CODEC_MESSAGE_BYTES_MAX];
    uint8_t *copy = malloc(size_bytes ? size_bytes : 1);
    struct mill_buf buf;
    memcpy(copy, from, size_bytes);
    struct mill_cursor at = mill_cursor_over(&buf, copy, size_bytes);
    int error = row->decode(&at, version, message);
    if (error == 0 && encode_too) {
        struct mill_writer to;
        mill_writer_init(&to, again, sizeof(again), NULL, 0);
        assert_int_equal(row->encode(&to, version, message), 0);
    }
    free(copy);
    return error;
}

static void check_truncated(const struct codec_row *row, int16_t version, uint64_t seed)
{
    if (seed / 1000 > 4) {
        return;
    }
    const uint32_t size_bytes = codec_make(row, version, seed, room, sizeof(room));
    for (uint32_t part = 0; part < size_bytes; part++) {
        if (decode_exact(row, version, room, part, false) != -EBADMSG) {
            say(row, version, seed, "a cut message is taken");
        }
    }
}

static void test_decode_cut_at_every_byte_refused(void **state)
{
    (void)state;
    for_each_message(check_truncated);
}

/* Whatever decodes can be walked to its end: encoding does that. */
static void check_broken(const struct codec_row *row, int16_t version, uint64_t seed)
{
    struct mill_random random = {.state = seed};
    const uint32_t size_bytes = codec_make(row, version, seed, room, sizeof(room));
    for (int round = 0; round < BROKEN_ROUNDS && size_bytes > 0; round++) {
        memcpy(junk_room, room, size_bytes);
        uint32_t faults = 1 + mill_random_below(&random, 3);
        while (faults-- > 0) {
            static const uint8_t nasty[] = {0, 1, 0x7f, 0x80, 0xff};
            uint32_t at = mill_random_below(&random, size_bytes);
            junk_room[at] = mill_random_below(&random, 2)
                                ? nasty[mill_random_below(&random, sizeof(nasty))]
                                : (uint8_t)mill_random_next(&random);
        }
        int error = decode_exact(row, version, junk_room, size_bytes, true);
        assert_true(error == 0 || error == -EBADMSG);
    }
}

static void test_decode_broken_bytes_never_read_past_end(void **state)
{
    (void)state;
    for_each_message(check_broken);
}

/* Every place of a message overwritten with the largest count of either form. */
static void check_huge(const struct codec_row *row, int16_t version, uint64_t seed)
{
    static const uint8_t fixed[] = {0x7f, 0xff, 0xff, 0xff};
    static const uint8_t compact[] = {0xff, 0xff, 0xff, 0xff, 0x07};
    if (seed / 1000 > 2) {
        return;
    }
    const uint32_t size_bytes = codec_make(row, version, seed, room, sizeof(room));
    const bool flexible = version >= row->flexible_from;
    const uint32_t width = flexible ? sizeof(compact) : sizeof(fixed);
    for (uint32_t at = 0; at + width <= size_bytes; at++) {
        memcpy(junk_room, room, size_bytes);
        memcpy(junk_room + at, flexible ? compact : fixed, width);
        int error = decode_exact(row, version, junk_room, size_bytes, true);
        assert_true(error == 0 || error == -EBADMSG);
    }
}

static void test_decode_huge_counts_end_at_once(void **state)
{
    (void)state;
    for_each_message(check_huge);
}

/* Too little room is told, and nothing is written behind it. */
static void check_room(const struct codec_row *row, int16_t version, uint64_t seed)
{
    if (seed / 1000 > 1) {
        return;
    }
    const uint32_t size_bytes = codec_make(row, version, seed, room, sizeof(room));
    for (uint32_t capacity = 0; capacity < size_bytes; capacity++) {
        alignas(16) uint8_t message[CODEC_MESSAGE_BYTES_MAX];
        uint8_t *bytes = malloc(capacity ? capacity : 1);
        struct codec_pool pool = {.random = {.state = seed}, .version = version};
        struct mill_writer to;
        mill_writer_init(&to, bytes, capacity, NULL, 0);
        row->fill(&pool, message);
        assert_int_equal(row->encode(&to, version, message), -ENOSPC);
        free(bytes);
    }
}

static void test_encode_without_room_returns_enospc(void **state)
{
    (void)state;
    for_each_message(check_room);
}

static void test_versions_outside_table_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < codec_rows_count; i++) {
        alignas(16) uint8_t message[CODEC_MESSAGE_BYTES_MAX] = {0};
        const struct codec_row *row = &codec_rows[i];
        struct mill_buf buf;
        struct mill_writer to;
        struct mill_cursor at = mill_cursor_over(&buf, room, sizeof(room));
        mill_writer_init(&to, again, sizeof(again), NULL, 0);
        const int16_t below = (int16_t)(row->version_min - 1);
        const int16_t above = (int16_t)(row->version_max + 1);
        assert_int_equal(row->decode(&at, below, message), -EOPNOTSUPP);
        assert_int_equal(row->decode(&at, above, message), -EOPNOTSUPP);
        assert_int_equal(row->encode(&to, above, message), -EOPNOTSUPP);
        assert_int_equal(to.size_bytes, 0);
    }
}

static void test_table_agrees_with_apis(void **state)
{
    (void)state;
    assert_int_equal(codec_rows_count, 2 * mill_apis_count);
    for (uint32_t i = 0; i < codec_rows_count; i++) {
        const struct mill_api *api = mill_api_find(codec_rows[i].key);
        assert_non_null(api);
        assert_int_equal(api->version_min, codec_rows[i].version_min);
        assert_int_equal(api->version_max, codec_rows[i].version_max);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_agrees_with_apis),
        cmocka_unit_test(test_versions_outside_table_refused),
        cmocka_unit_test(test_decode_any_borders_encodes_same_bytes),
        cmocka_unit_test(test_decode_cut_at_every_byte_refused),
        cmocka_unit_test(test_decode_broken_bytes_never_read_past_end),
        cmocka_unit_test(test_decode_huge_counts_end_at_once),
        cmocka_unit_test(test_encode_without_room_returns_enospc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
