/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/tests.h"

#include <errno.h>
#include <string.h>

START_TEST(keeps_code_and_message)
{
	struct error *err = error_create(ERROR_FORMAT, "%s: bad magic at %d", "file", 16);

	ck_assert(error_is(err, ERROR_FORMAT));
	ck_assert_str_eq(error_message(err), "file: bad magic at 16");
	ck_assert_int_eq(error_errno(err), 0);
	ck_assert_ptr_null(error_hint_text(err));
	error_free(err);
}
END_TEST

START_TEST(os_error_names_the_errno)
{
	struct error *err = error_os(ENOSPC, "write %s", "x.hap");

	ck_assert(error_is(err, ERROR_OS));
	ck_assert_int_eq(error_errno(err), ENOSPC);
	ck_assert_str_eq(error_message(err), "write x.hap: No space left on device");
	error_free(err);
}
END_TEST

START_TEST(os_error_tells_denied_and_gone)
{
	assert_fails(error_os(EPERM, "attach"), ERROR_DENIED);
	assert_fails(error_os(EACCES, "attach"), ERROR_DENIED);
	assert_fails(error_os(ESRCH, "attach"), ERROR_GONE);
}
END_TEST

START_TEST(prefix_keeps_code_errno_and_hint)
{
	struct error *err = error_hint(error_os(EPERM, "attach"), "run as root");

	err = error_prefix(err, "process %d", 42);
	ck_assert(error_is(err, ERROR_DENIED));
	ck_assert_int_eq(error_errno(err), EPERM);
	ck_assert_str_eq(error_message(err), "process 42: attach: Operation not permitted");
	ck_assert_str_eq(error_hint_text(err), "run as root");
	error_free(err);
}
END_TEST

START_TEST(no_error_stays_no_error)
{
	ck_assert_ptr_null(error_prefix(NULL, "x"));
	ck_assert_ptr_null(error_hint(NULL, "x"));
	ck_assert(!error_is(NULL, ERROR_OS));
	error_free(NULL);
}
END_TEST

START_TEST(out_of_memory_needs_no_memory)
{
	struct error *err = error_memory();

	ck_assert(error_is(err, ERROR_MEMORY));
	ck_assert_int_gt(strlen(error_message(err)), 0);
	err = error_prefix(err, "while reading maps");
	ck_assert(error_is(err, ERROR_MEMORY));
	error_free(err);
	error_free(error_memory());
}
END_TEST

Suite *error_suite(void)
{
	Suite *suite = suite_create("error");
	TCase *tcase = tcase_create("error");

	tcase_add_test(tcase, keeps_code_and_message);
	tcase_add_test(tcase, os_error_names_the_errno);
	tcase_add_test(tcase, os_error_tells_denied_and_gone);
	tcase_add_test(tcase, prefix_keeps_code_errno_and_hint);
	tcase_add_test(tcase, no_error_stays_no_error);
	tcase_add_test(tcase, out_of_memory_needs_no_memory);
	suite_add_tcase(suite, tcase);
	return suite;
}
