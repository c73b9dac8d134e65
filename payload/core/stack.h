/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which memory around a stack pointer may be read without a fault.
 */
#ifndef PAYLOAD_CORE_STACK_H
#define PAYLOAD_CORE_STACK_H

#include "payload/protocol.h"

#include <stdbool.h>
#include <stdint.h>

/* [low, high) is mapped above sp, and part of one stack. Both 8-aligned. */
struct stack_bounds {
	uint64_t low, high;
};

/*
 * Find the stack that @sp lies on. @fs is the thread pointer of the calling
 * thread (0: none); its TCB tells the bounds of a stack made by pthread_create.
 *
 * Returns false if the stack is not known; @ret is then the page of @sp, which
 * is good only for an sp that is in use.
 */
bool stack_find(const struct ha_shm *shm, uint64_t fs, uint64_t sp, struct stack_bounds *ret);

/*
 * Load a word of a stack. The word may be poisoned for a sanitizer, or be
 * written by another thread at this moment; neither matters to a walk.
 */
__attribute__((no_sanitize("address", "thread"))) static inline uint64_t stack_load(
	uint64_t address)
{
	return *(const volatile uint64_t *)address;
}

#endif
