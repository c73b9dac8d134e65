// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/blocking_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
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
#include <time.h>
#include <unistd.h>

#include "tests/tests.h"

static const struct timespec wait_time = {.tv_sec = CALL_WAIT_MS / 1000,
					  .tv_nsec = CALL_WAIT_MS % 1000 * 1000000L};
static const struct timeval wait_timeval = {.tv_usec = CALL_WAIT_MS * 1000};

static struct timespec wait_end(void)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += CALL_WAIT_MS * 1000000L;
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}
	return end;
}

static long in_epoll_wait(struct board *board)
{
	struct epoll_event event;

	return syscall(SYS_epoll_wait, epoll_create1(0), &event, 1, CALL_WAIT_MS);
}

static long in_epoll_pwait(struct board *board)
{
	struct epoll_event event;
	uint64_t mask = 0;

	return syscall(SYS_epoll_pwait, epoll_create1(0), &event, 1, CALL_WAIT_MS, &mask, 8);
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

	epoll_ctl(fd, EPOLL_CTL_ADD, (int)board->word[CALL_PIPE_READ], &event);
	return syscall(SYS_epoll_wait, fd, &event, 1, -1);
}

static long in_poll(struct board *board)
{
	struct pollfd fd = {.fd = (int)board->word[CALL_PIPE_READ], .events = POLLIN};

	return syscall(SYS_poll, &fd, 1, CALL_WAIT_MS);
}

static long in_ppoll(struct board *board)
{
	struct pollfd fd = {.fd = (int)board->word[CALL_PIPE_READ], .events = POLLIN};
	struct timespec time = wait_time;
	uint64_t mask = 0;

	return syscall(SYS_ppoll, &fd, 1, &time, &mask, 8);
}

static long in_select(struct board *board)
{
	struct timeval time = wait_timeval;
	int fd = (int)board->word[CALL_PIPE_READ];
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

	return syscall(SYS_read, (int)board->word[CALL_PIPE_READ], &byte, 1);
}

static long in_read_inotify(struct board *board)
{
	char events[512];
	int fd = inotify_init1(0), parent = (int)board->word[CALL_PIPE_WRITE];
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
	pid_t child = child_that_waits(CALL_WAIT_MS);

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
		wait_ms(CALL_WAIT_MS);
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
		wait_ms(CALL_WAIT_MS);
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
		return CALL_NOT_AVAILABLE;
	ring = mmap(NULL, params.sq_off.array + 4 * sizeof(uint32_t), PROT_READ | PROT_WRITE,
		    MAP_SHARED, fd, IORING_OFF_SQ_RING);
	entries = mmap(NULL, 4 * sizeof(*entries), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		       IORING_OFF_SQES);
	if (ring == MAP_FAILED || entries == MAP_FAILED)
		return -3;
	entries[0] = (struct io_uring_sqe){
		.opcode = IORING_OP_POLL_ADD,
		.fd = (int)board->word[CALL_PIPE_READ],
		.poll32_events = POLLIN,
	};
	*(uint32_t *)(void *)(ring + params.sq_off.tail) = 1;
	if (syscall(SYS_io_uring_enter, fd, 1, 0, 0, NULL, 0) != 1)
		return -4;
	return syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

const struct blocking_call blocking_calls[BLOCKING_CALLS] = {
	{"epoll_wait", in_epoll_wait, CALL_ANEW, 0, 0},
	{"epoll_pwait", in_epoll_pwait, CALL_ANEW, 0, 0},
	{"epoll_pwait2", in_epoll_pwait2, CALL_ANEW, 0, 0},
	{"epoll_wait for ever", in_epoll_wait_forever, CALL_WOKEN, 1, 0},
	{"poll", in_poll, CALL_EXACT, 0, 0},
	{"ppoll", in_ppoll, CALL_EXACT, 0, 0},
	{"select", in_select, CALL_EXACT, 0, 0},
	{"nanosleep", in_nanosleep, CALL_EXACT, 0, 0},
	{"clock_nanosleep", in_clock_nanosleep, CALL_EXACT, 0, 0},
	{"futex relative", in_futex_relative, CALL_EXACT, -1, ETIMEDOUT},
	{"futex absolute", in_futex_absolute, CALL_EXACT, -1, ETIMEDOUT},
	{"futex_waitv", in_futex_waitv, CALL_EXACT, -1, ETIMEDOUT},
	{"read of a pipe", in_read_pipe, CALL_WOKEN, 1, 0},
	{"read of inotify", in_read_inotify, CALL_WOKEN, 1, 0},
	{"read of a timerfd", in_read_timerfd, CALL_EXACT, 8, 0},
	{"recvfrom with time-out", in_recvfrom_timeout, CALL_ANEW, -1, EAGAIN},
	{"read of a socket with time-out", in_read_socket_timeout, CALL_ANEW, -1, EAGAIN},
	{"accept with time-out", in_accept_timeout, CALL_ANEW, -1, EAGAIN},
	{"semtimedop", in_semtimedop, CALL_ANEW, -1, EAGAIN},
	{"rt_sigtimedwait", in_sigtimedwait, CALL_ANEW, -1, EAGAIN},
	{"rt_sigsuspend", in_sigsuspend, CALL_EXACT, -1, EINTR},
	{"pause", in_pause, CALL_EXACT, -1, EINTR},
	{"wait4", in_wait4, CALL_EXACT, 1, 0},
	{"fcntl(F_SETLKW)", in_fcntl_setlkw, CALL_EXACT, 0, 0},
	{"msgrcv", in_msgrcv, CALL_EXACT, 1, 0},
	{"io_uring_enter", in_io_uring_enter, CALL_WOKEN, 0, 0},
};
