/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/capture.h"

#include <stddef.h>

/* Events of each site that are captured from each stripe before capture_every counts. */
#define FIRST_EVENTS 4u

/* A capture that nobody else writes or reads now, or NULL. */
static struct ha_capture *capture_claim(struct ha_captures *captures, uint32_t *number_ret)
{
	for (uint32_t i = 0; i < HA_CAPTURES; i++) {
		uint32_t free = HA_CAPTURE_FREE;

		if (load_relaxed(&captures->state[i]) != HA_CAPTURE_FREE ||
		    !__atomic_compare_exchange_n(&captures->state[i], &free, HA_CAPTURE_WRITING,
						 false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		*number_ret = i;
		return &captures->capture[i];
	}
	return NULL;
}

bool capture_take(const struct walk_start *start, uint32_t site)
{
	struct ha_captures *captures = shm_region(start->shm, HA_REGION_CAPTURES);
	uint64_t from = (uint64_t)start->frame, size = start->bounds.high - from;
	struct ha_capture *capture;
	uint32_t number;

	if (from & 7 || start->bounds.high < from + sizeof(*start->frame))
		return false;
	capture = capture_claim(captures, &number);
	if (!capture)
		return false;
	if (size > HA_CAPTURE_STACK_SIZE)
		size = HA_CAPTURE_STACK_SIZE;
	capture->stack_address = from;
	capture->stack_size = (uint32_t)size;
	capture->site = site;
	capture->module_index = (uint64_t)((const char *)start->rules.index - (char *)start->shm);
	for (uint64_t i = 0; i < size / 8; i++)
		capture->stack[i] = stack_load(from + i * 8);
	store_release(&captures->state[number], HA_CAPTURE_FULL);
	return true;
}

NOINLINE void capture_event(const struct walk_start *start, struct stripe stripe, uint32_t site)
{
	uint64_t every = load_relaxed(&start->shm->capture_every);
	struct ha_sums *sums = stripe_sums(stripe, site);

	if (!every || (load_relaxed(&sums->captures) >= FIRST_EVENTS &&
		       load_relaxed(&stripe.counters->events) % every))
		return;
	if (capture_take(start, site))
		stripe_add(stripe, &sums->captures, 1);
}
