/* SPDX-License-Identifier: Apache-2.0 */
/* Ports, stacks and listeners of the data plane. Main thread, before the cores run. */
#include "dataplane/core/plane_parts.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/log_line.h"

static_assert((int)MILL_THREAD_PORTS_MAX >= (int)MILL_CONFIG_PORTS_MAX &&
                  (int)MILL_COUNTERS_PORTS_MAX >= (int)MILL_CONFIG_PORTS_MAX &&
                  (int)MILL_CORE_MAKERS_MAX >= (int)MILL_CONFIG_PORTS_MAX + 1,
              "room for every port that a configuration may name, and for kernel sockets");

/* --- ports ----------------------------------------------------------------------------------- */

static const struct mill_config_port *port_config(const struct mill_config *config,
                                                  const char *name)
{
    const struct mill_config_port *ports = NULL;
    uint32_t count = mill_config_ports(config, &ports);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(ports[i].name, name) == 0) {
            return &ports[i];
        }
    }
    return NULL;
}

static int eal_start(struct mill_plane *plane, struct mill_report *report)
{
    const struct mill_config *config = plane->config;
    const struct mill_config_port *ports = NULL;
    const char *cards[MILL_CONFIG_PORTS_MAX];
    uint32_t count = mill_config_ports(config, &ports);
    struct mill_eal_options options = {
        .file_prefix = mill_config_instance(config),
        .hugepages = mill_config_bool(config, MILL_KEY_HUGEPAGES),
        .memory_mb = (uint32_t)mill_config_int(config, MILL_KEY_DPDK_MEMORY_MB),
        .extra_args = mill_config_text(config, MILL_KEY_DPDK_EAL_ARGS),
        .pci = cards,
    };
    for (uint32_t i = 0; i < count; i++) {
        if (mill_port_is_pci(ports[i].device)) {
            cards[options.pci_count++] = ports[i].device;
        }
    }
    int r = plane->eal_started ? 0 : mill_eal_start(&options, report);
    plane->eal_started = r == 0;
    return r;
}

static void port_share(struct mill_plane *plane, uint32_t index)
{
    struct mill_shared_port *shared = &plane->counters->ports[index];
    const struct mill_config_port *config = plane->port_configs[index];
    struct mill_port_info info;
    mill_port_info(plane->ports[index], &info);
    snprintf(shared->name, sizeof(shared->name), "%.31s", config->name);
    snprintf(shared->driver, sizeof(shared->driver), "%s", info.driver);
    memcpy(shared->mac, info.mac, sizeof(shared->mac));
    shared->mtu = info.mtu;
    shared->zero_copy = info.zero_copy;
    snprintf(shared->remark, sizeof(shared->remark), "%s", info.remark);
    snprintf(shared->address, sizeof(shared->address), "%u.%u.%u.%u/%u", config->address >> 24,
             (config->address >> 16) & 255, (config->address >> 8) & 255, config->address & 255,
             config->prefix_bits);
}

/* Of all stacks: the cores publish them together. */
static uint64_t checksums_wrong(const struct mill_plane *plane)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < plane->cores_count; i++) {
        sum += mill_counter_get(&plane->counters->cores[i].net.checksum_errors);
    }
    return sum;
}

/* The listeners of a port whose interface was deleted. */
static void listeners_end(struct mill_plane *plane, const struct mill_config_port *port)
{
    const struct mill_config_listener *listeners = NULL;
    uint32_t count = mill_config_listeners(plane->config, &listeners);
    for (uint32_t i = 0; i < count; i++) {
        if (listeners[i].transport == MILL_TRANSPORT_DPDK &&
            strcmp(listeners[i].device, port->name) == 0) {
            struct mill_shared_listener_info *info = &plane->counters->listeners[i];
            snprintf(info->state, sizeof(info->state), "the interface is gone");
        }
    }
}

void mill_plane_port_tell(struct mill_plane *plane, uint32_t port,
                          const struct mill_port_info *info,
                          const struct mill_port_counters *counters)
{
    const struct mill_config_port *config = plane->port_configs[port];
    const struct mill_port_seen seen = {
        .up = info->link_up,
        .gone = info->gone,
        .mtu_small = info->mtu_now < info->mtu,
        .downs = counters->link_downs,
        .frames = counters->rx_packets,
        .checksum_wrong = checksums_wrong(plane),
    };
    switch (mill_port_event(&plane->ports_told[port], &seen, mill_now_read().mono_ns)) {
    case MILL_PORT_EVENT_LINK_UP:
        mill_log_line(MILL_LEVEL_NOTICE, "port.link-up", "name=%s downs=%llu", config->name,
                      (unsigned long long)counters->link_downs);
        break;
    case MILL_PORT_EVENT_LINK_DOWN:
        mill_log_line(MILL_LEVEL_WARN, "port.link-down", "name=%s downs=%llu", config->name,
                      (unsigned long long)counters->link_downs);
        break;
    case MILL_PORT_EVENT_GONE:
        mill_log_line(MILL_LEVEL_ERROR, "port.gone",
                      "name=%s device=%s its interface was deleted; other listeners go on; make it "
                      "again and restart",
                      config->name, config->device);
        listeners_end(plane, config);
        break;
    case MILL_PORT_EVENT_MTU_SMALL:
        mill_log_line(
            MILL_LEVEL_WARN, "port.mtu",
            "name=%s the interface's mtu is %u now, and the port sends %u; set it back, or "
            "set dpdk.port.%s.mtu and restart",
            config->name, info->mtu_now, info->mtu, config->name);
        break;
    case MILL_PORT_EVENT_MTU_FITS:
        mill_log_line(MILL_LEVEL_NOTICE, "port.mtu", "name=%s the interface's mtu fits again: %u",
                      config->name, info->mtu_now);
        break;
    case MILL_PORT_EVENT_CHECKSUMS:
        mill_log_line(
            MILL_LEVEL_WARN, "port.checksums",
            "name=%s most packets have a wrong checksum: the peer leaves it to a card that "
            "is not there; on the peer: ethtool -K IFACE tx off",
            config->name);
        break;
    case MILL_PORT_EVENT_NONE:
        break;
    }
}

/* Cores wake each other by the bells of their own rings. */
static void core_wake(void *context, uint32_t from, uint32_t to)
{
    struct mill_plane *plane = context;
    mill_bell_ring(&plane->peers[from * plane->cores_count + to].bell);
}

static struct mill_link_wake core_waker(struct mill_plane *plane)
{
    return (struct mill_link_wake){.wake = core_wake, .context = plane};
}

/* Extents for a card's self-test, one of each arena file: of two chunks where extents may be so
 * large, so that a border of huge pages lies inside. Fewer when a file is full. */
static void canaries_take(struct mill_plane *plane, struct mill_port_options *options)
{
    struct mill_extents *extents = plane->cores[0].extents;
    uint8_t *base;
    uint64_t size_bytes;
    uint32_t page_bytes;
    int node;
    for (uint32_t i = 0; mill_arena_file(plane->arena, i, &base, &size_bytes, &page_bytes, &node);
         i++) {
        uint32_t before = mill_extents_prefer(extents, i);
        struct mill_ref *canary = &options->canaries[options->canaries_count];
        if (mill_extent_alloc(extents, 2 * MILL_CHUNK_BYTES, &canary->extent) == 0 ||
            mill_extent_alloc(extents, MILL_CHUNK_BYTES, &canary->extent) == 0) {
            canary->size_bytes = mill_extent_size_bytes(extents, canary->extent);
            options->canaries_count++;
        }
        (void)mill_extents_prefer(extents, before);
    }
}

static void canaries_give(struct mill_plane *plane, const struct mill_port_options *options)
{
    struct mill_plane_core *core = &plane->cores[0];
    for (uint32_t i = 0; i < options->canaries_count; i++) {
        const struct mill_ref *canary = &options->canaries[i];
        if (mill_loan_free(&core->loans, canary->extent)) {
            mill_extent_free(core->extents, canary->extent);
        } else {
            mill_log_line(MILL_LEVEL_WARN, "port.canary-held",
                          "a card holds what it was sent name=%s bytes=%u", options->name,
                          canary->size_bytes);
        }
    }
    mill_extents_trim(core->extents);
}

/* Opens the port of a dpdk listener once. ret: its index, or negative. */
static int port_open(struct mill_plane *plane, const struct mill_config_listener *listener,
                     struct mill_report *report)
{
    const struct mill_config_port *from = port_config(plane->config, listener->device);
    MILL_ASSERT(from != NULL); /* checked with the configuration */
    for (uint32_t i = 0; i < plane->ports_count; i++) {
        if (plane->port_configs[i] == from) {
            return (int)i;
        }
    }
    int r = eal_start(plane, report);
    if (r < 0) {
        return r;
    }
    struct mill_port_options options = {
        .mtu = from->mtu,
        .queues = (uint16_t)plane->cores_count,
        .queues_max = from->queues_max,
        .wake = core_waker(plane),
        .node_id = (int32_t)mill_config_int(plane->config, MILL_KEY_NODE_ID),
        .netns = mill_config_text(plane->config, MILL_KEY_DPDK_NETNS),
        .rx_csum_trusted = from->rx_csum_trusted,
        .tx_csum_off = from->tx_csum_off,
        .address = from->address,
        .prefix_bits = from->prefix_bits,
        .busy = plane->cores[0].thread.busy,
        .syn_rate = from->syn_rate,
        .syn_burst = from->syn_burst,
        .dma_peer = from->dma_peer,
    };
    snprintf(options.name, sizeof(options.name), "%.31s", from->name);
    snprintf(options.device, sizeof(options.device), "%s", from->device);
    memcpy(options.mac, from->mac, sizeof(options.mac));
    if (mill_port_is_pci(options.device)) {
        canaries_take(plane, &options);
    }
    uint32_t index = plane->ports_count;
    r = mill_port_open(&options, plane->arena, plane->loans_of_cores, &plane->ports[index], report);
    canaries_give(plane, &options);
    if (r < 0) {
        return r;
    }
    plane->port_configs[index] = from;
    plane->ports_count++;
    plane->counters->ports_count = plane->ports_count;
    port_share(plane, index);
    struct mill_port_info info;
    mill_port_info(plane->ports[index], &info);
    mill_log_line(MILL_LEVEL_INFO, "port.queues",
                  "port=%s cores=%u receive=%u transmit=%u spread=\"%s\"", from->name,
                  plane->cores_count, info.rx_queues, info.tx_queues, info.rss);
    if (info.remark[0] != '\0') {
        mill_log_line(MILL_LEVEL_WARN, "port.remark", "name=%s text=\"%s\"", from->name,
                      info.remark);
    }
    return (int)index;
}

/* Deals the port's frames out, where there are several cores. */
static int distributor_open(struct mill_plane *plane, uint32_t port_index,
                            const struct mill_net_config *net, struct mill_report *report)
{
    const struct mill_link *links[MILL_CONFIG_CORES_MAX];
    struct mill_port_info info;
    if (plane->cores_count == 1) {
        return 0;
    }
    mill_port_info(plane->ports[port_index], &info);
    for (uint32_t i = 0; i < plane->cores_count; i++) {
        links[i] = mill_port_link(plane->ports[port_index], (uint16_t)i);
    }
    struct mill_distributor_config config = {
        .cores_count = plane->cores_count,
        .rx_queues = info.rx_queues,
        .links = links,
        .address = net->address,
        .secret = {net->secret[1], net->secret[0]},
        .flows_max = mill_net_flows_max(net),
        .wake = core_waker(plane),
    };
    return mill_distributor_create(&config, &plane->distributors[port_index], report);
}

/* What a core without a wake-up from its device must look at by itself. */
static int port_watch(struct mill_plane *plane, uint32_t port_index,
                      struct mill_core_thread *thread, uint32_t core, struct mill_report *report)
{
    struct mill_port *port = plane->ports[port_index];
    struct mill_port_info info;
    int fds[8];
    mill_port_info(port, &info);
    thread->ports[thread->ports_count] = port;
    thread->queues[thread->ports_count++] = (uint16_t)core;
    if (core >= info.rx_queues) {
        return 0; /* the core that gives it frames rings its bell */
    }
    uint32_t fds_count = mill_port_fds(port, (uint16_t)core, fds, MILL_COUNT_OF(fds));
    thread->nap_bounded = thread->nap_bounded || fds_count == 0;
    for (uint32_t i = 0; i < fds_count; i++) {
        int r = mill_ksock_watch(thread->ksock, fds[i]);
        if (r < 0) {
            return mill_fail(report, r, "port %s: its descriptor cannot be watched",
                             plane->port_configs[port_index]->name);
        }
    }
    return 0;
}

/* Where a stack writes its connections down; by the port's place in the configuration, which is the
 * same in each life. ret: NULL: the segment has no room for it. */
static struct mill_kept_flow *kept_flows(const struct mill_plane *plane, uint32_t port_index,
                                         uint32_t core)
{
    const struct mill_config_port *ports = NULL;
    uint64_t count = mill_config_ports(plane->config, &ports);
    uint64_t place = core * count + (uint64_t)(plane->port_configs[port_index] - ports);
    uint64_t first = place * MILL_KEPT_FLOWS_MAX;
    uint64_t room = plane->flows_bytes / sizeof(struct mill_kept_flow);
    return first + MILL_KEPT_FLOWS_MAX <= room ? plane->flows + first : NULL;
}

/* The stack of a port on one core. */
static int core_net_open(struct mill_plane *plane, uint32_t port_index, uint32_t index,
                         struct mill_net_config *config, uint16_t listener,
                         struct mill_report *report)
{
    struct mill_plane_core *core = &plane->cores[index];
    struct mill_distributor *distributor = plane->distributors[port_index];
    const struct mill_link *link = distributor
                                       ? mill_distributor_link(distributor, index)
                                       : mill_port_link(plane->ports[port_index], (uint16_t)index);
    struct mill_net **net = &core->nets[port_index];
    config->silent = index > 0;
    config->kept = kept_flows(plane, port_index, index);
    config->kept_max = MILL_KEPT_FLOWS_HALF;
    int r = mill_net_create(config, link, &core->loans, mill_arena_base(plane->arena),
                            &mill_core_events, core->thread.core, net, report);
    if (r < 0) {
        return r;
    }
    mill_core_add_maker(core->thread.core, mill_net_maker(*net), *net, listener);
    return port_watch(plane, port_index, &core->thread, index, report);
}

/* The stacks of a port, one per core; all have the same address and secrets. */
static int net_open(struct mill_plane *plane, uint32_t port_index, uint16_t listener,
                    struct mill_report *report)
{
    const struct mill_config_port *from = plane->port_configs[port_index];
    if (plane->cores[0].nets[port_index]) {
        return 0;
    }
    struct mill_net_config config = mill_plane_net_limits(plane, port_index);
    config.address = from->address;
    config.prefix_bits = from->prefix_bits;
    config.gateway = from->gateway;
    uint64_t random[3];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return mill_fail(report, -EIO, "no random numbers from the kernel");
    }
    config.secret[0] = random[0];
    config.secret[1] = random[1];
    config.random_seed = random[2];
    int r = distributor_open(plane, port_index, &config, report);
    for (uint32_t i = 0; r == 0 && i < plane->cores_count; i++) {
        r = core_net_open(plane, port_index, i, &config, listener, report);
    }
    if (r == 0) {
        mill_net_announce(plane->cores[0].nets[port_index], mill_now_read().mono_ns);
    }
    return r;
}

/* --- listeners ------------------------------------------------------------------------------- */

/* The port that a core listens on: with core endpoints each has its own. */
static uint16_t core_port(const struct mill_plane *plane,
                          const struct mill_config_listener *listener, uint32_t core)
{
    return (uint16_t)(listener->port + (mill_config_core_endpoints(plane->config) > 1 ? core : 0));
}

static int listen_cores(struct mill_plane *plane, const struct mill_config_listener *listener,
                        uint16_t index, int port, struct mill_report *report)
{
    for (uint32_t i = 0; i < plane->cores_count; i++) {
        const struct mill_plane_core *core = &plane->cores[i];
        struct mill_stream_maker *maker =
            port < 0 ? mill_ksock_maker(core->thread.ksock) : mill_net_maker(core->nets[port]);
        int r = maker->ops->listen(maker, listener->address, core_port(plane, listener, i), index,
                                   report);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int listen_dpdk(struct mill_plane *plane, const struct mill_config_listener *listener,
                       uint16_t index, struct mill_report *report)
{
    int port = port_open(plane, listener, report);
    if (port < 0) {
        return port;
    }
    int r = net_open(plane, (uint32_t)port, index, report);
    if (r == 0 && mill_config_core_endpoints(plane->config) > 1) {
        r = mill_distributor_direct(plane->distributors[port], listener->port);
        r = r < 0 ? mill_fail(report, r, "too many listeners with core endpoints on a port") : 0;
    }
    if (r == 0) {
        r = listen_cores(plane, listener, index, port, report);
    }
    for (uint32_t i = 0; r == 0 && i < mill_config_core_endpoints(plane->config); i++) {
        r = mill_port_listen(plane->ports[port], plane->port_configs[port]->address,
                             core_port(plane, listener, i), IPPROTO_TCP, report);
    }
    return r;
}

int mill_plane_listeners(struct mill_plane *plane, struct mill_report *report)
{
    const struct mill_config_listener *listeners = NULL;
    uint32_t count = mill_config_listeners(plane->config, &listeners);
    plane->counters->listeners_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct mill_config_listener *listener = &listeners[i];
        struct mill_shared_listener_info *info = &plane->counters->listeners[i];
        bool dpdk = listener->transport == MILL_TRANSPORT_DPDK;
        snprintf(info->name, sizeof(info->name), "%s", listener->name);
        snprintf(info->address, sizeof(info->address), "%.50s:%u", listener->host, listener->port);
        snprintf(info->transport, sizeof(info->transport), "%s", dpdk ? "dpdk" : "kernel");
        int r = dpdk ? listen_dpdk(plane, listener, (uint16_t)i, report)
                     : listen_cores(plane, listener, (uint16_t)i, -1, report);
        if (r == 0) {
            snprintf(info->state, sizeof(info->state), "serving");
            continue;
        }
        if (listener->required) {
            return mill_fail_in(report, r, "listener %s: ", listener->name);
        }
        mill_log_line(MILL_LEVEL_WARN, "listener.absent", "name=%s reason=\"%s\"", listener->name,
                      report->text);
        snprintf(info->state, sizeof(info->state), "%.120s", report->text);
    }
    return 0;
}
