/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Profiles made up for tests. All fail the running test if they cannot be made;
 * free them with profile_free().
 */
#ifndef TESTS_SAMPLE_PROFILE_H
#define TESTS_SAMPLE_PROFILE_H

#include "resolver/profile.h"

/* An untouched profile. */
struct profile *sample_empty(void);

/*
 * Ten minutes of a server that leaks sessions steadily, fills a cache and
 * churns through requests; every kind of field is set.
 */
struct profile *sample_server(void);

/* The same server, of which samples were taken. */
struct profile *sample_sampled(void);

/* @sites sites, each with a stack of its own of @depth frames; two snapshots. */
struct profile *sample_large(uint32_t sites, uint32_t depth);

/* One site; @inuse_mib[i] in use and @anon_mib[i] anonymous at @seconds * i. */
struct profile *sample_curve(const unsigned int *inuse_mib, const unsigned int *anon_mib,
			     size_t count, unsigned int seconds);

#endif
