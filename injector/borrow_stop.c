// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/borrow_private.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

static struct error *thread_gone(struct borrow *borrow)
{
	struct error *err = target_check(borrow->target);

	borrow->stop.kind = TRACEE_GONE;
	if (err)
		return error_prefix(err, "thread %d", borrow->tid);
	return error_create(ERROR_GONE, "thread %d of process %d has ended", borrow->tid,
			    target_pid(borrow->target));
}

struct error *borrow_next_stop(struct borrow *borrow, uint64_t deadline)
{
	bool watched = tracer_watches(borrow->tracer);

	borrow->stop = tracee_wait(borrow->tracer, borrow->tid, deadline);
	/* In vain: has T come to our processor, or was it only a long call? */
	if (watched && !tracer_watches(borrow->tracer))
		borrow_watch_if_apart(borrow);
	switch (borrow->stop.kind) {
	case TRACEE_GONE:
		return thread_gone(borrow);
	case TRACEE_RUNNING: {
		struct error *err = target_check(borrow->target);

		if (err)
			return error_prefix(err, "thread %d", borrow->tid);
		return error_create(ERROR_TIMEOUT, "thread %d of process %d did not stop in time",
				    borrow->tid, target_pid(borrow->target));
	}
	case TRACEE_GROUP:
		borrow->stats.group_stopped = true;
		return NULL;
	default:
		return NULL;
	}
}

/*
 * The kernel raised it because of what T did. Codes of kill, sigqueue, timers
 * and their like are 0 or less; a memory error found by the scrubber may be
 * anywhere.
 */
static bool is_raised(const siginfo_t *info)
{
	return info->si_code > 0 && !(info->si_signo == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

static struct error *fault(const struct borrow *borrow, const siginfo_t *info)
{
	struct arch_registers registers;
	struct borrow_registers view = {0};
	struct error *err = tracee_get_registers(borrow->tid, &registers);

	if (err)
		return err;
	arch_registers_view(&registers, &view);
	return error_create(ERROR_FAULT,
			    "code run on thread %d raised SIG%s (code %d) at pc 0x%" PRIx64
			    ", address 0x%" PRIxPTR,
			    borrow->tid, sigabbrev_np(info->si_signo), info->si_code, view.pc,
			    (uintptr_t)info->si_addr);
}

/*
 * Of the signals that may arrive, SIGSTOP cannot be blocked: delivered at
 * once, it stops the other threads as always, and T in a TRACEE_GROUP, from
 * which it goes on for us. One of the unblocked six that somebody sent waits:
 * delivered while blocked, the kernel puts it back into the queue with all
 * that it carries. Any other one shows that T has its own mask again: it has
 * restored itself, and the signal is its own.
 */
struct error *borrow_handle_stop(struct borrow *borrow, int *deliver_ret)
{
	uint64_t bit, mask;
	siginfo_t info;
	struct error *err;

	*deliver_ret = 0;
	if (borrow->stop.kind != TRACEE_SIGNAL)
		return NULL;
	*deliver_ret = borrow->stop.signal;
	bit = UINT64_C(1) << (borrow->stop.signal - 1);
	if (borrow->own || borrow->stop.signal == SIGSTOP || (borrow_run_mask(borrow) & bit))
		return NULL;
	err = tracee_get_siginfo(borrow->tid, &info);
	if (err)
		return err;
	if (is_raised(&info)) {
		*deliver_ret = 0;
		return fault(borrow, &info);
	}
	borrow->held |= bit;
	err = tracee_get_mask(borrow->tid, &mask);
	return err ? err : tracee_set_mask(borrow->tid, mask | bit);
}

static bool is_event(const struct borrow *borrow)
{
	return borrow->stop.kind == TRACEE_EVENT || borrow->stop.kind == TRACEE_GROUP;
}

/*
 * A stop of any kind takes back a pending interrupt, so it is asked for again
 * before T goes on from another one.
 */
static struct error *on_to_event(struct borrow *borrow, int deliver, uint64_t deadline)
{
	struct error *err = tracee_interrupt(borrow->tid);

	if (!err && borrow->stop.kind != TRACEE_RUNNING)
		err = tracee_continue(borrow->tid, deliver);
	if (!err)
		err = borrow_next_stop(borrow, deadline);
	return err;
}

struct error *borrow_reach_event(struct borrow *borrow, uint64_t deadline)
{
	struct error *err = NULL;
	int deliver = 0;

	while (!err && !is_event(borrow)) {
		err = on_to_event(borrow, deliver, deadline);
		if (!err)
			err = borrow_handle_stop(borrow, &deliver);
	}
	return err;
}

struct error *borrow_reach_own_event(struct borrow *borrow, uint64_t deadline, bool *delivered_ret)
{
	struct error *err = NULL;
	int deliver = 0;

	*delivered_ret = false;
	while (!err && !is_event(borrow)) {
		err = on_to_event(borrow, deliver, deadline);
		deliver = borrow->stop.kind == TRACEE_SIGNAL ? borrow->stop.signal : 0;
		if (deliver && deliver != SIGSTOP)
			*delivered_ret = true;
	}
	return err;
}
