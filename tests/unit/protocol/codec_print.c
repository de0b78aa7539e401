/* SPDX-License-Identifier: Apache-2.0 */
/* Prints generated messages for other implementations to read, one a line:
 *     KEY VERSION request|response HEX
 * Body only, no header. Method and seeds as in test_codec.c. */
#include <stdio.h>

#include "tests/unit/protocol/codec_table.h"

enum {
    SEEDS = 8,
};

int main(void)
{
    static uint8_t room[CODEC_ROOM_BYTES];
    for (uint32_t i = 0; i < codec_rows_count; i++) {
        const struct codec_row *row = &codec_rows[i];
        for (int16_t version = row->version_min; version <= row->version_max; version++) {
            for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                uint32_t size_bytes = codec_make(row, version, seed, room, sizeof(room));
                printf("%d %d %s ", row->key, version, row->response ? "response" : "request");
                for (uint32_t at = 0; at < size_bytes; at++) {
                    printf("%02x", room[at]);
                }
                putchar('\n');
            }
        }
    }
    return 0;
}
