/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Function symbols of a module, by address.
 *
 * Filled from one or more symbol tables (the file's own, its debug file's, the
 * small one in .gnu_debugdata), then sealed, then searched in O(log n).
 *
 * Which symbol an address belongs to: the one with the highest start at or
 * below it, if the address is within the symbol's size. A symbol of size 0
 * (assembly) reaches to the next symbol or to the end of its section, whichever
 * is first; inside a function that has a size it is a label and is passed over,
 * and in a dynamic table it is left out, for its end is not known there. Of
 * several symbols at one address, the first of: a typed one, one with a size,
 * global or weak before local, fewer leading underscores, global before weak,
 * the first added: strdup (weak) before __strdup (global).
 * An address in no symbol has no name: the nearest one would be wrong.
 *
 * One thread until symbols_seal(), any number afterwards.
 */
#ifndef RESOLVER_SYMBOLS_H
#define RESOLVER_SYMBOLS_H

#include "resolver/elffile.h"
#include "resolver/error.h"

#include <stddef.h>
#include <stdint.h>

struct symbol {
	uint64_t start, end; /* unrelocated; end is exclusive */
	const char *name;    /* as in the file, not demangled */
};

struct symbols;

MUST_CHECK struct error *symbols_create(struct symbols **ret);
/* NULL is fine. */
void symbols_free(struct symbols *symbols);

/*
 * Add the defined functions (STT_FUNC and STT_GNU_IFUNC, and untyped symbols in
 * executable sections) of one table. Names stay in @file, which must
 * live as long as @symbols. Returns ERROR_MEMORY only.
 */
MUST_CHECK struct error *symbols_add(struct symbols *symbols, struct elffile *file,
				     enum elffile_table table);

/* Sort; call once, after the last symbols_add(). Returns ERROR_MEMORY only. */
MUST_CHECK struct error *symbols_seal(struct symbols *symbols);

size_t symbols_count(const struct symbols *symbols);

/* NULL if the address is in no symbol. */
const struct symbol *symbols_find(const struct symbols *symbols, uint64_t vaddr);

#endif
