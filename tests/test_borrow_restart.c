// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * What a thread's blocking system call sees of a borrow: nothing. 25 calls
 * that wait in all the ways that the kernel has of being interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/borrow_fixture.h"
#include "tests/tests.h"

#define WAIT_MS	  900
#define BORROW_AT 300
#define WAKE_AT	  900
/* Later it may have finished. */
#define LAST_BORROW_AT 800
/* Busy machines are late, never early. Less than what tells the kinds apart. */
#define LATE_MS	 200
#define EARLY_MS 5

/* Words of the board. */
enum { RESULT, ERRNO, ELAPSED_US, FINISHED, PIPE_READ, PIPE_WRITE, DONE_WAITING };

/* How long a call that was borrowed from takes. */
enum duration {
	EXACT, /* the kernel keeps the remaining time, or the call has none */
	ANEW,  /* relative, and returns EINTR when interrupted: waits in full again */
	WOKEN, /* by us, at WAKE_AT */
};

static const struct timespec wait_time = {.tv_sec = WAIT_MS / 1000,
					  .tv_nsec = WAIT_MS % 1000 * 1000000L};
static const struct timeval wait_timeval = {.tv_usec = WAIT_MS * 1000};

static struct timespec wait_end(void)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += WAIT_MS * 1000000L;
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}
	return end;
}

static long in_epoll_wait(struct board *board)
{
	struct epoll_event event;

	return syscall(SYS_epoll_wait, epoll_create1(0), &event, 1, WAIT_MS);
}

static long in_epoll_pwait(struct board *board)
{
	struct epoll_event event;
	uint64_t mask = 0;

	return syscall(SYS_epoll_pwait, epoll_create1(0), &event, 1, WAIT_MS, &mask, 8);
}

static long in_epoll_pwait2(struct board *board)
{
	struct epoll_event event;

	return syscall(SYS_epoll_pwait2, epoll_create1(0), &event, 1, &wait_time, NULL, 8);
}

static long in_epoll_wait_forever(struct board *board)
{
	struct epoll_event event = {.events = EPOLLIN};
	int fd = epoll_create1(0);

	epoll_ctl(fd, EPOLL_CTL_ADD, (int)board->word[PIPE_READ], &event);
	return syscall(SYS_epoll_wait, fd, &event, 1, -1);
}

static long in_poll(struct board *board)
{
	struct pollfd fd = {.fd = (int)board->word[PIPE_READ], .events = POLLIN};

	return syscall(SYS_poll, &fd, 1, WAIT_MS);
}

static long in_ppoll(struct board *board)
{
	struct pollfd fd = {.fd = (int)board->word[PIPE_READ], .events = POLLIN};
	struct timespec time = wait_time;
	uint64_t mask = 0;

	return syscall(SYS_ppoll, &fd, 1, &time, &mask, 8);
}

static long in_select(struct board *board)
{
	struct timeval time = wait_timeval;
	int fd = (int)board->word[PIPE_READ];
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return syscall(SYS_select, fd + 1, &set, NULL, NULL, &time);
}

static long in_nanosleep(struct board *board)
{
	return syscall(SYS_nanosleep, &wait_time, NULL);
}

static long in_clock_nanosleep(struct board *board)
{
	return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &wait_time, NULL);
}

static long in_futex_relative(struct board *board)
{
	static int word;

	return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &wait_time, NULL, 0);
}

static long in_futex_absolute(struct board *board)
{
	struct timespec end = wait_end();
	static int word;

	return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &end, NULL,
		       FUTEX_BITSET_MATCH_ANY);
}

static long in_futex_waitv(struct board *board)
{
	static uint32_t word;
	struct futex_waitv waiter = {
		.uaddr = (uintptr_t)&word,
		.flags = FUTEX_32 | FUTEX_PRIVATE_FLAG,
	};
	struct timespec end = wait_end();

	return syscall(SYS_futex_waitv, &waiter, 1, 0, &end, CLOCK_MONOTONIC);
}

static long in_read_pipe(struct board *board)
{
	char byte;

	return syscall(SYS_read, (int)board->word[PIPE_READ], &byte, 1);
}

static long in_read_inotify(struct board *board)
{
	char events[512];
	int fd = inotify_init1(0), parent = (int)board->word[PIPE_WRITE];
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getppid(), parent);
	/* Opened for writing again by whoever wakes us. */
	inotify_add_watch(fd, path, IN_OPEN);
	return syscall(SYS_read, fd, events, sizeof(events)) > 0;
}

static long in_read_timerfd(struct board *board)
{
	struct itimerspec timer = {.it_value = wait_time};
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t expired;

	timerfd_settime(fd, 0, &timer, NULL);
	return syscall(SYS_read, fd, &expired, sizeof(expired));
}

static long in_recvfrom_timeout(struct board *board)
{
	int pair[2];
	char byte;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &wait_timeval, sizeof(wait_timeval));
	return syscall(SYS_recvfrom, pair[0], &byte, 1, 0, NULL, NULL);
}

static long in_read_socket_timeout(struct board *board)
{
	int pair[2];
	char byte;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &wait_timeval, sizeof(wait_timeval));
	return syscall(SYS_read, pair[0], &byte, 1);
}

static long in_accept_timeout(struct board *board)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	bind(fd, (struct sockaddr *)&address, sizeof(address));
	listen(fd, 1);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait_timeval, sizeof(wait_timeval));
	return syscall(SYS_accept, fd, NULL, NULL);
}

static long in_semtimedop(struct board *board)
{
	int id = semget(IPC_PRIVATE, 1, 0600);
	struct sembuf take = {.sem_op = -1};
	long result = syscall(SYS_semtimedop, id, &take, 1, &wait_time);
	int errnum = errno;

	semctl(id, 0, IPC_RMID);
	errno = errnum;
	return result;
}

static long in_sigtimedwait(struct board *board)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return syscall(SYS_rt_sigtimedwait, &set, NULL, &wait_time, 8);
}

static void do_nothing(int signal)
{
}

static void alarm_later(void)
{
	const struct itimerval timer = {.it_value = wait_timeval};

	signal(SIGALRM, do_nothing);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static long in_sigsuspend(struct board *board)
{
	uint64_t mask = 0;

	alarm_later();
	return syscall(SYS_rt_sigsuspend, &mask, 8);
}

static long in_pause(struct board *board)
{
	alarm_later();
	return syscall(SYS_pause);
}

static pid_t child_that_waits(unsigned int ms)
{
	pid_t child = fork();

	if (child == 0) {
		die_with_parent();
		wait_ms(ms);
		_exit(0);
	}
	return child;
}

static long in_wait4(struct board *board)
{
	pid_t child = child_that_waits(WAIT_MS);

	return syscall(SYS_wait4, child, NULL, 0, NULL) == child;
}

static long in_fcntl_setlkw(struct board *board)
{
	struct flock lock = {.l_type = F_WRLCK};
	int fd = memfd_create("lock", 0), held[2];
	long result;
	char byte;

	if (ftruncate(fd, 1) != 0 || pipe(held) != 0)
		return -1;
	if (fork() == 0) {
		die_with_parent();
		fcntl(fd, F_SETLK, &lock);
		if (write(held[1], "", 1) != 1)
			_exit(1);
		wait_ms(WAIT_MS);
		_exit(0);
	}
	if (read(held[0], &byte, 1) != 1)
		return -1;
	result = syscall(SYS_fcntl, fd, F_SETLKW, &lock);
	return result;
}

static long in_msgrcv(struct board *board)
{
	struct {
		long type;
		char text[8];
	} message = {.type = 1};
	int id = msgget(IPC_PRIVATE, 0600), errnum;
	long result;

	if (fork() == 0) {
		die_with_parent();
		wait_ms(WAIT_MS);
		msgsnd(id, &message, 1, 0);
		_exit(0);
	}
	result = syscall(SYS_msgrcv, id, &message, 8, 0, 0);
	errnum = errno;
	msgctl(id, IPC_RMID, NULL);
	errno = errnum;
	return result;
}

/* Waits for a poll of the pipe to complete. */
static long in_io_uring_enter(struct board *board)
{
	struct io_uring_params params = {0};
	int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
	struct io_uring_sqe *entries;
	char *ring;

	if (fd < 0)
		return -2;
	ring = mmap(NULL, params.sq_off.array + 4 * sizeof(uint32_t), PROT_READ | PROT_WRITE,
		    MAP_SHARED, fd, IORING_OFF_SQ_RING);
	entries = mmap(NULL, 4 * sizeof(*entries), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		       IORING_OFF_SQES);
	if (ring == MAP_FAILED || entries == MAP_FAILED)
		return -3;
	entries[0] = (struct io_uring_sqe){
		.opcode = IORING_OP_POLL_ADD,
		.fd = (int)board->word[PIPE_READ],
		.poll32_events = POLLIN,
	};
	*(uint32_t *)(void *)(ring + params.sq_off.tail) = 1;
	if (syscall(SYS_io_uring_enter, fd, 1, 0, 0, NULL, 0) != 1)
		return -4;
	return syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

struct blocking_call {
	const char *name;
	long (*call)(struct board *board);
	enum duration duration;
	long result;
	int errnum;
};

static const struct blocking_call calls[] = {
	{"epoll_wait", in_epoll_wait, ANEW, 0, 0},
	{"epoll_pwait", in_epoll_pwait, ANEW, 0, 0},
	{"epoll_pwait2", in_epoll_pwait2, ANEW, 0, 0},
	{"epoll_wait for ever", in_epoll_wait_forever, WOKEN, 1, 0},
	{"poll", in_poll, EXACT, 0, 0},
	{"ppoll", in_ppoll, EXACT, 0, 0},
	{"select", in_select, EXACT, 0, 0},
	{"nanosleep", in_nanosleep, EXACT, 0, 0},
	{"clock_nanosleep", in_clock_nanosleep, EXACT, 0, 0},
	{"futex relative", in_futex_relative, EXACT, -1, ETIMEDOUT},
	{"futex absolute", in_futex_absolute, EXACT, -1, ETIMEDOUT},
	{"futex_waitv", in_futex_waitv, EXACT, -1, ETIMEDOUT},
	{"read of a pipe", in_read_pipe, WOKEN, 1, 0},
	{"read of inotify", in_read_inotify, WOKEN, 1, 0},
	{"read of a timerfd", in_read_timerfd, EXACT, 8, 0},
	{"recvfrom with time-out", in_recvfrom_timeout, ANEW, -1, EAGAIN},
	{"read of a socket with time-out", in_read_socket_timeout, ANEW, -1, EAGAIN},
	{"accept with time-out", in_accept_timeout, ANEW, -1, EAGAIN},
	{"semtimedop", in_semtimedop, ANEW, -1, EAGAIN},
	{"rt_sigtimedwait", in_sigtimedwait, ANEW, -1, EAGAIN},
	{"rt_sigsuspend", in_sigsuspend, EXACT, -1, EINTR},
	{"pause", in_pause, EXACT, -1, EINTR},
	{"wait4", in_wait4, EXACT, 1, 0},
	{"fcntl(F_SETLKW)", in_fcntl_setlkw, EXACT, 0, 0},
	{"msgrcv", in_msgrcv, EXACT, 1, 0},
	{"io_uring_enter", in_io_uring_enter, WOKEN, 0, 0},
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

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
	board->word[PIPE_READ] = (uint64_t)waiter->pipe[0];
	board->word[PIPE_WRITE] = (uint64_t)waiter->pipe[1];
	waiter_call = call;
	victim_start_on(&waiter->victim, wait_and_report, board);
	waiter->started_ms = now_ms();
}

static void waiter_borrow(struct waiter *waiter, unsigned int syscalls)
{
	struct borrow *borrow = victim_borrow(&waiter->victim);

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

static void waiter_verify(struct waiter *waiter, const struct blocking_call *call, bool timed)
{
	struct board *board = waiter->victim.board;
	double elapsed, expected = WAIT_MS;

	ck_assert_msg(wait_for(&board->word[FINISHED], 1), "%s hangs", call->name);
	ck_assert_msg((long)board->word[RESULT] == call->result &&
			      (int)board->word[ERRNO] == call->errnum,
		      "%s returned %ld, errno %d; not %ld, errno %d", call->name,
		      (long)board->word[RESULT], (int)board->word[ERRNO], call->result,
		      call->errnum);
	elapsed = (double)board->word[ELAPSED_US] / 1e3;
	if (call->duration == ANEW)
		expected += waiter->borrowed_ms;
	if (call->duration != WOKEN)
		ck_assert_msg(elapsed > expected - EARLY_MS, "%s took only %.0f of %.0f ms",
			      call->name, elapsed, expected);
	if (timed && call->duration != WOKEN)
		ck_assert_msg(elapsed < expected + LATE_MS, "%s took %.0f instead of %.0f ms",
			      call->name, elapsed, expected);
}

static void waiter_stop(struct waiter *waiter)
{
	victim_stop(&waiter->victim);
	close(waiter->pipe[0]);
	close(waiter->pipe[1]);
}

/* All calls at the same time, each with @borrows borrows of @syscalls calls. */
static void borrow_from_all(unsigned int borrows, unsigned int syscalls)
{
	struct waiter waiters[CALLS] = {0};

	for (size_t i = 0; i < CALLS; i++)
		waiter_start(&waiters[i], &calls[i]);
	wait_ms(BORROW_AT);
	for (unsigned int round = 0; round < borrows; round++) {
		for (size_t i = 0; i < CALLS; i++) {
			if (now_ms() - waiters[i].started_ms < LAST_BORROW_AT)
				waiter_borrow(&waiters[i], syscalls);
		}
	}
	while (now_ms() < waiters[CALLS - 1].started_ms + WAKE_AT)
		wait_ms(1);
	for (size_t i = 0; i < CALLS; i++) {
		if (calls[i].duration == WOKEN)
			waiter_wake(&waiters[i]);
	}
	for (size_t i = 0; i < CALLS; i++)
		waiter_verify(&waiters[i], &calls[i], borrows == 1);
	for (size_t i = 0; i < CALLS; i++)
		waiter_stop(&waiters[i]);
}

START_TEST(blocked_calls_do_not_notice_a_mere_stop)
{
	borrow_from_all(1, 0);
}
END_TEST

START_TEST(blocked_calls_do_not_notice_ten_calls)
{
	borrow_from_all(1, 10);
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
	wait_ms(20);
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, (unsigned int)_i);
	kill(victim.pid, SIGUSR1);
	stats = victim_return(borrow);
	ck_assert(!stats.rewound);
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
	wait_ms(20);
	borrow = victim_borrow(&victim);
	borrow_call_getpid(borrow, &victim, (unsigned int)_i);
	/* Queued only because T is traced: its default is to be ignored. */
	kill(victim.pid, SIGWINCH);
	stats = victim_return(borrow);
	ck_assert(stats.rewound);
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

START_TEST(signal_that_only_the_call_lets_through_ends_it)
{
	struct victim victim;
	struct borrow *borrow;

	victim_start(&victim, _i & 1 ? wait_in_epoll_pwait : wait_in_ppoll);
	wait_ms(20);
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

	victim_start(&victim, _i & 1 ? wait_in_epoll_pwait : wait_in_ppoll);
	wait_ms(20);
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
	tcase_add_loop_test(eintr, borrow_before_the_signal_keeps_the_calls_mask, 0, 4);
	suite_add_tcase(suite, eintr);
	tcase_add_test(storm, thousand_borrows_give_no_eintr);
	suite_add_tcase(suite, storm);
	return suite;
}
