// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/demangle.h"

#include "resolver/cleanup.h"
#include "tests/tests.h"

#include <string.h>

static void check_name(const char *mangled, const char *expected)
{
	CLEANUP(freep) char *name = demangle(mangled);

	ck_assert_msg(name != NULL, "%s: not demangled", mangled);
	ck_assert_str_eq(name, expected);
}

static void check_refused(const char *mangled)
{
	CLEANUP(freep) char *name = demangle(mangled);

	ck_assert_msg(name == NULL, "%.40s: became %.40s", mangled, name);
}

START_TEST(demangles_cxx)
{
	check_name("_Znwm", "operator new(unsigned long)");
	check_name("_ZNKSt6vectorIiSaIiEE4sizeEv",
		   "std::vector<int, std::allocator<int> >::size() const");
	check_name("_ZN12_GLOBAL__N_16hiddenEi", "(anonymous namespace)::hidden(int)");
}
END_TEST

START_TEST(keeps_clone_suffixes)
{
	check_name("_Z3foov.part.0", "foo() [clone .part.0]");
	check_name("_Z3foov.constprop.0.cold", "foo() [clone .constprop.0] [clone .cold]");
}
END_TEST

START_TEST(demangles_rust_legacy_without_its_hash)
{
	check_name("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
		   "core::fmt::Write::write_fmt");
	check_name("_ZN56_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..Clone$GT$"
		   "5clone17h0123456789abcdefE",
		   "<alloc::vec::Vec<T> as core::Clone>::clone");
}
END_TEST

START_TEST(demangles_rust_v0)
{
	check_name("_RNvC6_123foo3bar", "123foo::bar");
	check_name("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>");
}
END_TEST

START_TEST(leaves_other_names_alone)
{
	check_refused("");
	check_refused("main");
	check_refused("_start");
	check_refused("_Z");
	check_refused("_ZN");
	check_refused("_R");
	check_refused("_Zmalformed");
	check_refused("_init");
	check_refused("i");
}
END_TEST

/* Each argument is a pair of the one before it, twice: 2^n words in n steps. */
static char *doubling_name(int steps)
{
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	char *name = malloc(64 + (size_t)steps * 16);
	char *end = name + sprintf(name, "_Z1f1pIiiE");

	/* S_ is p, S0_ is p<int, int>, and each further one is the next. */
	for (int i = 0; i < steps; i++)
		end += sprintf(end, "S_IS%c_S%c_E", digits[i], digits[i]);
	return name;
}

START_TEST(gives_up_on_names_that_explode)
{
	CLEANUP(freep) char *small = doubling_name(3);
	CLEANUP(freep) char *large = doubling_name(30);
	CLEANUP(freep) char *name = demangle(small);

	ck_assert_msg(name != NULL, "%s: not demangled", small);
	ck_assert_uint_lt(strlen(name), DEMANGLE_MAX_OUTPUT);
	check_refused(large);
}
END_TEST

static char *repeated(const char *prefix, char letter, size_t count, const char *suffix)
{
	size_t size = strlen(prefix);
	char *name = malloc(size + count + strlen(suffix) + 1);

	memcpy(name, prefix, size);
	memset(name + size, letter, count);
	strcpy(name + size + count, suffix);
	return name;
}

START_TEST(refuses_names_that_are_too_long)
{
	CLEANUP(freep) char *name = repeated("_Z1f", 'i', DEMANGLE_MAX_INPUT, "");

	check_refused(name);
}
END_TEST

START_TEST(demangles_long_names)
{
	CLEANUP(freep) char *name = repeated("_Z4000", 'f', 4000, "v");
	CLEANUP(freep) char *readable = demangle(name);

	ck_assert_ptr_nonnull(readable);
	ck_assert_uint_eq(strlen(readable), 4000 + strlen("()"));
}
END_TEST

START_TEST(survives_the_deepest_nesting)
{
	static const char letters[] = "PRKOFAGMNXSTCDJL";

	for (const char *letter = letters; *letter; letter++) {
		CLEANUP(freep) char *name = repeated("_Z1f", *letter, DEMANGLE_MAX_INPUT - 5, "i");
		CLEANUP(freep)
		char *rust = repeated("_RNvC1f", *letter, DEMANGLE_MAX_INPUT - 8, "i");

		free(demangle(name));
		free(demangle(rust));
	}
}
END_TEST

Suite *demangle_suite(void)
{
	Suite *suite = suite_create("demangle");
	TCase *tcase = tcase_create("names");

	tcase_add_test(tcase, demangles_cxx);
	tcase_add_test(tcase, keeps_clone_suffixes);
	tcase_add_test(tcase, demangles_rust_legacy_without_its_hash);
	tcase_add_test(tcase, demangles_rust_v0);
	tcase_add_test(tcase, leaves_other_names_alone);
	tcase_add_test(tcase, gives_up_on_names_that_explode);
	tcase_add_test(tcase, refuses_names_that_are_too_long);
	tcase_add_test(tcase, demangles_long_names);
	tcase_add_test(tcase, survives_the_deepest_nesting);
	suite_add_tcase(suite, tcase);
	return suite;
}
