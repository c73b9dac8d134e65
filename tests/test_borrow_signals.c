// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Signals and job control while a thread is borrowed: nothing is lost, nothing
 * is delivered that is ours, no disposition changes.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/borrow_code.h"
#include "tests/borrow_fixture.h"
#include "tests/tests.h"

#define STACK_SIZE 65536u

/* Words of the board. */
enum { HANDLED, VALUE, CODE, TICKS, COUNTED };

/* volatile: library calls do not run handlers, the compiler thinks. */
static struct board *volatile handler_board;

static void record(int signal, siginfo_t *info, void *context)
{
	handler_board->word[VALUE] += (uint64_t)info->si_value.sival_int;
	handler_board->word[CODE] = (uint64_t)info->si_code;
	handler_board->word[HANDLED]++;
}

static void tick(int signal)
{
	handler_board->word[TICKS]++;
}

static void handle(int signal)
{
	struct sigaction action = {.sa_sigaction = record, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigaction(signal, &action, NULL);
}

static void spin(struct board *board)
{
	board->ready = 1;
	for (;;)
		board->rounds++;
}

/* Handlers for what the tests send, and a profiler's timer at 1 kHz. */
static void spin_with_handlers(struct board *board)
{
	const struct itimerval timer = {
		.it_interval.tv_usec = 1000,
		.it_value.tv_usec = 1000,
	};

	handler_board = board;
	handle(SIGRTMIN);
	handle(SIGSEGV);
	handle(SIGTRAP);
	signal(SIGPROF, tick);
	setitimer(ITIMER_PROF, &timer, NULL);
	spin(board);
}

static void send(const struct victim *victim, int signal, int value)
{
	const union sigval payload = {.sival_int = value};

	ck_assert_int_eq(sigqueue(victim->pid, signal, payload), 0);
}

START_TEST(thousand_queued_signals_all_arrive)
{
	uint64_t sum = 0, ticks;
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, spin_with_handlers);
	for (int i = 0; i < 200; i++) {
		borrow = victim_borrow(&victim);
		for (int k = 0; k < 5; k++) {
			int value = i * 5 + k;

			send(&victim, SIGRTMIN, value);
			sum += (uint64_t)value;
			borrow_call_getpid(borrow, &victim, 1);
		}
		victim_return(borrow);
	}
	ck_assert(wait_for(&victim.board->word[HANDLED], 1000));
	ck_assert_uint_eq(victim.board->word[HANDLED], 1000);
	ck_assert_uint_eq(victim.board->word[VALUE], sum);
	ck_assert_int_eq((int)victim.board->word[CODE], SI_QUEUE);
	/* The timer goes on, too. */
	ticks = victim.board->word[TICKS];
	ck_assert(wait_for(&victim.board->word[TICKS], ticks + 3));
	victim_stop(&victim);
}
END_TEST

START_TEST(changes_are_made_under_signals)
{
	volatile uint64_t *word;
	struct victim victim;

	victim_start(&victim, spin_with_handlers);
	word = &victim.board->word[COUNTED];
	for (uint64_t i = 0; i < 50; i++) {
		struct borrow *borrow = victim_borrow(&victim);

		for (uint64_t k = 1; k <= 10; k++) {
			send(&victim, k % 3 ? SIGRTMIN : SIGTRAP, 1);
			*word = k;
			assert_ok(borrow_change(borrow, code_change(), (uint64_t)word, k, ~k));
			ck_assert_uint_eq(*word, ~k);
			assert_ok(borrow_change(borrow, code_change(), (uint64_t)word, k, 1));
			ck_assert_uint_eq(*word, ~k);
		}
		victim_return(borrow);
	}
	/* All queued ones, and at least one of those that do not queue. */
	ck_assert(wait_for(&victim.board->word[HANDLED], 50 * 7 + 1));
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(change_of_what_is_not_there_is_a_fault)
{
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, spin_with_handlers);
	borrow = victim_borrow(&victim);
	assert_fails(borrow_change(borrow, code_change(), 0x1000, 0, 1), ERROR_FAULT);
	borrow_call_getpid(borrow, &victim, 1);
	victim_return(borrow);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(signals_during_a_run_arrive_after_it)
{
	struct victim victim;
	struct borrow *borrow;
	uint64_t stack;
	bool stopped;

	victim_start(&victim, spin_with_handlers);
	borrow = victim_borrow(&victim);
	stack = borrow_map(borrow, STACK_SIZE);
	victim_return(borrow);
	for (int i = 0; i < 20; i++) {
		uint64_t handled = victim.board->word[HANDLED];

		borrow = victim_borrow(&victim);
		victim.board->word[COUNTED] = 0;
		assert_ok(borrow_run(borrow, code_count(), stack + STACK_SIZE,
				     (uint64_t)&victim.board->word[COUNTED]));
		ck_assert(wait_for(&victim.board->word[COUNTED], 100));
		send(&victim, SIGRTMIN, 1);
		assert_ok(borrow_wait(borrow, 5, &stopped));
		ck_assert(!stopped);
		ck_assert_uint_eq(victim.board->word[HANDLED], handled);
		victim_return(borrow);
		ck_assert(wait_for(&victim.board->word[HANDLED], handled + 1));
	}
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

/*
 * SIGSEGV is not blocked while code of ours runs; one that is sent must come
 * late, once, and with what it carried.
 */
START_TEST(sent_segv_during_a_run_is_kept_with_its_value)
{
	struct victim victim;
	struct borrow *borrow;
	uint64_t counted, stack;
	bool stopped;

	victim_start(&victim, spin_with_handlers);
	borrow = victim_borrow(&victim);
	stack = borrow_map(borrow, STACK_SIZE);
	victim.board->word[COUNTED] = 0;
	assert_ok(borrow_run(borrow, code_count(), stack + STACK_SIZE,
			     (uint64_t)&victim.board->word[COUNTED]));
	ck_assert(wait_for(&victim.board->word[COUNTED], 100));
	send(&victim, SIGSEGV, 4711);
	assert_ok(borrow_wait(borrow, 20, &stopped));
	ck_assert(!stopped);
	/* It still runs. */
	counted = victim.board->word[COUNTED];
	ck_assert(wait_for(&victim.board->word[COUNTED], counted + 100));
	assert_ok(borrow_stop_again(borrow, 1000));
	borrow_call_getpid(borrow, &victim, 3);
	ck_assert_uint_eq(victim.board->word[HANDLED], 0);
	victim_return(borrow);
	ck_assert(wait_for(&victim.board->word[HANDLED], 1));
	wait_ms(10);
	ck_assert_uint_eq(victim.board->word[HANDLED], 1);
	ck_assert_uint_eq(victim.board->word[VALUE], 4711);
	ck_assert_int_eq((int)victim.board->word[CODE], SI_QUEUE);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(sent_segv_between_calls_is_kept_with_its_value)
{
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, spin_with_handlers);
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, 1);
	send(&victim, SIGSEGV, 815);
	borrow_call_getpid(borrow, &victim, 2);
	ck_assert_uint_eq(victim.board->word[HANDLED], 0);
	victim_return(borrow);
	ck_assert(wait_for(&victim.board->word[HANDLED], 1));
	ck_assert_uint_eq(victim.board->word[VALUE], 815);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

static void spin_with_blocked_segv(struct board *board)
{
	sigset_t set;

	handler_board = board;
	handle(SIGSEGV);
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	sigprocmask(SIG_BLOCK, &set, NULL);
	board->ready = 1;
	while (!board->word[COUNTED])
		board->rounds++;
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	for (;;)
		board->rounds++;
}

START_TEST(signal_that_the_program_blocks_stays_pending)
{
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, spin_with_blocked_segv);
	send(&victim, SIGSEGV, 1234);
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, 3);
	victim_return(borrow);
	wait_ms(20);
	ck_assert_uint_eq(victim.board->word[HANDLED], 0);
	victim.board->word[COUNTED] = 1;
	ck_assert(wait_for(&victim.board->word[HANDLED], 1));
	ck_assert_uint_eq(victim.board->word[VALUE], 1234);
	victim_stop(&victim);
}
END_TEST

/* ---- dispositions */

static void trap_handled(struct board *board)
{
	signal(SIGTRAP, tick);
	spin(board);
}

static void trap_blocked(struct board *board)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTRAP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	trap_handled(board);
}

static void trap_ignored(struct board *board)
{
	signal(SIGTRAP, SIG_IGN);
	spin(board);
}

START_TEST(dispositions_and_mask_stay)
{
	static victim_main *const mains[] = {trap_handled, trap_blocked, trap_ignored};
	static const char *const keys[] = {"SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"};
	char before[5][32], after[32];
	struct victim victim;
	struct borrow *borrow;
	uint64_t stack;

	victim_start(&victim, mains[_i]);
	for (int i = 0; i < 5; i++)
		status_line(victim.pid, victim.pid, keys[i], before[i], sizeof(before[i]));
	for (int i = 0; i < 50; i++) {
		borrow = victim_borrow(&victim);
		stack = borrow_map(borrow, STACK_SIZE);
		victim.board->word[COUNTED] = 0;
		assert_ok(borrow_run(borrow, code_count(), stack + STACK_SIZE,
				     (uint64_t)&victim.board->word[COUNTED]));
		ck_assert(wait_for(&victim.board->word[COUNTED], 10));
		victim_return(borrow);
	}
	for (int i = 0; i < 5; i++) {
		status_line(victim.pid, victim.pid, keys[i], after, sizeof(after));
		ck_assert_str_eq(after, before[i]);
	}
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

/* ---- job control */

/* Within 5 s: how soon depends on who else wants the CPU. */
static void expect_stopped(const struct victim *victim)
{
	char state[32] = "";

	for (int i = 0; i < 5000 && state[0] != 'T'; i++) {
		wait_ms(1);
		status_line(victim->pid, victim->pid, "State", state, sizeof(state));
	}
	ck_assert_int_eq(state[0], 'T');
}

START_TEST(stopped_process_stays_stopped)
{
	struct victim victim;
	struct borrow *borrow;
	struct borrow_stats stats;
	uint64_t stack;

	victim_start(&victim, spin);
	kill(victim.pid, SIGSTOP);
	expect_stopped(&victim);
	borrow = victim_borrow(&victim);
	ck_assert(borrow_is_group_stopped(borrow));
	borrow_call_getpid(borrow, &victim, 5);
	if (_i) {
		stack = borrow_map(borrow, STACK_SIZE);
		assert_ok(borrow_run(borrow, code_count(), stack + STACK_SIZE,
				     (uint64_t)&victim.board->word[COUNTED]));
		ck_assert(wait_for(&victim.board->word[COUNTED], 100));
		assert_ok(borrow_stop_again(borrow, 1000));
		borrow_call_getpid(borrow, &victim, 1);
	}
	stats = victim_return(borrow);
	ck_assert(stats.group_stopped);
	expect_stopped(&victim);
	kill(victim.pid, SIGCONT);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

START_TEST(stop_during_the_borrow_takes_effect)
{
	struct victim victim;
	struct borrow *borrow;
	uint64_t stack;
	bool stopped;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	stack = borrow_map(borrow, STACK_SIZE);
	if (_i == 0) {
		kill(victim.pid, SIGSTOP);
		borrow_call_getpid(borrow, &victim, 5);
	} else if (_i == 1) {
		assert_ok(borrow_run(borrow, code_count(), stack + STACK_SIZE,
				     (uint64_t)&victim.board->word[COUNTED]));
		kill(victim.pid, SIGSTOP);
		assert_ok(borrow_wait(borrow, 20, &stopped));
		ck_assert(!stopped);
		victim.board->word[COUNTED] = 0;
		ck_assert(wait_for(&victim.board->word[COUNTED], 100));
	} else {
		borrow_call_getpid(borrow, &victim, 1);
		kill(victim.pid, SIGSTOP);
	}
	victim_return(borrow);
	expect_stopped(&victim);
	kill(victim.pid, SIGCONT);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

static pid_t stop_and_continue(pid_t pid)
{
	pid_t child = fork();

	if (child != 0)
		return child;
	die_with_parent();
	for (;;) {
		kill(pid, SIGSTOP);
		usleep(500);
		kill(pid, SIGCONT);
		usleep(500);
	}
}

START_TEST(hundred_borrows_under_job_control)
{
	struct victim victim;
	struct borrow *borrow;
	uint64_t stack;
	pid_t child;
	bool stopped;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	stack = borrow_map(borrow, STACK_SIZE);
	victim_return(borrow);
	child = stop_and_continue(victim.pid);
	for (int i = 0; i < 100; i++) {
		borrow = victim_borrow(&victim);
		borrow_call_getpid(borrow, &victim, 10);
		assert_ok(borrow_run(borrow, code_count(), stack + STACK_SIZE,
				     (uint64_t)&victim.board->word[COUNTED]));
		for (int k = 0; k < 5; k++) {
			assert_ok(borrow_wait(borrow, 1, &stopped));
			ck_assert(!stopped);
		}
		assert_ok(borrow_stop_again(borrow, 5000));
		borrow_call_getpid(borrow, &victim, 2);
		victim_return(borrow);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	kill(victim.pid, SIGCONT);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

Suite *borrow_signals_suite(void)
{
	Suite *suite = suite_create("borrow_signals");
	TCase *signals = tcase_create("signals");
	TCase *jobs = tcase_create("job control");

	tcase_set_timeout(signals, TIMEOUT_S);
	tcase_set_timeout(jobs, TIMEOUT_S);
	tcase_add_test(signals, thousand_queued_signals_all_arrive);
	tcase_add_test(signals, changes_are_made_under_signals);
	tcase_add_test(signals, change_of_what_is_not_there_is_a_fault);
	tcase_add_test(signals, signals_during_a_run_arrive_after_it);
	tcase_add_test(signals, sent_segv_during_a_run_is_kept_with_its_value);
	tcase_add_test(signals, sent_segv_between_calls_is_kept_with_its_value);
	tcase_add_test(signals, signal_that_the_program_blocks_stays_pending);
	tcase_add_loop_test(signals, dispositions_and_mask_stay, 0, 3);
	suite_add_tcase(suite, signals);
	tcase_add_loop_test(jobs, stopped_process_stays_stopped, 0, 2);
	tcase_add_loop_test(jobs, stop_during_the_borrow_takes_effect, 0, 3);
	tcase_add_test(jobs, hundred_borrows_under_job_control);
	suite_add_tcase(suite, jobs);
	return suite;
}
