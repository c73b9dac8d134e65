/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What tests of the payload must do below the level of C. One file for each
 * machine: tests/machine_x86_64.c.
 */
#ifndef TESTS_MACHINE_H
#define TESTS_MACHINE_H

#include "payload/protocol.h"

#include <stdint.h>

/* A call with known registers. */
struct marked_call {
	uint64_t function;
	uint64_t argument[4];
	/* The callee-saved registers during the call; ra is filled by marked_call(). */
	struct ha_frame before;
	/* The same after it, except ra. */
	struct ha_frame after;
	uint64_t sp; /* what the stack pointer was around the call */
	uint64_t result;
};

/* Make the call. C++ exceptions, forced unwinds and backtraces pass through. */
void marked_call(struct marked_call *call);

/* The same call with a SIGTRAP after each instruction. */
void marked_call_stepping(struct marked_call *call);

/* The same call while the word at fs:0 is 0. */
void marked_call_without_thread_pointer(struct marked_call *call);

/* Where a signal with this context interrupted the program. */
uint64_t context_pc(const void *context);

/* DWARF's numbers of the callee-saved registers, in the order of struct ha_frame. */
extern const int machine_callee_saved[6];

/*
 * Start @start(@argument) on the stack that ends at @stack_top, as the injector
 * does with a borrowed thread: by registers alone. Before, the state of this
 * very point is copied to @sigframe, at most HA_TEST_SIGFRAME_SIZE bytes, as a
 * frame for rt_sigreturn whose stack pointer is returned by sigframe_sp(). Comes
 * back when somebody returns to that frame. Only one thread at a time.
 */
void run_on_stack(uint64_t start, void *argument, void *stack_top, void *sigframe);
uint64_t sigframe_sp(const void *sigframe);
#define HA_TEST_SIGFRAME_SIZE 65536u

#endif
