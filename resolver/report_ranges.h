/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Of figures that are estimates: between which two the truth lies, in 95 of 100
 * cases. The figures themselves if the profile is exact.
 */
#ifndef RESOLVER_REPORT_RANGES_H
#define RESOLVER_REPORT_RANGES_H

#include <stdint.h>

#include "resolver/estimate.h"
#include "resolver/profile.h"

/*
 * Blocks that are unlike all samples are taken to be as large as those that @sums
 * counts as allocated and that are easily missed.
 */
struct report_intervals {
	struct estimate inuse_bytes, inuse_count;
	struct estimate alloc_bytes, alloc_count;
	struct estimate freed_bytes, freed_count;
};

struct report_intervals report_intervals(const struct profile *profile,
					 const struct profile_sums *sums,
					 const struct profile_variance *variance);
/* The same in as many cases as @surety says. */
struct report_intervals report_intervals_at(const struct profile *profile,
					    const struct profile_sums *sums,
					    const struct profile_variance *variance,
					    const struct estimate_surety *surety);

/*
 * The variance of @sums, earlier ones of what has @end and @variance at the end: that
 * of each byte and each block then. If nothing is in use, as of what was allocated.
 */
struct profile_variance report_variance_then(const struct profile_sums *sums,
					     const struct profile_sums *end,
					     const struct profile_variance *variance);

/* What is in use at another time: @bytes in @count blocks. The same as above otherwise. */
struct report_inuse {
	struct estimate bytes, count;
};
struct report_inuse report_inuse_then(const struct profile *profile, uint64_t bytes, uint64_t count,
				      const struct profile_sums *end,
				      const struct profile_variance *variance);

/* How much more is in use than before, in bytes. */
struct report_growth {
	double bytes, low, high;
};

/*
 * From the snapshot at @from_ns on, of what had the sums @from then and @to later,
 * and @end and @variance at the end. Of blocks that were allocated before, and are
 * like no sample, it is supposed that they stay.
 */
struct report_growth report_growth_between(const struct profile *profile, uint64_t from_ns,
					   const struct profile_sums *from,
					   const struct profile_sums *to,
					   const struct profile_sums *end,
					   const struct profile_variance *variance);

/* The same per second, if it took @passed_ns; all 0 if that is 0. */
struct report_growth report_growth_rate(const struct report_growth *growth, uint64_t passed_ns);

/* How many blocks of @size bytes, estimated as @count, are among what has @end and @variance. */
struct estimate report_count_of_size(const struct profile *profile, uint64_t count, uint64_t size,
				     const struct profile_sums *end,
				     const struct profile_variance *variance);

#endif
