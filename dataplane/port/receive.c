/* SPDX-License-Identifier: Apache-2.0 */
/* Mbufs to buffers: each segment of a received frame becomes a struct mill_buf in its own private
 * area, linked in order. Nothing is copied and nothing in the bytes is written: on net_ring they
 * may be the sender's log. Owner core only. */
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include "base/byteorder.h"
#include "dataplane/port/csum.h"
#include "dataplane/port/gate.h"
#include "dataplane/port/port_internal.h"

static void buf_free(struct mill_buf *buf)
{
    rte_pktmbuf_free_seg(buf->owner);
}

/* Copies bytes of a frame that may lie across segments; false past the end. */
static bool peek(const struct rte_mbuf *mbuf, uint32_t from, uint32_t size_bytes, void *ret_bytes)
{
    const void *at;
    if (from + size_bytes > mbuf->pkt_len) {
        return false;
    }
    at = rte_pktmbuf_read(mbuf, from, size_bytes, ret_bytes);
    if (at != ret_bytes) {
        memcpy(ret_bytes, at, size_bytes);
    }
    return true;
}

/* Sums size_bytes of the frame from a position on. */
static void sum_run(const struct rte_mbuf *mbuf, uint32_t from, uint32_t size_bytes,
                    struct mill_csum *csum)
{
    for (; mbuf != NULL && size_bytes > 0; mbuf = mbuf->next) {
        if (from >= mbuf->data_len) {
            from -= mbuf->data_len;
            continue;
        }
        uint32_t part = MILL_MIN((uint32_t)mbuf->data_len - from, size_bytes);
        mill_csum_add(csum, rte_pktmbuf_mtod_offset(mbuf, const uint8_t *, from), part);
        size_bytes -= part;
        from = 0;
    }
}

/* The caps promise a verdict on IPv4 and TCP sums; a driver may give none for one frame (net_tap
 * for one of several segments). Frames that are no sound TCP over IPv4 get no verdict: net refuses
 * them by their lengths. */
static uint32_t verify(const struct rte_mbuf *mbuf)
{
    uint8_t ipv4[60];
    struct mill_csum csum = {0};
    uint8_t pseudo[12] = {0};
    uint8_t type[2];
    if (!peek(mbuf, 12, sizeof(type), type) || mill_load_be16(type) != RTE_ETHER_TYPE_IPV4 ||
        !peek(mbuf, MILL_PORT_ETHERNET_BYTES, 20, ipv4)) {
        return 0;
    }
    uint32_t l3_bytes = (ipv4[0] & 0x0fu) * 4u;
    uint32_t total = mill_load_be16(ipv4 + 2);
    if (ipv4[0] >> 4 != 4 || l3_bytes < 20 || total < l3_bytes ||
        total + MILL_PORT_ETHERNET_BYTES > mbuf->pkt_len || ipv4[9] != IPPROTO_TCP ||
        !peek(mbuf, MILL_PORT_ETHERNET_BYTES, l3_bytes, ipv4)) {
        return 0;
    }
    mill_csum_add(&csum, ipv4, l3_bytes);
    if (mill_csum_end(&csum) != 0) {
        return MILL_BUF_CSUM_BAD;
    }
    csum = (struct mill_csum){0};
    memcpy(pseudo, ipv4 + 12, 8);
    pseudo[9] = IPPROTO_TCP;
    mill_store_be16(pseudo + 10, (uint16_t)(total - l3_bytes));
    mill_csum_add(&csum, pseudo, sizeof(pseudo));
    sum_run(mbuf, MILL_PORT_ETHERNET_BYTES + l3_bytes, total - l3_bytes, &csum);
    return mill_csum_end(&csum) == 0 ? MILL_BUF_CSUM_GOOD : MILL_BUF_CSUM_BAD;
}

static uint32_t csum_flags(const struct mill_port_queue *queue, const struct rte_mbuf *mbuf)
{
    uint64_t ip = mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    uint64_t l4 = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    if (!queue->link.caps.rx_csum_verified) {
        return 0;
    }
    if (ip == RTE_MBUF_F_RX_IP_CKSUM_BAD || l4 == RTE_MBUF_F_RX_L4_CKSUM_BAD) {
        return MILL_BUF_CSUM_BAD;
    }
    if (ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD && l4 == RTE_MBUF_F_RX_L4_CKSUM_GOOD) {
        return MILL_BUF_CSUM_GOOD;
    }
    return verify(mbuf);
}

/* Shows one frame as linked buffers; the mbufs are single from here on. */
static struct mill_buf *show(const struct mill_port_queue *queue, struct rte_mbuf *mbuf)
{
    struct mill_buf *first = rte_mbuf_to_priv(mbuf);
    struct mill_buf *previous = NULL;
    uint32_t flags = csum_flags(queue, mbuf);
    uint32_t hash = (mbuf->ol_flags & RTE_MBUF_F_RX_RSS_HASH) != 0 ? mbuf->hash.rss : 0;
    while (mbuf != NULL) {
        struct rte_mbuf *next = mbuf->next;
        struct mill_buf *buf = rte_mbuf_to_priv(mbuf);
        buf->next = NULL;
        buf->data = rte_pktmbuf_mtod(mbuf, uint8_t *);
        buf->size_bytes = mbuf->data_len;
        /* The true cost: small frames hold a whole buffer. */
        buf->charge_bytes = mbuf->pool->elt_size;
        buf->flags = flags;
        buf->hash = hash;
        buf->free = buf_free;
        buf->owner = mbuf;
        if (previous != NULL) {
            previous->next = buf;
        }
        previous = buf;
        mbuf->next = NULL;
        mbuf->nb_segs = 1;
        mbuf = next;
        flags = 0;
    }
    return first;
}

uint32_t mill_port_receive(void *link, struct mill_buf **ret_frames, uint32_t max)
{
    struct mill_port_queue *queue = link;
    struct rte_mbuf *mbufs[MILL_PORT_BURST];
    uint32_t frames = 0;
    uint64_t bytes = 0;
    /* Frames the driver refused last time go first: nothing else may call send for a while. */
    if (MILL_UNLIKELY(queue->pending_count > 0)) {
        (void)mill_port_flush(queue);
    }
    mill_port_returns_take(queue);
    mill_port_guests_take(queue);
    if (queue->rx_pool == NULL || MILL_UNLIKELY(!mill_gate_enter(queue))) {
        return 0;
    }
    while (frames < max) {
        uint16_t wanted = (uint16_t)MILL_MIN(max - frames, (uint32_t)MILL_PORT_BURST);
        uint16_t count = rte_eth_rx_burst(queue->port_id, queue->queue_id, mbufs, wanted);
        for (uint16_t i = 0; i < count; i++) {
            rte_prefetch0(rte_pktmbuf_mtod(mbufs[i], void *));
        }
        for (uint16_t i = 0; i < count; i++) {
            bytes += mbufs[i]->pkt_len;
            ret_frames[frames++] = show(queue, mbufs[i]);
        }
        if (count < wanted) {
            break;
        }
    }
    mill_gate_leave(queue);
    if (frames > 0) {
        mill_port_count(&queue->rx_packets, frames);
        mill_port_count(&queue->rx_bytes, bytes);
    }
    return frames;
}

const struct mill_link_ops mill_port_link_ops = {
    .receive = mill_port_receive,
    .frame_get = mill_port_frame_get,
    .frame_put = mill_port_frame_put,
    .send = mill_port_send,
    .neighbour = mill_port_link_neighbour,
};
