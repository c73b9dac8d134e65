/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Numbers and bytes to and from a compact stream: LEB128 varints, as protobuf
 * has them, and counted bytes. Both ends remember their first failure, so that
 * a sequence of calls is checked once at its end.
 */
#ifndef RESOLVER_WIRE_H
#define RESOLVER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "resolver/error.h"

#define WIRE_VARINT_MAX 10 /* bytes of the longest varint */

/* Zero is an empty writer. */
struct wire_writer {
	uint8_t *data;
	size_t size;
	bool failed; /* out of memory: nothing is added any more */
};

void wire_writer_deinit(struct wire_writer *writer);
void wire_put_varint(struct wire_writer *writer, uint64_t value);
/* Small for small values of either sign. */
void wire_put_signed(struct wire_writer *writer, int64_t value);
/* @size as a varint, then the bytes. */
void wire_put_bytes(struct wire_writer *writer, const void *data, size_t size);
/* The bytes alone. */
void wire_put_raw(struct wire_writer *writer, const void *data, size_t size);

/* Reads the @size bytes at @data; the caller keeps them. */
struct wire_reader {
	const uint8_t *data;
	size_t size;
	size_t at;
	const char *problem; /* what was wrong first; NULL: nothing */
	size_t problem_at;
};

/* 0 once there is a problem. */
uint64_t wire_get_varint(struct wire_reader *reader);
int64_t wire_get_signed(struct wire_reader *reader);
/* A varint that must be at most @max; @problem is what to say if it is not. */
uint64_t wire_get_bounded(struct wire_reader *reader, uint64_t max, const char *problem);
/* A number of elements that take at least @item_size bytes each: more than fit is a problem. */
size_t wire_get_count(struct wire_reader *reader, size_t item_size);
/* Counted bytes, not copied; an empty range once there is a problem. */
const uint8_t *wire_get_bytes(struct wire_reader *reader, size_t *size_ret);

/* Note a problem at the current place, unless there is one already. */
void wire_fail(struct wire_reader *reader, const char *problem);

#endif
