/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what was set, as a file that loads to the same configuration. */
#include "config/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_pair(FILE *out, const char *key, const char *text)
{
    size_t size = 2 * strlen(text) + 8;
    char *escaped = malloc(size);
    if (!escaped) {
        mill_no_memory("the configuration");
    }
    properties_escape(text, false, escaped, size);
    fprintf(out, "%s=%s\n", key, escaped);
    free(escaped);
}

static int write_all(const struct mill_config *config, FILE *out)
{
    fprintf(out, "# Written by millrace-supervisor at start; changes here have no effect.\n");
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        const struct value *value = &config->values[i];
        if (value->given) {
            /* text, not given: relative paths and `auto` are resolved in it. */
            write_pair(out, mill_key_info((enum mill_key)i)->name, value->text);
        }
    }
    for (uint32_t i = 0; i < config->families_count; i++) {
        write_pair(out, config->families[i].key, config->families[i].text);
    }
    if (fflush(out) != 0 || ferror(out)) {
        return errno ? -errno : -EIO;
    }
    return 0;
}

int mill_config_write(const struct mill_config *config, const char *file)
{
    char temporary[2 * PATH_BYTES];
    int size = snprintf(temporary, sizeof(temporary), "%s.new", file);
    if (size < 0 || (size_t)size >= sizeof(temporary)) {
        return -ENAMETOOLONG;
    }
    /* Passwords may stand in it: for the owner only. */
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    FILE *out = fdopen(fd, "w");
    if (!out) {
        int error = -errno;
        close(fd);
        return error;
    }
    int rc = write_all(config, out);
    if (fclose(out) != 0 && rc == 0) {
        rc = -errno;
    }
    if (rc == 0 && rename(temporary, file) != 0) {
        rc = -errno;
    }
    if (rc < 0) {
        unlink(temporary);
    }
    return rc;
}
