/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One profiling session: the order of its steps, and their undoing.
 *
 *	session_create    nothing is touched: may we, and what is it?
 *	session_attach    hooks are in, or the target is as it was
 *	session_tick      each few milliseconds: clock, tables, new modules
 *	session_snapshot  sums now
 *	session_stop      hooks are out, everything is unmapped that can be
 *	session_finish    last snapshot, names: the profile is complete
 *
 * For the program's main thread, whose death tells the payload to stop.
 */
#ifndef INJECTOR_SESSION_H
#define INJECTOR_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "injector/budget.h"
#include "injector/code.h"
#include "injector/fill.h"
#include "injector/instances.h"
#include "injector/job.h"
#include "injector/journal.h"
#include "injector/loaderinfo.h"
#include "injector/memlimit.h"
#include "injector/options.h"
#include "injector/preflight.h"
#include "injector/procmem.h"
#include "injector/reader.h"
#include "injector/selfcheck.h"
#include "injector/shm.h"
#include "injector/slots.h"
#include "injector/worker.h"
#include "resolver/error.h"
#include "resolver/maps.h"
#include "resolver/profile.h"
#include "resolver/symbolizer.h"

struct session {
	const struct options *options;
	struct preflight preflight;
	struct target *target;
	struct memory_reader memory;
	struct memory_writer writer;
	struct maps maps;
	struct modules modules;
	struct loader_info loader_info;
	struct code code;
	struct slots slots;
	struct shm *shm;
	struct journal *journal;
	struct job_result *result;
	const struct loader *loader; /* the one that attached */

	struct instances instances;
	uint32_t generation;
	uint32_t number; /* of this attach to the target, from 1 */
	struct reader *reader;
	struct selfcheck *selfcheck; /* NULL: not asked for */
	struct symbolizer *symbolizer;
	struct profile *profile;
	struct fill fill;

	uint64_t start_ns;	 /* CLOCK_MONOTONIC, when recording began */
	uint64_t verified;	 /* checks of the slots done after the attach */
	uint64_t modules_due_ns; /* when the loader's counter is looked at again */
	uint64_t patch_due_ns;	 /* when new modules may be hooked again */
	uint64_t patch_delay_ms; /* grows while that fails */
	bool attached;		 /* hooks may be in the target */
	bool collected;		 /* all that was recorded is in the profile, but for names */
	bool no_throwing;	 /* the target's unwinder does not know entry */
	size_t throwing_left;	 /* slots of operators new left alone for that */
	uint64_t rebound_slots;
	uint64_t locked_bytes; /* VmLck before the attach */
	/*
	 * What entry's lines hold while no thread is in core: 0, but in a forked
	 * child, where threads of the parent that were in core never leave it.
	 */
	uint32_t idle_depth[HA_SHARED_LINES + HA_LINES];

	struct memlimit memlimit;
	uint64_t private_bytes;	 /* of this process, as of the last look */
	uint64_t private_due_ns; /* when the next one is due */

	uint64_t wanted_interval; /* what options or budget want */
	uint64_t most_interval;	  /* since the last snapshot */
	uint64_t least_interval;  /* what memory allows */
	bool countdowns_due;	  /* some may have been drawn for a longer one */

	struct budget budget; /* for the interval; permille 0: none */
	struct session_usage {
		uint64_t time_ns; /* since recording began */
		uint64_t cpu_ns;  /* of the target */
		uint64_t events;
	} usage;	  /* at the last step of the budget */
	uint64_t scan_ns; /* when the reader last scanned, and the allocations by then */
	uint64_t scan_allocs;
	double allocs_per_s;
};

/* Preflight. @options must outlive the session. */
MUST_CHECK struct error *session_create(const struct options *options, struct session **ret);
/* An attached session is stopped first. NULL is fine. */
void session_free(struct session *session);
void session_freep(struct session **session);
/* What an attach needs of the target and the machine. */
struct preflight_options session_needs(const struct options *options);

/*
 * Keep other programs of ours from attaching or cleaning up at the same time;
 * waits for one that does. ERROR_BUSY: it records, or does not end.
 */
MUST_CHECK struct error *session_lock(struct session *session);

/*
 * Decide everything that can be decided before the target is touched; part of
 * session_attach(). May be called again, and brings the plan up to date then.
 */
MUST_CHECK struct error *session_plan(struct session *session);
/*
 * After a plan: the loader to be tried first; NULL if the one that was asked
 * for cannot be used. *why_not_ret: why dlopen cannot be used, a phrase, or NULL.
 */
const struct loader *session_loader(const struct session *session, const char **why_not_ret);

MUST_CHECK struct error *session_attach(struct session *session);

/*
 * ERROR_GONE when the target ended or became another program: call
 * session_finish() then, what was recorded is whole. Other errors are not
 * fatal: recording goes on.
 */
MUST_CHECK struct error *session_tick(struct session *session);

/* Scan the shared memory and add a snapshot of now to the profile. */
MUST_CHECK struct error *session_snapshot(struct session *session);

/*
 * After a plan: take out what a heapattach that died, or one that records the
 * parent, has left in the target. Slots stay as they are, and pass through.
 */
MUST_CHECK struct error *session_clear(struct session *session);

/*
 * After session_clear(), instead of an attach: put back all slots that lead to an entry
 * object from before. *slots_ret: how many there were. The session is over.
 */
MUST_CHECK struct error *session_restore(struct session *session, size_t *slots_ret);

/*
 * Undo everything. Goes on after a failing step; what could not be undone is
 * in the profile's coverage and in the error.
 */
MUST_CHECK struct error *session_stop(struct session *session);

/* After the stop, or when the target is gone: the rest of what was recorded, and names. */
MUST_CHECK struct error *session_finish(struct session *session, enum profile_end end,
					int32_t end_status);

/* Nanoseconds since recording began. */
uint64_t session_elapsed_ns(const struct session *session);

/* For session_*.c: after a plan, the shared memory is made and filled in; part of session_clear().
 */
MUST_CHECK struct error *session_ready(struct session *session);
/* For session_*.c: what the target's memory is made of now; left alone if it is gone. */
void session_memory_describe(struct session *session, struct profile_memory *memory);
/* For session_*.c: after a plan: without unwinding through entry, throwing operators new stay. */
void session_leave_throwing(struct session *session);
/* For session_*.c: how much memory may be held; before the shared memory is made. */
void session_memory_init(struct session *session);
/* For session_*.c: tell the tables what is left of it. Returns what is held, in bytes. */
uint64_t session_memory_room(struct session *session, uint64_t elapsed_ns);
/* For session_*.c: keep to that; before each shm_tick(). */
MUST_CHECK struct error *session_memory(struct session *session, uint64_t elapsed_ns);
/* For session_*.c: put the interval that is wanted, or else allowed, in force. */
MUST_CHECK struct error *session_interval(struct session *session);
/*
 * For session_*.c: after a fall of the interval, have threads draw their countdowns
 * anew. What is left of the old ones may be as much as a quiet thread allocates in
 * hours. A line is written to by one byte, and only while it is of another interval.
 */
MUST_CHECK struct error *session_countdowns(struct session *session);
/* For session_*.c: keep the interval to the budget. */
MUST_CHECK struct error *session_budget(struct session *session, uint64_t elapsed_ns);
/* For session_*.c: the reader has scanned. */
void session_budget_scanned(struct session *session, uint64_t elapsed_ns);
/* For session_*.c: slots that hold our hooks, as of the last slots_observe(). */
size_t session_slots_hooked(const struct session *session);
/* For session_*.c: a job for session_work(), which is to follow whatever fails. */
MUST_CHECK struct error *session_job(struct session *session, struct job *ret);
/*
 * For session_*.c: have a worker do @work on @job, unless there is an error @err already, end
 * the job and add its pauses to the profile. ERROR_GONE, however the target's end showed.
 */
MUST_CHECK struct error *session_work(struct session *session, struct job *job,
				      worker_function *work, enum profile_pause_kind kind,
				      struct error *err);
/* For session_*.c: @err, or ERROR_GONE if the target has ended: that is what was behind it. */
MUST_CHECK struct error *session_gone_or(const struct session *session, struct error *err);
/* For session_*.c: read mappings and modules again; the counts may be NULL. */
MUST_CHECK struct error *session_modules_update(struct session *session, size_t *added_ret,
						size_t *removed_ret);
/* For session_*.c: new module instances, and those that are gone. */
MUST_CHECK struct error *session_instances_update(struct session *session, bool removed);

#endif
