/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The text report's parts. Private to report_text*.c.
 *
 * For a terminal of 80 columns: prose is wrapped, numbers are never cut. All
 * text passes through resolver/text.h on its way out.
 */
#ifndef RESOLVER_REPORT_TEXT_H
#define RESOLVER_REPORT_TEXT_H

#include <stdio.h>

#include "resolver/report_sites.h"
#include "resolver/report_verdict.h"

#define TEXT_WIDTH 79u /* a line of 80 wraps on some terminals */

struct text_report {
	FILE *out;
	const struct profile *profile;
	const struct report_options *options;
	struct report_sites sites;
	uint64_t *series; /* VERDICT_POINTS of each site */
	struct report_middle middle;
	struct report_verdict verdict;
};

/* One paragraph: the first line indented by @first, further ones by @next. */
void text_say(const struct text_report *text, unsigned int first, unsigned int next,
	      const char *format, ...) PRINTF(4, 5);

/* The same, hanging behind a label of at most 9 columns; NULL or "" leaves it blank. */
void text_say_labelled(const struct text_report *text, const char *label, const char *format, ...)
	PRINTF(3, 4);

/* "function at file:line": the name of a site; "an unknown stack" if it has none. */
MUST_CHECK struct error *text_site_name(const struct text_report *text, uint32_t place, char **ret);

void text_verdict(const struct text_report *text);
void text_account(const struct text_report *text);
void text_header(const struct text_report *text);

#endif
