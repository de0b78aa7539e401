/* SPDX-License-Identifier: Apache-2.0 */
/* A log with one partition, and the maker of its batches, for tests of producers and transactions.
 */
#ifndef MILL_TESTS_UNIT_LOG_ONE_PARTITION_H
#define MILL_TESTS_UNIT_LOG_ONE_PARTITION_H

#include "tests/unit/test.h"

#include "tests/unit/log/txn_maker.h"

static struct fixture f;
static struct maker *m;

static inline struct mill_partition *setup(void)
{
    struct mill_log_settings settings = fixture_settings();
    fixture_make(&f, NULL);
    fixture_open(&f);
    m = maker_new();
    return fixture_partition(&f, 0, &settings);
}

static inline void teardown(void)
{
    fixture_close(&f, true);
    fixture_free(&f);
    free(m);
}

#endif
