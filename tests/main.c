/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The test runner: all suites in one process of Check, so that there is one
 * closing line.
 *
 *	run [unit|pure|oracle|system|patient]...
 *
 * runs the suites of these kinds (tests/suites.h), all without an argument.
 * Check's variables apply: CK_RUN_SUITE, CK_RUN_CASE, CK_FORK, CK_VERBOSITY,
 * CK_TIMEOUT_MULTIPLIER. Exits with 0 if at least one test ran and none failed.
 */
#include "tests/tests.h"

#include "tests/e2e.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	const char *kind;
	Suite *(*create)(void);
};

static const struct entry entries[] = {
#define SUITE(name)	    {"unit", name##_suite},
#define PURE_SUITE(name)    {"pure", name##_suite},
#define ORACLE_SUITE(name)  {"oracle", name##_suite},
#define SYSTEM_SUITE(name)  {"system", name##_suite},
#define PATIENT_SUITE(name) {"patient", name##_suite},
#include "tests/suites.h"
#undef SUITE
#undef PURE_SUITE
#undef ORACLE_SUITE
#undef SYSTEM_SUITE
#undef PATIENT_SUITE
};

static bool is_kind(const char *word)
{
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (!strcmp(word, entries[i].kind))
			return true;
	}
	return false;
}

static bool is_asked_for(const struct entry *entry, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], entry->kind))
			return true;
	}
	return argc == 1;
}

int main(int argc, char **argv)
{
	SRunner *runner = srunner_create(NULL);
	struct folder folder;
	int ran, failed;

	for (int i = 1; i < argc; i++) {
		if (!is_kind(argv[i])) {
			fprintf(stderr, "usage: %s [unit|pure|oracle|system|patient]...\n",
				argv[0]);
			return 2;
		}
	}
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (is_asked_for(&entries[i], argc, argv))
			srunner_add_suite(runner, entries[i].create());
	}
	/* A test that fails leaves its folder: they all lie in this one. */
	if (!folder_try_create(&folder)) {
		perror("cannot create a folder in /tmp");
		return EXIT_FAILURE;
	}
	setenv(FOLDER_PARENT, folder.path, 1);
	srunner_run_all(runner, CK_ENV);
	folder_remove(&folder);
	ran = srunner_ntests_run(runner);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (!ran)
		fprintf(stderr, "%s: no test ran\n", argv[0]);
	return ran && !failed ? EXIT_SUCCESS : EXIT_FAILURE;
}
