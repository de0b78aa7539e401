/* SPDX-License-Identifier: Apache-2.0 */
/* Words by which a client filters a list, such as names of states: each becomes a bit when the
 * request is read, so that looking at an element costs nothing. Pure; memory in the request's pool.
 */
#ifndef MILL_CONTROL_ADMIN_WORDS_H
#define MILL_CONTROL_ADMIN_WORDS_H

#include "control/admin/request.h"

/* The words that a filter knows. */
struct mill_words_known {
    uint32_t count; /* at most 32 */
    const char *(*text)(uint32_t index);
    bool fold; /* letters of either case */
};

struct mill_words {
    bool any;             /* there are no words: everything is meant */
    uint32_t bits;        /* of the known ones that are named */
    const char **unknown; /* others, in the pool */
    int32_t unknown_count;
};

/* ret: false no memory. */
bool mill_words_read(struct mill_admin_request *request, const struct mill_warray *array,
                     const struct mill_words_known *known, struct mill_words *ret) MILL_WARN_UNUSED;
bool mill_words_have(const struct mill_words *words, uint32_t index);

#endif
