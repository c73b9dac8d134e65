/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/sites.h"
#include "tests/core_world.h"
#include "tests/tests.h"

#include <pthread.h>
#include <string.h>

static struct world world;

static void setup(void)
{
	world_init(&world, NULL);
}

static void setup_tiny(void)
{
	world_init(&world, &(struct world_options){.sites = 16, .arena_size = 4096});
}

static void teardown(void)
{
	world_deinit(&world);
}

/* A stack of up to 40 frames, different for each number. */
static uint32_t make_stack(uint64_t number, uint64_t *pc)
{
	uint32_t frames = 1 + (uint32_t)(number % 40);

	for (uint32_t i = 0; i < frames; i++)
		pc[i] = 0x400000 + i * 0x100;
	pc[frames - 1] += number << 12;
	return frames;
}

static uint32_t intern(uint64_t number)
{
	uint64_t pc[40];
	struct site_key key = {.pc = pc, .frames = make_stack(number, pc)};

	return sites_intern(world.shm, &key);
}

static void assert_site_is(uint32_t site, uint64_t number)
{
	const struct ha_site *body = sites_get(world.shm, site);
	uint64_t pc[40];
	uint32_t frames = make_stack(number, pc);

	ck_assert_ptr_nonnull(body);
	ck_assert_uint_eq(body->frames, frames);
	ck_assert_mem_eq(body->pc, pc, frames * sizeof(pc[0]));
}

START_TEST(gives_the_same_stack_the_same_site)
{
	uint32_t site = intern(77);

	ck_assert_uint_eq(site, 1);
	ck_assert_uint_eq(intern(77), site);
	ck_assert_uint_eq(intern(78), 2);
	assert_site_is(site, 77);
}
END_TEST

START_TEST(tells_stacks_apart_by_frames_modules_and_flags)
{
	uint64_t pc[] = {0x1000, 0x2000, 0x3000};
	const struct site_key keys[] = {
		{.pc = pc, .frames = 3},
		{.pc = pc, .frames = 2},
		{.pc = pc, .frames = 3, .modules = 1},
		{.pc = pc, .frames = 3, .flags = HA_SITE_TRUNCATED},
		{.pc = pc + 1, .frames = 2},
	};

	for (uint32_t i = 0; i < 5; i++)
		ck_assert_uint_eq(sites_intern(world.shm, &keys[i]), i + 1);
	for (uint32_t i = 0; i < 5; i++)
		ck_assert_uint_eq(sites_intern(world.shm, &keys[i]), i + 1);
	ck_assert_uint_eq(sites_get(world.shm, 4)->flags, HA_SITE_TRUNCATED);
}
END_TEST

START_TEST(keeps_a_site_over_generations)
{
	uint64_t pc[] = {0x1000, 0x2000};
	struct site_key key = {.pc = pc, .frames = 2, .generation = 5};
	uint32_t site = sites_intern(world.shm, &key);

	key.generation = 6;
	ck_assert_uint_eq(sites_intern(world.shm, &key), site);
	ck_assert_uint_eq(sites_get(world.shm, site)->generation, 5);
}
END_TEST

START_TEST(keeps_50000_stacks)
{
	for (uint64_t i = 0; i < 50000; i++)
		ck_assert_uint_eq(intern(i), i + 1);
	for (uint64_t i = 0; i < 50000; i++) {
		ck_assert_uint_eq(intern(i), i + 1);
		assert_site_is((uint32_t)i + 1, i);
	}
}
END_TEST

START_TEST(says_unknown_when_numbers_or_arena_run_out)
{
	uint32_t known = 0;

	for (uint64_t i = 0; i < 1000; i++)
		known += intern(i) != HA_SITE_UNKNOWN;
	ck_assert_uint_gt(known, 5);
	ck_assert_uint_lt(known, 16);
	/* Those that are known stay known. */
	ck_assert_uint_eq(intern(0), 1);
	assert_site_is(1, 0);
}
END_TEST

START_TEST(gives_out_no_more_numbers_than_there_is_memory_for)
{
	uint64_t arena;

	ck_assert_uint_ne(intern(0), HA_SITE_UNKNOWN);
	world.shm->site_limit = world.shm->site_next;
	arena = world.shm->arena_next;
	for (uint64_t i = 1; i < 100; i++)
		ck_assert_uint_eq(intern(i), HA_SITE_UNKNOWN);
	ck_assert_uint_eq(world.shm->arena_next, arena);
	world.shm->site_limit = 0;
	ck_assert_uint_eq(intern(0), 1);
	world.shm->site_limit = UINT32_MAX;
	for (uint64_t i = 1; i < 1000; i++)
		intern(i);
	ck_assert_uint_le(world.shm->site_next, world.shm->site_capacity);
}
END_TEST

#define RACERS 8
#define STACKS 3000

static uint32_t raced[RACERS][STACKS];

static void *race(void *racer)
{
	for (uint64_t i = 0; i < STACKS; i++)
		raced[(uintptr_t)racer][i] = intern(i);
	return NULL;
}

START_TEST(gives_racing_threads_one_site_for_each_stack)
{
	pthread_t thread[RACERS];

	for (uintptr_t i = 0; i < RACERS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, race, (void *)i), 0);
	for (uint32_t i = 0; i < RACERS; i++)
		pthread_join(thread[i], NULL);
	for (uint32_t i = 0; i < STACKS; i++) {
		for (uint32_t r = 1; r < RACERS; r++)
			ck_assert_uint_eq(raced[r][i], raced[0][i]);
		assert_site_is(raced[0][i], i);
	}
}
END_TEST

START_TEST(has_bodies_only_for_sites_in_use)
{
	pthread_t thread[RACERS];
	uint32_t bodies = 0;

	for (uintptr_t i = 0; i < RACERS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, race, (void *)i), 0);
	for (uint32_t i = 0; i < RACERS; i++)
		pthread_join(thread[i], NULL);
	for (uint32_t site = 1; site < world.shm->site_next; site++)
		bodies += sites_get(world.shm, site) != NULL;
	ck_assert_uint_eq(bodies, STACKS);
}
END_TEST

Suite *core_sites_suite(void)
{
	Suite *suite = suite_create("core_sites");
	TCase *plain = tcase_create("plain"), *tiny = tcase_create("tiny");

	tcase_set_timeout(plain, 60);
	tcase_add_checked_fixture(plain, setup, teardown);
	tcase_add_test(plain, gives_the_same_stack_the_same_site);
	tcase_add_test(plain, tells_stacks_apart_by_frames_modules_and_flags);
	tcase_add_test(plain, keeps_a_site_over_generations);
	tcase_add_test(plain, keeps_50000_stacks);
	tcase_add_test(plain, gives_racing_threads_one_site_for_each_stack);
	tcase_add_test(plain, has_bodies_only_for_sites_in_use);
	suite_add_tcase(suite, plain);
	tcase_add_checked_fixture(tiny, setup_tiny, teardown);
	tcase_add_test(tiny, says_unknown_when_numbers_or_arena_run_out);
	tcase_add_test(tiny, gives_out_no_more_numbers_than_there_is_memory_for);
	suite_add_tcase(suite, tiny);
	return suite;
}
