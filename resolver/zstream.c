// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/zstream.h"

#include <stdlib.h>
#include <zstd.h>

#include "resolver/cleanup.h"

#define LEVEL 3 /* zstd's own default: 200-300 MB/s, and a profile is a few MB */

static void context_free(ZSTD_CCtx **context)
{
	ZSTD_freeCCtx(*context);
}

struct error *zstream_compress(const void *data, size_t size, uint8_t **ret, size_t *size_ret)
{
	CLEANUP(context_free) ZSTD_CCtx *context = ZSTD_createCCtx();
	size_t bound = ZSTD_compressBound(size), written;
	CLEANUP(freep) uint8_t *out = malloc(bound);

	if (!context || !out)
		return error_memory();
	ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, LEVEL);
	ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
	written = ZSTD_compress2(context, out, bound, data, size);
	if (ZSTD_isError(written))
		return error_create(ERROR_UNSUPPORTED, "cannot compress %zu bytes: %s", size,
				    ZSTD_getErrorName(written));
	*ret = take(out);
	*size_ret = written;
	return NULL;
}

struct error *zstream_decompress_to(const void *data, size_t size, void *out, size_t raw_size)
{
	size_t read = ZSTD_decompress(out, raw_size, data, size);

	if (ZSTD_isError(read))
		return error_create(ERROR_FORMAT, "the compressed part is damaged (%s)",
				    ZSTD_getErrorName(read));
	if (read != raw_size)
		return error_create(ERROR_FORMAT,
				    "the compressed part holds %zu bytes where %zu were announced",
				    read, raw_size);
	return NULL;
}

struct error *zstream_decompress(const void *data, size_t size, size_t raw_size, uint8_t **ret)
{
	CLEANUP(freep) uint8_t *out = malloc(raw_size ? raw_size : 1);
	struct error *err;

	if (!out)
		return error_memory();
	err = zstream_decompress_to(data, size, out, raw_size);
	if (!err)
		*ret = take(out);
	return err;
}
