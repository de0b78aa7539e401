/* SPDX-License-Identifier: Apache-2.0 */
/* Making and checking the segment of shared counters (counters.h). The words themselves belong to
 * their writers in millraced; nothing here runs on a poll core after start. */
#include "ipc/counters.h"

#include <errno.h>

#include "base/check.h"

static_assert(sizeof(struct mill_shared_core) % MILL_CACHE_SPACING_BYTES == 0, "shared layout");
static_assert(sizeof(struct mill_shared_port) % MILL_CACHE_SPACING_BYTES == 0, "shared layout");
static_assert(offsetof(struct mill_counters, cores) % MILL_CACHE_SPACING_BYTES == 0,
              "shared layout");

const char *const mill_stage_names[MILL_STAGE_COUNT] = {
    [MILL_STAGE_COMPLETE] = "complete",     [MILL_STAGE_APPENDED] = "appended",
    [MILL_STAGE_REPLICATED] = "replicated", [MILL_STAGE_ANSWERED] = "answered",
    [MILL_STAGE_ACKED] = "acked",           [MILL_STAGE_TOTAL] = "total",
};
const char *const mill_stage_api_names[MILL_STAGE_API_COUNT] = {
    [MILL_STAGE_API_PRODUCE] = "produce",
    [MILL_STAGE_API_FETCH] = "fetch",
    [MILL_STAGE_API_OTHER] = "other",
};

uint64_t mill_counters_bytes(uint32_t cores_count)
{
    return sizeof(struct mill_counters) + cores_count * sizeof(struct mill_shared_core);
}

void mill_counters_format(void *memory, uint32_t cores_count)
{
    struct mill_counters *counters = memory;
    MILL_ASSERT(cores_count > 0 && cores_count <= MILL_MAP_CORES_MAX);
    counters->version = MILL_COUNTERS_VERSION;
    counters->size_bytes = mill_counters_bytes(cores_count);
    counters->cores_count = cores_count;
    counters->magic = MILL_COUNTERS_MAGIC;
}

int mill_counters_check(const void *memory, uint64_t size_bytes)
{
    const struct mill_counters *counters = memory;
    if (size_bytes < sizeof(*counters) || counters->magic != MILL_COUNTERS_MAGIC ||
        counters->version != MILL_COUNTERS_VERSION || counters->cores_count == 0 ||
        counters->cores_count > MILL_MAP_CORES_MAX ||
        counters->size_bytes != mill_counters_bytes(counters->cores_count) ||
        counters->size_bytes > size_bytes || counters->ports_count > MILL_COUNTERS_PORTS_MAX ||
        counters->listeners_count > MILL_MAP_LISTENERS_MAX) {
        return -EBADMSG;
    }
    return 0;
}
