// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/gzip.h"

#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

#define WINDOW_GZIP (15 + 16) /* zlib.h: the largest window, with a gzip header */
#define MEM_LEVEL   8	      /* zlib.h: the default */

struct error *gzip_compress(const void *data, size_t size, uint8_t **ret, size_t *size_ret)
{
	z_stream stream = {0};
	uint8_t *out;
	int status;

	if (size > UINT_MAX / 2)
		return error_create(ERROR_UNSUPPORTED, "cannot compress %zu bytes at once", size);
	if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, WINDOW_GZIP, MEM_LEVEL,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return error_memory();
	stream.avail_out = deflateBound(&stream, size);
	out = malloc(stream.avail_out);
	if (!out) {
		deflateEnd(&stream);
		return error_memory();
	}
	stream.next_in = (z_const Bytef *)data;
	stream.avail_in = size;
	stream.next_out = out;
	status = deflate(&stream, Z_FINISH);
	deflateEnd(&stream);
	if (status != Z_STREAM_END) {
		free(out);
		return error_create(ERROR_UNSUPPORTED, "cannot compress %zu bytes: zlib error %d",
				    size, status);
	}
	*ret = out;
	*size_ret = stream.total_out;
	return NULL;
}
