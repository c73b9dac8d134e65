/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The interval between samples that keeps within a share of the target's CPU
 * time. Pure: told what happened in each period, it says which interval to use.
 *
 * It goes up at once by as much as is needed. It comes down when the cost would
 * stay below half of what is allowed, and the longer it had to go up before,
 * the longer it waits with that: under a load that comes and goes it settles
 * on what the load needs.
 */
#ifndef INJECTOR_BUDGET_H
#define INJECTOR_BUDGET_H

#include <stdint.h>

#define BUDGET_PERIOD_MS      250u
#define BUDGET_INTERVAL_FIRST (512ull << 10) /* until something is known of the load */
#define BUDGET_INTERVAL_MAX   (1ull << 30)

struct budget {
	uint32_t permille;	/* of the target's CPU time */
	uint32_t exponent;	/* the interval is a power of 2 */
	uint64_t calm_ns;	/* since when it could have come down */
	uint64_t patience_ns;	/* how long it has to be calm for that */
	double cost_ns, cpu_ns; /* in all */
};

/* What happened in one period. */
struct budget_period {
	uint64_t wall_ns;
	uint64_t cpu_ns; /* of the target, all threads */
	uint64_t events; /* calls that were recorded */
	uint64_t calls;	 /* allocations, recorded or not; as estimated */
};

void budget_init(struct budget *budget, uint32_t permille);

/* Take note of a period; the interval to use from now on, 1 up to BUDGET_INTERVAL_MAX. */
uint64_t budget_step(struct budget *budget, const struct budget_period *period);

uint64_t budget_interval(const struct budget *budget);

/* What it has cost so far, of the target's CPU time. */
uint32_t budget_cost_permille(const struct budget *budget);

#endif
