/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/walk.h"
#include "tests/core_stack.h"
#include "tests/core_world.h"
#include "tests/tests.h"

#include <string.h>

/*
 * A module with one function for each kind of rule, 256 bytes apart. Addresses
 * of calls in them are PC(function).
 */
#define TEXT	     0x555500000000ull
#define TEXT_SIZE    0x2000u
#define NO_TABLE     0x555600000000ull
#define ENTRY	     0x555700000000ull
#define NOWHERE	     0x555800000000ull
#define PC(function) (TEXT + (function)*256 + 64)

enum function {
	F_START, /* END */
	F_RSP24, /* CFA = rsp + 24 */
	F_RSP8,	 /* CFA = rsp + 8 */
	F_RBP,	 /* CFA = rbp + 16, rbp at CFA - 16 */
	F_SAVES, /* CFA = rsp + 32, rbp at CFA - 16 */
	F_RBP32, /* CFA = rbp + 32, rbp unchanged */
	F_SIGNAL,
	F_PLT11,
	F_PLT10,
	F_GAP, /* UNKNOWN */
	F_DEREF,
	F_STOP,
	F_RBX,	     /* CFA = rbx + 16 */
	F_SAVES_RBX, /* CFA = rsp + 32, rbx at CFA - 16 */
	F_LOSES_RBX,
	F_R10,	  /* CFA = r10 */
	F_RA_RDI, /* CFA = rsp, return address in rdi */
	F_HUGE,	  /* CFA = rsp + 8200, as ext */
	F_RBP_DEREF,
	F_BACKWARDS, /* CFA = rsp + 0 */
	F_POPPED,    /* an epilogue: CFA = rsp + 8, rbp at CFA - 16 */
	F_FUNCTIONS
};

static const struct ha_rule_ext ext[F_FUNCTIONS] = {
	[F_DEREF] = {.base = HA_EXT_RBP,
		     .flags = HA_EXT_DEREF | HA_EXT_RBP_SAVED,
		     .cfa_offset = -8,
		     .rbp_offset = -32},
	[F_STOP] = {.flags = HA_EXT_STOP},
	[F_RBX] = {.base = HA_EXT_RBX, .cfa_offset = 16},
	[F_SAVES_RBX] = {.base = HA_EXT_RSP, .cfa_offset = 32, .saved = {2}},
	[F_LOSES_RBX] = {.base = HA_EXT_RSP, .cfa_offset = 32, .saved = {HA_EXT_SAVED_UNKNOWN}},
	[F_R10] = {.base = HA_EXT_R10},
	[F_RA_RDI] = {.base = HA_EXT_RSP, .flags = HA_EXT_RA_REGISTER, .ra = HA_EXT_RDI},
	[F_HUGE] = {.base = HA_EXT_RSP, .cfa_offset = 8200},
	[F_RBP_DEREF] = {.base = HA_EXT_RSP,
			 .flags = HA_EXT_RBP_DEREF,
			 .cfa_offset = 24,
			 .rbp_offset = 8},
};

static const uint16_t rule[F_FUNCTIONS] = {
	[F_START] = HA_ESCAPE_END,
	[F_RSP24] = RULE(RULE_RSP, 24, 0),
	[F_RSP8] = RULE(RULE_RSP, 8, 0),
	[F_RBP] = RULE(RULE_RBP, 16, 2),
	[F_SAVES] = RULE(RULE_RSP, 32, 2),
	[F_RBP32] = RULE(RULE_RBP, 32, 0),
	[F_SIGNAL] = HA_ESCAPE_SIGNAL,
	[F_PLT11] = HA_ESCAPE_PLT11,
	[F_PLT10] = HA_ESCAPE_PLT10,
	[F_GAP] = HA_ESCAPE_UNKNOWN,
	[F_BACKWARDS] = RULE(RULE_RSP, 0, 0),
	[F_POPPED] = RULE(RULE_RSP, 8, 2),
};

static struct world world;
static struct fake_stack stack;
static struct walk_trace trace;
static struct walk_result result;
static uint64_t loads;

static void setup(void)
{
	struct world_row rows[F_FUNCTIONS];

	for (uint32_t i = 0; i < F_FUNCTIONS; i++) {
		bool is_ext = i >= F_DEREF && i < F_BACKWARDS;

		rows[i] = (struct world_row){i * 256, is_ext ? HA_ESCAPE_EXT : rule[i],
					     is_ext ? &ext[i] : NULL};
	}
	world_init(&world, NULL);
	world_add_rows(&world, TEXT, TEXT_SIZE, rows, F_FUNCTIONS);
	world_add_module(&world, NO_TABLE, NO_TABLE + 0x1000, 0, HA_MODULE_NO_TABLE);
	rows[0].rule = RULE(RULE_RSP, 24, 0);
	world_add_rows(&world, ENTRY, 0x1000, rows, 1);
	world.shm->entry_low = ENTRY;
	world.shm->entry_high = ENTRY + 0x1000;
	world_publish_modules(&world);
	fake_stack_init(&stack, 2048);
	fake_stack_publish(&stack, &world);
}

static void teardown(void)
{
	fake_stack_deinit(&stack);
	world_deinit(&world);
}

static void walk(void)
{
	result = fake_stack_walk(&stack, &world, 0, &trace);
}

#define assert_frames(...)                                                              \
	do {                                                                            \
		const uint64_t expected_[] = {__VA_ARGS__};                             \
		walk();                                                                 \
		ck_assert_uint_eq(result.frames, sizeof(expected_) / sizeof(uint64_t)); \
		for (uint32_t i_ = 0; i_ < result.frames; i_++)                         \
			ck_assert_uint_eq(trace.pc[i_], expected_[i_]);                 \
	} while (0)

START_TEST(follows_rsp_rules_to_the_end)
{
	stack.frame->ra = PC(F_RSP24);
	fake_stack_push(&stack, 16, PC(F_RSP8));
	fake_stack_push(&stack, 0, PC(F_START));
	assert_frames(PC(F_RSP24), PC(F_RSP8), PC(F_START));
	ck_assert_uint_eq(result.flags, 0);
	ck_assert(result.learnable);
	ck_assert_uint_eq(result.rbps, 0);
	ck_assert_uint_eq(trace.slot[0], 1);
	ck_assert_uint_eq(trace.slot[1], 4);
	ck_assert_uint_eq(trace.slot[2], 5);
	/* The second time from the cache. */
	assert_frames(PC(F_RSP24), PC(F_RSP8), PC(F_START));
}
END_TEST

START_TEST(ends_at_return_address_0)
{
	stack.frame->ra = PC(F_RSP24);
	fake_stack_push(&stack, 16, 0);
	assert_frames(PC(F_RSP24));
	ck_assert_uint_eq(result.flags, 0);
	ck_assert(!result.learnable);
}
END_TEST

START_TEST(looks_up_the_call_and_not_what_follows_it)
{
	/* The return address is the first byte of the next function. */
	stack.frame->ra = TEXT + (F_RSP24 + 1) * 256;
	fake_stack_push(&stack, 16, PC(F_START));
	assert_frames(TEXT + (F_RSP24 + 1) * 256, PC(F_START));
}
END_TEST

START_TEST(follows_rbp_from_the_entry_frame)
{
	uint64_t frame;

	stack.frame->ra = PC(F_RBP);
	frame = fake_stack_push(&stack, 40, PC(F_RBP32));
	stack.frame->rbp = frame + 32;
	fake_stack_store(frame + 32, frame + 64);
	frame = fake_stack_push(&stack, 40, PC(F_START));
	assert_frames(PC(F_RBP), PC(F_RBP32), PC(F_START));
	ck_assert(result.learnable);
	ck_assert_uint_eq(result.rbps, 2);
	ck_assert_uint_eq(trace.rbp[0].slot, 0);
	ck_assert_uint_eq(trace.rbp[0].value, 6);
	ck_assert_uint_eq(trace.rbp[1].slot, 6);
	ck_assert_uint_eq(trace.rbp[1].value, 10);
}
END_TEST

START_TEST(ignores_a_saved_rbp_that_no_rule_uses)
{
	uint64_t frame;

	stack.frame->ra = PC(F_SAVES);
	frame = fake_stack_push(&stack, 24, PC(F_START));
	fake_stack_store(frame + 16, 0x1234567);
	assert_frames(PC(F_SAVES), PC(F_START));
	ck_assert(result.learnable);
	ck_assert_uint_eq(result.rbps, 0);
}
END_TEST

/* A ucontext as the kernel writes it, with these registers. */
static uint64_t push_context(uint64_t rip, uint64_t rsp, uint64_t rbp)
{
	uint64_t context = stack.at;

	for (uint32_t i = 0; i < 0xb0; i += 8)
		fake_stack_store(context + i, 0xbad0 + i);
	fake_stack_store(context + 0x78, rbp);
	fake_stack_store(context + 0xa0, rsp);
	fake_stack_store(context + 0xa8, rip);
	stack.at = context + 0xb0;
	return context;
}

START_TEST(passes_a_signal_frame_to_the_exact_pc)
{
	uint64_t frame;

	stack.frame->ra = PC(F_RSP8);
	fake_stack_push(&stack, 0, TEXT + F_SIGNAL * 256 + 1);
	push_context(TEXT + F_RSP24 * 256, stack.at + 0xb0, 0);
	frame = fake_stack_push(&stack, 16, PC(F_START));
	ck_assert_uint_eq(frame % 8, 0);
	/* The interrupted pc is the first byte of its function: its own rule holds. */
	assert_frames(PC(F_RSP8), TEXT + F_SIGNAL * 256 + 1, TEXT + F_RSP24 * 256 + 1, PC(F_START));
	ck_assert_uint_eq(result.flags, 0);
	ck_assert(!result.learnable);
}
END_TEST

/* rbp has left the stack, the tables do not know yet, and the next frame needs it. */
START_TEST(finds_what_an_interrupted_epilogue_has_popped)
{
	uint64_t rbp;

	stack.frame->ra = PC(F_SIGNAL);
	rbp = stack.at + 0xb0 + 8;
	push_context(PC(F_POPPED), rbp + 8, rbp + 64);
	stack.at = rbp + 8;
	fake_stack_push(&stack, 0, PC(F_RBP));
	fake_stack_store(rbp, stack.at + 16);
	fake_stack_push(&stack, 24, PC(F_START));
	assert_frames(PC(F_SIGNAL), PC(F_POPPED) + 1, PC(F_RBP), PC(F_START));
	ck_assert_uint_eq(result.flags, 0);
}
END_TEST

START_TEST(looks_below_the_stack_pointer_in_an_interrupted_frame_only)
{
	stack.frame->ra = PC(F_RSP8);
	fake_stack_push(&stack, 0, PC(F_POPPED));
	fake_stack_push(&stack, 0, PC(F_START));
	assert_frames(PC(F_RSP8), PC(F_POPPED));
	ck_assert_uint_eq(result.flags, HA_SITE_TRUNCATED);
}
END_TEST

START_TEST(passes_from_the_alternate_stack_to_the_thread_stack)
{
	struct fake_stack other;
	struct ha_stack both[2];
	uint64_t frame;

	fake_stack_init(&other, 512);
	both[other.low > stack.low] = (struct ha_stack){other.low, other.high};
	both[other.low < stack.low] = (struct ha_stack){stack.low, stack.high};
	world_publish_stacks(&world, both, 2);
	stack.frame->ra = PC(F_SIGNAL);
	push_context(PC(F_RBP), other.at, other.at + 16);
	frame = fake_stack_push(&other, 24, PC(F_START));
	fake_stack_store(frame + 16, 0);
	assert_frames(PC(F_SIGNAL), PC(F_RBP) + 1, PC(F_START));
	ck_assert_uint_eq(result.flags, 0);
	/* To a stack that nobody knows, there is no way. */
	world_publish_stacks(&world, both + (other.low < stack.low ? 1 : 0), 1);
	assert_frames(PC(F_SIGNAL), PC(F_RBP) + 1);
	ck_assert_uint_eq(result.flags, HA_SITE_TRUNCATED);
	fake_stack_deinit(&other);
}
END_TEST

START_TEST(knows_the_pushes_of_a_plt_entry)
{
	static const uint64_t pc[] = {TEXT + F_PLT11 * 256 + 10, TEXT + F_PLT11 * 256 + 11,
				      TEXT + F_PLT10 * 256 + 9, TEXT + F_PLT10 * 256 + 10};

	stack.frame->ra = PC(F_SIGNAL);
	push_context(pc[_i], stack.at + 0xb0, 0);
	if (_i & 1)
		fake_stack_push(&stack, 8, PC(F_START));
	else
		fake_stack_push(&stack, 0, PC(F_START));
	assert_frames(PC(F_SIGNAL), pc[_i] + 1, PC(F_START));
	ck_assert_uint_eq(result.flags, 0);
}
END_TEST

START_TEST(follows_a_realigned_frame)
{
	uint64_t frame;

	/* CFA = *(rbp - 8), rbp at CFA - 32 */
	stack.frame->ra = PC(F_DEREF);
	frame = fake_stack_push(&stack, 72, PC(F_RBP));
	stack.frame->rbp = frame + 24;
	fake_stack_store(frame + 16, frame + 80);
	fake_stack_store(frame + 48, frame + 96);
	frame = fake_stack_push(&stack, 24, PC(F_START));
	assert_frames(PC(F_DEREF), PC(F_RBP), PC(F_START));
	ck_assert(result.learnable);
	/* rbp, what is below it, and the rbp that was saved there. */
	ck_assert_uint_eq(result.rbps, 3);
	ck_assert_uint_eq(trace.rbp[1].slot, 4);
	ck_assert_uint_eq(trace.rbp[1].value, 12);
}
END_TEST

START_TEST(follows_rbx_while_it_is_known)
{
	uint64_t frame;

	stack.frame->ra = PC(F_SAVES_RBX);
	frame = fake_stack_push(&stack, 24, PC(F_RBX));
	fake_stack_store(frame + 16, frame + 32 + 64);
	frame = fake_stack_push(&stack, 72, PC(F_START));
	assert_frames(PC(F_SAVES_RBX), PC(F_RBX), PC(F_START));
	ck_assert_uint_eq(result.flags, 0);
}
END_TEST

START_TEST(follows_rbx_of_the_entry_frame)
{
	stack.frame->ra = PC(F_RBX);
	stack.frame->rbx = fake_stack_push(&stack, 72, PC(F_START)) + 64;
	assert_frames(PC(F_RBX), PC(F_START));
	ck_assert_uint_eq(result.flags, 0);
}
END_TEST

START_TEST(stops_when_rbx_is_not_known)
{
	/* A packed rule does not say whether rbx was saved; nor does the other one. */
	static const enum function inner[] = {F_RSP24, F_LOSES_RBX};
	static const uint64_t size[] = {16, 24};

	stack.frame->ra = PC(inner[_i]);
	fake_stack_push(&stack, size[_i], PC(F_RBX));
	stack.frame->rbx = fake_stack_push(&stack, 72, PC(F_START)) + 64;
	assert_frames(PC(inner[_i]), PC(F_RBX));
	ck_assert_uint_eq(result.flags, HA_SITE_TRUNCATED);
}
END_TEST

START_TEST(takes_any_register_from_a_signal_frame)
{
	uint64_t context;

	stack.frame->ra = PC(F_SIGNAL);
	context = push_context(PC(F_R10), stack.at + 0xb0, 0);
	fake_stack_push(&stack, 40, PC(F_SIGNAL));
	fake_stack_store(context + 0x38, stack.at);
	context = push_context(PC(F_RA_RDI), stack.at + 0xb0, 0);
	fake_stack_store(context + 0x68, PC(F_START));
	assert_frames(PC(F_SIGNAL), PC(F_R10) + 1, PC(F_SIGNAL), PC(F_RA_RDI) + 1, PC(F_START));
	ck_assert_uint_eq(result.flags, 0);
}
END_TEST

START_TEST(follows_frames_too_big_for_a_packed_rule)
{
	fake_stack_deinit(&stack);
	fake_stack_init(&stack, FAKE_SIZE - 256);
	fake_stack_publish(&stack, &world);
	stack.frame->ra = PC(F_HUGE);
	fake_stack_push(&stack, 8192, PC(F_START));
	assert_frames(PC(F_HUGE), PC(F_START));
}
END_TEST

START_TEST(restores_rbp_through_rbp)
{
	uint64_t frame;

	stack.frame->ra = PC(F_RBP_DEREF);
	frame = fake_stack_push(&stack, 16, PC(F_RBP));
	stack.frame->rbp = frame;
	fake_stack_store(frame + 8, frame + 24 + 16);
	fake_stack_push(&stack, 24, PC(F_START));
	assert_frames(PC(F_RBP_DEREF), PC(F_RBP), PC(F_START));
}
END_TEST

START_TEST(stops_at_what_cannot_be_followed)
{
	static const enum function last[] = {F_STOP, F_R10, F_RA_RDI, F_BACKWARDS, F_GAP};

	stack.frame->ra = PC(F_RSP24);
	stack.frame->rbp = 16;
	fake_stack_push(&stack, 16, PC(last[_i]));
	fake_stack_push(&stack, 16, PC(F_START));
	assert_frames(PC(F_RSP24), PC(last[_i]));
	ck_assert_uint_eq(result.flags, HA_SITE_TRUNCATED);
	ck_assert(!result.learnable);
}
END_TEST

START_TEST(guesses_by_frame_pointer_where_no_table_is)
{
	static const uint64_t pc[] = {NO_TABLE + 100, NOWHERE + 100, TEXT + F_GAP * 256 + 10};
	uint64_t frame;

	stack.frame->ra = PC(F_RSP8);
	fake_stack_push(&stack, 0, pc[_i]);
	frame = fake_stack_push(&stack, 40, pc[_i] + 8);
	stack.frame->rbp = frame + 32;
	fake_stack_store(frame + 32, frame + 64);
	frame = fake_stack_push(&stack, 24, PC(F_START));
	fake_stack_store(frame + 16, 0);
	assert_frames(PC(F_RSP8), pc[_i], pc[_i] + 8, PC(F_START));
	ck_assert_uint_eq(result.flags, HA_SITE_GUESSED);
	ck_assert_uint_eq(world.shm->unknown_pcs, _i == 1 ? 2 : 0);
	if (_i == 1)
		ck_assert_uint_eq(world.shm->unknown_pc, pc[_i] + 7);
}
END_TEST

START_TEST(takes_rbp_0_for_the_end_where_no_table_is)
{
	stack.frame->ra = PC(F_RSP8);
	fake_stack_push(&stack, 0, NO_TABLE + 100);
	assert_frames(PC(F_RSP8), NO_TABLE + 100);
	ck_assert_uint_eq(result.flags, HA_SITE_GUESSED);
	ck_assert(result.learnable);
	ck_assert_uint_eq(result.rbps, 1);
	ck_assert_uint_eq(trace.rbp[0].value, WALK_RBP_ZERO);
}
END_TEST

START_TEST(does_not_guess_by_an_implausible_frame_pointer)
{
	uint64_t frame;

	stack.frame->ra = NO_TABLE + 100;
	frame = fake_stack_push(&stack, 40, NOWHERE);
	const uint64_t bad[] = {
		16, 8, frame + 33, frame - 16, stack.high, stack.high - 16, ~0ull - 7, frame + 32};

	stack.frame->rbp = bad[_i];
	fake_stack_store(stack.high - 8, NOWHERE);
	fake_stack_store(stack.high - 16, 0);
	fake_stack_store(frame + 32, frame + 32);
	assert_frames(NO_TABLE + 100);
	ck_assert_uint_eq(result.flags, HA_SITE_TRUNCATED);
}
END_TEST

START_TEST(leaves_out_frames_of_entry)
{
	stack.frame->ra = PC(F_RSP8);
	fake_stack_push(&stack, 0, ENTRY + 0x100);
	fake_stack_push(&stack, 16, PC(F_RSP24));
	fake_stack_push(&stack, 16, PC(F_START));
	assert_frames(PC(F_RSP8), PC(F_RSP24), PC(F_START));
	ck_assert(!result.learnable);
}
END_TEST

START_TEST(keeps_the_innermost_frames_of_a_deep_stack)
{
	fake_stack_deinit(&stack);
	fake_stack_init(&stack, 8192);
	fake_stack_publish(&stack, &world);
	stack.frame->ra = PC(F_RSP8);
	for (uint32_t i = 1; i < HA_FRAMES_MAX + (uint32_t)_i; i++)
		fake_stack_push(&stack, 0, PC(F_RSP8));
	fake_stack_push(&stack, 0, PC(F_START));
	walk();
	ck_assert_uint_eq(result.frames, HA_FRAMES_MAX);
	ck_assert_uint_eq(result.flags, HA_SITE_DEEP);
	ck_assert_uint_eq(trace.pc[HA_FRAMES_MAX - 1], PC(F_RSP8));
}
END_TEST

START_TEST(keeps_all_frames_of_a_stack_that_just_fits)
{
	fake_stack_deinit(&stack);
	fake_stack_init(&stack, 8192);
	fake_stack_publish(&stack, &world);
	stack.frame->ra = PC(F_RSP8);
	for (uint32_t i = 1; i < HA_FRAMES_MAX - 1; i++)
		fake_stack_push(&stack, 0, PC(F_RSP8));
	fake_stack_push(&stack, 0, PC(F_START));
	walk();
	ck_assert_uint_eq(result.frames, HA_FRAMES_MAX);
	ck_assert_uint_eq(result.flags, 0);
}
END_TEST

START_TEST(flags_frames_of_modules_that_may_be_new)
{
	world.shm->load_adds = (uint64_t)&loads;
	loads = 1;
	stack.frame->ra = PC(F_RSP8);
	fake_stack_push(&stack, 0, PC(F_START));
	assert_frames(PC(F_RSP8), PC(F_START));
	ck_assert_uint_eq(result.flags, HA_SITE_STALE);
	ck_assert(!result.learnable);
	world.module[0].flags |= HA_MODULE_PERMANENT;
	world_publish_modules(&world);
	assert_frames(PC(F_RSP8), PC(F_START));
	ck_assert_uint_eq(result.flags, 0);
	loads = 0;
	assert_frames(PC(F_RSP8), PC(F_START));
	ck_assert(result.learnable);
}
END_TEST

START_TEST(forgets_rules_of_another_generation)
{
	static const struct world_row row = {0, RULE(RULE_RSP, 16, 0), NULL};

	stack.frame->ra = PC(F_RSP8);
	fake_stack_push(&stack, 0, PC(F_RSP24));
	fake_stack_push(&stack, 16, PC(F_START));
	assert_frames(PC(F_RSP8), PC(F_RSP24), PC(F_START));
	/* Other code at the same address: each frame has 16 bytes. */
	world.modules = 0;
	world.generation++;
	world_add_rows(&world, TEXT, TEXT_SIZE, &row, 1);
	world_publish_modules(&world);
	fake_stack_store((uint64_t)(stack.frame + 1) + 8, PC(F_RSP24));
	fake_stack_store((uint64_t)(stack.frame + 1) + 24, 0);
	assert_frames(PC(F_RSP8), PC(F_RSP24));
}
END_TEST

/* ---- bounds ---- */

/* A chain of 8-byte frames to the very top of the stack. */
static void fill_to_top(void)
{
	stack.frame->ra = PC(F_RSP8);
	while (stack.at < stack.high)
		fake_stack_push(&stack, 0, PC(F_RSP8));
}

START_TEST(reads_nothing_above_the_stack)
{
	fake_stack_deinit(&stack);
	fake_stack_init(&stack, 256);
	fake_stack_publish(&stack, &world);
	fill_to_top();
	walk();
	ck_assert_uint_eq(result.frames, 33);
	ck_assert_uint_eq(result.flags, HA_SITE_TRUNCATED);
}
END_TEST

START_TEST(stays_in_the_page_of_an_unknown_stack)
{
	world_publish_stacks(&world, NULL, 0);
	fake_stack_deinit(&stack);
	fake_stack_init(&stack, HA_PAGE + 256);
	fill_to_top();
	walk();
	ck_assert_uint_eq(result.frames, 33);
	ck_assert_uint_eq(result.flags, HA_SITE_TRUNCATED);
}
END_TEST

START_TEST(knows_the_bounds_of_the_main_stack)
{
	world_publish_stacks(&world, NULL, 0);
	world.shm->main_fs = 0x1230;
	world.shm->main_stack_low = stack.low;
	world.shm->main_stack_high = stack.low + 2 * HA_PAGE;
	fake_stack_deinit(&stack);
	fake_stack_init(&stack, 3 * HA_PAGE);
	world.shm->main_stack_low = stack.low;
	world.shm->main_stack_high = stack.high - 2 * HA_PAGE - 512;
	fill_to_top();
	result = fake_stack_walk(&stack, &world, 0x1230, &trace);
	ck_assert_uint_eq(result.frames, HA_FRAMES_MAX);
	world.shm->main_stack_high = stack.high - 3 * HA_PAGE + 512;
	result = fake_stack_walk(&stack, &world, 0x1230, &trace);
	ck_assert_uint_eq(result.frames, 65);
}
END_TEST

/* A TCB as glibc has it, in the stack at @fs. */
static void write_tcb(uint64_t fs, uint64_t block, uint64_t size)
{
	world.shm->tcb_stack_offset = 0x80;
	fake_stack_store(fs, fs);
	fake_stack_store(fs + 0x10, fs);
	fake_stack_store(fs + 0x80, block);
	fake_stack_store(fs + 0x88, size);
	fake_stack_store(fs + 0x90, HA_PAGE);
}

START_TEST(knows_the_bounds_of_a_thread_stack_up_to_its_tcb)
{
	uint64_t fs = stack.high - 512;

	world_publish_stacks(&world, NULL, 0);
	fake_stack_deinit(&stack);
	fake_stack_init(&stack, HA_PAGE + 800);
	fs = stack.high - 512;
	fill_to_top();
	write_tcb(fs, stack.low - HA_PAGE, FAKE_SIZE + HA_PAGE);
	result = fake_stack_walk(&stack, &world, fs, &trace);
	ck_assert_uint_eq(result.frames, HA_FRAMES_MAX);
	/* Without the marks of a TCB nothing is believed. */
	fake_stack_store(fs + 0x10, 0);
	result = fake_stack_walk(&stack, &world, fs, &trace);
	ck_assert_uint_eq(result.frames, 101);
}
END_TEST

START_TEST(clips_a_known_stack_at_the_tcb)
{
	uint64_t fs = stack.high - 1024;

	fill_to_top();
	result = fake_stack_walk(&stack, &world, fs, &trace);
	ck_assert_uint_eq(result.frames, 129);
	ck_assert_uint_eq(result.flags, HA_SITE_TRUNCATED);
}
END_TEST

START_TEST(does_not_switch_to_the_guard_page_of_a_thread_stack)
{
	uint64_t fs;

	/* The handler runs on a stack that is known; the thread has overrun its own. */
	struct fake_stack other;

	fake_stack_init(&other, 512);
	fs = other.high - 512;
	write_tcb(fs, other.low - HA_PAGE, FAKE_SIZE + HA_PAGE);
	stack.frame->ra = PC(F_SIGNAL);
	push_context(PC(F_RSP8), other.low - 64, 0);
	result = fake_stack_walk(&stack, &world, fs, &trace);
	ck_assert_uint_eq(result.frames, 2);
	ck_assert_uint_eq(result.flags, HA_SITE_TRUNCATED);
	fake_stack_deinit(&other);
}
END_TEST

/* Whatever the registers and the stack hold: no fault, no end before the stack's. */
START_TEST(survives_random_stacks)
{
	uint64_t state = (uint64_t)_i + 1, below;

	fake_stack_deinit(&stack);
	for (uint32_t round = 0; round < 20000; round++) {
		if (round % 500 == 0) {
			if (round)
				fake_stack_deinit(&stack);
			below = 8 + world_random(&state) % (FAKE_SIZE / 8 - 9) * 8;
			fake_stack_init(&stack, below);
			fake_stack_publish(&stack, &world);
		}
		for (uint64_t at = (uint64_t)stack.frame; at < stack.high; at += 8) {
			uint64_t r = world_random(&state);

			if (round % 500 && r % 4)
				continue;
			if (r & 1)
				r = PC((r >> 8) % F_FUNCTIONS);
			else if (r & 2)
				r = stack.low - 64 + (r >> 8) % (FAKE_SIZE + 128) / 8 * 8;
			fake_stack_store(at, r);
		}
		walk();
		ck_assert_uint_ge(result.frames, 1);
		ck_assert_uint_le(result.frames, HA_FRAMES_MAX);
	}
}
END_TEST

Suite *core_walk_suite(void)
{
	Suite *suite = suite_create("core_walk");
	TCase *rules = tcase_create("rules"), *bounds = tcase_create("bounds");

	tcase_add_checked_fixture(rules, setup, teardown);
	tcase_add_test(rules, follows_rsp_rules_to_the_end);
	tcase_add_test(rules, ends_at_return_address_0);
	tcase_add_test(rules, looks_up_the_call_and_not_what_follows_it);
	tcase_add_test(rules, follows_rbp_from_the_entry_frame);
	tcase_add_test(rules, ignores_a_saved_rbp_that_no_rule_uses);
	tcase_add_test(rules, passes_a_signal_frame_to_the_exact_pc);
	tcase_add_test(rules, finds_what_an_interrupted_epilogue_has_popped);
	tcase_add_test(rules, looks_below_the_stack_pointer_in_an_interrupted_frame_only);
	tcase_add_test(rules, passes_from_the_alternate_stack_to_the_thread_stack);
	tcase_add_loop_test(rules, knows_the_pushes_of_a_plt_entry, 0, 4);
	tcase_add_test(rules, follows_a_realigned_frame);
	tcase_add_test(rules, follows_rbx_while_it_is_known);
	tcase_add_test(rules, follows_rbx_of_the_entry_frame);
	tcase_add_loop_test(rules, stops_when_rbx_is_not_known, 0, 2);
	tcase_add_test(rules, takes_any_register_from_a_signal_frame);
	tcase_add_test(rules, follows_frames_too_big_for_a_packed_rule);
	tcase_add_test(rules, restores_rbp_through_rbp);
	tcase_add_loop_test(rules, stops_at_what_cannot_be_followed, 0, 5);
	tcase_add_loop_test(rules, guesses_by_frame_pointer_where_no_table_is, 0, 3);
	tcase_add_test(rules, takes_rbp_0_for_the_end_where_no_table_is);
	tcase_add_loop_test(rules, does_not_guess_by_an_implausible_frame_pointer, 0, 8);
	tcase_add_test(rules, leaves_out_frames_of_entry);
	tcase_add_loop_test(rules, keeps_the_innermost_frames_of_a_deep_stack, 0, 2);
	tcase_add_test(rules, keeps_all_frames_of_a_stack_that_just_fits);
	tcase_add_test(rules, flags_frames_of_modules_that_may_be_new);
	tcase_add_test(rules, forgets_rules_of_another_generation);
	suite_add_tcase(suite, rules);
	tcase_add_checked_fixture(bounds, setup, teardown);
	tcase_set_timeout(bounds, 60);
	tcase_add_test(bounds, reads_nothing_above_the_stack);
	tcase_add_test(bounds, stays_in_the_page_of_an_unknown_stack);
	tcase_add_test(bounds, knows_the_bounds_of_the_main_stack);
	tcase_add_test(bounds, knows_the_bounds_of_a_thread_stack_up_to_its_tcb);
	tcase_add_test(bounds, clips_a_known_stack_at_the_tcb);
	tcase_add_test(bounds, does_not_switch_to_the_guard_page_of_a_thread_stack);
	tcase_add_loop_test(bounds, survives_random_stacks, 0, 5);
	suite_add_tcase(suite, bounds);
	return suite;
}
