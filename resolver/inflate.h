/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * zlib streams of whole buffers, as in compressed sections. The only user of
 * libdeflate.
 */
#ifndef RESOLVER_INFLATE_H
#define RESOLVER_INFLATE_H

#include <stddef.h>

#include "resolver/error.h"

/*
 * The @raw_size bytes of the stream at @data, to @out; ERROR_FORMAT if it is
 * damaged or does not hold exactly so many. ERROR_MEMORY.
 */
MUST_CHECK struct error *inflate_zlib(const void *data, size_t size, void *out, size_t raw_size);

#endif
