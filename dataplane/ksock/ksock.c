/* SPDX-License-Identifier: Apache-2.0 */
/* The maker of kernel-socket streams (ksock.h): its memory, its listeners and its step. What the
 * two engines do differently is behind struct mill_ksock_engine_ops.
 * Thread: create and destroy anywhere, one at a time; everything else on the core. Never allocates
 * after create. */
#include "dataplane/ksock/ksock_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 1u << 24, /* an index has 24 bits in a completion */
    RX_BUFFERS_MIN = 4,
    RX_BUFFERS_MAX = 1u << 15, /* entries of a provided-buffer ring, io_uring_register(2) */
    RX_BUFFER_BYTES_MIN = 256,
    RX_BUFFER_BYTES_MAX = 1u << 24,
    RX_RESERVE_SHARE = 4, /* one buffer of so many is kept for streams that hold none */
    REFS_MAX = 1u << 16,
    ARENA_BYTES_MAX = 1u << 24,
};

void *mill_ksock_map(uint64_t size_bytes)
{
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void mill_ksock_unmap(void *memory, uint64_t size_bytes)
{
    if (memory) {
        munmap(memory, size_bytes);
    }
}

/* ---- configuration ---- */

void mill_ksock_config_defaults(struct mill_ksock_config *config)
{
    const struct {
        uint32_t *field;
        uint32_t value;
    } defaults[] = {
        {&config->connections_max, 16384}, {&config->refs_per_connection, 128},
        {&config->rx_buffer_bytes, 16384}, {&config->arena_bytes_per_connection, 8192},
        {&config->rx_buffers, 1024},       {&config->rx_window_max, 1u << 20},
        {&config->user_timeout_ms, 30000},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(defaults); i++) {
        if (*defaults[i].field == 0) {
            *defaults[i].field = defaults[i].value;
        }
    }
}

/* Entries and arena of one connection, a whole number of lines. */
static uint64_t queue_stride(const struct mill_ksock_config *config)
{
    uint64_t entries = (uint64_t)mill_ksock_queue_entries(config) * sizeof(struct mill_ref);
    return mill_round_up(entries, MILL_CACHE_LINE_BYTES) +
           mill_round_up(config->arena_bytes_per_connection, MILL_CACHE_LINE_BYTES);
}

uint64_t mill_ksock_memory_bytes(const struct mill_ksock_config *config)
{
    struct mill_ksock_config full = *config;
    mill_ksock_config_defaults(&full);
    uint64_t conn = sizeof(struct mill_ksock_conn) + queue_stride(&full);
    uint64_t buffer = sizeof(struct mill_buf) + full.rx_buffer_bytes;
    return sizeof(struct mill_ksock) + full.connections_max * conn + full.rx_buffers * buffer;
}

static int config_check(const struct mill_ksock_config *config, struct mill_report *report)
{
    const struct {
        const char *name;
        uint32_t value;
        uint32_t min;
        uint32_t max;
    } ranges[] = {
        {"connections_max", config->connections_max, 1, CONNECTIONS_MAX},
        {"refs_per_connection", config->refs_per_connection, 1, REFS_MAX},
        {"arena_bytes_per_connection", config->arena_bytes_per_connection, MILL_STREAM_BYTES_MAX,
         ARENA_BYTES_MAX},
        {"rx_buffer_bytes", config->rx_buffer_bytes, RX_BUFFER_BYTES_MIN, RX_BUFFER_BYTES_MAX},
        {"rx_buffers", config->rx_buffers, RX_BUFFERS_MIN, RX_BUFFERS_MAX},
        {"rx_window_max", config->rx_window_max, RX_BUFFER_BYTES_MIN, INT32_MAX},
        {"user_timeout_ms", config->user_timeout_ms, 1, INT32_MAX},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(ranges); i++) {
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max) {
            return mill_fail(report, -EINVAL, "kernel sockets: %s is %u, must be %u to %u",
                             ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max);
        }
    }
    if ((config->rx_buffers & (config->rx_buffers - 1)) != 0) {
        return mill_fail(report, -EINVAL, "kernel sockets: rx_buffers is %u, not a power of two",
                         config->rx_buffers);
    }
    return 0;
}

/* ---- the step ---- */

/* Something that needs no event of the kernel. */
static bool is_pending(const struct mill_ksock *ksock)
{
    return ksock->work.length > 0 || ksock->ended.length > 0 || ksock->rx_wake > 0;
}

/* Does what connections of the work list want; those that want more go to its end. */
static uint32_t serve(struct mill_ksock *ksock)
{
    uint32_t count = MILL_MIN(ksock->work.length, (uint32_t)MILL_KSOCK_WORK_MAX);
    uint32_t served = 0;
    while (served < count && ksock->work.length > 0) {
        struct mill_ksock_node *node = mill_ksock_list_first(&ksock->work);
        struct mill_ksock_conn *conn = MILL_CONTAINER_OF(node, struct mill_ksock_conn, work);
        mill_ksock_list_remove(&ksock->work, node);
        if (!ksock->engine->serve(conn)) {
            mill_ksock_conn_touch(conn);
            break;
        }
        served++;
    }
    return served;
}

/* A buffer came back: the streams that had none look again, each once. */
static void wake(struct mill_ksock *ksock)
{
    uint32_t count = MILL_MIN(ksock->rx_wake, (uint32_t)MILL_KSOCK_WAKE_MAX);
    ksock->rx_wake -= count;
    for (uint32_t i = 0; i < count; i++) {
        struct mill_ksock_node *node = mill_ksock_list_first(&ksock->rest);
        if (!node) {
            ksock->rx_wake = 0;
            return;
        }
        mill_ksock_list_remove(&ksock->rest, node);
        mill_ksock_conn_touch(MILL_CONTAINER_OF(node, struct mill_ksock_conn, rest));
    }
}

/* Starts accepting again where it ended and its pause is over. */
static uint32_t rearm(struct mill_ksock *ksock)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ksock->listeners_count; i++) {
        struct mill_ksock_listener *listener = &ksock->listeners[i];
        if (MILL_UNLIKELY(!listener->armed) && listener->retry_ns <= ksock->now_ns) {
            int error = ksock->engine->accept(ksock, i);
            if (error == 0) {
                listener->armed = true;
                count++;
            } else {
                mill_ksock_accept_failed(ksock, i, error);
            }
        }
    }
    return count;
}

static struct mill_ksock *of_maker(struct mill_stream_maker *maker)
{
    return MILL_CONTAINER_OF(maker, struct mill_ksock, maker);
}

static uint32_t step(struct mill_stream_maker *maker, uint64_t now_ns)
{
    struct mill_ksock *ksock = of_maker(maker);
    ksock->now_ns = now_ns;
    uint32_t count = mill_ksock_conns_finish(ksock);
    count += mill_ksock_conns_expire(ksock);
    count += rearm(ksock);
    wake(ksock);
    count += serve(ksock);
    count += ksock->engine->poll(ksock);
    /* Answers given inside the events leave with this step, not the next. */
    count += serve(ksock);
    ksock->engine->submit(ksock);
    return count;
}

static uint64_t list_deadline(const struct mill_ksock_list *list)
{
    const struct mill_ksock_node *node = mill_ksock_list_first(list);
    return node ? MILL_CONTAINER_OF(node, struct mill_ksock_conn, life)->deadline_ns : MILL_NEVER;
}

static uint64_t deadline(const struct mill_stream_maker *maker)
{
    const struct mill_ksock *ksock = (const struct mill_ksock *)(const void *)maker;
    static_assert(offsetof(struct mill_ksock, maker) == 0, "cast above");
    if (is_pending(ksock)) {
        return 0;
    }
    uint64_t first = MILL_MIN(list_deadline(&ksock->flushing), list_deadline(&ksock->fin));
    for (uint32_t i = 0; i < ksock->listeners_count; i++) {
        if (!ksock->listeners[i].armed) {
            first = MILL_MIN(first, ksock->listeners[i].retry_ns);
        }
    }
    return first;
}

int mill_ksock_wait(struct mill_ksock *ksock, uint64_t timeout_ns)
{
    return is_pending(ksock) ? 0 : ksock->engine->wait(ksock, timeout_ns);
}

int mill_ksock_watch(struct mill_ksock *ksock, int fd)
{
    if (ksock->watches_count == MILL_KSOCK_WATCHES_MAX) {
        return -ENOSPC;
    }
    ksock->watches[ksock->watches_count] = (struct mill_ksock_watch_entry){.fd = fd};
    int error = ksock->engine->watch(ksock, ksock->watches_count);
    if (error == 0) {
        ksock->watches_count++;
    }
    return error;
}

/* ---- listeners and active opens ---- */

static int listen_on(struct mill_stream_maker *maker, const uint8_t address[16], uint16_t port,
                     uint16_t listener, struct mill_report *report)
{
    struct mill_ksock *ksock = of_maker(maker);
    if (ksock->listeners_count == MILL_KSOCK_LISTENERS_MAX) {
        return mill_fail(report, -ENOSPC, "more than %u kernel listeners on one core",
                         (unsigned)MILL_KSOCK_LISTENERS_MAX);
    }
    uint16_t bound = 0;
    int fd = mill_ksock_socket_listen(&ksock->config, address, port, &bound, report);
    if (fd < 0) {
        return fd;
    }
    /* Not armed: the next step starts accepting. */
    ksock->listeners[ksock->listeners_count++] =
        (struct mill_ksock_listener){.fd = fd, .listener = listener, .port = bound};
    return 0;
}

uint16_t mill_ksock_port(const struct mill_ksock *ksock, uint16_t listener)
{
    for (uint32_t i = 0; i < ksock->listeners_count; i++) {
        if (ksock->listeners[i].listener == listener) {
            return ksock->listeners[i].port;
        }
    }
    return 0;
}

static int open_active(struct mill_stream_maker *maker, const uint8_t address[16], uint16_t port,
                       void *user, struct mill_stream **ret_stream)
{
    struct mill_ksock *ksock = of_maker(maker);
    if (ksock->free.length == 0) {
        maker->stats.refused++;
        return -ENFILE;
    }
    struct sockaddr_storage name;
    (void)mill_ksock_sockaddr(address, port, &name);
    int fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) {
        return -errno;
    }
    int error = mill_ksock_socket_options(fd, &ksock->config);
    if (error < 0) {
        close(fd);
        return error;
    }
    struct mill_ksock_conn *conn = mill_ksock_conn_new(ksock, fd);
    MILL_ASSERT(conn != NULL);
    conn->stream.user = user;
    memcpy(conn->stream.peer.address, address, sizeof(conn->stream.peer.address));
    conn->stream.peer.port = port;
    error = ksock->engine->attach(conn);
    if (error < 0) {
        mill_ksock_conn_discard(conn);
        return error;
    }
    mill_ksock_conn_touch(conn);
    *ret_stream = &conn->stream;
    return 0;
}

/* ---- life ---- */

/* Releases memory; everything that could point to it is closed. */
static void release(struct mill_ksock *ksock)
{
    const struct mill_ksock_config *config = &ksock->config;
    mill_ksock_unmap(ksock->conns, config->connections_max * sizeof(*ksock->conns));
    mill_ksock_unmap(ksock->queue_memory, config->connections_max * ksock->queue_stride_bytes);
    mill_ksock_unmap(ksock->rx_memory, (uint64_t)config->rx_buffers * config->rx_buffer_bytes);
    free(ksock->rx_bufs);
    free(ksock);
}

static void destroy(struct mill_stream_maker *maker)
{
    if (!maker) {
        return;
    }
    struct mill_ksock *ksock = of_maker(maker);
    ksock->engine->close(ksock);
    for (uint32_t i = 0; i < ksock->listeners_count; i++) {
        close(ksock->listeners[i].fd);
    }
    for (uint32_t i = 0; i < ksock->config.connections_max && maker->stats.connections > 0; i++) {
        if (ksock->conns[i].state != MILL_KSOCK_FREE) {
            mill_ksock_conn_discard(&ksock->conns[i]);
        }
    }
    release(ksock);
}

static const struct mill_stream_maker_ops maker_ops = {
    .step = step,
    .deadline = deadline,
    .listen = listen_on,
    .connect = open_active,
    .destroy = destroy,
};

/* Cuts the memory up. */
static void lay_out(struct mill_ksock *ksock)
{
    const struct mill_ksock_config *config = &ksock->config;
    struct mill_ksock_list *lists[] = {&ksock->free,     &ksock->work, &ksock->rest,
                                       &ksock->flushing, &ksock->fin,  &ksock->ended};
    for (size_t i = 0; i < MILL_COUNT_OF(lists); i++) {
        mill_ksock_list_init(lists[i]);
    }
    uint64_t entries =
        mill_round_up((uint64_t)mill_ksock_queue_entries(config) * sizeof(struct mill_ref),
                      MILL_CACHE_LINE_BYTES);
    for (uint32_t i = 0; i < config->connections_max; i++) {
        struct mill_ksock_conn *conn = &ksock->conns[i];
        uint8_t *memory = ksock->queue_memory + i * ksock->queue_stride_bytes;
        conn->index = i;
        conn->fd = -1;
        mill_ksock_queue_init(&conn->queue, (struct mill_ref *)(void *)memory, memory + entries,
                              config);
        mill_ksock_list_append(&ksock->free, &conn->life);
    }
    ksock->rx_free_reserve = config->rx_buffers / RX_RESERVE_SHARE;
    ksock->rx_free_common = config->rx_buffers - ksock->rx_free_reserve;
    ksock->rx_common = ksock->rx_free_common;
}

/* Opens the engine asked for, or for AUTO the first that this machine allows. */
static int open_engine(struct mill_ksock *ksock, struct mill_report *report)
{
    int error = 0;
    if (ksock->config.engine != MILL_KSOCK_EPOLL) {
        ksock->engine = &mill_ksock_uring_ops;
        ksock->engine_kind = MILL_KSOCK_IO_URING;
        error = ksock->engine->open(ksock, report);
        if (error == 0 || ksock->config.engine == MILL_KSOCK_IO_URING) {
            return error;
        }
        ksock->engine->close(ksock);
    }
    ksock->engine = &mill_ksock_epoll_ops;
    ksock->engine_kind = MILL_KSOCK_EPOLL;
    return ksock->engine->open(ksock, report);
}

int mill_ksock_create(const struct mill_ksock_config *config, struct mill_loans *loans,
                      uint8_t *arena_base, const struct mill_stream_events *events, void *context,
                      struct mill_ksock **ret_ksock, struct mill_report *report)
{
    struct mill_ksock_config full = *config;
    mill_ksock_config_defaults(&full);
    int error = config_check(&full, report);
    if (error < 0) {
        return error;
    }
    struct mill_ksock *ksock = calloc(1, sizeof(*ksock));
    if (!ksock) {
        return mill_fail(report, -ENOMEM, "kernel sockets: no memory");
    }
    ksock->config = full;
    ksock->maker = (struct mill_stream_maker){.ops = &maker_ops,
                                              .events = events,
                                              .context = context,
                                              .loans = loans,
                                              .arena_base = arena_base};
    ksock->queue_stride_bytes = queue_stride(&full);
    ksock->conns = mill_ksock_map(full.connections_max * sizeof(*ksock->conns));
    ksock->queue_memory = mill_ksock_map(full.connections_max * ksock->queue_stride_bytes);
    ksock->rx_memory = mill_ksock_map((uint64_t)full.rx_buffers * full.rx_buffer_bytes);
    ksock->rx_bufs = calloc(full.rx_buffers, sizeof(*ksock->rx_bufs));
    if (!ksock->conns || !ksock->queue_memory || !ksock->rx_memory || !ksock->rx_bufs) {
        error = mill_fail(
            report, -ENOMEM, "kernel sockets: no memory for %u connections (%llu MiB)",
            full.connections_max, (unsigned long long)(mill_ksock_memory_bytes(&full) >> 20));
        release(ksock);
        return error;
    }
    lay_out(ksock);
    error = open_engine(ksock, report);
    if (error < 0) {
        ksock->engine->close(ksock);
        release(ksock);
        return error;
    }
    *ret_ksock = ksock;
    return 0;
}

struct mill_stream_maker *mill_ksock_maker(struct mill_ksock *ksock)
{
    return &ksock->maker;
}

enum mill_ksock_engine mill_ksock_engine(const struct mill_ksock *ksock)
{
    return ksock->engine_kind;
}

const struct mill_ksock_counters *mill_ksock_counters(const struct mill_ksock *ksock)
{
    return &ksock->counters;
}
