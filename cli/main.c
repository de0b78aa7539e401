/* SPDX-License-Identifier: Apache-2.0 */
/* millrace: the operators' command. Parses by the table and runs one command. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

enum {
    MESSAGE_BYTES = 512,
};

int main(int argc, char **argv)
{
    struct cli_call call;
    char message[MESSAGE_BYTES];
    if (argc < 2) {
        cli_help(NULL);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_help(NULL);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        return cli_version(NULL);
    }
    bool help = strcmp(argv[argc - 1], "--help") == 0 || strcmp(argv[argc - 1], "-h") == 0;
    if (cli_parse(help ? argc - 1 : argc, argv, &call, message, sizeof(message)) < 0 &&
        !(help && call.command)) {
        return help ? cli_help_words(argv[1], argc > 3 ? argv[2] : NULL)
                    : cli_fail(CLI_USAGE, "%s", message);
    }
    if (help) {
        cli_help(call.command);
        return CLI_OK;
    }
    int code = call.command->run(&call);
    if (fflush(stdout) != 0 && code == CLI_OK) {
        return cli_fail(CLI_FAILED, "cannot write to standard output");
    }
    return code;
}
