// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/report_ranges.h"

#include <math.h>
#include <stdbool.h>

#include "resolver/whole.h"

/* A part cannot be more than the whole. */
static void interval_bound(struct estimate *part, uint64_t value, const struct estimate *whole)
{
	if (part->high > whole->high)
		part->high = whole->high > value ? whole->high : value;
}

struct report_intervals report_intervals_at(const struct profile *profile,
					    const struct profile_sums *sums,
					    const struct profile_variance *variance,
					    const struct estimate_surety *surety)
{
	const struct estimate_figures alloc = {sums->alloc_bytes, sums->alloc_count,
					       variance->alloc_bytes, variance->alloc_count};
	const struct estimate_figures inuse = {profile_inuse_bytes(sums), profile_inuse_count(sums),
					       variance->inuse_bytes, variance->inuse_count};
	const struct estimate_figures freed = {sums->freed_bytes, sums->freed_count,
					       variance->alloc_bytes - variance->inuse_bytes,
					       variance->alloc_count - variance->inuse_count};
	const struct estimate_sampling sampling = {
		.interval_low = profile->sampling.interval_low,
		.interval_high = profile->sampling.interval_high,
		.missed_size = estimate_missed_size(&alloc),
		.surety = *surety,
	};
	struct report_intervals ret = {
		.alloc_bytes = estimate_bytes(&alloc, &sampling),
		.alloc_count = estimate_count(&alloc, &sampling),
		.inuse_bytes = estimate_bytes(&inuse, &sampling),
		.inuse_count = estimate_count(&inuse, &sampling),
		.freed_bytes = estimate_bytes(&freed, &sampling),
		.freed_count = estimate_count(&freed, &sampling),
	};

	interval_bound(&ret.inuse_bytes, inuse.bytes, &ret.alloc_bytes);
	interval_bound(&ret.inuse_count, inuse.count, &ret.alloc_count);
	interval_bound(&ret.freed_bytes, freed.bytes, &ret.alloc_bytes);
	interval_bound(&ret.freed_count, freed.count, &ret.alloc_count);
	return ret;
}

struct report_intervals report_intervals(const struct profile *profile,
					 const struct profile_sums *sums,
					 const struct profile_variance *variance)
{
	return report_intervals_at(profile, sums, variance, &estimate_surety_95);
}

/* ---- of other times ---- */

static double by_each(double variance, uint64_t figure)
{
	return figure ? variance / (double)figure : 0;
}

struct profile_variance report_variance_then(const struct profile_sums *sums,
					     const struct profile_sums *end,
					     const struct profile_variance *variance)
{
	bool known = variance->inuse_bytes > 0;
	double alloc_byte = by_each(variance->alloc_bytes, end->alloc_bytes);
	double alloc_block = by_each(variance->alloc_count, end->alloc_count);
	double byte = by_each(variance->inuse_bytes, profile_inuse_bytes(end));
	double block = by_each(variance->inuse_count, profile_inuse_count(end));

	return (struct profile_variance){
		.alloc_bytes = alloc_byte * (double)sums->alloc_bytes,
		.alloc_count = alloc_block * (double)sums->alloc_count,
		.inuse_bytes = (known ? byte : alloc_byte) * (double)profile_inuse_bytes(sums),
		.inuse_count = (known ? block : alloc_block) * (double)profile_inuse_count(sums),
	};
}

/* Of @bytes in @count blocks that are or were in use. */
static struct estimate_figures figures_then(uint64_t bytes, uint64_t count,
					    const struct profile_sums *end,
					    const struct profile_variance *variance)
{
	const struct profile_sums sums = {.alloc_bytes = bytes, .alloc_count = count};
	const struct profile_variance then = report_variance_then(&sums, end, variance);

	return (struct estimate_figures){bytes, count, then.inuse_bytes, then.inuse_count};
}

struct report_inuse report_inuse_then(const struct profile *profile, uint64_t bytes, uint64_t count,
				      const struct profile_sums *end,
				      const struct profile_variance *variance)
{
	const struct estimate_figures figures = figures_then(bytes, count, end, variance);
	const struct estimate_figures alloc = {end->alloc_bytes, end->alloc_count,
					       variance->alloc_bytes, variance->alloc_count};
	const struct estimate_sampling sampling = {
		.interval_low = profile->sampling.interval_low,
		.interval_high = profile->sampling.interval_high,
		.missed_size = estimate_missed_size(&alloc),
		.surety = estimate_surety_95,
	};

	return (struct report_inuse){estimate_bytes(&figures, &sampling),
				     estimate_count(&figures, &sampling)};
}

/* The largest interval in force after @from_ns. */
static uint64_t interval_since(const struct profile *profile, uint64_t from_ns)
{
	uint64_t most = 0;

	for (size_t i = 0; i < profile->snapshot_count; i++) {
		const struct profile_snapshot *snapshot = &profile->snapshot[i];

		if (snapshot->time_ns <= from_ns)
			continue;
		if (!snapshot->interval)
			return profile->sampling.interval_high;
		if (snapshot->interval > most)
			most = snapshot->interval;
	}
	return most ? most : profile->sampling.interval_high;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * A difference of two estimates has the distance from its end that both have from
 * theirs, taken together as if they were at right angles (Donner and Zou 2012). What
 * came is at most all that was allocated, and at most all that is in use later.
 */
struct report_growth report_growth_between(const struct profile *profile, uint64_t from_ns,
					   const struct profile_sums *from,
					   const struct profile_sums *to,
					   const struct profile_sums *end,
					   const struct profile_variance *variance)
{
	const struct estimate_sampling sampling = {
		.interval_low = profile->sampling.interval_low,
		.interval_high = interval_since(profile, from_ns),
		.surety = estimate_surety_95,
	};
	uint64_t up = least(to->alloc_bytes - from->alloc_bytes, profile_inuse_bytes(to));
	uint64_t down = least(to->freed_bytes - from->freed_bytes, profile_inuse_bytes(from));
	uint64_t ups = least(to->alloc_count - from->alloc_count, profile_inuse_count(to));
	uint64_t downs = least(to->freed_count - from->freed_count, profile_inuse_count(from));
	const struct estimate_figures coming = figures_then(up, ups, end, variance);
	const struct estimate_figures going = figures_then(down, downs, end, variance);
	struct estimate came = estimate_bytes(&coming, &sampling);
	struct estimate went = estimate_bytes(&going, &sampling);
	double bytes = (double)profile_inuse_bytes(to) - (double)profile_inuse_bytes(from);

	return (struct report_growth){
		.bytes = bytes,
		.low = bytes - hypot((double)(up - came.low), (double)(went.high - down)),
		.high = bytes + hypot((double)(came.high - up), (double)(down - went.low)),
	};
}

struct report_growth report_growth_rate(const struct report_growth *growth, uint64_t passed_ns)
{
	double per_s = passed_ns ? 1e9 / (double)passed_ns : 0;

	return (struct report_growth){
		.bytes = growth->bytes * per_s,
		.low = growth->low * per_s,
		.high = growth->high * per_s,
	};
}

/* ---- of one size ---- */

/* The interval by which blocks of all sizes vary as they do. */
static double interval_of(const struct profile *profile, const struct profile_sums *end,
			  const struct profile_variance *variance)
{
	double interval = fmax(by_each(variance->alloc_bytes, end->alloc_bytes),
			       by_each(variance->inuse_bytes, profile_inuse_bytes(end)));

	interval = fmax(interval, (double)profile->interval);
	return fmin(interval, (double)profile->sampling.interval_high);
}

struct estimate report_count_of_size(const struct profile *profile, uint64_t count, uint64_t size,
				     const struct profile_sums *end,
				     const struct profile_variance *variance)
{
	double missed = 1 / expm1(((double)size + 1) / interval_of(profile, end, variance));
	double count_variance = (double)count * missed;
	const struct estimate_figures figures = {
		.bytes = whole_unsigned((double)count * (double)size),
		.count = count,
		.bytes_variance = count_variance * (double)size * (double)size,
		.count_variance = count_variance,
	};
	const struct estimate_sampling sampling = {
		.interval_low = profile->sampling.interval_low,
		.interval_high = profile->sampling.interval_high,
		.missed_size = (double)size,
		.surety = estimate_surety_95,
	};

	return estimate_count(&figures, &sampling);
}
