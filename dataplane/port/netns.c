/* SPDX-License-Identifier: Apache-2.0 */
/* A network namespace for the time in which a virtual device is made: descriptors opened inside
 * stay there when the thread goes back. Start-up only, on the thread that opens the port. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/port/port_internal.h"

int mill_port_netns_enter(const char *netns, struct mill_report *report)
{
    char path[256];
    int length = snprintf(path, sizeof(path), "%s%s",
                          strchr(netns, '/') == NULL ? "/run/netns/" : "", netns);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return mill_fail(report, -ENAMETOOLONG, "dpdk.netns is longer than %zu characters",
                         sizeof(path));
    }
    int previous = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (previous < 0) {
        return mill_fail(report, -errno, "/proc/thread-self/ns/net: %s", strerror(errno));
    }
    int wanted = open(path, O_RDONLY | O_CLOEXEC);
    if (wanted < 0) {
        int code = -errno;
        close(previous);
        return mill_fail(report, code,
                         "network namespace %s (dpdk.netns): %s; make it with ip netns add %s",
                         netns, strerror(-code), netns);
    }
    int code = setns(wanted, CLONE_NEWNET) < 0 ? -errno : 0;
    close(wanted);
    if (code < 0) {
        close(previous);
        return mill_fail(report, code,
                         "network namespace %s (dpdk.netns): %s; entering it needs CAP_SYS_ADMIN: "
                         "start as root",
                         netns, strerror(-code));
    }
    return previous;
}

void mill_port_netns_leave(int previous_fd)
{
    /* Going back to a namespace that a descriptor holds open cannot fail for who could leave it;
     * staying would silently put every later socket into the wrong network. */
    MILL_ASSERT_EQ(setns(previous_fd, CLONE_NEWNET), 0);
    close(previous_fd);
}
