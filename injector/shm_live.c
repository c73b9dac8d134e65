// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The shared memory's live table: its segments, how full they are, and what the
 * blocks in them stand for.
 */
#include "injector/shm_private.h"

#include <math.h>

#include "injector/hugepage.h"

#define MIB (1024ull * 1024)

/* First segment of the live table: 128 Ki buckets, 393,000 cells, 8 MiB. */
#define FIRST_SEGMENT_BUCKETS 131072ull

/*
 * A segment is added when half of the newest one's cells are taken. A block finds
 * a place in one that is nearly full, but then searches take several buckets.
 * How full it is is estimated from so many buckets, evenly spread.
 *
 * It is made ready before, in steps, lest the clock wait. What is not of huge
 * pages by the time that it is needed stays so: for a table in use that would
 * stop threads for 10 ms where a virtual machine's memory is new.
 */
#define PREPARE_PERMILLE 333u
#define ADD_PERMILLE	 500u
#define FILL_SAMPLE	 256ull
#define TOUCH_STEP	 (16 * MIB)

/*
 * Where memory is short, a segment may be smaller than the one before, but not
 * by more than this: each operation looks into all segments.
 */
#define SEGMENT_SHRINK	      4u
#define SEGMENT_BUCKETS_LEAST (FIRST_SEGMENT_BUCKETS / 8)

/* The next segment: twice the last one, or as large as there is room. 0 buckets: there is none. */
static struct ha_segment segment_next(const struct shm *shm)
{
	const struct ha_region *live = &shm->region[HA_REGION_LIVE];
	struct ha_segment next = {live->offset, FIRST_SEGMENT_BUCKETS};
	uint64_t end = live->offset + live->size, least = SEGMENT_BUCKETS_LEAST;

	if (shm->segments == HA_SEGMENTS)
		return (struct ha_segment){0};
	if (shm->segments) {
		const struct ha_segment *last = &shm->segment[shm->segments - 1];

		next.offset = last->offset + last->buckets * sizeof(struct ha_bucket);
		next.buckets = last->buckets * (shm->segments > 1 ? 2 : 1);
		if (least < last->buckets / SEGMENT_SHRINK)
			least = last->buckets / SEGMENT_SHRINK;
	}
	while (next.buckets > least &&
	       (next.buckets * sizeof(struct ha_bucket) > shm->room.segments ||
		next.offset + next.buckets * sizeof(struct ha_bucket) > end))
		next.buckets /= 2;
	return next.buckets > least ? next : (struct ha_segment){0};
}

/* Touch up to @most more bytes of the next segment. */
static struct error *next_touch(struct shm *shm, uint64_t most)
{
	struct shm_next *next = &shm->next;
	uint64_t size = next->size - next->touched;
	struct error *err;

	if (size > most)
		size = most;
	err = shm_pages_touch(shm, next->segment.offset + next->touched, size);
	if (!err)
		next->touched += size;
	return err;
}

/* Make one more huge page of what has been touched. False: there is no other. */
static bool next_join(struct shm *shm)
{
	struct shm_next *next = &shm->next;

	if (next->joined + HUGEPAGE_SIZE > next->touched)
		return false;
	hugepage_join((uint8_t *)shm->header + next->segment.offset + next->joined, HUGEPAGE_SIZE);
	next->joined += HUGEPAGE_SIZE;
	return true;
}

static void next_publish(struct shm *shm)
{
	struct ha_shm *header = shm->header;
	uint64_t count = shm->segments;

	shm->segment[count] = shm->next.segment;
	shm->segments = count + 1;
	shm->next = (struct shm_next){0};
	header->segment[count] = shm->segment[count];
	/* Both pair with the payload's acquire loads. */
	__atomic_store_n(&header->newest, ha_newest(&shm->segment[count], count + 1),
			 __ATOMIC_RELEASE);
	__atomic_store_n(&header->segments, count + 1, __ATOMIC_RELEASE);
}

static void next_choose(struct shm *shm)
{
	struct ha_segment segment = segment_next(shm);
	uint64_t size = segment.buckets * sizeof(struct ha_bucket);

	/* Our mapping begins at a multiple of a huge page. */
	shm->next = (struct shm_next){
		.segment = segment,
		.size = size,
		.joined = -segment.offset % HUGEPAGE_SIZE,
	};
	shm->room.segments -= size < shm->room.segments ? size : shm->room.segments;
	shm->room.sites -= size < shm->room.sites ? size : shm->room.sites;
}

struct error *shm_live_begin(struct shm *shm)
{
	struct error *err;

	next_choose(shm);
	err = next_touch(shm, UINT64_MAX);
	if (err)
		return err;
	while (next_join(shm))
		;
	next_publish(shm);
	return NULL;
}

/* What was found in a few buckets. */
struct look {
	uint64_t cells, taken;
	double bytes;
};

double shm_block_weight(const struct shm *shm, uint64_t size, uint8_t mark)
{
	uint32_t rate = HA_MARK_RATE(mark);
	double interval = rate < shm->rates ? (double)shm->interval[rate] : 1;

	return interval > 1 ? -1 / expm1(-((double)size + 1) / interval) : 1;
}

/*
 * Pages of buckets are chosen by a hash of the block's page, so any few will
 * do; one bucket of each page that is looked at, not always the same one.
 */
static void segment_look(const struct shm *shm, const struct ha_segment *segment, uint64_t count,
			 struct look *look)
{
	const struct ha_bucket *buckets =
		(const struct ha_bucket *)((const uint8_t *)shm->header + segment->offset);
	uint64_t step = segment->buckets / count, i, k;

	for (i = 0; i < count; i++) {
		const struct ha_bucket *bucket = &buckets[i * step + i % step];

		for (k = 0; k < HA_CELLS; k++) {
			uint64_t size = HA_VALUE_SIZE(bucket->value[k]);

			if (!__atomic_load_n(&bucket->key[k], __ATOMIC_RELAXED))
				continue;
			look->taken++;
			look->bytes += (double)size *
				       shm_block_weight(shm, size, HA_NOTE_MARK(bucket->note[k]));
		}
	}
	look->cells += count * HA_CELLS;
}

struct error *shm_live_tick(struct shm *shm)
{
	struct look look = {0};
	struct error *err;
	bool add;

	segment_look(shm, &shm->segment[shm->segments - 1], FILL_SAMPLE, &look);
	if (look.taken * 1000 < look.cells * PREPARE_PERMILLE)
		return NULL;
	if (!shm->next.size)
		next_choose(shm);
	if (!shm->next.size)
		return NULL;
	add = look.taken * 1000 >= look.cells * ADD_PERMILLE;
	err = next_touch(shm, add ? UINT64_MAX : TOUCH_STEP);
	if (err)
		return err;
	if (add)
		next_publish(shm);
	else
		next_join(shm);
	return NULL;
}

bool shm_can_grow(const struct shm *shm)
{
	return shm->next.size || segment_next(shm).buckets;
}

struct shm_live shm_live(const struct shm *shm)
{
	struct shm_live live = {0};
	struct look look = {0};

	for (uint64_t i = 0; i < shm->segments; i++)
		live.cells += shm->segment[i].buckets * HA_CELLS;
	for (uint64_t i = 0; i < shm->segments; i++) {
		const struct ha_segment *segment = &shm->segment[i];

		segment_look(shm, segment,
			     1 + 2 * FILL_SAMPLE * HA_CELLS * segment->buckets / live.cells, &look);
	}
	live.permille = (uint32_t)(look.taken * 1000 / look.cells);
	live.bytes = look.bytes * (double)live.cells / (double)look.cells;
	return live;
}
