/* SPDX-License-Identifier: Apache-2.0 */
/* Ethernet: frames in from the link, frames out in order. Owner: the net's core. Never blocks: what
 * the link does not take waits here, bounded, and no data is built while too much waits. */
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/net/internal.h"

static void free_frame(struct mill_buf *buf)
{
    while (buf) {
        struct mill_buf *next = buf->next;
        buf->free(buf);
        buf = next;
    }
}

/* Makes the headers contiguous: in place as a rule, by copy when a link split them. */
static void make_view(struct mill_packet *packet, uint8_t scratch[MILL_VIEW_BYTES])
{
    struct mill_buf *first = packet->buf;
    uint32_t want = MILL_MIN(packet->frame_bytes, (uint32_t)MILL_VIEW_BYTES);
    if (MILL_LIKELY(first->size_bytes >= want)) {
        packet->view = first->data;
        packet->view_bytes = want;
        return;
    }
    uint32_t at = 0;
    for (const struct mill_buf *buf = first; at < want; buf = buf->next) {
        uint32_t part = MILL_MIN(want - at, buf->size_bytes);
        memcpy(scratch + at, buf->data, part);
        at += part;
    }
    packet->view = scratch;
    packet->view_bytes = want;
}

void mill_ethernet_input(struct mill_net *net, struct mill_buf *frame)
{
    uint8_t scratch[MILL_VIEW_BYTES];
    struct mill_packet packet = {.buf = frame};
    for (const struct mill_buf *buf = frame; buf; buf = buf->next) {
        packet.frame_bytes += buf->size_bytes;
    }
    net->counters.rx_frames++;
    if (MILL_COUNT_IF(packet.frame_bytes < MILL_ETHERNET_BYTES, net->counters.rx_malformed)) {
        free_frame(frame);
        return;
    }
    make_view(&packet, scratch);
    memcpy(packet.source_mac, packet.view + 6, sizeof(packet.source_mac));
    bool to_us = memcmp(packet.view, net->link->caps.mac, 6) == 0;
    uint16_t ethertype = mill_load_be16(packet.view + 12);
    if (ethertype == MILL_ETHERTYPE_IPV4 && to_us) {
        packet.ip_at = MILL_ETHERNET_BYTES;
        mill_ipv4_input(net, &packet);
    } else if (ethertype == MILL_ETHERTYPE_ARP) {
        mill_arp_input(net, packet.view + MILL_ETHERNET_BYTES,
                       packet.view_bytes - MILL_ETHERNET_BYTES,
                       (frame->flags & MILL_BUF_COPIED) == 0);
    } else {
        net->counters.rx_not_ours++;
    }
    free_frame(packet.buf);
}

struct mill_frame *mill_ethernet_frame(struct mill_net *net, const uint8_t target[6],
                                       uint16_t ethertype)
{
    if (net->tx_count == MILL_NET_TX_PENDING_MAX) {
        mill_ethernet_flush(net);
    }
    struct mill_frame *frame = NULL;
    if (net->tx_count < MILL_NET_TX_PENDING_MAX) {
        frame = net->link->ops->frame_get(net->link->context);
    }
    if (MILL_COUNT_IF(!frame, net->counters.tx_no_frame)) {
        return NULL;
    }
    MILL_DASSERT(frame->header_capacity >= MILL_FRAME_HEADER_BYTES_MAX);
    frame->header_bytes = MILL_ETHERNET_BYTES;
    frame->pieces_bytes = 0;
    frame->pieces_count = 0;
    frame->segment_bytes = 0;
    frame->l2_bytes = MILL_ETHERNET_BYTES;
    frame->l3_bytes = 0;
    frame->l4_bytes = 0;
    frame->flags = 0;
    memcpy(frame->header, target, 6);
    memcpy(frame->header + 6, net->link->caps.mac, 6);
    mill_store_be16(frame->header + 12, ethertype);
    return frame;
}

void mill_ethernet_send(struct mill_net *net, struct mill_frame *frame)
{
    MILL_ASSERT_LT(net->tx_count, (uint32_t)MILL_NET_TX_PENDING_MAX);
    for (uint16_t i = 0; i < frame->pieces_count; i++) {
        mill_loan_take(net->maker.loans, &frame->pieces[i]);
    }
    net->tx[net->tx_count++] = frame;
}

static uint32_t give_loans(struct mill_net *net, struct mill_ref *pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        mill_loan_give(net->maker.loans, &pieces[i]);
    }
    return count;
}

void mill_ethernet_flush(struct mill_net *net)
{
    enum {
        BATCH = 16,
    };
    uint32_t done = 0;
    while (done < net->tx_count) {
        uint32_t batch = MILL_MIN(net->tx_count - done, (uint32_t)BATCH);
        /* A frame is the link's once taken, so its references are noted before. */
        struct mill_ref refs[BATCH * MILL_FRAME_PIECES_MAX];
        uint16_t counts[BATCH];
        uint32_t refs_count = 0;
        for (uint32_t i = 0; i < batch; i++) {
            const struct mill_frame *frame = net->tx[done + i];
            counts[i] = frame->pieces_count;
            for (uint32_t k = 0; k < counts[i]; k++) {
                refs[refs_count++] = frame->pieces[k];
            }
        }
        uint32_t sent = net->link->ops->send(net->link->context, &net->tx[done], batch);
        uint32_t at = 0;
        for (uint32_t i = 0; i < sent; i++) {
            at += give_loans(net, &refs[at], counts[i]);
        }
        net->counters.tx_frames += sent;
        done += sent;
        if (MILL_COUNT_IF(sent < batch, net->counters.tx_short)) {
            break;
        }
    }
    memmove(net->tx, net->tx + done, (net->tx_count - done) * sizeof(net->tx[0]));
    net->tx_count -= done;
}

void mill_ethernet_drop_pending(struct mill_net *net)
{
    for (uint32_t i = 0; i < net->tx_count; i++) {
        give_loans(net, net->tx[i]->pieces, net->tx[i]->pieces_count);
        net->link->ops->frame_put(net->link->context, net->tx[i]);
    }
    net->tx_count = 0;
}
