/* SPDX-License-Identifier: Apache-2.0 */
/* Internet checksums; see checksum.h. Pure memory reads. */
#include "dataplane/net/checksum.h"

#include <string.h>

#include "base/byteorder.h"

static uint16_t fold(uint64_t sum)
{
    sum = (sum & 0xffffffffu) + (sum >> 32);
    sum = (sum & 0xffffffffu) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

uint16_t mill_csum_sum(const void *data, size_t size_bytes)
{
    const uint8_t *at = data;
    uint64_t sum = 0;
    /* 32-bit words into a 64-bit sum: no carry is lost below 2^32 words. */
    for (; size_bytes >= 16; size_bytes -= 16, at += 16) {
        uint32_t words[4];
        memcpy(words, at, sizeof(words));
        sum += (uint64_t)words[0] + words[1] + words[2] + words[3];
    }
    for (; size_bytes >= 2; size_bytes -= 2, at += 2) {
        uint16_t word;
        memcpy(&word, at, sizeof(word));
        sum += word;
    }
    if (size_bytes > 0) {
        uint16_t word = 0;
        memcpy(&word, at, 1);
        sum += word;
    }
    return fold(sum);
}

uint16_t mill_csum_sum_chain(const struct mill_buf *buf, uint32_t skip_bytes, uint32_t size_bytes)
{
    while (buf && skip_bytes >= buf->size_bytes) {
        skip_bytes -= buf->size_bytes;
        buf = buf->next;
    }
    uint16_t sum = 0;
    bool odd = false;
    for (; buf && size_bytes > 0; buf = buf->next) {
        uint32_t part = MILL_MIN(size_bytes, buf->size_bytes - skip_bytes);
        uint16_t part_sum = mill_csum_sum(buf->data + skip_bytes, part);
        /* A part that starts at an odd byte has its words' halves swapped. */
        sum = mill_csum_add(sum, odd ? __builtin_bswap16(part_sum) : part_sum);
        odd ^= (part & 1) != 0;
        size_bytes -= part;
        skip_bytes = 0;
    }
    return sum;
}

uint16_t mill_csum_pseudo(uint32_t source, uint32_t target, uint8_t protocol, uint16_t size_bytes)
{
    uint8_t header[12] = {0};
    mill_store_be32(header, source);
    mill_store_be32(header + 4, target);
    header[9] = protocol;
    mill_store_be16(header + 10, size_bytes);
    return mill_csum_sum(header, sizeof(header));
}
