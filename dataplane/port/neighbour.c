/* SPDX-License-Identifier: Apache-2.0 */
/* Where the kernel keeps the interface it also keeps the neighbours: their MAC addresses for
 * connections that we open are asked from it by netlink (rtnetlink(7)), before the first SYN and on
 * a thread that may wait. A core only reads what was found: no system call, no lock.
 *
 *   mill_port_neighbour: "use this one" (NTF_USE: the kernel sends ARP) --> RTM_GETNEIGH until
 * known
 *                        --> table --release/acquire--> link.neighbour on the cores
 */
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "base/clock.h"
#include "dataplane/port/port_internal.h"

enum {
    LOOK_NS = 5000000, /* between two looks while the kernel asks */
    ANSWER_BYTES = 4096,
    ANSWERS_MAX =
        16, /* datagrams looked at for ours: others are of an earlier, given up question */
    /* States in which the kernel itself would send there. */
    USABLE = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY,
};

/* --- the cores' side ----------------------------------------------------------------------------
 */

static struct mill_port_neighbour_entry *find(struct mill_port_xdp *xdp, uint32_t address)
{
    for (uint32_t i = 0; i < MILL_PORT_NEIGHBOURS_MAX; i++) {
        struct mill_port_neighbour_entry *entry = &xdp->neighbours[i];
        if (atomic_load_explicit(&entry->address, memory_order_acquire) == address) {
            return entry;
        }
    }
    return NULL;
}

int mill_port_link_neighbour(void *link, uint32_t address, uint8_t ret_mac[6])
{
    const struct mill_port_queue *queue = link;
    struct mill_port_neighbour_entry *entry = find(&queue->port->xdp, address);
    if (entry == NULL) {
        return -EAGAIN;
    }
    uint64_t mac = atomic_load_explicit(&entry->mac, memory_order_relaxed);
    for (uint32_t i = 0; i < 6; i++) {
        ret_mac[i] = (uint8_t)(mac >> (40 - 8 * i));
    }
    return 0;
}

/* One word each, the address last: a reader that sees the address sees a MAC of it. */
static int keep(struct mill_port_xdp *xdp, uint32_t address, const uint8_t mac[6])
{
    struct mill_port_neighbour_entry *entry = find(xdp, address);
    entry = entry != NULL ? entry : find(xdp, 0);
    uint64_t word = 0;
    if (entry == NULL) {
        return -ENOSPC;
    }
    for (uint32_t i = 0; i < 6; i++) {
        word = word << 8 | mac[i];
    }
    atomic_store_explicit(&entry->mac, word, memory_order_relaxed);
    atomic_store_explicit(&entry->address, address, memory_order_release);
    return 0;
}

/* --- asking the kernel --------------------------------------------------------------------------
 */

struct question {
    struct nlmsghdr head;
    struct ndmsg neighbour;
    struct rtattr address_head;
    uint8_t address[4];
};

/* ret: 0, -errno of sending. */
static int send_question(const struct mill_port_xdp *xdp, uint32_t ifindex, uint32_t address,
                         uint16_t type, uint16_t flags, uint32_t number)
{
    struct question question = {
        .head = {.nlmsg_len = sizeof(question),
                 .nlmsg_type = type,
                 .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
                 .nlmsg_seq = number},
        .neighbour = {.ndm_family = AF_INET, .ndm_ifindex = (int)ifindex},
        .address_head = {.rta_len = RTA_LENGTH(4), .rta_type = NDA_DST},
    };
    if (type == RTM_NEWNEIGH) {
        question.neighbour.ndm_state = NUD_NONE;
        question.neighbour.ndm_flags = NTF_USE;
    }
    mill_store_be32(question.address, address);
    return send(xdp->neighbour_fd, &question, sizeof(question), 0) == (ssize_t)sizeof(question)
               ? 0
               : -errno;
}

/* What the kernel says of a neighbour. ret: 0, -EAGAIN it does not know (yet). */
static int read_neighbour(const struct nlmsghdr *head, uint8_t ret_mac[6])
{
    const struct ndmsg *neighbour = NLMSG_DATA(head);
    const uint8_t *attributes = (const uint8_t *)NLMSG_DATA(head);
    uint32_t size_bytes = (uint32_t)NLMSG_PAYLOAD(head, 0);
    uint32_t at = NLMSG_ALIGN(sizeof(*neighbour));
    if (size_bytes < at || (neighbour->ndm_state & USABLE) == 0) {
        return -EAGAIN;
    }
    struct rtattr attribute;
    while (at + sizeof(attribute) <= size_bytes) {
        memcpy(&attribute, attributes + at, sizeof(attribute));
        if (attribute.rta_len < sizeof(attribute) || attribute.rta_len > size_bytes - at) {
            break;
        }
        if (attribute.rta_type == NDA_LLADDR && attribute.rta_len == RTA_LENGTH(6)) {
            memcpy(ret_mac, attributes + at + RTA_LENGTH(0), 6);
            return 0;
        }
        at += RTA_ALIGN((uint32_t)attribute.rta_len);
    }
    return -EAGAIN; /* an interface without addresses of this kind */
}

/* Waits for the answer to a question. ret: 0 (ret_mac is set when it was asked for one), or the
 * kernel's -errno; a neighbour that it does not have is -ENOENT. */
static int take_answer(const struct mill_port_xdp *xdp, uint32_t number, uint8_t *ret_mac)
{
    union {
        struct nlmsghdr head;
        uint8_t bytes[ANSWER_BYTES];
    } answer;
    for (uint32_t i = 0; i < ANSWERS_MAX; i++) {
        ssize_t size = recv(xdp->neighbour_fd, &answer, sizeof(answer), 0);
        if (size < 0) {
            return -errno;
        }
        if (!NLMSG_OK(&answer.head, (size_t)size) || answer.head.nlmsg_seq != number) {
            continue;
        }
        if (answer.head.nlmsg_type == NLMSG_ERROR) {
            const struct nlmsgerr *error = NLMSG_DATA(&answer.head);
            return error->error;
        }
        return answer.head.nlmsg_type == RTM_NEWNEIGH && ret_mac != NULL
                   ? read_neighbour(&answer.head, ret_mac)
                   : -EPROTO;
    }
    return -EPROTO;
}

static int look_up(struct mill_port *port, uint32_t address, uint8_t ret_mac[6])
{
    struct mill_port_xdp *xdp = &port->xdp;
    uint32_t number = ++xdp->neighbour_questions;
    int code = send_question(xdp, port->ifindex, address, RTM_GETNEIGH, 0, number);
    return code < 0 ? code : take_answer(xdp, number, ret_mac);
}

/* Has the kernel ask the link; it also keeps asking for as long as it needs to. */
static int make_ask(struct mill_port *port, uint32_t address)
{
    struct mill_port_xdp *xdp = &port->xdp;
    uint32_t number = ++xdp->neighbour_questions;
    int code =
        send_question(xdp, port->ifindex, address, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_ACK, number);
    return code < 0 ? code : take_answer(xdp, number, NULL);
}

static int resolve(struct mill_port *port, uint32_t address, uint64_t timeout_ns, uint8_t mac[6])
{
    const struct timespec gap = {.tv_nsec = LOOK_NS};
    uint64_t until_ns = mill_now_read().mono_ns + timeout_ns;
    int code = look_up(port, address, mac);
    if (code == -ENOENT || code == -EAGAIN) {
#ifdef MILL_MUTANT_PORT_NEIGHBOUR_UNASKED
        address = 0;
#endif
        int asked = make_ask(port, address);
        if (asked < 0) {
            return asked;
        }
    }
    while (code == -ENOENT || code == -EAGAIN) {
        if (mill_now_read().mono_ns >= until_ns) {
            return -EHOSTUNREACH;
        }
        nanosleep(&gap, NULL);
        code = look_up(port, address, mac);
    }
    return code;
}

int mill_port_neighbour(struct mill_port *port, uint32_t address, uint64_t timeout_ns,
                        struct mill_report *report)
{
    uint8_t mac[6];
    if (!port->driver->kernel_keeps) {
        return 0; /* net asks by itself */
    }
    int code = resolve(port, address, timeout_ns, mac);
    if (code == 0) {
        code = keep(&port->xdp, address, mac);
    }
    if (code < 0) {
        return mill_fail(report, code,
                         "dpdk port %s: the kernel finds no neighbour %u.%u.%u.%u on %s (%s); ip "
                         "neigh show dev %s",
                         port->options.name, address >> 24, address >> 16 & 255, address >> 8 & 255,
                         address & 255, port->xdp.iface, strerror(-code), port->xdp.iface);
    }
    return 0;
}

int mill_port_neighbours_open(struct mill_port_xdp *xdp, struct mill_report *report)
{
    /* The kernel answers within the call; this bounds a fault. */
    const struct timeval limit = {.tv_sec = 1};
    xdp->neighbour_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (xdp->neighbour_fd < 0 ||
        setsockopt(xdp->neighbour_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0) {
        return mill_fail(report, -errno, "no netlink socket: %s", strerror(errno));
    }
    return 0;
}
