/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of DPDK devices, their drivers, MTU, offloads and NUMA nodes. */
#include "cli/doctor_probes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/device_drivers.h"

/* iface=NAME among a device's arguments. */
static bool iface_of(const struct mill_config_port *port, char ret_name[DOCTOR_NAME_BYTES])
{
    const char *at = strstr(port->device, "iface=");
    if (!at) {
        return false;
    }
    at += strlen("iface=");
    snprintf(ret_name, DOCTOR_NAME_BYTES, "%.*s",
             (int)MILL_MIN(strcspn(at, ","), (size_t)DOCTOR_NAME_BYTES - 1), at);
    return true;
}

static bool has_driver(const struct mill_config_port *port, const char *driver)
{
    return strncmp(port->device, driver, strlen(driver)) == 0;
}

static bool is_pci(const struct mill_config_port *port)
{
    return strchr(port->device, ':') != NULL && !has_driver(port, "net_");
}

void doctor_probe_device(const struct doctor *doctor, struct doctor_finding *finding)
{
    const struct mill_config_port *ports;
    uint32_t count = mill_config_ports(doctor->config, &ports);
    char path[DOCTOR_PATH_BYTES];
    char name[DOCTOR_NAME_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        if (has_driver(&ports[i], MILL_DEVICE_TAP) && !doctor_exists(doctor, "/dev/net/tun")) {
            doctor_found(finding, DOCTOR_BAD, "port %s needs /dev/net/tun, which is not there",
                         ports[i].name);
            doctor_mend(finding, "modprobe tun");
        } else if (has_driver(&ports[i], MILL_DEVICE_AF_XDP) && iface_of(&ports[i], name)) {
            snprintf(path, sizeof(path), "/sys/class/net/%s", name);
            if (!doctor_exists(doctor, path) &&
                !mill_config_text(doctor->config, MILL_KEY_DPDK_NETNS)) {
                doctor_found(finding, DOCTOR_BAD, "port %s: there is no interface %s",
                             ports[i].name, name);
                doctor_mend(finding, "ip link show");
            }
        }
    }
}

void doctor_probe_mtu(const struct doctor *doctor, struct doctor_finding *finding)
{
    const struct mill_config_port *ports;
    uint32_t count = mill_config_ports(doctor->config, &ports);
    char text[DOCTOR_LINE_BYTES];
    char name[DOCTOR_NAME_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        /* In a namespace of its own it cannot be seen here. */
        if (iface_of(&ports[i], name) && !mill_config_text(doctor->config, MILL_KEY_DPDK_NETNS) &&
            doctor_line(doctor, text, "/sys/class/net/%s/mtu", name) &&
            strtoul(text, NULL, 10) != ports[i].mtu) {
            doctor_found(finding, DOCTOR_BAD, "interface %s has MTU %.16s, port %s has %u", name,
                         text, ports[i].name, ports[i].mtu);
            doctor_mend(finding, "ip link set %s mtu %u", name, ports[i].mtu);
        }
    }
}

/* veth: no device below it, and a peer with another number. */
void doctor_probe_offloads(const struct doctor *doctor, struct doctor_finding *finding)
{
    const struct mill_config_port *ports;
    uint32_t count = mill_config_ports(doctor->config, &ports);
    char link[DOCTOR_LINE_BYTES];
    char index[DOCTOR_LINE_BYTES];
    char name[DOCTOR_NAME_BYTES];
    char path[DOCTOR_PATH_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        if (!has_driver(&ports[i], MILL_DEVICE_AF_XDP) || !iface_of(&ports[i], name)) {
            continue;
        }
        snprintf(path, sizeof(path), "/sys/class/net/%s/device", name);
        if (!doctor_exists(doctor, path) &&
            doctor_line(doctor, link, "/sys/class/net/%s/iflink", name) &&
            doctor_line(doctor, index, "/sys/class/net/%s/ifindex", name) &&
            strcmp(link, index) != 0) {
            doctor_found(
                finding, DOCTOR_ADVICE,
                "%s is a veth: what its peer leaves to offloads arrives without sums, or too long",
                name);
            doctor_mend(finding, "ethtool -K PEER tx off tso off gso off (PEER: interface %.16s)",
                        link);
        }
    }
}

void doctor_probe_vfio(const struct doctor *doctor, struct doctor_finding *finding)
{
    const struct mill_config_port *ports;
    uint32_t count = mill_config_ports(doctor->config, &ports);
    for (uint32_t i = 0; i < count; i++) {
        char path[DOCTOR_PATH_BYTES];
        char target[DOCTOR_PATH_BYTES];
        char address[DOCTOR_NAME_BYTES];
        snprintf(address, sizeof(address), "%.*s",
                 (int)MILL_MIN(strcspn(ports[i].device, ","), sizeof(address) - 1),
                 ports[i].device);
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", address);
        if (!is_pci(&ports[i])) {
            continue;
        }
        if (!doctor_exists(doctor, path)) {
            doctor_found(finding, DOCTOR_BAD, "port %s: there is no PCI device %s", ports[i].name,
                         address);
            doctor_mend(finding, "lspci -D");
            return;
        }
        doctor_path(doctor, path, "/sys/bus/pci/devices/%s/driver", address);
        ssize_t size = readlink(path, target, sizeof(target) - 1);
        target[MILL_MAX(size, 0)] = '\0';
        const char *driver = strrchr(target, '/') ? strrchr(target, '/') + 1 : target;
        if (strcmp(driver, "vfio-pci") != 0) {
            doctor_found(finding, DOCTOR_BAD, "%s has the driver \"%.32s\", not vfio-pci", address,
                         driver);
            doctor_mend(finding, "dpdk-devbind.py --bind=vfio-pci %s", address);
            return;
        }
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", address);
        if (!doctor_exists(doctor, path)) {
            doctor_found(finding, DOCTOR_BAD, "%s is in no IOMMU group", address);
            doctor_mend(finding,
                        "boot with intel_iommu=on (or amd_iommu=on), and switch it on in the "
                        "firmware");
            return;
        }
    }
}

void doctor_probe_numa(const struct doctor *doctor, struct doctor_finding *finding)
{
    char nodes[DOCTOR_LINE_BYTES];
    char text[DOCTOR_LINE_BYTES];
    char path[DOCTOR_PATH_BYTES];
    const uint32_t *cpus;
    uint32_t count = mill_config_cores(doctor->config, &cpus);
    if (!mill_config_bool(doctor->config, MILL_KEY_HUGEPAGES) ||
        !doctor_line(doctor, nodes, "/sys/devices/system/node/online") || !strpbrk(nodes, ",-")) {
        return;
    }
    for (uint32_t node = 0; node < 64; node++) {
        bool has_core = false;
        for (uint32_t i = 0; i < count; i++) {
            snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpu%u", node, cpus[i]);
            has_core = has_core || doctor_exists(doctor, path);
        }
        if (has_core &&
            doctor_line(doctor, text,
                        "/sys/devices/system/node/node%u/hugepages/hugepages-2048kB/nr_hugepages",
                        node) &&
            strtoull(text, NULL, 10) == 0) {
            doctor_found(
                finding, DOCTOR_ADVICE,
                "node %u has cores but no hugepages of its own: their memory is another node's",
                node);
            doctor_mend(finding,
                        "echo %lld > "
                        "/sys/devices/system/node/node%u/hugepages/hugepages-2048kB/nr_hugepages",
                        (long long)mill_config_int(doctor->config, MILL_KEY_HUGEPAGES_SIZE_MB) / 2,
                        node);
            return;
        }
    }
}
