/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of clients by their quotas; see quota.h. */
#include "dataplane/core/quota.h"

#include "base/check.h"
#include "base/clock.h"

enum {
    RAISES_MAX = 4, /* tries to lift a point that other cores move */
};

/* More at once is counted as so much: what it costs stays inside 64 bits of ns. */
static const uint64_t amount_max = 1ull << 33;

static_assert((MILL_QUOTA_CLIENTS_MAX & (MILL_QUOTA_CLIENTS_MAX - 1)) == 0, "a mask");
static_assert(sizeof(struct mill_quota_client) == 64, "one cache line");

static uint64_t farthest(uint64_t burst_ns, uint64_t now_ns)
{
    return now_ns > burst_ns ? now_ns - burst_ns : 0;
}

/* Points are compared as signed: a use that is taken back from a point that began anew meanwhile
 * leaves it below zero, which is in the past. ret: how far a lies behind b; negative: before. */
static int64_t ahead(uint64_t a, uint64_t b)
{
#ifdef MILL_MUTANT_CORE_QUOTA_WRAPS
    return a > b ? (int64_t)MILL_MIN(a - b, (uint64_t)INT64_MAX) : a < b ? -1 : 0;
#endif
    return (int64_t)(a - b);
}

static uint64_t wait_of(uint64_t until_ns, uint64_t now_ns)
{
    int64_t wait_ns = ahead(until_ns, now_ns);
    return wait_ns > 0 ? MILL_MIN((uint64_t)wait_ns, 2 * MILL_QUOTA_DEBT_MAX_NS) : 0;
}

/* Kafka's pause for time is one sample at most: a debt that outlives the window would throttle long
 * after an overload. */
static uint64_t debt_max(enum mill_quota_kind kind, uint64_t burst_ns)
{
#ifndef MILL_MUTANT_CORE_QUOTA_TIME_OWED
    if (kind == MILL_QUOTA_TIME) {
        return MILL_MIN(burst_ns, MILL_QUOTA_DEBT_MAX_NS);
    }
#endif
    return MILL_QUOTA_DEBT_MAX_NS;
}

/* Points are moved and read without an order: each stands for itself. */
static bool is_at_rest(const struct mill_quota_client *client, uint64_t floor_ns)
{
#ifdef MILL_MUTANT_CORE_QUOTA_EVICTS
    return true;
#endif
    for (uint32_t kind = 0; kind < MILL_QUOTA_KINDS; kind++) {
        uint64_t until_ns = atomic_load_explicit(&client->until_ns[kind], memory_order_relaxed);
        if (ahead(until_ns, floor_ns) > 0) {
            return false;
        }
    }
    return true;
}

bool mill_quota_has(const struct mill_quota_client *client, uint64_t hash)
{
    return atomic_load_explicit(&client->hash, memory_order_relaxed) == hash;
}

struct mill_quota_client *mill_quota_place(struct mill_quota_table *table,
                                           enum mill_quota_part part, uint64_t hash,
                                           uint64_t burst_ns, uint64_t now_ns)
{
    struct mill_quota_client *clients = table->clients[part];
    uint64_t floor_ns = farthest(burst_ns, now_ns);
    /* Another core may take the place meanwhile, perhaps for the same client: one more look. */
    for (uint32_t look = 0; look < 2; look++) {
        struct mill_quota_client *found = NULL;
        uint64_t owner = 0;
        for (uint32_t i = 0; i < MILL_QUOTA_PLACES; i++) {
            struct mill_quota_client *client =
                &clients[(uint32_t)(hash + i) & (MILL_QUOTA_CLIENTS_MAX - 1)];
            uint64_t seen = atomic_load_explicit(&client->hash, memory_order_relaxed);
            if (seen == hash) {
                return client;
            }
            if (!found && (seen == 0 || is_at_rest(client, floor_ns))) {
                found = client;
                owner = seen;
            }
        }
        if (!found) {
            break;
        }
        if (atomic_compare_exchange_strong_explicit(&found->hash, &owner, hash,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            return found;
        }
    }
    return &table->rest;
}

/* Lifts a point to the burst. ret: where it was found or put. */
static uint64_t raise(_Atomic uint64_t *point, uint64_t floor_ns)
{
    uint64_t seen = atomic_load_explicit(point, memory_order_relaxed);
#ifdef MILL_MUTANT_CORE_QUOTA_BURSTS_ALL
    floor_ns = 0;
#endif
    for (uint32_t i = 0; i < RAISES_MAX && ahead(seen, floor_ns) < 0; i++) {
        if (atomic_compare_exchange_strong_explicit(point, &seen, floor_ns, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            return floor_ns;
        }
    }
    return seen;
}

uint64_t mill_quota_use(struct mill_quota_client *client, uint64_t hash, enum mill_quota_kind kind,
                        uint64_t per_second, uint64_t amount, uint64_t burst_ns, uint64_t now_ns)
{
    _Atomic uint64_t *point = &client->until_ns[kind];
    if (atomic_load_explicit(&client->per_second[kind], memory_order_relaxed) != per_second) {
        atomic_store_explicit(&client->per_second[kind], per_second, memory_order_relaxed);
        atomic_store_explicit(point, 0, memory_order_relaxed); /* a new limit: no debt */
    }
    uint64_t cost_ns = MILL_MIN(amount, amount_max) * MILL_NS_PER_S / per_second;
    uint64_t seen = raise(point, farthest(burst_ns, now_ns));
    int64_t room_ns = ahead(now_ns + debt_max(kind, burst_ns), seen);
    cost_ns = MILL_MIN(cost_ns, (uint64_t)MILL_MAX(room_ns, (int64_t)0));
#ifdef MILL_MUTANT_CORE_QUOTA_LOST
    uint64_t until_ns = seen + cost_ns;
    atomic_store_explicit(point, until_ns, memory_order_relaxed);
#else
    uint64_t until_ns = atomic_fetch_add_explicit(point, cost_ns, memory_order_relaxed) + cost_ns;
#endif
    if (hash != 0 && !mill_quota_has(client, hash)) {
        /* Another core gave the place, at rest until now, to another client. */
        atomic_fetch_sub_explicit(point, cost_ns, memory_order_relaxed);
        return 0;
    }
    return wait_of(until_ns, now_ns);
}

uint64_t mill_quota_owed(const struct mill_quota_client *client, enum mill_quota_kind kind,
                         uint64_t per_second, uint64_t now_ns)
{
    uint64_t until_ns = atomic_load_explicit(&client->until_ns[kind], memory_order_relaxed);
    bool same = atomic_load_explicit(&client->per_second[kind], memory_order_relaxed) == per_second;
    return same ? wait_of(until_ns, now_ns) : 0;
}
