/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "injector/hugepage.h"
#include "resolver/cleanup.h"
#include "tests/tests.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAP_SIZE (3 * HUGEPAGE_SIZE)
#define PATTERN	 (HUGEPAGE_SIZE + 12345)

static int fd = -1;
static uint8_t *map;

static void setup(void)
{
	fd = memfd_create("hugepage", MFD_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, MAP_SIZE), 0);
	map = hugepage_map(fd, MAP_SIZE);
	ck_assert_ptr_nonnull(map);
}

static void teardown(void)
{
	munmap(map, MAP_SIZE);
	close(fd);
}

static uint64_t hint(const char *text, uint64_t size)
{
	CLEANUP(maps_deinit) struct maps maps = {0};

	ck_assert_ptr_null(maps_parse(text, strlen(text), &maps));
	return hugepage_hint(&maps, size);
}

START_TEST(maps_the_file_where_huge_pages_can_be)
{
	uint8_t byte = 0;

	ck_assert_uint_eq((uint64_t)map % HUGEPAGE_SIZE, 0);
	map[PATTERN] = 77;
	ck_assert_int_eq(pread(fd, &byte, 1, PATTERN), 1);
	ck_assert_uint_eq(byte, 77);
}
END_TEST

START_TEST(maps_nothing_of_what_is_no_file)
{
	ck_assert_ptr_null(hugepage_map(-1, MAP_SIZE));
}
END_TEST

START_TEST(joins_pages_without_a_change)
{
	for (uint64_t i = 0; i < PATTERN; i++)
		map[i] = (uint8_t)(i * 31 >> 3);
	/* The first and the second page have content, the third has none. */
	hugepage_join(map, MAP_SIZE);
	for (uint64_t i = 0; i < PATTERN; i++)
		ck_assert_uint_eq(map[i], (uint8_t)(i * 31 >> 3));
	for (uint64_t i = PATTERN; i < MAP_SIZE; i += 4096)
		ck_assert_uint_eq(map[i], 0);
}
END_TEST

START_TEST(joins_none_of_a_range_that_holds_no_whole_page)
{
	unsigned char resident[MAP_SIZE / 4096];
	size_t count = 0;

	map[HUGEPAGE_SIZE] = 1;
	hugepage_join(map + 4096, 2 * HUGEPAGE_SIZE - 8192);
	ck_assert_int_eq(mincore(map, MAP_SIZE, resident), 0);
	for (size_t i = 0; i < sizeof(resident); i++)
		count += resident[i] & 1;
	ck_assert_uint_eq(count, 1);
}
END_TEST

/* Two gaps; the upper one is small. Below the stack nothing may be put. */
static const char gaps[] = "555500000000-555500001000 r-xp 00000000 00:00 0 \n"
			   "7f0000000000-7f0000001000 r-xp 00000000 00:00 0 \n"
			   "7f0000701000-7f0000800000 r-xp 00000000 00:00 0 \n"
			   "7ffff0000000-7ffff0021000 rw-p 00000000 00:00 0 [stack]\n"
			   "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";

START_TEST(hint_is_in_the_highest_gap_with_room)
{
	ck_assert_uint_eq(hint(gaps, HUGEPAGE_SIZE), 0x7f0000400000);
	ck_assert_uint_eq(hint(gaps, HUGEPAGE_SIZE + 4096), 0x7f0000200000);
	ck_assert_uint_eq(hint(gaps, 1ull << 32), 0x7eff00000000);
}
END_TEST

START_TEST(hint_is_zero_without_a_gap)
{
	ck_assert_uint_eq(hint(gaps, 1ull << 46), 0);
	ck_assert_uint_eq(hint("", 4096), 0);
}
END_TEST

Suite *hugepage_suite(void)
{
	Suite *suite = suite_create("hugepage");
	TCase *pages = tcase_create("pages"), *place = tcase_create("place");

	tcase_add_checked_fixture(pages, setup, teardown);
	tcase_add_test(pages, maps_the_file_where_huge_pages_can_be);
	tcase_add_test(pages, maps_nothing_of_what_is_no_file);
	tcase_add_test(pages, joins_pages_without_a_change);
	tcase_add_test(pages, joins_none_of_a_range_that_holds_no_whole_page);
	suite_add_tcase(suite, pages);
	tcase_add_test(place, hint_is_in_the_highest_gap_with_room);
	tcase_add_test(place, hint_is_zero_without_a_gap);
	suite_add_tcase(suite, place);
	return suite;
}
