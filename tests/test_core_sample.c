/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Whether estimates from samples are what they claim to be. Random numbers are
 * the same in each run, so that a test fails always or never.
 */
#include "payload/core/core.h"
#include "payload/core/sample.h"
#include "payload/core/sites.h"
#include "resolver/estimate.h"
#include "tests/core_stack.h"
#include "tests/core_world.h"
#include "tests/tests.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TEXT	 0x555500000000ull
#define CALL(n)	 (TEXT + 0x100 + (uint64_t)(n)*16)
#define START	 (TEXT + 0x40)
#define BLOCK(n) (0x7f0000000000ull + (uint64_t)(n)*16)
#define LINE	 3u
#define KIB	 1024ull
#define MIB	 (1024 * KIB)
#define SIGMAS	 6.0

static struct world world;
static struct fake_stack stack;
static uint64_t blocks; /* made so far */

static void world_make(uint64_t interval)
{
	static const struct world_row rows[] = {{0, HA_ESCAPE_END, NULL},
						{0x80, RULE(RULE_RSP, 24, 0), NULL}};

	world_init(&world, &(struct world_options){.interval = interval});
	world_add_rows(&world, TEXT, 0x100000, rows, 2);
	world_publish_modules(&world);
	fake_stack_init(&stack, 512);
	fake_stack_publish(&stack, &world);
	fake_stack_push(&stack, 16, START);
	blocks = 0;
}

static void world_unmake(void)
{
	fake_stack_deinit(&stack);
	world_deinit(&world);
}

static uint64_t alloc_by(uint64_t call, uint64_t size)
{
	uint64_t ptr = BLOCK(++blocks);

	stack.frame->ra = call;
	core_alloc(world.shm, stack.frame, ptr, size, LINE);
	return ptr;
}

static struct ha_sums sums_by(uint64_t call)
{
	for (uint32_t site = 1; site < world.shm->site_next; site++) {
		const struct ha_site *body = sites_get(world.shm, site);

		if (body && body->pc[0] == call)
			return world_site_sums(&world, site);
	}
	return (struct ha_sums){0};
}

static void assert_near(double got, double expected, double sigma)
{
	ck_assert_msg(fabs(got - expected) <= SIGMAS * sigma, "%g, not %g +- %g", got, expected,
		      sigma);
}

/* ---- draws ---- */

/*
 * Marsaglia and Marsaglia: Evaluating the Anderson-Darling distribution (2004),
 * without the correction for few values, which is below 0.003.
 */
static double anderson_darling_p(double z)
{
	if (z < 2)
		return exp(-1.2337141 / z) / sqrt(z) *
		       (2.00012 +
			(.247105 -
			 (.0649821 - (.0347962 - (.011672 - .00168691 * z) * z) * z) * z) *
				z);
	return exp(
		-exp(1.0776 -
		     (2.30695 - (.43424 - (.082433 - (.008056 - .0003146 * z) * z) * z) * z) * z));
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

START_TEST(draws_are_exponential)
{
	static const size_t counts[] = {10, 100, 1000, 10000};
	const double interval = 512 * KIB;
	size_t count = counts[_i];
	double *value = calloc(count, sizeof(*value)), sum = 0, p;
	uint64_t state = 1000 + (uint64_t)_i;

	for (size_t i = 0; i < count; i++)
		value[i] = 1 - exp(-((double)sample_draw(512 * KIB, world_random(&state)) + 0.5) /
				   interval);
	qsort(value, count, sizeof(*value), compare_doubles);
	for (size_t i = 0; i < count; i++)
		sum += (2 * (double)i + 1) * (log(value[i]) + log1p(-value[count - 1 - i]));
	p = anderson_darling_p(-(double)count - sum / (double)count);
	ck_assert_msg(p > 1e-4 && p < 1 - 1e-4, "p = %g", p);
	free(value);
}
END_TEST

START_TEST(draws_have_the_mean_that_was_asked_for)
{
	static const uint64_t intervals[] = {2,		100,	    4 * KIB,
					     512 * KIB, 1ull << 30, HA_INTERVAL_MAX};
	double interval = (double)intervals[_i], sum = 0;
	uint64_t state = 5;

	for (int i = 0; i < 1000; i++)
		sum += (double)sample_draw(intervals[_i], world_random(&state)) + 0.5;
	assert_near(sum / 1000, interval, interval / sqrt(1000));
}
END_TEST

START_TEST(draws_stay_in_range_for_extreme_numbers)
{
	static const uint64_t intervals[] = {0, 1, 2, 512 * KIB, HA_INTERVAL_MAX};
	static const uint64_t randoms[] = {0, 1, 2, INT64_MAX, UINT64_MAX - 1, UINT64_MAX};

	for (size_t i = 0; i < sizeof(intervals) / sizeof(intervals[0]); i++) {
		for (size_t k = 0; k < sizeof(randoms) / sizeof(randoms[0]); k++) {
			double most = 44.4 * (double)intervals[i];

			ck_assert(!((double)sample_draw(intervals[i], randoms[k]) > most));
		}
	}
	ck_assert_uint_eq(sample_draw(1, 0), 0);
	ck_assert_uint_eq(sample_draw(512 * KIB, UINT64_MAX), 0);
	ck_assert_uint_gt(sample_draw(512 * KIB, 0), 44 * 512 * KIB);
}
END_TEST

START_TEST(draws_of_two_sessions_on_one_line_differ)
{
	uint64_t first[8];

	world_make(512 * KIB);
	for (int i = 0; i < 8; i++) {
		alloc_by(CALL(0), MIB);
		first[i] = world.lines[LINE].left;
	}
	world_unmake();
	world_make(512 * KIB);
	world.shm->seed = 2;
	for (int i = 0; i < 8; i++) {
		alloc_by(CALL(0), MIB);
		ck_assert_uint_ne(world.lines[LINE].left, first[i]);
	}
	world_unmake();
}
END_TEST

START_TEST(threads_draw_independently)
{
	/* So far apart that no two are the same by chance. */
	world_make(HA_INTERVAL_MAX);
	for (uint64_t i = 0; i < 64; i++)
		core_alloc(world.shm, stack.frame, BLOCK(i), 16, i);
	for (int i = 0; i < 64; i++)
		for (int k = 0; k < i; k++)
			ck_assert_uint_ne(world.lines[i].left, world.lines[k].left);
	world_unmake();
}
END_TEST

/* ---- weights ---- */

START_TEST(weights_are_the_inverse_of_the_probability)
{
	static const uint64_t sizes[] = {0,	   1,	     8,	       198,	  1024,
					 1152,	   3712,     1u << 16, 300000,	  524286,
					 524287,   524288,   600000,   1u << 20,  3u << 20,
					 1u << 25, 50 * MIB, 1u << 30, 1ull << 39};
	const double interval = 512 * KIB;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		double size = (double)sizes[i], bytes = 0, count = 0;
		double inverse = -1 / expm1(-(size + 1) / interval);
		uint64_t state = sizes[i];
		const int times = 20000;

		for (int k = 0; k < times; k++) {
			uint8_t mark = sample_mark(512 * KIB, 9, sizes[i], world_random(&state));
			struct sample_weight weight = sample_weigh(512 * KIB, sizes[i], mark);

			ck_assert_uint_eq(HA_MARK_RATE(mark), 9);
			ck_assert_uint_ge(weight.bytes, sizes[i]);
			ck_assert_uint_ge(weight.count, 1);
			bytes += (double)weight.bytes;
			count += (double)weight.count;
		}
		/* Rounding has a deviation of at most 1/2; fixed point is good to 2e-7. */
		assert_near(count / times, inverse, 0.5 / sqrt(times) + inverse * 2e-7);
		assert_near(bytes / times, size * inverse,
			    0.5 / sqrt(times) + size * inverse * 2e-7);
	}
}
END_TEST

START_TEST(weights_are_right_for_each_interval)
{
	for (uint64_t interval = 2; interval <= HA_INTERVAL_MAX; interval *= 2) {
		for (uint64_t need = 1; need <= 64 * interval && need < HA_VALUE_SIZE_MAX;
		     need = need * 3 / 2 + 1) {
			double exact = -1 / expm1(-(double)need / (double)interval);
			struct sample_weight low = sample_weigh(interval, need - 1, 1);
			struct sample_weight high = sample_weigh(
				interval, need - 1, 1 | HA_MARK_COUNT_UP | HA_MARK_BYTES_UP);
			double error = exact * 3e-7;

			ck_assert_msg((double)low.count <= exact + error &&
					      (double)high.count >= exact - error,
				      "%lu of %lu: %lu, not %g", need, interval, low.count, exact);
			ck_assert_uint_eq(high.count, low.count + 1);
			ck_assert_uint_eq(high.bytes, low.bytes + 1);
		}
	}
}
END_TEST

/* Also where nearly every block is a sample, and rounding up is rare. */
START_TEST(variances_are_those_of_the_estimates)
{
	static const uint64_t sizes[] = {0, 10, 99, 300, 640, 800};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		double p = -expm1(-(double)(sizes[i] + 1) / 100), size = (double)sizes[i];
		struct sample_weight weight = sample_weigh(100, sizes[i], 1);
		double inverse = 1 / p, up = inverse - floor(inverse);
		/* E[w^2] - E[w] for each sample; p times that is the variance of one block. */
		double count = inverse * inverse + up * (1 - up) - inverse;
		double bytes = size * size * inverse * (inverse - 1);

		ck_assert_double_eq_tol(
			ldexp((double)weight.count_variance, -(int)HA_VARIANCE_BITS), count,
			1e-4 + count * 1e-5);
		ck_assert_double_eq_tol(
			ldexp((double)weight.bytes_variance, -(int)HA_VARIANCE_BITS), bytes,
			0.26 + bytes * 1e-5);
	}
}
END_TEST

/* ---- which calls are samples ---- */

START_TEST(samples_are_binomial_for_each_size)
{
	const double interval = 512 * KIB, small = 8 * KIB, large = MIB - 13;
	const int rounds = 3000;
	double p_small = -expm1(-(small + 1) / interval), p_large = -expm1(-(large + 1) / interval);
	uint64_t small_count = 0, large_count = 0;
	struct stripe stripe;
	uint8_t mark;

	world_make(512 * KIB);
	stripe = stripe_of(world.shm, LINE);
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < 129; k++)
			small_count += sample_take(world.shm, stripe, (uint64_t)small, &mark);
		large_count += sample_take(world.shm, stripe, (uint64_t)large, &mark);
	}
	assert_near((double)small_count, 129.0 * rounds * p_small,
		    sqrt(129.0 * rounds * p_small * (1 - p_small)));
	assert_near((double)large_count, rounds * p_large, sqrt(rounds * p_large * (1 - p_large)));
	world_unmake();
}
END_TEST

START_TEST(shared_lines_sample_as_often)
{
	const double p = -expm1(-1001.0 / 4096);
	const int calls = 100000;
	uint64_t count = 0;
	uint8_t mark;

	world_make(4096);
	for (int i = 0; i < calls; i++)
		count += sample_take(world.shm, stripe_of(world.shm, HA_LINES + 1), 1000, &mark);
	assert_near((double)count, calls * p, sqrt(calls * p * (1 - p)));
	world_unmake();
}
END_TEST

/* A thread's first calls must not be samples more often than others. */
START_TEST(first_call_of_a_line_is_a_sample_as_often_as_others)
{
	const double p = -expm1(-1001.0 / 4096);
	const int sessions = 20000;
	uint64_t count = 0;
	uint8_t mark;

	world_make(4096);
	for (int i = 0; i < sessions; i++) {
		world.shm->session++;
		count += sample_take(world.shm, stripe_of(world.shm, LINE), 1000, &mark);
	}
	assert_near((double)count, sessions * p, sqrt(sessions * p * (1 - p)));
	world_unmake();
}
END_TEST

/* As the injector asks for it when the interval has fallen: neither late nor too often. */
START_TEST(countdown_is_drawn_anew)
{
	const double p = -expm1(-1001.0 / 4096);
	const int rounds = 20000;
	struct ha_line *line = &world.lines[LINE];
	uint64_t count = 0;
	uint8_t mark;

	world_make(HA_INTERVAL_MAX);
	world_set_interval(&world, 2, 4096);
	for (int i = 0; i < rounds; i++) {
		world.shm->rate = 1;
		world.shm->session++;
		ck_assert(!sample_take(world.shm, stripe_of(world.shm, LINE), 1000, &mark));
		world.shm->rate = 2;
		((uint8_t *)&line->left)[7] = HA_LEFT_ANEW;
		count += sample_take(world.shm, stripe_of(world.shm, LINE), 1000, &mark);
		ck_assert_uint_eq(line->rate, 2);
		ck_assert(!HA_LEFT_IS_ANEW(line->left));
	}
	assert_near((double)count, rounds * p, sqrt(rounds * p * (1 - p)));
	world_unmake();
}
END_TEST

/* What a stub does, and then core. */
static void call_by_stub(uint64_t size, uint64_t ptr)
{
	struct ha_line *line = &world.lines[LINE];

	if (line->session == world.shm->session && line->left > size)
		line->left -= size + 1;
	else
		core_alloc(world.shm, stack.frame, ptr, size, LINE);
}

/* A countdown that was too short for them must not go on. */
START_TEST(calls_that_fail_do_not_make_samples_of_others)
{
	const double p = -expm1(-101.0 / 65536);
	const int rounds = 200000;

	world_make(65536);
	stack.frame->ra = CALL(0);
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < 4; k++)
			call_by_stub(8192, 0);
		call_by_stub(100, BLOCK(i));
	}
	assert_near((double)sums_by(CALL(0)).alloc_count * p, rounds * p, sqrt(rounds * p));
	world_unmake();
}
END_TEST

START_TEST(countdown_below_zero_ends_in_a_sample)
{
	uint8_t mark;

	world_make(512 * KIB);
	sample_take(world.shm, stripe_of(world.shm, LINE), 0, &mark);
	world.lines[LINE].left = (uint64_t)-5;
	ck_assert(sample_take(world.shm, stripe_of(world.shm, LINE), 0, &mark));
	ck_assert_int_ge((int64_t)world.lines[LINE].left, 0);
	world_unmake();
}
END_TEST

/* ---- sums ---- */

START_TEST(interval_of_1_is_exact)
{
	world_make(1);
	world_set_interval(&world, HA_RATE_EXACT, 1);
	for (int i = 0; i < 80000; i++)
		alloc_by(CALL(0), 0);
	for (int i = 0; i < 1000; i++)
		alloc_by(CALL(1), 77);
	ck_assert_uint_eq(sums_by(CALL(0)).alloc_count, 80000);
	ck_assert_uint_eq(sums_by(CALL(0)).alloc_bytes, 0);
	ck_assert_uint_eq(sums_by(CALL(1)).alloc_count, 1000);
	ck_assert_uint_eq(sums_by(CALL(1)).alloc_bytes, 77000);
	ck_assert(world_alloc_variance(&world, 1) == 0);
	world_unmake();
}
END_TEST

/* Sum the samples, then correct the sum: that is wrong here by a factor. */
START_TEST(two_sizes_on_one_stack_keep_their_weights)
{
	const uint64_t small = 4u << 20, large = 16;
	double bytes = (double)small * 16 + (double)large * 4 * MIB;
	struct ha_sums sums;

	world_make(64 * KIB);
	for (uint64_t i = 0; i < small; i++)
		alloc_by(CALL(0), 16);
	for (uint64_t i = 0; i < large; i++)
		alloc_by(CALL(0), 4 * MIB);
	sums = sums_by(CALL(0));
	assert_near((double)sums.alloc_count, (double)(small + large),
		    sqrt((double)small) * sqrt(64 * KIB / 17.0));
	assert_near((double)sums.alloc_bytes, bytes, sqrt((double)small * 16 * 64 * KIB));
	world_unmake();
}
END_TEST

START_TEST(interval_may_change_while_blocks_are_in_use)
{
	static const uint64_t intervals[] = {4 * KIB, 64 * KIB, 1, 16 * KIB, 256 * KIB, 2 * KIB};
	const uint64_t times = 60000, size = 500;
	uint64_t *ptr = calloc(6 * times, sizeof(*ptr));
	struct ha_sums sums;

	world_make(4 * KIB);
	for (uint64_t i = 0; i < 6 * times; i++) {
		if (i % times == 0)
			world_set_interval(&world,
					   intervals[i / times] == 1 ? HA_RATE_EXACT
								     : 1 + (uint32_t)(i / times),
					   intervals[i / times]);
		ptr[i] = alloc_by(CALL(0), size);
	}
	sums = sums_by(CALL(0));
	assert_near((double)sums.alloc_bytes, 6.0 * times * size,
		    sqrt(world_alloc_variance(&world, 1)));
	ck_assert_double_le(6 * sqrt(world_alloc_variance(&world, 1)), 0.2 * 6 * times * size);
	for (uint64_t i = 0; i < 6 * times; i++)
		core_free(world.shm, ptr[i], LINE);
	sums = sums_by(CALL(0));
	ck_assert_uint_eq(sums.freed_bytes, sums.alloc_bytes);
	ck_assert_uint_eq(sums.freed_count, sums.alloc_count);
	ck_assert(world_inuse_variance(&world, 1) == 0);
	world_unmake();
	free(ptr);
}
END_TEST

/* All is recorded at first, without the filter; then memory runs short. */
START_TEST(exact_session_may_turn_to_samples)
{
	const uint64_t times = 60000, size = 500;
	uint64_t *ptr = calloc(2 * times, sizeof(*ptr));
	struct ha_sums sums;

	world_make(0);
	for (uint64_t i = 0; i < times; i++)
		ptr[i] = alloc_by(CALL(0), size);
	core_free(world.shm, BLOCK(5 * times), LINE);
	ck_assert_uint_eq(world_counters(&world).unknown_frees, 1);
	ck_assert_uint_eq(sums_by(CALL(0)).alloc_bytes, times * size);
	world_set_interval(&world, 1, 4 * KIB);
	for (uint64_t i = times; i < 2 * times; i++)
		ptr[i] = alloc_by(CALL(0), size);
	sums = sums_by(CALL(0));
	assert_near((double)sums.alloc_bytes, 2.0 * times * size,
		    sqrt(world_alloc_variance(&world, 1)));
	ck_assert_double_le(6 * sqrt(world_alloc_variance(&world, 1)), 0.1 * times * size);
	for (uint64_t i = 0; i < 2 * times; i++)
		core_free(world.shm, ptr[i], LINE);
	sums = sums_by(CALL(0));
	ck_assert_uint_eq(sums.freed_bytes, sums.alloc_bytes);
	ck_assert_uint_eq(sums.freed_count, sums.alloc_count);
	/* Blocks that were no samples do not look like ones from before the attach. */
	ck_assert_uint_eq(world_counters(&world).unknown_frees, 1);
	world_unmake();
	free(ptr);
}
END_TEST

/* What a sample that finds no room would have stood for is what is counted. */
START_TEST(blocks_without_room_are_counted_with_their_weight)
{
	const uint64_t times = 400000, size = 100;
	struct ha_stripe counters;
	struct ha_sums sums;

	world_init(&world, &(struct world_options){.interval = 1000, .buckets = 64});
	fake_stack_init(&stack, 512);
	fake_stack_publish(&stack, &world);
	fake_stack_push(&stack, 16, START);
	blocks = 0;
	for (uint64_t i = 0; i < times; i++)
		alloc_by(CALL(0), size);
	counters = world_counters(&world);
	sums = world_sums(&world);
	ck_assert_uint_gt(counters.untracked, 0);
	/* Half of the time there is one sample in ten blocks: 190 a sigma. */
	assert_near((double)(counters.untracked + sums.alloc_count), (double)times, 2000);
	assert_near((double)(counters.untracked_bytes + sums.alloc_bytes), (double)(times * size),
		    2000 * size);
	world_unmake();
}
END_TEST

/* One run: what was estimated, how wide the interval is, and whether it is right. */
static bool run_is_covered(uint64_t call, uint64_t times, uint64_t *state)
{
	const struct estimate_sampling sampling = {16 * KIB, 16 * KIB, 0, estimate_surety_95};
	uint64_t truth = 0;
	struct ha_sums sums;
	struct estimate_figures inuse;
	struct estimate interval;

	for (uint64_t i = 0; i < times; i++) {
		uint64_t size = 16 + world_random(state) % 2000;
		uint64_t ptr = alloc_by(call, size);

		if (i % 4 == 0)
			core_free(world.shm, ptr, LINE);
		else
			truth += size;
	}
	sums = world_site_sums(&world, 1);
	inuse = (struct estimate_figures){
		sums.alloc_bytes - sums.freed_bytes, sums.alloc_count - sums.freed_count,
		world_inuse_variance(&world, 1), world_inuse_count_variance(&world, 1)};
	interval = estimate_bytes(&inuse, &sampling);
	return interval.low <= truth && truth <= interval.high;
}

/* All of a world's tables would be too much to make anew for each run. */
static void sums_forget(void)
{
	char *base = (char *)world.shm;

	memset(base + world.shm->region[HA_REGION_STRIPES].offset + LINE * world.shm->stripe_size +
		       sizeof(struct ha_stripe),
	       0, 16 * sizeof(struct ha_sums));
	memset(base + world.shm->region[HA_REGION_VARIANCES].offset +
		       LINE * world.shm->site_capacity * sizeof(struct ha_variances),
	       0, 16 * sizeof(struct ha_variances));
}

static unsigned int covered_of_1000(uint64_t times)
{
	unsigned int covered = 0;
	uint64_t state = 77;

	world_make(16 * KIB);
	for (int run = 0; run < 1000; run++) {
		covered += run_is_covered(CALL(0), times, &state);
		sums_forget();
	}
	world_unmake();
	return covered;
}

START_TEST(intervals_cover_the_truth_in_95_of_100)
{
	/* Some 90 samples a run. */
	unsigned int covered = covered_of_1000(2000);

	ck_assert_msg(covered >= 930 && covered <= 970, "%u of 1000", covered);
}
END_TEST

/* Poisson's intervals are exact or wider. */
START_TEST(intervals_of_few_samples_are_not_too_narrow)
{
	ck_assert_uint_ge(covered_of_1000(40), 930);
	ck_assert_uint_ge(covered_of_1000(200), 930);
}
END_TEST

/* ---- blocks and the filter ---- */

static void assert_filter_empty(void)
{
	for (uint32_t i = 0; i < HA_FILTER_SIZE; i++)
		ck_assert_uint_eq(world.filter[i], 0);
}

static bool is_filtered(uint64_t ptr)
{
	return !world.filter[HA_FILTER_HASH(ptr)];
}

START_TEST(filter_knows_each_block_in_the_table)
{
	uint64_t bytes;

	world_make(KIB);
	for (int i = 0; i < 100; i++) {
		uint64_t before = world_live_cells(&world, &bytes);
		uint64_t ptr = alloc_by(CALL(0), 200);

		if (world_live_cells(&world, &bytes) > before)
			ck_assert(!is_filtered(ptr));
	}
	for (uint64_t i = 1; i <= blocks; i++)
		core_free(world.shm, BLOCK(i), LINE);
	assert_filter_empty();
	ck_assert_uint_eq(world_live_cells(&world, &bytes), 0);
	ck_assert_uint_eq(world_counters(&world).unknown_frees, 0);
	world_unmake();
}
END_TEST

START_TEST(full_filter_byte_stays_full)
{
	world_make(1);
	world_set_interval(&world, HA_RATE_EXACT, 1);
	world.filter[HA_FILTER_HASH(BLOCK(1))] = 254;
	alloc_by(CALL(0), 10);
	ck_assert_uint_eq(world.filter[HA_FILTER_HASH(BLOCK(1))], 255);
	core_free(world.shm, BLOCK(1), LINE);
	ck_assert_uint_eq(world.filter[HA_FILTER_HASH(BLOCK(1))], 255);
	world_unmake();
}
END_TEST

/* Strides that programs have. The hash is one of the lower 32 bits. */
START_TEST(filter_spreads_addresses_evenly)
{
	static const uint64_t strides[] = {16, 48, 64, 4096, 65536, 1u << 21};
	static unsigned int hits[HA_FILTER_SIZE];
	const uint64_t told_apart = (1ull << 32) / strides[_i], wanted = 8 * HA_FILTER_SIZE;
	const uint64_t keys = told_apart < wanted ? told_apart : wanted;
	const uint64_t average = (keys + HA_FILTER_SIZE - 1) / HA_FILTER_SIZE;
	unsigned int most = 0;

	memset(hits, 0, sizeof(hits));
	for (uint64_t i = 0; i < keys; i++)
		hits[HA_FILTER_HASH(BLOCK(0) + i * strides[_i])]++;
	for (uint32_t i = 0; i < HA_FILTER_SIZE; i++)
		most = hits[i] > most ? hits[i] : most;
	/* A good hash of regular keys is even more regular than a random one. */
	ck_assert_uint_le(most, 5 * average);
}
END_TEST

START_TEST(failing_realloc_changes_nothing)
{
	uint64_t ptr = 0, bytes, token;
	struct ha_sums before, after;

	world_make(64);
	while (!world_live_cells(&world, &bytes))
		ptr = alloc_by(CALL(0), 100);
	before = sums_by(CALL(0));
	token = core_realloc_begin(world.shm, ptr, LINE);
	core_realloc_end(world.shm, stack.frame, token, 0, 1ull << 60, LINE);
	after = sums_by(CALL(0));
	ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_assert_uint_eq(world_live_cells(&world, &bytes), 1);
	core_free(world.shm, ptr, LINE);
	ck_assert_uint_eq(world_live_cells(&world, &bytes), 0);
	assert_filter_empty();
	world_unmake();
}
END_TEST

/* grow, shrink, the same, moved or not: in use is what the last sizes say, on average. */
START_TEST(reallocated_blocks_are_estimated_by_their_last_size)
{
	const int count = 4000;
	double truth = 0;
	uint64_t state = 3, bytes;
	struct ha_sums sums;

	world_make(4 * KIB);
	for (int i = 0; i < count; i++) {
		uint64_t ptr = alloc_by(CALL(0), 16 + world_random(&state) % 1000), size = 0;

		for (int k = 0; k < 3; k++) {
			uint64_t token = core_realloc_begin(world.shm, ptr, LINE);

			size = 16 + world_random(&state) % 3000;
			if (world_random(&state) & 1)
				ptr = BLOCK(++blocks);
			core_realloc_end(world.shm, stack.frame, token, ptr, size, LINE);
		}
		truth += (double)size;
	}
	sums = sums_by(CALL(0));
	assert_near((double)(sums.alloc_bytes - sums.freed_bytes), truth,
		    sqrt(world_inuse_variance(&world, 1)));
	ck_assert_uint_eq(world_counters(&world).adopted, 0);
	for (uint64_t i = 1; i <= blocks; i++)
		core_free(world.shm, BLOCK(i), LINE);
	ck_assert_uint_eq(world_live_cells(&world, &bytes), 0);
	assert_filter_empty();
	world_unmake();
}
END_TEST

/* ---- threads ---- */

#define THREADS 4u
#define ROUNDS	200000u
#define SHELF	64u

static uint64_t next_block, shelf[SHELF];

static uint64_t block_size(uint64_t ptr)
{
	return 16 + (ptr >> 4) % 500;
}

/* Blocks go from hand to hand over a shelf: who frees one has rarely made it. */
static void *pass_blocks(void *arg)
{
	uint64_t line = *(const uint64_t *)arg, state = line;
	struct fake_stack own;

	fake_stack_init(&own, 64);
	fake_stack_push(&own, 16, START);
	own.frame->ra = CALL(0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t ptr = BLOCK(__atomic_add_fetch(&next_block, 1, __ATOMIC_RELAXED)), old;

		core_alloc(world.shm, own.frame, ptr, block_size(ptr), line);
		old = __atomic_exchange_n(&shelf[world_random(&state) % SHELF], ptr,
					  __ATOMIC_ACQ_REL);
		if (old && !is_filtered(old))
			core_free(world.shm, old, line);
	}
	fake_stack_deinit(&own);
	return NULL;
}

START_TEST(missed_free_counts_for_all_that_a_sample_stands_for)
{
	const uint64_t times = 100000;
	struct ha_sums sums;

	world_make(2 * KIB);
	stack.frame->ra = CALL(0);
	for (uint64_t i = 0; i < times; i++)
		core_alloc(world.shm, stack.frame, BLOCK(1), 100, LINE);
	sums = sums_by(CALL(0));
	ck_assert_uint_eq(sums.missed_frees, sums.freed_count);
	ck_assert_uint_eq(world_counters(&world).missed_frees, sums.freed_count);
	assert_near((double)sums.missed_frees, (double)times, sqrt((double)times * 2 * KIB / 101));
	world_unmake();
}
END_TEST

START_TEST(blocks_that_change_hands_leave_nothing_behind)
{
	/* Two threads have lines, two share one. */
	static const uint64_t lines[THREADS] = {0, 1, HA_LINES, HA_LINES};
	pthread_t thread[THREADS];
	uint64_t bytes;
	struct ha_sums sums;

	world_make(_i ? 2 * KIB : 1);
	if (!_i)
		world_set_interval(&world, HA_RATE_EXACT, 1);
	memset(shelf, 0, sizeof(shelf));
	next_block = 0;
	for (uint32_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, pass_blocks, (void *)&lines[i]),
				 0);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (uint32_t i = 0; i < SHELF; i++)
		core_free(world.shm, shelf[i], LINE);
	sums = sums_by(CALL(0));
	ck_assert_uint_eq(sums.freed_bytes, sums.alloc_bytes);
	ck_assert_uint_eq(sums.freed_count, sums.alloc_count);
	ck_assert(world_inuse_variance(&world, 1) == 0);
	ck_assert_uint_eq(world_live_cells(&world, &bytes), 0);
	ck_assert_uint_eq(world_counters(&world).missed_frees, 0);
	assert_filter_empty();
	if (!_i)
		ck_assert_uint_eq(sums.alloc_count, THREADS * ROUNDS);
	else
		assert_near((double)sums.alloc_count, THREADS * ROUNDS, 8000);
	world_unmake();
}
END_TEST

Suite *core_sample_suite(void)
{
	Suite *suite = suite_create("core_sample");
	TCase *draws = tcase_create("draws"), *weights = tcase_create("weights");
	TCase *sums = tcase_create("sums"), *table = tcase_create("table");

	tcase_add_loop_test(draws, draws_are_exponential, 0, 4);
	tcase_add_loop_test(draws, draws_have_the_mean_that_was_asked_for, 0, 6);
	tcase_add_test(draws, draws_stay_in_range_for_extreme_numbers);
	tcase_add_test(draws, draws_of_two_sessions_on_one_line_differ);
	tcase_add_test(draws, threads_draw_independently);
	suite_add_tcase(suite, draws);
	tcase_add_test(weights, weights_are_the_inverse_of_the_probability);
	tcase_add_test(weights, weights_are_right_for_each_interval);
	tcase_add_test(weights, variances_are_those_of_the_estimates);
	tcase_add_test(weights, samples_are_binomial_for_each_size);
	tcase_add_test(weights, shared_lines_sample_as_often);
	tcase_add_test(weights, first_call_of_a_line_is_a_sample_as_often_as_others);
	tcase_add_test(weights, countdown_below_zero_ends_in_a_sample);
	tcase_add_test(weights, countdown_is_drawn_anew);
	tcase_add_test(weights, calls_that_fail_do_not_make_samples_of_others);
	suite_add_tcase(suite, weights);
	tcase_set_timeout(sums, 60);
	tcase_set_timeout(draws, 60);
	tcase_set_timeout(weights, 60);
	tcase_add_test(sums, interval_of_1_is_exact);
	tcase_add_test(sums, two_sizes_on_one_stack_keep_their_weights);
	tcase_add_test(sums, interval_may_change_while_blocks_are_in_use);
	tcase_add_test(sums, exact_session_may_turn_to_samples);
	tcase_add_test(sums, blocks_without_room_are_counted_with_their_weight);
	tcase_add_test(sums, intervals_cover_the_truth_in_95_of_100);
	tcase_add_test(sums, intervals_of_few_samples_are_not_too_narrow);
	suite_add_tcase(suite, sums);
	tcase_set_timeout(table, 60);
	tcase_add_test(table, filter_knows_each_block_in_the_table);
	tcase_add_test(table, full_filter_byte_stays_full);
	tcase_add_loop_test(table, filter_spreads_addresses_evenly, 0, 6);
	tcase_add_test(table, failing_realloc_changes_nothing);
	tcase_add_test(table, reallocated_blocks_are_estimated_by_their_last_size);
	tcase_add_test(table, missed_free_counts_for_all_that_a_sample_stands_for);
	tcase_add_loop_test(table, blocks_that_change_hands_leave_nothing_behind, 0, 2);
	suite_add_tcase(suite, table);
	return suite;
}
