/* SPDX-License-Identifier: Apache-2.0 */
/* The millrace command: one table of commands and their options (commands.c) makes parser, help and
 * man page. Main thread of a short-lived process. */
#ifndef MILL_CLI_COMMAND_H
#define MILL_CLI_COMMAND_H

#include "base/compiler.h"

enum {
    CLI_OK = 0,
    CLI_FAILED = 1, /* the machine or the broker */
    CLI_USAGE = 2,  /* wrong use or configuration */
    CLI_VALUES_MAX = 128,
    CLI_OPERANDS_MAX = 64, /* names of one topic command */
};

struct cli_option {
    const char *name;     /* "-b" or "--detach" */
    const char *argument; /* "FILE"; NULL: a flag */
    const char *help;
};

struct cli_call;

struct cli_command {
    const char *name;     /* "topic create": one or two words */
    const char *operands; /* "NAME...", "" none; one in brackets may be missing */
    const char *summary;
    const struct cli_option *options;
    uint32_t options_count;
    int (*run)(const struct cli_call *call);
};

struct cli_value {
    const struct cli_option *option;
    const char *text;
};

/* One call as parsed. */
struct cli_call {
    const struct cli_command *command;
    struct cli_value values[CLI_VALUES_MAX];
    uint32_t values_count;
    const char *operands[CLI_OPERANDS_MAX];
    uint32_t operands_count;
};

const struct cli_command *cli_commands(uint32_t *ret_count);

/* Finds the command of the words and parses the rest. ret: 0, -EINVAL (message: one line). */
int cli_parse(int argc, char *const *argv, struct cli_call *ret_call, char *ret_message,
              size_t size_bytes) MILL_WARN_UNUSED;
/* Last value of an option; fallback when it was not given. A flag's value is its name. */
const char *cli_value(const struct cli_call *call, const char *option, const char *fallback);
/* The index-th value of a repeated option, NULL after the last. */
const char *cli_value_at(const struct cli_call *call, const char *option, uint32_t index);
/* Help of all commands, or of one. Written to standard output. */
void cli_help(const struct cli_command *command);
/* Help of a command by its words, or of all commands that begin with the first. ret: code. */
int cli_help_words(const char *first, const char *second);
/* One line on standard error, "millrace: " before it. ret: code. */
int cli_fail(int code, const char *format, ...) MILL_PRINTF(2, 3);
/* A whole number within the range. ret: 0, or -EINVAL after cli_fail. */
int cli_number(const struct cli_call *call, const char *option, int64_t fallback, int64_t min,
               int64_t max, int64_t *ret_number) MILL_WARN_UNUSED;
/* -o: true json, false table. ret: 0, -EINVAL after cli_fail. */
int cli_wants_json(const struct cli_call *call, bool *ret_json) MILL_WARN_UNUSED;

int cli_start(const struct cli_call *call);
int cli_check(const struct cli_call *call);
int cli_stop(const struct cli_call *call);
int cli_status(const struct cli_call *call);
int cli_top(const struct cli_call *call);
int cli_doctor(const struct cli_call *call);
int cli_topic_create(const struct cli_call *call);
int cli_topic_list(const struct cli_call *call);
int cli_topic_describe(const struct cli_call *call);
int cli_topic_alter(const struct cli_call *call);
int cli_topic_trim(const struct cli_call *call);
int cli_topic_add_partitions(const struct cli_call *call);
int cli_topic_delete(const struct cli_call *call);
int cli_group_list(const struct cli_call *call);
int cli_group_describe(const struct cli_call *call);
int cli_group_reset(const struct cli_call *call);
int cli_group_delete(const struct cli_call *call);
int cli_config_describe(const struct cli_call *call);
int cli_config_alter(const struct cli_call *call);
int cli_produce(const struct cli_call *call);
int cli_consume(const struct cli_call *call);
int cli_bench_produce(const struct cli_call *call);
int cli_bench_fetch(const struct cli_call *call);
int cli_bench_end_to_end(const struct cli_call *call);
int cli_bench_null_server(const struct cli_call *call);
int cli_bench_echo(const struct cli_call *call);
int cli_version(const struct cli_call *call);
int cli_help_command(const struct cli_call *call);

#endif
