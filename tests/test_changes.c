/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The list; that it is made as it says is boot's suite's. */
#include "injector/changes.h"
#include "tests/tests.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE UINT64_C(0x7f0000001000)

static struct ha_changes *changes;

static void setup(void)
{
	changes = calloc(1, sizeof(*changes));
	ck_assert_ptr_nonnull(changes);
}

static void teardown(void)
{
	free(changes);
}

static struct error *add(uint64_t address)
{
	return changes_add(changes, address, 1, 2, PROT_READ);
}

START_TEST(names_each_page_once)
{
	static const uint64_t addresses[] = {PAGE, PAGE + HA_PAGE, PAGE + 8, PAGE + HA_PAGE - 8,
					     PAGE + 2 * HA_PAGE - 8};
	static const uint32_t pages[] = {0, 1, 0, 0, 1};

	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		assert_ok(add(addresses[i]));
	ck_assert_uint_eq(changes->count, 5);
	ck_assert_uint_eq(changes->page_count, 2);
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		ck_assert_uint_eq(changes->change[i].address, addresses[i]);
		ck_assert_uint_eq(changes->change[i].page, pages[i]);
		ck_assert_uint_eq(changes->page[pages[i]].address,
				  addresses[i] & ~(uint64_t)(HA_PAGE - 1));
	}
	changes_clear(changes);
	ck_assert_uint_eq(changes->count + changes->page_count, 0);
}
END_TEST

START_TEST(refuses_more_words_than_there_is_room_for)
{
	for (uint32_t i = 0; i < HA_CHANGES_MAX; i++)
		assert_ok(add(PAGE + i % 512 * 8));
	assert_fails(add(PAGE), ERROR_UNSUPPORTED);
	ck_assert_uint_eq(changes->count, HA_CHANGES_MAX);
}
END_TEST

START_TEST(refuses_more_pages_than_there_is_room_for)
{
	for (uint64_t i = 0; i < HA_CHANGE_PAGES_MAX; i++)
		assert_ok(add(PAGE + i * HA_PAGE));
	assert_ok(add(PAGE + 8));
	assert_fails(add(PAGE - HA_PAGE), ERROR_UNSUPPORTED);
	ck_assert_uint_eq(changes->page_count, HA_CHANGE_PAGES_MAX);
}
END_TEST

START_TEST(tells_what_was_not_made)
{
	assert_ok(add(PAGE));
	assert_ok(add(PAGE + HA_PAGE));
	assert_fails(changes_result(changes), ERROR_BUSY);
	changes->made = 1;
	assert_ok(changes_result(changes));
	changes->page[1].error = -EPERM;
	assert_fails(changes_result(changes), ERROR_DENIED);
}
END_TEST

Suite *changes_suite(void)
{
	Suite *suite = suite_create("changes");
	TCase *tcase = tcase_create("changes");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, names_each_page_once);
	tcase_add_test(tcase, refuses_more_words_than_there_is_room_for);
	tcase_add_test(tcase, refuses_more_pages_than_there_is_room_for);
	tcase_add_test(tcase, tells_what_was_not_made);
	suite_add_tcase(suite, tcase);
	return suite;
}
