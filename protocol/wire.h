/* SPDX-License-Identifier: Apache-2.0 */
/* Run time of the generated Kafka codec: value types, reader, writer. The messages themselves are
 * generated from protocol/schema (scripts/gen/messages.py) into "protocol/messages.h".
 *
 * Decoding happens in place, without allocation: a decode call walks the whole message once and
 * checks every length and count against the bytes that are there; strings and arrays in the result
 * are positions in the received chain. After a successful decode, iteration cannot fail.
 *
 * Encoding goes into one run of memory of the caller. Arrays are pulled element by element through
 * a callback, so no tree of structs is built. Record bytes are not copied: the writer leaves a hole
 * and counts its length, and the caller sends references there.
 *
 * For a schema message NAME (request or response) of api A, field names as in the schema, the
 * generator emits (example: Fetch request):
 *
 *   struct mill_fetch_request { int32_t max_wait_ms; ... struct mill_warray topics; };
 *   struct mill_fetch_request_topics { struct mill_wstr topic; struct mill_warray partitions; };
 *   struct mill_fetch_request_topics_partitions { int32_t partition; ... };
 *   int  mill_fetch_request_decode(struct mill_cursor *at, int16_t version,
 *                                  struct mill_fetch_request *ret);
 *   bool mill_fetch_request_topics_next(struct mill_warray *array, int16_t version,
 *                                       struct mill_fetch_request_topics *ret);
 *   int  mill_fetch_request_encode(struct mill_writer *to, int16_t version,
 *                                  const struct mill_fetch_request *message);
 *   void mill_fetch_request_defaults(struct mill_fetch_request *ret);   (schema defaults)
 *
 * decode returns 0, -EBADMSG for bytes that are no such message, -EOPNOTSUPP for a version that is
 * not served. It takes the message off the cursor and leaves there what follows: whether bytes
 * after a message are allowed is the caller's business. encode returns the writer's error.
 *
 * Arrays of plain values iterate by mill_warray_next_i8, _i32, _i64, _str. A field in the tagged
 * section is an ordinary member; a struct field (not array) is an embedded struct, with `bool
 * has_NAME` when it is nullable or tagged. Fields absent in a version get their schema default at
 * decode and are not written. A nullable field's default is null, and empty where only later
 * versions allow null. Every struct has a `_defaults` function.
 */
#ifndef MILL_PROTOCOL_WIRE_H
#define MILL_PROTOCOL_WIRE_H

#include "base/chain.h"
#include "base/uuid.h"

/* Text or bytes. length -1: null. ptr is set when the bytes lie in one buffer (always for
 * encoding); otherwise NULL and at tells where they are: mill_wstr_copy works for both. */
struct mill_wstr {
    int32_t length;
    const uint8_t *ptr;
    struct mill_cursor at;
};

/* Record batches. length -1: null. Decoding: at. Encoding: only length (a hole, see writer), or
 * ptr. */
struct mill_wrecords {
    int32_t length;
    const uint8_t *ptr;
    struct mill_cursor at;
};

/* Fills the element struct (already set to its defaults) for index when encoding. */
typedef void (*mill_warray_get)(const void *context, int32_t index, void *ret_element);

/* An array. count -1: null. Decoding: at stands at the first element, which *_next takes off (work
 * on a copy to iterate twice). Encoding: get is called once for each element, in order; without get
 * the elements are taken from at, which must have been decoded in the same version. */
struct mill_warray {
    int32_t count;
    struct mill_cursor at;
    mill_warray_get get;
    const void *context;
};

/* --- reader helpers -------------------------------------------------------------------------- */

/* Copies a string with terminator into room of capacity bytes. ret: its length, -1 when null or
 * when it does not fit (ret_text is then empty). */
int32_t mill_wstr_copy(const struct mill_wstr *text, char *ret_text, uint32_t capacity);
bool mill_wstr_equal(const struct mill_wstr *text, const char *other, uint32_t length);
/* Makes a value for encoding from terminated text; NULL gives null. */
struct mill_wstr mill_wstr_of(const char *text);
struct mill_wstr mill_wstr_of_bytes(const void *bytes, int32_t length);
/* True when the bytes are well-formed UTF-8 (RFC 3629). */
bool mill_wstr_is_utf8(const struct mill_wstr *text);

/* Next plain element; false at the end. Strings: flexible tells compact encoding. */
bool mill_warray_next_i8(struct mill_warray *array, int8_t *ret_value);
bool mill_warray_next_i32(struct mill_warray *array, int32_t *ret_value);
bool mill_warray_next_i64(struct mill_warray *array, int64_t *ret_value);
bool mill_warray_next_str(struct mill_warray *array, bool flexible, struct mill_wstr *ret_value);

/* --- writer ---------------------------------------------------------------------------------- */

enum {
    MILL_WIRE_HOLES_MAX = 512, /* record fields of one answer */
};

/* Where record bytes belong in an answer: after pos_bytes of the written run. */
struct mill_writer_hole {
    uint32_t pos_bytes;
    uint32_t size_bytes;
};

struct mill_writer {
    uint8_t *bytes;
    uint32_t capacity;
    uint32_t size_bytes; /* written into bytes */
    uint32_t hole_bytes; /* sum of holes: the message's length is size_bytes + hole_bytes */
    uint32_t holes_count;
    uint32_t holes_max; /* entries of holes; 0: records are copied from ptr or at */
    struct mill_writer_hole *holes;
    int error; /* first failure: -ENOSPC or -EINVAL; sticky, checked once at the end */
};

void mill_writer_init(struct mill_writer *to, void *bytes, uint32_t capacity,
                      struct mill_writer_hole *holes, uint32_t holes_max);
void mill_write_i8(struct mill_writer *to, int8_t value);
void mill_write_i16(struct mill_writer *to, int16_t value);
void mill_write_i32(struct mill_writer *to, int32_t value);
void mill_write_i64(struct mill_writer *to, int64_t value);
void mill_write_uvarint(struct mill_writer *to, uint32_t value);
void mill_write_bytes(struct mill_writer *to, const void *bytes, uint32_t size_bytes);

/* --- frames and headers ---------------------------------------------------------------------- */

enum {
    MILL_FRAME_SIZE_BYTES = 4, /* INT32 before each frame */
    MILL_REQUEST_HEADER_MIN_BYTES = 8,
};

struct mill_request_header {
    int16_t api_key;
    int16_t api_version;
    int32_t correlation_id;
    struct mill_wstr client_id;
    bool flexible; /* header v2 and a flexible body */
};

/* Reads header v1 or v2 at the start of a frame (after the size). Key and version are filled first,
 * so that an unsupported one can be answered. ret: 0; -EOPNOTSUPP key or version not in the table
 * (key, version and correlation_id are valid); -EBADMSG malformed. */
int mill_request_header_decode(struct mill_cursor *at,
                               struct mill_request_header *ret) MILL_WARN_UNUSED;

/* Begins an answer: 4 size bytes (filled by finish), correlation id, tag section where the API's
 * response header is v1 (never for ApiVersions). */
void mill_response_begin(struct mill_writer *to, int16_t api_key, int16_t api_version,
                         int32_t correlation_id);
/* Fills in the size. ret: whole length with holes, -ENOSPC, or -EINVAL when a value was written
 * that the version cannot carry (null where it is not allowed, text above 32,767 bytes). */
int64_t mill_response_finish(struct mill_writer *to) MILL_WARN_UNUSED;

/* The client's side of the same: begins a request with header v1 or v2 after 4 size bytes, fills
 * the size in, and reads an answer's header. */
void mill_wire_request_begin(struct mill_writer *to, const struct mill_request_header *header);
int64_t mill_wire_request_finish(struct mill_writer *to) MILL_WARN_UNUSED;
/* ret: 0, -EBADMSG malformed (*ret_correlation_id untouched). */
int mill_response_header_decode(struct mill_cursor *at, int16_t api_key, int16_t api_version,
                                int32_t *ret_correlation_id) MILL_WARN_UNUSED;

/* Where an answer that begins with throttle_time_ms has it: bytes from the frame's start. 0: it
 * does not begin with it. */
uint32_t mill_response_throttle_at(int16_t api_key, int16_t api_version);

/* --- the table of APIs ----------------------------------------------------------------------- */

/* Who answers an API. */
enum mill_api_place {
    MILL_API_CORE,    /* by the core from the map and the log */
    MILL_API_CONTROL, /* forwarded as a whole frame */
};

struct mill_api {
    int16_t key;
    int16_t version_min; /* lowest served */
    int16_t version_max;
    int16_t version_min_advertised; /* Produce says 0 though 3 is the lowest served (KAFKA-18659) */
    int16_t flexible_from;          /* first flexible version; INT16_MAX never */
    int16_t throttle_from; /* first version whose answer begins with throttle_time_ms; INT16_MAX */
    uint8_t place;         /* enum mill_api_place */
    const char *name;
};

/* Generated from the schemas, ascending by key. */
extern const struct mill_api mill_apis[];
extern const uint32_t mill_apis_count;
/* NULL when the key is not served. */
const struct mill_api *mill_api_find(int16_t key);

/* --- errors ---------------------------------------------------------------------------------- */

/* enum mill_kerr (MILL_KERR_NONE = 0, MILL_KERR_UNKNOWN_TOPIC_OR_PARTITION = 3, ...) is generated
 * from protocol/schema/errors.txt into "protocol/errors.h" with: */
const char *mill_kerr_name(int16_t error);
bool mill_kerr_retriable(int16_t error);

#endif
