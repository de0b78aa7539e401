/* SPDX-License-Identifier: Apache-2.0 */
/* Internet checksum over pieces. A sum of 16-bit words may be formed in either byte order and in
 * words of any width, as long as carries come back in (RFC 1071, 2): so eight bytes are added at a
 * time, and a piece that begins at an odd place of the message is summed as if it were even and
 * swapped. Pure; any thread. */
#include "dataplane/port/csum.h"

#include <string.h>

static inline uint64_t add_carry(uint64_t sum, uint64_t value)
{
    sum += value;
    return sum + (sum < value);
}

static inline uint16_t fold(uint64_t sum)
{
    sum = (sum >> 32) + (sum & 0xffffffffu);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return (uint16_t)sum;
}

/* Sums, and copies to `to` unless that is NULL, which each caller below knows when it is compiled.
 */
static inline __attribute__((always_inline)) uint64_t sum_of(const uint8_t *at, uint8_t *to,
                                                             uint32_t size_bytes)
{
    uint64_t sum = 0;
    uint64_t other = 0; /* two chains of additions: the carries do not wait for each other */
    while (size_bytes >= 16) {
        uint64_t words[2];
        memcpy(words, at, sizeof(words));
        if (to != NULL) {
            memcpy(to, words, sizeof(words));
            to += sizeof(words);
        }
        sum = add_carry(sum, words[0]);
        other = add_carry(other, words[1]);
        at += sizeof(words);
        size_bytes -= (uint32_t)sizeof(words);
    }
    sum = add_carry(sum, other);
    while (size_bytes > 0) {
        uint32_t part = size_bytes < 8 ? size_bytes : 8;
        uint64_t value = 0;
        memcpy(&value, at, part);
        if (to != NULL) {
            memcpy(to, &value, part);
            to += part;
        }
        sum = add_carry(sum, value);
        at += part;
        size_bytes -= part;
    }
    return sum;
}

static void add_part(struct mill_csum *csum, uint64_t sum, uint32_t size_bytes)
{
    uint16_t part = fold(sum);
    if (csum->odd) {
        part = __builtin_bswap16(part);
    }
#ifdef MILL_MUTANT_PORT_CSUM
    part = (uint16_t)(csum->odd ? part + 1 : part);
#endif
    csum->sum += part;
    csum->odd ^= (size_bytes & 1) != 0;
}

void mill_csum_add(struct mill_csum *csum, const void *bytes, uint32_t size_bytes)
{
    add_part(csum, sum_of(bytes, NULL, size_bytes), size_bytes);
}

void mill_csum_copy(struct mill_csum *csum, void *to, const void *bytes, uint32_t size_bytes)
{
    add_part(csum, sum_of(bytes, to, size_bytes), size_bytes);
}

uint16_t mill_csum_end(const struct mill_csum *csum)
{
    return (uint16_t)~fold(csum->sum);
}
