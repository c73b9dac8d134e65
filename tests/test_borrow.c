// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Taking a thread and giving it back: calls, runs, faults, refusals. What
 * happens to its system calls is in test_borrow_restart.c, to signals in
 * test_borrow_signals.c, to its registers in test_borrow_state.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "injector/threads.h"
#include "tests/borrow_code.h"
#include "tests/borrow_fixture.h"
#include "tests/tests.h"

#define STACK_SIZE 65536u

static void spin(struct board *board)
{
	board->ready = 1;
	for (;;)
		board->rounds++;
}

static void wait_in_pause(struct board *board)
{
	board->ready = 1;
	for (;;)
		pause();
}

/* ---- calls */

START_TEST(calls_on_a_running_thread)
{
	struct victim victim;
	struct borrow *borrow;
	struct borrow_stats stats;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, 10);
	stats = victim_return(borrow);
	ck_assert_uint_eq(stats.syscalls, 10);
	ck_assert(stats.ran);
	ck_assert_uint_gt(stats.stopped_ns, 0);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(calls_on_a_blocked_thread)
{
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, wait_in_pause);
	victim_wait_in(&victim, victim.pid, SYS_pause);
	borrow = victim_borrow(&victim);
	ck_assert_int_eq(borrow_registers(borrow)->syscall, SYS_pause);
	borrow_call_getpid(borrow, &victim, 3);
	victim_return(borrow);
	victim_stop(&victim);
}
END_TEST

START_TEST(failing_call_returns_its_errno)
{
	const uint64_t args[6] = {UINT64_MAX};
	struct victim victim;
	struct borrow *borrow;
	int64_t result;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	assert_ok(borrow_syscall(borrow, SYS_close, args, &result));
	ck_assert_int_eq(result, -EBADF);
	victim_return(borrow);
	victim_stop(&victim);
}
END_TEST

START_TEST(call_gets_all_six_arguments)
{
	struct victim victim;
	struct borrow *borrow;
	uint64_t page, word = 0;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	page = borrow_map(borrow, 4096);
	victim_return(borrow);
	assert_ok(target_read(victim.target, page, &word, sizeof(word)));
	ck_assert_uint_eq(word, 0);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(blocking_call_can_be_given_up)
{
	const uint64_t args[6] = {0, 0, 0, 0, 0};
	struct victim victim;
	struct borrow *borrow;
	int64_t result;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	/* ppoll of nothing, for ever */
	assert_fails(borrow_syscall(borrow, SYS_ppoll, args, &result), ERROR_TIMEOUT);
	victim_return(borrow);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(borrow_without_a_call_changes_nothing)
{
	struct victim victim;
	struct borrow *borrow;
	struct borrow_stats stats;

	victim_start(&victim, spin);
	for (int i = 0; i < 200; i++) {
		borrow = victim_borrow(&victim);
		stats = victim_return(borrow);
		ck_assert(!stats.ran);
		ck_assert(!stats.taken_back);
	}
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(write_reaches_pages_without_permission)
{
	static const char text[] = "written";
	struct victim victim;
	struct borrow *borrow;
	char found[sizeof(text)];
	uint64_t page;
	int64_t result;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	page = borrow_map(borrow, 4096);
	{
		const uint64_t args[6] = {page, 4096, PROT_READ};

		assert_ok(borrow_syscall(borrow, SYS_mprotect, args, &result));
		ck_assert_int_eq(result, 0);
	}
	assert_ok(borrow_write(borrow, page + 3, text, sizeof(text)));
	assert_ok(target_read(victim.target, page + 3, found, sizeof(found)));
	ck_assert_str_eq(found, text);
	assert_fails(borrow_write(borrow, 8, text, sizeof(text)), ERROR_NOT_FOUND);
	victim_return(borrow);
	victim_stop(&victim);
}
END_TEST

/* ---- runs */

START_TEST(runs_code_until_it_is_stopped)
{
	struct victim victim;
	struct borrow *borrow;
	uint64_t stack;
	bool stopped;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	stack = borrow_map(borrow, STACK_SIZE);
	assert_ok(borrow_run(borrow, code_count(), stack + STACK_SIZE,
			     (uint64_t)&victim.board->word[0]));
	ck_assert(wait_for(&victim.board->word[0], 1000));
	assert_ok(borrow_poll(borrow, &stopped));
	ck_assert(!stopped);
	assert_ok(borrow_stop_again(borrow, 1000));
	assert_ok(borrow_poll(borrow, &stopped));
	ck_assert(stopped);
	/* Calls and another run are possible after a run. */
	borrow_call_getpid(borrow, &victim, 2);
	victim.board->word[0] = 0;
	assert_ok(borrow_run(borrow, code_count(), stack + STACK_SIZE,
			     (uint64_t)&victim.board->word[0]));
	ck_assert(wait_for(&victim.board->word[0], 1000));
	/* end stops it too */
	victim_return(borrow);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(call_during_a_run_is_refused)
{
	const uint64_t args[6] = {0};
	struct victim victim;
	struct borrow *borrow;
	int64_t result;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	assert_ok(borrow_run(borrow, code_count(), borrow_map(borrow, STACK_SIZE) + STACK_SIZE,
			     (uint64_t)&victim.board->word[0]));
	assert_fails(borrow_syscall(borrow, SYS_getpid, args, &result), ERROR_BUSY);
	victim_return(borrow);
	victim_stop(&victim);
}
END_TEST

/* A mapping of a file that is shorter: any access is a SIGBUS. */
static void *map_beyond_end(void)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	ck_assert_ptr_ne(page, MAP_FAILED);
	return page;
}

static void handler_of_faults(int signal)
{
	_exit(signal);
}

/* Every fault has a handler, which must never run. */
static void spin_with_handlers(struct board *board)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		signal(faults[i], handler_of_faults);
	spin(board);
}

START_TEST(fault_of_our_code_is_reported_and_not_delivered)
{
	static const char *const names[CODE_FAULTS] = {"SEGV", "BUS", "ILL", "FPE", "TRAP"};
	void *beyond = map_beyond_end();
	char before[32], after[32];
	struct victim victim;
	struct borrow *borrow;
	struct error *err = NULL;
	bool stopped = false;

	victim_start(&victim, spin_with_handlers);
	status_line(victim.pid, victim.pid, "SigCgt", before, sizeof(before));
	borrow = victim_borrow(&victim);
	assert_ok(borrow_run(borrow, code_fault((enum code_fault)_i),
			     borrow_map(borrow, STACK_SIZE) + STACK_SIZE, (uint64_t)beyond));
	for (int i = 0; !err && i < 1000 && !stopped; i++)
		err = borrow_wait(borrow, 10, &stopped);
	ck_assert(error_is(err, ERROR_FAULT));
	ck_assert(stopped);
	ck_assert_ptr_nonnull(strstr(error_message(err), names[_i]));
	error_free(err);
	/* It can still be used. */
	borrow_call_getpid(borrow, &victim, 2);
	victim_return(borrow);
	victim_expect_progress(&victim);
	status_line(victim.pid, victim.pid, "SigCgt", after, sizeof(after));
	ck_assert_str_eq(after, before);
	victim_stop(&victim);
}
END_TEST

START_TEST(code_that_returns_is_a_fault)
{
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, spin_with_handlers);
	borrow = victim_borrow(&victim);
	assert_ok(
		borrow_run(borrow, code_return(), borrow_map(borrow, STACK_SIZE) + STACK_SIZE, 0));
	wait_ms(20);
	assert_fails(borrow_stop_again(borrow, 1000), ERROR_FAULT);
	victim_return(borrow);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

/* ---- the ends of threads and processes */

START_TEST(exit_during_a_run_is_gone)
{
	struct victim victim;
	struct borrow *borrow;
	struct error *err = NULL;
	bool stopped;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	assert_ok(borrow_run(borrow, code_count(), borrow_map(borrow, STACK_SIZE) + STACK_SIZE,
			     (uint64_t)&victim.board->word[0]));
	kill(victim.pid, SIGKILL);
	for (int i = 0; !err && i < 500; i++)
		err = borrow_wait(borrow, 10, &stopped);
	ck_assert(error_is(err, ERROR_GONE));
	error_free(err);
	assert_fails(borrow_end(borrow, NULL), ERROR_GONE);
	victim_stop(&victim);
}
END_TEST

START_TEST(exit_while_stopped_is_gone)
{
	const uint64_t args[6] = {0};
	struct victim victim;
	struct borrow *borrow;
	int64_t result;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	kill(victim.pid, SIGKILL);
	victim_wait_state(&victim, victim.pid, 'Z');
	assert_fails(borrow_syscall(borrow, SYS_getpid, args, &result), ERROR_GONE);
	assert_fails(borrow_end(borrow, NULL), ERROR_GONE);
	victim_stop(&victim);
}
END_TEST

static void *exec_soon(void *argument)
{
	struct board *board = argument;

	while (!board->word[0])
		usleep(1000);
	execl("/bin/sleep", "sleep", "60", (char *)NULL);
	_exit(1);
}

static void spin_with_a_thread_that_execs(struct board *board)
{
	pthread_t thread;

	pthread_create(&thread, NULL, exec_soon, board);
	spin(board);
}

/* Until it is another program; fails after 5 s. Not if it could not become one. */
static void wait_for_exec(const struct victim *victim)
{
	struct error *err = NULL;

	for (int left = 500; !err && !victim->board->bad && left > 0; left--) {
		wait_ms(10);
		err = target_check(victim->target);
	}
	if (!victim->board->bad)
		assert_fails(err, ERROR_GONE);
}

START_TEST(exec_by_another_thread_is_gone)
{
	const uint64_t args[6] = {0};
	struct victim victim;
	struct borrow *borrow;
	struct error *err;
	int64_t result;

	victim_start(&victim, spin_with_a_thread_that_execs);
	borrow = victim_borrow(&victim);
	victim.board->word[0] = 1;
	wait_for_exec(&victim);
	assert_fails(borrow_syscall(borrow, SYS_getpid, args, &result), ERROR_GONE);
	assert_fails(borrow_end(borrow, NULL), ERROR_GONE);
	err = target_check(victim.target);
	ck_assert(error_is(err, ERROR_GONE));
	ck_assert_ptr_nonnull(strstr(error_message(err), "another program"));
	error_free(err);
	victim_stop(&victim);
}
END_TEST

START_TEST(exec_during_a_run_is_gone)
{
	struct victim victim;
	struct borrow *borrow;
	struct error *err = NULL;
	bool stopped;

	victim_start(&victim, spin_with_a_thread_that_execs);
	borrow = victim_borrow(&victim);
	assert_ok(borrow_run(borrow, code_count(), borrow_map(borrow, STACK_SIZE) + STACK_SIZE,
			     (uint64_t)&victim.board->word[1]));
	victim.board->word[0] = 1;
	for (int i = 0; !err && i < 500; i++)
		err = borrow_wait(borrow, 10, &stopped);
	ck_assert(error_is(err, ERROR_GONE));
	error_free(err);
	assert_fails(borrow_end(borrow, NULL), ERROR_GONE);
	victim_stop(&victim);
}
END_TEST

START_TEST(thread_that_does_not_exist_is_gone)
{
	struct borrow *borrow = NULL;
	struct victim victim;

	victim_start(&victim, spin);
	assert_fails(borrow_begin(victim.target, 0x7ffffff0, 100, &borrow), ERROR_GONE);
	/* Our own thread is not one of the target's. */
	assert_fails(borrow_begin(victim.target, getpid(), 100, &borrow), ERROR_GONE);
	ck_assert_ptr_null(borrow);
	victim_stop(&victim);
}
END_TEST

/* ---- refusals */

START_TEST(second_tracer_is_told_who_was_first)
{
	struct victim victim;
	struct borrow *first, *second = NULL;
	struct error *err;
	char name[32];
	int status;
	pid_t child;

	victim_start(&victim, spin);
	first = victim_borrow(&victim);
	snprintf(name, sizeof(name), "process %d", getpid());
	child = fork();
	if (child == 0) {
		err = borrow_begin(victim.target, victim.pid, 100, &second);
		_exit(error_is(err, ERROR_BUSY) && strstr(error_message(err), name) ? 7 : 1);
	}
	/* The borrow's periodic signal may interrupt it. */
	while (waitpid(child, &status, 0) < 0)
		ck_assert_int_eq(errno, EINTR);
	ck_assert_int_eq(WEXITSTATUS(status), 7);
	victim_return(first);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(stranger_is_denied_with_a_hint)
{
	struct victim victim;
	int status;
	pid_t child;

	if (geteuid() != 0)
		return;
	victim_start(&victim, spin);
	child = fork();
	if (child == 0) {
		struct borrow *borrow;
		struct error *err;

		if (setgid(65534) != 0 || setuid(65534) != 0)
			_exit(2);
		err = borrow_begin(victim.target, victim.pid, 100, &borrow);
		_exit(error_is(err, ERROR_DENIED) && error_hint_text(err) ? 7 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WEXITSTATUS(status), 7);
	victim_stop(&victim);
}
END_TEST

static void become_32_bit(struct board *board)
{
	int fd = code_other_abi();

	board->ready = 1;
	while (!board->word[0])
		;
	fexecve(fd, (char *[]){(char *)"other", NULL}, (char *[]){NULL});
	board->bad = 1;
	pause();
}

START_TEST(thread_of_another_abi_is_unsupported)
{
	struct borrow *borrow = NULL;
	struct target *target;
	struct victim victim;
	char tracer[16];

	victim_start(&victim, become_32_bit);
	victim.board->word[0] = 1;
	wait_for_exec(&victim);
	/* A kernel without that ABI has set bad. */
	if (!victim.board->bad) {
		assert_ok(target_open(victim.pid, &target));
		/* Its auxiliary vector is none that we read. */
		target_set_gadget(target, 0x10000);
		assert_fails(borrow_begin(target, victim.pid, 1000, &borrow), ERROR_UNSUPPORTED);
		status_line(victim.pid, victim.pid, "TracerPid", tracer, sizeof(tracer));
		ck_assert_str_eq(tracer, "0");
		target_free(target);
	}
	victim_stop(&victim);
}
END_TEST

/* Blocked in vfork, in an uninterruptible sleep, until word[0] is set. */
static void wait_in_vfork(struct board *board)
{
	pid_t child;

	board->ready = 1;
	child = vfork();
	if (child == 0) {
		while (!board->word[0])
			;
		_exit(0);
	}
	spin(board);
}

START_TEST(thread_that_does_not_stop_is_left_alone)
{
	struct borrow *borrow = NULL;
	struct victim victim;
	char tracer[16];

	victim_start(&victim, wait_in_vfork);
	victim_wait_in(&victim, victim.pid, SYS_vfork);
	assert_fails(borrow_begin(victim.target, victim.pid, 50, &borrow), ERROR_TIMEOUT);
	victim.board->word[0] = 1;
	victim_wait_state(&victim, victim.pid, 't');
	/* It has stopped since. Any further use of the module lets it go; here its end. */
	assert_fails(borrow_begin(victim.target, 0x7ffffff0, 100, &borrow), ERROR_GONE);
	victim_expect_progress(&victim);
	status_line(victim.pid, victim.pid, "TracerPid", tracer, sizeof(tracer));
	ck_assert_str_eq(tracer, "0");
	victim_stop(&victim);
}
END_TEST

/* ---- the others */

#define THREADS 1000

static void *wait_with_epoll(void *argument)
{
	struct board *board = argument;
	struct epoll_event event;

	__atomic_fetch_add(&board->word[0], 1, __ATOMIC_SEQ_CST);
	for (;;) {
		if (epoll_wait((int)board->word[1], &event, 1, -1) < 0 && errno == EINTR)
			__atomic_fetch_add(&board->bad, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void thousand_threads(struct board *board)
{
	pthread_attr_t attr;
	pthread_t thread;

	board->word[1] = (uint64_t)epoll_create1(0);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (int i = 1; i < THREADS; i++) {
		if (pthread_create(&thread, &attr, wait_with_epoll, board) != 0)
			_exit(1);
	}
	while (board->word[0] < THREADS - 1)
		usleep(1000);
	spin(board);
}

static size_t count_traced(const struct victim *victim, const struct threads *threads, pid_t except)
{
	size_t traced = 0;
	char tracer[16];

	for (size_t i = 0; i < threads->count; i++) {
		if (threads->thread[i].tid == except)
			continue;
		status_line(victim->pid, threads->thread[i].tid, "TracerPid", tracer,
			    sizeof(tracer));
		traced += strcmp(tracer, "0") != 0;
	}
	return traced;
}

START_TEST(only_one_thread_of_a_thousand_is_stopped)
{
	struct threads threads;
	struct victim victim;
	struct borrow *borrow;
	uint64_t before;

	victim_start(&victim, thousand_threads);
	assert_ok(threads_read(victim.target, &threads));
	ck_assert_uint_eq(threads.count, THREADS);
	for (size_t i = 0; i < THREADS; i += 37) {
		pid_t tid = threads.thread[i].tid;

		assert_ok(borrow_begin(victim.target, tid, 5000, &borrow));
		if (i % 5 == 0)
			ck_assert_uint_eq(count_traced(&victim, &threads, tid), 0);
		before = victim.board->rounds;
		ck_assert(tid == victim.pid || wait_for(&victim.board->rounds, before + 2));
		borrow_call_getpid(borrow, &victim, 5);
		victim_return(borrow);
	}
	wait_ms(20);
	/* bad counts the EINTRs */
	victim_expect_progress(&victim);
	threads_deinit(&threads);
	victim_stop(&victim);
}
END_TEST

Suite *borrow_suite(void)
{
	Suite *suite = suite_create("borrow");
	TCase *calls = tcase_create("calls");
	TCase *runs = tcase_create("runs");
	TCase *ends = tcase_create("ends");
	TCase *refusals = tcase_create("refusals");
	TCase *others = tcase_create("others");

	tcase_set_timeout(calls, TIMEOUT_S);
	tcase_set_timeout(runs, TIMEOUT_S);
	tcase_set_timeout(ends, TIMEOUT_S);
	tcase_set_timeout(refusals, TIMEOUT_S);
	tcase_set_timeout(others, TIMEOUT_S);
	tcase_add_test(calls, calls_on_a_running_thread);
	tcase_add_test(calls, calls_on_a_blocked_thread);
	tcase_add_test(calls, failing_call_returns_its_errno);
	tcase_add_test(calls, call_gets_all_six_arguments);
	tcase_add_test(calls, blocking_call_can_be_given_up);
	tcase_add_test(calls, borrow_without_a_call_changes_nothing);
	tcase_add_test(calls, write_reaches_pages_without_permission);
	suite_add_tcase(suite, calls);
	tcase_add_test(runs, runs_code_until_it_is_stopped);
	tcase_add_test(runs, call_during_a_run_is_refused);
	tcase_add_loop_test(runs, fault_of_our_code_is_reported_and_not_delivered, 0, CODE_FAULTS);
	tcase_add_test(runs, code_that_returns_is_a_fault);
	suite_add_tcase(suite, runs);
	tcase_add_test(ends, exit_during_a_run_is_gone);
	tcase_add_test(ends, exit_while_stopped_is_gone);
	tcase_add_test(ends, exec_by_another_thread_is_gone);
	tcase_add_test(ends, exec_during_a_run_is_gone);
	tcase_add_test(ends, thread_that_does_not_exist_is_gone);
	suite_add_tcase(suite, ends);
	tcase_add_test(refusals, second_tracer_is_told_who_was_first);
	tcase_add_test(refusals, stranger_is_denied_with_a_hint);
	tcase_add_test(refusals, thread_of_another_abi_is_unsupported);
	tcase_add_test(refusals, thread_that_does_not_stop_is_left_alone);
	suite_add_tcase(suite, refusals);
	tcase_add_test(others, only_one_thread_of_a_thousand_is_stopped);
	suite_add_tcase(suite, others);
	return suite;
}
