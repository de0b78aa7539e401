/* SPDX-License-Identifier: Apache-2.0 */
/* An arena for one test in a folder of its own on tmpfs, and a way to see an abort. */
#ifndef MILL_TESTS_UNIT_HUGEPAGES_FIXTURE_H
#define MILL_TESTS_UNIT_HUGEPAGES_FIXTURE_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hugepages/arena.h"

struct fixture {
    char dir[64];
    struct mill_arena_options options;
    struct mill_report report;
};

/* A folder on tmpfs, and options for size_mib on one node. */
static inline void fixture_make(struct fixture *fixture, uint64_t size_mib)
{
    memset(fixture, 0, sizeof(*fixture));
    snprintf(fixture->dir, sizeof(fixture->dir), "/dev/shm/millrace-test-XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    fixture->options = (struct mill_arena_options){
        .dir = fixture->dir,
        .size_bytes = size_mib << 20,
        .nodes = 1,
        .cores = 4,
        .partitions_max = 100,
        .extent_bytes_max = 4 << 20,
    };
}

static inline void fixture_free(struct fixture *fixture)
{
    assert_int_equal(mill_arena_discard(fixture->dir, &fixture->report), 0);
    assert_int_equal(rmdir(fixture->dir), 0);
}

static inline struct mill_arena *fixture_open(struct fixture *fixture, bool taken_wanted)
{
    struct mill_arena *arena = NULL;
    bool taken = !taken_wanted;
    int error = mill_arena_open(&fixture->options, &arena, &taken, &fixture->report);
    if (error != 0) {
        print_message("%s\n", fixture->report.text);
    }
    assert_int_equal(error, 0);
    assert_int_equal(taken, taken_wanted);
    return arena;
}

/* True when act(argument) aborts in a child; its message is not shown. */
static inline bool aborts(void (*act)(void *argument), void *argument)
{
    pid_t child = fork();
    if (child == 0) {
        /* cmocka's handler would turn the abort into a report of its own. */
        signal(SIGABRT, SIG_DFL);
        if (freopen("/dev/null", "w", stderr) == NULL) {
            _exit(1);
        }
        act(argument);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

#endif
