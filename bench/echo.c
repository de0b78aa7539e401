/* SPDX-License-Identifier: Apache-2.0 */
/* An echo of bare frames over the link of a port: what a round trip costs without IP, TCP and a
 * broker. The ether type is one of those for local experiments (IEEE 802, 88B5). */
#include <errno.h>
#include <string.h>

#include "bench/transport.h"
#include "base/byteorder.h"

enum {
    ETHER_TYPE = 0x88b5,
    TYPE_AT = 12,
    HEADER_BYTES = 14,
    NUMBER_AT = HEADER_BYTES, /* of the frame, 8 bytes */
    FRAME_HEAD_BYTES = NUMBER_AT + 8,
    BURST = 32,
    MEMORY_BYTES = 1 << 20,
    LOOK_NS = 20000000,
};

struct echo {
    const struct mill_bench_echo_options *options;
    struct bench_transport transport;
    const struct mill_link *link;
    struct mill_bench_result *result;
};

/* Copies a whole frame's first bytes. ret: their number. */
static uint32_t frame_read(const struct mill_buf *frame, uint8_t *ret_bytes, uint32_t size_bytes)
{
    uint32_t have = 0;
    for (const struct mill_buf *buf = frame; buf && have < size_bytes; buf = buf->next) {
        uint32_t part = MILL_MIN(buf->size_bytes, size_bytes - have);
        memcpy(ret_bytes + have, buf->data, part);
        have += part;
    }
    return have;
}

static void frame_free(struct mill_buf *frame)
{
    while (frame) {
        struct mill_buf *next = frame->next;
        frame->free(frame);
        frame = next;
    }
}

/* ret: false when the port has no frame to write, or does not take it. */
static bool frame_send(const struct echo *echo, const uint8_t *bytes, uint32_t size_bytes)
{
    struct mill_frame *frame = echo->link->ops->frame_get(echo->link->context);
    if (!frame) {
        return false;
    }
    memcpy(frame->header, bytes, size_bytes);
    frame->header_bytes = size_bytes;
    frame->pieces_count = 0;
    frame->pieces_bytes = 0;
    frame->flags = 0;
    if (echo->link->ops->send(echo->link->context, &frame, 1) == 0) {
        echo->link->ops->frame_put(echo->link->context, frame);
        return false;
    }
    return true;
}

/* Takes what came. ret: number of the newest frame of ours, 0: none; with reply, each is sent back.
 */
static uint64_t frames_take(const struct echo *echo, bool reply)
{
    struct mill_buf *frames[BURST];
    uint64_t newest = 0;
    uint32_t count = echo->link->ops->receive(echo->link->context, frames, BURST);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t bytes[MILL_BENCH_FRAME_BYTES_MAX];
        uint32_t size = frame_read(frames[i], bytes, sizeof(bytes));
        frame_free(frames[i]);
        if (size < FRAME_HEAD_BYTES || mill_load_be16(bytes + TYPE_AT) != ETHER_TYPE) {
            continue;
        }
        newest = mill_load_be64(bytes + NUMBER_AT);
        if (reply) {
            memcpy(bytes, bytes + 6, 6);
            memcpy(bytes + 6, echo->link->caps.mac, 6);
            (void)frame_send(echo, bytes, size); /* a lost one is missed by its sender */
        }
    }
    return newest;
}

static void serve(struct echo *echo)
{
    uint64_t begin_ns = bench_now();
    uint64_t looked_ns = begin_ns;
    for (;;) {
        if (frames_take(echo, true) == 0) {
            mill_port_tx_done(echo->transport.port, 0);
        }
        uint64_t now_ns = bench_now();
        if (now_ns - looked_ns > LOOK_NS) {
            looked_ns = now_ns;
            if (echo->options->stop() || now_ns - begin_ns > echo->options->duration_ns) {
                break;
            }
        }
    }
}

static int measure(struct echo *echo, struct mill_report *report)
{
    const struct mill_bench_echo_options *options = echo->options;
    uint8_t bytes[MILL_BENCH_FRAME_BYTES_MAX] = {0};
    uint64_t begin_ns = bench_now();
    uint64_t number = 0;
    memset(bytes, 0xff, 6);
    memcpy(bytes + 6, echo->link->caps.mac, 6);
    mill_store_be16(bytes + TYPE_AT, ETHER_TYPE);
    for (uint64_t now_ns = begin_ns;
         now_ns - begin_ns < options->warmup_ns + options->duration_ns;) {
        mill_store_be64(bytes + NUMBER_AT, ++number);
        uint64_t sent_ns = bench_now();
        (void)frame_send(echo, bytes, options->frame_bytes); /* told as a frame that is missing */
        while (frames_take(echo, false) != number) {
            mill_port_tx_done(echo->transport.port, 0);
            if (bench_now() - sent_ns > options->timeout_ms * MILL_NS_PER_MS) {
                return mill_fail(report, -ETIMEDOUT,
                                 "frame %llu did not come back within %u ms; is there an echo "
                                 "server at the other end?",
                                 (unsigned long long)number, options->timeout_ms);
            }
        }
        now_ns = bench_now();
        if (sent_ns - begin_ns >= options->warmup_ns) {
            mill_hist_add(&echo->result->latency, now_ns - sent_ns);
            echo->result->requests++;
            echo->result->bytes += options->frame_bytes;
        }
    }
    echo->result->window_ns = options->duration_ns;
    return 0;
}

int mill_bench_echo(const struct mill_bench_echo_options *options,
                    void (*ready)(void *context, uint16_t port), void *context,
                    struct mill_bench_result *ret_result, struct mill_report *report)
{
    struct echo echo = {.options = options, .result = ret_result};
    memset(ret_result, 0, sizeof(*ret_result));
    int r = bench_transport_open(&echo.transport, &options->transport, 1, MEMORY_BYTES, NULL, NULL,
                                 report);
    if (r < 0) {
        return r;
    }
    echo.link = mill_port_link(echo.transport.port, 0);
    if (options->server) {
        ready(context, 0);
        serve(&echo);
    } else {
        r = bench_transport_link(&echo.transport, options->timeout_ms, report);
        r = r < 0 ? r : measure(&echo, report);
    }
    bench_transport_close(&echo.transport);
    return r;
}
