/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Debug sections compressed by zstd, which libdw before 0.189 cannot read (and
 * does not say so: it finds no lines).
 */
#ifndef RESOLVER_ZDEBUG_H
#define RESOLVER_ZDEBUG_H

#include "resolver/elffile.h"
#include "resolver/error.h"

/*
 * A copy of @file in memory in which the sections that zstd compressed are
 * plain. *ret has the same name and does not need @file any more.
 *
 * Errors: ERROR_FORMAT, ERROR_UNSUPPORTED (unfolds to more than 4 GiB), ERROR_MEMORY.
 */
MUST_CHECK struct error *zdebug_unfold(const struct elffile *file, struct elffile **ret);

#endif
