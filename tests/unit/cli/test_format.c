/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: format strings are understood, read what they mean, and refuse what cannot be read back.
 * Method: formats with inputs and the records they must give, or the reason. What is written by
 * consume and read by produce is in test_client.c. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/format.h"

enum {
    TEXT_BYTES = 512,
};

static struct format format; /* large for a frame */
static struct format_record record;

static FILE *input_of(const char *bytes, size_t size)
{
    FILE *in = tmpfile();
    fwrite(bytes, 1, size, in);
    rewind(in);
    return in;
}

static void field_is(const struct format_field *field, const char *text)
{
    assert_int_equal(field->is_null, text == NULL);
    if (text) {
        assert_int_equal(field->size_bytes, strlen(text));
        assert_memory_equal(field->bytes, text, field->size_bytes);
    }
}

static void test_parse_wrong_format_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words;
    } rows[] = {
        {"%s %x", "unknown field \"%x\""},  {"%", "unknown field \"%\""},
        {"\\q", "unknown escape \"\\q\""},  {"\\", "unknown escape \"\\\""},
        {"\\x4", "unknown escape \"\\x\""},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        char reason[TEXT_BYTES] = "";
        assert_int_equal(format_parse(rows[i].text, &format, reason, sizeof(reason)), -EINVAL);
        assert_non_null(strstr(reason, rows[i].words));
    }
}

static void test_parse_too_long_is_refused(void **state)
{
    (void)state;
    char reason[TEXT_BYTES];
    char text[FORMAT_TEXT_BYTES + 2];
    memset(text, 'x', sizeof(text));
    text[FORMAT_TEXT_BYTES] = '\0';
    assert_int_equal(format_parse(text, &format, reason, sizeof(reason)), 0);
    text[FORMAT_TEXT_BYTES] = 'x';
    text[FORMAT_TEXT_BYTES + 1] = '\0';
    assert_int_equal(format_parse(text, &format, reason, sizeof(reason)), -EINVAL);
    for (uint32_t i = 0; i <= FORMAT_ITEMS_MAX; i++) {
        memcpy(text + (size_t)i * 2, "%s", 3);
    }
    assert_int_equal(format_parse(text, &format, reason, sizeof(reason)), -EINVAL);
    text[(size_t)2 * FORMAT_ITEMS_MAX] = '\0';
    assert_int_equal(format_parse(text, &format, reason, sizeof(reason)), 0);
}

static void test_parse_escapes_give_bytes(void **state)
{
    (void)state;
    char reason[TEXT_BYTES];
    assert_int_equal(format_parse("a\\n\\r\\t\\0\\\\\\x7F%%", &format, reason, sizeof(reason)), 0);
    assert_int_equal(format.items_count, 1);
    assert_int_equal(format.items[0].size_bytes, 8);
    assert_memory_equal(format.items[0].text, "a\n\r\t\0\\\x7f%", 8);
}

static void test_check_reading_needs_ends(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words; /* NULL: can be read */
    } rows[] = {
        {"%s", NULL},
        {"%k:%s\\n", NULL},
        {"%K %S %k%s", NULL},
        {"%k%s\\n", "where does %k end and %s begin"},
        {"%s%k", "where does %s end"},
        {"%S%s", "where does %S end"},
        {"%s %S", NULL}, /* the size comes too late to count, and may still be read */
        {"%p\\n", "neither the value"},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        char reason[TEXT_BYTES] = "";
        assert_int_equal(format_parse(rows[i].text, &format, reason, sizeof(reason)), 0);
        int r = format_check_reading(&format, reason, sizeof(reason));
        assert_int_equal(r, rows[i].words ? -EINVAL : 0);
        assert_true(!rows[i].words || strstr(reason, rows[i].words));
    }
}

static void test_read_gives_records(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        const char *input;
        const char *keys[2]; /* of two records */
        const char *values[2];
    } rows[] = {
        {"%s\\n", "one\n\n", {NULL, NULL}, {"one", ""}},
        {"%s", "one\ntwo", {NULL, NULL}, {"one", "two"}},
        {"%k => %s\\n", "a => b => c\nd => \n", {"a", "d"}, {"b => c", ""}},
        {"%k\\n%s\\n--\\n", "a\nb\nc\n--\nd\ne\n--\n", {"a", "d"}, {"b\nc", "e"}},
        {"%K:%k;%S:%s", "2:\n\n;1:x\n-1:;-1:\n", {"\n\n", NULL}, {"x", NULL}},
        {"%t %o %s\\n", "topic 7 x\nother 8 y\n", {NULL, NULL}, {"x", "y"}},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        char reason[TEXT_BYTES] = "";
        FILE *in = input_of(rows[i].input, strlen(rows[i].input));
        assert_int_equal(format_parse(rows[i].format, &format, reason, sizeof(reason)), 0);
        assert_int_equal(format_check_reading(&format, reason, sizeof(reason)), 0);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(format_read(&format, in, &record, reason, sizeof(reason)), 1);
            field_is(&record.key, rows[i].keys[k]);
            field_is(&record.value, rows[i].values[k]);
        }
        assert_int_equal(format_read(&format, in, &record, reason, sizeof(reason)), 0);
        format_record_clear(&record);
        fclose(in);
    }
}

static void test_read_takes_partition_time_and_headers(void **state)
{
    (void)state;
    static const char input[] = "3 1700000000000 a=1,b=,a=2=3|x\n4 -1 |y\n";
    char reason[TEXT_BYTES] = "";
    FILE *in = input_of(input, strlen(input));
    assert_int_equal(format_parse("%p %T %h|%s\\n", &format, reason, sizeof(reason)), 0);
    assert_int_equal(format_read(&format, in, &record, reason, sizeof(reason)), 1);
    assert_int_equal(record.partition, 3);
    assert_true(record.time_ms == 1700000000000);
    assert_int_equal(record.headers_count, 3);
    assert_string_equal(record.headers[0].name, "a");
    assert_memory_equal(record.headers[0].value, "1", 1);
    assert_int_equal(record.headers[1].value_bytes, 0);
    assert_int_equal(record.headers[2].value_bytes, 3);
    assert_memory_equal(record.headers[2].value, "2=3", 3);
    assert_int_equal(format_read(&format, in, &record, reason, sizeof(reason)), 1);
    assert_int_equal(record.headers_count, 0);
    assert_true(record.time_ms == 0); /* a time that a record does not have: now */
    format_record_clear(&record);
    fclose(in);
}

static void test_read_what_does_not_fit_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        const char *input;
        const char *words;
    } rows[] = {
        {"%k:%s\\n", "no end", "ends inside a record"},
        {"%S %s\\n", "5 abc", "ends inside a field"},
        {"%S %s\\n", "2 abc\n", "other bytes stand between"},
        {"%S %s\\n", "x abc\n", "no number"},
        {"%S %s\\n", "-2 a\n", "a size below -1"},
        {"%S %s\\n", "9999999999 a\n", "above 1 GiB"},
        {"%p %s\\n", " a\n", "a number is missing"},
        {"%p %s\\n", "4294967296 a\n", "a partition that cannot be"},
        {"%h %s\\n", "a=1,b x\n", "headers are NAME=VALUE"},
        {"%h %s\\n", "=1 x\n", "headers are NAME=VALUE"},
        {"<%s>", "(x>", "other bytes stand between"},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        char reason[TEXT_BYTES] = "";
        FILE *in = input_of(rows[i].input, strlen(rows[i].input));
        assert_int_equal(format_parse(rows[i].format, &format, reason, sizeof(reason)), 0);
        assert_int_equal(format_read(&format, in, &record, reason, sizeof(reason)), -EBADMSG);
        if (!strstr(reason, rows[i].words)) {
            fail_msg("%s with %s: %s", rows[i].format, rows[i].input, reason);
        }
        format_record_clear(&record);
        fclose(in);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_wrong_format_is_told),
        cmocka_unit_test(test_parse_too_long_is_refused),
        cmocka_unit_test(test_parse_escapes_give_bytes),
        cmocka_unit_test(test_check_reading_needs_ends),
        cmocka_unit_test(test_read_gives_records),
        cmocka_unit_test(test_read_takes_partition_time_and_headers),
        cmocka_unit_test(test_read_what_does_not_fit_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
