/* SPDX-License-Identifier: Apache-2.0 */
/* The table of checks; see doctor.h. The probes lie by subject in the other doctor_*.c. */
#include "cli/doctor_probes.h"

static const struct doctor_check checks[] = {
    {"hugepages", "free hugepages for arena and DPDK",
     "The arena lies in hugepages; without them the broker does not start.",
     doctor_probe_hugepages},
    {"hugetlbfs", "the mount of hugepages.dir", "The arena's files live there.",
     doctor_probe_hugetlbfs},
    {"numa", "hugepages on the nodes of the cores",
     "Memory of another node costs about half of the bandwidth.", doctor_probe_numa},
    {"cpus", "the CPUs of dataplane.cores", "A core runs on its CPU alone.", doctor_probe_cpus},
    {"siblings", "hardware threads beside the cores",
     "Two threads of one processor core share its units: each runs at about half speed.",
     doctor_probe_siblings},
    {"isolation", "isolcpus and nohz_full for busy cores",
     "Every other task and each timer tick on the CPU is a gap in the poll loop.",
     doctor_probe_isolation},
    {"quota", "the control group's CPU quota",
     "A throttled core stands still for most of each period: latency grows to the period.",
     doctor_probe_quota},
    {"governor", "the frequency governor", "A CPU that clocks down answers its first request late.",
     doctor_probe_governor},
    {"clocksource", "the clock source", "The clock is read once a turn.", doctor_probe_clocksource},
    {"thp", "transparent hugepages", "khugepaged moves memory under running threads: pauses.",
     doctor_probe_thp},
    {"swap", "swap", "A page that was swapped out stops the core that touches it.",
     doctor_probe_swap},
    {"memlock", "the limit of locked memory",
     "DMA and registered buffers count against it; what cannot be registered is copied.",
     doctor_probe_memlock},
    {"nofile", "the limit of open files",
     "At the limit connections are refused and segments are closed and opened again.",
     doctor_probe_nofile},
    {"io_uring", "whether io_uring is permitted",
     "Kernel sockets cost a system call per operation without it.", doctor_probe_io_uring},
    {"bpf", "whether eBPF is permitted", "Who takes a core's CPU is not told without it.",
     doctor_probe_bpf},
    {"device", "the devices of dpdk.ports", "A port that cannot be opened ends the start.",
     doctor_probe_device},
    {"mtu", "MTU of interface and port",
     "Frames larger than the other side's MTU are lost without a word.", doctor_probe_mtu},
    {"offloads", "offloads of kernel peers", "Packets without sums or too long are dropped here.",
     doctor_probe_offloads},
    {"vfio", "driver and IOMMU group of PCI ports",
     "Only vfio-pci with an IOMMU lets a process drive a card safely.", doctor_probe_vfio},
    {"disk", "space and file system of log.dirs",
     "Without space produce is refused; over a network file system every sync waits for it.",
     doctor_probe_disk},
};

const struct doctor_check *doctor_checks(uint32_t *ret_count)
{
    *ret_count = MILL_COUNT_OF(checks);
    return checks;
}
