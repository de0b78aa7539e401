/* SPDX-License-Identifier: Apache-2.0 */
/* The steering program in the running kernel, packet by packet. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/compiler.h"
#include "bpf/steer.h"
#include "bpf/steer.skel.h"

enum {
    BROKER_PORT = 9092,
    CPUS_MAX = 256,
};

struct frame {
    struct ethhdr ethernet;
    struct iphdr ip;
    struct tcphdr tcp;
} __attribute__((packed));

static struct mill_steer_bpf *program;

static struct frame frame_to(const char *address, uint16_t port)
{
    struct frame frame = {0};

    frame.ethernet.h_proto = htons(ETH_P_IP);
    frame.ip.version = 4;
    frame.ip.ihl = 5;
    frame.ip.protocol = IPPROTO_TCP;
    frame.ip.saddr = inet_addr("192.0.2.2");
    frame.ip.daddr = inet_addr(address);
    frame.tcp.dest = htons(port);
    frame.tcp.syn = 1;
    return frame;
}

static uint64_t count_of(enum mill_steer_reason reason)
{
    uint64_t per_cpu[CPUS_MAX] = {0}, sum = 0;
    uint32_t key = reason;

    assert_in_range(libbpf_num_possible_cpus(), 1, CPUS_MAX);
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(program->maps.steer_counters), &key, per_cpu),
                     0);
    for (size_t i = 0; i < MILL_COUNT_OF(per_cpu); ++i)
        sum += per_cpu[i];
    return sum;
}

/* Runs the program over the frame's first bytes; the reason must be counted once. */
static void expect(const struct frame *frame, uint32_t size_bytes, enum mill_steer_reason reason,
                   uint32_t action)
{
    uint8_t out[256];
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = size_bytes,
                .data_out = out, .data_size_out = sizeof(out), .repeat = 1);
    uint64_t before = count_of(reason);

    assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(program->progs.mill_steer), &run), 0);
    assert_int_equal(run.retval, action);
    assert_int_equal(count_of(reason), before + 1);
}

static void test_port(void **state)
{
    struct frame frame = frame_to("192.0.2.1", BROKER_PORT);

    (void)state;
    /* No socket in the map of this test: the kernel gets it. */
    expect(&frame, sizeof(frame), MILL_STEER_no_socket, XDP_PASS);
    frame = frame_to("192.0.2.1", BROKER_PORT + 1);
    expect(&frame, sizeof(frame), MILL_STEER_passed, XDP_PASS);
    frame = frame_to("192.0.2.9", BROKER_PORT);
    expect(&frame, sizeof(frame), MILL_STEER_passed, XDP_PASS);
    frame.ip.protocol = IPPROTO_ICMP;
    expect(&frame, sizeof(frame), MILL_STEER_passed, XDP_PASS);
}

static void test_malformed(void **state)
{
    struct frame frame = frame_to("192.0.2.1", BROKER_PORT);

    (void)state;
    for (uint32_t size = sizeof(struct ethhdr) + 1; size < sizeof(frame); ++size)
        expect(&frame, size, MILL_STEER_malformed, XDP_PASS);
    frame.ip.ihl = 4;
    expect(&frame, sizeof(frame), MILL_STEER_malformed, XDP_PASS);
    frame.ip.ihl = 15; /* options that are not there */
    expect(&frame, sizeof(frame), MILL_STEER_malformed, XDP_PASS);
}

static void test_fragment(void **state)
{
    struct frame frame = frame_to("192.0.2.1", BROKER_PORT);

    (void)state;
    frame.ip.frag_off = htons(0x2000);
    expect(&frame, sizeof(frame), MILL_STEER_fragments, XDP_PASS);
    frame.ip.frag_off = htons(1);
    expect(&frame, sizeof(frame), MILL_STEER_fragments, XDP_PASS);
}

static int load(void **state)
{
    struct mill_steer_target target = {inet_addr("192.0.2.1"), htons(BROKER_PORT), IPPROTO_TCP, 0};
    uint8_t one = 1;

    (void)state;
    program = mill_steer_bpf__open_and_load();
    if (program == NULL)
        return -1;
    return bpf_map_update_elem(bpf_map__fd(program->maps.steer_targets), &target, &one, BPF_ANY);
}

static int unload(void **state)
{
    (void)state;
    mill_steer_bpf__destroy(program);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_port),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_fragment),
    };

    return cmocka_run_group_tests(tests, load, unload);
}
