/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of addresses with a number each (max.connections.per.ip.overrides). Pure. */
#include "config/internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

int mill_config_parse_address(const char *text, uint8_t ret_address[16])
{
    struct in_addr ipv4;
    struct in6_addr ipv6;
    if (inet_pton(AF_INET, text, &ipv4) == 1) {
        static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
        memcpy(ret_address, mapped, sizeof(mapped));
        memcpy(ret_address + sizeof(mapped), &ipv4, sizeof(ipv4));
        return 0;
    }
    if (inet_pton(AF_INET6, text, &ipv6) == 1) {
        memcpy(ret_address, &ipv6, sizeof(ipv6));
        return 0;
    }
    return -EINVAL;
}

/* "ADDRESS:COUNT", IPv6 with brackets or without: the last colon stands before the count. */
static int item_parse(char *item, struct mill_config_address *ret_entry, struct mill_report *report)
{
    char *colon = strrchr(item, ':');
    int64_t count = 0;
    if (!colon) {
        return mill_fail(report, -EINVAL, "\"%s\" is not ADDRESS:COUNT", item);
    }
    const char *number = colon + 1 + strspn(colon + 1, " \t");
    if (parse_int(number, &count) < 0 || count < 0 || count > INT32_MAX) {
        return mill_fail(report, -EINVAL, "\"%s\": the count is no number from 0 to %d", item,
                         INT32_MAX);
    }
    char *end = colon;
    while (end > item && isspace((unsigned char)end[-1])) {
        end--;
    }
    *end = '\0';
    char *host = item;
    if (host[0] == '[' && end > host + 1 && end[-1] == ']') {
        end[-1] = '\0';
        host++;
    }
    if (mill_config_parse_address(host, ret_entry->address) < 0) {
        return mill_fail(report, -EINVAL,
                         "\"%s\" is not an IPv4 or IPv6 address (names are not "
                         "looked up)",
                         host);
    }
    ret_entry->number = count;
    return 0;
}

int mill_config_addresses(const char *text,
                          struct mill_config_address ret_entries[MILL_CONFIG_ADDRESSES_MAX],
                          uint32_t *ret_count, struct mill_report *report)
{
    char item[LIST_ITEM_BYTES];
    uint32_t count = 0;
    for (const char *at = text; list_next(&at, item);) {
        struct mill_config_address entry;
        if (item_parse(item, &entry, report) < 0) {
            return -EINVAL;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (memcmp(ret_entries[i].address, entry.address, sizeof(entry.address)) == 0) {
                return mill_fail(report, -EINVAL, "an address is named twice, by \"%s\" again",
                                 item);
            }
        }
        if (count == MILL_CONFIG_ADDRESSES_MAX) {
            return mill_fail(report, -EINVAL, "more than %d addresses", MILL_CONFIG_ADDRESSES_MAX);
        }
        ret_entries[count++] = entry;
    }
    *ret_count = count;
    return 0;
}

bool mill_config_addresses_let_in(const char *text)
{
    struct mill_config_address entries[MILL_CONFIG_ADDRESSES_MAX];
    struct mill_report report;
    uint32_t count = 0;
    bool some = false;
    if (mill_config_addresses(text, entries, &count, &report) < 0) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        some |= entries[i].number > 0;
    }
    return some;
}

int check_parts(enum mill_key key, const char *text, struct mill_report *report)
{
    struct mill_config_address entries[MILL_CONFIG_ADDRESSES_MAX];
    uint32_t count = 0;
    return key == MILL_KEY_MAX_CONNECTIONS_PER_IP_OVERRIDES
               ? mill_config_addresses(text, entries, &count, report)
               : 0;
}
