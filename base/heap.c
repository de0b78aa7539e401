/* SPDX-License-Identifier: Apache-2.0 */
/* Binary heap of deadlines; see heap.h. */
#include "base/heap.h"

#include <errno.h>
#include <stdlib.h>

int mill_heap_init(struct mill_heap *heap, uint32_t capacity)
{
    *heap = (struct mill_heap){.capacity = capacity};
    heap->items = calloc(capacity, sizeof(heap->items[0]));
    return heap->items ? 0 : -ENOMEM;
}

void mill_heap_fini(struct mill_heap *heap)
{
    free(heap->items);
    *heap = (struct mill_heap){0};
}

static void put(struct mill_heap *heap, uint32_t index, struct mill_heap_item *item)
{
    heap->items[index] = item;
    item->place = index + 1;
}

static void sift(struct mill_heap *heap, uint32_t index)
{
    struct mill_heap_item *item = heap->items[index];
    while (index > 0) {
        uint32_t parent = (index - 1) / 2;
        if (heap->items[parent]->at_ns <= item->at_ns) {
            break;
        }
        put(heap, index, heap->items[parent]);
        index = parent;
    }
    for (;;) {
        uint32_t child = index * 2 + 1;
        if (child >= heap->count) {
            break;
        }
        if (child + 1 < heap->count && heap->items[child + 1]->at_ns < heap->items[child]->at_ns) {
            child++;
        }
        if (heap->items[child]->at_ns >= item->at_ns) {
            break;
        }
        put(heap, index, heap->items[child]);
        index = child;
    }
    put(heap, index, item);
}

void mill_heap_set(struct mill_heap *heap, struct mill_heap_item *item, uint64_t at_ns)
{
    item->at_ns = at_ns;
    if (item->place == 0) {
        MILL_ASSERT_LT(heap->count, heap->capacity);
        put(heap, heap->count++, item);
    }
    sift(heap, item->place - 1);
}

void mill_heap_remove(struct mill_heap *heap, struct mill_heap_item *item)
{
    if (item->place == 0) {
        return;
    }
    uint32_t index = item->place - 1;
    item->place = 0;
    struct mill_heap_item *last = heap->items[--heap->count];
    if (last != item) {
        put(heap, index, last);
        sift(heap, index);
    }
}

struct mill_heap_item *mill_heap_first(const struct mill_heap *heap)
{
    return heap->count > 0 ? heap->items[0] : NULL;
}
