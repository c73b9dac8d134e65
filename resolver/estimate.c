// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/estimate.h"

#include <math.h>

#define SIGMAS_95	1.959964
#define NORMAL_FROM	30.0
#define POISSON_ZERO_95 3.688879 /* -ln 0.025: the upper bound where none was seen */

static uint64_t whole(double value)
{
	return value >= 0x1p64 ? UINT64_MAX : value > 0 ? (uint64_t)value : 0;
}

/*
 * A bound of Poisson's parameter when @count was seen, by Wilson and Hilferty's
 * approximation of chi-squared, which is good to 1 % from 1 on.
 */
static double poisson_bound(double count, double sigmas)
{
	double root = 1 - 1 / (9 * count) + sigmas / (3 * sqrt(count));

	return root > 0 ? count * root * root * root : 0;
}

struct estimate estimate_interval(uint64_t value, double variance, double one)
{
	double middle = (double)value, samples, reach;

	if (!value)
		return (struct estimate){0, whole(ceil(POISSON_ZERO_95 * one))};
	if (!(variance > 0))
		return (struct estimate){value, value};
	samples = middle * middle / variance;
	if (samples >= NORMAL_FROM) {
		reach = SIGMAS_95 * sqrt(variance);
		return (struct estimate){whole(middle - reach), whole(ceil(middle + reach))};
	}
	return (struct estimate){
		whole(middle / samples * poisson_bound(samples, -SIGMAS_95)),
		whole(ceil(middle / samples * poisson_bound(samples + 1, SIGMAS_95))),
	};
}
