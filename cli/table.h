/* SPDX-License-Identifier: Apache-2.0 */
/* Output of JSON values as text tables, so that both forms come from the same data. */
#ifndef MILL_CLI_TABLE_H
#define MILL_CLI_TABLE_H

#include <jansson.h>

#include "base/compiler.h"

/* Prints an array of objects as a table of the named columns (NULL ends the list). An empty array
 * prints its heading only. */
void table_print(const json_t *rows, const char *const *columns);
/* Prints an object's plain members as "name=value" on one line after a title. */
void table_line(const char *title, const json_t *object);
/* Prints a JSON value, indented, with a line end. */
void table_json(const json_t *value);

#endif
