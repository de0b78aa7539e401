/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and options of kernel sockets. Thread: the maker's core. Keeps no state; no call here
 * blocks. */
#include "dataplane/ksock/ksock_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

enum {
    KEEPALIVE_IDLE_S = 120, /* an idle peer that vanished is found after this and user_timeout */
    KEEPALIVE_INTERVAL_S = 10,
    TEXT_BYTES = INET6_ADDRSTRLEN + 8,
};

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

socklen_t mill_ksock_sockaddr(const uint8_t address[16], uint16_t port,
                              struct sockaddr_storage *ret_sockaddr)
{
    *ret_sockaddr = (struct sockaddr_storage){0};
    if (memcmp(address, mapped_prefix, sizeof(mapped_prefix)) == 0) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&v4.sin_addr, address + sizeof(mapped_prefix), sizeof(v4.sin_addr));
        memcpy(ret_sockaddr, &v4, sizeof(v4));
        return sizeof(v4);
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&v6.sin6_addr, address, sizeof(v6.sin6_addr));
    memcpy(ret_sockaddr, &v6, sizeof(v6));
    return sizeof(v6);
}

void mill_ksock_address(const struct sockaddr_storage *sockaddr, uint8_t ret_address[16],
                        uint16_t *ret_port)
{
    if (sockaddr->ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, sockaddr, sizeof(v4));
        memcpy(ret_address, mapped_prefix, sizeof(mapped_prefix));
        memcpy(ret_address + sizeof(mapped_prefix), &v4.sin_addr, sizeof(v4.sin_addr));
        *ret_port = ntohs(v4.sin_port);
    } else if (sockaddr->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, sockaddr, sizeof(v6));
        memcpy(ret_address, &v6.sin6_addr, sizeof(v6.sin6_addr));
        *ret_port = ntohs(v6.sin6_port);
    } else {
        memset(ret_address, 0, 16);
        *ret_port = 0;
    }
}

void mill_ksock_local(int fd, struct mill_stream_peer *ret_peer)
{
    struct sockaddr_storage name = {0};
    socklen_t size = sizeof(name);
    if (getsockname(fd, (struct sockaddr *)&name, &size) == 0) {
        mill_ksock_address(&name, ret_peer->local_address, &ret_peer->local_port);
    }
}

void mill_ksock_peer(int fd, struct mill_stream_peer *ret_peer)
{
    struct sockaddr_storage name = {0};
    socklen_t size = sizeof(name);
    if (getpeername(fd, (struct sockaddr *)&name, &size) == 0) {
        mill_ksock_address(&name, ret_peer->address, &ret_peer->port);
    }
    mill_ksock_local(fd, ret_peer);
}

static int set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value)) == 0 ? 0 : -errno;
}

int mill_ksock_socket_options(int fd, const struct mill_ksock_config *config)
{
    const struct {
        int level;
        int name;
        int value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        /* RFC 5482. Counts un-acknowledged data and a window that stays shut. */
        {IPPROTO_TCP, TCP_USER_TIMEOUT, (int)config->user_timeout_ms},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        /* What can rush in before a stream that is not consumed stops being read. */
        {IPPROTO_TCP, TCP_WINDOW_CLAMP, (int)config->rx_window_max},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(options); i++) {
        int error = set_option(fd, options[i].level, options[i].name, options[i].value);
        if (error < 0) {
            return error;
        }
    }
    return 0;
}

/* Everything between socket and listen. ret: 0, -errno. */
static int prepare_listener(int fd, const struct mill_ksock_config *config,
                            const struct sockaddr_storage *name, socklen_t size)
{
    static const struct in6_addr any = IN6ADDR_ANY_INIT;
    int error = set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (error == 0 && config->reuse_port) {
        error = set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    }
    if (error == 0 && name->ss_family == AF_INET6) {
        /* [::] also takes IPv4, as users know it from Kafka; any other address is only itself. */
        struct sockaddr_in6 v6;
        memcpy(&v6, name, sizeof(v6));
        bool is_any = memcmp(&v6.sin6_addr, &any, sizeof(any)) == 0;
        error = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, is_any ? 0 : 1);
    }
    if (error == 0) {
        error = mill_ksock_socket_options(fd, config);
    }
    if (error == 0 && bind(fd, (const struct sockaddr *)name, size) != 0) {
        error = -errno;
    }
    if (error == 0 && listen(fd, MILL_KSOCK_BACKLOG) != 0) {
        error = -errno;
    }
    return error;
}

/* The reason in words, with the remedy. */
MILL_COLD static int listen_failed(int error, const uint8_t address[16], uint16_t port,
                                   struct mill_report *report)
{
    char text[TEXT_BYTES] = "?";
    bool is_v4 = memcmp(address, mapped_prefix, sizeof(mapped_prefix)) == 0;
    inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? address + sizeof(mapped_prefix) : address, text,
              sizeof(text));
    const char *remedy = "";
    switch (error) {
    case -EADDRINUSE:
        remedy = "; see who has it with: ss -ltnp";
        break;
    case -EACCES:
        remedy = "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE";
        break;
    case -EADDRNOTAVAIL:
        remedy = "; no interface has this address: ip address";
        break;
    case -EAFNOSUPPORT:
        remedy = "; IPv6 is switched off on this machine";
        break;
    default:
        break;
    }
    return mill_fail(report, error, "cannot listen on %s port %u: %s%s", text, port,
                     strerror(-error), remedy);
}

int mill_ksock_socket_listen(const struct mill_ksock_config *config, const uint8_t address[16],
                             uint16_t port, uint16_t *ret_port, struct mill_report *report)
{
    struct sockaddr_storage name;
    socklen_t size = mill_ksock_sockaddr(address, port, &name);
    int fd = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) {
        return listen_failed(-errno, address, port, report);
    }
    int error = prepare_listener(fd, config, &name, size);
    if (error < 0) {
        close(fd);
        return listen_failed(error, address, port, report);
    }
    struct mill_stream_peer bound = {0};
    mill_ksock_local(fd, &bound);
    *ret_port = bound.local_port;
    return fd;
}

void mill_ksock_socket_reset(int fd)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    close(fd);
}

int mill_ksock_socket_error(int fd)
{
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        return -errno;
    }
    return -error;
}
