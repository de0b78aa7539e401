/* SPDX-License-Identifier: Apache-2.0 */
/* The control process as one object: rings and life signs on one side, the controller on the other.
 * mill_control_step does one bounded turn; clock, memory, store and random numbers come in from
 * outside, so that a test runs it beside cores in one process. One thread. It never touches a
 * client socket, and no core waits for it longer than the deadline the core wrote into its request.
 */
#ifndef MILL_CONTROL_CONTROL_H
#define MILL_CONTROL_CONTROL_H

#include "base/clock.h"
#include "control/controller/controller.h"
#include "ipc/counters.h"

/* The list is MILL_CONTROL_COUNTERS in base/counter_lists.h. */
struct mill_control_counters {
#define MILL_CONTROL_COUNTER(name, help) uint64_t name;
    MILL_CONTROL_COUNTERS(MILL_CONTROL_COUNTER)
#undef MILL_CONTROL_COUNTER
};

struct mill_control_options {
    const struct mill_config *config;
    struct mill_meta meta; /* open; control closes it */
    struct mill_map *map;
    struct mill_ipc_segment *segment; /* checked */
    uint64_t segment_bytes;
    const int *core_bells;              /* eventfd of each core's bell */
    struct mill_shared_control *shared; /* where the counters are shown; NULL: nowhere */
    mill_control_random random;
    void *random_context;
};

struct mill_control;

/* Attaches to the rings and shows its incarnation; loads and publishes nothing yet. ret: 0;
 * -EBADMSG damaged rings or map; -ENOMEM. */
int mill_control_open(const struct mill_control_options *options, struct mill_control **ret_control,
                      struct mill_report *report) MILL_WARN_UNUSED;
/* Shows incarnation 0 and frees everything; waiting requests are left to the cores' deadlines. */
void mill_control_close(struct mill_control *control);

/* One turn. ret: 0 and when the next is due without a bell (at most a second away while something
 * is waited for); a store that cannot be read at start is -errno with the report: give up. */
int mill_control_step(struct mill_control *control, const struct mill_now *now,
                      uint64_t *ret_next_ns, struct mill_report *report) MILL_WARN_UNUSED;

/* True when a look at the rings would find work: asked between publishing "asleep" and sleeping. */
bool mill_control_has_work(const struct mill_control *control);
bool mill_control_is_serving(const struct mill_control *control);

const struct mill_control_counters *mill_control_counters(const struct mill_control *control);
struct mill_controller *mill_control_controller(struct mill_control *control);

#endif
