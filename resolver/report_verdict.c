// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/report_verdict.h"

#include <math.h>

#include "resolver/array.h"

#define QUARTERS 4

/*
 * Shorter than this, or with fewer snapshots, there is nothing to conclude from.
 * In a long recording of many sites few snapshots may have been kept.
 */
#define SHORTEST_NS	      (3ull * 1000000000)
#define FEWEST_SNAPSHOTS      5
#define FEWEST_LONG_SNAPSHOTS 4

#define MEDIUM_NS	      (30ull * 1000000000)
#define HIGH_NS		      (300ull * 1000000000)

/* A change below both is noise: a few blocks in flight. */
#define NOISE_BYTES	 (32 << 10)
#define NOISE_SHARE	 0.02
#define NOISE_DEVIATIONS 2 /* of an estimate */
#define ELSEWHERE_BYTES	 (4 << 20)
#define KEPT_BYTES	 (1 << 20)

struct evidence {
	uint64_t duration_ns;
	double low[QUARTERS]; /* least in use of each quarter */
	const struct profile_snapshot *low_at[QUARTERS];
	double inuse, inuse_alive; /* at the end; at the last look that knows the next ones */
	double anon_rise;	   /* over the last half */
	bool anon_known;
	double blocks_rise;	     /* of tracked blocks in use, over the last half */
	double replaced;	     /* frees of older blocks, over the last half */
	double blocks, replaced_all; /* the same since the start */
	bool replaced_known;	     /* samples don't tell of older blocks */
	double noise;		     /* of the rise, the next one included */
	double deviation;	     /* NOISE_DEVIATIONS of what is estimated */
};

static double rise(const struct evidence *evidence)
{
	return evidence->low[3] - evidence->low[1];
}

static bool anon_rose(const struct evidence *evidence)
{
	return evidence->anon_known && evidence->anon_rise > rise(evidence) / 2;
}

/* The last snapshot that knows the anonymous memory: the target may have died since. */
static const struct profile_snapshot *last_alive(const struct profile *profile)
{
	for (size_t i = profile->snapshot_count; i-- > 0;)
		if (profile->snapshot[i].anon_bytes)
			return &profile->snapshot[i];
	return NULL;
}

static const struct profile_snapshot *snapshot_at(const struct profile *profile, uint64_t time_ns)
{
	const struct profile_snapshot *found = &profile->snapshot[0];

	for (size_t i = 0; i < profile->snapshot_count; i++)
		if (profile->snapshot[i].time_ns <= time_ns)
			found = &profile->snapshot[i];
	return found;
}

static void gather_lows(const struct profile *profile, struct evidence *evidence)
{
	const struct profile_snapshot *end = &profile->snapshot[profile->snapshot_count - 1];

	for (unsigned int q = 0; q < QUARTERS; q++) {
		uint64_t from_ns = end->time_ns / QUARTERS * q;
		uint64_t to_ns = q + 1 < QUARTERS ? end->time_ns / QUARTERS * (q + 1) : UINT64_MAX;
		/* What was in use when the quarter began counts too: no quarter is empty. */
		const struct profile_snapshot *least = snapshot_at(profile, from_ns);

		for (size_t i = 0; i < profile->snapshot_count; i++) {
			const struct profile_snapshot *at = &profile->snapshot[i];

			if (at->time_ns >= from_ns && at->time_ns < to_ns &&
			    profile_inuse_bytes(&at->totals) < profile_inuse_bytes(&least->totals))
				least = at;
		}
		evidence->low[q] = profile_inuse_bytes(&least->totals);
		evidence->low_at[q] = least;
	}
}

static struct evidence gather(const struct profile *profile, const struct report_sites *sites)
{
	const struct profile_snapshot *end = &profile->snapshot[profile->snapshot_count - 1];
	const struct profile_snapshot *middle = snapshot_at(profile, end->time_ns / 2);
	const struct profile_snapshot *alive = last_alive(profile);
	struct evidence evidence = {
		.duration_ns = end->time_ns,
		.inuse = profile_inuse_bytes(&end->totals),
		.inuse_alive = profile_inuse_bytes(&(alive ? alive : end)->totals),
		.blocks_rise = (double)profile_inuse_count(&end->totals) -
			       (double)profile_inuse_count(&middle->totals),
		.replaced = (double)end->unknown_frees - (double)middle->unknown_frees,
		.blocks = (double)profile_inuse_count(&end->totals),
		.replaced_all = (double)end->unknown_frees,
	};

	gather_lows(profile, &evidence);
	if (alive && alive != middle && middle->anon_bytes) {
		evidence.anon_known = true;
		evidence.anon_rise = (double)alive->anon_bytes - (double)middle->anon_bytes;
	}
	evidence.noise = evidence.inuse * NOISE_SHARE;
	if (evidence.noise < NOISE_BYTES)
		evidence.noise = NOISE_BYTES;
	evidence.deviation = NOISE_DEVIATIONS * sqrt(sites->variance.inuse_bytes);
	evidence.noise += evidence.deviation;
	evidence.replaced_known = !profile_is_sampled(profile);
	return evidence;
}

/* Snapshots that were dropped have been looked at, too. */
static void find_peak(const struct profile *profile, struct report_verdict *verdict)
{
	verdict->peak_bytes = profile->peak.bytes;
	verdict->peak_count = profile->peak.count;
	verdict->peak_ns = profile->peak.time_ns;
	for (size_t i = 0; i < profile->snapshot_count; i++) {
		uint64_t inuse = profile_inuse_bytes(&profile->snapshot[i].totals);

		if (inuse <= verdict->peak_bytes)
			continue;
		verdict->peak_bytes = inuse;
		verdict->peak_count = profile_inuse_count(&profile->snapshot[i].totals);
		verdict->peak_ns = profile->snapshot[i].time_ns;
	}
}

static void find_anon_change(const struct profile *profile, struct report_verdict *verdict)
{
	const struct profile_snapshot *end = last_alive(profile);
	uint64_t from = profile->memory_start.anon_bytes, to = profile->memory_end.anon_bytes;

	if (!from && profile->snapshot_count)
		from = profile->snapshot[0].anon_bytes;
	if (!to && end)
		to = end->anon_bytes;
	verdict->anon_known = from && to;
	verdict->anon_change_bytes = verdict->anon_known ? (int64_t)(to - from) : 0;
}

static void find_grower(const struct report_sites *sites, const uint64_t *series,
			struct report_verdict *verdict)
{
	double most = 0, all = 0;

	verdict->grower = PROFILE_NONE;
	for (size_t i = 0; i < sites->count; i++) {
		const uint64_t *value = &series[i * VERDICT_POINTS];
		double rose =
			(double)value[VERDICT_POINTS - 1] - (double)value[VERDICT_POINTS / 2 - 1];

		if (rose > 0)
			all += rose;
		if (rose > most) {
			most = rose;
			verdict->grower = i;
		}
	}
	verdict->grower_share = all > 0 ? most / all : 0;
}

/* Rises in each part of the last half, and not ever more slowly. */
static bool is_steady(const struct evidence *evidence)
{
	double third = evidence->low[2] - evidence->low[1];
	double fourth = evidence->low[3] - evidence->low[2];

	return third > 0 && fourth > 0 && fourth * 3 > third;
}

/* The last quarter brought little of what the whole did. */
static bool is_levelling(const struct evidence *evidence)
{
	double last = evidence->low[3] - evidence->low[2];

	return evidence->low[3] > 2 * evidence->noise &&
	       last < (evidence->low[2] - evidence->low[1]) / 2 && last < evidence->low[3] / 10;
}

/* As many older blocks went as new ones came, and memory did not rise. */
static bool is_replacing(const struct evidence *evidence)
{
	bool anon_flat = evidence->anon_known && evidence->anon_rise < rise(evidence) / 4;

	/* Small ones for large ones. */
	if (anon_rose(evidence))
		return false;
	if (!evidence->replaced_known)
		return anon_flat;
	return evidence->blocks_rise > 0 && evidence->replaced > evidence->blocks_rise / 2 &&
	       (anon_flat || evidence->replaced > evidence->blocks_rise * 0.9);
}

/* What is tracked rose, but memory did not, from the start on. */
static bool has_replaced(const struct evidence *evidence, const struct report_verdict *verdict)
{
	if (!verdict->anon_known || (double)verdict->anon_change_bytes > evidence->inuse / 4)
		return false;
	return !evidence->replaced_known || evidence->replaced_all > evidence->blocks / 2;
}

/*
 * Much was freed, and memory rose all the same: by the last look that knows both, since
 * a target that frees all before it exits gives back all.
 */
static bool is_kept(const struct evidence *evidence, const struct report_verdict *verdict)
{
	double fell = (double)verdict->peak_bytes - evidence->inuse_alive;

	return fell > KEPT_BYTES + evidence->deviation && fell > (double)verdict->peak_bytes / 4 &&
	       verdict->anon_known && (double)verdict->anon_change_bytes > fell / 2;
}

static enum verdict_kind judge(const struct evidence *evidence,
			       const struct report_verdict *verdict)
{
	bool rises = rise(evidence) > evidence->noise;

	if (rises && is_replacing(evidence))
		return VERDICT_REPLACING;
	if (is_levelling(evidence))
		return has_replaced(evidence, verdict) ? VERDICT_REPLACING : VERDICT_LEVELLING;
	if (rises && evidence->low[3] > evidence->low[2])
		return VERDICT_GROWING;
	if (is_kept(evidence, verdict))
		return VERDICT_KEPT;
	if (verdict->anon_known && verdict->anon_change_bytes > ELSEWHERE_BYTES &&
	    (double)verdict->anon_change_bytes > 2 * (double)verdict->peak_bytes)
		return VERDICT_ELSEWHERE;
	return VERDICT_STABLE;
}

/*
 * How much speaks for it: time, and for growth also evenness and RSS. Samples do
 * not tell of older blocks, nor of a growth that is less than what they vary by.
 */
static void weigh(const struct evidence *evidence, struct report_verdict *verdict)
{
	bool confirmed = anon_rose(evidence);

	verdict->confidence = VERDICT_MEDIUM;
	if (evidence->duration_ns < MEDIUM_NS) {
		verdict->confidence = VERDICT_LOW;
		verdict->why = "recorded for less than 30 s";
	} else if (verdict->kind == VERDICT_GROWING && verdict->rate.low <= 0) {
		verdict->confidence = VERDICT_LOW;
		verdict->why = "few samples: it may be chance";
	} else if (verdict->kind == VERDICT_REPLACING && !evidence->replaced_known) {
		verdict->confidence = VERDICT_LOW;
		verdict->why = "by RSS alone, samples do not show frees of older blocks";
	} else if (verdict->kind == VERDICT_STABLE &&
		   evidence->deviation > evidence->noise - evidence->deviation) {
		verdict->confidence = VERDICT_LOW;
		verdict->why = "too few samples to see a slow growth";
	} else if (verdict->kind == VERDICT_GROWING && !is_steady(evidence)) {
		verdict->why = "the rise is uneven";
	} else if (verdict->kind == VERDICT_GROWING && !confirmed) {
		verdict->why =
			evidence->anon_known ? "RSS did not rise with it" : "RSS is not known";
	} else if (evidence->duration_ns < HIGH_NS) {
		verdict->why = "recorded for less than 5 min";
	} else {
		verdict->confidence = VERDICT_HIGH;
		verdict->why = verdict->kind == VERDICT_GROWING ? "steady, and RSS rises with it"
								: "recorded for long enough";
	}
}

static bool is_too_early(const struct profile *profile)
{
	size_t count = profile->snapshot_count;
	uint64_t end_ns = count ? profile->snapshot[count - 1].time_ns : 0;

	if (end_ns >= MEDIUM_NS)
		return count < FEWEST_LONG_SNAPSHOTS;
	return end_ns < SHORTEST_NS || count < FEWEST_SNAPSHOTS;
}

/* Between the looks that saw the low points. */
static struct report_growth rise_rate(const struct profile *profile,
				      const struct report_sites *sites,
				      const struct evidence *evidence)
{
	const struct profile_snapshot *from = evidence->low_at[1], *to = evidence->low_at[3];
	struct report_growth growth =
		report_growth_between(profile, from->time_ns, &from->totals, &to->totals,
				      &sites->totals, &sites->variance);

	return report_growth_rate(&growth, to->time_ns - from->time_ns);
}

struct report_verdict report_verdict(const struct profile *profile,
				     const struct report_sites *sites, const uint64_t *series)
{
	struct report_verdict verdict = {
		.inuse_bytes = profile_inuse_bytes(&sites->totals),
		.confidence = VERDICT_HIGH,
		.why = "",
	};
	struct evidence evidence;

	find_peak(profile, &verdict);
	find_anon_change(profile, &verdict);
	find_grower(sites, series, &verdict);
	if (!sites->totals.alloc_count) {
		verdict.kind = profile->coverage.direct_allocator ? VERDICT_DIRECT_ALLOCATOR
								  : VERDICT_NOTHING_SEEN;
		if (profile_is_sampled(profile))
			verdict.confidence = VERDICT_LOW;
		return verdict;
	}
	if (is_too_early(profile)) {
		verdict.kind = VERDICT_TOO_EARLY;
		verdict.confidence = VERDICT_LOW;
		return verdict;
	}
	evidence = gather(profile, sites);
	verdict.rate = rise_rate(profile, sites, &evidence);
	verdict.kind = judge(&evidence, &verdict);
	weigh(&evidence, &verdict);
	return verdict;
}

const char *verdict_kind_name(enum verdict_kind kind)
{
	static const char *const names[VERDICTS] = {
		[VERDICT_DIRECT_ALLOCATOR] = "direct_allocator",
		[VERDICT_NOTHING_SEEN] = "nothing_seen",
		[VERDICT_TOO_EARLY] = "too_early",
		[VERDICT_GROWING] = "growing",
		[VERDICT_LEVELLING] = "levelling_off",
		[VERDICT_REPLACING] = "replacing",
		[VERDICT_KEPT] = "kept_by_allocator",
		[VERDICT_ELSEWHERE] = "grows_elsewhere",
		[VERDICT_STABLE] = "stable",
	};

	return names[kind];
}

const char *verdict_confidence_name(enum verdict_confidence confidence)
{
	static const char *const names[] = {
		[VERDICT_LOW] = "low",
		[VERDICT_MEDIUM] = "medium",
		[VERDICT_HIGH] = "high",
	};

	return names[confidence];
}

enum site_trend site_trend(const uint64_t *value)
{
	const unsigned int last = VERDICT_POINTS - 1, half = VERDICT_POINTS / 2 - 1;
	double end = (double)value[last], middle = (double)value[half];
	double late = end - (double)value[last - VERDICT_POINTS / 4];
	unsigned int ups = 0, downs = 0;

	if (!value[last])
		return TREND_GONE;
	for (unsigned int i = half; i < last; i++) {
		ups += value[i + 1] > value[i];
		downs += value[i + 1] < value[i];
	}
	if (late > 0.95 * end)
		return TREND_YOUNG;
	if (end > 0.98 * middle && end < 1.02 * middle)
		return ups && downs ? TREND_CHANGES : TREND_STEADY;
	if (!downs && ups >= 3 && late > (end - middle) / 4)
		return TREND_GROWS;
	if (!downs && late < 0.1 * end)
		return TREND_LEVELS;
	if (!ups && downs)
		return TREND_FALLS;
	return TREND_CHANGES;
}

const char *site_trend_name(enum site_trend trend)
{
	static const char *const names[] = {
		[TREND_YOUNG] = "too young",   [TREND_GROWS] = "grows",
		[TREND_LEVELS] = "levels off", [TREND_STEADY] = "steady",
		[TREND_CHANGES] = "changes",   [TREND_FALLS] = "falls",
		[TREND_GONE] = "freed",
	};

	return names[trend];
}
