/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a machine must supply so that one of its threads can be borrowed: the
 * guide for a port. Each machine has one file, injector/arch/MACHINE.c; make
 * picks it. Nothing outside of it knows a register by name.
 *
 * A port answers these questions:
 *
 *   registers   How large is NT_PRSTATUS, and which sizes or modes are those
 *               of another ABI of the same machine (32-bit), to be refused?
 *   system call Which bytes make one; where go number, arguments and result;
 *               what tells the kernel that this is not a call to be restarted
 *               (x86-64: orig_rax = -1; arm64: NT_ARM_SYSTEM_CALL)?
 *   call        How does a function find its argument and a fresh stack; which
 *               flags must be clear?
 *   restart     When a stop interrupts a blocked call, what do the registers
 *               hold: will the kernel restart it (-ERESTART*), or does it
 *               return EINTR? How is a call made anew?
 *   vector      Which regset has all other state that code can change? It may
 *               be of any size up to ARCH_VECTOR_MAX.
 *   sigframe    What must be in memory for rt_sigreturn to restore all of it?
 *   guard       How can a system call be made to return into rt_sigreturn with
 *               nothing but code that every program has (x86-64: syscall; ret
 *               and the C library's restorer)?
 *   relocation  Which of its relocations name a function?
 *   shadow      Is there a shadow stack, which forbids to call on a new stack?
 *
 * All functions are pure and may be called from any thread.
 */
#ifndef INJECTOR_ARCH_H
#define INJECTOR_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "injector/borrow.h"

/* Words of the largest NT_PRSTATUS of any machine (arm64: 34). */
#define ARCH_REGISTER_WORDS 40u
/* Larger than any vector regset (x86-64 with AMX: 11,008 bytes; arm64 SVE: 17 KiB). */
#define ARCH_VECTOR_MAX (64u * 1024u)

/* The general registers, as the kernel gives and takes them. */
struct arch_registers {
	size_t size; /* bytes, as the kernel said */
	uint64_t word[ARCH_REGISTER_WORDS];
};

/* The bytes of an instruction that makes a system call. */
#define ARCH_SYSCALL_SIZE_MAX 4u
extern const uint8_t arch_syscall_instruction[];
extern const size_t arch_syscall_instruction_size;

#define ARCH_NOT_FOUND SIZE_MAX
/* Offset in @text of a system call followed by a return, or ARCH_NOT_FOUND. */
size_t arch_find_call_return(const uint8_t *text, size_t size);
/* Offset in @text of code that calls rt_sigreturn, as a handler returns to; or ARCH_NOT_FOUND. */
size_t arch_find_sigreturn(const uint8_t *text, size_t size);

/* Regset types (NT_*) of <elf.h>; the second is 0 where there are no shadow stacks. */
extern const unsigned int arch_vector_note;
extern const unsigned int arch_shadow_stack_note;

/* NULL, or what the thread runs that we do not support: "32-bit code". */
const char *arch_registers_refused(const struct arch_registers *registers);

void arch_registers_view(const struct arch_registers *registers, struct borrow_registers *ret);

void arch_set_pc(struct arch_registers *registers, uint64_t pc);

/* Make the registers make a system call when they run at @gadget. */
void arch_set_syscall(struct arch_registers *registers, uint64_t gadget, long number,
		      const uint64_t args[6]);
/*
 * Make it return, by the instruction after it, to the code whose address
 * arch_sigframe() has put into the frame at @sp. @gadget of arch_set_syscall()
 * must have been found by arch_find_call_return().
 */
void arch_guard_syscall(struct arch_registers *registers, uint64_t sp);
/*
 * Make the registers execute ha_core.change, at @pc, and make the call @number, which is
 * guarded in the same way.
 */
void arch_set_change(struct arch_registers *registers, uint64_t pc, uint64_t address,
		     uint64_t expected, uint64_t value, long number);
/* After the call: what the kernel returned. */
int64_t arch_syscall_result(const struct arch_registers *registers);

/* Make the registers enter a function. @sp: end of its stack. */
void arch_set_call(struct arch_registers *registers, uint64_t pc, uint64_t sp, uint64_t argument);

enum arch_interrupted {
	ARCH_NOT_INTERRUPTED, /* not in a system call, or it has finished */
	ARCH_KERNEL_RESTARTS, /* the kernel restarts it when the thread goes on */
	ARCH_RETURNS_EINTR,   /* a call that returns EINTR after a mere stop, and that can be
				 made anew without harm */
};
enum arch_interrupted arch_interrupted(const struct arch_registers *registers);

/* Address of the instruction that made the interrupted call. */
uint64_t arch_syscall_address(const struct arch_registers *registers);
/*
 * Leave the interrupted call of a stopped thread to the kernel: when the thread goes
 * on, it is made anew, or returns EINTR if a handler runs.
 */
void arch_restart_unless_handled(struct arch_registers *registers);
/* Make an interrupted call anew when the thread goes on, without the kernel's help. */
void arch_remake_syscall(struct arch_registers *registers);

/* What a relocation of the machine does to its word. */
enum arch_relocation {
	ARCH_RELOCATION_OTHER,
	ARCH_RELOCATION_JUMP_SLOT,  /* a function's address, perhaps when it is first called */
	ARCH_RELOCATION_GLOB_DAT,   /* a symbol's address */
	ARCH_RELOCATION_ADDRESS,    /* a symbol's address plus the addend */
	ARCH_RELOCATION_TLS_OFFSET, /* a thread-local symbol's offset from the thread pointer */
};
enum arch_relocation arch_relocation_kind(uint32_t type);

/* Once, before the first arch_sigframe(): what would take long while T is stopped. */
void arch_prepare(void);

/*
 * Build a frame for rt_sigreturn that restores @registers, @vector and @mask;
 * see borrow_sigframe(). The registers must not need the kernel's restart.
 *
 * @sigreturn address of code that arch_find_sigreturn() has found, for
 *            arch_guard_syscall(); else 0
 *
 * Returns the bytes used of @buf, or 0 if @size is too small (or the vector
 * state is none that such a frame can have: x86-64 without XSAVE).
 */
size_t arch_sigframe(const struct arch_registers *registers, const uint8_t *vector,
		     size_t vector_size, uint64_t mask, uint64_t sigreturn, uint64_t remote_address,
		     uint8_t *buf, size_t size, uint64_t *sp_ret);

#endif
