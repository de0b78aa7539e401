/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the steering program tells the broker's packets from all others. Method: the object named
 * by the first argument, as the driver loads it, packet by packet in the running kernel; each run
 * must give the expected action and raise one counter by one. steer_mutants.py runs it over broken
 * ones. */
#include "tests/unit/test.h"

#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <sys/socket.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/compiler.h"
#include "bpf/steer.h"

enum {
    BROKER_PORT = 9092,
    SECOND_PORT = 9093,
    FEED_PORT = 5000,
    OWN_FIRST = 61000,
    OWN_LAST = 61010,
    CPUS_MAX = 256,
    SYN_BURST = 5,
    OPTIONS_BYTES = 8,
    UDP_BYTES = 8,
};

#define BROKER "192.0.2.1"
#define OTHER  "192.0.2.9"
#define GROUP  "239.1.2.3"
#define CLIENT "192.0.2.2"

struct frame {
    struct ethhdr ethernet;
    struct iphdr ip;
    struct tcphdr tcp;
    uint8_t more[OPTIONS_BYTES];
} __attribute__((packed));

enum {
    TCP_FRAME_BYTES = sizeof(struct frame) - OPTIONS_BYTES,
    UDP_FRAME_BYTES = sizeof(struct ethhdr) + sizeof(struct iphdr) + UDP_BYTES,
};

static const char *object_path;
static struct bpf_object *object;
static int program_fd;
static int xdp_socket = -1;

static int map(const char *name)
{
    int fd = bpf_object__find_map_fd_by_name(object, name);
    assert_true(fd >= 0);
    return fd;
}

static struct frame frame_to(const char *address, uint16_t port)
{
    struct frame frame = {0};

    frame.ethernet.h_proto = htons(ETH_P_IP);
    frame.ip.version = 4;
    frame.ip.ihl = 5;
    frame.ip.protocol = IPPROTO_TCP;
    frame.ip.saddr = inet_addr(CLIENT);
    frame.ip.daddr = inet_addr(address);
    frame.tcp.dest = htons(port);
    frame.tcp.ack = 1;
    return frame;
}

static uint64_t count_of(enum mill_steer_reason reason)
{
    uint64_t per_cpu[CPUS_MAX] = {0}, sum = 0;
    uint32_t key = reason;

    assert_in_range(libbpf_num_possible_cpus(), 1, CPUS_MAX);
    assert_int_equal(bpf_map_lookup_elem(map("steer_counters"), &key, per_cpu), 0);
    for (size_t i = 0; i < MILL_COUNT_OF(per_cpu); ++i)
        sum += per_cpu[i];
    return sum;
}

/* Runs the program over the frame's first bytes; only this reason must be counted, once. */
static void expect(const struct frame *frame, uint32_t size_bytes, enum mill_steer_reason reason,
                   uint32_t action)
{
    uint8_t out[256];
    uint64_t before[MILL_STEER_REASON_COUNT];
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = size_bytes,
                .data_out = out, .data_size_out = sizeof(out), .repeat = 1);

    for (uint32_t i = 0; i < MILL_STEER_REASON_COUNT; ++i)
        before[i] = count_of(i);
    assert_int_equal(bpf_prog_test_run_opts(program_fd, &run), 0);
    assert_int_equal(run.retval, action);
    for (uint32_t i = 0; i < MILL_STEER_REASON_COUNT; ++i)
        assert_int_equal(count_of(i), before[i] + (i == reason));
}

static void expect_ours(const struct frame *frame, uint32_t size_bytes)
{
    expect(frame, size_bytes, MILL_STEER_redirected, XDP_REDIRECT);
}

static void expect_kernels(const struct frame *frame, uint32_t size_bytes)
{
    expect(frame, size_bytes, MILL_STEER_passed, XDP_PASS);
}

static void configure(uint32_t rate, uint32_t burst)
{
    struct mill_steer_config config = {.address = inet_addr(BROKER),
                                       .port_first = OWN_FIRST,
                                       .port_last = OWN_LAST,
                                       .syn_per_second = rate,
                                       .syn_burst = burst};
    uint32_t first = 0;
    assert_int_equal(bpf_map_update_elem(map("steer_config"), &first, &config, BPF_ANY), 0);
}

static void test_ports_of_listeners_are_ours_others_not(void **state)
{
    static const uint16_t ours[] = {BROKER_PORT, SECOND_PORT, OWN_FIRST, OWN_FIRST + 4, OWN_LAST};
    static const uint16_t kernels[] = {22,        BROKER_PORT - 1, SECOND_PORT + 1,
                                       FEED_PORT, OWN_FIRST - 1,   OWN_LAST + 1};

    (void)state;
    for (size_t i = 0; i < MILL_COUNT_OF(ours); ++i) {
        struct frame frame = frame_to(BROKER, ours[i]);
        expect_ours(&frame, TCP_FRAME_BYTES);
    }
    for (size_t i = 0; i < MILL_COUNT_OF(kernels); ++i) {
        struct frame frame = frame_to(BROKER, kernels[i]);
        expect_kernels(&frame, TCP_FRAME_BYTES);
    }
}

static void test_other_address_is_the_kernels(void **state)
{
    struct frame frame = frame_to(OTHER, BROKER_PORT);

    (void)state;
    expect_kernels(&frame, TCP_FRAME_BYTES);
    frame = frame_to(OTHER, OWN_FIRST); /* the range goes with one address */
    expect_kernels(&frame, TCP_FRAME_BYTES);
}

static void test_feed_group_is_ours_by_udp_only(void **state)
{
    struct frame frame = frame_to(GROUP, FEED_PORT);

    (void)state;
    expect_kernels(&frame, TCP_FRAME_BYTES);
    frame.ip.protocol = IPPROTO_UDP; /* the destination port stands where TCP has it */
    expect_ours(&frame, UDP_FRAME_BYTES);
    frame = frame_to(BROKER, BROKER_PORT);
    frame.ip.protocol = IPPROTO_UDP;
    expect_kernels(&frame, UDP_FRAME_BYTES);
    frame = frame_to(BROKER, OWN_FIRST);
    frame.ip.protocol = IPPROTO_UDP;
    expect_kernels(&frame, UDP_FRAME_BYTES);
}

static void test_other_protocols_are_the_kernels(void **state)
{
    static const uint16_t types[] = {ETH_P_ARP, ETH_P_IPV6, ETH_P_8021Q, ETH_P_8021AD, 0x88b5};
    struct frame frame = frame_to(BROKER, BROKER_PORT);

    (void)state;
    for (size_t i = 0; i < MILL_COUNT_OF(types); ++i) {
        frame.ethernet.h_proto = htons(types[i]);
        expect_kernels(&frame, TCP_FRAME_BYTES);
    }
    frame = frame_to(BROKER, BROKER_PORT);
    for (uint32_t protocol = 0; protocol < 256; ++protocol) {
        frame.ip.protocol = (uint8_t)protocol;
        if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
            expect_kernels(&frame, TCP_FRAME_BYTES);
    }
}

static void test_malformed_is_the_kernels(void **state)
{
    struct frame frame = frame_to(BROKER, BROKER_PORT);

    (void)state;
    for (uint32_t size = sizeof(struct ethhdr) + 1; size < TCP_FRAME_BYTES; ++size)
        expect(&frame, size, MILL_STEER_malformed, XDP_PASS);
    for (uint8_t words = 0; words < 5; ++words) {
        frame.ip.ihl = words & 15u;
        expect(&frame, TCP_FRAME_BYTES, MILL_STEER_malformed, XDP_PASS);
    }
    frame.ip.ihl = 15; /* options that are not there */
    expect(&frame, TCP_FRAME_BYTES, MILL_STEER_malformed, XDP_PASS);
    frame.ip.ihl = 5;
    frame.ip.version = 6;
    expect(&frame, TCP_FRAME_BYTES, MILL_STEER_malformed, XDP_PASS);
    frame = frame_to(GROUP, FEED_PORT);
    frame.ip.protocol = IPPROTO_UDP;
    expect(&frame, UDP_FRAME_BYTES - 1, MILL_STEER_malformed, XDP_PASS);
}

static void test_options_are_skipped(void **state)
{
    struct frame frame = frame_to(BROKER, 22);
    struct tcphdr moved = frame.tcp;

    (void)state;
    /* Where TCP would be without options stands another port. */
    moved.dest = htons(BROKER_PORT);
    frame.ip.ihl = 5 + OPTIONS_BYTES / 4;
    memcpy((uint8_t *)&frame.tcp + OPTIONS_BYTES, &moved, sizeof(moved));
    expect_ours(&frame, sizeof(frame));
    expect(&frame, sizeof(frame) - 1, MILL_STEER_malformed, XDP_PASS);
}

static void test_fragments_are_the_kernels(void **state)
{
    struct frame frame = frame_to(BROKER, BROKER_PORT);

    (void)state;
    frame.ip.frag_off = htons(0x2000); /* the first of several */
    expect(&frame, TCP_FRAME_BYTES, MILL_STEER_fragments, XDP_PASS);
    frame.ip.frag_off = htons(1); /* a later one: no ports in it */
    expect(&frame, TCP_FRAME_BYTES, MILL_STEER_fragments, XDP_PASS);
    frame.ip.frag_off = htons(0x4000); /* do not fragment */
    expect_ours(&frame, TCP_FRAME_BYTES);
}

static void test_queue_without_socket_is_the_kernels(void **state)
{
    struct frame frame = frame_to(BROKER, BROKER_PORT);
    uint32_t queue = 0;

    (void)state;
    assert_int_equal(bpf_map_delete_elem(map("xsks_map"), &queue), 0);
    expect(&frame, TCP_FRAME_BYTES, MILL_STEER_no_socket, XDP_PASS);
    assert_int_equal(bpf_map_update_elem(map("xsks_map"), &queue, &xdp_socket, BPF_ANY), 0);
    expect_ours(&frame, TCP_FRAME_BYTES);
}

static struct frame syn_from(const char *source)
{
    struct frame frame = frame_to(BROKER, BROKER_PORT);
    frame.ip.saddr = inet_addr(source);
    frame.tcp.syn = 1;
    frame.tcp.ack = 0;
    return frame;
}

static void test_syn_limit_is_per_source_and_refills(void **state)
{
    struct frame one = syn_from("192.0.2.10");
    struct frame other = syn_from("192.0.2.11");
    struct frame answer = syn_from("192.0.2.10");

    (void)state;
    configure(2, SYN_BURST); /* one each 500 ms: slower than the test */
    for (int i = 0; i < SYN_BURST; ++i)
        expect_ours(&one, TCP_FRAME_BYTES);
    for (int i = 0; i < 3; ++i)
        expect(&one, TCP_FRAME_BYTES, MILL_STEER_syn_over_limit, XDP_DROP);
    /* Its connections go on, answers to ours come, and others open. */
    one.tcp.syn = 0;
    one.tcp.ack = 1;
    expect_ours(&one, TCP_FRAME_BYTES);
    answer.tcp.ack = 1;
    answer.tcp.dest = htons(OWN_FIRST);
    expect_ours(&answer, TCP_FRAME_BYTES);
    expect_ours(&other, TCP_FRAME_BYTES);
    usleep(600 * 1000);
    one = syn_from("192.0.2.10");
    expect_ours(&one, TCP_FRAME_BYTES);
    expect(&one, TCP_FRAME_BYTES, MILL_STEER_syn_over_limit, XDP_DROP);
}

static void test_syn_limit_zero_is_none(void **state)
{
    struct frame frame = syn_from("192.0.2.12");

    (void)state;
    configure(0, 1);
    for (int i = 0; i < 100; ++i)
        expect_ours(&frame, TCP_FRAME_BYTES);
}

static void add_target(const char *address, uint16_t port, uint8_t protocol)
{
    struct mill_steer_target target = {inet_addr(address), htons(port), protocol, 0};
    uint8_t one = 1;
    assert_int_equal(bpf_map_update_elem(map("steer_targets"), &target, &one, BPF_ANY), 0);
}

static int load(void **state)
{
    uint32_t queue = 0;

    (void)state;
    object = bpf_object__open_file(object_path, NULL);
    if (object == NULL || bpf_object__load(object) != 0)
        return -1;
    program_fd = bpf_program__fd(bpf_object__find_program_by_name(object, "mill_steer"));
    xdp_socket = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    add_target(BROKER, BROKER_PORT, IPPROTO_TCP);
    add_target(BROKER, SECOND_PORT, IPPROTO_TCP);
    add_target(GROUP, FEED_PORT, IPPROTO_UDP);
    configure(0, 1);
    return bpf_map_update_elem(map("xsks_map"), &queue, &xdp_socket, BPF_ANY);
}

static int unload(void **state)
{
    (void)state;
    bpf_object__close(object);
    close(xdp_socket);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ports_of_listeners_are_ours_others_not),
        cmocka_unit_test(test_other_address_is_the_kernels),
        cmocka_unit_test(test_feed_group_is_ours_by_udp_only),
        cmocka_unit_test(test_other_protocols_are_the_kernels),
        cmocka_unit_test(test_malformed_is_the_kernels),
        cmocka_unit_test(test_options_are_skipped),
        cmocka_unit_test(test_fragments_are_the_kernels),
        cmocka_unit_test(test_queue_without_socket_is_the_kernels),
        cmocka_unit_test(test_syn_limit_is_per_source_and_refills),
        cmocka_unit_test(test_syn_limit_zero_is_none),
    };

    if (argc != 2)
        return 2;
    object_path = argv[1];
    return cmocka_run_group_tests(tests, load, unload);
}
