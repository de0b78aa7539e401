/* SPDX-License-Identifier: Apache-2.0 */
/* See queues.h. */
#include "bench/queues.h"

#include <string.h>

#include "base/byteorder.h"
#include "base/check.h"

enum {
    PORTS_AT = 14 + 20, /* our stack sends IPv4 without options */
    ETHERTYPE_AT = 12,
    ETHERTYPE_IPV4 = 0x0800,
};

static uint32_t receive(void *context, struct mill_buf **ret_frames, uint32_t max)
{
    struct bench_queues *queues = context;
    uint32_t count = 0;
    queues->turn++;
    for (uint32_t i = 0; i < queues->count && count < max; i++) {
        uint32_t at = (queues->turn + i) % queues->count;
#ifdef MILL_MUTANT_BENCH_FIRST_QUEUE
        at = 0;
#endif
        const struct mill_link *link = queues->of[at];
        count += link->ops->receive(link->context, ret_frames + count, max - count);
    }
    return count;
}

/* All have buffers of one kind. */
static struct mill_frame *frame_get(void *context)
{
    const struct bench_queues *queues = context;
    return queues->of[0]->ops->frame_get(queues->of[0]->context);
}

static void frame_put(void *context, struct mill_frame *frame)
{
    const struct bench_queues *queues = context;
    queues->of[0]->ops->frame_put(queues->of[0]->context, frame);
}

static uint32_t queue_of(const struct bench_queues *queues, const struct mill_frame *frame)
{
    if (frame->header_bytes < PORTS_AT + 4 ||
        mill_load_be16(frame->header + ETHERTYPE_AT) != ETHERTYPE_IPV4) {
        return 0;
    }
    /* Mixed, because source ports follow each other: Knuth's multiplier. */
    uint32_t mixed = mill_load_be32(frame->header + PORTS_AT) * 2654435761u;
    return (uint32_t)((uint64_t)mixed * queues->count >> 32);
}

/* Runs of frames for one queue go together; a queue that takes fewer ends the call. */
static uint32_t send(void *context, struct mill_frame **frames, uint32_t count)
{
    struct bench_queues *queues = context;
    uint32_t done = 0;
    while (done < count) {
        uint32_t queue = queue_of(queues, frames[done]);
        uint32_t length = 1;
        while (done + length < count && queue_of(queues, frames[done + length]) == queue) {
            length++;
        }
        const struct mill_link *link = queues->of[queue];
        uint32_t taken = link->ops->send(link->context, frames + done, length);
        done += taken;
        if (taken < length) {
            break;
        }
    }
    return done;
}

static int neighbour(void *context, uint32_t address, uint8_t ret_mac[6])
{
    const struct bench_queues *queues = context;
    return queues->of[0]->ops->neighbour(queues->of[0]->context, address, ret_mac);
}

static const struct mill_link_ops ops = {
    .receive = receive,
    .frame_get = frame_get,
    .frame_put = frame_put,
    .send = send,
    .neighbour = neighbour,
};

void bench_queues_init(struct bench_queues *queues, const struct mill_link *const *of,
                       uint32_t count)
{
    MILL_ASSERT(count > 0 && count <= BENCH_QUEUES_MAX);
    *queues = (struct bench_queues){
        .link = {.ops = &ops, .context = queues, .caps = of[0]->caps},
        .count = count,
    };
    memcpy(queues->of, of, count * sizeof(of[0]));
}
