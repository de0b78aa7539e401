/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration: one table of keys (config/keys.def) generates parser, ranges, help, documents and
 * the answers of DescribeConfigs. Files are in Kafka's properties syntax; `--set key=value` comes
 * after the file and wins. Pure: reads files, keeps no globals. Any thread may read a finished
 * config.
 */
#ifndef MILL_CONFIG_CONFIG_H
#define MILL_CONFIG_CONFIG_H

#include "base/report.h"

enum {
    MILL_CONFIG_LISTENERS_MAX = 8,
    MILL_CONFIG_PORTS_MAX = 8,
    MILL_CONFIG_NAME_BYTES = 64,
    MILL_CONFIG_HOST_BYTES = 256,
    MILL_CONFIG_FAULTS_MAX = 64,
    MILL_CONFIG_CORES_MAX = 64,
    MILL_CONFIG_SYNONYMS_MAX = 4,
    MILL_CONFIG_INSTANCE_BYTES = 48,
    MILL_CONFIG_ADDRESSES_MAX = 64,
};

enum mill_config_type {
    MILL_CONFIG_BOOL,
    MILL_CONFIG_INT,
    MILL_CONFIG_SHORT,
    MILL_CONFIG_LONG,
    MILL_CONFIG_DOUBLE,
    MILL_CONFIG_STRING,
    MILL_CONFIG_LIST,
    MILL_CONFIG_PASSWORD,
};

/* Where a key applies. Ours are MILL_SCOPE_BROKER; a topic key names its broker-wide synonym. */
enum mill_config_scope {
    MILL_SCOPE_BROKER,
    MILL_SCOPE_TOPIC,
};

/* Generated from the table: MILL_KEY_NODE_ID ("node.id"), MILL_KEY_LOG_DIRTY_MAX_MB, ... and for
 * topic keys MILL_TOPIC_KEY_MAX_MESSAGE_BYTES ("max.message.bytes"), ... */
enum mill_key {
#define MILL_CONFIG_KEY(id, ...)       MILL_KEY_##id,
#define MILL_CONFIG_TOPIC_KEY(id, ...) MILL_TOPIC_KEY_##id,
#include "config/keys.def"
#undef MILL_CONFIG_KEY
#undef MILL_CONFIG_TOPIC_KEY
    MILL_KEY_COUNT,
};

struct mill_key_info {
    const char *name;  /* "log.dirty.max.mb" */
    const char *alias; /* other spelling ("broker.id"), or NULL */
    enum mill_config_type type;
    enum mill_config_scope scope;
    const char *unit;         /* "ms", "bytes", "MiB", "" */
    const char *default_text; /* NULL: no default */
    int64_t min;              /* INT, SHORT, LONG */
    int64_t max;
    const char *choices; /* "on|off", NULL: free; of a number: words beside the range ("auto") */
    const char *help;
    bool in_use; /* false: accepted as Kafka's, does nothing yet (check says so) */
    enum mill_key
        broker_key; /* topic keys: broker key that gives the default; else MILL_KEY_COUNT */
};

const struct mill_key_info *mill_key_info(enum mill_key key);
/* ret: key by name or alias, MILL_KEY_COUNT when unknown. Scopes are searched apart. */
enum mill_key mill_key_find(enum mill_config_scope scope, const char *name);
/* Nearest known name by edit distance, NULL when nothing is near. */
const char *mill_key_nearest(enum mill_config_scope scope, const char *name);
/* Other broker keys that give a key its value when it is not set itself, in the order in which they
 * are asked: log.retention.ms has log.retention.minutes * 60000, then log.retention.hours *
 * 3600000. ret: how many, at most MILL_CONFIG_SYNONYMS_MAX. */
struct mill_key_synonym {
    enum mill_key key;
    int64_t factor;
};
uint32_t mill_key_synonyms(enum mill_key key,
                           struct mill_key_synonym ret_synonyms[MILL_CONFIG_SYNONYMS_MAX]);

/* Keys listener.NAME.x and dpdk.port.NAME.x, for documents. */
struct mill_key_family_info {
    const char *pattern; /* "listener.NAME." */
    const char *name;    /* "transport" */
    enum mill_config_type type;
    const char *unit;
    const char *default_text;
    int64_t min;
    int64_t max;
    const char *choices;
    const char *help;
};
uint32_t mill_key_families(const struct mill_key_family_info **ret_families);

/* Whether a broker key can be altered while the broker runs: for one broker, or for all of them. */
bool mill_key_is_dynamic(enum mill_key key);
/* Checks a value's text. ret: 0, -EINVAL (report: reason with range). */
int mill_key_check(enum mill_key key, const char *text,
                   struct mill_report *report) MILL_WARN_UNUSED;

/* An address of a list and the number that stands with it. */
struct mill_config_address {
    uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
    int64_t number;
};
/* Reads "ADDRESS:COUNT,..." (max.connections.per.ip.overrides).
 * ret: 0, -EINVAL (report) */
int mill_config_addresses(const char *text,
                          struct mill_config_address ret_entries[MILL_CONFIG_ADDRESSES_MAX],
                          uint32_t *ret_count, struct mill_report *report) MILL_WARN_UNUSED;
/* ret: whether such a list gives an address more than 0. */
bool mill_config_addresses_let_in(const char *text);
/* An IPv4 or IPv6 address as it is written; no name. ret: 0, -EINVAL. */
int mill_config_parse_address(const char *text, uint8_t ret_address[16]) MILL_WARN_UNUSED;

enum mill_config_transport {
    MILL_TRANSPORT_KERNEL,
    MILL_TRANSPORT_DPDK,
};

struct mill_config_listener {
    char name[MILL_CONFIG_NAME_BYTES];
    char host[MILL_CONFIG_HOST_BYTES]; /* as written */
    uint8_t address[16];               /* resolved; IPv4 as ::ffff:a.b.c.d */
    uint16_t port;
    char advertised_host[MILL_CONFIG_HOST_BYTES];
    uint16_t advertised_port;
    enum mill_config_transport transport;
    char device[MILL_CONFIG_NAME_BYTES]; /* name in dpdk.ports */
    bool required;
};

struct mill_config_port {
    char name[MILL_CONFIG_NAME_BYTES];
    char device[256];
    uint32_t address; /* IPv4, host order */
    uint8_t prefix_bits;
    uint32_t gateway;
    uint32_t dma_peer; /* the gateway unless configured; 0: none */
    uint16_t mtu;
    uint8_t mac[6]; /* all zero: default */
    bool has_mac;
    uint16_t queues_max; /* 0: one per core */
    bool rx_csum_trusted;
    bool tx_csum_off;
    uint32_t syn_rate;  /* 0: no limit */
    uint32_t syn_burst; /* at least 1 */
};

struct mill_config_fault {
    uint32_t line; /* 0: from --set or about a missing key */
    bool error;    /* false: warning */
    char file[128];
    char key[128];
    char text[512]; /* reason, remedy, nearest name */
};

struct mill_config;

/* Reads file (NULL: none) and sets (each "key=value"). strict turns unknown keys into errors.
 * Always gives a config; faults tells whether it may be used. ret: 0 usable (maybe warnings),
 * -EINVAL errors in faults, -errno file not readable (one fault). */
int mill_config_load(const char *file, const char *const *sets, uint32_t sets_count, bool strict,
                     struct mill_config **ret_config) MILL_WARN_UNUSED;
void mill_config_free(struct mill_config *config);
uint32_t mill_config_faults(const struct mill_config *config,
                            const struct mill_config_fault **ret_faults);

/* Values after defaults, `auto` and unit synonyms. A topic key gives what a topic without a setting
 * of its own has. Key and type must fit (asserted); mill_config_text takes every type and gives
 * NULL for a key without a value. */
bool mill_config_bool(const struct mill_config *config, enum mill_key key);
int64_t mill_config_int(const struct mill_config *config, enum mill_key key);
const char *mill_config_text(const struct mill_config *config, enum mill_key key);
/* True when file or --set gave it (DescribeConfigs: static broker config), else a default. */
bool mill_config_is_set(const struct mill_config *config, enum mill_key key);

/* Elements of lists and families, parsed and checked. */
uint32_t mill_config_listeners(const struct mill_config *config,
                               const struct mill_config_listener **ret_listeners);
/* http.listener: host, address and port; NULL: off. */
const struct mill_config_listener *mill_config_http(const struct mill_config *config);
uint32_t mill_config_ports(const struct mill_config *config,
                           const struct mill_config_port **ret_ports);
uint32_t mill_config_log_dirs(const struct mill_config *config, const char *const **ret_dirs);
/* CPUs of dataplane.cores, `auto` resolved. */
uint32_t mill_config_cores(const struct mill_config *config, const uint32_t **ret_cpus);
/* Nodes that this broker shows, each with a port of its own per listener (the listener's and those
 * behind it): the number of cores with dataplane.core.endpoints, else 1. */
uint32_t mill_config_core_endpoints(const struct mill_config *config);

/* run.dir, with its default resolved. */
const char *mill_config_run_dir(const struct mill_config *config);
const char *mill_config_metadata_dir(const struct mill_config *config);

/* Name of the instance: "millrace-<node.id>-<8 hex digits of run.dir's hash>". EAL prefix and
 * hugepage folder are called so. The same before and after run.dir is made. */
const char *mill_config_instance(const struct mill_config *config);

/* Writes every set key, so that a child process loads the same (run.dir/effective.properties). */
int mill_config_write(const struct mill_config *config, const char *file) MILL_WARN_UNUSED;

#endif
