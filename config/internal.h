/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of config/ share: the loaded configuration and how faults are added to it. Never
 * included from another folder. */
#ifndef MILL_CONFIG_INTERNAL_H
#define MILL_CONFIG_INTERNAL_H

#include "base/check.h"
#include "config/config.h"

enum {
    FILE_BYTES_MAX = 1 << 20, /* a properties file is small; more is a wrong file */
    FAMILY_ENTRIES_MAX = 256,
    DIRS_MAX = 16,
    KEY_BYTES_MAX = 128,
    PATH_BYTES = 1024,     /* of a directory; what we put in it must still fit PATH_MAX */
    LIST_ITEM_BYTES = 320, /* NAME://HOST:PORT fits */
};

/* A value as it counts: of the table's default, the file or --set. */
struct value {
    char *text;     /* NULL: none */
    char *given;    /* as it was set, for mill_config_write; NULL: not set */
    int64_t number; /* INT, SHORT, LONG and BOOL */
    uint32_t line;
    bool from_sets; /* given by --set */
};

/* listener.NAME.x or dpdk.port.NAME.x as given. */
struct family_entry {
    char key[KEY_BYTES_MAX];
    char name[MILL_CONFIG_NAME_BYTES];
    uint32_t info; /* index in mill_key_families */
    char *text;
    uint32_t line;
    bool from_sets;
    bool used; /* its NAME exists */
};

struct mill_config {
    char file[sizeof(((struct mill_config_fault *)0)->file)];
    bool strict;
    struct value values[MILL_KEY_COUNT];
    struct family_entry families[FAMILY_ENTRIES_MAX];
    uint32_t families_count;
    struct mill_config_listener http; /* port 0: off */
    struct mill_config_listener listeners[MILL_CONFIG_LISTENERS_MAX];
    uint32_t listeners_count;
    struct mill_config_port ports[MILL_CONFIG_PORTS_MAX];
    uint32_t ports_count;
    char *dirs[DIRS_MAX];
    uint32_t dirs_count;
    uint32_t cpus[MILL_CONFIG_CORES_MAX];
    uint32_t cpus_count;
    char *run_dir;
    char *metadata_dir;
    char instance[MILL_CONFIG_INSTANCE_BYTES];
    struct mill_config_fault faults[MILL_CONFIG_FAULTS_MAX];
    uint32_t faults_count;
    bool has_error;
};

/* Where in the families table a row stands. */
enum family_key {
#define MILL_CONFIG_FAMILY_KEY(id, ...) FAMILY_##id,
#include "config/keys.def"
#undef MILL_CONFIG_FAMILY_KEY
    FAMILY_COUNT,
};

/* --- faults (faults.c) ----------------------------------------------------------------------- */

/* Adds a fault about a place. The list is bounded: its last entry says that there are more. */
void fault_at(struct mill_config *config, bool error, bool from_sets, uint32_t line,
              const char *key, const char *format, ...) MILL_PRINTF(6, 7);
/* The same about a key of the table, at the line that gave it. */
void fault_key(struct mill_config *config, bool error, enum mill_key key, const char *format, ...)
    MILL_PRINTF(4, 5);
/* The same about a family entry. */
void fault_family(struct mill_config *config, bool error, const struct family_entry *entry,
                  const char *format, ...) MILL_PRINTF(4, 5);

/* --- text (text.c) --------------------------------------------------------------------------- */

/* Next element of a comma list: trimmed, into item. ret: false at the end; an element that is too
 * long comes back cut (no valid element is). */
bool list_next(const char **at, char item[LIST_ITEM_BYTES]);
/* Distance in single-character edits and swaps of neighbours, case ignored; texts up to
 * KEY_BYTES_MAX. */
uint32_t edit_distance(const char *a, const char *b);
/* ret: 0, -EINVAL not a whole decimal number, -ERANGE outside int64. */
int parse_int(const char *text, int64_t *ret_number) MILL_WARN_UNUSED;
/* on/true/yes or their opposites. ret: 0, -EINVAL. */
int parse_bool(const char *text, bool *ret_value) MILL_WARN_UNUSED;
/* True when text is one of the words in "a|b|c". */
bool word_in(const char *choices, const char *text);
/* Checks against type, range and choices. The reason goes into report. */
int check_value(const char *text, enum mill_config_type type, int64_t min, int64_t max,
                const char *choices, const char *unit, int64_t *ret_number,
                struct mill_report *report) MILL_WARN_UNUSED;
/* Checks what lies inside a value of one key; every other is fine. ret: 0, -EINVAL (report). */
int check_parts(enum mill_key key, const char *text, struct mill_report *report) MILL_WARN_UNUSED;
/* Nearest of count names; NULL when none is near enough to be meant. */
const char *nearest_name(const char *name, const char *(*name_at)(const void *, uint32_t),
                         const void *names, uint32_t count);

/* --- syntax (properties.c) ------------------------------------------------------------------- */

/* Takes one pair: key and value are terminated, escapes resolved, value without trailing blanks. */
typedef void (*pair_fn)(void *arg, const char *key, const char *value, uint32_t line);
/* Reads Java properties text (writes into it). syntax is called with the reason for each line that
 * cannot be read. */
typedef void (*syntax_fn)(void *arg, uint32_t line, const char *reason);
void properties_parse(char *text, size_t size_bytes, pair_fn pair, syntax_fn syntax, void *arg);
/* Writes text as a properties value: escapes what the syntax would read otherwise. */
void properties_escape(const char *text, bool is_key, char *ret_text, size_t size_bytes);

/* --- families and machine -------------------------------------------------------------------- */

/* The entry of a name, NULL when not given. Marks it used. */
struct family_entry *family_find(struct mill_config *config, enum family_key key, const char *name);

void listeners_resolve(struct mill_config *config); /* listeners.c */
void advertised_resolve(struct mill_config *config);
void ports_resolve(struct mill_config *config); /* ports.c */
void ports_check_listeners(struct mill_config *config);
int parse_ipv4(const char *text, uint32_t *ret_address) MILL_WARN_UNUSED;
/* "HOST:PORT" or "[HOST]:PORT". ret: 0, -EINVAL (report). */
int parse_host_port(const char *text, char host[MILL_CONFIG_HOST_BYTES], uint16_t *ret_port,
                    struct mill_report *report) MILL_WARN_UNUSED;
void cores_resolve(struct mill_config *config);     /* machine.c */
void hugepages_resolve(struct mill_config *config); /* machine.c */
void dirs_resolve(struct mill_config *config);      /* machine.c */

#endif
