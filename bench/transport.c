/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel sockets or a port below a load; see transport.h. */
#include "bench/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <immintrin.h>

enum {
    ARENA_SPARE_BYTES = 16 << 20, /* its tables, and what buddies lose */
    EXTENT_BYTES_MAX = 32 << 20,
    RX_WINDOW_BYTES = 4 << 20,
    RX_BUFFERS = 4096, /* of ksock */
    REFS_PER_CONNECTION = 256,
    SEND_ARENA_BYTES = 256 << 10,
    PORT_RX_BUFFERS = 16384, /* of all queues */
    NODE_ID = 2,             /* of a MAC address that is made: not the broker's usual 1 */
    PAUSES = 8,
    LINK_GAP_NS = 1000000,
    /* On AF_XDP: behind those that a kernel chooses from by default. */
    OWN_PORT_FIRST = 61000,
    OWN_PORT_LAST = 65535,
    NEIGHBOUR_MS = 5000,
};

/* --- memory ----------------------------------------------------------------------------------- */

/* The arena's files lose their names at once: a killed run leaves nothing. */
static int arena_open(struct bench_transport *transport, uint64_t memory_bytes,
                      struct mill_report *report)
{
    char dir[64];
    bool taken = false;
    snprintf(dir, sizeof(dir), "/dev/shm/millrace-bench-%d-XXXXXX", (int)getpid());
    if (!mkdtemp(dir)) {
        return mill_fail(report, -errno, "%s: %s; a tmpfs is needed there", dir, strerror(errno));
    }
    struct mill_arena_options options = {
        .dir = dir,
        .size_bytes = memory_bytes + ARENA_SPARE_BYTES + EXTENT_BYTES_MAX,
        .nodes = 1,
        .cores = 1,
        .partitions_max = 1,
        .extent_bytes_max = EXTENT_BYTES_MAX,
    };
    int r = mill_arena_open(&options, &transport->arena, &taken, report);
    int gone = mill_arena_discard(dir, r == 0 ? report : NULL);
    if ((rmdir(dir) < 0 || gone < 0) && r == 0) {
        return mill_fail(report, -EIO, "%s: its files cannot be removed", dir);
    }
    if (r < 0) {
        return r;
    }
    uint32_t units = mill_arena_units(transport->arena);
    r = mill_loans_init(&transport->loans, units, 1);
    if (r < 0) {
        return mill_fail(report, r, "no memory for loan counts");
    }
    for (uint32_t i = 0; i < BENCH_QUEUES_MAX; i++) {
        transport->loans_of_queues[i] = &transport->loans;
    }
    r = mill_extents_create(transport->arena, 0, -1, &transport->extents);
    return r < 0 ? mill_fail(report, r, "no memory for extents") : 0;
}

int bench_transport_alloc(struct bench_transport *transport, uint32_t size_bytes,
                          struct mill_ref *ret_ref, struct mill_report *report)
{
    uint32_t extent = 0;
    int r = mill_extent_alloc(transport->extents, size_bytes, &extent);
    if (r < 0) {
        return mill_fail(report, r, "no %u bytes of memory for batches", size_bytes);
    }
    *ret_ref = (struct mill_ref){.extent = extent, .size_bytes = size_bytes};
    return 0;
}

/* --- kernel sockets --------------------------------------------------------------------------- */

static int ksock_open(struct bench_transport *transport, uint32_t connections_max,
                      const struct mill_stream_events *events, void *context,
                      struct mill_report *report)
{
    struct mill_ksock_config config = {
        .connections_max = connections_max,
        .refs_per_connection = REFS_PER_CONNECTION,
        .arena_bytes_per_connection = SEND_ARENA_BYTES,
        .rx_buffers = RX_BUFFERS,
        .rx_window_max = RX_WINDOW_BYTES,
    };
    mill_ksock_config_defaults(&config);
    int r = mill_ksock_create(&config, &transport->loans, mill_arena_base(transport->arena), events,
                              context, &transport->ksock, report);
    if (r == 0) {
        transport->maker = mill_ksock_maker(transport->ksock);
    }
    return r;
}

/* --- a port ----------------------------------------------------------------------------------- */

/* With hugepages when enough are free: without them everything works, somewhat slower. */
static int eal_start(const struct mill_bench_transport *options, struct mill_report *report)
{
    char prefix[40];
    snprintf(prefix, sizeof(prefix), "millrace-bench-%d", (int)getpid());
    struct mill_eal_options eal = {
        .file_prefix = prefix,
        .hugepages = mill_eal_pages_free() >= (options->memory_mb + 1) / 2,
        .memory_mb = options->memory_mb,
        .extra_args = options->eal_args,
    };
    return mill_eal_start(&eal, report);
}

static int port_open(struct bench_transport *transport, const struct mill_bench_transport *options,
                     struct mill_report *report)
{
    int r = eal_start(options, report);
    transport->eal_started = true; /* also after a failure */
    if (r < 0) {
        return r;
    }
    struct mill_port_options port = {
        .name = "bench",
        .mtu = options->mtu,
        .queues = options->queues,
        .queues_max = options->queues,
        .node_id = NODE_ID,
        .netns = options->netns,
        .rx_csum_trusted = options->rx_csum_trusted,
        .tx_csum_off = options->tx_csum_off,
        .rx_buffers = PORT_RX_BUFFERS / options->queues,
        .address = options->address,
        .prefix_bits = options->prefix_bits,
        .own_port_first = OWN_PORT_FIRST,
        .own_port_last = OWN_PORT_LAST,
    };
    snprintf(port.device, sizeof(port.device), "%s", options->device);
    r = mill_port_open(&port, transport->arena, transport->loans_of_queues, &transport->port,
                       report);
    if (r == 0) {
        transport->registered = mill_port_thread_register() == 0;
    }
    return r;
}

static int net_open(struct bench_transport *transport, const struct mill_bench_transport *options,
                    uint32_t connections_max, const struct mill_stream_events *events,
                    void *context, struct mill_report *report)
{
    struct mill_port_info info;
    uint64_t random[3];
    mill_port_info(transport->port, &info);
    transport->address = options->address;
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return mill_fail(report, -EIO, "no random numbers from the kernel");
    }
    struct mill_net_config config = {
        .address = options->address,
        .prefix_bits = options->prefix_bits,
        .gateway = options->gateway,
        .own_port_first = OWN_PORT_FIRST,
        .own_port_last = OWN_PORT_LAST,
        .secret = {random[0], random[1]},
        .random_seed = random[2],
        .connections_max = connections_max,
        .refs_per_connection = REFS_PER_CONNECTION,
        .arena_bytes_per_connection = SEND_ARENA_BYTES,
        .rx_window_max = RX_WINDOW_BYTES,
        .rx_budget_bytes = info.rx_pool_bytes / 2,
    };
    mill_net_config_defaults(&config);
    const struct mill_link *links[BENCH_QUEUES_MAX];
    for (uint16_t i = 0; i < options->queues; i++) {
        links[i] = mill_port_link(transport->port, i);
    }
    bench_queues_init(&transport->queues, links, options->queues);
    const struct mill_link *link = options->queues > 1 ? &transport->queues.link : links[0];
    int r = mill_net_create(&config, link, &transport->loans, mill_arena_base(transport->arena),
                            events, context, &transport->net, report);
    if (r == 0) {
        transport->maker = mill_net_maker(transport->net);
        mill_net_announce(transport->net, bench_now());
    }
    return r;
}

/* --- both ------------------------------------------------------------------------------------- */

int bench_transport_open(struct bench_transport *transport,
                         const struct mill_bench_transport *options, uint32_t connections_max,
                         uint64_t memory_bytes, const struct mill_stream_events *events,
                         void *context, struct mill_report *report)
{
    memset(transport, 0, sizeof(*transport));
    int r = arena_open(transport, memory_bytes, report);
    if (r == 0 && options->device) {
        r = port_open(transport, options, report);
        if (r == 0 && events) {
            r = net_open(transport, options, connections_max, events, context, report);
        }
    } else if (r == 0) {
        r = ksock_open(transport, connections_max, events, context, report);
    }
    if (r < 0) {
        bench_transport_close(transport);
    }
    return r;
}

void bench_transport_close(struct bench_transport *transport)
{
    if (transport->maker) {
        transport->maker->ops->destroy(transport->maker);
    }
    if (transport->port) {
        mill_port_close(transport->port);
    }
    if (transport->registered) {
        mill_port_thread_unregister();
    }
    if (transport->eal_started) {
        mill_eal_stop();
    }
    mill_extents_destroy(transport->extents);
    mill_loans_fini(&transport->loans);
    mill_arena_close(transport->arena, false);
    memset(transport, 0, sizeof(*transport));
}

static void v4_mapped(const void *address, uint8_t ret_address[16])
{
    memset(ret_address, 0, 10);
    memset(ret_address + 10, 0xff, 2);
    memcpy(ret_address + 12, address, 4);
}

/* Whom frames to a broker are sent to, where the kernel knows it and not our stack. */
static int neighbour_find(const struct bench_transport *transport, uint32_t address,
                          struct mill_report *report)
{
    uint32_t hop = mill_net_next_hop(transport->net, address);
    if (hop == 0) {
        return 0; /* connecting says so */
    }
    return mill_port_neighbour(transport->port, hop, NEIGHBOUR_MS * MILL_NS_PER_MS, report);
}

int bench_transport_resolve(const struct bench_transport *transport, const char *host,
                            uint8_t ret_address[16], struct mill_report *report)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1) {
        v4_mapped(&v4, ret_address);
        return transport->net && ntohl(v4.s_addr) != transport->address
                   ? neighbour_find(transport, ntohl(v4.s_addr), report)
                   : 0;
    }
    if (transport->port) {
        return mill_fail(report, -EINVAL, "%s: a port needs an IPv4 address in numbers", host);
    }
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        memcpy(ret_address, &v6, 16);
        return 0;
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(host, NULL, &hints, &found);
    if (code != 0) {
        return mill_fail(report, -ENOENT, "%s: %s", host, gai_strerror(code));
    }
    if (found->ai_family == AF_INET) {
        v4_mapped(&((const struct sockaddr_in *)(const void *)found->ai_addr)->sin_addr,
                  ret_address);
    } else {
        memcpy(ret_address, &((const struct sockaddr_in6 *)(const void *)found->ai_addr)->sin6_addr,
               16);
    }
    freeaddrinfo(found);
    return 0;
}

int bench_transport_link(struct bench_transport *transport, uint32_t timeout_ms,
                         struct mill_report *report)
{
    const struct timespec gap = {.tv_nsec = LINK_GAP_NS};
    struct mill_port_info info = {.link_up = true};
    for (uint64_t until_ns = bench_now() + timeout_ms * MILL_NS_PER_MS; transport->port;) {
        mill_port_info(transport->port, &info);
        if (info.link_up || bench_now() > until_ns) {
            break;
        }
        nanosleep(&gap, NULL);
    }
    return info.link_up
               ? 0
               : mill_fail(report, -ENETDOWN, "the port's link is down after %u ms", timeout_ms);
}

void bench_transport_wait(struct bench_transport *transport, bool busy, uint64_t timeout_ns)
{
    if (transport->ksock && !busy) {
        (void)mill_ksock_wait(transport->ksock, timeout_ns); /* a failed wait is a short one */
        return;
    }
    for (int i = 0; i < PAUSES; i++) {
        _mm_pause();
    }
}
