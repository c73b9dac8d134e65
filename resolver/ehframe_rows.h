/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The rows of a table while it grows: CFI states are packed into rules as
 * payload/protocol.h describes them, equal neighbours merge.
 *
 * Internal to resolver/ehframe*.c.
 */
#ifndef RESOLVER_EHFRAME_ROWS_H
#define RESOLVER_EHFRAME_ROWS_H

#include "payload/protocol.h"
#include "resolver/ehframe.h"
#include "resolver/ehframe_cfi.h"

struct rows {
	uint64_t low;	  /* address of offset 0 */
	bool full;	  /* every row as an ext row */
	bool no_memory;	  /* sticks */
	uint32_t *offset; /* of the row's address from @low; strictly ascending */
	uint16_t *rule;
	uint32_t count, capacity;
	struct ha_rule_ext *ext; /* sorted by row */
	uint32_t ext_count, ext_capacity;
	uint32_t stops; /* ext rows with HA_EXT_STOP */
};

/*
 * Add a row for @state; @signal: of a signal trampoline. @address is not below
 * the last row's; equal means that the row is replaced.
 */
void rows_add_state(struct rows *rows, uint64_t address, const struct cfi_state *state,
		    bool signal);

/* Add a row that is nothing but an escape code. */
void rows_add_escape(struct rows *rows, uint64_t address, enum ha_escape escape);

/* Forget all rows at and behind the one numbered @count. */
void rows_truncate(struct rows *rows, uint32_t count);

/* Lay the rows out as a table. There must be one row at least. */
MUST_CHECK struct error *rows_build(const struct rows *rows, struct ehframe_table *ret);

void rows_deinit(struct rows *rows);

#endif
