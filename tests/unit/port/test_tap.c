/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the port layer over net_tap avoids what the driver does wrong. Method: a persistent TAP
 * in a namespace of the test's own, the kernel as the other end through a packet socket and its
 * counters. Skipped with a reason where a TAP cannot be made. */
#include "tests/unit/test.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "tests/unit/port/support.h"

#define NETNS "mill-port-test"

static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

struct tap_world {
    struct test_world world;
    struct mill_port *port;
    const struct mill_link *link;
    int peer; /* packet socket on the kernel's end */
};

static bool can_tap;

static void open_port(struct tap_world *tap, struct mill_port_options options)
{
    struct mill_report report = {.text = ""};
    options.netns = NETNS;
    int code =
        mill_port_open(&options, &tap->world.arena, tap->world.loans_of, &tap->port, &report);
    if (code < 0) {
        print_error("%s\n", report.text);
    }
    assert_int_equal(code, 0);
    tap->link = mill_port_link(tap->port, 0);
    tap->peer = test_peer_open(NETNS, "mill0");
    assert_true(tap->peer >= 0);
}

static void close_port(struct tap_world *tap)
{
    close(tap->peer);
    mill_port_close(tap->port);
    tap->port = NULL;
}

/* Next frame of this EtherType at our end. */
static uint32_t port_take(struct tap_world *tap, uint16_t type, uint8_t *ret_bytes, uint32_t max,
                          uint32_t *ret_buffers, uint32_t *ret_flags)
{
    for (int i = 0; i < 300; i++) {
        struct mill_buf *frame;
        if (tap->link->ops->receive(tap->link->context, &frame, 1) == 0) {
            usleep(1000);
            continue;
        }
        uint32_t flags = frame->flags;
        uint32_t size_bytes = test_take(frame, ret_bytes, max, ret_buffers);
        if (size_bytes >= 14 && mill_load_be16(ret_bytes + 12) == type) {
            if (ret_flags != NULL) {
                *ret_flags = flags;
            }
            return size_bytes;
        }
    }
    return 0;
}

static void send_one(struct tap_world *tap, struct mill_frame *frame)
{
    assert_non_null(frame);
    assert_int_equal(tap->link->ops->send(tap->link->context, &frame, 1), 1);
}

static int setup(void **state)
{
    struct tap_world *tap = calloc(1, sizeof(*tap));
    *state = tap;
    if (!can_tap) {
        return 0;
    }
    (void)test_run("ip netns del " NETNS);
    if (test_run("ip netns add " NETNS) != 0 ||
        test_run("ip -n " NETNS " tuntap add dev mill0 mode tap multi_queue") != 0 ||
        test_run("ip -n " NETNS " addr add 198.18.0.2/24 dev mill0") != 0) {
        return -1;
    }
    test_world_init(&tap->world);
    return 0;
}

static int teardown(void **state)
{
    struct tap_world *tap = *state;
    if (can_tap) {
        if (tap->port != NULL) {
            close_port(tap);
        }
        test_world_fini(&tap->world);
        (void)test_run("ip netns del " NETNS);
    }
    free(tap);
    return 0;
}

#define SKIP_WITHOUT_TAP()                                                                         \
    do {                                                                                           \
        if (!can_tap) {                                                                            \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* Answers the kernel's ARP request and echo request by hand, as net/ will: ping succeeds. */
static uint32_t answer_arp(const uint8_t *in, const struct mill_link *link, uint8_t *out)
{
    memcpy(out, in, 42);
    memcpy(out, in + 6, 6);
    memcpy(out + 6, link->caps.mac, 6);
    mill_store_be16(out + 20, 2);
    memcpy(out + 22, link->caps.mac, 6);
    memcpy(out + 28, in + 38, 4);
    memcpy(out + 32, in + 22, 10);
    return 42;
}

static uint32_t answer_echo(const uint8_t *in, uint32_t size_bytes, const struct mill_link *link,
                            uint8_t *out)
{
    memcpy(out, in, size_bytes);
    memcpy(out, in + 6, 6);
    memcpy(out + 6, link->caps.mac, 6);
    memcpy(out + 26, in + 30, 4);
    memcpy(out + 30, in + 26, 4);
    out[34] = 0;
    uint32_t sum = (uint32_t)mill_load_be16(in + 36) + 0x0800;
    mill_store_be16(out + 36, (uint16_t)((sum & 0xffff) + (sum >> 16)));
    return size_bytes;
}

static void test_ping_from_kernel_is_answered(void **state)
{
    struct tap_world *tap = *state;
    static uint8_t in[2048];
    SKIP_WITHOUT_TAP();
    open_port(tap, test_options("net_tap0,iface=mill0"));
    pid_t pid = fork();
    if (pid == 0) {
        /* ping(8) is not always installed; Python, which the build needs, is. */
        execlp("ip", "ip", "netns", "exec", NETNS, "python3", "-c",
               "import socket,struct\n"
               "s=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_ICMP)\n"
               "s.settimeout(3)\n"
               "b=struct.pack('!BBHHH',8,0,0,7,1)+b'millrace'\n"
               "c=sum(struct.unpack('!8H',b)); c=(c&0xffff)+(c>>16); c=~c&0xffff\n"
               "s.sendto(b[:2]+struct.pack('!H',c)+b[4:],('198.18.0.1',0))\n"
               "while True:\n"
               "    d=s.recv(2048)\n"
               "    if d[20]==0 and d[28:]==b'millrace': break\n",
               (char *)NULL);
        _exit(127);
    }
    int status = -1;
    for (int i = 0; i < 4000 && waitpid(pid, &status, WNOHANG) == 0; i++) {
        struct mill_buf *frame;
        if (tap->link->ops->receive(tap->link->context, &frame, 1) == 0) {
            usleep(1000);
            continue;
        }
        uint32_t size_bytes = test_take(frame, in, sizeof(in), NULL);
        uint16_t type = mill_load_be16(in + 12);
        struct mill_frame *answer = tap->link->ops->frame_get(tap->link->context);
        assert_non_null(answer);
        if (type == 0x0806 && size_bytes >= 42 && in[21] == 1 && in[41] == 1) {
            answer->header_bytes = answer_arp(in, tap->link, answer->header);
        } else if (type == 0x0800 && size_bytes >= 42 && in[23] == 1 && in[34] == 8) {
            assert_memory_equal(in, tap->link->caps.mac, 6);
            answer->header_bytes = answer_echo(in, size_bytes, tap->link, answer->header);
        } else {
            tap->link->ops->frame_put(tap->link->context, answer);
            continue;
        }
        send_one(tap, answer);
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_mac_is_not_the_kernels_and_stays(void **state)
{
    struct tap_world *tap = *state;
    uint8_t first[6];
    char command[160];
    SKIP_WITHOUT_TAP();
    open_port(tap, test_options("net_tap0,iface=mill0"));
    memcpy(first, tap->link->caps.mac, 6);
    assert_int_equal(first[0] & 3, 2);
    snprintf(command, sizeof(command),
             "ip -n " NETNS " link show mill0 | grep -qi %02x:%02x:%02x:%02x:%02x:%02x", first[0],
             first[1], first[2], first[3], first[4], first[5]);
    assert_int_not_equal(test_run("%s", command), 0);
    close_port(tap);
    open_port(tap, test_options("net_tap0,iface=mill0"));
    assert_memory_equal(tap->link->caps.mac, first, 6);
    close_port(tap);
    struct mill_port_options options = test_options("net_tap0,iface=mill0");
    options.node_id = 2;
    open_port(tap, options);
    assert_memory_not_equal(tap->link->caps.mac, first, 6);
}

/* Trap 5 and the sums: headers in the first segment, odd pieces behind, every byte right. */
static void test_pieces_arrive_equal_with_right_sums(void **state)
{
    struct tap_world *tap = *state;
    static const uint32_t sizes[][4] = {{1446},     {1, 1, 1, 1},     {3, 700, 5, 2},
                                        {699, 747}, {512, 513, 7, 1}, {1, 1445}};
    static uint8_t wanted[1600];
    static uint8_t got[1600];
    SKIP_WITHOUT_TAP();
    open_port(tap, test_options("net_tap0,iface=mill0"));
    for (size_t row = 0; row < MILL_COUNT_OF(sizes); row++) {
        for (uint32_t inlined = 0; inlined < 4; inlined++) {
            struct mill_ref pieces[4];
            uint16_t count = 0;
            for (; count < 4 && sizes[row][count] > 0; count++) {
                pieces[count] = test_ref(4096u * (count + 1) + 13u, sizes[row][count]);
            }
            uint32_t size_bytes = test_payload(&tap->world, "abc", inlined, pieces, count, wanted);
            send_one(tap, test_tcp_frame(tap->link, broadcast, "abc", inlined, pieces, count));
            assert_int_equal(test_peer_take(tap->peer, got, sizeof(got)),
                             TEST_HEADERS_BYTES + size_bytes);
            assert_memory_equal(got + TEST_HEADERS_BYTES, wanted, size_bytes);
            assert_true(test_sums_right(got, TEST_HEADERS_BYTES + size_bytes));
        }
    }
    assert_int_equal(tap->world.loans.loaned_bytes, 0);
    struct mill_port_counters counters;
    mill_port_counters(tap->port, &counters);
    assert_int_equal(counters.bytes_linearised, 0);
    assert_int_equal(counters.tx_packets, 4 * MILL_COUNT_OF(sizes));
}

/* Trap 3. The driver would offer the long frame for ever; frames behind it must go out. */
static void tap_oversize_no_deadlock(void **state)
{
    struct tap_world *tap = *state;
    static uint8_t got[2048];
    struct mill_port_counters counters;
    SKIP_WITHOUT_TAP();
    open_port(tap, test_options("net_tap0,iface=mill0"));
    struct mill_ref longer[2] = {test_ref(0, 1400), test_ref(8192, 648)};
    struct mill_ref small = test_ref(0, 100);
    struct mill_frame *frames[2] = {test_tcp_frame(tap->link, broadcast, NULL, 0, longer, 2),
                                    test_tcp_frame(tap->link, broadcast, NULL, 0, &small, 1)};
    assert_int_equal(tap->link->ops->send(tap->link->context, frames, 2), 2);
    assert_int_equal(test_peer_take(tap->peer, got, sizeof(got)), TEST_HEADERS_BYTES + 100);
    mill_port_counters(tap->port, &counters);
    assert_int_equal(counters.tx_errors, 1);
    assert_int_equal(counters.tx_packets, 1);
    assert_int_equal(tap->world.loans.loaned_bytes, 0);
}

/* Trap 3, the other half: writes that the kernel refuses (interface down) must not hold loans. */
static void test_down_interface_drops_after_bounded_calls(void **state)
{
    struct tap_world *tap = *state;
    struct mill_port_counters counters;
    struct mill_buf *in;
    static uint8_t got[2048];
    SKIP_WITHOUT_TAP();
    open_port(tap, test_options("net_tap0,iface=mill0"));
    assert_int_equal(test_run("ip -n " NETNS " link set mill0 down"), 0);
    struct mill_ref ref = test_ref(0, 1000);
    send_one(tap, test_tcp_frame(tap->link, broadcast, NULL, 0, &ref, 1));
    send_one(tap, test_tcp_frame(tap->link, broadcast, NULL, 0, &ref, 1));
    assert_int_equal(tap->world.loans.loaned_bytes, 2000);
    for (int i = 0; i < 40; i++) {
        (void)tap->link->ops->receive(tap->link->context, &in, 1);
    }
    assert_int_equal(tap->world.loans.loaned_bytes, 0);
    mill_port_counters(tap->port, &counters);
    assert_int_equal(counters.tx_stuck, 2);
    assert_int_equal(counters.tx_packets, 0);
    struct mill_port_info info;
    mill_port_info(tap->port, &info);
    assert_false(info.link_up);
    assert_int_equal(test_run("ip -n " NETNS " link set mill0 up"), 0);
    mill_port_info(tap->port, &info);
    assert_true(info.link_up);
    send_one(tap, test_tcp_frame(tap->link, broadcast, NULL, 0, &ref, 1));
    assert_int_equal(test_peer_take(tap->peer, got, sizeof(got)), TEST_HEADERS_BYTES + 1000);
}

static void peer_send(struct tap_world *tap, const void *frame, size_t size_bytes)
{
    assert_int_equal(send(tap->peer, frame, size_bytes, 0), (ssize_t)size_bytes);
}

/* Trap 4: no thread takes a signal, and frames still come; none of ours is left ignored. */
static void test_receive_needs_no_signal(void **state)
{
    struct tap_world *tap = *state;
    uint8_t frame[100] = {0};
    static uint8_t got[2048];
    sigset_t all;
    sigset_t before;
    struct sigaction action;
    SKIP_WITHOUT_TAP();
    open_port(tap, test_options("net_tap0,iface=mill0"));
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++) {
        assert_int_equal(sigaction(i, NULL, &action), 0);
        assert_true(action.sa_handler == SIG_DFL);
    }
    sigfillset(&all);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &all, &before), 0);
    memset(frame, 0xff, 6);
    mill_store_be16(frame + 12, 0x88b5);
    for (int i = 0; i < 40; i++) {
        peer_send(tap, frame, sizeof(frame));
        assert_int_equal(port_take(tap, 0x88b5, got, sizeof(got), NULL, NULL), sizeof(frame));
    }
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}

/* The sleeping core's descriptor becomes readable with a frame, and stays so until it is read. */
static void test_fd_is_readable_while_frames_wait(void **state)
{
    struct tap_world *tap = *state;
    uint8_t frame[100] = {0};
    static uint8_t got[2048];
    int fd = -1;
    SKIP_WITHOUT_TAP();
    open_port(tap, test_options("net_tap0,iface=mill0"));
    assert_int_equal(mill_port_fds(tap->port, 0, &fd, 1), 1);
    (void)port_take(tap, 0x88b6, got, sizeof(got), NULL, NULL); /* the kernel's own noise */
    memset(frame, 0xff, 6);
    mill_store_be16(frame + 12, 0x88b5);
    peer_send(tap, frame, sizeof(frame));
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 1000), 1);
    assert_int_equal(poll(&wait, 1, 0), 1);
    assert_int_equal(port_take(tap, 0x88b5, got, sizeof(got), NULL, NULL), sizeof(frame));
}

/* Small buffers: a frame comes as linked segments; the driver gives no verdict there, we do. */
static void test_scattered_receive_is_linked_and_verified(void **state)
{
    struct tap_world *tap = *state;
    static uint8_t frame[1400];
    static uint8_t got[1600];
    uint32_t buffers;
    uint32_t flags;
    SKIP_WITHOUT_TAP();
    struct mill_port_options options = test_options("net_tap0,iface=mill0");
    options.rx_buffer_bytes = 256;
    open_port(tap, options);
    assert_true(tap->link->caps.rx_csum_verified);
    /* A sound TCP frame is made by sending one and playing what arrived back. */
    struct mill_ref ref = test_ref(77, 1301);
    send_one(tap, test_tcp_frame(tap->link, broadcast, NULL, 0, &ref, 1));
    assert_int_equal(test_peer_take(tap->peer, frame, sizeof(frame)), TEST_HEADERS_BYTES + 1301);
    for (int bad = 0; bad < 2; bad++) {
        frame[1000] ^= (uint8_t)bad;
        peer_send(tap, frame, TEST_HEADERS_BYTES + 1301);
        assert_int_equal(port_take(tap, 0x0800, got, sizeof(got), &buffers, &flags),
                         TEST_HEADERS_BYTES + 1301);
        assert_memory_equal(got, frame, TEST_HEADERS_BYTES + 1301);
        /* 256 bytes in the first, whose headroom is kept; the driver uses 384 in the others. */
        assert_int_equal(buffers, 4);
        assert_int_equal(flags, bad ? MILL_BUF_CSUM_BAD : MILL_BUF_CSUM_GOOD);
    }
}

static void test_single_receive_carries_verdict(void **state)
{
    struct tap_world *tap = *state;
    static uint8_t frame[1400];
    static uint8_t got[2048];
    uint32_t flags;
    SKIP_WITHOUT_TAP();
    open_port(tap, test_options("net_tap0,iface=mill0"));
    struct mill_ref ref = test_ref(77, 301);
    send_one(tap, test_tcp_frame(tap->link, broadcast, NULL, 0, &ref, 1));
    assert_int_equal(test_peer_take(tap->peer, frame, sizeof(frame)), TEST_HEADERS_BYTES + 301);
    for (int bad = 0; bad < 2; bad++) {
        frame[100] ^= (uint8_t)bad;
        peer_send(tap, frame, TEST_HEADERS_BYTES + 301);
        assert_int_equal(port_take(tap, 0x0800, got, sizeof(got), NULL, &flags),
                         TEST_HEADERS_BYTES + 301);
        assert_int_equal(flags, bad ? MILL_BUF_CSUM_BAD : MILL_BUF_CSUM_GOOD);
    }
}

static void test_counters_match_what_passed(void **state)
{
    struct tap_world *tap = *state;
    uint8_t frame[100] = {0};
    static uint8_t got[2048];
    struct mill_port_counters before;
    struct mill_port_counters after;
    SKIP_WITHOUT_TAP();
    open_port(tap, test_options("net_tap0,iface=mill0"));
    (void)port_take(tap, 0x88b6, got, sizeof(got), NULL, NULL);
    mill_port_counters(tap->port, &before);
    memset(frame, 0xff, 6);
    mill_store_be16(frame + 12, 0x88b5);
    for (int i = 0; i < 10; i++) {
        peer_send(tap, frame, sizeof(frame));
        assert_int_equal(port_take(tap, 0x88b5, got, sizeof(got), NULL, NULL), sizeof(frame));
        struct mill_ref ref = test_ref(0, 100);
        send_one(tap, test_tcp_frame(tap->link, broadcast, NULL, 0, &ref, 1));
    }
    mill_port_counters(tap->port, &after);
    assert_true(after.rx_packets - before.rx_packets >= 10);
    assert_true(after.rx_bytes - before.rx_bytes >= 1000);
    assert_int_equal(after.tx_packets - before.tx_packets, 10);
    assert_int_equal(after.tx_bytes - before.tx_bytes, 10 * (TEST_HEADERS_BYTES + 100));
    assert_int_equal(after.mbufs_used, before.mbufs_used);
    assert_int_equal(after.tx_errors + after.tx_stuck + after.rx_nombuf, 0);
}

/* All buffers held: frames are lost, counted, and receiving goes on when buffers come back. */
static void test_empty_pool_is_counted_and_recovers(void **state)
{
    struct tap_world *tap = *state;
    static struct mill_buf *held[512];
    uint8_t frame[100] = {0};
    static uint8_t got[1600];
    uint32_t count = 0;
    struct mill_port_counters counters;
    struct mill_port_options options = test_options("net_tap0,iface=mill0");
    SKIP_WITHOUT_TAP();
    options.rx_buffers = 255;
    open_port(tap, options);
    memset(frame, 0xff, 6);
    mill_store_be16(frame + 12, 0x88b5);
    for (int i = 0; i < 300; i++) {
        peer_send(tap, frame, sizeof(frame));
        count += tap->link->ops->receive(tap->link->context, held + count, 4);
    }
    mill_port_counters(tap->port, &counters);
    assert_in_range(count, 100, 255);
    assert_true(counters.rx_nombuf > 0);
    assert_int_equal(counters.rx_packets, count);
    for (uint32_t i = 0; i < count; i++) {
        held[i]->free(held[i]);
    }
    (void)port_take(tap, 0x88b6, got, sizeof(got), NULL, NULL);
    peer_send(tap, frame, sizeof(frame));
    assert_int_equal(port_take(tap, 0x88b5, got, sizeof(got), NULL, NULL), sizeof(frame));
}

/* Each queue sends, and together they receive everything once. */
static void test_two_queues_share_one_device(void **state)
{
    struct tap_world *tap = *state;
    static uint8_t got[2048];
    static uint8_t frame[100];
    uint32_t received = 0;
    struct mill_port_options options = test_options("net_tap0,iface=mill0");
    SKIP_WITHOUT_TAP();
    options.queues = 2;
    open_port(tap, options);
    for (uint16_t queue = 0; queue < 2; queue++) {
        int fd = -1;
        struct mill_ref ref = test_ref(0, 100u + queue);
        tap->link = mill_port_link(tap->port, queue);
        send_one(tap, test_tcp_frame(tap->link, broadcast, NULL, 0, &ref, 1));
        assert_int_equal(test_peer_take(tap->peer, got, sizeof(got)),
                         TEST_HEADERS_BYTES + 100u + queue);
        assert_int_equal(mill_port_fds(tap->port, queue, &fd, 1), 1);
        assert_true(fd >= 0);
    }
    memset(frame, 0xff, 6);
    mill_store_be16(frame + 12, 0x88b5);
    for (int i = 0; i < 8; i++) {
        peer_send(tap, frame, sizeof(frame));
    }
    for (int i = 0; i < 1000 && received < 8; i++) {
        struct mill_buf *in;
        tap->link = mill_port_link(tap->port, i & 1);
        if (tap->link->ops->receive(tap->link->context, &in, 1) == 1) {
            (void)test_take(in, got, sizeof(got), NULL);
            received += mill_load_be16(got + 12) == 0x88b5;
        } else {
            usleep(500);
        }
    }
    assert_int_equal(received, 8);
    assert_int_equal(tap->world.loans.loaned_bytes, 0);
}

static void test_missing_things_are_named_with_remedy(void **state)
{
    struct tap_world *tap = *state;
    struct mill_report report;
    struct mill_port *port = NULL;
    SKIP_WITHOUT_TAP();
    struct mill_port_options options = test_options("net_tap0,iface=mill0");
    options.netns = "mill-port-none";
    assert_int_equal(
        mill_port_open(&options, &tap->world.arena, tap->world.loans_of, &port, &report), -ENOENT);
    assert_non_null(strstr(report.text, "dpdk port nic0"));
    assert_non_null(strstr(report.text, "ip netns add mill-port-none"));
    /* A single-queue TAP of that name. */
    assert_int_equal(test_run("ip -n " NETNS " tuntap add dev mill1 mode tap"), 0);
    options = test_options("net_tap1,iface=mill1");
    options.netns = NETNS;
    assert_true(mill_port_open(&options, &tap->world.arena, tap->world.loans_of, &port, &report) <
                0);
    assert_non_null(strstr(report.text, "mill1"));
    assert_non_null(strstr(report.text, "ip tuntap add dev mill1 mode tap multi_queue"));
    options = test_options("net_tap0,iface=mill0");
    options.netns = NETNS;
    options.mtu = 9000;
    assert_int_equal(
        mill_port_open(&options, &tap->world.arena, tap->world.loans_of, &port, &report), -EINVAL);
    assert_non_null(strstr(report.text, "mtu 9000"));
    assert_non_null(strstr(report.text, "dpdk.port.nic0.mtu"));
    /* Nothing half started: the same device opens now. */
    open_port(tap, test_options("net_tap0,iface=mill0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ping_from_kernel_is_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mac_is_not_the_kernels_and_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pieces_arrive_equal_with_right_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(tap_oversize_no_deadlock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_down_interface_drops_after_bounded_calls, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_receive_needs_no_signal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fd_is_readable_while_frames_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scattered_receive_is_linked_and_verified, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_single_receive_carries_verdict, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counters_match_what_passed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty_pool_is_counted_and_recovers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_queues_share_one_device, setup, teardown),
        cmocka_unit_test_setup_teardown(test_missing_things_are_named_with_remedy, setup, teardown),
    };
    can_tap = test_can_tap(NETNS);
    if (can_tap && test_eal_start("mill-test-tap") < 0) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mill_eal_stop();
    return failed;
}
