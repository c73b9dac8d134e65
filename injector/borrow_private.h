/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the borrow_*.c files share: the state of T and how it is taken over and
 * given back. For nobody else.
 */
#ifndef INJECTOR_BORROW_PRIVATE_H
#define INJECTOR_BORROW_PRIVATE_H

#include "injector/arch.h"
#include "injector/borrow.h"
#include "injector/tracee.h"

struct borrow {
	struct target *target;
	struct tracer *tracer;
	pid_t tid;

	/* Where T is now. kind RUNNING: it runs code or a call of ours. */
	struct tracee_stop stop;
	/* T's registers, mask and dispatch are those below, not ours. */
	bool own;
	/* Mask and dispatch are ours, whatever the registers. */
	bool masked;
	/* Code of ours may have changed T's vector state. */
	bool vector_dirty;
	bool allow_filtered;

	/* T as it was found. */
	enum borrow_seccomp seccomp;
	struct arch_registers saved;
	/*
	 * What T holds whenever it is merely stopped: the same, but that a call
	 * which returned EINTR because of us (remade) is about to be made anew.
	 */
	struct arch_registers rest;
	bool remade;
	struct borrow_registers view;
	uint64_t mask;
	struct tracee_dispatch dispatch;
	uint64_t rseq; /* address of struct rseq; 0 = none */
	uint32_t rseq_signature;
	uint64_t rseq_cs; /* its rseq_cs word */
	bool mask_known, rseq_known, disturbed;
	uint8_t *vector;
	size_t vector_size; /* 0 = not read yet */

	/* Signals, of those that our code runs with unblocked, that wait for T's return. */
	uint64_t held;
	uint64_t gadget;
	struct target_guard_code guard_code; /* all 0 if the target has none */
	uint64_t guard_sp; /* of the frame in the target; 0 = calls are unguarded */
	uint64_t stopped_at_ns;
	struct borrow_stats stats;
};

/* ---- borrow.c */

/* T has just stopped: on our processor, or on another one? */
void borrow_watch_if_apart(struct borrow *borrow);

/* ---- borrow_state.c */

/* Registers were read into saved: decide on rest, and give it to T if it differs. */
MUST_CHECK struct error *borrow_plan_rest(struct borrow *borrow);
/* Before anything runs on T: save what a run changes, leave a restartable sequence. */
MUST_CHECK struct error *borrow_disturb(struct borrow *borrow);
/* Before code runs on T: save the vector state. */
MUST_CHECK struct error *borrow_save_vector(struct borrow *borrow);
/* Give T registers, mask and dispatch of ours. */
MUST_CHECK struct error *borrow_take_over(struct borrow *borrow,
					  const struct arch_registers *registers);
/* Give T its own back; it stays stopped. */
MUST_CHECK struct error *borrow_settle(struct borrow *borrow);
/* T is settled in an event stop: the last word on its registers. */
MUST_CHECK struct error *borrow_finish_registers(struct borrow *borrow);
/* The mask under which T runs for us. */
uint64_t borrow_run_mask(const struct borrow *borrow);

/* ---- borrow_stop.c */

/*
 * T, which runs for us, stopped in borrow->stop, which is no event: what to
 * deliver when it goes on. ERROR_FAULT: it raised a signal by itself.
 */
MUST_CHECK struct error *borrow_handle_stop(struct borrow *borrow, int *deliver_ret);
/* Wait for T's next stop of any kind. ERROR_TIMEOUT, ERROR_GONE. */
MUST_CHECK struct error *borrow_next_stop(struct borrow *borrow, uint64_t deadline);
/* From running code of ours to an event stop. ERROR_FAULT too. */
MUST_CHECK struct error *borrow_reach_event(struct borrow *borrow, uint64_t deadline);
/*
 * From any stop, T's own state in place, to an event stop. @delivered_ret: T
 * was given signals of its own on the way, its registers are not ours to write.
 */
MUST_CHECK struct error *borrow_reach_own_event(struct borrow *borrow, uint64_t deadline,
						bool *delivered_ret);

#endif
