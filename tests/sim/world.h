/* SPDX-License-Identifier: Apache-2.0 */
/* A whole broker inside one process, on virtual time: cores, stores and control, joined by the real
 * rings and segments as a supervisor makes them; streams in memory; the test plays the clients. A
 * crash throws the private structures of a process away and builds anew on what is shared and on
 * the files, as a killed process would find them.
 */
#ifndef MILL_TESTS_SIM_WORLD_H
#define MILL_TESTS_SIM_WORLD_H

#include "base/random.h"
#include "control/control.h"
#include "dataplane/core/core.h"
#include "dataplane/store/store.h"
#include "protocol/batch.h"
#include "protocol/wire.h"
#include "tests/sim/mem_stream.h"

enum {
    WORLD_CORES_MAX = 4,
    WORLD_ANSWER_BYTES = 4 << 20,
    WORLD_DIRS_MAX = 4,
    WORLD_FETCH_SESSIONS_MAX = 4, /* of a core */
};

/* What a test may choose of the disk below. */
struct world_disk {
    const struct mill_file_calls
        *files; /* of the log directories; the metadata's are the kernel's */
    uint32_t dirs_count;
    uint32_t segment_bytes; /* log.segment.bytes */
};

struct world_core {
    struct mill_core *core;
    struct mill_store *store;
    struct mill_extents *extents;
    struct mill_loans loans;
    struct mem_maker *maker;
    void *rings;
};

struct world {
    _Atomic int64_t connections; /* of clients, of all cores */
    char dir[128];               /* arena and log folders, removed at the end */
    struct world_disk disk;
    char log_dir[WORLD_DIRS_MAX][160];
    const char *log_dirs[WORLD_DIRS_MAX];
    struct mill_log_dirs *dirs;
    uint32_t cores_count;
    uint64_t seed;
    uint64_t incarnation;
    struct mill_random random;
    struct mill_now now;
    struct mill_arena *arena;
    void *ipc_memory;
    void *map_memory;
    void *counters_memory;
    void *peer_memory;
    struct mill_ipc_segment *ipc;
    struct mill_map *map;
    struct mill_config *config;
    struct mill_control *control;
    int core_bells[WORLD_CORES_MAX];
    struct mill_counters *counters;
    struct mill_core_peer *peers;
    struct mill_quota_table *quotas;
    struct mill_address_table *addresses;
    uint64_t ticks_ns;    /* the clock that is read within a turn; nobody else's */
    uint64_t ticks_by_ns; /* it goes on by so much whenever it is read */
    struct mill_bell_shared *bells;
    struct world_core cores[WORLD_CORES_MAX];
    struct mill_takeup_result takeup;
    uint64_t discards;    /* lines that a take-up said */
    bool control_stopped; /* hung: makes no step */
    bool store_stopped;   /* stores make no step: what is appended stays in extents only */
};

/* Makes folders under /dev/shm and the segments, and starts control and the cores. */
void world_open(struct world *world, uint32_t cores_count, uint64_t seed);
/* The same with log directories on a disk of the test's. */
void world_open_on(struct world *world, uint32_t cores_count, uint64_t seed,
                   const struct world_disk *disk);
/* Creates a topic with one setting by a CreateTopics request of a client; when control answers,
 * every partition serves. */
void world_topic(struct world *world, const char *name, uint32_t partitions, const char *key,
                 const char *value);
/* Asks for a coordinator (key_type 0: of groups, 1: of transactions), so that its topic is there;
 * it serves when this returns. */
void world_coordinator(struct world *world, uint8_t key_type);
/* The same of __consumer_offsets. */
void world_offsets_topic(struct world *world);
/* One turn of everything, in seeded order; time moves by up to step_ns. ret: work done. */
uint32_t world_turn(struct world *world, uint64_t step_ns);
/* Turns until nothing has work, at most limit turns. */
void world_settle(struct world *world, uint32_t limit);
/* kill -9: every private structure is forgotten (not closed); then a new start on what is left. */
void world_crash(struct world *world);
/* The power is gone, and with it all memory; then the start after it, on what the disk kept.
 * ret: false: it failed, for the disk lost its power again; all is off once more. */
void world_power_off(struct world *world);
bool world_power_on(struct world *world);
/* kill -9 of control alone: cores go on. */
void world_crash_control(struct world *world);
/* Clean stop and start. */
void world_restart(struct world *world);
void world_close(struct world *world);

/* A client of one connection on one core. */
struct world_client {
    struct world *world;
    uint32_t core;
    struct mem_peer *peer;
    int32_t correlation;
    /* Where frames go; NULL: to peer. A client that only makes frames has no peer. */
    void (*send)(void *context, const void *frame, uint32_t size_bytes);
    void *send_context;
    uint8_t *answer;            /* WORLD_ANSWER_BYTES */
    uint32_t answer_bytes;      /* gathered */
    struct mill_buf answer_buf; /* what world_ask gives is in it */
    enum mill_codec codec;      /* of the batches it sends; set after world_connect */
    bool keyless;               /* their records have no keys */
    int32_t timeout_ms;         /* of its Produce requests; 0: ten seconds */
    bool acks_none;             /* of them: nobody answers */
    const char *id;             /* NULL: "sim" */
};

void world_connect(struct world *world, struct world_client *client, uint32_t core);
void world_disconnect(struct world_client *client);
/* Sends a frame made of header and an encoded body. */
void world_send(struct world_client *client, int16_t key, int16_t version, const void *body,
                uint32_t body_bytes);
/* Takes what is there. ret: true when one whole answer is in answer (behind its size: correlation
 * id and body); the next call begins the next. */
bool world_answer(struct world_client *client, uint32_t *ret_bytes);
/* Turns until an answer is there; fails the test after many turns. ret: its bytes behind the size.
 */
uint32_t world_await(struct world_client *client);
/* Sends a request through the generated codec and waits. ret: the answer's body, valid until the
 * client's next answer. */
typedef int (*world_encode)(struct mill_writer *to, int16_t version, const void *message);
struct mill_cursor world_ask(struct world_client *client, int16_t key, int16_t version,
                             world_encode encode, const void *message);
/* Its two halves. */
void world_ask_send(struct world_client *client, int16_t key, int16_t version, world_encode encode,
                    const void *message);
struct mill_cursor world_asked(struct world_client *client, int16_t key, int16_t version,
                               uint32_t answer_bytes);

/* Produce v7 and Fetch v10 by hand, independent of the codec. Values are numbered. */
struct world_produced {
    int16_t error;
    int64_t base_offset;
};
void world_produce_send(struct world_client *client, const char *topic, int32_t partition,
                        int64_t producer_id, int32_t sequence, uint64_t first_value, uint32_t count,
                        uint32_t padding);
/* The same batch, without a producer id, to partitions 0 to partitions_count - 1. */
void world_produce_many_send(struct world_client *client, const char *topic,
                             uint32_t partitions_count, uint64_t first_value, uint32_t count,
                             uint32_t padding);
struct world_produced world_produced_read(const struct world_client *client, const char *topic);
struct world_fetch_options {
    int32_t wait_ms;
    int32_t bytes_min;
    int32_t bytes_max;
    int32_t partition_bytes_max;
    int32_t first_partition;
    int32_t session_id;
    int32_t session_epoch;
    int64_t offset; /* of each partition */
    bool committed; /* isolation_level */
};
/* Sends a Fetch of partitions_count partitions. */
void world_fetch_send(struct world_client *client, const char *topic, uint32_t partitions_count,
                      const struct world_fetch_options *options);
/* Fetches from offset; checks each batch's CRC, decompresses it, and checks each value against its
 * number; codec is what every batch must be stored with, -1 any.
 * ret: next offset; *ret_values: how many records; error in *ret_error. */
int64_t world_fetch(struct world_client *client, const char *topic, int32_t partition,
                    int64_t offset, uint32_t bytes_max, int codec, uint64_t *ret_first_value,
                    uint64_t *ret_values, int16_t *ret_error);

#endif
