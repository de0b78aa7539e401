/* SPDX-License-Identifier: Apache-2.0 */
/* Markers or grants on their way to one core, as bytes: WriteTxnMarkers, or AddPartitionsToTxn
 * passed on. A request has one kind. For journal.c. Pure. */
#ifndef MILL_CONTROL_JOURNAL_MARKS_H
#define MILL_CONTROL_JOURNAL_MARKS_H

#include "control/journal/journal.h"
#include "protocol/wire.h"

enum {
    MILL_MARKS_FLIGHT_MAX = 64, /* markers of one request */
    /* Of one marker in a request, at most. */
    MILL_MARK_BYTES_MAX = MILL_TOPIC_NAME_MAX + 64,
};

struct mill_mark {
    struct mill_mark *next;
    struct mill_journal_marker marker;
    int32_t index;
    mill_journal_done done;
    void *context;
    char topic[MILL_TOPIC_NAME_MAX + 1];
};

/* Of the request that carries these. */
int16_t mill_marks_key(struct mill_mark *const *marks);
int16_t mill_marks_version(int16_t key);
int mill_marks_encode(struct mill_writer *to, struct mill_mark *const *marks, uint32_t count);
/* ret_errors: enum mill_kerr of each. ret: false malformed, or not the answer to these. */
bool mill_marks_parse(struct mill_cursor *at, struct mill_mark *const *marks, uint32_t count,
                      int16_t *ret_errors);

#endif
