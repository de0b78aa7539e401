/* SPDX-License-Identifier: Apache-2.0 */
/* The next request to a core: which of appends, reads and marks it takes from the queues, its
 * bytes, and the parts of them that its ring takes. Control's thread. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "control/journal/journal_types.h"
#include "protocol/messages.h"

enum {
    FLIGHT_BYTES_MAX = 4 << 20,
    REQUEST_EXTRA_BYTES = 512,
};

static void get_produce_partition(const void *context, int32_t index, void *ret_element)
{
    const struct mill_journal_partition *partition = context;
    struct mill_produce_request_topic_data_partition_data *element = ret_element;
    MILL_UNUSED(index);
    element->index = partition->index;
    element->records = (struct mill_wrecords){.length = (int32_t)partition->first->size_bytes,
                                              .ptr = partition->first->bytes};
}

/* A topic's name stands once per partition: the answer then has one element for each. */
static void get_produce_topic(const void *context, int32_t index, void *ret_element)
{
    const struct mill_journal_core *core = context;
    struct mill_produce_request_topic_data *element = ret_element;
    const struct mill_journal_partition *partition = core->flight[index];
    element->name = mill_wstr_of(partition->topic);
    element->partition_data =
        (struct mill_warray){.count = 1, .get = get_produce_partition, .context = partition};
}

static void get_fetch_partition(const void *context, int32_t index, void *ret_element)
{
    const struct mill_journal_reader *read = context;
    struct mill_fetch_request_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->partition = read->index;
    element->fetch_offset = read->offset;
    element->partition_max_bytes = MILL_JOURNAL_READ_BYTES;
}

static void get_fetch_topic(const void *context, int32_t index, void *ret_element)
{
    const struct mill_journal_reader *read = context;
    struct mill_fetch_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->topic = mill_wstr_of(read->topic);
    element->partitions =
        (struct mill_warray){.count = 1, .get = get_fetch_partition, .context = read};
}

static void get_start_partition(const void *context, int32_t index, void *ret_element)
{
    const struct mill_journal_reader *read = context;
    struct mill_list_offsets_request_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->partition_index = read->index;
    element->timestamp = -2; /* the log's start */
}

static void get_start_topic(const void *context, int32_t index, void *ret_element)
{
    const struct mill_journal_reader *read = context;
    struct mill_list_offsets_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(read->topic);
    element->partitions =
        (struct mill_warray){.count = 1, .get = get_start_partition, .context = read};
}

static void get_end_partition(const void *context, int32_t index, void *ret_element)
{
    const struct mill_journal_reader *read = context;
    struct mill_offset_for_leader_epoch_request_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->partition = read->index;
    element->current_leader_epoch = -1;
    element->leader_epoch = read->leader_epoch; /* the present one ends where the log does */
}

static void get_end_topic(const void *context, int32_t index, void *ret_element)
{
    const struct mill_journal_reader *read = context;
    struct mill_offset_for_leader_epoch_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->topic = mill_wstr_of(read->topic);
    element->partitions =
        (struct mill_warray){.count = 1, .get = get_end_partition, .context = read};
}

int16_t mill_journal_key_of(const struct mill_journal_core *core)
{
    if (core->busy != MILL_JOURNAL_READING) {
        return core->busy == MILL_JOURNAL_APPENDING ? MILL_API_KEY_PRODUCE
                                                    : mill_marks_key(core->marking);
    }
    return core->reading->offset == MILL_JOURNAL_START ? MILL_API_KEY_LIST_OFFSETS
           : core->reading->offset == MILL_JOURNAL_END ? MILL_API_KEY_OFFSET_FOR_LEADER_EPOCH
                                                       : MILL_API_KEY_FETCH;
}

int16_t mill_journal_version_of(int16_t key)
{
    return key == MILL_API_KEY_PRODUCE                   ? MILL_JOURNAL_PRODUCE_VERSION
           : key == MILL_API_KEY_FETCH                   ? MILL_JOURNAL_FETCH_VERSION
           : key == MILL_API_KEY_LIST_OFFSETS            ? MILL_JOURNAL_LIST_OFFSETS_VERSION
           : key == MILL_API_KEY_OFFSET_FOR_LEADER_EPOCH ? MILL_JOURNAL_EPOCH_VERSION
                                                         : mill_marks_version(key);
}

static int encode_request(struct mill_journal *journal, struct mill_journal_core *core,
                          struct mill_writer *to)
{
    if (core->busy == MILL_JOURNAL_APPENDING) {
        struct mill_produce_request message;
        mill_produce_request_defaults(&message);
        message.transactional_id = mill_wstr_of(""); /* some batches may belong to transactions */
        message.acks = -1;
        message.timeout_ms = (int32_t)(journal->timeout_ns / 1000000);
        message.topic_data = (struct mill_warray){
            .count = (int32_t)core->flight_count, .get = get_produce_topic, .context = core};
        return mill_produce_request_encode(to, MILL_JOURNAL_PRODUCE_VERSION, &message);
    }
    if (core->busy == MILL_JOURNAL_MARKING) {
        return mill_marks_encode(to, core->marking, core->marking_count);
    }
    if (core->reading->offset == MILL_JOURNAL_END) {
        struct mill_offset_for_leader_epoch_request message;
        mill_offset_for_leader_epoch_request_defaults(&message);
        message.topics =
            (struct mill_warray){.count = 1, .get = get_end_topic, .context = core->reading};
        return mill_offset_for_leader_epoch_request_encode(to, MILL_JOURNAL_EPOCH_VERSION,
                                                           &message);
    }
    if (core->reading->offset == MILL_JOURNAL_START) {
        struct mill_list_offsets_request message;
        mill_list_offsets_request_defaults(&message);
        message.replica_id = -1;
        message.topics =
            (struct mill_warray){.count = 1, .get = get_start_topic, .context = core->reading};
        return mill_list_offsets_request_encode(to, MILL_JOURNAL_LIST_OFFSETS_VERSION, &message);
    }
    struct mill_fetch_request message;
    mill_fetch_request_defaults(&message);
    message.max_bytes = MILL_JOURNAL_READ_BYTES;
    message.topics =
        (struct mill_warray){.count = 1, .get = get_fetch_topic, .context = core->reading};
    return mill_fetch_request_encode(to, MILL_JOURNAL_FETCH_VERSION, &message);
}

/* Makes the request's bytes. ret: false no memory. */
static bool request_make(struct mill_journal *journal, struct mill_journal_core *core)
{
    uint64_t need = REQUEST_EXTRA_BYTES + core->marking_count * (uint64_t)MILL_MARK_BYTES_MAX;
    for (uint32_t i = 0; i < core->flight_count; i++) {
        need += REQUEST_EXTRA_BYTES + core->flight[i]->first->size_bytes;
    }
    if (need > core->request_capacity) {
        free(core->request);
        core->request = malloc(need);
        core->request_capacity = core->request ? (uint32_t)need : 0;
        if (!core->request) {
            return false;
        }
    }
    struct mill_writer to;
    const struct mill_request_header header = {
        .api_key = mill_journal_key_of(core),
        .api_version = mill_journal_version_of(mill_journal_key_of(core)),
        .correlation_id = ++core->correlation,
        .client_id = mill_wstr_of("millrace-control")};
    mill_writer_init(&to, core->request, core->request_capacity, NULL, 0);
    mill_wire_request_begin(&to, &header);
    (void)encode_request(journal, core, &to);
    int64_t size = mill_wire_request_finish(&to);
    MILL_ASSERT(size > 0); /* the room was counted above */
    core->request_bytes = (uint32_t)size;
    core->request_sent = 0;
    return true;
}

/* Takes waiting partitions into the next request. ret: false when none waits. */
static bool flight_fill(struct mill_journal_core *core)
{
    uint64_t bytes = 0;
    while (core->waiting && core->flight_count < MILL_JOURNAL_FLIGHT_MAX) {
        struct mill_journal_partition *partition = core->waiting;
        bytes += partition->first->size_bytes;
        if (core->flight_count > 0 && bytes > FLIGHT_BYTES_MAX) {
            break;
        }
        core->waiting = partition->next_waiting;
        if (!core->waiting) {
            core->waiting_last = &core->waiting;
        }
        mill_journal_batch_seal(partition->first);
        core->flight[core->flight_count++] = partition;
    }
    return core->flight_count > 0;
}

static bool read_take(struct mill_journal_core *core)
{
    core->reading = core->reads;
    if (!core->reading) {
        return false;
    }
    core->reads = core->reading->next;
    if (!core->reads) {
        core->reads_last = &core->reads;
    }
    return true;
}

static bool marks_take(struct mill_journal_core *core)
{
    while (core->marks && core->marking_count < MILL_MARKS_FLIGHT_MAX) {
        struct mill_mark *mark = core->marks;
        if (core->marking_count > 0 && mark->marker.grant != core->marking[0]->marker.grant) {
            break; /* another request: their order matters */
        }
        core->marks = mark->next;
        if (!core->marks) {
            core->marks_last = &core->marks;
        }
        core->marking[core->marking_count++] = mark;
    }
    return core->marking_count > 0;
}

/* Takes what waits, of the kind whose turn it is, or of the next one. ret: false nothing does. */
static bool work_take(struct mill_journal *journal, struct mill_journal_core *core)
{
    enum mill_journal_busy kind = core->last;
    for (int i = MILL_JOURNAL_APPENDING; i < MILL_JOURNAL_BUSY_COUNT; i++) {
        kind = kind + 1 < MILL_JOURNAL_BUSY_COUNT ? kind + 1 : MILL_JOURNAL_APPENDING;
        bool found = kind == MILL_JOURNAL_APPENDING ? flight_fill(core)
                     : kind == MILL_JOURNAL_READING ? read_take(core)
                                                    : marks_take(core);
        if (found) {
            core->busy = kind;
#ifndef MILL_MUTANT_JOURNAL_MARKS_STARVE
            core->last = kind;
#endif
            journal->counters.journal_reads += kind == MILL_JOURNAL_READING;
            journal->counters.journal_requests += kind == MILL_JOURNAL_APPENDING;
            return true;
        }
    }
    return false;
}

void mill_journal_request_next(struct mill_journal *journal, struct mill_journal_core *core,
                               uint64_t now_ns)
{
    if (!work_take(journal, core)) {
        return;
    }
    if (core->stream_id == 0) {
        do {
            journal->random(journal->random_context, &core->stream_id, sizeof(core->stream_id));
        } while (core->stream_id == 0);
        core->tx_pos_bytes = 0;
        core->rx_pos_bytes = 0;
        journal->counters.journal_streams++;
    }
    core->answer_bytes = 0;
    core->deadline_ns = now_ns + journal->timeout_ns + journal->timeout_ns / 4;
    if (!request_make(journal, core)) {
        mill_journal_core_lost(journal, core);
    }
}

void mill_journal_request_send(struct mill_journal *journal, struct mill_journal_core *core)
{
    bool put = false;
    while (core->busy != MILL_JOURNAL_IDLE && core->request_sent < core->request_bytes) {
        struct mill_stream_part head = {
            .core_incarnation = journal->dataplane,
            .stream_id = core->stream_id,
            .pos_bytes = core->tx_pos_bytes,
            .size_bytes = MILL_MIN(core->request_bytes - core->request_sent,
                                   (uint32_t)MILL_STREAM_PART_BYTES),
        };
        uint32_t message_bytes = (uint32_t)sizeof(head) + head.size_bytes;
        if (!mill_ring_fits(&core->out, message_bytes)) {
            journal->counters.journal_ring_full++;
            break;
        }
        uint8_t *message = mill_ring_claim(&core->out, MILL_STREAM_PART, message_bytes);
        memcpy(message, &head, sizeof(head));
        memcpy(message + sizeof(head), core->request + core->request_sent, head.size_bytes);
        core->request_sent += head.size_bytes;
        core->tx_pos_bytes += head.size_bytes;
        put = true;
    }
    if (put) {
        mill_ring_publish(&core->out);
        mill_bell_ring(core->bell);
    }
}
