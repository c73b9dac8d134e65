/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/filter.h"

#include "payload/core/shm.h"

/* A byte that has once been full no longer counts: it cannot be taken down again. */
#define FULL UINT8_MAX

static uint8_t *byte_of(const struct ha_shm *shm, uint64_t ptr)
{
	uint8_t *filter = (uint8_t *)shm->filter;

	return &filter[HA_FILTER_HASH(ptr)];
}

/* One instruction that nobody can come between; a turn is lost only to who made progress. */
static void byte_change(uint8_t *byte, uint8_t amount, uint8_t stop)
{
	uint8_t value = load_relaxed(byte);

	while (value != stop && value != FULL &&
	       !__atomic_compare_exchange_n(byte, &value, (uint8_t)(value + amount), false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

void filter_add(struct ha_shm *shm, uint64_t ptr)
{
	byte_change(byte_of(shm, ptr), 1, FULL);
}

void filter_remove(struct ha_shm *shm, uint64_t ptr)
{
	byte_change(byte_of(shm, ptr), UINT8_MAX, 0);
}
