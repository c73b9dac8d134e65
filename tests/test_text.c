// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/text.h"

#include "resolver/cleanup.h"
#include "tests/tests.h"

#include <string.h>

static void check_printable(const char *text, const char *expected)
{
	CLEANUP(freep) char *printable = text_printable(text);
	CLEANUP(freep) char *printed = NULL;
	size_t size;
	FILE *out = open_memstream(&printed, &size);

	ck_assert_str_eq(printable, expected);
	text_print(out, text);
	fclose(out);
	ck_assert_str_eq(printed, expected);
	ck_assert_int_eq(text_is_printable(text), strcmp(text, expected) == 0);
}

START_TEST(keeps_ascii_and_utf8)
{
	check_printable("", "");
	check_printable("std::map<int, char*>::find(\\n)", "std::map<int, char*>::find(\\n)");
	check_printable("f\xc3\xbc\xe2\x82\xac\xf0\x9f\x90\x9b",
			"f\xc3\xbc\xe2\x82\xac\xf0\x9f\x90\x9b");
}
END_TEST

START_TEST(escapes_what_moves_the_cursor)
{
	check_printable("a\nb\tc\x7f", "a\\x0ab\\x09c\\x7f");
	check_printable("\x1b]0;title\x07", "\\x1b]0;title\\x07");
	/* U+009B, which some terminals take for ESC [ */
	check_printable("\xc2\x9b"
			"31m",
			"\\xc2\\x9b31m");
}
END_TEST

START_TEST(escapes_what_reorders_a_line)
{
	check_printable("\xe2\x80\xae"
			"abc",
			"\\xe2\\x80\\xaeabc");
	check_printable("\xe2\x81\xa6x", "\\xe2\\x81\\xa6x");
	check_printable("\xe2\x80\xa8", "\\xe2\\x80\\xa8");
}
END_TEST

START_TEST(escapes_malformed_utf8_byte_by_byte)
{
	check_printable("\xff\xfe", "\\xff\\xfe");
	check_printable("\xc0\xaf", "\\xc0\\xaf");		     /* overlong / */
	check_printable("\xe0\x80\xaf", "\\xe0\\x80\\xaf");	     /* overlong / */
	check_printable("\xed\xa0\x80", "\\xed\\xa0\\x80");	     /* a surrogate */
	check_printable("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* above U+10FFFF */
	check_printable("x\xe2\x82", "x\\xe2\\x82");		     /* cut short */
	check_printable("\xe2\x82(", "\\xe2\\x82(");
}
END_TEST

START_TEST(measures_utf8_within_the_size_given)
{
	ck_assert_uint_eq(text_utf8_length("", 0), 0);
	ck_assert_uint_eq(text_utf8_length("a", 1), 1);
	ck_assert_uint_eq(text_utf8_length("\xe2\x82\xac", 3), 3);
	ck_assert_uint_eq(text_utf8_length("\xe2\x82\xac", 2), 0);
	ck_assert_uint_eq(text_utf8_length("\xf0\x9f\x90\x9b", 4), 4);
}
END_TEST

Suite *text_suite(void)
{
	Suite *suite = suite_create("text");
	TCase *tcase = tcase_create("printable");

	tcase_add_test(tcase, keeps_ascii_and_utf8);
	tcase_add_test(tcase, escapes_what_moves_the_cursor);
	tcase_add_test(tcase, escapes_what_reorders_a_line);
	tcase_add_test(tcase, escapes_malformed_utf8_byte_by_byte);
	tcase_add_test(tcase, measures_utf8_within_the_size_given);
	suite_add_tcase(suite, tcase);
	return suite;
}
