/* SPDX-License-Identifier: Apache-2.0 */
/* What every program of the project does with a configuration and with its sisters: print the
 * faults, find the other programs. Main thread, at start. */
#ifndef MILL_CONFIG_PROGRAM_H
#define MILL_CONFIG_PROGRAM_H

#include "config/config.h"

enum {
    MILL_PROGRAM_PATH_BYTES = 768,
};

/* One fault as "FILE:LINE: KEY: text", with "warning: " before the key of a warning. */
void mill_program_fault_text(const struct mill_config_fault *fault, char *ret_text,
                             size_t size_bytes);

/* Prints a configuration's faults on standard error, a line each, errors first. program stands
 * before each. ret: how many errors. */
uint32_t mill_program_faults(const struct mill_config *config, const char *program, bool warnings);

/* Path of a program of ours: beside this one, else as found in PATH, else the path beside this one,
 * so that a message about it names a place. */
void mill_program_find(const char *name, char ret_path[MILL_PROGRAM_PATH_BYTES]);

#endif
