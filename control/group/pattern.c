/* SPDX-License-Identifier: Apache-2.0 */
/* Subscriptions' regular expressions over PCRE2; see pattern.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "control/group/pattern.h"

#include <errno.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NEST_MAX = 100,
    DEPTH_MAX = 1000,
    HEAP_KB_MAX = 1024,
};

struct mill_pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
    uint32_t items; /* tried so far */
};

/* What follows "(?" in RE2: a group without number, flags, or a name. */
static bool group_known(const char *at)
{
    if (*at == 'P') {
        return at[1] == '<';
    }
    return *at == ':' || strspn(at, "imsU-") > 0;
}

/* PCRE2 knows more than RE2. ret: what is too much, NULL nothing. */
static const char *too_much(const char *text)
{
    for (const char *at = text; *at; at++) {
        if (*at == '\\' && at[1] != '\0') {
            at++;
            if (strchr("123456789gkGKRXZ", *at)) {
                return "an escape that RE2 does not have";
            }
        } else if (*at == '(' && at[1] == '*') {
            return "a verb";
        } else if (*at == '(' && at[1] == '?' && !group_known(at + 2)) {
            return "a group that RE2 does not have";
        }
    }
    return NULL;
}

static pcre2_code *compile(const char *text, int *ret_error)
{
    PCRE2_SIZE at = 0;
    pcre2_compile_context *limits = pcre2_compile_context_create(NULL);
    pcre2_code *code = NULL;
    *ret_error = PCRE2_ERROR_NOMEMORY;
    if (limits) {
        pcre2_set_parens_nest_limit(limits, NEST_MAX);
        pcre2_set_max_pattern_length(limits, MILL_PATTERN_BYTES_MAX);
        code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                             PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY |
                                 PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT,
                             ret_error, &at, limits);
    }
    pcre2_compile_context_free(limits);
    return code;
}

/* Called before each item of the expression. ret: 0 go on, else the error of the match. */
static int count_item(pcre2_callout_block *block, void *data)
{
    struct mill_pattern *pattern = data;
    MILL_UNUSED(block);
#ifdef MILL_MUTANT_PATTERN_UNBOUNDED
    return 0;
#endif
    return ++pattern->items > MILL_PATTERN_ITEMS_MAX ? PCRE2_ERROR_CALLOUT : 0;
}

int mill_pattern_open(const char *text, char *ret_why, size_t why_bytes, struct mill_pattern **ret)
{
    int error = 0;
    const char *more = too_much(text);
    if (more) {
        snprintf(ret_why, why_bytes, "%s", more);
        return -EINVAL;
    }
    struct mill_pattern *pattern = calloc(1, sizeof(*pattern));
    if (!pattern) {
        return -ENOMEM;
    }
    pattern->code = compile(text, &error);
    if (!pattern->code) {
        bool no_memory = error == PCRE2_ERROR_NOMEMORY || error == PCRE2_ERROR_HEAP_FAILED;
        pcre2_get_error_message(error, (PCRE2_UCHAR *)ret_why, why_bytes);
        mill_pattern_close(pattern);
        return no_memory ? -ENOMEM : -EINVAL;
    }
    pattern->data = pcre2_match_data_create(1, NULL);
    pattern->limits = pcre2_match_context_create(NULL);
    if (!pattern->data || !pattern->limits) {
        mill_pattern_close(pattern);
        return -ENOMEM;
    }
    pcre2_set_depth_limit(pattern->limits, DEPTH_MAX);
    pcre2_set_heap_limit(pattern->limits, HEAP_KB_MAX);
    pcre2_set_callout(pattern->limits, count_item, pattern);
    *ret = pattern;
    return 0;
}

int mill_pattern_match(struct mill_pattern *pattern, const char *name)
{
    int rc = pcre2_match(pattern->code, (PCRE2_SPTR)name, PCRE2_ZERO_TERMINATED, 0, 0,
                         pattern->data, pattern->limits);
    if (rc >= 0) {
        return 1;
    }
    if (rc == PCRE2_ERROR_NOMEMORY) {
        return -ENOMEM;
    }
    return rc == PCRE2_ERROR_NOMATCH ? 0 : -E2BIG;
}

void mill_pattern_close(struct mill_pattern *pattern)
{
    if (pattern) {
        pcre2_match_context_free(pattern->limits);
        pcre2_match_data_free(pattern->data);
        pcre2_code_free(pattern->code);
        free(pattern);
    }
}
