/* SPDX-License-Identifier: Apache-2.0 */
/* The device behind a port: what each driver is known to do, creation through EAL, and words for
 * what went wrong. Start-up only, on the main thread. */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/if_tun.h>

#include "base/device_drivers.h"
#include "base/siphash.h"
#include "dataplane/port/port_internal.h"

/* Facts of DPDK 22.11, read in its drivers. net_tap sums every segment as if it began at an even
 * place of the message, so a frame with an odd piece in the middle gets a wrong sum: ours is used
 * there, which costs the same, as the driver's is software too. */
static const struct mill_port_driver drivers[] = {
    {.prefix = MILL_DEVICE_TAP,
     .virtual_device = true,
     .stops_at_bad = true,
     .own_mac = true,
#ifndef MILL_MUTANT_PORT_TAP_CSUM
     .no_tx_csum = true,
#endif
     .needs_tun = true,
     .fd = true,
     .queues_equal = true},
    {.prefix = MILL_DEVICE_RING,
     .virtual_device = true,
     .own_mac = true,
     .passes_pointers = true,
     .memory = true},
    {.prefix = MILL_DEVICE_NULL, .virtual_device = true, .own_mac = true},
    {.prefix = MILL_DEVICE_MEMIF,
     .virtual_device = true,
     .own_mac = true,
     .no_tx_csum = true,
     .own_thread = true,
     .memory = true,
     .queues_equal = true,
     .one_queue = true},
    {.prefix = MILL_DEVICE_AF_XDP,
     .virtual_device = true,
     .stops_at_bad = true,
     .no_tx_csum = true,
     .never_chain = true,
     .one_chunk = true,
     .fd = true,
     .kernel_keeps = true,
     .rx_held = MILL_PORT_XDP_HELD,
     .rx_lost = MILL_PORT_XDP_HEADROOM,
     .queues_equal = true},
};

/* Any device on the PCI bus: what it reports is believed. */
static const struct mill_port_driver pci_driver = {.prefix = "pci"};

bool mill_port_is_pci(const char *device)
{
    unsigned int domain;
    unsigned int bus;
    unsigned int slot;
    unsigned int function;
    return sscanf(device, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4;
}

const struct mill_port_driver *mill_port_driver_find(const char *device)
{
    for (size_t i = 0; i < MILL_COUNT_OF(drivers); i++) {
        if (strncmp(device, drivers[i].prefix, strlen(drivers[i].prefix)) == 0) {
            return &drivers[i];
        }
    }
    return mill_port_is_pci(device) ? &pci_driver : NULL;
}

bool mill_port_argument(const char *device, const char *key, char *ret_value, size_t size_bytes)
{
    size_t key_length = strlen(key);
    for (const char *at = strchr(device, ','); at != NULL; at = strchr(at, ',')) {
        at++;
        if (strncmp(at, key, key_length) == 0 && at[key_length] == '=') {
            const char *value = at + key_length + 1;
            size_t length = strcspn(value, ",");
            if (length >= size_bytes) {
                return false;
            }
            memcpy(ret_value, value, length);
            ret_value[length] = '\0';
            return true;
        }
    }
    return false;
}

uint16_t mill_port_device_queues(const struct mill_port *port)
{
    if (port->options.queues_max > 0) {
        return port->options.queues_max;
    }
    return port->driver->one_queue ? 1 : UINT16_MAX;
}

/* --- words --------------------------------------------------------------------------------------
 */

/* Asks the kernel itself why a TAP cannot be had; the driver's answer is always EINVAL. */
static int explain_tap(const struct mill_port *port, struct mill_report *report)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_MULTI_QUEUE};
    char iface[IFNAMSIZ + 1] = "";
    const char *netns = port->options.netns;
    bool named = mill_port_argument(port->options.device, "iface", iface, sizeof(iface));
    if (strstr(port->options.device, "iface=") != NULL &&
        (!named || iface[0] == '\0' || strlen(iface) >= IFNAMSIZ)) {
        return mill_fail(report, -EINVAL, "the interface name in %s must have 1 to %d characters",
                         port->options.device, IFNAMSIZ - 1);
    }
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        int code = -errno;
        return mill_fail(report, code, "/dev/net/tun: %s; %s", strerror(-code),
                         code == -EACCES ? "start as root" : "load it with modprobe tun");
    }
    memcpy(request.ifr_name, iface, strlen(iface) + 1 < IFNAMSIZ ? strlen(iface) + 1 : IFNAMSIZ);
    int code = ioctl(fd, TUNSETIFF, &request) < 0 ? -errno : 0;
    close(fd);
    if (code == -EPERM || code == -EACCES) {
        return mill_fail(report, code,
                         "TAP %s: %s; it needs CAP_NET_ADMIN: start as root, or make it for this "
                         "user with ip tuntap add dev %s mode tap multi_queue user USER",
                         iface, strerror(-code), iface);
    }
    if (code == -EINVAL || code == -EBUSY) {
        return mill_fail(report, code,
                         "%s exists and is no free multi-queue TAP; ip link del %s, then %s%s%s"
                         "ip tuntap add dev %s mode tap multi_queue",
                         iface, iface, netns != NULL ? "ip netns exec " : "",
                         netns != NULL ? netns : "", netns != NULL ? " " : "", iface);
    }
    return mill_fail(report, code < 0 ? code : -EINVAL, "TAP %s: %s (%s)", iface,
                     code < 0 ? strerror(-code) : "refused by the driver", mill_eal_log_since());
}

static int explain_pci(const char *address, struct mill_report *report)
{
    char path[MILL_PORT_DEVICE_BYTES + 64];
    char link[MILL_PORT_DEVICE_BYTES];
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", address);
    if (access(path, F_OK) != 0) {
        return mill_fail(report, -ENODEV, "no PCI device %s; lspci -D shows what is there",
                         address);
    }
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver", address);
    ssize_t size_bytes = readlink(path, link, sizeof(link) - 1);
    const char *driver = "no driver";
    if (size_bytes > 0) {
        link[size_bytes] = '\0';
        driver = strrchr(link, '/') != NULL ? strrchr(link, '/') + 1 : link;
    }
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", address);
#ifndef MILL_MUTANT_PORT_GROUP_UNASKED
    if (access(path, F_OK) != 0) {
        return mill_fail(
            report, -ENODEV,
            "PCI device %s is in no IOMMU group, so vfio-pci cannot have it; switch on "
            "VT-d or AMD-Vi in the firmware, and intel_iommu=on on the kernel's "
            "command line",
            address);
    }
#endif
    if (strcmp(driver, "vfio-pci") != 0) {
        return mill_fail(report, -ENODEV,
                         "PCI device %s is bound to %s; modprobe vfio-pci && dpdk-devbind.py -b "
                         "vfio-pci %s",
                         address, driver, address);
    }
    return mill_fail(
        report, -ENODEV,
        "PCI device %s is on vfio-pci and DPDK could not take it (%s); another process "
        "may hold it: fuser -v /dev/vfio/*",
        address, mill_eal_log_since());
}

static int explain(const struct mill_port *port, int code, struct mill_report *report)
{
    if (port->driver->needs_tun) {
        return explain_tap(port, report);
    }
    if (!port->driver->virtual_device) {
        return explain_pci(port->device_name, report);
    }
    return mill_fail(report, code, "device %s: %s (%s)", port->options.device, strerror(-code),
                     mill_eal_log_since());
}

/* --- creation -----------------------------------------------------------------------------------
 */

static void make_mac(const struct mill_port *port, uint64_t salt, uint8_t ret_mac[6])
{
    struct {
        int64_t node_id;
        char name[MILL_PORT_NAME_BYTES];
    } of = {.node_id = port->options.node_id};
    const uint64_t key[2] = {0x6d696c6c72616365ull, salt};
    memcpy(of.name, port->options.name, strnlen(port->options.name, sizeof(of.name)));
    uint64_t hash = mill_siphash(key, &of, sizeof(of));
    memcpy(ret_mac, &hash, 6);
    ret_mac[0] = (uint8_t)((ret_mac[0] & 0xfcu) | 0x02u); /* local, one station */
}

/* The driver gives the kernel's end the port's address, so that ours must be another one; the
 * kernel's is fixed too, or its neighbours would learn a new one at each restart. */
static void tap_arguments(const struct mill_port *port, char *args, size_t size_bytes)
{
    uint8_t mac[6];
    size_t used = strlen(args);
    if (strstr(args, "mac=") != NULL || used >= size_bytes) {
        return;
    }
    make_mac(port, 1, mac);
    snprintf(args + used, size_bytes - used, "%smac=%02x:%02x:%02x:%02x:%02x:%02x",
             used > 0 ? "," : "", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

static int hotplug(struct mill_port *port, struct mill_report *report)
{
    char args[MILL_PORT_DEVICE_BYTES + MILL_PORT_PATH_BYTES] = "";
    const char *device = port->options.device;
    size_t name_length = strcspn(device, ",");
    if (name_length >= sizeof(port->device_name)) {
        return mill_fail(report, -ENAMETOOLONG, "device name in %s is longer than %zu", device,
                         sizeof(port->device_name) - 1);
    }
    memcpy(port->device_name, device, name_length);
    port->device_name[name_length] = '\0';
    if (device[name_length] == ',') {
        snprintf(args, sizeof(args), "%s", device + name_length + 1);
    }
    if (port->driver->needs_tun) {
        tap_arguments(port, args, sizeof(args));
    }
    if (port->driver->own_thread) {
        int code = mill_port_memif_prepare(port, args, sizeof(args), report);
        if (code < 0) {
            return code;
        }
    }
    if (port->driver->kernel_keeps) {
        int code = mill_port_xdp_prepare(port, report);
        code = code < 0 ? code : mill_port_xdp_arguments(port, args, sizeof(args), report);
        if (code < 0) {
            return code;
        }
    }
    mill_eal_log_mark();
    bool known = rte_eth_dev_get_port_by_name(port->device_name, &port->port_id) == 0;
    /* A card may be there since EAL's scan; a virtual device that exists is another port's, and EAL
     * would hand it out a second time without a word. */
    if (known && port->driver->virtual_device) {
        return mill_fail(report, -EEXIST,
                         "device %s is in use by another port; give each its own number",
                         port->device_name);
    }
    if (!known) {
        const char *bus = port->driver->virtual_device ? "vdev" : "pci";
        int code = rte_eal_hotplug_add(bus, port->device_name, args);
        if (code < 0) {
            return explain(port, code, report);
        }
    }
    port->created = true;
    if (rte_eth_dev_get_port_by_name(port->device_name, &port->port_id) != 0) {
        return explain(port, -ENODEV, report);
    }
    return 0;
}

int mill_port_device_create(struct mill_port *port, struct mill_report *report)
{
    struct rte_ether_addr address = {0};
    bool pair = strncmp(port->options.device, "net_ring_pair:", 14) == 0;
    int code = pair ? mill_port_pair_open(port, report) : hotplug(port, report);
    if (code < 0) {
        return code;
    }
    static const uint8_t none[6] = {0};
    if (memcmp(port->options.mac, none, sizeof(none)) != 0) {
        memcpy(port->mac, port->options.mac, sizeof(port->mac));
    } else if (port->driver->own_mac) {
        make_mac(port, port->client ? 2 : 0, port->mac);
    } else {
        (void)rte_eth_macaddr_get(port->port_id, &address);
        memcpy(port->mac, address.addr_bytes, sizeof(port->mac));
    }
    return 0;
}

void mill_port_device_remove(struct mill_port *port)
{
    if (port->created && port->xdp.half_built) {
        port->created = false; /* better left until the process ends, soon, than freed twice */
    }
    if (port->created) {
        (void)rte_eth_dev_close(port->port_id);
        (void)rte_eal_hotplug_remove(port->driver->virtual_device ? "vdev" : "pci",
                                     port->device_name);
        port->created = false;
    }
}
