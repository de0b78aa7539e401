/* SPDX-License-Identifier: Apache-2.0 */
/* The members of test_consumer_groups.c, of either protocol: each joins, gives up and takes
 * partitions as the answers tell it, and commits rising offsets of what it owns. */
#ifndef MILL_TESTS_SIM_GROUP_PERSONS_H
#define MILL_TESTS_SIM_GROUP_PERSONS_H

#include "tests/sim/world.h"

enum {
    PARTITIONS = 6,
    MEMBERS = 4,
    SILENCE_NS = 1500000000, /* as the world's setting */
    SHARES_MAX = 32,         /* members that one who leads is told of */
};

static const char topic[] = "sim";

enum doing {
    IDLE,
    BEATING,
    COMMITTING,
    JOINING, /* of the classic protocol, and the next two */
    SYNCING,
    HEARTBEATING,
};

/* What one that leads gives to a member. */
struct share {
    char id[64];
    uint32_t owned; /* as it said */
    uint32_t bits;
};

struct person {
    struct world_client client;
    bool connected;
    enum doing doing;
    char id[64];
    uint32_t ids;
    bool classic;
    bool joins; /* a classic one: it is to join again */
    bool syncs; /* it joined, and is to sync */
    struct share shares[SHARES_MAX];
    uint32_t shares_count;
    int32_t epoch;     /* 0 it is to join; a classic one's generation */
    uint32_t owned;    /* bits of partitions */
    bool tell_owned;   /* with the next heartbeat */
    bool tell_all;     /* an answer was lost: it says everything, and is told everything */
    uint64_t asked_ns; /* its last heartbeat */
    uint64_t heard_ns; /* the last one that was answered: what it owns is its from then on, for
                          SILENCE_NS */
    int32_t partition; /* committing */
    int64_t committing;
};

struct tally {
    int64_t sent[PARTITIONS];
    int64_t acked[PARTITIONS];
    uint64_t commits;
    uint64_t moves; /* times an assignment changed */
    uint64_t turns; /* times the group was seen to have changed its protocol */
    uint64_t mixed; /* joins of classic members in a group of the consumer protocol */
    bool new_last;
    bool mix; /* members of both protocols */
    uint32_t killed;
};

/* Another process takes its place, under another id. classic: it speaks that protocol. */
void person_begin(struct person *person, uint32_t index, bool classic);
void person_step(struct world *world, struct person *person, uint32_t index, struct tally *tally);
void person_disconnect(struct person *person);
void persons_disconnect(struct person *people);

#endif
