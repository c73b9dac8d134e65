// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/borrow_private.h"

#include <inttypes.h>
#include <string.h>
#include <sys/syscall.h>

/* ---- system calls */

static struct error *expect_stopped(const struct borrow *borrow)
{
	if (borrow->stop.kind == TRACEE_GONE)
		return error_create(ERROR_GONE, "thread %d of process %d has ended", borrow->tid,
				    target_pid(borrow->target));
	if (borrow->stop.kind == TRACEE_RUNNING)
		return error_create(ERROR_BUSY, "thread %d is still running for us", borrow->tid);
	return NULL;
}

/*
 * From the stop before to the stop after the call. Stops of other kinds come
 * before the entry only; the registers are then set again, since the kernel
 * has looked at them.
 */
static struct error *step_through(struct borrow *borrow, struct arch_registers *registers,
				  uint64_t deadline)
{
	bool entered = false;
	int deliver = 0;

	for (;;) {
		struct error *err = tracee_continue_syscall(borrow->tid, deliver);

		if (!err)
			err = borrow_next_stop(borrow, deadline);
		if (!err)
			err = borrow_handle_stop(borrow, &deliver);
		if (!err && borrow->stop.kind == TRACEE_SYSCALL) {
			if (entered)
				return tracee_get_registers(borrow->tid, registers);
			entered = true;
		} else if (!err && !entered) {
			err = tracee_set_registers(borrow->tid, registers);
		}
		if (err)
			return err;
	}
}

static struct error *make_call(struct borrow *borrow, long number, const uint64_t args[6],
			       int64_t *ret)
{
	uint64_t deadline = tracee_deadline(BORROW_STEP_TIMEOUT_MS);
	struct arch_registers registers;
	struct error *err;

	/* A SIGSTOP or news of job control interrupts a call as any signal would. */
	do {
		if (tracee_now_ns() > deadline)
			return error_create(ERROR_TIMEOUT, "thread %d was interrupted all the time",
					    borrow->tid);
		registers = borrow->saved;
		if (borrow->guard_sp) {
			arch_set_syscall(&registers, borrow->guard_code.call_return, number, args);
			arch_guard_syscall(&registers, borrow->guard_sp);
		} else {
			arch_set_syscall(&registers, borrow->gadget, number, args);
		}
		err = borrow_take_over(borrow, &registers);
		if (!err)
			err = step_through(borrow, &registers, deadline);
		if (err)
			return err;
	} while (arch_interrupted(&registers) != ARCH_NOT_INTERRUPTED);
	*ret = arch_syscall_result(&registers);
	borrow->stats.syscalls++;
	return NULL;
}

/* ERROR_DENIED: the filter is in force, and nobody has said that the call will pass. */
static struct error *suspend_filter(struct borrow *borrow, long number)
{
	struct error *err;

	if (borrow->seccomp == BORROW_SECCOMP_NONE)
		return NULL;
	err = tracee_suspend_seccomp(borrow->tid, true);
	if (!err || error_is(err, ERROR_GONE))
		return err;
	error_free(err);
	if (borrow->allow_filtered)
		return NULL;
	err = error_create(ERROR_DENIED,
			   "thread %d of process %d has a seccomp filter, which may not allow "
			   "system call %ld",
			   borrow->tid, target_pid(borrow->target), number);
	return error_hint(err, "run as root, outside of any seccomp filter, so that it can be "
			       "suspended");
}

/* T is stopped after a call. In a guarded one it would restore itself if we died: that will do. */
static struct error *leave_call(struct borrow *borrow)
{
	struct error *err = NULL;

	if (!borrow->guard_sp)
		err = borrow_settle(borrow);
	if (!err && borrow->seccomp != BORROW_SECCOMP_NONE)
		err = tracee_suspend_seccomp(borrow->tid, false);
	return err;
}

static struct error *call_begin(struct borrow *borrow, long number)
{
	struct error *err = expect_stopped(borrow);

	if (!err)
		err = borrow_disturb(borrow);
	return err ? err : suspend_filter(borrow, number);
}

/* @err: of the call itself. */
static struct error *call_end(struct borrow *borrow, struct error *err)
{
	struct error *left;

	if (borrow->stop.kind == TRACEE_RUNNING || borrow->stop.kind == TRACEE_GONE)
		return err;
	left = leave_call(borrow);
	if (!err)
		return left;
	error_free(left);
	return err;
}

struct error *borrow_syscall(struct borrow *borrow, long number, const uint64_t args[6],
			     int64_t *ret)
{
	struct error *err = call_begin(borrow, number);

	if (err)
		return err;
	err = make_call(borrow, number, args, ret);
	if (err)
		err = error_prefix(err, "system call %ld", number);
	return call_end(borrow, err);
}

/*
 * A call that changes nothing tells that the word is changed. Should T be stopped in
 * between and begin anew, the word is not what is expected any more.
 */
struct error *borrow_change(struct borrow *borrow, uint64_t pc, uint64_t address, uint64_t expected,
			    uint64_t value)
{
	struct arch_registers registers;
	struct error *err = call_begin(borrow, SYS_getpid);

	if (err)
		return err;
	registers = borrow->saved;
	arch_set_change(&registers, pc, address, expected, value, SYS_getpid);
	if (borrow->guard_sp)
		arch_guard_syscall(&registers, borrow->guard_sp);
	err = borrow_take_over(borrow, &registers);
	if (!err)
		err = step_through(borrow, &registers, tracee_deadline(BORROW_STEP_TIMEOUT_MS));
	return call_end(borrow, err);
}

/* ---- running code */

struct error *borrow_run(struct borrow *borrow, uint64_t pc, uint64_t sp, uint64_t argument)
{
	struct arch_registers registers;
	struct error *err;

	err = expect_stopped(borrow);
	if (err)
		return err;
	if (tracee_has_shadow_stack(borrow->tid))
		return error_create(ERROR_UNSUPPORTED,
				    "thread %d of process %d has a shadow stack, on which no code "
				    "of ours can run",
				    borrow->tid, target_pid(borrow->target));
	err = borrow_disturb(borrow);
	if (!err)
		err = borrow_settle(borrow);
	if (!err)
		err = borrow_save_vector(borrow);
	if (err)
		return err;
	registers = borrow->saved;
	arch_set_call(&registers, pc, sp, argument);
	borrow->vector_dirty = true;
	err = borrow_take_over(borrow, &registers);
	if (!err)
		err = tracee_continue(borrow->tid, 0);
	if (!err)
		borrow->stop.kind = TRACEE_RUNNING;
	return err;
}

/* T goes on from each stop that is none of ours. */
static struct error *wait_until(struct borrow *borrow, uint64_t deadline, bool *stopped_ret)
{
	struct error *err = NULL;
	int deliver;

	while (!err) {
		borrow->stop = tracee_wait(borrow->tracer, borrow->tid, deadline);
		if (borrow->stop.kind == TRACEE_RUNNING) {
			/* An exec by another thread ends T without a report to us. */
			err = target_check(borrow->target);
			if (err)
				borrow->stop.kind = TRACEE_GONE;
			else
				*stopped_ret = false;
			return err;
		}
		if (borrow->stop.kind == TRACEE_GONE)
			return expect_stopped(borrow);
		if (borrow->stop.kind == TRACEE_GROUP)
			borrow->stats.group_stopped = true;
		err = borrow_handle_stop(borrow, &deliver);
		if (error_is(err, ERROR_FAULT)) {
			*stopped_ret = true;
			return err;
		}
		if (!err)
			err = tracee_continue(borrow->tid, deliver);
	}
	return err;
}

struct error *borrow_wait(struct borrow *borrow, unsigned int timeout_ms, bool *stopped_ret)
{
	if (borrow->stop.kind == TRACEE_RUNNING)
		return wait_until(borrow, tracee_deadline(timeout_ms), stopped_ret);
	*stopped_ret = true;
	return expect_stopped(borrow);
}

struct error *borrow_poll(struct borrow *borrow, bool *stopped_ret)
{
	return borrow_wait(borrow, 0, stopped_ret);
}

struct error *borrow_stop_again(struct borrow *borrow, unsigned int timeout_ms)
{
	if (borrow->stop.kind != TRACEE_RUNNING)
		return expect_stopped(borrow);
	return borrow_reach_event(borrow, tracee_deadline(timeout_ms));
}

/* ---- memory, where the memory file may not be written */

static struct error *poke_bytes(struct borrow *borrow, uint64_t address, const uint8_t *bytes,
				size_t size)
{
	for (size_t done = 0; done < size;) {
		uint64_t at = (address + done) & ~UINT64_C(7);
		size_t skip = (size_t)(address + done - at);
		size_t part = size - done < 8 - skip ? size - done : 8 - skip;
		struct error *err;
		uint64_t word;

		err = target_read(borrow->target, at, &word, sizeof(word));
		if (err)
			return err;
		memcpy((uint8_t *)&word + skip, bytes + done, part);
		err = tracee_poke(borrow->tid, at, word);
		if (err)
			return error_prefix(err, "address 0x%" PRIx64, at);
		done += part;
	}
	return NULL;
}

struct error *borrow_write(struct borrow *borrow, uint64_t address, const void *buf, size_t size)
{
	struct error *err = target_write(borrow->target, address, buf, size);

	if (!error_is(err, ERROR_NOT_FOUND))
		return err;
	error_free(err);
	err = expect_stopped(borrow);
	return err ? err : poke_bytes(borrow, address, buf, size);
}
