/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Stacks made by hand, and the walk over them: a few pages between two guard
 * pages, whose words a test sets from the hooked call outwards.
 */
#ifndef TESTS_CORE_STACK_H
#define TESTS_CORE_STACK_H

#include "payload/core/walk.h"
#include "tests/core_world.h"

#include <stdint.h>

#define FAKE_PAGES 4u
#define FAKE_SIZE  (FAKE_PAGES * HA_PAGE)

struct fake_stack {
	uint64_t low, high; /* of the pages that may be read */
	uint64_t at;	    /* where the next frame's words go */
	struct ha_frame *frame;
};

/* A stack whose hooked call has its sp @below bytes below the top. */
void fake_stack_init(struct fake_stack *stack, uint64_t below);
void fake_stack_deinit(struct fake_stack *stack);

/*
 * The caller's frame: @size bytes up to its return address (@size excludes it),
 * which is set to @ra. Returns the address of the frame's first word.
 */
uint64_t fake_stack_push(struct fake_stack *stack, uint64_t size, uint64_t ra);

void fake_stack_store(uint64_t address, uint64_t value);

/* Publish the stack as the world's only one. */
void fake_stack_publish(const struct fake_stack *stack, struct world *world);

/* Walk from the stack's frame; @fs is the thread pointer to be assumed. */
struct walk_result fake_stack_walk(const struct fake_stack *stack, struct world *world, uint64_t fs,
				   struct walk_trace *trace);

#endif
