/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What is done on a borrowed thread, from choosing it to handing it back: the
 * attach, the patching of new modules, the detach. Each job runs in a worker
 * process (worker.h) on the program's copy of everything; its results go to
 * shared memory: struct job_result and the journal.
 *
 * A slot is ours exactly if it holds its hook; after any job, however it
 * ended, slots_observe() brings the plan up to what is.
 */
#ifndef INJECTOR_JOB_H
#define INJECTOR_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "injector/code.h"
#include "injector/inject.h"
#include "injector/slots.h"
#include "resolver/error.h"

/* How often a thread may be stopped and handed back: 2 s of tries at 0.2 to 2 ms. */
#define JOB_PAUSES_MAX 4096

struct job_pause {
	uint32_t stopped_us;
	uint32_t dlopen_us;
	uint32_t refused; /* 1: handed back at once */
};

/* Shared between the program and the worker. */
struct job_result {
	size_t pause_count;
	struct job_pause pause[JOB_PAUSES_MAX];
	uint32_t tries;		  /* threads stopped */
	uint32_t modules_changed; /* 1: T runs code that was loaded meanwhile; plan anew */
	uint32_t unsafe;	  /* 1: it failed for want of a safe point or the loader's lock */
	struct slots_result slots;
	char refusal[256]; /* the last thing that was in the way; "" = nothing */
	char lock_refusal[256];
};

struct loader;

struct job {
	struct target *target;
	struct journal *journal;
	struct shm *shm;
	struct modules *modules;
	struct code *code;
	struct slots *slots;
	const struct loader_info *loader_info;
	struct memory_reader reader;
	struct memory_writer writer;
	const struct loader *loader;
	const uint32_t *idle_depth; /* of each line while no thread is in core */
	bool filtered;	  /* a seccomp filter is in force: only raw calls may be made on T */
	uint32_t session; /* number of this attach to the target, from 1 */
	struct job_result *result;
	struct inject inject;
	unsigned int unknown_code; /* times that T was in code which no module of the plan has */
};

/* The way in: how entry comes into the target. */
struct loader {
	const char *name;
	bool needs_safe_point;
	/* NULL, or why this loader cannot be used on this target: a phrase. */
	const char *(*unusable)(const struct job *job);
	/* Make the file that entry comes from, before T is stopped. */
	struct error *(*image)(int *fd_ret);
	/* Bring everything in and write the slots; T is stopped before and after. */
	struct error *(*attach)(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				struct inject_boot_result *boot);
};

extern const struct loader loader_dlopen;
extern const struct loader loader_map;

/* Make the shared result. ERROR_OS. */
MUST_CHECK struct error *job_result_create(struct job_result **ret);
void job_result_free(struct job_result *result);

/*
 * In a worker: attach with job->loader. An attach that fails leaves the target as
 * it was. ERROR_BUSY: no safe point or no lock within 2 s, or within 0.5 s while no
 * thread has moved (result->refusal has the thread and what is in the way), or
 * result->modules_changed. Objects that were unloaded since the plan was made are
 * left alone, new ones are for job_patch().
 */
MUST_CHECK struct error *job_attach(struct job *job);

/*
 * In a worker: write the slots that are planned and not yet written, while
 * nothing can be unloaded. ERROR_BUSY: not within 0.1 s.
 */
MUST_CHECK struct error *job_patch(struct job *job);

/*
 * In a worker, after entry's state is OFF and a memory barrier: put the slots
 * back while nothing can be unloaded, and take shm, core and gate out if
 * nobody is in core. ERROR_BUSY as above.
 */
MUST_CHECK struct error *job_restore(struct job *job);

/*
 * The same where the loader's lock cannot be had: only for slots of objects that are
 * never unloaded. Nothing is taken out.
 */
MUST_CHECK struct error *job_restore_permanent(struct job *job);

/*
 * In a worker, after entry's state is OFF and nobody is in core: take shm,
 * core and gate out of the target.
 */
MUST_CHECK struct error *job_remove(struct job *job);

/* In a worker: take out what others of us have left (journal->left), before an attach. */
MUST_CHECK struct error *job_clear(struct job *job);

/* For the loaders: T can run boot and there is a lock for it to take. */
bool job_can_lock(const struct job *job);
/*
 * For the loaders: do @window while nothing can be unloaded. Everything is in
 * place; descriptors in the target are closed afterwards.
 */
MUST_CHECK struct error *job_window(struct job *job, struct borrow *borrow,
				    uint32_t lock_timeout_us, inject_window *window,
				    struct inject_boot_result *boot);
/*
 * For the loaders, in the window: fill entry's data, place the slots of the objects
 * that are still there, and list what they are to become.
 */
MUST_CHECK struct error *job_hook(struct job *job, uint64_t entry);
/* For the loaders: have hooks record from now on. */
MUST_CHECK struct error *job_switch_on(struct job *job, struct borrow *borrow);

#endif
