/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a software card between two processes: frames arrive whole both ways, a peer that is killed
 * and comes back is noticed and served again, counters never fall, no core is in shared memory when
 * the driver unmaps it, and a socket that cannot be had is named. Method: this process holds one
 * end; the other end is this program again, started with its role, that sends back what it gets. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataplane/port/port_internal.h"
#include "tests/unit/port/support.h"

enum {
    KILLS = 3,
    LOOK_US = 200,
    LIMIT_S = 30, /* for what takes milliseconds on a machine of our own */
    FRAME_MAX = 1600,
    SUM_AT = TEST_ETH_BYTES + 20 + 16, /* of TCP */
    SUM_BYTES = 2,
};

/* Name that the other end's process takes when its port is open. */
#define READY "memif-ready"

static struct test_world world;
static char folder[64];
static char path[96];
static char device[160];

static const uint8_t peer_mac[6] = {2, 0, 0, 0, 0, 9};

/* --- the other end ---------------------------------------------------------------------------- */

/* Sends each frame's payload and TCP sum back, until killed. */
static int echo(const char *with)
{
    struct mill_report report = {.text = ""};
    struct mill_port *port = NULL;
    struct mill_port_options options = test_options(with);
    char prefix[32];
    options.node_id = 2;
    snprintf(prefix, sizeof(prefix), "mill-memif-%d", (int)getpid());
    test_world_init(&world);
    if (test_eal_start(prefix) < 0 ||
        mill_port_open(&options, &world.arena, world.loans_of, &port, &report) < 0) {
        fprintf(stderr, "%s\n", report.text);
        return 1;
    }
    const struct mill_link *link = mill_port_link(port, 0);
    prctl(PR_SET_NAME, READY);
    for (;;) {
        struct mill_buf *in = NULL;
        uint8_t got[FRAME_MAX];
        if (link->ops->receive(link->context, &in, 1) == 0) {
            if (getppid() == 1) {
                return 0; /* the test is gone */
            }
            usleep(LOOK_US);
            continue;
        }
        uint32_t size = test_take(in, got, sizeof(got) - SUM_BYTES, NULL);
        memcpy(got + size, got + SUM_AT, SUM_BYTES);
        struct mill_frame *frame = test_tcp_frame(link, got + 6, got + TEST_HEADERS_BYTES,
                                                  size + SUM_BYTES - TEST_HEADERS_BYTES, NULL, 0);
        if (frame == NULL || link->ops->send(link->context, &frame, 1) != 1) {
            return 2;
        }
    }
}

static pid_t other; /* 0: none runs */

static pid_t echo_start(const char *with)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_port_memif", with, (char *)NULL);
        _exit(127);
    }
    other = pid;
    return pid;
}

/* Until the other end has its port. */
static void echo_ready_wait(pid_t pid)
{
    char comm[64];
    char line[32] = "";
    uint64_t end = mill_now_read().mono_ns + LIMIT_S * MILL_NS_PER_S;
    snprintf(comm, sizeof(comm), "/proc/%d/comm", (int)pid);
    while (strcmp(line, READY "\n") != 0) {
        FILE *file = fopen(comm, "re");
        assert_non_null(file);
        assert_non_null(fgets(line, sizeof(line), file));
        fclose(file);
        assert_true(mill_now_read().mono_ns < end);
        usleep(LOOK_US);
    }
}

static void echo_kill(pid_t pid)
{
    other = 0;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* --- this end --------------------------------------------------------------------------------- */

/* A test that fails leaves its port and the other end to leave_nothing, and the next one is its
 * own. */
static struct mill_port *opened;

static void close_port(struct mill_port *port)
{
    opened = NULL;
    mill_port_close(port);
}

static int leave_nothing(void **state)
{
    MILL_UNUSED(state);
    if (other > 0) {
        (void)kill(other, SIGKILL);
        (void)waitpid(other, NULL, 0);
        other = 0;
    }
    close_port(opened);
    (void)unlink(path);
    return 0;
}

static struct mill_port *open_port(const struct mill_port_options *options)
{
    struct mill_report report = {.text = ""};
    struct mill_port *port = NULL;
    int code = mill_port_open(options, &world.arena, world.loans_of, &port, &report);
    if (code < 0) {
        print_error("%s\n", report.text);
    }
    assert_int_equal(code, 0);
    opened = port;
    return port;
}

static void refused(const struct mill_port_options *options, int code, const char *reason)
{
    struct mill_report report = {.text = ""};
    struct mill_port *port = NULL;
    int got = mill_port_open(options, &world.arena, world.loans_of, &port, &report);
    if (got != code || strstr(report.text, reason) == NULL) {
        print_error("%d: %s\n", got, report.text);
    }
    assert_int_equal(got, code);
    assert_non_null(strstr(report.text, reason));
}

static void link_wait(struct mill_port *port, bool up)
{
    struct mill_port_info info;
    uint64_t end = mill_now_read().mono_ns + LIMIT_S * MILL_NS_PER_S;
    do {
        mill_port_info(port, &info);
        usleep(LOOK_US);
    } while (info.link_up != up && mill_now_read().mono_ns < end);
    assert_int_equal(info.link_up, up);
}

static uint32_t receive_wait(const struct mill_link *link, uint8_t *ret_bytes)
{
    struct mill_buf *in = NULL;
    uint64_t end = mill_now_read().mono_ns + LIMIT_S * MILL_NS_PER_S;
    while (link->ops->receive(link->context, &in, 1) == 0) {
        assert_true(mill_now_read().mono_ns < end);
    }
    return test_take(in, ret_bytes, FRAME_MAX, NULL);
}

/* One frame there and back: references from the arena, odd pieces too. */
static void round_trip(const struct mill_link *link, uint32_t number)
{
    uint8_t wanted[FRAME_MAX];
    uint8_t got[FRAME_MAX];
    uint32_t inlined = number;
    struct mill_ref pieces[] = {
        test_ref(number * 7, 1 + number % 700),
        test_ref(65536 - number % 50, 100 + number % 600),
    };
    struct mill_frame *frame =
        test_tcp_frame(link, peer_mac, &inlined, sizeof(inlined), pieces, MILL_COUNT_OF(pieces));
    uint32_t size = test_payload(&world, &inlined, sizeof(inlined), pieces, 2, wanted);
    assert_non_null(frame);
    assert_int_equal(link->ops->send(link->context, &frame, 1), 1);
    size += SUM_BYTES;
    assert_int_equal(receive_wait(link, got), TEST_HEADERS_BYTES + size);
    assert_int_equal(world.loans.loaned_bytes, 0);
    assert_true(test_sums_right(got, TEST_HEADERS_BYTES + size));
    size -= SUM_BYTES;
    assert_memory_equal(got + TEST_HEADERS_BYTES, wanted, size);
}

static struct mill_port_options server_options(void)
{
    snprintf(device, sizeof(device), "net_memif0,role=server,socket=%s", path);
    return test_options(device);
}

static const char *client_device(void)
{
    static char text[160];
    snprintf(text, sizeof(text), "net_memif0,role=client,socket=%s,rsize=8", path);
    return text;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_send_without_peer_is_dropped_and_counted(void **state)
{
    struct mill_port_options options = server_options();
    struct mill_port_counters counters;
    struct mill_port_info info;
    MILL_UNUSED(state);
    struct mill_port *port = open_port(&options);
    const struct mill_link *link = mill_port_link(port, 0);
    mill_port_info(port, &info);
    assert_false(info.link_up);
    assert_string_equal(info.driver, "net_memif");
    for (int i = 0; i < 100; i++) {
        struct mill_ref ref = test_ref(0, 1000);
        struct mill_frame *frame = test_tcp_frame(link, peer_mac, NULL, 0, &ref, 1);
        struct mill_buf *in = NULL;
        assert_int_equal(link->ops->send(link->context, &frame, 1), 1);
        assert_int_equal(link->ops->receive(link->context, &in, 1), 0);
        assert_int_equal(world.loans.loaned_bytes, 0);
    }
    mill_port_tx_done(port, 0);
    mill_port_counters(port, &counters);
    assert_int_equal(counters.tx_link_down, 100);
    assert_int_equal(counters.tx_packets, 0);
    assert_int_equal(counters.link_downs, 0);
    assert_int_equal(counters.mbufs_used, 0);
    close_port(port);
}

static void test_peer_killed_and_back_frames_and_counters_go_on(void **state)
{
    struct mill_port_options options = server_options();
    struct mill_port_counters before = {0};
    MILL_UNUSED(state);
    struct mill_port *port = open_port(&options);
    const struct mill_link *link = mill_port_link(port, 0);
    for (uint32_t kills = 0; kills < KILLS; kills++) {
        struct mill_port_counters counters;
        pid_t pid = echo_start(client_device());
        link_wait(port, true);
        for (uint32_t i = 0; i < 1000; i++) {
            round_trip(link, i);
        }
        echo_kill(pid);
        link_wait(port, false);
        mill_port_counters(port, &counters);
        assert_int_equal(counters.link_downs, kills + 1);
        assert_int_equal(counters.rx_packets, before.rx_packets + 1000);
        assert_int_equal(counters.tx_packets, before.tx_packets + 1000);
        assert_true(counters.rx_bytes > before.rx_bytes && counters.tx_bytes > before.tx_bytes);
        assert_int_equal(counters.bytes_linearised, 0);
        assert_int_equal(counters.mbufs_used, 0);
        before = counters;
    }
    close_port(port);
}

/* The client waits for a server, and for the next one. */
static void test_client_connects_when_a_server_comes_and_again(void **state)
{
    char server[160];
    MILL_UNUSED(state);
    struct mill_port_options options = test_options(client_device());
    struct mill_port *port = open_port(&options);
    const struct mill_link *link = mill_port_link(port, 0);
    link_wait(port, false);
    snprintf(server, sizeof(server), "net_memif0,role=server,socket=%s", path);
    for (uint32_t kills = 0; kills < KILLS; kills++) {
        pid_t pid = echo_start(server); /* from the second on the first one's socket is there */
        link_wait(port, true);
        for (uint32_t i = 0; i < 100; i++) {
            round_trip(link, i);
        }
        echo_kill(pid);
        link_wait(port, false);
    }
    close_port(port);
    assert_int_equal(unlink(path), 0);
}

/* A peer that is gone before it was greeted, many times; then one that stays. */
static void test_peer_gone_before_the_greeting_is_survived(void **state)
{
    struct mill_port_options options = server_options();
    struct sockaddr_un address;
    MILL_UNUSED(state);
    struct mill_port *port = open_port(&options);
    socklen_t length = mill_memif_address(path, false, &address);
    for (int i = 0; i < 300; i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
        close(fd);
    }
    pid_t pid = echo_start(client_device());
    link_wait(port, true);
    round_trip(mill_port_link(port, 0), 1);
    echo_kill(pid);
    link_wait(port, false);
    close_port(port);
}

static uint32_t descriptors(void)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

/* The protocol sends one descriptor with a message; a peer may send more. */
static void test_relay_keeps_no_descriptor_of_a_peer(void **state)
{
    int peer[2];
    int driver[2];
    char byte = 'm';
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};
    MILL_UNUSED(state);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, peer), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, driver), 0);
    struct mill_memif_relay relay = {
        .open = true, .greeted = true, .listener = -1, .peer = peer[1], .driver = driver[1]};
    for (uint32_t count = 1; count <= 4; count++) {
        const int fds[4] = {0, 1, 2, 0};
        uint32_t before = descriptors();
        control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS,
                                        .cmsg_len = CMSG_LEN(count * sizeof(int))};
        memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
        head.msg_controllen = CMSG_SPACE(count * sizeof(int));
        assert_int_equal(sendmsg(peer[0], &head, 0), 1);
        mill_memif_relay_step(&relay);
        assert_int_equal(recv(driver[0], &byte, 1, MSG_DONTWAIT), 1);
        assert_int_equal(descriptors(), before);
    }
    mill_memif_relay_close(&relay);
    close(peer[0]);
    close(driver[0]);
}

static bool region_is_mapped(void)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        found = found || strstr(line, "memif_region") != NULL;
    }
    fclose(maps);
    return found;
}

/* What a core does between enter and leave may take as long as it likes. */
static void test_peer_killed_while_inside_memory_stays_mapped(void **state)
{
    struct mill_port_options options = server_options();
    MILL_UNUSED(state);
    struct mill_port *port = open_port(&options);
    pid_t pid = echo_start(client_device());
    link_wait(port, true);
    assert_true(region_is_mapped());
    atomic_store(&port->queues[0].inside, 1);
    echo_kill(pid);
    for (int i = 0; i < 100; i++) {
        assert_true(region_is_mapped());
        usleep(LOOK_US * 10);
    }
    atomic_store(&port->queues[0].inside, 0);
    link_wait(port, false);
    assert_false(region_is_mapped());
    close_port(port);
}

static void bind_socket(int type, bool listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, path, strlen(path));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    if (listens) {
        assert_int_equal(listen(fd, 1), 0);
        return; /* stays open until this process ends */
    }
    close(fd);
}

static void test_open_wrong_arguments_are_refused_in_words(void **state)
{
    struct mill_port_options options;
    MILL_UNUSED(state);
    static const struct {
        const char *arguments;
        int code;
        const char *reason;
    } rows[] = {
        {"", -EINVAL, "role=server or role=client"},
        {",role=master", -EINVAL, "role=server or role=client"},
        {",role=client,zero-copy=yes", -EINVAL, "copy only"},
        {",role=server,socket=memif.sock", -EINVAL, "absolute path"},
        {",role=server,socket=/no/such/folder/memif.sock", -ENOENT, "/no/such/folder"},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        snprintf(device, sizeof(device), "net_memif0%s", rows[i].arguments);
        options = test_options(device);
        refused(&options, rows[i].code, rows[i].reason);
    }
    options = server_options();
    options.mtu = 9000;
    refused(&options, -EINVAL, "carries 68 to 1500");
    options = server_options();
    options.queues = 65;
    refused(&options, -EINVAL, "65 queues");
    options = test_options("net_null0");
    options.tx_csum_off = true;
    refused(&options, -EINVAL, "only net_memif and net_ring");
}

static void test_open_server_socket_in_use_is_refused_stale_is_replaced(void **state)
{
    struct mill_port_options options = server_options();
    char text[64];
    MILL_UNUSED(state);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
    refused(&options, -EEXIST, "is no socket");
    assert_int_equal(unlink(path), 0);
    bind_socket(SOCK_SEQPACKET, false);
    close_port(open_port(&options));
    pid_t pid = echo_start(device);
    echo_ready_wait(pid);
    snprintf(text, sizeof(text), "served by process %d", (int)pid);
    refused(&options, -EADDRINUSE, text);
    echo_kill(pid);
    close_port(open_port(&options));
    bind_socket(SOCK_STREAM, true);
    refused(&options, -EPROTOTYPE, path);
    assert_int_equal(unlink(path), 0);
}

static void test_sums_off_are_left_blank(void **state)
{
    struct mill_port_options options = server_options();
    uint8_t got[FRAME_MAX];
    MILL_UNUSED(state);
    options.tx_csum_off = true;
    struct mill_port *port = open_port(&options);
    const struct mill_link *link = mill_port_link(port, 0);
    struct mill_ref ref = test_ref(0, 1000);
    pid_t pid = echo_start(client_device());
    link_wait(port, true);
    struct mill_frame *frame = test_tcp_frame(link, peer_mac, NULL, 0, &ref, 1);
    uint8_t blank[SUM_BYTES]; /* the pseudo-header's part, as net wrote it */
    memcpy(blank, frame->header + SUM_AT, SUM_BYTES);
    assert_int_equal(link->ops->send(link->context, &frame, 1), 1);
    assert_int_equal(receive_wait(link, got), TEST_HEADERS_BYTES + 1000 + SUM_BYTES);
    assert_memory_equal(got + TEST_HEADERS_BYTES + 1000, blank, SUM_BYTES);
    echo_kill(pid);
    link_wait(port, false);
    close_port(port);
}

static int setup(void **state)
{
    MILL_UNUSED(state);
    snprintf(folder, sizeof(folder), "/tmp/millrace-test-memif-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/memif.sock", folder);
    test_world_init(&world);
    return test_eal_start("mill-test-memif");
}

static int teardown(void **state)
{
    MILL_UNUSED(state);
    mill_eal_stop();
    test_world_fini(&world);
    return rmdir(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_send_without_peer_is_dropped_and_counted, leave_nothing),
        cmocka_unit_test_teardown(test_peer_killed_and_back_frames_and_counters_go_on,
                                  leave_nothing),
        cmocka_unit_test_teardown(test_client_connects_when_a_server_comes_and_again,
                                  leave_nothing),
        cmocka_unit_test_teardown(test_peer_gone_before_the_greeting_is_survived, leave_nothing),
        cmocka_unit_test_teardown(test_relay_keeps_no_descriptor_of_a_peer, leave_nothing),
        cmocka_unit_test_teardown(test_peer_killed_while_inside_memory_stays_mapped, leave_nothing),
        cmocka_unit_test_teardown(test_open_wrong_arguments_are_refused_in_words, leave_nothing),
        cmocka_unit_test_teardown(test_open_server_socket_in_use_is_refused_stale_is_replaced,
                                  leave_nothing),
        cmocka_unit_test_teardown(test_sums_off_are_left_blank, leave_nothing),
    };
    if (argc == 2) {
        return echo(argv[1]);
    }
    return cmocka_run_group_tests_name("memif", tests, setup, teardown);
}
