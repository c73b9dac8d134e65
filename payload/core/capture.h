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

/* Whether anybody wants captures now. */
static inline bool capture_is_wanted(const struct ha_shm *shm)
{
	return load_relaxed(&shm->capture_every) != 0;
}

/*
 * Take a capture if this event of @stripe is one of capture_every, or one of
 * the first of its site: at first a stack is walked, later the trie knows it.
 */
void capture_event(const struct walk_start *start, struct stripe stripe, uint32_t site);

/*
 * Copy the state at @start, for which @site was found: from start->frame on as
 * much of the stack as there is room for. False: all captures are in use.
 * Takes up to 10 us.
 */
bool capture_take(const struct walk_start *start, uint32_t site);

#endif
