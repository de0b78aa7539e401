/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a chain and its cursor give back the same bytes whatever the borders of the buffers.
 * Method: a known text cut at every pair of places, read in steps of every size. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/chain.h"

static const char text[] = "0123456789abcdefghij";
enum {
    TEXT_BYTES = sizeof(text) - 1,
};
static unsigned freed;

static void count_free(struct mill_buf *buf)
{
    (void)buf;
    freed++;
}

static void cut(struct mill_chain *chain, struct mill_buf buf[3], size_t first, size_t second)
{
    static char copy[TEXT_BYTES];
    memcpy(copy, text, TEXT_BYTES);
    size_t border[4] = {0, first, second, TEXT_BYTES};
    *chain = (struct mill_chain){0};
    for (size_t i = 0; i < 3; i++) {
        buf[i] = (struct mill_buf){.data = (uint8_t *)copy + border[i],
                                   .size_bytes = (uint32_t)(border[i + 1] - border[i]),
                                   .charge_bytes = 100,
                                   .free = count_free};
        mill_chain_append(chain, &buf[i]);
    }
}

static void test_cursor_read_any_borders_same_bytes(void **state)
{
    (void)state;
    for (size_t first = 0; first <= TEXT_BYTES; first++) {
        for (size_t second = first; second <= TEXT_BYTES; second++) {
            for (uint32_t step = 1; step <= TEXT_BYTES; step++) {
                struct mill_chain chain;
                struct mill_buf buf[3];
                char out[TEXT_BYTES];
                cut(&chain, buf, first, second);
                struct mill_cursor cursor = mill_chain_cursor(&chain);
                for (uint32_t at = 0; at < TEXT_BYTES; at += step) {
                    uint32_t part = MILL_MIN(step, (uint32_t)TEXT_BYTES - at);
                    assert_int_equal(mill_cursor_read(&cursor, out + at, part), 0);
                }
                assert_memory_equal(out, text, TEXT_BYTES);
                assert_int_equal(mill_cursor_read(&cursor, out, 1), -EBADMSG);
            }
        }
    }
}

static void test_consume_frees_emptied_buffers(void **state)
{
    (void)state;
    struct mill_chain chain;
    struct mill_buf buf[3];
    cut(&chain, buf, 5, 9);
    freed = 0;
    mill_chain_consume(&chain, 4);
    assert_int_equal(freed, 0);
    mill_chain_consume(&chain, 1);
    assert_int_equal(freed, 1);
    assert_int_equal(chain.charge_bytes, 200);
    mill_chain_consume(&chain, TEXT_BYTES - 5);
    assert_int_equal(freed, 3);
    assert_null(chain.head);
    assert_null(chain.tail);
    assert_int_equal(chain.size_bytes, 0);
    assert_int_equal(chain.charge_bytes, 0);
}

static void test_cursor_contiguous_only_inside_one_buffer(void **state)
{
    (void)state;
    struct mill_chain chain;
    struct mill_buf buf[3];
    cut(&chain, buf, 5, 9);
    struct mill_cursor cursor = mill_chain_cursor(&chain);
    assert_int_equal(mill_cursor_skip(&cursor, 5), 0);
    const uint8_t *bytes = mill_cursor_contiguous(&cursor, 4);
    assert_non_null(bytes);
    assert_memory_equal(bytes, text + 5, 4);
    assert_null(mill_cursor_contiguous(&cursor, 5));
    assert_int_equal(mill_cursor_skip(&cursor, TEXT_BYTES), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cursor_read_any_borders_same_bytes),
        cmocka_unit_test(test_consume_frees_emptied_buffers),
        cmocka_unit_test(test_cursor_contiguous_only_inside_one_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
