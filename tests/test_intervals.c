// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/intervals.h"

#include "tests/tests.h"

#include <stdlib.h>

static struct intervals intervals;

static void set_up(void)
{
	intervals = (struct intervals){0};
}

static void tear_down(void)
{
	intervals_deinit(&intervals);
}

static void add(uint64_t low, uint64_t high, uint32_t value)
{
	assert_ok(intervals_add(&intervals, low, high, value));
}

static int find(uint64_t address)
{
	const struct interval *interval = intervals_find(&intervals, address);

	return interval ? (int)interval->value : -1;
}

START_TEST(finds_nothing_in_the_empty_set)
{
	intervals_seal(&intervals);
	ck_assert_int_eq(find(0), -1);
	ck_assert_int_eq(find(UINT64_MAX), -1);
}
END_TEST

START_TEST(includes_the_low_end_and_excludes_the_high_end)
{
	add(10, 20, 1);
	intervals_seal(&intervals);
	ck_assert_int_eq(find(9), -1);
	ck_assert_int_eq(find(10), 1);
	ck_assert_int_eq(find(19), 1);
	ck_assert_int_eq(find(20), -1);
}
END_TEST

START_TEST(leaves_empty_ranges_out)
{
	add(10, 10, 1);
	add(20, 10, 2);
	ck_assert_uint_eq(intervals.count, 0);
}
END_TEST

START_TEST(finds_the_innermost_and_goes_outwards)
{
	const struct interval *found;

	add(0, 100, 1);
	add(40, 60, 2);
	add(50, 55, 3);
	intervals_seal(&intervals);
	ck_assert_int_eq(find(57), 2);
	ck_assert_int_eq(find(70), 1);
	found = intervals_find(&intervals, 52);
	ck_assert_uint_eq(found->value, 3);
	found = intervals_next(&intervals, found, 52);
	ck_assert_uint_eq(found->value, 2);
	found = intervals_next(&intervals, found, 52);
	ck_assert_uint_eq(found->value, 1);
	ck_assert_ptr_null(intervals_next(&intervals, found, 52));
}
END_TEST

START_TEST(prefers_the_first_added_of_equal_ranges)
{
	add(10, 20, 1);
	add(10, 20, 2);
	intervals_seal(&intervals);
	ck_assert_int_eq(find(15), 1);
}
END_TEST

/* The rule of the header, word by word. */
static int find_slowly(const struct interval *all, size_t count, uint64_t address)
{
	const struct interval *best = NULL;

	for (size_t i = 0; i < count; i++) {
		const struct interval *one = &all[i];

		if (address < one->low || address >= one->high)
			continue;
		if (!best || one->low > best->low ||
		    (one->low == best->low && one->high < best->high))
			best = one;
	}
	return best ? (int)best->value : -1;
}

START_TEST(agrees_with_a_search_of_all)
{
	struct interval all[200];

	srandom((unsigned int)_i);
	for (uint32_t i = 0; i < 200; i++) {
		uint64_t low = (uint64_t)random() % 1000;
		uint64_t high = low + 1 + (uint64_t)random() % (_i % 2 ? 30 : 600);

		all[i] = (struct interval){.low = low, .high = high, .value = i};
		add(low, high, i);
	}
	intervals_seal(&intervals);
	for (uint64_t address = 0; address < 1700; address++)
		ck_assert_int_eq(find(address), find_slowly(all, 200, address));
}
END_TEST

Suite *intervals_suite(void)
{
	Suite *suite = suite_create("intervals");
	TCase *tcase = tcase_create("ranges");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, finds_nothing_in_the_empty_set);
	tcase_add_test(tcase, includes_the_low_end_and_excludes_the_high_end);
	tcase_add_test(tcase, leaves_empty_ranges_out);
	tcase_add_test(tcase, finds_the_innermost_and_goes_outwards);
	tcase_add_test(tcase, prefers_the_first_added_of_equal_ranges);
	tcase_add_loop_test(tcase, agrees_with_a_search_of_all, 0, 20);
	suite_add_tcase(suite, tcase);
	return suite;
}
