// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/inflate.h"

#include <libdeflate.h>

struct error *inflate_zlib(const void *data, size_t size, void *out, size_t raw_size)
{
	struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
	enum libdeflate_result result;

	if (!decompressor)
		return error_memory();
	/* Without an address for the size it has to be exactly that. */
	result = libdeflate_zlib_decompress(decompressor, data, size, out, raw_size, NULL);
	libdeflate_free_decompressor(decompressor);
	if (result == LIBDEFLATE_SUCCESS)
		return NULL;
	if (result == LIBDEFLATE_BAD_DATA)
		return error_create(ERROR_FORMAT, "the compressed part is damaged");
	return error_create(ERROR_FORMAT,
			    "the compressed part does not hold the %zu bytes announced", raw_size);
}
