// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/reader.h"

#include <string.h>

#include "resolver/cleanup.h"

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

/* The freed half first: a block is allocated before it is freed. */
static void sums_read_freed(struct reader *reader, const struct ha_sums *sums, size_t sites)
{
	size_t i;

	for (i = 0; i < sites; i++) {
		reader->site[i].sums.freed_bytes += load(&sums[i].freed_bytes);
		reader->site[i].sums.freed_count += load(&sums[i].freed_count);
		reader->site[i].sums.freed_variance += load(&sums[i].freed_variance);
		reader->site[i].sums.missed_frees += load(&sums[i].missed_frees);
	}
}

static void sums_read_allocated(struct reader *reader, const struct ha_sums *sums, size_t sites)
{
	size_t i;

	for (i = 0; i < sites; i++) {
		reader->site[i].sums.alloc_bytes += load(&sums[i].alloc_bytes);
		reader->site[i].sums.alloc_count += load(&sums[i].alloc_count);
		reader->site[i].sums.alloc_variance += load(&sums[i].alloc_variance);
	}
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
	struct error *err;
	size_t i;

	if (sites > shm->site_capacity)
		sites = shm->site_capacity;
	if (sites < reader->sites)
		sites = reader->sites;
	reader->sites = sites;
	for (i = 0; i < sites; i++)
		memset(&reader->site[i].sums, 0, sizeof(reader->site[i].sums));
	memset(&reader->counters, 0, sizeof(reader->counters));

	for (i = 0; i < HA_STRIPES; i++) {
		if (load(&stripe_at(reader, i)->events))
			sums_read_freed(reader, (const struct ha_sums *)(stripe_at(reader, i) + 1),
					sites);
	}
	for (i = 0; i < HA_STRIPES; i++) {
		if (!load(&stripe_at(reader, i)->events))
			continue;
		sums_read_allocated(reader, (const struct ha_sums *)(stripe_at(reader, i) + 1),
				    sites);
		counters_add(&reader->counters, stripe_at(reader, i));
	}
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
