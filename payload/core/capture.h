/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Leaving behind what a site was found from, for somebody else to check.
 */
#ifndef PAYLOAD_CORE_CAPTURE_H
#define PAYLOAD_CORE_CAPTURE_H

#include "payload/core/shm.h"
#include "payload/core/walk.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether this event of @stripe is one to capture. */
static inline bool capture_is_due(const struct ha_shm *shm, struct stripe stripe)
{
	uint64_t every = load_relaxed(&shm->capture_every);

	return UNLIKELY(every) && load_relaxed(&stripe.counters->events) % every == 0;
}

/*
 * Copy the state at @start, for which @site was found: from start->frame on as
 * much of the stack as there is room for. Nothing happens if all captures are
 * in use. Takes up to 10 us.
 */
void capture_take(const struct walk_start *start, uint32_t site);

#endif
