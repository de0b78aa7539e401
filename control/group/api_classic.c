/* SPDX-License-Identifier: Apache-2.0 */
/* JoinGroup, SyncGroup and LeaveGroup to a group of the consumer protocol: what consumer_classic.c
 * decides, written and answered. A join is answered when the log has what it changes. */
#include "control/group/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/group/member.h"
#include "protocol/errors.h"

enum {
    PLAN_BYTES_MAX = 64 << 20,
};

/* --- join --------------------------------------------------------------------------------------
 */

static int encode_join(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_join_group_response_encode(to, version, message);
}

void mill_classic_joined(struct mill_groups *groups, struct mill_admin_request *request,
                         struct mill_group *group, const struct mill_consumer_plan *plan)
{
    struct mill_join_group_response out;
    mill_join_group_response_defaults(&out);
    out.error_code = plan->error;
    out.generation_id = -1;
    out.member_id = mill_wstr_of(plan->member_id ? plan->member_id : "");
    out.leader = mill_wstr_of(""); /* nobody of them assigns */
    out.protocol_name = mill_wstr_of(request->header.api_version < 7 ? "" : NULL);
    if (plan->error == MILL_KERR_NONE) {
        out.generation_id = plan->epoch;
        out.protocol_type = mill_wstr_of(MILL_CONSUMER_TYPE);
        out.protocol_name = mill_wstr_of(plan->protocol);
        if (group && group->consumers) {
            mill_consumer_joined(&groups->consumer, group, plan->member_id);
        }
    }
    mill_admin_answer(request, encode_join, &out);
    mill_groups_done(groups, request);
}

static void join_refuse(struct mill_groups *groups, struct mill_admin_request *request,
                        const char *member_id, int16_t error)
{
    const struct mill_consumer_plan plan = {.error = error, .member_id = member_id};
    mill_classic_joined(groups, request, NULL, &plan);
}

void mill_classic_join(struct mill_groups *groups, struct mill_group *group,
                       struct mill_admin_request *request, struct mill_group_join *join)
{
    struct mill_consumer_plan plan = {.pool = {.limit_bytes = PLAN_BYTES_MAX}};
    struct mill_consumer_beat beat;
    bool fresh = join->member_id[0] == '\0';
    int16_t error = mill_consumer_may_join(&groups->consumer, group, join);
    if (error == MILL_KERR_NONE && fresh) {
        char *id = mill_member_id_make(&groups->env,
                                       join->instance_id ? join->instance_id : join->client_id);
        join->member_id = id ? mill_pool_text(&request->pool, "%s", id) : NULL;
        free(id);
        error = !join->member_id    ? MILL_KERR_COORDINATOR_NOT_AVAILABLE
                : join->id_required ? MILL_KERR_MEMBER_ID_REQUIRED
                                    : MILL_KERR_NONE;
    }
    if (error == MILL_KERR_NONE) {
        int r = mill_consumer_join_beat(&groups->consumer, join, &plan.pool, &beat);
        error = r == 0          ? MILL_KERR_NONE
                : r == -EBADMSG ? MILL_KERR_UNKNOWN_SERVER_ERROR
                                : MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    if (error != MILL_KERR_NONE) {
        join_refuse(groups, request, join->member_id, error);
    } else {
        beat.fresh = fresh;
        mill_consumer_beat(&groups->consumer, group, &beat, &plan);
        mill_consumers_plan_run(groups, group, request, &plan);
    }
    mill_consumer_plan_free(&plan);
}

/* --- sync --------------------------------------------------------------------------------------
 */

static int encode_sync(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_sync_group_response_encode(to, version, message);
}

void mill_classic_sync(struct mill_groups *groups, struct mill_group *group,
                       struct mill_admin_request *request, const struct mill_group_sync *sync)
{
    struct mill_sync_group_response out;
    struct mill_pool pool = {.limit_bytes = PLAN_BYTES_MAX};
    struct mill_group_blob assignment = {0};
    mill_sync_group_response_defaults(&out);
    out.error_code = mill_consumer_sync(&groups->consumer, group, sync, &pool, &assignment);
    if (out.error_code == MILL_KERR_NONE) {
        out.protocol_type = mill_wstr_of(sync->protocol_type);
        out.protocol_name = mill_wstr_of(sync->protocol);
        out.assignment = mill_wstr_of_bytes(assignment.bytes, (int32_t)assignment.size_bytes);
    }
    mill_admin_answer(request, encode_sync, &out);
    mill_groups_done(groups, request);
    mill_pool_clear(&pool);
}

/* --- leave -------------------------------------------------------------------------------------
 */

void mill_classic_left(struct mill_groups *groups, struct mill_admin_request *request,
                       const struct mill_consumer_plan *plan)
{
    mill_leave_answer(groups, request, plan->error, plan->leaving, (int32_t)plan->leaving_count);
}

/* A copy in the plan, which outlives the request's frame. ret: false no memory. */
static bool leaving_copy(struct mill_consumer_plan *plan,
                         const struct mill_consumer_leaving *leaving, uint32_t count)
{
    plan->leaving = mill_pool_take(&plan->pool, count * sizeof(plan->leaving[0]));
    plan->leaving_count = plan->leaving ? count : 0;
    for (uint32_t i = 0; i < plan->leaving_count; i++) {
        struct mill_consumer_leaving *to = &plan->leaving[i];
        to->member_id = mill_pool_text(&plan->pool, "%s", leaving[i].member_id);
        to->instance_id = leaving[i].instance_id
                              ? mill_pool_text(&plan->pool, "%s", leaving[i].instance_id)
                              : NULL;
        if (!to->member_id || (leaving[i].instance_id && !to->instance_id)) {
            return false;
        }
    }
    return plan->leaving != NULL;
}

void mill_classic_leave(struct mill_groups *groups, struct mill_group *group,
                        struct mill_admin_request *request,
                        const struct mill_consumer_leaving *leaving, uint32_t count)
{
    struct mill_consumer_plan plan = {.pool = {.limit_bytes = PLAN_BYTES_MAX}};
    if (leaving_copy(&plan, leaving, count)) {
        mill_consumer_leave(&groups->consumer, group, &plan);
    } else {
        plan.error = MILL_KERR_COORDINATOR_NOT_AVAILABLE;
    }
    mill_consumers_plan_run(groups, group, request, &plan);
    mill_consumer_plan_free(&plan);
}
