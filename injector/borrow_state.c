// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/borrow_private.h"

#include <signal.h>
#include <string.h>

#include "injector/threads.h"

#define SIGNAL_BIT(signal) (UINT64_C(1) << ((signal)-1))

/*
 * Signals that an instruction can raise. One that is blocked when it is raised
 * makes the kernel reset the program's handler for it.
 */
#define RAISED_SIGNALS                                                                        \
	(SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGBUS) | SIGNAL_BIT(SIGFPE) | SIGNAL_BIT(SIGILL) | \
	 SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGSYS))

/* include/uapi/linux/rseq.h */
#define RSEQ_CS_OFFSET 8u /* of struct rseq.rseq_cs */
struct rseq_section {
	uint32_t version, flags;
	uint64_t start, length, abort;
};

uint64_t borrow_run_mask(const struct borrow *borrow)
{
	return ~RAISED_SIGNALS | borrow->held;
}

/* ---- restartable sequences */

static struct error *rseq_load(struct borrow *borrow)
{
	struct error *err;

	if (borrow->rseq_known)
		return NULL;
	borrow->rseq = tracee_rseq(borrow->tid, &borrow->rseq_signature);
	if (borrow->rseq) {
		err = target_read(borrow->target, borrow->rseq + RSEQ_CS_OFFSET, &borrow->rseq_cs,
				  sizeof(borrow->rseq_cs));
		if (err)
			return error_prefix(err, "thread %d's rseq area", borrow->tid);
	}
	borrow->rseq_known = true;
	return NULL;
}

struct error *borrow_rseq_cs(struct borrow *borrow, uint64_t *ret)
{
	struct error *err = rseq_load(borrow);

	if (!err)
		*ret = borrow->rseq_cs;
	return err;
}

/* T's pc lies in a valid section: where the kernel would send it. 0 = it does not. */
static struct error *rseq_abort_address(const struct borrow *borrow, uint64_t *ret)
{
	struct rseq_section section;
	uint32_t signature;
	struct error *err;

	*ret = 0;
	if (!borrow->rseq_cs)
		return NULL;
	err = target_read(borrow->target, borrow->rseq_cs, &section, sizeof(section));
	if (!err && borrow->view.pc - section.start < section.length) {
		err = target_read(borrow->target, section.abort - sizeof(signature), &signature,
				  sizeof(signature));
		if (!err && signature == borrow->rseq_signature)
			*ret = section.abort;
	}
	if (error_is(err, ERROR_NOT_FOUND)) {
		/* The kernel kills a thread with a bad descriptor; not our business. */
		error_free(err);
		err = NULL;
	}
	return err;
}

/*
 * The kernel aborts a section when the thread was preempted in it. It would
 * not see that: it looks at the pc when the thread goes on, which will be
 * ours. First the register, then the word: whatever is undone, T aborts.
 */
static struct error *rseq_abort(struct borrow *borrow)
{
	const uint64_t none = 0;
	struct error *err = rseq_load(borrow);
	uint64_t abort;

	if (!err)
		err = rseq_abort_address(borrow, &abort);
	if (err || !abort)
		return err;
	/* Within a section there are no system calls: saved and rest are the same. */
	arch_set_pc(&borrow->saved, abort);
	borrow->rest = borrow->saved;
	err = tracee_set_registers(borrow->tid, &borrow->saved);
	if (!err)
		err = target_write(borrow->target, borrow->rseq + RSEQ_CS_OFFSET, &none,
				   sizeof(none));
	borrow->stats.rseq_aborted = true;
	return err;
}

/* ---- taking over and giving back */

static struct error *load_mask(struct borrow *borrow)
{
	struct error *err;

	if (borrow->mask_known)
		return NULL;
	err = tracee_get_mask(borrow->tid, &borrow->mask);
	borrow->mask_known = !err;
	return err;
}

struct error *borrow_disturb(struct borrow *borrow)
{
	struct error *err;

	if (borrow->disturbed)
		return NULL;
	err = load_mask(borrow);
	if (!err)
		err = rseq_abort(borrow);
	if (err)
		return err;
	borrow->dispatch = tracee_get_dispatch(borrow->tid);
	borrow->disturbed = true;
	borrow->stats.ran = true;
	return NULL;
}

struct error *borrow_save_vector(struct borrow *borrow)
{
	if (borrow->vector_size)
		return NULL;
	return tracee_get_vector(borrow->tid, borrow->vector, &borrow->vector_size);
}

/*
 * The registers are the switch, first here and last in borrow_settle(): should
 * our process be killed in between, T runs either our code, or its own with
 * all that belongs to it.
 */
struct error *borrow_take_over(struct borrow *borrow, const struct arch_registers *registers)
{
	const struct tracee_dispatch off = {0};
	struct error *err;

	borrow->own = false;
	err = tracee_set_registers(borrow->tid, registers);
	if (err || borrow->masked)
		return err;
	borrow->masked = true;
	err = tracee_set_mask(borrow->tid, borrow_run_mask(borrow));
	if (!err && borrow->dispatch.mode)
		err = tracee_set_dispatch(borrow->tid, &off);
	return err;
}

/*
 * After each unguarded call and each run, not just at the end: T shall be its
 * own while it is merely stopped.
 */
struct error *borrow_settle(struct borrow *borrow)
{
	struct error *err = NULL;

	if (borrow->own)
		return NULL;
	if (borrow->dispatch.mode)
		err = tracee_set_dispatch(borrow->tid, &borrow->dispatch);
	if (!err)
		err = tracee_set_mask(borrow->tid, borrow->mask);
	if (!err && borrow->vector_dirty)
		err = tracee_set_vector(borrow->tid, borrow->vector, borrow->vector_size);
	if (!err)
		err = tracee_set_registers(borrow->tid, &borrow->rest);
	if (err)
		return err;
	borrow->vector_dirty = false;
	borrow->masked = false;
	borrow->own = true;
	return NULL;
}

/* ---- the last word */

struct error *borrow_plan_rest(struct borrow *borrow)
{
	uint8_t found[ARCH_SYSCALL_SIZE_MAX];
	struct error *err;

	borrow->rest = borrow->saved;
	borrow->remade = false;
	if (arch_interrupted(&borrow->saved) != ARCH_RETURNS_EINTR)
		return NULL;
	/* A 32-bit call made by 64-bit code has other numbers and another instruction. */
	err = target_read(borrow->target, arch_syscall_address(&borrow->saved), found,
			  arch_syscall_instruction_size);
	if (err || memcmp(found, arch_syscall_instruction, arch_syscall_instruction_size) != 0)
		return err;
	arch_remake_syscall(&borrow->rest);
	borrow->remade = true;
	return tracee_set_registers(borrow->tid, &borrow->rest);
}

/*
 * Only now, in a stop where it still decides on that, may the kernel be told to make
 * a call anew unless a handler runs: a signal may come until T goes on. Where T made
 * no call for us, the mask of epoll_pwait and its like is still in force.
 */
struct error *borrow_finish_registers(struct borrow *borrow)
{
	struct arch_registers registers = borrow->rest;

	if (!borrow->remade && !borrow->disturbed)
		return NULL;
	if (borrow->remade) {
		registers = borrow->saved;
		arch_restart_unless_handled(&registers);
	}
	borrow->stats.taken_back = borrow->remade;
	return tracee_set_registers(borrow->tid, &registers);
}

/* ---- frames for rt_sigreturn */

/* *size_ret == 0: @buf is too small. */
static struct error *build_frame(struct borrow *borrow, uint64_t sigreturn, void *buf, size_t size,
				 uint64_t remote_address, size_t *size_ret, uint64_t *sp_ret)
{
	struct arch_registers registers;
	struct error *err;

	err = borrow_disturb(borrow);
	if (!err)
		err = borrow_save_vector(borrow);
	if (err)
		return err;
	registers = borrow->saved;
	if (arch_interrupted(&registers) != ARCH_NOT_INTERRUPTED)
		arch_remake_syscall(&registers);
	*size_ret = arch_sigframe(&registers, borrow->vector, borrow->vector_size, borrow->mask,
				  sigreturn, remote_address, buf, size, sp_ret);
	return NULL;
}

struct error *borrow_sigframe(struct borrow *borrow, void *buf, size_t size,
			      uint64_t remote_address, size_t *size_ret, uint64_t *sp_ret)
{
	struct error *err;

	err = build_frame(borrow, 0, buf, size, remote_address, size_ret, sp_ret);
	if (!err && !*size_ret)
		err = error_create(ERROR_UNSUPPORTED,
				   "thread %d has more vector state than fits a signal frame: "
				   "%zu bytes",
				   borrow->tid, borrow->vector_size);
	return err;
}

/* What was found before T was stopped is still there. */
static struct error *guard_code_holds(const struct borrow *borrow, bool *ret)
{
	const struct target_guard_code *code = &borrow->guard_code;
	uint8_t call[16], sigreturn[16];
	struct error *err;

	*ret = false;
	if (!code->call_return || tracee_has_shadow_stack(borrow->tid))
		return NULL;
	err = target_read(borrow->target, code->call_return, call, sizeof(call));
	if (!err)
		err = target_read(borrow->target, code->sigreturn, sigreturn, sizeof(sigreturn));
	if (!err)
		*ret = arch_find_call_return(call, sizeof(call)) == 0 &&
		       arch_find_sigreturn(sigreturn, sizeof(sigreturn)) == 0;
	if (error_is(err, ERROR_NOT_FOUND)) {
		error_free(err);
		err = NULL;
	}
	return err;
}

struct error *borrow_guard(struct borrow *borrow, uint64_t remote_address, size_t size)
{
	uint8_t frame[2 * BORROW_GUARD_SIZE];
	struct error *err;
	uint64_t sp;
	size_t used;
	bool holds;

	/* Up to now T may have stayed in a call because that was guarded. */
	err = borrow_settle(borrow);
	if (err)
		return err;
	borrow->guard_sp = 0;
	if (!remote_address)
		return NULL;
	err = guard_code_holds(borrow, &holds);
	if (err || !holds)
		return err;
	err = build_frame(borrow, borrow->guard_code.sigreturn, frame,
			  size < sizeof(frame) ? size : sizeof(frame), remote_address, &used, &sp);
	if (err || !used)
		return err;
	err = target_write(borrow->target, remote_address, frame, used);
	if (!err)
		borrow->guard_sp = sp;
	return err;
}

bool borrow_is_guarded(const struct borrow *borrow)
{
	return borrow->guard_sp != 0;
}
