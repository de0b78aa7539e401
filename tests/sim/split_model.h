/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a modelled wire as a port with several queues: which queue a frame comes in on is
 * decided here, as badly as a card could. Sending goes straight to the end. One thread. */
#ifndef MILL_TESTS_SIM_SPLIT_MODEL_H
#define MILL_TESTS_SIM_SPLIT_MODEL_H

#include "base/random.h"
#include "dataplane/net/link.h"

enum {
    MILL_SPLIT_QUEUES_MAX = 4,
};

enum mill_split_kind {
    MILL_SPLIT_FIRST, /* all frames on queue 0 */
    MILL_SPLIT_TURN,  /* any queue, another one for each frame */
    MILL_SPLIT_MOVED, /* by the peer's port, but the table changes all the time */
};

struct mill_split_model;

struct mill_split_model *mill_split_model_create(const struct mill_link *end, uint32_t queues,
                                                 enum mill_split_kind kind, uint64_t seed);
/* Frees frames that wait in queues. */
void mill_split_model_destroy(struct mill_split_model *model);
const struct mill_link *mill_split_model_link(struct mill_split_model *model, uint32_t queue);
/* Whether frames wait in a queue. */
bool mill_split_model_waits(const struct mill_split_model *model);

#endif
