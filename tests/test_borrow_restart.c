// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * What a thread's blocking system call sees of a borrow: nothing. 25 calls
 * that wait in all the ways that the kernel has of being interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/blocking_calls.h"
#include "tests/borrow_fixture.h"
#include "tests/tests.h"

#define BORROW_AT 300
#define WAKE_AT	  900
/* Later it may have finished. */
#define LAST_BORROW_AT 800
/* Busy machines are late, never early. Less than what tells the kinds apart. */
#define LATE_MS	   200
#define LATE_TRIES 10
#define EARLY_MS   5

/* Words of the board. */
enum { RESULT, ERRNO, ELAPSED_US, FINISHED, DONE_WAITING, ASKED };

#define SIGNALS 500u

struct waiter {
	struct victim victim;
	int pipe[2];
	double started_ms;
	double borrowed_ms; /* the last time, after the start */
};

/* volatile: library calls do not run handlers, the compiler thinks. */
static struct board *volatile waiter_board;
static const struct blocking_call *waiter_call;

static void wait_and_report(struct board *board)
{
	double start = now_ms();
	long result;

	board->ready = 1;
	errno = 0;
	result = waiter_call->call(board);
	board->word[ERRNO] = result < 0 ? (uint64_t)errno : 0;
	board->word[RESULT] = (uint64_t)result;
	board->word[ELAPSED_US] = (uint64_t)((now_ms() - start) * 1e3);
	__atomic_store_n(&board->word[FINISHED], 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

static void waiter_start(struct waiter *waiter, const struct blocking_call *call)
{
	struct board *board = board_create();

	ck_assert_int_eq(pipe(waiter->pipe), 0);
	board->word[CALL_PIPE_READ] = (uint64_t)waiter->pipe[0];
	board->word[CALL_PIPE_WRITE] = (uint64_t)waiter->pipe[1];
	waiter_call = call;
	victim_start_on(&waiter->victim, wait_and_report, board);
	waiter->started_ms = now_ms();
}

static void waiter_borrow(struct waiter *waiter, unsigned int syscalls)
{
	struct borrow *borrow = victim_borrow(&waiter->victim);

	/* On a busy machine the call may have been over before the thread stopped. */
	if (!__atomic_load_n(&waiter->victim.board->word[FINISHED], __ATOMIC_ACQUIRE))
		waiter->borrowed_ms = now_ms() - waiter->started_ms;
	borrow_call_getpid(borrow, &waiter->victim, syscalls);
	victim_return(borrow);
}

static void waiter_wake(struct waiter *waiter)
{
	char path[64];

	/* Opens it first, which is what inotify waits for. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", waiter->pipe[1]);
	close(open(path, O_WRONLY | O_CLOEXEC));
	ck_assert_int_eq(write(waiter->pipe[1], "x", 1), 1);
}

/* Returns by how many milliseconds the call took longer than it should. */
static double waiter_verify(struct waiter *waiter, const struct blocking_call *call)
{
	struct board *board = waiter->victim.board;
	double elapsed, expected = CALL_WAIT_MS;

	ck_assert_msg(wait_for(&board->word[FINISHED], 1), "%s hangs", call->name);
	if ((long)board->word[RESULT] == CALL_NOT_AVAILABLE)
		return 0;
	ck_assert_msg((long)board->word[RESULT] == call->result &&
			      (int)board->word[ERRNO] == call->errnum,
		      "%s returned %ld, errno %d; not %ld, errno %d", call->name,
		      (long)board->word[RESULT], (int)board->word[ERRNO], call->result,
		      call->errnum);
	elapsed = (double)board->word[ELAPSED_US] / 1e3;
	if (call->duration == CALL_ANEW)
		expected += waiter->borrowed_ms;
	if (call->duration == CALL_WOKEN)
		return 0;
	ck_assert_msg(elapsed > expected - EARLY_MS, "%s took only %.0f of %.0f ms", call->name,
		      elapsed, expected);
	return elapsed - expected;
}

static void waiter_stop(struct waiter *waiter)
{
	victim_stop(&waiter->victim);
	close(waiter->pipe[0]);
	close(waiter->pipe[1]);
}

/*
 * All calls at the same time, each with @borrows borrows of @syscalls calls.
 * Returns by how much the latest was late.
 */
static double borrow_from_all(unsigned int borrows, unsigned int syscalls)
{
	struct waiter waiters[BLOCKING_CALLS] = {0};
	double latest_ms = 0;

	for (size_t i = 0; i < BLOCKING_CALLS; i++)
		waiter_start(&waiters[i], &blocking_calls[i]);
	wait_ms(BORROW_AT);
	for (unsigned int round = 0; round < borrows; round++) {
		for (size_t i = 0; i < BLOCKING_CALLS; i++) {
			if (now_ms() - waiters[i].started_ms < LAST_BORROW_AT)
				waiter_borrow(&waiters[i], syscalls);
		}
	}
	while (now_ms() < waiters[BLOCKING_CALLS - 1].started_ms + WAKE_AT)
		wait_ms(1);
	for (size_t i = 0; i < BLOCKING_CALLS; i++) {
		if (blocking_calls[i].duration == CALL_WOKEN)
			waiter_wake(&waiters[i]);
	}
	for (size_t i = 0; i < BLOCKING_CALLS; i++)
		latest_ms = fmax(latest_ms, waiter_verify(&waiters[i], &blocking_calls[i]));
	for (size_t i = 0; i < BLOCKING_CALLS; i++)
		waiter_stop(&waiters[i]);
	return latest_ms;
}

/* A busy machine is late now and then; a call that waits anew is late each time. */
static void borrow_in_time(unsigned int syscalls)
{
	double late_ms = LATE_MS;

	for (int i = 0; i < LATE_TRIES && late_ms >= LATE_MS; i++)
		late_ms = borrow_from_all(1, syscalls);
	ck_assert_msg(late_ms < LATE_MS, "%.0f ms late", late_ms);
}

START_TEST(blocked_calls_do_not_notice_a_mere_stop)
{
	borrow_in_time(0);
}
END_TEST

START_TEST(blocked_calls_do_not_notice_ten_calls)
{
	borrow_in_time(10);
}
END_TEST

START_TEST(blocked_calls_do_not_notice_forty_borrows)
{
	borrow_from_all(40, 10);
}
END_TEST

/* ---- EINTR that the program must see */

static void count_signal(int signal)
{
	waiter_board->word[DONE_WAITING]++;
}

/* Waits for ever; only a signal ends it. */
static void wait_for_signal(struct board *board)
{
	struct epoll_event event;
	int fd = epoll_create1(0);
	long result;

	waiter_board = board;
	signal(SIGUSR1, count_signal);
	board->ready = 1;
	result = syscall(SYS_epoll_wait, fd, &event, 1, -1);
	board->word[RESULT] = (uint64_t)result;
	board->word[ERRNO] = (uint64_t)errno;
	board->word[FINISHED] = 1;
	for (;;)
		pause();
}

START_TEST(signal_during_the_borrow_ends_epoll_wait)
{
	struct victim victim;
	struct borrow *borrow;
	struct borrow_stats stats;

	victim_start(&victim, wait_for_signal);
	victim_wait_in(&victim, victim.pid, SYS_epoll_wait);
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, (unsigned int)_i);
	kill(victim.pid, SIGUSR1);
	stats = victim_return(borrow);
	ck_assert(stats.taken_back);
	ck_assert(wait_for(&victim.board->word[FINISHED], 1));
	ck_assert_int_eq((long)victim.board->word[RESULT], -1);
	ck_assert_int_eq((int)victim.board->word[ERRNO], EINTR);
	ck_assert_uint_eq(victim.board->word[DONE_WAITING], 1);
	victim_stop(&victim);
}
END_TEST

START_TEST(ignored_signal_during_the_borrow_does_not)
{
	struct victim victim;
	struct borrow *borrow;
	struct borrow_stats stats;

	victim_start(&victim, wait_for_signal);
	victim_wait_in(&victim, victim.pid, SYS_epoll_wait);
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, (unsigned int)_i);
	/* Queued only because T is traced: its default is to be ignored. */
	kill(victim.pid, SIGWINCH);
	stats = victim_return(borrow);
	ck_assert(stats.taken_back);
	wait_ms(50);
	ck_assert_uint_eq(victim.board->word[FINISHED], 0);
	victim_stop(&victim);
}
END_TEST

/* SIGUSR1 is blocked but in the call itself. */
static void wait_with_mask(struct board *board, bool with_epoll)
{
	struct epoll_event event;
	int fd = epoll_create1(0);
	sigset_t blocked, none;
	long result;

	waiter_board = board;
	signal(SIGUSR1, count_signal);
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	board->ready = 1;
	if (with_epoll)
		result = epoll_pwait(fd, &event, 1, -1, &none);
	else
		result = ppoll(NULL, 0, NULL, &none);
	board->word[RESULT] = (uint64_t)result;
	board->word[ERRNO] = (uint64_t)errno;
	sigprocmask(SIG_BLOCK, NULL, &none);
	board->bad = (uint64_t)(sigismember(&none, SIGUSR1) != 1);
	board->word[FINISHED] = 1;
	for (;;)
		pause();
}

static void wait_in_epoll_pwait(struct board *board)
{
	wait_with_mask(board, true);
}

static void wait_in_ppoll(struct board *board)
{
	wait_with_mask(board, false);
}

static void start_with_mask(struct victim *victim, bool with_epoll)
{
	victim_start(victim, with_epoll ? wait_in_epoll_pwait : wait_in_ppoll);
	victim_wait_in(victim, victim->pid, with_epoll ? SYS_epoll_pwait : SYS_ppoll);
}

START_TEST(signal_that_only_the_call_lets_through_ends_it)
{
	struct victim victim;
	struct borrow *borrow;

	start_with_mask(&victim, _i & 1);
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, (unsigned int)_i / 2);
	kill(victim.pid, SIGUSR1);
	victim_return(borrow);
	ck_assert(wait_for(&victim.board->word[FINISHED], 1));
	ck_assert_int_eq((long)victim.board->word[RESULT], -1);
	ck_assert_int_eq((int)victim.board->word[ERRNO], EINTR);
	ck_assert_uint_eq(victim.board->word[DONE_WAITING], 1);
	ck_assert_uint_eq(victim.board->bad, 0);
	victim_stop(&victim);
}
END_TEST

START_TEST(borrow_before_the_signal_keeps_the_calls_mask)
{
	struct victim victim;
	struct borrow *borrow;

	start_with_mask(&victim, _i & 1);
	for (int i = 0; i < 10; i++) {
		borrow = victim_borrow(&victim);
		borrow_call_getpid(borrow, &victim, (unsigned int)_i / 2);
		victim_return(borrow);
	}
	wait_ms(20);
	ck_assert_uint_eq(victim.board->word[FINISHED], 0);
	kill(victim.pid, SIGUSR1);
	ck_assert(wait_for(&victim.board->word[FINISHED], 1));
	ck_assert_uint_eq(victim.board->word[DONE_WAITING], 1);
	ck_assert_uint_eq(victim.board->bad, 0);
	victim_stop(&victim);
}
END_TEST

/* Counts the calls that a signal has ended. */
static void loop_until_signal(struct board *board)
{
	struct epoll_event event;
	int fd = epoll_create1(0);

	waiter_board = board;
	signal(SIGUSR1, count_signal);
	board->ready = 1;
	for (;;)
		if (syscall(SYS_epoll_wait, fd, &event, 1, -1) == -1 && errno == EINTR)
			board->word[FINISHED]++;
}

/* Sends one signal soon after each time it is asked to: a little later each time. */
static pid_t signaller_start(const struct victim *victim)
{
	const volatile uint64_t *asked = &victim->board->word[ASKED];
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	die_with_parent();
	for (uint64_t sent = 0; sent < SIGNALS; sent++) {
		while (*asked == sent)
			;
		for (volatile uint64_t spin = 0; spin < sent * 300; spin++)
			;
		kill(victim->pid, SIGUSR1);
	}
	_exit(0);
}

/* Whenever it comes, it ends a call. */
START_TEST(signal_at_any_time_of_the_borrow_ends_epoll_wait)
{
	struct victim victim;
	struct borrow *borrow;
	pid_t signaller;

	victim_start(&victim, loop_until_signal);
	signaller = signaller_start(&victim);
	for (uint64_t i = 1; i <= SIGNALS; i++) {
		victim_wait_in(&victim, victim.pid, SYS_epoll_wait);
		borrow = victim_borrow(&victim);
		borrow_call_getpid(borrow, &victim, (unsigned int)i % 2);
		victim.board->word[ASKED] = i;
		victim_return(borrow);
		ck_assert(wait_for(&victim.board->word[DONE_WAITING], i));
		ck_assert_msg(wait_for(&victim.board->word[FINISHED], i),
			      "signal %lu was handled, but ended no call", (unsigned long)i);
	}
	ck_assert_int_eq(waitpid(signaller, NULL, 0), signaller);
	victim_stop(&victim);
}
END_TEST

/* ---- a storm of borrows */

static void loop_in_epoll_wait(struct board *board)
{
	struct epoll_event event;
	int fd = epoll_create1(0);

	board->ready = 1;
	for (;;) {
		if (syscall(SYS_epoll_wait, fd, &event, 1, 1) != 0)
			board->bad++;
		board->rounds++;
	}
}

START_TEST(thousand_borrows_give_no_eintr)
{
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, loop_in_epoll_wait);
	for (unsigned int i = 0; i < 1000; i++) {
		borrow = victim_borrow(&victim);
		borrow_call_getpid(borrow, &victim, i % 4);
		victim_return(borrow);
	}
	/* bad counts the EINTRs */
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

Suite *borrow_restart_suite(void)
{
	Suite *suite = suite_create("borrow_restart");
	TCase *matrix = tcase_create("matrix");
	TCase *eintr = tcase_create("eintr");
	TCase *storm = tcase_create("storm");

	tcase_set_timeout(matrix, TIMEOUT_S);
	tcase_set_timeout(eintr, TIMEOUT_S);
	tcase_set_timeout(storm, TIMEOUT_S);
	tcase_add_test(matrix, blocked_calls_do_not_notice_a_mere_stop);
	tcase_add_test(matrix, blocked_calls_do_not_notice_ten_calls);
	tcase_add_test(matrix, blocked_calls_do_not_notice_forty_borrows);
	suite_add_tcase(suite, matrix);
	tcase_add_loop_test(eintr, signal_during_the_borrow_ends_epoll_wait, 0, 2);
	tcase_add_loop_test(eintr, ignored_signal_during_the_borrow_does_not, 0, 2);
	tcase_add_loop_test(eintr, signal_that_only_the_call_lets_through_ends_it, 0, 4);
	tcase_add_test(eintr, signal_at_any_time_of_the_borrow_ends_epoll_wait);
	tcase_add_loop_test(eintr, borrow_before_the_signal_keeps_the_calls_mask, 0, 4);
	suite_add_tcase(suite, eintr);
	tcase_add_test(storm, thousand_borrows_give_no_eintr);
	suite_add_tcase(suite, storm);
	return suite;
}
