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
	profile->interval = interval;
	sampling->changes++;
	if (interval < sampling->interval_low)
		sampling->interval_low = interval;
	if (interval > sampling->interval_high)
		sampling->interval_high = interval;
	return NULL;
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
