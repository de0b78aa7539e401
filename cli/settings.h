/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of topics, groups and brokers, for the commands of topic and config. */
#ifndef MILL_CLI_SETTINGS_H
#define MILL_CLI_SETTINGS_H

#include <jansson.h>

#include "cli/client.h"

/* Kafka's numbers of what has settings. */
enum settings_kind {
    SETTINGS_TOPIC = 2,
    SETTINGS_BROKER = 4,
    SETTINGS_GROUP = 32,
};

struct settings_of {
    enum settings_kind kind;
    const char *name; /* of a broker its number; "": what all brokers have by default */
};

/* The name as messages and rows have it. */
const char *settings_title(const struct settings_of *of);
/* Our word for Kafka's number of where a setting comes from. */
const char *settings_source(int source);

/* Every setting: name, value (null: none), source, read_only, sensitive and synonyms, the places
 * that could give it, first the one that does. ret: NULL after cli_fail. */
json_t *settings_describe(const struct cli_call *call, rd_kafka_t *client,
                          const struct settings_of *of);

/* --config and --default of a call, as far as it can be told without a broker. ret: exit code. */
int settings_check_call(const struct cli_call *call);
/* Sets --config and takes away --default of the call; what else there is stays. column: what the
 * name is called in rows, which get what the broker tells of the named settings afterwards. ret:
 * exit code. */
int settings_alter(const struct cli_call *call, rd_kafka_t *client, const struct settings_of *of,
                   const char *column, json_t *rows);

/* settings_wire.c: over a connection of our own; wire_may told that one may. The same list. */
json_t *wire_settings(rd_kafka_t *client, const struct settings_of *of);
/* Changes what the call names and nothing else. ret: exit code; -EOPNOTSUPP: the broker cannot be
 * asked so, and nothing was changed. */
int wire_settings_alter(const struct cli_call *call, rd_kafka_t *client,
                        const struct settings_of *of);

#endif
