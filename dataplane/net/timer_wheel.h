/* SPDX-License-Identifier: Apache-2.0 */
/* Timers of one core: a hierarchical wheel of 3 levels with 256 slots, one tick per millisecond.
 * Nodes live inside the objects they belong to. Arming later than the slot a node sits in only
 * stores the new deadline: the slot fires early and re-inserts it, so an acknowledgement moves
 * nothing. Bitmaps of occupied slots make the next deadline and long jumps cheap.
 *
 *   level 0: next 256 ticks, one slot each      level 1: 256 slots of 256      level 2: of 65536
 *   a slot of level 1 or 2 is dealt out to the lower levels when the wheel reaches its start
 *
 * Owner: one core. Never allocates.
 */
#ifndef MILL_DATAPLANE_NET_TIMER_WHEEL_H
#define MILL_DATAPLANE_NET_TIMER_WHEEL_H

#include "base/check.h"

enum {
    MILL_WHEEL_LEVELS = 3,
    MILL_WHEEL_SLOT_BITS = 8,
    MILL_WHEEL_SLOTS = 1 << MILL_WHEEL_SLOT_BITS,
    MILL_WHEEL_WORDS = MILL_WHEEL_SLOTS / 64,
};

#define MILL_WHEEL_NEVER UINT64_MAX

struct mill_timer {
    struct mill_timer *next;
    struct mill_timer **link; /* what points here; NULL: not armed */
    uint64_t deadline;        /* tick at which it is due */
    uint64_t slot_tick;       /* tick at which its slot is looked at */
    uint16_t slot;            /* level * MILL_WHEEL_SLOTS + slot */
    uint16_t kind;            /* the owner's own */
};

struct mill_wheel {
    uint64_t now; /* every tick before this one was served, and the slot of this one as far as max
                     allowed */
    uint64_t occupied[MILL_WHEEL_LEVELS][MILL_WHEEL_WORDS];
    struct mill_timer *slots[MILL_WHEEL_LEVELS * MILL_WHEEL_SLOTS];
};

typedef void mill_timer_fired(void *context, struct mill_timer *timer);

void mill_wheel_init(struct mill_wheel *wheel, uint64_t now);

/* Due at tick deadline (at the next one when that has passed). Re-arming is allowed. */
void mill_wheel_arm(struct mill_wheel *wheel, struct mill_timer *timer, uint64_t deadline);

/* Nothing happens when it is not armed. */
void mill_wheel_cancel(struct mill_wheel *wheel, struct mill_timer *timer);

static inline bool mill_timer_armed(const struct mill_timer *timer)
{
    return timer->link != NULL;
}

/* Moves to tick now and calls fired for due timers, at most max; a timer is disarmed before its
 * call. ret: calls made; when it equals max, call again. */
uint32_t mill_wheel_advance(struct mill_wheel *wheel, uint64_t now, uint32_t max,
                            mill_timer_fired *fired, void *context);

/* A tick not later than the next due one, MILL_WHEEL_NEVER when nothing is armed. */
uint64_t mill_wheel_next(const struct mill_wheel *wheel);

#endif
