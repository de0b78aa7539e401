/* SPDX-License-Identifier: Apache-2.0 */
/* Features of the cluster and their levels: what ApiVersions tells of them, and UpdateFeatures. The
 * levels are fixed, each at the highest that is served: an update to the level that holds is
 * done already, any other is refused. On the core; bounded by the request. ref: KIP-584, KIP-1022
 */
#include "dataplane/core/core_types.h"

#include <string.h>

#include "protocol/errors.h"

enum {
    UPGRADE = 1,
    SAFE_DOWNGRADE = 2,
    UNSAFE_DOWNGRADE = 3,
    TYPES_VERSION = 1,   /* says the type of an upgrade */
    RESULTS_VERSION = 1, /* the last one whose answer has a result for each feature */
    UPDATES_MAX = 1000,  /* of one request; more closes the connection */
};

static const struct feature {
    const char *name;
    int16_t level_min;
    int16_t level_max; /* finalized */
} features[] = {
    {"group.version", 0, 1},       /* 1: the consumer protocol (KIP-848) */
    {"transaction.version", 0, 2}, /* 1: flexible records; 2: an epoch for each (KIP-890) */
};

/* --- ApiVersions -------------------------------------------------------------------------------
 */

static void get_supported(const void *context, int32_t index, void *ret_element)
{
    struct mill_api_versions_response_supported_features *element = ret_element;
    MILL_UNUSED(context);
    element->name = mill_wstr_of(features[index].name);
    element->min_version = features[index].level_min;
    element->max_version = features[index].level_max;
}

static void get_finalized(const void *context, int32_t index, void *ret_element)
{
    struct mill_api_versions_response_finalized_features *element = ret_element;
    MILL_UNUSED(context);
    element->name = mill_wstr_of(features[index].name);
    element->min_version_level = features[index].level_max;
    element->max_version_level = features[index].level_max;
}

void mill_features_tell(bool level_zero, struct mill_api_versions_response *answer)
{
    int32_t count = (int32_t)MILL_COUNT_OF(features);
    answer->supported_features =
        (struct mill_warray){.count = level_zero ? count : 0, .get = get_supported};
    answer->finalized_features = (struct mill_warray){.count = count, .get = get_finalized};
    answer->finalized_features_epoch = 0;
}

/* --- UpdateFeatures ----------------------------------------------------------------------------
 */

static const struct feature *feature_find(const struct mill_wstr *name)
{
    for (uint32_t i = 0; i < MILL_COUNT_OF(features); i++) {
        if (mill_wstr_equal(name, features[i].name, (uint32_t)strlen(features[i].name))) {
            return &features[i];
        }
    }
    return NULL;
}

/* What is wrong with an update, in the order in which Kafka looks; NULL: the level holds already.
 */
static const char *update_fault(const struct mill_update_features_request_feature_updates *update,
                                int16_t version)
{
    const struct feature *feature = feature_find(&update->feature);
    int8_t lowers = update->allow_downgrade ? SAFE_DOWNGRADE : UPGRADE;
    int8_t type = version >= TYPES_VERSION ? update->upgrade_type : lowers;
    if (type < UPGRADE || type > UNSAFE_DOWNGRADE) {
        return "the type of an upgrade is 1 (upgrade), 2 (safe downgrade) or 3 (unsafe downgrade)";
    }
    if (update->max_version_level < 0) {
        return "the level of a feature is 0 or more";
    }
    if (!feature) {
        return "a feature is not known here";
    }
    if (update->max_version_level > feature->level_max) {
        return "a level is higher than what is supported here";
    }
#ifdef MILL_MUTANT_CORE_FEATURE_LOWERED
    return NULL;
#endif
    if (update->max_version_level < feature->level_max) {
        return type == UPGRADE
                   ? "a lower level needs the type of a downgrade, safe or unsafe"
                   : "levels of features are fixed here: each stays at the highest supported one";
    }
    return NULL;
}

/* The request's updates, walked again beside the answer's results. */
struct update_fill {
    struct mill_warray all;
    struct mill_warray updates; /* what is left of them */
    int16_t version;
    const char *fault; /* of the first update that cannot be made; NULL none */
};

static void get_result(const void *context, int32_t index, void *ret_element)
{
    struct update_fill *fill = (void *)(uintptr_t)context;
    struct mill_update_features_request_feature_updates update;
    struct mill_update_features_response_results *element = ret_element;
    MILL_UNUSED(index);
    bool more =
        mill_update_features_request_feature_updates_next(&fill->updates, fill->version, &update);
    MILL_ASSERT(more);
    element->feature = update.feature;
}

static int update_fill(struct mill_writer *to, const struct mill_request *request, void *context)
{
    struct update_fill *fill = context;
    struct mill_update_features_response answer;
    MILL_UNUSED(request);
    mill_update_features_response_defaults(&answer);
    fill->updates = fill->all; /* again, when there was no room before */
    answer.error_code = fill->fault ? MILL_KERR_INVALID_UPDATE_VERSION : MILL_KERR_NONE;
    answer.error_message = mill_wstr_of(fill->fault);
    if (!fill->fault && fill->version <= RESULTS_VERSION) {
        answer.results =
            (struct mill_warray){.count = fill->all.count, .get = get_result, .context = fill};
    }
    return mill_update_features_response_encode(to, fill->version, &answer);
}

void mill_update_features_begin(struct mill_core *core, struct mill_request *request)
{
    struct update_fill fill = {.version = request->header.api_version};
    struct mill_update_features_request message;
    struct mill_update_features_request_feature_updates update;
    struct mill_cursor at = request->body;
    if (mill_update_features_request_decode(&at, fill.version, &message) < 0 ||
        message.feature_updates.count > UPDATES_MAX) {
        core->words.bad_frames++;
        mill_conn_abort(core, request->conn);
        return;
    }
    fill.all = message.feature_updates;
    struct mill_warray rest = fill.all;
    while (!fill.fault &&
           mill_update_features_request_feature_updates_next(&rest, fill.version, &update)) {
        fill.fault = update_fault(&update, fill.version);
    }
    mill_answer_send(core, request, update_fill, &fill);
}
