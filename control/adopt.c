/* SPDX-License-Identifier: Apache-2.0 */
/* Adopting what Kafka wrote (adopt.h). Formats: meta.properties 0 (ZooKeeper) and 1 (KRaft,
 * KIP-631), partition.metadata (KIP-516), leader-epoch-checkpoint, producer snapshots 1, the first
 * batch of each segment. Nothing of them is changed here but the cleaner's checkpoint, which names
 * each partition then; the metadata store is made aside and renamed. */
#include "control/adopt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "base/log_line.h"
#include "control/controller/topics.h"

enum {
    PATH_BYTES = 800,
    SMALL_FILE_BYTES = 4096,
    CHECKPOINT_BYTES = 1 << 20,
    SNAPSHOT_BYTES = 256 << 20,
    SNAPSHOT_HEAD_BYTES = 10,
    SNAPSHOT_ENTRY_BYTES = 46,
    MAGIC_AT = 16, /* of a batch */
    /* What a Kafka that was killed may have given out since its newest snapshots: a thousand blocks
     * of ids. */
    IDS_MARGIN = 1000000,
};

struct found {
    char name[MILL_TOPIC_NAME_MAX + 1];
    int32_t partition;
    int32_t epoch;        /* newest leader epoch, -1 none */
    int64_t first_offset; /* of its oldest segment; INT64_MAX none */
    struct mill_uuid id;
    const char *dir;
};

struct adoption {
    const struct mill_config *config;
    struct mill_report *report;
    char cluster_text[64];
    struct mill_uuid cluster_id;
    struct found *found;
    uint32_t found_count;
    uint32_t found_capacity;
    int64_t ids_end; /* above each producer id that was seen */
    uint32_t topics_count;
};

/* --- small files ------------------------------------------------------------------------------ */

/* Reads a file whole, terminated; free(*ret_text). ret: its size, -errno, -EFBIG. */
static int64_t read_whole(const char *path, size_t most, char **ret_text)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) {
        return -errno;
    }
    struct stat info;
    int64_t r = fstat(file, &info) < 0 ? -errno : info.st_size;
    r = r > (int64_t)most ? -EFBIG : r;
    char *text = r < 0 ? NULL : malloc((size_t)r + 1);
    int64_t done = 0;
    while (text && done < r) {
        ssize_t got = read(file, text + done, (size_t)(r - done));
        if (got <= 0) {
            r = got < 0 ? -errno : done;
        } else {
            done += got;
        }
    }
    close(file);
    if (!text || r < 0) {
        free(text);
        return r < 0 ? r : -ENOMEM;
    }
    text[r] = '\0';
    *ret_text = text;
    return r;
}

/* Value of "key=value" or "key: value" in a small text; false when there is none. */
static bool value_of(const char *text, const char *key, char *ret_value, size_t capacity)
{
    size_t length = strlen(key);
    for (const char *at = text; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        if (strncmp(at, key, length) == 0 && (at[length] == '=' || at[length] == ':')) {
            at += length + 1;
            at += strspn(at, " \t");
            snprintf(ret_value, capacity, "%.*s", (int)strcspn(at, " \t\r\n"), at);
            return true;
        }
    }
    return false;
}

/* --- one log directory ------------------------------------------------------------------------ */

/* Kafka holds a lock of fcntl on .lock as long as it runs. */
static int lock_look(struct adoption *adoption, const char *dir)
{
    char path[PATH_BYTES];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof(path), "%s/.lock", dir);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return 0;
    }
    int r = fcntl(file, F_GETLK, &lock);
    close(file);
    if (r == 0 && lock.l_type != F_UNLCK) {
        return mill_fail(adoption->report, -EBUSY,
                         "log directory %s: process %d (a Kafka broker?) runs on it: stop it first",
                         dir, (int)lock.l_pid);
    }
    return 0;
}

static int meta_take(struct adoption *adoption, const char *dir)
{
    struct mill_report *report = adoption->report;
    char path[PATH_BYTES];
    char version[16] = "";
    char node[24] = "";
    char cluster[sizeof(adoption->cluster_text)] = "";
    char *text = NULL;
    int32_t node_id = (int32_t)mill_config_int(adoption->config, MILL_KEY_NODE_ID);
    snprintf(path, sizeof(path), "%s/meta.properties", dir);
    int64_t r = read_whole(path, SMALL_FILE_BYTES, &text);
    if (r < 0) {
        return mill_fail(
            report, (int)r,
            "%s cannot be read: %s; --adopt takes over directories that a Kafka broker "
            "wrote, start without it for new ones",
            path, strerror((int)-r));
    }
    bool whole = value_of(text, "version", version, sizeof(version)) &&
                 value_of(text, "cluster.id", cluster, sizeof(cluster)) &&
                 (value_of(text, "node.id", node, sizeof(node)) ||
                  value_of(text, "broker.id", node, sizeof(node)));
    free(text);
    if (!whole) {
        return mill_fail(report, -EINVAL, "%s names no version, cluster.id or node.id", path);
    }
    if (strcmp(version, "0") != 0 && strcmp(version, "1") != 0) {
        return mill_fail(report, -EINVAL, "%s is of version %s; 0 and 1 can be adopted", path,
                         version);
    }
    if (strtol(node, NULL, 10) != node_id) {
        return mill_fail(report, -EPERM,
                         "log directory %s belongs to node %s, this is node %d: set node.id=%s",
                         dir, node, node_id, node);
    }
    if (adoption->cluster_text[0] && strcmp(adoption->cluster_text, cluster) != 0) {
        return mill_fail(report, -EPERM,
                         "log directory %s belongs to cluster %s, another one to %s", dir, cluster,
                         adoption->cluster_text);
    }
    char again[MILL_UUID_TEXT_BYTES];
    bool parsed = mill_uuid_parse(cluster, &adoption->cluster_id) == 0;
    if (parsed) {
        mill_uuid_format(&adoption->cluster_id, again);
    }
    if (!parsed || strcmp(again, cluster) != 0) {
        return mill_fail(
            report, -EINVAL,
            "%s: cluster.id %s is no id of 22 base64 characters, others cannot be kept", path,
            cluster);
    }
    snprintf(adoption->cluster_text, sizeof(adoption->cluster_text), "%s", cluster);
    return lock_look(adoption, dir);
}

/* --- one partition ---------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);
    return length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

/* Raises ids_end above the producers of one snapshot; a torn one tells nothing, Kafka would not
 * believe it either. */
static int snapshot_look(struct adoption *adoption, const char *path)
{
    char *text = NULL;
    int64_t size = read_whole(path, SNAPSHOT_BYTES, &text);
    if (size < 0) {
        return mill_fail(adoption->report, (int)size, "%s cannot be read: %s", path,
                         strerror((int)-size));
    }
    const uint8_t *bytes = (const uint8_t *)text;
    uint32_t count = size >= SNAPSHOT_HEAD_BYTES ? mill_load_be32(bytes + 6) : 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t at = SNAPSHOT_HEAD_BYTES + (int64_t)i * SNAPSHOT_ENTRY_BYTES;
        int64_t id = at + SNAPSHOT_ENTRY_BYTES <= size ? (int64_t)mill_load_be64(bytes + at) : -1;
#ifdef MILL_MUTANT_CONTROL_ADOPT_OLD_IDS
        id = -1;
#endif
        if (id >= 0 && id < INT64_MAX - IDS_MARGIN) {
            adoption->ids_end = MILL_MAX(adoption->ids_end, id + 1);
        }
    }
    free(text);
    return 0;
}

/* Records before batches of version 2 cannot be served, and must not be taken for damage. */
static int segment_look(struct adoption *adoption, const char *path)
{
    uint8_t head[MAGIC_AT + 1];
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t got = file < 0 ? -1 : read(file, head, sizeof(head));
    int r = got < 0 ? -errno : 0;
    if (file >= 0) {
        close(file);
    }
    if (r < 0) {
        return mill_fail(adoption->report, r, "%s cannot be read: %s", path, strerror(-r));
    }
    if (got == (ssize_t)sizeof(head) && head[MAGIC_AT] < 2) {
        return mill_fail(adoption->report, -EINVAL,
                         "%s holds records in the format of before Kafka 0.11 (magic %u), which "
                         "cannot be served; let Kafka write the topic anew first",
                         path, head[MAGIC_AT]);
    }
    return 0;
}

static int files_look(struct adoption *adoption, const char *path, struct found *found)
{
    DIR *list = opendir(path);
    int r =
        list ? 0
             : mill_fail(adoption->report, -errno, "%s cannot be read: %s", path, strerror(errno));
    const struct dirent *entry;
    while (r == 0 && (entry = readdir(list)) != NULL) {
        char file[PATH_BYTES];
        if (snprintf(file, sizeof(file), "%s/%s", path, entry->d_name) >= (int)sizeof(file)) {
            continue;
        }
        if (ends_with(entry->d_name, ".snapshot")) {
            r = snapshot_look(adoption, file);
        } else if (ends_with(entry->d_name, ".log")) {
            r = segment_look(adoption, file);
            int64_t base = strtoll(entry->d_name, NULL, 10);
            found->first_offset = MILL_MIN(found->first_offset, base);
        }
    }
    if (list) {
        closedir(list);
    }
    return r;
}

/* Newest epoch of a leader-epoch-checkpoint: the last line's first number. ret: -1 none. */
static int32_t epoch_of(const char *path)
{
    char file[PATH_BYTES];
    char *text = NULL;
    int32_t epoch = -1;
    snprintf(file, sizeof(file), "%.760s/leader-epoch-checkpoint", path);
    if (read_whole(file, CHECKPOINT_BYTES, &text) < 0) {
        return -1;
    }
    int line = 0;
    for (const char *at = text; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        int32_t first;
        int64_t offset;
        if (line++ >= 2 && sscanf(at, "%d %" SCNd64, &first, &offset) == 2) {
            epoch = MILL_MAX(epoch, first);
        }
    }
    free(text);
    return epoch;
}

static struct found *found_add(struct adoption *adoption)
{
    if (adoption->found_count == adoption->found_capacity) {
        uint32_t capacity = MILL_MAX(64u, adoption->found_capacity * 2);
        struct found *grown = realloc(adoption->found, capacity * sizeof(grown[0]));
        if (!grown) {
            return NULL;
        }
        adoption->found = grown;
        adoption->found_capacity = capacity;
    }
    return &adoption->found[adoption->found_count++];
}

static int partition_take(struct adoption *adoption, const char *dir, const char *name)
{
    struct mill_report *report = adoption->report;
    char path[PATH_BYTES];
    char file[PATH_BYTES];
    char id[64] = "";
    char *text = NULL;
    const char *dash = strrchr(name, '-');
    long partition = strtol(dash + 1, NULL, 10);
    if (dash - name > MILL_TOPIC_NAME_MAX || partition > INT32_MAX ||
        snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) - 64) {
        return mill_fail(report, -EINVAL, "%s/%s: no partition has such a name", dir, name);
    }
    snprintf(file, sizeof(file), "%.760s/partition.metadata", path);
    int64_t size = read_whole(file, SMALL_FILE_BYTES, &text);
    struct mill_uuid topic_id;
    bool good = size >= 0 && value_of(text, "topic_id", id, sizeof(id)) &&
                mill_uuid_parse(id, &topic_id) == 0 && !mill_uuid_is_zero(&topic_id);
    free(text);
    if (!good) {
        return mill_fail(
            report, -EINVAL,
            "%s has no partition.metadata with a topic id (Kafka before 2.8, or damaged): "
            "start it once with a newer Kafka, or move it away",
            path);
    }
    struct found *found = found_add(adoption);
    if (!found) {
        return mill_fail(report, -ENOMEM, "no memory to adopt");
    }
    *found = (struct found){.partition = (int32_t)partition,
                            .epoch = epoch_of(path),
                            .first_offset = INT64_MAX,
                            .id = topic_id,
                            .dir = dir};
    memcpy(found->name, name, (size_t)(dash - name));
    return files_look(adoption, path, found);
}

static bool names_partition(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash && dash != name && dash[1] && dash[1 + strspn(dash + 1, "0123456789")] == '\0';
}

static int dir_take(struct adoption *adoption, const char *dir)
{
    int r = meta_take(adoption, dir);
    DIR *list = r < 0 ? NULL : opendir(dir);
    if (r == 0 && !list) {
        r = mill_fail(adoption->report, -errno, "log directory %s cannot be read: %s", dir,
                      strerror(errno));
    }
    const struct dirent *entry;
    while (r == 0 && (entry = readdir(list)) != NULL) {
        /* The controller's own log is no topic of this broker's. */
        if (names_partition(entry->d_name) && strcmp(entry->d_name, "__cluster_metadata-0") != 0) {
            r = partition_take(adoption, dir, entry->d_name);
        }
    }
    if (list) {
        closedir(list);
    }
    return r;
}

/* --- topics ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct found *left = a;
    const struct found *right = b;
    int r = strcmp(left->name, right->name);
    return r != 0                               ? r
           : left->partition < right->partition ? -1
                                                : left->partition > right->partition;
}

static int settings_add(struct mill_topic *topic, bool internal)
{
    int r = 0;
    if (internal) {
        r = mill_topic_set_config(topic, "cleanup.policy", "compact");
        return r < 0 ? r : mill_topic_set_config(topic, "segment.bytes", "104857600");
    }
    r = mill_topic_set_config(topic, "retention.ms", "-1");
    return r < 0 ? r : mill_topic_set_config(topic, "retention.bytes", "-1");
}

/* Writes one topic, whose partitions are found[0] to found[count - 1]. */
static int topic_write(struct adoption *adoption, const struct mill_meta *meta,
                       const struct found *found, uint32_t count)
{
    struct mill_report *report = adoption->report;
    int32_t node_id = (int32_t)mill_config_int(adoption->config, MILL_KEY_NODE_ID);
    for (uint32_t i = 0; i < count; i++) {
        if (found[i].partition < (int32_t)i) {
            return mill_fail(report, -EINVAL, "partition %d of topic %s is in %s and in %s",
                             found[i].partition, found->name, found[i - 1].dir, found[i].dir);
        }
        if (found[i].partition > (int32_t)i) {
            return mill_fail(report, -EINVAL,
                             "partition %u of topic %s is missing: this broker held only a part of "
                             "the topic, or a log directory is not in log.dirs",
                             i, found->name);
        }
        if (!mill_uuid_equal(&found[i].id, &found->id)) {
            return mill_fail(report, -EINVAL, "partitions of topic %s have different topic ids",
                             found->name);
        }
    }
    struct mill_topic *topic = mill_topic_new(found->name, (uint32_t)strlen(found->name), count);
    bool internal = strcmp(found->name, "__consumer_offsets") == 0 ||
                    strcmp(found->name, "__transaction_state") == 0;
    if (!topic || settings_add(topic, internal) < 0) {
        mill_topic_free(topic);
        return mill_fail(report, -ENOMEM, "no memory to adopt");
    }
    topic->record->id = found->id;
    topic->record->flags = MILL_TOPIC_MADE | (internal ? MILL_TOPIC_INTERNAL : 0);
    for (uint32_t i = 0; i < count; i++) {
        /* A new leader: its epoch was never used. */
        topic->record->partitions[i] = (struct mill_map_partition){
            .leader = node_id,
            .leader_epoch = found[i].epoch + 1,
            .replicas_count = 1,
            .replicas = {node_id},
            .isr_count = 1,
            .isr_bits = 1,
        };
#ifdef MILL_MUTANT_CONTROL_ADOPT_OLD_EPOCH
        topic->record->partitions[i].leader_epoch--;
#endif
    }
    struct mill_meta_topic row = {
        .record = topic->record, .configs = topic->configs, .configs_count = topic->configs_count};
    int r = meta->calls->add_topics(meta->store, &row, 1, report);
    mill_topic_free(topic);
    adoption->topics_count++;
    return r;
}

static int store_fill(struct adoption *adoption, const struct mill_meta *meta)
{
    struct mill_report *report = adoption->report;
    const struct mill_meta_calls *calls = meta->calls;
    int32_t node_id = (int32_t)mill_config_int(adoption->config, MILL_KEY_NODE_ID);
    struct mill_uuid kept;
    int64_t first;
    int r = calls->broker(meta->store, node_id, report);
    r = r < 0 ? r : calls->cluster_id(meta->store, &adoption->cluster_id, &kept, report);
    r = r < 0 ? r : calls->take_ids(meta->store, adoption->ids_end + IDS_MARGIN, &first, report);
    for (uint32_t at = 0; r == 0 && at < adoption->found_count;) {
        uint32_t end = at;
        while (end < adoption->found_count &&
               strcmp(adoption->found[end].name, adoption->found[at].name) == 0) {
            end++;
        }
        r = topic_write(adoption, meta, &adoption->found[at], end - at);
        at = end;
    }
    return r;
}

/* --- replacing files -------------------------------------------------------------------------- */

static void aside_remove(const char *aside)
{
    char path[PATH_BYTES + 8];
    unlink(aside);
    snprintf(path, sizeof(path), "%s-wal", aside);
    unlink(path);
    snprintf(path, sizeof(path), "%s-shm", aside);
    unlink(path);
}

static int dir_sync(const char *dir)
{
    int file = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = file < 0 || fsync(file) < 0 ? -errno : 0;
    if (file >= 0) {
        close(file);
    }
    return r;
}

/* --- gaps ------------------------------------------------------------------------------------- */

/* Whether the checkpoint has a line for the partition. */
static bool names(const char *text, const char *line, size_t length)
{
    for (const char *at = text; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        if (strncmp(at, line, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Lines of partitions in dir that the old checkpoint does not name. ret: how many. */
static uint32_t lines_write(const struct adoption *adoption, const char *dir, const char *old,
                            FILE *to)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < adoption->found_count; i++) {
        const struct found *found = &adoption->found[i];
        char line[MILL_TOPIC_NAME_MAX + 16];
        int length = snprintf(line, sizeof(line), "%s %d ", found->name, found->partition);
        if (strcmp(found->dir, dir) != 0 || names(old, line, (size_t)length)) {
            continue;
        }
        int64_t first = found->first_offset == INT64_MAX ? 0 : found->first_offset;
        fprintf(to, "%s%" PRId64 "\n", line, first);
        count++;
    }
    return count;
}

/* Replaces a file by a whole new one, synced. ret: 0, -errno. */
static int file_replace(const char *path, const char *head, const char *body)
{
    char aside[PATH_BYTES];
    snprintf(aside, sizeof(aside), "%.780s.adopting", path);
    FILE *file = fopen(aside, "we");
    if (!file) {
        return -errno;
    }
    bool whole =
        fprintf(file, "%s%s", head, body) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int r = whole ? 0 : -errno;
    r = fclose(file) != 0 && r == 0 ? -errno : r;
    r = r == 0 && rename(aside, path) < 0 ? -errno : r;
    if (r < 0) {
        unlink(aside);
    }
    return r;
}

/* A replica that copied a compacted log has gaps before its own cleaner ever ran, and the policy of
 * its topic is not known here. So each partition is named in the cleaner's checkpoint, as one
 * compacted up to its first offset: what lies behind it may have gaps, and is compacted anew when
 * the topic's policy says so. What Kafka noted stays. */
static int gaps_allow(const struct adoption *adoption, const char *dir)
{
    char path[PATH_BYTES];
    char head[32];
    char *old = NULL;
    char *body = NULL;
    size_t body_bytes = 0;
    int lines = 0;
    int skip = 0;
    snprintf(path, sizeof(path), "%.760s/cleaner-offset-checkpoint", dir);
    /* A damaged one tells nothing: the store takes it so too. */
    bool good = read_whole(path, CHECKPOINT_BYTES, &old) >= 0 &&
                sscanf(old, "0\n%d\n%n", &lines, &skip) == 1 && skip > 0 && lines >= 0;
    const char *kept = good ? old + skip : "";
    FILE *to = open_memstream(&body, &body_bytes);
    int r = to ? 0 : -ENOMEM;
    if (r == 0) {
        uint32_t count = good ? (uint32_t)lines : 0;
        bool cut = kept[0] != '\0' && kept[strlen(kept) - 1] != '\n';
        fprintf(to, "%s%s", kept, cut ? "\n" : "");
        count += lines_write(adoption, dir, kept, to);
        r = fclose(to) != 0 ? -ENOMEM : 0;
        snprintf(head, sizeof(head), "0\n%u\n", count);
    }
    r = r == 0 ? file_replace(path, head, body) : r;
    r = r == 0 ? dir_sync(dir) : r;
    free(old);
    free(body);
    return r < 0 ? mill_fail(adoption->report, r, "%s cannot be written: %s", path, strerror(-r))
                 : 0;
}

static int all_gaps_allow(const struct adoption *adoption)
{
    const char *const *dirs = NULL;
    uint32_t dirs_count = mill_config_log_dirs(adoption->config, &dirs);
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < dirs_count; i++) {
        r = gaps_allow(adoption, dirs[i]);
    }
    return r;
}

/* --- making it -------------------------------------------------------------------------------- */

/* Makes the store under another name, whole, and then gives it its own. */
static int store_make(struct adoption *adoption, const char *file)
{
    struct mill_report *report = adoption->report;
    struct mill_meta meta = {0};
    char aside[PATH_BYTES];
    snprintf(aside, sizeof(aside), "%.780s.adopting", file);
    aside_remove(aside); /* of a try that was killed */
    int r = mill_meta_sqlite_open(aside, 0, &meta, report);
    r = r < 0 ? r : store_fill(adoption, &meta);
    mill_meta_close(&meta); /* nothing is left in its write-ahead log then */
    /* When nothing refuses any more, and before there is a store: a try that ends between the two
     * is begun anew. */
    r = r < 0 ? r : all_gaps_allow(adoption);
    if (r == 0 && rename(aside, file) < 0) {
        r = mill_fail(report, -errno, "%s cannot be made: %s", file, strerror(errno));
    }
    if (r < 0) {
        aside_remove(aside);
        return r;
    }
    r = dir_sync(mill_config_metadata_dir(adoption->config));
    return r < 0 ? mill_fail(report, r, "%s cannot be synced: %s", file, strerror(-r)) : 0;
}

int mill_adopt(const struct mill_config *config, struct mill_report *report)
{
    struct adoption adoption = {.config = config, .report = report};
    char file[PATH_BYTES];
    const char *const *dirs = NULL;
    uint32_t dirs_count = mill_config_log_dirs(config, &dirs);
    const char *metadata = mill_config_metadata_dir(config);
    if (snprintf(file, sizeof(file), "%s/millrace.db", metadata) >= (int)sizeof(file) - 32) {
        return mill_fail(report, -ENAMETOOLONG, "metadata.dir is too long a path");
    }
    if (access(file, F_OK) == 0) {
        return mill_fail(report, -EEXIST,
                         "%s is there: these directories have metadata of Millrace already; start "
                         "without --adopt",
                         file);
    }
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < dirs_count; i++) {
        r = dir_take(&adoption, dirs[i]);
    }
    if (r == 0 && adoption.found_count > 0) {
        qsort(adoption.found, adoption.found_count, sizeof(adoption.found[0]), by_name);
    }
    if (r == 0 && mkdir(metadata, 0755) < 0 && errno != EEXIST) {
        r = mill_fail(report, -errno, "metadata.dir %s cannot be made: %s", metadata,
                      strerror(errno));
    }
    r = r < 0 ? r : store_make(&adoption, file);
    free(adoption.found);
    if (r == 0) {
        mill_log_line(
            MILL_LEVEL_NOTICE, "control.adopted",
            "cluster=%s topics=%u partitions=%u; settings of topics were not in the "
            "directories: nothing is deleted until retention is set (millrace topic alter)",
            adoption.cluster_text, adoption.topics_count, adoption.found_count);
    }
    return r;
}
