/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what kernel sockets add to the contract of streams: sleeping, limits of time and buffers,
 * addresses, running out of descriptors, and a turn without work that makes no system call.
 * Method: each test over both engines on loopback; limits of time by passing a later time. */
#include "tests/unit/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataplane/ksock/ksock.h"

enum {
    UNITS = 256,
    STREAMS = 64,
    LIMIT_MS = 10000,
};

static const uint8_t v4_loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
static const uint8_t v6_any[16];
static const uint8_t v6_loopback[16] = {[15] = 1};

struct bed {
    struct mill_ksock *ksock;
    struct mill_stream_maker *maker;
    struct mill_loans loans;
    uint8_t *arena;
    struct mill_stream *streams[STREAMS];
    unsigned accepted;
    unsigned closed;
    enum mill_stream_end end;
    uint64_t later_ns; /* added to the real time */
};

static int on_accepted(void *context, struct mill_stream *stream)
{
    struct bed *bed = context;
    assert_true(bed->accepted < STREAMS);
    bed->streams[bed->accepted++] = stream;
    return 0;
}

static void on_connected(void *context, struct mill_stream *stream, int error)
{
    (void)context;
    (void)stream;
    (void)error;
}

/* Also room: nothing is consumed, tests look at the chain. */
static void on_stream(void *context, struct mill_stream *stream)
{
    (void)context;
    (void)stream;
}

static void on_acked(void *context, struct mill_stream *stream, uint64_t size_bytes)
{
    (void)context;
    (void)stream;
    (void)size_bytes;
}

static void on_closed(void *context, struct mill_stream *stream, enum mill_stream_end end)
{
    struct bed *bed = context;
    (void)stream;
    bed->closed++;
    bed->end = end;
}

static const struct mill_stream_events events = {.accepted = on_accepted,
                                                 .connected = on_connected,
                                                 .received = on_stream,
                                                 .room = on_stream,
                                                 .acked = on_acked,
                                                 .closed = on_closed};

static uint64_t now_ns(const struct bed *bed)
{
    return mill_now_read().mono_ns + bed->later_ns;
}

static struct bed *bed_new(void **state, struct mill_ksock_config config)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    assert_non_null(bed);
    bed->arena = calloc(UNITS, MILL_EXTENT_UNIT_BYTES);
    assert_non_null(bed->arena);
    assert_int_equal(mill_loans_init(&bed->loans, UNITS, 1), 0);
    config.engine = *(const enum mill_ksock_engine *)*state;
    config.connections_max = STREAMS;
    struct mill_report report = {{0}};
    if (mill_ksock_create(&config, &bed->loans, bed->arena, &events, bed, &bed->ksock, &report) <
        0) {
        fail_msg("%s", report.text);
    }
    bed->maker = mill_ksock_maker(bed->ksock);
    return bed;
}

static void bed_free(struct bed *bed)
{
    bed->maker->ops->destroy(bed->maker);
    assert_int_equal(bed->loans.loaned_bytes, 0);
    mill_loans_fini(&bed->loans);
    free(bed->arena);
    free(bed);
}

static void listen_on(struct bed *bed, const uint8_t address[16])
{
    struct mill_report report = {{0}};
    assert_int_equal(bed->maker->ops->listen(bed->maker, address, 0, 0, &report), 0);
}

static void turn(struct bed *bed)
{
    if (bed->maker->ops->step(bed->maker, now_ns(bed)) == 0) {
        assert_int_equal(mill_ksock_wait(bed->ksock, MILL_NS_PER_MS), 0);
    }
}

#define until(bed, condition)                                                                      \
    do {                                                                                           \
        uint64_t end_ = mill_now_read().mono_ns + LIMIT_MS * MILL_NS_PER_MS;                       \
        while (!(condition)) {                                                                     \
            turn(bed);                                                                             \
            if (mill_now_read().mono_ns > end_) {                                                  \
                fail_msg("not in time: %s", #condition);                                           \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static void turns(struct bed *bed, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        turn(bed);
    }
}

/* A blocking peer, connected and accepted. */
static int pair(struct bed *bed)
{
    unsigned before = bed->accepted;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons(mill_ksock_port(bed->ksock, 0)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    until(bed, bed->accepted > before);
    return fd;
}

/* A descriptor whose device was deleted is readable for ever: a sleeper must not wake for it again.
 */
static void test_wait_watched_descriptor_dies_is_left(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){0});
    int ends[2];
    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(mill_ksock_watch(bed->ksock, ends[0]), 0);
    turns(bed, 3);
    close(ends[1]); /* hang-up without a byte */
    uint64_t end = mill_now_read().mono_ns + 100 * MILL_NS_PER_MS;
    unsigned waits = 0;
    for (uint64_t now; (now = mill_now_read().mono_ns) < end; waits++) {
        assert_int_equal(mill_ksock_wait(bed->ksock, end - now), 0);
        (void)bed->maker->ops->step(bed->maker, now_ns(bed));
    }
    assert_true(waits <= 10);
    close(ends[0]);
    bed_free(bed);
}

static void test_wait_watched_descriptor_ends_it_by_level(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){0});
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_int_equal(mill_ksock_watch(bed->ksock, fd), 0);
    turns(bed, 3);
    uint64_t one = 1;
    assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
    for (unsigned i = 0; i < 5; i++) {
        uint64_t before = mill_now_read().mono_ns;
        assert_int_equal(mill_ksock_wait(bed->ksock, 5 * MILL_NS_PER_S), 0);
        assert_true(mill_now_read().mono_ns - before < MILL_NS_PER_S);
        (void)bed->maker->ops->step(bed->maker, now_ns(bed));
    }
    assert_int_equal(read(fd, &one, sizeof(one)), sizeof(one));
    turns(bed, 3); /* what was armed before the read may end one wait */
    /* A signal may cut a wait short; what must not be is one that does not sleep. */
    uint64_t end = mill_now_read().mono_ns + 100 * MILL_NS_PER_MS;
    unsigned waits = 0;
    for (uint64_t now; (now = mill_now_read().mono_ns) < end; waits++) {
        assert_int_equal(mill_ksock_wait(bed->ksock, end - now), 0);
        (void)bed->maker->ops->step(bed->maker, now_ns(bed));
    }
    assert_true(waits <= 10);
    close(fd);
    bed_free(bed);
}

static void test_wait_socket_ends_it(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){0});
    listen_on(bed, v4_loopback);
    int fd = pair(bed);
    turns(bed, 5);
    assert_int_equal(send(fd, "x", 1, 0), 1);
    uint64_t before = mill_now_read().mono_ns;
    assert_int_equal(mill_ksock_wait(bed->ksock, MILL_NEVER), 0);
    assert_true(mill_now_read().mono_ns - before < MILL_NS_PER_S);
    until(bed, bed->streams[0]->rx.size_bytes == 1);
    close(fd);
    bed_free(bed);
}

static void test_close_peer_never_finishes_timeout(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){0});
    listen_on(bed, v4_loopback);
    int fd = pair(bed);
    bed->streams[0]->ops->close(bed->streams[0]);
    turns(bed, 5);
    assert_int_equal(bed->closed, 0);
    uint64_t deadline = bed->maker->ops->deadline(bed->maker);
    assert_true(deadline > now_ns(bed) + 4 * MILL_NS_PER_S);
    assert_true(deadline <= now_ns(bed) + 5 * MILL_NS_PER_S);
    bed->later_ns = 6 * MILL_NS_PER_S;
    until(bed, bed->closed == 1);
    assert_int_equal(bed->end, MILL_END_TIMEOUT);
    assert_int_equal(mill_ksock_counters(bed->ksock)->timeouts, 1);
    close(fd);
    bed_free(bed);
}

static void test_close_peer_never_reads_timeout_gives_loans_back(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){.user_timeout_ms = 20000});
    listen_on(bed, v4_loopback);
    int fd = pair(bed);
    struct mill_ref ref = {.extent = 0, .size_bytes = UNITS * MILL_EXTENT_UNIT_BYTES};
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(bed->streams[0]->ops->send_ref(bed->streams[0], &ref), 0);
    }
    bed->streams[0]->ops->close(bed->streams[0]);
    turns(bed, 50);
    assert_true(bed->loans.loaned_bytes > 0);
    bed->later_ns = 19 * MILL_NS_PER_S;
    turns(bed, 5);
    assert_int_equal(bed->closed, 0);
    bed->later_ns = 21 * MILL_NS_PER_S;
    until(bed, bed->closed == 1);
    assert_int_equal(bed->end, MILL_END_TIMEOUT);
    assert_int_equal(bed->loans.uses[0], 0);
    close(fd);
    bed_free(bed);
}

/* Greedy streams that are never consumed; a newcomer is heard all the same. */
static void test_buffers_held_by_others_newcomer_is_heard(void **state)
{
    const struct mill_ksock_config config = {
        .rx_buffers = 32, .rx_buffer_bytes = 4096, .rx_window_max = 1u << 20};
    struct bed *bed = bed_new(state, config);
    listen_on(bed, v4_loopback);
    static uint8_t bytes[1u << 17];
    int fds[4];
    for (unsigned i = 0; i < 4; i++) {
        fds[i] = pair(bed);
        assert_true(send(fds[i], bytes, sizeof(bytes), MSG_DONTWAIT) > 0);
        turns(bed, 20);
    }
    assert_true(mill_ksock_counters(bed->ksock)->rx_starved > 0);
    int fd = pair(bed);
    assert_int_equal(send(fd, "hello", 5, 0), 5);
    until(bed, bed->streams[4]->rx.size_bytes == 5);
    /* And the starved go on when buffers come back. */
    uint64_t received = bed->maker->stats.bytes_received;
    for (unsigned i = 0; i < 4; i++) {
        struct mill_stream *stream = bed->streams[i];
        stream->ops->consume(stream, stream->rx.size_bytes);
    }
    until(bed, bed->maker->stats.bytes_received > received);
    close(fd);
    for (unsigned i = 0; i < 4; i++) {
        close(fds[i]);
    }
    bed_free(bed);
}

static void test_single_bytes_share_a_buffer(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){.rx_buffer_bytes = 4096});
    listen_on(bed, v4_loopback);
    int fd = pair(bed);
    for (unsigned i = 0; i < 300; i++) {
        uint8_t byte = (uint8_t)i;
        assert_int_equal(send(fd, &byte, 1, 0), 1);
        until(bed, bed->streams[0]->rx.size_bytes == i + 1);
    }
    assert_int_equal(bed->streams[0]->rx.charge_bytes, 4096);
    assert_int_equal(mill_ksock_counters(bed->ksock)->rx_joined_bytes, 299);
    struct mill_cursor cursor = mill_chain_cursor(&bed->streams[0]->rx);
    for (unsigned i = 0; i < 300; i++) {
        uint8_t byte = 0;
        assert_int_equal(mill_cursor_read(&cursor, &byte, 1), 0);
        assert_int_equal(byte, (uint8_t)i);
    }
    close(fd);
    bed_free(bed);
}

static void test_listen_any_v6_takes_both_families(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){0});
    struct mill_report report = {{0}};
    int error = bed->maker->ops->listen(bed->maker, v6_any, 0, 0, &report);
    if (error == -EAFNOSUPPORT || error == -EADDRNOTAVAIL) {
        bed_free(bed);
        print_message("skipped: no IPv6 here: %s\n", report.text);
        skip();
    }
    assert_int_equal(error, 0);
    int v4 = pair(bed);
    assert_memory_equal(bed->streams[0]->peer.address, v4_loopback, 16);
    int v6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 name = {.sin6_family = AF_INET6,
                                .sin6_port = htons(mill_ksock_port(bed->ksock, 0)),
                                .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    assert_int_equal(connect(v6, (struct sockaddr *)&name, sizeof(name)), 0);
    until(bed, bed->accepted == 2);
    assert_memory_equal(bed->streams[1]->peer.address, v6_loopback, 16);
    assert_memory_equal(bed->streams[1]->peer.local_address, v6_loopback, 16);
    close(v4);
    close(v6);
    bed_free(bed);
}

static void test_listen_port_in_use_says_so(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){0});
    listen_on(bed, v4_loopback);
    struct mill_report report = {{0}};
    uint16_t port = mill_ksock_port(bed->ksock, 0);
    assert_int_equal(bed->maker->ops->listen(bed->maker, v4_loopback, port, 1, &report),
                     -EADDRINUSE);
    assert_non_null(strstr(report.text, "127.0.0.1"));
    assert_non_null(strstr(report.text, "ss -ltnp"));
    bed_free(bed);
}

static void test_reuse_port_two_makers_listen(void **state)
{
    struct bed *one = bed_new(state, (struct mill_ksock_config){.reuse_port = true});
    struct bed *two = bed_new(state, (struct mill_ksock_config){.reuse_port = true});
    listen_on(one, v4_loopback);
    struct mill_report report = {{0}};
    uint16_t port = mill_ksock_port(one->ksock, 0);
    assert_int_equal(two->maker->ops->listen(two->maker, v4_loopback, port, 0, &report), 0);
    bed_free(two);
    bed_free(one);
}

static void test_accept_out_of_descriptors_pauses_then_goes_on(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){0});
    listen_on(bed, v4_loopback);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons(mill_ksock_port(bed->ksock, 0)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    /* Before the first turn: an accept of io_uring keeps the limit with which it was armed. */
    struct rlimit usual;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    struct rlimit none = {.rlim_cur = (rlim_t)fd + 1, .rlim_max = usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int error = connect(fd, (struct sockaddr *)&name, sizeof(name));
    uint64_t end = mill_now_read().mono_ns + MILL_NS_PER_S;
    while (mill_ksock_counters(bed->ksock)->accept_stalls == 0 && mill_now_read().mono_ns < end) {
        turn(bed);
    }
    uint64_t deadline = bed->maker->ops->deadline(bed->maker);
    uint64_t now = now_ns(bed);
    unsigned accepted = bed->accepted;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    assert_int_equal(error, 0);
    assert_true(mill_ksock_counters(bed->ksock)->accept_stalls > 0);
    assert_int_equal(accepted, 0);
    assert_true(deadline > now && deadline <= now + MILL_NS_PER_S);
    until(bed, bed->accepted == 1);
    close(fd);
    bed_free(bed);
}

/* In a child whose every system call but read, write and exit kills it. */
static void test_step_idle_io_uring_no_system_call(void **state)
{
    if (*(const enum mill_ksock_engine *)*state != MILL_KSOCK_IO_URING) {
        return; /* epoll has to ask the kernel */
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct bed *bed = bed_new(state, (struct mill_ksock_config){0});
        listen_on(bed, v4_loopback);
        (void)pair(bed);
        turns(bed, 20);
        uint64_t now = now_ns(bed);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) {
            _exit(2);
        }
        uint32_t work = 0;
        for (unsigned i = 0; i < 1000; i++) {
            work += bed->maker->ops->step(bed->maker, now + i);
        }
        syscall(SYS_exit, work == 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The core's thread: opens a stream and leaves with sends under way. */
static void *core_thread(void *argument)
{
    struct bed *bed = argument;
    int *fd = calloc(1, sizeof(*fd));
    assert_non_null(fd);
    *fd = pair(bed);
    struct mill_ref ref = {.extent = 0, .size_bytes = UNITS * MILL_EXTENT_UNIT_BYTES};
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(bed->streams[0]->ops->send_ref(bed->streams[0], &ref), 0);
    }
    turns(bed, 20);
    return fd;
}

static void test_destroy_after_core_thread_ended_gives_loans_back(void **state)
{
    struct bed *bed = bed_new(state, (struct mill_ksock_config){0});
    listen_on(bed, v4_loopback);
    pthread_t thread;
    void *fd = NULL;
    assert_int_equal(pthread_create(&thread, NULL, core_thread, bed), 0);
    assert_int_equal(pthread_join(thread, &fd), 0);
    assert_true(bed->loans.uses[0] > 0);
    bed_free(bed); /* looks at the loans */
    /* The peer learns of it: a reset, after what was under way. */
    static uint8_t bytes[1u << 16];
    ssize_t got;
    while ((got = recv(*(int *)fd, bytes, sizeof(bytes), 0)) > 0) {
    }
    assert_int_equal(got, -1);
    assert_int_equal(errno, ECONNRESET);
    close(*(int *)fd);
    free(fd);
}

/* From here on io_uring_setup answers EPERM, as under most container runtimes. */
static int forbid_io_uring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = MILL_COUNT_OF(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return -errno;
    }
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 ? 0 : -errno;
}

static void test_create_io_uring_forbidden_auto_takes_epoll(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (forbid_io_uring() < 0) {
            _exit(2);
        }
        struct mill_ksock_config config = {.engine = MILL_KSOCK_IO_URING, .connections_max = 1};
        struct mill_loans loans = {0};
        struct mill_ksock *ksock = NULL;
        struct mill_report report = {{0}};
        int error = mill_ksock_create(&config, &loans, NULL, &events, NULL, &ksock, &report);
        if (error != -EPERM || !strstr(report.text, "kernel.io_uring_disabled")) {
            _exit(3);
        }
        config.engine = MILL_KSOCK_AUTO;
        error = mill_ksock_create(&config, &loans, NULL, &events, NULL, &ksock, &report);
        if (error != 0 || mill_ksock_engine(ksock) != MILL_KSOCK_EPOLL) {
            _exit(4);
        }
        mill_ksock_maker(ksock)->ops->destroy(mill_ksock_maker(ksock));
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_create_wrong_limit_is_named(void **state)
{
    (void)state;
    const struct mill_ksock_config wrong[] = {
        {.rx_buffers = 48},
        {.arena_bytes_per_connection = 100},
        {.rx_buffer_bytes = 10},
        {.connections_max = UINT32_MAX},
    };
    const char *const names[] = {"rx_buffers", "arena_bytes_per_connection", "rx_buffer_bytes",
                                 "connections_max"};
    for (size_t i = 0; i < MILL_COUNT_OF(wrong); i++) {
        struct mill_ksock *ksock = NULL;
        struct mill_loans loans = {0};
        struct mill_report report = {{0}};
        assert_int_equal(mill_ksock_create(&wrong[i], &loans, NULL, &events, NULL, &ksock, &report),
                         -EINVAL);
        assert_non_null(strstr(report.text, names[i]));
        assert_null(ksock);
    }
}

static const struct CMUnitTest all[] = {
    cmocka_unit_test(test_wait_watched_descriptor_ends_it_by_level),
    cmocka_unit_test(test_wait_watched_descriptor_dies_is_left),
    cmocka_unit_test(test_wait_socket_ends_it),
    cmocka_unit_test(test_close_peer_never_finishes_timeout),
    cmocka_unit_test(test_close_peer_never_reads_timeout_gives_loans_back),
    cmocka_unit_test(test_buffers_held_by_others_newcomer_is_heard),
    cmocka_unit_test(test_single_bytes_share_a_buffer),
    cmocka_unit_test(test_listen_any_v6_takes_both_families),
    cmocka_unit_test(test_listen_port_in_use_says_so),
    cmocka_unit_test(test_reuse_port_two_makers_listen),
    cmocka_unit_test(test_accept_out_of_descriptors_pauses_then_goes_on),
    cmocka_unit_test(test_step_idle_io_uring_no_system_call),
    cmocka_unit_test(test_destroy_after_core_thread_ended_gives_loans_back),
    cmocka_unit_test(test_create_io_uring_forbidden_auto_takes_epoll),
    cmocka_unit_test(test_create_wrong_limit_is_named),
};

static int run(const char *name, enum mill_ksock_engine engine)
{
    struct CMUnitTest tests[MILL_COUNT_OF(all)];
    for (size_t i = 0; i < MILL_COUNT_OF(all); i++) {
        tests[i] = all[i];
        tests[i].initial_state = &engine;
    }
    return _cmocka_run_group_tests(name, tests, MILL_COUNT_OF(all), NULL, NULL);
}

int main(void)
{
    const struct mill_ksock_config config = {.engine = MILL_KSOCK_AUTO, .connections_max = 1};
    struct mill_loans loans = {0};
    struct mill_ksock *ksock = NULL;
    struct mill_report report = {{0}};
    if (mill_ksock_create(&config, &loans, NULL, &events, NULL, &ksock, &report) < 0) {
        print_error("%s\n", report.text);
        return 1;
    }
    bool uring = mill_ksock_engine(ksock) == MILL_KSOCK_IO_URING;
    mill_ksock_maker(ksock)->ops->destroy(mill_ksock_maker(ksock));
    int failed = 0;
    if (uring) {
        failed += run("ksock/io_uring", MILL_KSOCK_IO_URING);
    } else {
        print_message("skipped: io_uring: %s\n", report.text);
    }
    return failed + run("ksock/epoll", MILL_KSOCK_EPOLL);
}
