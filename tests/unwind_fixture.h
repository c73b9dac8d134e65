/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A live process whose stacks are looked at: its modules, compiled tables and
 * safe-point context, and stops of its threads.
 */
#ifndef TESTS_UNWIND_FIXTURE_H
#define TESTS_UNWIND_FIXTURE_H

#include "injector/borrow.h"
#include "injector/code.h"
#include "injector/oracle.h"
#include "injector/threads.h"

#define UNWIND_FRAMES 1024

struct unwind_process {
	struct target *target;
	struct maps maps;
	struct modules modules;
	struct memory_reader memory;
	struct code code;
};

/* Failures end the test. */
void unwind_open(struct unwind_process *process, pid_t pid);
void unwind_close(struct unwind_process *process);

/* Stop a thread; NULL if it has ended. Handed back with unwind_continue(). */
struct borrow *unwind_stop(struct unwind_process *process, pid_t tid);
void unwind_continue(struct borrow *borrow);

/* A stopped thread's stack, as our walk sees it. */
struct unwind_stack {
	struct walk_frame frames[UNWIND_FRAMES];
	size_t count;
	enum walk_end end;
};
void unwind_walk(struct unwind_process *process, struct borrow *borrow, struct unwind_stack *ret);

struct safepoint_thread unwind_thread(struct borrow *borrow);

#endif
