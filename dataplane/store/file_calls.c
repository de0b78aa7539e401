/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's file calls behind the table; see file_calls.h. Any worker thread. */
#include "dataplane/store/file_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FOLIO_BYTES_MAX = 4 << 20, /* of the page cache */
};

static int result_of(int r)
{
    return r < 0 ? -errno : r;
}

static int posix_open(void *context, const char *path, uint32_t flags)
{
    int how = O_CLOEXEC | O_NOFOLLOW; /* a segment elsewhere may be anybody's */
    int r;
    MILL_UNUSED(context);
    how |= flags & MILL_FILE_WRITE ? O_RDWR : O_RDONLY;
    how |= flags & MILL_FILE_CREATE ? O_CREAT : 0;
    how |= flags & MILL_FILE_TRUNCATE ? O_TRUNC : 0;
    how |= flags & MILL_FILE_EXCLUSIVE ? O_EXCL : 0;
    do {
        r = open(path, how, 0640);
    } while (r < 0 && errno == EINTR);
    if (r >= 0 && (flags & MILL_FILE_WRITE)) {
        /* Segments: who reads on and on is read ahead for in extents; what the kernel reads ahead
         * would stay in the page cache. */
        (void)posix_fadvise(r, 0, 0, POSIX_FADV_RANDOM);
    }
    return result_of(r);
}

static int posix_close(void *context, int file)
{
    MILL_UNUSED(context);
    return result_of(close(file)); /* never again after EINTR: Linux has closed it */
}

static ssize_t posix_read_at(void *context, int file, void *to, size_t size_bytes,
                             uint64_t pos_bytes)
{
    ssize_t r;
    MILL_UNUSED(context);
    do {
        r = pread(file, to, size_bytes, (off_t)pos_bytes);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

static ssize_t posix_write_at(void *context, int file, const struct iovec *parts, int parts_count,
                              uint64_t pos_bytes)
{
    ssize_t r;
    MILL_UNUSED(context);
    do {
        r = pwritev(file, parts, parts_count, (off_t)pos_bytes);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

static int64_t posix_size(void *context, int file)
{
    struct stat status;
    MILL_UNUSED(context);
    return fstat(file, &status) < 0 ? -errno : (int64_t)status.st_size;
}

static int posix_truncate(void *context, int file, uint64_t size_bytes)
{
    int r;
    MILL_UNUSED(context);
    do {
        r = ftruncate(file, (off_t)size_bytes);
    } while (r < 0 && errno == EINTR);
    return result_of(r);
}

static int posix_sync(void *context, int file)
{
    MILL_UNUSED(context);
    /* An error of fdatasync is reported once by the kernel: no second try (faults are fenced). */
    return result_of(fdatasync(file));
}

static int posix_uncache(void *context, int file, uint64_t pos_bytes, uint64_t size_bytes,
                         enum mill_uncache how)
{
    MILL_UNUSED(context);
#ifdef MILL_MUTANT_STORE_CACHE_KEPT
    return 0;
#endif
    unsigned flags =
        how == MILL_UNCACHE_WRITE
            ? SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
            : SYNC_FILE_RANGE_WRITE;
    /* Not every file system can: then the kernel writes when it likes. */
    if (how != MILL_UNCACHE_CLEAN &&
        sync_file_range(file, (off_t)pos_bytes, (off_t)size_bytes, flags) < 0 && errno != ESPIPE &&
        errno != ENOSYS) {
        return -errno;
    }
    if (how != MILL_UNCACHE_BEGIN) {
        /* From further below: the kernel leaves what lies in a folio that reaches over the range's
         * start, as the end of the range before did. Advice: it changes no result. */
        uint64_t below = size_bytes > 0 ? MILL_MIN(pos_bytes, (uint64_t)FOLIO_BYTES_MAX) : 0;
        (void)posix_fadvise(file, (off_t)(pos_bytes - below),
                            (off_t)(size_bytes > 0 ? size_bytes + below : 0), POSIX_FADV_DONTNEED);
    }
    return 0;
}

static int posix_sync_dir(void *context, const char *path)
{
    MILL_UNUSED(context);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int r = result_of(fsync(fd));
    close(fd);
    return r;
}

static int posix_sync_all(void *context, const char *path)
{
    MILL_UNUSED(context);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int r = result_of(syncfs(fd));
    close(fd);
    return r;
}

static int posix_make_dir(void *context, const char *path)
{
    MILL_UNUSED(context);
    return result_of(mkdir(path, 0750));
}

static int posix_remove_file(void *context, const char *path)
{
    MILL_UNUSED(context);
    return result_of(unlink(path));
}

static int posix_remove_dir(void *context, const char *path)
{
    MILL_UNUSED(context);
    return result_of(rmdir(path));
}

static int posix_rename(void *context, const char *from, const char *to)
{
    MILL_UNUSED(context);
    return result_of(rename(from, to));
}

static int posix_list(void *context, const char *path,
                      int (*each)(void *each_context, const char *name), void *each_context)
{
    int r = 0;
    MILL_UNUSED(context);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        r = -errno;
        if (fd >= 0) {
            close(fd);
        }
        return r;
    }
    while (r >= 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            r = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            r = each(each_context, entry->d_name);
        }
    }
    closedir(dir);
    return r;
}

const struct mill_file_calls mill_file_calls_posix = {
    .open = posix_open,
    .close = posix_close,
    .read_at = posix_read_at,
    .write_at = posix_write_at,
    .size = posix_size,
    .truncate = posix_truncate,
    .sync = posix_sync,
    .uncache = posix_uncache,
    .sync_dir = posix_sync_dir,
    .sync_all = posix_sync_all,
    .make_dir = posix_make_dir,
    .remove_file = posix_remove_file,
    .remove_dir = posix_remove_dir,
    .rename = posix_rename,
    .list = posix_list,
};
