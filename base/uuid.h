/* SPDX-License-Identifier: Apache-2.0 */
/* 128-bit ids (topics, clusters): 16 raw bytes, all zero meaning none; text is Kafka's 22
 * characters of base64url without padding. Pure; any thread. */
#ifndef MILL_BASE_UUID_H
#define MILL_BASE_UUID_H

#include "base/compiler.h"

enum {
    MILL_UUID_TEXT_BYTES = 23, /* 22 characters and the terminator */
};

struct mill_uuid {
    uint8_t b[16];
};

/* True when all bytes are zero. */
bool mill_uuid_is_zero(const struct mill_uuid *id);
bool mill_uuid_equal(const struct mill_uuid *a, const struct mill_uuid *b);

/* Writes 22 characters and a terminator. */
void mill_uuid_format(const struct mill_uuid *id, char ret_text[MILL_UUID_TEXT_BYTES]);

/* Reads 22 characters. ret: 0, -EINVAL for another length or alphabet (ret_id untouched). */
int mill_uuid_parse(const char *text, struct mill_uuid *ret_id) MILL_WARN_UNUSED;

#endif
