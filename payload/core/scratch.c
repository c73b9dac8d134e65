/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/scratch.h"

#include <stddef.h>

#define BUFFERS	    (HA_SCRATCH_SIZE / sizeof(struct walk_trace))
#define SPARES	    (BUFFERS - HA_STRIPES)
#define SPARE_TRIES 16u

static bool scratch_try(struct walk_trace *trace, const struct stack_bounds *bounds, uint64_t sp)
{
	uint64_t owner = load_relaxed(&trace->owner);
	bool abandoned = owner >= bounds->low && owner < sp;

	return (!owner || abandoned) && word_replace(&trace->owner, owner, sp);
}

struct walk_trace *scratch_claim(const struct walk_start *start, uint64_t line_index)
{
	struct walk_trace *traces = shm_region(start->shm, HA_REGION_SCRATCH);
	uint64_t sp = (uint64_t)start->frame;

	/* Each line has its own; the spare ones are for handlers and shared lines. */
	if (LIKELY(scratch_try(&traces[line_index], &start->bounds, sp)))
		return &traces[line_index];
	for (uint64_t i = 0; i < SPARE_TRIES; i++) {
		struct walk_trace *trace = &traces[HA_STRIPES + (line_index * 7 + i) % SPARES];

		if (scratch_try(trace, &start->bounds, sp))
			return trace;
	}
	return NULL;
}

void scratch_release(struct walk_trace *trace)
{
	store_release(&trace->owner, 0);
}
