/* SPDX-License-Identifier: Apache-2.0 */
/* Every DPDK call of the project: EAL, pools, ports, queues, offloads. Others see a link and
 * frames.
 *
 * Threads: start-up calls on the main thread before cores run; a link's calls on the core that owns
 * its queue; counters from any thread.
 */
#ifndef MILL_DATAPLANE_PORT_H
#define MILL_DATAPLANE_PORT_H

#include "base/counter_lists.h"
#include "base/report.h"
#include "dataplane/net/link.h"
#include "hugepages/arena.h"

enum {
    MILL_PORT_NAME_BYTES = 32,
    MILL_PORT_DEVICE_BYTES = 256,
    MILL_PORT_REMARK_BYTES = 320,
};

struct mill_eal_options {
    const char *file_prefix; /* instance's own */
    bool hugepages;          /* false: --no-huge */
    uint32_t memory_mb;
    const char *extra_args; /* experts', may be NULL; split at blanks */
    const char *const *pci; /* addresses of the cards to take; EAL leaves all others alone */
    uint32_t pci_count;     /* 0: no PCI at all */
};

struct mill_port_options {
    char name[MILL_PORT_NAME_BYTES];     /* ours, e.g. "nic0" */
    char device[MILL_PORT_DEVICE_BYTES]; /* "net_tap0,iface=mill0", "net_null0", PCI, ... */
    uint8_t mac[6];                      /* all zero: the card's (TAP: node_id and name make one) */
    uint16_t mtu;
    uint16_t queues;     /* links wanted, one per core; the device may have fewer queues */
    uint16_t queues_max; /* of the device to be used; 0: as many as there are links */
    int32_t node_id;
    const char *netns;        /* namespace to open a virtual device in; NULL: this one */
    bool rx_csum_trusted;     /* rx.csum = trust */
    bool tx_csum_off;         /* tx.csum = off: TCP sums stay blank; memif and net_ring only */
    uint16_t inline_bytes;    /* 0: default 512 */
    uint32_t rx_buffers;      /* 0: default per queue */
    uint32_t rx_buffer_bytes; /* room of one receive buffer; 0: 2048. Longer frames are scattered */
    bool linearise;           /* copy references into one buffer, whatever the driver reports */
    /* AF_XDP, where the kernel keeps the interface: */
    uint32_t address;    /* ours, host order: must be one of the interface's; 0: not looked at */
    uint8_t prefix_bits; /* for the remedy's text */
    bool busy;           /* the core never sleeps: the driver may poll the interface itself */
    uint32_t syn_rate;   /* SYNs per second and source address; 0: no limit */
    uint32_t syn_burst;  /* that a silent source may send at once */
    uint16_t own_port_first; /* source ports of connections that we open, both ends included; the */
    uint16_t own_port_last;  /* kernel must not use them. 0: none are opened */
    struct mill_link_wake wake; /* called when one link's core has frames for another's queue; may
                                 * be empty when no core sleeps */

    /* For the start-up self-test of a card (with address); without them it copies. */
    uint32_t dma_peer;       /* IPv4 of a neighbour that answers ping; 0: none */
    uint32_t canaries_count; /* extents without content, one of each arena file */
    struct mill_ref canaries[MILL_ARENA_NODES_MAX]; /* whole; the caller's, also after */
};

/* The list is MILL_PORT_COUNTERS in base/counter_lists.h. */
struct mill_port_counters {
#define MILL_PORT_COUNTER_FIELD(name, help) uint64_t name;
    MILL_PORT_COUNTERS(MILL_PORT_COUNTER_FIELD)
#undef MILL_PORT_COUNTER_FIELD
};

struct mill_port_info {
    char driver[32];
    uint8_t mac[6];
    uint16_t mtu;
    bool link_up;
    bool gone;          /* the interface was deleted: frames neither come nor go any more */
    uint16_t mtu_now;   /* the interface's own, when it is known; else mtu */
    bool zero_copy;     /* references are sent in place */
    uint16_t rx_queues; /* of the device: link c receives when c is below */
    uint16_t tx_queues;
    char rss[48];           /* how flows are spread over receive queues, as read back */
    uint64_t rx_pool_bytes; /* one link's share of what receive buffers cost, in the unit of
                             * mill_buf.charge_bytes (bound of what net/ may hold) */
    char remark[MILL_PORT_REMARK_BYTES]; /* what the operator should know; empty: nothing */
};

struct mill_port;

/* Device "net_ring_pair:NAME:0" and "net_ring_pair:NAME:1" (optionally ":LENGTH" of the rings) are
 * two ports of this process that see each other's frames; each may run on a thread of its own. They
 * pass pointers: the receiver reads the sender's log in place, and must not write. Loans of frames
 * that the other side frees come back at the sender's next receive, send or tx_done. */

/* Device "net_memif0,role=server|client,socket=PATH": one end of a software card between two
 * processes. It opens without a peer, link down; the client tries ten times a second. Frames sent
 * while the link is down are dropped and counted. A peer that is killed is noticed, and comes back
 * under the same or another process; no core waits meanwhile. Peers share memory and are trusted:
 * one that writes wrong descriptors crashes the other, so the socket belongs to one user. */

/* Free hugepages of 2 MiB, 0 when the kernel does not say. */
uint32_t mill_eal_pages_free(void);

/* Whether a device is named by its PCI address (0000:01:00.0). */
bool mill_port_is_pci(const char *device);

/* Starts EAL once per process. ret: 0, or negative with the reason and remedy. */
int mill_eal_start(const struct mill_eal_options *options,
                   struct mill_report *report) MILL_WARN_UNUSED;
/* After the last port is closed. EAL cannot be started again in this process. */
void mill_eal_stop(void);

/* A poll thread that calls this before its first link call has its own cache of buffers; without it
 * everything works, a little slower. ret: 0, -EINVAL before EAL, -ENOMEM too many threads. */
int mill_port_thread_register(void) MILL_WARN_UNUSED;
void mill_port_thread_unregister(void);

/* Creates the device, configures queues and pools, starts it. loans[q] and arena belong to the core
 * that will own link q. A device with fewer queues than options.queues serves the first links with
 * its receive queues (the others receive nothing: net/distribute.h deals out), and links without a
 * transmit queue hand their frames to one that has. References are sent in place on virtual
 * devices; on a card too when its DMA map passed the self-test here, else they are copied and the
 * remark says why. The self-test takes up to 10 s on a card whose neighbour is silent, and counts
 * loans of loans[0], all given back by the end unless the device is stuck. ret: 0, or negative with
 * device, reason and remedy. */
int mill_port_open(const struct mill_port_options *options, struct mill_arena *arena,
                   struct mill_loans *const *loans, struct mill_port **ret_port,
                   struct mill_report *report) MILL_WARN_UNUSED;
void mill_port_close(struct mill_port *port);

/* Packets to this address and port (host order; IPPROTO_TCP or IPPROTO_UDP) are for this port.
 * Where the port sees every frame there is nothing to do; on AF_XDP all others stay with the
 * kernel. Main thread. ret: 0, negative with the reason. */
int mill_port_listen(struct mill_port *port, uint32_t address, uint16_t number, uint8_t protocol,
                     struct mill_report *report) MILL_WARN_UNUSED;

/* Makes the next hop of a connection that is to be opened known to the cores (host order). Where
 * net asks by itself there is nothing to do; on AF_XDP the kernel is asked, and its answer stays
 * until it is asked again. Waits up to timeout_ns: never on a core's turn; one thread at a time.
 * ret: 0, -EHOSTUNREACH no answer in time, -ENOSPC too many, -errno. */
int mill_port_neighbour(struct mill_port *port, uint32_t address, uint64_t timeout_ns,
                        struct mill_report *report) MILL_WARN_UNUSED;

/* The link of one core. */
const struct mill_link *mill_port_link(struct mill_port *port, uint16_t queue);

/* Descriptors to sleep on for one queue, readable while frames wait; count 0: none (sleep bounded).
 */
uint32_t mill_port_fds(struct mill_port *port, uint16_t queue, int *ret_fds, uint32_t max);

/* Offers pending frames once more and frees what the device has sent (before a core sleeps). Owner
 * core. */
void mill_port_tx_done(struct mill_port *port, uint16_t queue);

/* Slow path, any thread: asks the driver, which may enter the kernel. Values never fall, also when
 * the driver's do. */
void mill_port_counters(struct mill_port *port, struct mill_port_counters *ret_counters);
void mill_port_info(struct mill_port *port, struct mill_port_info *ret_info);

#endif
