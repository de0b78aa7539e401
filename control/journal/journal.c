/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's queues and streams; see journal.h.
 *
 *   append --> partition: [batch][batch]...      at most one of them on its way
 *                 |  listed once at its core
 *   core:  waiting partitions, reads, marks --> one request at a time --> stream_in
 *                                      outcome <-- one answer           <-- stream_out
 */
#include "control/journal/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "control/journal/marks.h"
#include "ipc/nodes.h"
#include "protocol/errors.h"
#include "protocol/messages.h"

enum {
    PRODUCE_VERSION = 8,
    FETCH_VERSION = 11,
    LIST_OFFSETS_VERSION = 3,
    EPOCH_VERSION = 3,
    FLIGHT_MAX = 64, /* batches of one request */
    FLIGHT_BYTES_MAX = 4 << 20,
    ANSWER_BYTES_MAX = 64 << 20, /* a batch of the largest max.message.bytes that is sensible */
    BATCH_BYTES_FIRST = 4 << 10,
    RECORD_EXTRA_BYTES = 40, /* varints of one record at most */
    REQUEST_EXTRA_BYTES = 512,
    RING_RETRY_NS = 1000000,
    PARTS_PER_STEP = 64,
};

struct append {
    struct append *next;
    mill_journal_done done;
    void *context;
    uint32_t records_count;
};

struct batch {
    struct batch *next;
    struct append *first;
    struct append **last;
    uint8_t *bytes; /* header, then records */
    uint32_t size_bytes;
    uint32_t capacity_bytes;
    uint32_t records_count;
    struct mill_journal_producer producer; /* id -1: of no transaction */
    bool closed;                           /* sent, or about to be ended: takes no more */
    int64_t base_ms;
    int64_t max_ms;
};

struct partition {
    struct partition *next; /* of its topic */
    struct partition *next_waiting;
    struct mill_uuid topic_id;
    char topic[MILL_TOPIC_NAME_MAX + 1];
    int32_t index;
    uint32_t core;
    uint32_t batch_bytes_max;
    bool waiting; /* listed at its core, or on its way */
    struct batch *first;
    struct batch **last;
};

struct read {
    struct read *next;
    char topic[MILL_TOPIC_NAME_MAX + 1];
    int32_t index;
    int32_t leader_epoch;
    int64_t offset;
    mill_journal_read_done done;
    void *context;
};

enum busy {
    IDLE,
    APPENDING,
    READING,
    MARKING,
    BUSY_COUNT,
};

struct core {
    struct mill_ring in; /* from the core */
    struct mill_ring out;
    struct mill_bell *bell;
    bool attached;
    uint64_t stream_id; /* 0: none */
    uint64_t tx_pos_bytes;
    uint64_t rx_pos_bytes;
    enum busy busy;
    enum busy last; /* appends, reads and marks take turns */
    int32_t correlation;
    uint64_t deadline_ns;
    uint8_t *request; /* under way */
    uint32_t request_bytes;
    uint32_t request_sent;
    uint32_t request_capacity;
    uint8_t *answer;
    uint32_t answer_bytes;
    uint32_t answer_capacity;
    struct partition *waiting;
    struct partition **waiting_last;
    uint32_t flight_count;
    struct partition *flight[FLIGHT_MAX]; /* the first batch of each */
    struct read *reads;
    struct read **reads_last;
    struct read *reading;
    struct mill_mark *marks;
    struct mill_mark **marks_last;
    uint32_t marking_count;
    struct mill_mark *marking[MILL_MARKS_FLIGHT_MAX];
};

struct mill_journal {
    struct mill_ipc_segment *segment;
    uint64_t segment_bytes;
    uint64_t timeout_ns;
    void (*random)(void *context, void *ret, size_t size_bytes);
    void *random_context;
    uint64_t dataplane;
    uint64_t queued_bytes;
    uint32_t reads_count;
    uint32_t marks_count;
    struct partition *partitions;
    struct mill_journal_counters counters;
    uint32_t cores_count;
    struct core cores[];
};

/* --- open and close ----------------------------------------------------------------------------
 */

struct mill_journal *mill_journal_open(struct mill_ipc_segment *segment, uint64_t segment_bytes,
                                       uint64_t timeout_ns,
                                       void (*random)(void *context, void *ret, size_t size_bytes),
                                       void *random_context)
{
    struct mill_journal *journal =
        calloc(1, sizeof(*journal) + segment->cores_count * sizeof(journal->cores[0]));
    if (!journal) {
        return NULL;
    }
    journal->segment = segment;
    journal->segment_bytes = segment_bytes;
    journal->timeout_ns = timeout_ns;
    journal->random = random;
    journal->random_context = random_context;
    journal->cores_count = segment->cores_count;
    for (uint32_t i = 0; i < journal->cores_count; i++) {
        journal->cores[i].waiting_last = &journal->cores[i].waiting;
        journal->cores[i].reads_last = &journal->cores[i].reads;
        journal->cores[i].marks_last = &journal->cores[i].marks;
    }
    return journal;
}

int mill_journal_core(struct mill_journal *journal, uint32_t index, struct mill_bell *bell)
{
    struct core *core = &journal->cores[index];
    const struct mill_ipc_core *shared = &journal->segment->cores[index];
    const uint64_t bytes = mill_ring_bytes(MILL_STREAM_RING_BYTES);
    int rc = mill_ring_attach_consumer(&core->in, mill_ipc_at(journal->segment, shared->stream_out),
                                       bytes);
    if (rc == 0) {
        rc = mill_ring_attach_producer(&core->out, mill_ipc_at(journal->segment, shared->stream_in),
                                       bytes);
    }
    core->bell = bell;
    core->attached = rc == 0;
    return rc;
}

/* --- ends --------------------------------------------------------------------------------------
 */

static void batch_end(struct mill_journal *journal, struct partition *partition,
                      struct mill_journal_result result, int64_t base_offset)
{
    struct batch *batch = partition->first;
    partition->first = batch->next;
    if (!partition->first) {
        partition->last = &partition->first;
    }
    journal->queued_bytes -= batch->size_bytes;
    result.next_offset = base_offset;
    while (batch->first) {
        struct append *append = batch->first;
        batch->first = append->next;
        result.next_offset += append->records_count;
        append->done(append->context, &result);
        free(append);
    }
    free(batch->bytes);
    free(batch);
}

static void partition_list(struct mill_journal *journal, struct partition *partition)
{
    struct core *core = &journal->cores[partition->core];
    partition->waiting = true;
    partition->next_waiting = NULL;
    *core->waiting_last = partition;
    core->waiting_last = &partition->next_waiting;
}

static void read_end(struct mill_journal *journal, struct read *read, int16_t error)
{
    struct mill_journal_read result = {.outcome = MILL_JOURNAL_REFUSED, .error = error};
    journal->reads_count--;
    read->done(read->context, &result);
    free(read);
}

static void mark_end(struct mill_journal *journal, struct mill_mark *mark,
                     enum mill_journal_outcome outcome, int16_t error)
{
    const struct mill_journal_result result = {.outcome = outcome, .error = error};
    journal->marks_count--;
    mark->done(mark->context, &result);
    free(mark);
}

static void marks_lost(struct mill_journal *journal, struct mill_mark *const *marking,
                       uint32_t marking_count, struct mill_mark *waiting)
{
    for (uint32_t i = 0; i < marking_count; i++) {
        mark_end(journal, marking[i], MILL_JOURNAL_UNKNOWN, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    }
    while (waiting) {
        struct mill_mark *mark = waiting;
        waiting = mark->next;
        mark_end(journal, mark, MILL_JOURNAL_REFUSED, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    }
}

static struct batch *last_of(const struct partition *partition)
{
    return partition->first
               ? (struct batch *)(void *)((uint8_t *)partition->last - offsetof(struct batch, next))
               : NULL;
}

/* Ends what a partition has now; sent: its first batch is on its way. */
static void partition_lost(struct mill_journal *journal, struct partition *partition, bool sent)
{
    struct mill_journal_result result = {.outcome = MILL_JOURNAL_REFUSED,
                                         .error = MILL_KERR_COORDINATOR_NOT_AVAILABLE};
    uint32_t count = 0;
    for (struct batch *batch = partition->first; batch; batch = batch->next) {
        batch->closed = true; /* what callers append while they are told waits for the next try */
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        bool unknown = sent && i == 0;
#ifdef MILL_MUTANT_JOURNAL_LOST_REFUSED
        unknown = false;
#endif
        result.outcome = unknown ? MILL_JOURNAL_UNKNOWN : MILL_JOURNAL_REFUSED;
        journal->counters.journal_unknown += unknown;
        journal->counters.journal_refused += !unknown;
        batch_end(journal, partition, result, 0);
    }
    partition->waiting = false;
    if (partition->first) {
        partition_list(journal, partition);
    }
}

/* The stream is lost: what was sent may have happened, what was not sent did not. done calls may
 * append anew: that waits for the next stream. */
static void core_lost(struct mill_journal *journal, struct core *core)
{
    struct partition *waiting = core->waiting;
    struct read *reads = core->reads;
    struct read *reading = core->reading;
    struct mill_mark *marks = core->marks;
    struct mill_mark *marking[MILL_MARKS_FLIGHT_MAX];
    uint32_t marking_count = core->marking_count;
    uint32_t flight_count = core->flight_count;
    memcpy(marking, core->marking, marking_count * sizeof(marking[0]));
    core->stream_id = 0;
    core->busy = IDLE;
    core->waiting = NULL;
    core->waiting_last = &core->waiting;
    core->request_sent = core->request_bytes;
    core->reads = NULL;
    core->reads_last = &core->reads;
    core->reading = NULL;
    core->marks = NULL;
    core->marks_last = &core->marks;
    core->marking_count = 0;
    core->flight_count = 0;
    for (uint32_t i = 0; i < flight_count; i++) {
        partition_lost(journal, core->flight[i], true);
    }
    while (waiting) {
        struct partition *partition = waiting;
        waiting = partition->next_waiting;
        partition_lost(journal, partition, false);
    }
    if (reading) {
        read_end(journal, reading, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    }
    while (reads) {
        struct read *read = reads;
        reads = read->next;
        read_end(journal, read, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    }
    marks_lost(journal, marking, marking_count, marks);
}

void mill_journal_attach(struct mill_journal *journal, uint64_t dataplane)
{
    journal->dataplane = 0; /* done calls find nobody to append to */
    for (uint32_t i = 0; i < journal->cores_count; i++) {
        core_lost(journal, &journal->cores[i]);
    }
    journal->dataplane = dataplane;
}

void mill_journal_close(struct mill_journal *journal)
{
    if (!journal) {
        return;
    }
    mill_journal_attach(journal, 0);
    while (journal->partitions) {
        struct partition *next = journal->partitions->next;
        free(journal->partitions);
        journal->partitions = next;
    }
    for (uint32_t i = 0; i < journal->cores_count; i++) {
        free(journal->cores[i].request);
        free(journal->cores[i].answer);
    }
    free(journal);
}

/* --- appends -----------------------------------------------------------------------------------
 */

static struct partition *partition_of(struct mill_journal *journal,
                                      const struct mill_map_topic *topic, int32_t index)
{
    struct partition **at = &journal->partitions;
    for (; *at; at = &(*at)->next) {
        if ((*at)->index == index && mill_uuid_equal(&(*at)->topic_id, &topic->id)) {
            /* Found again soon: the busy ones gather in front. */
            struct partition *found = *at;
            *at = found->next;
            found->next = journal->partitions;
            journal->partitions = found;
            return found;
        }
    }
    struct partition *partition = calloc(1, sizeof(*partition));
    if (partition) {
        partition->topic_id = topic->id;
        memcpy(partition->topic, topic->name, sizeof(partition->topic) - 1);
        partition->index = index;
        partition->core = mill_owner_of(&topic->id, index, journal->cores_count);
        partition->last = &partition->first;
        partition->next = journal->partitions;
        journal->partitions = partition;
    }
    return partition;
}

static uint32_t put_varint(uint8_t *to, int64_t value)
{
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    uint32_t size = 0;
    while (zigzag >= 0x80) {
        to[size++] = (uint8_t)(zigzag | 0x80);
        zigzag >>= 7;
    }
    to[size++] = (uint8_t)zigzag;
    return size;
}

static uint32_t varint_bytes(int64_t value)
{
    uint8_t room[10];
    return put_varint(room, value);
}

/* Most bytes that records take in a batch. */
static uint64_t records_bytes_max(const struct mill_journal_record *records, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += RECORD_EXTRA_BYTES + records[i].key_bytes +
               (uint64_t)MILL_MAX(records[i].value_bytes, 0);
    }
    return sum;
}

static void put_record(struct batch *batch, const struct mill_journal_record *record,
                       int64_t now_ms)
{
    uint8_t *to = batch->bytes + batch->size_bytes;
    int64_t time_delta = now_ms - batch->base_ms;
    int64_t offset_delta = batch->records_count;
    uint32_t value_bytes = (uint32_t)MILL_MAX(record->value_bytes, 0);
    uint32_t length = 1 + varint_bytes(time_delta) + varint_bytes(offset_delta) +
                      varint_bytes(record->key_bytes) + record->key_bytes +
                      varint_bytes(record->value_bytes) + value_bytes + 1;
    to += put_varint(to, length);
    *to++ = 0; /* attributes */
    to += put_varint(to, time_delta);
    to += put_varint(to, offset_delta);
    to += put_varint(to, record->key_bytes);
    memcpy(to, record->key, record->key_bytes);
    to += record->key_bytes;
    to += put_varint(to, record->value_bytes);
    if (value_bytes > 0) {
        memcpy(to, record->value, value_bytes);
        to += value_bytes;
    }
    *to++ = 0; /* headers */
    batch->size_bytes = (uint32_t)(to - batch->bytes);
    batch->records_count++;
}

/* Room for more bytes at the batch's end. ret: false no memory. */
static bool batch_grow(struct batch *batch, uint64_t more_bytes)
{
    uint64_t need = batch->size_bytes + more_bytes;
    if (need <= batch->capacity_bytes) {
        return true;
    }
    uint64_t capacity = MILL_MAX(need, 2 * (uint64_t)batch->capacity_bytes);
    uint8_t *bytes = realloc(batch->bytes, capacity);
    if (!bytes) {
        return false;
    }
    batch->bytes = bytes;
    batch->capacity_bytes = (uint32_t)capacity;
    return true;
}

static bool same_producer(const struct batch *batch, const struct mill_journal_producer *producer)
{
    return batch->producer.id == producer->id && batch->producer.epoch == producer->epoch;
}

/* The batch that takes more_bytes more: the last one while it is open, of the same transaction, and
 * has room. */
static struct batch *batch_for(struct partition *partition,
                               const struct mill_journal_producer *producer, uint64_t more_bytes)
{
    struct batch *last = last_of(partition);
    if (last && !last->closed && same_producer(last, producer) &&
        last->size_bytes + more_bytes <= partition->batch_bytes_max) {
        return batch_grow(last, more_bytes) ? last : NULL;
    }
    struct batch *batch = calloc(1, sizeof(*batch));
    if (!batch) {
        return NULL;
    }
    batch->size_bytes = MILL_BATCH_HEADER_BYTES;
    batch->last = &batch->first;
    batch->producer = *producer;
    if (!batch_grow(batch, MILL_MAX(more_bytes, (uint64_t)BATCH_BYTES_FIRST))) {
        free(batch);
        return NULL;
    }
    *partition->last = batch;
    partition->last = &batch->next;
    return batch;
}

int mill_journal_append(struct mill_journal *journal, const struct mill_map_topic *topic,
                        int32_t index, const struct mill_journal_record *records,
                        uint32_t records_count, int64_t now_ms, mill_journal_done done,
                        void *context)
{
    const struct mill_journal_producer nobody = {.id = -1, .epoch = -1};
    return mill_journal_append_txn(journal, topic, index, &nobody, records, records_count, now_ms,
                                   done, context);
}

int mill_journal_append_txn(struct mill_journal *journal, const struct mill_map_topic *topic,
                            int32_t index, const struct mill_journal_producer *producer,
                            const struct mill_journal_record *records, uint32_t records_count,
                            int64_t now_ms, mill_journal_done done, void *context)
{
    uint64_t bytes = records_bytes_max(records, records_count);
    MILL_ASSERT(records_count > 0);
    if (journal->dataplane == 0) {
        return -ENOTCONN;
    }
    if (bytes + MILL_BATCH_HEADER_BYTES > (uint64_t)topic->settings.max_message_bytes) {
        return -EMSGSIZE;
    }
    bool full = journal->queued_bytes + bytes > MILL_JOURNAL_QUEUE_BYTES_MAX;
#ifdef MILL_MUTANT_JOURNAL_UNBOUNDED
    full = false;
#endif
    if (full) {
        journal->counters.journal_full++;
        return -ENOBUFS;
    }
    struct partition *partition = partition_of(journal, topic, index);
    struct append *append = calloc(1, sizeof(*append));
    if (!partition || !append) {
        free(append);
        return -ENOMEM;
    }
    partition->batch_bytes_max = (uint32_t)topic->settings.max_message_bytes;
    struct batch *batch = batch_for(partition, producer, bytes);
    if (!batch) {
        free(append);
        return -ENOMEM;
    }
    if (batch->records_count == 0) {
        batch->base_ms = now_ms;
        batch->max_ms = now_ms;
        journal->queued_bytes += batch->size_bytes;
    }
    uint32_t before = batch->size_bytes;
    batch->max_ms = MILL_MAX(batch->max_ms, now_ms);
    for (uint32_t i = 0; i < records_count; i++) {
        put_record(batch, &records[i], now_ms);
    }
    journal->queued_bytes += batch->size_bytes - before;
    *append = (struct append){.done = done, .context = context, .records_count = records_count};
    *batch->last = append;
    batch->last = &append->next;
    journal->counters.journal_appends++;
    if (!partition->waiting) {
        partition_list(journal, partition);
    }
    return 0;
}

int mill_journal_read(struct mill_journal *journal, const struct mill_map_topic *topic,
                      int32_t index, int64_t offset, mill_journal_read_done done, void *context)
{
    if (journal->dataplane == 0) {
        return -ENOTCONN;
    }
    if (journal->reads_count >= MILL_JOURNAL_READS_MAX) {
        journal->counters.journal_full++;
        return -ENOBUFS;
    }
    struct read *read = calloc(1, sizeof(*read));
    if (!read) {
        return -ENOMEM;
    }
    struct core *core = &journal->cores[mill_owner_of(&topic->id, index, journal->cores_count)];
    read->index = index;
    read->leader_epoch = topic->partitions[index].leader_epoch;
    read->offset = offset;
    read->done = done;
    read->context = context;
    memcpy(read->topic, topic->name, sizeof(read->topic) - 1);
    *core->reads_last = read;
    core->reads_last = &read->next;
    journal->reads_count++;
    return 0;
}

int mill_journal_mark(struct mill_journal *journal, const struct mill_map_topic *topic,
                      int32_t index, const struct mill_journal_marker *marker,
                      mill_journal_done done, void *context)
{
    if (journal->dataplane == 0) {
        return -ENOTCONN;
    }
    bool full = journal->marks_count >= MILL_JOURNAL_MARKS_MAX;
#ifdef MILL_MUTANT_JOURNAL_MARKS_UNBOUNDED
    full = false;
#endif
    if (full) {
        journal->counters.journal_full++;
        return -ENOBUFS;
    }
    struct mill_mark *mark = calloc(1, sizeof(*mark));
    if (!mark) {
        return -ENOMEM;
    }
    struct core *core = &journal->cores[mill_owner_of(&topic->id, index, journal->cores_count)];
    mark->marker = *marker;
    mark->index = index;
    mark->done = done;
    mark->context = context;
    memcpy(mark->topic, topic->name, sizeof(mark->topic) - 1);
    *core->marks_last = mark;
    core->marks_last = &mark->next;
    journal->marks_count++;
    journal->counters.journal_marks++;
    return 0;
}

/* --- requests ----------------------------------------------------------------------------------
 */

static void batch_seal(struct batch *batch)
{
    struct mill_batch_wire *wire = (struct mill_batch_wire *)(void *)batch->bytes;
    wire->base_offset = be64_make(0);
    wire->batch_length = be32_make(batch->size_bytes - MILL_BATCH_PREFIX_BYTES);
    wire->partition_leader_epoch = be32_make(UINT32_MAX);
    wire->magic = 2;
    wire->attributes = be16_make(batch->producer.id >= 0 ? MILL_BATCH_TRANSACTIONAL : 0);
    wire->last_offset_delta = be32_make(batch->records_count - 1);
    wire->base_timestamp = be64_make((uint64_t)batch->base_ms);
    wire->max_timestamp = be64_make((uint64_t)batch->max_ms);
    wire->producer_id = be64_make((uint64_t)batch->producer.id);
    wire->producer_epoch = be16_make((uint16_t)batch->producer.epoch);
    wire->base_sequence = be32_make(UINT32_MAX);
    wire->records_count = be32_make(batch->records_count);
    batch->closed = true;
    wire->crc = be32_make(
        mill_crc32c(batch->bytes + MILL_BATCH_SUMMED_AT, batch->size_bytes - MILL_BATCH_SUMMED_AT));
}

static void get_produce_partition(const void *context, int32_t index, void *ret_element)
{
    const struct partition *partition = context;
    struct mill_produce_request_topic_data_partition_data *element = ret_element;
    MILL_UNUSED(index);
    element->index = partition->index;
    element->records = (struct mill_wrecords){.length = (int32_t)partition->first->size_bytes,
                                              .ptr = partition->first->bytes};
}

/* A topic's name stands once per partition: the answer then has one element for each. */
static void get_produce_topic(const void *context, int32_t index, void *ret_element)
{
    const struct core *core = context;
    struct mill_produce_request_topic_data *element = ret_element;
    const struct partition *partition = core->flight[index];
    element->name = mill_wstr_of(partition->topic);
    element->partition_data =
        (struct mill_warray){.count = 1, .get = get_produce_partition, .context = partition};
}

static void get_fetch_partition(const void *context, int32_t index, void *ret_element)
{
    const struct read *read = context;
    struct mill_fetch_request_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->partition = read->index;
    element->fetch_offset = read->offset;
    element->partition_max_bytes = MILL_JOURNAL_READ_BYTES;
}

static void get_fetch_topic(const void *context, int32_t index, void *ret_element)
{
    const struct read *read = context;
    struct mill_fetch_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->topic = mill_wstr_of(read->topic);
    element->partitions =
        (struct mill_warray){.count = 1, .get = get_fetch_partition, .context = read};
}

static void get_start_partition(const void *context, int32_t index, void *ret_element)
{
    const struct read *read = context;
    struct mill_list_offsets_request_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->partition_index = read->index;
    element->timestamp = -2; /* the log's start */
}

static void get_start_topic(const void *context, int32_t index, void *ret_element)
{
    const struct read *read = context;
    struct mill_list_offsets_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->name = mill_wstr_of(read->topic);
    element->partitions =
        (struct mill_warray){.count = 1, .get = get_start_partition, .context = read};
}

static void get_end_partition(const void *context, int32_t index, void *ret_element)
{
    const struct read *read = context;
    struct mill_offset_for_leader_epoch_request_topics_partitions *element = ret_element;
    MILL_UNUSED(index);
    element->partition = read->index;
    element->current_leader_epoch = -1;
    element->leader_epoch = read->leader_epoch; /* the present one ends where the log does */
}

static void get_end_topic(const void *context, int32_t index, void *ret_element)
{
    const struct read *read = context;
    struct mill_offset_for_leader_epoch_request_topics *element = ret_element;
    MILL_UNUSED(index);
    element->topic = mill_wstr_of(read->topic);
    element->partitions =
        (struct mill_warray){.count = 1, .get = get_end_partition, .context = read};
}

static int16_t key_of(const struct core *core)
{
    if (core->busy != READING) {
        return core->busy == APPENDING ? MILL_API_KEY_PRODUCE : mill_marks_key(core->marking);
    }
    return core->reading->offset == MILL_JOURNAL_START ? MILL_API_KEY_LIST_OFFSETS
           : core->reading->offset == MILL_JOURNAL_END ? MILL_API_KEY_OFFSET_FOR_LEADER_EPOCH
                                                       : MILL_API_KEY_FETCH;
}

static int16_t version_of(int16_t key)
{
    return key == MILL_API_KEY_PRODUCE                   ? PRODUCE_VERSION
           : key == MILL_API_KEY_FETCH                   ? FETCH_VERSION
           : key == MILL_API_KEY_LIST_OFFSETS            ? LIST_OFFSETS_VERSION
           : key == MILL_API_KEY_OFFSET_FOR_LEADER_EPOCH ? EPOCH_VERSION
                                                         : mill_marks_version(key);
}

static int encode_request(struct mill_journal *journal, struct core *core, struct mill_writer *to)
{
    if (core->busy == APPENDING) {
        struct mill_produce_request message;
        mill_produce_request_defaults(&message);
        message.transactional_id = mill_wstr_of(""); /* some batches may belong to transactions */
        message.acks = -1;
        message.timeout_ms = (int32_t)(journal->timeout_ns / 1000000);
        message.topic_data = (struct mill_warray){
            .count = (int32_t)core->flight_count, .get = get_produce_topic, .context = core};
        return mill_produce_request_encode(to, PRODUCE_VERSION, &message);
    }
    if (core->busy == MARKING) {
        return mill_marks_encode(to, core->marking, core->marking_count);
    }
    if (core->reading->offset == MILL_JOURNAL_END) {
        struct mill_offset_for_leader_epoch_request message;
        mill_offset_for_leader_epoch_request_defaults(&message);
        message.topics =
            (struct mill_warray){.count = 1, .get = get_end_topic, .context = core->reading};
        return mill_offset_for_leader_epoch_request_encode(to, EPOCH_VERSION, &message);
    }
    if (core->reading->offset == MILL_JOURNAL_START) {
        struct mill_list_offsets_request message;
        mill_list_offsets_request_defaults(&message);
        message.replica_id = -1;
        message.topics =
            (struct mill_warray){.count = 1, .get = get_start_topic, .context = core->reading};
        return mill_list_offsets_request_encode(to, LIST_OFFSETS_VERSION, &message);
    }
    struct mill_fetch_request message;
    mill_fetch_request_defaults(&message);
    message.max_bytes = MILL_JOURNAL_READ_BYTES;
    message.topics =
        (struct mill_warray){.count = 1, .get = get_fetch_topic, .context = core->reading};
    return mill_fetch_request_encode(to, FETCH_VERSION, &message);
}

/* Makes the request's bytes. ret: false no memory. */
static bool request_make(struct mill_journal *journal, struct core *core)
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
    const struct mill_request_header header = {.api_key = key_of(core),
                                               .api_version = version_of(key_of(core)),
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
static bool flight_fill(struct core *core)
{
    uint64_t bytes = 0;
    while (core->waiting && core->flight_count < FLIGHT_MAX) {
        struct partition *partition = core->waiting;
        bytes += partition->first->size_bytes;
        if (core->flight_count > 0 && bytes > FLIGHT_BYTES_MAX) {
            break;
        }
        core->waiting = partition->next_waiting;
        if (!core->waiting) {
            core->waiting_last = &core->waiting;
        }
        batch_seal(partition->first);
        core->flight[core->flight_count++] = partition;
    }
    return core->flight_count > 0;
}

static bool read_take(struct core *core)
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

static bool marks_take(struct core *core)
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
static bool work_take(struct mill_journal *journal, struct core *core)
{
    enum busy kind = core->last;
    for (int i = APPENDING; i < BUSY_COUNT; i++) {
        kind = kind + 1 < BUSY_COUNT ? kind + 1 : APPENDING;
        bool found = kind == APPENDING ? flight_fill(core)
                     : kind == READING ? read_take(core)
                                       : marks_take(core);
        if (found) {
            core->busy = kind;
#ifndef MILL_MUTANT_JOURNAL_MARKS_STARVE
            core->last = kind;
#endif
            journal->counters.journal_reads += kind == READING;
            journal->counters.journal_requests += kind == APPENDING;
            return true;
        }
    }
    return false;
}

static void request_next(struct mill_journal *journal, struct core *core, uint64_t now_ns)
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
        core_lost(journal, core);
    }
}

/* Puts as much of the request into the ring as fits. */
static void request_send(struct mill_journal *journal, struct core *core)
{
    bool put = false;
    while (core->busy != IDLE && core->request_sent < core->request_bytes) {
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

/* --- answers -----------------------------------------------------------------------------------
 */

/* What an answer to an append says of one batch. A storage error or a timeout comes after the
 * append as well as before it. */
static struct mill_journal_result result_of(int16_t error)
{
    struct mill_journal_result result = {.outcome = MILL_JOURNAL_REFUSED, .error = error};
    if (error == MILL_KERR_NONE) {
        result.outcome = MILL_JOURNAL_DONE;
    } else if (error == MILL_KERR_REQUEST_TIMED_OUT || error == MILL_KERR_KAFKA_STORAGE_ERROR ||
               error == MILL_KERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND ||
               error == MILL_KERR_UNKNOWN_SERVER_ERROR) {
        result.outcome = MILL_JOURNAL_UNKNOWN;
    }
    return result;
}

struct appended {
    int16_t error;
    int64_t base_offset;
};

/* Reads the answer's elements, one for each batch, in their order. ret: false malformed. */
static bool produce_parse(const struct core *core, struct mill_cursor *at,
                          struct appended *ret_appended)
{
    struct mill_produce_response message;
    struct mill_produce_response_responses topic;
    struct mill_produce_response_responses_partition_responses part;
    uint32_t count = 0;
    if (mill_produce_response_decode(at, PRODUCE_VERSION, &message) < 0) {
        return false;
    }
    while (mill_produce_response_responses_next(&message.responses, PRODUCE_VERSION, &topic)) {
        while (mill_produce_response_responses_partition_responses_next(&topic.partition_responses,
                                                                        PRODUCE_VERSION, &part)) {
            if (count == core->flight_count || part.index != core->flight[count]->index) {
                return false;
            }
            ret_appended[count++] = (struct appended){part.error_code, part.base_offset};
        }
    }
    return count == core->flight_count;
}

static void produce_done(struct mill_journal *journal, struct core *core, struct mill_cursor *at)
{
    struct appended appended[FLIGHT_MAX];
    struct partition *flight[FLIGHT_MAX];
    if (!produce_parse(core, at, appended)) {
        core_lost(journal, core);
        return;
    }
    uint32_t count = core->flight_count;
    memcpy(flight, core->flight, count * sizeof(flight[0]));
    for (uint32_t i = 0; i < count; i++) {
        struct mill_journal_result result = result_of(appended[i].error);
        journal->counters.journal_refused += result.outcome == MILL_JOURNAL_REFUSED;
        journal->counters.journal_unknown += result.outcome == MILL_JOURNAL_UNKNOWN;
        /* Still in flight while its callers are told: what they append now goes behind. */
        batch_end(journal, flight[i], result, appended[i].base_offset);
    }
    core->flight_count = 0;
    core->busy = IDLE;
    for (uint32_t i = 0; i < count; i++) {
        flight[i]->waiting = false;
        if (flight[i]->first) {
            partition_list(journal, flight[i]);
        }
    }
}

/* ret: false malformed. */
static bool fetch_parse(struct mill_cursor *at, struct mill_journal_read *ret)
{
    struct mill_fetch_response message;
    struct mill_fetch_response_responses topic;
    struct mill_fetch_response_responses_partitions part;
    if (mill_fetch_response_decode(at, FETCH_VERSION, &message) < 0) {
        return false;
    }
    ret->error = message.error_code;
    if (ret->error != 0) {
        return true;
    }
    if (!mill_fetch_response_responses_next(&message.responses, FETCH_VERSION, &topic) ||
        !mill_fetch_response_responses_partitions_next(&topic.partitions, FETCH_VERSION, &part)) {
        return false;
    }
    ret->error = part.error_code;
    ret->high_watermark = part.high_watermark;
    ret->log_start = part.log_start_offset;
    ret->records = part.records.ptr;
    ret->records_bytes = (uint32_t)MILL_MAX(part.records.length, 0);
    return true;
}

/* ret: false malformed. */
static bool start_parse(struct mill_cursor *at, struct mill_journal_read *ret)
{
    struct mill_list_offsets_response message;
    struct mill_list_offsets_response_topics topic;
    struct mill_list_offsets_response_topics_partitions part;
    if (mill_list_offsets_response_decode(at, LIST_OFFSETS_VERSION, &message) < 0 ||
        !mill_list_offsets_response_topics_next(&message.topics, LIST_OFFSETS_VERSION, &topic) ||
        !mill_list_offsets_response_topics_partitions_next(&topic.partitions, LIST_OFFSETS_VERSION,
                                                           &part)) {
        return false;
    }
    ret->error = part.error_code;
    ret->log_start = part.offset;
    return true;
}

/* ret: false malformed. */
static bool end_parse(struct mill_cursor *at, struct mill_journal_read *ret)
{
    struct mill_offset_for_leader_epoch_response message;
    struct mill_offset_for_leader_epoch_response_topics topic;
    struct mill_offset_for_leader_epoch_response_topics_partitions part;
    if (mill_offset_for_leader_epoch_response_decode(at, EPOCH_VERSION, &message) < 0 ||
        !mill_offset_for_leader_epoch_response_topics_next(&message.topics, EPOCH_VERSION,
                                                           &topic) ||
        !mill_offset_for_leader_epoch_response_topics_partitions_next(&topic.partitions,
                                                                      EPOCH_VERSION, &part)) {
        return false;
    }
    ret->error = part.error_code;
    ret->log_end = part.end_offset;
    return true;
}

static void read_done(struct mill_journal *journal, struct core *core, struct mill_cursor *at)
{
    struct mill_journal_read result = {
        .outcome = MILL_JOURNAL_DONE, .high_watermark = -1, .log_start = -1, .log_end = -1};
    struct read *read = core->reading;
    bool good = read->offset == MILL_JOURNAL_START ? start_parse(at, &result)
                : read->offset == MILL_JOURNAL_END ? end_parse(at, &result)
                                                   : fetch_parse(at, &result);
    if (!good) {
        core_lost(journal, core);
        return;
    }
    core->reading = NULL;
    core->busy = IDLE;
    journal->reads_count--;
    result.outcome = result.error == 0 ? MILL_JOURNAL_DONE : MILL_JOURNAL_REFUSED;
    read->done(read->context, &result);
    free(read);
}

static void marks_done(struct mill_journal *journal, struct core *core, struct mill_cursor *at)
{
    int16_t errors[MILL_MARKS_FLIGHT_MAX];
    struct mill_mark *marking[MILL_MARKS_FLIGHT_MAX];
    uint32_t count = core->marking_count;
    if (!mill_marks_parse(at, core->marking, count, errors)) {
        core_lost(journal, core);
        return;
    }
    memcpy(marking, core->marking, count * sizeof(marking[0]));
    core->marking_count = 0;
    core->busy = IDLE;
    for (uint32_t i = 0; i < count; i++) {
        mark_end(journal, marking[i], result_of(errors[i]).outcome, errors[i]);
    }
}

/* Handles the answer when all of it is there. */
static void answer_look(struct mill_journal *journal, struct core *core)
{
    if (core->answer_bytes < MILL_FRAME_SIZE_BYTES) {
        return;
    }
    uint32_t size = mill_load_be32(core->answer);
    if (size > ANSWER_BYTES_MAX - MILL_FRAME_SIZE_BYTES) {
        core_lost(journal, core);
        return;
    }
    if (core->answer_bytes < size + MILL_FRAME_SIZE_BYTES) {
        return;
    }
    struct mill_buf buf;
    struct mill_cursor at = mill_cursor_over(&buf, core->answer + MILL_FRAME_SIZE_BYTES, size);
    int32_t correlation = 0;
    int rc = -EBADMSG;
    if (core->busy != IDLE && core->request_sent == core->request_bytes) {
        int16_t key = key_of(core);
        rc = mill_response_header_decode(&at, key, version_of(key), &correlation);
    }
    if (rc < 0 || correlation != core->correlation) {
        core_lost(journal, core);
        return;
    }
    core->answer_bytes = 0;
    if (core->busy == APPENDING) {
        produce_done(journal, core, &at);
    } else if (core->busy == MARKING) {
        marks_done(journal, core, &at);
    } else {
        read_done(journal, core, &at);
    }
}

/* Adds bytes of the answer. ret: false too long, or no memory. */
static bool answer_add(struct core *core, const uint8_t *bytes, uint32_t size_bytes)
{
    uint64_t need = (uint64_t)core->answer_bytes + size_bytes;
    if (need > ANSWER_BYTES_MAX) {
        return false;
    }
    if (need > core->answer_capacity) {
        uint64_t capacity = MILL_MAX(need, 2 * (uint64_t)core->answer_capacity);
        uint8_t *grown = realloc(core->answer, capacity);
        if (!grown) {
            return false;
        }
        core->answer = grown;
        core->answer_capacity = (uint32_t)capacity;
    }
    memcpy(core->answer + core->answer_bytes, bytes, size_bytes);
    core->answer_bytes += size_bytes;
    return true;
}

static void part_take(struct mill_journal *journal, struct core *core, uint32_t kind,
                      const uint8_t *message, uint32_t message_bytes)
{
    struct mill_stream_part head;
    if (message_bytes < sizeof(head)) {
        return;
    }
    memcpy(&head, message, sizeof(head));
    if (head.core_incarnation != journal->dataplane || head.stream_id != core->stream_id ||
        core->stream_id == 0) {
        return; /* of a stream that is over */
    }
    bool good = kind == MILL_STREAM_PART && head.size_bytes <= message_bytes - sizeof(head) &&
                head.pos_bytes == core->rx_pos_bytes &&
                answer_add(core, message + sizeof(head), head.size_bytes);
    if (!good) {
        core_lost(journal, core);
        return;
    }
    core->rx_pos_bytes += head.size_bytes;
    answer_look(journal, core);
}

static bool parts_take(struct mill_journal *journal, struct core *core)
{
    for (uint32_t taken = 0; taken < PARTS_PER_STEP; taken++) {
        uint32_t kind = 0;
        uint32_t size_bytes = 0;
        const void *message = mill_ring_next(&core->in, &kind, &size_bytes);
        if (!message) {
            return false;
        }
        part_take(journal, core, kind, message, size_bytes);
        mill_ring_release(&core->in);
    }
    return true;
}

/* --- the turn ----------------------------------------------------------------------------------
 */

uint64_t mill_journal_step(struct mill_journal *journal, uint64_t now_ns)
{
    uint64_t next_ns = MILL_NEVER;
    for (uint32_t i = 0; i < journal->cores_count && journal->dataplane != 0; i++) {
        struct core *core = &journal->cores[i];
        if (!core->attached) {
            continue;
        }
        bool more = parts_take(journal, core);
        if (core->busy != IDLE && now_ns >= core->deadline_ns) {
            journal->counters.journal_timeouts++;
            core_lost(journal, core);
        }
        if (core->busy == IDLE) {
            request_next(journal, core, now_ns);
        }
        request_send(journal, core);
        if (core->busy != IDLE) {
            bool unsent = core->request_sent < core->request_bytes;
            next_ns = MILL_MIN(next_ns, unsent ? now_ns + RING_RETRY_NS : core->deadline_ns);
        }
        next_ns = more ? now_ns : next_ns;
    }
    return next_ns;
}

bool mill_journal_has_work(const struct mill_journal *journal)
{
    for (uint32_t i = 0; i < journal->cores_count; i++) {
        const struct core *core = &journal->cores[i];
        if (core->attached && !mill_ring_empty(&core->in)) {
            return true;
        }
    }
    return false;
}

const struct mill_journal_counters *mill_journal_counters(const struct mill_journal *journal)
{
    return &journal->counters;
}

/* --- walking what was read ---------------------------------------------------------------------
 */

static bool walk_marker(const struct mill_batch *batch, const uint8_t *bytes, int64_t from,
                        const struct mill_journal_visitor *visitor)
{
    struct mill_marker marker;
    const struct mill_journal_at at = {.offset = batch->base_offset,
                                       .timestamp_ms = batch->max_timestamp,
                                       .producer_id = batch->producer_id};
    if (mill_marker_read(bytes, mill_batch_size_bytes(batch), &marker) < 0) {
        return false;
    }
    if (batch->base_offset >= from) {
        visitor->marker(visitor->context, &at, marker.type == MILL_MARKER_COMMIT);
    }
    return true;
}

static bool walk_batch(const struct mill_batch *batch, const uint8_t *bytes, int64_t from,
                       const struct mill_journal_visitor *visitor)
{
    struct mill_buf buf;
    uint32_t size = mill_batch_size_bytes(batch);
    struct mill_cursor at =
        mill_cursor_over(&buf, bytes + MILL_BATCH_HEADER_BYTES, size - MILL_BATCH_HEADER_BYTES);
    if (batch->magic != 2 || mill_batch_codec(batch) != MILL_CODEC_NONE) {
        return false;
    }
    if ((batch->attributes & MILL_BATCH_CONTROL) != 0) {
        return walk_marker(batch, bytes, from, visitor);
    }
    bool transactional = (batch->attributes & MILL_BATCH_TRANSACTIONAL) != 0;
    for (int32_t i = 0; i < batch->records_count; i++) {
        struct mill_record record;
        if (mill_record_next(&at, &record) < 0) {
            return false;
        }
        const struct mill_journal_at where = {
            .offset = batch->base_offset + record.offset_delta,
            .timestamp_ms = batch->base_timestamp + record.timestamp_delta,
            .producer_id = transactional ? batch->producer_id : -1};
        if (where.offset >= from) {
            visitor->record(visitor->context, &where, &record);
        }
    }
    return true;
}

int64_t mill_journal_walk(const uint8_t *records, uint32_t records_bytes, int64_t from,
                          const struct mill_journal_visitor *visitor, uint32_t *ret_skipped)
{
    int64_t next = from;
    *ret_skipped = 0;
    while (records_bytes >= MILL_BATCH_HEADER_BYTES) {
        struct mill_batch batch;
        mill_batch_read(records, &batch);
        if (batch.batch_length < MILL_BATCH_HEADER_BYTES - MILL_BATCH_PREFIX_BYTES ||
            mill_batch_size_bytes(&batch) > records_bytes) {
            break; /* the cut end of what was asked for */
        }
        *ret_skipped += walk_batch(&batch, records, from, visitor) ? 0 : 1;
        next = MILL_MAX(next, mill_batch_last_offset(&batch) + 1);
        records += mill_batch_size_bytes(&batch);
        records_bytes -= mill_batch_size_bytes(&batch);
    }
    return next;
}
