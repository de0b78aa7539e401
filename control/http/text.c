/* SPDX-License-Identifier: Apache-2.0 */
/* See text.h. */
#include "control/http/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_BYTES = 64 << 10,
};

/* Room for size_bytes more and a zero. ret: false when there is none. */
static bool room(struct mill_text *text, size_t size_bytes)
{
    size_t needed = text->used_bytes + size_bytes + 1;
    if (text->failed || needed > MILL_TEXT_BYTES_MAX) {
        text->failed = true;
        return false;
    }
    if (needed <= text->room_bytes) {
        return true;
    }
    size_t grown = MILL_MAX(MILL_MAX(text->room_bytes * 2, (size_t)FIRST_BYTES), needed);
    char *bytes = realloc(text->bytes, grown);
    if (!bytes) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->room_bytes = grown;
    return true;
}

void mill_text_add(struct mill_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0 || !room(text, (size_t)length)) {
        text->failed = true;
        return;
    }
    va_start(arguments, format);
    vsnprintf(text->bytes + text->used_bytes, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->used_bytes += (size_t)length;
}

static void put(struct mill_text *text, const char *bytes, size_t size_bytes)
{
    if (room(text, size_bytes)) {
        memcpy(text->bytes + text->used_bytes, bytes, size_bytes);
        text->used_bytes += size_bytes;
    }
}

static void put_text(struct mill_text *text, const char *value)
{
    put(text, value, strlen(value));
}

/* Escapes as a label's value wants it; a help line leaves its quotes. */
static void put_escaped(struct mill_text *text, const char *value, size_t size_bytes, bool quotes)
{
    for (size_t i = 0; i < size_bytes && value[i] != '\0'; i++) {
        char c = value[i];
        if (c == '\\') {
            put_text(text, "\\\\");
        } else if (c == '\n') {
            put_text(text, "\\n");
        } else if (c == '"' && quotes) {
#ifdef MILL_MUTANT_HTTP_UNESCAPED
            put_text(text, "\"");
#else
            put_text(text, "\\\"");
#endif
        } else {
            put(text, c >= ' ' && c <= '~' ? &c : "?", 1);
        }
    }
}

void mill_text_metric(struct mill_text *text, const char *name, const char *type, const char *help)
{
    mill_text_add(text, "# HELP %s ", name);
    put_escaped(text, help, strlen(help), false);
    mill_text_add(text, "\n# TYPE %s %s\n", name, type);
}

static void put_head(struct mill_text *text, const char *name, const char *suffix,
                     const struct mill_label *labels, uint32_t labels_count)
{
    put_text(text, name);
    put_text(text, suffix);
    for (uint32_t i = 0; i < labels_count; i++) {
        put_text(text, i == 0 ? "{" : ",");
        put_text(text, labels[i].name);
        put_text(text, "=\"");
        put_escaped(text, labels[i].value, labels[i].size_bytes, true);
        put_text(text, "\"");
    }
    put_text(text, labels_count > 0 ? "} " : " ");
}

void mill_text_sample(struct mill_text *text, const char *name, const char *suffix,
                      const struct mill_label *labels, uint32_t labels_count, double value)
{
    put_head(text, name, suffix, labels, labels_count);
    mill_text_add(text, "%.12g\n", value);
}

void mill_text_sample_u64(struct mill_text *text, const char *name, const char *suffix,
                          const struct mill_label *labels, uint32_t labels_count, uint64_t value)
{
    put_head(text, name, suffix, labels, labels_count);
    mill_text_add(text, "%llu\n", (unsigned long long)value);
}
