/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Compressed debug sections, by zlib as Debian has them or by zstd, made plain
 * for libdw.
 */
#ifndef RESOLVER_ZDEBUG_H
#define RESOLVER_ZDEBUG_H

#include "resolver/elffile.h"
#include "resolver/error.h"

/*
 * A copy of @file in memory whose compressed sections are plain; those that
 * lines do not need are said to have no bytes. *ret has the same name and does
 * not need @file any more.
 *
 * Errors: ERROR_FORMAT, ERROR_UNSUPPORTED (another compression, or it unfolds to
 * more than 4 GiB), ERROR_MEMORY.
 */
MUST_CHECK struct error *zdebug_unfold(const struct elffile *file, struct elffile **ret);

#endif
