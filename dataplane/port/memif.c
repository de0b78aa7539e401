/* SPDX-License-Identifier: Apache-2.0 */
/* What net_memif needs before it is created: arguments that work, and a socket of its own. The
 * driver (DPDK 22.11) takes a socket path that exists for one that is served, and says nothing of
 * the reason; zero copy is broken in it. Start-up only, main thread. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "dataplane/port/port_internal.h"

enum {
    ARGUMENT_BYTES = 128,
    GREETING_MS = 1000,
    PATH_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path),
};

/* Where the driver puts a socket that is not named. */
static const char default_socket[] = "/run/memif.sock";

struct memif_socket {
    char path[PATH_BYTES];
    bool abstract;
};

/* The driver's own default is an abstract one, which cannot be seen or protected by modes. */
static int socket_of(const struct mill_port *port, struct memif_socket *ret_socket,
                     struct mill_report *report)
{
    char yes[ARGUMENT_BYTES] = "no";
    const char *device = port->options.device;
    snprintf(ret_socket->path, sizeof(ret_socket->path), "%s", default_socket);
    bool found = mill_port_argument(device, "socket", ret_socket->path, sizeof(ret_socket->path));
    if (strstr(device, ",socket=") != NULL && !found) {
        return mill_fail(report, -ENAMETOOLONG, "the socket of %s is longer than %d characters",
                         device, (int)PATH_BYTES - 1);
    }
    (void)mill_port_argument(device, "socket-abstract", yes, sizeof(yes));
    ret_socket->abstract = strcmp(yes, "yes") == 0;
    if (!ret_socket->abstract && ret_socket->path[0] != '/') {
        return mill_fail(report, -EINVAL, "the socket of %s must be an absolute path", device);
    }
    return 0;
}

static int check_folder(const struct memif_socket *socket, struct mill_report *report)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof(folder), "%s", socket->path);
    char *end = strrchr(folder, '/');
    end[end == folder ? 1 : 0] = '\0';
    if (faccessat(AT_FDCWD, folder, R_OK | W_OK, AT_EACCESS) < 0) {
        int code = -errno;
        return mill_fail(report, code, "folder %s of the memif socket: %s; %s", folder,
                         strerror(-code), code == -ENOENT ? "make it" : "it must be writable");
    }
    return 0;
}

/* Tries the socket. ret: 0 somebody listens (pid in ret_pid, 0 unknown), or negative. */
static int reach(const struct memif_socket *at, pid_t *ret_pid)
{
    struct sockaddr_un address;
    struct ucred holder = {0};
    socklen_t size = sizeof(holder);
    socklen_t length = mill_memif_address(at->path, at->abstract, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -errno;
    }
    int code = connect(fd, (struct sockaddr *)&address, length) < 0 ? -errno : 0;
    *ret_pid = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &holder, &size) == 0 ? holder.pid : 0;
    if (code == 0) {
        /* A server whose greeting finds us gone would end its process (DPDK 22.11: it closes a
         * descriptor that EAL still watches). */
        struct pollfd greeting = {.fd = fd, .events = POLLIN};
        (void)poll(&greeting, 1, GREETING_MS);
    }
    close(fd);
    return code == -EAGAIN ? 0 : code; /* its queue is full: somebody listens */
}

/* A server binds the path; one that a killed process left is in the way. */
static int clear(const struct memif_socket *socket, struct mill_report *report)
{
    struct stat status;
    char holder[64] = "another process";
    pid_t pid = 0;
    int code = reach(socket, &pid);
    if (code == 0) {
        if (pid > 0) {
            snprintf(holder, sizeof(holder), "process %d", (int)pid);
        }
        return mill_fail(report, -EADDRINUSE,
                         "memif socket %s is served by %s; stop it, or give this port another "
                         "socket",
                         socket->path, holder);
    }
    if (socket->abstract || code == 0 || lstat(socket->path, &status) < 0) {
        return 0;
    }
    if (!S_ISSOCK(status.st_mode)) {
        return mill_fail(report, -EEXIST,
                         "%s is no socket; remove it, or give this port another socket",
                         socket->path);
    }
    if (code != -ECONNREFUSED) {
        return mill_fail(report, code, "memif socket %s: %s", socket->path, strerror(-code));
    }
    if (unlink(socket->path) < 0 && errno != ENOENT) {
        return mill_fail(report, -errno, "memif socket %s of a killed process: %s", socket->path,
                         strerror(errno));
    }
    return 0;
}

static int role_of(struct mill_port *port, struct mill_report *report)
{
    char role[ARGUMENT_BYTES] = "";
    const char *device = port->options.device;
    (void)mill_port_argument(device, "role", role, sizeof(role));
    if (strcmp(role, "server") != 0 && strcmp(role, "client") != 0) {
        return mill_fail(report, -EINVAL,
                         "%s needs role=server or role=client; the server makes the socket, the "
                         "client connects to it",
                         device);
    }
    port->client = strcmp(role, "client") == 0;
    return 0;
}

/* The driver listens where only the relay finds it. */
static int server_open(struct mill_port *port, const struct memif_socket *socket, char *args,
                       size_t size_bytes, struct mill_report *report)
{
    char rest[MILL_PORT_DEVICE_BYTES + 32] = "";
    size_t used = 0;
    int code = mill_memif_relay_open(&port->relay, socket->path, socket->abstract);
    if (code < 0) {
        return mill_fail(report, code, "memif socket %s: %s", socket->path, strerror(-code));
    }
    for (const char *at = args; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (strncmp(at, "socket=", 7) != 0 && strncmp(at, "socket-abstract=", 16) != 0 &&
            used + length + 1 < sizeof(rest)) {
            used += (size_t)snprintf(rest + used, sizeof(rest) - used, "%.*s,", (int)length, at);
        }
    }
    int written = snprintf(args, size_bytes, "%ssocket=%s,socket-abstract=yes", rest,
                           port->relay.private_name);
    return written > 0 && (size_t)written < size_bytes
               ? 0
               : mill_fail(report, -ENAMETOOLONG, "the arguments of %s are too long",
                           port->options.device);
}

/* Adds key=value unless the key is there. */
static bool append(char *args, size_t size_bytes, const char *key, const char *value)
{
    size_t used = strlen(args);
    char want[ARGUMENT_BYTES];
    snprintf(want, sizeof(want), ",%s=", key);
    if (strncmp(args, want + 1, strlen(want) - 1) == 0 || strstr(args, want) != NULL) {
        return true;
    }
    int added =
        snprintf(args + used, size_bytes - used, "%s%s=%s", used > 0 ? "," : "", key, value);
    return added > 0 && (size_t)added < size_bytes - used;
}

int mill_port_memif_prepare(struct mill_port *port, char *args, size_t size_bytes,
                            struct mill_report *report)
{
    struct memif_socket socket = {.abstract = false};
    char value[ARGUMENT_BYTES] = "no";
    const char *device = port->options.device;
    int code = role_of(port, report);
    if (code == 0) {
        code = socket_of(port, &socket, report);
    }
    if (code < 0) {
        return code;
    }
    (void)mill_port_argument(device, "zero-copy", value, sizeof(value));
    if (strcmp(value, "no") != 0) {
        return mill_fail(report, -EINVAL,
                         "%s: memif is copy only; its driver computes addresses of zero-copy "
                         "frames against the wrong region. Remove zero-copy",
                         device);
    }
    if (!append(args, size_bytes, "socket", default_socket) ||
        !append(args, size_bytes, "socket-abstract", "no")) {
        return mill_fail(report, -ENAMETOOLONG, "the arguments of %s are too long", device);
    }
    code = socket.abstract ? 0 : check_folder(&socket, report);
    if (code == 0 && !port->client) {
        code = clear(&socket, report);
        code = code < 0 ? code : server_open(port, &socket, args, size_bytes, report);
    }
    return code;
}
