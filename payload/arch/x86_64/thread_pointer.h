/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The thread pointer, without a system call: the word at fs:0, which the psABI
 * makes the thread control block's own address, in every thread that a C
 * library made. Entry gets here only in threads whose line it has found the
 * same way.
 */
#ifndef PAYLOAD_ARCH_THREAD_POINTER_H
#define PAYLOAD_ARCH_THREAD_POINTER_H

#include <stdint.h>

/* The calling thread's thread pointer. */
static inline uint64_t thread_pointer(void)
{
	uint64_t fs;

	__asm__("movq %%fs:0, %0" : "=r"(fs));
	return fs;
}

/*
 * Offsets of two words in glibc's TCB that hold its own address (tcbhead_t.tcb
 * and .self): the mark of a TCB that has the rest of struct pthread behind it.
 */
#define TCB_SELF_FIRST	0x00
#define TCB_SELF_SECOND 0x10

#endif
