/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between the cores of one port; see distribute.h. Runs below net/ in each core's receive:
 * nothing here blocks, allocates or parses more than headers, and what it parses is input. */
#include "dataplane/net/distribute.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "dataplane/net/flow_map.h"
#include "hugepages/ring.h"

enum {
    ETHERNET_BYTES = 14,
    IPV4_BYTES = 20,
    ETHERTYPE_IPV4 = 0x0800,
    ETHERTYPE_ARP = 0x0806,
    PROTOCOL_ICMP = 1,
    PROTOCOL_TCP = 6,
    ICMP_UNREACHABLE = 3,
    ICMP_BYTES = 8,
    FRAGMENT_OFFSET_MASK = 0x1fff,
    ARP_FRAME_BYTES = ETHERNET_BYTES + 28,
    COPIES = 32, /* ARP frames of others not yet looked at, per core */
    LOOKS = 4,   /* bursts of the port that one receive call may deal out */
};

enum message_kind {
    MESSAGE_FRAME = 1,
    MESSAGE_ARP = 2,
};

struct message_frame {
    struct mill_buf *frame;
};

/* A frame of another core, copied: what the ring held is free at once. */
struct copy {
    struct mill_buf buf;
    struct copy *next;
    struct side *side;
    uint8_t bytes[ARP_FRAME_BYTES];
};

/* One core's part. All of it belongs to the core. */
struct side {
    MILL_SPACED struct mill_link link; /* context is this */
    struct mill_distributor *of;
    const struct mill_link *port;
    struct mill_link_counts counts;
    uint64_t touched; /* bit per core: its ring has claims */
    uint32_t index;
    uint32_t turn;         /* the core whose ring is looked at first goes round */
    bool deals;            /* looks at each frame's addresses */
    struct mill_ring *out; /* per core, own unused */
    struct mill_ring *in;
    struct copy *copies_free;
    struct copy copies[COPIES];
};

struct mill_distributor {
    uint32_t cores_count;
    uint32_t rx_queues;
    uint32_t address;
    uint32_t direct_count;
    uint16_t direct[MILL_DISTRIBUTE_DIRECT_MAX];
    struct mill_link_wake wake;
    struct mill_flow_map *flows;
    struct side *sides;
    struct mill_ring *ends; /* 2 per pair of cores */
    uint8_t *rings;
};
static_assert(MILL_DISTRIBUTE_CORES_MAX <= 64, "a bit per core");

static void frame_free(struct mill_buf *buf)
{
    while (buf) {
        struct mill_buf *next = buf->next;
        buf->free(buf);
        buf = next;
    }
}

/* --- giving ---------------------------------------------------------------------------------- */

static void publish(struct side *side)
{
    for (uint64_t left = side->touched; left != 0; left &= left - 1) {
        uint32_t to = (uint32_t)__builtin_ctzll(left);
        mill_ring_publish(&side->out[to]);
        if (side->of->wake.wake) {
            side->of->wake.wake(side->of->wake.context, side->index, to);
        }
    }
    side->touched = 0;
}

/* The frame is the other core's, or gone. */
static void give(struct side *side, uint32_t to, struct mill_buf *frame)
{
    struct message_frame *message =
        mill_ring_claim(&side->out[to], MESSAGE_FRAME, sizeof(*message));
    if (MILL_COUNT_IF(!message, side->counts.handover_dropped)) {
        frame_free(frame);
        return;
    }
    message->frame = frame;
    side->touched |= 1ull << to;
#ifndef MILL_MUTANT_DISTRIBUTE_UNCOUNTED
    side->counts.misdirected++;
#endif
}

/* --- reading headers ------------------------------------------------------------------------- */

/* The 4-tuple of an IPv4 header with the first bytes of TCP behind it. ret: false: not one, or not
 * whole. */
static bool tuple_of(const uint8_t *ip, uint32_t size_bytes, bool quoted,
                     struct mill_flow_key *ret_key)
{
    if (size_bytes < IPV4_BYTES || ip[0] >> 4 != 4) {
        return false;
    }
    uint32_t header_bytes = (ip[0] & 15u) * 4u;
    if (header_bytes < IPV4_BYTES || size_bytes < header_bytes + 4 || ip[9] != PROTOCOL_TCP ||
        (mill_load_be16(ip + 6) & FRAGMENT_OFFSET_MASK) != 0) {
        return false;
    }
    uint32_t source = mill_load_be32(ip + 12);
    uint32_t target = mill_load_be32(ip + 16);
    uint16_t source_port = mill_load_be16(ip + header_bytes);
    uint16_t target_port = mill_load_be16(ip + header_bytes + 2);
    /* What an ICMP error quotes is a packet that we sent. */
    *ret_key = quoted ? (struct mill_flow_key){.local = source,
                                               .peer = target,
                                               .local_port = source_port,
                                               .peer_port = target_port}
                      : (struct mill_flow_key){.local = target,
                                               .peer = source,
                                               .local_port = target_port,
                                               .peer_port = source_port};
    return true;
}

static bool key_of(const struct mill_distributor *of, const struct mill_buf *frame,
                   struct mill_flow_key *ret_key)
{
    /* Headers that a device split over buffers are left to net/, which finds the owner on a miss.
     */
    const uint8_t *ip = frame->data + ETHERNET_BYTES;
    uint32_t size_bytes = frame->size_bytes - ETHERNET_BYTES;
    bool found = tuple_of(ip, size_bytes, false, ret_key);
    if (!found && size_bytes > IPV4_BYTES && ip[9] == PROTOCOL_ICMP) {
        uint32_t header_bytes = (ip[0] & 15u) * 4u;
        if (size_bytes < header_bytes + ICMP_BYTES || ip[header_bytes] != ICMP_UNREACHABLE) {
            return false;
        }
        header_bytes += ICMP_BYTES;
        found = tuple_of(ip + header_bytes, size_bytes - header_bytes, true, ret_key);
    }
    return found && ret_key->local == of->address;
}

/* The core that a frame of this core's queue is dealt to. */
static uint32_t target_of(const struct side *side, const struct mill_buf *frame)
{
    const struct mill_distributor *of = side->of;
    struct mill_flow_key key;
    if (!key_of(of, frame, &key)) {
        return side->index;
    }
    for (uint32_t i = 0; i < of->direct_count; i++) {
        uint32_t core = (uint32_t)key.local_port - of->direct[i];
        if (core < of->cores_count) {
#ifdef MILL_MUTANT_DISTRIBUTE_WRONG_CORE
            core = (core + 1) % of->cores_count;
#endif
            return core;
        }
    }
    /* Queue q serves cores q, q + queues, q + 2 queues, ... */
    uint32_t served = (of->cores_count - side->index + of->rx_queues - 1) / of->rx_queues;
    if (served == 1) {
        return side->index;
    }
    uint64_t hash = mill_flow_map_hash(of->flows, &key);
#ifdef MILL_MUTANT_DISTRIBUTE_FIRST_CORE
    hash = 0;
#endif
    return side->index + (uint32_t)((hash >> 32) * served >> 32) * of->rx_queues;
}

/* A request to us, an answer to us, or an announcement: each stack has neighbours of its own. */
static bool arp_concerns(const struct mill_distributor *of, const struct mill_buf *frame)
{
    const uint8_t *arp = frame->data + ETHERNET_BYTES;
    if (frame->size_bytes < ARP_FRAME_BYTES) {
        return false;
    }
    uint32_t sender = mill_load_be32(arp + 14);
    uint32_t target = mill_load_be32(arp + 24);
    return target == of->address || sender == target;
}

static void arp_copy(struct side *side, const struct mill_buf *frame)
{
    for (uint32_t to = 0; to < side->of->cores_count; to++) {
        if (to == side->index) {
            continue;
        }
        void *bytes = mill_ring_claim(&side->out[to], MESSAGE_ARP, ARP_FRAME_BYTES);
        if (!MILL_COUNT_IF(!bytes, side->counts.handover_dropped)) {
            memcpy(bytes, frame->data, ARP_FRAME_BYTES);
            side->touched |= 1ull << to;
        }
    }
}

/* Deals out what the port gave. ret: frames kept, moved together. */
static uint32_t deal(struct side *side, struct mill_buf **frames, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct mill_buf *frame = frames[i];
        uint32_t to = side->index;
        if (MILL_LIKELY(frame->size_bytes >= ETHERNET_BYTES)) {
            uint16_t ethertype = mill_load_be16(frame->data + 12);
            if (ethertype == ETHERTYPE_ARP && arp_concerns(side->of, frame)) {
                arp_copy(side, frame);
            } else if (ethertype == ETHERTYPE_IPV4 && side->deals) {
                to = target_of(side, frame);
            }
        }
        if (to == side->index) {
            frames[kept++] = frame;
        } else {
            give(side, to, frame);
        }
    }
    return kept;
}

/* --- taking ---------------------------------------------------------------------------------- */

static void copy_free(struct mill_buf *buf)
{
    struct copy *copy = MILL_CONTAINER_OF(buf, struct copy, buf);
    copy->next = copy->side->copies_free;
    copy->side->copies_free = copy;
}

/* ret: NULL: none is free; a neighbour that is needed will be asked again. */
static struct mill_buf *copy_make(struct side *side, const void *bytes)
{
    struct copy *copy = side->copies_free;
    if (MILL_COUNT_IF(!copy, side->counts.handover_dropped)) {
        return NULL;
    }
    side->copies_free = copy->next;
    memcpy(copy->bytes, bytes, ARP_FRAME_BYTES);
    copy->buf = (struct mill_buf){
        .data = copy->bytes,
        .size_bytes = ARP_FRAME_BYTES,
        .charge_bytes = ARP_FRAME_BYTES,
        .flags = MILL_BUF_COPIED,
        .free = copy_free,
    };
    return &copy->buf;
}

static uint32_t take(struct side *side, uint32_t from, struct mill_buf **ret_frames, uint32_t max)
{
    struct mill_ring *in = &side->in[from];
    uint32_t count = 0;
    uint32_t taken = 0;
    uint32_t kind;
    uint32_t size_bytes;
    const void *message;
    while (taken < max && (message = mill_ring_next(in, &kind, &size_bytes)) != NULL) {
        struct mill_buf *frame;
        if (kind == MESSAGE_ARP) {
            frame = copy_make(side, message);
        } else {
            frame = ((const struct message_frame *)message)->frame;
        }
        if (frame) {
            ret_frames[count++] = frame;
        }
        taken++;
    }
    if (taken > 0) {
        mill_ring_release(in);
    }
    return count;
}

static uint32_t side_receive(void *link, struct mill_buf **ret_frames, uint32_t max)
{
    struct side *side = link;
    const struct mill_distributor *of = side->of;
    uint32_t count = 0;
    /* Half for others, so that neither they nor the port can keep the other one waiting. */
    uint32_t most = (max + 1) / 2;
    side->turn++;
    for (uint32_t i = 0; i < of->cores_count; i++) {
        uint32_t from = (side->turn + i) % of->cores_count;
        if (from != side->index) {
            count += take(side, from, ret_frames + count, most - MILL_MIN(count, most));
        }
    }
    for (uint32_t looks = 0; looks < LOOKS && count < max; looks++) {
        uint32_t room = max - count;
        uint32_t got = side->port->ops->receive(side->port->context, ret_frames + count, room);
        count += deal(side, ret_frames + count, got);
        if (got < room) {
            break;
        }
    }
    if (side->touched != 0) {
        publish(side);
    }
    return count;
}

/* --- the rest of the link -------------------------------------------------------------------- */

static struct mill_frame *side_frame_get(void *link)
{
    const struct side *side = link;
    return side->port->ops->frame_get(side->port->context);
}

static void side_frame_put(void *link, struct mill_frame *frame)
{
    const struct side *side = link;
    side->port->ops->frame_put(side->port->context, frame);
}

static uint32_t side_send(void *link, struct mill_frame **frames, uint32_t count)
{
    const struct side *side = link;
    return side->port->ops->send(side->port->context, frames, count);
}

static int side_neighbour(void *link, uint32_t address, uint8_t ret_mac[6])
{
    const struct side *side = link;
    const struct mill_link_ops *ops = side->port->ops;
    return ops->neighbour ? ops->neighbour(side->port->context, address, ret_mac) : -EAGAIN;
}

static void side_flow_begun(void *link, const struct mill_flow_key *key)
{
    struct side *side = link;
    bool shared = mill_flow_map_add(side->of->flows, side->index, key);
    (void)MILL_COUNT_IF(!shared, side->counts.flows_unshared);
}

static void side_flow_ended(void *link, const struct mill_flow_key *key)
{
    const struct side *side = link;
    mill_flow_map_remove(side->of->flows, side->index, key);
}

static bool side_misplaced(void *link, struct mill_buf *frame, const struct mill_flow_key *key)
{
    struct side *side = link;
    uint32_t owner = mill_flow_map_find(side->of->flows, side->index, key);
    if (owner == MILL_FLOW_NO_CORE) {
        return false;
    }
    /* Once: a core that does not know it either answers it as unknown. */
    frame->flags |= MILL_BUF_MOVED;
#ifdef MILL_MUTANT_DISTRIBUTE_DROP_MISPLACED
    frame_free(frame);
    return true;
#endif
    give(side, owner, frame);
    publish(side);
    return true;
}

static const struct mill_link_ops side_ops = {
    .receive = side_receive,
    .frame_get = side_frame_get,
    .frame_put = side_frame_put,
    .send = side_send,
    .neighbour = side_neighbour,
    .flow_begun = side_flow_begun,
    .flow_ended = side_flow_ended,
    .misplaced = side_misplaced,
};

/* --- making ---------------------------------------------------------------------------------- */

static uint64_t ring_bytes(void)
{
    return mill_round_up(mill_ring_bytes(MILL_DISTRIBUTE_RING_BYTES), MILL_CACHE_SPACING_BYTES);
}

uint64_t mill_distributor_bytes(uint32_t cores_count, uint32_t flows_max)
{
    uint64_t pairs = (uint64_t)cores_count * cores_count;
    return pairs * (ring_bytes() + 2 * sizeof(struct mill_ring)) +
           cores_count * sizeof(struct side) + mill_flow_map_bytes(cores_count, flows_max);
}

static void rings_make(struct mill_distributor *of)
{
    uint32_t n = of->cores_count;
    for (uint32_t from = 0; from < n; from++) {
        for (uint32_t to = 0; to < n; to++) {
            struct mill_ring_shared *shared = mill_ring_format(
                of->rings + ring_bytes() * (from * n + to), MILL_DISTRIBUTE_RING_BYTES);
            struct mill_ring *out = &of->ends[from * n + to];
            struct mill_ring *in = &of->ends[(size_t)n * n + to * n + from];
            int r = mill_ring_attach_producer(out, shared, ring_bytes());
            r = r < 0 ? r : mill_ring_attach_consumer(in, shared, ring_bytes());
            MILL_ASSERT_EQ(r, 0); /* just formatted */
        }
    }
}

static void side_make(struct mill_distributor *of, uint32_t index, const struct mill_link *port)
{
    struct side *side = &of->sides[index];
    uint32_t n = of->cores_count;
    side->link = (struct mill_link){
        .ops = &side_ops, .context = side, .caps = port->caps, .counts = &side->counts};
    side->of = of;
    side->port = port;
    side->index = index;
    side->deals = of->rx_queues < n;
    side->out = &of->ends[index * n];
    side->in = &of->ends[(size_t)n * n + index * n];
    for (uint32_t i = 0; i < COPIES; i++) {
        side->copies[i].side = side;
        side->copies[i].next = side->copies_free;
        side->copies_free = &side->copies[i];
    }
}

int mill_distributor_create(const struct mill_distributor_config *config,
                            struct mill_distributor **ret_distributor, struct mill_report *report)
{
    uint32_t n = config->cores_count;
    struct mill_distributor *of = calloc(1, sizeof(*of));
    MILL_ASSERT(n > 0 && n <= MILL_DISTRIBUTE_CORES_MAX);
    MILL_ASSERT(config->rx_queues > 0 && config->rx_queues <= n);
    int r = of ? mill_flow_map_create(n, config->flows_max, config->secret, &of->flows) : -ENOMEM;
    if (r == 0) {
        of->cores_count = n;
        of->rx_queues = config->rx_queues;
        of->address = config->address;
        of->wake = config->wake;
        of->sides = aligned_alloc(MILL_CACHE_SPACING_BYTES, n * sizeof(struct side));
        of->ends = calloc(2 * (size_t)n * n, sizeof(of->ends[0]));
        of->rings = aligned_alloc(MILL_CACHE_SPACING_BYTES, ring_bytes() * n * n);
        if (of->sides) {
            memset(of->sides, 0, n * sizeof(struct side));
        }
        r = of->sides && of->ends && of->rings ? 0 : -ENOMEM;
    }
    if (r < 0) {
        if (of) {
            free(of->sides);
            of->sides = NULL;
        }
        mill_distributor_destroy(of);
        return mill_fail(report, r, "no memory to deal frames out to %u cores", n);
    }
    rings_make(of);
    for (uint32_t i = 0; i < n; i++) {
        side_make(of, i, config->links[i]);
    }
    *ret_distributor = of;
    return 0;
}

void mill_distributor_destroy(struct mill_distributor *of)
{
    if (!of) {
        return;
    }
    for (uint32_t i = 0; of->sides && i < of->cores_count; i++) {
        struct mill_buf *frame;
        for (uint32_t from = 0; from < of->cores_count; from++) {
            while (take(&of->sides[i], from, &frame, 1) > 0) {
                frame_free(frame);
            }
        }
    }
    mill_flow_map_destroy(of->flows);
    free(of->sides);
    free(of->ends);
    free(of->rings);
    free(of);
}

int mill_distributor_direct(struct mill_distributor *of, uint16_t port)
{
    if (of->direct_count == MILL_DISTRIBUTE_DIRECT_MAX) {
        return -ENOSPC;
    }
    of->direct[of->direct_count++] = port;
    for (uint32_t i = 0; i < of->cores_count; i++) {
        of->sides[i].deals = true;
    }
    return 0;
}

const struct mill_link *mill_distributor_link(struct mill_distributor *of, uint32_t core)
{
    MILL_ASSERT_LT(core, of->cores_count);
    return &of->sides[core].link;
}
