/* SPDX-License-Identifier: Apache-2.0 */
/* Open files of a store (bounded, least recently used closed first) and whole reads and writes over
 * the table of file calls. The store's thread only. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const suffixes[STORE_FILE_KINDS] = {"log", "index", "timeindex", "txnindex"};

int mill_store_files_init(struct mill_store *store)
{
    store->files = calloc(store->config.open_files_max, sizeof(store->files[0]));
    store->window = malloc(STORE_WINDOW_BYTES);
    store->window_file = -1;
    if (!store->files || !store->window) {
        return -ENOMEM;
    }
    store->files_oldest = STORE_NO_FILE;
    store->files_newest = STORE_NO_FILE;
    store->files_free = STORE_NO_FILE;
    for (uint32_t i = 0; i < store->config.open_files_max; i++) {
        store->files[i] = (struct store_file){.file = -1, .newer = store->files_free};
        store->files_free = i;
    }
    return 0;
}

/* --- order of use: oldest .. newest; free slots are a list of their own ----------------------- */

static void order_leave(struct mill_store *store, struct store_file *slot)
{
    if (slot->older == STORE_NO_FILE) {
        store->files_oldest = slot->newer;
    } else {
        store->files[slot->older].newer = slot->newer;
    }
    if (slot->newer == STORE_NO_FILE) {
        store->files_newest = slot->older;
    } else {
        store->files[slot->newer].older = slot->older;
    }
}

static void order_join(struct mill_store *store, struct store_file *slot)
{
    uint32_t index = (uint32_t)(slot - store->files);
    slot->older = store->files_newest;
    slot->newer = STORE_NO_FILE;
    if (store->files_newest == STORE_NO_FILE) {
        store->files_oldest = index;
    } else {
        store->files[store->files_newest].newer = index;
    }
    store->files_newest = index;
}

static void close_slot(struct mill_store *store, struct store_file *slot)
{
    const struct mill_file_calls *files = store->calls;
    if (store->window_file == slot->file) {
        store->window_file = -1;
    }
    /* What was written is in the page cache; an error of close tells nothing that sync does not. */
    int r = files->close(files->context, slot->file);
    MILL_UNUSED(r);
    slot->file = -1;
    slot->newer = store->files_free;
    store->files_free = (uint32_t)(slot - store->files);
}

/* Out of its segment's hands; a helper that still uses the descriptor keeps it open. */
static void slot_end(struct mill_store *store, struct store_file *slot)
{
    order_leave(store, slot);
    slot->partition = NULL;
#ifdef MILL_MUTANT_STORE_PIN_IGNORED
    close_slot(store, slot);
    return;
#endif
    if (slot->pins == 0) {
        close_slot(store, slot);
    }
}

struct store_file *mill_store_file_slot(struct mill_store *store,
                                        const struct store_partition *partition,
                                        const struct store_segment *segment,
                                        enum store_file_kind kind)
{
    if (segment->files[kind] < 0) {
        return NULL;
    }
    struct store_file *slot = &store->files[segment->files[kind]];
#ifdef MILL_MUTANT_STORE_SLOT_BELIEVED
    return slot;
#endif
    bool same = slot->file >= 0 && slot->partition == partition &&
                slot->segment == segment->base_offset && slot->kind == kind;
    return same ? slot : NULL;
}

struct store_file *mill_store_file_pin(struct mill_store *store,
                                       const struct store_partition *partition,
                                       const struct store_segment *segment,
                                       enum store_file_kind kind)
{
    struct store_file *slot = mill_store_file_slot(store, partition, segment, kind);
    MILL_ASSERT(slot != NULL);
    store->pinned += slot->pins == 0 ? 1 : 0;
    slot->pins++;
    return slot;
}

void mill_store_file_unpin(struct mill_store *store, struct store_file *slot)
{
    MILL_ASSERT(slot->pins > 0);
    slot->pins--;
    store->pinned -= slot->pins == 0 ? 1 : 0;
    if (slot->pins == 0 && !slot->partition) {
        close_slot(store, slot);
    }
}

void mill_store_files_fini(struct mill_store *store)
{
    for (uint32_t i = 0; store->files && i < store->config.open_files_max; i++) {
        if (store->files[i].file >= 0) {
            close_slot(store, &store->files[i]);
        }
    }
    free(store->files);
    free(store->window);
}

void mill_store_segment_path(const struct store_partition *partition, int64_t base_offset,
                             enum store_file_kind kind, char *ret_path, size_t capacity)
{
    snprintf(ret_path, capacity, "%s/%020" PRId64 ".%s", partition->path, base_offset,
             suffixes[kind]);
}

/* A slot without a file; the least recently used one that no helper uses gives way. */
static struct store_file *slot_free(struct mill_store *store)
{
    for (uint32_t i = store->files_oldest;
         store->files_free == STORE_NO_FILE && i != STORE_NO_FILE;) {
        struct store_file *slot = &store->files[i];
        i = slot->newer;
        if (slot->pins > 0) {
            continue;
        }
        struct store_segment *segment = mill_store_segment_of(slot->partition, slot->segment);
        if (segment && segment->base_offset == slot->segment) {
            segment->files[slot->kind] = -1;
        }
        slot_end(store, slot);
    }
    MILL_ASSERT(store->files_free != STORE_NO_FILE); /* pins are bounded: jobs.c */
    struct store_file *slot = &store->files[store->files_free];
    store->files_free = slot->newer;
    return slot;
}

int mill_store_file(struct mill_store *store, struct store_partition *partition,
                    struct store_segment *segment, enum store_file_kind kind)
{
    const struct mill_file_calls *files = store->calls;
    struct store_file *open = mill_store_file_slot(store, partition, segment, kind);
    if (open) {
        order_leave(store, open);
        order_join(store, open);
        return open->file;
    }
    char path[STORE_PATH_BYTES];
    mill_store_segment_path(partition, segment->base_offset, kind, path, sizeof(path));
    int file =
        files->open(files->context, path, MILL_FILE_READ | MILL_FILE_WRITE | MILL_FILE_CREATE);
    if (file < 0) {
        return file;
    }
    struct store_file *slot = slot_free(store);
    *slot = (struct store_file){
        .file = file, .partition = partition, .segment = segment->base_offset, .kind = kind};
    order_join(store, slot);
    segment->files[kind] = (int32_t)(slot - store->files);
    return file;
}

void mill_store_file_close(struct mill_store *store, const struct store_partition *partition,
                           struct store_segment *segment)
{
    for (uint32_t kind = 0; kind < STORE_FILE_KINDS; kind++) {
        struct store_file *open =
            mill_store_file_slot(store, partition, segment, (enum store_file_kind)kind);
        if (open) {
            slot_end(store, open);
        }
        segment->files[kind] = -1;
    }
}

int mill_store_write_all(const struct mill_file_calls *files, int file, const void *bytes,
                         size_t size_bytes, uint64_t pos_bytes)
{
    size_t done = 0;
    while (done < size_bytes) {
        struct iovec part = {.iov_base = (uint8_t *)(uintptr_t)bytes + done,
                             .iov_len = size_bytes - done};
        ssize_t r = files->write_at(files->context, file, &part, 1, pos_bytes + done);
        if (r <= 0) {
            return r < 0 ? (int)r : -EIO;
        }
        done += (size_t)r;
    }
    return 0;
}

int mill_store_read_all(const struct mill_file_calls *files, int file, void *to, size_t size_bytes,
                        uint64_t pos_bytes)
{
    size_t done = 0;
    while (done < size_bytes) {
        ssize_t r = files->read_at(files->context, file, (uint8_t *)to + done, size_bytes - done,
                                   pos_bytes + done);
        if (r <= 0) {
            return r < 0 ? (int)r : -EIO;
        }
        done += (size_t)r;
    }
    return 0;
}

const uint8_t *mill_store_peek(struct mill_store *store, int file, uint64_t pos_bytes,
                               uint32_t size_bytes, uint32_t ahead_bytes, uint64_t end_bytes,
                               int *ret_error)
{
    bool there = store->window_file == file && pos_bytes >= store->window_pos &&
                 pos_bytes + size_bytes <= store->window_pos + store->window_bytes;
    if (!there) {
        uint64_t ahead = MILL_MAX(size_bytes, ahead_bytes);
        uint32_t want = (uint32_t)MILL_MIN(ahead, end_bytes - pos_bytes);
        store->window_file = -1;
        *ret_error = mill_store_read_all(store->calls, file, store->window, want, pos_bytes);
        if (*ret_error < 0) {
            return NULL;
        }
        /* A walk over old segments must not fill the page cache with them. */
        mill_store_forget(store, file, pos_bytes, want);
        store->window_file = file;
        store->window_pos = pos_bytes;
        store->window_bytes = want;
    }
    return store->window + (pos_bytes - store->window_pos);
}

int mill_store_read_text(const struct mill_file_calls *files, const char *path, char *ret_text,
                         size_t capacity)
{
    int file = files->open(files->context, path, MILL_FILE_READ);
    if (file < 0) {
        return file;
    }
    int64_t size = files->size(files->context, file);
    int r = size < 0 ? (int)size : (size_t)size >= capacity ? -EFBIG : 0;
    r = r < 0 ? r : mill_store_read_all(files, file, ret_text, (size_t)size, 0);
    int closed = files->close(files->context, file);
    MILL_UNUSED(closed); /* nothing was written */
    if (r < 0) {
        return r;
    }
    ret_text[size] = '\0';
    return (int)size;
}

int mill_store_read_whole(const struct mill_file_calls *files, const char *path, size_t max_bytes,
                          char **ret_text)
{
    int file = files->open(files->context, path, MILL_FILE_READ);
    if (file < 0) {
        return file;
    }
    int64_t size = files->size(files->context, file);
    int r = size < 0 ? (int)size : size > INT_MAX || (size_t)size > max_bytes ? -EFBIG : 0;
    char *text = r < 0 ? NULL : malloc((size_t)size + 1);
    if (text) {
        r = mill_store_read_all(files, file, text, (size_t)size, 0);
        text[size] = '\0';
    }
    int closed = files->close(files->context, file);
    MILL_UNUSED(closed); /* nothing was written */
    if (!text || r < 0) {
        free(text);
        return r < 0 ? r : -ENOMEM;
    }
    *ret_text = text;
    return (int)size;
}

int mill_store_write_aside(const struct mill_file_calls *files, const char *dir, const char *name,
                           const void *bytes, size_t size_bytes, bool durable)
{
    char path[STORE_PATH_BYTES];
    char aside[STORE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(aside, sizeof(aside), "%s/%s.tmp", dir, name);
    int file =
        files->open(files->context, aside,
                    MILL_FILE_READ | MILL_FILE_WRITE | MILL_FILE_CREATE | MILL_FILE_TRUNCATE);
    if (file < 0) {
        return file;
    }
    int r = mill_store_write_all(files, file, bytes, size_bytes, 0);
    r = r == 0 && durable ? files->sync(files->context, file) : r;
    int closed = files->close(files->context, file);
    r = r < 0 ? r : closed;
    r = r < 0 ? r : files->rename(files->context, aside, path);
    return r < 0 || !durable ? r : files->sync_dir(files->context, dir);
}

int mill_store_write_text(const struct mill_file_calls *files, const char *dir, const char *name,
                          const char *text)
{
    return mill_store_write_aside(files, dir, name, text, strlen(text), true);
}
