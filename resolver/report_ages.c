// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/report_ages.h"

struct profile_bins report_bins(const struct profile *profile, const struct report_sites *sites,
				size_t place, enum profile_bin_kind kind)
{
	struct profile_bins sum = {0};
	uint32_t site;

	for (site = sites->site[place].site; site != PROFILE_NONE; site = sites->next[site]) {
		struct profile_bins bins = profile_bins_of(profile, site, kind);

		for (unsigned int i = 0; i < PROFILE_BINS; i++) {
			sum.count[i] += bins.count[i];
			sum.bytes[i] += bins.bytes[i];
		}
	}
	return sum;
}

static uint64_t least(enum profile_bin_kind kind)
{
	return kind == PROFILE_SIZES ? PROFILE_SIZE_LEAST : PROFILE_TIME_LEAST_NS;
}

uint64_t report_bin_begin(enum profile_bin_kind kind, unsigned int bin)
{
	return bin ? least(kind) << (bin - 1) : 0;
}

uint64_t report_bin_end(enum profile_bin_kind kind, unsigned int bin)
{
	return bin + 1 < PROFILE_BINS ? least(kind) << bin : UINT64_MAX;
}

static double total(const uint64_t *bins)
{
	double sum = 0;

	for (unsigned int i = 0; i < PROFILE_BINS; i++)
		sum += (double)bins[i];
	return sum;
}

uint64_t report_half_below(enum profile_bin_kind kind, const uint64_t *bins)
{
	double half = total(bins) / 2, sum = 0;

	for (unsigned int i = 0; i < PROFILE_BINS; i++) {
		sum += (double)bins[i];
		if (sum > 0 && sum >= half)
			return report_bin_end(kind, i);
	}
	return 0;
}

uint64_t report_half_above(enum profile_bin_kind kind, const uint64_t *bins)
{
	double half = total(bins) / 2, sum = 0;

	for (unsigned int i = PROFILE_BINS; i-- > 0;) {
		sum += (double)bins[i];
		if (sum > 0 && sum >= half)
			return report_bin_begin(kind, i);
	}
	return 0;
}

struct report_growth report_growth(const struct profile *profile, const struct report_sites *sites,
				   const struct report_middle *middle, size_t place)
{
	const struct report_site *site = &sites->site[place];
	size_t count = profile->snapshot_count;
	uint64_t end_ns = count ? profile->snapshot[count - 1].time_ns : 0;
	struct report_growth growth =
		report_growth_between(profile, middle->time_ns, &middle->sums[place], &site->sums,
				      &site->sums, &site->variance);

	return report_growth_rate(&growth, end_ns - middle->time_ns);
}
