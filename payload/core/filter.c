/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/filter.h"

#include "payload/core/shm.h"

static uint8_t *byte_of(const struct ha_shm *shm, uint64_t ptr)
{
	uint8_t *filter = (uint8_t *)shm->filter;

	return &filter[HA_FILTER_HASH(ptr)];
}

void filter_add(struct ha_shm *shm, uint64_t ptr)
{
	byte_count(byte_of(shm, ptr), BYTE_UP);
}

void filter_remove(struct ha_shm *shm, uint64_t ptr)
{
	byte_count(byte_of(shm, ptr), BYTE_DOWN);
}
