/* SPDX-License-Identifier: Apache-2.0 */
/* The modelled disk; see disk_model.h. Nodes are counted by the names and descriptors that hold
 * them, on the disk, waiting and as they are read, so that a cut can bring back what was removed.
 */
#include "tests/sim/disk_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILES_MAX = 4096,
    NAME_BYTES = 256,
};

struct node;

struct name {
    char *text;
    struct node *node;
};

struct names {
    struct name *items;
    uint32_t count;
    uint32_t capacity;
};

/* One change of a directory: from goes, to becomes the node. Either may be missing. */
struct change {
    char *from;
    char *to;
    struct node *node;
};

struct node {
    uint32_t holders;
    uint64_t number;
    bool dir;
    /* A directory. */
    struct names synced_names;
    struct names names;
    struct change *changes;
    uint32_t changes_count;
    uint32_t changes_capacity;
    /* A file. */
    uint8_t *bytes;
    uint64_t size;
    uint64_t capacity;
    uint8_t *synced;
    uint64_t synced_size;
    uint64_t synced_capacity;
    uint64_t differs_from; /* the range in which bytes and synced differ; empty: from >= to */
    uint64_t differs_to;
};

struct disk_model {
    struct mill_file_calls calls;
    struct disk_model_faults faults;
    struct disk_model_counts counts;
    struct mill_random random;
    struct node *root;
    uint64_t numbers;
    bool cut;
    struct node *files[FILES_MAX]; /* by descriptor */
};

/* --- nodes and names ------------------------------------------------------------------------- */

static void *must(void *memory)
{
    if (!memory) {
        abort(); /* a test without memory has no result */
    }
    return memory;
}

static struct node *node_new(struct disk_model *disk, bool dir)
{
    struct node *node = must(calloc(1, sizeof(*node)));
    node->dir = dir;
    node->number = ++disk->numbers;
    node->differs_from = UINT64_MAX;
    return node;
}

static void names_clear(struct names *names);

static void changes_clear(struct node *node);

static struct node *hold(struct node *node)
{
    if (node) {
        node->holders++;
    }
    return node;
}

static void let_go(struct node *node)
{
    if (!node || --node->holders > 0) {
        return;
    }
    names_clear(&node->synced_names);
    names_clear(&node->names);
    changes_clear(node);
    free(node->bytes);
    free(node->synced);
    free(node);
}

static void names_clear(struct names *names)
{
    for (uint32_t i = 0; i < names->count; i++) {
        free(names->items[i].text);
        let_go(names->items[i].node);
    }
    free(names->items);
    *names = (struct names){0};
}

static void changes_clear(struct node *node)
{
    for (uint32_t i = 0; i < node->changes_count; i++) {
        free(node->changes[i].from);
        free(node->changes[i].to);
        let_go(node->changes[i].node);
    }
    free(node->changes);
    node->changes = NULL;
    node->changes_count = node->changes_capacity = 0;
}

static struct name *names_find(const struct names *names, const char *text)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->items[i].text, text) == 0) {
            return &names->items[i];
        }
    }
    return NULL;
}

static void names_remove(struct names *names, const char *text)
{
    struct name *name = names_find(names, text);
    if (name) {
        free(name->text);
        let_go(name->node);
        *name = names->items[--names->count];
    }
}

static void names_set(struct names *names, const char *text, struct node *node)
{
    struct name *name = names_find(names, text);
    hold(node);
    if (name) {
        let_go(name->node);
        name->node = node;
        return;
    }
    if (names->count == names->capacity) {
        names->capacity = MILL_MAX(8u, names->capacity * 2);
        names->items = must(realloc(names->items, names->capacity * sizeof(names->items[0])));
    }
    names->items[names->count++] = (struct name){.text = must(strdup(text)), .node = node};
}

static void change_apply(struct names *names, const struct change *change)
{
    if (change->from) {
        names_remove(names, change->from);
    }
    if (change->to) {
        names_set(names, change->to, change->node);
    }
}

/* Changes a directory for its readers; the disk follows with a sync. */
static void change_make(struct node *dir, const char *from, const char *to, struct node *node)
{
    if (dir->changes_count == dir->changes_capacity) {
        dir->changes_capacity = MILL_MAX(8u, dir->changes_capacity * 2);
        dir->changes = must(realloc(dir->changes, dir->changes_capacity * sizeof(dir->changes[0])));
    }
    struct change *change = &dir->changes[dir->changes_count++];
    *change = (struct change){.from = from ? must(strdup(from)) : NULL,
                              .to = to ? must(strdup(to)) : NULL,
                              .node = hold(node)};
    change_apply(&dir->names, change);
}

static void dir_sync(struct node *dir, uint32_t changes)
{
    for (uint32_t i = 0; i < changes; i++) {
        change_apply(&dir->synced_names, &dir->changes[i]);
    }
    changes_clear(dir);
}

/* The directory of a path and the last name in it. ret: NULL when a part of the way is missing. */
static struct node *parent_of(const struct disk_model *disk, const char *path,
                              char ret_name[NAME_BYTES])
{
    struct node *dir = disk->root;
    for (;;) {
        path += strspn(path, "/");
        size_t length = strcspn(path, "/");
        if (!dir->dir || length >= NAME_BYTES) {
            return NULL;
        }
        memcpy(ret_name, path, length);
        ret_name[length] = '\0';
        path += length;
        if (path[strspn(path, "/")] == '\0') {
            return dir;
        }
        struct name *name = names_find(&dir->names, ret_name);
        if (!name) {
            return NULL;
        }
        dir = name->node;
    }
}

static struct node *node_find(const struct disk_model *disk, const char *path)
{
    char text[NAME_BYTES];
    struct node *dir = parent_of(disk, path, text);
    if (!dir || !text[0]) {
        return dir;
    }
    struct name *name = names_find(&dir->names, text);
    return name ? name->node : NULL;
}

/* --- the power ------------------------------------------------------------------------------- */

/* Each call begins here. ret: false: the power is gone. *ret_late: it goes at the end of the call.
 */
static bool powered(struct disk_model *disk, bool *ret_late)
{
    disk->counts.calls++;
    *ret_late = false;
    if (disk->cut) {
        return false;
    }
    if (disk->faults.calls_until_cut != UINT64_MAX && disk->faults.calls_until_cut-- == 0) {
        disk->faults.calls_until_cut = UINT64_MAX;
        disk->cut = true;
        *ret_late = mill_random_below(&disk->random, 2) == 0;
        return *ret_late;
    }
    return true;
}

/* --- files ----------------------------------------------------------------------------------- */

static void grow(uint8_t **bytes, uint64_t *capacity, uint64_t size)
{
    if (size > *capacity) {
        *capacity = MILL_MAX(size, MILL_MIN(*capacity * 2, *capacity + (16 << 20)));
        *bytes = must(realloc(*bytes, *capacity));
    }
}

static void differs(struct node *node, uint64_t from, uint64_t to)
{
    node->differs_from = MILL_MIN(node->differs_from, from);
    node->differs_to = MILL_MAX(node->differs_to, to);
}

static void node_resize(struct node *node, uint64_t size)
{
    grow(&node->bytes, &node->capacity, size);
    if (size > node->size) {
        memset(node->bytes + node->size, 0, size - node->size);
    }
    if (size != node->size) {
        differs(node, MILL_MIN(size, node->size), MILL_MAX(size, node->size));
    }
    node->size = size;
}

static void file_sync(struct node *node)
{
    uint64_t from = MILL_MIN(node->differs_from, node->size);
    uint64_t to = MILL_MIN(node->differs_to, node->size);
    grow(&node->synced, &node->synced_capacity, node->size);
    if (from < to) {
        memcpy(node->synced + from, node->bytes + from, to - from);
    }
    node->synced_size = node->size;
    node->differs_from = UINT64_MAX;
    node->differs_to = 0;
}

static int model_open(void *context, const char *path, uint32_t flags)
{
    struct disk_model *disk = context;
    char text[NAME_BYTES];
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    struct node *dir = parent_of(disk, path, text);
    struct node *node = dir ? node_find(disk, path) : NULL;
    if (node && node->dir) {
        return -EISDIR;
    }
    if (node && (flags & MILL_FILE_EXCLUSIVE)) {
        return -EEXIST;
    }
    if (!node && (!(flags & MILL_FILE_CREATE) || !dir)) {
        return -ENOENT;
    }
    if (!node) {
        node = node_new(disk, false);
        change_make(dir, NULL, text, node);
    }
    if (flags & MILL_FILE_TRUNCATE) {
        node_resize(node, 0);
    }
    for (int file = 0; file < FILES_MAX && !late; file++) {
        if (!disk->files[file]) {
            disk->files[file] = hold(node);
            disk->counts.open_now++;
            disk->counts.open_most = MILL_MAX(disk->counts.open_most, disk->counts.open_now);
            return file;
        }
    }
    return late ? -EIO : -EMFILE;
}

static struct node *node_of(struct disk_model *disk, int file)
{
    return file >= 0 && file < FILES_MAX ? disk->files[file] : NULL;
}

static int model_close(void *context, int file)
{
    struct disk_model *disk = context;
    struct node *node = node_of(disk, file);
    if (!node) {
        return -EBADF;
    }
    disk->files[file] = NULL;
    disk->counts.open_now--;
    let_go(node);
    return 0;
}

static ssize_t model_read(void *context, int file, void *to, size_t size, uint64_t pos)
{
    struct disk_model *disk = context;
    const struct node *node = node_of(disk, file);
    bool late;
    if (!powered(disk, &late) || late) {
        return -EIO;
    }
    if (!node || disk->faults.read_error) {
        return node ? disk->faults.read_error : -EBADF;
    }
    uint64_t part = pos >= node->size ? 0 : MILL_MIN((uint64_t)size, node->size - pos);
    memcpy(to, part ? node->bytes + pos : to, part);
    disk->counts.bytes_read += part;
    return (ssize_t)part;
}

static ssize_t model_write(void *context, int file, const struct iovec *parts, int count,
                           uint64_t pos)
{
    struct disk_model *disk = context;
    struct disk_model_faults *faults = &disk->faults;
    struct node *node = node_of(disk, file);
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    if (!node) {
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
    uint64_t growth = pos + size > node->size ? pos + size - node->size : 0;
    if (growth > faults->space_bytes) {
        /* What fits is written, as a file system does; with no room at all it says so. */
        uint64_t over = growth - faults->space_bytes;
        if (over >= size) {
            return -ENOSPC;
        }
        size -= over;
        growth = faults->space_bytes;
    }
    if (pos + size > node->size) {
        node_resize(node, pos + size);
    }
    if (faults->space_bytes != UINT64_MAX) {
        faults->space_bytes -= growth;
    }
    memcpy(node->bytes + pos, parts[0].iov_base, size);
    differs(node, pos, pos + size);
    disk->counts.writes++;
    disk->counts.bytes_written += size;
    return late ? -EIO : (ssize_t)size;
}

static int64_t model_size(void *context, int file)
{
    struct disk_model *disk = context;
    const struct node *node = node_of(disk, file);
    bool late;
    if (!powered(disk, &late) || late) {
        return -EIO;
    }
    return node ? (int64_t)node->size : -EBADF;
}

static int model_truncate(void *context, int file, uint64_t size)
{
    struct disk_model *disk = context;
    struct node *node = node_of(disk, file);
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    if (!node) {
        return -EBADF;
    }
    node_resize(node, size);
    return late ? -EIO : 0;
}

static int model_sync(void *context, int file)
{
    struct disk_model *disk = context;
    struct node *node = node_of(disk, file);
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    if (!node || disk->faults.sync_error) {
        return node ? disk->faults.sync_error : -EBADF;
    }
    disk->counts.syncs++;
    file_sync(node);
    return late ? -EIO : 0;
}

/* --- directories ----------------------------------------------------------------------------- */

static void tree_sync(struct node *node)
{
    if (!node->dir) {
        file_sync(node);
        return;
    }
    dir_sync(node, node->changes_count);
    for (uint32_t i = 0; i < node->names.count; i++) {
        tree_sync(node->names.items[i].node);
    }
}

static int model_sync_all(void *context, const char *path)
{
    struct disk_model *disk = context;
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    int r = node_find(disk, path) ? disk->faults.sync_error : -ENOENT;
    if (r == 0) {
        tree_sync(disk->root);
    }
    return late ? -EIO : r;
}

static int model_sync_dir(void *context, const char *path)
{
    struct disk_model *disk = context;
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    struct node *node = node_find(disk, path);
    int r = node ? disk->faults.sync_error : -ENOENT;
    if (r == 0 && node->dir) {
        dir_sync(node, node->changes_count);
    }
    return late ? -EIO : r;
}

static int model_make_dir(void *context, const char *path)
{
    struct disk_model *disk = context;
    char text[NAME_BYTES];
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    struct node *dir = parent_of(disk, path, text);
    if (!dir || node_find(disk, path)) {
        return dir ? -EEXIST : -ENOENT;
    }
    change_make(dir, NULL, text, node_new(disk, true));
    return late ? -EIO : 0;
}

static int model_remove_file(void *context, const char *path)
{
    struct disk_model *disk = context;
    char text[NAME_BYTES];
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    struct node *dir = parent_of(disk, path, text);
    const struct node *node = dir ? node_find(disk, path) : NULL;
    if (!node || node->dir) {
        return node ? -EISDIR : -ENOENT;
    }
    change_make(dir, text, NULL, NULL);
    return late ? -EIO : 0;
}

static int model_remove_dir(void *context, const char *path)
{
    struct disk_model *disk = context;
    char text[NAME_BYTES];
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    struct node *dir = parent_of(disk, path, text);
    const struct node *node = dir ? node_find(disk, path) : NULL;
    if (!node || !node->dir) {
        return node ? -ENOTDIR : -ENOENT;
    }
    if (node->names.count > 0) {
        return -ENOTEMPTY;
    }
    change_make(dir, text, NULL, NULL);
    return late ? -EIO : 0;
}

static int model_rename(void *context, const char *from, const char *to)
{
    struct disk_model *disk = context;
    char from_text[NAME_BYTES];
    char to_text[NAME_BYTES];
    bool late;
    if (!powered(disk, &late)) {
        return -EIO;
    }
    struct node *from_dir = parent_of(disk, from, from_text);
    struct node *to_dir = parent_of(disk, to, to_text);
    struct node *node = from_dir ? node_find(disk, from) : NULL;
    if (!node || !to_dir) {
        return -ENOENT;
    }
    hold(node);
    if (from_dir == to_dir) {
        change_make(from_dir, from_text, to_text, node);
    } else {
        change_make(to_dir, NULL, to_text, node);
        change_make(from_dir, from_text, NULL, NULL);
    }
    let_go(node);
    return late ? -EIO : 0;
}

static int model_list(void *context, const char *path,
                      int (*each)(void *each_context, const char *name), void *each_context)
{
    struct disk_model *disk = context;
    bool late;
    if (!powered(disk, &late) || late) {
        return -EIO;
    }
    struct node *node = node_find(disk, path);
    if (!node || !node->dir) {
        return node ? -ENOTDIR : -ENOENT;
    }
    /* What is listed may change the directory: a copy. */
    uint32_t count = node->names.count;
    char **texts = must(calloc(MILL_MAX(count, 1u), sizeof(texts[0])));
    for (uint32_t i = 0; i < count; i++) {
        texts[i] = must(strdup(node->names.items[i].text));
    }
    int r = 0;
    for (uint32_t i = 0; i < count; i++) {
        r = r < 0 ? r : each(each_context, texts[i]);
        free(texts[i]);
    }
    free(texts);
    return MILL_MIN(r, 0);
}

/* --- making ---------------------------------------------------------------------------------- */

struct disk_model *disk_model_new(uint64_t seed)
{
    struct disk_model *disk = calloc(1, sizeof(*disk));
    if (!disk) {
        return NULL;
    }
    disk->random.state = seed;
    disk->faults.space_bytes = UINT64_MAX;
    disk->faults.calls_until_cut = UINT64_MAX;
    disk->root = hold(node_new(disk, true));
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

static void files_void(struct disk_model *disk)
{
    for (uint32_t i = 0; i < FILES_MAX; i++) {
        let_go(disk->files[i]);
        disk->files[i] = NULL;
    }
    disk->counts.open_now = 0;
}

void disk_model_free(struct disk_model *disk)
{
    if (disk) {
        files_void(disk);
        let_go(disk->root);
        free(disk);
    }
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

const uint8_t *disk_model_bytes(struct disk_model *disk, const char *path, uint64_t *ret_size)
{
    const struct node *node = node_find(disk, path);
    if (!node || node->dir) {
        return NULL;
    }
    *ret_size = node->size;
    return node->bytes ? node->bytes : (const uint8_t *)"";
}

int disk_model_stat(struct disk_model *disk, const char *path, struct disk_model_stat *ret_stat)
{
    const struct node *node = node_find(disk, path);
    if (!node) {
        return -ENOENT;
    }
    *ret_stat = (struct disk_model_stat){
        .dir = node->dir, .size_bytes = node->size, .number = node->number};
    return 0;
}

/* --- a cut ----------------------------------------------------------------------------------- */

/* How much of what was not synced a file keeps. */
enum keep {
    KEEP_NOTHING,
    KEEP_ALL,
    KEEP_SECTORS, /* each on its own: written in any order */
    KEEP_PREFIX,  /* written in order, the last one torn */
    KEEP_COUNT,
};

/* Brings back a part of a sector as it is on the disk; beyond the file's end there are zeroes. */
static uint64_t sector_lose(struct node *node, uint64_t from, uint64_t to)
{
    uint64_t there = from >= node->synced_size ? 0 : MILL_MIN(to, node->synced_size) - from;
    if (there > 0) {
        memcpy(node->bytes + from, node->synced + from, there);
    }
    memset(node->bytes + from + there, 0, to - from - there);
    return to - from;
}

static uint64_t between(struct mill_random *random, uint64_t a, uint64_t b)
{
    uint64_t low = MILL_MIN(a, b);
    uint64_t span = MILL_MAX(a, b) - low;
    return low + mill_random_next(random) % (span + 1);
}

static void file_cut(struct disk_model *disk, struct node *node)
{
    struct mill_random *random = &disk->random;
    enum keep keep = (enum keep)mill_random_below(random, KEEP_COUNT);
    uint64_t end = MILL_MIN(node->differs_to, MILL_MAX(node->size, node->synced_size));
    if (node->differs_from >= end) {
        file_sync(node);
        return;
    }
    uint64_t size = node->size;
    uint64_t torn = between(random, node->differs_from, end);
    if (keep == KEEP_NOTHING) {
        size = node->synced_size;
    } else if (keep == KEEP_PREFIX && node->size > node->synced_size) {
        size = MILL_MAX(torn, node->synced_size);
    } else if (keep == KEEP_SECTORS) {
        size = node->size > node->synced_size || mill_random_below(random, 2) == 0
                   ? between(random, node->size, node->synced_size)
                   : node->size;
    }
    uint64_t written = node->size;
    if (size > written) { /* it had been cut shorter: behind that there are the old bytes */
        node_resize(node, size);
        sector_lose(node, written, size);
    }
    end = MILL_MIN(end, written);
    for (uint64_t at = node->differs_from; keep != KEEP_ALL && at < end;) {
        uint64_t next = MILL_MIN((at / DISK_MODEL_SECTOR_BYTES + 1) * DISK_MODEL_SECTOR_BYTES, end);
        bool lose = keep == KEEP_NOTHING || (keep == KEEP_PREFIX && next > torn) ||
                    (keep == KEEP_SECTORS && mill_random_below(random, 2) == 0);
        /* A torn sector: new bytes before, old ones behind. */
        uint64_t from = keep == KEEP_PREFIX ? MILL_MAX(at, torn) : at;
        if (lose && from < next) {
            disk->counts.lost_bytes += sector_lose(node, from, next);
        }
        at = next;
    }
    node_resize(node, size);
    node->differs_from = 0; /* what is there now is on the disk, and all of it may have changed */
    node->differs_to = size;
    file_sync(node);
}

static void node_cut(struct disk_model *disk, struct node *node)
{
    if (!node->dir) {
        file_cut(disk, node);
        return;
    }
    uint32_t kept = mill_random_below(&disk->random, node->changes_count + 1);
    disk->counts.lost_names += node->changes_count - kept;
    dir_sync(node, kept);
    struct names names = {0};
    for (uint32_t i = 0; i < node->synced_names.count; i++) {
        names_set(&names, node->synced_names.items[i].text, node->synced_names.items[i].node);
    }
    names_clear(&node->names);
    node->names = names;
    for (uint32_t i = 0; i < node->names.count; i++) {
        node_cut(disk, node->names.items[i].node);
    }
}

bool disk_model_is_cut(const struct disk_model *disk)
{
    return disk->cut;
}

void disk_model_crash(struct disk_model *disk)
{
    files_void(disk);
    node_cut(disk, disk->root);
    disk->cut = false;
    disk->faults.calls_until_cut = UINT64_MAX;
}

void disk_model_crash_seeded(struct disk_model *disk, uint64_t seed)
{
    struct mill_random random = disk->random;
    disk->random.state = seed;
    disk_model_crash(disk);
    disk->random = random;
}
