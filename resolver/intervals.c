// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/intervals.h"

#include "resolver/array.h"

#include <stdlib.h>

/*
 * Real code nests a few ranges deep; a file made to be slow could nest them all.
 */
enum { MAX_STEPS = 1024 };

void intervals_deinit(struct intervals *intervals)
{
	free(intervals->interval);
	*intervals = (struct intervals){0};
}

struct error *intervals_add(struct intervals *intervals, uint64_t low, uint64_t high,
			    uint32_t value)
{
	struct error *err;

	if (high <= low)
		return NULL;
	if (intervals->count >= UINT32_MAX - 1)
		return error_memory();
	err = array_grow(&intervals->interval, intervals->count, 1);
	if (err)
		return err;
	/* Until the set is sealed, `outer` holds the order in which ranges came. */
	intervals->interval[intervals->count] = (struct interval){
		.low = low,
		.high = high,
		.value = value,
		.outer = (uint32_t)intervals->count,
	};
	intervals->count++;
	return NULL;
}

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Outer ranges first, so that the last one at or below an address is the innermost. */
static int compare_intervals(const void *left, const void *right)
{
	const struct interval *a = left, *b = right;
	int order = compare(a->low, b->low);

	if (!order)
		order = compare(b->high, a->high);
	return order ? order : compare(b->outer, a->outer);
}

/*
 * Link each range to the nearest earlier one that reaches further: the only
 * ones worth trying when an address is behind this one's end.
 *
 *	a [--------------------)
 *	b    [----)                  outer: a
 *	c           [---)            outer: a
 *	d             [---)          outer: a (c ends before d)
 */
void intervals_seal(struct intervals *intervals)
{
	struct interval *all = intervals->interval;

	if (intervals->count)
		qsort(all, intervals->count, sizeof(*all), compare_intervals);
	for (size_t i = 0; i < intervals->count; i++) {
		size_t outer = i; /* 1 + index of the range before */

		while (outer && all[outer - 1].high < all[i].high)
			outer = all[outer - 1].outer;
		all[i].outer = (uint32_t)outer;
	}
}

static const struct interval *first_holder(const struct intervals *intervals, size_t outer,
					   uint64_t address)
{
	for (int steps = 0; outer && steps < MAX_STEPS; steps++) {
		const struct interval *interval = &intervals->interval[outer - 1];

		if (address < interval->high)
			return interval;
		outer = interval->outer;
	}
	return NULL;
}

const struct interval *intervals_find(const struct intervals *intervals, uint64_t address)
{
	size_t low = 0, high = intervals->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (intervals->interval[middle].low <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return first_holder(intervals, low, address);
}

const struct interval *intervals_next(const struct intervals *intervals,
				      const struct interval *inner, uint64_t address)
{
	return first_holder(intervals, inner->outer, address);
}
