/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a broker for what librdkafka of the distribution cannot ask, through the codec
 * of protocol/. Plain TCP: where a call asks for another security protocol (-X), there is none. */
#ifndef MILL_CLI_WIRE_H
#define MILL_CLI_WIRE_H

#include <jansson.h>

#include "cli/client.h"
#include "protocol/messages.h"

struct wire;

typedef int (*wire_encode)(struct mill_writer *to, int16_t version, const void *message);

/* Whether the call's options let brokers be asked so. */
bool wire_may(const struct cli_call *call);
/* Connects and asks which versions are served. ret: NULL: not reached, or no Kafka broker. */
struct wire *wire_open(const char *host, int32_t port);
/* NULL is fine. */
void wire_close(struct wire *wire);
/* The highest version that both know, at least least and at most most. ret: -1 none. */
int16_t wire_version(const struct wire *wire, int16_t api_key, int16_t least, int16_t most);
/* Asks and waits. *ret_body lies in wire until the next call. ret: 0, -EIO lost, or no answer in
 * time, -EBADMSG. */
int wire_ask(struct wire *wire, int16_t api_key, int16_t version, wire_encode encode,
             const void *message, struct mill_cursor *ret_body) MILL_WARN_UNUSED;

/* group_wire.c: states and kinds of all groups, {name: {state, type}}; a broker that cannot be
 * asked is left out. The caller frees. */
json_t *wire_groups(rd_kafka_t *client);
/* One group of the consumer protocol with its members. ret: NULL it is none, or cannot be asked. */
json_t *wire_group(rd_kafka_t *client, const char *name);

#endif
