/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of clients on a core: what a request used is noted when its answer is made, the answer
 * tells the wait, and the connection is not read until it is over (KIP-219). Nobody is limited:
 * one look at a word per answer. A Fetch of a client that still owes gets no records, as in Kafka,
 * so that new connections do not help.
 * ref: KIP-13 bytes, KIP-124 time */
#include "dataplane/core/core_types.h"

#include <string.h>

#include "base/siphash.h"

void mill_quota_follow(struct mill_core *core)
{
    const struct mill_map_quotas *record = mill_map_quotas_read(core->map);
    core->quotas_on = record && record->count > 0;
    core->quotas_timed = false;
    core->quotas_version = record ? record->version : 0;
    core->quotas_burst_ns = record ? record->burst_ns : 0;
    core->quotas_pause_max_ns = record ? record->time_pause_max_ns : 0;
    uint32_t count = record ? record->count : 0;
    for (uint32_t i = 0; i < count && core->ticks_ns; i++) {
        core->quotas_timed |= record->entries[i].per_second[MILL_QUOTA_TIME] > 0;
    }
}

/* --- limits of a connection's client ----------------------------------------------------------
 */

static void limits_resolve(struct mill_core *core, struct mill_conn_quota *quota, const char *id,
                           uint64_t hash)
{
    const struct mill_map_quotas *record = mill_map_quotas_read(core->map);
    *quota = (struct mill_conn_quota){.hash = hash, .version = core->quotas_version};
    if (!record || record->count == 0) {
        return;
    }
    const struct mill_map_quota *entry = mill_map_quota_of(record, id);
    quota->part = entry == &record->entries[0] ? MILL_QUOTA_PART_OTHERS : MILL_QUOTA_PART_NAMED;
    for (uint32_t kind = 0; kind < MILL_QUOTA_KINDS; kind++) {
        quota->per_second[kind] = entry->per_second[kind];
        quota->together[kind] = entry->shared[kind];
        quota->limited |= entry->per_second[kind] > 0;
    }
}

/* What holds for the client that sent the request: known of the connection's last request as long
 * as id and limits are the same. ret: NULL nothing. */
static struct mill_conn_quota *limits_of(struct mill_core *core, struct mill_request *request)
{
    struct mill_conn_quota *quota = &request->conn->quota;
    const uint64_t key[2] = {core->incarnation, 0};
    char id[MILL_MAP_CLIENT_BYTES];
    if (request->conn->stream->listener == MILL_LISTENER_CONTROL) {
        return NULL;
    }
    if (mill_wstr_copy(&request->header.client_id, id, sizeof(id)) < 0) {
        id[0] = '\0'; /* none, or too long to have limits of its own */
    }
    uint64_t hash = MILL_MAX(mill_siphash(key, id, strlen(id)), 1ull);
    if (quota->hash != hash || quota->version != core->quotas_version) {
        limits_resolve(core, quota, id, hash);
    }
    return quota->limited ? quota : NULL;
}

static struct mill_quota_client *place_of(struct mill_core *core, struct mill_conn_quota *quota,
                                          enum mill_quota_kind kind)
{
    if (quota->together[kind]) {
        return &core->quotas->together;
    }
    if (!quota->place || !mill_quota_has(quota->place, quota->hash)) {
        quota->place = mill_quota_place(core->quotas, (enum mill_quota_part)quota->part,
                                        quota->hash, core->quotas_burst_ns, core->now.mono_ns);
    }
    return quota->place;
}

/* Notes a use of one kind. ret: ns to wait. */
static uint64_t use(struct mill_core *core, struct mill_conn_quota *quota,
                    enum mill_quota_kind kind, uint64_t amount)
{
    if (quota->per_second[kind] == 0) {
        return 0;
    }
    struct mill_quota_client *client = place_of(core, quota, kind);
    bool own = client != &core->quotas->together && client != &core->quotas->rest;
    core->words.quota_clients_full += client == &core->quotas->rest;
    return mill_quota_use(client, own ? quota->hash : 0, kind, quota->per_second[kind], amount,
                          core->quotas_burst_ns, core->now.mono_ns);
}

MILL_COLD bool mill_quota_fetch(struct mill_core *core, struct mill_request *request)
{
    struct mill_conn_quota *quota = limits_of(core, request);
    if (!quota || quota->per_second[MILL_QUOTA_FETCH] == 0) {
        return true;
    }
    uint64_t per_second = quota->per_second[MILL_QUOTA_FETCH];
    struct mill_quota_client *client = place_of(core, quota, MILL_QUOTA_FETCH);
#ifndef MILL_MUTANT_CORE_QUOTA_FEEDS
    if (mill_quota_owed(client, MILL_QUOTA_FETCH, per_second, core->now.mono_ns) > 0) {
        return false;
    }
#endif
    /* More than a burst gives would only make it wait longer. */
    uint64_t burst_ms = core->quotas_burst_ns / MILL_NS_PER_MS;
    uint64_t most = per_second > UINT32_MAX ? UINT32_MAX : per_second * burst_ms / 1000;
    request->bytes_max = (uint32_t)MILL_MIN((uint64_t)request->bytes_max, most);
    request->min_bytes = (int32_t)MILL_MIN((int64_t)request->min_bytes, request->bytes_max);
    return true;
}

MILL_COLD void mill_quota_charge(struct mill_core *core, struct mill_request *request,
                                 uint64_t answer_bytes)
{
    struct mill_conn_quota *quota = limits_of(core, request);
    uint64_t wait_ns = 0;
    if (!quota) {
        return;
    }
    if (request->header.api_key == MILL_API_KEY_PRODUCE) {
        wait_ns = use(core, quota, MILL_QUOTA_PRODUCE, request->frame_bytes);
        core->words.produce_throttled += wait_ns > 0;
    } else if (request->header.api_key == MILL_API_KEY_FETCH) {
        wait_ns = use(core, quota, MILL_QUOTA_FETCH, request->throttled ? 0 : answer_bytes);
        core->words.fetch_throttled += wait_ns > 0;
    }
    if (quota->per_second[MILL_QUOTA_TIME] > 0) {
        mill_request_time_note(core, request);
        uint64_t time_wait_ns = use(core, quota, MILL_QUOTA_TIME, request->work_ns);
        core->words.charged_ns += request->work_ns;
        time_wait_ns = MILL_MIN(time_wait_ns, core->quotas_pause_max_ns);
        core->words.request_throttled += time_wait_ns > 0;
        wait_ns = MILL_MAX(wait_ns, time_wait_ns);
    }
    uint64_t wait_ms = (wait_ns + MILL_NS_PER_MS - 1) / MILL_NS_PER_MS;
    static_assert(2 * MILL_QUOTA_DEBT_MAX_NS / MILL_NS_PER_MS + 1 <= INT32_MAX, "fits");
    request->throttle_ms = (int32_t)wait_ms;
}

/* --- muting ----------------------------------------------------------------------------------- */

MILL_COLD void mill_quota_mute(struct mill_core *core, struct mill_conn *conn, int32_t throttle_ms)
{
#ifdef MILL_MUTANT_CORE_QUOTA_UNMUTED
    return;
#endif
    if (conn->closing) {
        return;
    }
    uint64_t wait_ns = (uint32_t)throttle_ms * MILL_NS_PER_MS;
    core->words.muted += conn->mute.place == 0;
    core->words.throttled_ns += wait_ns;
    mill_heap_set(&core->mutes, &conn->mute, core->now.mono_ns + wait_ns);
}

void mill_quota_mute_end(struct mill_core *core, struct mill_conn *conn)
{
    if (conn->mute.place > 0) {
        mill_heap_remove(&core->mutes, &conn->mute);
        core->words.muted--;
        conn->progress_ns = core->now.mono_ns; /* it was not its fault that nothing moved */
    }
}

uint32_t mill_quota_run(struct mill_core *core)
{
    uint32_t work = 0;
    struct mill_heap_item *item;
    while (work < MILL_CONNS_PER_TURN && (item = mill_heap_first(&core->mutes)) != NULL &&
           item->at_ns <= core->now.mono_ns) {
        struct mill_conn *conn = MILL_CONTAINER_OF(item, struct mill_conn, mute);
        mill_quota_mute_end(core, conn);
        conn->stream->ops->pause(conn->stream, false);
        mill_conn_ready(core, conn);
        work++;
    }
    return work;
}

/* --- time ------------------------------------------------------------------------------------- */

void mill_request_time_note(struct mill_core *core, struct mill_request *request)
{
    if (request->work_since > 0) {
        uint64_t now = core->ticks_ns(core->ticks_context);
        request->work_ns += now - MILL_MIN(request->work_since, now);
        request->work_since = now;
    }
}

MILL_COLD void mill_request_timed(struct mill_core *core, struct mill_request *request,
                                  void (*work)(struct mill_core *core,
                                               struct mill_request *request))
{
    uint32_t index = request->index;
    uint32_t generation = request->generation;
    if (request->work_since > 0) {
        work(core, request); /* inside of what is timed already */
        return;
    }
    request->work_since = core->ticks_ns(core->ticks_context);
    work(core, request);
    /* It waits for something now, or it is over. */
    struct mill_request *left = mill_request_named(core, index, generation);
    if (left) {
        mill_request_time_note(core, left);
        left->work_since = 0;
    }
}
