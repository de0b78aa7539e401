/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: ListTransactions 2 tells the transactional ids that a pattern means, all of the id and
 * beside the other filters; a pattern that is none, or that takes too long, is said so. Method: a
 * whole broker on virtual time (world.h), ids made by InitProducerId. ref: KIP-1152
 */
#include <stdio.h>
#include <string.h>

#include "protocol/errors.h"
#include "protocol/messages.h"
#include "tests/sim/world.h"
#include "tests/unit/encoder.h"
#include "tests/unit/test.h"

enum {
    VERSION = 2,
    IDS = 4,
    TRIES_MAX = 200,
    TRANSACTIONS = 1, /* a coordinator's key type */
};

static const char *const ids[IDS] = {"pay-1", "pay-2", "audit", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!"};
static struct world world;
static struct world_client client;

ENCODER(init_producer_id)
ENCODER(list_transactions)

static void init(const char *id)
{
    struct mill_init_producer_id_request in;
    struct mill_init_producer_id_response got = {.error_code = -1};
    mill_init_producer_id_request_defaults(&in);
    in.transactional_id = mill_wstr_of(id);
    in.transaction_timeout_ms = 60000;
    for (uint32_t tries = 0; got.error_code != 0; tries++) {
        assert_true(tries < TRIES_MAX);
        struct mill_cursor at =
            world_ask(&client, MILL_API_KEY_INIT_PRODUCER_ID, 1, init_producer_id_out, &in);
        assert_int_equal(mill_init_producer_id_response_decode(&at, 1, &got), 0);
    }
}

static void get_text(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    *(struct mill_wstr *)ret_element = mill_wstr_of(context);
}

/* A bit for each id that is told. pattern, state: NULL none. */
static uint32_t list(const char *pattern, const char *state, int16_t error)
{
    struct mill_list_transactions_request in;
    struct mill_list_transactions_response got;
    struct mill_list_transactions_response_transaction_states told;
    uint32_t bits = 0;
    mill_list_transactions_request_defaults(&in);
    in.duration_filter = -1;
    if (pattern) {
        in.transactional_id_pattern = mill_wstr_of(pattern);
    }
    if (state) {
        in.state_filters = (struct mill_warray){.count = 1, .get = get_text, .context = state};
    }
    struct mill_cursor at =
        world_ask(&client, MILL_API_KEY_LIST_TRANSACTIONS, VERSION, list_transactions_out, &in);
    assert_int_equal(mill_list_transactions_response_decode(&at, VERSION, &got), 0);
    assert_int_equal(at.left_bytes, 0);
    assert_int_equal(got.error_code, error);
    assert_true(error == 0 ||
                (got.transaction_states.count <= 0 && got.unknown_state_filters.count <= 0));
    while (mill_list_transactions_response_transaction_states_next(&got.transaction_states, VERSION,
                                                                   &told)) {
        for (uint32_t i = 0; i < IDS; i++) {
            bits |= mill_wstr_equal(&told.transactional_id, ids[i], (uint32_t)strlen(ids[i]))
                        ? 1u << i
                        : 0;
        }
    }
    return bits;
}

static void test_pattern_means_the_whole_id(void **state)
{
    MILL_UNUSED(state);
    static const struct {
        const char *pattern;
        const char *state;
        uint32_t want;
        int16_t error;
    } rows[] = {
        {NULL, NULL, 15, 0},
        {"", NULL, 15, 0},
        {"pay-.*", NULL, 3, 0},
        {"pay", NULL, 0, 0}, /* not a part of it */
        {"ay-1", NULL, 0, 0},
        {"(?i)PAY-[2-9]|audit", NULL, 6, 0},
        {"pay-1\\z", NULL, 1, 0},
        {".*", "Empty", 15, 0},
        {".*", "Ongoing", 0, 0},
        {"pay-.*", "NoState", 0, 0},
        {"pay-[", NULL, 0, MILL_KERR_INVALID_REGULAR_EXPRESSION},
        {"pay-[", "NoState", 0, MILL_KERR_INVALID_REGULAR_EXPRESSION},
        {"(?=pay).*", NULL, 0,
         MILL_KERR_INVALID_REGULAR_EXPRESSION},                     /* RE2 has no looking around */
        {"(a|aa)+", NULL, 0, MILL_KERR_INVALID_REGULAR_EXPRESSION}, /* too long for the last id */
    };
    world_open(&world, 1, 3);
    world_connect(&world, &client, 0);
    world_coordinator(&world, TRANSACTIONS);
    for (uint32_t i = 0; i < IDS; i++) {
        init(ids[i]);
    }
    world_settle(&world, 10000); /* all is loaded */
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        printf("%s\n", rows[i].pattern ? rows[i].pattern : "no pattern");
        assert_int_equal(list(rows[i].pattern, rows[i].state, rows[i].error), rows[i].want);
    }
    world_disconnect(&client);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pattern_means_the_whole_id),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("list_transactions", tests, NULL, NULL);
}
