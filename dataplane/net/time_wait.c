/* SPDX-License-Identifier: Apache-2.0 */
/* TIME-WAIT: what is left of a connection that we closed first (RFC 9293, 3.4.2; 1337; 6191): small
 * entries in order of expiry, the oldest giving way when the table is full. Owner: the net's core.
 */
#include <errno.h>
#include <stdlib.h>

#include "dataplane/net/internal.h"
#include "dataplane/net/seq.h"

#define NONE UINT32_MAX

int mill_time_wait_init(struct mill_net *net)
{
    uint32_t max = net->config.time_wait_max;
    net->time_wait = calloc(max, sizeof(*net->time_wait));
    net->free_time_wait = calloc(max, sizeof(*net->free_time_wait));
    if (!net->time_wait || !net->free_time_wait) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < max; i++) {
        net->free_time_wait[i] = max - 1 - i;
    }
    net->free_time_wait_count = max;
    net->time_wait_oldest = NONE;
    net->time_wait_newest = NONE;
    net->time_wait_timer.kind = MILL_TIMER_TIME_WAIT;
    return mill_flow_table_init(&net->time_wait_flows, max, net->config.secret);
}

void mill_time_wait_fini(struct mill_net *net)
{
    free(net->time_wait);
    free(net->free_time_wait);
    mill_flow_table_fini(&net->time_wait_flows);
}

static void unlink_entry(struct mill_net *net, uint32_t index)
{
    const struct mill_time_wait *entry = &net->time_wait[index];
    if (entry->older == NONE) {
        net->time_wait_oldest = entry->newer;
    } else {
        net->time_wait[entry->older].newer = entry->newer;
    }
    if (entry->newer == NONE) {
        net->time_wait_newest = entry->older;
    } else {
        net->time_wait[entry->newer].older = entry->older;
    }
}

/* All entries live equally long, so the newest goes to the end. */
static void link_newest(struct mill_net *net, uint32_t index)
{
    struct mill_time_wait *entry = &net->time_wait[index];
    entry->expires_ns = net->now_ns + net->config.time_wait_ms * MILL_NS_PER_MS;
    entry->older = net->time_wait_newest;
    entry->newer = NONE;
    if (entry->older == NONE) {
        net->time_wait_oldest = index;
    } else {
        net->time_wait[entry->older].newer = index;
    }
    net->time_wait_newest = index;
    uint64_t due_ns = net->time_wait[net->time_wait_oldest].expires_ns;
    mill_wheel_arm(&net->wheel, &net->time_wait_timer, mill_net_tick(due_ns));
}

static void release(struct mill_net *net, uint32_t index)
{
    unlink_entry(net, index);
    mill_net_flow_remove(net, &net->time_wait_flows, index);
    net->free_time_wait[net->free_time_wait_count++] = index;
}

void mill_time_wait_enter(struct mill_net *net, const struct mill_tcp *tcp)
{
    if (net->free_time_wait_count == 0) {
        release(net, net->time_wait_oldest);
    }
    uint32_t index = net->free_time_wait[--net->free_time_wait_count];
    net->time_wait[index] = (struct mill_time_wait){
        .snd_nxt = tcp->snd_nxt,
        .rcv_nxt = tcp->rcv_nxt,
        .ts_recent = tcp->ts_recent,
        .ts_offset = tcp->ts_offset,
        .timestamps = tcp->timestamps,
    };
    mill_net_flow_insert(net, &net->time_wait_flows, &tcp->key, index);
    link_newest(net, index);
}

void mill_time_wait_timer(struct mill_net *net)
{
    while (net->time_wait_oldest != NONE &&
           net->time_wait[net->time_wait_oldest].expires_ns <= net->now_ns) {
        release(net, net->time_wait_oldest);
    }
    if (net->time_wait_oldest != NONE) {
        uint64_t due_ns = net->time_wait[net->time_wait_oldest].expires_ns;
        mill_wheel_arm(&net->wheel, &net->time_wait_timer, mill_net_tick(due_ns));
    }
}

bool mill_time_wait_segment(struct mill_net *net, uint32_t index,
                            const struct mill_segment *segment)
{
    struct mill_time_wait *entry = &net->time_wait[index];
    if (segment->flags & MILL_TCP_RST) {
        return false; /* RFC 1337: a reset does not end it */
    }
    bool syn = (segment->flags & (MILL_TCP_SYN | MILL_TCP_ACK)) == MILL_TCP_SYN;
    bool newer_time = entry->timestamps && segment->options.has_timestamp &&
                      mill_seq_lt(entry->ts_recent, segment->options.ts_value);
    if (syn && (newer_time || mill_seq_lt(entry->rcv_nxt, segment->seq))) {
        release(net, index);
        return true;
    }
    if (!syn && (segment->flags & MILL_TCP_FIN)) {
        /* The peer did not get our last acknowledgement. */
        unlink_entry(net, index);
        link_newest(net, index);
    }
    bool bare_ack = !syn && !(segment->flags & MILL_TCP_FIN) && segment->payload.size_bytes == 0;
    if (bare_ack && segment->seq == entry->rcv_nxt) {
        return false; /* nothing to say: two sides must not answer each other for ever */
    }
    if (mill_bucket_take(&net->challenges, net->now_ns)) {
        struct mill_tcp_fields fields = {
            .key = segment->key,
            .seq = entry->snd_nxt,
            .ack = entry->rcv_nxt,
            .flags = MILL_TCP_ACK,
            .window = 0,
            .options = {.has_timestamp = entry->timestamps,
                        .ts_value = mill_net_timestamp(net, entry->ts_offset),
                        .ts_echo = entry->ts_recent},
        };
        mill_tcp_send_bare(net, segment->mac, &fields);
    }
    return false;
}
