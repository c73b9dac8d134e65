/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/live.h"

#include <stddef.h>

/* Tries to claim a cell before other threads do; they have filled the bucket if so many fail. */
#define CLAIM_TRIES 16u

/* The key of a cell whose value is being replaced. */
#define KEY_WRITING HA_KEY_BUSY

/* ---- the tags of a bucket: 8 bytes in a word, searched at once ---- */

#define TAG_BITS  8u
#define TAG_ONES  0x0101010101010101ull
#define TAG_LOW	  0x7f7f7f7f7f7f7f7full /* all bits of each byte but the highest */
#define TAG_CELLS 0x0080808080808080ull /* the highest bit of each cell's byte */

/* The bytes that are 0: their highest bits. */
static inline uint64_t tags_zero(uint64_t tags)
{
	return ~(((tags & TAG_LOW) + TAG_LOW) | tags | TAG_LOW) & TAG_CELLS;
}

static inline uint32_t tags_count(uint64_t marks)
{
	return (uint32_t)((marks >> (TAG_BITS - 1)) * TAG_ONES >> (64 - TAG_BITS));
}

static inline uint32_t tags_first(uint64_t marks)
{
	return (uint32_t)__builtin_ctzll(marks) / TAG_BITS;
}

/* ---- where a block may stand ---- */

struct place {
	uint64_t hash;
	uint64_t tag;
};

/*
 * Both halves choose a bucket. Blocks are often a power of two apart, so all
 * bits of the address have to reach all bits that are used.
 */
static inline struct place place_of(uint64_t ptr)
{
	uint64_t hash = (ptr >> 3) * HA_HASH_MULTIPLIER, tag;

	hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93ull;
	hash ^= hash >> 32;
	tag = hash >> (64 - TAG_BITS);
	return (struct place){hash, tag + !tag};
}

static inline uint32_t segment_count(const struct ha_shm *shm)
{
	uint64_t count = load_acquire(&shm->segments);

	return count < HA_SEGMENTS ? (uint32_t)count : HA_SEGMENTS;
}

/* The two buckets of a place in one segment. */
struct pair {
	struct ha_bucket *first, *second;
};

static inline struct pair pair_of(const struct ha_shm *shm, uint32_t segment,
				  const struct place *place)
{
	struct ha_bucket *buckets = shm_at(shm, shm->segment[segment].offset);
	uint64_t mask = shm->segment[segment].buckets - 1;
	uint64_t first = place->hash & mask, second = place->hash >> 32 & mask;

	second ^= (first == second) & mask;
	return (struct pair){&buckets[first], &buckets[second]};
}

/* ---- cells ---- */

/* A cell; bucket is NULL for none. */
struct cell {
	struct ha_bucket *bucket;
	uint32_t index;
};

static inline uint64_t *cell_key(const struct cell *cell)
{
	return &cell->bucket->key[cell->index];
}

static inline uint64_t *cell_value(const struct cell *cell)
{
	return &cell->bucket->value[cell->index];
}

static inline uint8_t *cell_mark(const struct cell *cell)
{
	return &cell->bucket->mark[cell->index];
}

static inline void cell_read(const struct cell *cell, struct live_block *ret)
{
	uint64_t key = load_relaxed(cell_key(cell)), value = load_relaxed(cell_value(cell));

	ret->size = HA_VALUE_SIZE(value);
	ret->tick = HA_VALUE_TICK(value);
	ret->mark = load_relaxed(cell_mark(cell));
	ret->site = HA_KEY_SITE(key);
}

static inline void cell_write(const struct cell *cell, uint64_t ptr, const struct live_block *block)
{
	store_relaxed(cell_value(cell), HA_VALUE(block->size, block->tick));
	store_relaxed(cell_mark(cell), block->mark);
	store_release(cell_key(cell), HA_KEY(ptr, block->site));
}

static inline void cell_replace(const struct cell *cell, uint64_t ptr,
				const struct live_block *block, struct live_block *old)
{
	cell_read(cell, old);
	/* So that the injector doesn't take the new value for the old site's. */
	store_release(cell_key(cell), KEY_WRITING);
	cell_write(cell, ptr, block);
}

/* Give the cell back. The tag last: who sees it at 0 may claim the cell at once. */
static inline void cell_clear(const struct cell *cell)
{
	uint8_t *tags = (uint8_t *)&cell->bucket->tags;

	store_relaxed(cell_key(cell), 0);
	store_release(&tags[cell->index], 0);
}

/* One of two, without a branch: which it is, is a coin toss. */
static inline uint64_t choose(bool first, uint64_t a, uint64_t b)
{
	uint64_t mask = -(uint64_t)first;

	return (a & mask) | (b & ~mask);
}

/*
 * Whether the cell holds @ptr. Not so if it is held: the busy mark is part of
 * what is compared.
 */
static inline bool cell_holds(const struct cell *cell, uint64_t ptr)
{
	return load_relaxed(cell_key(cell)) >> HA_KEY_SITE_BITS == ptr >> 3;
}

/* The cell of @ptr among those of @bucket that are marked. */
static NOINLINE struct cell marks_search(struct ha_bucket *bucket, uint64_t marks, uint64_t ptr)
{
	for (; marks; marks &= marks - 1) {
		struct cell cell = {bucket, tags_first(marks)};

		if (cell_holds(&cell, ptr))
			return cell;
	}
	return (struct cell){NULL, 0};
}

static inline struct cell pair_find(const struct pair *pair, const struct place *place,
				    uint64_t ptr)
{
	uint64_t wanted = place->tag * TAG_ONES;
	uint64_t first = tags_zero(load_relaxed(&pair->first->tags) ^ wanted);
	uint64_t second = tags_zero(load_relaxed(&pair->second->tags) ^ wanted);
	uint64_t marks = choose(first != 0, first, second);
	struct cell cell = {
		(void *)choose(first != 0, (uint64_t)pair->first, (uint64_t)pair->second), 0};

	if (!marks)
		return (struct cell){NULL, 0};
	cell.index = tags_first(marks);
	if (LIKELY(cell_holds(&cell, ptr)))
		return cell;
	/* Another block with the same tag stands here. */
	cell = marks_search(pair->first, first, ptr);
	return cell.bucket ? cell : marks_search(pair->second, second, ptr);
}

static inline struct cell cell_find(const struct ha_shm *shm, const struct place *place,
				    uint64_t ptr, uint32_t *segment_ret)
{
	struct cell cell = {NULL, 0};

	for (uint32_t i = segment_count(shm); i-- > 0;) {
		struct pair pair = pair_of(shm, i, place);

		*segment_ret = i;
		cell = pair_find(&pair, place, ptr);
		if (cell.bucket)
			break;
	}
	return cell;
}

/* Claim an empty cell in the emptier bucket. */
static inline struct cell cell_claim(const struct pair *pair, uint64_t tag)
{
	for (uint32_t try = 0; try < CLAIM_TRIES; try++) {
		uint64_t first = load_relaxed(&pair->first->tags);
		uint64_t second = load_relaxed(&pair->second->tags);
		uint64_t first_empty = tags_zero(first), second_empty = tags_zero(second);
		bool choice = tags_count(first_empty) >= tags_count(second_empty);
		struct ha_bucket *bucket =
			(void *)choose(choice, (uint64_t)pair->first, (uint64_t)pair->second);
		uint64_t tags = choose(choice, first, second);
		uint64_t empty = choose(choice, first_empty, second_empty);
		uint32_t index;

		if (!empty)
			break;
		index = tags_first(empty);
		if (LIKELY(word_replace(&bucket->tags, tags, tags | tag << index * TAG_BITS)))
			return (struct cell){bucket, index};
	}
	return (struct cell){NULL, 0};
}

void live_prefetch(const struct ha_shm *shm, uint64_t ptr)
{
	struct place place = place_of(ptr);
	uint32_t count = segment_count(shm);
	struct pair pair;

	if (!count)
		return;
	pair = pair_of(shm, count - 1, &place);
	__builtin_prefetch(pair.first, 1);
	__builtin_prefetch(pair.second, 1);
}

enum live_insert live_insert(struct ha_shm *shm, uint64_t ptr, const struct live_block *block,
			     struct live_block *old)
{
	struct place place = place_of(ptr);
	uint32_t segment;
	struct cell cell = cell_find(shm, &place, ptr, &segment);

	if (UNLIKELY(cell.bucket)) {
		cell_replace(&cell, ptr, block, old);
		return LIVE_REPLACED;
	}
	for (uint32_t i = segment_count(shm); i-- > 0;) {
		struct pair pair = pair_of(shm, i, &place);

		cell = cell_claim(&pair, place.tag);
		if (LIKELY(cell.bucket)) {
			cell_write(&cell, ptr, block);
			return LIVE_INSERTED;
		}
	}
	return LIVE_FULL;
}

bool live_take(struct ha_shm *shm, uint64_t ptr, struct live_block *ret)
{
	struct place place = place_of(ptr);
	uint32_t segment;
	struct cell cell = cell_find(shm, &place, ptr, &segment);

	if (!cell.bucket)
		return false;
	cell_read(&cell, ret);
	cell_clear(&cell);
	return true;
}

/* ---- held cells ---- */

uint64_t live_hold(struct ha_shm *shm, uint64_t ptr)
{
	struct place place = place_of(ptr);
	uint32_t segment;
	struct cell cell = cell_find(shm, &place, ptr, &segment);
	const struct ha_bucket *buckets;

	if (!cell.bucket)
		return LIVE_NO_CELL;
	store_release(cell_key(&cell), load_relaxed(cell_key(&cell)) | HA_KEY_BUSY);
	buckets = shm_at(shm, shm->segment[segment].offset);
	return (uint64_t)segment << LIVE_CELL_BITS |
	       ((uint64_t)(cell.bucket - buckets) * HA_CELLS + cell.index);
}

/* The held cell of this number. */
static struct cell cell_held(const struct ha_shm *shm, uint64_t number)
{
	uint64_t segment = number >> LIVE_CELL_BITS;
	uint64_t at = number & ((1ull << LIVE_CELL_BITS) - 1);
	struct cell none = {NULL, 0}, cell;
	struct ha_bucket *buckets;

	if (segment >= segment_count(shm) || at / HA_CELLS >= shm->segment[segment].buckets)
		return none;
	buckets = shm_at(shm, shm->segment[segment].offset);
	cell = (struct cell){&buckets[at / HA_CELLS], at % HA_CELLS};
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
	uint64_t ptr;

	if (!cell.bucket)
		return 0;
	ptr = HA_KEY_PTR(load_relaxed(cell_key(&cell)));
	cell_read(&cell, ret);
	cell_clear(&cell);
	return ptr;
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
