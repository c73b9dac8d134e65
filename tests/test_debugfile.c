// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/debugfile.h"

#include "resolver/cleanup.h"
#include "resolver/rootfs.h"
#include "tests/tests.h"
#include "tests/workdir.h"

#include <string.h>

#define BUILD_ID_FILE "usr/lib/debug/.build-id/01/23456789.debug"

static struct workdir dir;

/*
 * The directory is the target's root. In it: full (never looked at), a.debug,
 * and bin/a with a link to it; the same once more without build id in plain*.
 */
static void set_up(void)
{
	workdir_create(&dir);
	workdir_write_text(&dir, "a.c", "int main(void) { return 0; }\n");
	workdir_run(&dir,
		    "mkdir -p bin/.debug usr/lib/debug/bin usr/lib/debug/.build-id/01 && "
		    "gcc -g -Wl,--build-id=0x0123456789 -o full a.c && "
		    "objcopy --only-keep-debug full a.debug && "
		    "objcopy --strip-all --add-gnu-debuglink=a.debug full bin/a && "
		    "gcc -g -Wl,--build-id=none -o plain_full a.c && "
		    "objcopy --only-keep-debug plain_full plain.debug && "
		    "objcopy --strip-all --add-gnu-debuglink=plain.debug plain_full bin/plain && "
		    "gcc -g -Wl,--build-id=0xffffffffff -o other_full a.c && "
		    "objcopy --only-keep-debug other_full other.debug");
}

static void tear_down(void)
{
	workdir_remove(&dir);
}

static struct error *find(const char *path, struct elffile **ret)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	CLEANUP(closep) int fd = -1;

	assert_ok(rootfs_open(dir.path, path, &fd));
	assert_ok(elffile_open_fd(fd, path, &file));
	return debugfile_open(file, path, dir.path, ret);
}

static void check_found(const char *path, const char *expected)
{
	CLEANUP(elffile_freep) struct elffile *found = NULL;

	assert_ok(find(path, &found));
	ck_assert_str_eq(elffile_name(found), expected);
}

static void check_refused(const char *path, const char *reason)
{
	struct elffile *found;
	struct error *err = find(path, &found);

	ck_assert(error_is(err, ERROR_NOT_FOUND));
	ck_assert_msg(strstr(error_message(err), reason) != NULL, "%s", error_message(err));
	error_free(err);
}

START_TEST(finds_by_build_id)
{
	workdir_run(&dir, "mv a.debug " BUILD_ID_FILE);
	check_found("/bin/a", "/" BUILD_ID_FILE);
}
END_TEST

START_TEST(finds_by_link_beside_the_file)
{
	workdir_run(&dir, "mv a.debug bin");
	check_found("/bin/a", "/bin/a.debug");
}
END_TEST

START_TEST(finds_by_link_in_the_hidden_directory)
{
	workdir_run(&dir, "mv a.debug bin/.debug");
	check_found("/bin/a", "/bin/.debug/a.debug");
}
END_TEST

START_TEST(finds_by_link_below_the_global_directory)
{
	workdir_run(&dir, "mv a.debug usr/lib/debug/bin");
	check_found("/bin/a", "/usr/lib/debug/bin/a.debug");
}
END_TEST

START_TEST(prefers_the_build_id)
{
	workdir_run(&dir, "cp a.debug bin && mv a.debug " BUILD_ID_FILE);
	check_found("/bin/a", "/" BUILD_ID_FILE);
}
END_TEST

START_TEST(refuses_another_build_id_and_goes_on)
{
	workdir_run(&dir, "cp other.debug " BUILD_ID_FILE);
	check_refused("/bin/a", "another build id");
	workdir_run(&dir, "mv a.debug bin");
	check_found("/bin/a", "/bin/a.debug");
}
END_TEST

START_TEST(checks_the_crc_where_there_is_no_build_id)
{
	workdir_run(&dir, "cp plain.debug bin");
	check_found("/bin/plain", "/bin/plain.debug");
	workdir_run(&dir, "printf x >> bin/plain.debug");
	check_refused("/bin/plain", "CRC");
}
END_TEST

START_TEST(ignores_the_crc_where_build_ids_are_equal)
{
	workdir_run(&dir, "cp a.debug bin && printf x >> bin/a.debug");
	check_found("/bin/a", "/bin/a.debug");
}
END_TEST

START_TEST(does_not_take_the_stripped_file_for_its_debug_file)
{
	workdir_run(&dir, "cp bin/a bin/a.debug");
	check_refused("/bin/a", "no debug info");
}
END_TEST

START_TEST(says_when_there_is_none)
{
	check_refused("/bin/a", "no debug file found");
}
END_TEST

START_TEST(does_not_leave_the_root_by_a_link)
{
	int fd;

	/* The link's target is there in our root, but not in the target's. */
	workdir_run(&dir, "ln -s '%s/a.debug' bin/a.debug && ln -s ../../../../etc/passwd up",
		    dir.path);
	check_refused("/bin/a", "no debug file found");
	assert_fails(rootfs_open(dir.path, "/up", &fd), ERROR_OS);
	assert_fails(rootfs_open(dir.path, "/../../../../../etc/passwd", &fd), ERROR_OS);
}
END_TEST

START_TEST(does_not_open_what_is_not_a_regular_file)
{
	int fd;

	workdir_run(&dir, "mkfifo bin/a.debug");
	check_refused("/bin/a", "no debug file found");
	assert_fails(rootfs_open(dir.path, "/bin/a.debug", &fd), ERROR_UNSUPPORTED);
	assert_fails(rootfs_open(dir.path, "/bin", &fd), ERROR_UNSUPPORTED);
	assert_fails(rootfs_open(NULL, "/dev/null", &fd), ERROR_UNSUPPORTED);
}
END_TEST

START_TEST(finds_the_dwz_file)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	CLEANUP(elffile_freep) struct elffile *common = NULL;
	CLEANUP(closep) int fd = -1;

	workdir_write_text(&dir, "b.c",
			   "struct pair { int left, right; struct pair *next; };\n"
			   "int sum(struct pair *p) { return p->left + p->right; }\n"
			   "int main(void) { struct pair p = {1, 2, 0}; return sum(&p); }\n");
	workdir_run(&dir, "gcc -g -gdwarf-4 -o b1 b.c && cp b1 b2 && "
			  "dwz -m common.debug -M common.debug b1 b2");
	fd = workdir_open(&dir, "b1");
	assert_ok(elffile_open_fd(fd, "b1", &file));
	assert_ok(debugfile_open_alt(file, "/b1", dir.path, &common));
	ck_assert_str_eq(elffile_name(common), "/common.debug");
	elffile_free(take(common));
	workdir_run(&dir, "cp full common.debug");
	assert_fails(debugfile_open_alt(file, "/b1", dir.path, &common), ERROR_NOT_FOUND);
	common = NULL;
}
END_TEST

Suite *debugfile_suite(void)
{
	Suite *suite = suite_create("debugfile");
	TCase *tcase = tcase_create("search");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 30);
	tcase_add_test(tcase, finds_by_build_id);
	tcase_add_test(tcase, finds_by_link_beside_the_file);
	tcase_add_test(tcase, finds_by_link_in_the_hidden_directory);
	tcase_add_test(tcase, finds_by_link_below_the_global_directory);
	tcase_add_test(tcase, prefers_the_build_id);
	tcase_add_test(tcase, refuses_another_build_id_and_goes_on);
	tcase_add_test(tcase, checks_the_crc_where_there_is_no_build_id);
	tcase_add_test(tcase, ignores_the_crc_where_build_ids_are_equal);
	tcase_add_test(tcase, does_not_take_the_stripped_file_for_its_debug_file);
	tcase_add_test(tcase, says_when_there_is_none);
	tcase_add_test(tcase, does_not_leave_the_root_by_a_link);
	tcase_add_test(tcase, does_not_open_what_is_not_a_regular_file);
	tcase_add_test(tcase, finds_the_dwz_file);
	suite_add_tcase(suite, tcase);
	return suite;
}
