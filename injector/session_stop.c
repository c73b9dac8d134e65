// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The end of a session: hooks off, slots back, core and tables out of the
 * target; and the profile made complete.
 */
#include "injector/ages.h"
#include "injector/session.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "injector/image.h"
#include "injector/leftover.h"
#include "injector/procfacts.h"

/* How long threads get to leave core. They are in it for less than a microsecond. */
#define QUIESCE_TIMEOUT_MS 1000

#define STOPS_MAX	   3 /* tries, as long as something is left */
#define STORES_DRAIN_MS	   100
#define IDLE_LOOKS	   20 /* at the lines of a forked child, a millisecond apart */

static struct error *state_off(struct session *session)
{
	const uint32_t off = HA_STATE_OFF;
	struct error *err;

	if (session->journal->entry.state != JOURNAL_THERE)
		return NULL;
	err = session->writer.write(session->writer.ctx,
				    session->journal->entry.address + HA_ENTRY_DATA +
					    offsetof(struct ha_entry, state),
				    &off, sizeof(off));
	if (err)
		return err;
	session->journal->state_on = 0;
	/* Now every thread either sees state OFF, or its depth is visible to us. */
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0)
		return NULL;
	/* Not on nohz_full machines. No processor keeps a store to itself for so long. */
	nanosleep(&(struct timespec){.tv_nsec = STORES_DRAIN_MS * 1000000}, NULL);
	return NULL;
}

static struct error *lines_read(const struct session *session, struct ha_line *lines)
{
	return memory_read(&session->memory,
			   session->journal->entry.address + HA_ENTRY_DATA +
				   offsetof(struct ha_entry, shared),
			   lines, (HA_SHARED_LINES + HA_LINES) * sizeof(*lines));
}

/* Wait until each line was seen at rest once. */
static struct error *quiesce_wait(struct session *session, bool *ret)
{
	struct timespec pause = {.tv_nsec = 1000000};
	struct ha_line lines[HA_SHARED_LINES + HA_LINES];
	bool seen[HA_SHARED_LINES + HA_LINES] = {0};
	unsigned int waited_ms;
	struct error *err;
	size_t i, left;

	*ret = false;
	for (waited_ms = 0; waited_ms < QUIESCE_TIMEOUT_MS; waited_ms++) {
		err = lines_read(session, lines);
		if (err)
			return err;
		for (i = 0, left = 0; i < HA_SHARED_LINES + HA_LINES; i++) {
			seen[i] |= lines[i].depth == session->idle_depth[i];
			left += !seen[i];
		}
		if (!left) {
			*ret = true;
			return NULL;
		}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static struct error *restore_work(void *context)
{
	return job_restore(context);
}

static struct error *remove_work(void *context)
{
	return job_remove(context);
}

static struct error *job_in_worker(struct session *session, worker_function *work,
				   enum profile_pause_kind kind)
{
	struct job job;
	struct error *err = session_job(session, &job);

	/* After a heapattach that died there is no core whose boot could be run. */
	if (!err && session->journal->core.state != JOURNAL_THERE)
		err = image_core(&job.inject.core_fd);
	return session_work(session, &job, work, kind, err);
}

static struct error *restore_permanent_work(void *context)
{
	return job_restore_permanent(context);
}

/*
 * The loader's lock could not be had: slots of modules that are never unloaded
 * are put back without it. Those of others keep leading to entry, which
 * passes everything on.
 */
static void permanent_restore(struct session *session)
{
	size_t i;

	for (i = 0; i < session->slots.count; i++) {
		struct slot *slot = &session->slots.slot[i];
		const struct module *module = modules_find_id(&session->modules, slot->module);

		if (slot->state == SLOT_WRITTEN && !(module && module->is_permanent))
			slot->state = SLOT_LOST;
	}
	error_free(job_in_worker(session, restore_permanent_work, PROFILE_PAUSE_STOP));
}

static struct error *slots_put_back(struct session *session)
{
	struct error *err = NULL;

	slots_observe(&session->memory, &session->slots);
	if (!session_slots_hooked(session))
		return NULL;
	err = session_modules_update(session, NULL, NULL);
	if (!err)
		err = job_in_worker(session, restore_work, PROFILE_PAUSE_STOP);
	slots_observe(&session->memory, &session->slots);
	if (error_is(err, ERROR_BUSY) && session_slots_hooked(session)) {
		permanent_restore(session);
		slots_observe(&session->memory, &session->slots);
	}
	return err;
}

static bool objects_left(const struct session *session)
{
	const struct journal *journal = session->journal;
	size_t i;

	for (i = 0; i < JOURNAL_FDS; i++) {
		if (journal->fd[i] >= 0)
			return true;
	}
	return journal->pending_fds || journal->shm.state || journal->core.state ||
	       journal->gate.state || (journal->filter.state && !journal->filter_named) ||
	       (journal->entry.state && !journal->entry_by_loader && !journal->slots_written);
}

static void left_note(struct session *session)
{
	session->profile->coverage.not_restored_slots = session_slots_hooked(session);
	session->profile->coverage.core_left = objects_left(session);
}

/* Then nothing can be called in the target, for hours perhaps. */
static struct error *frozen_check(const struct session *session)
{
	pid_t pid = target_pid(session->target);

	if (!procfacts_is_frozen("/proc", target_file_tid(session->target)))
		return NULL;
	return error_create(
		ERROR_BUSY,
		"process %d is frozen by its cgroup: our hooks in it pass calls on now; "
		"take them out when it runs again: heapattach stop -p %d",
		pid, pid);
}

/* It was stopped in the middle of a call, or gets no processor. */
static struct error *in_core_error(const struct session *session)
{
	pid_t pid = target_pid(session->target);

	return error_create(ERROR_BUSY,
			    "a thread of process %d stands still in our code, which can be taken "
			    "out when it runs again: heapattach stop -p %d",
			    pid, pid);
}

static struct error *selfcheck_end(struct session *session)
{
	const struct selfcheck_counts *counts;
	struct error *err;

	if (!session->selfcheck)
		return NULL;
	err = selfcheck_drain(session->selfcheck);
	counts = selfcheck_counts(session->selfcheck);
	session->profile->selfcheck = (struct profile_selfcheck){
		.ran = true,
		.compared = counts->compared,
		.distinct = counts->distinct,
		.different = counts->different,
	};
	return err;
}

/* What is in shm, once nobody writes it any more. */
static struct error *collect(struct session *session)
{
	struct error *err = selfcheck_end(session);

	if (!err)
		err = session_snapshot(session);
	if (err)
		return err;
	session->profile->duration_ns = session_elapsed_ns(session);
	session->profile->coverage.modules = slots_modules(&session->slots);
	fill_counters(&session->fill);
	err = ages_fill(&session->fill);
	session->collected = !err;
	return err;
}

/*
 * With state OFF and nobody in core the tables can go before their mapping does.
 * To take thousands of touched pages out of the target's address space takes
 * milliseconds, which are ours here, with no thread stopped; of munmap() they
 * would be T's. Whatever fails here is tried again, and told, by those who need it:
 * the rest of the stop, and session_finish().
 */
static void tables_release(struct session *session)
{
	bool quiet = false;

	if (!session->start_ns || session->collected || !session->journal->slots_written)
		return;
	error_free(quiesce_wait(session, &quiet));
	if (quiet)
		error_free(collect(session));
	if (session->collected)
		shm_release(session->shm);
}

static struct error *stop_once(struct session *session)
{
	struct error *err, *restore_err, *remove_err = NULL;
	bool quiet = true;

	err = state_off(session);
	if (!err)
		err = frozen_check(session);
	if (err) {
		left_note(session);
		return err;
	}
	tables_release(session);
	restore_err = slots_put_back(session);
	if (objects_left(session) && session->journal->slots_written)
		err = quiesce_wait(session, &quiet);
	if (!err && !quiet)
		err = in_core_error(session);
	if (!err && objects_left(session))
		remove_err = job_in_worker(session, remove_work, PROFILE_PAUSE_UNLOAD);
	left_note(session);
	if (restore_err) {
		error_free(err);
		error_free(remove_err);
		return restore_err;
	}
	if (err)
		error_free(remove_err);
	return err ? err : remove_err;
}

/* What could not be taken out, and what to do about it, unless @err says so itself. */
static struct error *kept_error(const struct session *session, struct error *err)
{
	pid_t pid = target_pid(session->target);

	if (!err || error_is(err, ERROR_BUSY) || error_is(err, ERROR_GONE) ||
	    (!session_slots_hooked(session) && !objects_left(session)))
		return err;
	return error_prefix(err,
			    "process %d keeps our hooks, which pass calls on now; who may trace it "
			    "takes them out by heapattach stop -p %d",
			    pid, pid);
}

/* A worker that dies, by whatever hand, leaves the rest to the next one. */
struct error *session_stop(struct session *session)
{
	struct error *err = NULL;
	unsigned int tries;

	session->attached = false;
	for (tries = 0; tries < STOPS_MAX && target_is_alive(session->target); tries++) {
		error_free(err);
		err = stop_once(session);
		if (!session_slots_hooked(session) && !objects_left(session))
			break;
	}
	return kept_error(session, err);
}

/* ------------------------------------------------------------------------
 * What others of us have left
 */

/*
 * A thread of the parent that was in core when another one forked is nowhere in
 * the child, where its line's depth stays for good. Threads of the child only
 * add to it, and for nanoseconds, since their gate is closed.
 */
static struct error *idle_depth_learn(struct session *session)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct ha_line lines[HA_SHARED_LINES + HA_LINES];
	unsigned int looks;
	struct error *err;
	size_t i;

	for (looks = 0; looks < IDLE_LOOKS; looks++) {
		err = lines_read(session, lines);
		if (err)
			return err;
		for (i = 0; i < HA_SHARED_LINES + HA_LINES; i++) {
			if (!looks || lines[i].depth < session->idle_depth[i])
				session->idle_depth[i] = lines[i].depth;
		}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static struct error *clear_work(void *context)
{
	return job_clear(context);
}

struct error *session_clear(struct session *session)
{
	struct error *err = session_ready(session);
	bool quiet, found;

	if (err)
		return err;
	found = leftover_find(&session->memory, &session->maps, &session->modules,
			      session->journal->left) > 0;
	found |= leftover_fds(target_pid(session->target), session->journal, session->journal) > 0;
	err = leftover_check_version(&session->memory, &session->modules,
				     target_pid(session->target), found);
	if (err || !found)
		return err;
	if (leftover_is_forked(&session->memory, &session->modules))
		err = idle_depth_learn(session);
	else
		session->journal->used_tid =
			leftover_thread(&session->memory, &session->maps, session->journal->left);
	if (!err)
		err = state_off(session);
	if (!err && session->journal->entry.state == JOURNAL_THERE) {
		err = quiesce_wait(session, &quiet);
		if (!err && !quiet)
			err = error_create(ERROR_BUSY,
					   "a thread of process %d does not leave the hooks of a "
					   "heapattach that was killed",
					   target_pid(session->target));
	}
	return err ? err : job_in_worker(session, clear_work, PROFILE_PAUSE_UNLOAD);
}

struct error *session_restore(struct session *session, size_t *slots_ret)
{
	*slots_ret = 0;
	if (session->journal->entry.state != JOURNAL_THERE)
		return NULL;
	slots_place(&session->slots, session->journal->entry.address);
	slots_observe(&session->memory, &session->slots);
	*slots_ret = session_slots_hooked(session);
	session->attached = true;
	return session_stop(session);
}

struct error *session_finish(struct session *session, enum profile_end end, int32_t end_status)
{
	struct profile *profile = session->profile;
	struct error *err;

	profile->end = end;
	profile->end_status = end_status;
	profile->coverage.rebound_slots = session->rebound_slots;
	/* Another program's memory is not what this one held. */
	if (end != PROFILE_END_EXEC)
		session_memory_describe(session, &profile->memory_end);
	err = session->collected ? NULL : collect(session);
	return err ? err : fill_names(&session->fill);
}
