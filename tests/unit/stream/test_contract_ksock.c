/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: both engines of dataplane/ksock keep the contract of streams.
 * Method: real sockets on the loopback interface, on ports that the kernel chooses. */
#include "tests/unit/stream/contract.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/ksock/ksock.h"

enum {
    PEERS_MAX = 1200,
    TURN_NS = 1000000,
};

static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};

struct twin {
    struct mill_ksock *ksock;
    int listener; /* peers accept here */
    uint16_t listener_port;
    int fds[PEERS_MAX];
    int fds_count;
};

static struct sockaddr_in address_of(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int socket_new(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

/* Binds to any port. ret: it. */
static uint16_t bind_any(int fd)
{
    struct sockaddr_in name = address_of(0);
    socklen_t size = sizeof(name);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &size), 0);
    return ntohs(name.sin_port);
}

static int open_with(struct contract *contract, const struct contract_limits *limits,
                     enum mill_ksock_engine engine)
{
    struct twin *twin = calloc(1, sizeof(*twin));
    assert_non_null(twin);
    struct mill_ksock_config config = {
        .engine = engine,
        .connections_max = limits->connections_max,
        .refs_per_connection = limits->refs_per_connection,
        .arena_bytes_per_connection = limits->arena_bytes_per_connection,
        .rx_window_max = limits->rx_window_max,
        .rx_buffers = 1024,
        .rx_buffer_bytes = 4096,
    };
    struct mill_report report = {{0}};
    int error = mill_ksock_create(&config, &contract->loans, contract->arena, &contract_events,
                                  contract, &twin->ksock, &report);
    if (error < 0) {
        print_message("%s\n", report.text);
        free(twin);
        return error;
    }
    assert_int_equal(mill_ksock_engine(twin->ksock), engine);
    contract->fixture_data = twin;
    contract->maker = mill_ksock_maker(twin->ksock);
    assert_int_equal(
        contract->maker->ops->listen(contract->maker, loopback, 0, CONTRACT_LISTENER, &report), 0);
    twin->listener = socket_new();
    twin->listener_port = bind_any(twin->listener);
    assert_int_equal(listen(twin->listener, 16), 0);
    return 0;
}

static int open_uring(struct contract *contract, const struct contract_limits *limits)
{
    return open_with(contract, limits, MILL_KSOCK_IO_URING);
}

static int open_epoll(struct contract *contract, const struct contract_limits *limits)
{
    return open_with(contract, limits, MILL_KSOCK_EPOLL);
}

static void close_twin(struct contract *contract)
{
    struct twin *twin = contract->fixture_data;
    contract->maker->ops->destroy(contract->maker);
    for (int i = 0; i < twin->fds_count; i++) {
        if (twin->fds[i] >= 0) {
            close(twin->fds[i]);
        }
    }
    close(twin->listener);
    free(twin);
}

static uint64_t now_ns(struct contract *contract)
{
    MILL_UNUSED(contract);
    return mill_now_read().mono_ns;
}

static void turn(struct contract *contract)
{
    struct twin *twin = contract->fixture_data;
    uint64_t step_ns = now_ns(contract);
    if (contract->maker->ops->step(contract->maker, step_ns) > 0) {
        return;
    }
    uint64_t deadline_ns = contract->maker->ops->deadline(contract->maker);
    if (deadline_ns > step_ns) {
        uint64_t sleep_ns = MILL_MIN(deadline_ns - step_ns, (uint64_t)TURN_NS);
        assert_int_equal(mill_ksock_wait(twin->ksock, sleep_ns), 0);
    }
}

static int keep(struct twin *twin, int fd)
{
    assert_true(twin->fds_count < PEERS_MAX);
    twin->fds[twin->fds_count] = fd;
    return twin->fds_count++;
}

static int peer_connect(struct contract *contract)
{
    struct twin *twin = contract->fixture_data;
    int fd = socket_new();
    struct sockaddr_in name = address_of(mill_ksock_port(twin->ksock, CONTRACT_LISTENER));
    int error = connect(fd, (struct sockaddr *)&name, sizeof(name));
    assert_true(error == 0 || errno == EINPROGRESS);
    return keep(twin, fd);
}

static int peer_accept(struct contract *contract)
{
    struct twin *twin = contract->fixture_data;
    int fd = accept4(twin->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return fd < 0 ? -errno : keep(twin, fd);
}

static ssize_t peer_send(struct contract *contract, int peer, const void *bytes, size_t size)
{
    struct twin *twin = contract->fixture_data;
    ssize_t sent = send(twin->fds[peer], bytes, size, MSG_NOSIGNAL);
    return sent < 0 ? -errno : sent;
}

static ssize_t peer_recv(struct contract *contract, int peer, void *bytes, size_t size)
{
    struct twin *twin = contract->fixture_data;
    ssize_t got = recv(twin->fds[peer], bytes, size, 0);
    return got < 0 ? -errno : got;
}

static void peer_finish(struct contract *contract, int peer)
{
    struct twin *twin = contract->fixture_data;
    assert_int_equal(shutdown(twin->fds[peer], SHUT_WR), 0);
}

static void peer_close(struct contract *contract, int peer)
{
    struct twin *twin = contract->fixture_data;
    if (twin->fds[peer] >= 0) {
        close(twin->fds[peer]);
        twin->fds[peer] = -1;
    }
}

static void peer_reset(struct contract *contract, int peer)
{
    struct twin *twin = contract->fixture_data;
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(twin->fds[peer], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)),
                     0);
    peer_close(contract, peer);
}

static void peer_address(struct contract *contract, bool somebody, uint8_t ret_address[16],
                         uint16_t *ret_port)
{
    struct twin *twin = contract->fixture_data;
    memcpy(ret_address, loopback, sizeof(loopback));
    *ret_port = twin->listener_port;
    if (!somebody) {
        /* A port that was free a moment ago and on which nobody listens. */
        int fd = socket_new();
        *ret_port = bind_any(fd);
        close(fd);
    }
}

static struct contract_fixture fixture(const char *name,
                                       int (*open)(struct contract *contract,
                                                   const struct contract_limits *limits))
{
    return (struct contract_fixture){
        .name = name,
        .open = open,
        .close = close_twin,
        .turn = turn,
        .now_ns = now_ns,
        .peer_connect = peer_connect,
        .peer_accept = peer_accept,
        .peer_send = peer_send,
        .peer_recv = peer_recv,
        .peer_finish = peer_finish,
        .peer_close = peer_close,
        .peer_reset = peer_reset,
        .peer_address = peer_address,
    };
}

/* ret: may this machine's processes use io_uring? */
static bool uring_allowed(void)
{
    static const struct mill_stream_events none;
    struct mill_ksock_config config = {.engine = MILL_KSOCK_IO_URING, .connections_max = 1};
    struct mill_loans loans = {0};
    struct mill_ksock *ksock = NULL;
    struct mill_report report = {{0}};
    if (mill_ksock_create(&config, &loans, NULL, &none, NULL, &ksock, &report) < 0) {
        printf("skipped: contract over io_uring: %s\n", report.text);
        return false;
    }
    mill_ksock_maker(ksock)->ops->destroy(mill_ksock_maker(ksock));
    return true;
}

int main(void)
{
    const struct contract_fixture uring = fixture("ksock/io_uring", open_uring);
    const struct contract_fixture epoll = fixture("ksock/epoll", open_epoll);
    int failed = 0;
    if (uring_allowed()) {
        failed += contract_run(&uring);
    }
    failed += contract_run(&epoll);
    return failed;
}
