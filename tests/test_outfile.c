// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/outfile.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "resolver/cleanup.h"
#include "tests/tests.h"
#include "tests/workdir.h"

static struct workdir dir;

/* Each test is a process of its own, with the directory as its working directory. */
static void setup(void)
{
	workdir_create(&dir);
	ck_assert_int_eq(chdir(dir.path), 0);
}

static void teardown(void)
{
	ck_assert_int_eq(chdir("/"), 0);
	workdir_remove(&dir);
}

static void put(struct outfile *file, const char *text)
{
	ck_assert_int_eq(write(outfile_fd(file), text, strlen(text)), strlen(text));
}

static void expect_content(const char *name, const char *expected)
{
	CLEANUP(freep) char *text = tests_read_file(name);

	ck_assert_ptr_nonnull(text);
	ck_assert_str_eq(text, expected);
}

START_TEST(committed_file_is_kept_and_private)
{
	CLEANUP(outfile_freep) struct outfile *file = NULL;
	struct stat st;

	umask(0);
	assert_ok(outfile_create("out", &file));
	put(file, "all of it");
	assert_ok(outfile_commit(file));
	expect_content("out", "all of it");
	ck_assert_int_eq(stat("out", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(unfinished_file_is_removed)
{
	struct outfile *file = NULL;

	assert_ok(outfile_create("out", &file));
	put(file, "half of");
	outfile_free(file);
	ck_assert_int_eq(access("out", F_OK), -1);
}
END_TEST

START_TEST(file_of_somebody_else_is_not_removed)
{
	struct outfile *file = NULL;

	assert_ok(outfile_create("out", &file));
	ck_assert_int_eq(unlink("out"), 0);
	workdir_write_text(&dir, "out", "theirs");
	outfile_free(file);
	expect_content("out", "theirs");
}
END_TEST

START_TEST(existing_file_is_never_overwritten)
{
	struct outfile *file = NULL;
	struct error *err;

	workdir_write_text(&dir, "out", "precious");
	err = outfile_create("out", &file);
	ck_assert_int_eq(error_errno(err), EEXIST);
	ck_assert_ptr_nonnull(error_hint_text(err));
	ck_assert_ptr_null(file);
	error_free(err);
	expect_content("out", "precious");
}
END_TEST

START_TEST(what_is_no_file_is_not_to_be_removed)
{
	static const char *const paths[] = {"/tmp", "/dev/null"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct outfile *file;
		struct error *err = outfile_create(paths[i], &file);

		ck_assert_int_eq(error_errno(err), EEXIST);
		ck_assert_ptr_null(strstr(error_hint_text(err), "remove"));
		ck_assert_ptr_nonnull(strstr(error_message(err), i ? "device" : "directory"));
		error_free(err);
	}
}
END_TEST

START_TEST(links_are_not_followed)
{
	struct outfile *file = NULL;
	struct error *err;

	ck_assert_int_eq(symlink("elsewhere", "out"), 0);
	err = outfile_create("out", &file);
	ck_assert_int_eq(error_errno(err), EEXIST);
	error_free(err);
	ck_assert_int_eq(access("elsewhere", F_OK), -1);
}
END_TEST

START_TEST(missing_folder_is_named)
{
	struct outfile *file = NULL;
	struct error *err = outfile_create("nowhere/out", &file);

	ck_assert_str_eq(error_message(err),
			 "cannot create nowhere/out: No such file or directory");
	error_free(err);
}
END_TEST

static void expect_default(const char *comm, const char *expected)
{
	CLEANUP(outfile_freep) struct outfile *file = NULL;

	assert_ok(outfile_create_default(comm, 42, &file));
	ck_assert_str_eq(outfile_path(file), expected);
	assert_ok(outfile_commit(file));
}

START_TEST(default_names_count_up)
{
	expect_default("redis-server", "heapattach.redis-server.42.hap");
	expect_default("redis-server", "heapattach.redis-server.42.hap.1");
	expect_default("redis-server", "heapattach.redis-server.42.hap.2");
}
END_TEST

START_TEST(default_name_has_only_safe_characters)
{
	expect_default("../../etc/pw", "heapattach..._.._etc_pw.42.hap");
	expect_default("a b\n\x1b[\xff*", "heapattach.a_b_____.42.hap");
	expect_default("", "heapattach.target.42.hap");
	expect_default(NULL, "heapattach.target.42.hap.1");
}
END_TEST

Suite *outfile_suite(void)
{
	Suite *suite = suite_create("outfile");
	TCase *tcase = tcase_create("outfile");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, committed_file_is_kept_and_private);
	tcase_add_test(tcase, unfinished_file_is_removed);
	tcase_add_test(tcase, file_of_somebody_else_is_not_removed);
	tcase_add_test(tcase, existing_file_is_never_overwritten);
	tcase_add_test(tcase, what_is_no_file_is_not_to_be_removed);
	tcase_add_test(tcase, links_are_not_followed);
	tcase_add_test(tcase, missing_folder_is_named);
	tcase_add_test(tcase, default_names_count_up);
	tcase_add_test(tcase, default_name_has_only_safe_characters);
	suite_add_tcase(suite, tcase);
	return suite;
}
