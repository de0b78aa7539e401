/* SPDX-License-Identifier: Apache-2.0 */
/* Our own IPv4 and TCP over a link: a maker of streams. Packets in, packets out, time as an
 * argument; no EAL, no allocation after create, no globals. One instance per port queue and core.
 *
 * The send queue is a list of references into the log: a (re)transmission builds new headers and
 * reads the log again. Structure and rules: RFC 9293, 1122, 6298, 5681, 6582, 2018, 6675, 3042,
 * 7323, 6691, 6528, 5961, 6928; ARP RFC 826 and 5227; IPv4 RFC 791; ICMP RFC 792.
 */
#ifndef MILL_DATAPLANE_NET_H
#define MILL_DATAPLANE_NET_H

#include "dataplane/net/link.h"
#include "dataplane/stream/stream.h"

struct mill_net_config {
    uint32_t address;     /* IPv4, host order */
    uint8_t prefix_bits;  /* of the address's network */
    uint32_t gateway;     /* 0: none */
    uint64_t secret[2];   /* key of initial sequence numbers, fresh at each start (RFC 6528) */
    uint64_t random_seed; /* timestamps' offsets, IP ids, table seed */

    /* Limits; each has a counter for "full". */
    uint32_t connections_max;            /* default 16384 */
    uint32_t half_open_max;              /* default 1024 */
    uint32_t time_wait_max;              /* default 8192 */
    uint32_t neighbours_max;             /* default 1024 */
    uint32_t refs_per_connection;        /* send queue entries, power of two, default 128 */
    uint32_t arena_bytes_per_connection; /* send_bytes arena, power of two, default 8192 */
    uint32_t rx_window_max;              /* bytes, default 1 MiB */
    uint64_t rx_budget_bytes; /* charge of all received, unconsumed buffers: half of the pool */
    uint32_t ooo_bytes_max;   /* per connection, default 128 KiB of charge */
    uint32_t rto_min_ms;      /* default 200 */
    uint32_t delayed_ack_ms;  /* default 40 */
    uint32_t user_timeout_ms; /* un-acknowledged that long: dropped; default 30000 */
    uint32_t time_wait_ms;    /* default 30000 */
    uint32_t fin_wait_2_ms;   /* default 60000 */
    uint32_t keepalive_ms;    /* 0: off */
    uint32_t burst_bytes_max; /* per connection and turn (P54), default 64 KiB */
};

/* Every counter of the stack: X(name, help). The struct, status and metrics come from this list. */
#define MILL_NET_COUNTERS(X)                                                                       \
    X(rx_frames, "frames received")                                                                \
    X(rx_malformed, "frames with a wrong length, header or option")                                \
    X(rx_not_ours, "frames for another address, protocol or EtherType")                            \
    X(rx_fragments, "IPv4 fragments dropped")                                                      \
    X(rx_options, "IPv4 packets with source routing dropped")                                      \
    X(checksum_errors, "packets with a wrong IPv4 or TCP checksum")                                \
    X(tx_frames, "frames handed to the link")                                                      \
    X(tx_no_frame, "times no frame could be had from the link")                                    \
    X(tx_short, "times the link took fewer frames than offered")                                   \
    X(arp_requests_in, "ARP requests for our address")                                             \
    X(arp_conflicts, "ARP packets of others that claim our address")                               \
    X(arp_unresolved, "packets dropped because the neighbour did not answer")                      \
    X(icmp_echo, "ICMP echo requests answered")                                                    \
    X(icmp_limited, "ICMP or RST answers suppressed by the rate limit")                            \
    X(syn_received, "SYN segments for a listening port")                                           \
    X(syn_dropped, "SYN segments dropped because the half-open table or a limit was full")         \
    X(established, "connections established")                                                      \
    X(retransmits, "segments sent again")                                                          \
    X(rto_fired, "retransmission timeouts")                                                        \
    X(fast_retransmits, "recoveries begun by duplicate or selective acknowledgements")             \
    X(out_of_order, "segments received out of order")                                              \
    X(ooo_dropped, "out-of-order segments dropped at the cap")                                     \
    X(duplicates, "segments whose bytes had all been received")                                    \
    X(window_exceeded, "segments beyond the advertised window")                                    \
    X(budget_dropped, "segments dropped because the receive budget was used up")                   \
    X(resets_in, "valid RST received")                                                             \
    X(resets_out, "RST sent")                                                                      \
    X(challenge_acks, "challenge acknowledgements sent (RFC 5961)")                                \
    X(paws_dropped, "segments dropped by timestamp (RFC 7323)")                                    \
    X(zero_window_probes, "window probes sent")                                                    \
    X(timeouts, "connections dropped by the user timeout")                                         \
    X(misdirected, "packets for a connection of another core")

struct mill_net_counters {
#define MILL_NET_COUNTER_FIELD(name, help) uint64_t name;
    MILL_NET_COUNTERS(MILL_NET_COUNTER_FIELD)
#undef MILL_NET_COUNTER_FIELD
};

struct mill_net;

/* Fills zero limits with their defaults. */
void mill_net_config_defaults(struct mill_net_config *config);

/* Bytes and tables that such a configuration takes, for the table printed at start. */
uint64_t mill_net_memory_bytes(const struct mill_net_config *config);

/* Takes all memory. loans, arena_base, events: as in struct mill_stream_maker.
 * ret: 0, -ENOMEM, -EINVAL with the field named in report. */
int mill_net_create(const struct mill_net_config *config, const struct mill_link *link,
                    struct mill_loans *loans, uint8_t *arena_base,
                    const struct mill_stream_events *events, void *context,
                    struct mill_net **ret_net, struct mill_report *report) MILL_WARN_UNUSED;

/* The maker inside; its step receives from the link, runs timers and transmits. */
struct mill_stream_maker *mill_net_maker(struct mill_net *net);
const struct mill_net_counters *mill_net_counters(const struct mill_net *net);

/* Announces our address (gratuitous ARP); at start and when the link comes up. */
void mill_net_announce(struct mill_net *net, uint64_t now_ns);

#endif
