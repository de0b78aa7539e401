/* SPDX-License-Identifier: Apache-2.0 */
/* The scoreboard; see tcp_sack.h. Owner: one connection; pure memory. */
#include "dataplane/net/tcp_sack.h"

#include <string.h>

#include "dataplane/net/seq.h"

void mill_scoreboard_clear(struct mill_scoreboard *board)
{
    board->count = 0;
    board->sacked_bytes = 0;
}

static void remove_at(struct mill_scoreboard *board, uint32_t index, uint32_t count)
{
    memmove(&board->ranges[index], &board->ranges[index + count],
            (board->count - index - count) * sizeof(board->ranges[0]));
    board->count -= count;
}

uint32_t mill_scoreboard_add(struct mill_scoreboard *board, uint32_t una, uint32_t nxt,
                             struct mill_sack_range range)
{
    if (!mill_seq_lt(range.start, range.end) || !mill_seq_lt(una, range.start) ||
        !mill_seq_le(range.end, nxt)) {
        return 0;
    }
    uint32_t first = 0;
    while (first < board->count && mill_seq_lt(board->ranges[first].end, range.start)) {
        first++;
    }
    /* Ranges [first, last) touch or overlap the new one. */
    uint32_t last = first;
    uint32_t known_bytes = 0;
    while (last < board->count && mill_seq_le(board->ranges[last].start, range.end)) {
        range.start = mill_seq_min(range.start, board->ranges[last].start);
        range.end = mill_seq_max(range.end, board->ranges[last].end);
        known_bytes += board->ranges[last].end - board->ranges[last].start;
        last++;
    }
    if (first == last) {
        if (board->count == MILL_SACK_RANGES) {
            return 0;
        }
        memmove(&board->ranges[first + 1], &board->ranges[first],
                (board->count - first) * sizeof(board->ranges[0]));
        board->count++;
    } else {
        remove_at(board, first + 1, last - first - 1);
    }
    board->ranges[first] = range;
    uint32_t new_bytes = range.end - range.start - known_bytes;
    board->sacked_bytes += new_bytes;
    return new_bytes;
}

void mill_scoreboard_ack(struct mill_scoreboard *board, uint32_t una)
{
    uint32_t gone = 0;
    while (gone < board->count && mill_seq_le(board->ranges[gone].end, una)) {
        board->sacked_bytes -= board->ranges[gone].end - board->ranges[gone].start;
        gone++;
    }
    if (gone > 0) {
        remove_at(board, 0, gone);
    }
    if (board->count > 0 && mill_seq_lt(board->ranges[0].start, una)) {
        board->sacked_bytes -= una - board->ranges[0].start;
        board->ranges[0].start = una;
    }
}

uint32_t mill_scoreboard_unsacked(const struct mill_scoreboard *board, uint32_t from, uint32_t to)
{
    if (!mill_seq_lt(from, to)) {
        return 0;
    }
    uint32_t bytes = to - from;
    for (uint32_t i = 0; i < board->count; i++) {
        uint32_t start = mill_seq_max(board->ranges[i].start, from);
        uint32_t end = mill_seq_min(board->ranges[i].end, to);
        if (mill_seq_lt(start, end)) {
            bytes -= end - start;
        }
    }
    return bytes;
}

uint32_t mill_scoreboard_hole(const struct mill_scoreboard *board, uint32_t from, uint32_t limit,
                              uint32_t *ret_start)
{
    for (uint32_t i = 0; i < board->count; i++) {
        const struct mill_sack_range *range = &board->ranges[i];
        if (mill_seq_le(range->end, from)) {
            continue;
        }
        if (mill_seq_lt(from, range->start)) {
            limit = mill_seq_min(limit, range->start);
            break;
        }
        from = range->end;
    }
    if (!mill_seq_lt(from, limit)) {
        return 0;
    }
    *ret_start = from;
    return limit - from;
}

uint32_t mill_scoreboard_lost_end(const struct mill_scoreboard *board, uint32_t una, uint32_t mss)
{
    uint32_t bytes = 0;
    for (uint32_t i = board->count; i > 0; i--) {
        const struct mill_sack_range *range = &board->ranges[i - 1];
        bytes += range->end - range->start;
        uint32_t ranges_above = board->count - i + 1;
        if (ranges_above >= MILL_DUP_THRESHOLD || bytes > (MILL_DUP_THRESHOLD - 1) * mss) {
            return mill_seq_max(range->start, una);
        }
    }
    return una;
}

uint32_t mill_scoreboard_highest(const struct mill_scoreboard *board, uint32_t una)
{
    return board->count > 0 ? board->ranges[board->count - 1].end : una;
}
