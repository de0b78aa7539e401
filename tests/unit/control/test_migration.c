/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a group goes from the classic protocol to the consumer protocol and back while it has
 * members, as Kafka 4.4 does it: who is served how, what is refused, and what the log has at each
 * step. Method: requests as frames to the groups (groups_rig.h); after a step another coordinator
 * loads the log, and must have the same group. */
#include "tests/unit/control/groups_rig.h"

enum {
    JOIN = 9, /* versions */
    SYNC = 5,
    HEARTBEAT = 4,
    LEAVE = 5,
    COMMIT = 8,
    PARTITIONS = 4,
    SUBSCRIPTION_BYTES = 256,
};

/* A classic member. */
struct member {
    char id[64];
    const char *instance;
    int32_t generation;
    uint32_t owned; /* bits of partitions of the topic */
    int16_t error;  /* of the last answer */
    bool knows_owned;
};

static const char topic[] = "logs";

static void subscription_of(const struct member *member, struct mill_writer *to, uint8_t *bytes)
{
    mill_writer_init(to, bytes, SUBSCRIPTION_BYTES, NULL, 0);
    struct mill_wstr name = mill_wstr_of(topic);
    mill_write_i16(to, member->knows_owned ? 1 : 0);
    mill_write_i32(to, 1);
    mill_write_str(to, false, false, &name);
    mill_write_i32(to, -1);
    if (member->knows_owned) {
        mill_write_i32(to, 1);
        mill_write_str(to, false, false, &name);
        mill_write_i32(to, __builtin_popcount(member->owned));
        for (int32_t i = 0; i < PARTITIONS; i++) {
            if ((member->owned & (1u << i)) != 0) {
                mill_write_i32(to, i);
            }
        }
    }
    assert_int_equal(to->error, 0);
}

static void get_said(const void *context, int32_t index, void *ret_element)
{
    struct mill_join_group_request_protocols *element = ret_element;
    const struct mill_writer *said = context;
    MILL_UNUSED(index);
    element->name = mill_wstr_of("range");
    element->metadata = mill_wstr_of_bytes(said->bytes, (int32_t)said->size_bytes);
}

static struct mill_admin_request *join_send(const struct member *member, const char *type)
{
    struct mill_join_group_request message;
    static uint8_t bytes[SUBSCRIPTION_BYTES];
    struct mill_writer said;
    subscription_of(member, &said, bytes);
    mill_join_group_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.session_timeout_ms = 10000;
    message.rebalance_timeout_ms = 20000;
    message.member_id = mill_wstr_of(member->id);
    message.group_instance_id = mill_wstr_of(member->instance);
    message.protocol_type = mill_wstr_of(type);
    message.protocols = (struct mill_warray){.count = 1, .get = get_said, .context = &said};
    return send(MILL_API_KEY_JOIN_GROUP, JOIN, encode_join, &message);
}

static void answered(struct mill_admin_request *request)
{
    if (request->taken) {
        assert_ptr_equal(mill_groups_answered(&groups), request);
    }
    mill_admin_free(request);
}

static void join_take(struct member *member, struct mill_admin_request *request)
{
    struct mill_join_group_response message;
    struct mill_buf buf;
    struct mill_cursor at = body_of(request, &buf);
    assert_int_equal(mill_join_group_response_decode(&at, JOIN, &message), 0);
    member->error = message.error_code;
    if (message.error_code == 0 || message.error_code == MILL_KERR_MEMBER_ID_REQUIRED) {
        assert_true(mill_wstr_copy(&message.member_id, member->id, sizeof(member->id)) > 0);
    }
    if (message.error_code == 0) {
        member->generation = message.generation_id;
    }
    answered(request);
}

/* Until it is a member, or refused; the log takes what it asks for. */
static void member_joins(struct member *member)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct mill_admin_request *request = join_send(member, "consumer");
        let_end(MILL_JOURNAL_DONE);
        join_take(member, request);
        if (member->error != MILL_KERR_MEMBER_ID_REQUIRED) {
            return;
        }
    }
}

static int encode_sync_in(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_sync_group_request_encode(to, version, message);
}

/* Of the group's leader: it gives everything to itself. */
static void get_all(const void *context, int32_t index, void *ret_element)
{
    static const uint8_t all[] = {0, 1, 0, 0, 0, 1, 0, 4, 'l',  'o',  'g',  's',
                                  0, 0, 0, 4, 0, 0, 0, 0, 0,    0,    0,    1,
                                  0, 0, 0, 2, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff};
    struct mill_sync_group_request_assignments *element = ret_element;
    MILL_UNUSED(index);
    element->member_id = mill_wstr_of(context);
    element->assignment = mill_wstr_of_bytes(all, sizeof(all));
}

static void member_syncs(struct member *member, bool leads)
{
    struct mill_sync_group_request message;
    struct mill_sync_group_response out;
    struct mill_buf buf;
    mill_sync_group_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.generation_id = member->generation;
    message.member_id = mill_wstr_of(member->id);
    message.group_instance_id = mill_wstr_of(member->instance);
    message.protocol_type = mill_wstr_of("consumer");
    message.protocol_name = mill_wstr_of("range");
    if (leads) {
        message.assignments =
            (struct mill_warray){.count = 1, .get = get_all, .context = member->id};
    }
    struct mill_admin_request *request =
        send(MILL_API_KEY_SYNC_GROUP, SYNC, encode_sync_in, &message);
    let_end(MILL_JOURNAL_DONE);
    struct mill_cursor at = body_of(request, &buf);
    assert_int_equal(mill_sync_group_response_decode(&at, SYNC, &out), 0);
    member->error = out.error_code;
    if (out.error_code == 0) {
        struct mill_group_blob blob = {.size_bytes = (uint32_t)MILL_MAX(out.assignment.length, 0)};
        uint8_t bytes[256];
        struct mill_cursor from = out.assignment.at;
        assert_true(blob.size_bytes <= sizeof(bytes));
        assert_int_equal(mill_cursor_read(&from, bytes, blob.size_bytes), 0);
        /* Version, one topic with its name, then the partitions. */
        uint32_t topics = blob.size_bytes > 6 ? mill_load_be32(bytes + 2) : 0;
        assert_true(topics <= 1);
        member->owned = 0;
        for (uint32_t i = 0; topics == 1 && i < mill_load_be32(bytes + 12); i++) {
            member->owned |= 1u << mill_load_be32(bytes + 16 + 4 * i);
        }
    }
    answered(request);
}

static int encode_heartbeat_in(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_heartbeat_request_encode(to, version, message);
}

static struct mill_admin_request *heartbeat_send(const struct member *member)
{
    struct mill_heartbeat_request message;
    mill_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.generation_id = member->generation;
    message.member_id = mill_wstr_of(member->id);
    message.group_instance_id = mill_wstr_of(member->instance);
    return send(MILL_API_KEY_HEARTBEAT, HEARTBEAT, encode_heartbeat_in, &message);
}

static void heartbeat_take(struct member *member, struct mill_admin_request *request)
{
    struct mill_heartbeat_response out;
    struct mill_buf buf;
    struct mill_cursor at = body_of(request, &buf);
    assert_int_equal(mill_heartbeat_response_decode(&at, HEARTBEAT, &out), 0);
    member->error = out.error_code;
    answered(request);
}

static int16_t heartbeat(struct member *member)
{
    heartbeat_take(member, heartbeat_send(member));
    return member->error;
}

static int encode_leave_in(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_leave_group_request_encode(to, version, message);
}

static void get_leaving(const void *context, int32_t index, void *ret_element)
{
    struct mill_leave_group_request_members *element = ret_element;
    MILL_UNUSED(index);
    element->member_id = mill_wstr_of(context);
}

static int16_t leave(const char *member_id)
{
    struct mill_leave_group_request message;
    struct mill_leave_group_response out;
    struct mill_leave_group_response_members one;
    struct mill_buf buf;
    mill_leave_group_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.members = (struct mill_warray){.count = 1, .get = get_leaving, .context = member_id};
    struct mill_admin_request *request =
        send(MILL_API_KEY_LEAVE_GROUP, LEAVE, encode_leave_in, &message);
    let_end(MILL_JOURNAL_DONE);
    struct mill_cursor at = body_of(request, &buf);
    assert_int_equal(mill_leave_group_response_decode(&at, LEAVE, &out), 0);
    if (out.error_code == 0) {
        assert_true(mill_leave_group_response_members_next(&out.members, LEAVE, &one));
    }
    answered(request);
    return out.error_code ? out.error_code : one.error_code;
}

static int16_t beat_ends(struct mill_admin_request *request)
{
    let_end(MILL_JOURNAL_DONE);
    return answer_of(request);
}

static const struct mill_consumer *consumer_of(const char *id)
{
    const struct mill_consumer *member = mill_consumer_find(group_now(), id);
    assert_non_null(member);
    return member;
}

/* What another coordinator makes of the log. */
static void check_load(void)
{
    static struct mill_groups again;
    load(&again);
    const struct mill_group *group = group_now();
    const struct mill_group *other = mill_groups_find(&again, "group");
    assert_non_null(other);
    assert_int_equal(mill_group_type(other), mill_group_type(group));
    assert_int_equal(other->generation, group->generation);
    assert_int_equal(other->members_count, group->members_count);
    const struct mill_consumer *a = group->consumers ? group->consumers->first : NULL;
    for (; a; a = a->next) {
        const struct mill_consumer *b = mill_consumer_find(other, a->id);
        assert_non_null(b);
        assert_int_equal(b->epoch, a->epoch);
        assert_int_equal(b->classic_count, a->classic_count);
        assert_int_equal(b->classic_session_ms, a->classic_session_ms);
        assert_true(mill_parts_equal(&a->assigned, &b->assigned));
        assert_true(mill_parts_equal(&a->target, &b->target));
    }
    for (const struct mill_group_member *c = group->members; c; c = c->next) {
        const struct mill_group_member *d = mill_group_find(other, c->id);
        assert_non_null(d);
        assert_int_equal(d->session_timeout_ms, c->session_timeout_ms);
    }
    mill_groups_close(&again);
}

static void begin(const char *policy, struct member *a)
{
    static char setting[64];
    const char *sets[] = {"group.initial.rebalance.delay.ms=0", setting};
    snprintf(setting, sizeof(setting), "group.consumer.migration.policy=%s", policy);
    setup_with(sets, MILL_COUNT_OF(sets));
    topic_make(topic, PARTITIONS);
    *a = (struct member){.knows_owned = true};
    member_joins(a);
    assert_int_equal(a->error, 0);
    member_syncs(a, true);
    assert_int_equal(a->error, 0);
    assert_int_equal(a->owned, 15);
    assert_int_equal(heartbeat(a), 0);
}

/* A classic member has everything; one of the other protocol joins; both share; it goes again. */
static void test_over_and_back(void **state)
{
    MILL_UNUSED(state);
    static struct member a;
    begin("bidirectional", &a);
    int32_t first = a.generation;
    assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_JOINS, NULL)), 0);
    assert_int_equal(mill_group_type(group_now()), MILL_GROUP_CONSUMER);
    assert_int_equal(group_now()->members_count, 0);
    assert_int_equal(group_now()->generation, first + 1);
    assert_int_equal(consumer_of(a.id)->assigned.count, 4); /* as the embedded protocol said */
    assert_int_equal(consumer_of("new")->assigned.count, 0);
    check_load();
    /* It is asked to join, told what is left to it, and gives two up by joining again. */
    assert_int_equal(heartbeat(&a), MILL_KERR_REBALANCE_IN_PROGRESS);
    member_joins(&a);
    assert_int_equal(a.error, 0);
    assert_int_equal(a.generation, first);
    member_syncs(&a, false);
    assert_int_equal(__builtin_popcount(a.owned), 2);
    assert_int_equal(beat_ends(beat_in("new", first + 1, NULL)), 0);
    assert_int_equal(consumer_of("new")->assigned.count, 0); /* a has not said it yet */
    assert_int_equal(heartbeat(&a), MILL_KERR_REBALANCE_IN_PROGRESS);
    member_joins(&a);
    assert_int_equal(a.generation, first + 1);
    member_syncs(&a, false);
    assert_int_equal(heartbeat(&a), 0);
    check_load();
    assert_int_equal(beat_ends(beat_in("new", first + 1, NULL)), 0);
    assert_int_equal(consumer_of("new")->assigned.count, 2);
    assert_int_equal(mill_consumer_group_state(group_now()), MILL_GROUP_STABLE);
    /* The last one of the protocol goes: a classic group again, which rebalances. */
    assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_LEAVES, NULL)), 0);
    assert_int_equal(mill_group_type(group_now()), MILL_GROUP_CLASSIC);
    assert_int_equal(group_now()->members_count, 1);
    assert_int_equal(group_now()->state, MILL_GROUP_PREPARING);
    check_load();
    assert_int_equal(heartbeat(&a), MILL_KERR_REBALANCE_IN_PROGRESS);
    member_joins(&a);
    assert_int_equal(a.generation, first + 2);
    member_syncs(&a, true);
    assert_int_equal(a.owned, 15);
    assert_int_equal(heartbeat(&a), 0);
    assert_int_equal(groups.parked_count, 0);
    teardown();
}

/* A group that was turned back and whose members nobody could tell: a load tells them. */
static void test_load_behind_a_downgrade_rebalances(void **state)
{
    MILL_UNUSED(state);
    static struct member a;
    static struct mill_groups again;
    begin("bidirectional", &a);
    assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_JOINS, NULL)), 0);
    assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_LEAVES, NULL)), 0);
    load(&again);
    assert_int_equal(mill_groups_find(&again, "group")->state, MILL_GROUP_PREPARING);
    mill_groups_close(&again);
    teardown();
}

/* While the group becomes another one, nobody is told of what it was; and when the log does not
 * take it, it was never another one. */
static void test_requests_wait_for_the_change(void **state)
{
    MILL_UNUSED(state);
    static struct member a;
    begin("bidirectional", &a);
    struct mill_admin_request *joins = beat_in("new", MILL_CONSUMER_JOINS, NULL);
    struct mill_admin_request *beats = heartbeat_send(&a);
    assert_false(joins->ready);
    assert_false(beats->ready);
    let_end(MILL_JOURNAL_REFUSED);
    assert_int_not_equal(answer_of(joins), 0);
    heartbeat_take(&a, beats);
    assert_int_equal(a.error, 0);
    assert_int_equal(mill_group_type(group_now()), MILL_GROUP_CLASSIC);
    joins = beat_in("new", MILL_CONSUMER_JOINS, NULL);
    beats = heartbeat_send(&a);
    let_end(MILL_JOURNAL_DONE);
    assert_int_equal(answer_of(joins), 0);
    heartbeat_take(&a, beats);
    assert_int_equal(a.error, MILL_KERR_REBALANCE_IN_PROGRESS);
    assert_int_equal(groups.parked_count, 0);
    teardown();
}

static void test_policies(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        const char *policy;
        bool up;
        bool joins; /* a classic member, into a group of the new protocol */
        bool down;
    } rows[] = {{"bidirectional", true, true, true},
                {"upgrade", true, true, false},
                {"downgrade", false, true, true},
                {"disabled", false, false, false}};
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        static struct member a;
        static struct member b;
        begin(rows[i].policy, &a);
        assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_JOINS, NULL)),
                         rows[i].up ? 0 : MILL_KERR_GROUP_ID_NOT_FOUND);
        if (!rows[i].up) {
            assert_int_equal(leave(a.id), 0);
            assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_JOINS, NULL)), 0);
        }
        b = (struct member){.knows_owned = true};
        member_joins(&b);
        assert_int_equal(b.error, rows[i].joins ? 0 : MILL_KERR_INCONSISTENT_GROUP_PROTOCOL);
        assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_LEAVES, NULL)), 0);
        assert_int_equal(mill_group_type(group_now()),
                         rows[i].down ? MILL_GROUP_CLASSIC : MILL_GROUP_CONSUMER);
        check_load();
        teardown();
    }
}

/* What a group must be like to become one of the other protocol, and who may join such a one. */
static void test_what_does_not_fit_is_refused(void **state)
{
    MILL_UNUSED(state);
    static struct member a;
    static struct member b;
    begin("bidirectional", &a);
    groups.consumer.size_max = 0;
    assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_JOINS, NULL)),
                     MILL_KERR_GROUP_ID_NOT_FOUND);
    groups.consumer.size_max = 2;
    assert_int_equal(beat_ends(beat_in("new", 3, NULL)), MILL_KERR_GROUP_ID_NOT_FOUND);
    assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_JOINS, NULL)), 0);
    b = (struct member){.knows_owned = true};
    join_take(&b, join_send(&b, "consumer"));
    assert_int_equal(b.error, MILL_KERR_GROUP_MAX_SIZE_REACHED);
    groups.consumer.size_max = 3;
    join_take(&b, join_send(&b, "connect"));
    assert_int_equal(b.error, MILL_KERR_INCONSISTENT_GROUP_PROTOCOL);
    b.generation = a.generation;
    snprintf(b.id, sizeof(b.id), "nobody");
    assert_int_equal(heartbeat(&b), MILL_KERR_UNKNOWN_MEMBER_ID);
    member_syncs(&b, false);
    assert_int_equal(b.error, MILL_KERR_UNKNOWN_MEMBER_ID);
    snprintf(b.id, sizeof(b.id), "new"); /* it does not speak that protocol */
    assert_int_equal(heartbeat(&b), MILL_KERR_UNKNOWN_MEMBER_ID);
    a.generation += 7;
    assert_int_equal(heartbeat(&a), MILL_KERR_ILLEGAL_GENERATION);
    member_syncs(&a, false);
    assert_int_equal(a.error, MILL_KERR_ILLEGAL_GENERATION);
    assert_int_equal(leave("nobody"), MILL_KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(leave(a.id), 0);
    assert_int_equal(group_now()->consumers->count, 1);
    assert_int_equal(mill_group_type(group_now()), MILL_GROUP_CONSUMER);
    check_load();
    teardown();
}

/* Members of the classic protocol have their own time-outs in such a group: of silence, until they
 * join again when they were told to, and until they sync. */
static void test_classic_members_time_out(void **state)
{
    MILL_UNUSED(state);
    for (uint32_t step = 0; step < 3; step++) {
        static struct member a;
        begin("bidirectional", &a);
        assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_JOINS, NULL)), 0);
        struct mill_group *group = mill_groups_find(&groups, "group");
        if (step == 2) {
            member_joins(&a);
        }
        /* Silence ends it after 10 s, no join or sync after 20 s, silence of the other one after 45
         * s. */
        for (uint32_t s = 0; s < (step == 0 ? 9u : 19u); s++) {
            groups.env.now_ns += MILL_NS_PER_S;
            mill_consumers_time(&groups, group);
            let_end(MILL_JOURNAL_DONE);
            if (step > 0) {
                (void)heartbeat(&a);
                assert_int_not_equal(a.error, MILL_KERR_UNKNOWN_MEMBER_ID);
            }
        }
        assert_int_equal(group->consumers->count, 2);
        groups.env.now_ns += 2 * MILL_NS_PER_S;
        mill_consumers_time(&groups, group);
        let_end(MILL_JOURNAL_DONE);
        assert_int_equal(group->consumers->count, 1);
        assert_int_equal(heartbeat(&a), MILL_KERR_UNKNOWN_MEMBER_ID);
        teardown();
    }
}

static struct mill_admin_request *static_beat(const char *member_id, int32_t epoch)
{
    struct mill_consumer_group_heartbeat_request message;
    mill_consumer_group_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.member_id = mill_wstr_of(member_id);
    message.instance_id = mill_wstr_of("one");
    message.member_epoch = epoch;
    if (epoch == MILL_CONSUMER_JOINS) {
        message.rebalance_timeout_ms = 10000;
        message.subscribed_topic_names = (struct mill_warray){.count = 1, .get = get_topic};
        message.topic_partitions = (struct mill_warray){.count = 0};
    }
    return send(MILL_API_KEY_CONSUMER_GROUP_HEARTBEAT, BEAT_VERSION, encode_beat, &message);
}

/* Under one name from one protocol to the other and back: what was assigned stays. */
static void test_static_member_changes_over(void **state)
{
    MILL_UNUSED(state);
    static struct member a;
    const char *sets[] = {"group.initial.rebalance.delay.ms=0"};
    setup_with(sets, 1);
    topic_make(topic, PARTITIONS);
    a = (struct member){.knows_owned = true, .instance = "one"};
    member_joins(&a);
    member_syncs(&a, true);
    assert_int_equal(a.owned, 15);
    assert_int_equal(beat_ends(static_beat("new", MILL_CONSUMER_JOINS)), 0);
    assert_int_equal(group_now()->consumers->count, 1);
    assert_int_equal(consumer_of("new")->assigned.count, 4);
    assert_null(consumer_of("new")->classic);
    assert_int_equal(heartbeat(&a), MILL_KERR_FENCED_INSTANCE_ID);
    check_load();
    a.id[0] = '\0';
    member_joins(&a);
    assert_int_equal(a.error, 0);
    assert_int_equal(mill_group_type(group_now()), MILL_GROUP_CLASSIC);
    assert_int_equal(group_now()->members_count, 1);
    assert_int_equal(group_now()->state, MILL_GROUP_STABLE); /* nobody else has to do anything */
    check_load();
    member_syncs(&a, false);
    assert_int_equal(a.error, 0);
    assert_int_equal(a.owned, 15);
    teardown();
}

static int encode_commit_in(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_offset_commit_request_encode(to, version, message);
}

static void get_commit_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_commit_request_topics_partitions *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->committed_offset = 5;
    element->committed_metadata = mill_wstr_of("");
}

static void get_commit_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_commit_request_topics *element = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    element->name = mill_wstr_of(topic);
    element->partitions = (struct mill_warray){.count = 1, .get = get_commit_partition};
}

static int16_t commit(const struct member *member)
{
    struct mill_offset_commit_request message;
    struct mill_offset_commit_response out;
    struct mill_offset_commit_response_topics one;
    struct mill_offset_commit_response_topics_partitions part;
    struct mill_buf buf;
    mill_offset_commit_request_defaults(&message);
    message.group_id = mill_wstr_of("group");
    message.member_id = mill_wstr_of(member->id);
    message.generation_id_or_member_epoch = member->generation;
    message.topics = (struct mill_warray){.count = 1, .get = get_commit_topic};
    struct mill_admin_request *request =
        send(MILL_API_KEY_OFFSET_COMMIT, COMMIT, encode_commit_in, &message);
    struct mill_cursor at = body_of(request, &buf);
    assert_int_equal(mill_offset_commit_response_decode(&at, COMMIT, &out), 0);
    assert_true(mill_offset_commit_response_topics_next(&out.topics, COMMIT, &one));
    assert_true(mill_offset_commit_response_topics_partitions_next(&one.partitions, COMMIT, &part));
    answered(request);
    return part.error_code;
}

/* A classic member's generation is its epoch, in a version that knows no epochs. */
static void test_classic_members_commit(void **state)
{
    MILL_UNUSED(state);
    static struct member a;
    begin("bidirectional", &a);
    assert_int_equal(beat_ends(beat_in("new", MILL_CONSUMER_JOINS, NULL)), 0);
    a.generation++;
    assert_int_equal(commit(&a), MILL_KERR_ILLEGAL_GENERATION);
    a.generation--;
    assert_int_equal(
        mill_consumer_may_commit(group_now(), consumer_of(a.id), a.generation, COMMIT, NULL, 0), 0);
    assert_int_equal(mill_consumer_may_fetch(group_now(), a.id, a.generation), 0);
    assert_int_equal(mill_consumer_may_fetch(group_now(), a.id, a.generation + 1),
                     MILL_KERR_ILLEGAL_GENERATION);
    teardown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_over_and_back),
        cmocka_unit_test(test_load_behind_a_downgrade_rebalances),
        cmocka_unit_test(test_requests_wait_for_the_change),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
        cmocka_unit_test(test_classic_members_time_out),
        cmocka_unit_test(test_static_member_changes_over),
        cmocka_unit_test(test_classic_members_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
