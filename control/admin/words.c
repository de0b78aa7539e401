/* SPDX-License-Identifier: Apache-2.0 */
/* Words as bits; see words.h. */
#include "control/admin/words.h"

#include <string.h>

static uint32_t index_of(const struct mill_words_known *known, const char *word)
{
    uint32_t i = 0;
    while (i < known->count && (known->fold ? strcasecmp(word, known->text(i)) != 0
                                            : strcmp(word, known->text(i)) != 0)) {
        i++;
    }
    return i;
}

bool mill_words_read(struct mill_admin_request *request, const struct mill_warray *array,
                     const struct mill_words_known *known, struct mill_words *ret)
{
    struct mill_warray words = *array;
    struct mill_wstr word;
    uint64_t most = (uint64_t)MILL_MAX(words.count, 0);
    *ret = (struct mill_words){.any = words.count <= 0};
    ret->unknown = mill_pool_take(&request->pool, most * sizeof(ret->unknown[0]));
    if (!ret->unknown) {
        return false;
    }
    while (mill_warray_next_str(&words, request->header.flexible, &word)) {
        const char *text = mill_admin_text(request, &word, NULL);
        if (!text) {
            return false;
        }
        uint32_t i = index_of(known, text);
        if (i < known->count) {
            ret->bits |= 1u << i;
        } else {
            ret->unknown[ret->unknown_count++] = text;
        }
    }
    return true;
}

bool mill_words_have(const struct mill_words *words, uint32_t index)
{
    return words->any || (words->bits & (1u << index)) != 0;
}
