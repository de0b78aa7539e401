/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders of requests behind one type, for helpers that send any of them. */
#ifndef MILL_TESTS_UNIT_ENCODER_H
#define MILL_TESTS_UNIT_ENCODER_H

#include "protocol/messages.h"

/* Makes name_out of mill_name_request_encode. */
#define ENCODER(name)                                                                              \
    static int name##_out(struct mill_writer *to, int16_t version, const void *message)            \
    {                                                                                              \
        return mill_##name##_request_encode(to, version, message);                                 \
    }

#endif
