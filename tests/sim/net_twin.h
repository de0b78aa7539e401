/* SPDX-License-Identifier: Apache-2.0 */
/* Two TCP/IP stacks joined by a modelled wire, with an application on each side that sends a known
 * stream by references and small pieces and checks what it receives byte for byte. Virtual time,
 * one seed. Used by the twin tests. */
#ifndef MILL_TESTS_SIM_NET_TWIN_H
#define MILL_TESTS_SIM_NET_TWIN_H

#include "dataplane/net/net.h"
#include "tests/sim/link_model.h"
#include "tests/sim/split_model.h"

enum {
    MILL_TWIN_CONNECTIONS_MAX = 64,
};

struct mill_twin_options {
    uint64_t seed;
    struct mill_link_model_config link;
    uint32_t connections;
    uint64_t bytes_up;   /* client to server, per connection */
    uint64_t bytes_down; /* server to client */
    uint64_t limit_ns;   /* virtual time after which it is stuck */
    uint32_t ref_bytes_max;
    uint32_t rx_window_max;
    uint32_t user_timeout_ms;
    uint64_t start_ns; /* moves the initial sequence numbers */
    bool no_sack;      /* options that a middle box takes out of every SYN */
    bool no_timestamps;
    bool no_wscale;
    bool slow_reader; /* consumes late and pauses */
    /* More than 1: the server's end is a port of several queues, with a stack per core and the
     * distributor between them. */
    uint32_t server_cores;
    enum mill_split_kind split;
};

struct mill_twin_result {
    uint64_t elapsed_ns;
    uint64_t steps;
    struct mill_net_counters counters[2];
    struct mill_stream_stats stats[2];
};

/* Runs to the end and checks every invariant; aborts with a text on the first breach.
 * ret: 0, -1: stuck (text on standard error). */
int mill_twin_run(const struct mill_twin_options *options, struct mill_twin_result *ret_result);

#endif
