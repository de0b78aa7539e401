/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a table shows values whole, of every kind. Method: standard output put on a file. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/table.h"

enum {
    LONG_BYTES = 500,
    IDS = 100,
    TEXT_BYTES = 3000,
};

static void print(const json_t *rows, const char *const *columns, char output[TEXT_BYTES])
{
    FILE *out = tmpfile();
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    table_print(rows, columns);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(out);
    output[fread(output, 1, TEXT_BYTES - 1, out)] = '\0';
    fclose(out);
}

static void test_print_kinds_of_values(void **state)
{
    static const char *const columns[] = {"name", "ids", "number", "flag", "none", NULL};
    char output[TEXT_BYTES];
    MILL_UNUSED(state);
    json_t *rows = json_pack("[{s:s, s:[i,i], s:i, s:b, s:n}, {s:s, s:[]}]", "name", "one", "ids",
                             1, 2, "number", 7, "flag", 1, "none", "name", "second", "ids");
    print(rows, columns, output);
    assert_string_equal(output, "name    ids  number  flag  none\n"
                                "one     1,2  7       true  -\n"
                                "second  -    -       -     -\n");
    json_decref(rows);
}

static void test_print_long_text_is_whole_and_long_list_says_that_it_is_not(void **state)
{
    static const char *const columns[] = {"text", "ids", NULL};
    char text[LONG_BYTES + 1];
    char output[TEXT_BYTES];
    MILL_UNUSED(state);
    memset(text, 'x', LONG_BYTES);
    text[LONG_BYTES] = '\0';
    json_t *ids = json_array();
    for (int i = 0; i < IDS; i++) {
        json_array_append_new(ids, json_integer(1000 + i));
    }
    json_t *rows = json_pack("[{s:s, s:o}]", "text", text, "ids", ids);
    print(rows, columns, output);
    const char *found = strstr(output, text);
    assert_non_null(found);
    assert_int_equal(strncmp(found + LONG_BYTES, "  1000,1001,", 12), 0);
    assert_string_equal(output + strlen(output) - 4, "...\n");
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_print_kinds_of_values),
        cmocka_unit_test(test_print_long_text_is_whole_and_long_list_says_that_it_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
