/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * DWARF expressions of call frame information, as far as tables can hold what
 * they say.
 *
 * Internal to resolver/ehframe*.c.
 */
#ifndef RESOLVER_EHFRAME_PLACE_H
#define RESOLVER_EHFRAME_PLACE_H

#include "resolver/ehframe_cfi.h"

/*
 * A value that an expression gives, as far as we can follow it: reg + offset,
 * or *(reg + offset) + add.
 */
struct place {
	bool valid;
	bool deref;
	uint8_t reg;
	int64_t offset;
	int64_t add;
};

/* Not valid if the expression gives anything else. */
struct place place_of_expression(const struct cfi_rule *rule);

/* The CFA, given by register and offset or by an expression. */
struct place place_of_cfa(const struct cfi_state *state);

/* Is @place the CFA plus a constant? */
bool place_is_at_cfa(const struct place *place, const struct place *cfa, int64_t *offset_ret);

#endif
