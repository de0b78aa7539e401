/* SPDX-License-Identifier: Apache-2.0 */
/* Load on one core in `busy` mode over a port without a kernel. In one process, a net_ring pair:
 *
 *   main thread | store thread | core thread (last CPU) <- net_ring pair -> client thread (first)
 *
 *   ring_load [--seconds N] [--mib-per-second N] [--epoll]
 *
 * or in two, joined by a memif; the broker ends at SIGTERM, the client by itself:
 *
 *   ring_load --broker DEVICE [--epoll]
 *   ring_load --client DEVICE [--seconds N] [--mib-per-second N]
 *
 * Prints the id of each thread before the load, so that another process can watch them, and rates
 * and cycles behind it. Every answer and every fetched byte is checked. tests/perf/no_syscall.py
 * judges; this program only fails when something is wrong with the answers. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <x86intrin.h>

#include "tests/perf/ring_broker.h"
#include "tests/perf/ring_client.h"

enum {
    SECONDS = 3,
    SECONDS_MAX = 3600,
    MIB_PER_S = 128, /* produced: a few GiB of files in a full run, whatever the machine could do */
    EAL_MB = 192,
    SETTLE_NS = 50000000, /* counters are published every 10 ms */
    SETTLE_TRIES = 100,
};

static const char pair_broker[] = "net_ring_pair:load:0";
static const char pair_client[] = "net_ring_pair:load:1";
static const char topic_name[] = "ring";

/* Counters of the core at one moment of the load. */
struct sample {
    uint64_t tsc;
    uint64_t mono_ns;
    uint64_t requests;
    uint64_t turns;
    uint64_t busy_ns;
    uint64_t cold_reads;
    uint64_t faults; /* pages that the core's thread touched first */
    struct ring_totals totals;
};

struct load {
    /* Devices of this process's ends; NULL: another process has it. */
    const char *broker_device;
    const char *client_device;
    enum mill_ksock_engine engine;
    uint64_t mib_per_s;
    struct ring_broker broker;
    struct ring_client client;
    char client_dir[RING_DIR_BYTES];
    uint64_t duration_ns;
    uint32_t client_cpu;
    struct sample begin;
    struct sample end;
};

/* Page faults of the core's thread so far, 0 when the kernel does not say. */
static uint64_t faults_read(const struct load *load)
{
    char path[64];
    unsigned long long faults = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%u/stat",
             atomic_load_explicit(&load->broker.core.shared->tid, memory_order_relaxed));
    FILE *file = fopen(path, "r");
    if (!file) {
        return 0;
    }
    /* proc(5): minflt is the tenth field; the second, the name, has no blanks here. */
    if (fscanf(file, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &faults) != 1) {
        faults = 0;
    }
    fclose(file);
    return faults;
}

static struct sample sample_take(const struct load *load)
{
    const struct mill_shared_core *shared = load->broker.core.shared;
    if (!load->broker_device) {
        return (struct sample){.mono_ns = mill_now_read().mono_ns, .totals = load->client.totals};
    }
    return (struct sample){
        .tsc = __rdtsc(),
        .mono_ns = mill_now_read().mono_ns,
        .requests = mill_counter_get(&shared->requests),
        .turns = mill_counter_get(&shared->turns),
        .busy_ns = mill_counter_get(&shared->busy_ns),
        .cold_reads = mill_counter_get(&shared->cold_reads),
        .faults = faults_read(load),
        .totals = load->client.totals,
    };
}

static void on_started(void *context)
{
    struct load *load = context;
    load->begin = sample_take(load);
    printf("load begins\n");
    fflush(stdout);
}

static void on_ended(void *context)
{
    struct load *load = context;
    load->end = sample_take(load);
    printf("load ends\n");
    fflush(stdout);
}

static void *client_run(void *context)
{
    struct load *load = context;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(load->client_cpu, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    bool registered = mill_port_thread_register() == 0;
    printf("client tid=%d cpu=%u\n", (int)gettid(), load->client_cpu);
    ring_client_run(&load->client, load->duration_ns, on_started, on_ended, load);
    if (registered) {
        mill_port_thread_unregister();
    }
    return NULL;
}

/* First and last CPU that this process may use; the same one when there is no other. */
static void cpus_choose(uint32_t *ret_first, uint32_t *ret_last)
{
    cpu_set_t set;
    bool found = false;
    MILL_ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof(set), &set), 0);
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            *ret_first = found ? *ret_first : cpu;
            *ret_last = cpu;
            found = true;
        }
    }
}

static void client_print(const struct load *load)
{
    const struct sample *from = &load->begin;
    const struct sample *to = &load->end;
    double seconds = (double)(to->mono_ns - from->mono_ns) / 1e9;
    double produced = (double)(to->totals.produced - from->totals.produced);
    uint64_t fetches = to->totals.fetches - from->totals.fetches;
    uint64_t empty = to->totals.fetches_empty - from->totals.fetches_empty;
    printf("seconds             %10.2f\n", seconds);
    printf("answers/s           %10.0f   produce %.0f fetch %.0f (%llu empty)\n",
           (produced + (double)fetches) / seconds, produced / seconds, (double)fetches / seconds,
           (unsigned long long)empty);
    printf("visits/s            %10.0f   connect, versions, metadata, close\n",
           (double)(to->totals.visits - from->totals.visits) / seconds);
    printf("produced bytes/s    %10.0f\n", produced * RING_BATCH_BYTES / seconds);
    printf("fetched bytes/s     %10.0f\n",
           (double)(to->totals.fetched_bytes - from->totals.fetched_bytes) / seconds);
}

static void core_print(const struct load *load)
{
    const struct sample *from = &load->begin;
    const struct sample *to = &load->end;
    double seconds = (double)(to->mono_ns - from->mono_ns) / 1e9;
    double requests = (double)(to->requests - from->requests);
    double cycles = (double)(to->tsc - from->tsc);
    double busy = (double)(to->busy_ns - from->busy_ns) / (double)(to->mono_ns - from->mono_ns);
    double produced = (double)(to->totals.produced - from->totals.produced);
    double fetched = (double)(to->totals.fetched_bytes - from->totals.fetched_bytes);
    printf("requests/s          %10.0f\n", requests / seconds);
    printf("cold reads          %10llu   fetches that the store's thread read from files\n",
           (unsigned long long)(to->cold_reads - from->cold_reads));
    printf("page faults         %10llu   tables of the core that were touched for the first time\n",
           (unsigned long long)(to->faults - from->faults));
    printf("turns/s             %10.0f\n", (double)(to->turns - from->turns) / seconds);
    printf("cycles per request  %10.0f   in turns with work %.0f, busy %.3f\n", cycles / requests,
           cycles * busy / requests, busy);
    printf("cycles per byte     %10.2f   in turns with work; sums made and checked in software\n",
           cycles * busy / (fetched + produced * RING_BATCH_BYTES));
}

/* Nothing of the load may be left on the core: connections, loans. */
static void quiet_wait(const struct load *load)
{
    const struct mill_shared_core *shared = load->broker.core.shared;
    const struct timespec step = {.tv_nsec = SETTLE_NS};
    for (int i = 0;
         mill_counter_get(&shared->connections) > 0 || mill_counter_get(&shared->loaned_bytes) > 0;
         i++) {
        MILL_ASSERT_LT(i, (int)SETTLE_TRIES);
        nanosleep(&step, NULL);
    }
}

static void broker_start(struct load *load, uint32_t cpu)
{
    ring_broker_open(&load->broker, load->broker_device, topic_name, RING_PARTITIONS, load->engine);
    ring_broker_run(&load->broker, cpu);
    printf("core tid=%u cpu=%u\nmain tid=%d\n",
           atomic_load_explicit(&load->broker.core.shared->tid, memory_order_relaxed), cpu,
           (int)gettid());
    fflush(stdout);
}

static void client_load(struct load *load)
{
    pthread_t thread;
    MILL_ASSERT_EQ(pthread_create(&thread, NULL, client_run, load), 0);
    pthread_join(thread, NULL);
    client_print(load);
}

static void run(struct load *load)
{
    uint32_t core_cpu = 0;
    sigset_t end;
    int number = 0;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    cpus_choose(&load->client_cpu, &core_cpu);
    if (load->client_device) {
        ring_memory_dir(load->client_dir);
        ring_client_open(&load->client, load->client_dir, load->client_device, topic_name);
        load->client.produce_bytes_per_s = load->mib_per_s << 20;
    }
    if (load->broker_device) {
        broker_start(load, core_cpu);
    }
    if (load->client_device) {
        client_load(load);
    } else {
        sigwait(&end, &number);
    }
    if (load->broker_device) {
        quiet_wait(load);
        if (load->client_device) {
            core_print(load);
        }
        ring_broker_close(&load->broker);
    }
    if (load->client_device) {
        ring_client_close(&load->client);
        ring_remove_dir(load->client_dir);
    }
}

static bool number(const char *text, uint64_t max, uint64_t *ret_value)
{
    char *end = NULL;
    unsigned long long value = strtoull(text, &end, 10);
    *ret_value = value;
    return end != text && *end == '\0' && value > 0 && value <= max;
}

static bool options_read(struct load *load, int argc, char **argv)
{
    uint64_t seconds = SECONDS;
    load->mib_per_s = MIB_PER_S;
    load->engine = MILL_KSOCK_AUTO;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--epoll") == 0) {
            load->engine = MILL_KSOCK_EPOLL;
            continue;
        }
        bool sound = (strcmp(argv[i], "--seconds") == 0 && number(value, SECONDS_MAX, &seconds)) ||
                     (strcmp(argv[i], "--mib-per-second") == 0 &&
                      number(value, UINT32_MAX, &load->mib_per_s));
        if (strcmp(argv[i], "--broker") == 0) {
            load->broker_device = value;
        } else if (strcmp(argv[i], "--client") == 0) {
            load->client_device = value;
        } else if (!sound) {
            return false;
        }
        i++;
    }
    load->duration_ns = seconds * MILL_NS_PER_S;
    if (!load->broker_device && !load->client_device) {
        load->broker_device = pair_broker;
        load->client_device = pair_client;
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct load load;
    char prefix[32];
    struct mill_report report = {""};
    if (!options_read(&load, argc, argv)) {
        fprintf(stderr, "usage: ring_load [--broker DEVICE | --client DEVICE] [--seconds N] "
                        "[--mib-per-second N] [--epoll]\n");
        return 2;
    }
    snprintf(prefix, sizeof(prefix), "mill-ring-load-%d", (int)getpid());
    struct mill_eal_options options = {.file_prefix = prefix, .memory_mb = EAL_MB};
    ring_need(mill_eal_start(&options, &report), "EAL", &report);
    run(&load);
    mill_eal_stop();
    return 0;
}
