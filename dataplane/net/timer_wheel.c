/* SPDX-License-Identifier: Apache-2.0 */
/* The timer wheel; see timer_wheel.h. Owner: one core; never allocates. */
#include "dataplane/net/timer_wheel.h"

#include <string.h>

enum {
    SLOT_MASK = MILL_WHEEL_SLOTS - 1,
};

void mill_wheel_init(struct mill_wheel *wheel, uint64_t now)
{
    memset(wheel, 0, sizeof(*wheel));
    wheel->now = now;
}

static void insert(struct mill_wheel *wheel, struct mill_timer *timer)
{
    uint64_t due = MILL_MAX(timer->deadline, wheel->now + 1);
    uint64_t delta = due - wheel->now;
    const uint64_t range = 1ull << (MILL_WHEEL_LEVELS * MILL_WHEEL_SLOT_BITS);
    if (delta >= range) {
        due = wheel->now + range - 1; /* looked at then, and put in again */
        delta = range - 1;
    }
    unsigned level = 0;
    while (delta >> ((level + 1) * MILL_WHEEL_SLOT_BITS) > 0) {
        level++;
    }
    unsigned shift = level * MILL_WHEEL_SLOT_BITS;
    unsigned index = (unsigned)(due >> shift) & SLOT_MASK;
    unsigned slot = level * MILL_WHEEL_SLOTS + index;
    timer->slot = (uint16_t)slot;
    timer->slot_tick = level == 0 ? due : (due >> shift) << shift;
    timer->next = wheel->slots[slot];
    if (timer->next) {
        timer->next->link = &timer->next;
    }
    timer->link = &wheel->slots[slot];
    wheel->slots[slot] = timer;
    wheel->occupied[level][index / 64] |= 1ull << (index % 64);
}

static void take_out(struct mill_wheel *wheel, struct mill_timer *timer)
{
    *timer->link = timer->next;
    if (timer->next) {
        timer->next->link = timer->link;
    }
    timer->link = NULL;
    timer->next = NULL;
    if (!wheel->slots[timer->slot]) {
        unsigned level = timer->slot / MILL_WHEEL_SLOTS;
        unsigned index = timer->slot % MILL_WHEEL_SLOTS;
        wheel->occupied[level][index / 64] &= ~(1ull << (index % 64));
    }
}

void mill_wheel_arm(struct mill_wheel *wheel, struct mill_timer *timer, uint64_t deadline)
{
    timer->deadline = deadline;
    if (timer->link) {
        if (timer->slot_tick <= deadline) {
            return;
        }
        take_out(wheel, timer);
    }
    insert(wheel, timer);
}

void mill_wheel_cancel(struct mill_wheel *wheel, struct mill_timer *timer)
{
    if (timer->link) {
        take_out(wheel, timer);
    }
}

/* Distance 1..256 from slot `from` to the next occupied slot of a level, walking round; 0: none. */
static unsigned distance_to_occupied(const uint64_t words[MILL_WHEEL_WORDS], unsigned from)
{
    unsigned start = (from + 1) & SLOT_MASK;
    for (unsigned i = 0; i <= MILL_WHEEL_WORDS; i++) {
        unsigned word = (start / 64 + i) % MILL_WHEEL_WORDS;
        uint64_t bits = words[word];
        if (i == 0) {
            bits &= ~0ull << (start % 64);
        } else if (i == MILL_WHEEL_WORDS) {
            bits &= (1ull << (start % 64)) - 1;
        }
        if (bits != 0) {
            unsigned index = word * 64 + (unsigned)__builtin_ctzll(bits);
            return ((index - start) & SLOT_MASK) + 1;
        }
    }
    return 0;
}

/* The next tick after now at which a slot must be looked at. */
static uint64_t next_after_now(const struct mill_wheel *wheel)
{
    uint64_t next = MILL_WHEEL_NEVER;
    for (unsigned level = 0; level < MILL_WHEEL_LEVELS; level++) {
        unsigned shift = level * MILL_WHEEL_SLOT_BITS;
        uint64_t position = wheel->now >> shift;
        unsigned distance =
            distance_to_occupied(wheel->occupied[level], (unsigned)position & SLOT_MASK);
        if (distance > 0) {
            next = MILL_MIN(next, (position + distance) << shift);
        }
    }
    return next;
}

uint64_t mill_wheel_next(const struct mill_wheel *wheel)
{
    if (wheel->slots[wheel->now & SLOT_MASK]) {
        return wheel->now; /* left over by max */
    }
    return next_after_now(wheel);
}

/* Deals out one slot of an upper level; every timer in it is due within that slot's span or was
 * re-armed for later. */
static void deal_out(struct mill_wheel *wheel, unsigned level)
{
    unsigned index = (unsigned)(wheel->now >> (level * MILL_WHEEL_SLOT_BITS)) & SLOT_MASK;
    unsigned slot = level * MILL_WHEEL_SLOTS + index;
    struct mill_timer *timer = wheel->slots[slot];
    wheel->slots[slot] = NULL;
    wheel->occupied[level][index / 64] &= ~(1ull << (index % 64));
    while (timer) {
        struct mill_timer *next = timer->next;
        if (timer->deadline <= wheel->now) {
            /* Due at this very tick: into the slot that is served next. */
            unsigned low = (unsigned)wheel->now & SLOT_MASK;
            timer->slot = (uint16_t)low;
            timer->slot_tick = wheel->now;
            timer->next = wheel->slots[low];
            if (timer->next) {
                timer->next->link = &timer->next;
            }
            timer->link = &wheel->slots[low];
            wheel->slots[low] = timer;
            wheel->occupied[0][low / 64] |= 1ull << (low % 64);
        } else {
            insert(wheel, timer);
        }
        timer = next;
    }
}

/* Serves the slot of tick now. */
static uint32_t serve(struct mill_wheel *wheel, uint32_t max, mill_timer_fired *fired,
                      void *context)
{
    uint32_t calls = 0;
    struct mill_timer **slot = &wheel->slots[wheel->now & SLOT_MASK];
    while (*slot && calls < max) {
        struct mill_timer *timer = *slot;
        take_out(wheel, timer);
        if (timer->deadline > wheel->now) {
            insert(wheel, timer);
            continue;
        }
        fired(context, timer);
        calls++;
    }
    return calls;
}

uint32_t mill_wheel_advance(struct mill_wheel *wheel, uint64_t now, uint32_t max,
                            mill_timer_fired *fired, void *context)
{
    uint32_t calls = serve(wheel, max, fired, context);
    while (calls < max) {
        uint64_t next = next_after_now(wheel);
        if (next > now) {
            wheel->now = MILL_MAX(wheel->now, now);
            break;
        }
        wheel->now = next;
        for (unsigned level = MILL_WHEEL_LEVELS - 1; level > 0; level--) {
            if ((wheel->now & ((1ull << (level * MILL_WHEEL_SLOT_BITS)) - 1)) == 0) {
                deal_out(wheel, level);
            }
        }
        calls += serve(wheel, max - calls, fired, context);
    }
    return calls;
}
