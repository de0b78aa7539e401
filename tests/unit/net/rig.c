/* SPDX-License-Identifier: Apache-2.0 */
/* The rig; see rig.h. One thread; allocates freely. */
#include "tests/unit/net/rig.h"

#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/net/checksum.h"

static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1};
static const uint8_t peer_mac[6] = {2, 0, 0, 0, 0, 2};

struct rig_buffer {
    struct mill_buf buf;
    struct rig *rig;
    uint8_t bytes[];
};

uint8_t rig_byte(uint32_t position)
{
    return (uint8_t)(position * 31 + (position >> 8));
}

struct mill_tcp *rig_tcp(struct rig *rig)
{
    return mill_tcp_of(rig->stream);
}

/* -- link -- */

static uint32_t link_receive(void *context, struct mill_buf **ret_frames, uint32_t max)
{
    struct rig *rig = context;
    uint32_t count = MILL_MIN(max, rig->inbox_count);
    memcpy(ret_frames, rig->inbox, count * sizeof(*ret_frames));
    memmove(rig->inbox, rig->inbox + count, (rig->inbox_count - count) * sizeof(*ret_frames));
    rig->inbox_count -= count;
    return count;
}

static struct mill_frame *link_get(void *context)
{
    struct rig *rig = context;
    return rig->free_count > 0 ? rig->free_frames[--rig->free_count] : NULL;
}

static void link_put(void *context, struct mill_frame *frame)
{
    struct rig *rig = context;
    rig->free_frames[rig->free_count++] = frame;
}

static uint32_t link_send(void *context, struct mill_frame **frames, uint32_t count)
{
    struct rig *rig = context;
    count = MILL_MIN(count, rig->send_limit);
    for (uint32_t i = 0; i < count; i++) {
        for (uint16_t k = 0; k < frames[i]->pieces_count; k++) {
            mill_loan_take(&rig->loans, &frames[i]->pieces[k]);
        }
        assert_true(rig->caught_tail - rig->caught_head < RIG_CAUGHT_MAX);
        rig->caught[rig->caught_tail++ % RIG_CAUGHT_MAX] = frames[i];
    }
    return count;
}

static const struct mill_link_ops link_ops = {
    .receive = link_receive, .frame_get = link_get, .frame_put = link_put, .send = link_send};

/* -- events -- */

static int on_accepted(void *context, struct mill_stream *stream)
{
    struct rig *rig = context;
    rig->accepted++;
    rig->stream = stream;
    return rig->refuse ? -1 : 0;
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    struct rig *rig = context;
    rig->connected = true;
    rig->connect_error = error;
    rig->stream = error == 0 ? stream : NULL;
}

static void on_received(void *context, struct mill_stream *stream)
{
    struct rig *rig = context;
    rig->received_events++;
    uint32_t size = stream->rx.size_bytes;
    if (rig->keep || size == 0) {
        return;
    }
    struct mill_cursor cursor = mill_chain_cursor(&stream->rx);
    assert_true(rig->received_bytes + size <= sizeof(rig->received));
    assert_int_equal(mill_cursor_read(&cursor, rig->received + rig->received_bytes, size), 0);
    rig->received_bytes += size;
    stream->ops->consume(stream, size);
}

static void on_room(void *context, struct mill_stream *stream)
{
    struct rig *rig = context;
    MILL_UNUSED(stream);
    rig->room_events++;
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    struct rig *rig = context;
    MILL_UNUSED(stream);
    rig->acked += size_bytes;
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    struct rig *rig = context;
    MILL_UNUSED(stream);
    rig->closed++;
    rig->end = end;
    rig->stream = NULL;
}

static const struct mill_stream_events events = {on_accepted, on_connected, on_received,
                                                 on_room,     on_acked,     on_closed};

struct rig *rig_make(const struct mill_net_config *config)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    rig->now_ns = 1000 * MILL_NS_PER_S;
    rig->isn_peer = 0xfffff000u; /* near the wrap: every test crosses it or comes close */
    rig->window = 65535;
    rig->peer_port = RIG_PEER_PORT;
    rig->send_limit = UINT32_MAX;
    rig->ts_value = 0xfffffff0u;
    rig->arena = calloc(RIG_UNITS, MILL_EXTENT_UNIT_BYTES);
    assert_int_equal(mill_loans_init(&rig->loans, RIG_UNITS, 1), 0);
    for (uint32_t i = 0; i < RIG_FRAMES; i++) {
        rig->frames[i].header = rig->headers[i];
        rig->frames[i].header_capacity = sizeof(rig->headers[i]);
        rig->free_frames[rig->free_count++] = &rig->frames[i];
    }
    rig->link = (struct mill_link){.ops = &link_ops,
                                   .context = rig,
                                   .caps = {.mtu = 1500, .pieces_max = 8, .inline_bytes = 64}};
    memcpy(rig->link.caps.mac, our_mac, 6);
    struct mill_net_config made = {.address = RIG_ADDRESS,
                                   .prefix_bits = 24,
                                   .secret = {11, 22},
                                   .random_seed = 33,
                                   .connections_max = 16,
                                   .half_open_max = 8,
                                   .time_wait_max = 8,
                                   .neighbours_max = 4};
    if (config) {
        made = *config;
        made.address = RIG_ADDRESS;
        made.prefix_bits = 24;
        made.secret[0] = 11;
        made.connections_max = made.connections_max ? made.connections_max : 16;
        made.half_open_max = made.half_open_max ? made.half_open_max : 8;
        made.time_wait_max = made.time_wait_max ? made.time_wait_max : 8;
    }
    struct mill_report report = {{0}};
    assert_int_equal(mill_net_create(&made, &rig->link, &rig->loans, rig->arena, &events, rig,
                                     &rig->net, &report),
                     0);
    rig->maker = mill_net_maker(rig->net);
    const uint8_t any[16] = {0};
    assert_int_equal(rig->maker->ops->listen(rig->maker, any, RIG_PORT, 3, &report), 0);
    rig_step(rig);
    rig_drop_all(rig);
    return rig;
}

void rig_free(struct rig *rig)
{
    rig_drop_all(rig);
    rig->maker->ops->destroy(rig->maker);
    rig_drop_all(rig);
    assert_int_equal(rig->loans.loaned_bytes, 0);
    assert_int_equal(rig->buffers, 0);
    assert_int_equal(rig->free_count, RIG_FRAMES);
    mill_loans_fini(&rig->loans);
    free(rig->arena);
    free(rig);
}

void rig_step(struct rig *rig)
{
    for (int i = 0; i < 100; i++) {
        rig->maker->ops->step(rig->maker, rig->now_ns);
        if (rig->maker->ops->deadline(rig->maker) > rig->now_ns) {
            return;
        }
    }
    fail_msg("the stack never rests");
}

void rig_pass(struct rig *rig, uint64_t ns)
{
    uint64_t end_ns = rig->now_ns + ns;
    for (;;) {
        uint64_t due_ns = rig->maker->ops->deadline(rig->maker);
        if (due_ns > end_ns) {
            break;
        }
        rig->now_ns = MILL_MAX(due_ns, rig->now_ns);
        rig_step(rig);
    }
    rig->now_ns = end_ns;
    rig_step(rig);
}

/* -- frames in -- */

static void buffer_free(struct mill_buf *buf)
{
    struct rig_buffer *buffer = MILL_CONTAINER_OF(buf, struct rig_buffer, buf);
    buffer->rig->buffers--;
    free(buffer);
}

void rig_frame(struct rig *rig, const uint8_t *frame, uint32_t size_bytes, uint32_t split)
{
    struct mill_chain chain = {0};
    for (uint32_t at = 0; at < size_bytes;) {
        uint32_t part = size_bytes - at;
        part = split > 0 ? MILL_MIN(part, split) : part;
        struct rig_buffer *buffer = malloc(sizeof(*buffer) + part);
        assert_non_null(buffer);
        buffer->rig = rig;
        buffer->buf = (struct mill_buf){
            .data = buffer->bytes, .size_bytes = part, .charge_bytes = 2048, .free = buffer_free};
        memcpy(buffer->bytes, frame + at, part);
        mill_chain_append(&chain, &buffer->buf);
        rig->buffers++;
        at += part;
    }
    assert_true(rig->inbox_count < 64);
    rig->inbox[rig->inbox_count++] = chain.head;
}

void rig_sum(uint8_t *frame, uint32_t size_bytes)
{
    uint8_t *ip = frame + MILL_ETHERNET_BYTES;
    uint32_t ip_bytes = (ip[0] & 15u) * 4u;
    uint32_t l4_bytes = size_bytes - MILL_ETHERNET_BYTES - ip_bytes;
    uint8_t *l4 = ip + ip_bytes;
    memset(ip + 10, 0, 2);
    uint16_t sum = (uint16_t)~mill_csum_sum(ip, ip_bytes);
    memcpy(ip + 10, &sum, 2);
    if (ip[9] != MILL_IP_TCP) {
        return;
    }
    memset(l4 + 16, 0, 2);
    sum =
        (uint16_t)~mill_csum_add(mill_csum_pseudo(mill_load_be32(ip + 12), mill_load_be32(ip + 16),
                                                  MILL_IP_TCP, (uint16_t)l4_bytes),
                                 mill_csum_sum(l4, l4_bytes));
    memcpy(l4 + 16, &sum, 2);
}

uint32_t rig_build(struct rig *rig, uint8_t *to, uint8_t flags, uint32_t raw_seq, uint32_t raw_ack,
                   uint32_t size_bytes, const struct mill_tcp_options *options)
{
    memcpy(to, our_mac, 6);
    memcpy(to + 6, peer_mac, 6);
    mill_store_be16(to + 12, MILL_ETHERTYPE_IPV4);
    uint8_t *ip = to + MILL_ETHERNET_BYTES;
    uint8_t *tcp = ip + MILL_IPV4_BYTES;
    memset(ip, 0, MILL_IPV4_BYTES + MILL_TCP_BYTES);
    uint32_t option_bytes = (flags & MILL_TCP_SYN)
                                ? mill_tcp_options_write_syn(tcp + MILL_TCP_BYTES, options)
                                : mill_tcp_options_write(tcp + MILL_TCP_BYTES, options);
    uint32_t l4_bytes = MILL_TCP_BYTES + option_bytes + size_bytes;
    ip[0] = 0x45;
    mill_store_be16(ip + 2, (uint16_t)(MILL_IPV4_BYTES + l4_bytes));
    ip[8] = 64;
    ip[9] = MILL_IP_TCP;
    mill_store_be32(ip + 12, RIG_PEER);
    mill_store_be32(ip + 16, RIG_ADDRESS);
    mill_store_be16(tcp, rig->peer_port);
    mill_store_be16(tcp + 2, RIG_PORT);
    mill_store_be32(tcp + 4, raw_seq);
    mill_store_be32(tcp + 8, raw_ack);
    tcp[12] = (uint8_t)((MILL_TCP_BYTES + option_bytes) / 4 << 4);
    tcp[13] = flags;
    mill_store_be16(tcp + 14, (uint16_t)rig->window);
    uint8_t *payload = tcp + MILL_TCP_BYTES + option_bytes;
    for (uint32_t i = 0; i < size_bytes; i++) {
        payload[i] = rig_byte(raw_seq - rig->isn_peer - 1 + i);
    }
    uint32_t frame_bytes = MILL_ETHERNET_BYTES + MILL_IPV4_BYTES + l4_bytes;
    rig_sum(to, frame_bytes);
    return frame_bytes;
}

void rig_put_options(struct rig *rig, uint8_t flags, uint32_t seq, uint32_t ack,
                     uint32_t size_bytes, const struct mill_tcp_options *options)
{
    static uint8_t frame[16384];
    struct mill_tcp_options made = *options;
    for (uint8_t i = 0; i < made.sack_count; i++) {
        made.sack[i].start += rig->isn_ours + 1;
        made.sack[i].end += rig->isn_ours + 1;
    }
    if (rig->timestamps && !(flags & MILL_TCP_RST)) {
        made.has_timestamp = true;
        made.ts_value = rig->ts_value;
        made.ts_echo = rig->ts_echo;
    }
    uint32_t size = rig_build(rig, frame, flags, rig->isn_peer + 1 + seq, rig->isn_ours + 1 + ack,
                              size_bytes, &made);
    rig_frame(rig, frame, size, 0);
    rig_step(rig);
}

void rig_put(struct rig *rig, uint8_t flags, uint32_t seq, uint32_t ack, uint32_t size_bytes)
{
    const struct mill_tcp_options none = {0};
    rig_put_options(rig, flags, seq, ack, size_bytes, &none);
}

/* -- frames out -- */

static struct mill_frame *catch_one(struct rig *rig)
{
    return rig->caught_head == rig->caught_tail ? NULL
                                                : rig->caught[rig->caught_head++ % RIG_CAUGHT_MAX];
}

static void release(struct rig *rig, struct mill_frame *frame)
{
    for (uint16_t k = 0; k < frame->pieces_count; k++) {
        mill_loan_give(&rig->loans, &frame->pieces[k]);
    }
    link_put(rig, frame);
}

static void take_apart(struct rig *rig, const struct mill_frame *frame, struct rig_segment *ret)
{
    const uint8_t *ip = frame->header + MILL_ETHERNET_BYTES;
    const uint8_t *tcp = ip + MILL_IPV4_BYTES;
    uint32_t tcp_bytes = (uint32_t)(tcp[12] >> 4) * 4;
    assert_int_equal(mill_load_be16(ip + 2), frame->header_bytes - 14 + frame->pieces_bytes);
    assert_int_equal(frame->l4_bytes, tcp_bytes);
    assert_true((frame->flags & MILL_FRAME_CSUM_TCP) && (frame->flags & MILL_FRAME_CSUM_IPV4));
    ret->raw_seq = mill_load_be32(tcp + 4);
    ret->raw_ack = mill_load_be32(tcp + 8);
    ret->seq = ret->raw_seq - rig->isn_ours - 1;
    ret->ack = ret->raw_ack - rig->isn_peer - 1;
    ret->flags = tcp[13];
    ret->header_flags = frame->flags;
    ret->window = mill_load_be16(tcp + 14);
    ret->peer_port = mill_load_be16(tcp + 2);
    assert_int_equal(mill_tcp_options_parse(tcp + 20, tcp_bytes - 20,
                                            (ret->flags & MILL_TCP_SYN) != 0, &ret->options),
                     0);
    uint32_t headers = MILL_ETHERNET_BYTES + MILL_IPV4_BYTES + tcp_bytes;
    uint32_t at = frame->header_bytes - headers;
    memcpy(ret->bytes, frame->header + headers, at);
    for (uint16_t k = 0; k < frame->pieces_count; k++) {
        memcpy(ret->bytes + at, mill_ref_data(rig->arena, &frame->pieces[k]),
               frame->pieces[k].size_bytes);
        at += frame->pieces[k].size_bytes;
    }
    ret->size_bytes = at;
}

bool rig_next(struct rig *rig, struct rig_segment *ret)
{
    struct mill_frame *frame;
    while ((frame = catch_one(rig))) {
        bool tcp = mill_load_be16(frame->header + 12) == MILL_ETHERTYPE_IPV4 &&
                   frame->header[MILL_ETHERNET_BYTES + 9] == MILL_IP_TCP;
        if (tcp) {
            take_apart(rig, frame, ret);
        }
        release(rig, frame);
        if (tcp) {
            return true;
        }
    }
    return false;
}

void rig_expect(struct rig *rig, struct rig_segment *ret, uint8_t flags, uint32_t seq, uint32_t ack,
                uint32_t size_bytes)
{
    assert_true(rig_next(rig, ret));
    assert_int_equal(ret->flags & ~MILL_TCP_PSH, flags);
    assert_int_equal(ret->seq, seq);
    assert_int_equal(ret->ack, ack);
    assert_int_equal(ret->size_bytes, size_bytes);
    for (uint32_t i = 0; i < size_bytes; i++) {
        assert_int_equal(ret->bytes[i], rig_byte(seq + i));
    }
}

void rig_expect_none(struct rig *rig)
{
    struct rig_segment segment;
    assert_false(rig_next(rig, &segment));
}

void rig_drop_all(struct rig *rig)
{
    struct mill_frame *frame;
    while ((frame = catch_one(rig))) {
        release(rig, frame);
    }
}

void rig_handshake(struct rig *rig, bool sack, bool timestamps)
{
    uint8_t frame[256];
    struct rig_segment segment;
    struct mill_tcp_options options = {.has_mss = true,
                                       .mss = 1460,
                                       .has_wscale = true,
                                       .sack_permitted = sack,
                                       .has_timestamp = timestamps,
                                       .ts_value = rig->ts_value};
    uint32_t size = rig_build(rig, frame, MILL_TCP_SYN, rig->isn_peer, 0, 0, &options);
    rig_frame(rig, frame, size, 0);
    rig_step(rig);
    assert_true(rig_next(rig, &segment));
    assert_int_equal(segment.flags, MILL_TCP_SYN | MILL_TCP_ACK);
    assert_int_equal(segment.ack, 0);
    rig->isn_ours = segment.raw_seq;
    rig->timestamps = timestamps;
    rig->ts_echo = segment.options.ts_value;
    rig->now_ns += 10 * MILL_NS_PER_MS; /* the round trip */
    rig_put(rig, MILL_TCP_ACK, 0, 0, 0);
    assert_non_null(rig->stream);
    rig_expect_none(rig);
}

void rig_send(struct rig *rig, uint32_t size_bytes)
{
    static uint32_t extent;
    struct mill_tcp *tcp = rig_tcp(rig);
    uint32_t position = tcp->queue.seq_end - rig->isn_ours - 1;
    while (size_bytes > 0) {
        uint32_t part = MILL_MIN(size_bytes, 4u * MILL_EXTENT_UNIT_BYTES);
        extent = (extent + 4) % RIG_UNITS;
        assert_true(mill_loan_free(&rig->loans, extent));
        struct mill_ref ref = {extent, 0, part};
        uint8_t *bytes = mill_ref_data(rig->arena, &ref);
        for (uint32_t i = 0; i < part; i++) {
            bytes[i] = rig_byte(position + i);
        }
        assert_int_equal(rig->stream->ops->send_ref(rig->stream, &ref), 0);
        position += part;
        size_bytes -= part;
    }
    rig->stream->ops->push(rig->stream);
    rig_step(rig);
}
