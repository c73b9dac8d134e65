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
/* Make an interrupted call anew when the thread goes on, without the kernel's help. */
void arch_remake_syscall(struct arch_registers *registers);

/*
 * Read the thread pointer with an instruction, as entry does. Raises SIGILL
 * where the kernel or CPU does not allow it.
 */
uint64_t arch_read_thread_pointer(void);
/* True if AT_HWCAP2 promises that it works. */
bool arch_promises_thread_pointer(uint64_t hwcap2);

/*
 * Build a frame for rt_sigreturn that restores @registers, @vector and @mask;
 * see borrow_sigframe(). The registers must not need the kernel's restart.
 *
 * Returns the bytes used of @buf, or 0 if @size is too small.
 */
size_t arch_sigframe(const struct arch_registers *registers, const uint8_t *vector,
		     size_t vector_size, uint64_t mask, uint64_t remote_address, uint8_t *buf,
		     size_t size, uint64_t *sp_ret);

#endif
