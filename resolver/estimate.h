/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How sure an estimate from samples is. Pure.
 */
#ifndef RESOLVER_ESTIMATE_H
#define RESOLVER_ESTIMATE_H

#include <stdint.h>

struct estimate {
	uint64_t low, high;
};

/*
 * Between which two numbers the truth lies, in 95 of 100 cases, where @value
 * was estimated with this @variance. The variance says how many samples of
 * equal weight would be as good: from 30 on the normal distribution is used,
 * below that Poisson's.
 *
 * @one: what a single sample may stand for. It is the scale where nothing was
 * seen, which does not mean that there is nothing. 0: nothing is nothing.
 */
struct estimate estimate_interval(uint64_t value, double variance, double one);

#endif
