/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a broker as they were at one moment, and damage done to copies of them: by bytes, by
 * fields of the formats that lie in them, by whole files; with the sums made right again where it
 * is asked for, so that what is behind a sum is reached. One thread.
 *
 *   damage:  file | how (enum, | DAMAGE_SUMS) | position, 32 bits | length, 16 | value, 8 bytes
 *
 * Any bytes are some damage: files and positions wrap around. */
#ifndef MILL_TESTS_FUZZ_DAMAGE_H
#define MILL_TESTS_FUZZ_DAMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/disk_model.h"

enum {
    DAMAGE_BYTES = 16,
    DAMAGE_FIELDS = 16, /* below it in a position: the field; above: the entry */
    DAMAGE_LENGTH_MAX = 600,
    DAMAGE_SUMS = 0x80,
    IMAGE_FILES_MAX = 96,
    IMAGE_PATH_BYTES = 160,
    IMAGE_PAGE_BYTES = 4096,
};

enum damage_kind {
    DAMAGE_OVERWRITE, /* length bytes: the value, again and again */
    DAMAGE_CUT,       /* the file ends at the position */
    DAMAGE_APPEND,    /* as much as OVERWRITE, at the end */
    DAMAGE_REMOVE,
    DAMAGE_COPY,  /* the file of the value's first byte has these bytes, too */
    DAMAGE_FIELD, /* of a format's entry; of a text a number */
    DAMAGE_KINDS,
};

struct damage {
    uint8_t file; /* index */
    enum damage_kind kind;
    bool sums;
    uint32_t pos;
    uint32_t length;
    uint8_t value[8]; /* big endian where it is a number */
};

struct image_file {
    char path[IMAGE_PATH_BYTES];
    uint8_t *bytes;
    uint32_t size;
    bool gone;
    /* Of the arena: pages that hold something, one after the other in bytes; NULL: another file. */
    uint32_t *pages;
    uint64_t whole_bytes; /* of that file */
};

struct image {
    struct image_file files[IMAGE_FILES_MAX];
    uint32_t count;
    const char *const *folders; /* of the model, each after the one it lies in */
    uint32_t folders_count;
};

/* Keeps all files of the folders. */
void image_keep(struct image *image, struct disk_model *disk, const char *const *folders,
                uint32_t folders_count);
/* And one of the kernel's: the arena, whose pages are nearly all empty. */
void image_keep_arena(struct image *image, const char *path);
void image_copy(const struct image *from, struct image *to);
/* Makes all of it again, on a new disk; the arena where it was, over what is there. */
void image_put(const struct image *image, struct disk_model *disk);
void image_free(struct image *image);

void damage_read(const uint8_t *bytes, const struct image *image, struct damage *ret_damage);
void damage_do(struct image *image, const struct damage *damage);
void damage_tell(const struct image *image, const struct damage *damage);

#endif
