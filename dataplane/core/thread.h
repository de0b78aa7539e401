/* SPDX-License-Identifier: Apache-2.0 */
/* Thin drivers: a thread that turns a core on its CPU, with idling, and one that turns a store.
 * They own clock, sleep and wake-up; everything else is in the steps.
 *
 * Idling (`adaptive`): after work it looks on for as long as that pays (idle.h) -> publish
 * "asleep", look once more, then one sleep in ksock's wait that covers sockets, the bell, TAP
 * descriptors and the next deadline. `busy`: never sleeps.
 */
#ifndef MILL_DATAPLANE_THREAD_H
#define MILL_DATAPLANE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "dataplane/core/core.h"
#include "dataplane/ksock/ksock.h"
#include "dataplane/port/port.h"
#include "dataplane/store/store.h"

enum {
    MILL_THREAD_PORTS_MAX = 8,
};

struct mill_core_thread {
    struct mill_core *core;
    struct mill_ksock *ksock;
    struct mill_bell bell; /* of this core: rung by others, slept on here */
    struct mill_shared_core *shared;
    uint32_t cpu;
    bool busy;
    uint32_t ports_count;
    struct mill_port *ports[MILL_THREAD_PORTS_MAX]; /* whose queue 0.. this core owns */
    uint16_t queues[MILL_THREAD_PORTS_MAX];
    bool nap_bounded;   /* a port has no descriptor to sleep on */
    _Atomic bool stop;  /* set by the main thread: stop cleanly, then return */
    _Atomic bool ready; /* every partition was opened, or has failed */
    _Atomic bool done;
    pthread_t thread;
};

/* Starts the thread on its CPU. ret: 0, -errno. */
int mill_core_thread_start(struct mill_core_thread *thread) MILL_WARN_UNUSED;
/* Asks for a clean stop and wakes it. */
void mill_core_thread_stop(struct mill_core_thread *thread);
void mill_core_thread_join(struct mill_core_thread *thread);

struct mill_store_thread {
    struct mill_store *store;
    struct mill_bell bell; /* of this store */
    bool busy;             /* its core never rings: look again every 100 us */
    bool whole;            /* after its end: mill_store_close's answer */
    _Atomic bool stop;
    pthread_t thread;
};

int mill_store_thread_start(struct mill_store_thread *thread) MILL_WARN_UNUSED;
/* After its core has stopped: closes the files cleanly. ret: all that was asked for is in them. */
bool mill_store_thread_stop(struct mill_store_thread *thread);

#endif
