/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded list of faults of one configuration. */
#include "config/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add(struct mill_config *config, bool error, bool from_sets, uint32_t line,
                const char *key, const char *format, va_list args)
    __attribute__((format(printf, 6, 0)));

static void add(struct mill_config *config, bool error, bool from_sets, uint32_t line,
                const char *key, const char *format, va_list args)
{
    config->has_error |= error;
    if (config->faults_count == MILL_CONFIG_FAULTS_MAX) {
        struct mill_config_fault *last = &config->faults[MILL_CONFIG_FAULTS_MAX - 1];
        *last = (struct mill_config_fault){.error = config->has_error};
        snprintf(last->file, sizeof(last->file), "%s", config->file);
        snprintf(last->text, sizeof(last->text), "more faults are not shown; mend these first");
        return;
    }
    struct mill_config_fault *fault = &config->faults[config->faults_count++];
    fault->line = from_sets ? 0 : line;
    fault->error = error;
    snprintf(fault->file, sizeof(fault->file), "%s", from_sets ? "--set" : config->file);
    snprintf(fault->key, sizeof(fault->key), "%s", key);
    vsnprintf(fault->text, sizeof(fault->text), format, args);
}

void fault_at(struct mill_config *config, bool error, bool from_sets, uint32_t line,
              const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(config, error, from_sets, line, key, format, args);
    va_end(args);
}

void fault_key(struct mill_config *config, bool error, enum mill_key key, const char *format, ...)
{
    const struct value *value = &config->values[key];
    va_list args;
    va_start(args, format);
    add(config, error, value->from_sets, value->line, mill_key_info(key)->name, format, args);
    va_end(args);
}

void fault_family(struct mill_config *config, bool error, const struct family_entry *entry,
                  const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(config, error, entry->from_sets, entry->line, entry->key, format, args);
    va_end(args);
}
