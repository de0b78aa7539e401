/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each frame reaches the core that it belongs to, once, whole and free-able there; what is
 * given away, dropped or copied is counted. Method: ports of our own that hand in frames made here,
 * first on one thread with tables of frames, then with a thread per core that sleeps on a bell. */
#include "tests/unit/test.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "base/random.h"
#include "dataplane/net/distribute.h"
#include "hugepages/ring.h"

enum {
    CORES_MAX = 4,
    QUEUE_MAX = 4096,
    FRAME_BYTES = 128,
    OURS = 0xc6120001,
    PEER = 0xc6120002,
    BURST = 32,
};

static _Atomic int64_t frames_alive;

struct frame {
    struct mill_buf buf;
    uint8_t bytes[FRAME_BYTES];
};

/* One queue of a port, in memory; its core's. */
struct queue {
    struct mill_link link;
    struct mill_buf *frames[QUEUE_MAX];
    uint32_t head;
    uint32_t tail;
};

struct world {
    struct mill_distributor *distributor;
    uint32_t cores;
    struct queue queues[CORES_MAX];
    uint32_t wakes[CORES_MAX];
    struct mill_bell_shared shared[CORES_MAX];
    int fds[CORES_MAX];
    bool bells;
};

static void frame_free(struct mill_buf *buf)
{
    free(buf->owner);
    atomic_fetch_sub(&frames_alive, 1);
}

static struct mill_buf *frame_new(uint32_t size_bytes)
{
    struct frame *frame = calloc(1, sizeof(*frame));
    assert_non_null(frame);
    frame->buf = (struct mill_buf){
        .data = frame->bytes, .size_bytes = size_bytes, .free = frame_free, .owner = frame};
    atomic_fetch_add(&frames_alive, 1);
    return &frame->buf;
}

static void put_ip(uint8_t *ip, uint8_t protocol, uint32_t source, uint32_t target)
{
    ip[0] = 0x45;
    mill_store_be16(ip + 2, FRAME_BYTES - 14);
    ip[9] = protocol;
    mill_store_be32(ip + 12, source);
    mill_store_be32(ip + 16, target);
}

static struct mill_buf *tcp_frame(uint16_t peer_port, uint16_t local_port)
{
    struct mill_buf *buf = frame_new(FRAME_BYTES);
    mill_store_be16(buf->data + 12, 0x0800);
    put_ip(buf->data + 14, 6, PEER, OURS);
    mill_store_be16(buf->data + 34, peer_port);
    mill_store_be16(buf->data + 36, local_port);
    return buf;
}

/* What the kernel sends when nobody takes our segment: the quoted one is the other way round. */
static struct mill_buf *unreachable_frame(uint16_t peer_port, uint16_t local_port)
{
    struct mill_buf *buf = frame_new(FRAME_BYTES);
    mill_store_be16(buf->data + 12, 0x0800);
    put_ip(buf->data + 14, 1, PEER, OURS);
    buf->data[34] = 3;
    put_ip(buf->data + 42, 6, OURS, PEER);
    mill_store_be16(buf->data + 62, local_port);
    mill_store_be16(buf->data + 64, peer_port);
    return buf;
}

static struct mill_buf *arp_frame(uint32_t sender, uint32_t target)
{
    struct mill_buf *buf = frame_new(60);
    mill_store_be16(buf->data + 12, 0x0806);
    mill_store_be32(buf->data + 28, sender);
    mill_store_be32(buf->data + 38, target);
    return buf;
}

static uint32_t queue_receive(void *link, struct mill_buf **ret_frames, uint32_t max)
{
    struct queue *queue = link;
    uint32_t count = 0;
    while (count < max && queue->head != queue->tail) {
        ret_frames[count++] = queue->frames[queue->head++ % QUEUE_MAX];
    }
    return count;
}

static const struct mill_link_ops queue_ops = {.receive = queue_receive};

static void put(struct world *world, uint32_t core, struct mill_buf *frame)
{
    struct queue *queue = &world->queues[core];
    assert_true(queue->tail - queue->head < QUEUE_MAX);
    queue->frames[queue->tail++ % QUEUE_MAX] = frame;
}

static void wake(void *context, uint32_t from, uint32_t to)
{
    struct world *world = context;
    struct mill_bell bell = {.shared = &world->shared[to], .fd = world->fds[to]};
    assert_int_not_equal(from, to);
    if (world->bells) {
        mill_bell_ring(&bell);
    } else {
        world->wakes[to]++;
    }
}

static void world_make(struct world *world, uint32_t cores, uint32_t rx_queues)
{
    const struct mill_link *links[CORES_MAX];
    struct mill_report report;
    memset(world, 0, sizeof(*world));
    world->cores = cores;
    for (uint32_t i = 0; i < cores; i++) {
        world->queues[i].link = (struct mill_link){.ops = &queue_ops, .context = &world->queues[i]};
        links[i] = &world->queues[i].link;
    }
    struct mill_distributor_config config = {
        .cores_count = cores,
        .rx_queues = rx_queues,
        .links = links,
        .address = OURS,
        .secret = {3, 4},
        .flows_max = 64,
        .wake = {.wake = wake, .context = world},
    };
    assert_int_equal(mill_distributor_create(&config, &world->distributor, &report), 0);
}

static void world_end(struct world *world)
{
    mill_distributor_destroy(world->distributor);
    for (uint32_t i = 0; i < world->cores; i++) {
        struct mill_buf *frame;
        while (queue_receive(&world->queues[i], &frame, 1) == 1) {
            frame->free(frame);
        }
    }
    assert_int_equal(atomic_load(&frames_alive), 0);
}

static const struct mill_link *link_of(struct world *world, uint32_t core)
{
    return mill_distributor_link(world->distributor, core);
}

/* One frame, NULL when there is none. */
static struct mill_buf *take(struct world *world, uint32_t core)
{
    const struct mill_link *link = link_of(world, core);
    struct mill_buf *frame = NULL;
    return link->ops->receive(link->context, &frame, 1) == 1 ? frame : NULL;
}

/* Runs every core until nothing moves. ret: the core that got the frame; it is freed. */
static uint32_t where(struct world *world, const struct mill_buf *sent)
{
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t core = 0; core < world->cores; core++) {
            struct mill_buf *frame = take(world, core);
            if (frame) {
                assert_ptr_equal(frame, sent);
                frame->free(frame);
                return core;
            }
        }
    }
    return UINT32_MAX;
}

static uint64_t misdirected(struct world *world, uint32_t core)
{
    return link_of(world, core)->counts->misdirected;
}

static void test_deal_direct_ports_reach_their_cores(void **state)
{
    static struct world world;
    const struct {
        uint16_t port;
        uint32_t from;
        uint32_t to;
    } rows[] = {
        {9092, 0, 0}, {9093, 0, 1},  {9094, 0, 2}, {9095, 0, 3}, /* one listener, four cores */
        {9092, 3, 0}, {9095, 1, 3},  {9096, 2, 2}, {9091, 1, 1}, /* on any queue; others stay */
        {7001, 0, 1}, {65535, 2, 1}, {0, 3, 3},                  /* a second and a third one */
    };
    MILL_UNUSED(state);
    world_make(&world, 4, 4);
    assert_int_equal(mill_distributor_direct(world.distributor, 9092), 0);
    assert_int_equal(mill_distributor_direct(world.distributor, 7000), 0);
    assert_int_equal(mill_distributor_direct(world.distributor, 65534), 0);
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        uint64_t before = misdirected(&world, rows[i].from);
        uint32_t wakes = world.wakes[rows[i].to];
        bool moves = rows[i].from != rows[i].to;
        struct mill_buf *frame = tcp_frame(50000, rows[i].port);
        put(&world, rows[i].from, frame);
        assert_int_equal(where(&world, frame), rows[i].to);
        assert_int_equal(misdirected(&world, rows[i].from), before + moves);
        assert_int_equal(world.wakes[rows[i].to], wakes + moves);
        frame = unreachable_frame(50000, rows[i].port);
        put(&world, rows[i].from, frame);
        assert_int_equal(where(&world, frame), rows[i].to);
    }
    world_end(&world);
}

/* Frames that are no TCP to us stay where they came in, however short or wrong they are. */
static void test_deal_others_and_malformed_stay(void **state)
{
    static struct world world;
    struct mill_random random = {.state = 9};
    MILL_UNUSED(state);
    world_make(&world, 4, 1);
    assert_int_equal(mill_distributor_direct(world.distributor, 9092), 0);
    for (uint32_t size = 0; size <= 37; size++) { /* a TCP frame cut anywhere before its ports */
        struct mill_buf *frame = tcp_frame(50000, 9093);
        frame->size_bytes = size;
        put(&world, 0, frame);
        assert_int_equal(where(&world, frame), 0);
    }
    struct mill_buf *frame = tcp_frame(50000, 9093);
    mill_store_be32(frame->data + 30, OURS + 7);
    put(&world, 0, frame);
    assert_int_equal(where(&world, frame), 0);
    frame = tcp_frame(50000, 9093);
    mill_store_be16(frame->data + 20, 0x2005); /* not the first fragment */
    put(&world, 0, frame);
    assert_int_equal(where(&world, frame), 0);
    assert_int_equal(misdirected(&world, 0), 0);
    for (uint32_t round = 0; round < 20000; round++) { /* noise: no read beyond the frame */
        frame = tcp_frame(50000, 9093);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t at = 12 + mill_random_below(&random, 40);
            frame->data[at] = (uint8_t)mill_random_next(&random);
        }
        frame->size_bytes = mill_random_below(&random, FRAME_BYTES + 1);
        put(&world, 0, frame);
        assert_int_not_equal(where(&world, frame), UINT32_MAX);
    }
    world_end(&world);
}

static void test_deal_fewer_queues_spreads_and_stays(void **state)
{
    static struct world world;
    MILL_UNUSED(state);
    for (uint32_t queues = 1; queues <= 3; queues++) {
        uint32_t counts[CORES_MAX] = {0};
        world_make(&world, 4, queues);
        for (uint16_t port = 0; port < 400; port++) {
            uint32_t queue = port % queues;
            struct mill_buf *frame = tcp_frame((uint16_t)(30000 + port), 9092);
            put(&world, queue, frame);
            uint32_t first = where(&world, frame);
            assert_int_equal(first % queues, queue); /* a core that the queue serves */
            counts[first]++;
            frame = tcp_frame((uint16_t)(30000 + port), 9092);
            put(&world, queue, frame);
            assert_int_equal(where(&world, frame), first);
        }
        for (uint32_t core = 0; core < 4; core++) {
            assert_in_range(counts[core], 40, 250);
        }
        world_end(&world);
    }
}

static void test_misplaced_goes_to_the_owner_once(void **state)
{
    static struct world world;
    struct mill_flow_key key = {
        .local = OURS, .peer = PEER, .local_port = 9092, .peer_port = 50000};
    MILL_UNUSED(state);
    world_make(&world, 3, 3);
    const struct mill_link *link = link_of(&world, 0);
    struct mill_buf *frame = tcp_frame(50000, 9092);
    assert_false(link->ops->misplaced(link->context, frame, &key)); /* nobody's */
    link_of(&world, 2)->ops->flow_begun(link_of(&world, 2)->context, &key);
    assert_true(link->ops->misplaced(link->context, frame, &key));
    assert_int_equal(misdirected(&world, 0), 1);
    assert_int_equal(world.wakes[2], 1);
    struct mill_buf *got = take(&world, 2);
    assert_ptr_equal(got, frame);
    assert_true((got->flags & MILL_BUF_MOVED) != 0); /* net/ does not give it away again */
    link_of(&world, 2)->ops->flow_ended(link_of(&world, 2)->context, &key);
    assert_false(link->ops->misplaced(link->context, frame, &key));
    frame->free(frame);
    world_end(&world);
}

static void test_full_ring_drops_and_counts(void **state)
{
    static struct world world;
    uint32_t sent = 0;
    uint32_t got = 0;
    struct mill_buf *frame;
    MILL_UNUSED(state);
    world_make(&world, 2, 2);
    assert_int_equal(mill_distributor_direct(world.distributor, 9092), 0);
    while (link_of(&world, 0)->counts->handover_dropped < 10 && sent < QUEUE_MAX) {
        put(&world, 0, tcp_frame(50000, 9093));
        sent++;
        assert_null(take(&world, 0));
    }
    while ((frame = take(&world, 1)) != NULL) {
        frame->free(frame);
        got++;
    }
    assert_int_equal(link_of(&world, 0)->counts->handover_dropped, 10);
    assert_int_equal(got, sent - 10);
    assert_int_equal(misdirected(&world, 0), got);
    put(&world, 0, tcp_frame(50000, 9093)); /* and on again */
    assert_null(take(&world, 0));
    frame = take(&world, 1);
    assert_non_null(frame);
    frame->free(frame);
    put(&world, 0, tcp_frame(50000, 9093)); /* left in the ring: freed with it */
    assert_null(take(&world, 0));
    world_end(&world);
}

static void test_arp_for_us_is_copied_to_all(void **state)
{
    static struct world world;
    const struct {
        uint32_t sender;
        uint32_t target;
        bool copied;
    } rows[] = {{PEER, OURS, true}, {PEER, PEER, true}, {PEER, PEER + 1, false}};
    MILL_UNUSED(state);
    world_make(&world, 3, 3);
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        struct mill_buf *frame = arp_frame(rows[i].sender, rows[i].target);
        put(&world, 1, frame);
        struct mill_buf *own = take(&world, 1);
        assert_ptr_equal(own, frame);
        assert_int_equal(own->flags & MILL_BUF_COPIED, 0);
        for (uint32_t core = 0; core < 3; core += 2) {
            struct mill_buf *copy = take(&world, core);
            assert_int_equal(copy != NULL, rows[i].copied);
            if (copy) {
                assert_true((copy->flags & MILL_BUF_COPIED) != 0);
                assert_memory_equal(copy->data, own->data, 42);
                copy->free(copy);
            }
        }
        own->free(own);
    }
    assert_int_equal(misdirected(&world, 1), 0);
    struct mill_buf *held[40]; /* copies that nobody takes in time are bounded and counted */
    uint32_t count = 0;
    for (uint32_t i = 0; i < 40; i++) {
        put(&world, 0, arp_frame(PEER, OURS));
        struct mill_buf *own = take(&world, 0);
        own->free(own);
        held[count] = take(&world, 1);
        count += held[count] != NULL;
    }
    assert_int_equal(count, 32);
    assert_int_equal(link_of(&world, 1)->counts->handover_dropped, 8);
    for (uint32_t i = 0; i < count; i++) {
        held[i]->free(held[i]);
    }
    world_end(&world);
}

/* --- a thread per core ----------------------------------------------------------------------- */

enum {
    RACE_FRAMES = 40000, /* per core */
    RACE_CORES = 3,
};

struct runner {
    struct world *world;
    uint32_t core;
    uint64_t got;
    uint64_t wrong;
    uint64_t late; /* sleeps that nobody ended */
    pthread_t thread;
};

static _Atomic uint64_t race_got;

static uint64_t look(struct runner *runner)
{
    const struct mill_link *link = link_of(runner->world, runner->core);
    struct mill_buf *frames[BURST];
    uint32_t count = link->ops->receive(link->context, frames, BURST);
    for (uint32_t i = 0; i < count; i++) {
        uint16_t port = mill_load_be16(frames[i]->data + 36);
        runner->wrong += port != 9092 + runner->core;
        frames[i]->free(frames[i]);
    }
    runner->got += count;
    atomic_fetch_add(&race_got, count);
    return count;
}

static void *runner_run(void *argument)
{
    struct runner *runner = argument;
    struct world *world = runner->world;
    struct mill_random random = {.state = runner->core + 1};
    struct mill_bell bell = {.shared = &world->shared[runner->core],
                             .fd = world->fds[runner->core]};
    uint32_t sent = 0;
    uint64_t dropped = 0;
    while (atomic_load(&race_got) < (uint64_t)RACE_CORES * RACE_FRAMES) {
        for (uint32_t i = mill_random_below(&random, BURST); i > 0 && sent < RACE_FRAMES; i--) {
            uint16_t to = (uint16_t)mill_random_below(&random, RACE_CORES);
            put(world, runner->core, tcp_frame(50000, (uint16_t)(9092 + to)));
            sent++;
        }
        uint64_t count = look(runner);
        uint64_t now = link_of(world, runner->core)->counts->handover_dropped;
        atomic_fetch_add(&race_got, now - dropped);
        dropped = now;
        if (count > 0 || sent < RACE_FRAMES) {
            continue;
        }
        mill_bell_asleep(&bell);
        if (look(runner) == 0) {
            struct pollfd fd = {.fd = bell.fd, .events = POLLIN};
            runner->late += poll(&fd, 1, 200) == 0 && look(runner) > 0;
        }
        mill_bell_awake(&bell);
    }
    return NULL;
}

static void test_threads_each_frame_once_and_no_lost_wakeup(void **state)
{
    static struct world world;
    struct runner runners[RACE_CORES] = {{0}};
    uint64_t got = 0;
    uint64_t dropped = 0;
    MILL_UNUSED(state);
    world_make(&world, RACE_CORES, RACE_CORES);
    assert_int_equal(mill_distributor_direct(world.distributor, 9092), 0);
    world.bells = true;
    for (uint32_t i = 0; i < RACE_CORES; i++) {
        world.fds[i] = eventfd(0, EFD_NONBLOCK);
        assert_true(world.fds[i] >= 0);
    }
    for (uint32_t i = 0; i < RACE_CORES; i++) {
        runners[i] = (struct runner){.world = &world, .core = i};
        assert_int_equal(pthread_create(&runners[i].thread, NULL, runner_run, &runners[i]), 0);
    }
    for (uint32_t i = 0; i < RACE_CORES; i++) {
        pthread_join(runners[i].thread, NULL);
        got += runners[i].got;
        dropped += link_of(&world, i)->counts->handover_dropped;
        assert_int_equal(runners[i].wrong, 0);
        assert_int_equal(runners[i].late, 0);
        assert_true(misdirected(&world, i) > 0);
        close(world.fds[i]);
    }
    assert_int_equal(got + dropped, (uint64_t)RACE_CORES * RACE_FRAMES);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deal_direct_ports_reach_their_cores),
        cmocka_unit_test(test_deal_others_and_malformed_stay),
        cmocka_unit_test(test_deal_fewer_queues_spreads_and_stays),
        cmocka_unit_test(test_misplaced_goes_to_the_owner_once),
        cmocka_unit_test(test_full_ring_drops_and_counts),
        cmocka_unit_test(test_arp_for_us_is_copied_to_all),
        cmocka_unit_test(test_threads_each_frame_once_and_no_lost_wakeup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
