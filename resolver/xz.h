/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decompression of .xz data, for .gnu_debugdata. The only user of liblzma.
 */
#ifndef RESOLVER_XZ_H
#define RESOLVER_XZ_H

#include "resolver/error.h"

#include <stddef.h>
#include <stdint.h>

/*
 * @limit  the largest result accepted, in bytes; memory of the decoder is bounded too
 *
 * *ret is malloc'ed. Any thread. Errors: ERROR_FORMAT (damaged, cut short, or
 * larger than the limit), ERROR_MEMORY.
 */
MUST_CHECK struct error *xz_decompress(const uint8_t *data, size_t size, size_t limit,
				       uint8_t **ret, size_t *size_ret);

#endif
