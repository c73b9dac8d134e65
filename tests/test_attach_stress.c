/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Attach and leave, again and again, where it could do harm: nothing crashes,
 * nothing hangs, nothing is left behind.
 */
#include "resolver/cleanup.h"
#include "tests/e2e.h"
#include "tests/procstate.h"

#include <signal.h>
#include <string.h>

static struct folder folder;
static struct child target;
static struct run run;
static struct procstate before, after;

/* Where an attach is mostly patience, up to so many processes are attached to at a time. */
#define LANES 10
static struct lane {
	struct folder folder;
	struct child target;
	struct run run;
} lanes[LANES];

static void setup(void)
{
	folder_create(&folder);
	runs_come_first();
}

static void lanes_teardown(void)
{
	for (struct lane *lane = lanes; lane < lanes + LANES && lane->folder.path[0]; lane++) {
		run_deinit(&lane->run);
		child_end(&lane->target);
		folder_remove(&lane->folder);
	}
}

static void teardown(void)
{
	lanes_teardown();
	run_deinit(&run);
	child_end(&target);
	procstate_deinit(&before);
	procstate_deinit(&after);
	folder_remove(&folder);
}

static void cycle_begin(struct run *cycle_run, const struct folder *where, pid_t pid,
			const char *how, const char *loader)
{
	const char *file = folder_file(where, "cycle.hap");

	unlink(file);
	run_start(cycle_run, where, "-p %d %s%s%s -q -o %s", pid, how, loader ? " --loader " : "",
		  loader ? loader : "", file);
}

/* Leave as soon as everything is hooked. */
static void cycle_end(struct run *cycle_run, pid_t pid)
{
	if (run_try_attached(cycle_run, pid)) {
		wait_ms(20);
		kill(cycle_run->child.pid, SIGINT);
	}
	run_finish(cycle_run, 60);
	ck_assert_msg(cycle_run->status == 0, "ended with %d: %s", cycle_run->status,
		      cycle_run->err);
	run_deinit(cycle_run);
}

/* @loader NULL: as the program chooses. */
static void cycle_with(const char *how, const char *loader)
{
	cycle_begin(&run, &folder, target.pid, how, loader);
	cycle_end(&run, target.pid);
}

static void cycle(const char *loader)
{
	cycle_with("--exact", loader);
}

static void cycles(int count, const char *loader)
{
	for (int i = 0; i < count; i++) {
		cycle(loader);
		child_expect(&target, "check", "ok");
	}
}

static void cycles_side_by_side(int count, const char *name, int at_a_time)
{
	struct lane *lane, *end = lanes + at_a_time;

	for (lane = lanes; lane < end; lane++) {
		folder_create(&lane->folder);
		child_start_target(&lane->target, &lane->folder, "%s", name);
	}
	for (int i = 0; i < count; i += at_a_time) {
		for (lane = lanes; lane < end; lane++)
			cycle_begin(&lane->run, &lane->folder, lane->target.pid, "--exact", NULL);
		for (lane = lanes; lane < end; lane++) {
			cycle_end(&lane->run, lane->target.pid);
			child_expect(&lane->target, "check", "ok");
		}
	}
	for (lane = lanes; lane < end; lane++)
		child_expect_clean_end(&lane->target);
}

/* ---- nothing is left */

START_TEST(hundred_cycles_leave_a_busy_process_as_it_was)
{
	uint64_t rss;

	child_start_target(&target, &folder, "storm -t 8 -w");
	/* Once, so that entry is there and the allocator's arenas are made. */
	procstate_read(target.pid, &before);
	cycle("dlopen");
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	rss = procstate_status(target.pid, "VmRSS", 10);
	for (int i = 1; i < tests_cycles(100); i++)
		cycle(i % 2 ? "dlopen" : "map");
	child_expect(&target, "check", "ok");
	procstate_deinit(&after);
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	ck_assert_uint_lt(procstate_status(target.pid, "VmRSS", 10), rss + 4096);
	child_expect_clean_end(&target);
}
END_TEST

static void idle_is_left_as_it_was(const char *loader)
{
	child_start_target(&target, &folder, "threads1000 -n 10");
	procstate_read(target.pid, &before);
	for (int i = 0; i < 3; i++)
		cycle(loader);
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, 0);
}

START_TEST(idle_process_is_left_as_it_was)
{
	idle_is_left_as_it_was("dlopen");
}
END_TEST

START_TEST(idle_process_is_left_as_it_was_by_the_map_loader)
{
	idle_is_left_as_it_was("map");
}
END_TEST

static void sampled_is_left_as_it_was(const char *loader)
{
	const struct procstate_mapping *filter;

	child_start_target(&target, &folder, "threads1000 -n 10");
	procstate_read(target.pid, &before);
	for (int i = 0; i < 3; i++)
		cycle_with("--interval 4096", loader);
	cycle(loader);
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_FILTER);
	filter = procstate_filter(&after);
	ck_assert(filter != NULL);
	ck_assert_uint_eq(procstate_resident(target.pid, filter->start), 0);
}

START_TEST(sampled_cycles_leave_an_empty_filter)
{
	sampled_is_left_as_it_was("dlopen");
}
END_TEST

START_TEST(sampled_cycles_of_the_map_loader_leave_an_empty_filter)
{
	sampled_is_left_as_it_was("map");
}
END_TEST

START_TEST(busy_main_thread_is_left_as_it_was)
{
	child_start_target(&target, &folder, "storm -t 2 -m -w");
	procstate_read(target.pid, &before);
	cycles(20, NULL);
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	child_expect_clean_end(&target);
}
END_TEST

/* ---- the loader is at work */

START_TEST(malloc_and_dlopen_storm_is_not_harmed)
{
	child_start_target(&target, &folder, "storm -t 3 -d 1 -m -w");
	cycles(tests_cycles(100), NULL);
	child_expect_clean_end(&target);
}
END_TEST

START_TEST(mutex_that_a_constructor_wants_is_no_deadlock)
{
	cycles_side_by_side(tests_cycles(100), "deadlock_ctor", LANES);
}
END_TEST

START_TEST(atfork_handler_with_jemalloc_locked_survives_hundred_attaches)
{
	/* Each of them keeps a processor busy. */
	cycles_side_by_side(tests_cycles(100), "atfork_jemalloc", 2);
}
END_TEST

Suite *attach_stress_suite(void)
{
	Suite *suite = suite_create("attach_stress");
	TCase *left = tcase_create("left"), *loader = tcase_create("loader");

	tcase_add_checked_fixture(left, setup, teardown);
	tcase_set_timeout(left, 240);
	tcase_add_test(left, hundred_cycles_leave_a_busy_process_as_it_was);
	tcase_add_test(left, idle_process_is_left_as_it_was);
	tcase_add_test(left, idle_process_is_left_as_it_was_by_the_map_loader);
	tcase_add_test(left, sampled_cycles_leave_an_empty_filter);
	tcase_add_test(left, sampled_cycles_of_the_map_loader_leave_an_empty_filter);
	tcase_add_test(left, busy_main_thread_is_left_as_it_was);
	suite_add_tcase(suite, left);

	tcase_add_checked_fixture(loader, setup, teardown);
	tcase_set_timeout(loader, 300);
	tcase_add_test(loader, malloc_and_dlopen_storm_is_not_harmed);
	tcase_add_test(loader, mutex_that_a_constructor_wants_is_no_deadlock);
	tcase_add_test(loader, atfork_handler_with_jemalloc_locked_survives_hundred_attaches);
	suite_add_tcase(suite, loader);
	return suite;
}
