/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands. */
#include "cli/command.h"
#include "cli/format.h"

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
    {"--adopt", NULL, "first take over the log directories that Kafka wrote, with their topics"},
    {"--detach", NULL, "return when the broker serves, and leave it in the background"},
};
static const struct cli_option check_options[] = {OPTION_FILE, OPTION_SET, OPTION_STRICT};
static const struct cli_option instance_options[] = {OPTION_FILE, OPTION_SET, OPTION_DIR};
static const struct cli_option status_options[] = {OPTION_FILE, OPTION_SET, OPTION_DIR,
                                                   OPTION_OUTPUT};
static const struct cli_option top_options[] = {
    OPTION_FILE,
    OPTION_SET,
    OPTION_DIR,
    {"-i", "MS", "interval between two readings in milliseconds (1000)"},
    {"--once", NULL, "one interval, then end"},
    OPTION_OUTPUT,
};
static const struct cli_option doctor_options[] = {
    OPTION_FILE,
    OPTION_SET,
    {"--root", "DIR", "look at the files below DIR in place of this machine's"},
    OPTION_OUTPUT,
};
static const struct cli_option create_options[] = {
    OPTION_BROKER,
    {"-p", "COUNT", "partitions (the broker's default)"},
    {"-r", "COUNT", "replicas (the broker's default)"},
    {"--config", "KEY=VALUE", "setting of the topic; may be repeated"},
    {"--if-not-exists", NULL, "an existing topic is no failure"},
    OPTION_OUTPUT,
    OPTION_CLIENT,
};
static const struct cli_option grow_options[] = {
    OPTION_BROKER,
    {"-p", "COUNT", "partitions that each topic shall have in all"},
    OPTION_OUTPUT,
    OPTION_CLIENT,
};
static const struct cli_option topic_options[] = {OPTION_BROKER, OPTION_OUTPUT, OPTION_CLIENT};
static const struct cli_option alter_options[] = {
    OPTION_BROKER,
    {"--config", "KEY=VALUE", "setting of the topic; may be repeated"},
    {"--default", "KEY", "setting to be the broker's again; may be repeated"},
    OPTION_OUTPUT,
    OPTION_CLIENT,
};
#define OPTIONS_RESOURCE                                                                           \
    {"-t", "TOPIC", "settings of a topic"}, {"--group", "GROUP", "settings of a group"},           \
    {                                                                                              \
        "--broker", "ID|default", "settings of a broker, or what all brokers have by default"      \
    }
static const struct cli_option config_describe_options[] = {
    OPTION_BROKER, OPTIONS_RESOURCE, {"--all", NULL, "also what nobody has set"},
    OPTION_OUTPUT, OPTION_CLIENT,
};
static const struct cli_option config_alter_options[] = {
    OPTION_BROKER,
    OPTIONS_RESOURCE,
    {"--config", "KEY=VALUE", "a setting; may be repeated"},
    {"--default", "KEY", "setting to be taken away again; may be repeated"},
    OPTION_OUTPUT,
    OPTION_CLIENT,
};
static const struct cli_option trim_options[] = {
    OPTION_BROKER,
    {"-p", "PARTITION", "one partition (all)"},
    {"--before", "OFFSET|end", "records below it are removed"},
    OPTION_OUTPUT,
    OPTION_CLIENT,
};
static const struct cli_option delete_options[] = {
    OPTION_BROKER,
    {"--if-exists", NULL, "a missing topic is no failure"},
    OPTION_OUTPUT,
    OPTION_CLIENT,
};
static const struct cli_option group_options[] = {OPTION_BROKER, OPTION_OUTPUT, OPTION_CLIENT};
static const struct cli_option reset_options[] = {
    OPTION_BROKER,
    {"--to", "WHERE", "beginning, end, an offset, +N or -N from where it is, or @MS since 1970"},
    {"-t", "TOPIC", "one topic (those that the group committed)"},
    {"-p", "PARTITION", "one partition (all)"},
    {"--dry-run", NULL, "show what would be, change nothing"},
    OPTION_OUTPUT,
    OPTION_CLIENT,
};
static const struct cli_option produce_options[] = {
    OPTION_BROKER,
    {"-t", "TOPIC", "topic to write to"},
    {"-p", "PARTITION", "one partition (by key, or any)"},
    {"-f", "FORMAT", "how a record stands in the input (%s\\n): " FORMAT_FIELDS},
    {"-K", "DELIMITER", "a line is KEY, delimiter, value"},
    {"-k", "KEY", "key of every record that has none"},
    {"-H", "NAME=VALUE", "header of every record; may be repeated"},
    {"-Z", NULL, "an empty key or value is null: a deletion mark where topics are compacted"},
    {"-z", "CODEC", "none, gzip, snappy, lz4 or zstd (none)"},
    {"--acks", "0|1|all", "acknowledgements to wait for (all)"},
    {"--timeout", "SECONDS", "give up on a silent broker, or a record, after so long (30)"},
    OPTION_OUTPUT,
    OPTION_CLIENT,
};
static const struct cli_option consume_options[] = {
    OPTION_BROKER,
    {"-t", "TOPIC", "topic to read"},
    {"-p", "PARTITION", "one partition (all)"},
    {"--group", "GROUP", "read as a member of a group, from where it committed, and commit"},
    {"--no-commit", NULL, "with --group: commit nothing"},
    {"-o", "OFFSET", "beginning, end, an offset, -N before the end, or @MS since 1970 (beginning)"},
    {"-c", "COUNT", "end after so many records"},
    {"-e", NULL, "end at the end of every partition"},
    {"-f", "FORMAT", "how a record is written (%s\\n): " FORMAT_FIELDS},
    {"-J", NULL, "a JSON object per record"},
    OPTION_CLIENT,
};

/* Loads: over what, how many, how long. */
#define OPTIONS_DEVICE                                                                             \
    {"--device", "DEVICE", "own TCP on this DPDK device, as in dpdk.port.NAME.device"},            \
        {"--address", "CIDR", "our address on it (198.18.0.2/24)"},                                \
        {"--gateway", "ADDRESS", "its gateway (none)"}, {"--mtu", "BYTES", "its MTU (1500)"},      \
        {"--queues", "N", "queues of it; on memif both ends have the same number (1)"},            \
        {"--netns", "NAME", "namespace to open it in (this one)"},                                 \
        {"--rx-csum", "verify|trust", "checksums of received frames (verify)"},                    \
        {"--tx-csum", "auto|off", "off: make no TCP sums, as the peer trusts memory (auto)"},      \
        {"--memory", "MB", "memory of DPDK (256)"},                                                \
    {                                                                                              \
        "--eal-args", "WORDS", "more arguments of EAL (none)"                                      \
    }
#define OPTION_BUSY                                                                                \
    {                                                                                              \
        "--busy", NULL, "never sleep; always so on a device"                                       \
    }
#define OPTIONS_LOAD                                                                               \
    {"-t", "TOPIC", "topic of the load"}, {"-p", "COUNT", "partitions, the first so many (all)"},  \
        {"--connections", "COUNT", "connections (1)"},                                             \
        {"--rate", "COUNT",                                                                        \
         "open loop: requests a second over all connections, timed from when each was due "        \
         "(closed loop: as many as have room)"},                                                   \
        {"--poisson", NULL, "exponential gaps of an open loop (constant)"},                        \
        {"--warmup", "MS", "time before the measured one (500; 0 with --count)"},                  \
        {"--seconds", "COUNT", "measured time (5; with --count until they are sent)"},             \
        {"--count", "COUNT", "end after so many requests"},                                        \
        {"--timeout", "MS", "fail when no answer comes for so long (10000)"}, OPTION_BUSY
#define OPTIONS_RECORDS                                                                            \
    {"--record-bytes", "BYTES", "value of a record (200)"},                                        \
    {                                                                                              \
        "--batch-bytes", "BYTES", "a batch is filled up to this (16384)"                           \
    }

static const struct cli_option bench_produce_options[] = {
    OPTION_BROKER,
    OPTIONS_LOAD,
    {"--in-flight", "COUNT", "requests under way per connection (5)"},
    OPTIONS_RECORDS,
    {"--records", "COUNT", "records per batch (as many as fill it); 1: one per request"},
    {"--acks", "0|1|all", "acknowledgements to wait for (all)"},
    {"--idempotent", NULL, "each connection is an idempotent producer"},
    {"--create", NULL, "make the topic, with -p partitions, when it is missing"},
    OPTIONS_DEVICE,
    OPTION_OUTPUT,
};
static const struct cli_option bench_fetch_options[] = {
    OPTION_BROKER,
    OPTIONS_LOAD,
    {"--in-flight", "COUNT", "requests under way per connection, one per partition (1)"},
    {"--offset", "OFFSET", "begin, and begin again at the end, here (the log's start)"},
    {"--max-bytes", "BYTES", "of one answer (1048576)"},
    {"--max-wait", "MS", "how long a broker may wait for data (500)"},
    OPTIONS_DEVICE,
    OPTION_OUTPUT,
};
static const struct cli_option bench_end_to_end_options[] = {
    OPTION_BROKER,
    {"-t", "TOPIC", "topic of the load; nobody else may write to it"},
    {"--rate", "COUNT", "records a second (1000)"},
    {"--poisson", NULL, "exponential gaps (constant)"},
    {"--warmup", "MS", "time before the measured one (500; 0 with --count)"},
    {"--seconds", "COUNT", "measured time (5; with --count until they are sent)"},
    {"--count", "COUNT", "end after so many records"},
    {"--timeout", "MS", "fail when no answer comes for so long (10000)"},
    {"--record-bytes", "BYTES", "value of a record (200)"},
    {"--acks", "1|all", "acknowledgements to wait for (all)"},
    {"--create", NULL, "make the topic when it is missing"},
    OPTION_BUSY,
    OPTIONS_DEVICE,
    OPTION_OUTPUT,
};
static const struct cli_option bench_null_options[] = {
    {"-b", "HOST:PORT", "address to listen on (127.0.0.1:9092)"},
    {"-p", "COUNT", "partitions that every topic seems to have (1)"},
    OPTIONS_RECORDS,
    {"--seconds", "COUNT", "end after so long (at SIGINT or SIGTERM)"},
    OPTION_BUSY,
    OPTIONS_DEVICE,
};
static const struct cli_option bench_echo_options[] = {
    {"--server", NULL, "send back what comes, until SIGINT or SIGTERM"},
    {"--frame-bytes", "BYTES", "a frame (64)"},
    {"--warmup", "MS", "time before the measured one (500)"},
    {"--seconds", "COUNT", "measured time (5)"},
    {"--timeout", "MS", "fail when a frame does not come back for so long (10000)"},
    OPTIONS_DEVICE,
    OPTION_OUTPUT,
};

#define OPTIONS(list) list, MILL_COUNT_OF(list)

static const struct cli_command commands[] = {
    {"start", "", "check the configuration and run a broker", OPTIONS(start_options), cli_start},
    {"check", "", "check a configuration and say what is wrong with it", OPTIONS(check_options),
     cli_check},
    {"stop", "", "stop a broker cleanly and wait for its end", OPTIONS(instance_options), cli_stop},
    {"status", "", "what a running broker is doing", OPTIONS(status_options), cli_status},
    {"top", "",
     "live rates per core, port, partition and stage; keys on a terminal: s sorts, q quits",
     OPTIONS(top_options), cli_top},
    {"doctor", "",
     "what on this machine keeps a broker from running well, and the command that mends each; exit "
     "1 "
     "when something is bad, 0 with advice only",
     OPTIONS(doctor_options), cli_doctor},
    {"topic create", "NAME...", "create topics", OPTIONS(create_options), cli_topic_create},
    {"topic list", "", "names of the topics", OPTIONS(topic_options), cli_topic_list},
    {"topic describe", "NAME...", "partitions and settings of topics", OPTIONS(topic_options),
     cli_topic_describe},
    {"topic alter", "NAME...", "change settings of topics", OPTIONS(alter_options),
     cli_topic_alter},
    {"topic trim", "NAME...", "remove the oldest records of topics", OPTIONS(trim_options),
     cli_topic_trim},
    {"topic add-partitions", "NAME...", "give topics more partitions", OPTIONS(grow_options),
     cli_topic_add_partitions},
    {"topic delete", "NAME...", "delete topics", OPTIONS(delete_options), cli_topic_delete},
    {"group list", "", "names and states of consumer groups", OPTIONS(group_options),
     cli_group_list},
    {"group describe", "NAME...", "members, committed offsets and lag of groups",
     OPTIONS(group_options), cli_group_describe},
    {"group reset", "NAME", "move a group's committed offsets", OPTIONS(reset_options),
     cli_group_reset},
    {"group delete", "NAME...", "delete groups without members", OPTIONS(group_options),
     cli_group_delete},
    {"config describe", "[KEY...]",
     "settings of a topic, group or broker, and where they come from",
     OPTIONS(config_describe_options), cli_config_describe},
    {"config alter", "", "change settings of a topic, a group or, while it runs, of a broker",
     OPTIONS(config_alter_options), cli_config_alter},
    {"produce", "", "write records from standard input, a line each or as -f says",
     OPTIONS(produce_options), cli_produce},
    {"consume", "", "read records to standard output, alone or in a group",
     OPTIONS(consume_options), cli_consume},
    {"bench produce", "", "load a broker with produce requests", OPTIONS(bench_produce_options),
     cli_bench_produce},
    {"bench fetch", "", "load a broker with fetch requests", OPTIONS(bench_fetch_options),
     cli_bench_fetch},
    {"bench end-to-end", "", "time records from their production to their arrival",
     OPTIONS(bench_end_to_end_options), cli_bench_end_to_end},
    {"bench null-server", "", "answer loads without doing a broker's work: the load's own ceiling",
     OPTIONS(bench_null_options), cli_bench_null_server},
    {"bench echo", "", "time bare frames over a device, without IP and TCP",
     OPTIONS(bench_echo_options), cli_bench_echo},
    {"version", "", "print the version", NULL, 0, cli_version},
    {"help", "[COMMAND...]", "help of all commands, or of one", NULL, 0, cli_help_command},
};

const struct cli_command *cli_commands(uint32_t *ret_count)
{
    *ret_count = MILL_COUNT_OF(commands);
    return commands;
}
