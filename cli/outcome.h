/* SPDX-License-Identifier: Apache-2.0 */
/* What became of each topic or group that a call named: a line each, or with -o json an array. */
#ifndef MILL_CLI_OUTCOME_H
#define MILL_CLI_OUTCOME_H

#include <jansson.h>

#include "cli/client.h"

struct outcomes {
    const char *verb; /* "created" */
    bool json;
    json_t *rows; /* name, done, error, message */
    int code;
};

/* Reads -o. ret: 0; -EINVAL after cli_fail, and there is nothing to end. */
int outcomes_begin(const struct cli_call *call, const char *verb,
                   struct outcomes *ret) MILL_WARN_UNUSED;
/* error: 0 done. tolerated: an error that is no failure, 0 none. text: NULL, the error's own. */
void outcomes_add(struct outcomes *outcomes, const char *name, rd_kafka_resp_err_t error,
                  rd_kafka_resp_err_t tolerated, const char *text);
/* Prints the array. code: of the call, when it did not get as far as an outcome. ret: exit code. */
int outcomes_end(struct outcomes *outcomes, int code);

#endif
