/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The test runner: all suites in one process of Check, so that there is one
 * closing line.
 *
 *	run [unit|system]
 *
 * Check's variables apply: CK_RUN_SUITE, CK_RUN_CASE, CK_FORK, CK_VERBOSITY,
 * CK_TIMEOUT_MULTIPLIER. Exits with 0 if at least one test ran and none failed.
 */
#include "tests/tests.h"

#include "tests/e2e.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	const char *name;
	Suite *(*create)(void);
	bool system;
};

static const struct entry entries[] = {
#define SUITE(name)	   {#name, name##_suite, false},
#define SYSTEM_SUITE(name) {#name, name##_suite, true},
#include "tests/suites.h"
#undef SUITE
#undef SYSTEM_SUITE
};

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : NULL;
	SRunner *runner = srunner_create(NULL);
	struct folder folder;
	int ran, failed;

	if (argc > 2 || (kind && strcmp(kind, "unit") != 0 && strcmp(kind, "system") != 0)) {
		fprintf(stderr, "usage: %s [unit|system]\n", argv[0]);
		return 2;
	}
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (!kind || entries[i].system == (strcmp(kind, "system") == 0))
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
