/* SPDX-License-Identifier: Apache-2.0 */
/* Images of files and their damage; see damage.h. A test without memory or files has no result, so
 * that any failure here is an assert's. */
#include "tests/fuzz/damage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/crc32c.h"
#include "hugepages/arena_private.h"
#include "protocol/batch.h"

enum {
    LINE_BYTES = 64, /* of the arena's tables */
    WORD_BYTES = 8,
    SNAPSHOT_SUM_AT = 2,
    SNAPSHOT_SUMMED_AT = 6,
};

/* --- images ---------------------------------------------------------------------------------- */

static void *must(void *memory)
{
    MILL_ASSERT(memory != NULL);
    return memory;
}

struct listing {
    struct image *image;
    struct disk_model *disk;
    const char *folder;
};

static struct image_file *file_add(struct image *image)
{
    MILL_ASSERT_LT(image->count, (uint32_t)IMAGE_FILES_MAX);
    struct image_file *file = &image->files[image->count++];
    *file = (struct image_file){.bytes = NULL};
    return file;
}

static int by_path(const void *a, const void *b)
{
    const struct image_file *left = a;
    const struct image_file *right = b;
    return strcmp(left->path, right->path);
}

static int keep_one(void *context, const char *name)
{
    const struct listing *listing = context;
    char path[IMAGE_PATH_BYTES];
    struct disk_model_stat status;
    snprintf(path, sizeof(path), "%s/%s", listing->folder, name);
    MILL_ASSERT_EQ(disk_model_stat(listing->disk, path, &status), 0);
    if (!status.dir) {
        uint64_t size = 0;
        const uint8_t *bytes = disk_model_bytes(listing->disk, path, &size);
        struct image_file *file = file_add(listing->image);
        memcpy(file->path, path, sizeof(path));
        file->size = (uint32_t)size;
        file->bytes = must(malloc(size + 1));
        memcpy(file->bytes, bytes ? bytes : file->bytes, size);
    }
    return 0;
}

void image_keep(struct image *image, struct disk_model *disk, const char *const *folders,
                uint32_t folders_count)
{
    *image = (struct image){.folders = folders, .folders_count = folders_count};
    for (uint32_t i = 0; i < folders_count; i++) {
        struct listing listing = {.image = image, .disk = disk, .folder = folders[i]};
        const struct mill_file_calls *calls = disk_model_calls(disk);
        MILL_ASSERT_EQ(calls->list(calls->context, folders[i], keep_one, &listing), 0);
    }
    qsort(image->files, image->count, sizeof(image->files[0]), by_path);
}

static bool is_empty(const uint8_t *page)
{
    return page[0] == 0 && memcmp(page, page + 1, IMAGE_PAGE_BYTES - 1) == 0;
}

void image_keep_arena(struct image *image, const char *path)
{
    struct image_file *file = file_add(image);
    struct stat status;
    uint8_t page[IMAGE_PAGE_BYTES];
    snprintf(file->path, sizeof(file->path), "%s", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    MILL_ASSERT(fd >= 0 && fstat(fd, &status) == 0);
    file->whole_bytes = (uint64_t)status.st_size;
    file->pages = must(malloc(sizeof(file->pages[0])));
    for (uint32_t i = 0; i < file->whole_bytes / IMAGE_PAGE_BYTES; i++) {
        ssize_t got = pread(fd, page, sizeof(page), (off_t)i * IMAGE_PAGE_BYTES);
        MILL_ASSERT_EQ(got, (ssize_t)sizeof(page));
        if (is_empty(page)) {
            continue;
        }
        uint32_t count = file->size / IMAGE_PAGE_BYTES;
        file->pages = must(realloc(file->pages, (count + 1) * sizeof(file->pages[0])));
        file->pages[count] = i;
        file->bytes = must(realloc(file->bytes, file->size + sizeof(page)));
        memcpy(file->bytes + file->size, page, sizeof(page));
        file->size += sizeof(page);
    }
    close(fd);
}

void image_copy(const struct image *from, struct image *to)
{
    *to = *from;
    for (uint32_t i = 0; i < to->count; i++) {
        struct image_file *file = &to->files[i];
        const uint8_t *bytes = file->bytes;
        file->bytes = must(malloc(file->size + 1));
        memcpy(file->bytes, bytes ? bytes : file->bytes, file->size);
        if (file->pages) {
            size_t size = file->size / IMAGE_PAGE_BYTES * sizeof(file->pages[0]);
            const uint32_t *pages = file->pages;
            file->pages = must(malloc(size));
            memcpy(file->pages, pages, size);
        }
    }
}

void image_free(struct image *image)
{
    for (uint32_t i = 0; i < image->count; i++) {
        free(image->files[i].bytes);
        free(image->files[i].pages);
    }
    *image = (struct image){.count = 0};
}

static void put_arena(const struct image_file *file)
{
    int fd = open(file->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    MILL_ASSERT(fd >= 0 && ftruncate(fd, (off_t)file->whole_bytes) == 0);
    for (uint32_t at = 0; at < file->size; at += IMAGE_PAGE_BYTES) {
        off_t pos = (off_t)file->pages[at / IMAGE_PAGE_BYTES] * IMAGE_PAGE_BYTES;
        size_t size = MILL_MIN(file->size - at, (uint32_t)IMAGE_PAGE_BYTES);
        MILL_ASSERT_EQ(pwrite(fd, file->bytes + at, size, pos), (ssize_t)size);
    }
    close(fd);
}

void image_put(const struct image *image, struct disk_model *disk)
{
    const struct mill_file_calls *calls = disk_model_calls(disk);
    for (uint32_t i = 0; i < image->folders_count; i++) {
        MILL_ASSERT_EQ(calls->make_dir(calls->context, image->folders[i]), 0);
    }
    for (uint32_t i = 0; i < image->count; i++) {
        const struct image_file *file = &image->files[i];
        if (file->gone) {
            continue;
        }
        if (file->pages) {
            put_arena(file);
            continue;
        }
        int fd = calls->open(calls->context, file->path, MILL_FILE_WRITE | MILL_FILE_CREATE);
        MILL_ASSERT(fd >= 0);
        struct iovec part = {.iov_base = file->bytes, .iov_len = file->size};
        ssize_t put = file->size > 0 ? calls->write_at(calls->context, fd, &part, 1, 0) : 0;
        MILL_ASSERT_EQ(put, (ssize_t)file->size);
        MILL_ASSERT_EQ(calls->close(calls->context, fd), 0);
    }
}

/* --- formats --------------------------------------------------------------------------------- */

struct field {
    uint8_t at;
    uint8_t bytes;
};

/* Entries behind a head; entry_bytes 0: batches, each as long as it says. */
struct format {
    const char *end; /* of the file's name */
    uint32_t head_bytes;
    uint32_t entry_bytes;
    struct field head[4]; /* fields of no bytes end the list */
    struct field fields[DAMAGE_FIELDS];
};

static const struct format formats[] = {
    {".log",
     0,
     0,
     {{0}},
     {{0, 8},
      {8, 4},
      {12, 4},
      {16, 1},
      {17, 4},
      {21, 2},
      {23, 4},
      {27, 8},
      {35, 8},
      {43, 8},
      {51, 2},
      {53, 4},
      {57, 4}}},
    {".index", 0, 8, {{0}}, {{0, 4}, {4, 4}}},
    {".timeindex", 0, 12, {{0}}, {{0, 8}, {8, 4}}},
    {".txnindex", 0, 34, {{0}}, {{0, 2}, {2, 8}, {10, 8}, {18, 8}, {26, 8}}},
    {".snapshot",
     10,
     46,
     {{0, 2}, {2, 4}, {6, 4}},
     {{0, 8}, {8, 2}, {10, 4}, {14, 8}, {22, 4}, {26, 8}, {34, 4}, {38, 8}}},
};

static bool name_ends(const char *name, const char *end)
{
    size_t length = strlen(name);
    size_t end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static const struct format *format_of(const struct image_file *file)
{
    for (size_t i = 0; i < MILL_COUNT_OF(formats); i++) {
        if (name_ends(file->path, formats[i].end)) {
            return &formats[i];
        }
    }
    return NULL;
}

/* Whole size of the batch there as it says, 0: none begins there. */
static uint32_t batch_bytes(const uint8_t *bytes, uint32_t left)
{
    struct mill_batch batch;
    if (left < MILL_BATCH_HEADER_BYTES) {
        return 0;
    }
    mill_batch_read(bytes, &batch);
    bool fits = batch.magic == 2 &&
                batch.batch_length >= MILL_BATCH_HEADER_BYTES - MILL_BATCH_PREFIX_BYTES &&
                (uint32_t)batch.batch_length <= left - MILL_BATCH_PREFIX_BYTES;
    return fits ? mill_batch_size_bytes(&batch) : 0;
}

/* ret: bytes of batches. */
static uint32_t batches_sum(uint8_t *bytes, uint32_t size)
{
    uint32_t at = 0;
    for (uint32_t one; (one = batch_bytes(bytes + at, size - at)) > 0; at += one) {
        mill_store_be32(bytes + at + MILL_BATCH_CRC_AT,
                        mill_crc32c(bytes + at + MILL_BATCH_SUMMED_AT, one - MILL_BATCH_SUMMED_AT));
    }
    return at;
}

/* The header's, and those of batches, which begin with an extent's first page. */
static void arena_sum(struct image_file *file)
{
    const size_t from = offsetof(struct arena_header, version);
    const size_t to = offsetof(struct arena_header, crc32c);
    if (file->size < sizeof(struct arena_header)) {
        return;
    }
    uint32_t sum = mill_crc32c(file->bytes + from, to - from);
    memcpy(file->bytes + to, &sum, sizeof(sum)); /* the machine's order */
    for (uint32_t page = 1; page < file->size / IMAGE_PAGE_BYTES; page++) {
        uint32_t end = page + 1;
        while (end < file->size / IMAGE_PAGE_BYTES &&
               file->pages[end] == file->pages[end - 1] + 1) {
            end++;
        }
        batches_sum(file->bytes + (size_t)page * IMAGE_PAGE_BYTES, (end - page) * IMAGE_PAGE_BYTES);
    }
}

static void sums_mend(struct image_file *file)
{
    if (file->pages) {
        arena_sum(file);
    } else if (name_ends(file->path, ".log")) {
        batches_sum(file->bytes, file->size);
    } else if (name_ends(file->path, ".snapshot") && file->size > SNAPSHOT_SUMMED_AT) {
        mill_store_be32(
            file->bytes + SNAPSHOT_SUM_AT,
            mill_crc32c(file->bytes + SNAPSHOT_SUMMED_AT, file->size - SNAPSHOT_SUMMED_AT));
    }
}

/* --- damage ---------------------------------------------------------------------------------- */

void damage_read(const uint8_t *bytes, const struct image *image, struct damage *ret_damage)
{
    *ret_damage = (struct damage){
        .file = (uint8_t)(bytes[0] % image->count),
        .kind = (enum damage_kind)((bytes[1] & ~DAMAGE_SUMS) % DAMAGE_KINDS),
        .sums = (bytes[1] & DAMAGE_SUMS) != 0,
        .pos = mill_load_be32(bytes + 2),
        .length = mill_load_be16(bytes + 6) % (DAMAGE_LENGTH_MAX + 1u),
    };
    memcpy(ret_damage->value, bytes + 8, sizeof(ret_damage->value));
}

static void overwrite(struct image_file *file, uint32_t pos, const struct damage *damage)
{
    for (uint32_t i = 0; i < damage->length && pos + i < file->size; i++) {
        file->bytes[pos + i] = damage->value[i % sizeof(damage->value)];
    }
}

static void append(struct image_file *file, const struct damage *damage)
{
    uint32_t end = file->size;
    if (file->pages) {
        return; /* its size is its header's */
    }
    file->size += damage->length;
    file->bytes = must(realloc(file->bytes, file->size + 1));
    overwrite(file, end, damage);
}

static void copy(struct image *image, struct image_file *from, const struct damage *damage)
{
    struct image_file *to = &image->files[damage->value[0] % image->count];
    if (to == from || to->pages || from->pages) {
        return;
    }
    to->bytes = must(realloc(to->bytes, from->size + 1));
    memcpy(to->bytes, from->bytes, from->size);
    to->size = from->size;
    to->gone = from->gone;
}

/* The low bytes of the value, which is big endian, as a format's field is. */
static void field_put(struct image_file *file, uint64_t at, uint32_t bytes,
                      const struct damage *damage)
{
    if (at + bytes <= file->size) {
        memcpy(file->bytes + at, damage->value + sizeof(damage->value) - bytes, bytes);
    }
}

static uint32_t fields_length(const struct field *fields, uint32_t most)
{
    uint32_t length = 0;
    while (length < most && fields[length].bytes > 0) {
        length++;
    }
    return length;
}

/* Where the entry begins; entries wrap around. ret: false: there is none. */
static bool entry_find(const struct image_file *file, const struct format *format, uint32_t entry,
                       uint64_t *ret_at)
{
    *ret_at = 0;
    if (format->entry_bytes > 0) {
        uint32_t left = file->size > format->head_bytes ? file->size - format->head_bytes : 0;
        uint32_t count = left / format->entry_bytes;
        *ret_at = format->head_bytes + (uint64_t)format->entry_bytes * (count ? entry % count : 0);
        return count > 0;
    }
    uint32_t at = 0;
    uint32_t count = 0;
    for (uint32_t one; (one = batch_bytes(file->bytes + at, file->size - at)) > 0; at += one) {
        count++;
    }
    for (uint32_t i = 0; count > 0 && i < entry % count; i++) {
        *ret_at += batch_bytes(file->bytes + *ret_at, file->size - (uint32_t)*ret_at);
    }
    return count > 0;
}

/* A word of a line of the tables that holds something, in the machine's order. */
static void arena_field(struct image_file *file, const struct damage *damage)
{
    uint32_t wanted = damage->pos / DAMAGE_FIELDS;
    uint32_t word = damage->pos % (LINE_BYTES / WORD_BYTES);
    static const uint8_t none[LINE_BYTES];
    uint32_t lines = 0;
    for (int round = 0; round < 2; round++) {
        uint32_t seen = 0;
        for (uint32_t at = 0; at + LINE_BYTES <= file->size; at += LINE_BYTES) {
            if (memcmp(file->bytes + at, none, LINE_BYTES) == 0) {
                continue;
            }
            if (round == 1 && seen++ == wanted % lines) {
                uint64_t value = mill_load_be64(damage->value);
                memcpy(file->bytes + at + (size_t)word * WORD_BYTES, &value, sizeof(value));
                return;
            }
            lines += round == 0;
        }
        if (lines == 0) {
            return;
        }
    }
}

/* The number in a text that the position counts. */
static void number_put(struct image_file *file, const struct damage *damage)
{
    static const char digits[] = "0123456789";
    uint32_t wanted = damage->pos % 64;
    file->bytes[file->size] = '\0'; /* there is room for it */
    char *text = (char *)file->bytes;
    char *at = text + strcspn(text, digits);
    for (uint32_t i = 0; i < wanted && *at; i++) {
        at += strspn(at, digits);
        at += strcspn(at, digits);
    }
    if (!*at) {
        return;
    }
    char number[32];
    int length =
        snprintf(number, sizeof(number), "%" PRId64, (int64_t)mill_load_be64(damage->value));
    size_t before = (size_t)(at - text);
    size_t behind = before + strspn(at, digits);
    size_t rest = file->size - behind;
    uint8_t *made = must(malloc(before + (size_t)length + rest + 1));
    memcpy(made, file->bytes, before);
    memcpy(made + before, number, (size_t)length);
    memcpy(made + before + length, file->bytes + behind, rest);
    free(file->bytes);
    file->bytes = made;
    file->size = (uint32_t)(before + (size_t)length + rest);
}

static void field(struct image_file *file, const struct damage *damage)
{
    const struct format *format = format_of(file);
    if (file->pages) {
        arena_field(file, damage);
        return;
    }
    if (!format) {
        number_put(file, damage);
        return;
    }
    uint32_t entry = damage->pos / DAMAGE_FIELDS;
    uint32_t head = fields_length(format->head, MILL_COUNT_OF(format->head));
    uint32_t number = damage->pos % DAMAGE_FIELDS;
    uint64_t at = 0;
    if (number < head && entry == 0) {
        field_put(file, format->head[number].at, format->head[number].bytes, damage);
    } else if (entry_find(file, format, entry, &at)) {
        const struct field *one =
            &format->fields[number % fields_length(format->fields, DAMAGE_FIELDS)];
        field_put(file, at + one->at, one->bytes, damage);
    }
}

void damage_tell(const struct image *image, const struct damage *damage)
{
    static const char *const kinds[DAMAGE_KINDS] = {"overwrite", "cut",  "append",
                                                    "remove",    "copy", "field"};
    printf("%s: %s at %u, %u bytes of %016" PRIx64 "%s\n", image->files[damage->file].path,
           kinds[damage->kind], damage->pos, damage->length, mill_load_be64(damage->value),
           damage->sums ? ", summed" : "");
}

void damage_do(struct image *image, const struct damage *damage)
{
    struct image_file *file = &image->files[damage->file];
    uint32_t pos = damage->pos % (file->size + 1);
    switch (damage->kind) {
    case DAMAGE_OVERWRITE:
        overwrite(file, pos, damage);
        break;
    case DAMAGE_CUT:
        file->size = pos;
        break;
    case DAMAGE_APPEND:
        append(file, damage);
        break;
    case DAMAGE_REMOVE:
        file->gone = true;
        break;
    case DAMAGE_COPY:
        copy(image, file, damage);
        break;
    case DAMAGE_FIELD:
        field(file, damage);
        break;
    case DAMAGE_KINDS:
        break;
    }
    if (damage->sums) {
        sums_mend(file);
    }
}
