/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and ending the log directories of a process; see log_dirs.h. The mark of a clean end is
 * Kafka's: it is written last and removed first, so that a run that was cut short never has one. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"

static const char clean_name[] = ".kafka_cleanshutdown";
static const char clean_text[] = "{\"version\":0,\"brokerEpoch\":-1}";

void mill_log_dirs_say(const struct mill_log_dirs *dirs, int level, const char *id,
                       const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (dirs->options.say) {
        dirs->options.say(dirs->options.say_context, level, id, text);
    }
}

void mill_log_dirs_fence(struct mill_log_dirs *dirs, uint32_t dir, int error)
{
#ifdef MILL_MUTANT_STORE_FENCE_FORGOTTEN
    MILL_UNUSED(error);
    return;
#endif
    if (!atomic_exchange(&dirs->dirs[dir].fenced, true)) {
        mill_log_dirs_say(
            dirs, MILL_LEVEL_ERROR, "store.fenced",
            "log directory %s: %s; nothing of it is acknowledged until the next start",
            dirs->dirs[dir].path, strerror(-error));
        atomic_fetch_add(&dirs->fences, 1);
    }
}

/* --- what lies in a directory ---------------------------------------------------------------- */

bool mill_store_name_ends(const char *name, const char *end)
{
    size_t length = strlen(name);
    size_t end_length = strlen(end);
    return length >= end_length && memcmp(name + length - end_length, end, end_length) == 0;
}

/* A folder of a deleted topic, renamed: TOPIC-PARTITION.UNIQUE-delete, with 32 hexadecimal digits.
 */
static bool names_deleted(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strspn(dot + 1, "0123456789abcdef") == 32 && strcmp(dot + 33, "-delete") == 0;
}

bool mill_log_dir_names_partition(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash && dash != name && dash[1] && dash[1 + strspn(dash + 1, "0123456789")] == '\0';
}

static bool known_name(const char *name)
{
    static const char *const names[] = {
        "meta.properties", ".lock", clean_name, "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint",
        /* The metadata of this broker lies in the first log directory by default; a file system's
         * own folder. */
        "millrace.db", "millrace.db-wal", "millrace.db-shm", ".metadata.lock", "lost+found"};
    for (size_t i = 0; i < MILL_COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return mill_log_dir_names_partition(name) || mill_store_name_ends(name, "-stray") ||
           mill_store_name_ends(name, "-future") || mill_store_name_ends(name, ".tmp");
}

struct survey {
    struct mill_log_dirs *dirs;
    const char *path;
    uint32_t unknown;
    uint32_t partitions;
};

static int survey_entry(void *context, const char *name)
{
    struct survey *survey = context;
    if (names_deleted(name)) {
        char path[STORE_PATH_BYTES];
        snprintf(path, sizeof(path), "%s/%.*s", survey->path, STORE_NAME_MAX, name);
        int r = mill_store_tree_remove(survey->dirs->options.files, path);
        if (r < 0) {
            mill_log_dirs_say(survey->dirs, MILL_LEVEL_WARN, "store.deletion",
                              "%s of a deleted topic cannot be removed: %s", path, strerror(-r));
        }
    } else if (mill_log_dir_names_partition(name)) {
        survey->partitions++;
    } else if (!known_name(name) && survey->unknown++ < STORE_UNKNOWN_TOLD) {
        mill_log_dirs_say(survey->dirs, MILL_LEVEL_WARN, "store.unknown-file",
                          "%s/%.200s is not a log's: left alone", survey->path, name);
    }
    return 0;
}

/* --- opening --------------------------------------------------------------------------------- */

/* Takes the mark of a clean end away, durably, before anything else changes. ret: 1 it was there,
 * 0 not, -errno. */
static int clean_take(const struct mill_file_calls *files, const char *dir)
{
    char path[STORE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", dir, clean_name);
    int r = files->remove_file(files->context, path);
    if (r == -ENOENT) {
        return 0;
    }
    r = r < 0 ? r : files->sync_dir(files->context, dir);
    return r < 0 ? r : 1;
}

static int dir_open(struct mill_log_dirs *dirs, uint32_t index, struct mill_report *report)
{
    const struct mill_log_dirs_options *options = &dirs->options;
    struct store_dir *dir = &dirs->dirs[index];
    int r = mill_store_prepare_dir(options->files, dir->path, options->node_id, options->cluster_id,
                                   report);
    if (r < 0) {
        return r;
    }
#ifndef MILL_MUTANT_STORE_NAMES_UNSYNCED
    /* A killed process may have made partitions in it and not come to this. */
    r = options->files->sync_dir(options->files->context, dir->path);
    if (r < 0) {
        return mill_fail(report, r, "log directory %s cannot be synced: %s", dir->path,
                         strerror(-r));
    }
#endif
    r = mill_store_offsets_read(options->files, dir);
    if (r < 0) {
        return mill_fail(report, r, "the checkpoints of log directory %s cannot be read: %s",
                         dir->path, strerror(-r));
    }
    if (r > 0) {
        mill_log_dirs_say(dirs, MILL_LEVEL_WARN, "store.checkpoint",
                          "log directory %s: a checkpoint is damaged; the logs are walked instead",
                          dir->path);
    }
    struct survey survey = {.dirs = dirs, .path = dir->path};
    r = options->files->list(options->files->context, dir->path, survey_entry, &survey);
    if (r < 0) {
        return mill_fail(report, r, "log directory %s cannot be read: %s", dir->path, strerror(-r));
    }
    atomic_store_explicit(&dir->partitions, survey.partitions, memory_order_relaxed);
    if (survey.unknown > STORE_UNKNOWN_TOLD) {
        mill_log_dirs_say(dirs, MILL_LEVEL_WARN, "store.unknown-file",
                          "%s holds %u more files that are not a log's", dir->path,
                          survey.unknown - STORE_UNKNOWN_TOLD);
    }
    r = clean_take(options->files, dir->path);
    if (r < 0) {
        return mill_fail(report, r, "%s/%s cannot be removed: %s", dir->path, clean_name,
                         strerror(-r));
    }
    dir->clean = r == 1;
    return 0;
}

int mill_log_dirs_open(const struct mill_log_dirs_options *options, struct mill_log_dirs **ret_dirs,
                       struct mill_report *report)
{
    if (options->count == 0 || options->count > STORE_DIRS_MAX) {
        return mill_fail(report, -EINVAL, "log.dirs must name 1 to %d directories", STORE_DIRS_MAX);
    }
    struct mill_log_dirs *dirs = calloc(1, sizeof(*dirs));
    if (!dirs) {
        return mill_fail(report, -ENOMEM, "no memory for the log directories");
    }
    dirs->options = *options;
    dirs->count = options->count;
    pthread_mutex_init(&dirs->lock, NULL);
    pthread_mutex_init(&dirs->writer, NULL);
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < options->count; i++) {
        if (strlen(options->paths[i]) >= STORE_DIR_PATH_BYTES) {
            r = mill_fail(report, -ENAMETOOLONG, "log directory %.40s...: path too long",
                          options->paths[i]);
            break;
        }
        snprintf(dirs->dirs[i].path, sizeof(dirs->dirs[i].path), "%s", options->paths[i]);
        r = dir_open(dirs, i, report);
    }
    if (r < 0) {
        mill_log_dirs_abandon(dirs);
        return r;
    }
    *ret_dirs = dirs;
    return 0;
}

bool mill_log_dirs_clean(const struct mill_log_dirs *dirs)
{
    for (uint32_t i = 0; i < dirs->count; i++) {
        if (!dirs->dirs[i].clean) {
            return false;
        }
    }
    return true;
}

struct mill_load_progress mill_log_dirs_progress(const struct mill_log_dirs *dirs)
{
    struct mill_load_progress progress = {0};
    for (uint32_t i = 0; i < dirs->count; i++) {
        /* Loaded first: it never shows above those to be loaded. */
        progress.loaded += atomic_load(&dirs->dirs[i].loaded_count);
        progress.partitions += atomic_load(&dirs->dirs[i].loads_count);
        progress.bytes += atomic_load(&dirs->dirs[i].loaded_bytes);
    }
    return progress;
}

/* --- ending ---------------------------------------------------------------------------------- */

static int dir_close(struct mill_log_dirs *dirs, struct store_dir *dir)
{
    const struct mill_file_calls *files = dirs->options.files;
    int r = files->sync_all(files->context, dir->path);
    r = r < 0 ? r : mill_store_offsets_write(dirs, dir);
#ifdef MILL_MUTANT_STORE_NO_CLEAN_MARK
    return r;
#endif
    return r < 0 ? r : mill_store_write_text(files, dir->path, clean_name, clean_text);
}

int mill_log_dirs_close(struct mill_log_dirs *dirs, bool clean)
{
    int first = 0;
    for (uint32_t i = 0; dirs && clean && i < dirs->count; i++) {
        int r = atomic_load(&dirs->dirs[i].fenced) ? -EIO : dir_close(dirs, &dirs->dirs[i]);
        if (r < 0) {
            mill_log_dirs_say(dirs, MILL_LEVEL_WARN, "store.unclean",
                              "log directory %s is not marked as cleanly ended: %s",
                              dirs->dirs[i].path, strerror(-r));
            first = first < 0 ? first : r;
        }
    }
    mill_log_dirs_abandon(dirs);
    return first;
}

void mill_log_dirs_abandon(struct mill_log_dirs *dirs)
{
    if (!dirs) {
        return;
    }
    for (uint32_t i = 0; i < dirs->count; i++) {
        mill_store_offsets_free(&dirs->dirs[i].offsets);
    }
    pthread_mutex_destroy(&dirs->lock);
    pthread_mutex_destroy(&dirs->writer);
    free(dirs);
}
