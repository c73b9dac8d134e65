/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The files that tell about one module: the mapped file itself, its separate
 * debug file, its dwz file. Opened on first use; what cannot be had is noted as a sentence for
 * the report, not as an error. Used by symbolizer.c only.
 *
 * One thread at a time per modfiles. Strings live as long as it does.
 */
#ifndef RESOLVER_MODFILES_H
#define RESOLVER_MODFILES_H

#include "resolver/lines.h"
#include "resolver/symbolizer.h"
#include "resolver/symbols.h"

struct modfiles;

/* Copies what it needs of @module. Returns ERROR_MEMORY only. */
MUST_CHECK struct error *modfiles_create(const struct symbolizer_module *module,
					 const struct symbolizer_options *options,
					 struct modfiles **ret);
/* NULL is fine. */
void modfiles_free(struct modfiles *module);

/* Read the files, once. Returns ERROR_MEMORY only. */
MUST_CHECK struct error *modfiles_load(struct modfiles *module);

/* After modfiles_load(): NULL or 0 if nothing is known. */
const struct symbol *modfiles_symbol(const struct modfiles *module, uint64_t vaddr);
size_t modfiles_lines(struct modfiles *module, uint64_t vaddr,
		      struct lines_frame ret[LINES_MAX_FRAMES]);
void modfiles_info(const struct modfiles *module, struct symbolizer_info *ret);

#endif
