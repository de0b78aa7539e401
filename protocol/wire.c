/* SPDX-License-Identifier: Apache-2.0 */
/* Wire values, headers and the search in the table of APIs; see wire.h. Pure; any thread. */
#include "protocol/wire.h"

#include <errno.h>
#include <string.h>

#include "protocol/codec.h"

enum {
    API_VERSIONS_KEY = 18, /* its answers carry header v0 in every version (KIP-511) */
};

/* --- values --- */

int32_t mill_wstr_copy(const struct mill_wstr *text, char *ret_text, uint32_t capacity)
{
    if (capacity > 0) {
        ret_text[0] = '\0';
    }
    if (text->length < 0 || (uint32_t)text->length >= capacity) {
        return -1;
    }
    const uint32_t size_bytes = (uint32_t)text->length;
    if (size_bytes == 0) {
        return 0;
    }
    if (text->ptr) {
        memcpy(ret_text, text->ptr, size_bytes);
    } else {
        struct mill_cursor at = text->at;
        if (mill_cursor_read(&at, ret_text, size_bytes)) {
            ret_text[0] = '\0';
            return -1;
        }
    }
    ret_text[size_bytes] = '\0';
    return text->length;
}

/* The next run of a text's bytes; 0 at the end. */
static uint32_t next_run(struct mill_cursor *at, const uint8_t **ret_bytes)
{
    uint32_t size_bytes = mill_cursor_run(at, ret_bytes);
    return size_bytes > 0 && mill_cursor_skip(at, size_bytes) == 0 ? size_bytes : 0;
}

/* A cursor over a text wherever its bytes are. */
static struct mill_cursor text_cursor(const struct mill_wstr *text, struct mill_buf *room)
{
    uint32_t size_bytes = text->length > 0 ? (uint32_t)text->length : 0;
    return text->ptr || size_bytes == 0 ? mill_cursor_over(room, text->ptr, size_bytes) : text->at;
}

bool mill_wstr_equal(const struct mill_wstr *text, const char *other, uint32_t length)
{
    if (text->length < 0 || (uint32_t)text->length != length) {
        return false;
    }
    struct mill_buf room;
    struct mill_cursor at = text_cursor(text, &room);
    const uint8_t *run;
    for (uint32_t part; (part = next_run(&at, &run)) > 0; other += part) {
        if (memcmp(run, other, part) != 0) {
            return false;
        }
    }
    return true;
}

struct mill_wstr mill_wstr_of(const char *text)
{
    return text ? mill_wstr_of_bytes(text, (int32_t)strlen(text))
                : (struct mill_wstr){.length = -1};
}

struct mill_wstr mill_wstr_of_bytes(const void *bytes, int32_t length)
{
    return (struct mill_wstr){.length = length, .ptr = bytes};
}

/* Where a UTF-8 decoder stands: continuation bytes still due, and the range of the next one. */
struct utf8 {
    uint8_t due;
    uint8_t low;
    uint8_t high;
};

/* One byte (RFC 3629, section 4: the table of well-formed sequences). */
static bool utf8_step(struct utf8 *state, uint8_t byte)
{
    if (state->due > 0) {
        bool fine = byte >= state->low && byte <= state->high;
        *state = (struct utf8){.due = (uint8_t)(state->due - 1), .low = 0x80, .high = 0xbf};
        return fine;
    }
    *state = (struct utf8){.low = 0x80, .high = 0xbf};
    if (byte < 0x80) {
        return true;
    }
    if (byte >= 0xc2 && byte <= 0xdf) {
        state->due = 1;
    } else if (byte >= 0xe0 && byte <= 0xef) {
        state->due = 2;
        state->low = byte == 0xe0 ? 0xa0 : 0x80;  /* no overlong form */
        state->high = byte == 0xed ? 0x9f : 0xbf; /* no surrogate */
    } else if (byte >= 0xf0 && byte <= 0xf4) {
        state->due = 3;
        state->low = byte == 0xf0 ? 0x90 : 0x80;  /* no overlong form */
        state->high = byte == 0xf4 ? 0x8f : 0xbf; /* nothing above U+10FFFF */
    }
    return state->due > 0;
}

bool mill_wstr_is_utf8(const struct mill_wstr *text)
{
    struct mill_buf room;
    struct mill_cursor at = text_cursor(text, &room);
    struct utf8 state = {0};
    const uint8_t *run;
    for (uint32_t part; (part = next_run(&at, &run)) > 0;) {
        for (uint32_t i = 0; i < part; i++) {
            if (!utf8_step(&state, run[i])) {
                return false;
            }
        }
    }
    return state.due == 0;
}

bool mill_warray_next_i8(struct mill_warray *array, int8_t *ret_value)
{
    if (array->count <= 0) {
        return false;
    }
    array->count--;
    return mill_read_i8(&array->at, ret_value);
}

bool mill_warray_next_i32(struct mill_warray *array, int32_t *ret_value)
{
    if (array->count <= 0) {
        return false;
    }
    array->count--;
    return mill_read_i32(&array->at, ret_value);
}

bool mill_warray_next_i64(struct mill_warray *array, int64_t *ret_value)
{
    if (array->count <= 0) {
        return false;
    }
    array->count--;
    return mill_read_i64(&array->at, ret_value);
}

bool mill_warray_next_str(struct mill_warray *array, bool flexible, struct mill_wstr *ret_value)
{
    if (array->count <= 0) {
        return false;
    }
    array->count--;
    return mill_read_str(&array->at, flexible, false, ret_value);
}

/* --- frames and headers --- */

int mill_request_header_decode(struct mill_cursor *at, struct mill_request_header *ret)
{
    *ret = (struct mill_request_header){.client_id = {.length = -1}};
    if (!mill_read_i16(at, &ret->api_key) || !mill_read_i16(at, &ret->api_version) ||
        !mill_read_i32(at, &ret->correlation_id)) {
        return -EBADMSG;
    }
    const struct mill_api *api = mill_api_find(ret->api_key);
    if (!api || ret->api_version < api->version_min || ret->api_version > api->version_max) {
        return -EOPNOTSUPP;
    }
    ret->flexible = ret->api_version >= api->flexible_from;
    /* The client id keeps its two-byte length in header v2 (KIP-482). */
    if (!mill_read_str(at, false, true, &ret->client_id)) {
        return -EBADMSG;
    }
    return !ret->flexible || mill_tags_skip(at, false) ? 0 : -EBADMSG;
}

/* True when the answer's header carries a tagged section. */
static bool response_header_is_flexible(int16_t api_key, int16_t api_version)
{
    const struct mill_api *api = mill_api_find(api_key);
    return api && api_key != API_VERSIONS_KEY && api_version >= api->flexible_from;
}

void mill_response_begin(struct mill_writer *to, int16_t api_key, int16_t api_version,
                         int32_t correlation_id)
{
    mill_write_i32(to, 0);
    mill_write_i32(to, correlation_id);
    if (response_header_is_flexible(api_key, api_version)) {
        mill_write_tags_none(to, false);
    }
}

uint32_t mill_response_throttle_at(int16_t api_key, int16_t api_version)
{
    const struct mill_api *api = mill_api_find(api_key);
    if (!api || api_version < api->throttle_from) {
        return 0;
    }
    return 8 + (response_header_is_flexible(api_key, api_version) ? 1 : 0); /* size, correlation */
}

int mill_response_header_decode(struct mill_cursor *at, int16_t api_key, int16_t api_version,
                                int32_t *ret_correlation_id)
{
    int32_t correlation_id;
    if (!mill_read_i32(at, &correlation_id)) {
        return -EBADMSG;
    }
    if (response_header_is_flexible(api_key, api_version) && !mill_tags_skip(at, false)) {
        return -EBADMSG;
    }
    *ret_correlation_id = correlation_id;
    return 0;
}

void mill_wire_request_begin(struct mill_writer *to, const struct mill_request_header *header)
{
    mill_write_i32(to, 0);
    mill_write_i16(to, header->api_key);
    mill_write_i16(to, header->api_version);
    mill_write_i32(to, header->correlation_id);
    mill_write_str(to, false, true, &header->client_id);
    const struct mill_api *api = mill_api_find(header->api_key);
    if (api && header->api_version >= api->flexible_from) {
        mill_write_tags_none(to, false);
    }
}

int64_t mill_response_finish(struct mill_writer *to)
{
    const int64_t size_bytes = (int64_t)to->size_bytes + to->hole_bytes;
    if (to->error != 0) {
        return to->error;
    }
    if (to->size_bytes < MILL_FRAME_SIZE_BYTES || size_bytes - MILL_FRAME_SIZE_BYTES > INT32_MAX) {
        return -ENOSPC;
    }
    mill_store_be32(to->bytes, (uint32_t)(size_bytes - MILL_FRAME_SIZE_BYTES));
    return size_bytes;
}

int64_t mill_wire_request_finish(struct mill_writer *to)
{
    return mill_response_finish(to);
}

/* --- the table of APIs --- */

const struct mill_api *mill_api_find(int16_t key)
{
    uint32_t low = 0;
    uint32_t high = mill_apis_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (mill_apis[middle].key == key) {
            return &mill_apis[middle];
        }
        if (mill_apis[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}
