/* SPDX-License-Identifier: Apache-2.0 */
/* A partition's directory: found by name and topic id in the log directories, made in the least
 * filled one, renamed and removed at deletion; partition.metadata and leader-epoch-checkpoint in
 * Kafka's text formats. The store's thread only. ref: KIP-516 (partition.metadata), KIP-101 */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"

static const char metadata_name[] = "partition.metadata";
static const char epochs_name[] = "leader-epoch-checkpoint";

int mill_store_dir_id(const struct mill_file_calls *files, const char *path,
                      struct mill_uuid *ret_id)
{
    char file[STORE_PATH_BYTES];
    char text[STORE_META_BYTES];
    snprintf(file, sizeof(file), "%s/%s", path, metadata_name);
    int r = mill_store_read_text(files, file, text, sizeof(text));
    if (r < 0) {
        return r == -ENOTDIR ? -ENOENT : r;
    }
    const char *at = strstr(text, "topic_id:");
    char id[MILL_UUID_TEXT_BYTES] = "";
    if (!at || sscanf(at + strlen("topic_id:"), " %22s", id) != 1 ||
        mill_uuid_parse(id, ret_id) < 0) {
        return -EBADMSG;
    }
    return 0;
}

static int metadata_write(const struct mill_store *store, const struct store_partition *partition)
{
    char text[128];
    char id[MILL_UUID_TEXT_BYTES];
    mill_uuid_format(&partition->topic_id, id);
    snprintf(text, sizeof(text), "version: 0\ntopic_id: %s\n", id);
    return mill_store_write_text(store->calls, partition->path, metadata_name, text);
}

static int count_entry(void *context, const char *name)
{
    MILL_UNUSED(name);
    (*(uint32_t *)context)++;
    return 0;
}

int mill_store_names_take(const struct mill_log_dirs *dirs, struct store_partition *partition,
                          const char *topic)
{
    size_t dir_bytes = 0;
    for (uint32_t i = 0; i < dirs->count; i++) {
        dir_bytes = MILL_MAX(dir_bytes, strlen(dirs->dirs[i].path));
    }
    partition->path_bytes = (uint32_t)(dir_bytes + strlen(topic) + STORE_PATH_EXTRA_BYTES);
    partition->path = calloc(1, partition->path_bytes);
    partition->topic = strdup(topic);
    return partition->path && partition->topic ? 0 : -ENOMEM;
}

void mill_store_names_free(struct store_partition *partition)
{
    free(partition->path);
    free(partition->topic);
    partition->path = NULL;
    partition->topic = NULL;
}

/* Chooses the log directory with the fewest partitions. ret: 0, -EIO all are fenced, -errno. */
static int dir_choose(struct mill_store *store, struct store_partition *partition)
{
    uint32_t best = STORE_DIRS_MAX;
    uint32_t best_count = UINT32_MAX;
    for (uint32_t i = 0; i < store->dirs->count; i++) {
        uint32_t count =
            atomic_load_explicit(&store->dirs->dirs[i].partitions, memory_order_relaxed);
        if (store->dirs->dirs[i].fenced) {
            continue;
        }
        if (count < best_count) {
            best = i;
            best_count = count;
        }
    }
    if (best == STORE_DIRS_MAX) {
        return -EIO;
    }
    partition->dir = best;
    snprintf(partition->path, partition->path_bytes, "%s/%s-%d", store->dirs->dirs[best].path,
             partition->topic, partition->index);
    int r = 0;
#ifndef MILL_MUTANT_STORE_OLD_POINTS
    /* What a checkpoint says of an earlier topic of this name is not this one's. */
    r = mill_store_offsets_forget(store->dirs, &store->dirs->dirs[best],
                                  strrchr(partition->path, '/') + 1, true);
#endif
    if (r == 0) {
        atomic_fetch_add_explicit(&store->dirs->dirs[best].partitions, 1, memory_order_relaxed);
    }
    return r;
}

int mill_store_dir_make(const struct mill_store *store, const struct store_partition *partition)
{
    const struct mill_file_calls *files = store->calls;
    int r = files->make_dir(files->context, partition->path);
    if (r < 0 && r != -EEXIST) {
        return r;
    }
    r = metadata_write(store, partition);
    return r < 0 ? r : files->sync_dir(files->context, store->dirs->dirs[partition->dir].path);
}

/* TOPIC-PARTITION.ID-suffix. A long topic is cut, as Kafka does: a name has at most 255 bytes. */
static void aside_name(const struct store_partition *partition, const char *suffix, char *ret,
                       size_t capacity)
{
    /* The topic id makes the name unique: it is never used again for another topic. */
    char hex[33];
    char end[80];
    for (int i = 0; i < 16; i++) {
        snprintf(hex + 2 * i, 3, "%02x", partition->topic_id.b[i]);
    }
    int end_length = snprintf(end, sizeof(end), "-%d.%s-%s", partition->index, hex, suffix);
    int dir_length = (int)(strrchr(partition->path, '/') - partition->path);
    snprintf(ret, capacity, "%.*s/%.*s%s", dir_length, partition->path, NAME_MAX - end_length,
             partition->topic, end);
}

int mill_store_dir_open(struct mill_store *store, struct store_partition *partition,
                        bool push_aside)
{
    const struct mill_file_calls *files = store->calls;
    for (uint32_t i = 0; i < store->dirs->count; i++) {
        struct mill_uuid id;
        partition->dir = i;
        snprintf(partition->path, partition->path_bytes, "%s/%s-%d", store->dirs->dirs[i].path,
                 partition->topic, partition->index);
        int r = mill_store_dir_id(files, partition->path, &id);
        if (r == 0 && mill_uuid_equal(&id, &partition->topic_id)) {
            return store->dirs->dirs[i].fenced ? -EIO : 0;
        }
        if (r == -ENOENT) {
            uint32_t count = 0;
            r = files->list(files->context, partition->path, count_entry, &count);
            if (r < 0 || count == 0) {
                continue; /* not there, or killed between making it and telling whose it is */
            }
        } else if (r < 0 && r != -EBADMSG) {
            return r;
        }
        if (!push_aside) {
            return -EBUSY;
        }
        /* Files of a topic that is gone: kept under another name, for a person to look at. */
        char aside[STORE_PATH_BYTES];
        aside_name(partition, "stray", aside, sizeof(aside));
        r = files->rename(files->context, partition->path, aside);
        if (r < 0) {
            return r;
        }
    }
#ifndef MILL_MUTANT_STORE_LOST_IS_NEW
    if (partition->settings.made) {
        mill_log_dirs_say(store->dirs, MILL_LEVEL_ERROR, "store.lost",
                          "partition=%s-%d served before and no log directory holds it: it is not "
                          "made anew; bring its directory back, or delete the topic",
                          partition->topic, partition->index);
        partition->path[0] = '\0'; /* nothing to delete */
        return -EUCLEAN;
    }
#endif
    int r = dir_choose(store, partition);
    return r < 0 ? r : 1;
}

struct removal {
    const struct mill_file_calls *files;
    const char *path;
};

static int remove_entry(void *context, const char *name)
{
    const struct removal *removal = context;
    char path[STORE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", removal->path, name);
    int r = removal->files->remove_file(removal->files->context, path);
    return r == -ENOENT ? 0 : r;
}

int mill_store_tree_remove(const struct mill_file_calls *files, const char *path)
{
    struct removal removal = {.files = files, .path = path};
    int r = files->list(files->context, path, remove_entry, &removal);
    return r < 0 ? r : files->remove_dir(files->context, path);
}

int mill_store_dir_remove(struct mill_store *store, struct store_partition *partition)
{
    const struct mill_file_calls *files = store->calls;
    char aside[STORE_PATH_BYTES];
    aside_name(partition, "delete", aside, sizeof(aside));
    int r = files->rename(files->context, partition->path, aside);
    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    atomic_fetch_sub_explicit(&store->dirs->dirs[partition->dir].partitions, 1,
                              memory_order_relaxed);
    r = files->sync_dir(files->context, store->dirs->dirs[partition->dir].path);
    return r < 0 ? r : mill_store_tree_remove(files, aside);
}

int mill_store_epochs_write(struct mill_store *store, const struct store_partition *partition,
                            bool durable)
{
    char text[STORE_META_BYTES];
    size_t at = (size_t)snprintf(text, sizeof(text), "0\n%u\n", partition->epochs_count);
    for (uint32_t i = 0; i < partition->epochs_count && at < sizeof(text); i++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%d %" PRId64 "\n",
                               partition->epochs[i].epoch, partition->epochs[i].start_offset);
    }
    return mill_store_write_aside(store->calls, partition->path, epochs_name, text, strlen(text),
                                  durable);
}

int mill_store_epochs_read(struct mill_store *store, struct store_partition *partition)
{
    char path[STORE_PATH_BYTES];
    char text[STORE_META_BYTES];
    struct mill_link_epoch epochs[MILL_LINK_EPOCHS_MAX];
    uint32_t count = 0;
    uint32_t announced = 0;
    int version = -1;
    int used = 0;
    snprintf(path, sizeof(path), "%s/%s", partition->path, epochs_name);
    int r = mill_store_read_text(store->calls, path, text, sizeof(text));
    if (r < 0) {
        return r == -ENOENT || r == -EFBIG ? 0 : r;
    }
    if (sscanf(text, "%d %u%n", &version, &announced, &used) != 2 || version != 0 ||
        announced > MILL_LINK_EPOCHS_MAX) {
        return 0;
    }
    const char *at = text + used;
    while (count < announced && sscanf(at, "%d %" SCNd64 "%n", &epochs[count].epoch,
                                       &epochs[count].start_offset, &used) == 2) {
        bool rising = count == 0 || (epochs[count].epoch > epochs[count - 1].epoch &&
                                     epochs[count].start_offset > epochs[count - 1].start_offset);
        if (!rising) {
            return 0;
        }
        at += used;
        count++;
    }
    if (count != announced) {
        return 0;
    }
    memcpy(partition->epochs, epochs, count * sizeof(epochs[0]));
    partition->epochs_count = count;
    return 1;
}
