/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: text and bytes of an id name each other; wrong text is refused and changes nothing. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "base/random.h"
#include "base/uuid.h"

static void test_uuid_round_trip(void **state)
{
    (void)state;
    struct mill_random random = {.state = 3};
    for (int round = 0; round < 1000; round++) {
        struct mill_uuid id;
        struct mill_uuid back;
        char text[MILL_UUID_TEXT_BYTES];
        for (size_t i = 0; i < sizeof(id.b); i++) {
            id.b[i] = (uint8_t)mill_random_next(&random);
        }
        mill_uuid_format(&id, text);
        assert_int_equal(strlen(text), 22);
        assert_int_equal(mill_uuid_parse(text, &back), 0);
        assert_true(mill_uuid_equal(&id, &back));
    }
}

static void test_uuid_parse_wrong_text_refused(void **state)
{
    (void)state;
    struct mill_uuid id = {{1}};
    assert_int_equal(mill_uuid_parse("AAAAAAAAAAAAAAAAAAAAA", &id), -EINVAL);
    assert_int_equal(mill_uuid_parse("AAAAAAAAAAAAAAAAAAAAAAA", &id), -EINVAL);
    assert_int_equal(mill_uuid_parse("AAAAAAAAAA+AAAAAAAAAAA", &id), -EINVAL);
    assert_int_equal(id.b[0], 1);
    assert_int_equal(mill_uuid_parse("AAAAAAAAAAAAAAAAAAAAAA", &id), 0);
    assert_true(mill_uuid_is_zero(&id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uuid_round_trip),
        cmocka_unit_test(test_uuid_parse_wrong_text_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
