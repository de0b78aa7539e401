/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: hugepage files (one per NUMA node) mapped side by side into one address range, and in
 * it the extents that hold record batches. Files are on hugetlbfs, or on tmpfs with the same layout
 * when hugepages are off. They outlive the process: everything inside is offsets, never pointers.
 *
 *   | file of node 0                                              | file of node 1 ...
 *   | header | partition marks | descriptors | chunks of 2 MiB ...  | header | descriptors | ...
 *
 *   extent id = number of its first 4 KiB unit counted from the base of the whole range, so that an
 *   address is base + id * 4096 without a look-up (base/ref.h). One descriptor per unit; the one of
 * an extent's first unit describes it.
 *
 * Memory moves between cores in 2 MiB chunks by compare-and-swap (slow path); inside a chunk its
 * core alone allocates, by buddies of power-of-two units. An extent larger than a chunk takes
 * several neighbouring chunks. An idle partition owns no extent.
 */
#ifndef MILL_HUGEPAGES_ARENA_H
#define MILL_HUGEPAGES_ARENA_H

#include <stdatomic.h>

#include "base/ref.h"
#include "base/report.h"
#include "base/uuid.h"

enum {
    MILL_ARENA_MAGIC = 0x4d4c4152, /* "MLAR" */
    MILL_ARENA_VERSION = 1,
    MILL_CHUNK_BYTES = 2 << 20,
    MILL_CHUNK_UNITS = MILL_CHUNK_BYTES / MILL_EXTENT_UNIT_BYTES,
    MILL_ARENA_NODES_MAX = 8,
    MILL_ARENA_CORES_MAX = 64,
};

/* What an extent is for. A descriptor's state is the last field written when it becomes valid and
 * the first when it ends, so that a process killed between two stores leaves the old or the new. */
enum mill_extent_state {
    MILL_EXTENT_FREE = 0,
    MILL_EXTENT_LOG = 1,     /* batches of one partition, up to committed_bytes */
    MILL_EXTENT_SCRATCH = 2, /* staging, answers, cold reads: meaningless after a restart */
    MILL_EXTENT_STATE_COUNT,
};

struct mill_extent_desc {
    struct mill_uuid topic_id;
    int32_t partition;
    uint32_t generation;              /* rises with each use of this unit */
    int64_t base_offset;              /* of the first batch; log extents only */
    uint64_t order;                   /* rises along a partition's extents */
    _Atomic uint32_t committed_bytes; /* whole batches below it; released after the bytes */
    uint8_t class_shift;              /* size = 4096 << class_shift */
    uint8_t reserved[3];
    uint64_t reserved2;
    _Atomic uint32_t state; /* enum mill_extent_state; released last */
    uint32_t reserved3;
};
static_assert(sizeof(struct mill_extent_desc) == 64, "one line per unit");

/* Up to where a partition's files were written and where its log starts; written by the owner
 * before the file changes (log start) or after (written). A slot is found by mill_arena_mark. */
struct mill_partition_mark {
    struct mill_uuid topic_id;
    int32_t partition;
    _Atomic uint32_t state;          /* 1 used, released last; else no mark (marks.c) */
    _Atomic int64_t written_offset;  /* every batch below it is in the files */
    _Atomic int64_t start_offset;    /* log start; lower offsets in extents are void */
    _Atomic int64_t truncate_offset; /* a truncation under way cuts from here; -1 none */
    _Atomic uint64_t uses;           /* of this slot; rises before its fields change hands */
    uint64_t reserved;
};
static_assert(sizeof(struct mill_partition_mark) == 64, "one line per partition");

struct mill_arena_options {
    const char *dir;     /* folder of the instance on hugetlbfs or tmpfs; exists */
    bool hugepages;      /* checks that dir is on hugetlbfs */
    uint64_t size_bytes; /* over all nodes, rounded up to chunks */
    uint32_t nodes; /* NUMA nodes used, 1..MILL_ARENA_NODES_MAX; a file on each if it has room */
    uint32_t cores; /* poll cores that will allocate */
    uint32_t partitions_max;
    uint32_t extent_bytes_max; /* largest extent: holds the largest batch */
};

struct mill_arena;

/* Creates the files, or maps those an earlier process left (ret_taken true): every page is reserved
 * and faulted in here, so that no later touch can fail. Files left are opened with their own
 * geometry, so that what they hold can be taken up whatever the configuration says now
 * (mill_arena_resized). Files that cannot be understood are left as they are: the caller says so
 * loudly, calls mill_arena_discard and opens again.
 * ret: 0; -ESTALE foreign, damaged or incomplete files; -EPERM files that others may have written;
 *      -ENOSPC too few pages (report names the sysctl); -EINVAL options, or a folder on the wrong
 *      kind of file system; -errno of the file calls */
int mill_arena_open(const struct mill_arena_options *options, struct mill_arena **ret_arena,
                    bool *ret_taken, struct mill_report *report) MILL_WARN_UNUSED;

/* True when the files taken have another geometry than the options asked for: after take-up, close
 * with remove and open again. */
bool mill_arena_resized(const struct mill_arena *arena);

/* Removes the files in dir, whatever they hold. No arena is open there. ret: 0, -errno. */
int mill_arena_discard(const char *dir, struct mill_report *report) MILL_WARN_UNUSED;

/* Hugepages that an open with these options lacks now, counting files of an earlier process as
 * there; 0 with hugepages off. Start-up only. */
uint64_t mill_arena_pages_missing(const struct mill_arena_options *options);

/* Forgets all content and starts under a new incarnation. Before any core's allocator is created;
 * after a take-up nothing can be allocated until this was called. */
void mill_arena_reset(struct mill_arena *arena, const struct mill_uuid *incarnation);

/* The same, but for extents of the take-up that stay as they are: they belong to nobody, and no
 * core's allocator touches them, until mill_arena_kept_free. */
void mill_arena_reset_but(struct mill_arena *arena, const struct mill_uuid *incarnation,
                          const uint32_t *extents, uint32_t count);
/* Ends an extent that was kept; its memory is anyone's again. Once each, any thread. */
void mill_arena_kept_free(struct mill_arena *arena, uint32_t extent);

/* The id that arena and log directories share; zero in a fresh arena. */
struct mill_uuid mill_arena_incarnation(const struct mill_arena *arena);

/* Unmaps; with remove also deletes the files (clean stop: everything is in the log files). */
void mill_arena_close(struct mill_arena *arena, bool remove);

uint8_t *mill_arena_base(const struct mill_arena *arena);
uint64_t mill_arena_size_bytes(const struct mill_arena *arena);
/* Number of 4 KiB units over the whole range: bound of extent ids. */
uint32_t mill_arena_units(const struct mill_arena *arena);
struct mill_extent_desc *mill_arena_desc(struct mill_arena *arena, uint32_t extent);
/* One mapped file, for registration with a port: false when index is past the last. */
bool mill_arena_file(const struct mill_arena *arena, uint32_t index, uint8_t **ret_base,
                     uint64_t *ret_size_bytes, uint32_t *ret_page_bytes, int *ret_node);

/* Bytes that lie on another NUMA node than the file they belong to, because theirs had no pages
 * free: right, but slower, and to be told. */
uint64_t mill_arena_elsewhere_bytes(const struct mill_arena *arena);

/* Take-up: the next descriptor from *cursor on (0 at first) whose state is LOG and whose fields
 * describe bytes that are there; its extent is then *cursor - 1. What a damaged table says beyond
 * that is skipped and counted. ret: NULL at the end. */
struct mill_extent_desc *mill_arena_next_log(struct mill_arena *arena, uint32_t *cursor);
/* Descriptors skipped by mill_arena_next_log; to be told loudly when not 0. */
uint32_t mill_arena_implausible_count(const struct mill_arena *arena);

/* The mark of a partition, made when absent (offsets 0, truncation -1). ret: NULL when the table is
 * full (counted by the caller). Owner core or start-up only; two cores may look for different
 * partitions at once. */
struct mill_partition_mark *mill_arena_mark(struct mill_arena *arena,
                                            const struct mill_uuid *topic_id, int32_t partition);
/* All marks, for take-up; index below mill_arena_marks_length (partitions_max when the files were
 * made); NULL for a free slot and above. */
uint32_t mill_arena_marks_length(const struct mill_arena *arena);
struct mill_partition_mark *mill_arena_mark_at(struct mill_arena *arena, uint32_t index);
void mill_arena_mark_free(struct mill_partition_mark *mark);

/* The core whose chunk holds the extent: where a borrower returns its loans. While loans of it are
 * out the answer does not change. Any core. */
uint32_t mill_arena_owner(const struct mill_arena *arena, uint32_t extent);

/* --- extents of one core -------------------------------------------------------------------------
 */

struct mill_extents; /* one core's allocator over the arena */

struct mill_loans;

/* One per core, before it runs; node_preferred is the CPU's NUMA node, -1 unknown.
 * ret: 0, -EINVAL no such core, -EEXIST it has one, -ENOMEM. */
int mill_extents_create(struct mill_arena *arena, uint32_t core, int node_preferred,
                        struct mill_extents **ret_extents) MILL_WARN_UNUSED;
/* Valid extents stay as they are, for the next process to take up. */
void mill_extents_destroy(struct mill_extents *extents);
/* Has every free checked against the core's loans. */
void mill_extents_check_loans(struct mill_extents *extents, const struct mill_loans *loans);
/* Gives back the one empty chunk that a core keeps: for a core about to idle long. */
void mill_extents_trim(struct mill_extents *extents);

/* The arena file that is searched first from now on. Start-up only. ret: the one before. */
uint32_t mill_extents_prefer(struct mill_extents *extents, uint32_t file);

/* Takes an extent of at least size_bytes, rounded up to the next power of two from 4 KiB on. The
 * descriptor's state stays FREE until the caller has filled it (mill_extent_publish).
 * ret: 0, -ENOSPC nothing free (counted), -EFBIG above extent_bytes_max. O(classes). */
int mill_extent_alloc(struct mill_extents *extents, uint32_t size_bytes,
                      uint32_t *ret_extent) MILL_WARN_UNUSED;

/* Sets the descriptor valid as state (release store, last). Fields were written by the caller. */
void mill_extent_publish(struct mill_extents *extents, uint32_t extent,
                         enum mill_extent_state state);

/* Gives an extent back: only its core, only when no loan is out (see above).
 * A wrong owner and a second free abort. */
void mill_extent_free(struct mill_extents *extents, uint32_t extent);

uint32_t mill_extent_size_bytes(const struct mill_extents *extents, uint32_t extent);
uint8_t *mill_extent_data(const struct mill_extents *extents, uint32_t extent);
/* Bytes in extents that this core holds, and times it found nothing. */
uint64_t mill_extents_used_bytes(const struct mill_extents *extents);
uint64_t mill_extents_full_count(const struct mill_extents *extents);

#endif
