/* SPDX-License-Identifier: Apache-2.0 */
/* Loading beside the stores; see loaders.h. Each thread has files and a window of its own (a store
 * that is never stepped); those of a directory share its queue, in which partitions stand in the
 * order in which they were given. */
#include "dataplane/store/loaders.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/log_line.h"
#include "dataplane/store/load.h"

enum {
    OPEN_FILES = 16,
};

#define TELL_NS (5 * MILL_NS_PER_S) /* between lines about a long start */

struct loader;

struct loader_thread {
    struct loader *loader;
    struct mill_store *store;
    pthread_t thread;
    bool started;
};

/* Of one directory. */
struct loader {
    struct mill_loaders *loaders;
    uint32_t dir;
    bool stop;
    uint32_t running;     /* partitions being loaded */
    pthread_mutex_t lock; /* of the queue and of the states of what is in it */
    pthread_cond_t changed;
    struct store_partition *first;
    struct store_partition **last;
    uint64_t begun_ns; /* of this run of partitions, 0 none */
    uint64_t told_ns;
    struct loader_thread threads[MILL_LOADERS_PER_DIR_MAX];
};

struct mill_loaders {
    struct mill_log_dirs *dirs;
    struct loader *loaders;
    uint32_t count;
    uint32_t per_dir; /* threads */
};

/* --- the thread ------------------------------------------------------------------------------ */

static void load_one(struct mill_store *store, struct store_partition *partition)
{
    int r = mill_store_load_synced(store, partition);
    for (uint32_t i = 0; i < partition->segments_count; i++) {
        mill_store_file_close(store, partition, &partition->segments[i]);
    }
    partition->status = r;
}

/* Lines about a start that takes long; all: nothing is left. */
static void tell(struct loader *loader, bool all)
{
    struct store_dir *dir = &loader->loaders->dirs->dirs[loader->dir];
    uint64_t now_ns = mill_now_read().mono_ns;
    if (now_ns - loader->told_ns < TELL_NS && !(all && loader->told_ns != loader->begun_ns)) {
        return;
    }
    loader->told_ns = now_ns;
    mill_log_dirs_say(
        loader->loaders->dirs, MILL_LEVEL_INFO, all ? "store.loaded" : "store.loading",
        "dir=%s partitions=%" PRIu64 "/%" PRIu64 " bytes=%" PRIu64 " ms=%" PRIu64, dir->path,
        atomic_load(&dir->loaded_count), atomic_load(&dir->loads_count),
        atomic_load(&dir->loaded_bytes), (uint64_t)((now_ns - loader->begun_ns) / MILL_NS_PER_MS));
}

static void done_put(struct store_partition *partition)
{
    struct store_loaded *loaded = &partition->loading_for->loaded;
    partition->next_loading = NULL;
    pthread_mutex_lock(&loaded->lock);
    *loaded->last = partition;
    loaded->last = &partition->next_loading;
    pthread_mutex_unlock(&loaded->lock);
}

static void done_remove(struct store_partition *partition)
{
    struct store_loaded *loaded = &partition->loading_for->loaded;
    pthread_mutex_lock(&loaded->lock);
    struct store_partition **at = &loaded->first;
    while (*at != partition) {
        at = &(*at)->next_loading;
    }
    *at = partition->next_loading;
    loaded->last = *at ? loaded->last : at;
    pthread_mutex_unlock(&loaded->lock);
}

static void *run(void *argument)
{
    struct loader_thread *self = argument;
    struct loader *loader = self->loader;
    struct store_dir *dir = &loader->loaders->dirs->dirs[loader->dir];
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop) {
        struct store_partition *partition = loader->first;
        if (!partition) {
            loader->begun_ns = loader->running > 0 ? loader->begun_ns : 0;
            pthread_cond_wait(&loader->changed, &loader->lock);
            continue;
        }
        if (loader->begun_ns == 0) {
            loader->begun_ns = loader->told_ns = mill_now_read().mono_ns;
        }
        loader->first = partition->next_loading;
        loader->last = loader->first ? loader->last : &loader->first;
        partition->loading = STORE_LOAD_RUNS;
        loader->running++;
        pthread_mutex_unlock(&loader->lock);
        load_one(self->store, partition);
        struct mill_bell bell = partition->loading_for->config.bell;
        atomic_fetch_add(&dir->loaded_count, 1);
        pthread_mutex_lock(&loader->lock);
        loader->running--;
        done_put(partition);
        partition->loading = STORE_LOAD_DONE; /* the store's again */
        pthread_cond_broadcast(&loader->changed);
        tell(loader, loader->first == NULL && loader->running == 0);
        mill_bell_ring(&bell);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

/* --- making ---------------------------------------------------------------------------------- */

static int thread_begin(struct loader *loader, struct loader_thread *thread,
                        struct mill_report *report)
{
    struct mill_log_dirs *dirs = loader->loaders->dirs;
    struct mill_store_config config = {.dirs = dirs,
                                       .open_files_max = OPEN_FILES,
                                       .producers_max = UINT32_MAX,
                                       .producer_expiration_ms = INT64_MAX};
    thread->loader = loader;
    int r = mill_store_create(&config, &thread->store, report);
    if (r < 0) {
        return r;
    }
    r = -pthread_create(&thread->thread, NULL, run, thread);
    thread->started = r == 0;
    return r < 0 ? mill_fail(report, r, "no thread to load %s", dirs->dirs[loader->dir].path) : 0;
}

int mill_loaders_create(struct mill_log_dirs *dirs, uint32_t per_dir,
                        struct mill_loaders **ret_loaders, struct mill_report *report)
{
    struct mill_loaders *loaders = calloc(1, sizeof(*loaders));
    if (loaders) {
        loaders->dirs = dirs;
        loaders->per_dir = MILL_MIN(per_dir, (uint32_t)MILL_LOADERS_PER_DIR_MAX);
        loaders->loaders = calloc(dirs->count, sizeof(loaders->loaders[0]));
    }
    if (!loaders || !loaders->loaders) {
        free(loaders);
        return mill_fail(report, -ENOMEM, "no memory to load log directories");
    }
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < dirs->count; i++) {
        struct loader *loader = &loaders->loaders[i];
        *loader = (struct loader){.loaders = loaders, .dir = i, .last = &loader->first};
        pthread_mutex_init(&loader->lock, NULL);
        pthread_cond_init(&loader->changed, NULL);
        loaders->count++;
        for (uint32_t j = 0; r == 0 && j < loaders->per_dir; j++) {
            r = thread_begin(loader, &loader->threads[j], report);
        }
    }
    if (r < 0) {
        mill_loaders_destroy(loaders);
        return r;
    }
    *ret_loaders = loaders;
    return 0;
}

void mill_loaders_destroy(struct mill_loaders *loaders)
{
    for (uint32_t i = 0; loaders && i < loaders->count; i++) {
        struct loader *loader = &loaders->loaders[i];
        pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->lock);
        for (uint32_t j = 0; j < loaders->per_dir; j++) {
            if (loader->threads[j].started) {
                pthread_join(loader->threads[j].thread, NULL);
            }
            mill_store_abandon(loader->threads[j].store);
        }
        pthread_cond_destroy(&loader->changed);
        pthread_mutex_destroy(&loader->lock);
    }
    if (loaders) {
        free(loaders->loaders);
        free(loaders);
    }
}

/* --- for the stores -------------------------------------------------------------------------- */

void mill_loaders_give(struct mill_loaders *loaders, struct store_partition *partition,
                       struct mill_store *store)
{
    struct loader *loader = &loaders->loaders[partition->dir];
    atomic_fetch_add(&loaders->dirs->dirs[partition->dir].loads_count, 1);
    partition->loading_for = store;
    partition->next_loading = NULL;
    pthread_mutex_lock(&loader->lock);
    partition->loading = STORE_LOAD_WAITS;
    *loader->last = partition;
    loader->last = &partition->next_loading;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

struct store_partition *mill_loaders_take(struct mill_store *store)
{
    struct store_loaded *loaded = &store->loaded;
    pthread_mutex_lock(&loaded->lock);
    struct store_partition *first = loaded->first;
    loaded->first = NULL;
    loaded->last = &loaded->first;
    pthread_mutex_unlock(&loaded->lock);
    return first;
}

void mill_loaders_release(struct mill_loaders *loaders, struct store_partition *partition)
{
    /* The loader holds the lock until it has let go. */
    struct loader *loader = &loaders->loaders[partition->dir];
    pthread_mutex_lock(&loader->lock);
    partition->loading = STORE_LOAD_NOT;
    pthread_mutex_unlock(&loader->lock);
}

void mill_loaders_finish(struct mill_loaders *loaders, struct store_partition *partition)
{
    struct loader *loader = &loaders->loaders[partition->dir];
    pthread_mutex_lock(&loader->lock);
    while (partition->loading == STORE_LOAD_RUNS) {
        pthread_cond_wait(&loader->changed, &loader->lock);
    }
    if (partition->loading == STORE_LOAD_WAITS) {
        struct store_partition **at = &loader->first;
        while (*at != partition) {
            at = &(*at)->next_loading;
        }
        *at = partition->next_loading;
        if (loader->last == &partition->next_loading) {
            loader->last = at;
        }
        partition->status = -ECANCELED;
    } else if (partition->loading == STORE_LOAD_DONE) {
        done_remove(partition);
    }
    partition->loading = STORE_LOAD_NOT;
    pthread_mutex_unlock(&loader->lock);
}
