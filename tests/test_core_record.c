/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/core.h"
#include "payload/core/scratch.h"
#include "payload/core/sites.h"
#include "tests/core_stack.h"
#include "tests/core_world.h"
#include "tests/tests.h"

#include <pthread.h>
#include <string.h>

#define TEXT	  0x555500000000ull
#define CALL(n)	  (TEXT + 0x100 + (n)*16) /* call sites in a function with CFA = rsp + 24 */
#define START	  (TEXT + 0x40)		  /* in the function that ends a stack */
#define BLOCK(n)  (0x7f0000000000ull + (n)*16)
#define LINE	  3u
#define NO_FREE() ck_assert_uint_eq(world_counters(&world).unknown_frees, 0)

static struct world world;
static struct fake_stack stack;

static void add_text(void)
{
	static const struct world_row rows[] = {{0, HA_ESCAPE_END, NULL},
						{0x80, RULE(RULE_RSP, 24, 0), NULL}};

	world_add_rows(&world, TEXT, 0x100000, rows, 2);
	world_publish_modules(&world);
}

static void setup(void)
{
	world_init(&world, NULL);
	add_text();
	fake_stack_init(&stack, 512);
	fake_stack_publish(&stack, &world);
	fake_stack_push(&stack, 16, START);
}

static void teardown(void)
{
	fake_stack_deinit(&stack);
	world_deinit(&world);
}

static void alloc_on(uint64_t line, uint64_t call, uint64_t ptr, uint64_t size)
{
	stack.frame->ra = call;
	core_alloc(world.shm, stack.frame, ptr, size, line);
}

static void alloc_at(uint64_t call, uint64_t ptr, uint64_t size)
{
	alloc_on(LINE, call, ptr, size);
}

static void realloc_end_at(uint64_t call, uint64_t token, uint64_t ptr, uint64_t size)
{
	stack.frame->ra = call;
	core_realloc_end(world.shm, stack.frame, token, ptr, size, LINE);
}

/* The site of a call, made by now. */
static uint32_t site_at(uint64_t call)
{
	for (uint32_t site = 1; site < world.shm->site_next; site++) {
		const struct ha_site *body = sites_get(world.shm, site);

		if (body && body->pc[0] == call)
			return site;
	}
	ck_abort_msg("no site for %#lx", call);
}

static void assert_sums(uint32_t site, uint64_t allocs, uint64_t alloc_bytes, uint64_t frees,
			uint64_t freed_bytes)
{
	struct ha_sums sums = world_site_sums(&world, site);

	ck_assert_uint_eq(sums.alloc_count, allocs);
	ck_assert_uint_eq(sums.alloc_bytes, alloc_bytes);
	ck_assert_uint_eq(sums.freed_count, frees);
	ck_assert_uint_eq(sums.freed_bytes, freed_bytes);
}

static void assert_live(uint64_t blocks, uint64_t bytes)
{
	uint64_t live_bytes;

	ck_assert_uint_eq(world_live_cells(&world, &live_bytes), blocks);
	ck_assert_uint_eq(live_bytes, bytes);
}

START_TEST(sums_what_each_site_allocates_and_frees)
{
	alloc_at(CALL(1), BLOCK(1), 100);
	alloc_at(CALL(1), BLOCK(2), 50);
	alloc_at(CALL(2), BLOCK(3), 7);
	core_free(world.shm, BLOCK(1), LINE + 1);
	assert_sums(site_at(CALL(1)), 2, 150, 1, 100);
	assert_sums(site_at(CALL(2)), 1, 7, 0, 0);
	assert_live(2, 57);
	ck_assert_uint_eq(world_counters(&world).events, 4);
	ck_assert_uint_eq(sites_get(world.shm, site_at(CALL(1)))->frames, 2);
	ck_assert_uint_eq(sites_get(world.shm, site_at(CALL(1)))->pc[1], START);
}
END_TEST

START_TEST(writes_sums_into_the_stripe_of_the_line)
{
	static const uint32_t lines[] = {0, HA_LINES - 1, HA_LINES, HA_STRIPES - 1};
	const struct ha_stripe *stripe;

	stack.frame->ra = CALL(1);
	core_alloc(world.shm, stack.frame, BLOCK(1), 9, lines[_i]);
	stripe = (const struct ha_stripe *)((const char *)world.shm +
					    world.shm->region[HA_REGION_STRIPES].offset +
					    lines[_i] * world.shm->stripe_size);
	ck_assert_uint_eq(stripe->events, 1);
	ck_assert_uint_eq(((const struct ha_sums *)(stripe + 1))[1].alloc_bytes, 9);
}
END_TEST

static const struct ha_histograms *histograms(uint32_t line, uint32_t site)
{
	const struct ha_histograms *all =
		(const void *)((const char *)world.shm +
			       world.shm->region[HA_REGION_HISTOGRAMS].offset);

	return &all[line * world.shm->site_capacity + site];
}

START_TEST(sorts_sizes_and_lives_into_bins)
{
	const struct ha_histograms *bins;

	for (uint64_t i = 0; i < 10; i++)
		alloc_at(CALL(1), BLOCK(i), 100);
	alloc_at(CALL(1), BLOCK(10), 0);
	alloc_at(CALL(1), BLOCK(11), HA_VALUE_SIZE_MAX);
	bins = histograms(LINE, site_at(CALL(1)));
	ck_assert_uint_eq(bins->size[4], 10);
	ck_assert_uint_eq(bins->size[0], 1);
	ck_assert_uint_eq(bins->size[HA_BINS - 1], 1);
	core_free(world.shm, BLOCK(0), LINE);
	world.shm->tick = 1;
	core_free(world.shm, BLOCK(1), LINE);
	world.shm->tick = 1000;
	core_free(world.shm, BLOCK(2), LINE);
	core_free(world.shm, BLOCK(3), LINE);
	ck_assert_uint_eq(bins->lifetime[0], 1);
	ck_assert_uint_eq(bins->lifetime[1], 1);
	ck_assert_uint_eq(bins->lifetime[10], 2);
	/* Months: from a tick and to a tick that needs all of its bits. */
	world.shm->tick = 0x81000003;
	core_free(world.shm, BLOCK(4), LINE);
	alloc_at(CALL(1), BLOCK(4), 100);
	world.shm->tick += 3;
	core_free(world.shm, BLOCK(4), LINE);
	ck_assert_uint_eq(bins->lifetime[HA_BINS - 1], 1);
	ck_assert_uint_eq(bins->lifetime[2], 1);
}
END_TEST

/* Two sizes in turn, and lives that repeat with a period of 16. */
START_TEST(bins_have_the_parts_that_all_have)
{
	const uint64_t times = 100000;
	const struct ha_histograms *bins;
	double sizes, lives = 0;

	for (uint64_t i = 0; i < times; i++) {
		world.shm->tick = 0;
		alloc_at(CALL(1), BLOCK(1), i % 4 ? 20 : 40);
		world.shm->tick = i % 16 ? 1 : 100;
		core_free(world.shm, BLOCK(1), LINE);
	}
	bins = histograms(LINE, site_at(CALL(1)));
	sizes = (double)bins->size[2] + bins->size[3];
	for (uint32_t i = 0; i < HA_BINS; i++)
		lives += bins->lifetime[i];
	ck_assert_double_eq_tol(sizes, (double)times, 0.05 * (double)times);
	ck_assert_double_eq_tol(lives, (double)times, 0.05 * (double)times);
	ck_assert_double_eq_tol(bins->size[3] / sizes, 0.25, 0.02);
	ck_assert_double_eq_tol(bins->lifetime[7] / lives, 1 / 16.0, 0.01);
}
END_TEST

START_TEST(full_bin_halves_all_of_its_kind)
{
	struct ha_histograms *bins;

	alloc_at(CALL(1), BLOCK(1), 20);
	bins = (struct ha_histograms *)histograms(LINE, site_at(CALL(1)));
	bins->size[2] = (1u << 31) - 1;
	bins->size[5] = 1000;
	alloc_at(CALL(1), BLOCK(2), 20);
	ck_assert_uint_eq(bins->size[2], 1u << 30);
	ck_assert_uint_eq(bins->size[5], 500);
}
END_TEST

START_TEST(counts_what_is_freed_before_the_next_allocation)
{
	alloc_at(CALL(1), BLOCK(1), 8);
	core_free(world.shm, BLOCK(1), LINE);
	alloc_at(CALL(1), BLOCK(1), 8);
	alloc_at(CALL(2), BLOCK(2), 8);
	core_free(world.shm, BLOCK(1), LINE);
	core_free(world.shm, BLOCK(2), LINE);
	alloc_at(CALL(2), BLOCK(3), 8);
	/* Another thread frees it. */
	core_free(world.shm, BLOCK(3), LINE + 1);
	ck_assert_uint_eq(world_site_sums(&world, site_at(CALL(1))).temporary, 1);
	ck_assert_uint_eq(world_site_sums(&world, site_at(CALL(2))).temporary, 1);
}
END_TEST

/* The address that a thread recorded last is another thread's block by then. */
START_TEST(knows_who_allocated_what_is_freed_at_once)
{
	alloc_at(CALL(1), BLOCK(1), 8);
	core_free(world.shm, BLOCK(1), LINE + 1);
	alloc_on(LINE + 1, CALL(2), BLOCK(1), 8);
	core_free(world.shm, BLOCK(1), LINE);
	ck_assert_uint_eq(world_site_sums(&world, site_at(CALL(1))).temporary, 0);
	ck_assert_uint_eq(world_site_sums(&world, site_at(CALL(2))).temporary, 0);
}
END_TEST

START_TEST(counts_frees_of_blocks_from_before)
{
	core_free(world.shm, BLOCK(1), LINE);
	core_free(world.shm, 0, LINE);
	core_free(world.shm, 3, LINE);
	ck_assert_uint_eq(world_counters(&world).unknown_frees, 2);
	ck_assert_uint_eq(world_counters(&world).events, 3);
}
END_TEST

START_TEST(counts_blocks_without_room_as_untracked)
{
	uint64_t untracked;

	world_deinit(&world);
	world_init(&world, &(struct world_options){.buckets = 1});
	add_text();
	fake_stack_publish(&stack, &world);
	for (uint32_t i = 0; i < 20; i++)
		alloc_at(CALL(1), BLOCK(i), 10);
	untracked = world_counters(&world).untracked;
	ck_assert_uint_eq(untracked, 20 - HA_CELLS);
	ck_assert_uint_eq(world_counters(&world).untracked_bytes, untracked * 10);
	assert_sums(site_at(CALL(1)), HA_CELLS, HA_CELLS * 10, 0, 0);
}
END_TEST

START_TEST(records_sizes_above_the_largest_as_that)
{
	alloc_at(CALL(1), BLOCK(1), HA_VALUE_SIZE_MAX + 1);
	ck_assert_uint_eq(world_counters(&world).oversized, 1);
	assert_live(1, HA_VALUE_SIZE_MAX);
}
END_TEST

START_TEST(ignores_a_failed_allocation)
{
	alloc_at(CALL(1), 0, 10);
	assert_live(0, 0);
	ck_assert_uint_eq(world_counters(&world).untracked, 0);
}
END_TEST

START_TEST(retires_a_block_whose_free_was_missed)
{
	alloc_at(CALL(1), BLOCK(1), 100);
	alloc_at(CALL(3), BLOCK(2), 1);
	alloc_at(CALL(2), BLOCK(1), 30);
	assert_sums(site_at(CALL(1)), 1, 100, 1, 100);
	assert_sums(site_at(CALL(2)), 1, 30, 0, 0);
	ck_assert_uint_eq(world_counters(&world).missed_frees, 1);
	ck_assert_uint_eq(world_site_sums(&world, site_at(CALL(1))).missed_frees, 1);
	ck_assert_uint_eq(world_counters(&world).nested_duplicates, 0);
	assert_live(2, 31);
}
END_TEST

START_TEST(takes_the_same_block_in_a_loop_for_a_missed_free)
{
	alloc_at(CALL(1), BLOCK(1), 100);
	alloc_at(CALL(1), BLOCK(1), 100);
	ck_assert_uint_eq(world_counters(&world).missed_frees, 1);
	ck_assert_uint_eq(world_counters(&world).nested_duplicates, 0);
}
END_TEST

/* As alloc_at(), for a call whose caller's frame lies above. */
static void alloc_from_further_out(uint64_t call, uint64_t ptr, uint64_t size)
{
	struct fake_stack outer = stack;

	outer.at = (uint64_t)(stack.frame + 1) + 128;
	outer.frame = (struct ha_frame *)outer.at - 1;
	memset(outer.frame, 0, sizeof(*outer.frame));
	outer.frame->ra = call;
	fake_stack_push(&outer, 16, START);
	core_alloc(world.shm, outer.frame, ptr, size, LINE);
}

START_TEST(takes_a_call_inside_a_call_for_a_nested_duplicate)
{
	/* The inner hooked function was called from further in. */
	alloc_at(CALL(1), BLOCK(1), 100);
	alloc_from_further_out(CALL(2), BLOCK(1), 100);
	ck_assert_uint_eq(world_counters(&world).nested_duplicates, 1);
	ck_assert_uint_eq(world_counters(&world).missed_frees, 0);
	assert_sums(site_at(CALL(1)), 1, 100, 1, 100);
	assert_sums(site_at(CALL(2)), 1, 100, 0, 0);
}
END_TEST

START_TEST(takes_another_threads_block_for_a_missed_free)
{
	alloc_at(CALL(1), BLOCK(1), 100);
	core_free(world.shm, BLOCK(1), LINE + 1);
	alloc_on(LINE + 1, CALL(1), BLOCK(1), 100);
	alloc_from_further_out(CALL(2), BLOCK(1), 100);
	ck_assert_uint_eq(world_counters(&world).nested_duplicates, 0);
	ck_assert_uint_eq(world_counters(&world).missed_frees, 1);
}
END_TEST

START_TEST(takes_a_freed_and_reused_block_for_a_new_one)
{
	alloc_at(CALL(1), BLOCK(1), 100);
	core_free(world.shm, BLOCK(1), LINE);
	alloc_at(CALL(1), BLOCK(1), 100);
	ck_assert_uint_eq(world_counters(&world).missed_frees, 0);
	ck_assert_uint_eq(world_counters(&world).nested_duplicates, 0);
	NO_FREE();
}
END_TEST

/* ---- realloc ---- */

START_TEST(moves_a_block_on_realloc)
{
	uint64_t token;

	alloc_at(CALL(1), BLOCK(1), 100);
	token = core_realloc_begin(world.shm, BLOCK(1), LINE);
	ck_assert_uint_ne(token, 0);
	realloc_end_at(CALL(2), token, BLOCK(9), 300);
	assert_sums(site_at(CALL(1)), 1, 100, 1, 100);
	assert_sums(site_at(CALL(2)), 1, 300, 0, 0);
	assert_live(1, 300);
	core_free(world.shm, BLOCK(9), LINE);
	assert_live(0, 0);
	NO_FREE();
	ck_assert_uint_eq(world_counters(&world).adopted, 0);
}
END_TEST

START_TEST(resizes_a_block_in_place_on_realloc)
{
	uint64_t token;

	alloc_at(CALL(1), BLOCK(1), 100);
	token = core_realloc_begin(world.shm, BLOCK(1), LINE);
	realloc_end_at(CALL(2), token, BLOCK(1), 300);
	assert_sums(site_at(CALL(1)), 1, 100, 1, 100);
	assert_sums(site_at(CALL(2)), 1, 300, 0, 0);
	assert_live(1, 300);
	core_free(world.shm, BLOCK(1), LINE);
	NO_FREE();
	ck_assert_uint_eq(world_counters(&world).missed_frees, 0);
}
END_TEST

START_TEST(keeps_the_block_when_realloc_fails)
{
	uint64_t token;

	alloc_at(CALL(1), BLOCK(1), 100);
	token = core_realloc_begin(world.shm, BLOCK(1), LINE);
	realloc_end_at(CALL(2), token, 0, 300);
	assert_sums(site_at(CALL(1)), 1, 100, 0, 0);
	core_free(world.shm, BLOCK(1), LINE);
	NO_FREE();
}
END_TEST

START_TEST(frees_the_block_when_realloc_to_0_returns_0)
{
	uint64_t token;

	alloc_at(CALL(1), BLOCK(1), 100);
	token = core_realloc_begin(world.shm, BLOCK(1), LINE);
	realloc_end_at(CALL(2), token, 0, 0);
	assert_sums(site_at(CALL(1)), 1, 100, 1, 100);
	assert_live(0, 0);
}
END_TEST

START_TEST(adopts_an_unknown_block_on_realloc)
{
	uint64_t token = core_realloc_begin(world.shm, BLOCK(1), LINE);

	ck_assert_uint_eq(token, 0);
	realloc_end_at(CALL(2), token, BLOCK(2), 300);
	ck_assert_uint_eq(world_counters(&world).adopted, 1);
	ck_assert_uint_eq(world_counters(&world).adopted_bytes, 300);
	assert_sums(site_at(CALL(2)), 1, 300, 0, 0);
}
END_TEST

START_TEST(adopts_nothing_on_realloc_of_no_block)
{
	uint64_t token = core_realloc_begin(world.shm, 0, LINE);

	realloc_end_at(CALL(2), token, BLOCK(2), 300);
	ck_assert_uint_eq(world_counters(&world).adopted, 0);
	assert_sums(site_at(CALL(2)), 1, 300, 0, 0);
}
END_TEST

START_TEST(refuses_the_token_of_another_session)
{
	uint64_t token;

	alloc_at(CALL(1), BLOCK(1), 100);
	token = core_realloc_begin(world.shm, BLOCK(1), LINE);
	world.shm->session++;
	realloc_end_at(CALL(2), token, BLOCK(2), 300);
	assert_sums(site_at(CALL(1)), 1, 100, 0, 0);
	ck_assert_uint_eq(world_counters(&world).adopted, 1);
}
END_TEST

START_TEST(keeps_a_block_that_another_thread_got_during_realloc)
{
	uint64_t token;

	alloc_at(CALL(1), BLOCK(1), 100);
	token = core_realloc_begin(world.shm, BLOCK(1), LINE);
	alloc_at(CALL(3), BLOCK(1), 40);
	realloc_end_at(CALL(2), token, BLOCK(2), 300);
	assert_live(2, 340);
	ck_assert_uint_eq(world_counters(&world).missed_frees, 0);
	core_free(world.shm, BLOCK(1), LINE);
	assert_sums(site_at(CALL(3)), 1, 40, 1, 40);
}
END_TEST

START_TEST(resizes_a_block_on_xallocx)
{
	alloc_at(CALL(1), BLOCK(1), 100);
	stack.frame->ra = CALL(2);
	core_xallocx(world.shm, stack.frame, BLOCK(1), 100, LINE);
	assert_sums(site_at(CALL(1)), 1, 100, 0, 0);
	core_xallocx(world.shm, stack.frame, BLOCK(1), 128, LINE);
	assert_sums(site_at(CALL(1)), 1, 100, 1, 100);
	assert_sums(site_at(CALL(2)), 1, 128, 0, 0);
	core_xallocx(world.shm, stack.frame, BLOCK(2), 64, LINE);
	ck_assert_uint_eq(world_counters(&world).adopted_bytes, 64);
	assert_live(2, 192);
}
END_TEST

/* ---- what cannot be done ---- */

START_TEST(passes_through_when_the_injector_is_dead)
{
	uint64_t token;

	alloc_at(CALL(1), BLOCK(1), 100);
	*(uint32_t *)world.shm->owner = HA_OWNER_DIED;
	alloc_at(CALL(1), BLOCK(2), 100);
	core_free(world.shm, BLOCK(1), LINE);
	token = core_realloc_begin(world.shm, BLOCK(1), LINE);
	realloc_end_at(CALL(1), token, BLOCK(3), 5);
	core_xallocx(world.shm, stack.frame, BLOCK(1), 7, LINE);
	assert_live(1, 100);
	ck_assert_uint_eq(world_counters(&world).events, 1);
	ck_assert_uint_ge(world.shm->gave_up, 4);
}
END_TEST

START_TEST(puts_blocks_on_the_unknown_site_when_sites_run_out)
{
	world_deinit(&world);
	world_init(&world, &(struct world_options){.sites = 4});
	add_text();
	fake_stack_publish(&stack, &world);
	for (uint32_t i = 0; i < 10; i++)
		alloc_at(CALL(i), BLOCK(i), 10);
	ck_assert_uint_eq(world_counters(&world).no_site, 7);
	assert_sums(HA_SITE_UNKNOWN, 7, 70, 0, 0);
}
END_TEST

START_TEST(gives_up_the_walk_when_no_buffer_is_free)
{
	struct walk_start start;

	ck_assert(walk_prepare(world.shm, stack.frame, 0, &start));
	for (uint32_t i = 0; i < 20 * HA_STRIPES; i++)
		scratch_claim(&start, i % HA_STRIPES);
	alloc_at(CALL(1), BLOCK(1), 10);
	ck_assert_uint_eq(world_counters(&world).no_scratch, 1);
	assert_sums(HA_SITE_UNKNOWN, 1, 10, 0, 0);
}
END_TEST

START_TEST(takes_over_a_buffer_that_was_left_by_a_jump)
{
	struct ha_frame *outer = (struct ha_frame *)((uint64_t)stack.frame + 64);
	struct walk_start start;
	struct walk_trace *left;

	ck_assert(walk_prepare(world.shm, stack.frame, 0, &start));
	left = scratch_claim(&start, LINE);
	/* At the same depth the owner may be interrupted, not gone. */
	ck_assert_ptr_ne(scratch_claim(&start, LINE), left);
	ck_assert(walk_prepare(world.shm, outer, 0, &start));
	ck_assert_ptr_eq(scratch_claim(&start, LINE), left);
}
END_TEST

/* ---- threads ---- */

#define THREADS 16
#define ROUNDS	20000
#define SHELF	1024

static uint64_t shelf[SHELF];
static uint64_t next_block;

struct tally {
	uint64_t bytes[8]; /* by call site: made by this thread minus freed by it */
};

static struct tally tallies[THREADS];

/* A block's size and call site follow from its address, so that all know them. */
static uint32_t block_call(uint64_t ptr)
{
	return (uint32_t)(ptr >> 4) % 8;
}

static uint64_t block_size(uint64_t ptr)
{
	return 1 + (ptr >> 4) % 1000;
}

static void put_back(struct tally *tally, struct fake_stack *own, uint64_t old, uint64_t line)
{
	uint64_t token, ptr;

	tally->bytes[block_call(old)] -= block_size(old);
	if (old >> 4 & 1) {
		core_free(world.shm, old, line);
		return;
	}
	token = core_realloc_begin(world.shm, old, line);
	ptr = BLOCK(__atomic_fetch_add(&next_block, 1, __ATOMIC_RELAXED));
	own->frame->ra = CALL(block_call(ptr));
	core_realloc_end(world.shm, own->frame, token, ptr, block_size(ptr), line);
	tally->bytes[block_call(ptr)] += block_size(ptr);
	ptr = __atomic_exchange_n(&shelf[ptr / 16 % SHELF], ptr, __ATOMIC_ACQ_REL);
	if (ptr) {
		tally->bytes[block_call(ptr)] -= block_size(ptr);
		core_free(world.shm, ptr, line);
	}
}

static void *work(void *arg)
{
	struct tally *tally = arg;
	uint64_t number = (uint64_t)(tally - tallies), state = number, line = number;
	struct fake_stack own;

	/* Some of the threads share a line. */
	if (number >= THREADS / 2)
		line = HA_LINES + number % HA_SHARED_LINES;
	/* Its own page is all that is known of this stack, and enough. */
	fake_stack_init(&own, 64);
	fake_stack_push(&own, 16, START);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t ptr = BLOCK(__atomic_fetch_add(&next_block, 1, __ATOMIC_RELAXED)), old;

		own.frame->ra = CALL(block_call(ptr));
		core_alloc(world.shm, own.frame, ptr, block_size(ptr), line);
		tally->bytes[block_call(ptr)] += block_size(ptr);
		old = __atomic_exchange_n(&shelf[world_random(&state) % SHELF], ptr,
					  __ATOMIC_ACQ_REL);
		if (old)
			put_back(tally, &own, old, line);
	}
	fake_stack_deinit(&own);
	return NULL;
}

START_TEST(adds_up_exactly_over_many_threads)
{
	uint64_t expected[8] = {0}, blocks = 0, bytes = 0;
	pthread_t thread[THREADS];

	for (uint64_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, work, &tallies[i]), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		for (uint32_t call = 0; call < 8; call++)
			expected[call] += tallies[i].bytes[call];
	}
	for (uint32_t call = 0; call < 8; call++) {
		struct ha_sums sums = world_site_sums(&world, site_at(CALL(call)));

		ck_assert_uint_eq(sums.alloc_bytes - sums.freed_bytes, expected[call]);
		blocks += sums.alloc_count - sums.freed_count;
		bytes += expected[call];
	}
	assert_live(blocks, bytes);
	NO_FREE();
	ck_assert_uint_eq(world_counters(&world).adopted, 0);
	ck_assert_uint_eq(world_counters(&world).missed_frees, 0);
	ck_assert_uint_eq(world_counters(&world).untracked, 0);
}
END_TEST

Suite *core_record_suite(void)
{
	Suite *suite = suite_create("core_record");
	TCase *calls = tcase_create("calls"), *limits = tcase_create("limits");
	TCase *threads = tcase_create("threads");

	tcase_add_checked_fixture(calls, setup, teardown);
	tcase_add_test(calls, sums_what_each_site_allocates_and_frees);
	tcase_add_test(calls, sorts_sizes_and_lives_into_bins);
	tcase_add_test(calls, bins_have_the_parts_that_all_have);
	tcase_add_test(calls, full_bin_halves_all_of_its_kind);
	tcase_add_test(calls, counts_what_is_freed_before_the_next_allocation);
	tcase_add_test(calls, knows_who_allocated_what_is_freed_at_once);
	tcase_add_loop_test(calls, writes_sums_into_the_stripe_of_the_line, 0, 4);
	tcase_add_test(calls, counts_frees_of_blocks_from_before);
	tcase_add_test(calls, ignores_a_failed_allocation);
	tcase_add_test(calls, retires_a_block_whose_free_was_missed);
	tcase_add_test(calls, takes_the_same_block_in_a_loop_for_a_missed_free);
	tcase_add_test(calls, takes_a_call_inside_a_call_for_a_nested_duplicate);
	tcase_add_test(calls, takes_another_threads_block_for_a_missed_free);
	tcase_add_test(calls, takes_a_freed_and_reused_block_for_a_new_one);
	tcase_add_test(calls, moves_a_block_on_realloc);
	tcase_add_test(calls, resizes_a_block_in_place_on_realloc);
	tcase_add_test(calls, keeps_the_block_when_realloc_fails);
	tcase_add_test(calls, frees_the_block_when_realloc_to_0_returns_0);
	tcase_add_test(calls, adopts_an_unknown_block_on_realloc);
	tcase_add_test(calls, adopts_nothing_on_realloc_of_no_block);
	tcase_add_test(calls, refuses_the_token_of_another_session);
	tcase_add_test(calls, keeps_a_block_that_another_thread_got_during_realloc);
	tcase_add_test(calls, resizes_a_block_on_xallocx);
	suite_add_tcase(suite, calls);
	tcase_add_checked_fixture(limits, setup, teardown);
	tcase_add_test(limits, counts_blocks_without_room_as_untracked);
	tcase_add_test(limits, records_sizes_above_the_largest_as_that);
	tcase_add_test(limits, passes_through_when_the_injector_is_dead);
	tcase_add_test(limits, puts_blocks_on_the_unknown_site_when_sites_run_out);
	tcase_add_test(limits, gives_up_the_walk_when_no_buffer_is_free);
	tcase_add_test(limits, takes_over_a_buffer_that_was_left_by_a_jump);
	suite_add_tcase(suite, limits);
	tcase_set_timeout(threads, 60);
	tcase_add_checked_fixture(threads, setup, teardown);
	tcase_add_test(threads, adds_up_exactly_over_many_threads);
	suite_add_tcase(suite, threads);
	return suite;
}
