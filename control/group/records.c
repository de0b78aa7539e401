/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of __consumer_offsets; see records.h. Written: offset key 1, offset value 3 (1
 * when the client gave a life of its own), group key 2, group value 3. Read: what Kafka wrote since
 * 0.9, and values of version 4. */
#include "control/group/records.h"

#include <errno.h>
#include <string.h>

#include "base/byteorder.h"
#include "protocol/codec.h"

enum {
    OFFSET_KEY_VERSION = 1,
    GROUP_KEY_VERSION = 2,
    OFFSET_VALUE_VERSION = 3,
    OFFSET_VALUE_EXPIRING = 1,
    GROUP_VALUE_VERSION = 3,
    VALUE_FLEXIBLE = 4, /* from this version on, both values */
    NUMBERS_BYTES = 64, /* of the fixed fields of one value or member, at most */
};

/* --- writing -----------------------------------------------------------------------------------
 */

static void put_text(struct mill_writer *to, const char *text)
{
    struct mill_wstr value = mill_wstr_of(text);
    mill_write_str(to, false, true, &value);
}

static void put_blob(struct mill_writer *to, const struct mill_group_blob *blob)
{
    mill_write_i32(to, (int32_t)blob->size_bytes);
    mill_write_bytes(to, blob->bytes, blob->size_bytes);
}

static uint64_t text_bytes(const char *text)
{
    return 2 + (text ? strlen(text) : 0);
}

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

uint8_t *mill_offset_key_write(struct mill_pool *pool, const char *group, const char *topic,
                               int32_t partition, uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!begin(pool, &to, NUMBERS_BYTES + text_bytes(group) + text_bytes(topic))) {
        return NULL;
    }
    mill_write_i16(&to, OFFSET_KEY_VERSION);
    put_text(&to, group);
    put_text(&to, topic);
    mill_write_i32(&to, partition);
    return end(&to, ret_bytes);
}

uint8_t *mill_offset_value_write(struct mill_pool *pool, const struct mill_offset_value *value,
                                 uint32_t *ret_bytes)
{
    struct mill_writer to;
    bool expiring = value->expire_ms >= 0;
    if (!begin(pool, &to, NUMBERS_BYTES + text_bytes(value->metadata))) {
        return NULL;
    }
    mill_write_i16(&to, expiring ? OFFSET_VALUE_EXPIRING : OFFSET_VALUE_VERSION);
    mill_write_i64(&to, value->offset);
    if (!expiring) {
        mill_write_i32(&to, value->leader_epoch);
    }
    put_text(&to, value->metadata);
    mill_write_i64(&to, value->commit_ms);
    if (expiring) {
        mill_write_i64(&to, value->expire_ms);
    }
    return end(&to, ret_bytes);
}

uint8_t *mill_group_key_write(struct mill_pool *pool, const char *group, uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!begin(pool, &to, NUMBERS_BYTES + text_bytes(group))) {
        return NULL;
    }
    mill_write_i16(&to, GROUP_KEY_VERSION);
    put_text(&to, group);
    return end(&to, ret_bytes);
}

uint8_t *mill_group_value_write(struct mill_pool *pool, const struct mill_group *group,
                                uint32_t *ret_bytes)
{
    struct mill_writer to;
    uint64_t size = NUMBERS_BYTES + text_bytes(group->protocol_type) + text_bytes(group->protocol) +
                    (group->leader ? text_bytes(group->leader->id) : 2);
    for (const struct mill_group_member *member = group->members; member; member = member->next) {
        size += NUMBERS_BYTES + text_bytes(member->id) + text_bytes(member->instance_id) +
                text_bytes(member->client_id) + text_bytes(member->client_host) +
                mill_group_metadata(group, member)->size_bytes + member->assignment.size_bytes;
    }
    if (!begin(pool, &to, size)) {
        return NULL;
    }
    mill_write_i16(&to, GROUP_VALUE_VERSION);
    put_text(&to, group->protocol_type ? group->protocol_type : "");
    mill_write_i32(&to, group->generation);
    put_text(&to, group->protocol);
    put_text(&to, group->leader ? group->leader->id : NULL);
    mill_write_i64(&to, group->state_ms);
    mill_write_i32(&to, (int32_t)group->members_count);
    for (const struct mill_group_member *member = group->members; member; member = member->next) {
        put_text(&to, member->id);
        put_text(&to, member->instance_id);
        put_text(&to, member->client_id);
        put_text(&to, member->client_host);
        mill_write_i32(&to, member->rebalance_timeout_ms);
        mill_write_i32(&to, member->session_timeout_ms);
        put_blob(&to, mill_group_metadata(group, member));
        put_blob(&to, &member->assignment);
    }
    return end(&to, ret_bytes);
}

/* --- reading -----------------------------------------------------------------------------------
 */

struct reader {
    struct mill_cursor at;
    struct mill_pool *pool;
    bool flexible;
    int error; /* first failure: -EBADMSG, -ENOMEM */
};

static const char *get_text(struct reader *from)
{
    struct mill_wstr text;
    if (from->error || !mill_read_str(&from->at, from->flexible, true, &text)) {
        from->error = from->error ? from->error : -EBADMSG;
        return NULL;
    }
    if (text.length < 0) {
        return NULL;
    }
    char *copy = mill_pool_take(from->pool, (uint64_t)text.length + 1);
    if (!copy || mill_wstr_copy(&text, copy, (uint32_t)text.length + 1) < 0) {
        from->error = -ENOMEM;
        return NULL;
    }
    return copy;
}

/* Where null is not allowed. */
static const char *get_name(struct reader *from)
{
    const char *text = get_text(from);
    if (!text && !from->error) {
        from->error = -EBADMSG;
    }
    return text ? text : "";
}

static struct mill_group_blob get_blob(struct reader *from)
{
    struct mill_wstr blob;
    struct mill_group_blob value = {0};
    if (from->error || !mill_read_blob(&from->at, from->flexible, true, &blob)) {
        from->error = from->error ? from->error : -EBADMSG;
        return value;
    }
    if (blob.length > 0) {
        value.bytes = mill_pool_take(from->pool, (uint64_t)blob.length);
        value.size_bytes = (uint32_t)blob.length;
        if (!value.bytes || mill_cursor_read(&blob.at, value.bytes, value.size_bytes) < 0) {
            from->error = -ENOMEM;
        }
    }
    return value;
}

static int16_t get_i16(struct reader *from)
{
    int16_t value = 0;
    if (!mill_read_i16(&from->at, &value)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
    return value;
}

static int32_t get_i32(struct reader *from)
{
    int32_t value = 0;
    if (!mill_read_i32(&from->at, &value)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
    return value;
}

static int64_t get_i64(struct reader *from)
{
    int64_t value = 0;
    if (!mill_read_i64(&from->at, &value)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
    return value;
}

static void read_offset_value(struct reader *from, struct mill_group_record *ret)
{
    int16_t version = get_i16(from);
    from->flexible = version >= VALUE_FLEXIBLE;
    ret->value = (struct mill_offset_value){.leader_epoch = -1, .expire_ms = -1};
    ret->value.offset = get_i64(from);
    if (version >= OFFSET_VALUE_VERSION) {
        ret->value.leader_epoch = get_i32(from);
    }
    ret->value.metadata = get_name(from);
    ret->value.commit_ms = get_i64(from);
    if (version == OFFSET_VALUE_EXPIRING) {
        ret->value.expire_ms = get_i64(from);
    }
}

static void read_member(struct reader *from, int16_t version, const struct mill_group_record *group,
                        struct mill_group_value_member *ret)
{
    ret->join.member_id = get_name(from);
    ret->join.instance_id = version >= 3 ? get_text(from) : NULL;
    ret->join.client_id = get_name(from);
    ret->join.client_host = get_name(from);
    int32_t rebalance_ms = version >= 1 ? get_i32(from) : -1;
    ret->join.session_timeout_ms = get_i32(from);
    ret->join.rebalance_timeout_ms = rebalance_ms < 0 ? ret->join.session_timeout_ms : rebalance_ms;
    ret->protocol.name = (char *)(uintptr_t)(group->protocol ? group->protocol : "");
    ret->protocol.metadata = get_blob(from);
    ret->assignment = get_blob(from);
    ret->join.protocol_type = group->protocol_type;
    ret->join.protocols = &ret->protocol;
    ret->join.protocols_count = 1;
    if (version >= VALUE_FLEXIBLE && !mill_tags_skip(&from->at, true)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
}

static void read_group_value(struct reader *from, struct mill_group_record *ret)
{
    int16_t version = get_i16(from);
    struct mill_warray members;
    from->flexible = version >= VALUE_FLEXIBLE;
    ret->protocol_type = get_name(from);
    ret->generation = get_i32(from);
    ret->protocol = get_text(from);
    ret->leader = get_text(from);
    ret->state_ms = version >= 2 ? get_i64(from) : -1;
    if (from->error || !mill_read_count(&from->at, from->flexible, false, 8, &members)) {
        from->error = from->error ? from->error : -EBADMSG;
        return;
    }
    ret->members_count = (uint32_t)members.count;
    ret->members = mill_pool_take(from->pool, (uint64_t)ret->members_count * sizeof(*ret->members));
    if (!ret->members) {
        from->error = -ENOMEM;
        return;
    }
    for (uint32_t i = 0; i < ret->members_count && !from->error; i++) {
        read_member(from, version, ret, &ret->members[i]);
    }
}

int mill_group_record_read(const struct mill_record *record, struct mill_pool *pool,
                           struct mill_group_record *ret)
{
    struct reader key = {.at = record->key, .pool = pool};
    struct reader value = {.at = record->value, .pool = pool};
    *ret = (struct mill_group_record){.tombstone = record->value_length < 0};
    if (record->key_length < 0) {
        return -EBADMSG;
    }
    int16_t type = get_i16(&key);
    if (key.error == 0 && type >= 0 && type <= OFFSET_KEY_VERSION) {
        ret->kind = MILL_GROUP_RECORD_OFFSET;
        ret->group = get_name(&key);
        ret->topic = get_name(&key);
        ret->partition = get_i32(&key);
        if (!ret->tombstone) {
            read_offset_value(&value, ret);
        }
    } else if (key.error == 0 && type == GROUP_KEY_VERSION) {
        ret->kind = MILL_GROUP_RECORD_GROUP;
        ret->group = get_name(&key);
        if (!ret->tombstone) {
            read_group_value(&value, ret);
        }
    }
    return key.error ? key.error : value.error;
}
