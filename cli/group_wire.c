/* SPDX-License-Identifier: Apache-2.0 */
/* Groups as librdkafka 2.0 cannot ask for them: their kinds (KIP-848), and groups of the consumer
 * protocol with their members; see wire.h. */
#include <stdlib.h>
#include <string.h>

#include "cli/wire.h"
#include "protocol/errors.h"

enum {
    LIST_LEAST = 4, /* states */
    LIST_MOST = 5,  /* kinds */
    FIND_LEAST = 1,
    FIND_MOST = 3, /* one key */
    DESCRIBE_MOST = 1,
    TEXT_BYTES = 1024,
};

static json_t *text_json(const struct mill_wstr *text)
{
    char copy[TEXT_BYTES];
    return text->length < 0 || mill_wstr_copy(text, copy, sizeof(copy)) < 0 ? json_null()
                                                                            : json_string(copy);
}

/* --- kinds ---------------------------------------------------------------------------------------
 */

static int encode_list(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_list_groups_request_encode(to, version, message);
}

static void list_one(struct wire *wire, json_t *groups)
{
    struct mill_list_groups_request in;
    struct mill_list_groups_response out;
    struct mill_list_groups_response_groups group;
    struct mill_cursor body;
    int16_t version = wire_version(wire, MILL_API_KEY_LIST_GROUPS, LIST_LEAST, LIST_MOST);
    mill_list_groups_request_defaults(&in);
    if (version < 0 ||
        wire_ask(wire, MILL_API_KEY_LIST_GROUPS, version, encode_list, &in, &body) < 0 ||
        mill_list_groups_response_decode(&body, version, &out) < 0) {
        return;
    }
    while (mill_list_groups_response_groups_next(&out.groups, version, &group)) {
        char name[TEXT_BYTES];
        if (mill_wstr_copy(&group.group_id, name, sizeof(name)) >= 0) {
            json_object_set_new(
                groups, name,
                json_pack("{s:o, s:o}", "state", text_json(&group.group_state), "type",
                          version >= LIST_MOST ? text_json(&group.group_type) : json_null()));
        }
    }
}

json_t *wire_groups(rd_kafka_t *client)
{
    json_t *groups = json_object();
    const struct rd_kafka_metadata *metadata = client_metadata(client, NULL);
    for (int i = 0; metadata && i < metadata->broker_cnt; i++) {
        struct wire *wire = wire_open(metadata->brokers[i].host, metadata->brokers[i].port);
        if (wire) {
            list_one(wire, groups);
        }
        wire_close(wire);
    }
    if (metadata) {
        rd_kafka_metadata_destroy(metadata);
    }
    return groups;
}

/* --- one group -----------------------------------------------------------------------------------
 */

static int encode_find(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_find_coordinator_request_encode(to, version, message);
}

/* Goes on at the group's coordinator. wire is closed. ret: NULL not known. */
static struct wire *coordinator_of(struct wire *wire, const char *name)
{
    struct mill_find_coordinator_request in;
    struct mill_find_coordinator_response out;
    struct mill_cursor body;
    struct wire *next = NULL;
    char host[TEXT_BYTES];
    int16_t version = wire_version(wire, MILL_API_KEY_FIND_COORDINATOR, FIND_LEAST, FIND_MOST);
    mill_find_coordinator_request_defaults(&in);
    in.key = mill_wstr_of(name);
    if (version >= 0 &&
        wire_ask(wire, MILL_API_KEY_FIND_COORDINATOR, version, encode_find, &in, &body) == 0 &&
        mill_find_coordinator_response_decode(&body, version, &out) == 0 &&
        out.error_code == MILL_KERR_NONE && mill_wstr_copy(&out.host, host, sizeof(host)) > 0) {
        next = wire_open(host, out.port);
    }
    wire_close(wire);
    return next;
}

static json_t *partitions_json(
    const struct mill_consumer_group_describe_response_groups_members_assignment *assignment,
    int16_t version)
{
    struct mill_consumer_group_describe_response_groups_members_assignment_topic_partitions topic;
    struct mill_warray topics = assignment->topic_partitions;
    json_t *rows = json_array();
    while (mill_consumer_group_describe_response_groups_members_assignment_topic_partitions_next(
        &topics, version, &topic)) {
        int32_t partition = 0;
        while (mill_warray_next_i32(&topic.partitions, &partition)) {
            json_array_append_new(rows,
                                  json_pack("{s:o, s:i}", "topic", text_json(&topic.topic_name),
                                            "partition", partition));
        }
    }
    return rows;
}

static json_t *members_json(const struct mill_warray *array, int16_t version)
{
    struct mill_consumer_group_describe_response_groups_members member;
    struct mill_warray members = *array;
    json_t *rows = json_array();
    while (mill_consumer_group_describe_response_groups_members_next(&members, version, &member)) {
        const char *type = version < DESCRIBE_MOST   ? NULL
                           : member.member_type == 0 ? "classic"
                           : member.member_type == 1 ? "consumer"
                                                     : NULL;
        json_array_append_new(rows, json_pack("{s:o, s:o, s:o, s:o, s:i, s:s?, s:o}", "member",
                                              text_json(&member.member_id), "instance",
                                              text_json(&member.instance_id), "client",
                                              text_json(&member.client_id), "host",
                                              text_json(&member.client_host), "epoch",
                                              member.member_epoch, "type", type, "partitions",
                                              partitions_json(&member.assignment, version)));
    }
    return rows;
}

static void get_name(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(index);
    *(struct mill_wstr *)ret_element = mill_wstr_of(context);
}

static int encode_describe(struct mill_writer *to, int16_t version, const void *message)
{
    return mill_consumer_group_describe_request_encode(to, version, message);
}

static json_t *describe_one(struct wire *wire, const char *name)
{
    struct mill_consumer_group_describe_request in;
    struct mill_consumer_group_describe_response out;
    struct mill_consumer_group_describe_response_groups group;
    struct mill_cursor body;
    const int16_t key = MILL_API_KEY_CONSUMER_GROUP_DESCRIBE;
    int16_t version = wire_version(wire, key, 0, DESCRIBE_MOST);
    mill_consumer_group_describe_request_defaults(&in);
    in.group_ids = (struct mill_warray){.count = 1, .get = get_name, .context = name};
    if (version < 0 || wire_ask(wire, key, version, encode_describe, &in, &body) < 0 ||
        mill_consumer_group_describe_response_decode(&body, version, &out) < 0 ||
        !mill_consumer_group_describe_response_groups_next(&out.groups, version, &group) ||
        group.error_code != MILL_KERR_NONE) {
        return NULL;
    }
    return json_pack("{s:s, s:o, s:s, s:o, s:i, s:o}", "name", name, "state",
                     text_json(&group.group_state), "type", "consumer", "assignor",
                     text_json(&group.assignor_name), "epoch", group.group_epoch, "members",
                     members_json(&group.members, version));
}

json_t *wire_group(rd_kafka_t *client, const char *name)
{
    const struct rd_kafka_metadata *metadata = client_metadata(client, NULL);
    struct wire *wire = NULL;
    for (int i = 0; metadata && !wire && i < metadata->broker_cnt; i++) {
        wire = wire_open(metadata->brokers[i].host, metadata->brokers[i].port);
    }
    if (metadata) {
        rd_kafka_metadata_destroy(metadata);
    }
    wire = wire ? coordinator_of(wire, name) : NULL;
    json_t *group = wire ? describe_one(wire, name) : NULL;
    wire_close(wire);
    return group;
}
