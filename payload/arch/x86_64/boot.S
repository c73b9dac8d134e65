/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where the borrowed thread begins and ends its time in boot.
 */
#include <asm/unistd.h>

	.text

	/*
	 * rdi = struct ha_boot, rsp = top of the boot stack. The registers are
	 * otherwise those of whatever the thread was doing. Unwinders of the
	 * target, if the loader happens to run one, must stop here.
	 */
	.hidden	core_boot
	.globl	core_boot
	.type	core_boot, @function
core_boot:
	.cfi_startproc
	.cfi_undefined rip
	cld
	xor	%ebp, %ebp
	and	$-16, %rsp
	call	boot_run
	ud2
	.cfi_endproc
	.size	core_boot, . - core_boot

	/* ha_core.change, see struct ha_change. */
	.hidden	core_change
	.globl	core_change
	.type	core_change, @function
core_change:
	.cfi_startproc
	lock cmpxchg %rdx, (%rdi)
	mov	%r8d, %eax
	syscall
	ret
	.cfi_endproc
	.size	core_change, . - core_change

	/* void boot_sigreturn(uint64_t sigframe): never returns. */
	.hidden	boot_sigreturn
	.globl	boot_sigreturn
	.type	boot_sigreturn, @function
boot_sigreturn:
	.cfi_startproc
	.cfi_undefined rip
	mov	%rdi, %rsp
	mov	$__NR_rt_sigreturn, %eax
	syscall
	ud2
	.cfi_endproc
	.size	boot_sigreturn, . - boot_sigreturn

	.section .note.GNU-stack, "", @progbits
