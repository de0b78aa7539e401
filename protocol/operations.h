/* SPDX-License-Identifier: Apache-2.0 */
/* What may be done to a resource, as a set of Kafka's AclOperation codes: bit N is operation N
 * (KIP-430). Without an authorizer everybody may do all that there is for its kind. */
#ifndef MILL_PROTOCOL_OPERATIONS_H
#define MILL_PROTOCOL_OPERATIONS_H

#include <stdint.h>

enum mill_operation {
    MILL_OPERATION_READ = 3,
    MILL_OPERATION_WRITE = 4,
    MILL_OPERATION_CREATE = 5,
    MILL_OPERATION_DELETE = 6,
    MILL_OPERATION_ALTER = 7,
    MILL_OPERATION_DESCRIBE = 8,
    MILL_OPERATION_CLUSTER_ACTION = 9,
    MILL_OPERATION_DESCRIBE_CONFIGS = 10,
    MILL_OPERATION_ALTER_CONFIGS = 11,
    MILL_OPERATION_IDEMPOTENT_WRITE = 12,
};

enum mill_operations {
    MILL_OPERATIONS_UNTOLD = INT32_MIN, /* nobody asked */
    MILL_OPERATIONS_CONFIGS =
        1 << MILL_OPERATION_DESCRIBE_CONFIGS | 1 << MILL_OPERATION_ALTER_CONFIGS,
    MILL_OPERATIONS_TOPIC = 1 << MILL_OPERATION_READ | 1 << MILL_OPERATION_WRITE |
                            1 << MILL_OPERATION_CREATE | 1 << MILL_OPERATION_DELETE |
                            1 << MILL_OPERATION_ALTER | 1 << MILL_OPERATION_DESCRIBE |
                            MILL_OPERATIONS_CONFIGS,
    MILL_OPERATIONS_GROUP = 1 << MILL_OPERATION_READ | 1 << MILL_OPERATION_DELETE |
                            1 << MILL_OPERATION_DESCRIBE | MILL_OPERATIONS_CONFIGS,
    MILL_OPERATIONS_CLUSTER = 1 << MILL_OPERATION_CREATE | 1 << MILL_OPERATION_ALTER |
                              1 << MILL_OPERATION_DESCRIBE | 1 << MILL_OPERATION_CLUSTER_ACTION |
                              1 << MILL_OPERATION_IDEMPOTENT_WRITE | MILL_OPERATIONS_CONFIGS,
};

#endif
