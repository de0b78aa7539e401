/* SPDX-License-Identifier: Apache-2.0 */
/* TCP options; see tcp_options.h. Input from the network: every length is checked. */
#include "dataplane/net/tcp_options.h"

#include <errno.h>

#include "base/byteorder.h"

enum {
    KIND_END = 0,
    KIND_NOP = 1,
    KIND_MSS = 2,
    KIND_WSCALE = 3,
    KIND_SACK_PERMITTED = 4,
    KIND_SACK = 5,
    KIND_TIMESTAMP = 8,
};

static int parse_one(const uint8_t *option, uint32_t size_bytes, bool syn,
                     struct mill_tcp_options *out)
{
    switch (option[0]) {
    case KIND_MSS:
        if (size_bytes != 4) {
            return -EBADMSG;
        }
        if (syn) {
            out->has_mss = true;
            out->mss = mill_load_be16(option + 2);
        }
        return 0;
    case KIND_WSCALE:
        if (size_bytes != 3) {
            return -EBADMSG;
        }
        if (syn) {
            out->has_wscale = true;
            out->wscale = option[2] < MILL_TCP_WSCALE_MAX ? option[2] : MILL_TCP_WSCALE_MAX;
        }
        return 0;
    case KIND_SACK_PERMITTED:
        if (size_bytes != 2) {
            return -EBADMSG;
        }
        out->sack_permitted = syn;
        return 0;
    case KIND_TIMESTAMP:
        if (size_bytes != 10) {
            return -EBADMSG;
        }
        out->has_timestamp = true;
        out->ts_value = mill_load_be32(option + 2);
        out->ts_echo = mill_load_be32(option + 6);
        return 0;
    case KIND_SACK:
        if (size_bytes < 10 || (size_bytes - 2) % 8 != 0) {
            return -EBADMSG;
        }
        for (uint32_t at = 2; at < size_bytes && out->sack_count < MILL_TCP_SACK_BLOCKS_MAX;
             at += 8) {
            out->sack[out->sack_count++] = (struct mill_sack_range){
                .start = mill_load_be32(option + at), .end = mill_load_be32(option + at + 4)};
        }
        return 0;
    default:
        return 0;
    }
}

int mill_tcp_options_parse(const uint8_t *bytes, uint32_t size_bytes, bool syn,
                           struct mill_tcp_options *ret_options)
{
    struct mill_tcp_options out = {0};
    uint32_t at = 0;
    while (at < size_bytes && bytes[at] != KIND_END) {
        if (bytes[at] == KIND_NOP) {
            at++;
            continue;
        }
        if (size_bytes - at < 2) {
            return -EBADMSG;
        }
        uint32_t option_bytes = bytes[at + 1];
        if (option_bytes < 2 || option_bytes > size_bytes - at) {
            return -EBADMSG;
        }
        int rc = parse_one(bytes + at, option_bytes, syn, &out);
        if (rc < 0) {
            return rc;
        }
        at += option_bytes;
    }
    *ret_options = out;
    return 0;
}

static uint32_t write_timestamp(uint8_t *to, const struct mill_tcp_options *options)
{
    to[0] = KIND_NOP;
    to[1] = KIND_NOP;
    to[2] = KIND_TIMESTAMP;
    to[3] = 10;
    mill_store_be32(to + 4, options->ts_value);
    mill_store_be32(to + 8, options->ts_echo);
    return MILL_TCP_TIMESTAMP_BYTES;
}

uint32_t mill_tcp_options_write_syn(uint8_t *to, const struct mill_tcp_options *options)
{
    uint32_t at = 0;
    if (options->has_mss) {
        to[at] = KIND_MSS;
        to[at + 1] = 4;
        mill_store_be16(to + at + 2, options->mss);
        at += 4;
    }
    if (options->sack_permitted) {
        to[at] = KIND_NOP;
        to[at + 1] = KIND_NOP;
        to[at + 2] = KIND_SACK_PERMITTED;
        to[at + 3] = 2;
        at += 4;
    }
    if (options->has_timestamp) {
        at += write_timestamp(to + at, options);
    }
    if (options->has_wscale) {
        to[at] = KIND_NOP;
        to[at + 1] = KIND_WSCALE;
        to[at + 2] = 3;
        to[at + 3] = options->wscale;
        at += 4;
    }
    return at;
}

uint32_t mill_tcp_options_write(uint8_t *to, const struct mill_tcp_options *options)
{
    uint32_t at = 0;
    if (options->has_timestamp) {
        at += write_timestamp(to + at, options);
    }
    uint32_t fit = (MILL_TCP_OPTION_BYTES_MAX - at - 4) / 8;
    uint32_t blocks = MILL_MIN((uint32_t)options->sack_count, fit);
    if (blocks > 0) {
        to[at] = KIND_NOP;
        to[at + 1] = KIND_NOP;
        to[at + 2] = KIND_SACK;
        to[at + 3] = (uint8_t)(2 + 8 * blocks);
        at += 4;
        for (uint32_t i = 0; i < blocks; i++) {
            mill_store_be32(to + at, options->sack[i].start);
            mill_store_be32(to + at + 4, options->sack[i].end);
            at += 8;
        }
    }
    return at;
}
