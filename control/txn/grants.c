/* SPDX-License-Identifier: Apache-2.0 */
/* Grants on their way; see grants.h. */
#include "control/txn/grants.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

struct grants {
    uint32_t left;
    int16_t error;
    void (*done)(void *context, int16_t error);
    void *context;
};

static void one_less(struct grants *grants, int16_t error)
{
    grants->error = grants->error ? grants->error : error;
    if (--grants->left == 0) {
        grants->done(grants->context, grants->error);
        free(grants);
    }
}

static void arrived(void *context, const struct mill_journal_result *result)
{
    bool refused = result->outcome == MILL_JOURNAL_REFUSED;
    one_less(context, result->outcome == MILL_JOURNAL_DONE ? (int16_t)MILL_KERR_NONE
                      : refused && result->error == MILL_KERR_INVALID_PRODUCER_EPOCH
                          ? (int16_t)MILL_KERR_PRODUCER_FENCED
                          : (int16_t)MILL_KERR_COORDINATOR_NOT_AVAILABLE);
}

void mill_txn_grants_begin(struct mill_txns *txns, const struct mill_txn_values *values,
                           const struct mill_txn_partition *partitions, uint32_t count,
                           void (*done)(void *context, int16_t error), void *context)
{
    const struct mill_journal_marker grant = {.grant = true,
                                              .producer_id = values->producer_id,
                                              .producer_epoch = values->producer_epoch};
    struct grants *grants = malloc(sizeof(*grants));
    if (!grants) {
        done(context, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
        return;
    }
    *grants = (struct grants){.left = 1, .done = done, .context = context}; /* this call itself */
    for (uint32_t i = 0; i < count && grants->error == MILL_KERR_NONE; i++) {
        const char *name = partitions[i].topic;
        const struct mill_topic *topic =
            mill_topics_by_name(txns->shards.topics, name, (uint32_t)strlen(name));
        if (!topic || (uint32_t)partitions[i].index >= topic->record->partitions_count) {
            continue; /* nobody can write to it */
        }
        if (mill_journal_mark(txns->shards.journal, topic->record, partitions[i].index, &grant,
                              arrived, grants) < 0) {
            grants->error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
        } else {
            grants->left++; /* it never arrives within the call */
        }
    }
    one_less(grants, MILL_KERR_NONE);
}
