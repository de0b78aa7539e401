/* SPDX-License-Identifier: Apache-2.0 */
/* net_ring_pair: two ports of one process, each transmitting into the ring that the other receives
 * from. For tests and the load generator: a client's stack on a thread of its own talks to a broker
 * without a system call. Opened and closed on the main thread.
 *
 *   side 0:  tx -> ring[0][q] -> rx  :side 1
 *   side 0:  rx <- ring[1][q] <- tx  :side 1
 *
 * The rings carry mbufs of the sender. A side that closes while the other is open therefore leaves
 * its pools and itself behind, to be freed when the other closes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eth_ring.h>
#include <rte_memzone.h>
#include <rte_ring.h>

#include "dataplane/port/port_internal.h"

enum {
    PAIR_NAME_MAX = 12, /* fits EAL's names with our prefix */
    PAIR_RING_LENGTH = 1024,
    PAIR_QUEUES_MAX = 16,
};

struct mill_port_pair {
    const struct rte_memzone *zone;
    uint32_t queues_count;
    struct mill_port *open[2];
    struct mill_port *closed[2]; /* waits for the other side */
    struct rte_ring *ring[2][PAIR_QUEUES_MAX];
};

/* What "net_ring_pair:NAME:SIDE[:LENGTH]" says. */
struct pair_spec {
    char name[PAIR_NAME_MAX + 1];
    unsigned int side;
    unsigned int length;
};

static int parse(const struct mill_port *port, struct pair_spec *ret_spec,
                 struct mill_report *report)
{
    struct pair_spec spec = {.length = PAIR_RING_LENGTH};
    char rest;
    int found = sscanf(port->options.device, "net_ring_pair:%12[A-Za-z0-9]:%u:%u%c", spec.name,
                       &spec.side, &spec.length, &rest);
    bool power = spec.length >= 2 && spec.length <= 65536 && (spec.length & (spec.length - 1)) == 0;
    if (found < 2 || found > 3 || spec.side > 1 || !power) {
        return mill_fail(report, -EINVAL,
                         "device %s must be net_ring_pair:NAME:0 or :1, NAME of at most %d letters "
                         "and digits, optionally :LENGTH, a power of two up to 65536",
                         port->options.device, PAIR_NAME_MAX);
    }
    if (port->queues_count > PAIR_QUEUES_MAX) {
        return mill_fail(report, -EINVAL, "net_ring_pair has at most %d queues", PAIR_QUEUES_MAX);
    }
    *ret_spec = spec;
    return 0;
}

static void pair_free(struct mill_port_pair *pair)
{
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < pair->queues_count; i++) {
            rte_ring_free(pair->ring[side][i]);
        }
    }
    (void)rte_memzone_free(pair->zone);
}

static struct mill_port_pair *pair_create(const char *zone_name, const struct pair_spec *spec,
                                          uint16_t queues_count)
{
    const struct rte_memzone *zone =
        rte_memzone_reserve(zone_name, sizeof(struct mill_port_pair), (int)SOCKET_ID_ANY, 0);
    if (zone == NULL) {
        return NULL;
    }
    struct mill_port_pair *pair = zone->addr;
    memset(pair, 0, sizeof(*pair));
    pair->zone = zone;
    pair->queues_count = queues_count;
    for (uint32_t i = 0; i < 2u * queues_count; i++) {
        char name[RTE_RING_NAMESIZE];
        snprintf(name, sizeof(name), "mr%s.%u.%u", spec->name, i & 1, i >> 1);
        struct rte_ring *ring =
            rte_ring_create(name, spec->length, (int)SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
        pair->ring[i & 1][i >> 1] = ring;
        if (ring == NULL) {
            pair_free(pair);
            return NULL;
        }
    }
    return pair;
}

int mill_port_pair_open(struct mill_port *port, struct mill_report *report)
{
    struct pair_spec spec;
    char zone_name[RTE_MEMZONE_NAMESIZE];
    char name[32];
    int code = parse(port, &spec, report);
    if (code < 0) {
        return code;
    }
    snprintf(zone_name, sizeof(zone_name), "mp%s", spec.name);
    const struct rte_memzone *zone = rte_memzone_lookup(zone_name);
    struct mill_port_pair *pair =
        zone != NULL ? zone->addr : pair_create(zone_name, &spec, port->queues_count);
    if (pair == NULL) {
        return mill_fail(report, -ENOMEM, "no memory for the rings of %s; raise dpdk.memory.mb",
                         port->options.device);
    }
    if (pair->open[spec.side] != NULL || pair->closed[spec.side] != NULL) {
        return mill_fail(report, -EEXIST, "side %u of %s was opened already", spec.side,
                         port->options.device);
    }
    if (pair->queues_count != port->queues_count) {
        return mill_fail(report, -EINVAL, "both sides of %s must have %u queues",
                         port->options.device, pair->queues_count);
    }
    snprintf(name, sizeof(name), "%s_%u", spec.name, spec.side);
    mill_eal_log_mark();
    code = rte_eth_from_rings(name, pair->ring[1 - spec.side], port->queues_count,
                              pair->ring[spec.side], port->queues_count, 0);
    if (code < 0) {
        if (pair->open[1 - spec.side] == NULL) {
            pair_free(pair);
        }
        return mill_fail(report, -ENOMEM, "device %s: %s", port->options.device,
                         mill_eal_log_since());
    }
    snprintf(port->device_name, sizeof(port->device_name), "net_ring_%s", name);
    port->port_id = (uint16_t)code;
    port->created = true;
    port->pair = pair;
    pair->open[spec.side] = port;
    return 0;
}

static void drain(struct mill_port_pair *pair, uint32_t side)
{
    for (uint32_t i = 0; i < pair->queues_count; i++) {
        void *mbuf;
        while (rte_ring_dequeue(pair->ring[side][i], &mbuf) == 0) {
            rte_pktmbuf_free(mbuf);
        }
    }
}

struct mill_port *mill_port_pair_close(struct mill_port *port, bool *ret_keep)
{
    struct mill_port_pair *pair = port->pair;
    uint32_t side = pair->open[0] == port ? 0 : 1;
    /* What the other side sent and nobody will read any more. */
    drain(pair, 1 - side);
    pair->open[side] = NULL;
    *ret_keep = pair->open[1 - side] != NULL;
    if (*ret_keep) {
        pair->closed[side] = port;
        return NULL;
    }
    drain(pair, side);
    struct mill_port *other = pair->closed[1 - side];
    pair_free(pair);
    return other;
}
