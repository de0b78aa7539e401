/* SPDX-License-Identifier: Apache-2.0 */
/* Listeners: names, addresses, transports, protocols, and what clients are told. Resolves host
 * names at load. Reference: Kafka 3.9 configuration, listeners and advertised.listeners; KIP-103.
 */
#include "config/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* 0.0.0.0 and :: */
static bool is_any(const uint8_t address[16])
{
    static const uint8_t zero[16];
    return memcmp(address, zero, 16) == 0 ||
           (memcmp(address, mapped_prefix, 12) == 0 && memcmp(address + 12, zero, 4) == 0);
}

int parse_host_port(const char *text, char host[MILL_CONFIG_HOST_BYTES], uint16_t *ret_port,
                    struct mill_report *report)
{
    const char *colon = strrchr(text, ':');
    int64_t port = 0;
    if (!colon || parse_int(colon + 1, &port) < 0) {
        return mill_fail(report, -EINVAL, "\"%s\" has no port; give HOST:PORT", text);
    }
    if (port < 1 || port > 65535) {
        return mill_fail(report, -EINVAL, "port %lld is out of range; give 1 to 65535",
                         (long long)port);
    }
    size_t size = (size_t)(colon - text);
    bool bracketed = size >= 2 && text[0] == '[' && text[size - 1] == ']';
    text += bracketed ? 1 : 0;
    size -= bracketed ? 2 : 0;
    if (size >= MILL_CONFIG_HOST_BYTES) {
        return mill_fail(report, -EINVAL, "the host is longer than %d bytes",
                         MILL_CONFIG_HOST_BYTES - 1);
    }
    if (!bracketed && memchr(text, ':', size)) {
        return mill_fail(report, -EINVAL, "write an IPv6 address in brackets: [%.*s]:%lld",
                         (int)size, text, (long long)port);
    }
    memcpy(host, text, size);
    host[size] = '\0';
    if (strpbrk(host, " \t/[]@")) {
        return mill_fail(report, -EINVAL, "\"%s\" is no host name or address", host);
    }
    *ret_port = (uint16_t)port;
    return 0;
}

/* Splits "NAME://HOST:PORT"; the name in capitals, as Kafka compares them. */
static int parse_endpoint(const char *item, char name[MILL_CONFIG_NAME_BYTES],
                          char host[MILL_CONFIG_HOST_BYTES], uint16_t *ret_port,
                          struct mill_report *report)
{
    const char *mark = strstr(item, "://");
    size_t size = mark ? (size_t)(mark - item) : 0;
    if (size == 0) {
        return mill_fail(report, -EINVAL, "\"%s\" is no listener; give NAME://HOST:PORT", item);
    }
    if (size >= MILL_CONFIG_NAME_BYTES) {
        return mill_fail(report, -EINVAL, "the name in \"%s\" is longer than %d bytes", item,
                         MILL_CONFIG_NAME_BYTES - 1);
    }
    for (size_t i = 0; i < size; i++) {
        char c = item[i];
        name[i] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
        bool fits =
            (name[i] >= 'A' && name[i] <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!fits) {
            return mill_fail(report, -EINVAL,
                             "\"%.*s\" is no listener name: letters, digits, _ and -", (int)size,
                             item);
        }
    }
    name[size] = '\0';
    return parse_host_port(mark + 3, host, ret_port, report);
}

static void map_ipv4(const struct in_addr *from, uint8_t ret_address[16])
{
    memcpy(ret_address, mapped_prefix, 12);
    memcpy(ret_address + 12, from, 4);
}

/* Resolves a host: IPv4 first, as Java does. ret: 0, or a getaddrinfo error. */
static int resolve(const char *host, uint8_t ret_address[16])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    if (host[0] == '\0') {
        map_ipv4(&(struct in_addr){.s_addr = INADDR_ANY}, ret_address);
        return 0;
    }
    int rc = getaddrinfo(host, NULL, &hints, &list);
    if (rc != 0) {
        return rc;
    }
    bool found = false;
    for (const struct addrinfo *at = list; at && !found; at = at->ai_next) {
        if (at->ai_family == AF_INET) {
            struct sockaddr_in address;
            memcpy(&address, at->ai_addr, sizeof(address));
            map_ipv4(&address.sin_addr, ret_address);
            found = true;
        }
    }
    for (const struct addrinfo *at = list; at && !found; at = at->ai_next) {
        if (at->ai_family == AF_INET6) {
            struct sockaddr_in6 address;
            memcpy(&address, at->ai_addr, sizeof(address));
            memcpy(ret_address, &address.sin6_addr, 16);
            found = true;
        }
    }
    freeaddrinfo(list);
    return found ? 0 : EAI_NONAME;
}

/* --- protocols -------------------------------------------------------------------------------- */

static const char *const protocols = "PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL";

/* Protocol of a listener: its map entry, else its own name when that is one, else PLAINTEXT. */
static void protocol_of(const struct mill_config *config, const char *name,
                        char ret_protocol[MILL_CONFIG_NAME_BYTES])
{
    const char *map = config->values[MILL_KEY_LISTENER_SECURITY_PROTOCOL_MAP].text;
    char item[LIST_ITEM_BYTES];
    snprintf(ret_protocol, MILL_CONFIG_NAME_BYTES, "%s",
             word_in(protocols, name) ? name : "PLAINTEXT");
    for (const char *at = map ? map : ""; list_next(&at, item);) {
        char *colon = strchr(item, ':');
        if (!colon) {
            continue;
        }
        *colon = '\0';
        if (strcasecmp(item, name) == 0) {
            snprintf(ret_protocol, MILL_CONFIG_NAME_BYTES, "%.*s", MILL_CONFIG_NAME_BYTES - 1,
                     colon + 1);
        }
    }
}

static void check_protocol_map(struct mill_config *config)
{
    const char *map = config->values[MILL_KEY_LISTENER_SECURITY_PROTOCOL_MAP].text;
    char item[LIST_ITEM_BYTES];
    for (const char *at = map ? map : ""; list_next(&at, item);) {
        const char *colon = strchr(item, ':');
        if (!colon || colon == item) {
            fault_key(config, true, MILL_KEY_LISTENER_SECURITY_PROTOCOL_MAP,
                      "\"%s\" is no NAME:PROTOCOL pair", item);
        } else if (!word_in(protocols, colon + 1)) {
            fault_key(config, true, MILL_KEY_LISTENER_SECURITY_PROTOCOL_MAP,
                      "\"%s\" is no protocol; they are %s", colon + 1, protocols);
        }
    }
}

/* --- listeners -------------------------------------------------------------------------------- */

static bool is_controller(const struct mill_config *config, const char *name)
{
    const char *names = config->values[MILL_KEY_CONTROLLER_LISTENER_NAMES].text;
    char item[LIST_ITEM_BYTES];
    for (const char *at = names ? names : ""; list_next(&at, item);) {
        if (strcasecmp(item, name) == 0) {
            return true;
        }
    }
    return false;
}

/* transport, device and required of one listener. */
static void listener_keys(struct mill_config *config, struct mill_config_listener *listener)
{
    const struct family_entry *entry =
        family_find(config, FAMILY_LISTENER_TRANSPORT, listener->name);
    bool dpdk = entry && strcmp(entry->text, "dpdk") == 0;
    listener->transport = dpdk ? MILL_TRANSPORT_DPDK : MILL_TRANSPORT_KERNEL;
    entry = family_find(config, FAMILY_LISTENER_REQUIRED, listener->name);
    listener->required = true;
    if (entry) {
        int rc = parse_bool(entry->text, &listener->required);
        MILL_ASSERT_EQ(rc, 0); /* checked when it was read */
    }
    entry = family_find(config, FAMILY_LISTENER_DEVICE, listener->name);
    if (entry && strlen(entry->text) < sizeof(listener->device)) {
        snprintf(listener->device, sizeof(listener->device), "%s", entry->text);
    } else if (entry) {
        fault_family(config, true, entry, "\"%s\" is not named in dpdk.ports", entry->text);
    }
    if (dpdk && !entry) {
        fault_key(config, true, MILL_KEY_LISTENERS,
                  "%s is a dpdk listener without a device; add listener.%s.device=NAME of "
                  "dpdk.ports",
                  listener->name, listener->name);
    }
    if (!dpdk && entry) {
        fault_family(config, true, entry,
                     "%s uses kernel sockets; add listener.%s.transport=dpdk or remove this key",
                     listener->name, listener->name);
    }
}

static void listener_check(struct mill_config *config, struct mill_config_listener *listener)
{
    char protocol[MILL_CONFIG_NAME_BYTES];
    protocol_of(config, listener->name, protocol);
    if (word_in(protocols, protocol) && strcmp(protocol, "PLAINTEXT") != 0) {
        fault_key(config, true, MILL_KEY_LISTENERS,
                  "%s has protocol %s, which is not available yet; use PLAINTEXT", listener->name,
                  protocol);
    }
    int rc = resolve(listener->host, listener->address);
    if (rc != 0) {
        fault_key(config, true, MILL_KEY_LISTENERS,
                  "%s: host \"%s\" cannot be resolved (%s); give an address or mend /etc/hosts",
                  listener->name, listener->host, gai_strerror(rc));
    }
}

static void listener_add(struct mill_config *config, const char *item)
{
    struct mill_config_listener listener = {0};
    struct mill_report report = {0};
    if (parse_endpoint(item, listener.name, listener.host, &listener.port, &report) < 0) {
        fault_key(config, true, MILL_KEY_LISTENERS, "%s", report.text);
        return;
    }
    if (is_controller(config, listener.name)) {
        fault_key(config, false, MILL_KEY_LISTENERS,
                  "%s is not opened: controller.listener.names has no use here", listener.name);
        return;
    }
    for (uint32_t i = 0; i < config->listeners_count; i++) {
        if (strcmp(config->listeners[i].name, listener.name) == 0) {
            fault_key(config, true, MILL_KEY_LISTENERS, "%s is named twice", listener.name);
            return;
        }
    }
    if (config->listeners_count == MILL_CONFIG_LISTENERS_MAX) {
        fault_key(config, true, MILL_KEY_LISTENERS, "more than %u listeners",
                  MILL_CONFIG_LISTENERS_MAX);
        return;
    }
    listener_check(config, &listener);
    listener_keys(config, &listener);
    config->listeners[config->listeners_count++] = listener;
}

static bool ranges_meet(uint32_t a, uint32_t a_count, uint32_t b, uint32_t b_count)
{
    return a < b + b_count && b < a + a_count;
}

/* True when both cannot be bound at once. count: ports of each from its own on. */
static bool collide(const struct mill_config_listener *a, uint32_t a_count,
                    const struct mill_config_listener *b, uint32_t b_count)
{
    if (!ranges_meet(a->port, a_count, b->port, b_count) || a->transport != b->transport) {
        return false;
    }
    if (a->transport == MILL_TRANSPORT_DPDK) {
        return strcmp(a->device, b->device) == 0;
    }
    return is_any(a->address) || is_any(b->address) || memcmp(a->address, b->address, 16) == 0;
}

static void check_http(struct mill_config *config)
{
    struct mill_config_listener http = {.transport = MILL_TRANSPORT_KERNEL};
    struct mill_report report = {0};
    config->http.port = 0;
    const char *text = config->values[MILL_KEY_HTTP_LISTENER].text;
    if (text[0] == '\0') {
        return;
    }
    if (parse_host_port(text, http.host, &http.port, &report) < 0) {
        fault_key(config, true, MILL_KEY_HTTP_LISTENER, "%s", report.text);
        return;
    }
    if (resolve(http.host, http.address) != 0) {
        fault_key(config, true, MILL_KEY_HTTP_LISTENER, "host \"%s\" cannot be resolved",
                  http.host);
        return;
    }
    for (uint32_t i = 0; i < config->listeners_count; i++) {
        if (collide(&http, 1, &config->listeners[i], mill_config_core_endpoints(config))) {
            fault_key(config, true, MILL_KEY_HTTP_LISTENER,
                      "port %u is already that of listener %s", http.port,
                      config->listeners[i].name);
        }
    }
    config->http = http;
}

/* Each core has a port of its own: the listener's and those behind it. */
static void check_range(struct mill_config *config, enum mill_key key,
                        const struct mill_config_listener *listener, uint32_t port)
{
    uint32_t count = mill_config_core_endpoints(config);
    if (port + count - 1 > 65535) {
        fault_key(config, true, key,
                  "%s: port %u and one behind it for each of %u cores go beyond 65535; give a "
                  "lower port (dataplane.core.endpoints)",
                  listener->name, port, count);
    }
}

static void check_pair(struct mill_config *config, const struct mill_config_listener *a,
                       const struct mill_config_listener *b)
{
    uint32_t count = mill_config_core_endpoints(config);
    if (!collide(a, count, b, count)) {
        return;
    }
    if (a->port == b->port) {
        fault_key(config, true, MILL_KEY_LISTENERS, "%s and %s have the same port %u", a->name,
                  b->name, b->port);
        return;
    }
    fault_key(config, true, MILL_KEY_LISTENERS,
              "%s takes ports %u to %u and %s takes %u to %u, one for each of %u cores; move one "
              "out of the other's way (dataplane.core.endpoints)",
              a->name, a->port, a->port + count - 1, b->name, b->port, b->port + count - 1, count);
}

void listeners_resolve(struct mill_config *config)
{
    check_protocol_map(config);
    char item[LIST_ITEM_BYTES];
    for (const char *at = config->values[MILL_KEY_LISTENERS].text; list_next(&at, item);) {
        listener_add(config, item);
    }
    if (config->listeners_count == 0 && !config->has_error) {
        fault_key(config, true, MILL_KEY_LISTENERS,
                  "names no listener; give NAME://HOST:PORT, e.g. LOCAL://127.0.0.1:9092");
    }
    for (uint32_t i = 0; i < config->listeners_count; i++) {
        check_range(config, MILL_KEY_LISTENERS, &config->listeners[i], config->listeners[i].port);
        for (uint32_t j = 0; j < i; j++) {
            check_pair(config, &config->listeners[j], &config->listeners[i]);
        }
    }
    check_http(config);
}

/* --- what clients are told -------------------------------------------------------------------- */

/* For a listener on every address: the first address of an interface that is up and not loopback,
 * else the machine's name. */
static void own_address(char ret_host[MILL_CONFIG_HOST_BYTES])
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list) == 0) {
        for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
            bool fits = at->ifa_addr && at->ifa_addr->sa_family == AF_INET &&
                        (at->ifa_flags & IFF_UP) && !(at->ifa_flags & IFF_LOOPBACK);
            if (fits) {
                struct sockaddr_in address;
                memcpy(&address, at->ifa_addr, sizeof(address));
                found = inet_ntop(AF_INET, &address.sin_addr, ret_host, MILL_CONFIG_HOST_BYTES);
            }
        }
        freeifaddrs(list);
    }
    if (!found && gethostname(ret_host, MILL_CONFIG_HOST_BYTES) != 0) {
        snprintf(ret_host, MILL_CONFIG_HOST_BYTES, "localhost");
    }
    ret_host[MILL_CONFIG_HOST_BYTES - 1] = '\0';
}

static struct mill_config_listener *listener_named(struct mill_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->listeners_count; i++) {
        if (strcmp(config->listeners[i].name, name) == 0) {
            return &config->listeners[i];
        }
    }
    return NULL;
}

static const char *listener_name_at(const void *names, uint32_t index)
{
    const struct mill_config_listener *listeners = names;
    return listeners[index].name;
}

static void advertised_add(struct mill_config *config, const char *item)
{
    char name[MILL_CONFIG_NAME_BYTES];
    char host[MILL_CONFIG_HOST_BYTES];
    uint16_t port = 0;
    struct mill_report report = {0};
    if (parse_endpoint(item, name, host, &port, &report) < 0) {
        fault_key(config, true, MILL_KEY_ADVERTISED_LISTENERS, "%s", report.text);
        return;
    }
    struct mill_config_listener *listener = listener_named(config, name);
    if (!listener) {
        if (!is_controller(config, name)) {
            const char *near =
                nearest_name(name, listener_name_at, config->listeners, config->listeners_count);
            fault_key(config, true, MILL_KEY_ADVERTISED_LISTENERS,
                      "%s is not named in listeners%s%s%s", name, near ? "; did you mean \"" : "",
                      near ? near : "", near ? "\"?" : "");
        }
        return;
    }
    if (listener->advertised_port) {
        fault_key(config, true, MILL_KEY_ADVERTISED_LISTENERS, "%s is named twice", name);
        return;
    }
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) {
        fault_key(config, true, MILL_KEY_ADVERTISED_LISTENERS,
                  "%s: no client can connect to %s; give an address or a name", name, host);
        return;
    }
    snprintf(listener->advertised_host, sizeof(listener->advertised_host), "%s", host);
    listener->advertised_port = port;
}

/* Clients tell nodes apart by what they are told, so that ranges on one host must not meet. */
static void check_advertised(struct mill_config *config)
{
    uint32_t count = mill_config_core_endpoints(config);
    for (uint32_t i = 0; count > 1 && i < config->listeners_count; i++) {
        const struct mill_config_listener *a = &config->listeners[i];
        check_range(config, MILL_KEY_ADVERTISED_LISTENERS, a, a->advertised_port);
        for (uint32_t j = 0; j < i; j++) {
            const struct mill_config_listener *b = &config->listeners[j];
            if (strcmp(a->advertised_host, b->advertised_host) == 0 &&
                ranges_meet(a->advertised_port, count, b->advertised_port, count)) {
                fault_key(config, true, MILL_KEY_ADVERTISED_LISTENERS,
                          "%s and %s lead to overlapping ports of %s, one for each of %u cores "
                          "from %u and %u on (dataplane.core.endpoints)",
                          b->name, a->name, a->advertised_host, count, b->advertised_port,
                          a->advertised_port);
            }
        }
    }
}

void advertised_resolve(struct mill_config *config)
{
    const char *text = config->values[MILL_KEY_ADVERTISED_LISTENERS].text;
    char item[LIST_ITEM_BYTES];
    for (const char *at = text ? text : ""; list_next(&at, item);) {
        advertised_add(config, item);
    }
    for (uint32_t i = 0; i < config->listeners_count; i++) {
        struct mill_config_listener *listener = &config->listeners[i];
        listener->advertised_port =
            listener->advertised_port ? listener->advertised_port : listener->port;
        if (listener->advertised_host[0]) {
            continue;
        }
        bool wildcard = listener->host[0] == '\0' || is_any(listener->address);
        if (!wildcard) {
            memcpy(listener->advertised_host, listener->host, sizeof(listener->host));
        } else if (is_any(listener->address)) {
            own_address(listener->advertised_host);
        } else {
            /* A dpdk listener without a host took the address of its port. */
            bool ok = inet_ntop(AF_INET, listener->address + 12, listener->advertised_host,
                                sizeof(listener->advertised_host));
            MILL_ASSERT(ok);
        }
    }
    check_advertised(config);
}
