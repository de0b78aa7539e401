/* SPDX-License-Identifier: Apache-2.0 */
/* The format strings of produce and consume, one language for both: what consume writes with a
 * format, produce reads with the same one. A size before a key or value says how many bytes it has,
 * so that it may hold anything. */
#ifndef MILL_CLI_FORMAT_H
#define MILL_CLI_FORMAT_H

#include <librdkafka/rdkafka.h>
#include <stdio.h>

#include "base/compiler.h"

enum {
    FORMAT_ITEMS_MAX = 64,
    FORMAT_TEXT_BYTES = 1024,
    FORMAT_HEADERS_MAX = 64,
    FORMAT_FIELD_BYTES_MAX = 1 << 30, /* of one field that is read */
};

/* A field by its letter, or bytes that stand between fields (field 0). */
struct format_item {
    char field;
    const char *text;
    size_t size_bytes;
};

struct format {
    struct format_item items[FORMAT_ITEMS_MAX];
    uint32_t items_count;
    char text[FORMAT_TEXT_BYTES]; /* of the items, escapes resolved */
};

/* The fields and escapes, for help. */
#define FORMAT_FIELDS                                                                              \
    "%s value, %k key, %h headers, %t topic, %p partition, %o offset, %T time in ms, %S and %K "   \
    "sizes of value and key (-1: null), %%, \\n \\r \\t \\0 \\\\ \\xHH"

/* Reads a format string. ret: 0, or -EINVAL with the reason in ret_reason. */
int format_parse(const char *text, struct format *ret_format, char *ret_reason,
                 size_t reason_bytes) MILL_WARN_UNUSED;
/* Whether what the format writes can be read again. A text field must end: by bytes behind it, by a
 * size before it, or with the line. ret: 0, or -EINVAL with the reason in ret_reason. */
int format_check_reading(const struct format *format, char *ret_reason,
                         size_t reason_bytes) MILL_WARN_UNUSED;
void format_print(const struct format *format, const rd_kafka_message_t *message, FILE *out);

struct format_field {
    char *bytes;
    size_t room_bytes;
    size_t size_bytes;
    bool is_null;
};

/* A record as it was read; what the format does not name is null, or as it was before. */
struct format_record {
    struct format_field key;
    struct format_field value;
    struct format_field other; /* text of what is neither */
    int32_t partition;
    int64_t time_ms; /* 0: now */
    struct {
        char *name; /* within headers_text; terminated */
        char *value;
        size_t value_bytes;
    } headers[FORMAT_HEADERS_MAX];
    uint32_t headers_count;
    char *headers_text;
};

/* Reads the next record. A format that ends in a field is followed by a line end. ret: 1, 0 at the
 * end of the input, -EBADMSG what is there does not fit the format (ret_reason), -EIO. */
int format_read(const struct format *format, FILE *in, struct format_record *record,
                char *ret_reason, size_t reason_bytes) MILL_WARN_UNUSED;
void format_record_clear(struct format_record *record);

#endif
