/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/live.h"
#include "tests/core_world.h"
#include "tests/tests.h"

#include <pthread.h>
#include <stdlib.h>

#define FIRST	       0x7f0000000000ull
#define MEDIUM_BUCKETS (1u << 15)

static struct world world;

static void setup_small(void)
{
	world_init(&world, &(struct world_options){.buckets = 2048, .live_buckets = 8192});
}

static void setup_tiny(void)
{
	world_init(&world, &(struct world_options){.buckets = 1, .live_buckets = 16});
}

static void setup_medium(void)
{
	world_init(&world, &(struct world_options){.buckets = MEDIUM_BUCKETS});
}

static void setup_large(void)
{
	world_init(&world, &(struct world_options){
				   .buckets = 1u << 21, .live_buckets = 6u << 20, .huge = true});
	world_add_segment(&world, 4u << 20);
}

static void teardown(void)
{
	world_deinit(&world);
}

/* As the recorder does: first where it is fast. */
static enum live_insert insert(uint64_t ptr, const struct live_block *block, struct live_block *old)
{
	if (live_insert_first(live_prefetch(world.shm, ptr), ptr, block))
		return LIVE_INSERTED;
	return live_insert(world.shm, ptr, block, old);
}

static bool take_out(uint64_t ptr, struct live_block *ret)
{
	return live_take_first(world.shm, ptr, ret) || live_take(world.shm, ptr, ret);
}

static enum live_insert put(uint64_t ptr, uint64_t size, uint32_t site)
{
	struct live_block block = {.size = size, .site = site, .tick = 3}, old;

	return insert(ptr, &block, &old);
}

static bool take_is(uint64_t ptr, uint64_t size, uint32_t site)
{
	struct live_block block;

	return take_out(ptr, &block) && block.size == size && block.site == site && block.tick == 3;
}

static void assert_empty(void)
{
	uint64_t bytes;

	ck_assert_uint_eq(world_live_cells(&world, &bytes), 0);
}

START_TEST(takes_what_was_inserted)
{
	struct live_block none;

	ck_assert_int_eq(put(FIRST, 100, 5), LIVE_INSERTED);
	ck_assert(take_is(FIRST, 100, 5));
	ck_assert(!take_out(FIRST, &none));
	assert_empty();
}
END_TEST

START_TEST(keeps_largest_size_site_and_address)
{
	uint64_t ptr = (1ull << 47) - 8;

	put(ptr, HA_VALUE_SIZE_MAX, HA_SITES_MAX - 1);
	ck_assert(take_is(ptr, HA_VALUE_SIZE_MAX, HA_SITES_MAX - 1));
}
END_TEST

START_TEST(keeps_neighbours_8_bytes_apart)
{
	for (uint64_t i = 0; i < 1000; i++)
		ck_assert_int_eq(put(FIRST + 8 * i, i, (uint32_t)i), LIVE_INSERTED);
	for (uint64_t i = 0; i < 1000; i++)
		ck_assert(take_is(FIRST + 8 * i, i, (uint32_t)i));
	assert_empty();
}
END_TEST

START_TEST(replaces_a_block_that_was_not_freed)
{
	struct live_block block = {.size = 32, .site = 2}, old;

	put(FIRST, 16, 1);
	ck_assert_int_eq(insert(FIRST, &block, &old), LIVE_REPLACED);
	ck_assert_uint_eq(old.size, 16);
	ck_assert_uint_eq(old.site, 1);
	ck_assert(take_out(FIRST, &block));
	ck_assert_uint_eq(block.size, 32);
	assert_empty();
}
END_TEST

START_TEST(replaces_a_block_of_an_older_segment)
{
	struct live_block block = {.size = 32, .site = 2}, old;

	put(FIRST, 16, 1);
	world_add_segment(&world, 2048);
	ck_assert_int_eq(insert(FIRST, &block, &old), LIVE_REPLACED);
	ck_assert_uint_eq(old.size, 16);
}
END_TEST

/* ---- what the first bucket decides alone ---- */

/* It is the one that the other functions begin with. */
START_TEST(first_bucket_is_the_same_for_all)
{
	for (uint64_t i = 0; i < 3000; i++) {
		uint64_t ptr = FIRST + i * 4104;
		struct live_block block = {.size = i, .site = 9}, got;

		ck_assert(live_insert_first(live_prefetch(world.shm, ptr), ptr, &block));
		ck_assert(live_take(world.shm, ptr, &got));
		ck_assert_uint_eq(got.size, i);
		ck_assert_int_eq(live_insert(world.shm, ptr, &block, &got), LIVE_INSERTED);
		ck_assert(live_take_first(world.shm, ptr, &got));
		ck_assert_uint_eq(got.size, i);
	}
	assert_empty();
}
END_TEST

/* Each cell is used, and each found. */
START_TEST(first_bucket_has_three_cells)
{
	const uint64_t ptr[] = {FIRST, FIRST + 8, FIRST + 16, FIRST + 24};
	struct live_block block = {.site = 9}, got;

	for (int i = 0; i < 4; i++) {
		bool first = live_insert_first(live_prefetch(world.shm, ptr[i]), ptr[i], &block);

		ck_assert_int_eq(first, i < 3);
	}
	for (int freed = 0; freed < 3; freed++) {
		ck_assert(live_take_first(world.shm, ptr[freed], &got));
		ck_assert(!live_take_first(world.shm, ptr[freed], &got));
		ck_assert(live_insert_first(live_prefetch(world.shm, ptr[3]), ptr[3], &block));
		ck_assert(live_take_first(world.shm, ptr[3], &got));
		ck_assert(live_insert_first(live_prefetch(world.shm, ptr[freed]), ptr[freed],
					    &block));
	}
}
END_TEST

START_TEST(first_bucket_does_not_decide)
{
	struct live_block block = {.size = 1, .site = 9}, got;
	struct ha_bucket *bucket = live_prefetch(world.shm, FIRST);
	uint64_t cell;

	/* Of a block that stands here, or is being reallocated, */
	ck_assert(live_insert_first(bucket, FIRST, &block));
	ck_assert(!live_insert_first(bucket, FIRST, &block));
	cell = live_hold(world.shm, FIRST);
	ck_assert(!live_take_first(world.shm, FIRST, &got));
	live_release(world.shm, cell);
	ck_assert(live_take_first(world.shm, FIRST, &got));
	/* where others have passed by, */
	bucket->passed = 1;
	ck_assert(!live_insert_first(bucket, FIRST, &block));
	bucket->passed = 0;
	/* where it is not the only one. */
	ck_assert(live_insert_first(bucket, FIRST, &block));
	world_add_segment(&world, 2048);
	ck_assert_ptr_null(live_prefetch(world.shm, FIRST));
	ck_assert(!live_take_first(world.shm, FIRST, &got));
	ck_assert(live_take(world.shm, FIRST, &got));
	ck_assert_int_eq(live_insert(world.shm, FIRST, &block, &got), LIVE_INSERTED);
	ck_assert(live_take_first(world.shm, FIRST, &got));
	assert_empty();
}
END_TEST

START_TEST(accepts_what_a_key_can_hold)
{
	ck_assert(live_accepts(8));
	ck_assert(live_accepts((1ull << 47) - 8));
	ck_assert(!live_accepts(0));
	ck_assert(!live_accepts(1ull << 47));
	ck_assert(!live_accepts(UINT64_MAX - 7));
	for (uint64_t odd = 1; odd < 8; odd++)
		ck_assert(!live_accepts(FIRST + odd));
}
END_TEST

/* ---- full segments, and several ---- */

START_TEST(fills_all_cells_and_then_says_full)
{
	uint32_t inserted = 0;

	for (uint64_t i = 0; i < 100; i++)
		inserted += put(FIRST + 16 * i, i, 1) == LIVE_INSERTED;
	ck_assert_uint_eq(inserted, HA_CELLS);
	for (uint64_t i = 0; i < HA_CELLS; i++)
		ck_assert(take_is(FIRST + 16 * i, i, 1));
	assert_empty();
}
END_TEST

START_TEST(uses_older_segments_when_the_newest_is_full)
{
	uint32_t inserted = 0;

	world_add_segment(&world, 1);
	world_add_segment(&world, 1);
	for (uint64_t i = 0; i < 100; i++)
		inserted += put(FIRST + 16 * i, i, 1) == LIVE_INSERTED;
	ck_assert_uint_eq(inserted, 3 * HA_CELLS);
	for (uint64_t i = 0; i < 3 * HA_CELLS; i++)
		ck_assert(take_is(FIRST + 16 * i, i, 1));
	assert_empty();
}
END_TEST

START_TEST(does_not_find_a_held_block)
{
	struct live_block block;
	uint64_t cell;

	put(FIRST, 16, 1);
	cell = live_hold(world.shm, FIRST);
	ck_assert_uint_lt(cell, LIVE_CELLS);
	ck_assert_uint_eq(live_held_size(world.shm, cell), 16);
	ck_assert(!take_out(FIRST, &block));
	ck_assert_uint_eq(live_hold(world.shm, FIRST), LIVE_NO_CELL);
	/* Another thread may get the address before the hold ends. */
	ck_assert_int_eq(put(FIRST, 48, 2), LIVE_INSERTED);
	ck_assert(live_retire(world.shm, cell, &block));
	ck_assert_uint_eq(block.size, 16);
	ck_assert(!live_retire(world.shm, cell, &block));
	ck_assert(take_is(FIRST, 48, 2));
	assert_empty();
}
END_TEST

START_TEST(releases_a_held_block_unchanged)
{
	uint64_t cell;

	put(FIRST, 16, 1);
	cell = live_hold(world.shm, FIRST);
	live_release(world.shm, cell);
	ck_assert(take_is(FIRST, 16, 1));
}
END_TEST

START_TEST(updates_a_held_block_only_at_its_address)
{
	struct live_block block = {.size = 64, .site = 9, .tick = 3}, old;
	uint64_t cell;

	put(FIRST, 16, 1);
	cell = live_hold(world.shm, FIRST);
	ck_assert(!live_update(world.shm, cell, FIRST + 16, &block, &old));
	ck_assert(live_update(world.shm, cell, FIRST, &block, &old));
	ck_assert_uint_eq(old.size, 16);
	ck_assert(take_is(FIRST, 64, 9));
}
END_TEST

START_TEST(refuses_cell_numbers_that_are_not_held)
{
	struct live_block block = {0}, old;

	put(FIRST, 16, 1);
	ck_assert(!live_retire(world.shm, LIVE_NO_CELL, &old));
	ck_assert(!live_retire(world.shm, LIVE_CELLS - 1, &old));
	for (uint64_t cell = 0; cell < 2050 * HA_CELLS; cell++) {
		ck_assert(!live_retire(world.shm, cell, &old));
		ck_assert(!live_update(world.shm, cell, FIRST, &block, &old));
		live_release(world.shm, cell);
	}
	ck_assert(take_is(FIRST, 16, 1));
}
END_TEST

/* Blocks without room when a table is filled to four fifths with this stride. */
static uint32_t lost_at_high_load(uint64_t stride)
{
	uint32_t lost = 0;

	for (uint64_t i = 0; i < MEDIUM_BUCKETS * HA_CELLS / 5 * 4; i++)
		lost += put(FIRST + stride * i, 1, 1) != LIVE_INSERTED;
	return lost;
}

START_TEST(spreads_strided_addresses_evenly)
{
	static const uint64_t strides[] = {8, 16, 24, 64, 112, 4096, 1u << 16, 3u << 15, 1u << 20};

	ck_assert_uint_eq(lost_at_high_load(strides[_i]), 0);
}
END_TEST

/* Dense pages beside empty ones: the buckets of the dense ones are full. */
START_TEST(keeps_dense_pages_apart)
{
	uint64_t blocks = MEDIUM_BUCKETS * HA_CELLS / 2, bytes;
	uint32_t wrong = 0;

	for (uint64_t i = 0; i < blocks; i++)
		wrong += put(FIRST + i / 512 * 65536 + i % 512 * 8, i, 1) != LIVE_INSERTED;
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(world_live_cells(&world, &bytes), blocks);
	for (uint64_t i = 0; i < blocks; i++)
		wrong += !take_is(FIRST + i / 512 * 65536 + i % 512 * 8, i, 1);
	ck_assert_uint_eq(wrong, 0);
	assert_empty();
}
END_TEST

/* Of two blocks at one place the later one counts, wherever the earlier one stands. */
START_TEST(replaces_blocks_that_are_not_in_their_first_bucket)
{
	struct live_block block = {.size = 32, .site = 2, .tick = 3}, old;
	uint64_t blocks = MEDIUM_BUCKETS * HA_CELLS / 2;
	uint32_t wrong = 0;

	for (uint64_t i = 0; i < blocks; i++)
		wrong += put(FIRST + 8 * i, 16, 1) != LIVE_INSERTED;
	for (uint64_t i = 0; i < blocks; i++)
		wrong += insert(FIRST + 8 * i, &block, &old) != LIVE_REPLACED;
	for (uint64_t i = 0; i < blocks; i++)
		wrong += !take_is(FIRST + 8 * i, 32, 2);
	ck_assert_uint_eq(wrong, 0);
	assert_empty();
}
END_TEST

/*
 * What an operation looks at depends on the number of segments and on what is
 * in its first bucket. So a table is as fast as new when nothing is left in it.
 */
START_TEST(leaves_no_trace_after_10_million_inserts)
{
	uint64_t state = 1, ring[4096] = {0}, bytes, next = 0;
	struct live_block block;
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < 10000000; i++) {
		uint64_t *slot = &ring[world_random(&state) % 4096];

		if (*slot)
			wrong += !take_out(*slot, &block);
		*slot = FIRST + next++ * 16;
		wrong += put(*slot, 1, 1) != LIVE_INSERTED;
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(world_live_cells(&world, &bytes), 4096);
	for (uint32_t i = 0; i < 4096; i++)
		ck_assert(take_out(ring[i], &block));
	assert_empty();
}
END_TEST

START_TEST(holds_10_million_blocks)
{
	uint32_t wrong = 0;
	uint64_t bytes;

	for (uint64_t i = 0; i < 10000000; i++)
		wrong += put(FIRST + 48 * i, i & 0xfff, i & 0x3ff) != LIVE_INSERTED;
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(world_live_cells(&world, &bytes), 10000000);
	for (uint64_t i = 0; i < 10000000; i++)
		wrong += !take_is(FIRST + 48 * i, i & 0xfff, i & 0x3ff);
	ck_assert_uint_eq(wrong, 0);
	assert_empty();
}
END_TEST

/* ---- threads ---- */

#define SLOTS 4096

static uint64_t exchange[SLOTS]; /* blocks, freed by whoever finds them */
static uint64_t bytes_in, bytes_out, next_block;

/* Each block is freed by another thread than the one that made it, mostly. */
static void *churn(void *seed)
{
	uint64_t state = (uint64_t)seed, in = 0, out = 0;
	struct live_block block = {.site = (uint32_t)state}, found;

	for (uint32_t i = 0; i < 200000; i++) {
		uint64_t ptr = FIRST + 16 * __atomic_fetch_add(&next_block, 1, __ATOMIC_RELAXED);
		uint64_t old;

		block.size = world_random(&state) % 1000;
		if (insert(ptr, &block, &found) != LIVE_INSERTED)
			abort();
		in += block.size;
		old = __atomic_exchange_n(&exchange[world_random(&state) % SLOTS], ptr,
					  __ATOMIC_ACQ_REL);
		if (!old)
			continue;
		if (!take_out(old, &found))
			abort();
		out += found.size;
	}
	__atomic_fetch_add(&bytes_in, in, __ATOMIC_RELAXED);
	__atomic_fetch_add(&bytes_out, out, __ATOMIC_RELAXED);
	return NULL;
}

START_TEST(keeps_every_block_of_many_threads)
{
	static const int counts[] = {1, 4, 32};
	uint64_t cells = 0, bytes;
	pthread_t thread[32];

	for (int i = 0; i < counts[_i]; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, churn, (void *)(i + 1l)), 0);
	for (int i = 0; i < counts[_i]; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < SLOTS; i++)
		cells += exchange[i] != 0;
	ck_assert_uint_eq(world_live_cells(&world, &bytes), cells);
	ck_assert_uint_eq(bytes, bytes_in - bytes_out);
}
END_TEST

Suite *core_live_suite(void)
{
	Suite *suite = suite_create("core_live");
	TCase *small = tcase_create("small"), *tiny = tcase_create("tiny");
	TCase *medium = tcase_create("medium"), *large = tcase_create("large");

	tcase_set_timeout(small, 60);
	tcase_add_checked_fixture(small, setup_small, teardown);
	tcase_add_test(small, takes_what_was_inserted);
	tcase_add_test(small, keeps_largest_size_site_and_address);
	tcase_add_test(small, keeps_neighbours_8_bytes_apart);
	tcase_add_test(small, replaces_a_block_that_was_not_freed);
	tcase_add_test(small, replaces_a_block_of_an_older_segment);
	tcase_add_test(small, first_bucket_is_the_same_for_all);
	tcase_add_test(small, first_bucket_has_three_cells);
	tcase_add_test(small, first_bucket_does_not_decide);
	tcase_add_test(small, accepts_what_a_key_can_hold);
	tcase_add_test(small, does_not_find_a_held_block);
	tcase_add_test(small, releases_a_held_block_unchanged);
	tcase_add_test(small, updates_a_held_block_only_at_its_address);
	tcase_add_test(small, refuses_cell_numbers_that_are_not_held);
	tcase_add_loop_test(small, keeps_every_block_of_many_threads, 0, 3);
	suite_add_tcase(suite, small);
	tcase_add_checked_fixture(tiny, setup_tiny, teardown);
	tcase_add_test(tiny, fills_all_cells_and_then_says_full);
	tcase_add_test(tiny, uses_older_segments_when_the_newest_is_full);
	suite_add_tcase(suite, tiny);
	tcase_set_timeout(medium, 60);
	tcase_add_checked_fixture(medium, setup_medium, teardown);
	tcase_add_loop_test(medium, spreads_strided_addresses_evenly, 0, 9);
	tcase_add_test(medium, keeps_dense_pages_apart);
	tcase_add_test(medium, replaces_blocks_that_are_not_in_their_first_bucket);
	tcase_add_test(medium, leaves_no_trace_after_10_million_inserts);
	suite_add_tcase(suite, medium);
	tcase_set_timeout(large, 120);
	tcase_add_checked_fixture(large, setup_large, teardown);
	tcase_add_test(large, holds_10_million_blocks);
	suite_add_tcase(suite, large);
	return suite;
}
