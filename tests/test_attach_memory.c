/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * --max-memory, with targets that would need much more: what recording holds,
 * here and in the shared memory, stays below it, and the figures stay right.
 */
#include "resolver/cleanup.h"
#include "tests/e2e.h"
#include "tests/procstate.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB   1024ull
#define MIB   (1024 * KIB)
#define WIDER 2.5 /* than the intervals that hold in 95 of 100 cases: one failure in a million */

static struct folder folder;
static struct child target;
static struct run run;
static uint64_t held_most; /* bytes, as of the last look */

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

/* Memory of the shared memory's file, from the program's own descriptors. */
static uint64_t shm_bytes(pid_t pid)
{
	char path[64], link[128];
	uint64_t bytes = 0;
	struct dirent *entry;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	fds = opendir(path);
	while (fds && (entry = readdir(fds))) {
		ssize_t size = readlinkat(dirfd(fds), entry->d_name, link, sizeof(link) - 1);
		struct stat st;

		if (size <= 0)
			continue;
		link[size] = '\0';
		if (!strcmp(link, "/memfd:heapattach (deleted)") &&
		    !fstatat(dirfd(fds), entry->d_name, &st, 0))
			bytes = (uint64_t)st.st_blocks * 512;
	}
	if (fds)
		closedir(fds);
	return bytes;
}

static void look(void)
{
	uint64_t held =
		shm_bytes(run.child.pid) + procstate_status(run.child.pid, "RssAnon", 10) * KIB;

	if (held > held_most)
		held_most = held;
}

/* Ask the target. What it made us hold is held on. */
static void work(const char *command)
{
	look();
	child_expect(&target, command, "ok");
	for (int i = 0; i < 15; i++) {
		wait_ms(100);
		look();
	}
}

static void record_begin(const char *options)
{
	held_most = 0;
	run_start(&run, &folder, "-p %d %s -q -o %s", target.pid, options,
		  folder_file(&folder, "out.hap"));
	run_wait_attached(&run, target.pid);
}

static struct json *record_end(void)
{
	return run_interrupt_json(&run, &folder, folder_file(&folder, "out.hap"));
}

/* What found no room is in no figure, but it is counted. */
static void expect_covered(const struct json *report, const char *figure, const char *lost,
			   double truth)
{
	char path[64];
	double value, low, high, missing;

	snprintf(path, sizeof(path), "coverage.%s", lost);
	missing = json_number(report, path);
	snprintf(path, sizeof(path), "totals.%s", figure);
	value = json_number(report, path);
	low = value;
	high = value;
	if (!strcmp(json_text(report, "mode"), "sampled")) {
		snprintf(path, sizeof(path), "totals.%s_low", figure);
		low = value - WIDER * (value - json_number(report, path));
		snprintf(path, sizeof(path), "totals.%s_high", figure);
		high = value + WIDER * (json_number(report, path) - value);
	}
	high += missing * 1.05;
	ck_assert_msg(low <= truth && truth <= high,
		      "%s: %g (%g to %g, %g without room), in truth %g", figure, value, low, high,
		      missing, truth);
}

static double sum_of(const struct json *truths, const char *name)
{
	const struct json *lines = json_get(truths, "sites", JSON_ARRAY);
	double sum = 0;

	for (size_t i = 0; i < lines->count; i++)
		sum += json_number(&lines->item[i], name);
	return sum;
}

/* Without a bound these blocks take 512 MiB of tables. */
START_TEST(many_live_blocks_stay_within_the_bound)
{
	static const char *const options[] = {"--exact --max-memory 64M",
					      "--interval 100 --max-memory 64M"};

	child_start_target(&target, &folder, "many_live -n 10000000");
	record_begin(options[_i]);
	work("go");
	work("free");
	CLEANUP(json_freep) struct json *report = record_end();
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));

	ck_assert_uint_gt(held_most, 32 * MIB);
	ck_assert_uint_le(held_most, 64 * MIB);
	ck_assert_uint_le(json_count(report, "memory_limit.peak_bytes"), 64 * MIB);
	ck_assert_str_eq(json_text(report, "mode"), "sampled");
	if (_i == 0)
		ck_assert_double_gt(json_number(report, "memory_limit.exact_until_s"), 0);
	else
		ck_assert_double_gt(json_number(report, "memory_limit.raised_s"), 0);
	expect_covered(report, "alloc_bytes", "untracked_bytes", sum_of(truths, "alloc_bytes"));
	expect_covered(report, "alloc_count", "untracked", sum_of(truths, "alloc_count"));
	expect_covered(report, "freed_bytes", "untracked_bytes", sum_of(truths, "freed_bytes"));
	expect_covered(report, "freed_count", "untracked", sum_of(truths, "freed_count"));
	ck_assert_uint_eq(json_count(report, "coverage.unknown_frees"), 0);
	ck_assert_uint_eq(json_count(report, "coverage.missed_frees"), 0);
}
END_TEST

/* Also if the program is kept from looking at them from the moment of the attach on. */
START_TEST(many_stacks_stay_within_the_bound)
{
	child_start_target(&target, &folder, "many_sites -n 65536");
	record_begin("--exact --max-memory 64M");
	if (_i) {
		ck_assert_int_eq(kill(run.child.pid, SIGSTOP), 0);
		child_expect(&target, "go", "ok");
		ck_assert_int_eq(kill(run.child.pid, SIGCONT), 0);
	}
	work(_i ? "check" : "go");
	CLEANUP(json_freep) struct json *report = record_end();
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));

	ck_assert_uint_gt(held_most, 32 * MIB);
	ck_assert_uint_le(held_most, 64 * MIB);
	/* A call without a stack is in the totals all the same. */
	expect_covered(report, "alloc_bytes", "untracked_bytes",
		       json_number(truths, "alloc_bytes"));
	expect_covered(report, "alloc_count", "untracked", json_number(truths, "alloc_count"));
}
END_TEST

START_TEST(bound_that_is_not_reached_changes_nothing)
{
	child_start_target(&target, &folder, "many_live -n 100000");
	record_begin("--exact --max-memory 64M");
	work("go");
	CLEANUP(json_freep) struct json *report = record_end();
	CLEANUP(json_freep) struct json *truths = json_parse(child_ask(&target, "stop"));

	ck_assert_str_eq(json_text(report, "mode"), "exact");
	ck_assert_double_eq(json_get(report, "memory_limit.interval_raised", JSON_BOOL)->number, 0);
	ck_assert_double_eq(json_number(report, "totals.alloc_bytes"),
			    sum_of(truths, "alloc_bytes"));
}
END_TEST

Suite *attach_memory_suite(void)
{
	Suite *suite = suite_create("attach_memory");
	TCase *tcase = tcase_create("attach_memory");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 240);
	tcase_add_loop_test(tcase, many_live_blocks_stay_within_the_bound, 0, 2);
	tcase_add_loop_test(tcase, many_stacks_stay_within_the_bound, 0, 2);
	tcase_add_test(tcase, bound_that_is_not_reached_changes_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}
