/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a port, and what can be asked about it. Start-up and slow path; the hot path
 * is in transmit.c and receive.c. Never called between a core's receive and send. */
#include "dataplane/port/port.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "base/clock.h"
#include "dataplane/port/gate.h"
#include "dataplane/port/port_internal.h"

enum {
    RX_DESCRIPTORS = 1024,
    TX_DESCRIPTORS = 512,
    SIGNALS_MAX = 65,
    DRAIN_BURSTS = 64,
    SHORT_TX_DESCRIPTORS = 256,
    FILL_BURSTS = 64,
    FILL_WAIT_US = 100,
    INLINE_BYTES = 512, /* below it a copy is cheaper: tests/perf/port_pieces.c */
};

#define RX_SUMS (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM)

/* --- real-time signals --------------------------------------------------------------------------
 *
 * net_tap looks for a real-time signal whose action is the default, has the kernel send it for
 * every frame, and reads only after its handler ran: frames are lost to view when every thread
 * blocks the signal, each costs a signal, and when the queue of signals is full (a process stopped
 * for a while) the kernel sends SIGIO, which kills. Without a free signal the driver reads at every
 * call. So all are taken while it looks.
 */
struct taken_signals {
    bool taken[SIGNALS_MAX]; /* its action was the default */
};

static void signals_take(struct taken_signals *signals)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    memset(signals->taken, 0, sizeof(signals->taken));
#ifdef MILL_MUTANT_PORT_SIGNALS
    return;
#endif
    for (int i = SIGRTMIN; i <= SIGRTMAX && i < SIGNALS_MAX; i++) {
        signals->taken[i] = sigaction(i, NULL, &before) == 0 && before.sa_handler == SIG_DFL &&
                            sigaction(i, &ignore, NULL) == 0;
    }
}

static void signals_give(const struct taken_signals *signals)
{
    const struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int i = SIGRTMIN; i <= SIGRTMAX && i < SIGNALS_MAX; i++) {
        if (signals->taken[i]) {
            (void)sigaction(i, &standard, NULL);
        }
    }
}

/* --- configuration ------------------------------------------------------------------------------
 */

/* Bytes that a frame of the port's MTU can have on the wire. */
static uint32_t wire_bytes(const struct mill_port *port)
{
    return (uint32_t)port->mtu + MILL_PORT_ETHERNET_BYTES + RTE_ETHER_CRC_LEN;
}

uint32_t mill_port_rx_room(const struct mill_port *port)
{
    if (port->options.rx_buffer_bytes > 0) {
        return port->options.rx_buffer_bytes;
    }
    /* A driver that cannot scatter and loses a part of each buffer: what the MTU needs. */
    uint32_t needed = port->driver->rx_lost > 0 ? wire_bytes(port) + port->driver->rx_lost : 0;
    return MILL_MAX((uint32_t)MILL_PORT_RX_ROOM, needed);
}

static int check_limits(const struct mill_port *port, const struct rte_eth_dev_info *info,
                        struct mill_report *report)
{
    uint32_t longest = info->max_rx_pktlen - MILL_PORT_ETHERNET_BYTES - RTE_ETHER_CRC_LEN;
    uint32_t mtu_max = MILL_MIN((uint32_t)info->max_mtu, longest);
    if (port->mtu > mtu_max || port->mtu < 68) {
        return mill_fail(report, -EINVAL, "mtu %u: %s carries 68 to %u; set dpdk.port.%s.mtu",
                         port->mtu, port->device_name, mtu_max, port->options.name);
    }
    if (mill_port_rx_room(port) - port->driver->rx_lost < wire_bytes(port) &&
        (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER) == 0) {
        return mill_fail(report, -EINVAL,
                         "mtu %u does not fit %u byte buffers and %s cannot "
                         "scatter; set dpdk.port.%s.mtu",
                         port->mtu, mill_port_rx_room(port), port->device_name, port->options.name);
    }
    return 0;
}

/* As many as there are links, if the device has them. */
static void choose_queues(struct mill_port *port, const struct rte_eth_dev_info *info)
{
    uint32_t most = MILL_MIN((uint32_t)port->queues_count, (uint32_t)mill_port_device_queues(port));
    uint32_t rx = MILL_MIN(most, MILL_MAX((uint32_t)info->max_rx_queues, 1u));
    uint32_t tx = MILL_MIN(most, MILL_MAX((uint32_t)info->max_tx_queues, 1u));
    if (port->driver->queues_equal) {
        rx = MILL_MIN(rx, tx);
        tx = rx;
    }
    port->rx_queues = (uint16_t)rx;
    port->tx_queues = (uint16_t)tx;
}

/* By pointer: the struct is several KiB. */
static void make_conf(struct mill_port *port, const struct rte_eth_dev_info *info,
                      struct rte_eth_conf *ret_conf)
{
    struct rte_eth_conf *conf = ret_conf;
    memset(conf, 0, sizeof(*conf));
    conf->rxmode.mtu = port->mtu;
    uint64_t tx_sums = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
    if ((info->rx_offload_capa & RX_SUMS) == RX_SUMS) {
        conf->rxmode.offloads |= RX_SUMS;
    }
    if (wire_bytes(port) > mill_port_rx_room(port)) {
        conf->rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
    }
    /* Never MBUF_FAST_FREE: it promises mbufs of one pool without anything attached. */
    conf->txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    if (!port->driver->no_tx_csum) {
        conf->txmode.offloads |= info->tx_offload_capa & tx_sums;
    }
    mill_port_rss_conf(port, info, conf);
    conf->intr_conf.rxq = port->driver->fd && !port->driver->kernel_keeps ? 1 : 0;
}

static void queue_caps(struct mill_port *port, struct mill_port_queue *queue,
                       const struct rte_eth_dev_info *info, const struct rte_eth_conf *conf)
{
    struct mill_link_caps *caps = &queue->link.caps;
    uint32_t limit = info->tx_desc_lim.nb_mtu_seg_max;
    uint32_t pieces = MILL_FRAME_PIECES_MAX;
    bool chain = (conf->txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0 &&
                 !port->driver->never_chain && !port->options.linearise && port->zero_copy;
    queue->segments_max = 1;
    if (chain) {
        /* One mbuf is for the headers, one for a page border inside a reference. */
        limit = limit == 0 ? UINT16_MAX : limit;
        queue->segments_max = (uint16_t)MILL_MIN(limit, 2u * MILL_FRAME_PIECES_MAX + 1u);
        limit = queue->segments_max > 3 ? queue->segments_max - 2u : 1u;
        pieces = MILL_MIN(pieces, limit);
    }
    queue->offload_ipv4 = (conf->txmode.offloads & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0;
    queue->offload_tcp = (conf->txmode.offloads & RTE_ETH_TX_OFFLOAD_TCP_CKSUM) != 0;
    queue->prepare = queue->offload_ipv4 || queue->offload_tcp;
    queue->stops_at_bad = port->driver->stops_at_bad;
    queue->no_tcp_sum = port->options.tx_csum_off;
    memcpy(caps->mac, port->mac, sizeof(caps->mac));
    caps->mtu = port->mtu;
    caps->pieces_max = (uint16_t)pieces;
    caps->inline_bytes =
        port->options.inline_bytes > 0 ? port->options.inline_bytes : (uint16_t)INLINE_BYTES;
    /* Segmentation waits for a driver that it can be proven with. */
    caps->tso_bytes_max = 0;
    caps->rx_csum_verified = (conf->rxmode.offloads & RX_SUMS) == RX_SUMS;
    caps->rx_csum_trusted = port->options.rx_csum_trusted;
    caps->kernel_arp = port->driver->kernel_keeps;
}

/* These give back what was sent only when its place in the ring is used again: a short ring holds
 * less, and mill_port_fill goes round it. vmxnet3 refuses rings below 512. */
static bool frees_at_reuse(const struct rte_eth_dev_info *info)
{
    return strcmp(info->driver_name, "net_e1000_em") == 0 ||
           strcmp(info->driver_name, "net_e1000_igb") == 0;
}

static int setup_queue(struct mill_port *port, uint16_t index, const struct rte_eth_dev_info *info,
                       const struct rte_eth_conf *conf, struct mill_report *report)
{
    struct mill_port_queue *queue = &port->queues[index];
    struct rte_eth_rxconf rx_conf = info->default_rxconf;
    struct rte_eth_txconf tx_conf = info->default_txconf;
    uint16_t rx_count = RX_DESCRIPTORS;
    uint16_t tx_count = TX_DESCRIPTORS;
    char name[RTE_RING_NAMESIZE];
    queue->port_id = port->port_id;
    queue_caps(port, queue, info, conf);
    int code = mill_port_pools_create(port, queue, report);
    if (code < 0) {
        return code;
    }
    code = mill_port_handback_make(queue, report);
    if (code < 0) {
        return code;
    }
    if (port->driver->passes_pointers || queue->handback != NULL) {
        snprintf(name, sizeof(name), "mb%p", (void *)queue);
        queue->returns =
            rte_ring_create_elem(name, sizeof(struct mill_port_return), 2 * MILL_PORT_TX_PIECES,
                                 (int)SOCKET_ID_ANY, RING_F_SC_DEQ);
        if (queue->returns == NULL) {
            return mill_fail(report, -ENOMEM, "no memory for a ring; raise dpdk.memory.mb");
        }
    }
    if (frees_at_reuse(info)) {
        tx_count = SHORT_TX_DESCRIPTORS;
    }
    (void)rte_eth_dev_adjust_nb_rx_tx_desc(port->port_id, &rx_count, &tx_count);
    if (port->driver->needs_tun) {
        /* net_tap passes one iovec per descriptor to each read: as many as the longest frame
         * takes, not a ring's worth. */
        rx_count = (uint16_t)(2 + wire_bytes(port) / mill_port_rx_room(port));
    }
    rx_conf.offloads = conf->rxmode.offloads;
    tx_conf.offloads = conf->txmode.offloads;
    code = 0;
    if (queue->rx_pool != NULL) {
        code = rte_eth_rx_queue_setup(port->port_id, index, rx_count, (unsigned int)SOCKET_ID_ANY,
                                      &rx_conf, queue->rx_pool);
    }
    if (code == 0 && queue->handback == NULL) {
        code = rte_eth_tx_queue_setup(port->port_id, index, tx_count, (unsigned int)SOCKET_ID_ANY,
                                      &tx_conf);
    }
    if (code == 0 && port->driver->kernel_keeps) {
        mill_port_xdp_socket(port, index);
    }
    if (code < 0 && port->driver->kernel_keeps) {
        port->xdp.half_built = true;
        return mill_port_xdp_explain(port, index, report);
    }
    return code == 0 ? 0
                     : mill_fail(report, code < -1 ? code : -EIO, "queue %u of %s: %s", index,
                                 port->device_name, mill_eal_log_since());
}

/* The address others see. On a card it goes into the filter, or the filter goes. */
static void set_mac(const struct mill_port *port)
{
    struct rte_ether_addr address;
    if (port->driver->own_mac || port->driver->kernel_keeps) {
        return; /* nothing filters there, and on TAP the driver's address is the other end's */
    }
    memcpy(address.addr_bytes, port->mac, sizeof(port->mac));
    if (rte_eth_dev_default_mac_addr_set(port->port_id, &address) != 0) {
        (void)rte_eth_promiscuous_enable(port->port_id);
    }
}

/* Why references are copied on this port. */
static void copy_because(struct mill_port *port, const struct mill_report *report)
{
    port->zero_copy = false;
    mill_port_remark(port, "references are copied, not sent in place: %.250s", report->text);
}

/* Whether references may be sent in place. A virtual device reads addresses as they are: there is
 * nothing to register or to map. On a card a missing or wrong DMA map sends wrong bytes without any
 * error, so there they are copied unless the map was accepted here and passes the self-test. */
static void prepare_in_place(struct mill_port *port, const struct rte_eth_dev_info *info)
{
    struct mill_report why = {0};
    port->zero_copy = true;
    if (!port->driver->virtual_device && !port->options.linearise) {
        if (mill_port_dma_map(port, info->device, &why) < 0) {
            copy_because(port, &why);
        }
    }
    for (uint16_t i = 0; i < port->queues_count; i++) {
        port->queues[i].arena_iova = port->arena_iova;
    }
}

/* The device gives back what it was sent, so that the canaries can be used for something else. */
static void end_proof(struct mill_port *port)
{
    struct mill_port_queue *queue = &port->queues[0];
    for (int i = 0; i < FILL_BURSTS && mill_port_relaxed(&queue->pinned) > 0; i++) {
        (void)mill_port_fill(queue);
        (void)rte_eth_tx_done_cleanup(port->port_id, 0, 0);
        rte_delay_us_sleep(FILL_WAIT_US);
    }
}

static void prove_in_place(struct mill_port *port, const struct rte_eth_dev_info *info,
                           const struct rte_eth_conf *conf)
{
    struct mill_report why = {0};
    if (port->driver->virtual_device || !port->zero_copy || port->options.linearise) {
        return;
    }
    if (mill_port_proof(port, &why) < 0) {
        copy_because(port, &why);
        for (uint16_t i = 0; i < port->queues_count; i++) {
            queue_caps(port, &port->queues[i], info, conf);
        }
    }
    end_proof(port);
    if (!port->zero_copy) {
        mill_port_dma_unmap(port);
    }
}

static int configure(struct mill_port *port, struct mill_report *report)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf;
    int code = rte_eth_dev_info_get(port->port_id, &info);
    if (code == 0) {
        code = check_limits(port, &info, report);
    }
    if (code < 0) {
        return code;
    }
    choose_queues(port, &info);
    make_conf(port, &info, &conf);
    mill_eal_log_mark();
    code = rte_eth_dev_configure(port->port_id, port->rx_queues, port->tx_queues, &conf);
    if (code < 0) {
        return mill_fail(report, code, "device %s refuses its configuration: %s", port->device_name,
                         mill_eal_log_since());
    }
    prepare_in_place(port, &info);
    for (uint16_t i = 0; i < port->queues_count; i++) {
        code = setup_queue(port, i, &info, &conf, report);
        if (code < 0) {
            return code;
        }
    }
    code = port->driver->kernel_keeps ? 0 : rte_eth_dev_set_mtu(port->port_id, port->mtu);
    if (code < 0 && code != -ENOTSUP) {
        return mill_fail(report, code, "mtu %u of %s: %s", port->mtu, port->device_name,
                         strerror(-code));
    }
    port->connect_ns = mill_now_read().mono_ns;
    code = rte_eth_dev_start(port->port_id);
    if (code < 0 && port->client) {
        mill_port_rss_settle(port);
        return 0; /* nobody serves the socket yet: the gate's thread connects when somebody does */
    }
    if (code < 0) {
        return mill_fail(report, code, "device %s does not start: %s", port->device_name,
                         mill_eal_log_since());
    }
    port->started = true;
    port->ifindex = port->ifindex > 0 ? port->ifindex : info.if_index;
    mill_port_rss_settle(port);
    set_mac(port);
    prove_in_place(port, &info, &conf);
    return port->driver->kernel_keeps ? mill_port_xdp_started(port, report) : 0;
}

/* --- opening and closing ------------------------------------------------------------------------
 */

/* Creates and configures the device; it stays for mill_port_close after a failure. */
static int make_device(struct mill_port *port, struct mill_report *report)
{
    int code = mill_port_device_create(port, report);
    if (code == 0 && port->driver->own_thread && mill_gate_add(port) < 0) {
        code = mill_fail(report, -ENFILE, "too many ports of this kind in one process");
    }
    return code < 0 ? code : configure(port, report);
}

static int open_device(struct mill_port *port, struct mill_report *report)
{
    struct taken_signals signals;
    int previous = -1;
    int code = port->driver->own_thread ? mill_gate_install(report) : 0;
    if (code < 0) {
        return code;
    }
    /* A memif socket lies in the file system: no namespace of networks has to do with it. */
    if (port->options.netns != NULL && port->driver->virtual_device && !port->driver->own_thread) {
        previous = mill_port_netns_enter(port->options.netns, report);
        if (previous < 0) {
            return previous;
        }
        port->netns_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        if (port->netns_fd < 0) {
            /* Later it could not be closed where it was made. */
            code = mill_fail(report, -errno, "/proc/thread-self/ns/net: %s", strerror(errno));
            mill_port_netns_leave(previous);
            return code;
        }
    }
    port->interface_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    signals_take(&signals);
    mill_gate_lock();
    code = make_device(port, report);
    mill_gate_unlock();
    signals_give(&signals);
    if (previous >= 0) {
        mill_port_netns_leave(previous);
    }
    return code;
}

static int check_options(const struct mill_port_options *options, struct mill_report *report)
{
    if (options->queues == 0 || options->queues > MILL_PORT_QUEUES_MAX) {
        return mill_fail(report, -EINVAL, "%u queues; a port has 1 to %d", options->queues,
                         MILL_PORT_QUEUES_MAX);
    }
    if (mill_port_driver_find(options->device) == NULL) {
        return mill_fail(report, -ENODEV,
                         "%s is no device; dpdk.port.%s.device takes net_tap0,iface=NAME, "
                         "net_af_xdp0,iface=NAME, net_memif0,socket=PATH or a PCI address such as "
                         "0000:01:00.0",
                         options->device[0] != '\0' ? options->device : "(empty)", options->name);
    }
    if (options->tx_csum_off && !mill_port_driver_find(options->device)->memory) {
        return mill_fail(report, -EINVAL,
                         "dpdk.port.%s.tx.csum=off: %s leaves memory, where bytes can be damaged; "
                         "only net_memif and net_ring go without sums",
                         options->name, options->device);
    }
    if (options->rx_buffer_bytes > 0 &&
        (options->rx_buffer_bytes < 128 || options->rx_buffer_bytes > 16384)) {
        return mill_fail(report, -EINVAL, "receive buffers of %u bytes; 128 to 16384 are possible",
                         options->rx_buffer_bytes);
    }
    return 0;
}

static int open_checked(const struct mill_port_options *options, struct mill_arena *arena,
                        struct mill_loans *const *loans, struct mill_port **ret_port,
                        struct mill_report *report)
{
    size_t size_bytes = sizeof(struct mill_port) + options->queues * sizeof(struct mill_port_queue);
    struct mill_port *port = aligned_alloc(MILL_CACHE_SPACING_BYTES,
                                           mill_round_up(size_bytes, MILL_CACHE_SPACING_BYTES));
    if (port == NULL) {
        return mill_fail(report, -ENOMEM, "no memory");
    }
    memset(port, 0, size_bytes);
    port->options = *options;
    port->driver = mill_port_driver_find(options->device);
    port->queues_count = options->queues;
    port->mtu = options->mtu > 0 ? options->mtu : RTE_ETHER_MTU;
    port->arena = arena;
    port->netns_fd = -1;
    port->interface_fd = -1;
    port->arena_iova = (uint64_t)(uintptr_t)mill_arena_base(arena);
    atomic_flag_clear(&port->stats_lock);
    for (uint16_t i = 0; i < port->queues_count; i++) {
        struct mill_port_queue *queue = &port->queues[i];
        queue->link.ops = &mill_port_link_ops;
        queue->link.context = queue;
        queue->port = port;
        queue->queue_id = i;
        queue->loans = loans[i];
        queue->arena_base = mill_arena_base(arena);
        queue->arena_bytes = mill_arena_size_bytes(arena);
        queue->frame_bytes_max = (uint32_t)port->mtu + MILL_PORT_ETHERNET_BYTES;
    }
    int code = open_device(port, report);
    if (code < 0) {
        mill_port_close(port);
        return code;
    }
    *ret_port = port;
    return 0;
}

int mill_port_open(const struct mill_port_options *options, struct mill_arena *arena,
                   struct mill_loans *const *loans, struct mill_port **ret_port,
                   struct mill_report *report)
{
    int code = check_options(options, report);
    if (code == 0) {
        code = open_checked(options, arena, loans, ret_port, report);
    }
    return code == 0 ? 0 : mill_fail_in(report, code, "dpdk port %s: ", options->name);
}

/* Frees what waits in the device's receive queues: a ring's mbufs would be lost with it. */
static void drain(struct mill_port *port, uint16_t index)
{
    struct rte_mbuf *mbufs[MILL_PORT_BURST];
    for (int i = 0; i < DRAIN_BURSTS; i++) {
        uint16_t count = rte_eth_rx_burst(port->port_id, index, mbufs, MILL_PORT_BURST);
        if (count == 0) {
            return;
        }
        rte_pktmbuf_free_bulk(mbufs, count);
    }
}

static void release(struct mill_port *port)
{
    for (uint16_t i = 0; i < port->queues_count; i++) {
        struct mill_port_queue *queue = &port->queues[i];
        mill_port_returns_take(queue);
        /* A pool with an mbuf somewhere stays in EAL's memory: better lost than freed in use. */
        (void)mill_port_pool_free(queue->rx_pool);
        (void)mill_port_pool_free(queue->header_pool);
        (void)mill_port_pool_free(queue->ext_pool);
        rte_ring_free(queue->returns);
    }
    free(port);
}

/* Where it was made: the AF_XDP driver takes the program off by the interface's number, which means
 * another one in another namespace. */
static void remove_device(struct mill_port *port)
{
    int here = -1;
    if (port->netns_fd >= 0) {
        here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        MILL_ASSERT_EQ(here >= 0 ? setns(port->netns_fd, CLONE_NEWNET) : -1, 0);
        close(port->netns_fd);
        port->netns_fd = -1;
    }
    mill_port_device_remove(port);
    mill_port_xdp_close(port);
    if (here >= 0) {
        mill_port_netns_leave(here);
    }
    if (port->interface_fd >= 0) {
        close(port->interface_fd);
        port->interface_fd = -1;
    }
}

static void close_device(struct mill_port *port)
{
    for (uint16_t i = 0; i < port->queues_count; i++) {
        struct mill_port_queue *queue = &port->queues[i];
        rte_pktmbuf_free_bulk(queue->pending, queue->pending_count);
        queue->pending_count = 0;
        mill_port_handback_close(queue);
        if (port->started && port->pair == NULL && queue->rx_pool != NULL) {
            drain(port, i);
        }
        mill_port_returns_take(queue);
    }
    if (port->started) {
        (void)rte_eth_dev_stop(port->port_id);
        port->started = false;
    }
    mill_port_dma_unmap(port);
    remove_device(port);
}

void mill_port_close(struct mill_port *port)
{
    bool keep = false;
    struct mill_port *other = NULL;
    if (port == NULL) {
        return;
    }
    mill_gate_lock();
    mill_gate_remove(port);
    mill_memif_relay_close(&port->relay);
    close_device(port);
    mill_gate_unlock();
    if (port->pair != NULL) {
        other = mill_port_pair_close(port, &keep);
    }
    if (!keep) {
        release(port);
    }
    if (other != NULL) {
        release(other);
    }
}

/* --- asking -------------------------------------------------------------------------------------
 */

int mill_port_listen(struct mill_port *port, uint32_t address, uint16_t number, uint8_t protocol,
                     struct mill_report *report)
{
    if (!port->driver->kernel_keeps) {
        return 0;
    }
    int code = mill_steer_add(&port->xdp.steer, address, number, protocol, report);
    return code < 0 ? mill_fail_in(report, code, "dpdk port %s: ", port->options.name) : 0;
}

const struct mill_link *mill_port_link(struct mill_port *port, uint16_t queue)
{
    MILL_ASSERT_LT(queue, port->queues_count);
    return &port->queues[queue].link;
}

uint32_t mill_port_fds(struct mill_port *port, uint16_t queue, int *ret_fds, uint32_t max)
{
    if (!port->driver->fd || max == 0 || port->queues[queue].rx_pool == NULL) {
        return 0;
    }
    int fd = port->driver->kernel_keeps ? port->queues[queue].xdp_fd
                                        : rte_eth_dev_rx_intr_ctl_q_get_fd(port->port_id, queue);
    if (fd <= 0) {
        return 0;
    }
    ret_fds[0] = fd;
    return 1;
}

/* An idle card may hold the last frames it sent, and with them loans, for as long as it is idle
 * (docs/decisions/0008): one burst of fillers per call until nothing is held. Those of guests come
 * back through their rings, so that they are woken to take them. */
static void release_idle(struct mill_port_queue *host)
{
    struct mill_port *port = host->port;
    const struct mill_link_wake *wake = &port->options.wake;
    uint64_t sent = mill_port_relaxed(&host->tx_packets);
    uint64_t pinned = 0;
    for (uint32_t i = host->queue_id; i < port->queues_count; i += port->tx_queues) {
        pinned += mill_port_relaxed(&port->queues[i].pinned);
    }
    bool idle = sent == host->tx_seen && host->pending_count == 0 && pinned > 0;
    host->tx_seen = sent;
    host->idle_calls = idle ? (uint16_t)(host->idle_calls + 1) : 0;
    if (host->idle_calls < MILL_PORT_IDLE_CALLS || port->driver->virtual_device) {
        return;
    }
    if (host->idle_calls > MILL_PORT_IDLE_CALLS + MILL_PORT_FILL_BURSTS) {
        host->idle_calls--; /* what is still held does not come back by this */
        return;
    }
#ifndef MILL_MUTANT_PORT_NO_FILLERS
    (void)mill_port_fill(host);
#endif
    for (uint32_t i = host->queue_id + (uint32_t)port->tx_queues;
         wake->wake != NULL && i < port->queues_count; i += port->tx_queues) {
        wake->wake(wake->context, host->queue_id, (uint16_t)i);
    }
}

void mill_port_tx_done(struct mill_port *port, uint16_t queue)
{
    struct mill_port_queue *own = &port->queues[queue];
    if (own->pending_count > 0) {
        (void)mill_port_flush(own);
    }
    if (own->handback == NULL && mill_gate_enter(own)) {
        /* Not supported by most drivers, virtual ones free at once: nothing to do about it here. */
        (void)rte_eth_tx_done_cleanup(port->port_id, queue, 0);
        release_idle(own);
        mill_gate_leave(own);
    }
    mill_port_returns_take(own);
}

static void ask_driver(struct mill_port *port)
{
    struct rte_eth_stats stats;
    /* One thread at a time; another one takes what this one or an earlier one stored. */
    if (atomic_flag_test_and_set_explicit(&port->stats_lock, memory_order_acquire)) {
        return;
    }
    if (port->driver->kernel_keeps) {
        mill_port_xdp_ask(port); /* the driver folds in one of the socket's four counters */
    } else if (rte_eth_stats_get(port->port_id, &stats) == 0) {
        /* ierrors: frames that were cut because they did not fit (net_tap). */
        mill_port_keep(&port->rx_missed, stats.imissed + stats.ierrors);
        mill_port_keep(&port->rx_nombuf, stats.rx_nombuf);
        /* A driver that stops at a bad frame counts the same one again at each call. */
        mill_port_keep(&port->tx_refused, port->driver->stops_at_bad ? 0 : stats.oerrors);
    }
    atomic_flag_clear_explicit(&port->stats_lock, memory_order_release);
}

void mill_port_counters(struct mill_port *port, struct mill_port_counters *ret_counters)
{
    struct mill_port_counters sum = {.mbufs_total = port->mbufs_total};
    ask_driver(port);
    sum.link_downs = mill_port_relaxed(&port->link_downs);
    sum.rx_missed = mill_port_relaxed(&port->rx_missed.total);
    sum.rx_nombuf = mill_port_relaxed(&port->rx_nombuf.total);
    sum.tx_errors = mill_port_relaxed(&port->tx_refused.total);
#define SUM_STEER(name, help)                                                                      \
    sum.steer_##name = mill_port_relaxed(&port->xdp.counts[MILL_STEER_##name].total);
    MILL_STEER_REASONS(SUM_STEER)
#undef SUM_STEER
    for (uint16_t i = 0; i < port->queues_count; i++) {
        const struct mill_port_queue *queue = &port->queues[i];
        sum.rx_packets += mill_port_relaxed(&queue->rx_packets);
        sum.rx_bytes += mill_port_relaxed(&queue->rx_bytes);
        sum.tx_packets += mill_port_relaxed(&queue->tx_packets);
        sum.tx_bytes += mill_port_relaxed(&queue->tx_bytes);
        sum.tx_errors += mill_port_relaxed(&queue->tx_errors);
        sum.tx_stuck += mill_port_relaxed(&queue->tx_stuck);
        sum.tx_link_down += mill_port_relaxed(&queue->tx_link_down);
        sum.tx_fillers += mill_port_relaxed(&queue->tx_fillers);
        sum.bytes_linearised += mill_port_relaxed(&queue->bytes_linearised);
        sum.frames_empty += mill_port_relaxed(&queue->frames_empty);
        sum.mbufs_used += queue->rx_pool ? rte_mempool_in_use_count(queue->rx_pool) : 0;
        sum.mbufs_used += rte_mempool_in_use_count(queue->header_pool);
        sum.mbufs_used += rte_mempool_in_use_count(queue->ext_pool);
    }
    *ret_counters = sum;
}

void mill_port_remark(struct mill_port *port, const char *format, ...)
{
    va_list list;
    if (port->remark[0] != '\0') {
        return;
    }
    va_start(list, format);
    vsnprintf(port->remark, sizeof(port->remark), format, list);
    va_end(list);
}

/* What the kernel says of the interface. A driver may show a link for ever (AF_XDP). */
static void ask_kernel(const struct mill_port *port, struct mill_port_info *info)
{
    struct ifreq request = {.ifr_ifindex = (int)port->ifindex};
    if (port->ifindex == 0 || port->interface_fd < 0) {
        return;
    }
    if (ioctl(port->interface_fd, SIOCGIFNAME, &request) < 0) {
        info->gone = errno == ENODEV;
        info->link_up = info->link_up && !info->gone;
        return;
    }
    if (ioctl(port->interface_fd, SIOCGIFMTU, &request) == 0) {
        info->mtu_now = (uint16_t)MILL_MIN(request.ifr_mtu, (int)UINT16_MAX);
    }
    if (ioctl(port->interface_fd, SIOCGIFFLAGS, &request) == 0 && port->driver->kernel_keeps) {
        info->link_up = (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
    }
}

/* A card's link is known by asking; whoever asks notes that it went. */
static void note_link(struct mill_port *port, bool up)
{
    if (atomic_exchange_explicit(&port->link_was_up, up, memory_order_relaxed) && !up) {
        atomic_fetch_add_explicit(&port->link_downs, 1, memory_order_relaxed);
    }
}

void mill_port_info(struct mill_port *port, struct mill_port_info *ret_info)
{
    struct rte_eth_dev_info info;
    struct rte_eth_link link;
    memset(ret_info, 0, sizeof(*ret_info));
    if (rte_eth_dev_info_get(port->port_id, &info) == 0) {
        snprintf(ret_info->driver, sizeof(ret_info->driver), "%s", info.driver_name);
    }
    memcpy(ret_info->mac, port->mac, sizeof(ret_info->mac));
    ret_info->mtu = port->mtu;
    ret_info->link_up =
        rte_eth_link_get_nowait(port->port_id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
    if (!port->driver->virtual_device) {
        note_link(port, ret_info->link_up);
    }
    if (port->driver->own_thread) {
        uint32_t gate = atomic_load_explicit(&port->gate, memory_order_relaxed);
        ret_info->link_up = (gate & MILL_GATE_DOWN) == 0;
    }
    ret_info->mtu_now = port->mtu;
    ask_kernel(port, ret_info);
    ret_info->zero_copy = port->queues[0].segments_max > 1;
    ret_info->rx_queues = port->rx_queues;
    ret_info->tx_queues = port->tx_queues;
    memcpy(ret_info->rss, port->rss, sizeof(ret_info->rss));
    const struct rte_mempool *pool = port->queues[0].rx_pool;
    ret_info->rx_pool_bytes = (uint64_t)(pool->size - port->driver->rx_held) * pool->elt_size *
                              port->rx_queues / port->queues_count;
    snprintf(ret_info->remark, sizeof(ret_info->remark), "%s", port->remark);
}
