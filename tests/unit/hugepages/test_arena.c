/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an arena opens with every page there or says what is missing; what a killed process left is
 * old or new, never half; damaged, foreign or incomplete files are refused and stay as they are.
 * Method: open and reopen on tmpfs; each header field damaged; garbage in the descriptor table; a
 * child that publishes extents and is killed at random moments; hugetlbfs where one is mounted. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/check.h"
#include "base/random.h"
#include "tests/unit/hugepages/fixture.h"

static const struct mill_uuid topic = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

/* Opens and expects an error whose text names each of up to two words. */
static void expect_refused(struct fixture *fixture, int want, const char *first, const char *second)
{
    struct mill_arena *arena = NULL;
    bool taken;
    fixture->report.text[0] = '\0';
    int error = mill_arena_open(&fixture->options, &arena, &taken, &fixture->report);
    if (error != want || strstr(fixture->report.text, first) == NULL ||
        strstr(fixture->report.text, second) == NULL) {
        print_message("got %d: %s\n", error, fixture->report.text);
    }
    assert_int_equal(error, want);
    assert_null(arena);
    assert_non_null(strstr(fixture->report.text, first));
    assert_non_null(strstr(fixture->report.text, second));
}

static void file_path(const struct fixture *fixture, uint32_t index, char path[128])
{
    snprintf(path, 128, "%s/arena%u", fixture->dir, index);
}

/* Publishes one extent whose fields all follow from number. */
static uint32_t publish_numbered(struct mill_arena *arena, struct mill_extents *extents,
                                 uint64_t number, uint32_t size_bytes)
{
    uint32_t extent;
    if (mill_extent_alloc(extents, size_bytes, &extent) != 0) {
        return UINT32_MAX;
    }
    struct mill_extent_desc *desc = mill_arena_desc(arena, extent);
    desc->topic_id = topic;
    desc->partition = (int32_t)(number % 1000);
    desc->base_offset = (int64_t)number * 7;
    desc->order = number;
    atomic_store_explicit(&desc->committed_bytes, 0, memory_order_relaxed);
    memset(mill_extent_data(extents, extent), (int)(number & 0xff), 512);
    mill_extent_publish(extents, extent, MILL_EXTENT_LOG);
    atomic_store_explicit(&desc->committed_bytes, 512, memory_order_release);
    return extent;
}

static bool is_numbered(const struct mill_arena *arena, uint32_t extent,
                        const struct mill_extent_desc *desc)
{
    const uint8_t *bytes = mill_arena_base(arena) + (size_t)extent * MILL_EXTENT_UNIT_BYTES;
    for (uint32_t i = 0; i < 512; i++) {
        if (bytes[i] != (desc->order & 0xff)) {
            return false;
        }
    }
    return mill_uuid_equal(&desc->topic_id, &topic) &&
           desc->partition == (int32_t)(desc->order % 1000) &&
           desc->base_offset == (int64_t)desc->order * 7 &&
           (desc->committed_bytes == 0 || desc->committed_bytes == 512);
}

static uint32_t count_logs(struct mill_arena *arena)
{
    uint32_t cursor = 0;
    uint32_t count = 0;
    while (mill_arena_next_log(arena, &cursor) != NULL) {
        count++;
    }
    return count;
}

static void test_open_fresh_files_private_and_whole(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture, 15); /* rounded up to 16 over two files */
    fixture.options.nodes = 2;
    struct mill_arena *arena = fixture_open(&fixture, false);
    assert_int_equal(mill_arena_size_bytes(arena), 16 << 20);
    assert_int_equal(mill_arena_units(arena), 4096);
    assert_int_equal((uintptr_t)mill_arena_base(arena) % MILL_CHUNK_BYTES, 0);
    assert_false(mill_arena_resized(arena));
    struct mill_uuid none = mill_arena_incarnation(arena);
    assert_true(mill_uuid_is_zero(&none));
    for (uint32_t i = 0; i < 2; i++) {
        char path[128];
        struct stat stat_file;
        uint8_t *base;
        uint64_t size_bytes;
        uint32_t page_bytes;
        int node;
        file_path(&fixture, i, path);
        assert_int_equal(stat(path, &stat_file), 0);
        assert_int_equal(stat_file.st_mode & 07777, 0600);
        assert_int_equal(stat_file.st_size, 8 << 20);
        assert_int_equal(stat_file.st_blocks * 512, 8 << 20);
        assert_true(mill_arena_file(arena, i, &base, &size_bytes, &page_bytes, &node));
        assert_ptr_equal(base, mill_arena_base(arena) + i * (8ul << 20));
        assert_int_equal(size_bytes, 8 << 20);
        assert_int_equal(page_bytes, 4096);
        /* Every page is resident before anybody touches it. */
        static unsigned char resident[2048];
        assert_int_equal(mincore(base, size_bytes, resident), 0);
        for (uint32_t page = 0; page < 2048; page++) {
            assert_int_equal(resident[page] & 1, 1);
        }
    }
    uint8_t *base;
    uint64_t size_bytes;
    uint32_t page_bytes;
    int node;
    assert_false(mill_arena_file(arena, 2, &base, &size_bytes, &page_bytes, &node));
    assert_int_equal(count_logs(arena), 0);
    mill_arena_close(arena, true);
    assert_int_equal(rmdir(fixture.dir), 0); /* nothing left */
}

static void test_reopen_takes_extents_marks_and_incarnation(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_extents *extents;
    const struct mill_uuid mine = {{9}};
    fixture_make(&fixture, 32);
    fixture.options.nodes = 2;
    struct mill_arena *arena = fixture_open(&fixture, false);
    mill_arena_reset(arena, &mine);
    assert_int_equal(mill_extents_create(arena, 0, -1, &extents), 0);
    atomic_store(&mill_arena_mark(arena, &topic, 1)->written_offset, 55);
    uint32_t made[20];
    for (uint32_t i = 0; i < 20; i++) {
        made[i] = publish_numbered(arena, extents, i + 1, i == 7 ? 3 << 20 : 4096 * (i + 1));
        assert_true(made[i] != UINT32_MAX);
    }
    mill_extent_free(extents, made[3]);
    uint32_t unpublished;
    assert_int_equal(mill_extent_alloc(extents, 4096, &unpublished), 0);
    uint32_t scratch;
    assert_int_equal(mill_extent_alloc(extents, 4096, &scratch), 0);
    mill_extent_publish(extents, scratch, MILL_EXTENT_SCRATCH);
    mill_extents_destroy(extents);
    mill_arena_close(arena, false);

    arena = fixture_open(&fixture, true);
    struct mill_uuid incarnation = mill_arena_incarnation(arena);
    assert_true(mill_uuid_equal(&incarnation, &mine));
    assert_int_equal(mill_arena_mark(arena, &topic, 1)->written_offset, 55);
    uint32_t cursor = 0;
    uint32_t count = 0;
    struct mill_extent_desc *desc;
    while ((desc = mill_arena_next_log(arena, &cursor)) != NULL) {
        assert_ptr_equal(desc, mill_arena_desc(arena, cursor - 1));
        assert_true(is_numbered(arena, cursor - 1, desc));
        assert_int_equal(made[desc->order - 1], cursor - 1);
        assert_true(desc->order != 4);
        count++;
    }
    assert_int_equal(count, 19);
    assert_int_equal(mill_arena_implausible_count(arena), 0);

    const struct mill_uuid next = {{10}};
    mill_arena_reset(arena, &next);
    assert_int_equal(count_logs(arena), 0);
    for (uint32_t i = 0; i < mill_arena_marks_length(arena); i++) {
        assert_null(mill_arena_mark_at(arena, i));
    }
    assert_int_equal(mill_extents_create(arena, 0, -1, &extents), 0);
    assert_true(publish_numbered(arena, extents, 1, 4096) != UINT32_MAX);
    mill_extents_destroy(extents);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

/* Takes all that is left; none of it may lie in an extent that was kept. ret: 4 KiB units. */
static uint32_t take_all(struct mill_arena *arena, const uint32_t *kept, uint32_t kept_count)
{
    struct mill_extents *extents;
    uint32_t count = 0;
    uint32_t extent;
    assert_int_equal(mill_extents_create(arena, 0, -1, &extents), 0);
    while (mill_extent_alloc(extents, 4096, &extent) == 0) {
        for (uint32_t i = 0; i < kept_count; i++) {
            uint32_t units = 1u << mill_arena_desc(arena, kept[i])->class_shift;
            assert_true(extent < kept[i] || extent >= kept[i] + units);
        }
        count++;
    }
    mill_extents_destroy(extents);
    return count;
}

/* Two small extents of one chunk and one of several chunks outlive two resets, while all other
 * memory is handed out; each chunk is anyone's when its last one is freed. */
static void test_reset_but_kept_extents_stay_until_freed(void **state)
{
    (void)state;
    enum { SMALL = 4096, LARGE = 3 << 20, KEPT = 3, ALL = 6 };
    struct fixture fixture;
    struct mill_extents *extents;
    uint32_t made[ALL];
    const struct mill_uuid mine = {{7}};
    fixture_make(&fixture, 32);
    struct mill_arena *arena = fixture_open(&fixture, false);
    mill_arena_reset(arena, &mine);
    uint32_t whole = take_all(arena, NULL, 0);
    mill_arena_close(arena, true);

    arena = fixture_open(&fixture, false);
    mill_arena_reset(arena, &mine);
    assert_int_equal(mill_extents_create(arena, 0, -1, &extents), 0);
    for (uint32_t i = 0; i < ALL; i++) {
        made[i] = publish_numbered(arena, extents, i + 1, i == 2 ? LARGE : SMALL);
        assert_true(made[i] != UINT32_MAX);
    }
    mill_extents_destroy(extents);
    mill_arena_close(arena, false);
    for (int round = 0; round < 2; round++) {
        arena = fixture_open(&fixture, true);
        mill_arena_reset_but(arena, &mine, made, KEPT);
        assert_int_equal(count_logs(arena), KEPT);
        assert_int_equal(take_all(arena, made, KEPT), whole - 3 * MILL_CHUNK_UNITS);
        for (uint32_t i = 0; i < KEPT; i++) {
            assert_true(is_numbered(arena, made[i], mill_arena_desc(arena, made[i])));
        }
        mill_arena_close(arena, false);
    }
    arena = fixture_open(&fixture, true);
    mill_arena_reset_but(arena, &mine, made, KEPT);
    mill_arena_kept_free(arena, made[0]);
    mill_arena_kept_free(arena, made[2]);
    assert_int_equal(count_logs(arena), 1);
    mill_arena_kept_free(arena, made[1]);
    assert_int_equal(take_all(arena, NULL, 0), whole);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

static void alloc_before_reset(void *argument)
{
    struct mill_extents *extents;
    uint32_t extent;
    if (mill_extents_create(argument, 0, -1, &extents) == 0 &&
        mill_extent_alloc(extents, 4096, &extent) == 0) {
        return;
    }
}

static void test_alloc_after_take_before_reset_aborts(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture, 16);
    mill_arena_close(fixture_open(&fixture, false), false);
    struct mill_arena *arena = fixture_open(&fixture, true);
    assert_true(aborts(alloc_before_reset, arena));
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

/* Another size in the configuration loses nothing: the old files open as they are, and say so. */
static void test_reopen_other_geometry_keeps_content(void **state)
{
    (void)state;
    const struct {
        uint64_t size_mib;
        uint32_t nodes;
        uint32_t partitions;
        uint32_t extent_bytes;
    } other[] = {{64, 2, 100, 4 << 20},
                 {32, 1, 100, 4 << 20},
                 {32, 2, 50, 4 << 20},
                 {32, 2, 100, 1 << 20},
                 {16, 1, 500, 1 << 20}};
    for (size_t i = 0; i < MILL_COUNT_OF(other); i++) {
        struct fixture fixture;
        struct mill_extents *extents;
        fixture_make(&fixture, 32);
        fixture.options.nodes = 2;
        struct mill_arena *arena = fixture_open(&fixture, false);
        assert_int_equal(mill_extents_create(arena, 0, -1, &extents), 0);
        assert_true(publish_numbered(arena, extents, 3, 3 << 20) != UINT32_MAX);
        mill_extents_destroy(extents);
        mill_arena_close(arena, false);
        fixture.options.size_bytes = other[i].size_mib << 20;
        fixture.options.nodes = other[i].nodes;
        fixture.options.partitions_max = other[i].partitions;
        fixture.options.extent_bytes_max = other[i].extent_bytes;
        arena = fixture_open(&fixture, true);
        assert_true(mill_arena_resized(arena));
        assert_int_equal(mill_arena_size_bytes(arena), 32 << 20);
        assert_int_equal(count_logs(arena), 1);
        mill_arena_close(arena, true);
        arena = fixture_open(&fixture, false);
        assert_false(mill_arena_resized(arena));
        assert_int_equal(mill_arena_size_bytes(arena), other[i].size_mib << 20);
        mill_arena_close(arena, true);
        fixture_free(&fixture);
    }
}

/* Flips bits of a file's byte at pos. */
static void damage(const struct fixture *fixture, uint32_t index, off_t pos, uint8_t bits)
{
    char path[128];
    uint8_t byte;
    file_path(fixture, index, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, pos), 1);
    byte ^= bits;
    assert_int_equal(pwrite(fd, &byte, 1, pos), 1);
    close(fd);
}

static void test_open_damaged_header_refused_until_discarded(void **state)
{
    (void)state;
    /* Every second byte of the header but the incarnation, in each file. */
    for (off_t pos = 0; pos < 80; pos += pos < 4 ? 1 : 2) {
        for (uint32_t index = 0; index < 2; index++) {
            struct fixture fixture;
            fixture_make(&fixture, 8);
            fixture.options.nodes = 2;
            fixture.options.extent_bytes_max = 1 << 20;
            mill_arena_close(fixture_open(&fixture, false), false);
            damage(&fixture, index, pos, 0x41);
            expect_refused(&fixture, -ESTALE, "arena file", fixture.dir);
            expect_refused(&fixture, -ESTALE, "arena file", fixture.dir); /* still there */
            assert_int_equal(mill_arena_discard(fixture.dir, &fixture.report), 0);
            mill_arena_close(fixture_open(&fixture, false), true);
            fixture_free(&fixture);
        }
    }
}

static void test_open_incomplete_or_mixed_files_refused(void **state)
{
    (void)state;
    struct fixture fixture;
    struct fixture other;
    char path[128];
    char path_other[128];
    fixture_make(&fixture, 32);
    fixture.options.nodes = 2;
    fixture_make(&other, 32);
    other.options.nodes = 2;
    mill_arena_close(fixture_open(&fixture, false), false);
    mill_arena_close(fixture_open(&other, false), false);
    file_path(&fixture, 1, path);
    file_path(&other, 1, path_other);
    assert_int_equal(rename(path_other, path), 0);
    expect_refused(&fixture, -ESTALE, "arena1", "another arena");
    expect_refused(&other, -ESTALE, "arena1", "missing");
    assert_int_equal(truncate(path, 4 << 20), 0);
    expect_refused(&fixture, -ESTALE, "arena1", "another arena");
    file_path(&fixture, 0, path);
    assert_int_equal(truncate(path, 14 << 20), 0);
    expect_refused(&fixture, -ESTALE, "arena0", "does not fit");
    fixture_free(&fixture);
    fixture_free(&other);
}

/* Killed while making or removing: no magic, or no arena0. Such files hold nothing. */
static void test_open_unfinished_files_made_anew(void **state)
{
    (void)state;
    struct fixture fixture;
    char path[128];
    fixture_make(&fixture, 32);
    fixture.options.nodes = 2;
    mill_arena_close(fixture_open(&fixture, false), false);
    for (off_t pos = 0; pos < 4; pos++) { /* no magic */
        damage(&fixture, 0, pos, (uint8_t)(MILL_ARENA_MAGIC >> (8 * pos)));
    }
    mill_arena_close(fixture_open(&fixture, false), false);
    file_path(&fixture, 0, path);
    assert_int_equal(unlink(path), 0);
    mill_arena_close(fixture_open(&fixture, false), false);
    assert_int_equal(truncate(path, 0), 0);
    mill_arena_close(fixture_open(&fixture, false), false);
    mill_arena_close(fixture_open(&fixture, true), true);
    fixture_free(&fixture);
}

static void test_open_wrong_folder_mode_or_owner_says_so(void **state)
{
    (void)state;
    struct fixture fixture;
    char path[128];
    char link_to[160];
    fixture_make(&fixture, 16);
    mill_arena_close(fixture_open(&fixture, false), false);
    file_path(&fixture, 0, path);
    assert_int_equal(chmod(path, 0644), 0);
    expect_refused(&fixture, -EPERM, "0644", "0600");
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 0), 0);
        expect_refused(&fixture, -EPERM, "12345", "chown");
        assert_int_equal(chown(path, 0, 0), 0);
    } else {
        print_message("owner not tried: needs root\n");
    }
    /* A link to a sound file is not followed. */
    snprintf(link_to, sizeof(link_to), "%s-moved", path);
    assert_int_equal(rename(path, link_to), 0);
    assert_int_equal(symlink(link_to, path), 0);
    expect_refused(&fixture, -ELOOP, "arena0", "");
    assert_int_equal(unlink(link_to), 0);
    assert_int_equal(unlink(path), 0);
    fixture.options.hugepages = true;
    expect_refused(&fixture, -EINVAL, "not on hugetlbfs", "mount -t hugetlbfs");
    fixture.options.hugepages = false;
    fixture.options.dir = "/dev/null";
    expect_refused(&fixture, -ENOTDIR, "/dev/null", "");
    fixture.options.dir = "/dev/shm/millrace-test-absent";
    expect_refused(&fixture, -ENOENT, "millrace-test-absent", "No such file");
    fixture.options.dir = fixture.dir;
    fixture_free(&fixture);
}

static void test_open_wrong_options_say_so(void **state)
{
    (void)state;
    struct fixture fixture;
    char long_dir[1024];
    memset(long_dir, 'x', sizeof(long_dir) - 1);
    long_dir[sizeof(long_dir) - 1] = '\0';
    fixture_make(&fixture, 16);
    const struct mill_arena_options good = fixture.options;
    fixture.options.dir = long_dir;
    expect_refused(&fixture, -ENAMETOOLONG, "arena folder", "");
    fixture.options = good;
    fixture.options.nodes = 0;
    expect_refused(&fixture, -EINVAL, "0 nodes", "");
    fixture.options.nodes = MILL_ARENA_NODES_MAX + 1;
    expect_refused(&fixture, -EINVAL, "9 nodes", "");
    fixture.options = good;
    fixture.options.cores = MILL_ARENA_CORES_MAX + 1;
    expect_refused(&fixture, -EINVAL, "65 cores", "");
    fixture.options = good;
    fixture.options.partitions_max = 0;
    expect_refused(&fixture, -EINVAL, "0 partitions", "");
    fixture.options = good;
    fixture.options.extent_bytes_max = 4095;
    expect_refused(&fixture, -EINVAL, "4095", "");
    fixture.options.extent_bytes_max = (1 << 30) + 1;
    expect_refused(&fixture, -EINVAL, "1073741825", "");
    fixture.options = good;
    fixture.options.extent_bytes_max = 15 << 20;
    expect_refused(&fixture, -EINVAL, "hugepages.size.mb", "18");
    fixture.options = good;
    fixture.options.size_bytes = UINT64_MAX;
    expect_refused(&fixture, -EINVAL, "addressed", "");
    assert_int_equal(rmdir(fixture.dir), 0); /* nothing half made */
}

/* A damaged table: whatever the bytes say, what comes back lies within its file. */
static void test_next_log_garbage_table_stays_inside(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_random random = {.state = 4};
    fixture_make(&fixture, 16);
    fixture.options.nodes = 2;
    fixture.options.extent_bytes_max = 2 << 20;
    struct mill_arena *arena = fixture_open(&fixture, false);
    const uint32_t file_units = mill_arena_units(arena) / 2;
    uint32_t good = 0;
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t unit = 0; unit < mill_arena_units(arena); unit++) {
            struct mill_extent_desc *desc = mill_arena_desc(arena, unit);
            uint64_t words[8];
            for (size_t i = 0; i < 8; i++) {
                words[i] = mill_random_next(&random);
            }
            memcpy((void *)desc, words, sizeof(words));
            if (round % 2 == 0) { /* near misses */
                desc->class_shift = (uint8_t)mill_random_below(&random, 14);
                desc->partition &= 0x7fffffff;
                desc->base_offset &= INT64_MAX;
                atomic_store(&desc->committed_bytes,
                             mill_random_below(&random, 8192u << desc->class_shift));
                atomic_store(&desc->state, mill_random_below(&random, 4));
            }
        }
        uint32_t cursor = 0;
        struct mill_extent_desc *desc;
        while ((desc = mill_arena_next_log(arena, &cursor)) != NULL) {
            uint32_t extent = cursor - 1;
            uint32_t units = 1u << desc->class_shift;
            assert_int_equal(desc->state, MILL_EXTENT_LOG);
            assert_true(extent % file_units >= MILL_CHUNK_UNITS);
            assert_int_equal(extent / file_units, (extent + units - 1) / file_units);
            assert_true(desc->committed_bytes <= units * 4096);
            assert_true(units * 4096 <= 2 << 20);
            good++;
        }
        assert_true(mill_arena_implausible_count(arena) > 0);
    }
    assert_true(good > 100);
    mill_arena_close(arena, true);
    fixture_free(&fixture);
}

/* --- killed publishers ---------------------------------------------------------------------------
 */

/* Takes, fills, publishes and frees for ever; *progress follows. */
static void publish_for_ever(struct fixture *fixture, uint32_t seed, _Atomic uint64_t *progress)
{
    enum {
        HELD = 64,
    };
    struct mill_arena *arena = NULL;
    struct mill_extents *extents;
    struct mill_random random = {.state = seed};
    uint32_t held[HELD];
    bool taken;
    const struct mill_uuid mine = {{1}};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        mill_arena_open(&fixture->options, &arena, &taken, &fixture->report) != 0) {
        _exit(3);
    }
    mill_arena_reset(arena, &mine);
    if (mill_extents_create(arena, 0, -1, &extents) != 0) {
        _exit(4);
    }
    memset(held, 0xff, sizeof(held));
    for (uint64_t number = 1;; number++) {
        uint32_t *slot = &held[mill_random_below(&random, HELD)];
        if (*slot != UINT32_MAX) {
            mill_extent_free(extents, *slot);
        }
        *slot =
            publish_numbered(arena, extents, number, 1 + mill_random_below(&random, 200u << 10));
        atomic_store(progress, number);
    }
}

static void test_killed_publisher_leaves_old_or_new(void **state)
{
    (void)state;
    struct fixture fixture;
    struct mill_random random = {.state = 21};
    uint32_t seen = 0;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    _Atomic uint64_t *progress = page;
    fixture_make(&fixture, 32);
    for (uint32_t round = 0; round < 60; round++) {
        atomic_store(progress, 0);
        pid_t child = fork();
        if (child == 0) {
            publish_for_ever(&fixture, round + 1, progress);
        }
        assert_true(child > 0);
        /* At full speed first, however slow the machine is; at most ten seconds. */
        struct timespec pause = {.tv_nsec = 200000};
        for (uint32_t i = 0; i < 50000 && atomic_load(progress) < 100; i++) {
            nanosleep(&pause, NULL);
        }
        pause.tv_nsec = (long)mill_random_below(&random, 2000) * 1000;
        nanosleep(&pause, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        struct mill_arena *arena = NULL;
        bool taken;
        int error = mill_arena_open(&fixture.options, &arena, &taken, &fixture.report);
        assert_int_equal(error, 0);
        uint32_t cursor = 0;
        struct mill_extent_desc *desc;
        while ((desc = mill_arena_next_log(arena, &cursor)) != NULL) {
            assert_true(is_numbered(arena, cursor - 1, desc));
            seen++;
        }
        assert_int_equal(mill_arena_implausible_count(arena), 0);
        mill_arena_close(arena, false);
    }
    print_message("%u extents taken up from 60 killed processes\n", seen);
    assert_true(seen > 500);
    munmap(page, 4096);
    fixture_free(&fixture);
}

/* --- hugetlbfs -----------------------------------------------------------------------------------
 */

/* A mounted hugetlbfs of 2 MiB pages: false when there is none. */
static bool hugetlbfs_find(char ret_dir[256])
{
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    bool found = false;
    if (mounts == NULL) {
        return false;
    }
    struct mntent *entry;
    while (!found && (entry = getmntent(mounts)) != NULL) {
        struct statfs fs;
        found = strcmp(entry->mnt_type, "hugetlbfs") == 0 && statfs(entry->mnt_dir, &fs) == 0 &&
                fs.f_bsize == MILL_CHUNK_BYTES && access(entry->mnt_dir, W_OK) == 0 &&
                snprintf(ret_dir, 256, "%s", entry->mnt_dir) < 256;
    }
    endmntent(mounts);
    return found;
}

static long pool_get(void)
{
    long pages = -1;
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "re");
    if (file != NULL) {
        if (fscanf(file, "%ld", &pages) != 1) {
            pages = -1;
        }
        fclose(file);
    }
    return pages;
}

static bool pool_set(long pages)
{
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "we");
    if (file == NULL) {
        return false;
    }
    bool done = fprintf(file, "%ld", pages) > 0;
    done = fclose(file) == 0 && done;
    return done && pool_get() == pages;
}

static int pool_keep(void **state)
{
    static long pool;
    pool = pool_get();
    *state = &pool;
    return 0;
}

/* Runs after a failure too: the machine keeps the pages it had. */
static int pool_restore(void **state)
{
    const long *pool = *state;
    return *pool < 0 || pool_get() == *pool || pool_set(*pool) ? 0 : -1;
}

static void test_hugetlbfs_too_few_pages_then_whole(void **state)
{
    struct fixture fixture;
    char mount_dir[256];
    char dir[300];
    const long pool = *(const long *)*state;
    if (!hugetlbfs_find(mount_dir)) {
        print_message("skipped: no hugetlbfs of 2 MiB pages is mounted\n");
        skip();
    }
    fixture_make(&fixture, 16);
    snprintf(dir, sizeof(dir), "%s/millrace-test-XXXXXX", mount_dir);
    if (pool < 0 || mkdtemp(dir) == NULL) {
        fixture_free(&fixture);
        print_message("skipped: cannot make a folder in %s\n", mount_dir);
        skip();
    }
    fixture.options.dir = dir;
    fixture.options.hugepages = true;
    uint64_t missing = mill_arena_pages_missing(&fixture.options);
    if (missing > 0) {
        char sysctl[64];
        snprintf(sysctl, sizeof(sysctl), "vm.nr_hugepages=%ld", pool + (long)missing);
        expect_refused(&fixture, -ENOSPC, "are missing", sysctl);
        assert_int_equal(mill_arena_pages_missing(&fixture.options), missing);
    }
    if (!pool_set(pool + (long)missing)) {
        rmdir(dir);
        rmdir(fixture.dir);
        print_message("skipped: vm.nr_hugepages cannot be raised by %llu\n",
                      (unsigned long long)missing);
        skip();
    }
    assert_int_equal(mill_arena_pages_missing(&fixture.options), 0);
    struct mill_arena *arena = fixture_open(&fixture, false);
    uint8_t *base;
    uint64_t size_bytes;
    uint32_t page_bytes;
    int node;
    assert_true(mill_arena_file(arena, 0, &base, &size_bytes, &page_bytes, &node));
    assert_int_equal(page_bytes, MILL_CHUNK_BYTES);
    struct mill_extents *extents;
    assert_int_equal(mill_extents_create(arena, 0, node, &extents), 0);
    assert_true(publish_numbered(arena, extents, 5, 3 << 20) != UINT32_MAX);
    mill_extents_destroy(extents);
    mill_arena_close(arena, false);
    /* The pages it holds count as there. */
    assert_int_equal(mill_arena_pages_missing(&fixture.options), 0);
    arena = fixture_open(&fixture, true);
    assert_int_equal(count_logs(arena), 1);
    mill_arena_close(arena, true);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rmdir(fixture.dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_fresh_files_private_and_whole),
        cmocka_unit_test(test_reopen_takes_extents_marks_and_incarnation),
        cmocka_unit_test(test_reset_but_kept_extents_stay_until_freed),
        cmocka_unit_test(test_alloc_after_take_before_reset_aborts),
        cmocka_unit_test(test_reopen_other_geometry_keeps_content),
        cmocka_unit_test(test_open_damaged_header_refused_until_discarded),
        cmocka_unit_test(test_open_incomplete_or_mixed_files_refused),
        cmocka_unit_test(test_open_unfinished_files_made_anew),
        cmocka_unit_test(test_open_wrong_folder_mode_or_owner_says_so),
        cmocka_unit_test(test_open_wrong_options_say_so),
        cmocka_unit_test(test_next_log_garbage_table_stays_inside),
        cmocka_unit_test(test_killed_publisher_leaves_old_or_new),
        cmocka_unit_test_setup_teardown(test_hugetlbfs_too_few_pages_then_whole, pool_keep,
                                        pool_restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
