/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of clients in the controller's hands: from the store, into it, and into the map. Control's
 * thread only. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "control/controller/controller.h"
#include "protocol/errors.h"

/* However long samples are. */
static const uint64_t burst_max_ns = 86400 * MILL_NS_PER_S;

static bool name_read(const char *text, struct mill_quota_name *ret_name)
{
    *ret_name = (struct mill_quota_name){.who = MILL_QUOTA_ABSENT};
    if (text[0] == '*') {
        ret_name->who = MILL_QUOTA_DEFAULT;
    } else if (text[0] == '=' && strlen(text + 1) < sizeof(ret_name->name)) {
        ret_name->who = MILL_QUOTA_NAMED;
        memcpy(ret_name->name, text + 1, strlen(text + 1));
    }
    return text[0] == '\0' || ret_name->who != MILL_QUOTA_ABSENT;
}

static int take_quota(void *context, const struct mill_meta_quota *quota)
{
    struct mill_controller *controller = context;
    struct mill_quota_name user;
    struct mill_quota_name client;
    enum mill_quota_kind kind = mill_quota_kind_of(quota->key);
    if (!name_read(quota->user, &user) || !name_read(quota->client, &client) ||
        kind == MILL_QUOTA_KINDS) {
        return 0; /* of a version that knows more */
    }
    return mill_quota_put(&controller->quotas, &user, &client, kind, quota->value);
}

int mill_controller_load_quotas(struct mill_controller *controller, struct mill_report *report)
{
    return controller->meta.calls->load_quotas(controller->meta.store, take_quota, controller,
                                               report);
}

/* --- into the map ------------------------------------------------------------------------------
 */

static uint64_t sample_ns_of(const struct mill_config *config)
{
    return (uint64_t)mill_config_int(config, MILL_KEY_QUOTA_WINDOW_SIZE_SECONDS) * MILL_NS_PER_S;
}

uint64_t mill_quota_burst_ns(const struct mill_config *config)
{
    uint64_t sample_ns = sample_ns_of(config);
    uint64_t samples = (uint64_t)mill_config_int(config, MILL_KEY_QUOTA_WINDOW_NUM);
    samples = MILL_MAX(samples - 1, 1ull);
    return sample_ns < burst_max_ns / samples ? sample_ns * samples : burst_max_ns;
}

int mill_controller_publish_quotas(struct mill_controller *controller)
{
    uint64_t sample_ns = sample_ns_of(controller->config);
    uint64_t burst_ns = mill_quota_burst_ns(controller->config);
    struct mill_map_quotas *record = mill_quota_resolve(&controller->quotas, burst_ns, sample_ns);
    const struct mill_map_quotas *old = mill_map_quotas_read(controller->map);
    int rc = record ? 0 : -ENOMEM;
    if (record && (record->count > 0 || old)) {
        size_t bytes = sizeof(*record) + record->count * sizeof(record->entries[0]);
        record->version = old ? old->version : 0;
        if (!old || old->count != record->count || memcmp(old, record, bytes) != 0) {
            record->version++;
            rc = mill_map_put_quotas(controller->writer, record);
        }
    }
    free(record);
    controller->quotas_unpublished = rc < 0;
    return rc;
}

/* --- into the store ----------------------------------------------------------------------------
 */

static char *name_text(const struct mill_quota_name *name, struct mill_pool *pool)
{
    return name->who == MILL_QUOTA_NAMED
               ? mill_pool_text(pool, "=%s", name->name)
               : mill_pool_text(pool, "%s", name->who == MILL_QUOTA_DEFAULT ? "*" : "");
}

/* Entities that would be new. */
static uint32_t new_entities(const struct mill_controller *controller,
                             const struct mill_quota_change *changes, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += changes[i].value > 0 &&
               !mill_quota_find(&controller->quotas, changes[i].user, changes[i].client);
    }
    return sum;
}

int16_t mill_controller_set_quotas(struct mill_controller *controller,
                                   const struct mill_quota_change *changes, uint32_t count,
                                   struct mill_pool *pool)
{
    struct mill_meta_quota *rows = mill_pool_take(pool, (uint64_t)count * sizeof(rows[0]));
    /* Before the commit: what the store has is in memory, too. */
    int rc = mill_quota_reserve(&controller->quotas, new_entities(controller, changes, count));
#ifdef MILL_MUTANT_CONTROL_QUOTA_UNRESERVED
    rc = rc == -ENOMEM ? 0 : rc;
#endif
    if (rc == -ENOSPC) {
        return MILL_KERR_POLICY_VIOLATION;
    }
    for (uint32_t i = 0; rows && i < count; i++) {
        rows[i] = (struct mill_meta_quota){
            .user = name_text(changes[i].user, pool),
            .client = name_text(changes[i].client, pool),
            .key = mill_quota_keys[changes[i].kind],
            .value = changes[i].value,
        };
        rows = rows[i].user && rows[i].client ? rows : NULL;
    }
    if (!rows || rc < 0) {
        return MILL_KERR_UNKNOWN_SERVER_ERROR;
    }
    rc = controller->meta.calls->set_quotas(controller->meta.store, rows, count,
                                            &controller->report);
    if (rc < 0) {
        return mill_controller_store_failure(controller, rc);
    }
    for (uint32_t i = 0; i < count; i++) {
        rc = mill_quota_put(&controller->quotas, changes[i].user, changes[i].client,
                            changes[i].kind, changes[i].value);
        MILL_ASSERT_EQ(rc, 0);
    }
    (void)mill_controller_publish_quotas(controller); /* else mill_controller_sweep tries again */
    return MILL_KERR_NONE;
}
