/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How sure an estimate from samples is. Pure.
 *
 * Samples are a Poisson process over bytes (payload/core/sample.h), so what
 * was allocated is what was sampled, and what was passed over on the way:
 *
 *	0                                                          bytes
 *	|-- missed --|sample|---- missed ----|sample|-- missed ----- end
 *
 * How many blocks were missed per sample has a geometric distribution, if they
 * were like the sample: the estimate counts their mean, and its variance is
 * theirs. It says nothing of blocks that are unlike all samples: of these, the
 * last stretch may be full, which no sample ends. Whatever their sizes are, b
 * bytes are missed altogether with probability exp(-b / interval). Without it
 * a site with one large block, certain to be a sample, would be thought to
 * have no other. If the interval changed, the stretch may be from when it was
 * largest.
 *
 * The sum of all is near to a gamma distribution with the same mean, variance
 * and skewness. That one is exact for small blocks, where it gives the known
 * interval of Poisson's parameter, and so it is where nothing was seen.
 */
#ifndef RESOLVER_ESTIMATE_H
#define RESOLVER_ESTIMATE_H

#include <stdint.h>

struct estimate {
	uint64_t low, high;
};

/* How often the truth may lie below an interval, and as often above it. */
struct estimate_surety {
	double tail;   /* above 0, at most 0.025 */
	double sigmas; /* beyond so many a normal distribution has this tail */
};

/* The truth lies in between in 95 of 100 cases, more of them where only whole blocks count. */
extern const struct estimate_surety estimate_surety_95;

/* What samples gave, of one site or of several. */
struct estimate_figures {
	uint64_t bytes, count;
	double bytes_variance, count_variance;
};

/* How they were taken. */
struct estimate_sampling {
	uint64_t interval_low; /* between samples: the least and the largest that was in force, */
	uint64_t
		interval_high; /* in bytes, 1 or more; 1: all was recorded, the figures are exact */
	/*
	 * Bytes of a block that was missed. A count needs it for those that are
	 * unlike all samples. See estimate_missed_size().
	 */
	double missed_size;
	struct estimate_surety surety;
};

/*
 * The size of the blocks that matter to @figures' variance of counts: among
 * blocks of many sizes rather the small ones, which are missed most.
 */
double estimate_missed_size(const struct estimate_figures *figures);

/*
 * Between which two numbers the truth lies. What was seen is always within;
 * where nothing was seen, the upper end is what may still be there.
 */
struct estimate estimate_bytes(const struct estimate_figures *figures,
			       const struct estimate_sampling *sampling);
struct estimate estimate_count(const struct estimate_figures *figures,
			       const struct estimate_sampling *sampling);

#endif
