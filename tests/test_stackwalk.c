// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The walk over stacks made of numbers: each kind of rule, and each way to end.
 * Live threads are in test_stackwalk_oracle.c.
 */
#include <stdlib.h>
#include <string.h>

#include "injector/stackwalk.h"
#include "tests/ehframe_builder.h"
#include "tests/tests.h"

#define BIAS  0x7f0000000000u
#define STACK 0x7ffe00000000u
enum { WORDS = 512, FRAMES = 64 };

/* The functions of the module, by what their CFI says. */
enum function {
	F_LEAF = 0x1100,   /* CFA = rsp + 8 */
	F_THREE = 0x1200,  /* CFA = rsp + 24, rbp at CFA - 16 */
	F_RBP = 0x1300,	   /* CFA = rbp + 16, rbp at CFA - 16 */
	F_DRAP = 0x1400,   /* CFA = *(rbp - 8), rbp at *(rbp) */
	F_PLT = 0x1500,	   /* CFA = rsp + 8 or 16 by pc */
	F_RBX = 0x1600,	   /* CFA = rbx + 16 */
	F_SAVES = 0x1700,  /* CFA = rsp + 16, rbx at CFA - 16 */
	F_RA_RDI = 0x1800, /* return address in rdi, CFA = rsp */
	F_END = 0x1900,	   /* outermost */
	F_STOP = 0x1a00,   /* a rule that cannot be followed */
	F_SIGNAL = 0x1b00, /* trampoline; one byte before it is covered too */
	F_SAME = 0x1c00,   /* CFA = rsp: does not grow */
	F_TAIL = 0x1d00,   /* ends with a call: CFA = rsp + 32 up to 0x1d20, F_LEAF's rule behind */
	F_BEHIND = 0x1d20,
	F_POPPED = 0x1e00, /* an epilogue: CFA = rsp + 8, rbp at CFA - 16 */
};

static struct builder b;
static struct ehframe_table table;
static struct code_range range;
static struct code_map map;
static uint64_t stack[WORDS];
static struct stack_image image;
static struct walk_registers start;
static struct walk_frame frames[FRAMES];
static size_t count;

static void function(size_t cie, uint64_t address, uint64_t size, const int *code)
{
	builder_fde(&b, cie, address, size);
	builder_code(&b, code);
	builder_end(&b);
}
#define FUNCTION(address, ...) function(cie, address, 0x20, (const int[]){__VA_ARGS__, -1})

static void build(bool full)
{
	struct ehframe_input in;
	size_t cie;

	memset(&b, 0, sizeof(b));
	cie = builder_plain_cie(&b);
	FUNCTION(F_LEAF, 0x0e, 8);
	FUNCTION(F_THREE, 0x0e, 24, 0x86, 2);
	FUNCTION(F_RBP, 0x0c, 6, 16, 0x86, 2);
	FUNCTION(F_DRAP, 0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0);
	FUNCTION(F_PLT, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22);
	FUNCTION(F_RBX, 0x0c, 3, 16);
	FUNCTION(F_SAVES, 0x0e, 16, 0x83, 2);
	FUNCTION(F_RA_RDI, 0x0e, 0, 0x09, 16, 5);
	FUNCTION(F_END, 0x07, 16);
	FUNCTION(F_STOP, 0x0f, 1, 0x33);
	FUNCTION(F_SAME, 0x0e, 0);
	FUNCTION(F_TAIL, 0x0e, 32);
	FUNCTION(F_BEHIND, 0x0e, 8);
	FUNCTION(F_POPPED, 0x0e, 8, 0x86, 2);
	cie = builder_cie(&b, "zS", NULL, 0);
	builder_end(&b);
	builder_begin(&b, (uint32_t)(b.size + 4 - cie));
	builder_u64(&b, F_SIGNAL - 1);
	builder_u64(&b, 0x10);
	builder_u8(&b, 0);
	builder_end(&b);
	in = builder_input(&b);
	in.full = full;
	assert_ok(ehframe_compile(&in, &table));
}

static void place(void)
{
	range = (struct code_range){
		.low = BIAS + 0x1000,
		.high = BIAS + 0x3000,
		.bias = BIAS,
		.table = table.table,
		.table_size = table.size,
		.module = 7,
	};
	map = (struct code_map){.range = &range, .count = 1};
	memset(stack, 0, sizeof(stack));
	image = (struct stack_image){
		.low = STACK, .bytes = (const uint8_t *)stack, .size = sizeof(stack)};
	memset(&start, 0, sizeof(start));
	start.reg[HA_EXT_RSP] = STACK;
	start.reg[HA_EXT_RBP] = 0xbbbb;
}

static void setup(void)
{
	build(true);
	place();
}

static void teardown(void)
{
	ehframe_table_deinit(&table);
}

/* A pc in a function, not at its start. */
static uint64_t in(enum function function)
{
	return BIAS + (uint64_t)function + 5;
}

static enum walk_end walk(void)
{
	return stackwalk(&map, &image, &start, false, frames, FRAMES, &count);
}

/* The walk must end like this, with these pcs. */
static void expect(enum walk_end end, const uint64_t *pcs)
{
	size_t expected = 0;

	ck_assert_int_eq(walk(), end);
	while (pcs[expected]) {
		ck_assert_uint_lt(expected, count);
		ck_assert_uint_eq(frames[expected].pc, pcs[expected]);
		expected++;
	}
	ck_assert_uint_eq(count, expected);
}
#define EXPECT(end, ...) expect(end, (const uint64_t[]){__VA_ARGS__, 0})

START_TEST(follows_rsp_and_saved_rbp)
{
	start.pc = in(F_LEAF);
	stack[0] = in(F_THREE);
	stack[2] = 0xbeef; /* saved rbp */
	stack[3] = in(F_END);
	EXPECT(WALK_COMPLETE, in(F_LEAF), in(F_THREE), in(F_END));
	ck_assert_uint_eq(frames[0].sp, STACK);
	ck_assert_uint_eq(frames[0].cfa, STACK + 8);
	ck_assert_uint_eq(frames[1].sp, STACK + 8);
	ck_assert_uint_eq(frames[1].rbp, 0xbbbb);
	ck_assert_uint_eq(frames[2].rbp, 0xbeef);
	ck_assert_uint_eq(frames[2].cfa, 0);
	ck_assert_int_eq(frames[2].kind, EHFRAME_END);
	ck_assert_uint_eq(frames[1].module, 7);
	ck_assert(frames[0].exact && !frames[1].exact);
}
END_TEST

START_TEST(follows_frame_pointers)
{
	start.pc = in(F_RBP);
	start.reg[HA_EXT_RBP] = STACK + 80;
	stack[10] = STACK + 160;
	stack[11] = in(F_RBP);
	stack[20] = 0;
	stack[21] = in(F_END);
	EXPECT(WALK_COMPLETE, in(F_RBP), in(F_RBP), in(F_END));
	ck_assert_uint_eq(frames[2].sp, STACK + 176);
	ck_assert_uint_eq(frames[2].rbp, 0);
}
END_TEST

START_TEST(follows_drap)
{
	start.pc = in(F_DRAP);
	start.reg[HA_EXT_RBP] = STACK + 80;
	stack[9] = STACK + 240; /* the CFA */
	stack[10] = 0xbeef;
	stack[29] = in(F_END);
	EXPECT(WALK_COMPLETE, in(F_DRAP), in(F_END));
	ck_assert_uint_eq(frames[1].sp, STACK + 240);
	ck_assert_uint_eq(frames[1].rbp, 0xbeef);
}
END_TEST

START_TEST(plt_depends_on_the_pc)
{
	stack[0] = in(F_END);
	stack[1] = in(F_LEAF);
	stack[2] = in(F_END);
	start.pc = BIAS + F_PLT + 10;
	EXPECT(WALK_COMPLETE, start.pc, in(F_END));
	start.pc = BIAS + F_PLT + 11;
	EXPECT(WALK_COMPLETE, start.pc, in(F_LEAF), in(F_END));
}
END_TEST

START_TEST(finds_rbx_that_an_inner_frame_saved)
{
	start.pc = in(F_SAVES);
	start.reg[HA_EXT_RBX] = 0xdead;
	stack[0] = STACK + 40; /* rbx of the caller */
	stack[1] = in(F_RBX);
	stack[6] = in(F_END);
	EXPECT(WALK_COMPLETE, in(F_SAVES), in(F_RBX), in(F_END));
	ck_assert_uint_eq(frames[2].sp, STACK + 56);
}
END_TEST

START_TEST(rbx_is_lost_behind_tables_that_do_not_tell)
{
	ehframe_table_deinit(&table);
	build(false);
	place();
	start.pc = in(F_SAVES);
	stack[1] = in(F_RBX);
	EXPECT(WALK_STOP, in(F_SAVES), in(F_RBX));
	/* As the innermost frame it is known. */
	start.pc = in(F_RBX);
	start.reg[HA_EXT_RBX] = STACK + 40;
	stack[6] = in(F_END);
	EXPECT(WALK_COMPLETE, in(F_RBX), in(F_END));
}
END_TEST

START_TEST(return_address_in_a_register_counts_for_the_innermost_frame_only)
{
	start.pc = in(F_RA_RDI);
	start.reg[HA_EXT_RDI] = in(F_LEAF);
	stack[0] = in(F_END);
	EXPECT(WALK_COMPLETE, in(F_RA_RDI), in(F_LEAF), in(F_END));
	ck_assert_uint_eq(frames[1].sp, STACK);
	start.pc = in(F_LEAF);
	stack[0] = in(F_RA_RDI);
	EXPECT(WALK_STOP, in(F_LEAF), in(F_RA_RDI));
}
END_TEST

START_TEST(call_at_the_end_of_a_function_belongs_to_it)
{
	start.pc = in(F_LEAF);
	stack[0] = BIAS + F_BEHIND; /* the byte behind F_TAIL */
	stack[4] = in(F_END);
	EXPECT(WALK_COMPLETE, in(F_LEAF), BIAS + F_BEHIND, in(F_END));
	ck_assert_uint_eq(frames[2].sp, STACK + 40);
	/* The same address, not after a call, is in the next function. */
	start.pc = BIAS + F_BEHIND;
	stack[0] = in(F_END);
	EXPECT(WALK_COMPLETE, BIAS + F_BEHIND, in(F_END));
	ck_assert_uint_eq(frames[1].sp, STACK + 8);
	/* And as the innermost frame, after a call. */
	stack[3] = in(F_END);
	ck_assert_int_eq(stackwalk(&map, &image, &start, true, frames, FRAMES, &count),
			 WALK_COMPLETE);
	ck_assert_uint_eq(frames[1].sp, STACK + 32);
}
END_TEST

START_TEST(interrupted_pc_is_exact_and_may_be_on_another_stack)
{
	uint64_t *context = &stack[200]; /* at sp in the trampoline */

	image.low = STACK - 8 * 8; /* room below sp for the interrupted stack */
	start.reg[HA_EXT_RSP] = STACK - 64 + 199 * 8;
	start.pc = in(F_LEAF);
	stack[199] = BIAS + F_SIGNAL;
	context[0xa8 / 8] = BIAS + F_BEHIND;
	context[0xa0 / 8] = STACK - 64; /* lower than where we are */
	context[0x78 / 8] = 0xbeef;
	stack[0] = in(F_END);
	EXPECT(WALK_COMPLETE, in(F_LEAF), BIAS + F_SIGNAL, BIAS + F_BEHIND, in(F_END));
	ck_assert_int_eq(frames[1].kind, EHFRAME_SIGNAL);
	ck_assert(frames[2].exact);
	ck_assert_uint_eq(frames[2].rbp, 0xbeef);
	ck_assert_uint_eq(frames[3].sp, STACK - 56);
}
END_TEST

START_TEST(finds_what_an_epilogue_has_popped)
{
	stack[1] = 0xfeed; /* below sp */
	stack[2] = in(F_END);
	start.pc = in(F_POPPED);
	start.reg[HA_EXT_RSP] = STACK + 16;
	EXPECT(WALK_COMPLETE, in(F_POPPED), in(F_END));
	ck_assert_uint_eq(frames[1].rbp, 0xfeed);
	/* Only if the image has it. */
	image.low = STACK + 16;
	image.bytes += 16;
	image.size -= 16;
	EXPECT(WALK_OUTSIDE, in(F_POPPED));
}
END_TEST

START_TEST(ends_where_nothing_is_known)
{
	start.pc = in(F_LEAF);
	stack[0] = 0x1234;
	EXPECT(WALK_NO_MODULE, in(F_LEAF), 0x1234);
	ck_assert_uint_eq(frames[1].module, STACKWALK_NO_MODULE);
	stack[0] = BIAS + 0x2800;
	EXPECT(WALK_NO_CFI, in(F_LEAF), BIAS + 0x2800);
	stack[0] = in(F_STOP);
	EXPECT(WALK_STOP, in(F_LEAF), in(F_STOP));
	range.table = NULL;
	EXPECT(WALK_NO_CFI, in(F_LEAF));
	map.count = 0;
	EXPECT(WALK_NO_MODULE, in(F_LEAF));
}
END_TEST

START_TEST(ends_at_the_edge_of_the_image)
{
	start.pc = in(F_LEAF);
	start.reg[HA_EXT_RSP] = STACK + sizeof(stack) - 8;
	stack[WORDS - 1] = in(F_LEAF);
	EXPECT(WALK_OUTSIDE, in(F_LEAF), in(F_LEAF));
	start.reg[HA_EXT_RSP] = STACK - 8;
	EXPECT(WALK_OUTSIDE, in(F_LEAF));
	start.reg[HA_EXT_RSP] = STACK + sizeof(stack) - 7;
	EXPECT(WALK_OUTSIDE, in(F_LEAF));
	start.reg[HA_EXT_RSP] = UINT64_MAX - 3;
	EXPECT(WALK_OUTSIDE, in(F_LEAF));
}
END_TEST

START_TEST(ends_when_the_stack_does_not_grow)
{
	start.pc = in(F_SAME);
	start.reg[HA_EXT_RSP] = STACK + 8;
	stack[0] = in(F_SAME);
	EXPECT(WALK_BACKWARDS, in(F_SAME), in(F_SAME));
	start.pc = in(F_RBP);
	start.reg[HA_EXT_RSP] = STACK + 800;
	start.reg[HA_EXT_RBP] = STACK + 80;
	EXPECT(WALK_BACKWARDS, in(F_RBP));
}
END_TEST

START_TEST(ends_when_there_is_no_room_for_more_frames)
{
	start.pc = in(F_LEAF);
	for (size_t i = 0; i < WORDS; i++)
		stack[i] = in(F_LEAF);
	ck_assert_int_eq(walk(), WALK_FULL);
	ck_assert_uint_eq(count, FRAMES);
	ck_assert_int_eq(stackwalk(&map, &image, &start, false, frames, 1, &count), WALK_FULL);
	ck_assert_uint_eq(count, 1);
}
END_TEST

static uint64_t next_random(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* A word as a corrupt stack may have it. */
static uint64_t random_word(void)
{
	uint64_t random = next_random();

	switch (random % 4) {
	case 0:
		return BIAS + 0x1000 + (random >> 8) % 0x1000;
	case 1:
		return STACK + (random >> 8) % (sizeof(stack) + 64) - 32;
	case 2:
		return random;
	default:
		return (random >> 8) % 4096;
	}
}

START_TEST(survives_any_stack)
{
	uint64_t *exact = malloc(sizeof(stack)); /* a sanitizer sees reads beyond it */

	ck_assert_ptr_nonnull(exact);
	image.bytes = (const uint8_t *)exact;
	for (int i = 0; i < 20000; i++) {
		for (int k = 0; k < WORDS; k++)
			exact[k] = random_word();
		for (int k = 0; k < 16; k++)
			start.reg[k] = random_word();
		start.pc = BIAS + 0x1000 + next_random() % 0x1000;
		ck_assert_int_le(walk(), WALK_FULL);
		ck_assert_uint_ge(count, 1);
		ck_assert_uint_le(count, FRAMES);
	}
	free(exact);
}
END_TEST

Suite *stackwalk_suite(void)
{
	Suite *suite = suite_create("stackwalk");
	TCase *tcase = tcase_create("rules");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, follows_rsp_and_saved_rbp);
	tcase_add_test(tcase, follows_frame_pointers);
	tcase_add_test(tcase, follows_drap);
	tcase_add_test(tcase, plt_depends_on_the_pc);
	tcase_add_test(tcase, finds_rbx_that_an_inner_frame_saved);
	tcase_add_test(tcase, rbx_is_lost_behind_tables_that_do_not_tell);
	tcase_add_test(tcase, return_address_in_a_register_counts_for_the_innermost_frame_only);
	tcase_add_test(tcase, call_at_the_end_of_a_function_belongs_to_it);
	tcase_add_test(tcase, interrupted_pc_is_exact_and_may_be_on_another_stack);
	tcase_add_test(tcase, finds_what_an_epilogue_has_popped);
	tcase_add_test(tcase, ends_where_nothing_is_known);
	tcase_add_test(tcase, ends_at_the_edge_of_the_image);
	tcase_add_test(tcase, ends_when_the_stack_does_not_grow);
	tcase_add_test(tcase, ends_when_there_is_no_room_for_more_frames);
	tcase_add_test(tcase, survives_any_stack);
	suite_add_tcase(suite, tcase);
	return suite;
}
