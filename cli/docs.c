/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the documents that come from the tables of commands and keys: "keys" as markdown, "man1"
 * as millrace(1), "man5" as millrace.properties(5), "bash" as the completion of that shell. Run by
 * the build, not installed. */
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/doctor.h"
#include "config/config.h"

#define DYNAMIC_TEXT " Can be altered while the broker runs."

static const char *const type_names[] = {
    [MILL_CONFIG_BOOL] = "boolean",  [MILL_CONFIG_INT] = "int",
    [MILL_CONFIG_SHORT] = "short",   [MILL_CONFIG_LONG] = "long",
    [MILL_CONFIG_DOUBLE] = "double", [MILL_CONFIG_STRING] = "string",
    [MILL_CONFIG_LIST] = "list",     [MILL_CONFIG_PASSWORD] = "password",
};

/* What a key may be: its range with unit, or its words. */
static void values_text(enum mill_config_type type, int64_t min, int64_t max, const char *choices,
                        const char *unit, char *ret_text, size_t size_bytes)
{
    bool number = type == MILL_CONFIG_INT || type == MILL_CONFIG_SHORT ||
                  type == MILL_CONFIG_LONG || type == MILL_CONFIG_DOUBLE;
    if (number) {
        snprintf(ret_text, size_bytes, "%s %lld to %lld%s%s%s%s", type_names[type], (long long)min,
                 (long long)max, unit[0] ? " " : "", unit, choices ? ", or " : "",
                 choices ? choices : "");
    } else {
        snprintf(ret_text, size_bytes, "%s%s%s", type_names[type], choices ? ": " : "",
                 choices ? choices : "");
    }
}

/* --- markdown ------------------------------------------------------------------------------------
 */

/* A | would end the cell. */
static void cell(const char *text, bool code)
{
    printf(code && text[0] ? " `" : " ");
    for (const char *at = text; *at; at++) {
        printf(*at == '|' ? "\\%c" : "%c", *at);
    }
    printf(code && text[0] ? "` |" : " |");
}

static void row(const char *name, const char *values, const char *preset, const char *help)
{
    printf("|");
    cell(name, true);
    cell(values, false);
    cell(preset ? preset : "", true);
    cell(help, false);
    printf("\n");
}

static void heading(const char *title)
{
    printf("\n## %s\n\n| key | values | default | meaning |\n|---|---|---|---|\n", title);
}

static void keys_of(enum mill_config_scope scope, bool in_use)
{
    char values[160];
    char help[512];
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        const struct mill_key_info *info = mill_key_info((enum mill_key)i);
        if (info->scope != scope || (scope == MILL_SCOPE_BROKER && info->in_use != in_use)) {
            continue;
        }
        values_text(info->type, info->min, info->max, info->choices, info->unit, values,
                    sizeof(values));
        bool broker = info->broker_key < MILL_KEY_COUNT;
        snprintf(help, sizeof(help), "%s%s%s%s%s%s%s", info->help, info->alias ? " Also: " : "",
                 info->alias ? info->alias : "", broker ? " Broker-wide: " : "",
                 broker ? mill_key_info(info->broker_key)->name : "",
                 info->in_use || scope == MILL_SCOPE_BROKER ? "" : " No effect yet.",
                 mill_key_is_dynamic((enum mill_key)i) ? DYNAMIC_TEXT : "");
        row(info->name, values, info->default_text, help);
    }
}

static void print_keys(void)
{
    const struct mill_key_family_info *families;
    uint32_t count = mill_key_families(&families);
    char values[160];
    char name[128];
    printf("# Configuration keys\n\nMade from config/keys.def by cli/docs.c; do not edit.\n");
    heading("Broker keys that act");
    keys_of(MILL_SCOPE_BROKER, true);
    for (uint32_t i = 0; i < count; i++) {
        const struct mill_key_family_info *info = &families[i];
        values_text(info->type, info->min, info->max, info->choices, info->unit, values,
                    sizeof(values));
        snprintf(name, sizeof(name), "%s%s", info->pattern, info->name);
        row(name, values, info->default_text, info->help);
    }
    heading("Kafka's broker keys that are accepted without effect yet");
    keys_of(MILL_SCOPE_BROKER, false);
    heading("Topic keys");
    keys_of(MILL_SCOPE_TOPIC, true);
}

static void print_doctor(void)
{
    uint32_t count;
    const struct doctor_check *checks = doctor_checks(&count);
    printf("# millrace doctor\n\nMade from cli/doctor_checks.c by cli/docs.c; do not edit. Exit 1 "
           "when "
           "a check is bad, 0 when all are fine or advice.\n\n| check | looks at | why it matters "
           "|\n|---|---|---|\n");
    for (uint32_t i = 0; i < count; i++) {
        printf("| %s | %s | %s |\n", checks[i].name, checks[i].looks, checks[i].why);
    }
}

/* --- manual pages ---------------------------------------------------------------------------- */

/* Text of roff: a backslash and a hyphen have meanings, a dot or a quote at the start too. */
static void roff(const char *text)
{
    if (text[0] == '.' || text[0] == '\'') {
        printf("\\&");
    }
    for (const char *at = text; *at; at++) {
        if (*at == '\\') {
            printf("\\e");
        } else if (*at == '-') {
            printf("\\-");
        } else {
            putchar(*at);
        }
    }
}

static void bold_line(const char *before, const char *text, const char *argument)
{
    printf(".TP\n%s\\fB", before);
    roff(text);
    printf("\\fR%s", argument ? " \\fI" : "");
    roff(argument ? argument : "");
    printf("%s\n", argument ? "\\fR" : "");
}

static void print_man1(void)
{
    uint32_t count;
    const struct cli_command *commands = cli_commands(&count);
    printf(".\\\" Made from cli/commands.c by cli/docs.c; do not edit.\n.TH MILLRACE 1 \"\" "
           "\"millrace " MILL_VERSION
           "\"\n.SH NAME\nmillrace \\- run and ask a Millrace log broker\n"
           ".SH SYNOPSIS\n.B millrace\n.I COMMAND\n[\\fIOPTION\\fR]...\n.SH COMMANDS\n");
    for (uint32_t i = 0; i < count; i++) {
        printf(".SS ");
        roff(commands[i].name);
        printf(" ");
        roff(commands[i].operands);
        printf("\n");
        roff(commands[i].summary);
        printf("\n");
        for (uint32_t j = 0; j < commands[i].options_count; j++) {
            bold_line("", commands[i].options[j].name, commands[i].options[j].argument);
            roff(commands[i].options[j].help);
            printf("\n");
        }
    }
    printf(".SH EXIT STATUS\n0 fine, 1 failed (machine or broker), 2 wrong use or configuration.\n"
           ".SH SEE ALSO\n.BR millrace.properties (5)\n");
}

static void man5_entry(const char *name, const char *values, const char *preset, const char *help)
{
    bold_line("", name, NULL);
    roff(help);
    printf("\n.br\n");
    roff(values);
    printf("; default: ");
    roff(preset ? preset : "none");
    printf("\n");
}

static void man5_keys(enum mill_config_scope scope)
{
    char values[160];
    char help[512];
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        const struct mill_key_info *info = mill_key_info((enum mill_key)i);
        if (info->scope == scope) {
            values_text(info->type, info->min, info->max, info->choices, info->unit, values,
                        sizeof(values));
            snprintf(help, sizeof(help), "%s%s", info->help,
                     mill_key_is_dynamic((enum mill_key)i) ? DYNAMIC_TEXT : "");
            man5_entry(info->name, values, info->default_text, help);
        }
    }
}

static void print_man5(void)
{
    const struct mill_key_family_info *families;
    uint32_t count = mill_key_families(&families);
    char values[160];
    char name[128];
    printf(".\\\" Made from config/keys.def by cli/docs.c; do not edit.\n.TH MILLRACE.PROPERTIES 5 "
           "\"\" \"millrace " MILL_VERSION
           "\"\n.SH NAME\nmillrace.properties \\- configuration of a "
           "Millrace broker\n.SH DESCRIPTION\nLines of \\fIkey\\fR=\\fIvalue\\fR in the syntax of "
           "Java's properties. An unknown key is a warning, a wrong value an error.\n.SH BROKER "
           "KEYS\n");
    man5_keys(MILL_SCOPE_BROKER);
    printf(".SH KEYS OF LISTENERS AND PORTS\n");
    for (uint32_t i = 0; i < count; i++) {
        const struct mill_key_family_info *info = &families[i];
        values_text(info->type, info->min, info->max, info->choices, info->unit, values,
                    sizeof(values));
        snprintf(name, sizeof(name), "%s%s", info->pattern, info->name);
        man5_entry(name, values, info->default_text, info->help);
    }
    printf(".SH TOPIC KEYS\n");
    man5_keys(MILL_SCOPE_TOPIC);
    printf(".SH SEE ALSO\n.BR millrace (1)\n");
}

/* --- completion ----------------------------------------------------------------------------------
 */

/* Words that an option's argument may be: those of "a|b|C" that are no names. */
static void print_choices(const char *argument)
{
    for (const char *at = argument; *at;) {
        size_t size = strcspn(at, "|");
        if (at[0] < 'A' || at[0] > 'Z') {
            printf(" %.*s", (int)size, at);
        }
        at += size + (at[size] == '|');
    }
}

/* What bash may offer behind an option: files, directories, words, or nothing. */
static void print_argument(const struct cli_command *command, const struct cli_option *option)
{
    if (!option->argument) {
        return;
    }
    printf("        '%s %s') kind='", command->name, option->name);
    if (strcmp(option->argument, "FILE") == 0) {
        printf("file");
    } else if (strstr(option->argument, "DIR")) {
        printf("dir");
    } else {
        printf("words");
        if (strchr(option->argument, '|')) {
            print_choices(option->argument);
        }
    }
    printf("' ;;\n");
}

/* First words, or the second ones behind first; each once. */
static void print_words(const char *first)
{
    uint32_t count;
    const struct cli_command *commands = cli_commands(&count);
    size_t size = strlen(first);
    const char *last = "";
    for (uint32_t i = 0; i < count; i++) {
        const char *name = commands[i].name;
        if (size > 0 && (strncmp(name, first, size) != 0 || name[size] != ' ')) {
            continue;
        }
        name += size > 0 ? size + 1 : 0;
        size_t word = strcspn(name, " ");
        /* Commands with the same first word stand together. */
        if (strncmp(name, last, word) != 0 || last[word] != ' ') {
            printf("%s%.*s", last[0] ? " " : "", (int)word, name);
        }
        last = name;
    }
}

static void print_bash(void)
{
    uint32_t count;
    const struct cli_command *commands = cli_commands(&count);
    const char *last = "";
    printf("# Made from cli/commands.c by cli/docs.c; do not edit.\n"
           "# Completion of millrace for bash; zsh reads it after bashcompinit.\n"
           "_millrace()\n{\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]-} second= options= "
           "kind=\n"
           "    local at=1\n"
           "    COMPREPLY=()\n"
           "    if [ \"$command\" = help ]; then\n        at=2\n        "
           "command=${COMP_WORDS[2]-}\n    fi\n"
           "    if [ \"$COMP_CWORD\" -le $at ]; then\n        COMPREPLY=($(compgen -W '");
    print_words("");
    printf("' -- \"$cur\"))\n        return\n    fi\n    case $command in\n");
    for (uint32_t i = 0; i < count; i++) {
        size_t size = strcspn(commands[i].name, " ");
        char first[64];
        snprintf(first, sizeof(first), "%.*s", (int)size, commands[i].name);
        if (commands[i].name[size] && (strncmp(last, first, size) != 0 || last[size] != ' ')) {
            printf("        %s) second='", first);
            print_words(first);
            printf("' ;;\n");
        }
        last = commands[i].name;
    }
    printf("    esac\n    if [ \"$second\" ]; then\n        at=$((at + 1))\n"
           "        if [ \"$COMP_CWORD\" -le $at ]; then\n"
           "            COMPREPLY=($(compgen -W \"$second\" -- \"$cur\"))\n            return\n"
           "        fi\n        command=\"$command ${COMP_WORDS[at]}\"\n    fi\n"
           "    [ \"${COMP_WORDS[1]}\" != help ] || return\n"
           "    case \"$command ${COMP_WORDS[COMP_CWORD - 1]}\" in\n");
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < commands[i].options_count; j++) {
            print_argument(&commands[i], &commands[i].options[j]);
        }
    }
    printf("    esac\n    case $kind in\n"
           "        file) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
           "        dir) COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n"
           "        words*) COMPREPLY=($(compgen -W \"${kind#words}\" -- \"$cur\")); return ;;\n"
           "    esac\n    case $command in\n");
    for (uint32_t i = 0; i < count; i++) {
        printf("        '%s') options='", commands[i].name);
        for (uint32_t j = 0; j < commands[i].options_count; j++) {
            printf("%s ", commands[i].options[j].name);
        }
        printf("--help' ;;\n");
    }
    printf("    esac\n    COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n}\n"
           "complete -o filenames -F _millrace millrace\n");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "keys") == 0) {
        print_keys();
    } else if (argc == 2 && strcmp(argv[1], "doctor") == 0) {
        print_doctor();
    } else if (argc == 2 && strcmp(argv[1], "man1") == 0) {
        print_man1();
    } else if (argc == 2 && strcmp(argv[1], "man5") == 0) {
        print_man5();
    } else if (argc == 2 && strcmp(argv[1], "bash") == 0) {
        print_bash();
    } else {
        fprintf(stderr, "usage: docs keys|doctor|man1|man5|bash\n");
        return 2;
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
