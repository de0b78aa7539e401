/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles per frame when its payload is sent in place (one more mbuf) and when it is copied behind
 * the headers, for payloads that lie in the cache and for payloads that do not. Where the two meet
 * is the inline threshold of a port. Sums are left out, as a card makes them.
 * One thread, a net_ring pair; the receiver's part is in both figures. Median of the rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <x86intrin.h>

#include "tests/unit/port/support.h"

enum {
    COLD_BYTES = 256 << 20,
    HOT_BYTES = 256 << 10,
    STRIDE_BYTES = 4096,
    FRAMES = 32768,
    BURST = 32,
    ROUNDS = 5,
};

struct bench {
    struct test_world world;
    const struct mill_link *in_place;
    const struct mill_link *copied;
    const struct mill_link *peer_of_in_place;
    const struct mill_link *peer_of_copied;
};

static const struct mill_link *open_side(struct bench *bench, const char *device, bool linearise)
{
    struct mill_report report = {.text = ""};
    struct mill_port *port = NULL;
    struct mill_port_options options = test_options(device);
    options.linearise = linearise;
    if (mill_port_open(&options, &bench->world.arena, bench->world.loans_of, &port, &report) < 0) {
        fprintf(stderr, "%s\n", report.text);
        exit(1);
    }
    return mill_port_link(port, 0);
}

static void free_frames(struct mill_buf **frames, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (struct mill_buf *buf = frames[i]; buf != NULL;) {
            struct mill_buf *next = buf->next;
            buf->free(buf);
            buf = next;
        }
    }
}

static uint64_t run(const struct mill_link *link, const struct mill_link *peer, uint32_t span_bytes,
                    uint32_t size_bytes)
{
    struct mill_frame *frames[BURST];
    struct mill_buf *in[BURST];
    uint32_t pos = 0;
    uint64_t begin = __rdtsc();
    for (uint32_t done = 0; done < FRAMES; done += BURST) {
        for (uint32_t i = 0; i < BURST; i++) {
            struct mill_ref ref = test_ref(pos, size_bytes);
            pos = (pos + STRIDE_BYTES) % span_bytes;
            frames[i] = test_tcp_frame(link, peer->caps.mac, NULL, 0, &ref, 1);
            MILL_ASSERT(frames[i] != NULL);
            frames[i]->flags = 0;
        }
        MILL_ASSERT_EQ(link->ops->send(link->context, frames, BURST), (uint32_t)BURST);
        free_frames(in, peer->ops->receive(peer->context, in, BURST));
    }
    return (__rdtsc() - begin) / FRAMES;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

int main(void)
{
    static const uint32_t sizes[] = {64, 256, 512, 1024, 1448};
    static struct bench bench;
    test_world_init(&bench.world);
    mill_loans_fini(&bench.world.loans);
    bench.world.arena.base = mmap(NULL, COLD_BYTES, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    MILL_ASSERT(bench.world.arena.base != MAP_FAILED);
    memset(bench.world.arena.base, 7, COLD_BYTES);
    bench.world.arena.size_bytes = COLD_BYTES;
    if (mill_loans_init(&bench.world.loans, COLD_BYTES / MILL_EXTENT_UNIT_BYTES, 64) < 0 ||
        test_eal_start("mill-perf-port") < 0) {
        return 1;
    }
    bench.in_place = open_side(&bench, "net_ring_pair:place:0", false);
    bench.peer_of_in_place = open_side(&bench, "net_ring_pair:place:1", false);
    bench.copied = open_side(&bench, "net_ring_pair:copy:0", true);
    bench.peer_of_copied = open_side(&bench, "net_ring_pair:copy:1", true);
    printf("%8s %6s %10s %10s   cycles per frame, median of %d\n", "payload", "data", "in place",
           "copied", ROUNDS);
    for (size_t i = 0; i < MILL_COUNT_OF(sizes); i++) {
        for (int cold = 0; cold < 2; cold++) {
            uint32_t span_bytes = cold ? COLD_BYTES : HOT_BYTES;
            uint64_t place[ROUNDS];
            uint64_t copy[ROUNDS];
            for (int round = 0; round < ROUNDS; round++) {
                place[round] = run(bench.in_place, bench.peer_of_in_place, span_bytes, sizes[i]);
                copy[round] = run(bench.copied, bench.peer_of_copied, span_bytes, sizes[i]);
            }
            qsort(place, ROUNDS, sizeof(place[0]), compare);
            qsort(copy, ROUNDS, sizeof(copy[0]), compare);
            printf("%8u %6s %10lu %10lu\n", sizes[i], cold ? "cold" : "hot", place[ROUNDS / 2],
                   copy[ROUNDS / 2]);
        }
    }
    mill_eal_stop();
    return 0;
}
