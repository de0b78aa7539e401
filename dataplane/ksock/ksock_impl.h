/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of dataplane/ksock: the connection, its send queue, the table of an engine. Nobody else
 * includes this. Thread: the maker's core.
 *
 * Life of a connection:
 *
 *   FREE -> CONNECTING -> OPEN -> FLUSHING -> FIN_SENT -> ENDING -> FREE
 *        `-- accept ----->|  (close: queue    (shutdown,   (operations in the kernel are
 *                         |   goes out)        peer's FIN)   called back; `closed` is reported
 *                         `-- abort, reset, error ---------> by a later step, slot is free)
 *
 * Calls of the core only change the connection and put it on the work list; the engine does what
 * the connection wants (cancel, receive, send) when the step walks that list. So no call of the
 * core makes a system call, and a full submission queue only means that the list is not empty yet.
 */
#ifndef MILL_DATAPLANE_KSOCK_IMPL_H
#define MILL_DATAPLANE_KSOCK_IMPL_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "dataplane/ksock/ksock.h"

enum {
    MILL_KSOCK_LISTENERS_MAX = 64,
    MILL_KSOCK_WATCHES_MAX = 64,
    MILL_KSOCK_IOV_MAX = 64,          /* pieces of one sendmsg; the kernel takes up to 1024 */
    MILL_KSOCK_BACKLOG = 4096,        /* the kernel cuts it to net.core.somaxconn */
    MILL_KSOCK_FIN_WAIT_MS = 5000,    /* after our FIN: how long the peer may take for its own */
    MILL_KSOCK_ACCEPT_RETRY_MS = 100, /* pause after the process ran out of descriptors */
    MILL_KSOCK_WORK_MAX = 512,        /* connections served by one walk of the work list */
    MILL_KSOCK_EVENTS_MAX = 256,      /* completions or epoll events taken in one step */
    MILL_KSOCK_WAKE_MAX = 64,         /* streams waiting for buffers looked at in one step */
};

/* An entry of a send queue with this extent is a piece of the connection's byte arena. */
#define MILL_KSOCK_SMALL UINT32_MAX

struct mill_ksock_node {
    struct mill_ksock_node *next;
    struct mill_ksock_node *prev; /* NULL: on no list */
};

struct mill_ksock_list {
    struct mill_ksock_node head; /* circular */
    uint32_t length;
};

/* Send queue: a ring of entries and a ring of bytes for the small ones. Between n references lie at
 * most n + 1 runs of small bytes and only one of them wraps, so that 2 n + 2 entries never run out
 * before references or bytes do. */
struct mill_ksock_queue {
    struct mill_ref *entries;
    uint8_t *arena;
    uint64_t bytes;           /* queued, not yet taken by the kernel */
    uint32_t head;            /* index of the oldest entry */
    uint32_t count;           /* entries */
    uint32_t refs_count;      /* of them references */
    uint32_t head_done_bytes; /* of the oldest entry, already taken */
    uint32_t arena_head;
    uint32_t arena_used;
    uint32_t entries_max;
    uint32_t refs_max;
    uint32_t arena_max;
};

enum mill_ksock_state {
    MILL_KSOCK_FREE,
    MILL_KSOCK_CONNECTING,
    MILL_KSOCK_OPEN,
    MILL_KSOCK_FLUSHING,
    MILL_KSOCK_FIN_SENT,
    MILL_KSOCK_ENDING,
};

struct mill_ksock_conn {
    struct mill_stream stream; /* first: the core's pointer is ours */
    struct mill_ksock_queue queue;

    struct mill_ksock_node work; /* something is to be done for it */
    struct mill_ksock_node rest; /* starved of receive buffers */
    struct mill_ksock_node life; /* free, flushing, fin or ended list */
    uint64_t deadline_ns;        /* in flushing and fin list */

    int fd;
    int connect_error; /* an active open failed: reported by connected, not closed */
    uint32_t index;
    uint16_t inflight; /* operations in the kernel that will still complete */
    uint8_t state;     /* enum mill_ksock_state */
    uint8_t end;       /* enum mill_stream_end, valid in ENDING */
    bool silent;       /* refused by `accepted`: no `closed` */
    bool paused;
    bool room_wanted; /* a send met -EAGAIN */

    bool started; /* connect was called */
    /* io_uring */
    struct sockaddr_in6 connect_to; /* read by the kernel when it takes the operation */
    uint64_t sending_bytes;         /* of the sendmsg under way */
    bool watching;                  /* a poll for hang-up was submitted */
    bool receiving;                 /* a receive is armed */
    bool cancelling;                /* its cancellation is under way */
    bool sending;                   /* one sendmsg is under way */
    bool detached;                  /* everything was called back */
    /* epoll: edges seen and not used up */
    bool readable;
    bool writable;
};

struct mill_ksock_listener {
    int fd;
    uint16_t listener; /* the core's index */
    uint16_t port;     /* really bound */
    bool armed;        /* accepts are coming */
    uint64_t retry_ns; /* not armed: when to try again */
};

struct mill_ksock_watch_entry {
    int fd;
    bool armed;
    bool ended; /* what it stood for is gone: readable for ever, so it is not watched any more */
};

/* What an engine does; all on the maker's core. */
struct mill_ksock_engine_ops {
    /* Takes its own resources. ret: 0, -errno with the reason in report. */
    int (*open)(struct mill_ksock *ksock, struct mill_report *report);
    /* Calls everything back and releases; also after a failed open. */
    void (*close)(struct mill_ksock *ksock);
    /* (Re)starts accepting. ret: 0, -EAGAIN later, -errno. */
    int (*accept)(struct mill_ksock *ksock, uint32_t listener);
    /* A socket joins (accepted, or about to connect). ret: 0, -errno. */
    int (*attach)(struct mill_ksock_conn *conn);
    /* Does what the connection wants now. ret: false: no room, ask again next step. */
    bool (*serve)(struct mill_ksock_conn *conn);
    /* A receive buffer came back. */
    void (*buffer_free)(struct mill_ksock *ksock, uint32_t index);
    /* Takes completions and reports events. ret: how many concerned streams. */
    uint32_t (*poll)(struct mill_ksock *ksock);
    /* Hands what was prepared to the kernel. */
    void (*submit)(struct mill_ksock *ksock);
    /* ret: 0, -errno but EINTR. */
    int (*wait)(struct mill_ksock *ksock, uint64_t timeout_ns);
    /* A new entry of watches. ret: 0, -errno. */
    int (*watch)(struct mill_ksock *ksock, uint32_t watch);
};

struct mill_ksock {
    struct mill_stream_maker maker; /* first */
    struct mill_ksock_config config;
    struct mill_ksock_counters counters;
    const struct mill_ksock_engine_ops *engine;
    void *engine_data; /* struct of the engine */
    enum mill_ksock_engine engine_kind;
    uint64_t now_ns; /* of the latest step */

    struct mill_ksock_conn *conns;
    uint8_t *queue_memory;
    uint64_t queue_stride_bytes;
    struct mill_ksock_list free;
    struct mill_ksock_list work;
    struct mill_ksock_list rest;
    struct mill_ksock_list
        flushing;                 /* in order of deadline: the time allowed is the same for all */
    struct mill_ksock_list fin;   /* the same */
    struct mill_ksock_list ended; /* ENDING and nothing in the kernel */

    /* Receive buffers. The last quarter is a reserve for streams that hold none, so that streams
     * which are not consumed never keep the others from being heard. */
    uint8_t *rx_memory;
    struct mill_buf *rx_bufs;
    uint32_t rx_common; /* buffers 0 .. rx_common-1; the reserve follows */
    uint32_t rx_free_common;
    uint32_t rx_free_reserve;
    uint32_t rx_wake; /* starved streams still to be looked at since a buffer came back */

    struct mill_ksock_listener listeners[MILL_KSOCK_LISTENERS_MAX];
    uint32_t listeners_count;
    struct mill_ksock_watch_entry watches[MILL_KSOCK_WATCHES_MAX];
    uint32_t watches_count;
};

extern const struct mill_ksock_engine_ops mill_ksock_uring_ops;
extern const struct mill_ksock_engine_ops mill_ksock_epoll_ops;

/* Anonymous zeroed memory; pages become real when touched. ret: NULL when there is none. */
void *mill_ksock_map(uint64_t size_bytes);
void mill_ksock_unmap(void *memory, uint64_t size_bytes);

/* ---- lists ---- */

static inline void mill_ksock_list_init(struct mill_ksock_list *list)
{
    list->head.next = &list->head;
    list->head.prev = &list->head;
    list->length = 0;
}

static inline bool mill_ksock_on_list(const struct mill_ksock_node *node)
{
    return node->prev != NULL;
}

static inline void mill_ksock_list_append(struct mill_ksock_list *list,
                                          struct mill_ksock_node *node)
{
    MILL_DASSERT(!mill_ksock_on_list(node));
    node->next = &list->head;
    node->prev = list->head.prev;
    list->head.prev->next = node;
    list->head.prev = node;
    list->length++;
}

/* At the front: free slots are used again while their memory is warm. */
static inline void mill_ksock_list_push(struct mill_ksock_list *list, struct mill_ksock_node *node)
{
    MILL_DASSERT(!mill_ksock_on_list(node));
    node->prev = &list->head;
    node->next = list->head.next;
    list->head.next->prev = node;
    list->head.next = node;
    list->length++;
}

static inline void mill_ksock_list_remove(struct mill_ksock_list *list,
                                          struct mill_ksock_node *node)
{
    MILL_DASSERT(mill_ksock_on_list(node) && list->length > 0);
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = NULL;
    node->prev = NULL;
    list->length--;
}

/* ret: the oldest, still on the list; NULL when empty. */
static inline struct mill_ksock_node *mill_ksock_list_first(const struct mill_ksock_list *list)
{
    return list->length == 0 ? NULL : list->head.next;
}

/* ---- ksock_queue.c ---- */

void mill_ksock_queue_init(struct mill_ksock_queue *queue, struct mill_ref *entries, uint8_t *arena,
                           const struct mill_ksock_config *config);
/* Entries that a queue of this configuration needs. */
uint32_t mill_ksock_queue_entries(const struct mill_ksock_config *config);
int mill_ksock_queue_ref(struct mill_ksock_queue *queue, const struct mill_ref *ref,
                         struct mill_stream_maker *maker) MILL_WARN_UNUSED;
int mill_ksock_queue_bytes(struct mill_ksock_queue *queue, const void *bytes,
                           uint32_t size_bytes) MILL_WARN_UNUSED;
/* Lists the front of the queue for one sendmsg and their bytes. ret: number of pieces. */
uint32_t mill_ksock_queue_iov(const struct mill_ksock_queue *queue, uint8_t *arena_base,
                              struct iovec iov[MILL_KSOCK_IOV_MAX], uint64_t *ret_bytes);
/* The kernel took size_bytes from the front: counts them, gives ended loans back in order. */
void mill_ksock_queue_advance(struct mill_ksock_queue *queue, struct mill_stream_maker *maker,
                              uint64_t size_bytes);
/* Gives back all loans in order; the queue is empty after. */
void mill_ksock_queue_drop(struct mill_ksock_queue *queue, struct mill_loans *loans);

/* ---- ksock_socket.c ---- */

socklen_t mill_ksock_sockaddr(const uint8_t address[16], uint16_t port,
                              struct sockaddr_storage *ret_sockaddr);
void mill_ksock_address(const struct sockaddr_storage *sockaddr, uint8_t ret_address[16],
                        uint16_t *ret_port);
/* Addresses of a connected socket; zeros where the kernel does not know any more. */
void mill_ksock_peer(int fd, struct mill_stream_peer *ret_peer);
void mill_ksock_local(int fd, struct mill_stream_peer *ret_peer);
/* Options of connections; an accepted socket inherits those of its listener. ret: 0, -errno. */
int mill_ksock_socket_options(int fd, const struct mill_ksock_config *config) MILL_WARN_UNUSED;
/* ret: a bound, listening descriptor and its port, or -errno with the reason. */
int mill_ksock_socket_listen(const struct mill_ksock_config *config, const uint8_t address[16],
                             uint16_t port, uint16_t *ret_port, struct mill_report *report);
/* Closes so that the peer gets a reset. */
void mill_ksock_socket_reset(int fd);
/* Pending error of a socket as -errno, 0 when none. Takes it. */
int mill_ksock_socket_error(int fd);

/* ---- ksock_conn.c ---- */

extern const struct mill_stream_ops mill_ksock_stream_ops;

static inline struct mill_ksock *mill_ksock_of(const struct mill_ksock_conn *conn)
{
    return MILL_CONTAINER_OF(conn->stream.maker, struct mill_ksock, maker);
}

/* Takes a slot for fd. ret: NULL when all are in use. */
struct mill_ksock_conn *mill_ksock_conn_new(struct mill_ksock *ksock, int fd);
/* Puts it on the work list. */
void mill_ksock_conn_touch(struct mill_ksock_conn *conn);
/* A socket came from listener: reports it, or resets it at a limit. */
void mill_ksock_conn_accepted(struct mill_ksock *ksock, uint32_t listener, int fd);
/* An accept failed with error (-errno): stops for a while when descriptors or memory ran out. */
void mill_ksock_accept_failed(struct mill_ksock *ksock, uint32_t listener, int error);
/* An active open ended. */
void mill_ksock_conn_connected(struct mill_ksock_conn *conn, int error);
/* Does the connection want to receive, and may it take a buffer? */
bool mill_ksock_rx_wanted(const struct mill_ksock_conn *conn);
bool mill_ksock_rx_allowed(const struct mill_ksock_conn *conn);
/* Leaves it until a buffer comes back. */
void mill_ksock_rx_rest(struct mill_ksock_conn *conn);
/* A buffer left the free ones; its bytes are given by mill_ksock_rx_bytes or freed. */
struct mill_buf *mill_ksock_rx_take(struct mill_ksock *ksock, uint32_t index);
void mill_ksock_rx_bytes(struct mill_ksock_conn *conn, struct mill_buf *buf, uint32_t size_bytes);
void mill_ksock_rx_ended(struct mill_ksock_conn *conn);
/* The kernel took size_bytes of the queue. */
void mill_ksock_tx_taken(struct mill_ksock_conn *conn, uint64_t size_bytes);
/* A queue that may be sent from. */
bool mill_ksock_tx_wanted(const struct mill_ksock_conn *conn);
/* In FLUSHING with an empty queue: sends our FIN. */
void mill_ksock_conn_flushed(struct mill_ksock_conn *conn);
/* Ends it: `closed` follows from a later step. */
void mill_ksock_conn_end(struct mill_ksock_conn *conn, enum mill_stream_end end);
/* Ends it for a failed send or receive (-errno). */
void mill_ksock_conn_failed(struct mill_ksock_conn *conn, int error);
/* One operation of the kernel completed for good. */
void mill_ksock_conn_completed(struct mill_ksock_conn *conn);
/* Step: reports the ends of earlier steps; ends what is past its deadline. ret: units of work. */
uint32_t mill_ksock_conns_finish(struct mill_ksock *ksock);
uint32_t mill_ksock_conns_expire(struct mill_ksock *ksock);
/* destroy: gives everything of the slot back without an event. */
void mill_ksock_conn_discard(struct mill_ksock_conn *conn);

#endif
