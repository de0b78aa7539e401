/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of dataplane/net call of each other, grouped by file. Owner: one core. */
#ifndef MILL_DATAPLANE_NET_INTERNAL_H
#define MILL_DATAPLANE_NET_INTERNAL_H

#include "dataplane/net/net_types.h"

/* -- net.c -- */
/* Put a flow into, or take it out of, one of the instance's three tables; where other cores look
 * for owners, they see it from its first table to its last without a gap. */
void mill_net_flow_insert(struct mill_net *net, struct mill_flow_table *table,
                          const struct mill_flow_key *key, uint32_t index);
void mill_net_flow_remove(struct mill_net *net, struct mill_flow_table *table, uint32_t index);
/* A packet of a connection that is in no table here. ret: true: another core has it, and the
 * packet's buffer is no longer ours. */
bool mill_net_misplaced(struct mill_net *net, struct mill_packet *packet,
                        const struct mill_flow_key *key);

/* Whether a flow is in one of them. */
bool mill_net_knows(const struct mill_net *net, const struct mill_flow_key *key);

/* -- ethernet.c -- */
/* Takes one received frame, always. */
void mill_ethernet_input(struct mill_net *net, struct mill_buf *frame);
/* A blank frame with its Ethernet header written. NULL when the link has none or too many wait. */
struct mill_frame *mill_ethernet_frame(struct mill_net *net, const uint8_t target[6],
                                       uint16_t ethertype);
/* Puts a finished frame behind the pending ones; takes a loan per piece until the link has its own.
 */
void mill_ethernet_send(struct mill_net *net, struct mill_frame *frame);
/* Hands pending frames to the link, in order; what it does not take stays. */
void mill_ethernet_flush(struct mill_net *net);
/* Gives everything pending back unsent. */
void mill_ethernet_drop_pending(struct mill_net *net);

/* -- arp.c -- */
int mill_arp_init(struct mill_net *net);
void mill_arp_fini(struct mill_net *net);
/* answers: false for a copy of what another core of the same address received and answers. */
void mill_arp_input(struct mill_net *net, const uint8_t *packet, uint32_t size_bytes, bool answers);
void mill_arp_announce(struct mill_net *net);
/* Address of a neighbour; asks for it when unknown. ret: NULL: not yet, or it did not answer. */
const uint8_t *mill_arp_resolve(struct mill_net *net, uint32_t address);
/* Whether the last attempt for that address failed. */
bool mill_arp_failed(const struct mill_net *net, uint32_t address);
void mill_arp_timer(struct mill_net *net, struct mill_neighbour *neighbour);
/* The neighbour through which an address is reached; 0: none configured. */
uint32_t mill_arp_next_hop(const struct mill_net *net, uint32_t address);

/* -- ipv4.c -- */
/* Checks the packet's IPv4 header and deals it out; whoever keeps the buffer sets it NULL. */
void mill_ipv4_input(struct mill_net *net, struct mill_packet *packet);
/* Writes a header behind the Ethernet header; payload_bytes: all that follows it. */
void mill_ipv4_header(struct mill_net *net, struct mill_frame *frame, uint32_t target,
                      uint8_t protocol, uint32_t payload_bytes);
/* Cuts a frame down to size_bytes from byte skip_bytes on, frees emptied buffers. */
struct mill_chain mill_ipv4_trim(struct mill_buf *frame, uint32_t skip_bytes, uint32_t size_bytes);

/* -- icmp.c -- */
void mill_icmp_input(struct mill_net *net, struct mill_packet *packet);

/* -- tcp_input.c -- */
void mill_tcp_input(struct mill_net *net, struct mill_packet *packet);
/* Handles a segment of a connection. */
void mill_tcp_segment(struct mill_net *net, struct mill_tcp *tcp, struct mill_segment *segment);

/* -- tcp_open.c: SYN-SENT, and the step into ESTABLISHED -- */
void mill_tcp_syn_sent(struct mill_net *net, struct mill_tcp *tcp, struct mill_segment *segment);
uint32_t mill_tcp_isn(const struct mill_net *net, const struct mill_flow_key *key);
uint32_t mill_tcp_ts_offset(const struct mill_net *net, const struct mill_flow_key *key);
uint32_t mill_tcp_mss_ours(const struct mill_net *net);
uint8_t mill_tcp_wscale_ours(const struct mill_net *net);
int mill_tcp_connect(struct mill_stream_maker *maker, const uint8_t address[16], uint16_t port,
                     void *user, struct mill_stream **ret_stream);
/* The options that came with the peer's SYN. */
void mill_tcp_negotiated(struct mill_tcp *tcp, uint16_t mss, bool has_wscale, uint8_t wscale,
                         bool timestamps, bool sack_ok);
void mill_tcp_established(struct mill_net *net, struct mill_tcp *tcp);

/* -- half_open.c -- */
int mill_half_open_init(struct mill_net *net);
void mill_half_open_fini(struct mill_net *net);
/* A SYN for a listening port. */
void mill_half_open_syn(struct mill_net *net, const struct mill_segment *segment,
                        uint16_t listener);
void mill_half_open_segment(struct mill_net *net, struct mill_half_open *half,
                            struct mill_segment *segment);
void mill_half_open_timer(struct mill_net *net, struct mill_half_open *half);

/* -- time_wait.c -- */
int mill_time_wait_init(struct mill_net *net);
void mill_time_wait_fini(struct mill_net *net);
void mill_time_wait_enter(struct mill_net *net, const struct mill_tcp *tcp);
/* ret: true: the segment is a SYN that may open a new connection; the entry is gone. */
bool mill_time_wait_segment(struct mill_net *net, uint32_t index,
                            const struct mill_segment *segment);
void mill_time_wait_timer(struct mill_net *net);

/* -- kept_flows.c -- */
void mill_kept_init(struct mill_net *net);
/* A connection is open, and over. */
void mill_kept_begin(struct mill_net *net, const struct mill_tcp *tcp);
void mill_kept_end(struct mill_net *net, const struct mill_tcp *tcp);
/* Asks some of the peers of lives before. */
void mill_kept_timer(struct mill_net *net);

/* -- tcp_ack.c -- */
/* Takes acknowledgement, window and SACK of an acceptable segment. payload_bytes: what it carried.
 */
void mill_tcp_ack(struct mill_net *net, struct mill_tcp *tcp, const struct mill_segment *segment,
                  uint32_t payload_bytes);
void mill_tcp_enter_loss(struct mill_net *net, struct mill_tcp *tcp);
uint32_t mill_tcp_pipe(const struct mill_tcp *tcp);
uint32_t mill_tcp_lost_end(const struct mill_tcp *tcp);

/* -- tcp_receive.c -- */
/* Takes payload that starts at seq and was cut to the window. */
void mill_tcp_receive(struct mill_net *net, struct mill_tcp *tcp, uint32_t seq,
                      struct mill_chain *payload);
/* Moves the right edge if that is worth it; ret: the field to send. */
uint16_t mill_tcp_window(struct mill_net *net, struct mill_tcp *tcp);
/* Whether a window update should be sent now. */
bool mill_tcp_window_update_due(struct mill_net *net, const struct mill_tcp *tcp);
/* SACK blocks to report, most recent first. */
uint8_t mill_tcp_sack_blocks(struct mill_tcp *tcp, struct mill_sack_range *blocks, uint8_t max);
/* Drops all that was received. */
void mill_tcp_receive_clear(struct mill_net *net, struct mill_tcp *tcp);
/* Brings the core-wide budget in line with what the connection holds. */
void mill_tcp_charge(struct mill_net *net, struct mill_tcp *tcp);
int mill_compact_init(struct mill_net *net);
void mill_compact_fini(struct mill_net *net);

/* -- tcp_output.c -- */
/* Sends what may be sent, within the burst. ret: true: there is more for the next turn. */
bool mill_tcp_output(struct mill_net *net, struct mill_tcp *tcp);
/* One acknowledgement now. */
void mill_tcp_send_ack(struct mill_net *net, struct mill_tcp *tcp);
void mill_tcp_send_rst(struct mill_net *net, struct mill_tcp *tcp);
/* Zero bytes at snd_una - 1: the peer must answer. */
void mill_tcp_send_probe(struct mill_net *net, struct mill_tcp *tcp);
uint32_t mill_tcp_flight(const struct mill_tcp *tcp);
/* Sequence number after everything queued, FIN included. */
uint32_t mill_tcp_queue_end(const struct mill_tcp *tcp);

/* -- tcp_build.c -- */
struct mill_tcp_fields {
    struct mill_flow_key key;
    uint32_t seq;
    uint32_t ack;
    uint16_t window;
    uint8_t flags;
    struct mill_tcp_options options;
};
/* A segment without payload to a known address, outside of any connection. */
void mill_tcp_send_bare(struct mill_net *net, const uint8_t mac[6],
                        const struct mill_tcp_fields *fields);
/* The reset that answers a segment nobody expects; rate limited. */
void mill_tcp_refuse(struct mill_net *net, const struct mill_segment *segment);
/* Bytes [seq, seq + size_bytes) of the queue, a FIN included when it lies there.
 * ret: sequence space sent (less than asked when the frame was full), -ENOBUFS no frame,
 * -EAGAIN the neighbour is not known yet. */
int mill_tcp_send_data(struct mill_net *net, struct mill_tcp *tcp, uint32_t seq,
                       uint32_t size_bytes);
/* A segment without payload of a connection. ret: 0, or as above. */
int mill_tcp_send_empty(struct mill_net *net, struct mill_tcp *tcp, uint32_t seq, uint8_t flags);

/* -- tcp_timer.c -- */
void mill_tcp_arm_rto(struct mill_net *net, struct mill_tcp *tcp, bool restart);
void mill_tcp_stop_rto(struct mill_tcp *tcp);
void mill_tcp_arm_ack(struct mill_net *net, struct mill_tcp *tcp);
void mill_tcp_retransmit_timer(struct mill_net *net, struct mill_tcp *tcp);
void mill_tcp_ack_timer(struct mill_net *net, struct mill_tcp *tcp);
/* The peer gave a sign of life. */
void mill_tcp_touch_idle(struct mill_net *net, struct mill_tcp *tcp);
/* FIN-WAIT-2 begins: the peer's FIN is not waited for without end. */
void mill_tcp_arm_fin_wait(struct mill_net *net, struct mill_tcp *tcp);

/* -- tcp_conn.c: life of a connection block, lists, events -- */
int mill_tcp_conn_init(struct mill_net *net);
void mill_tcp_conn_fini(struct mill_net *net);
/* ret: NULL when every block is in use (counted). */
struct mill_tcp *mill_tcp_new(struct mill_net *net, const struct mill_flow_key *key, uint32_t iss,
                              uint32_t irs);
void mill_tcp_free(struct mill_net *net, struct mill_tcp *tcp);
/* It is over: timers stop, loans end, the closed event follows. */
void mill_tcp_finish(struct mill_net *net, struct mill_tcp *tcp, enum mill_stream_end end);
/* Puts it on the list of connections to be served. */
void mill_tcp_activate(struct mill_net *net, struct mill_tcp *tcp);
void mill_tcp_event(struct mill_net *net, struct mill_tcp *tcp, uint8_t events);
void mill_tcp_wait_neighbour(struct mill_net *net, struct mill_tcp *tcp);
void mill_tcp_neighbour_changed(struct mill_net *net);
/* Tells events and transmits for all active connections. ret: connections served. */
uint32_t mill_tcp_serve(struct mill_net *net);

/* -- tcp_stream.c -- */
extern const struct mill_stream_ops mill_tcp_stream_ops;

#endif
