/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the port layer over net_af_xdp shares an interface with the kernel and avoids what the
 * driver does wrong. Method: a veth pair between two
 * namespaces of the test's own, a packet socket at the far end. Skipped with a reason where it
 * cannot be made. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/byteorder.h"
#include "base/clock.h"
#include "dataplane/port/port_internal.h"
#include "tests/unit/port/support.h"

#define NIC  "mill-port-nic"
#define PEER "mill-port-peer"

enum {
    BROKER_PORT = 9092,
    TARGET_PORT_AT = TEST_ETH_BYTES + 20 + 2,
    ADDRESS_AT = TEST_ETH_BYTES + 16,
};

#define BROKER_ADDRESS 0xc6120001u /* 198.18.0.1 */
#define PEER_ADDRESS   0xc6120002u

struct xdp_world {
    struct test_world world;
    struct mill_port *port;
    const struct mill_link *link;
    int peer;
};

static bool can_run;

static struct mill_port_options options_of(uint16_t queues)
{
    struct mill_port_options options = test_options("net_af_xdp0,iface=mill0");
    options.netns = NIC;
    options.queues = queues;
    options.address = BROKER_ADDRESS;
    options.prefix_bits = 24;
    options.rx_buffers = 512; /* besides what the driver holds */
    return options;
}

static int try_open(struct xdp_world *xdp, const struct mill_port_options *options,
                    struct mill_report *report)
{
    report->text[0] = '\0';
    return mill_port_open(options, &xdp->world.arena, xdp->world.loans_of, &xdp->port, report);
}

static void open_port(struct xdp_world *xdp, const struct mill_port_options *options)
{
    struct mill_report report;
    int code = try_open(xdp, options, &report);
    if (code < 0) {
        print_error("%s\n", report.text);
    }
    assert_int_equal(code, 0);
    assert_int_equal(mill_port_listen(xdp->port, BROKER_ADDRESS, BROKER_PORT, IPPROTO_TCP, &report),
                     0);
    xdp->link = mill_port_link(xdp->port, 0);
    xdp->peer = test_peer_open(PEER, "mill1");
    assert_true(xdp->peer >= 0);
}

static void refused(struct xdp_world *xdp, const struct mill_port_options *options, int code,
                    const char *part, const char *remedy)
{
    struct mill_report report;
    assert_int_equal(try_open(xdp, options, &report), code);
    if (strstr(report.text, part) == NULL || strstr(report.text, remedy) == NULL) {
        print_error("%s\n", report.text);
    }
    assert_non_null(strstr(report.text, part));
    assert_non_null(strstr(report.text, remedy));
    assert_null(strchr(report.text, '\n'));
}

static struct mill_port_counters counters_of(struct xdp_world *xdp)
{
    struct mill_port_counters counters;
    mill_port_counters(xdp->port, &counters);
    return counters;
}

static void send_one(struct xdp_world *xdp, struct mill_frame *frame)
{
    assert_non_null(frame);
    assert_int_equal(xdp->link->ops->send(xdp->link->context, &frame, 1), 1);
}

/* The next frame of ours at the far end; the kernel's own noise is passed over. */
static uint32_t peer_take(struct xdp_world *xdp, uint8_t *ret_bytes, uint32_t max)
{
    for (int i = 0; i < 20; i++) {
        uint32_t size_bytes = test_peer_take(xdp->peer, ret_bytes, max);
        if (size_bytes == 0 || (size_bytes > 34 && mill_load_be16(ret_bytes + 12) == 0x0800 &&
                                ret_bytes[23] == IPPROTO_TCP)) {
            return size_bytes;
        }
    }
    return 0;
}

/* A sound TCP frame to the broker's port: one that was sent, turned round. */
static uint32_t make_frame(struct xdp_world *xdp, uint8_t *ret_frame, uint32_t max)
{
    uint8_t mac[6];
    memcpy(mac, xdp->link->caps.mac, sizeof(mac));
    struct mill_ref ref = test_ref(77, 301);
    send_one(xdp, test_tcp_frame(xdp->link, mac, NULL, 0, &ref, 1));
    uint32_t size_bytes = peer_take(xdp, ret_frame, max);
    assert_int_equal(size_bytes, TEST_HEADERS_BYTES + 301);
    mill_store_be32(ret_frame + ADDRESS_AT, BROKER_ADDRESS);
    mill_store_be16(ret_frame + TARGET_PORT_AT, BROKER_PORT);
    return size_bytes;
}

static void peer_send(struct xdp_world *xdp, const void *frame, uint32_t size_bytes)
{
    assert_int_equal(send(xdp->peer, frame, size_bytes, 0), (ssize_t)size_bytes);
}

static uint32_t port_take(struct xdp_world *xdp, uint8_t *ret_bytes, uint32_t max)
{
    for (int i = 0; i < 300; i++) {
        struct mill_buf *frame;
        if (xdp->link->ops->receive(xdp->link->context, &frame, 1) == 1) {
            return test_take(frame, ret_bytes, max, NULL);
        }
        usleep(1000);
    }
    return 0;
}

static int setup(void **state)
{
    struct xdp_world *xdp = calloc(1, sizeof(*xdp));
    *state = xdp;
    if (!can_run) {
        return 0;
    }
    (void)test_run("ip netns del " NIC);
    (void)test_run("ip netns del " PEER);
    if (test_run("ip netns add " NIC) != 0 || test_run("ip netns add " PEER) != 0 ||
        test_run("ip -n " NIC
                 " link add mill0 numrxqueues 2 numtxqueues 2 type veth peer name mill1 "
                 "numrxqueues 2 numtxqueues 2 netns " PEER) != 0 ||
        test_run("ip netns exec " PEER " ethtool -L mill1 rx 1 tx 1") != 0 ||
        test_run("ip netns exec " NIC " ethtool -L mill0 rx 1 tx 1") != 0 ||
        test_run("ip netns exec " NIC " sysctl -qw net.ipv6.conf.mill0.disable_ipv6=1") != 0 ||
        test_run("ip netns exec " PEER " sysctl -qw net.ipv6.conf.mill1.disable_ipv6=1") != 0 ||
        test_run("ip -n " NIC " addr add 198.18.0.1/24 dev mill0") != 0 ||
        test_run("ip -n " PEER " addr add 198.18.0.2/24 dev mill1") != 0 ||
        test_run("ip -n " NIC " link set mill0 up") != 0 ||
        test_run("ip -n " PEER " link set mill1 up") != 0) {
        return -1;
    }
    test_world_init(&xdp->world);
    return 0;
}

static int teardown(void **state)
{
    struct xdp_world *xdp = *state;
    if (can_run) {
        if (xdp->port != NULL) {
            mill_port_close(xdp->port);
        }
        if (xdp->peer > 0) {
            close(xdp->peer);
        }
        test_world_fini(&xdp->world);
        (void)test_run("ip netns del " NIC);
        (void)test_run("ip netns del " PEER);
    }
    free(xdp);
    return 0;
}

#define SKIP_WITHOUT_XDP()                                                                         \
    do {                                                                                           \
        if (!can_run) {                                                                            \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* Trap 1: a chain would be sent as whatever lies behind its first segment. Trap 2: no mbuf that
 * shows an extent is ever given to this driver, so the far end gets every piece in its place,
 * summed, and each byte was copied once. */
static void test_pieces_are_one_copy_with_right_sums(void **state)
{
    struct xdp_world *xdp = *state;
    static uint8_t got[2048];
    static uint8_t wanted[2048];
    static const uint32_t sizes[][4] = {{0, 0, 0, 0}, {1, 0, 0, 0},       {1400, 0, 0, 0},
                                        {1, 1, 1, 1}, {333, 20, 1001, 0}, {7, 512, 3, 9}};
    uint64_t copied = 0;
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    assert_int_equal(xdp->link->caps.pieces_max, MILL_FRAME_PIECES_MAX);
    for (size_t row = 0; row < MILL_COUNT_OF(sizes); row++) {
        struct mill_ref pieces[4];
        uint16_t count = 0;
        for (; count < 4 && sizes[row][count] > 0; count++) {
            pieces[count] = test_ref(4096u * (count + 1) + 13u, sizes[row][count]);
            copied += sizes[row][count];
        }
        uint32_t size_bytes = test_payload(&xdp->world, "abc", 3, pieces, count, wanted);
        send_one(xdp, test_tcp_frame(xdp->link, xdp->link->caps.mac, "abc", 3, pieces, count));
        assert_int_equal(xdp->world.loans.loaned_bytes, 0); /* nothing of an extent is on its way */
        assert_int_equal(peer_take(xdp, got, sizeof(got)), TEST_HEADERS_BYTES + size_bytes);
        assert_memory_equal(got + TEST_HEADERS_BYTES, wanted, size_bytes);
        assert_true(test_sums_right(got, TEST_HEADERS_BYTES + size_bytes));
    }
    assert_int_equal(counters_of(xdp).bytes_linearised, copied);
    assert_int_equal(counters_of(xdp).tx_packets, MILL_COUNT_OF(sizes));
}

/* Trap 1, the other half: the driver looks at no length. */
static void test_longer_than_the_mtu_is_refused_and_counted(void **state)
{
    struct xdp_world *xdp = *state;
    static uint8_t got[4096];
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    struct mill_ref longer[2] = {test_ref(0, 1400), test_ref(8192, 648)};
    struct mill_ref small = test_ref(0, 100);
    struct mill_frame *frames[2] = {
        test_tcp_frame(xdp->link, xdp->link->caps.mac, NULL, 0, longer, 2),
        test_tcp_frame(xdp->link, xdp->link->caps.mac, NULL, 0, &small, 1)};
    assert_int_equal(xdp->link->ops->send(xdp->link->context, frames, 2), 2);
    assert_int_equal(peer_take(xdp, got, sizeof(got)), TEST_HEADERS_BYTES + 100);
    assert_int_equal(counters_of(xdp).tx_errors, 1);
    assert_int_equal(counters_of(xdp).bytes_linearised, 100);
}

/* The kernel sends 32 frames per wake-up; more are cut into bursts and all arrive, in order. */
static void test_many_frames_arrive_in_order(void **state)
{
    struct xdp_world *xdp = *state;
    static uint8_t got[2048];
    struct mill_frame *frames[100];
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    for (uint32_t i = 0; i < MILL_COUNT_OF(frames); i++) {
        struct mill_ref ref = test_ref(0, i + 1);
        frames[i] = test_tcp_frame(xdp->link, xdp->link->caps.mac, NULL, 0, &ref, 1);
    }
    uint32_t sent = 0;
    for (int tries = 0; tries < 1000 && sent < MILL_COUNT_OF(frames); tries++) {
        sent += xdp->link->ops->send(xdp->link->context, frames + sent,
                                     (uint32_t)MILL_COUNT_OF(frames) - sent);
    }
    assert_int_equal(sent, MILL_COUNT_OF(frames));
    for (uint32_t i = 0; i < MILL_COUNT_OF(frames); i++) {
        assert_int_equal(peer_take(xdp, got, sizeof(got)), TEST_HEADERS_BYTES + i + 1);
    }
}

/* Trap 3's rule: an interface that takes nothing must not hold frames for ever, nor anything else.
 */
static void test_down_interface_drops_and_recovers(void **state)
{
    struct xdp_world *xdp = *state;
    static uint8_t got[2048];
    struct mill_port_info info;
    uint32_t offered = 0;
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    mill_port_info(xdp->port, &info);
    assert_true(info.link_up);
    assert_int_equal(test_run("ip -n " NIC " link set mill0 down"), 0);
    mill_port_info(xdp->port, &info);
    assert_false(info.link_up);
    assert_false(info.gone);
    struct mill_ref ref = test_ref(0, 1000);
    struct mill_frame *frame = NULL;
    for (uint32_t i = 0; i < 4000; i++) {
        frame = test_tcp_frame(xdp->link, xdp->link->caps.mac, NULL, 0, &ref, 1);
        if (frame == NULL || xdp->link->ops->send(xdp->link->context, &frame, 1) == 0) {
            if (frame != NULL) {
                xdp->link->ops->frame_put(xdp->link->context, frame);
            }
            struct mill_buf *in;
            (void)xdp->link->ops->receive(xdp->link->context, &in, 1);
            continue;
        }
        offered++;
    }
    assert_true(offered > 1024); /* the transmit ring is full, and frames give way */
    assert_true(counters_of(xdp).tx_stuck > 0);
    assert_int_equal(xdp->world.loans.loaned_bytes, 0);
    assert_int_equal(test_run("ip -n " NIC " link set mill0 up"), 0);
    for (int i = 0; i < 100 && !info.link_up;
         i++) { /* the kernel tells the carrier a little later */
        usleep(20000);
        mill_port_info(xdp->port, &info);
    }
    assert_true(info.link_up);
    /* The driver wakes the kernel when its ring is full, and has room the next time. */
    frame = test_tcp_frame(xdp->link, xdp->link->caps.mac, NULL, 0, &ref, 1);
    uint32_t taken = 0;
    for (int i = 0; i < 100 && taken == 0; i++) {
        taken = xdp->link->ops->send(xdp->link->context, &frame, 1);
    }
    assert_int_equal(taken, 1);
    assert_int_equal(peer_take(xdp, got, sizeof(got)), TEST_HEADERS_BYTES + 1000);
}

/* Trap 9: one piece of memory; and the pool that the driver was given is no other's. */
static void test_receive_pool_is_one_piece_of_its_own(void **state)
{
    struct xdp_world *xdp = *state;
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    const struct mill_port_queue *queue = &xdp->port->queues[0];
    assert_int_equal(queue->rx_pool->nb_mem_chunks, 1);
    assert_int_equal(queue->rx_pool->size, MILL_PORT_XDP_HELD + options.rx_buffers);
    assert_ptr_not_equal(queue->rx_pool, queue->ext_pool);
    assert_ptr_not_equal(queue->rx_pool, queue->header_pool);
    assert_int_equal(queue->segments_max, 1);
}

/* Trap 8: with the driver's own choice a core that sleeps is not woken. Its socket is found and
 * becomes readable with a frame, each time. */
static void test_sleeper_is_woken_by_each_frame(void **state)
{
    struct xdp_world *xdp = *state;
    static uint8_t frame[2048];
    static uint8_t got[2048];
    int fd = -1;
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    assert_int_equal(mill_port_fds(xdp->port, 0, &fd, 1), 1);
    int domain = 0;
    socklen_t bytes = sizeof(domain);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes), 0);
    assert_int_equal(domain, AF_XDP);
    uint32_t size_bytes = make_frame(xdp, frame, sizeof(frame));
    for (int i = 0; i < 50; i++) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&wait, 1, 0), 0);
        peer_send(xdp, frame, size_bytes);
        assert_int_equal(poll(&wait, 1, 1000), 1);
        assert_int_equal(port_take(xdp, got, sizeof(got)), size_bytes);
        assert_memory_equal(got, frame, size_bytes);
    }
}

/* Ours come to us, the rest to the kernel, and each is counted. */
static void test_kernel_keeps_what_is_not_ours(void **state)
{
    struct xdp_world *xdp = *state;
    static uint8_t frame[2048];
    static uint8_t got[2048];
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    assert_int_equal(test_run("ip netns exec " PEER " ping -c 3 -i 0.05 -W 1 198.18.0.1"), 0);
    uint32_t size_bytes = make_frame(xdp, frame, sizeof(frame));
    struct mill_port_counters before = counters_of(xdp);
    assert_true(before.steer_passed >= 3);
    peer_send(xdp, frame, size_bytes);
    assert_int_equal(port_take(xdp, got, sizeof(got)), size_bytes);
    mill_store_be16(frame + TARGET_PORT_AT, BROKER_PORT + 1);
    peer_send(xdp, frame, size_bytes);
    mill_store_be16(frame + TARGET_PORT_AT, BROKER_PORT);
    mill_store_be16(frame + TEST_ETH_BYTES + 6, 0x2000);
    peer_send(xdp, frame, size_bytes);
    assert_int_equal(port_take(xdp, got, sizeof(got)), 0);
    struct mill_port_counters after = counters_of(xdp);
    assert_int_equal(after.steer_redirected, before.steer_redirected + 1);
    assert_true(after.steer_passed > before.steer_passed);
    assert_int_equal(after.steer_fragments, before.steer_fragments + 1);
    assert_int_equal(after.rx_packets, before.rx_packets + 1);
    assert_int_equal(after.rx_missed + after.rx_nombuf, 0);
}

/* Buffers held above: frames are lost and counted, and come again when buffers are back. */
static void test_empty_pool_is_counted_and_recovers(void **state)
{
    struct xdp_world *xdp = *state;
    static struct mill_buf *held[8192];
    static uint8_t frame[2048];
    static uint8_t got[2048];
    uint32_t count = 0;
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    uint32_t size_bytes = make_frame(xdp, frame, sizeof(frame));
    for (int i = 0; i < 8000; i++) {
        (void)send(xdp->peer, frame, size_bytes, 0);
        count += xdp->link->ops->receive(xdp->link->context, held + count, 4);
    }
    assert_in_range(count, 2000, MILL_PORT_XDP_HELD + options.rx_buffers);
    struct mill_port_counters counters = counters_of(xdp);
    assert_true(counters.rx_missed + counters.rx_nombuf > 0);
    for (uint32_t i = 0; i < count; i++) {
        held[i]->free(held[i]);
    }
    while (port_take(xdp, got, sizeof(got)) > 0) {
    }
    peer_send(xdp, frame, size_bytes);
    assert_int_equal(port_take(xdp, got, sizeof(got)), size_bytes);
}

/* Packets on a queue without socket would be refused by the kernel: said at start, and counted. */
static void test_unserved_queue_is_told_and_counted(void **state)
{
    struct xdp_world *xdp = *state;
    static uint8_t frame[2048];
    struct mill_port_info info;
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    mill_port_info(xdp->port, &info);
    assert_string_equal(info.remark, "");
    uint32_t size_bytes = make_frame(xdp, frame, sizeof(frame));
    mill_port_close(xdp->port);
    close(xdp->peer);
    assert_int_equal(test_run("ip netns exec " NIC " ethtool -L mill0 rx 2"), 0);
    assert_int_equal(test_run("ip netns exec " PEER " ethtool -L mill1 tx 2"), 0);
    open_port(xdp, &options);
    mill_port_info(xdp->port, &info);
    assert_non_null(strstr(info.remark, "ethtool -L mill0 rx 1"));
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    for (size_t i = 0; i < 64; i++) { /* a packet socket sends by the queue of its CPU */
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(i % 2, &one);
        (void)sched_setaffinity(0, sizeof(one), &one);
        peer_send(xdp, frame, size_bytes);
    }
    (void)sched_setaffinity(0, sizeof(before), &before);
    usleep(10000);
    struct mill_port_counters counters = counters_of(xdp);
    assert_int_equal(counters.steer_redirected + counters.steer_no_socket, 64);
    assert_true(counters.steer_no_socket > 0);
}

/* The kernel asks for a neighbour of connections that we open; a core only looks. */
static void test_neighbour_is_found_by_the_kernel(void **state)
{
    static const uint8_t wanted[6] = {0x02, 0, 0, 0, 0, 0x42};
    struct xdp_world *xdp = *state;
    SKIP_WITHOUT_XDP();
    struct mill_port_options options = options_of(1);
    struct mill_report report;
    uint8_t mac[6] = {0};
    assert_int_equal(test_run("ip -n " PEER " link set mill1 address 02:00:00:00:00:42"), 0);
    open_port(xdp, &options);
    const struct mill_link_ops *ops = xdp->link->ops;
    assert_int_equal(test_run("ip -n " NIC " neigh flush dev mill0"), 0);
    assert_int_equal(ops->neighbour(xdp->link->context, PEER_ADDRESS, mac), -EAGAIN);
    int code = mill_port_neighbour(xdp->port, PEER_ADDRESS, 5 * MILL_NS_PER_S, &report);
    if (code < 0) {
        print_error("%s\n", report.text);
    }
    assert_int_equal(code, 0);
    assert_int_equal(ops->neighbour(xdp->link->context, PEER_ADDRESS, mac), 0);
    assert_memory_equal(mac, wanted, sizeof(mac));
    /* Asked again it is found again, in no second place. */
    assert_int_equal(test_run("ip -n " NIC " neigh change 198.18.0.2 lladdr 02:00:00:00:00:43 nud "
                              "permanent dev mill0"),
                     0);
    for (int i = 0; i < 2 * MILL_PORT_NEIGHBOURS_MAX; i++) {
        assert_int_equal(mill_port_neighbour(xdp->port, PEER_ADDRESS, 5 * MILL_NS_PER_S, &report),
                         0);
    }
    assert_int_equal(ops->neighbour(xdp->link->context, PEER_ADDRESS, mac), 0);
    assert_int_equal(mac[5], 0x43);
    /* Nobody has this one. */
    code = mill_port_neighbour(xdp->port, PEER_ADDRESS + 7, 50 * MILL_NS_PER_MS, &report);
    assert_int_equal(code, -EHOSTUNREACH);
    assert_non_null(strstr(report.text, "198.18.0.9"));
    assert_int_equal(ops->neighbour(xdp->link->context, PEER_ADDRESS + 7, mac), -EAGAIN);
}

/* Answers to source ports of ours come to us; the kernel's own connections do not lose theirs. */
static void test_own_ports_are_ours_and_not_the_kernels(void **state)
{
    struct xdp_world *xdp = *state;
    SKIP_WITHOUT_XDP();
    struct mill_port_options options = options_of(1);
    uint8_t frame[1024];
    uint8_t got[1024];
    options.own_port_first = 50000;
    options.own_port_last = 50009;
    assert_int_equal(
        test_run("ip netns exec " NIC " sysctl -qw net.ipv4.ip_local_port_range='32768 60999'"), 0);
    refused(xdp, &options, -EADDRINUSE, "the kernel chooses source ports from 32768 to 60999",
            "sysctl -w net.ipv4.ip_local_reserved_ports=50000-50009");
    assert_int_equal(test_run("ip netns exec " NIC
                              " sysctl -qw net.ipv4.ip_local_reserved_ports=8080,50001-50009"),
                     0);
    refused(xdp, &options, -EADDRINUSE, "50000 to 50009", "ip_local_reserved_ports");
    assert_int_equal(
        test_run("ip netns exec " NIC
                 " sysctl -qw net.ipv4.ip_local_reserved_ports=8080,49999-50009,60000"),
        0);
    open_port(xdp, &options);
    uint32_t size_bytes = make_frame(xdp, frame, sizeof(frame));
    for (uint16_t number = 49999; number <= 50010; number++) {
        mill_store_be16(frame + TARGET_PORT_AT, number);
        peer_send(xdp, frame, size_bytes);
        bool ours = number >= 50000 && number <= 50009;
        uint64_t passed = counters_of(xdp).steer_passed;
        assert_int_equal(ours ? port_take(xdp, got, sizeof(got)) : 0, ours ? size_bytes : 0);
        for (int i = 0; !ours && counters_of(xdp).steer_passed == passed && i < 3000; i++) {
            usleep(1000);
        }
    }
    assert_int_equal(counters_of(xdp).rx_packets, 10);
}

static void test_deleted_interface_is_told(void **state)
{
    struct xdp_world *xdp = *state;
    struct mill_port_info info;
    struct mill_buf *in;
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    assert_int_equal(test_run("ip -n " NIC " link del mill0"), 0);
    mill_port_info(xdp->port, &info);
    assert_true(info.gone);
    assert_false(info.link_up);
    struct mill_ref ref = test_ref(0, 1000);
    for (int i = 0; i < 100; i++) {
        struct mill_frame *frame = test_tcp_frame(xdp->link, xdp->link->caps.mac, NULL, 0, &ref, 1);
        if (xdp->link->ops->send(xdp->link->context, &frame, 1) == 0) {
            xdp->link->ops->frame_put(xdp->link->context, frame);
        }
        assert_int_equal(xdp->link->ops->receive(xdp->link->context, &in, 1), 0);
    }
    assert_int_equal(xdp->world.loans.loaned_bytes, 0);
}

static void test_wrong_interfaces_are_refused_with_remedy(void **state)
{
    struct xdp_world *xdp = *state;
    SKIP_WITHOUT_XDP();
    struct mill_port_options options = options_of(1);
    snprintf(options.device, sizeof(options.device), "net_af_xdp0");
    refused(xdp, &options, -EINVAL, "names no interface", "net_af_xdp0,iface=eth0");
    snprintf(options.device, sizeof(options.device), "net_af_xdp0,iface=mill9");
    refused(xdp, &options, -ENODEV, "no interface mill9 in namespace " NIC, "ip link show");
    options = options_of(1);
    options.address++;
    refused(xdp, &options, -EADDRNOTAVAIL, "198.18.0.2 is not an address of mill0",
            "ip addr add 198.18.0.2/24 dev mill0");
    options = options_of(1);
    options.mac[0] = 2;
    refused(xdp, &options, -EINVAL, "kernel keeps the interface's address", "dpdk.port.nic0.mac");
    options = options_of(2);
    snprintf(options.device, sizeof(options.device), "net_af_xdp0,iface=mill0,queue_count=2");
    refused(xdp, &options, -EINVAL, "mill0 has 1 queues", "ethtool -L mill0 combined");
    options = options_of(1);
    options.mtu = 9000;
    refused(xdp, &options, -EINVAL, "AF_XDP carries at most", "dpdk.port.nic0.mtu");
    options.mtu = 2000;
    refused(xdp, &options, -EINVAL, "mtu 2000 is more than mill0 has (1500)",
            "ip link set dev mill0 mtu 2000");
    /* Nothing was left half open. */
    options = options_of(1);
    open_port(xdp, &options);
}

static void test_largest_mtu_is_carried(void **state)
{
    struct xdp_world *xdp = *state;
    static uint8_t got[4096];
    SKIP_WITHOUT_XDP();
    assert_int_equal(test_run("ip -n " NIC " link set mill0 mtu %d", MILL_PORT_XDP_MTU_MAX), 0);
    assert_int_equal(test_run("ip -n " PEER " link set mill1 mtu %d", MILL_PORT_XDP_MTU_MAX), 0);
    struct mill_port_options options = options_of(1);
    options.mtu = MILL_PORT_XDP_MTU_MAX;
    open_port(xdp, &options);
    uint32_t payload = MILL_PORT_XDP_MTU_MAX - 40;
    struct mill_ref ref = test_ref(5, payload);
    send_one(xdp, test_tcp_frame(xdp->link, xdp->link->caps.mac, NULL, 0, &ref, 1));
    uint32_t size_bytes = peer_take(xdp, got, sizeof(got));
    assert_int_equal(size_bytes, TEST_HEADERS_BYTES + payload);
    assert_true(test_sums_right(got, size_bytes));
    static uint8_t back[4096];
    mill_store_be32(got + ADDRESS_AT, BROKER_ADDRESS);
    mill_store_be16(got + TARGET_PORT_AT, BROKER_PORT);
    peer_send(xdp, got, size_bytes);
    assert_int_equal(port_take(xdp, back, sizeof(back)), size_bytes);
    assert_memory_equal(back, got, size_bytes);
}

static int in_nic(void)
{
    int before = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    int inside = open("/run/netns/" NIC, O_RDONLY | O_CLOEXEC);
    assert_true(before >= 0 && inside >= 0);
    assert_int_equal(setns(inside, CLONE_NEWNET), 0);
    close(inside);
    return before;
}

/* What a killed driver leaves behind: the program on the interface, and nobody who knows it. */
static void leave_program(void)
{
    struct bpf_object *object = bpf_object__open_file(getenv("MILL_STEER_OBJECT"), NULL);
    assert_non_null(object);
    assert_int_equal(bpf_object__load(object), 0);
    int before = in_nic();
    int fd = bpf_program__fd(bpf_object__find_program_by_name(object, "mill_steer"));
    assert_int_equal(bpf_xdp_attach((int)if_nametoindex("mill0"), fd, 0, NULL), 0);
    assert_int_equal(setns(before, CLONE_NEWNET), 0);
    close(before);
    bpf_object__close(object);
}

/* A process that was killed leaves the program on the interface; the next one replaces it. While it
 * lives the interface is its own. */
static void test_program_of_a_killed_run_is_replaced(void **state)
{
    struct xdp_world *xdp = *state;
    static uint8_t frame[2048];
    static uint8_t got[2048];
    SKIP_WITHOUT_XDP();
    const struct mill_port_options options = options_of(1);
    open_port(xdp, &options);
    struct mill_port_options again = options_of(1);
    struct mill_port *second = NULL;
    struct mill_report report;
    snprintf(again.device, sizeof(again.device), "net_af_xdp1,iface=mill0");
    assert_int_equal(
        mill_port_open(&again, &xdp->world.arena, xdp->world.loans_of, &second, &report),
        -EADDRINUSE);
    assert_non_null(strstr(report.text, "mill0 is in use by another Millrace"));
    mill_port_close(xdp->port);
    close(xdp->peer);
    xdp->port = NULL;
    assert_int_not_equal(test_run("ip -n " NIC " link show mill0 | grep -q xdp"), 0);
    leave_program();
    assert_int_equal(test_run("ip -n " NIC " link show mill0 | grep -q xdp"), 0);
    open_port(xdp, &options);
    uint32_t size_bytes = make_frame(xdp, frame, sizeof(frame));
    peer_send(xdp, frame, size_bytes);
    assert_int_equal(port_take(xdp, got, sizeof(got)), size_bytes);
}

/* Another's program, also one with our name: refused, and still there. */
static void test_foreign_program_is_refused_and_stays(void **state)
{
    struct xdp_world *xdp = *state;
    static const char *const names[] = {"watchdog", "mill_steer"};
    struct bpf_insn pass[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 2},
                              {.code = BPF_JMP | BPF_EXIT}};
    SKIP_WITHOUT_XDP();
    for (size_t i = 0; i < MILL_COUNT_OF(names); i++) {
        int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, names[i], "GPL", pass, MILL_COUNT_OF(pass), NULL);
        assert_true(fd >= 0);
        int before = in_nic();
        int ifindex = (int)if_nametoindex("mill0");
        assert_int_equal(bpf_xdp_attach(ifindex, fd, 0, NULL), 0);
        const struct mill_port_options options = options_of(1);
        refused(xdp, &options, -EBUSY, names[i], "ip link set dev mill0 xdp off");
        uint32_t id = 0;
        assert_int_equal(bpf_xdp_query_id(ifindex, 0, &id), 0);
        assert_true(id > 0);
        assert_int_equal(bpf_xdp_detach(ifindex, 0, NULL), 0);
        assert_int_equal(setns(before, CLONE_NEWNET), 0);
        close(before);
        close(fd);
    }
}

/* LeakSanitizer: the driver and libxdp give their sockets' and programs' memory up only with the
 * process, at each of the ports opened here. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libbpf.so\nleak:libxdp.so\n";
}

/* Else it would report what it did not report. */
const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pieces_are_one_copy_with_right_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(test_longer_than_the_mtu_is_refused_and_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_many_frames_arrive_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_down_interface_drops_and_recovers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receive_pool_is_one_piece_of_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sleeper_is_woken_by_each_frame, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kernel_keeps_what_is_not_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty_pool_is_counted_and_recovers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unserved_queue_is_told_and_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_neighbour_is_found_by_the_kernel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_ports_are_ours_and_not_the_kernels, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_deleted_interface_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_interfaces_are_refused_with_remedy, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_largest_mtu_is_carried, setup, teardown),
        cmocka_unit_test_setup_teardown(test_program_of_a_killed_run_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign_program_is_refused_and_stays, setup, teardown),
    };
    struct mill_report report = {.text = ""};
    /* The driver keeps its buffers at each close, so that pools of closed ports stay. */
    const struct mill_eal_options eal = {.file_prefix = "mill-test-xdp", .memory_mb = 768};
    can_run = test_can_tap(NIC);
    if (can_run && mill_eal_start(&eal, &report) < 0) {
        print_error("%s\n", report.text);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mill_eal_stop();
    return failed;
}
