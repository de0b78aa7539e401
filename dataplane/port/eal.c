/* SPDX-License-Identifier: Apache-2.0 */
/* EAL: DPDK's own start, once per process, and what it logs. Start-up calls belong to the main
 * thread. Never touches a port.
 *
 * EAL is global to the process whatever we do, so this file holds the one static struct of the
 * folder: what EAL logged lately, for error texts. It logs nothing by itself.
 */
#include "dataplane/port/port.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/libbpf.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>

#include "dataplane/port/gate.h"
#include "dataplane/port/port_internal.h"

enum {
    EAL_ARGS_MAX = 48,
    EAL_ARGS_BYTES = 2048,
    EAL_LOG_BYTES = 512,
};

/* argv for rte_eal_init, its text beside it. */
struct eal_args {
    char *argv[EAL_ARGS_MAX + 1];
    int count;
    bool full;
    size_t used_bytes;
    char text[EAL_ARGS_BYTES];
};

static struct {
    bool started;
    FILE *log;
    pthread_mutex_t lock; /* EAL's interrupt thread logs too */
    size_t used_bytes;
    char text[EAL_LOG_BYTES]; /* the first lines since the mark: causes come before consequences */
} eal = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t log_write(void *cookie, const char *text, size_t size_bytes)
{
    MILL_UNUSED(cookie);
    pthread_mutex_lock(&eal.lock);
    for (size_t i = 0; i < size_bytes && eal.used_bytes + 1 < sizeof(eal.text); i++) {
        bool blank = text[i] == '\n' || text[i] == '\r' || text[i] == '\t';
        eal.text[eal.used_bytes++] = blank ? ' ' : text[i];
    }
    eal.text[eal.used_bytes] = '\0';
    pthread_mutex_unlock(&eal.lock);
    return (ssize_t)size_bytes;
}

void mill_eal_log_mark(void)
{
    pthread_mutex_lock(&eal.lock);
    eal.used_bytes = 0;
    eal.text[0] = '\0';
    pthread_mutex_unlock(&eal.lock);
}

const char *mill_eal_log_since(void)
{
    return eal.text[0] != '\0' ? eal.text : "no message of the driver";
}

/* libbpf's own lines: the kernel's reason is only there. */
static int log_bpf(enum libbpf_print_level level, const char *format, va_list list)
{
    char text[256];
    if (level > LIBBPF_WARN) {
        return 0;
    }
    int length = vsnprintf(text, sizeof(text), format, list);
    return (int)log_write(NULL, text, MILL_MIN((size_t)MILL_MAX(length, 0), sizeof(text) - 1));
}

static void add_arg(struct eal_args *args, const char *text)
{
    size_t size_bytes = strlen(text) + 1;
    if (args->count == EAL_ARGS_MAX || args->used_bytes + size_bytes > sizeof(args->text)) {
        args->full = true;
        return;
    }
    args->argv[args->count++] = memcpy(args->text + args->used_bytes, text, size_bytes);
    args->used_bytes += size_bytes;
}

static void add_split(struct eal_args *args, const char *text)
{
    char word[256];
    while (*text != '\0') {
        size_t length = strcspn(text, " \t");
        if (length > 0 && length < sizeof(word)) {
            memcpy(word, text, length);
            word[length] = '\0';
            add_arg(args, word);
        } else if (length > 0) {
            args->full = true;
        }
        text += length;
        text += strspn(text, " \t");
    }
}

/* Our threads are not EAL's: it gets one lcore, the calling thread. */
static int build_args(const struct mill_eal_options *options, const cpu_set_t *cpus,
                      struct eal_args *args)
{
    char text[64];
    unsigned int cpu = 0;
    while (cpu < CPU_SETSIZE - 1u && !CPU_ISSET(cpu, cpus)) {
        cpu++;
    }
    add_arg(args, "millraced");
    snprintf(text, sizeof(text), "0@%u", cpu);
    add_arg(args, "--lcores");
    add_arg(args, text);
    snprintf(text, sizeof(text), "%u", options->memory_mb);
    add_arg(args, "-m");
    add_arg(args, text);
    add_arg(args, "--file-prefix");
    add_arg(args, options->file_prefix);
    /* Our counters have their own way out; its socket would be one more file to leave behind. */
    add_arg(args, "--no-telemetry");
    if (options->hugepages) {
        add_arg(args, "--in-memory");
        /* One descriptor per memory segment list: memif passes them to its peer. */
        add_arg(args, "--single-file-segments");
    } else {
        /* 22.11 refuses --no-huge together with --in-memory; without shared configuration files
         * nothing is left behind either, and no root is needed. */
        add_arg(args, "--no-huge");
        add_arg(args, "--no-shconf");
    }
    for (uint32_t i = 0; i < options->pci_count; i++) {
        add_arg(args, "--allow");
        add_arg(args, options->pci[i]);
    }
    if (options->pci_count == 0) {
        /* Physical addresses would cut the pools into one piece per page. */
        add_arg(args, "--no-pci");
        add_arg(args, "--iova-mode=va");
    }
    if (options->extra_args != NULL) {
        add_split(args, options->extra_args);
    }
    args->argv[args->count] = NULL;
    return args->full ? -E2BIG : 0;
}

uint32_t mill_eal_pages_free(void)
{
    char line[128];
    uint32_t count = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "HugePages_Free:", 15) == 0) {
            count = (uint32_t)strtoul(line + 15, NULL, 10);
        }
    }
    fclose(file);
    return count;
}

static int start_failed(const struct mill_eal_options *options, int code,
                        struct mill_report *report)
{
    uint32_t wanted = (options->memory_mb + 1) / 2;
    if (options->hugepages && mill_eal_pages_free() < wanted) {
        return mill_fail(report, -ENOMEM,
                         "DPDK needs %u free hugepages of 2 MiB for dpdk.memory.mb=%u, %u are "
                         "free; sysctl -w vm.nr_hugepages=N with N larger by the difference, or "
                         "hugepages=off",
                         wanted, options->memory_mb, mill_eal_pages_free());
    }
    return mill_fail(report, code, "DPDK did not start: %s (%s)", strerror(-code),
                     mill_eal_log_since());
}

int mill_eal_start(const struct mill_eal_options *options, struct mill_report *report)
{
    struct eal_args args = {.count = 0};
    cpu_set_t cpus;
    if (eal.started) {
        return mill_fail(report, -EALREADY, "DPDK runs already; it starts once per process");
    }
    CPU_ZERO(&cpus);
    if (pthread_getaffinity_np(pthread_self(), sizeof(cpus), &cpus) != 0) {
        CPU_SET(0, &cpus);
    }
    if (build_args(options, &cpus, &args) < 0) {
        return mill_fail(report, -E2BIG, "dpdk.eal.args is too long: at most %d words, %d bytes",
                         EAL_ARGS_MAX, EAL_ARGS_BYTES);
    }
    if (eal.log == NULL) {
        eal.log = fopencookie(NULL, "w", (cookie_io_functions_t){.write = log_write});
        if (eal.log == NULL) {
            return mill_fail(report, -ENOMEM, "no memory for the log of DPDK");
        }
        setvbuf(eal.log, NULL, _IONBF, 0);
        rte_openlog_stream(eal.log);
        (void)libbpf_set_print(log_bpf);
    }
    rte_log_set_global_level(RTE_LOG_WARNING);
    mill_eal_log_mark();
    eal.started = true; /* also after a failure: EAL cannot be started a second time */
    int code = rte_eal_init(args.count, args.argv) < 0 ? -rte_errno : 0;
    /* EAL pinned this thread to its lcore's CPU; threads made later would inherit that. */
    (void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
    /* EAL made a folder for files that these modes do not have; a killed process must leave none.
     */
    (void)rmdir(rte_eal_get_runtime_dir());
    if (code < 0) {
        return start_failed(options, code, report);
    }
    rte_log_set_global_level(RTE_LOG_WARNING);
    /* EAL made a folder for files that these modes do not have; a killed process must leave none.
     */
    (void)rmdir(rte_eal_get_runtime_dir());
    return 0;
}

void mill_eal_stop(void)
{
    if (eal.started) {
        mill_gate_stop();
        (void)rte_eal_cleanup();
    }
}

int mill_port_thread_register(void)
{
    return rte_thread_register() < 0 ? -rte_errno : 0;
}

void mill_port_thread_unregister(void)
{
    rte_thread_unregister();
}
