/* SPDX-License-Identifier: Apache-2.0 */
/* Java's properties syntax: comments, separators, continued lines and escapes. Knows no key.
 * Reference: the documentation of java.util.Properties.load. Pure. */
#include "config/internal.h"

#include <stdio.h>
#include <string.h>

struct reader {
    char *at;
    char *end;
    uint32_t line;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\f';
}

/* Number of the characters of a line end at at: CR LF, CR or LF. */
static size_t line_end(const struct reader *reader)
{
    if (reader->at[0] == '\r') {
        return reader->at + 1 < reader->end && reader->at[1] == '\n' ? 2 : 1;
    }
    return reader->at[0] == '\n' ? 1 : 0;
}

/* Takes one logical line: joins lines that end in an odd number of backslashes and drops the blanks
 * that the next one starts with. The result is written over the text read, always at or before it.
 * Escapes stay. */
static char *logical_line(struct reader *reader)
{
    char *start = reader->at;
    char *to = start;
    uint32_t backslashes = 0;
    while (reader->at < reader->end) {
        size_t skip = line_end(reader);
        if (skip == 0) {
            backslashes = *reader->at == '\\' ? backslashes + 1 : 0;
            *to++ = *reader->at++;
            continue;
        }
        reader->at += skip;
        reader->line++;
        if (backslashes % 2 == 0) {
            break;
        }
        to--;
        backslashes = 0;
        while (reader->at < reader->end && is_blank(*reader->at)) {
            reader->at++;
        }
    }
    *to = '\0';
    return start;
}

/* Reads the four hexadecimal digits of a \u escape. ret: the number, -1 when they are not there. */
static int32_t hex4(const char *at)
{
    int32_t code = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        char c = at[i];
        if (c >= 'A' && c <= 'F') {
            c = (char)(c - 'A' + 'a');
        }
        const char *found = c ? strchr(digits, c) : NULL;
        if (!found) {
            return -1;
        }
        code = code * 16 + (int32_t)(found - digits);
    }
    return code;
}

static char *put_utf8(char *to, int32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | (code >> 6));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xe0 | (code >> 12));
        *to++ = (char)(0x80 | ((code >> 6) & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* Resolves escapes in place. ret: NULL, or the reason why the line cannot be read. */
static const char *unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != '\\') {
            *to++ = *from;
            continue;
        }
        from++;
        if (*from == '\0') {
            break;
        }
        if (*from == 'u') {
            int32_t code = hex4(from + 1);
            if (code <= 0) {
                return code == 0 ? "\\u0000 is not allowed" : "\\u needs four hexadecimal digits";
            }
            if (code >= 0xd800 && code <= 0xdfff) {
                return "\\u names half of a surrogate pair; write the character itself";
            }
            to = put_utf8(to, code);
            from += 4;
            continue;
        }
        const char *letters = "tnrf";
        const char *means = "\t\n\r\f";
        const char *found = strchr(letters, *from);
        *to++ = found ? means[found - letters] : *from;
    }
    *to = '\0';
    return NULL;
}

/* Splits at the first separator that no backslash precedes: = or : with blanks around, or blanks.
 */
static char *split(char *line)
{
    char *at = line;
    while (*at && !is_blank(*at) && *at != '=' && *at != ':') {
        at += *at == '\\' && at[1] ? 2 : 1;
    }
    char *key_end = at;
    while (is_blank(*at)) {
        at++;
    }
    if (*at == '=' || *at == ':') {
        at++;
        while (is_blank(*at)) {
            at++;
        }
    }
    if (*key_end) {
        *key_end = '\0';
    }
    return at;
}

/* Kafka trims values; an escaped blank at the end stays. */
static void trim_end(char *value)
{
    size_t size = strlen(value);
    while (size > 0 && is_blank(value[size - 1]) && !(size > 1 && value[size - 2] == '\\')) {
        value[--size] = '\0';
    }
}

void properties_parse(char *text, size_t size_bytes, pair_fn pair, syntax_fn syntax, void *arg)
{
    struct reader reader = {.at = text, .end = text + size_bytes, .line = 1};
    while (reader.at < reader.end) {
        while (reader.at < reader.end && is_blank(*reader.at)) {
            reader.at++;
        }
        if (reader.at == reader.end) {
            return;
        }
        if (*reader.at == '#' || *reader.at == '!') {
            reader.at += strcspn(reader.at, "\r\n");
        }
        size_t skip = reader.at < reader.end ? line_end(&reader) : 0;
        if (skip > 0) {
            reader.at += skip;
            reader.line++;
            continue;
        }
        if (reader.at == reader.end) {
            return;
        }
        uint32_t line_number = reader.line;
        char *key = logical_line(&reader);
        char *value = split(key);
        trim_end(value);
        const char *reason = unescape(key);
        reason = reason ? reason : unescape(value);
        if (!reason && key[0] == '\0') {
            reason = "no key before the separator";
        }
        if (reason) {
            syntax(arg, line_number, reason);
        } else {
            pair(arg, key, value, line_number);
        }
    }
}

void properties_escape(const char *text, bool is_key, char *ret_text, size_t size_bytes)
{
    size_t used = 0;
    for (const char *from = text; *from && used + 3 < size_bytes; from++) {
        const char *letters = "tnrf";
        const char *means = "\t\n\r\f";
        const char *found = strchr(means, *from);
        bool edge = from == text || from[1] == '\0';
        if (found && *found) {
            ret_text[used++] = '\\';
            ret_text[used++] = letters[found - means];
            continue;
        }
        bool separator = is_key && strchr("=: #!", *from);
        if (*from == '\\' || separator || (*from == ' ' && edge)) {
            ret_text[used++] = '\\';
        }
        ret_text[used++] = *from;
    }
    ret_text[used] = '\0';
}
