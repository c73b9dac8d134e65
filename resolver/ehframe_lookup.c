// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/ehframe.h"

#include <string.h>

/*
 * The table may lie in memory that the target writes to: each value is read
 * once, into a local, and checked before it is used. Offsets need not be
 * aligned.
 */
struct view {
	const uint8_t *bytes;
	struct ha_table table;
};

static bool array_fits(size_t size, uint32_t offset, uint64_t count, size_t element)
{
	/* count is below 2^33, element below 2^5: no overflow */
	return offset >= sizeof(struct ha_table) && (uint64_t)offset + count * element <= size;
}

static bool view_init(struct view *view, const struct ha_table *table, size_t size)
{
	if (!table || size < sizeof(*table))
		return false;
	view->bytes = (const uint8_t *)table;
	memcpy(&view->table, table, sizeof(view->table));
	table = &view->table;
	return table->nrows > 0 && table->nblocks > 0 &&
	       array_fits(size, table->block, (uint64_t)table->nblocks + 1, sizeof(uint32_t)) &&
	       array_fits(size, table->low, table->nrows, sizeof(uint8_t)) &&
	       array_fits(size, table->rule, table->nrows, sizeof(uint16_t)) &&
	       array_fits(size, table->ext, table->next, sizeof(struct ha_rule_ext));
}

static uint32_t view_block(const struct view *view, uint64_t block)
{
	uint32_t row;

	memcpy(&row, view->bytes + view->table.block + block * sizeof(row), sizeof(row));
	return row;
}

static uint8_t view_low(const struct view *view, uint32_t row)
{
	return view->bytes[view->table.low + row];
}

static uint16_t view_rule(const struct view *view, uint32_t row)
{
	uint16_t rule;

	memcpy(&rule, view->bytes + view->table.rule + row * sizeof(rule), sizeof(rule));
	return rule;
}

static struct ha_rule_ext view_ext(const struct view *view, uint32_t index)
{
	struct ha_rule_ext ext;

	memcpy(&ext, view->bytes + view->table.ext + index * sizeof(ext), sizeof(ext));
	return ext;
}

/* The block that @row lies in: the last one up to @block that starts at or before it. */
static uint64_t block_of_row(const struct view *view, uint64_t block, uint32_t row)
{
	uint64_t low = 0, high = block;

	if (view_block(view, block) <= row)
		return block;
	while (low + 1 < high) {
		uint64_t middle = low + (high - low) / 2;

		if (view_block(view, middle) <= row)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Which row covers @position (from the table's base)? */
static bool find_row(const struct view *view, uint64_t position, uint32_t *row_ret)
{
	uint64_t block = position >> 8;
	uint8_t low = (uint8_t)position;
	uint32_t first, last;

	if (block >= view->table.nblocks)
		return false;
	first = view_block(view, block);
	last = view_block(view, block + 1);
	if (last > view->table.nrows || first > last)
		return false;
	while (first < last && view_low(view, first) <= low)
		first++;
	if (first == 0)
		return false;
	*row_ret = first - 1;
	return true;
}

static bool find_ext(const struct view *view, uint32_t row, struct ha_rule_ext *ret)
{
	uint32_t low = 0, high = view->table.next;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (view_ext(view, middle).row < row)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == view->table.next)
		return false;
	*ret = view_ext(view, low);
	return ret->row == row;
}

static void set_saved_ext(const struct ha_rule_ext *ext, struct ehframe_rule *ret)
{
	for (int i = 0; i < EHFRAME_CALLEE_SAVED; i++) {
		if (ext->saved[i] == HA_EXT_SAVED_UNKNOWN) {
			ret->saved[i] = EHFRAME_LOST;
		} else if (ext->saved[i] == 0) {
			ret->saved[i] = EHFRAME_SAME;
		} else {
			ret->saved[i] = EHFRAME_AT_CFA;
			ret->saved_offset[i] = -8 * ext->saved[i];
		}
	}
}

static void unpack_ext(const struct ha_rule_ext *ext, struct ehframe_rule *ret)
{
	if ((ext->flags & HA_EXT_STOP) || ext->base > HA_EXT_R15 || ext->ra > HA_EXT_R15) {
		ret->kind = EHFRAME_STOP;
		return;
	}
	ret->kind = EHFRAME_NORMAL;
	ret->base = ext->base;
	ret->deref = ext->flags & HA_EXT_DEREF;
	ret->cfa_offset = ext->cfa_offset;
	ret->cfa_add = ext->cfa_add;
	if (ext->flags & HA_EXT_RA_REGISTER)
		ret->ra_register = ext->ra;
	if (ext->flags & HA_EXT_RBP_SAVED)
		ret->rbp = EHFRAME_AT_CFA;
	else if (ext->flags & HA_EXT_RBP_DEREF)
		ret->rbp = EHFRAME_AT_RBP;
	ret->rbp_offset = ext->rbp_offset;
	set_saved_ext(ext, ret);
}

static void unpack_packed(uint16_t rule, struct ehframe_rule *ret)
{
	ret->kind = EHFRAME_NORMAL;
	ret->base = rule & HA_RULE_RBP ? HA_EXT_RBP : HA_EXT_RSP;
	ret->cfa_offset = HA_RULE_OFFSET(rule);
	if (HA_RULE_SAVED(rule)) {
		ret->rbp = EHFRAME_AT_CFA;
		ret->rbp_offset = -8 * (int32_t)HA_RULE_SAVED(rule);
	}
	for (int i = 0; i < EHFRAME_CALLEE_SAVED; i++)
		ret->saved[i] = EHFRAME_LOST;
}

static void unpack_row(const struct view *view, uint32_t row, struct ehframe_rule *ret)
{
	uint16_t rule = view_rule(view, row);
	struct ha_rule_ext ext;

	switch (rule) {
	case HA_ESCAPE_END:
		ret->kind = EHFRAME_END;
		return;
	case HA_ESCAPE_SIGNAL:
		ret->kind = EHFRAME_SIGNAL;
		return;
	case HA_ESCAPE_PLT11:
		ret->kind = EHFRAME_PLT11;
		return;
	case HA_ESCAPE_PLT10:
		ret->kind = EHFRAME_PLT10;
		return;
	case HA_ESCAPE_EXT:
		if (find_ext(view, row, &ext))
			unpack_ext(&ext, ret);
		return;
	}
	if (!HA_RULE_IS_ESCAPE(rule))
		unpack_packed(rule, ret);
}

void ehframe_lookup(const struct ha_table *table, size_t size, uint64_t vaddr,
		    struct ehframe_rule *ret)
{
	struct view view;
	uint64_t block;
	uint32_t row;

	*ret = (struct ehframe_rule){.kind = EHFRAME_UNKNOWN, .ra_register = -1};
	if (!view_init(&view, table, size) || vaddr < view.table.base ||
	    !find_row(&view, vaddr - view.table.base, &row))
		return;
	block = block_of_row(&view, (vaddr - view.table.base) >> 8, row);
	ret->start = view.table.base + (block << 8) + view_low(&view, row);
	unpack_row(&view, row, ret);
}

/* Blocks ascend and cover all rows; rows ascend within their block. */
static bool blocks_are_sorted(const struct view *view)
{
	uint32_t first = view_block(view, 0);

	if (first != 0 || view_block(view, view->table.nblocks) != view->table.nrows)
		return false;
	for (uint64_t block = 0; block < view->table.nblocks; block++) {
		uint32_t last = view_block(view, block + 1);

		if (last < first || last > view->table.nrows)
			return false;
		for (uint32_t row = first; row + 1 < last; row++) {
			if (view_low(view, row) >= view_low(view, row + 1))
				return false;
		}
		first = last;
	}
	return view_low(view, 0) == 0;
}

/* Each row with an ext rule has one, and the other way around. */
static bool ext_is_consistent(const struct view *view)
{
	uint32_t index = 0;

	for (uint32_t row = 0; row < view->table.nrows; row++) {
		uint16_t rule = view_rule(view, row);

		if (!HA_RULE_IS_ESCAPE(rule))
			continue;
		if (rule == HA_ESCAPE_EXT) {
			if (index == view->table.next || view_ext(view, index).row != row)
				return false;
			index++;
		} else if (rule < HA_ESCAPE_END || rule > HA_ESCAPE_PLT10) {
			return false;
		}
	}
	return index == view->table.next;
}

struct error *ehframe_verify(const struct ha_table *table, size_t size)
{
	struct view view;

	if (!view_init(&view, table, size) ||
	    !array_fits(size, view.table.low, view.table.nrows + (uint64_t)EHFRAME_LOW_SLACK, 1))
		return error_create(ERROR_FORMAT, "unwind table of %zu bytes: arrays lie outside",
				    size);
	if (!blocks_are_sorted(&view))
		return error_create(ERROR_FORMAT, "unwind table at %#lx: rows are not sorted",
				    view.table.base);
	if (!ext_is_consistent(&view))
		return error_create(ERROR_FORMAT, "unwind table at %#lx: inconsistent ext rows",
				    view.table.base);
	return NULL;
}
