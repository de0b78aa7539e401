/* SPDX-License-Identifier: Apache-2.0 */
/* ARP (RFC 826, 5227) and the bounded table of neighbours. TCP keeps no packets for a neighbour
 * that is still being asked: its segments are built again from the send queue when the answer
 * comes. Owner: the net's core; time and retries run on the net's wheel. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/net/internal.h"

enum {
    ARP_BYTES = 28,
    ARP_REQUEST = 1,
    ARP_REPLY = 2,
    TRIES = 3,
    KERNEL_TRIES = 150,
};

/* Where the kernel asks: it knows within the link's round trip, and gives up after three seconds.
 */
#define KERNEL_RETRY_NS (20 * MILL_NS_PER_MS)
#define RETRY_NS        (1 * MILL_NS_PER_S)
#define FRESH_NS        (1 * MILL_NS_PER_S) /* no unsolicited change of an entry younger than this */
#define REFRESH_NS      (30 * MILL_NS_PER_S) /* an entry in use is checked after this */
#define FORGET_NS       (300 * MILL_NS_PER_S)
#define FAILED_NS       (1 * MILL_NS_PER_S)  /* nobody asks again before */
#define DEFEND_NS       (10 * MILL_NS_PER_S) /* RFC 5227, DEFEND_INTERVAL */

static const uint8_t mac_broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
static const uint8_t mac_zero[6] = {0};

int mill_arp_init(struct mill_net *net)
{
    uint32_t slots = 16;
    while (slots < 2 * net->config.neighbours_max) {
        slots *= 2;
    }
    net->neighbour_mask = slots - 1;
    net->neighbours = calloc(net->config.neighbours_max, sizeof(*net->neighbours));
    net->neighbour_slots = calloc(slots, sizeof(*net->neighbour_slots));
    return net->neighbours && net->neighbour_slots ? 0 : -ENOMEM;
}

void mill_arp_fini(struct mill_net *net)
{
    free(net->neighbours);
    free(net->neighbour_slots);
}

static uint32_t home_of(const struct mill_net *net, uint32_t address)
{
    uint64_t mixed = (address ^ (uint32_t)net->config.random_seed) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(mixed >> 32) & net->neighbour_mask;
}

static struct mill_neighbour *find(const struct mill_net *net, uint32_t address)
{
    for (uint32_t at = home_of(net, address);; at = (at + 1) & net->neighbour_mask) {
        uint32_t entry = net->neighbour_slots[at];
        if (entry == 0) {
            return NULL;
        }
        if (net->neighbours[entry - 1].address == address) {
            return &net->neighbours[entry - 1];
        }
    }
}

static void forget(struct mill_net *net, struct mill_neighbour *neighbour)
{
    mill_wheel_cancel(&net->wheel, &neighbour->timer);
    uint32_t number = (uint32_t)(neighbour - net->neighbours) + 1;
    uint32_t hole = home_of(net, neighbour->address);
    while (net->neighbour_slots[hole] != number) {
        hole = (hole + 1) & net->neighbour_mask;
    }
    for (uint32_t at = (hole + 1) & net->neighbour_mask; net->neighbour_slots[at] != 0;
         at = (at + 1) & net->neighbour_mask) {
        uint32_t home = home_of(net, net->neighbours[net->neighbour_slots[at] - 1].address);
        if (((at - home) & net->neighbour_mask) >= ((at - hole) & net->neighbour_mask)) {
            net->neighbour_slots[hole] = net->neighbour_slots[at];
            hole = at;
        }
    }
    net->neighbour_slots[hole] = 0;
    neighbour->state = MILL_NEIGHBOUR_FREE;
}

/* A free entry; else the one unused for longest gives way, so that the table stays bounded. The
 * scan is slow and happens only for an address never seen. */
static struct mill_neighbour *add(struct mill_net *net, uint32_t address)
{
    struct mill_neighbour *chosen = &net->neighbours[0];
    for (uint32_t i = 0; i < net->config.neighbours_max; i++) {
        struct mill_neighbour *neighbour = &net->neighbours[i];
        if (neighbour->state == MILL_NEIGHBOUR_FREE) {
            chosen = neighbour;
            break;
        }
        if (neighbour->used_ns < chosen->used_ns) {
            chosen = neighbour;
        }
    }
    if (chosen->state != MILL_NEIGHBOUR_FREE) {
        forget(net, chosen);
    }
    *chosen = (struct mill_neighbour){.address = address, .used_ns = net->now_ns};
    chosen->timer.kind = MILL_TIMER_NEIGHBOUR;
    uint32_t at = home_of(net, address);
    while (net->neighbour_slots[at] != 0) {
        at = (at + 1) & net->neighbour_mask;
    }
    net->neighbour_slots[at] = (uint32_t)(chosen - net->neighbours) + 1;
    return chosen;
}

static void send_arp(struct mill_net *net, uint16_t operation, const uint8_t frame_to[6],
                     const uint8_t target_mac[6], uint32_t target)
{
    struct mill_frame *frame = mill_ethernet_frame(net, frame_to, MILL_ETHERTYPE_ARP);
    if (!frame) {
        return; /* counted; the retry or the peer's next request mends it */
    }
    uint8_t *arp = frame->header + MILL_ETHERNET_BYTES;
    mill_store_be16(arp, 1);
    mill_store_be16(arp + 2, MILL_ETHERTYPE_IPV4);
    arp[4] = 6;
    arp[5] = 4;
    mill_store_be16(arp + 6, operation);
    memcpy(arp + 8, net->link->caps.mac, 6);
    mill_store_be32(arp + 14, net->config.address);
    memcpy(arp + 18, target_mac, 6);
    mill_store_be32(arp + 24, target);
    frame->header_bytes = MILL_ETHERNET_BYTES + ARP_BYTES;
    mill_ethernet_send(net, frame);
}

void mill_arp_announce(struct mill_net *net)
{
    if (!net->link->caps.kernel_arp) {
        send_arp(net, ARP_REQUEST, mac_broadcast, mac_zero, net->config.address);
    }
    net->announced = true;
}

static void arm(struct mill_net *net, struct mill_neighbour *neighbour, uint64_t after_ns)
{
    mill_wheel_arm(&net->wheel, &neighbour->timer, mill_net_tick(net->now_ns + after_ns));
}

static void learn(struct mill_net *net, struct mill_neighbour *neighbour, const uint8_t mac[6],
                  bool solicited)
{
    bool known = neighbour->state == MILL_NEIGHBOUR_KNOWN;
    bool differs = memcmp(neighbour->mac, mac, 6) != 0;
    if (known && differs && !solicited && net->now_ns - neighbour->confirmed_ns < FRESH_NS) {
        return;
    }
    memcpy(neighbour->mac, mac, 6);
    neighbour->state = MILL_NEIGHBOUR_KNOWN;
    neighbour->tries = 0;
    neighbour->confirmed_ns = net->now_ns;
    arm(net, neighbour, FORGET_NS);
    mill_tcp_neighbour_changed(net);
}

static void ask(struct mill_net *net, struct mill_neighbour *neighbour)
{
    bool unicast = neighbour->state == MILL_NEIGHBOUR_CHECKING;
    neighbour->tries++;
    if (net->link->caps.kernel_arp) {
        uint8_t mac[6];
        bool known = net->link->ops->neighbour != NULL &&
                     net->link->ops->neighbour(net->link->context, neighbour->address, mac) == 0;
        arm(net, neighbour, KERNEL_RETRY_NS);
        if (known) {
            learn(net, neighbour, mac, true);
        }
        return;
    }
    send_arp(net, ARP_REQUEST, unicast ? neighbour->mac : mac_broadcast, mac_zero,
             neighbour->address);
    arm(net, neighbour, RETRY_NS);
}

static uint8_t tries_max(const struct mill_net *net)
{
    return net->link->caps.kernel_arp ? KERNEL_TRIES : TRIES;
}

static void defend(struct mill_net *net)
{
    net->counters.arp_conflicts++;
    if (net->defended_ns == 0 || net->now_ns - net->defended_ns >= DEFEND_NS) {
        net->defended_ns = net->now_ns;
        mill_arp_announce(net);
    }
}

void mill_arp_input(struct mill_net *net, const uint8_t *packet, uint32_t size_bytes, bool answers)
{
    bool malformed = size_bytes < ARP_BYTES || mill_load_be16(packet) != 1 ||
                     mill_load_be16(packet + 2) != MILL_ETHERTYPE_IPV4 || packet[4] != 6 ||
                     packet[5] != 4;
    if (MILL_COUNT_IF(malformed, net->counters.rx_malformed)) {
        return;
    }
    uint16_t operation = mill_load_be16(packet + 6);
    const uint8_t *sender_mac = packet + 8;
    uint32_t sender = mill_load_be32(packet + 14);
    uint32_t target = mill_load_be32(packet + 24);
    bool group_mac = (sender_mac[0] & 1) != 0 || memcmp(sender_mac, mac_zero, 6) == 0;
    if (MILL_COUNT_IF(group_mac || (operation != ARP_REQUEST && operation != ARP_REPLY),
                      net->counters.rx_malformed)) {
        return;
    }
    if (sender == net->config.address) {
        if (answers && memcmp(sender_mac, net->link->caps.mac, 6) != 0) {
            defend(net);
        }
        return;
    }
    struct mill_neighbour *neighbour = find(net, sender);
    bool asked_us = operation == ARP_REQUEST && target == net->config.address;
    if (neighbour) {
        bool solicited = operation == ARP_REPLY && (neighbour->state == MILL_NEIGHBOUR_ASKING ||
                                                    neighbour->state == MILL_NEIGHBOUR_CHECKING);
        learn(net, neighbour, sender_mac, solicited);
    } else if (asked_us && sender != 0 && mill_arp_next_hop(net, sender) == sender) {
        learn(net, add(net, sender), sender_mac, true);
    }
    if (asked_us && answers) {
        net->counters.arp_requests_in++;
        send_arp(net, ARP_REPLY, sender_mac, sender_mac, sender);
    }
}

const uint8_t *mill_arp_resolve(struct mill_net *net, uint32_t address)
{
    struct mill_neighbour *neighbour = find(net, address);
    if (!neighbour) {
        neighbour = add(net, address);
        neighbour->state = MILL_NEIGHBOUR_ASKING;
        ask(net, neighbour);
        /* The kernel may know at once. */
        return neighbour->state == MILL_NEIGHBOUR_KNOWN ? neighbour->mac : NULL;
    }
    neighbour->used_ns = net->now_ns;
    if (neighbour->state == MILL_NEIGHBOUR_KNOWN) {
        if (MILL_UNLIKELY(net->now_ns - neighbour->confirmed_ns >= REFRESH_NS)) {
            neighbour->state = MILL_NEIGHBOUR_CHECKING;
            neighbour->tries = 0;
            ask(net, neighbour);
        }
        return neighbour->mac;
    }
    return neighbour->state == MILL_NEIGHBOUR_CHECKING ? neighbour->mac : NULL;
}

bool mill_arp_failed(const struct mill_net *net, uint32_t address)
{
    const struct mill_neighbour *neighbour = find(net, address);
    return neighbour && neighbour->state == MILL_NEIGHBOUR_FAILED;
}

void mill_arp_timer(struct mill_net *net, struct mill_neighbour *neighbour)
{
    switch (neighbour->state) {
    case MILL_NEIGHBOUR_CHECKING:
        if (neighbour->tries >= tries_max(net)) {
            neighbour->state = MILL_NEIGHBOUR_ASKING;
            neighbour->tries = 0;
        }
        ask(net, neighbour);
        break;
    case MILL_NEIGHBOUR_ASKING:
        if (neighbour->tries < tries_max(net)) {
            ask(net, neighbour);
            break;
        }
        neighbour->state = MILL_NEIGHBOUR_FAILED;
        net->counters.arp_unresolved++;
        arm(net, neighbour, FAILED_NS);
        mill_tcp_neighbour_changed(net);
        break;
    default: /* failed long enough, or not confirmed for long */
        forget(net, neighbour);
        break;
    }
}

uint32_t mill_arp_next_hop(const struct mill_net *net, uint32_t address)
{
    uint32_t bits = net->config.prefix_bits;
    uint32_t mask = bits == 0 ? 0 : UINT32_MAX << (32 - bits);
    return ((address ^ net->config.address) & mask) == 0 ? address : net->config.gateway;
}
