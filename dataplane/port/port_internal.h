/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: a port, its queues, and what every mbuf of ours carries in
 * its private area. Nobody outside the folder and its unit tests includes this.
 *
 *   header mbuf:  | rte_mbuf | buf | frame           | headroom | headers, inlined bytes |
 *   extent mbuf:  | rte_mbuf | buf | shinfo ref queue |            data lies in an extent
 *   receive mbuf: | rte_mbuf | buf |                   headroom | received bytes         |
 *
 * All three begin their private area with a struct mill_buf, because net_ring hands the sender's
 * mbufs to the receiver, which shows them as buffers.
 */
#ifndef MILL_DATAPLANE_PORT_INTERNAL_H
#define MILL_DATAPLANE_PORT_INTERNAL_H

#include <net/if.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "bpf/steer_load.h"
#include "dataplane/port/kept.h"
#include "dataplane/port/port.h"

enum {
    MILL_PORT_QUEUES_MAX = 64,
    /* One driver call's worth: AF_XDP in copy mode sends at most 32 per wake-up, and longer bursts
     * gain nothing measurable elsewhere. */
    MILL_PORT_BURST = 32,
    MILL_PORT_NEIGHBOURS_MAX = 64, /* next hops of connections that we open through one port */
    /* Calls without progress after which a driver that stops at a bad frame loses that frame. */
    MILL_PORT_STUCK_CALLS = 16,
    /* Calls of tx_done (before each sleep, half a millisecond or more apart) without a frame sent
     * after which the queue is idle, and then bursts of fillers: the longest ring, twice. */
    MILL_PORT_IDLE_CALLS = 8,
    MILL_PORT_FILL_BURSTS = 32,
    MILL_PORT_FILLER_TYPE = 0x88b5, /* IEEE 802 local experimental EtherType 1 */
    MILL_PORT_RX_BUFFERS = 4096,    /* per queue, unless configured */
    MILL_PORT_RX_ROOM = 2048,       /* bytes of one receive buffer, unless configured */
    MILL_PORT_TX_FRAMES = 2048,     /* header mbufs per queue */
    MILL_PORT_TX_PIECES = 4096,     /* extent mbufs per queue */
    MILL_PORT_CACHE = 128,          /* objects a registered thread keeps per pool */
    MILL_PORT_ETHERNET_BYTES = 14,
    /* A reference is split where a huge page may end: a device sees pages, not addresses. */
    MILL_PORT_PAGE_BYTES = 2 << 20,
    MILL_PORT_EXTBUF_MAX = UINT16_MAX, /* an mbuf's length has 16 bits */
    MILL_PORT_PATH_BYTES = 512,
    /* AF_XDP: a frame with its mbuf lies in one page of 4096 bytes, and the kernel keeps this much
     * of each buffer for itself (XDP_PACKET_HEADROOM). */
    MILL_PORT_XDP_HEADROOM = 256,
    /* Receive buffers that its driver holds: a full fill ring of 2048, and one for each frame that
     * was sent and is not done yet (transmit ring 1024, completions not taken back 1024). */
    MILL_PORT_XDP_HELD = 4096,
};

/* What a driver is known to do, beyond what it reports. */
struct mill_port_driver {
    const char *prefix;   /* of the device name */
    bool virtual_device;  /* on the vdev bus: IOVA is the address, no DMA map needed */
    bool stops_at_bad;    /* offers the same frame for ever */
    bool own_mac;         /* the driver's address belongs to the other end, or is none */
    bool no_tx_csum;      /* its sums are done in software, and wrongly for odd pieces */
    bool passes_pointers; /* the receiver frees our mbufs, maybe on another thread */
    bool never_chain;     /* reads only the first segment, whatever it reports */
    bool one_chunk;       /* receive pool must be one piece of memory */
    bool needs_tun;       /* /dev/net/tun */
    bool fd;              /* a descriptor per queue to sleep on */
    bool own_thread;      /* works on EAL's interrupt thread, next to cores (gate.h) */
    bool memory;          /* both ends are memory: frames cannot be damaged on the way */
    bool kernel_keeps;    /* address, MTU, ARP and other traffic of the interface (AF_XDP) */
    uint32_t rx_held;     /* receive buffers that are always the driver's */
    uint32_t rx_lost;     /* bytes of a receive buffer that no frame gets */
    bool queues_equal;    /* as many receive as transmit queues */
    bool one_queue;       /* unless configured: the other end may have no more */
};

enum {
    /* A frame's room in that page, less a cache line that a mempool may add between buffers, the
     * mempool's own header and the mbuf. */
    MILL_PORT_XDP_MTU_MAX = 4096 - 64 - 64 - (int)sizeof(struct rte_mbuf) -
                            (int)((sizeof(struct mill_buf) + 7) & ~7ul) - RTE_PKTMBUF_HEADROOM -
                            MILL_PORT_XDP_HEADROOM - MILL_PORT_ETHERNET_BYTES - RTE_ETHER_CRC_LEN,
};

struct mill_port_queue;

struct mill_port_ext {
    struct mill_buf buf;
    struct rte_mbuf_ext_shared_info shinfo; /* count 1 for ever: an mbuf has one of its own */
    struct mill_ref ref;                    /* the loan it holds */
    struct mill_port_queue *queue;          /* whose loans */
};

struct mill_port_header {
    struct mill_buf buf;
    struct mill_frame frame;
};

/* A loan ended on another thread than its owner's (net_ring only). */
struct mill_port_return {
    struct mill_ref ref;
    uint32_t reserved;
};
static_assert(sizeof(struct mill_port_return) == 16, "element of an rte_ring");

/* One queue pair; everything here belongs to the owning core while it runs, but the counters, which
 * others read. */
struct mill_port_queue {
    struct mill_link link; /* context is the queue itself */
    struct mill_port *port;
    uint16_t port_id;
    uint16_t queue_id;

    /* transmit */
    struct rte_mempool *header_pool;
    struct rte_mempool *ext_pool;
    struct mill_loans *loans;
    uint8_t *arena_base;
    uint64_t arena_bytes;
    uint64_t arena_iova;
    uint32_t frame_bytes_max; /* Ethernet header and MTU */
    uint32_t header_room;     /* bytes of a header mbuf behind the headroom */
    uint16_t segments_max;    /* mbufs of one frame, header included; 1: no chains */
    bool offload_ipv4;
    bool offload_tcp;
    bool prepare; /* the driver wants rte_eth_tx_prepare before a burst */
    bool stops_at_bad;
    bool gated;      /* gate.h */
    bool no_tcp_sum; /* tx.csum = off */
    uint16_t pending_count;
    uint16_t stuck_calls;
    uint16_t idle_calls;                       /* of tx_done since something was sent */
    uint64_t tx_seen;                          /* tx_packets at the last tx_done */
    struct rte_mbuf *pending[MILL_PORT_BURST]; /* built, in order, not yet taken by the driver */
    struct rte_ring *returns;                  /* loans ended elsewhere; NULL when never */
    struct mill_port_queue *host;              /* owner of the transmit queue; itself as a rule */
    struct rte_ring *handback;                 /* guest: frames on their way to the host */

    /* receive */
    struct rte_mempool *rx_pool; /* NULL: no receive queue */
    int xdp_fd;                  /* the driver's AF_XDP socket; 0: none or not found */

    /* Written by the owner, relaxed; read by anyone. */
    MILL_SPACED _Atomic uint64_t pinned; /* extent mbufs on their way or held by the driver */
    _Atomic uint64_t rx_packets;
    _Atomic uint64_t rx_bytes;
    _Atomic uint64_t tx_packets;
    _Atomic uint64_t tx_bytes;
    _Atomic uint64_t tx_errors;
    _Atomic uint64_t tx_stuck;
    _Atomic uint64_t tx_link_down;
    _Atomic uint64_t tx_fillers;
    _Atomic uint64_t bytes_linearised;
    _Atomic uint64_t frames_empty;

    MILL_SPACED _Atomic uint32_t inside; /* 1 while the owner is in the driver (gate.h) */
};

/* A neighbour that the kernel told of. Written by mill_port_neighbour, read by cores. */
struct mill_port_neighbour_entry {
    _Atomic uint32_t address; /* 0: free */
    _Atomic uint64_t mac;     /* in the low 48 bits, first byte highest */
};

/* An interface that the kernel keeps (AF_XDP). */
struct mill_port_xdp {
    char iface[IFNAMSIZ];
    int lock_fd; /* held for the life of the process; also a socket in the namespace for ioctls */
    struct mill_steer steer;
    struct mill_port_kept counts[MILL_STEER_REASON_COUNT];
    int before[MILL_PORT_QUEUES_MAX]; /* AF_XDP sockets that were there before this port's */
    uint32_t before_count;
    bool half_built;  /* a queue could not be set up: its driver would free it twice at close */
    int neighbour_fd; /* netlink, in the interface's namespace; 0: none */
    uint32_t neighbour_questions;
    struct mill_port_neighbour_entry neighbours[MILL_PORT_NEIGHBOURS_MAX];
};

/* memif_relay.c */
enum {
    MILL_MEMIF_RELAY_FDS = 3,
};
struct mill_memif_relay {
    bool open;
    bool greeted; /* the driver has sent its first message to this peer */
    int listener;
    int peer;   /* -1: none */
    int driver; /* our end of the private connection, -1: none */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* to unlink; empty: abstract */
    char private_name[48];                                  /* where the driver listens */
};

struct mill_port {
    struct mill_port_options options;
    const struct mill_port_driver *driver;
    char device_name[RTE_DEV_NAME_MAX_LEN]; /* as EAL knows it */
    uint16_t port_id;
    uint16_t queues_count; /* links */
    uint16_t rx_queues;    /* of the device, at most queues_count */
    uint16_t tx_queues;
    uint8_t rss_key[52];
    char rss[48];
    bool created;    /* remove it at close */
    bool dma_mapped; /* the arena, for a card */
    bool started;
    bool client;                   /* connects to a server, again and again */
    uint64_t connect_ns;           /* time of its newest attempt */
    struct mill_memif_relay relay; /* of a server */
    bool zero_copy;
    uint8_t mac[6];
    uint16_t mtu;
    struct mill_arena *arena;
    struct rte_device *device; /* of a card */
    uint64_t arena_iova;       /* where the device sees the arena */
    struct mill_port_pair *pair;
    uint64_t mbufs_total;
    _Atomic uint32_t gate;       /* MILL_GATE_...; read by owners before each burst */
    _Atomic uint64_t link_downs; /* memif: the interrupt thread (gate.h); cards: who asks */
    _Atomic bool link_was_up;    /* of a card, when last asked */
    atomic_flag stats_lock; /* slow path: one reader asks the driver, others take the last answer */
    struct mill_port_kept rx_missed;
    struct mill_port_kept rx_nombuf;
    struct mill_port_kept tx_refused;
    uint32_t ifindex; /* of the kernel's interface; 0: none */
    int interface_fd; /* a socket in its namespace, to ask about it; -1: none */
    int netns_fd;     /* the namespace; -1: this one */
    struct mill_port_xdp xdp;
    char remark[MILL_PORT_REMARK_BYTES];
    struct mill_port_queue queues[]; /* queues_count */
};

static inline uint64_t mill_port_relaxed(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void mill_port_count(_Atomic uint64_t *counter, uint64_t more)
{
    /* One writer: a plain add published with a relaxed store. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

/* device.c: the device behind a port.
 * Finds the driver's entry by the device string. ret: NULL for an unknown one. */
const struct mill_port_driver *mill_port_driver_find(const char *device);
/* How many queues configuration and the driver's nature allow. */
uint16_t mill_port_device_queues(const struct mill_port *port);
/* Creates the device in the namespace the thread is in. ret: 0 with port_id, device, device_name
 * set, or negative with the reason. */
int mill_port_device_create(struct mill_port *port, struct mill_report *report) MILL_WARN_UNUSED;
void mill_port_device_remove(struct mill_port *port);

/* Value of key=value among the device's arguments; false when absent or longer than fits. */
bool mill_port_argument(const char *device, const char *key, char *ret_value, size_t size_bytes);

/* memif.c: checks the arguments of a net_memif device, fills in what the driver would choose badly,
 * and removes a socket that a killed process left. ret: 0 with args complete and port->client set,
 * or negative with the reason. */
int mill_port_memif_prepare(struct mill_port *port, char *args, size_t size_bytes,
                            struct mill_report *report) MILL_WARN_UNUSED;
/* Notes what the operator should know; the first remark stays. */
void mill_port_remark(struct mill_port *port, const char *format, ...) MILL_PRINTF(2, 3);

/* af_xdp.c: an interface that the kernel keeps. All in the interface's namespace.
 * Before the driver: the interface fits, nobody else has it, no program is attached. */
int mill_port_xdp_prepare(struct mill_port *port, struct mill_report *report) MILL_WARN_UNUSED;
/* Completes the driver's arguments: program, queues, no busy polling by a core that sleeps. */
int mill_port_xdp_arguments(struct mill_port *port, char *args, size_t size_bytes,
                            struct mill_report *report) MILL_WARN_UNUSED;
/* Finds the socket of the queue that the driver has just set up. */
void mill_port_xdp_socket(struct mill_port *port, uint16_t queue);
/* Words for a queue that the driver could not set up. ret: -EAGAIN when it may be free in a moment:
 * the kernel gives it back a little after the process that had it ended; or another negative. */
int mill_port_xdp_explain(const struct mill_port *port, uint16_t queue, struct mill_report *report);
/* After the driver: finds and fills the program's maps. */
int mill_port_xdp_started(struct mill_port *port, struct mill_report *report) MILL_WARN_UNUSED;
/* Counters of sockets and program; holder of the statistics lock. */
void mill_port_xdp_ask(struct mill_port *port);
void mill_port_xdp_close(struct mill_port *port);

/* dma.c: maps the arena for a card and sets where the device sees it. ret: 0, or negative with the
 * reason: then nothing is mapped. */
int mill_port_dma_map(struct mill_port *port, struct rte_device *device,
                      struct mill_report *report) MILL_WARN_UNUSED;
/* After the device is stopped. */
void mill_port_dma_unmap(struct mill_port *port);

/* proof.c: the self-test. ret: 0 proven, or negative with the reason. */
int mill_port_proof(struct mill_port *port, struct mill_report *report) MILL_WARN_UNUSED;

/* memif_relay.c: the door of a server. A socket address as the driver forms it; ret: its length. */
socklen_t mill_memif_address(const char *path, bool abstract, struct sockaddr_un *ret_address);
/* ret: 0, -errno of socket, bind or listen. */
int mill_memif_relay_open(struct mill_memif_relay *relay, const char *path,
                          bool abstract) MILL_WARN_UNUSED;
void mill_memif_relay_close(struct mill_memif_relay *relay);
/* What to wait for, and what to do then. Gate's thread, under its lock. ret: count. */
uint32_t mill_memif_relay_fds(const struct mill_memif_relay *relay,
                              struct pollfd ret_fds[MILL_MEMIF_RELAY_FDS]);
void mill_memif_relay_step(struct mill_memif_relay *relay);

/* netns.c: enters the namespace. ret: descriptor of the one left (give it to leave), or negative
 * with the reason. */
int mill_port_netns_enter(const char *netns, struct mill_report *report) MILL_WARN_UNUSED;
void mill_port_netns_leave(int previous_fd);

/* pair.c: net_ring_pair. */
int mill_port_pair_open(struct mill_port *port, struct mill_report *report) MILL_WARN_UNUSED;
/* Ends this side, after its device is gone. While the other side is open it may hold our mbufs:
 * ret_keep says that the port must not be freed now. ret: the other side, closed before and kept
 * until now, to be freed too; or NULL. */
struct mill_port *mill_port_pair_close(struct mill_port *port, bool *ret_keep);

/* port.c: bytes of one receive buffer. */
uint32_t mill_port_rx_room(const struct mill_port *port);

/* pools.c: pools of one queue. ret: 0, -ENOMEM with the reason. */
int mill_port_pools_create(struct mill_port *port, struct mill_port_queue *queue,
                           struct mill_report *report) MILL_WARN_UNUSED;
/* Frees one pool unless somebody holds an mbuf of it. ret: false when it had to stay. */
bool mill_port_pool_free(struct rte_mempool *pool);

/* transmit.c and receive.c. */
extern const struct mill_link_ops mill_port_link_ops;
uint32_t mill_port_receive(void *link, struct mill_buf **ret_frames, uint32_t max);
struct mill_frame *mill_port_frame_get(void *link);
void mill_port_frame_put(void *link, struct mill_frame *frame);
uint32_t mill_port_send(void *link, struct mill_frame **frames, uint32_t count);
/* Offers what is pending to the driver once more. ret: frames still pending. */
uint16_t mill_port_flush(struct mill_port_queue *queue);
/* Sends one burst of frames to ourselves, so that a driver which frees at reuse gives back what it
 * has sent. ret: frames that the driver took. */
uint16_t mill_port_fill(struct mill_port_queue *queue);
/* Gives back loans whose mbufs another thread freed. Owner core. */
void mill_port_returns_take(struct mill_port_queue *queue);
/* Initialises the parts of an extent mbuf that never change. */
void mill_port_ext_init(struct rte_mempool *pool, void *queue, void *object, unsigned int index);

/* neighbour.c: an interface that the kernel keeps. */
int mill_port_neighbours_open(struct mill_port_xdp *xdp,
                              struct mill_report *report) MILL_WARN_UNUSED;
int mill_port_link_neighbour(void *link, uint32_t address, uint8_t ret_mac[6]);

/* handback.c: a queue without a transmit queue of the device. */
int mill_port_handback_make(struct mill_port_queue *queue,
                            struct mill_report *report) MILL_WARN_UNUSED;
/* Gives what is pending to the host and wakes it. ret: frames given. Guest's core. */
uint16_t mill_port_hand_back(struct mill_port_queue *queue);
/* Takes guests' frames and offers them to the driver. Host's core. */
void mill_port_guests_take(struct mill_port_queue *host);
void mill_port_handback_close(struct mill_port_queue *queue);

/* rss.c */
void mill_port_rss_conf(struct mill_port *port, const struct rte_eth_dev_info *info,
                        struct rte_eth_conf *conf);
/* After start: sets the table and notes what key and table read back as. */
void mill_port_rss_settle(struct mill_port *port);

/* eal.c: last lines that EAL or a driver logged since the mark was set, for error texts. */
void mill_eal_log_mark(void);
const char *mill_eal_log_since(void);

#endif
