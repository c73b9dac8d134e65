/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reports of a profile: text, JSON, folded stacks, pprof. All four print the
 * same figures: the sites of struct report_sites, which merges stacks that
 * read alike and sorts them.
 */
#ifndef RESOLVER_REPORT_H
#define RESOLVER_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "resolver/error.h"
#include "resolver/profile.h"

enum report_format {
	REPORT_TEXT,
	REPORT_JSON,
	REPORT_FOLDED,
	REPORT_PPROF,
};

/* What is the most important first; also the one value of folded stacks. */
enum report_sort {
	REPORT_SORT_INUSE, /* bytes in use */
	REPORT_SORT_ALLOC, /* bytes allocated */
	REPORT_SORT_COUNT, /* number of allocations */
};

#define REPORT_TEXT_TOP 10 /* most sites of a text report if nothing else is asked for */

struct report_options {
	enum report_sort sort;
	uint32_t top; /* sites; 0: those that matter in text, all elsewhere */
	bool ascii;   /* text: no block characters (the output is not UTF-8) */
};

/*
 * Write a report to @out, which is flushed. Errors: ERROR_OS if writing fails
 * (a full disk), ERROR_MEMORY.
 *
 * Where @options->top leaves sites out, text and JSON count them, folded and
 * pprof put them together as "[other]": the totals never change.
 */
MUST_CHECK struct error *report_text(FILE *out, const struct profile *profile,
				     const struct report_options *options);
MUST_CHECK struct error *report_json(FILE *out, const struct profile *profile,
				     const struct report_options *options);
MUST_CHECK struct error *report_folded(FILE *out, const struct profile *profile,
				       const struct report_options *options);
MUST_CHECK struct error *report_pprof(FILE *out, const struct profile *profile,
				      const struct report_options *options);

/* The one of the four that @format names. */
MUST_CHECK struct error *report_write(FILE *out, const struct profile *profile,
				      enum report_format format,
				      const struct report_options *options);

/* For the writers: flush @out, and turn any earlier failure of writing into an error. */
MUST_CHECK struct error *report_flush(FILE *out);

#endif
