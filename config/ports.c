/* SPDX-License-Identifier: Apache-2.0 */
/* DPDK ports: dpdk.ports and its dpdk.port.NAME keys, and whether the listeners on them fit. */
#include "config/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/device_drivers.h"

int parse_ipv4(const char *text, uint32_t *ret_address)
{
    struct in_addr address;
    if (inet_pton(AF_INET, text, &address) != 1) {
        return -EINVAL;
    }
    *ret_address = ntohl(address.s_addr);
    return 0;
}

static void parse_cidr(struct mill_config *config, const struct family_entry *entry,
                       struct mill_config_port *port)
{
    char host[64];
    const char *slash = strchr(entry->text, '/');
    int64_t bits = -1;
    size_t size = slash ? (size_t)(slash - entry->text) : 0;
    if (!slash || size >= sizeof(host) || parse_int(slash + 1, &bits) < 0 || bits < 1 ||
        bits > 30) {
        fault_family(config, true, entry,
                     "\"%s\" is not an IPv4 address with a prefix of 1 to 30 bits "
                     "(198.18.0.1/24)",
                     entry->text);
        return;
    }
    memcpy(host, entry->text, size);
    host[size] = '\0';
    if (parse_ipv4(host, &port->address) < 0) {
        fault_family(config, true, entry, "\"%s\" is not an IPv4 address", host);
        return;
    }
    port->prefix_bits = (uint8_t)bits;
    uint32_t mask = UINT32_MAX << (32 - bits);
    bool special = port->address >> 28 == 0xe || port->address >> 24 == 127 ||
                   port->address >> 24 == 0 || (port->address & ~mask) == 0 ||
                   (port->address | mask) == UINT32_MAX;
    if (special) {
        fault_family(config, true, entry,
                     "%s is a network, broadcast, multicast or loopback address; give a host's",
                     host);
    }
}

static void parse_mac(struct mill_config *config, const struct family_entry *entry,
                      struct mill_config_port *port)
{
    unsigned byte[6];
    int used = 0;
    int count = sscanf(entry->text, "%2x:%2x:%2x:%2x:%2x:%2x%n", &byte[0], &byte[1], &byte[2],
                       &byte[3], &byte[4], &byte[5], &used);
    if (count != 6 || entry->text[used] != '\0' || used != 17) {
        fault_family(config, true, entry,
                     "\"%s\" is not an Ethernet address; give it as 02:00:00:00:00:01",
                     entry->text);
        return;
    }
    uint32_t any = 0;
    for (uint32_t i = 0; i < 6; i++) {
        port->mac[i] = (uint8_t)byte[i];
        any |= byte[i];
    }
    port->has_mac = true;
    if ((byte[0] & 1) || any == 0) {
        fault_family(config, true, entry, "%s is a group address or zero; a port needs its own",
                     entry->text);
    }
}

/* An address of another host in the port's network. */
static void parse_neighbour(struct mill_config *config, const struct family_entry *entry,
                            const struct mill_config_port *port, uint32_t *ret_address)
{
    if (parse_ipv4(entry->text, ret_address) < 0) {
        fault_family(config, true, entry, "\"%s\" is not an IPv4 address", entry->text);
        return;
    }
    if (port->prefix_bits == 0) {
        return; /* the address has a fault of its own */
    }
    uint32_t mask = UINT32_MAX << (32 - port->prefix_bits);
    if ((*ret_address & mask) != (port->address & mask) || *ret_address == port->address) {
        fault_family(config, true, entry,
                     "%s is not another host of the port's network; give one there", entry->text);
    }
}

static bool is_memory(const char *device)
{
    return strncmp(device, MILL_DEVICE_MEMIF, strlen(MILL_DEVICE_MEMIF)) == 0 ||
           strncmp(device, MILL_DEVICE_RING, strlen(MILL_DEVICE_RING)) == 0;
}

static const char *const drivers[] = {MILL_DEVICE_DRIVERS};

static const char *driver_at(const void *names, uint32_t index)
{
    MILL_UNUSED(names);
    return drivers[index];
}

static bool is_pci(const char *device)
{
    unsigned int domain;
    unsigned int bus;
    unsigned int slot;
    unsigned int function;
    int end = 0;
    return sscanf(device, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end) == 4 &&
           (device[end] == '\0' || device[end] == ',');
}

/* The name in front of the arguments is a driver's with a number behind it, or a PCI address. */
static void check_device(struct mill_config *config, const struct family_entry *entry)
{
    char name[sizeof(((struct mill_config_port *)0)->device)];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(entry->text, ","), entry->text);
    size_t size = strlen(name);
    while (size > 0 && name[size - 1] >= '0' && name[size - 1] <= '9') {
        size--;
    }
    bool numbered = name[size] != '\0';
    if (is_pci(entry->text)) {
        return;
    }
    name[size] = '\0';
    for (uint32_t i = 0; i < MILL_COUNT_OF(drivers); i++) {
        if (strcmp(name, drivers[i]) == 0 && numbered) {
            return;
        }
    }
    const char *near = nearest_name(name, driver_at, NULL, MILL_COUNT_OF(drivers));
    if (near) {
        fault_family(config, true, entry, "\"%s\" is no device; did you mean \"%s0\"?", entry->text,
                     near);
        return;
    }
    fault_family(config, true, entry,
                 "\"%s\" is no device; give " MILL_DEVICE_TAP "0,iface=mill0, " MILL_DEVICE_MEMIF
                 "0,..., " MILL_DEVICE_AF_XDP "0,iface=eth0, or a PCI address (0000:03:00.0)",
                 entry->text);
}

/* A number of the port, its default when it is not given. Ranges were checked when it was read. */
static int64_t port_int(struct mill_config *config, enum family_key key, const char *name)
{
    const struct mill_key_family_info *infos = NULL;
    const struct family_entry *entry = family_find(config, key, name);
    int64_t number = 0;
    mill_key_families(&infos);
    if (!entry || parse_int(entry->text, &number) < 0) {
        int code = parse_int(infos[key].default_text, &number);
        MILL_ASSERT_EQ(code, 0); /* of the table */
    }
    return number;
}

/* The keys of one port. */
static void port_keys(struct mill_config *config, struct mill_config_port *port)
{
    const struct family_entry *entry = family_find(config, FAMILY_PORT_DEVICE, port->name);
    if (!entry || entry->text[0] == '\0') {
        fault_key(config, true, MILL_KEY_DPDK_PORTS,
                  "port \"%s\" has no device; add dpdk.port.%s.device=net_tap0,iface=mill0",
                  port->name, port->name);
    } else if (strlen(entry->text) >= sizeof(port->device)) {
        fault_family(config, true, entry, "is longer than %zu bytes", sizeof(port->device) - 1);
    } else {
        snprintf(port->device, sizeof(port->device), "%s", entry->text);
        check_device(config, entry);
    }
    entry = family_find(config, FAMILY_PORT_ADDRESS, port->name);
    if (entry) {
        parse_cidr(config, entry, port);
    } else {
        fault_key(config, true, MILL_KEY_DPDK_PORTS,
                  "port \"%s\" has no address; add dpdk.port.%s.address=198.18.0.1/24", port->name,
                  port->name);
    }
    entry = family_find(config, FAMILY_PORT_GATEWAY, port->name);
    if (entry) {
        parse_neighbour(config, entry, port, &port->gateway);
    }
    port->dma_peer = port->gateway;
    entry = family_find(config, FAMILY_PORT_DMA_PEER, port->name);
    if (entry) {
        parse_neighbour(config, entry, port, &port->dma_peer);
    }
    port->mtu = (uint16_t)port_int(config, FAMILY_PORT_MTU, port->name);
    port->syn_rate = (uint32_t)port_int(config, FAMILY_PORT_SYN_RATE, port->name);
    port->syn_burst = (uint32_t)port_int(config, FAMILY_PORT_SYN_BURST, port->name);
    entry = family_find(config, FAMILY_PORT_QUEUES, port->name);
    port->queues_max = entry ? (uint16_t)port_int(config, FAMILY_PORT_QUEUES, port->name) : 0;
    entry = family_find(config, FAMILY_PORT_RX_CSUM, port->name);
    port->rx_csum_trusted = entry && strcmp(entry->text, "trust") == 0;
    entry = family_find(config, FAMILY_PORT_TX_CSUM, port->name);
    port->tx_csum_off = entry && strcmp(entry->text, "off") == 0;
    if (port->tx_csum_off && !is_memory(port->device)) {
        fault_family(config, true, entry,
                     "off is for net_memif and net_ring, where both ends are memory; on %s bytes "
                     "can be damaged on the way",
                     port->device[0] ? port->device : "this device");
    }
    entry = family_find(config, FAMILY_PORT_MAC, port->name);
    if (entry) {
        parse_mac(config, entry, port);
    }
}

static bool port_name_fits(const char *name)
{
    /* The data plane's port names hold 31 characters; a dot would end the name in a key. */
    return strlen(name) < 32 && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789_-") == strlen(name);
}

static void port_add(struct mill_config *config, const char *name)
{
    if (!port_name_fits(name)) {
        fault_key(config, true, MILL_KEY_DPDK_PORTS,
                  "\"%s\" is no port name: letters, digits, _ and -, at most 31", name);
        return;
    }
    for (uint32_t i = 0; i < config->ports_count; i++) {
        if (strcasecmp(config->ports[i].name, name) == 0) {
            fault_key(config, true, MILL_KEY_DPDK_PORTS, "\"%s\" is named twice", name);
            return;
        }
    }
    if (config->ports_count == MILL_CONFIG_PORTS_MAX) {
        fault_key(config, true, MILL_KEY_DPDK_PORTS, "more than %u ports", MILL_CONFIG_PORTS_MAX);
        return;
    }
    struct mill_config_port *port = &config->ports[config->ports_count++];
    snprintf(port->name, sizeof(port->name), "%s", name);
    port_keys(config, port);
    for (uint32_t i = 0; i + 1 < config->ports_count; i++) {
        const struct mill_config_port *other = &config->ports[i];
        if (port->address && port->address == other->address) {
            fault_key(config, true, MILL_KEY_DPDK_PORTS, "\"%s\" and \"%s\" have the same address",
                      other->name, name);
        }
        if (port->device[0] && strcmp(port->device, other->device) == 0) {
            fault_key(config, true, MILL_KEY_DPDK_PORTS, "\"%s\" and \"%s\" have the same device",
                      other->name, name);
        }
    }
}

void ports_resolve(struct mill_config *config)
{
    const char *text = config->values[MILL_KEY_DPDK_PORTS].text;
    char item[LIST_ITEM_BYTES];
    for (const char *at = text ? text : ""; list_next(&at, item);) {
        port_add(config, item);
    }
}

static const char *port_name_at(const void *names, uint32_t index)
{
    const struct mill_config_port *ports = names;
    return ports[index].name;
}

static const struct mill_config_port *port_of(const struct mill_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->ports_count; i++) {
        if (strcmp(config->ports[i].name, name) == 0) {
            return &config->ports[i];
        }
    }
    return NULL;
}

static void check_listener(struct mill_config *config, struct mill_config_listener *listener)
{
    const struct family_entry *entry = family_find(config, FAMILY_LISTENER_DEVICE, listener->name);
    const struct mill_config_port *port = port_of(config, listener->device);
    if (!port) {
        const char *near =
            nearest_name(listener->device, port_name_at, config->ports, config->ports_count);
        fault_family(config, true, entry, "\"%s\" is not named in dpdk.ports%s%s%s",
                     listener->device, near ? "; did you mean \"" : "", near ? near : "",
                     near ? "\"?" : "");
        return;
    }
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t zero[16];
    uint32_t address = (uint32_t)listener->address[12] << 24 |
                       (uint32_t)listener->address[13] << 16 |
                       (uint32_t)listener->address[14] << 8 | listener->address[15];
    bool any = memcmp(listener->address, zero, sizeof(zero)) == 0 ||
               (memcmp(listener->address, mapped, sizeof(mapped)) == 0 && address == 0);
    if (any) {
        memcpy(listener->address, mapped, sizeof(mapped));
        for (uint32_t i = 0; i < 4; i++) {
            listener->address[12 + i] = (uint8_t)(port->address >> (24 - 8 * i));
        }
        return;
    }
    if (memcmp(listener->address, mapped, sizeof(mapped)) != 0 ||
        (port->prefix_bits && address != port->address)) {
        fault_key(config, true, MILL_KEY_LISTENERS,
                  "%s is at %s, but its port %s has another address "
                  "(dpdk.port.%s.address); use the same, or leave the host empty",
                  listener->name, listener->host, port->name, port->name);
    }
}

/* The namespace is there. A listener that may be absent makes it a warning. */
static void check_netns(struct mill_config *config, bool required)
{
    const char *netns = config->values[MILL_KEY_DPDK_NETNS].text;
    char path[PATH_BYTES];
    if (!netns || !netns[0]) {
        return;
    }
    bool is_path = strchr(netns, '/') != NULL;
    snprintf(path, sizeof(path), "%s%s", is_path ? "" : "/run/netns/", netns);
    if (access(path, F_OK) != 0) {
        fault_key(config, required, MILL_KEY_DPDK_NETNS,
                  "there is no network namespace %s (%s); make it with: ip netns add %s", netns,
                  strerror(errno), netns);
    }
}

void ports_check_listeners(struct mill_config *config)
{
    bool used = false;
    bool required = false;
    for (uint32_t i = 0; i < config->listeners_count; i++) {
        struct mill_config_listener *listener = &config->listeners[i];
        if (listener->transport == MILL_TRANSPORT_DPDK && listener->device[0]) {
            check_listener(config, listener);
            used = true;
            required = required || listener->required;
        }
    }
    if (used) {
        check_netns(config, required);
    }
}
