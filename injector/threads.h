/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The threads of the target, as /proc tells them without stopping anything,
 * and in which order to ask them for a loan.
 *
 * All functions may be called from any thread.
 */
#ifndef INJECTOR_THREADS_H
#define INJECTOR_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "injector/target.h"
#include "resolver/error.h"

struct thread {
	pid_t tid;
	char state;	   /* as in /proc/PID/stat: R, S, D, T, t, Z, X, ... */
	char comm[65];	   /* as the kernel gives it: untrusted, may hold any byte but NUL */
	uint32_t flags;	   /* the kernel's PF_* */
	int cpu;	   /* that it last ran on */
	uint64_t cpu_time; /* user and system time, in clock ticks */
	bool kernel;	   /* a worker of the kernel (io_uring): runs no code of the program */
};

struct threads {
	struct thread *thread; /* sorted by tid */
	size_t count;
};

/* What a thread waits for. */
struct thread_syscall {
	bool blocked;	/* false: it runs; the rest is then 0 */
	int64_t number; /* -1: blocked, but not in a system call */
	uint64_t args[6];
	uint64_t sp, pc;
};

/* Threads that come and go meanwhile may be in the list or not. ERROR_GONE: the process ended. */
MUST_CHECK struct error *threads_read(const struct target *target, struct threads *ret);
void threads_deinit(struct threads *threads);

/* One thread. ERROR_GONE: it ended. */
MUST_CHECK struct error *thread_read(const struct target *target, pid_t tid, struct thread *ret);

/* From /proc/PID/task/TID/syscall. ERROR_GONE, ERROR_DENIED. */
MUST_CHECK struct error *thread_read_syscall(const struct target *target, pid_t tid,
					     struct thread_syscall *ret);

/* Parts of /proc/PID/task/TID/status. Sets of signals: bit n - 1 is signal n. */
struct thread_status {
	pid_t tracer;	      /* 0 = nobody traces it */
	unsigned int seccomp; /* 0 off, 1 strict, 2 filter */
	uint64_t pending;     /* for the thread or the whole process */
	uint64_t caught;      /* that have a handler */
};
MUST_CHECK struct error *thread_read_status(const struct target *target, pid_t tid,
					    struct thread_status *ret);

/* A borrow of it can succeed: it is no kernel worker, not ending, and not in state D, X or Z. */
bool thread_may_be_borrowed(const struct thread *thread);

/*
 * The threads that may be borrowed, best first: the main thread, then the
 * others by CPU time. After those come threads that have children of their
 * own: the SIGCHLD of a child that ends while its parent is traced is not
 * dropped, though nobody handles it, but wakes another thread, whose
 * epoll_wait() returns EINTR. Threads that have hardly run come last, since an
 * allocation on one makes an arena for it. Threads that somebody else traces
 * (state t) come at the very end, so that the error names the tracer.
 *
 * @tids_ret malloc'ed, to be freed; NULL if *count_ret is 0
 */
MUST_CHECK struct error *threads_rank(const struct target *target, const struct threads *threads,
				      pid_t **tids_ret, size_t *count_ret);

#endif
