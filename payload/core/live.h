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
	uint8_t line; /* of the thread that allocated it */
};

enum live_insert {
	LIVE_INSERTED,
	LIVE_REPLACED, /* the block stood here already */
	LIVE_FULL,     /* no room */
};

/* Whether a block with this address can be kept: 8-aligned, below 2^47, not 0. */
static inline bool live_accepts(uint64_t ptr)
{
	/* In a rotated one all bits that must be 0 are at the top. */
	return (ptr >> 3 | ptr << 61) - 1 < (1ull << 44) - 1;
}

/*
 * A region of the heap has a page of the table, and a piece of the region a
 * bucket there. A piece has room for two of the smallest blocks that are common.
 */
#define LIVE_PIECE_SIZE	  32u
#define LIVE_PAGE_BUCKETS (HA_PAGE / sizeof(struct ha_bucket))
#define LIVE_REGION_SIZE  (LIVE_PAGE_BUCKETS * LIVE_PIECE_SIZE)

/*
 * Where @ptr's first bucket is. Blocks that are used together have cells on the
 * same pages and lines. The region's hash decides which page it is, by its upper
 * bits, and where in it the pieces begin: of blocks that all begin a region,
 * each has another bucket.
 */
static inline uint64_t live_hash(uint64_t ptr)
{
	return ptr / LIVE_REGION_SIZE * HA_HASH_MULTIPLIER;
}

static inline uint64_t live_piece(uint64_t ptr, uint64_t hash)
{
	return (ptr / LIVE_PIECE_SIZE ^ hash >> 24) % LIVE_PAGE_BUCKETS;
}

/* The number of that bucket, of @buckets. */
static inline uint64_t live_first(uint64_t buckets, uint64_t ptr)
{
	uint64_t hash = live_hash(ptr);
	uint64_t page = (hash >> 32) * (buckets / LIVE_PAGE_BUCKETS) >> 32;

	return (page * LIVE_PAGE_BUCKETS + live_piece(ptr, hash)) & (buckets - 1);
}

/* The same in a segment that HA_NEWEST tells. */
static inline struct ha_bucket *live_bucket_at(const struct ha_shm *shm, uint64_t newest,
					       uint64_t ptr)
{
	uint64_t hash = live_hash(ptr), page = hash >> HA_NEWEST_SHIFT(newest);

	return (struct ha_bucket *)shm_at(shm, HA_NEWEST_OFFSET(newest) + page * HA_PAGE) +
	       live_piece(ptr, hash);
}

/* Both 1 or 0, and never a branch: the compiler cannot know that none could be foreseen. */
static inline uint64_t live_same(uint64_t a, uint64_t b)
{
	uint64_t same = a == b;

	__asm__("" : "+r"(same));
	return same;
}

static inline uint64_t live_differ(uint64_t a, uint64_t b)
{
	uint64_t differ = a != b;

	__asm__("" : "+r"(differ));
	return differ;
}

/*
 * The cells of a bucket whose keys, shifted, are @wanted: a bit for each. All are
 * compared. A held cell is not found: the busy mark is part of what is compared.
 */
static inline uint64_t live_match(const struct ha_bucket *bucket, uint32_t shift, uint64_t wanted)
{
	_Static_assert(HA_CELLS == 3, "a bucket's cells are written out here");
	return live_same(load_relaxed(&bucket->key[0]) >> shift, wanted) |
	       live_same(load_relaxed(&bucket->key[1]) >> shift, wanted) << 1 |
	       live_same(load_relaxed(&bucket->key[2]) >> shift, wanted) << 2;
}

/* What a cell says, by its three words. */
static inline struct live_block live_block_of(uint64_t key, uint64_t value, uint32_t note)
{
	return (struct live_block){
		.size = HA_VALUE_SIZE(value),
		.site = HA_KEY_SITE(key),
		.tick = HA_TICK(value, note),
		.mark = HA_NOTE_MARK(note),
		.line = HA_NOTE_LINE(note),
	};
}

static inline void live_cell_read(const struct ha_bucket *bucket, uint64_t cell,
				  struct live_block *ret)
{
	*ret = live_block_of(load_relaxed(&bucket->key[cell]), load_relaxed(&bucket->value[cell]),
			     load_relaxed(&bucket->note[cell]));
}

static inline void live_cell_write(struct ha_bucket *bucket, uint64_t cell, uint64_t ptr,
				   const struct live_block *block)
{
	store_relaxed(&bucket->value[cell], HA_VALUE(block->size, block->tick));
	store_relaxed(&bucket->note[cell], HA_NOTE(block->mark, block->line, block->tick));
	store_release(&bucket->key[cell], HA_KEY(ptr, block->site));
}

/* The first buckets of all segments. */
void live_prefetch_all(const struct ha_shm *shm, uint64_t ptr);

/*
 * Begin to fetch what an operation on @ptr will read. Returns what
 * live_insert_first() wants: @ptr's first bucket, or NULL if that does not decide alone.
 */
static inline struct ha_bucket *live_prefetch(const struct ha_shm *shm, uint64_t ptr)
{
	uint64_t newest = load_acquire(&shm->newest);
	struct ha_bucket *bucket;

	/* None, or older ones too. */
	if (UNLIKELY((int64_t)newest <= 0)) {
		live_prefetch_all(shm, ptr);
		return NULL;
	}
	bucket = live_bucket_at(shm, newest, ptr);
	__builtin_prefetch(bucket, 1);
	return bucket;
}

/*
 * Enter @block at @ptr, if it is not here, and @bucket has room; false: nothing was
 * done. Of a bucket that no block has passed by, that is soon known. That a block
 * stands here already is so rare that it can be foreseen; which cell is free is not.
 */
HOT bool live_insert_first(struct ha_bucket *bucket, uint64_t ptr, const struct live_block *block)
{
	uint64_t wanted = ptr >> 3, first, second, cell;

	_Static_assert(HA_CELLS == 3, "a bucket's cells are written out here");
	if (UNLIKELY(!bucket || load_relaxed(&bucket->passed)))
		return false;
	first = load_relaxed(&bucket->key[0]);
	second = load_relaxed(&bucket->key[1]);
	if (UNLIKELY(first >> HA_KEY_SITE_BITS == wanted || second >> HA_KEY_SITE_BITS == wanted ||
		     load_relaxed(&bucket->key[2]) >> HA_KEY_SITE_BITS == wanted))
		return false;
	cell = live_differ(first, 0);
	cell += cell & live_differ(second, 0);
	/* Of the last one this tells, too, whether it is free. */
	if (UNLIKELY(!word_replace(&bucket->key[cell], 0, HA_KEY_BUSY)))
		return false;
	live_cell_write(bucket, cell, ptr, block);
	return true;
}

/* The same wherever there is room. LIVE_REPLACED: *@old stood here. */
enum live_insert live_insert(struct ha_shm *shm, uint64_t ptr, const struct live_block *block,
			     struct live_block *old);

/* Take @ptr out. False if its first bucket in the newest segment does not have it. */
HOT bool live_take_first(struct ha_shm *shm, uint64_t ptr, struct live_block *ret)
{
	uint64_t newest = load_acquire(&shm->newest), wanted = ptr >> 3, second, third, cell;
	struct ha_bucket *bucket;

	if (UNLIKELY(!newest))
		return false;
	bucket = live_bucket_at(shm, newest, ptr);
	second = live_same(load_relaxed(&bucket->key[1]) >> HA_KEY_SITE_BITS, wanted);
	third = live_same(load_relaxed(&bucket->key[2]) >> HA_KEY_SITE_BITS, wanted);
	cell = second + 2 * third;
	if (UNLIKELY(load_relaxed(&bucket->key[cell]) >> HA_KEY_SITE_BITS != wanted))
		return false;
	live_cell_read(bucket, cell, ret);
	store_release(&bucket->key[cell], 0);
	return true;
}

/* The same wherever it is. False if it is not here. */
bool live_take(struct ha_shm *shm, uint64_t ptr, struct live_block *ret);

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
