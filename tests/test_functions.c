// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/functions.h"
#include "tests/tests.h"

#include <stdio.h>
#include <string.h>

START_TEST(finds_each_function_at_its_index)
{
	for (size_t i = 0; i < functions_count(); i++)
		ck_assert_int_eq(functions_find(functions_get(i)->name), (int)i);
}
END_TEST

START_TEST(finds_no_other_names)
{
	static const char *const others[] = {"",	 "m",	   "mallo",  "malloc2",
					     "_Z",	 "_Zn",	   "_ZnwmX", "freelocale",
					     "mallinfo", "strdup", "je_",    "xmalloc"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert_int_eq(functions_find(others[i]), -1);
	ck_assert_ptr_null(functions_get(functions_count()));
}
END_TEST

START_TEST(ranks_releases_before_allocations)
{
	for (size_t i = 0; i < functions_count(); i++) {
		const struct function *function = functions_get(i);

		if (function->class == HA_CLASS_FREE)
			ck_assert_int_eq(function->rank, FUNCTION_RANK_FREE);
		else
			ck_assert_int_gt(function->rank, FUNCTION_RANK_FREE);
		if (function_releases(function) && function_allocates(function))
			ck_assert_int_eq(function->rank, FUNCTION_RANK_REALLOC);
	}
}
END_TEST

START_TEST(gives_each_throwing_new_its_nothrow_twin)
{
	size_t throwing = 0;

	for (size_t i = 0; i < functions_count(); i++) {
		const struct function *function = functions_get(i);
		char expected[64];

		if (!function->throws) {
			ck_assert_int_eq(function->twin, -1);
			continue;
		}
		throwing++;
		snprintf(expected, sizeof(expected), "%sRKSt9nothrow_t", function->name);
		ck_assert_int_ge(function->twin, 0);
		ck_assert_str_eq(functions_get((size_t)function->twin)->name, expected);
		ck_assert(!functions_get((size_t)function->twin)->throws);
	}
	ck_assert_uint_eq(throwing, 4);
}
END_TEST

START_TEST(knows_how_arguments_are_passed)
{
	static const struct {
		const char *name;
		enum ha_class class;
	} known[] = {
		{"malloc", HA_CLASS_ALLOC},
		{"calloc", HA_CLASS_CALLOC},
		{"memalign", HA_CLASS_ALIGNED},
		{"posix_memalign", HA_CLASS_POSIX_MEMALIGN},
		{"reallocarray", HA_CLASS_REALLOCARRAY},
		{"xallocx", HA_CLASS_XALLOCX},
		{"rallocx", HA_CLASS_REALLOC},
		{"sdallocx", HA_CLASS_FREE},
		{"_ZnwmSt11align_val_t", HA_CLASS_ALLOC}, /* size first */
		{"_ZdaPvmSt11align_val_t", HA_CLASS_FREE},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		int index = functions_find(known[i].name);

		ck_assert_int_ge(index, 0);
		ck_assert_int_eq(functions_get((size_t)index)->class, known[i].class);
	}
}
END_TEST

Suite *functions_suite(void)
{
	Suite *suite = suite_create("functions");
	TCase *tcase = tcase_create("table");

	tcase_add_test(tcase, finds_each_function_at_its_index);
	tcase_add_test(tcase, finds_no_other_names);
	tcase_add_test(tcase, ranks_releases_before_allocations);
	tcase_add_test(tcase, gives_each_throwing_new_its_nothrow_twin);
	tcase_add_test(tcase, knows_how_arguments_are_passed);
	suite_add_tcase(suite, tcase);
	return suite;
}
