/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/histogram.h"

/* A count above this has all of its kind halved: what matters is their relation. */
#define COUNT_MAX  (1u << 31)
#define WEIGHT_MAX (1u << 30)

static struct ha_histograms *histograms_of(const struct ha_shm *shm, struct stripe stripe,
					   uint32_t site)
{
	struct ha_histograms *all = shm_region(shm, HA_REGION_HISTOGRAMS);

	return all + stripe.line * shm->site_capacity + site;
}

static void bins_halve(uint32_t *bins)
{
	for (uint32_t i = 0; i < HA_BINS; i++)
		store_relaxed(&bins[i], load_relaxed(&bins[i]) / 2);
}

/* A lock costs little here, where few events come, and makes shared stripes right. */
static void bin_add(uint32_t *bins, uint32_t bin, uint64_t weight)
{
	uint32_t amount = weight < WEIGHT_MAX ? (uint32_t)weight : WEIGHT_MAX;

	if (__atomic_add_fetch(&bins[bin], amount, __ATOMIC_RELAXED) >= COUNT_MAX)
		bins_halve(bins);
}

void histogram_size(const struct ha_shm *shm, struct stripe stripe, uint32_t site, uint64_t size,
		    uint64_t weight)
{
	bin_add(histograms_of(shm, stripe, site)->size, HA_SIZE_BIN(size), weight);
}

void histogram_lifetime(const struct ha_shm *shm, struct stripe stripe, uint32_t site,
			uint32_t tick, uint64_t weight)
{
	uint32_t ticks = load_relaxed(&shm->tick) - tick;

	bin_add(histograms_of(shm, stripe, site)->lifetime, ha_bin(ticks), weight);
}
