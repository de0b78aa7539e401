/* SPDX-License-Identifier: Apache-2.0 */
/* Subscriptions and assignments of the embedded protocol; see consumer_protocol.h. A newer version
 * than ours has our fields first. */
#include "control/group/consumer_protocol.h"

#include <errno.h>
#include <string.h>

#include "control/group/record_io.h"

enum {
    VERSION_OWNED = 1,      /* partitions owned */
    VERSION_GENERATION = 2, /* of them */
    VERSION_RACK = 3,
    VERSION_MAX = 3,
    TEXT_LEAST_BYTES = 2,
    TOPIC_LEAST_BYTES = 6, /* its name and the count of its partitions */
    PART_BYTES = 4,
    NUMBERS_BYTES = 32, /* of the fixed fields */
};

static struct mill_rec_reader reader_of(const struct mill_group_blob *from, struct mill_pool *pool,
                                        struct mill_buf *buf)
{
    return (struct mill_rec_reader){.at = mill_cursor_over(buf, from->bytes, from->size_bytes),
                                    .pool = pool};
}

static void read_names(struct mill_rec_reader *from, struct mill_subscription *ret)
{
    uint32_t count = mill_rec_count(from, TEXT_LEAST_BYTES);
    if (count > MILL_CONSUMER_NAMES_MAX) {
        from->error = -EBADMSG;
    }
    ret->names = mill_rec_take(from, count * sizeof(ret->names[0]));
    for (uint32_t i = 0; ret->names && i < count && !from->error; i++) {
        ret->names[ret->names_count++] = (char *)(uintptr_t)mill_rec_name(from);
    }
}

/* Topics by name with their partitions. */
static void read_parts(struct mill_rec_reader *from, const struct mill_consumer_topics *topics,
                       struct mill_parts *ret)
{
    uint32_t topics_count = mill_rec_count(from, TOPIC_LEAST_BYTES);
    uint32_t room = 0;
    *ret = (struct mill_parts){0};
    for (uint32_t t = 0; t < topics_count && !from->error; t++) {
        struct mill_assign_topic topic;
        bool there = topics->by_name(topics->context, mill_rec_name(from), &topic);
        uint32_t count = mill_rec_count(from, PART_BYTES);
        if (ret->count + count > MILL_CONSUMER_OWNED_MAX) {
            from->error = -EBADMSG;
        }
        if (ret->count + count > room && !from->error) {
            struct mill_parts more;
            room = 2 * (ret->count + count);
            if (!mill_parts_room(from->pool, room, &more)) {
                from->error = -ENOMEM;
                break;
            }
            if (ret->count > 0) {
                memcpy(more.items, ret->items, ret->count * sizeof(ret->items[0]));
            }
            more.count = ret->count;
            *ret = more;
        }
        for (uint32_t i = 0; i < count && !from->error; i++) {
            struct mill_part part = {.topic = topic.id, .partition = mill_rec_i32(from)};
            if (there && !from->error) {
                ret->items[ret->count++] = part;
            }
        }
    }
    mill_parts_sort(ret);
}

int mill_subscription_read(const struct mill_group_blob *from,
                           const struct mill_consumer_topics *topics, struct mill_pool *pool,
                           struct mill_subscription *ret)
{
    struct mill_buf buf;
    struct mill_rec_reader reader = reader_of(from, pool, &buf);
    *ret = (struct mill_subscription){.version = mill_rec_i16(&reader)};
    if (ret->version < 0) {
        return -EBADMSG;
    }
    read_names(&reader, ret);
    (void)mill_rec_blob(&reader); /* of the assignor's own */
    if (ret->version >= VERSION_OWNED) {
        read_parts(&reader, topics, &ret->owned);
    }
    if (ret->version >= VERSION_GENERATION) {
        (void)mill_rec_i32(&reader);
    }
    if (ret->version >= VERSION_RACK) {
        ret->rack_id = mill_rec_text(&reader);
    }
    return reader.error;
}

int mill_assignment_read(const struct mill_group_blob *from,
                         const struct mill_consumer_topics *topics, struct mill_pool *pool,
                         struct mill_parts *ret)
{
    struct mill_buf buf;
    struct mill_rec_reader reader = reader_of(from, pool, &buf);
    *ret = (struct mill_parts){0};
    if (from->size_bytes == 0) {
        return 0;
    }
    int16_t version = mill_rec_i16(&reader);
    if (version < 0) {
        return -EBADMSG;
    }
    read_parts(&reader, topics, ret);
    (void)mill_rec_blob(&reader);
    return reader.error;
}

/* Partitions of the topic at place first. */
static uint32_t run_of(const struct mill_parts *parts, uint32_t first)
{
    uint32_t end = first;
    while (end < parts->count &&
           mill_uuid_equal(&parts->items[end].topic, &parts->items[first].topic)) {
        end++;
    }
    return end - first;
}

bool mill_assignment_write(const struct mill_parts *parts,
                           const struct mill_group_blob *subscription,
                           const struct mill_consumer_topics *topics, struct mill_pool *pool,
                           struct mill_group_blob *ret)
{
    struct mill_writer to;
    uint64_t size = NUMBERS_BYTES + (uint64_t)parts->count * PART_BYTES;
    int32_t topics_count = 0;
    for (uint32_t i = 0; i < parts->count; i += run_of(parts, i)) {
        const char *name = topics->by_id(topics->context, &parts->items[i].topic);
        size += name ? TOPIC_LEAST_BYTES + mill_rec_text_bytes(name) : 0;
        topics_count += name ? 1 : 0;
    }
    if (!mill_rec_begin(pool, &to, size)) {
        return false;
    }
    int16_t version = subscription->size_bytes >= sizeof(version)
                          ? (int16_t)mill_load_be16(subscription->bytes)
                          : (int16_t)0;
    mill_write_i16(&to, version < VERSION_MAX ? version : (int16_t)VERSION_MAX);
    mill_write_i32(&to, topics_count);
    for (uint32_t i = 0; i < parts->count; i += run_of(parts, i)) {
        const char *name = topics->by_id(topics->context, &parts->items[i].topic);
        uint32_t run = run_of(parts, i);
        if (!name) {
            continue;
        }
        mill_rec_put_text(&to, name);
        mill_write_i32(&to, (int32_t)run);
        for (uint32_t k = 0; k < run; k++) {
            mill_write_i32(&to, parts->items[i + k].partition);
        }
    }
    mill_write_i32(&to, -1); /* of the assignor's own: null */
    ret->bytes = mill_rec_end(&to, &ret->size_bytes);
    return ret->bytes != NULL;
}
