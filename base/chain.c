/* SPDX-License-Identifier: Apache-2.0 */
/* Buffer chains and cursors; see chain.h. Pure memory, no allocation. */
#include "base/chain.h"

#include <errno.h>
#include <string.h>

void mill_chain_append(struct mill_chain *chain, struct mill_buf *buf)
{
    buf->next = NULL;
    if (chain->tail) {
        chain->tail->next = buf;
    } else {
        chain->head = buf;
    }
    chain->tail = buf;
    chain->size_bytes += buf->size_bytes;
    chain->charge_bytes += buf->charge_bytes;
}

void mill_chain_consume(struct mill_chain *chain, uint32_t size_bytes)
{
    MILL_ASSERT_LE(size_bytes, chain->size_bytes);
    chain->size_bytes -= size_bytes;
    while (chain->head) {
        struct mill_buf *buf = chain->head;
        uint32_t part = MILL_MIN(size_bytes, buf->size_bytes);
        buf->data += part;
        buf->size_bytes -= part;
        size_bytes -= part;
        if (buf->size_bytes > 0) {
            break;
        }
        chain->head = buf->next;
        if (!chain->head) {
            chain->tail = NULL;
        }
        chain->charge_bytes -= buf->charge_bytes;
        buf->free(buf);
    }
    MILL_ASSERT_EQ(size_bytes, 0u);
}

void mill_chain_clear(struct mill_chain *chain)
{
    while (chain->head) {
        struct mill_buf *buf = chain->head;
        chain->head = buf->next;
        buf->free(buf);
    }
    *chain = (struct mill_chain){0};
}

struct mill_cursor mill_chain_cursor(const struct mill_chain *chain)
{
    return (struct mill_cursor){.buf = chain->head, .left_bytes = chain->size_bytes};
}

struct mill_cursor mill_cursor_over(struct mill_buf *buf, const void *data, uint32_t size_bytes)
{
    *buf = (struct mill_buf){.data = (uint8_t *)(uintptr_t)data, .size_bytes = size_bytes};
    return (struct mill_cursor){.buf = buf, .left_bytes = size_bytes};
}

/* Steps over exhausted buffers so that buf has bytes at pos, or left is 0. */
static void settle(struct mill_cursor *cursor)
{
    while (cursor->left_bytes > 0 && cursor->pos_bytes >= cursor->buf->size_bytes) {
        MILL_DASSERT(cursor->buf->next);
        cursor->pos_bytes -= cursor->buf->size_bytes;
        cursor->buf = cursor->buf->next;
    }
}

int mill_cursor_read(struct mill_cursor *cursor, void *ret_bytes, uint32_t size_bytes)
{
    if (MILL_UNLIKELY(size_bytes > cursor->left_bytes)) {
        return -EBADMSG;
    }
    uint8_t *out = ret_bytes;
    while (size_bytes > 0) {
        settle(cursor);
        uint32_t part = MILL_MIN(size_bytes, cursor->buf->size_bytes - cursor->pos_bytes);
        memcpy(out, cursor->buf->data + cursor->pos_bytes, part);
        out += part;
        cursor->pos_bytes += part;
        cursor->left_bytes -= part;
        size_bytes -= part;
    }
    return 0;
}

int mill_cursor_skip(struct mill_cursor *cursor, uint32_t size_bytes)
{
    if (MILL_UNLIKELY(size_bytes > cursor->left_bytes)) {
        return -EBADMSG;
    }
    cursor->pos_bytes += size_bytes;
    cursor->left_bytes -= size_bytes;
    settle(cursor);
    return 0;
}

uint32_t mill_cursor_run(const struct mill_cursor *cursor, const uint8_t **ret_bytes)
{
    struct mill_cursor at = *cursor;
    settle(&at);
    if (at.left_bytes == 0) {
        return 0;
    }
    *ret_bytes = at.buf->data + at.pos_bytes;
    return MILL_MIN(at.left_bytes, at.buf->size_bytes - at.pos_bytes);
}

const uint8_t *mill_cursor_contiguous(const struct mill_cursor *cursor, uint32_t size_bytes)
{
    const uint8_t *bytes = NULL;
    return mill_cursor_run(cursor, &bytes) >= size_bytes ? bytes : NULL;
}

struct mill_cursor mill_cursor_slice(const struct mill_cursor *cursor, uint32_t size_bytes)
{
    MILL_ASSERT_LE(size_bytes, cursor->left_bytes);
    struct mill_cursor slice = *cursor;
    slice.left_bytes = size_bytes;
    return slice;
}
