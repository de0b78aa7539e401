/* SPDX-License-Identifier: Apache-2.0 */
/* Adds that wait; see waits.h. */
#include "control/txn/waits.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"

enum {
    WAITS_MAX = 4096,
    WAIT_NS = 1000000000,
};

struct mill_txn_wait {
    struct mill_txn_wait *next;
    struct mill_txn_holder holder;
    struct mill_txn_set *added;
    uint64_t until_ns;
    mill_txns_done done;
    void *context;
    char id[];
};

static void wait_free(struct mill_txn_wait *wait)
{
    free(wait->added);
    free(wait);
}

bool mill_txn_wait_add(struct mill_txns *txns, const char *id, const struct mill_txn_holder *holder,
                       const struct mill_txn_partition *added, uint32_t added_count,
                       mill_txns_done done, void *context)
{
    size_t id_bytes = strlen(id) + 1;
    struct mill_txn_wait *wait =
        txns->waits_count < WAITS_MAX ? malloc(sizeof(*wait) + id_bytes) : NULL;
    if (!wait) {
        return false;
    }
    *wait = (struct mill_txn_wait){
        .holder = *holder, .until_ns = txns->now_ns + WAIT_NS, .done = done, .context = context};
    memcpy(wait->id, id, id_bytes);
    if (mill_txn_set_join(NULL, added, added_count, &wait->added) < 0) {
        free(wait);
        return false;
    }
#ifndef MILL_MUTANT_TXN_WAITS_UNCOUNTED
    if (txns->env.bytes + wait->added->size_bytes > txns->env.bytes_max) {
        txns->env.full++;
        wait_free(wait);
        return false;
    }
#endif
    txns->env.bytes += wait->added->size_bytes;
    *txns->waits_last = wait;
    txns->waits_last = &wait->next;
    txns->waits_count++;
    return true;
}

/* Takes *at out of the list, which is all that knows it. */
static struct mill_txn_wait *take_out(struct mill_txns *txns, struct mill_txn_wait **at)
{
    struct mill_txn_wait *wait = *at;
    *at = wait->next;
    if (txns->waits_last == &wait->next) {
        txns->waits_last = at;
    }
    txns->waits_count--;
    txns->env.bytes -= wait->added->size_bytes;
    return wait;
}

/* Asks again, or says that its time is over. May put others at the end of the list. */
static void wait_end(struct mill_txns *txns, struct mill_txn_wait *wait)
{
    if (wait->until_ns <= txns->now_ns) {
        wait->done(wait->context, MILL_KERR_CONCURRENT_TRANSACTIONS, NULL);
    } else {
        mill_txns_add(txns, wait->id, &wait->holder, MILL_TXN_BUMPED, wait->added->items,
                      wait->added->count, wait->done, wait->context);
    }
    wait_free(wait);
}

uint64_t mill_txn_waits_step(struct mill_txns *txns)
{
    struct mill_txn_wait **at = &txns->waits;
    bool late = txns->waits && txns->waits->until_ns <= txns->now_ns;
    uint32_t count = txns->waits_look || late ? txns->waits_count : 0;
    txns->waits_look = false;
    /* One after the other: the first of an id that writes makes it busy again, and those behind
     * wait on, each until its own time. */
    for (uint32_t i = 0; i < count; i++) {
        const struct mill_txn *txn = mill_txns_find(txns, (*at)->id);
        if (!txn || !mill_txn_busy(txn) || (*at)->until_ns <= txns->now_ns) {
            wait_end(txns, take_out(txns, at));
        } else {
            at = &(*at)->next;
        }
    }
    return txns->waits ? txns->waits->until_ns : MILL_NEVER;
}

void mill_txn_waits_close(struct mill_txns *txns)
{
    while (txns->waits) {
        struct mill_txn_wait *wait = take_out(txns, &txns->waits);
        wait->done(wait->context, MILL_KERR_NOT_COORDINATOR, NULL);
        wait_free(wait);
    }
}
