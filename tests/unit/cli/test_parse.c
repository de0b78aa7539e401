/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: calls are understood by the table and wrong use is told in one line. Method: argument lists
 * with the command, values or message that they must give. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"

enum {
    WORDS_MAX = 12,
    MESSAGE_BYTES = 512,
};

/* Splits at blanks; words is storage. */
static int parse(const char *line, char words[MESSAGE_BYTES], struct cli_call *call, char *message)
{
    char *argv[WORDS_MAX + 1];
    char *rest = NULL;
    int argc = 0;
    snprintf(words, MESSAGE_BYTES, "millrace %s", line);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        assert_true(argc < WORDS_MAX);
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    return cli_parse(argc, argv, call, message, MESSAGE_BYTES);
}

static void test_parse_wrong_use_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *words;
    } rows[] = {
        {"", "unknown command \"\""},
        {"strat", "unknown command \"strat\"; see: millrace help"},
        {"topic", "incomplete command \"topic\"; see: millrace help topic"},
        {"topic frobnicate", "unknown command \"topic frobnicate\"; see: millrace help topic"},
        {"docter", "unknown command \"docter\""},
        {"start --detached", "start: unknown option --detached"},
        {"start extra", "start: unexpected word \"extra\""},
        {"start -c", "start: option -c needs a value (FILE)"},
        {"start --detach=yes", "start: option --detach takes no value"},
        {"topic create", "topic create: NAME... is missing"},
        {"consume -z x", "consume: unknown option -z"},
    };
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char words[MESSAGE_BYTES];
        char message[MESSAGE_BYTES] = "";
        struct cli_call call;
        assert_int_equal(parse(rows[i].line, words, &call, message), -EINVAL);
        if (!strstr(message, rows[i].words)) {
            fail_msg("\"%s\" gave \"%s\"", rows[i].line, message);
        }
    }
}

static void test_parse_values_and_operands(void **state)
{
    (void)state;
    char words[MESSAGE_BYTES];
    char message[MESSAGE_BYTES];
    struct cli_call call;
    int64_t number;
    assert_int_equal(
        parse("topic create a -p3 --config x=1 --config=y=2 b -- -c", words, &call, message), 0);
    assert_string_equal(call.command->name, "topic create");
    assert_int_equal(call.operands_count, 3);
    assert_string_equal(call.operands[1], "b");
    assert_string_equal(call.operands[2], "-c");
    assert_string_equal(cli_value_at(&call, "--config", 0), "x=1");
    assert_string_equal(cli_value_at(&call, "--config", 1), "y=2");
    assert_null(cli_value_at(&call, "--config", 2));
    assert_int_equal(cli_number(&call, "-p", -1, 1, 10, &number), 0);
    assert_int_equal(number, 3);
    assert_int_equal(cli_number(&call, "-r", -1, 1, 10, &number), 0);
    assert_int_equal(number, -1);
    assert_int_equal(cli_number(&call, "-p", -1, 4, 10, &number), -EINVAL);
    assert_string_equal(cli_value(&call, "-b", "fallback"), "fallback");
}

static void test_parse_last_value_wins_and_negative_values_pass(void **state)
{
    (void)state;
    char words[MESSAGE_BYTES];
    char message[MESSAGE_BYTES];
    struct cli_call call;
    assert_int_equal(parse("consume -t a -t b -o -5 -e", words, &call, message), 0);
    assert_string_equal(cli_value(&call, "-t", NULL), "b");
    assert_string_equal(cli_value(&call, "-o", NULL), "-5");
    assert_non_null(cli_value(&call, "-e", NULL));
    assert_null(cli_value(&call, "-J", NULL));
}

static void test_table_every_command_is_found_and_runs(void **state)
{
    (void)state;
    uint32_t count;
    const struct cli_command *commands = cli_commands(&count);
    assert_true(count >= 12);
    for (uint32_t i = 0; i < count; i++) {
        char line[64];
        char words[MESSAGE_BYTES];
        char message[MESSAGE_BYTES];
        struct cli_call call;
        snprintf(line, sizeof(line), "%s%s", commands[i].name, commands[i].operands[0] ? " x" : "");
        assert_int_equal(parse(line, words, &call, message), 0);
        assert_ptr_equal(call.command, &commands[i]);
        assert_true(commands[i].run != NULL);
        assert_true(commands[i].summary[0] != '\0');
    }
}

/* The second of two would be shown by help and never be found. */
static void test_table_options_of_a_command_differ(void **state)
{
    (void)state;
    uint32_t count;
    const struct cli_command *commands = cli_commands(&count);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < commands[i].options_count; j++) {
            for (uint32_t k = 0; k < j; k++) {
                if (strcmp(commands[i].options[j].name, commands[i].options[k].name) == 0) {
                    fail_msg("%s has two options %s", commands[i].name,
                             commands[i].options[j].name);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_wrong_use_is_told),
        cmocka_unit_test(test_parse_values_and_operands),
        cmocka_unit_test(test_parse_last_value_wins_and_negative_values_pass),
        cmocka_unit_test(test_table_every_command_is_found_and_runs),
        cmocka_unit_test(test_table_options_of_a_command_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
