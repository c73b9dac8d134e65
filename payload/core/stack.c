/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/stack.h"

#include "payload/arch/x86_64/thread_pointer.h"
#include "payload/core/shm.h"

/* The thread's own stack, as glibc keeps it in the TCB: block, size, guard size. */
static bool stack_of_thread(const struct ha_shm *shm, uint64_t fs, struct stack_bounds *ret)
{
	uint64_t block, size, guard;

	if (!fs || fs % 8 || !shm->tcb_stack_offset)
		return false;
	if (stack_load(fs + TCB_SELF_FIRST) != fs || stack_load(fs + TCB_SELF_SECOND) != fs)
		return false;
	block = stack_load(fs + shm->tcb_stack_offset);
	size = stack_load(fs + shm->tcb_stack_offset + 8);
	guard = stack_load(fs + shm->tcb_stack_offset + 16);
	if (!block || block + size < block)
		return false;
	ret->low = guard < size ? block + guard : block;
	ret->high = block + size;
	return true;
}

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

static bool stack_holds(const struct stack_bounds *bounds, uint64_t sp)
{
	return sp >= bounds->low && sp < bounds->high;
}

bool stack_find(const struct ha_shm *shm, uint64_t fs, uint64_t sp, struct stack_bounds *ret)
{
	struct stack_bounds bounds = {0, 0};
	bool known;

	if (fs == shm->main_fs) {
		bounds.low = load_relaxed(&shm->main_stack_low);
		bounds.high = load_relaxed(&shm->main_stack_high);
		known = stack_holds(&bounds, sp);
	} else {
		known = stack_of_thread(shm, fs, &bounds) && stack_holds(&bounds, sp);
	}
	if (UNLIKELY(!known) && !stack_in_index(shm, sp, &bounds)) {
		ret->low = sp & ~(uint64_t)(HA_PAGE - 1);
		ret->high = ret->low + HA_PAGE;
		return false;
	}
	/* A thread's TCB lies at the top of its stack; what is above may belong to another one. */
	if (fs > sp && fs < bounds.high)
		bounds.high = fs;
	ret->low = (bounds.low + 7) & ~7ull;
	ret->high = bounds.high & ~7ull;
	return true;
}
