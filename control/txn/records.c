/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of __transaction_state; see records.h. Written: key 0 and value 1 (flexible,
 * KIP-915 and KIP-890), as Kafka does where transaction.version is finalized; each tag only where
 * it tells something. Read: value 0, too. */
#include "control/txn/records.h"

#include <errno.h>
#include <string.h>

#include "protocol/codec.h"

enum {
    KEY_VERSION = 0,
    VALUE_PLAIN = 0,
    VALUE_FLEXIBLE = 1,
    TAG_PREVIOUS_PRODUCER_ID = 0,
    TAG_NEXT_PRODUCER_ID = 1,
    TAG_CLIENT_VERSION = 2,
    NUMBERS_BYTES = 120, /* of the fixed fields of a value, or what a topic has beside its name */
    NAME_BYTES_MAX = 4,  /* of a name's length */
};

/* --- writing -----------------------------------------------------------------------------------
 */

static uint8_t *begin(struct mill_pool *pool, struct mill_writer *to, uint64_t capacity)
{
    uint8_t *bytes = capacity <= INT32_MAX ? mill_pool_take(pool, capacity) : NULL;
    mill_writer_init(to, bytes, bytes ? (uint32_t)capacity : 0, NULL, 0);
    return bytes;
}

static uint8_t *end(const struct mill_writer *to, uint32_t *ret_bytes)
{
    *ret_bytes = to->size_bytes;
    return to->error ? NULL : to->bytes;
}

uint8_t *mill_txn_key_write(struct mill_pool *pool, const char *id, uint32_t *ret_bytes)
{
    struct mill_writer to;
    struct mill_wstr text = mill_wstr_of(id);
    if (!begin(pool, &to, NUMBERS_BYTES + strlen(id))) {
        return NULL;
    }
    mill_write_i16(&to, KEY_VERSION);
    mill_write_str(&to, false, false, &text);
    return end(&to, ret_bytes);
}

/* Where the partitions of one topic end; names of a set are shared. */
static uint32_t topic_end(const struct mill_txn_set *set, uint32_t from)
{
    uint32_t to = from;
    while (to < set->count && set->items[to].topic == set->items[from].topic) {
        to++;
    }
    return to;
}

static uint64_t value_bytes(const struct mill_txn_set *set)
{
    uint64_t size = NUMBERS_BYTES;
    for (uint32_t i = 0; set && i < set->count; i = topic_end(set, i)) {
        size += NUMBERS_BYTES + NAME_BYTES_MAX + strlen(set->items[i].topic);
    }
    return size + (set ? set->count * sizeof(int32_t) : 0);
}

static void write_partitions(struct mill_writer *to, const struct mill_txn_values *values)
{
    const struct mill_txn_set *set = values->partitions;
    int32_t topics = 0;
    for (uint32_t i = 0; set && i < set->count; i = topic_end(set, i)) {
        topics++;
    }
    mill_write_count(to, true, true, values->state == MILL_TXN_EMPTY ? -1 : topics);
    uint32_t end = 0;
    for (uint32_t i = 0; set && i < set->count; i = end) {
        struct mill_wstr name = mill_wstr_of(set->items[i].topic);
        end = topic_end(set, i);
        mill_write_str(to, true, false, &name);
        mill_write_count(to, true, false, (int32_t)(end - i));
        for (uint32_t k = i; k < end; k++) {
            mill_write_i32(to, set->items[k].index);
        }
        mill_write_tags_none(to, true);
    }
}

static void write_id_tag(struct mill_writer *to, uint32_t tag, int64_t id)
{
    if (id >= 0) {
        uint32_t mark = mill_write_tag_begin(to, tag);
        mill_write_i64(to, id);
        mill_write_tag_end(to, mark);
    }
}

static void write_tags(struct mill_writer *to, const struct mill_txn_values *values)
{
    bool versioned = values->version != MILL_TXN_PLAIN;
    mill_write_uvarint(to, (uint32_t)(values->previous_producer_id >= 0) +
                               (values->next_producer_id >= 0) + versioned);
    write_id_tag(to, TAG_PREVIOUS_PRODUCER_ID, values->previous_producer_id);
    write_id_tag(to, TAG_NEXT_PRODUCER_ID, values->next_producer_id);
    if (versioned) {
        uint32_t mark = mill_write_tag_begin(to, TAG_CLIENT_VERSION);
        mill_write_i16(to, values->version);
        mill_write_tag_end(to, mark);
    }
}

uint8_t *mill_txn_value_write(struct mill_pool *pool, const struct mill_txn_values *values,
                              uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!begin(pool, &to, value_bytes(values->partitions))) {
        return NULL;
    }
    mill_write_i16(&to, VALUE_FLEXIBLE);
    mill_write_i64(&to, values->producer_id);
    mill_write_i16(&to, values->producer_epoch);
    mill_write_i32(&to, values->timeout_ms);
    mill_write_i8(&to, (int8_t)values->state);
    write_partitions(&to, values);
    mill_write_i64(&to, values->update_ms);
    mill_write_i64(&to, values->start_ms);
    write_tags(&to, values);
    return end(&to, ret_bytes);
}

/* --- reading -----------------------------------------------------------------------------------
 */

struct reader {
    struct mill_cursor at;
    struct mill_pool *pool;
    bool flexible;
    int error;         /* first failure: -EBADMSG, -ENOMEM */
    uint64_t capacity; /* of the partitions */
};

static void check(struct reader *from, bool fine)
{
    if (!fine && from->error == 0) {
        from->error = -EBADMSG;
    }
}

static const char *get_text(struct reader *from)
{
    struct mill_wstr text;
    if (from->error || !mill_read_str(&from->at, from->flexible, false, &text)) {
        check(from, false);
        return NULL;
    }
    char *copy = mill_pool_take(from->pool, (uint64_t)text.length + 1);
    if (!copy || mill_wstr_copy(&text, copy, (uint32_t)text.length + 1) < 0) {
        from->error = -ENOMEM;
        return NULL;
    }
    return copy;
}

/* Room for more partitions behind those that were read; doubled, so that copies stay few. */
static bool grow(struct reader *from, struct mill_txn_record *ret, int32_t more)
{
    uint64_t count = (uint64_t)ret->partitions_count + (uint64_t)MILL_MAX(more, 0);
    if (count > MILL_TXN_PARTITIONS_MAX) {
        from->error = -EBADMSG;
        return false;
    }
    if (count <= from->capacity) {
        return true;
    }
    from->capacity = MILL_MAX(count, from->capacity * 2);
    struct mill_txn_partition *items = mill_pool_take(from->pool, from->capacity * sizeof(*items));
    if (!items) {
        from->error = -ENOMEM;
        return false;
    }
    if (ret->partitions_count > 0) {
        memcpy(items, ret->partitions, ret->partitions_count * sizeof(*items));
    }
    ret->partitions = items;
    return true;
}

static void read_topic(struct reader *from, struct mill_txn_record *ret)
{
    struct mill_warray indexes;
    const char *topic = get_text(from);
    if (from->error || !mill_read_count(&from->at, from->flexible, false, 4, &indexes)) {
        check(from, false);
        return;
    }
    if (!grow(from, ret, indexes.count)) {
        return;
    }
    for (int32_t i = 0; i < indexes.count && from->error == 0; i++) {
        struct mill_txn_partition *item = &ret->partitions[ret->partitions_count++];
        item->topic = topic;
        check(from, mill_read_i32(&from->at, &item->index));
    }
    if (from->flexible && from->error == 0) {
        check(from, mill_tags_skip(&from->at, true));
    }
}

static void read_tags(struct reader *from, struct mill_txn_record *ret)
{
    struct mill_tags tags;
    if (from->error || !from->flexible) {
        return;
    }
    if (!mill_tags_begin(&from->at, &tags)) {
        check(from, false);
        return;
    }
    while (mill_tags_next(&from->at, &tags)) {
        struct mill_txn_values *values = &ret->values;
        check(from, tags.tag == TAG_PREVIOUS_PRODUCER_ID
                        ? mill_read_i64(&tags.body, &values->previous_producer_id)
                    : tags.tag == TAG_NEXT_PRODUCER_ID
                        ? mill_read_i64(&tags.body, &values->next_producer_id)
                    : tags.tag == TAG_CLIENT_VERSION ? mill_read_i16(&tags.body, &values->version)
                                                     : true);
    }
    check(from, !tags.bad);
}

static void read_value(struct reader *from, struct mill_txn_record *ret)
{
    struct mill_txn_values *values = &ret->values;
    struct mill_warray topics = {0};
    int16_t version = -1;
    int8_t state = -1;
    check(from, mill_read_i16(&from->at, &version) && version >= VALUE_PLAIN &&
                    version <= VALUE_FLEXIBLE);
    from->flexible = version == VALUE_FLEXIBLE;
    check(from, from->error == 0 && mill_read_i64(&from->at, &values->producer_id) &&
                    mill_read_i16(&from->at, &values->producer_epoch) &&
                    mill_read_i32(&from->at, &values->timeout_ms) &&
                    mill_read_i8(&from->at, &state) && state >= MILL_TXN_EMPTY &&
                    state < MILL_TXN_STATE_COUNT &&
                    mill_read_count(&from->at, from->flexible, true, 6, &topics));
    values->state = (enum mill_txn_state)state;
    for (int32_t i = 0; i < topics.count && from->error == 0; i++) {
        read_topic(from, ret);
    }
    check(from, from->error == 0 && mill_read_i64(&from->at, &values->update_ms) &&
                    mill_read_i64(&from->at, &values->start_ms));
    read_tags(from, ret);
}

int mill_txn_record_read(const struct mill_record *record, struct mill_pool *pool,
                         struct mill_txn_record *ret)
{
    struct reader key = {.at = record->key, .pool = pool};
    struct reader value = {.at = record->value, .pool = pool};
    int16_t version = -1;
    *ret = (struct mill_txn_record){
        .tombstone = record->value_length < 0,
        .values = {.previous_producer_id = -1, .next_producer_id = -1, .last_epoch = -1}};
    if (record->key_length < 0 || !mill_read_i16(&key.at, &version)) {
        return -EBADMSG;
    }
    if (version != KEY_VERSION) {
        return 0;
    }
    ret->id = get_text(&key);
    if (!ret->tombstone) {
        read_value(&value, ret);
    }
    return key.error ? key.error : value.error;
}
