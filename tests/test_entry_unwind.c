/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Ways out of entry's frames other than by return: jumps, unwinders, exceptions. */
#include "injector/payload_image.h"
#include "resolver/cleanup.h"
#include "tests/hooked.h"
#include "tests/tests.h"

#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

/* Fits each class: an old block, an address to return one at, a count ... */
static void argument_fill(uint64_t argument[4])
{
	argument[0] = (uint64_t)(uintptr_t)&hooked_block;
	argument[1] = 64;
	argument[2] = 8;
	argument[3] = 4;
}

static sigjmp_buf jump;

static void jump_out(void)
{
	siglongjmp(jump, 1);
}

START_TEST(jump_out_of_an_original_leaves_nobody_in_core)
{
	static const enum ha_class classes[] = {HA_CLASS_ALLOC, HA_CLASS_REALLOC, HA_CLASS_XALLOCX,
						HA_CLASS_FREE};
	uint64_t argument[4];
	uint64_t stub = hooked_logged_pair(0, classes[_i]);
	struct marked_call call;

	argument_fill(argument);
	hooked.during_original = jump_out;
	hooked_call_prepare(&call, stub, argument);
	if (!sigsetjmp(jump, 0)) {
		marked_call(&call);
		ck_abort_msg("the original returned");
	}
	ck_assert_uint_eq(hooked_depth(), 0);
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
	uint64_t argument[4];

	argument_fill(argument);
	hooked.result = HOOKED_BLOCK;
	if (_i & 2)
		hooked.during_core = take_trace;
	else
		hooked.during_original = take_trace;
	call = hooked_call(stub, argument);
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
	uint64_t argument[4];
	struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
	enum ha_class class = (enum ha_class)(_i / 2);
	struct marked_call call;

	argument_fill(argument);
	hooked.entry->state = _i % 2 ? HA_STATE_ON : HA_STATE_OFF;
	hooked.result = hooked_result(class);
	hooked_call_prepare(&call, hooked_logged_pair(0, class), argument);
	step_walk.call = &call;
	sigaction(SIGTRAP, &action, NULL);
	marked_call_stepping(&call);
	ck_assert_uint_gt(steps, _i % 2 ? 40 : 4);
	ck_assert_uint_eq(steps_lost, 0);
	ck_assert_uint_eq(steps_changed, 0);
	hooked_assert_kept(&call);
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

static TCase *calls_case(const char *name, void (*setup)(void))
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, jump_out_of_an_original_leaves_nobody_in_core, 0, 4);
	tcase_add_loop_test(tcase, backtrace_goes_through_the_slow_path, 0, 4);
	tcase_add_loop_test(tcase, every_instruction_can_be_unwound, 0, 2 * HA_CLASSES);
	return tcase;
}

Suite *entry_unwind_suite(void)
{
	Suite *suite = suite_create("entry_unwind");
	TCase *programs = tcase_create("programs");

	suite_add_tcase(suite, calls_case("calls", hooked_setup));
	suite_add_tcase(suite, calls_case("sampling", hooked_setup_sampling));
	tcase_add_test(programs, cxx_exception_passes_the_slow_path);
	tcase_add_test(programs, loads_into_musl);
	suite_add_tcase(suite, programs);
	return suite;
}
