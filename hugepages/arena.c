/* SPDX-License-Identifier: Apache-2.0 */
/* The arena as a whole: open, take-up, reset, close, and the way from extent ids to descriptors.
 * Opening, resetting and closing: one thread, before cores run or after they ended. The look-ups:
 * any thread. Never decides what a descriptor's content means. */
#include "hugepages/arena_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

/* --- open and close ----------------------------------------------------------------------------
 */

static uint64_t tables_bytes(const struct mill_arena *arena)
{
    return (uint64_t)arena->units * (sizeof(*arena->links) + sizeof(*arena->blocks)) +
           (uint64_t)arena->chunks * sizeof(*arena->chunk_owner);
}

/* Private tables, faulted in now: links, then owners of chunks, then a byte per unit. ret: 0,
 * -ENOMEM. */
static int tables_make(struct mill_arena *arena)
{
    uint8_t *at = mmap(NULL, tables_bytes(arena), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) {
        return -ENOMEM;
    }
    arena->links = (struct arena_link *)(void *)at;
    at += (uint64_t)arena->units * sizeof(*arena->links);
    arena->chunk_owner = (_Atomic uint32_t *)(void *)at;
    arena->blocks = at + (uint64_t)arena->chunks * sizeof(*arena->chunk_owner);
    uint32_t free_count = 0;
    for (uint32_t chunk = 0; chunk < arena->chunks; chunk++) {
        uint64_t in_file = (uint64_t)chunk * MILL_CHUNK_BYTES % arena->geometry.file_bytes;
        bool tables = in_file < arena->geometry.data_pos_bytes;
        atomic_init(&arena->chunk_owner[chunk], tables ? ARENA_CHUNK_TABLES : ARENA_CHUNK_FREE);
        free_count += tables ? 0 : 1;
    }
    atomic_init(&arena->chunks_free, free_count);
    return 0;
}

/* Slots that a killed process had claimed and not finished hold nothing. */
static void marks_sweep(struct mill_arena *arena)
{
    for (uint32_t i = 0; i < arena->geometry.marks_length; i++) {
        uint32_t state = atomic_load_explicit(&arena->marks[i].state, memory_order_relaxed);
        if (state != ARENA_MARK_FREE && state != ARENA_MARK_USED) {
            atomic_store_explicit(&arena->marks[i].state, ARENA_MARK_FREED, memory_order_relaxed);
        }
    }
}

static int options_check(const struct mill_arena_options *options, struct mill_report *report)
{
    char path[ARENA_PATH_BYTES];
    if (options->dir == NULL || !arena_path(options->dir, MILL_ARENA_NODES_MAX, path)) {
        return mill_fail(report, -ENAMETOOLONG, "arena folder: no name, or one too long");
    }
    if (options->cores == 0 || options->cores > MILL_ARENA_CORES_MAX) {
        return mill_fail(report, -EINVAL, "arena: %u cores (1 to %d)", options->cores,
                         MILL_ARENA_CORES_MAX);
    }
    return 0;
}

static bool geometry_equal(const struct arena_geometry *a, const struct arena_geometry *b)
{
    return a->file_bytes == b->file_bytes && a->files_length == b->files_length &&
           a->marks_length == b->marks_length && a->extent_bytes_max == b->extent_bytes_max;
}

int mill_arena_open(const struct mill_arena_options *options, struct mill_arena **ret_arena,
                    bool *ret_taken, struct mill_report *report)
{
    struct arena_geometry wanted;
    int error = options_check(options, report);
    if (error == 0) {
        error = arena_geometry_make(options->size_bytes, options->nodes, options->partitions_max,
                                    options->extent_bytes_max, &wanted, report);
    }
    if (error != 0) {
        return error;
    }
    struct mill_arena *arena =
        aligned_alloc(MILL_CACHE_LINE_BYTES, mill_round_up(sizeof(*arena), MILL_CACHE_LINE_BYTES));
    if (arena == NULL) {
        return mill_fail(report, -ENOMEM, "arena: out of memory");
    }
    memset(arena, 0, sizeof(*arena));
    arena->geometry = wanted;
    arena->cores = options->cores;
    MILL_ASSERT_LT(strlen(options->dir), sizeof(arena->dir));
    memcpy(arena->dir, options->dir, strlen(options->dir) + 1);
    int found = arena_files_probe(options->dir, &arena->geometry, report);
    if (found < 0) {
        free(arena);
        return found;
    }
    arena->taken = found == 1;
    arena->resized = arena->taken && !geometry_equal(&arena->geometry, &wanted);
    error = arena_files_map(arena, options, !arena->taken, report);
    if (error != 0) {
        free(arena);
        return error;
    }
    arena->size_bytes = arena->geometry.file_bytes * arena->geometry.files_length;
    arena->units = (uint32_t)(arena->size_bytes / MILL_EXTENT_UNIT_BYTES);
    arena->file_units = (uint32_t)(arena->geometry.file_bytes / MILL_EXTENT_UNIT_BYTES);
    arena->chunks = arena->units / MILL_CHUNK_UNITS;
    arena->marks = (struct mill_partition_mark *)(void *)(arena->files[0].base +
                                                          arena->geometry.marks_pos_bytes);
    error = tables_make(arena);
    if (error != 0) {
        /* Files that hold something stay; fresh ones would only look like it. */
        mill_arena_close(arena, !arena->taken);
        return mill_fail(report, error, "arena: no memory for its private tables");
    }
    if (arena->taken) {
        marks_sweep(arena);
    }
    *ret_arena = arena;
    *ret_taken = arena->taken;
    return 0;
}

bool mill_arena_resized(const struct mill_arena *arena)
{
    return arena->resized;
}

int mill_arena_discard(const char *dir, struct mill_report *report)
{
    int error = arena_files_remove(dir);
    return error == 0 ? 0
                      : mill_fail(report, error, "arena folder %s: cannot remove files: %s", dir,
                                  strerror(-error));
}

void mill_arena_close(struct mill_arena *arena, bool remove)
{
    if (arena == NULL) {
        return;
    }
    if (remove) {
        /* The header first: a kill before the last unlink leaves files that hold nothing. */
        atomic_store_explicit(&arena->files[0].header->magic, 0, memory_order_release);
        int error = arena_files_remove(arena->dir);
        MILL_UNUSED(error); /* files without a header do not matter to the next open */
    }
    munmap(arena->base, arena->size_bytes);
    if (arena->links != NULL) {
        munmap(arena->links, tables_bytes(arena));
    }
    free(arena);
}

static uint32_t kept_chunks(struct mill_arena *arena, uint32_t extent)
{
    uint32_t class = mill_arena_desc(arena, extent)->class_shift;
    return class > ARENA_CLASS_CHUNK ? 1u << (class - ARENA_CLASS_CHUNK) : 1;
}

static void keep(struct mill_arena *arena, uint32_t extent)
{
    MILL_ASSERT_LT(extent, arena->units);
    arena->blocks[extent] = ARENA_BLOCK_KEPT;
#ifdef MILL_MUTANT_MEMORY_KEPT_GIVEN
    return;
#endif
    for (uint32_t i = 0; i < kept_chunks(arena, extent); i++) {
        _Atomic uint32_t *word = &arena->chunk_owner[extent / MILL_CHUNK_UNITS + i];
        uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
        bool first = seen == ARENA_CHUNK_FREE;
        MILL_ASSERT(first || (seen != ARENA_CHUNK_TABLES && seen >= ARENA_CHUNK_KEPT));
        atomic_store_explicit(word, first ? ARENA_CHUNK_KEPT + 1 : seen + 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&arena->chunks_free, first ? 1 : 0, memory_order_relaxed);
    }
}

void mill_arena_kept_free(struct mill_arena *arena, uint32_t extent)
{
    MILL_ASSERT_LT(extent, arena->units);
    MILL_ASSERT_EQ(arena->blocks[extent], ARENA_BLOCK_KEPT);
    uint32_t chunks = kept_chunks(arena, extent);
    arena->blocks[extent] = 0;
    atomic_store_explicit(&mill_arena_desc(arena, extent)->state, MILL_EXTENT_FREE,
                          memory_order_release);
    for (uint32_t i = 0; i < chunks; i++) {
        _Atomic uint32_t *word = &arena->chunk_owner[extent / MILL_CHUNK_UNITS + i];
        /* The last one sees what the others did before it gives the chunk away; that release pairs
         * with the acquire of an allocator that claims it. */
        if (atomic_fetch_sub_explicit(word, 1, memory_order_acq_rel) == ARENA_CHUNK_KEPT + 1) {
            atomic_store_explicit(word, ARENA_CHUNK_FREE, memory_order_release);
            atomic_fetch_add_explicit(&arena->chunks_free, 1, memory_order_relaxed);
        }
    }
}

void mill_arena_reset(struct mill_arena *arena, const struct mill_uuid *incarnation)
{
    mill_arena_reset_but(arena, incarnation, NULL, 0);
}

void mill_arena_reset_but(struct mill_arena *arena, const struct mill_uuid *incarnation,
                          const uint32_t *extents, uint32_t count)
{
    /* Nobody may hold an extent: its bytes would be handed out again. */
    MILL_ASSERT_EQ(atomic_load_explicit(&arena->cores_made, memory_order_relaxed), 0u);
    for (uint32_t i = 0; i < count; i++) {
        keep(arena, extents[i]);
    }
    /* Descriptors before marks before the id: a kill on the way leaves no extent whose partition
     * has lost its mark, and none that a new id would vouch for. */
    for (uint32_t i = 0; i < arena->geometry.files_length; i++) {
        for (uint32_t unit = 0; unit < arena->file_units; unit++) {
            struct mill_extent_desc *desc = &arena->files[i].descs[unit];
            bool kept = arena->blocks[i * arena->file_units + unit] == ARENA_BLOCK_KEPT;
            if (!kept &&
                atomic_load_explicit(&desc->state, memory_order_relaxed) != MILL_EXTENT_FREE) {
                atomic_store_explicit(&desc->state, MILL_EXTENT_FREE, memory_order_release);
            }
        }
    }
    for (uint32_t i = 0; count == 0 && i < arena->geometry.marks_length; i++) {
        if (atomic_load_explicit(&arena->marks[i].state, memory_order_relaxed) != ARENA_MARK_FREE) {
            atomic_store_explicit(&arena->marks[i].state, ARENA_MARK_FREE, memory_order_release);
        }
    }
    /* The id's plain stores stay behind the stores above. */
    atomic_signal_fence(memory_order_seq_cst);
    arena->files[0].header->incarnation = *incarnation;
    arena->taken = false;
    arena->implausible_count = 0;
}

/* --- look-ups ------------------------------------------------------------------------------------
 */

struct mill_uuid mill_arena_incarnation(const struct mill_arena *arena)
{
    return arena->files[0].header->incarnation;
}

uint8_t *mill_arena_base(const struct mill_arena *arena)
{
    return arena->base;
}

uint64_t mill_arena_size_bytes(const struct mill_arena *arena)
{
    return arena->size_bytes;
}

uint32_t mill_arena_units(const struct mill_arena *arena)
{
    return arena->units;
}

struct mill_extent_desc *mill_arena_desc(struct mill_arena *arena, uint32_t extent)
{
    MILL_ASSERT_LT(extent, arena->units);
    if (MILL_LIKELY(extent < arena->file_units)) {
        return &arena->files[0].descs[extent];
    }
    return &arena->files[extent / arena->file_units].descs[extent % arena->file_units];
}

bool mill_arena_file(const struct mill_arena *arena, uint32_t index, uint8_t **ret_base,
                     uint64_t *ret_size_bytes, uint32_t *ret_page_bytes, int *ret_node)
{
    if (index >= arena->geometry.files_length) {
        return false;
    }
    *ret_base = arena->files[index].base;
    *ret_size_bytes = arena->geometry.file_bytes;
    *ret_page_bytes = arena->page_bytes;
    *ret_node = arena->files[index].node;
    return true;
}

uint64_t mill_arena_elsewhere_bytes(const struct mill_arena *arena)
{
    return arena->elsewhere_bytes;
}

/* --- take-up -------------------------------------------------------------------------------------
 */

/* True when a descriptor of an earlier process describes bytes that are really there. */
static bool plausible(const struct mill_arena *arena, uint32_t extent,
                      const struct mill_extent_desc *desc)
{
    uint32_t in_file = extent % arena->file_units;
    uint32_t data_unit = (uint32_t)(arena->geometry.data_pos_bytes / MILL_EXTENT_UNIT_BYTES);
    if (desc->class_shift > ARENA_CLASS_MAX || in_file < data_unit) {
        return false;
    }
    uint32_t units = 1u << desc->class_shift;
    uint32_t align = MILL_MIN(units, (uint32_t)MILL_CHUNK_UNITS);
    uint64_t size_bytes = (uint64_t)units * MILL_EXTENT_UNIT_BYTES;
    return in_file % align == 0 && units <= arena->file_units - in_file &&
           size_bytes / 2 < arena->geometry.extent_bytes_max && desc->partition >= 0 &&
           desc->base_offset >= 0 && !mill_uuid_is_zero(&desc->topic_id) &&
           atomic_load_explicit(&desc->committed_bytes, memory_order_acquire) <= size_bytes;
}

struct mill_extent_desc *mill_arena_next_log(struct mill_arena *arena, uint32_t *cursor)
{
    while (*cursor < arena->units) {
        uint32_t extent = (*cursor)++;
        struct mill_extent_desc *desc = mill_arena_desc(arena, extent);
        /* Acquire pairs with the release store in mill_extent_publish. */
        uint32_t state = atomic_load_explicit(&desc->state, memory_order_acquire);
        if (MILL_LIKELY(state == MILL_EXTENT_FREE || state == MILL_EXTENT_SCRATCH)) {
            continue;
        }
#ifdef MILL_MUTANT_MEMORY_TABLE_TRUSTED
        if (state == MILL_EXTENT_LOG) {
            return desc;
        }
#endif
        if (state == MILL_EXTENT_LOG && plausible(arena, extent, desc)) {
            return desc;
        }
        arena->implausible_count++;
    }
    return NULL;
}

uint32_t mill_arena_implausible_count(const struct mill_arena *arena)
{
    return arena->implausible_count;
}

uint32_t mill_arena_owner(const struct mill_arena *arena, uint32_t extent)
{
    MILL_ASSERT_LT(extent, arena->units);
    uint32_t owner =
        atomic_load_explicit(&arena->chunk_owner[extent / MILL_CHUNK_UNITS], memory_order_relaxed);
    MILL_ASSERT(owner != ARENA_CHUNK_FREE && owner != ARENA_CHUNK_TABLES);
    return owner - 1;
}
