/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/machine.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

_Static_assert(offsetof(struct marked_call, argument) == 8, "used below");
_Static_assert(offsetof(struct marked_call, before) == 40, "used below");
_Static_assert(offsetof(struct marked_call, after) == 96, "used below");
_Static_assert(offsetof(struct marked_call, sp) == 152, "used below");
_Static_assert(offsetof(struct marked_call, result) == 160, "used below");

__asm__("	.text\n"
	"	.globl	marked_call\n"
	"	.type	marked_call, @function\n"
	"marked_call:\n"
	"	.cfi_startproc\n"
	"	.irp	register, rbp, rbx, r12, r13, r14, r15, rdi\n"
	"	push	%\\register\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	.endr\n"
	"	.cfi_offset rbp, -16\n"
	"	.cfi_offset rbx, -24\n"
	"	.cfi_offset r12, -32\n"
	"	.cfi_offset r13, -40\n"
	"	.cfi_offset r14, -48\n"
	"	.cfi_offset r15, -56\n"
	"	mov	%rdi, %rax\n"
	"	mov	(%rax), %r11\n"
	"	mov	8(%rax), %rdi\n"
	"	mov	16(%rax), %rsi\n"
	"	mov	24(%rax), %rdx\n"
	"	mov	32(%rax), %rcx\n"
	"	mov	40(%rax), %r15\n"
	"	mov	48(%rax), %r14\n"
	"	mov	56(%rax), %r13\n"
	"	mov	64(%rax), %r12\n"
	"	mov	72(%rax), %rbx\n"
	"	mov	80(%rax), %rbp\n"
	"	lea	1f(%rip), %r8\n"
	"	mov	%r8, 88(%rax)\n"
	"	mov	%rsp, 152(%rax)\n"
	"	call	*%r11\n"
	"1:	mov	(%rsp), %r11\n"
	"	mov	%r15, 96(%r11)\n"
	"	mov	%r14, 104(%r11)\n"
	"	mov	%r13, 112(%r11)\n"
	"	mov	%r12, 120(%r11)\n"
	"	mov	%rbx, 128(%r11)\n"
	"	mov	%rbp, 136(%r11)\n"
	"	mov	%rax, 160(%r11)\n"
	"	.irp	register, rdi, r15, r14, r13, r12, rbx, rbp\n"
	"	pop	%\\register\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	.endr\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	marked_call, . - marked_call\n"

	"	.local	zero_word\n"
	"	.comm	zero_word, 8, 8\n"
	"	.globl	marked_call_without_thread_pointer\n"
	"	.type	marked_call_without_thread_pointer, @function\n"
	"marked_call_without_thread_pointer:\n"
	"	.cfi_startproc\n"
	"	push	%rbx\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	.cfi_offset rbx, -16\n"
	"	rdfsbase %rbx\n"
	"	lea	zero_word(%rip), %rax\n"
	"	wrfsbase %rax\n"
	"	call	marked_call\n"
	"	wrfsbase %rbx\n"
	"	pop	%rbx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	marked_call_without_thread_pointer, . - "
	"marked_call_without_thread_pointer\n"

	"	.globl	marked_call_stepping\n"
	"	.type	marked_call_stepping, @function\n"
	"marked_call_stepping:\n"
	"	.cfi_startproc\n"
	"	pushf\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	orl	$0x100, (%rsp)\n" /* TF */
	"	popf\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	sub	$8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call	marked_call\n"
	"	pushf\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	andl	$~0x100, (%rsp)\n"
	"	popf\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	add	$8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	marked_call_stepping, . - marked_call_stepping\n");

const int machine_callee_saved[6] = {15, 14, 13, 12, 3, 6};

uint64_t context_pc(const void *context)
{
	const ucontext_t *uc = context;

	return (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
}

/*
 * A signal's frame on the stack, as the kernel writes it: the address of the
 * restorer, the ucontext, the siginfo, and, further up at 64, the extended
 * state that the ucontext points to. At rt_sigreturn sp points to the ucontext.
 *
 *	sigframe:  ucontext, siginfo ... (2048 bytes)  extended state
 */
#define FRAME_STATE 2048u
#define FRAME_COPY  1024u

static void *frame_copy;

static void frame_take(int number, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uint8_t *copy = frame_copy;
	uint8_t *state = (uint8_t *)uc->uc_mcontext.fpregs;
	/* The size of the extended state: struct _fpx_sw_bytes in the legacy area. */
	uint32_t state_size;

	memcpy(&state_size, state + 464 + 4, sizeof(state_size));
	if (state_size > HA_TEST_SIGFRAME_SIZE - FRAME_STATE)
		return;
	memcpy(copy, uc, FRAME_COPY);
	memcpy(copy + FRAME_STATE, state, state_size);
	((ucontext_t *)copy)->uc_mcontext.fpregs = (fpregset_t)(copy + FRAME_STATE);
}

uint64_t sigframe_sp(const void *sigframe)
{
	return (uint64_t)(uintptr_t)sigframe;
}

/* How often the point after the signal was passed: the second time we are back. */
static uint32_t passed;

/* Send the signal, then leave by a jump; the frame leads back behind the system call. */
static __attribute__((noinline)) void leave_by_jump(uint64_t start, void *argument, void *stack_top,
						    pid_t pid, pid_t tid)
{
	register uint64_t argument_register __asm__("r12") = (uint64_t)(uintptr_t)argument;
	register uint64_t stack_register __asm__("r13") = (uint64_t)(uintptr_t)stack_top;
	register uint64_t start_register __asm__("r14") = start;
	long number = SYS_tgkill;

	__asm__ volatile("	syscall\n"
			 "	incl	%[passed]\n"
			 "	cmpl	$2, %[passed]\n"
			 "	je	1f\n"
			 "	mov	%%r12, %%rdi\n"
			 "	mov	%%r13, %%rsp\n"
			 "	std\n" /* boot must not rely on the flags it finds */
			 "	jmp	*%%r14\n"
			 "1:\n"
			 : [passed] "+m"(passed), "+a"(number)
			 : "D"(pid), "S"(tid), "d"(SIGUSR2), "r"(argument_register),
			   "r"(stack_register), "r"(start_register)
			 : "rcx", "r11", "memory", "cc");
}

void run_on_stack(uint64_t start, void *argument, void *stack_top, void *sigframe)
{
	struct sigaction action = {.sa_sigaction = frame_take, .sa_flags = SA_SIGINFO}, old;

	frame_copy = sigframe;
	passed = 0;
	sigaction(SIGUSR2, &action, &old);
	leave_by_jump(start, argument, stack_top, getpid(), gettid());
	sigaction(SIGUSR2, &old, NULL);
}
