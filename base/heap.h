/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines in a binary heap of fixed capacity. Items are embedded in what has a deadline. One
 * thread; O(log n). */
#ifndef MILL_BASE_HEAP_H
#define MILL_BASE_HEAP_H

#include "base/check.h"

struct mill_heap_item {
    uint64_t at_ns;
    uint32_t place; /* index + 1 in the heap, 0: not in it */
};

struct mill_heap {
    struct mill_heap_item **items;
    uint32_t count;
    uint32_t capacity;
};

/* ret: 0, -ENOMEM. */
int mill_heap_init(struct mill_heap *heap, uint32_t capacity) MILL_WARN_UNUSED;
void mill_heap_fini(struct mill_heap *heap);

/* Sets or moves the item's deadline. The capacity covers every item there is (asserted). */
void mill_heap_set(struct mill_heap *heap, struct mill_heap_item *item, uint64_t at_ns);
void mill_heap_remove(struct mill_heap *heap, struct mill_heap_item *item);
/* The earliest item, NULL when empty. Stays in the heap. */
struct mill_heap_item *mill_heap_first(const struct mill_heap *heap);

#endif
