/* SPDX-License-Identifier: Apache-2.0 */
/* What members of the classic protocol tell each other inside opaque bytes when their type is
 * "consumer": subscriptions and assignments (Kafka's ConsumerProtocolSubscription and
 * ConsumerProtocolAssignment, versions 0 to 3). A group that holds members of both protocols reads
 * and writes them. Pure; memory from the pool. */
#ifndef MILL_CONTROL_GROUP_CONSUMER_PROTOCOL_H
#define MILL_CONTROL_GROUP_CONSUMER_PROTOCOL_H

#include "control/group/consumer.h"

struct mill_subscription {
    int16_t version;
    char **names; /* topics, as told; not NULL */
    uint32_t names_count;
    struct mill_parts owned; /* of topics that exist; none before version 1 */
    const char *rack_id;     /* NULL none */
};

/* ret: 0, -EBADMSG malformed, or over a limit, -ENOMEM. */
int mill_subscription_read(const struct mill_group_blob *from,
                           const struct mill_consumer_topics *topics, struct mill_pool *pool,
                           struct mill_subscription *ret) MILL_WARN_UNUSED;
/* No bytes are no partitions; those of topics that are gone are left out. ret: as above. */
int mill_assignment_read(const struct mill_group_blob *from,
                         const struct mill_consumer_topics *topics, struct mill_pool *pool,
                         struct mill_parts *ret) MILL_WARN_UNUSED;
/* In the version of the subscription, with which its member can read it.
 * ret: false no memory. */
bool mill_assignment_write(const struct mill_parts *parts,
                           const struct mill_group_blob *subscription,
                           const struct mill_consumer_topics *topics, struct mill_pool *pool,
                           struct mill_group_blob *ret) MILL_WARN_UNUSED;

#endif
