/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/stack.h"

/* A stack that the injector told of. */
static bool stack_in_index(const struct ha_shm *shm, uint64_t sp, struct stack_bounds *ret)
{
	uint64_t offset = load_acquire(&shm->stack_index);
	const struct ha_stack_index *index = shm_at(shm, offset);
	uint64_t first = 0, last;

	if (!offset)
		return false;
	last = index->count;
	while (first < last) {
		uint64_t middle = first + (last - first) / 2;
		const struct ha_stack *stack = &index->stack[middle];

		if (sp < stack->low) {
			last = middle;
		} else if (sp >= stack->high) {
			first = middle + 1;
		} else {
			ret->low = stack->low;
			ret->high = stack->high;
			return true;
		}
	}
	return false;
}

NOINLINE bool stack_find_other(const struct ha_shm *shm, uint64_t sp, struct stack_bounds *ret)
{
	if (stack_in_index(shm, sp, ret))
		return true;
	ret->low = sp & ~(uint64_t)(HA_PAGE - 1);
	ret->high = ret->low + HA_PAGE;
	return false;
}
