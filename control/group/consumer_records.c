/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of the consumer protocol's records; see consumer_records.h. Tagged fields: the
 * hash of the topics (KIP-1101), the time of an assignment (KIP-1263), the epochs at which
 * partitions were assigned (KIP-1251), and a classic member's time-out and protocols. */
#include "control/group/consumer_records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    VALUE_VERSION = 0,
    NUMBERS_BYTES = 64, /* of the fixed fields of one value, at most */
    PART_BYTES = 8,     /* of a partition, with its epoch */
    TOPIC_BYTES = 48,   /* of a topic around its partitions */
    TAG_EPOCH_HASH = 0,
    TAG_MEMBER_CLASSIC = 0,
    TAG_TARGET_TIME = 0,
    TAG_PARTS_EPOCHS = 0,
};

bool mill_consumer_record_has_type(int16_t type)
{
    return (type >= MILL_CONSUMER_RECORD_EPOCH && type <= MILL_CONSUMER_RECORD_CURRENT) ||
           type == MILL_CONSUMER_RECORD_REGEX;
}

/* --- writing -----------------------------------------------------------------------------------
 */

uint8_t *mill_consumer_key(struct mill_pool *pool, enum mill_consumer_record_type type,
                           const char *group, const char *about, uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!mill_rec_begin(pool, &to,
                        NUMBERS_BYTES + mill_rec_text_bytes(group) + mill_rec_text_bytes(about))) {
        return NULL;
    }
    mill_write_i16(&to, (int16_t)type);
    mill_rec_put_text(&to, group);
    if (about) {
        mill_rec_put_text(&to, about);
    }
    return mill_rec_end(&to, ret_bytes);
}

static uint8_t *begin_value(struct mill_pool *pool, struct mill_writer *to, uint64_t more_bytes)
{
    uint8_t *bytes = mill_rec_begin(pool, to, NUMBERS_BYTES + more_bytes);
    if (bytes) {
        mill_write_i16(to, VALUE_VERSION);
    }
    return bytes;
}

/* A 64-bit field in the tagged section, which ends with it. */
static void put_tag_i64(struct mill_writer *to, uint32_t tag, int64_t value)
{
    mill_write_uvarint(to, 1);
    uint32_t mark = mill_write_tag_begin(to, tag);
    mill_write_i64(to, value);
    mill_write_tag_end(to, mark);
}

static void put_flexible(struct mill_writer *to, const char *text)
{
    struct mill_wstr value = mill_wstr_of(text);
    mill_write_str(to, true, true, &value);
}

static uint64_t texts_bytes(char *const *texts, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += mill_rec_text_bytes(texts[i]);
    }
    return sum;
}

static void put_texts(struct mill_writer *to, char *const *texts, uint32_t count)
{
    mill_write_count(to, true, false, (int32_t)count);
    for (uint32_t i = 0; i < count; i++) {
        put_flexible(to, texts[i]);
    }
}

uint8_t *mill_consumer_epoch_value(struct mill_pool *pool, int32_t epoch, int64_t hash,
                                   uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!begin_value(pool, &to, 0)) {
        return NULL;
    }
    mill_write_i32(&to, epoch);
    put_tag_i64(&to, TAG_EPOCH_HASH, hash);
    return mill_rec_end(&to, ret_bytes);
}

/* What a member of the classic protocol is besides; the tagged section ends with it. */
static void put_classic(struct mill_writer *to, const struct mill_consumer *member)
{
    mill_write_uvarint(to, 1);
    uint32_t mark = mill_write_tag_begin(to, TAG_MEMBER_CLASSIC);
    mill_write_i8(to, 1); /* it is there: the field is nullable */
    mill_write_i32(to, member->classic_session_ms);
    mill_write_count(to, true, false, (int32_t)member->classic_count);
    for (uint32_t i = 0; i < member->classic_count; i++) {
        const struct mill_group_blob *metadata = &member->classic[i].metadata;
        struct mill_wstr blob = mill_wstr_of_bytes(metadata->bytes, (int32_t)metadata->size_bytes);
        put_flexible(to, member->classic[i].name);
        mill_write_blob(to, true, false, &blob);
        mill_write_tags_none(to, false);
    }
    mill_write_tags_none(to, false);
    mill_write_tag_end(to, mark);
}

uint8_t *mill_consumer_member_value(struct mill_pool *pool, const struct mill_consumer *member,
                                    uint32_t *ret_bytes)
{
    struct mill_writer to;
    const char *texts[] = {member->instance_id, member->rack_id, member->client_id,
                           member->client_host, member->regex,   member->assignor};
    uint64_t size = texts_bytes(member->names, member->names_count);
    for (size_t i = 0; i < MILL_COUNT_OF(texts); i++) {
        size += mill_rec_text_bytes(texts[i]);
    }
    for (uint32_t i = 0; i < member->classic_count; i++) {
        size += NUMBERS_BYTES + mill_rec_text_bytes(member->classic[i].name) +
                member->classic[i].metadata.size_bytes;
    }
    if (!begin_value(pool, &to, size)) {
        return NULL;
    }
    put_flexible(&to, member->instance_id);
    put_flexible(&to, member->rack_id);
    put_flexible(&to, member->client_id);
    put_flexible(&to, member->client_host);
    put_texts(&to, member->names, member->names_count);
    put_flexible(&to, member->regex);
    mill_write_i32(&to, member->rebalance_timeout_ms);
    put_flexible(&to, member->assignor);
    if (member->classic) {
        put_classic(&to, member);
    } else {
        mill_write_tags_none(&to, false);
    }
    return mill_rec_end(&to, ret_bytes);
}

uint8_t *mill_consumer_target_epoch_value(struct mill_pool *pool, int32_t epoch, int64_t now_ms,
                                          uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!begin_value(pool, &to, 0)) {
        return NULL;
    }
    mill_write_i32(&to, epoch);
    put_tag_i64(&to, TAG_TARGET_TIME, now_ms);
    return mill_rec_end(&to, ret_bytes);
}

/* Partitions of the topic that begins at place first. */
static uint32_t run_of(const struct mill_parts *parts, uint32_t first)
{
    uint32_t end = first;
    while (end < parts->count &&
           mill_uuid_equal(&parts->items[end].topic, &parts->items[first].topic)) {
        end++;
    }
    return end - first;
}

static uint64_t parts_bytes(const struct mill_parts *parts)
{
    return (uint64_t)parts->count * (PART_BYTES + TOPIC_BYTES);
}

static void put_parts(struct mill_writer *to, const struct mill_parts *parts, bool epochs)
{
    uint32_t topics = 0;
    for (uint32_t i = 0; i < parts->count; i += run_of(parts, i)) {
        topics++;
    }
    mill_write_count(to, true, false, (int32_t)topics);
    for (uint32_t i = 0; i < parts->count;) {
        uint32_t run = run_of(parts, i);
        mill_write_uuid(to, &parts->items[i].topic);
        mill_write_count(to, true, false, (int32_t)run);
        for (uint32_t k = 0; k < run; k++) {
            mill_write_i32(to, parts->items[i + k].partition);
        }
        mill_write_uvarint(to, epochs);
        if (epochs) {
            uint32_t mark = mill_write_tag_begin(to, TAG_PARTS_EPOCHS);
            mill_write_count(to, true, true, (int32_t)run);
            for (uint32_t k = 0; k < run; k++) {
                mill_write_i32(to, parts->items[i + k].epoch);
            }
            mill_write_tag_end(to, mark);
        }
        i += run;
    }
}

uint8_t *mill_consumer_target_value(struct mill_pool *pool, const struct mill_parts *parts,
                                    uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!begin_value(pool, &to, parts_bytes(parts))) {
        return NULL;
    }
    put_parts(&to, parts, false);
    mill_write_tags_none(&to, false);
    return mill_rec_end(&to, ret_bytes);
}

uint8_t *mill_consumer_current_value(struct mill_pool *pool, const struct mill_consumer *member,
                                     uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!begin_value(pool, &to, parts_bytes(&member->assigned) + parts_bytes(&member->revoking))) {
        return NULL;
    }
    mill_write_i32(&to, member->epoch);
    mill_write_i32(&to, member->previous_epoch);
    mill_write_i8(&to, (int8_t)member->state);
    put_parts(&to, &member->assigned, true);
    put_parts(&to, &member->revoking, true);
    mill_write_tags_none(&to, false);
    return mill_rec_end(&to, ret_bytes);
}

uint8_t *mill_consumer_regex_value(struct mill_pool *pool, const struct mill_consumer_regex *regex,
                                   int64_t version, int64_t now_ms, uint32_t *ret_bytes)
{
    struct mill_writer to;
    if (!begin_value(pool, &to, texts_bytes(regex->topics, regex->topics_count))) {
        return NULL;
    }
    put_texts(&to, regex->topics, regex->topics_count);
    mill_write_i64(&to, version);
    mill_write_i64(&to, now_ms);
    mill_write_tags_none(&to, false);
    return mill_rec_end(&to, ret_bytes);
}

/* --- reading -----------------------------------------------------------------------------------
 */

/* The field of the tagged section with this number, 64-bit; else what it is without. */
static int64_t get_tag_i64(struct mill_rec_reader *from, uint32_t tag, int64_t otherwise)
{
    struct mill_tags tags = {0};
    int64_t value = otherwise;
    if (from->error || !mill_tags_begin(&from->at, &tags)) {
        from->error = from->error ? from->error : -EBADMSG;
        return value;
    }
    while (mill_tags_next(&from->at, &tags)) {
        if (tags.tag == tag && !mill_read_i64(&tags.body, &value)) {
            tags.bad = true;
            break;
        }
    }
    from->error = tags.bad ? -EBADMSG : from->error;
    return value;
}

static char *get_own(struct mill_rec_reader *from)
{
    return (char *)(uintptr_t)mill_rec_text(from);
}

static char **get_texts(struct mill_rec_reader *from, uint32_t *ret_count)
{
    uint32_t count = mill_rec_count(from, 1);
    char **texts = mill_rec_take(from, count * sizeof(texts[0]));
    for (uint32_t i = 0; texts && i < count; i++) {
        texts[i] = (char *)(uintptr_t)mill_rec_name(from);
    }
    *ret_count = texts && !from->error ? count : 0;
    return texts;
}

/* Epochs of the partitions of one topic, when they are told. */
static void get_epochs(struct mill_rec_reader *from, struct mill_part *items, uint32_t count)
{
    struct mill_tags tags = {0};
    if (from->error || !mill_tags_begin(&from->at, &tags)) {
        from->error = from->error ? from->error : -EBADMSG;
        return;
    }
    while (mill_tags_next(&from->at, &tags)) {
        struct mill_warray epochs;
        if (tags.tag != TAG_PARTS_EPOCHS) {
            continue;
        }
        if (!mill_read_array_i32(&tags.body, true, true, &epochs)) {
            tags.bad = true;
            break;
        }
        for (uint32_t i = 0; i < count && mill_warray_next_i32(&epochs, &items[i].epoch); i++) {
        }
    }
    from->error = tags.bad ? -EBADMSG : from->error;
}

/* One list of topics with partitions; the set grows in the pool, topic by topic. */
static void get_parts(struct mill_rec_reader *from, int32_t epoch, struct mill_parts *ret)
{
    uint32_t topics = mill_rec_count(from, 18);
    uint32_t room = 0;
    for (uint32_t t = 0; t < topics && !from->error; t++) {
        struct mill_uuid topic = mill_rec_uuid(from);
        uint32_t count = mill_rec_count(from, 4);
        if (ret->count + count > room) {
            room = MILL_MAX(2 * room, ret->count + count);
            struct mill_part *items = mill_rec_take(from, room * sizeof(items[0]));
            if (!items) {
                return;
            }
            if (ret->count > 0) {
                memcpy(items, ret->items, ret->count * sizeof(items[0]));
            }
            ret->items = items;
        }
        for (uint32_t i = 0; i < count; i++) {
            ret->items[ret->count + i] =
                (struct mill_part){.topic = topic, .partition = mill_rec_i32(from), .epoch = epoch};
        }
        get_epochs(from, count > 0 ? ret->items + ret->count : NULL, count);
        ret->count += count;
    }
    mill_parts_sort(ret);
}

static void read_classic(struct mill_rec_reader *from, struct mill_consumer *ret)
{
    if (mill_rec_i8(from) < 0) {
        return;
    }
    ret->classic_session_ms = mill_rec_i32(from);
    uint32_t count = mill_rec_count(from, 3);
    struct mill_group_protocol *protocols = mill_rec_take(from, count * sizeof(protocols[0]));
    for (uint32_t i = 0; protocols && i < count; i++) {
        protocols[i].name = (char *)(uintptr_t)mill_rec_name(from);
        protocols[i].metadata = mill_rec_blob(from);
        mill_rec_tags(from);
    }
    mill_rec_tags(from);
    ret->classic = count > 0 && !from->error ? protocols : NULL;
    ret->classic_count = ret->classic ? count : 0;
}

static void read_member(struct mill_rec_reader *from, struct mill_consumer *ret)
{
    ret->instance_id = get_own(from);
    ret->rack_id = get_own(from);
    ret->client_id = (char *)(uintptr_t)mill_rec_name(from);
    ret->client_host = (char *)(uintptr_t)mill_rec_name(from);
    ret->names = get_texts(from, &ret->names_count);
    ret->regex = get_own(from);
    ret->rebalance_timeout_ms = mill_rec_i32(from);
    ret->assignor = get_own(from);
    struct mill_tags tags = {0};
    if (from->error || !mill_tags_begin(&from->at, &tags)) {
        from->error = from->error ? from->error : -EBADMSG;
        return;
    }
    while (mill_tags_next(&from->at, &tags)) {
        if (tags.tag == TAG_MEMBER_CLASSIC) {
            struct mill_rec_reader body = {.at = tags.body, .pool = from->pool, .flexible = true};
            read_classic(&body, ret);
            from->error = from->error ? from->error : body.error;
        }
    }
    from->error = tags.bad ? -EBADMSG : from->error;
}

static void read_current(struct mill_rec_reader *from, struct mill_consumer *ret)
{
    ret->epoch = mill_rec_i32(from);
    ret->previous_epoch = mill_rec_i32(from);
    int8_t state = mill_rec_i8(from);
    /* A state that is not known here: the member is led on from what it has. */
    ret->state = state == MILL_CONSUMER_UNREVOKED ? MILL_CONSUMER_UNREVOKED
                 : state == MILL_CONSUMER_STABLE  ? MILL_CONSUMER_STABLE
                                                  : MILL_CONSUMER_UNRELEASED;
    get_parts(from, ret->epoch, &ret->assigned);
    get_parts(from, ret->epoch, &ret->revoking);
    mill_rec_tags(from);
}

static void read_value(struct mill_rec_reader *from, struct mill_consumer_record *ret)
{
    from->flexible = true;
    if (mill_rec_i16(from) < VALUE_VERSION) {
        from->error = from->error ? from->error : -EBADMSG;
    }
    switch (ret->type) {
    case MILL_CONSUMER_RECORD_EPOCH:
        ret->epoch = mill_rec_i32(from);
        ret->hash = get_tag_i64(from, TAG_EPOCH_HASH, 0);
        break;
    case MILL_CONSUMER_RECORD_MEMBER:
        read_member(from, &ret->member);
        break;
    case MILL_CONSUMER_RECORD_TARGET_EPOCH:
        ret->epoch = mill_rec_i32(from);
        ret->assigned_ms = get_tag_i64(from, TAG_TARGET_TIME, 0);
        break;
    case MILL_CONSUMER_RECORD_TARGET:
        get_parts(from, 0, &ret->member.target);
        mill_rec_tags(from);
        break;
    case MILL_CONSUMER_RECORD_CURRENT:
        read_current(from, &ret->member);
        break;
    case MILL_CONSUMER_RECORD_REGEX:
        ret->regex.topics = get_texts(from, &ret->regex.topics_count);
        (void)mill_rec_i64(from);
        (void)mill_rec_i64(from);
        mill_rec_tags(from);
        break;
    case MILL_CONSUMER_RECORD_TOPICS:
        break;
    }
}

void mill_consumer_record_read(enum mill_consumer_record_type type, struct mill_rec_reader *key,
                               struct mill_rec_reader *value, bool tombstone,
                               const char **ret_group, struct mill_consumer_record *ret)
{
    bool of_group = type == MILL_CONSUMER_RECORD_EPOCH || type == MILL_CONSUMER_RECORD_TOPICS ||
                    type == MILL_CONSUMER_RECORD_TARGET_EPOCH;
    *ret = (struct mill_consumer_record){.type = type, .tombstone = tombstone};
    *ret_group = mill_rec_name(key);
    ret->about = of_group ? "" : mill_rec_name(key);
    if (!tombstone) {
        read_value(value, ret);
    }
}
