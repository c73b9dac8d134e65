// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/job.h"
#include "injector/clock.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "injector/functions.h"
#include "injector/safepoint.h"
#include "injector/threads.h"
#include "resolver/cleanup.h"

/* Bounds of research and measurement: see ARCHITECTURE.md, "Safe points". */
#define ATTACH_LIMIT_MS	    2000
#define PATCH_LIMIT_MS	    100 /* new libraries can wait: the recording cannot */
#define RESTORE_LIMIT_MS    10000
#define STOP_TIMEOUT_MS	    50
#define USED_LIMIT_MS	    3000 /* boot's own limits add up to less */
#define SHORT_BACKOFF_US    200
#define LONG_BACKOFF_US	    1500
#define BACKOFF_MAX_US	    100000
#define SHORT_BACKOFF_TRIES 8
#define LOCK_TIMEOUT_US	    10000
#define LOCK_TRIES_SINGLE   3  /* busy tries at the lock before T waits for it */
#define LOCK_WAITS_MAX	    12 /* of T in vain before another loader may do better */
#define WAITS_PER_THREAD    4  /* before another thread is asked */
#define TRIES_PER_THREAD    16 /* the same */
#define THREADS_ASKED	    8
#define UNKNOWN_CODE_TRIES  16 /* then the modules are read again */

#define NS_PER_MS	    1000000ull
#define NS_PER_US	    1000ull

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

static void pause_note(struct job *job, const struct borrow_stats *stats, uint64_t dlopen_ns,
		       bool refused)
{
	struct job_result *result = job->result;

	if (result->pause_count == JOB_PAUSES_MAX)
		return;
	result->pause[result->pause_count++] = (struct job_pause){
		.stopped_us = (uint32_t)(stats->stopped_ns / NS_PER_US),
		.dlopen_us = (uint32_t)(dlopen_ns / NS_PER_US),
		.refused = refused,
	};
}

static void refusal_note(struct job *job, const char *text)
{
	strncpy(job->result->refusal, text, sizeof(job->result->refusal) - 1);
}

/* ------------------------------------------------------------------------
 * What is written into the target while nothing can be unloaded
 */

static size_t module_index(const struct modules *modules, uint32_t id)
{
	size_t i;

	for (i = 0; i < modules->count && modules->module[i]->id != id; i++)
		;
	return i;
}

/* Slots of objects that were unloaded after the plan was made are not ours to write. */
static struct error *slots_drop_unloaded(struct job *job)
{
	CLEANUP(freep) bool *there = calloc(job->modules->count + 1, sizeof(bool));
	struct error *err;
	size_t i;

	if (!there)
		return error_memory();
	err = modules_still_there(&job->reader, job->modules, there);
	for (i = 0; i < job->slots->count && !err; i++) {
		struct slot *slot = &job->slots->slot[i];

		if (!there[module_index(job->modules, slot->module)])
			slot->state = SLOT_GONE;
	}
	return err;
}

/* Entry's words, read as they are and written back but for what is ours to set. */
static struct error *entry_fill(const struct job *job, uint64_t base)
{
	const struct ha_core *core = &job->inject.core_header;
	uint64_t core_base = job->journal->core.address;
	struct ha_entry entry;
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
	entry.sampling = job->shm->sampling;
	for (i = 0; i < job->slots->pair_count; i++) {
		const struct slot_pair *pair = &job->slots->pair[i];
		const struct function *function = functions_get(pair->function);

		entry.pairs[i].call = pair->call;
		entry.pairs[i].body = base + entry.bodies[function->class];
		entry.pairs[i].function = pair->function;
		entry.pairs[i].flags = 0;
	}
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
	struct error *err = slots_drop_unloaded(job);

	if (!err)
		err = filter_name(job, entry);
	if (!err)
		err = entry_fill(job, entry);
	if (err)
		return err;
	job->shm->header->entry_low = entry;
	job->shm->header->entry_high = entry + HA_ENTRY_DATA;
	slots_place(job->slots, entry);
	job->journal->slots_written = 1;
	return slots_write(&job->reader, &job->writer, job->slots, &job->result->slots);
}

struct error *job_unhook(struct job *job)
{
	struct slots_result result;

	return slots_restore(&job->reader, &job->writer, job->modules, job->slots, &result);
}

struct error *job_switch_on(struct job *job)
{
	const uint32_t on = HA_STATE_ON;
	struct error *err = inject_open_gate(&job->inject);

	if (err)
		return err;
	job->journal->state_on = 1;
	return job->writer.write(job->writer.ctx,
				 job->journal->entry.address + HA_ENTRY_DATA +
					 offsetof(struct ha_entry, state),
				 &on, sizeof(on));
}

void job_observe(const struct memory_reader *reader, struct slots *slots)
{
	uint64_t value;
	size_t i;

	for (i = 0; i < slots->count; i++) {
		struct slot *slot = &slots->slot[i];

		if (!slot->hook || !memory_try_u64(reader, slot->address, &value))
			continue;
		if (value == slot->hook)
			slot->state = SLOT_WRITTEN;
		else if (slot->state == SLOT_WRITTEN && value == slot->restore)
			slot->state = SLOT_RESTORED;
	}
}

/* ------------------------------------------------------------------------
 * Finding a thread at a safe point
 */

static void safepoint_fill(const struct borrow_registers *registers, struct safepoint_thread *ret)
{
	memcpy(ret->registers.reg, registers->reg, sizeof(ret->registers.reg));
	ret->registers.pc = registers->pc;
	ret->syscall_number = registers->syscall;
	ret->rseq_cs = 0;
}

static void refusal_describe(struct job *job, const struct safepoint_verdict *verdict, pid_t tid)
{
	CLEANUP(freep) char *text = safepoint_describe(&job->code->context, verdict, tid);

	if (text)
		refusal_note(job, text);
}

/*
 * The verdict's frames were found by the tables of objects that could be
 * unloaded: do they still lie there?
 */
static bool modules_are_there(const struct job *job)
{
	CLEANUP(freep) bool *there = calloc(job->modules->count + 1, sizeof(bool));
	struct error *err;
	size_t i;

	if (!there)
		return false;
	err = modules_still_there(&job->reader, job->modules, there);
	if (err) {
		error_free(err);
		return false;
	}
	for (i = 0; i < job->modules->count && there[i]; i++)
		;
	return i == job->modules->count;
}

static bool modules_were_added(const struct job *job)
{
	uint64_t adds;

	return job->loader_info->load_adds &&
	       memory_try_u64(&job->reader, job->loader_info->load_adds, &adds) &&
	       adds != job->modules->load_adds;
}

/* May T call dlopen where it stands? If not, result->refusal says why. */
static bool thread_is_safe(struct job *job, struct borrow *borrow)
{
	struct safepoint_thread thread;
	struct safepoint_verdict verdict;
	struct error *err;

	/* The others hold what they hold until SIGCONT: dlopen could wait for ever. */
	if (borrow_is_group_stopped(borrow)) {
		refusal_note(job, "the target is stopped by a signal");
		return false;
	}
	safepoint_fill(borrow_registers(borrow), &thread);
	safepoint_precheck(&job->code->context, &thread, &verdict);
	if (verdict.reason == SAFEPOINT_SAFE) {
		err = borrow_rseq_cs(borrow, &thread.rseq_cs);
		if (err) {
			refusal_note(job, error_message(err));
			error_free(err);
			return false;
		}
		safepoint_check(&job->code->context, &thread, &verdict);
	}
	if (verdict.reason == SAFEPOINT_SAFE && verdict.transient && !modules_are_there(job)) {
		verdict.reason = SAFEPOINT_UNKNOWN_CODE;
		verdict.pc = thread.registers.pc;
	}
	if (verdict.reason == SAFEPOINT_SAFE)
		return true;
	/* It may leave that code soon; if it does not, it needs a new plan. */
	if (verdict.reason == SAFEPOINT_UNKNOWN_CODE && modules_were_added(job) &&
	    ++job->unknown_code >= UNKNOWN_CODE_TRIES)
		job->result->modules_changed = 1;
	refusal_describe(job, &verdict, borrow_tid(borrow));
	return false;
}

/*
 * The loader's lock is recursive: a thread that owns it would get it again in
 * the middle of its own work. Nobody may own it when T is asked to try.
 */
static bool lock_is_free(const struct job *job)
{
	uint32_t words[3]; /* lock, count, owner of a pthread_mutex_t */

	return !job->loader_info->lock ||
	       (memory_try(&job->reader, job->loader_info->lock, words, sizeof(words)) &&
		!words[0] && !words[2]);
}

typedef struct error *job_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
			       struct inject_boot_result *boot);

struct search {
	job_step *step;
	bool needs_safe_point;
	bool boots; /* the step runs boot on T */
	bool undo;  /* take everything out of the target when the step fails */
	uint64_t limit_ms;
	unsigned int lock_busy;	     /* times that the lock was not free */
	unsigned int lock_waits;     /* times that T waited for it in vain */
	unsigned int lock_waits_max; /* 0 = any number */
	unsigned int turn;	     /* whose turn it is */
	unsigned int turn_tries, turn_waits;
	uint64_t stopped_ns; /* how long the last try has stopped its thread */
};

/* Take out what a failed step brought in, before T is handed back. */
static struct error *step_undo(struct job *job, struct borrow *borrow, struct error *cause)
{
	struct error *err = inject_remove(&job->inject, borrow);

	/* The cause matters more; what could not be taken out stays in the journal. */
	error_free(err);
	return cause;
}

/*
 * Stop @tid, and if it is at a good place do the step. ERROR_BUSY = ask again.
 * T is handed back in any case.
 */
static struct error *thread_try(struct job *job, struct search *search, pid_t tid)
{
	struct inject_boot_result boot = {0};
	struct borrow_stats stats = {0};
	uint32_t lock_timeout_us;
	struct borrow *borrow;
	struct error *err, *end = NULL;
	bool refused;

	search->stopped_ns = 0;
	err = borrow_begin(job->target, tid, STOP_TIMEOUT_MS, &borrow);
	if (err)
		return err;
	job->result->tries++;
	job->journal->used_tid = tid;
	lock_timeout_us = search->lock_busy >= LOCK_TRIES_SINGLE ? LOCK_TIMEOUT_US : 0;
	refused = search->needs_safe_point && !thread_is_safe(job, borrow);
	if (refused) {
		err = error_create(ERROR_BUSY, "%s", job->result->refusal);
	} else if (!lock_is_free(job) && !lock_timeout_us) {
		search->lock_busy++;
		refused = true;
		err = error_create(ERROR_BUSY, "the target's loader is in use by another thread");
	} else {
		err = search->step(job, borrow, lock_timeout_us, &boot);
		if (error_is(err, ERROR_BUSY)) {
			search->lock_busy++;
			search->lock_waits += lock_timeout_us != 0;
			search->turn_waits += lock_timeout_us != 0;
		}
		if (err && search->undo && !boot.let_go && !error_is(err, ERROR_GONE))
			err = step_undo(job, borrow, err);
	}
	if (!boot.let_go)
		end = borrow_end(borrow, &stats);
	if (!boot.let_go && !end)
		job->journal->used_tid = 0;
	pause_note(job, &stats, boot.dlopen_ns, refused);
	search->stopped_ns = stats.stopped_ns;
	if (err)
		error_free(end);
	return err ? err : end;
}

/* A target whose loader stays busy has T to itself for two thirds of the time. */
static void backoff(const struct search *search, unsigned int tries)
{
	uint64_t us = tries < SHORT_BACKOFF_TRIES ? SHORT_BACKOFF_US : LONG_BACKOFF_US;
	uint64_t rest_us = 2 * search->stopped_ns / NS_PER_US;
	struct timespec wait;

	if (rest_us > us)
		us = rest_us < BACKOFF_MAX_US ? rest_us : BACKOFF_MAX_US;
	wait = (struct timespec){.tv_nsec = (long)(us * NS_PER_US)};
	nanosleep(&wait, NULL);
}

/* Errors after which another try makes sense. */
static bool may_retry(const struct job *job, const struct error *err)
{
	if (job->result->modules_changed)
		return false;
	return error_is(err, ERROR_BUSY) || error_is(err, ERROR_TIMEOUT) ||
	       (error_is(err, ERROR_GONE) && target_is_alive(job->target));
}

/*
 * The thread to be asked next. One that waits for the lock in vain may itself
 * hold what the lock's owner is waiting for: then another one will get it.
 */
static pid_t thread_next(struct job *job, struct search *search, const pid_t *tids, size_t count)
{
	if (search->turn_tries == TRIES_PER_THREAD || search->turn_waits == WAITS_PER_THREAD) {
		search->turn++;
		search->turn_tries = search->turn_waits = 0;
	}
	if (!search->turn_tries++)
		borrow_pin(job->target, tids[search->turn % count]);
	return tids[search->turn % count];
}

static bool is_over(const struct search *search, uint64_t deadline_ns)
{
	return clock_now_ns() >= deadline_ns ||
	       (search->lock_waits_max && search->lock_waits >= search->lock_waits_max);
}

/* Stop the thread that was used last: has it left our code? */
static struct error *used_look(const struct job *job, bool *inside_ret)
{
	struct borrow *borrow;
	struct error *err =
		borrow_begin(job->target, job->journal->used_tid, STOP_TIMEOUT_MS, &borrow);

	if (err)
		return err;
	*inside_ret = journal_covers(job->journal, borrow_registers(borrow)->pc) ||
		      journal_covers(job->journal, borrow_registers(borrow)->sp);
	return borrow_end(borrow, NULL);
}

/*
 * A thread that was let go while it ran boot, or in a guarded call, restores
 * itself; until then nothing of ours may be unmapped or used anew.
 */
static struct error *used_settle(const struct job *job)
{
	const struct timespec wait = {.tv_nsec = 1000000};
	uint64_t deadline_ns = clock_now_ns() + USED_LIMIT_MS * NS_PER_MS;
	bool inside = true;

	while (job->journal->used_tid && clock_now_ns() < deadline_ns) {
		struct error *err = used_look(job, &inside);

		if (!inside || (error_is(err, ERROR_GONE) && target_is_alive(job->target)))
			job->journal->used_tid = 0;
		else if (err && !error_is(err, ERROR_TIMEOUT))
			return err;
		error_free(err);
		nanosleep(&wait, NULL);
	}
	if (!job->journal->used_tid)
		return NULL;
	return error_create(ERROR_BUSY, "thread %d does not leave the payload",
			    job->journal->used_tid);
}

/* One step that found no processor may have used up the time of all tries. */
static bool is_first_timeout(const struct error *err, unsigned int timeouts)
{
	return error_is(err, ERROR_TIMEOUT) && timeouts == 1;
}

/* Ask threads, best first, until the step is done or time is up. */
static struct error *threads_search(struct job *job, struct search *search)
{
	uint64_t deadline_ns = clock_now_ns() + search->limit_ms * NS_PER_MS;
	CLEANUP(freep) pid_t *tids = NULL;
	struct threads threads = {0};
	struct error *err;
	unsigned int tries, timeouts = 0;
	size_t count;

	err = used_settle(job);
	if (!err)
		err = threads_read(job->target, &threads);
	if (!err)
		err = threads_rank(job->target, &threads, &tids, &count);
	threads_deinit(&threads);
	if (err)
		return err;
	if (!count)
		return error_create(ERROR_BUSY, "the target has no thread that can be stopped: all "
						"are in uninterruptible sleep or ending");
	if (count > THREADS_ASKED)
		count = THREADS_ASKED;
	if (search->boots)
		inject_touch(&job->inject);
	for (tries = 0;; tries++) {
		err = thread_try(job, search, thread_next(job, search, tids, count));
		timeouts += error_is(err, ERROR_TIMEOUT);
		if (!err || !may_retry(job, err) ||
		    (is_over(search, deadline_ns) && !is_first_timeout(err, timeouts)))
			break;
		error_free(err);
		backoff(search, tries);
	}
	if (error_is(err, ERROR_BUSY))
		job->result->unsafe = 1;
	return err;
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
	struct search search = {
		.step = attach_step,
		.needs_safe_point = job->loader->needs_safe_point,
		.boots = job_can_lock(job),
		.undo = true,
		.limit_ms = ATTACH_LIMIT_MS,
		.lock_waits_max = job->loader->needs_safe_point ? LOCK_WAITS_MAX : 0,
	};
	struct error *err = NULL;

	if (job->shm->sampling && job->journal->entry.state == JOURNAL_THERE)
		err = sampling_reset(job);
	if (!err && job->journal->entry.state != JOURNAL_THERE)
		err = job->loader->image(&job->inject.entry_fd);
	return err ? err : threads_search(job, &search);
}

static struct error *window_patch(void *context, uint64_t link_map)
{
	struct job *job = context;

	(void)link_map;
	return job_hook(job, job->journal->entry.address);
}

static struct error *window_unpatch(void *context, uint64_t link_map)
{
	(void)link_map;
	return job_unhook(context);
}

static struct error *window_restore(void *context, uint64_t link_map)
{
	struct job *job = context;

	(void)link_map;
	return slots_restore(&job->reader, &job->writer, job->modules, job->slots,
			     &job->result->slots);
}

/* The slots are back: a window that timed out meanwhile changes nothing. */
static struct error *window_restored(void *context, uint64_t link_map)
{
	(void)context;
	(void)link_map;
	return NULL;
}

/*
 * T is stopped, and the loader's lock cannot be taken: there is none (musl,
 * which never unloads), or boot may not run under the target's seccomp filter.
 * If nobody held the lock before and nobody does after, nobody has unloaded.
 */
static struct error *unlocked_window(struct job *job, struct borrow *borrow, inject_window *window,
				     inject_window *commit_failed)
{
	struct error *err = inject_close(&job->inject, borrow);

	if (!err && !lock_is_free(job))
		err = error_create(ERROR_BUSY, "the target's loader is in use by another thread");
	if (!err)
		err = window(job, 0);
	if (err || lock_is_free(job))
		return err;
	err = commit_failed(job, 0);
	return err ? err : error_create(ERROR_BUSY, "the target's loader came into use");
}

bool job_can_lock(const struct job *job)
{
	return !job->filtered && job->loader_info->lock && job->loader_info->fn_trylock;
}

struct error *job_window(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
			 inject_window *window, inject_window *commit_failed,
			 struct inject_boot_result *boot)
{
	if (!job_can_lock(job))
		return unlocked_window(job, borrow, window, commit_failed);
	return inject_boot(&job->inject, borrow, HA_BOOT_LOCK_ONLY, lock_timeout_us, window,
			   commit_failed, job, boot);
}

/* A window of a later job: the objects are there, boot needs its socket. */
static struct error *locked_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				 inject_window *window, inject_window *commit_failed,
				 struct inject_boot_result *boot)
{
	struct error *err = NULL;

	job->inject.boot_follows = job_can_lock(job);
	if (job->inject.boot_follows)
		err = inject_place(&job->inject, borrow);
	if (!err)
		err = job_window(job, borrow, lock_timeout_us, window, commit_failed, boot);
	if (err && !boot->let_go && !error_is(err, ERROR_GONE))
		error_free(inject_close(&job->inject, borrow));
	return err;
}

static struct error *patch_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				struct inject_boot_result *boot)
{
	return locked_step(job, borrow, lock_timeout_us, window_patch, window_unpatch, boot);
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
	struct error *err =
		locked_step(job, borrow, lock_timeout_us, window_restore, window_restored, boot);

	if (!err && !boot->let_go && core_is_empty(job))
		err = inject_remove(&job->inject, borrow);
	return err;
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
	struct search search = {
		.step = patch_step, .boots = job_can_lock(job), .limit_ms = PATCH_LIMIT_MS};

	return threads_search(job, &search);
}

struct error *job_restore(struct job *job)
{
	struct search search = {
		.step = restore_step, .boots = job_can_lock(job), .limit_ms = RESTORE_LIMIT_MS};

	return threads_search(job, &search);
}

struct error *job_remove(struct job *job)
{
	struct search search = {.step = remove_step, .limit_ms = ATTACH_LIMIT_MS};

	return threads_search(job, &search);
}

static struct error *clear_step(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				struct inject_boot_result *boot)
{
	(void)lock_timeout_us;
	(void)boot;
	return inject_clear(&job->inject, borrow);
}

struct error *job_clear(struct job *job)
{
	struct search search = {.step = clear_step, .limit_ms = ATTACH_LIMIT_MS};

	return threads_search(job, &search);
}
