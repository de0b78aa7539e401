/* SPDX-License-Identifier: Apache-2.0 */
/* The store's own page-cache policy: what was written is written back and dropped by helpers,
 * oldest partition first, so that log files hold a bounded part of the machine's memory and their
 * data reaches the disk evenly (docs/decisions/0022). The tail's readers have it in extents.
 *
 *   append -> cached_bytes -> above the soft limit: oldest partition's range to a helper -> dropped
 *                          -> above the hard limit: writes pause until a helper is done
 *
 * The store's thread only. */
#include "dataplane/store/store_types.h"

#include <errno.h>

enum {
    PAGE_BYTES = 4096, /* a file's last page stays: the next append needs it */
};

/* --- lists ----------------------------------------------------------------------------------- */

void mill_store_link_init(struct store_link *head)
{
    head->next = head;
    head->prev = head;
}

bool mill_store_link_empty(const struct store_link *head)
{
    return head->next == head;
}

void mill_store_link_remove(struct store_link *node)
{
    if (node->next) {
        node->prev->next = node->next;
        node->next->prev = node->prev;
        *node = (struct store_link){0};
    }
}

void mill_store_link_add(struct store_link *head, struct store_link *node)
{
    mill_store_link_remove(node);
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* --- the policy ------------------------------------------------------------------------------ */

void mill_store_forget(const struct mill_store *store, int file, uint64_t pos_bytes,
                       uint64_t size_bytes)
{
    /* Whole pages of the range; the one that it ends in belongs to the next read, too. */
    uint64_t from = pos_bytes / PAGE_BYTES * PAGE_BYTES;
    uint64_t to = (pos_bytes + size_bytes) / PAGE_BYTES * PAGE_BYTES;
    if (store->calls->uncache && to > from) {
        int r =
            store->calls->uncache(store->calls->context, file, from, to - from, MILL_UNCACHE_CLEAN);
        MILL_UNUSED(r); /* nothing is written: advice */
    }
}

void mill_store_cached(struct mill_store *store, struct store_partition *partition,
                       uint32_t size_bytes)
{
    if (!store->calls->uncache) {
        return;
    }
    uint64_t bytes = size_bytes;
    if (!partition->cached.next) {
        bytes += PAGE_BYTES; /* what is begun counts whole */
        mill_store_link_add(&store->cached, &partition->cached);
    }
    partition->cached_bytes += bytes;
    store->cached_bytes += bytes;
}

static void uncount(struct mill_store *store, struct store_partition *partition)
{
    store->cached_bytes -= partition->cached_bytes;
    partition->cached_bytes = 0;
    mill_store_link_remove(&partition->cached);
}

void mill_store_cached_end(struct mill_store *store, struct store_partition *partition)
{
    const struct store_segment *segment = &partition->segments[partition->segments_count - 1];
    for (uint32_t kind = 0; store->calls->uncache && kind < STORE_FILE_KINDS; kind++) {
        const struct store_file *open =
            mill_store_file_slot(store, partition, segment, (enum store_file_kind)kind);
        if (!open) {
            continue;
        }
        /* To the end: the last page is no longer needed either. */
        int r = store->calls->uncache(store->calls->context, open->file, 0, 0, MILL_UNCACHE_CLEAN);
        MILL_UNUSED(r); /* advice */
    }
    uncount(store, partition);
    partition->cached_from = 0;
}

void mill_store_cached_drop(struct mill_store *store, struct store_partition *partition)
{
    uncount(store, partition);
    mill_store_link_remove(&partition->paused);
}

bool mill_store_cached_full(const struct mill_store *store)
{
    return store->config.cached_max_bytes > 0 &&
           store->cached_bytes >= store->config.cached_max_bytes;
}

/* Moves the oldest partitions into one job: many small ranges are written side by side. */
static void gather(struct mill_store *store, struct store_job *job, uint64_t soft)
{
    while (store->cached_bytes - store->dropping_bytes > soft / 2 &&
           !mill_store_link_empty(&store->cached)) {
        struct store_partition *partition =
            MILL_CONTAINER_OF(store->cached.next, struct store_partition, cached);
        const struct store_segment *segment = &partition->segments[partition->segments_count - 1];
        uint64_t to = segment->log_bytes / PAGE_BYTES * PAGE_BYTES;
        uint64_t from = partition->cached_from;
        uint64_t bytes = partition->cached_bytes;
        if (to > from && !mill_store_drop_add(store, job, partition, from, to - from, bytes)) {
            return;
        }
        if (to <= from) {
            store->cached_bytes -= bytes; /* its only page stays */
        }
        mill_store_link_remove(&partition->cached);
        partition->cached_bytes = 0;
        partition->cached_from = MILL_MAX(from, to);
    }
}

void mill_store_cached_run(struct mill_store *store)
{
    uint64_t soft = store->config.cached_max_bytes / 4;
    while (soft > 0 && store->cached_bytes - store->dropping_bytes > soft &&
           store->jobs < mill_store_jobs_max(store)) {
        struct store_job *job = mill_store_drop_make(store);
        if (!job) {
            return; /* no memory: the kernel writes it, and later appends come back to it */
        }
        gather(store, job, soft);
        if (!mill_store_drop_begin(store, job)) {
            return; /* helpers use as many files as they may */
        }
    }
}
