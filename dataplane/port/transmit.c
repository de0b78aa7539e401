/* SPDX-License-Identifier: Apache-2.0 */
/* Frames to mbufs to the driver. A frame becomes one header mbuf and, per reference, mbufs that
 * show the extent in place; each of those holds one loan until it is freed. What the driver lacks
 * is done here: sums, and one buffer in place of a chain. Owner core only; no system call of our
 * own, no allocation but from the queue's pools, no lock.
 *
 *   frame_get -> net writes headers, names references -> send -> pending (<= one burst) -> driver
 *
 * A frame that was taken is sent or dropped with a counter, in order; the driver's short bursts are
 * kept in `pending` and offered again at the next call of the queue.
 */
#include <errno.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <rte_tcp.h>

#include "dataplane/port/csum.h"
#include "dataplane/port/gate.h"
#include "dataplane/port/port_internal.h"

enum {
    FILLER_BYTES = 60, /* shortest Ethernet frame, without its sum */
};

static inline struct rte_mbuf *frame_mbuf(struct mill_frame *frame)
{
    struct mill_port_header *header = MILL_CONTAINER_OF(frame, struct mill_port_header, frame);
    return (struct rte_mbuf *)(void *)((uint8_t *)header - sizeof(struct rte_mbuf));
}

/* --- loans --------------------------------------------------------------------------------------
 */

static void give_back(struct mill_port_queue *queue, const struct mill_ref *ref)
{
    mill_port_count(&queue->pinned, UINT64_MAX); /* one less */
    mill_loan_give(queue->loans, ref);
}

/* The driver, or on net_ring the receiver, is done with one extent mbuf. */
static void ext_free(void *address, void *opaque)
{
    struct mill_port_ext *ext = opaque;
    struct mill_port_queue *queue = ext->queue;
    MILL_UNUSED(address);
#ifdef MILL_MUTANT_PORT_LOAN_LEAK
    if (ext->ref.pos_bytes % 3 == 0) {
        return;
    }
#endif
    if (queue->returns != NULL) {
        /* Whoever frees may run on another thread, and loans are plain integers of the owner. The
         * ring holds as many as there are extent mbufs, so it is never full. */
        struct mill_port_return back = {.ref = ext->ref};
        MILL_ASSERT_EQ(rte_ring_enqueue_elem(queue->returns, &back, sizeof(back)), 0);
        return;
    }
    give_back(queue, &ext->ref);
}

void mill_port_returns_take(struct mill_port_queue *queue)
{
    struct mill_port_return back[MILL_PORT_BURST];
    unsigned int count;
    if (queue->returns == NULL) {
        return;
    }
    do {
        count = rte_ring_dequeue_burst_elem(queue->returns, back, sizeof(back[0]), MILL_PORT_BURST,
                                            NULL);
        for (unsigned int i = 0; i < count; i++) {
            give_back(queue, &back[i].ref);
        }
    } while (count == MILL_PORT_BURST);
}

void mill_port_ext_init(struct rte_mempool *pool, void *queue, void *object, unsigned int index)
{
    struct mill_port_ext *ext = rte_mbuf_to_priv(object);
    MILL_UNUSED(pool);
    MILL_UNUSED(index);
    memset(ext, 0, sizeof(*ext));
    ext->queue = queue;
    ext->shinfo.free_cb = ext_free;
    ext->shinfo.fcb_opaque = ext;
    rte_mbuf_ext_refcnt_set(&ext->shinfo, 1);
}

/* --- frames -------------------------------------------------------------------------------------
 */

struct mill_frame *mill_port_frame_get(void *link)
{
    struct mill_port_queue *queue = link;
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(queue->header_pool);
    if (MILL_UNLIKELY(mbuf == NULL)) {
        mill_port_count(&queue->frames_empty, 1);
        return NULL;
    }
    struct mill_port_header *header = rte_mbuf_to_priv(mbuf);
    struct mill_frame *frame = &header->frame;
    frame->header = rte_pktmbuf_mtod(mbuf, uint8_t *);
    frame->header_capacity = queue->header_room;
    frame->header_bytes = 0;
    frame->pieces_bytes = 0;
    frame->pieces_count = 0;
    frame->segment_bytes = 0;
    frame->l2_bytes = 0;
    frame->l3_bytes = 0;
    frame->l4_bytes = 0;
    frame->flags = 0;
    return frame;
}

void mill_port_frame_put(void *link, struct mill_frame *frame)
{
    MILL_UNUSED(link);
    rte_pktmbuf_free(frame_mbuf(frame));
}

/* A frame that no driver of this port could send. It stands before the burst, because net_tap
 * stops at such a frame for ever. */
static bool frame_is_sound(const struct mill_port_queue *queue, const struct mill_frame *frame)
{
    uint64_t sum = 0;
    MILL_DASSERT(frame->pieces_count <= MILL_FRAME_PIECES_MAX);
    for (uint16_t i = 0; i < frame->pieces_count; i++) {
        const struct mill_ref *ref = &frame->pieces[i];
        uint64_t end = ((uint64_t)ref->extent << MILL_EXTENT_UNIT_SHIFT) + ref->pos_bytes;
        if (ref->size_bytes == 0 || end + ref->size_bytes > queue->arena_bytes) {
            return false;
        }
        sum += ref->size_bytes;
    }
    uint64_t limit = queue->frame_bytes_max;
#ifdef MILL_MUTANT_PORT_OVERSIZE
    limit = UINT16_MAX;
#endif
    /* caps.tso_bytes_max is 0: a frame that wants to be segmented was never asked for. */
    return sum == frame->pieces_bytes && frame->header_bytes >= MILL_PORT_ETHERNET_BYTES &&
           frame->header_bytes <= frame->header_capacity && frame->header_bytes + sum <= limit &&
           (frame->flags & MILL_FRAME_TSO) == 0;
}

/* Bytes from address to where a huge page may end, at most one mbuf's worth. */
static inline uint32_t run_bytes(const uint8_t *address, uint32_t size_bytes)
{
    uint32_t page = MILL_PORT_PAGE_BYTES - (uint32_t)((uintptr_t)address % MILL_PORT_PAGE_BYTES);
#ifdef MILL_MUTANT_PORT_PAGE_BORDER
    page = size_bytes;
#endif
    uint32_t run = MILL_MIN(size_bytes, page);
    return MILL_MIN(run, (uint32_t)MILL_PORT_EXTBUF_MAX);
}

static uint32_t segments_of(const struct mill_port_queue *queue, const struct mill_frame *frame)
{
    uint32_t count = 1;
    for (uint16_t i = 0; i < frame->pieces_count; i++) {
        const uint8_t *at = mill_ref_data(queue->arena_base, &frame->pieces[i]);
        for (uint32_t left = frame->pieces[i].size_bytes; left > 0; count++) {
            uint32_t run = run_bytes(at, left);
            at += run;
            left -= run;
        }
    }
    return count;
}

/* --- sums ---------------------------------------------------------------------------------------
 */

static void sum_ipv4(const struct mill_frame *frame)
{
    struct mill_csum csum = {0};
    uint8_t *ipv4 = frame->header + frame->l2_bytes;
    mill_csum_add(&csum, ipv4, frame->l3_bytes);
    uint16_t sum = mill_csum_end(&csum);
    memcpy(ipv4 + offsetof(struct rte_ipv4_hdr, hdr_checksum), &sum, sizeof(sum));
}

/* Copies the references behind the headers, for drivers that cannot follow a chain, and sums them
 * in the same pass when a sum is wanted. A header mbuf has room for a whole frame. */
static void linearise(struct mill_port_queue *queue, const struct mill_frame *frame,
                      struct rte_mbuf *mbuf, struct mill_csum *csum)
{
    uint8_t *to = frame->header + frame->header_bytes;
    MILL_DASSERT(frame->header_bytes + frame->pieces_bytes <= queue->header_room);
    for (uint16_t i = 0; i < frame->pieces_count; i++) {
        const struct mill_ref *ref = &frame->pieces[i];
        const uint8_t *from = mill_ref_data(queue->arena_base, ref);
        if (csum != NULL) {
            mill_csum_copy(csum, to, from, ref->size_bytes);
        } else {
            memcpy(to, from, ref->size_bytes);
        }
        to += ref->size_bytes;
    }
    mbuf->data_len = (uint16_t)(frame->header_bytes + frame->pieces_bytes);
    mill_port_count(&queue->bytes_linearised, frame->pieces_bytes);
#ifdef MILL_MUTANT_PORT_LINEARISE_TWICE
    mill_port_count(&queue->bytes_linearised, frame->pieces_bytes);
#endif
}

/* The field holds the pseudo-header's part, so that the sum over header and payload is whole.
 * chain: the references stay where they are; else they are copied on the way. */
static void sum_tcp(struct mill_port_queue *queue, const struct mill_frame *frame,
                    struct rte_mbuf *mbuf, bool chain)
{
    struct mill_csum csum = {0};
    uint32_t start = (uint32_t)frame->l2_bytes + frame->l3_bytes;
    uint8_t *tcp = frame->header + start;
    mill_csum_add(&csum, tcp, frame->header_bytes - start);
    if (!chain) {
        linearise(queue, frame, mbuf, &csum);
    }
    for (uint16_t i = 0; chain && i < frame->pieces_count; i++) {
        const struct mill_ref *ref = &frame->pieces[i];
        mill_csum_add(&csum, mill_ref_data(queue->arena_base, ref), ref->size_bytes);
    }
    uint16_t sum = mill_csum_end(&csum);
    memcpy(tcp + offsetof(struct rte_tcp_hdr, cksum), &sum, sizeof(sum));
}

/* Sums, by the card or here, and with chain unset all bytes in the one mbuf. */
static void fill(struct mill_port_queue *queue, const struct mill_frame *frame,
                 struct rte_mbuf *mbuf, bool chain)
{
    bool sum = (frame->flags & MILL_FRAME_CSUM_TCP) != 0 && !queue->no_tcp_sum;
    mbuf->l2_len = frame->l2_bytes & 0x7fu;
    mbuf->l3_len = frame->l3_bytes;
    mbuf->l4_len = frame->l4_bytes;
    if ((frame->flags & MILL_FRAME_CSUM_IPV4) != 0) {
        mbuf->ol_flags |= RTE_MBUF_F_TX_IPV4;
        if (queue->offload_ipv4) {
            mbuf->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
        } else {
            sum_ipv4(frame);
        }
    }
    if (sum && !queue->offload_tcp) {
        sum_tcp(queue, frame, mbuf, chain);
    } else {
        if (sum) {
            mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM | RTE_MBUF_F_TX_IPV4;
        }
        if (!chain) {
            linearise(queue, frame, mbuf, NULL);
        }
    }
}

/* --- building -----------------------------------------------------------------------------------
 */

static void attach(struct mill_port_queue *queue, const struct mill_frame *frame,
                   struct rte_mbuf *mbuf, struct rte_mbuf **exts)
{
    struct rte_mbuf *last = mbuf;
    uint16_t segments = 1;
    for (uint16_t i = 0; i < frame->pieces_count; i++) {
        struct mill_ref ref = frame->pieces[i];
        for (uint32_t left = ref.size_bytes; left > 0; segments++) {
            uint8_t *at = mill_ref_data(queue->arena_base, &ref);
            struct rte_mbuf *part = exts[segments - 1];
            struct mill_port_ext *ext = rte_mbuf_to_priv(part);
            ref.size_bytes = run_bytes(at, left);
            ext->ref = ref;
            mill_loan_take(queue->loans, &ref);
            mill_port_count(&queue->pinned, 1);
            rte_mbuf_ext_refcnt_set(&ext->shinfo, 1);
            rte_pktmbuf_attach_extbuf(part, at,
                                      queue->arena_iova + (uint64_t)(at - queue->arena_base),
                                      (uint16_t)ref.size_bytes, &ext->shinfo);
            part->data_len = (uint16_t)ref.size_bytes;
            last->next = part;
            last = part;
            left -= ref.size_bytes;
            ref.pos_bytes += ref.size_bytes;
        }
    }
    mbuf->nb_segs = segments;
}

/* Makes the frame's mbuf whole. ret: 0, -EAGAIN no extent mbufs now (frame untouched), -EMSGSIZE
 * it can never be sent. */
static int build(struct mill_port_queue *queue, struct mill_frame *frame)
{
    struct rte_mbuf *mbuf = frame_mbuf(frame);
    struct rte_mbuf *exts[2 * MILL_FRAME_PIECES_MAX + 2];
    if (MILL_UNLIKELY(!frame_is_sound(queue, frame))) {
        return -EMSGSIZE;
    }
    uint32_t segments = segments_of(queue, frame);
    bool chain =
        segments > 1 && segments <= queue->segments_max && segments - 1 <= MILL_COUNT_OF(exts);
#ifdef MILL_MUTANT_PORT_LINEARISE
    chain = false;
#endif
    if (chain && rte_pktmbuf_alloc_bulk(queue->ext_pool, exts, segments - 1) != 0) {
        mill_port_count(&queue->frames_empty, 1);
        return -EAGAIN;
    }
    mbuf->data_len = (uint16_t)frame->header_bytes;
    mbuf->pkt_len = frame->header_bytes + frame->pieces_bytes;
    fill(queue, frame, mbuf, chain);
    if (chain) {
        attach(queue, frame, mbuf, exts);
    }
    return 0;
}

/* --- handing over -------------------------------------------------------------------------------
 */

static void drop_head(struct mill_port_queue *queue, _Atomic uint64_t *counter)
{
    rte_pktmbuf_free(queue->pending[0]);
    queue->pending_count--;
    memmove(queue->pending, queue->pending + 1, queue->pending_count * sizeof(queue->pending[0]));
    mill_port_count(counter, 1);
}

/* One driver call. ret: frames it took. */
static uint16_t offer(struct mill_port_queue *queue)
{
    uint64_t bytes[MILL_PORT_BURST]; /* a taken mbuf may be gone after the call */
    uint64_t sum = 0;
    uint16_t count = queue->pending_count;
    if (queue->handback != NULL) {
        count = mill_port_hand_back(queue);
        queue->pending_count = (uint16_t)(queue->pending_count - count);
        memmove(queue->pending, queue->pending + count,
                queue->pending_count * sizeof(queue->pending[0]));
        return count;
    }
    if (queue->prepare) {
        count = rte_eth_tx_prepare(queue->port_id, queue->queue_id, queue->pending, count);
        if (count == 0) {
            drop_head(queue, &queue->tx_errors); /* the driver's own check refused it */
            return 1;
        }
    }
    for (uint16_t i = 0; i < count; i++) {
        bytes[i] = queue->pending[i]->pkt_len;
    }
    uint16_t taken = rte_eth_tx_burst(queue->port_id, queue->queue_id, queue->pending, count);
    for (uint16_t i = 0; i < taken; i++) {
        sum += bytes[i];
    }
    queue->pending_count = (uint16_t)(queue->pending_count - taken);
    memmove(queue->pending, queue->pending + taken,
            queue->pending_count * sizeof(queue->pending[0]));
    mill_port_count(&queue->tx_packets, taken);
    mill_port_count(&queue->tx_bytes, sum);
    return taken;
}

/* The driver must not be called. Without a peer, frames are lost as on a cable without carrier:
 * TCP sends them again, and no loan waits for a peer that may never come. */
static uint16_t flush_closed(struct mill_port_queue *queue)
{
    uint32_t gate = atomic_load_explicit(&queue->port->gate, memory_order_relaxed);
    while (queue->pending_count > 0 && (gate & MILL_GATE_DOWN) != 0) {
        drop_head(queue, &queue->tx_link_down);
    }
    return queue->pending_count;
}

uint16_t mill_port_flush(struct mill_port_queue *queue)
{
    bool progress = false;
    if (MILL_UNLIKELY(!mill_gate_enter(queue))) {
        return flush_closed(queue);
    }
    while (queue->pending_count > 0 && offer(queue) > 0) {
        progress = true;
    }
    mill_gate_leave(queue);
    if (progress || queue->pending_count == 0) {
        queue->stuck_calls = 0;
#ifndef MILL_MUTANT_PORT_STUCK
    } else if (queue->stops_at_bad && queue->handback == NULL &&
               ++queue->stuck_calls >= MILL_PORT_STUCK_CALLS) {
        queue->stuck_calls = 0;
        drop_head(queue, &queue->tx_stuck);
#endif
    }
    return queue->pending_count;
}

/* To our own address: a switch that knows it drops the frame, a host has no use for its type. */
static struct rte_mbuf *filler(const struct mill_port_queue *queue)
{
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(queue->header_pool);
    if (mbuf != NULL) {
        uint8_t *to = rte_pktmbuf_mtod(mbuf, uint8_t *);
        memset(to, 0, FILLER_BYTES);
        memcpy(to, queue->port->mac, 6);
        memcpy(to + 6, queue->port->mac, 6);
        to[12] = MILL_PORT_FILLER_TYPE >> 8;
        to[13] = MILL_PORT_FILLER_TYPE & 0xff;
        mbuf->data_len = FILLER_BYTES;
        mbuf->pkt_len = FILLER_BYTES;
    }
    return mbuf;
}

uint16_t mill_port_fill(struct mill_port_queue *queue)
{
    struct rte_mbuf *burst[MILL_PORT_BURST];
    uint16_t count = 0;
    while (count < MILL_PORT_BURST && (burst[count] = filler(queue)) != NULL) {
        count++;
    }
    uint16_t taken = rte_eth_tx_burst(queue->port_id, queue->queue_id, burst, count);
    rte_pktmbuf_free_bulk(burst + taken, count - taken);
    mill_port_count(&queue->tx_fillers, taken);
    return taken;
}

uint32_t mill_port_send(void *link, struct mill_frame **frames, uint32_t count)
{
    struct mill_port_queue *queue = link;
    uint32_t taken = 0;
    mill_port_returns_take(queue);
    while (taken < count) {
        if (queue->pending_count == MILL_PORT_BURST && mill_port_flush(queue) == MILL_PORT_BURST) {
            break; /* the rest stays the caller's, in order */
        }
        int code = build(queue, frames[taken]);
        if (code == -EAGAIN) {
            break;
        }
        struct rte_mbuf *mbuf = frame_mbuf(frames[taken]);
        taken++;
        if (MILL_UNLIKELY(code < 0)) {
            rte_pktmbuf_free(mbuf);
            mill_port_count(&queue->tx_errors, 1);
            continue;
        }
        queue->pending[queue->pending_count++] = mbuf;
    }
    if (queue->pending_count > 0) {
        (void)mill_port_flush(queue);
    }
    return taken;
}
