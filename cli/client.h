/* SPDX-License-Identifier: Apache-2.0 */
/* A Kafka client of the commands: librdkafka with the options that all of them share, and the
 * progress line of those that move records. */
#ifndef MILL_CLI_CLIENT_H
#define MILL_CLI_CLIENT_H

#include <librdkafka/rdkafka.h>

#include "cli/command.h"

enum {
    CLIENT_TIMEOUT_MS = 15000,
    CLIENT_NOTICE_MS = 1000, /* of silence, before it is said */
    CLIENT_TEXT_BYTES = 512,
};

struct client_setting {
    const char *key;
    const char *value;
};

/* Of a consumer: to look at a topic, or to change one, does not create it. */
extern const struct client_setting client_look_only[];

/* A handle on -b with -X settings after ours (an array ended by a NULL key), as soon as a broker
 * answers. ret: NULL after cli_fail; ret_code then tells the exit code. */
rd_kafka_t *client_open(const struct cli_call *call, rd_kafka_type_t type,
                        const struct client_setting *settings, int *ret_code);
/* The same with a call for each record's outcome, and without waiting: see client_reach. */
rd_kafka_t *client_open_with(const struct cli_call *call, rd_kafka_type_t type,
                             const struct client_setting *settings,
                             void (*on_delivery)(rd_kafka_t *, const rd_kafka_message_t *, void *),
                             void *opaque, int *ret_code);

/* A consumer in a group, with a call for what the group gives and takes. */
rd_kafka_t *client_open_group(const struct cli_call *call, const struct client_setting *settings,
                              void (*on_rebalance)(rd_kafka_t *, rd_kafka_resp_err_t,
                                                   rd_kafka_topic_partition_list_t *, void *),
                              void *opaque, int *ret_code);

/* Waits until a broker answers, and says after a second that none does. ret: CLI_OK, or CLI_FAILED
 * after cli_fail when none did within limit_ms. */
int client_reach(rd_kafka_t *client, int64_t limit_ms);

/* Metadata of one topic, or of all (NULL). ret: NULL after cli_fail. */
const struct rd_kafka_metadata *client_metadata(rd_kafka_t *client, const char *topic);

/* Waits for the answer of an admin call. ret: NULL after cli_fail; the caller destroys it. */
rd_kafka_event_t *client_await(rd_kafka_queue_t *queue);
/* Tells the error of an answer that was waited for. ret: the same; NULL after cli_fail. */
rd_kafka_event_t *client_checked(rd_kafka_event_t *event);

/* Counts records and shows the rate once a second when standard error is a terminal. */
struct progress {
    bool shown;
    uint64_t start_ns;
    uint64_t next_ns;
    uint64_t records;
    uint64_t bytes;
};
void progress_start(struct progress *progress);
void progress_add(struct progress *progress, uint64_t bytes);
/* Shows it when a second has passed. */
void progress_look(struct progress *progress);
/* One line "VERB N records, ..." on standard error. */
void progress_end(struct progress *progress, const char *verb);

/* Blocks SIGINT and SIGTERM for signal_taken; before the client's threads start. */
void signals_hold(void);
/* True when one of them has come. */
bool signal_taken(void);

#endif
