/* SPDX-License-Identifier: Apache-2.0 */
/* A Kafka client on our own stack over a memif, one connection and one request at a time; what
 * programs of tests are made of. Main thread only; whatever cannot be made ends the program. */
#ifndef MILL_TESTS_CLIENTS_OWN_CLIENT_H
#define MILL_TESTS_CLIENTS_OWN_CLIENT_H

#include "dataplane/net/net.h"
#include "dataplane/port/port.h"
#include "tests/lib/bytes.h"
#include "tests/perf/ring_end.h"

enum {
    OWN_REQUEST_MAX = 8192 + 256,
    OWN_ANSWER_MAX = 2 << 20,
};

struct own_client {
    char dir[RING_DIR_BYTES];
    struct mill_arena *arena;
    struct mill_loans loans;
    struct mill_loans *loans_of_queues[1];
    struct mill_port *port;
    struct mill_net *net;
    uint8_t address[16];        /* of the broker */
    struct mill_stream *stream; /* NULL: not connected */
    bool connecting;
    int32_t correlation;
    uint64_t answered_ns; /* time of the newest answer */
    uint64_t sent_ns;     /* when the newest request was given to the stack */
    uint8_t request[OWN_REQUEST_MAX];
    uint8_t answer[OWN_ANSWER_MAX];
    uint32_t answer_bytes;
};

/* Starts EAL and opens everything; our address is the broker's neighbour .2. broker: dotted. */
void own_open(struct own_client *client, const char *device, const char *broker);
void own_close(struct own_client *client);

/* Prints the reason and ends the program. */
void own_fail(const char *reason, uint64_t value) __attribute__((noreturn));

/* One turn of the stack; naps when there was nothing to do. */
void own_turn(struct own_client *client);

/* A request's head in client->request; the body goes behind it. */
struct bytes own_request(struct own_client *client, int key, int version);

/* Connects when it must, sends, waits for the answer. ret: false when the connection was lost or
 * too slow (it is closed then): ask again. */
bool own_ask(struct own_client *client, struct bytes *request);

#endif
