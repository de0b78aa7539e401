/* SPDX-License-Identifier: Apache-2.0 */
/* Helper threads of a store; see helpers.h. One lock over three short queues: a job is a file call
 * of microseconds to seconds. */
#include "dataplane/store/helpers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/check.h"

struct queue {
    struct mill_helper_job *first;
    struct mill_helper_job *last;
};

struct helper {
    struct mill_helpers *helpers;
    struct mill_bell bell; /* each thread counts its own rings */
    pthread_t thread;
};

struct mill_helpers {
    pthread_mutex_t lock;
    pthread_cond_t given;
    pthread_cond_t ended;
    struct queue queues[MILL_HELPER_KIND_COUNT];
    uint32_t running[MILL_HELPER_KIND_COUNT];
    uint32_t running_max[MILL_HELPER_KIND_COUNT];
    struct queue finished;
    uint32_t under_way; /* given, not finished */
    bool ending;
    uint32_t count;
    struct helper threads[MILL_HELPERS_MAX];
};

static void queue_put(struct queue *queue, struct mill_helper_job *job)
{
    job->next = NULL;
    if (queue->first) {
        queue->last->next = job;
    } else {
        queue->first = job;
    }
    queue->last = job;
}

static struct mill_helper_job *queue_get(struct queue *queue)
{
    struct mill_helper_job *job = queue->first;
    if (job) {
        queue->first = job->next;
    }
    return job;
}

static struct mill_helper_job *next_job(struct mill_helpers *helpers)
{
    for (int kind = 0; kind < MILL_HELPER_KIND_COUNT; kind++) {
        if (helpers->running[kind] < helpers->running_max[kind] && helpers->queues[kind].first) {
            return queue_get(&helpers->queues[kind]);
        }
    }
    return NULL;
}

static void *helper_run(void *argument)
{
    struct helper *self = argument;
    struct mill_helpers *helpers = self->helpers;
    pthread_mutex_lock(&helpers->lock);
    for (;;) {
        struct mill_helper_job *job = next_job(helpers);
        if (!job) {
            if (helpers->ending) {
                break;
            }
            pthread_cond_wait(&helpers->given, &helpers->lock);
            continue;
        }
        enum mill_helper_kind kind = job->kind;
        helpers->running[kind]++;
        pthread_mutex_unlock(&helpers->lock);
        job->run(job);
        pthread_mutex_lock(&helpers->lock);
        helpers->running[kind]--;
        helpers->under_way--;
        queue_put(&helpers->finished, job);
        pthread_cond_signal(&helpers->ended);
        if (helpers->queues[kind].first) {
            pthread_cond_signal(&helpers->given); /* this kind had been at its limit */
        }
        pthread_mutex_unlock(&helpers->lock);
        mill_bell_ring(&self->bell);
        pthread_mutex_lock(&helpers->lock);
    }
    pthread_mutex_unlock(&helpers->lock);
    return NULL;
}

/* Signals are the main thread's. */
static int thread_start(struct helper *helper)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int r = pthread_create(&helper->thread, NULL, helper_run, helper);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -r;
}

int mill_helpers_create(uint32_t count, const struct mill_bell *bell,
                        struct mill_helpers **ret_helpers)
{
    if (count > MILL_HELPERS_MAX) {
        return -EINVAL;
    }
    struct mill_helpers *helpers = calloc(1, sizeof(*helpers));
    if (!helpers) {
        return -ENOMEM;
    }
    pthread_mutex_init(&helpers->lock, NULL);
    pthread_cond_init(&helpers->given, NULL);
    pthread_cond_init(&helpers->ended, NULL);
    helpers->running_max[MILL_HELPER_SYNC] = count;
#ifdef MILL_MUTANT_STORE_SYNC_ONE_BY_ONE
    helpers->running_max[MILL_HELPER_SYNC] = 1;
#endif
    helpers->running_max[MILL_HELPER_READ] = MILL_MAX(count / 2, 1u);
    helpers->running_max[MILL_HELPER_DROP] = MILL_MAX(count / 4, 1u);
#ifdef MILL_MUTANT_STORE_READS_TAKE_ALL
    helpers->running_max[MILL_HELPER_READ] = count;
#endif
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        helpers->threads[i] = (struct helper){.helpers = helpers, .bell = *bell};
        r = thread_start(&helpers->threads[i]);
        helpers->count += r == 0 ? 1 : 0;
    }
    if (r < 0) {
        mill_helpers_destroy(helpers);
        return r;
    }
    *ret_helpers = helpers;
    return 0;
}

void mill_helpers_destroy(struct mill_helpers *helpers)
{
    if (!helpers) {
        return;
    }
    pthread_mutex_lock(&helpers->lock);
    helpers->ending = true;
    pthread_cond_broadcast(&helpers->given);
    pthread_mutex_unlock(&helpers->lock);
    for (uint32_t i = 0; i < helpers->count; i++) {
        pthread_join(helpers->threads[i].thread, NULL);
    }
    pthread_cond_destroy(&helpers->ended);
    pthread_cond_destroy(&helpers->given);
    pthread_mutex_destroy(&helpers->lock);
    free(helpers);
}

void mill_helpers_give(struct mill_helpers *helpers, struct mill_helper_job *job)
{
    if (helpers->count == 0) {
        job->run(job);
        queue_put(&helpers->finished, job);
        return;
    }
    pthread_mutex_lock(&helpers->lock);
    queue_put(&helpers->queues[job->kind], job);
    helpers->under_way++;
    pthread_cond_signal(&helpers->given);
    pthread_mutex_unlock(&helpers->lock);
}

struct mill_helper_job *mill_helpers_take(struct mill_helpers *helpers)
{
    pthread_mutex_lock(&helpers->lock);
    struct mill_helper_job *job = queue_get(&helpers->finished);
    pthread_mutex_unlock(&helpers->lock);
    return job;
}

struct mill_helper_job *mill_helpers_wait(struct mill_helpers *helpers)
{
    pthread_mutex_lock(&helpers->lock);
    while (!helpers->finished.first && helpers->under_way > 0) {
        pthread_cond_wait(&helpers->ended, &helpers->lock);
    }
    struct mill_helper_job *job = queue_get(&helpers->finished);
    pthread_mutex_unlock(&helpers->lock);
    return job;
}
