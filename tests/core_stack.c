/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/core_stack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void fake_stack_init(struct fake_stack *stack, uint64_t below)
{
	char *memory =
		mmap(NULL, FAKE_SIZE + 2 * HA_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || mprotect(memory + HA_PAGE, FAKE_SIZE, PROT_READ | PROT_WRITE))
		abort();
	stack->low = (uint64_t)(memory + HA_PAGE);
	stack->high = stack->low + FAKE_SIZE;
	stack->at = stack->high - below;
	stack->frame = (struct ha_frame *)stack->at - 1;
	memset(stack->frame, 0, sizeof(*stack->frame));
}

void fake_stack_deinit(struct fake_stack *stack)
{
	munmap((void *)(stack->low - HA_PAGE), FAKE_SIZE + 2 * HA_PAGE);
}

void fake_stack_store(uint64_t address, uint64_t value)
{
	*(uint64_t *)address = value;
}

uint64_t fake_stack_push(struct fake_stack *stack, uint64_t size, uint64_t ra)
{
	uint64_t frame = stack->at;

	fake_stack_store(frame + size, ra);
	stack->at = frame + size + 8;
	return frame;
}

void fake_stack_publish(const struct fake_stack *stack, struct world *world)
{
	struct ha_stack range = {stack->low, stack->high};

	world_publish_stacks(world, &range, 1);
}

struct walk_result fake_stack_walk(const struct fake_stack *stack, struct world *world, uint64_t fs,
				   struct walk_trace *trace)
{
	struct walk_result result;
	struct walk_start start;

	if (!walk_prepare(world->shm, stack->frame, fs, &start))
		abort();
	walk_run(&start, trace, &result);
	return result;
}
