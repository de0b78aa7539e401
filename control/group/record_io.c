/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of records of internal topics; see record_io.h. */
#include "control/group/record_io.h"

#include <errno.h>
#include <string.h>

/* --- writing -----------------------------------------------------------------------------------
 */

void mill_rec_put_text(struct mill_writer *to, const char *text)
{
    struct mill_wstr value = mill_wstr_of(text);
    mill_write_str(to, false, true, &value);
}

void mill_rec_put_blob(struct mill_writer *to, const struct mill_group_blob *blob)
{
    mill_write_i32(to, (int32_t)blob->size_bytes);
    mill_write_bytes(to, blob->bytes, blob->size_bytes);
}

uint64_t mill_rec_text_bytes(const char *text)
{
    return 5 + (text ? strlen(text) : 0);
}

uint8_t *mill_rec_begin(struct mill_pool *pool, struct mill_writer *to, uint64_t capacity)
{
    uint8_t *bytes = capacity <= INT32_MAX ? mill_pool_take(pool, capacity) : NULL;
    mill_writer_init(to, bytes, bytes ? (uint32_t)capacity : 0, NULL, 0);
    return bytes;
}

uint8_t *mill_rec_end(const struct mill_writer *to, uint32_t *ret_bytes)
{
    *ret_bytes = to->size_bytes;
    return to->error ? NULL : to->bytes;
}

/* --- reading -----------------------------------------------------------------------------------
 */

const char *mill_rec_text(struct mill_rec_reader *from)
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

const char *mill_rec_name(struct mill_rec_reader *from)
{
    const char *text = mill_rec_text(from);
    if (!text && !from->error) {
        from->error = -EBADMSG;
    }
    return text ? text : "";
}

struct mill_group_blob mill_rec_blob(struct mill_rec_reader *from)
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

int16_t mill_rec_i16(struct mill_rec_reader *from)
{
    int16_t value = 0;
    if (!mill_read_i16(&from->at, &value)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
    return value;
}

int32_t mill_rec_i32(struct mill_rec_reader *from)
{
    int32_t value = 0;
    if (!mill_read_i32(&from->at, &value)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
    return value;
}

int64_t mill_rec_i64(struct mill_rec_reader *from)
{
    int64_t value = 0;
    if (!mill_read_i64(&from->at, &value)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
    return value;
}

int8_t mill_rec_i8(struct mill_rec_reader *from)
{
    int8_t value = 0;
    if (!mill_read_i8(&from->at, &value)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
    return value;
}

struct mill_uuid mill_rec_uuid(struct mill_rec_reader *from)
{
    struct mill_uuid value = {{0}};
    if (!mill_read_uuid(&from->at, &value)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
    return value;
}

uint32_t mill_rec_count(struct mill_rec_reader *from, uint32_t least_bytes)
{
    struct mill_warray array = {0};
    if (from->error || !mill_read_count(&from->at, from->flexible, false, least_bytes, &array)) {
        from->error = from->error ? from->error : -EBADMSG;
        return 0;
    }
    return (uint32_t)array.count;
}

void *mill_rec_take(struct mill_rec_reader *from, uint64_t size_bytes)
{
    void *memory = from->error ? NULL : mill_pool_take(from->pool, size_bytes);
    if (!memory && !from->error) {
        from->error = -ENOMEM;
    }
    return memory;
}

void mill_rec_tags(struct mill_rec_reader *from)
{
    if (from->error || !mill_tags_skip(&from->at, true)) {
        from->error = from->error ? from->error : -EBADMSG;
    }
}
