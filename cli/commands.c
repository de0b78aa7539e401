/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands. */
#include "cli/command.h"

#define OPTION_FILE                                                                                \
    {                                                                                              \
        "-c", "FILE", "configuration in Kafka's properties syntax"                                 \
    }
#define OPTION_SET                                                                                 \
    {                                                                                              \
        "--set", "KEY=VALUE", "one setting, after the file; may be repeated"                       \
    }
#define OPTION_STRICT                                                                              \
    {                                                                                              \
        "--strict", NULL, "an unknown key is an error"                                             \
    }
#define OPTION_DIR                                                                                 \
    {                                                                                              \
        "--dir", "RUNDIR", "run directory of the instance"                                         \
    }
#define OPTION_OUTPUT                                                                              \
    {                                                                                              \
        "-o", "table|json", "form of the output (table)"                                           \
    }
#define OPTION_BROKER                                                                              \
    {                                                                                              \
        "-b", "HOST:PORT", "broker to ask (127.0.0.1:9092)"                                        \
    }
#define OPTION_CLIENT                                                                              \
    {                                                                                              \
        "-X", "KEY=VALUE", "setting of the client library; may be repeated"                        \
    }

static const struct cli_option start_options[] = {
    OPTION_FILE,
    OPTION_SET,
    OPTION_STRICT,
    {"--detach", NULL, "return when the broker serves, and leave it in the background"},
};
static const struct cli_option check_options[] = {OPTION_FILE, OPTION_SET, OPTION_STRICT};
static const struct cli_option instance_options[] = {OPTION_FILE, OPTION_SET, OPTION_DIR};
static const struct cli_option status_options[] = {OPTION_FILE, OPTION_SET, OPTION_DIR,
                                                   OPTION_OUTPUT};
static const struct cli_option create_options[] = {
    OPTION_BROKER,
    {"-p", "COUNT", "partitions (the broker's default)"},
    {"-r", "COUNT", "replicas (the broker's default)"},
    {"--config", "KEY=VALUE", "setting of the topic; may be repeated"},
    {"--if-not-exists", NULL, "an existing topic is no failure"},
    OPTION_CLIENT,
};
static const struct cli_option topic_options[] = {OPTION_BROKER, OPTION_OUTPUT, OPTION_CLIENT};
static const struct cli_option delete_options[] = {
    OPTION_BROKER,
    {"--if-exists", NULL, "a missing topic is no failure"},
    OPTION_CLIENT,
};
static const struct cli_option produce_options[] = {
    OPTION_BROKER,
    {"-t", "TOPIC", "topic to write to"},
    {"-p", "PARTITION", "one partition (by key, or any)"},
    {"-K", "DELIMITER", "a line is KEY, delimiter, value"},
    {"-z", "CODEC", "none, gzip, snappy, lz4 or zstd (none)"},
    {"--acks", "0|1|all", "acknowledgements to wait for (all)"},
    OPTION_OUTPUT,
    OPTION_CLIENT,
};
static const struct cli_option consume_options[] = {
    OPTION_BROKER,
    {"-t", "TOPIC", "topic to read"},
    {"-p", "PARTITION", "one partition (all)"},
    {"-o", "OFFSET", "beginning, end, an offset, -N before the end, or @MS since 1970 (beginning)"},
    {"-c", "COUNT", "end after so many records"},
    {"-e", NULL, "end at the end of every partition"},
    {"-f", "FORMAT",
     "%s value, %k key, %t topic, %p partition, %o offset, %T time, %S and %K "
     "sizes, %% and \\n \\t (%s\\n)"},
    {"-J", NULL, "a JSON object per record"},
    OPTION_CLIENT,
};

#define OPTIONS(list) list, MILL_COUNT_OF(list)

static const struct cli_command commands[] = {
    {"start", "", "check the configuration and run a broker", OPTIONS(start_options), cli_start},
    {"check", "", "check a configuration and say what is wrong with it", OPTIONS(check_options),
     cli_check},
    {"stop", "", "stop a broker cleanly and wait for its end", OPTIONS(instance_options), cli_stop},
    {"status", "", "what a running broker is doing", OPTIONS(status_options), cli_status},
    {"topic create", "NAME...", "create topics", OPTIONS(create_options), cli_topic_create},
    {"topic list", "", "names of the topics", OPTIONS(topic_options), cli_topic_list},
    {"topic describe", "NAME...", "partitions and settings of topics", OPTIONS(topic_options),
     cli_topic_describe},
    {"topic delete", "NAME...", "delete topics", OPTIONS(delete_options), cli_topic_delete},
    {"produce", "", "write a record per line of standard input", OPTIONS(produce_options),
     cli_produce},
    {"consume", "", "read records to standard output, without a group", OPTIONS(consume_options),
     cli_consume},
    {"version", "", "print the version", NULL, 0, cli_version},
    {"help", "[COMMAND...]", "help of all commands, or of one", NULL, 0, cli_help_command},
};

const struct cli_command *cli_commands(uint32_t *ret_count)
{
    *ret_count = MILL_COUNT_OF(commands);
    return commands;
}
