/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/port/support.h"

#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/byteorder.h"

enum {
    HOLD_LOOK_US = 20000,
    HOLD_LOOKS = 10000, /* 200 s: several times what a run takes */
};

uint8_t *mill_arena_base(const struct mill_arena *arena)
{
    return arena->base;
}

uint64_t mill_arena_size_bytes(const struct mill_arena *arena)
{
    return arena->size_bytes;
}

bool mill_arena_file(const struct mill_arena *arena, uint32_t index, uint8_t **ret_base,
                     uint64_t *ret_size_bytes, uint32_t *ret_page_bytes, int *ret_node)
{
    if (index > 0) {
        return false;
    }
    *ret_base = mill_arena_base(arena);
    *ret_size_bytes = mill_arena_size_bytes(arena);
    *ret_page_bytes = 4096;
    *ret_node = 0;
    return true;
}

void test_world_init(struct test_world *world)
{
    memset(world, 0, sizeof(*world));
    size_t all = TEST_ARENA_BYTES + MILL_CHUNK_BYTES;
    uint8_t *map = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MILL_ASSERT(map != MAP_FAILED);
    size_t skip = MILL_CHUNK_BYTES - (uintptr_t)map % MILL_CHUNK_BYTES;
    world->arena.base = map + skip;
    world->arena.size_bytes = TEST_ARENA_BYTES;
    uint32_t state = 1;
    for (uint32_t i = 0; i < TEST_ARENA_BYTES; i++) {
        state = state * 1664525u + 1013904223u;
        world->arena.base[i] = (uint8_t)(state >> 24);
    }
    MILL_ASSERT_EQ(mill_loans_init(&world->loans, TEST_ARENA_BYTES / MILL_EXTENT_UNIT_BYTES, 64),
                   0);
    for (uint32_t i = 0; i < TEST_QUEUES_MAX; i++) {
        world->loans_of[i] = &world->loans;
    }
}

void test_world_fini(struct test_world *world)
{
    munmap(world->arena.base, TEST_ARENA_BYTES);
    mill_loans_fini(&world->loans);
}

int test_eal_start(const char *prefix)
{
    struct mill_report report = {.text = ""};
    struct mill_eal_options options = {.file_prefix = prefix, .memory_mb = 160};
    int code = mill_eal_start(&options, &report);
    if (code < 0) {
        fprintf(stderr, "%s\n", report.text);
    }
    return code;
}

struct mill_port_options test_options(const char *device)
{
    struct mill_port_options options = {.name = "nic0", .queues = 1, .mtu = 1500, .node_id = 1};
    snprintf(options.device, sizeof(options.device), "%s", device);
    return options;
}

struct mill_ref test_ref(uint32_t pos_bytes, uint32_t size_bytes)
{
    return (struct mill_ref){.extent = pos_bytes >> MILL_EXTENT_UNIT_SHIFT,
                             .pos_bytes = pos_bytes % MILL_EXTENT_UNIT_BYTES,
                             .size_bytes = size_bytes};
}

static void put_headers(uint8_t *at, const struct mill_link *link, const uint8_t to_mac[6],
                        uint32_t payload_bytes)
{
    static const uint8_t addresses[8] = {198, 18, 0, 1, 198, 18, 0, 2};
    uint8_t *ipv4 = at + TEST_ETH_BYTES;
    uint8_t *tcp = ipv4 + 20;
    uint32_t sum = 0;
    memset(at, 0, TEST_HEADERS_BYTES);
    memcpy(at, to_mac, 6);
    memcpy(at + 6, link->caps.mac, 6);
    mill_store_be16(at + 12, 0x0800);
    ipv4[0] = 0x45;
    mill_store_be16(ipv4 + 2, (uint16_t)(40 + payload_bytes));
    ipv4[8] = 64;
    ipv4[9] = 6;
    memcpy(ipv4 + 12, addresses, 8);
    mill_store_be16(tcp, 9092);
    mill_store_be16(tcp + 2, 40000);
    tcp[12] = 0x50;
    tcp[13] = 0x18;
    for (int i = 12; i < 20; i += 2) {
        sum += mill_load_be16(ipv4 + i);
    }
    sum += 6 + 20 + payload_bytes;
    sum = (sum & 0xffff) + (sum >> 16);
    mill_store_be16(tcp + 16, (uint16_t)((sum & 0xffff) + (sum >> 16)));
}

struct mill_frame *test_tcp_frame(const struct mill_link *link, const uint8_t to_mac[6],
                                  const void *inlined, uint32_t inlined_bytes,
                                  const struct mill_ref *pieces, uint16_t count)
{
    struct mill_frame *frame = link->ops->frame_get(link->context);
    if (frame == NULL) {
        return NULL;
    }
    frame->header_bytes = TEST_HEADERS_BYTES + inlined_bytes;
    for (uint16_t i = 0; i < count; i++) {
        frame->pieces[i] = pieces[i];
        frame->pieces_bytes += pieces[i].size_bytes;
    }
    frame->pieces_count = count;
    put_headers(frame->header, link, to_mac, inlined_bytes + frame->pieces_bytes);
    if (inlined_bytes > 0) {
        memcpy(frame->header + TEST_HEADERS_BYTES, inlined, inlined_bytes);
    }
    frame->l2_bytes = TEST_ETH_BYTES;
    frame->l3_bytes = 20;
    frame->l4_bytes = 20;
    frame->flags = MILL_FRAME_CSUM_IPV4 | MILL_FRAME_CSUM_TCP;
    return frame;
}

uint32_t test_payload(const struct test_world *world, const void *inlined, uint32_t inlined_bytes,
                      const struct mill_ref *pieces, uint16_t count, uint8_t *ret_bytes)
{
    uint32_t at = inlined_bytes;
    if (inlined_bytes > 0) {
        memcpy(ret_bytes, inlined, inlined_bytes);
    }
    for (uint16_t i = 0; i < count; i++) {
        memcpy(ret_bytes + at, mill_ref_data(world->arena.base, &pieces[i]), pieces[i].size_bytes);
        at += pieces[i].size_bytes;
    }
    return at;
}

uint32_t test_take(struct mill_buf *buf, uint8_t *ret_bytes, uint32_t max, uint32_t *ret_buffers)
{
    uint32_t size_bytes = 0;
    uint32_t buffers = 0;
    while (buf != NULL) {
        struct mill_buf *next = buf->next;
        MILL_ASSERT_LE(size_bytes + buf->size_bytes, max);
        memcpy(ret_bytes + size_bytes, buf->data, buf->size_bytes);
        size_bytes += buf->size_bytes;
        buffers++;
        buf->free(buf);
        buf = next;
    }
    if (ret_buffers != NULL) {
        *ret_buffers = buffers;
    }
    return size_bytes;
}

static uint16_t plain_sum(const uint8_t *bytes, uint32_t size_bytes, uint32_t sum)
{
    for (uint32_t i = 0; i < size_bytes; i++) {
        sum += (i & 1) == 0 ? (uint32_t)bytes[i] << 8 : bytes[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (uint16_t)sum;
}

bool test_sums_right(const uint8_t *frame, uint32_t size_bytes)
{
    const uint8_t *ipv4 = frame + TEST_ETH_BYTES;
    uint32_t total = mill_load_be16(ipv4 + 2);
    if (total + TEST_ETH_BYTES > size_bytes || plain_sum(ipv4, 20, 0) != 0xffff) {
        return false;
    }
    uint32_t pseudo = plain_sum(ipv4 + 12, 8, 6 + total - 20);
    return plain_sum(ipv4 + 20, total - 20, pseudo) == 0xffff;
}

int test_run(const char *format, ...)
{
    char command[512];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(command, sizeof(command) - 32, format, args);
    va_end(args);
    MILL_ASSERT(used > 0 && (size_t)used < sizeof(command) - 32);
    memcpy(command + used, " >/dev/null 2>&1", 17);
    int status = system(command);
    return status == -1 ? -1 : status >> 8;
}

int test_peer_open(const char *netns, const char *iface)
{
    char path[64];
    snprintf(path, sizeof(path), "/run/netns/%s", netns);
    int before = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    int inside = open(path, O_RDONLY | O_CLOEXEC);
    if (before < 0 || inside < 0 || setns(inside, CLONE_NEWNET) != 0) {
        return -1;
    }
    uint16_t every = __builtin_bswap16(3); /* ETH_P_ALL */
    int peer = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, every);
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = every, .sll_ifindex = (int)if_nametoindex(iface)};
    bool bound = bind(peer, (struct sockaddr *)&address, sizeof(address)) == 0;
    bool back = setns(before, CLONE_NEWNET) == 0;
    close(before);
    close(inside);
    return bound && back ? peer : -1;
}

uint32_t test_peer_take(int peer, uint8_t *ret_bytes, uint32_t max)
{
    for (int i = 0; i < 200;) {
        struct sockaddr_ll from;
        socklen_t from_bytes = sizeof(from);
        ssize_t size_bytes =
            recvfrom(peer, ret_bytes, max, 0, (struct sockaddr *)&from, &from_bytes);
        if (size_bytes > 0 && from.sll_pkttype != PACKET_OUTGOING) {
            return (uint32_t)size_bytes;
        }
        if (size_bytes < 0) {
            usleep(1000);
            i++;
        }
    }
    return 0;
}

/* Waits until no other run has namespaces of this name: two trees may be tested at once. The name
 * is held until this process ends, however it ends, and leaves nothing. */
static void namespaces_hold(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s", name);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool held = false;
    for (int i = 0; !held && i < HOLD_LOOKS; i++) {
        held = bind(fd, (struct sockaddr *)&address, bytes) == 0;
        usleep(held ? 0 : HOLD_LOOK_US);
    }
    MILL_ASSERT(held);
}

bool test_can_tap(const char *name)
{
    char probe[64];
    if (geteuid() != 0) {
        printf("skipped: needs root for TAP and namespaces\n");
        return false;
    }
    if (access("/dev/net/tun", R_OK | W_OK) != 0) {
        printf("skipped: /dev/net/tun is not there\n");
        return false;
    }
    snprintf(probe, sizeof(probe), "mill-port-probe-%d", (int)getpid());
    if (test_run("ip netns add %s", probe) != 0) {
        printf("skipped: ip netns add failed\n");
        return false;
    }
    (void)test_run("ip netns del %s", probe);
    namespaces_hold(name);
    return true;
}
