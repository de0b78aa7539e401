/* SPDX-License-Identifier: Apache-2.0 */
/* The partition map: what control decided, as every core reads it. Control is its only writer.
 *
 *   | header | core progress | name table | id table | slots | records ... |
 *
 * A topic is one immutable record reached through a slot whose offset is swapped with a release
 * store; readers take it with an acquire load and never wait. An old record is freed when every
 * core has passed a turn since the swap (core progress, or asleep). Everything is offsets from the
 * map's start. A writer killed at any instruction leaves the old or the new record; its successor
 * rebuilds free space from what is reachable (mill_map_writer_open).
 *
 * `generation` rises with each change; a core compares it once per turn and re-reads what it needs.
 */
#ifndef MILL_IPC_MAP_H
#define MILL_IPC_MAP_H

#include <stdatomic.h>

#include "base/report.h"
#include "base/uuid.h"

enum {
    MILL_MAP_MAGIC = 0x4d4c4d50, /* "MLMP" */
    MILL_MAP_VERSION = 7,
    MILL_TOPIC_NAME_MAX = 249,
    MILL_MAP_CORES_MAX = 64,
    MILL_MAP_REPLICAS_MAX = 16,
    MILL_HOST_BYTES = 256,
    MILL_LISTENER_NAME_BYTES = 64,
    MILL_MAP_LISTENERS_MAX = 8,
    MILL_MAP_QUOTAS_MAX = 1024,  /* clients with limits of their own */
    MILL_MAP_CLIENT_BYTES = 256, /* of their ids, with the terminator */
    MILL_MAP_OVERRIDES_MAX = 64, /* addresses with a bound of connections of their own */
};

/* Topic settings that the data plane acts on; resolved by control (topic, broker, default). */
struct mill_topic_settings {
    int32_t max_message_bytes;
    int32_t min_insync_replicas;
    int64_t timestamp_before_max_ms;
    int64_t timestamp_after_max_ms;
    int64_t flush_messages;
    int64_t flush_ms;
    int64_t segment_bytes;
    int64_t segment_ms;
    int32_t index_interval_bytes;
    int32_t segment_index_bytes;
    int64_t retention_ms;
    int64_t retention_bytes;
    int64_t file_delete_delay_ms;
    int64_t delete_retention_ms;
    int64_t min_compaction_lag_ms;
    int64_t max_compaction_lag_ms;
    int32_t min_cleanable_ppm; /* min.cleanable.dirty.ratio, parts per million */
    uint32_t reserved;
    uint8_t append_time; /* message.timestamp.type = LogAppendTime */
    uint8_t compact;     /* cleanup.policy contains compact */
    uint8_t delete_old;  /* cleanup.policy contains delete */
    uint8_t compression; /* 255: producer; else enum mill_codec */
    uint32_t reserved2;
};
static_assert(sizeof(struct mill_topic_settings) == 128, "shared layout");

enum {
    MILL_TOPIC_INTERNAL = 1u << 0,
    MILL_TOPIC_DELETING = 1u << 1, /* cores close it and remove its files, then say so */
    MILL_TOPIC_MADE = 1u << 2,     /* all its partitions served before: files that are missing are
                                      lost, not new */
};

struct mill_map_partition {
    int32_t leader; /* node id, -1 none */
    int32_t leader_epoch;
    int32_t partition_epoch;
    uint8_t replicas_count;
    uint8_t isr_count;
    uint16_t reserved;
    int32_t replicas[MILL_MAP_REPLICAS_MAX]; /* isr: the flagged bits below */
    uint32_t isr_bits;                       /* bit i: replicas[i] is in sync */
    uint32_t reserved2;
};
static_assert(sizeof(struct mill_map_partition) == 88, "shared layout");

/* Immutable. */
struct mill_map_topic {
    struct mill_uuid id;
    uint32_t slot;
    uint32_t flags;
    uint32_t partitions_count;
    uint16_t name_length;
    uint16_t reserved;
    struct mill_topic_settings settings;
    char name[MILL_TOPIC_NAME_MAX + 7]; /* terminated; 256 keeps what follows aligned */
    struct mill_map_partition partitions[];
};
static_assert(sizeof(struct mill_map_topic) == 416, "shared layout");

struct mill_map_endpoint {
    char listener[MILL_LISTENER_NAME_BYTES];
    char host[MILL_HOST_BYTES]; /* advertised */
    int32_t port;               /* advertised; of the first core, the others' follow */
    uint32_t reserved;
};

struct mill_map_broker {
    int32_t node_id;
    uint32_t endpoints_count;
    uint32_t cores_count; /* nodes that it appears as (ipc/nodes.h), from 1 on */
    uint32_t reserved;
    struct mill_map_endpoint endpoints[MILL_MAP_LISTENERS_MAX];
};

/* Bound of one address. */
struct mill_map_override {
    uint8_t address[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
    int64_t connections_max;
};

/* Settings of the broker that the data plane follows while it runs: file, then what clients
 * altered. */
struct mill_broker_settings {
    int64_t connections_max;
    int64_t producer_expiration_ms;
    int64_t clean_bytes_per_second; /* of all cores; INT64_MAX: no limit */
    int64_t clean_backoff_ms;
    int64_t clean_map_bytes;         /* of all cores */
    int64_t address_connections_max; /* of each address that is not named */
    int64_t connections_per_second;  /* new ones, of all cores; INT32_MAX: no limit */
    uint64_t connections_burst_ns;   /* what they give in this time may come at once */
    uint32_t overrides_count;
    uint32_t reserved;
    struct mill_map_override overrides[MILL_MAP_OVERRIDES_MAX];
};

/* Immutable record: the cluster as control knows it. */
struct mill_map_cluster {
    char cluster_id[MILL_UUID_TEXT_BYTES + 9]; /* terminated */
    int32_t controller_id;
    uint32_t brokers_count;
    uint8_t auto_create; /* auto.create.topics.enable */
    uint8_t reserved[7];
    struct mill_broker_settings settings; /* of the broker that reads this */
    struct mill_map_broker brokers[];
};

/* What is limited of a client. */
enum mill_quota_kind {
    MILL_QUOTA_PRODUCE, /* bytes of Produce requests */
    MILL_QUOTA_FETCH,   /* bytes of Fetch answers */
    MILL_QUOTA_TIME,    /* ns of a core's time */
    MILL_QUOTA_KINDS,
};

/* Limits of the clients with one id, resolved by control. */
struct mill_map_quota {
    char client[MILL_MAP_CLIENT_BYTES];    /* terminated */
    uint64_t per_second[MILL_QUOTA_KINDS]; /* 0: none */
    uint8_t shared[MILL_QUOTA_KINDS];      /* the limit is that of all clients together */
    uint8_t reserved[8 - MILL_QUOTA_KINDS];
};

/* Immutable record: entry 0 is for all clients that are not named, the others ascend by name. */
struct mill_map_quotas {
    uint64_t version;  /* another one with every change, not 0 */
    uint64_t burst_ns; /* an idle client may use what its limits give in this time at once */
    uint64_t time_pause_max_ns; /* the longest wait for MILL_QUOTA_TIME */
    uint32_t count;             /* of entries; 0: nobody is limited */
    uint32_t reserved;
    struct mill_map_quota entries[];
};

struct mill_map_limits {
    uint64_t size_bytes; /* whole map */
    uint32_t topics_max; /* power of two */
};

struct mill_map; /* a mapped map: reader's or writer's view */

/* Formats zeroed memory. Supervisor, before anyone maps it. */
void mill_map_format(void *memory, const struct mill_map_limits *limits);

/* Reader view. ret: 0, -EBADMSG wrong magic, version or size. */
int mill_map_open(void *memory, uint64_t size_bytes, struct mill_map **ret_map) MILL_WARN_UNUSED;
void mill_map_close(struct mill_map *map);

/* --- readers (cores, one's own index below MILL_MAP_CORES_MAX) ------------------------------- */

uint64_t mill_map_generation(const struct mill_map *map);
/* Times the writer found no room, for the counter views. */
uint64_t mill_map_full_count(const struct mill_map *map);
/* A core says at the top of each turn that it holds no record of before; and around its sleep. */
void mill_map_turn(struct mill_map *map, uint32_t core);
void mill_map_reader_state(struct mill_map *map, uint32_t core, bool awake);

/* Valid until this core's next mill_map_turn. NULL: absent. Every offset is checked against the
 * map. */
const struct mill_map_topic *mill_map_topic_by_name(const struct mill_map *map, const char *name,
                                                    uint32_t length);
const struct mill_map_topic *mill_map_topic_by_id(const struct mill_map *map,
                                                  const struct mill_uuid *id);
const struct mill_map_topic *mill_map_topic_at(const struct mill_map *map, uint32_t slot);
uint32_t mill_map_slots(const struct mill_map *map);     /* bound of slots ever used */
uint32_t mill_map_slots_max(const struct mill_map *map); /* of slots that can ever be used */
const struct mill_map_cluster *mill_map_cluster_read(const struct mill_map *map);
/* NULL: none was written. */
const struct mill_map_quotas *mill_map_quotas_read(const struct mill_map *map);
/* The entry for a client id: its own, or that of all others. */
const struct mill_map_quota *mill_map_quota_of(const struct mill_map_quotas *quotas,
                                               const char *client);

/* --- the writer (control) -------------------------------------------------------------------- */

struct mill_map_writer;

/* Takes up what a predecessor left. ret: 0, -EBADMSG damaged (report). */
int mill_map_writer_open(struct mill_map *map, struct mill_map_writer **ret_writer,
                         struct mill_report *report) MILL_WARN_UNUSED;
void mill_map_writer_close(struct mill_map_writer *writer);

/* Publishes a topic under its name and id: new, or in place of the record with the same id. The
 * caller fills everything but slot. The name leads to it when nobody has the name, or when the
 * holder is flagged MILL_TOPIC_DELETING and it is not; the holder is then reachable by id only.
 * ret: 0, -ENOSPC map full, or its free space not yet given up by a core that makes no turns
 * (counted; try again later), -EINVAL name, id or partition count out of range. */
int mill_map_put_topic(struct mill_map_writer *writer,
                       const struct mill_map_topic *topic) MILL_WARN_UNUSED;
/* Unlinks a topic. ret: 0, -ENOENT. */
int mill_map_remove_topic(struct mill_map_writer *writer,
                          const struct mill_uuid *id) MILL_WARN_UNUSED;
int mill_map_put_cluster(struct mill_map_writer *writer,
                         const struct mill_map_cluster *cluster) MILL_WARN_UNUSED;
int mill_map_put_quotas(struct mill_map_writer *writer,
                        const struct mill_map_quotas *quotas) MILL_WARN_UNUSED;
/* Frees old records that no core can still hold. Once per turn of control. */
void mill_map_reclaim(struct mill_map_writer *writer);
/* True while old records wait to be freed: reclaim wants another turn. */
bool mill_map_reclaim_pending(const struct mill_map_writer *writer);

#endif
