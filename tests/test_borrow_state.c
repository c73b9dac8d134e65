// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * A thread's processor state and its other secrets under a borrow: registers of
 * all kinds, restartable sequences, seccomp filters, system call dispatch, and
 * the frame with which it restores itself when its tracer dies.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/borrow_code.h"
#include "tests/borrow_fixture.h"
#include "tests/tests.h"

#define STACK_SIZE 65536u
/*
 * Tracers killed in each test of that. To fork a sanitizer's memory takes longer
 * than all that follows.
 */
#if TESTS_ASAN
#define KILLS 25
#else
#define KILLS 100
#endif

/* Words of the board for code run on T. */
enum {
	BOOT_DONE,    /* the code runs */
	BOOT_RESTORE, /* 1 makes it wait on, 2 T restores itself */
	BOOT_SP,      /* for rt_sigreturn */
	TRACER_READY, /* from now on it may be killed */
};

static enum code_vector held;

static void hold_general(struct board *board)
{
	board->ready = 1;
	code_hold_general(&board->rounds);
}

static void hold_vector(struct board *board)
{
	board->ready = 1;
	code_hold_vector(held, &board->rounds);
}

static void spin(struct board *board)
{
	board->ready = 1;
	for (;;)
		board->rounds++;
}

/* ---- registers */

/* Run code that ruins everything, then stop it. */
static void ruin(struct borrow *borrow, const struct victim *victim, uint64_t stack)
{
	volatile uint64_t *done = &victim->board->word[BOOT_DONE];
	bool stopped;

	*done = 0;
	assert_ok(borrow_run(borrow, code_ruin(held), stack + STACK_SIZE, (uint64_t)done));
	while (!*done) {
		assert_ok(borrow_wait(borrow, 1, &stopped));
		ck_assert(!stopped);
	}
	assert_ok(borrow_stop_again(borrow, 5000));
}

/* Calls and runs in turn; every other borrow ends in the middle of a run. */
static void ruin_often(struct victim *victim, unsigned int borrows)
{
	struct borrow *borrow = victim_borrow(victim);
	uint64_t stack = borrow_map(borrow, STACK_SIZE);

	victim_return(borrow);
	for (unsigned int i = 0; i < borrows; i++) {
		borrow = victim_borrow(victim);
		if (i & 1)
			borrow_call_getpid(borrow, victim, 2);
		ruin(borrow, victim, stack);
		if (i & 2)
			borrow_call_getpid(borrow, victim, 2);
		victim_return(borrow);
		ck_assert_uint_eq(victim->board->bad, 0);
	}
	victim_expect_progress(victim);
}

START_TEST(general_registers_survive_a_thousand_borrows)
{
	struct victim victim;

	held = CODE_BASE;
	victim_start(&victim, hold_general);
	borrow_pin(victim.target, victim.pid);
	ruin_often(&victim, 1000);
	victim_stop(&victim);
}
END_TEST

START_TEST(vector_registers_survive_a_thousand_borrows)
{
	struct victim victim;

	held = (enum code_vector)_i;
	if (!code_has_vector(held))
		return;
	victim_start(&victim, hold_vector);
	borrow_pin(victim.target, victim.pid);
	ruin_often(&victim, 1000);
	victim_stop(&victim);
}
END_TEST

START_TEST(registers_are_those_of_the_thread)
{
	const struct borrow_registers *registers;
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, hold_general);
	borrow = victim_borrow(&victim);
	registers = borrow_registers(borrow);
	/* What code_hold_general() holds in the registers with DWARF numbers 3 and 12..15. */
	ck_assert_uint_eq(registers->reg[3], 0x2202);
	ck_assert_uint_eq(registers->reg[12], 0x3a0a);
	ck_assert_uint_eq(registers->reg[15], 0x6d0d);
	ck_assert_uint_eq(registers->fp, 0x5505);
	ck_assert_uint_eq(registers->reg[7], registers->sp);
	ck_assert_int_eq(registers->syscall, -1);
	ck_assert_uint_eq(registers->thread_pointer, (uint64_t)__builtin_thread_pointer());
	victim_return(borrow);
	victim_stop(&victim);
}
END_TEST

/* ---- restartable sequences */

static void hold_sequence(struct board *board)
{
	board->ready = 1;
	if (!code_hold_sequence(&board->rounds))
		board->bad = 1;
	for (;;)
		pause();
}

START_TEST(interrupted_sequence_is_aborted)
{
	volatile uint64_t *aborted;
	unsigned int within = 0;
	struct victim victim;
	struct borrow *borrow;
	struct borrow_stats stats;

	victim_start(&victim, hold_sequence);
	aborted = &victim.board->word[0];
	for (int i = 0; i < 30; i++) {
		uint64_t before, section;

		wait_ms(3);
		borrow = victim_borrow(&victim);
		if (victim.board->bad) {
			victim_return(borrow);
			break;
		}
		before = *aborted;
		assert_ok(borrow_rseq_cs(borrow, &section));
		borrow_call_getpid(borrow, &victim, 2);
		stats = victim_return(borrow);
		if (!stats.rseq_aborted)
			continue;
		within++;
		ck_assert_uint_ne(section, 0);
		ck_assert_msg(wait_for(aborted, before + 1), "the sequence went on");
	}
	ck_assert(within > 0 || victim.board->bad);
	victim_stop(&victim);
}
END_TEST

/* ---- seccomp */

/* Kill the process for memfd_create and for system calls with impossible numbers. */
static void filter_and_spin(struct board *board)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
		_exit(1);
	spin(board);
}

static struct error *call_memfd_create(struct borrow *borrow, uint64_t name, int64_t *result)
{
	const uint64_t args[6] = {name, MFD_CLOEXEC};

	return borrow_syscall(borrow, SYS_memfd_create, args, result);
}

START_TEST(filter_that_kills_is_suspended_for_calls)
{
	static const char name[] = "test";
	struct victim victim;
	struct borrow *borrow;
	int64_t result = 0;

	victim_start(&victim, filter_and_spin);
	borrow = victim_borrow(&victim);
	ck_assert_int_eq(borrow_seccomp(borrow), BORROW_SECCOMP_FILTER);
	if (geteuid() == 0) {
		assert_ok(call_memfd_create(borrow, (uint64_t)name, &result));
		ck_assert_int_ge(result, 0);
	} else {
		assert_fails(call_memfd_create(borrow, (uint64_t)name, &result), ERROR_DENIED);
	}
	victim_return(borrow);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

/* AddressSanitizer makes system calls of its own before functions that do not return. */
__attribute__((no_sanitize("address"))) static void strict_and_spin(struct board *board)
{
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
		_exit(1);
	board->ready = 1;
	for (;;)
		board->rounds++;
}

START_TEST(strict_mode_is_suspended_for_calls)
{
	struct victim victim;
	struct borrow *borrow;

	if (geteuid() != 0)
		return;
	victim_start(&victim, strict_and_spin);
	borrow = victim_borrow(&victim);
	ck_assert_int_eq(borrow_seccomp(borrow), BORROW_SECCOMP_STRICT);
	borrow_call_getpid(borrow, &victim, 3);
	victim_return(borrow);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

/* A process that has a filter itself may not suspend others'. */
START_TEST(filter_that_cannot_be_suspended_is_respected)
{
	struct victim victim;
	struct borrow *borrow;
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = 1, .filter = &allow};
	static const char name[] = "test";
	const uint64_t args[6] = {0};
	int64_t result;

	victim_start(&victim, filter_and_spin);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	ck_assert_int_eq(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
	borrow = victim_borrow(&victim);
	assert_fails(call_memfd_create(borrow, (uint64_t)name, &result), ERROR_DENIED);
	assert_fails(borrow_syscall(borrow, SYS_getpid, args, &result), ERROR_DENIED);
	borrow_allow_filtered(borrow);
	borrow_call_getpid(borrow, &victim, 2);
	victim_return(borrow);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

/* ---- system call user dispatch */

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static struct board *volatile dispatch_board;

static void count_dispatched(int signal)
{
	dispatch_board->word[0]++;
	dispatch_board->word[1] = 0; /* allow system calls, sigreturn too */
}

/* While the selector is 1 each system call of the victim raises SIGSYS. */
static void dispatch_and_spin(struct board *board)
{
	volatile uint8_t *selector = (volatile uint8_t *)&board->word[1];

	dispatch_board = board;
	signal(SIGSYS, count_dispatched);
	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, selector) != 0)
		board->bad = 1;
	*selector = 1;
	board->ready = 1;
	while (!board->word[2])
		board->rounds++;
	getppid();
	spin(board);
}

START_TEST(user_dispatch_is_off_for_calls_and_back_afterwards)
{
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, dispatch_and_spin);
	if (victim.board->bad) {
		victim_stop(&victim);
		return;
	}
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, 3);
	victim_return(borrow);
	ck_assert_uint_eq(victim.board->word[0], 0);
	victim.board->word[2] = 1;
	ck_assert_msg(wait_for(&victim.board->word[0], 1), "dispatch was lost");
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

/* ---- T restores itself */

/*
 * For processes that will be killed: Check's assertions write to a pipe, and a
 * half-written message confuses it.
 */
static void must(struct victim *victim, struct error *err)
{
	if (!err)
		return;
	victim->board->bad = 1000 + error_code(err);
	pause();
}

static uint64_t must_call(struct victim *victim, struct borrow *borrow, long number,
			  const uint64_t args[6])
{
	int64_t result = 0;

	must(victim, borrow_syscall(borrow, number, args, &result));
	return (uint64_t)result;
}

static uint64_t must_map(struct victim *victim, struct borrow *borrow, size_t size)
{
	const uint64_t args[6] = {
		0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0,
	};

	return must_call(victim, borrow, SYS_mmap, args);
}

/* Build the frame, start code that will use it. Returns the borrow, T running. */
static struct borrow *start_self_restore(struct victim *victim)
{
	static uint8_t frame[BORROW_SIGFRAME_SIZE];
	volatile uint64_t *boot = victim->board->word;
	struct borrow *borrow = NULL;
	uint64_t stack, where, sp;
	size_t size;

	must(victim, borrow_begin(victim->target, victim->pid, 5000, &borrow));
	stack = must_map(victim, borrow, STACK_SIZE);
	where = must_map(victim, borrow, sizeof(frame)) + 8;
	boot[BOOT_DONE] = 0;
	boot[BOOT_RESTORE] = 0;
	must(victim, borrow_sigframe(borrow, frame, sizeof(frame) - 8, where, &size, &sp));
	must(victim, target_write(victim->target, where, frame, size));
	boot[BOOT_SP] = sp;
	__atomic_store_n(&boot[TRACER_READY], 1, __ATOMIC_SEQ_CST);
	must(victim,
	     borrow_run(borrow, code_self_restore(held), stack + STACK_SIZE, (uint64_t)boot));
	return borrow;
}

START_TEST(thread_that_restored_itself_can_be_let_go)
{
	struct victim victim;
	struct borrow *borrow;

	held = (enum code_vector)_i;
	if (!code_has_vector(held))
		return;
	victim_start(&victim, hold_vector);
	borrow = start_self_restore(&victim);
	ck_assert(wait_for(&victim.board->word[BOOT_RESTORE], 2));
	assert_ok(borrow_let_go(borrow, NULL));
	victim_expect_progress(&victim);
	/* And it can be borrowed again. */
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, 2);
	victim_return(borrow);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

/* What workers do; they end by being killed. */
static void tracer_that_calls(struct victim *victim)
{
	const uint64_t args[6] = {0};
	struct borrow *borrow = NULL;
	uint64_t frame;

	must(victim, borrow_begin(victim->target, victim->pid, 5000, &borrow));
	frame = must_map(victim, borrow, 4096);
	must(victim, borrow_guard(borrow, frame + 512, BORROW_GUARD_SIZE));
	if (!borrow_is_guarded(borrow))
		victim->board->bad = 2000;
	victim->board->word[TRACER_READY] = 1;
	for (;;)
		must_call(victim, borrow, SYS_getppid, args);
}

static void tracer_that_runs(struct victim *victim)
{
	struct borrow *borrow = start_self_restore(victim);

	while (!victim->board->word[BOOT_DONE])
		;
	must(victim, borrow_stop_again(borrow, 1000));
	if (victim->board->word[BOOT_RESTORE] == 0)
		must(victim, borrow_end(borrow, NULL));
	else
		must(victim, borrow_let_go(borrow, NULL));
	for (;;)
		pause();
}

static void kill_tracer_after(struct victim *victim, void (*tracer_main)(struct victim *), long ns)
{
	struct timespec delay = {.tv_nsec = ns};
	pid_t tracer;

	victim->board->word[TRACER_READY] = 0;
	tracer = fork();
	if (tracer == 0) {
		die_with_parent();
		tracer_main(victim);
	}
	ck_assert(wait_for(&victim->board->word[TRACER_READY], 1));
	clock_nanosleep(CLOCK_MONOTONIC, 0, &delay, NULL);
	kill(tracer, SIGKILL);
	waitpid(tracer, NULL, 0);
}

static void kill_tracers(void (*tracer_main)(struct victim *), victim_main *main)
{
	char before[32], after[32];
	struct victim victim;

	if (!code_has_vector(held))
		return;
	victim_start(&victim, main);
	status_line(victim.pid, victim.pid, "SigBlk", before, sizeof(before));
	srand(1);
	for (int i = 0; i < KILLS; i++) {
		kill_tracer_after(&victim, tracer_main, rand() % 400000);
		victim_expect_progress(&victim);
		status_line(victim.pid, victim.pid, "SigBlk", after, sizeof(after));
		ck_assert_str_eq(after, before);
	}
	victim_stop(&victim);
}

START_TEST(death_during_a_run_leaves_the_thread_intact)
{
	held = (enum code_vector)_i;
	kill_tracers(tracer_that_runs, hold_vector);
}
END_TEST

START_TEST(death_during_guarded_calls_leaves_vectors_intact)
{
	held = (enum code_vector)_i;
	kill_tracers(tracer_that_calls, hold_vector);
}
END_TEST

START_TEST(death_during_guarded_calls_leaves_registers_intact)
{
	held = CODE_BASE;
	kill_tracers(tracer_that_calls, hold_general);
}
END_TEST

static void loop_in_epoll_wait(struct board *board)
{
	struct epoll_event event;
	int fd = epoll_create1(0);

	board->ready = 1;
	for (;;) {
		board->bad += syscall(SYS_epoll_wait, fd, &event, 1, 2) != 0;
		board->rounds++;
	}
}

START_TEST(death_during_guarded_calls_gives_no_error_to_a_blocked_call)
{
	held = CODE_BASE;
	kill_tracers(tracer_that_calls, loop_in_epoll_wait);
}
END_TEST

/* Sleep 400 ms once; a mask and an alternate signal stack are set. */
static void sleep_once(struct board *board)
{
	const struct timespec time = {.tv_nsec = 400000000};
	static uint8_t area[65536];
	stack_t stack = {.ss_sp = area, .ss_size = sizeof(area)}, found;
	sigset_t set;

	sigaltstack(&stack, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	board->ready = 1;
	if (syscall(SYS_nanosleep, &time, NULL) != 0)
		board->bad = 1;
	sigaltstack(NULL, &found);
	if (found.ss_sp != area || found.ss_flags != 0 || found.ss_size != sizeof(area))
		board->bad = 2;
	sigprocmask(SIG_BLOCK, NULL, &set);
	if (sigismember(&set, SIGUSR2) != 1 || sigismember(&set, SIGUSR1) != 0)
		board->bad = 3;
	spin(board);
}

START_TEST(self_restored_thread_sleeps_on_with_mask_and_signal_stack)
{
	double start = now_ms();
	struct victim victim;
	struct borrow *borrow;

	held = CODE_BASE;
	victim_start(&victim, sleep_once);
	wait_ms(100);
	borrow = start_self_restore(&victim);
	ck_assert(wait_for(&victim.board->word[BOOT_RESTORE], 2));
	assert_ok(borrow_let_go(borrow, NULL));
	victim_expect_progress(&victim);
	/* In full: rt_sigreturn forgets how much of it was left. */
	ck_assert(now_ms() - start > 450);
	victim_stop(&victim);
}
END_TEST

START_TEST(frame_needs_its_room)
{
	struct victim victim;
	struct borrow *borrow;
	uint8_t frame[512];
	uint64_t sp;
	size_t size;

	victim_start(&victim, spin);
	borrow = victim_borrow(&victim);
	assert_fails(borrow_sigframe(borrow, frame, sizeof(frame), 0x10000, &size, &sp),
		     ERROR_UNSUPPORTED);
	victim_return(borrow);
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

Suite *borrow_state_suite(void)
{
	Suite *suite = suite_create("borrow_state");
	TCase *registers = tcase_create("registers");
	TCase *sequences = tcase_create("sequences");
	TCase *filters = tcase_create("filters");
	TCase *frames = tcase_create("frames");

	tcase_set_timeout(registers, TIMEOUT_S);
	tcase_set_timeout(sequences, TIMEOUT_S);
	tcase_set_timeout(filters, TIMEOUT_S);
	tcase_set_timeout(frames, TIMEOUT_S);
	tcase_add_test(registers, general_registers_survive_a_thousand_borrows);
	tcase_add_loop_test(registers, vector_registers_survive_a_thousand_borrows, 0,
			    CODE_VECTORS);
	tcase_add_test(registers, registers_are_those_of_the_thread);
	suite_add_tcase(suite, registers);
	tcase_add_test(sequences, interrupted_sequence_is_aborted);
	suite_add_tcase(suite, sequences);
	tcase_add_test(filters, filter_that_kills_is_suspended_for_calls);
	tcase_add_test(filters, strict_mode_is_suspended_for_calls);
	tcase_add_test(filters, filter_that_cannot_be_suspended_is_respected);
	tcase_add_test(filters, user_dispatch_is_off_for_calls_and_back_afterwards);
	suite_add_tcase(suite, filters);
	tcase_add_loop_test(frames, thread_that_restored_itself_can_be_let_go, 0, CODE_VECTORS);
	tcase_add_loop_test(frames, death_during_a_run_leaves_the_thread_intact, 0, CODE_VECTORS);
	tcase_add_loop_test(frames, death_during_guarded_calls_leaves_vectors_intact, 0,
			    CODE_VECTORS);
	tcase_add_test(frames, death_during_guarded_calls_leaves_registers_intact);
	tcase_add_test(frames, death_during_guarded_calls_gives_no_error_to_a_blocked_call);
	tcase_add_test(frames, self_restored_thread_sleeps_on_with_mask_and_signal_stack);
	tcase_add_test(frames, frame_needs_its_room);
	suite_add_tcase(suite, frames);
	return suite;
}
