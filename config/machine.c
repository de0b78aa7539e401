/* SPDX-License-Identifier: Apache-2.0 */
/* What depends on the machine: CPUs, memory, directories and the instance's name. Reads the
 * machine at load only. */
#include "config/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/siphash.h"

enum {
    ARENA_DEFAULT_MB = 512,
    CPU_TEXT_BYTES = 128,
};

static void replace(char **slot, const char *text)
{
    char *copy = strdup(text);
    if (!copy) {
        mill_no_memory("the configuration");
    }
    free(*slot);
    *slot = copy;
}

void hugepages_resolve(struct mill_config *config)
{
    struct value *value = &config->values[MILL_KEY_HUGEPAGES_SIZE_MB];
    struct sysinfo info;
    int64_t memory_mb = INT64_MAX;
    if (sysinfo(&info) == 0) {
        memory_mb = (int64_t)(((uint64_t)info.totalram * info.mem_unit) >> 20);
    }
    if (strcmp(value->text, "auto") == 0) {
        value->number = MILL_MAX(MILL_MIN(memory_mb / 4, (int64_t)ARENA_DEFAULT_MB), (int64_t)16);
        char text[24];
        snprintf(text, sizeof(text), "%lld", (long long)value->number);
        replace(&value->text, text);
    } else if (value->number > memory_mb) {
        fault_key(config, true, MILL_KEY_HUGEPAGES_SIZE_MB,
                  "%lld MiB are more than the %lld MiB of this machine", (long long)value->number,
                  (long long)memory_mb);
    }
}

/* --- CPUs ----------------------------------------------------------------------------------- */

/* Writes a CPU set as "0-3,8". */
static void cpus_format(const cpu_set_t *set, char *ret_text, size_t size_bytes)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, set)) {
            continue;
        }
        uint32_t last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) {
            last++;
        }
        const char *comma = used ? "," : "";
        int more = last > cpu
                       ? snprintf(ret_text + used, size_bytes - used, "%s%u-%u", comma, cpu, last)
                       : snprintf(ret_text + used, size_bytes - used, "%s%u", comma, cpu);
        used += (size_t)MILL_MAX(more, 0);
        if (used >= size_bytes) {
            return;
        }
        cpu = last;
    }
}

static bool add_cpu(struct mill_config *config, const cpu_set_t *allowed, int64_t cpu)
{
    char have[CPU_TEXT_BYTES];
    if (cpu >= CPU_SETSIZE || !CPU_ISSET((uint32_t)cpu, allowed)) {
        cpus_format(allowed, have, sizeof(have));
        fault_key(config, true, MILL_KEY_DATAPLANE_CORES,
                  "CPU %lld does not exist or is not allowed to this process; there are %s",
                  (long long)cpu, have);
        return false;
    }
    for (uint32_t i = 0; i < config->cpus_count; i++) {
        if (config->cpus[i] == (uint32_t)cpu) {
            fault_key(config, true, MILL_KEY_DATAPLANE_CORES, "CPU %lld is named twice",
                      (long long)cpu);
            return false;
        }
    }
    if (config->cpus_count == MILL_CONFIG_CORES_MAX) {
        fault_key(config, true, MILL_KEY_DATAPLANE_CORES, "more than %u CPUs",
                  MILL_CONFIG_CORES_MAX);
        return false;
    }
    config->cpus[config->cpus_count++] = (uint32_t)cpu;
    return true;
}

/* One element: "3" or "2-5". */
static bool add_range(struct mill_config *config, const cpu_set_t *allowed, char *item)
{
    char *dash = strchr(item, '-');
    int64_t first = -1;
    int64_t last = -1;
    if (dash) {
        *dash = '\0';
    }
    int rc = parse_int(item, &first);
    rc = rc < 0 ? rc : parse_int(dash ? dash + 1 : item, &last);
    if (dash) {
        *dash = '-';
    }
    if (rc < 0 || first < 0 || last < first || last >= CPU_SETSIZE + 1) {
        fault_key(config, true, MILL_KEY_DATAPLANE_CORES,
                  "\"%s\" is not a CPU list; give numbers and ranges like 0,2-3, or auto", item);
        return false;
    }
    for (int64_t cpu = first; cpu <= last; cpu++) {
        if (!add_cpu(config, allowed, cpu)) {
            return false;
        }
    }
    return true;
}

void cores_resolve(struct mill_config *config)
{
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        CPU_SET(0, &allowed);
    }
    struct value *value = &config->values[MILL_KEY_DATAPLANE_CORES];
    if (strcmp(value->text, "auto") == 0) {
        uint32_t last = 0;
        for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            last = CPU_ISSET(cpu, &allowed) ? cpu : last;
        }
        config->cpus[0] = last;
        config->cpus_count = 1;
        char text[24];
        snprintf(text, sizeof(text), "%u", last);
        replace(&value->text, text);
    } else {
        char item[LIST_ITEM_BYTES];
        for (const char *at = value->text; list_next(&at, item);) {
            if (!add_range(config, &allowed, item)) {
                return;
            }
        }
        if (config->cpus_count == 0) {
            fault_key(config, true, MILL_KEY_DATAPLANE_CORES,
                      "names no CPU; give a list like 0,2-3, or auto");
            return;
        }
    }
    bool busy = strcmp(config->values[MILL_KEY_DATAPLANE_IDLE].text, "busy") == 0;
    if (busy && config->cpus_count >= (uint32_t)CPU_COUNT(&allowed)) {
        fault_key(config, false, MILL_KEY_DATAPLANE_IDLE,
                  "busy cores take every CPU of this process; control and workers share them");
    }
}

/* --- directories ------------------------------------------------------------------------------ */

/* An absolute path, without a look at the file system but for the current directory. */
static char *absolute(const char *path)
{
    char cwd[PATH_BYTES] = "";
    char text[2 * PATH_BYTES];
    if (path[0] == '/' || !getcwd(cwd, sizeof(cwd))) {
        cwd[0] = '\0';
    }
    while (cwd[0] && path[0] == '.' && path[1] == '/') {
        path += 2;
    }
    snprintf(text, sizeof(text), "%s%s%s", cwd, cwd[0] ? "/" : "", path);
    size_t size = strlen(text);
    while (size > 1 && text[size - 1] == '/') {
        text[--size] = '\0';
    }
    char *copy = strdup(text);
    if (!copy) {
        mill_no_memory("the configuration");
    }
    return copy;
}

/* realpath of what exists, with the rest of the path after it: the same name before and after the
 * directory is made. */
static void real_prefix(const char *path, char ret_path[2 * PATH_BYTES])
{
    char head[PATH_BYTES];
    snprintf(head, sizeof(head), "%s", path);
    for (;;) {
        char *real = realpath(head, NULL);
        if (real) {
            const char *rest = path + strlen(head);
            bool root = strcmp(real, "/") == 0 && rest[0] == '/';
            snprintf(ret_path, 2 * PATH_BYTES, "%s%s", root ? "" : real, rest);
            free(real);
            return;
        }
        char *slash = strrchr(head, '/');
        if (!slash || slash == head) {
            snprintf(ret_path, 2 * PATH_BYTES, "%s", path);
            return;
        }
        *slash = '\0';
    }
}

static void instance_name(struct mill_config *config)
{
    static const uint64_t key[2] = {0, 0};
    char real[2 * PATH_BYTES];
    real_prefix(config->run_dir, real);
    uint32_t hash = (uint32_t)mill_siphash(key, real, strlen(real));
    snprintf(config->instance, sizeof(config->instance), "millrace-%lld-%08x",
             (long long)config->values[MILL_KEY_NODE_ID].number, hash);
}

static void run_dir_resolve(struct mill_config *config)
{
    struct value *value = &config->values[MILL_KEY_RUN_DIR];
    char text[PATH_BYTES];
    const char *node = config->values[MILL_KEY_NODE_ID].text;
    const char *user = getenv("XDG_RUNTIME_DIR");
    if (value->text && value->text[0] == '\0') {
        fault_key(config, true, MILL_KEY_RUN_DIR, "is empty; name a directory or remove the key");
    }
    if (value->text && value->text[0]) {
        snprintf(text, sizeof(text), "%s", value->text);
    } else if (geteuid() == 0) {
        snprintf(text, sizeof(text), "/run/millrace/%s", node);
    } else if (user && user[0] == '/') {
        snprintf(text, sizeof(text), "%s/millrace/%s", user, node);
    } else {
        snprintf(text, sizeof(text), "/tmp/millrace-%u/%s", geteuid(), node);
    }
    config->run_dir = absolute(text);
    replace(&value->text, config->run_dir);
    if (strlen(config->run_dir) > PATH_BYTES / 2) {
        fault_key(config, true, MILL_KEY_RUN_DIR, "is longer than %d bytes", PATH_BYTES / 2);
    }
}

static void log_dirs_resolve(struct mill_config *config)
{
    struct value *value = &config->values[MILL_KEY_LOG_DIRS];
    char item[PATH_BYTES];
    size_t joined_bytes = 1;
    for (const char *at = value->text; *at;) {
        size_t size = strcspn(at, ",");
        size_t from = strspn(at, " \t");
        if (size >= sizeof(item) / 2) {
            fault_key(config, true, MILL_KEY_LOG_DIRS, "a path is longer than %zu bytes",
                      sizeof(item) / 2);
            return;
        }
        snprintf(item, sizeof(item), "%.*s", (int)(size - MILL_MIN(from, size)), at + from);
        at += size + (at[size] == ',');
        for (size_t end = strlen(item); end > 0 && strchr(" \t", item[end - 1]); end--) {
            item[end - 1] = '\0';
        }
        if (item[0] == '\0') {
            continue;
        }
        if (config->dirs_count == DIRS_MAX) {
            fault_key(config, true, MILL_KEY_LOG_DIRS, "more than %u directories", DIRS_MAX);
            return;
        }
        char *dir = absolute(item);
        for (uint32_t i = 0; i < config->dirs_count; i++) {
            if (strcmp(config->dirs[i], dir) == 0) {
                fault_key(config, true, MILL_KEY_LOG_DIRS, "%s is named twice", dir);
            }
        }
        config->dirs[config->dirs_count++] = dir;
        joined_bytes += strlen(dir) + 1;
    }
    if (config->dirs_count == 0) {
        fault_key(config, true, MILL_KEY_LOG_DIRS, "names no directory");
        return;
    }
    char *joined = calloc(1, joined_bytes);
    if (!joined) {
        mill_no_memory("the configuration");
    }
    for (uint32_t i = 0; i < config->dirs_count; i++) {
        strcat(joined, i ? "," : "");
        strcat(joined, config->dirs[i]);
    }
    free(value->text);
    value->text = joined;
}

void dirs_resolve(struct mill_config *config)
{
    run_dir_resolve(config);
    log_dirs_resolve(config);
    struct value *metadata = &config->values[MILL_KEY_METADATA_DIR];
    if (metadata->text && metadata->text[0]) {
        config->metadata_dir = absolute(metadata->text);
        replace(&metadata->text, config->metadata_dir);
    } else {
        config->metadata_dir = absolute(config->dirs_count ? config->dirs[0] : ".");
    }
    for (uint32_t i = 0; i < config->dirs_count; i++) {
        if (strcmp(config->dirs[i], config->run_dir) == 0) {
            fault_key(config, true, MILL_KEY_RUN_DIR,
                      "is also a log directory; give it a directory of its own");
        }
    }
    instance_name(config);
}
