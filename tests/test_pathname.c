// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/pathname.h"

#include "resolver/cleanup.h"
#include "tests/tests.h"

static void check_clean(const char *directory, const char *file, const char *expected)
{
	CLEANUP(freep) char *path = pathname_clean(directory, file);

	ck_assert_str_eq(path, expected);
}

START_TEST(joins_relative_names_only)
{
	check_clean("/src", "a.c", "/src/a.c");
	check_clean("/src", "/usr/include/a.h", "/usr/include/a.h");
	check_clean(NULL, "a.c", "a.c");
}
END_TEST

START_TEST(takes_out_what_goes_nowhere)
{
	check_clean("/src/lib", "../include/./a.h", "/src/include/a.h");
	check_clean(NULL, "/a//b/./c/", "/a/b/c");
	check_clean(NULL, "./csu/../libio/libioP.h", "libio/libioP.h");
	check_clean(NULL, "a/b/../../c.c", "c.c");
}
END_TEST

START_TEST(stops_at_the_root_and_keeps_parents_of_relative_names)
{
	check_clean(NULL, "/../../a.c", "/a.c");
	check_clean(NULL, "../../a.c", "../../a.c");
	check_clean(NULL, "a/../../b.c", "../b.c");
	check_clean(NULL, "/", "/");
	check_clean(NULL, "", "");
	check_clean(NULL, "...", "...");
}
END_TEST

Suite *pathname_suite(void)
{
	Suite *suite = suite_create("pathname");
	TCase *tcase = tcase_create("clean");

	tcase_add_test(tcase, joins_relative_names_only);
	tcase_add_test(tcase, takes_out_what_goes_nowhere);
	tcase_add_test(tcase, stops_at_the_root_and_keeps_parents_of_relative_names);
	suite_add_tcase(suite, tcase);
	return suite;
}
