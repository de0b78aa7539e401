/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of partitions; see parts.h. */
#include "control/group/parts.h"

#include <stdlib.h>
#include <string.h>

int mill_part_order(const struct mill_part *a, const struct mill_part *b)
{
    int order = memcmp(a->topic.b, b->topic.b, sizeof(a->topic.b));
    return order != 0 ? order : (a->partition > b->partition) - (a->partition < b->partition);
}

static int by_order(const void *a, const void *b)
{
    return mill_part_order(a, b);
}

void mill_parts_sort(struct mill_parts *parts)
{
    uint32_t kept = 0;
    if (parts->count < 2) {
        return;
    }
    qsort(parts->items, parts->count, sizeof(parts->items[0]), by_order);
    for (uint32_t i = 1; i < parts->count; i++) {
        if (mill_part_order(&parts->items[kept], &parts->items[i]) != 0) {
            parts->items[++kept] = parts->items[i];
        }
    }
    parts->count = kept + 1;
}

const struct mill_part *mill_parts_find(const struct mill_parts *parts,
                                        const struct mill_uuid *topic, int32_t partition)
{
    struct mill_part wanted = {.topic = *topic, .partition = partition};
    if (parts->count == 0) {
        return NULL;
    }
    return bsearch(&wanted, parts->items, parts->count, sizeof(parts->items[0]), by_order);
}

bool mill_parts_equal(const struct mill_parts *a, const struct mill_parts *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        if (mill_part_order(&a->items[i], &b->items[i]) != 0) {
            return false;
        }
    }
    return true;
}

bool mill_parts_within(const struct mill_parts *parts, const struct mill_parts *whole)
{
    for (uint32_t i = 0; i < parts->count; i++) {
        if (!mill_parts_find(whole, &parts->items[i].topic, parts->items[i].partition)) {
            return false;
        }
    }
    return true;
}

bool mill_parts_room(struct mill_pool *pool, uint32_t count, struct mill_parts *ret)
{
    ret->count = 0;
    ret->items = mill_pool_take(pool, (uint64_t)count * sizeof(ret->items[0]));
    return ret->items != NULL;
}

bool mill_parts_keep(const struct mill_parts *parts, struct mill_parts *ret_copy)
{
    *ret_copy = (struct mill_parts){0};
    if (parts->count == 0) {
        return true;
    }
    ret_copy->items = malloc(parts->count * sizeof(parts->items[0]));
    if (!ret_copy->items) {
        return false;
    }
    memcpy(ret_copy->items, parts->items, parts->count * sizeof(parts->items[0]));
    ret_copy->count = parts->count;
    return true;
}

void mill_parts_free(struct mill_parts *parts)
{
    free(parts->items);
    *parts = (struct mill_parts){0};
}
