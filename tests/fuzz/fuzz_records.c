/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the coordinators' topics as a damaged or foreign log would hold them: each is read or
 * refused within the memory that it may take. An input is a run of records, as in a batch. */
#include "tests/fuzz/fuzz.h"

#include "control/group/records.h"
#include "control/txn/records.h"

enum {
    POOL_BYTES = 1 << 20,
    RECORDS_MAX = 64,
};

/* Every text of a record that was read is terminated, within the pool. */
static void check(const struct mill_group_record *record)
{
    if (record->kind == MILL_GROUP_RECORD_OTHER) {
        return;
    }
    size_t length = strlen(record->group);
    if (record->kind == MILL_GROUP_RECORD_OFFSET) {
        length += strlen(record->topic);
        length += !record->tombstone && record->value.metadata ? strlen(record->value.metadata) : 0;
    }
    for (uint32_t i = 0; record->kind == MILL_GROUP_RECORD_GROUP && i < record->members_count;
         i++) {
        length += strlen(record->members[i].join.member_id);
    }
    assert_true(length <= POOL_BYTES);
}

static size_t text_bytes(const char *text)
{
    return text ? strlen(text) : 0;
}

/* The same for what the consumer protocol keeps; each partition is there. */
static void check_consumer(const struct mill_consumer_record *record)
{
    const struct mill_consumer *member = &record->member;
    const struct mill_parts *sets[] = {&member->assigned, &member->revoking, &member->target};
    const char *texts[] = {record->about,     member->instance_id, member->rack_id,
                           member->client_id, member->client_host, member->regex,
                           member->assignor};
    size_t length = 0;
    for (size_t i = 0; i < MILL_COUNT_OF(texts); i++) {
        length += text_bytes(texts[i]);
    }
    for (uint32_t i = 0; i < member->names_count; i++) {
        length += text_bytes(member->names[i]);
    }
    for (uint32_t i = 0; i < record->regex.topics_count; i++) {
        length += text_bytes(record->regex.topics[i]);
    }
    for (uint32_t i = 0; i < member->classic_count; i++) {
        const struct mill_group_protocol *protocol = &member->classic[i];
        length += text_bytes(protocol->name) + protocol->metadata.size_bytes;
    }
    for (size_t i = 0; i < MILL_COUNT_OF(sets); i++) {
        for (uint32_t k = 1; k < sets[i]->count; k++) {
            assert_true(mill_part_order(&sets[i]->items[k - 1], &sets[i]->items[k]) < 0);
        }
    }
    assert_true(length <= POOL_BYTES);
}

/* The same for a record of transactions. */
static void check_txn(const struct mill_record *record)
{
    struct mill_pool pool = {.limit_bytes = POOL_BYTES};
    struct mill_txn_record read;
    if (mill_txn_record_read(record, &pool, &read) == 0 && read.id) {
        size_t length = strlen(read.id);
        for (uint32_t i = 0; i < read.partitions_count; i++) {
            length = MILL_MAX(length, strlen(read.partitions[i].topic));
        }
        assert_true(length <= POOL_BYTES);
    }
    assert_true(pool.used_bytes <= POOL_BYTES);
    mill_pool_clear(&pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* In two buffers, so that borders are crossed. */
    size_t half = size / 2;
    uint8_t *first_bytes = malloc(half);
    uint8_t *second_bytes = malloc(size - half);
    memcpy(first_bytes, data, half);
    memcpy(second_bytes, data + half, size - half);
    struct mill_buf second = {.data = second_bytes, .size_bytes = (uint32_t)(size - half)};
    struct mill_buf first = {.next = &second, .data = first_bytes, .size_bytes = (uint32_t)half};
    struct mill_cursor at = {.buf = &first, .left_bytes = (uint32_t)size};
    struct mill_record record;
    for (uint32_t i = 0; i < RECORDS_MAX && mill_record_next(&at, &record) == 0; i++) {
        struct mill_pool pool = {.limit_bytes = POOL_BYTES};
        struct mill_group_record read;
        if (mill_group_record_read(&record, &pool, &read) == 0) {
            check(&read);
            if (read.kind == MILL_GROUP_RECORD_CONSUMER) {
                check_consumer(&read.consumer);
            }
        }
        assert_true(pool.used_bytes <= POOL_BYTES);
        mill_pool_clear(&pool);
        check_txn(&record);
    }
    free(first_bytes);
    free(second_bytes);
    return 0;
}
