/* SPDX-License-Identifier: Apache-2.0 */
/* Hugepages before the start and after the stop: the mount, the instance's folder, the size of the
 * kernel's pool. What was added is remembered in run.dir/hugepages, so that it is given back even
 * when a killed supervisor has added it. Reference: kernel documentation,
 * admin-guide/mm/hugetlbpage.
 */
#include "supervisor/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/log_line.h"

enum {
    HUGETLBFS_MAGIC = 0x958458f6,
    NUMBER_BYTES = 32,
    /* A start takes its pages within about a second, one on a busy machine within several, and
     * several may stand before ours. An end has less patience: what it cannot give back now is
     * remembered for the next one. */
    LOCK_WAIT_START_MS = 120000,
    LOCK_WAIT_END_MS = 20000,
    LOCK_STEP_MS = 10,
};

static uint64_t read_number(const char *path)
{
    char text[NUMBER_BYTES] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    return got > 0 ? strtoull(text, NULL, 10) : 0;
}

static int write_number(const char *path, uint64_t number)
{
    char text[NUMBER_BYTES];
    int size = snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int r = write(fd, text, (size_t)size) == size ? 0 : -errno;
    close(fd);
    return r;
}

static void pool_path(uint64_t page_kib, const char *name, char ret_path[128])
{
    snprintf(ret_path, 128, "/sys/kernel/mm/hugepages/hugepages-%llukB/%s",
             (unsigned long long)page_kib, name);
}

static uint64_t pool_number(uint64_t page_kib, const char *name)
{
    char path[128];
    pool_path(page_kib, name, path);
    return read_number(path);
}

/* Only one supervisor of the machine at a time counts and changes the pool: what another has
 * counted and not yet taken looks free. The lock dies with its holder, so that it is never stale;
 * one that takes too long is passed by. ret: a descriptor to close; -ETIMEDOUT, -errno. */
static int pool_lock(uint64_t page_kib, uint32_t wait_ms)
{
    char path[128];
    pool_path(page_kib, "nr_hugepages", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    for (uint32_t waited_ms = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited_ms += LOCK_STEP_MS) {
        int r = errno == EWOULDBLOCK ? -ETIMEDOUT : -errno;
        if (r != -ETIMEDOUT || waited_ms >= wait_ms) {
            close(fd);
            mill_log_line(MILL_LEVEL_WARN, "supervisor.hugepages",
                          "another start holds the pool; pages are counted all the same file=%s",
                          path);
            return r;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_STEP_MS * 1000000l}, NULL);
    }
    return fd;
}

void pages_unlock(int *lock)
{
    if (*lock >= 0) {
        close(*lock);
    }
    *lock = -1;
}

uint64_t pages_needed(const struct mill_config *config, uint64_t page_kib)
{
    const struct mill_config_listener *listeners;
    uint32_t count = mill_config_listeners(config, &listeners);
    uint64_t mib = (uint64_t)mill_config_int(config, MILL_KEY_HUGEPAGES_SIZE_MB);
    uint64_t pages = ((mib << 10) + page_kib - 1) / page_kib;
    for (uint32_t i = 0; i < count; i++) {
        if (listeners[i].transport == MILL_TRANSPORT_DPDK) {
            mib = (uint64_t)mill_config_int(config, MILL_KEY_DPDK_MEMORY_MB);
            return pages + ((mib << 10) + page_kib - 1) / page_kib;
        }
    }
    return pages;
}

static void instance_dir(const struct mill_config *config, char ret_path[SUPERVISOR_PATH_BYTES])
{
    bool huge = mill_config_bool(config, MILL_KEY_HUGEPAGES);
    snprintf(ret_path, SUPERVISOR_PATH_BYTES, "%s/%s",
             huge ? mill_config_text(config, MILL_KEY_HUGEPAGES_DIR) : "/dev/shm",
             mill_config_instance(config));
}

/* Pages that files of an earlier run of this instance hold: they are taken up, not taken again. */
static uint64_t pages_held(const char *dir, uint64_t page_kib)
{
    DIR *list = opendir(dir);
    uint64_t blocks = 0;
    struct dirent *entry;
    while (list && (entry = readdir(list))) {
        struct stat info;
        if (fstatat(dirfd(list), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode)) {
            blocks += (uint64_t)info.st_blocks;
        }
    }
    if (list) {
        closedir(list);
    }
    return blocks / 2 / page_kib;
}

/* hugepages.dir is a hugetlbfs mount, or becomes one. */
static int mount_check(const char *dir, uint64_t *ret_page_kib, struct mill_report *report)
{
    struct statfs info;
    if (mkdir(dir, 0755) != 0 && errno != EEXIST) {
        return mill_fail(report, -errno,
                         "hugepages.dir %s cannot be made: %s; make it, or set hugepages=off", dir,
                         strerror(errno));
    }
    if (statfs(dir, &info) == 0 && info.f_type != HUGETLBFS_MAGIC) {
        if (mount("hugetlbfs", dir, "hugetlbfs", 0, "pagesize=2M") != 0) {
            return mill_fail(report, -errno,
                             "hugepages.dir %s is no hugetlbfs mount and cannot be made one: %s; "
                             "try: mount -t hugetlbfs -o pagesize=2M hugetlbfs %s, or set "
                             "hugepages=off",
                             dir, strerror(errno), dir);
        }
        mill_log_line(MILL_LEVEL_NOTICE, "supervisor.mounted", "mounted hugetlbfs dir=%s", dir);
    }
    if (statfs(dir, &info) != 0 || info.f_type != HUGETLBFS_MAGIC) {
        return mill_fail(report, -ENODEV,
                         "hugepages.dir %s is no hugetlbfs mount; set "
                         "hugepages=off to run without hugepages",
                         dir);
    }
    *ret_page_kib = (uint64_t)info.f_bsize / 1024;
    return 0;
}

static uint64_t pages_free(uint64_t page_kib)
{
    uint64_t free = pool_number(page_kib, "free_hugepages");
    uint64_t reserved = pool_number(page_kib, "resv_hugepages");
    return free > reserved ? free - reserved : 0;
}

/* Asks the kernel for more pages; when it has them only in pieces, asks it to tidy up first. */
static void pool_raise(uint64_t page_kib, uint64_t target)
{
    char path[128];
    pool_path(page_kib, "nr_hugepages", path);
    int r = write_number(path, target);
    if (r == 0 && pool_number(page_kib, "nr_hugepages") < target) {
        r = write_number("/proc/sys/vm/drop_caches", 3);
        r = r < 0 ? r : write_number("/proc/sys/vm/compact_memory", 1);
        r = r < 0 ? r : write_number(path, target);
    }
    if (r < 0) {
        mill_log_line(MILL_LEVEL_WARN, "supervisor.hugepages", "cannot raise file=%s reason=%s",
                      path, strerror(-r));
    }
}

static uint64_t remembered(const struct mill_config *config)
{
    char text[NUMBER_BYTES];
    return rundir_read(config, "hugepages", text, sizeof(text)) == 0 ? strtoull(text, NULL, 10) : 0;
}

static void remember(const struct mill_config *config, uint64_t pages)
{
    char text[NUMBER_BYTES];
    char path[SUPERVISOR_PATH_BYTES];
    rundir_path(config, "hugepages", path);
    if (pages == 0) {
        unlink(path);
        return;
    }
    snprintf(text, sizeof(text), "%llu\n", (unsigned long long)pages);
    int r = rundir_write(config, "hugepages", text, 0600);
    if (r < 0) {
        mill_log_line(MILL_LEVEL_WARN, "supervisor.hugepages",
                      "cannot remember the raised pages file=%s reason=%s", path, strerror(-r));
    }
}

static int pool_prepare(const struct mill_config *config, uint64_t page_kib, uint64_t missing,
                        struct mill_report *report)
{
    uint64_t before = pool_number(page_kib, "nr_hugepages");
    pool_raise(page_kib, before + missing);
    uint64_t after = pool_number(page_kib, "nr_hugepages");
    uint64_t raised = after > before ? after - before : 0;
    remember(config, remembered(config) + raised);
    if (raised < missing) {
        uint64_t short_by = missing - raised;
        return mill_fail(
            report, -ENOMEM,
            "%llu hugepages of %llu KiB are missing; try: sysctl vm.nr_hugepages=%llu, "
            "or set a smaller hugepages.size.mb, or hugepages=off",
            (unsigned long long)short_by, (unsigned long long)page_kib,
            (unsigned long long)(before + missing));
    }
    mill_log_line(MILL_LEVEL_NOTICE, "supervisor.hugepages",
                  "raised vm.nr_hugepages from=%llu to=%llu page_kib=%llu",
                  (unsigned long long)before, (unsigned long long)after,
                  (unsigned long long)page_kib);
    return 0;
}

int pages_prepare(const struct mill_config *config, int *ret_lock, struct mill_report *report)
{
    char dir[SUPERVISOR_PATH_BYTES];
    instance_dir(config, dir);
    uint64_t page_kib = 0;
    *ret_lock = -1;
    if (mill_config_bool(config, MILL_KEY_HUGEPAGES)) {
        int r = mount_check(mill_config_text(config, MILL_KEY_HUGEPAGES_DIR), &page_kib, report);
        if (r < 0) {
            return r;
        }
        *ret_lock = pool_lock(page_kib, LOCK_WAIT_START_MS);
        uint64_t have = pages_held(dir, page_kib) + pages_free(page_kib);
        uint64_t needed = pages_needed(config, page_kib);
        r = needed > have ? pool_prepare(config, page_kib, needed - have, report) : 0;
        if (r < 0) {
            return r;
        }
#ifdef MILL_MUTANT_SUPERVISOR_POOL_UNLOCKED
        pages_unlock(ret_lock);
#endif
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        return mill_fail(report, -errno, "cannot make %s: %s", dir, strerror(errno));
    }
    return 0;
}

void pages_give_back(const struct mill_config *config)
{
    char dir[SUPERVISOR_PATH_BYTES];
    struct statfs info;
    instance_dir(config, dir);
    rmdir(dir); /* stays when an arena is in it: its batches are not all in the files */
    uint64_t raised = remembered(config);
    if (raised == 0 || statfs(mill_config_text(config, MILL_KEY_HUGEPAGES_DIR), &info) != 0) {
        return;
    }
    uint64_t page_kib = (uint64_t)info.f_bsize / 1024;
    int lock = pool_lock(page_kib, LOCK_WAIT_END_MS);
    uint64_t back = MILL_MIN(raised, pages_free(page_kib));
    uint64_t have = pool_number(page_kib, "nr_hugepages");
    back = MILL_MIN(back, have);
    char path[128];
    pool_path(page_kib, "nr_hugepages", path);
    if (back > 0 && write_number(path, have - back) == 0) {
        remember(config, raised - back);
        mill_log_line(MILL_LEVEL_NOTICE, "supervisor.hugepages",
                      "gave back vm.nr_hugepages from=%llu to=%llu still_in_use=%llu",
                      (unsigned long long)have, (unsigned long long)(have - back),
                      (unsigned long long)(raised - back));
    }
    pages_unlock(&lock);
}
