// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/reader.h"

#include <math.h>
#include <string.h>

#include "resolver/cleanup.h"

/* A site is read again while its bytes in use may be wrong by more than a 64th. */
#define READINGS_MAX 4
#define ERROR_SHARE  64

static void reader_freep(struct reader **reader)
{
	reader_free(*reader);
}

struct error *reader_create(struct shm *shm, struct reader **ret)
{
	CLEANUP(reader_freep) struct reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return error_memory();
	reader->shm = shm;
	reader->site = calloc(shm->site_capacity, sizeof(*reader->site));
	if (!reader->site)
		return error_memory();
	*ret = take(reader);
	return NULL;
}

void reader_free(struct reader *reader)
{
	size_t i;

	if (!reader)
		return;
	for (i = 0; reader->site && i < reader->sites; i++)
		free((void *)reader->site[i].pc);
	free(reader->site);
	free(reader);
}

uint64_t reader_inuse_count(const struct ha_sums *sums)
{
	return sums->alloc_count > sums->freed_count ? sums->alloc_count - sums->freed_count : 0;
}

uint64_t reader_inuse_bytes(const struct ha_sums *sums)
{
	return sums->alloc_bytes > sums->freed_bytes ? sums->alloc_bytes - sums->freed_bytes : 0;
}

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static const struct ha_stripe *stripe_at(const struct reader *reader, unsigned int i)
{
	const uint8_t *stripes = shm_region(reader->shm, HA_REGION_STRIPES);

	return (const struct ha_stripe *)(stripes + i * reader->shm->stripe_size);
}

static void counters_add(struct ha_stripe *sum, const struct ha_stripe *stripe)
{
	const uint64_t *from = (const uint64_t *)stripe;
	uint64_t *to = (uint64_t *)sum;
	size_t i;

	for (i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += load(&from[i]);
}

uint64_t reader_events(const struct reader *reader)
{
	uint64_t events = 0;
	unsigned int i;

	for (i = 0; i < HA_STRIPES; i++)
		events += load(&stripe_at(reader, i)->events);
	return events;
}

/* A stack read for the first time: bounds are checked, then it is copied. */
static struct error *site_read(struct reader *reader, size_t number)
{
	const struct shm *shm = reader->shm;
	const struct ha_region *arena = &shm->region[HA_REGION_SITE_ARENA];
	const uint64_t *index = shm_region(shm, HA_REGION_SITE_INDEX);
	struct reader_site *site = &reader->site[number];
	uint64_t offset = load(&index[number]);
	const struct ha_site *record;
	uint64_t *pc;
	uint16_t frames;

	if (!offset)
		return NULL; /* its number is taken, its record is not yet published */
	if (offset % sizeof(uint64_t) || offset < arena->offset ||
	    offset > arena->offset + arena->size - sizeof(*record)) {
		reader->malformed++;
		return NULL;
	}
	record = (const struct ha_site *)((const uint8_t *)shm->header + offset);
	frames = __atomic_load_n(&record->frames, __ATOMIC_RELAXED);
	if (!frames || frames > HA_FRAMES_MAX ||
	    offset + sizeof(*record) + frames * sizeof(*pc) > arena->offset + arena->size) {
		reader->malformed++;
		return NULL;
	}
	pc = malloc(frames * sizeof(*pc));
	if (!pc)
		return error_memory();
	memcpy(pc, record->pc, frames * sizeof(*pc));
	site->pc = pc;
	site->frames = frames;
	site->flags = record->flags;
	site->generation = record->generation;
	return NULL;
}

struct error *reader_site(struct reader *reader, uint32_t number, const struct reader_site **ret)
{
	struct error *err;

	*ret = NULL;
	if (number == HA_SITE_UNKNOWN || number >= reader->shm->site_capacity)
		return NULL;
	if (number >= reader->sites)
		reader->sites = number + 1;
	if (!reader->site[number].frames) {
		err = site_read(reader, number);
		if (err)
			return err;
	}
	if (reader->site[number].frames)
		*ret = &reader->site[number];
	return NULL;
}

/* The stripes that anybody has recorded in. */
struct stripes {
	const struct ha_sums *sums[HA_STRIPES];
	size_t number[HA_STRIPES];
	size_t count;
};

static void stripes_find(const struct reader *reader, struct stripes *ret)
{
	size_t i;

	ret->count = 0;
	for (i = 0; i < HA_STRIPES; i++) {
		const struct ha_stripe *stripe = stripe_at(reader, i);

		if (!load(&stripe->events))
			continue;
		ret->number[ret->count] = i;
		ret->sums[ret->count++] = (const struct ha_sums *)(stripe + 1);
	}
}

static void freed_add(const struct stripes *stripes, size_t site, struct ha_sums *sums)
{
	size_t i;

	for (i = 0; i < stripes->count; i++) {
		const struct ha_sums *from = &stripes->sums[i][site];

		sums->freed_bytes += load(&from->freed_bytes);
		sums->freed_count += load(&from->freed_count);
		sums->missed_frees += load(&from->missed_frees);
		sums->temporary += load(&from->temporary);
	}
}

static void allocated_add(const struct stripes *stripes, size_t site, struct ha_sums *sums)
{
	size_t i;

	for (i = 0; i < stripes->count; i++) {
		const struct ha_sums *from = &stripes->sums[i][site];

		sums->alloc_bytes += load(&from->alloc_bytes);
		sums->alloc_count += load(&from->alloc_count);
	}
}

/*
 * One reading: the freed half first, since a block is allocated before it is
 * freed. Returns how many bytes were freed between the two halves, which is by
 * how much bytes in use may be too high.
 */
static uint64_t site_read_sums(const struct stripes *stripes, size_t site, struct ha_sums *ret)
{
	struct ha_sums later = {0};

	*ret = (struct ha_sums){0};
	freed_add(stripes, site, ret);
	allocated_add(stripes, site, ret);
	freed_add(stripes, site, &later);
	return later.freed_bytes - ret->freed_bytes;
}

/*
 * The best of a few readings: where gigabytes pass in a second, losing the
 * processor between the halves would look like a peak of megabytes.
 */
static void site_sum(const struct stripes *stripes, size_t site, struct ha_sums *ret)
{
	uint64_t least = UINT64_MAX;
	size_t i;

	for (i = 0; i < READINGS_MAX; i++) {
		struct ha_sums sums;
		uint64_t passed = site_read_sums(stripes, site, &sums);

		if (passed < least) {
			least = passed;
			*ret = sums;
		}
		if (passed <= reader_inuse_bytes(&sums) / ERROR_SHARE)
			break;
	}
}

typedef unsigned __int128 wide;

/* While the target runs, the carry may be missing; after the stop it is there. */
static wide wide_load(const struct ha_wide *from)
{
	uint64_t low = load(&from->low);

	return (wide)load(&from->high) << 64 | low;
}

/* Freed variances may have been read before those that they cancel. */
static double variance_value(wide sum)
{
	bool negative = (__int128)sum < 0;

	return negative ? 0 : ldexp((double)sum, -(int)HA_VARIANCE_BITS);
}

static void variance_read(struct reader *reader, const struct stripes *stripes, size_t number)
{
	const struct ha_variances *all = shm_region(reader->shm, HA_REGION_VARIANCES);
	wide alloc_bytes = 0, alloc_count = 0, freed_bytes = 0, freed_count = 0;
	size_t i;

	for (i = 0; i < stripes->count; i++) {
		const struct ha_variances *from =
			&all[stripes->number[i] * reader->shm->site_capacity + number];

		freed_bytes += wide_load(&from->freed_bytes);
		freed_count += wide_load(&from->freed_count);
		alloc_bytes += wide_load(&from->alloc_bytes);
		alloc_count += wide_load(&from->alloc_count);
	}
	/* The difference before it is rounded: it may be tiny. */
	reader->site[number].variance = (struct reader_variance){
		.alloc_bytes = variance_value(alloc_bytes),
		.alloc_count = variance_value(alloc_count),
		.inuse_bytes = variance_value(alloc_bytes - freed_bytes),
		.inuse_count = variance_value(alloc_count - freed_count),
	};
}

static void totals_make(struct reader *reader)
{
	uint64_t *total = (uint64_t *)&reader->total;
	size_t i, k;

	memset(&reader->total, 0, sizeof(reader->total));
	for (i = 0; i < reader->sites; i++) {
		const uint64_t *sums = (const uint64_t *)&reader->site[i].sums;

		for (k = 0; k < sizeof(reader->total) / sizeof(*total); k++)
			total[k] += sums[k];
	}
}

struct error *reader_scan(struct reader *reader)
{
	const struct shm *shm = reader->shm;
	size_t sites = __atomic_load_n(&shm->header->site_next, __ATOMIC_ACQUIRE);
	struct stripes stripes;
	struct error *err;
	size_t i;

	if (sites > shm->site_capacity)
		sites = shm->site_capacity;
	if (sites < reader->sites)
		sites = reader->sites;
	reader->sites = sites;
	memset(&reader->counters, 0, sizeof(reader->counters));

	stripes_find(reader, &stripes);
	for (i = 0; i < sites; i++)
		site_sum(&stripes, i, &reader->site[i].sums);
	for (i = 0; i < sites && shm->variances; i++)
		variance_read(reader, &stripes, i);
	for (i = 0; i < HA_STRIPES; i++)
		counters_add(&reader->counters, stripe_at(reader, i));
	totals_make(reader);

	reader->malformed = 0;
	for (i = HA_SITE_UNKNOWN + 1; i < sites; i++) {
		if (reader->site[i].frames)
			continue;
		err = site_read(reader, i);
		if (err)
			return err;
	}
	return NULL;
}
