/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the supervisor starts, restarts, gives up and stops as designed. Method: a real supervisor
 * in a forked process over a scratch directory, with fake_child in place of both programs; what
 * happened is read from the files that it and the children leave. No root, no hugepages. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "supervisor/supervisor.h"

enum {
    WAIT_MS = 8000,
    TEXT_BYTES = 1500, /* the end of a longer file */
};

struct rig {
    char dir[64];
    char run[96];
    char out[96];
    char dataplane[96];
    char control[96];
    pid_t pid;
    uint32_t backoff_ms;
    uint32_t stop_ms;
};

static const char *fake_path; /* argv[1] of this program */

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void read_text(const char *path, char text[TEXT_BYTES])
{
    int fd = open(path, O_RDONLY);
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size >= TEXT_BYTES) {
        lseek(fd, 1 - TEXT_BYTES, SEEK_END);
    }
    ssize_t got = fd < 0 ? 0 : read(fd, text, TEXT_BYTES - 1);
    text[got > 0 ? got : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
}

static void rig_text(const struct rig *rig, const char *name, char text[TEXT_BYTES])
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", rig->run, name);
    read_text(path, text);
}

static uint32_t lines_of(const struct rig *rig, const char *name)
{
    char text[TEXT_BYTES];
    uint32_t lines = 0;
    rig_text(rig, name, text);
    for (const char *at = text; *at; at++) {
        lines += *at == '\n';
    }
    return lines;
}

static pid_t pid_of(const struct rig *rig, const char *name)
{
    char text[TEXT_BYTES];
    rig_text(rig, name, text);
    return (pid_t)atoi(text);
}

static void set_act(const struct rig *rig, const char *name, const char *act)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s.act", rig->run, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", act);
    fclose(file);
}

static void rig_make(struct rig *rig)
{
    *rig = (struct rig){.backoff_ms = 1, .stop_ms = 3000};
    snprintf(rig->dir, sizeof(rig->dir), "/tmp/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    snprintf(rig->run, sizeof(rig->run), "%s/run", rig->dir);
    snprintf(rig->out, sizeof(rig->out), "%s/out", rig->dir);
    snprintf(rig->dataplane, sizeof(rig->dataplane), "%s/millraced", rig->dir);
    snprintf(rig->control, sizeof(rig->control), "%s/millrace-control", rig->dir);
    assert_int_equal(mkdir(rig->run, 0700), 0);
    assert_int_equal(symlink(fake_path, rig->dataplane), 0);
    assert_int_equal(symlink(fake_path, rig->control), 0);
}

static int run_supervisor(const struct rig *rig)
{
    char run[128];
    char log[128];
    const char *sets[] = {run, log, "hugepages=off"};
    struct mill_config *config;
    struct mill_report report = {0};
    snprintf(run, sizeof(run), "run.dir=%s", rig->run);
    snprintf(log, sizeof(log), "log.dirs=%s/data", rig->dir);
    if (mill_config_load(NULL, sets, 3, false, &config) != 0) {
        return 50;
    }
    struct mill_supervisor_options options = {
        .config = config,
        .dataplane = rig->dataplane,
        .control = rig->control,
        .backoff_first_ms = rig->backoff_ms,
        .backoff_max_ms = 5000,
        .dataplane_stop_ms = rig->stop_ms,
        .control_stop_ms = rig->stop_ms,
        .ready_fd = -1,
    };
    int code = mill_supervisor_run(&options, &report);
    fprintf(stderr, "report: %s\n", report.text);
    mill_config_free(config);
    return code;
}

static pid_t rig_start(const struct rig *rig)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(rig->out, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        _exit(run_supervisor(rig));
    }
    return pid;
}

/* Exit code, -signal, or -1000 when it does not end. */
static int await_end(pid_t pid)
{
    int status;
    for (int waited = 0; waited < WAIT_MS; waited += 10) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        }
        sleep_ms(10);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1000;
}

static void await_ready(const struct rig *rig)
{
    char text[TEXT_BYTES];
    for (int waited = 0; waited < WAIT_MS; waited += 10) {
        rig_text(rig, "ready", text);
        if (text[0]) {
            return;
        }
        sleep_ms(10);
    }
    read_text(rig->out, text);
    fail_msg("not ready: %s", text);
}

static void await_lines(const struct rig *rig, const char *name, uint32_t lines)
{
    for (int waited = 0; waited < WAIT_MS && lines_of(rig, name) < lines; waited += 10) {
        sleep_ms(10);
    }
    assert_int_equal(lines_of(rig, name), lines);
}

static bool is_gone(pid_t pid)
{
    for (int waited = 0; waited < 5000; waited += 10) {
        if (kill(pid, 0) != 0 && errno == ESRCH) {
            return true;
        }
        sleep_ms(10);
    }
    return false;
}

static void assert_said(const struct rig *rig, const char *words)
{
    char text[TEXT_BYTES];
    read_text(rig->out, text);
    if (!strstr(text, words)) {
        fail_msg("\"%s\" not said in: %s", words, text);
    }
}

static void remove_tree(const char *dir)
{
    DIR *list = opendir(dir);
    struct dirent *entry;
    while (list && (entry = readdir(list))) {
        char path[512];
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
            remove_tree(path);
        } else {
            unlink(path);
        }
    }
    if (list) {
        closedir(list);
    }
    rmdir(dir);
}

static void rig_stop(struct rig *rig, pid_t pid)
{
    kill(pid, SIGTERM);
    assert_int_equal(await_end(pid), 0);
    remove_tree(rig->dir);
}

static void test_start_both_serve_prints_serving_listeners(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    char text[TEXT_BYTES];
    rig_text(&rig, "ready", text);
    assert_string_equal(text, "millrace: ready LOCAL=127.0.0.1:9092\n");
    assert_said(&rig, "millrace: ready LOCAL=127.0.0.1:9092\n");
    assert_int_equal(pid_of(&rig, "supervisor.pid"), pid);
    rig_stop(&rig, pid);
}

static void test_stop_signal_ends_data_first_and_cleans(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    kill(pid, SIGTERM);
    assert_int_equal(await_end(pid), 0);
    char text[TEXT_BYTES];
    rig_text(&rig, "order", text);
    assert_string_equal(text, "millraced\nmillrace-control\n");
    static const char *const gone[] = {"ipc", "map", "counters", "ready", "lock", "supervisor.pid"};
    for (uint32_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%s", rig.run, gone[i]);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    rig_text(&rig, "effective.properties", text);
    assert_non_null(strstr(text, "hugepages=off"));
    remove_tree(rig.dir);
}

static void test_death_after_ready_restarts_at_once(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    rig.backoff_ms = 5000; /* a restart with back-off would come too late */
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    for (uint32_t round = 2; round < 5; round++) {
        kill(pid_of(&rig, "millraced.pid"), SIGKILL);
        await_lines(&rig, "millraced.starts", round);
        sleep_ms(100); /* serving again */
    }
    assert_int_equal(lines_of(&rig, "millrace-control.starts"), 1);
    assert_said(&rig, "signal 9 (Killed)");
    rig_stop(&rig, pid);
}

static void test_death_before_ready_ten_times_gives_up(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    rig.backoff_ms = 1; /* doubles: half a second for all ten */
    set_act(&rig, "millrace-control", "die");
    pid_t pid = rig_start(&rig);
    assert_int_equal(await_end(pid), 1);
    assert_int_equal(lines_of(&rig, "millrace-control.starts"), 10);
    assert_said(&rig, "millrace-control died 10 times in a row before it could serve (last: exit "
                      "code 1)");
    char text[TEXT_BYTES];
    rig_text(&rig, "order", text); /* the other one was stopped, not left */
    assert_string_equal(text, "millraced\n");
    remove_tree(rig.dir);
}

static void test_death_before_ready_backs_off(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    rig.backoff_ms = 400;
    set_act(&rig, "millraced", "die");
    pid_t pid = rig_start(&rig);
    await_lines(&rig, "millraced.starts", 1);
    sleep_ms(20);
    assert_int_equal(lines_of(&rig, "millraced.starts"), 1);
    set_act(&rig, "millraced", "serve");
    await_ready(&rig);
    assert_int_equal(lines_of(&rig, "millraced.starts"), 2);
    rig_stop(&rig, pid);
}

static void test_permanent_fault_stops_all_at_once(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    set_act(&rig, "millraced", "permanent");
    pid_t pid = rig_start(&rig);
    assert_int_equal(await_end(pid), 1);
    assert_int_equal(lines_of(&rig, "millraced.starts"), 1);
    assert_said(&rig, "fake: device gone");
    assert_said(&rig, "another try is useless");
    remove_tree(rig.dir);
}

static void test_permanent_fault_after_it_was_ready_restarts(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    rig.backoff_ms = 300;
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    set_act(&rig, "millraced", "permanent");
    kill(pid_of(&rig, "millraced.pid"), SIGKILL);
    await_lines(&rig, "millraced.starts", 2); /* at once; it gives up, the supervisor does not */
    set_act(&rig, "millraced", "serve");
    await_lines(&rig, "millraced.starts", 3);
    sleep_ms(50);
    assert_int_equal(kill(pid_of(&rig, "millraced.pid"), 0), 0);
    rig_stop(&rig, pid);
}

static void test_killed_supervisor_takes_children_along(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    pid_t data = pid_of(&rig, "millraced.pid");
    pid_t control = pid_of(&rig, "control.pid");
    kill(pid, SIGKILL);
    assert_int_equal(await_end(pid), -SIGKILL);
    assert_true(is_gone(data));
    assert_true(is_gone(control));
    /* Nothing has to be cleaned by hand. */
    pid = rig_start(&rig);
    await_lines(&rig, "millraced.starts", 2);
    await_ready(&rig);
    rig_stop(&rig, pid);
}

static void test_start_after_kill_waits_for_old_children(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    set_act(&rig, "millraced", "deaf");
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    pid_t data = pid_of(&rig, "millraced.pid");
    kill(pid, SIGKILL);
    assert_int_equal(await_end(pid), -SIGKILL);
    set_act(&rig, "millraced", "serve");
    pid = rig_start(&rig);
    sleep_ms(300);
    assert_int_equal(lines_of(&rig, "millraced.starts"), 1); /* the old one still has the log */
    kill(data, SIGKILL);
    await_lines(&rig, "millraced.starts", 2);
    await_ready(&rig);
    rig_stop(&rig, pid);
}

static void test_second_start_names_the_holder(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    char words[64];
    pid_t second = rig_start(&rig);
    assert_int_equal(await_end(second), 1);
    snprintf(words, sizeof(words), "is in use by process %d", pid);
    assert_said(&rig, "report: run directory ");
    assert_said(&rig, words);
    /* Another run directory, the same log directory. */
    struct rig other = rig;
    snprintf(other.run, sizeof(other.run), "%s/run2", rig.dir);
    snprintf(other.out, sizeof(other.out), "%s/out2", rig.dir);
    second = rig_start(&other);
    assert_int_equal(await_end(second), 1);
    assert_said(&other, "report: log directory ");
    assert_said(&other, words);
    /* The holder was not harmed. */
    assert_int_equal(kill(pid_of(&rig, "millraced.pid"), 0), 0);
    char text[TEXT_BYTES];
    rig_text(&rig, "ready", text);
    assert_true(text[0] != '\0');
    rig_stop(&rig, pid);
}

static void test_stop_deaf_child_is_killed_and_told(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    rig.stop_ms = 200;
    set_act(&rig, "millraced", "deaf");
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    kill(pid, SIGTERM);
    assert_int_equal(await_end(pid), 1);
    assert_said(&rig, "millraced did not end in time and was killed");
    remove_tree(rig.dir);
}

static void test_missing_program_is_permanent(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    unlink(rig.control);
    pid_t pid = rig_start(&rig);
    assert_int_equal(await_end(pid), 1);
    assert_said(&rig, "cannot run ");
    remove_tree(rig.dir);
}

static void test_idle_supervisor_does_not_wake(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    char path[64];
    char before[TEXT_BYTES];
    char after[TEXT_BYTES];
    snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
    sleep_ms(100);
    read_text(path, before);
    sleep_ms(500);
    read_text(path, after);
    assert_string_equal(before, after); /* not one run of the CPU */
    rig_stop(&rig, pid);
}

static void test_hangup_is_survived(void **state)
{
    (void)state;
    struct rig rig;
    rig_make(&rig);
    pid_t pid = rig_start(&rig);
    await_ready(&rig);
    kill(pid, SIGHUP);
    sleep_ms(100);
    assert_int_equal(kill(pid, 0), 0);
    assert_said(&rig, "supervisor.reload");
    rig_stop(&rig, pid);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: test_supervisor FAKE_CHILD\n");
        return 2;
    }
    fake_path = realpath(argv[1], NULL); /* the links to it lie elsewhere */
    if (!fake_path) {
        perror(argv[1]);
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_both_serve_prints_serving_listeners),
        cmocka_unit_test(test_stop_signal_ends_data_first_and_cleans),
        cmocka_unit_test(test_death_after_ready_restarts_at_once),
        cmocka_unit_test(test_death_before_ready_ten_times_gives_up),
        cmocka_unit_test(test_death_before_ready_backs_off),
        cmocka_unit_test(test_permanent_fault_stops_all_at_once),
        cmocka_unit_test(test_permanent_fault_after_it_was_ready_restarts),
        cmocka_unit_test(test_killed_supervisor_takes_children_along),
        cmocka_unit_test(test_start_after_kill_waits_for_old_children),
        cmocka_unit_test(test_second_start_names_the_holder),
        cmocka_unit_test(test_stop_deaf_child_is_killed_and_told),
        cmocka_unit_test(test_missing_program_is_permanent),
        cmocka_unit_test(test_idle_supervisor_does_not_wake),
        cmocka_unit_test(test_hangup_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
