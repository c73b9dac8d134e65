/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ptrace and waitpid for one thread, with deadlines and without surprises: the
 * only place that calls ptrace. borrow.h gives it its meaning.
 *
 * A tracee belongs to the thread that seized it. Errors name the thread;
 * ERROR_GONE: it has ended, or was replaced by an exec.
 */
#ifndef INJECTOR_TRACEE_H
#define INJECTOR_TRACEE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "injector/arch.h"
#include "resolver/error.h"

/* More threads than anybody asks in vain before giving up. */
#define TRACER_ABANDONED 16

/* The calling process as a tracer. All zero is a good start. */
struct tracer {
	unsigned int users; /* tracer_begin() without tracer_end() */
	sigset_t mask;	    /* the caller's, before the first begin */
	struct sigaction child_action, tick_action;
	timer_t tick; /* interrupts waits */
	bool has_tick;
	bool watches;
	pid_t abandoned[TRACER_ABANDONED]; /* asked to stop, did not in time; 0 = unused */
};

/*
 * Make waits possible. SIGCHLD is blocked, and taken by waits; SIGRTMAX is
 * unblocked, and used to interrupt them. Nests.
 */
void tracer_begin(struct tracer *tracer);
void tracer_end(struct tracer *tracer);

/*
 * Say whether the tracee has a processor of its own. While it has, waits watch
 * it for a moment before they sleep: to wake another processor costs both of
 * them more than most calls take. Off after tracer_begin(), and once a watch was
 * in vain: on one processor it only keeps the tracee from running.
 */
void tracer_watch(struct tracer *tracer, bool apart);
bool tracer_watches(const struct tracer *tracer);

/*
 * A thread that has not stopped cannot be detached. It is remembered, and let
 * go when it stops, by any later tracee_wait() or tracer_release().
 */
void tracer_abandon(struct tracer *tracer, pid_t tid);
void tracer_release(struct tracer *tracer);

enum tracee_stop_kind {
	TRACEE_RUNNING, /* it has not stopped */
	TRACEE_EVENT,	/* PTRACE_EVENT_STOP: after an interrupt, or news of job control */
	TRACEE_GROUP,	/* the same, while the process is stopped by SIGSTOP or its like */
	TRACEE_SYSCALL, /* entry to or exit from a system call */
	TRACEE_SIGNAL,	/* about to be delivered to it */
	TRACEE_OTHER,
	TRACEE_GONE,
};

struct tracee_stop {
	enum tracee_stop_kind kind;
	int signal; /* SIGNAL: to be delivered; GROUP: that stopped it; GONE: that ended it or 0 */
};

uint64_t tracee_now_ns(void);
/* CLOCK_MONOTONIC in ns, @timeout_ms from now. */
uint64_t tracee_deadline(unsigned int timeout_ms);

/* What @tid has reported; kind RUNNING if nothing. Never waits. */
struct tracee_stop tracee_poll(pid_t tid);
/* The same, waiting until @deadline for something. */
struct tracee_stop tracee_wait(struct tracer *tracer, pid_t tid, uint64_t deadline);

/* Without stopping it. ERROR_DENIED also if it is traced already. */
MUST_CHECK struct error *tracee_seize(pid_t tid);
/* It will stop in a TRACEE_EVENT or TRACEE_GROUP, or if stopped, as soon as it goes on. */
MUST_CHECK struct error *tracee_interrupt(pid_t tid);
/* @signal: to be delivered if it is in a TRACEE_SIGNAL, else 0. */
MUST_CHECK struct error *tracee_continue(pid_t tid, int signal);
/* The same, to the next entry to or exit from a system call. */
MUST_CHECK struct error *tracee_continue_syscall(pid_t tid, int signal);
MUST_CHECK struct error *tracee_detach(pid_t tid, int signal);

/* With true: system calls pass by the seccomp filter, for as long as we trace. */
MUST_CHECK struct error *tracee_suspend_seccomp(pid_t tid, bool suspend);

MUST_CHECK struct error *tracee_get_registers(pid_t tid, struct arch_registers *ret);
MUST_CHECK struct error *tracee_set_registers(pid_t tid, const struct arch_registers *registers);

/* The vector regset; @buf has ARCH_VECTOR_MAX bytes. */
MUST_CHECK struct error *tracee_get_vector(pid_t tid, uint8_t *buf, size_t *size_ret);
/* @size as tracee_get_vector() said: the kernel takes no other. */
MUST_CHECK struct error *tracee_set_vector(pid_t tid, const uint8_t *buf, size_t size);

bool tracee_has_shadow_stack(pid_t tid);

/* Bit n - 1 is signal n. */
MUST_CHECK struct error *tracee_get_mask(pid_t tid, uint64_t *ret);
MUST_CHECK struct error *tracee_set_mask(pid_t tid, uint64_t mask);

/* Of a TRACEE_SIGNAL stop. */
MUST_CHECK struct error *tracee_get_siginfo(pid_t tid, siginfo_t *ret);

/* Address of the thread's struct rseq; 0 = none registered, or the kernel does not tell. */
uint64_t tracee_rseq(pid_t tid, uint32_t *signature_ret);

/* prctl(PR_SET_SYSCALL_USER_DISPATCH); mode 0 = off. */
struct tracee_dispatch {
	uint64_t mode, selector, offset, size;
};
/* All zero where the kernel does not know it. */
struct tracee_dispatch tracee_get_dispatch(pid_t tid);
MUST_CHECK struct error *tracee_set_dispatch(pid_t tid, const struct tracee_dispatch *dispatch);

/* One word, whatever the protection of its page. */
MUST_CHECK struct error *tracee_poke(pid_t tid, uint64_t address, uint64_t word);

#endif
