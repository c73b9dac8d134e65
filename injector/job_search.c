// SPDX-License-Identifier: GPL-3.0-or-later
/* Which thread is asked, whether it stands at a safe point, and when to ask again. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "injector/clock.h"
#include "injector/job_private.h"
#include "injector/safepoint.h"
#include "injector/threads.h"
#include "resolver/cleanup.h"

/* Bounds of research and measurement: see ARCHITECTURE.md, "Safe points". */
#define STOP_TIMEOUT_MS	     50
#define USED_LIMIT_MS	     3000 /* boot's own limits add up to less */
#define SHORT_BACKOFF_US     200
#define LONG_BACKOFF_US	     1500
#define BACKOFF_MAX_US	     100000
#define SHORT_BACKOFF_TRIES  8
#define LOCK_TIMEOUT_US	     10000
#define LOCK_TRIES_SINGLE    3	/* busy tries at the lock before T waits for it */
#define WAITS_PER_THREAD     4	/* before another thread is asked */
#define TRIES_PER_THREAD     16 /* the same */
#define STILL_TRIES	     8	/* at one unsafe place before it is asked more seldom */
#define STILL_BACKOFF_MAX_US 50000
#define UNKNOWN_CODE_TRIES   16 /* then the modules are read again */

#define NS_PER_MS	     1000000ull
#define NS_PER_US	     1000ull

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
	CLEANUP(freep) bool *there = modules_flags(job->modules);
	struct error *err;
	size_t i;

	if (!there)
		return false;
	err = modules_still_there(&job->reader, job->modules, there);
	if (err) {
		error_free(err);
		return false;
	}
	for (i = 0; i < job->modules->count && there[job->modules->module[i]->id]; i++)
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

bool job_lock_is_free(const struct job *job)
{
	uint32_t words[3]; /* lock, count, owner of a pthread_mutex_t */

	return !job->loader_info->lock ||
	       (memory_try(&job->reader, job->loader_info->lock, words, sizeof(words)) &&
		!words[0] && !words[2]);
}

/* Is the thread at the unsafe place where it was found the last time? */
static void still_note(struct job_search *search, const struct borrow *borrow, bool refused)
{
	const struct borrow_registers *now = borrow_registers(borrow);
	struct job_place *last = &search->place[search->turn];

	if (refused && last->pc == now->pc && last->sp == now->sp) {
		search->still++;
	} else {
		search->still = 0;
		search->moved_ns = clock_now_ns();
	}
	*last = (struct job_place){.pc = now->pc, .sp = now->sp};
}

/* Take out what a failed step brought in, before T is handed back. */
static struct error *step_undo(struct job *job, struct borrow *borrow, struct error *cause)
{
	struct error *err;

	/* The gate is zeroed when it opens, and the frame in it with it: another one. */
	error_free(borrow_guard(borrow, 0, 0));
	err = inject_remove(&job->inject, borrow);
	/* The cause matters more; what could not be taken out stays in the journal. */
	error_free(err);
	return cause;
}

/*
 * Stop @tid, and if it is at a good place do the step. ERROR_BUSY = ask again.
 * T is handed back in any case.
 */
static struct error *thread_try(struct job *job, struct job_search *search, pid_t tid)
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
	still_note(search, borrow, refused);
	if (refused) {
		err = error_create(ERROR_BUSY, "%s", job->result->refusal);
	} else if (search->boots && borrow_seccomp(borrow) != BORROW_SECCOMP_NONE) {
		/* The main thread has none, or nobody would be asked to run boot. */
		refused = true;
		err = error_create(ERROR_BUSY,
				   "thread %d has a seccomp filter of its own, under which it may "
				   "not run the payload",
				   tid);
	} else if (!search->takes_no_lock && !lock_timeout_us && !job_lock_is_free(job)) {
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

/*
 * A target whose loader stays busy has T to itself for two thirds of the time.
 * A thread that is found asleep where it was is stopped more and more seldom.
 */
static void backoff(const struct job_search *search, unsigned int tries)
{
	uint64_t us = tries < SHORT_BACKOFF_TRIES ? SHORT_BACKOFF_US : LONG_BACKOFF_US;
	uint64_t rest_us = 2 * search->stopped_ns / NS_PER_US;
	struct timespec wait;

	if (search->still > STILL_TRIES)
		us *= search->still - STILL_TRIES;
	if (us > STILL_BACKOFF_MAX_US)
		us = STILL_BACKOFF_MAX_US;
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
static pid_t thread_next(struct job *job, struct job_search *search, const pid_t *tids,
			 size_t count)
{
	if (search->turn_tries == TRIES_PER_THREAD || search->turn_waits == WAITS_PER_THREAD) {
		search->turn = (search->turn + 1) % count;
		search->turn_tries = search->turn_waits = 0;
	}
	if (!search->turn_tries++)
		borrow_pin(job->target, tids[search->turn]);
	return tids[search->turn];
}

static bool is_over(const struct job_search *search, uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns();

	return now_ns >= deadline_ns ||
	       (search->lock_waits_max && search->lock_waits >= search->lock_waits_max) ||
	       (search->still_limit_ms &&
		now_ns - search->moved_ns >= search->still_limit_ms * NS_PER_MS);
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

struct error *job_search(struct job *job, struct job_search *search)
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
	if (count > JOB_THREADS_ASKED)
		count = JOB_THREADS_ASKED;
	search->moved_ns = clock_now_ns();
	/* Nobody runs boot any more, whose stack this wipes. */
	inject_touch(&job->inject, search->boots);
	for (tries = 0;; tries++) {
		/* One that the last try has let go may be on its way out of boot yet. */
		err = used_settle(job);
		if (!err)
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
