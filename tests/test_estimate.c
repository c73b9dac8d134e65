/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "resolver/estimate.h"
#include "tests/tests.h"

static void assert_interval(struct estimate got, uint64_t low, uint64_t high)
{
	ck_assert_uint_eq(got.low, low);
	ck_assert_uint_eq(got.high, high);
}

START_TEST(is_the_value_itself_where_all_was_seen)
{
	assert_interval(estimate_interval(0, 0, 0), 0, 0);
	assert_interval(estimate_interval(12345, 0, 0), 12345, 12345);
	assert_interval(estimate_interval(UINT64_MAX, 0, 512), UINT64_MAX, UINT64_MAX);
}
END_TEST

START_TEST(is_the_normal_one_for_many_samples)
{
	/* 100 samples of 1,000 each. */
	assert_interval(estimate_interval(100000, 100 * 1e6, 1000), 80400, 119600);
}
END_TEST

START_TEST(is_that_of_poisson_for_few_samples)
{
	/* Tables give 1.624 to 11.668 for 5, and 0.0253 to 5.572 for 1. */
	struct estimate five = estimate_interval(5000, 5 * 1e6, 1000);
	struct estimate one = estimate_interval(1000, 1e6, 1000);

	ck_assert_uint_ge(five.low, 1600);
	ck_assert_uint_le(five.low, 1640);
	ck_assert_uint_ge(five.high, 11620);
	ck_assert_uint_le(five.high, 11720);
	ck_assert_uint_le(one.low, 60);
	ck_assert_uint_ge(one.high, 5500);
	ck_assert_uint_le(one.high, 5640);
}
END_TEST

START_TEST(has_an_upper_end_where_nothing_was_seen)
{
	assert_interval(estimate_interval(0, 0, 1000), 0, 3689);
}
END_TEST

START_TEST(stays_in_range)
{
	assert_interval(estimate_interval(UINT64_MAX, 1e40, 1), 0, UINT64_MAX);
	ck_assert_uint_le(estimate_interval(1, 1e300, 1).low, 1);
}
END_TEST

Suite *estimate_suite(void)
{
	Suite *suite = suite_create("estimate");
	TCase *tcase = tcase_create("interval");

	tcase_add_test(tcase, is_the_value_itself_where_all_was_seen);
	tcase_add_test(tcase, is_the_normal_one_for_many_samples);
	tcase_add_test(tcase, is_that_of_poisson_for_few_samples);
	tcase_add_test(tcase, has_an_upper_end_where_nothing_was_seen);
	tcase_add_test(tcase, stays_in_range);
	suite_add_tcase(suite, tcase);
	return suite;
}
