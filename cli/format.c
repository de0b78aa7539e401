/* SPDX-License-Identifier: Apache-2.0 */
/* See format.h. */
#include "cli/format.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS "skhtpoTSK"

enum {
    NUMBER_BYTES = 24,
    ROOM_BYTES = 256,
};

/* --- parsing -------------------------------------------------------------------------------------
 */

/* The byte of an escape at *at (behind the backslash), and how many characters it took. ret: -1
 * when it is none. */
static int escape_byte(const char *at, size_t *ret_size)
{
    static const char letters[] = "nrt0\\";
    static const char bytes[] = "\n\r\t\0\\";
    const char *found = *at ? strchr(letters, *at) : NULL;
    *ret_size = 1;
    if (found) {
        return (unsigned char)bytes[found - letters];
    }
    if (*at == 'x' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2])) {
        const char digits[3] = {at[1], at[2], '\0'};
        *ret_size = 3;
        return (int)strtol(digits, NULL, 16);
    }
    return -1;
}

/* Adds a byte to the text that is open, or opens one. ret: false without room. */
static bool add_byte(struct format *format, size_t *used, char byte)
{
    struct format_item *last =
        format->items_count > 0 ? &format->items[format->items_count - 1] : NULL;
    if (*used == sizeof(format->text)) {
        return false;
    }
    if (!last || last->field) {
        if (format->items_count == FORMAT_ITEMS_MAX) {
            return false;
        }
        last = &format->items[format->items_count++];
        *last = (struct format_item){.text = format->text + *used};
    }
    format->text[(*used)++] = byte;
    last->size_bytes++;
    return true;
}

int format_parse(const char *text, struct format *ret_format, char *ret_reason, size_t reason_bytes)
{
    struct format *format = ret_format;
    size_t used = 0;
    format->items_count = 0;
    for (const char *at = text; *at; at++) {
        bool fits = true;
        if (*at == '%' && at[1] != '%') {
            if (!at[1] || !strchr(FIELDS, at[1])) {
                snprintf(ret_reason, reason_bytes, "unknown field \"%.2s\" in \"%s\"", at, text);
                return -EINVAL;
            }
            fits = format->items_count < FORMAT_ITEMS_MAX;
            if (fits) {
                format->items[format->items_count++] = (struct format_item){.field = *++at};
            }
        } else if (*at == '\\') {
            size_t size;
            int byte = escape_byte(at + 1, &size);
            if (byte < 0) {
                snprintf(ret_reason, reason_bytes, "unknown escape \"%.2s\" in \"%s\"", at, text);
                return -EINVAL;
            }
            fits = add_byte(format, &used, (char)byte);
            at += size;
        } else {
            at += *at == '%' ? 1 : 0;
            fits = add_byte(format, &used, *at);
        }
        if (!fits) {
            snprintf(ret_reason, reason_bytes, "too long: at most %d fields and %d bytes of text",
                     FORMAT_ITEMS_MAX, FORMAT_TEXT_BYTES);
            return -EINVAL;
        }
    }
    return 0;
}

static bool is_number(char field)
{
    return field && strchr("poTSK", field) != NULL;
}

int format_check_reading(const struct format *format, char *ret_reason, size_t reason_bytes)
{
    bool sized[2] = {false, false}; /* key, value */
    bool any = false;
    for (uint32_t i = 0; i < format->items_count; i++) {
        char field = format->items[i].field;
        char next = i + 1 < format->items_count ? format->items[i + 1].field : 0;
        sized[0] = sized[0] || field == 'K';
        sized[1] = sized[1] || field == 'S';
        any = any || field == 's' || field == 'k';
        bool has_size = (field == 'k' && sized[0]) || (field == 's' && sized[1]);
        if (field && next && !has_size) {
            snprintf(ret_reason, reason_bytes,
                     "where does %%%c end and %%%c begin? put something between them", field, next);
            return -EINVAL;
        }
    }
    if (!any) {
        snprintf(ret_reason, reason_bytes, "it names neither the value (%%s) nor the key (%%k)");
        return -EINVAL;
    }
    return 0;
}

/* --- writing -------------------------------------------------------------------------------------
 */

static void put_bytes(const void *bytes, size_t size, FILE *out)
{
    if (size > 0) {
        fwrite(bytes, 1, size, out);
    }
}

static void put_headers(const rd_kafka_message_t *message, FILE *out)
{
    rd_kafka_headers_t *headers = NULL;
    const char *name;
    const void *value;
    size_t size;
    if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return;
    }
    for (size_t i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &size); i++) {
        fprintf(out, "%s%s=", i > 0 ? "," : "", name);
        put_bytes(value, value ? size : 0, out);
    }
}

/* Sizes of what is not there are -1, as kcat prints them. */
static void put_field(const rd_kafka_message_t *message, char field, FILE *out)
{
    switch (field) {
    case 's':
        put_bytes(message->payload, message->len, out);
        break;
    case 'k':
        put_bytes(message->key, message->key_len, out);
        break;
    case 'h':
        put_headers(message, out);
        break;
    case 'S':
        fprintf(out, "%lld", message->payload ? (long long)message->len : -1ll);
        break;
    case 'K':
        fprintf(out, "%lld", message->key ? (long long)message->key_len : -1ll);
        break;
    case 't':
        fprintf(out, "%s", rd_kafka_topic_name(message->rkt));
        break;
    case 'p':
        fprintf(out, "%d", message->partition);
        break;
    case 'o':
        fprintf(out, "%lld", (long long)message->offset);
        break;
    default: /* 'T': the format was parsed */
        fprintf(out, "%lld", (long long)rd_kafka_message_timestamp(message, NULL));
        break;
    }
}

void format_print(const struct format *format, const rd_kafka_message_t *message, FILE *out)
{
    for (uint32_t i = 0; i < format->items_count; i++) {
        const struct format_item *item = &format->items[i];
        if (item->field) {
            put_field(message, item->field, out);
        } else {
            put_bytes(item->text, item->size_bytes, out);
        }
    }
}

/* --- reading -------------------------------------------------------------------------------------
 */

/* What is read now. */
struct reading {
    FILE *in;
    struct format_record *record;
    char *reason;
    size_t reason_bytes;
    int64_t sizes[2]; /* of key and value as told; -2: not */
    bool begun;       /* a byte of this record was read */
};

static int misfit(const struct reading *reading, const char *text)
{
    snprintf(reading->reason, reading->reason_bytes, "%s", text);
    return -EBADMSG;
}

/* Room for at least one byte more. ret: 0, -EBADMSG too large. */
static int field_room(const struct reading *reading, struct format_field *field, size_t size)
{
    if (size > FORMAT_FIELD_BYTES_MAX) {
        return misfit(reading, "a field of more than 1 GiB");
    }
    if (size < field->room_bytes) {
        return 0;
    }
    size_t room = MILL_MAX(2 * size, (size_t)ROOM_BYTES);
    char *bytes = realloc(field->bytes, room);
    if (!bytes) {
        return misfit(reading, "out of memory");
    }
    field->bytes = bytes;
    field->room_bytes = room;
    return 0;
}

static int take_byte(struct reading *reading)
{
    int byte = getc(reading->in);
    reading->begun = reading->begun || byte != EOF;
    return byte;
}

/* Reads exactly size bytes; -1 gives null. */
static int read_sized(struct reading *reading, int64_t size, struct format_field *field)
{
    field->is_null = size < 0;
    field->size_bytes = size < 0 ? 0 : (size_t)size;
    int r = field_room(reading, field, field->size_bytes);
    if (r < 0) {
        return r;
    }
    size_t got = fread(field->bytes, 1, field->size_bytes, reading->in);
    reading->begun = reading->begun || got > 0;
    return got == field->size_bytes ? 0 : misfit(reading, "the input ends inside a field");
}

/* Reads up to the bytes of end, which are taken too. At the end of the input a line end may be
 * missing: is_last. */
static int read_until(struct reading *reading, const char *end, size_t end_bytes, bool is_last,
                      struct format_field *field)
{
    field->is_null = false;
    field->size_bytes = 0;
    for (;;) {
        int byte = take_byte(reading);
        if (byte == EOF) {
            return is_last && reading->begun ? 0
                                             : misfit(reading, "the input ends inside a record");
        }
        int r = field_room(reading, field, field->size_bytes + 1);
        if (r < 0) {
            return r;
        }
        field->bytes[field->size_bytes++] = (char)byte;
        if (field->size_bytes >= end_bytes &&
            memcmp(field->bytes + field->size_bytes - end_bytes, end, end_bytes) == 0) {
            field->size_bytes -= end_bytes;
            return 0;
        }
    }
}

/* Bytes that must stand here. */
static int read_text(struct reading *reading, const char *text, size_t size, bool is_last)
{
    for (size_t i = 0; i < size; i++) {
        int byte = take_byte(reading);
        if (byte == EOF && is_last && i == 0) {
            return 0;
        }
        if (byte != (unsigned char)text[i]) {
            return misfit(reading, byte == EOF ? "the input ends inside a record"
                                               : "other bytes stand between the fields");
        }
    }
    return 0;
}

static int take_number(struct reading *reading, char name)
{
    const struct format_field *field = &reading->record->other;
    struct format_record *record = reading->record;
    char text[NUMBER_BYTES];
    char *end = NULL;
    if (field->size_bytes == 0 || field->size_bytes >= sizeof(text)) {
        return misfit(reading, "a number is missing");
    }
    memcpy(text, field->bytes, field->size_bytes);
    text[field->size_bytes] = '\0';
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (*end || errno) {
        return misfit(reading, "something that is no number stands where one belongs");
    }
    if (name == 'K' || name == 'S') {
        if (number < -1 || number > FORMAT_FIELD_BYTES_MAX) {
            return misfit(reading, "a size below -1 or above 1 GiB");
        }
        reading->sizes[name == 'S'] = number;
    } else if (name == 'p') {
        if (number < -1 || number > INT32_MAX) {
            return misfit(reading, "a partition that cannot be");
        }
        record->partition = (int32_t)number;
    } else if (name == 'T') {
        record->time_ms = MILL_MAX(number, 0ll);
    }
    return 0; /* an offset is the broker's to give */
}

/* NAME=VALUE, separated by commas. */
static int take_headers(struct reading *reading)
{
    struct format_record *record = reading->record;
    const struct format_field *field = &record->other;
    free(record->headers_text);
    record->headers_count = 0;
    record->headers_text = malloc(field->size_bytes + 1);
    if (!record->headers_text) {
        return misfit(reading, "out of memory");
    }
    if (field->size_bytes > 0) {
        memcpy(record->headers_text, field->bytes, field->size_bytes);
    }
    record->headers_text[field->size_bytes] = '\0';
    char *at = record->headers_text;
    char *last = at + field->size_bytes;
    while (at < last) {
        char *comma = memchr(at, ',', (size_t)(last - at));
        char *end = comma ? comma : last;
        char *equals = memchr(at, '=', (size_t)(end - at));
        if (!equals || equals == at || record->headers_count == FORMAT_HEADERS_MAX) {
            return misfit(reading, "headers are NAME=VALUE, separated by commas, at most 64");
        }
        *equals = '\0';
        record->headers[record->headers_count].name = at;
        record->headers[record->headers_count].value = equals + 1;
        record->headers[record->headers_count++].value_bytes = (size_t)(end - equals - 1);
        at = end + 1;
    }
    return 0;
}

static struct format_field *place_of(struct format_record *record, char field)
{
    return field == 's' ? &record->value : field == 'k' ? &record->key : &record->other;
}

/* Reads item i, and the text behind it, which ends it. ret: items that were read, or an error. */
static int read_item(struct reading *reading, const struct format *format, uint32_t i)
{
    const struct format_item *item = &format->items[i];
    const struct format_item *next = i + 1 < format->items_count ? item + 1 : NULL;
    bool is_last = !next || i + 2 == format->items_count;
    if (!item->field) {
        int r = read_text(reading, item->text, item->size_bytes, !next);
        return r < 0 ? r : 1;
    }
    struct format_field *field = place_of(reading->record, item->field);
    int64_t size = item->field == 'k'   ? reading->sizes[0]
                   : item->field == 's' ? reading->sizes[1]
                                        : -2;
    if (size > -2) {
        int r = read_sized(reading, size, field);
        return r < 0 ? r : 1;
    }
    int r =
        read_until(reading, next ? next->text : "\n", next ? next->size_bytes : 1, is_last, field);
    if (r == 0 && is_number(item->field)) {
        r = take_number(reading, item->field);
    } else if (r == 0 && item->field == 'h') {
        r = take_headers(reading);
    }
    return r < 0 ? r : 2;
}

int format_read(const struct format *format, FILE *in, struct format_record *record,
                char *ret_reason, size_t reason_bytes)
{
    struct reading reading = {.in = in,
                              .record = record,
                              .reason = ret_reason,
                              .reason_bytes = reason_bytes,
                              .sizes = {-2, -2}};
    record->key.is_null = true;
    record->value.is_null = true;
    record->headers_count = 0;
    int byte = getc(in);
    if (byte == EOF) {
        return ferror(in) ? -EIO : 0;
    }
    ungetc(byte, in);
    for (uint32_t i = 0; i < format->items_count;) {
        int taken = read_item(&reading, format, i);
        if (taken < 0) {
            return ferror(in) ? -EIO : taken;
        }
        i += (uint32_t)taken;
    }
    /* A field that told its size at the very end is followed by a line end of its own. */
    const struct format_item *last = &format->items[format->items_count - 1];
    if (last->field && ((last->field == 'k' && reading.sizes[0] > -2) ||
                        (last->field == 's' && reading.sizes[1] > -2))) {
        int r = read_text(&reading, "\n", 1, true);
        return r < 0 ? r : 1;
    }
    return 1;
}

void format_record_clear(struct format_record *record)
{
    free(record->key.bytes);
    free(record->value.bytes);
    free(record->other.bytes);
    free(record->headers_text);
    *record = (struct format_record){0};
}
