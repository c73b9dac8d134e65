// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/ages.h"

#include <math.h>
#include <stdlib.h>

#include "resolver/cleanup.h"

_Static_assert(PROFILE_BINS == HA_BINS, "bins are the same");
_Static_assert(PROFILE_SIZE_LEAST == 8, "see HA_SIZE_BIN");
_Static_assert(PROFILE_TIME_LEAST_NS == HA_TICK_MS * 1000000, "see HA_TICK_MS");

static struct error *bin_put(struct fill *fill, size_t number, enum profile_bin_kind kind,
			     uint32_t bin, uint64_t count, uint64_t bytes)
{
	const struct profile_bin put = {
		.site = fill->site_map[number],
		.kind = (uint8_t)kind,
		.bin = (uint8_t)bin,
		.count = count,
		.bytes = bytes,
	};

	return profile_add_bin(fill->profile, &put);
}

/* ---- histograms */

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* @bins: parts of what is @all together; as counts. */
static struct error *bins_put(struct fill *fill, size_t number, enum profile_bin_kind kind,
			      const double *bins, uint64_t all)
{
	double sum = 0;

	for (uint32_t i = 0; i < HA_BINS; i++)
		sum += bins[i];
	for (uint32_t i = 0; i < HA_BINS && sum > 0; i++) {
		double count = bins[i] / sum * (double)all;
		struct error *err = bin_put(fill, number, kind, i,
					    count < 0x1p63 ? (uint64_t)llround(count) : 0, 0);

		if (err)
			return err;
	}
	return NULL;
}

/* What a stripe has counted, scaled to the events that it had. */
static void bins_add(double *to, const uint32_t *from, uint64_t events)
{
	double sum = 0;

	for (uint32_t i = 0; i < HA_BINS; i++)
		sum += __atomic_load_n(&from[i], __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < HA_BINS && sum > 0; i++)
		to[i] += __atomic_load_n(&from[i], __ATOMIC_RELAXED) / sum * (double)events;
}

static struct error *histograms_fill(struct fill *fill, size_t number)
{
	const struct shm *shm = fill->reader->shm;
	const struct ha_histograms *all = shm_region(shm, HA_REGION_HISTOGRAMS);
	const struct ha_sums *sums = &fill->reader->site[number].sums;
	double size[HA_BINS] = {0}, lifetime[HA_BINS] = {0};
	struct error *err;

	for (uint64_t i = 0; i < HA_STRIPES; i++) {
		const struct ha_sums *own = shm_sums(shm, i, number);

		/* Pages that nobody has touched need not be made for this. */
		if (!own || !(load(&own->alloc_count) | load(&own->freed_count)))
			continue;
		bins_add(size, all[i * shm->site_capacity + number].size, load(&own->alloc_count));
		bins_add(lifetime, all[i * shm->site_capacity + number].lifetime,
			 load(&own->freed_count));
	}
	err = bins_put(fill, number, PROFILE_SIZES, size, sums->alloc_count);
	return err ? err : bins_put(fill, number, PROFILE_LIFETIMES, lifetime, sums->freed_count);
}

/* ---- the live table */

struct age {
	double count[HA_BINS], bytes[HA_BINS];
};

static void bucket_add(const struct shm *shm, const struct ha_bucket *bucket, size_t sites,
		       struct age *ages)
{
	uint32_t now = __atomic_load_n(&shm->header->tick, __ATOMIC_RELAXED);

	for (uint32_t k = 0; k < HA_CELLS; k++) {
		uint64_t key = load(&bucket->key[k]), value = load(&bucket->value[k]);
		uint32_t note = __atomic_load_n(&bucket->note[k], __ATOMIC_RELAXED);
		uint64_t size = HA_VALUE_SIZE(value);
		uint32_t site = HA_KEY_SITE(key), bin;
		double weight;

		if (!(key & ~HA_KEY_BUSY) || site >= sites)
			continue;
		bin = ha_bin(now - HA_TICK(value, note));
		weight = shm_block_weight(shm, size, HA_NOTE_MARK(note));
		ages[site].count[bin] += weight;
		ages[site].bytes[bin] += weight * (double)size;
	}
}

static void table_add(const struct shm *shm, size_t sites, struct age *ages)
{
	for (uint64_t i = 0; i < shm->segments; i++) {
		const struct ha_segment *segment = &shm->segment[i];
		const struct ha_bucket *buckets =
			(const void *)((const uint8_t *)shm->header + segment->offset);

		for (uint64_t k = 0; k < segment->buckets; k++)
			bucket_add(shm, &buckets[k], sites, ages);
	}
}

static struct error *ages_put(struct fill *fill, size_t number, const struct age *age)
{
	for (uint32_t i = 0; i < HA_BINS; i++) {
		struct error *err;

		if (age->count[i] <= 0 || age->bytes[i] >= 0x1p63)
			continue;
		err = bin_put(fill, number, PROFILE_AGES, i, (uint64_t)llround(age->count[i]),
			      (uint64_t)llround(age->bytes[i]));
		if (err)
			return err;
	}
	return NULL;
}

struct error *ages_fill(struct fill *fill)
{
	size_t sites = fill->reader->sites;
	CLEANUP(freep) struct age *ages = calloc(sites + 1, sizeof(*ages));

	if (!ages)
		return error_memory();
	table_add(fill->reader->shm, sites, ages);
	for (size_t i = 0; i < sites; i++) {
		struct error *err;

		if (fill->site_map[i] == PROFILE_NONE)
			continue;
		err = histograms_fill(fill, i);
		if (!err)
			err = ages_put(fill, i, &ages[i]);
		if (err)
			return err;
	}
	profile_bins_end(fill->profile);
	return NULL;
}
