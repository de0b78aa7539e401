/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share about an arena; nobody else includes it.
 *
 *   file:  | header 4 KiB | marks (file 0) | descriptors of this file's units | pad | chunks ... |
 *            data_pos_bytes is a multiple of 2 MiB, so every chunk is one hugepage  ^
 *
 * Chunks are numbered over the whole range; the chunk table is private memory of the process, since
 * after a restart nothing is adopted: extents are written to files and the arena is reset. */
#ifndef MILL_HUGEPAGES_ARENA_PRIVATE_H
#define MILL_HUGEPAGES_ARENA_PRIVATE_H

#include "hugepages/arena.h"

enum {
    ARENA_HEADER_BYTES = 4096,
    ARENA_PAGE_BYTES = 4096,
    ARENA_CLASS_CHUNK = 9, /* 4096 << 9 = one chunk */
    ARENA_CLASS_MAX = 18,  /* 1 GiB: sizes stay far inside 32 bits */
    ARENA_PATH_BYTES = 512,
    ARENA_CHUNK_FREE = 0,    /* in the chunk table; a core's mark is its index + 1 */
    ARENA_BLOCK_KEPT = 0x20, /* in the byte of a kept extent's first unit */
    /* Written in a slot of marks beside the header's 0 and 1. */
    ARENA_MARK_FREE = 0,
    ARENA_MARK_USED = 1,
    ARENA_MARK_FILLING = 2, /* claimed; meaningless after a restart */
    ARENA_MARK_FREED = 3,   /* free again; a search must go on behind it */
};
static_assert(ARENA_CLASS_CHUNK < 32 &&
                  (MILL_EXTENT_UNIT_BYTES << ARENA_CLASS_CHUNK) == MILL_CHUNK_BYTES,
              "a chunk is the largest buddy");

/* Chunks that hold headers and tables belong to nobody. */
#define ARENA_CHUNK_TABLES UINT32_MAX
/* Nor do chunks with extents that a take-up kept: this plus how many. */
#define ARENA_CHUNK_KEPT (1u << 31)

/* First bytes of each file. magic is written last when a file is made and cleared first when it is
 * removed: a file without it holds nothing. */
struct arena_header {
    _Atomic uint32_t magic;
    uint32_t version;
    uint64_t size_bytes; /* of this file */
    uint32_t index;      /* this file's, in the range */
    uint32_t files_length;
    struct mill_uuid made_id; /* drawn when the files were made: all files carry the same */
    uint64_t marks_pos_bytes;
    uint64_t descs_pos_bytes;
    uint64_t data_pos_bytes;
    uint32_t marks_length;
    uint32_t extent_bytes_max;
    int32_t node;                 /* NUMA node, -1 none */
    uint32_t crc32c;              /* from version up to here: what stays as it was made */
    struct mill_uuid incarnation; /* file 0 only */
};
static_assert(sizeof(struct arena_header) == 96, "shared layout");
static_assert(offsetof(struct arena_header, marks_pos_bytes) == 40, "shared layout");
static_assert(offsetof(struct arena_header, crc32c) == 76, "shared layout");

/* Sizes that follow from size, files, partitions and largest extent. */
struct arena_geometry {
    uint64_t file_bytes; /* of each file */
    uint64_t marks_pos_bytes;
    uint64_t descs_pos_bytes;
    uint64_t data_pos_bytes; /* first chunk, in file 0; the others leave the same room */
    uint32_t files_length;
    uint32_t marks_length;
    uint32_t extent_bytes_max;
};

struct arena_file {
    uint8_t *base;
    struct arena_header *header;
    struct mill_extent_desc *descs; /* one per unit of this file */
    int node;                       /* -1: not bound */
};

/* Links of a free block in its core's list; the first unit's entry counts. */
struct arena_link {
    uint32_t next;
    uint32_t prev;
};

struct mill_arena {
    uint8_t *base;
    uint64_t size_bytes;
    uint32_t units;
    uint32_t file_units; /* per file */
    uint32_t chunks;
    uint32_t page_bytes;
    struct arena_geometry geometry;
    struct arena_file files[MILL_ARENA_NODES_MAX];
    struct mill_partition_mark *marks;
    uint32_t cores;
    bool taken;   /* holds what an earlier process left: nothing may be allocated before reset */
    bool resized; /* taken with another geometry than asked for */
    uint32_t implausible_count;
    uint64_t elsewhere_bytes; /* on another node than the file's */
    char dir[ARENA_PATH_BYTES];
    _Atomic uint64_t cores_made;   /* bit per core that has an allocator */
    _Atomic uint32_t chunks_free;  /* a hint that saves futile searches */
    _Atomic uint32_t *chunk_owner; /* per chunk: core + 1, or ARENA_CHUNK_... */
    /* Per unit; entries of a chunk are touched by the chunk's owner only. */
    struct arena_link *links;
    uint8_t *blocks; /* 0 inside a block, else BLOCK_... | class at its first unit */
};

/* Computes the geometry. ret: 0, -EINVAL with the reason. */
int arena_geometry_make(uint64_t size_bytes, uint32_t files_length, uint32_t marks_length,
                        uint32_t extent_bytes_max, struct arena_geometry *ret_geometry,
                        struct mill_report *report) MILL_WARN_UNUSED;

/* Finds the files that are there. ret: 1 all there and sound (geometry and node of each read), 0
 * none or unfinished ones, -ESTALE foreign or incomplete, -errno. */
int arena_files_probe(const char *dir, struct arena_geometry *ret_geometry,
                      struct mill_report *report) MILL_WARN_UNUSED;

/* Makes (fresh) or opens all files of the arena's geometry, maps them side by side, places and
 * faults every page. Fills base, size_bytes, files. On failure nothing stays mapped, and files
 * made here are gone. */
int arena_files_map(struct mill_arena *arena, const struct mill_arena_options *options, bool fresh,
                    struct mill_report *report) MILL_WARN_UNUSED;

/* Path of a file: false when dir is too long. */
bool arena_path(const char *dir, uint32_t index, char ret_path[ARENA_PATH_BYTES]);

/* Removes all files of an arena in dir, sound or not; the header goes first. ret: 0, -errno. */
int arena_files_remove(const char *dir) MILL_WARN_UNUSED;

#endif
