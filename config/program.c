/* SPDX-License-Identifier: Apache-2.0 */
/* See program.h. */
#include "config/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void mill_program_fault_text(const struct mill_config_fault *fault, char *ret_text,
                             size_t size_bytes)
{
    char place[160] = "";
    if (fault->line > 0) {
        snprintf(place, sizeof(place), "%s:%u: ", fault->file, fault->line);
    } else if (fault->file[0]) {
        snprintf(place, sizeof(place), "%s: ", fault->file);
    }
    snprintf(ret_text, size_bytes, "%s%s%s%s%s", place, fault->error ? "" : "warning: ", fault->key,
             fault->key[0] ? ": " : "", fault->text);
}

uint32_t mill_program_faults(const struct mill_config *config, const char *program, bool warnings)
{
    const struct mill_config_fault *faults;
    uint32_t count = mill_config_faults(config, &faults);
    uint32_t errors = 0;
    char text[sizeof(*faults) + 64];
    for (uint32_t round = 0; round < 2; round++) {
        bool want_errors = round == 0;
        for (uint32_t i = 0; i < count; i++) {
            if (faults[i].error == want_errors && (want_errors || warnings)) {
                mill_program_fault_text(&faults[i], text, sizeof(text));
                fprintf(stderr, "%s: %s\n", program, text);
                errors += want_errors;
            }
        }
    }
    return errors;
}

static bool runnable(const char *path)
{
    return access(path, X_OK) == 0;
}

/* Looks through PATH. */
static bool find_in_path(const char *name, char ret_path[MILL_PROGRAM_PATH_BYTES])
{
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t size = strcspn(at, ":");
        snprintf(ret_path, MILL_PROGRAM_PATH_BYTES, "%.*s/%s", (int)size, at, name);
        if (size > 0 && runnable(ret_path)) {
            return true;
        }
        at += size + (at[size] == ':');
    }
    return false;
}

void mill_program_find(const char *name, char ret_path[MILL_PROGRAM_PATH_BYTES])
{
    char own[MILL_PROGRAM_PATH_BYTES / 2];
    ssize_t size = readlink("/proc/self/exe", own, sizeof(own) - 1);
    own[MILL_MAX(size, 0)] = '\0';
    char *slash = strrchr(own, '/');
    if (slash) {
        *slash = '\0';
    }
    if (slash) {
        snprintf(ret_path, MILL_PROGRAM_PATH_BYTES, "%s/%s", own, name);
        if (runnable(ret_path)) {
            return;
        }
    }
    if (!find_in_path(name, ret_path)) {
        snprintf(ret_path, MILL_PROGRAM_PATH_BYTES, "%s/%s", slash ? own : ".", name);
    }
}
