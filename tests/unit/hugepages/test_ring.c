/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what goes in comes out, once, in order, whatever the sizes; the ends survive a killed or
 * broken peer; no wake-up is lost. Method: a plain queue beside the ring under random steps; every
 * wrong header by hand and by a seeded fuzzer; two threads in Dekker's race; a child producer
 * killed at random moments. */
#include "tests/unit/test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "hugepages/ring.h"

enum {
    SMALL_BYTES = 256,
    LITMUS_ROUNDS = 500000,
    RACE_S = 20,    /* a race ends then ... */
    RACE_PART = 50, /* ... with at least this part of its rounds */
    LOST_MS = 3000,
    RACE_END = 1 << 30, /* kind of the last message */
};

struct pair {
    void *memory;
    uint64_t bytes;
    struct mill_ring producer;
    struct mill_ring consumer;
};

/* Shared, so that a forked child's stores are seen too. */
static void pair_make(struct pair *pair, uint64_t capacity_bytes)
{
    pair->bytes = mill_ring_bytes(capacity_bytes);
    pair->memory =
        mmap(NULL, pair->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pair->memory, MAP_FAILED);
    struct mill_ring_shared *shared = mill_ring_format(pair->memory, capacity_bytes);
    assert_int_equal(mill_ring_attach_producer(&pair->producer, shared, pair->bytes), 0);
    assert_int_equal(mill_ring_attach_consumer(&pair->consumer, shared, pair->bytes), 0);
}

static void pair_free(struct pair *pair)
{
    munmap(pair->memory, pair->bytes);
}

static void put_pattern(uint8_t *at, uint32_t size_bytes, uint32_t seed)
{
    for (uint32_t i = 0; i < size_bytes; i++) {
        at[i] = (uint8_t)(seed * 31 + i);
    }
}

static bool is_pattern(const uint8_t *at, uint32_t size_bytes, uint32_t seed)
{
    for (uint32_t i = 0; i < size_bytes; i++) {
        if (at[i] != (uint8_t)(seed * 31 + i)) {
            return false;
        }
    }
    return true;
}

static void test_attach_wrong_header_refused(void **state)
{
    (void)state;
    struct pair pair;
    struct mill_ring ring;
    pair_make(&pair, SMALL_BYTES);
    struct mill_ring_shared *shared = pair.memory;
    assert_int_equal(mill_ring_attach_consumer(&ring, shared, pair.bytes - 1), -EBADMSG);
    assert_int_equal(mill_ring_attach_producer(&ring, shared, 8), -EBADMSG);
    const uint64_t wrong_capacities[] = {0, 1, 64, 129, 255, 384, 512, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < MILL_COUNT_OF(wrong_capacities); i++) {
        shared->capacity_bytes = wrong_capacities[i];
        assert_int_equal(mill_ring_attach_consumer(&ring, shared, pair.bytes), -EBADMSG);
    }
    shared->capacity_bytes = SMALL_BYTES;
    const uint64_t wrong_tails[] = {1, 4, SMALL_BYTES + 8, UINT64_MAX - 7};
    for (size_t i = 0; i < MILL_COUNT_OF(wrong_tails); i++) {
        atomic_store(&shared->tail, wrong_tails[i]);
        assert_int_equal(mill_ring_attach_consumer(&ring, shared, pair.bytes), -EBADMSG);
        assert_int_equal(mill_ring_attach_producer(&ring, shared, pair.bytes), -EBADMSG);
    }
    atomic_store(&shared->tail, SMALL_BYTES);
    assert_int_equal(mill_ring_attach_consumer(&ring, shared, pair.bytes), 0);
    shared->magic++;
    assert_int_equal(mill_ring_attach_consumer(&ring, shared, pair.bytes), -EBADMSG);
    shared->magic--;
    shared->version++;
    assert_int_equal(mill_ring_attach_consumer(&ring, shared, pair.bytes), -EBADMSG);
    pair_free(&pair);
}

static void test_claim_invisible_until_publish(void **state)
{
    (void)state;
    struct pair pair;
    uint32_t kind = 0;
    uint32_t size_bytes = 0;
    pair_make(&pair, SMALL_BYTES);
    assert_true(mill_ring_empty(&pair.consumer));
    assert_non_null(mill_ring_claim(&pair.producer, 7, 0));
    assert_non_null(mill_ring_claim(&pair.producer, 8, 5));
    assert_null(mill_ring_next(&pair.consumer, &kind, &size_bytes));
    assert_true(mill_ring_empty(&pair.consumer));
    mill_ring_publish(&pair.producer);
    assert_false(mill_ring_empty(&pair.consumer));
    assert_non_null(mill_ring_next(&pair.consumer, &kind, &size_bytes));
    assert_int_equal(kind, 7);
    assert_int_equal(size_bytes, 0);
    const void *second = mill_ring_next(&pair.consumer, &kind, &size_bytes);
    assert_non_null(second);
    assert_int_equal((uintptr_t)second % 8, 0);
    assert_int_equal(kind, 8);
    assert_int_equal(size_bytes, 5);
    assert_null(mill_ring_next(&pair.consumer, &kind, &size_bytes));
    assert_true(mill_ring_empty(&pair.consumer));
    pair_free(&pair);
}

/* Bytes that next returned stay valid until release: a full ring refuses claims before it. */
static void test_next_without_release_keeps_bytes(void **state)
{
    (void)state;
    struct pair pair;
    uint32_t kind;
    uint32_t size_bytes;
    pair_make(&pair, SMALL_BYTES);
    for (uint32_t i = 0; i < 4; i++) {
        void *at = mill_ring_claim(&pair.producer, 1, 56);
        assert_non_null(at);
        put_pattern(at, 56, i);
    }
    mill_ring_publish(&pair.producer);
    const uint8_t *first = mill_ring_next(&pair.consumer, &kind, &size_bytes);
    assert_false(mill_ring_fits(&pair.producer, 0));
    assert_null(mill_ring_claim(&pair.producer, 1, 0));
    assert_int_equal(pair.producer.full_count, 1);
    assert_int_equal(mill_ring_room(&pair.producer), 0);
    assert_true(is_pattern(first, 56, 0));
    mill_ring_release(&pair.consumer);
    assert_int_equal(mill_ring_room(&pair.producer), 64);
    assert_true(mill_ring_fits(&pair.producer, 56));
    assert_false(mill_ring_fits(&pair.producer, 57));
    assert_non_null(mill_ring_claim(&pair.producer, 1, 56));
    assert_int_equal(pair.producer.full_count, 1);
    pair_free(&pair);
}

/* An unpublished claim never happened; an unfreed message is seen again. */
static void test_reattach_goes_on_where_the_last_stopped(void **state)
{
    (void)state;
    struct pair pair;
    uint32_t kind;
    uint32_t size_bytes;
    pair_make(&pair, SMALL_BYTES);
    struct mill_ring_shared *shared = pair.memory;
    put_pattern(mill_ring_claim(&pair.producer, 1, 16), 16, 1);
    mill_ring_publish(&pair.producer);
    put_pattern(mill_ring_claim(&pair.producer, 2, 16), 16, 2);
    assert_non_null(mill_ring_next(&pair.consumer, &kind, &size_bytes));
    struct mill_ring producer;
    struct mill_ring consumer;
    assert_int_equal(mill_ring_attach_producer(&producer, shared, pair.bytes), 0);
    assert_int_equal(mill_ring_attach_consumer(&consumer, shared, pair.bytes), 0);
    put_pattern(mill_ring_claim(&producer, 3, 16), 16, 3);
    mill_ring_publish(&producer);
    assert_true(is_pattern(mill_ring_next(&consumer, &kind, &size_bytes), 16, 1));
    assert_int_equal(kind, 1);
    assert_true(is_pattern(mill_ring_next(&consumer, &kind, &size_bytes), 16, 3));
    assert_int_equal(kind, 3);
    assert_null(mill_ring_next(&consumer, &kind, &size_bytes));
    pair_free(&pair);
}

struct model_message {
    uint32_t kind;
    uint32_t size_bytes;
};

static void model_run(uint64_t capacity_bytes, uint64_t seed, uint32_t steps)
{
    enum {
        MODEL_MAX = 4096,
    };
    static struct model_message queue[MODEL_MAX];
    struct mill_random random = {.state = seed};
    struct pair pair;
    uint32_t put = 0;       /* claimed */
    uint32_t published = 0; /* of them */
    uint32_t got = 0;
    pair_make(&pair, capacity_bytes);
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t act = mill_random_below(&random, 10);
        if (act < 5) {
            uint32_t bound = mill_random_below(&random, 4) == 0 ? (uint32_t)capacity_bytes / 4 : 16;
            uint32_t size_bytes = mill_random_below(&random, bound + 1);
            bool fits = mill_ring_fits(&pair.producer, size_bytes);
            uint8_t *at = mill_ring_claim(&pair.producer, put + 1, size_bytes);
            assert_int_equal(fits, at != NULL);
            if (at != NULL) {
                assert_true(put - got < MODEL_MAX);
                put_pattern(at, size_bytes, put);
                queue[put++ % MODEL_MAX] = (struct model_message){put, size_bytes};
            } else {
                /* Full is only said when it is: what is there and what is asked, with a filler
                 * as large as the message, exceed the ring. */
                uint64_t used = pair.producer.mine - pair.consumer.shared->head;
                assert_true(used + 2 * (mill_round_up(size_bytes, 8) + 8) > capacity_bytes);
            }
        } else if (act < 7) {
            mill_ring_publish(&pair.producer);
            published = put;
        } else if (act < 9) {
            uint32_t kind;
            uint32_t size_bytes;
            const uint8_t *at = mill_ring_next(&pair.consumer, &kind, &size_bytes);
            assert_int_equal(at != NULL, got < published);
            if (at != NULL) {
                struct model_message *want = &queue[got % MODEL_MAX];
                assert_int_equal(kind, want->kind);
                assert_int_equal(size_bytes, want->size_bytes);
                assert_true(is_pattern(at, size_bytes, got));
                got++;
            }
        } else {
            mill_ring_release(&pair.consumer);
        }
    }
    assert_true(got > steps / 100);
    assert_int_equal(pair.consumer.bad_count, 0);
    pair_free(&pair);
}

static void test_ring_random_steps_equal_model(void **state)
{
    (void)state;
    const uint64_t capacities[] = {128, 256, 1024, 1 << 16};
    for (size_t i = 0; i < MILL_COUNT_OF(capacities); i++) {
        for (uint64_t seed = 1; seed <= 5; seed++) {
            model_run(capacities[i], seed, 60000);
        }
    }
}

/* Writes one header at the start of an empty ring and publishes published_bytes. */
static void put_raw(struct pair *pair, uint32_t size_bytes, uint32_t kind, uint64_t published_bytes)
{
    const uint32_t words[2] = {size_bytes, kind};
    memcpy(pair->producer.shared->data, words, sizeof(words));
    atomic_store(&pair->producer.shared->tail, published_bytes);
}

static void test_next_malformed_message_empties_ring(void **state)
{
    (void)state;
    const struct {
        uint32_t size_bytes;
        uint32_t kind;
        uint64_t published_bytes;
    } cases[] = {
        {9, 1, 16},                       /* longer than what was published */
        {UINT32_MAX, 1, SMALL_BYTES},     /* wraps around in 32 bits */
        {UINT32_MAX - 7, 1, SMALL_BYTES}, /* the same with its padding */
        {SMALL_BYTES / 4 + 1, 1, 128},    /* above the largest message */
        {SMALL_BYTES - 8, 1, SMALL_BYTES},
        {0, UINT32_MAX, 8},                         /* filler where none can begin */
        {SMALL_BYTES - 8, UINT32_MAX, SMALL_BYTES}, /* filler over everything */
        {0, 1, 4},                                  /* published half a header */
        {0, 1, SMALL_BYTES + 8},                    /* more than fits */
        {0, 1, UINT64_MAX - 7},                     /* tail before head */
    };
    for (size_t i = 0; i < MILL_COUNT_OF(cases); i++) {
        struct pair pair;
        uint32_t kind = 77;
        uint32_t size_bytes = 88;
        pair_make(&pair, SMALL_BYTES);
        put_raw(&pair, cases[i].size_bytes, cases[i].kind, cases[i].published_bytes);
        assert_null(mill_ring_next(&pair.consumer, &kind, &size_bytes));
        assert_int_equal(pair.consumer.bad_count, 1);
        assert_int_equal(kind, 77);
        assert_int_equal(size_bytes, 88);
        /* A sound producer that attaches after (when the position allows it) is understood. */
        struct mill_ring producer;
        if (cases[i].published_bytes % 8 == 0) {
            assert_int_equal(mill_ring_attach_producer(&producer, pair.producer.shared, pair.bytes),
                             0);
            assert_non_null(mill_ring_claim(&producer, 5, 40));
            mill_ring_publish(&producer);
            assert_non_null(mill_ring_next(&pair.consumer, &kind, &size_bytes));
            assert_int_equal(kind, 5);
            assert_int_equal(pair.consumer.bad_count, 1);
        }
        pair_free(&pair);
    }
}

static void test_claim_broken_head_is_not_believed(void **state)
{
    (void)state;
    struct pair pair;
    pair_make(&pair, SMALL_BYTES);
    for (uint32_t i = 0; i < 4; i++) {
        assert_non_null(mill_ring_claim(&pair.producer, 1, 56));
    }
    mill_ring_publish(&pair.producer);
    const uint64_t wrong[] = {SMALL_BYTES + 8, UINT64_MAX, 1ull << 40};
    for (size_t i = 0; i < MILL_COUNT_OF(wrong); i++) {
        atomic_store(&pair.producer.shared->head, wrong[i]);
        assert_null(mill_ring_claim(&pair.producer, 1, 56));
        assert_int_equal(mill_ring_room(&pair.producer), 0);
    }
    pair_free(&pair);
}

/* Garbage all over the data and the positions: every message handed out lies within the ring. The
 * memory ends at a page border with nothing mapped behind, so an over-read faults. */
static void test_next_random_garbage_stays_inside(void **state)
{
    (void)state;
    struct mill_random random = {.state = 5};
    const uint64_t capacity_bytes = 4096;
    const size_t mapped_bytes = 3 * 4096;
    uint8_t *memory =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(munmap(memory + 2 * 4096, 4096), 0);
    uint8_t *at = memory + 2 * 4096 - mill_ring_bytes(capacity_bytes);
    uint64_t bad = 0;
    uint64_t good = 0;
    for (uint32_t round = 0; round < 3000; round++) {
        struct mill_ring_shared *shared = mill_ring_format(at, capacity_bytes);
        struct mill_ring ring;
        assert_int_equal(mill_ring_attach_consumer(&ring, shared, mill_ring_bytes(capacity_bytes)),
                         0);
        for (uint32_t i = 0; i < capacity_bytes / 8; i++) {
            /* Small sizes now and then, so that whole messages occur as well. */
            uint64_t word = mill_random_next(&random);
            word = word % 3 == 0 ? word & 0xffffffff0000003full : word;
            word = word % 17 == 0 ? word | 0xffffffff00000000ull : word;
            memcpy(&shared->data[i * 8], &word, 8);
        }
        for (uint32_t step = 0; step < 40; step++) {
            if (mill_random_below(&random, 4) == 0) {
                uint64_t tail = mill_random_next(&random) & ~7ull;
                uint64_t near = ring.mine + (mill_random_below(&random, 520) * 8ull);
                atomic_store(&shared->tail, mill_random_below(&random, 8) == 0 ? tail : near);
            }
            uint32_t kind;
            uint32_t size_bytes;
            const uint8_t *bytes = mill_ring_next(&ring, &kind, &size_bytes);
            if (bytes != NULL) {
                uint32_t sum = 0;
                for (uint32_t i = 0; i < size_bytes; i++) {
                    sum += bytes[i];
                }
                assert_true(sum <= 255u * size_bytes);
                assert_true(bytes >= shared->data);
                assert_true(bytes + size_bytes <= shared->data + capacity_bytes);
                good++;
            }
        }
        bad += ring.bad_count;
    }
    assert_true(bad > 1000);
    assert_true(good > 1000);
    munmap(memory, 2 * 4096);
}

/* --- two threads -------------------------------------------------------------------------------
 */

struct race {
    struct pair there; /* messages */
    struct pair back;  /* their echoes: the producer waits for each, so both race at every one */
    struct mill_bell_shared *words;
    int fds[2];
    uint32_t rounds;
    uint64_t rings[2];
    _Atomic uint32_t lost; /* sleeps that nobody ended; the first ends the test */
};

/* On a machine that others use a round may take as long as their time slices. */
static bool is_time_over(uint64_t begun_ns)
{
    return mill_now_read().mono_ns - begun_ns > RACE_S * MILL_NS_PER_S;
}

/* Sleeps until the ring has something. A wake-up is lost when there is a message, and seconds later
 * still no ring: without one the other side is only slow. ret: false when one was, on this side or
 * the other. */
static bool wait_for_message(struct race *race, struct mill_ring *ring, struct mill_bell *own)
{
    while (mill_ring_empty(ring)) {
        mill_bell_asleep(own);
        if (mill_ring_empty(ring)) {
            struct pollfd poll_fd = {.fd = own->fd, .events = POLLIN};
            bool silent = poll(&poll_fd, 1, LOST_MS) == 0;
            if (silent && !mill_ring_empty(ring) && poll(&poll_fd, 1, 3 * LOST_MS) == 0) {
                atomic_fetch_add(&race->lost, 1);
            }
        }
        mill_bell_awake(own);
        if (atomic_load(&race->lost) > 0) {
            return false;
        }
    }
    return true;
}

static void *echo_run(void *argument)
{
    struct race *race = argument;
    struct mill_bell own = {.shared = &race->words[1], .fd = race->fds[1]};
    struct mill_bell other = {.shared = &race->words[0], .fd = race->fds[0]};
    for (uint32_t i = 0; i < race->rounds; i++) {
        uint32_t kind;
        uint32_t size_bytes;
        if (!wait_for_message(race, &race->there.consumer, &own)) {
            break;
        }
        const uint8_t *at = mill_ring_next(&race->there.consumer, &kind, &size_bytes);
        if (kind == RACE_END) {
            break;
        }
        bool right = at != NULL && kind == i + 1 && is_pattern(at, size_bytes, i);
        mill_ring_release(&race->there.consumer);
        if (mill_ring_claim(&race->back.producer, right ? 1 : 2, 0) == NULL) {
            break;
        }
        mill_ring_publish(&race->back.producer);
        mill_bell_ring(&other);
    }
    race->rings[1] = other.rings;
    return NULL;
}

/* Dekker's race at every message: each side publishes, then looks whether the other sleeps; each
 * sleeper says so, then looks once more. */
static void test_bell_two_threads_no_wakeup_lost(void **state)
{
    (void)state;
    struct race race = {.rounds = 60000};
    uint64_t begun_ns = mill_now_read().mono_ns;
    uint32_t done = 0;
    struct mill_random random = {.state = 9};
    pthread_t thread;
    pair_make(&race.there, SMALL_BYTES);
    pair_make(&race.back, SMALL_BYTES);
    race.words = aligned_alloc(MILL_CACHE_SPACING_BYTES, 2 * sizeof(*race.words));
    assert_non_null(race.words);
    memset(race.words, 0, 2 * sizeof(*race.words));
    for (int i = 0; i < 2; i++) {
        race.fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        assert_true(race.fds[i] >= 0);
    }
    assert_int_equal(pthread_create(&thread, NULL, echo_run, &race), 0);
    struct mill_bell own = {.shared = &race.words[0], .fd = race.fds[0]};
    struct mill_bell other = {.shared = &race.words[1], .fd = race.fds[1]};
    for (uint32_t i = 0; i < race.rounds; i++) {
        uint32_t kind = 0;
        uint32_t size_bytes = mill_random_below(&random, SMALL_BYTES / 4 + 1);
        uint8_t *at = mill_ring_claim(&race.there.producer, i + 1, size_bytes);
        assert_non_null(at);
        put_pattern(at, size_bytes, i);
        mill_ring_publish(&race.there.producer);
        mill_bell_ring(&other);
        /* Shifts the race a little each time. */
        for (uint32_t spin = mill_random_below(&random, 60); spin > 0; spin--) {
            __builtin_ia32_pause();
        }
        if (!wait_for_message(&race, &race.back.consumer, &own)) {
            break;
        }
        assert_non_null(mill_ring_next(&race.back.consumer, &kind, &size_bytes));
        mill_ring_release(&race.back.consumer);
        assert_int_equal(kind, 1);
        done++;
        if (is_time_over(begun_ns)) {
            assert_non_null(mill_ring_claim(&race.there.producer, RACE_END, 0));
            mill_ring_publish(&race.there.producer);
            mill_bell_ring(&other);
            break;
        }
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(race.lost, 0);
    print_message("bells rung %llu and %llu times in %u of %u rounds\n",
                  (unsigned long long)other.rings, (unsigned long long)race.rings[1], done,
                  race.rounds);
    assert_true(done >= race.rounds / RACE_PART);
    close(race.fds[0]);
    close(race.fds[1]);
    free(race.words);
    pair_free(&race.there);
    pair_free(&race.back);
}

/* --- the same race, closer ----------------------------------------------------------------------
 */

struct litmus {
    struct pair pair;
    struct mill_bell_shared *word;
    int fd;
    _Atomic uint32_t rounds;
    MILL_SPACED _Atomic uint32_t producer_at; /* rounds begun by each side */
    MILL_SPACED _Atomic uint32_t consumer_at;
    MILL_SPACED _Atomic uint32_t producer_done;
};

static void wait_until(_Atomic uint32_t *word, uint32_t value)
{
    for (uint32_t spin = 0; atomic_load_explicit(word, memory_order_acquire) < value; spin++) {
        if (spin % 4096 == 4095) {
            sched_yield();
        }
    }
}

static void *litmus_produce(void *argument)
{
    struct litmus *litmus = argument;
    struct mill_bell bell = {.shared = litmus->word, .fd = litmus->fd};
    for (uint32_t round = 1; round <= litmus->rounds; round++) {
        if (mill_ring_claim(&litmus->pair.producer, round, 8) == NULL) {
            return litmus;
        }
        atomic_store_explicit(&litmus->producer_at, round, memory_order_release);
        wait_until(&litmus->consumer_at, round);
        mill_ring_publish(&litmus->pair.producer);
        mill_bell_ring(&bell);
        atomic_store_explicit(&litmus->producer_done, round, memory_order_release);
    }
    return NULL;
}

/* Both sides start each round together. A consumer that found the ring empty would sleep now: then
 * the producer must have rung. Without the fences x86's store buffer alone makes both miss. The
 * consumer's delay follows the outcome, so that the two meet where either may be first. */
static void test_bell_close_race_sleeper_is_rung(void **state)
{
    (void)state;
    struct litmus *litmus = aligned_alloc(MILL_CACHE_SPACING_BYTES, sizeof(*litmus));
    pthread_t thread;
    void *full = NULL;
    uint32_t slept = 0;
    uint32_t lost = 0;
    uint32_t delay = 0;
    assert_non_null(litmus);
    memset(litmus, 0, sizeof(*litmus));
    litmus->rounds = LITMUS_ROUNDS;
    uint64_t begun_ns = mill_now_read().mono_ns;
    litmus->word = aligned_alloc(MILL_CACHE_SPACING_BYTES, sizeof(*litmus->word));
    assert_non_null(litmus->word);
    atomic_init(&litmus->word->asleep, 0);
    litmus->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pair_make(&litmus->pair, SMALL_BYTES);
    assert_int_equal(pthread_create(&thread, NULL, litmus_produce, litmus), 0);
    struct mill_bell bell = {.shared = litmus->word, .fd = litmus->fd};
    for (uint32_t round = 1; round <= litmus->rounds; round++) {
        uint32_t kind;
        uint32_t size_bytes;
        atomic_store_explicit(&litmus->consumer_at, round, memory_order_release);
        wait_until(&litmus->producer_at, round);
        for (uint32_t spin = 0; spin < delay; spin++) {
            __asm__ volatile("" ::: "memory");
        }
        mill_bell_asleep(&bell);
        bool empty = mill_ring_empty(&litmus->pair.consumer);
        delay = empty ? MILL_MIN(delay + 1, 2000u) : delay - (delay > 0);
        wait_until(&litmus->producer_done, round);
        if (empty) {
            struct pollfd poll_fd = {.fd = litmus->fd, .events = POLLIN};
            slept++;
            lost += poll(&poll_fd, 1, 0) == 0;
        }
        mill_bell_awake(&bell);
        assert_non_null(mill_ring_next(&litmus->pair.consumer, &kind, &size_bytes));
        mill_ring_release(&litmus->pair.consumer);
        if (is_time_over(begun_ns)) {
            atomic_store(&litmus->rounds, round);
        }
    }
    atomic_store(&litmus->consumer_at, UINT32_MAX); /* for a round that only the producer began */
    assert_int_equal(pthread_join(thread, &full), 0);
    assert_null(full);
    print_message("%u of %u rounds found the ring empty, %u wake-ups lost\n", slept, litmus->rounds,
                  lost);
    assert_true(litmus->rounds >= LITMUS_ROUNDS / RACE_PART);
    assert_int_equal(lost, 0);
    close(litmus->fd);
    pair_free(&litmus->pair);
    free(litmus->word);
    free(litmus);
}

static void test_bell_awake_clears_and_only_sleepers_are_rung(void **state)
{
    (void)state;
    struct mill_bell_shared *word = aligned_alloc(MILL_CACHE_SPACING_BYTES, sizeof(*word));
    assert_non_null(word);
    atomic_init(&word->asleep, 0);
    struct mill_bell bell = {.shared = word, .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    struct pollfd poll_fd = {.fd = bell.fd, .events = POLLIN};
    mill_bell_ring(&bell);
    assert_int_equal(bell.rings, 0);
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    mill_bell_asleep(&bell);
    mill_bell_ring(&bell);
    mill_bell_ring(&bell);
    assert_int_equal(bell.rings, 2);
    assert_int_equal(poll(&poll_fd, 1, 0), 1);
    mill_bell_awake(&bell);
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    mill_bell_ring(&bell);
    assert_int_equal(bell.rings, 2);
    mill_bell_awake(&bell); /* not rung: returns at once */
    close(bell.fd);
    free(word);
}

/* --- a producer that is killed -------------------------------------------------------------------
 */

/* Puts numbered messages for ever, some of them several to a publish, going on at *next. */
static void produce_for_ever(struct pair *pair, _Atomic uint32_t *next)
{
    struct mill_ring ring;
    struct mill_random random = {.state = (uint64_t)getpid()};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        mill_ring_attach_producer(&ring, pair->memory, pair->bytes) != 0) {
        _exit(3);
    }
    uint32_t number = atomic_load(next);
    for (;;) {
        uint32_t group = 1 + mill_random_below(&random, 5);
        for (uint32_t i = 0; i < group; i++) {
            uint32_t size_bytes = mill_random_below(&random, 200);
            uint8_t *at = mill_ring_claim(&ring, number + 1, size_bytes);
            if (at == NULL) {
                break;
            }
            put_pattern(at, size_bytes, number);
            number++;
        }
        mill_ring_publish(&ring);
    }
}

static void test_producer_killed_ring_stays_consistent(void **state)
{
    (void)state;
    struct pair pair;
    struct mill_random random = {.state = 77};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    _Atomic uint32_t *next = page;
    pair_make(&pair, 1 << 14);
    uint32_t seen = 0;
    for (uint32_t round = 0; round < 60; round++) {
        atomic_store(next, seen);
        pid_t child = fork();
        if (child == 0) {
            produce_for_ever(&pair, next);
        }
        assert_true(child > 0);
        /* The child's time begins with its first message, however slow the machine is; without
         * one it ends after ten seconds. */
        uint64_t life_ns = mill_random_below(&random, 4000) * 1000ull;
        uint64_t end_ns = mill_now_read().mono_ns + 10 * MILL_NS_PER_S;
        bool begun = false;
        bool killed = false;
        for (;;) {
            uint32_t kind;
            uint32_t size_bytes;
            const uint8_t *at = mill_ring_next(&pair.consumer, &kind, &size_bytes);
            if (at != NULL) {
                assert_int_equal(kind, seen + 1);
                assert_true(is_pattern(at, size_bytes, seen));
                seen++;
                mill_ring_release(&pair.consumer);
                end_ns = begun ? end_ns : mill_now_read().mono_ns + life_ns;
                begun = true;
            } else if (killed) {
                break;
            }
            if (!killed && mill_now_read().mono_ns > end_ns) {
                assert_int_equal(kill(child, SIGKILL), 0);
                int status;
                assert_int_equal(waitpid(child, &status, 0), child);
                assert_true(WIFSIGNALED(status));
                killed = true;
            }
        }
        assert_int_equal(pair.consumer.bad_count, 0);
    }
    print_message("%u messages over 60 killed producers\n", seen);
    assert_true(seen > 1000);
    munmap(page, 4096);
    pair_free(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attach_wrong_header_refused),
        cmocka_unit_test(test_claim_invisible_until_publish),
        cmocka_unit_test(test_next_without_release_keeps_bytes),
        cmocka_unit_test(test_reattach_goes_on_where_the_last_stopped),
        cmocka_unit_test(test_ring_random_steps_equal_model),
        cmocka_unit_test(test_next_malformed_message_empties_ring),
        cmocka_unit_test(test_claim_broken_head_is_not_believed),
        cmocka_unit_test(test_next_random_garbage_stays_inside),
        cmocka_unit_test(test_bell_two_threads_no_wakeup_lost),
        cmocka_unit_test(test_bell_close_race_sleeper_is_rung),
        cmocka_unit_test(test_bell_awake_clears_and_only_sleepers_are_rung),
        cmocka_unit_test(test_producer_killed_ring_stays_consistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
