/* SPDX-License-Identifier: Apache-2.0 */
/* Building segments. A header is written anew for each transmission; payload is references into the
 * log, except for arena bytes and leading pieces below the link's inline threshold, which are
 * copied behind the header. Nothing queued at the link is ever touched again.
 *
 *   frame: [Ethernet|IPv4|TCP|options|arena bytes, small pieces] [reference] [reference] ...
 *
 * Owner: the net's core. */
#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/net/checksum.h"
#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

/* Writes the TCP header and the IPv4 header in front; payload is in the frame already, behind the
 * place for option_bytes of options. */
static void write_headers(struct mill_net *net, struct mill_frame *frame,
                          const struct mill_tcp_fields *fields, uint32_t option_bytes)
{
    uint32_t tcp_bytes = MILL_TCP_BYTES + option_bytes;
    uint32_t at = MILL_ETHERNET_BYTES + MILL_IPV4_BYTES;
    uint32_t segment_bytes = frame->header_bytes - at + frame->pieces_bytes;
    mill_ipv4_header(net, frame, fields->key.peer, MILL_IP_TCP, segment_bytes);
    uint8_t *tcp = frame->header + at;
    mill_store_be16(tcp, fields->key.local_port);
    mill_store_be16(tcp + 2, fields->key.peer_port);
    mill_store_be32(tcp + 4, fields->seq);
    mill_store_be32(tcp + 8, fields->ack);
    tcp[12] = (uint8_t)(tcp_bytes / 4 << 4);
    tcp[13] = fields->flags;
    mill_store_be16(tcp + 14, fields->window);
    mill_store_be16(tcp + 18, 0);
    /* With segmentation offload the card adds each segment's length itself. */
    bool tso = (frame->flags & MILL_FRAME_TSO) != 0;
    uint16_t sum = mill_csum_pseudo(net->config.address, fields->key.peer, MILL_IP_TCP,
                                    tso ? 0 : (uint16_t)segment_bytes);
    memcpy(tcp + 16, &sum, sizeof(sum));
    frame->l4_bytes = (uint8_t)tcp_bytes;
    frame->flags |= MILL_FRAME_CSUM_TCP;
}

void mill_tcp_send_bare(struct mill_net *net, const uint8_t mac[6],
                        const struct mill_tcp_fields *fields)
{
    struct mill_frame *frame = mill_ethernet_frame(net, mac, MILL_ETHERTYPE_IPV4);
    if (!frame) {
        return;
    }
    uint8_t *options = frame->header + MILL_HEADERS_BYTES;
    uint32_t option_bytes = (fields->flags & MILL_TCP_SYN)
                                ? mill_tcp_options_write_syn(options, &fields->options)
                                : mill_tcp_options_write(options, &fields->options);
    frame->header_bytes = MILL_HEADERS_BYTES + option_bytes;
    write_headers(net, frame, fields, option_bytes);
    mill_ethernet_send(net, frame);
}

void mill_tcp_refuse(struct mill_net *net, const struct mill_segment *segment)
{
    if (segment->flags & MILL_TCP_RST) {
        return;
    }
    if (MILL_COUNT_IF(!mill_bucket_take(&net->resets, net->now_ns), net->counters.icmp_limited)) {
        return;
    }
    struct mill_tcp_fields fields = {.key = segment->key, .flags = MILL_TCP_RST};
    if (segment->flags & MILL_TCP_ACK) {
        fields.seq = segment->ack;
    } else {
        fields.flags |= MILL_TCP_ACK;
        fields.ack = segment->seq + segment->payload.size_bytes +
                     ((segment->flags & MILL_TCP_SYN) != 0) +
                     ((segment->flags & MILL_TCP_FIN) != 0);
    }
    net->counters.resets_out++;
    mill_tcp_send_bare(net, segment->mac, &fields);
}

/* The address to send to: the neighbour's, else what the peer's frames came from, which is
 * first where the kernel answers ARP. */
static const uint8_t *target_mac(struct mill_net *net, const struct mill_tcp *tcp)
{
    const uint8_t *mac = NULL;
    if (net->link->caps.kernel_arp && tcp->hint_valid) {
        return tcp->peer_mac;
    }
    if (tcp->next_hop != 0) {
        mac = mill_arp_resolve(net, tcp->next_hop);
    }
    return mac || !tcp->hint_valid ? mac : tcp->peer_mac;
}

/* Fields that every segment of a synchronised connection carries, SACK blocks included. */
static void common_fields(struct mill_net *net, struct mill_tcp *tcp,
                          struct mill_tcp_fields *fields)
{
    fields->key = tcp->key;
    fields->flags |= MILL_TCP_ACK;
    fields->ack = tcp->rcv_nxt;
    fields->window = mill_tcp_window(net, tcp);
    if (tcp->timestamps) {
        fields->options.has_timestamp = true;
        fields->options.ts_value = mill_net_timestamp(net, tcp->ts_offset);
        fields->options.ts_echo = tcp->ts_recent;
    }
    if (tcp->sack_ok && MILL_UNLIKELY(tcp->ooo != NULL)) {
        uint8_t max = tcp->timestamps ? MILL_TCP_SACK_BLOCKS_MAX - 1 : MILL_TCP_SACK_BLOCKS_MAX;
        fields->options.sack_count = mill_tcp_sack_blocks(tcp, fields->options.sack, max);
    }
}

/* What went out carried an acknowledgement: none is owed any more. */
static void acknowledged(struct mill_tcp *tcp)
{
    tcp->last_ack_sent = tcp->rcv_nxt;
    tcp->ack_now = false;
    tcp->ack_due_ns = MILL_NEVER;
}

int mill_tcp_send_empty(struct mill_net *net, struct mill_tcp *tcp, uint32_t seq, uint8_t flags)
{
    const uint8_t *mac = target_mac(net, tcp);
    if (!mac) {
        return -EAGAIN;
    }
    struct mill_frame *frame = mill_ethernet_frame(net, mac, MILL_ETHERTYPE_IPV4);
    if (!frame) {
        return -ENOBUFS;
    }
    struct mill_tcp_fields fields = {.flags = flags, .seq = seq};
    common_fields(net, tcp, &fields);
    uint32_t option_bytes =
        mill_tcp_options_write(frame->header + MILL_HEADERS_BYTES, &fields.options);
    frame->header_bytes = MILL_HEADERS_BYTES + option_bytes;
    write_headers(net, frame, &fields, option_bytes);
    mill_ethernet_send(net, frame);
    acknowledged(tcp);
    return 0;
}

struct fill {
    struct mill_frame *frame;
    uint32_t want_bytes;
    uint32_t got_bytes;
    uint32_t refs_bytes; /* of these by reference or inlined from references */
    uint32_t inlined_bytes;
    uint32_t copied_bytes; /* of references, for no good reason: 0 */
};

/* Copies part of an entry behind the header, as far as it fits. ret: bytes. */
static uint32_t copy_part(struct mill_net *net, const struct mill_send_queue *queue,
                          const struct mill_send_entry *entry, uint32_t skip, uint32_t part,
                          struct mill_frame *frame)
{
    part = MILL_MIN(part, frame->header_capacity - frame->header_bytes);
    uint8_t *to = frame->header + frame->header_bytes;
    if (entry->ref.extent == MILL_SEND_ARENA) {
        mill_send_queue_copy(queue, entry, skip, to, part);
    } else {
        memcpy(to, mill_ref_data(net->maker.arena_base, &entry->ref) + skip, part);
    }
    frame->header_bytes += part;
    return part;
}

/* Fills the frame with queued bytes from seq on: small and arena bytes behind the header while no
 * reference precedes them, then references. Stops where the frame's form does not allow more. */
static void fill_frame(struct mill_net *net, const struct mill_send_queue *queue, uint32_t seq,
                       struct fill *fill)
{
    struct mill_frame *frame = fill->frame;
    uint32_t pieces_max =
        MILL_MIN((uint32_t)net->link->caps.pieces_max, (uint32_t)MILL_FRAME_PIECES_MAX);
    uint32_t position = mill_send_queue_find(queue, seq);
    for (; fill->got_bytes < fill->want_bytes && position != queue->tail; position++) {
        const struct mill_send_entry *entry = mill_send_queue_at(queue, position);
        uint32_t skip = seq + fill->got_bytes - entry->seq;
        uint32_t part = MILL_MIN(entry->ref.size_bytes - skip, fill->want_bytes - fill->got_bytes);
        bool in_arena = entry->ref.extent == MILL_SEND_ARENA;
        bool small = part < net->link->caps.inline_bytes || pieces_max == 0;
#ifdef MILL_MUTANT_NET_COPY_BYTE
        if (!in_arena && !small && frame->pieces_count == 0) {
            fill->copied_bytes += copy_part(net, queue, entry, skip, 1, frame);
            fill->got_bytes++;
            fill->refs_bytes++;
            skip++;
            part--;
        }
#endif
        if (frame->pieces_count == 0 && (in_arena || small)) {
            uint32_t copied = copy_part(net, queue, entry, skip, part, frame);
            fill->got_bytes += copied;
            fill->refs_bytes += in_arena ? 0 : copied;
            fill->inlined_bytes += in_arena ? 0 : copied;
            if (copied < part) {
                return;
            }
            continue;
        }
        if (in_arena || frame->pieces_count == pieces_max) {
            return;
        }
        frame->pieces[frame->pieces_count++] =
            (struct mill_ref){entry->ref.extent, entry->ref.pos_bytes + skip, part};
        frame->pieces_bytes += part;
        fill->got_bytes += part;
        fill->refs_bytes += part;
    }
}

/* Statistics tell each byte once: at its first transmission. */
static void count_sent(struct mill_net *net, const struct mill_tcp *tcp, uint32_t seq,
                       const struct fill *fill)
{
    struct mill_stream_stats *stats = &net->maker.stats;
    if (mill_seq_lt(seq, tcp->snd_nxt)) {
        net->counters.retransmits++;
    } else {
        stats->bytes_sent_refs += fill->refs_bytes;
        stats->bytes_sent_small += fill->got_bytes - fill->refs_bytes;
        stats->bytes_inlined += fill->inlined_bytes;
    }
    stats->bytes_copied_out += fill->copied_bytes;
}

int mill_tcp_send_data(struct mill_net *net, struct mill_tcp *tcp, uint32_t seq,
                       uint32_t size_bytes)
{
    const uint8_t *mac = target_mac(net, tcp);
    if (!mac) {
        return -EAGAIN;
    }
    struct mill_frame *frame = mill_ethernet_frame(net, mac, MILL_ETHERTYPE_IPV4);
    if (!frame) {
        return -ENOBUFS;
    }
    struct mill_tcp_fields fields = {.seq = seq};
    common_fields(net, tcp, &fields);
    uint32_t option_bytes =
        mill_tcp_options_write(frame->header + MILL_HEADERS_BYTES, &fields.options);
    frame->header_bytes = MILL_HEADERS_BYTES + option_bytes;
    struct fill fill = {.frame = frame};
    uint32_t data_bytes = mill_seq_lt(seq, tcp->queue.seq_end) ? tcp->queue.seq_end - seq : 0;
    /* Option bytes count against the segment (RFC 6691). send_mss has the timestamp's in it. */
    uint32_t timestamp_bytes = tcp->timestamps ? MILL_TCP_TIMESTAMP_BYTES : 0;
    uint32_t mss = tcp->send_mss - (option_bytes - timestamp_bytes);
    uint32_t ask_bytes = MILL_MIN(size_bytes, data_bytes);
    fill.want_bytes = ask_bytes > tcp->send_mss ? ask_bytes : MILL_MIN(ask_bytes, mss);
    if (fill.want_bytes > 0) {
        fill_frame(net, &tcp->queue, seq, &fill);
    }
    if (fill.got_bytes > mss) {
        frame->flags |= MILL_FRAME_TSO;
        frame->segment_bytes = (uint16_t)mss;
    }
    uint32_t end = seq + fill.got_bytes;
    uint32_t space = fill.got_bytes;
    if (tcp->closing && end == tcp->queue.seq_end && space < size_bytes) {
        fields.flags |= MILL_TCP_FIN;
        space++;
    }
    if (end == tcp->push_seq || end == tcp->queue.seq_end) {
        fields.flags |= MILL_TCP_PSH;
    }
    count_sent(net, tcp, seq, &fill);
    write_headers(net, frame, &fields, option_bytes);
    mill_ethernet_send(net, frame);
    acknowledged(tcp);
    tcp->last_send_ns = net->now_ns;
    return (int)space;
}
