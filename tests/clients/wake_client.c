/* SPDX-License-Identifier: Apache-2.0 */
/* How long an idle core takes to wake: asks for versions SAMPLES times, each after a pause of
 * GAP_MS and a random part of it, and compares when the request left here with the moment at which
 * the core, asleep until then, first looked and found it (woken_ns of the shared counters, same
 * clock).
 *
 *   wake_client COUNTERS SAMPLES GAP_MS kernel ADDRESS PORT
 *   wake_client COUNTERS SAMPLES GAP_MS memif DEVICE ADDRESS
 *
 * Prints one line of JSON: samples, those that found the core awake, and the quantiles in
 * microseconds, from the way of the frame to the end of the sleep. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hist.h"
#include "base/random.h"
#include "ipc/counters.h"
#include "tests/clients/own_client.h"

enum {
    ANSWER_WAIT_S = 20,
};

struct wake {
    const struct mill_counters *counters;
    bool memif;
    int fd; /* kernel socket */
    struct own_client own;
    struct mill_hist hist;
    uint64_t awake; /* samples that the core did not sleep for */
};

static void counters_open(struct wake *wake, const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0) {
        own_fail("the counters cannot be read", 0);
    }
    void *memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED || mill_counters_check(memory, (uint64_t)status.st_size) < 0) {
        own_fail("the counters have another layout", 0);
    }
    wake->counters = memory;
}

static void kernel_open(struct wake *wake, const char *address, const char *port)
{
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    const struct timeval limit = {.tv_sec = ANSWER_WAIT_S};
    const int on = 1;
    wake->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (wake->fd < 0 || inet_pton(AF_INET, address, &peer.sin_addr) != 1 ||
        setsockopt(wake->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
        setsockopt(wake->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
        connect(wake->fd, (struct sockaddr *)&peer, sizeof(peer)) < 0) {
        own_fail("no connection to the broker", 0);
    }
}

/* ret: when the request left. */
static uint64_t kernel_ask(struct wake *wake, const struct bytes *request)
{
    uint8_t size[4];
    mill_store_be32(request->at, request->size_bytes - 4);
    uint64_t sent_ns = mill_now_read().mono_ns;
    if (send(wake->fd, request->at, request->size_bytes, 0) != (ssize_t)request->size_bytes ||
        recv(wake->fd, size, sizeof(size), MSG_WAITALL) != (ssize_t)sizeof(size)) {
        own_fail("the connection was lost", 0);
    }
    uint32_t left = mill_load_be32(size);
    if (left > OWN_ANSWER_MAX || recv(wake->fd, wake->own.answer, left, MSG_WAITALL) != left) {
        own_fail("the answer is not whole", left);
    }
    return sent_ns;
}

/* Asks once. ret: when the request left. */
static uint64_t ask(struct wake *wake)
{
    struct bytes request = own_request(&wake->own, API_VERSIONS_KEY, 0);
    if (!wake->memif) {
        return kernel_ask(wake, &request);
    }
    if (!own_ask(&wake->own, &request)) {
        own_fail("no answer from the broker", 0);
    }
    return wake->own.sent_ns;
}

/* Our own stack must run meanwhile, or its timers come late. */
static void pause_ns(struct wake *wake, uint64_t duration_ns)
{
    uint64_t end = mill_now_read().mono_ns + duration_ns;
    struct timespec nap = {.tv_sec = (time_t)(duration_ns / MILL_NS_PER_S),
                           .tv_nsec = (long)(duration_ns % MILL_NS_PER_S)};
    if (!wake->memif) {
        nanosleep(&nap, NULL);
    }
    while (wake->memif && mill_now_read().mono_ns < end) {
        own_turn(&wake->own);
    }
}

static void sample(struct wake *wake)
{
    uint64_t sent_ns = ask(wake);
    uint64_t woken_ns =
        atomic_load_explicit(&wake->counters->cores[0].woken_ns, memory_order_relaxed);
    if (woken_ns < sent_ns) {
        wake->awake++;
        return;
    }
    mill_hist_add(&wake->hist, woken_ns - sent_ns);
}

int main(int argc, char **argv)
{
    static struct wake wake;
    struct mill_random random = {.state = mill_now_read().mono_ns};
    if (argc != 7) {
        fprintf(stderr, "usage: wake_client COUNTERS SAMPLES GAP_MS kernel ADDRESS PORT | memif "
                        "DEVICE ADDRESS\n");
        return 2;
    }
    uint32_t samples = (uint32_t)atoi(argv[2]);
    uint64_t gap_ns = strtoull(argv[3], NULL, 10) * MILL_NS_PER_MS;
    counters_open(&wake, argv[1]);
    wake.memif = strcmp(argv[4], "memif") == 0;
    if (wake.memif) {
        own_open(&wake.own, argv[5], argv[6]);
    } else {
        kernel_open(&wake, argv[5], argv[6]);
    }
    (void)ask(&wake); /* connection, neighbour, caches */
    for (uint32_t i = 0; i < samples; i++) {
        pause_ns(&wake, gap_ns + mill_random_below(&random, (uint32_t)(gap_ns / 2)));
        sample(&wake);
    }
    printf("{\"samples\": %u, \"awake\": %llu, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"max_us\": %.1f}\n",
           samples, (unsigned long long)wake.awake,
           (double)mill_hist_quantile(&wake.hist, 0.5) / 1e3,
           (double)mill_hist_quantile(&wake.hist, 0.99) / 1e3, (double)wake.hist.max_ns / 1e3);
    if (wake.memif) {
        own_close(&wake.own);
    }
    return 0;
}
