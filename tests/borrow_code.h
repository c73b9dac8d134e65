/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The machine code of the tests of borrow.h, for one machine: victims that hold
 * every register, and code to be run on them that ruins every register.
 */
#ifndef TESTS_BORROW_CODE_H
#define TESTS_BORROW_CODE_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of vector state; code_has_vector() says which the machine has. */
enum code_vector { CODE_BASE, CODE_AVX, CODE_AVX512, CODE_VECTORS };
bool code_has_vector(enum code_vector kind);

/*
 * Hold a pattern in all general registers, a flag, and words in the red zone;
 * count rounds in counters[0]; counters[1] = 1 once anything differs.
 */
void code_hold_general(volatile uint64_t *counters);
/* The same with all vector registers and floating-point control words. */
void code_hold_vector(enum code_vector kind, volatile uint64_t *counters);

/*
 * To be run on T: ruin all registers, then *done = 1, and spin. Address of the
 * code for borrow_run(); the argument is @done.
 */
uint64_t code_ruin(enum code_vector kind);

/* To be run on T: count in *argument for ever. */
uint64_t code_count(void);
/* To be run on T: return at once, to nowhere. */
uint64_t code_return(void);

/* What ha_core.change is in core. */
uint64_t code_change(void);

enum code_fault {
	CODE_SEGV,
	CODE_BUS, /* argument: address in a mapping beyond the end of its file */
	CODE_ILL,
	CODE_FPE,
	CODE_TRAP,
	CODE_FAULTS
};
/* To be run on T: raise the fault. */
uint64_t code_fault(enum code_fault kind);

/*
 * To be run on T: ruin registers, boot[0] = 1, wait a while for boot[1] to
 * become 1; if it does not, make it 2 and restore T by rt_sigreturn with the
 * stack pointer boot[2].
 */
uint64_t code_self_restore(enum code_vector kind);

/*
 * Enter a restartable sequence of several milliseconds over and over:
 * counters[0] counts rounds, counters[2] those that were aborted.
 * False: this C library registers no area for them.
 */
bool code_hold_sequence(volatile uint64_t *counters);

/*
 * A program for the machine's other ABI (32-bit) that spins, in a memfd to be
 * executed; -1 if there is none.
 */
int code_other_abi(void);

#endif
