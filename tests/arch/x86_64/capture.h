/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A call that is seen as entry's stubs see one: the caller's registers are
 * pushed as a struct ha_frame.
 */
#ifndef TESTS_ARCH_CAPTURE_H
#define TESTS_ARCH_CAPTURE_H

#include "payload/protocol.h"

/* Calls capture_frame() with the registers and the stack of its own caller. */
void capture_call(void);

/* Provided by the including test. */
void capture_frame(const struct ha_frame *frame);

#define CAPTURE_PUSH(reg)             \
	"	push %" #reg "\n"     \
	"	.cfi_adjust_cfa_offset 8\n" \
	"	.cfi_rel_offset " #reg ", 0\n"
#define CAPTURE_POP(reg)               \
	"	pop %" #reg "\n"       \
	"	.cfi_adjust_cfa_offset -8\n" \
	"	.cfi_restore " #reg "\n"

__asm__("	.text\n"
	"	.globl capture_call\n"
	"	.type capture_call, @function\n"
	"capture_call:\n"
	"	.cfi_startproc\n" CAPTURE_PUSH(rbp) CAPTURE_PUSH(rbx) CAPTURE_PUSH(r12)
		CAPTURE_PUSH(r13) CAPTURE_PUSH(r14) CAPTURE_PUSH(
			r15) "	mov %rsp, %rdi\n"
			     "	sub $8, %rsp\n"
			     "	.cfi_adjust_cfa_offset 8\n"
			     "	call capture_frame\n"
			     "	add $8, %rsp\n"
			     "	.cfi_adjust_cfa_offset -8\n" CAPTURE_POP(r15) CAPTURE_POP(r14)
				     CAPTURE_POP(r13) CAPTURE_POP(r12) CAPTURE_POP(rbx) CAPTURE_POP(
					     rbp) "	ret\n"
						  "	.cfi_endproc\n"
						  "	.size capture_call, . - capture_call\n");

#endif
