/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * System calls and the few machine instructions that boot needs. A raw call
 * returns -errno on failure and leaves errno alone.
 */
#ifndef PAYLOAD_ARCH_X86_64_SYSCALL_H
#define PAYLOAD_ARCH_X86_64_SYSCALL_H

#include <stdint.h>

static inline int64_t syscall6(int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
			       uint64_t e, uint64_t f)
{
	register uint64_t r10 __asm__("r10") = d;
	register uint64_t r8 __asm__("r8") = e;
	register uint64_t r9 __asm__("r9") = f;
	int64_t ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

/* The calling thread's thread pointer; it must have one. */
static inline uint64_t thread_pointer(void)
{
	uint64_t pointer;

	__asm__ volatile("mov %%fs:0, %0" : "=r"(pointer));
	return pointer;
}

#endif
