/* SPDX-License-Identifier: Apache-2.0 */
/* millrace group: consumer groups through the Kafka protocol, of any broker: list, describe with
 * lag, reset of committed offsets, deletion. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/client.h"
#include "cli/outcome.h"
#include "cli/table.h"
#include "cli/wire.h"

enum {
    PAUSE_MS = 200, /* before a coordinator that begins is asked again */
    STARTING_TRIES = CLIENT_TIMEOUT_MS / PAUSE_MS,
};

static const char *const offset_columns[] = {"topic", "partition", "committed", "end",
                                             "lag",   "member",    "host",      NULL};

static int fail_error(const char *name, const rd_kafka_error_t *error)
{
    return cli_fail(CLI_FAILED, "%s: %s (%s)", name, rd_kafka_error_string(error),
                    rd_kafka_error_name(error));
}

/* A client that asks for offsets. It has a group, which it does not join: librdkafka 2.0 gives a
 * coordinator's refusal to the group that it is in, and dies without one. */
static rd_kafka_t *open_for(const struct cli_call *call, int *ret_code)
{
    const struct client_setting settings[] = {
        {"group.id", call->operands[0]},
        {"allow.auto.create.topics", "false"},
        {NULL, NULL},
    };
    return client_open(call, RD_KAFKA_CONSUMER, settings, ret_code);
}

/* --- list ----------------------------------------------------------------------------------------
 */

static json_t *listings_json(const rd_kafka_ListConsumerGroups_result_t *result, int *ret_code)
{
    size_t count;
    const rd_kafka_error_t **errors = rd_kafka_ListConsumerGroups_result_errors(result, &count);
    for (size_t i = 0; i < count; i++) {
        *ret_code = fail_error("groups", errors[i]); /* of one broker; the others' are shown */
    }
    const rd_kafka_ConsumerGroupListing_t **groups =
        rd_kafka_ListConsumerGroups_result_valid(result, &count);
    json_t *rows = json_array();
    for (size_t i = 0; i < count; i++) {
        rd_kafka_consumer_group_state_t state = rd_kafka_ConsumerGroupListing_state(groups[i]);
        json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:b}", "name", rd_kafka_ConsumerGroupListing_group_id(groups[i]),
                      "state", rd_kafka_consumer_group_state_name(state), "simple",
                      rd_kafka_ConsumerGroupListing_is_simple_consumer_group(groups[i])));
    }
    return rows;
}

/* What librdkafka cannot tell of the groups: their kinds, and states that it does not know. */
static void add_kinds(rd_kafka_t *client, json_t *rows)
{
    json_t *known = wire_groups(client);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        const json_t *group =
            json_object_get(known, json_string_value(json_object_get(row, "name")));
        json_t *state = json_object_get(group, "state");
        json_t *type = json_object_get(group, "type");
        if (json_is_string(state)) {
            json_object_set(row, "state", state);
        }
        json_object_set_new(row, "type", type ? json_incref(type) : json_null());
    }
    json_decref(known);
}

int cli_group_list(const struct cli_call *call)
{
    static const char *const columns[] = {"name", "state", "type", NULL};
    bool json;
    int code;
    if (cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return code;
    }
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_ListConsumerGroups(client, NULL, queue);
    rd_kafka_event_t *event = client_await(queue);
    code = event ? CLI_OK : CLI_FAILED;
    if (event) {
        json_t *rows = listings_json(rd_kafka_event_ListConsumerGroups_result(event), &code);
        if (wire_may(call)) {
            add_kinds(client, rows);
        }
        if (json) {
            table_json(rows);
        } else {
            table_print(rows, columns);
        }
        json_decref(rows);
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
    return code;
}

/* --- offsets -------------------------------------------------------------------------------------
 */

static bool is_starting(rd_kafka_resp_err_t error)
{
    return error == RD_KAFKA_RESP_ERR_NOT_COORDINATOR ||
           error == RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE ||
           error == RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS;
}

/* Asks again while the group's coordinator begins, as it does when the first group is asked for.
 * ret: NULL after cli_fail. */
static rd_kafka_event_t *ask_committed(rd_kafka_t *client,
                                       rd_kafka_ListConsumerGroupOffsets_t **ask,
                                       rd_kafka_queue_t *queue)
{
    static const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    for (int i = 0;; i++) {
        rd_kafka_ListConsumerGroupOffsets(client, ask, 1, NULL, queue);
        rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 2 * CLIENT_TIMEOUT_MS);
        if (!event || i == STARTING_TRIES || !is_starting(rd_kafka_event_error(event))) {
            return client_checked(event);
        }
        rd_kafka_event_destroy(event);
        nanosleep(&pause, NULL);
    }
}

/* Committed offsets of a group, all of them. ret: NULL after cli_fail; the caller frees. */
static rd_kafka_topic_partition_list_t *committed_of(rd_kafka_t *client, const char *group)
{
    rd_kafka_ListConsumerGroupOffsets_t *ask = rd_kafka_ListConsumerGroupOffsets_new(group, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_topic_partition_list_t *list = NULL;
    rd_kafka_event_t *event = ask_committed(client, &ask, queue);
    if (event) {
        size_t count;
        const rd_kafka_group_result_t **results = rd_kafka_ListConsumerGroupOffsets_result_groups(
            rd_kafka_event_ListConsumerGroupOffsets_result(event), &count);
        const rd_kafka_error_t *error = count == 1 ? rd_kafka_group_result_error(results[0]) : NULL;
        if (error) {
            fail_error(group, error);
        } else if (count == 1) {
            list = rd_kafka_topic_partition_list_copy(rd_kafka_group_result_partitions(results[0]));
            rd_kafka_topic_partition_list_sort(list, NULL, NULL);
        }
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_ListConsumerGroupOffsets_destroy(ask);
    return list;
}

/* --- describe ------------------------------------------------------------------------------------
 */

static json_t *member_json(const rd_kafka_MemberDescription_t *member)
{
    json_t *partitions = json_array();
    const rd_kafka_MemberAssignment_t *assignment = rd_kafka_MemberDescription_assignment(member);
    const rd_kafka_topic_partition_list_t *list =
        assignment ? rd_kafka_MemberAssignment_partitions(assignment) : NULL;
    for (int i = 0; list && i < list->cnt; i++) {
        json_array_append_new(partitions, json_pack("{s:s, s:i}", "topic", list->elems[i].topic,
                                                    "partition", list->elems[i].partition));
    }
    return json_pack("{s:s, s:s?, s:s, s:s, s:o}", "member",
                     rd_kafka_MemberDescription_consumer_id(member), "instance",
                     rd_kafka_MemberDescription_group_instance_id(member), "client",
                     rd_kafka_MemberDescription_client_id(member), "host",
                     rd_kafka_MemberDescription_host(member), "partitions", partitions);
}

/* The member that reads a partition, NULL none. */
static const json_t *reader_of(const json_t *members, const char *topic, int32_t partition)
{
    size_t i;
    size_t k;
    const json_t *member;
    const json_t *owned;
    json_array_foreach(members, i, member)
    {
        json_array_foreach(json_object_get(member, "partitions"), k, owned)
        {
            if (strcmp(json_string_value(json_object_get(owned, "topic")), topic) == 0 &&
                json_integer_value(json_object_get(owned, "partition")) == partition) {
                return member;
            }
        }
    }
    return NULL;
}

static json_t *offset_json(rd_kafka_t *client, const rd_kafka_topic_partition_t *partition,
                           const json_t *members)
{
    int64_t low = 0;
    int64_t high = 0;
    bool known = partition->offset >= 0;
    rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(
        client, partition->topic, partition->partition, &low, &high, CLIENT_TIMEOUT_MS);
    const json_t *reader = reader_of(members, partition->topic, partition->partition);
    const char *member = reader ? json_string_value(json_object_get(reader, "member")) : NULL;
    const char *host = reader ? json_string_value(json_object_get(reader, "host")) : NULL;
    int64_t lag = high > partition->offset ? high - partition->offset : 0;
    return json_pack(
        "{s:s, s:i, s:o, s:o, s:o, s:s?, s:s?}", "topic", partition->topic, "partition",
        partition->partition, "committed", known ? json_integer(partition->offset) : json_null(),
        "end", error ? json_null() : json_integer(high), "lag",
        error || !known ? json_null() : json_integer(lag), "member", member, "host", host);
}

/* Adds what members read without having committed anything. */
static void add_uncommitted(rd_kafka_topic_partition_list_t *list, const json_t *members)
{
    size_t i;
    size_t k;
    const json_t *member;
    const json_t *owned;
    json_array_foreach(members, i, member)
    {
        json_array_foreach(json_object_get(member, "partitions"), k, owned)
        {
            const char *topic = json_string_value(json_object_get(owned, "topic"));
            int32_t partition = (int32_t)json_integer_value(json_object_get(owned, "partition"));
            if (!rd_kafka_topic_partition_list_find(list, topic, partition)) {
                rd_kafka_topic_partition_list_add(list, topic, partition);
            }
        }
    }
}

/* Adds to a group what it has committed and where its members stand. ret: the group; NULL after
 * cli_fail, and it is freed. */
static json_t *add_offsets(rd_kafka_t *client, json_t *group)
{
    const json_t *members = json_object_get(group, "members");
    rd_kafka_topic_partition_list_t *list =
        committed_of(client, json_string_value(json_object_get(group, "name")));
    if (!list) {
        json_decref(group);
        return NULL;
    }
    add_uncommitted(list, members);
    json_t *offsets = json_array();
    for (int i = 0; i < list->cnt; i++) {
        json_array_append_new(offsets, offset_json(client, &list->elems[i], members));
    }
    rd_kafka_topic_partition_list_destroy(list);
    json_object_set_new(group, "offsets", offsets);
    return group;
}

static json_t *group_json(const rd_kafka_ConsumerGroupDescription_t *group)
{
    json_t *members = json_array();
    size_t count = rd_kafka_ConsumerGroupDescription_member_count(group);
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(members,
                              member_json(rd_kafka_ConsumerGroupDescription_member(group, i)));
    }
    const char *assignor = rd_kafka_ConsumerGroupDescription_partition_assignor(group);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o}", "name", rd_kafka_ConsumerGroupDescription_group_id(group),
        "state", rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupDescription_state(group)),
        "type", "classic", "assignor", assignor ? assignor : "", "members", members);
}

static void group_print(const json_t *group)
{
    static const char *const member_columns[] = {"member", "instance", "client", "host", NULL};
    printf("group %s: %s\n", json_string_value(json_object_get(group, "name")),
           json_string_value(json_object_get(group, "state")));
    table_print(json_object_get(group, "offsets"), offset_columns);
    if (json_array_size(json_object_get(group, "members")) > 0) {
        table_print(json_object_get(group, "members"), member_columns);
    }
}

/* A group that nobody knows is Dead, without a member or an offset. */
static bool is_missing(const json_t *group)
{
    return strcmp(json_string_value(json_object_get(group, "state")), "Dead") == 0;
}

/* Asks for the groups. ret: NULL after cli_fail. */
static rd_kafka_event_t *describe(rd_kafka_t *client, const char *const *names, uint32_t count)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DescribeConsumerGroups(client, (const char **)(uintptr_t)names, count, NULL, queue);
    rd_kafka_event_t *event = client_await(queue);
    rd_kafka_queue_destroy(queue);
    return event;
}

int cli_group_describe(const struct cli_call *call)
{
    bool json;
    int code;
    if (cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = open_for(call, &code);
    if (!client) {
        return code;
    }
    rd_kafka_event_t *event = describe(client, call->operands, call->operands_count);
    json_t *all = json_array();
    size_t count = 0;
    const rd_kafka_ConsumerGroupDescription_t **groups =
        event ? rd_kafka_DescribeConsumerGroups_result_groups(
                    rd_kafka_event_DescribeConsumerGroups_result(event), &count)
              : NULL;
    code = event ? CLI_OK : CLI_FAILED;
    for (size_t i = 0; i < count; i++) {
        const char *name = rd_kafka_ConsumerGroupDescription_group_id(groups[i]);
        const rd_kafka_error_t *error = rd_kafka_ConsumerGroupDescription_error(groups[i]);
        json_t *group = error ? NULL : group_json(groups[i]);
        /* One of the consumer protocol is no group to DescribeGroups. */
        json_t *other =
            (error || is_missing(group)) && wire_may(call) ? wire_group(client, name) : NULL;
        if (other) {
            json_decref(group);
            group = other;
        }
        if (!group) {
            code = fail_error(name, error);
        } else if (is_missing(group)) {
            code = cli_fail(CLI_FAILED, "%s: there is no such group", name);
            json_decref(group);
        } else if ((group = add_offsets(client, group)) == NULL) {
            code = CLI_FAILED;
        } else {
            json_array_append_new(all, group);
        }
    }
    if (json) {
        table_json(all);
    } else {
        size_t i;
        const json_t *group;
        json_array_foreach(all, i, group)
        {
            group_print(group);
        }
    }
    json_decref(all);
    if (event) {
        rd_kafka_event_destroy(event);
    }
    rd_kafka_destroy(client);
    return code;
}

/* --- reset ---------------------------------------------------------------------------------------
 */

enum reset_to {
    RESET_BEGINNING,
    RESET_END,
    RESET_OFFSET,
    RESET_TIME,
    RESET_SHIFT,
};

struct reset {
    enum reset_to to;
    int64_t number; /* offset, time in milliseconds, or shift */
};

/* ret: exit code. */
static int reset_parse(const char *text, struct reset *ret)
{
    char *end = NULL;
    if (!text) {
        return cli_fail(CLI_USAGE, "option --to is missing: beginning, end, an offset, +N, -N, or "
                                   "@MS since 1970");
    }
    if (strcmp(text, "beginning") == 0) {
        ret->to = RESET_BEGINNING;
        return CLI_OK;
    }
    if (strcmp(text, "end") == 0) {
        ret->to = RESET_END;
        return CLI_OK;
    }
    ret->to = text[0] == '@'                     ? RESET_TIME
              : text[0] == '+' || text[0] == '-' ? RESET_SHIFT
                                                 : RESET_OFFSET;
    const char *digits = text[0] == '@' ? text + 1 : text;
    errno = 0;
    ret->number = strtoll(digits, &end, 10);
    /* A time below 0 has a meaning of its own in the protocol. */
    if (end == digits || *end != '\0' || errno || (ret->to == RESET_TIME && ret->number < 0)) {
        return cli_fail(CLI_USAGE, "option --to cannot be \"%s\"", text);
    }
    return CLI_OK;
}

/* The offset at a time; the end when no record is as young. ret: negative after cli_fail. */
static int64_t offset_at(rd_kafka_t *client, const rd_kafka_topic_partition_t *partition,
                         int64_t time_ms, int64_t high)
{
    rd_kafka_topic_partition_list_t *one = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(one, partition->topic, partition->partition)->offset =
        time_ms;
    rd_kafka_resp_err_t error = rd_kafka_offsets_for_times(client, one, CLIENT_TIMEOUT_MS);
    error = error ? error : one->elems[0].err;
    int64_t offset = one->elems[0].offset;
    rd_kafka_topic_partition_list_destroy(one);
    if (error) {
        cli_fail(CLI_FAILED, "%s: %s", partition->topic, rd_kafka_err2str(error));
        return -1;
    }
    return offset >= 0 ? offset : high;
}

/* Replaces the committed offset by the wanted one, kept inside of the log. ret: exit code. */
static int reset_partition(rd_kafka_t *client, const struct reset *reset,
                           rd_kafka_topic_partition_t *partition, json_t *rows)
{
    int64_t low = 0;
    int64_t high = 0;
    int64_t before = partition->offset;
    rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(
        client, partition->topic, partition->partition, &low, &high, CLIENT_TIMEOUT_MS);
    if (error) {
        return cli_fail(CLI_FAILED, "%s partition %d: %s", partition->topic, partition->partition,
                        rd_kafka_err2str(error));
    }
    int64_t wanted = low;
    if (reset->to == RESET_END) {
        wanted = high;
    } else if (reset->to == RESET_OFFSET) {
        wanted = reset->number;
    } else if (reset->to == RESET_SHIFT) {
        int64_t from = before >= 0 ? before : low;
        wanted = reset->number > INT64_MAX - from ? INT64_MAX : from + reset->number;
    } else if (reset->to == RESET_TIME) {
        wanted = offset_at(client, partition, reset->number, high);
        if (wanted < 0) {
            return CLI_FAILED;
        }
    }
    partition->offset = MILL_MIN(MILL_MAX(wanted, low), high);
    json_array_append_new(rows, json_pack("{s:s, s:i, s:o, s:I}", "topic", partition->topic,
                                          "partition", partition->partition, "from",
                                          before >= 0 ? json_integer(before) : json_null(), "to",
                                          (json_int_t)partition->offset));
    return CLI_OK;
}

/* Adds every partition of a topic. ret: exit code. */
static int add_topic(rd_kafka_t *client, const char *topic, rd_kafka_topic_partition_list_t *list)
{
    const struct rd_kafka_metadata *metadata = client_metadata(client, topic);
    if (!metadata) {
        return CLI_FAILED;
    }
    int code = CLI_OK;
    if (metadata->topic_cnt != 1 || metadata->topics[0].err) {
        code = cli_fail(CLI_FAILED, "%s: there is no such topic", topic);
    }
    for (int i = 0; code == CLI_OK && i < metadata->topics[0].partition_cnt; i++) {
        int32_t partition = metadata->topics[0].partitions[i].id;
        if (!rd_kafka_topic_partition_list_find(list, topic, partition)) {
            rd_kafka_topic_partition_list_add(list, topic, partition);
        }
    }
    rd_kafka_metadata_destroy(metadata);
    return code;
}

/* The partitions that a call means: what the group committed, or those of -t and -p. ret: NULL
 * after cli_fail. */
static rd_kafka_topic_partition_list_t *reset_list(const struct cli_call *call, rd_kafka_t *client,
                                                   const char *group, int64_t partition)
{
    const char *topic = cli_value(call, "-t", NULL);
    rd_kafka_topic_partition_list_t *all = committed_of(client, group);
    if (all && topic && add_topic(client, topic, all) != CLI_OK) {
        rd_kafka_topic_partition_list_destroy(all);
        all = NULL;
    }
    if (!all) {
        return NULL;
    }
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(all->cnt);
    for (int i = 0; i < all->cnt; i++) {
        const rd_kafka_topic_partition_t *one = &all->elems[i];
        if ((!topic || strcmp(topic, one->topic) == 0) &&
            (partition < 0 || partition == one->partition)) {
            rd_kafka_topic_partition_list_add(list, one->topic, one->partition)->offset =
                one->offset;
        }
    }
    rd_kafka_topic_partition_list_destroy(all);
    if (list->cnt == 0) {
        cli_fail(CLI_FAILED, "%s: no such partition, and none committed; name a topic with -t",
                 group);
        rd_kafka_topic_partition_list_destroy(list);
        return NULL;
    }
    rd_kafka_topic_partition_list_sort(list, NULL, NULL);
    return list;
}

static int commit_reset(rd_kafka_t *client, const char *group,
                        const rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_AlterConsumerGroupOffsets_t *ask = rd_kafka_AlterConsumerGroupOffsets_new(group, list);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    int code = CLI_FAILED;
    rd_kafka_AlterConsumerGroupOffsets(client, &ask, 1, NULL, queue);
    rd_kafka_event_t *event = client_await(queue);
    if (event) {
        size_t count;
        const rd_kafka_group_result_t **results = rd_kafka_AlterConsumerGroupOffsets_result_groups(
            rd_kafka_event_AlterConsumerGroupOffsets_result(event), &count);
        const rd_kafka_error_t *error = count == 1 ? rd_kafka_group_result_error(results[0]) : NULL;
        const rd_kafka_topic_partition_list_t *done =
            count == 1 ? rd_kafka_group_result_partitions(results[0]) : NULL;
        code = error ? fail_error(group, error) : CLI_OK;
        for (int i = 0; done && i < done->cnt; i++) {
            if (done->elems[i].err == RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID) {
                code = cli_fail(CLI_FAILED, "%s: the group has members; stop them first", group);
                break;
            }
            if (done->elems[i].err) {
                code = cli_fail(CLI_FAILED, "%s partition %d: %s", done->elems[i].topic,
                                done->elems[i].partition, rd_kafka_err2str(done->elems[i].err));
            }
        }
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_AlterConsumerGroupOffsets_destroy(ask);
    return code;
}

int cli_group_reset(const struct cli_call *call)
{
    static const char *const columns[] = {"topic", "partition", "from", "to", NULL};
    const char *group = call->operands[0];
    bool dry = cli_value(call, "--dry-run", NULL) != NULL;
    struct reset reset = {0};
    int64_t partition;
    bool json;
    int code = reset_parse(cli_value(call, "--to", NULL), &reset);
    if (code != CLI_OK || cli_wants_json(call, &json) < 0 ||
        cli_number(call, "-p", -1, 0, INT32_MAX, &partition) < 0) {
        return CLI_USAGE;
    }
    if (call->operands_count > 1) {
        return cli_fail(CLI_USAGE, "group reset: one group at a time, not also \"%s\"",
                        call->operands[1]);
    }
    rd_kafka_t *client = open_for(call, &code);
    if (!client) {
        return code;
    }
    json_t *rows = json_array();
    rd_kafka_topic_partition_list_t *list = reset_list(call, client, group, partition);
    code = list ? CLI_OK : CLI_FAILED;
    for (int i = 0; list && i < list->cnt && code == CLI_OK; i++) {
        code = reset_partition(client, &reset, &list->elems[i], rows);
    }
    if (code == CLI_OK && !dry) {
        code = commit_reset(client, group, list);
    }
    if (code == CLI_OK && json) {
        table_json(rows);
    } else if (code == CLI_OK) {
        table_print(rows, columns);
        printf(dry ? "nothing was changed (--dry-run)\n" : "");
    }
    json_decref(rows);
    if (list) {
        rd_kafka_topic_partition_list_destroy(list);
    }
    rd_kafka_destroy(client);
    return code;
}

/* --- delete --------------------------------------------------------------------------------------
 */

int cli_group_delete(const struct cli_call *call)
{
    rd_kafka_DeleteGroup_t *groups[CLI_OPERANDS_MAX];
    struct outcomes outcomes;
    int code;
    if (outcomes_begin(call, "deleted", &outcomes) < 0) {
        return CLI_USAGE;
    }
    rd_kafka_t *client = client_open(call, RD_KAFKA_PRODUCER, NULL, &code);
    if (!client) {
        return outcomes_end(&outcomes, code);
    }
    for (uint32_t i = 0; i < call->operands_count; i++) {
        groups[i] = rd_kafka_DeleteGroup_new(call->operands[i]);
    }
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DeleteGroups(client, groups, call->operands_count, NULL, queue);
    rd_kafka_event_t *event = client_await(queue);
    code = event ? CLI_OK : CLI_FAILED;
    if (event) {
        size_t count;
        const rd_kafka_group_result_t **results =
            rd_kafka_DeleteGroups_result_groups(rd_kafka_event_DeleteGroups_result(event), &count);
        for (size_t i = 0; i < count; i++) {
            const rd_kafka_error_t *error = rd_kafka_group_result_error(results[i]);
            outcomes_add(&outcomes, rd_kafka_group_result_name(results[i]),
                         rd_kafka_error_code(error), 0, rd_kafka_error_string(error));
        }
        rd_kafka_event_destroy(event);
    }
    rd_kafka_DeleteGroup_destroy_array(groups, call->operands_count);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
    return outcomes_end(&outcomes, code);
}
