// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/budget.h"

#define NS_PER_S 1000000000ull

/*
 * Measured on a slow day, so that the estimate is rather too high: a call that
 * is recorded, one of a session that records all (its tables are warm), and an
 * allocation with its free that pass through.
 */
#define SAMPLE_NS 500.0
#define EXACT_NS  100.0
#define PASS_NS	  4.0

/* A target that hardly runs may be recorded nonetheless: its CPU time is at least this share. */
#define IDLE_SHARE 0.1

/* Where passing through alone costs more than allowed, so much of it is left for samples. */
#define SAMPLES_SHARE 0.1

/* Intervals below 64 bytes save nothing against recording all; that is as if it were 8. */
#define EXPONENT_EXACT	  3u
#define EXPONENT_LEAST	  6u
#define EXPONENT_MOST	  30u
#define EXPONENT_FIRST	  19u

#define PATIENCE_FIRST_NS (NS_PER_S / 2)
#define PATIENCE_NS	  (10 * NS_PER_S)
#define PATIENCE_MAX_NS	  (320 * NS_PER_S)

void budget_init(struct budget *budget, uint32_t permille)
{
	*budget = (struct budget){
		.permille = permille,
		.exponent = EXPONENT_FIRST,
		.patience_ns = PATIENCE_FIRST_NS,
	};
}

uint64_t budget_interval(const struct budget *budget)
{
	return budget->exponent == EXPONENT_EXACT ? 1 : 1ull << budget->exponent;
}

uint32_t budget_cost_permille(const struct budget *budget)
{
	double share = budget->cpu_ns > 0 ? budget->cost_ns / budget->cpu_ns * 1000 : 0;

	return share < 1000 ? (uint32_t)(share + 0.5) : 1000;
}

/* By how many powers of 2 the cost has to fall; negative: may rise, to half of what is allowed. */
static int steps_wanted(double ratio)
{
	int steps = 0;

	for (; ratio > 1; ratio /= 2)
		steps++;
	for (; steps > -30 && ratio < 0.25; ratio *= 2)
		steps--;
	return steps;
}

static void rise(struct budget *budget, int steps)
{
	budget->exponent += (uint32_t)steps;
	if (budget->exponent < EXPONENT_LEAST)
		budget->exponent = EXPONENT_LEAST;
	if (budget->exponent > EXPONENT_MOST)
		budget->exponent = EXPONENT_MOST;
	budget->calm_ns = 0;
	budget->patience_ns *= 2;
	if (budget->patience_ns < PATIENCE_NS)
		budget->patience_ns = PATIENCE_NS;
	if (budget->patience_ns > PATIENCE_MAX_NS)
		budget->patience_ns = PATIENCE_MAX_NS;
}

static void fall(struct budget *budget, int steps)
{
	int exponent = (int)budget->exponent - steps;

	budget->calm_ns = 0;
	if (exponent <= (int)EXPONENT_EXACT)
		budget->exponent = EXPONENT_EXACT;
	else if (exponent < (int)EXPONENT_LEAST)
		budget->exponent = EXPONENT_LEAST;
	else
		budget->exponent = (uint32_t)exponent;
}

uint64_t budget_step(struct budget *budget, const struct budget_period *period)
{
	double idle_ns = (double)period->wall_ns * IDLE_SHARE, cpu_ns = (double)period->cpu_ns;
	double allowed_ns = (cpu_ns > idle_ns ? cpu_ns : idle_ns) * budget->permille / 1000;
	double each_ns = budget->exponent == EXPONENT_EXACT ? EXACT_NS : SAMPLE_NS;
	double events_ns = (double)period->events * each_ns;
	double pass_ns = (double)period->calls * PASS_NS;
	double left_ns = allowed_ns - pass_ns;
	int steps;

	budget->cost_ns += events_ns + pass_ns;
	budget->cpu_ns += cpu_ns;
	if (left_ns < allowed_ns * SAMPLES_SHARE)
		left_ns = allowed_ns * SAMPLES_SHARE;
	steps = left_ns > 0 ? steps_wanted(events_ns / left_ns) : 0;
	if (steps > 0) {
		rise(budget, steps);
	} else if (steps == 0 || budget->exponent == EXPONENT_EXACT) {
		budget->calm_ns = 0;
	} else {
		budget->calm_ns += period->wall_ns;
		if (budget->calm_ns >= budget->patience_ns)
			fall(budget, -steps);
	}
	return budget_interval(budget);
}
