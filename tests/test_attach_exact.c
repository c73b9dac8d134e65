/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Exact mode on targets that know what they did: each byte and count at the
 * right line, through the right frames, none missing and none invented.
 */
#include "resolver/cleanup.h"
#include "tests/e2e.h"

#include <ctype.h>
#include <signal.h>
#include <string.h>

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

static void record_begin(const char *loader)
{
	run_start(&run, &folder, "-p %d --exact --loader %s -q -o %s", target.pid, loader,
		  folder_file(&folder, "out.hap"));
	run_wait_attached(&run, target.pid);
}

static struct json *record_end(void)
{
	ck_assert_int_eq(kill(run.child.pid, SIGINT), 0);
	run_finish(&run, 120);
	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	child_expect(&target, "check", "ok");
	return run_report_json(&folder, folder_file(&folder, "out.hap"));
}

/* ---- frames */

static bool is_own_module(const char *module, const char *const names[])
{
	const char *slash = strrchr(module, '/');

	for (; *names; names++) {
		if (strcmp(slash ? slash + 1 : module, *names) == 0)
			return true;
	}
	return false;
}

/* Index of the innermost frame in one of the modules; the number of frames if there is none. */
static size_t own_frame(const struct json *frames, const char *const modules[])
{
	size_t i = 0;

	while (i < frames->count && !is_own_module(json_text(&frames->item[i], "module"), modules))
		i++;
	return i;
}

static const char *const chain_modules[] = {"leak_chain", "libchain.so", NULL};

/* chain_NN and what belongs to it, innermost first; leak_chain.c has the kinds of frame. */
static const char *const chain_functions[] = {
	"chain_00", "chain_01",		"chain_02",	  "chain_03_inlined", "chain_03",
	"chain_04", "chain_05",		"chain_06_never", "chain_06_last",    "chain_06",
	"chain_07", "chain_08",		"chain_09",	  "chain_10",	      "chain_11_compare",
	"chain_11", "chain_12",		"chain_13",	  "chain_14",	      "chain_15_inlined",
	"chain_15", "chain_16",		"chain_17",	  "chain_18",	      "chain_19",
	"chain_20", "chain_21",		"chain_22",	  "chain_23",	      "chain_24",
	"chain_25", "chain_26_inlined", "chain_26",	  "chain_27",	      "chain_28",
	"chain_29"};
#define CHAIN_FUNCTIONS (sizeof(chain_functions) / sizeof(chain_functions[0]))

static void expect_chain(const struct json *frames)
{
	size_t next = 0;

	for (size_t i = 0; i < frames->count; i++) {
		const char *function = json_text(&frames->item[i], "function");

		if (strncmp(function, "chain_", 6) != 0 || !isdigit(function[6]))
			continue;
		ck_assert_uint_lt(next, CHAIN_FUNCTIONS);
		ck_assert_str_eq(function, chain_functions[next]);
		next++;
	}
	ck_assert_uint_eq(next, CHAIN_FUNCTIONS);
}

/* ---- sums */

struct sums {
	uint64_t alloc_bytes, alloc_count, freed_bytes, freed_count, inuse_bytes, inuse_count;
};

static void sums_add(struct sums *sums, const struct json *json)
{
	sums->alloc_bytes += json_count(json, "alloc_bytes");
	sums->alloc_count += json_count(json, "alloc_count");
	sums->freed_bytes += json_count(json, "freed_bytes");
	sums->freed_count += json_count(json, "freed_count");
	if (json_find(json, "inuse_bytes")) {
		sums->inuse_bytes += json_count(json, "inuse_bytes");
		sums->inuse_count += json_count(json, "inuse_count");
	}
}

static void expect_sums(const struct sums *got, const struct sums *truth, const char *what)
{
	ck_assert_msg(got->alloc_bytes == truth->alloc_bytes &&
			      got->alloc_count == truth->alloc_count,
		      "%s: %lu bytes in %lu blocks allocated, in truth %lu in %lu", what,
		      got->alloc_bytes, got->alloc_count, truth->alloc_bytes, truth->alloc_count);
	ck_assert_msg(got->freed_bytes == truth->freed_bytes &&
			      got->freed_count == truth->freed_count,
		      "%s: %lu bytes in %lu blocks freed, in truth %lu in %lu", what,
		      got->freed_bytes, got->freed_count, truth->freed_bytes, truth->freed_count);
	ck_assert_msg(got->inuse_bytes == truth->alloc_bytes - truth->freed_bytes &&
			      got->inuse_count == truth->alloc_count - truth->freed_count,
		      "%s: %lu bytes in %lu blocks in use, in truth %lu in %lu", what,
		      got->inuse_bytes, got->inuse_count, truth->alloc_bytes - truth->freed_bytes,
		      truth->alloc_count - truth->freed_count);
}

static bool frame_is(const struct json *frame, const struct json *truth)
{
	return strcmp(json_text(frame, "function"), json_text(truth, "function")) == 0 &&
	       (!json_find(truth, "line") ||
		(json_count(frame, "line") == json_count(truth, "line") &&
		 strstr(json_text(frame, "file"), json_text(truth, "file"))));
}

static void expect_inlined(const struct json *frames, size_t own, const char *caller)
{
	const struct json *frame = &frames->item[own];

	ck_assert_msg(json_get(frame, "inlined", JSON_BOOL)->number == (*caller != '\0'),
		      "%s: inlined or not", json_text(frame, "function"));
	/* inlined_outer is inlined as well and stands in between. */
	if (*caller)
		ck_assert_str_eq(json_text(&frames->item[own + 2], "function"), caller);
}

/* Sum up what the report has for the line of @truth. */
static struct sums sums_of_line(const struct json *report, const struct json *truth,
				const char *const modules[], bool chain)
{
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);
	struct sums sums = {0};

	for (size_t i = 0; i < sites->count; i++) {
		const struct json *frames = json_get(&sites->item[i], "frames", JSON_ARRAY);
		size_t own = own_frame(frames, modules);

		if (own == frames->count || !frame_is(&frames->item[own], truth))
			continue;
		sums_add(&sums, &sites->item[i]);
		if (chain) {
			expect_inlined(frames, own, json_text(truth, "inlined_into"));
			expect_chain(frames);
		}
	}
	return sums;
}

/* Each line of @truths has its sums, and nothing else was counted. */
static void expect_exact(const struct json *report, const struct json *truths,
			 const char *const modules[], bool chain)
{
	const struct json *lines = json_get(truths, "sites", JSON_ARRAY);
	struct sums all = {0}, totals = {0};

	ck_assert_str_eq(json_text(report, "mode"), "exact");
	for (size_t i = 0; i < lines->count; i++) {
		struct sums truth = {0};
		struct sums got = sums_of_line(report, &lines->item[i], modules, chain);

		sums_add(&truth, &lines->item[i]);
		sums_add(&all, &lines->item[i]);
		expect_sums(&got, &truth, json_text(&lines->item[i], "function"));
	}
	sums_add(&totals, json_get(report, "totals", JSON_OBJECT));
	expect_sums(&totals, &all, "totals");
}

static void expect_full_coverage(const struct json *report)
{
	static const char *const zeros[] = {"truncated_stacks", "missed_frees", "untracked",
					    "nested_duplicates"};

	for (size_t i = 0; i < sizeof(zeros) / sizeof(zeros[0]); i++) {
		char path[64];

		snprintf(path, sizeof(path), "coverage.%s", zeros[i]);
		ck_assert_msg(json_count(report, path) == 0, "%s is %lu", path,
			      json_count(report, path));
	}
	ck_assert_uint_gt(json_count(report, "coverage.slots"), 0);
}

/* ---- tests */

static void chain_is_exact(int threads, int rounds, const char *loader)
{
	child_start_target(&target, &folder, "leak_chain -t %d -r %d -p 1000", threads, rounds);
	record_begin(loader);
	child_expect(&target, "go", "done");
	CLEANUP(json_freep) struct json *report = record_end();
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));

	expect_exact(report, truths, chain_modules, true);
	expect_full_coverage(report);
	ck_assert_uint_eq(json_count(report, "coverage.unknown_frees"),
			  json_count(truths, "preheld_freed"));
	ck_assert_uint_eq(json_count(report, "coverage.adopted_bytes"),
			  json_count(truths, "adopted_bytes"));
	ck_assert_int_eq(child_wait(&target, 10000), 0);
}

START_TEST(one_thread_is_counted_exactly)
{
	chain_is_exact(1, 1000, "dlopen");
}
END_TEST

START_TEST(one_thread_is_counted_exactly_by_the_map_loader)
{
	chain_is_exact(1, 1000, "map");
}
END_TEST

START_TEST(four_threads_that_free_for_each_other_are_counted_exactly)
{
	chain_is_exact(4, 1000, "dlopen");
}
END_TEST

START_TEST(thirty_two_threads_are_counted_exactly)
{
	chain_is_exact(32, 300, "dlopen");
}
END_TEST

START_TEST(thirty_two_threads_are_counted_exactly_by_the_map_loader)
{
	chain_is_exact(32, 300, "map");
}
END_TEST

START_TEST(second_attach_starts_from_zero)
{
	child_start_target(&target, &folder, "leak_chain -t 4 -r 100");
	record_begin("dlopen");
	json_free(record_end());
	ck_assert_int_eq(unlink(folder_file(&folder, "out.hap")), 0);
	run_deinit(&run);
	record_begin("dlopen");
	child_expect(&target, "go", "done");
	CLEANUP(json_freep) struct json *report = record_end();
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));

	expect_exact(report, truths, chain_modules, true);
	expect_full_coverage(report);
}
END_TEST

/* Countdowns that samples have left must not hide a call. */
START_TEST(attach_after_one_that_sampled_is_exact)
{
	child_start_target(&target, &folder, "leak_chain -t 4 -r 100");
	run_start(&run, &folder, "-p %d --interval 64K -q -o %s", target.pid,
		  folder_file(&folder, "out.hap"));
	run_wait_attached(&run, target.pid);
	json_free(record_end());
	ck_assert_int_eq(unlink(folder_file(&folder, "out.hap")), 0);
	run_deinit(&run);
	record_begin("dlopen");
	child_expect(&target, "go", "done");
	CLEANUP(json_freep) struct json *report = record_end();
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));

	expect_exact(report, truths, chain_modules, true);
	expect_full_coverage(report);
}
END_TEST

START_TEST(ten_million_live_blocks_are_counted_exactly)
{
	static const char *const modules[] = {"many_live", NULL};

	/* Tables grow ahead of 3 million blocks a second: not by who waits for a processor. */
	runs_come_first();
	child_start_target(&target, &folder, "many_live -n 10000000");
	record_begin("dlopen");
	child_expect(&target, "go", "ok");
	child_expect(&target, "free", "ok");
	CLEANUP(json_freep) struct json *report = record_end();
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));

	expect_exact(report, truths, modules, false);
	expect_full_coverage(report);
}
END_TEST

START_TEST(fifty_thousand_stacks_are_told_apart)
{
	child_start_target(&target, &folder, "many_sites -n 50000");
	record_begin("dlopen");
	child_expect(&target, "go", "ok");
	CLEANUP(json_freep) struct json *report = record_end();
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);
	uint64_t bytes = 0, count = 0, stacks = 0;

	for (size_t i = 0; i < sites->count; i++) {
		uint64_t blocks = json_count(&sites->item[i], "inuse_count");

		ck_assert_uint_le(blocks, 3);
		stacks += blocks > 0;
		count += blocks;
		bytes += json_count(&sites->item[i], "inuse_bytes");
	}
	ck_assert_uint_eq(stacks, json_count(truths, "stacks"));
	ck_assert_uint_eq(count, json_count(truths, "alloc_count"));
	ck_assert_uint_eq(bytes, json_count(truths, "alloc_bytes"));
	expect_full_coverage(report);
}
END_TEST

Suite *attach_exact_suite(void)
{
	Suite *suite = suite_create("attach_exact");
	TCase *chain = tcase_create("chain"), *many = tcase_create("many");

	tcase_add_checked_fixture(chain, setup, teardown);
	tcase_set_timeout(chain, 180);
	tcase_add_test(chain, one_thread_is_counted_exactly);
	tcase_add_test(chain, one_thread_is_counted_exactly_by_the_map_loader);
	tcase_add_test(chain, four_threads_that_free_for_each_other_are_counted_exactly);
	tcase_add_test(chain, thirty_two_threads_are_counted_exactly);
	tcase_add_test(chain, thirty_two_threads_are_counted_exactly_by_the_map_loader);
	tcase_add_test(chain, second_attach_starts_from_zero);
	tcase_add_test(chain, attach_after_one_that_sampled_is_exact);
	suite_add_tcase(suite, chain);

	tcase_add_checked_fixture(many, setup, teardown);
	tcase_set_timeout(many, 300);
	tcase_add_test(many, ten_million_live_blocks_are_counted_exactly);
	tcase_add_test(many, fifty_thousand_stacks_are_told_apart);
	suite_add_tcase(suite, many);
	return suite;
}
