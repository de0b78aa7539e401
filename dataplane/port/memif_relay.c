/* SPDX-License-Identifier: Apache-2.0 */
/* The door of a memif server: takes the peer's connection and passes the messages of the handshake
 * between it and the driver, which listens on a private socket.
 *
 *   peer -- public socket -- relay -- private socket -- driver
 *
 * The driver (DPDK 22.11) ends the process when a peer is gone before it was greeted: it closes a
 * descriptor that EAL still watches. Its own peer is the relay, which stays until then. Runs on the
 * thread that the gate holds; opened and closed on the main thread under the gate's lock. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataplane/port/port_internal.h"

enum {
    MESSAGE_MAX = 256, /* memif's have 128 bytes */
    BACKLOG = 8,
    FORWARDS_MAX = 64, /* messages of one direction and step */
};

socklen_t mill_memif_address(const char *path, bool abstract, struct sockaddr_un *ret_address)
{
    size_t length = MILL_MIN(strlen(path), sizeof(ret_address->sun_path) - 1);
    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->sun_family = AF_UNIX;
    memcpy(ret_address->sun_path + (abstract ? 1 : 0), path, length);
    /* An abstract name ends where the driver ends it. */
    return abstract ? (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1)
                    : (socklen_t)sizeof(*ret_address);
}

int mill_memif_relay_open(struct mill_memif_relay *relay, const char *path, bool abstract)
{
    struct sockaddr_un address;
    socklen_t length = mill_memif_address(path, abstract, &address);
    *relay = (struct mill_memif_relay){.open = true, .listener = -1, .peer = -1, .driver = -1};
    relay->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (relay->listener < 0 || bind(relay->listener, (struct sockaddr *)&address, length) < 0 ||
        listen(relay->listener, BACKLOG) < 0) {
        int code = -errno;
        mill_memif_relay_close(relay);
        return code;
    }
    snprintf(relay->path, sizeof(relay->path), "%s", abstract ? "" : path);
    /* Another name each time: the driver never closes a socket on which it listens. */
    snprintf(relay->private_name, sizeof(relay->private_name), "millrace-memif-%d-%llx",
             (int)getpid(), (unsigned long long)mill_now_read().mono_ns);
    return 0;
}

static void end(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void mill_memif_relay_close(struct mill_memif_relay *relay)
{
    if (!relay->open) {
        return; /* its descriptors are none yet */
    }
    end(&relay->peer);
    end(&relay->driver);
    end(&relay->listener);
    if (relay->path[0] != '\0') {
        (void)unlink(relay->path);
    }
    relay->open = false;
}

uint32_t mill_memif_relay_fds(const struct mill_memif_relay *relay,
                              struct pollfd ret_fds[MILL_MEMIF_RELAY_FDS])
{
    const int fds[MILL_MEMIF_RELAY_FDS] = {relay->listener, relay->peer, relay->driver};
    uint32_t count = 0;
    for (uint32_t i = 0; relay->open && i < MILL_MEMIF_RELAY_FDS; i++) {
        if (fds[i] >= 0) {
            ret_fds[count++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        }
    }
    return count;
}

/* Passes one message on with its descriptor. ret: 1, 0 none there, -EPIPE one side is gone. */
static int forward(int from, int to)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    char message[MESSAGE_MAX];
    struct iovec part = {.iov_base = message, .iov_len = sizeof(message)};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          /* Not its space, in whose padding a second descriptor fits. */
                          .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t size = recvmsg(from, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (size <= 0) {
        return -EPIPE;
    }
    struct cmsghdr *rights = CMSG_FIRSTHDR(&head);
    int fd = -1;
    if (rights != NULL && rights->cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
    } else {
        head.msg_controllen = 0;
    }
    part.iov_len = (size_t)size;
    head.msg_flags = 0;
    bool sent = to >= 0 && sendmsg(to, &head, MSG_DONTWAIT | MSG_NOSIGNAL) == size;
    end(&fd);
    return sent ? 1 : -EPIPE;
}

static void drop(struct mill_memif_relay *relay)
{
    bool whole = relay->greeted;
#ifdef MILL_MUTANT_PORT_UNGREETED
    whole = true;
#endif
    end(&relay->peer);
    if (whole) {
        end(&relay->driver);
    }
}

/* Moves what waits in both directions; the driver's greeting is taken also when the peer is gone.
 */
static void pass(struct mill_memif_relay *relay)
{
    for (int i = 0; relay->driver >= 0 && i < FORWARDS_MAX; i++) {
        int moved = forward(relay->driver, relay->peer);
        if (moved == 0) {
            break;
        }
        relay->greeted = true;
        if (moved < 0) {
            drop(relay);
        }
    }
    for (int i = 0; relay->peer >= 0 && i < FORWARDS_MAX; i++) {
        int moved = forward(relay->peer, relay->driver);
        if (moved < 0) {
            drop(relay);
        }
        if (moved <= 0) {
            break;
        }
    }
}

static int reach_driver(const struct mill_memif_relay *relay)
{
    struct sockaddr_un address;
    socklen_t length = mill_memif_address(relay->private_name, true, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length) < 0) {
        end(&fd);
    }
    return fd;
}

void mill_memif_relay_step(struct mill_memif_relay *relay)
{
    int peer;
    if (!relay->open) {
        return;
    }
    pass(relay);
    while ((peer = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (relay->peer < 0 && relay->driver < 0) {
            relay->driver = reach_driver(relay);
            relay->greeted = false;
            relay->peer = relay->driver >= 0 ? peer : -1;
        }
        if (relay->peer != peer) {
            close(peer); /* one at a time; a client tries again */
        }
    }
}
