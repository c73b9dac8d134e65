// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/stackwalk.h"

#include <string.h>

#include "injector/arch/x86_64_frame.h"

/* More than this between two frames is taken for a corrupt stack. */
static const uint64_t FRAME_MAX = (uint64_t)1 << 30;

/* Registers of the frame that is being left; `known` has a bit for each. */
struct walk {
	const struct code_map *map;
	const struct stack_image *image;
	uint64_t pc;
	uint64_t reg[16];
	uint32_t known;
	bool exact;
};

static const uint8_t callee_saved[EHFRAME_CALLEE_SAVED] = {
	[EHFRAME_RBX] = HA_EXT_RBX, [EHFRAME_R12] = HA_EXT_R12, [EHFRAME_R13] = HA_EXT_R13,
	[EHFRAME_R14] = HA_EXT_R14, [EHFRAME_R15] = HA_EXT_R15,
};

const struct code_range *code_map_find(const struct code_map *map, uint64_t pc)
{
	size_t low = 0, high = map->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (pc >= map->range[middle].high)
			low = middle + 1;
		else
			high = middle;
	}
	return low < map->count && pc >= map->range[low].low ? &map->range[low] : NULL;
}

static bool image_read(const struct stack_image *image, uint64_t address, uint64_t *ret)
{
	uint64_t offset = address - image->low;

	if (address < image->low || offset > image->size || image->size - offset < sizeof(*ret))
		return false;
	memcpy(ret, image->bytes + offset, sizeof(*ret));
	return true;
}

static bool is_known(const struct walk *walk, unsigned int number)
{
	return walk->known & (1u << number);
}

/* Load register @number of the caller from @address. */
static bool load(const struct walk *walk, struct walk *caller, unsigned int number,
		 uint64_t address)
{
	caller->known |= 1u << number;
	return image_read(walk->image, address, &caller->reg[number]);
}

static enum walk_end step_rbp(const struct walk *walk, const struct ehframe_rule *rule,
			      uint64_t cfa, struct walk *caller)
{
	uint64_t address = cfa;

	if (rule->rbp == EHFRAME_SAME)
		return WALK_COMPLETE;
	if (rule->rbp == EHFRAME_AT_RBP) {
		if (!is_known(walk, HA_EXT_RBP))
			return WALK_STOP;
		address = walk->reg[HA_EXT_RBP];
	}
	address += (uint64_t)(int64_t)rule->rbp_offset;
	return load(walk, caller, HA_EXT_RBP, address) ? WALK_COMPLETE : WALK_OUTSIDE;
}

static enum walk_end step_saved(const struct walk *walk, const struct ehframe_rule *rule,
				uint64_t cfa, struct walk *caller)
{
	for (int i = 0; i < EHFRAME_CALLEE_SAVED; i++) {
		unsigned int number = callee_saved[i];
		uint64_t address = cfa + (uint64_t)(int64_t)rule->saved_offset[i];

		if (rule->saved[i] == EHFRAME_LOST)
			caller->known &= ~(1u << number);
		else if (rule->saved[i] == EHFRAME_AT_CFA && !load(walk, caller, number, address))
			return WALK_OUTSIDE;
	}
	return WALK_COMPLETE;
}

static enum walk_end step_normal(const struct walk *walk, const struct ehframe_rule *rule,
				 struct walk *caller)
{
	uint64_t cfa = walk->reg[rule->base] + (uint64_t)(int64_t)rule->cfa_offset;
	enum walk_end end;

	if (!is_known(walk, rule->base))
		return WALK_STOP;
	if (rule->deref) {
		if (!image_read(walk->image, cfa, &cfa))
			return WALK_OUTSIDE;
		cfa += (uint64_t)(int64_t)rule->cfa_add;
	}
	if (rule->ra_register >= 0) {
		if (!is_known(walk, (unsigned int)rule->ra_register))
			return WALK_STOP;
		caller->pc = walk->reg[rule->ra_register];
	} else if (!image_read(walk->image, cfa - 8, &caller->pc)) {
		return WALK_OUTSIDE;
	}
	end = step_rbp(walk, rule, cfa, caller);
	if (end == WALK_COMPLETE)
		end = step_saved(walk, rule, cfa, caller);
	caller->reg[HA_EXT_RSP] = cfa;
	return end;
}

static enum walk_end step_plt(const struct walk *walk, unsigned int pushed_at, struct walk *caller)
{
	uint64_t cfa = walk->reg[HA_EXT_RSP] + 8 + ((walk->pc & 15) >= pushed_at ? 8 : 0);

	caller->reg[HA_EXT_RSP] = cfa;
	return image_read(walk->image, cfa - 8, &caller->pc) ? WALK_COMPLETE : WALK_OUTSIDE;
}

/* All registers of the interrupted code are in the ucontext. */
static enum walk_end step_signal(const struct walk *walk, struct walk *caller)
{
	uint64_t context = walk->reg[HA_EXT_RSP];

	caller->exact = true;
	if (!image_read(walk->image, context + UCONTEXT_PC, &caller->pc))
		return WALK_OUTSIDE;
	for (unsigned int number = 0; number < 16; number++) {
		if (!load(walk, caller, number, context + ucontext_register[number]))
			return WALK_OUTSIDE;
	}
	return WALK_COMPLETE;
}

/* WALK_COMPLETE: *caller is valid; kinds that have no caller do not come here. */
static enum walk_end step(const struct walk *walk, const struct ehframe_rule *rule,
			  struct walk *caller)
{
	/* What a function may overwrite is lost with its frame. */
	const uint32_t kept = 1u << HA_EXT_RBX | 1u << HA_EXT_RBP | 1u << HA_EXT_RSP |
			      1u << HA_EXT_R12 | 1u << HA_EXT_R13 | 1u << HA_EXT_R14 |
			      1u << HA_EXT_R15;

	*caller = *walk;
	caller->known &= kept;
	caller->exact = false;
	switch (rule->kind) {
	case EHFRAME_NORMAL:
		return step_normal(walk, rule, caller);
	case EHFRAME_PLT11:
		return step_plt(walk, 11, caller);
	case EHFRAME_PLT10:
		return step_plt(walk, 10, caller);
	case EHFRAME_SIGNAL:
		return step_signal(walk, caller);
	default:
		return WALK_STOP;
	}
}

/* The rule for the frame at walk->pc, and the frame as it is reported. */
static enum walk_end look_up(const struct walk *walk, struct walk_frame *frame,
			     struct ehframe_rule *rule)
{
	/* A return address may be the first byte of the next function. */
	uint64_t pc = walk->exact ? walk->pc : walk->pc - 1;
	const struct code_range *range = code_map_find(walk->map, pc);

	*frame = (struct walk_frame){
		.pc = walk->pc,
		.sp = walk->reg[HA_EXT_RSP],
		.rbp = walk->reg[HA_EXT_RBP],
		.module = range ? range->module : STACKWALK_NO_MODULE,
		.kind = EHFRAME_UNKNOWN,
		.exact = walk->exact,
	};
	if (!range)
		return WALK_NO_MODULE;
	ehframe_lookup(range->table, range->table_size, pc - range->bias, rule);
	frame->kind = rule->kind;
	if (rule->kind == EHFRAME_UNKNOWN)
		return WALK_NO_CFI;
	return rule->kind == EHFRAME_STOP ? WALK_STOP : WALK_COMPLETE;
}

enum walk_end stackwalk(const struct code_map *map, const struct stack_image *image,
			const struct walk_registers *start, bool after_call,
			struct walk_frame *frames, size_t capacity, size_t *count_ret)
{
	struct walk walk = {
		.map = map,
		.image = image,
		.pc = start->pc,
		.known = 0xffff,
		.exact = !after_call,
	};

	memcpy(walk.reg, start->reg, sizeof(walk.reg));
	for (size_t count = 0; count < capacity; count++) {
		struct ehframe_rule rule;
		struct walk caller;
		enum walk_end end = look_up(&walk, &frames[count], &rule);

		*count_ret = count + 1;
		if (end != WALK_COMPLETE || rule.kind == EHFRAME_END)
			return end;
		end = step(&walk, &rule, &caller);
		if (end != WALK_COMPLETE)
			return end;
		/*
		 * A signal may have come on another stack. Only code that was
		 * interrupted can have given up all of its frame (vfork).
		 */
		if (rule.kind != EHFRAME_SIGNAL &&
		    caller.reg[HA_EXT_RSP] - walk.reg[HA_EXT_RSP] - !walk.exact >= FRAME_MAX)
			return WALK_BACKWARDS;
		frames[count].cfa = caller.reg[HA_EXT_RSP];
		walk = caller;
	}
	return WALK_FULL;
}
