/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a record that was read, for tests of the records of transactions. */
#ifndef MILL_TESTS_UNIT_CONTROL_TXN_RECORD_H
#define MILL_TESTS_UNIT_CONTROL_TXN_RECORD_H

#include "tests/unit/test.h"

#include "control/txn/records.h"

/* The key of the id "id". */
static const uint8_t key_by_hand[] = {0, 0, 0, 2, 'i', 'd'};

struct raw {
    struct mill_buf bufs[2];
    struct mill_record record;
};

static const struct mill_record *raw_record(struct raw *raw, const void *key, uint32_t key_bytes,
                                            const void *value, int32_t value_bytes)
{
    raw->record =
        (struct mill_record){.key_length = (int32_t)key_bytes, .value_length = value_bytes};
    raw->record.key = mill_cursor_over(&raw->bufs[0], key, key_bytes);
    raw->record.value = mill_cursor_over(&raw->bufs[1], value, (uint32_t)MILL_MAX(value_bytes, 0));
    return &raw->record;
}

#endif
