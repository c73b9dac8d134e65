/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The sites of a profile as a reader sees them: stacks that read alike are one,
 * sorted, with totals. Every report starts from this, so that all show the same
 * figures.
 */
#ifndef RESOLVER_REPORT_SITES_H
#define RESOLVER_REPORT_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "resolver/error.h"
#include "resolver/estimate.h"
#include "resolver/profile.h"
#include "resolver/report.h"

struct report_site {
	uint32_t site;	/* one of the profile's sites in it: they all have the same frames */
	uint32_t flags; /* enum profile_site_flags */
	uint64_t missed_frees;
	struct profile_sums sums;
	struct profile_variance variance;
	uint64_t temporary, peak_bytes, peak_count; /* as in struct profile_site */
};

struct report_sites {
	struct report_site *site; /* most important first */
	size_t count;
	struct profile_sums totals;
	struct profile_variance variance; /* of the totals */
	uint32_t *place;		  /* of each of the profile's sites: index into site[] */
	uint32_t *next; /* of each: another one that is alike, PROFILE_NONE for the last */
};

/*
 * Two sites are alike if all their frames have the same function, file, line
 * and module; where a line is not known, the same address.
 */
MUST_CHECK struct error *report_sites_init(const struct profile *profile, enum report_sort sort,
					   struct report_sites *ret);
void report_sites_deinit(struct report_sites *sites);

/*
 * Between which figures the truth lies, in 95 of 100 cases; the figures
 * themselves if exact. Blocks that are unlike all samples are taken to be as
 * large as those that @sums counts as allocated and that are easily missed.
 */
struct report_intervals {
	struct estimate inuse_bytes, inuse_count;
	struct estimate alloc_bytes, alloc_count;
	struct estimate freed_bytes, freed_count;
};

struct report_intervals report_intervals(const struct profile *profile,
					 const struct profile_sums *sums,
					 const struct profile_variance *variance);
/* The same in as many cases as @surety says. */
struct report_intervals report_intervals_at(const struct profile *profile,
					    const struct profile_sums *sums,
					    const struct profile_variance *variance,
					    const struct estimate_surety *surety);

/* What a site is sorted by. */
uint64_t report_sort_value(enum report_sort sort, const struct profile_sums *sums);
/* How many of the sites to show; @usual if the user did not say. */
size_t report_sites_shown(const struct report_sites *sites, const struct report_options *options,
			  size_t usual);
/* Sums of the sites from place @first on. */
struct profile_sums report_sites_rest(const struct report_sites *sites, size_t first);

/* One line of a stack. Unknown strings are NULL. */
struct report_frame {
	const char *function;
	const char *linkage;
	const char *file;
	uint32_t line;
	bool inlined;
	uint32_t module; /* PROFILE_NONE: vaddr is an address of the target */
	uint64_t vaddr;
};

/* Goes through the frames of a site, innermost first. */
struct report_walk {
	const struct profile *profile;
	uint32_t next_location, end_location; /* into profile.site_location */
	uint32_t next_frame;
};

struct report_walk report_walk_begin(const struct profile *profile, uint32_t site);
bool report_walk_next(struct report_walk *walk, struct report_frame *ret);

/*
 * The frames of @site, malloc'ed, and the place of the first one that is not
 * an allocator's or a thin wrapper's own (malloc, operator new, xmalloc ...), nor,
 * where possible, the standard library's (std::vector): what the site is called
 * after. 0 if there is no such frame.
 */
MUST_CHECK struct error *report_frames(const struct profile *profile, uint32_t site,
				       struct report_frame **frames_ret, size_t *count_ret,
				       size_t *own_ret);

/* True for functions that only hand an allocation on. NULL is none. */
bool report_is_allocator(const char *function);
/* The same as a regular expression over whole names without parameters, malloc'ed; NULL without
 * memory. */
char *report_allocator_regexp(void);

/*
 * Bytes in use of each site at @points times, evenly spread, the last one the
 * end: value[place * points + k]. *ret is malloc'ed.
 */
MUST_CHECK struct error *report_series(const struct profile *profile,
				       const struct report_sites *sites, size_t points,
				       uint64_t **ret);

/* Last component of a path; never NULL. */
const char *report_basename(const char *path);

#endif
