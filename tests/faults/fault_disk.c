/* SPDX-License-Identifier: Apache-2.0 */
/* The modelled disk of the simulation (sim/disk_model.h) as a file system that a broker can be put
 * on: calls that fail, a full disk, short reads and writes, flipped bits, and a power cut that
 * loses, tears and reorders what was not synced. One thread; everything is in memory.
 *
 *     fault_disk MOUNTPOINT SEED
 *
 * Orders are lines written to the file .control at its root; reading that gives counters as JSON.
 *
 *     fail CALL PATTERN ERRNO [AFTER [TIMES]]   of calls whose path matches, AFTER go well, TIMES
 *                                               fail (0: all); CALL: open read write sync syncdir
 *                                               truncate rename unlink mkdir
 *     short CALL PATTERN                        read and write take about half
 *     delay CALL PATTERN MS                     each such call takes so much longer
 *     flip read PATTERN                         one bit of what is read is wrong
 *     space BYTES                               left for growth; all: enough
 *     cut-after CALLS                           the power goes in the middle of a later call
 *     cut SEED                                  what the disk lost; it works again
 *     clear                                     no rules
 *
 * Files are not kept in the kernel's page cache, but for a database (*.db*), which is mapped; names
 * and attributes are never kept. syncfs(2) does not reach such a file system: only a clean stop
 * uses it, and no cut follows one here. */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fnmatch.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tests/sim/disk_model.h"

enum {
    RULES_MAX = 32,
    TEXT_BYTES = 2048,
};

enum effect {
    EFFECT_NONE,
    EFFECT_FAIL,
    EFFECT_SHORT,
    EFFECT_FLIP,
    EFFECT_DELAY,
};

struct rule {
    enum effect effect;
    char call[16];
    char pattern[256];
    int error;
    uint32_t delay_ms;
    uint64_t after;
    uint64_t times; /* left; UINT64_MAX: all */
    uint64_t hits;
};

static const char control_path[] = "/.control";

static struct disk_model *disk;
static const struct mill_file_calls *calls;
static struct rule rules[RULES_MAX];
static uint32_t rules_count;
static uint64_t hits; /* of rules that are gone, too */

/* The effect of the rules on one call. ret_error: of EFFECT_FAIL. */
static enum effect effect_of(const char *call, const char *path, int *ret_error)
{
    *ret_error = 0;
    for (uint32_t i = 0; i < rules_count; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->call, call) != 0 || fnmatch(rule->pattern, path, 0) != 0 ||
            rule->times == 0) {
            continue;
        }
        if (rule->after > 0) {
            rule->after--;
            continue;
        }
        rule->times -= rule->times == UINT64_MAX ? 0 : 1;
        rule->hits++;
        hits++;
        *ret_error = rule->effect == EFFECT_FAIL ? -rule->error : 0;
        if (rule->effect == EFFECT_DELAY) {
            usleep((useconds_t)rule->delay_ms * 1000);
            continue;
        }
        return rule->effect;
    }
    return EFFECT_NONE;
}

static int fails(const char *call, const char *path)
{
    int error;
    return effect_of(call, path, &error) == EFFECT_FAIL ? error : 0;
}

/* --- orders ---------------------------------------------------------------------------------- */

static int errno_of(const char *name)
{
    static const struct {
        const char *name;
        int error;
    } errors[] = {{"EIO", EIO},     {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EMFILE", EMFILE},
                  {"EROFS", EROFS}, {"EACCES", EACCES}, {"EINTR", EINTR}};
    for (size_t i = 0; i < MILL_COUNT_OF(errors); i++) {
        if (strcmp(errors[i].name, name) == 0) {
            return errors[i].error;
        }
    }
    return 0;
}

static int rule_add(enum effect effect, const char *line)
{
    struct rule rule = {.effect = effect, .times = UINT64_MAX};
    char error[16] = "EIO";
    unsigned long long after = 0;
    unsigned long long times = 0;
    int found = sscanf(line, "%*s %15s %255s %15s %llu %llu", rule.call, rule.pattern, error,
                       &after, &times);
    rule.delay_ms = effect == EFFECT_DELAY ? (uint32_t)strtoul(error, NULL, 10) : 0;
    rule.error = effect == EFFECT_DELAY ? EIO : errno_of(error);
    if (found < (effect == EFFECT_FAIL ? 3 : 2) || rule.error == 0 || rules_count == RULES_MAX) {
        return -EINVAL;
    }
    rule.after = after;
    rule.times = times > 0 ? times : UINT64_MAX;
    rules[rules_count++] = rule;
    return 0;
}

static int order(const char *line)
{
    struct disk_model_faults *faults = disk_model_faults(disk);
    unsigned long long number = 0;
    if (strncmp(line, "fail ", 5) == 0) {
        return rule_add(EFFECT_FAIL, line);
    }
    if (strncmp(line, "short ", 6) == 0) {
        return rule_add(EFFECT_SHORT, line);
    }
    if (strncmp(line, "delay ", 6) == 0) {
        return rule_add(EFFECT_DELAY, line);
    }
    if (strncmp(line, "flip ", 5) == 0) {
        return rule_add(EFFECT_FLIP, line);
    }
    if (strcmp(line, "space all") == 0) {
        faults->space_bytes = UINT64_MAX;
    } else if (sscanf(line, "space %llu", &number) == 1) {
        faults->space_bytes = number;
    } else if (sscanf(line, "cut-after %llu", &number) == 1) {
        faults->calls_until_cut = number;
    } else if (sscanf(line, "cut %llu", &number) == 1) {
        disk_model_crash_seeded(disk, number);
    } else if (strcmp(line, "clear") == 0) {
        rules_count = 0;
    } else {
        return -EINVAL;
    }
    return 0;
}

static int orders(const char *bytes, size_t size)
{
    char text[TEXT_BYTES];
    if (size >= sizeof(text)) {
        return -EINVAL;
    }
    memcpy(text, bytes, size);
    text[size] = '\0';
    char *rest = NULL;
    int r = 0;
    for (char *line = strtok_r(text, "\n", &rest); line && r == 0;
         line = strtok_r(NULL, "\n", &rest)) {
        r = order(line);
    }
    return r;
}

static int counters(char *ret_text, size_t capacity)
{
    const struct disk_model_counts *counts = disk_model_counts(disk);
    return snprintf(ret_text, capacity,
                    "{\"calls\": %llu, \"bytes_read\": %llu, \"writes\": %llu, \"syncs\": %llu, "
                    "\"hits\": %llu, "
                    "\"lost_bytes\": %llu, \"lost_names\": %llu, \"open\": %u, \"cut\": %s}\n",
                    (unsigned long long)counts->calls, (unsigned long long)counts->bytes_read,
                    (unsigned long long)counts->writes, (unsigned long long)counts->syncs,
                    (unsigned long long)hits, (unsigned long long)counts->lost_bytes,
                    (unsigned long long)counts->lost_names, counts->open_now,
                    disk_model_is_cut(disk) ? "true" : "false");
}

/* --- files ----------------------------------------------------------------------------------- */

static bool is_control(const char *path)
{
    return path && strcmp(path, control_path) == 0;
}

static int on_getattr(const char *path, struct stat *ret_stat, struct fuse_file_info *info)
{
    struct disk_model_stat stat;
    *ret_stat = (struct stat){.st_nlink = 1, .st_mode = S_IFREG | 0640};
    if (is_control(path)) {
        return 0;
    }
    if (info && !path) { /* removed, and still open */
        int64_t size = calls->size(disk, (int)info->fh);
        ret_stat->st_size = size < 0 ? 0 : size;
        return size < 0 ? (int)size : 0;
    }
    int r = disk_model_stat(disk, path, &stat);
    if (r < 0) {
        return r;
    }
    ret_stat->st_mode = stat.dir ? S_IFDIR | 0750 : S_IFREG | 0640;
    ret_stat->st_nlink = stat.dir ? 2 : 1;
    ret_stat->st_ino = stat.number;
    ret_stat->st_size = (off_t)stat.size_bytes;
    ret_stat->st_blocks = (blkcnt_t)((stat.size_bytes + 511) / 512);
    return 0;
}

static int open_with(const char *path, struct fuse_file_info *info, uint32_t flags)
{
    if (is_control(path)) {
        info->direct_io = 1;
        return 0;
    }
    int r = fails("open", path);
    r = r < 0 ? r : calls->open(disk, path, flags);
    if (r < 0) {
        return r;
    }
    info->fh = (uint64_t)r;
    info->direct_io = strstr(path, ".db") ? 0 : 1;
    return 0;
}

static int on_open(const char *path, struct fuse_file_info *info)
{
    uint32_t truncate = info->flags & O_TRUNC ? MILL_FILE_TRUNCATE : 0;
    return open_with(path, info, MILL_FILE_READ | MILL_FILE_WRITE | truncate);
}

static int on_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
    MILL_UNUSED(mode);
    return open_with(path, info, MILL_FILE_READ | MILL_FILE_WRITE | MILL_FILE_CREATE);
}

static int on_release(const char *path, struct fuse_file_info *info)
{
    if (!is_control(path)) {
        int r = calls->close(disk, (int)info->fh);
        MILL_UNUSED(r); /* void after a cut */
    }
    return 0;
}

static int on_read(const char *path, char *to, size_t size, off_t pos, struct fuse_file_info *info)
{
    int error;
    if (is_control(path)) {
        char text[TEXT_BYTES];
        size_t length = (size_t)counters(text, sizeof(text));
        size_t part = (size_t)pos >= length ? 0 : MILL_MIN(size, length - (size_t)pos);
        memcpy(to, text + MILL_MIN((size_t)pos, length), part);
        return (int)part;
    }
    enum effect effect = effect_of("read", path ? path : "", &error);
    if (error < 0) {
        return error;
    }
    size = effect == EFFECT_SHORT && size > 1 ? (size + 1) / 2 : size;
    ssize_t r = calls->read_at(disk, (int)info->fh, to, size, (uint64_t)pos);
    if (effect == EFFECT_FLIP && r > 0) {
        to[r - 1] = (char)(to[r - 1] ^ 0x10);
    }
    return (int)r;
}

static int on_write(const char *path, const char *from, size_t size, off_t pos,
                    struct fuse_file_info *info)
{
    int error;
    if (is_control(path)) {
        int r = orders(from, size);
        return r < 0 ? r : (int)size;
    }
    enum effect effect = effect_of("write", path ? path : "", &error);
    if (error < 0) {
        return error;
    }
    size = effect == EFFECT_SHORT && size > 1 ? (size + 1) / 2 : size;
    struct iovec part = {.iov_base = (void *)(uintptr_t)from, .iov_len = size};
    return (int)calls->write_at(disk, (int)info->fh, &part, 1, (uint64_t)pos);
}

static int on_truncate(const char *path, off_t size, struct fuse_file_info *info)
{
    if (is_control(path)) {
        return 0;
    }
    int r = fails("truncate", path ? path : "");
    if (r < 0 || info) {
        return r < 0 ? r : calls->truncate(disk, (int)info->fh, (uint64_t)size);
    }
    int file = calls->open(disk, path, MILL_FILE_READ | MILL_FILE_WRITE);
    if (file < 0) {
        return file;
    }
    r = calls->truncate(disk, file, (uint64_t)size);
    int closed = calls->close(disk, file);
    MILL_UNUSED(closed);
    return r;
}

static int on_fsync(const char *path, int data_only, struct fuse_file_info *info)
{
    MILL_UNUSED(data_only);
    int r = is_control(path) ? 0 : fails("sync", path ? path : "");
    return r < 0 || is_control(path) ? r : calls->sync(disk, (int)info->fh);
}

/* --- names ----------------------------------------------------------------------------------- */

static int on_fsyncdir(const char *path, int data_only, struct fuse_file_info *info)
{
    MILL_UNUSED(data_only);
    MILL_UNUSED(info);
    int r = fails("syncdir", path);
    return r < 0 ? r : calls->sync_dir(disk, path);
}

static int on_mkdir(const char *path, mode_t mode)
{
    MILL_UNUSED(mode);
    int r = fails("mkdir", path);
    return r < 0 ? r : calls->make_dir(disk, path);
}

static int on_unlink(const char *path)
{
    int r = fails("unlink", path);
    return r < 0 ? r : calls->remove_file(disk, path);
}

static int on_rmdir(const char *path)
{
    return calls->remove_dir(disk, path);
}

static int on_rename(const char *from, const char *to, unsigned int flags)
{
    int r = flags ? -EINVAL : fails("rename", from);
    return r < 0 ? r : calls->rename(disk, from, to);
}

struct listing {
    void *buffer;
    fuse_fill_dir_t fill;
};

static int list_each(void *context, const char *name)
{
    struct listing *listing = context;
    return listing->fill(listing->buffer, name, NULL, 0, 0) ? -ENOMEM : 0;
}

static int on_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t pos,
                      struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
    struct listing listing = {.buffer = buffer, .fill = fill};
    MILL_UNUSED(pos);
    MILL_UNUSED(info);
    MILL_UNUSED(flags);
    fill(buffer, ".", NULL, 0, 0);
    fill(buffer, "..", NULL, 0, 0);
    return calls->list(disk, path, list_each, &listing);
}

static int on_statfs(const char *path, struct statvfs *ret_stat)
{
    MILL_UNUSED(path);
    uint64_t space = disk_model_faults(disk)->space_bytes;
    uint64_t blocks = MILL_MIN(space, (uint64_t)1 << 40) / 4096;
    *ret_stat = (struct statvfs){.f_bsize = 4096,
                                 .f_frsize = 4096,
                                 .f_blocks = (fsblkcnt_t)1 << 28,
                                 .f_bfree = blocks,
                                 .f_bavail = blocks,
                                 .f_namemax = 255};
    return 0;
}

/* Modes, owners and times are nobody's concern here. */
static int on_chmod(const char *path, mode_t mode, struct fuse_file_info *info)
{
    MILL_UNUSED(path);
    MILL_UNUSED(mode);
    MILL_UNUSED(info);
    return 0;
}

static int on_chown(const char *path, uid_t user, gid_t group, struct fuse_file_info *info)
{
    MILL_UNUSED(path);
    MILL_UNUSED(user);
    MILL_UNUSED(group);
    MILL_UNUSED(info);
    return 0;
}

static int on_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info)
{
    MILL_UNUSED(path);
    MILL_UNUSED(times);
    MILL_UNUSED(info);
    return 0;
}

static void *on_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    MILL_UNUSED(connection);
    config->entry_timeout = 0;
    config->attr_timeout = 0;
    config->negative_timeout = 0;
    config->hard_remove = 1; /* what is removed is gone, though it may be open */
    config->nullpath_ok = 0;
    return NULL;
}

static const struct fuse_operations operations = {
    .getattr = on_getattr,
    .open = on_open,
    .create = on_create,
    .release = on_release,
    .read = on_read,
    .write = on_write,
    .truncate = on_truncate,
    .fsync = on_fsync,
    .fsyncdir = on_fsyncdir,
    .mkdir = on_mkdir,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .rename = on_rename,
    .readdir = on_readdir,
    .statfs = on_statfs,
    .chmod = on_chmod,
    .chown = on_chown,
    .utimens = on_utimens,
    .init = on_init,
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: fault_disk MOUNTPOINT SEED\n");
        return 2;
    }
    disk = disk_model_new(strtoull(argv[2], NULL, 0));
    if (!disk) {
        return 1;
    }
    calls = disk_model_calls(disk);
    char single[] = "-s";
    char foreground[] = "-f";
    char option[] = "-ofsname=fault_disk,subtype=millrace";
    char *words[] = {argv[0], foreground, single, option, argv[1], NULL};
    int r = fuse_main(5, words, &operations, NULL);
    disk_model_free(disk);
    return r;
}
