// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Libraries that are loaded while recording: what they allocate is recorded,
 * and what everybody else allocates still is.
 */
#include <signal.h>
#include <string.h>

#include "resolver/cleanup.h"
#include "tests/e2e.h"

/* The loader's counter is looked at ten times a second. */
#define NOTICED_MS 3000

static struct folder folder;
static struct child target;
static struct run run;

static void setup(void)
{
	folder_create(&folder);
	child_start_target(&target, &folder, "late");
}

static void teardown(void)
{
	run_deinit(&run);
	child_end(&target);
	folder_remove(&folder);
}

static void record_begin(void)
{
	run_start(&run, &folder, "-p %d --exact --selfcheck -q -o %s", target.pid,
		  folder_file(&folder, "out.hap"));
	run_wait_attached(&run, target.pid);
	wait_ms(NOTICED_MS);
}

static struct json *record_end(void)
{
	ck_assert_int_eq(kill(run.child.pid, SIGINT), 0);
	run_finish(&run, 120);
	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	return run_report_json(&folder, folder_file(&folder, "out.hap"));
}

/* Blocks of 1,000 bytes with @function among the two innermost frames, stale stacks left out. */
static uint64_t blocks_of(const struct json *report, const char *function)
{
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);
	uint64_t bytes = 0;

	for (size_t i = 0; i < sites->count; i++) {
		const struct json *site = &sites->item[i];
		const struct json *frames = json_get(site, "frames", JSON_ARRAY);

		if (json_get(site, "stale", JSON_BOOL)->number != 0)
			continue;
		for (size_t k = 0; k < frames->count && k < 2; k++) {
			if (strcmp(json_text(&frames->item[k], "function"), function) == 0)
				bytes += json_count(site, "alloc_bytes");
		}
	}
	return bytes / 1000;
}

static void load_and_call(const char *function)
{
	child_expect(&target, "load", "ok");
	wait_ms(NOTICED_MS);
	child_expect(&target, function, "ok");
}

START_TEST(library_loaded_while_recording_is_recorded)
{
	record_begin();
	load_and_call("first");
	child_expect(&target, "own", "ok");
	CLEANUP(json_freep) struct json *report = record_end();

	ck_assert_uint_eq(blocks_of(report, "late_first"), 100);
	ck_assert_uint_eq(blocks_of(report, "own"), 100);
}
END_TEST

START_TEST(library_loaded_again_is_recorded_again)
{
	record_begin();
	load_and_call("first");
	child_expect(&target, "unload", "ok");
	load_and_call("second");
	child_expect(&target, "unload", "ok");
	load_and_call("third");
	child_expect(&target, "own", "ok");
	CLEANUP(json_freep) struct json *report = record_end();

	ck_assert_uint_eq(blocks_of(report, "late_first"), 100);
	ck_assert_uint_eq(blocks_of(report, "late_second"), 100);
	ck_assert_uint_eq(blocks_of(report, "late_third"), 100);
	ck_assert_uint_eq(blocks_of(report, "own"), 100);
}
END_TEST

Suite *attach_late_suite(void)
{
	Suite *suite = suite_create("attach_late");
	TCase *tcase = tcase_create("libraries");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 240);
	tcase_add_test(tcase, library_loaded_while_recording_is_recorded);
	tcase_add_test(tcase, library_loaded_again_is_recorded_again);
	suite_add_tcase(suite, tcase);
	return suite;
}
