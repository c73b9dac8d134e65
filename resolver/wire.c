// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/wire.h"

#include <stdlib.h>
#include <string.h>

#include "resolver/array.h"

void wire_writer_deinit(struct wire_writer *writer)
{
	free(writer->data);
	*writer = (struct wire_writer){0};
}

void wire_put_raw(struct wire_writer *writer, const void *data, size_t size)
{
	struct error *err;

	if (writer->failed || !size)
		return;
	err = array_grow(&writer->data, writer->size, size);
	if (err) {
		error_free(err);
		writer->failed = true;
		return;
	}
	memcpy(&writer->data[writer->size], data, size);
	writer->size += size;
}

void wire_put_varint(struct wire_writer *writer, uint64_t value)
{
	uint8_t bytes[WIRE_VARINT_MAX];
	size_t size = 0;

	while (value >= 0x80) {
		bytes[size++] = value | 0x80;
		value >>= 7;
	}
	bytes[size++] = value;
	wire_put_raw(writer, bytes, size);
}

void wire_put_signed(struct wire_writer *writer, int64_t value)
{
	wire_put_varint(writer, ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0));
}

void wire_put_bytes(struct wire_writer *writer, const void *data, size_t size)
{
	wire_put_varint(writer, size);
	wire_put_raw(writer, data, size);
}

void wire_fail(struct wire_reader *reader, const char *problem)
{
	if (reader->problem)
		return;
	reader->problem = problem;
	reader->problem_at = reader->at;
}

uint64_t wire_get_varint(struct wire_reader *reader)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		uint8_t byte;

		if (reader->problem || reader->at >= reader->size) {
			wire_fail(reader, "it ends in the middle of a number");
			return 0;
		}
		byte = reader->data[reader->at++];
		if (shift == 63 && byte > 1)
			break;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value;
	}
	wire_fail(reader, "a number has more than 64 bits");
	return 0;
}

int64_t wire_get_signed(struct wire_reader *reader)
{
	uint64_t value = wire_get_varint(reader);

	return (int64_t)((value >> 1) ^ -(value & 1));
}

uint64_t wire_get_bounded(struct wire_reader *reader, uint64_t max, const char *problem)
{
	uint64_t value = wire_get_varint(reader);

	if (value <= max)
		return value;
	wire_fail(reader, problem);
	return 0;
}

size_t wire_get_count(struct wire_reader *reader, size_t item_size)
{
	uint64_t count = wire_get_varint(reader);

	if (count <= (reader->size - reader->at) / item_size)
		return count;
	wire_fail(reader, "a list is longer than its section");
	return 0;
}

const uint8_t *wire_get_bytes(struct wire_reader *reader, size_t *size_ret)
{
	size_t size = wire_get_count(reader, 1);
	const uint8_t *bytes = reader->data + reader->at;

	reader->at += size;
	*size_ret = size;
	return bytes;
}
