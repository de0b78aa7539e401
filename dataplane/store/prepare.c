/* SPDX-License-Identifier: Apache-2.0 */
/* meta.properties of log directories: whose they are, and the incarnation they share with the
 * arena. Once per process, before any store runs. ref: KIP-631 (meta.properties version 1) */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    META_VERSION = 1, /* 0: Kafka's with broker.id */
};

static const char meta_name[] = "meta.properties";

/* One line "key=value" of the text that at stands in; moves to the next. */
static bool line_next(char **at, char **ret_key, char **ret_value)
{
    while (**at) {
        char *line = *at;
        char *end = strchr(line, '\n');
        *at = end ? end + 1 : line + strlen(line);
        if (end) {
            *end = '\0';
        }
        line += strspn(line, " \t\r");
        char *equals = strpbrk(line, "=:");
        if (*line == '#' || *line == '!' || !equals) {
            continue;
        }
        *equals = '\0';
        *ret_key = line;
        line[strcspn(line, " \t")] = '\0';
        *ret_value = equals + 1 + strspn(equals + 1, " \t");
        (*ret_value)[strcspn(*ret_value, " \t\r")] = '\0';
        return true;
    }
    return false;
}

int mill_store_meta_read(const struct mill_file_calls *files, const char *dir,
                         struct store_meta *ret_meta)
{
    char path[STORE_PATH_BYTES];
    char text[STORE_META_BYTES];
    char *key;
    char *value;
    *ret_meta = (struct store_meta){.node_id = -1};
    snprintf(path, sizeof(path), "%s/%s", dir, meta_name);
    int r = mill_store_read_text(files, path, text, sizeof(text));
    if (r == -ENOENT) {
        return 0;
    }
    if (r < 0) {
        return r;
    }
    ret_meta->there = true;
    ret_meta->version = 0;
    for (char *at = text; line_next(&at, &key, &value);) {
        if (strcmp(key, "version") == 0) {
            ret_meta->version = strtoll(value, NULL, 10);
        } else if (strcmp(key, "node.id") == 0 || strcmp(key, "broker.id") == 0) {
            ret_meta->node_id = strtoll(value, NULL, 10);
        } else if (strcmp(key, "cluster.id") == 0) {
            snprintf(ret_meta->cluster_id, sizeof(ret_meta->cluster_id), "%s", value);
        } else if (strcmp(key, "directory.id") == 0) {
            snprintf(ret_meta->directory_id, sizeof(ret_meta->directory_id), "%s", value);
        } else if (strcmp(key, "millrace.incarnation") == 0) {
            r = mill_uuid_parse(value, &ret_meta->incarnation);
            MILL_UNUSED(r); /* unreadable: none, so that extents are not believed */
        }
    }
    return 0;
}

int mill_store_meta_write(const struct mill_file_calls *files, const char *dir,
                          const struct store_meta *meta)
{
    char text[STORE_META_BYTES];
    char incarnation[MILL_UUID_TEXT_BYTES];
    mill_uuid_format(&meta->incarnation, incarnation);
    snprintf(text, sizeof(text),
             "version=1\nnode.id=%" PRId64 "\ncluster.id=%s\ndirectory.id=%s\n"
             "millrace.incarnation=%s\n",
             meta->node_id, meta->cluster_id, meta->directory_id, incarnation);
    return mill_store_write_text(files, dir, meta_name, text);
}

/* A name in a directory above ours is durable. Also one that is there already: who made it may have
 * been killed before this. Where it is not ours to sync, it was not ours to make. */
static int sync_above(const struct mill_file_calls *files, const char *dir)
{
#ifdef MILL_MUTANT_STORE_NAMES_UNSYNCED
    return 0;
#endif
    int r = files->sync_dir(files->context, dir[0] ? dir : "/");
    return r == -EACCES || r == -EROFS || r == -EINVAL ? 0 : r;
}

/* Makes a directory and what lies above it, durably. */
static int make_dirs(const struct mill_file_calls *files, const char *dir)
{
    char path[STORE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s", dir);
    int above = dir[0] == '/' ? 0 : -1; /* where the directory of the next name ends; -1: "." */
    int r = 0;
    for (char *at = path + 1; r >= 0; at++) {
        if (*at != '/' && *at != '\0') {
            continue;
        }
        bool last = *at == '\0';
        *at = '\0';
        r = files->make_dir(files->context, path);
        bool passed = r == -EEXIST || (!last && (r == -EROFS || r == -EACCES));
        r = r < 0 && !passed ? r : 0;
        if (r == 0) {
            char parent[STORE_PATH_BYTES];
            snprintf(parent, sizeof(parent), "%.*s", above < 0 ? 1 : above, above < 0 ? "." : path);
            r = sync_above(files, parent);
        }
        if (last) {
            break;
        }
        above = (int)(at - path);
        *at = '/';
    }
    return r;
}

int mill_store_prepare_dir(const struct mill_file_calls *files, const char *dir, int32_t node_id,
                           const char *cluster_id, struct mill_report *report)
{
    struct store_meta meta;
    int r = make_dirs(files, dir);
    if (r < 0) {
        return mill_fail(report, r, "log directory %s cannot be made: %s", dir, strerror(-r));
    }
    r = mill_store_meta_read(files, dir, &meta);
    if (r < 0) {
        return mill_fail(report, r, "%s/%s cannot be read: %s", dir, meta_name, strerror(-r));
    }
    if (meta.version > META_VERSION) {
        return mill_fail(report, -EPERM,
                         "log directory %s has format version %" PRId64
                         " (%s), this program knows %d: use the program that wrote it",
                         dir, meta.version, meta_name, META_VERSION);
    }
    if (meta.there && meta.node_id != -1 && meta.node_id != node_id) {
        return mill_fail(report, -EPERM,
                         "log directory %s belongs to node %" PRId64 ", this is node %d: "
                         "set node.id or another log.dirs",
                         dir, meta.node_id, node_id);
    }
#ifdef MILL_MUTANT_STORE_ANY_CLUSTER
    snprintf(meta.cluster_id, sizeof(meta.cluster_id), "%s", cluster_id);
#endif
    if (meta.there && meta.cluster_id[0] && strcmp(meta.cluster_id, cluster_id) != 0) {
        return mill_fail(report, -EPERM,
                         "log directory %s belongs to cluster %s, this is cluster %s: "
                         "set another log.dirs, or the metadata.dir that goes with it",
                         dir, meta.cluster_id, cluster_id);
    }
    if (meta.there && meta.cluster_id[0] && meta.directory_id[0] && meta.node_id == node_id) {
        return 0;
    }
    meta.node_id = node_id;
    snprintf(meta.cluster_id, sizeof(meta.cluster_id), "%s", cluster_id);
    struct mill_uuid id;
    if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
        return mill_fail(report, -EIO, "no random numbers from the kernel");
    }
    if (!meta.directory_id[0]) {
        mill_uuid_format(&id, meta.directory_id);
    }
    r = mill_store_meta_write(files, dir, &meta);
    return r < 0 ? mill_fail(report, r, "%s/%s cannot be written: %s", dir, meta_name, strerror(-r))
                 : 0;
}
