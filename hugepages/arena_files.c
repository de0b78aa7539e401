/* SPDX-License-Identifier: Apache-2.0 */
/* The arena's files: probing what an earlier process left, making, mapping, NUMA placement and
 * faulting in. Start-up only, one thread; blocks as long as the kernel needs to clear pages. After
 * it every page is there: no later touch can fail.
 *
 *   reservation (PROT_NONE, aligned to 2 MiB):  | arena0 ......... | arena1 ......... |
 */
#include "hugepages/arena_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>
#include <numa.h>
#include <numaif.h>

#include "base/check.h"
#include "base/crc32c.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older kernels answer EINVAL */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
    NODE_ASKS = 128, /* pages per call of move_pages */
};

#define HUGEPAGE_POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

bool arena_path(const char *dir, uint32_t index, char ret_path[ARENA_PATH_BYTES])
{
    int length = snprintf(ret_path, ARENA_PATH_BYTES, "%s/arena%" PRIu32, dir, index);
    return length > 0 && length < ARENA_PATH_BYTES;
}

/* --- geometry ----------------------------------------------------------------------------------
 */

int arena_geometry_make(uint64_t size_bytes, uint32_t files_length, uint32_t marks_length,
                        uint32_t extent_bytes_max, struct arena_geometry *ret_geometry,
                        struct mill_report *report)
{
    struct arena_geometry made = {
        .files_length = files_length,
        .marks_length = marks_length,
        .extent_bytes_max = extent_bytes_max,
        .marks_pos_bytes = ARENA_HEADER_BYTES,
    };
    if (files_length == 0 || files_length > MILL_ARENA_NODES_MAX || marks_length == 0 ||
        extent_bytes_max < MILL_EXTENT_UNIT_BYTES ||
        extent_bytes_max > (uint32_t)MILL_EXTENT_UNIT_BYTES << ARENA_CLASS_MAX) {
        return mill_fail(report, -EINVAL,
                         "arena: %" PRIu32 " nodes (1 to %d), %" PRIu32
                         " partitions (at least 1), largest extent %" PRIu32 " (4 KiB to 1 GiB)",
                         files_length, MILL_ARENA_NODES_MAX, marks_length, extent_bytes_max);
    }
    if (size_bytes == 0 || size_bytes / MILL_EXTENT_UNIT_BYTES >= UINT32_MAX / 2) {
        return mill_fail(report, -EINVAL, "arena: %" PRIu64 " bytes cannot be addressed",
                         size_bytes);
    }
    made.file_bytes =
        mill_round_up((size_bytes + files_length - 1) / files_length, MILL_CHUNK_BYTES);
    uint64_t marks_bytes = (uint64_t)marks_length * sizeof(struct mill_partition_mark);
    uint64_t descs_bytes =
        made.file_bytes / MILL_EXTENT_UNIT_BYTES * sizeof(struct mill_extent_desc);
    made.descs_pos_bytes = mill_round_up(made.marks_pos_bytes + marks_bytes, ARENA_PAGE_BYTES);
    made.data_pos_bytes = mill_round_up(made.descs_pos_bytes + descs_bytes, MILL_CHUNK_BYTES);
    uint64_t extent_bytes = MILL_EXTENT_UNIT_BYTES;
    while (extent_bytes < extent_bytes_max) {
        extent_bytes <<= 1;
    }
    uint64_t least_bytes = made.data_pos_bytes + mill_round_up(extent_bytes, MILL_CHUNK_BYTES);
    if (made.file_bytes < least_bytes) {
        return mill_fail(report, -EINVAL,
                         "arena: %" PRIu64 " MiB on each of %" PRIu32
                         " nodes do not hold its tables and one largest extent: raise "
                         "hugepages.size.mb to at least %" PRIu64,
                         made.file_bytes >> 20, files_length, (least_bytes * files_length) >> 20);
    }
    *ret_geometry = made;
    return 0;
}

static uint32_t header_crc(const struct arena_header *header)
{
    const size_t from = offsetof(struct arena_header, version);
    return mill_crc32c((const uint8_t *)header + from,
                       offsetof(struct arena_header, crc32c) - from);
}

static void header_fill(struct arena_header *header, const struct arena_geometry *geometry,
                        uint32_t index, int node, const struct mill_uuid *made_id)
{
    header->version = MILL_ARENA_VERSION;
    header->size_bytes = geometry->file_bytes;
    header->index = index;
    header->files_length = geometry->files_length;
    header->made_id = *made_id;
    header->marks_pos_bytes = geometry->marks_pos_bytes;
    header->descs_pos_bytes = geometry->descs_pos_bytes;
    header->data_pos_bytes = geometry->data_pos_bytes;
    header->marks_length = geometry->marks_length;
    header->extent_bytes_max = geometry->extent_bytes_max;
    header->node = node;
    header->crc32c = header_crc(header);
}

/* --- what is there -------------------------------------------------------------------------------
 */

/* Opens an existing file when it is ours alone. ret: descriptor, -ENOENT, -EPERM, -errno. */
static int open_existing(const char *path, struct stat *ret_stat, struct mill_report *report)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        int error = errno;
        return error == ENOENT
                   ? -ENOENT
                   : mill_fail(report, -error, "arena file %s: %s", path, strerror(error));
    }
    if (fstat(fd, ret_stat) != 0) {
        int error = errno;
        close(fd);
        return mill_fail(report, -error, "arena file %s: %s", path, strerror(error));
    }
    if (!S_ISREG(ret_stat->st_mode) || ret_stat->st_uid != geteuid() ||
        (ret_stat->st_mode & 077) != 0) {
        close(fd);
        return mill_fail(report, -EPERM,
                         "arena file %s: mode %04o, owner %u: must be a plain file of user %u "
                         "with mode 0600, as others could have written it; remove it, or chown "
                         "and chmod it if you trust what it holds",
                         path, ret_stat->st_mode & 07777u, ret_stat->st_uid, geteuid());
    }
    return fd;
}

/* Reads a header by mapping: hugetlbfs refuses pread on some kernels. */
static int read_header(int fd, uint64_t size_bytes, struct arena_header *ret_header)
{
    if (size_bytes < MILL_CHUNK_BYTES) {
        memset(ret_header, 0, sizeof(*ret_header));
        return 0;
    }
    void *map = mmap(NULL, MILL_CHUNK_BYTES, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED) {
        return -errno;
    }
    /* A hole in the file on hugetlbfs would take a page on the first touch, or SIGBUS when there is
     * none; this call fails instead. EINVAL: a kernel before 5.14. */
    if (madvise(map, ARENA_HEADER_BYTES, MADV_POPULATE_READ) != 0 && errno != EINVAL) {
        int error = errno;
        munmap(map, MILL_CHUNK_BYTES);
        return -error;
    }
    memcpy(ret_header, map, sizeof(*ret_header));
    munmap(map, MILL_CHUNK_BYTES);
    return 0;
}

/* Checks one header against itself, its file's size and the first file's header. */
static int header_check(const char *path, const struct arena_header *header, uint64_t size_bytes,
                        uint32_t index, const struct arena_header *first,
                        struct arena_geometry *ret_geometry, struct mill_report *report)
{
    struct mill_report inner = {.text = ""};
    struct arena_geometry made;
    if (header->magic != MILL_ARENA_MAGIC) {
        return mill_fail(report, -ESTALE, "arena file %s: not an arena", path);
    }
    if (header->version != MILL_ARENA_VERSION) {
        return mill_fail(report, -ESTALE, "arena file %s: layout version %" PRIu32 ", not %d", path,
                         header->version, MILL_ARENA_VERSION);
    }
#ifndef MILL_MUTANT_MEMORY_HEADER_UNSUMMED
    if (header->crc32c != header_crc(header)) {
        return mill_fail(report, -ESTALE, "arena file %s: its header is damaged", path);
    }
#endif
    if (header->index != index || header->files_length != first->files_length ||
        header->size_bytes != first->size_bytes ||
        !mill_uuid_equal(&header->made_id, &first->made_id)) {
        return mill_fail(report, -ESTALE, "arena file %s: belongs to another arena", path);
    }
    if (header->size_bytes != size_bytes || size_bytes % MILL_CHUNK_BYTES != 0 ||
        header->files_length == 0 || header->files_length > MILL_ARENA_NODES_MAX ||
        arena_geometry_make(size_bytes * header->files_length, header->files_length,
                            header->marks_length, header->extent_bytes_max, &made, &inner) != 0 ||
        made.marks_pos_bytes != header->marks_pos_bytes ||
        made.descs_pos_bytes != header->descs_pos_bytes ||
        made.data_pos_bytes != header->data_pos_bytes) {
        return mill_fail(report, -ESTALE,
                         "arena file %s: its header does not fit its size of %" PRIu64 " bytes",
                         path, size_bytes);
    }
    *ret_geometry = made;
    return 0;
}

/* Opens one file and reads its header. ret: 1, 0 absent or without content, -errno. */
static int probe_one(const char *dir, uint32_t index, struct arena_header *ret_header,
                     uint64_t *ret_size_bytes, struct mill_report *report)
{
    char path[ARENA_PATH_BYTES];
    struct stat stat;
    if (!arena_path(dir, index, path)) {
        return mill_fail(report, -ENAMETOOLONG, "arena folder %s: name too long", dir);
    }
    int fd = open_existing(path, &stat, report);
    if (fd < 0) {
        return fd == -ENOENT ? 0 : fd;
    }
    *ret_size_bytes = (uint64_t)stat.st_size;
    int error = read_header(fd, *ret_size_bytes, ret_header);
    close(fd);
    if (error != 0) {
        return mill_fail(report, error, "arena file %s: cannot read its header: %s", path,
                         strerror(-error));
    }
    return ret_header->magic != 0 ? 1 : 0;
}

int arena_files_probe(const char *dir, struct arena_geometry *ret_geometry,
                      struct mill_report *report)
{
    struct arena_header first = {0};
    uint64_t size_bytes = 0;
    char path[ARENA_PATH_BYTES] = "";
    int got = probe_one(dir, 0, &first, &size_bytes, report);
    if (got <= 0) {
        /* Making and removing begin and end with arena0's magic: without it the others, if there
         * are any, hold nothing. */
        return got;
    }
    MILL_ASSERT(arena_path(dir, 0, path));
    int error = header_check(path, &first, size_bytes, 0, &first, ret_geometry, report);
    for (uint32_t i = 1; error == 0 && i < first.files_length; i++) {
        struct arena_header header = {0};
        MILL_ASSERT(arena_path(dir, i, path));
        got = probe_one(dir, i, &header, &size_bytes, report);
        if (got == 0) {
            return mill_fail(report, -ESTALE,
                             "arena file %s: missing, though arena0 names %" PRIu32 " files", path,
                             first.files_length);
        }
        error = got < 0 ? got
                        : header_check(path, &header, size_bytes, i, &first, ret_geometry, report);
    }
    return error != 0 ? error : 1;
}

int arena_files_remove(const char *dir)
{
    int result = 0;
    for (uint32_t i = 0; i < MILL_ARENA_NODES_MAX; i++) {
        char path[ARENA_PATH_BYTES];
        if (!arena_path(dir, i, path)) {
            return -ENAMETOOLONG;
        }
        if (unlink(path) != 0 && errno != ENOENT && result == 0) {
            result = -errno;
        }
    }
    return result;
}

/* --- pages ---------------------------------------------------------------------------------------
 */

static uint64_t read_number(const char *path)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    return got > 0 ? strtoull(text, NULL, 10) : 0;
}

static uint64_t pages_free(void)
{
    uint64_t free_count = read_number(HUGEPAGE_POOL "free_hugepages");
    uint64_t reserved = read_number(HUGEPAGE_POOL "resv_hugepages");
    return free_count > reserved ? free_count - reserved : 0;
}

/* Pages that files of an earlier process hold already. */
static uint64_t pages_held(const char *dir)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < MILL_ARENA_NODES_MAX; i++) {
        char path[ARENA_PATH_BYTES];
        struct stat stat;
        if (arena_path(dir, i, path) && lstat(path, &stat) == 0) {
            held += (uint64_t)stat.st_blocks * 512 / MILL_CHUNK_BYTES;
        }
    }
    return held;
}

uint64_t mill_arena_pages_missing(const struct mill_arena_options *options)
{
    uint64_t files = options->nodes > 0 ? options->nodes : 1;
    uint64_t needed = mill_round_up((options->size_bytes + files - 1) / files, MILL_CHUNK_BYTES) /
                      MILL_CHUNK_BYTES * files;
    uint64_t there = pages_free() + pages_held(options->dir);
    return options->hugepages && needed > there ? needed - there : 0;
}

static int fail_no_space(const struct mill_arena_options *options, uint64_t size_bytes,
                         uint64_t free_count, int node, struct mill_report *report)
{
    uint64_t needed = size_bytes / MILL_CHUNK_BYTES;
    if (!options->hugepages) {
        struct statfs fs;
        uint64_t free_bytes =
            statfs(options->dir, &fs) == 0 ? (uint64_t)fs.f_bsize * fs.f_bavail : 0;
        return mill_fail(report, -ENOSPC,
                         "arena: %s has %" PRIu64 " MiB free, %" PRIu64
                         " are needed: enlarge it (mount -o remount,size=...) or lower "
                         "hugepages.size.mb",
                         options->dir, free_bytes >> 20, size_bytes >> 20);
    }
    if (free_count >= needed && node >= 0) {
        return mill_fail(report, -ENOSPC,
                         "arena: NUMA node %d has too few free hugepages of 2 MiB: raise "
                         "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages "
                         "by up to %" PRIu64,
                         node, node, needed / options->nodes);
    }
    uint64_t missing = needed > free_count ? needed - free_count : 1;
    return mill_fail(report, -ENOSPC,
                     "arena: %" PRIu64 " hugepages of 2 MiB are needed, %" PRIu64
                     " are free, %" PRIu64 " are missing: sysctl -w vm.nr_hugepages=%" PRIu64,
                     needed, free_count, missing,
                     read_number(HUGEPAGE_POOL "nr_hugepages") + missing);
}

/* The index-th NUMA node of the machine, -1 when there is none (or no NUMA at all). */
static int node_at(uint32_t index)
{
    if (numa_available() < 0) {
        return -1;
    }
    for (int node = 0; node <= numa_max_node(); node++) {
        if (numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned)node) && index-- == 0) {
            return node;
        }
    }
    return -1;
}

/* Takes all pages of a file, on its node where the node has them; what is elsewhere is better than
 * nothing, and is counted (count_elsewhere). By the thread's policy: hugetlbfs keeps none with the
 * file (its mappings have no set_policy), so that fallocate would not see an mbind. A kernel or
 * container without set_mempolicy places as it likes. ret: 0, errno. */
static int take_pages(int fd, uint64_t size_bytes, int node)
{
    unsigned long mask[2] = {0, 0};
    if (node >= 0 && (size_t)node < 8 * sizeof(mask)) {
        mask[(size_t)node / (8 * sizeof(mask[0]))] |= 1ul << ((size_t)node % (8 * sizeof(mask[0])));
#ifndef MILL_MUTANT_MEMORY_ANY_NODE
        (void)set_mempolicy(MPOL_PREFERRED, mask, 8 * sizeof(mask));
#endif
    }
    int error = fallocate(fd, 0, 0, (off_t)size_bytes) != 0 ? errno : 0;
    (void)set_mempolicy(MPOL_DEFAULT, NULL, 0);
    return error;
}

/* Bytes of a mapped file that lie on another node than its own; 0 when nobody can say. Asked once
 * per 2 MiB. */
static uint64_t count_elsewhere(uint8_t *base, uint64_t size_bytes, int node)
{
    void *pages[NODE_ASKS];
    int nodes[NODE_ASKS];
    uint64_t elsewhere_bytes = 0;
    for (uint64_t at = 0; node >= 0 && at < size_bytes;) {
        unsigned long count = 0;
        for (; count < NODE_ASKS && at < size_bytes; at += MILL_CHUNK_BYTES) {
            pages[count++] = base + at;
        }
        if (move_pages(0, count, pages, NULL, nodes, 0) != 0) {
            return 0;
        }
        for (unsigned long i = 0; i < count; i++) {
            elsewhere_bytes += nodes[i] >= 0 && nodes[i] != node ? MILL_CHUNK_BYTES : 0;
        }
    }
    return elsewhere_bytes;
}

/* Touches every page for writing. ret: 0, -errno (-EFAULT and -EHWPOISON: broken memory). */
static int fault_in(uint8_t *base, uint64_t size_bytes, uint32_t page_bytes)
{
    if (madvise(base, size_bytes, MADV_POPULATE_WRITE) == 0) {
        return 0;
    }
    if (errno != EINVAL) {
        return -errno;
    }
    /* Adding 0 writes the page and leaves what an earlier process wrote. The pages were allocated
     * by fallocate, so that this cannot raise SIGBUS. */
    for (uint64_t at = 0; at < size_bytes; at += page_bytes) {
        (void)__atomic_fetch_add(base + at, 0, __ATOMIC_RELAXED);
    }
    return 0;
}

/* --- mapping -------------------------------------------------------------------------------------
 */

/* Address space for all files, aligned to 2 MiB. ret: 0, -ENOMEM. */
static int reserve(uint64_t size_bytes, uint8_t **ret_base)
{
    uint64_t more_bytes = size_bytes + MILL_CHUNK_BYTES;
    uint8_t *at =
        mmap(NULL, more_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return -errno;
    }
    uint64_t lead_bytes = mill_round_up((uintptr_t)at, MILL_CHUNK_BYTES) - (uintptr_t)at;
    if (lead_bytes > 0) {
        munmap(at, lead_bytes);
    }
    munmap(at + lead_bytes + size_bytes, more_bytes - lead_bytes - size_bytes);
    *ret_base = at + lead_bytes;
    return 0;
}

static int open_file(const char *path, bool fresh, struct mill_report *report)
{
    struct stat stat;
    if (!fresh) {
        int fd = open_existing(path, &stat, report);
        return fd == -ENOENT ? mill_fail(report, fd, "arena file %s: vanished", path) : fd;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        int error = errno;
        return mill_fail(report, -error, "arena file %s: cannot create: %s", path, strerror(error));
    }
    return fd;
}

/* Opens, sizes, maps, places, allocates and faults one file at its place in the reservation. */
static int map_one(struct mill_arena *arena, const struct mill_arena_options *options,
                   uint32_t index, bool fresh, uint64_t free_count, struct mill_report *report)
{
    const uint64_t file_bytes = arena->geometry.file_bytes;
    struct arena_file *file = &arena->files[index];
    char path[ARENA_PATH_BYTES];
    int error = 0;
    MILL_ASSERT(arena_path(arena->dir, index, path));
    int fd = open_file(path, fresh, report);
    if (fd < 0) {
        return fd;
    }
    file->base = arena->base + index * file_bytes;
    file->header = (struct arena_header *)(void *)file->base;
    file->descs = (struct mill_extent_desc *)(void *)(file->base + arena->geometry.descs_pos_bytes);
    file->node = node_at(index);
    if (fresh && ftruncate(fd, (off_t)file_bytes) != 0) {
        error = errno;
        goto out;
    }
    /* Without reservation: the pages are taken below, where a lack has its own error. */
    if (mmap(file->base, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             fd, 0) == MAP_FAILED) {
        error = errno;
        goto out;
    }
    error = take_pages(fd, file_bytes, file->node);
    if (error == 0) {
        error = -fault_in(file->base, file_bytes, arena->page_bytes);
    }
    arena->elsewhere_bytes += error == 0 ? count_elsewhere(file->base, file_bytes, file->node) : 0;
out:
    close(fd);
    if (error == ENOSPC || error == ENOMEM) {
        return fail_no_space(options, file_bytes * arena->geometry.files_length, free_count,
                             file->node, report);
    }
    return error == 0 ? 0
                      : mill_fail(report, -error, "arena file %s: cannot map %" PRIu64 " MiB: %s",
                                  path, file_bytes >> 20, strerror(error));
}

/* Checks the folder before anything is made in it. */
static int folder_check(const struct mill_arena_options *options, uint32_t *ret_page_bytes,
                        struct mill_report *report)
{
    struct statfs fs;
    struct stat stat_dir;
    if (stat(options->dir, &stat_dir) != 0 || statfs(options->dir, &fs) != 0) {
        int error = errno;
        return mill_fail(report, -error, "arena folder %s: %s", options->dir, strerror(error));
    }
    if (!S_ISDIR(stat_dir.st_mode)) {
        return mill_fail(report, -ENOTDIR, "arena folder %s: not a folder", options->dir);
    }
    bool hugetlbfs = fs.f_type == HUGETLBFS_MAGIC;
    if (options->hugepages && !hugetlbfs) {
        return mill_fail(report, -EINVAL,
                         "arena folder %s: not on hugetlbfs: mount one (mount -t hugetlbfs -o "
                         "pagesize=2M none DIR), or set hugepages=off",
                         options->dir);
    }
    if (!options->hugepages && hugetlbfs) {
        return mill_fail(report, -EINVAL, "arena folder %s: on hugetlbfs though hugepages=off",
                         options->dir);
    }
    if (hugetlbfs && fs.f_bsize != MILL_CHUNK_BYTES) {
        return mill_fail(report, -EINVAL,
                         "arena folder %s: hugetlbfs with pages of %ld KiB: 2 MiB are needed "
                         "(mount -t hugetlbfs -o pagesize=2M none DIR)",
                         options->dir, (long)fs.f_bsize / 1024);
    }
    *ret_page_bytes = hugetlbfs ? MILL_CHUNK_BYTES : ARENA_PAGE_BYTES;
    return 0;
}

/* Writes the headers of fresh files; arena0's magic is the last store of all. */
static int write_headers(struct mill_arena *arena, struct mill_report *report)
{
    struct mill_uuid made_id;
    if (getrandom(made_id.b, sizeof(made_id.b), 0) != (ssize_t)sizeof(made_id.b)) {
        return mill_fail(report, -EIO, "arena: no random bytes from the kernel");
    }
    for (uint32_t i = arena->geometry.files_length; i-- > 0;) {
        struct arena_file *file = &arena->files[i];
        header_fill(file->header, &arena->geometry, i, file->node, &made_id);
        atomic_store_explicit(&file->header->magic, MILL_ARENA_MAGIC, memory_order_release);
    }
    return 0;
}

int arena_files_map(struct mill_arena *arena, const struct mill_arena_options *options, bool fresh,
                    struct mill_report *report)
{
    const uint64_t size_bytes = arena->geometry.file_bytes * arena->geometry.files_length;
    uint64_t free_count = 0;
    int error = folder_check(options, &arena->page_bytes, report);
    if (error != 0) {
        return error;
    }
    if (fresh) {
        error = arena_files_remove(arena->dir); /* unfinished ones */
        if (error != 0) {
            return mill_fail(report, error, "arena folder %s: cannot remove old files: %s",
                             arena->dir, strerror(-error));
        }
    }
    free_count = pages_free();
    error = reserve(size_bytes, &arena->base);
    if (error != 0) {
        return mill_fail(report, error, "arena: no address space for %" PRIu64 " MiB",
                         size_bytes >> 20);
    }
    for (uint32_t i = 0; error == 0 && i < arena->geometry.files_length; i++) {
        error = map_one(arena, options, i, fresh, free_count, report);
    }
    if (error == 0 && fresh) {
        error = write_headers(arena, report);
    }
    if (error != 0) {
        munmap(arena->base, size_bytes);
        arena->base = NULL;
        if (fresh && arena_files_remove(arena->dir) != 0) {
            return mill_fail_in(report, error, "arena files stay behind in %s: ", arena->dir);
        }
    }
    return error;
}
