/* SPDX-License-Identifier: Apache-2.0 */
/* Files below the doctor's root and words of its findings; see doctor_probes.h. */
#include "cli/doctor_probes.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void doctor_path(const struct doctor *doctor, char ret_path[DOCTOR_PATH_BYTES], const char *format,
                 ...)
{
    va_list args;
    size_t used = (size_t)snprintf(ret_path, DOCTOR_PATH_BYTES, "%s", doctor->root);
    used = MILL_MIN(used, (size_t)DOCTOR_PATH_BYTES - 1);
    va_start(args, format);
    vsnprintf(ret_path + used, DOCTOR_PATH_BYTES - used, format, args);
    va_end(args);
}

/* Up to size_bytes - 1 of a file, terminated. ret: false when it cannot be read. */
static bool read_into(const struct doctor *doctor, const char *path, char *ret_text,
                      size_t size_bytes)
{
    char full[DOCTOR_PATH_BYTES];
    doctor_path(doctor, full, "%s", path);
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got = -1;
    while (fd >= 0 && used < size_bytes - 1 &&
           (got = read(fd, ret_text + used, size_bytes - 1 - used)) > 0) {
        used += (size_t)got;
    }
    if (fd >= 0) {
        close(fd);
    }
    ret_text[used] = '\0';
    return fd >= 0 && got >= 0;
}

/* A whole file in the doctor's scratch memory, until the next call. NULL: cannot be read. */
char *doctor_file(const struct doctor *doctor, const char *path)
{
    return read_into(doctor, path, doctor->scratch, DOCTOR_SCRATCH_BYTES) ? doctor->scratch : NULL;
}

/* The file's first line without its end. */
bool doctor_line(const struct doctor *doctor, char ret_text[DOCTOR_LINE_BYTES], const char *format,
                 ...)
{
    char path[DOCTOR_PATH_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    bool is_there = read_into(doctor, path, ret_text, DOCTOR_LINE_BYTES);
    ret_text[strcspn(ret_text, "\n")] = '\0';
    return is_there;
}

bool doctor_exists(const struct doctor *doctor, const char *path)
{
    char full[DOCTOR_PATH_BYTES];
    doctor_path(doctor, full, "%s", path);
    return access(full, F_OK) == 0;
}

void doctor_found(struct doctor_finding *finding, enum doctor_level level, const char *format, ...)
{
    va_list args;
    finding->level = level;
    va_start(args, format);
    vsnprintf(finding->what, sizeof(finding->what), format, args);
    va_end(args);
}

void doctor_mend(struct doctor_finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->mend, sizeof(finding->mend), format, args);
    va_end(args);
}

/* "0-3,8" holds cpu. */
bool doctor_list_has(const char *list, uint32_t cpu)
{
    for (const char *at = list; *at;) {
        char *end;
        unsigned long first = strtoul(at, &end, 10);
        if (end == at) {
            return false;
        }
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        if (cpu >= first && cpu <= last) {
            return true;
        }
        at = *end == ',' ? end + 1 : "";
    }
    return false;
}

uint64_t doctor_number_behind(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

bool doctor_uses_dpdk(const struct mill_config *config)
{
    const struct mill_config_listener *listeners;
    uint32_t count = mill_config_listeners(config, &listeners);
    for (uint32_t i = 0; i < count; i++) {
        if (listeners[i].transport == MILL_TRANSPORT_DPDK) {
            return true;
        }
    }
    return false;
}

/* Mount point, type and options of the mount that holds path. */
bool doctor_mount_of(const struct doctor *doctor, const char *path,
                     char ret_type[DOCTOR_NAME_BYTES], char ret_options[DOCTOR_NAME_BYTES * 4])
{
    char *text = doctor_file(doctor, "/proc/mounts");
    char point[DOCTOR_PATH_BYTES];
    char type[DOCTOR_NAME_BYTES];
    char options[DOCTOR_NAME_BYTES * 4];
    size_t best = 0;
    char *rest = NULL;
    if (!text) {
        return false;
    }
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (sscanf(line, "%*s %639s %63s %255s", point, type, options) != 3) {
            continue;
        }
        size_t size = strcmp(point, "/") == 0 ? 0 : strlen(point);
        bool holds = strncmp(path, point, size) == 0 && (path[size] == '/' || path[size] == '\0');
        if (holds && size + 1 >= best) {
            best = size + 1;
            snprintf(ret_type, DOCTOR_NAME_BYTES, "%s", type);
            snprintf(ret_options, DOCTOR_NAME_BYTES * 4, "%s", options);
        }
    }
    return best > 0;
}
