/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one request: taken piece by piece up to a limit, given back at once. Control's thread.
 */
#ifndef MILL_CONTROL_POOL_H
#define MILL_CONTROL_POOL_H

#include "base/compiler.h"

struct mill_pool_chunk;

struct mill_pool {
    struct mill_pool_chunk *chunks;
    uint64_t used_bytes;
    uint64_t limit_bytes;
};

/* Zeroed memory, aligned for any type. ret: NULL above the limit or out of memory. */
void *mill_pool_take(struct mill_pool *pool, uint64_t size_bytes);
/* Formatted text. ret: NULL as above. */
char *mill_pool_text(struct mill_pool *pool, const char *format, ...) MILL_PRINTF(2, 3);
void mill_pool_clear(struct mill_pool *pool);

#endif
