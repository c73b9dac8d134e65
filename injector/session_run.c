// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * A session while it records: clock, tables ahead of need, slots that lazy
 * binding has overwritten, libraries that come and go.
 */
#include "injector/session.h"

#include <string.h>

#include "injector/worker.h"

#define NS_PER_MS 1000000ull

/* How often the loader's counter is read. */
#define MODULES_INTERVAL_MS 100

#define WORKER_TIMEOUT_MS   30000

/* The slots are looked at again so long after the attach: lazy binding may be in flight. */
static const uint64_t verify_at_ms[] = {1, 100, 1000};

static struct error *slots_check(struct session *session)
{
	struct slots_result result = {0};
	struct error *err;

	err = slots_verify(&session->memory, &session->writer, &session->slots, &result);
	session->rebound_slots += result.written;
	return err;
}

static struct error *patch_work(void *context)
{
	return job_patch(context);
}

static bool slots_planned(const struct slots *slots)
{
	size_t i;

	for (i = 0; i < slots->count; i++) {
		if (slots->slot[i].state == SLOT_PLANNED)
			return true;
	}
	return false;
}

/* Hook what new modules bring; entry itself is one that brings nothing. */
static struct error *modules_patch(struct session *session)
{
	struct slots old = session->slots;
	struct slots fresh = {0};
	struct error *err;
	struct job job;

	err = slots_plan(&session->memory, &session->maps, &session->modules, &fresh);
	if (err) {
		slots_deinit(&fresh);
		return err;
	}
	slots_inherit(&fresh, &old);
	slots_place(&fresh, session->journal->entry.address);
	session->slots = fresh;
	slots_deinit(&old);
	if (!slots_planned(&session->slots))
		return NULL;
	err = session_job(session, &job);
	if (!err)
		err = worker_run(patch_work, &job, WORKER_TIMEOUT_MS);
	inject_deinit(&job.inject);
	session_note_pauses(session, PROFILE_PAUSE_UPDATE);
	job_observe(&session->memory, &session->slots);
	return err;
}

struct error *session_modules_update(struct session *session, size_t *added_ret,
				     size_t *removed_ret)
{
	struct maps maps;
	struct error *err = maps_read(target_pid(session->target), &maps);

	if (err)
		return err;
	maps_deinit(&session->maps);
	session->maps = maps;
	return modules_update(session->target, &session->maps, &session->modules, added_ret,
			      removed_ret);
}

static struct error *modules_refresh(struct session *session)
{
	size_t added = 0, removed = 0;
	struct error *err = session_modules_update(session, &added, &removed);

	if (err || (!added && !removed))
		return err;
	err = session_instances_update(session, removed > 0);
	if (!err)
		err = code_update(&session->code, &session->memory, &session->modules);
	if (!err)
		err = code_publish(&session->code, session->shm, &session->modules,
				   session->generation);
	if (!err && added)
		err = modules_patch(session);
	if (session->selfcheck)
		selfcheck_flush(session->selfcheck);
	session->profile->coverage.modules = session->modules.count;
	return err;
}

static struct error *modules_check(struct session *session, uint64_t elapsed_ns)
{
	uint64_t adds;

	if (elapsed_ns < session->modules_checked_ns + MODULES_INTERVAL_MS * NS_PER_MS)
		return NULL;
	session->modules_checked_ns = elapsed_ns;
	if (!session->loader_info.load_adds ||
	    !memory_try_u64(&session->memory, session->loader_info.load_adds, &adds))
		return NULL;
	return adds == session->modules.load_adds ? NULL : modules_refresh(session);
}

struct error *session_tick(struct session *session)
{
	uint64_t elapsed_ns = session_elapsed_ns(session);
	struct error *err = target_check(session->target);

	if (!err)
		err = shm_tick(session->shm, elapsed_ns / NS_PER_MS);
	if (!err && session->verified < sizeof(verify_at_ms) / sizeof(verify_at_ms[0]) &&
	    elapsed_ns >= verify_at_ms[session->verified] * NS_PER_MS) {
		session->verified++;
		err = slots_check(session);
	}
	/* Before the modules, under which the captures were taken, are replaced. */
	if (!err && session->selfcheck)
		err = selfcheck_drain(session->selfcheck);
	return err ? err : modules_check(session, elapsed_ns);
}

struct error *session_snapshot(struct session *session)
{
	struct profile_snapshot head = {.time_ns = session_elapsed_ns(session)};
	struct procmem memory = {0};
	struct error *err;

	error_free(procmem_read(session->target, &memory));
	head.rss_bytes = memory.rss_bytes;
	head.anon_bytes = memory.anon_bytes;
	err = reader_scan(session->reader);
	if (err)
		return err;
	head.unknown_frees = session->reader->counters.unknown_frees;
	return fill_snapshot(&session->fill, &head);
}
