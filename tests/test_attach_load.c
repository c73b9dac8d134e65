/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Attach and leave under load, and be killed or stopped in the middle of it:
 * the target computes on, and nothing is left behind.
 */
#include "resolver/cleanup.h"
#include "tests/matrix.h"
#include "tests/server.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct matrix matrix;
static struct server server;

static void setup(void)
{
	matrix_setup(&matrix);
}

static void teardown(void)
{
	server_end(&server);
	matrix_teardown(&matrix);
}

static bool is_long(void)
{
	return getenv("HEAPATTACH_TESTS_CYCLES") != NULL;
}

/* ---- load of one kind, by everybody */

static const int storm_threads[] = {1, 4, 32};
#define STORMS (sizeof(storm_threads) / sizeof(storm_threads[0]))

static const char *const modes[] = {"--exact", "", "--interval 64K"};

static void cycles(int count)
{
	runs_come_first();
	for (int i = 0; i < count; i++) {
		matrix_cycle(&matrix, modes[i % 3]);
		matrix_check(&matrix);
	}
}

START_TEST(threads_that_only_allocate_are_not_harmed)
{
	matrix_start(&matrix, "storm -t %d -s 64-128 -s 2048-4096", storm_threads[_i]);
	cycles(tests_cycles(100));
	matrix.ignore |= PROCSTATE_FILTER;
	matrix_expect_unharmed(&matrix);
}
END_TEST

/* A storm with one such thread is in attach_stress. */
START_TEST(four_threads_that_load_and_unload_are_not_harmed)
{
	matrix_start(&matrix, "storm -t 2 -d 4 -w");
	cycles(tests_cycles(10));
	matrix.ignore |= PROCSTATE_OBJECTS | PROCSTATE_FDS | PROCSTATE_FILTER;
	matrix_expect_unharmed(&matrix);
}
END_TEST

START_TEST(threads_that_only_fork_are_not_harmed)
{
	matrix_start(&matrix, "forker -t 4");
	child_expect(&matrix.target, "loop", "looping");
	/* With the handler that the C library has for its threads. */
	matrix_look(&matrix);
	cycles(tests_cycles(100));
	matrix.ignore |= PROCSTATE_THREADS | PROCSTATE_MASKS | PROCSTATE_FILTER;
	matrix_expect_unharmed(&matrix);
}
END_TEST

/* ---- scripts, with one thread that is never at rest */

static void work_through_attaches(void (*start)(struct server *, const struct folder *))
{
	start(&server, &matrix.folder);
	matrix.pid = server.target;
	for (int i = 0; i < tests_cycles(5); i++) {
		matrix_cycle(&matrix, modes[i % 3]);
		server_expect_alive(&server);
	}
	server_expect_all_answered(&server);
	server_expect_clean_end(&server);
}

START_TEST(python_that_reads_json_is_not_harmed)
{
	work_through_attaches(server_start_python);
}
END_TEST

START_TEST(sqlite_that_inserts_is_not_harmed)
{
	work_through_attaches(server_start_sqlite);
}
END_TEST

/* ---- the program is killed, or stopped */

START_TEST(death_of_the_program_at_random_moments_leaves_a_target_that_works)
{
	int count = is_long() ? 200 : 25;

	srandom(1);
	matrix_start(&matrix, "witness");
	matrix.ignore |= PROCSTATE_FILTER;
	for (int i = 0; i < count; i++) {
		run_start(&matrix.run, &matrix.folder, "-p %d -q -o %s %s", matrix.pid,
			  folder_file(&matrix.folder, "killed-%d.hap", i), modes[i % 3]);
		usleep((unsigned int)random() % 700000);
		kill(matrix.run.child.pid, SIGKILL);
		run_finish(&matrix.run, 60);
		run_deinit(&matrix.run);
		matrix_check(&matrix);
	}
	/* The first one takes over; what is recorded and left is as ever then. */
	matrix_cycle(&matrix, "-d 0.5");
	matrix_row_works(&matrix, "heapattach is killed at random moments");
}
END_TEST

static uint64_t rounds(void)
{
	return strtoull(child_ask(&matrix.target, "rounds"), NULL, 10);
}

/* In the best of @seconds: others may want the processor, too. */
static uint64_t best_rounds_a_second(unsigned int seconds)
{
	uint64_t best = 0;

	for (unsigned int i = 0; i < seconds; i++) {
		uint64_t before = rounds(), made;

		wait_ms(1000);
		made = rounds() - before;
		best = made > best ? made : best;
	}
	return best;
}

START_TEST(nothing_waits_for_a_program_that_is_stopped)
{
	uint64_t with, without;

	matrix_start(&matrix, "witness");
	matrix_record(&matrix, "");
	matrix_keep(&matrix);
	with = best_rounds_a_second(2);
	ck_assert_int_eq(kill(matrix.run.child.pid, SIGSTOP), 0);
	matrix_keep(&matrix);
	without = best_rounds_a_second(is_long() ? 30 : 3);
	matrix_keep(&matrix);
	matrix_check(&matrix);
	ck_assert_int_eq(kill(matrix.run.child.pid, SIGCONT), 0);
	matrix_keep(&matrix);
	CLEANUP(json_freep) struct json *report = matrix_record_end(&matrix);
	matrix_expect_kept(&matrix, report);
	ck_assert_msg(without >= with / 4, "%lu rounds a second with it, %lu without", with,
		      without);
	matrix_expect_unharmed(&matrix);
	matrix_tell("heapattach is stopped for seconds", "works, and loses nothing");
}
END_TEST

Suite *attach_load_suite(void)
{
	Suite *suite = suite_create("attach_load");
	TCase *load = tcase_create("load"), *scripts = tcase_create("scripts");
	TCase *dead = tcase_create("dead");

	tcase_add_checked_fixture(load, setup, teardown);
	tcase_set_timeout(load, 240);
	tcase_add_loop_test(load, threads_that_only_allocate_are_not_harmed, 0, STORMS);
	tcase_add_test(load, four_threads_that_load_and_unload_are_not_harmed);
	tcase_add_test(load, threads_that_only_fork_are_not_harmed);
	suite_add_tcase(suite, load);

	tcase_add_checked_fixture(scripts, setup, teardown);
	tcase_set_timeout(scripts, 120);
	tcase_add_test(scripts, python_that_reads_json_is_not_harmed);
	tcase_add_test(scripts, sqlite_that_inserts_is_not_harmed);
	suite_add_tcase(suite, scripts);

	tcase_add_checked_fixture(dead, setup, teardown);
	tcase_set_timeout(dead, 120);
	tcase_add_test(dead, death_of_the_program_at_random_moments_leaves_a_target_that_works);
	tcase_add_test(dead, nothing_waits_for_a_program_that_is_stopped);
	suite_add_tcase(suite, dead);
	return suite;
}
