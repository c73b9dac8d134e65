/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The verdict: does the process's memory grow, and how sure is that? Worked out
 * from the snapshots, the same for each report.
 *
 * What is tracked always starts at 0 and rises while blocks from before the
 * attach are replaced by new ones, so its rise alone proves nothing. Growth is
 * a rise of the low points (the least in use of each quarter of the time), and
 * is checked against two other witnesses: how many blocks from before were
 * freed meanwhile, and whether the target's anonymous memory rose.
 */
#ifndef RESOLVER_REPORT_VERDICT_H
#define RESOLVER_REPORT_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "resolver/error.h"
#include "resolver/profile.h"
#include "resolver/report_ranges.h"
#include "resolver/report_sites.h"

enum verdict_kind {
	VERDICT_DIRECT_ALLOCATOR, /* nothing seen: the allocator is called directly */
	VERDICT_NOTHING_SEEN,	  /* no allocation at all */
	VERDICT_TOO_EARLY,	  /* too short to say */
	VERDICT_GROWING,
	VERDICT_LEVELLING, /* it grew, but hardly any more */
	VERDICT_REPLACING, /* tracked memory rises in the place of older blocks */
	VERDICT_KEPT,	   /* freed, but still resident */
	VERDICT_ELSEWHERE, /* RSS rises, what is tracked does not */
	VERDICT_STABLE,
	VERDICTS
};

enum verdict_confidence {
	VERDICT_LOW,
	VERDICT_MEDIUM,
	VERDICT_HIGH,
};

#define VERDICT_POINTS 8 /* of each site's series */

struct report_verdict {
	enum verdict_kind kind;
	enum verdict_confidence confidence;
	const char *why; /* a few words on the confidence; static */
	uint64_t inuse_bytes, peak_bytes, peak_count;
	uint64_t peak_ns;	   /* since the start */
	struct report_growth rate; /* a second, of the low points, over the last half */
	bool anon_known;	   /* the next one is */
	int64_t anon_change_bytes; /* of RssAnon, start to end */
	uint32_t grower;	   /* place of the site that rose most in the last half, or
				      PROFILE_NONE */
	double grower_share;	   /* of the rise of all, at most 1 */
};

/* @series: of report_series() with VERDICT_POINTS points. */
struct report_verdict report_verdict(const struct profile *profile,
				     const struct report_sites *sites, const uint64_t *series);

/* For JSON: "growing", "stable" ... and "low" ... */
const char *verdict_kind_name(enum verdict_kind kind);
const char *verdict_confidence_name(enum verdict_confidence confidence);

enum site_trend {
	TREND_YOUNG,   /* all of it came in the last quarter: too early to say */
	TREND_GROWS,   /* rises all the time */
	TREND_LEVELS,  /* rose, but hardly any more */
	TREND_STEADY,  /* the same for the last half */
	TREND_CHANGES, /* up and down */
	TREND_FALLS,
	TREND_GONE, /* nothing in use at the end */
};

/* Of one site's VERDICT_POINTS values. */
enum site_trend site_trend(const uint64_t *value);
const char *site_trend_name(enum site_trend trend);

#endif
