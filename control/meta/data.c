/* SPDX-License-Identifier: Apache-2.0 */
/* Partition directories, as control looks for them; see data.h. */
#include "control/meta/data.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    PATH_BYTES = 1400,
};

static bool names_partition(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash && dash != name && dash[1] && dash[1 + strspn(dash + 1, "0123456789")] == '\0';
}

bool mill_meta_holds_data(const char *in, const char *name)
{
    char path[PATH_BYTES];
    bool data = false;
    snprintf(path, sizeof(path), "%s/%s", in, name);
    DIR *dir = opendir(path);
    const struct dirent *entry;
    while (dir && !data && (entry = readdir(dir)) != NULL) {
        size_t length = strlen(entry->d_name);
        data = strcmp(entry->d_name, "partition.metadata") == 0 ||
               (length == 24 && strcmp(entry->d_name + 20, ".log") == 0);
    }
    if (dir) {
        closedir(dir);
    }
    return data;
}

int mill_meta_find_data(const char *const *dirs, uint32_t dirs_count, mill_meta_found found,
                        void *context, struct mill_report *report)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < dirs_count; i++) {
        DIR *dir = opendir(dirs[i]);
        const struct dirent *entry;
        if (!dir && errno != ENOENT) {
            return mill_fail(report, -errno, "log directory %s cannot be read: %s", dirs[i],
                             strerror(errno));
        }
        while (dir && rc == 0 && (entry = readdir(dir)) != NULL) {
            if (names_partition(entry->d_name)) {
                rc = found(context, dirs[i], entry->d_name);
            }
        }
        if (dir) {
            closedir(dir);
        }
    }
    return rc;
}

struct first {
    const char *file;
    struct mill_report *report;
};

static int refuse(void *context, const char *dir, const char *name)
{
    const struct first *first = context;
    if (!mill_meta_holds_data(dir, name)) {
        return 0;
    }
    return mill_fail(first->report, -EEXIST,
                     "%s is missing or empty, but %s holds partitions (%s): put the file back "
                     "from a copy, or let metadata.dir name where it is; to begin anew, move the "
                     "partitions away",
                     first->file, dir, name);
}

int mill_meta_refuse_data(const char *const *dirs, uint32_t dirs_count, const char *file,
                          struct mill_report *report)
{
    struct first first = {.file = file, .report = report};
    return mill_meta_find_data(dirs, dirs_count, refuse, &first, report);
}
