/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What an attach means to the thread that is borrowed, and to the others: its
 * registers, how long it is stopped, and that no call of theirs is interrupted.
 */
#include "resolver/cleanup.h"
#include "tests/matrix.h"

#include <math.h>

static struct matrix matrix;

static void setup(void)
{
	matrix_setup(&matrix);
}

static void teardown(void)
{
	matrix_teardown(&matrix);
}

/* Their answers to "check" are figures. */
static void start(const char *name, const char *option)
{
	child_start_target(&matrix.target, &matrix.folder, "%s%s", name, option);
	matrix.pid = matrix.target.pid;
}

START_TEST(vector_registers_survive_fifty_attaches)
{
	uint64_t rounds = 0;

	start("vector_state", "");
	for (int i = 0; i < 50; i++) {
		unsigned long seen;

		matrix_cycle(&matrix, i % 2 ? "--exact --loader map" : "--exact");
		ck_assert_int_eq(sscanf(child_ask(&matrix.target, "check"), "ok rounds=%lu", &seen),
				 1);
		ck_assert_uint_gt(seen, rounds);
		rounds = seen;
	}
	child_expect_clean_end(&matrix.target);
}
END_TEST

START_TEST(no_thread_of_thousand_sees_an_interrupted_call)
{
	unsigned long beats, gap, interrupted;

	start("threads1000", "");
	for (int i = 0; i < 10; i++)
		matrix_cycle(&matrix, "--exact");
	ck_assert_int_eq(sscanf(child_ask(&matrix.target, "check"),
				"beats=%lu gap_us=%lu eintr=%lu", &beats, &gap, &interrupted),
			 3);
	ck_assert_uint_gt(beats, 0);
	ck_assert_uint_eq(interrupted, 0);
	child_expect_clean_end(&matrix.target);
}
END_TEST

static double longest_pause(const struct json *report)
{
	const struct json *pauses = json_get(report, "pauses_us", JSON_ARRAY);
	double longest = 0;

	ck_assert_uint_gt(pauses->count, 0);
	for (size_t i = 0; i < pauses->count; i++) {
		if (pauses->item[i].number > longest)
			longest = pauses->item[i].number;
	}
	return longest;
}

/*
 * The target's own gap is the stop, and the time until it had a processor
 * again; what the program says includes the time until it had one itself. In
 * the quietest of the runs both must say about the same.
 */
static void pause_agrees_with_the_clock(const char *how)
{
	double closest = 1e9; /* in milliseconds, or quarters of what was said */

	start("clock_gap", how);
	for (int i = 0; i < 15 && closest >= 1; i++) {
		const char *file = folder_file(&matrix.folder, "gap-%d.hap", i);
		double gap, waiting, said;

		child_ask(&matrix.target, "check");
		run_program(&matrix.run, &matrix.folder, "-p %d --exact -d 1 -q -o %s", matrix.pid,
			    file);
		ck_assert_msg(matrix.run.status == 0, "ended with %d: %s", matrix.run.status,
			      matrix.run.err);
		run_deinit(&matrix.run);
		ck_assert_int_eq(sscanf(child_ask(&matrix.target, "check"),
					"gap_us=%lf waiting_us=%lf", &gap, &waiting),
				 2);
		CLEANUP(json_freep) struct json *report = run_report_json(&matrix.folder, file);
		said = longest_pause(report);
		closest = fmin(closest, fabs(gap - waiting - said) / fmax(1000, said / 4));
	}
	ck_assert_msg(closest < 1, "said and seen differ by %.1f times what is allowed", closest);
}

START_TEST(pause_agrees_with_the_clock_of_a_running_thread)
{
	pause_agrees_with_the_clock("");
}
END_TEST

START_TEST(pause_agrees_with_the_clock_of_a_sleeping_thread)
{
	pause_agrees_with_the_clock(" -b");
}
END_TEST

Suite *attach_thread_suite(void)
{
	Suite *suite = suite_create("attach_thread");
	TCase *thread = tcase_create("thread");

	tcase_add_checked_fixture(thread, setup, teardown);
	tcase_set_timeout(thread, 180);
	tcase_add_test(thread, vector_registers_survive_fifty_attaches);
	tcase_add_test(thread, no_thread_of_thousand_sees_an_interrupted_call);
	tcase_add_test(thread, pause_agrees_with_the_clock_of_a_running_thread);
	tcase_add_test(thread, pause_agrees_with_the_clock_of_a_sleeping_thread);
	suite_add_tcase(suite, thread);
	return suite;
}
