/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/walk.h"

#include "payload/arch/x86_64/sigcontext.h"

#include <stddef.h>

#define SLOT_MAX 0xffffu
/* Frame pointer steps in code without tables that are tried to get back to code with tables. */
#define GUESS_STEPS 32u

enum step {
	STEP_TAKEN,
	STEP_END,  /* this was the outermost frame */
	STEP_CUT,  /* cannot go on */
	STEP_FULL, /* no room for the next frame */
};

/* Order of ha_rule_ext.saved. */
enum { SAVED_RBX, SAVED_R12, SAVED_R13, SAVED_R14, SAVED_R15, SAVED_REGISTERS };

struct walk {
	const struct walk_start *start;
	struct walk_trace *trace;
	struct walk_result result;
	struct stack_bounds bounds; /* of what may be read of the stack that sp is on */
	/* The current frame. */
	uint64_t key; /* address inside its current instruction; for a call the last byte of it */
	uint64_t sp, rbp;
	uint64_t context;  /* if a signal interrupted it: the ucontext; else 0 */
	uint64_t rbp_slot; /* where rbp was loaded from, in words from base, while learnable */
	bool rbp_traced;   /* that is in the trace already */
	bool switched;	   /* has left the stack that it began on */
	/*
	 * rbx, r12..r15: packed rules tell nothing of them, so they are those of
	 * the current frame only while sp is the one that they were taken at.
	 */
	uint64_t saved[SAVED_REGISTERS];
	uint64_t saved_sp;
	uint32_t saved_known; /* bit mask */
};

static bool word_in_bounds(const struct walk *walk, uint64_t address)
{
	return address >= walk->bounds.low && address < walk->bounds.high && !(address & 7);
}

/* Whether an address is in entry's stubs. */
static bool is_entry(const struct ha_shm *shm, uint64_t address)
{
	return address - shm->entry_low < shm->entry_high - shm->entry_low;
}

/*
 * Add the current frame to the trace, which has room. A frame of entry's stubs
 * stays out: the application did not put it there.
 */
static inline void walk_record(struct walk *walk)
{
	const struct walk_start *start = walk->start;
	struct walk_result *result = &walk->result;
	const struct ha_module *module;

	if (UNLIKELY(is_entry(start->shm, walk->key))) {
		result->learnable = false;
		return;
	}
	walk->trace->slot[result->frames] =
		(uint16_t)((walk->sp - 8 - walk_base(start->frame)) / 8);
	walk->trace->pc[result->frames++] = walk->key + 1;
	if (UNLIKELY(start->loads_differ)) {
		result->learnable = false;
		module = rules_module(&start->rules, walk->key);
		if (!module || !(module->flags & HA_MODULE_PERMANENT))
			result->flags |= HA_SITE_STALE;
	}
}

/* ---- steps that the hot loop does not take ---- */

/* Enter the frame that called from before @pc; its sp is @cfa. */
static enum step step_to(struct walk *walk, uint64_t cfa, uint64_t pc, uint64_t rbp)
{
	walk->key = pc - 1;
	walk->sp = cfa;
	walk->rbp = rbp;
	walk->context = 0;
	if (!pc)
		return STEP_END;
	walk_record(walk);
	return STEP_TAKEN;
}

static bool cfa_is_sound(const struct walk *walk, uint64_t cfa)
{
	return cfa > walk->sp && cfa <= walk->bounds.high && !(cfa & 7);
}

/*
 * Whether the chain of frame pointers from @rbp leads back to code that has a
 * table, within a few frames (code made at run time calls itself).
 */
static bool guess_leads_home(const struct walk *walk, uint64_t rbp)
{
	uint64_t previous = walk->sp - 8;

	for (uint32_t i = 0; i < GUESS_STEPS; i++) {
		if (rbp < previous + 8 || !word_in_bounds(walk, rbp) ||
		    !word_in_bounds(walk, rbp + 8))
			return false;
		if (rules_read(&walk->start->rules, stack_load(rbp + 8) - 1) <= 0xffff)
			return true;
		previous = rbp;
		rbp = stack_load(rbp);
	}
	return false;
}

static enum step step_by_frame_pointer(struct walk *walk)
{
	uint64_t rbp = walk->rbp;

	walk->result.learnable = false;
	if (!guess_leads_home(walk, rbp))
		return STEP_CUT;
	walk->result.flags |= HA_SITE_GUESSED;
	return step_to(walk, rbp + 16, stack_load(rbp + 8), stack_load(rbp));
}

static enum step step_unknown_module(struct walk *walk)
{
	struct ha_shm *shm = walk->start->shm;

	store_relaxed(&shm->unknown_pc, walk->key);
	counter_add_shared(&shm->unknown_pcs, 1);
	return step_by_frame_pointer(walk);
}

/* Out of a signal handler: to the registers that the kernel has saved. */
static enum step step_signal(struct walk *walk)
{
	static const uint8_t saved[SAVED_REGISTERS] = {HA_EXT_RBX, HA_EXT_R12, HA_EXT_R13,
						       HA_EXT_R14, HA_EXT_R15};
	uint64_t context = walk->sp, sp;

	walk->result.learnable = false;
	if (context > walk->bounds.high || walk->bounds.high - context < SIGCONTEXT_SIZE)
		return STEP_CUT;
	sp = stack_load(context + SIGCONTEXT_RSP);
	walk->key = stack_load(context + SIGCONTEXT_RIP);
	walk->rbp = stack_load(context + SIGCONTEXT_RBP);
	for (uint32_t i = 0; i < SAVED_REGISTERS; i++)
		walk->saved[i] = stack_load(context + sigcontext_offset(saved[i]));
	walk->saved_known = (1u << SAVED_REGISTERS) - 1;
	walk->context = context;
	if (sp < walk->sp || sp >= walk->bounds.high) {
		/* The handler ran on another stack. */
		if (walk->switched ||
		    !stack_find(walk->start->shm, walk->start->fs, sp, &walk->bounds)) {
			walk_record(walk);
			return STEP_CUT;
		}
		walk->switched = true;
		walk->bounds.low = sp;
	}
	walk->sp = sp;
	walk->saved_sp = sp;
	walk_record(walk);
	return STEP_TAKEN;
}

/* The value of a register in the current frame. False if it is not known. */
static bool register_value(const struct walk *walk, enum ha_ext_base reg, uint64_t *ret)
{
	static const int8_t saved[] = {
		[HA_EXT_RBX] = SAVED_RBX, [HA_EXT_R12] = SAVED_R12, [HA_EXT_R13] = SAVED_R13,
		[HA_EXT_R14] = SAVED_R14, [HA_EXT_R15] = SAVED_R15,
	};

	switch (reg) {
	case HA_EXT_RSP:
		*ret = walk->sp;
		return true;
	case HA_EXT_RBP:
		*ret = walk->rbp;
		return true;
	case HA_EXT_RBX:
	case HA_EXT_R12:
	case HA_EXT_R13:
	case HA_EXT_R14:
	case HA_EXT_R15:
		*ret = walk->saved[saved[reg]];
		return walk->saved_sp == walk->sp && (walk->saved_known >> saved[reg] & 1);
	default:
		if (reg > HA_EXT_R15 || !walk->context)
			return false;
		*ret = stack_load(walk->context + sigcontext_offset(reg));
		return true;
	}
}

/* Go on with rbx, r12..r15 as the caller has them. */
static void restore_saved(struct walk *walk, const struct ha_rule_ext *ext, uint64_t cfa)
{
	if (walk->saved_sp != walk->sp)
		walk->saved_known = 0;
	walk->saved_sp = cfa;
	for (uint32_t i = 0; i < SAVED_REGISTERS; i++) {
		uint64_t slot = cfa - ext->saved[i] * 8ull;

		if (!ext->saved[i])
			continue;
		walk->saved_known &= ~(1u << i);
		if (ext->saved[i] == HA_EXT_SAVED_UNKNOWN || !word_in_bounds(walk, slot))
			continue;
		walk->saved[i] = stack_load(slot);
		walk->saved_known |= 1u << i;
	}
}

static bool ext_rbp(const struct walk *walk, const struct ha_rule_ext *ext, uint64_t cfa,
		    uint64_t *ret)
{
	uint64_t slot;

	if (ext->flags & HA_EXT_RBP_SAVED)
		slot = cfa + (uint64_t)(int64_t)ext->rbp_offset;
	else if (ext->flags & HA_EXT_RBP_DEREF)
		slot = walk->rbp + (uint64_t)(int64_t)ext->rbp_offset;
	else
		return true;
	if (!word_in_bounds(walk, slot))
		return false;
	*ret = stack_load(slot);
	return true;
}

static enum step step_ext(struct walk *walk)
{
	const struct ha_rule_ext *ext = rules_ext(&walk->start->rules, walk->key);
	uint64_t cfa, pc, rbp = walk->rbp;

	walk->result.learnable = false;
	if (!ext || ext->flags & HA_EXT_STOP || !register_value(walk, ext->base, &cfa))
		return STEP_CUT;
	cfa += (uint64_t)(int64_t)ext->cfa_offset;
	if (ext->flags & HA_EXT_DEREF) {
		if (!word_in_bounds(walk, cfa))
			return STEP_CUT;
		cfa = stack_load(cfa) + (uint64_t)(int64_t)ext->cfa_add;
	}
	/* With the return address in a register a frame may be empty. */
	if (ext->flags & HA_EXT_RA_REGISTER) {
		if (cfa < walk->sp || cfa >= walk->bounds.high || cfa & 7 ||
		    !register_value(walk, ext->ra, &pc))
			return STEP_CUT;
	} else if (cfa_is_sound(walk, cfa)) {
		pc = stack_load(cfa - 8);
	} else {
		return STEP_CUT;
	}
	if (!ext_rbp(walk, ext, cfa, &rbp))
		return STEP_CUT;
	restore_saved(walk, ext, cfa);
	return step_to(walk, cfa, pc, rbp);
}

/* Code of a PLT: a push or two of the lazy binding may have been executed. */
static enum step step_plt(struct walk *walk, uint64_t pushed_at)
{
	uint64_t pc = walk->context ? walk->key : walk->key + 1;
	uint64_t cfa = walk->sp + 8 + ((pc & 15) >= pushed_at ? 8 : 0);

	walk->result.learnable = false;
	if (!cfa_is_sound(walk, cfa))
		return STEP_CUT;
	return step_to(walk, cfa, stack_load(cfa - 8), walk->rbp);
}

static NOINLINE enum step step_escape(struct walk *walk, uint32_t rule)
{
	switch (rule) {
	case HA_ESCAPE_END:
		return STEP_END;
	case HA_ESCAPE_SIGNAL:
		return step_signal(walk);
	case HA_ESCAPE_PLT11:
		return step_plt(walk, 11);
	case HA_ESCAPE_PLT10:
		return step_plt(walk, 10);
	case HA_ESCAPE_EXT:
		return step_ext(walk);
	case RULE_NO_MODULE:
		return step_unknown_module(walk);
	case RULE_NO_TABLE:
	case HA_ESCAPE_UNKNOWN:
		return step_by_frame_pointer(walk);
	default:
		walk->result.learnable = false;
		return STEP_CUT;
	}
}

/* ---- the hot loop ---- */

/* Note that a CFA is computed from rbp. */
static void trace_rbp(struct walk *walk)
{
	struct walk_rbp *entry = &walk->trace->rbp[walk->result.rbps];
	uint64_t base = walk_base(walk->start->frame);

	if (walk->rbp_traced || !walk->result.learnable)
		return;
	if (walk->rbp < base || (walk->rbp - base) / 8 > SLOT_MAX || walk->rbp_slot > SLOT_MAX ||
	    walk->result.rbps == WALK_RBPS_MAX) {
		walk->result.learnable = false;
		return;
	}
	entry->slot = (uint16_t)walk->rbp_slot;
	entry->value = (uint16_t)((walk->rbp - base) / 8);
	entry->frame = (uint16_t)walk->result.frames;
	walk->rbp_traced = true;
	walk->result.rbps++;
}

static inline enum step step_packed(struct walk *walk, uint32_t rule)
{
	uint64_t cfa = HA_RULE_OFFSET(rule) + (rule & HA_RULE_RBP ? walk->rbp : walk->sp);
	uint64_t pc;

	if (UNLIKELY(!cfa_is_sound(walk, cfa)))
		return STEP_CUT;
	if (rule & HA_RULE_RBP)
		trace_rbp(walk);
	if (HA_RULE_SAVED(rule)) {
		uint64_t slot = cfa - HA_RULE_SAVED(rule) * 8;

		if (UNLIKELY(slot < walk->sp))
			return STEP_CUT;
		walk->rbp = stack_load(slot);
		walk->rbp_slot = (slot - walk_base(walk->start->frame)) / 8;
		walk->rbp_traced = false;
	}
	pc = stack_load(cfa - 8);
	walk->key = pc - 1;
	walk->sp = cfa;
	walk->context = 0;
	if (UNLIKELY(!pc))
		return STEP_END;
	walk_record(walk);
	return STEP_TAKEN;
}

bool walk_prepare(struct ha_shm *shm, const struct ha_frame *frame, uint64_t fs,
		  struct walk_start *ret)
{
	uint64_t loads;

	if (!rules_begin(shm, &ret->rules))
		return false;
	ret->shm = shm;
	ret->frame = frame;
	ret->fs = fs;
	ret->loads_differ = false;
	if (shm->load_adds) {
		loads = stack_load(shm->load_adds);
		ret->loads_differ = loads != ret->rules.index->loads;
	}
	stack_find(shm, fs, (uint64_t)(frame + 1), &ret->bounds);
	return true;
}

void walk_run(const struct walk_start *start, struct walk_trace *trace, struct walk_result *ret)
{
	const struct ha_frame *frame = start->frame;
	struct walk walk = {
		.start = start,
		.trace = trace,
		.result = {.learnable = true},
		.bounds = {walk_base(frame), start->bounds.high},
		.key = frame->ra - 1,
		.sp = (uint64_t)(frame + 1),
		.rbp = frame->rbp,
		.saved = {frame->rbx, frame->r12, frame->r13, frame->r14, frame->r15},
		.saved_sp = (uint64_t)(frame + 1),
		.saved_known = (1u << SAVED_REGISTERS) - 1,
	};
	enum step step = STEP_TAKEN;

	walk_record(&walk);
	while (step == STEP_TAKEN) {
		uint32_t rule = rules_find(&start->rules, walk.key);

		if (UNLIKELY(walk.result.frames == HA_FRAMES_MAX && rule != HA_ESCAPE_END))
			step = STEP_FULL;
		else if (LIKELY(rule <= 0xffff && !HA_RULE_IS_ESCAPE(rule)))
			step = step_packed(&walk, rule);
		else
			step = step_escape(&walk, rule);
	}
	if (step == STEP_CUT) {
		walk.result.flags |= HA_SITE_TRUNCATED;
		walk.result.learnable = false;
	}
	if (step == STEP_FULL)
		walk.result.flags |= HA_SITE_DEEP;
	if ((walk.sp - walk_base(frame)) / 8 > SLOT_MAX)
		walk.result.learnable = false;
	*ret = walk.result;
}
