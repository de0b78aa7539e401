/* SPDX-License-Identifier: Apache-2.0 */
/* See table.h. */
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

enum {
    CELL_BYTES = 160,
    COLUMNS_MAX = 32,
    NUMBER_BYTES = 24,
};

/* ids of a list, as in "1,2,3"; what has no room ends as "...". */
static void list_text(const json_t *list, char ret_text[CELL_BYTES])
{
    static const char more[] = "...";
    size_t used = 0;
    size_t index;
    json_t *one;
    snprintf(ret_text, CELL_BYTES, "-");
    json_array_foreach((json_t *)(uintptr_t)list, index, one)
    {
        char number[NUMBER_BYTES];
        int size = snprintf(number, sizeof(number), "%s%" JSON_INTEGER_FORMAT, index > 0 ? "," : "",
                            json_integer_value(one));
        if (used + (size_t)size + sizeof(more) >= CELL_BYTES) {
            snprintf(ret_text + used, CELL_BYTES - used, "%s", more);
            return;
        }
        snprintf(ret_text + used, CELL_BYTES - used, "%s", number);
        used += (size_t)size;
    }
}

/* ret: what stands in a cell, whole: in room, or in value itself. */
static const char *cell_text(const json_t *value, char room[CELL_BYTES])
{
    if (json_is_string(value)) {
        return json_string_value(value);
    }
    if (json_is_integer(value)) {
        snprintf(room, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        snprintf(room, CELL_BYTES, "%.3f", json_real_value(value));
    } else if (json_is_boolean(value)) {
        snprintf(room, CELL_BYTES, "%s", json_is_true(value) ? "true" : "false");
    } else if (json_is_array(value)) {
        list_text(value, room);
    } else {
        snprintf(room, CELL_BYTES, "-");
    }
    return room;
}

void table_print(const json_t *rows, const char *const *columns)
{
    int widths[COLUMNS_MAX];
    char text[CELL_BYTES];
    uint32_t count = 0;
    size_t index;
    json_t *row;
    while (columns[count] && count < COLUMNS_MAX) {
        widths[count] = (int)strlen(columns[count]);
        json_array_foreach(rows, index, row)
        {
            const char *cell = cell_text(json_object_get(row, columns[count]), text);
            widths[count] = MILL_MAX(widths[count], (int)strlen(cell));
        }
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        printf("%-*s%s", i + 1 < count ? widths[i] : 0, columns[i], i + 1 < count ? "  " : "\n");
    }
    json_array_foreach(rows, index, row)
    {
        for (uint32_t i = 0; i < count; i++) {
            const char *cell = cell_text(json_object_get(row, columns[i]), text);
            printf("%-*s%s", i + 1 < count ? widths[i] : 0, cell, i + 1 < count ? "  " : "\n");
        }
    }
}

void table_line(const char *title, const json_t *object)
{
    const char *name;
    json_t *value;
    char text[CELL_BYTES];
    printf("%s:", title);
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!json_is_object(value) && !json_is_array(value)) {
            printf(" %s=%s", name, cell_text(value, text));
        }
    }
    printf("\n");
}

void table_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    printf("\n");
}
