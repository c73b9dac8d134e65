/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "resolver/array.h"
#include "resolver/estimate.h"
#include "tests/tests.h"

#include <math.h>
#include <string.h>

#define INTERVAL 16384.0 /* bytes */

/* ---- known values */

static struct estimate_sampling sampling_of(uint64_t low, uint64_t high, double size)
{
	return (struct estimate_sampling){low, high, size, estimate_surety_95};
}

/* @count samples of blocks of one byte, 1,000 apart. */
static struct estimate bytes_of(uint64_t count)
{
	const struct estimate_figures figures = {count * 1000, count * 1000, 1e6 * (double)count,
						 1e6 * (double)count};
	const struct estimate_sampling sampling = sampling_of(1000, 1000, 1);

	return estimate_bytes(&figures, &sampling);
}

static void assert_interval(struct estimate got, uint64_t low, uint64_t high)
{
	ck_assert_uint_eq(got.low, low);
	ck_assert_uint_eq(got.high, high);
}

static void assert_around(uint64_t got, double expected, double share)
{
	ck_assert_double_ge((double)got, expected * (1 - share));
	ck_assert_double_le((double)got, expected * (1 + share));
}

START_TEST(is_the_value_itself_where_all_was_recorded)
{
	static const uint64_t values[] = {0, 12345, UINT64_MAX};

	for (uint64_t interval = 0; interval <= 1; interval++) {
		const struct estimate_sampling exact = sampling_of(interval, interval, 100);
		struct estimate_figures figures = {values[_i], values[_i], 0, 0};

		assert_interval(estimate_bytes(&figures, &exact), values[_i], values[_i]);
		assert_interval(estimate_count(&figures, &exact), values[_i], values[_i]);
	}
}
END_TEST

/* Tables give 0.0253 to 5.572 for 1, 1.624 to 11.668 for 5, 81.36 to 121.63 for 100. */
START_TEST(is_that_of_poisson_for_small_blocks)
{
	assert_around(bytes_of(1).high, 5572, 0.005);
	ck_assert_uint_le(bytes_of(1).low, 60);
	assert_around(bytes_of(5).low, 1624, 0.01);
	assert_around(bytes_of(5).high, 11668, 0.005);
	assert_around(bytes_of(100).low, 81360, 0.002);
	assert_around(bytes_of(100).high, 121630, 0.002);
}
END_TEST

/* -ln 0.025 intervals hold no sample in one of 40 cases. */
START_TEST(has_an_upper_end_where_nothing_was_seen)
{
	const struct estimate_figures none = {0};
	struct estimate_sampling sampling = sampling_of(10, 1000, 99);

	assert_interval(estimate_bytes(&none, &sampling), 0, 3689);
	assert_interval(estimate_count(&none, &sampling), 0, 37);
}
END_TEST

/* As many bytes may be unseen beside a block that is certain to be a sample. */
START_TEST(leaves_room_for_other_blocks_than_those_seen)
{
	const struct estimate_figures one = {1000000, 1, 0, 0};
	struct estimate_sampling sampling = sampling_of(1000, 1000, 99);

	ck_assert_uint_eq(estimate_bytes(&one, &sampling).low, 1000000);
	assert_around(estimate_bytes(&one, &sampling).high - 1000000, 3689, 0.01);
	ck_assert_uint_eq(estimate_count(&one, &sampling).low, 1);
	assert_around(estimate_count(&one, &sampling).high - 1, 36, 0.05);
	/* Of its own size there is no other. */
	sampling.missed_size = estimate_missed_size(&one);
	assert_interval(estimate_count(&one, &sampling), 1, 1);
}
END_TEST

/* Small blocks say how much they vary; those unseen may be from the largest interval. */
START_TEST(uses_the_interval_that_was_in_force)
{
	const struct estimate_figures small = {100000, 100000, 1e8, 1e8}, seen = {1000, 10, 0, 0};
	const struct estimate_sampling fixed = sampling_of(1000, 1000, 1);
	const struct estimate_sampling varied = sampling_of(1, 4000, 1);
	struct estimate expected = estimate_bytes(&small, &fixed);

	assert_around(estimate_bytes(&small, &varied).low, (double)expected.low, 0.01);
	ck_assert_uint_ge(estimate_bytes(&small, &varied).high, expected.high);
	ck_assert_uint_le(estimate_bytes(&small, &varied).high, expected.high + 14756);
	assert_around(estimate_bytes(&seen, &varied).high, 1000 + 14756, 0.01);
	assert_around(estimate_count(&seen, &varied).high, 10 + 7377, 0.01);
}
END_TEST

/* A sample is a block. */
START_TEST(is_never_down_to_nothing_where_there_is_a_sample)
{
	const struct estimate_figures one = {1000, 1000, 1e6, 1e6};
	const struct estimate_sampling sampling = sampling_of(1000, 1000, 1);

	ck_assert_uint_eq(estimate_count(&one, &sampling).low, 1);
	ck_assert_uint_ge(estimate_bytes(&one, &sampling).low, 1);
}
END_TEST

/* A recording may hold anything that is a number. */
START_TEST(holds_the_value_whatever_the_variance)
{
	static const double variances[] = {-1, 0, 1e-300, 1, 1e40, 1e300};
	static const uint64_t values[] = {0, 1, 1000000, UINT64_MAX};
	const double *variance = variances;

	for (unsigned int i = 0; i < 6 * 6 * 4 * 4 * 4; i++) {
		const struct estimate_figures figures = {values[i / 36 % 4], values[i / 144 % 4],
							 variance[i % 6], variance[i / 6 % 6]};
		static const uint64_t intervals[] = {0, 2, 1u << 20, UINT64_MAX};
		struct estimate_sampling sampling =
			sampling_of(intervals[i / 576], 1u << 20, estimate_missed_size(&figures));
		struct estimate bytes = estimate_bytes(&figures, &sampling);
		struct estimate count = estimate_count(&figures, &sampling);

		ck_assert(bytes.low <= figures.bytes && figures.bytes <= bytes.high);
		ck_assert(count.low <= figures.count && figures.count <= count.high);
	}
}
END_TEST

/* ---- coverage, by simulation */

/*
 * Blocks of one kind: their sizes are even between two, in thousandths of INTERVAL.
 * They are sampled @finer times as often, if that is not 0.
 */
struct kind {
	unsigned int count, size_low, size_high;
	bool is_freed;
	unsigned int finer;
};

/* A site, or the total of several. */
#define KINDS 8
struct mix {
	const char *name;
	struct kind kind[KINDS];
	/* Blocks of one size and other lattices can be covered more often than wanted. */
	bool is_smooth;
	/* Small blocks without a sample, next to large ones: their number is not known. */
	bool is_uncounted;
};

#define IN_USE(count, low, high)           \
	{                                  \
		count, low, high, false, 0 \
	}
#define FREED(count, low, high)           \
	{                                 \
		count, low, high, true, 0 \
	}
#define FINER(times, count, low, high)         \
	{                                      \
		count, low, high, false, times \
	}

static const struct mix mixes[] = {
	{.name = "30 samples of small blocks", .kind = {IN_USE(1000, 10, 50)}, .is_smooth = true},
	{.name = "100 samples of small blocks", .kind = {IN_USE(1000, 50, 150)}, .is_smooth = true},
	{.name = "around the interval", .kind = {IN_USE(100, 500, 2000)}, .is_smooth = true},
	{.name = "one interval each", .kind = {IN_USE(60, 1000, 1000)}},
	{.name = "two intervals each", .kind = {IN_USE(40, 2000, 2000)}},
	{.name = "three intervals each", .kind = {IN_USE(40, 3000, 3000)}},
	{.name = "four intervals each", .kind = {IN_USE(40, 4000, 4000)}},
	{.name = "five intervals each", .kind = {IN_USE(40, 5000, 5000)}},
	{.name = "six intervals each", .kind = {IN_USE(40, 6000, 6000)}},
	{.name = "seven intervals each", .kind = {IN_USE(40, 7000, 7000)}},
	{.name = "eight intervals each", .kind = {IN_USE(40, 8000, 8000)}},
	{.name = "thousand of eight", .kind = {IN_USE(1000, 8000, 8000)}},
	{.name = "thousand of nine", .kind = {IN_USE(1000, 9000, 9000)}},
	{.name = "one interval to certain", .kind = {IN_USE(40, 1000, 16000)}},
	{.name = "small to certain", .kind = {IN_USE(60, 100, 16000)}, .is_uncounted = true},
	{.name = "certain beside small", .kind = {IN_USE(40, 20000, 20000), IN_USE(1000, 10, 10)}},
	{.name = "nearly certain beside small",
	 .kind = {IN_USE(40, 8000, 8000), IN_USE(1000, 10, 10)}},
	{.name = "many nearly certain beside small",
	 .kind = {IN_USE(1000, 9000, 9000), IN_USE(3000, 10, 10)}},
	{.name = "many certain beside few small",
	 .kind = {IN_USE(1000, 20000, 20000), IN_USE(40, 200, 2000)}},
	{.name = "certain beside unseen",
	 .kind = {IN_USE(40, 20000, 20000), IN_USE(10, 100, 100)},
	 .is_uncounted = true},
	{.name = "small in use, large freed",
	 .kind = {FREED(40, 6000, 6000), IN_USE(2000, 20, 40)},
	 .is_smooth = true},
	{.name = "large in use, small freed",
	 .kind = {FREED(2000, 20, 40), IN_USE(40, 6000, 6000)}},
	/*
	 * What leak_chain's leaf_grow leaves in use, by 16 KiB and by 4 KiB: all of
	 * the three small ones are missed in one of 3 and one of 40 cases.
	 */
	{.name = "grown blocks",
	 .kind = {FREED(400, 16, 4000), IN_USE(1, 168, 168), IN_USE(1, 349, 349),
		  IN_USE(1, 402, 402), IN_USE(1, 1714, 1714), IN_USE(1, 2640, 2640),
		  IN_USE(2, 3177, 4039), IN_USE(1, 4059, 4059)}},
	{.name = "grown blocks, nearly certain",
	 .kind = {FREED(400, 64, 16000), IN_USE(1, 671, 671), IN_USE(1, 1394, 1394),
		  IN_USE(1, 1609, 1609), IN_USE(1, 6856, 6856), IN_USE(1, 10561, 10561),
		  IN_USE(2, 12709, 16155), IN_USE(1, 16235, 16235)}},
	/* The interval falls in mid-run. */
	{.name = "as many, then finer", .kind = {IN_USE(1000, 10, 50), FINER(8, 1000, 10, 50)}},
	{.name = "few, then many finer", .kind = {IN_USE(50, 10, 50), FINER(64, 5000, 10, 50)}},
	{.name = "few, then every one", .kind = {IN_USE(100, 20, 40), FINER(100000, 3000, 20, 40)}},
	{.name = "ten samples, then one in 512",
	 .kind = {IN_USE(300, 20, 40), FINER(512, 3000, 20, 40)}},
	{.name = "large, then small finer",
	 .kind = {IN_USE(20, 3000, 3000), FINER(64, 2000, 10, 50)}},
	{.name = "small, then large finer",
	 .kind = {IN_USE(500, 10, 50), FINER(64, 40, 3000, 3000)}},
	{.name = "in steps",
	 .kind = {IN_USE(300, 10, 50), FINER(2, 300, 10, 50), FINER(4, 300, 10, 50),
		  FINER(8, 300, 10, 50), FINER(16, 300, 10, 50), FINER(32, 300, 10, 50)}},
	{.name = "finer, then coarse again",
	 .kind = {FINER(64, 3000, 10, 50), IN_USE(200, 10, 50)}},
};
/* Steele, Lea, Flood's splitmix. In (0, 1]. */
static double random_share(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return ldexp((double)((x ^ x >> 31) >> 11) + 1, -53);
}

/* Estimated, not yet rounded, or true. */
struct figures {
	double bytes, count, bytes_variance, count_variance;
};

/* What a sample stands for. Counts are rounded at random, as the payload does. */
static struct figures sample_figures(double size, double interval, double random)
{
	double sampled = -expm1(-(size + 1) / interval);
	double whole = floor(1 / sampled), rest = 1 / sampled - whole;

	return (struct figures){
		.bytes = size / sampled,
		.count = random < rest ? whole + 1 : whole,
		.bytes_variance = size * size * (1 - sampled) / sampled / sampled,
		.count_variance = whole * (whole - 1) + rest * 2 * whole,
	};
}

static void figures_add(struct figures *to, const struct figures *from)
{
	to->bytes += from->bytes;
	to->count += from->count;
	to->bytes_variance += from->bytes_variance;
	to->count_variance += from->count_variance;
}

struct world {
	struct figures alloc, inuse;
	struct figures alloc_truth, inuse_truth;
};

/* How samples are taken: how far the next one is, and from what that was drawn. */
struct sampler {
	double interval, left;
	uint64_t *state;
};

static void sampler_draw(struct sampler *sampler)
{
	sampler->left = -sampler->interval * log(random_share(sampler->state));
}

static void world_alloc(struct world *world, double size, bool is_freed, struct sampler *sampler)
{
	struct figures truth = {.bytes = size, .count = 1}, sample;

	figures_add(&world->alloc_truth, &truth);
	if (!is_freed)
		figures_add(&world->inuse_truth, &truth);
	sampler->left -= size + 1;
	if (sampler->left > 0)
		return;
	sampler_draw(sampler);
	sample = sample_figures(size, sampler->interval, random_share(sampler->state));
	figures_add(&world->alloc, &sample);
	if (!is_freed)
		figures_add(&world->inuse, &sample);
}

static double kind_interval(const struct kind *kind)
{
	return kind->finer ? fmax(INTERVAL / kind->finer, 1) : INTERVAL;
}

static double mix_interval_low(const struct mix *mix)
{
	double low = INTERVAL;

	for (const struct kind *kind = mix->kind; kind < mix->kind + KINDS; kind++)
		low = fmin(low, kind_interval(kind));
	return low;
}

/* One run of the program with fresh samples; the same blocks each time. */
static void world_run(struct world *world, const struct mix *mix, uint64_t *state)
{
	struct sampler sampler = {.state = state};

	memset(world, 0, sizeof(*world));
	for (const struct kind *kind = mix->kind; kind < mix->kind + KINDS; kind++) {
		double interval = kind_interval(kind);

		if (sampler.interval != interval) {
			sampler.interval = interval;
			sampler_draw(&sampler);
		}
		for (unsigned int i = 0; i < kind->count; i++) {
			unsigned int range = kind->size_high - kind->size_low;
			double share = kind->size_low + (double)range * i / kind->count;

			world_alloc(world, round(share * INTERVAL / 1000), kind->is_freed,
				    &sampler);
		}
	}
}

static struct estimate_figures whole_figures(const struct figures *from)
{
	return (struct estimate_figures){(uint64_t)llround(from->bytes),
					 (uint64_t)llround(from->count), from->bytes_variance,
					 from->count_variance};
}

enum figure { ALLOC_BYTES, ALLOC_COUNT, INUSE_BYTES, INUSE_COUNT, FIGURES };
static const char *const figure_names[] = {"alloc_bytes", "alloc_count", "inuse_bytes",
					   "inuse_count"};

static bool is_within(struct estimate interval, double truth)
{
	return (double)interval.low <= truth && truth <= (double)interval.high;
}

static void covered_count(const struct world *world, double interval_low,
			  const struct estimate_surety *surety, unsigned int covered[FIGURES])
{
	const struct estimate_figures alloc = whole_figures(&world->alloc);
	const struct estimate_figures inuse = whole_figures(&world->inuse);
	const struct estimate_sampling sampling = {(uint64_t)interval_low, (uint64_t)INTERVAL,
						   estimate_missed_size(&alloc), *surety};

	covered[ALLOC_BYTES] +=
		is_within(estimate_bytes(&alloc, &sampling), world->alloc_truth.bytes);
	covered[ALLOC_COUNT] +=
		is_within(estimate_count(&alloc, &sampling), world->alloc_truth.count);
	covered[INUSE_BYTES] +=
		is_within(estimate_bytes(&inuse, &sampling), world->inuse_truth.bytes);
	covered[INUSE_COUNT] +=
		is_within(estimate_count(&inuse, &sampling), world->inuse_truth.count);
}

static void mix_simulate(const struct mix *mix, unsigned int runs,
			 const struct estimate_surety *surety, unsigned int covered[FIGURES])
{
	uint64_t state = 1;
	struct world world;

	for (unsigned int i = 0; i < runs; i++) {
		world_run(&world, mix, &state);
		covered_count(&world, mix_interval_low(mix), surety, covered);
	}
}

#define RUNS 1000u

/* The bounds leave two or three deviations for chance. */
static void expect_covered(const struct mix *mix, const struct estimate_surety *surety,
			   unsigned int least, unsigned int most)
{
	unsigned int covered[FIGURES] = {0};

	mix_simulate(mix, RUNS, surety, covered);
	for (int k = 0; k < FIGURES; k++) {
		if (mix->is_uncounted && (k == ALLOC_COUNT || k == INUSE_COUNT))
			continue;
		ck_assert_msg(least <= covered[k] && covered[k] <= most, "%s: %s in %u of %u",
			      mix->name, figure_names[k], covered[k], RUNS);
	}
}

START_TEST(covers_the_truth_in_95_of_100)
{
	for (size_t i = 0; i < ARRAY_SIZE(mixes); i++)
		expect_covered(&mixes[i], &estimate_surety_95, 930,
			       mixes[i].is_smooth ? 980 : RUNS);
}
END_TEST

/* Tests that must not fail by chance look there. */
START_TEST(far_ends_are_hardly_ever_passed)
{
	static const struct estimate_surety far = {0.001, 3.090232};

	for (size_t i = 0; i < ARRAY_SIZE(mixes); i++)
		expect_covered(&mixes[i], &far, 993, RUNS);
}
END_TEST

Suite *estimate_suite(void)
{
	Suite *suite = suite_create("estimate");
	TCase *tcase = tcase_create("interval");
	TCase *coverage = tcase_create("coverage");

	tcase_add_loop_test(tcase, is_the_value_itself_where_all_was_recorded, 0, 3);
	tcase_add_test(tcase, is_that_of_poisson_for_small_blocks);
	tcase_add_test(tcase, has_an_upper_end_where_nothing_was_seen);
	tcase_add_test(tcase, leaves_room_for_other_blocks_than_those_seen);
	tcase_add_test(tcase, uses_the_interval_that_was_in_force);
	tcase_add_test(tcase, is_never_down_to_nothing_where_there_is_a_sample);
	tcase_add_test(tcase, holds_the_value_whatever_the_variance);
	suite_add_tcase(suite, tcase);
	tcase_set_timeout(coverage, 60);
	tcase_add_test(coverage, covers_the_truth_in_95_of_100);
	tcase_add_test(coverage, far_ends_are_hardly_ever_passed);
	suite_add_tcase(suite, coverage);
	return suite;
}
