/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine gives right now, as JSON: memcpy to cold memory, CRC-32C, both at once, writes
 * into the page cache, fdatasync after an append of 4 KiB, a plain system call, and the time that a
 * spinning thread does not run. Usage: floor FOLDER (where the log files of a broker would lie). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/hist.h"

enum {
    MEMORY_BYTES = 256 << 20, /* far beyond any cache */
    PIECE_BYTES = 16384,      /* a usual batch */
    ROUNDS = 4,
    FILE_BYTES = 512 << 20,
    SYNC_BYTES = 4096,
    SYNCS = 200,
    CALLS = 1000000,
};

#define SPIN_NS (2 * MILL_NS_PER_S)
#define GAP_NS  20000 /* a spinning thread that is late by this did not run */

static uint64_t now(void)
{
    return mill_now_read().mono_ns;
}

static void need(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static double rate(uint64_t bytes, uint64_t time_ns)
{
    return (double)bytes * 1e9 / (double)time_ns;
}

static void print(const char *name, double value)
{
    printf("\"%s\": %.6g, ", name, value);
}

enum work { COPY, SUM, COPY_AND_SUM };

/* Best of some rounds over all of the memory, a batch at a time. */
static double memory_rate(enum work work, uint8_t *to, const uint8_t *from)
{
    volatile uint32_t kept = 0;
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = now();
        for (size_t at = 0; at < MEMORY_BYTES; at += PIECE_BYTES) {
            if (work == COPY) {
                memcpy(to + at, from + at, PIECE_BYTES);
            } else if (work == SUM) {
                kept = kept + mill_crc32c(from + at, PIECE_BYTES);
            } else {
                kept = kept + mill_crc32c_copy(MILL_CRC32C_START, to + at, from + at, PIECE_BYTES);
            }
        }
        double one = rate(MEMORY_BYTES, now() - begin_ns);
        best = one > best ? one : best;
    }
    return best;
}

static void memory(void)
{
    uint8_t *memory = mmap(NULL, 2 * (size_t)MEMORY_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    need(memory != MAP_FAILED, "memory");
    memset(memory, 1, 2 * (size_t)MEMORY_BYTES);
    print("memcpy_bytes_per_s", memory_rate(COPY, memory, memory + MEMORY_BYTES));
    print("crc32c_bytes_per_s", memory_rate(SUM, memory, memory + MEMORY_BYTES));
    print("copy_and_crc32c_bytes_per_s", memory_rate(COPY_AND_SUM, memory, memory + MEMORY_BYTES));
    munmap(memory, 2 * (size_t)MEMORY_BYTES);
}

static int file_open(const char *folder, char *path, size_t size_bytes)
{
    snprintf(path, size_bytes, "%s/floor-%d", folder, (int)getpid());
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    need(fd >= 0, path);
    need(unlink(path) == 0, path); /* gone with the process, however that ends */
    return fd;
}

static void files(const char *folder)
{
    static struct mill_hist syncs;
    static uint8_t piece[1 << 20];
    char path[512];
    int fd = file_open(folder, path, sizeof(path));
    uint64_t begin_ns = now();
    for (size_t at = 0; at < FILE_BYTES; at += sizeof(piece)) {
        need(write(fd, piece, sizeof(piece)) == (ssize_t)sizeof(piece), "write");
    }
    print("page_cache_write_bytes_per_s", rate(FILE_BYTES, now() - begin_ns));
    close(fd);
    fd = file_open(folder, path, sizeof(path));
    for (int i = 0; i < SYNCS; i++) {
        need(write(fd, piece, SYNC_BYTES) == SYNC_BYTES, "write");
        begin_ns = now();
        need(fdatasync(fd) == 0, "fdatasync");
        mill_hist_add(&syncs, now() - begin_ns);
    }
    close(fd);
    print("fdatasync_p50_us", (double)mill_hist_quantile(&syncs, 0.5) / 1e3);
    print("fdatasync_p99_us", (double)mill_hist_quantile(&syncs, 0.99) / 1e3);
}

static void calls(void)
{
    uint64_t begin_ns = now();
    for (int i = 0; i < CALLS; i++) {
        need(getppid() > 0, "getppid");
    }
    print("system_call_ns", (double)(now() - begin_ns) / CALLS);
}

/* Time between two looks at the clock, when it is far more than a look takes. */
static void spin(void)
{
    uint64_t begin_ns = now();
    uint64_t before_ns = begin_ns;
    uint64_t lost_ns = 0;
    uint64_t longest_ns = 0;
    uint64_t gaps = 0;
    while (before_ns - begin_ns < SPIN_NS) {
        uint64_t after_ns = now();
        uint64_t gap_ns = after_ns - before_ns;
        if (gap_ns > GAP_NS) {
            gaps++;
            lost_ns += gap_ns;
            longest_ns = gap_ns > longest_ns ? gap_ns : longest_ns;
        }
        before_ns = after_ns;
    }
    print("spin_lost_share", (double)lost_ns / (double)SPIN_NS);
    print("spin_gaps_per_s", (double)gaps * 1e9 / (double)SPIN_NS);
    printf("\"spin_longest_gap_us\": %.6g", (double)longest_ns / 1e3);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: floor FOLDER\n");
        return 2;
    }
    printf("{");
    memory();
    files(argv[1]);
    calls();
    spin();
    printf("}\n");
    return 0;
}
