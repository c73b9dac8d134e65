// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * A session and its budget: what recording costs, and the interval that follows.
 */
#include "injector/session.h"

#include <time.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

/* CPU time of the target, all threads; the last one known when it has gone. */
static uint64_t cpu_time_ns(const struct session *session)
{
	struct timespec time;
	clockid_t clock;

	if (clock_getcpuclockid(target_pid(session->target), &clock) || clock_gettime(clock, &time))
		return session->usage.cpu_ns;
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

struct error *session_interval(struct session *session)
{
	struct profile *profile = session->profile;
	struct profile_sampling *sampling = &profile->sampling;
	uint64_t interval = session->wanted_interval;
	struct error *err;

	if (interval < session->least_interval)
		interval = session->least_interval;
	if (interval == profile->interval)
		return NULL;
	err = shm_set_interval(session->shm, interval);
	if (err)
		return err;
	if (!sampling->interval_high)
		sampling->interval_low = profile->interval;
	if (interval < profile->interval)
		session->countdowns_due = true;
	profile->interval = interval;
	sampling->changes++;
	if (interval < sampling->interval_low)
		sampling->interval_low = interval;
	if (interval > sampling->interval_high)
		sampling->interval_high = interval;
	if (interval > session->most_interval)
		session->most_interval = interval;
	return NULL;
}

/* Drawn in this session for another interval, and not asked yet to be drawn anew. */
static bool countdown_is_old(const struct session *session, const struct ha_line *line)
{
	return line->key && line->session == session->number && line->rate != session->shm->rate &&
	       !HA_LEFT_IS_ANEW(line->left);
}

struct error *session_countdowns(struct session *session)
{
	uint64_t lines =
		session->journal->entry.address + HA_ENTRY_DATA + offsetof(struct ha_entry, lines);
	const uint8_t anew = HA_LEFT_ANEW;
	struct ha_line line[HA_LINES];
	struct error *err;
	bool old = false;

	if (!session->countdowns_due)
		return NULL;
	err = memory_read(&session->memory, lines, line, sizeof(line));
	for (size_t i = 0; i < HA_LINES && !err; i++) {
		if (!countdown_is_old(session, &line[i]))
			continue;
		/* In little endian the highest byte comes last. */
		err = session->writer.write(session->writer.ctx,
					    lines + i * sizeof(line[0]) +
						    offsetof(struct ha_line, left) + 7,
					    &anew, sizeof(anew));
		old = true;
	}
	/* The thread may just have written it back without: seen at the next look. */
	session->countdowns_due = old;
	return err;
}

struct error *session_budget(struct session *session, uint64_t elapsed_ns)
{
	struct session_usage last = session->usage, now = {.time_ns = elapsed_ns};
	struct budget_period period = {.wall_ns = elapsed_ns - last.time_ns};

	if (!session->budget.permille || period.wall_ns < BUDGET_PERIOD_MS * NS_PER_MS)
		return NULL;
	now.cpu_ns = cpu_time_ns(session);
	now.events = reader_events(session->reader);
	session->usage = now;
	/* The first time there is nothing to compare with. */
	if (!last.cpu_ns)
		return NULL;
	period.cpu_ns = now.cpu_ns - last.cpu_ns;
	period.events = now.events - last.events;
	period.calls = (uint64_t)(session->allocs_per_s * (double)period.wall_ns / 1e9);
	session->wanted_interval = budget_step(&session->budget, &period);
	session->profile->sampling.cost_permille = budget_cost_permille(&session->budget);
	return session_interval(session);
}

void session_budget_scanned(struct session *session, uint64_t elapsed_ns)
{
	uint64_t allocs = session->reader->total.alloc_count;

	if (elapsed_ns > session->scan_ns && allocs >= session->scan_allocs)
		session->allocs_per_s = (double)(allocs - session->scan_allocs) * 1e9 /
					(double)(elapsed_ns - session->scan_ns);
	session->scan_ns = elapsed_ns;
	session->scan_allocs = allocs;
}
