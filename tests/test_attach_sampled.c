/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Samples taken from targets that know what they did: the truth lies where the
 * report says that it does. The report's intervals are right in 95 of 100
 * cases; two and a half times as wide, a test fails in one of a million.
 */
#include "resolver/cleanup.h"
#include "tests/e2e.h"

#include <signal.h>
#include <string.h>

#define WIDER 2.5

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

static void record_begin(const char *options)
{
	run_start(&run, &folder, "-p %d %s -q -o %s", target.pid, options,
		  folder_file(&folder, "out.hap"));
	run_wait_attached(&run, target.pid);
}

static struct json *record_end(void)
{
	return run_interrupt_json(&run, &folder, folder_file(&folder, "out.hap"));
}

/* A figure and its interval, of one or several sites. */
struct figure {
	double value, low, high;
};

static void figure_add(struct figure *figure, const struct json *json, const char *name)
{
	char path[64];

	figure->value += json_number(json, name);
	snprintf(path, sizeof(path), "%s_low", name);
	figure->low += json_number(json, path);
	snprintf(path, sizeof(path), "%s_high", name);
	figure->high += json_number(json, path);
}

static void expect_covered(const struct figure *figure, double truth, const char *name,
			   const char *what)
{
	double low = figure->value - WIDER * (figure->value - figure->low);
	double high = figure->value + WIDER * (figure->high - figure->value);

	ck_assert_msg(figure->low <= figure->value && figure->value <= figure->high,
		      "%s, %s: %g is not from %g to %g", what, name, figure->value, figure->low,
		      figure->high);
	ck_assert_msg(low <= truth && truth <= high, "%s, %s: %g (%g to %g), in truth %g", what,
		      name, figure->value, figure->low, figure->high, truth);
}

static bool has_function(const struct json *site, const char *function)
{
	const struct json *frames = json_get(site, "frames", JSON_ARRAY);

	for (size_t i = 0; i < frames->count; i++) {
		if (strcmp(json_text(&frames->item[i], "function"), function) == 0)
			return true;
	}
	return false;
}

static const char *const figures[] = {"alloc_bytes", "alloc_count", "freed_bytes", "freed_count"};
#define FIGURES (sizeof(figures) / sizeof(figures[0]))

static double inuse_truth(const struct json *truth, const char *unit)
{
	char alloc[32], freed[32];

	snprintf(alloc, sizeof(alloc), "alloc_%s", unit);
	snprintf(freed, sizeof(freed), "freed_%s", unit);
	return json_number(truth, alloc) - json_number(truth, freed);
}

/* All sites with the function of @truth. */
static void expect_line_covered(const struct json *report, const struct json *truth)
{
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);
	const char *function = json_text(truth, "function");
	struct figure figure[FIGURES] = {0}, inuse_bytes = {0}, inuse_count = {0};
	bool found = false;

	for (size_t i = 0; i < sites->count; i++) {
		if (!has_function(&sites->item[i], function))
			continue;
		found = true;
		for (size_t k = 0; k < FIGURES; k++)
			figure_add(&figure[k], &sites->item[i], figures[k]);
		figure_add(&inuse_bytes, &sites->item[i], "inuse_bytes");
		figure_add(&inuse_count, &sites->item[i], "inuse_count");
	}
	/* Of a line that allocated little there may be no sample. */
	if (!found)
		return;
	for (size_t k = 0; k < FIGURES; k++)
		expect_covered(&figure[k], json_number(truth, figures[k]), figures[k], function);
	expect_covered(&inuse_bytes, inuse_truth(truth, "bytes"), "inuse_bytes", function);
	/* How many blocks there are of which none was seen depends on their size. */
	if (inuse_count.value > 0)
		expect_covered(&inuse_count, inuse_truth(truth, "count"), "inuse_count", function);
}

static void expect_totals_covered(const struct json *report, const struct json *truths)
{
	const struct json *lines = json_get(truths, "sites", JSON_ARRAY);
	const struct json *totals = json_get(report, "totals", JSON_OBJECT);

	for (size_t k = 0; k < FIGURES; k++) {
		struct figure figure = {0};
		double truth = 0;

		for (size_t i = 0; i < lines->count; i++)
			truth += json_number(&lines->item[i], figures[k]);
		figure_add(&figure, totals, figures[k]);
		expect_covered(&figure, truth, figures[k], "totals");
	}
}

static void expect_no_losses(const struct json *report)
{
	static const char *const zeros[] = {"truncated_stacks",	 "missed_frees", "untracked",
					    "nested_duplicates", "adopted",	 "unknown_frees"};

	for (size_t i = 0; i < sizeof(zeros) / sizeof(zeros[0]); i++) {
		char path[64];

		snprintf(path, sizeof(path), "coverage.%s", zeros[i]);
		ck_assert_msg(json_count(report, path) == 0, "%s is %lu", path,
			      json_count(report, path));
	}
}

static void chain_is_covered(int threads, int rounds, const char *options)
{
	child_start_target(&target, &folder, "leak_chain -t %d -r %d -p 1000", threads, rounds);
	record_begin(options);
	child_expect(&target, "go", "done");
	CLEANUP(json_freep) struct json *report = record_end();
	child_expect(&target, "check", "ok");
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));
	const struct json *lines = json_get(truths, "sites", JSON_ARRAY);

	ck_assert_str_eq(json_text(report, "mode"), "sampled");
	for (size_t i = 0; i < lines->count; i++)
		expect_line_covered(report, &lines->item[i]);
	expect_totals_covered(report, truths);
	expect_no_losses(report);
	ck_assert_int_eq(child_wait(&target, 10000), 0);
}

START_TEST(one_thread_is_estimated)
{
	static const char *const options[] = {"--interval 16K", "--interval 4K --loader map",
					      "--interval 100"};

	chain_is_covered(1, 4000, options[_i]);
}
END_TEST

START_TEST(eight_threads_that_free_for_each_other_are_estimated)
{
	chain_is_covered(8, 2000, "--interval 64K");
}
END_TEST

/* The interval changes under way. */
START_TEST(budget_is_kept_while_estimating)
{
	chain_is_covered(2, 20000, "--overhead 2");
}
END_TEST

START_TEST(interval_is_in_the_report)
{
	child_start_target(&target, &folder, "leak_chain -t 1 -r 100");
	record_begin("--interval 100000");
	child_expect(&target, "go", "done");
	CLEANUP(json_freep) struct json *report = record_end();

	ck_assert_uint_eq(json_count(report, "interval_bytes"), 100000);
	ck_assert_uint_eq(json_count(report, "sampling.interval_low_bytes"), 100000);
	ck_assert_uint_eq(json_count(report, "sampling.interval_high_bytes"), 100000);
	ck_assert_uint_eq(json_count(report, "sampling.interval_changes"), 0);
}
END_TEST

/* What one session left in entry, countdowns and filter, is nothing to the next. */
START_TEST(second_attach_starts_anew)
{
	child_start_target(&target, &folder, "leak_chain -t 2 -r 4000");
	record_begin("--interval 1G");
	json_free(record_end());
	ck_assert_int_eq(unlink(folder_file(&folder, "out.hap")), 0);
	run_deinit(&run);
	record_begin("--interval 16K");
	child_expect(&target, "go", "done");
	CLEANUP(json_freep) struct json *report = record_end();
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));

	expect_totals_covered(report, truths);
	expect_no_losses(report);
}
END_TEST

Suite *attach_sampled_suite(void)
{
	Suite *suite = suite_create("attach_sampled");
	TCase *tcase = tcase_create("chain");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 180);
	tcase_add_loop_test(tcase, one_thread_is_estimated, 0, 3);
	tcase_add_test(tcase, eight_threads_that_free_for_each_other_are_estimated);
	tcase_add_test(tcase, budget_is_kept_while_estimating);
	tcase_add_test(tcase, interval_is_in_the_report);
	tcase_add_test(tcase, second_attach_starts_anew);
	suite_add_tcase(suite, tcase);
	return suite;
}
