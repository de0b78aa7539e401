/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of __consumer_offsets; see records.h. Written: offset key 1, offset value 3 (1
 * when the client gave a life of its own), group key 2, group value 3. Read: what Kafka wrote since
 * 0.9, and values of version 4. */
#include "control/group/records.h"

#include <errno.h>

#include "control/group/record_io.h"

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

uint8_t *mill_offset_key_write(struct mill_pool *pool, const char *group, const char *topic,
                               int32_t partition, uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!mill_rec_begin(pool, &to,
                        NUMBERS_BYTES + mill_rec_text_bytes(group) + mill_rec_text_bytes(topic))) {
        return NULL;
    }
    mill_write_i16(&to, OFFSET_KEY_VERSION);
    mill_rec_put_text(&to, group);
    mill_rec_put_text(&to, topic);
    mill_write_i32(&to, partition);
    return mill_rec_end(&to, ret_bytes);
}

uint8_t *mill_offset_value_write(struct mill_pool *pool, const struct mill_offset_value *value,
                                 uint32_t *ret_bytes)
{
    struct mill_writer to;
    bool expiring = value->expire_ms >= 0;
    if (!mill_rec_begin(pool, &to, NUMBERS_BYTES + mill_rec_text_bytes(value->metadata))) {
        return NULL;
    }
    mill_write_i16(&to, expiring ? OFFSET_VALUE_EXPIRING : OFFSET_VALUE_VERSION);
    mill_write_i64(&to, value->offset);
    if (!expiring) {
        mill_write_i32(&to, value->leader_epoch);
    }
    mill_rec_put_text(&to, value->metadata);
    mill_write_i64(&to, value->commit_ms);
    if (expiring) {
        mill_write_i64(&to, value->expire_ms);
    }
    return mill_rec_end(&to, ret_bytes);
}

uint8_t *mill_group_key_write(struct mill_pool *pool, const char *group, uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!mill_rec_begin(pool, &to, NUMBERS_BYTES + mill_rec_text_bytes(group))) {
        return NULL;
    }
    mill_write_i16(&to, GROUP_KEY_VERSION);
    mill_rec_put_text(&to, group);
    return mill_rec_end(&to, ret_bytes);
}

uint8_t *mill_group_value_write(struct mill_pool *pool, const struct mill_group *group,
                                uint32_t *ret_bytes)
{
    struct mill_writer to;
    uint64_t size = NUMBERS_BYTES + mill_rec_text_bytes(group->protocol_type) +
                    mill_rec_text_bytes(group->protocol) +
                    (group->leader ? mill_rec_text_bytes(group->leader->id) : 2);
    for (const struct mill_group_member *member = group->members; member; member = member->next) {
        size += NUMBERS_BYTES + mill_rec_text_bytes(member->id) +
                mill_rec_text_bytes(member->instance_id) + mill_rec_text_bytes(member->client_id) +
                mill_rec_text_bytes(member->client_host) +
                mill_group_metadata(group, member)->size_bytes + member->assignment.size_bytes;
    }
    if (!mill_rec_begin(pool, &to, size)) {
        return NULL;
    }
    mill_write_i16(&to, GROUP_VALUE_VERSION);
    mill_rec_put_text(&to, group->protocol_type ? group->protocol_type : "");
    mill_write_i32(&to, group->generation);
    mill_rec_put_text(&to, group->protocol);
    mill_rec_put_text(&to, group->leader ? group->leader->id : NULL);
    mill_write_i64(&to, group->state_ms);
    mill_write_i32(&to, (int32_t)group->members_count);
    for (const struct mill_group_member *member = group->members; member; member = member->next) {
        mill_rec_put_text(&to, member->id);
        mill_rec_put_text(&to, member->instance_id);
        mill_rec_put_text(&to, member->client_id);
        mill_rec_put_text(&to, member->client_host);
        mill_write_i32(&to, member->rebalance_timeout_ms);
        mill_write_i32(&to, member->session_timeout_ms);
        mill_rec_put_blob(&to, mill_group_metadata(group, member));
        mill_rec_put_blob(&to, &member->assignment);
    }
    return mill_rec_end(&to, ret_bytes);
}

/* --- reading -----------------------------------------------------------------------------------
 */

static void read_offset_value(struct mill_rec_reader *from, struct mill_group_record *ret)
{
    int16_t version = mill_rec_i16(from);
    from->flexible = version >= VALUE_FLEXIBLE;
    ret->value = (struct mill_offset_value){.leader_epoch = -1, .expire_ms = -1};
    ret->value.offset = mill_rec_i64(from);
    if (version >= OFFSET_VALUE_VERSION) {
        ret->value.leader_epoch = mill_rec_i32(from);
    }
    ret->value.metadata = mill_rec_name(from);
    ret->value.commit_ms = mill_rec_i64(from);
    if (version == OFFSET_VALUE_EXPIRING) {
        ret->value.expire_ms = mill_rec_i64(from);
    }
}

static void read_member(struct mill_rec_reader *from, int16_t version,
                        const struct mill_group_record *group, struct mill_group_value_member *ret)
{
    ret->join.member_id = mill_rec_name(from);
    ret->join.instance_id = version >= 3 ? mill_rec_text(from) : NULL;
    ret->join.client_id = mill_rec_name(from);
    ret->join.client_host = mill_rec_name(from);
    int32_t rebalance_ms = version >= 1 ? mill_rec_i32(from) : -1;
    ret->join.session_timeout_ms = mill_rec_i32(from);
    ret->join.rebalance_timeout_ms = rebalance_ms < 0 ? ret->join.session_timeout_ms : rebalance_ms;
    ret->protocol.name = (char *)(uintptr_t)(group->protocol ? group->protocol : "");
    ret->protocol.metadata = mill_rec_blob(from);
    ret->assignment = mill_rec_blob(from);
    ret->join.protocol_type = group->protocol_type;
    ret->join.protocols = &ret->protocol;
    ret->join.protocols_count = 1;
    if (version >= VALUE_FLEXIBLE && !mill_tags_skip(&from->at, true)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
}

static void read_group_value(struct mill_rec_reader *from, struct mill_group_record *ret)
{
    int16_t version = mill_rec_i16(from);
    struct mill_warray members;
    from->flexible = version >= VALUE_FLEXIBLE;
    ret->protocol_type = mill_rec_name(from);
    ret->generation = mill_rec_i32(from);
    ret->protocol = mill_rec_text(from);
    ret->leader = mill_rec_text(from);
    ret->state_ms = version >= 2 ? mill_rec_i64(from) : -1;
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
    struct mill_rec_reader key = {.at = record->key, .pool = pool};
    struct mill_rec_reader value = {.at = record->value, .pool = pool};
    *ret = (struct mill_group_record){.tombstone = record->value_length < 0};
    if (record->key_length < 0) {
        return -EBADMSG;
    }
    int16_t type = mill_rec_i16(&key);
    if (key.error == 0 && type >= 0 && type <= OFFSET_KEY_VERSION) {
        ret->kind = MILL_GROUP_RECORD_OFFSET;
        ret->group = mill_rec_name(&key);
        ret->topic = mill_rec_name(&key);
        ret->partition = mill_rec_i32(&key);
        if (!ret->tombstone) {
            read_offset_value(&value, ret);
        }
    } else if (key.error == 0 && type == GROUP_KEY_VERSION) {
        ret->kind = MILL_GROUP_RECORD_GROUP;
        ret->group = mill_rec_name(&key);
        if (!ret->tombstone) {
            read_group_value(&value, ret);
        }
    }
    if (key.error == 0 && ret->kind == MILL_GROUP_RECORD_OTHER &&
        mill_consumer_record_has_type(type)) {
        ret->kind = MILL_GROUP_RECORD_CONSUMER;
        mill_consumer_record_read((enum mill_consumer_record_type)type, &key, &value,
                                  ret->tombstone, &ret->group, &ret->consumer);
    }
    return key.error ? key.error : value.error;
}
