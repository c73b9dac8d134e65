// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/borrow_private.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "injector/threads.h"
#include "resolver/cleanup.h"

void borrow_pin(const struct target *target, pid_t tid)
{
	struct thread thread;
	struct error *err = thread_read(target, tid, &thread);
	cpu_set_t set;

	if (err) {
		error_free(err);
		return;
	}
	CPU_ZERO(&set);
	CPU_SET(thread.cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* ---- what was found */

pid_t borrow_tid(const struct borrow *borrow)
{
	return borrow->tid;
}

const struct borrow_registers *borrow_registers(const struct borrow *borrow)
{
	return &borrow->view;
}

bool borrow_is_group_stopped(const struct borrow *borrow)
{
	return borrow->stop.kind == TRACEE_GROUP;
}

bool borrow_is_apart(const struct borrow *borrow)
{
	return tracer_watches(borrow->tracer);
}

uint64_t borrow_stopped_ns(const struct borrow *borrow)
{
	return tracee_now_ns() - borrow->stopped_at_ns;
}

enum borrow_seccomp borrow_seccomp(const struct borrow *borrow)
{
	return borrow->seccomp;
}

void borrow_allow_filtered(struct borrow *borrow)
{
	borrow->allow_filtered = true;
}

/* ---- begin */

static void borrow_free(struct borrow *borrow)
{
	tracer_end(borrow->tracer);
	free(borrow->vector);
	free(borrow);
}

/* A target without it is borrowed from all the same. */
static struct error *load_guard_code(struct borrow *borrow)
{
	struct error *err = target_guard_code(borrow->target, &borrow->guard_code);

	if (!error_is(err, ERROR_NOT_FOUND))
		return err;
	error_free(err);
	return NULL;
}

/* Everything that need not happen while T is stopped. */
static struct error *borrow_create(struct target *target, pid_t tid, struct borrow **ret)
{
	struct borrow *borrow = calloc(1, sizeof(*borrow));
	struct thread_status status;
	struct error *err;

	if (!borrow)
		return error_memory();
	borrow->target = target;
	borrow->tracer = target_tracer(target);
	borrow->tid = tid;
	borrow->own = true;
	tracer_begin(borrow->tracer);
	tracer_release(borrow->tracer);
	borrow->vector = malloc(ARCH_VECTOR_MAX);
	err = borrow->vector ? NULL : error_memory();
	if (!err)
		err = target_gadget(target, &borrow->gadget);
	if (!err)
		err = load_guard_code(borrow);
	if (!err)
		err = thread_read_status(target, tid, &status);
	if (err) {
		borrow_free(borrow);
		return err;
	}
	/* No page fault of ours later. */
	memset(borrow->vector, 0, ARCH_VECTOR_MAX);
	borrow->seccomp = (enum borrow_seccomp)status.seccomp;
	*ret = borrow;
	return NULL;
}

/* The name of process @pid, of which no byte is to be trusted. */
static void process_name(pid_t pid, char *name, size_t size)
{
	CLEANUP(fclosep) FILE *file = NULL;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	file = fopen(path, "re");
	if (!file || !fgets(name, (int)size, file))
		snprintf(name, size, "unknown");
	name[strcspn(name, "\n")] = '\0';
	for (char *c = name; *c; c++) {
		if (!isprint((unsigned char)*c))
			*c = '?';
	}
}

/* Why may we not? @err is what the kernel said. */
static struct error *seize_failed(const struct borrow *borrow, struct error *err)
{
	pid_t pid = target_pid(borrow->target);
	struct thread_status status;
	struct error *ignored;
	char name[65];

	if (!error_is(err, ERROR_DENIED))
		return err;
	ignored = thread_read_status(borrow->target, borrow->tid, &status);
	if (ignored || !status.tracer) {
		error_free(ignored);
		return target_denied(err);
	}
	error_free(err);
	process_name(status.tracer, name, sizeof(name));
	err = error_create(ERROR_BUSY,
			   "thread %d of process %d is already traced by %s (process %d)",
			   borrow->tid, pid, name, status.tracer);
	return error_hint(err, "end %s, or wait until it lets the process go", name);
}

static struct error *not_stopped(const struct borrow *borrow, struct error *err,
				 unsigned int timeout_ms)
{
	struct thread thread = {.state = '?'};

	tracer_abandon(borrow->tracer, borrow->tid);
	error_free(err);
	error_free(thread_read(borrow->target, borrow->tid, &thread));
	return error_create(ERROR_TIMEOUT,
			    "thread %d of process %d did not stop within %u ms: its state is %c",
			    borrow->tid, target_pid(borrow->target), timeout_ms, thread.state);
}

/* What may be wrong with a thread that has just stopped. */
static struct error *inspect(struct borrow *borrow)
{
	uint8_t found[ARCH_SYSCALL_SIZE_MAX];
	const char *refused;
	struct error *err;

	err = tracee_get_registers(borrow->tid, &borrow->saved);
	if (err)
		return err;
	refused = arch_registers_refused(&borrow->saved);
	if (refused)
		return error_create(ERROR_UNSUPPORTED, "thread %d of process %d runs %s",
				    borrow->tid, target_pid(borrow->target), refused);
	arch_registers_view(&borrow->saved, &borrow->view);
	/* Also how we learn that the process has become another program. */
	err = target_read(borrow->target, borrow->gadget, found, arch_syscall_instruction_size);
	if (!err && memcmp(found, arch_syscall_instruction, arch_syscall_instruction_size) != 0)
		err = error_create(ERROR_UNSUPPORTED,
				   "process %d has no system call where its vDSO had one",
				   target_pid(borrow->target));
	return err ? err : borrow_plan_rest(borrow);
}

/* The kernel wakes it where it likes: on our processor, or on one that has nothing to do. */
void borrow_watch_if_apart(struct borrow *borrow)
{
	struct thread thread;
	struct error *err = thread_read(borrow->target, borrow->tid, &thread);

	tracer_watch(borrow->tracer, !err && thread.cpu != sched_getcpu());
	error_free(err);
}

/* From seized and running to stopped. */
static struct error *stop_first(struct borrow *borrow, unsigned int timeout_ms)
{
	struct thread thread;
	struct error *err, *lost;
	bool delivered;

	/* Thread numbers are used again: is what we have seized still of this process? */
	lost = thread_read(borrow->target, borrow->tid, &thread);
	if (!lost && !target_is_alive(borrow->target))
		lost = target_check(borrow->target);
	err = borrow_reach_own_event(borrow, tracee_deadline(timeout_ms), &delivered);
	borrow->stopped_at_ns = tracee_now_ns();
	if (error_is(err, ERROR_TIMEOUT))
		err = not_stopped(borrow, err, timeout_ms);
	if (err) {
		error_free(lost);
		return err;
	}
	borrow_watch_if_apart(borrow);
	err = lost ? lost : inspect(borrow);
	if (err)
		error_free(tracee_detach(borrow->tid, 0));
	return err;
}

struct error *borrow_begin(struct target *target, pid_t tid, unsigned int timeout_ms,
			   struct borrow **ret)
{
	struct borrow *borrow = NULL;
	struct error *err;

	err = borrow_create(target, tid, &borrow);
	if (err)
		return err;
	err = tracee_seize(tid);
	if (err)
		err = seize_failed(borrow, err);
	else
		err = stop_first(borrow, timeout_ms);
	if (err) {
		borrow_free(borrow);
		return err;
	}
	*ret = borrow;
	return NULL;
}

/* ---- end */

static struct error *hand_back(struct borrow *borrow, uint64_t deadline)
{
	struct error *err = NULL;
	bool delivered = false;

	if (borrow->stop.kind == TRACEE_RUNNING) {
		err = borrow_reach_event(borrow, deadline);
		/* It is stopped, and what it raised last is of no interest any more. */
		if (error_is(err, ERROR_FAULT)) {
			error_free(err);
			err = NULL;
		}
	}
	if (!err)
		err = borrow_settle(borrow);
	/*
	 * In the stop at the exit from a call of ours the kernel has already
	 * decided that nothing is to be restarted: T would see errno 512.
	 */
	if (!err)
		err = borrow_reach_own_event(borrow, deadline, &delivered);
	if (!err && !delivered)
		err = borrow_finish_registers(borrow);
	return err;
}

static struct error *borrow_finish(struct borrow *borrow, struct error *err, int deliver,
				   struct borrow_stats *stats)
{
	if (!err)
		err = tracee_detach(borrow->tid, deliver);
	borrow->stats.stopped_ns = borrow_stopped_ns(borrow);
	if (error_is(err, ERROR_TIMEOUT))
		tracer_abandon(borrow->tracer, borrow->tid);
	if (stats)
		*stats = borrow->stats;
	borrow_free(borrow);
	return err;
}

struct error *borrow_end(struct borrow *borrow, struct borrow_stats *stats)
{
	struct error *err;

	if (borrow->stop.kind == TRACEE_GONE)
		err = error_create(ERROR_GONE, "thread %d of process %d has ended", borrow->tid,
				   target_pid(borrow->target));
	else
		err = hand_back(borrow, tracee_deadline(BORROW_STEP_TIMEOUT_MS));
	return borrow_finish(borrow, err, 0, stats);
}

/*
 * T is on its own again: what it is now is what it shall be. But for a signal
 * that was blocked to be kept, when T was not ours any more.
 */
static struct error *adopt_state(struct borrow *borrow)
{
	uint64_t kept = borrow->held & ~borrow->mask;
	struct error *err;

	err = tracee_get_registers(borrow->tid, &borrow->saved);
	if (!err)
		err = borrow_plan_rest(borrow);
	if (!err)
		err = tracee_get_mask(borrow->tid, &borrow->mask);
	if (!err && (borrow->mask & kept)) {
		borrow->mask &= ~kept;
		err = tracee_set_mask(borrow->tid, borrow->mask);
	}
	borrow->disturbed = false;
	return err;
}

struct error *borrow_let_go(struct borrow *borrow, struct borrow_stats *stats)
{
	uint64_t deadline = tracee_deadline(BORROW_STEP_TIMEOUT_MS);
	struct error *err = NULL;
	bool delivered;
	int deliver = 0;

	borrow->own = true;
	if (borrow->stop.kind == TRACEE_SIGNAL)
		deliver = borrow->stop.signal;
	else
		err = borrow_reach_own_event(borrow, deadline, &delivered);
	if (!err && !deliver)
		err = adopt_state(borrow);
	if (!err && !deliver)
		err = borrow_finish_registers(borrow);
	return borrow_finish(borrow, err, deliver, stats);
}
