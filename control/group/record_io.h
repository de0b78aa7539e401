/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of which keys and values of internal topics are made: into and out of a pool, with the
 * first failure kept, so that a record is written or read as one list of fields. Pure. */
#ifndef MILL_CONTROL_GROUP_RECORD_IO_H
#define MILL_CONTROL_GROUP_RECORD_IO_H

#include "control/group/group.h"
#include "control/pool.h"
#include "protocol/codec.h"

/* Room for one key or value. ret: NULL no memory, or over INT32_MAX. */
uint8_t *mill_rec_begin(struct mill_pool *pool, struct mill_writer *to, uint64_t capacity);
/* ret: the bytes; NULL when something did not fit. */
uint8_t *mill_rec_end(const struct mill_writer *to, uint32_t *ret_bytes);
/* Not flexible; NULL is null. */
void mill_rec_put_text(struct mill_writer *to, const char *text);
void mill_rec_put_blob(struct mill_writer *to, const struct mill_group_blob *blob);
/* Most bytes of a text, in either form. */
uint64_t mill_rec_text_bytes(const char *text);

/* A key or value being read. After a failure every further call gives nothing. */
struct mill_rec_reader {
    struct mill_cursor at;
    struct mill_pool *pool;
    bool flexible;
    int error; /* first failure: -EBADMSG, -ENOMEM */
};

/* A terminated copy in the pool; NULL when null. */
const char *mill_rec_text(struct mill_rec_reader *from);
/* Where null is not allowed: "" after a failure. */
const char *mill_rec_name(struct mill_rec_reader *from);
struct mill_group_blob mill_rec_blob(struct mill_rec_reader *from);
int8_t mill_rec_i8(struct mill_rec_reader *from);
int16_t mill_rec_i16(struct mill_rec_reader *from);
int32_t mill_rec_i32(struct mill_rec_reader *from);
int64_t mill_rec_i64(struct mill_rec_reader *from);
struct mill_uuid mill_rec_uuid(struct mill_rec_reader *from);
/* Count of an array whose elements take least_bytes each, at least; 0 after a failure. */
uint32_t mill_rec_count(struct mill_rec_reader *from, uint32_t least_bytes);
/* Memory for what is read. ret: NULL after a failure. */
void *mill_rec_take(struct mill_rec_reader *from, uint64_t size_bytes);
/* Skips a tagged section of which nothing is asked. */
void mill_rec_tags(struct mill_rec_reader *from);

#endif
