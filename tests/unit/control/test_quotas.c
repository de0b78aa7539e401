/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: quotas are set, told, taken away and kept as Kafka does, and the cores' record says what
 * holds for each client: of all that fits it what says most. Method: requests against a fake core
 * on virtual time; the record is read as a core reads it; resolution beside a slow model. */
#include "tests/unit/alloc_fail.h"
#include "tests/unit/control/alter_requests.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>

#include "base/random.h"
#include "control/controller/quotas.h"

enum {
    EXACT,
    BY_DEFAULT,
    ANY,
    VERSION = 1,
    HALVES_MAX = 3,
    OPS_KEPT = 3,
    OPS_TOO_MANY = 17,
    ROUNDS = 300,
};

/* --- requests ----------------------------------------------------------------------------------
 */

struct half {
    const char *type;
    const char *name; /* NULL: the default */
};

struct op {
    const char *key;
    double value;
    bool remove;
};

struct change {
    struct half halves[HALVES_MAX];
    int32_t halves_count;
    struct op ops[OPS_KEPT]; /* given again and again, when there are more */
    int32_t ops_count;
};

static void get_half(const void *context, int32_t index, void *ret_element)
{
    const struct half *half = &((const struct change *)context)->halves[index];
    struct mill_alter_client_quotas_request_entries_entity *to = ret_element;
    to->entity_type = mill_wstr_of(half->type);
    to->entity_name = mill_wstr_of(half->name);
}

static void get_op(const void *context, int32_t index, void *ret_element)
{
    const struct op *op = &((const struct change *)context)->ops[index % OPS_KEPT];
    struct mill_alter_client_quotas_request_entries_ops *to = ret_element;
    to->key = mill_wstr_of(op->key);
    to->value = op->value;
    to->remove = op->remove;
}

static void get_change(const void *context, int32_t index, void *ret_element)
{
    const struct change *change = &((const struct change *)context)[index];
    struct mill_alter_client_quotas_request_entries *to = ret_element;
    to->entity =
        (struct mill_warray){.count = change->halves_count, .get = get_half, .context = change};
    to->ops = (struct mill_warray){.count = change->ops_count, .get = get_op, .context = change};
}

static void alter_all(struct fake *f, const struct change *changes, int32_t count, bool validate,
                      int16_t *ret_errors)
{
    struct mill_alter_client_quotas_request in;
    struct mill_alter_client_quotas_response out;
    struct mill_alter_client_quotas_response_entries entry;
    struct mill_alter_client_quotas_response_entries_entity half;
    mill_alter_client_quotas_request_defaults(&in);
    in.entries = (struct mill_warray){.count = count, .get = get_change, .context = changes};
    in.validate_only = validate;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_ALTER_CLIENT_QUOTAS, VERSION);
    assert_int_equal(mill_alter_client_quotas_request_encode(&writer, VERSION, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_ALTER_CLIENT_QUOTAS, VERSION);
    assert_int_equal(mill_alter_client_quotas_response_decode(&at, VERSION, &out), 0);
    assert_int_equal(out.entries.count, count);
    for (int32_t i = 0; i < count; i++) {
        assert_true(mill_alter_client_quotas_response_entries_next(&out.entries, VERSION, &entry));
        ret_errors[i] = entry.error_code;
        assert_true((entry.error_code != 0) == (entry.error_message.length > 0));
        for (int32_t k = 0; k < changes[i].halves_count; k++) { /* the entity comes back */
            const struct half *asked = &changes[i].halves[k];
            assert_true(mill_alter_client_quotas_response_entries_entity_next(&entry.entity,
                                                                              VERSION, &half));
            assert_true(
                mill_wstr_equal(&half.entity_type, asked->type, (uint32_t)strlen(asked->type)));
            assert_true((half.entity_name.length < 0) == (asked->name == NULL));
        }
    }
}

static int16_t alter(struct fake *f, const struct change *change)
{
    int16_t error;
    alter_all(f, change, 1, false, &error);
    return error;
}

static struct change client_change(const char *client, const char *key, double value)
{
    return (struct change){.halves = {{"client-id", client}},
                           .halves_count = 1,
                           .ops = {{key, value, value == 0}},
                           .ops_count = 1};
}

static struct change both_change(const char *user, const char *client, const char *key,
                                 double value)
{
    return (struct change){.halves = {{"user", user}, {"client-id", client}},
                           .halves_count = 2,
                           .ops = {{key, value, value == 0}},
                           .ops_count = 1};
}

struct filter {
    struct {
        const char *type;
        int8_t match;
        const char *name;
    } of[3];
    int32_t count;
    bool strict;
};

static void get_filter(const void *context, int32_t index, void *ret_element)
{
    const struct filter *filter = context;
    struct mill_describe_client_quotas_request_components *to = ret_element;
    to->entity_type = mill_wstr_of(filter->of[index].type);
    to->match_type = filter->of[index].match;
    to->match = mill_wstr_of(filter->of[index].name);
}

/* ret: the error; ret_count entities; the sum of their values, which tells them apart. */
static int16_t describe(struct fake *f, const struct filter *filter, int32_t *ret_count,
                        double *ret_sum)
{
    struct mill_describe_client_quotas_request in;
    struct mill_describe_client_quotas_response out;
    struct mill_describe_client_quotas_response_entries entry;
    struct mill_describe_client_quotas_response_entries_values value;
    mill_describe_client_quotas_request_defaults(&in);
    in.components =
        (struct mill_warray){.count = filter->count, .get = get_filter, .context = filter};
    in.strict = filter->strict;
    struct mill_writer writer = fake_begin(f, MILL_API_KEY_DESCRIBE_CLIENT_QUOTAS, VERSION);
    assert_int_equal(mill_describe_client_quotas_request_encode(&writer, VERSION, &in), 0);
    struct mill_cursor at = fake_call(f, &writer, MILL_API_KEY_DESCRIBE_CLIENT_QUOTAS, VERSION);
    assert_int_equal(mill_describe_client_quotas_response_decode(&at, VERSION, &out), 0);
    assert_int_equal(out.entries.count < 0, out.error_code != 0); /* null with an error */
    *ret_count = out.entries.count;
    *ret_sum = 0;
    while (mill_describe_client_quotas_response_entries_next(&out.entries, VERSION, &entry)) {
        assert_in_range(entry.entity.count, 1, 2);
        while (mill_describe_client_quotas_response_entries_values_next(&entry.values, VERSION,
                                                                        &value)) {
            *ret_sum += value.value;
        }
    }
    return out.error_code;
}

/* What a core would keep to. */
static uint64_t limit(const struct fake *f, const char *client, enum mill_quota_kind kind)
{
    const struct mill_map_quotas *record = mill_map_quotas_read(f->map);
    return record && record->count > 0 ? mill_map_quota_of(record, client)->per_second[kind] : 0;
}

static bool is_shared(const struct fake *f, const char *client, enum mill_quota_kind kind)
{
    return mill_map_quota_of(mill_map_quotas_read(f->map), client)->shared[kind];
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void test_quota_set_told_taken_away(void **state)
{
    (void)state;
    struct fake f;
    int32_t count;
    double sum;
    fake_open(&f, NULL, 0);
    const struct filter all = {0};
    assert_int_equal(describe(&f, &all, &count, &sum), 0);
    assert_int_equal(count, 0);
    struct change change = client_change("a", "producer_byte_rate", 1024);
    change.ops[1] = (struct op){"consumer_byte_rate", 2048, false};
    change.ops[2] = (struct op){"request_percentage", 12.5, false};
    change.ops_count = 3;
    assert_int_equal(alter(&f, &change), 0);
    assert_int_equal(limit(&f, "a", MILL_QUOTA_PRODUCE), 1024);
    assert_int_equal(limit(&f, "a", MILL_QUOTA_FETCH), 2048);
    assert_int_equal(limit(&f, "a", MILL_QUOTA_TIME), 125000000);
    assert_int_equal(limit(&f, "b", MILL_QUOTA_PRODUCE), 0);
    assert_int_equal(mill_map_quotas_read(f.map)->burst_ns, 10 * MILL_NS_PER_S);
    assert_int_equal(mill_map_quotas_read(f.map)->time_pause_max_ns, MILL_NS_PER_S);
    uint64_t version = mill_map_quotas_read(f.map)->version;
    assert_int_equal(describe(&f, &all, &count, &sum), 0);
    assert_int_equal(count, 1);
    assert_true(sum == 1024 + 2048 + 12.5);
    change = client_change("a", "consumer_byte_rate", 0);
    assert_int_equal(alter(&f, &change), 0);
    assert_int_equal(limit(&f, "a", MILL_QUOTA_FETCH), 0);
    assert_true(mill_map_quotas_read(f.map)->version != version);
    change.ops[0] = (struct op){"producer_byte_rate", 0, true};
    change.ops[1] = (struct op){"request_percentage", 0, true};
    change.ops_count = 2;
    assert_int_equal(alter(&f, &change), 0);
    assert_int_equal(limit(&f, "a", MILL_QUOTA_PRODUCE), 0);
    assert_int_equal(mill_map_quotas_read(f.map)->count, 0); /* cores look at nothing more */
    assert_int_equal(describe(&f, &all, &count, &sum), 0);
    assert_int_equal(count, 0);
    fake_close(&f);
}

static void test_quota_faults_refused(void **state)
{
    (void)state;
    struct fake f;
    char longest[257];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[256] = '\0';
    struct change many = client_change("a", "producer_byte_rate", 5);
    many.ops[1] = many.ops[0];
    many.ops[2] = many.ops[0];
    many.ops_count = OPS_TOO_MANY;
    struct row {
        struct change change;
        int16_t error;
    };
    const struct row rows[] = {
        {client_change("a", "producer_byte_rate", -1), MILL_KERR_INVALID_REQUEST},
        {client_change("a", "producer_byte_rate", 0.5), MILL_KERR_INVALID_REQUEST},
        {client_change("a", "producer_byte_rate", 1e19), MILL_KERR_INVALID_REQUEST},
        {client_change("a", "consumer_byte_rate", (double)INFINITY), MILL_KERR_INVALID_REQUEST},
        {client_change("a", "request_percentage", (double)NAN), MILL_KERR_INVALID_REQUEST},
        {client_change("a", "controller_mutation_rate", 5), MILL_KERR_INVALID_REQUEST},
        {client_change("a", "bytes", 5), MILL_KERR_INVALID_REQUEST},
        {client_change("", "producer_byte_rate", 5), MILL_KERR_INVALID_REQUEST},
        {client_change(longest, "producer_byte_rate", 5), MILL_KERR_INVALID_REQUEST},
        {{.ops = {{"producer_byte_rate", 5, false}}, .ops_count = 1}, MILL_KERR_INVALID_REQUEST},
        {{.halves = {{"topic", "a"}},
          .halves_count = 1,
          .ops = {{"producer_byte_rate", 5, false}},
          .ops_count = 1},
         MILL_KERR_INVALID_REQUEST},
        {{.halves = {{"ip", "10.0.0.1"}},
          .halves_count = 1,
          .ops = {{"connection_creation_rate", 5, false}},
          .ops_count = 1},
         MILL_KERR_UNSUPPORTED_VERSION},
        {{.halves = {{"client-id", "a"}, {"client-id", "b"}},
          .halves_count = 2,
          .ops = {{"producer_byte_rate", 5, false}},
          .ops_count = 1},
         MILL_KERR_INVALID_REQUEST},
        {many, MILL_KERR_INVALID_REQUEST},
    };
    fake_open(&f, NULL, 0);
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        assert_int_equal(alter(&f, &rows[i].change), rows[i].error);
    }
    /* Beside a wrong one the right ones are set; a fault in one value keeps all of its entity. */
    struct change some[3] = {client_change("a", "producer_byte_rate", 7),
                             client_change("b", "producer_byte_rate", 8),
                             client_change("c", "producer_byte_rate", 9)};
    some[1].ops[1] = (struct op){"unknown", 1, false};
    some[1].ops_count = 2;
    int16_t errors[3];
    alter_all(&f, some, 3, true, errors);
    assert_int_equal(limit(&f, "a", MILL_QUOTA_PRODUCE), 0); /* only looked at */
    assert_int_equal(errors[1], MILL_KERR_INVALID_REQUEST);
    alter_all(&f, some, 3, false, errors);
    assert_int_equal(errors[0], 0);
    assert_int_equal(errors[1], MILL_KERR_INVALID_REQUEST);
    assert_int_equal(errors[2], 0);
    assert_int_equal(limit(&f, "a", MILL_QUOTA_PRODUCE), 7);
    assert_int_equal(limit(&f, "b", MILL_QUOTA_PRODUCE), 0);
    assert_int_equal(limit(&f, "c", MILL_QUOTA_PRODUCE), 9);
    fake_close(&f);
}

/* Eight entities whose values are powers of two: a sum tells which were told. */
static void test_describe_filters(void **state)
{
    (void)state;
    struct fake f;
    const struct change changes[] = {
        client_change("a", "producer_byte_rate", 1),
        client_change("b", "producer_byte_rate", 2),
        client_change(NULL, "producer_byte_rate", 4),
        both_change("u", "a", "producer_byte_rate", 8),
        both_change(NULL, NULL, "producer_byte_rate", 16),
        {.halves = {{"user", "u"}},
         .halves_count = 1,
         .ops = {{"producer_byte_rate", 32, false}},
         .ops_count = 1},
        {.halves = {{"user", NULL}},
         .halves_count = 1,
         .ops = {{"producer_byte_rate", 64, false}},
         .ops_count = 1},
    };
    const struct {
        struct filter filter;
        int16_t error;
        double sum;
    } rows[] = {
        {{.count = 0}, 0, 127},
        {{.count = 0, .strict = true}, 0, 0},
        {{.of = {{"client-id", EXACT, "a"}}, .count = 1}, 0, 1 + 8},
        {{.of = {{"client-id", EXACT, "a"}}, .count = 1, .strict = true}, 0, 1},
        {{.of = {{"client-id", BY_DEFAULT, NULL}}, .count = 1}, 0, 4 + 16},
        {{.of = {{"client-id", ANY, NULL}}, .count = 1, .strict = true}, 0, 1 + 2 + 4},
        {{.of = {{"user", ANY, NULL}}, .count = 1}, 0, 8 + 16 + 32 + 64},
        {{.of = {{"user", ANY, NULL}, {"client-id", ANY, NULL}}, .count = 2, .strict = true},
         0,
         8 + 16},
        {{.of = {{"user", EXACT, "u"}, {"client-id", EXACT, "a"}}, .count = 2}, 0, 8},
        {{.of = {{"client-id", EXACT, "none"}}, .count = 1}, 0, 0},
        {{.of = {{"ip", ANY, NULL}}, .count = 1}, 0, 0},
        {{.of = {{"ip", ANY, NULL}, {"user", ANY, NULL}}, .count = 2},
         MILL_KERR_INVALID_REQUEST,
         0},
        {{.of = {{"user", ANY, NULL}, {"user", ANY, NULL}}, .count = 2},
         MILL_KERR_INVALID_REQUEST,
         0},
        {{.of = {{"user", 3, NULL}}, .count = 1}, MILL_KERR_INVALID_REQUEST, 0},
        {{.of = {{"user", EXACT, NULL}}, .count = 1}, MILL_KERR_INVALID_REQUEST, 0},
        {{.of = {{"user", ANY, "u"}}, .count = 1}, MILL_KERR_INVALID_REQUEST, 0},
        {{.of = {{"", ANY, NULL}}, .count = 1}, MILL_KERR_INVALID_REQUEST, 0},
        {{.of = {{"topic", ANY, NULL}}, .count = 1}, MILL_KERR_UNSUPPORTED_VERSION, 0},
    };
    int16_t errors[MILL_COUNT_OF(changes)];
    fake_open(&f, NULL, 0);
    alter_all(&f, changes, MILL_COUNT_OF(changes), false, errors);
    for (size_t i = 0; i < MILL_COUNT_OF(rows); i++) {
        int32_t count;
        double sum;
        assert_int_equal(describe(&f, &rows[i].filter, &count, &sum), rows[i].error);
        assert_true(sum == rows[i].sum);
    }
    fake_close(&f);
}

/* --- what holds --------------------------------------------------------------------------------
 */

static const char *const names[] = {"a", "b", "c"};

static struct mill_quota_name name_of(const char *name)
{
    struct mill_quota_name made = {.who = MILL_QUOTA_NAMED};
    strcpy(made.name, name);
    return made;
}

static struct mill_quota_name by_chance(struct mill_random *random, const char *const *of)
{
    static const struct mill_quota_name unnamed[] = {{.who = MILL_QUOTA_ABSENT},
                                                     {.who = MILL_QUOTA_DEFAULT}};
    uint32_t which = mill_random_below(random, 5);
    return which < 2 ? unnamed[which] : name_of(of[which - 2]);
}

/* Kafka's order, looked up one after the other. */
static double model(const struct mill_quota_set *set, const char *client, uint32_t kind,
                    bool *ret_shared)
{
    const struct mill_quota_name absent = {.who = MILL_QUOTA_ABSENT};
    const struct mill_quota_name rest = {.who = MILL_QUOTA_DEFAULT};
    const struct mill_quota_name user = name_of("ANONYMOUS");
    const struct mill_quota_name one = name_of(client);
    const struct mill_quota_name *const order[][2] = {
        {&user, &one},  {&user, &rest},   {&user, &absent}, {&rest, &one},
        {&rest, &rest}, {&rest, &absent}, {&absent, &one},  {&absent, &rest},
    };
    for (size_t i = 0; i < MILL_COUNT_OF(order); i++) {
        const struct mill_quota_entity *entity = mill_quota_find(set, order[i][0], order[i][1]);
        if (entity && entity->values[kind] > 0) {
            *ret_shared = order[i][1] == &absent;
            return entity->values[kind];
        }
    }
    *ret_shared = false;
    return 0;
}

static void test_resolve_is_kafkas_order(void **state)
{
    (void)state;
    static const char *const users[] = {"ANONYMOUS", "u", "ANONYMOUS"};
    static const char *const clients[] = {"a", "b", "c", "d", ""};
    struct mill_random random = {.state = 11};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct mill_quota_set set = {0};
        for (uint32_t i = mill_random_below(&random, 20); i > 0; i--) {
            struct mill_quota_name user = by_chance(&random, users);
            struct mill_quota_name client = by_chance(&random, names);
            if (user.who != MILL_QUOTA_ABSENT || client.who != MILL_QUOTA_ABSENT) {
                assert_int_equal(mill_quota_put(&set, &user, &client,
                                                (enum mill_quota_kind)mill_random_below(&random, 2),
                                                mill_random_below(&random, 4) * 100),
                                 0);
            }
        }
        struct mill_map_quotas *record = mill_quota_resolve(&set, 1, 2);
        assert_non_null(record);
        for (size_t i = 0; i < MILL_COUNT_OF(clients) && record->count > 0; i++) {
            const struct mill_map_quota *entry = mill_map_quota_of(record, clients[i]);
            for (uint32_t kind = 0; kind < 2; kind++) {
                bool shared;
                double value = model(&set, clients[i], kind, &shared);
                assert_int_equal(entry->per_second[kind], (uint64_t)value);
                assert_int_equal(entry->shared[kind], shared);
            }
        }
        assert_int_equal(record->count == 0, set.count == 0);
        free(record);
        mill_quota_clear(&set);
    }
}

/* --- the store and its bounds ------------------------------------------------------------------
 */

static void test_quotas_are_kept(void **state)
{
    (void)state;
    struct fake f;
    const char *const sets[] = {"quota.window.num=6", "quota.window.size.seconds=2"};
    fake_open(&f, sets, 2);
    struct change change = client_change("*", "producer_byte_rate", 1e15 + 1);
    assert_int_equal(alter(&f, &change), 0);
    change = client_change(NULL, "request_percentage", 0.1);
    assert_int_equal(alter(&f, &change), 0);
    change = both_change("ANONYMOUS", "=x", "consumer_byte_rate", 77);
    assert_int_equal(alter(&f, &change), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(limit(&f, "*", MILL_QUOTA_PRODUCE), 1000000000000001);
        assert_int_equal(limit(&f, "any", MILL_QUOTA_PRODUCE), 0); /* "*" is a name */
        assert_int_equal(limit(&f, "any", MILL_QUOTA_TIME), 1000000);
        assert_int_equal(limit(&f, "=x", MILL_QUOTA_FETCH), 77);
        assert_false(is_shared(&f, "=x", MILL_QUOTA_FETCH));
        assert_int_equal(mill_map_quotas_read(f.map)->burst_ns, 10 * MILL_NS_PER_S);
        assert_int_equal(mill_map_quotas_read(f.map)->time_pause_max_ns, 2 * MILL_NS_PER_S);
        restart(&f, 0);
    }
    fake_close(&f);
}

/* Samples of any length and number make a burst of a day at most. */
static void test_burst_is_bounded(void **state)
{
    (void)state;
    struct fake f;
    const char *const sets[] = {"quota.window.num=2147483647",
                                "quota.window.size.seconds=2147483647"};
    fake_open(&f, sets, 2);
    struct change change = client_change("a", "producer_byte_rate", 5);
    assert_int_equal(alter(&f, &change), 0);
    assert_int_equal(mill_map_quotas_read(f.map)->burst_ns, 86400 * MILL_NS_PER_S);
    fake_close(&f);
}

/* Stores of the versions before have no such table: they get one and keep what they have. */
static void test_older_stores_are_taken_up(void **state)
{
    (void)state;
    static const char *const older[] = {
        "DROP TABLE quotas; DELETE FROM meta WHERE key = 'sum';"
        "UPDATE meta SET value = 2 WHERE key = 'schema_version';",
        "DROP TABLE quotas; DROP TABLE settings; DELETE FROM meta WHERE key = 'sum';"
        "UPDATE meta SET value = 1 WHERE key = 'schema_version';",
    };
    for (size_t i = 0; i < MILL_COUNT_OF(older); i++) {
        struct fake f;
        sqlite3 *db = NULL;
        fake_open(&f, NULL, 0);
        assert_int_equal(create_one(&f, "here"), 0);
        mill_control_close(f.control);
        assert_int_equal(sqlite3_open(f.file, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, older[i], NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        assert_int_equal(fake_start_control(&f, 0), 0);
        fake_turns(&f, 3);
        struct change change = client_change("a", "producer_byte_rate", 9);
        assert_int_equal(alter(&f, &change), 0);
        restart(&f, 0);
        assert_int_equal(limit(&f, "a", MILL_QUOTA_PRODUCE), 9);
        assert_non_null(find(&f, "here"));
        fake_close(&f);
    }
}

static void test_quota_entities_are_bounded(void **state)
{
    (void)state;
    enum {
        AT_ONCE = 64,
    };
    static struct change changes[AT_ONCE];
    static char texts[AT_ONCE][16];
    int16_t errors[AT_ONCE];
    struct fake f;
    fake_open(&f, NULL, 0);
    for (uint32_t made = 0; made < MILL_QUOTA_ENTITIES_MAX; made += AT_ONCE) {
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            snprintf(texts[i], sizeof(texts[i]), "client-%u", made + i);
            changes[i] = client_change(texts[i], "producer_byte_rate", 1 + made + i);
        }
        alter_all(&f, changes, AT_ONCE, false, errors);
        assert_int_equal(errors[0], 0);
        assert_int_equal(errors[AT_ONCE - 1], 0);
    }
    struct change more = client_change("more", "producer_byte_rate", 5);
    assert_int_equal(alter(&f, &more), MILL_KERR_POLICY_VIOLATION);
    assert_int_equal(limit(&f, "more", MILL_QUOTA_PRODUCE), 0);
    assert_int_equal(limit(&f, "client-0", MILL_QUOTA_PRODUCE), 1);
    assert_int_equal(limit(&f, "client-1023", MILL_QUOTA_PRODUCE), 1024);
    struct change less = client_change("client-7", "producer_byte_rate", 0);
    assert_int_equal(alter(&f, &less), 0);
    assert_int_equal(alter(&f, &more), 0);
    assert_int_equal(limit(&f, "more", MILL_QUOTA_PRODUCE), 5);
    fake_close(&f);
}

/* A store without room changes nothing. */
static void test_quota_store_full(void **state)
{
    (void)state;
    struct fake f;
    char name[240];
    int16_t error = 0;
    uint32_t made = 0;
    fake_open(&f, NULL, 0);
    restart(&f, 12);
    while (error == 0 && made < 1000) {
        snprintf(name, sizeof(name), "client-%0200u", made);
        struct change change = client_change(name, "producer_byte_rate", 1);
        error = alter(&f, &change);
        made++;
    }
    assert_int_equal(error, MILL_KERR_KAFKA_STORAGE_ERROR);
    assert_int_equal(limit(&f, name, MILL_QUOTA_PRODUCE), 0);
    restart(&f, 0);
    assert_int_equal(limit(&f, name, MILL_QUOTA_PRODUCE), 0);
    fake_close(&f);
}

/* A change for which there is no memory is in the store as little as here: each allocation of one
 * that needs room for another entity fails in turn, until none does. */
static void test_what_is_kept_is_in_memory(void **state)
{
    (void)state;
    enum {
        ROOM = 16, /* of the first entities */
    };
    const struct mill_quota_name absent = {.who = MILL_QUOTA_ABSENT};
    struct mill_quota_name client = {.who = MILL_QUOTA_NAMED};
    const struct mill_quota_change change = {&absent, &client, MILL_QUOTA_PRODUCE, 5};
    struct mill_pool pool = {.limit_bytes = 1 << 20};
    uint64_t at = 0;
    int16_t error = MILL_KERR_UNKNOWN_SERVER_ERROR;
    struct fake f;
    fake_open(&f, NULL, 0);
    for (uint32_t i = 0; i <= ROOM && at < 100; i += error == 0) {
        struct mill_controller *controller = mill_control_controller(f.control);
        snprintf(client.name, sizeof(client.name), "client-%u", i);
        alloc_arm(i < ROOM ? 0 : ++at, false);
        error = mill_controller_set_quotas(controller, &change, 1, &pool);
        alloc_disarm();
        mill_pool_clear(&pool);
        assert_true((error == 0) ==
                    (mill_quota_find(&controller->quotas, &absent, &client) != NULL));
        restart(&f, 0);
        controller = mill_control_controller(f.control);
        assert_true((error == 0) ==
                    (mill_quota_find(&controller->quotas, &absent, &client) != NULL));
    }
    assert_in_range(at, 3, 99); /* the request's memory, and the entity's */
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quota_set_told_taken_away),
        cmocka_unit_test(test_quota_faults_refused),
        cmocka_unit_test(test_describe_filters),
        cmocka_unit_test(test_resolve_is_kafkas_order),
        cmocka_unit_test(test_quotas_are_kept),
        cmocka_unit_test(test_burst_is_bounded),
        cmocka_unit_test(test_older_stores_are_taken_up),
        cmocka_unit_test(test_quota_entities_are_bounded),
        cmocka_unit_test(test_quota_store_full),
        cmocka_unit_test(test_what_is_kept_is_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
