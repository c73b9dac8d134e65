// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/human.h"

#include <string.h>

#include "tests/tests.h"

#define NS_PER_S 1000000000ull

START_TEST(bytes_have_three_digits)
{
	ck_assert_str_eq(human_bytes(0).text, "0 B");
	ck_assert_str_eq(human_bytes(1023).text, "1023 B");
	ck_assert_str_eq(human_bytes(1024).text, "1.00 KiB");
	ck_assert_str_eq(human_bytes(10240).text, "10.0 KiB");
	ck_assert_str_eq(human_bytes(1024 * 1000).text, "1000 KiB");
	ck_assert_str_eq(human_bytes(1024 * 1024 - 1).text, "1.00 MiB");
	ck_assert_str_eq(human_bytes(31ull << 20).text, "31.0 MiB");
	ck_assert_str_eq(human_bytes(UINT64_MAX).text, "16.0 EiB");
}
END_TEST

START_TEST(changes_have_a_sign)
{
	ck_assert_str_eq(human_signed_bytes(0).text, "+0 B");
	ck_assert_str_eq(human_signed_bytes(-512).text, "-512 B");
	ck_assert_str_eq(human_signed_bytes(31 << 20).text, "+31.0 MiB");
	ck_assert_str_eq(human_signed_bytes(INT64_MIN).text, "-8.00 EiB");
}
END_TEST

START_TEST(counts_are_grouped_then_rounded)
{
	ck_assert_str_eq(human_count(999).text, "999");
	ck_assert_str_eq(human_count(61204).text, "61,204");
	ck_assert_str_eq(human_count(1000007).text, "1,000,007");
	ck_assert_str_eq(human_count(84211003).text, "84.2 M");
	ck_assert_str_eq(human_count(12345678901).text, "12.3 G");
	ck_assert_str_eq(human_count(UINT64_MAX).text, "18.4 E");
	ck_assert_str_eq(human_counted(1, "block").text, "1 block");
	ck_assert_str_eq(human_counted(0, "block").text, "0 blocks");
	ck_assert_str_eq(human_counted(1000, "block").text, "1,000 blocks");
}
END_TEST

START_TEST(durations_have_two_units)
{
	ck_assert_str_eq(human_duration(0).text, "0.00 s");
	ck_assert_str_eq(human_duration(NS_PER_S / 4).text, "0.25 s");
	ck_assert_str_eq(human_duration(42 * NS_PER_S / 10).text, "4.2 s");
	ck_assert_str_eq(human_duration(42 * NS_PER_S).text, "42 s");
	ck_assert_str_eq(human_duration(602 * NS_PER_S).text, "10 min 2 s");
	ck_assert_str_eq(human_duration(600 * NS_PER_S).text, "10 min");
	ck_assert_str_eq(human_duration(7800 * NS_PER_S).text, "2 h 10 min");
	ck_assert_str_eq(human_duration(90000 * NS_PER_S).text, "1 day 1 h");
	ck_assert_str_eq(human_duration(180000 * NS_PER_S).text, "2 days 2 h");
}
END_TEST

START_TEST(short_times_choose_their_unit)
{
	ck_assert_str_eq(human_us(0).text, "0 us");
	ck_assert_str_eq(human_us(999).text, "999 us");
	ck_assert_str_eq(human_us(1250).text, "1.25 ms");
}
END_TEST

START_TEST(rates_are_per_minute_or_hour)
{
	ck_assert_str_eq(human_rate(1024 * 1024 / 60.0 * 3.1).text, "3.10 MiB/min");
	ck_assert_str_eq(human_rate(1024 / 60.0).text, "60.0 KiB/h");
	ck_assert_str_eq(human_rate(-5).text, "0 B/h");
	ck_assert_str_eq(human_rate(1e30).text, "16.0 EiB/min");
}
END_TEST

/* Both ends in the units of the farther one. */
START_TEST(ranges_of_rates_may_begin_below_nothing)
{
	const double mib = 1024 * 1024 / 60.0;

	ck_assert_str_eq(human_rate_range(2.8 * mib, 3.4 * mib).text, "2.80 to 3.40 MiB/min");
	ck_assert_str_eq(human_rate_range(0, 1024 / 60.0).text, "0 B to 60.0 KiB/h");
	ck_assert_str_eq(human_rate_range(-1.2 * mib, 1024 / 60.0).text,
			 "-1.20 MiB to +1.00 KiB/min");
	ck_assert_str_eq(human_rate_range(-1e30, 1e30).text, "-8.00 EiB to +8.00 EiB/min");
}
END_TEST

START_TEST(share_of_nothing_is_nothing)
{
	ck_assert_str_eq(human_share(1, 3).text, "33.3 %");
	ck_assert_str_eq(human_share(5, 0).text, "0.0 %");
}
END_TEST

START_TEST(times_are_utc)
{
	ck_assert_str_eq(human_time(0).text, "1970-01-01 00:00:00");
	ck_assert_str_eq(human_time(1796000000ll * (int64_t)NS_PER_S).text, "2026-11-30 00:53:20");
	ck_assert_str_eq(human_time(-(int64_t)NS_PER_S).text, "1969-12-31 23:59:59");
}
END_TEST

START_TEST(ranges_say_a_common_unit_once)
{
	ck_assert_str_eq(human_bytes_range(35546726, 38063308).text, "33.9 to 36.3 MiB");
	ck_assert_str_eq(human_bytes_range(0, 1536).text, "0 B to 1.50 KiB");
	ck_assert_str_eq(human_bytes_range(1048576, 1048577).text, "1.00 MiB");
	ck_assert_str_eq(human_bytes_range(0, UINT64_MAX).text, "0 B to 16.0 EiB");
	ck_assert_str_eq(human_count_range(70100, 73800).text, "70,100 to 73,800");
	ck_assert_str_eq(human_count_range(9999999, 10000000).text, "9,999,999 to 10.0 M");
	ck_assert_str_eq(human_count_range(7, 7).text, "7");
}
END_TEST

Suite *human_suite(void)
{
	Suite *suite = suite_create("human");
	TCase *tcase = tcase_create("human");

	tcase_add_test(tcase, bytes_have_three_digits);
	tcase_add_test(tcase, changes_have_a_sign);
	tcase_add_test(tcase, counts_are_grouped_then_rounded);
	tcase_add_test(tcase, durations_have_two_units);
	tcase_add_test(tcase, short_times_choose_their_unit);
	tcase_add_test(tcase, rates_are_per_minute_or_hour);
	tcase_add_test(tcase, ranges_of_rates_may_begin_below_nothing);
	tcase_add_test(tcase, share_of_nothing_is_nothing);
	tcase_add_test(tcase, times_are_utc);
	tcase_add_test(tcase, ranges_say_a_common_unit_once);
	suite_add_tcase(suite, tcase);
	return suite;
}
