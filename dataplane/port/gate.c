/* SPDX-License-Identifier: Apache-2.0 */
/* See gate.h. The interrupt thread is EAL's and one per process, so this file holds a static
 * struct. Slow path: runs when a peer comes or goes, and ten times a second while a client of ours
 * has no server. */
/* rte_intr_instance_alloc is how a driver outside DPDK's tree gets a handle, and marked as new. */
#define ALLOW_EXPERIMENTAL_API

#include "dataplane/port/gate.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_interrupts.h>
#include <rte_log.h>

#include "base/clock.h"

enum {
    PORTS_MAX = 16,
    CONNECT_MS = 100, /* between two attempts of a client without a server */
    GREET_MS = 2000,  /* a server that took the connection greets within it, else anew */
    OUT_NS = 20000,   /* looks at a core that is inside */
    HELD_S = 5,       /* EAL's thread comes into the callback within it, or something is broken */
};

static struct {
    pthread_mutex_t lock; /* taken by the interrupt thread while it is loose, else by main */
    pthread_cond_t entered;
    bool installed;
    bool held;
    bool loose; /* the interrupt thread has the lock */
    atomic_bool ended;
    int event_fd; /* readable: EAL calls us again */
    int wake_fd;  /* readable: the list of ports changed */
    int epoll_fd; /* EAL's, as last found */
    struct rte_intr_handle *handle;
    struct mill_port *ports[PORTS_MAX];
    uint32_t ports_count;
} gate = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .entered = PTHREAD_COND_INITIALIZER,
    .event_fd = -1,
    .wake_fd = -1,
    .epoll_fd = -1,
};

/* --- gates of ports --------------------------------------------------------------------------- */

static void close_gate(struct mill_port *port)
{
    const struct timespec step = {.tv_nsec = OUT_NS};
    atomic_fetch_or_explicit(&port->gate, MILL_GATE_HELD, memory_order_seq_cst);
#ifdef MILL_MUTANT_PORT_GATE
    return;
#endif
    for (uint16_t i = 0; i < port->queues_count; i++) {
        while (atomic_load_explicit(&port->queues[i].inside, memory_order_seq_cst) != 0) {
            nanosleep(&step, NULL); /* at most one burst, unless its core has no CPU */
        }
    }
}

/* The driver's thread is done: what is the link now? */
static void open_gate(struct mill_port *port)
{
    struct rte_eth_link link = {0};
    bool was_up = (atomic_load_explicit(&port->gate, memory_order_relaxed) & MILL_GATE_DOWN) == 0;
    bool up = port->started && rte_eth_link_get_nowait(port->port_id, &link) == 0 &&
              link.link_status == RTE_ETH_LINK_UP;
    if (was_up && !up) {
        mill_port_count(&port->link_downs, 1);
    }
    atomic_store_explicit(&port->gate, up ? 0u : (uint32_t)MILL_GATE_DOWN, memory_order_seq_cst);
}

static bool wants_server(const struct mill_port *port)
{
    return port->client &&
           (atomic_load_explicit(&port->gate, memory_order_relaxed) & MILL_GATE_DOWN) != 0;
}

/* net_memif connects in its start call only. An attempt that is under way is left alone. */
static void connect_again(struct mill_port *port)
{
    uint64_t now_ns = mill_now_read().mono_ns;
    if (port->started && now_ns - port->connect_ns < GREET_MS * MILL_NS_PER_MS) {
        return;
    }
    port->connect_ns = now_ns;
    /* That nobody listens is no news, and would hide what another port's error text needs. */
    rte_log_set_level_pattern("pmd.net.memif", RTE_LOG_CRIT);
    close_gate(port);
    if (port->started) {
        (void)rte_eth_dev_stop(port->port_id);
    }
    port->started = rte_eth_dev_start(port->port_id) == 0;
    open_gate(port);
    rte_log_set_level_pattern("pmd.net.memif", RTE_LOG_WARNING);
}

/* --- EAL's interrupt thread ------------------------------------------------------------------- */

/* True when descriptor fd is an epoll that watches ours (proc(5), fdinfo). */
static bool watches_us(int fd)
{
    char path[64];
    char line[128];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        int target = -1;
        found = sscanf(line, "tfd: %d", &target) == 1 && target == gate.event_fd;
    }
    fclose(file);
    return found;
}

/* EAL keeps its epoll to itself and makes a new one at each change, mostly under the old number. */
static int epoll_find(void)
{
    DIR *dir = NULL;
    if (gate.epoll_fd >= 0 && watches_us(gate.epoll_fd)) {
        return gate.epoll_fd;
    }
    gate.epoll_fd = -1;
    dir = opendir("/proc/self/fd");
    for (struct dirent *one = NULL;
         dir != NULL && gate.epoll_fd < 0 && (one = readdir(dir)) != NULL;) {
        char link[64] = "";
        bool is_epoll = readlinkat(dirfd(dir), one->d_name, link, sizeof(link) - 1) > 0 &&
                        strcmp(link, "anon_inode:[eventpoll]") == 0;
        if (is_epoll && watches_us(atoi(one->d_name))) {
            gate.epoll_fd = atoi(one->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return gate.epoll_fd;
}

/* Whether a client has no server; those that have none try again when asked to. */
static bool clients_connect(bool again)
{
    bool wanted = false;
    pthread_mutex_lock(&gate.lock);
    for (uint32_t i = 0; i < gate.ports_count; i++) {
        if (again && wants_server(gate.ports[i])) {
            connect_again(gate.ports[i]);
        }
        wanted = wanted || wants_server(gate.ports[i]);
    }
    pthread_mutex_unlock(&gate.lock);
    return wanted;
}

/* The relays' descriptors; what is ready there is done before. */
static uint32_t relays_step(struct pollfd *ret_fds)
{
    uint32_t count = 0;
    pthread_mutex_lock(&gate.lock);
    for (uint32_t i = 0; i < gate.ports_count; i++) {
        mill_memif_relay_step(&gate.ports[i]->relay);
        count += mill_memif_relay_fds(&gate.ports[i]->relay, ret_fds + count);
    }
    pthread_mutex_unlock(&gate.lock);
    return count;
}

/* Sleeps until EAL has an event for somebody else than us. */
static void wait_event(void)
{
    struct pollfd fds[2 + PORTS_MAX * MILL_MEMIF_RELAY_FDS] = {
        {.fd = epoll_find(), .events = POLLIN},
        {.fd = gate.wake_fd, .events = POLLIN},
    };
    uint64_t value;
    bool wanted = clients_connect(false);
    for (;;) {
        uint32_t count = 2 + relays_step(fds + 2);
        /* Without EAL's descriptor (no /proc) it is let loose ten times a second. */
        int r = poll(fds, count, wanted || fds[0].fd < 0 ? CONNECT_MS : -1);
        while (atomic_load_explicit(&gate.ended, memory_order_acquire)) {
            pause(); /* EAL's memory is gone, and soon the process */
        }
        if (fds[0].fd < 0 || (r > 0 && fds[0].revents != 0)) {
            return;
        }
        ssize_t got = read(gate.wake_fd, &value, sizeof(value));
        MILL_UNUSED(got); /* EAGAIN when nobody woke us */
        wanted = clients_connect(r == 0);
    }
}

/* EAL's callback: here the thread is held. */
static void hold(void *context)
{
    uint64_t value = 0;
    MILL_UNUSED(context);
    if (!gate.loose) {
        pthread_mutex_lock(&gate.lock); /* the first time */
    }
    /* Drained, so that EAL's epoll is readable only when somebody else has an event. */
    ssize_t got = read(gate.event_fd, &value, sizeof(value));
    for (uint32_t i = 0; i < gate.ports_count; i++) {
        open_gate(gate.ports[i]);
    }
    gate.loose = false;
    gate.held = true;
    pthread_cond_broadcast(&gate.entered);
    pthread_mutex_unlock(&gate.lock);
    wait_event();
    pthread_mutex_lock(&gate.lock);
    gate.loose = true;
    for (uint32_t i = 0; i < gate.ports_count; i++) {
        close_gate(gate.ports[i]);
    }
    value = 1;
    got = write(gate.event_fd, &value, sizeof(value));
    MILL_UNUSED(got); /* an eventfd that is drained takes a 1 */
}

static void wake(void)
{
    const uint64_t one = 1;
    ssize_t put = gate.installed ? write(gate.wake_fd, &one, sizeof(one)) : 0;
    MILL_UNUSED(put); /* full means readable, which is all we want */
}

int mill_gate_install(struct mill_report *report)
{
    struct timespec limit;
    int code = 0;
    if (gate.installed) {
        return 0;
    }
    gate.event_fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
    gate.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    gate.handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
    if (gate.event_fd < 0 || gate.wake_fd < 0 || gate.handle == NULL ||
        rte_intr_fd_set(gate.handle, gate.event_fd) != 0 ||
        rte_intr_type_set(gate.handle, RTE_INTR_HANDLE_EXT) != 0 ||
        rte_intr_callback_register(gate.handle, hold, NULL) < 0) {
        return mill_fail(report, -ENOMEM, "the driver's interrupt thread cannot be reached");
    }
    gate.installed = true;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += HELD_S;
    pthread_mutex_lock(&gate.lock);
    while (!gate.held && code == 0) {
        code = pthread_cond_timedwait(&gate.entered, &gate.lock, &limit);
    }
    pthread_mutex_unlock(&gate.lock);
    return code == 0
               ? 0
               : mill_fail(report, -ETIMEDOUT,
                           "the driver's interrupt thread did not answer within %d s", HELD_S);
}

void mill_gate_stop(void)
{
    if (atomic_load_explicit(&gate.ended, memory_order_relaxed)) {
        return;
    }
    /* For ever: a thread that is loose has come in by now, and none goes out again. */
    mill_gate_lock();
    atomic_store_explicit(&gate.ended, true, memory_order_release);
    wake();
}

void mill_gate_lock(void)
{
    if (gate.installed) {
        pthread_mutex_lock(&gate.lock);
    }
}

void mill_gate_unlock(void)
{
    if (gate.installed) {
        pthread_mutex_unlock(&gate.lock);
    }
}

int mill_gate_add(struct mill_port *port)
{
    if (gate.ports_count == PORTS_MAX) {
        return -ENFILE;
    }
    for (uint16_t i = 0; i < port->queues_count; i++) {
        port->queues[i].gated = true;
    }
    atomic_store_explicit(&port->gate, MILL_GATE_DOWN, memory_order_seq_cst);
    gate.ports[gate.ports_count++] = port;
    wake();
    return 0;
}

void mill_gate_remove(struct mill_port *port)
{
    for (uint32_t i = 0; i < gate.ports_count; i++) {
        if (gate.ports[i] == port) {
            gate.ports[i] = gate.ports[--gate.ports_count];
            return;
        }
    }
}
