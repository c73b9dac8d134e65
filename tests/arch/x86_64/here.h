/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The registers of the running function, as if a call that it makes had just
 * returned.
 */
#ifndef TESTS_ARCH_HERE_H
#define TESTS_ARCH_HERE_H

#include "payload/protocol.h"

/* Fill @frame; returns the stack pointer. */
static inline __attribute__((always_inline)) uint64_t here_fill(struct ha_frame *frame)
{
	uint64_t sp;

	__asm__ volatile("mov %%r15, (%1)\n"
			 "	mov %%r14, 8(%1)\n"
			 "	mov %%r13, 16(%1)\n"
			 "	mov %%r12, 24(%1)\n"
			 "	mov %%rbx, 32(%1)\n"
			 "	mov %%rbp, 40(%1)\n"
			 "	lea 1f(%%rip), %0\n"
			 "1:	mov %0, 48(%1)\n"
			 "	mov %%rsp, %0\n"
			 : "=&r"(sp)
			 : "r"(frame)
			 : "memory");
	return sp;
}

#endif
