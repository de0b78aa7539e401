/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions of one transaction; see set.h. */
#include "control/txn/set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *left, const void *right)
{
    const struct mill_txn_partition *a = left;
    const struct mill_txn_partition *b = right;
    int order = strcmp(a->topic, b->topic);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

bool mill_txn_set_has(const struct mill_txn_set *set, const struct mill_txn_partition *partition)
{
    return set && bsearch(partition, set->items, set->count, sizeof(*partition), compare) != NULL;
}

/* Sorts, and leaves each once. ret: how many there are. */
static uint32_t sort_unique(struct mill_txn_partition *items, uint32_t count)
{
    uint32_t kept = 0;
    qsort(items, count, sizeof(*items), compare);
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || compare(&items[kept - 1], &items[i]) != 0) {
            items[kept++] = items[i];
        }
    }
    return kept;
}

/* The old ones and those of items from old's count on into items; both are sorted, each once. ret:
 * how many there are. A turn of control may join many times with a large old set: it is not sorted
 * again. */
static uint32_t merge(const struct mill_txn_set *old, struct mill_txn_partition *items,
                      uint32_t added_count)
{
    /* What is written never passes what is still to be read. */
    const struct mill_txn_partition *added = items + (old ? old->count : 0);
    const struct mill_txn_partition *added_end = added + added_count;
    uint32_t count = 0;
    for (uint32_t i = 0; old && i < old->count; i++) {
        int order = -1;
        while (added < added_end && (order = compare(added, &old->items[i])) < 0) {
            items[count++] = *added++;
        }
#ifndef MILL_MUTANT_TXN_SET_TWICE
        added += added < added_end && order == 0;
#endif
        items[count++] = old->items[i];
    }
    while (added < added_end) {
        items[count++] = *added++;
    }
    return count;
}

/* True when the item is of the same topic as the one before it, and shares its name. */
static bool same_topic(const struct mill_txn_partition *items, uint32_t index)
{
    return index > 0 && (items[index - 1].topic == items[index].topic ||
                         strcmp(items[index - 1].topic, items[index].topic) == 0);
}

static struct mill_txn_set *set_new(const struct mill_txn_partition *items, uint32_t count)
{
    size_t names_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        names_bytes += same_topic(items, i) ? 0 : strlen(items[i].topic) + 1;
    }
    size_t size_bytes = sizeof(struct mill_txn_set) + count * sizeof(*items) + names_bytes;
    struct mill_txn_set *set = malloc(size_bytes);
    if (!set) {
        return NULL;
    }
    *set = (struct mill_txn_set){.count = count, .size_bytes = (uint32_t)size_bytes};
    char *names = (char *)&set->items[count];
    for (uint32_t i = 0; i < count; i++) {
        set->items[i] = items[i];
        if (same_topic(items, i)) {
            set->items[i].topic = set->items[i - 1].topic;
        } else {
            size_t length = strlen(items[i].topic) + 1;
            set->items[i].topic = memcpy(names, items[i].topic, length);
            names += length;
        }
    }
    return set;
}

int mill_txn_set_join(const struct mill_txn_set *old, const struct mill_txn_partition *added,
                      uint32_t added_count, struct mill_txn_set **ret_set)
{
    uint32_t old_count = old ? old->count : 0;
    if (added_count > MILL_TXN_PARTITIONS_MAX) {
        return -E2BIG;
    }
    struct mill_txn_partition *items = calloc((size_t)old_count + added_count + 1, sizeof(*items));
    if (!items) {
        return -ENOMEM;
    }
    if (added_count > 0) {
        memcpy(items + old_count, added, added_count * sizeof(*items));
    }
    uint32_t count = merge(old, items, sort_unique(items + old_count, added_count));
    struct mill_txn_set *set = count <= MILL_TXN_PARTITIONS_MAX ? set_new(items, count) : NULL;
    free(items);
    if (!set) {
        return count > MILL_TXN_PARTITIONS_MAX ? -E2BIG : -ENOMEM;
    }
    *ret_set = set;
    return 0;
}
