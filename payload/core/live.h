/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The live table: which blocks are in use, with size, site and time.
 *
 * In each segment a block has a first bucket, which it shares with its
 * neighbours, and others that depend on nothing but its address. A new one goes
 * to the first that is not full, of the newest segment. Buckets count the blocks
 * that have passed them by; where none has, a search ends. Cells are emptied
 * when a block is freed, and there are no chains and no tombstones: what an
 * operation costs depends on the number of segments, not on the past.
 *
 * A cell's life, as its key:
 *
 *	0 --insert--> HA_KEY_BUSY --> key --take--> 0
 *				      |  ^
 *				 hold |  | release
 *				      v  |
 *			       key | HA_KEY_BUSY --retire--> 0
 *
 * Only the first step is contended, and only it is a compare-and-swap: a block
 * has one owner, who alone may free or reallocate it. A held cell is not found
 * by anybody, since the allocator may already have given its address to
 * another thread.
 */
#ifndef PAYLOAD_CORE_LIVE_H
#define PAYLOAD_CORE_LIVE_H

#include "payload/core/shm.h"
#include "payload/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_block {
	uint64_t size; /* at most HA_VALUE_SIZE_MAX */
	uint32_t site;
	uint32_t tick;
	uint8_t mark; /* HA_MARK_RATE; 0: stands for itself */
};

enum live_insert {
	LIVE_INSERTED,
	LIVE_REPLACED, /* the block stood here already */
	LIVE_FULL,     /* no room */
};

/* Whether a block with this address can be kept: 8-aligned, below 2^47, not 0. */
static inline bool live_accepts(uint64_t ptr)
{
	return ptr && !(ptr & 7) && !(ptr >> 47);
}

/*
 * A region of the heap has a page of the table, and a piece of the region a
 * bucket there. A piece has room for two of the smallest blocks that are common.
 */
#define LIVE_PIECE_SIZE	  32u
#define LIVE_PAGE_BUCKETS (HA_PAGE / sizeof(struct ha_bucket))
#define LIVE_REGION_SIZE  (LIVE_PAGE_BUCKETS * LIVE_PIECE_SIZE)

/*
 * The number of @ptr's first bucket, of @buckets. So blocks that are used
 * together have cells on the same pages and lines. The region's hash decides
 * which page it is, by its upper half, and where in it the pieces begin: of
 * blocks that all begin a region, each has another bucket.
 */
static inline uint64_t live_first(uint64_t buckets, uint64_t ptr)
{
	uint64_t hash = ptr / LIVE_REGION_SIZE * HA_HASH_MULTIPLIER;
	uint64_t page = (hash >> 32) * (buckets / LIVE_PAGE_BUCKETS) >> 32;
	uint64_t piece = (ptr / LIVE_PIECE_SIZE ^ hash >> 24) % LIVE_PAGE_BUCKETS;

	return (page * LIVE_PAGE_BUCKETS + piece) & (buckets - 1);
}

/* Where nearly every search for @ptr begins and ends. NULL if there is no segment. */
static inline struct ha_bucket *live_bucket(const struct ha_shm *shm, uint64_t ptr)
{
	uint64_t newest = load_acquire(&shm->segments) - 1;
	const struct ha_segment *segment;

	if (UNLIKELY(newest >= HA_SEGMENTS))
		return NULL;
	segment = &shm->segment[newest];
	return (struct ha_bucket *)shm_at(shm, segment->offset) + live_first(segment->buckets, ptr);
}

/* 1 or 0, and never a branch: the compiler cannot know that none could be foreseen. */
static inline uint32_t live_same(uint64_t a, uint64_t b)
{
	uint32_t same = a == b;

	__asm__("" : "+r"(same));
	return same;
}

/*
 * The cells of a bucket whose keys, shifted, are @wanted: a bit for each. All are
 * compared. A held cell is not found: the busy mark is part of what is compared.
 */
static inline uint32_t live_match(const struct ha_bucket *bucket, uint32_t shift, uint64_t wanted)
{
	_Static_assert(HA_CELLS == 3, "a bucket's cells are written out here");
	return live_same(load_relaxed(&bucket->key[0]) >> shift, wanted) |
	       live_same(load_relaxed(&bucket->key[1]) >> shift, wanted) << 1 |
	       live_same(load_relaxed(&bucket->key[2]) >> shift, wanted) << 2;
}

static inline void live_cell_read(const struct ha_bucket *bucket, uint32_t cell,
				  struct live_block *ret)
{
	uint64_t value = load_relaxed(&bucket->value[cell]);

	ret->size = HA_VALUE_SIZE(value);
	ret->tick = HA_VALUE_TICK(value);
	ret->mark = load_relaxed(&bucket->mark[cell]);
	ret->site = HA_KEY_SITE(load_relaxed(&bucket->key[cell]));
}

static inline void live_cell_write(struct ha_bucket *bucket, uint32_t cell, uint64_t ptr,
				   const struct live_block *block)
{
	store_relaxed(&bucket->value[cell], HA_VALUE(block->size, block->tick));
	store_relaxed(&bucket->mark[cell], block->mark);
	store_release(&bucket->key[cell], HA_KEY(ptr, block->site));
}

/* What the first bucket does not decide: further buckets, older segments. */
void live_prefetch_older(const struct ha_shm *shm, uint64_t ptr);
enum live_insert live_insert_anywhere(struct ha_shm *shm, uint64_t ptr,
				      const struct live_block *block, struct live_block *old);
bool live_take_anywhere(struct ha_shm *shm, uint64_t ptr, struct live_block *ret);

/* Begin to fetch what an operation on @ptr will read. Returns what live_insert() wants. */
static inline struct ha_bucket *live_prefetch(const struct ha_shm *shm, uint64_t ptr)
{
	struct ha_bucket *bucket = live_bucket(shm, ptr);

	__builtin_prefetch(bucket, 1);
	if (UNLIKELY(load_relaxed(&shm->segments) > 1))
		live_prefetch_older(shm, ptr);
	return bucket;
}

/* Enter @block at @ptr, whose live_bucket() is @bucket. LIVE_REPLACED: *@old stood here. */
HOT enum live_insert live_insert(struct ha_shm *shm, struct ha_bucket *bucket, uint64_t ptr,
				 const struct live_block *block, struct live_block *old)
{
	struct live_block copy;
	uint32_t empty, cell;

	/* Where no block has passed, and no segment is older, it is nowhere else. */
	if (UNLIKELY(!bucket || load_relaxed(&shm->segments) != 1 ||
		     load_relaxed(&bucket->passed) ||
		     live_match(bucket, HA_KEY_SITE_BITS, ptr >> 3)))
		goto anywhere;
	empty = live_match(bucket, 0, 0);
	cell = (uint32_t)__builtin_ctz(empty | 1u << HA_CELLS);
	if (UNLIKELY(!empty || !word_replace(&bucket->key[cell], 0, HA_KEY_BUSY)))
		goto anywhere;
	live_cell_write(bucket, cell, ptr, block);
	return LIVE_INSERTED;
anywhere:
	copy = *block;
	return live_insert_anywhere(shm, ptr, &copy, old);
}

/* Take @ptr out. False if it is not here. */
HOT bool live_take(struct ha_shm *shm, uint64_t ptr, struct live_block *ret)
{
	struct ha_bucket *bucket = live_bucket(shm, ptr);
	uint32_t match = LIKELY(bucket) ? live_match(bucket, HA_KEY_SITE_BITS, ptr >> 3) : 0;
	uint32_t cell = (uint32_t)__builtin_ctz(match | 1u << HA_CELLS);

	if (UNLIKELY(!match)) {
		struct live_block found;
		bool taken = live_take_anywhere(shm, ptr, &found);

		if (taken)
			*ret = found;
		return taken;
	}
	live_cell_read(bucket, cell, ret);
	store_release(&bucket->key[cell], 0);
	return true;
}

/*
 * Hold the cell of @ptr. Returns its number, below LIVE_CELLS, or LIVE_NO_CELL
 * if it is not here.
 */
uint64_t live_hold(struct ha_shm *shm, uint64_t ptr);

/* Size of the block in the held cell @cell; 0 if it isn't a held cell. */
uint64_t live_held_size(const struct ha_shm *shm, uint64_t cell);

/* The held cell @cell: put back as it was. */
void live_release(struct ha_shm *shm, uint64_t cell);

/* The held cell @cell: emptied. Where its block was, or 0 if it isn't a held cell. */
uint64_t live_retire(struct ha_shm *shm, uint64_t cell, struct live_block *ret);

/*
 * The held cell @cell, if it holds @ptr: replaced by @block. False, and then
 * nothing is changed, if it holds something else.
 */
bool live_update(struct ha_shm *shm, uint64_t cell, uint64_t ptr, const struct live_block *block,
		 struct live_block *old);

#define LIVE_CELL_BITS 34u /* of a cell's number in its segment */
#define LIVE_CELLS     ((uint64_t)HA_SEGMENTS << LIVE_CELL_BITS)
#define LIVE_NO_CELL   UINT64_MAX

#endif
