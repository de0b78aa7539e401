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

#include "base/counter_lists.h"
#include "base/kept_flow.h"
#include "dataplane/net/link.h"
#include "dataplane/stream/stream.h"

struct mill_net_config {
    uint32_t address;        /* IPv4, host order */
    uint8_t prefix_bits;     /* of the address's network */
    uint32_t gateway;        /* 0: none */
    uint64_t secret[2];      /* key of initial sequence numbers, fresh at each start (RFC 6528) */
    uint64_t random_seed;    /* timestamps' offsets, IP ids, table seed */
    uint16_t own_port_first; /* source ports of connections that it opens, both ends included; */
    uint16_t own_port_last;  /* default 32768 to 60999 */
    /* Two times kept_max places in memory that outlives the process, zeroed when it was made: there
     * the connections are written down, and the peers of those that a killed process left are told
     * of its end. NULL: none. */
    struct mill_kept_flow *kept;
    uint32_t kept_max;
    bool silent; /* does not announce the address: another core's instance does */

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
    uint32_t burst_bytes_max; /* per connection and turn, default 64 KiB */
};

/* The list is MILL_NET_COUNTERS in base/counter_lists.h. */
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

/* Flows that one instance can know at once: connections, half open ones, and in TIME-WAIT. */
uint32_t mill_net_flows_max(const struct mill_net_config *config);

/* Takes all memory. loans, arena_base, events: as in struct mill_stream_maker.
 * ret: 0, -ENOMEM, -EINVAL with the field named in report. */
int mill_net_create(const struct mill_net_config *config, const struct mill_link *link,
                    struct mill_loans *loans, uint8_t *arena_base,
                    const struct mill_stream_events *events, void *context,
                    struct mill_net **ret_net, struct mill_report *report) MILL_WARN_UNUSED;

/* The maker inside; its step receives from the link, runs timers and transmits. */
struct mill_stream_maker *mill_net_maker(struct mill_net *net);
const struct mill_net_counters *mill_net_counters(const struct mill_net *net);

/* Where frames to an address go first: itself or the gateway; 0: nowhere. */
uint32_t mill_net_next_hop(const struct mill_net *net, uint32_t address);

/* Announces our address (gratuitous ARP); at start and when the link comes up. */
void mill_net_announce(struct mill_net *net, uint64_t now_ns);

#endif
