// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/funcname.h"

#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "tests/tests.h"

static const struct {
	const char *whole, *shortened;
} names[] = {
	/* C, and what is short already */
	{"main", "main"},
	{"", ""},
	{"session_new(int)", "session_new(int)"},
	{"operator new(unsigned long)", "operator new(unsigned long)"},
	{"operator new[](unsigned long)", "operator new[](unsigned long)"},
	{"std::vector<int>::clear()", "std::vector<int>::clear()"},
	/* arguments and parameters */
	{"std::vector<char*, std::allocator<char*> >::push_back(char*&&)",
	 "std::vector<...>::push_back(char*&&)"},
	{"std::map<int, Row, std::less<int> >::at(int const&, unsigned long, char)",
	 "std::map<...>::at(...)"},
	{"f(std::vector<int, std::allocator<int> > const&) const", "f(...) const"},
	{"f(std::vector<int, std::allocator<int> > const&) [clone .isra.0]",
	 "f(...) [clone .isra.0]"},
	/* return types */
	{"int* std::copy<int*>(int*, int*, int*)", "std::copy<int*>(int*, int*, int*)"},
	{"std::vector<int, std::allocator<int> > make<int>()", "make<int>()"},
	{"unsigned long (anonymous namespace)::f<int>(int)", "(anonymous namespace)::f<int>(int)"},
	/* operators, whose brackets are none */
	{"std::ostream& operator<< <std::char_traits<char> >(std::ostream&, char const*)",
	 "operator<< <...>(...)"},
	{"A::operator()(int, std::vector<int> const&) const", "A::operator()(...) const"},
	{"A::operator->() const", "A::operator->() const"},
	{"bool operator< <int>(A<int> const&, A<int> const&)", "operator< <int>(...)"},
	{"X<&A::operator<>::f()", "X<&A::operator<>::f()"},
	{"my_operator<int, unsigned long>(int)", "my_operator<...>(int)"},
	{"f<decltype(g()->h())>(int)", "f<...>(int)"},
	/* Rust */
	{"<alloc::vec::Vec<T> as core::ops::Drop>::drop", "<...>::drop"},
	{"core::ops::function::FnOnce::call_once", "core::ops::function::FnOnce::call_once"},
	/* not understood: left alone */
	{"decltype(auto) f<int>()", "decltype(auto) f<int>()"},
	{"f<int", "f<int"},
	{"f(int", "f(int"},
	{"a > b) c <", "a > b) c <"},
};

START_TEST(names_are_shortened_to_this)
{
	CLEANUP(freep) char *got = funcname_shorten(names[_i].whole);

	ck_assert_str_eq(got, names[_i].shortened);
}
END_TEST

START_TEST(no_name_grows)
{
	static const char alphabet[] = "operator<>()new :-";
	char name[16];

	/* All texts over a few letters would be too many: a fixed walk through them. */
	for (uint32_t i = 0, state = 1; i < 20000; i++) {
		CLEANUP(freep) char *got = NULL;

		for (size_t k = 0; k + 1 < sizeof(name); k++) {
			state = state * 1664525 + 1013904223;
			name[k] = alphabet[(state >> 16) % (sizeof(alphabet) - 1)];
		}
		name[sizeof(name) - 1] = '\0';
		got = funcname_shorten(name);
		ck_assert_msg(strlen(got) <= strlen(name), "%s became %s", name, got);
	}
}
END_TEST

START_TEST(hostile_names_take_linear_time)
{
	static char name[1 << 20];
	CLEANUP(freep) char *got = NULL;

	memset(name, '<', sizeof(name) - 1);
	got = funcname_shorten(name);
	ck_assert_str_eq(got, name);
	ck_assert(!funcname_is_standard(name));
}
END_TEST

START_TEST(standard_libraries_are_known)
{
	ck_assert(funcname_is_standard("std::thread::join()"));
	ck_assert(funcname_is_standard("int* std::copy<int*>(int*, int*, int*)"));
	ck_assert(funcname_is_standard("<alloc::vec::Vec<T> as core::clone::Clone>::clone"));
	ck_assert(!funcname_is_standard("store::std::f()"));
	ck_assert(!funcname_is_standard("f(std::vector<int>)"));
	ck_assert(!funcname_is_standard("std::vector<int> make(int)"));
	ck_assert(!funcname_is_standard("malloc"));
}
END_TEST

Suite *funcname_suite(void)
{
	Suite *suite = suite_create("funcname");
	TCase *tcase = tcase_create("funcname");

	tcase_add_loop_test(tcase, names_are_shortened_to_this, 0, ARRAY_SIZE(names));
	tcase_add_test(tcase, no_name_grows);
	tcase_add_test(tcase, hostile_names_take_linear_time);
	tcase_add_test(tcase, standard_libraries_are_known);
	suite_add_tcase(suite, tcase);
	return suite;
}
