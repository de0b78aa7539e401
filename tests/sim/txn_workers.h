/* SPDX-License-Identifier: Apache-2.0 */
/* The producers of test_transactions.c: each has a transactional id and a group, does what clients
 * do, and notes what it was told of every transaction. */
#ifndef MILL_TESTS_SIM_TXN_WORKERS_H
#define MILL_TESTS_SIM_TXN_WORKERS_H

#include "tests/sim/world.h"

enum {
    PARTITIONS = 5,
    WORKERS = 4,
    TXNS_MAX = 20000,
};

static const char topic[] = "sim";

enum fate { OPEN, COMMITTING, COMMITTED, ABORTED };

/* What was done in a transaction. */
struct txn {
    uint8_t fate;
    uint8_t worker;
    uint8_t sent[PARTITIONS]; /* batches acknowledged */
    bool offset;              /* its number was committed as an offset */
};

enum doing {
    IDLE,
    INITING,
    ADDING,
    PRODUCING,
    ADDING_OFFSETS,
    COMMITTING_OFFSET,
    ENDING,
    COMING_LATE,
};

/* Whose transactions they are, and how far their batches are. */
struct identity {
    int64_t producer_id;
    int16_t epoch;
    int32_t sequences[PARTITIONS];
};

struct worker {
    struct world_client client;
    bool connected;
    char id[16];
    enum doing doing; /* asked */
    enum doing next;
    bool flexible;   /* the answer that is waited for */
    int16_t version; /* of that */
    struct identity me;
    bool bumps; /* the transaction is of version 2 */
    bool bumps_next;
    uint32_t txn;         /* number; 0 none */
    struct identity last; /* of the last transaction of version 2 */
    uint32_t last_txn;    /* its number, until a batch of it came late; 0 none */
    bool again;           /* that batch is one that was sent before */
    uint32_t to[2];
    uint32_t at;   /* of to */
    uint32_t left; /* batches for the present partition */
    bool commit;
    bool with_offset;
};

struct run {
    struct world world;
    struct worker workers[WORKERS];
    struct txn txns[TXNS_MAX];
    uint32_t txns_count;
    uint32_t commits;
    uint32_t aborts;
    uint32_t inits;
    uint32_t bumped; /* ends that gave out an epoch */
    uint32_t late;   /* batches of it that were refused */
};

/* begin: may begin another transaction. */
void worker_step(struct run *run, struct worker *worker, bool begin);
/* A client's process dies; what it had begun, another one of its id ends. */
void worker_die(struct run *run, struct worker *worker);
void workers_disconnect(struct run *run);
/* Whether a request that got this error may be made again. */
bool worker_may_repeat(int16_t error);

#endif
