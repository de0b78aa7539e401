/* SPDX-License-Identifier: Apache-2.0 */
/* See server.h. libmicrohttpd is driven from outside: its epoll descriptor is polled by our thread,
 * which also closes what takes too long. Everything but open and close runs on that thread. */
#include "control/http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log_line.h"
#include "control/http/health.h"
#include "control/http/metrics.h"

enum {
    BACKLOG = 32,
    SWEEP_MS = 500, /* between two looks at slow connections, while any is open */
    PATH_BYTES = 1024,
};

/* An open connection; fd -1: free. since_ns: when it was accepted, or its last answer was through.
 */
struct http_connection {
    int fd;
    uint64_t since_ns;
    bool closing;
};

struct mill_http {
    struct MHD_Daemon *daemon;
    int listen_fd;
    int epoll_fd; /* the daemon's */
    int stop_fd;
    pthread_t thread;
    const struct mill_config *config;
    struct mill_counters *counters;
    struct mill_ipc_segment *ipc;
    uint32_t open_count;
    struct http_connection connections[MILL_HTTP_CONNECTIONS_MAX];
};

/* --- answers -----------------------------------------------------------------------------------
 */

/* Process id in a file of the run directory; 0 when there is none. */
static int64_t pid_read(const struct mill_http *http, const char *name)
{
    char path[PATH_BYTES];
    long long pid = 0;
    snprintf(path, sizeof(path), "%s/%s.pid", mill_config_run_dir(http->config), name);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%lld", &pid) != 1) {
            pid = 0;
        }
        fclose(file);
    }
    return pid;
}

static void render_metrics(const struct mill_http *http, struct mill_text *text)
{
    const struct mill_metrics_process processes[] = {
        {"supervisor", getppid(), true},
        {"control", getpid(), atomic_load(&http->ipc->control.serving) != 0},
        {"dataplane", pid_read(http, "millraced"), atomic_load(&http->ipc->dataplane.serving) != 0},
    };
    const struct mill_metrics_source source = {
        .counters = http->counters,
        .wall_ms = mill_now_read().wall_ms,
        .processes = processes,
        .processes_count = MILL_COUNT_OF(processes),
    };
    mill_metrics_render(&source, text);
}

/* ret: HTTP status; the body is in text. */
static unsigned answer_of(const struct mill_http *http, const char *url, struct mill_text *text)
{
    uint64_t now_ns = mill_now_read().mono_ns;
    bool fine = true;
    if (strcmp(url, "/metrics") == 0) {
        render_metrics(http, text);
    } else if (strcmp(url, "/healthz") == 0) {
        fine = mill_health_live(http->counters, http->ipc, now_ns, text);
    } else if (strcmp(url, "/readyz") == 0) {
        fine = mill_health_ready(http->counters, http->ipc, now_ns, text);
    } else {
        mill_text_add(text, "not here; there are /metrics, /healthz and /readyz\n");
        return MHD_HTTP_NOT_FOUND;
    }
    if (text->failed) {
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
    return fine ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status,
                                 const char *type, struct mill_text *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        text->failed ? 0 : text->used_bytes, text->bytes, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text->bytes);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    struct mill_http *http = context;
    struct mill_text text = {0};
    static int begun;
    MILL_UNUSED(version);
    MILL_UNUSED(upload);
    if (*state == NULL) {
        *state = &begun; /* the head is there; a body, if any, comes and is dropped */
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    mill_counter_add(&http->counters->http.requests, 1);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        mill_text_add(&text, "only GET and HEAD\n");
        return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", &text);
    }
    unsigned status = answer_of(http, url, &text);
    bool is_metrics = strcmp(url, "/metrics") == 0;
    return send_text(connection, status,
                     is_metrics ? "text/plain; version=0.0.4; charset=utf-8" : "text/plain", &text);
}

/* --- connections -------------------------------------------------------------------------------
 */

static void count_set(struct mill_http *http, uint32_t count)
{
    http->open_count = count;
    mill_counter_set(&http->counters->http.connections, count);
}

static enum MHD_Result on_accept(void *context, const struct sockaddr *address,
                                 socklen_t address_bytes)
{
    struct mill_http *http = context;
    MILL_UNUSED(address);
    MILL_UNUSED(address_bytes);
    if (http->open_count < MILL_HTTP_CONNECTIONS_MAX) {
        return MHD_YES;
    }
    mill_counter_add(&http->counters->http.refused, 1);
    return MHD_NO;
}

static void on_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    struct mill_http *http = context;
    struct http_connection *entry = *state;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (entry) {
            entry->fd = -1;
            count_set(http, http->open_count - 1);
        }
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    for (uint32_t i = 0; i < MILL_HTTP_CONNECTIONS_MAX && info; i++) {
        entry = &http->connections[i];
        if (entry->fd < 0) {
            *entry = (struct http_connection){.fd = info->connect_fd,
                                              .since_ns = mill_now_read().mono_ns};
            *state = entry;
            count_set(http, http->open_count + 1);
            return;
        }
    }
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    MILL_UNUSED(context);
    MILL_UNUSED(state);
    if (info && info->socket_context && code == MHD_REQUEST_TERMINATED_COMPLETED_OK) {
        struct http_connection *entry = info->socket_context;
        entry->since_ns = mill_now_read().mono_ns;
    }
}

/* Shuts what takes too long; libmicrohttpd then finds it closed. */
static void sweep(struct mill_http *http)
{
    uint64_t now_ns = mill_now_read().mono_ns;
#ifdef MILL_MUTANT_HTTP_SLOW_FOREVER
    return;
#endif
    for (uint32_t i = 0; i < MILL_HTTP_CONNECTIONS_MAX; i++) {
        struct http_connection *entry = &http->connections[i];
        if (entry->fd >= 0 && !entry->closing &&
            now_ns - entry->since_ns > MILL_HTTP_LIMIT_MS * MILL_NS_PER_MS) {
            entry->closing = true;
            shutdown(entry->fd, SHUT_RDWR);
            mill_counter_add(&http->counters->http.slow, 1);
        }
    }
}

static void *serve(void *context)
{
    struct mill_http *http = context;
    uint64_t swept_ns = 0;
    for (;;) {
        struct pollfd fds[] = {
            {.fd = http->stop_fd, .events = POLLIN},
            {.fd = http->epoll_fd, .events = POLLIN},
        };
        MHD_UNSIGNED_LONG_LONG due_ms = 0;
        int wait_ms = http->open_count > 0 ? SWEEP_MS : -1;
        if (MHD_get_timeout(http->daemon, &due_ms) == MHD_YES) {
            wait_ms = MILL_MIN(due_ms, (MHD_UNSIGNED_LONG_LONG)SWEEP_MS) == SWEEP_MS ? SWEEP_MS
                                                                                     : (int)due_ms;
        }
        if (poll(fds, MILL_COUNT_OF(fds), wait_ms) < 0 && errno != EINTR) {
            mill_log_line(MILL_LEVEL_ERROR, "http.poll", "error=\"%s\"", strerror(errno));
            return NULL;
        }
        if (fds[0].revents != 0) {
            return NULL;
        }
        MHD_run(http->daemon);
        uint64_t now_ns = mill_now_read().mono_ns;
        if (now_ns - swept_ns >= SWEEP_MS * MILL_NS_PER_MS) {
            swept_ns = now_ns;
            sweep(http);
        }
    }
}

/* --- open and close ----------------------------------------------------------------------------
 */

static const char *remedy_of(int error)
{
    switch (error) {
    case EADDRINUSE:
        return "; see who has it with: ss -ltnp; an empty http.listener does without";
    case EACCES:
        return "; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE";
    case EADDRNOTAVAIL:
        return "; no interface has this address: ip address";
    default:
        return "";
    }
}

/* A listening socket. ret: descriptor, negative errno with the report. */
static int listen_at(const struct mill_config_listener *at, struct mill_report *report)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const int yes = 1;
    bool is_v4 = memcmp(at->address, mapped, sizeof(mapped)) == 0;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(at->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(at->port)};
    memcpy(&v4.sin_addr, at->address + sizeof(mapped), sizeof(v4.sin_addr));
    memcpy(&v6.sin6_addr, at->address, sizeof(v6.sin6_addr));
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    }
    const struct sockaddr *address = is_v4 ? (void *)&v4 : (void *)&v6;
    socklen_t address_bytes = is_v4 ? sizeof(v4) : sizeof(v6);
    if (fd < 0 || bind(fd, address, address_bytes) < 0 || listen(fd, BACKLOG) < 0) {
        int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return mill_fail(report, -error, "http.listener: cannot listen on %s port %u: %s%s",
                         at->host, at->port, strerror(error), remedy_of(error));
    }
    return fd;
}

static int daemon_start(struct mill_http *http, struct mill_report *report)
{
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, on_accept, http, on_request, http, MHD_OPTION_LISTEN_SOCKET,
        http->listen_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MILL_HTTP_CONNECTIONS_MAX + 1,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MILL_HTTP_CONNECTION_BYTES,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, http, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        http->daemon ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info) {
        return mill_fail(report, -ENOMEM, "http.listener: the server cannot be started");
    }
    http->epoll_fd = info->epoll_fd;
    return 0;
}

/* Signals are for the program's main thread. */
static int thread_start(struct mill_http *http, struct mill_report *report)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&http->thread, NULL, serve, http);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? 0
                      : mill_fail(report, -error, "http.listener: no thread: %s", strerror(error));
}

static void http_free(struct mill_http *http)
{
    if (http->daemon) {
        MHD_stop_daemon(http->daemon); /* closes the listening socket, too */
    } else if (http->listen_fd >= 0) {
        close(http->listen_fd);
    }
    if (http->stop_fd >= 0) {
        close(http->stop_fd);
    }
    count_set(http, 0);
    free(http);
}

int mill_http_open(const struct mill_config *config, struct mill_counters *counters,
                   struct mill_ipc_segment *ipc, struct mill_http **ret_http,
                   struct mill_report *report)
{
    const struct mill_config_listener *at = mill_config_http(config);
    *ret_http = NULL;
    if (!at) {
        return 0;
    }
    struct mill_http *http = calloc(1, sizeof(*http));
    if (!http) {
        return mill_fail(report, -ENOMEM, "http.listener: out of memory");
    }
    http->config = config;
    http->counters = counters;
    http->ipc = ipc;
    for (uint32_t i = 0; i < MILL_HTTP_CONNECTIONS_MAX; i++) {
        http->connections[i].fd = -1;
    }
    http->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    http->listen_fd = listen_at(at, report);
    int r = http->listen_fd < 0 ? http->listen_fd : 0;
    if (r == 0 && http->stop_fd < 0) {
        r = mill_fail(report, -ENFILE, "http.listener: no descriptor left");
    }
    r = r < 0 ? r : daemon_start(http, report);
    r = r < 0 ? r : thread_start(http, report);
    if (r < 0) {
        http_free(http);
        return r;
    }
    *ret_http = http;
    return 0;
}

void mill_http_close(struct mill_http *http)
{
    if (http) {
        uint64_t one = 1;
        ssize_t written = write(http->stop_fd, &one, sizeof(one));
        MILL_ASSERT_EQ(written, (ssize_t)sizeof(one));
        pthread_join(http->thread, NULL);
        http_free(http);
    }
}
