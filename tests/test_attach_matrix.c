/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The matrix: processes that are confined, limited, or in an odd state.
 */
#include "resolver/cleanup.h"
#include "tests/matrix.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>

static struct matrix matrix;

static void setup(void)
{
	matrix_setup(&matrix);
}

static void teardown(void)
{
	matrix_teardown(&matrix);
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

	tcase_add_checked_fixture(confined, setup, teardown);
	tcase_set_timeout(confined, 60);
	tcase_add_test(confined, works_on_another_users_process);
	tcase_add_test(confined, works_on_a_process_that_may_not_be_dumped);
	tcase_add_test(confined, works_on_a_process_with_an_empty_root);
	tcase_add_test(confined, works_on_process_1_of_its_own_namespaces);
	suite_add_tcase(suite, confined);

	tcase_add_checked_fixture(limits, setup, teardown);
	tcase_set_timeout(limits, 60);
	tcase_add_test(limits, works_with_five_descriptors_left);
	tcase_add_loop_test(limits, is_refused_without_descriptors, 0, 5);
	tcase_add_test(limits, is_refused_without_address_space);
	tcase_add_test(limits, works_where_no_file_may_be_written);
	tcase_add_test(limits, works_where_no_thread_may_be_started);
	tcase_add_test(limits, works_on_a_daemon_that_has_closed_everything);
	suite_add_tcase(suite, limits);
	return suite;
}
