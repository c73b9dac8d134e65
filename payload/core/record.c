/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What one call of an allocation function changes: a cell of the live table,
 * the sums of a site, the counters of a stripe.
 */
#include "payload/arch/x86_64/thread_pointer.h"
#include "payload/core/capture.h"
#include "payload/core/core.h"
#include "payload/core/filter.h"
#include "payload/core/histogram.h"
#include "payload/core/live.h"
#include "payload/core/sample.h"
#include "payload/core/scratch.h"
#include "payload/core/shm.h"
#include "payload/core/sites.h"
#include "payload/core/trie.h"
#include "payload/core/walk.h"

/*
 * What core_realloc_begin() returns: 0 for a block that is not in the live
 * table, TOKEN_NO_BLOCK if there was no block, else
 *
 *	 63    40    39    38    0
 *	 session      1     cell
 */
#define TOKEN_UNKNOWN	   0ull
#define TOKEN_NO_BLOCK	   (~0ull)
#define TOKEN_SESSION(shm) ((uint64_t)(shm)->session << 40)
#define TOKEN_MARK	   (1ull << 39)
#define TOKEN_CELL(token)  ((token) & (TOKEN_MARK - 1))
_Static_assert(LIVE_CELLS < TOKEN_MARK, "cell numbers fit below the mark");

/* So many calls are counted after the injector's death. */
#define GAVE_UP_MAX 1000u

static NOINLINE void count_gave_up(struct ha_shm *shm)
{
	/* It is for ever: don't make all threads fight for one line. */
	if (load_relaxed(&shm->gave_up) < GAVE_UP_MAX)
		counter_add_shared(&shm->gave_up, 1);
}

static bool pass_through(struct ha_shm *shm)
{
	if (LIKELY(!shm_is_orphan(shm)))
		return false;
	count_gave_up(shm);
	return true;
}

static void variance_add(struct stripe stripe, struct ha_wide *sum, unsigned __int128 amount)
{
	if (UNLIKELY(stripe.shared))
		counter_add_wide_shared(&sum->low, &sum->high, (uint64_t)amount,
					(uint64_t)(amount >> 64));
	else
		counter_add_wide(&sum->low, &sum->high, (uint64_t)amount, (uint64_t)(amount >> 64));
}

static struct sample_weight block_weight(const struct ha_shm *shm, const struct live_block *block)
{
	return sample_weigh(load_relaxed(&shm->interval[HA_MARK_RATE(block->mark)]), block->size,
			    block->mark);
}

static NOINLINE void sample_alloc(struct ha_shm *shm, struct stripe stripe,
				  const struct live_block *block)
{
	struct ha_sums *sums = stripe_sums(stripe, block->site);
	struct ha_variances *variances = stripe_variances(shm, stripe, block->site);
	struct sample_weight weight = block_weight(shm, block);

	stripe_add(stripe, &sums->alloc_bytes, weight.bytes);
	stripe_add(stripe, &sums->alloc_count, weight.count);
	histogram_size(shm, stripe, block->site, block->size, weight.count);
	variance_add(stripe, &variances->alloc_bytes, weight.bytes_variance);
	variance_add(stripe, &variances->alloc_count, weight.count_variance);
}

static NOINLINE void sample_freed(struct ha_shm *shm, struct stripe stripe,
				  const struct live_block *block)
{
	struct ha_sums *sums = stripe_sums(stripe, block->site);
	struct ha_variances *variances = stripe_variances(shm, stripe, block->site);
	struct sample_weight weight = block_weight(shm, block);

	stripe_add(stripe, &sums->freed_bytes, weight.bytes);
	stripe_add(stripe, &sums->freed_count, weight.count);
	histogram_lifetime(shm, stripe, block->site, block->tick, weight.count);
	variance_add(stripe, &variances->freed_bytes, weight.bytes_variance);
	variance_add(stripe, &variances->freed_count, weight.count_variance);
}

/*
 * What no pointer leads to stays in registers: functions that are called rarely get
 * the address of a copy.
 */
HOT void sums_alloc(struct ha_shm *shm, struct stripe stripe, const struct live_block *block)
{
	struct ha_sums *sums = stripe_sums(stripe, block->site);
	uint64_t count;

	if (UNLIKELY(block->mark)) {
		struct live_block copy = *block;

		sample_alloc(shm, stripe, &copy);
		return;
	}
	stripe_add(stripe, &sums->alloc_bytes, block->size);
	stripe_add(stripe, &sums->alloc_count, 1);
	count = load_relaxed(&sums->alloc_count);
	if (histogram_wants(count))
		histogram_size(shm, stripe, block->site, block->size,
			       count < HA_PICK_ALL ? 1 : HA_PICK);
}

HOT void sums_freed(struct ha_shm *shm, struct stripe stripe, const struct live_block *block)
{
	struct ha_sums *sums = stripe_sums(stripe, block->site);
	uint64_t count;

	if (UNLIKELY(block->mark)) {
		struct live_block copy = *block;

		sample_freed(shm, stripe, &copy);
		return;
	}
	stripe_add(stripe, &sums->freed_bytes, block->size);
	stripe_add(stripe, &sums->freed_count, 1);
	count = load_relaxed(&sums->freed_count);
	if (histogram_wants(count))
		histogram_lifetime(shm, stripe, block->site, block->tick,
				   count < HA_PICK_ALL ? 1 : HA_PICK);
}

/* This thread has allocated it, and nothing else between that and the free. */
HOT void count_temporary(struct stripe stripe, uint64_t ptr, const struct live_block *block)
{
	if (load_relaxed(&stripe.counters->last_ptr) == ptr && block->line == stripe.line &&
	    !block->mark)
		stripe_add(stripe, &stripe_sums(stripe, block->site)->temporary, 1);
}

/* ---- the site of a call ---- */

static uint32_t site_by_walk(const struct walk_start *start, struct stripe stripe)
{
	struct walk_trace *trace = scratch_claim(start, stripe.line);
	struct walk_result result;
	struct site_key key;
	uint32_t site;

	if (UNLIKELY(!trace)) {
		stripe_add(stripe, &stripe.counters->no_scratch, 1);
		return HA_SITE_UNKNOWN;
	}
	walk_run(start, trace, &result);
	stripe_add(stripe, &stripe.counters->walks, 1);
	if (result.flags & HA_SITE_TRUNCATED)
		stripe_add(stripe, &stripe.counters->truncated, 1);
	key = (struct site_key){
		.pc = trace->pc,
		.frames = result.frames,
		.generation = start->rules.index->generation,
		.modules = rules_modules_hash(&start->rules, trace->pc, result.frames),
		.flags = result.flags,
	};
	site = sites_intern(start->shm, &key);
	if (LIKELY(site != HA_SITE_UNKNOWN))
		trie_learn(start, trace, &result, site);
	scratch_release(trace);
	return site;
}

/* Where the trie has not found @site, or somebody wants to see what it was found from. */
static NOINLINE uint32_t site_uncommon(struct ha_shm *shm, const struct ha_frame *frame,
				       struct stripe stripe, uint32_t site)
{
	struct walk_start start;

	if (UNLIKELY(!walk_prepare(shm, frame, thread_pointer(), &start))) {
		stripe_add(stripe, &stripe.counters->no_site, 1);
		return HA_SITE_UNKNOWN;
	}
	if (site == HA_SITE_UNKNOWN)
		site = site_by_walk(&start, stripe);
	if (UNLIKELY(site == HA_SITE_UNKNOWN))
		stripe_add(stripe, &stripe.counters->no_site, 1);
	else if (UNLIKELY(capture_is_wanted(shm)))
		capture_event(&start, stripe, site);
	return site;
}

HOT uint32_t site_of_call(struct ha_shm *shm, const struct ha_frame *frame, struct stripe stripe)
{
	struct stack_bounds bounds;
	uint32_t site;

	stack_find(shm, thread_pointer(), (uint64_t)(frame + 1), &bounds);
	site = trie_find(shm, frame, bounds.high);
	if (UNLIKELY(site == HA_SITE_UNKNOWN || capture_is_wanted(shm)))
		site = site_uncommon(shm, frame, stripe, site);
	return site;
}

/* ---- blocks ---- */

/* Nothing is left out, so what is not in the live table is from before the attach. */
HOT bool records_all(const struct ha_shm *shm)
{
	return LIKELY(!(shm->sampling | load_acquire(&shm->rate)));
}

/* Whether this allocation is recorded. */
HOT bool is_wanted(struct ha_shm *shm, struct stripe stripe, uint64_t size, uint8_t *mark_ret)
{
	*mark_ret = 0;
	return records_all(shm) || sample_take(shm, stripe, size, mark_ret);
}

static NOINLINE void block_make(struct ha_shm *shm, const struct ha_frame *frame, uint64_t size,
				uint8_t mark, struct stripe stripe, struct live_block *ret)
{
	if (UNLIKELY(size > HA_VALUE_SIZE_MAX)) {
		stripe_add(stripe, &stripe.counters->oversized, 1);
		size = HA_VALUE_SIZE_MAX;
	}
	ret->size = size;
	ret->site = site_of_call(shm, frame, stripe);
	ret->tick = load_relaxed(&shm->tick);
	ret->mark = mark;
	ret->line = (uint8_t)stripe.line;
}

/* @ptr was handed out though it is in the live table: as @old. */
static NOINLINE void count_replaced(struct ha_shm *shm, struct stripe stripe,
				    const struct ha_frame *frame, uint64_t ptr,
				    const struct live_block *old)
{
	const struct ha_stripe *counters = stripe.counters;
	uint64_t blocks = old->mark ? block_weight(shm, old).count : 1;

	sums_freed(shm, stripe, old);
	if (old->line == stripe.line && counters->last_ptr == ptr &&
	    counters->last_sp < (uint64_t)(frame + 1)) {
		stripe_add(stripe, &stripe.counters->nested_duplicates, 1);
		return;
	}
	stripe_add(stripe, &stripe.counters->missed_frees, blocks);
	stripe_add(stripe, &stripe_sums(stripe, old->site)->missed_frees, blocks);
}

HOT void remember_last(struct stripe stripe, const struct ha_frame *frame, uint64_t ptr)
{
	if (stripe.shared)
		return;
	store_relaxed(&stripe.counters->last_ptr, ptr);
	store_relaxed(&stripe.counters->last_sp, (uint64_t)(frame + 1));
}

/* A block that cannot be kept: what it would have stood for. */
static NOINLINE void count_untracked(const struct ha_shm *shm, struct stripe stripe, uint64_t size,
				     uint8_t mark)
{
	struct sample_weight weight = {.bytes = size, .count = 1};

	if (mark)
		weight = sample_weigh(load_relaxed(&shm->interval[HA_MARK_RATE(mark)]), size, mark);
	stripe_add(stripe, &stripe.counters->untracked, weight.count);
	stripe_add(stripe, &stripe.counters->untracked_bytes, weight.bytes);
}

/* A block goes to wherever there is room. */
static NOINLINE void block_record(struct ha_shm *shm, const struct ha_frame *frame,
				  struct stripe stripe, uint64_t ptr,
				  const struct live_block *block)
{
	struct live_block old;

	switch (live_insert(shm, ptr, block, &old)) {
	case LIVE_FULL:
		count_untracked(shm, stripe, block->size, block->mark);
		return;
	case LIVE_REPLACED:
		count_replaced(shm, stripe, frame, ptr, &old);
		break;
	case LIVE_INSERTED:
		if (UNLIKELY(shm->sampling))
			filter_add(shm, ptr);
		break;
	}
	sums_alloc(shm, stripe, block);
	remember_last(stripe, frame, ptr);
}

static NOINLINE void block_alloc(struct ha_shm *shm, const struct ha_frame *frame,
				 struct stripe stripe, uint64_t ptr, uint64_t size)
{
	struct live_block block;
	uint8_t mark;

	/*
	 * A call that failed is no event, but it may have ended a countdown: one that
	 * went on would be known to be too short for it.
	 */
	if (!is_wanted(shm, stripe, size, &mark) || UNLIKELY(!ptr))
		return;
	if (UNLIKELY(!live_accepts(ptr))) {
		count_untracked(shm, stripe, size, mark);
		return;
	}
	live_prefetch(shm, ptr);
	block_make(shm, frame, size, mark, stripe, &block);
	block_record(shm, frame, stripe, ptr, &block);
}

/* One that stands for itself. */
HOT struct live_block block_of(const struct ha_shm *shm, struct stripe stripe, uint64_t size,
			       uint32_t site)
{
	_Static_assert(HA_STRIPES <= UINT8_MAX, "a cell has 8 bits for a line");
	return (struct live_block){
		.size = size,
		.site = site,
		.tick = load_relaxed(&shm->tick),
		.line = (uint8_t)stripe.line,
	};
}

static NOINLINE void block_record_new(struct ha_shm *shm, const struct ha_frame *frame,
				      struct stripe stripe, uint64_t ptr, uint64_t size,
				      uint32_t site)
{
	const struct live_block block = block_of(shm, stripe, size, site);

	block_record(shm, frame, stripe, ptr, &block);
}

/* The same as block_alloc(), for what nearly all calls are where all are recorded. */
HOT void block_alloc_exact(struct ha_shm *shm, const struct ha_frame *frame, struct stripe stripe,
			   uint64_t ptr, uint64_t size)
{
	struct live_block block;
	struct ha_bucket *bucket;
	uint32_t site;

	if (UNLIKELY(!live_accepts(ptr) || size > HA_VALUE_SIZE_MAX || !records_all(shm))) {
		block_alloc(shm, frame, stripe, ptr, size);
		return;
	}
	bucket = live_prefetch(shm, ptr);
	site = site_of_call(shm, frame, stripe);
	block = block_of(shm, stripe, size, site);
	if (UNLIKELY(!live_insert_first(bucket, ptr, &block))) {
		block_record_new(shm, frame, stripe, ptr, size, site);
		return;
	}
	sums_alloc(shm, stripe, &block);
	remember_last(stripe, frame, ptr);
}

static void count_adopted(struct stripe stripe, uint64_t size)
{
	stripe_add(stripe, &stripe.counters->adopted, 1);
	stripe_add(stripe, &stripe.counters->adopted_bytes, size);
}

/* The block of a held cell is gone. */
static void held_retire(struct ha_shm *shm, struct stripe stripe, uint64_t cell)
{
	struct live_block old;
	uint64_t ptr = live_retire(shm, cell, &old);

	if (!ptr)
		return;
	if (UNLIKELY(shm->sampling))
		filter_remove(shm, ptr);
	sums_freed(shm, stripe, &old);
}

/* The block of a held cell is still at @ptr, but another one. False: it isn't at @ptr. */
static bool held_update(struct ha_shm *shm, const struct ha_frame *frame, struct stripe stripe,
			uint64_t cell, uint64_t ptr, const struct live_block *block)
{
	struct live_block old;

	if (!live_update(shm, cell, ptr, block, &old))
		return false;
	sums_freed(shm, stripe, &old);
	sums_alloc(shm, stripe, block);
	remember_last(stripe, frame, ptr);
	return true;
}

/* ---- what entry calls ---- */

/* On a line that other threads write, too. */
static NOINLINE void shared_alloc(struct ha_shm *shm, const struct ha_frame *frame,
				  struct stripe stripe, uint64_t ptr, uint64_t size)
{
	stripe_add(stripe, &stripe.counters->events, 1);
	block_alloc(shm, frame, stripe, ptr, size);
}

void core_alloc(struct ha_shm *shm, const struct ha_frame *frame, uint64_t ptr, uint64_t size,
		uint64_t line_index)
{
	struct stripe stripe;

	if (UNLIKELY(pass_through(shm)))
		return;
	if (UNLIKELY(line_index >= HA_LINES)) {
		shared_alloc(shm, frame, stripe_of(shm, line_index), ptr, size);
		return;
	}
	stripe = stripe_own(shm, line_index);
	stripe_add(stripe, &stripe.counters->events, 1);
	block_alloc_exact(shm, frame, stripe, ptr, size);
}

HOT void block_freed(struct ha_shm *shm, struct stripe stripe, uint64_t ptr,
		     const struct live_block *block)
{
	if (UNLIKELY(shm->sampling))
		filter_remove(shm, ptr);
	count_temporary(stripe, ptr, block);
	sums_freed(shm, stripe, block);
}

/*
 * core_free() has nothing to keep over a call: what calls others comes last and
 * in functions like these, whose arguments fit registers.
 */
static NOINLINE void block_free(struct ha_shm *shm, struct stripe stripe, uint64_t ptr)
{
	struct live_block block;

	if (live_accepts(ptr) && live_take(shm, ptr, &block))
		block_freed(shm, stripe, ptr, &block);
	else if (ptr && records_all(shm))
		/* Of blocks that were not samples nothing is known. */
		stripe_add(stripe, &stripe.counters->unknown_frees, 1);
}

static NOINLINE void sample_free(struct ha_shm *shm, struct stripe stripe, uint64_t key,
				 uint64_t value, uint32_t note)
{
	struct live_block block = live_block_of(key, value, note);

	block_freed(shm, stripe, HA_KEY_PTR(key), &block);
}

static NOINLINE void shared_free(struct ha_shm *shm, struct stripe stripe, uint64_t ptr)
{
	stripe_add(stripe, &stripe.counters->events, 1);
	block_free(shm, stripe, ptr);
}

void core_free(struct ha_shm *shm, uint64_t ptr, uint64_t line_index)
{
	struct live_block block;
	struct stripe stripe;

	if (UNLIKELY(pass_through(shm)))
		return;
	if (UNLIKELY(line_index >= HA_LINES)) {
		shared_free(shm, stripe_of(shm, line_index), ptr);
		return;
	}
	stripe = stripe_own(shm, line_index);
	stripe_add(stripe, &stripe.counters->events, 1);
	if (UNLIKELY(!live_accepts(ptr) || !live_take_first(shm, ptr, &block))) {
		block_free(shm, stripe, ptr);
		return;
	}
	if (UNLIKELY(shm->sampling | block.mark)) {
		sample_free(shm, stripe, HA_KEY(ptr, block.site), HA_VALUE(block.size, block.tick),
			    HA_NOTE(block.mark, block.line, block.tick));
		return;
	}
	count_temporary(stripe, ptr, &block);
	sums_freed(shm, stripe, &block);
}

uint64_t core_realloc_begin(struct ha_shm *shm, uint64_t old, uint64_t line_index)
{
	uint64_t cell;

	if (!old)
		return TOKEN_NO_BLOCK;
	if (UNLIKELY(pass_through(shm)) || !live_accepts(old))
		return TOKEN_UNKNOWN;
	cell = live_hold(shm, old);
	return cell == LIVE_NO_CELL ? TOKEN_UNKNOWN : TOKEN_SESSION(shm) | TOKEN_MARK | cell;
}

/* The cell that a token of this session stands for, or LIVE_NO_CELL. */
static uint64_t token_cell(const struct ha_shm *shm, uint64_t token)
{
	bool held = token != TOKEN_NO_BLOCK && token & TOKEN_MARK &&
		    token >> 40 == TOKEN_SESSION(shm) >> 40;

	return held ? TOKEN_CELL(token) : LIVE_NO_CELL;
}

/* The block of a held cell has become @ptr, of @size bytes. */
static void held_resize(struct ha_shm *shm, const struct ha_frame *frame, struct stripe stripe,
			uint64_t cell, uint64_t ptr, uint64_t size)
{
	struct live_block block;
	uint8_t mark;

	if (!is_wanted(shm, stripe, size, &mark) || UNLIKELY(!ptr)) {
		held_retire(shm, stripe, cell);
		return;
	}
	if (UNLIKELY(!live_accepts(ptr))) {
		held_retire(shm, stripe, cell);
		count_untracked(shm, stripe, size, mark);
		return;
	}
	block_make(shm, frame, size, mark, stripe, &block);
	if (held_update(shm, frame, stripe, cell, ptr, &block))
		return;
	held_retire(shm, stripe, cell);
	block_record(shm, frame, stripe, ptr, &block);
}

void core_realloc_end(struct ha_shm *shm, const struct ha_frame *frame, uint64_t token,
		      uint64_t ptr, uint64_t size, uint64_t line_index)
{
	struct stripe stripe = stripe_of(shm, line_index);
	uint64_t cell = token_cell(shm, token);

	if (UNLIKELY(pass_through(shm)))
		return;
	stripe_add(stripe, &stripe.counters->events, 1);
	if (!ptr && size) {
		uint8_t mark;

		is_wanted(shm, stripe, size, &mark);
		live_release(shm, cell);
	} else if (cell == LIVE_NO_CELL) {
		if (ptr && token != TOKEN_NO_BLOCK && records_all(shm))
			count_adopted(stripe, size);
		block_alloc(shm, frame, stripe, ptr, size);
	} else {
		held_resize(shm, frame, stripe, cell, ptr, size);
	}
}

/*
 * Where samples are taken, each call is one that ends the old block and begins
 * a new one, though the size be the same: of a block that is no sample the old
 * size is not known, and it must not get a second chance that samples do not.
 */
void core_xallocx(struct ha_shm *shm, const struct ha_frame *frame, uint64_t ptr, uint64_t size,
		  uint64_t line_index)
{
	struct stripe stripe = stripe_of(shm, line_index);
	uint64_t cell;

	if (UNLIKELY(pass_through(shm) || !live_accepts(ptr)))
		return;
	stripe_add(stripe, &stripe.counters->events, 1);
	cell = live_hold(shm, ptr);
	if (cell == LIVE_NO_CELL) {
		if (records_all(shm))
			count_adopted(stripe, size);
		block_alloc(shm, frame, stripe, ptr, size);
	} else if (records_all(shm) && live_held_size(shm, cell) == size) {
		live_release(shm, cell);
	} else {
		held_resize(shm, frame, stripe, cell, ptr, size);
	}
}
