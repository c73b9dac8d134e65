/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which memory around a stack pointer may be read without a fault.
 */
#ifndef PAYLOAD_CORE_STACK_H
#define PAYLOAD_CORE_STACK_H

#include "payload/arch/x86_64/thread_pointer.h"
#include "payload/core/shm.h"
#include "payload/protocol.h"

#include <stdbool.h>
#include <stdint.h>

/* [low, high) is mapped above sp, and part of one stack. Both 8-aligned. */
struct stack_bounds {
	uint64_t low, high;
};

/*
 * Load a word of a stack. The word may be poisoned for a sanitizer, or be
 * written by another thread at this moment; neither matters to a walk.
 */
__attribute__((no_sanitize("address", "thread"))) static inline uint64_t stack_load(
	uint64_t address)
{
	return *(const volatile uint64_t *)address;
}

/* The thread's own stack, as glibc keeps it in the TCB: block, size, guard size. */
static inline bool stack_of_thread(const struct ha_shm *shm, uint64_t fs, struct stack_bounds *ret)
{
	uint64_t block, size, guard;

	if (UNLIKELY(!fs || fs % 8 || !shm->tcb_stack_offset))
		return false;
	if (UNLIKELY(stack_load(fs + TCB_SELF_FIRST) != fs ||
		     stack_load(fs + TCB_SELF_SECOND) != fs))
		return false;
	block = stack_load(fs + shm->tcb_stack_offset);
	size = stack_load(fs + shm->tcb_stack_offset + 8);
	guard = stack_load(fs + shm->tcb_stack_offset + 16);
	if (UNLIKELY(!block || block + size < block))
		return false;
	ret->low = guard < size ? block + guard : block;
	ret->high = block + size;
	return true;
}

/* One that the injector told of; else the page of @sp, and false. */
bool stack_find_other(const struct ha_shm *shm, uint64_t sp, struct stack_bounds *ret);

/*
 * Find the stack that @sp lies on. @fs is the thread pointer of the calling
 * thread (0: none); its TCB tells the bounds of a stack made by pthread_create.
 *
 * Returns false if the stack is not known; @ret is then the page of @sp, which
 * is good only for an sp that is in use.
 */
static inline bool stack_find(const struct ha_shm *shm, uint64_t fs, uint64_t sp,
			      struct stack_bounds *ret)
{
	struct stack_bounds own = {0, 0}, other;
	uint64_t low, high;
	bool known = true;

	if (fs == shm->main_fs) {
		own.low = load_relaxed(&shm->main_stack_low);
		own.high = load_relaxed(&shm->main_stack_high);
	} else {
		known = stack_of_thread(shm, fs, &own);
	}
	low = own.low;
	high = own.high;
	if (UNLIKELY(!known || sp < low || sp >= high)) {
		known = stack_find_other(shm, sp, &other);
		low = other.low;
		high = other.high;
	}
	/* A thread's TCB lies at the top of its stack; what is above may belong to another one. */
	if (fs > sp && fs < high && LIKELY(known))
		high = fs;
	ret->low = (low + 7) & ~7ull;
	ret->high = high & ~7ull;
	return known;
}

#endif
