/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Entry: what stands in the slots of the target. See "Entry" in
 * payload/protocol.h for the words used here.
 *
 * A hooked call arrives like this:
 *
 *	caller  --slot-->  stub k  -->  body of its class  --tail jump-->  original
 *                                          |
 *                                          v  a sample is due
 *                                      slow path: frame, original, core
 *
 * Every call obeys the psABI and nothing more: rax, r8, r9, r10 and r11 are
 * free at the entry of a function with at most four arguments, and no hooked
 * function has more. From the stub on
 *
 *	r11	the pair
 *
 * and where a call that allocates is recorded
 *
 *	r10	bytes asked for
 *
 * Lines are changed with single instructions only, because a signal handler on
 * the same thread may come in between and use the same line.
 */
#include "entry_layout.h"

/* ------------------------------------------------------------------------
 * Stubs
 */
	.section .text.stubs, "ax", @progbits
	.hidden	entry_stubs
	.globl	entry_stubs
	.type	entry_stubs, @function
entry_stubs:
	.cfi_startproc
	.set	number, 0
	.rept	LAYOUT_PAIRS
	.balign	LAYOUT_STUB_SIZE, 0xcc
	endbr64
	lea	entry + ENTRY_PAIRS + number * PAIR_SIZE(%rip), %r11
	notrack jmp *PAIR_BODY(%r11)
	.set	number, number + 1
	.endr
	.balign	LAYOUT_STUB_SIZE, 0xcc
	.cfi_endproc
	.size	entry_stubs, . - entry_stubs

/* ------------------------------------------------------------------------
 * Parts of the bodies
 */

/* rax = thread pointer, r8 = the lines, r9 = where the line of the first probe is behind r8. */
.macro first_probe
	mov	%fs:0, %rax
	imul	$LINE_HASH_MULTIPLIER, %rax, %r9
	shr	$(LINE_HASH_SHIFT - LINE_SHIFT), %r9
	and	$((LINE_COUNT - 1) * LINE_SIZE), %r9d
	lea	entry + ENTRY_LINES(%rip), %r8
.endm

/*
 * Take \size + 1 bytes off the thread's countdown and tail-jump to the original.
 * Where it does not suffice, go to \slow, with the countdown as it was.
 *
 * Both the borrow and the sign are looked at. A size that is as large as a
 * negative number borrows. A countdown below 0 ends in core, however that came
 * about: the injector may have put it to 0 in between, and a handler on this
 * thread may come before a countdown that did not suffice is put back; one of
 * the two calls is then the sample. A line that nobody owns has left 0, so a
 * thread pointer of 0 cannot pass here for its owner.
 */
.macro countdown size, slow
	first_probe
	cmp	%rax, LINE_KEY(%r8, %r9)
	jne	\slow
	lea	1(\size), %rax
	sub	%rax, LINE_LEFT(%r8, %r9)
	jb	.Lspent\@
	js	.Lspent\@
	jmp	*PAIR_CALL(%r11)
.Lspent\@:
	add	%rax, LINE_LEFT(%r8, %r9)
	jmp	\slow
.endm

/* Go to \slow if the block at rdi may be one that is recorded. Changes rax, r8. */
.macro filter slow
	imul	$FILTER_HASH_MULTIPLIER, %edi, %eax
	mov	entry + ENTRY_FILTER(%rip), %r8
	shr	$FILTER_HASH_SHIFT, %eax
	cmpb	$0, (%r8, %rax)
	jne	\slow
.endm

/*
 * Enter core: \line = the thread's line with depth + 1, \index = its number.
 * Goes to \refused, with depth already raised, when core must not be called.
 * Changes rax, rcx, rdx, r8, r9, r10.
 */
.macro enter line, index, refused
	first_probe
	test	%rax, %rax
	jz	.Lsearch\@
	cmp	%rax, LINE_KEY(%r8, %r9)
	je	.Lown\@
.Lsearch\@:
	call	find_line
	lea	(%r8, %r9), \line
	jmp	.Lentered\@
.Lown\@:
	lea	(%r8, %r9), \line
	incl	LINE_DEPTH(\line)
.Lentered\@:
	cmpl	$LAYOUT_STATE_ON, entry + ENTRY_STATE(%rip)
	jne	\refused
	mov	entry + ENTRY_GATE(%rip), %rax
	movabs	$LAYOUT_GATE_MAGIC, %rcx
	cmp	%rcx, (%rax)
	jne	\refused
	mov	%r9, \index
	sar	$LINE_SHIFT, \index
	jns	.Lnumbered\@
	add	$(LINE_COUNT + LINE_SHARED), \index
.Lnumbered\@:
.endm

/*
 * Leave core, or a refused enter. The lines of one thread are behind the shared
 * ones. Changes r8.
 */
.macro leave_core line
	lea	entry + ENTRY_LINES(%rip), %r8
	cmp	%r8, \line
	jae	.Lown\@
	lock
.Lown\@:
	decl	LINE_DEPTH(\line)
.endm

/*
 * struct ha_frame, and \room bytes below it that align the stack.
 *
 *	rsp + \room + 48	return address
 *	rsp + \room		r15, r14, r13, r12, rbx, rbp
 *	rsp			\room bytes
 *
 * rbp keeps its value: profilers that walk frame pointers do not lose the chain.
 */
.macro push_frame room
	.cfi_remember_state
	push	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	push	%r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r12, 0
	push	%r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r13, 0
	push	%r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r14, 0
	push	%r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r15, 0
	sub	$\room, %rsp
	.cfi_adjust_cfa_offset \room
.endm

.macro pop_frame room
	add	$\room, %rsp
	.cfi_adjust_cfa_offset -\room
	pop	%r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore r15
	pop	%r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore r14
	pop	%r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore r13
	pop	%r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore r12
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	pop	%rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbp
.endm

/*
 * Behind a jump away: as at the last remember_state, where the CFA was rsp +
 * \offset. LLVM's assembler restores the rules, but not the offset that
 * .cfi_adjust_cfa_offset counts from.
 */
.macro restore_state offset
	.cfi_restore_state
	.cfi_def_cfa_offset \offset
.endm

/* Save and restore a register that is not callee-saved. */
.macro push_argument register
	push	\register
	.cfi_adjust_cfa_offset 8
.endm

.macro pop_argument register
	pop	\register
	.cfi_adjust_cfa_offset -8
.endm

/* A stopped entry passes through, at any depth of frames: there is none yet. */
.macro pass_if_off
	cmpl	$LAYOUT_STATE_ON, entry + ENTRY_STATE(%rip)
	jne	pass
.endm

.macro body name
	.balign	16, 0xcc
	.hidden	\name
	.globl	\name
	.type	\name, @function
\name:
.endm

/* ------------------------------------------------------------------------
 * Bodies
 */
	.section .text.bodies, "ax", @progbits
	.cfi_startproc

	/*
	 * Where samples are taken: the calls that are none pass.
	 */
	body	body_sampling_alloc		/* (size, ...) */
	countdown %rdi, body_alloc

	body	body_sampling_aligned		/* (align, size) */
	countdown %rsi, body_aligned

	/*
	 * A product that overflows as a signed number is one that no allocator
	 * can serve.
	 */
	body	body_sampling_calloc		/* (n, size) */
	mov	%rdi, %r10
	imul	%rsi, %r10
	jo	pass
	countdown %r10, slow_alloc

	body	body_sampling_posix_memalign	/* (ret, align, size) */
	countdown %rdx, body_posix_memalign

	body	body_sampling_realloc		/* (old, size, ...) */
	filter	.Lmaybe
.Lnew:
	countdown %rsi, body_realloc
.Lmaybe:
	test	%rdi, %rdi
	jz	.Lnew			/* NULL has a hash, too */
	jmp	body_realloc

	body	body_sampling_reallocarray	/* (old, n, size) */
	mov	%rsi, %r10
	imul	%rdx, %r10
	jo	pass
	filter	.Lmaybe_array
.Lnew_array:
	countdown %r10, reallocate
.Lmaybe_array:
	test	%rdi, %rdi
	jz	.Lnew_array
	jmp	reallocate

	body	body_sampling_free		/* (ptr, ...) */
	filter	body_free
pass:
	jmp	*PAIR_CALL(%r11)

	/*
	 * Where every call is recorded.
	 */
	body	body_aligned			/* (align, size) */
	mov	%rsi, %r10
	jmp	slow_alloc

	body	body_calloc			/* (n, size) */
	mov	%rdi, %r10
	imul	%rsi, %r10
	jo	pass
	jmp	slow_alloc

	body	body_posix_memalign		/* (ret, align, size) */
	mov	%rdx, %r10
	jmp	slow_posix_memalign

	body	body_reallocarray		/* (old, n, size) */
	mov	%rsi, %r10
	imul	%rdx, %r10
	jo	pass
	jmp	reallocate

	body	body_realloc			/* (old, size, ...) */
	mov	%rsi, %r10
reallocate:
	test	%rdi, %rdi
	jz	slow_alloc
	jmp	slow_realloc

	body	body_free			/* (ptr, ...) */
	test	%rdi, %rdi
	jz	pass
slow_free:
	pass_if_off
	.cfi_remember_state
	push_argument %rbx
	.cfi_rel_offset rbx, 0
	push_argument %r11
	push_argument %rdi
	push_argument %rsi
	push_argument %rdx
	push_argument %rcx
	push_argument %rax		/* aligns */
	enter	%rbx, %rdx, free_leave
	mov	%rdi, %rsi
	mov	entry + ENTRY_SHM(%rip), %rdi
	call	*entry + ENTRY_CORE_FREE(%rip)
free_leave:
	leave_core %rbx
	pop_argument %rax
	pop_argument %rcx
	pop_argument %rdx
	pop_argument %rsi
	pop_argument %rdi
	pop_argument %r11
	pop_argument %rbx
	.cfi_restore rbx
	jmp	*PAIR_CALL(%r11)
	restore_state 8

	/*
	 * The original first, then core: nothing of ours is raised while the
	 * original runs, so it may throw, jump out or never return. Core hears of
	 * calls that fail, too: they may have spent the countdown.
	 *
	 *	rbx line	r12 size	r13 result	r14 block
	 */
	body	body_alloc			/* (size, ...) */
	mov	%rdi, %r10
slow_alloc:
	pass_if_off
	push_frame 8
	mov	%r10, %r12
	call	*PAIR_CALL(%r11)
	mov	%rax, %r13
	mov	%rax, %r14
record:
	enter	%rbx, %r8, record_leave
	mov	entry + ENTRY_SHM(%rip), %rdi
	lea	8(%rsp), %rsi
	mov	%r14, %rdx
	mov	%r12, %rcx
	call	*entry + ENTRY_CORE_ALLOC(%rip)
record_leave:
	leave_core %rbx
	mov	%r13, %rax
	pop_frame 8
	ret
	restore_state 8

slow_posix_memalign:
	pass_if_off
	push_frame 8
	mov	%r10, %r12
	mov	%rdi, %r14
	call	*PAIR_CALL(%r11)
	mov	%rax, %r13
	test	%eax, %eax
	jnz	.Lno_block
	mov	(%r14), %r14
	jmp	record
.Lno_block:
	xor	%r14d, %r14d
	jmp	record
	restore_state 8

	/* rbx line	r12 block	r13 result */
	body	body_xallocx		/* (ptr, size, extra, flags) */
	pass_if_off
	push_frame 8
	mov	%rdi, %r12
	call	*PAIR_CALL(%r11)
	mov	%rax, %r13
	enter	%rbx, %r8, record_leave
	mov	entry + ENTRY_SHM(%rip), %rdi
	lea	8(%rsp), %rsi
	mov	%r12, %rdx
	mov	%r13, %rcx
	call	*entry + ENTRY_CORE_XALLOCX(%rip)
	jmp	record_leave
	restore_state 8

	/*
	 *	rbx line	r12 old, then result	r13, r14 second and third argument
	 *	r15 size
	 *	24(rsp) fourth argument	16(rsp) pair	8(rsp) token	(rsp) session
	 *
	 * The original may take its time. If another session began meanwhile,
	 * the token means nothing to its core. Within a session that was seen
	 * on while depth > 0 the number stays.
	 */
slow_realloc:
	pass_if_off
	push_frame 40
	mov	%r11, 16(%rsp)
	mov	%rcx, 24(%rsp)
	mov	%rdi, %r12
	mov	%rsi, %r13
	mov	%rdx, %r14
	mov	%r10, %r15
	enter	%rbx, %rdx, realloc_refused
	mov	entry + ENTRY_SHM(%rip), %rdi
	mov	%r12, %rsi
	call	*entry + ENTRY_CORE_BEGIN(%rip)
	mov	%rax, 8(%rsp)
	mov	entry + ENTRY_SESSION(%rip), %eax
	mov	%eax, (%rsp)
	leave_core %rbx
	mov	%r12, %rdi
	mov	%r13, %rsi
	mov	%r14, %rdx
	mov	24(%rsp), %rcx
	mov	16(%rsp), %r11
	call	*PAIR_CALL(%r11)
	mov	%rax, %r12
	enter	%rbx, %r9, realloc_leave
	mov	entry + ENTRY_SESSION(%rip), %eax
	cmp	%eax, (%rsp)
	jne	realloc_leave
	mov	entry + ENTRY_SHM(%rip), %rdi
	lea	40(%rsp), %rsi
	mov	8(%rsp), %rdx
	mov	%r12, %rcx
	mov	%r15, %r8
	call	*entry + ENTRY_CORE_END(%rip)
realloc_leave:
	leave_core %rbx
	mov	%r12, %rax
	.cfi_remember_state
	pop_frame 40
	ret
	restore_state 96
realloc_refused:
	leave_core %rbx
	mov	16(%rsp), %r11
	mov	%r12, %rdi
	mov	%r13, %rsi
	mov	%r14, %rdx
	mov	24(%rsp), %rcx
	pop_frame 40
	jmp	*PAIR_CALL(%r11)
	.cfi_endproc

	/*
	 * The line of a thread that the first probe did not find: one of the
	 * next ones, claimed if it is free, else a shared one. In: rax, r8, r9
	 * of first_probe. Out: r9, likewise, and one more on the line's depth.
	 * Changes rax, rcx, rdx, r10.
	 */
	.type	find_line, @function
find_line:
	.cfi_startproc
	mov	%rax, %rdx
	test	%rdx, %rdx
	jz	.Lshared		/* 0 marks a free line: cannot own one */
	mov	$LINE_PROBES, %ecx
.Lprobe:
	lea	(%r8, %r9), %r10
	mov	LINE_KEY(%r10), %rax
	test	%rax, %rax
	jnz	.Lowned
	lock cmpxchg %rdx, LINE_KEY(%r10)
	je	.Lmine
.Lowned:
	cmp	%rdx, %rax		/* also: claimed by a handler just now */
	je	.Lmine
	add	$LINE_SIZE, %r9d
	and	$(LINE_COUNT * LINE_SIZE - 1), %r9d
	dec	%ecx
	jnz	.Lprobe
.Lshared:
	and	$(LINE_SHARED * LINE_SIZE - 1), %r9d
	add	$(ENTRY_SHARED_LINES - ENTRY_LINES), %r9
	lock incl LINE_DEPTH(%r8, %r9)
	ret
.Lmine:
	incl	LINE_DEPTH(%r8, %r9)
	ret
	.cfi_endproc
	.size	find_line, . - find_line

/* ------------------------------------------------------------------------
 * struct ha_entry. Offsets from entry's start are written as distances from
 * here, so that no relocation is left.
 */
	.section .entry, "aw", @progbits
	.balign	64
	.hidden	entry
	.globl	entry
	.type	entry, @object
entry:
	.quad	LAYOUT_MAGIC
	.long	LAYOUT_ABI
	.org	entry + ENTRY_BODIES
	.long	body_alloc - entry + LAYOUT_DATA
	.long	body_aligned - entry + LAYOUT_DATA
	.long	body_calloc - entry + LAYOUT_DATA
	.long	body_posix_memalign - entry + LAYOUT_DATA
	.long	body_realloc - entry + LAYOUT_DATA
	.long	body_reallocarray - entry + LAYOUT_DATA
	.long	body_xallocx - entry + LAYOUT_DATA
	.long	body_free - entry + LAYOUT_DATA
	.org	entry + ENTRY_BODIES_END
	.org	entry + ENTRY_SAMPLING
	.long	body_sampling_alloc - entry + LAYOUT_DATA
	.long	body_sampling_aligned - entry + LAYOUT_DATA
	.long	body_sampling_calloc - entry + LAYOUT_DATA
	.long	body_sampling_posix_memalign - entry + LAYOUT_DATA
	.long	body_sampling_realloc - entry + LAYOUT_DATA
	.long	body_sampling_reallocarray - entry + LAYOUT_DATA
	.long	body_xallocx - entry + LAYOUT_DATA
	.long	body_sampling_free - entry + LAYOUT_DATA
	.org	entry + ENTRY_SAMPLING_END
	.org	entry + ENTRY_STRUCT_SIZE
	.size	entry, . - entry

	.section .note.GNU-stack, "", @progbits
