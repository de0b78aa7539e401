/* SPDX-License-Identifier: Apache-2.0 */
/* The sender's scoreboard: sorted, disjoint ranges that the peer acknowledged selectively
 * (RFC 2018, 6675). References are never split by it; it speaks in sequence numbers only. When it
 * is full new ranges are ignored, which costs retransmissions and nothing else.
 *
 *   snd_una ... [start,end) ... [start,end) ... snd_nxt       at most MILL_SACK_RANGES ranges
 *
 * Owner: one connection. Pure memory.
 */
#ifndef MILL_DATAPLANE_NET_TCP_SACK_H
#define MILL_DATAPLANE_NET_TCP_SACK_H

#include "base/check.h"

enum {
    MILL_SACK_RANGES = 64,
    MILL_DUP_THRESHOLD = 3, /* RFC 5681: duplicates that mean a loss */
};

struct mill_sack_range {
    uint32_t start;
    uint32_t end; /* exclusive */
};

struct mill_scoreboard {
    uint32_t count;
    uint32_t sacked_bytes;
    struct mill_sack_range ranges[MILL_SACK_RANGES];
};

void mill_scoreboard_clear(struct mill_scoreboard *board);

/* Notes [start, end). A range that is empty, reversed or not inside [una, nxt] is ignored.
 * ret: bytes that were not marked before. */
uint32_t mill_scoreboard_add(struct mill_scoreboard *board, uint32_t una, uint32_t nxt,
                             struct mill_sack_range range);

/* Everything below una was acknowledged cumulatively. */
void mill_scoreboard_ack(struct mill_scoreboard *board, uint32_t una);

/* Bytes of [from, to) that are not marked. */
uint32_t mill_scoreboard_unsacked(const struct mill_scoreboard *board, uint32_t from, uint32_t to);

/* First unmarked byte at or after from and below limit. ret: length of the unmarked run from there
 * (cut at limit), 0: none. */
uint32_t mill_scoreboard_hole(const struct mill_scoreboard *board, uint32_t from, uint32_t limit,
                              uint32_t *ret_start);

/* IsLost() of RFC 6675 as one border: every unmarked byte below it is lost, none from it on; una
 * when none is. */
uint32_t mill_scoreboard_lost_end(const struct mill_scoreboard *board, uint32_t una, uint32_t mss);

/* End of the highest range; una when there is none. */
uint32_t mill_scoreboard_highest(const struct mill_scoreboard *board, uint32_t una);

#endif
