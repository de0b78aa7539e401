/* SPDX-License-Identifier: Apache-2.0 */
/* Offset checkpoints of a log directory in Kafka's text format (line 1 version 0, line 2 count,
 * then "topic partition offset"): up to which offset each partition is known to be synced, and
 * where its log starts. The table is under the directories' lock; the files have a writer at a
 * time, which holds the lock only while it looks. */
#include "dataplane/store/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS_FIRST = 64,
    CHECKPOINT_BYTES_MAX = 256 << 20,
    LINE_NUMBERS_BYTES = 40, /* " PARTITION OFFSET\n" */
};

struct checkpoint {
    const char *name;
    size_t field; /* of struct store_offset */
};

static const struct checkpoint checkpoints[] = {
    {"recovery-point-offset-checkpoint", offsetof(struct store_offset, recovery_point)},
    {"replication-offset-checkpoint", offsetof(struct store_offset, high_watermark)},
    {"log-start-offset-checkpoint", offsetof(struct store_offset, start_offset)},
    {"cleaner-offset-checkpoint", offsetof(struct store_offset, clean_offset)},
};

static int64_t *field_of(struct store_offset *offset, const struct checkpoint *checkpoint)
{
    return (int64_t *)(void *)((uint8_t *)offset + checkpoint->field);
}

/* --- the table ------------------------------------------------------------------------------- */

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *name; name++) {
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    }
    return hash;
}

static void buckets_fill(struct store_offsets *offsets)
{
    if (offsets->capacity == 0) {
        return;
    }
    memset(offsets->buckets, 0, offsets->capacity * sizeof(offsets->buckets[0]));
    for (uint32_t i = 0; i < offsets->length; i++) {
        uint32_t at = hash_of(offsets->entries[i].name) & (offsets->capacity - 1);
        offsets->entries[i].next = offsets->buckets[at];
        offsets->buckets[at] = i + 1;
    }
}

static int grow(struct store_offsets *offsets)
{
    uint32_t capacity = offsets->capacity ? offsets->capacity * 2 : BUCKETS_FIRST;
    struct store_offset *entries = realloc(offsets->entries, capacity * sizeof(entries[0]));
    if (!entries) {
        return -ENOMEM;
    }
    offsets->entries = entries;
    uint32_t *buckets = realloc(offsets->buckets, capacity * sizeof(buckets[0]));
    if (!buckets) {
        return -ENOMEM;
    }
    offsets->buckets = buckets;
    offsets->capacity = capacity;
    buckets_fill(offsets);
    return 0;
}

struct store_offset *mill_store_offset(struct store_offsets *offsets, const char *name, bool make)
{
    if (offsets->capacity > 0) {
        uint32_t at = offsets->buckets[hash_of(name) & (offsets->capacity - 1)];
        for (; at != 0; at = offsets->entries[at - 1].next) {
            if (strcmp(offsets->entries[at - 1].name, name) == 0) {
                return &offsets->entries[at - 1];
            }
        }
    }
    if (!make || (offsets->length == offsets->capacity && grow(offsets) < 0)) {
        return NULL;
    }
    char *copy = strdup(name);
    if (!copy) {
        return NULL;
    }
    uint32_t *bucket = &offsets->buckets[hash_of(name) & (offsets->capacity - 1)];
    struct store_offset *offset = &offsets->entries[offsets->length++];
    *offset = (struct store_offset){.name = copy,
                                    .next = *bucket,
                                    .recovery_point = -1,
                                    .high_watermark = -1,
                                    .start_offset = -1,
                                    .clean_offset = -1,
                                    .reached_offset = -1};
    *bucket = offsets->length;
    return offset;
}

void mill_store_offsets_free(struct store_offsets *offsets)
{
    for (uint32_t i = 0; i < offsets->length; i++) {
        free(offsets->entries[i].name);
        mill_store_taken_free(offsets->entries[i].taken);
    }
    free(offsets->entries);
    free(offsets->buckets);
    *offsets = (struct store_offsets){0};
}

/* --- reading --------------------------------------------------------------------------------- */

/* Takes one file's lines. ret: 0; 1 it is damaged: what stood before the damage was taken, which is
 * safe, since a missing recovery point only means more walking; -errno. */
static int parse(struct store_offsets *offsets, const struct checkpoint *checkpoint, char *text)
{
    unsigned version = 0;
    unsigned long announced = 0;
    int used = 0;
    if (sscanf(text, "%u %lu%n", &version, &announced, &used) != 2 || version != 0) {
        return 1;
    }
    char *at = text + used + strspn(text + used, " \n");
    for (unsigned long i = 0; i < announced; i++) {
        /* Ended here: sscanf goes to the end of its text each time, which is long. */
        char *end = strchr(at, '\n');
        char topic[MILL_LOG_NAME_MAX + 1];
        char name[STORE_NAME_MAX + 1];
        int partition;
        int64_t offset;
        if (!end) {
            return 1;
        }
        *end = '\0';
        if (sscanf(at, "%249s %d %" SCNd64, topic, &partition, &offset) != 3 || partition < 0 ||
            offset < 0) {
            return 1;
        }
        at = end + 1;
        snprintf(name, sizeof(name), "%s-%d", topic, partition);
        struct store_offset *entry = mill_store_offset(offsets, name, true);
        if (!entry) {
            return -ENOMEM;
        }
        *field_of(entry, checkpoint) = offset;
        entry->on_disk = true;
    }
    return at[strspn(at, " \n")] == '\0' ? 0 : 1;
}

static int read_one(const struct mill_file_calls *files, struct store_dir *dir,
                    const struct checkpoint *checkpoint)
{
    char path[STORE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", dir->path, checkpoint->name);
    char *text = NULL;
    int r = mill_store_read_whole(files, path, CHECKPOINT_BYTES_MAX, &text);
    if (r < 0) {
        return r == -ENOENT ? 0 : r == -EFBIG ? 1 : r;
    }
    r = parse(&dir->offsets, checkpoint, text);
    free(text);
    return r;
}

int mill_store_offsets_read(const struct mill_file_calls *files, struct store_dir *dir)
{
    int damaged = 0;
    for (size_t i = 0; i < MILL_COUNT_OF(checkpoints); i++) {
        int r = read_one(files, dir, &checkpoints[i]);
        if (r < 0) {
            return r;
        }
        damaged = MILL_MAX(damaged, r);
    }
    return damaged;
}

/* --- writing --------------------------------------------------------------------------------- */

/* One file's text. ret: malloc'ed, NULL out of memory. */
static char *format(struct store_offsets *offsets, const struct checkpoint *checkpoint)
{
    size_t capacity = 2 * LINE_NUMBERS_BYTES;
    uint32_t count = 0;
    for (uint32_t i = 0; i < offsets->length; i++) {
        struct store_offset *entry = &offsets->entries[i];
        if (*field_of(entry, checkpoint) >= 0) {
            capacity += strlen(entry->name) + LINE_NUMBERS_BYTES;
            count++;
        }
    }
    char *text = malloc(capacity);
    size_t at = text ? (size_t)snprintf(text, capacity, "0\n%u\n", count) : 0;
    for (uint32_t i = 0; text && i < offsets->length; i++) {
        struct store_offset *entry = &offsets->entries[i];
        const char *dash = strrchr(entry->name, '-');
        if (*field_of(entry, checkpoint) >= 0) {
            entry->told = true;
            at += (size_t)snprintf(text + at, capacity - at, "%.*s %s %" PRId64 "\n",
                                   (int)(dash - entry->name), entry->name, dash + 1,
                                   *field_of(entry, checkpoint));
        }
    }
    return text;
}

static bool is_empty(const struct store_offset *entry)
{
    return entry->recovery_point < 0 && entry->high_watermark < 0 && entry->start_offset < 0 &&
           entry->clean_offset < 0 && entry->reached_offset < 0 && !entry->taken;
}

/* The files are as the table was: what they no longer name, nor we, goes. */
static void written(struct store_offsets *offsets)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < offsets->length; i++) {
        struct store_offset *entry = &offsets->entries[i];
        entry->on_disk = entry->told;
        if (is_empty(entry) && !entry->on_disk) {
            free(entry->name);
        } else {
            offsets->entries[kept++] = *entry;
        }
    }
    offsets->length = kept;
    buckets_fill(offsets);
}

static int write_all(struct mill_log_dirs *dirs, struct store_dir *dir)
{
    const struct mill_file_calls *files = dirs->options.files;
    for (size_t i = 0; i < MILL_COUNT_OF(checkpoints); i++) {
        pthread_mutex_lock(&dirs->lock);
        char *text = format(&dir->offsets, &checkpoints[i]);
        pthread_mutex_unlock(&dirs->lock);
        int r = text ? mill_store_write_text(files, dir->path, checkpoints[i].name, text) : -ENOMEM;
        free(text);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int mill_store_offsets_write(struct mill_log_dirs *dirs, struct store_dir *dir)
{
    pthread_mutex_lock(&dirs->writer);
    pthread_mutex_lock(&dirs->lock);
    bool changed = dir->offsets.changed;
    dir->offsets.changed = false;
    for (uint32_t i = 0; i < dir->offsets.length; i++) {
        dir->offsets.entries[i].told = false;
    }
    pthread_mutex_unlock(&dirs->lock);
    int r = changed ? write_all(dirs, dir) : 0;
    pthread_mutex_lock(&dirs->lock);
    if (r < 0) {
        dir->offsets.changed = true;
    } else if (changed) {
        written(&dir->offsets);
    }
    pthread_mutex_unlock(&dirs->lock);
    pthread_mutex_unlock(&dirs->writer);
    return r;
}

int mill_store_offsets_forget(struct mill_log_dirs *dirs, struct store_dir *dir, const char *name,
                              bool durable)
{
    pthread_mutex_lock(&dirs->lock);
    struct store_offset *offset = mill_store_offset(&dir->offsets, name, false);
    bool on_disk = offset && offset->on_disk;
    if (offset) {
        offset->recovery_point = offset->high_watermark = offset->start_offset = -1;
        offset->clean_offset = offset->reached_offset = -1;
        mill_store_taken_free(offset->taken);
        offset->taken = NULL;
        dir->offsets.changed = true;
    }
    pthread_mutex_unlock(&dirs->lock);
    return on_disk && durable ? mill_store_offsets_write(dirs, dir) : 0;
}
