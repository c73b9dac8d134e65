/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Zstandard frames of whole buffers. The only user of libzstd.
 */
#ifndef RESOLVER_ZSTREAM_H
#define RESOLVER_ZSTREAM_H

#include <stddef.h>
#include <stdint.h>

#include "resolver/error.h"

/* One frame with a checksum; *ret is malloc'ed. */
MUST_CHECK struct error *zstream_compress(const void *data, size_t size, uint8_t **ret,
					  size_t *size_ret);

/*
 * The @raw_size bytes of the frames at @data, to @out; ERROR_FORMAT if they are
 * damaged or do not hold exactly so many.
 */
MUST_CHECK struct error *zstream_decompress_to(const void *data, size_t size, void *out,
					       size_t raw_size);

/* The same, malloc'ed. The caller bounds @raw_size. */
MUST_CHECK struct error *zstream_decompress(const void *data, size_t size, size_t raw_size,
					    uint8_t **ret);

#endif
