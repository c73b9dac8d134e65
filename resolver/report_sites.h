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

/* What a site is sorted by. */
uint64_t report_sort_value(enum report_sort sort, const struct profile_sums *sums);
/* How many of the sites to show; @usual if the user did not say. */
size_t report_sites_shown(const struct report_sites *sites, const struct report_options *options,
			  size_t usual);
/* Sums of the sites from place @first on, and their variance. */
struct profile_sums report_sites_rest(const struct report_sites *sites, size_t first);
struct profile_variance report_variance_rest(const struct report_sites *sites, size_t first);

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

/* Sums at the last look in the first half of the time, and when that was. */
struct report_middle {
	uint64_t time_ns;
	struct profile_sums *sums; /* of each site, by its place */
};

MUST_CHECK struct error *report_middle_init(const struct profile *profile,
					    const struct report_sites *sites,
					    struct report_middle *ret);
void report_middle_deinit(struct report_middle *middle);

/* Last component of a path; never NULL. */
const char *report_basename(const char *path);

#endif
