/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever is killed when, no two members of a group of the consumer protocol own a
 * partition, an offset that was acknowledged to a member never goes back, and the group comes to
 * rest again; the same while members of the classic protocol are in it, and it goes from one
 * protocol to the other. Method: a whole broker on virtual time (world.h); members that join, give
 * up and take partitions as the answers tell them, commit rising offsets of what they own, fall
 * silent and die; control and the data plane are killed between any two turns. Classic members are
 * cooperative ones (KIP-429): they keep what they own while they join, and whoever leads gives a
 * partition to nobody whom another one still has to give it up for.
 * test_consumer_groups [SEED [mix]]     one seed in place of the usual ones; mix: both protocols */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/group_persons.h"
#include "tests/unit/test.h"

enum {
    ROUNDS = 60,
    TURNS_PER_ROUND = 500,
    SEEDS_DEFAULT = 8,
    SEEDS_FULL = 300,
    FETCH_VERSION = 5,
    BODY_BYTES = 2048,
};

static void check_owners(const struct world *world, const struct person *people)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        bool lives = people[i].epoch > 0 && world->now.mono_ns - people[i].heard_ns < SILENCE_NS;
        MILL_ASSERT_EQ(lives ? taken & people[i].owned : 0, 0u);
        taken |= lives ? people[i].owned : 0;
    }
}

static void run_turns(struct world *world, struct person *people, struct tally *tally,
                      uint32_t turns)
{
    for (uint32_t turn = 0; turn < turns; turn++) {
        uint32_t index = mill_random_below(&world->random, MEMBERS);
        person_step(world, &people[index], index, tally);
        check_owners(world, people);
        world_turn(world, MILL_NS_PER_MS);
    }
}

/* Several members join at once, so that records wait in control for those before them, and control
 * is killed while that is on its way. */
static void kill_in_the_middle(struct world *world, struct person *people, struct tally *tally)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        if (mill_random_below(&world->random, 4) > 0) {
            person_disconnect(&people[i]);
            person_begin(&people[i], i, tally->mix && mill_random_below(&world->random, 2) == 0);
        }
        for (uint32_t tries = 0; people[i].doing == IDLE && tries < 100; tries++) {
            person_step(world, &people[i], i, tally);
        }
    }
    for (uint32_t turns = mill_random_below(&world->random, 5); turns > 0; turns--) {
        for (uint32_t i = 0; i < MEMBERS; i++) {
            person_step(world, &people[i], i, tally);
        }
        world_turn(world, MILL_NS_PER_MS);
    }
    world_crash_control(world);
    tally->killed++;
}

static void disturb(struct world *world, struct person *people, struct tally *tally)
{
    uint32_t index = mill_random_below(&world->random, MEMBERS);
    switch (mill_random_below(&world->random, tally->mix ? 7 : 5)) {
    case 0:
        persons_disconnect(people);
        world_crash(world);
        tally->killed++;
        break;
    case 1:
    case 2:
        kill_in_the_middle(world, people, tally);
        break;
    case 3:
        person_disconnect(&people[index]);
        person_begin(&people[index], index,
                     tally->mix && mill_random_below(&world->random, 2) == 0);
        break;
    case 5: /* everybody comes back with one protocol */
    case 6:
        for (uint32_t i = 0; i < MEMBERS; i++) {
            person_disconnect(&people[i]);
            person_begin(&people[i], i, (index & 1) != 0);
        }
        run_turns(world, people, tally, 4 * TURNS_PER_ROUND); /* until those before are missed */
        break;
    default: /* a pause: all are silent for too long */
        for (uint32_t i = 0; i < 900; i++) {
            world_turn(world, 2 * MILL_NS_PER_MS);
        }
        break;
    }
}

/* Everybody speaks until all is shared out, each partition once. */
static void check_rest(struct world *world, struct person *people, struct tally *tally)
{
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t owned = 0;
        run_turns(world, people, tally, 500);
        for (uint32_t k = 0; k < MEMBERS; k++) {
            owned |= people[k].owned;
        }
        if (owned == (1u << PARTITIONS) - 1) {
            return;
        }
    }
    MILL_ASSERT(false);
}

static void get_asked_index(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    *(int32_t *)ret_element = ((const struct person *)context)->partition;
}

static void get_fetch_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_fetch_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->partition_indexes =
        (struct mill_warray){.count = 1, .get = get_asked_index, .context = context};
}

/* The committed offset, 0 none; asks until somebody knows. */
static int64_t fetch(struct world *world, struct person *person, int32_t partition)
{
    struct mill_offset_fetch_response answer = {.error_code = MILL_KERR_NOT_COORDINATOR};
    struct mill_offset_fetch_response_topics one;
    struct mill_buf buf; /* of the answer */
    struct mill_offset_fetch_response_topics_partitions part;
    for (uint32_t i = 0; i < 200 && answer.error_code != MILL_KERR_NONE; i++) {
        uint8_t body[BODY_BYTES];
        struct mill_writer to;
        struct mill_offset_fetch_request message;
        mill_offset_fetch_request_defaults(&message);
        person->partition = partition;
        message.group_id = mill_wstr_of("crowd");
        message.topics =
            (struct mill_warray){.count = 1, .get = get_fetch_topic, .context = person};
        mill_writer_init(&to, body, sizeof(body), NULL, 0);
        (void)mill_offset_fetch_request_encode(&to, FETCH_VERSION, &message);
        world_send(&person->client, MILL_API_KEY_OFFSET_FETCH, FETCH_VERSION, body, to.size_bytes);
        uint32_t size = world_await(&person->client);
        struct mill_cursor at = mill_cursor_over(&buf, person->client.answer, size);
        MILL_ASSERT_EQ(mill_cursor_skip(&at, 4), 0);
        MILL_ASSERT_EQ(mill_offset_fetch_response_decode(&at, FETCH_VERSION, &answer), 0);
        for (uint32_t turn = 0; turn < 50; turn++) {
            world_turn(world, MILL_NS_PER_MS);
        }
    }
    MILL_ASSERT_EQ(answer.error_code, 0);
    MILL_ASSERT(mill_offset_fetch_response_topics_next(&answer.topics, FETCH_VERSION, &one));
    MILL_ASSERT(
        mill_offset_fetch_response_topics_partitions_next(&one.partitions, FETCH_VERSION, &part));
    return MILL_MAX(part.committed_offset, (int64_t)0);
}

/* What was acknowledged is there for one that reads the log. */
static void check_offsets(struct world *world, struct person *person, const struct tally *tally)
{
    world_connect(world, &person->client, 0);
    for (int32_t p = 0; p < PARTITIONS; p++) {
        int64_t kept = fetch(world, person, p);
        MILL_ASSERT_LE(tally->acked[p], kept);
        MILL_ASSERT_LE(kept, tally->sent[p]);
    }
    world_disconnect(&person->client);
}

/* changes: of the protocol of the group, counted on. */
static void run_seed(uint64_t seed, uint32_t cores, bool mix, uint64_t *changes)
{
    static struct world world;
    static struct person people[MEMBERS];
    struct tally tally = {.mix = mix};
    memset(people, 0, sizeof(people));
    world_open(&world, cores, seed);
    world_topic(&world, topic, PARTITIONS, "segment.bytes", "1048576");
    world_offsets_topic(&world);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        person_begin(&people[i], i, mix && i % 2 == 0);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        run_turns(&world, people, &tally, TURNS_PER_ROUND);
        disturb(&world, people, &tally);
    }
    check_rest(&world, people, &tally);
    persons_disconnect(people);
    world_crash_control(&world);
    world_settle(&world, 10000);
    check_offsets(&world, &people[0], &tally);
    MILL_ASSERT_LT(20ull, tally.commits);
    MILL_ASSERT_LT(5ull, tally.moves);
    MILL_ASSERT(!mix || tally.mixed > 0);
    *changes += tally.turns;
    world_close(&world);
    printf("seed %llu cores %u: %llu commits, %llu moves, %u kills, %llu joins beside new members, "
           "%llu changes of protocol\n",
           (unsigned long long)seed, cores, (unsigned long long)tally.commits,
           (unsigned long long)tally.moves, tally.killed, (unsigned long long)tally.mixed,
           (unsigned long long)tally.turns);
}

static void run_seeds(bool mix)
{
    const char *full = getenv("MILLRACE_FULL");
    uint64_t count = full && strcmp(full, "1") == 0 ? SEEDS_FULL : SEEDS_DEFAULT;
    uint64_t changes = 0;
    for (uint64_t seed = 1; seed <= count; seed++) {
        printf("seed %llu\n", (unsigned long long)seed);
        run_seed(seed, 1 + (uint32_t)(seed % 3), mix, &changes);
    }
    MILL_ASSERT(!mix || changes >= 2 * count);
}

static void test_no_partition_has_two_owners(void **state)
{
    MILL_UNUSED(state);
    run_seeds(false);
}

static void test_nor_while_protocols_change(void **state)
{
    MILL_UNUSED(state);
    run_seeds(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_partition_has_two_owners),
                                       cmocka_unit_test(test_nor_while_protocols_change)};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) {
        uint64_t seed = strtoull(argv[1], NULL, 0);
        uint64_t changes = 0;
        run_seed(seed, 1 + (uint32_t)(seed % 3), argc > 2, &changes);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
