/* SPDX-License-Identifier: Apache-2.0 */
/* A run from its options to its result: batches and connections are made, the load is let go for
 * the measured time, what is under way is awaited; see load.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/load.h"
#include "protocol/wire.h"

enum {
    SEED = 20,
    COPIES_SPARE = 4, /* of an idempotent producer: sent, answered, still shown to the device */
    WAIT_NS_MAX = 50000000,
};

/* --- making ----------------------------------------------------------------------------------- */

/* Memory of batches: templates, and copies of idempotent producers. */
static uint64_t memory_bytes(const struct bench_load *load)
{
    const struct mill_bench_options *options = load->options;
    uint64_t one = MILL_EXTENT_UNIT_BYTES;
    while (one < load->batch_bytes) {
        one <<= 1;
    }
    uint64_t copies = options->idempotent
                          ? (uint64_t)options->connections * (options->in_flight + COPIES_SPARE)
                          : 0;
    return one * (BENCH_TEMPLATES + copies);
}

static int sizes_choose(struct bench_load *load, struct mill_report *report)
{
    const struct mill_bench_options *options = load->options;
    load->batch_records = options->records;
    if (load->batch_records == 0) {
        load->batch_records = bench_batch_records(options->batch_bytes, options->record_bytes);
    }
    uint64_t size = bench_batch_bytes(load->batch_records, options->record_bytes);
    if (load->batch_records == 0 || size > MILL_BENCH_BATCH_BYTES_MAX) {
        return mill_fail(
            report, -EINVAL,
            "a batch of %u bytes cannot hold %u records of %u bytes (at most %d bytes)",
            options->batch_bytes, MILL_MAX(load->batch_records, 1u), options->record_bytes,
            MILL_BENCH_BATCH_BYTES_MAX);
    }
    load->batch_bytes = (uint32_t)size;
    return 0;
}

static int templates_make(struct bench_load *load, struct mill_report *report)
{
    const struct mill_bench_options *options = load->options;
    int64_t wall_ms = mill_now_read().wall_ms;
    int r = bench_head_produce(&load->produce_head, options->topic, options->acks,
                               options->timeout_ms, load->batch_bytes);
    if (r == 0) {
        r = bench_head_fetch(&load->fetch_head, options->topic, options->fetch_bytes,
                             options->fetch_wait_ms);
    }
    if (r < 0) {
        return mill_fail(report, r, "topic %s: the name is too long", options->topic);
    }
    uint32_t whole = load->produce_head.size_bytes + load->batch_bytes;
    load->inlined = whole <= BENCH_INLINE_BYTES;
    bench_crc_shift_init(&load->shift, load->batch_bytes);
    for (uint32_t i = 0; i < BENCH_TEMPLATES; i++) {
        r = bench_transport_alloc(&load->transport, load->batch_bytes, &load->templates[i], report);
        if (r < 0) {
            return r;
        }
        uint8_t *batch = mill_ref_data(load->transport.maker->arena_base, &load->templates[i]);
        bench_batch_encode(batch, load->batch_records, options->record_bytes, wall_ms, SEED + i);
        load->frames[i] = load->inlined ? malloc(whole) : NULL;
        if (load->inlined && !load->frames[i]) {
            return mill_fail(report, -ENOMEM, "no memory for requests");
        }
        if (load->inlined) {
            memcpy(load->frames[i], load->produce_head.bytes, load->produce_head.size_bytes);
            memcpy(load->frames[i] + load->produce_head.size_bytes, batch, load->batch_bytes);
        }
    }
    return 0;
}

/* The copies of an idempotent producer: its id in each. */
static int copies_make(struct bench_load *load, struct bench_conn *conn, struct mill_report *report)
{
    int64_t id = 0;
    int16_t epoch = 0;
    int r = bench_setup_producer(load, conn, &id, &epoch, report);
    conn->copies_count = load->inlined ? 1 : load->options->in_flight + COPIES_SPARE;
    conn->copies = calloc(conn->copies_count, sizeof(conn->copies[0]));
    if (r == 0 && !conn->copies) {
        r = mill_fail(report, -ENOMEM, "no memory for batches");
    }
    for (uint32_t i = 0; r == 0 && i < conn->copies_count; i++) {
        r = bench_transport_alloc(&load->transport, load->batch_bytes, &conn->copies[i], report);
        if (r == 0) {
            uint8_t *base = load->transport.maker->arena_base;
            uint8_t *batch = mill_ref_data(base, &conn->copies[i]);
            memcpy(batch, mill_ref_data(base, &load->templates[i % BENCH_TEMPLATES]),
                   load->batch_bytes);
            bench_batch_set_producer(batch, load->batch_bytes, id, epoch);
        }
    }
    return r;
}

/* A connection's partitions: all that its broker leads, each connection beginning at another. */
static int places_make(struct bench_load *load, struct bench_conn *conn, uint32_t index,
                       struct mill_report *report)
{
    bool end_to_end = load->options->mode == MILL_BENCH_END_TO_END;
    uint32_t first = end_to_end ? 0 : index % load->partitions_count;
    uint32_t leader = load->partitions[first].leader;
    uint32_t count = end_to_end ? 1 : load->partitions_count;
    conn->places = calloc(count, sizeof(conn->places[0]));
    conn->slots = calloc(load->options->in_flight, sizeof(conn->slots[0]));
    if (!conn->places || !conn->slots) {
        return mill_fail(report, -ENOMEM, "no memory for connections");
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t partition = (first + i) % load->partitions_count;
        const struct bench_partition *from = &load->partitions[partition];
        if (from->leader == leader) {
            conn->places[conn->places_count++] = (struct bench_place){
                .partition = (int32_t)partition,
                .start = end_to_end ? from->end : from->start,
                .position = end_to_end ? from->end : from->start,
            };
        }
    }
    memcpy(conn->address, load->leaders[leader].address, sizeof(conn->address));
    conn->port = load->leaders[leader].port;
    return 0;
}

static int conns_make(struct bench_load *load, struct mill_report *report)
{
    const struct mill_bench_options *options = load->options;
    bool end_to_end = options->mode == MILL_BENCH_END_TO_END;
    load->conns_count = end_to_end ? 2 : options->connections;
    load->conns = calloc(load->conns_count, sizeof(load->conns[0]));
    load->dirty = calloc(load->conns_count, sizeof(load->dirty[0]));
    load->due_ns = end_to_end ? calloc(BENCH_DUE_LENGTH, sizeof(load->due_ns[0])) : NULL;
    if (!load->conns || !load->dirty || (end_to_end && !load->due_ns)) {
        return mill_fail(report, -ENOMEM, "no memory for connections");
    }
    load->first_offset = load->partitions[0].end;
    for (uint32_t i = 0; i < load->conns_count; i++) {
        struct bench_conn *conn = &load->conns[i];
        conn->fetches = end_to_end ? i == 1 : options->mode == MILL_BENCH_FETCH;
        int r = places_make(load, conn, i, report);
        if (r == 0) {
            r = bench_setup_connect(load, conn, report);
        }
        if (r == 0 && options->idempotent && !conn->fetches) {
            r = copies_make(load, conn, report);
        }
        if (r < 0) {
            return r;
        }
        bench_answer_init(&conn->answer, conn->fetches, (uint32_t)strlen(options->topic));
        load->conns_open++;
    }
    return 0;
}

/* --- the run ---------------------------------------------------------------------------------- */

static uint64_t time_ns(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * MILL_NS_PER_S + (uint64_t)time->tv_usec * MILL_NS_PER_US;
}

static void cpu_read(uint64_t *ret_user_ns, uint64_t *ret_system_ns)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    *ret_user_ns = time_ns(&usage.ru_utime);
    *ret_system_ns = time_ns(&usage.ru_stime);
}

static void window_begin(struct bench_load *load)
{
    cpu_read(&load->cpu_user_ns, &load->cpu_system_ns);
}

static void window_end(struct bench_load *load, uint64_t now_ns)
{
    struct mill_bench_result *result = load->result;
    uint64_t user_ns;
    uint64_t system_ns;
    cpu_read(&user_ns, &system_ns);
    result->cpu_user_ns = user_ns - load->cpu_user_ns;
    result->cpu_system_ns = system_ns - load->cpu_system_ns;
    result->window_ns = now_ns - load->window_start_ns;
    load->window_end_ns = now_ns;
}

static bool all_sent(const struct bench_load *load)
{
    return load->options->count > 0 && load->sent >= load->options->count;
}

static bool all_answered(const struct bench_load *load)
{
    if (load->due_ns) {
        return load->received == load->sent;
    }
    for (uint32_t i = 0; i < load->conns_count; i++) {
        if (bench_in_flight(&load->conns[i]) > 0) {
            return false;
        }
    }
    return true;
}

static uint64_t wait_ns(const struct bench_load *load, uint64_t now_ns)
{
    uint64_t limit_ns = WAIT_NS_MAX;
    if (load->phase == BENCH_RUN && load->options->rate > 0 && load->schedule.next_ns > now_ns) {
        limit_ns = MILL_MIN(limit_ns, load->schedule.next_ns - now_ns);
    }
    if (load->phase == BENCH_RUN && load->window_end_ns > now_ns) {
        limit_ns = MILL_MIN(limit_ns, load->window_end_ns - now_ns);
    }
    return limit_ns;
}

static uint64_t turn(struct bench_load *load)
{
    struct mill_stream_maker *maker = load->transport.maker;
    uint64_t now_ns = bench_now();
    uint32_t work = maker->ops->step(maker, now_ns);
    work += bench_load_send(load, now_ns);
    if (work == 0) {
        bench_transport_wait(&load->transport, load->options->busy, wait_ns(load, now_ns));
    }
    return now_ns;
}

/* What was due in the window and never sent waited until now at least. */
static void unsent_count(struct bench_load *load)
{
    while (load->options->rate > 0 && load->schedule.next_ns < load->window_end_ns &&
           (load->options->count == 0 || load->schedule.taken < load->options->count)) {
        uint64_t due_ns = bench_schedule_take(&load->schedule);
        load->result->unsent++;
        if (bench_in_window(load, due_ns)) {
            mill_hist_add(&load->result->latency, load->window_end_ns - due_ns);
        }
    }
}

static bool is_silent(const struct bench_load *load, uint64_t now_ns)
{
    bool waits = load->phase == BENCH_DRAIN || !all_answered(load);
    return waits && now_ns > load->heard_ns &&
           now_ns - load->heard_ns > load->options->timeout_ms * MILL_NS_PER_MS;
}

static void run_begin(struct bench_load *load)
{
    const struct mill_bench_options *options = load->options;
    uint64_t now_ns = bench_now();
    load->begin_ns = now_ns;
    load->heard_ns = now_ns;
    load->window_start_ns = now_ns + options->warmup_ns;
    load->window_end_ns = options->duration_ns == MILL_NEVER
                              ? MILL_NEVER
                              : load->window_start_ns + options->duration_ns;
    if (options->rate > 0) {
        bench_schedule_init(&load->schedule, now_ns, options->rate, options->poisson, SEED);
    }
    load->phase = BENCH_RUN;
    for (uint32_t i = 0; i < load->conns_count; i++) {
        bench_load_touch(&load->conns[i]);
    }
}

/* Sends for the whole time. ret: false when no answer comes any more. */
static bool run_window(struct bench_load *load)
{
    bool begun = false;
    for (;;) {
        uint64_t now_ns = turn(load);
        if (!begun && now_ns >= load->window_start_ns) {
            window_begin(load);
            begun = true;
        }
        bool counted = all_sent(load) && all_answered(load);
        if (now_ns >= load->window_end_ns || counted || load->conns_open == 0) {
            load->window_start_ns =
                MILL_MIN(load->window_start_ns, now_ns); /* over in the warm-up */
            window_end(load, counted ? load->heard_ns + 1 : now_ns);
            return load->conns_open > 0;
        }
        if (is_silent(load, now_ns)) {
            window_end(load, now_ns);
            return false;
        }
    }
}

/* Waits for what is under way. */
static void run_drain(struct bench_load *load)
{
    load->phase = BENCH_DRAIN;
    load->heard_ns = bench_now();
    while (load->conns_open > 0 && !all_answered(load)) {
        if (is_silent(load, turn(load))) {
            return;
        }
    }
}

static void run(struct bench_load *load)
{
    run_begin(load);
    bool alive = run_window(load);
    unsent_count(load);
    if (alive) {
        run_drain(load);
    }
    if (load->due_ns) {
        load->result->unanswered += load->sent - load->received;
    } else {
        for (uint32_t i = 0; i < load->conns_count; i++) {
            load->result->unanswered += bench_in_flight(&load->conns[i]);
        }
    }
    load->phase = BENCH_END;
}

static void load_free(struct bench_load *load)
{
    for (uint32_t i = 0; load->conns && i < load->conns_count; i++) {
        bench_setup_close(load, &load->conns[i]);
    }
    bench_transport_close(&load->transport);
    for (uint32_t i = 0; load->conns && i < load->conns_count; i++) {
        free(load->conns[i].places);
        free(load->conns[i].slots);
        free(load->conns[i].copies);
    }
    for (uint32_t i = 0; i < BENCH_TEMPLATES; i++) {
        free(load->frames[i]);
    }
    free(load->conns);
    free(load->dirty);
    free(load->due_ns);
    free(load);
}

int mill_bench_run(const struct mill_bench_options *options, struct mill_bench_result *ret_result,
                   struct mill_report *report)
{
    struct bench_load *load = calloc(1, sizeof(*load));
    if (!load) {
        return mill_fail(report, -ENOMEM, "no memory");
    }
    memset(ret_result, 0, sizeof(*ret_result));
    load->options = options;
    load->result = ret_result;
    int r = sizes_choose(load, report);
    if (r < 0) {
        free(load);
        return r;
    }
    r = bench_transport_open(&load->transport, &options->transport, options->connections + 4,
                             memory_bytes(load), &bench_load_events, load, report);
    if (r < 0) {
        free(load);
        return r;
    }
    r = bench_transport_link(&load->transport, options->timeout_ms, report);
    if (r == 0) {
        r = bench_setup_topic(load, report);
    }
    if (r == 0) {
        r = templates_make(load, report);
    }
    if (r == 0) {
        r = conns_make(load, report);
    }
    if (r == 0) {
        run(load);
    }
    load->phase = BENCH_END;
    load_free(load);
    return r;
}

const char *mill_bench_error_name(int16_t code)
{
    return mill_kerr_name(code);
}

bool mill_bench_clean(const struct mill_bench_result *result)
{
    return result->errors == 0 && result->connections_lost == 0 && result->malformed == 0 &&
           result->unanswered == 0;
}
