/* SPDX-License-Identifier: Apache-2.0 */
/* See group_persons.h. */
#include "tests/sim/group_persons.h"

#include <stdio.h>
#include <string.h>

#include "dataplane/core/core_types.h"
#include "protocol/codec.h"
#include "protocol/errors.h"
#include "protocol/messages.h"

enum {
    KNOWN_NS = 900000000, /* below that, and below the rebalance time-out */
    BODY_BYTES = 2048,
    BEAT_VERSION = 1,
    COMMIT_VERSION = 9,
    JOIN_VERSION = 9,
    SYNC_VERSION = 5,
    HEARTBEAT_VERSION = 4,
    OWNED_AT = 24, /* in a subscription of ours: how many partitions, then which */
};

static struct mill_uuid topic_id;

/* --- requests -------------------------------------------------------------------------------- */

static void get_name(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(struct mill_wstr *)ret_element = mill_wstr_of(topic);
}

static void get_index(const void *context, int32_t index, void *ret_element)
{
    uint32_t bits = *(const uint32_t *)context;
    for (int32_t i = 0; i < index; i++) {
        bits &= bits - 1;
    }
    *(int32_t *)ret_element = (int32_t)__builtin_ctz(bits);
}

static void get_owned(const void *context, int32_t index, void *ret_element)
{
    const struct person *person = context;
    struct mill_consumer_group_heartbeat_request_topic_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->topic_id = topic_id;
    element->partitions = (struct mill_warray){
        .count = __builtin_popcount(person->owned), .get = get_index, .context = &person->owned};
}

static void beat(const struct world *world, struct person *person)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_consumer_group_heartbeat_request message;
    bool all = person->epoch == 0 || person->tell_all;
    mill_consumer_group_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of("crowd");
    message.member_id = mill_wstr_of(person->id);
    message.member_epoch = person->epoch;
    if (all) {
        message.rebalance_timeout_ms = 2 * (SILENCE_NS / 1000000); /* silence ends it first */
        message.subscribed_topic_names = (struct mill_warray){.count = 1, .get = get_name};
    }
    if (all || person->tell_owned) {
        message.topic_partitions =
            (struct mill_warray){.count = person->owned != 0, .get = get_owned, .context = person};
    }
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    mill_write_i8(&to, 0); /* the header's tagged section */
    (void)mill_consumer_group_heartbeat_request_encode(&to, BEAT_VERSION, &message);
    MILL_ASSERT_EQ(to.error, 0);
    world_send(&person->client, MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, BEAT_VERSION, body,
               to.size_bytes);
    person->asked_ns = world->now.mono_ns;
    person->doing = BEATING;
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

static void commit(struct person *person, int32_t partition, struct tally *tally)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_offset_commit_request message;
    mill_offset_commit_request_defaults(&message);
    person->partition = partition;
    person->committing = ++tally->sent[partition];
    message.group_id = mill_wstr_of("crowd");
    message.generation_id_or_member_epoch = person->epoch;
    message.member_id = mill_wstr_of(person->id);
    message.topics = (struct mill_warray){.count = 1, .get = get_commit_topic, .context = person};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    mill_write_i8(&to, 0); /* the header's tagged section */
    (void)mill_offset_commit_request_encode(&to, COMMIT_VERSION, &message);
    MILL_ASSERT_EQ(to.error, 0);
    world_send(&person->client, MILL_API_KEY_OFFSET_COMMIT, COMMIT_VERSION, body, to.size_bytes);
    person->doing = COMMITTING;
}

static void classic_send(const struct world *world, struct person *person, int16_t key,
                         int16_t version, const struct mill_writer *to, enum doing doing)
{
    MILL_ASSERT_EQ(to->error, 0);
    world_send(&person->client, key, version, to->bytes, to->size_bytes);
    person->asked_ns = world->now.mono_ns;
    person->doing = doing;
}

/* ConsumerProtocolSubscription, version 1. */
static uint32_t subscription_write(uint32_t owned, uint8_t *bytes, uint32_t bytes_max)
{
    struct mill_writer to;
    struct mill_wstr name = mill_wstr_of(topic);
    mill_writer_init(&to, bytes, bytes_max, NULL, 0);
    mill_write_i16(&to, 1);
    mill_write_i32(&to, 1);
    mill_write_str(&to, false, false, &name);
    mill_write_i32(&to, -1);
    mill_write_i32(&to, 1);
    mill_write_str(&to, false, false, &name);
    mill_write_i32(&to, __builtin_popcount(owned));
    for (int32_t i = 0; i < PARTITIONS; i++) {
        if ((owned & (1u << i)) != 0) {
            mill_write_i32(&to, i);
        }
    }
    MILL_ASSERT_EQ(to.error, 0);
    return to.size_bytes;
}

/* ConsumerProtocolAssignment, version 1. */
static uint32_t assignment_write(uint32_t bits, uint8_t *bytes, uint32_t bytes_max)
{
    struct mill_writer to;
    struct mill_wstr name = mill_wstr_of(topic);
    mill_writer_init(&to, bytes, bytes_max, NULL, 0);
    mill_write_i16(&to, 1);
    mill_write_i32(&to, 1);
    mill_write_str(&to, false, false, &name);
    mill_write_i32(&to, __builtin_popcount(bits));
    for (int32_t i = 0; i < PARTITIONS; i++) {
        if ((bits & (1u << i)) != 0) {
            mill_write_i32(&to, i);
        }
    }
    mill_write_i32(&to, -1);
    MILL_ASSERT_EQ(to.error, 0);
    return to.size_bytes;
}

static void get_said(const void *context, int32_t index, void *ret_element)
{
    static uint8_t bytes[256];
    const struct person *person = context;
    struct mill_join_group_request_protocols *element = ret_element;
    MILL_UNUSED(index);
    uint32_t size = subscription_write(person->owned, bytes, sizeof(bytes));
    element->name = mill_wstr_of("cooperative-sticky");
    element->metadata = mill_wstr_of_bytes(bytes, (int32_t)size);
}

static void classic_join(const struct world *world, struct person *person)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_join_group_request message;
    mill_join_group_request_defaults(&message);
    message.group_id = mill_wstr_of("crowd");
    message.session_timeout_ms = SILENCE_NS / 1000000;
    message.rebalance_timeout_ms = 2 * (SILENCE_NS / 1000000);
    message.member_id = mill_wstr_of(person->id);
    message.protocol_type = mill_wstr_of("consumer");
    message.protocols = (struct mill_warray){.count = 1, .get = get_said, .context = person};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    mill_write_i8(&to, 0); /* the header's tagged section */
    (void)mill_join_group_request_encode(&to, JOIN_VERSION, &message);
    classic_send(world, person, MILL_API_KEY_JOIN_GROUP, JOIN_VERSION, &to, JOINING);
}

static void get_share(const void *context, int32_t index, void *ret_element)
{
    static uint8_t bytes[SHARES_MAX][128];
    const struct share *share = &((const struct person *)context)->shares[index];
    struct mill_sync_group_request_assignments *element = ret_element;
    uint32_t size = assignment_write(share->bits, bytes[index], sizeof(bytes[index]));
    element->member_id = mill_wstr_of(share->id);
    element->assignment = mill_wstr_of_bytes(bytes[index], (int32_t)size);
}

static void classic_sync(const struct world *world, struct person *person)
{
    static uint8_t body[BODY_BYTES * 4];
    struct mill_writer to;
    struct mill_sync_group_request message;
    mill_sync_group_request_defaults(&message);
    message.group_id = mill_wstr_of("crowd");
    message.generation_id = person->epoch;
    message.member_id = mill_wstr_of(person->id);
    message.protocol_type = mill_wstr_of("consumer");
    message.protocol_name = mill_wstr_of("cooperative-sticky");
    message.assignments = (struct mill_warray){
        .count = (int32_t)person->shares_count, .get = get_share, .context = person};
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    mill_write_i8(&to, 0);
    (void)mill_sync_group_request_encode(&to, SYNC_VERSION, &message);
    classic_send(world, person, MILL_API_KEY_SYNC_GROUP, SYNC_VERSION, &to, SYNCING);
}

static void classic_heartbeat(const struct world *world, struct person *person)
{
    uint8_t body[BODY_BYTES];
    struct mill_writer to;
    struct mill_heartbeat_request message;
    mill_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of("crowd");
    message.generation_id = person->epoch;
    message.member_id = mill_wstr_of(person->id);
    mill_writer_init(&to, body, sizeof(body), NULL, 0);
    mill_write_i8(&to, 0);
    (void)mill_heartbeat_request_encode(&to, HEARTBEAT_VERSION, &message);
    classic_send(world, person, MILL_API_KEY_HEARTBEAT, HEARTBEAT_VERSION, &to, HEARTBEATING);
}

/* --- answers --------------------------------------------------------------------------------- */

static bool is_retriable(int16_t error)
{
    return error == MILL_KERR_COORDINATOR_NOT_AVAILABLE ||
           error == MILL_KERR_COORDINATOR_LOAD_IN_PROGRESS || error == MILL_KERR_NOT_COORDINATOR ||
           error == MILL_KERR_REQUEST_TIMED_OUT;
}

void person_begin(struct person *person, uint32_t index, bool classic)
{
    person->classic = classic;
    person->joins = false;
    person->syncs = false;
    person->epoch = 0;
    person->owned = 0;
    if (classic) {
        person->id[0] = '\0'; /* it is told one */
        return;
    }
    snprintf(person->id, sizeof(person->id), "member-%u-%u", index, person->ids++);
}

static void begin_anew(struct person *person, uint32_t index)
{
    person_begin(person, index, person->classic);
}

/* --- classic members ------------------------------------------------------------------------- */

/* Shares of the one that leads: as even as can be, and nothing that somebody else still owns. */
static void shares_make(struct person *person)
{
    uint32_t owned = 0;
    uint32_t wanted[SHARES_MAX] = {0};
    uint32_t count = person->shares_count;
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        wanted[i % count] |= 1u << i;
    }
    for (uint32_t i = 0; i < count; i++) {
        owned |= person->shares[i].owned;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct share *share = &person->shares[i];
        share->bits = wanted[i] & (share->owned | ~owned);
    }
}

static void joined_classic(const struct world *world, struct person *person, uint32_t index,
                           struct mill_cursor *at, struct tally *tally)
{
    struct mill_join_group_response message;
    struct mill_join_group_response_members member;
    MILL_ASSERT_EQ(mill_join_group_response_decode(at, JOIN_VERSION, &message), 0);
    if (message.error_code == MILL_KERR_NONE ||
        message.error_code == MILL_KERR_MEMBER_ID_REQUIRED) {
        MILL_ASSERT(mill_wstr_copy(&message.member_id, person->id, sizeof(person->id)) > 0);
    }
    if (message.error_code == MILL_KERR_UNKNOWN_MEMBER_ID) {
        begin_anew(person, index);
    }
    if (message.error_code != MILL_KERR_NONE) {
        MILL_ASSERT(is_retriable(message.error_code) ||
                    message.error_code == MILL_KERR_UNKNOWN_MEMBER_ID ||
                    message.error_code == MILL_KERR_REBALANCE_IN_PROGRESS ||
                    message.error_code == MILL_KERR_MEMBER_ID_REQUIRED);
        return;
    }
    bool is_new = message.leader.length == 0; /* a group of the consumer protocol has no leader */
    tally->turns += is_new != tally->new_last;
    tally->mixed += is_new;
    tally->new_last = is_new;
    /* It may have waited for the others; who owns something takes no chance. */
    person->heard_ns = person->owned == 0 ? world->now.mono_ns : person->asked_ns;
    person->epoch = message.generation_id;
    person->joins = false;
    person->syncs = true;
    person->shares_count = 0;
    while (mill_join_group_response_members_next(&message.members, JOIN_VERSION, &member)) {
        uint8_t said[256];
        struct share *share = &person->shares[person->shares_count++];
        struct mill_cursor from = member.metadata.at;
        MILL_ASSERT(person->shares_count <= SHARES_MAX);
        *share = (struct share){0};
        MILL_ASSERT(mill_wstr_copy(&member.member_id, share->id, sizeof(share->id)) > 0);
        MILL_ASSERT_EQ(mill_cursor_read(&from, said, (uint32_t)member.metadata.length), 0);
        uint32_t count = mill_load_be32(said + OWNED_AT);
        for (uint32_t i = 0; i < count; i++) {
            share->owned |= 1u << mill_load_be32(said + OWNED_AT + 4 + 4 * i);
        }
    }
    if (person->shares_count > 0) {
        shares_make(person);
    }
}

/* A classic member that is not one any more, or has to begin with its generation anew. ret: true
 * there was such an error. */
static bool classic_failed(struct person *person, uint32_t index, int16_t error)
{
    if (error == MILL_KERR_UNKNOWN_MEMBER_ID) {
        begin_anew(person, index);
    } else if (error == MILL_KERR_ILLEGAL_GENERATION) {
        person->owned = 0;
        person->joins = true;
        person->syncs = false;
    } else if (error == MILL_KERR_REBALANCE_IN_PROGRESS) {
        person->joins = true;
        person->syncs = false;
    } else {
        MILL_ASSERT(error == MILL_KERR_NONE || is_retriable(error));
    }
    return error != MILL_KERR_NONE;
}

static void synced_classic(struct person *person, uint32_t index, struct mill_cursor *at,
                           struct tally *tally)
{
    struct mill_sync_group_response message;
    uint8_t bytes[256];
    uint32_t before = person->owned;
    uint32_t now = 0;
    MILL_ASSERT_EQ(mill_sync_group_response_decode(at, SYNC_VERSION, &message), 0);
    if (classic_failed(person, index, message.error_code)) {
        return;
    }
    uint32_t size = (uint32_t)MILL_MAX(message.assignment.length, 0);
    struct mill_cursor from = message.assignment.at;
    MILL_ASSERT_EQ(mill_cursor_read(&from, bytes, size), 0);
    bool topics = size > 6 && mill_load_be32(bytes + 2) == 1;
    for (uint32_t i = 0; topics && i < mill_load_be32(bytes + 11); i++) {
        now |= 1u << mill_load_be32(bytes + 15 + 4 * i);
    }
    person->heard_ns = person->asked_ns;
    person->syncs = false;
    person->owned = now;
    person->joins = (before & ~now) != 0; /* it gave some up: others wait for that */
    tally->moves += before != now;
}

static void heard_classic(struct person *person, uint32_t index, struct mill_cursor *at)
{
    struct mill_heartbeat_response message;
    MILL_ASSERT_EQ(mill_heartbeat_response_decode(at, HEARTBEAT_VERSION, &message), 0);
    if (!classic_failed(person, index, message.error_code) ||
        message.error_code == MILL_KERR_REBALANCE_IN_PROGRESS) {
        person->heard_ns = person->asked_ns;
    }
}

static void classic_speak(const struct world *world, struct person *person)
{
    if (person->epoch == 0 || person->joins) {
        classic_join(world, person);
    } else if (person->syncs) {
        classic_sync(world, person);
    } else {
        classic_heartbeat(world, person);
    }
}

static void beaten(const struct world *world, struct person *person, uint32_t index,
                   struct mill_cursor *at, struct tally *tally)
{
    struct mill_consumer_group_heartbeat_response message;
    MILL_ASSERT_EQ(mill_consumer_group_heartbeat_response_decode(at, BEAT_VERSION, &message), 0);
    if (is_retriable(message.error_code)) {
        person->tell_all = true;
        return;
    }
    if (message.error_code != MILL_KERR_NONE) {
        MILL_ASSERT(message.error_code == MILL_KERR_UNKNOWN_MEMBER_ID ||
                    message.error_code == MILL_KERR_FENCED_MEMBER_EPOCH ||
                    message.error_code == MILL_KERR_GROUP_ID_NOT_FOUND);
        /* One that was told that it is a member is known until it was silent. */
        MILL_ASSERT(message.error_code == MILL_KERR_FENCED_MEMBER_EPOCH ||
                    world->now.mono_ns - person->heard_ns >= KNOWN_NS);
        begin_anew(person, index);
        return;
    }
    person->heard_ns = person->asked_ns;
    person->epoch = message.member_epoch;
    person->tell_owned = message.has_assignment;
    person->tell_all = false;
    if (!message.has_assignment) {
        return;
    }
    struct mill_consumer_group_heartbeat_response_assignment_topic_partitions part;
    struct mill_warray topics = message.assignment.topic_partitions;
    uint32_t before = person->owned;
    int32_t partition = 0;
    person->owned = 0;
    while (mill_consumer_group_heartbeat_response_assignment_topic_partitions_next(
        &topics, BEAT_VERSION, &part)) {
        topic_id = part.topic_id;
        while (mill_warray_next_i32(&part.partitions, &partition)) {
            person->owned |= 1u << partition;
        }
    }
    tally->moves += before != person->owned;
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
        int64_t *acked = &tally->acked[person->partition];
        *acked = MILL_MAX(*acked, person->committing);
        tally->commits++;
    } else {
        MILL_ASSERT(is_retriable(part.error_code) ||
                    part.error_code == MILL_KERR_UNKNOWN_MEMBER_ID ||
                    part.error_code == MILL_KERR_STALE_MEMBER_EPOCH ||
                    part.error_code == MILL_KERR_ILLEGAL_GENERATION ||
                    part.error_code == MILL_KERR_REBALANCE_IN_PROGRESS ||
                    part.error_code == MILL_KERR_GROUP_ID_NOT_FOUND);
    }
}

static void answer_take(const struct world *world, struct person *person, uint32_t index,
                        uint32_t size, struct tally *tally)
{
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, person->client.answer, size);
    enum doing doing = person->doing;
    /* correlation id, and the tagged section of a flexible answer's header */
    MILL_ASSERT_EQ(mill_cursor_skip(&at, 5), 0);
    person->doing = IDLE;
    switch (doing) {
    case BEATING:
        beaten(world, person, index, &at, tally);
        break;
    case JOINING:
        joined_classic(world, person, index, &at, tally);
        break;
    case SYNCING:
        synced_classic(person, index, &at, tally);
        break;
    case HEARTBEATING:
        heard_classic(person, index, &at);
        break;
    default:
        committed(person, &at, tally);
        break;
    }
}

/* --- persons --------------------------------------------------------------------------------- */

void person_disconnect(struct person *person)
{
    if (person->connected) {
        world_disconnect(&person->client);
        person->connected = false;
        person->tell_all = true; /* what it asked last may have been heard, or not */
        person->doing = IDLE;
    }
}

void person_step(struct world *world, struct person *person, uint32_t index, struct tally *tally)
{
    uint32_t size = 0;
    int32_t partition = (int32_t)mill_random_below(&world->random, PARTITIONS);
    if (!person->connected) {
        world_connect(world, &person->client,
                      mill_random_below(&world->random, world->cores_count));
        person->connected = true;
    }
    while (person->doing != IDLE && world_answer(&person->client, &size)) {
        answer_take(world, person, index, size, tally);
    }
    /* Who did not hear of the coordinator for so long owns nothing any more. */
    if (person->epoch > 0 && world->now.mono_ns - person->heard_ns >= SILENCE_NS) {
        begin_anew(person, index);
    }
    if (mem_ended(person->client.peer)) {
        person_disconnect(person);
    } else if (person->doing == IDLE && mill_random_below(&world->random, 4) == 0) {
        if (person->epoch > 0 && (person->owned & (1u << partition)) != 0 &&
            mill_random_below(&world->random, 2) == 0) {
            commit(person, partition, tally);
        } else if (person->classic) {
            classic_speak(world, person);
        } else {
            beat(world, person);
        }
    }
}

void persons_disconnect(struct person *people)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        person_disconnect(&people[i]);
    }
}
