/* SPDX-License-Identifier: Apache-2.0 */
/* See table.h. */
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

enum {
    CELL_BYTES = 160,
    COLUMNS_MAX = 32,
};

static void cell_text(const json_t *value, char ret_text[CELL_BYTES])
{
    if (json_is_string(value)) {
        snprintf(ret_text, CELL_BYTES, "%s", json_string_value(value));
    } else if (json_is_integer(value)) {
        snprintf(ret_text, CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        snprintf(ret_text, CELL_BYTES, "%.3f", json_real_value(value));
    } else if (json_is_boolean(value)) {
        snprintf(ret_text, CELL_BYTES, "%s", json_is_true(value) ? "true" : "false");
    } else {
        snprintf(ret_text, CELL_BYTES, "-");
    }
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
            cell_text(json_object_get(row, columns[count]), text);
            widths[count] = MILL_MAX(widths[count], (int)strlen(text));
        }
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        printf("%-*s%s", i + 1 < count ? widths[i] : 0, columns[i], i + 1 < count ? "  " : "\n");
    }
    json_array_foreach(rows, index, row)
    {
        for (uint32_t i = 0; i < count; i++) {
            cell_text(json_object_get(row, columns[i]), text);
            printf("%-*s%s", i + 1 < count ? widths[i] : 0, text, i + 1 < count ? "  " : "\n");
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
            cell_text(value, text);
            printf(" %s=%s", name, text);
        }
    }
    printf("\n");
}

void table_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    printf("\n");
}
