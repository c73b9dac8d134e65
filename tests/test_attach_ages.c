/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sizes, lives and ages of a target's blocks, and the peak: what it did is known,
 * and how long at least each of its waits took.
 */
#include "resolver/cleanup.h"
#include "tests/e2e.h"

#include <signal.h>
#include <string.h>

/* The target waits for 400 ms; bins of time end at 320 and 640 ms, ticks are 10 ms. */
#define WAITED_S  0.16
#define AT_ONCE_S 0.01

static struct folder folder;
static struct child target;
static struct run run;

static void setup(void)
{
	folder_create(&folder);
}

static void teardown(void)
{
	run_deinit(&run);
	child_end(&target);
	folder_remove(&folder);
}

static struct json *lives_recorded(const char *options)
{
	child_start_target(&target, &folder, "lives");
	run_start(&run, &folder, "-p %d %s -q -o %s", target.pid, options,
		  folder_file(&folder, "out.hap"));
	run_wait_attached(&run, target.pid);
	child_expect(&target, "go", "ok");
	wait_ms(500);
	ck_assert_int_eq(kill(run.child.pid, SIGINT), 0);
	run_finish(&run, 120);
	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	return run_report_json(&folder, folder_file(&folder, "out.hap"));
}

static const struct json *site_of(const struct json *report, const char *function)
{
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);

	for (size_t i = 0; i < sites->count; i++) {
		const struct json *frames = json_get(&sites->item[i], "frames", JSON_ARRAY);

		for (size_t k = 0; k < frames->count; k++)
			if (!strcmp(json_text(&frames->item[k], "function"), function))
				return &sites->item[i];
	}
	ck_abort_msg("no site in %s", function);
}

/* Blocks in the bins of @name that begin at @from or behind it. */
static uint64_t count_from(const struct json *site, const char *name, const char *unit, double from)
{
	const struct json *bins = json_get(site, name, JSON_ARRAY);
	uint64_t count = 0;

	for (size_t i = 0; i < bins->count; i++)
		if (json_number(&bins->item[i], unit) >= from)
			count += json_count(&bins->item[i], "count");
	return count;
}

static void expect_size(const struct json *site, double from, uint64_t count)
{
	const struct json *sizes = json_get(site, "sizes", JSON_ARRAY);

	ck_assert_uint_eq(sizes->count, 1);
	ck_assert_double_eq(json_number(&sizes->item[0], "from_bytes"), from);
	ck_assert_double_eq(json_number(&sizes->item[0], "below_bytes"), 2 * from);
	ck_assert_uint_eq(json_count(&sizes->item[0], "count"), count);
}

START_TEST(sizes_and_lives_are_known)
{
	CLEANUP(json_freep) struct json *report = lives_recorded("--exact");
	const struct json *at_once = site_of(report, "free_at_once");
	const struct json *later = site_of(report, "free_later");

	expect_size(at_once, 32, 10000);
	expect_size(later, 2048, 1000);
	expect_size(site_of(report, "keep_old"), 64, 1000);
	expect_size(site_of(report, "keep_young"), 512, 500);
	ck_assert_uint_eq(count_from(at_once, "lifetimes", "from_s", 0), 10000);
	ck_assert_uint_le(count_from(at_once, "lifetimes", "from_s", AT_ONCE_S), 1000);
	ck_assert_uint_eq(count_from(later, "lifetimes", "from_s", 0), 1000);
	ck_assert_uint_eq(count_from(later, "lifetimes", "from_s", WAITED_S), 1000);
	ck_assert_uint_eq(json_count(at_once, "temporary_count"), 10000);
	ck_assert_uint_le(json_count(later, "temporary_count"), 1);
	ck_assert_uint_eq(json_get(later, "ages", JSON_ARRAY)->count, 0);
}
END_TEST

START_TEST(ages_of_what_is_left_are_known)
{
	CLEANUP(json_freep) struct json *report = lives_recorded(_i ? "--interval 100" : "--exact");
	const struct json *old = site_of(report, "keep_old"),
			  *young = site_of(report, "keep_young");
	uint64_t all = json_count(old, "inuse_count");

	ck_assert_uint_ge(count_from(old, "ages", "from_s", 0) + 50, all);
	ck_assert_uint_le(count_from(old, "ages", "from_s", 0), all + 50);
	ck_assert_uint_eq(count_from(old, "ages", "from_s", 2 * WAITED_S),
			  count_from(old, "ages", "from_s", 0));
	ck_assert_uint_gt(count_from(young, "ages", "from_s", 0), 0);
	/* Another 400 ms older: what is below 640 ms is not above that. */
	ck_assert_uint_ge(count_from(old, "ages", "from_s", 0.64), all - 50);
	if (!_i)
		ck_assert_uint_eq(all, 1000);
}
END_TEST

START_TEST(peak_is_that_of_the_looks)
{
	CLEANUP(json_freep) struct json *report = lives_recorded("--exact");
	uint64_t peak = json_count(report, "peak.inuse_bytes"), sum = 0;
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);

	for (size_t i = 0; i < sites->count; i++)
		sum += json_count(&sites->item[i], "peak_inuse_bytes");
	ck_assert_uint_eq(sum, peak);
	ck_assert_uint_ge(peak, json_count(report, "totals.inuse_bytes"));
	ck_assert_double_gt(json_number(report, "peak.longest_between_looks_s"), 0);
}
END_TEST

Suite *attach_ages_suite(void)
{
	Suite *suite = suite_create("attach_ages");
	TCase *tcase = tcase_create("attach_ages");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 180);
	tcase_add_test(tcase, sizes_and_lives_are_known);
	tcase_add_loop_test(tcase, ages_of_what_is_left_are_known, 0, 2);
	tcase_add_test(tcase, peak_is_that_of_the_looks);
	suite_add_tcase(suite, tcase);
	return suite;
}
