/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys as data: info, search, nearest name, check of a value. Pure; any thread. */
#include "config/internal.h"

#include <errno.h>
#include <string.h>

#define USED          true
#define LATER         false
#define MILL_KEY_NONE MILL_KEY_COUNT

static const struct mill_key_info infos[MILL_KEY_COUNT] = {
#define MILL_CONFIG_KEY(id, name_, alias_, type_, unit_, default_, min_, max_, choices_, use_,     \
                        help_)                                                                     \
    [MILL_KEY_##id] = {                                                                            \
        .name = name_,                                                                             \
        .alias = alias_,                                                                           \
        .type = MILL_CONFIG_##type_,                                                               \
        .scope = MILL_SCOPE_BROKER,                                                                \
        .unit = unit_,                                                                             \
        .default_text = default_,                                                                  \
        .min = min_,                                                                               \
        .max = max_,                                                                               \
        .choices = choices_,                                                                       \
        .help = help_,                                                                             \
        .in_use = use_,                                                                            \
        .broker_key = MILL_KEY_COUNT,                                                              \
    },
#define MILL_CONFIG_TOPIC_KEY(id, name_, type_, unit_, default_, min_, max_, choices_, use_,       \
                              broker_, help_)                                                      \
    [MILL_TOPIC_KEY_##id] = {                                                                      \
        .name = name_,                                                                             \
        .alias = NULL,                                                                             \
        .type = MILL_CONFIG_##type_,                                                               \
        .scope = MILL_SCOPE_TOPIC,                                                                 \
        .unit = unit_,                                                                             \
        .default_text = default_,                                                                  \
        .min = min_,                                                                               \
        .max = max_,                                                                               \
        .choices = choices_,                                                                       \
        .help = help_,                                                                             \
        .in_use = use_,                                                                            \
        .broker_key = MILL_KEY_##broker_,                                                          \
    },
#include "config/keys.def"
#undef MILL_CONFIG_KEY
#undef MILL_CONFIG_TOPIC_KEY
};

static const struct {
    enum mill_key key;
    struct mill_key_synonym synonym;
} synonyms[] = {
#define MILL_CONFIG_SYNONYM(key_, other, factor_)                                                  \
    {MILL_KEY_##key_, {.key = MILL_KEY_##other, .factor = factor_}},
#include "config/keys.def"
#undef MILL_CONFIG_SYNONYM
};

static const bool dynamics[MILL_KEY_COUNT] = {
#define MILL_CONFIG_DYNAMIC(key_) [MILL_KEY_##key_] = true,
#include "config/keys.def"
#undef MILL_CONFIG_DYNAMIC
};

#define PATTERN_LISTENER "listener.NAME."
#define PATTERN_PORT     "dpdk.port.NAME."

static const struct mill_key_family_info families[FAMILY_COUNT] = {
#define MILL_CONFIG_FAMILY_KEY(id, family_, name_, type_, unit_, default_, min_, max_, choices_,   \
                               help_)                                                              \
    [FAMILY_##id] = {                                                                              \
        .pattern = PATTERN_##family_,                                                              \
        .name = name_,                                                                             \
        .type = MILL_CONFIG_##type_,                                                               \
        .unit = unit_,                                                                             \
        .default_text = default_,                                                                  \
        .min = min_,                                                                               \
        .max = max_,                                                                               \
        .choices = choices_,                                                                       \
        .help = help_,                                                                             \
    },
#include "config/keys.def"
#undef MILL_CONFIG_FAMILY_KEY
};

const struct mill_key_info *mill_key_info(enum mill_key key)
{
    MILL_ASSERT_LT((uint32_t)key, (uint32_t)MILL_KEY_COUNT);
    return &infos[key];
}

enum mill_key mill_key_find(enum mill_config_scope scope, const char *name)
{
    for (uint32_t i = 0; i < MILL_KEY_COUNT; i++) {
        const struct mill_key_info *info = &infos[i];
        if (info->scope == scope &&
            (strcmp(info->name, name) == 0 || (info->alias && strcmp(info->alias, name) == 0))) {
            return (enum mill_key)i;
        }
    }
    return MILL_KEY_COUNT;
}

/* Names first, then aliases; those of the other scope are left out. */
static const char *name_of_scope(const void *arg, uint32_t index)
{
    const enum mill_config_scope *scope = arg;
    const struct mill_key_info *info = &infos[index % MILL_KEY_COUNT];
    if (info->scope != *scope) {
        return NULL;
    }
    return index < MILL_KEY_COUNT ? info->name : info->alias;
}

const char *mill_key_nearest(enum mill_config_scope scope, const char *name)
{
    return nearest_name(name, name_of_scope, &scope, 2 * MILL_KEY_COUNT);
}

bool mill_key_is_dynamic(enum mill_key key)
{
    MILL_ASSERT_LT((uint32_t)key, (uint32_t)MILL_KEY_COUNT);
    return dynamics[key];
}

int mill_key_check(enum mill_key key, const char *text, struct mill_report *report)
{
    const struct mill_key_info *info = mill_key_info(key);
    int64_t number;
    int rc = check_value(text, info->type, info->min, info->max, info->choices, info->unit, &number,
                         report);
    return rc < 0 ? rc : check_parts(key, text, report);
}

uint32_t mill_key_synonyms(enum mill_key key,
                           struct mill_key_synonym ret_synonyms[MILL_CONFIG_SYNONYMS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MILL_COUNT_OF(synonyms); i++) {
        if (synonyms[i].key == key && count < MILL_CONFIG_SYNONYMS_MAX) {
            ret_synonyms[count++] = synonyms[i].synonym;
        }
    }
    return count;
}

uint32_t mill_key_families(const struct mill_key_family_info **ret_families)
{
    *ret_families = families;
    return FAMILY_COUNT;
}
