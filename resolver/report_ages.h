/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Of a site as a reader sees it: how fast it grows, how large its blocks are,
 * how long they live, how old those are that are left.
 */
#ifndef RESOLVER_REPORT_AGES_H
#define RESOLVER_REPORT_AGES_H

#include "resolver/report_ranges.h"
#include "resolver/report_sites.h"

/* All of the profile's sites at @place together. */
struct profile_bins report_bins(const struct profile *profile, const struct report_sites *sites,
				size_t place, enum profile_bin_kind kind);

/* Where a bin begins and ends: bytes, or nanoseconds. The last one ends at UINT64_MAX. */
uint64_t report_bin_begin(enum profile_bin_kind kind, unsigned int bin);
uint64_t report_bin_end(enum profile_bin_kind kind, unsigned int bin);

/* At least half of all is below this; 0 if there is nothing. */
uint64_t report_half_below(enum profile_bin_kind kind, const uint64_t *bins);
/* At least half of all is not below this. */
uint64_t report_half_above(enum profile_bin_kind kind, const uint64_t *bins);

/* Of bytes in use of the site at @place, per second, over the last half. */
struct report_growth report_growth(const struct profile *profile, const struct report_sites *sites,
				   const struct report_middle *middle, size_t place);

#endif
