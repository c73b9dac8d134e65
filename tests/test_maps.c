// SPDX-License-Identifier: GPL-3.0-or-later
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "resolver/maps.h"
#include "tests/tests.h"

static struct maps parse(const char *text)
{
	struct maps maps = {0};

	assert_ok(maps_parse(text, strlen(text), &maps));
	return maps;
}

START_TEST(reads_all_fields)
{
	struct maps maps = parse("55a0b0c0d000-55a0b0c0f000 r-xp 00002000 fe:01 1835028"
				 "                    /usr/bin/cat\n");
	const struct map *map = maps.map;

	ck_assert_uint_eq(maps.count, 1);
	ck_assert_uint_eq(map->start, 0x55a0b0c0d000);
	ck_assert_uint_eq(map->end, 0x55a0b0c0f000);
	ck_assert_uint_eq(map->offset, 0x2000);
	ck_assert_uint_eq(map->inode, 1835028);
	ck_assert_uint_eq(map->major, 0xfe);
	ck_assert_uint_eq(map->minor, 1);
	ck_assert(map->read && !map->write && map->exec && !map->shared && !map->deleted);
	ck_assert_str_eq(map->path, "/usr/bin/cat");
	maps_deinit(&maps);
}
END_TEST

START_TEST(reads_lines_without_path)
{
	struct maps maps = parse("7f0000000000-7f0000001000 rw-s 00000000 00:00 0\n"
				 "7f0000001000-7f0000002000 ---p 00000000 00:00 0 \n");

	ck_assert_uint_eq(maps.count, 2);
	ck_assert_str_eq(maps.map[0].path, "");
	ck_assert(maps.map[0].shared);
	ck_assert_str_eq(maps.map[1].path, "");
	ck_assert(!maps.map[1].read);
	maps_deinit(&maps);
}
END_TEST

START_TEST(keeps_spaces_inside_of_paths)
{
	struct maps maps =
		parse("1000-2000 r--p 00000000 08:01 7                /a b  c (deleted) d\n");

	ck_assert_str_eq(maps.map[0].path, "/a b  c (deleted) d");
	ck_assert(!maps.map[0].deleted);
	maps_deinit(&maps);
}
END_TEST

START_TEST(strips_deleted_mark)
{
	struct maps maps =
		parse("1000-2000 r--p 00000000 08:01 7                /memfd:x (deleted)\n"
		      "2000-3000 r--p 00000000 08:01 7                (deleted)\n");

	ck_assert_str_eq(maps.map[0].path, "/memfd:x");
	ck_assert(maps.map[0].deleted);
	ck_assert_str_eq(maps.map[1].path, "(deleted)");
	ck_assert(!maps.map[1].deleted);
	maps_deinit(&maps);
}
END_TEST

START_TEST(turns_escaped_newlines_back)
{
	struct maps maps = parse("1000-2000 r--p 00000000 08:01 7                /a\\012b\\012\n");

	ck_assert_str_eq(maps.map[0].path, "/a\nb\n");
	maps_deinit(&maps);
}
END_TEST

START_TEST(accepts_pseudo_paths_and_the_highest_addresses)
{
	struct maps maps =
		parse("7ffc1000-7ffc3000 rw-p 00000000 00:00 0          [stack]\n"
		      "7ffc4000-7ffc5000 r-xp 00000000 00:00 0          [vdso]\n"
		      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]");

	ck_assert_uint_eq(maps.count, 3);
	ck_assert_str_eq(maps.map[2].path, "[vsyscall]");
	ck_assert_ptr_eq(maps_find(&maps, 0xffffffffff600fff), &maps.map[2]);
	maps_deinit(&maps);
}
END_TEST

START_TEST(accepts_empty_text)
{
	struct maps maps = {.count = 5};

	assert_ok(maps_parse("", 0, &maps));
	ck_assert_uint_eq(maps.count, 0);
	ck_assert_ptr_null(maps_find(&maps, 0));
	maps_deinit(&maps);
}
END_TEST

START_TEST(accepts_many_mappings_and_long_paths)
{
	static char text[4 * 1024 * 1024];
	struct maps maps;
	size_t size = 0;

	for (unsigned int i = 0; i < 65530; i++)
		size += (size_t)sprintf(text + size, "%x000-%x000 r--p 00000000 08:01 7 /f\n",
					2 * i + 1, 2 * i + 2);
	size += (size_t)sprintf(text + size, "%x000-%x000 r--p 00000000 08:01 7 /", 0x40000,
				0x40001);
	memset(text + size, 'x', 100000);
	assert_ok(maps_parse(text, size + 100000, &maps));
	ck_assert_uint_eq(maps.count, 65531);
	ck_assert_uint_eq(strlen(maps.map[65530].path), 100001);
	ck_assert_ptr_eq(maps_find(&maps, 0x20001fff), NULL);
	maps_deinit(&maps);
}
END_TEST

START_TEST(finds_regions_at_their_edges)
{
	struct maps maps = parse("1000-2000 r--p 00000000 00:00 0\n"
				 "2000-3000 r--p 00000000 00:00 0\n"
				 "5000-6000 r--p 00000000 00:00 0\n");

	ck_assert_ptr_null(maps_find(&maps, 0xfff));
	ck_assert_ptr_eq(maps_find(&maps, 0x1000), &maps.map[0]);
	ck_assert_ptr_eq(maps_find(&maps, 0x1fff), &maps.map[0]);
	ck_assert_ptr_eq(maps_find(&maps, 0x2000), &maps.map[1]);
	ck_assert_ptr_null(maps_find(&maps, 0x3000));
	ck_assert_ptr_null(maps_find(&maps, 0x4fff));
	ck_assert_ptr_eq(maps_find(&maps, 0x5fff), &maps.map[2]);
	ck_assert_ptr_null(maps_find(&maps, 0x6000));
	maps_deinit(&maps);
}
END_TEST

static const char *const bad_lines[] = {
	"-2000 r--p 00000000 08:01 7",
	"1000-2000",
	"1000-2000 ",
	"1000:2000 r--p 00000000 08:01 7",
	"2000-1000 r--p 00000000 08:01 7",
	"1000-1000 r--p 00000000 08:01 7",
	"10000000000000000-20000000000000000 r--p 00000000 08:01 7",
	"1000-2000 q--p 00000000 08:01 7",
	"1000-2000 r--x 00000000 08:01 7",
	"1000-2000 r--p xyz 08:01 7",
	"1000-2000 r--p 00000000 0801 7",
	"1000-2000 r--p 00000000 100000000:01 7",
	"1000-2000 r--p 00000000 08:01 x",
	"1000-2000 r--p 00000000 08:01 18446744073709551616",
	"1000-2000 r--p 00000000 08:01 7/a",
	"1000-2000\tr--p 00000000 08:01 7",
	"",
};

START_TEST(refuses_malformed_lines_and_names_them)
{
	char text[256];
	struct maps maps = {.count = 77};
	struct error *err;
	int size =
		snprintf(text, sizeof(text), "400-800 r--p 00000000 00:00 0\n%s\n", bad_lines[_i]);

	err = maps_parse(text, (size_t)size, &maps);
	ck_assert_msg(error_is(err, ERROR_FORMAT), "%s", bad_lines[_i]);
	ck_assert_ptr_nonnull(strstr(error_message(err), "line 2:"));
	ck_assert_uint_eq(maps.count, 77);
	error_free(err);
}
END_TEST

START_TEST(refuses_overlapping_mappings)
{
	const char *text = "1000-3000 r--p 00000000 00:00 0\n2000-4000 r--p 00000000 00:00 0\n";
	struct maps maps;

	assert_fails(maps_parse(text, strlen(text), &maps), ERROR_FORMAT);
}
END_TEST

START_TEST(refuses_nul_bytes)
{
	static const char text[] = "1000-2000 r--p 00000000 08:01 7 /a\0b\n";
	struct maps maps;

	assert_fails(maps_parse(text, sizeof(text) - 1, &maps), ERROR_FORMAT);
}
END_TEST

START_TEST(reads_this_process)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct maps maps;
	const struct map *map;

	ck_assert_ptr_ne(page, MAP_FAILED);
	assert_ok(maps_read(getpid(), &maps));
	map = maps_find(&maps, (uint64_t)page);
	ck_assert_ptr_nonnull(map);
	ck_assert(map->read && map->write && !map->exec && map->shared);
	map = maps_find(&maps, (uint64_t)&maps_read);
	ck_assert_ptr_nonnull(map);
	ck_assert(map->exec && map->inode != 0);
	map = maps_find(&maps, (uint64_t)__builtin_frame_address(0));
	ck_assert_str_eq(map->path, "[stack]");
	maps_deinit(&maps);
	munmap(page, 4096);
}
END_TEST

START_TEST(missing_process_is_gone)
{
	struct maps maps;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	assert_fails(maps_read(pid, &maps), ERROR_GONE);
}
END_TEST

START_TEST(zombie_is_gone)
{
	struct maps maps;
	siginfo_t info;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_fails(maps_read(pid, &maps), ERROR_GONE);
	waitpid(pid, NULL, 0);
}
END_TEST

static void *sleep_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void exit_main_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, sleep_for_ever, NULL);
	pthread_exit(NULL);
}

static bool is_zombie(pid_t pid)
{
	char path[64], text[512] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, file), 0);
	fclose(file);
	return strstr(text, ") Z ") != NULL;
}

START_TEST(reads_through_another_thread_when_the_main_thread_exited)
{
	struct maps maps;
	pid_t pid = fork();

	if (pid == 0)
		exit_main_thread();
	while (!is_zombie(pid))
		usleep(1000);
	assert_ok(maps_read(pid, &maps));
	ck_assert_ptr_nonnull(maps_find(&maps, (uint64_t)&maps_read));
	maps_deinit(&maps);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

Suite *maps_suite(void)
{
	Suite *suite = suite_create("maps");
	TCase *parse_case = tcase_create("parse");
	TCase *read_case = tcase_create("read");

	tcase_add_test(parse_case, reads_all_fields);
	tcase_add_test(parse_case, reads_lines_without_path);
	tcase_add_test(parse_case, keeps_spaces_inside_of_paths);
	tcase_add_test(parse_case, strips_deleted_mark);
	tcase_add_test(parse_case, turns_escaped_newlines_back);
	tcase_add_test(parse_case, accepts_pseudo_paths_and_the_highest_addresses);
	tcase_add_test(parse_case, accepts_empty_text);
	tcase_add_test(parse_case, accepts_many_mappings_and_long_paths);
	tcase_add_test(parse_case, finds_regions_at_their_edges);
	tcase_add_loop_test(parse_case, refuses_malformed_lines_and_names_them, 0,
			    sizeof(bad_lines) / sizeof(bad_lines[0]));
	tcase_add_test(parse_case, refuses_overlapping_mappings);
	tcase_add_test(parse_case, refuses_nul_bytes);
	suite_add_tcase(suite, parse_case);
	tcase_add_test(read_case, reads_this_process);
	tcase_add_test(read_case, missing_process_is_gone);
	tcase_add_test(read_case, zombie_is_gone);
	tcase_add_test(read_case, reads_through_another_thread_when_the_main_thread_exited);
	tcase_set_timeout(read_case, 30);
	suite_add_tcase(suite, read_case);
	return suite;
}
