// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/ehframe_place.h"

/* DW_OP_* that occur in call frame information. */
enum {
	OP_DEREF = 0x06,
	OP_CONST1U = 0x08,
	OP_CONST1S = 0x09,
	OP_CONST2S = 0x0b,
	OP_MINUS = 0x1c,
	OP_PLUS = 0x22,
	OP_PLUS_UCONST = 0x23,
	OP_LIT0 = 0x30,
	OP_LIT31 = 0x4f,
	OP_BREG0 = 0x70,
	OP_BREG15 = 0x7f,
};

static void place_add(struct place *place, int64_t value)
{
	int64_t *to = place->deref ? &place->add : &place->offset;

	if (__builtin_add_overflow(*to, value, to))
		place->valid = false;
}

/* A constant and the plus or minus that must follow it. */
static void place_add_constant(struct place *place, struct reader *reader, int64_t value)
{
	uint8_t operation = reader_u8(reader);

	if (operation == OP_PLUS)
		place_add(place, value);
	else if (operation == OP_MINUS)
		place_add(place, -value);
	else
		place->valid = false;
}

static void place_operation(struct place *place, struct reader *reader)
{
	uint8_t operation = reader_u8(reader);
	uint64_t constant;

	switch (operation) {
	case OP_DEREF:
		if (place->deref)
			place->valid = false;
		place->deref = true;
		break;
	case OP_PLUS_UCONST:
		constant = reader_uleb(reader);
		if (constant > INT32_MAX)
			place->valid = false;
		else
			place_add(place, (int64_t)constant);
		break;
	case OP_CONST1U:
		place_add_constant(place, reader, reader_u8(reader));
		break;
	case OP_CONST1S:
		place_add_constant(place, reader, (int8_t)reader_u8(reader));
		break;
	case OP_CONST2S:
		place_add_constant(place, reader, (int16_t)reader_u16(reader));
		break;
	case OP_LIT0 ... OP_LIT31:
		place_add_constant(place, reader, operation - OP_LIT0);
		break;
	default:
		place->valid = false;
	}
}

struct place place_of_expression(const struct cfi_rule *rule)
{
	struct reader reader = {.at = rule->expression, .end = rule->expression + rule->size};
	struct place place = {0};
	uint8_t operation = reader_u8(&reader);

	if (operation < OP_BREG0 || operation > OP_BREG15)
		return place;
	place.reg = operation - OP_BREG0;
	place.offset = reader_sleb(&reader);
	place.valid = true;
	while (place.valid && !reader.bad && reader.at < reader.end)
		place_operation(&place, &reader);
	if (reader.bad)
		place.valid = false;
	return place;
}

struct place place_of_cfa(const struct cfi_state *state)
{
	if (state->cfa.how == CFI_VAL_EXPRESSION)
		return place_of_expression(&state->cfa);
	if (state->cfa.how == CFI_REGISTER && state->cfa_register < 16)
		return (struct place){.valid = true,
				      .reg = (uint8_t)state->cfa_register,
				      .offset = state->cfa.offset};
	return (struct place){0};
}

bool place_is_at_cfa(const struct place *place, const struct place *cfa, int64_t *offset_ret)
{
	int64_t offset = place->deref ? place->add - cfa->add : place->offset - cfa->offset;

	if (!place->valid || place->reg != cfa->reg || place->deref != cfa->deref)
		return false;
	if (place->deref && place->offset != cfa->offset)
		return false;
	if (offset != (int32_t)offset)
		return false;
	*offset_ret = offset;
	return true;
}
