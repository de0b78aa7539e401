/* SPDX-License-Identifier: Apache-2.0 */
/* A wire with two ends in one process, on virtual time and one seed: delay, jitter (reorders),
 * loss, duplication, flipped bits, rate with a bounded queue, outages, and devices that are slow to
 * read what they were given, take short bursts and run out of frames. Each end is a struct
 * mill_link.
 *
 * Devices read references late - at the first look after they were handed over - and hold a loan
 * until then, as a card does: memory that is given back too early shows up as wrong bytes.
 * Every received buffer is its own allocation, so that a sanitizer sees a use after its end.
 */
#ifndef MILL_TESTS_SIM_LINK_MODEL_H
#define MILL_TESTS_SIM_LINK_MODEL_H

#include "base/random.h"
#include "dataplane/net/link.h"

struct mill_link_model_config {
    uint64_t seed;
    uint64_t delay_ns;
    uint64_t jitter_ns; /* added at random, 0..jitter_ns */
    uint32_t loss_ppm;  /* frames lost per million */
    uint32_t duplicate_ppm;
    uint32_t flip_ppm;        /* one bit flipped on the wire, sums not repaired */
    uint32_t short_ppm;       /* a send call takes fewer frames */
    uint32_t starve_ppm;      /* a blank frame is refused */
    uint64_t rate_bytes_s;    /* 0: no limit */
    uint32_t queue_bytes;     /* with a rate: what waits; more is dropped at the tail */
    uint64_t outage_every_ns; /* 0: none */
    uint64_t outage_ns;
    uint64_t impair_until_ns; /* 0: for ever; after that nothing is lost any more */
    uint16_t mtu;
    uint16_t pieces_max;
    uint16_t inline_bytes;
    uint32_t tso_bytes_max;
    bool split_buffers; /* received frames come as several buffers */
    bool verified;      /* the receiving device checks sums itself */
};

struct mill_link_model;

/* loans and arena_base: of the stack at each end. NULL when memory is short. */
struct mill_link_model *mill_link_model_create(const struct mill_link_model_config *config,
                                               struct mill_loans *const loans[2],
                                               uint8_t *const arena_base[2]);
/* Frees everything; ends the loans of frames never read. */
void mill_link_model_destroy(struct mill_link_model *model);

struct mill_link *mill_link_model_end(struct mill_link_model *model, unsigned end);

/* Moves time on: devices read what waits in their queues. */
void mill_link_model_advance(struct mill_link_model *model, uint64_t now_ns);

/* When the next frame arrives or a device has something to read; MILL_NEVER: nothing under way. */
uint64_t mill_link_model_next(const struct mill_link_model *model);

/* Received buffers not freed yet: 0 when both stacks are empty. */
uint64_t mill_link_model_buffers(const struct mill_link_model *model);

/* A tap: called for each frame that enters the wire, before it can be lost. */
typedef void mill_link_tap(void *context, unsigned from, const uint8_t *frame, uint32_t size_bytes);
void mill_link_model_tap(struct mill_link_model *model, mill_link_tap *tap, void *context);

/* Puts a frame made by hand on the wire towards an end, unharmed. */
void mill_link_model_inject(struct mill_link_model *model, unsigned to, const uint8_t *frame,
                            uint32_t size_bytes);

#endif
