/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a call by the table, and prints the table as help. */
#include "cli/command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_BYTES = 512,
};

int cli_fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "millrace: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    return code;
}

/* How many words of argv a command's name takes; 0: it is another command. */
static int words_matched(const char *name, int argc, char *const *argv)
{
    const char *second = strchr(name, ' ');
    size_t first = second ? (size_t)(second - name) : strlen(name);
    if (argc < 2 || strlen(argv[1]) != first || memcmp(argv[1], name, first) != 0) {
        return 0;
    }
    if (!second) {
        return 1;
    }
    return argc > 2 && strcmp(argv[2], second + 1) == 0 ? 2 : 0;
}

static const struct cli_command *find_command(int argc, char *const *argv, int *ret_words)
{
    uint32_t count;
    const struct cli_command *commands = cli_commands(&count);
    for (uint32_t i = 0; i < count; i++) {
        *ret_words = words_matched(commands[i].name, argc, argv);
        if (*ret_words > 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static bool begins_with_word(const char *name, const char *word)
{
    size_t size = strlen(word);
    return strncmp(name, word, size) == 0 && name[size] == ' ';
}

/* True when word begins a name of two words. */
static bool is_group(const char *word)
{
    uint32_t count;
    const struct cli_command *commands = cli_commands(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (begins_with_word(commands[i].name, word)) {
            return true;
        }
    }
    return false;
}

static const struct cli_option *find_option(const struct cli_command *command, const char *name,
                                            size_t size)
{
    for (uint32_t i = 0; i < command->options_count; i++) {
        const struct cli_option *option = &command->options[i];
        if (strlen(option->name) == size && memcmp(option->name, name, size) == 0) {
            return option;
        }
    }
    return NULL;
}

/* Takes the option at argv[*at]: "-p 3", "-p3", "--set x", "--set=x". */
static int take_option(struct cli_call *call, int argc, char *const *argv, int *at, char *message,
                       size_t size_bytes)
{
    const char *word = argv[*at];
    bool is_long = word[1] == '-';
    size_t size = is_long ? strcspn(word, "=") : 2;
    const struct cli_option *option = find_option(call->command, word, size);
    if (!option) {
        snprintf(message, size_bytes, "%s: unknown option %s; see: millrace help %s",
                 call->command->name, word, call->command->name);
        return -EINVAL;
    }
    const char *text = word[size] ? word + size + (is_long ? 1 : 0) : NULL;
    if (!option->argument && text) {
        snprintf(message, size_bytes, "%s: option %s takes no value", call->command->name,
                 option->name);
        return -EINVAL;
    }
    if (option->argument && !text) {
        if (*at + 1 >= argc) {
            snprintf(message, size_bytes, "%s: option %s needs a value (%s)", call->command->name,
                     option->name, option->argument);
            return -EINVAL;
        }
        text = argv[++*at];
    }
    if (call->values_count == CLI_VALUES_MAX) {
        snprintf(message, size_bytes, "%s: more than %d options", call->command->name,
                 CLI_VALUES_MAX);
        return -EINVAL;
    }
    call->values[call->values_count++] =
        (struct cli_value){.option = option, .text = text ? text : option->name};
    return 0;
}

static int check_operands(const struct cli_call *call, char *message, size_t size_bytes)
{
    const char *wanted = call->command->operands;
    if (wanted[0] == '\0' && call->operands_count > 0) {
        snprintf(message, size_bytes, "%s: unexpected word \"%s\"; see: millrace help %s",
                 call->command->name, call->operands[0], call->command->name);
        return -EINVAL;
    }
    if (wanted[0] != '\0' && wanted[0] != '[' && call->operands_count == 0) {
        snprintf(message, size_bytes, "%s: %s is missing", call->command->name, wanted);
        return -EINVAL;
    }
    return 0;
}

int cli_parse(int argc, char *const *argv, struct cli_call *ret_call, char *ret_message,
              size_t size_bytes)
{
    int words = 0;
    bool only_operands = false;
    memset(ret_call, 0, sizeof(*ret_call));
    ret_call->command = find_command(argc, argv, &words);
    if (!ret_call->command) {
        bool group = argc > 1 && is_group(argv[1]);
        const char *blank = group && argc > 2 ? " " : "";
        snprintf(ret_message, size_bytes, "%s command \"%s%s%s\"; see: millrace help%s%s",
                 group && argc == 2 ? "incomplete" : "unknown", argc > 1 ? argv[1] : "", blank,
                 blank[0] ? argv[2] : "", group ? " " : "", group ? argv[1] : "");
        return -EINVAL;
    }
    for (int i = 1 + words; i < argc; i++) {
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = true;
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
            int r = take_option(ret_call, argc, argv, &i, ret_message, size_bytes);
            if (r < 0) {
                return r;
            }
        } else if (ret_call->operands_count == CLI_OPERANDS_MAX) {
            snprintf(ret_message, size_bytes, "%s: more than %d names", ret_call->command->name,
                     CLI_OPERANDS_MAX);
            return -EINVAL;
        } else {
            ret_call->operands[ret_call->operands_count++] = argv[i];
        }
    }
    return check_operands(ret_call, ret_message, size_bytes);
}

const char *cli_value(const struct cli_call *call, const char *option, const char *fallback)
{
    const char *text = fallback;
    for (uint32_t i = 0; i < call->values_count; i++) {
        if (strcmp(call->values[i].option->name, option) == 0) {
            text = call->values[i].text;
        }
    }
    return text;
}

const char *cli_value_at(const struct cli_call *call, const char *option, uint32_t index)
{
    for (uint32_t i = 0; i < call->values_count; i++) {
        if (strcmp(call->values[i].option->name, option) == 0 && index-- == 0) {
            return call->values[i].text;
        }
    }
    return NULL;
}

int cli_number(const struct cli_call *call, const char *option, int64_t fallback, int64_t min,
               int64_t max, int64_t *ret_number)
{
    const char *text = cli_value(call, option, NULL);
    char *end = NULL;
    if (!text) {
        *ret_number = fallback;
        return 0;
    }
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE || number < min || number > max) {
        cli_fail(CLI_USAGE, "%s: option %s needs a number from %lld to %lld, not \"%s\"",
                 call->command->name, option, (long long)min, (long long)max, text);
        return -EINVAL;
    }
    *ret_number = number;
    return 0;
}

int cli_wants_json(const struct cli_call *call, bool *ret_json)
{
    const char *text = cli_value(call, "-o", "table");
    *ret_json = strcmp(text, "json") == 0;
    if (!*ret_json && strcmp(text, "table") != 0) {
        cli_fail(CLI_USAGE, "%s: option -o needs table or json, not \"%s\"", call->command->name,
                 text);
        return -EINVAL;
    }
    return 0;
}

static void summary_line(const struct cli_command *command)
{
    printf("  %-20s  %s\n", command->name, command->summary);
}

void cli_help(const struct cli_command *command)
{
    uint32_t count;
    const struct cli_command *commands = cli_commands(&count);
    if (!command) {
        printf("usage: millrace COMMAND [OPTION]...\n\n");
        for (uint32_t i = 0; i < count; i++) {
            summary_line(&commands[i]);
        }
        printf(
            "\nmillrace help COMMAND shows a command's options. Exit: 0 fine, 1 failed (machine, "
            "broker), 2 wrong use or configuration.\n");
        return;
    }
    printf("usage: millrace %s%s%s%s\n%s\n", command->name,
           command->options_count ? " [OPTION]..." : "", command->operands[0] ? " " : "",
           command->operands, command->summary);
    for (uint32_t i = 0; i < command->options_count; i++) {
        const struct cli_option *option = &command->options[i];
        char head[64];
        snprintf(head, sizeof(head), "%s %s", option->name,
                 option->argument ? option->argument : "");
        printf("  %-20s %s\n", head, option->help);
    }
}

int cli_version(const struct cli_call *call)
{
    MILL_UNUSED(call);
    printf("millrace %s\n", MILL_VERSION);
    return CLI_OK;
}

int cli_help_words(const char *first, const char *second)
{
    char name[NAME_BYTES];
    uint32_t count;
    const struct cli_command *commands = cli_commands(&count);
    snprintf(name, sizeof(name), "%s%s%s", first, second ? " " : "", second ? second : "");
    bool group = !second && is_group(first);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            cli_help(&commands[i]);
            return CLI_OK;
        }
        if (group && begins_with_word(commands[i].name, first)) {
            summary_line(&commands[i]);
        }
    }
    if (group) {
        printf("\nmillrace help %s COMMAND shows a command's options.\n", first);
        return CLI_OK;
    }
    return cli_fail(CLI_USAGE, "unknown command \"%s\"; see: millrace help", name);
}

int cli_help_command(const struct cli_call *call)
{
    if (call->operands_count == 0) {
        cli_help(NULL);
        return CLI_OK;
    }
    return cli_help_words(call->operands[0], call->operands_count > 1 ? call->operands[1] : NULL);
}
