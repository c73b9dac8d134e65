// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Sizes, lifetimes and ages of a profile's blocks, by site: only what is not
 * empty, sorted.
 */
#include <stdlib.h>

#include "resolver/array.h"
#include "resolver/profile.h"

struct error *profile_add_bin(struct profile *profile, const struct profile_bin *bin)
{
	struct error *err;

	if (!bin->count)
		return NULL;
	if (bin->site >= profile->site_count || bin->kind >= PROFILE_BIN_KINDS ||
	    bin->bin >= PROFILE_BINS)
		return error_create(ERROR_FORMAT, "there is no bin %u of kind %u for site %u",
				    bin->bin, bin->kind, bin->site);
	if (profile->bin_count >= PROFILE_BINS_MAX)
		return error_create(ERROR_UNSUPPORTED, "more than %u bins in one profile",
				    PROFILE_BINS_MAX);
	err = array_grow(&profile->bin, profile->bin_count, 1);
	if (err)
		return err;
	profile->bin[profile->bin_count++] = *bin;
	return NULL;
}

static uint64_t bin_place(const struct profile_bin *bin)
{
	return (uint64_t)bin->site << 16 | (uint64_t)bin->kind << 8 | bin->bin;
}

static int bins_compare(const void *a, const void *b)
{
	uint64_t x = bin_place(a), y = bin_place(b);

	return (x > y) - (x < y);
}

void profile_bins_end(struct profile *profile)
{
	struct profile_bin *bin = profile->bin;
	size_t kept = 0;

	if (!profile->bin_count)
		return;
	qsort(bin, profile->bin_count, sizeof(*bin), bins_compare);
	for (size_t i = 1; i < profile->bin_count; i++) {
		if (bin_place(&bin[i]) == bin_place(&bin[kept])) {
			bin[kept].count += bin[i].count;
			bin[kept].bytes += bin[i].bytes;
		} else {
			bin[++kept] = bin[i];
		}
	}
	profile->bin_count = kept + 1;
}

/* The first bin at or behind a place. */
static size_t bins_find(const struct profile *profile, uint64_t place)
{
	size_t low = 0, high = profile->bin_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (bin_place(&profile->bin[middle]) < place)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct profile_bins profile_bins_of(const struct profile *profile, uint32_t site,
				    enum profile_bin_kind kind)
{
	const struct profile_bin first = {.site = site, .kind = kind};
	struct profile_bins bins = {0};

	for (size_t i = bins_find(profile, bin_place(&first)); i < profile->bin_count; i++) {
		const struct profile_bin *bin = &profile->bin[i];

		if (bin->site != site || bin->kind != kind)
			break;
		bins.count[bin->bin] = bin->count;
		bins.bytes[bin->bin] = bin->bytes;
	}
	return bins;
}
