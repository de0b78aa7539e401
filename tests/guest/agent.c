/* SPDX-License-Identifier: Apache-2.0 */
/* guest_agent PORT: what tests/guest/init becomes in the guest lab; runs the host's commands.
 *
 * Each comes over the virtio-serial port as one line `ID ASK SECONDS HEX`, HEX being the text for a
 * shell. The answer is an empty line, a line `= ID ASK EXIT SIZE` and SIZE bytes of output. The
 * host may ask again with the same ID and another ASK whenever it likes: a command runs once, its
 * answer is sent as often as it is asked for. So neither side minds what the port lost when the
 * host's end came and went. A command that runs longer than SECONDS is killed with its process
 * group and answered with exit code 137; what it left in a session of its own stays.
 *
 * One thread that waits only in its poll: children that die, also those of others (it is process
 * 1), cannot cut a line short. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"

enum {
    LINE_BYTES_MAX = 256 << 10, /* a command is an argument of exec: at most 128 KiB */
    ID_BYTES_MAX = 64,
    ABSENT_MS = 20, /* between two looks whether the host's end is back */
    EXIT_KILLED = 128 + SIGKILL,
};

struct command {
    char id[ID_BYTES_MAX];
    unsigned ask;
    pid_t pid; /* 0: it is over, the answer is there */
    int exit_code;
    int output; /* a file in memory; -1 before the first command */
    uint64_t deadline_ns;
};

struct agent {
    int port;
    int signals;
    struct command command; /* that runs, or that was answered last */
    /* The answer on its way: its first line, then the output. */
    char head[ID_BYTES_MAX + 64];
    size_t head_bytes;
    size_t answer_bytes; /* all of it; 0: nothing is on its way */
    size_t sent_bytes;
    /* The line so far. */
    bool overlong; /* its start was thrown away */
    size_t line_bytes;
    char line[LINE_BYTES_MAX];
    char piece[16 << 10]; /* of what comes or goes */
};

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1); /* of process 1: the kernel panics, QEMU ends, the test says so */
}

static void answer(struct agent *agent)
{
    const struct command *command = &agent->command;
    struct stat info;
    if (fstat(command->output, &info) != 0) {
        die("fstat");
    }
    size_t size_bytes = (size_t)info.st_size;
    agent->head_bytes = (size_t)snprintf(agent->head, sizeof(agent->head), "\n= %s %u %d %zu\n",
                                         command->id, command->ask, command->exit_code, size_bytes);
    agent->answer_bytes = agent->head_bytes + size_bytes;
    agent->sent_bytes = 0;
}

static void finish(struct agent *agent, int exit_code)
{
    agent->command.pid = 0;
    agent->command.exit_code = exit_code;
    answer(agent);
}

static void run_shell(int output, char *text)
{
    sigset_t none;
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigemptyset(&none);
    setsid();
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(output, STDERR_FILENO) < 0 || sigprocmask(SIG_SETMASK, &none, NULL) != 0) {
        _exit(126);
    }
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
}

static void kill_command(const struct command *command)
{
    kill(-command->pid, SIGKILL);
    kill(command->pid, SIGKILL); /* before its setsid there is no group */
}

static void begin(struct agent *agent, const char *id, unsigned seconds, char *text)
{
    struct command *command = &agent->command;
    if (command->pid > 0) {
        kill_command(command); /* the host has given it up */
    }
    if (command->output >= 0) {
        close(command->output);
    }
    snprintf(command->id, sizeof(command->id), "%s", id);
    /* A daemon that keeps writing where the command wrote disturbs no later one. */
    command->output = memfd_create("output", MFD_CLOEXEC);
    command->deadline_ns = mill_now_read().mono_ns + seconds * MILL_NS_PER_S;
    command->pid = command->output < 0 ? -1 : fork();
    if (command->pid < 0) {
        die("fork");
    }
    if (command->pid == 0) {
        run_shell(command->output, text);
    }
}

/* Two digits to a byte, in place. ret: false for anything else. */
static bool decode(char *hex)
{
    size_t length = strlen(hex);
    if (length % 2 != 0 || strspn(hex, "0123456789abcdef") != length) {
        return false;
    }
    for (size_t i = 0; i < length / 2; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
        hex[i] = (char)strtoul(digits, NULL, 16);
    }
    hex[length / 2] = 0;
    return true;
}

/* A line that is no command is what the port left of one: the host asks again. */
static void take_line(struct agent *agent, char *line)
{
    char id[ID_BYTES_MAX];
    unsigned ask;
    unsigned seconds;
    int at = 0;
    if (sscanf(line, "%63s %u %u %n", id, &ask, &seconds, &at) != 3 || at == 0 ||
        !decode(line + at)) {
        return;
    }
    agent->command.ask = ask;
    bool known = strcmp(id, agent->command.id) == 0;
#ifdef MILL_MUTANT_GUEST_AGENT_TWICE
    known = false;
#endif
    if (!known) {
        begin(agent, id, seconds, line + at);
    } else if (agent->command.pid == 0) {
        answer(agent);
    }
}

static void take_bytes(struct agent *agent, const char *bytes, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        if (bytes[i] != '\n') {
            agent->overlong |= agent->line_bytes == LINE_BYTES_MAX - 1;
            agent->line_bytes -= agent->overlong ? agent->line_bytes : 0;
            agent->line[agent->line_bytes++] = bytes[i];
            continue;
        }
        agent->line[agent->line_bytes] = 0;
        if (!agent->overlong) {
            take_line(agent, agent->line);
        }
        agent->line_bytes = 0;
        agent->overlong = false;
    }
}

/* ret: whether the host's end is there. */
static bool receive(struct agent *agent)
{
    ssize_t got = read(agent->port, agent->piece, sizeof(agent->piece));
    if (got > 0) {
        take_bytes(agent, agent->piece, (size_t)got);
    } else if (got == 0) {
        agent->line_bytes = 0; /* half a line of a host that left */
        agent->answer_bytes = 0;
    } else if (errno != EAGAIN && errno != EINTR) {
        die("read");
    }
    return got != 0;
}

static void send_some(struct agent *agent)
{
    const char *from = agent->head + agent->sent_bytes;
    size_t size_bytes = agent->head_bytes - agent->sent_bytes;
    if (agent->sent_bytes >= agent->head_bytes) {
        size_t pos_bytes = agent->sent_bytes - agent->head_bytes;
        ssize_t got = pread(agent->command.output, agent->piece,
                            MILL_MIN(sizeof(agent->piece), agent->answer_bytes - agent->sent_bytes),
                            (off_t)pos_bytes);
        if (got <= 0) {
            die("pread");
        }
        from = agent->piece;
        size_bytes = (size_t)got;
    }
    ssize_t sent = write(agent->port, from, size_bytes);
    if (sent > 0) {
        agent->sent_bytes += (size_t)sent;
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        die("write");
    }
    if (agent->sent_bytes == agent->answer_bytes) {
        agent->answer_bytes = 0;
    }
}

static void reap(struct agent *agent)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;
    while (read(agent->signals, &info, sizeof(info)) > 0) {
    }
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == agent->command.pid) {
            finish(agent, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        }
    }
}

/* ret: milliseconds until the command's limit, -1 when none runs. */
static int left_ms(struct agent *agent)
{
    if (agent->command.pid == 0) {
        return -1;
    }
    uint64_t now_ns = mill_now_read().mono_ns;
    if (now_ns < agent->command.deadline_ns) {
        return (int)((agent->command.deadline_ns - now_ns) / MILL_NS_PER_MS) + 1;
    }
    kill_command(&agent->command);
    finish(agent, EXIT_KILLED);
    return -1;
}

static void serve(struct agent *agent)
{
    bool present = true;
    for (;;) {
        int wait_ms = left_ms(agent);
        short events = (short)(POLLIN | (agent->answer_bytes ? POLLOUT : 0));
        struct pollfd fds[] = {{.fd = agent->signals, .events = POLLIN},
                               {.fd = present ? agent->port : -1, .events = events}};
        /* An absent host makes the port readable all the time. */
        if (!present && (wait_ms < 0 || wait_ms > ABSENT_MS)) {
            wait_ms = ABSENT_MS;
        }
        if (poll(fds, 2, wait_ms) < 0 && errno != EINTR) {
            die("poll");
        }
        reap(agent);
        present = receive(agent);
        if (present && agent->answer_bytes) {
            send_some(agent);
        }
    }
}

int main(int count, char **words)
{
    static struct agent agent = {.command = {.output = -1}};
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    agent.port = count == 2 ? open(words[1], O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
    if (agent.port < 0 || sigprocmask(SIG_BLOCK, &children, NULL) != 0) {
        die("guest_agent PORT");
    }
    agent.signals = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
    if (agent.signals < 0) {
        die("signalfd");
    }
    serve(&agent);
}
