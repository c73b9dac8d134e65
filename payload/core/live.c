/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/live.h"

#include "payload/arch/x86_64/cells.h"

#include <stddef.h>

/* Tries to get a cell before other threads do; they took 8 cells meanwhile if one fails. */
#define CLAIM_TRIES 16u

#define KEY_WRITING HA_KEY_BUSY

/* Two buckets of one segment. */
struct pair {
	struct ha_bucket *bucket[2];
};

/*
 * Both halves choose a bucket. Blocks are often a power of two apart, so all
 * bits of the address have to reach all bits that are used.
 */
static inline uint64_t hash_of(uint64_t ptr)
{
	uint64_t hash = (ptr >> 3) * HA_HASH_MULTIPLIER;

	hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93ull;
	return hash ^ hash >> 32;
}

static inline uint32_t segment_count(const struct ha_shm *shm)
{
	uint64_t count = load_acquire(&shm->segments);

	return count < HA_SEGMENTS ? (uint32_t)count : HA_SEGMENTS;
}

static inline struct pair pair_of(const struct ha_shm *shm, uint32_t segment, uint64_t hash)
{
	struct ha_bucket *buckets = shm_at(shm, shm->segment[segment].offset);
	uint64_t mask = shm->segment[segment].buckets - 1;
	uint64_t first = hash & mask, second = hash >> 32 & mask;

	second ^= (first == second) & mask;
	return (struct pair){{&buckets[first], &buckets[second]}};
}

/* Bits 0..7: cells of the first bucket, 8..15: of the second. */
static inline uint32_t pair_match(const struct pair *pair, uint64_t key)
{
	return cells_match(pair->bucket[0], key) | cells_match(pair->bucket[1], key) << 8;
}

static inline uint64_t *pair_key(const struct pair *pair, uint32_t cell)
{
	return &pair->bucket[cell / HA_CELLS]->key[cell % HA_CELLS];
}

/* The value that belongs to a key. */
static inline uint64_t *value_of(uint64_t *key)
{
	return key + HA_CELLS;
}

static inline void block_read(uint64_t key, uint64_t value, struct live_block *ret)
{
	ret->size = HA_VALUE_SIZE(value);
	ret->tick = HA_VALUE_TICK(value);
	ret->site = HA_KEY_SITE(key);
}

/* The cell's content is the caller's to write: nobody else takes it. */
static inline void cell_write(uint64_t *cell, uint64_t ptr, const struct live_block *block)
{
	store_relaxed(value_of(cell), HA_VALUE(block->size, block->tick));
	store_release(cell, HA_KEY(ptr, block->site));
}

static inline void cell_replace(uint64_t *cell, uint64_t ptr, const struct live_block *block,
				struct live_block *old)
{
	block_read(load_relaxed(cell), load_relaxed(value_of(cell)), old);
	/* So that the injector doesn't take the new value for the old site's. */
	store_release(cell, KEY_WRITING);
	cell_write(cell, ptr, block);
}

/* The cell of @ptr, or NULL. */
static inline uint64_t *cell_find(const struct ha_shm *shm, uint64_t ptr, uint32_t *segment_ret)
{
	uint64_t hash = hash_of(ptr), key = HA_KEY(ptr, 0);

	for (uint32_t i = segment_count(shm); i-- > 0;) {
		struct pair pair = pair_of(shm, i, hash);
		uint32_t match = pair_match(&pair, key);

		if (match) {
			*segment_ret = i;
			return pair_key(&pair, (uint32_t)__builtin_ctz(match));
		}
	}
	return NULL;
}

static inline uint32_t bits_in_byte(uint32_t byte)
{
	byte -= byte >> 1 & 0x55;
	byte = (byte & 0x33) + (byte >> 2 & 0x33);
	return (byte + (byte >> 4)) & 0x0f;
}

/* Claim an empty cell, in the emptier bucket. NULL if both are full. */
static inline uint64_t *pair_claim(const struct pair *pair)
{
	for (uint32_t try = 0; try < CLAIM_TRIES; try++) {
		uint32_t first = cells_empty(pair->bucket[0]);
		uint32_t second = cells_empty(pair->bucket[1]);
		bool choice = bits_in_byte(second) > bits_in_byte(first);
		uint32_t empty = choice ? second : first;
		uint64_t *cell;

		if (!empty)
			return NULL;
		cell = &pair->bucket[choice]->key[__builtin_ctz(empty)];
		if (LIKELY(word_replace(cell, 0, KEY_WRITING)))
			return cell;
	}
	return NULL;
}

void live_prefetch(const struct ha_shm *shm, uint64_t ptr)
{
	uint32_t count = segment_count(shm);
	struct pair pair;

	if (!count)
		return;
	pair = pair_of(shm, count - 1, hash_of(ptr));
	__builtin_prefetch(&pair.bucket[0]->key, 1);
	__builtin_prefetch(&pair.bucket[1]->key, 1);
}

enum live_insert live_insert(struct ha_shm *shm, uint64_t ptr, const struct live_block *block,
			     struct live_block *old)
{
	uint64_t hash = hash_of(ptr);
	uint32_t segment;
	uint64_t *cell = cell_find(shm, ptr, &segment);

	if (UNLIKELY(cell)) {
		cell_replace(cell, ptr, block, old);
		return LIVE_REPLACED;
	}
	for (uint32_t i = segment_count(shm); i-- > 0;) {
		struct pair pair = pair_of(shm, i, hash);

		cell = pair_claim(&pair);
		if (LIKELY(cell)) {
			cell_write(cell, ptr, block);
			return LIVE_INSERTED;
		}
	}
	return LIVE_FULL;
}

bool live_take(struct ha_shm *shm, uint64_t ptr, struct live_block *ret)
{
	uint32_t segment;
	uint64_t *cell = cell_find(shm, ptr, &segment);

	if (!cell)
		return false;
	block_read(load_relaxed(cell), load_relaxed(value_of(cell)), ret);
	store_release(cell, 0);
	return true;
}

/* ---- held cells ---- */

uint64_t live_hold(struct ha_shm *shm, uint64_t ptr)
{
	uint32_t segment;
	uint64_t *cell = cell_find(shm, ptr, &segment);
	const char *buckets;
	uint64_t at;

	if (!cell)
		return LIVE_NO_CELL;
	store_release(cell, load_relaxed(cell) | HA_KEY_BUSY);
	buckets = shm_at(shm, shm->segment[segment].offset);
	at = (uint64_t)((const char *)cell - buckets);
	return (uint64_t)segment << LIVE_CELL_BITS |
	       (at / sizeof(struct ha_bucket) * HA_CELLS +
		at % sizeof(struct ha_bucket) / sizeof(*cell));
}

/* The held cell of this number, or NULL. */
static uint64_t *cell_held(const struct ha_shm *shm, uint64_t number)
{
	uint64_t segment = number >> LIVE_CELL_BITS;
	uint64_t at = number & ((1ull << LIVE_CELL_BITS) - 1);
	struct ha_bucket *buckets;
	uint64_t *cell;

	if (segment >= segment_count(shm) || at / HA_CELLS >= shm->segment[segment].buckets)
		return NULL;
	buckets = shm_at(shm, shm->segment[segment].offset);
	cell = &buckets[at / HA_CELLS].key[at % HA_CELLS];
	return load_relaxed(cell) > KEY_WRITING ? cell : NULL;
}

uint64_t live_held_size(const struct ha_shm *shm, uint64_t number)
{
	const uint64_t *cell = cell_held(shm, number);

	return cell ? HA_VALUE_SIZE(load_relaxed(cell + HA_CELLS)) : 0;
}

void live_release(struct ha_shm *shm, uint64_t number)
{
	uint64_t *cell = cell_held(shm, number);

	if (cell)
		store_release(cell, load_relaxed(cell) & ~HA_KEY_BUSY);
}

bool live_retire(struct ha_shm *shm, uint64_t number, struct live_block *ret)
{
	uint64_t *cell = cell_held(shm, number);

	if (!cell)
		return false;
	block_read(load_relaxed(cell), load_relaxed(value_of(cell)), ret);
	store_release(cell, 0);
	return true;
}

bool live_update(struct ha_shm *shm, uint64_t number, uint64_t ptr, const struct live_block *block,
		 struct live_block *old)
{
	uint64_t *cell = cell_held(shm, number);

	if (!cell || HA_KEY_PTR(load_relaxed(cell)) != ptr)
		return false;
	cell_replace(cell, ptr, block, old);
	return true;
}
