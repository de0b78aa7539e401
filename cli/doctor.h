/* SPDX-License-Identifier: Apache-2.0 */
/* What on a machine keeps a broker from running well: one table of checks, which makes the output
 * of `millrace doctor`, its JSON and its page of the documents. Every probe reads files below a
 * root, so that a test can show it any machine. Reads only. */
#ifndef MILL_CLI_DOCTOR_H
#define MILL_CLI_DOCTOR_H

#include "config/config.h"

enum {
    DOCTOR_TEXT_BYTES = 320,
    DOCTOR_SCRATCH_BYTES = 65536, /* the largest file that is looked into */
};

enum doctor_level {
    DOCTOR_FINE,
    DOCTOR_ADVICE, /* it runs, others would have it faster or steadier */
    DOCTOR_BAD,    /* it will not start so, or not run as configured */
};

struct doctor {
    const char *root; /* "" on a real machine */
    const struct mill_config *config;
    char *scratch; /* DOCTOR_SCRATCH_BYTES */
};

struct doctor_finding {
    enum doctor_level level;
    char what[DOCTOR_TEXT_BYTES];
    char mend[DOCTOR_TEXT_BYTES]; /* a command */
};

struct doctor_check {
    const char *name;
    const char *looks; /* at what */
    const char *why;   /* it matters */
    /* Leaves the finding alone when all is well. */
    void (*probe)(const struct doctor *doctor, struct doctor_finding *finding);
};

const struct doctor_check *doctor_checks(uint32_t *ret_count);

#endif
