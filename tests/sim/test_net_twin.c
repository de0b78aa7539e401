/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: our TCP carries exact bytes both ways over a bad wire, and gives everything back.
 * Method: two stacks and a modelled wire on virtual time; every run follows from its seed.
 *
 *   test_net_twin [SEEDS [FIRST]]      also MILL_SIM_SEEDS, MILL_SIM_FIRST; MILL_SIM_BULK_MB
 *
 * Each seed chooses sizes, impairments and options at random; named runs come before. A failure
 * prints its seed; `test_net_twin 1 SEED` repeats it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tests/sim/net_twin.h"

enum {
    SEEDS_DEFAULT = 1000,
    BULK_MB_DEFAULT = 2048,
};

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static struct mill_twin_options plain(uint64_t seed)
{
    return (struct mill_twin_options){
        .seed = seed,
        .link = {.seed = seed,
                 .delay_ns = 100 * MILL_NS_PER_US,
                 .mtu = 1500,
                 .pieces_max = 8,
                 .inline_bytes = 128},
        .connections = 1,
        .bytes_up = 1 << 20,
        .bytes_down = 1 << 20,
        .limit_ns = 3600 * MILL_NS_PER_S,
        .ref_bytes_max = 32768,
        .rx_window_max = 1 << 20,
        .user_timeout_ms = 1200000,
        .start_ns = MILL_NS_PER_S,
    };
}

static int show(const char *name, const struct mill_twin_options *options)
{
    struct mill_twin_result result;
    struct mill_now before = mill_now_read();
    int rc = mill_twin_run(options, &result);
    struct mill_now after = mill_now_read();
    double wall_s = (double)(after.mono_ns - before.mono_ns) / 1e9;
    double virtual_s = (double)result.elapsed_ns / 1e9;
    double mb = (double)(options->bytes_up + options->bytes_down) * options->connections / 1e6;
    printf("%-24s %s seed %llu: %.1f MB in %.3f s virtual, %.2f s real; retransmits %llu rto %llu "
           "fast %llu\n",
           name, rc == 0 ? "ok" : "FAILED", (unsigned long long)options->seed, mb, virtual_s,
           wall_s,
           (unsigned long long)(result.counters[0].retransmits + result.counters[1].retransmits),
           (unsigned long long)(result.counters[0].rto_fired + result.counters[1].rto_fired),
           (unsigned long long)(result.counters[0].fast_retransmits +
                                result.counters[1].fast_retransmits));
    return rc;
}

static int bulk(uint64_t megabytes)
{
    struct mill_twin_options options = plain(1);
    options.bytes_up = 0;
    options.bytes_down = megabytes << 20;
    options.link.delay_ns = 20 * MILL_NS_PER_US;
    options.link.mtu = 9000;
    options.ref_bytes_max = 65536;
    return show("bulk without loss", &options);
}

static int lossy(const char *name, uint32_t loss_ppm, uint64_t bytes, bool sack, bool timestamps)
{
    struct mill_twin_options options = plain(loss_ppm + sack + 2 * timestamps);
    options.link.loss_ppm = loss_ppm;
    options.link.delay_ns = 2 * MILL_NS_PER_MS;
    options.link.impair_until_ns = 0;
    options.bytes_up = bytes;
    options.bytes_down = bytes;
    options.no_sack = !sack;
    options.no_timestamps = !timestamps;
    return show(name, &options);
}

/* Initial numbers near 2^32: the first number follows from the time, so a search finds one. */
static int near_wrap(void)
{
    struct mill_twin_options options = plain(77);
    options.bytes_up = 10 << 20;
    options.bytes_down = 10 << 20;
    options.link.loss_ppm = 10000;
    int rc = 0;
    for (uint32_t i = 0; i < 4 && rc == 0; i++) {
        /* The numbers move by 250000 a second: these four starts are spread over the circle, and
         * 10 MB each way passes a good part; together with the seeds the wrap is crossed. */
        options.start_ns = MILL_NS_PER_S * (1 + 4295ull * i);
        rc = show("seq_wrap_bulk", &options);
    }
    return rc;
}

static struct mill_twin_options from_seed(uint64_t seed)
{
    struct mill_random random = {.state = seed * 0x9e3779b97f4a7c15ull + 1};
    struct mill_twin_options options = plain(seed);
    struct mill_link_model_config *link = &options.link;
    const uint32_t losses[] = {0, 1000, 10000, 50000, 200000};
    link->loss_ppm = losses[mill_random_below(&random, 5)];
    link->delay_ns = 1000ull << mill_random_below(&random, 16);
    link->jitter_ns = mill_random_below(&random, 3) == 0 ? link->delay_ns : 0;
    link->duplicate_ppm = mill_random_below(&random, 3) == 0 ? 20000 : 0;
    link->flip_ppm = mill_random_below(&random, 3) == 0 ? 5000 : 0;
    link->short_ppm = mill_random_below(&random, 4) == 0 ? 100000 : 0;
    link->starve_ppm = mill_random_below(&random, 4) == 0 ? 50000 : 0;
    if (mill_random_below(&random, 3) == 0) {
        link->rate_bytes_s = 1000000ull << mill_random_below(&random, 8);
        link->queue_bytes = 20000u << mill_random_below(&random, 5);
    }
    if (mill_random_below(&random, 6) == 0) {
        link->outage_every_ns = 7 * MILL_NS_PER_S;
        link->outage_ns = MILL_NS_PER_S;
    }
    const uint16_t mtus[] = {576, 1280, 1500, 9000};
    link->mtu = mtus[mill_random_below(&random, 4)];
    link->pieces_max = (uint16_t)(1 + mill_random_below(&random, 15));
    link->inline_bytes = (uint16_t)(mill_random_below(&random, 3) * 256);
    link->split_buffers = mill_random_below(&random, 2) == 0;
    link->verified = mill_random_below(&random, 2) == 0;
    link->tso_bytes_max = mill_random_below(&random, 4) == 0 ? 65535 : 0;
    options.connections =
        mill_random_below(&random, 3) == 0 ? 1 + mill_random_below(&random, 20) : 1;
    uint32_t most = link->loss_ppm >= 50000 ? 100000 : 1000000;
    most /= options.connections;
    options.bytes_up = mill_random_below(&random, most);
    options.bytes_down = mill_random_below(&random, most);
    options.ref_bytes_max = 1u << (4 + mill_random_below(&random, 12));
    options.rx_window_max = 8192u << mill_random_below(&random, 9);
    options.no_sack = mill_random_below(&random, 4) == 0;
    options.no_timestamps = mill_random_below(&random, 4) == 0;
    options.no_wscale = mill_random_below(&random, 6) == 0;
    options.slow_reader = mill_random_below(&random, 4) == 0;
    options.start_ns = MILL_NS_PER_S + mill_random_next(&random) % (17180 * MILL_NS_PER_S);
    options.limit_ns = 24 * 3600 * MILL_NS_PER_S;
    return options;
}

static int seeds(uint64_t count, uint64_t first)
{
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct mill_twin_options options = from_seed(seed);
        if (getenv("MILL_SIM_VERBOSE") || count == 1) {
            if (show("seed", &options) < 0) {
                return -1;
            }
            continue;
        }
        struct mill_twin_result result;
        if (mill_twin_run(&options, &result) < 0) {
            return -1;
        }
    }
    printf("%llu seeds from %llu: ok\n", (unsigned long long)count, (unsigned long long)first);
    return 0;
}

/* The server on several cores behind queues that put frames on the wrong one: all bytes arrive, no
 * connection is reset, and every frame given away is counted. */
static int cores(uint64_t count, uint64_t first)
{
    static const struct {
        const char *name;
        enum mill_split_kind split;
        uint32_t cores;
    } rows[] = {
        {"cores, one queue", MILL_SPLIT_FIRST, 2},
        {"cores, any queue", MILL_SPLIT_TURN, 2},
        {"cores, moved table", MILL_SPLIT_MOVED, 3},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t moved = 0;
        for (uint64_t seed = first; seed < first + count; seed++) {
            struct mill_twin_options options = from_seed(seed);
            struct mill_twin_result result;
            options.server_cores = rows[i].cores;
            options.split = rows[i].split;
            if (mill_twin_run(&options, &result) < 0) {
                return -1;
            }
            if (result.counters[1].handover_dropped + result.counters[1].flows_unshared > 0) {
                printf("%s: seed %llu: a frame or a flow was lost between cores\n", rows[i].name,
                       (unsigned long long)seed);
                return -1;
            }
            moved += result.counters[1].misdirected;
        }
        printf("%-24s %llu seeds: ok; %llu frames given to their core\n", rows[i].name,
               (unsigned long long)count, (unsigned long long)moved);
        if (moved == 0) {
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t count = from_env("MILL_SIM_SEEDS", SEEDS_DEFAULT);
    uint64_t first = from_env("MILL_SIM_FIRST", 1);
    if (argc > 1) {
        count = strtoull(argv[1], NULL, 10);
        first = argc > 2 ? strtoull(argv[2], NULL, 10) : first;
        return seeds(count, first) == 0 ? 0 : 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    int rc = 0;
    rc |= bulk(from_env("MILL_SIM_BULK_MB", BULK_MB_DEFAULT));
    rc |= lossy("loss 1 %", 10000, 8 << 20, true, true);
    rc |= lossy("loss 1 %, no SACK", 10000, 8 << 20, false, true);
    rc |= lossy("loss 1 %, no timestamps", 10000, 8 << 20, true, false);
    rc |= lossy("loss 20 %", 200000, 256 << 10, true, true);
    rc |= lossy("loss 20 %, bare", 200000, 256 << 10, false, false);
    rc |= near_wrap();
    rc |= seeds(count, first);
    rc |= cores(count / 10 + 1, first);
    return rc == 0 ? 0 : 1;
}
