/* SPDX-License-Identifier: Apache-2.0 */
/* What a start looks at beside the segments themselves: files that belong to no segment, and
 * whether gaps between batches are legal. The store's thread only. */
#include "dataplane/store/store_types.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_line.h"

enum {
    BASE_DIGITS = 20,
    CLEANER_BYTES_MAX = 256 << 20,
};

/* --- orphans --------------------------------------------------------------------------------- */

struct orphans {
    struct mill_store *store;
    const struct store_partition *partition;
    uint32_t removed;
};

static bool has_segment(const struct store_partition *partition, int64_t base_offset)
{
    for (uint32_t i = 0; i < partition->segments_count; i++) {
        if (partition->segments[i].base_offset == base_offset) {
            return true;
        }
    }
    return false;
}

static int orphan_note(void *context, const char *name)
{
    struct orphans *orphans = context;
    const char *end = name + strspn(name, "0123456789");
    if (end - name != BASE_DIGITS ||
        (strcmp(end, ".index") != 0 && strcmp(end, ".timeindex") != 0 &&
         strcmp(end, ".txnindex") != 0)) {
        return 0;
    }
    if (has_segment(orphans->partition, strtoll(name, NULL, 10))) {
        return 0;
    }
    char path[STORE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%.70s", orphans->partition->path, name);
    const struct mill_file_calls *calls = orphans->store->calls;
    int r = calls->remove_file(calls->context, path);
    orphans->removed += r == 0 ? 1 : 0;
    return r == -ENOENT ? 0 : r;
}

int mill_store_orphans_remove(struct mill_store *store, const struct store_partition *partition)
{
    struct orphans orphans = {.store = store, .partition = partition};
    int r = store->calls->list(store->calls->context, partition->path, orphan_note, &orphans);
    if (orphans.removed > 0) {
        mill_log_dirs_say(store->dirs, MILL_LEVEL_NOTICE, "store.orphans",
                          "partition=%s index files without a segment were removed count=%u",
                          partition->path, orphans.removed);
    }
    return r;
}

/* --- gaps ------------------------------------------------------------------------------------ */

/* Whether the cleaner's checkpoint names the partition: it was compacted once, whatever its policy
 * is now. Read only when a gap was found, and once. ret: 1, 0, -errno not known. */
static int was_compacted(struct mill_store *store, const struct store_partition *partition)
{
    char path[STORE_PATH_BYTES];
    char *text = NULL;
    snprintf(path, sizeof(path), "%s/cleaner-offset-checkpoint",
             store->dirs->dirs[partition->dir].path);
    int size = mill_store_read_whole(store->calls, path, CLEANER_BYTES_MAX, &text);
    if (size < 0) {
        return size == -ENOENT ? 0 : size;
    }
    const char *name = strrchr(partition->path, '/') + 1;
    const char *dash = strrchr(name, '-');
    char line[STORE_NAME_MAX + 4];
    snprintf(line, sizeof(line), "\n%.*s %s ", (int)(dash - name), name, dash + 1);
    bool named = strstr(text, line) != NULL;
    free(text);
    return named;
}

bool mill_store_gap_illegal(struct mill_store *store, struct store_partition *partition)
{
    if (partition->settings.compact || partition->gaps_legal) {
        return false;
    }
#ifdef MILL_MUTANT_STORE_GAPS_UNSEEN
    return false;
#endif
    if (!partition->gaps_illegal) {
        int was = was_compacted(store, partition);
        partition->gaps_legal = was == 1;
#ifndef MILL_MUTANT_STORE_GAPS_ASKED_AGAIN
        partition->gaps_illegal = was == 0;
#endif
    }
    return !partition->gaps_legal;
}

int mill_store_gap_damage(struct mill_store *store, const struct store_partition *partition,
                          const struct store_segment *segment, int64_t expected_offset,
                          int64_t found_offset)
{
    mill_log_dirs_say(store->dirs, MILL_LEVEL_ERROR, "store.damaged",
                      "partition=%s: offset %" PRId64 " follows %" PRId64 " in or after %020" PRId64
                      ".log: records are missing, and the topic was never compacted; it is not "
                      "served: restore the files, or delete the topic",
                      partition->path, found_offset, expected_offset - 1, segment->base_offset);
    return -EUCLEAN;
}
