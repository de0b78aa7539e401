/* SPDX-License-Identifier: Apache-2.0 */
/* A disk in memory behind the table of file calls: full, failing, short-writing, or losing power at
 * any call, as a test says. One thread.
 *
 *   directory: names on the disk, then changes that wait for a sync, in order
 *   file:      bytes on the disk, bytes as they are read, and the range in which these differ
 *
 * A power cut keeps of each directory a prefix of the waiting changes (a journal keeps their order;
 * a rename is one change), of each file any choice of its unsynced sectors, one of them torn, and
 * any size between the two. Syncing a file says nothing about its name. */
#ifndef MILL_TESTS_SIM_DISK_MODEL_H
#define MILL_TESTS_SIM_DISK_MODEL_H

#include "base/random.h"
#include "dataplane/store/file_calls.h"

struct disk_model;

enum {
    DISK_MODEL_SECTOR_BYTES = 512,
};

/* Everything a test may set at any time. */
struct disk_model_faults {
    uint64_t space_bytes;        /* left for growth; UINT64_MAX: enough */
    int write_error;             /* negative errno of each write; 0 none */
    int read_error;              /* of each read */
    int sync_error;              /* of each sync */
    bool short_writes;           /* each write takes a random part */
    uint32_t writes_until_error; /* writes that still go well before write_error; 0: at once */
    uint64_t calls_until_cut;    /* then the power goes, in the middle of a call: it and all later
                                    ones answer -EIO; UINT64_MAX: never */
};

struct disk_model_counts {
    uint64_t calls;
    uint64_t writes;
    uint64_t bytes_written;
    uint64_t bytes_read;
    uint64_t syncs;
    uint64_t lost_bytes; /* that cuts did not keep */
    uint64_t lost_names; /* changes of directories that cuts did not keep */
    uint32_t open_now;
    uint32_t open_most;
};

struct disk_model_stat {
    bool dir;
    uint64_t size_bytes;
    uint64_t number; /* of the file, not of its name */
};

/* ret: NULL out of memory. */
struct disk_model *disk_model_new(uint64_t seed);
void disk_model_free(struct disk_model *disk);
const struct mill_file_calls *disk_model_calls(struct disk_model *disk);
struct disk_model_faults *disk_model_faults(struct disk_model *disk);
const struct disk_model_counts *disk_model_counts(const struct disk_model *disk);
/* ret: the power went (calls_until_cut); until disk_model_crash. */
bool disk_model_is_cut(const struct disk_model *disk);
/* Power loss and its end: see above; open descriptors are void. */
void disk_model_crash(struct disk_model *disk);
/* The same with a seed of its own, so that what is lost depends on nothing before. */
void disk_model_crash_seeded(struct disk_model *disk, uint64_t seed);
/* A file's bytes, NULL when there is none. Valid until the next call that changes it. */
const uint8_t *disk_model_bytes(struct disk_model *disk, const char *path, uint64_t *ret_size);
/* ret: 0, -ENOENT. */
int disk_model_stat(struct disk_model *disk, const char *path, struct disk_model_stat *ret_stat);

#endif
