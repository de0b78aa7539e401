/* SPDX-License-Identifier: Apache-2.0 */
/* Transmit queues shared by cores: where a device has fewer of them than cores, a core without one
 * (guest) builds its frames as any other and hands them to the core that owns a queue (host).
 *
 *   guest: send -> pending -> [SPSC ring] -> host: receive -> pending -> driver
 *
 * Headers and extent mbufs stay the guest's: the driver frees them on the host's thread, headers to
 * their mempool, loans through the guest's ring of returns. A full ring is as a driver that takes
 * nothing. */
#include <errno.h>
#include <stdio.h>

#include <rte_ring.h>

#include "dataplane/port/port_internal.h"

enum {
    HANDBACK_FRAMES = 1024,
};

int mill_port_handback_make(struct mill_port_queue *queue, struct mill_report *report)
{
    char name[RTE_RING_NAMESIZE];
    struct mill_port *port = queue->port;
    queue->host = &port->queues[queue->queue_id % port->tx_queues];
    if (queue->host == queue) {
        return 0;
    }
    snprintf(name, sizeof(name), "mh%p", (void *)queue);
    queue->handback =
        rte_ring_create(name, HANDBACK_FRAMES, (int)SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    return queue->handback != NULL
               ? 0
               : mill_fail(report, -ENOMEM, "no memory for a ring; raise dpdk.memory.mb");
}

uint16_t mill_port_hand_back(struct mill_port_queue *queue)
{
    const struct mill_link_wake *wake = &queue->port->options.wake;
    unsigned int given = rte_ring_sp_enqueue_burst(queue->handback, (void *const *)queue->pending,
                                                   queue->pending_count, NULL);
    if (given > 0 && wake->wake != NULL) {
        wake->wake(wake->context, queue->queue_id, queue->host->queue_id);
    }
    return (uint16_t)given;
}

void mill_port_guests_take(struct mill_port_queue *host)
{
    struct mill_port *port = host->port;
    if (host->handback != NULL || port->tx_queues == port->queues_count) {
        return; /* a guest itself, or there are none */
    }
    for (uint32_t i = host->queue_id + (uint32_t)port->tx_queues; i < port->queues_count;
         i += port->tx_queues) {
        struct mill_port_queue *guest = &port->queues[i];
        uint32_t left =
            HANDBACK_FRAMES; /* all that was there when we came, and no more than that */
        unsigned int taken;
        do {
            if (host->pending_count == MILL_PORT_BURST &&
                mill_port_flush(host) == MILL_PORT_BURST) {
                return; /* the rest waits in the rings, in order */
            }
            uint32_t room = MILL_MIN((uint32_t)(MILL_PORT_BURST - host->pending_count), left);
            taken = rte_ring_sc_dequeue_burst(
                guest->handback, (void **)(host->pending + host->pending_count), room, NULL);
            host->pending_count = (uint16_t)(host->pending_count + taken);
            left -= taken;
        } while (taken > 0 && left > 0);
    }
    if (host->pending_count > 0) {
        (void)mill_port_flush(host);
    }
}

void mill_port_handback_close(struct mill_port_queue *queue)
{
    void *mbuf;
    while (queue->handback != NULL && rte_ring_sc_dequeue(queue->handback, &mbuf) == 0) {
        rte_pktmbuf_free(mbuf);
    }
    rte_ring_free(queue->handback);
    queue->handback = NULL;
}
