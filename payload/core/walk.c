/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/walk.h"

#include "payload/arch/x86_64/sigcontext.h"

#include <stddef.h>

#define SLOT_MAX 0xffffu
/* The key of a frame whose return address is 0: there is none. */
#define NO_CALLER (~0ull)
/* Frame pointer steps in code without tables that are tried to get back to code with tables. */
#define GUESS_STEPS 32u

enum step {
	STEP_TAKEN,
	STEP_END,  /* this was the outermost frame */
	STEP_ZERO, /* likewise, told by a return address of 0 */
	STEP_CUT,  /* cannot go on */
	STEP_FULL, /* no room for the next frame */
};

/* Order of ha_rule_ext.saved. */
enum { SAVED_RBX, SAVED_R12, SAVED_R13, SAVED_R14, SAVED_R15, SAVED_REGISTERS };

struct walk {
	const struct walk_start *start;
	struct walk_trace *trace;
	struct walk_result result;
	uint64_t base;		    /* address of slot 0 */
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
 * Add a frame to the trace, which has room. One of entry's stubs stays out: the
 * application did not put it there.
 */
static void record(struct walk *walk, uint64_t key, uint64_t sp)
{
	const struct walk_start *start = walk->start;
	struct walk_result *result = &walk->result;
	const struct ha_module *module;

	if (UNLIKELY(is_entry(start->shm, key))) {
		result->learnable = false;
		return;
	}
	walk->trace->slot[result->frames] = (uint16_t)((sp - 8 - walk->base) / 8);
	walk->trace->pc[result->frames++] = key + 1;
	if (UNLIKELY(start->loads_differ)) {
		result->learnable = false;
		module = rules_module(&start->rules, key);
		if (!module || !(module->flags & HA_MODULE_PERMANENT))
			result->flags |= HA_SITE_STALE;
	}
}

/*
 * Note that the next CFA follows from a word of the stack that points into it:
 * a saved rbp, mostly. The word was loaded from @slot, counted from base.
 */
static void trace_word(struct walk *walk, uint64_t slot, uint64_t word, uint32_t frames)
{
	uint64_t relative = walk_relative(word, walk->base);
	struct walk_result *result = &walk->result;

	if (!result->learnable)
		return;
	if (relative % 8 || relative / 8 > WALK_RBP_ZERO ||
	    (word && relative / 8 == WALK_RBP_ZERO) || slot > SLOT_MAX ||
	    result->rbps == WALK_RBPS_MAX) {
		result->learnable = false;
		return;
	}
	walk->trace->rbp[result->rbps++] = (struct walk_rbp){
		.slot = (uint16_t)slot,
		.value = (uint16_t)(relative / 8),
		.frame = (uint16_t)frames,
	};
}

static void trace_rbp(struct walk *walk, uint64_t rbp, uint32_t frames)
{
	if (walk->rbp_traced)
		return;
	walk->rbp_traced = true;
	trace_word(walk, walk->rbp_slot, rbp, frames);
}

/* The current frame's rbp was loaded from this address just now. */
static void set_rbp_source(struct walk *walk, uint64_t address)
{
	walk->rbp_slot = (address - walk->base) / 8;
	walk->rbp_traced = false;
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
		return STEP_ZERO;
	record(walk, walk->key, cfa);
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

	/* The psABI's mark of the outermost frame; or a register that happens to be 0. */
	if (!rbp) {
		trace_rbp(walk, rbp, walk->result.frames);
		walk->result.flags |= HA_SITE_GUESSED;
		return STEP_END;
	}
	/* The words that are looked at here are those that the next steps take. */
	if (!guess_leads_home(walk, rbp))
		return STEP_CUT;
	walk->result.flags |= HA_SITE_GUESSED;
	trace_rbp(walk, rbp, walk->result.frames);
	set_rbp_source(walk, rbp);
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
			record(walk, walk->key, sp);
			return STEP_CUT;
		}
		walk->switched = true;
		if (walk->bounds.low < sp - RED_ZONE)
			walk->bounds.low = sp - RED_ZONE;
	}
	walk->sp = sp;
	walk->saved_sp = sp;
	record(walk, walk->key, sp);
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

static bool ext_rbp(struct walk *walk, const struct ha_rule_ext *ext, uint64_t cfa, uint64_t *ret)
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
	if (ext->flags & HA_EXT_RBP_DEREF)
		trace_rbp(walk, walk->rbp, walk->result.frames);
	set_rbp_source(walk, slot);
	*ret = stack_load(slot);
	return true;
}

/* The CFA by an ext rule. False if it cannot be told. */
static bool ext_cfa(struct walk *walk, const struct ha_rule_ext *ext, uint64_t *ret)
{
	uint64_t cfa, word;

	if (!register_value(walk, ext->base, &cfa))
		return false;
	if (ext->base == HA_EXT_RBP)
		trace_rbp(walk, cfa, walk->result.frames);
	else if (ext->base != HA_EXT_RSP)
		walk->result.learnable = false;
	cfa += (uint64_t)(int64_t)ext->cfa_offset;
	if (ext->flags & HA_EXT_DEREF) {
		if (!word_in_bounds(walk, cfa))
			return false;
		word = stack_load(cfa);
		trace_word(walk, (cfa - walk->base) / 8, word, walk->result.frames);
		cfa = word + (uint64_t)(int64_t)ext->cfa_add;
	}
	*ret = cfa;
	return true;
}

static enum step step_ext(struct walk *walk)
{
	const struct ha_rule_ext *ext = rules_ext(&walk->start->rules, walk->key);
	uint64_t cfa, pc, rbp = walk->rbp;

	if (!ext || ext->flags & HA_EXT_STOP || !ext_cfa(walk, ext, &cfa))
		return STEP_CUT;
	/* With the return address in a register a frame may be empty. */
	if (ext->flags & HA_EXT_RA_REGISTER) {
		walk->result.learnable = false;
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
		return STEP_CUT;
	}
}

/* ---- the hot loop ---- */

/* In an epilogue that a signal has interrupted, rbp may lie below sp already. */
static bool is_popped(const struct walk *walk, uint64_t sp, uint64_t slot)
{
	return walk->context && sp == walk->sp && sp - slot <= RED_ZONE &&
	       word_in_bounds(walk, slot);
}

/*
 * Take steps by packed rules, in registers. Returns STEP_TAKEN at the first
 * rule that is none, or without room for a frame, with *@rule set to the rule
 * of the current frame; else how the walk ended.
 */
static enum step walk_packed(struct walk *walk, uint32_t *rule_ret)
{
	const struct rules rules = walk->start->rules;
	const struct ha_shm *shm = walk->start->shm;
	const uint64_t base = walk->base, high = walk->bounds.high;
	uint64_t key = walk->key, sp = walk->sp, rbp = walk->rbp;
	uint32_t frames = walk->result.frames;
	enum step step = STEP_TAKEN;

	for (;;) {
		uint32_t rule = rules_find(&rules, key);
		uint64_t cfa = HA_RULE_OFFSET(rule), slot;

		*rule_ret = rule;
		if (UNLIKELY(rule > 0xffff || HA_RULE_IS_ESCAPE(rule) || frames == HA_FRAMES_MAX))
			break;
		cfa += rule & HA_RULE_RBP ? rbp : sp;
		slot = cfa - HA_RULE_SAVED(rule) * 8;
		if (UNLIKELY(cfa <= sp || cfa > high || cfa & 7 ||
			     (slot < sp && !is_popped(walk, sp, slot)))) {
			step = STEP_CUT;
			break;
		}
		if (rule & HA_RULE_RBP && !walk->rbp_traced)
			trace_rbp(walk, rbp, frames);
		if (HA_RULE_SAVED(rule)) {
			rbp = stack_load(slot);
			walk->rbp_slot = (slot - base) / 8;
			walk->rbp_traced = false;
		}
		sp = cfa;
		key = stack_load(cfa - 8) - 1;
		if (UNLIKELY(key == NO_CALLER)) {
			step = STEP_ZERO;
			break;
		}
		if (UNLIKELY(is_entry(shm, key) || walk->start->loads_differ)) {
			walk->result.frames = frames;
			record(walk, key, sp);
			frames = walk->result.frames;
			continue;
		}
		walk->trace->slot[frames] = (uint16_t)((cfa - 8 - base) / 8);
		walk->trace->pc[frames++] = key + 1;
	}
	if (sp != walk->sp)
		walk->context = 0;
	walk->key = key;
	walk->sp = sp;
	walk->rbp = rbp;
	walk->result.frames = frames;
	return step;
}

void walk_run(const struct walk_start *start, struct walk_trace *trace, struct walk_result *ret)
{
	const struct ha_frame *frame = start->frame;
	struct walk walk = {
		.start = start,
		.trace = trace,
		.result = {.learnable = true},
		.base = walk_base(frame),
		.bounds = {walk_base(frame), start->bounds.high},
		.key = frame->ra - 1,
		.sp = (uint64_t)(frame + 1),
		.rbp = frame->rbp,
		.saved = {frame->rbx, frame->r12, frame->r13, frame->r14, frame->r15},
		.saved_sp = (uint64_t)(frame + 1),
		.saved_known = (1u << SAVED_REGISTERS) - 1,
	};
	enum step step;
	uint32_t rule;

	record(&walk, walk.key, walk.sp);
	do {
		step = walk_packed(&walk, &rule);
		if (step != STEP_TAKEN)
			break;
		step = STEP_FULL;
		if (walk.result.frames < HA_FRAMES_MAX || rule == HA_ESCAPE_END)
			step = step_escape(&walk, rule);
	} while (step == STEP_TAKEN);
	if (step == STEP_CUT)
		walk.result.flags |= HA_SITE_TRUNCATED;
	if (step == STEP_FULL)
		walk.result.flags |= HA_SITE_DEEP;
	/* A slot that holds 0 is not among those that the trie compares. */
	if (step == STEP_CUT || step == STEP_ZERO || (walk.sp - walk.base) / 8 > SLOT_MAX)
		walk.result.learnable = false;
	*ret = walk.result;
}
