/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XDP: packets to the broker's addresses and ports go to the AF_XDP socket of their receive queue,
 * all others pass to the kernel, which keeps the interface's address and answers ARP and ICMP.
 *
 * Ours are whole IPv4 packets without a VLAN tag to an address and port of steer_targets, and TCP
 * to the source ports of connections that the broker opened. ARP, ICMP, IPv6, tagged frames,
 * fragments and everything malformed stay the kernel's: it answers what is to be answered.
 *
 * The AF_XDP driver loads it and puts its sockets into xsks_map, a name that it looks for; the
 * loader (steer_load.c) fills the other maps. Until then steer_targets is empty and everything
 * passes. MILL_MUTANT_STEER_... breaks one branch each: tests/unit/bpf/steer_mutants.py. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/steer.h"

#define NS_PER_S       1000000000ULL
#define FRAGMENT_FIELD 0x3fff /* more fragments, or an offset */

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, MILL_STEER_QUEUES_MAX);
    __type(key, __u32);
    __type(value, __u32);
} xsks_map SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MILL_STEER_TARGETS_MAX);
    __type(key, struct mill_steer_target);
    __type(value, __u8);
} steer_targets SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct mill_steer_config);
} steer_config SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, MILL_STEER_SOURCES_MAX);
    __type(key, __be32);
    __type(value, struct mill_steer_source);
} steer_sources SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, MILL_STEER_REASON_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} steer_counters SEC(".maps");

/* Where the transport's ports are, and what the packet is. */
struct packet {
    __be32 source;
    struct mill_steer_target target;
    int opens; /* a SYN without ACK */
};

static __always_inline int counted(enum mill_steer_reason reason, int action)
{
    __u32 key = reason;
    __u64 *count = bpf_map_lookup_elem(&steer_counters, &key);

    if (count != NULL)
        *count += 1;
    return action;
}

/* ret: MILL_STEER_REASON_COUNT when packet was filled, else why the kernel gets it. */
static __always_inline enum mill_steer_reason parse(void *data, void *end, struct packet *packet)
{
    struct ethhdr *ethernet = data;
    struct iphdr *ip;
    void *transport;

    if ((void *)(ethernet + 1) > end)
        return MILL_STEER_malformed;
    if (ethernet->h_proto != bpf_htons(ETH_P_IP))
        return MILL_STEER_passed;
    ip = (void *)(ethernet + 1);
    if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
        return MILL_STEER_malformed;
    if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
        return MILL_STEER_passed;
#ifndef MILL_MUTANT_STEER_FRAGMENTS
    if ((ip->frag_off & bpf_htons(FRAGMENT_FIELD)) != 0)
        return MILL_STEER_fragments;
#endif
    transport = (void *)ip + ip->ihl * 4;
#ifdef MILL_MUTANT_STEER_OPTIONS
    transport = ip + 1;
#endif
    packet->source = ip->saddr;
    packet->target.address = ip->daddr;
    packet->target.protocol = ip->protocol;
#ifdef MILL_MUTANT_STEER_PROTOCOL
    packet->target.protocol = IPPROTO_TCP;
#endif
    packet->target.zero = 0;
    packet->opens = 0;
    if (ip->protocol == IPPROTO_TCP) {
        struct tcphdr *tcp = transport;

        if ((void *)(tcp + 1) > end)
#ifdef MILL_MUTANT_STEER_TRUNCATED
            return MILL_STEER_passed;
#else
            return MILL_STEER_malformed;
#endif
        packet->target.port = tcp->dest;
        packet->opens = tcp->syn && !tcp->ack;
#ifdef MILL_MUTANT_STEER_SYN_ANSWERS
        packet->opens = tcp->syn;
#endif
    } else {
        struct udphdr *udp = transport;

        if ((void *)(udp + 1) > end)
            return MILL_STEER_malformed;
        packet->target.port = udp->dest;
    }
    return MILL_STEER_REASON_COUNT;
}

static __always_inline int is_ours(const struct packet *packet,
                                   const struct mill_steer_config *config)
{
    __u16 port = bpf_ntohs(packet->target.port);

#ifdef MILL_MUTANT_STEER_ANY_PORT
    if (packet->target.address == bpf_htonl(0xc0000201)) /* the test's */
        return 1;
#endif
    if (bpf_map_lookup_elem(&steer_targets, &packet->target) != NULL)
        return 1;
    return packet->target.protocol == IPPROTO_TCP && config->address != 0 &&
#ifndef MILL_MUTANT_STEER_ANY_ADDRESS
           packet->target.address == config->address &&
#endif
           port >= config->port_first && port <= config->port_last;
}

/* A bucket per source. Two CPUs that serve one source at once may let a SYN too many pass: the
 * limit protects, it does not account. */
static __always_inline int may_open(__be32 source, const struct mill_steer_config *config)
{
    struct mill_steer_source fresh = {0}, *known;
    __u64 now = bpf_ktime_get_ns(), price, most, saved;

#ifdef MILL_MUTANT_STEER_SYN_FREE
    return 1;
#endif
#ifdef MILL_MUTANT_STEER_SYN_SHARED
    source = 0;
#endif
    if (config->syn_per_second == 0)
        return 1;
    price = NS_PER_S / config->syn_per_second;
    most = price * config->syn_burst;
    known = bpf_map_lookup_elem(&steer_sources, &source);
    if (known == NULL) {
        fresh.seen_ns = now;
        fresh.saved_ns = most > price ? most - price : 0;
        bpf_map_update_elem(&steer_sources, &source, &fresh, BPF_ANY);
        return 1;
    }
    saved = known->saved_ns + (now - known->seen_ns);
#ifdef MILL_MUTANT_STEER_SYN_DRY
    saved = known->saved_ns;
#endif
    if (saved > most)
        saved = most;
    known->seen_ns = now;
    if (saved < price) {
        known->saved_ns = saved;
        return 0;
    }
    known->saved_ns = saved - price;
    return 1;
}

SEC("xdp")
int mill_steer(struct xdp_md *context)
{
    void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    struct mill_steer_config *config;
    struct packet packet;
    __u32 first = 0, queue = context->rx_queue_index;
    enum mill_steer_reason reason = parse(data, end, &packet);

    if (reason != MILL_STEER_REASON_COUNT)
        return counted(reason, XDP_PASS);
    config = bpf_map_lookup_elem(&steer_config, &first);
    if (config == NULL || !is_ours(&packet, config))
        return counted(MILL_STEER_passed, XDP_PASS);
#ifndef MILL_MUTANT_STEER_NO_SOCKET
    if (bpf_map_lookup_elem(&xsks_map, &queue) == NULL)
        return counted(MILL_STEER_no_socket, XDP_PASS);
#endif
    if (packet.opens && !may_open(packet.source, config))
        return counted(MILL_STEER_syn_over_limit, XDP_DROP);
    counted(MILL_STEER_redirected, XDP_REDIRECT);
    return (int)bpf_redirect_map(&xsks_map, queue, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
