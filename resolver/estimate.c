// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/estimate.h"

#include <math.h>
#include <stdbool.h>

#include "resolver/whole.h"

/* From this shape on, Wilson and Hilferty's gamma quantiles are good to 1 %. */
#define SHAPE_HILFERTY 1.0
#define ROUNDS	       40  /* of bisection */
#define TERMS	       200 /* of a series, more than it ever needs */
#define TERM_LEAST     1e-14
#define LOG_SIZE_MAX   40.0 /* of sizes by the interval: exp(-40) is nothing */

const struct estimate_surety estimate_surety_95 = {0.025, 1.959964};

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double smaller(double a, double b)
{
	return a < b ? a : b;
}

/* ---- the gamma distribution */

/* The probability to be below @x, by the series of the incomplete gamma function. */
static double gamma_below(double shape, double x)
{
	double term = 1 / shape, sum = term;

	for (int i = 1; i < TERMS && term > sum * TERM_LEAST; i++) {
		term *= x / (shape + i);
		sum += term;
	}
	return sum * exp(shape * log(x) - x - lgamma(shape));
}

static double gamma_hilferty(double shape, double sigmas)
{
	double root = 1 - 1 / (9 * shape) + sigmas / (3 * sqrt(shape));

	return root > 0 ? shape * root * root * root : 0;
}

static double gamma_high(double shape, const struct estimate_surety *surety)
{
	/* With less shape, there is less beyond any number. */
	double low = 0, high = -log(surety->tail);

	if (shape >= SHAPE_HILFERTY)
		return gamma_hilferty(shape, surety->sigmas);
	for (int i = 0; i < ROUNDS; i++) {
		double middle = (low + high) / 2;

		if (gamma_below(shape, middle) < 1 - surety->tail)
			low = middle;
		else
			high = middle;
	}
	return high;
}

static double gamma_low(double shape, const struct estimate_surety *surety)
{
	if (shape >= SHAPE_HILFERTY)
		return gamma_hilferty(shape, -surety->sigmas);
	/* So near to 0, the first term of the series is enough. */
	return pow(surety->tail * tgamma(shape + 1), 1 / shape);
}

/* ---- what may have been missed */

/* Of a distribution. Those of a sum of several are the sums. */
struct cumulants {
	double mean, variance, third;
};

/* How far @sum reaches up: a gamma distribution with the same cumulants, shifted. */
static double reach_high(const struct cumulants *sum, const struct estimate_surety *surety)
{
	double scale = sum->third / sum->variance / 2;
	double shape = sum->variance / scale / scale;

	return sum->mean + scale * (gamma_high(shape, surety) - shape);
}

static double reach_low(const struct cumulants *sum, const struct estimate_surety *surety)
{
	double scale = sum->third / sum->variance / 2;
	double shape = sum->variance / scale / scale;

	return sum->mean + scale * (gamma_low(shape, surety) - shape);
}

/*
 * All blocks of x intervals have the variance x / (exp(x) - 1), by the interval
 * and by their bytes. The x for this @ratio.
 */
static double size_of_ratio(double ratio)
{
	double low = 0, high = LOG_SIZE_MAX;

	for (int i = 0; i < ROUNDS; i++) {
		double middle = (low + high) / 2;

		if (middle > ratio * expm1(middle))
			low = middle;
		else
			high = middle;
	}
	return high;
}

/* Where all blocks have one size, a sample stands for 1 + this of them. */
static double missed_per_sample(const struct estimate_figures *figures)
{
	return figures->count_variance / (double)figures->count;
}

/*
 * The interval that was in force. If it changed: where blocks are small or of
 * one size, what the figures say.
 */
static double interval_of(const struct estimate_figures *figures,
			  const struct estimate_sampling *sampling)
{
	double low = (double)sampling->interval_low, high = (double)sampling->interval_high;
	double interval = 0;

	if (figures->bytes)
		interval = figures->bytes_variance / (double)figures->bytes;
	if (figures->count && figures->count_variance > 0)
		interval = larger(interval, (double)figures->bytes / (double)figures->count /
						    log1p(1 / missed_per_sample(figures)));
	return smaller(larger(interval, low), high);
}

/*
 * The third cumulant of the blocks that samples stand for, by their variance,
 * both in bytes, for blocks of @size intervals: twice the interval for small
 * ones, the size itself for large ones.
 */
static double bytes_skew(double interval, double size)
{
	return interval * (size > 1e-4 ? size / tanh(size / 2) : 2);
}

/*
 * Of mixed sizes, the variance may be that of others than of those that most
 * bytes or most blocks are. What either says is tried, and what the variances
 * say, and the wider interval is taken.
 */
static void bytes_skews(const struct estimate_figures *figures, double interval, double *low,
			double *high)
{
	double size = size_of_ratio(figures->bytes_variance / (double)figures->bytes / interval);
	double least = size, most = size;

	if (figures->count && figures->count_variance > 0) {
		double by_count = smaller(log1p(1 / missed_per_sample(figures)), LOG_SIZE_MAX);
		double by_variance = estimate_missed_size(figures) / interval;

		least = smaller(size, smaller(by_count, by_variance));
		most = larger(size, by_count);
	}
	*low = bytes_skew(interval, least);
	*high = bytes_skew(interval, most);
}

static bool is_exact(const struct estimate_sampling *sampling)
{
	return sampling->interval_high <= 1;
}

/*
 * So many bytes may be missed beside what was seen. No sample tells when they
 * would have been allocated, so it is the largest interval that counts. Where
 * the interval changed, the samples that vary most may be from then, too.
 */
static double unseen_bytes(const struct estimate_sampling *sampling)
{
	return -log(sampling->surety.tail) * (double)sampling->interval_high;
}

/*
 * Ends that have the estimate in between, whatever was approximated. Where it is
 * not 0 there is a sample, so neither is the truth.
 */
static struct estimate ends(uint64_t value, double low, double high)
{
	struct estimate ret = {whole_unsigned(low), whole_unsigned(high)};

	if (ret.low > value)
		ret.low = value;
	if (value && !ret.low)
		ret.low = 1;
	if (ret.high < value)
		ret.high = value;
	return ret;
}

struct estimate estimate_bytes(const struct estimate_figures *figures,
			       const struct estimate_sampling *sampling)
{
	const struct estimate_surety *surety = &sampling->surety;
	double middle = (double)figures->bytes, variance = figures->bytes_variance;
	double largest = (double)sampling->interval_high, square = largest * largest;
	struct cumulants missed = {largest, square, 2 * largest * square};
	double skew_low, skew_high, low = middle;

	if (is_exact(sampling))
		return (struct estimate){figures->bytes, figures->bytes};
	if (!figures->bytes)
		return ends(0, 0, ceil(unseen_bytes(sampling)));
	bytes_skews(figures, interval_of(figures, sampling), &skew_low, &skew_high);
	if (variance > 0) {
		struct cumulants alike = {0, variance, variance * skew_low};

		low += reach_low(&alike, surety);
	}
	missed.variance += variance;
	missed.third += variance * larger(skew_high, bytes_skew(largest, 0));
	return ends(figures->bytes, low, ceil(middle + reach_high(&missed, surety)));
}

/* ---- counts */

double estimate_missed_size(const struct estimate_figures *figures)
{
	if (figures->count_variance > 0)
		return sqrt(figures->bytes_variance / figures->count_variance);
	return figures->count ? (double)figures->bytes / (double)figures->count : 0;
}

/* Blocks of @size bytes are missed, so many on average, before one is a sample. */
static double missed_before(double interval, double size)
{
	return 1 / expm1((size + 1) / interval);
}

/*
 * How many blocks are missed per sample that matters to the third cumulant:
 * of mixed sizes more than for the variance, as for that more than on average.
 * The sizes say how many on average, in a root mean square with the next.
 */
static double missed_by_smallest(double per_sample, double by_size)
{
	double next = by_size > 0 ? per_sample * per_sample * per_sample / by_size / by_size : 0;

	return larger(next, larger(per_sample, by_size));
}

/*
 * How far the truth may be below. That a sample stands for more than one block
 * was rounded at random: of samples that are nearly certain, most of the
 * variance's half, which reaches farther than that fewer were missed.
 */
static double count_low(const struct estimate_figures *figures, double missed,
			const struct estimate_surety *surety)
{
	double variance = figures->count_variance, middle = (double)figures->count;
	double rounding = smaller(variance / 2, middle / 4);
	const struct cumulants alike = {0, variance, variance * (1 + 2 * missed)};
	const struct cumulants rounded = {0, rounding, rounding};

	return floor(middle - larger(-reach_low(&alike, surety), reach_high(&rounded, surety)));
}

struct estimate estimate_count(const struct estimate_figures *figures,
			       const struct estimate_sampling *sampling)
{
	const struct estimate_surety *surety = &sampling->surety;
	double largest = (double)sampling->interval_high, variance = figures->count_variance;
	double unseen = unseen_bytes(sampling) / (sampling->missed_size + 1);
	double low = (double)figures->count, per_sample, by_size, by_smallest, gap, reach = 0;
	struct cumulants missed;

	if (is_exact(sampling))
		return (struct estimate){figures->count, figures->count};
	if (!figures->count)
		return ends(0, 0, ceil(unseen));
	per_sample = missed_per_sample(figures);
	by_size = missed_before(interval_of(figures, sampling), estimate_missed_size(figures));
	gap = missed_before(largest, sampling->missed_size);
	missed = (struct cumulants){gap, gap * (1 + gap), gap * (1 + gap) * (1 + 2 * gap)};
	if (variance > 0) {
		low = count_low(figures, smaller(per_sample, by_size), surety);
		by_smallest = larger(missed_by_smallest(per_sample, by_size),
				     missed_before(largest, estimate_missed_size(figures)));
		missed.variance += variance;
		missed.third += variance * (1 + 2 * by_smallest);
	}
	if (missed.variance > 0)
		reach = reach_high(&missed, surety);
	/* Blocks are whole: the nearest number is where a smooth distribution means it. */
	reach = larger(round(reach), floor(unseen));
	return ends(figures->count, low, (double)figures->count + reach);
}
