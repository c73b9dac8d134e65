/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a target forbids itself or does not use: memory that it has not touched
 * stays untouched, system calls that would kill it are not made.
 */
#include "resolver/cleanup.h"
#include "tests/e2e.h"
#include "tests/procstate.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Stacks, mapping and array together are 380 MiB; what may grow is malloc's own. */
#define GROWTH_LIMIT_KIB 512

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

static const char *const loaders[] = {"dlopen", "map"};

START_TEST(untouched_memory_stays_untouched)
{
	const char *file = folder_file(&folder, "x.hap");
	uint64_t before, during, after;

	child_start_target(&target, &folder, "untouched");
	child_expect(&target, "work", "ok");
	before = procstate_status(target.pid, "RssAnon", 10);
	run_start(&run, &folder, "-p %d --exact -q --loader %s -o %s", target.pid, loaders[_i],
		  file);
	run_wait_attached(&run, target.pid);
	wait_ms(300);
	child_expect(&target, "work", "ok");
	during = procstate_status(target.pid, "RssAnon", 10);
	ck_assert_int_eq(kill(run.child.pid, SIGINT), 0);
	run_finish(&run, 60);
	ck_assert_msg(run.status == 0, "%s", run.err);
	after = procstate_status(target.pid, "RssAnon", 10);
	ck_assert_uint_le(during, before + GROWTH_LIMIT_KIB);
	ck_assert_uint_le(after, before + GROWTH_LIMIT_KIB);
}
END_TEST

START_TEST(target_that_locks_all_memory_is_refused_and_unharmed)
{
	const char *file = folder_file(&folder, "x.hap");
	uint64_t before, after;

	child_start_target(&target, &folder, "untouched -l");
	child_expect(&target, "work", "ok");
	before = procstate_status(target.pid, "VmLck", 10);
	run_program(&run, &folder, "-p %d --exact -d 1 -q --loader %s -o %s", target.pid,
		    loaders[_i], file);
	ck_assert_int_eq(run.status, 1);
	ck_assert_msg(strstr(run.err, "mlockall"), "%s", run.err);
	child_expect(&target, "work", "ok");
	after = procstate_status(target.pid, "VmLck", 10);
	ck_assert_uint_le(after, before + GROWTH_LIMIT_KIB);
	ck_assert_uint_eq(procstate_mapped(target.pid, "heapattach-core"), 0);
}
END_TEST

START_TEST(filter_that_kills_for_any_call_does_not_kill)
{
	const char *file = folder_file(&folder, "x.hap");

	child_start_target(&target, &folder, "filtered");
	run_start(&run, &folder, "-p %d --exact -q -o %s", target.pid, file);
	run_wait_attached(&run, target.pid);
	for (int i = 0; i < 10; i++)
		child_expect(&target, "work", "ok");
	ck_assert_int_eq(kill(run.child.pid, SIGINT), 0);
	run_finish(&run, 60);
	ck_assert_msg(run.status == 0, "%s", run.err);
	child_expect(&target, "work", "ok");
	CLEANUP(json_freep) struct json *report = run_report_json(&folder, file);
	ck_assert_uint_eq(json_count(report, "totals.inuse_bytes"), 10 * 500);
	child_send(&target, "stop");
	ck_assert_int_eq(child_wait(&target, 10000), 0);
}
END_TEST

/* Though the others are parents, and the loader is to be called: that would kill it. */
START_TEST(thread_with_a_filter_of_its_own_is_not_asked)
{
	child_start_target(&target, &folder, "filtered thread");
	for (int i = 0; i < 5; i++) {
		run_program(&run, &folder, "-p %d --exact -d 0.1 -q --loader dlopen -o %s",
			    target.pid, folder_file(&folder, "x.hap-%d", i));
		ck_assert_msg(run.status == 0, "%s", run.err);
		run_deinit(&run);
		child_expect(&target, "work", "ok");
	}
	child_send(&target, "stop");
	ck_assert_int_eq(child_wait(&target, 10000), 0);
}
END_TEST

START_TEST(dlopen_is_refused_under_a_filter)
{
	const char *file = folder_file(&folder, "x.hap");

	child_start_target(&target, &folder, "filtered");
	run_program(&run, &folder, "-p %d --exact -d 1 -q --loader dlopen -o %s", target.pid, file);
	ck_assert_int_eq(run.status, 1);
	ck_assert_msg(strstr(run.err, "seccomp filter"), "%s", run.err);
	child_expect(&target, "work", "ok");
}
END_TEST

START_TEST(exception_of_operator_new_is_caught)
{
	const char *file = folder_file(&folder, "x.hap");

	child_start_target(&target, &folder, "throws");
	child_expect(&target, "work", "ok");
	run_start(&run, &folder, "-p %d --exact -q --loader %s -o %s", target.pid, loaders[_i],
		  file);
	run_wait_attached(&run, target.pid);
	for (int i = 0; i < 10; i++)
		child_expect(&target, "work", "ok");
	ck_assert_int_eq(kill(run.child.pid, SIGINT), 0);
	run_finish(&run, 60);
	ck_assert_msg(run.status == 0, "%s", run.err);
	child_expect(&target, "work", "ok");
	child_send(&target, "stop");
	ck_assert_int_eq(child_wait(&target, 10000), 0);
}
END_TEST

/*
 * What is looked at in the loader's window, for which the target waits 20 ms, grows with
 * its libraries, and no faster.
 */
START_TEST(many_libraries_are_hooked_and_left_as_they_were)
{
	const char *file = folder_file(&folder, "x.hap");
	struct procstate before, after;

	child_start_target(&target, &folder, "crowd 1500");
	procstate_read_steady(target.pid, &before);
	run_start(&run, &folder, "-p %d --exact -q --loader %s -o %s", target.pid, loaders[_i],
		  file);
	run_wait_attached(&run, target.pid);
	child_expect(&target, "work", "1500");
	ck_assert_int_eq(kill(run.child.pid, SIGINT), 0);
	run_finish(&run, 60);
	ck_assert_msg(run.status == 0, "%s", run.err);
	child_expect(&target, "check", "0");
	procstate_read_like(target.pid, &before, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	procstate_deinit(&before);
	procstate_deinit(&after);
	CLEANUP(json_freep) struct json *report = run_report_json(&folder, file);
	ck_assert_uint_eq(json_count(report, "totals.inuse_bytes"), 1500 * 1000);
}
END_TEST

Suite *attach_limits_suite(void)
{
	Suite *suite = suite_create("attach_limits");
	TCase *tcase = tcase_create("attach_limits");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 240);
	tcase_add_loop_test(tcase, untouched_memory_stays_untouched, 0, 2);
	tcase_add_loop_test(tcase, target_that_locks_all_memory_is_refused_and_unharmed, 0, 2);
	tcase_add_test(tcase, filter_that_kills_for_any_call_does_not_kill);
	tcase_add_test(tcase, dlopen_is_refused_under_a_filter);
	tcase_add_test(tcase, thread_with_a_filter_of_its_own_is_not_asked);
	tcase_add_loop_test(tcase, exception_of_operator_new_is_caught, 0, 2);
	tcase_add_loop_test(tcase, many_libraries_are_hooked_and_left_as_they_were, 0, 2);
	suite_add_tcase(suite, tcase);
	return suite;
}
