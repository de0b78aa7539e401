/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever is killed when, and whatever control's allocations that fail, a committed offset
 * that was acknowledged never goes back, and in one generation no two members own a partition.
 * Method: a whole broker on virtual time (world.h); consumers that commit rising offsets by hand,
 * and a group whose members join, share partitions out, commit, fall silent and die; control and
 * the data plane are killed between any two turns.
 * test_groups [SEED [short]]     one seed in place of the usual ones; short: of memory */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/core/core_types.h"
#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/world.h"
#include "tests/unit/alloc_fail.h"
#include "tests/unit/test.h"

enum {
    PARTITIONS = 6,
    CONSUMERS = 4, /* each with a group of its own */
    MEMBERS = 4,   /* of one group */
    ROUNDS = 14,
    TURNS_PER_ROUND = 500,
    SEEDS_DEFAULT = 12,
    SEEDS_FULL = 500,
    SHORT_DEFAULT = 6, /* seeds with allocations that fail */
    SHORT_FULL = 200,
    SHORT_ONE_IN = 200,
    TIMEOUT_MS = 300,
    BODY_BYTES = 2048,
    COMMIT_VERSION = 7,
    FETCH_VERSION = 5,
    JOIN_VERSION = 5,
    SYNC_VERSION = 3,
    BEAT_VERSION = 3,
};

static const char topic[] = "sim";

/* What was committed of one partition by one group. */
struct mark {
    int64_t sent;
    int64_t acked;
};

enum doing {
    IDLE, /* nothing asked */
    COMMITTING,
    FETCHING,
    JOINING,
    SYNCING,
    BEATING,
};

/* A client: by hand (member false), or of the group. */
struct person {
    struct world_client client;
    char group[16];
    bool member;
    bool connected;
    enum doing doing;
    struct mark *marks; /* PARTITIONS of them */
    int32_t partition;  /* asked about */
    int64_t committing;
    int64_t acked_before; /* when it was asked */
    int64_t fetched;      /* last */
    /* member */
    bool works;
    char id[80];
    int32_t generation;
    uint32_t owned;
    uint32_t members_count;
    char members[MEMBERS + 2][80];
};

struct tally {
    uint64_t commits;
    uint64_t fetches;
    uint64_t assignments;
};

/* --- memory ------------------------------------------------------------------------------------
 */

int __real_mill_control_step(struct mill_control *control, const struct mill_now *now,
                             uint64_t *ret_next_ns, struct mill_report *report);
int __wrap_mill_control_step(struct mill_control *control, const struct mill_now *now,
                             uint64_t *ret_next_ns, struct mill_report *report);

/* Allocations fail in a control that serves; what a start does without memory is tested elsewhere
 * (control/memory). */
int __wrap_mill_control_step(struct mill_control *control, const struct mill_now *now,
                             uint64_t *ret_next_ns, struct mill_report *report)
{
    alloc_fail.armed = alloc_fail.one_in > 0 && mill_control_is_serving(control);
    int r = __real_mill_control_step(control, now, ret_next_ns, report);
    alloc_fail.armed = false;
    return r;
}

/* --- requests -------------------------------------------------------------------------------- */

static void send(struct person *person, int16_t key, int16_t version, const uint8_t *body,
                 const struct mill_writer *to, enum doing doing)
{
    MILL_ASSERT_EQ(to->error, 0);
    world_send(&person->client, key, version, body, to->size_bytes);
    person->doing = doing;
}

static void get_commit_partition(const void *context, int32_t index, void *ret_element)
{
    const struct person *person = context;
    struct mill_offset_commit_request_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->partition_index = person->partition;
    element->committed_offset = person->committing;
    element->committed_metadata = mill_wstr_of("");
}

static void get_commit_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_commit_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->partitions =
        (struct mill_warray){.count = 1, .get = get_commit_partition, .context = context};
}

static void commit(struct person *person, int32_t partition)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_offset_commit_request message;
    mill_offset_commit_request_defaults(&message);
    person->partition = partition;
    person->committing = ++person->marks[partition].sent;
    message.group_id = mill_wstr_of(person->group);
    message.generation_id_or_member_epoch = person->member ? person->generation : -1;
    message.member_id = mill_wstr_of(person->member ? person->id : "");
    message.topics = (struct mill_warray){.count = 1, .get = get_commit_topic, .context = person};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    (void)mill_offset_commit_request_encode(&to, COMMIT_VERSION, &message);
    send(person, MILL_API_KEY_OFFSET_COMMIT, COMMIT_VERSION, body, &to, COMMITTING);
}

static void get_index(const void *context, int32_t index, void *ret_element)
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
        (struct mill_warray){.count = 1, .get = get_index, .context = context};
}

static void fetch(struct person *person, int32_t partition)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_offset_fetch_request message;
    mill_offset_fetch_request_defaults(&message);
    person->partition = partition;
    person->acked_before = person->marks[partition].acked;
    message.group_id = mill_wstr_of(person->group);
    message.topics = (struct mill_warray){.count = 1, .get = get_fetch_topic, .context = person};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    (void)mill_offset_fetch_request_encode(&to, FETCH_VERSION, &message);
    send(person, MILL_API_KEY_OFFSET_FETCH, FETCH_VERSION, body, &to, FETCHING);
}

static void get_protocol(const void *context, int32_t index, void *ret_element)
{
    struct mill_join_group_request_protocols *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->name = mill_wstr_of("range");
    element->metadata = mill_wstr_of("mine");
}

static void join(struct person *person)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_join_group_request message;
    mill_join_group_request_defaults(&message);
    message.group_id = mill_wstr_of(person->group);
    message.session_timeout_ms = TIMEOUT_MS;
    message.rebalance_timeout_ms = TIMEOUT_MS;
    message.member_id = mill_wstr_of(person->id);
    message.protocol_type = mill_wstr_of("consumer");
    message.protocols = (struct mill_warray){.count = 1, .get = get_protocol};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    (void)mill_join_group_request_encode(&to, JOIN_VERSION, &message);
    person->works = false;
    person->owned = 0;
    send(person, MILL_API_KEY_JOIN_GROUP, JOIN_VERSION, body, &to, JOINING);
}

static void get_assignment(const void *context, int32_t index, void *ret_element)
{
    static char texts[MEMBERS + 2][16];
    const struct person *person = context;
    struct mill_sync_group_request_assignments *element = ret_element;
    uint32_t bits = 0;
    for (uint32_t p = (uint32_t)index; p < PARTITIONS; p += person->members_count) {
        bits |= 1u << p;
    }
    snprintf(texts[index], sizeof(texts[index]), "%u", bits);
    element->member_id = mill_wstr_of(person->members[index]);
    element->assignment = mill_wstr_of(texts[index]);
}

static void sync_group(struct person *person)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_sync_group_request message;
    mill_sync_group_request_defaults(&message);
    message.group_id = mill_wstr_of(person->group);
    message.generation_id = person->generation;
    message.member_id = mill_wstr_of(person->id);
    message.assignments = (struct mill_warray){
        .count = (int32_t)person->members_count, .get = get_assignment, .context = person};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    (void)mill_sync_group_request_encode(&to, SYNC_VERSION, &message);
    send(person, MILL_API_KEY_SYNC_GROUP, SYNC_VERSION, body, &to, SYNCING);
}

static void beat(struct person *person)
{
    uint8_t body[256];
    struct mill_writer to;
    struct mill_heartbeat_request message;
    mill_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of(person->group);
    message.generation_id = person->generation;
    message.member_id = mill_wstr_of(person->id);
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    (void)mill_heartbeat_request_encode(&to, BEAT_VERSION, &message);
    send(person, MILL_API_KEY_HEARTBEAT, BEAT_VERSION, body, &to, BEATING);
}

/* --- answers --------------------------------------------------------------------------------- */

static bool is_retriable(int16_t error)
{
    return error == MILL_KERR_COORDINATOR_NOT_AVAILABLE ||
           error == MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS || error == MILL_KERR_NOT_COORDINATOR ||
           error == MILL_KERR_REQUEST_TIMED_OUT;
}

/* A member is told that it is none any more, or that all have to join again. */
static void member_error(struct person *person, int16_t error)
{
    if (error == MILL_KERR_NONE || is_retriable(error)) {
        return;
    }
    MILL_ASSERT(error == MILL_KERR_UNKNOWN_MEMBER_ID || error == MILL_KERR_ILLEGAL_GENERATION ||
                error == MILL_KERR_REBALANCE_IN_PROGRESS);
    person->works = false;
    person->owned = 0;
    if (error == MILL_KERR_UNKNOWN_MEMBER_ID) {
        person->id[0] = '\0';
    }
}

static void committed(struct person *person, struct mill_cursor *at, struct tally *tally)
{
    struct mill_offset_commit_response message;
    struct mill_offset_commit_response_topics one;
    struct mill_offset_commit_response_topics_partitions part;
    MILL_ASSERT_EQ(mill_offset_commit_response_decode(at, COMMIT_VERSION, &message), 0);
    MILL_ASSERT(mill_offset_commit_response_topics_next(&message.topics, COMMIT_VERSION, &one));
    MILL_ASSERT(
        mill_offset_commit_response_topics_partitions_next(&one.partitions, COMMIT_VERSION, &part));
    if (part.error_code == MILL_KERR_NONE) {
        struct mark *mark = &person->marks[person->partition];
        mark->acked = MILL_MAX(mark->acked, person->committing);
        tally->commits++;
    } else if (person->member) {
        member_error(person, part.error_code);
    } else {
        MILL_ASSERT(is_retriable(part.error_code));
    }
}

static void fetched(struct person *person, struct mill_cursor *at, struct tally *tally)
{
    struct mill_offset_fetch_response message;
    struct mill_offset_fetch_response_topics one;
    struct mill_offset_fetch_response_topics_partitions part;
    MILL_ASSERT_EQ(mill_offset_fetch_response_decode(at, FETCH_VERSION, &message), 0);
    if (message.error_code != MILL_KERR_NONE) {
        MILL_ASSERT(is_retriable(message.error_code));
        return;
    }
    MILL_ASSERT(mill_offset_fetch_response_topics_next(&message.topics, FETCH_VERSION, &one));
    MILL_ASSERT(
        mill_offset_fetch_response_topics_partitions_next(&one.partitions, FETCH_VERSION, &part));
    /* Nothing committed is -1; the first commit is 1. */
    int64_t offset = MILL_MAX(part.committed_offset, (int64_t)0);
    MILL_ASSERT_LE(person->acked_before, offset);
    MILL_ASSERT_LE(offset, person->marks[person->partition].sent);
    person->fetched = offset;
    tally->fetches++;
}

static void joined(struct person *person, struct mill_cursor *at)
{
    struct mill_join_group_response message;
    struct mill_join_group_response_members member;
    MILL_ASSERT_EQ(mill_join_group_response_decode(at, JOIN_VERSION, &message), 0);
    if (message.error_code == MILL_KERR_MEMBER_ID_REQUIRED) {
        MILL_ASSERT(mill_wstr_copy(&message.member_id, person->id, sizeof(person->id)) > 0);
        return;
    }
    if (message.error_code != MILL_KERR_NONE) {
        member_error(person, message.error_code);
        return;
    }
    person->generation = message.generation_id;
    MILL_ASSERT(mill_wstr_copy(&message.member_id, person->id, sizeof(person->id)) > 0);
    person->members_count = 0;
    while (mill_join_group_response_members_next(&message.members, JOIN_VERSION, &member)) {
        MILL_ASSERT_LT(person->members_count, (uint32_t)MILL_COUNT_OF(person->members));
        (void)mill_wstr_copy(&member.member_id, person->members[person->members_count++],
                             sizeof(person->members[0]));
    }
    sync_group(person);
}

static void synced(struct person *person, struct mill_cursor *at, struct tally *tally)
{
    struct mill_sync_group_response message;
    char text[16] = "";
    MILL_ASSERT_EQ(mill_sync_group_response_decode(at, SYNC_VERSION, &message), 0);
    if (message.error_code != MILL_KERR_NONE) {
        member_error(person, message.error_code);
        return;
    }
    (void)mill_wstr_copy(&message.assignment, text, sizeof(text));
    person->owned = (uint32_t)strtoul(text, NULL, 10);
    person->works = true;
    tally->assignments++;
}

static void answer_take(struct person *person, uint32_t size, struct tally *tally)
{
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, person->client.answer, size);
    enum doing doing = person->doing;
    struct mill_heartbeat_response message;
    MILL_ASSERT_EQ(mill_cursor_skip(&at, 4), 0); /* correlation id */
    person->doing = IDLE;
    switch (doing) {
    case COMMITTING:
        committed(person, &at, tally);
        break;
    case FETCHING:
        fetched(person, &at, tally);
        break;
    case JOINING:
        joined(person, &at);
        break;
    case SYNCING:
        synced(person, &at, tally);
        break;
    case BEATING:
        MILL_ASSERT_EQ(mill_heartbeat_response_decode(&at, BEAT_VERSION, &message), 0);
        member_error(person, message.error_code);
        break;
    case IDLE:
        MILL_ASSERT(false);
    }
}

/* --- persons --------------------------------------------------------------------------------- */

static void person_ask(struct world *world, struct person *person)
{
    int32_t partition = (int32_t)mill_random_below(&world->random, PARTITIONS);
    uint32_t dice = mill_random_below(&world->random, 10);
    if (person->member && !person->works) {
        join(person);
    } else if (dice < 3) {
        fetch(person, partition);
    } else if (person->member && (dice < 6 || !(person->owned & (1u << partition)))) {
        beat(person);
    } else {
        commit(person, partition);
    }
}

static void person_disconnect(struct person *person)
{
    if (person->connected) {
        world_disconnect(&person->client);
        person->connected = false;
        person->doing = IDLE;
    }
}

static void person_step(struct world *world, struct person *person, struct tally *tally)
{
    uint32_t size = 0;
    if (!person->connected) {
        world_connect(world, &person->client,
                      mill_random_below(&world->random, world->cores_count));
        person->connected = true;
    }
    while (person->doing != IDLE && world_answer(&person->client, &size)) {
        answer_take(person, size, tally);
    }
    if (mem_ended(person->client.peer)) {
        person_disconnect(person);
    } else if (person->doing == IDLE && mill_random_below(&world->random, 4) == 0) {
        person_ask(world, person);
    }
}

/* A member's process dies; another one takes its place later, under another id. */
static void person_die(struct person *person)
{
    person_disconnect(person);
    person->works = false;
    person->owned = 0;
    person->id[0] = '\0';
}

static void check_owners(const struct person *people)
{
    for (uint32_t i = 0; i < CONSUMERS + MEMBERS; i++) {
        for (uint32_t k = i + 1; k < CONSUMERS + MEMBERS; k++) {
            const struct person *a = &people[i];
            const struct person *b = &people[k];
            if (a->works && b->works && a->generation == b->generation) {
                MILL_ASSERT_EQ(a->owned & b->owned, 0u);
            }
        }
    }
}

static void all_disconnect(struct person *people)
{
    for (uint32_t i = 0; i < CONSUMERS + MEMBERS; i++) {
        person_disconnect(&people[i]);
    }
}

/* What control says of every group and partition. */
static void fetch_all(struct world *world, struct person *people, struct tally *tally,
                      int64_t ret_offsets[CONSUMERS + 1][PARTITIONS])
{
    all_disconnect(people);
    for (uint32_t i = 0; i <= CONSUMERS; i++) {
        struct person *person = &people[i];
        world_connect(world, &person->client, 0);
        person->connected = true;
        for (int32_t p = 0; p < PARTITIONS; p++) {
            uint64_t before = tally->fetches;
            for (uint32_t turn = 0; tally->fetches == before; turn++) {
                uint32_t size = 0;
                MILL_ASSERT_LT(turn, 200000u);
                if (person->doing == IDLE) {
                    fetch(person, p);
                }
                world_turn(world, MILL_NS_PER_MS);
                if (world_answer(&person->client, &size)) {
                    answer_take(person, size, tally);
                }
            }
            ret_offsets[i][p] = person->fetched;
        }
    }
    all_disconnect(people);
}

/* What control has in memory is what one that reads the log finds. */
static void compare_with_log(struct world *world, struct person *people, struct tally *tally)
{
    int64_t memory[CONSUMERS + 1][PARTITIONS];
    int64_t log[CONSUMERS + 1][PARTITIONS];
    fetch_all(world, people, tally, memory);
    world_crash_control(world);
    fetch_all(world, people, tally, log);
    for (uint32_t i = 0; i <= CONSUMERS; i++) {
        for (uint32_t p = 0; p < PARTITIONS; p++) {
            MILL_ASSERT_EQ(memory[i][p], log[i][p]);
        }
    }
}

static void disturb(struct world *world, struct person *people, struct tally *tally)
{
    switch (mill_random_below(&world->random, 6)) {
    case 0:
        all_disconnect(people);
        world_crash(world);
        compare_with_log(world, people, tally);
        break;
    case 1:
        all_disconnect(people);
        world_restart(world);
        break;
    case 2:
    case 3:
        world_crash_control(world);
        break;
    case 4:
        person_die(&people[CONSUMERS + mill_random_below(&world->random, MEMBERS)]);
        break;
    default: /* a pause: time-outs of members pass */
        for (uint32_t i = 0; i < 400; i++) {
            world_turn(world, 2 * MILL_NS_PER_MS);
        }
        break;
    }
}

static void run_seed(uint64_t seed, uint32_t cores, uint32_t one_in)
{
    static struct world world;
    static struct person people[CONSUMERS + MEMBERS];
    static struct mark marks[CONSUMERS + 1][PARTITIONS];
    struct tally tally = {0};
    memset(people, 0, sizeof(people));
    memset(marks, 0, sizeof(marks));
    world_open(&world, cores, seed);
    world_topic(&world, topic, PARTITIONS, "segment.bytes", "1048576");
    world_offsets_topic(&world);
    for (uint32_t i = 0; i < CONSUMERS + MEMBERS; i++) {
        struct person *person = &people[i];
        person->member = i >= CONSUMERS;
        person->marks = marks[MILL_MIN(i, (uint32_t)CONSUMERS)];
        snprintf(person->group, sizeof(person->group), person->member ? "crowd" : "hand-%u", i);
    }
    alloc_fail.random.state = seed;
    alloc_fail.failed = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        alloc_fail.one_in = one_in;
        for (uint32_t turn = 0; turn < TURNS_PER_ROUND; turn++) {
            person_step(&world, &people[mill_random_below(&world.random, CONSUMERS + MEMBERS)],
                        &tally);
            check_owners(people);
            world_turn(&world, MILL_NS_PER_MS);
        }
        alloc_fail.one_in = 0;
        disturb(&world, people, &tally);
    }
    MILL_ASSERT_EQ(alloc_fail.failed > 20, one_in > 0);
    /* Whatever came last: what is acknowledged is there for everybody. */
    compare_with_log(&world, people, &tally);
    all_disconnect(people);
    world_settle(&world, 10000);
    for (uint32_t i = 0; i < cores; i++) {
        MILL_ASSERT_EQ(world.cores[i].loans.loaned_bytes, 0ull);
    }
    MILL_ASSERT_LT(20ull, tally.commits);
    MILL_ASSERT_LT(2ull, tally.assignments);
    world_close(&world);
    printf("seed %llu cores %u: %llu commits, %llu fetches, %llu assignments\n",
           (unsigned long long)seed, cores, (unsigned long long)tally.commits,
           (unsigned long long)tally.fetches, (unsigned long long)tally.assignments);
}

static void test_nothing_acknowledged_goes_back(void **state)
{
    MILL_UNUSED(state);
    const char *full = getenv("MILLRACE_FULL");
    uint64_t count = full && strcmp(full, "1") == 0 ? SEEDS_FULL : SEEDS_DEFAULT;
    for (uint64_t seed = 1; seed <= count; seed++) {
        printf("seed %llu\n", (unsigned long long)seed);
        run_seed(seed, 1 + (uint32_t)(seed % 3), 0);
    }
}

static void test_nothing_is_lost_for_want_of_memory(void **state)
{
    MILL_UNUSED(state);
    const char *full = getenv("MILLRACE_FULL");
    uint64_t count = full && strcmp(full, "1") == 0 ? SHORT_FULL : SHORT_DEFAULT;
    for (uint64_t seed = 1; seed <= count; seed++) {
        printf("seed %llu, short of memory\n", (unsigned long long)seed);
        run_seed(seed, 1 + (uint32_t)(seed % 3), SHORT_ONE_IN);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_acknowledged_goes_back),
        cmocka_unit_test(test_nothing_is_lost_for_want_of_memory),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) {
        uint64_t seed = strtoull(argv[1], NULL, 0);
        run_seed(seed, 1 + (uint32_t)(seed % 3), argc > 2 ? SHORT_ONE_IN : 0);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
