/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of topics and of the broker: the topic's own value, else what was altered while the
 * broker ran, else the configuration's; and the form in which the data plane reads them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/controller/controller.h"
#include "protocol/batch.h"

/* The broker key that stands behind a key: itself, or what gives a topic key its default. */
static enum mill_key broker_key(enum mill_key key)
{
    const struct mill_key_info *info = mill_key_info(key);
    return info->scope == MILL_SCOPE_TOPIC ? info->broker_key : key;
}

/* Where a broker key was altered; MILL_SETTINGS_LEVELS: nowhere. */
static uint32_t altered_level(const struct mill_settings *settings, enum mill_key broker)
{
    uint32_t level = 0;
    while (level < MILL_SETTINGS_LEVELS &&
           (broker == MILL_KEY_COUNT || !settings->altered[level][broker])) {
        level++;
    }
#ifdef MILL_MUTANT_CONTROL_CLUSTER_WINS
    if (broker != MILL_KEY_COUNT && settings->altered[MILL_SETTINGS_CLUSTER][broker]) {
        level = MILL_SETTINGS_CLUSTER;
    }
#endif
    return level;
}

const char *mill_settings_text(const struct mill_settings *settings, const struct mill_topic *topic,
                               enum mill_key key)
{
    const char *own = topic ? mill_topic_config(topic, mill_key_info(key)->name) : NULL;
    enum mill_key broker = broker_key(key);
    uint32_t level = altered_level(settings, broker);
    if (own) {
        return own;
    }
    return level < MILL_SETTINGS_LEVELS ? settings->altered[level][broker]
                                        : mill_config_text(settings->config, key);
}

/* True when the configuration file gives the broker key or one of its unit synonyms. */
static bool file_gives(const struct mill_config *config, enum mill_key key)
{
    struct mill_key_synonym synonyms[MILL_CONFIG_SYNONYMS_MAX];
    if (key == MILL_KEY_COUNT) {
        return false;
    }
    if (mill_config_is_set(config, key)) {
        return true;
    }
    uint32_t count = mill_key_synonyms(key, synonyms);
    for (uint32_t i = 0; i < count; i++) {
        if (mill_config_is_set(config, synonyms[i].key)) {
            return true;
        }
    }
    return false;
}

int8_t mill_settings_source(const struct mill_settings *settings, const struct mill_topic *topic,
                            enum mill_key key)
{
    enum mill_key broker = broker_key(key);
    uint32_t level = altered_level(settings, broker);
    if (topic && mill_topic_config(topic, mill_key_info(key)->name)) {
        return 1;
    }
    if (level < MILL_SETTINGS_LEVELS) {
        return level == MILL_SETTINGS_BROKER ? 2 : 3;
    }
    return file_gives(settings->config, broker) ? 4 : 5;
}

/* Checked values only: of a request by mill_key_check, of the broker by the configuration. */
static int64_t number(const struct mill_settings *settings, const struct mill_topic *topic,
                      enum mill_key key)
{
    const char *text = mill_settings_text(settings, topic, key);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* What was checked when it was set. */
static void overrides_resolve(const char *text, struct mill_broker_settings *settings)
{
    struct mill_config_address entries[MILL_CONFIG_ADDRESSES_MAX];
    struct mill_report report;
    static_assert(MILL_COUNT_OF(entries) == MILL_COUNT_OF(settings->overrides), "all that may be");
    if (mill_config_addresses(text, entries, &settings->overrides_count, &report) < 0) {
        settings->overrides_count = 0;
    }
    for (uint32_t i = 0; i < settings->overrides_count; i++) {
        memcpy(settings->overrides[i].address, entries[i].address, sizeof(entries[i].address));
        settings->overrides[i].connections_max = entries[i].number;
    }
}

void mill_settings_broker(const struct mill_settings *settings, struct mill_broker_settings *ret)
{
    const char *rate =
        mill_settings_text(settings, NULL, MILL_KEY_LOG_CLEANER_IO_MAX_BYTES_PER_SECOND);
    const char *overrides =
        mill_settings_text(settings, NULL, MILL_KEY_MAX_CONNECTIONS_PER_IP_OVERRIDES);
    double bytes = rate ? strtod(rate, NULL) : 0;
    *ret = (struct mill_broker_settings){
        .connections_max = number(settings, NULL, MILL_KEY_MAX_CONNECTIONS),
        .producer_expiration_ms = number(settings, NULL, MILL_KEY_PRODUCER_ID_EXPIRATION_MS),
        .clean_bytes_per_second = bytes < (double)INT64_MAX ? (int64_t)bytes : INT64_MAX,
        .clean_backoff_ms = number(settings, NULL, MILL_KEY_LOG_CLEANER_BACKOFF_MS),
        .clean_map_bytes = number(settings, NULL, MILL_KEY_LOG_CLEANER_DEDUPE_BUFFER_SIZE),
        .connections_per_second = number(settings, NULL, MILL_KEY_MAX_CONNECTION_CREATION_RATE),
        .connections_burst_ns = mill_quota_burst_ns(settings->config),
        .address_connections_max = number(settings, NULL, MILL_KEY_MAX_CONNECTIONS_PER_IP),
    };
    overrides_resolve(overrides ? overrides : "", ret);
}

int mill_settings_put(struct mill_settings *settings, enum mill_settings_level level,
                      enum mill_key key, const char *value)
{
    char *copy = value ? strdup(value) : NULL;
    if (value && !copy) {
        return -ENOMEM;
    }
    free(settings->altered[level][key]);
    settings->altered[level][key] = copy;
    return 0;
}

void mill_settings_clear(struct mill_settings *settings)
{
    for (uint32_t level = 0; level < MILL_SETTINGS_LEVELS; level++) {
        for (uint32_t key = 0; key < MILL_KEY_COUNT; key++) {
            free(settings->altered[level][key]);
            settings->altered[level][key] = NULL;
        }
    }
}

/* The data plane has no floating point. */
static int32_t parts_per_million(const char *ratio)
{
    return ratio ? (int32_t)(strtod(ratio, NULL) * 1e6 + 0.5) : 0;
}

static uint8_t codec_of(const char *text)
{
    static const struct {
        const char *name;
        uint8_t codec;
    } codecs[] = {{"uncompressed", MILL_CODEC_NONE},
                  {"gzip", MILL_CODEC_GZIP},
                  {"snappy", MILL_CODEC_SNAPPY},
                  {"lz4", MILL_CODEC_LZ4},
                  {"zstd", MILL_CODEC_ZSTD}};
    for (size_t i = 0; i < MILL_COUNT_OF(codecs); i++) {
        if (strcmp(text, codecs[i].name) == 0) {
            return codecs[i].codec;
        }
    }
    return 255; /* producer: as it came */
}

void mill_settings_resolve(const struct mill_settings *settings, struct mill_topic *topic)
{
    const char *policy = mill_settings_text(settings, topic, MILL_TOPIC_KEY_CLEANUP_POLICY);
    const char *time_type =
        mill_settings_text(settings, topic, MILL_TOPIC_KEY_MESSAGE_TIMESTAMP_TYPE);
    const char *codec = mill_settings_text(settings, topic, MILL_TOPIC_KEY_COMPRESSION_TYPE);
#define NUMBER(id) number(settings, topic, MILL_TOPIC_KEY_##id)
    /* What control wrote there, it reads again, as it wrote it. */
    bool internal = mill_topic_is_internal(topic->record->name, topic->record->name_length);
#ifdef MILL_MUTANT_CONTROL_INTERNAL_PACKED
    internal = false;
#endif
    topic->record->settings = (struct mill_topic_settings){
        .max_message_bytes = (int32_t)NUMBER(MAX_MESSAGE_BYTES),
        .min_insync_replicas = (int32_t)NUMBER(MIN_INSYNC_REPLICAS),
        .timestamp_before_max_ms = NUMBER(MESSAGE_TIMESTAMP_BEFORE_MAX_MS),
        .timestamp_after_max_ms = NUMBER(MESSAGE_TIMESTAMP_AFTER_MAX_MS),
        .flush_messages = NUMBER(FLUSH_MESSAGES),
        .flush_ms = NUMBER(FLUSH_MS),
        .segment_bytes = NUMBER(SEGMENT_BYTES),
        .segment_ms = NUMBER(SEGMENT_MS),
        .index_interval_bytes = (int32_t)NUMBER(INDEX_INTERVAL_BYTES),
        .segment_index_bytes = (int32_t)NUMBER(SEGMENT_INDEX_BYTES),
        .retention_ms = NUMBER(RETENTION_MS),
        .retention_bytes = NUMBER(RETENTION_BYTES),
        .file_delete_delay_ms = NUMBER(FILE_DELETE_DELAY_MS),
        .delete_retention_ms = NUMBER(DELETE_RETENTION_MS),
        .min_compaction_lag_ms = NUMBER(MIN_COMPACTION_LAG_MS),
        .max_compaction_lag_ms = NUMBER(MAX_COMPACTION_LAG_MS),
        .min_cleanable_ppm = parts_per_million(
            mill_settings_text(settings, topic, MILL_TOPIC_KEY_MIN_CLEANABLE_DIRTY_RATIO)),
        .append_time = time_type && strcmp(time_type, "LogAppendTime") == 0,
        .compact = policy && strstr(policy, "compact") != NULL,
        .delete_old = policy && strstr(policy, "delete") != NULL,
        .compression = codec && !internal ? codec_of(codec) : 255,
    };
#undef NUMBER
}

bool mill_topic_is_internal(const char *name, uint32_t length)
{
    static const char *const names[] = {"__consumer_offsets", "__transaction_state"};
    for (size_t i = 0; i < MILL_COUNT_OF(names); i++) {
        if (length == strlen(names[i]) && memcmp(name, names[i], length) == 0) {
            return true;
        }
    }
    return false;
}

const char *mill_topic_name_fault(const char *name, uint32_t length)
{
    if (length == 0) {
        return "the empty string is not a topic name";
    }
    if (length > MILL_TOPIC_NAME_MAX) {
        return "a topic name has at most 249 characters";
    }
    if ((length == 1 && name[0] == '.') || (length == 2 && memcmp(name, "..", 2) == 0)) {
        return "a topic may not be called \".\" or \"..\"";
    }
    for (uint32_t i = 0; i < length; i++) {
        char c = name[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == '-';
        if (!good) {
            return "a topic name has only letters, digits, '.', '_' and '-' of ASCII";
        }
    }
    return NULL;
}
