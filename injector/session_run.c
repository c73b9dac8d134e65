// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * A session while it records: clock, tables ahead of need, slots that lazy
 * binding has overwritten, libraries that come and go.
 */
#include "injector/session.h"

#include <string.h>
#include <time.h>

#define NS_PER_MS 1000000ull

/* How often the loader's counter is read. */
#define MODULES_INTERVAL_MS 100

/* Longest pause between tries at hooking what new modules have brought. */
#define PATCH_DELAY_MAX_MS 10000

/* Tries at a list that the loader is changing. */
#define BUSY_TRIES   20
#define BUSY_WAIT_MS 3

/* The slots are looked at again so long after the attach: lazy binding may be in flight. */
static const uint64_t verify_at_ms[] = {1, 100, 1000};

static struct error *slots_check(struct session *session)
{
	struct slots_result result = {0};
	struct error *err;

	err = slots_verify(&session->memory, &session->slots, &result);
	session->rebound_slots += result.written;
	if (result.written)
		session->modules_due_ns = 0;
	return err;
}

static struct error *patch_work(void *context)
{
	return job_patch(context);
}

size_t session_slots_hooked(const struct session *session)
{
	size_t hooked = 0, i;

	for (i = 0; i < session->slots.count; i++)
		hooked += session->slots.slot[i].state == SLOT_WRITTEN;
	return hooked;
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

/* Plan again with the new modules; what is hooked stays so. */
static struct error *modules_plan(struct session *session)
{
	struct slots old = session->slots;
	struct slots fresh = {0};
	struct error *err;

	err = slots_plan(&session->memory, &session->maps, &session->modules, &fresh);
	if (err) {
		slots_deinit(&fresh);
		return err;
	}
	slots_inherit(&fresh, &old);
	slots_place(&fresh, session->journal->entry.address);
	session->slots = fresh;
	session_leave_throwing(session);
	slots_deinit(&old);
	return NULL;
}

/* Hook what new modules have brought. */
static struct error *modules_patch(struct session *session)
{
	struct error *err;
	struct job job;

	err = session_job(session, &job);
	err = session_work(session, &job, patch_work, PROFILE_PAUSE_UPDATE, err);
	slots_observe(&session->memory, &session->slots);
	if (!err)
		slots_tried(&session->slots);
	session->profile->coverage.slots = session_slots_hooked(session);
	return err;
}

static struct error *modules_update_once(struct session *session, size_t *added_ret,
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

struct error *session_modules_update(struct session *session, size_t *added_ret,
				     size_t *removed_ret)
{
	const struct timespec wait = {.tv_nsec = BUSY_WAIT_MS * NS_PER_MS};
	struct error *err = modules_update_once(session, added_ret, removed_ret);
	unsigned int tries;

	for (tries = 1; tries < BUSY_TRIES && error_is(err, ERROR_BUSY); tries++) {
		error_free(err);
		nanosleep(&wait, NULL);
		err = modules_update_once(session, added_ret, removed_ret);
	}
	return err;
}

/*
 * The loader has added something. If the list is the same, a library was loaded
 * again to where it had been: its slots are fresh, and the payload waits for a
 * list that counts it.
 */
static struct error *modules_refresh(struct session *session)
{
	size_t added = 0, removed = 0;
	struct error *err = session_modules_update(session, &added, &removed);

	if (!err && (added || removed))
		err = session_instances_update(session, removed > 0);
	if (!err && (added || removed))
		err = code_update(&session->code, &session->memory, &session->modules);
	if (!err)
		err = code_publish(&session->code, session->shm, &session->modules,
				   session->generation, session->modules.load_adds);
	if (!err)
		err = modules_plan(session);
	if (session->selfcheck)
		selfcheck_flush(session->selfcheck);
	return err;
}

static bool modules_changed(const struct session *session)
{
	uint64_t adds;

	return session->loader_info.load_adds &&
	       memory_try_u64(&session->memory, session->loader_info.load_adds, &adds) &&
	       adds != session->modules.load_adds;
}

/* A target that loads libraries without pause is not stopped without pause. */
static void patch_put_off(struct session *session, uint64_t elapsed_ns)
{
	session->patch_delay_ms =
		session->patch_delay_ms ? 2 * session->patch_delay_ms : MODULES_INTERVAL_MS;
	if (session->patch_delay_ms > PATCH_DELAY_MAX_MS)
		session->patch_delay_ms = PATCH_DELAY_MAX_MS;
	session->patch_due_ns = elapsed_ns + session->patch_delay_ms * NS_PER_MS;
}

static struct error *modules_check(struct session *session, uint64_t elapsed_ns)
{
	struct error *err = NULL;

	if (elapsed_ns < session->modules_due_ns)
		return NULL;
	session->modules_due_ns = elapsed_ns + MODULES_INTERVAL_MS * NS_PER_MS;
	if (modules_changed(session))
		err = modules_refresh(session);
	/* The loader is at work: next time. */
	if (error_is(err, ERROR_BUSY)) {
		error_free(err);
		return NULL;
	}
	if (err || !slots_planned(&session->slots) || elapsed_ns < session->patch_due_ns)
		return err;
	err = modules_patch(session);
	patch_put_off(session, elapsed_ns);
	if (!err)
		session->patch_delay_ms = 0;
	/* Tried again: no need to tell. */
	if (error_is(err, ERROR_BUSY)) {
		error_free(err);
		err = NULL;
	}
	return err;
}

struct error *session_tick(struct session *session)
{
	uint64_t elapsed_ns = session_elapsed_ns(session);
	struct error *err = target_check(session->target);

	/* First: what the tables may grow by is not what was left at the last tick. */
	if (!err)
		err = session_memory(session, elapsed_ns);
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
	if (!err)
		err = session_budget(session, elapsed_ns);
	if (!err)
		err = session_countdowns(session);
	if (!err)
		err = modules_check(session, elapsed_ns);
	return session_gone_or(session, err);
}

/*
 * What its shared memory rose by since the start is ours, as far as our memory reaches:
 * at most what that holds, of which the target may have touched only a part.
 */
static void memory_note(struct session *session, const struct procmem *memory)
{
	struct profile *profile = session->profile;
	uint64_t before = profile->memory_start.shmem_bytes, held = shm_held_bytes(session->shm);
	uint64_t rose = memory->shmem_bytes > before ? memory->shmem_bytes - before : 0;
	uint64_t own = rose < held ? rose : held;

	profile->memory_last = (struct profile_memory){
		.rss_bytes = memory->rss_bytes,
		.anon_bytes = memory->anon_bytes,
		.file_bytes = memory->file_bytes,
		.shmem_bytes = memory->shmem_bytes,
		.own_bytes = own,
	};
	if (own > profile->own_peak_bytes)
		profile->own_peak_bytes = own;
}

struct error *session_snapshot(struct session *session)
{
	struct profile_snapshot head = {.time_ns = session_elapsed_ns(session)};
	struct procmem memory = {0};
	struct error *err;

	if (!target_is_another_program(session->target))
		error_free(procmem_read(session->target, &memory));
	head.rss_bytes = memory.rss_bytes;
	head.anon_bytes = memory.anon_bytes;
	if (memory.rss_bytes)
		memory_note(session, &memory);
	err = reader_scan(session->reader);
	if (err)
		return err;
	session_budget_scanned(session, head.time_ns);
	session->private_due_ns = 0;
	head.unknown_frees = session->reader->counters.unknown_frees;
	head.interval = session->most_interval;
	session->most_interval = session->profile->interval;
	return fill_snapshot(&session->fill, &head);
}
