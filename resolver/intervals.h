/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A sorted set of ranges of addresses, each with a value, that answers "which
 * is the innermost range with this address in it" in O(log n).
 *
 * Ranges may nest and overlap. The innermost of those that hold an address is
 * the one with the highest low end, then the lowest high end, then the one
 * added first.
 *
 * One thread until intervals_seal(), any number afterwards.
 */
#ifndef RESOLVER_INTERVALS_H
#define RESOLVER_INTERVALS_H

#include "resolver/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct interval {
	uint64_t low, high; /* high is exclusive */
	uint32_t value;
	uint32_t outer; /* set by intervals_seal(): 1 + index of an earlier, longer one; 0 none */
};

/* Zero-initialised is empty. */
struct intervals {
	struct interval *interval;
	size_t count;
};

void intervals_deinit(struct intervals *intervals);

/* An empty range (high <= low) is left out. Returns ERROR_MEMORY only. */
MUST_CHECK struct error *intervals_add(struct intervals *intervals, uint64_t low, uint64_t high,
				       uint32_t value);

/* Sort; call once, after the last intervals_add(). */
void intervals_seal(struct intervals *intervals);

/* The innermost range that holds @address, or NULL. */
const struct interval *intervals_find(const struct intervals *intervals, uint64_t address);

/* The next range outwards of @inner that holds @address, or NULL. */
const struct interval *intervals_next(const struct intervals *intervals,
				      const struct interval *inner, uint64_t address);

#endif
