// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/selfcheck.h"
#include "injector/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "injector/shm.h"
#include "payload/protocol.h"
#include "resolver/cleanup.h"

/* Frames of entry's stubs come on top of those that a site may have. */
#define THEIRS_MAX (HA_FRAMES_MAX + 64u)

/*
 * One of so many events is captured: more when captures were all in use, so
 * that what is checked is spread over the time. Primes, since programs have
 * rhythms.
 */
static const uint16_t steps[] = {SELFCHECK_EVERY, 3, 7, 13, 31, 61, 127, 251, 509, 1021};
#define STEPS (sizeof(steps) / sizeof(steps[0]))

/* How long a drain goes on while the target fills captures as fast as they are emptied. */
#define DRAIN_NS 5000000u

struct selfcheck {
	struct reader *reader;
	struct shm *shm;
	const struct modules *modules;
	struct oracle_copy *oracle;
	struct ha_capture *copy; /* the target cannot change it any more */
	bool *seen;		 /* by site */
	size_t step;		 /* index into steps */
	struct selfcheck_counts counts;
	char *difference[SELFCHECK_SHOWN];
	size_t differences;
};

/* What libunwind found, as struct ha_site would have it. */
struct theirs {
	uint64_t pc[THEIRS_MAX];
	size_t count;
	enum oracle_end end;
};

static void selfcheck_freep(struct selfcheck **selfcheck)
{
	selfcheck_free(*selfcheck);
}

struct error *selfcheck_create(struct reader *reader, const struct memory_reader *memory,
			       const struct modules *modules, struct selfcheck **ret)
{
	CLEANUP(selfcheck_freep) struct selfcheck *selfcheck = calloc(1, sizeof(*selfcheck));
	struct error *err;

	if (!selfcheck)
		return error_memory();
	selfcheck->reader = reader;
	selfcheck->shm = reader->shm;
	selfcheck->modules = modules;
	selfcheck->copy = calloc(1, sizeof(*selfcheck->copy));
	selfcheck->seen = calloc(reader->shm->site_capacity, sizeof(*selfcheck->seen));
	if (!selfcheck->copy || !selfcheck->seen)
		return error_memory();
	err = oracle_copy_create(memory, modules, &selfcheck->oracle);
	if (err)
		return err;
	*ret = take(selfcheck);
	return NULL;
}

void selfcheck_free(struct selfcheck *selfcheck)
{
	size_t i;

	if (!selfcheck)
		return;
	for (i = 0; i < SELFCHECK_SHOWN; i++)
		free(selfcheck->difference[i]);
	oracle_copy_free(selfcheck->oracle);
	free(selfcheck->copy);
	free(selfcheck->seen);
	free(selfcheck);
}

void selfcheck_flush(struct selfcheck *selfcheck)
{
	oracle_copy_flush(selfcheck->oracle);
}

const struct selfcheck_counts *selfcheck_counts(const struct selfcheck *selfcheck)
{
	return &selfcheck->counts;
}

const char *selfcheck_difference(const struct selfcheck *selfcheck, size_t index)
{
	return index < SELFCHECK_SHOWN ? selfcheck->difference[index] : NULL;
}

/* ------------------------------------------------------------------------
 * Comparing
 */

enum selfcheck_verdict selfcheck_compare(const struct reader_site *ours, const uint64_t *pc,
					 size_t count, enum oracle_end end)
{
	size_t common = ours->frames < count ? ours->frames : count;
	bool truncated = ours->flags & HA_SITE_TRUNCATED;

	if (memcmp(ours->pc, pc, common * sizeof(*pc)) != 0)
		return SELFCHECK_DIFFERENT;
	if (ours->frames < count)
		return ours->flags & HA_SITE_DEEP ? SELFCHECK_SAME : SELFCHECK_DIFFERENT;
	switch (end) {
	case ORACLE_COMPLETE:
		return ours->frames == count && !truncated ? SELFCHECK_SAME : SELFCHECK_DIFFERENT;
	case ORACLE_NO_TABLE:
		/* We may guess our way on, but must say so. */
		return ours->frames == count || ours->flags & (HA_SITE_GUESSED | HA_SITE_STALE)
			       ? SELFCHECK_LIMITED
			       : SELFCHECK_DIFFERENT;
	case ORACLE_OUTSIDE:
		return SELFCHECK_UNCHECKED;
	case ORACLE_FAILED:
		return ours->frames == count && truncated ? SELFCHECK_LIMITED : SELFCHECK_DIFFERENT;
	case ORACLE_FULL:
		break;
	}
	return SELFCHECK_DIFFERENT;
}

/* ------------------------------------------------------------------------
 * What a difference looks like
 */

static void frame_print(FILE *out, const struct selfcheck *selfcheck, const uint64_t *pc,
			size_t count, size_t i)
{
	const struct module *module;
	const char *name;
	char text[80] = "";

	if (i < count) {
		module = modules_find(selfcheck->modules, pc[i] - 1);
		name = module ? strrchr(module->path, '/') : NULL;
		snprintf(text, sizeof(text), "%#llx %.30s+%#llx", (unsigned long long)pc[i],
			 !module ? "?"
			 : name	 ? name + 1
				 : module->path,
			 (unsigned long long)(module ? pc[i] - module->bias : 0));
	}
	fprintf(out, "  %-50s", text);
}

static const char *end_name(enum oracle_end end)
{
	static const char *const names[] = {
		[ORACLE_COMPLETE] = "complete",
		[ORACLE_NO_TABLE] = "ends where there is no table",
		[ORACLE_OUTSIDE] = "ends at the end of the copied stack",
		[ORACLE_FAILED] = "libunwind failed",
		[ORACLE_FULL] = "goes on",
	};

	return names[end];
}

static struct error *difference_keep(struct selfcheck *selfcheck, uint32_t number,
				     const struct reader_site *ours, const struct theirs *theirs)
{
	size_t rows = ours->frames > theirs->count ? ours->frames : theirs->count, i, size;
	FILE *out;

	if (selfcheck->differences == SELFCHECK_SHOWN)
		return NULL;
	out = open_memstream(&selfcheck->difference[selfcheck->differences], &size);
	if (!out)
		return error_memory();
	fprintf(out,
		"the stack of site %u (%u frames%s%s%s%s) differs from libunwind's (%zu frames, "
		"%s):",
		number, ours->frames, ours->flags & HA_SITE_TRUNCATED ? ", truncated" : "",
		ours->flags & HA_SITE_GUESSED ? ", guessed" : "",
		ours->flags & HA_SITE_STALE ? ", unknown module" : "",
		ours->flags & HA_SITE_DEEP ? ", deep" : "", theirs->count, end_name(theirs->end));
	fprintf(out, "\n%9s%-50s  libunwind", "", "recorded");
	for (i = 0; i < rows; i++) {
		bool same = i < ours->frames && i < theirs->count && ours->pc[i] == theirs->pc[i];

		fprintf(out, "\n  %c %3zu", same ? ' ' : '*', i);
		frame_print(out, selfcheck, ours->pc, ours->frames, i);
		frame_print(out, selfcheck, theirs->pc, theirs->count, i);
	}
	if (fclose(out))
		return error_memory();
	selfcheck->differences++;
	return NULL;
}

/* ------------------------------------------------------------------------
 * Captures
 */

static bool capture_is_valid(const struct ha_capture *capture)
{
	return capture->stack_size >= sizeof(struct ha_frame) &&
	       capture->stack_size <= HA_CAPTURE_STACK_SIZE && capture->stack_size % 8 == 0 &&
	       capture->stack_address % 8 == 0 &&
	       capture->stack_address <= UINT64_MAX - HA_CAPTURE_STACK_SIZE;
}

static void state_set(struct oracle_state *state, enum ha_ext_base reg, uint64_t value)
{
	state->reg[reg] = value;
	state->known |= 1u << reg;
}

static struct oracle_state state_of(const struct ha_capture *capture)
{
	const struct ha_frame *frame = (const struct ha_frame *)capture->stack;
	struct oracle_state state = {
		.pc = frame->ra,
		.low = capture->stack_address,
		.stack = (const uint8_t *)capture->stack,
		.size = capture->stack_size,
	};

	state_set(&state, HA_EXT_RBX, frame->rbx);
	state_set(&state, HA_EXT_RBP, frame->rbp);
	state_set(&state, HA_EXT_R12, frame->r12);
	state_set(&state, HA_EXT_R13, frame->r13);
	state_set(&state, HA_EXT_R14, frame->r14);
	state_set(&state, HA_EXT_R15, frame->r15);
	state_set(&state, HA_EXT_RSP, capture->stack_address + sizeof(*frame));
	return state;
}

/* The payload leaves frames of entry's stubs out, and so do we. */
static struct error *theirs_find(struct selfcheck *selfcheck, struct theirs *ret)
{
	const struct ha_shm *header = selfcheck->shm->header;
	const struct oracle_state state = state_of(selfcheck->copy);
	struct oracle_frame frames[THEIRS_MAX];
	struct error *err;
	size_t count, i;

	err = oracle_copy_unwind(selfcheck->oracle, &state, frames, THEIRS_MAX, &count, &ret->end);
	if (err)
		return err;
	ret->count = 0;
	for (i = 0; i < count; i++) {
		uint64_t pc = frames[i].pc + frames[i].interrupted;

		if (pc - 1 < header->entry_low || pc - 1 >= header->entry_high)
			ret->pc[ret->count++] = pc;
	}
	return NULL;
}

static struct error *verdict_count(struct selfcheck *selfcheck, const struct reader_site *ours,
				   const struct theirs *theirs)
{
	uint32_t number = selfcheck->copy->site;
	struct selfcheck_counts *counts = &selfcheck->counts;
	enum selfcheck_verdict verdict;

	verdict = selfcheck_compare(ours, theirs->pc, theirs->count, theirs->end);
	if (verdict == SELFCHECK_UNCHECKED) {
		counts->unchecked++;
		return NULL;
	}
	counts->compared++;
	counts->limited += verdict == SELFCHECK_LIMITED;
	counts->distinct += !selfcheck->seen[number];
	selfcheck->seen[number] = true;
	if (verdict != SELFCHECK_DIFFERENT)
		return NULL;
	counts->different++;
	return difference_keep(selfcheck, number, ours, theirs);
}

/* Compare the private copy. */
static struct error *copy_check(struct selfcheck *selfcheck)
{
	const struct ha_capture *capture = selfcheck->copy;
	const struct reader_site *ours = NULL;
	struct theirs theirs;
	struct error *err = NULL;

	if (capture_is_valid(capture) &&
	    capture->module_index == selfcheck->shm->header->module_index)
		err = reader_site(selfcheck->reader, capture->site, &ours);
	if (err)
		return err;
	if (!ours) {
		selfcheck->counts.unchecked++;
		return NULL;
	}
	err = theirs_find(selfcheck, &theirs);
	return err ? err : verdict_count(selfcheck, ours, &theirs);
}

static void capture_copy(const struct ha_capture *capture, struct ha_capture *ret)
{
	uint32_t size = __atomic_load_n(&capture->stack_size, __ATOMIC_RELAXED);

	if (size > HA_CAPTURE_STACK_SIZE)
		size = HA_CAPTURE_STACK_SIZE;
	memcpy(ret, capture, offsetof(struct ha_capture, stack));
	memcpy(ret->stack, capture->stack, size);
	ret->stack_size = size;
}

/* Capture less often when there is more than we take, and the other way round. */
static void step_adapt(struct selfcheck *selfcheck, size_t full)
{
	if (full == HA_CAPTURES && selfcheck->step + 1 < STEPS)
		selfcheck->step++;
	else if (full < HA_CAPTURES / 8 && selfcheck->step > 0)
		selfcheck->step--;
	__atomic_store_n(&selfcheck->shm->header->capture_every, steps[selfcheck->step],
			 __ATOMIC_RELAXED);
}

/* Compare all that are full; @full_ret counts them. */
static struct error *captures_check(struct selfcheck *selfcheck, size_t *full_ret)
{
	struct ha_captures *captures = shm_region(selfcheck->shm, HA_REGION_CAPTURES);
	struct error *err = NULL;
	size_t full = 0, i;

	for (i = 0; i < HA_CAPTURES && !err; i++) {
		/* Pairs with the payload's release store of FULL. */
		if (__atomic_load_n(&captures->state[i], __ATOMIC_ACQUIRE) != HA_CAPTURE_FULL)
			continue;
		full++;
		capture_copy(&captures->capture[i], selfcheck->copy);
		__atomic_store_n(&captures->state[i], HA_CAPTURE_FREE, __ATOMIC_RELEASE);
		err = copy_check(selfcheck);
	}
	*full_ret = full;
	return err;
}

struct error *selfcheck_drain(struct selfcheck *selfcheck)
{
	uint64_t deadline_ns = clock_now_ns() + DRAIN_NS;
	size_t full;
	struct error *err = captures_check(selfcheck, &full);

	step_adapt(selfcheck, full);
	while (!err && full == HA_CAPTURES && clock_now_ns() < deadline_ns)
		err = captures_check(selfcheck, &full);
	return err;
}
