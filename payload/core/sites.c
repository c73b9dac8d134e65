/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/sites.h"

#include <stddef.h>

/*
 * A word of the hash table: 0, or
 *
 *	 63       19 18     0
 *	 hash bits     site
 */
#define WORD_SITE_MASK ((uint64_t)HA_SITES_MAX - 1)
#define PROBES_MAX     256u

/* The table is at most half full: HA_SITE_HASH_SIZE has two words for each site. */
static uint64_t hash_words(const struct ha_shm *shm)
{
	return HA_SITE_HASH_SIZE(shm->site_capacity) / sizeof(uint64_t);
}

static uint64_t hash_mix(uint64_t hash)
{
	hash ^= hash >> 32;
	hash *= HA_HASH_MULTIPLIER;
	return hash ^ hash >> 29;
}

/* Four lanes, since a multiplication waits for the one before it. */
static uint64_t site_hash(const struct site_key *key)
{
	uint64_t lane[4] = {key->frames, key->modules, key->flags, 0};
	uint32_t i;

	for (i = 0; i + 4 <= key->frames; i += 4) {
		for (uint32_t j = 0; j < 4; j++)
			lane[j] = (lane[j] ^ key->pc[i + j]) * HA_HASH_MULTIPLIER;
	}
	for (; i < key->frames; i++)
		lane[i & 3] = (lane[i & 3] ^ key->pc[i]) * HA_HASH_MULTIPLIER;
	for (uint32_t j = 1; j < 4; j++)
		lane[0] = hash_mix(lane[0] + lane[j]);
	return hash_mix(lane[0]);
}

const struct ha_site *sites_get(const struct ha_shm *shm, uint32_t site)
{
	const uint64_t *index = shm_region(shm, HA_REGION_SITE_INDEX);
	uint64_t offset = site < shm->site_capacity ? load_acquire(&index[site]) : 0;

	return offset ? shm_at(shm, offset) : NULL;
}

static bool site_equals(const struct ha_site *site, const struct site_key *key, uint64_t hash)
{
	/* That the modules are the same is in the hash alone. */
	if (site->hash != hash || site->frames != key->frames || site->flags != key->flags)
		return false;
	for (uint32_t i = 0; i < key->frames; i++) {
		if (site->pc[i] != key->pc[i])
			return false;
	}
	return true;
}

/* Reserve room for a body. Returns its offset from shm, or 0. */
static uint64_t arena_reserve(struct ha_shm *shm, uint64_t size)
{
	const struct ha_region *arena = &shm->region[HA_REGION_SITE_ARENA];
	uint64_t at;

	/* The first check keeps the counter from running away once the arena is full. */
	if (load_relaxed(&shm->arena_next) + size > arena->size)
		return 0;
	at = __atomic_fetch_add(&shm->arena_next, size, __ATOMIC_RELAXED);
	return at + size <= arena->size ? arena->offset + at : 0;
}

static uint32_t number_limit(const struct ha_shm *shm)
{
	uint32_t limit = load_relaxed(&shm->site_limit);

	return limit < shm->site_capacity ? limit : (uint32_t)shm->site_capacity;
}

/* Reserve a number, or HA_SITE_UNKNOWN. */
static uint32_t number_reserve(struct ha_shm *shm)
{
	uint32_t limit = number_limit(shm), site;

	do {
		if (load_relaxed(&shm->site_next) >= limit)
			return HA_SITE_UNKNOWN;
		site = __atomic_fetch_add(&shm->site_next, 1, __ATOMIC_RELAXED);
	} while (site == HA_SITE_UNKNOWN);
	return site < limit ? site : HA_SITE_UNKNOWN;
}

/* Write a new site and enter it into the index, but not yet into the hash table. */
static uint32_t site_write(struct ha_shm *shm, const struct site_key *key, uint64_t hash)
{
	uint64_t *index = shm_region(shm, HA_REGION_SITE_INDEX);
	uint64_t size = sizeof(struct ha_site) + key->frames * sizeof(key->pc[0]);
	struct ha_site *body;
	uint64_t offset;
	uint32_t site;

	/* Room in the arena must not be used up for sites that get no number. */
	if (load_relaxed(&shm->site_next) >= number_limit(shm))
		return HA_SITE_UNKNOWN;
	offset = arena_reserve(shm, size);
	if (!offset)
		return HA_SITE_UNKNOWN;
	site = number_reserve(shm);
	if (site == HA_SITE_UNKNOWN)
		return HA_SITE_UNKNOWN;
	body = shm_at(shm, offset);
	body->hash = hash;
	body->generation = key->generation;
	body->frames = (uint16_t)key->frames;
	body->flags = key->flags;
	for (uint32_t i = 0; i < key->frames; i++)
		body->pc[i] = key->pc[i];
	store_release(&index[site], offset);
	return site;
}

static void site_withdraw(struct ha_shm *shm, uint32_t site)
{
	uint64_t *index = shm_region(shm, HA_REGION_SITE_INDEX);

	if (site != HA_SITE_UNKNOWN)
		store_relaxed(&index[site], 0);
}

uint32_t sites_intern(struct ha_shm *shm, const struct site_key *key)
{
	uint64_t *words = shm_region(shm, HA_REGION_SITE_HASH);
	uint64_t hash = site_hash(key), count = hash_words(shm);
	uint64_t at = ((hash >> 32) * count) >> 32;
	uint32_t mine = HA_SITE_UNKNOWN;

	for (uint32_t probe = 0; probe < PROBES_MAX;) {
		uint64_t word = load_acquire(&words[at]);

		if (!word) {
			if (mine == HA_SITE_UNKNOWN)
				mine = site_write(shm, key, hash);
			if (mine == HA_SITE_UNKNOWN)
				return HA_SITE_UNKNOWN;
			if (word_replace(&words[at], 0, hash << HA_KEY_SITE_BITS | mine))
				return mine;
			/* Another thread was faster here: look at what it put. */
			continue;
		}
		if ((word ^ hash << HA_KEY_SITE_BITS) <= WORD_SITE_MASK) {
			const struct ha_site *site = sites_get(shm, word & WORD_SITE_MASK);

			if (site && site_equals(site, key, hash)) {
				site_withdraw(shm, mine);
				return word & WORD_SITE_MASK;
			}
		}
		at = at + 1 < count ? at + 1 : 0;
		probe++;
	}
	site_withdraw(shm, mine);
	return HA_SITE_UNKNOWN;
}
