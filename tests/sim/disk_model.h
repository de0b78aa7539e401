/* SPDX-License-Identifier: Apache-2.0 */
/* A disk in memory behind the table of file calls: full, failing, short-writing, or crashing with
 * the loss of what was not synced, as a test says. One thread. */
#ifndef MILL_TESTS_SIM_DISK_MODEL_H
#define MILL_TESTS_SIM_DISK_MODEL_H

#include "base/random.h"
#include "dataplane/store/file_calls.h"

struct disk_model;

/* Everything a test may set at any time. */
struct disk_model_faults {
    uint64_t space_bytes;        /* left for growth; UINT64_MAX: enough */
    int write_error;             /* negative errno of each write; 0 none */
    int read_error;              /* of each read */
    int sync_error;              /* of each sync */
    bool short_writes;           /* each write takes a random part */
    uint32_t writes_until_error; /* writes that still go well before write_error; 0: at once */
};

struct disk_model_counts {
    uint64_t writes;
    uint64_t bytes_written;
    uint64_t bytes_read;
    uint64_t syncs;
    uint32_t open_now;
    uint32_t open_most;
};

/* ret: NULL out of memory. */
struct disk_model *disk_model_new(uint64_t seed);
void disk_model_free(struct disk_model *disk);
const struct mill_file_calls *disk_model_calls(struct disk_model *disk);
struct disk_model_faults *disk_model_faults(struct disk_model *disk);
const struct disk_model_counts *disk_model_counts(const struct disk_model *disk);
/* Power loss: each file keeps what was synced and a random part of what was written after; open
 * descriptors are void. */
void disk_model_crash(struct disk_model *disk);
/* A file's bytes, NULL when there is none. Valid until the next call that changes it. */
const uint8_t *disk_model_bytes(struct disk_model *disk, const char *path, uint64_t *ret_size);

#endif
