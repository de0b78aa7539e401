/* SPDX-License-Identifier: Apache-2.0 */
/* Topics whose every byte follows from (id, version), so that a reader can tell a record that was
 * published half-filled or reused too early from a whole one. Test code. */
#ifndef MILL_TESTS_UNIT_IPC_MAP_SAMPLE_H
#define MILL_TESTS_UNIT_IPC_MAP_SAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "ipc/map.h"

enum {
    SAMPLE_PARTITIONS_MAX = 40,
};

static inline struct mill_uuid sample_id(uint32_t number)
{
    struct mill_uuid id = {{1}};
    memcpy(id.b + 4, &number, sizeof(number));
    return id;
}

static inline uint32_t sample_partitions(uint32_t number, uint32_t version)
{
    return 1 + (number * 7 + version * 13) % SAMPLE_PARTITIONS_MAX;
}

/* name: number of the name, which several topics may share. */
static inline void sample_fill(struct mill_map_topic *topic, uint32_t number, uint32_t name,
                               uint32_t version, uint32_t flags)
{
    memset(topic, 0, sizeof(*topic));
    topic->id = sample_id(number);
    topic->flags = flags;
    topic->partitions_count = sample_partitions(number, version);
    topic->name_length = (uint16_t)snprintf(topic->name, sizeof(topic->name), "topic-%u", name);
    topic->settings.retention_ms = version;
    topic->settings.segment_bytes = (int64_t)version * 3 + number;
    for (uint32_t i = 0; i < topic->partitions_count; i++) {
        topic->partitions[i] = (struct mill_map_partition){
            .leader = (int32_t)(number + i),
            .leader_epoch = (int32_t)version,
            .isr_bits = version ^ number,
        };
    }
}

/* True when the record is one whole sample, of any version. */
static inline bool sample_is_whole(const struct mill_map_topic *topic)
{
    uint32_t number;
    memcpy(&number, topic->id.b + 4, sizeof(number));
    uint32_t version = (uint32_t)topic->settings.retention_ms;
    struct mill_uuid id = sample_id(number);
    if (!mill_uuid_equal(&topic->id, &id) ||
        topic->partitions_count != sample_partitions(number, version) ||
        topic->settings.segment_bytes != (int64_t)version * 3 + number) {
        return false;
    }
    for (uint32_t i = 0; i < topic->partitions_count; i++) {
        const struct mill_map_partition *partition = &topic->partitions[i];
        if (partition->leader != (int32_t)(number + i) ||
            partition->leader_epoch != (int32_t)version ||
            partition->isr_bits != (version ^ number)) {
            return false;
        }
    }
    return true;
}

static inline struct mill_map_topic *sample_room(void)
{
    struct mill_map_topic *topic =
        calloc(1, sizeof(*topic) + SAMPLE_PARTITIONS_MAX * sizeof(topic->partitions[0]));
    MILL_ASSERT(topic);
    return topic;
}

/* Shared with children of fork. */
static inline void *sample_memory(uint64_t size_bytes, uint32_t topics_max)
{
    struct mill_map_limits limits = {.size_bytes = size_bytes, .topics_max = topics_max};
    void *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MILL_ASSERT(memory != MAP_FAILED);
    mill_map_format(memory, &limits);
    return memory;
}

#endif
