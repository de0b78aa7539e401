/* SPDX-License-Identifier: Apache-2.0 */
/* The modelled wire; see link_model.h. One thread; allocates freely: it stands in for hardware. */
#include "tests/sim/link_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/clock.h"
#include "dataplane/net/checksum.h"

enum {
    FRAMES_PER_END = 1024,
    HEADER_BYTES = 2048,
    BUFFER_CHARGE = 2304,
    MILLION = 1000000,
};

struct packet {
    uint64_t arrives_ns;
    uint64_t order; /* keeps equal times in order of sending */
    uint32_t size_bytes;
    uint8_t to;
    bool sum_bad;
    uint8_t bytes[];
};

struct buffer {
    struct mill_buf buf;
    uint8_t bytes[];
};

struct end {
    struct mill_link link;
    struct mill_link_model *model;
    unsigned number;
    struct mill_loans *loans;
    uint8_t *arena_base;
    struct mill_frame *frames;
    uint8_t *headers;
    struct mill_frame *free_frames[FRAMES_PER_END];
    uint32_t free_count;
    struct mill_frame *queue[FRAMES_PER_END]; /* handed over, not read yet */
    uint32_t queue_count;
    uint64_t wire_free_ns; /* when the last byte queued so far has left */
};

struct mill_link_model {
    struct mill_link_model_config config;
    struct mill_random random;
    uint64_t now_ns;
    uint64_t order;
    uint64_t buffers;
    struct end ends[2];
    struct packet **heap;
    size_t heap_count;
    size_t heap_room;
    mill_link_tap *tap;
    void *tap_context;
};

static bool chance(struct mill_link_model *model, uint32_t ppm)
{
    bool impaired =
        model->config.impair_until_ns == 0 || model->now_ns < model->config.impair_until_ns;
    return ppm > 0 && impaired && mill_random_below(&model->random, MILLION) < ppm;
}

static bool earlier(const struct packet *a, const struct packet *b)
{
    return a->arrives_ns != b->arrives_ns ? a->arrives_ns < b->arrives_ns : a->order < b->order;
}

static void heap_push(struct mill_link_model *model, struct packet *packet)
{
    if (model->heap_count == model->heap_room) {
        model->heap_room = model->heap_room ? 2 * model->heap_room : 1024;
        model->heap = realloc(model->heap, model->heap_room * sizeof(*model->heap));
        MILL_ASSERT(model->heap != NULL);
    }
    size_t at = model->heap_count++;
    while (at > 0 && earlier(packet, model->heap[(at - 1) / 2])) {
        model->heap[at] = model->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    model->heap[at] = packet;
}

static struct packet *heap_pop(struct mill_link_model *model)
{
    struct packet *top = model->heap[0];
    struct packet *last = model->heap[--model->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= model->heap_count) {
            break;
        }
        if (child + 1 < model->heap_count && earlier(model->heap[child + 1], model->heap[child])) {
            child++;
        }
        if (!earlier(model->heap[child], last)) {
            break;
        }
        model->heap[at] = model->heap[child];
        at = child;
    }
    if (model->heap_count > 0) {
        model->heap[at] = last;
    }
    return top;
}

/* -- what a device does with a frame -- */

static void fill_sums(uint8_t *bytes, uint32_t size_bytes, const struct mill_frame *frame)
{
    uint8_t *ip = bytes + frame->l2_bytes;
    if (frame->flags & MILL_FRAME_CSUM_IPV4) {
        uint16_t sum = (uint16_t)~mill_csum_sum(ip, frame->l3_bytes);
        memcpy(ip + 10, &sum, sizeof(sum));
    }
    if (frame->flags & MILL_FRAME_CSUM_TCP) {
        uint8_t *tcp = ip + frame->l3_bytes;
        /* The field holds the pseudo-header's sum already. */
        uint16_t sum = (uint16_t)~mill_csum_sum(tcp, (size_t)(bytes + size_bytes - tcp));
        memcpy(tcp + 16, &sum, sizeof(sum));
    }
}

static bool in_outage(const struct mill_link_model *model)
{
    const struct mill_link_model_config *config = &model->config;
    bool over = config->impair_until_ns != 0 && model->now_ns >= config->impair_until_ns;
    return config->outage_every_ns > 0 && !over &&
           model->now_ns % config->outage_every_ns < config->outage_ns;
}

static void put_on_wire(struct mill_link_model *model, unsigned to, const uint8_t *bytes,
                        uint32_t size_bytes, uint64_t base_ns)
{
    struct packet *packet = malloc(sizeof(*packet) + size_bytes);
    MILL_ASSERT(packet != NULL);
    *packet = (struct packet){.order = model->order++, .size_bytes = size_bytes, .to = (uint8_t)to};
    memcpy(packet->bytes, bytes, size_bytes);
    packet->arrives_ns = base_ns + model->config.delay_ns;
    if (model->config.jitter_ns > 0) {
        packet->arrives_ns += mill_random_next(&model->random) % (model->config.jitter_ns + 1);
    }
    if (mill_load_be16(bytes + 12) == 0x0800 && chance(model, model->config.flip_ppm)) {
        /* Only what IPv4 and TCP sums cover: Ethernet's own check is not modelled. */
        uint32_t at = 14 + mill_random_below(&model->random, size_bytes - 14);
        packet->bytes[at] ^= (uint8_t)(1u << mill_random_below(&model->random, 8));
        packet->sum_bad = true;
    }
    heap_push(model, packet);
}

static void transmit(struct end *end, const uint8_t *bytes, uint32_t size_bytes)
{
    struct mill_link_model *model = end->model;
    if (model->tap) {
        model->tap(model->tap_context, end->number, bytes, size_bytes);
    }
    uint64_t leaves_ns = model->now_ns;
    if (model->config.rate_bytes_s > 0) {
        uint64_t start_ns = MILL_MAX(end->wire_free_ns, model->now_ns);
        uint64_t waiting = (start_ns - model->now_ns) * model->config.rate_bytes_s / MILL_NS_PER_S;
        if (waiting + size_bytes > model->config.queue_bytes) {
            return;
        }
        leaves_ns = start_ns + size_bytes * MILL_NS_PER_S / model->config.rate_bytes_s;
        end->wire_free_ns = leaves_ns;
    }
    if (in_outage(model) || chance(model, model->config.loss_ppm)) {
        return;
    }
    put_on_wire(model, 1 - end->number, bytes, size_bytes, leaves_ns);
    if (chance(model, model->config.duplicate_ppm)) {
        put_on_wire(model, 1 - end->number, bytes, size_bytes, leaves_ns);
    }
}

/* Cuts a frame of several segments as a card with TSO does. */
static void transmit_cut(struct end *end, const struct mill_frame *frame, const uint8_t *bytes,
                         uint32_t size_bytes)
{
    uint32_t headers = (uint32_t)frame->l2_bytes + frame->l3_bytes + frame->l4_bytes;
    uint32_t l4_at = (uint32_t)frame->l2_bytes + frame->l3_bytes;
    uint32_t payload = size_bytes - headers;
    uint8_t *cut = malloc(size_bytes);
    MILL_ASSERT(cut != NULL);
    for (uint32_t at = 0; at < payload; at += frame->segment_bytes) {
        uint32_t part = MILL_MIN(payload - at, (uint32_t)frame->segment_bytes);
        memcpy(cut, bytes, headers);
        memcpy(cut + headers, bytes + headers + at, part);
        uint32_t ip_bytes = frame->l3_bytes + (uint32_t)frame->l4_bytes + part;
        mill_store_be16(cut + frame->l2_bytes + 2, (uint16_t)ip_bytes);
        uint8_t *tcp = cut + l4_at;
        mill_store_be32(tcp + 4, mill_load_be32(tcp + 4) + at);
        if (at + part < payload) {
            tcp[13] &= (uint8_t)~0x09; /* FIN and PSH belong to the last one */
        }
        /* The sum in the field left out the length, which each segment adds. */
        uint8_t length[2];
        mill_store_be16(length, (uint16_t)(frame->l4_bytes + part));
        uint16_t sum;
        memcpy(&sum, tcp + 16, sizeof(sum));
        sum = mill_csum_add(sum, mill_csum_sum(length, 2));
        memcpy(tcp + 16, &sum, sizeof(sum));
        fill_sums(cut, headers + part, frame);
        transmit(end, cut, headers + part);
    }
    free(cut);
}

static void read_frame(struct end *end, struct mill_frame *frame)
{
    static const uint32_t most = HEADER_BYTES + 65536;
    uint32_t size = frame->header_bytes + frame->pieces_bytes;
    MILL_ASSERT_LE(size, most);
    uint8_t *bytes = malloc(size);
    MILL_ASSERT(bytes != NULL);
    memcpy(bytes, frame->header, frame->header_bytes);
    uint32_t at = frame->header_bytes;
    for (uint16_t i = 0; i < frame->pieces_count; i++) {
        const struct mill_ref *piece = &frame->pieces[i];
        memcpy(bytes + at, mill_ref_data(end->arena_base, piece), piece->size_bytes);
        at += piece->size_bytes;
        mill_loan_give(end->loans, piece);
    }
    MILL_ASSERT_EQ(at, size);
    if (frame->flags & MILL_FRAME_TSO) {
        transmit_cut(end, frame, bytes, size);
    } else {
        MILL_ASSERT_LE(size - frame->l2_bytes, (uint32_t)end->model->config.mtu);
        fill_sums(bytes, size, frame);
        transmit(end, bytes, size);
    }
    free(bytes);
    end->free_frames[end->free_count++] = frame;
}

/* -- the link's table -- */

static void buffer_free(struct mill_buf *buf)
{
    struct mill_link_model *model = buf->owner;
    model->buffers--;
    free(MILL_CONTAINER_OF(buf, struct buffer, buf));
}

static struct mill_buf *buffer_make(struct mill_link_model *model, const uint8_t *bytes,
                                    uint32_t size_bytes)
{
    struct buffer *buffer = malloc(sizeof(*buffer) + size_bytes);
    MILL_ASSERT(buffer != NULL);
    buffer->buf = (struct mill_buf){.data = buffer->bytes,
                                    .size_bytes = size_bytes,
                                    .charge_bytes = MILL_MAX(size_bytes, (uint32_t)BUFFER_CHARGE),
                                    .free = buffer_free,
                                    .owner = model};
    memcpy(buffer->bytes, bytes, size_bytes);
    model->buffers++;
    return &buffer->buf;
}

static struct mill_buf *receive_one(struct mill_link_model *model, const struct packet *packet)
{
    uint32_t at = 0;
    struct mill_chain chain = {0};
    while (at < packet->size_bytes) {
        uint32_t part = packet->size_bytes - at;
        if (model->config.split_buffers && part > 1) {
            part = 1 + mill_random_below(&model->random, part);
        }
        mill_chain_append(&chain, buffer_make(model, packet->bytes + at, part));
        at += part;
    }
    if (model->config.verified) {
        chain.head->flags = packet->sum_bad ? MILL_BUF_CSUM_BAD : MILL_BUF_CSUM_GOOD;
    }
    return chain.head;
}

static uint32_t link_receive(void *context, struct mill_buf **ret_frames, uint32_t max)
{
    struct end *end = context;
    struct mill_link_model *model = end->model;
    uint32_t count = 0;
    while (count < max && model->heap_count > 0) {
        struct packet *packet = model->heap[0];
        if (packet->arrives_ns > model->now_ns || packet->to != end->number) {
            break; /* one for the other end goes first: that end is stepped at this moment too */
        }
        heap_pop(model);
        ret_frames[count++] = receive_one(model, packet);
        free(packet);
    }
    return count;
}

static struct mill_frame *link_frame_get(void *context)
{
    struct end *end = context;
    if (end->free_count == 0 || chance(end->model, end->model->config.starve_ppm)) {
        return NULL;
    }
    return end->free_frames[--end->free_count];
}

static void link_frame_put(void *context, struct mill_frame *frame)
{
    struct end *end = context;
    end->free_frames[end->free_count++] = frame;
}

static uint32_t link_send(void *context, struct mill_frame **frames, uint32_t count)
{
    struct end *end = context;
    if (count > 0 && chance(end->model, end->model->config.short_ppm)) {
        count = mill_random_below(&end->model->random, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint16_t k = 0; k < frames[i]->pieces_count; k++) {
            mill_loan_take(end->loans, &frames[i]->pieces[k]);
        }
        end->queue[end->queue_count++] = frames[i];
    }
    return count;
}

static const struct mill_link_ops link_ops = {
    .receive = link_receive,
    .frame_get = link_frame_get,
    .frame_put = link_frame_put,
    .send = link_send,
};

static int end_init(struct mill_link_model *model, unsigned number, struct mill_loans *loans,
                    uint8_t *arena_base)
{
    struct end *end = &model->ends[number];
    const struct mill_link_model_config *config = &model->config;
    end->model = model;
    end->number = number;
    end->loans = loans;
    end->arena_base = arena_base;
    end->link = (struct mill_link){.ops = &link_ops,
                                   .context = end,
                                   .caps = {.mac = {2, 0, 0, 0, 0, (uint8_t)(1 + number)},
                                            .mtu = config->mtu,
                                            .pieces_max = config->pieces_max,
                                            .inline_bytes = config->inline_bytes,
                                            .tso_bytes_max = config->tso_bytes_max,
                                            .rx_csum_verified = config->verified}};
    end->frames = calloc(FRAMES_PER_END, sizeof(*end->frames));
    end->headers = calloc(FRAMES_PER_END, HEADER_BYTES);
    if (!end->frames || !end->headers) {
        return -1;
    }
    for (uint32_t i = 0; i < FRAMES_PER_END; i++) {
        end->frames[i].header = end->headers + (size_t)i * HEADER_BYTES;
        end->frames[i].header_capacity = HEADER_BYTES;
        end->free_frames[end->free_count++] = &end->frames[i];
    }
    return 0;
}

struct mill_link_model *mill_link_model_create(const struct mill_link_model_config *config,
                                               struct mill_loans *const loans[2],
                                               uint8_t *const arena_base[2])
{
    struct mill_link_model *model = calloc(1, sizeof(*model));
    if (!model) {
        return NULL;
    }
    model->config = *config;
    model->random.state = config->seed;
    for (unsigned i = 0; i < 2; i++) {
        if (end_init(model, i, loans[i], arena_base[i]) < 0) {
            mill_link_model_destroy(model);
            return NULL;
        }
    }
    return model;
}

void mill_link_model_destroy(struct mill_link_model *model)
{
    if (!model) {
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        struct end *end = &model->ends[i];
        for (uint32_t k = 0; k < end->queue_count; k++) {
            for (uint16_t p = 0; p < end->queue[k]->pieces_count; p++) {
                mill_loan_give(end->loans, &end->queue[k]->pieces[p]);
            }
        }
        free(end->frames);
        free(end->headers);
    }
    while (model->heap_count > 0) {
        free(heap_pop(model));
    }
    free(model->heap);
    free(model);
}

struct mill_link *mill_link_model_end(struct mill_link_model *model, unsigned end)
{
    return &model->ends[end].link;
}

void mill_link_model_advance(struct mill_link_model *model, uint64_t now_ns)
{
    model->now_ns = MILL_MAX(model->now_ns, now_ns);
    for (unsigned i = 0; i < 2; i++) {
        struct end *end = &model->ends[i];
        for (uint32_t k = 0; k < end->queue_count; k++) {
            read_frame(end, end->queue[k]);
        }
        end->queue_count = 0;
    }
}

uint64_t mill_link_model_next(const struct mill_link_model *model)
{
    if (model->ends[0].queue_count > 0 || model->ends[1].queue_count > 0) {
        return model->now_ns;
    }
    return model->heap_count > 0 ? model->heap[0]->arrives_ns : MILL_NEVER;
}

uint64_t mill_link_model_buffers(const struct mill_link_model *model)
{
    return model->buffers;
}

void mill_link_model_tap(struct mill_link_model *model, mill_link_tap *tap, void *context)
{
    model->tap = tap;
    model->tap_context = context;
}

void mill_link_model_inject(struct mill_link_model *model, unsigned to, const uint8_t *frame,
                            uint32_t size_bytes)
{
    struct packet *packet = malloc(sizeof(*packet) + size_bytes);
    MILL_ASSERT(packet != NULL);
    *packet = (struct packet){.arrives_ns = model->now_ns,
                              .order = model->order++,
                              .size_bytes = size_bytes,
                              .to = (uint8_t)to};
    memcpy(packet->bytes, frame, size_bytes);
    heap_push(model, packet);
}
