/* SPDX-License-Identifier: Apache-2.0 */
/* Connections written down in memory that outlives the process, and the peers of a killed one. To
 * each of those goes a SYN: its connection answers with an acknowledgement, wherever our number
 * lies (RFC 5961, 4; RFC 9293, 3.10.7.4), and that belongs to no connection here, so it gets the
 * reset that any stray segment gets, with the very number that the peer expects. Where the 4-tuple
 * lives again, the acknowledgement is a duplicate and changes nothing.
 *
 *   kept: [ one half: this life, by the connection's index ][ the other: what lives before left ]
 *
 * Owner: the net's core; mill_kept_init before it runs. */
#include <string.h>

#include "base/siphash.h"
#include "dataplane/net/internal.h"

enum {
    ROUNDS = 5, /* SYNs to each peer: links come up late, and segments are lost */
    TICK_MS = 10,
    ASKS_PER_TICK = 10,    /* 1,000 a second: half of the resets that we send in one */
    LOOKS_PER_TICK = 1024, /* at places, used or not */
};

static const uint64_t round_ns = 500 * MILL_NS_PER_MS; /* after the first, then twice as long */

static bool is_used(const struct mill_kept_flow *flow)
{
    return atomic_load_explicit(&flow->used, memory_order_acquire) != 0;
}

static void set_used(struct mill_kept_flow *flow, bool used)
{
    atomic_store_explicit(&flow->used, used, memory_order_release);
}

static struct mill_flow_key key_of(const struct mill_kept_flow *flow)
{
    return (struct mill_flow_key){.local = flow->local,
                                  .peer = flow->peer,
                                  .local_port = flow->local_port,
                                  .peer_port = flow->peer_port};
}

static void write_down(struct mill_kept_flow *flow, const struct mill_flow_key *key, bool has_mac,
                       const uint8_t mac[6])
{
    flow->local = key->local;
    flow->peer = key->peer;
    flow->local_port = key->local_port;
    flow->peer_port = key->peer_port;
    flow->has_mac = has_mac;
    memcpy(flow->mac, mac, sizeof(flow->mac));
    set_used(flow, true);
}

static uint32_t used_count(const struct mill_kept_flow *half, uint32_t max)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < max; i++) {
        count += is_used(&half[i]);
    }
    return count;
}

void mill_kept_init(struct mill_net *net)
{
    uint32_t max = net->config.kept_max;
    struct mill_kept_flow *first = net->config.kept;
    if (!first) {
        return;
    }
    bool swap = used_count(first, max) > used_count(first + max, max);
    net->kept_now = swap ? first + max : first;
    net->kept_old = swap ? first : first + max;
    /* The smaller half's go where the others are; a kill in between leaves one in both. */
    for (uint32_t i = 0, to = 0; i < max; i++) {
        struct mill_kept_flow *flow = &net->kept_now[i];
        while (is_used(flow) && to < max && is_used(&net->kept_old[to])) {
            to++;
        }
        if (is_used(flow) && to < max) {
            const struct mill_flow_key key = key_of(flow);
            write_down(&net->kept_old[to], &key, flow->has_mac, flow->mac);
        }
        set_used(flow, false);
    }
    if (used_count(net->kept_old, max) > 0) {
        mill_wheel_arm(&net->wheel, &net->kept_timer, 1);
    }
}

void mill_kept_begin(struct mill_net *net, const struct mill_tcp *tcp)
{
    if (!net->kept_now || tcp->index >= net->config.kept_max) {
        return;
    }
    write_down(&net->kept_now[tcp->index], &tcp->key, tcp->hint_valid, tcp->peer_mac);
}

void mill_kept_end(struct mill_net *net, const struct mill_tcp *tcp)
{
#ifdef MILL_MUTANT_NET_OLD_PEERS_ENDED
    return;
#endif
    if (net->kept_now && tcp->index < net->config.kept_max) {
        set_used(&net->kept_now[tcp->index], false);
    }
}

/* Not what only damaged memory can say: nobody, ourselves, many (224.0.0.0 and above). */
static bool is_host(const struct mill_net *net, uint32_t address)
{
    return address != 0 && address != net->config.address && address < 0xe0000000u;
}

static const uint8_t *target_mac(struct mill_net *net, const struct mill_kept_flow *flow)
{
    const uint8_t *mac = NULL;
    uint32_t next_hop = mill_arp_next_hop(net, flow->peer);
    if (next_hop != 0 && !(net->link->caps.kernel_arp && flow->has_mac)) {
        mac = mill_arp_resolve(net, next_hop);
    }
    return mac || !flow->has_mac ? mac : flow->mac;
}

/* Or asks for the way to the peer. */
static void ask(struct mill_net *net, const struct mill_kept_flow *flow,
                const struct mill_flow_key *key)
{
    const uint8_t *mac = target_mac(net, flow);
    if (!mac) {
        return;
    }
    /* With a timestamp, which some peers want in every segment (RFC 7323, 3.2). */
    struct mill_tcp_fields fields = {
        .key = *key,
        .seq = mill_tcp_isn(net, key),
        .flags = MILL_TCP_SYN,
        .window = UINT16_MAX,
        .options = {.has_mss = true,
                    .mss = (uint16_t)mill_tcp_mss_ours(net),
                    .has_timestamp = true,
                    .ts_value = mill_net_timestamp(net, mill_tcp_ts_offset(net, key))},
    };
    net->counters.old_peers_asked++;
    mill_tcp_send_bare(net, mac, &fields);
}

void mill_kept_timer(struct mill_net *net)
{
    uint32_t max = net->config.kept_max;
    bool last = net->kept_round + 1 == ROUNDS;
    uint32_t asked = 0;
    uint32_t asks_max = ASKS_PER_TICK;
#ifdef MILL_MUTANT_NET_OLD_PEERS_BURST
    asks_max = UINT32_MAX;
#endif
#ifdef MILL_MUTANT_NET_OLD_PEERS_UNASKED
    return;
#endif
    for (uint32_t looks = 0; looks < LOOKS_PER_TICK && asked < asks_max && net->kept_at < max;
         looks++) {
        struct mill_kept_flow *flow = &net->kept_old[net->kept_at++];
        const struct mill_flow_key key = key_of(flow);
        if (!is_used(flow)) {
            continue;
        }
        bool ours = key.local == net->config.address && is_host(net, key.peer) &&
                    !mill_net_knows(net, &key);
#ifdef MILL_MUTANT_NET_OLD_PEERS_ALIVE
        ours = true; /* whether or not the connection lives again */
#endif
        if (ours) {
            ask(net, flow, &key);
            asked++; /* a question for the way to it counts, too */
        }
        if (!ours || last) {
            set_used(flow, false);
        }
    }
    uint64_t wait_ns = TICK_MS * MILL_NS_PER_MS;
    if (net->kept_at == max) {
        if (last) {
            return;
        }
        wait_ns = round_ns << net->kept_round;
        net->kept_round++;
        net->kept_at = 0;
    }
    mill_wheel_arm(&net->wheel, &net->kept_timer, mill_net_tick(net->now_ns + wait_ns));
}
