// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/unwind_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "tests/tests.h"

enum { STACK_SIZE = 1024 * 1024 };

void unwind_open(struct unwind_process *process, pid_t pid)
{
	memset(process, 0, sizeof(*process));
	assert_ok(target_open(pid, &process->target));
	assert_ok(maps_read(pid, &process->maps));
	assert_ok(modules_read(process->target, &process->maps, &process->modules));
	process->memory = memory_reader_of(process->target);
	assert_ok(code_update(&process->code, &process->memory, &process->modules));
}

void unwind_close(struct unwind_process *process)
{
	code_deinit(&process->code);
	modules_deinit(&process->modules);
	maps_deinit(&process->maps);
	target_free(process->target);
}

struct borrow *unwind_stop(struct unwind_process *process, pid_t tid)
{
	struct borrow *borrow = NULL;
	struct error *err = borrow_begin(process->target, tid, 10000, &borrow);

	if (error_is(err, ERROR_GONE)) {
		error_free(err);
		return NULL;
	}
	assert_ok(err);
	return borrow;
}

void unwind_continue(struct borrow *borrow)
{
	assert_ok(borrow_end(borrow, NULL));
}

struct safepoint_thread unwind_thread(struct borrow *borrow)
{
	const struct borrow_registers *registers = borrow_registers(borrow);
	struct safepoint_thread thread = {.syscall_number = registers->syscall};

	thread.registers.pc = registers->pc;
	memcpy(thread.registers.reg, registers->reg, sizeof(thread.registers.reg));
	return thread;
}

static void walk_from(struct unwind_process *process, const struct walk_registers *registers,
		      uint64_t sp, struct unwind_stack *ret)
{
	const struct safepoint_context *context = &process->code.context;
	uint8_t *bytes = malloc(STACK_SIZE);
	struct stack_image image;

	ck_assert_ptr_nonnull(bytes);
	safepoint_read_stack(context, sp, bytes, STACK_SIZE, &image);
	ret->end = stackwalk(&context->code, &image, registers, false, ret->frames, UNWIND_FRAMES,
			     &ret->count);
	free(bytes);
}

void unwind_walk(struct unwind_process *process, struct borrow *borrow, struct unwind_stack *ret)
{
	struct safepoint_thread thread = unwind_thread(borrow);
	uint64_t sp = borrow_registers(borrow)->sp;

	walk_from(process, &thread.registers, sp, ret);
	/* A handler on a stack of its own: what it interrupted may be below it. */
	if (ret->end == WALK_OUTSIDE && ret->frames[ret->count - 1].sp < sp)
		walk_from(process, &thread.registers, ret->frames[ret->count - 1].sp, ret);
}
