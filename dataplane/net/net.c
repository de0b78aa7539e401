/* SPDX-License-Identifier: Apache-2.0 */
/* One instance of our TCP/IP: its memory, its turn and its place as a maker of streams. Owner: one
 * core; everything is taken at create. */
#include "dataplane/net/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/net/internal.h"

enum {
    RESETS_PER_SECOND = 2000, /* clients of an earlier life must learn it fast */
    ICMP_PER_SECOND = 200,
    CHALLENGES_PER_SECOND = 200,
    /* The link refused frames: look again so soon. */
    TX_RETRY_NS = 50 * 1000,
    OWN_PORT_FIRST = 32768,
    OWN_PORT_LAST = 60999,
};

bool mill_bucket_take(struct mill_bucket *bucket, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - bucket->refilled_ns;
    uint64_t fresh =
        elapsed_ns >= MILL_NS_PER_S ? bucket->max : elapsed_ns * bucket->per_second / MILL_NS_PER_S;
    if (fresh > 0) {
        bucket->tokens = (uint32_t)MILL_MIN(bucket->tokens + fresh, (uint64_t)bucket->max);
        bucket->refilled_ns = now_ns;
    }
    if (bucket->tokens == 0) {
        return false;
    }
    bucket->tokens--;
    return true;
}

void mill_net_config_defaults(struct mill_net_config *config)
{
    const struct {
        uint32_t *field;
        uint32_t value;
    } defaults[] = {
        {&config->connections_max, 16384},
        {&config->half_open_max, 1024},
        {&config->time_wait_max, 8192},
        {&config->neighbours_max, 1024},
        {&config->refs_per_connection, 128},
        {&config->arena_bytes_per_connection, 8192},
        {&config->rx_window_max, 1024 * 1024},
        {&config->ooo_bytes_max, 128 * 1024},
        {&config->rto_min_ms, 200},
        {&config->delayed_ack_ms, 40},
        {&config->user_timeout_ms, 30000},
        {&config->time_wait_ms, 30000},
        {&config->fin_wait_2_ms, 60000},
        {&config->burst_bytes_max, 64 * 1024},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(defaults); i++) {
        if (*defaults[i].field == 0) {
            *defaults[i].field = defaults[i].value;
        }
    }
    if (config->own_port_last == 0) {
        config->own_port_first = OWN_PORT_FIRST;
        config->own_port_last = OWN_PORT_LAST;
    }
    if (config->rx_budget_bytes == 0) {
        config->rx_budget_bytes = 16ull * 1024 * 1024;
    }
}

uint64_t mill_net_memory_bytes(const struct mill_net_config *config)
{
    struct mill_net_config c = *config;
    mill_net_config_defaults(&c);
    uint64_t per_connection = sizeof(struct mill_tcp) + sizeof(uint32_t) +
                              c.refs_per_connection * sizeof(struct mill_send_entry) +
                              c.arena_bytes_per_connection;
    uint64_t bytes = sizeof(struct mill_net);
    bytes += c.connections_max * per_connection + mill_flow_table_bytes(c.connections_max);
    bytes += c.half_open_max * (sizeof(struct mill_half_open) + sizeof(uint32_t)) +
             mill_flow_table_bytes(c.half_open_max);
    bytes += c.time_wait_max * (sizeof(struct mill_time_wait) + sizeof(uint32_t)) +
             mill_flow_table_bytes(c.time_wait_max);
    bytes += c.neighbours_max * (sizeof(struct mill_neighbour) + 4 * sizeof(uint32_t));
    bytes += MILL_NET_COMPACT_COUNT * (sizeof(struct mill_buf) + MILL_NET_COMPACT_BYTES);
    return bytes;
}

uint32_t mill_net_flows_max(const struct mill_net_config *config)
{
    struct mill_net_config c = *config;
    mill_net_config_defaults(&c);
    return c.connections_max + c.half_open_max + c.time_wait_max;
}

static bool power_of_two(uint32_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

static int check_config(const struct mill_net_config *config, const struct mill_link *link,
                        struct mill_report *report)
{
    if (config->address == 0 || config->prefix_bits > 32) {
        return mill_fail(report, -EINVAL,
                         "address: needs an IPv4 address with a prefix of 0 to 32");
    }
    if (config->own_port_first == 0 || config->own_port_first > config->own_port_last) {
        return mill_fail(report, -EINVAL, "own_port_first: needs 1 to own_port_last");
    }
    if (!power_of_two(config->refs_per_connection) || config->refs_per_connection > 65536) {
        return mill_fail(report, -EINVAL, "refs_per_connection: needs a power of two up to 65536");
    }
    if (!power_of_two(config->arena_bytes_per_connection) ||
        config->arena_bytes_per_connection < MILL_STREAM_BYTES_MAX) {
        return mill_fail(report, -EINVAL,
                         "arena_bytes_per_connection: needs a power of two from %d on",
                         MILL_STREAM_BYTES_MAX);
    }
    if (config->rx_window_max < 4096 || config->rx_window_max > 1u << 30) {
        return mill_fail(report, -EINVAL, "rx_window_max: needs 4096 to 2^30 bytes");
    }
    if (config->connections_max > 1u << 24 || config->half_open_max > 1u << 24 ||
        config->time_wait_max > 1u << 24 || config->neighbours_max > 1u << 20) {
        return mill_fail(report, -EINVAL, "connections_max and its like: at most 2^24");
    }
    if (link->caps.mtu < MILL_NET_PMTU_MIN) {
        return mill_fail(report, -EINVAL, "mtu: needs at least %d", MILL_NET_PMTU_MIN);
    }
    return 0;
}

static void fired(void *context, struct mill_timer *timer)
{
    struct mill_net *net = context;
    switch ((enum mill_timer_kind)timer->kind) {
    case MILL_TIMER_RETRANSMIT:
        mill_tcp_retransmit_timer(net, MILL_CONTAINER_OF(timer, struct mill_tcp, timer_retransmit));
        break;
    case MILL_TIMER_ACK:
        mill_tcp_ack_timer(net, MILL_CONTAINER_OF(timer, struct mill_tcp, timer_ack));
        break;
    case MILL_TIMER_HALF_OPEN:
        mill_half_open_timer(net, MILL_CONTAINER_OF(timer, struct mill_half_open, timer));
        break;
    case MILL_TIMER_NEIGHBOUR:
        mill_arp_timer(net, MILL_CONTAINER_OF(timer, struct mill_neighbour, timer));
        break;
    case MILL_TIMER_TIME_WAIT:
        mill_time_wait_timer(net);
        break;
    case MILL_TIMER_KEPT:
        mill_kept_timer(net);
        break;
    }
}

static uint32_t receive(struct mill_net *net)
{
    uint32_t total = 0;
    while (total < MILL_NET_RX_FRAMES_MAX) {
        struct mill_buf *frames[MILL_NET_RX_BURST];
        uint32_t count = net->link->ops->receive(net->link->context, frames, MILL_NET_RX_BURST);
        for (uint32_t i = 0; i < count; i++) {
            mill_ethernet_input(net, frames[i]);
        }
        total += count;
        if (count < MILL_NET_RX_BURST) {
            break;
        }
    }
    return total;
}

/* --- several cores of one address ------------------------------------------------------------ */

bool mill_net_knows(const struct mill_net *net, const struct mill_flow_key *key)
{
    return mill_flow_find(&net->flows, key) != MILL_FLOW_NONE ||
           mill_flow_find(&net->half_open_flows, key) != MILL_FLOW_NONE ||
           mill_flow_find(&net->time_wait_flows, key) != MILL_FLOW_NONE;
}

void mill_net_flow_insert(struct mill_net *net, struct mill_flow_table *table,
                          const struct mill_flow_key *key, uint32_t index)
{
    const struct mill_link_ops *ops = net->link->ops;
    bool first = ops->flow_begun && !mill_net_knows(net, key);
    mill_flow_insert(table, key, index);
    if (first) {
        ops->flow_begun(net->link->context, key);
    }
}

void mill_net_flow_remove(struct mill_net *net, struct mill_flow_table *table, uint32_t index)
{
    const struct mill_link_ops *ops = net->link->ops;
    struct mill_flow_key key = table->keys[index];
    mill_flow_remove(table, index);
    if (ops->flow_ended && !mill_net_knows(net, &key)) {
        ops->flow_ended(net->link->context, &key);
    }
}

bool mill_net_misplaced(struct mill_net *net, struct mill_packet *packet,
                        const struct mill_flow_key *key)
{
    const struct mill_link_ops *ops = net->link->ops;
    if (!ops->misplaced || (packet->buf->flags & MILL_BUF_MOVED) != 0 ||
        !ops->misplaced(net->link->context, packet->buf, key)) {
        return false;
    }
    packet->buf = NULL;
    return true;
}

/* Takes over what the link counted. ret: frames that it gave to other cores since last time: work
 * of this turn, although nothing of it was received here. */
static uint32_t link_counts(struct mill_net *net)
{
    const struct mill_link_counts *counts = net->link->counts;
    if (!counts) {
        return 0;
    }
    uint64_t before = net->counters.misdirected;
    net->counters.misdirected = counts->misdirected;
    net->counters.handover_dropped = counts->handover_dropped;
    net->counters.flows_unshared = counts->flows_unshared;
    return (uint32_t)(counts->misdirected - before);
}

/* --- the turn -------------------------------------------------------------------------------- */

static void set_now(struct mill_net *net, uint64_t now_ns)
{
    net->now_ns = MILL_MAX(net->now_ns, now_ns);
}

static uint32_t maker_step(struct mill_stream_maker *maker, uint64_t now_ns)
{
    struct mill_net *net = mill_net_of(maker);
    set_now(net, now_ns);
    if (MILL_UNLIKELY(!net->announced)) {
        mill_arp_announce(net);
    }
    mill_ethernet_flush(net);
    uint32_t work = receive(net);
    work += link_counts(net);
    work += mill_wheel_advance(&net->wheel, net->now_ns / MILL_NS_PER_MS, MILL_NET_TIMERS_MAX,
                               fired, net);
    work += mill_tcp_serve(net);
    mill_ethernet_flush(net);
    return work;
}

static uint64_t maker_deadline(const struct mill_stream_maker *maker)
{
    const struct mill_net *net = mill_net_of(maker);
    if (net->active_head || !net->announced) {
        return net->now_ns;
    }
    uint64_t tick = mill_wheel_next(&net->wheel);
    uint64_t due_ns = tick == MILL_WHEEL_NEVER ? MILL_NEVER : tick * MILL_NS_PER_MS;
    return net->tx_count > 0 ? MILL_MIN(due_ns, net->now_ns + TX_RETRY_NS) : due_ns;
}

static int maker_listen(struct mill_stream_maker *maker, const uint8_t address[16], uint16_t port,
                        uint16_t listener, struct mill_report *report)
{
    struct mill_net *net = mill_net_of(maker);
    uint32_t wanted = (uint32_t)address[12] << 24 | (uint32_t)address[13] << 16 |
                      (uint32_t)address[14] << 8 | address[15];
    if (wanted != 0 && wanted != net->config.address) {
        return mill_fail(report, -EADDRNOTAVAIL,
                         "listen on port %u: the address is not this port's; use the one of "
                         "dpdk.port.NAME.address",
                         port);
    }
    for (uint32_t i = 0; i < net->listeners_count; i++) {
        if (net->listeners[i].port == port) {
            return mill_fail(report, -EADDRINUSE, "listen: port %u has a listener already", port);
        }
    }
    if (net->listeners_count == MILL_NET_LISTENERS_MAX) {
        return mill_fail(report, -ENOSPC, "listen: more than %d listeners", MILL_NET_LISTENERS_MAX);
    }
    net->listeners[net->listeners_count++] =
        (struct mill_listener){.address = wanted, .port = port, .listener = listener};
    return 0;
}

static void release_memory(struct mill_net *net)
{
    mill_tcp_conn_fini(net);
    mill_half_open_fini(net);
    mill_time_wait_fini(net);
    mill_arp_fini(net);
    mill_compact_fini(net);
    free(net);
}

static void maker_destroy(struct mill_stream_maker *maker)
{
    if (!maker) {
        return;
    }
    struct mill_net *net = mill_net_of(maker);
    for (uint32_t i = 0; i < net->config.connections_max; i++) {
        struct mill_tcp *tcp = &net->connections[i];
        if (!tcp->stream.maker || tcp->stream.dead) {
            continue;
        }
        if (tcp->state != MILL_TCP_CLOSED) {
            mill_tcp_send_rst(net, tcp);
        }
        mill_send_queue_clear(&tcp->queue, net->maker.loans);
        mill_tcp_receive_clear(net, tcp);
    }
    mill_ethernet_flush(net);
    mill_ethernet_drop_pending(net);
    release_memory(net);
}

static const struct mill_stream_maker_ops maker_ops = {
    .step = maker_step,
    .deadline = maker_deadline,
    .listen = maker_listen,
    .connect = mill_tcp_connect,
    .destroy = maker_destroy,
};

static struct mill_bucket bucket_of(uint32_t per_second)
{
    return (struct mill_bucket){.tokens = per_second, .max = per_second, .per_second = per_second};
}

int mill_net_create(const struct mill_net_config *config, const struct mill_link *link,
                    struct mill_loans *loans, uint8_t *arena_base,
                    const struct mill_stream_events *events, void *context,
                    struct mill_net **ret_net, struct mill_report *report)
{
    struct mill_net *net = calloc(1, sizeof(*net));
    if (!net) {
        return mill_fail(report, -ENOMEM, "no memory for a TCP/IP instance");
    }
    net->config = *config;
    mill_net_config_defaults(&net->config);
    net->link = link;
    net->maker = (struct mill_stream_maker){.ops = &maker_ops,
                                            .events = events,
                                            .context = context,
                                            .loans = loans,
                                            .arena_base = arena_base};
    int rc = check_config(&net->config, link, report);
    if (rc < 0) {
        free(net);
        return rc;
    }
    net->announced = config->silent;
    net->ip_id = (uint16_t)config->random_seed;
    net->port_next = (uint32_t)(config->random_seed >> 32);
    net->resets = bucket_of(RESETS_PER_SECOND);
    net->icmp = bucket_of(ICMP_PER_SECOND);
    net->challenges = bucket_of(CHALLENGES_PER_SECOND);
    mill_wheel_init(&net->wheel, 0);
    net->kept_timer.kind = MILL_TIMER_KEPT;
    if (mill_tcp_conn_init(net) < 0 || mill_half_open_init(net) < 0 ||
        mill_time_wait_init(net) < 0 || mill_arp_init(net) < 0 || mill_compact_init(net) < 0) {
        release_memory(net);
        return mill_fail(report, -ENOMEM, "no memory for %u connections; lower connections_max",
                         config->connections_max);
    }
    mill_kept_init(net);
    *ret_net = net;
    return 0;
}

struct mill_stream_maker *mill_net_maker(struct mill_net *net)
{
    return &net->maker;
}

const struct mill_net_counters *mill_net_counters(const struct mill_net *net)
{
    return &net->counters;
}

void mill_net_announce(struct mill_net *net, uint64_t now_ns)
{
    set_now(net, now_ns);
    mill_arp_announce(net);
}

uint32_t mill_net_next_hop(const struct mill_net *net, uint32_t address)
{
    return mill_arp_next_hop(net, address);
}
