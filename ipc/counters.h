/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and stage histograms in shared memory: millraced writes its own, control its own,
 * everyone may read. Each word has one writer, which stores relaxed; a reader sees values a moment
 * old and never waits.
 *
 *   | header | listeners[] | ports[] | control | http | cores[] |
 */
#ifndef MILL_IPC_COUNTERS_H
#define MILL_IPC_COUNTERS_H

#include <stdatomic.h>

#include "base/counter_lists.h"
#include "base/hist.h"
#include "ipc/map.h"

enum {
    MILL_COUNTERS_MAGIC = 0x4d4c4354, /* "MLCT" */
    MILL_COUNTERS_VERSION = 6,
    MILL_COUNTERS_PORTS_MAX = 8,
    MILL_COUNTERS_PARTITIONS_MAX = 128, /* the busy ones of a core */
    MILL_COUNTERS_TAKERS_MAX = 16,      /* remembered per core; the least ones make room */
    MILL_COUNTERS_API_KEYS = 96,        /* greater ones, and versions, are not counted */
    MILL_COUNTERS_API_VERSIONS = 24,
    MILL_COUNTERS_ERROR_APIS = 24, /* keys of the APIs whose partitions' errors are counted */
    MILL_COUNTERS_ERRORS = 144,    /* error codes, from -1 on */
};

/* Where a request's time goes; each is measured from the stage before. */
enum mill_stage {
    MILL_STAGE_COMPLETE,   /* first byte read to whole frame there */
    MILL_STAGE_APPENDED,   /* to all partitions appended or read */
    MILL_STAGE_REPLICATED, /* to high watermark or flush reached */
    MILL_STAGE_ANSWERED,   /* to the answer queued on the stream */
    MILL_STAGE_ACKED,      /* to the peer's TCP having all of it */
    MILL_STAGE_TOTAL,      /* whole frame there to the answer queued */
    MILL_STAGE_COUNT,
};

enum mill_stage_api {
    MILL_STAGE_API_PRODUCE,
    MILL_STAGE_API_FETCH,
    MILL_STAGE_API_OTHER,
    MILL_STAGE_API_COUNT,
};

extern const char *const mill_stage_names[MILL_STAGE_COUNT];
extern const char *const mill_stage_api_names[MILL_STAGE_API_COUNT];

#define MILL_COUNTER_WORD(name, help) _Atomic uint64_t name;

struct mill_shared_listener {
    MILL_LISTENER_COUNTERS(MILL_COUNTER_WORD)
};

struct mill_shared_net {
    MILL_NET_COUNTERS(MILL_COUNTER_WORD)
};

/* A partition that was used lately; the table has no order. */
struct mill_shared_partition {
    _Atomic uint64_t used;               /* 0: no entry */
    char topic[MILL_TOPIC_NAME_MAX + 3]; /* terminated */
    int32_t partition;
    MILL_PARTITION_COUNTERS(MILL_COUNTER_WORD)
};

/* What took a core's CPU. */
enum mill_taker_kind {
    MILL_TAKER_THREAD, /* a thread: pid is its process, name the thread's */
    MILL_TAKER_IDLE, /* nobody ran: the core was throttled (CPU quota), or the machine itself was */
    MILL_TAKER_SOFTIRQ, /* pid is the vector */
    MILL_TAKER_IRQ,     /* pid is the line */
    MILL_TAKER_KIND_COUNT,
};

/* A culprit. count 0: no entry. The writer is millraced's main thread. */
struct mill_shared_taker {
    char name[16];
    _Atomic uint32_t pid;
    _Atomic uint32_t kind;
    _Atomic uint64_t time_ns;
    _Atomic uint64_t count;
    _Atomic uint64_t max_ns;
};

struct mill_shared_jitter {
    MILL_SPACED MILL_JITTER_COUNTERS(
        MILL_COUNTER_WORD) struct mill_shared_taker takers[MILL_COUNTERS_TAKERS_MAX];
};

struct mill_shared_control {
    MILL_SPACED MILL_CONTROL_COUNTERS(MILL_COUNTER_WORD) MILL_CONTROLLER_COUNTERS(MILL_COUNTER_WORD)
        MILL_JOURNAL_COUNTERS(MILL_COUNTER_WORD) MILL_GROUP_COUNTERS(MILL_COUNTER_WORD)
            MILL_TXN_COUNTERS(MILL_COUNTER_WORD)
};

struct mill_shared_http {
    MILL_SPACED MILL_HTTP_COUNTERS(MILL_COUNTER_WORD)
};

struct mill_shared_core {
    MILL_SPACED _Atomic uint32_t cpu;
    _Atomic uint32_t tid;
    MILL_CORE_COUNTERS(MILL_COUNTER_WORD)
    struct mill_shared_net net; /* sum over the core's port queues */
    struct mill_shared_listener listeners[MILL_MAP_LISTENERS_MAX];
    struct mill_hist stages[MILL_STAGE_API_COUNT][MILL_STAGE_COUNT];
    struct mill_shared_partition busy[MILL_COUNTERS_PARTITIONS_MAX];
    /* Answered requests by API key and version, and the errors that partitions got by API key and
     * code + 1. */
    _Atomic uint64_t apis[MILL_COUNTERS_API_KEYS][MILL_COUNTERS_API_VERSIONS];
    _Atomic uint64_t errors[MILL_COUNTERS_ERROR_APIS][MILL_COUNTERS_ERRORS];
    struct mill_hist flush;    /* syncs of .log files: its store's words */
    struct mill_hist wake;     /* a ring of this core's bell to its first look after */
    _Atomic uint64_t woken_ns; /* monotonic time of the newest look that ended a sleep with work */
    struct mill_shared_jitter jitter; /* the main thread's words */
};

struct mill_shared_port {
    MILL_SPACED char name[32];
    char driver[32];
    uint8_t mac[6];
    uint16_t mtu;
    _Atomic uint32_t link_up;
    char address[48];   /* CIDR */
    uint32_t zero_copy; /* references are sent in place */
    char remark[320];   /* what the operator should know; empty: nothing */
    MILL_PORT_COUNTERS(MILL_COUNTER_WORD)
};

struct mill_shared_listener_info {
    char name[MILL_LISTENER_NAME_BYTES];
    char address[64]; /* ADDRESS:PORT it is bound to */
    char transport[16];
    char state[128]; /* "serving", or why not */
};

struct mill_counters {
    uint32_t magic;
    uint32_t version;
    uint64_t size_bytes;
    uint32_t cores_count;
    uint32_t ports_count;
    uint32_t listeners_count;
    uint32_t reserved;
    _Atomic uint64_t start_wall_ms;
    _Atomic uint64_t arena_bytes;
    _Atomic uint64_t loading_partitions; /* that were to be loaded so far */
    _Atomic uint64_t loaded_partitions;
    _Atomic uint64_t loaded_bytes; /* of log files walked for that */
    char jitter_state[128];        /* "watching", or why not */
    struct mill_shared_listener_info listeners[MILL_MAP_LISTENERS_MAX];
    struct mill_shared_port ports[MILL_COUNTERS_PORTS_MAX];
    struct mill_shared_control control;
    struct mill_shared_http http; /* control's, too */
    struct mill_shared_core cores[];
};

/* Size of the segment, and its making in zeroed memory (supervisor). */
uint64_t mill_counters_bytes(uint32_t cores_count);
void mill_counters_format(void *memory, uint32_t cores_count);
/* ret: 0, -EBADMSG wrong magic, version or size. */
int mill_counters_check(const void *memory, uint64_t size_bytes) MILL_WARN_UNUSED;

/* Owner's store. */
static inline void mill_counter_set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}
/* Owner's addition; no lock prefix. */
static inline void mill_counter_add(_Atomic uint64_t *word, uint64_t n)
{
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + n,
                          memory_order_relaxed);
}
static inline uint64_t mill_counter_get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

#endif
