/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of dataplane/stream/stream.h as one table of tests that runs over any maker. A
 * fixture brings the maker under test and plays its peers; contract.c is the core above the
 * maker; contract_send.c and contract_life.c are the tests. */
#ifndef MILL_TESTS_UNIT_STREAM_CONTRACT_H
#define MILL_TESTS_UNIT_STREAM_CONTRACT_H

#include "tests/unit/test.h"

#include <sys/types.h>

#include "dataplane/stream/stream.h"

enum {
    CONTRACT_LISTENER = 7, /* index that the fixture gives to listen */
    CONTRACT_UNITS = 4096, /* extents of one unit: 16 MiB to send from */
    CONTRACT_STREAMS_MAX = 1100,
    CONTRACT_LIMIT_S = 20, /* of the fixture's time, in which anything awaited must happen */
};

struct contract_limits {
    uint32_t connections_max;
    uint32_t refs_per_connection;
    uint32_t arena_bytes_per_connection;
    uint32_t rx_window_max;
};

struct contract;

/* What a fixture can do. Peers are small numbers of the fixture's own; no call waits. */
struct contract_fixture {
    const char *name;
    /* Makes the maker with events_of(contract) and contract as context, and listens. ret: 0,
     * -ENOTSUP: not on this machine (skipped). */
    int (*open)(struct contract *contract, const struct contract_limits *limits);
    /* Destroys the maker and all peers. */
    void (*close)(struct contract *contract);
    /* One step of the maker, one of the peers' side, and a little time passes. */
    void (*turn)(struct contract *contract);
    /* The time that turns move, real or virtual. */
    uint64_t (*now_ns)(struct contract *contract);
    /* Begins to connect to the maker's listener. ret: the peer. */
    int (*peer_connect)(struct contract *contract);
    /* ret: a peer for a connection that the maker opened, -EAGAIN none yet. */
    int (*peer_accept)(struct contract *contract);
    /* ret: bytes taken, -EAGAIN, -errno. */
    ssize_t (*peer_send)(struct contract *contract, int peer, const void *bytes, size_t size);
    /* ret: bytes, 0 at FIN, -EAGAIN, -ECONNRESET. */
    ssize_t (*peer_recv)(struct contract *contract, int peer, void *bytes, size_t size);
    void (*peer_finish)(struct contract *contract, int peer); /* FIN; goes on receiving */
    void (*peer_close)(struct contract *contract, int peer);
    void (*peer_reset)(struct contract *contract, int peer);
    /* Where maker->ops->connect finds a peer, or nobody. */
    void (*peer_address)(struct contract *contract, bool somebody, uint8_t ret_address[16],
                         uint16_t *ret_port);
};

/* One stream as the core saw it. */
struct contract_stream {
    struct mill_stream *stream; /* NULL after closed */
    int connect_error;
    unsigned connected;
    unsigned closed;
    enum mill_stream_end end;
    unsigned rooms;
    bool rx_ended;
    bool hold;           /* do not consume */
    bool abort_in_event; /* in received */
    bool close_in_event;
    uint64_t received; /* bytes consumed; each was compared with contract_byte */
    uint64_t acked;
};

struct contract {
    const struct contract_fixture *fixture;
    void *fixture_data;
    struct mill_stream_maker *maker;
    struct mill_loans loans;
    uint8_t *arena; /* CONTRACT_UNITS extents, byte i is contract_byte(i) */
    struct contract_stream streams[CONTRACT_STREAMS_MAX]; /* in order of opening */
    unsigned streams_count;
    bool refuse;       /* `accepted` says no */
    bool hold;         /* new streams do not consume */
    bool in_call;      /* the core is inside a call of a stream: no event may come */
    bool wrong_bytes;  /* a received byte was not the expected one */
    unsigned accepted; /* events */
    unsigned closed;
};

extern const struct mill_stream_events contract_events;

/* Byte at a position of every stream of bytes that these tests send. */
static inline uint8_t contract_byte(uint64_t position)
{
    uint64_t x = (position + 1) * 0x9e3779b97f4a7c15ull;
    return (uint8_t)(x >> 56) ^ (uint8_t)(x >> 24);
}

/* Fills bytes with the stream's bytes from position on; or compares them. */
void contract_fill(uint8_t *bytes, size_t size, uint64_t position);
bool contract_equal(const uint8_t *bytes, size_t size, uint64_t position);

/* A reference to size_bytes of the arena that hold the stream's bytes from position on; position
 * wraps at the arena's size, so each stream sends less than that or repeats. */
struct mill_ref contract_ref(uint64_t position, uint32_t size_bytes);

struct contract *contract_open(const struct contract_fixture *fixture,
                               const struct contract_limits *limits);
void contract_close(struct contract *contract);

/* Turns until the condition holds; fails the test when it does not in time. */
#define contract_until(contract, condition)                                                        \
    do {                                                                                           \
        uint64_t contract_end_ = contract_time_ms(contract) + CONTRACT_LIMIT_S * 1000u;            \
        while (!(condition)) {                                                                     \
            contract->fixture->turn(contract);                                                     \
            if (contract_time_ms(contract) > contract_end_) {                                      \
                fail_msg("%s: not in time: %s", contract->fixture->name, #condition);              \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* The fixture's clock. */
uint64_t contract_time_ms(struct contract *contract);
/* Turns for about this long. */
void contract_turn_ms(struct contract *contract, unsigned ms);
/* Compares all that is received in place and consumes it. */
void contract_take(struct contract *contract, struct contract_stream *seen);
/* A new stream from a peer; both are known after. */
struct contract_stream *contract_pair(struct contract *contract, int *ret_peer);
/* The peer sends the stream's bytes [position, position + size) to the end. */
void contract_peer_send(struct contract *contract, int peer, uint64_t position, size_t size);
/* The peer reads size bytes, which must be the stream's from position on. */
void contract_peer_expect(struct contract *contract, int peer, uint64_t position, size_t size);
/* The peer reads to the end: 0 FIN, -ECONNRESET. ret: what it was; bytes are dropped. */
int contract_peer_end(struct contract *contract, int peer);
uint64_t contract_loans(const struct contract *contract); /* count of all */

/* Runs every test over the fixture. ret: number of failed tests. */
int contract_run(const struct contract_fixture *fixture);

extern const struct CMUnitTest contract_send_tests[];
extern const size_t contract_send_tests_length;
extern const struct CMUnitTest contract_life_tests[];
extern const size_t contract_life_tests_length;

#endif
