/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "injector/memlimit.h"
#include "payload/protocol.h"
#include "tests/tests.h"

#include <math.h>

#define MIB   1048576ull
#define CELLS 459000ull
#define INUSE (100 * MIB)

static struct memlimit limit;
static struct memlimit_state state;

static void setup(void)
{
	limit = (struct memlimit){.limit_bytes = 256 * MIB};
	state = (struct memlimit_state){
		.held_bytes = 100 * MIB,
		.can_grow = true,
		.live_cells = CELLS,
		.inuse_bytes = INUSE,
	};
}

START_TEST(default_leaves_the_machine_most_of_its_memory)
{
	ck_assert_uint_eq(memlimit_default(64ull << 30), MEMLIMIT_DEFAULT);
	ck_assert_uint_eq(memlimit_default(2ull << 30), 512 * MIB);
	ck_assert_uint_eq(memlimit_default(UINT64_MAX), MEMLIMIT_DEFAULT);
	ck_assert_uint_eq(memlimit_default(0), MEMLIMIT_LEAST);
}
END_TEST

START_TEST(table_that_can_grow_may_be_full)
{
	state.live_permille = 990;
	ck_assert_uint_eq(memlimit_step(&limit, &state), 1);
}
END_TEST

/* A look at a table that takes @permille, as it did before. */
static uint64_t step_at(uint32_t permille)
{
	limit.live_permille = state.live_permille = permille;
	return memlimit_step(&limit, &state);
}

START_TEST(half_empty_table_is_no_matter)
{
	state.can_grow = false;
	ck_assert_uint_eq(step_at(300), 1);
	ck_assert_uint_eq(step_at(499), 1);
	ck_assert_uint_gt(step_at(501), 1);
}
END_TEST

START_TEST(interval_rises_as_the_table_fills_and_falls_as_it_empties)
{
	uint64_t last = 1;

	state.can_grow = false;
	for (uint32_t permille = 400; permille < 1000; permille += 5) {
		uint64_t interval = step_at(permille);

		ck_assert_uint_ge(interval, last);
		last = interval;
	}
	ck_assert_uint_ge(last, INUSE / CELLS * 100);
	for (uint32_t permille = 1000; permille > 400; permille -= 5) {
		uint64_t interval = step_at(permille);

		ck_assert_uint_le(interval, last);
		last = interval;
	}
	ck_assert_uint_eq(last, 1);
}
END_TEST

/* The measure of how full it is has some noise. */
START_TEST(interval_does_not_swing_with_noise)
{
	unsigned int changes = 0;
	uint64_t last;

	state.can_grow = false;
	last = step_at(610);
	for (unsigned int i = 0; i < 1000; i++) {
		uint64_t interval;

		state.live_permille = 600 + i * 7 % 17;
		interval = memlimit_step(&limit, &state);
		changes += interval != last;
		last = interval;
	}
	ck_assert_uint_le(changes, 2);
}
END_TEST

/* A program that only allocates, for an hour, looked at so often. */
struct program {
	double blocks_per_s, size, looks_per_s;
};

/* The table never fills, and there are always samples enough for 5 %. */
START_TEST(no_program_fills_the_table)
{
	static const struct program programs[] = {{1e3, 16, 100},   {1e6, 16, 100},  {5e6, 16, 100},
						  {1e6, 1000, 100}, {1e5, 1e6, 100}, {1e6, 50, 10}};
	const struct program *program = &programs[_i];
	double taken = 0, inuse = 0, interval = 1;
	unsigned int steps = (unsigned int)(3600 * program->looks_per_s);

	state.can_grow = false;
	for (unsigned int step = 0; step < steps; step++) {
		double blocks = program->blocks_per_s / program->looks_per_s;
		double p = interval > 1 ? -expm1(-(program->size + 1) / interval) : 1;

		taken += blocks * p;
		inuse += blocks * program->size;
		state.live_permille = (uint32_t)(taken * 1000 / (double)CELLS);
		state.inuse_bytes = (uint64_t)inuse;
		interval = (double)memlimit_step(&limit, &state);
		ck_assert_msg(state.live_permille < 800, "%u after %u", state.live_permille, step);
	}
	if (interval > 1)
		ck_assert_msg(inuse / interval > 400, "%g bytes in use at %g", inuse, interval);
}
END_TEST

/* We were not looking while it filled: what is left must do, and give figures nonetheless. */
START_TEST(table_that_is_full_at_once_leaves_samples_enough)
{
	uint64_t interval;

	state.can_grow = false;
	state.live_permille = 910;
	interval = memlimit_step(&limit, &state);
	ck_assert_uint_ge(INUSE / interval, 400);
	ck_assert_uint_le(INUSE / interval, CELLS / 64);
}
END_TEST

START_TEST(memory_for_sites_comes_last)
{
	ck_assert_uint_eq(memlimit_segments_room(&limit, 0), 224 * MIB);
	ck_assert_uint_eq(memlimit_segments_room(&limit, 200 * MIB), 24 * MIB);
	ck_assert_uint_eq(memlimit_segments_room(&limit, 230 * MIB), 0);
	ck_assert_uint_eq(memlimit_sites_room(&limit, 230 * MIB), 10 * MIB);
	ck_assert_uint_eq(memlimit_sites_room(&limit, UINT64_MAX), 0);
}
END_TEST

START_TEST(last_sixteenth_raises_the_interval_too)
{
	state.held_bytes = 241 * MIB;
	ck_assert_uint_gt(memlimit_step(&limit, &state), 1);
	state.held_bytes = 300 * MIB;
	ck_assert_uint_ge(memlimit_step(&limit, &state), 64ull << 20);
	state.held_bytes = 100 * MIB;
	ck_assert_uint_eq(memlimit_step(&limit, &state), 1);
}
END_TEST

START_TEST(snapshots_get_their_share)
{
	ck_assert_uint_eq(memlimit_changes(&limit, 40), 256 * MIB / 16 / 40);
}
END_TEST

Suite *memlimit_suite(void)
{
	Suite *suite = suite_create("memlimit");
	TCase *tcase = tcase_create("memlimit");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, default_leaves_the_machine_most_of_its_memory);
	tcase_add_test(tcase, table_that_can_grow_may_be_full);
	tcase_add_test(tcase, half_empty_table_is_no_matter);
	tcase_add_test(tcase, interval_rises_as_the_table_fills_and_falls_as_it_empties);
	tcase_add_test(tcase, interval_does_not_swing_with_noise);
	tcase_add_loop_test(tcase, no_program_fills_the_table, 0, 6);
	tcase_add_test(tcase, table_that_is_full_at_once_leaves_samples_enough);
	tcase_add_test(tcase, memory_for_sites_comes_last);
	tcase_add_test(tcase, last_sixteenth_raises_the_interval_too);
	tcase_add_test(tcase, snapshots_get_their_share);
	suite_add_tcase(suite, tcase);
	return suite;
}
