/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The matrix: processes that are confined, limited, or in an odd state.
 */
#include "resolver/cleanup.h"
#include "tests/cgroup.h"
#include "tests/matrix.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>

static struct matrix matrix;
static struct cgroup cgroup;

static void setup(void)
{
	matrix_setup(&matrix);
}

static void teardown(void)
{
	matrix_teardown(&matrix);
	cgroup_remove(&cgroup);
}

/* ---- whose it is, and what it can see */

START_TEST(works_on_another_users_process)
{
	matrix_start(&matrix, "witness user");
	matrix_row_works(&matrix, "another user's process");
}
END_TEST

START_TEST(works_on_a_process_that_may_not_be_dumped)
{
	matrix_start(&matrix, "witness undumpable");
	matrix_row_works(&matrix, "process that may not be dumped");
}
END_TEST

static const char *empty_folder(void)
{
	const char *path = folder_file(&matrix.folder, "root");

	ck_assert_int_eq(mkdir(path, 0755), 0);
	return path;
}

START_TEST(works_on_a_process_with_an_empty_root)
{
	matrix_start(&matrix, "witness chroot %s", empty_folder());
	matrix_row_works(&matrix, "chroot to an empty folder");
}
END_TEST

START_TEST(works_on_process_1_of_its_own_namespaces)
{
	matrix_start(&matrix, "witness spaces %s", empty_folder());
	matrix_row_works(&matrix, "namespaces of its own, empty root, process 1");
}
END_TEST

/* ---- stopped, frozen, traced */

static void stop_leftover(void)
{
	CLEANUP(run_deinit) struct run stop = {0};

	run_program(&stop, &matrix.folder, "stop -p %d", matrix.pid);
	ck_assert_msg(stop.status == 0, "%s", stop.err);
	ck_assert_ptr_nonnull(strstr(stop.out, "is clean"));
}

/* A thread that we let go stops again by itself. */
static void expect_stopped(void)
{
	for (int i = 0; procstate_state(matrix.pid) != 'T'; i++) {
		ck_assert_int_lt(i, 2000);
		wait_ms(5);
	}
}

START_TEST(works_on_a_process_that_a_signal_has_stopped)
{
	matrix_start(&matrix, "witness -i");
	ck_assert_int_eq(kill(matrix.pid, SIGSTOP), 0);
	matrix_record(&matrix, "");
	expect_stopped();
	ck_assert_int_eq(kill(matrix.pid, SIGCONT), 0);
	matrix_check(&matrix);
	matrix_keep(&matrix);
	ck_assert_int_eq(kill(matrix.pid, SIGSTOP), 0);
	ck_assert_int_eq(kill(matrix.run.child.pid, SIGINT), 0);
	run_finish(&matrix.run, 60);
	expect_stopped();
	ck_assert_int_eq(kill(matrix.pid, SIGCONT), 0);
	/* A thread may have been stopped in our code: then it says so. */
	if (matrix.run.err[0]) {
		ck_assert_ptr_nonnull(strstr(matrix.run.err, "stands still in our code"));
		stop_leftover();
	}
	CLEANUP(json_freep)
	struct json *report =
		run_report_json(&matrix.folder, folder_file(&matrix.folder, "row.hap"));
	matrix_expect_kept(&matrix, report);
	matrix_expect_unharmed(&matrix);
	matrix_tell("stopped by SIGSTOP, at both ends", "works, and stays stopped");
}
END_TEST

START_TEST(is_refused_while_frozen)
{
	matrix_start(&matrix, "witness -i");
	if (!cgroup_create(&cgroup, CGROUP_FREEZER)) {
		matrix_left_out("frozen cgroup", "no cgroup can be made here");
		return;
	}
	cgroup_enter(&cgroup, matrix.pid);
	cgroup_freeze(&cgroup, true);
	matrix_attach_refused(&matrix, "is frozen by its cgroup");
	cgroup_freeze(&cgroup, false);
	matrix_expect_unharmed(&matrix);
	matrix_tell("frozen cgroup", "refused: is frozen by its cgroup");
}
END_TEST

START_TEST(is_left_passing_calls_on_if_frozen_at_the_end)
{
	matrix_start(&matrix, "witness -i");
	if (!cgroup_create(&cgroup, CGROUP_FREEZER)) {
		matrix_left_out("frozen while attached", "no cgroup can be made here");
		return;
	}
	cgroup_enter(&cgroup, matrix.pid);
	matrix_record(&matrix, "");
	matrix_keep(&matrix);
	cgroup_freeze(&cgroup, true);
	ck_assert_int_eq(kill(matrix.run.child.pid, SIGINT), 0);
	run_finish(&matrix.run, 20);
	ck_assert_int_eq(matrix.run.status, 0);
	ck_assert_ptr_nonnull(strstr(matrix.run.err, "is frozen by its cgroup"));
	cgroup_freeze(&cgroup, false);
	matrix_check(&matrix);
	stop_leftover();
	matrix_expect_unharmed(&matrix);
	matrix_tell("frozen while attached",
		    "works: hooks pass on, `stop` takes them out when it runs");
}
END_TEST

static void tool_start(struct child *tool, const char *const argv[])
{
	child_start(tool, &matrix.folder, NULL, argv);
	for (int i = 0; i < 1000 && !procstate_status(matrix.pid, "TracerPid", 10); i++)
		wait_ms(10);
	ck_assert_uint_ne(procstate_status(matrix.pid, "TracerPid", 10), 0);
}

/* Tools interrupt calls themselves. */
START_TEST(is_refused_under_strace)
{
	char pid[16];
	const char *const argv[] = {"strace", "-q", "-f", "-o", "/dev/null", "-p", pid, NULL};
	CLEANUP(child_end) struct child tool = {0};

	matrix_start(&matrix, "witness -i");
	snprintf(pid, sizeof(pid), "%d", matrix.pid);
	tool_start(&tool, argv);
	matrix_attach_refused(&matrix, "(strace)");
	ck_assert_int_eq(kill(tool.pid, SIGTERM), 0);
	ck_assert_int_ge(child_wait(&tool, 20000), 0);
	matrix_expect_unharmed(&matrix);
	matrix_tell("strace on it", "refused: is being traced by process N (strace)");
}
END_TEST

START_TEST(is_refused_under_gdb)
{
	char pid[16];
	const char *const argv[] = {"gdb", "-q", "-nx", "-p", pid, NULL};
	CLEANUP(child_end) struct child tool = {0};

	matrix_start(&matrix, "witness -i");
	snprintf(pid, sizeof(pid), "%d", matrix.pid);
	tool_start(&tool, argv);
	matrix_attach_refused(&matrix, "(gdb)");
	child_send(&tool, "detach");
	child_send(&tool, "quit");
	ck_assert_int_eq(child_wait(&tool, 30000), 0);
	matrix_expect_unharmed(&matrix);
	matrix_tell("gdb on it", "refused: is being traced by process N (gdb)");
}
END_TEST

START_TEST(strace_works_while_recording)
{
	char pid[16];
	const char *const argv[] = {"strace", "-q", "-f", "-o", "/dev/null", "-p", pid, NULL};
	CLEANUP(child_end) struct child tool = {0};

	matrix_start(&matrix, "witness -i");
	matrix_record(&matrix, "");
	snprintf(pid, sizeof(pid), "%d", matrix.pid);
	tool_start(&tool, argv);
	matrix_keep(&matrix);
	matrix_check(&matrix);
	ck_assert_int_eq(kill(tool.pid, SIGTERM), 0);
	ck_assert_int_ge(child_wait(&tool, 20000), 0);
	CLEANUP(json_freep) struct json *report = matrix_record_end(&matrix);
	matrix_expect_kept(&matrix, report);
	matrix_expect_unharmed(&matrix);
	matrix_tell("strace comes while recording, and goes", "works");
}
END_TEST

START_TEST(is_refused_while_another_heapattach_records)
{
	CLEANUP(run_deinit) struct run first = {0};

	matrix_start(&matrix, "witness");
	matrix_record(&matrix, "");
	first = matrix.run;
	matrix.run = (struct run){0};
	matrix_attach_refused(&matrix, "is being profiled by heapattach process");
	matrix_keep(&matrix);
	run_deinit(&matrix.run);
	matrix.run = first;
	first = (struct run){0};
	CLEANUP(json_freep) struct json *report = matrix_record_end(&matrix);
	matrix_expect_kept(&matrix, report);
	matrix_expect_unharmed(&matrix);
	matrix_tell("another heapattach on it",
		    "refused: is being profiled by heapattach process N already");
}
END_TEST

START_TEST(one_of_two_attaches_at_once_is_refused)
{
	CLEANUP(run_deinit) struct run first = {0}, second = {0};

	matrix_start(&matrix, "witness");
	for (int i = 0; i < 8; i++) {
		const char *name = folder_file(&matrix.folder, "both-%d", i);
		const struct run *loser;

		run_start(&first, &matrix.folder, "-p %d --exact -q -d 1 -o %s.1", matrix.pid,
			  name);
		wait_ms((unsigned int)i * 8);
		run_start(&second, &matrix.folder, "-p %d --exact -q -d 1 -o %s.2", matrix.pid,
			  name);
		run_finish(&first, 60);
		run_finish(&second, 60);
		ck_assert_msg(first.status + second.status == 1, "%d, %d: %s%s", first.status,
			      second.status, first.err, second.err);
		loser = first.status ? &first : &second;
		ck_assert_msg(strstr(loser->err, "is being profiled by heapattach process"), "%s",
			      loser->err);
		run_deinit(&first);
		run_deinit(&second);
		matrix_check(&matrix);
	}
	matrix_expect_unharmed(&matrix);
	matrix_tell("two attaches at once", "works for one, the other is refused");
}
END_TEST

/* ---- memory is short */

START_TEST(report_of_what_the_oom_killer_killed_is_complete)
{
	matrix_start(&matrix, "witness");
	if (!cgroup_create(&cgroup, CGROUP_MEMORY)) {
		matrix_left_out("killed by its cgroup's OOM killer", "no cgroup can be made here");
		return;
	}
	cgroup_enter(&cgroup, matrix.pid);
	cgroup_limit_memory(&cgroup, 24u << 20);
	matrix_record(&matrix, "");
	matrix_keep(&matrix);
	child_send(&matrix.target, "fill");
	ck_assert_int_eq(child_wait(&matrix.target, 60000), 128 + SIGKILL);
	run_finish(&matrix.run, 60);
	ck_assert_msg(matrix.run.status == 0, "%s", matrix.run.err);
	CLEANUP(json_freep)
	struct json *report =
		run_report_json(&matrix.folder, folder_file(&matrix.folder, "row.hap"));
	matrix_expect_kept(&matrix, report);
	ck_assert_uint_ge(matrix_blocks(report, "fill_memory"), 100);
	matrix_tell("killed by its cgroup's OOM killer", "works: the report is complete");
}
END_TEST

START_TEST(works_where_memory_is_limited)
{
	matrix_start(&matrix, "witness");
	if (!cgroup_create(&cgroup, CGROUP_MEMORY)) {
		matrix_left_out("memory cgroup at its limit", "no cgroup can be made here");
		return;
	}
	cgroup_enter(&cgroup, matrix.pid);
	/* What it has already is charged elsewhere. */
	cgroup_limit_memory(&cgroup, 4u << 20);
	matrix_row_works(&matrix, "memory cgroup with 4 MiB");
}
END_TEST

/* ---- limits */

START_TEST(works_with_five_descriptors_left)
{
	matrix_start(&matrix, "witness nofile=5");
	matrix_row_works(&matrix, "RLIMIT_NOFILE, 5 descriptors left");
}
END_TEST

START_TEST(is_refused_without_descriptors)
{
	matrix_start(&matrix, "witness nofile=%d", _i);
	matrix_row_refused(&matrix, "RLIMIT_NOFILE reached", "RLIMIT_NOFILE");
}
END_TEST

START_TEST(is_refused_without_address_space)
{
	matrix_start(&matrix, "witness as=100");
	matrix_row_refused(&matrix, "RLIMIT_AS reached", "RLIMIT_AS");
}
END_TEST

START_TEST(works_where_no_file_may_be_written)
{
	matrix_start(&matrix, "witness fsize");
	matrix_row_works(&matrix, "RLIMIT_FSIZE 0");
}
END_TEST

START_TEST(works_where_no_thread_may_be_started)
{
	matrix_start(&matrix, "witness nproc");
	matrix_row_works(&matrix, "RLIMIT_NPROC reached");
}
END_TEST

START_TEST(works_on_a_daemon_that_has_closed_everything)
{
	matrix_start(&matrix, "witness closed");
	matrix_row_works(&matrix, "daemonised, all descriptors closed");
}
END_TEST

Suite *attach_matrix_suite(void)
{
	Suite *suite = suite_create("attach_matrix");
	TCase *confined = tcase_create("confined"), *limits = tcase_create("limits");
	TCase *held = tcase_create("held");

	tcase_add_checked_fixture(confined, setup, teardown);
	tcase_set_timeout(confined, 60);
	tcase_add_test(confined, works_on_another_users_process);
	tcase_add_test(confined, works_on_a_process_that_may_not_be_dumped);
	tcase_add_test(confined, works_on_a_process_with_an_empty_root);
	tcase_add_test(confined, works_on_process_1_of_its_own_namespaces);
	suite_add_tcase(suite, confined);

	tcase_add_checked_fixture(held, setup, teardown);
	tcase_set_timeout(held, 120);
	tcase_add_test(held, works_on_a_process_that_a_signal_has_stopped);
	tcase_add_test(held, is_refused_while_frozen);
	tcase_add_test(held, is_left_passing_calls_on_if_frozen_at_the_end);
	tcase_add_test(held, is_refused_under_strace);
	tcase_add_test(held, is_refused_under_gdb);
	tcase_add_test(held, strace_works_while_recording);
	tcase_add_test(held, is_refused_while_another_heapattach_records);
	tcase_add_test(held, one_of_two_attaches_at_once_is_refused);
	suite_add_tcase(suite, held);

	tcase_add_checked_fixture(limits, setup, teardown);
	tcase_set_timeout(limits, 60);
	tcase_add_test(limits, works_with_five_descriptors_left);
	tcase_add_loop_test(limits, is_refused_without_descriptors, 0, 5);
	tcase_add_test(limits, is_refused_without_address_space);
	tcase_add_test(limits, report_of_what_the_oom_killer_killed_is_complete);
	tcase_add_test(limits, works_where_memory_is_limited);
	tcase_add_test(limits, works_where_no_file_may_be_written);
	tcase_add_test(limits, works_where_no_thread_may_be_started);
	tcase_add_test(limits, works_on_a_daemon_that_has_closed_everything);
	suite_add_tcase(suite, limits);
	return suite;
}
