/* SPDX-License-Identifier: Apache-2.0 */
/* txn_log DIR: writes a log directory with transactions of several producers, through the log and
 * its store: batches of one to three records, commit and abort markers, segments that roll, a kill
 * in between, a clean end. Prints what lies there, for the test that reads it with Kafka's tool:
 *   committed N aborted N open N
 * and per open transaction a line "open PRODUCER FIRST_OFFSET". */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>

#include "base/random.h"
#include "tests/unit/log/txn_maker.h"

enum {
    PRODUCERS = 5,
    STEPS = 3000,
    COORDINATOR_EPOCH = 11,
};

static struct fixture f;

static struct mill_partition *start(const char *dir)
{
    struct mill_log_settings settings = fixture_settings();
    settings.segment_bytes = 200000;
    f.log_dirs[0] = dir;
    fixture_open(&f);
    return fixture_partition(&f, 0, &settings);
}

int main(int argc, char **argv)
{
    struct mill_random random = {.state = 20};
    struct maker *m = maker_new();
    int64_t first[PRODUCERS];
    int32_t sequence[PRODUCERS] = {0};
    uint32_t ended[2] = {0, 0};
    uint32_t open = 0;
    if (argc != 2) {
        fprintf(stderr, "txn_log DIR\n");
        return 2;
    }
    fixture_make(&f, NULL);
    struct mill_partition *partition = start(argv[1]);
    memset(first, 0xff, sizeof(first)); /* -1: none */
    for (int i = 0; i < STEPS; i++) {
        int64_t id = mill_random_below(&random, PRODUCERS);
        if (mill_random_below(&random, 4) > 0) {
            int32_t count = 1 + (int32_t)mill_random_below(&random, 3);
            m->value_bytes = 20 + mill_random_below(&random, 800);
            m->timestamp = f.now.wall_ms;
            struct mill_append_result result =
                txn_write(&f, partition, m, 7000 + id, 2, sequence[id], count, true);
            assert_int_equal(result.error, 0);
            first[id] = first[id] < 0 ? result.base_offset : first[id];
            sequence[id] += count;
        } else if (first[id] >= 0) {
            bool commit = mill_random_below(&random, 2) == 0;
            txn_end(&f, partition, 7000 + id, 2, commit, COORDINATOR_EPOCH);
            ended[commit ? 0 : 1]++;
            first[id] = -1;
        }
        fixture_step(&f, 1);
        if (i == STEPS / 2) {
            fixture_close(&f, false);
            partition = start(argv[1]);
        }
    }
    fixture_close(&f, true);
    for (int i = 0; i < PRODUCERS; i++) {
        open += first[i] >= 0 ? 1 : 0;
    }
    printf("committed %u aborted %u open %u\n", ended[0], ended[1], open);
    for (int i = 0; i < PRODUCERS; i++) {
        if (first[i] >= 0) {
            printf("open %d %lld\n", 7000 + i, (long long)first[i]);
        }
    }
    fixture_free(&f);
    free(m);
    return 0;
}
