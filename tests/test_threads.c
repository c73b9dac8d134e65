// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/threads.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "injector/borrow.h"
#include "resolver/cleanup.h"
#include "tests/borrow_fixture.h"
#include "tests/tests.h"

/* Words of the board. */
enum { TID_BUSY, TID_IDLE, PIPE_READ, RING, GO };

static void *be_busy(void *argument)
{
	struct board *board = argument;

	board->word[TID_BUSY] = (uint64_t)syscall(SYS_gettid);
	for (;;)
		board->rounds++;
	return NULL;
}

static void *be_idle(void *argument)
{
	struct board *board = argument;
	char byte;

	board->word[TID_IDLE] = (uint64_t)syscall(SYS_gettid);
	for (;;)
		syscall(SYS_read, (int)board->word[PIPE_READ], &byte, 1);
	return NULL;
}

/* Three threads; the busy one has a name that is hard to parse. */
static void three_threads(struct board *board)
{
	pthread_t busy, idle;
	int fds[2];

	if (pipe(fds) != 0)
		_exit(1);
	board->word[PIPE_READ] = (uint64_t)fds[0];
	pthread_create(&idle, NULL, be_idle, board);
	pthread_create(&busy, NULL, be_busy, board);
	pthread_setname_np(busy, ") R 1 (2\n3");
	while (!board->word[TID_BUSY] || !board->word[TID_IDLE])
		usleep(1000);
	board->ready = 1;
	for (;;)
		pause();
}

/* And a child of the main thread. */
static void three_threads_and_a_child(struct board *board)
{
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	three_threads(board);
}

static const struct thread *find(const struct threads *threads, uint64_t tid)
{
	for (size_t i = 0; i < threads->count; i++) {
		if (threads->thread[i].tid == (pid_t)tid)
			return &threads->thread[i];
	}
	return NULL;
}

/* A thread may wait long for a processor: read when all do what they are there for. */
static void read_three_threads(const struct victim *victim, struct threads *ret)
{
	victim_wait_in(victim, victim->pid, SYS_pause);
	victim_wait_in(victim, (pid_t)victim->board->word[TID_IDLE], SYS_read);
	for (int left = 1000; left > 0; left--) {
		assert_ok(threads_read(victim->target, ret));
		if (find(ret, victim->board->word[TID_BUSY])->cpu_time > 1)
			return;
		threads_deinit(ret);
		wait_ms(10);
	}
	ck_abort_msg("the busy thread of %d never ran", victim->pid);
}

START_TEST(lists_threads_with_state_name_and_time)
{
	const struct thread *main, *busy, *idle;
	struct threads threads;
	struct victim victim;

	victim_start(&victim, three_threads);
	read_three_threads(&victim, &threads);
	ck_assert_uint_eq(threads.count, 3);
	main = find(&threads, (uint64_t)victim.pid);
	busy = find(&threads, victim.board->word[TID_BUSY]);
	idle = find(&threads, victim.board->word[TID_IDLE]);
	ck_assert(main && busy && idle);
	ck_assert_int_eq(main->state, 'S');
	ck_assert_int_eq(busy->state, 'R');
	ck_assert_int_eq(idle->state, 'S');
	ck_assert_str_eq(busy->comm, ") R 1 (2\n3");
	ck_assert_uint_gt(busy->cpu_time, idle->cpu_time);
	ck_assert_int_ge(busy->cpu, 0);
	ck_assert_int_lt(busy->cpu, sysconf(_SC_NPROCESSORS_CONF));
	ck_assert(!busy->kernel);
	for (size_t i = 1; i < threads.count; i++)
		ck_assert_int_lt(threads.thread[i - 1].tid, threads.thread[i].tid);
	threads_deinit(&threads);
	ck_assert_uint_eq(threads.count, 0);
	victim_stop(&victim);
}
END_TEST

START_TEST(knows_what_a_thread_waits_for)
{
	struct thread_syscall call;
	struct victim victim;

	victim_start(&victim, three_threads);
	victim_wait_in(&victim, (pid_t)victim.board->word[TID_IDLE], SYS_read);
	assert_ok(thread_read_syscall(victim.target, (pid_t)victim.board->word[TID_IDLE], &call));
	ck_assert(call.blocked);
	ck_assert_int_eq(call.number, SYS_read);
	ck_assert_uint_eq(call.args[0], victim.board->word[PIPE_READ]);
	ck_assert_uint_eq(call.args[2], 1);
	ck_assert_uint_ne(call.sp, 0);
	ck_assert_uint_ne(call.pc, 0);
	assert_ok(thread_read_syscall(victim.target, (pid_t)victim.board->word[TID_BUSY], &call));
	ck_assert(!call.blocked);
	ck_assert_int_eq(call.number, -1);
	victim_stop(&victim);
}
END_TEST

START_TEST(reads_tracer_filter_and_signals)
{
	struct thread_status status;
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, three_threads);
	assert_ok(thread_read_status(victim.target, victim.pid, &status));
	ck_assert_int_eq(status.tracer, 0);
	ck_assert_uint_eq(status.seccomp, 0);
	ck_assert_uint_eq(status.pending, 0);
	borrow = victim_borrow(&victim);
	/* To the stopped thread alone: another one would take it. */
	syscall(SYS_tgkill, victim.pid, victim.pid, SIGUSR1);
	assert_ok(thread_read_status(victim.target, victim.pid, &status));
	ck_assert_int_eq(status.tracer, getpid());
	ck_assert_uint_eq(status.pending, UINT64_C(1) << (SIGUSR1 - 1));
	error_free(borrow_end(borrow, NULL));
	victim_stop(&victim);
}
END_TEST

/* Of three threads; the idle one comes last. */
static void expect_order(void (*three)(struct board *), bool main_first)
{
	CLEANUP(freep) pid_t *order = NULL;
	struct threads threads;
	struct victim victim;
	size_t count;

	victim_start(&victim, three);
	read_three_threads(&victim, &threads);
	assert_ok(threads_rank(victim.target, &threads, &order, &count));
	ck_assert_uint_eq(count, 3);
	ck_assert_int_eq(order[!main_first], victim.pid);
	ck_assert_int_eq(order[main_first], (pid_t)victim.board->word[TID_BUSY]);
	ck_assert_int_eq(order[2], (pid_t)victim.board->word[TID_IDLE]);
	threads_deinit(&threads);
	victim_stop(&victim);
}

START_TEST(main_thread_first_then_by_time_idle_last)
{
	expect_order(three_threads, true);
}
END_TEST

START_TEST(parents_after_those_that_have_run)
{
	expect_order(three_threads_and_a_child, false);
}
END_TEST

START_TEST(order_of_many_kinds)
{
	struct thread list[] = {
		{.tid = 1, .state = 'D', .cpu_time = 1000},
		{.tid = 2, .state = 'S', .cpu_time = 0},
		{.tid = 3, .state = 'R', .cpu_time = 50},
		{.tid = 4, .state = 'S', .cpu_time = 900, .kernel = true},
		{.tid = 5, .state = 't', .cpu_time = 5000},
		{.tid = 6, .state = 'S', .cpu_time = 700},
		{.tid = 7, .state = 'Z', .cpu_time = 800},
		{.tid = 8, .state = 'S', .cpu_time = 800, .flags = 4 /* PF_EXITING */},
		{.tid = 9, .state = 'T', .cpu_time = 60},
		{.tid = 10, .state = 'X', .cpu_time = 60},
	};
	static const pid_t expected[] = {6, 9, 3, 2, 5};
	struct threads threads = {.thread = list, .count = sizeof(list) / sizeof(list[0])};
	CLEANUP(freep) pid_t *order = NULL;
	struct victim victim;
	size_t count;

	victim_start(&victim, three_threads);
	assert_ok(threads_rank(victim.target, &threads, &order, &count));
	ck_assert_uint_eq(count, sizeof(expected) / sizeof(expected[0]));
	ck_assert_mem_eq(order, expected, sizeof(expected));
	victim_stop(&victim);
}
END_TEST

START_TEST(nobody_to_ask_is_no_error)
{
	struct thread list[] = {{.tid = 1, .state = 'D'}};
	struct threads threads = {.thread = list, .count = 1};
	pid_t *order = &list[0].tid;
	struct victim victim;
	size_t count = 7;

	victim_start(&victim, three_threads);
	assert_ok(threads_rank(victim.target, &threads, &order, &count));
	ck_assert_ptr_null(order);
	ck_assert_uint_eq(count, 0);
	victim_stop(&victim);
}
END_TEST

START_TEST(ended_process_has_no_threads)
{
	struct thread_syscall call;
	struct threads threads;
	struct thread thread;
	struct victim victim;

	victim_start(&victim, three_threads);
	assert_fails(thread_read(victim.target, 0x7ffffff0, &thread), ERROR_GONE);
	assert_fails(thread_read_syscall(victim.target, 0x7ffffff0, &call), ERROR_GONE);
	kill(victim.pid, SIGKILL);
	waitpid(victim.pid, NULL, 0);
	assert_fails(threads_read(victim.target, &threads), ERROR_GONE);
	victim_stop(&victim);
}
END_TEST

/* ---- threads that must not be borrowed */

static void parent_of_vfork(struct board *board)
{
	pid_t child;

	board->ready = 1;
	child = vfork();
	if (child == 0) {
		while (!board->word[GO])
			;
		_exit(0);
	}
	for (;;)
		board->rounds++;
}

START_TEST(parent_of_vfork_is_not_asked)
{
	CLEANUP(freep) pid_t *order = NULL;
	struct threads threads;
	struct victim victim;
	size_t count;

	victim_start(&victim, parent_of_vfork);
	victim_wait_in(&victim, victim.pid, SYS_vfork);
	assert_ok(threads_read(victim.target, &threads));
	ck_assert_uint_eq(threads.count, 1);
	ck_assert(!thread_may_be_borrowed(&threads.thread[0]));
	assert_ok(threads_rank(victim.target, &threads, &order, &count));
	ck_assert_uint_eq(count, 0);
	victim.board->word[GO] = 1;
	ck_assert(wait_for(&victim.board->rounds, 1));
	threads_deinit(&threads);
	assert_ok(threads_read(victim.target, &threads));
	ck_assert(thread_may_be_borrowed(&threads.thread[0]));
	threads_deinit(&threads);
	victim_stop(&victim);
}
END_TEST

/* A ring with a thread of the kernel that polls it; bad = not available here. */
static void with_io_uring(struct board *board)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SQPOLL,
		.sq_thread_idle = 60000,
	};

	if (syscall(SYS_io_uring_setup, 4, &params) < 0)
		board->bad = 1;
	board->ready = 1;
	for (;;)
		pause();
}

START_TEST(thread_of_io_uring_is_not_asked)
{
	CLEANUP(freep) pid_t *order = NULL;
	struct threads threads;
	struct victim victim;
	size_t count;

	victim_start(&victim, with_io_uring);
	assert_ok(threads_read(victim.target, &threads));
	if (!victim.board->bad) {
		ck_assert_uint_eq(threads.count, 2);
		ck_assert(threads.thread[1].kernel);
		ck_assert(!thread_may_be_borrowed(&threads.thread[1]));
	}
	assert_ok(threads_rank(victim.target, &threads, &order, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_int_eq(order[0], victim.pid);
	threads_deinit(&threads);
	victim_stop(&victim);
}
END_TEST

Suite *threads_suite(void)
{
	Suite *suite = suite_create("threads");
	TCase *reading = tcase_create("reading");
	TCase *choice = tcase_create("choice");

	tcase_set_timeout(reading, TIMEOUT_S);
	tcase_set_timeout(choice, TIMEOUT_S);
	tcase_add_test(reading, lists_threads_with_state_name_and_time);
	tcase_add_test(reading, knows_what_a_thread_waits_for);
	tcase_add_test(reading, reads_tracer_filter_and_signals);
	tcase_add_test(reading, ended_process_has_no_threads);
	suite_add_tcase(suite, reading);
	tcase_add_test(choice, main_thread_first_then_by_time_idle_last);
	tcase_add_test(choice, parents_after_those_that_have_run);
	tcase_add_test(choice, order_of_many_kinds);
	tcase_add_test(choice, nobody_to_ask_is_no_error);
	tcase_add_test(choice, parent_of_vfork_is_not_asked);
	tcase_add_test(choice, thread_of_io_uring_is_not_asked);
	suite_add_tcase(suite, choice);
	return suite;
}
