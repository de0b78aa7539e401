/* SPDX-License-Identifier: Apache-2.0 */
/* Request memory; see pool.h. */
#include "control/pool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    CHUNK_BYTES = 16 << 10,
};

struct mill_pool_chunk {
    struct mill_pool_chunk *next;
    uint64_t size_bytes;
    uint64_t used_bytes;
    alignas(16) uint8_t data[];
};

void *mill_pool_take(struct mill_pool *pool, uint64_t size_bytes)
{
    size_bytes = mill_round_up(MILL_MAX(size_bytes, (uint64_t)1), 16);
    struct mill_pool_chunk *chunk = pool->chunks;
    if (!chunk || size_bytes > chunk->size_bytes - chunk->used_bytes) {
        uint64_t chunk_bytes = MILL_MAX(size_bytes, (uint64_t)CHUNK_BYTES);
        if (size_bytes > pool->limit_bytes || pool->used_bytes > pool->limit_bytes - size_bytes) {
            return NULL;
        }
        chunk = calloc(1, sizeof(*chunk) + chunk_bytes);
        if (!chunk) {
            return NULL;
        }
        chunk->size_bytes = chunk_bytes;
        chunk->next = pool->chunks;
        pool->chunks = chunk;
        pool->used_bytes += chunk_bytes;
    }
    void *memory = chunk->data + chunk->used_bytes;
    chunk->used_bytes += size_bytes;
    return memory;
}

char *mill_pool_text(struct mill_pool *pool, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (length < 0) {
        return NULL;
    }
    size_t size_bytes = MILL_MIN((size_t)length, sizeof(text) - 1) + 1;
    char *copy = mill_pool_take(pool, size_bytes);
    if (copy) {
        for (size_t i = 0; i + 1 < size_bytes; i++) {
            copy[i] = text[i];
        }
    }
    return copy;
}

void mill_pool_clear(struct mill_pool *pool)
{
    while (pool->chunks) {
        struct mill_pool_chunk *next = pool->chunks->next;
        free(pool->chunks);
        pool->chunks = next;
    }
    pool->used_bytes = 0;
}
