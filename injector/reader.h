/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reads the profile out of the shared memory while the target writes it: the
 * sums of each site over all stripes, the sites' stacks, and the counters.
 *
 * The target is not trusted: offsets, counts and site numbers are checked
 * against the layout that we made, stacks are copied before they are used.
 * For one thread at a time.
 */
#ifndef INJECTOR_READER_H
#define INJECTOR_READER_H

#include <stddef.h>
#include <stdint.h>

#include "injector/shm.h"
#include "payload/protocol.h"
#include "resolver/error.h"

/* One site; the stack never changes after it was first read. */
/* Of the estimates in a site's sums; all 0 where every allocation was recorded. */
struct reader_variance {
	double alloc_bytes, alloc_count;
	double inuse_bytes, inuse_count;
};

struct reader_site {
	uint32_t generation; /* of the module list that the stack was taken under */
	uint16_t flags;	     /* enum ha_site_flags */
	uint16_t frames;     /* 0: not read yet, or the site is HA_SITE_UNKNOWN */
	const uint64_t *pc;  /* return addresses, innermost first; owned by the reader */
	struct ha_sums sums; /* over all stripes, as of the last scan */
	struct reader_variance variance;
};

struct reader {
	struct shm *shm;
	struct reader_site *site;  /* indexed by site number; [0] is HA_SITE_UNKNOWN */
	size_t sites;		   /* numbers below this may be in use */
	struct ha_sums total;	   /* over all sites */
	struct ha_stripe counters; /* over all stripes */
	uint64_t malformed;	   /* sites whose record in the shared memory is not valid */
};

/* @shm must outlive the reader. */
MUST_CHECK struct error *reader_create(struct shm *shm, struct reader **ret);

/* NULL is fine. */
void reader_free(struct reader *reader);

/*
 * Read everything once. While the target runs, figures are consistent for each
 * site: freed is read before allocated, so that in-use is never negative, and
 * together with it, so that in-use is hardly too high. After the stop they are
 * exact. ERROR_MEMORY.
 */
MUST_CHECK struct error *reader_scan(struct reader *reader);

/*
 * The stack of one site, read now if it was not yet. NULL: there is no such
 * site, or its record is not valid. ERROR_MEMORY.
 */
MUST_CHECK struct error *reader_site(struct reader *reader, uint32_t number,
				     const struct reader_site **ret);

/* Calls that were recorded so far, by now: cheap. */
uint64_t reader_events(const struct reader *reader);

/* Blocks and bytes in use as of the last scan. */
uint64_t reader_inuse_count(const struct ha_sums *sums);
uint64_t reader_inuse_bytes(const struct ha_sums *sums);

#endif
