/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Gzip files of whole buffers. The only user of zlib.
 */
#ifndef RESOLVER_GZIP_H
#define RESOLVER_GZIP_H

#include <stddef.h>
#include <stdint.h>

#include "resolver/error.h"

/* Without name and time, so that equal data gives equal files; *ret is malloc'ed. */
MUST_CHECK struct error *gzip_compress(const void *data, size_t size, uint8_t **ret,
				       size_t *size_ret);

#endif
