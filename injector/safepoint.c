// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/safepoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "injector/arch.h"
#include "injector/arch/x86_64_syscalls.h"
#include "payload/protocol.h"
#include "resolver/cleanup.h"

enum {
	FRAMES_MAX = 4096,
	STACK_SIZE = 64 * 1024, /* nearly all stacks; read in one go */
	STACK_SIZE_MAX = 1024 * 1024,
	START_SIZE = 64,	   /* _start is shorter than this everywhere */
	START_LIBC_FRAMES_MAX = 2, /* main's caller, __libc_start_main (one before 2.34) */
	THREAD_LIBC_FRAMES = 2,	   /* start_thread, clone3 */
	INNER_LIBC_FRAMES_MAX = 5, /* a wrapper and what it calls on the way to the kernel */
};

/* A frame can be what is in the way. */
static void refuse(struct safepoint_verdict *verdict, enum safepoint_reason reason, uint32_t module,
		   uint64_t pc, size_t frame)
{
	verdict->reason = reason;
	verdict->module = module;
	verdict->pc = pc;
	verdict->frame = frame;
}

static uint32_t module_flags(const struct safepoint_context *context, uint32_t module)
{
	return module < context->module_count ? context->modules[module].flags : 0;
}

static bool is_libc(const struct safepoint_context *context, const struct walk_frame *frame)
{
	return module_flags(context, frame->module) & SAFEPOINT_LIBC;
}

static bool syscall_is_safe(int64_t number)
{
	for (size_t i = 0; i < sizeof(safe_syscalls) / sizeof(safe_syscalls[0]); i++) {
		if (safe_syscalls[i] == number)
			return true;
	}
	return false;
}

/*
 * Is the thread at a system call instruction of libc? Just behind it if the
 * kernel says that it is in a call, or before it: a call that is to be made
 * again after it was interrupted.
 */
static bool at_syscall(const struct safepoint_context *context,
		       const struct safepoint_thread *thread, int64_t *number_ret)
{
	const size_t size = arch_syscall_instruction_size;
	uint64_t pc = thread->registers.pc;
	uint8_t code[ARCH_SYSCALL_SIZE_MAX];
	bool inside = thread->syscall_number >= 0;

	if (context->read(context->read_data, inside ? pc - size : pc, code, size) != size ||
	    memcmp(code, arch_syscall_instruction, size) != 0)
		return false;
	*number_ret = inside ? thread->syscall_number : (int64_t)thread->registers.reg[HA_EXT_RAX];
	return true;
}

/* Why nobody may be borrowed whose innermost frame is in a module like this. */
static enum safepoint_reason reason_of_flags(uint32_t flags)
{
	if (flags & SAFEPOINT_LOADER)
		return SAFEPOINT_IN_LOADER;
	if (flags & SAFEPOINT_LIBC)
		return SAFEPOINT_IN_LIBC;
	if (flags & SAFEPOINT_VDSO)
		return SAFEPOINT_IN_VDSO;
	if (flags & SAFEPOINT_ENTRY)
		return SAFEPOINT_IN_HOOK;
	if (flags & SAFEPOINT_INTERNAL)
		return SAFEPOINT_IN_INTERNAL;
	if (flags & SAFEPOINT_DEFINES_MALLOC)
		return SAFEPOINT_IN_ALLOCATOR;
	return SAFEPOINT_SAFE;
}

static bool has_libc(const struct safepoint_context *context)
{
	return context->wrapper_count > 0;
}

/*
 * A stub of entry only loads an address and jumps: the thread is as good as in
 * the caller. Stubs are where a hooked thread is found most often.
 */
static bool leave_stub(const struct safepoint_context *context, uint32_t module,
		       struct walk_registers *registers)
{
	uint64_t *sp = &registers->reg[HA_EXT_RSP];
	uint64_t offset;

	if (!(module_flags(context, module) & SAFEPOINT_ENTRY))
		return false;
	offset = registers->pc - context->modules[module].bias - HA_ENTRY_STUBS;
	if (offset >= HA_PAIRS * HA_STUB_SIZE ||
	    context->read(context->read_data, *sp, &registers->pc, sizeof(registers->pc)) !=
		    sizeof(registers->pc))
		return false;
	*sp += sizeof(registers->pc);
	return true;
}

static uint32_t find_module(const struct safepoint_context *context, uint64_t pc)
{
	const struct code_range *range = code_map_find(&context->code, pc);

	return range ? range->module : STACKWALK_NO_MODULE;
}

/* The rules for the innermost frame, at a pc that is not in libc. */
static enum safepoint_reason check_outside_libc(const struct safepoint_context *context,
						int64_t number, uint32_t module)
{
	enum safepoint_reason reason = reason_of_flags(module_flags(context, module));

	if (module >= context->module_count)
		return SAFEPOINT_UNKNOWN_CODE;
	if (reason == SAFEPOINT_SAFE && number >= 0 && !syscall_is_safe(number))
		return SAFEPOINT_UNLISTED_SYSCALL;
	return reason;
}

static enum safepoint_reason check_in_libc(const struct safepoint_context *context,
					   const struct safepoint_thread *thread,
					   struct safepoint_verdict *verdict)
{
	if (!at_syscall(context, thread, &verdict->number))
		return SAFEPOINT_IN_LIBC;
	verdict->blocked = true;
	return syscall_is_safe(verdict->number) ? SAFEPOINT_SAFE : SAFEPOINT_UNLISTED_SYSCALL;
}

/* Where the walk starts. */
struct position {
	struct walk_registers registers;
	bool after_call;
};

/* The precheck. */
static void precheck(const struct safepoint_context *context, const struct safepoint_thread *thread,
		     struct position *position_ret, struct safepoint_verdict *ret)
{
	struct position position = {.registers = thread->registers};
	uint32_t module = find_module(context, position.registers.pc);
	enum safepoint_reason reason;

	*ret = (struct safepoint_verdict){
		.module = STACKWALK_NO_MODULE,
		.number = thread->syscall_number,
		.blocked = thread->syscall_number >= 0,
	};
	position.after_call = leave_stub(context, module, &position.registers);
	if (position.after_call)
		module = find_module(context, position.registers.pc - 1);
	if (!has_libc(context))
		reason = SAFEPOINT_NO_LIBC;
	else if (thread->rseq_cs)
		reason = SAFEPOINT_IN_RSEQ;
	else if ((module_flags(context, module) & SAFEPOINT_LIBC) && !position.after_call)
		reason = check_in_libc(context, thread, ret);
	else
		reason = check_outside_libc(context, thread->syscall_number, module);
	if (reason != SAFEPOINT_SAFE)
		refuse(ret, reason, module, position.registers.pc, 0);
	*position_ret = position;
}

void safepoint_precheck(const struct safepoint_context *context,
			const struct safepoint_thread *thread, struct safepoint_verdict *ret)
{
	struct position position;

	precheck(context, thread, &position, ret);
}

/* A walked stack and what the rules made of it so far. */
struct stack {
	const struct safepoint_context *context;
	const struct walk_frame *frames;
	size_t count;
	size_t inner; /* libc frames at the inner end */
	size_t outer; /* index of the first libc frame of the thread's start */
	const struct safepoint_wrapper *wrapper;
};

static const struct safepoint_wrapper *find_wrapper(const struct safepoint_context *context,
						    uint64_t pc)
{
	size_t low = 0, high = context->wrapper_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (pc >= context->wrappers[middle].high)
			low = middle + 1;
		else
			high = middle;
	}
	return low < context->wrapper_count && pc >= context->wrappers[low].low
		       ? &context->wrappers[low]
		       : NULL;
}

static bool refuse_frame(const struct stack *stack, size_t frame, enum safepoint_reason reason,
			 struct safepoint_verdict *verdict)
{
	refuse(verdict, reason, stack->frames[frame].module, stack->frames[frame].pc, frame);
	return false;
}

/* Each kind of frame that no stack may have, wherever it is. */
static bool check_frames(const struct stack *stack, enum walk_end end,
			 struct safepoint_verdict *verdict)
{
	for (size_t i = 0; i < stack->count; i++) {
		uint32_t flags = module_flags(stack->context, stack->frames[i].module);

		verdict->transient |= !(flags & SAFEPOINT_PERMANENT);
		if (stack->frames[i].kind == EHFRAME_SIGNAL)
			return refuse_frame(stack, i, SAFEPOINT_SIGNAL_FRAME, verdict);
	}
	switch (end) {
	case WALK_COMPLETE:
		return true;
	case WALK_NO_MODULE:
		return refuse_frame(stack, stack->count - 1, SAFEPOINT_UNKNOWN_CODE, verdict);
	case WALK_NO_CFI:
		return refuse_frame(stack, stack->count - 1, SAFEPOINT_NO_CFI, verdict);
	default:
		return refuse_frame(stack, stack->count - 1, SAFEPOINT_INCOMPLETE, verdict);
	}
}

/* The outer end: how the thread came to run, and which frames belong to that. */
static bool check_end(struct stack *stack, struct safepoint_verdict *verdict)
{
	const struct safepoint_context *context = stack->context;
	const struct walk_frame *last = &stack->frames[stack->count - 1];
	bool main_thread = (module_flags(context, last->module) & SAFEPOINT_EXECUTABLE) &&
			   last->pc - context->start < START_SIZE;
	size_t first = stack->count - (main_thread ? 1 : 0);
	size_t end = first;

	while (first > 0 && is_libc(context, &stack->frames[first - 1]))
		first--;
	if (main_thread ? first == end : end - first < THREAD_LIBC_FRAMES)
		return refuse_frame(stack, stack->count - 1, SAFEPOINT_BAD_END, verdict);
	if (end - first > (main_thread ? START_LIBC_FRAMES_MAX : THREAD_LIBC_FRAMES))
		return refuse_frame(stack, first, SAFEPOINT_LIBC_FRAME, verdict);
	stack->outer = first;
	return true;
}

/* The inner end: a blocked thread is in a listed wrapper, and few frames below it. */
static bool check_wrapper(struct stack *stack, struct safepoint_verdict *verdict)
{
	const struct walk_frame *frame;

	while (stack->inner < stack->outer && is_libc(stack->context, &stack->frames[stack->inner]))
		stack->inner++;
	if (stack->inner == 0)
		return true;
	if (stack->inner > INNER_LIBC_FRAMES_MAX)
		return refuse_frame(stack, stack->inner - 1, SAFEPOINT_IN_LIBC, verdict);
	frame = &stack->frames[stack->inner - 1];
	stack->wrapper = find_wrapper(stack->context, frame->exact ? frame->pc : frame->pc - 1);
	if (!stack->wrapper)
		return refuse_frame(stack, stack->inner - 1, SAFEPOINT_IN_LIBC, verdict);
	verdict->wrapper = stack->wrapper->name;
	return true;
}

/*
 * The allocator may be part of the program: then its frames cannot be told
 * from the program's, and only a wait for an event proves that the thread is
 * not inside of it.
 */
static bool may_be_allocator(const struct stack *stack, uint32_t flags)
{
	if (!(flags & SAFEPOINT_DEFINES_MALLOC))
		return false;
	return !(flags & SAFEPOINT_EXECUTABLE) || !stack->wrapper || !stack->wrapper->waits;
}

/* The frames between: ordinary modules only. */
static bool check_middle(const struct stack *stack, struct safepoint_verdict *verdict)
{
	for (size_t i = stack->inner; i < stack->outer; i++) {
		uint32_t flags = module_flags(stack->context, stack->frames[i].module);
		enum safepoint_reason reason = reason_of_flags(flags);

		if (reason == SAFEPOINT_IN_LIBC)
			reason = SAFEPOINT_LIBC_FRAME;
		if (reason == SAFEPOINT_IN_ALLOCATOR && !may_be_allocator(stack, flags))
			reason = SAFEPOINT_SAFE;
		if (reason != SAFEPOINT_SAFE)
			return refuse_frame(stack, i, reason, verdict);
	}
	return true;
}

static void judge(const struct safepoint_context *context, const struct walk_frame *frames,
		  size_t count, enum walk_end end, struct safepoint_verdict *verdict)
{
	struct stack stack = {.context = context, .frames = frames, .count = count};

	verdict->frames = count;
	if (!check_frames(&stack, end, verdict) || !check_end(&stack, verdict) ||
	    !check_wrapper(&stack, verdict))
		return;
	/* A thread of libc's own, with no frame of the program. */
	if (stack.inner == stack.outer) {
		refuse_frame(&stack, count - 1, SAFEPOINT_BAD_END, verdict);
		return;
	}
	check_middle(&stack, verdict);
}

void safepoint_read_stack(const struct safepoint_context *context, uint64_t sp, uint8_t *bytes,
			  size_t size, struct stack_image *ret)
{
	ret->low = sp - STACKWALK_RED_ZONE;
	ret->bytes = bytes;
	ret->size = context->read(context->read_data, ret->low, bytes, size);
	if (ret->size > STACKWALK_RED_ZONE)
		return;
	/* The red zone is not there: where a stack ends, or another one begins. */
	ret->low = sp;
	ret->size = context->read(context->read_data, ret->low, bytes, size);
}

static enum walk_end walk(const struct safepoint_context *context, const struct position *position,
			  size_t size, struct walk_frame *frames, size_t *count_ret)
{
	CLEANUP(freep) uint8_t *bytes = malloc(size);
	struct stack_image image;

	*count_ret = 0;
	if (!bytes)
		return WALK_OUTSIDE;
	safepoint_read_stack(context, position->registers.reg[HA_EXT_RSP], bytes, size, &image);
	return stackwalk(&context->code, &image, &position->registers, position->after_call, frames,
			 FRAMES_MAX, count_ret);
}

void safepoint_check(const struct safepoint_context *context, const struct safepoint_thread *thread,
		     struct safepoint_verdict *ret)
{
	CLEANUP(freep) struct walk_frame *frames = malloc(FRAMES_MAX * sizeof(*frames));
	struct position position;
	enum walk_end end;
	size_t count;

	precheck(context, thread, &position, ret);
	if (ret->reason != SAFEPOINT_SAFE)
		return;
	if (!frames) {
		refuse(ret, SAFEPOINT_INCOMPLETE, STACKWALK_NO_MODULE, position.registers.pc, 0);
		return;
	}
	end = walk(context, &position, STACK_SIZE, frames, &count);
	if (end == WALK_OUTSIDE)
		end = walk(context, &position, STACK_SIZE_MAX, frames, &count);
	if (count == 0)
		refuse(ret, SAFEPOINT_INCOMPLETE, STACKWALK_NO_MODULE, position.registers.pc, 0);
	else
		judge(context, frames, count, end, ret);
}

static const struct {
	const char *name;
	const char *before, *after; /* "thread N ", before, the place, after */
} reasons[SAFEPOINT_REASONS] = {
	[SAFEPOINT_SAFE] = {"safe", "is at a safe point", NULL},
	[SAFEPOINT_NO_LIBC] = {"no-libc", "runs without a libc that we know", NULL},
	[SAFEPOINT_UNKNOWN_CODE] = {"unknown-code", "runs code of no known module at ", ""},
	[SAFEPOINT_UNLISTED_SYSCALL] = {"syscall", "is in a system call that we avoid in ", ""},
	[SAFEPOINT_IN_LIBC] = {"in-libc", "is in ", ""},
	[SAFEPOINT_IN_LOADER] = {"in-loader", "is in ", ", the dynamic loader"},
	[SAFEPOINT_IN_VDSO] = {"in-vdso", "is in ", ""},
	[SAFEPOINT_IN_ALLOCATOR] = {"in-allocator", "is in ", ", which has the allocator"},
	[SAFEPOINT_IN_INTERNAL] = {"in-internal", "is in ", ", which works under locks of libc"},
	[SAFEPOINT_IN_HOOK] = {"in-hook", "is in our own hook at ", ""},
	[SAFEPOINT_IN_RSEQ] = {"in-rseq", "is in a restartable sequence in ", ""},
	[SAFEPOINT_NO_CFI] = {"no-cfi", "is in ", ", for which there is no unwind information"},
	[SAFEPOINT_INCOMPLETE] = {"incomplete", "has a stack that cannot be followed beyond ", ""},
	[SAFEPOINT_SIGNAL_FRAME] = {"signal", "is in a signal handler, called from ", ""},
	[SAFEPOINT_LIBC_FRAME] = {"libc-frame", "is in a function that ", " called"},
	[SAFEPOINT_BAD_END] = {"bad-end", "was not started by libc, but in ", ""},
};

const char *safepoint_reason_name(enum safepoint_reason reason)
{
	return reason < SAFEPOINT_REASONS ? reasons[reason].name : "unknown";
}

/* "malloc (libc.so.6)", "0x1234 in libc.so.6", or the bare address. */
static char *describe_place(const struct safepoint_context *context,
			    const struct safepoint_verdict *verdict)
{
	const struct safepoint_module *module;
	const char *symbol = NULL;
	char *text;
	int length;

	if (verdict->module >= context->module_count)
		return asprintf(&text, "%#lx", verdict->pc) < 0 ? NULL : text;
	module = &context->modules[verdict->module];
	if (context->symbol)
		symbol = context->symbol(context->symbol_data, verdict->module, verdict->pc);
	if (symbol)
		length = asprintf(&text, "%s (%s)", symbol, module->name);
	else
		length = asprintf(&text, "%#lx in %s", verdict->pc - module->bias, module->name);
	return length < 0 ? NULL : text;
}

char *safepoint_describe(const struct safepoint_context *context,
			 const struct safepoint_verdict *verdict, pid_t tid)
{
	enum safepoint_reason reason = verdict->reason;
	CLEANUP(freep) char *place = describe_place(context, verdict);
	char *text;
	int length;

	if (!place || reason >= SAFEPOINT_REASONS)
		return NULL;
	if (!reasons[reason].after)
		length = asprintf(&text, "thread %d %s", (int)tid, reasons[reason].before);
	else
		length = asprintf(&text, "thread %d %s%s%s", (int)tid, reasons[reason].before,
				  place, reasons[reason].after);
	return length < 0 ? NULL : text;
}
