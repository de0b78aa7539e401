/* SPDX-License-Identifier: Apache-2.0 */
/* The command: runs the table of checks (doctor_checks.c) and prints what was found. */
#include "cli/doctor.h"

#include <stdio.h>

#include "cli/instance.h"
#include "cli/table.h"

static const char *const levels[] = {"fine", "advice", "bad"};

static json_t *examine(const struct doctor *doctor, enum doctor_level *ret_worst)
{
    uint32_t count;
    const struct doctor_check *checks = doctor_checks(&count);
    json_t *rows = json_array();
    *ret_worst = DOCTOR_FINE;
    for (uint32_t i = 0; i < count; i++) {
        struct doctor_finding finding = {.level = DOCTOR_FINE};
        checks[i].probe(doctor, &finding);
        bool fine = finding.level == DOCTOR_FINE;
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s, s:s}", "check", checks[i].name,
                                              "level", levels[finding.level], "what",
                                              fine ? checks[i].looks : finding.what, "why",
                                              fine ? "" : checks[i].why, "mend", finding.mend));
        *ret_worst = MILL_MAX(*ret_worst, finding.level);
    }
    return rows;
}

static void print(const json_t *rows)
{
    size_t index;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, index, row)
    {
        const char *mend = json_string_value(json_object_get(row, "mend"));
        printf("%-7s %-12s %s\n", json_string_value(json_object_get(row, "level")),
               json_string_value(json_object_get(row, "check")),
               json_string_value(json_object_get(row, "what")));
        if (mend[0]) {
            printf("%21s%s\n%21smend: %s\n", "", json_string_value(json_object_get(row, "why")), "",
                   mend);
        }
    }
}

int cli_doctor(const struct cli_call *call)
{
    struct mill_config *config = NULL;
    enum doctor_level worst;
    bool json;
    if (cli_wants_json(call, &json) < 0) {
        return CLI_USAGE;
    }
    int code = instance_config(call, false, &config);
    if (code != 0) {
        return code;
    }
    static char scratch[DOCTOR_SCRATCH_BYTES];
    struct doctor doctor = {
        .root = cli_value(call, "--root", ""), .config = config, .scratch = scratch};
    json_t *rows = examine(&doctor, &worst);
    if (json) {
        json_t *root = json_pack("{s:s, s:O}", "level", levels[worst], "checks", rows);
        table_json(root);
        json_decref(root);
    } else {
        print(rows);
    }
    json_decref(rows);
    mill_config_free(config);
    return worst == DOCTOR_BAD ? CLI_FAILED : CLI_OK;
}
