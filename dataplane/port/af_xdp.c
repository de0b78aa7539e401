/* SPDX-License-Identifier: Apache-2.0 */
/* What AF_XDP needs beyond the driver: the interface belongs to the kernel, which keeps address,
 * ARP, ICMP and every other port, and our program picks the broker's packets out. So the port
 * checks the interface before (address, MTU, queues, whose program), finds the driver's sockets to
 * sleep on and their statistics, and fills the program's maps. Main thread, in the interface's
 * namespace; start-up and slow path only.
 *
 *   interface --XDP program--> fill ring, receive ring --> driver --> net
 *                  \--> kernel                (one socket per queue, memory: the receive pool)
 */
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_xdp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "dataplane/port/port_internal.h"

enum {
    SOCKETS_SCAN_MAX = 4096, /* descriptors looked at; ours are opened at start and low */
};

/* --- the interface ------------------------------------------------------------------------------
 */

static int interface_find(struct mill_port *port, struct mill_report *report)
{
    struct mill_port_xdp *xdp = &port->xdp;
    const char *netns = port->options.netns;
    if (!mill_port_argument(port->options.device, "iface", xdp->iface, sizeof(xdp->iface)) ||
        xdp->iface[0] == '\0') {
        return mill_fail(report, -EINVAL,
                         "%s names no interface of at most %d characters; write "
                         "net_af_xdp0,iface=eth0",
                         port->options.device, IFNAMSIZ - 1);
    }
    port->ifindex = if_nametoindex(xdp->iface);
    if (port->ifindex == 0) {
        return mill_fail(report, -ENODEV, "no interface %s%s%s; ip link show lists them",
                         xdp->iface, netns != NULL ? " in namespace " : "",
                         netns != NULL ? netns : "");
    }
    return 0;
}

/* One Millrace per interface: the name is held as long as this process lives, in the interface's
 * namespace, and leaves no file. Only so a program that is attached is known to be left over. */
static int interface_lock(struct mill_port *port, struct mill_report *report)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct mill_port_xdp *xdp = &port->xdp;
    int length =
        snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "millrace-port-%u", port->ifindex);
    xdp->lock_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (xdp->lock_fd < 0) {
        return mill_fail(report, -errno, "no socket: %s", strerror(errno));
    }
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(xdp->lock_fd, (struct sockaddr *)&name, bytes) < 0) {
        return mill_fail(report, -errno,
                         "%s is in use by another Millrace; stop it, or give each its own "
                         "interface",
                         xdp->iface);
    }
    return 0;
}

/* The kernel answers ARP, so an address that it does not have is never reached. */
static int interface_address(const struct mill_port *port, struct mill_report *report)
{
    const struct mill_port_xdp *xdp = &port->xdp;
    uint32_t wanted = port->options.address;
    struct ifaddrs *all = NULL;
    bool found = wanted == 0;
    if (getifaddrs(&all) < 0) {
        return mill_fail(report, -errno, "the addresses of %s: %s", xdp->iface, strerror(errno));
    }
    for (const struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next) {
        struct sockaddr_in address;
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET ||
            strcmp(at->ifa_name, xdp->iface) != 0) {
            continue;
        }
        memcpy(&address, at->ifa_addr, sizeof(address));
        found = ntohl(address.sin_addr.s_addr) == wanted;
    }
    freeifaddrs(all);
    return found
               ? 0
               : mill_fail(report, -EADDRNOTAVAIL,
                           "%u.%u.%u.%u is not an address of %s, and the kernel answers ARP "
                           "there; ip addr add %u.%u.%u.%u/%u dev %s, or change dpdk.port.%s."
                           "address",
                           wanted >> 24, wanted >> 16 & 255, wanted >> 8 & 255, wanted & 255,
                           xdp->iface, wanted >> 24, wanted >> 16 & 255, wanted >> 8 & 255,
                           wanted & 255, port->options.prefix_bits, xdp->iface, port->options.name);
}

/* The driver would set the interface's MTU to ours without asking; it is not ours to change. */
static int interface_mtu(const struct mill_port *port, struct mill_report *report)
{
    const struct mill_port_xdp *xdp = &port->xdp;
    struct ifreq request = {0};
    memcpy(request.ifr_name, xdp->iface, sizeof(xdp->iface));
    if (ioctl(xdp->lock_fd, SIOCGIFMTU, &request) < 0) {
        return mill_fail(report, -errno, "the mtu of %s: %s", xdp->iface, strerror(errno));
    }
    if (port->mtu > MILL_PORT_XDP_MTU_MAX) {
        return mill_fail(report, -EINVAL,
                         "mtu %u: AF_XDP carries at most %d, a frame lies in one page; set "
                         "dpdk.port.%s.mtu, or use a PCI port",
                         port->mtu, MILL_PORT_XDP_MTU_MAX, port->options.name);
    }
    if (request.ifr_mtu < port->mtu) {
        return mill_fail(report, -EINVAL,
                         "mtu %u is more than %s has (%d); ip link set dev %s mtu %u, or set "
                         "dpdk.port.%s.mtu",
                         port->mtu, xdp->iface, request.ifr_mtu, xdp->iface, port->mtu,
                         port->options.name);
    }
    return 0;
}

static int interface_queues(struct mill_port *port, struct mill_report *report)
{
    struct mill_port_xdp *xdp = &port->xdp;
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    struct ifreq request = {0};
    memcpy(request.ifr_name, xdp->iface, sizeof(xdp->iface));
    request.ifr_data = (void *)&channels;
    uint32_t count = 1; /* of a card that cannot tell */
    uint32_t usable = 1;
    if (ioctl(xdp->lock_fd, SIOCETHTOOL, &request) == 0) {
        count = MILL_MAX(channels.combined_count + channels.rx_count, 1u);
        /* The driver takes queues apart for receiving and sending (veth) as one. */
        usable = channels.max_combined > 0 ? channels.combined_count : 1;
    }
    /* Fewer queues than cores: frames are dealt out behind them. */
    uint32_t used = MILL_MIN(usable, (uint32_t)port->queues_count);
    char argument[8];
    if (port->options.queues_max > 0) {
        used = MILL_MIN(used, (uint32_t)port->options.queues_max);
    }
    if (mill_port_argument(port->options.device, "queue_count", argument, sizeof(argument))) {
        uint32_t wanted = (uint32_t)strtoul(argument, NULL, 10);
        if (wanted < 1 || wanted > usable || wanted > port->queues_count) {
            return mill_fail(report, -EINVAL,
                             "queue_count=%s: %s has %u queues and there are %u cores; ethtool -L "
                             "%s combined N, or leave queue_count out",
                             argument, xdp->iface, usable, port->queues_count, xdp->iface);
        }
        used = wanted;
    }
    port->options.queues_max = (uint16_t)used;
    if (count > used) {
        mill_port_remark(port,
                         "%s has %u receive queues and %u are served: what arrives on others is "
                         "not seen; ethtool -L %s %s %u, or ethtool -X %s equal %u",
                         xdp->iface, count, used, xdp->iface,
                         channels.max_combined > 0 ? "combined" : "rx", used, xdp->iface, used);
    }
    return 0;
}

/* A list of ports and ranges, as ip_local_reserved_ports has it. ret: whether all of a range is in
 * it; ranges that touch are one line of the kernel's, as it merges them. */
static bool ports_reserved(const char *list, uint32_t first, uint32_t last)
{
    while (*list != '\0') {
        char *end;
        unsigned long from = strtoul(list, &end, 10);
        unsigned long to = *end == '-' ? strtoul(end + 1, &end, 10) : from;
        if (end == list) {
            return false;
        }
        if (from <= first && last <= to) {
            return true;
        }
        list = *end == ',' ? end + 1 : end;
        list = *list == '\n' ? list + 1 : list;
    }
    return false;
}

static bool setting_read(const char *path, char *text, size_t size_bytes)
{
    FILE *file = fopen(path, "re");
    bool got = file != NULL && fgets(text, (int)size_bytes, file) != NULL;
    if (file != NULL) {
        (void)fclose(file);
    }
    return got;
}

/* Answers to the source ports of our connections come to us, so the kernel must choose none of them
 * for its own. Its settings are the operator's: they are looked at, not changed. */
static int own_ports_free(const struct mill_port *port, struct mill_report *report)
{
    enum {
        LIST_BYTES = 2048, /* a longer list is seen in part, and refused with the remedy */
    };
    uint32_t first = port->options.own_port_first;
    uint32_t last = port->options.own_port_last;
    char range[64];
    char reserved[LIST_BYTES];
    unsigned long low = 0;
    unsigned long high = UINT16_MAX;
#ifdef MILL_MUTANT_PORT_OWN_PORTS_UNCHECKED
    last = 0;
#endif
    if (last == 0) {
        return 0;
    }
    if (setting_read("/proc/sys/net/ipv4/ip_local_port_range", range, sizeof(range))) {
        char *end;
        low = strtoul(range, &end, 10);
        high = strtoul(end, NULL, 10);
    }
    bool chosen = first <= high && low <= last;
    if (!chosen ||
        (setting_read("/proc/sys/net/ipv4/ip_local_reserved_ports", reserved, sizeof(reserved)) &&
         ports_reserved(reserved, first, last))) {
        return 0;
    }
    return mill_fail(report, -EADDRINUSE,
                     "the kernel chooses source ports from %lu to %lu, and %u to %u are for "
                     "connections through %s; sysctl -w net.ipv4.ip_local_reserved_ports=%u-%u%s%s",
                     low, high, first, last, port->xdp.iface, first, last,
                     port->options.netns != NULL ? " in namespace " : "",
                     port->options.netns != NULL ? port->options.netns : "");
}

static bool is_xdp_socket(int fd)
{
    int domain = 0;
    socklen_t bytes = sizeof(domain);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_XDP;
}

/* AF_XDP sockets of other ports of this process. */
static void sockets_note(struct mill_port *port)
{
    struct mill_port_xdp *xdp = &port->xdp;
    for (int fd = 0; fd < SOCKETS_SCAN_MAX; fd++) {
        if (xdp->before_count < MILL_COUNT_OF(xdp->before) && is_xdp_socket(fd)) {
            xdp->before[xdp->before_count++] = fd;
        }
    }
}

int mill_port_xdp_prepare(struct mill_port *port, struct mill_report *report)
{
    static const uint8_t none[6] = {0};
    if (memcmp(port->options.mac, none, sizeof(none)) != 0) {
        return mill_fail(report, -EINVAL,
                         "the kernel keeps the interface's address; remove dpdk.port.%s.mac",
                         port->options.name);
    }
    int code = interface_find(port, report);
    code = code < 0 ? code : interface_lock(port, report);
    code = code < 0 ? code : interface_address(port, report);
    code = code < 0 ? code : interface_mtu(port, report);
    code = code < 0 ? code : interface_queues(port, report);
    code = code < 0 ? code : own_ports_free(port, report);
    code = code < 0 ? code : mill_port_neighbours_open(&port->xdp, report);
    code = code < 0 ? code : mill_steer_clear(port->ifindex, port->xdp.iface, report);
    if (code == 0) {
        sockets_note(port);
    }
    return code;
}

/* --- the driver ---------------------------------------------------------------------------------
 */

/* The program's object: beside the installed program, or in the build tree. */
static int program_path(char *path, size_t size_bytes, struct mill_report *report)
{
    static const char *const places[] = {"/bpf/steer.bpf.o",
                                         "/../" MILL_LIBDIR "/millrace/bpf/steer.bpf.o"};
    char self[MILL_PORT_PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0) {
        return mill_fail(report, -errno, "/proc/self/exe: %s", strerror(errno));
    }
    self[length] = '\0';
    /* Tests lie deeper in the build tree than programs do. */
    for (char *end = strrchr(self, '/'); end != NULL && end != self; end = strrchr(self, '/')) {
        *end = '\0';
        for (size_t i = 0; i < MILL_COUNT_OF(places); i++) {
            int written = snprintf(path, size_bytes, "%s%s", self, places[i]);
            if (written > 0 && (size_t)written < size_bytes && access(path, R_OK) == 0) {
                return 0;
            }
        }
    }
    return mill_fail(report, -ENOENT,
                     "steer.bpf.o lies neither beside the program nor in " MILL_LIBDIR
                     "/millrace/bpf; install again, or give xdp_prog=FILE");
}

/* Cut at the end of args, which the caller sees by its being full. */
static void argument_add(char *args, size_t size_bytes, const char *text)
{
    strncat(args, text, size_bytes - strlen(args) - 1);
}

int mill_port_xdp_arguments(struct mill_port *port, char *args, size_t size_bytes,
                            struct mill_report *report)
{
    char path[MILL_PORT_PATH_BYTES];
    char text[MILL_PORT_PATH_BYTES + 64];
    char value[16];
    if (strstr(args, "xdp_prog=") == NULL) {
        int code = program_path(path, sizeof(path), report);
        if (code < 0) {
            return code;
        }
        snprintf(text, sizeof(text), ",xdp_prog=%s", path);
        argument_add(args, size_bytes, text);
    }
    if (!mill_port_argument(port->options.device, "queue_count", value, sizeof(value))) {
        snprintf(text, sizeof(text), ",queue_count=%u", port->options.queues_max);
        argument_add(args, size_bytes, text);
    }
    /* With the driver's default of 64 a sleeping core sees a frame only when the next one comes;
     * without any, a zero-copy card that starves may stall a core that polls. */
    if (!mill_port_argument(port->options.device, "busy_budget", value, sizeof(value))) {
        argument_add(args, size_bytes, port->options.busy ? ",busy_budget=64" : ",busy_budget=0");
    }
    if (strlen(args) + 1 == size_bytes) {
        return mill_fail(report, -ENAMETOOLONG,
                         "port %s: the arguments of its device are too long with what is added: "
                         "shorten dpdk.port.%s.device",
                         port->options.name, port->options.name);
    }
    return 0;
}

/* The driver keeps its sockets to itself. Queues are set up one after the other by one thread, so
 * the one that was not there before is this queue's. */
void mill_port_xdp_socket(struct mill_port *port, uint16_t queue)
{
    struct mill_port_xdp *xdp = &port->xdp;
    for (int fd = 0; fd < SOCKETS_SCAN_MAX; fd++) {
        bool known = !is_xdp_socket(fd);
        for (uint32_t i = 0; i < xdp->before_count && !known; i++) {
            known = xdp->before[i] == fd;
        }
        if (!known && xdp->before_count < MILL_COUNT_OF(xdp->before)) {
            port->queues[queue].xdp_fd = fd;
            xdp->before[xdp->before_count++] = fd;
            return;
        }
    }
}

int mill_port_xdp_explain(const struct mill_port *port, uint16_t queue, struct mill_report *report)
{
    const char *log = mill_eal_log_since();
    if (strstr(log, "create xsk socket") != NULL) {
        return mill_fail(report, -EAGAIN,
                         "queue %u of %s has an AF_XDP socket of another process, or its driver "
                         "cannot have one; stop the other, or use a kernel listener",
                         queue, port->xdp.iface);
    }
    if (strstr(log, "create umem") != NULL) {
        return mill_fail(report, -ENOMEM,
                         "the kernel takes no %u buffers for %s; raise the limit of locked memory "
                         "(ulimit -l unlimited, LimitMEMLOCK=infinity), or start as root",
                         port->queues[queue].rx_pool->size, port->xdp.iface);
    }
    return mill_fail(report, -EIO, "queue %u of %s: %s", queue, port->xdp.iface, log);
}

int mill_port_xdp_started(struct mill_port *port, struct mill_report *report)
{
    struct mill_port_xdp *xdp = &port->xdp;
    const struct mill_steer_config config = {
        .syn_per_second = port->options.syn_rate,
        .syn_burst = port->options.syn_burst,
        .address = port->options.own_port_last > 0 ? htonl(port->options.address) : 0,
        .port_first = port->options.own_port_first,
#ifndef MILL_MUTANT_PORT_OWN_PORTS_UNSTEERED
        .port_last = port->options.own_port_last,
#endif
    };
    int code = mill_steer_open(port->ifindex, xdp->iface, &xdp->steer, report);
    if (code < 0) {
        return code;
    }
    if (xdp->steer.generic) {
        mill_port_remark(port,
                         "the driver of %s has no XDP of its own: every frame takes the kernel's "
                         "slow way, and local peers leave checksums blank; use another card or a "
                         "kernel listener",
                         xdp->iface);
    }
    return mill_steer_configure(&xdp->steer, &config, report);
}

void mill_port_xdp_close(struct mill_port *port)
{
    struct mill_report nobody;
    for (uint16_t i = 0; i < port->queues_count; i++) {
        int fd = port->queues[i].xdp_fd;
        if (fd > 0 && is_xdp_socket(fd)) {
            close(fd); /* 22.11 and libxdp 1.3 each leave it to the other */
        }
        port->queues[i].xdp_fd = 0;
    }
    if (port->xdp.half_built) {
        int code = mill_steer_clear(port->ifindex, port->xdp.iface, &nobody);
        MILL_UNUSED(code); /* left over, as after a kill: the next start takes it off */
    }
    mill_steer_close(&port->xdp.steer);
    if (port->xdp.neighbour_fd > 0) {
        close(port->xdp.neighbour_fd);
        port->xdp.neighbour_fd = 0;
    }
    if (port->xdp.lock_fd > 0) {
        close(port->xdp.lock_fd);
        port->xdp.lock_fd = 0;
    }
}

/* --- counters -----------------------------------------------------------------------------------
 */

void mill_port_xdp_ask(struct mill_port *port)
{
    uint64_t missed = 0;
    uint64_t ring_full = 0;
    uint64_t fill_empty = 0;
    for (uint16_t i = 0; i < port->queues_count; i++) {
        struct xdp_statistics statistics;
        socklen_t bytes = sizeof(statistics);
        int fd = port->queues[i].xdp_fd;
        if (fd <= 0 || getsockopt(fd, SOL_XDP, XDP_STATISTICS, &statistics, &bytes) < 0) {
            continue;
        }
        missed += statistics.rx_dropped + statistics.rx_invalid_descs;
        ring_full += statistics.rx_ring_full;
        fill_empty += statistics.rx_fill_ring_empty_descs;
    }
    mill_port_keep(&port->rx_missed, missed + ring_full);
    mill_port_keep(&port->rx_nombuf, fill_empty);
    uint64_t counts[MILL_STEER_REASON_COUNT];
    if (mill_steer_counters(&port->xdp.steer, counts) == 0) {
        for (uint32_t i = 0; i < MILL_STEER_REASON_COUNT; i++) {
            mill_port_keep(&port->xdp.counts[i], counts[i]);
        }
    }
}
