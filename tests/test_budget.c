/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "injector/budget.h"
#include "tests/tests.h"

#include <math.h>

#define PERIOD_NS  (BUDGET_PERIOD_MS * 1000000ull)
#define SECONDS(n) ((n)*1000 / BUDGET_PERIOD_MS)

/* A program that allocates @calls blocks of @size bytes a second and frees them. */
struct load {
	double calls, size;
	double cpu; /* processors that it uses */
};

static struct budget budget;
static unsigned int changes; /* of the interval in the last run */

static void run(const struct load *load, unsigned int periods)
{
	uint64_t before = budget_interval(&budget);

	changes = 0;
	for (unsigned int i = 0; i < periods; i++) {
		double share = BUDGET_PERIOD_MS / 1000.0, interval = (double)before;
		double p = before == 1 ? 1 : -expm1(-(load->size + 1) / interval);
		struct budget_period period = {
			.wall_ns = PERIOD_NS,
			.cpu_ns = (uint64_t)(load->cpu * (double)PERIOD_NS),
			.events = (uint64_t)(2 * load->calls * p * share),
			.calls = (uint64_t)(load->calls * share),
		};
		uint64_t now = budget_step(&budget, &period);

		changes += now != before;
		before = now;
	}
}

static void setup(void)
{
	budget_init(&budget, 20);
}

START_TEST(quiet_program_is_recorded_exactly)
{
	const struct load quiet = {.calls = 3000, .size = 100, .cpu = 0.05};

	ck_assert_uint_eq(budget_interval(&budget), BUDGET_INTERVAL_FIRST);
	run(&quiet, SECONDS(10));
	ck_assert_uint_eq(budget_interval(&budget), 1);
	run(&quiet, SECONDS(60));
	ck_assert_uint_eq(changes, 0);
}
END_TEST

START_TEST(busy_program_is_sampled_within_the_budget)
{
	const struct load busy = {.calls = 1e6, .size = 100, .cpu = 1};

	run(&busy, SECONDS(60));
	ck_assert_uint_gt(budget_interval(&budget), 1);
	ck_assert_uint_le(budget_cost_permille(&budget), 20);
	run(&busy, SECONDS(600));
	ck_assert_uint_le(changes, 1);
}
END_TEST

START_TEST(rises_at_once_when_it_costs_too_much)
{
	const struct load quiet = {.calls = 3000, .size = 100, .cpu = 0.05};
	const struct load busy = {.calls = 2e6, .size = 300, .cpu = 1};

	run(&quiet, SECONDS(20));
	run(&busy, 1);
	ck_assert_uint_ge(budget_interval(&budget), 1 << 8);
	run(&busy, 3);
	ck_assert_uint_ge(budget_interval(&budget), 16 << 10);
}
END_TEST

/* Bursts every few seconds: it must not swing for ever. */
START_TEST(settles_under_a_load_that_comes_and_goes)
{
	const struct load quiet = {.calls = 100, .size = 100, .cpu = 0.05};
	const struct load busy = {.calls = 1e6, .size = 100, .cpu = 1};
	unsigned int late = 0;

	for (int i = 0; i < 200; i++) {
		run(&busy, SECONDS(3));
		late += i >= 100 ? changes : 0;
		run(&quiet, SECONDS(3));
		late += i >= 100 ? changes : 0;
	}
	ck_assert_uint_le(late, 12);
}
END_TEST

START_TEST(stays_within_its_bounds)
{
	const struct load extreme = {.calls = 1e9, .size = 1e6, .cpu = 64};
	const struct load none = {.calls = 0, .size = 0, .cpu = 0};

	budget_init(&budget, 1);
	run(&extreme, SECONDS(60));
	ck_assert_uint_le(budget_interval(&budget), BUDGET_INTERVAL_MAX);
	run(&none, SECONDS(3600));
	ck_assert_uint_eq(budget_interval(&budget), 1);
	ck_assert_uint_le(budget_cost_permille(&budget), 1000);
}
END_TEST

Suite *budget_suite(void)
{
	Suite *suite = suite_create("budget");
	TCase *tcase = tcase_create("interval");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, quiet_program_is_recorded_exactly);
	tcase_add_test(tcase, busy_program_is_sampled_within_the_budget);
	tcase_add_test(tcase, rises_at_once_when_it_costs_too_much);
	tcase_add_test(tcase, settles_under_a_load_that_comes_and_goes);
	tcase_add_test(tcase, stays_within_its_bounds);
	suite_add_tcase(suite, tcase);
	return suite;
}
