/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of topics and brokers through DescribeConfigs and AlterConfigs, for the commands of
 * topic and config. */
#ifndef MILL_CLI_SETTINGS_H
#define MILL_CLI_SETTINGS_H

#include <jansson.h>

#include "cli/client.h"

/* Every setting of a topic or broker: name, value (null: none), source, read_only, sensitive and
 * synonyms, the places that could give it, first the one that does. ret: NULL after cli_fail. */
json_t *settings_describe(rd_kafka_t *client, rd_kafka_ResourceType_t type, const char *name);

/* --config and --default of a call, as far as it can be told without a broker. ret: exit code. */
int settings_check_call(const struct cli_call *call);
/* Sets --config and takes away --default of the call; what else the topic or broker has stays.
 * column: what its name is called in rows, which get what the broker tells of the named settings
 * afterwards. ret: exit code. */
int settings_alter(const struct cli_call *call, rd_kafka_t *client, rd_kafka_ResourceType_t type,
                   const char *name, const char *column, json_t *rows);

#endif
