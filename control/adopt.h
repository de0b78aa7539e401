/* SPDX-License-Identifier: Apache-2.0 */
/* Takes over log directories that Kafka wrote: what lies there becomes the metadata of this broker.
 * Once, before any process of the instance runs; may block. */
#ifndef MILL_CONTROL_ADOPT_H
#define MILL_CONTROL_ADOPT_H

#include "base/report.h"
#include "config/config.h"

/* Reads the directories of log.dirs, changes nothing in them, and makes the metadata store of what
 * it found: cluster and node, topics with their ids, partition counts and the next leader epoch,
 * and producer ids that none of the logs has seen. Topic settings are not in Kafka's directories:
 * adopted topics keep everything (retention -1) until somebody sets theirs. The store appears whole
 * or not at all. ret: 0; -EEXIST there is one already; -EPERM, -EINVAL, -EBUSY what lies there
 * cannot be adopted; -errno; report says why and what to do. */
int mill_adopt(const struct mill_config *config, struct mill_report *report) MILL_WARN_UNUSED;

#endif
