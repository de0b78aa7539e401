/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: file and --set into values, defaults and unit synonyms, then the parts that belong
 * together (listeners, ports, cores, directories). Getters of the finished configuration. */
#include "config/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What takes pairs: the file or one --set. */
struct source {
    struct mill_config *config;
    bool from_sets;
};

static char *copy_text(const char *text)
{
    char *copy = strdup(text);
    if (!copy) {
        mill_no_memory("the configuration");
    }
    return copy;
}

static void set_text(struct value *value, const char *text)
{
    free(value->text);
    value->text = text ? copy_text(text) : NULL;
}

/* --- families ------------------------------------------------------------------------------- */

/* Splits "listener.NAME.rest" by a pattern "listener.NAME.". ret: start of rest, NULL: other key.
 */
static const char *family_split(const char *key, const char *pattern,
                                char name[MILL_CONFIG_NAME_BYTES])
{
    size_t prefix = (size_t)(strstr(pattern, "NAME") - pattern);
    if (strncmp(key, pattern, prefix) != 0) {
        return NULL;
    }
    const char *dot = strchr(key + prefix, '.');
    size_t size = dot ? (size_t)(dot - key) - prefix : 0;
    if (size == 0 || size >= MILL_CONFIG_NAME_BYTES) {
        return NULL;
    }
    memcpy(name, key + prefix, size);
    name[size] = '\0';
    return dot + 1;
}

static const char *family_name_at(const void *names, uint32_t index)
{
    const struct mill_key_family_info *infos = names;
    return infos[index].name;
}

static void family_store(const struct source *source, const struct mill_key_family_info *info,
                         uint32_t index, const char *key, const char *name, const char *value,
                         uint32_t line)
{
    struct mill_config *config = source->config;
    struct mill_report report = {0};
    int64_t number;
    if (check_value(value, info->type, info->min, info->max, info->choices, info->unit, &number,
                    &report) < 0) {
        fault_at(config, true, source->from_sets, line, key, "%s", report.text);
        return;
    }
    struct family_entry *entry = NULL;
    for (uint32_t i = 0; i < config->families_count && !entry; i++) {
        struct family_entry *other = &config->families[i];
        if (other->info == index && strcasecmp(other->name, name) == 0) {
            entry = other;
        }
    }
    if (entry && !source->from_sets) {
        fault_at(config, false, false, line, key, "given twice, in lines %u and %u; line %u counts",
                 entry->line, line, line);
    }
    if (!entry) {
        if (config->families_count == FAMILY_ENTRIES_MAX) {
            fault_at(config, true, source->from_sets, line, key, "more than %u keys of this kind",
                     FAMILY_ENTRIES_MAX);
            return;
        }
        entry = &config->families[config->families_count++];
    }
    free(entry->text);
    entry->text = copy_text(value);
    entry->info = index;
    entry->line = line;
    entry->from_sets = source->from_sets;
    snprintf(entry->key, sizeof(entry->key), "%s", key);
    snprintf(entry->name, sizeof(entry->name), "%s", name);
}

/* ret: true when the key belongs to a family (taken, or its fault told). */
static bool family_take(const struct source *source, const char *key, const char *value,
                        uint32_t line)
{
    const struct mill_key_family_info *infos;
    uint32_t count = mill_key_families(&infos);
    char name[MILL_CONFIG_NAME_BYTES];
    const char *rest = NULL;
    const char *pattern = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const char *tail = family_split(key, infos[i].pattern, name);
        if (tail && strcmp(tail, infos[i].name) == 0) {
            family_store(source, &infos[i], i, key, name, value, line);
            return true;
        }
        if (tail) {
            rest = tail;
            pattern = infos[i].pattern;
        }
    }
    if (!rest || strcmp(key, "listener.security.protocol.map") == 0) {
        return false;
    }
    if (strncmp(key, "listener.name.", strlen("listener.name.")) == 0) {
        fault_at(source->config, false, source->from_sets, line, key,
                 "settings of one listener in Kafka's way have no effect yet");
        return true;
    }
    const char *near = nearest_name(rest, family_name_at, infos, count);
    fault_at(source->config, source->config->strict, source->from_sets, line, key,
             "unknown key after %s%s%s%s", pattern, near ? "; did you mean \"" : "",
             near ? near : "", near ? "\"?" : "");
    return true;
}

struct family_entry *family_find(struct mill_config *config, enum family_key key, const char *name)
{
    for (uint32_t i = 0; i < config->families_count; i++) {
        struct family_entry *entry = &config->families[i];
        if (entry->info == (uint32_t)key && strcasecmp(entry->name, name) == 0) {
            entry->used = true;
            return entry;
        }
    }
    return NULL;
}

static void families_unused(struct mill_config *config)
{
    for (uint32_t i = 0; i < config->families_count; i++) {
        const struct family_entry *entry = &config->families[i];
        if (!entry->used) {
            bool port = strncmp(entry->key, "dpdk.", 5) == 0;
            fault_family(config, false, entry, "has no effect: \"%s\" is not named in %s",
                         entry->name, port ? "dpdk.ports" : "listeners");
        }
    }
}

/* --- pairs ------------------------------------------------------------------------------------ */

static void unknown_key(const struct source *source, const char *key, uint32_t line)
{
    const char *near = mill_key_nearest(MILL_SCOPE_BROKER, key);
    enum mill_key topic = mill_key_find(MILL_SCOPE_TOPIC, key);
    char hint[KEY_BYTES_MAX + 64] = "";
    if (topic < MILL_KEY_COUNT && mill_key_info(topic)->broker_key < MILL_KEY_COUNT) {
        snprintf(hint, sizeof(hint), "; it is a topic's: broker-wide it is \"%s\"",
                 mill_key_info(mill_key_info(topic)->broker_key)->name);
    } else if (near) {
        snprintf(hint, sizeof(hint), "; did you mean \"%s\"?", near);
    }
    fault_at(source->config, source->config->strict, source->from_sets, line, key, "unknown key%s",
             hint);
}

static void take_pair(void *arg, const char *key, const char *value, uint32_t line)
{
    const struct source *source = arg;
    struct mill_config *config = source->config;
    enum mill_key found = mill_key_find(MILL_SCOPE_BROKER, key);
    if (found == MILL_KEY_COUNT) {
        if (!family_take(source, key, value, line)) {
            unknown_key(source, key, line);
        }
        return;
    }
    struct value *slot = &config->values[found];
    if (slot->given && !source->from_sets) {
        fault_at(config, false, false, line, key, "given twice, in lines %u and %u; line %u counts",
                 slot->line, line, line);
    }
    struct mill_report report = {0};
    const struct mill_key_info *info = mill_key_info(found);
    int64_t number = 0;
    if (check_value(value, info->type, info->min, info->max, info->choices, info->unit, &number,
                    &report) < 0 ||
        check_parts(found, value, &report) < 0) {
        fault_at(config, true, source->from_sets, line, key, "%s", report.text);
        return;
    }
    if (!info->in_use && !slot->given) {
        fault_at(config, false, source->from_sets, line, key, "accepted, has no effect yet");
    }
    set_text(slot, value);
    free(slot->given);
    slot->given = copy_text(value);
    slot->number = number;
    slot->line = line;
    slot->from_sets = source->from_sets;
}

static void take_syntax(void *arg, uint32_t line, const char *reason)
{
    const struct source *source = arg;
    fault_at(source->config, true, source->from_sets, line, "", "%s", reason);
}

static int read_fail(struct mill_config *config, int error)
{
    fault_at(config, true, false, 0, "", "cannot be read: %s", strerror(-error));
    return error;
}

/* Reads a whole small file. ret: 0 or -errno; the text is terminated. */
static int read_file(const char *file, char **ret_text, size_t *ret_size)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    char *text = malloc(FILE_BYTES_MAX + 1);
    size_t size = 0;
    int rc = text ? 0 : -ENOMEM;
    while (rc == 0) {
        ssize_t got = read(fd, text + size, FILE_BYTES_MAX + 1 - size);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            rc = got < 0 ? -errno : 0;
            break;
        }
        size += (size_t)got;
        rc = size > FILE_BYTES_MAX ? -EFBIG : 0;
    }
    close(fd);
    if (rc < 0) {
        free(text);
        return rc;
    }
    text[size] = '\0';
    *ret_text = text;
    *ret_size = size;
    return 0;
}

static int load_file(struct mill_config *config, const char *file)
{
    char *text = NULL;
    size_t size = 0;
    int rc = read_file(file, &text, &size);
    if (rc < 0) {
        return read_fail(config, rc);
    }
    struct source source = {.config = config, .from_sets = false};
    if (memchr(text, '\0', size)) {
        fault_at(config, true, false, 0, "", "%s holds zero bytes: not a properties file", file);
    } else {
        properties_parse(text, size, take_pair, take_syntax, &source);
    }
    free(text);
    return 0;
}

static void load_set(struct mill_config *config, const char *set)
{
    struct source source = {.config = config, .from_sets = true};
    const char *equals = strchr(set, '=');
    if (!equals || equals == set) {
        fault_at(config, true, true, 0, set, "give it as --set key=value");
        return;
    }
    char *key = copy_text(set);
    key[equals - set] = '\0';
    take_pair(&source, key, equals + 1, 0);
    free(key);
}

/* --- defaults -----------------------------------------------------------------------------------
 */

/* A key that is not set takes the first synonym that is set, then its own default, then the default
 * of the last synonym (hours stand behind ms). */
static void default_value(struct mill_config *config, enum mill_key key)
{
    struct value *value = &config->values[key];
    const struct mill_key_info *info = mill_key_info(key);
    if (value->given) {
        return;
    }
    if (info->default_text) {
        set_text(value, info->default_text);
        struct mill_report report = {0};
        int rc = check_value(info->default_text, info->type, info->min, info->max, info->choices,
                             info->unit, &value->number, &report);
        MILL_ASSERT_EQ(rc, 0); /* a wrong default is a fault of the table */
    }
}

static void synonym_value(struct mill_config *config, enum mill_key key)
{
    struct mill_key_synonym list[MILL_CONFIG_SYNONYMS_MAX];
    uint32_t count = mill_key_synonyms(key, list);
    struct value *value = &config->values[key];
    if (value->given || value->text || count == 0) {
        return;
    }
    const struct mill_key_synonym *chosen = &list[count - 1];
    for (uint32_t i = 0; i < count; i++) {
        if (config->values[list[i].key].given) {
            chosen = &list[i];
            break;
        }
    }
    int64_t number = config->values[chosen->key].number;
    /* -1 means "never" in every unit; a product beyond the range means the same as its end. */
    if (number >= 0 && __builtin_mul_overflow(number, chosen->factor, &number)) {
        number = INT64_MAX;
    }
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)number);
    set_text(value, text);
    value->number = number;
}

static void topic_value(struct mill_config *config, enum mill_key key)
{
    enum mill_key broker = mill_key_info(key)->broker_key;
    if (broker < MILL_KEY_COUNT && config->values[broker].text) {
        set_text(&config->values[key], config->values[broker].text);
        config->values[key].number = config->values[broker].number;
    } else {
        default_value(config, key);
    }
}

static void defaults_resolve(struct mill_config *config)
{
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        if (mill_key_info((enum mill_key)i)->scope == MILL_SCOPE_BROKER) {
            default_value(config, (enum mill_key)i);
        }
    }
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        synonym_value(config, (enum mill_key)i);
    }
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        if (mill_key_info((enum mill_key)i)->scope == MILL_SCOPE_TOPIC) {
            topic_value(config, (enum mill_key)i);
        }
    }
}

/* What is a value of its key and still cannot be had. */
static void unavailable(struct mill_config *config)
{
    if (strcmp(config->values[MILL_KEY_METADATA_STORE].text, "zookeeper") == 0) {
        fault_key(config, true, MILL_KEY_METADATA_STORE,
                  "\"zookeeper\" is not available yet; use sqlite");
    }
    if (config->values[MILL_KEY_AUTHORIZER_CLASS_NAME].text[0] != '\0') {
        fault_key(config, true, MILL_KEY_AUTHORIZER_CLASS_NAME,
                  "access control is not available yet; remove the key");
    }
}

static void relations(struct mill_config *config)
{
    const struct value *values = config->values;
    int64_t frame = values[MILL_KEY_CONTROL_FRAME_MAX_BYTES].number;
    if (frame > values[MILL_KEY_SOCKET_REQUEST_MAX_BYTES].number) {
        fault_key(config, false, MILL_KEY_CONTROL_FRAME_MAX_BYTES,
                  "is larger than socket.request.max.bytes, which bounds it");
    }
    if (values[MILL_KEY_MESSAGE_MAX_BYTES].number >
        values[MILL_KEY_SOCKET_REQUEST_MAX_BYTES].number) {
        fault_key(config, true, MILL_KEY_MESSAGE_MAX_BYTES,
                  "is larger than socket.request.max.bytes (%s): no such batch could be sent",
                  values[MILL_KEY_SOCKET_REQUEST_MAX_BYTES].text);
    }
    if (values[MILL_KEY_MAX_CONNECTIONS_PER_IP].number == 0 &&
        !mill_config_addresses_let_in(values[MILL_KEY_MAX_CONNECTIONS_PER_IP_OVERRIDES].text)) {
        fault_key(config, true, MILL_KEY_MAX_CONNECTIONS_PER_IP,
                  "is 0, and max.connections.per.ip.overrides lets nobody in");
    }
    /* A batch never crosses extents, and readers must be able to hold one while another comes. */
    int64_t arena = values[MILL_KEY_HUGEPAGES_SIZE_MB].number << 20;
    if (arena / 4 < values[MILL_KEY_MESSAGE_MAX_BYTES].number) {
        fault_key(config, true, MILL_KEY_MESSAGE_MAX_BYTES,
                  "is more than a quarter of the arena (hugepages.size.mb=%s)",
                  values[MILL_KEY_HUGEPAGES_SIZE_MB].text);
    }
    if (values[MILL_KEY_LOG_DIRTY_MAX_MB].given &&
        values[MILL_KEY_LOG_DIRTY_MAX_MB].number > values[MILL_KEY_HUGEPAGES_SIZE_MB].number) {
        fault_key(config, false, MILL_KEY_LOG_DIRTY_MAX_MB,
                  "is more than the arena (hugepages.size.mb=%s), which bounds it",
                  values[MILL_KEY_HUGEPAGES_SIZE_MB].text);
    }
}

int mill_config_load(const char *file, const char *const *sets, uint32_t sets_count, bool strict,
                     struct mill_config **ret_config)
{
    struct mill_config *config = calloc(1, sizeof(*config));
    if (!config) {
        return -ENOMEM;
    }
    *ret_config = config;
    config->strict = strict;
    if (file) {
        size_t length = strlen(file);
        size_t room = sizeof(config->file) - 1;
        snprintf(config->file, sizeof(config->file), "%s",
                 length > room ? file + (length - room) : file);
        int rc = load_file(config, file);
        if (rc < 0) {
            return rc;
        }
    }
    for (uint32_t i = 0; i < sets_count; i++) {
        load_set(config, sets[i]);
    }
    defaults_resolve(config);
    hugepages_resolve(config);
    unavailable(config);
    cores_resolve(config);
    listeners_resolve(config);
    ports_resolve(config);
    ports_check_listeners(config);
    advertised_resolve(config);
    families_unused(config);
    dirs_resolve(config);
    relations(config);
    return config->has_error ? -EINVAL : 0;
}

void mill_config_free(struct mill_config *config)
{
    if (!config) {
        return;
    }
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        free(config->values[i].text);
        free(config->values[i].given);
    }
    for (uint32_t i = 0; i < config->families_count; i++) {
        free(config->families[i].text);
    }
    for (uint32_t i = 0; i < config->dirs_count; i++) {
        free(config->dirs[i]);
    }
    free(config->run_dir);
    free(config->metadata_dir);
    free(config);
}

/* --- getters ------------------------------------------------------------------------------------
 */

uint32_t mill_config_faults(const struct mill_config *config,
                            const struct mill_config_fault **ret_faults)
{
    *ret_faults = config->faults;
    return config->faults_count;
}

bool mill_config_bool(const struct mill_config *config, enum mill_key key)
{
    MILL_ASSERT(mill_key_info(key)->type == MILL_CONFIG_BOOL);
    return config->values[key].number != 0;
}

int64_t mill_config_int(const struct mill_config *config, enum mill_key key)
{
    enum mill_config_type type = mill_key_info(key)->type;
    MILL_ASSERT(type == MILL_CONFIG_INT || type == MILL_CONFIG_SHORT || type == MILL_CONFIG_LONG);
    return config->values[key].number;
}

const char *mill_config_text(const struct mill_config *config, enum mill_key key)
{
    MILL_ASSERT_LT((uint32_t)key, (uint32_t)MILL_KEY_COUNT);
    return config->values[key].text;
}

bool mill_config_is_set(const struct mill_config *config, enum mill_key key)
{
    MILL_ASSERT_LT((uint32_t)key, (uint32_t)MILL_KEY_COUNT);
    return config->values[key].given != NULL;
}

uint32_t mill_config_listeners(const struct mill_config *config,
                               const struct mill_config_listener **ret_listeners)
{
    *ret_listeners = config->listeners;
    return config->listeners_count;
}

const struct mill_config_listener *mill_config_http(const struct mill_config *config)
{
    return config->http.port != 0 ? &config->http : NULL;
}

uint32_t mill_config_ports(const struct mill_config *config,
                           const struct mill_config_port **ret_ports)
{
    *ret_ports = config->ports;
    return config->ports_count;
}

uint32_t mill_config_log_dirs(const struct mill_config *config, const char *const **ret_dirs)
{
    *ret_dirs = (const char *const *)config->dirs;
    return config->dirs_count;
}

uint32_t mill_config_cores(const struct mill_config *config, const uint32_t **ret_cpus)
{
    *ret_cpus = config->cpus;
    return config->cpus_count;
}

uint32_t mill_config_core_endpoints(const struct mill_config *config)
{
    bool on = mill_config_bool(config, MILL_KEY_DATAPLANE_CORE_ENDPOINTS);
    return on && config->cpus_count > 1 ? config->cpus_count : 1;
}

const char *mill_config_run_dir(const struct mill_config *config)
{
    return config->run_dir;
}

const char *mill_config_metadata_dir(const struct mill_config *config)
{
    return config->metadata_dir;
}

const char *mill_config_instance(const struct mill_config *config)
{
    return config->instance;
}
