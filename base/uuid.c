/* SPDX-License-Identifier: Apache-2.0 */
/* Text form of ids; RFC 4648 section 5 (base64url). */
#include "base/uuid.h"

#include <errno.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

bool mill_uuid_is_zero(const struct mill_uuid *id)
{
    static const struct mill_uuid zero;
    return mill_uuid_equal(id, &zero);
}

bool mill_uuid_equal(const struct mill_uuid *a, const struct mill_uuid *b)
{
    return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

void mill_uuid_format(const struct mill_uuid *id, char ret_text[MILL_UUID_TEXT_BYTES])
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t out = 0;
    for (size_t i = 0; i < sizeof(id->b); i++) {
        bits = (bits << 8) | id->b[i];
        have += 8;
        while (have >= 6) {
            have -= 6;
            ret_text[out++] = alphabet[(bits >> have) & 63];
        }
    }
    ret_text[out++] = alphabet[(bits << (6 - have)) & 63];
    ret_text[out] = '\0';
}

int mill_uuid_parse(const char *text, struct mill_uuid *ret_id)
{
    if (strlen(text) != MILL_UUID_TEXT_BYTES - 1) {
        return -EINVAL;
    }
    struct mill_uuid id;
    uint32_t bits = 0;
    unsigned have = 0;
    size_t out = 0;
    for (size_t i = 0; i < MILL_UUID_TEXT_BYTES - 1; i++) {
        const char *digit = strchr(alphabet, text[i]);
        if (!digit) {
            return -EINVAL;
        }
        bits = (bits << 6) | (uint32_t)(digit - alphabet);
        have += 6;
        if (have >= 8 && out < sizeof(id.b)) {
            have -= 8;
            id.b[out++] = (uint8_t)(bits >> have);
        }
    }
    *ret_id = id;
    return 0;
}
