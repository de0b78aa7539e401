/* SPDX-License-Identifier: Apache-2.0 */
/* The modelled disk; see disk_model.h. Paths are kept as they are named; a directory is an entry of
 * its own. */
#include "tests/sim/disk_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENTRIES_MAX = 512,
    FILES_MAX = 512,
    PATH_BYTES = 512,
};

struct entry {
    char path[PATH_BYTES]; /* empty: free */
    bool dir;
    uint8_t *bytes;
    uint64_t size;
    uint64_t capacity;
    uint8_t *synced; /* what a crash keeps for certain */
    uint64_t synced_size;
};

struct disk_model {
    struct mill_file_calls calls;
    struct disk_model_faults faults;
    struct disk_model_counts counts;
    struct mill_random random;
    struct entry entries[ENTRIES_MAX];
    int files[FILES_MAX]; /* descriptor -> entry, -1 closed */
};

static struct entry *entry_find(struct disk_model *disk, const char *path)
{
    for (uint32_t i = 0; i < ENTRIES_MAX; i++) {
        if (disk->entries[i].path[0] && strcmp(disk->entries[i].path, path) == 0) {
            return &disk->entries[i];
        }
    }
    return NULL;
}

static bool parent_there(struct disk_model *disk, const char *path)
{
    char parent[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) {
        return true;
    }
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    const struct entry *entry = entry_find(disk, parent);
    return entry && entry->dir;
}

static struct entry *entry_make(struct disk_model *disk, const char *path, bool dir)
{
    for (uint32_t i = 0; i < ENTRIES_MAX && strlen(path) < PATH_BYTES; i++) {
        struct entry *entry = &disk->entries[i];
        if (!entry->path[0]) {
            *entry = (struct entry){.dir = dir};
            strcpy(entry->path, path);
            return entry;
        }
    }
    return NULL;
}

static void entry_drop(struct entry *entry)
{
    free(entry->bytes);
    free(entry->synced);
    *entry = (struct entry){0};
}

static int entry_resize(struct entry *entry, uint64_t size)
{
    if (size > entry->capacity) {
        uint64_t capacity = size * 2;
        uint8_t *grown = realloc(entry->bytes, capacity);
        if (!grown) {
            return -ENOMEM;
        }
        entry->bytes = grown;
        entry->capacity = capacity;
    }
    if (size > entry->size) {
        memset(entry->bytes + entry->size, 0, size - entry->size);
    }
    entry->size = size;
    return 0;
}

static int model_open(void *context, const char *path, uint32_t flags)
{
    struct disk_model *disk = context;
    struct entry *entry = entry_find(disk, path);
    if (entry && entry->dir) {
        return -EISDIR;
    }
    if (entry && (flags & MILL_FILE_EXCLUSIVE)) {
        return -EEXIST;
    }
    if (!entry && (!(flags & MILL_FILE_CREATE) || !parent_there(disk, path))) {
        return -ENOENT;
    }
    if (!entry) {
        entry = entry_make(disk, path, false);
    }
    if (!entry) {
        return -ENFILE;
    }
    if (flags & MILL_FILE_TRUNCATE) {
        entry->size = 0;
    }
    for (int file = 0; file < FILES_MAX; file++) {
        if (disk->files[file] < 0) {
            disk->files[file] = (int)(entry - disk->entries);
            disk->counts.open_now++;
            disk->counts.open_most = MILL_MAX(disk->counts.open_most, disk->counts.open_now);
            return file;
        }
    }
    return -EMFILE;
}

static struct entry *entry_of(struct disk_model *disk, int file)
{
    bool open = file >= 0 && file < FILES_MAX && disk->files[file] >= 0;
    return open ? &disk->entries[disk->files[file]] : NULL;
}

static int model_close(void *context, int file)
{
    struct disk_model *disk = context;
    if (!entry_of(disk, file)) {
        return -EBADF;
    }
    disk->files[file] = -1;
    disk->counts.open_now--;
    return 0;
}

static ssize_t model_read(void *context, int file, void *to, size_t size, uint64_t pos)
{
    struct disk_model *disk = context;
    const struct entry *entry = entry_of(disk, file);
    if (!entry || disk->faults.read_error) {
        return entry ? disk->faults.read_error : -EBADF;
    }
    uint64_t part = pos >= entry->size ? 0 : MILL_MIN((uint64_t)size, entry->size - pos);
    memcpy(to, part ? entry->bytes + pos : to, part);
    disk->counts.bytes_read += part;
    return (ssize_t)part;
}

static ssize_t model_write(void *context, int file, const struct iovec *parts, int count,
                           uint64_t pos)
{
    struct disk_model *disk = context;
    struct disk_model_faults *faults = &disk->faults;
    struct entry *entry = entry_of(disk, file);
    if (!entry) {
        return -EBADF;
    }
    if (faults->write_error) {
        if (faults->writes_until_error == 0) {
            return faults->write_error;
        }
        faults->writes_until_error--;
    }
    uint64_t size = count > 0 ? parts[0].iov_len : 0;
    if (faults->short_writes && size > 1) {
        size = 1 + mill_random_below(&disk->random, (uint32_t)size);
    }
    uint64_t growth = pos + size > entry->size ? pos + size - entry->size : 0;
    if (growth > faults->space_bytes) {
        /* What fits is written, as a file system does; with no room at all it says so. */
        uint64_t over = growth - faults->space_bytes;
        if (over >= size) {
            return -ENOSPC;
        }
        size -= over;
        growth = faults->space_bytes;
    }
    if (entry_resize(entry, MILL_MAX(entry->size, pos + size)) < 0) {
        return -ENOMEM;
    }
    if (faults->space_bytes != UINT64_MAX) {
        faults->space_bytes -= growth;
    }
    memcpy(entry->bytes + pos, parts[0].iov_base, size);
    disk->counts.writes++;
    disk->counts.bytes_written += size;
    return (ssize_t)size;
}

static int64_t model_size(void *context, int file)
{
    const struct entry *entry = entry_of(context, file);
    return entry ? (int64_t)entry->size : -EBADF;
}

static int model_truncate(void *context, int file, uint64_t size)
{
    struct entry *entry = entry_of(context, file);
    return entry ? entry_resize(entry, size) : -EBADF;
}

static int entry_sync(struct entry *entry)
{
    free(entry->synced);
    entry->synced = malloc(entry->size + 1);
    if (!entry->synced) {
        return -ENOMEM;
    }
    memcpy(entry->synced, entry->size ? entry->bytes : entry->synced, entry->size);
    entry->synced_size = entry->size;
    return 0;
}

static int model_sync(void *context, int file)
{
    struct disk_model *disk = context;
    struct entry *entry = entry_of(disk, file);
    if (!entry || disk->faults.sync_error) {
        return entry ? disk->faults.sync_error : -EBADF;
    }
    disk->counts.syncs++;
    return entry_sync(entry);
}

static int model_sync_all(void *context, const char *path)
{
    struct disk_model *disk = context;
    int r = entry_find(disk, path) ? disk->faults.sync_error : -ENOENT;
    for (uint32_t i = 0; r == 0 && i < ENTRIES_MAX; i++) {
        struct entry *entry = &disk->entries[i];
        r = entry->path[0] && !entry->dir ? entry_sync(entry) : 0;
    }
    return r;
}

static int model_sync_dir(void *context, const char *path)
{
    struct disk_model *disk = context;
    return entry_find(disk, path) ? disk->faults.sync_error : -ENOENT;
}

static int model_make_dir(void *context, const char *path)
{
    struct disk_model *disk = context;
    if (entry_find(disk, path)) {
        return -EEXIST;
    }
    if (!parent_there(disk, path)) {
        return -ENOENT;
    }
    return entry_make(disk, path, true) ? 0 : -ENOSPC;
}

static int model_remove_file(void *context, const char *path)
{
    struct entry *entry = entry_find(context, path);
    if (!entry || entry->dir) {
        return entry ? -EISDIR : -ENOENT;
    }
    entry_drop(entry);
    return 0;
}

static bool below(const char *path, const char *dir)
{
    size_t length = strlen(dir);
    return strncmp(path, dir, length) == 0 && path[length] == '/';
}

static int model_remove_dir(void *context, const char *path)
{
    struct disk_model *disk = context;
    struct entry *entry = entry_find(disk, path);
    for (uint32_t i = 0; entry && i < ENTRIES_MAX; i++) {
        if (below(disk->entries[i].path, path)) {
            return -ENOTEMPTY;
        }
    }
    if (!entry || !entry->dir) {
        return entry ? -ENOTDIR : -ENOENT;
    }
    entry_drop(entry);
    return 0;
}

static int model_rename(void *context, const char *from, const char *to)
{
    struct disk_model *disk = context;
    struct entry *entry = entry_find(disk, from);
    struct entry *old = entry_find(disk, to);
    if (!entry) {
        return -ENOENT;
    }
    if (old && old != entry) {
        entry_drop(old);
    }
    for (uint32_t i = 0; i < ENTRIES_MAX; i++) {
        char moved[2 * PATH_BYTES];
        struct entry *each = &disk->entries[i];
        if (each != entry && !below(each->path, from)) {
            continue;
        }
        strcpy(moved, to);
        strcat(moved, each->path + strlen(from));
        if (strlen(moved) >= PATH_BYTES) {
            return -ENAMETOOLONG;
        }
        strcpy(each->path, moved);
    }
    return 0;
}

static int model_list(void *context, const char *path,
                      int (*each)(void *each_context, const char *name), void *each_context)
{
    struct disk_model *disk = context;
    if (!entry_find(disk, path)) {
        return -ENOENT;
    }
    for (uint32_t i = 0; i < ENTRIES_MAX; i++) {
        char name[PATH_BYTES];
        if (!below(disk->entries[i].path, path)) {
            continue;
        }
        strcpy(name, disk->entries[i].path + strlen(path) + 1);
        int r = strchr(name, '/') ? 0 : each(each_context, name);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

struct disk_model *disk_model_new(uint64_t seed)
{
    struct disk_model *disk = calloc(1, sizeof(*disk));
    if (!disk) {
        return NULL;
    }
    disk->random.state = seed;
    disk->faults.space_bytes = UINT64_MAX;
    memset(disk->files, 0xff, sizeof(disk->files)); /* -1 everywhere */
    disk->calls = (struct mill_file_calls){
        .context = disk,
        .open = model_open,
        .close = model_close,
        .read_at = model_read,
        .write_at = model_write,
        .size = model_size,
        .truncate = model_truncate,
        .sync = model_sync,
        .sync_dir = model_sync_dir,
        .sync_all = model_sync_all,
        .make_dir = model_make_dir,
        .remove_file = model_remove_file,
        .remove_dir = model_remove_dir,
        .rename = model_rename,
        .list = model_list,
    };
    return disk;
}

void disk_model_free(struct disk_model *disk)
{
    for (uint32_t i = 0; disk && i < ENTRIES_MAX; i++) {
        entry_drop(&disk->entries[i]);
    }
    free(disk);
}

const struct mill_file_calls *disk_model_calls(struct disk_model *disk)
{
    return &disk->calls;
}

struct disk_model_faults *disk_model_faults(struct disk_model *disk)
{
    return &disk->faults;
}

const struct disk_model_counts *disk_model_counts(const struct disk_model *disk)
{
    return &disk->counts;
}

void disk_model_crash(struct disk_model *disk)
{
    for (uint32_t i = 0; i < ENTRIES_MAX; i++) {
        struct entry *entry = &disk->entries[i];
        if (!entry->path[0] || entry->dir) {
            continue;
        }
        uint64_t kept = MILL_MIN(entry->synced_size, entry->size);
        uint64_t later = entry->size - kept;
        if (kept > 0) {
            memcpy(entry->bytes, entry->synced, kept);
        }
        entry->size = kept + (later ? mill_random_below(&disk->random, (uint32_t)later + 1) : 0);
    }
    memset(disk->files, 0xff, sizeof(disk->files));
    disk->counts.open_now = 0;
}

const uint8_t *disk_model_bytes(struct disk_model *disk, const char *path, uint64_t *ret_size)
{
    const struct entry *entry = entry_find(disk, path);
    if (!entry || entry->dir) {
        return NULL;
    }
    *ret_size = entry->size;
    return entry->bytes ? entry->bytes : (const uint8_t *)"";
}
