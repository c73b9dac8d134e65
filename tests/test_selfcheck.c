// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * What counts as a difference, and that a wrong stack is found to be one: the
 * test process is the target, and leaves captures of its own stack behind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "injector/selfcheck.h"
#include "injector/target.h"
#include "tests/snapshot.h"
#include "tests/tests.h"

/* ---- verdicts */

static const uint64_t found[] = {0x1000, 0x2000, 0x3000, 0x4000};

static enum selfcheck_verdict compare(uint16_t frames, uint16_t flags, size_t count,
				      enum oracle_end end)
{
	static const uint64_t recorded[] = {0x1000, 0x2000, 0x3000, 0x4000};
	const struct reader_site ours = {.flags = flags, .frames = frames, .pc = recorded};

	return selfcheck_compare(&ours, found, count, end);
}

START_TEST(equal_stacks_are_the_same)
{
	ck_assert_int_eq(compare(4, 0, 4, ORACLE_COMPLETE), SELFCHECK_SAME);
	ck_assert_int_eq(compare(1, 0, 1, ORACLE_COMPLETE), SELFCHECK_SAME);
}
END_TEST

START_TEST(one_other_address_is_different)
{
	for (size_t i = 0; i < 4; i++) {
		uint64_t recorded[] = {0x1000, 0x2000, 0x3000, 0x4000};
		struct reader_site ours = {.frames = 4, .pc = recorded};

		recorded[i]++;
		for (int end = ORACLE_COMPLETE; end <= ORACLE_FULL; end++)
			ck_assert_int_eq(selfcheck_compare(&ours, found, 4, end),
					 SELFCHECK_DIFFERENT);
	}
}
END_TEST

START_TEST(missing_and_invented_frames_are_different)
{
	ck_assert_int_eq(compare(3, 0, 4, ORACLE_COMPLETE), SELFCHECK_DIFFERENT);
	ck_assert_int_eq(compare(4, 0, 3, ORACLE_COMPLETE), SELFCHECK_DIFFERENT);
	ck_assert_int_eq(compare(4, 0, 3, ORACLE_NO_TABLE), SELFCHECK_DIFFERENT);
	ck_assert_int_eq(compare(4, 0, 3, ORACLE_FAILED), SELFCHECK_DIFFERENT);
}
END_TEST

START_TEST(truncated_stack_is_different_unless_libunwind_stops_there)
{
	ck_assert_int_eq(compare(3, HA_SITE_TRUNCATED, 4, ORACLE_COMPLETE), SELFCHECK_DIFFERENT);
	ck_assert_int_eq(compare(3, HA_SITE_TRUNCATED, 4, ORACLE_NO_TABLE), SELFCHECK_DIFFERENT);
	ck_assert_int_eq(compare(3, HA_SITE_TRUNCATED, 4, ORACLE_OUTSIDE), SELFCHECK_DIFFERENT);
	ck_assert_int_eq(compare(4, HA_SITE_TRUNCATED, 4, ORACLE_COMPLETE), SELFCHECK_DIFFERENT);
	ck_assert_int_eq(compare(3, HA_SITE_TRUNCATED, 3, ORACLE_NO_TABLE), SELFCHECK_LIMITED);
	ck_assert_int_eq(compare(3, HA_SITE_TRUNCATED, 3, ORACLE_FAILED), SELFCHECK_LIMITED);
}
END_TEST

START_TEST(guess_is_allowed_where_libunwind_has_no_table)
{
	ck_assert_int_eq(compare(4, HA_SITE_GUESSED, 2, ORACLE_NO_TABLE), SELFCHECK_LIMITED);
	ck_assert_int_eq(compare(4, HA_SITE_GUESSED, 2, ORACLE_COMPLETE), SELFCHECK_DIFFERENT);
}
END_TEST

START_TEST(deep_stack_is_compared_as_far_as_it_is_kept)
{
	ck_assert_int_eq(compare(3, HA_SITE_DEEP, 4, ORACLE_FULL), SELFCHECK_SAME);
	ck_assert_int_eq(compare(3, HA_SITE_DEEP, 4, ORACLE_OUTSIDE), SELFCHECK_SAME);
	ck_assert_int_eq(compare(3, HA_SITE_DEEP, 2, ORACLE_COMPLETE), SELFCHECK_DIFFERENT);
}
END_TEST

START_TEST(stack_beyond_the_copy_is_not_checked)
{
	ck_assert_int_eq(compare(4, 0, 3, ORACLE_OUTSIDE), SELFCHECK_UNCHECKED);
	ck_assert_int_eq(compare(3, HA_SITE_TRUNCATED, 3, ORACLE_OUTSIDE), SELFCHECK_UNCHECKED);
}
END_TEST

/* ---- captures of the test's own stack */

static struct target *target;
static struct maps maps;
static struct modules modules;
static struct shm *shm;
static struct reader *reader;
static struct selfcheck *selfcheck;

static void setup(void)
{
	const struct shm_options options = {
		.site_capacity = 4096, .live_size_max = 64u << 20, .capture_every = 1};
	struct memory_reader memory;

	snapshot_init();
	assert_ok(target_open(getpid(), &target));
	assert_ok(maps_read(getpid(), &maps));
	assert_ok(modules_read(target, &maps, &modules));
	assert_ok(shm_create(&options, &shm));
	assert_ok(reader_create(shm, &reader));
	memory = memory_reader_of(target);
	assert_ok(selfcheck_create(reader, &memory, &modules, &selfcheck));
}

static void teardown(void)
{
	selfcheck_free(selfcheck);
	reader_free(reader);
	shm_free(shm);
	modules_deinit(&modules);
	maps_deinit(&maps);
	target_free(target);
}

/* Let the payload capture the state, recorded under the snapshot's stack as it is now. */
static struct ha_capture *capture(const struct snapshot *snapshot, uint16_t flags)
{
	struct ha_captures *captures = shm_region(shm, HA_REGION_CAPTURES);

	snapshot_capture(snapshot, shm->header, flags);
	ck_assert_uint_eq(captures->state[0], HA_CAPTURE_FULL);
	captures->capture[0].stack_address = snapshot->address;
	return &captures->capture[0];
}

static void expect_counts(uint64_t compared, uint64_t distinct, uint64_t different,
			  uint64_t unchecked)
{
	const struct selfcheck_counts *counts = selfcheck_counts(selfcheck);

	ck_assert_uint_eq(counts->compared, compared);
	ck_assert_uint_eq(counts->distinct, distinct);
	ck_assert_uint_eq(counts->different, different);
	ck_assert_uint_eq(counts->unchecked, unchecked);
}

START_TEST(right_stack_is_the_same)
{
	struct snapshot *snapshot = snapshot_create();

	for (uint64_t i = 1; i <= 3; i++) {
		capture(snapshot, 0);
		assert_ok(selfcheck_drain(selfcheck));
		if (selfcheck_difference(selfcheck, 0))
			ck_abort_msg("%s", selfcheck_difference(selfcheck, 0));
		expect_counts(i, 1, 0, 0);
	}
	free(snapshot);
}
END_TEST

START_TEST(wrong_stack_is_different_and_shown)
{
	struct snapshot *snapshot = snapshot_create();
	char address[32];

	snapshot->pc[_i] += 4;
	snprintf(address, sizeof(address), "%#lx ", snapshot->pc[_i]);
	capture(snapshot, 0);
	assert_ok(selfcheck_drain(selfcheck));
	expect_counts(1, 1, 1, 0);
	ck_assert_ptr_nonnull(strstr(selfcheck_difference(selfcheck, 0), address));
	ck_assert_ptr_null(selfcheck_difference(selfcheck, 1));
	free(snapshot);
}
END_TEST

START_TEST(stack_without_its_outermost_frame_is_different)
{
	struct snapshot *snapshot = snapshot_create();

	snapshot->frames--;
	capture(snapshot, _i ? HA_SITE_TRUNCATED : 0);
	assert_ok(selfcheck_drain(selfcheck));
	expect_counts(1, 1, 1, 0);
	free(snapshot);
}
END_TEST

START_TEST(first_differences_are_kept)
{
	struct snapshot *snapshot = snapshot_create();
	uint64_t pc = snapshot->pc[2];

	for (uint64_t i = 1; i <= SELFCHECK_SHOWN + 2; i++) {
		snapshot->pc[2] = pc + i;
		capture(snapshot, 0);
		assert_ok(selfcheck_drain(selfcheck));
		expect_counts(i, i, i, 0);
	}
	ck_assert_ptr_nonnull(selfcheck_difference(selfcheck, SELFCHECK_SHOWN - 1));
	ck_assert_ptr_null(selfcheck_difference(selfcheck, SELFCHECK_SHOWN));
	free(snapshot);
}
END_TEST

START_TEST(changed_stack_is_different)
{
	struct snapshot *snapshot = snapshot_create();
	struct ha_capture *taken = capture(snapshot, 0);

	/* The return address in the caller's frame. */
	for (size_t i = sizeof(struct ha_frame) / 8; i < taken->stack_size / 8; i++) {
		if (taken->stack[i] == snapshot->pc[1])
			taken->stack[i] = snapshot->pc[2];
	}
	assert_ok(selfcheck_drain(selfcheck));
	expect_counts(1, 1, 1, 0);
	free(snapshot);
}
END_TEST

START_TEST(capture_of_other_modules_is_not_checked)
{
	struct snapshot *snapshot = snapshot_create();

	capture(snapshot, 0);
	assert_ok(shm_publish_modules(shm, NULL, 0, 2, 0));
	assert_ok(selfcheck_drain(selfcheck));
	expect_counts(0, 0, 0, 1);
	free(snapshot);
}
END_TEST

START_TEST(short_copy_is_not_checked)
{
	struct snapshot *snapshot = snapshot_create();

	snapshot->size = sizeof(struct ha_frame) + 64;
	capture(snapshot, 0);
	assert_ok(selfcheck_drain(selfcheck));
	expect_counts(0, 0, 0, 1);
	free(snapshot);
}
END_TEST

START_TEST(malformed_captures_are_not_checked)
{
	struct snapshot *snapshot = snapshot_create();
	uint64_t unchecked = 0;

	capture(snapshot, 0)->stack_size = 8;
	assert_ok(selfcheck_drain(selfcheck));
	expect_counts(0, 0, 0, ++unchecked);
	capture(snapshot, 0)->stack_size = UINT32_MAX;
	assert_ok(selfcheck_drain(selfcheck));
	capture(snapshot, 0)->stack_address = UINT64_MAX - 7;
	assert_ok(selfcheck_drain(selfcheck));
	capture(snapshot, 0)->stack_address = 4;
	assert_ok(selfcheck_drain(selfcheck));
	capture(snapshot, 0)->site = 0;
	assert_ok(selfcheck_drain(selfcheck));
	capture(snapshot, 0)->site = UINT32_MAX;
	assert_ok(selfcheck_drain(selfcheck));
	capture(snapshot, 0)->site = 4095;
	assert_ok(selfcheck_drain(selfcheck));
	ck_assert_uint_ge(selfcheck_counts(selfcheck)->unchecked, 6);
	ck_assert_uint_eq(selfcheck_counts(selfcheck)->different, 0);
	free(snapshot);
}
END_TEST

START_TEST(capture_is_left_out_when_none_is_free)
{
	struct snapshot *snapshot = snapshot_create();
	struct ha_captures *captures = shm_region(shm, HA_REGION_CAPTURES);
	size_t i;

	for (i = 0; i < HA_CAPTURES + 3; i++)
		capture(snapshot, 0);
	for (i = 0; i < HA_CAPTURES; i++) {
		ck_assert_uint_eq(captures->state[i], HA_CAPTURE_FULL);
		captures->capture[i].stack_address = snapshot->address;
	}
	captures->state[5] = HA_CAPTURE_WRITING;
	assert_ok(selfcheck_drain(selfcheck));
	ck_assert_uint_eq(captures->state[5], HA_CAPTURE_WRITING);
	expect_counts(HA_CAPTURES - 1, 1, 0, 0);
	free(snapshot);
}
END_TEST

START_TEST(captures_become_rarer_when_there_are_too_many)
{
	struct snapshot *snapshot = snapshot_create();
	uint64_t every = 1;

	for (int i = 0; i < 20; i++) {
		for (size_t k = 0; k < HA_CAPTURES; k++)
			capture(snapshot, 0);
		assert_ok(selfcheck_drain(selfcheck));
		ck_assert_uint_ge(shm->header->capture_every, every);
		every = shm->header->capture_every;
	}
	ck_assert_uint_gt(every, 100);
	for (int i = 0; i < 20; i++)
		assert_ok(selfcheck_drain(selfcheck));
	ck_assert_uint_eq(shm->header->capture_every, 1);
	free(snapshot);
}
END_TEST

Suite *selfcheck_suite(void)
{
	Suite *suite = suite_create("selfcheck");
	TCase *verdicts = tcase_create("verdicts");
	TCase *captures = tcase_create("captures");

	tcase_add_test(verdicts, equal_stacks_are_the_same);
	tcase_add_test(verdicts, one_other_address_is_different);
	tcase_add_test(verdicts, missing_and_invented_frames_are_different);
	tcase_add_test(verdicts, truncated_stack_is_different_unless_libunwind_stops_there);
	tcase_add_test(verdicts, guess_is_allowed_where_libunwind_has_no_table);
	tcase_add_test(verdicts, deep_stack_is_compared_as_far_as_it_is_kept);
	tcase_add_test(verdicts, stack_beyond_the_copy_is_not_checked);
	suite_add_tcase(suite, verdicts);
	tcase_add_checked_fixture(captures, setup, teardown);
	tcase_set_timeout(captures, 60);
	tcase_add_test(captures, right_stack_is_the_same);
	tcase_add_loop_test(captures, wrong_stack_is_different_and_shown, 0, 9);
	tcase_add_loop_test(captures, stack_without_its_outermost_frame_is_different, 0, 2);
	tcase_add_test(captures, first_differences_are_kept);
	tcase_add_test(captures, changed_stack_is_different);
	tcase_add_test(captures, capture_of_other_modules_is_not_checked);
	tcase_add_test(captures, short_copy_is_not_checked);
	tcase_add_test(captures, malformed_captures_are_not_checked);
	tcase_add_test(captures, capture_is_left_out_when_none_is_free);
	tcase_add_test(captures, captures_become_rarer_when_there_are_too_many);
	suite_add_tcase(suite, captures);
	return suite;
}
