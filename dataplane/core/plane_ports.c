/* SPDX-License-Identifier: Apache-2.0 */
/* Ports, stacks and listeners of the data plane. Main thread, before the cores run. */
#include "dataplane/core/plane_parts.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/log_line.h"

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
    uint32_t count = mill_config_ports(config, &ports);
    struct mill_eal_options options = {
        .file_prefix = mill_config_instance(config),
        .hugepages = mill_config_bool(config, MILL_KEY_HUGEPAGES),
        .memory_mb = (uint32_t)mill_config_int(config, MILL_KEY_DPDK_MEMORY_MB),
        .extra_args = mill_config_text(config, MILL_KEY_DPDK_EAL_ARGS),
    };
    for (uint32_t i = 0; i < count; i++) {
        options.pci = options.pci || strchr(ports[i].device, ':') != NULL;
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
    snprintf(shared->address, sizeof(shared->address), "%u.%u.%u.%u/%u", config->address >> 24,
             (config->address >> 16) & 255, (config->address >> 8) & 255, config->address & 255,
             config->prefix_bits);
}

void mill_plane_link_tell(struct mill_plane *plane, uint32_t port, bool up, uint64_t downs)
{
    struct mill_plane_link *told = &plane->links_told[port];
    uint64_t now_ns = mill_now_read().mono_ns;
    if ((up == told->up && downs == told->downs) ||
        (told->at_ns > 0 && now_ns - told->at_ns < MILL_NS_PER_S)) {
        return;
    }
    *told = (struct mill_plane_link){.up = up, .downs = downs, .at_ns = now_ns};
    mill_log_line(up ? MILL_LEVEL_NOTICE : MILL_LEVEL_WARN, up ? "port.link-up" : "port.link-down",
                  "name=%s downs=%llu", plane->port_configs[port]->name, (unsigned long long)downs);
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
        .queues = 1,
        .node_id = (int32_t)mill_config_int(plane->config, MILL_KEY_NODE_ID),
        .netns = mill_config_text(plane->config, MILL_KEY_DPDK_NETNS),
        .rx_csum_trusted = from->rx_csum_trusted,
        .tx_csum_off = from->tx_csum_off,
        .address = from->address,
        .prefix_bits = from->prefix_bits,
        .busy = plane->cores[0].thread.busy,
        .syn_rate = from->syn_rate,
        .syn_burst = from->syn_burst,
    };
    snprintf(options.name, sizeof(options.name), "%.31s", from->name);
    snprintf(options.device, sizeof(options.device), "%s", from->device);
    memcpy(options.mac, from->mac, sizeof(options.mac));
    uint32_t index = plane->ports_count;
    r = mill_port_open(&options, plane->arena, plane->loans_of_cores, &plane->ports[index], report);
    if (r < 0) {
        return r;
    }
    plane->port_configs[index] = from;
    plane->ports_count++;
    plane->counters->ports_count = plane->ports_count;
    port_share(plane, index);
    return (int)index;
}

/* The stack of a port on the core that owns its queue (core 0: one queue). */
static int net_open(struct mill_plane *plane, uint32_t port_index, uint16_t listener,
                    struct mill_report *report)
{
    struct mill_plane_core *core = &plane->cores[0];
    const struct mill_config_port *from = plane->port_configs[port_index];
    if (core->nets[port_index]) {
        return 0;
    }
    const struct mill_link *link = mill_port_link(plane->ports[port_index], 0);
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
    int r = mill_net_create(&config, link, &core->loans, mill_arena_base(plane->arena),
                            &mill_core_events, core->thread.core, &core->nets[port_index], report);
    if (r < 0) {
        return r;
    }
    struct mill_core_thread *thread = &core->thread;
    mill_core_add_maker(thread->core, mill_net_maker(core->nets[port_index]),
                        core->nets[port_index], listener);
    thread->ports[thread->ports_count] = plane->ports[port_index];
    thread->queues[thread->ports_count++] = 0;
    int fds[8];
    uint32_t fds_count = mill_port_fds(plane->ports[port_index], 0, fds, MILL_COUNT_OF(fds));
    thread->nap_bounded = thread->nap_bounded || fds_count == 0;
    for (uint32_t i = 0; i < fds_count; i++) {
        r = mill_ksock_watch(thread->ksock, fds[i]);
        if (r < 0) {
            return mill_fail(report, r, "port %s: its descriptor cannot be watched", from->name);
        }
    }
    mill_net_announce(core->nets[port_index], mill_now_read().mono_ns);
    return 0;
}

/* --- listeners ------------------------------------------------------------------------------- */

static int listen_kernel(struct mill_plane *plane, const struct mill_config_listener *listener,
                         uint16_t index, struct mill_report *report)
{
    for (uint32_t i = 0; i < plane->cores_count; i++) {
        struct mill_stream_maker *maker = mill_ksock_maker(plane->cores[i].thread.ksock);
        int r = maker->ops->listen(maker, listener->address, listener->port, index, report);
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
    if (r < 0) {
        return r;
    }
    struct mill_stream_maker *maker = mill_net_maker(plane->cores[0].nets[port]);
    r = maker->ops->listen(maker, listener->address, listener->port, index, report);
    return r < 0 ? r
                 : mill_port_listen(plane->ports[port], plane->port_configs[port]->address,
                                    listener->port, IPPROTO_TCP, report);
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
                     : listen_kernel(plane, listener, (uint16_t)i, report);
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
