/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the consumer protocol (KIP-848) as clients know it: who joins, is assigned, must give up,
 * waits, is fenced, comes back, is thrown out, and when. Method: the state machine alone, its
 * records replayed as a load does (consumer_rig.h). */
#include "tests/unit/alloc_fail.h"
#include "tests/unit/control/consumer_rig.h"

static void test_one_alone_gets_everything(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    a = (struct client){.id = "a", .topic = "logs", .topic2 = "nothing"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs", 4);
    rig_beat(&rig, &a, 3, false, false);
    assert_int_equal(a.error, MILL_KERR_GROUP_ID_NOT_FOUND);
    rig_join(&rig, &a);
    assert_int_equal(a.error, 0);
    assert_int_equal(a.epoch, 1);
    assert_int_equal(a.owned_count, 4);
    assert_int_equal(mill_consumer_group_state(rig.group), MILL_GROUP_STABLE);
    uint32_t written = rig.log_count;
    rig_go_on(&rig, &a);
    assert_int_equal(a.error, 0);
    assert_false(a.told); /* nothing changed: neither told nor written */
    assert_int_equal(rig.log_count, written);
    rig_beat(&rig, &a, 1, true, true);
    assert_true(a.told); /* whoever says everything is told everything */
    assert_int_equal(rig.log_count, written);
    rig_beat(&rig, &a, MILL_CONSUMER_LEAVES, false, false);
    assert_int_equal(a.error, 0);
    assert_int_equal(a.epoch, MILL_CONSUMER_LEAVES);
    assert_int_equal(mill_consumer_group_state(rig.group), MILL_GROUP_EMPTY);
    assert_int_equal(rig.group->state, MILL_GROUP_EMPTY);
    rig_go_on(&rig, &a);
    assert_int_equal(a.error, MILL_KERR_UNKNOWN_MEMBER_ID);
    rig_close(&rig);
}

static void test_what_one_gives_up_another_gets_after_it(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    a = (struct client){.id = "a", .topic = "logs"};
    static struct client b;
    b = (struct client){.id = "b", .topic = "logs"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs", 4);
    rig_join(&rig, &a);
    rig_join(&rig, &b);
    assert_int_equal(b.epoch, 2);
    assert_int_equal(b.owned_count, 0); /* all are a's still */
    rig_go_on(&rig, &b);
    assert_int_equal(b.owned_count, 0);
    assert_int_equal(mill_consumer_group_state(rig.group), MILL_GROUP_RECONCILING);
    static struct client before;
    before = a;
    rig_beat(&rig, &a, 1, false, false);
    assert_int_equal(a.epoch, 1); /* in its epoch until it gave up two of them */
    assert_int_equal(a.owned_count, 2);
    rig_go_on(&rig, &b);
    assert_int_equal(b.owned_count, 0); /* a has not said that it did */
    rig_beat(&rig, &before, 1, false, true);
    assert_int_equal(before.epoch, 1); /* it says that it has not */
    rig_beat(&rig, &a, 1, false, true);
    assert_int_equal(a.epoch, 2);
    rig_go_on(&rig, &b);
    assert_int_equal(b.owned_count, 2);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(rig_owns(&a, 0, i) + rig_owns(&b, 0, i), 1);
    }
    assert_int_equal(mill_consumer_group_state(rig.group), MILL_GROUP_STABLE);
    rig_close(&rig);
}

static void test_one_that_clings_is_removed(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    a = (struct client){.id = "a", .topic = "logs", .rebalance_ms = 30000};
    static struct client b;
    b = (struct client){.id = "b", .topic = "logs"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs", 4);
    rig_join(&rig, &a);
    rig_join(&rig, &b);
    for (uint32_t i = 0; i < 29; i++) {
        rig_beat(&rig, &a, 1, false, false);
        assert_int_equal(a.error, 0);
        rig_go_on(&rig, &b);
        rig_pass(&rig, 1000);
    }
    assert_int_equal(rig.group->consumers->count, 2);
    rig_pass(&rig, 1001);
    assert_int_equal(rig.group->consumers->count, 1);
    assert_int_equal(rig.shared.expired_members, 1);
    rig_beat(&rig, &a, 1, false, false);
    assert_int_equal(a.error, MILL_KERR_UNKNOWN_MEMBER_ID);
    rig_go_on(&rig, &b);
    assert_int_equal(b.owned_count, 4);
    rig_close(&rig);
}

static void test_silent_member_is_removed(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    a = (struct client){.id = "a", .topic = "logs"};
    static struct client b;
    b = (struct client){.id = "b", .topic = "logs"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs", 2);
    rig_join(&rig, &a);
    rig_join(&rig, &b);
    rig_pass(&rig, SESSION_MS - 1);
    rig_go_on(&rig, &b);
    rig.lose = true; /* that a is gone does not reach the log at first */
    rig_pass(&rig, 2);
    assert_int_equal(rig.group->consumers->count, 2);
    rig.lose = false;
    rig_pass(&rig, 1000);
    assert_int_equal(rig.group->consumers->count, 1);
    rig_go_on(&rig, &b);
    assert_int_equal(b.owned_count, 2);
    rig_close(&rig);
}

static void test_epochs_fence(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    a = (struct client){.id = "a", .topic = "logs"};
    static struct client b;
    b = (struct client){.id = "b", .topic = "logs"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs", 4);
    rig_join(&rig, &a);
    rig_beat(&rig, &a, 2, false, false);
    assert_int_equal(a.error, MILL_KERR_FENCED_MEMBER_EPOCH);
    assert_non_null(strstr(a.message, "greater member epoch (2)"));
    rig_join(&rig, &b);
    rig_beat(&rig, &a, 1, false, false);
    rig_beat(&rig, &a, 1, false, true);
    assert_int_equal(a.epoch, 2);
    /* The answer was lost: it repeats what it said, and may. */
    rig_beat(&rig, &a, 1, false, true);
    assert_int_equal(a.error, 0);
    assert_int_equal(a.epoch, 2);
    rig_beat(&rig, &a, 1, false, false); /* without what it owns nobody knows */
    assert_int_equal(a.error, MILL_KERR_FENCED_MEMBER_EPOCH);
    static struct client more;
    more = a;
    more.owned[more.owned_count++] = (struct mill_part){.topic = {{1}}, .partition = 9};
    rig_beat(&rig, &more, 1, false, true);
    assert_int_equal(more.error, MILL_KERR_FENCED_MEMBER_EPOCH);
    rig_join(&rig, &a); /* a fenced one begins anew under its id */
    assert_int_equal(a.error, 0);
    assert_int_equal(a.owned_count, 2);
    rig_beat(&rig, &a, -3, false, false);
    assert_int_equal(a.error, MILL_KERR_INVALID_REQUEST);
    rig_close(&rig);
}

static void test_static_member_comes_back(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    a = (struct client){.id = "a", .instance = "one", .topic = "logs"};
    static struct client again;
    again = (struct client){.id = "a2", .instance = "one", .topic = "logs"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs", 3);
    rig_join(&rig, &a);
    rig_join(&rig, &again);
    assert_int_equal(again.error, MILL_KERR_UNRELEASED_INSTANCE_ID);
    rig_beat(&rig, &a, MILL_CONSUMER_LEAVES_AWHILE, false, false);
    assert_int_equal(a.epoch, MILL_CONSUMER_LEAVES_AWHILE);
    int32_t epoch = rig.group->generation;
    rig_join(&rig, &again);
    assert_int_equal(again.error, 0);
    assert_int_equal(rig.group->generation, epoch); /* no rebalance */
    assert_int_equal(again.owned_count, 3);
    assert_int_equal(again.epoch, 1);
    rig_beat(&rig, &a, 1, false, false);
    assert_int_equal(a.error, MILL_KERR_FENCED_INSTANCE_ID);
    a.instance = "two";
    rig_beat(&rig, &a, 1, false, false);
    assert_int_equal(a.error, MILL_KERR_UNKNOWN_MEMBER_ID);
    rig_beat(&rig, &again, MILL_CONSUMER_LEAVES_AWHILE, false, false);
    rig_pass(&rig, SESSION_MS + 1); /* and one that does not come back goes */
    assert_int_equal(rig.group->consumers->count, 0);
    rig_close(&rig);
}

static void test_topics_that_grow_are_assigned(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    a = (struct client){.id = "a", .topic = "logs", .topic2 = "later"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs", 2);
    rig_join(&rig, &a);
    rig_topic(&rig, 1, "others", 5);
    rig_go_on(&rig, &a);
    assert_int_equal(a.epoch, 1); /* nobody subscribes to it */
    rig_topic(&rig, 2, "later", 3);
    rig_go_on(&rig, &a);
    assert_int_equal(a.epoch, 2);
    assert_int_equal(a.owned_count, 5);
    rig_topic(&rig, 0, "logs", 4);
    rig_go_on(&rig, &a);
    assert_int_equal(a.owned_count, 7);
    rig_topic(&rig, 2, "later", 0);
    rig_beat(&rig, &a, a.epoch, false, false);
    assert_int_equal(a.owned_count, 4);
    rig_close(&rig);
}

static void test_regular_expressions(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static const struct {
        const char *regex;
        int16_t error;
    } rows[] = {
        {"(", MILL_KERR_INVALID_REGULAR_EXPRESSION},
        {"(a)\\1", MILL_KERR_INVALID_REGULAR_EXPRESSION},
        {"a(?=b)", MILL_KERR_INVALID_REGULAR_EXPRESSION},
        {"(*LIMIT_MATCH=5)a", MILL_KERR_INVALID_REGULAR_EXPRESSION},
        {"log", 0}, /* whole names only */
        {"(?i)LOGS-(?:[0-9]+|zz)", 0},
    };
    static struct client a;
    a = (struct client){.id = "a"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs-1", 2);
    rig_topic(&rig, 1, "other", 2);
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        a.regex = rows[i].regex;
        rig_join(&rig, &a);
        assert_int_equal(a.error, rows[i].error);
        assert_true(a.error == 0 || a.message[0] != '\0');
    }
    rig_beat(&rig, &a, a.epoch, false, true);
    assert_int_equal(a.owned_count, 2);
    assert_null(rig.group->consumers->regexes->next); /* the one before was buried */
    rig_topic(&rig, 2, "logs-zz", 3);
    rig_go_on(&rig, &a);
    assert_int_equal(a.owned_count, 5);
    assert_true(mill_consumer_subscribes(rig.group, "logs-zz"));
    assert_false(mill_consumer_subscribes(rig.group, "other"));
    a.regex = "";
    a.topic = "other";
    rig_beat(&rig, &a, a.epoch, true, true);
    rig_beat(&rig, &a, a.epoch, false, true);
    assert_int_equal(a.owned_count, 2);
    assert_null(rig.group->consumers->regexes);
    rig_close(&rig);
}

/* Many tries in one name are taken, and those in all names together are not. */
static void test_regular_expressions_are_bounded(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    static struct client b;
    a = (struct client){.id = "a", .regex = "(x+x+)+[yz]"};
    b = (struct client){.id = "b", .regex = "(x+x+)+[wyz]"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "xxxxxxxxxxxxxxxxxx", 1);
    rig_join(&rig, &a);
    assert_int_equal(a.error, 0);
    rig_topic(&rig, 1, "xxxxxxxxxxxxxxxxxx-1", 1);
    rig_topic(&rig, 2, "xxxxxxxxxxxxxxxxxx-2", 1);
    rig_join(&rig, &b);
    assert_int_equal(b.error, MILL_KERR_INVALID_REGULAR_EXPRESSION);
    assert_non_null(strstr(b.message, "too many steps"));
    rig_go_on(&rig, &a); /* it keeps what it matched */
    assert_int_equal(a.error, 0);
    assert_int_equal(rig.shared.full, 1);
    rig_close(&rig);
}

static uint64_t fails_at; /* the allocation of a heartbeat's plan that fails */

static void planning_fails(bool begins)
{
    if (begins) {
        alloc_arm(fails_at, false);
    } else {
        alloc_disarm();
    }
}

/* A topic comes, and one allocation after the other of the next heartbeat fails: it is refused, and
 * what there was no memory to look at is looked at by the one that follows. */
static void test_looks_without_memory_are_made_again(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    bool failed = true;
    for (fails_at = 1; failed; fails_at++) {
        a = (struct client){.id = "a", .regex = "logs-.*"};
        rig_open(&rig, 1);
        rig_topic(&rig, 0, "logs-0", 1);
        rig_join(&rig, &a);
        rig_go_on(&rig, &a);
        rig_topic(&rig, 1, "logs-1", 1);
        rig.planning = planning_fails;
        rig_go_on(&rig, &a);
        rig.planning = NULL;
        failed = alloc_fail.failed > 0;
        assert_int_equal(a.error, failed ? MILL_KERR_COORDINATOR_NOT_AVAILABLE : 0);
        assert_string_equal(a.message, "");
        rig_go_on(&rig, &a);
        rig_go_on(&rig, &a);
        assert_int_equal(a.owned_count, 2);
        rig_close(&rig);
    }
    assert_true(fails_at > 4); /* the pool, the expression, the records */
}

static uint32_t regexes_seen(const struct rig *rig)
{
    uint32_t count = 0;
    for (const struct mill_consumer_regex *regex = rig->group->consumers->regexes; regex;
         regex = regex->next) {
        count += regex->topics_seen == rig->env.topics.version;
    }
    return count;
}

/* A group has so many different ones and no more; after a topic came, each heartbeat looks at some
 * of them until all were looked at. */
static void test_regular_expressions_are_counted(void **state)
{
    MILL_UNUSED(state);
    enum {
        MOST = MILL_CONSUMER_REGEXES_MAX,
    };
    static struct rig rig;
    static struct client clients[MOST + 1];
    static char texts[MOST + 1][16];
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs-1", 1);
    for (uint32_t i = 0; i <= MOST; i++) {
        struct client *client = &clients[i];
        *client = (struct client){.regex = texts[i]};
        snprintf(client->id, sizeof(client->id), "member-%u", i);
        snprintf(texts[i], sizeof(texts[i]), "logs-%u|new", i);
        rig_join(&rig, client);
        assert_int_equal(client->error, i < MOST ? 0 : MILL_KERR_GROUP_MAX_SIZE_REACHED);
    }
    assert_non_null(strstr(clients[MOST].message, "64 different"));
    assert_int_equal(rig.shared.full, 1);
    clients[MOST].regex = texts[0]; /* one that it knows */
    rig_join(&rig, &clients[MOST]);
    assert_int_equal(clients[MOST].error, 0);
    rig_topic(&rig, 1, "new", 3);
    for (uint32_t i = 1; i <= MOST / MILL_CONSUMER_LOOKS_MAX; i++) {
        rig_go_on(&rig, &clients[0]);
        assert_int_equal(regexes_seen(&rig), i * MILL_CONSUMER_LOOKS_MAX);
    }
    assert_true(rig.group->consumers->topics_seen == rig.env.topics.version);
    for (const struct mill_consumer_regex *regex = rig.group->consumers->regexes; regex;
         regex = regex->next) {
        assert_string_equal(regex->topics[regex->topics_count - 1], "new");
    }
    rig_close(&rig);
}

static void test_commits_by_epoch(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    const struct mill_uuid topic = {{1}};
    static struct client a;
    a = (struct client){.id = "a", .topic = "logs"};
    static struct client b;
    b = (struct client){.id = "b", .topic = "logs"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs", 2);
    rig_join(&rig, &a);
    const struct mill_group *group = rig.group;
    assert_int_equal(mill_consumer_may_commit(group, mill_consumer_find(group, ""), -1, 9, NULL, 0),
                     MILL_KERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(
        mill_consumer_may_commit(group, mill_consumer_find(group, "a"), 1, 9, &topic, 0), 0);
    assert_int_equal(
        mill_consumer_may_commit(group, mill_consumer_find(group, "a"), 1, 8, &topic, 0),
        MILL_KERR_UNSUPPORTED_VERSION);
    assert_int_equal(
        mill_consumer_may_commit(group, mill_consumer_find(group, "a"), 2, 9, &topic, 0),
        MILL_KERR_STALE_MEMBER_EPOCH);
    rig_join(&rig, &b);
    rig_beat(&rig, &a, 1, false, false);
    rig_beat(&rig, &a, 1, false, true);
    rig_go_on(&rig, &b);
    int32_t kept = rig_owns(&a, 0, 0) ? 0 : 1;
    assert_int_equal(a.epoch, 2);
    /* An epoch from before is good for what was never given up since, and for nothing else. */
    assert_int_equal(
        mill_consumer_may_commit(group, mill_consumer_find(group, "a"), 1, 9, &topic, kept), 0);
    assert_int_equal(
        mill_consumer_may_commit(group, mill_consumer_find(group, "a"), 1, 9, &topic, 1 - kept),
        MILL_KERR_STALE_MEMBER_EPOCH);
    assert_int_equal(
        mill_consumer_may_commit(group, mill_consumer_find(group, "b"), 1, 9, &topic, 1 - kept),
        MILL_KERR_STALE_MEMBER_EPOCH);
    assert_int_equal(mill_consumer_may_fetch(group, NULL, -1), 0);
    assert_int_equal(mill_consumer_may_fetch(group, "a", 2), 0);
    assert_int_equal(mill_consumer_may_fetch(group, "a", 1), MILL_KERR_STALE_MEMBER_EPOCH);
    assert_int_equal(mill_consumer_may_fetch(group, "c", 1), MILL_KERR_UNKNOWN_MEMBER_ID);
    rig_close(&rig);
}

static void test_bad_requests_are_refused(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    a = (struct client){.id = "", .topic = "logs"};
    rig_open(&rig, 1);
    rig_join(&rig, &a);
    assert_int_equal(a.error, MILL_KERR_INVALID_REQUEST);
    static struct client b;
    b = (struct client){.id = "b", .topic = "logs", .instance = ""};
    rig_join(&rig, &b);
    assert_int_equal(b.error, MILL_KERR_INVALID_REQUEST);
    static struct client c;
    c = (struct client){.id = "c", .topic = "logs", .assignor = "sticky"};
    rig_join(&rig, &c);
    assert_int_equal(c.error, MILL_KERR_UNSUPPORTED_ASSIGNOR);
    c.assignor = "range";
    c.rebalance_ms = -1;
    rig_join(&rig, &c);
    assert_int_equal(c.error, MILL_KERR_INVALID_REQUEST);
    c.rebalance_ms = 0;
    rig_beat(&rig, &c, MILL_CONSUMER_LEAVES_AWHILE, false, false);
    assert_int_equal(c.error, MILL_KERR_INVALID_REQUEST);
    assert_int_equal(rig.log_count, 0);
    rig.group->state = MILL_GROUP_STABLE; /* a classic group with members */
    rig_join(&rig, &c);
    assert_int_equal(c.error, MILL_KERR_GROUP_ID_NOT_FOUND);
    rig.group->state = MILL_GROUP_EMPTY;
    rig.group->generation = 4; /* an empty one: its record goes first */
    rig_join(&rig, &c);
    assert_int_equal(c.error, 0);
    assert_int_equal(rig.log[0].value_bytes, -1);
    assert_int_equal(rig.log[0].key[1], 2);
    rig_close(&rig);
}

/* A dynamic member comes again with a name of its own. */
static void test_one_id_is_one_member(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    a = (struct client){.id = "a", .topic = "logs"};
    static struct client b;
    b = (struct client){.id = "b", .instance = "one", .topic = "logs"};
    rig_open(&rig, 1);
    rig_topic(&rig, 0, "logs", 4);
    rig_join(&rig, &a);
    a.instance = "two";
    a.topic2 = "later"; /* another subscription: shared out once more */
    rig_join(&rig, &a);
    assert_int_equal(a.error, 0);
    assert_int_equal(a.owned_count, 4);
    assert_int_equal(rig.group->consumers->count, 1);
    assert_int_equal(rig.group->consumers->first->target.count, 4);
    assert_string_equal(rig.group->consumers->first->instance_id, "two");
    /* Nor does it get the name of another one that is away, beside its own. */
    rig_join(&rig, &b);
    rig_beat(&rig, &b, MILL_CONSUMER_LEAVES_AWHILE, false, false);
    assert_int_equal(b.error, 0);
    a.instance = "one";
    rig_join(&rig, &a);
    assert_int_equal(a.error, MILL_KERR_UNRELEASED_INSTANCE_ID);
    rig_close(&rig);
}

/* A record of before the group became a classic one, replayed behind it. */
static void test_tombstone_leaves_a_classic_group(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    const struct mill_consumer_record record = {.type = MILL_CONSUMER_RECORD_EPOCH,
                                                .tombstone = true};
    rig_open(&rig, 1);
    rig.group->state = MILL_GROUP_STABLE;
    rig.group->generation = 4;
    assert_true(mill_consumer_apply(&rig.env, rig.group, &record));
    assert_int_equal(rig.group->state, MILL_GROUP_STABLE);
    assert_int_equal(rig.group->generation, 4);
    rig_close(&rig);
}

static void test_size_and_memory_are_bounded(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    uint32_t count = 0;
    rig_open(&rig, 1);
    rig.env.size_max = 2;
    for (; count < 3; count++) {
        static struct client one;
        one = (struct client){.topic = "logs"};
        snprintf(one.id, sizeof(one.id), "m%u", count);
        rig_join(&rig, &one);
        assert_int_equal(one.error, count < 2 ? 0 : MILL_KERR_GROUP_MAX_SIZE_REACHED);
    }
    assert_int_equal(rig.shared.full, 1);
    rig.env.size_max = 1000;
    rig.shared.bytes_max = rig.shared.bytes + 10000;
    for (; count < 200; count++) {
        static struct client one;
        one = (struct client){.topic = "logs"};
        snprintf(one.id, sizeof(one.id), "m%u", count);
        rig_join(&rig, &one);
        if (one.error != 0) {
            assert_int_equal(one.error, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
            break;
        }
    }
    assert_in_range(count, 10, 100);
    assert_int_equal(rig.shared.full, 2);
    rig_close(&rig);
}

/* What Kafka's own classes write for these; the first and the last bytes tell type and version. */
static void test_records_are_kafkas(void **state)
{
    MILL_UNUSED(state);
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    uint32_t bytes = 0;
    static const uint8_t key[] = {0, 5, 0, 1, 'g', 0, 1, 'm'};
    uint8_t *made = mill_consumer_key(&pool, MILL_CONSUMER_RECORD_MEMBER, "g", "m", &bytes);
    assert_int_equal(bytes, sizeof(key));
    assert_memory_equal(made, key, sizeof(key));
    static const uint8_t epoch[] = {0, 0, 0, 0, 0, 7, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9};
    made = mill_consumer_epoch_value(&pool, 7, 9, &bytes);
    assert_int_equal(bytes, sizeof(epoch));
    assert_memory_equal(made, epoch, sizeof(epoch));
    struct mill_part part = {.topic = {{1}}, .partition = 3, .epoch = 6};
    struct mill_consumer member = {.epoch = 7,
                                   .previous_epoch = 6,
                                   .state = MILL_CONSUMER_UNRELEASED,
                                   .assigned = {.items = &part, .count = 1}};
    static const uint8_t current[] = {0, 0, 0, 0, 0, 7, 0, 0, 0, 6, 2, /* epochs, state */
                                      2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* topic */
                                      2, 0, 0, 0, 3,          /* its partition */
                                      1, 0, 5, 2, 0, 0, 0, 6, /* the epoch of that */
                                      1, 0};
    made = mill_consumer_current_value(&pool, &member, &bytes);
    assert_int_equal(bytes, sizeof(current));
    assert_memory_equal(made, current, sizeof(current));
    mill_pool_clear(&pool);
}

/* Those who join soon after each other are given their shares at once. */
static void test_assignments_keep_their_interval(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    static struct client b;
    a = (struct client){.id = "a", .topic = "logs"};
    b = (struct client){.id = "b", .topic = "logs"};
    rig_open(&rig, 1);
    rig.env.times.assignment_interval_ms = 1000;
    rig_topic(&rig, 0, "logs", 4);
    rig_join(&rig, &a);
    assert_int_equal(a.owned_count, 4); /* the first of all */
    rig_pass(&rig, 999);
    rig_join(&rig, &b);
    assert_int_equal(rig.group->generation, 2);
    assert_int_equal(rig.group->consumers->assignment_epoch, 1);
    assert_int_equal(mill_consumer_group_state(rig.group), MILL_GROUP_ASSIGNING);
    assert_int_equal(b.epoch, 1);
    assert_int_equal(b.owned_count, 0);
    rig_go_on(&rig, &a);
    assert_int_equal(rig.group->consumers->assignment_epoch, 1);
    rig_pass(&rig, 1);
    rig_beat(&rig, &a, 1, false, true);
    assert_int_equal(rig.group->consumers->assignment_epoch, 2);
    assert_int_equal(a.owned_count, 2);
    rig_close(&rig);
}

static void own_times(void *context, const char *group_id, struct mill_consumer_times *ret)
{
    assert_string_equal(group_id, "group");
    ret->session_timeout_ms = *(const int64_t *)context;
}

/* What the group has of its own, as it is when a member speaks. */
static void test_group_has_times_of_its_own(void **state)
{
    MILL_UNUSED(state);
    static struct rig rig;
    static struct client a;
    int64_t session_ms = 2000;
    a = (struct client){.id = "a", .topic = "logs"};
    rig_open(&rig, 1);
    rig.env.own_times = own_times;
    rig.env.own_context = &session_ms;
    rig_topic(&rig, 0, "logs", 4);
    rig_join(&rig, &a);
    rig_pass(&rig, 1999);
    assert_int_equal(rig.group->consumers->count, 1);
    rig_pass(&rig, 2);
    assert_int_equal(rig.group->consumers->count, 0);
    rig_join(&rig, &a);
    session_ms = 4000;
    rig_go_on(&rig, &a);
    rig_pass(&rig, 3999);
    assert_int_equal(rig.group->consumers->count, 1);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_alone_gets_everything),
        cmocka_unit_test(test_what_one_gives_up_another_gets_after_it),
        cmocka_unit_test(test_one_that_clings_is_removed),
        cmocka_unit_test(test_silent_member_is_removed),
        cmocka_unit_test(test_epochs_fence),
        cmocka_unit_test(test_static_member_comes_back),
        cmocka_unit_test(test_topics_that_grow_are_assigned),
        cmocka_unit_test(test_regular_expressions),
        cmocka_unit_test(test_regular_expressions_are_bounded),
        cmocka_unit_test(test_looks_without_memory_are_made_again),
        cmocka_unit_test(test_regular_expressions_are_counted),
        cmocka_unit_test(test_commits_by_epoch),
        cmocka_unit_test(test_bad_requests_are_refused),
        cmocka_unit_test(test_one_id_is_one_member),
        cmocka_unit_test(test_tombstone_leaves_a_classic_group),
        cmocka_unit_test(test_size_and_memory_are_bounded),
        cmocka_unit_test(test_records_are_kafkas),
        cmocka_unit_test(test_assignments_keep_their_interval),
        cmocka_unit_test(test_group_has_times_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
