/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's queues, their ends and its turn; see journal.h. What lies in a queue becomes bytes
 * in batches.c and requests.c, and is told its end in answers.c.
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
#include "control/journal/journal_types.h"
#include "ipc/nodes.h"
#include "protocol/errors.h"

enum {
    RING_RETRY_NS = 1000000,
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
    struct mill_journal_core *core = &journal->cores[index];
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

void mill_journal_batch_end(struct mill_journal *journal, struct mill_journal_partition *partition,
                            struct mill_journal_result result, int64_t base_offset)
{
    struct mill_journal_batch *batch = partition->first;
    partition->first = batch->next;
    if (!partition->first) {
        partition->last = &partition->first;
    }
    journal->queued_bytes -= batch->size_bytes;
    result.next_offset = base_offset;
    while (batch->first) {
        struct mill_journal_caller *append = batch->first;
        batch->first = append->next;
        result.next_offset += append->records_count;
        append->done(append->context, &result);
        free(append);
    }
    free(batch->bytes);
    free(batch);
}

void mill_journal_partition_list(struct mill_journal *journal,
                                 struct mill_journal_partition *partition)
{
    struct mill_journal_core *core = &journal->cores[partition->core];
    partition->waiting = true;
    partition->next_waiting = NULL;
    *core->waiting_last = partition;
    core->waiting_last = &partition->next_waiting;
}

static void read_end(struct mill_journal *journal, struct mill_journal_reader *read, int16_t error)
{
    struct mill_journal_read result = {.outcome = MILL_JOURNAL_REFUSED, .error = error};
    journal->reads_count--;
    read->done(read->context, &result);
    free(read);
}

void mill_journal_mark_end(struct mill_journal *journal, struct mill_mark *mark,
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
        mill_journal_mark_end(journal, marking[i], MILL_JOURNAL_UNKNOWN,
                              MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    }
    while (waiting) {
        struct mill_mark *mark = waiting;
        waiting = mark->next;
        mill_journal_mark_end(journal, mark, MILL_JOURNAL_REFUSED,
                              MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    }
}

/* Ends what a partition has now; sent: its first batch is on its way. */
static void partition_lost(struct mill_journal *journal, struct mill_journal_partition *partition,
                           bool sent)
{
    struct mill_journal_result result = {.outcome = MILL_JOURNAL_REFUSED,
                                         .error = MILL_KERR_COORDINATOR_NOT_AVAILABLE};
    uint32_t count = 0;
    for (struct mill_journal_batch *batch = partition->first; batch; batch = batch->next) {
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
        mill_journal_batch_end(journal, partition, result, 0);
    }
    partition->waiting = false;
    if (partition->first) {
        mill_journal_partition_list(journal, partition);
    }
}

void mill_journal_core_lost(struct mill_journal *journal, struct mill_journal_core *core)
{
    struct mill_journal_partition *waiting = core->waiting;
    struct mill_journal_reader *reads = core->reads;
    struct mill_journal_reader *reading = core->reading;
    struct mill_mark *marks = core->marks;
    struct mill_mark *marking[MILL_MARKS_FLIGHT_MAX];
    uint32_t marking_count = core->marking_count;
    uint32_t flight_count = core->flight_count;
    memcpy(marking, core->marking, marking_count * sizeof(marking[0]));
    core->stream_id = 0;
    core->busy = MILL_JOURNAL_IDLE;
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
        struct mill_journal_partition *partition = waiting;
        waiting = partition->next_waiting;
        partition_lost(journal, partition, false);
    }
    if (reading) {
        read_end(journal, reading, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    }
    while (reads) {
        struct mill_journal_reader *read = reads;
        reads = read->next;
        read_end(journal, read, MILL_KERR_COORDINATOR_NOT_AVAILABLE);
    }
    marks_lost(journal, marking, marking_count, marks);
}

void mill_journal_attach(struct mill_journal *journal, uint64_t dataplane)
{
    journal->dataplane = 0; /* done calls find nobody to append to */
    for (uint32_t i = 0; i < journal->cores_count; i++) {
        mill_journal_core_lost(journal, &journal->cores[i]);
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
        struct mill_journal_partition *next = journal->partitions->next;
        free(journal->partitions);
        journal->partitions = next;
    }
    for (uint32_t i = 0; i < journal->cores_count; i++) {
        free(journal->cores[i].request);
        free(journal->cores[i].answer);
    }
    free(journal);
}

/* --- what is asked for ------------------------------------------------------------------------
 */

static struct mill_journal_partition *
partition_of(struct mill_journal *journal, const struct mill_map_topic *topic, int32_t index)
{
    struct mill_journal_partition **at = &journal->partitions;
    for (; *at; at = &(*at)->next) {
        if ((*at)->index == index && mill_uuid_equal(&(*at)->topic_id, &topic->id)) {
            /* Found again soon: the busy ones gather in front. */
            struct mill_journal_partition *found = *at;
            *at = found->next;
            found->next = journal->partitions;
            journal->partitions = found;
            return found;
        }
    }
    struct mill_journal_partition *partition = calloc(1, sizeof(*partition));
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
    uint64_t bytes = mill_journal_records_bytes_max(records, records_count);
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
    struct mill_journal_partition *partition = partition_of(journal, topic, index);
    struct mill_journal_caller *append = calloc(1, sizeof(*append));
    if (!partition || !append) {
        free(append);
        return -ENOMEM;
    }
    partition->batch_bytes_max = (uint32_t)topic->settings.max_message_bytes;
    struct mill_journal_batch *batch = mill_journal_batch_for(partition, producer, bytes);
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
        mill_journal_batch_put(batch, &records[i], now_ms);
    }
    journal->queued_bytes += batch->size_bytes - before;
    *append = (struct mill_journal_caller){
        .done = done, .context = context, .records_count = records_count};
    *batch->last = append;
    batch->last = &append->next;
    journal->counters.journal_appends++;
    if (!partition->waiting) {
        mill_journal_partition_list(journal, partition);
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
    struct mill_journal_reader *read = calloc(1, sizeof(*read));
    if (!read) {
        return -ENOMEM;
    }
    struct mill_journal_core *core =
        &journal->cores[mill_owner_of(&topic->id, index, journal->cores_count)];
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
    struct mill_journal_core *core =
        &journal->cores[mill_owner_of(&topic->id, index, journal->cores_count)];
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

/* --- the turn ----------------------------------------------------------------------------------
 */

uint64_t mill_journal_step(struct mill_journal *journal, uint64_t now_ns)
{
    uint64_t next_ns = MILL_NEVER;
    for (uint32_t i = 0; i < journal->cores_count && journal->dataplane != 0; i++) {
        struct mill_journal_core *core = &journal->cores[i];
        if (!core->attached) {
            continue;
        }
        bool more = mill_journal_parts_take(journal, core);
        if (core->busy != MILL_JOURNAL_IDLE && now_ns >= core->deadline_ns) {
            journal->counters.journal_timeouts++;
            mill_journal_core_lost(journal, core);
        }
        if (core->busy == MILL_JOURNAL_IDLE) {
            mill_journal_request_next(journal, core, now_ns);
        }
        mill_journal_request_send(journal, core);
        if (core->busy != MILL_JOURNAL_IDLE) {
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
        const struct mill_journal_core *core = &journal->cores[i];
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
