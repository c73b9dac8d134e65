// SPDX-License-Identifier: GPL-3.0-or-later
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "injector/functions.h"
#include "injector/job_private.h"
#include "resolver/cleanup.h"

/* Bounds of research and measurement: see ARCHITECTURE.md, "Safe points". */
#define ATTACH_LIMIT_MS	 2000
#define PATCH_LIMIT_MS	 100 /* new libraries can wait: the recording cannot */
#define RESTORE_LIMIT_MS 10000
#define LOCK_WAITS_MAX	 12  /* of T in vain before another loader may do better */
#define STILL_LIMIT_MS	 500 /* the same where threads stay at unsafe points */

struct error *job_result_create(struct job_result **ret)
{
	struct job_result *result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (result == MAP_FAILED)
		return error_os(errno, "cannot make room for a worker's results");
	*ret = result;
	return NULL;
}

void job_result_free(struct job_result *result)
{
	if (result)
		munmap(result, sizeof(*result));
}

/* ------------------------------------------------------------------------
 * What is written into the target while nothing can be unloaded
 */

/* Slots of objects that were unloaded after the plan was made are not ours to write. */
static struct error *slots_drop_unloaded(struct job *job)
{
	CLEANUP(freep) bool *there = modules_flags(job->modules);
	struct error *err;
	size_t i;

	if (!there)
		return error_memory();
	err = modules_still_there(&job->reader, job->modules, there);
	for (i = 0; i < job->slots->count && !err; i++) {
		struct slot *slot = &job->slots->slot[i];

		if (!there[slot->module])
			slot->state = SLOT_GONE;
	}
	return err;
}

static struct ha_changes *changes_of(const struct job *job)
{
	return shm_region(job->shm, HA_REGION_CHANGES);
}

/* A thread that was held up in a stub may read the body of a pair that slots led to before. */
static struct error *body_change(struct changes *changes, uint64_t base,
				 const struct ha_entry *entry, size_t pair, uint64_t body)
{
	uint64_t address = base + HA_ENTRY_DATA + offsetof(struct ha_entry, pairs[0].body) +
			   pair * sizeof(entry->pairs[0]);

	return changes_add(changes, address, entry->pairs[pair].body, body, PROT_READ | PROT_WRITE);
}

/*
 * Entry's words, read as they are and written back but for what is ours to set.
 * Pairs in use are as they were but for their bodies, which are changed later.
 */
static struct error *entry_fill(const struct job *job, uint64_t base, struct changes *changes)
{
	const struct ha_core *core = &job->inject.core_header;
	uint64_t core_base = job->journal->core.address;
	struct ha_entry entry;
	const uint32_t *bodies;
	struct error *err;
	size_t i;

	err = memory_read(&job->reader, base + HA_ENTRY_DATA, &entry,
			  offsetof(struct ha_entry, shared));
	if (err)
		return err;
	if (entry.magic != HA_MAGIC || entry.abi != HA_ABI)
		return error_create(ERROR_FORMAT, "what the target loaded is not our payload");
	/* New modules are hooked while recording goes on. */
	entry.state = job->journal->state_on ? HA_STATE_ON : HA_STATE_OFF;
	entry.gate = job->journal->gate.address;
	entry.shm = job->journal->shm.address;
	entry.core_alloc = core_base + core->alloc;
	entry.core_free = core_base + core->free;
	entry.core_realloc_begin = core_base + core->realloc_begin;
	entry.core_realloc_end = core_base + core->realloc_end;
	entry.core_xallocx = core_base + core->xallocx;
	entry.session = job->session;
	bodies = job->shm->sampling ? entry.sampling_bodies : entry.bodies;
	for (i = 0; i < job->slots->pair_count && !err; i++) {
		const struct slot_pair *pair = &job->slots->pair[i];
		uint64_t body = base + bodies[functions_get(pair->function)->class];

		if (i >= entry.npairs)
			entry.pairs[i] = (struct ha_pair){pair->call, body, pair->function, 0};
		else if (entry.pairs[i].body != body)
			err = body_change(changes, base, &entry, i, body);
	}
	if (err)
		return err;
	if (job->slots->pair_count > entry.npairs)
		entry.npairs = (uint32_t)job->slots->pair_count;
	return job->writer.write(job->writer.ctx, base + HA_ENTRY_DATA, &entry,
				 offsetof(struct ha_entry, shared));
}

/*
 * Where entry finds the filter: said before entry_fill() has stubs look at it.
 * What points into entry is for core.
 */
static struct error *filter_name(const struct job *job, uint64_t base)
{
	uint64_t data = base + HA_ENTRY_DATA;

	job->shm->header->lines = data + offsetof(struct ha_entry, lines);
	if (!job->shm->sampling)
		return NULL;
	job->shm->header->filter = job->journal->filter.address;
	job->journal->filter_named = 1;
	return job->writer.write(job->writer.ctx, data + offsetof(struct ha_entry, filter),
				 &job->journal->filter.address, sizeof(uint64_t));
}

struct error *job_hook(struct job *job, uint64_t entry)
{
	CLEANUP(changes_deinit) struct changes changes = {.list = changes_of(job)};
	struct error *err = slots_drop_unloaded(job);

	if (!err)
		err = filter_name(job, entry);
	if (!err)
		err = entry_fill(job, entry, &changes);
	if (err)
		return err;
	job->shm->header->entry_low = entry;
	job->shm->header->entry_high = entry + HA_ENTRY_DATA;
	slots_place(job->slots, entry);
	job->journal->slots_written = 1;
	return slots_write(&job->reader, job->slots, &changes, &job->result->slots);
}

struct error *job_switch_on(struct job *job, struct borrow *borrow)
{
	const uint32_t on = HA_STATE_ON;
	/* A frame that T would return to lies in the gate, which is zeroed. */
	struct error *err = borrow ? borrow_guard(borrow, 0, 0) : NULL;

	if (!err)
		err = inject_open_gate(&job->inject);
	if (err)
		return err;
	job->journal->state_on = 1;
	return job->writer.write(job->writer.ctx,
				 job->journal->entry.address + HA_ENTRY_DATA +
					 offsetof(struct ha_entry, state),
				 &on, sizeof(on));
}

/* ------------------------------------------------------------------------
 * The jobs
 */

static struct error *attach_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				 struct inject_boot_result *boot)
{
	return job->loader->attach(job, borrow, lock_timeout_us, boot);
}

/*
 * What an earlier session has left in entry: countdowns, and blocks in the
 * filter. Both are read even while state is OFF; no lock is needed, since what
 * a thread makes of a countdown that is changed under it ends in core.
 */
static struct error *sampling_reset(const struct job *job)
{
	const struct journal *journal = job->journal;
	const uint64_t zero = 0;
	CLEANUP(freep) uint8_t *zeros = calloc(1, HA_FILTER_SIZE);
	struct error *err = NULL;
	size_t i;

	if (!zeros)
		return error_memory();
	if (journal->filter.state == JOURNAL_THERE)
		err = job->writer.write(job->writer.ctx, journal->filter.address, zeros,
					HA_FILTER_SIZE);
	for (i = 0; i < HA_LINES && !err; i++)
		err = job->writer.write(job->writer.ctx,
					journal->entry.address + HA_ENTRY_DATA +
						offsetof(struct ha_entry, lines[i].left),
					&zero, sizeof(zero));
	return err;
}

struct error *job_attach(struct job *job)
{
	struct job_search search = {
		.step = attach_step,
		.needs_safe_point = job->loader->needs_safe_point,
		.boots = job_can_lock(job),
		.undo = true,
		.limit_ms = ATTACH_LIMIT_MS,
		.lock_waits_max = job->loader->needs_safe_point ? LOCK_WAITS_MAX : 0,
		.still_limit_ms = job->loader->needs_safe_point ? STILL_LIMIT_MS : 0,
	};
	struct error *err = NULL;

	if (job->shm->sampling && job->journal->entry.state == JOURNAL_THERE)
		err = sampling_reset(job);
	if (!err && job->journal->entry.state != JOURNAL_THERE)
		err = job->loader->image(&job->inject.entry_fd);
	return err ? err : job_search(job, &search);
}

static struct error *window_patch(void *context, uint64_t link_map)
{
	struct job *job = context;

	(void)link_map;
	return job_hook(job, job->journal->entry.address);
}

static struct error *window_restore(void *context, uint64_t link_map)
{
	struct job *job = context;
	CLEANUP(changes_deinit) struct changes changes = {.list = changes_of(job)};

	(void)link_map;
	return slots_restore(&job->reader, job->modules, job->slots, &changes, &job->result->slots);
}

/* T is stopped, and makes the changes one by one. */
static struct error *stopped_window(struct job *job, struct borrow *borrow, inject_window *window)
{
	struct error *err;

	changes_clear(changes_of(job));
	err = window(job, 0);
	return err ? err : inject_change(&job->inject, borrow);
}

/*
 * The loader's lock cannot be taken: there is none (musl, which never unloads), or
 * boot may not run under the target's seccomp filter. If nobody held the lock
 * before and nobody does after, nobody has unloaded. If somebody did, words that
 * are not what they were are as they are, and the next try finds the others done.
 */
static struct error *unlocked_window(struct job *job, struct borrow *borrow, inject_window *window)
{
	struct error *err = inject_close(&job->inject, borrow);

	if (!err && !job_lock_is_free(job))
		err = error_create(ERROR_BUSY, "the target's loader is in use by another thread");
	if (!err)
		err = stopped_window(job, borrow, window);
	if (err || job_lock_is_free(job))
		return err;
	return error_create(ERROR_BUSY, "the target's loader came into use");
}

bool job_can_lock(const struct job *job)
{
	return !job->filtered && job->loader_info->lock && job->loader_info->fn_trylock;
}

struct error *job_window(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
			 inject_window *window, struct inject_boot_result *boot)
{
	if (!job_can_lock(job))
		return unlocked_window(job, borrow, window);
	return inject_boot(&job->inject, borrow, HA_BOOT_LOCK_ONLY, lock_timeout_us, window, job,
			   boot);
}

/* A window of a later job: the objects are there, boot needs its socket. */
static struct error *locked_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				 inject_window *window, struct inject_boot_result *boot)
{
	struct error *err = NULL;

	job->inject.boot_follows = job_can_lock(job);
	if (job->inject.boot_follows || job->journal->core.state != JOURNAL_THERE)
		err = inject_place(&job->inject, borrow);
	if (!err)
		err = job_window(job, borrow, lock_timeout_us, window, boot);
	if (err && !boot->let_go && !error_is(err, ERROR_GONE))
		error_free(inject_close(&job->inject, borrow));
	return err;
}

static struct error *patch_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				struct inject_boot_result *boot)
{
	return locked_step(job, borrow, lock_timeout_us, window_patch, boot);
}

/* No thread is in core, and none can enter: state was OFF before a memory barrier. */
static bool core_is_empty(const struct job *job)
{
	struct ha_line lines[HA_SHARED_LINES + HA_LINES];
	size_t i;

	if (!memory_try(&job->reader,
			job->journal->entry.address + HA_ENTRY_DATA +
				offsetof(struct ha_entry, shared),
			lines, sizeof(lines)))
		return false;
	for (i = 0; i < HA_SHARED_LINES + HA_LINES; i++) {
		if (lines[i].depth != job->idle_depth[i])
			return false;
	}
	return true;
}

/* Usually core can go in the same stop, which saves the target a second one. */
static struct error *restore_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				  struct inject_boot_result *boot)
{
	struct error *err;

	job->inject.boot_empties = job_can_lock(job) && inject_keeps_filter(&job->inject);
	err = locked_step(job, borrow, lock_timeout_us, window_restore, boot);
	if (!err && !boot->let_go && core_is_empty(job))
		err = inject_remove(&job->inject, borrow);
	return err;
}

static struct error *unlocked_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				   struct inject_boot_result *boot)
{
	struct error *err = NULL;

	(void)lock_timeout_us;
	(void)boot;
	if (job->journal->core.state != JOURNAL_THERE)
		err = inject_place(&job->inject, borrow);
	if (!err)
		err = inject_close(&job->inject, borrow);
	return err ? err : stopped_window(job, borrow, window_restore);
}

static struct error *remove_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				 struct inject_boot_result *boot)
{
	(void)lock_timeout_us;
	(void)boot;
	return inject_remove(&job->inject, borrow);
}

struct error *job_patch(struct job *job)
{
	struct job_search search = {
		.step = patch_step, .boots = job_can_lock(job), .limit_ms = PATCH_LIMIT_MS};

	return job_search(job, &search);
}

struct error *job_restore(struct job *job)
{
	struct job_search search = {
		.step = restore_step, .boots = job_can_lock(job), .limit_ms = RESTORE_LIMIT_MS};

	return job_search(job, &search);
}

struct error *job_restore_permanent(struct job *job)
{
	struct job_search search = {
		.step = unlocked_step, .takes_no_lock = true, .limit_ms = PATCH_LIMIT_MS};

	return job_search(job, &search);
}

struct error *job_remove(struct job *job)
{
	struct job_search search = {
		.step = remove_step, .takes_no_lock = true, .limit_ms = ATTACH_LIMIT_MS};

	return job_search(job, &search);
}

static struct error *clear_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				struct inject_boot_result *boot)
{
	uint64_t pc = borrow_registers(borrow)->pc;
	struct error *err;

	(void)lock_timeout_us;
	(void)boot;
	/* A forked child's only thread may stand between its line's depth and the gate. */
	if (pc - job->journal->entry.address < HA_ENTRY_DATA)
		return error_create(ERROR_BUSY, "thread %d stands in a hook", borrow_tid(borrow));
	err = inject_clear(&job->inject, borrow);
	return err ? err : inject_close(&job->inject, borrow);
}

struct error *job_clear(struct job *job)
{
	struct job_search search = {
		.step = clear_step, .takes_no_lock = true, .limit_ms = ATTACH_LIMIT_MS};

	return job_search(job, &search);
}
