/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Borrow one thread of the target, T: stop it, have it make system calls or
 * run code of ours, and hand it back as if nothing had been. The other threads
 * are never stopped.
 *
 *	borrow_begin          T is stopped, nothing about it has changed
 *	  borrow_syscall      T makes one system call and is stopped again
 *	  borrow_run          T runs code of ours
 *	  borrow_poll         ... still
 *	  borrow_stop_again   T is stopped; call borrow_syscall, _run or _end next
 *	borrow_end            T goes on where it was
 *
 * What is kept: all registers, vector state of any size, signal mask, a
 * restartable sequence (aborted if code ran, as the kernel would), system call
 * user dispatch, the system call that T was blocked in and its remaining time.
 * A call that a stop interrupts visibly (epoll_wait and its like) is made
 * again, so that the program sees no EINTR of ours, unless a handler of its own
 * runs first. Not kept by the kernel for us: code that runs on T must
 * not use nanosleep, poll or a timed futex, whose restart state T has only one
 * of (ppoll, pselect6 and socket time-outs do not touch it).
 *
 * Signals for T wait until it is handed back; stop and continue signals work
 * as always, also while T is ours. A signal that our code raises on T (SEGV,
 * BUS, FPE, ILL, TRAP, SYS) is not delivered: ERROR_FAULT.
 *
 * Each wait has a deadline: the one given to borrow_begin() or
 * borrow_stop_again(), else BORROW_STEP_TIMEOUT_MS.
 *
 * To be called from one thread of a short-lived process that has no other
 * thread and no SIGCHLD handler (worker.h): if it dies, the kernel lets T go.
 * Between begin and end SIGCHLD is blocked, and taken, and a periodic SIGRTMAX
 * (each 250 ms) may make blocking calls of that process return EINTR.
 */
#ifndef INJECTOR_BORROW_H
#define INJECTOR_BORROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "injector/target.h"
#include "resolver/error.h"

/* For steps that take microseconds unless T's CPU time is rationed (cgroup quota). */
#define BORROW_STEP_TIMEOUT_MS 2000u

struct borrow;

#define BORROW_REGISTERS 33

/* T as it was found, for those who look at stacks. */
struct borrow_registers {
	uint64_t pc;
	uint64_t sp;
	uint64_t fp;		 /* frame pointer (rbp) */
	uint64_t result;	 /* return register as the kernel gave it: -512..-516 in a call
				    that is about to be restarted */
	int64_t syscall;	 /* number of the system call that T is in or just left; -1 none */
	uint64_t thread_pointer; /* base of thread-local storage */
	uint64_t reg[BORROW_REGISTERS]; /* by DWARF number; x86-64: 0..15, then pc */
};

enum borrow_seccomp {
	BORROW_SECCOMP_NONE,
	BORROW_SECCOMP_STRICT, /* read, write, exit only */
	BORROW_SECCOMP_FILTER,
};

/* What a borrow cost T, and what was done at the end. */
struct borrow_stats {
	uint64_t stopped_ns;   /* from the stop to the hand-back, our code's run included */
	unsigned int syscalls; /* made on T */
	bool ran;	       /* something ran on T */
	bool taken_back;       /* an EINTR: the kernel decides anew whether there is one */
	bool rseq_aborted;     /* T was in a restartable sequence, which starts over */
	bool group_stopped;    /* the process was or is stopped by SIGSTOP or its like */
};

/*
 * Run where @tid runs, since a wake-up across CPUs costs T up to 28 times the
 * stop. For the calling thread, until it is undone by sched_setaffinity(). No
 * harm if it fails.
 */
void borrow_pin(const struct target *target, pid_t tid);

/*
 * Stop thread @tid.
 *
 * @timeout_ms to wait for the stop. A thread in an uninterruptible sleep does
 *             not stop: ERROR_TIMEOUT. It is then released when it does stop
 *             during a later wait of this module, and at the latest when the
 *             calling process ends, which should be soon.
 *
 * ERROR_GONE; ERROR_DENIED with a hint; ERROR_BUSY: somebody else traces it;
 * ERROR_UNSUPPORTED: it runs 32-bit code.
 */
MUST_CHECK struct error *borrow_begin(struct target *target, pid_t tid, unsigned int timeout_ms,
				      struct borrow **ret);

/*
 * Hand T back and free @borrow, whatever the result.
 *
 * @stats may be NULL; filled on errors too
 *
 * ERROR_GONE: it ended meanwhile. ERROR_TIMEOUT: it does not stop any more; it
 * is left to the kernel to release.
 */
MUST_CHECK struct error *borrow_end(struct borrow *borrow, struct borrow_stats *stats);

/*
 * Let T go as it is now and free @borrow: for T that restores itself
 * (borrow_sigframe). T may be running or stopped.
 */
MUST_CHECK struct error *borrow_let_go(struct borrow *borrow, struct borrow_stats *stats);

pid_t borrow_tid(const struct borrow *borrow);
/* T as it was found; valid until the end. */
const struct borrow_registers *borrow_registers(const struct borrow *borrow);
/* Address of the restartable sequence's descriptor that T's rseq names; 0 = none. */
MUST_CHECK struct error *borrow_rseq_cs(struct borrow *borrow, uint64_t *ret);
/* The process is stopped by SIGSTOP or its like: other threads hold what they hold. */
bool borrow_is_group_stopped(const struct borrow *borrow);
/* T has a processor of its own, as far as we know: it may be watched, and watch us. */
bool borrow_is_apart(const struct borrow *borrow);
/* Nanoseconds since T was stopped. */
uint64_t borrow_stopped_ns(const struct borrow *borrow);

enum borrow_seccomp borrow_seccomp(const struct borrow *borrow);
/*
 * With a filter and without the right to suspend it (CAP_SYS_ADMIN)
 * borrow_syscall() refuses, because a forbidden call may kill the target.
 * Whoever has evaluated the filter may lift that.
 */
void borrow_allow_filtered(struct borrow *borrow);

/*
 * Have T make one system call, with the seccomp filter suspended. Calls that
 * the kernel would restart are made again.
 *
 * @ret what the kernel returned: -errno on failure
 *
 * ERROR_GONE, ERROR_DENIED (seccomp), ERROR_TIMEOUT: the call is still running
 * and only borrow_end() is allowed.
 */
MUST_CHECK struct error *borrow_syscall(struct borrow *borrow, long number, const uint64_t args[6],
					int64_t *ret);

/*
 * Have T store @value at @address if @expected is there, by the code of core at @pc
 * (ha_core.change). Guarded like a call.
 *
 * ERROR_FAULT: @address cannot be written to. ERROR_GONE, ERROR_TIMEOUT.
 */
MUST_CHECK struct error *borrow_change(struct borrow *borrow, uint64_t pc, uint64_t address,
				       uint64_t expected, uint64_t value);

/*
 * From now on, and until borrow_end() or another borrow_guard(), guard the
 * calls made on T, which also makes them cheaper: should our process die during one, T returns from
 * it into rt_sigreturn and restores itself. Without guard it would run into whatever code follows
 * the instruction that we use.
 *
 * @remote_address memory in the target that we may write, and that stays
 *                 mapped; 0 ends the guard
 * @size           bytes there; BORROW_GUARD_SIZE is enough unless T uses AMX
 *
 * Where the target has no suitable code, or @size is too small, calls simply
 * stay unguarded. Errors of writing.
 */
MUST_CHECK struct error *borrow_guard(struct borrow *borrow, uint64_t remote_address, size_t size);
#define BORROW_GUARD_SIZE 3456u
bool borrow_is_guarded(const struct borrow *borrow);

/*
 * Have T run the function at @pc; returns at once. It is called with
 * @argument as its only one, on the stack that ends at @sp (rounded down to
 * 16), with direction and trap flags clear and the seccomp filter in force. It
 * must not return.
 *
 * ERROR_UNSUPPORTED: T has a shadow stack, on which we cannot call.
 */
MUST_CHECK struct error *borrow_run(struct borrow *borrow, uint64_t pc, uint64_t sp,
				    uint64_t argument);

/*
 * While T runs: handle what it reports. Does not wait.
 *
 * @stopped_ret true: T is stopped (by a fault, together with ERROR_FAULT)
 *
 * ERROR_FAULT with signal, address and pc. ERROR_GONE.
 */
MUST_CHECK struct error *borrow_poll(struct borrow *borrow, bool *stopped_ret);

/* The same, but sleeps until T reports something or @timeout_ms have passed. */
MUST_CHECK struct error *borrow_wait(struct borrow *borrow, unsigned int timeout_ms,
				     bool *stopped_ret);

/*
 * Stop T, which runs code of ours. Code that may restore T by itself must say
 * so in memory before it does: look there now that T is stopped, and if it
 * did, T has gone on or is about to: borrow_let_go(). Nothing of T is changed
 * before the next call, run or end, so that up to then the death of our
 * process leaves it to its own restoration.
 *
 * ERROR_FAULT (of T's own code, if it restored itself), ERROR_GONE,
 * ERROR_TIMEOUT.
 */
MUST_CHECK struct error *borrow_stop_again(struct borrow *borrow, unsigned int timeout_ms);

/*
 * Write to the target; where the kernel forbids that through /proc/PID/mem
 * (proc_mem.force_override) by ptrace, word by word. T must be stopped.
 */
MUST_CHECK struct error *borrow_write(struct borrow *borrow, uint64_t address, const void *buf,
				      size_t size);

/*
 * Build what T's stack must hold for rt_sigreturn to make T as it was found:
 * registers, vector state, signal mask. A call in which T was blocked is then
 * made anew in full (rt_sigreturn forgets its remaining time).
 *
 * @buf            @size bytes; at most BORROW_SIGFRAME_SIZE are needed
 * @remote_address where the caller will place them; T's alternate signal stack
 *                 is not changed
 * @size_ret       bytes to place there
 * @sp_ret         stack pointer for the rt_sigreturn system call
 */
MUST_CHECK struct error *borrow_sigframe(struct borrow *borrow, void *buf, size_t size,
					 uint64_t remote_address, size_t *size_ret,
					 uint64_t *sp_ret);
#define BORROW_SIGFRAME_SIZE (68u * 1024u)

#endif
