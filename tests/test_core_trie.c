/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/sites.h"
#include "payload/core/trie.h"
#include "tests/core_stack.h"
#include "tests/core_world.h"
#include "tests/tests.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * Functions that differ in their frames. Each has 16 call sites, 16 bytes
 * apart. F_ROOT ends the stack.
 */
#define TEXT		  0x555500000000ull
#define NO_TABLE	  0x555600000000ull
#define CALL(function, n) (TEXT + (function)*256 + 5 + (n)*16)

enum function {
	F_ROOT,
	F_PUSH,	  /* 8 bytes */
	F_SMALL,  /* 24 bytes */
	F_MEDIUM, /* 72 bytes */
	F_LARGE,  /* 400 bytes */
	F_RBP,	  /* saves rbp and has its CFA based on it; any number of bytes */
	F_SAVES,  /* saves rbp and uses it for other things */
	F_FUNCTIONS
};

static const struct world_row rows[F_FUNCTIONS] = {
	{F_ROOT * 256, HA_ESCAPE_END, NULL},
	{F_PUSH * 256, RULE(RULE_RSP, 8, 0), NULL},
	{F_SMALL * 256, RULE(RULE_RSP, 24, 0), NULL},
	{F_MEDIUM * 256, RULE(RULE_RSP, 72, 0), NULL},
	{F_LARGE * 256, RULE(RULE_RSP, 400, 0), NULL},
	{F_RBP * 256, RULE(RULE_RBP, 16, 2), NULL},
	{F_SAVES * 256, RULE(RULE_RSP, 48, 2), NULL},
};
static const uint32_t frame_size[F_FUNCTIONS] = {0, 0, 16, 64, 392, 0, 40};

static struct world world;
static struct fake_stack stack;

static void setup(void)
{
	world_init(&world, NULL);
	world_add_rows(&world, TEXT, F_FUNCTIONS * 256, rows, F_FUNCTIONS);
	world_publish_modules(&world);
	fake_stack_init(&stack, 10000);
	fake_stack_publish(&stack, &world);
}

static void teardown(void)
{
	fake_stack_deinit(&stack);
	world_deinit(&world);
}

/* ---- stacks ---- */

/* Where the caller's rbp goes once it is known. */
struct builder {
	struct fake_stack stack;
	uint64_t rbp_word; /* saved rbp of the frame further in: what it points to comes later */
};

static void build_call(struct builder *builder, uint64_t ra)
{
	if ((uint64_t)(builder->stack.frame + 1) == builder->stack.at)
		builder->stack.frame->ra = ra;
	else
		fake_stack_store(builder->stack.at - 8, ra);
}

/* Append the frame of @function, which was called from before @ra in it. */
static void build_frame(struct builder *builder, enum function function, uint64_t size)
{
	uint64_t frame = builder->stack.at;

	if (function == F_RBP) {
		/* locals of any size, then the saved rbp, then the return address */
		fake_stack_store(builder->rbp_word, frame + size);
		builder->rbp_word = frame + size;
		builder->stack.at = frame + size + 16;
	} else {
		if (function == F_SAVES) {
			fake_stack_store(builder->rbp_word, 0x1234567);
			builder->rbp_word = frame + frame_size[F_SAVES] - 8;
		}
		builder->stack.at = frame + frame_size[function] + 8;
	}
}

/* A stack whose every detail follows from @path. */
static void build_stack(const struct fake_stack *on, uint64_t path)
{
	struct builder builder = {.stack = *on};
	uint32_t frames;

	builder.rbp_word = (uint64_t)&on->frame->rbp;
	builder.stack.at = (uint64_t)(on->frame + 1);
	/* Few shapes near the hooked call, so that many stacks begin alike. */
	frames = 2 + (uint32_t)(world_random(&path) % 18);
	for (uint32_t i = 0; i < frames; i++) {
		uint64_t r = world_random(&path);
		enum function function = 1 + (enum function)(r % (i < 4 ? 2 : F_FUNCTIONS - 1));

		build_call(&builder, CALL(function, (r >> 8) % (i < 4 ? 1 : 4)));
		build_frame(&builder, function, (r >> 16) % 4 * 16);
	}
	build_call(&builder, CALL(F_ROOT, 0));
	fake_stack_store(builder.rbp_word, 0);
}

struct found {
	uint32_t by_walk, by_trie; /* sites; by_trie is 0 if the trie did not know */
};

/* What the walk and the trie say; the trie learns. */
static struct found find(const struct fake_stack *on, struct walk_trace *trace)
{
	struct found found = {0, 0};
	struct walk_result result;
	struct walk_start start;
	struct site_key key;

	ck_assert(walk_prepare(world.shm, on->frame, 0, &start));
	found.by_trie = trie_find(world.shm, on->frame, start.bounds.high);
	if (!found.by_trie)
		found.by_trie = 0;
	walk_run(&start, trace, &result);
	key = (struct site_key){
		.pc = trace->pc,
		.frames = result.frames,
		.generation = start.rules.index->generation,
		.modules = rules_modules_hash(&start.rules, trace->pc, result.frames),
		.flags = result.flags,
	};
	found.by_walk = sites_intern(world.shm, &key);
	if (!found.by_trie)
		trie_learn(&start, trace, &result, found.by_walk);
	return found;
}

static struct found find_here(void)
{
	static struct walk_trace trace;

	return find(&stack, &trace);
}

/* Until the trie knows the stack. */
static void teach(void)
{
	for (uint32_t i = 0; i < 4; i++)
		find_here();
	ck_assert_uint_ne(find_here().by_trie, 0);
}

START_TEST(knows_a_stack_from_the_third_time_on)
{
	struct found found;

	build_stack(&stack, 5);
	ck_assert_uint_eq(find_here().by_trie, 0);
	ck_assert_uint_eq(find_here().by_trie, 0);
	found = find_here();
	ck_assert_uint_ne(found.by_trie, 0);
	ck_assert_uint_eq(found.by_trie, found.by_walk);
}
END_TEST

/* Stale words of other stacks lie between and behind the words of each one. */
START_TEST(agrees_with_the_walk_on_a_million_stacks)
{
	uint64_t state = 1;
	uint32_t misses = 0, wrong = 0;

	for (uint32_t i = 0; i < 1000000; i++) {
		struct found found;

		build_stack(&stack, world_random(&state) % 3000);
		found = find_here();
		wrong += found.by_trie && found.by_trie != found.by_walk;
		misses += !found.by_trie;
	}
	ck_assert_uint_eq(wrong, 0);
	/* Each stack is walked a few times until the trie has its final shape. */
	ck_assert_uint_lt(misses, 3000 * 6);
}
END_TEST

START_TEST(agrees_with_the_walk_on_stacks_without_end)
{
	uint64_t state = 1;
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < 300000; i++) {
		struct found found;

		/* A few come often, the others hardly ever twice. */
		build_stack(&stack, world_random(&state) % 4 ? world_random(&state) % 100
							     : world_random(&state) % 100000);
		found = find_here();
		wrong += found.by_trie && found.by_trie != found.by_walk;
	}
	ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* More stacks than the first table has room for: the next tables take over. */
START_TEST(grows_with_the_number_of_stacks)
{
	uint32_t misses = 0;

	for (uint32_t round = 0; round < 12; round++) {
		misses = 0;
		for (uint32_t i = 0; i < 40000; i++) {
			struct found found;

			build_stack(&stack, i);
			found = find_here();
			ck_assert(!found.by_trie || found.by_trie == found.by_walk);
			misses += !found.by_trie;
		}
	}
	ck_assert_uint_lt(misses, 40000 / 20);
}
END_TEST

/* ---- what must not be mistaken for a known stack ---- */

static void build_two_frames(uint64_t outer)
{
	struct builder builder = {.stack = stack};

	builder.rbp_word = (uint64_t)&stack.frame->rbp;
	build_call(&builder, CALL(F_SMALL, 0));
	build_frame(&builder, F_SMALL, 0);
	build_call(&builder, CALL(F_MEDIUM, 0));
	build_frame(&builder, F_MEDIUM, 0);
	build_call(&builder, outer);
	fake_stack_store(builder.rbp_word, 0);
}

START_TEST(tells_apart_stacks_that_differ_in_an_outer_return_address)
{
	struct found found;

	build_two_frames(CALL(F_ROOT, 0));
	teach();
	build_two_frames(CALL(F_ROOT, 1));
	ck_assert_uint_eq(find_here().by_trie, 0);
	teach();
	build_two_frames(CALL(F_ROOT, 0));
	found = find_here();
	ck_assert_uint_eq(found.by_trie, found.by_walk);
}
END_TEST

/* The same words in all return address slots; rbp says which of them count. */
static void build_ambiguous(bool second)
{
	uint64_t frame = (uint64_t)(stack.frame + 1);

	stack.frame->ra = CALL(F_RBP, 0);
	stack.frame->rbp = frame + (second ? 48 : 16);
	fake_stack_store(frame + 16, 0);
	fake_stack_store(frame + 24, CALL(F_ROOT, 0));
	fake_stack_store(frame + 48, 0);
	fake_stack_store(frame + 56, CALL(F_ROOT, 1));
}

START_TEST(tells_apart_stacks_that_differ_in_rbp_alone)
{
	struct found first, second;

	build_ambiguous(false);
	teach();
	build_ambiguous(true);
	ck_assert_uint_eq(find_here().by_trie, 0);
	teach();
	second = find_here();
	ck_assert_uint_eq(second.by_trie, second.by_walk);
	build_ambiguous(false);
	first = find_here();
	ck_assert_uint_eq(first.by_trie, first.by_walk);
	ck_assert_uint_ne(first.by_trie, second.by_trie);
}
END_TEST

START_TEST(tells_apart_an_end_by_rbp_0_from_a_guess)
{
	uint64_t frame = (uint64_t)(stack.frame + 1);
	struct found ended, went_on;

	world_add_module(&world, NO_TABLE, NO_TABLE + 256, 0, HA_MODULE_NO_TABLE);
	world_publish_modules(&world);
	stack.frame->ra = NO_TABLE + 16;
	stack.frame->rbp = 0;
	fake_stack_store(frame + 16, 0);
	fake_stack_store(frame + 24, CALL(F_ROOT, 0));
	teach();
	stack.frame->rbp = frame + 16;
	ck_assert_uint_eq(find_here().by_trie, 0);
	teach();
	went_on = find_here();
	ck_assert_uint_eq(went_on.by_trie, went_on.by_walk);
	stack.frame->rbp = 0;
	ended = find_here();
	ck_assert_uint_eq(ended.by_trie, ended.by_walk);
	ck_assert_uint_ne(ended.by_trie, went_on.by_trie);
}
END_TEST

START_TEST(does_not_know_a_stack_with_less_room)
{
	struct ha_stack range = {stack.low, (uint64_t)(stack.frame + 1) + 32};

	build_two_frames(CALL(F_ROOT, 0));
	teach();
	world_publish_stacks(&world, &range, 1);
	ck_assert_uint_eq(find_here().by_trie, 0);
}
END_TEST

START_TEST(forgets_stacks_of_code_that_was_replaced)
{
	static const struct world_row other[] = {{0, HA_ESCAPE_END, NULL},
						 {256, RULE(RULE_RSP, 24, 0), NULL},
						 {F_MEDIUM * 256, HA_ESCAPE_END, NULL}};
	struct found before, after;

	build_two_frames(CALL(F_ROOT, 0));
	teach();
	before = find_here();
	world.modules = 0;
	world.generation++;
	world_add_rows(&world, TEXT, F_FUNCTIONS * 256, other, 3);
	world_publish_modules(&world);
	after = find_here();
	ck_assert_uint_eq(after.by_trie, 0);
	ck_assert_uint_ne(after.by_walk, before.by_walk);
	teach();
	ck_assert_uint_eq(find_here().by_trie, after.by_walk);
}
END_TEST

START_TEST(confirms_stacks_of_code_that_stayed)
{
	struct found before;

	build_two_frames(CALL(F_ROOT, 0));
	teach();
	before = find_here();
	/* Something else was unloaded: one walk, and all is as before. */
	world.generation++;
	world_publish_modules(&world);
	ck_assert_uint_eq(find_here().by_trie, 0);
	ck_assert_uint_eq(find_here().by_trie, before.by_trie);
}
END_TEST

START_TEST(knows_nothing_while_modules_may_be_new)
{
	uint64_t loads = 1;

	build_two_frames(CALL(F_ROOT, 0));
	teach();
	world.shm->load_adds = (uint64_t)&loads;
	ck_assert_uint_eq(find_here().by_trie, 0);
	loads = 0;
	ck_assert_uint_ne(find_here().by_trie, 0);
}
END_TEST

/* Any node, any candidate: at worst a walk. */
START_TEST(survives_a_trie_full_of_noise)
{
	uint64_t *nodes =
		(uint64_t *)((char *)world.shm + world.shm->region[HA_REGION_TRIE].offset);
	uint64_t state = 1;

	for (uint32_t i = 0; i < 3000; i++) {
		build_stack(&stack, i % 500);
		find_here();
	}
	for (uint32_t i = 0; i < 300000; i++) {
		uint64_t *node = &nodes[world_random(&state) % (1u << 15)];
		struct found found;

		/* Another slot or candidate that is in use. */
		if (*node)
			*node ^= (world_random(&state) & 0xff) << (i & 1 ? 24 : 0);
		build_stack(&stack, world_random(&state) % 500);
		found = find_here();
		ck_assert(!found.by_trie || found.by_trie == found.by_walk);
	}
}
END_TEST

/* ---- threads ---- */

#define THREADS 8

static void *learn_together(void *seed)
{
	struct walk_trace *trace = calloc(1, sizeof(*trace));
	uint64_t state = (uint64_t)seed;
	struct fake_stack own;

	/* All have the same room in their page, so that they meet in the trie. */
	fake_stack_init(&own, 4000);
	for (uint32_t i = 0; i < 50000; i++) {
		struct found found;

		build_stack(&own, world_random(&state) % 1000);
		found = find(&own, trace);
		if (found.by_trie && found.by_trie != found.by_walk)
			abort();
	}
	fake_stack_deinit(&own);
	free(trace);
	return NULL;
}

START_TEST(agrees_with_the_walk_while_many_threads_learn)
{
	pthread_t thread[THREADS];

	for (uint64_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, learn_together, (void *)(i + 1)),
				 0);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}
END_TEST

Suite *core_trie_suite(void)
{
	Suite *suite = suite_create("core_trie");
	TCase *trie = tcase_create("trie");

	tcase_set_timeout(trie, 120);
	tcase_add_checked_fixture(trie, setup, teardown);
	tcase_add_test(trie, knows_a_stack_from_the_third_time_on);
	tcase_add_test(trie, agrees_with_the_walk_on_a_million_stacks);
	tcase_add_test(trie, agrees_with_the_walk_on_stacks_without_end);
	tcase_add_test(trie, grows_with_the_number_of_stacks);
	tcase_add_test(trie, tells_apart_stacks_that_differ_in_an_outer_return_address);
	tcase_add_test(trie, tells_apart_stacks_that_differ_in_rbp_alone);
	tcase_add_test(trie, tells_apart_an_end_by_rbp_0_from_a_guess);
	tcase_add_test(trie, does_not_know_a_stack_with_less_room);
	tcase_add_test(trie, forgets_stacks_of_code_that_was_replaced);
	tcase_add_test(trie, confirms_stacks_of_code_that_stayed);
	tcase_add_test(trie, knows_nothing_while_modules_may_be_new);
	tcase_add_test(trie, survives_a_trie_full_of_noise);
	tcase_add_test(trie, agrees_with_the_walk_while_many_threads_learn);
	suite_add_tcase(suite, trie);
	return suite;
}
