/* SPDX-License-Identifier: Apache-2.0 */
/* Several queues over one modelled end; see split_model.h. */
#include "tests/sim/split_model.h"

#include <stdlib.h>

#include "base/byteorder.h"

enum {
    QUEUE_FRAMES = 1024,
    BURST = 64,
    MOVE_EVERY = 50, /* frames between changes of the table */
    PEER_PORT_AT = 34,
};

struct queue {
    struct mill_link link;
    struct mill_split_model *model;
    uint32_t head;
    uint32_t tail;
    struct mill_buf *frames[QUEUE_FRAMES];
};

struct mill_split_model {
    const struct mill_link *end;
    enum mill_split_kind kind;
    uint32_t queues_count;
    uint32_t offset; /* of the table */
    struct mill_random random;
    struct queue queues[MILL_SPLIT_QUEUES_MAX];
};

static uint32_t choose(struct mill_split_model *model, const struct mill_buf *frame)
{
    if (model->kind == MILL_SPLIT_FIRST) {
        return 0;
    }
    if (model->kind == MILL_SPLIT_TURN) {
        return mill_random_below(&model->random, model->queues_count);
    }
    if (mill_random_below(&model->random, MOVE_EVERY) == 0) {
        model->offset++;
    }
    uint32_t port =
        frame->size_bytes >= PEER_PORT_AT + 2 ? mill_load_be16(frame->data + PEER_PORT_AT) : 0;
    return (port + model->offset) % model->queues_count;
}

static uint32_t split_receive(void *link, struct mill_buf **ret_frames, uint32_t max)
{
    struct queue *own = link;
    struct mill_split_model *model = own->model;
    struct mill_buf *frames[BURST];
    uint32_t count = model->end->ops->receive(model->end->context, frames, BURST);
    for (uint32_t i = 0; i < count; i++) {
        struct queue *queue = &model->queues[choose(model, frames[i])];
        if (queue->tail - queue->head == QUEUE_FRAMES) { /* as a card whose ring is full */
            for (struct mill_buf *buf = frames[i]; buf;) {
                struct mill_buf *next = buf->next;
                buf->free(buf);
                buf = next;
            }
            continue;
        }
        queue->frames[queue->tail++ % QUEUE_FRAMES] = frames[i];
    }
    count = 0;
    while (count < max && own->head != own->tail) {
        ret_frames[count++] = own->frames[own->head++ % QUEUE_FRAMES];
    }
    return count;
}

static struct mill_frame *split_get(void *link)
{
    const struct mill_link *end = ((const struct queue *)link)->model->end;
    return end->ops->frame_get(end->context);
}

static void split_put(void *link, struct mill_frame *frame)
{
    const struct mill_link *end = ((const struct queue *)link)->model->end;
    end->ops->frame_put(end->context, frame);
}

static uint32_t split_send(void *link, struct mill_frame **frames, uint32_t count)
{
    const struct mill_link *end = ((const struct queue *)link)->model->end;
    return end->ops->send(end->context, frames, count);
}

static const struct mill_link_ops split_ops = {
    .receive = split_receive,
    .frame_get = split_get,
    .frame_put = split_put,
    .send = split_send,
};

struct mill_split_model *mill_split_model_create(const struct mill_link *end, uint32_t queues,
                                                 enum mill_split_kind kind, uint64_t seed)
{
    struct mill_split_model *model = calloc(1, sizeof(*model));
    MILL_ASSERT(model != NULL);
    MILL_ASSERT(queues <= MILL_SPLIT_QUEUES_MAX);
    model->end = end;
    model->kind = kind;
    model->queues_count = queues;
    model->random.state = seed;
    for (uint32_t i = 0; i < queues; i++) {
        model->queues[i].model = model;
        model->queues[i].link =
            (struct mill_link){.ops = &split_ops, .context = &model->queues[i], .caps = end->caps};
    }
    return model;
}

void mill_split_model_destroy(struct mill_split_model *model)
{
    for (uint32_t i = 0; model && i < model->queues_count; i++) {
        struct queue *queue = &model->queues[i];
        for (; queue->head != queue->tail; queue->head++) {
            for (struct mill_buf *buf = queue->frames[queue->head % QUEUE_FRAMES]; buf;) {
                struct mill_buf *next = buf->next;
                buf->free(buf);
                buf = next;
            }
        }
    }
    free(model);
}

const struct mill_link *mill_split_model_link(struct mill_split_model *model, uint32_t queue)
{
    MILL_ASSERT_LT(queue, model->queues_count);
    return &model->queues[queue].link;
}

bool mill_split_model_waits(const struct mill_split_model *model)
{
    for (uint32_t i = 0; i < model->queues_count; i++) {
        if (model->queues[i].head != model->queues[i].tail) {
            return true;
        }
    }
    return false;
}
