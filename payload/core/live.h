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

/* Begin to fetch what an operation on @ptr will read. */
void live_prefetch(const struct ha_shm *shm, uint64_t ptr);

/* Enter @block at @ptr. LIVE_REPLACED: *@old is what stood here. */
enum live_insert live_insert(struct ha_shm *shm, uint64_t ptr, const struct live_block *block,
			     struct live_block *old);

/* Take @ptr out. False if it is not here. */
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
