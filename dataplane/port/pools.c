/* SPDX-License-Identifier: Apache-2.0 */
/* The three pools of a queue. Made at start, never grown. Receive buffers, headers and extent
 * mbufs are apart: an extent mbuf must not come from a pool that a receive queue was given, because
 * drivers compute addresses from the pool. */
#include <errno.h>
#include <stdio.h>

#include <rte_errno.h>

#include "dataplane/port/port_internal.h"

enum {
    NAME_TRIES = 32, /* a pool left by a closed pair keeps its name */
};

static struct rte_mempool *make_pool(struct mill_port_queue *queue, char kind, uint32_t count,
                                     uint16_t private_bytes, uint32_t room_bytes)
{
    char name[RTE_MEMPOOL_NAMESIZE];
    private_bytes = (uint16_t)mill_round_up(private_bytes, RTE_MBUF_PRIV_ALIGN);
    for (uint32_t i = 0; i < NAME_TRIES; i++) {
        snprintf(name, sizeof(name), "mill%u.%u.%c%u", queue->port_id, queue->queue_id, kind, i);
        struct rte_mempool *pool = rte_pktmbuf_pool_create(
            name, count, MILL_PORT_CACHE, private_bytes, (uint16_t)room_bytes, (int)SOCKET_ID_ANY);
        if (pool != NULL || rte_errno != EEXIST) {
            return pool;
        }
    }
    return NULL;
}

int mill_port_pools_create(struct mill_port *port, struct mill_port_queue *queue,
                           struct mill_report *report)
{
    uint32_t rx_count =
        port->options.rx_buffers > 0 ? port->options.rx_buffers : (uint32_t)MILL_PORT_RX_BUFFERS;
    rx_count += port->driver->rx_held;
    queue->header_room = MILL_MAX((uint32_t)MILL_FRAME_HEADER_BYTES_MAX, queue->frame_bytes_max);
    bool receives = queue->queue_id < port->rx_queues;
    if (receives) {
        queue->rx_pool = make_pool(queue, 'r', rx_count, sizeof(struct mill_buf),
                                   RTE_PKTMBUF_HEADROOM + mill_port_rx_room(port));
    }
    queue->header_pool = make_pool(queue, 'h', MILL_PORT_TX_FRAMES, sizeof(struct mill_port_header),
                                   RTE_PKTMBUF_HEADROOM + queue->header_room);
    queue->ext_pool = make_pool(queue, 'x', MILL_PORT_TX_PIECES, sizeof(struct mill_port_ext), 0);
    if ((receives && queue->rx_pool == NULL) || queue->header_pool == NULL ||
        queue->ext_pool == NULL) {
        return mill_fail(report, -ENOMEM,
                         "%u receive buffers and %d transmit buffers per queue do not fit; raise "
                         "dpdk.memory.mb or use fewer queues",
                         rx_count, MILL_PORT_TX_FRAMES + MILL_PORT_TX_PIECES);
    }
    rte_mempool_obj_iter(queue->ext_pool, mill_port_ext_init, queue);
    port->mbufs_total += MILL_PORT_TX_FRAMES + MILL_PORT_TX_PIECES;
    if (!receives) {
        return 0;
    }
    port->mbufs_total += rx_count;
    if (port->driver->one_chunk && queue->rx_pool->nb_mem_chunks != 1) {
        return mill_fail(report, -ENOMEM,
                         "receive pool lies in %u pieces of memory and %s needs it in one; remove "
                         "--iova-mode from dpdk.eal.args",
                         queue->rx_pool->nb_mem_chunks, port->driver->prefix);
    }
    return 0;
}

bool mill_port_pool_free(struct rte_mempool *pool)
{
    if (pool != NULL && rte_mempool_in_use_count(pool) != 0) {
        return false;
    }
    rte_mempool_free(pool);
    return true;
}
