/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Shared by job.c and job_search.c alone. */
#ifndef INJECTOR_JOB_PRIVATE_H
#define INJECTOR_JOB_PRIVATE_H

#include "injector/job.h"

/* What is done on a thread that was stopped. ERROR_BUSY: on another one, or later. */
typedef struct error *job_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
			       struct inject_boot_result *boot);

#define JOB_THREADS_ASKED 8

struct job_place {
	uint64_t pc, sp;
};

struct job_search {
	job_step *step;
	bool needs_safe_point;
	bool boots;	    /* the step runs boot on T */
	bool takes_no_lock; /* the step may be done whoever owns the loader's lock */
	bool undo;	    /* take everything out of the target when the step fails */
	uint64_t limit_ms;
	uint64_t still_limit_ms; /* without a thread that was found to have moved; 0 = any time */
	unsigned int lock_busy;	 /* times that the lock was not free */
	unsigned int lock_waits; /* times that T waited for it in vain */
	unsigned int lock_waits_max; /* 0 = any number */
	unsigned int turn;	     /* whose turn it is, of those asked */
	unsigned int turn_tries, turn_waits;
	struct job_place place[JOB_THREADS_ASKED]; /* where each was when it was last stopped */
	unsigned int still;  /* tries in turn that found the thread where it had been */
	uint64_t moved_ns;   /* when one had moved, or was no trouble */
	uint64_t stopped_ns; /* how long the last try has stopped its thread */
};

/* Ask threads, best first, until the step is done or time is up. */
MUST_CHECK struct error *job_search(struct job *job, struct job_search *search);

/*
 * The loader's lock is recursive: a thread that owns it would get it again in
 * the middle of its own work. Nobody may own it when T is asked to try.
 */
bool job_lock_is_free(const struct job *job);

#endif
