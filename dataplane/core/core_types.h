/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a core, shared by the files of this folder only.
 *
 *   stream --received--> conn --frame complete--> request --per partition--> op --> log
 *                          ^                         |  (another core's partition: a message)
 *                          +------ answer -----------+
 *
 * A connection works on one request at a time, in order, as Kafka does. A request has one op per
 * partition; an op runs on the core that owns the partition and may wait there on a watch. Requests
 * and ops are named by index and generation when they leave this core, so that a late result of
 * something that is gone is dropped.
 */
#ifndef MILL_DATAPLANE_CORE_TYPES_H
#define MILL_DATAPLANE_CORE_TYPES_H

#include "dataplane/core/addresses.h"
#include "dataplane/core/control_stream.h"
#include "dataplane/core/core.h"
#include "dataplane/core/fetch_sessions.h"
#include "dataplane/core/quota.h"
#include "base/heap.h"
#include "protocol/messages.h"
#include "protocol/wire.h"

enum {
    MILL_BODY_INLINE_BYTES = 256,
    MILL_REQUESTS_ORPHANED_MAX = 1024,
    MILL_PEER_REFS_MAX = 16,          /* references in one answer to another core */
    MILL_REQUEST_OPS_INLINE = 2,      /* more partitions: the ops live in a scratch extent */
    MILL_REQUEST_OPS_MAX = 16384,     /* partitions of one request */
    MILL_SCRATCH_BYTES_MAX = 8 << 20, /* the largest extent is at least this: ops, long answers */
    MILL_FRAME_RATE_MIN = 64 << 10,   /* bytes per second, below which a request is given up */
    MILL_FRAME_RATE_WANTED = 4 << 20, /* the same while others wait for its staging memory */
    MILL_ANSWER_BYTES = 64 << 10,     /* the core's common encoding buffer */
    MILL_STAGE_EXTENT_BYTES = 256 << 10,
    MILL_FRAMES_PER_TURN = 32, /* requests begun per connection and turn */
    MILL_CONNS_PER_TURN = 256,
    MILL_PEER_MESSAGES_PER_TURN = 256,
    MILL_CONTROL_MESSAGES_PER_TURN = 64,
    MILL_MAP_TOPICS_PER_TURN = 64,
    MILL_RETRIES_PER_TURN = 64,
    MILL_FIRED_PER_TURN = 256,
    MILL_RETIRED_PER_TURN = 64,
    MILL_IDS_RESERVE = 500, /* ask control for a block when fewer are left */
    MILL_OP_MESSAGE_BYTES = 96,
    MILL_ACK_MARKS = 4, /* answers whose way to the peer is timed at once, per connection */
};

#define MILL_RETIRED_END (UINT32_MAX >> 1)
/* Beside the link of a retired extent: it holds a list of producers. */
#define MILL_RETIRED_PRODUCERS (1u << 31)

/* Doubly linked, intrusive, with a head that is a node. */
struct mill_node {
    struct mill_node *next;
    struct mill_node *prev;
};

static inline void mill_list_init(struct mill_node *head)
{
    head->next = head;
    head->prev = head;
}
static inline bool mill_list_empty(const struct mill_node *head)
{
    return head->next == head;
}
static inline bool mill_node_linked(const struct mill_node *node)
{
    return node->next != NULL;
}
static inline void mill_list_add(struct mill_node *head, struct mill_node *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}
static inline void mill_list_remove(struct mill_node *node)
{
    if (node->next) {
        node->prev->next = node->next;
        node->next->prev = node->prev;
        node->next = NULL;
        node->prev = NULL;
    }
}

enum mill_op_kind {
    MILL_OP_APPEND,
    MILL_OP_READ,
    MILL_OP_WATCH, /* completes when data is readable at offset */
    MILL_OP_TIME,
    MILL_OP_OFFSETS, /* start, end, high watermark and epoch */
    MILL_OP_EPOCH_END,
    MILL_OP_TRIM,      /* moves the log start up to offset */
    MILL_OP_MARKER,    /* appends the marker that ends a transaction */
    MILL_OP_GRANT,     /* lets a producer begin one */
    MILL_OP_PRODUCERS, /* tells the active producers */
};

enum mill_op_state {
    MILL_OP_IDLE,    /* not begun, or done */
    MILL_OP_RETRY,   /* no memory: on the core's retry list */
    MILL_OP_WAITING, /* its watch will fire */
    MILL_OP_FLUSH,   /* appended; waits for the sync */
    MILL_OP_FIRED,   /* its watch fired: on the fired list */
    MILL_OP_REMOTE,  /* at the owner's */
    MILL_OP_ASKED,   /* to be sent to the owner: its ring was full */
};

/* The states of a partition's producers as they are gathered, a few per turn. */
struct mill_producers_walk {
    struct mill_log_producers_at at;
    uint32_t extent; /* scratch; 0: not begun */
    uint32_t count;
    uint32_t room; /* states that fit */
    bool queued;   /* it stood in line once */
};

/* One operation on one partition. */
struct mill_op {
    struct mill_node node; /* on the retry list of its core */
    struct mill_log_watch watch;
    uint8_t kind;
    uint8_t state;
    uint8_t owner;  /* core that owns the partition */
    uint8_t origin; /* core of the request */
    int16_t error;  /* enum mill_kerr */
    int16_t api_version;
    int16_t acks;
    bool transactional;
    bool internal; /* control's own */
    bool first_whole;
    bool alone;     /* read: its request reads nothing else, so it may wait for memory */
    bool committed; /* isolation_level read_committed */
    bool duplicate;
    bool changed;   /* the watch fired because the partition is going */
    bool late;      /* append: the client's time is over, a sync is not waited for */
    bool unvouched; /* append: its transaction's coordinator is to be asked (KIP-890) */
    uint8_t asked;  /* the same: api_produce_adds.c */
    uint8_t refs_max;
    int32_t partition;
    struct mill_uuid topic_id;
    /* who asked: the request of this core, or what to send back */
    struct mill_request *request;
    uint32_t request_index;
    uint32_t request_generation;
    uint32_t op_index;
    uint32_t round;     /* rises each time it is begun */
    uint32_t hash_next; /* peer ops: next in the bucket, index + 1 */
    /* arguments */
    struct mill_cursor records;
    uint32_t size_bytes;  /* append: record bytes; read: limit; watch: bytes needed */
    uint32_t limit_bytes; /* fetch: of this partition */
    int32_t current_epoch;
    int32_t last_epoch;
    int64_t offset; /* read, watch: from; time: the timestamp; epoch end: the epoch; trim: to */
    struct mill_marker_append marker;
    struct mill_producers_walk producers; /* under way, on the owner */
    /* results */
    int64_t base_offset; /* append: base; time and epoch end: offset */
    int64_t timestamp;   /* append: append time; time: record's */
    int64_t start_offset;
    int64_t high_watermark;
    int64_t stable_offset; /* last stable offset */
    int64_t end_offset;
    struct mill_ref list; /* read: of aborted transactions; producers: their states. With a loan of
                             its own; size 0 none */
    int32_t epoch;
    int32_t diverging_epoch;
    int64_t diverging_end;
    uint32_t bytes; /* read: of refs; append: copied */
    int32_t bad_record;
    uint16_t refs_first; /* in the request's references */
    uint16_t refs_count;
    uint32_t fetch_session_part; /* fetch that goes on with a session: what it is there */
    bool told;                   /* the same: it is in the answer */
    char message[MILL_OP_MESSAGE_BYTES];
};
static_assert((uint64_t)MILL_REQUEST_OPS_MAX * sizeof(struct mill_op) <= MILL_SCRATCH_BYTES_MAX,
              "a request's ops fit an extent");

enum mill_request_phase {
    MILL_PHASE_OPS,     /* ops under way */
    MILL_PHASE_WATCHES, /* a fetch waits for data */
    MILL_PHASE_CONTROL, /* forwarded */
    MILL_PHASE_ANSWER,  /* an answer waits for room on the stream */
    MILL_PHASE_HELD,    /* cannot begin: no memory or ring; tried again each turn */
};

/* What a Fetch has to do with sessions (KIP-227). */
enum mill_fetch_session_use {
    MILL_FETCH_SESSION_UNUSED,
    MILL_FETCH_SESSION_WANTED,  /* one begins with the answer, if there is room */
    MILL_FETCH_SESSION_GOES_ON, /* partitions are the session's */
    MILL_FETCH_SESSION_ENDED,   /* nothing is left of it: an empty answer */
};

/* An answer that did not fit the stream at once: linear bytes in a scratch extent and where record
 * references go. */
struct mill_answer {
    struct mill_ref linear; /* extent of the bytes; size 0: none */
    uint32_t linear_done;
    uint32_t holes_count;
    uint32_t holes_done;
    struct mill_writer_hole *holes; /* in the same extent, behind the bytes */
};

struct mill_request {
    struct mill_node node; /* held list */
    struct mill_heap_item deadline;
    struct mill_conn *conn; /* NULL: the connection is gone, ops of other cores still run */
    uint32_t index;
    uint32_t generation;
    uint8_t phase;
    bool in_use;
    bool expired;  /* its deadline passed */
    bool answered; /* nothing more to send */
    bool forwarded_once;
    bool silent;         /* acks=0: no answer, whatever happens */
    bool throttled;      /* a Fetch whose client owes: no records */
    int32_t throttle_ms; /* the client's wait, as the answer says */
    uint64_t work_ns;    /* of the core's time, where that is limited */
    uint64_t work_since; /* 0: nothing is done for it now */
    /* of a Fetch: fetch session (KIP-227) */
    bool fetch_session_begun;
    uint8_t session;       /* enum mill_fetch_session_use */
    int32_t session_id;    /* of the answer; 0: none */
    int32_t session_epoch; /* which the session waits for until the answer is made */
    struct mill_request_header header;
    struct mill_cursor frame; /* from the API key on */
    struct mill_cursor body;  /* behind the header */
    uint32_t frame_bytes;     /* with the size field */
    /* A request that has to wait and carries no records gives its receive buffers back: its frame
     * is copied here, or into a scratch extent. */
    bool settled;
    uint32_t body_extent; /* 0: inline */
    uint32_t header_bytes;
    struct mill_buf body_buf;
    uint8_t body_inline[MILL_BODY_INLINE_BYTES];
    uint64_t ring_pos;         /* of the forwarded frame in the ring to control */
    uint64_t forward_until_ns; /* a living control may take so long */
    uint32_t ops_count;
    uint32_t ops_pending;
    struct mill_op *ops;
    uint32_t ops_extent; /* scratch; 0: inline */
    struct mill_op ops_inline[MILL_REQUEST_OPS_INLINE];
    uint16_t refs_count;
    uint16_t refs_sent;
    struct mill_ref refs[MILL_LOG_REFS_MAX]; /* each holds a loan until sent */
    /* fetch */
    int32_t min_bytes;
    uint32_t bytes_max;
    uint32_t found_bytes; /* by the reads before the last watches */
    bool watched;         /* watches were begun once */
    int16_t top_error;    /* enum mill_kerr of the whole answer */
    bool read_committed;
    uint64_t deadline_ns;
    /* stamps */
    uint64_t begun_ns;
    uint64_t complete_ns;
    uint64_t done_ns;
    struct mill_answer answer;
    struct mill_chain kept; /* the stream's bytes, when it died while other cores read them */
};

struct mill_ack_mark {
    uint64_t at_bytes; /* acknowledged when acked_bytes reaches it */
    uint64_t queued_ns;
    uint8_t api;
};

/* What holds for the client of the connection's last request, where somebody is limited. */
struct mill_conn_quota {
    uint64_t hash;                         /* of its id; 0: not known */
    uint64_t version;                      /* of the limits */
    uint64_t per_second[MILL_QUOTA_KINDS]; /* 0: none */
    struct mill_quota_client *place;       /* its own; may be another's by now */
    bool together[MILL_QUOTA_KINDS];       /* the limit is that of all clients together */
    bool limited;
    uint8_t part; /* enum mill_quota_part */
};

struct mill_conn {
    struct mill_node ready; /* has something to look at */
    struct mill_stream *stream;
    struct mill_request *request;
    struct mill_node all;
    uint32_t index;
    bool in_use;
    bool closing;
    bool want_stage;         /* waits for staging memory */
    bool frame_is_produce;   /* of the frame being staged */
    uint32_t address_place;  /* where it is counted (addresses.h); 0: nowhere */
    uint32_t frame_bytes;    /* with size field, of the frame under way; 0: not known yet */
    uint32_t pinned_bytes;   /* counted in core->pinned_bytes */
    uint32_t stage_reserved; /* counted in core->stage_reserved */
    struct mill_chain stage;
    uint64_t frame_begun_ns;
    uint64_t gather_ns;   /* since when its bytes can be taken as they come */
    uint64_t progress_ns; /* last received or acknowledged byte */
    uint64_t acked_ns;    /* last acknowledged byte, or moment at which nothing was unread */
    uint64_t queued_bytes;
    uint64_t acked_bytes;
    struct mill_heap_item mute; /* not read until then: a quota */
    struct mill_conn_quota quota;
    uint32_t marks_count;
    struct mill_ack_mark marks[MILL_ACK_MARKS];
};

struct mill_core {
    /* rx and dispatch */
    struct mill_now now;
    uint32_t index;
    uint32_t count;
    int32_t node_id;
    uint32_t makers_count;
    struct mill_stream_maker *makers[MILL_CORE_MAKERS_MAX];
    struct mill_net *nets[MILL_CORE_MAKERS_MAX];
    uint16_t
        maker_listener[MILL_CORE_MAKERS_MAX]; /* listener that carries the maker's own counters */
    struct mill_node ready;                   /* connections to look at */
    struct mill_node held;                    /* requests that could not begin */
    struct mill_node retry;                   /* ops without memory */
    struct mill_node asked;                   /* ops for a peer whose ring was full */
    struct mill_node fired;                   /* ops whose watch fired: run later in the turn */
    struct mill_node forwarded;               /* requests at control */
    struct mill_read_result *read_result;
    struct mill_fetch_sessions *fetch_sessions;
    struct mill_heap mutes; /* connections that are not read */
    struct mill_quota_table *quotas;
    struct mill_quota_table *quotas_own; /* where there is no other core */
    struct mill_address_table *addresses;
    struct mill_address_table *addresses_own;
    uint64_t quotas_version; /* of the map's record, as last followed */
    uint64_t quotas_burst_ns;
    uint64_t quotas_pause_max_ns;
    bool quotas_on;    /* somebody is limited */
    bool quotas_timed; /* in a core's time, too */
    mill_ticks ticks_ns;
    void *ticks_context;
    struct mill_heap heap;
    struct mill_arena *arena;
    struct mill_extents *extents;
    struct mill_loans *loans;
    uint8_t *arena_base;
    struct mill_log *log;
    struct mill_map *map;
    uint64_t map_generation;
    struct mill_broker_settings settings; /* as last followed */
    struct mill_store_tuning *tuning;
    _Atomic int64_t *connections_all;
    _Atomic int64_t connections_own; /* where there is no other core */
    uint32_t map_cursor;
    bool map_walking;
    bool map_again;
    bool report_all;
    uint32_t report_cursor;
    /* pools */
    struct mill_core_limits limits;
    struct mill_conn *conns;
    uint32_t *conns_free;
    uint32_t conns_free_count;
    struct mill_request *requests;
    uint32_t *requests_free;
    uint32_t requests_free_count;
    uint32_t requests_count;    /* connections_max and some whose connection is gone */
    uint32_t requests_orphaned; /* of these, wait for appends of other cores */
    struct mill_op *peer_ops;
    uint32_t *peer_ops_free;
    uint32_t peer_ops_free_count;
    uint32_t *peer_ops_buckets; /* index + 1 by (origin, request, op) */
    uint32_t peer_ops_mask;
    uint32_t asks_out[MILL_ARENA_CORES_MAX]; /* asks without a result yet, per owner */
    struct mill_node conns_all;
    /* encoding */
    uint8_t *answer_bytes;
    struct mill_writer_hole *holes;
    uint32_t *seen; /* per map slot: stamp of the Metadata request that named it */
    uint32_t seen_stamp;
    /* scratch extents whose last loan is still out: a list, oldest look first */
    uint32_t retired_count;
    uint32_t retired_first;
    uint32_t retired_last;
    uint32_t *retired_next; /* by extent */
    uint64_t pinned_bytes;
    uint64_t stage_reserved;
    uint64_t staged_now;
    uint64_t ops_bytes;       /* of scratch extents that hold ops */
    uint64_t producers_bytes; /* of those that hold lists of producers, until they are free */
    uint32_t stage_wanted;    /* connections that wait for staging memory */
    /* control */
    uint64_t incarnation;
    uint64_t control_incarnation;
    struct mill_ipc_segment *ipc;
    struct mill_ipc_core *ipc_core;
    struct mill_ring frames_out;
    struct mill_ring frames_in;
    struct mill_ring events;
    struct mill_ring commands;
    struct mill_bell control_bell;
    bool control_rung;
    struct mill_core_peer *peers;
    bool peer_touched[MILL_ARENA_CORES_MAX];
    int64_t ids_next[2]; /* two blocks: the one in use, the reserve */
    int64_t ids_end[2];
    bool grants_told; /* control has told whom the transactions under way let in */
    bool ids_asked;
    uint64_t ids_asked_ns;
    uint64_t sweep_ns;
    uint32_t opening; /* partitions whose files are being loaded */
    bool walked;      /* the map was followed once to its end */
    bool stopping;
    uint64_t stop_ns;
    struct mill_shared_core *shared;
    uint32_t listeners_count;
    char listeners[MILL_MAP_LISTENERS_MAX][MILL_LISTENER_NAME_BYTES];
    struct mill_core_words {
#define MILL_CORE_WORD(name, help) uint64_t name;
        MILL_CORE_COUNTERS(MILL_CORE_WORD)
    } words;
    struct mill_listener_words {
        MILL_LISTENER_COUNTERS(MILL_CORE_WORD)
#undef MILL_CORE_WORD
    } listener_words[MILL_LISTENER_CONTROL + 1];
    uint64_t rows_ns; /* when busy partitions were last looked at */
    struct mill_core_row {
        struct mill_uuid topic_id;
        int32_t index;
        bool used;
        uint64_t used_ns;
    } rows[MILL_COUNTERS_PARTITIONS_MAX]; /* whose row of shared->busy */
};

/* --- conn.c ---------------------------------------------------------------------------------- */

/* Looks at ready connections: frames, staging, requests. ret: work. */
uint32_t mill_conn_run(struct mill_core *core);
void mill_conn_ready(struct mill_core *core, struct mill_conn *conn);
/* Ends the connection at once for a fault of the peer's. */
void mill_conn_abort(struct mill_core *core, struct mill_conn *conn);
/* The request of this connection is finished: drop its frame's bytes and look for the next. */
void mill_conn_finish(struct mill_core *core, struct mill_conn *conn, uint32_t frame_bytes);
/* Once a second: stalled readers and writers, idle connections. */
void mill_conn_sweep(struct mill_core *core);
struct mill_listener_words *mill_conn_words(struct mill_core *core, const struct mill_conn *conn);

/* --- request.c ------------------------------------------------------------------------------- */

/* Whether a frame is more than its API's request may be: elements are walked when it is decoded,
 * and one of a byte each must not fill a turn. Produce carries records, Fetch bounds its own. */
bool mill_frame_too_large(const struct mill_core *core, int16_t api_key, uint32_t frame_bytes);
/* Begins the request whose frame lies at cursor (behind the size field). ret: 0 begun (maybe
 * already done), -EBADMSG or -EOPNOTSUPP: close, -EAGAIN no slot. */
int mill_request_begin(struct mill_core *core, struct mill_conn *conn, struct mill_cursor frame,
                       uint32_t frame_bytes) MILL_WARN_UNUSED;
/* Room for count ops. ret: 0, -ENOSPC no memory now, -E2BIG more than a request may have. */
int mill_request_ops(struct mill_core *core, struct mill_request *request,
                     uint32_t count) MILL_WARN_UNUSED;
/* The same for an API whose every partition is one op. ret: false when the request was held or its
 * connection ended. */
bool mill_request_ops_take(struct mill_core *core, struct mill_request *request, uint32_t count);
/* Ends the connection for a request that cannot be decoded. */
void mill_request_malformed(struct mill_core *core, struct mill_request *request);
/* Starts one op on its owner; ops_pending counts it until it is done. */
void mill_request_op_start(struct mill_core *core, struct mill_request *request, uint32_t op_index);
/* All ops are begun: goes on at once when none is pending. */
void mill_request_ops_begun(struct mill_core *core, struct mill_request *request);
/* Called by op.c when an op of this core's request is done. */
void mill_request_op_done(struct mill_core *core, struct mill_request *request, struct mill_op *op);
/* The deadline of the heap passed. */
void mill_request_expired(struct mill_core *core, struct mill_request *request);
/* Takes the request off everything and gives it back; drops loans that were not sent. */
void mill_request_free(struct mill_core *core, struct mill_request *request);
/* Its connection died. */
void mill_request_orphan(struct mill_core *core, struct mill_request *request);
/* The request with this name, or NULL when it is gone. */
struct mill_request *mill_request_named(struct mill_core *core, uint32_t index,
                                        uint32_t generation);
/* Tries requests that could not begin. ret: work. */
uint32_t mill_request_run_held(struct mill_core *core);
/* Puts the request on the held list: mill_api_begin is called again each turn. */
void mill_request_hold(struct mill_core *core, struct mill_request *request);
/* The request will wait: copies its frame out of the receive buffers and lets them go. Keeps them
 * when no memory is there. Positions decoded before are void after. */
void mill_request_settle(struct mill_core *core, struct mill_request *request);
void mill_request_deadline(struct mill_core *core, struct mill_request *request, uint64_t at_ns);

/* --- answer.c -------------------------------------------------------------------------------- */

/* Encodes through fill into the common buffer, or a larger scratch extent when that is too small,
 * and sends it; the request is finished or waits for room. A failed encode closes the connection.
 */
typedef int (*mill_answer_fill)(struct mill_writer *to, const struct mill_request *request,
                                void *context);
void mill_answer_send(struct mill_core *core, struct mill_request *request, mill_answer_fill fill,
                      void *context);
/* Sends an answer made elsewhere (control's bytes, with size field). */
void mill_answer_bytes(struct mill_core *core, struct mill_request *request,
                       const struct mill_cursor *bytes);
/* Nothing to send (acks=0). */
void mill_answer_none(struct mill_core *core, struct mill_request *request);
/* The stream has room again. */
void mill_answer_continue(struct mill_core *core, struct mill_request *request);
/* Frees a scratch extent, at once or when its loans are back. */
void mill_scratch_retire(struct mill_core *core, uint32_t extent);
/* The same for one that is counted in producers_bytes. */
void mill_scratch_retire_producers(struct mill_core *core, uint32_t extent);
/* Looks at some of those that wait. ret: extents freed. */
uint32_t mill_scratch_sweep(struct mill_core *core);

/* --- op.c, peer.c ---------------------------------------------------------------------------- */

/* Begins or goes on with an op on this core's own partition. Done: mill_op_done was called. */
void mill_op_run(struct mill_core *core, struct mill_op *op);
void mill_op_done(struct mill_core *core, struct mill_op *op);
/* Goes on with an op that tells producers (api_describe_producers.c); gives up what it has
 * gathered. */
void mill_op_producers(struct mill_core *core, struct mill_op *op,
                       const struct mill_partition *partition);
void mill_op_producers_drop(struct mill_core *core, struct mill_op *op);
/* Gives up the list that a read or a walk over producers brought. */
void mill_op_list_drop(struct mill_core *core, struct mill_op *op);
/* Takes it off lists and watches. */
void mill_op_cancel(struct mill_core *core, struct mill_op *op);
/* The client's time for an append is over: what is appended and waits for its sync ends with
 * REQUEST_TIMED_OUT, here or at the owner; what is not appended yet goes on. */
void mill_op_late(struct mill_core *core, struct mill_op *op);
void mill_op_watch_fired(struct mill_core *core, struct mill_log_watch *watch);
uint32_t mill_op_run_retries(struct mill_core *core);

/* Sends an op to its owner; false when the ring is full (then it is on the asked list). */
void mill_peer_ask(struct mill_core *core, struct mill_op *op);
void mill_peer_cancel(struct mill_core *core, struct mill_op *op);
/* Sends a finished op of another core's request back. */
void mill_peer_answer(struct mill_core *core, struct mill_op *op);
/* Serves all peers' rings, returns loans, rings bells. ret: work. */
uint32_t mill_peer_run(struct mill_core *core);

/* --- apis ------------------------------------------------------------------------------------ */

/* Begins an API; may be called again for a held request. */
void mill_api_begin(struct mill_core *core, struct mill_request *request);
/* All ops of the phase are done, or the deadline passed. */
void mill_api_ops_done(struct mill_core *core, struct mill_request *request);

void mill_produce_begin(struct mill_core *core, struct mill_request *request);
void mill_produce_done(struct mill_core *core, struct mill_request *request);
void mill_produce_late(struct mill_core *core, struct mill_request *request);
/* Every append was begun: the client's timeout counts for those that wait. */
void mill_produce_ops_begun(struct mill_core *core, struct mill_request *request);
/* api_produce_adds.c: partitions that the batches of a Produce add to their transaction (KIP-890).
 * Asks the coordinator for those that nobody vouched for. ret: false when there are none: the
 * request is done. */
bool mill_produce_adds_begin(struct mill_core *core, struct mill_request *request);
/* What the coordinator answers, with its header: what it added is appended. */
void mill_produce_adds_answer(struct mill_core *core, struct mill_request *request,
                              struct mill_cursor bytes);
/* Control did not answer in time. */
void mill_produce_adds_expired(struct mill_core *core, struct mill_request *request);
void mill_fetch_begin(struct mill_core *core, struct mill_request *request);
void mill_fetch_done(struct mill_core *core, struct mill_request *request);
void mill_list_offsets_begin(struct mill_core *core, struct mill_request *request);
void mill_list_offsets_done(struct mill_core *core, struct mill_request *request);
void mill_epochs_begin(struct mill_core *core, struct mill_request *request);
void mill_epochs_done(struct mill_core *core, struct mill_request *request);
void mill_delete_records_begin(struct mill_core *core, struct mill_request *request);
void mill_delete_records_done(struct mill_core *core, struct mill_request *request);
void mill_producers_begin(struct mill_core *core, struct mill_request *request);
void mill_producers_done(struct mill_core *core, struct mill_request *request);
void mill_markers_begin(struct mill_core *core, struct mill_request *request);
void mill_markers_done(struct mill_core *core, struct mill_request *request);
void mill_grants_begin(struct mill_core *core, struct mill_request *request);
void mill_grants_done(struct mill_core *core, struct mill_request *request);
/* Whether a topic may have such a name. */
bool mill_topic_name_good(const char *name, int32_t length);
void mill_metadata_begin(struct mill_core *core, struct mill_request *request);
void mill_cluster_begin(struct mill_core *core, struct mill_request *request);
/* The administration that a single broker answers from the map. ret: false for any other API. */
bool mill_core_admin_begin(struct mill_core *core, struct mill_request *request);
void mill_api_versions_begin(struct mill_core *core, struct mill_request *request);
void mill_coordinator_begin(struct mill_core *core, struct mill_request *request);
/* What ApiVersions tells of features. level_zero: the client knows levels from 0 on. */
void mill_features_tell(bool level_zero, struct mill_api_versions_response *answer);
void mill_update_features_begin(struct mill_core *core, struct mill_request *request);
void mill_producer_id_begin(struct mill_core *core, struct mill_request *request);

/* The cluster as a client of one listener sees it: brokers that have that listener, each as many
 * nodes as it shows cores. */
struct mill_broker_view {
    const struct mill_map_cluster *cluster; /* NULL before control published it */
    const char *listener;
    uint32_t count; /* nodes */
};
struct mill_node_view {
    int32_t id;
    const char *host;
    int32_t port;
};
struct mill_broker_view mill_broker_view(struct mill_core *core, uint16_t listener);
struct mill_node_view mill_node_at(const struct mill_broker_view *view, int32_t index);
/* Id of the node that a client asks for a partition of this broker: its own, or its core's. */
int32_t mill_node_of(const struct mill_broker_view *view, int32_t node_id,
                     const struct mill_uuid *topic_id, int32_t partition);

/* The node itself. ret: false: none with that id has this listener. */
bool mill_node_find(const struct mill_broker_view *view, int32_t node_id,
                    const struct mill_uuid *topic_id, int32_t partition,
                    struct mill_node_view *ret_node);

/* Finds a partition that this node leads, of a topic given by its name, or by its id where a
 * request has no names. ret: MILL_KERR_NONE and the op's owner, topic id filled. */
enum mill_kerr mill_locate_id(struct mill_core *core, const struct mill_uuid *topic_id,
                              int32_t partition, struct mill_op *op,
                              const struct mill_map_topic **ret_topic);
enum mill_kerr mill_locate(struct mill_core *core, const struct mill_wstr *topic, int32_t partition,
                           struct mill_op *op, const struct mill_map_topic **ret_topic);

/* Whom to ask instead where an op was answered NOT_LEADER_OR_FOLLOWER, as the map says (KIP-951).
 * ret: false when there is nobody. */
bool mill_leader_of(struct mill_core *core, const struct mill_request *request,
                    const struct mill_op *op, int32_t *ret_node, int32_t *ret_epoch);
/* The nodes that such hints may name: none when no op of the request has one. */
uint32_t mill_hinted_nodes(struct mill_core *core, const struct mill_request *request,
                           struct mill_broker_view *ret_view);

/* --- api_quota.c ----------------------------------------------------------------------------- */

/* The map changed: what is limited may have, too. */
void mill_quota_follow(struct mill_core *core);
/* Whether the client of a Fetch may have records; its limits are then those of the quota, too. */
bool mill_quota_fetch(struct mill_core *core, struct mill_request *request);
/* Notes what a request used, answer_bytes of a Fetch; throttle_ms is then known. Once for each. */
void mill_quota_charge(struct mill_core *core, struct mill_request *request, uint64_t answer_bytes);
/* The answer is queued: the connection is not read for so long. */
void mill_quota_mute(struct mill_core *core, struct mill_conn *conn, int32_t throttle_ms);
/* It is read again, or gone. */
void mill_quota_mute_end(struct mill_core *core, struct mill_conn *conn);
/* Ends the waits that are over. ret: work. */
uint32_t mill_quota_run(struct mill_core *core);
/* Runs work for a request on the clock. */
void mill_request_timed(struct mill_core *core, struct mill_request *request,
                        void (*work)(struct mill_core *core, struct mill_request *request));
/* Adds the time since it was last looked at. */
void mill_request_time_note(struct mill_core *core, struct mill_request *request);

/* --- api_fetch_session.c --------------------------------------------------------------------- */

/* Follows what a request says of fetch sessions, once for each: ends one, or goes on with one as
 * changed by the request. Sets the request's fetch_session, or its top_error. */
void mill_api_fetch_session_begin(struct mill_core *core, struct mill_request *request,
                                  const struct mill_fetch_request *message);
/* The fetch session that the request goes on with. ret: NULL when it is gone or went on without
 * this request; top_error says so. */
struct mill_fetch_session *mill_api_fetch_session(struct mill_core *core,
                                                  struct mill_request *request);
/* All ops are done: begins the fetch session that was wanted, or marks the ops that are told in the
 * answer, sets session_id or top_error. ret: topics in the answer of a session that goes on. */
uint32_t mill_api_fetch_session_answer(struct mill_core *core, struct mill_request *request);

/* --- forward.c ------------------------------------------------------------------------------- */

/* Hands the whole frame to control; the answer, or the deadline, ends the request. */
void mill_forward(struct mill_core *core, struct mill_request *request);
/* The same with a frame of the core's own, from the API key on, copied within the call: what
 * control answers goes to the request's API. A request that is held calls its API's begin again. */
void mill_forward_own(struct mill_core *core, struct mill_request *request,
                      const struct mill_cursor *frame);
/* A deadline passed: gives control more time when it lives and the API may take longer.
 * ret: true when it did. */
bool mill_forward_extend(struct mill_core *core, struct mill_request *request);
/* The API's retriable error, because control did not answer in time. */
void mill_forward_expired(struct mill_core *core, struct mill_request *request);
/* The same for the APIs of groups (expired_groups.c). */
void mill_forward_expired_group(struct mill_core *core, struct mill_request *request);
/* The same for those of transactions (expired_txns.c). ret: false for any other API. */
bool mill_forward_expired_txn(struct mill_core *core, struct mill_request *request);
/* And of quotas (expired_quotas.c). */
bool mill_forward_expired_quota(struct mill_core *core, struct mill_request *request);
uint32_t mill_forward_run(struct mill_core *core);
/* Events to control. */
void mill_event_partition(struct mill_core *core, const struct mill_uuid *topic_id,
                          int32_t partition, enum mill_partition_state state);
void mill_ids_ask(struct mill_core *core);

/* --- owner.c --------------------------------------------------------------------------------- */

/* Follows the map: opens, updates, deletes. ret: work. */
uint32_t mill_owner_run(struct mill_core *core);
void mill_owner_state(void *context, struct mill_partition *partition, bool gone);

/* --- rows.c ---------------------------------------------------------------------------------- */

/* Forgets the rows of a millraced that ran before. */
void mill_rows_open(struct mill_core *core);
/* Shows the partitions used since the last call in the shared counters. */
void mill_rows_publish(struct mill_core *core, struct mill_now now);
/* The partition is deleted: its row is free. */
void mill_rows_gone(struct mill_core *core, const struct mill_partition *partition);

#endif
