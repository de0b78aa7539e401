/* SPDX-License-Identifier: Apache-2.0 */
/* See outcome.h. */
#include "cli/outcome.h"

#include <errno.h>
#include <stdio.h>

#include "cli/table.h"

int outcomes_begin(const struct cli_call *call, const char *verb, struct outcomes *ret)
{
    bool json;
    if (cli_wants_json(call, &json) < 0) {
        return -EINVAL;
    }
    *ret = (struct outcomes){.verb = verb, .json = json, .rows = json_array(), .code = CLI_OK};
    return 0;
}

void outcomes_add(struct outcomes *outcomes, const char *name, rd_kafka_resp_err_t error,
                  rd_kafka_resp_err_t tolerated, const char *text)
{
    const char *message = text && text[0] ? text : rd_kafka_err2str(error);
    json_array_append_new(outcomes->rows,
                          json_pack("{s:s, s:b, s:s?, s:s?}", "name", name, "done", !error, "error",
                                    error ? rd_kafka_err2name(error) : NULL, "message",
                                    error ? message : NULL));
    if (error && error != tolerated) {
        outcomes->code =
            cli_fail(CLI_FAILED, "%s: %s (%s)", name, message, rd_kafka_err2name(error));
    } else if (error && !outcomes->json) {
        printf("%s: %s\n", name, rd_kafka_err2str(error));
    } else if (!outcomes->json) {
        printf("%s %s\n", outcomes->verb, name);
    }
}

int outcomes_end(struct outcomes *outcomes, int code)
{
    if (outcomes->json) {
        table_json(outcomes->rows);
    }
    json_decref(outcomes->rows);
    return code == CLI_OK ? outcomes->code : code;
}
