/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How large the blocks of a site are, and how long they lived: struct
 * ha_histograms in payload/protocol.h.
 */
#ifndef PAYLOAD_CORE_HISTOGRAM_H
#define PAYLOAD_CORE_HISTOGRAM_H

#include "payload/core/shm.h"

/*
 * Whether the @count-th event of a site in a stripe is looked at: the first
 * ones all, then one of HA_PICK. Multiples of the golden ratio fall evenly on
 * any pattern that repeats, which each 64th would not.
 */
static inline bool histogram_wants(uint64_t count)
{
	return UNLIKELY(count < HA_PICK_ALL ||
			count * HA_HASH_MULTIPLIER >> (64 - HA_PICK_BITS) == 0);
}

/* A block of @site with @size bytes, which stands for @weight blocks. */
void histogram_size(const struct ha_shm *shm, struct stripe stripe, uint32_t site, uint64_t size,
		    uint64_t weight);

/* The same for one that was allocated at @tick and is freed now. */
void histogram_lifetime(const struct ha_shm *shm, struct stripe stripe, uint32_t site,
			uint32_t tick, uint64_t weight);

#endif
