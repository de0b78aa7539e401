/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a complete request of every API and served version, one a line, without the size field:
 *     KEY VERSION HEX
 * Contents are what a client would send about partition 0 of topic "frames"; a Produce carries a
 * valid batch of one record. tests/faults/frames.py cuts these frames. One function per API fills
 * the message; an API of the table without a function here ends the program with 1, so that a new
 * one cannot be forgotten. It is longer than other files on purpose: a table by families of APIs,
 * whose rows share the arrays of one element above them, and which is searched, not read. */
#include <stdio.h>

#include "base/crc32c.h"
#include "protocol/batch.h"
#include "protocol/messages.h"

enum {
    FRAME_BYTES_MAX = 1024,
    RECORD_BYTES = 8,
    BATCH_BYTES = MILL_BATCH_HEADER_BYTES + RECORD_BYTES,
    CORRELATION_ID = 7,
    TIMEOUT_MS = 1000,
    FETCH_BYTES = 4096,
    TOPIC_RESOURCE = 2, /* resource type of DescribeConfigs */
};

static const char topic_name[] = "frames";
static const int64_t now_ms = 1700000000000;

/* --- arrays of one element ------------------------------------------------------------------- */

static struct mill_warray one(mill_warray_get get)
{
    return (struct mill_warray){.count = 1, .get = get};
}

static void get_topic_name(const void *context, int32_t index, void *ret_element)
{
    struct mill_wstr *name = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *name = mill_wstr_of(topic_name);
}

static void get_zero(const void *context, int32_t index, void *ret_element)
{
    int32_t *value = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *value = 0;
}

/* --- Produce --------------------------------------------------------------------------------- */

/* One record without key: length, attributes, both deltas, null key, value of one byte, no
 * headers. */
static const uint8_t record[RECORD_BYTES] = {14, 0, 0, 0, 1, 2, 'x', 0};

static const uint8_t *sample_batch(void)
{
    static uint8_t bytes[BATCH_BYTES];
    struct mill_batch_wire *wire = (struct mill_batch_wire *)bytes;
    wire->batch_length = be32_make(BATCH_BYTES - MILL_BATCH_PREFIX_BYTES);
    wire->partition_leader_epoch = be32_make(UINT32_MAX);
    wire->magic = 2;
    wire->base_timestamp = be64_make((uint64_t)now_ms);
    wire->max_timestamp = be64_make((uint64_t)now_ms);
    wire->producer_id = be64_make(UINT64_MAX);
    wire->producer_epoch = be16_make(UINT16_MAX);
    wire->base_sequence = be32_make(UINT32_MAX);
    wire->records_count = be32_make(1);
    for (uint32_t i = 0; i < RECORD_BYTES; i++) {
        bytes[MILL_BATCH_HEADER_BYTES + i] = record[i];
    }
    wire->crc =
        be32_make(mill_crc32c(bytes + MILL_BATCH_SUMMED_AT, BATCH_BYTES - MILL_BATCH_SUMMED_AT));
    return bytes;
}

static void get_produce_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_produce_request_topic_data_partition_data *partition = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    partition->records = (struct mill_wrecords){.length = BATCH_BYTES, .ptr = sample_batch()};
}

static void get_produce_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_produce_request_topic_data *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partition_data = one(get_produce_partition);
}

static int produce(struct mill_writer *to, int16_t version)
{
    struct mill_produce_request message;
    mill_produce_request_defaults(&message);
    message.transactional_id = mill_wstr_of(NULL);
    message.acks = -1;
    message.timeout_ms = TIMEOUT_MS;
    message.topic_data = one(get_produce_topic);
    return mill_produce_request_encode(to, version, &message);
}

/* --- Fetch ----------------------------------------------------------------------------------- */

static void get_fetch_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_fetch_request_topics_partitions *partition = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    partition->partition_max_bytes = FETCH_BYTES;
}

static void get_fetch_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_fetch_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->topic = mill_wstr_of(topic_name);
    topic->partitions = one(get_fetch_partition);
}

static void get_forgotten(const void *context, int32_t index, void *ret_element)
{
    struct mill_fetch_request_forgotten_topics_data *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->topic = mill_wstr_of(topic_name);
    topic->partitions = one(get_zero);
}

static int fetch(struct mill_writer *to, int16_t version)
{
    struct mill_fetch_request message;
    mill_fetch_request_defaults(&message);
    message.min_bytes = 1;
    message.max_bytes = FETCH_BYTES;
    message.topics = one(get_fetch_topic);
    message.forgotten_topics_data = one(get_forgotten);
    message.rack_id = mill_wstr_of("rack");
    message.cluster_id = mill_wstr_of("cluster");
    return mill_fetch_request_encode(to, version, &message);
}

/* --- ListOffsets, OffsetForLeaderEpoch ------------------------------------------------------- */

static void get_list_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_list_offsets_request_topics_partitions *partition = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    partition->timestamp = now_ms;
}

static void get_list_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_list_offsets_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partitions = one(get_list_partition);
}

static int list_offsets(struct mill_writer *to, int16_t version)
{
    struct mill_list_offsets_request message;
    mill_list_offsets_request_defaults(&message);
    message.replica_id = -1;
    message.topics = one(get_list_topic);
    return mill_list_offsets_request_encode(to, version, &message);
}

static void get_epoch_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_for_leader_epoch_request_topics_partitions *partition = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    partition->leader_epoch = 0;
}

static void get_epoch_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_for_leader_epoch_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->topic = mill_wstr_of(topic_name);
    topic->partitions = one(get_epoch_partition);
}

static int offset_for_leader_epoch(struct mill_writer *to, int16_t version)
{
    struct mill_offset_for_leader_epoch_request message;
    mill_offset_for_leader_epoch_request_defaults(&message);
    message.topics = one(get_epoch_topic);
    return mill_offset_for_leader_epoch_request_encode(to, version, &message);
}

/* --- DeleteRecords --------------------------------------------------------------------------- */

static void get_zero_trim(const void *context, int32_t index, void *ret_element)
{
    struct mill_delete_records_request_topics_partitions *partition = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    partition->offset = 0;
}

static void get_trim_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_delete_records_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partitions = one(get_zero_trim);
}

static int delete_records(struct mill_writer *to, int16_t version)
{
    struct mill_delete_records_request message;
    mill_delete_records_request_defaults(&message);
    message.topics = one(get_trim_topic);
    message.timeout_ms = 1000;
    return mill_delete_records_request_encode(to, version, &message);
}

/* --- DescribeProducers ----------------------------------------------------------------------- */

static void get_producers_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_describe_producers_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partition_indexes = one(get_zero);
}

static int describe_producers(struct mill_writer *to, int16_t version)
{
    struct mill_describe_producers_request message;
    mill_describe_producers_request_defaults(&message);
    message.topics = one(get_producers_topic);
    return mill_describe_producers_request_encode(to, version, &message);
}

/* --- Metadata, ApiVersions, DescribeCluster, FindCoordinator --------------------------------- */

static void get_metadata_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_metadata_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
}

static int metadata(struct mill_writer *to, int16_t version)
{
    struct mill_metadata_request message;
    mill_metadata_request_defaults(&message);
    message.topics = one(get_metadata_topic);
    return mill_metadata_request_encode(to, version, &message);
}

static int api_versions(struct mill_writer *to, int16_t version)
{
    struct mill_api_versions_request message;
    mill_api_versions_request_defaults(&message);
    message.client_software_name = mill_wstr_of("sample");
    message.client_software_version = mill_wstr_of("1.0");
    return mill_api_versions_request_encode(to, version, &message);
}

static int describe_cluster(struct mill_writer *to, int16_t version)
{
    struct mill_describe_cluster_request message;
    mill_describe_cluster_request_defaults(&message);
    return mill_describe_cluster_request_encode(to, version, &message);
}

static int find_coordinator(struct mill_writer *to, int16_t version)
{
    struct mill_find_coordinator_request message;
    mill_find_coordinator_request_defaults(&message);
    message.key = mill_wstr_of(topic_name);
    message.coordinator_keys = one(get_topic_name);
    return mill_find_coordinator_request_encode(to, version, &message);
}

static int init_producer_id(struct mill_writer *to, int16_t version)
{
    struct mill_init_producer_id_request message;
    mill_init_producer_id_request_defaults(&message);
    message.transactional_id = mill_wstr_of(NULL);
    message.transaction_timeout_ms = TIMEOUT_MS;
    return mill_init_producer_id_request_encode(to, version, &message);
}

/* --- CreateTopics, DeleteTopics, DescribeConfigs --------------------------------------------- */

static void get_assignment(const void *context, int32_t index, void *ret_element)
{
    struct mill_create_topics_request_topics_assignments *assignment = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    assignment->broker_ids = one(get_zero);
}

static void get_config(const void *context, int32_t index, void *ret_element)
{
    struct mill_create_topics_request_topics_configs *config = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    config->name = mill_wstr_of("retention.ms");
    config->value = mill_wstr_of("1000");
}

static void get_new_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_create_topics_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->num_partitions = -1; /* the assignment tells */
    topic->replication_factor = -1;
    topic->assignments = one(get_assignment);
    topic->configs = one(get_config);
}

static int create_topics(struct mill_writer *to, int16_t version)
{
    struct mill_create_topics_request message;
    mill_create_topics_request_defaults(&message);
    message.topics = one(get_new_topic);
    message.timeout_ms = TIMEOUT_MS;
    message.validate_only = true;
    return mill_create_topics_request_encode(to, version, &message);
}

static void get_old_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_delete_topics_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
}

static int delete_topics(struct mill_writer *to, int16_t version)
{
    struct mill_delete_topics_request message;
    mill_delete_topics_request_defaults(&message);
    message.topics = one(get_old_topic);
    message.topic_names = one(get_topic_name);
    message.timeout_ms = TIMEOUT_MS;
    return mill_delete_topics_request_encode(to, version, &message);
}

static void get_key(const void *context, int32_t index, void *ret_element)
{
    struct mill_wstr *key = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *key = mill_wstr_of("retention.ms");
}

static void get_resource(const void *context, int32_t index, void *ret_element)
{
    struct mill_describe_configs_request_resources *resource = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    resource->resource_type = TOPIC_RESOURCE;
    resource->resource_name = mill_wstr_of(topic_name);
    resource->configuration_keys = one(get_key);
}

static int describe_configs(struct mill_writer *to, int16_t version)
{
    struct mill_describe_configs_request message;
    mill_describe_configs_request_defaults(&message);
    message.resources = one(get_resource);
    return mill_describe_configs_request_encode(to, version, &message);
}

/* --- AlterConfigs, IncrementalAlterConfigs -------------------------------------------------------
 */

static void get_altered_config(const void *context, int32_t index, void *ret_element)
{
    struct mill_alter_configs_request_resources_configs *config = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    config->name = mill_wstr_of("retention.ms");
    config->value = mill_wstr_of("1000");
}

static void get_altered(const void *context, int32_t index, void *ret_element)
{
    struct mill_alter_configs_request_resources *resource = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    resource->resource_type = TOPIC_RESOURCE;
    resource->resource_name = mill_wstr_of(topic_name);
    resource->configs = one(get_altered_config);
}

static int alter_configs(struct mill_writer *to, int16_t version)
{
    struct mill_alter_configs_request message;
    mill_alter_configs_request_defaults(&message);
    message.resources = one(get_altered);
    return mill_alter_configs_request_encode(to, version, &message);
}

static void get_incremental_config(const void *context, int32_t index, void *ret_element)
{
    struct mill_incremental_alter_configs_request_resources_configs *config = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    config->name = mill_wstr_of("cleanup.policy");
    config->config_operation = 2;
    config->value = mill_wstr_of("compact");
}

static void get_incremental(const void *context, int32_t index, void *ret_element)
{
    struct mill_incremental_alter_configs_request_resources *resource = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    resource->resource_type = TOPIC_RESOURCE;
    resource->resource_name = mill_wstr_of(topic_name);
    resource->configs = one(get_incremental_config);
}

static int incremental_alter_configs(struct mill_writer *to, int16_t version)
{
    struct mill_incremental_alter_configs_request message;
    mill_incremental_alter_configs_request_defaults(&message);
    message.resources = one(get_incremental);
    return mill_incremental_alter_configs_request_encode(to, version, &message);
}

/* --- administration ----------------------------------------------------------------------------
 */

static int describe_acls(struct mill_writer *to, int16_t version)
{
    struct mill_describe_acls_request message;
    mill_describe_acls_request_defaults(&message);
    message.resource_type_filter = TOPIC_RESOURCE;
    message.resource_name_filter = mill_wstr_of(topic_name);
    return mill_describe_acls_request_encode(to, version, &message);
}

static void get_acl(const void *context, int32_t index, void *ret_element)
{
    struct mill_create_acls_request_creations *acl = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    acl->resource_type = TOPIC_RESOURCE;
    acl->resource_name = mill_wstr_of(topic_name);
    acl->principal = mill_wstr_of("User:sample");
    acl->host = mill_wstr_of("*");
}

static int create_acls(struct mill_writer *to, int16_t version)
{
    struct mill_create_acls_request message;
    mill_create_acls_request_defaults(&message);
    message.creations = one(get_acl);
    return mill_create_acls_request_encode(to, version, &message);
}

static void get_acl_filter(const void *context, int32_t index, void *ret_element)
{
    struct mill_delete_acls_request_filters *filter = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    filter->resource_type_filter = TOPIC_RESOURCE;
    filter->host_filter = mill_wstr_of("*");
}

static int delete_acls(struct mill_writer *to, int16_t version)
{
    struct mill_delete_acls_request message;
    mill_delete_acls_request_defaults(&message);
    message.filters = one(get_acl_filter);
    return mill_delete_acls_request_encode(to, version, &message);
}

static void get_election(const void *context, int32_t index, void *ret_element)
{
    struct mill_elect_leaders_request_topic_partitions *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->topic = mill_wstr_of(topic_name);
    topic->partitions = one(get_zero);
}

static int elect_leaders(struct mill_writer *to, int16_t version)
{
    struct mill_elect_leaders_request message;
    mill_elect_leaders_request_defaults(&message);
    message.topic_partitions = one(get_election);
    return mill_elect_leaders_request_encode(to, version, &message);
}

static void get_reassignment(const void *context, int32_t index, void *ret_element)
{
    struct mill_alter_partition_reassignments_request_topics_partitions *partition = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    partition->replicas = one(get_zero);
}

static void get_reassigned(const void *context, int32_t index, void *ret_element)
{
    struct mill_alter_partition_reassignments_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partitions = one(get_reassignment);
}

static int alter_reassignments(struct mill_writer *to, int16_t version)
{
    struct mill_alter_partition_reassignments_request message;
    mill_alter_partition_reassignments_request_defaults(&message);
    message.topics = one(get_reassigned);
    return mill_alter_partition_reassignments_request_encode(to, version, &message);
}

static void get_listed(const void *context, int32_t index, void *ret_element)
{
    struct mill_list_partition_reassignments_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partition_indexes = one(get_zero);
}

static int list_reassignments(struct mill_writer *to, int16_t version)
{
    struct mill_list_partition_reassignments_request message;
    mill_list_partition_reassignments_request_defaults(&message);
    message.topics = one(get_listed);
    return mill_list_partition_reassignments_request_encode(to, version, &message);
}

static void get_described(const void *context, int32_t index, void *ret_element)
{
    struct mill_describe_topic_partitions_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
}

static int describe_topic_partitions(struct mill_writer *to, int16_t version)
{
    struct mill_describe_topic_partitions_request message;
    mill_describe_topic_partitions_request_defaults(&message);
    message.topics = one(get_described);
    message.has_cursor = true;
    message.cursor.topic_name = mill_wstr_of(topic_name);
    return mill_describe_topic_partitions_request_encode(to, version, &message);
}

static void get_log_dirs_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_describe_log_dirs_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->topic = mill_wstr_of(topic_name);
    topic->partitions = one(get_zero);
}

static int describe_log_dirs(struct mill_writer *to, int16_t version)
{
    struct mill_describe_log_dirs_request message;
    mill_describe_log_dirs_request_defaults(&message);
    message.topics = one(get_log_dirs_topic);
    return mill_describe_log_dirs_request_encode(to, version, &message);
}

static void get_grown_assignment(const void *context, int32_t index, void *ret_element)
{
    struct mill_create_partitions_request_topics_assignments *assignment = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    assignment->broker_ids = one(get_zero);
}

static void get_grown(const void *context, int32_t index, void *ret_element)
{
    struct mill_create_partitions_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->count = 2;
    topic->assignments = one(get_grown_assignment);
}

static int create_partitions(struct mill_writer *to, int16_t version)
{
    struct mill_create_partitions_request message;
    mill_create_partitions_request_defaults(&message);
    message.topics = one(get_grown);
    message.timeout_ms = 1000;
    message.validate_only = true;
    return mill_create_partitions_request_encode(to, version, &message);
}

/* --- WriteTxnMarkers ------------------------------------------------------------------------- */

static void get_partition_index(const void *context, int32_t index, void *ret_element)
{
    int32_t *partition = ret_element;
    MILL_UNUSED(context);
    *partition = index;
}

static void get_marker_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_write_txn_markers_request_markers_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partition_indexes = one(get_partition_index);
}

static void get_marker(const void *context, int32_t index, void *ret_element)
{
    struct mill_write_txn_markers_request_markers *marker = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    marker->producer_id = -1; /* nobody's: it leaves nothing in the log */
    marker->topics = one(get_marker_topic);
}

static int write_txn_markers(struct mill_writer *to, int16_t version)
{
    struct mill_write_txn_markers_request message;
    mill_write_txn_markers_request_defaults(&message);
    message.markers = one(get_marker);
    return mill_write_txn_markers_request_encode(to, version, &message);
}

/* --- groups ---------------------------------------------------------------------------------- */

static const char group_id[] = "sample";
static const char member_id[] = "sample-1";

static void get_commit_partition(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_commit_request_topics_partitions *partition = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    partition->committed_metadata = mill_wstr_of("note");
}

static void get_commit_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_commit_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partitions = one(get_commit_partition);
}

static int offset_commit(struct mill_writer *to, int16_t version)
{
    struct mill_offset_commit_request message;
    mill_offset_commit_request_defaults(&message);
    message.group_id = mill_wstr_of(group_id);
    message.topics = one(get_commit_topic);
    return mill_offset_commit_request_encode(to, version, &message);
}

static void get_fetch_offsets_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_fetch_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partition_indexes = one(get_zero);
}

static void get_fetch_offsets_group_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_fetch_request_groups_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partition_indexes = one(get_zero);
}

static void get_fetch_offsets_group(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_fetch_request_groups *group = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    group->group_id = mill_wstr_of(group_id);
    group->topics = one(get_fetch_offsets_group_topic);
}

static int offset_fetch(struct mill_writer *to, int16_t version)
{
    struct mill_offset_fetch_request message;
    mill_offset_fetch_request_defaults(&message);
    message.group_id = mill_wstr_of(group_id);
    message.topics = one(get_fetch_offsets_topic);
    message.groups = one(get_fetch_offsets_group);
    return mill_offset_fetch_request_encode(to, version, &message);
}

static void get_protocol(const void *context, int32_t index, void *ret_element)
{
    struct mill_join_group_request_protocols *protocol = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    protocol->name = mill_wstr_of("range");
    protocol->metadata = mill_wstr_of("metadata");
}

static int join_group(struct mill_writer *to, int16_t version)
{
    struct mill_join_group_request message;
    mill_join_group_request_defaults(&message);
    message.group_id = mill_wstr_of(group_id);
    message.session_timeout_ms = 10000;
    message.rebalance_timeout_ms = 10000;
    message.member_id = mill_wstr_of(member_id);
    message.protocol_type = mill_wstr_of("consumer");
    message.protocols = one(get_protocol);
    return mill_join_group_request_encode(to, version, &message);
}

static int heartbeat(struct mill_writer *to, int16_t version)
{
    struct mill_heartbeat_request message;
    mill_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of(group_id);
    message.member_id = mill_wstr_of(member_id);
    return mill_heartbeat_request_encode(to, version, &message);
}

static void get_leaving(const void *context, int32_t index, void *ret_element)
{
    struct mill_leave_group_request_members *member = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    member->member_id = mill_wstr_of(member_id);
}

static int leave_group(struct mill_writer *to, int16_t version)
{
    struct mill_leave_group_request message;
    mill_leave_group_request_defaults(&message);
    message.group_id = mill_wstr_of(group_id);
    message.member_id = mill_wstr_of(member_id);
    message.members = one(get_leaving);
    return mill_leave_group_request_encode(to, version, &message);
}

static void get_member_assignment(const void *context, int32_t index, void *ret_element)
{
    struct mill_sync_group_request_assignments *assignment = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    assignment->member_id = mill_wstr_of(member_id);
    assignment->assignment = mill_wstr_of("assignment");
}

static int sync_group(struct mill_writer *to, int16_t version)
{
    struct mill_sync_group_request message;
    mill_sync_group_request_defaults(&message);
    message.group_id = mill_wstr_of(group_id);
    message.member_id = mill_wstr_of(member_id);
    message.assignments = one(get_member_assignment);
    return mill_sync_group_request_encode(to, version, &message);
}

static void get_group_id(const void *context, int32_t index, void *ret_element)
{
    struct mill_wstr *id = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *id = mill_wstr_of(group_id);
}

static int describe_groups(struct mill_writer *to, int16_t version)
{
    struct mill_describe_groups_request message;
    mill_describe_groups_request_defaults(&message);
    message.groups = one(get_group_id);
    return mill_describe_groups_request_encode(to, version, &message);
}

static void get_stable(const void *context, int32_t index, void *ret_element)
{
    struct mill_wstr *state = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *state = mill_wstr_of("Stable");
}

static int list_groups(struct mill_writer *to, int16_t version)
{
    struct mill_list_groups_request message;
    mill_list_groups_request_defaults(&message);
    message.states_filter = one(get_stable);
    return mill_list_groups_request_encode(to, version, &message);
}

static int delete_groups(struct mill_writer *to, int16_t version)
{
    struct mill_delete_groups_request message;
    mill_delete_groups_request_defaults(&message);
    message.groups_names = one(get_group_id);
    return mill_delete_groups_request_encode(to, version, &message);
}

static void get_forgotten_partition(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    MILL_UNUSED(ret_element); /* partition 0 is the default */
}

static void get_forgotten_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_offset_delete_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partitions = one(get_forgotten_partition);
}

static int offset_delete(struct mill_writer *to, int16_t version)
{
    struct mill_offset_delete_request message;
    mill_offset_delete_request_defaults(&message);
    message.group_id = mill_wstr_of(group_id);
    message.topics = one(get_forgotten_topic);
    return mill_offset_delete_request_encode(to, version, &message);
}

/* --- transactions ---------------------------------------------------------------------------- */

static const char transactional_id[] = "sample-id";

static void get_old_added_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_add_partitions_to_txn_request_v3_and_below_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partitions = one(get_zero);
}

static void get_added_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_add_partitions_to_txn_request_transactions_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name);
    topic->partitions = one(get_zero);
}

static void get_added(const void *context, int32_t index, void *ret_element)
{
    struct mill_add_partitions_to_txn_request_transactions *transaction = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    transaction->transactional_id = mill_wstr_of(transactional_id);
    transaction->topics = one(get_added_topic);
}

static int add_partitions_to_txn(struct mill_writer *to, int16_t version)
{
    struct mill_add_partitions_to_txn_request message;
    mill_add_partitions_to_txn_request_defaults(&message);
    message.transactions = one(get_added);
    message.v3_and_below_transactional_id = mill_wstr_of(transactional_id);
    message.v3_and_below_topics = one(get_old_added_topic);
    return mill_add_partitions_to_txn_request_encode(to, version, &message);
}

static int add_offsets_to_txn(struct mill_writer *to, int16_t version)
{
    struct mill_add_offsets_to_txn_request message;
    mill_add_offsets_to_txn_request_defaults(&message);
    message.transactional_id = mill_wstr_of(transactional_id);
    message.group_id = mill_wstr_of(group_id);
    return mill_add_offsets_to_txn_request_encode(to, version, &message);
}

static int end_txn(struct mill_writer *to, int16_t version)
{
    struct mill_end_txn_request message;
    mill_end_txn_request_defaults(&message);
    message.transactional_id = mill_wstr_of(transactional_id);
    message.committed = true;
    return mill_end_txn_request_encode(to, version, &message);
}

static void get_txn_offset(const void *context, int32_t index, void *ret_element)
{
    struct mill_txn_offset_commit_request_topics_partitions *partition = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    partition->committed_metadata = mill_wstr_of("note");
}

static void get_txn_topic(const void *context, int32_t index, void *ret_element)
{
    struct mill_txn_offset_commit_request_topics *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->name = mill_wstr_of(topic_name); /* from version 6 on an id that no topic has */
    topic->partitions = one(get_txn_offset);
}

static int txn_offset_commit(struct mill_writer *to, int16_t version)
{
    struct mill_txn_offset_commit_request message;
    mill_txn_offset_commit_request_defaults(&message);
    message.transactional_id = mill_wstr_of(transactional_id);
    message.group_id = mill_wstr_of(group_id);
    message.member_id = mill_wstr_of("");
    message.topics = one(get_txn_topic);
    return mill_txn_offset_commit_request_encode(to, version, &message);
}

/* --- consumer protocol ----------------------------------------------------------------------- */

static void get_subscribed(const void *context, int32_t index, void *ret_element)
{
    struct mill_wstr *name = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *name = mill_wstr_of(topic_name);
}

static void get_owned(const void *context, int32_t index, void *ret_element)
{
    struct mill_consumer_group_heartbeat_request_topic_partitions *topic = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    topic->partitions = one(get_zero);
}

/* Of one that is no member: nothing is left behind. */
static int consumer_heartbeat(struct mill_writer *to, int16_t version)
{
    struct mill_consumer_group_heartbeat_request message;
    mill_consumer_group_heartbeat_request_defaults(&message);
    message.group_id = mill_wstr_of(group_id);
    message.member_id = mill_wstr_of(member_id);
    message.member_epoch = 5;
    message.subscribed_topic_names = one(get_subscribed);
    message.subscribed_topic_regex = mill_wstr_of("frames-.*");
    message.server_assignor = mill_wstr_of("uniform");
    message.topic_partitions = one(get_owned);
    return mill_consumer_group_heartbeat_request_encode(to, version, &message);
}

static int consumer_describe(struct mill_writer *to, int16_t version)
{
    struct mill_consumer_group_describe_request message;
    mill_consumer_group_describe_request_defaults(&message);
    message.group_ids = one(get_group_id);
    return mill_consumer_group_describe_request_encode(to, version, &message);
}

static void get_id(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(struct mill_wstr *)ret_element = mill_wstr_of(transactional_id);
}

static int describe_transactions(struct mill_writer *to, int16_t version)
{
    struct mill_describe_transactions_request message;
    mill_describe_transactions_request_defaults(&message);
    message.transactional_ids = one(get_id);
    return mill_describe_transactions_request_encode(to, version, &message);
}

static int list_transactions(struct mill_writer *to, int16_t version)
{
    struct mill_list_transactions_request message;
    mill_list_transactions_request_defaults(&message);
    message.state_filters = one(get_id);
    return mill_list_transactions_request_encode(to, version, &message);
}

/* --- quotas ---------------------------------------------------------------------------------- */

static void get_quota_filter(const void *context, int32_t index, void *ret_element)
{
    struct mill_describe_client_quotas_request_components *component = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    component->entity_type = mill_wstr_of("client-id");
    component->match = mill_wstr_of("nobody");
}

static int describe_client_quotas(struct mill_writer *to, int16_t version)
{
    struct mill_describe_client_quotas_request message;
    mill_describe_client_quotas_request_defaults(&message);
    message.components = one(get_quota_filter);
    return mill_describe_client_quotas_request_encode(to, version, &message);
}

static void get_quota_half(const void *context, int32_t index, void *ret_element)
{
    struct mill_alter_client_quotas_request_entries_entity *half = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    half->entity_type = mill_wstr_of("client-id");
    half->entity_name = mill_wstr_of("nobody");
}

static void get_quota_op(const void *context, int32_t index, void *ret_element)
{
    struct mill_alter_client_quotas_request_entries_ops *op = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    op->key = mill_wstr_of("producer_byte_rate");
    op->value = 1048576;
}

static void get_quota_entry(const void *context, int32_t index, void *ret_element)
{
    struct mill_alter_client_quotas_request_entries *entry = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    entry->entity = one(get_quota_half);
    entry->ops = one(get_quota_op);
}

static int alter_client_quotas(struct mill_writer *to, int16_t version)
{
    struct mill_alter_client_quotas_request message;
    mill_alter_client_quotas_request_defaults(&message);
    message.entries = one(get_quota_entry);
    message.validate_only = true;
    return mill_alter_client_quotas_request_encode(to, version, &message);
}

/* --- what has settings ----------------------------------------------------------------------- */

static void get_resource_type(const void *context, int32_t index, void *ret_element)
{
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    *(int8_t *)ret_element = 32;
}

static int list_config_resources(struct mill_writer *to, int16_t version)
{
    struct mill_list_config_resources_request message;
    mill_list_config_resources_request_defaults(&message);
    message.resource_types = one(get_resource_type);
    return mill_list_config_resources_request_encode(to, version, &message);
}

static void get_feature(const void *context, int32_t index, void *ret_element)
{
    struct mill_update_features_request_feature_updates *update = ret_element;
    MILL_UNUSED(context);
    MILL_UNUSED(index);
    update->feature = mill_wstr_of("transaction.version");
    update->max_version_level = 2;
}

static int update_features(struct mill_writer *to, int16_t version)
{
    struct mill_update_features_request message;
    mill_update_features_request_defaults(&message);
    message.feature_updates = one(get_feature);
    message.validate_only = true;
    return mill_update_features_request_encode(to, version, &message);
}

/* --- all of them ----------------------------------------------------------------------------- */

static const struct sample {
    int16_t key;
    int (*encode)(struct mill_writer *to, int16_t version);
} samples[] = {
    {0, produce},
    {1, fetch},
    {2, list_offsets},
    {3, metadata},
    {8, offset_commit},
    {9, offset_fetch},
    {10, find_coordinator},
    {11, join_group},
    {12, heartbeat},
    {13, leave_group},
    {14, sync_group},
    {15, describe_groups},
    {16, list_groups},
    {18, api_versions},
    {19, create_topics},
    {20, delete_topics},
    {21, delete_records},
    {22, init_producer_id},
    {23, offset_for_leader_epoch},
    {24, add_partitions_to_txn},
    {25, add_offsets_to_txn},
    {26, end_txn},
    {27, write_txn_markers},
    {28, txn_offset_commit},
    {29, describe_acls},
    {30, create_acls},
    {31, delete_acls},
    {32, describe_configs},
    {33, alter_configs},
    {35, describe_log_dirs},
    {37, create_partitions},
    {42, delete_groups},
    {43, elect_leaders},
    {44, incremental_alter_configs},
    {45, alter_reassignments},
    {46, list_reassignments},
    {47, offset_delete},
    {48, describe_client_quotas},
    {49, alter_client_quotas},
    {57, update_features},
    {60, describe_cluster},
    {61, describe_producers},
    {65, describe_transactions},
    {66, list_transactions},
    {68, consumer_heartbeat},
    {69, consumer_describe},
    {74, list_config_resources},
    {75, describe_topic_partitions},
};

static const struct sample *find_sample(int16_t key)
{
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        if (samples[i].key == key) {
            return &samples[i];
        }
    }
    return NULL;
}

/* ret: 0, or what the encoder or the frame refused. */
static int print_frame(const struct sample *sample, int16_t version)
{
    uint8_t bytes[FRAME_BYTES_MAX];
    struct mill_writer to;
    const struct mill_request_header header = {.api_key = sample->key,
                                               .api_version = version,
                                               .correlation_id = CORRELATION_ID,
                                               .client_id = mill_wstr_of("sample")};
    mill_writer_init(&to, bytes, sizeof(bytes), NULL, 0);
    mill_wire_request_begin(&to, &header);
    int error = sample->encode(&to, version);
    int64_t size_bytes = mill_wire_request_finish(&to);
    if (error || size_bytes < 0) {
        return error ? error : (int)size_bytes;
    }
    printf("%d %d ", sample->key, version);
    for (int64_t at = MILL_FRAME_SIZE_BYTES; at < size_bytes; at++) {
        printf("%02x", bytes[at]);
    }
    putchar('\n');
    return 0;
}

int main(void)
{
    for (uint32_t i = 0; i < mill_apis_count; i++) {
        const struct mill_api *api = &mill_apis[i];
        const struct sample *sample = find_sample(api->key);
        if (!sample) {
            fprintf(stderr, "sample_frames: no sample of %s (%d)\n", api->name, api->key);
            return 1;
        }
        for (int16_t version = api->version_min; version <= api->version_max; version++) {
            int error = print_frame(sample, version);
            if (error) {
                fprintf(stderr, "sample_frames: %s version %d: error %d\n", api->name, version,
                        error);
                return 1;
            }
        }
    }
    return 0;
}
