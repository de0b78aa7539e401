/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a classic group; see member.h. */
#include "control/group/member.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* --- memory -------------------------------------------------------------------------------------
 */

char *mill_text_copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

int mill_group_set_text(char **to, const char *value)
{
    char *copy = mill_text_copy(value);
    if (value && !copy) {
        return -ENOMEM;
    }
    free(*to);
    *to = copy;
    return 0;
}

bool mill_blob_copy(struct mill_group_blob *to, const struct mill_group_blob *from)
{
    *to = (struct mill_group_blob){0};
    if (from->size_bytes > 0) {
        to->bytes = malloc(from->size_bytes);
        if (!to->bytes) {
            return false;
        }
        memcpy(to->bytes, from->bytes, from->size_bytes);
        to->size_bytes = from->size_bytes;
    }
    return true;
}

uint64_t mill_protocols_bytes(const struct mill_group_protocol *protocols, uint32_t count)
{
    uint64_t sum = count * sizeof(*protocols);
    for (uint32_t i = 0; i < count; i++) {
        sum += strlen(protocols[i].name) + 1 + protocols[i].metadata.size_bytes;
    }
    return sum;
}

void mill_protocols_free(struct mill_group_protocol *protocols, uint32_t count)
{
    for (uint32_t i = 0; protocols && i < count; i++) {
        free(protocols[i].name);
        free(protocols[i].metadata.bytes);
    }
    free(protocols);
}

struct mill_group_protocol *mill_protocols_copy(const struct mill_group_protocol *from,
                                                uint32_t count)
{
    struct mill_group_protocol *to = calloc(MILL_MAX(count, 1u), sizeof(*to));
    for (uint32_t i = 0; to && i < count; i++) {
        to[i].name = mill_text_copy(from[i].name);
        if (!to[i].name || !mill_blob_copy(&to[i].metadata, &from[i].metadata)) {
            mill_protocols_free(to, count);
            return NULL;
        }
    }
    return to;
}

static uint64_t member_bytes(const struct mill_group_member *member)
{
    return sizeof(*member) + strlen(member->id) + strlen(member->client_id) +
           strlen(member->client_host) + (member->instance_id ? strlen(member->instance_id) : 0) +
           mill_protocols_bytes(member->protocols, member->protocols_count) +
           member->assignment.size_bytes;
}

void mill_member_free(struct mill_group_env *env, struct mill_group_member *member)
{
    env->bytes -= member_bytes(member);
    env->members_count--;
    mill_protocols_free(member->protocols, member->protocols_count);
    free(member->assignment.bytes);
    free(member->id);
    free(member->instance_id);
    free(member->client_id);
    free(member->client_host);
    free(member);
}

void mill_member_unassign(struct mill_group_env *env, struct mill_group_member *member)
{
    env->bytes -= member->assignment.size_bytes;
    free(member->assignment.bytes);
    member->assignment = (struct mill_group_blob){0};
}

/* --- looking ------------------------------------------------------------------------------------
 */

struct mill_group_member *mill_group_find(const struct mill_group *group, const char *member_id)
{
    for (struct mill_group_member *member = group->members; member; member = member->next) {
        if (strcmp(member->id, member_id) == 0) {
            return member;
        }
    }
    return NULL;
}

struct mill_group_member *mill_group_find_static(const struct mill_group *group,
                                                 const char *instance_id)
{
    for (struct mill_group_member *member = group->members; member && instance_id;
         member = member->next) {
        if (member->instance_id && strcmp(member->instance_id, instance_id) == 0) {
            return member;
        }
    }
    return NULL;
}

/* --- protocols ----------------------------------------------------------------------------------
 */

static const struct mill_group_protocol *protocol_of(const struct mill_group_member *member,
                                                     const char *name)
{
    for (uint32_t i = 0; i < member->protocols_count; i++) {
        if (strcmp(member->protocols[i].name, name) == 0) {
            return &member->protocols[i];
        }
    }
    return NULL;
}

const struct mill_group_blob *mill_group_metadata(const struct mill_group *group,
                                                  const struct mill_group_member *member)
{
    static const struct mill_group_blob nothing;
    const struct mill_group_protocol *protocol =
        group->protocol ? protocol_of(member, group->protocol) : NULL;
    return protocol ? &protocol->metadata : &nothing;
}

/* Which protocols of the first member all members support: bit i for its protocol i. One pass over
 * the members, who narrow it. */
static uint64_t protocols_common(const struct mill_group *group)
{
    const struct mill_group_member *first = group->members;
    if (!first) {
        return 0;
    }
    uint32_t count = MILL_MIN(first->protocols_count, (uint32_t)MILL_GROUP_PROTOCOLS_MAX);
    uint64_t common = (UINT64_C(1) << count) - 1;
    for (const struct mill_group_member *member = first->next; member && common;
         member = member->next) {
        for (uint32_t i = 0; i < count; i++) {
            uint64_t bit = UINT64_C(1) << i;
            if ((common & bit) != 0 && !protocol_of(member, first->protocols[i].name)) {
                common &= ~bit;
            }
        }
    }
    return common;
}

/* Its index among the first member's protocols. ret: MILL_GROUP_PROTOCOLS_MAX: not common. */
static uint32_t common_index(const struct mill_group *group, uint64_t common, const char *name)
{
    const struct mill_group_protocol *protocols = group->members->protocols;
    for (uint32_t i = 0; i < MILL_GROUP_PROTOCOLS_MAX && common >> i != 0; i++) {
        if ((common >> i & 1) != 0 && strcmp(protocols[i].name, name) == 0) {
            return i;
        }
    }
    return MILL_GROUP_PROTOCOLS_MAX;
}

bool mill_group_protocols_fit(const struct mill_group *group, const struct mill_group_join *join)
{
    if (join->protocol_type[0] == '\0' || join->protocols_count == 0 ||
        join->protocols_count > MILL_GROUP_PROTOCOLS_MAX) {
        return false;
    }
    if (group->state == MILL_GROUP_EMPTY || group->members_count == 0) {
        return true;
    }
    if (!group->protocol_type || strcmp(group->protocol_type, join->protocol_type) != 0) {
        return false;
    }
    uint64_t common = protocols_common(group);
    for (uint32_t i = 0; i < join->protocols_count; i++) {
        if (common_index(group, common, join->protocols[i].name) < MILL_GROUP_PROTOCOLS_MAX) {
            return true;
        }
    }
    return false;
}

/* Majority vote: each member votes for its first protocol that all support. What all support is
 * found once, not once per vote: members of many protocols must not hold up the others. */
const char *mill_group_elect_protocol(const struct mill_group *group)
{
    uint32_t votes[MILL_GROUP_PROTOCOLS_MAX] = {0};
    uint32_t best = MILL_GROUP_PROTOCOLS_MAX;
    uint64_t common = protocols_common(group);
    for (const struct mill_group_member *member = group->members; member && common;
         member = member->next) {
        uint32_t index = MILL_GROUP_PROTOCOLS_MAX;
        for (uint32_t i = 0; index == MILL_GROUP_PROTOCOLS_MAX; i++) {
            /* ends: what is common is one of its own */
            index = common_index(group, common, member->protocols[i].name);
        }
        votes[index]++;
    }
    for (uint32_t i = 0; i < MILL_GROUP_PROTOCOLS_MAX; i++) {
        if (votes[i] > 0 && (best == MILL_GROUP_PROTOCOLS_MAX || votes[i] > votes[best])) {
            best = i;
        }
    }
    return best < MILL_GROUP_PROTOCOLS_MAX ? group->members->protocols[best].name : NULL;
}

bool mill_protocols_equal(const struct mill_group_protocol *a, uint32_t a_count,
                          const struct mill_group_protocol *b, uint32_t b_count)
{
    if (a_count != b_count) {
        return false;
    }
    for (uint32_t i = 0; i < a_count; i++) {
        if (strcmp(a[i].name, b[i].name) != 0 ||
            a[i].metadata.size_bytes != b[i].metadata.size_bytes ||
            (a[i].metadata.size_bytes > 0 &&
             memcmp(a[i].metadata.bytes, b[i].metadata.bytes, a[i].metadata.size_bytes) != 0)) {
            return false;
        }
    }
    return true;
}

bool mill_member_same_protocols(const struct mill_group_member *member,
                                const struct mill_group_join *join)
{
    return mill_protocols_equal(member->protocols, member->protocols_count, join->protocols,
                                join->protocols_count);
}

/* --- coming and going ---------------------------------------------------------------------------
 */

void mill_member_unlink(struct mill_group *group, struct mill_group_member *member)
{
    struct mill_group_member **at = &group->members;
    while (*at != member) {
        at = &(*at)->next;
    }
    *at = member->next;
    if (!member->next) {
        group->members_last = at;
    }
    group->members_count--;
    if (group->leader == member) {
        group->leader = group->members;
    }
}

struct mill_group_member *mill_member_add(struct mill_group_env *env, struct mill_group *group,
                                          const char *member_id, const struct mill_group_join *join,
                                          bool loading)
{
    struct mill_group_member *member = calloc(1, sizeof(*member));
    if (!member) {
        return NULL;
    }
    member->id = mill_text_copy(member_id);
    member->instance_id = mill_text_copy(join->instance_id);
    member->client_id = mill_text_copy(join->client_id);
    member->client_host = mill_text_copy(join->client_host);
    member->rebalance_timeout_ms = join->rebalance_timeout_ms;
    member->session_timeout_ms = join->session_timeout_ms;
    member->protocols = mill_protocols_copy(join->protocols, join->protocols_count);
    member->protocols_count = join->protocols_count;
    member->expires_ns = MILL_NEVER;
    bool whole = member->id && member->client_id && member->client_host && member->protocols &&
                 (member->instance_id || !join->instance_id);
#ifdef MILL_MUTANT_GROUP_LOAD_BOUNDED
    loading = false;
#endif
    bool room = whole && (loading || env->bytes + member_bytes(member) <= env->bytes_max);
#ifdef MILL_MUTANT_GROUP_MEMORY
    room = whole;
#endif
    if (!room) {
        env->full++;
        mill_protocols_free(member->protocols, join->protocols_count);
        free(member->id);
        free(member->instance_id);
        free(member->client_id);
        free(member->client_host);
        free(member);
        return NULL;
    }
    env->bytes += member_bytes(member);
    env->members_count++;
    *group->members_last = member;
    group->members_last = &member->next;
    group->members_count++;
    if (!group->leader) {
        group->leader = member;
    }
    return member;
}

bool mill_member_update(struct mill_group_env *env, struct mill_group_member *member,
                        const struct mill_group_join *join)
{
    struct mill_group_protocol *protocols =
        mill_protocols_copy(join->protocols, join->protocols_count);
    uint64_t before = mill_protocols_bytes(member->protocols, member->protocols_count);
    uint64_t after = mill_protocols_bytes(join->protocols, join->protocols_count);
    if (!protocols || (after > before && env->bytes + after - before > env->bytes_max)) {
        env->full++;
        mill_protocols_free(protocols, join->protocols_count);
        return false;
    }
    env->bytes = env->bytes - before + after;
    mill_protocols_free(member->protocols, member->protocols_count);
    member->protocols = protocols;
    member->protocols_count = join->protocols_count;
    member->rebalance_timeout_ms = join->rebalance_timeout_ms;
    member->session_timeout_ms = join->session_timeout_ms;
    return true;
}

char *mill_member_id_make(struct mill_group_env *env, const char *prefix)
{
    uint8_t b[16];
    char *id = NULL;
    env->calls->random(env->context, b, sizeof(b));
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    int size =
        asprintf(&id, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                 prefix, b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11],
                 b[12], b[13], b[14], b[15]);
    return size < 0 ? NULL : id;
}

void mill_group_clear_members(struct mill_group_env *env, struct mill_group *group)
{
    while (group->members) {
        struct mill_group_member *next = group->members->next;
        mill_member_free(env, group->members);
        group->members = next;
    }
    group->members_last = &group->members;
    group->members_count = 0;
    group->joined_count = 0;
    group->leader = NULL;
}

/* --- assignments --------------------------------------------------------------------------------
 */

static int by_id(const void *a, const void *b)
{
    const struct mill_group_member *const *left = a;
    const struct mill_group_member *const *right = b;
    return strcmp((*left)->id, (*right)->id);
}

static int id_against(const void *id, const void *member)
{
    const struct mill_group_member *const *at = member;
    return strcmp(id, (*at)->id);
}

/* The members sorted by id. ret: malloc; NULL no memory. */
static struct mill_group_member **members_sorted(const struct mill_group *group)
{
    struct mill_group_member **sorted =
        calloc(MILL_MAX(group->members_count, 1u), sizeof(struct mill_group_member *));
    uint32_t count = 0;
    for (struct mill_group_member *member = group->members; member && sorted;
         member = member->next) {
        sorted[count++] = member;
    }
    if (sorted) {
        qsort(sorted, count, sizeof(struct mill_group_member *), by_id);
    }
    return sorted;
}

bool mill_group_assign(struct mill_group_env *env, struct mill_group *group,
                       const struct mill_group_sync *sync)
{
    struct mill_group_member **sorted = members_sorted(group);
    bool whole = sorted != NULL;
    for (uint32_t i = 0; whole && i < sync->assignments_count; i++) {
        struct mill_group_member **found =
            bsearch(sync->assignments[i].member_id, sorted, group->members_count,
                    sizeof(struct mill_group_member *), id_against);
        if (!found) {
            continue;
        }
        struct mill_group_member *member = *found;
        mill_member_unassign(env, member);
        uint32_t size = sync->assignments[i].bytes.size_bytes;
        whole = env->bytes + size <= env->bytes_max &&
                mill_blob_copy(&member->assignment, &sync->assignments[i].bytes);
        env->bytes += whole ? size : 0;
    }
    env->full += whole ? 0 : 1;
    free(sorted);
    return whole;
}
