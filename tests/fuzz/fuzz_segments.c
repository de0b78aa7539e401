/* SPDX-License-Identifier: Apache-2.0 */
/* Segments of a peer that means no good, over the hand that plays it in the conformance tests: sums
 * are right, so that what is looked at is what stands behind them. Whatever comes, the stack rests
 * after each step, sends only what is well formed, takes no byte for another, and gives every
 * buffer, loan and frame back. An input is a line of steps. */
#include "tests/fuzz/fuzz.h"

#include "tests/unit/net/rig.h"

enum {
    STEPS_MAX = 300,
    SEGMENT_BYTES_MAX = 1460,
    SEND_BYTES_MAX = 16384,
    RAW_BYTES_MAX = 1514,
    /* What a step does. */
    STEP_SEGMENT = 0, /* of the connection, near its numbers */
    STEP_RAW,         /* a frame of any bytes */
    STEP_CHANGED,     /* a segment whose header bytes are changed */
    STEP_SEND,
    STEP_TIME,
    STEP_WINDOW,
    STEP_LINK, /* frames the card takes at once */
    STEP_END,  /* close or abort by the owner */
    STEP_OPEN, /* another connection */
    STEP_KINDS,
};

struct play {
    struct rig *rig;
    struct fuzz_input *in;
    uint32_t taken;   /* bytes of the first connection that its owner got */
    bool others_data; /* bytes that are not the pattern may have come */
};

static uint32_t word(struct fuzz_input *in)
{
    uint32_t high = fuzz_byte(in);
    return high << 8 | fuzz_byte(in);
}

/* Small steps around 0, now and then a long one. */
static uint32_t near(struct fuzz_input *in)
{
    uint32_t value = word(in);
    return value & 0x8000 ? (value & 0x7fff) << 17 : value - 0x4000;
}

/* What the owner got is the pattern at its place, and what was sent is well formed (rig_next). */
static void look(struct play *play)
{
    struct rig *rig = play->rig;
    if (rig->accepted == 1 && !play->others_data) {
        for (uint32_t i = 0; i < rig->received_bytes; i++) {
            assert_int_equal(rig->received[i], rig_byte(play->taken + i));
        }
        play->taken += rig->received_bytes;
    }
    rig->received_bytes = 0;
    struct rig_segment segment;
    while (rig_next(rig, &segment)) {
        assert_true(segment.size_bytes <= SEGMENT_BYTES_MAX);
    }
}

static void segment_put(struct play *play)
{
    struct mill_tcp_options options = {0};
    uint8_t flags = fuzz_byte(play->in);
    uint8_t blocks = flags >> 6;
    uint32_t seq = play->taken + near(play->in);
    uint32_t ack = near(play->in);
    uint32_t size = word(play->in) % (SEGMENT_BYTES_MAX + 1);
    options.sack_count = flags & MILL_TCP_SYN ? 0 : blocks;
    for (uint8_t i = 0; i < options.sack_count; i++) {
        options.sack[i].start = near(play->in);
        options.sack[i].end = options.sack[i].start + near(play->in);
    }
    rig_put_options(play->rig, flags & 0x3f, seq, ack, size, &options);
}

static void raw_put(struct play *play)
{
    const uint8_t *bytes;
    uint32_t split = fuzz_byte(play->in);
    size_t size = MILL_MIN(fuzz_run(play->in, &bytes), (size_t)RAW_BYTES_MAX);
    if (size > 0) {
        play->others_data = true;
        rig_frame(play->rig, bytes, (uint32_t)size, split);
        rig_step(play->rig);
    }
}

static void changed_put(struct play *play)
{
    uint8_t frame[256 + SEGMENT_BYTES_MAX];
    const struct mill_tcp_options none = {0};
    struct rig *rig = play->rig;
    uint8_t flags = fuzz_byte(play->in) & 0x3f;
    uint32_t size = rig_build(rig, frame, flags, rig->isn_peer + 1 + play->taken, rig->isn_ours + 1,
                              fuzz_byte(play->in), &none);
    for (uint32_t changes = 1 + fuzz_byte(play->in) % 8; changes > 0; changes--) {
        frame[fuzz_byte(play->in) % MILL_MIN(size, 74u)] = fuzz_byte(play->in);
    }
    uint32_t ip_bytes = (frame[MILL_ETHERNET_BYTES] & 15u) * 4u;
    if (ip_bytes >= MILL_IPV4_BYTES && size >= MILL_ETHERNET_BYTES + ip_bytes + MILL_TCP_BYTES) {
        rig_sum(frame, size);
    }
    play->others_data = true; /* its sequence number may have been changed */
    rig_frame(rig, frame, size, fuzz_byte(play->in));
    rig_step(rig);
}

static void send(struct play *play)
{
    struct rig *rig = play->rig;
    uint32_t size = 1 + word(play->in) % SEND_BYTES_MAX;
    /* The rig wants its next extents free: what is on its way is at most a few of them. */
    if (rig->stream && rig->loans.loaned_bytes == 0 &&
        rig_tcp(rig)->queue.head == rig_tcp(rig)->queue.tail) {
        rig_send(rig, size);
    }
}

static void end(struct play *play)
{
    struct rig *rig = play->rig;
    if (!rig->stream) {
        return;
    }
    if (fuzz_byte(play->in) & 1) {
        rig->stream->ops->abort(rig->stream);
    } else {
        rig->stream->ops->close(rig->stream);
    }
    rig->stream = NULL;
    rig_step(rig);
}

static void open_another(struct play *play)
{
    uint8_t frame[256];
    struct rig *rig = play->rig;
    struct mill_tcp_options options = {.has_mss = true,
                                       .mss = (uint16_t)word(play->in),
                                       .has_wscale = true,
                                       .wscale = fuzz_byte(play->in) & 15};
    rig->peer_port = (uint16_t)(RIG_PEER_PORT + fuzz_byte(play->in) % 32);
    uint32_t size =
        rig_build(rig, frame, MILL_TCP_SYN, rig->isn_peer + near(play->in), 0, 0, &options);
    rig_frame(rig, frame, size, 0);
    rig_step(rig);
}

static void step(struct play *play)
{
    struct rig *rig = play->rig;
    switch (fuzz_byte(play->in) % STEP_KINDS) {
    case STEP_SEGMENT:
        segment_put(play);
        break;
    case STEP_RAW:
        raw_put(play);
        break;
    case STEP_CHANGED:
        changed_put(play);
        break;
    case STEP_SEND:
        send(play);
        break;
    case STEP_TIME:
        rig_pass(rig, word(play->in) * MILL_NS_PER_MS);
        break;
    case STEP_WINDOW:
        rig->window = word(play->in);
        break;
    case STEP_LINK:
        rig->send_limit = fuzz_byte(play->in);
        break;
    case STEP_END:
        end(play);
        break;
    default:
        open_another(play);
    }
    look(play);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.at = data, .left = size};
    uint8_t kind = fuzz_byte(&input);
    struct play play = {.rig = rig_make(NULL), .in = &input};
    rig_handshake(play.rig, kind & 1, kind & 2);
    for (uint32_t i = 0; i < STEPS_MAX && input.left > 0; i++) {
        step(&play);
    }
    play.rig->send_limit = UINT32_MAX;
    rig_free(play.rig);
    return 0;
}
