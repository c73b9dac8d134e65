// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/ehframe_rows.h"

#include <stdlib.h>

#include "resolver/ehframe_place.h"

/* Where a register was saved, if that is at CFA plus a constant. */
static bool rule_is_at_cfa(const struct cfi_rule *rule, const struct place *cfa,
			   int64_t *offset_ret)
{
	struct place place;

	if (rule->how == CFI_OFFSET) {
		*offset_ret = rule->offset;
		return rule->offset == (int32_t)rule->offset;
	}
	if (rule->how != CFI_EXPRESSION)
		return false;
	place = place_of_expression(rule);
	return place_is_at_cfa(&place, cfa, offset_ret);
}

static bool rule_is_same(const struct cfi_rule *rule, uint8_t number)
{
	struct place place;

	switch (rule->how) {
	case CFI_UNSPECIFIED:
	case CFI_SAME:
	case CFI_UNDEFINED: /* nobody may ask for it then */
		return true;
	case CFI_REGISTER:
		return rule->offset == number;
	case CFI_VAL_EXPRESSION:
		place = place_of_expression(rule);
		return place.valid && !place.deref && place.reg == number && place.offset == 0;
	default:
		return false;
	}
}

/*
 * One FDE stands for the whole of a lazy PLT. Its CFA depends on pc & 15:
 * breg7 8, breg16 0, lit15, and, lit11, ge, lit3, shl, plus.
 */
static enum ha_escape plt_escape(const struct cfi_state *state)
{
	enum { LIT0 = 0x30 };
	static const uint8_t start[] = {0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a};
	static const uint8_t end[] = {0x2a, 0x33, 0x24, 0x22};
	const uint8_t *expression = state->cfa.expression;

	if (state->cfa.how != CFI_VAL_EXPRESSION || state->cfa.size != 11 ||
	    memcmp(expression, start, sizeof(start)) != 0 ||
	    memcmp(expression + 7, end, sizeof(end)) != 0)
		return HA_ESCAPE_EXT;
	if (expression[6] == LIT0 + 11)
		return HA_ESCAPE_PLT11;
	if (expression[6] == LIT0 + 10)
		return HA_ESCAPE_PLT10;
	return HA_ESCAPE_EXT;
}

static bool ra_is_normal(const struct cfi_state *state)
{
	return state->reg[CFI_RA].how == CFI_OFFSET && state->reg[CFI_RA].offset == -8;
}

/* Code that switches stacks (longjmp) says where the caller's rsp is; we take it to be the CFA. */
static bool rsp_is_cfa(const struct cfi_state *state)
{
	const struct cfi_rule *rsp = &state->reg[CFI_RSP];

	return rsp->how == CFI_UNSPECIFIED || (rsp->how == CFI_VAL_OFFSET && rsp->offset == 0);
}

/* Fits the 16-bit form? */
static bool pack(const struct cfi_state *state, uint16_t *ret)
{
	const struct cfi_rule *rbp = &state->reg[CFI_RBP];
	int64_t offset = state->cfa.offset;
	uint16_t rule;

	if (state->cfa.how != CFI_REGISTER || !ra_is_normal(state) || !rsp_is_cfa(state))
		return false;
	if (state->cfa_register != HA_EXT_RSP && state->cfa_register != HA_EXT_RBP)
		return false;
	if (offset < 0 || offset % 8 != 0 || offset / 8 >= HA_RULE_ESCAPE >> 5)
		return false;
	rule = (uint16_t)(offset / 8 << 5);
	if (state->cfa_register == HA_EXT_RBP)
		rule |= HA_RULE_RBP;
	if (rbp->how == CFI_OFFSET) {
		if (rbp->offset % 8 != 0 || rbp->offset > -8 || rbp->offset < -31 * 8)
			return false;
		rule |= (uint16_t)(-rbp->offset / 8);
	} else if (rbp->how > CFI_UNDEFINED) {
		return false;
	}
	*ret = rule;
	return true;
}

static bool ext_set_ra(const struct cfi_state *state, const struct place *cfa,
		       struct ha_rule_ext *ext)
{
	const struct cfi_rule *ra = &state->reg[CFI_RA];
	int64_t offset;

	if (ra->how == CFI_REGISTER && ra->offset < 16) {
		ext->flags |= HA_EXT_RA_REGISTER;
		ext->ra = (uint8_t)ra->offset;
		return true;
	}
	return rule_is_at_cfa(ra, cfa, &offset) && offset == -8;
}

static bool ext_set_rbp(const struct cfi_state *state, const struct place *cfa,
			struct ha_rule_ext *ext)
{
	const struct cfi_rule *rbp = &state->reg[CFI_RBP];
	struct place place;
	int64_t offset;

	if (rule_is_same(rbp, HA_EXT_RBP))
		return true;
	if (rule_is_at_cfa(rbp, cfa, &offset)) {
		ext->flags |= HA_EXT_RBP_SAVED;
		ext->rbp_offset = (int32_t)offset;
		return true;
	}
	if (rbp->how != CFI_EXPRESSION)
		return false;
	place = place_of_expression(rbp);
	if (!place.valid || place.deref || place.reg != HA_EXT_RBP ||
	    place.offset != (int32_t)place.offset)
		return false;
	ext->flags |= HA_EXT_RBP_DEREF;
	ext->rbp_offset = (int32_t)place.offset;
	return true;
}

static void ext_set_saved(const struct cfi_state *state, const struct place *cfa,
			  struct ha_rule_ext *ext)
{
	static const uint8_t number[] = {HA_EXT_RBX, HA_EXT_R12, HA_EXT_R13, HA_EXT_R14,
					 HA_EXT_R15};

	for (unsigned int i = 0; i < sizeof(number); i++) {
		const struct cfi_rule *rule = &state->reg[CFI_RBX + i];
		int64_t offset;

		if (rule->how != CFI_UNDEFINED && rule_is_same(rule, number[i]))
			continue;
		ext->saved[i] = HA_EXT_SAVED_UNKNOWN;
		if (rule_is_at_cfa(rule, cfa, &offset) && offset < 0 && offset % 8 == 0 &&
		    -offset / 8 < HA_EXT_SAVED_UNKNOWN)
			ext->saved[i] = (uint8_t)(-offset / 8);
	}
}

static struct ha_rule_ext ext_of_state(const struct cfi_state *state)
{
	struct ha_rule_ext ext = {0};
	struct place cfa = place_of_cfa(state);

	if (!cfa.valid || cfa.offset != (int32_t)cfa.offset || cfa.add != (int32_t)cfa.add ||
	    !rsp_is_cfa(state) || !ext_set_ra(state, &cfa, &ext) || !ext_set_rbp(state, &cfa, &ext))
		return (struct ha_rule_ext){.flags = HA_EXT_STOP};
	ext.base = cfa.reg;
	ext.cfa_offset = (int32_t)cfa.offset;
	ext.cfa_add = (int32_t)cfa.add;
	if (cfa.deref)
		ext.flags |= HA_EXT_DEREF;
	ext_set_saved(state, &cfa, &ext);
	return ext;
}

static bool grow(void **array, uint32_t *capacity, size_t element)
{
	uint32_t wanted = *capacity ? *capacity * 2 : 1024;
	void *grown = wanted > *capacity ? reallocarray(*array, wanted, element) : NULL;

	if (!grown)
		return false;
	*array = grown;
	*capacity = wanted;
	return true;
}

static bool rows_reserve(struct rows *rows)
{
	uint32_t capacity = rows->capacity;

	if (rows->count < rows->capacity)
		return true;
	if (!grow((void **)&rows->rule, &capacity, sizeof(*rows->rule)) ||
	    !grow((void **)&rows->offset, &rows->capacity, sizeof(*rows->offset))) {
		rows->no_memory = true;
		return false;
	}
	return true;
}

static bool rows_add_ext(struct rows *rows, const struct ha_rule_ext *ext)
{
	if (rows->ext_count == rows->ext_capacity &&
	    !grow((void **)&rows->ext, &rows->ext_capacity, sizeof(*rows->ext))) {
		rows->no_memory = true;
		return false;
	}
	rows->ext[rows->ext_count] = *ext;
	rows->ext[rows->ext_count++].row = rows->count;
	if (ext->flags & HA_EXT_STOP)
		rows->stops++;
	return true;
}

/* Would a row with this rule say the same as the last one? */
static bool rows_last_equals(const struct rows *rows, uint16_t rule, const struct ha_rule_ext *ext)
{
	struct ha_rule_ext last;

	if (rows->count == 0 || rows->rule[rows->count - 1] != rule)
		return false;
	if (!ext)
		return true;
	last = rows->ext[rows->ext_count - 1];
	last.row = ext->row;
	return memcmp(&last, ext, sizeof(last)) == 0;
}

static void rows_add(struct rows *rows, uint64_t address, uint16_t rule,
		     const struct ha_rule_ext *ext)
{
	uint32_t offset = (uint32_t)(address - rows->low);

	if (rows->count && rows->offset[rows->count - 1] == offset)
		rows_truncate(rows, rows->count - 1);
	if (rows_last_equals(rows, rule, ext) || !rows_reserve(rows) ||
	    (ext && !rows_add_ext(rows, ext)))
		return;
	rows->offset[rows->count] = offset;
	rows->rule[rows->count++] = rule;
}

void rows_add_escape(struct rows *rows, uint64_t address, enum ha_escape escape)
{
	rows_add(rows, address, (uint16_t)escape, NULL);
}

void rows_add_state(struct rows *rows, uint64_t address, const struct cfi_state *state, bool signal)
{
	struct ha_rule_ext ext;
	uint16_t rule;

	if (!signal && !rows->full && pack(state, &rule)) {
		rows_add(rows, address, rule, NULL);
		return;
	}
	if (signal) {
		rows_add_escape(rows, address, HA_ESCAPE_SIGNAL);
	} else if (state->reg[CFI_RA].how == CFI_UNDEFINED) {
		rows_add_escape(rows, address, HA_ESCAPE_END);
	} else if (plt_escape(state) != HA_ESCAPE_EXT && ra_is_normal(state)) {
		rows_add_escape(rows, address, plt_escape(state));
	} else {
		ext = ext_of_state(state);
		rows_add(rows, address, HA_ESCAPE_EXT, &ext);
	}
}

void rows_truncate(struct rows *rows, uint32_t count)
{
	rows->count = count;
	while (rows->ext_count && rows->ext[rows->ext_count - 1].row >= count) {
		if (rows->ext[--rows->ext_count].flags & HA_EXT_STOP)
			rows->stops--;
	}
}

/* Where each array goes; false if the table would not fit 32-bit offsets. */
static bool lay_out(struct ha_table *table)
{
	uint64_t size = sizeof(*table);

	table->block = (uint32_t)size;
	size += sizeof(uint32_t) * ((uint64_t)table->nblocks + 1);
	table->ext = (uint32_t)size;
	size += sizeof(struct ha_rule_ext) * (uint64_t)table->next;
	table->rule = (uint32_t)size;
	size += sizeof(uint16_t) * (uint64_t)table->nrows;
	table->low = (uint32_t)size;
	size += (uint64_t)table->nrows + EHFRAME_LOW_SLACK;
	size = (size + 7) / 8 * 8;
	table->size = (uint32_t)size;
	return size <= UINT32_MAX;
}

static void fill(const struct rows *rows, uint32_t shift, struct ha_table *table)
{
	uint8_t *bytes = (uint8_t *)table;
	uint32_t *block = (uint32_t *)(bytes + table->block);
	struct ha_rule_ext *ext = (struct ha_rule_ext *)(bytes + table->ext);
	uint16_t *rule = (uint16_t *)(bytes + table->rule);
	uint8_t *low = bytes + table->low;
	uint64_t to_low = rows->low - table->base; /* may wrap: base may be below */
	uint64_t next = 0;

	if (shift) {
		rule[0] = HA_ESCAPE_UNKNOWN;
		low[0] = 0;
		block[next++] = 0;
	}
	for (uint32_t i = 0; i < rows->count; i++) {
		uint64_t position = rows->offset[i] + to_low;

		while (next <= position >> 8)
			block[next++] = i + shift;
		rule[i + shift] = rows->rule[i];
		low[i + shift] = (uint8_t)position;
	}
	while (next <= table->nblocks)
		block[next++] = table->nrows;
	for (uint32_t i = 0; i < rows->ext_count; i++) {
		ext[i] = rows->ext[i];
		ext[i].row += shift;
	}
}

struct error *rows_build(const struct rows *rows, struct ehframe_table *ret)
{
	uint64_t first = rows->low + rows->offset[0];
	uint64_t last = rows->low + rows->offset[rows->count - 1];
	struct ha_table header = {.base = first & ~(uint64_t)0xff};
	uint32_t shift = first != header.base;
	struct ha_table *table;

	header.nblocks = (uint32_t)(((last - header.base) >> 8) + 1);
	header.nrows = rows->count + shift;
	header.next = rows->ext_count;
	if (header.nrows < rows->count || !lay_out(&header))
		return error_create(ERROR_UNSUPPORTED, "unwind table of more than 4 GiB");
	table = calloc(1, header.size);
	if (!table)
		return error_memory();
	*table = header;
	fill(rows, shift, table);
	ret->table = table;
	ret->size = header.size;
	ret->stats.stops = rows->stops;
	return NULL;
}

void rows_deinit(struct rows *rows)
{
	free(rows->offset);
	free(rows->rule);
	free(rows->ext);
}
