/* SPDX-License-Identifier: Apache-2.0 */
/* One client request that a core forwarded, from frame to answer. Handlers decode the frame, ask
 * the controller, and either answer at once or wait for cores to serve what was made; a waiting
 * request holds up no other. Control's thread only. */
#ifndef MILL_CONTROL_ADMIN_REQUEST_H
#define MILL_CONTROL_ADMIN_REQUEST_H

#include "control/controller/controller.h"
#include "protocol/messages.h"

enum {
    /* Elements of the outer array of one request; more closes the connection (counted). */
    MILL_ADMIN_ELEMENTS_MAX = 10000,
};

/* Types of what has settings. */
enum mill_resource_type {
    MILL_RESOURCE_TOPIC = 2,
    MILL_RESOURCE_BROKER = 4,
    MILL_RESOURCE_BROKER_LOGGER = 8, /* these two are known, and not described */
    MILL_RESOURCE_CLIENT_METRICS = 16,
    MILL_RESOURCE_GROUP = 32,
};

struct mill_groups;
struct mill_txns;

struct mill_admin_request {
    struct mill_admin_request *next;
    struct mill_frame_request head;
    uint32_t core;
    struct mill_request_header header;
    uint8_t *frame; /* private copy: what is shared may change while it is read */
    struct mill_buf frame_buf;
    struct mill_pool pool;
    uint32_t answer_bytes_max;
    uint64_t wait_until_ns;   /* answered by then, whatever the cores said */
    uint64_t client_until_ns; /* CreateTopics: the client's own patience */
    bool ready;
    bool again; /* not ready, and more can be done in the next turn */

    enum mill_frame_outcome outcome;
    uint8_t *answer; /* malloc; with its size field */
    uint32_t answer_bytes;

    struct mill_create *creates; /* CreateTopics, Metadata */
    uint32_t creates_count;
    struct mill_grow *grows; /* CreatePartitions */
    uint32_t grows_count;
    struct mill_dir_scan *scan; /* DescribeLogDirs */
    bool validate_only;

    struct mill_groups *groups; /* of the APIs of groups and transactions */
    struct mill_txns *txns;
    bool taken;        /* waits there: given back by mill_groups_answered */
    bool memory_short; /* a text of it could not be copied: it must not be taken for none */
};

/* Takes a whole frame: decodes, decides, answers or leaves the request waiting (ready false); after
 * it the request may belong to the groups (taken). */
void mill_admin_begin(struct mill_controller *controller, struct mill_groups *groups,
                      struct mill_txns *txns, struct mill_admin_request *request, uint64_t now_ns);
/* Looks whether a waiting request can be answered now. */
void mill_admin_continue(struct mill_controller *controller, struct mill_admin_request *request,
                         uint64_t now_ns);
/* Frees everything the request holds, and the request. NULL is fine. */
void mill_admin_free(struct mill_admin_request *request);

/* --- for the handlers ------------------------------------------------------------------------ */

typedef int (*mill_admin_encode)(struct mill_writer *to, int16_t version, const void *message);
/* Encodes the answer; closes the connection when it is larger than an answer may be. */
void mill_admin_answer(struct mill_admin_request *request, mill_admin_encode encode,
                       const void *message);
/* Ends the request by closing its connection: malformed, or over a limit. */
void mill_admin_close(struct mill_admin_request *request);
/* A terminated copy of a text in the pool; *ret_length its length. NULL when null or no memory. */
char *mill_admin_text(struct mill_admin_request *request, const struct mill_wstr *text,
                      uint32_t *ret_length);

/* Whether a resource's name is this broker. With core endpoints each core is a node to clients; all
 * have the broker's settings. */
bool mill_admin_is_broker(const struct mill_controller *controller, const char *name);

/* Replicas of one partition as a client assigns them. ret: NULL, or what is wrong. */
const char *mill_admin_replicas(const struct mill_controller *controller, struct mill_warray *ids,
                                struct mill_map_partition *ret);

/* True when every created topic serves, or failed; fills errors of failed ones. */
bool mill_admin_creates_done(const struct mill_controller *controller,
                             struct mill_admin_request *request);

void mill_create_topics_begin(struct mill_controller *controller,
                              struct mill_admin_request *request, struct mill_cursor *at,
                              uint64_t now_ns);
void mill_create_topics_continue(struct mill_controller *controller,
                                 struct mill_admin_request *request, uint64_t now_ns);
void mill_create_partitions_begin(struct mill_controller *controller,
                                  struct mill_admin_request *request, struct mill_cursor *at,
                                  uint64_t now_ns);
void mill_create_partitions_continue(const struct mill_controller *controller,
                                     struct mill_admin_request *request, uint64_t now_ns);
/* Reads a part of the log directories at each call, so that no turn is long. */
void mill_describe_log_dirs_begin(const struct mill_controller *controller,
                                  struct mill_admin_request *request, struct mill_cursor *at);
void mill_describe_log_dirs_continue(const struct mill_controller *controller,
                                     struct mill_admin_request *request, uint64_t now_ns);
void mill_dir_scan_free(struct mill_dir_scan *scan);
void mill_delete_topics(struct mill_controller *controller, struct mill_admin_request *request,
                        struct mill_cursor *at);
void mill_describe_topics(const struct mill_controller *controller,
                          struct mill_admin_request *request, struct mill_cursor *at);
void mill_describe_client_quotas(const struct mill_controller *controller,
                                 struct mill_admin_request *request, struct mill_cursor *at);
void mill_alter_client_quotas(struct mill_controller *controller,
                              struct mill_admin_request *request, struct mill_cursor *at);
void mill_describe_configs(struct mill_controller *controller, struct mill_admin_request *request,
                           struct mill_cursor *at);
void mill_list_config_resources(const struct mill_controller *controller,
                                struct mill_admin_request *request, struct mill_cursor *at);
void mill_alter_configs(struct mill_controller *controller, struct mill_admin_request *request,
                        struct mill_cursor *at);
void mill_incremental_alter_configs(struct mill_controller *controller,
                                    struct mill_admin_request *request, struct mill_cursor *at);
void mill_admin_metadata_begin(struct mill_controller *controller,
                               struct mill_admin_request *request, struct mill_cursor *at);
void mill_metadata_continue(const struct mill_controller *controller,
                            struct mill_admin_request *request, uint64_t now_ns);

#endif
