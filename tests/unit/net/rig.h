/* SPDX-License-Identifier: Apache-2.0 */
/* One stack and a hand that plays the peer: frames in are built here, frames out are caught and
 * taken apart. Virtual time. Numbers are relative: to_seq counts from the peer's first byte, and
 * what the stack sends counts from its own, so that tests read alike at any initial number. */
#ifndef MILL_TESTS_UNIT_NET_RIG_H
#define MILL_TESTS_UNIT_NET_RIG_H

#include "base/clock.h"
#include "dataplane/net/internal.h"

enum {
    RIG_ADDRESS = 0xc6120001,
    RIG_PEER = 0xc6120002,
    RIG_PORT = 9092,
    RIG_PEER_PORT = 40000,
    RIG_UNITS = 64,
    RIG_CAUGHT_MAX = 512,
    RIG_FRAMES = 600,
};

/* A segment as the stack sent it. */
struct rig_segment {
    uint32_t seq; /* relative to the stack's first byte */
    uint32_t ack; /* relative to the peer's first byte */
    uint32_t raw_seq;
    uint32_t raw_ack;
    uint32_t window;
    uint32_t size_bytes;
    uint16_t peer_port;
    uint8_t flags;
    uint8_t header_flags; /* MILL_FRAME_ */
    struct mill_tcp_options options;
    uint8_t bytes[1500];
};

struct rig {
    struct mill_net *net;
    struct mill_stream_maker *maker;
    struct mill_loans loans;
    struct mill_link link;
    uint8_t *arena;
    uint64_t now_ns;
    uint32_t isn_peer; /* chosen by the test before the handshake */
    uint32_t isn_ours; /* learnt */
    bool timestamps;   /* the peer uses them */
    uint32_t ts_value; /* of the next injected segment */
    uint32_t ts_echo;
    uint32_t window; /* field of injected segments */
    uint16_t peer_port;
    struct mill_stream *stream;
    uint64_t acked;
    uint32_t accepted;
    uint32_t received_events;
    uint32_t room_events;
    uint32_t closed;
    int connect_error;
    bool connected;
    bool refuse; /* answer of accepted */
    bool keep;   /* do not consume */
    enum mill_stream_end end;
    uint8_t received[65536];
    uint32_t received_bytes;
    /* frames */
    struct mill_frame frames[RIG_FRAMES];
    uint8_t headers[RIG_FRAMES][2048];
    struct mill_frame *free_frames[RIG_FRAMES];
    uint32_t free_count;
    struct mill_frame *caught[RIG_CAUGHT_MAX]; /* hold their loans until looked at */
    uint32_t caught_head;
    uint32_t caught_tail;
    uint32_t send_limit; /* frames the link takes per call */
    struct mill_buf *inbox[64];
    uint32_t inbox_count;
    uint32_t buffers; /* received and not freed */
};

struct rig *rig_make(const struct mill_net_config *config);
void rig_free(struct rig *rig); /* checks that every buffer and loan is back */

/* One step, time as it is; then one after moving time on, firing what is due on the way. */
void rig_step(struct rig *rig);
void rig_pass(struct rig *rig, uint64_t ns);

/* Puts a raw frame in; a step takes it. split: as buffers of that size, 0: one. */
void rig_frame(struct rig *rig, const uint8_t *frame, uint32_t size_bytes, uint32_t split);

/* A segment of the peer: relative seq and ack, payload of size_bytes (a pattern by seq). Followed
 * by a step. */
void rig_put(struct rig *rig, uint8_t flags, uint32_t seq, uint32_t ack, uint32_t size_bytes);
/* The same with options (SACK blocks relative). */
void rig_put_options(struct rig *rig, uint8_t flags, uint32_t seq, uint32_t ack,
                     uint32_t size_bytes, const struct mill_tcp_options *options);
/* Builds without stepping; ret: frame size. options are written as for a SYN when flags say so. */
uint32_t rig_build(struct rig *rig, uint8_t *to, uint8_t flags, uint32_t raw_seq, uint32_t raw_ack,
                   uint32_t size_bytes, const struct mill_tcp_options *options);
void rig_sum(uint8_t *frame, uint32_t size_bytes); /* mends IPv4 and TCP sums */

/* The next segment that was sent. ret: false: none. */
bool rig_next(struct rig *rig, struct rig_segment *ret);
/* Fails unless there is one. */
void rig_expect(struct rig *rig, struct rig_segment *ret, uint8_t flags, uint32_t seq, uint32_t ack,
                uint32_t size_bytes);
void rig_expect_none(struct rig *rig);
void rig_drop_all(struct rig *rig);

/* SYN, SYN-ACK, ACK with MSS 1460, window scale 0, SACK and timestamps as asked. */
void rig_handshake(struct rig *rig, bool sack, bool timestamps);

/* Queues size_bytes by reference (content: its relative sequence number) and pushes; steps. */
void rig_send(struct rig *rig, uint32_t size_bytes);
uint8_t rig_byte(uint32_t position);
struct mill_tcp *rig_tcp(struct rig *rig);

#endif
