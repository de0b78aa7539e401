/* SPDX-License-Identifier: Apache-2.0 */
/* DescribeLogDirs 1-5: what the directories hold, as their files say. The segments of each
 * partition are looked at here, a few directories per turn; what is younger than a second may still
 * be in memory only. One replica: nothing lags, nothing moves between directories. ref: KIP-113,
 * KIP-827 */
#include "control/admin/request.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "protocol/errors.h"

enum {
    DIRS_PER_TURN = 32,     /* looked into at each call */
    ENTRIES_PER_TURN = 512, /* read at each call */
    ROWS_FIRST = 64,
};

/* A partition's directory. */
struct row {
    char name[MILL_TOPIC_NAME_MAX + 1];
    int32_t partition;
    int64_t size_bytes;
};

struct dir {
    const char *path;
    int16_t error;
    int64_t total_bytes;
    int64_t usable_bytes;
    uint32_t first; /* in the rows */
    uint32_t count;
};

/* Rows are malloc's and bounded by the partitions that may exist. */
struct mill_dir_scan {
    bool all;                 /* else those named in the request */
    struct mill_warray asked; /* of the request */
    const char *const *paths;
    uint32_t dirs_count;
    uint32_t dir_index; /* being read */
    DIR *stream;
    struct row *rows;
    uint32_t rows_count;
    uint32_t rows_room;
    struct dir *dirs;
    /* while the answer is written */
    uint32_t topic_first;
    uint32_t topic_end;
    const struct dir *dir;
};

void mill_dir_scan_free(struct mill_dir_scan *scan)
{
    if (scan) {
        if (scan->stream) {
            closedir(scan->stream);
        }
        free(scan->rows);
        free(scan->dirs);
        free(scan);
    }
}

/* --- which partitions --------------------------------------------------------------------------
 */

/* "TOPIC-PARTITION". ret: false for anything else that lies in a log directory. */
static bool dir_name_parse(const char *name, struct row *ret_row)
{
    const char *dash = strrchr(name, '-');
    if (!dash || dash == name || dash - name > MILL_TOPIC_NAME_MAX || dash[1] == '\0' ||
        strlen(dash + 1) > 9) {
        return false;
    }
    int32_t partition = 0;
    for (const char *digit = dash + 1; *digit != '\0'; digit++) {
        if (*digit < '0' || *digit > '9') {
            return false;
        }
        partition = partition * 10 + (*digit - '0');
    }
    *ret_row = (struct row){.partition = partition};
    memcpy(ret_row->name, name, (size_t)(dash - name));
    return true;
}

/* Whether the request names it; all: it names none. */
static bool is_asked(const struct mill_admin_request *request, const struct row *row)
{
    struct mill_warray topics = request->scan->asked;
    struct mill_describe_log_dirs_request_topics topic;
    if (request->scan->all) {
        return true;
    }
    while (
        mill_describe_log_dirs_request_topics_next(&topics, request->header.api_version, &topic)) {
        int32_t partition;
        if (!mill_wstr_equal(&topic.topic, row->name, (uint32_t)strlen(row->name))) {
            continue;
        }
        while (mill_warray_next_i32(&topic.partitions, &partition)) {
            if (partition == row->partition) {
                return true;
            }
        }
    }
    return false;
}

static bool is_wanted(const struct mill_controller *controller,
                      const struct mill_admin_request *request, const struct row *row)
{
    const struct mill_topic *topic =
        mill_topics_by_name(&controller->topics, row->name, (uint32_t)strlen(row->name));
    return topic && (uint32_t)row->partition < topic->record->partitions_count &&
           is_asked(request, row);
}

/* --- reading -----------------------------------------------------------------------------------
 */

/* Bytes in the segments of a partition; what cannot be read counts nothing. */
static int64_t segments_bytes(int parent, const char *name)
{
    int64_t sum = 0;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (!stream && fd >= 0) {
        close(fd);
    }
    const struct dirent *entry;
    while (stream && (entry = readdir(stream))) {
        size_t bytes = strlen(entry->d_name);
        struct stat info;
        if (bytes > 4 && strcmp(entry->d_name + bytes - 4, ".log") == 0 &&
            fstatat(dirfd(stream), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
            sum += info.st_size;
        }
    }
    if (stream) {
        closedir(stream);
    }
    return sum;
}

static bool row_add(struct mill_dir_scan *scan, const struct row *row)
{
    if (scan->rows_count == scan->rows_room) {
        uint32_t room = MILL_MAX(scan->rows_room * 2, (uint32_t)ROWS_FIRST);
        struct row *rows = realloc(scan->rows, room * sizeof(*rows));
        if (!rows) {
            return false;
        }
        scan->rows = rows;
        scan->rows_room = room;
    }
    scan->rows[scan->rows_count++] = *row;
    scan->dirs[scan->dir_index].count++;
    return true;
}

/* Opens the next directory. ret: false when it cannot be read: its error is noted. */
static bool dir_open(struct mill_dir_scan *scan)
{
    struct dir *dir = &scan->dirs[scan->dir_index];
    struct statvfs info;
    *dir = (struct dir){.path = scan->paths[scan->dir_index],
                        .total_bytes = -1,
                        .usable_bytes = -1,
                        .first = scan->rows_count};
    scan->stream = opendir(dir->path);
    if (!scan->stream || statvfs(dir->path, &info) < 0) {
        dir->error = MILL_KERR_KAFKA_STORAGE_ERROR;
        return false;
    }
    dir->total_bytes = (int64_t)info.f_blocks * (int64_t)info.f_frsize;
    dir->usable_bytes = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
    return true;
}

static int by_topic(const void *a, const void *b)
{
    const struct row *left = a;
    const struct row *right = b;
    int order = strcmp(left->name, right->name);
    return order != 0 ? order
                      : (left->partition > right->partition) - (left->partition < right->partition);
}

static void dir_close(struct mill_dir_scan *scan)
{
    const struct dir *dir = &scan->dirs[scan->dir_index];
    if (scan->stream) {
        closedir(scan->stream);
        scan->stream = NULL;
    }
    if (dir->count > 0) {
        qsort(&scan->rows[dir->first], dir->count, sizeof(scan->rows[0]), by_topic);
    }
    scan->dir_index++;
}

/* Takes the next entry of the open directory. ret: 1 a partition was looked into, 0 nothing of
 * interest, -ENOENT the end, -ENOMEM. */
static int entry_take(const struct mill_controller *controller, struct mill_admin_request *request)
{
    struct mill_dir_scan *scan = request->scan;
    const struct dirent *entry = readdir(scan->stream);
    struct row row;
    if (!entry) {
        return -ENOENT;
    }
    if (!dir_name_parse(entry->d_name, &row) || !is_wanted(controller, request, &row)) {
        return 0;
    }
    row.size_bytes = segments_bytes(dirfd(scan->stream), entry->d_name);
    return row_add(scan, &row) ? 1 : -ENOMEM;
}

/* ret: 0 all is read, -EAGAIN more is left, -ENOMEM. */
static int scan_some(const struct mill_controller *controller, struct mill_admin_request *request)
{
    struct mill_dir_scan *scan = request->scan;
    uint32_t looks = 0;
    uint32_t entries = 0;
    while (scan->dir_index < scan->dirs_count) {
        if (!scan->stream && !dir_open(scan)) {
            dir_close(scan);
            continue;
        }
        int r = entry_take(controller, request);
        if (r == -ENOMEM) {
            return r;
        }
        if (r == -ENOENT) {
            dir_close(scan);
        }
        looks += r > 0 ? 1 : 0;
        if (looks >= DIRS_PER_TURN || ++entries >= ENTRIES_PER_TURN) {
            return -EAGAIN;
        }
    }
    return 0;
}

/* --- answering ---------------------------------------------------------------------------------
 */

static void get_partition(const void *context, int32_t index, void *element)
{
    const struct mill_dir_scan *scan = context;
    struct mill_describe_log_dirs_response_results_topics_partitions *to = element;
    const struct row *row = &scan->rows[scan->topic_first + (uint32_t)index];
    to->partition_index = row->partition;
    to->partition_size = row->size_bytes;
}

/* The run of rows that have the next topic's name. */
static void get_topic(const void *context, int32_t index, void *element)
{
    struct mill_dir_scan *scan = (void *)(uintptr_t)context;
    struct mill_describe_log_dirs_response_results_topics *to = element;
    uint32_t end = scan->dir->first + scan->dir->count;
    MILL_UNUSED(index);
    scan->topic_first = scan->topic_end;
    do {
        scan->topic_end++;
    } while (scan->topic_end < end &&
             strcmp(scan->rows[scan->topic_end].name, scan->rows[scan->topic_first].name) == 0);
    to->name = mill_wstr_of(scan->rows[scan->topic_first].name);
    to->partitions = (struct mill_warray){.count = (int32_t)(scan->topic_end - scan->topic_first),
                                          .get = get_partition,
                                          .context = scan};
}

static void get_dir(const void *context, int32_t index, void *element)
{
    struct mill_dir_scan *scan = (void *)(uintptr_t)context;
    struct mill_describe_log_dirs_response_results *to = element;
    const struct dir *dir = &scan->dirs[index];
    int32_t topics = 0;
    for (uint32_t i = dir->first; i < dir->first + dir->count; i++) {
        topics += i == dir->first || strcmp(scan->rows[i].name, scan->rows[i - 1].name) != 0;
    }
    scan->dir = dir;
    scan->topic_end = dir->first;
    to->error_code = dir->error;
    to->log_dir = mill_wstr_of(dir->path);
    to->total_bytes = dir->total_bytes;
    to->usable_bytes = dir->usable_bytes;
    to->topics = (struct mill_warray){.count = topics, .get = get_topic, .context = scan};
}

static int encode(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_describe_log_dirs_response_encode(to, version, message);
}

/* Partitions named in the request. */
static uint64_t asked_count(const struct mill_warray *asked, int16_t version)
{
    uint64_t count = 0;
    struct mill_warray topics = *asked;
    struct mill_describe_log_dirs_request_topics topic;
    while (mill_describe_log_dirs_request_topics_next(&topics, version, &topic)) {
        count += (uint64_t)MILL_MAX(topic.partitions.count, 0) + 1;
    }
    return count;
}

void mill_describe_log_dirs_begin(const struct mill_controller *controller,
                                  struct mill_admin_request *request, struct mill_cursor *at)
{
    struct mill_describe_log_dirs_request in;
    struct mill_dir_scan *scan = calloc(1, sizeof(*scan));
    request->scan = scan;
    if (!scan || mill_describe_log_dirs_request_decode(at, request->header.api_version, &in) < 0 ||
        asked_count(&in.topics, request->header.api_version) > MILL_ADMIN_ELEMENTS_MAX) {
        mill_admin_close(request);
        return;
    }
    scan->all = in.topics.count < 0;
    scan->asked = in.topics;
    scan->dirs_count = mill_config_log_dirs(controller->config, &scan->paths);
    scan->dirs = calloc(scan->dirs_count, sizeof(*scan->dirs));
    if (!scan->dirs) {
        mill_admin_close(request);
    }
}

void mill_describe_log_dirs_continue(const struct mill_controller *controller,
                                     struct mill_admin_request *request, uint64_t now_ns)
{
    struct mill_describe_log_dirs_response out;
    struct mill_dir_scan *scan = request->scan;
    int r = scan_some(controller, request);
    mill_describe_log_dirs_response_defaults(&out);
#ifdef MILL_MUTANT_CONTROL_LOG_DIRS_ONCE
    r = r == -EAGAIN ? 0 : r;
#endif
    if (r == -EAGAIN && now_ns < request->wait_until_ns) {
        request->again = true;
        return;
    }
    out.results =
        (struct mill_warray){.count = (int32_t)scan->dirs_count, .get = get_dir, .context = scan};
    if (r < 0) {
        out.error_code =
            r == -EAGAIN ? MILL_KERR_REQUEST_TIMED_OUT : MILL_KERR_UNKNOWN_SERVER_ERROR;
        out.results.count = 0;
    }
    mill_admin_answer(request, encode, &out);
}
