/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The plain stack walk, by compiled unwind tables.
 *
 * It reads nothing outside of the bounds of the stack that it is on, and ends
 * after HA_FRAMES_MAX frames at most: each step moves the CFA strictly
 * outwards. It keeps what it has read, so that the trie (trie.h) can tell a
 * stack that it knows from one that it doesn't without a walk.
 *
 *	     ...
 *	| return address |  <- slot of pc[1]
 *	| ...            |
 *	+----------------+  <- sp, CFA of the hooked call
 *	| return address |  <- slot 1: pc[0]
 *	| rbp            |  <- slot 0: base
 *	| rbx ...        |     struct ha_frame
 */
#ifndef PAYLOAD_CORE_WALK_H
#define PAYLOAD_CORE_WALK_H

#include "payload/core/rules.h"
#include "payload/core/stack.h"
#include "payload/protocol.h"

#include <stdbool.h>
#include <stdint.h>

/* A saved rbp, or another pointer into the stack, that a CFA was computed from. */
struct walk_rbp {
	uint16_t slot;	/* where it was saved, in words from base */
	uint16_t value; /* the word that it points to, likewise; WALK_RBP_ZERO for 0 */
	uint16_t frame; /* the first frame whose return address was found through it */
};

#define WALK_RBP_ZERO 0xffffu

/* A walk with more of them is not learnable. */
#define WALK_RBPS_MAX 254u

/* What a walk writes; HA_SCRATCH_SIZE is divided into these. */
struct walk_trace {
	uint64_t owner;		      /* see scratch.h */
	uint64_t pc[HA_FRAMES_MAX];   /* as in struct ha_site */
	uint16_t slot[HA_FRAMES_MAX]; /* of pc[i], in words from base; if learnable */
	struct walk_rbp rbp[WALK_RBPS_MAX];
};
_Static_assert(sizeof(struct walk_trace) == 4096, "scratch buffers share no page");

/* Where a walk starts, and under which modules. */
struct walk_start {
	struct ha_shm *shm;
	const struct ha_frame *frame;
	uint64_t fs; /* thread pointer of the calling thread */
	struct rules rules;
	struct stack_bounds bounds; /* of the stack that frame lies on */
	bool loads_differ;	    /* the loader has added modules since the index was made */
};

struct walk_result {
	uint32_t frames; /* at least 1 */
	uint32_t rbps;	 /* entries of trace->rbp */
	uint16_t flags;	 /* enum ha_site_flags */
	/*
	 * Every word that decided over the result is in the trace: return
	 * addresses and the saved rbp's. Not so if there was a signal frame, a
	 * frame of entry's, a CFA by a rare register, a return address of 0, or if
	 * the walk was cut short.
	 */
	bool learnable;
};

/* Prepare @ret. False if there is no module index yet. */
static inline bool walk_prepare(struct ha_shm *shm, const struct ha_frame *frame, uint64_t fs,
				struct walk_start *ret)
{
	if (UNLIKELY(!rules_begin(shm, &ret->rules)))
		return false;
	ret->shm = shm;
	ret->frame = frame;
	ret->fs = fs;
	ret->loads_differ = rules_loads_differ(shm, ret->rules.index);
	stack_find(shm, fs, (uint64_t)(frame + 1), &ret->bounds);
	return true;
}

void walk_run(const struct walk_start *start, struct walk_trace *trace, struct walk_result *ret);

/* A pointer into the stack as distance from base in bytes, comparable to value * 8. */
static inline uint64_t walk_relative(uint64_t word, uint64_t base)
{
	return word ? word - base : WALK_RBP_ZERO * 8ull;
}

/* The address of slot 0. */
static inline uint64_t walk_base(const struct ha_frame *frame)
{
	return (uint64_t)&frame->rbp;
}

#endif
