/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The matrix: programs of other C libraries and languages, and programs whose
 * files are not what they were when it started.
 */
#include "resolver/cleanup.h"
#include "tests/matrix.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOADER	"ld-linux-x86-64.so.2"
#define LIBRARY "libc.so.6"

static struct matrix matrix;

static void setup(void)
{
	matrix_setup(&matrix);
}

static void teardown(void)
{
	matrix_teardown(&matrix);
}

/* ---- C libraries */

START_TEST(works_on_musl)
{
	matrix_start(&matrix, "witness_musl");
	matrix_row_works(&matrix, "musl, dynamically linked");
}
END_TEST

START_TEST(is_refused_on_static_musl)
{
	matrix_start(&matrix, "witness_musl_static");
	matrix_row_refused(&matrix, "musl, statically linked", "is statically linked");
}
END_TEST

START_TEST(is_refused_under_a_sanitizer)
{
	matrix_start(&matrix, "witness_asan");
	matrix_row_refused(&matrix, "built with AddressSanitizer",
			   "was built with AddressSanitizer");
}
END_TEST

/* The file that is mapped here under that name. */
static void copy_mapped(const char *name)
{
	CLEANUP(fclosep) FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], path[256] = "";

	ck_assert_ptr_nonnull(maps);
	while (!path[0] && fgets(line, sizeof(line), maps)) {
		line[strcspn(line, "\n")] = '\0';
		if (strstr(line, name))
			snprintf(path, sizeof(path), "%s", strchr(line, '/'));
	}
	ck_assert_msg(path[0], "no %s is mapped", name);
	free(command_run(&matrix.folder, NULL, 20, "cp %s %s", path, name));
}

static void copy_program(void)
{
	CLEANUP(freep) char *path = tests_build_path("targets/witness");

	free(command_run(&matrix.folder, NULL, 20, "cp %s witness", path));
}

static void start_privately(void)
{
	const char *const argv[] = {"./" LOADER, "--library-path", ".", "./witness", NULL};

	copy_mapped(LOADER);
	copy_mapped(LIBRARY);
	copy_program();
	matrix_start_argv(&matrix, argv);
}

START_TEST(works_with_a_private_glibc)
{
	start_privately();
	matrix_row_works(&matrix, "private glibc, by an explicit loader");
}
END_TEST

/* ---- files */

static void replace(const char *name)
{
	folder_write(&matrix.folder, "new", "not even an ELF file\n");
	ck_assert_int_eq(
		rename(folder_file(&matrix.folder, "new"), folder_file(&matrix.folder, "%s", name)),
		0);
}

START_TEST(works_on_a_program_replaced_on_disk)
{
	start_privately();
	replace(LOADER);
	replace(LIBRARY);
	replace("witness");
	/* The kernel says so in the map. */
	matrix_look(&matrix);
	matrix_row_works(&matrix, "program, C library and loader replaced on disk");
}
END_TEST

START_TEST(works_on_a_deleted_program)
{
	const char *const argv[] = {"./witness", NULL};

	copy_program();
	matrix_start_argv(&matrix, argv);
	ck_assert_int_eq(unlink(folder_file(&matrix.folder, "witness")), 0);
	matrix_look(&matrix);
	matrix_row_works(&matrix, "program deleted on disk");
}
END_TEST

/* ---- languages */

START_TEST(is_refused_on_go_without_c)
{
	matrix_start(&matrix, "gopher");
	matrix.ignore |= PROCSTATE_THREADS | PROCSTATE_MASKS;
	matrix_row_refused(&matrix, "Go, without C", "is statically linked");
}
END_TEST

START_TEST(works_on_go_that_calls_c)
{
	matrix_start(&matrix, "gopher_cgo");
	matrix.ignore |= PROCSTATE_THREADS | PROCSTATE_MASKS;
	matrix_row_works(&matrix, "Go that calls C, malloc from goroutines");
}
END_TEST

/* It stops its own threads by making a page unreadable, and catches their SIGSEGV. */
START_TEST(works_on_a_java_virtual_machine)
{
	CLEANUP(freep) char *folder = tests_build_path("targets");
	CLEANUP(freep) char *library = tests_build_path("targets/libmachine.so");
	const char *argv[] = {"java", "-Xmx64m", "-cp", folder, "Machine", library, NULL};

	matrix_start_argv(&matrix, argv);
	/* It compiles, and ends compiler threads, when it likes. */
	matrix.ignore |= PROCSTATE_THREADS | PROCSTATE_MASKS;
	matrix_row_works(&matrix, "JVM: threads that call zlib, garbage collection");
}
END_TEST

Suite *attach_foreign_suite(void)
{
	Suite *suite = suite_create("attach_foreign");
	TCase *libraries = tcase_create("libraries"), *files = tcase_create("files");
	TCase *languages = tcase_create("languages");

	tcase_add_checked_fixture(libraries, setup, teardown);
	tcase_set_timeout(libraries, 60);
	tcase_add_test(libraries, works_on_musl);
	tcase_add_test(libraries, is_refused_on_static_musl);
	tcase_add_test(libraries, is_refused_under_a_sanitizer);
	tcase_add_test(libraries, works_with_a_private_glibc);
	suite_add_tcase(suite, libraries);

	tcase_add_checked_fixture(files, setup, teardown);
	tcase_set_timeout(files, 60);
	tcase_add_test(files, works_on_a_program_replaced_on_disk);
	tcase_add_test(files, works_on_a_deleted_program);
	suite_add_tcase(suite, files);

	tcase_add_checked_fixture(languages, setup, teardown);
	tcase_set_timeout(languages, 60);
	tcase_add_test(languages, is_refused_on_go_without_c);
	tcase_add_test(languages, works_on_go_that_calls_c);
	tcase_add_test(languages, works_on_a_java_virtual_machine);
	suite_add_tcase(suite, languages);
	return suite;
}
