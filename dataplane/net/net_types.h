/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of one TCP/IP instance, shared by the files of this folder and by their tests; nobody
 * else includes it. Everything belongs to one core.
 *
 *   link -> ethernet -> arp
 *                    -> ipv4 -> icmp
 *                            -> tcp_input -> connection | half-open | TIME-WAIT | listener | RST
 *   active list -> events to the core -> tcp_output -> frames pending -> link
 */
#ifndef MILL_DATAPLANE_NET_TYPES_H
#define MILL_DATAPLANE_NET_TYPES_H

#include "base/clock.h"
#include "dataplane/net/conn_table.h"
#include "dataplane/net/net.h"
#include "dataplane/net/send_queue.h"
#include "dataplane/net/tcp_cc.h"
#include "dataplane/net/tcp_options.h"
#include "dataplane/net/tcp_rtt.h"
#include "dataplane/net/tcp_sack.h"
#include "dataplane/net/timer_wheel.h"

enum {
    MILL_ETHERNET_BYTES = 14,
    MILL_IPV4_BYTES = 20,
    MILL_TCP_BYTES = 20,
    MILL_HEADERS_BYTES = MILL_ETHERNET_BYTES + MILL_IPV4_BYTES + MILL_TCP_BYTES,
    /* The longest headers of a received packet: both option fields full. */
    MILL_VIEW_BYTES = MILL_ETHERNET_BYTES + 60 + 60,

    MILL_ETHERTYPE_IPV4 = 0x0800,
    MILL_ETHERTYPE_ARP = 0x0806,
    MILL_IP_ICMP = 1,
    MILL_IP_TCP = 6,

    MILL_TCP_FIN = 0x01,
    MILL_TCP_SYN = 0x02,
    MILL_TCP_RST = 0x04,
    MILL_TCP_PSH = 0x08,
    MILL_TCP_ACK = 0x10,

    MILL_NET_RX_BURST = 32,
    MILL_NET_RX_FRAMES_MAX = 128,     /* received per turn */
    MILL_NET_TX_PENDING_MAX = 256,    /* frames that wait for the link */
    MILL_NET_TIMERS_MAX = 256,        /* fired per turn */
    MILL_NET_CONNECTIONS_TURN = 1024, /* served per turn; the rest in the next */
    MILL_NET_LISTENERS_MAX = 64,
    MILL_NET_SEND_UNITS = 16,     /* transmissions whose time is remembered per connection */
    MILL_NET_COMPACT_COUNT = 256, /* buffers for segments too small for their memory */
    MILL_NET_COMPACT_BYTES = 4096,
    MILL_NET_WINDOW_START = 65536, /* receive window before it grows */
    MILL_NET_SYN_RETRIES = 3,      /* of a SYN-ACK */
    MILL_NET_CONNECT_RETRIES = 5,  /* of our own SYN */
    MILL_NET_KEEPALIVE_PROBES = 6,
    MILL_NET_WINDOW_PROBES = 3,        /* unanswered ones that may end a connection */
    MILL_NET_SWS_OVERRIDE_US = 200000, /* RFC 1122, 4.2.3.4 */
    MILL_NET_PMTU_MIN = 552,
};

enum mill_timer_kind {
    MILL_TIMER_RETRANSMIT, /* retransmission, window probe or SYN */
    MILL_TIMER_ACK,        /* delayed acknowledgement, keep-alive, FIN-WAIT-2 */
    MILL_TIMER_HALF_OPEN,
    MILL_TIMER_NEIGHBOUR,
    MILL_TIMER_TIME_WAIT, /* one for the whole table */
    MILL_TIMER_KEPT,      /* one for the peers of lives before */
};

enum mill_tcp_state {
    MILL_TCP_CLOSED, /* over; waits for its closed event */
    MILL_TCP_SYN_SENT,
    MILL_TCP_SYN_RCVD, /* simultaneous open only; passive opens live in the half-open table */
    MILL_TCP_ESTABLISHED,
    MILL_TCP_FIN_WAIT_1,
    MILL_TCP_FIN_WAIT_2,
    MILL_TCP_CLOSE_WAIT,
    MILL_TCP_CLOSING,
    MILL_TCP_LAST_ACK,
};

/* Events to be told in the next service of the connection. */
enum {
    MILL_EVENT_ACCEPTED = 1u << 0,
    MILL_EVENT_CONNECTED = 1u << 1,
    MILL_EVENT_RECEIVED = 1u << 2,
    MILL_EVENT_ROOM = 1u << 3,
    MILL_EVENT_ACKED = 1u << 4,
    MILL_EVENT_CLOSED = 1u << 5,
};

enum mill_tcp_recovery {
    MILL_RECOVERY_NONE,
    MILL_RECOVERY_FAST, /* RFC 6675 or 6582 */
    MILL_RECOVERY_LOSS, /* after a timeout */
};

enum mill_tcp_list {
    MILL_LIST_NONE,
    MILL_LIST_ACTIVE,    /* has an event to tell or something to send */
    MILL_LIST_NEXT,      /* had its share this turn */
    MILL_LIST_NEIGHBOUR, /* waits for an ARP answer */
};

/* Bytes sent in one turn, for the round-trip time. */
struct mill_send_unit {
    uint32_t seq_end;
    uint32_t time_us; /* low bits of the clock */
};

/* One connection. Hot lines first. */
struct mill_tcp {
    struct mill_stream stream; /* first: the public handle */

    /* Both directions. */
    struct mill_flow_key key;
    uint32_t index;
    uint8_t state;    /* enum mill_tcp_state */
    uint8_t list;     /* enum mill_tcp_list */
    uint8_t events;   /* MILL_EVENT_ */
    uint8_t recovery; /* enum mill_tcp_recovery */
    bool sack_ok;
    bool timestamps;
    bool paused;
    bool closing;      /* close was called: no more sends */
    bool deaf;         /* and nothing is delivered: what comes is acknowledged and dropped */
    bool ack_now;      /* an acknowledgement is due in this turn */
    bool fin_received; /* the peer's FIN was taken in order */
    bool want_room;    /* an -EAGAIN was given */
    bool cwnd_limited; /* the last transmission stopped at cwnd */
    bool sws_override; /* the timer allows a small segment */
    bool persisting;   /* the retransmission timer counts for window probes */
    bool active_open;
    bool syn_again;   /* our SYN or SYN-ACK was sent more than once */
    bool fin_known;   /* fin_seq holds the place of a FIN that came early */
    bool syn_pending; /* our SYN waits for a turn or a neighbour */
    bool refused;     /* by the core at accept: no event any more */
    uint8_t snd_wscale;
    uint8_t rcv_wscale;
    uint8_t syn_retries;
    uint8_t keepalive_probes;
    uint8_t window_probes; /* in a row without any answer */
    uint8_t end;           /* enum mill_stream_end, once CLOSED */
    int soft_error;
    int connect_error;
    struct mill_tcp *list_next;

    /* Send side. */
    uint32_t snd_una;
    uint32_t snd_nxt; /* highest sent, plus one */
    uint32_t snd_wnd;
    uint32_t snd_wnd_max;
    uint32_t snd_wl1;
    uint32_t snd_wl2;
    uint32_t iss;
    uint32_t push_seq; /* bytes below go out without waiting for more */
    uint32_t send_mss; /* payload per segment with a timestamp but without SACK blocks */
    uint32_t dup_acks;
    uint32_t high_rxt;   /* retransmitted up to here in this recovery */
    uint32_t recover;    /* snd_nxt when the recovery began */
    uint32_t loss_end;   /* after a timeout: all below counts as lost */
    uint32_t rescue_rxt; /* RFC 6675, rule 4 */
    bool rescue_done;
    bool retransmit_first; /* the first hole goes out whatever cwnd says */
    bool loss_repeated;    /* the timer fired again without progress */
    uint8_t units_head;
    uint8_t units_count;
    uint64_t acked_bytes;  /* not yet told by the acked event */
    uint64_t progress_ns;  /* last acknowledgement of new data, or first send after none */
    uint64_t last_send_ns; /* data */
    uint64_t rto_due_ns;   /* MILL_NEVER: not running */
    struct mill_cc cc;
    struct mill_rtt rtt;
    struct mill_send_queue queue;

    /* Receive side. */
    uint32_t rcv_nxt;
    uint32_t rcv_adv; /* right edge told to the peer; never moves back */
    uint32_t irs;
    uint32_t last_ack_sent;
    uint32_t ts_recent;
    uint32_t ts_offset;
    uint32_t fin_seq;
    uint32_t rx_limit;    /* receive window now, grows to the configured one */
    uint32_t rx_consumed; /* since the window was last looked at */
    uint32_t rx_mss;      /* largest payload seen */
    uint32_t rx_charged;  /* of the core-wide budget */
    uint64_t ts_recent_ns;
    uint64_t rx_epoch_ns;
    uint64_t ack_due_ns;  /* delayed acknowledgement, MILL_NEVER: none */
    uint64_t idle_due_ns; /* keep-alive or FIN-WAIT-2, MILL_NEVER: none */
    struct mill_buf *ooo; /* sorted, disjoint; a buffer's `hash` is its sequence number */
    uint32_t ooo_charge;
    uint32_t sack_recent[MILL_TCP_SACK_BLOCKS_MAX - 1]; /* a byte in each block reported lately */

    /* Neighbour. */
    uint32_t next_hop; /* 0: only the learnt address is there */
    bool hint_valid;   /* peer_mac was learnt from the peer's frames */
    uint8_t peer_mac[6];

    /* Cold. */
    uint64_t challenge_ns;
    struct mill_timer timer_retransmit;
    struct mill_timer timer_ack;
    struct mill_send_unit units[MILL_NET_SEND_UNITS];
    struct mill_scoreboard board;
};
static_assert(offsetof(struct mill_tcp, stream) == 0, "a stream is cast to its connection");

/* A passive open before its third segment (RFC 4987, 3.5: bounded, apart from connections). */
struct mill_half_open {
    struct mill_timer timer;
    struct mill_half_open *older; /* in order of arrival */
    struct mill_half_open *newer;
    uint64_t arrived_ns;
    uint32_t index;
    uint32_t irs;
    uint32_t iss;
    uint32_t window; /* of the SYN, unscaled */
    uint32_t ts_recent;
    uint32_t ts_offset;
    uint16_t mss;
    uint16_t listener;
    uint8_t mac[6];
    uint8_t wscale;
    uint8_t retries;
    bool has_wscale;
    bool timestamps;
    bool sack_ok;
};

/* What is left of a connection after both FINs: enough to acknowledge a FIN again and to judge a
 * new SYN (RFC 9293, 3.4.2; RFC 6191). */
struct mill_time_wait {
    uint64_t expires_ns;
    uint32_t older; /* indices, in order of expiry */
    uint32_t newer;
    uint32_t snd_nxt;
    uint32_t rcv_nxt;
    uint32_t ts_recent;
    uint32_t ts_offset;
    bool timestamps;
    bool used;
};
static_assert(sizeof(struct mill_time_wait) <= 40, "thousands of these");

enum mill_neighbour_state {
    MILL_NEIGHBOUR_FREE,
    MILL_NEIGHBOUR_ASKING, /* by broadcast; no address yet */
    MILL_NEIGHBOUR_KNOWN,
    MILL_NEIGHBOUR_CHECKING, /* by unicast; the address is still used */
    MILL_NEIGHBOUR_FAILED,   /* kept for a while so that nobody asks in a loop */
};

struct mill_neighbour {
    struct mill_timer timer;
    uint64_t confirmed_ns;
    uint64_t used_ns;
    uint32_t address;
    uint8_t mac[6];
    uint8_t state; /* enum mill_neighbour_state */
    uint8_t tries;
};

struct mill_listener {
    uint32_t address; /* 0: any */
    uint16_t port;
    uint16_t listener;
};

/* Tokens for answers that a stranger can provoke. */
struct mill_bucket {
    uint64_t refilled_ns;
    uint32_t tokens;
    uint32_t max;
    uint32_t per_second;
};

/* A received frame on its way up; views point into the first buffer or into scratch. */
struct mill_packet {
    struct mill_buf *buf; /* whole frame; NULL once taken */
    const uint8_t *view;  /* first view_bytes of the frame, contiguous */
    uint32_t view_bytes;
    uint32_t frame_bytes;
    uint32_t ip_at; /* offsets in the frame */
    uint32_t l4_at;
    uint32_t l4_bytes; /* by the IPv4 length: padding is not in it */
    uint32_t source;
    uint32_t target;
    uint8_t source_mac[6];
};

/* A TCP segment in host order. */
struct mill_segment {
    struct mill_flow_key key;
    uint32_t seq;
    uint32_t ack;
    uint32_t window; /* as sent, unscaled */
    uint8_t flags;
    uint8_t mac[6];
    struct mill_tcp_options options;
    struct mill_chain payload; /* emptied by whoever takes the bytes */
};

struct mill_net {
    struct mill_stream_maker maker; /* first: the public handle */
    struct mill_net_config config;
    const struct mill_link *link;
    struct mill_net_counters counters;
    uint64_t now_ns;
    uint16_t ip_id;
    bool announced;
    uint32_t port_next; /* for active opens */

    struct mill_frame *tx[MILL_NET_TX_PENDING_MAX];
    uint32_t tx_count;

    struct mill_tcp *active_head;
    struct mill_tcp *active_tail;
    struct mill_tcp *next_head;
    struct mill_tcp *next_tail;
    struct mill_tcp *waiting_head; /* for a neighbour */

    uint64_t rx_used_bytes; /* charge of everything received and not consumed */
    struct mill_wheel wheel;

    struct mill_flow_table flows;
    struct mill_tcp *connections;
    uint32_t *free_connections;
    uint32_t free_count;

    struct mill_flow_table half_open_flows;
    struct mill_half_open *half_open;
    uint32_t *free_half_open;
    uint32_t free_half_open_count;
    struct mill_half_open *half_open_oldest;
    struct mill_half_open *half_open_newest;

    struct mill_flow_table time_wait_flows;
    struct mill_time_wait *time_wait;
    uint32_t *free_time_wait;
    uint32_t free_time_wait_count;
    uint32_t time_wait_oldest;
    uint32_t time_wait_newest;
    struct mill_timer time_wait_timer;

    struct mill_kept_flow *kept_now; /* this life's connections, by index; NULL: not kept */
    struct mill_kept_flow *kept_old; /* of lives before */
    uint32_t kept_at;                /* next of them in this round */
    uint32_t kept_round;
    struct mill_timer kept_timer;

    struct mill_neighbour *neighbours;
    uint32_t *neighbour_slots; /* hash of the address to index + 1 */
    uint32_t neighbour_mask;
    uint64_t defended_ns;

    struct mill_listener listeners[MILL_NET_LISTENERS_MAX];
    uint32_t listeners_count;

    struct mill_bucket resets;
    struct mill_bucket icmp;
    struct mill_bucket challenges;

    struct mill_buf *compact_free;
    struct mill_buf *compact_bufs;
    uint8_t *compact_bytes;
    struct mill_send_entry *entries_memory;
    uint8_t *arena_memory;
};

static inline struct mill_net *mill_net_of(const struct mill_stream_maker *maker)
{
    return (struct mill_net *)(uintptr_t)maker;
}

static inline struct mill_tcp *mill_tcp_of(const struct mill_stream *stream)
{
    return (struct mill_tcp *)(uintptr_t)stream;
}

static inline struct mill_net *mill_tcp_net(const struct mill_tcp *tcp)
{
    return mill_net_of(tcp->stream.maker);
}

static inline uint32_t mill_net_now_us(const struct mill_net *net)
{
    return (uint32_t)(net->now_ns / MILL_NS_PER_US);
}

/* Timestamp clock: 1 ms, with an offset per connection (RFC 7323, 5.4 and 7.1). */
static inline uint32_t mill_net_timestamp(const struct mill_net *net, uint32_t offset)
{
    return (uint32_t)(net->now_ns / MILL_NS_PER_MS) + offset;
}

/* The tick at which a moment has surely passed. */
static inline uint64_t mill_net_tick(uint64_t due_ns)
{
    return due_ns / MILL_NS_PER_MS + (due_ns % MILL_NS_PER_MS != 0);
}

/* Takes one token. ret: false when there is none. */
bool mill_bucket_take(struct mill_bucket *bucket, uint64_t now_ns);

#endif
