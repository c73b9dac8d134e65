/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The list; that it is made as it says is boot's suite's. */
#include "injector/changes.h"
#include "tests/tests.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE UINT64_C(0x7f0000001000)

static struct ha_changes *list;
static struct changes changes;

static void setup(void)
{
	list = calloc(1, sizeof(*list));
	ck_assert_ptr_nonnull(list);
	changes = (struct changes){.list = list};
}

static void teardown(void)
{
	changes_deinit(&changes);
	free(list);
}

static struct error *add(uint64_t address)
{
	return changes_add(&changes, address, 1, 2, PROT_READ);
}

START_TEST(names_each_page_once)
{
	static const uint64_t addresses[] = {PAGE, PAGE + HA_PAGE, PAGE + 8, PAGE + HA_PAGE - 8,
					     PAGE + 2 * HA_PAGE - 8};
	static const uint32_t pages[] = {0, 1, 0, 0, 1};

	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		assert_ok(add(addresses[i]));
	ck_assert_uint_eq(list->count, 5);
	ck_assert_uint_eq(list->page_count, 2);
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		ck_assert_uint_eq(list->change[i].address, addresses[i]);
		ck_assert_uint_eq(list->change[i].page, pages[i]);
		ck_assert_uint_eq(list->page[pages[i]].address,
				  addresses[i] & ~(uint64_t)(HA_PAGE - 1));
	}
	changes_clear(list);
	ck_assert_uint_eq(list->count + list->page_count, 0);
}
END_TEST

/* Slots of one function, then those of the next, which are on the same pages or on new ones. */
START_TEST(comes_back_to_pages_in_any_order)
{
	static const uint64_t pages[] = {0, 1, 2999, 1500, 3000, 2998, 3001, 0, 3000};

	for (uint64_t i = 0; i < 3000; i++)
		assert_ok(add(PAGE + i * 5 * HA_PAGE));
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		assert_ok(add(PAGE + pages[i] * 5 * HA_PAGE + 8));
		ck_assert_uint_eq(list->change[3000 + i].page, pages[i]);
	}
	ck_assert_uint_eq(list->page_count, 3002);
	for (uint64_t i = 0; i < list->page_count; i++)
		ck_assert_uint_eq(list->page[i].address, PAGE + i * 5 * HA_PAGE);
}
END_TEST

/* The target may write there, too. */
START_TEST(pages_that_were_scribbled_over_are_found_out)
{
	assert_ok(add(PAGE));
	assert_ok(add(PAGE + HA_PAGE));
	list->page[0].address = 0;
	list->page_count = UINT32_MAX;
	assert_ok(add(PAGE + HA_PAGE));
	ck_assert_uint_eq(list->change[2].page, 1);
	assert_fails(add(PAGE), ERROR_UNSUPPORTED);
	list->page_count = 0;
	assert_ok(add(PAGE + 8));
	ck_assert_uint_eq(list->change[3].page, 0);
	ck_assert_uint_eq(list->page[0].address, PAGE);
}
END_TEST

START_TEST(refuses_more_words_than_there_is_room_for)
{
	for (uint32_t i = 0; i < HA_CHANGES_MAX; i++)
		assert_ok(add(PAGE + i % 512 * 8));
	assert_fails(add(PAGE), ERROR_UNSUPPORTED);
	ck_assert_uint_eq(list->count, HA_CHANGES_MAX);
}
END_TEST

START_TEST(refuses_more_pages_than_there_is_room_for)
{
	for (uint64_t i = 0; i < HA_CHANGE_PAGES_MAX; i++)
		assert_ok(add(PAGE + i * HA_PAGE));
	assert_ok(add(PAGE + 8));
	assert_fails(add(PAGE - HA_PAGE), ERROR_UNSUPPORTED);
	ck_assert_uint_eq(list->page_count, HA_CHANGE_PAGES_MAX);
}
END_TEST

START_TEST(tells_what_was_not_made)
{
	assert_ok(add(PAGE));
	assert_ok(add(PAGE + HA_PAGE));
	assert_fails(changes_result(list), ERROR_BUSY);
	list->made = 1;
	assert_ok(changes_result(list));
	list->page[1].error = -EPERM;
	assert_fails(changes_result(list), ERROR_DENIED);
}
END_TEST

Suite *changes_suite(void)
{
	Suite *suite = suite_create("changes");
	TCase *tcase = tcase_create("changes");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, names_each_page_once);
	tcase_add_test(tcase, comes_back_to_pages_in_any_order);
	tcase_add_test(tcase, pages_that_were_scribbled_over_are_found_out);
	tcase_add_test(tcase, refuses_more_words_than_there_is_room_for);
	tcase_add_test(tcase, refuses_more_pages_than_there_is_room_for);
	tcase_add_test(tcase, tells_what_was_not_made);
	suite_add_tcase(suite, tcase);
	return suite;
}
