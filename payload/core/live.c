/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/live.h"

#include <stddef.h>

/* Buckets that may hold a block, of each segment. */
#define PROBES 32u

/* Tries to claim a cell of a bucket before other threads do; then it is as good as full. */
#define CLAIM_TRIES 8u

/* Segments, from the newest, whose lines are fetched ahead. */
#define PREFETCHED 4u

/* The key of a cell that is being written. */
#define KEY_WRITING HA_KEY_BUSY

/* ---- where a block may stand ---- */

struct place {
	uint64_t ptr, hash;
};

static inline struct place place_of(uint64_t ptr)
{
	return (struct place){.ptr = ptr, .hash = (ptr >> 3) * HA_HASH_MULTIPLIER};
}

static inline uint32_t segment_count(const struct ha_shm *shm)
{
	uint64_t count = load_acquire(&shm->segments);

	return count < HA_SEGMENTS ? (uint32_t)count : HA_SEGMENTS;
}

/* A walk over the buckets of one segment where a block may stand. */
struct probe {
	struct ha_bucket *buckets;
	uint64_t mask, at;
	uint32_t left; /* buckets not yet seen, the current one included */
};

static inline struct probe probe_begin(const struct ha_shm *shm, uint32_t segment,
				       const struct place *place)
{
	uint64_t buckets = shm->segment[segment].buckets;

	return (struct probe){
		.buckets = shm_at(shm, shm->segment[segment].offset),
		.mask = buckets - 1,
		.at = live_first(buckets, place->ptr),
		.left = buckets < PROBES ? (uint32_t)buckets : PROBES,
	};
}

static inline struct ha_bucket *probe_bucket(const struct probe *probe)
{
	return &probe->buckets[probe->at];
}

/*
 * The others follow by a linear congruence whose increment is the block's own,
 * odd, and whose multiplier is 1 modulo 4, so it leads to each bucket once
 * (Hull and Dobell). Mere distances would keep to the pattern in which blocks
 * of equal distances fill a table. False: there is none left.
 */
static inline bool probe_next(struct probe *probe, const struct place *place)
{
	probe->at = (probe->at * HA_HASH_MULTIPLIER + (place->hash >> 20 | 1)) & probe->mask;
	return --probe->left != 0;
}

/* Count in, or out, a block of @bucket where it has passed. */
static NOINLINE void passed_change(const struct ha_shm *shm, uint32_t segment,
				   const struct place *place, const struct ha_bucket *bucket,
				   enum byte_step step)
{
	struct probe probe = probe_begin(shm, segment, place);

	while (probe_bucket(&probe) != bucket) {
		byte_count(&probe_bucket(&probe)->passed, step);
		if (!probe_next(&probe, place))
			break;
	}
}

/* ---- cells ---- */

/* A cell; bucket is NULL for none. */
struct cell {
	struct ha_bucket *bucket;
	uint32_t index, segment;
};

static inline uint64_t *cell_key(const struct cell *cell)
{
	return &cell->bucket->key[cell->index];
}

static inline uint64_t *cell_value(const struct cell *cell)
{
	return &cell->bucket->value[cell->index];
}

static inline void cell_replace(const struct cell *cell, uint64_t ptr,
				const struct live_block *block, struct live_block *old)
{
	live_cell_read(cell->bucket, cell->index, old);
	/* So that the injector doesn't take the new value for the old site's. */
	store_release(cell_key(cell), KEY_WRITING);
	live_cell_write(cell->bucket, cell->index, ptr, block);
}

/* Give the cell of @place back: others may claim it at once. */
static inline void cell_clear(const struct ha_shm *shm, const struct place *place,
			      const struct cell *cell)
{
	struct probe probe = probe_begin(shm, cell->segment, place);

	store_release(cell_key(cell), 0);
	if (UNLIKELY(cell->bucket != probe_bucket(&probe)))
		passed_change(shm, cell->segment, place, cell->bucket, BYTE_DOWN);
}

static inline struct cell segment_find(const struct ha_shm *shm, uint32_t segment,
				       const struct place *place)
{
	struct probe probe = probe_begin(shm, segment, place);

	do {
		struct ha_bucket *bucket = probe_bucket(&probe);
		uint64_t match = live_match(bucket, HA_KEY_SITE_BITS, place->ptr >> 3);

		if (LIKELY(match))
			return (struct cell){bucket, (uint32_t)__builtin_ctzll(match), segment};
		if (LIKELY(!load_relaxed(&bucket->passed)))
			break;
	} while (probe_next(&probe, place));
	return (struct cell){NULL, 0, 0};
}

static inline struct cell cell_find(const struct ha_shm *shm, const struct place *place)
{
	struct cell cell = {NULL, 0, 0};

	for (uint32_t i = segment_count(shm); i-- > 0 && !cell.bucket;)
		cell = segment_find(shm, i, place);
	return cell;
}

/* The index of a cell of @bucket that was empty and is ours now, or HA_CELLS. */
static inline uint32_t bucket_claim(struct ha_bucket *bucket)
{
	for (uint32_t try = 0; try < CLAIM_TRIES; try++) {
		uint64_t empty = live_match(bucket, 0, 0);
		uint32_t index;

		if (UNLIKELY(!empty))
			break;
		index = (uint32_t)__builtin_ctzll(empty);
		if (LIKELY(word_replace(&bucket->key[index], 0, KEY_WRITING)))
			return index;
	}
	return HA_CELLS;
}

static inline struct cell segment_claim(const struct ha_shm *shm, uint32_t segment,
					const struct place *place)
{
	struct probe probe = probe_begin(shm, segment, place);
	struct ha_bucket *first = probe_bucket(&probe);

	do {
		struct ha_bucket *bucket = probe_bucket(&probe);
		uint32_t index = bucket_claim(bucket);

		if (UNLIKELY(index == HA_CELLS))
			continue;
		if (UNLIKELY(bucket != first))
			passed_change(shm, segment, place, bucket, BYTE_UP);
		return (struct cell){bucket, index, segment};
	} while (probe_next(&probe, place));
	return (struct cell){NULL, 0, 0};
}

NOINLINE void live_prefetch_all(const struct ha_shm *shm, uint64_t ptr)
{
	uint32_t count = segment_count(shm);

	for (uint32_t i = 1; i <= count && i <= PREFETCHED; i++) {
		const struct ha_segment *segment = &shm->segment[count - i];
		struct ha_bucket *buckets = shm_at(shm, segment->offset);

		__builtin_prefetch(&buckets[live_first(segment->buckets, ptr)], 1);
	}
}

NOINLINE enum live_insert live_insert(struct ha_shm *shm, uint64_t ptr,
				      const struct live_block *block, struct live_block *old)
{
	struct place place = place_of(ptr);
	struct cell cell = cell_find(shm, &place);

	if (UNLIKELY(cell.bucket)) {
		cell_replace(&cell, ptr, block, old);
		return LIVE_REPLACED;
	}
	for (uint32_t i = segment_count(shm); i-- > 0;) {
		cell = segment_claim(shm, i, &place);
		if (LIKELY(cell.bucket)) {
			live_cell_write(cell.bucket, cell.index, ptr, block);
			return LIVE_INSERTED;
		}
	}
	return LIVE_FULL;
}

NOINLINE bool live_take(struct ha_shm *shm, uint64_t ptr, struct live_block *ret)
{
	struct place place = place_of(ptr);
	struct cell cell = cell_find(shm, &place);

	if (!cell.bucket)
		return false;
	live_cell_read(cell.bucket, cell.index, ret);
	cell_clear(shm, &place, &cell);
	return true;
}

/* ---- held cells ---- */

uint64_t live_hold(struct ha_shm *shm, uint64_t ptr)
{
	struct place place = place_of(ptr);
	struct cell cell = cell_find(shm, &place);
	const struct ha_bucket *buckets;

	if (!cell.bucket)
		return LIVE_NO_CELL;
	store_release(cell_key(&cell), load_relaxed(cell_key(&cell)) | HA_KEY_BUSY);
	buckets = shm_at(shm, shm->segment[cell.segment].offset);
	return (uint64_t)cell.segment << LIVE_CELL_BITS |
	       ((uint64_t)(cell.bucket - buckets) * HA_CELLS + cell.index);
}

/* The held cell of this number. */
static struct cell cell_held(const struct ha_shm *shm, uint64_t number)
{
	uint64_t segment = number >> LIVE_CELL_BITS;
	uint64_t at = number & ((1ull << LIVE_CELL_BITS) - 1);
	struct cell none = {NULL, 0, 0}, cell;
	struct ha_bucket *buckets;

	if (segment >= segment_count(shm) || at / HA_CELLS >= shm->segment[segment].buckets)
		return none;
	buckets = shm_at(shm, shm->segment[segment].offset);
	cell = (struct cell){&buckets[at / HA_CELLS], at % HA_CELLS, (uint32_t)segment};
	return load_relaxed(cell_key(&cell)) > KEY_WRITING ? cell : none;
}

uint64_t live_held_size(const struct ha_shm *shm, uint64_t number)
{
	struct cell cell = cell_held(shm, number);

	return cell.bucket ? HA_VALUE_SIZE(load_relaxed(cell_value(&cell))) : 0;
}

void live_release(struct ha_shm *shm, uint64_t number)
{
	struct cell cell = cell_held(shm, number);

	if (cell.bucket)
		store_release(cell_key(&cell), load_relaxed(cell_key(&cell)) & ~HA_KEY_BUSY);
}

uint64_t live_retire(struct ha_shm *shm, uint64_t number, struct live_block *ret)
{
	struct cell cell = cell_held(shm, number);
	struct place place;

	if (!cell.bucket)
		return 0;
	place = place_of(HA_KEY_PTR(load_relaxed(cell_key(&cell))));
	live_cell_read(cell.bucket, cell.index, ret);
	cell_clear(shm, &place, &cell);
	return place.ptr;
}

bool live_update(struct ha_shm *shm, uint64_t number, uint64_t ptr, const struct live_block *block,
		 struct live_block *old)
{
	struct cell cell = cell_held(shm, number);

	if (!cell.bucket || HA_KEY_PTR(load_relaxed(cell_key(&cell))) != ptr)
		return false;
	cell_replace(&cell, ptr, block, old);
	return true;
}
