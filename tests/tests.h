/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What all tests share: the declarations of the suites, assertions on
 * `struct error *`, and where the build put things.
 */
#ifndef TESTS_TESTS_H
#define TESTS_TESTS_H

#include "resolver/error.h"

#include <check.h>

/* Under the address sanitizer, which maps terabytes and is slow to fork; clang has no macro. */
#ifdef __has_feature
#define TESTS_ASAN __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define TESTS_ASAN 1
#else
#define TESTS_ASAN 0
#endif

/*
 * Check writes a record to a file for each assertion that holds, to say where a
 * test was that crashed. The first time at each place will do: some are passed
 * millions of times.
 */
#define _mark_point(file, line)                    \
	({                                         \
		static bool marked_;               \
		if (!marked_)                      \
			(_mark_point)(file, line); \
		marked_ = true;                    \
	})

#define SUITE(name)	    Suite *name##_suite(void);
#define PURE_SUITE(name)    SUITE(name)
#define ORACLE_SUITE(name)  SUITE(name)
#define SYSTEM_SUITE(name)  SUITE(name)
#define PATIENT_SUITE(name) SUITE(name)
#include "tests/suites.h"
#undef SUITE
#undef PURE_SUITE
#undef ORACLE_SUITE
#undef SYSTEM_SUITE
#undef PATIENT_SUITE

/* The expression returns a struct error *: fail with its message unless it is NULL. */
#define assert_ok(expression)                                                        \
	do {                                                                         \
		struct error *ok_err_ = (expression);                                \
		if (ok_err_)                                                         \
			ck_abort_msg("%s: %s", #expression, error_message(ok_err_)); \
	} while (0)

/* The expression must return an error with this code; it is freed. */
#define assert_fails(expression, expected)                                                \
	do {                                                                              \
		struct error *fail_err_ = (expression);                                   \
		ck_assert_msg(fail_err_ != NULL, "%s: no error", #expression);            \
		ck_assert_msg(error_code(fail_err_) == (expected), "%s: %s", #expression, \
			      error_message(fail_err_));                                  \
		error_free(fail_err_);                                                    \
	} while (0)

/*
 * Absolute path of something below the build directory that this runner was
 * built in, e.g. tests_build_path("targets/%s", "storm"). malloc'ed.
 */
char *tests_build_path(const char *format, ...) PRINTF(1, 2);

/* Absolute path below the source tree. malloc'ed. */
char *tests_source_path(const char *format, ...) PRINTF(1, 2);

/* The whole of a file, NUL-terminated, malloc'ed; NULL if it cannot be read. */
char *tests_read_file(const char *path);

/*
 * How often a test repeats what could go wrong once in a while: @usual, or as
 * the environment variable HEAPATTACH_TESTS_CYCLES says (make check-long).
 */
int tests_cycles(int usual);

/* Sleep, signals or not. */
void wait_ms(unsigned int ms);
/* Milliseconds of CLOCK_MONOTONIC. */
double now_ms(void);

#endif
