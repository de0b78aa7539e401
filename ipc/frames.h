/* SPDX-License-Identifier: Apache-2.0 */
/* What travels in the rings between a core and control (hugepages/ring.h; kind = the enums here).
 *
 * Per core three pairs: frames (client requests that control answers, and the answers), commands
 * with events (never behind client traffic), and the two directions of a byte stream on which
 * control is a client of the core: it speaks Kafka's protocol there, to append to internal
 * partitions and to read them. Each message names the incarnation of the process that
 * wrote it, so that what a killed process left is known and dropped, never taken for one's own.
 *
 * A frame larger than a quarter of the ring travels through the sender's scratch slot: the message
 * then carries scratch = 1 and the bytes lie in the slot until the receiver clears its busy word.
 */
#ifndef MILL_IPC_FRAMES_H
#define MILL_IPC_FRAMES_H

#include <stdatomic.h>

#include "base/chain.h"
#include "base/uuid.h"
#include "hugepages/ring.h"
#include "ipc/map.h"

enum {
    MILL_IPC_MAGIC = 0x4d4c4950, /* "MLIP" */
    MILL_IPC_VERSION = 2,
    MILL_FRAME_RING_BYTES = 1 << 20,
    MILL_COMMAND_RING_BYTES = 1 << 18,
    MILL_STREAM_RING_BYTES = 1 << 18,
    MILL_STREAM_PART_BYTES = 32 << 10, /* bytes of control's stream in one message, at most */
};

/* kind of messages on the frame rings */
enum mill_frame_kind {
    MILL_FRAME_REQUEST = 1, /* core to control: struct mill_frame_request, then the frame's bytes */
    MILL_FRAME_ANSWER = 2,  /* control to core: struct mill_frame_answer, then the whole answer */
};

struct mill_frame_request {
    uint64_t core_incarnation; /* of millraced */
    uint64_t ticket;           /* the core's; comes back */
    uint64_t deadline_ns;      /* monotonic clock; the core answers by itself after it */
    uint8_t peer_address[16];
    uint16_t peer_port;
    uint16_t listener;   /* index in the configuration's order */
    uint32_t scratch;    /* 1: bytes are in the core's scratch slot */
    uint32_t size_bytes; /* of the frame: from the API key on, without the size field */
    uint32_t reserved;
    char principal[64]; /* "User:ANONYMOUS" */
};

struct mill_frame_answer {
    uint64_t core_incarnation; /* copied from the request */
    uint64_t ticket;
    uint32_t scratch;
    uint32_t size_bytes; /* of the answer, with its size field; 0: see outcome */
    uint32_t outcome;    /* enum mill_frame_outcome */
    uint32_t reserved;
};

enum mill_frame_outcome {
    MILL_OUTCOME_BYTES = 0, /* send the bytes */
    MILL_OUTCOME_AGAIN = 1, /* what was missing is in the map now: the core answers from it */
    MILL_OUTCOME_CLOSE = 2, /* malformed: close the connection */
};

/* kind of messages on the stream rings, both ways: struct mill_stream_part, then its bytes */
enum mill_stream_kind {
    MILL_STREAM_PART = 1,
    MILL_STREAM_END = 2, /* core to control: that stream is over, its answers will not come */
};

/* The first part of a new stream, at position 0, ends the one before. */
struct mill_stream_part {
    uint64_t core_incarnation; /* of millraced */
    uint64_t stream_id;        /* drawn by control, never 0 */
    uint64_t pos_bytes;        /* of the first byte, in this direction of the stream */
    uint32_t size_bytes;
    uint32_t reserved;
};

/* Commands: control to core. */
enum mill_command_kind {
    MILL_COMMAND_ID_BLOCK = 1, /* struct mill_command_id_block: answer to MILL_EVENT_IDS_LOW */
    MILL_COMMAND_LOOK = 2,     /* struct mill_command_look: re-read the map and report states */
    /* struct mill_command_grants_told: the partitions of every transaction under way were told on
     * the stream, to a millraced that began after them */
    MILL_COMMAND_GRANTS_TOLD = 3,
};

struct mill_command_id_block {
    uint64_t core_incarnation;
    int64_t first;
    int64_t count;
};

struct mill_command_grants_told {
    uint64_t core_incarnation;
};

struct mill_command_look {
    uint64_t control_incarnation;
};

/* Events: core to control. They name a state to be read again; losing one loses nothing. */
enum mill_event_kind {
    MILL_EVENT_PARTITION = 1, /* struct mill_event_partition */
    MILL_EVENT_IDS_LOW = 2,   /* struct mill_event_ids_low */
};

enum mill_partition_state {
    MILL_PARTITION_SERVING = 1, /* produce and fetch are answered */
    MILL_PARTITION_FAILED = 2,  /* its directory could not be opened */
    MILL_PARTITION_GONE = 3,    /* closed and its files removed */
};

struct mill_event_partition {
    uint64_t core_incarnation;
    struct mill_uuid topic_id;
    int32_t partition;
    uint32_t state; /* enum mill_partition_state */
};

struct mill_event_ids_low {
    uint64_t core_incarnation;
    uint64_t left;
};

/* --- the shared segment ---------------------------------------------------------------------- */

/* One side's life sign. incarnation 0: not running. */
struct mill_ipc_side {
    MILL_SPACED _Atomic uint64_t incarnation;
    _Atomic uint64_t seen;    /* the other side's incarnation as this side last attached to it */
    _Atomic uint64_t beat_ns; /* monotonic time of its last turn (millraced: its main thread) */
    _Atomic uint32_t serving; /* 1: start-up is over */
};

/* A scratch slot: bytes of one large frame on its way. */
struct mill_ipc_scratch {
    MILL_SPACED _Atomic uint32_t busy; /* sender sets 1 after filling; receiver clears */
    uint32_t size_bytes;
    uint64_t offset; /* of the bytes in the segment */
};

struct mill_ipc_core {
    uint64_t frames_out;                 /* ring offsets in the segment: core to control */
    uint64_t frames_in;                  /* control to core */
    uint64_t events;                     /* core to control */
    uint64_t commands;                   /* control to core */
    uint64_t stream_in;                  /* control to core */
    uint64_t stream_out;                 /* core to control */
    struct mill_ipc_scratch scratch_out; /* core's */
    struct mill_ipc_scratch scratch_in;  /* control's */
    struct mill_bell_shared bell;        /* the core sleeps on it */
};

/*   | header | cores[] | rings and scratch ... */
struct mill_ipc_segment {
    uint32_t magic;
    uint32_t version;
    uint64_t size_bytes;
    uint32_t cores_count;
    uint32_t scratch_bytes; /* of each slot: control.frame.max.bytes */
    struct mill_ipc_side dataplane;
    struct mill_ipc_side control;
    struct mill_bell_shared control_bell;
    struct mill_ipc_core cores[];
};

/* Size of a segment, and its making in zeroed memory. Supervisor. */
uint64_t mill_ipc_bytes(uint32_t cores_count, uint32_t scratch_bytes);
void mill_ipc_format(void *memory, uint32_t cores_count, uint32_t scratch_bytes);
/* Checks a mapped segment against its size. ret: 0, -EBADMSG. */
int mill_ipc_check(const void *memory, uint64_t size_bytes) MILL_WARN_UNUSED;

static inline void *mill_ipc_at(struct mill_ipc_segment *segment, uint64_t offset)
{
    return (uint8_t *)segment + offset;
}

/* Puts a frame message (head, then body_bytes at body) into ring or, when large, into scratch.
 * ret: 0, -EAGAIN ring full or scratch busy, -EMSGSIZE above the slot's size. Publishes nothing. */
int mill_frame_put(struct mill_ring *ring, struct mill_ipc_segment *segment,
                   struct mill_ipc_scratch *scratch, uint32_t kind, void *head, uint32_t head_bytes,
                   const struct mill_cursor *body) MILL_WARN_UNUSED;

/* The body of a received frame message: beside its head, or in the sender's scratch slot. Checks
 * every length. ret: NULL when the message is malformed (drop it). With in_scratch the receiver
 * calls mill_scratch_release when done with the bytes. */
const uint8_t *mill_frame_body(struct mill_ipc_segment *segment, uint64_t segment_bytes,
                               struct mill_ipc_scratch *scratch, const void *message,
                               uint32_t head_bytes, uint32_t message_bytes, uint32_t in_scratch,
                               uint32_t size_bytes);
void mill_scratch_release(struct mill_ipc_scratch *scratch);

/* --- descriptors the supervisor passes ------------------------------------------------------- */

/* Each started process inherits these numbers and finds their meaning in the environment variable
 * MILLRACE_FDS ("ipc=3,map=4,counters=5,bell.control=6,bell.core0=7,...,ready=N"). */
#define MILL_FDS_VARIABLE "MILLRACE_FDS"

#endif
