/* SPDX-License-Identifier: Apache-2.0 */
/* The file calls that the store makes, as a table, so that a test can put a modelled disk, full,
 * failing or lying, in their place. Semantics are POSIX's; every call returns 0 or a count, or
 * -errno, and the real table loops over EINTR. Paths are absolute or relative to the process. */
#ifndef MILL_DATAPLANE_FILE_CALLS_H
#define MILL_DATAPLANE_FILE_CALLS_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"

enum {
    MILL_FILE_READ = 1u << 0,
    MILL_FILE_WRITE = 1u << 1,
    MILL_FILE_CREATE = 1u << 2, /* with mode 0640 */
    MILL_FILE_TRUNCATE = 1u << 3,
    MILL_FILE_EXCLUSIVE = 1u << 4,
};

enum mill_uncache {
    MILL_UNCACHE_CLEAN, /* dirty pages stay */
    MILL_UNCACHE_WRITE, /* dirty ones are written first, and waited for */
    MILL_UNCACHE_BEGIN, /* nothing leaves: writing dirty pages is begun */
};

struct mill_file_calls {
    void *context;
    int (*open)(void *context, const char *path, uint32_t flags); /* descriptor, or -errno */
    int (*close)(void *context, int file);
    /* May be short, as pread and pwritev are: the caller loops. */
    ssize_t (*read_at)(void *context, int file, void *to, size_t size_bytes, uint64_t pos_bytes);
    ssize_t (*write_at)(void *context, int file, const struct iovec *parts, int parts_count,
                        uint64_t pos_bytes);
    int64_t (*size)(void *context, int file);
    int (*truncate)(void *context, int file, uint64_t size_bytes);
    int (*sync)(void *context, int file); /* fdatasync */
    /* Takes a range out of the page cache, size_bytes 0: up to the file's end. NULL: there is no
     * cache. ret: 0, -errno: the disk failed. */
    int (*uncache)(void *context, int file, uint64_t pos_bytes, uint64_t size_bytes,
                   enum mill_uncache how);
    int (*sync_dir)(void *context, const char *path);
    /* Everything of the file system that holds path: files, names, sizes (syncfs). */
    int (*sync_all)(void *context, const char *path);
    int (*make_dir)(void *context, const char *path); /* -EEXIST when there */
    int (*remove_file)(void *context, const char *path);
    int (*remove_dir)(void *context, const char *path); /* empty ones */
    int (*rename)(void *context, const char *from, const char *to);
    /* Calls each(each_context, name) for every entry but . and ..; stops on a negative return. */
    int (*list)(void *context, const char *path, int (*each)(void *each_context, const char *name),
                void *each_context);
};

/* The kernel's. */
extern const struct mill_file_calls mill_file_calls_posix;

#endif
