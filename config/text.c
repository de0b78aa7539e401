/* SPDX-License-Identifier: Apache-2.0 */
/* Small words of the configuration: lists, numbers, nearest names. Pure. */
#include "config/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool list_next(const char **at, char item[LIST_ITEM_BYTES])
{
    const char *from = *at;
    while (*from == ',' || isspace((unsigned char)*from)) {
        from++;
    }
    if (*from == '\0') {
        *at = from;
        return false;
    }
    size_t size = strcspn(from, ",");
    *at = from + size;
    while (size > 0 && isspace((unsigned char)from[size - 1])) {
        size--;
    }
    size = MILL_MIN(size, (size_t)LIST_ITEM_BYTES - 1);
    memcpy(item, from, size);
    item[size] = '\0';
    return true;
}

uint32_t edit_distance(const char *a, const char *b)
{
    /* Three rows of the table of Damerau's distance are enough: a swap looks two rows back. */
    uint32_t rows[3][KEY_BYTES_MAX + 1];
    size_t a_length = MILL_MIN(strlen(a), (size_t)KEY_BYTES_MAX);
    size_t b_length = MILL_MIN(strlen(b), (size_t)KEY_BYTES_MAX);
    for (uint32_t j = 0; j <= b_length; j++) {
        rows[0][j] = j;
    }
    for (uint32_t i = 1; i <= a_length; i++) {
        uint32_t *now = rows[i % 3];
        const uint32_t *above = rows[(i - 1) % 3];
        const uint32_t *two_above = rows[(i + 1) % 3];
        now[0] = i;
        for (uint32_t j = 1; j <= b_length; j++) {
            int ca = tolower((unsigned char)a[i - 1]);
            int cb = tolower((unsigned char)b[j - 1]);
            uint32_t best = above[j - 1] + (ca != cb);
            best = MILL_MIN(best, above[j] + 1);
            best = MILL_MIN(best, now[j - 1] + 1);
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                cb == tolower((unsigned char)a[i - 2])) {
                best = MILL_MIN(best, two_above[j - 2] + 1);
            }
            now[j] = best;
        }
    }
    return rows[a_length % 3][b_length];
}

const char *nearest_name(const char *name, const char *(*name_at)(const void *, uint32_t),
                         const void *names, uint32_t count)
{
    const char *best = NULL;
    uint32_t best_distance = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const char *candidate = name_at(names, i);
        uint32_t distance = candidate ? edit_distance(name, candidate) : UINT32_MAX;
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    /* A third of the letters wrong is no slip of the finger but another word. */
    uint32_t bound = MILL_MAX((uint32_t)strlen(name) / 3, 1u);
    return best_distance <= bound ? best : NULL;
}

int parse_int(const char *text, int64_t *ret_number)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits == '\0' || strspn(digits, "0123456789") != strlen(digits)) {
        return -EINVAL;
    }
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    if (errno == ERANGE) {
        return -ERANGE;
    }
    *ret_number = number;
    return 0;
}

int parse_bool(const char *text, bool *ret_value)
{
    if (strcasecmp(text, "true") == 0 || strcasecmp(text, "on") == 0) {
        *ret_value = true;
        return 0;
    }
    if (strcasecmp(text, "false") == 0 || strcasecmp(text, "off") == 0) {
        *ret_value = false;
        return 0;
    }
    return -EINVAL;
}

bool word_in(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (const char *at = choices; at && *at;) {
        size_t size = strcspn(at, "|");
        if (size == length && memcmp(at, text, length) == 0) {
            return true;
        }
        at += size + (at[size] == '|');
    }
    return false;
}

static int check_number(const char *text, int64_t min, int64_t max, const char *choices,
                        const char *unit, int64_t *ret_number, struct mill_report *report)
{
    int64_t number = 0;
    int rc = parse_int(text, &number);
    const char *blank = unit[0] ? " " : "";
    const char *or_word = choices ? ", or " : "";
    choices = choices ? choices : "";
    if (rc == -EINVAL) {
        return mill_fail(report, -EINVAL, "\"%s\" is not a whole number; give %lld to %lld%s%s%s%s",
                         text, (long long)min, (long long)max, blank, unit, or_word, choices);
    }
    if (rc < 0 || number < min || number > max) {
        return mill_fail(report, -EINVAL, "%s is out of range; give %lld to %lld%s%s%s%s", text,
                         (long long)min, (long long)max, blank, unit, or_word, choices);
    }
    *ret_number = number;
    return 0;
}

static int check_double(const char *text, int64_t min, int64_t max, struct mill_report *report)
{
    char *end = NULL;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' ||
        !(number >= (double)min && (number <= (double)max || max == INT64_MAX))) {
        return mill_fail(report, -EINVAL, "\"%s\" is not a number from %lld to %lld", text,
                         (long long)min, (long long)max);
    }
    return 0;
}

static int check_words(const char *text, bool list, const char *choices, struct mill_report *report)
{
    if (!list) {
        if (!word_in(choices, text)) {
            return mill_fail(report, -EINVAL, "\"%s\" is none of %s", text, choices);
        }
        return 0;
    }
    char item[LIST_ITEM_BYTES];
    for (const char *at = text; list_next(&at, item);) {
        if (!word_in(choices, item)) {
            return mill_fail(report, -EINVAL, "\"%s\" is none of %s (several: with commas)", item,
                             choices);
        }
    }
    return 0;
}

int check_value(const char *text, enum mill_config_type type, int64_t min, int64_t max,
                const char *choices, const char *unit, int64_t *ret_number,
                struct mill_report *report)
{
    bool truth = false;
    switch (type) {
    case MILL_CONFIG_BOOL:
        if (parse_bool(text, &truth) < 0) {
            return mill_fail(report, -EINVAL, "\"%s\" is none of %s", text,
                             choices ? choices : "true|false");
        }
        *ret_number = truth;
        return 0;
    case MILL_CONFIG_INT:
    case MILL_CONFIG_SHORT:
    case MILL_CONFIG_LONG:
        if (choices && word_in(choices, text)) {
            *ret_number = 0;
            return 0;
        }
#ifdef MILL_MUTANT_CONFIG_RANGE
        min = INT64_MIN;
#endif
        return check_number(text, min, max, choices, unit, ret_number, report);
    case MILL_CONFIG_DOUBLE:
        return check_double(text, min, max, report);
    case MILL_CONFIG_STRING:
    case MILL_CONFIG_LIST:
        return choices ? check_words(text, type == MILL_CONFIG_LIST, choices, report) : 0;
    case MILL_CONFIG_PASSWORD:
        return 0;
    }
    return mill_fail(report, -EINVAL, "unknown type of key");
}
