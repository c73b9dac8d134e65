// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/report_ranges.h"

#include <math.h>

#include "resolver/array.h"
#include "tests/tests.h"

#define INTERVAL 4096u
#define RUNS	 1000u

/* Steele, Lea, Flood's splitmix. In (0, 1]. */
static double random_share(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return ldexp((double)((x ^ x >> 31) >> 11) + 1, -53);
}

/* Blocks of one size: those from before the first look, and those that came after it. */
struct flow {
	const char *name;
	unsigned int size, before, after;
	unsigned int before_freed, after_freed; /* by the second look */
	unsigned int finer;			/* how much more often samples are taken then */
};

static const struct flow flows[] = {
	{"growth alone", 100, 0, 5000, 0, 0, 1},
	{"growth beside what stays", 100, 5000, 5000, 0, 0, 1},
	{"one for one", 100, 5000, 5000, 5000, 0, 1},
	{"half of them", 100, 5000, 5000, 2500, 0, 1},
	{"most freed at once", 100, 2000, 50000, 0, 49000, 1},
	{"less than before", 100, 8000, 1000, 6000, 0, 1},
	{"large ones", 9000, 100, 100, 50, 10, 1},
	{"few samples", 100, 100, 200, 50, 0, 1},
	{"no sample at all", 10, 10, 20, 0, 0, 1},
	{"finer later", 100, 3000, 5000, 300, 0, 16},
	{"all later", 100, 3000, 5000, 0, 0, INTERVAL},
};

/* Sums and truth at two looks. */
struct looks {
	struct profile_sums from, to;
	struct profile_variance variance;
	double truth;
};

static void sample_alloc(struct looks *looks, double size, double weight, bool before)
{
	const struct profile_sums sums = {.alloc_bytes = (uint64_t)llround(weight * size),
					  .alloc_count = (uint64_t)llround(weight)};
	const struct profile_variance variance = {
		.alloc_bytes = size * size * weight * (weight - 1),
		.alloc_count = weight * (weight - 1),
		.inuse_bytes = size * size * weight * (weight - 1),
		.inuse_count = weight * (weight - 1),
	};

	profile_sums_add(&looks->to, &sums);
	profile_variance_add(&looks->variance, &variance);
	if (before)
		profile_sums_add(&looks->from, &sums);
}

static void sample_freed(struct looks *looks, double size, double weight)
{
	looks->to.freed_bytes += (uint64_t)llround(weight * size);
	looks->to.freed_count += (uint64_t)llround(weight);
	looks->variance.inuse_bytes -= size * size * weight * (weight - 1);
	looks->variance.inuse_count -= weight * (weight - 1);
}

static struct looks flow_run(const struct flow *flow, uint64_t *state)
{
	double finer = fmax((double)INTERVAL / flow->finer, 1);
	struct looks looks = {
		.truth = ((double)flow->after - flow->after_freed - flow->before_freed) *
			 flow->size};

	for (unsigned int i = 0; i < flow->before + flow->after; i++) {
		bool before = i < flow->before;
		double interval = before ? INTERVAL : finer;
		double sampled = -expm1(-(flow->size + 1.0) / interval);
		bool is_freed =
			before ? i < flow->before_freed : i - flow->before < flow->after_freed;

		if (random_share(state) > sampled)
			continue;
		sample_alloc(&looks, flow->size, 1 / sampled, before);
		if (is_freed)
			sample_freed(&looks, flow->size, 1 / sampled);
	}
	return looks;
}

static struct report_growth growth_of(const struct flow *flow, const struct looks *looks)
{
	uint64_t finer = flow->finer < INTERVAL ? INTERVAL / flow->finer : 1;
	struct profile_snapshot snapshots[] = {
		{.time_ns = 1, .interval = INTERVAL},
		{.time_ns = 2, .interval = finer},
	};
	const struct profile profile = {
		.interval = finer,
		.sampling = {.interval_low = finer, .interval_high = INTERVAL},
		.snapshot_count = 2,
		.snapshot = snapshots,
	};

	return report_growth_between(&profile, 1, &looks->from, &looks->to, &looks->to,
				     &looks->variance);
}

START_TEST(growth_is_within_its_range_in_95_of_100)
{
	const struct flow *flow = &flows[_i];
	unsigned int covered = 0;
	uint64_t state = 1;

	for (unsigned int i = 0; i < RUNS; i++) {
		struct looks looks = flow_run(flow, &state);
		struct report_growth growth = growth_of(flow, &looks);

		ck_assert(growth.low <= growth.bytes && growth.bytes <= growth.high);
		covered += growth.low <= looks.truth && looks.truth <= growth.high;
	}
	ck_assert_msg(covered >= RUNS * 93 / 100, "%s: %u of %u", flow->name, covered, RUNS);
}
END_TEST

/* What is in use at the peak is estimated from as many samples as at the end. */
START_TEST(other_times_vary_as_the_end_does)
{
	const struct profile profile = {
		.interval = INTERVAL,
		.sampling = {.interval_low = INTERVAL, .interval_high = INTERVAL},
	};
	const struct profile_sums end = {1000000, 10000, 500000, 5000};
	const struct profile_variance variance = {1e6 * INTERVAL, 1e4 * 40, 5e5 * INTERVAL,
						  5e3 * 40};
	struct profile_variance then = report_variance_then(&end, &end, &variance);
	struct report_intervals at_end = report_intervals(&profile, &end, &variance);
	struct report_inuse peak = report_inuse_then(&profile, 500000, 5000, &end, &variance);

	ck_assert_double_eq_tol(then.alloc_bytes, variance.alloc_bytes, 1);
	ck_assert_double_eq_tol(then.inuse_count, variance.inuse_count, 1);
	ck_assert_double_eq_tol((double)peak.bytes.low, (double)at_end.inuse_bytes.low, 5000);
	ck_assert_double_eq_tol((double)peak.bytes.high, (double)at_end.inuse_bytes.high, 5000);
	peak = report_inuse_then(&profile, 2000000, 20000, &end, &variance);
	ck_assert_uint_gt(peak.bytes.high - peak.bytes.low,
			  at_end.inuse_bytes.high - at_end.inuse_bytes.low);
}
END_TEST

/* 4,000 of 100 bytes are some 100 samples: 81 to 122 by Poisson's tables. */
START_TEST(blocks_of_a_bin_vary_by_their_size)
{
	const struct profile profile = {
		.interval = INTERVAL,
		.sampling = {.interval_low = INTERVAL, .interval_high = INTERVAL},
	};
	const struct profile_sums end = {1000000, 10000, 500000, 5000};
	const struct profile_variance variance = {1e6 * INTERVAL, 1e4 * 40, 5e5 * INTERVAL,
						  5e3 * 40};
	struct estimate small = report_count_of_size(&profile, 4000, 100, &end, &variance);
	struct estimate large = report_count_of_size(&profile, 4000, 1u << 20, &end, &variance);

	ck_assert_uint_ge(small.low, 3150);
	ck_assert_uint_le(small.low, 3350);
	ck_assert_uint_ge(small.high, 4750);
	ck_assert_uint_le(small.high, 5050);
	ck_assert_uint_ge(large.low, 3999);
	ck_assert_uint_eq(large.high, 4000);
}
END_TEST

START_TEST(exact_figures_have_no_range)
{
	const struct profile profile = {.interval = 1};
	const struct profile_sums from = {1000, 10, 100, 1}, to = {9000, 90, 500, 5};
	const struct profile_variance none = {0};
	struct report_growth growth = report_growth_between(&profile, 0, &from, &to, &to, &none);

	ck_assert_double_eq(growth.bytes, 7600);
	ck_assert_double_eq(growth.low, 7600);
	ck_assert_double_eq(growth.high, 7600);
	growth = report_growth_rate(&growth, 2000000000);
	ck_assert_double_eq(growth.high, 3800);
	growth = report_growth_rate(&growth, 0);
	ck_assert_double_eq(growth.high, 0);
}
END_TEST

Suite *report_ranges_suite(void)
{
	Suite *suite = suite_create("report_ranges");
	TCase *tcase = tcase_create("ranges");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, growth_is_within_its_range_in_95_of_100, 0, ARRAY_SIZE(flows));
	tcase_add_test(tcase, other_times_vary_as_the_end_does);
	tcase_add_test(tcase, blocks_of_a_bin_vary_by_their_size);
	tcase_add_test(tcase, exact_figures_have_no_range);
	suite_add_tcase(suite, tcase);
	return suite;
}
