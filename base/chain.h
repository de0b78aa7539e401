/* SPDX-License-Identifier: Apache-2.0 */
/* Received bytes: a chain of buffers, each still where the card or the kernel put it, and a cursor
 * that reads across their borders. A chain belongs to one core; a buffer goes back to its maker by
 * its own free call on that core.
 *
 *   chain: head -> [buf data..size] -> [buf data..size] -> NULL     size_bytes = sum of sizes
 *                       ^ consume() moves data forward, frees a buffer when it is empty
 */
#ifndef MILL_BASE_CHAIN_H
#define MILL_BASE_CHAIN_H

#include "base/check.h"
#include "base/compiler.h"

enum {
    /* Received frames: what the port knows of the transport checksum. */
    MILL_BUF_CSUM_GOOD = 1u << 0,
    MILL_BUF_CSUM_BAD = 1u << 1,
    /* A bulk buffer in ordinary memory (staging), not one of a card's or ring's pool. */
    MILL_BUF_STAGED = 1u << 2,
    /* Received frames that another core handed over: to the owner of the connection, once; or a
     * copy, to be learnt from and not to be answered. */
    MILL_BUF_MOVED = 1u << 3,
    MILL_BUF_COPIED = 1u << 4,
};

struct mill_buf {
    struct mill_buf *next;
    uint8_t *data;         /* first unread byte */
    uint32_t size_bytes;   /* unread bytes from data on */
    uint32_t charge_bytes; /* what holding it costs its pool, whatever part is unread */
    uint32_t flags;        /* MILL_BUF_... */
    uint32_t hash;         /* flow hash of a received frame, 0 when unknown */
    void (*free)(struct mill_buf *buf); /* gives it back to its maker, on the maker's core */
    void *owner;                        /* the maker's own */
};

struct mill_chain {
    struct mill_buf *head;
    struct mill_buf *tail;
    uint32_t size_bytes;   /* unread bytes of all buffers */
    uint32_t charge_bytes; /* sum of the buffers' charges */
};

/* A reading position; copies are cheap and independent. Valid while the bytes ahead are not
 * consumed. */
struct mill_cursor {
    const struct mill_buf *buf;
    uint32_t pos_bytes;  /* in buf, from its data */
    uint32_t left_bytes; /* readable from here on, over all buffers */
};

/* Appends one buffer (next is overwritten); the chain owns it from then on. */
void mill_chain_append(struct mill_chain *chain, struct mill_buf *buf);

/* Drops the first size_bytes (at most the chain's) and frees emptied buffers. O(buffers). */
void mill_chain_consume(struct mill_chain *chain, uint32_t size_bytes);

/* Frees everything; the chain is empty and usable after. */
void mill_chain_clear(struct mill_chain *chain);

/* A cursor at the chain's first byte. */
struct mill_cursor mill_chain_cursor(const struct mill_chain *chain);

/* A cursor over plain memory: buf is caller's storage that must live as long as the cursor. */
struct mill_cursor mill_cursor_over(struct mill_buf *buf, const void *data, uint32_t size_bytes);

/* Copies size_bytes and moves on. ret: 0, -EBADMSG when fewer are left (nothing is read). */
int mill_cursor_read(struct mill_cursor *cursor, void *ret_bytes,
                     uint32_t size_bytes) MILL_WARN_UNUSED;

/* Moves on by size_bytes. ret: 0, -EBADMSG when fewer are left (not moved). */
int mill_cursor_skip(struct mill_cursor *cursor, uint32_t size_bytes) MILL_WARN_UNUSED;

/* The run of bytes readable in place at the cursor: pointer and length, 0 at the end. Does not
 * move. */
uint32_t mill_cursor_run(const struct mill_cursor *cursor, const uint8_t **ret_bytes);

/* Pointer to the next size_bytes when they lie in one buffer, else NULL. Does not move. */
const uint8_t *mill_cursor_contiguous(const struct mill_cursor *cursor, uint32_t size_bytes);

/* A cursor over the next size_bytes only (size_bytes <= left). */
struct mill_cursor mill_cursor_slice(const struct mill_cursor *cursor, uint32_t size_bytes);

#endif
