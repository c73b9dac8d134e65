// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/xz.h"

#include "resolver/cleanup.h"

#include <lzma.h>

enum {
	FIRST_CAPACITY = 64 << 10,
	/* xz -9 needs 65 MiB to decompress. */
	DECODER_BYTES = 96 << 20,
};

static void stream_end(lzma_stream *stream)
{
	lzma_end(stream);
}

static struct error *grow(lzma_stream *stream, uint8_t **out, size_t *capacity, size_t limit)
{
	size_t used = *capacity - stream->avail_out;
	size_t larger = *capacity ? *capacity * 2 : FIRST_CAPACITY;
	uint8_t *grown;

	if (*capacity >= limit)
		return error_create(ERROR_FORMAT, "xz data: unfolds to more than %zu bytes", limit);
	if (larger > limit)
		larger = limit;
	grown = realloc(*out, larger);
	if (!grown)
		return error_memory();
	*out = grown;
	*capacity = larger;
	stream->next_out = grown + used;
	stream->avail_out = larger - used;
	return NULL;
}

struct error *xz_decompress(const uint8_t *data, size_t size, size_t limit, uint8_t **ret,
			    size_t *size_ret)
{
	CLEANUP(freep) uint8_t *out = NULL;
	CLEANUP(stream_end) lzma_stream stream = LZMA_STREAM_INIT;
	lzma_ret status = lzma_stream_decoder(&stream, DECODER_BYTES, 0);
	size_t capacity = 0;

	stream.next_in = data;
	stream.avail_in = size;
	while (status == LZMA_OK) {
		if (!stream.avail_out) {
			struct error *err = grow(&stream, &out, &capacity, limit);

			if (err)
				return err;
		}
		status = lzma_code(&stream, LZMA_FINISH);
	}
	if (status == LZMA_MEM_ERROR)
		return error_memory();
	if (status != LZMA_STREAM_END)
		return error_create(ERROR_FORMAT, "xz data: damaged near byte %zu of %zu",
				    size - stream.avail_in, size);
	*size_ret = capacity - stream.avail_out;
	*ret = take(out);
	return NULL;
}
