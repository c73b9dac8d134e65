/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The one clock that deadlines and durations are measured with. May be read
 * from any thread.
 */
#ifndef INJECTOR_CLOCK_H
#define INJECTOR_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

#endif
