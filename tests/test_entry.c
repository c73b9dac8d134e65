/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Calls through the stubs of the real entry object, one thread. */
#include "injector/payload_image.h"
#include "resolver/cleanup.h"
#include "tests/hooked.h"
#include "tests/tests.h"

#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#define BLOCK 0x10002000ull

static void *returned_block; /* what posix_memalign's first argument points to */

/* A call that allocates, for each class. */
static const struct {
	enum ha_class class;
	uint64_t argument[4];
	uint64_t size;
} allocations[] = {
	{HA_CLASS_ALLOC, {100, 2, 3, 4}, 100},
	{HA_CLASS_ALLOC, {0, 2, 3, 4}, 0},
	{HA_CLASS_ALIGNED, {64, 256, 3, 4}, 256},
	{HA_CLASS_CALLOC, {7, 9, 3, 4}, 63},
	{HA_CLASS_CALLOC, {0, UINT64_MAX, 3, 4}, 0},
	{HA_CLASS_POSIX_MEMALIGN, {(uint64_t)(uintptr_t)&returned_block, 64, 5000, 4}, 5000},
	{HA_CLASS_REALLOC, {0, 77, 3, 4}, 77},
	{HA_CLASS_REALLOCARRAY, {0, 11, 13, 4}, 143},
};
#define ALLOCATIONS ((int)(sizeof(allocations) / sizeof(allocations[0])))

static void call_prepare(struct marked_call *call, uint64_t stub, const uint64_t argument[4])
{
	static const struct ha_frame marks = {
		.r15 = 0x1515151515151515,
		.r14 = 0x1414141414141414,
		.r13 = 0x1313131313131313,
		.r12 = 0x1212121212121212,
		.rbx = 0xb0b0b0b0b0b0b0b0,
		.rbp = 0xb1b1b1b1b1b1b1b1,
	};

	*call = (struct marked_call){.function = stub, .before = marks};
	memcpy(call->argument, argument, sizeof(call->argument));
}

static void assert_registers_kept(const struct marked_call *call)
{
	ck_assert_mem_eq(&call->before, &call->after, offsetof(struct ha_frame, ra));
}

/* Call @stub; whatever happens, registers are kept and nobody stays in core. */
static struct marked_call call_stub(uint64_t stub, const uint64_t argument[4])
{
	struct marked_call call;

	hooked.events = 0;
	call_prepare(&call, stub, argument);
	marked_call(&call);
	assert_registers_kept(&call);
	ck_assert_uint_eq(hooked_depth(), 0);
	return call;
}

static void assert_original(const struct hooked_event *event, const uint64_t argument[4])
{
	ck_assert_int_eq(event->kind, HOOKED_ORIGINAL);
	ck_assert_mem_eq(event->argument, argument, sizeof(event->argument));
	ck_assert_uint_eq(event->depth, 0);
	ck_assert(event->aligned);
}

static void assert_core(const struct hooked_event *event, enum hooked_event_kind kind, uint64_t ptr)
{
	ck_assert_int_eq(event->kind, kind);
	ck_assert_uint_eq(event->shm, hooked.shm);
	ck_assert_uint_eq(event->ptr, ptr);
	ck_assert_uint_lt(event->line, HA_LINES);
	ck_assert_uint_eq(event->depth, 1);
	ck_assert_uint_eq(event->line_depth, 1);
	ck_assert(event->aligned);
}

/* The frame that core got is the one of @call. */
static void assert_frame(const struct hooked_event *event, const struct marked_call *call)
{
	ck_assert_mem_eq(&event->frame, &call->before, sizeof(event->frame));
	ck_assert_uint_eq(event->frame_address + sizeof(event->frame), call->sp);
}

/* One event, and it came straight from the caller. */
static void assert_tail_jump(const struct marked_call *call, const uint64_t argument[4])
{
	ck_assert_uint_eq(hooked.events, 1);
	assert_original(&hooked.event[0], argument);
	ck_assert_uint_eq(hooked.event[0].return_address, call->before.ra);
	ck_assert_uint_eq(call->result, hooked.result);
	ck_assert_int_eq(errno, hooked.error_number);
}

static uint64_t result_of(enum ha_class class)
{
	returned_block = (void *)BLOCK;
	return class == HA_CLASS_POSIX_MEMALIGN ? 0 : BLOCK;
}

/* ------------------------------------------------------------------------ */

START_TEST(object_is_as_the_contract_says)
{
	const Elf64_Ehdr *ehdr = (const Elf64_Ehdr *)hooked.base;

	ck_assert_mem_eq(ehdr->e_ident, ELFMAG, SELFMAG);
	ck_assert_uint_eq(hooked.entry->magic, HA_MAGIC);
	ck_assert_uint_eq(hooked.entry->abi, HA_ABI);
	ck_assert_uint_le(payload_entry_size, HA_ENTRY_SIZE);
	for (int i = 0; i < HA_CLASSES; i++) {
		ck_assert_uint_ge(hooked.entry->bodies[i],
				  HA_ENTRY_STUBS + HA_PAIRS * HA_STUB_SIZE);
		ck_assert_uint_lt(hooked.entry->bodies[i], HA_ENTRY_DATA);
	}
}
END_TEST

START_TEST(allocation_is_recorded)
{
	enum ha_class class = allocations[_i].class;
	const uint64_t *argument = allocations[_i].argument;
	uint64_t stub = hooked_logged_pair(HA_PAIRS - 1, class);
	struct marked_call call;

	hooked.result = result_of(class);
	hooked.error_number = 1234;
	for (int turn = 0; turn < 2; turn++) {
		errno = 0;
		call = call_stub(stub, argument);
		ck_assert_uint_eq(hooked.events, 2);
		assert_original(&hooked.event[0], argument);
		assert_core(&hooked.event[1], HOOKED_ALLOC, BLOCK);
		assert_frame(&hooked.event[1], &call);
		ck_assert_uint_eq(hooked.event[1].size, allocations[_i].size);
		ck_assert_uint_eq(call.result, hooked.result);
		ck_assert_int_eq(errno, 1234);
		ck_assert_uint_eq(hooked_lines_owned(), 1);
	}
}
END_TEST

START_TEST(failed_allocation_is_not_recorded)
{
	enum ha_class class = allocations[_i].class;
	uint64_t stub = hooked_logged_pair(0, class);
	struct marked_call call;

	returned_block = (void *)BLOCK;
	hooked.result = class == HA_CLASS_POSIX_MEMALIGN ? ENOMEM : 0;
	hooked.error_number = ENOMEM;
	call = call_stub(stub, allocations[_i].argument);
	ck_assert_uint_eq(hooked.events, 1);
	ck_assert_uint_eq(call.result, hooked.result);
	ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

START_TEST(posix_memalign_without_a_block_is_not_recorded)
{
	const uint64_t argument[4] = {(uint64_t)(uintptr_t)&returned_block, 64, 0, 0};
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_POSIX_MEMALIGN);

	returned_block = NULL;
	call_stub(stub, argument);
	ck_assert_uint_eq(hooked.events, 1);
}
END_TEST

START_TEST(product_that_overflows_passes_through)
{
	const uint64_t calloc_argument[4] = {1ull << 33, 1ull << 33, 3, 4};
	const uint64_t array_argument[4] = {0x1000, 1ull << 63, 2, 4};
	struct marked_call call;

	call = call_stub(hooked_logged_pair(0, HA_CLASS_CALLOC), calloc_argument);
	assert_tail_jump(&call, calloc_argument);
	call = call_stub(hooked_logged_pair(1, HA_CLASS_REALLOCARRAY), array_argument);
	assert_tail_jump(&call, array_argument);
}
END_TEST

START_TEST(stopped_entry_passes_through)
{
	const uint64_t argument[4] = {0x1000, 64, 8, 4};
	uint64_t stub = hooked_logged_pair(5, (enum ha_class)_i);
	struct marked_call call;

	hooked.entry->state = HA_STATE_OFF;
	hooked.entry->gate = 0;
	hooked.result = 42;
	hooked.error_number = 17;
	call = call_stub(stub, argument);
	assert_tail_jump(&call, argument);
	ck_assert_uint_eq(hooked_lines_owned(), 0);
}
END_TEST

static struct ha_line *line_owned(void)
{
	for (size_t i = 0; i < HA_LINES; i++)
		if (hooked.entry->lines[i].key)
			return &hooked.entry->lines[i];
	ck_abort_msg("no line is owned");
}

START_TEST(countdown_passes_through_until_it_is_spent)
{
	enum ha_class class = allocations[_i].class;
	const uint64_t *argument = allocations[_i].argument;
	uint64_t step = allocations[_i].size + 1;
	uint64_t stub = hooked_logged_pair(0, class);
	struct marked_call call;
	struct ha_line *line;

	hooked.result = result_of(class);
	call_stub(stub, argument);
	line = line_owned();
	line->left = 2 * step + step / 2;
	for (int turn = 0; turn < 2; turn++) {
		call = call_stub(stub, argument);
		assert_tail_jump(&call, argument);
	}
	ck_assert_uint_eq(line->left, step / 2);
	call_stub(stub, argument);
	ck_assert_uint_eq(hooked.events, 2);
	ck_assert_int_eq(hooked.event[1].kind, HOOKED_ALLOC);
}
END_TEST

START_TEST(countdown_of_zero_stays_zero)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);

	hooked.result = BLOCK;
	for (int turn = 0; turn < 3; turn++) {
		call_stub(stub, allocations[0].argument);
		ck_assert_uint_eq(hooked.events, 2);
		ck_assert_uint_eq(line_owned()->left, 0);
	}
}
END_TEST

START_TEST(free_is_recorded_before_it_happens)
{
	const uint64_t argument[4] = {BLOCK, 48, 16, 5};
	struct marked_call call = call_stub(hooked_logged_pair(0, HA_CLASS_FREE), argument);

	ck_assert_uint_eq(hooked.events, 2);
	assert_core(&hooked.event[0], HOOKED_FREE, BLOCK);
	assert_original(&hooked.event[1], argument);
	ck_assert_uint_eq(hooked.event[1].return_address, call.before.ra);
}
END_TEST

START_TEST(free_of_null_passes_through)
{
	const uint64_t argument[4] = {0, 48, 16, 5};
	struct marked_call call = call_stub(hooked_logged_pair(0, HA_CLASS_FREE), argument);

	assert_tail_jump(&call, argument);
}
END_TEST

/* Class, size arguments, size. */
static const struct {
	enum ha_class class;
	uint64_t argument[4];
	uint64_t size;
} reallocations[] = {
	{HA_CLASS_REALLOC, {0x7000, 300, 3, 4}, 300},
	{HA_CLASS_REALLOC, {0x7000, 0, 3, 4}, 0},
	{HA_CLASS_REALLOCARRAY, {0x7000, 30, 20, 4}, 600},
};
#define REALLOCATIONS ((int)(sizeof(reallocations) / sizeof(reallocations[0])))

START_TEST(reallocation_is_framed_by_begin_and_end)
{
	static const uint64_t results[] = {BLOCK, 0};
	const uint64_t *argument = reallocations[_i].argument;
	uint64_t stub = hooked_logged_pair(0, reallocations[_i].class);
	struct marked_call call;

	hooked.token = 0x1234567890;
	for (size_t i = 0; i < 2; i++) {
		hooked.result = results[i];
		hooked.error_number = 99;
		call = call_stub(stub, argument);
		ck_assert_uint_eq(hooked.events, 3);
		assert_core(&hooked.event[0], HOOKED_REALLOC_BEGIN, 0x7000);
		assert_original(&hooked.event[1], argument);
		assert_core(&hooked.event[2], HOOKED_REALLOC_END, results[i]);
		assert_frame(&hooked.event[2], &call);
		ck_assert_uint_eq(hooked.event[2].token, hooked.token);
		ck_assert_uint_eq(hooked.event[2].size, reallocations[_i].size);
		ck_assert_uint_eq(call.result, results[i]);
		ck_assert_int_eq(errno, 99);
	}
}
END_TEST

static void next_session(void)
{
	hooked.entry->session++;
}

static void switch_off(void)
{
	hooked.entry->state = HA_STATE_OFF;
}

START_TEST(reallocation_across_sessions_is_not_ended)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_REALLOC);

	hooked.during_original = _i ? switch_off : next_session;
	call_stub(stub, reallocations[0].argument);
	ck_assert_uint_eq(hooked.events, 2);
	ck_assert_int_eq(hooked.event[0].kind, HOOKED_REALLOC_BEGIN);
	ck_assert_int_eq(hooked.event[1].kind, HOOKED_ORIGINAL);
}
END_TEST

START_TEST(allocation_that_ends_after_stop_is_not_recorded)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);

	hooked.during_original = switch_off;
	hooked.result = BLOCK;
	call_stub(stub, allocations[0].argument);
	ck_assert_uint_eq(hooked.events, 1);
}
END_TEST

START_TEST(resize_in_place_is_recorded_with_its_result)
{
	const uint64_t argument[4] = {BLOCK, 100, 20, 4};
	struct marked_call call;

	hooked.result = 160;
	call = call_stub(hooked_logged_pair(0, HA_CLASS_XALLOCX), argument);
	ck_assert_uint_eq(hooked.events, 2);
	assert_original(&hooked.event[0], argument);
	assert_core(&hooked.event[1], HOOKED_XALLOCX, BLOCK);
	assert_frame(&hooked.event[1], &call);
	ck_assert_uint_eq(hooked.event[1].size, 160);
	ck_assert_uint_eq(call.result, 160);
}
END_TEST

START_TEST(forked_child_passes_through)
{
	const uint64_t argument[4] = {(uint64_t)(uintptr_t)&returned_block, 64, 8, 4};
	uint64_t stub = hooked_logged_pair(0, (enum ha_class)_i);
	int status;
	pid_t pid;

	hooked.result = result_of((enum ha_class)_i);
	call_stub(stub, argument);
	ck_assert_uint_ge(hooked.events, 2);
	pid = fork();
	if (pid == 0) {
		struct marked_call call;

		hooked.events = 0;
		call_prepare(&call, stub, argument);
		marked_call(&call);
		_exit(!(hooked.events == 1 && hooked.event[0].kind == HOOKED_ORIGINAL &&
			!memcmp(hooked.event[0].argument, argument, sizeof(argument)) &&
			call.result == hooked.result && hooked_depth() == 0));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

static sigjmp_buf jump;

static void jump_out(void)
{
	siglongjmp(jump, 1);
}

START_TEST(jump_out_of_an_original_leaves_nobody_in_core)
{
	static const enum ha_class classes[] = {HA_CLASS_ALLOC, HA_CLASS_REALLOC, HA_CLASS_XALLOCX,
						HA_CLASS_FREE};
	static const uint64_t argument[4] = {0x7000, 64, 0, 0};
	uint64_t stub = hooked_logged_pair(0, classes[_i]);
	struct marked_call call;

	hooked.during_original = jump_out;
	call_prepare(&call, stub, argument);
	if (!sigsetjmp(jump, 0)) {
		marked_call(&call);
		ck_abort_msg("the original returned");
	}
	ck_assert_uint_eq(hooked_depth(), 0);
}
END_TEST

static void handler_allocates(int number)
{
	struct marked_call call;

	hooked.during_core = NULL;
	call_prepare(&call, (uint64_t)(uintptr_t)hooked.base + HA_ENTRY_STUBS,
		     allocations[0].argument);
	marked_call(&call);
}

static void raise_signal(void)
{
	raise(SIGUSR1);
}

START_TEST(allocation_in_a_handler_that_interrupts_core_is_recorded)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);

	signal(SIGUSR1, handler_allocates);
	hooked.during_core = raise_signal;
	hooked.result = BLOCK;
	call_stub(stub, allocations[0].argument);
	ck_assert_uint_eq(hooked.events, 4);
	ck_assert_int_eq(hooked.event[1].kind, HOOKED_ALLOC);
	ck_assert_int_eq(hooked.event[2].kind, HOOKED_ORIGINAL);
	ck_assert_int_eq(hooked.event[3].kind, HOOKED_ALLOC);
	ck_assert_uint_eq(hooked.event[3].depth, 2);
}
END_TEST

static void *trace[64];
static int trace_size;

static void take_trace(void)
{
	trace_size = backtrace(trace, 64);
}

START_TEST(backtrace_goes_through_the_slow_path)
{
	uint64_t stub = hooked_logged_pair(0, (_i & 1) ? HA_CLASS_REALLOC : HA_CLASS_ALLOC);
	struct marked_call call;
	bool found = false;

	hooked.result = BLOCK;
	if (_i & 2)
		hooked.during_core = take_trace;
	else
		hooked.during_original = take_trace;
	call = call_stub(stub, reallocations[0].argument);
	for (int i = 0; i + 1 < trace_size; i++)
		found |= (uint64_t)(uintptr_t)trace[i] == call.before.ra;
	ck_assert_msg(found, "the caller is not among %d frames", trace_size);
}
END_TEST

/* One walk from an instruction of entry: did it pass the caller, with the caller's registers? */
struct step_walk {
	const struct marked_call *call;
	bool found, kept;
};
static struct step_walk step_walk;
static unsigned int steps, steps_lost, steps_changed;

static _Unwind_Reason_Code step_visit(struct _Unwind_Context *context, void *argument)
{
	const uint64_t *marks = (const uint64_t *)&step_walk.call->before;

	if (_Unwind_GetIP(context) != step_walk.call->before.ra)
		return _URC_NO_REASON;
	step_walk.found = step_walk.kept = true;
	for (int i = 0; i < 6; i++)
		step_walk.kept &= _Unwind_GetGR(context, machine_callee_saved[i]) == marks[i];
	return _URC_END_OF_STACK;
}

static void step(int number, siginfo_t *info, void *context)
{
	uint64_t pc = context_pc(context);
	uint64_t base = (uint64_t)(uintptr_t)hooked.base;

	if (pc < base || pc >= base + HA_ENTRY_DATA)
		return;
	step_walk.found = step_walk.kept = false;
	_Unwind_Backtrace(step_visit, NULL);
	steps++;
	steps_lost += !step_walk.found;
	steps_changed += !step_walk.kept;
}

START_TEST(every_instruction_can_be_unwound)
{
	const uint64_t argument[4] = {(uint64_t)(uintptr_t)&returned_block, 64, 8, 4};
	struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
	enum ha_class class = (enum ha_class)(_i / 2);
	struct marked_call call;

	hooked.entry->state = _i % 2 ? HA_STATE_ON : HA_STATE_OFF;
	hooked.result = result_of(class);
	call_prepare(&call, hooked_logged_pair(0, class), argument);
	step_walk.call = &call;
	sigaction(SIGTRAP, &action, NULL);
	marked_call_stepping(&call);
	ck_assert_uint_gt(steps, _i % 2 ? 40 : 4);
	ck_assert_uint_eq(steps_lost, 0);
	ck_assert_uint_eq(steps_changed, 0);
	assert_registers_kept(&call);
}
END_TEST

static __attribute__((no_sanitize_address)) void quiet_alloc(struct ha_shm *shm,
							     const struct ha_frame *frame,
							     uint64_t ptr, uint64_t size,
							     uint64_t line)
{
	hooked.event[0].line = line;
	hooked.event[0].line_depth = hooked.entry->shared[0].depth;
	hooked.events++;
}

static __attribute__((no_sanitize_address)) uint64_t quiet_original(uint64_t size)
{
	return BLOCK;
}

START_TEST(thread_without_thread_pointer_uses_a_shared_line)
{
	struct marked_call call;
	uint64_t stub = hooked_pair(0, HA_CLASS_ALLOC, (uint64_t)(uintptr_t)quiet_original);

	hooked.entry->core_alloc = (uint64_t)(uintptr_t)quiet_alloc;
	hooked.entry->bare_threads = 1;
	call_prepare(&call, stub, allocations[0].argument);
	marked_call_without_thread_pointer(&call);
	ck_assert_uint_eq(hooked.events, 1);
	ck_assert_uint_eq(hooked.event[0].line, HA_LINES);
	ck_assert_uint_eq(hooked.event[0].line_depth, 1);
	ck_assert_uint_eq(hooked_lines_owned(), 0);
	ck_assert_uint_eq(hooked_depth(), 0);
}
END_TEST

START_TEST(every_stub_leads_to_its_own_pair)
{
	static const uint64_t argument[4] = {8, 0, 0, 0};

	for (unsigned int k = 0; k < HA_PAIRS; k++)
		hooked_pair(k, HA_CLASS_ALLOC, 0);
	for (unsigned int k = 0; k < HA_PAIRS; k++) {
		hooked.result = BLOCK + k;
		ck_assert_uint_eq(call_stub(hooked_logged_pair(k, HA_CLASS_ALLOC), argument).result,
				  BLOCK + k);
		hooked_pair(k, HA_CLASS_ALLOC, 0);
	}
}
END_TEST

/* Run a target with the path of a memfd that has entry; its exit status must be 0. */
static void run_target(const char *name)
{
	CLEANUP(freep) char *program = tests_build_path("targets/%s", name);
	int fd = hooked_file("entry", payload_entry, payload_entry_size);
	char path[64];
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), fd);
	pid = fork();
	if (pid == 0) {
		execl(program, program, path, (char *)NULL);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "%s: wait status 0x%x", program, status);
	close(fd);
}

START_TEST(cxx_exception_passes_the_slow_path)
{
	run_target("entry_throw");
}
END_TEST

START_TEST(loads_into_musl)
{
	run_target("entry_musl");
}
END_TEST

static TCase *calls_case(void)
{
	TCase *tcase = tcase_create("calls");

	tcase_add_checked_fixture(tcase, hooked_setup, NULL);
	tcase_add_test(tcase, object_is_as_the_contract_says);
	tcase_add_loop_test(tcase, allocation_is_recorded, 0, ALLOCATIONS);
	tcase_add_loop_test(tcase, failed_allocation_is_not_recorded, 0, ALLOCATIONS);
	tcase_add_test(tcase, posix_memalign_without_a_block_is_not_recorded);
	tcase_add_test(tcase, product_that_overflows_passes_through);
	tcase_add_loop_test(tcase, stopped_entry_passes_through, 0, HA_CLASSES);
	tcase_add_loop_test(tcase, countdown_passes_through_until_it_is_spent, 0, ALLOCATIONS);
	tcase_add_test(tcase, countdown_of_zero_stays_zero);
	tcase_add_test(tcase, free_is_recorded_before_it_happens);
	tcase_add_test(tcase, free_of_null_passes_through);
	tcase_add_loop_test(tcase, reallocation_is_framed_by_begin_and_end, 0, REALLOCATIONS);
	tcase_add_loop_test(tcase, reallocation_across_sessions_is_not_ended, 0, 2);
	tcase_add_test(tcase, allocation_that_ends_after_stop_is_not_recorded);
	tcase_add_test(tcase, resize_in_place_is_recorded_with_its_result);
	tcase_add_loop_test(tcase, forked_child_passes_through, 0, HA_CLASSES);
	tcase_add_loop_test(tcase, jump_out_of_an_original_leaves_nobody_in_core, 0, 4);
	tcase_add_test(tcase, allocation_in_a_handler_that_interrupts_core_is_recorded);
	tcase_add_loop_test(tcase, backtrace_goes_through_the_slow_path, 0, 4);
	tcase_add_loop_test(tcase, every_instruction_can_be_unwound, 0, 2 * HA_CLASSES);
	tcase_add_test(tcase, thread_without_thread_pointer_uses_a_shared_line);
	tcase_add_test(tcase, every_stub_leads_to_its_own_pair);
	return tcase;
}

Suite *entry_suite(void)
{
	Suite *suite = suite_create("entry");
	TCase *programs = tcase_create("programs");

	suite_add_tcase(suite, calls_case());
	tcase_add_test(programs, cxx_exception_passes_the_slow_path);
	tcase_add_test(programs, loads_into_musl);
	suite_add_tcase(suite, programs);
	return suite;
}
