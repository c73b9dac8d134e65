// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/tracee.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

/* include/uapi/linux/ptrace.h, Linux 6.4 */
#define SET_SYSCALL_USER_DISPATCH_CONFIG 0x4210
#define GET_SYSCALL_USER_DISPATCH_CONFIG 0x4211
#define EVENT_STOP			 128 /* PTRACE_EVENT_STOP; glibc has it as an enum */
#define SYSCALL_STOP			 (SIGTRAP | 0x80) /* PTRACE_O_TRACESYSGOOD */

/*
 * Two ways to wait, asleep, with a deadline. waitpid that a periodic signal interrupts
 * costs one system call, and the deadline is as coarse as the period: long, so
 * that other calls are rarely interrupted. Near the deadline, waiting for
 * SIGCHLD with a time-out is exact and costs three. (In slices: no signal is
 * sent for a tracee that an exec replaced.) Before either, a tracee that runs on
 * another processor is watched for WATCH_NS: of T's calls only those that map or
 * unmap much take longer.
 */
#define TICK_NS	      250000000u
#define SLICE_NS      10000000u
#define TICK_SIGNAL   SIGRTMAX
#define NS_PER_SECOND 1000000000u
#define WATCH_NS      300000u

#define TRIES_MAX     3 /* at a request that the kernel has no reason to refuse */

/* glibc's first parameter is an enum, which does not have all requests. */
static long request_once(long what, pid_t tid, uintptr_t address, uintptr_t data)
{
	return ptrace((enum __ptrace_request)what, tid, (void *)address, (void *)data);
}

/* Requests in the middle of a call: to give up there would leave T nowhere. */
static bool is_vital(long what)
{
	switch (what) {
	case PTRACE_GETREGSET:
	case PTRACE_SETREGSET:
	case PTRACE_GETSIGMASK:
	case PTRACE_SETSIGMASK:
	case PTRACE_CONT:
	case PTRACE_SYSCALL:
	case PTRACE_INTERRUPT:
	case PTRACE_DETACH:
		return true;
	default:
		return false;
	}
}

static bool is_final(int errnum)
{
	return errnum == ESRCH || errnum == EINVAL || errnum == ENODEV || errnum == EPERM;
}

static long request(long what, pid_t tid, uintptr_t address, uintptr_t data)
{
	long result = request_once(what, tid, address, data);
	int tries;

	for (tries = 1; result < 0 && tries < TRIES_MAX && is_vital(what) && !is_final(errno);
	     tries++)
		result = request_once(what, tid, address, data);
	return result;
}

static struct error *failed(pid_t tid, const char *what)
{
	int errnum = errno;

	/* The only reason that a stopped tracee of ours gives is that it was killed. */
	if (errnum == ESRCH)
		return error_create(ERROR_GONE, "thread %d has ended", tid);
	return error_os(errnum, "cannot %s thread %d", what, tid);
}

uint64_t tracee_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t tracee_deadline(unsigned int timeout_ms)
{
	return tracee_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

/* ---- the tracer's side */

static void sigchld_set(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGCHLD);
}

static void on_tick(int signal)
{
}

/* Periodic, so that a tick just before a wait begins is made good by the next. */
static void tick_start(struct tracer *tracer)
{
	const struct itimerspec period = {
		.it_interval.tv_nsec = TICK_NS,
		.it_value.tv_nsec = TICK_NS,
	};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = TICK_SIGNAL};
	const struct sigaction action = {.sa_handler = on_tick};
	sigset_t set;

	tracer->has_tick = timer_create(CLOCK_MONOTONIC, &event, &tracer->tick) == 0;
	if (!tracer->has_tick)
		return;
	sigaction(TICK_SIGNAL, &action, &tracer->tick_action);
	sigemptyset(&set);
	sigaddset(&set, TICK_SIGNAL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	timer_settime(tracer->tick, 0, &period, NULL);
}

static void tick_stop(struct tracer *tracer)
{
	if (!tracer->has_tick)
		return;
	/* A tick that was sent is taken on the way back from this, by the handler. */
	timer_delete(tracer->tick);
	sigaction(TICK_SIGNAL, &tracer->tick_action, NULL);
}

void tracer_begin(struct tracer *tracer)
{
	const struct sigaction plain = {.sa_handler = SIG_DFL};
	sigset_t set;

	if (tracer->users++)
		return;
	tracer->watches = false;
	sigchld_set(&set);
	sigprocmask(SIG_BLOCK, &set, &tracer->mask);
	/* With SIG_IGN, which children inherit, or SA_NOCLDSTOP no signal is sent. */
	sigaction(SIGCHLD, &plain, &tracer->child_action);
	tick_start(tracer);
}

void tracer_end(struct tracer *tracer)
{
	if (--tracer->users)
		return;
	tick_stop(tracer);
	sigaction(SIGCHLD, &tracer->child_action, NULL);
	sigprocmask(SIG_SETMASK, &tracer->mask, NULL);
}

void tracer_watch(struct tracer *tracer, bool apart)
{
	tracer->watches = apart;
}

bool tracer_watches(const struct tracer *tracer)
{
	return tracer->watches;
}

void tracer_abandon(struct tracer *tracer, pid_t tid)
{
	for (size_t i = 0; i < TRACER_ABANDONED; i++) {
		if (!tracer->abandoned[i]) {
			tracer->abandoned[i] = tid;
			return;
		}
	}
}

void tracer_release(struct tracer *tracer)
{
	for (size_t i = 0; i < TRACER_ABANDONED; i++) {
		pid_t tid = tracer->abandoned[i];
		struct tracee_stop stop;

		if (!tid)
			continue;
		stop = tracee_poll(tid);
		if (stop.kind == TRACEE_RUNNING)
			continue;
		if (stop.kind != TRACEE_GONE)
			request(PTRACE_DETACH, tid, 0,
				stop.kind == TRACEE_SIGNAL ? (uintptr_t)stop.signal : 0);
		tracer->abandoned[i] = 0;
	}
}

/* ---- waiting */

static struct tracee_stop decode(int status)
{
	struct tracee_stop stop = {.kind = TRACEE_OTHER};

	if (!WIFSTOPPED(status)) {
		stop.kind = TRACEE_GONE;
		stop.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
		return stop;
	}
	stop.signal = WSTOPSIG(status);
	if (status >> 16 == EVENT_STOP)
		stop.kind = stop.signal == SIGTRAP ? TRACEE_EVENT : TRACEE_GROUP;
	else if (status >> 16 == 0)
		stop.kind = stop.signal == SYSCALL_STOP ? TRACEE_SYSCALL : TRACEE_SIGNAL;
	return stop;
}

/* RUNNING: it has not stopped (WNOHANG), or a signal came. GONE: it is nobody's tracee any more. */
static struct tracee_stop wait_once(pid_t tid, int flags)
{
	int status;
	pid_t got = waitpid(tid, &status, __WALL | flags);

	if (got == tid)
		return decode(status);
	return (struct tracee_stop){
		.kind = got < 0 && errno == ECHILD ? TRACEE_GONE : TRACEE_RUNNING,
	};
}

struct tracee_stop tracee_poll(pid_t tid)
{
	return wait_once(tid, WNOHANG);
}

static void wait_for_sigchld(uint64_t at_most_ns)
{
	struct timespec slice = {
		.tv_nsec = (long)(at_most_ns < SLICE_NS ? at_most_ns : SLICE_NS),
	};
	sigset_t set;

	sigchld_set(&set);
	sigtimedwait(&set, NULL, &slice);
}

/* Look until it stops, or has used up its time: then it has to be waited for asleep. */
static struct tracee_stop watch(struct tracer *tracer, pid_t tid)
{
	uint64_t end = tracee_now_ns() + WATCH_NS;
	struct tracee_stop stop;

	do
		stop = tracee_poll(tid);
	while (stop.kind == TRACEE_RUNNING && tracee_now_ns() < end);
	tracer->watches = stop.kind != TRACEE_RUNNING;
	return stop;
}

struct tracee_stop tracee_wait(struct tracer *tracer, pid_t tid, uint64_t deadline)
{
	if (tracer->watches && tracee_now_ns() + WATCH_NS < deadline) {
		struct tracee_stop stop = watch(tracer, tid);

		if (stop.kind != TRACEE_RUNNING)
			return stop;
	}
	for (;;) {
		uint64_t now = tracee_now_ns();
		bool coarse = tracer->has_tick && now + 2 * TICK_NS < deadline;
		struct tracee_stop stop = wait_once(tid, coarse ? 0 : WNOHANG);

		if (stop.kind != TRACEE_RUNNING || now >= deadline)
			return stop;
		tracer_release(tracer);
		if (!coarse)
			wait_for_sigchld(deadline - now);
	}
}

/* ---- requests */

struct error *tracee_seize(pid_t tid)
{
	if (request(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACESYSGOOD) == 0)
		return NULL;
	return failed(tid, "trace");
}

struct error *tracee_interrupt(pid_t tid)
{
	return request(PTRACE_INTERRUPT, tid, 0, 0) == 0 ? NULL : failed(tid, "interrupt");
}

struct error *tracee_continue(pid_t tid, int signal)
{
	return request(PTRACE_CONT, tid, 0, (uintptr_t)signal) == 0 ? NULL
								    : failed(tid, "continue");
}

struct error *tracee_continue_syscall(pid_t tid, int signal)
{
	return request(PTRACE_SYSCALL, tid, 0, (uintptr_t)signal) == 0 ? NULL
								       : failed(tid, "continue");
}

struct error *tracee_detach(pid_t tid, int signal)
{
	return request(PTRACE_DETACH, tid, 0, (uintptr_t)signal) == 0 ? NULL
								      : failed(tid, "detach from");
}

struct error *tracee_suspend_seccomp(pid_t tid, bool suspend)
{
	uintptr_t options = PTRACE_O_TRACESYSGOOD;

	if (suspend)
		options |= PTRACE_O_SUSPEND_SECCOMP;
	if (request(PTRACE_SETOPTIONS, tid, 0, options) == 0)
		return NULL;
	return failed(tid, "suspend the seccomp filter of");
}

struct error *tracee_get_registers(pid_t tid, struct arch_registers *ret)
{
	struct iovec iov = {.iov_base = ret->word, .iov_len = sizeof(ret->word)};

	if (request(PTRACE_GETREGSET, tid, NT_PRSTATUS, (uintptr_t)&iov) != 0)
		return failed(tid, "read the registers of");
	ret->size = iov.iov_len;
	return NULL;
}

static struct error *set_regset(pid_t tid, unsigned int note, const void *data, size_t size)
{
	struct iovec iov = {.iov_base = (void *)data, .iov_len = size};

	if (request(PTRACE_SETREGSET, tid, note, (uintptr_t)&iov) != 0)
		return failed(tid, "write the registers of");
	return NULL;
}

struct error *tracee_set_registers(pid_t tid, const struct arch_registers *registers)
{
	return set_regset(tid, NT_PRSTATUS, registers->word, registers->size);
}

struct error *tracee_get_vector(pid_t tid, uint8_t *buf, size_t *size_ret)
{
	struct iovec iov = {.iov_base = buf, .iov_len = ARCH_VECTOR_MAX};

	if (request(PTRACE_GETREGSET, tid, arch_vector_note, (uintptr_t)&iov) != 0)
		return failed(tid, "read the vector registers of");
	*size_ret = iov.iov_len;
	return NULL;
}

struct error *tracee_set_vector(pid_t tid, const uint8_t *buf, size_t size)
{
	return set_regset(tid, arch_vector_note, buf, size);
}

bool tracee_has_shadow_stack(pid_t tid)
{
	uint64_t pointer;
	struct iovec iov = {.iov_base = &pointer, .iov_len = sizeof(pointer)};

	return arch_shadow_stack_note &&
	       request(PTRACE_GETREGSET, tid, arch_shadow_stack_note, (uintptr_t)&iov) == 0;
}

struct error *tracee_get_mask(pid_t tid, uint64_t *ret)
{
	if (request(PTRACE_GETSIGMASK, tid, sizeof(*ret), (uintptr_t)ret) != 0)
		return failed(tid, "read the signal mask of");
	return NULL;
}

struct error *tracee_set_mask(pid_t tid, uint64_t mask)
{
	if (request(PTRACE_SETSIGMASK, tid, sizeof(mask), (uintptr_t)&mask) != 0)
		return failed(tid, "write the signal mask of");
	return NULL;
}

struct error *tracee_get_siginfo(pid_t tid, siginfo_t *ret)
{
	if (request(PTRACE_GETSIGINFO, tid, 0, (uintptr_t)ret) != 0)
		return failed(tid, "read a signal of");
	return NULL;
}

uint64_t tracee_rseq(pid_t tid, uint32_t *signature_ret)
{
	struct __ptrace_rseq_configuration config = {0};

	if (request(PTRACE_GET_RSEQ_CONFIGURATION, tid, sizeof(config), (uintptr_t)&config) < 0)
		return 0;
	*signature_ret = config.signature;
	return config.rseq_abi_pointer;
}

struct tracee_dispatch tracee_get_dispatch(pid_t tid)
{
	struct tracee_dispatch dispatch = {0};

	if (request(GET_SYSCALL_USER_DISPATCH_CONFIG, tid, sizeof(dispatch),
		    (uintptr_t)&dispatch) != 0)
		return (struct tracee_dispatch){0};
	return dispatch;
}

struct error *tracee_set_dispatch(pid_t tid, const struct tracee_dispatch *dispatch)
{
	if (request(SET_SYSCALL_USER_DISPATCH_CONFIG, tid, sizeof(*dispatch),
		    (uintptr_t)dispatch) != 0)
		return failed(tid, "change the system call dispatch of");
	return NULL;
}

struct error *tracee_poke(pid_t tid, uint64_t address, uint64_t word)
{
	return request(PTRACE_POKEDATA, tid, address, word) == 0 ? NULL
								 : failed(tid, "write memory of");
}
