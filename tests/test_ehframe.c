// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The compiler of unwind tables on sections made by hand. What real modules
 * say is in test_ehframe_oracle.c.
 */
#include <stdlib.h>
#include <string.h>

#include "resolver/ehframe.h"
#include "tests/ehframe_builder.h"
#include "tests/tests.h"

static struct builder b;
static struct ehframe_table table;

static void setup(void)
{
	memset(&b, 0, sizeof(b));
	memset(&table, 0, sizeof(table));
}

static void teardown(void)
{
	ehframe_table_deinit(&table);
}

static void compile(void)
{
	struct ehframe_input in = builder_input(&b);

	assert_ok(ehframe_compile(&in, &table));
	assert_ok(ehframe_verify(table.table, table.size));
}

static struct ehframe_rule at(uint64_t vaddr)
{
	struct ehframe_rule rule;

	ehframe_lookup(table.table, table.size, vaddr, &rule);
	return rule;
}

/* A CFA of base + offset, the return address below it. */
#define assert_cfa(vaddr, base_, offset_)                         \
	do {                                                      \
		struct ehframe_rule cfa_rule_ = at(vaddr);        \
		ck_assert_int_eq(cfa_rule_.kind, EHFRAME_NORMAL); \
		ck_assert_int_eq(cfa_rule_.base, base_);          \
		ck_assert_int_eq(cfa_rule_.cfa_offset, offset_);  \
		ck_assert_int_eq(cfa_rule_.ra_register, -1);      \
		ck_assert(!cfa_rule_.deref);                      \
	} while (0)

#define assert_kind(vaddr, kind_) ck_assert_int_eq(at(vaddr).kind, kind_)

#define assert_rbp(vaddr, where, offset_)                        \
	do {                                                     \
		struct ehframe_rule rbp_rule_ = at(vaddr);       \
		ck_assert_int_eq(rbp_rule_.rbp, where);          \
		ck_assert_int_eq(rbp_rule_.rbp_offset, offset_); \
	} while (0)

/* The FDE [start, start + size) with plain CFI, of a CIE that is made for it. */
static void add_function(uint64_t start, uint64_t size)
{
	size_t cie = builder_plain_cie(&b);

	builder_fde(&b, cie, start, size);
	builder_end(&b);
}

/* ---- what single instructions mean */

START_TEST(follows_a_prologue)
{
	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	BUILDER_CODE(&b, 0x41, 0x0e, 16, 0x86, 2); /* push rbp */
	BUILDER_CODE(&b, 0x43, 0x0d, 6);	   /* mov rbp, rsp */
	BUILDER_CODE(&b, 0x60, 0x0c, 7, 8);	   /* leave */
	builder_end(&b);
	compile();
	assert_cfa(0x1100, HA_EXT_RSP, 8);
	assert_rbp(0x1100, EHFRAME_SAME, 0);
	assert_cfa(0x1101, HA_EXT_RSP, 16);
	assert_rbp(0x1101, EHFRAME_AT_CFA, -16);
	assert_cfa(0x1103, HA_EXT_RSP, 16);
	assert_cfa(0x1104, HA_EXT_RBP, 16);
	assert_cfa(0x1123, HA_EXT_RBP, 16);
	assert_cfa(0x1124, HA_EXT_RSP, 8);
	assert_cfa(0x113f, HA_EXT_RSP, 8);
	assert_kind(0x1140, EHFRAME_UNKNOWN);
	assert_kind(0x10ff, EHFRAME_UNKNOWN);
	ck_assert_uint_eq(at(0x1123).start, 0x1104);
}
END_TEST

START_TEST(advances_in_all_encodings)
{
	builder_fde(&b, builder_plain_cie(&b), 0x2000, 0x30000);
	BUILDER_CODE(&b, 0x02, 200, 0x0e, 16);			  /* loc1 */
	BUILDER_CODE(&b, 0x03, 0x00, 0x10, 0x0e, 24);		  /* loc2: 0x1000 */
	BUILDER_CODE(&b, 0x04, 0x00, 0x00, 0x02, 0x00, 0x0e, 32); /* loc4: 0x20000 */
	builder_u8(&b, 0x01);					  /* set_loc */
	builder_u64(&b, 0x30000);
	BUILDER_CODE(&b, 0x0e, 40);
	builder_end(&b);
	compile();
	assert_cfa(0x20c7, HA_EXT_RSP, 8);
	assert_cfa(0x20c8, HA_EXT_RSP, 16);
	assert_cfa(0x30c7, HA_EXT_RSP, 16);
	assert_cfa(0x30c8, HA_EXT_RSP, 24);
	assert_cfa(0x30000, HA_EXT_RSP, 40);
	assert_cfa(0x31fff, HA_EXT_RSP, 40);
	assert_kind(0x32000, EHFRAME_UNKNOWN);
	ck_assert_uint_eq(table.stats.skipped, 0);
}
END_TEST

START_TEST(remembers_nested_states)
{
	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	BUILDER_CODE(&b, 0x41, 0x0e, 16, 0x0a, 0x41, 0x0e, 24, 0x86, 3, 0x0a);
	BUILDER_CODE(&b, 0x41, 0x0e, 8, 0xc6, 0x41, 0x0b, 0x41, 0x0b);
	builder_end(&b);
	compile();
	assert_cfa(0x1101, HA_EXT_RSP, 16);
	assert_cfa(0x1102, HA_EXT_RSP, 24);
	assert_rbp(0x1102, EHFRAME_AT_CFA, -24);
	assert_cfa(0x1103, HA_EXT_RSP, 8);
	assert_rbp(0x1103, EHFRAME_SAME, 0);
	assert_cfa(0x1104, HA_EXT_RSP, 24);
	assert_rbp(0x1104, EHFRAME_AT_CFA, -24);
	assert_cfa(0x1105, HA_EXT_RSP, 16);
	assert_rbp(0x1105, EHFRAME_SAME, 0);
}
END_TEST

START_TEST(understands_signed_and_extended_offsets)
{
	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	BUILDER_CODE(&b, 0x12, 7, 0x7c);		/* def_cfa_sf rsp, -4 * -8 */
	BUILDER_CODE(&b, 0x11, 6, 3);			/* offset_extended_sf rbp, 3 * -8 */
	BUILDER_CODE(&b, 0x41, 0x13, 0x7b);		/* def_cfa_offset_sf -5 * -8 */
	BUILDER_CODE(&b, 0x05, 6, 2);			/* offset_extended rbp, 2 */
	BUILDER_CODE(&b, 0x41, 0x2f, 6, 4, 0x2e, 32);	/* negative_offset, args_size */
	BUILDER_CODE(&b, 0x41, 0x06, 6);		/* restore_extended rbp */
	BUILDER_CODE(&b, 0x41, 0x86, 2, 0x41, 0x08, 6); /* same_value rbp */
	builder_end(&b);
	compile();
	assert_cfa(0x1100, HA_EXT_RSP, 32);
	assert_rbp(0x1100, EHFRAME_AT_CFA, -24);
	assert_cfa(0x1101, HA_EXT_RSP, 40);
	assert_rbp(0x1101, EHFRAME_AT_CFA, -16);
	assert_rbp(0x1102, EHFRAME_AT_CFA, 32);
	assert_rbp(0x1103, EHFRAME_SAME, 0);
	assert_rbp(0x1104, EHFRAME_AT_CFA, -16);
	assert_rbp(0x1105, EHFRAME_SAME, 0);
}
END_TEST

START_TEST(keeps_large_and_odd_offsets)
{
	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	builder_u8(&b, 0x0e);
	builder_uleb(&b, 1022 * 8);
	BUILDER_CODE(&b, 0x41, 0x0e);
	builder_uleb(&b, 1023 * 8);
	BUILDER_CODE(&b, 0x41, 0x0e);
	builder_uleb(&b, 100000000);
	BUILDER_CODE(&b, 0x41, 0x0e, 12);
	BUILDER_CODE(&b, 0x41, 0x0e, 64, 0x86, 32);
	BUILDER_CODE(&b, 0x41, 0x0c, 3, 24); /* CFA = rbx + 24 */
	builder_end(&b);
	compile();
	assert_cfa(0x1100, HA_EXT_RSP, 1022 * 8);
	assert_cfa(0x1101, HA_EXT_RSP, 1023 * 8);
	assert_cfa(0x1102, HA_EXT_RSP, 100000000);
	assert_cfa(0x1103, HA_EXT_RSP, 12);
	assert_rbp(0x1104, EHFRAME_AT_CFA, -256);
	assert_cfa(0x1105, HA_EXT_RBX, 24);
}
END_TEST

START_TEST(refuses_offsets_beyond_32_bits_by_stopping)
{
	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	builder_u8(&b, 0x0e);
	builder_uleb(&b, 0x100000010);
	builder_end(&b);
	compile();
	assert_kind(0x1100, EHFRAME_STOP);
	ck_assert_uint_eq(table.stats.stops, 1);
}
END_TEST

/* ---- return address */

START_TEST(undefined_return_address_ends_the_stack)
{
	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	BUILDER_CODE(&b, 0x07, 16, 0x44, 0xd0, 0x44);
	builder_end(&b);
	compile();
	assert_kind(0x1100, EHFRAME_END);
	assert_cfa(0x1104, HA_EXT_RSP, 8);
}
END_TEST

START_TEST(return_address_may_be_in_a_register)
{
	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	BUILDER_CODE(&b, 0x09, 16, 5, 0x0e, 0); /* vfork: in rdi */
	builder_end(&b);
	compile();
	ck_assert_int_eq(at(0x1100).kind, EHFRAME_NORMAL);
	ck_assert_int_eq(at(0x1100).ra_register, HA_EXT_RDI);
	ck_assert_int_eq(at(0x1100).cfa_offset, 0);
}
END_TEST

START_TEST(rules_that_cannot_be_told_stop_the_walk)
{
	static const int code[][12] = {
		{0x90, 2, -1},			    /* return address at CFA - 16 */
		{0x09, 6, 9, -1},		    /* rbp in r9 */
		{0x09, 7, 8, -1},		    /* rsp in r8: longjmp */
		{0x0f, 3, 0x79, 0, 0x96, -1},	    /* CFA: breg9 0, nop */
		{0x0f, 1, 0x33, -1},		    /* CFA: a constant */
		{0x0f, 4, 0x77, 0, 0x06, 0x06, -1}, /* CFA: deref twice */
		{0x0f, 2, 0x77, 0x80, -1},	    /* CFA: the operand is cut off */
		{0x0f, 0, -1},			    /* CFA: empty */
		{0x14, 6, 2, -1},		    /* rbp is CFA - 16 */
		{0x10, 6, 2, 0x73, 8, -1},	    /* rbp at rbx + 8 */
		{0x16, 6, 2, 0x76, 8, -1},	    /* rbp is rbp + 8 */
		{0x08, 16, -1},			    /* return address unchanged */
	};

	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	builder_code(&b, code[_i]);
	builder_end(&b);
	compile();
	assert_kind(0x1100, EHFRAME_STOP);
}
END_TEST

/* ---- expressions */

START_TEST(recognises_lazy_plt)
{
	for (int threshold = 10; threshold <= 11; threshold++) {
		setup();
		builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
		BUILDER_CODE(&b, 0x0e, 16, 0x46, 0x0e, 24, 0x4a);
		BUILDER_CODE(&b, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x30 + threshold, 0x2a,
			     0x33, 0x24, 0x22);
		builder_end(&b);
		compile();
		assert_cfa(0x1106, HA_EXT_RSP, 24);
		assert_kind(0x1110, threshold == 11 ? EHFRAME_PLT11 : EHFRAME_PLT10);
		teardown();
	}
}
END_TEST

START_TEST(follows_drap_frames)
{
	struct ehframe_rule rule;

	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	BUILDER_CODE(&b, 0x0c, 10, 0);				  /* lea r10, [rsp + 8] */
	BUILDER_CODE(&b, 0x49, 0x10, 6, 2, 0x76, 0);		  /* rbp at *(rbp) */
	BUILDER_CODE(&b, 0x45, 0x0f, 3, 0x76, 0x78, 0x06);	  /* CFA = *(rbp - 8) */
	BUILDER_CODE(&b, 0x45, 0x0f, 5, 0x77, 8, 0x06, 0x23, 16); /* *(rsp + 8) + 16 */
	builder_end(&b);
	compile();
	assert_cfa(0x1100, HA_EXT_R10, 0);
	rule = at(0x1109);
	ck_assert_int_eq(rule.rbp, EHFRAME_AT_RBP);
	ck_assert_int_eq(rule.rbp_offset, 0);
	rule = at(0x110e);
	ck_assert_int_eq(rule.kind, EHFRAME_NORMAL);
	ck_assert(rule.deref);
	ck_assert_int_eq(rule.base, HA_EXT_RBP);
	ck_assert_int_eq(rule.cfa_offset, -8);
	ck_assert_int_eq(rule.cfa_add, 0);
	ck_assert_int_eq(rule.rbp, EHFRAME_AT_RBP);
	rule = at(0x1113);
	ck_assert_int_eq(rule.base, HA_EXT_RSP);
	ck_assert_int_eq(rule.cfa_offset, 8);
	ck_assert_int_eq(rule.cfa_add, 16);
}
END_TEST

START_TEST(reduces_expressions_to_offsets_where_they_are)
{
	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x40);
	BUILDER_CODE(&b, 0x0f, 2, 0x77, 32);			  /* CFA: rsp + 32 */
	BUILDER_CODE(&b, 0x10, 6, 2, 0x77, 16);			  /* rbp at rsp + 16 */
	BUILDER_CODE(&b, 0x44, 0x0f, 5, 0x77, 0, 0x08, 40, 0x22); /* rsp + 40 by plus */
	BUILDER_CODE(&b, 0x44, 0x0f, 4, 0x77, 48, 0x38, 0x1c);	  /* rsp + 48 - 8 */
	BUILDER_CODE(&b, 0x44, 0x16, 6, 2, 0x76, 0);		  /* rbp is rbp */
	builder_end(&b);
	compile();
	assert_cfa(0x1100, HA_EXT_RSP, 32);
	assert_rbp(0x1100, EHFRAME_AT_CFA, -16);
	assert_cfa(0x1104, HA_EXT_RSP, 40);
	assert_cfa(0x1108, HA_EXT_RSP, 40);
	assert_rbp(0x110c, EHFRAME_SAME, 0);
}
END_TEST

/* ---- CIEs */

START_TEST(reads_gcc_augmentation)
{
	static const uint8_t augmentation[] = {0x1b, 0x9b, 0, 0, 0, 0, 0x1b};
	static const uint8_t reordered[] = {0x03, 1, 2, 3, 4, 0x0c, 0x1b};
	size_t cie = builder_cie(&b, "zRPL", augmentation, sizeof(augmentation));

	builder_end(&b);
	builder_begin(&b, (uint32_t)(b.size + 4 - cie));
	builder_u32(&b, (uint32_t)(0x1200 - (BUILDER_VADDR + b.size))); /* pcrel sdata4 */
	builder_u32(&b, 0x20);
	BUILDER_CODE(&b, 4, 1, 2, 3, 4, 0x41, 0x0e, 16); /* LSDA, then instructions */
	builder_end(&b);
	cie = builder_cie(&b, "zPLR", reordered, sizeof(reordered));
	builder_end(&b);
	builder_begin(&b, (uint32_t)(b.size + 4 - cie));
	builder_u32(&b, (uint32_t)(0x1300 - (BUILDER_VADDR + b.size)));
	builder_u32(&b, 0x20);
	BUILDER_CODE(&b, 0, 0x41, 0x0e, 24);
	builder_end(&b);
	compile();
	ck_assert_uint_eq(table.stats.cies, 2);
	assert_cfa(0x1201, HA_EXT_RSP, 16);
	assert_cfa(0x1301, HA_EXT_RSP, 24);
}
END_TEST

START_TEST(signal_cie_makes_signal_rows)
{
	size_t cie = builder_cie(&b, "zS", NULL, 0);

	builder_end(&b);
	builder_begin(&b, (uint32_t)(b.size + 4 - cie));
	builder_u64(&b, 0x11ff);
	builder_u64(&b, 10);
	BUILDER_CODE(&b, 0);
	builder_end(&b);
	compile();
	assert_kind(0x11fe, EHFRAME_UNKNOWN);
	assert_kind(0x11ff, EHFRAME_SIGNAL);
	assert_kind(0x1208, EHFRAME_SIGNAL);
}
END_TEST

START_TEST(accepts_old_and_new_versions_of_cies)
{
	size_t cie;

	for (uint64_t start = 0x1100; start <= 0x1300; start += 0x100) {
		int version = start == 0x1100 ? 3 : start == 0x1200 ? 4 : 1;

		builder_begin(&b, 0);
		cie = b.entry;
		builder_u8(&b, (uint8_t)version);
		if (version == 1) { /* "eh": a pointer of old compilers */
			BUILDER_CODE(&b, 'e', 'h', 0);
			builder_u64(&b, 0x1234);
		} else {
			builder_u8(&b, 0);
		}
		if (version == 4)
			BUILDER_CODE(&b, 8, 0);
		BUILDER_CODE(&b, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1);
		builder_end(&b);
		builder_fde(&b, cie, start, 0x20);
		builder_end(&b);
	}
	compile();
	assert_cfa(0x1100, HA_EXT_RSP, 8);
	assert_cfa(0x1200, HA_EXT_RSP, 8);
	assert_cfa(0x1300, HA_EXT_RSP, 8);
}
END_TEST

START_TEST(reads_64_bit_lengths)
{
	size_t cie = b.size;

	builder_begin_wide(&b, 0);
	BUILDER_CODE(&b, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1);
	builder_end(&b);
	builder_begin_wide(&b, (uint32_t)(b.size + 12 - cie));
	builder_u64(&b, 0x1100);
	builder_u64(&b, 0x20);
	builder_end(&b);
	add_function(0x1200, 0x20);
	compile();
	assert_cfa(0x1100, HA_EXT_RSP, 8);
	assert_cfa(0x1200, HA_EXT_RSP, 8);
}
END_TEST

START_TEST(leaves_out_fdes_of_cies_that_it_does_not_know)
{
	static const struct {
		const char *augmentation;
		uint8_t data[4];
		size_t size;
	} unknown[] = {
		{"zQ", {0}, 1},	   {"y", {0}, 0},     {"zR", {0xff}, 1},
		{"zR", {0x9b}, 1}, {"zR", {0x0f}, 1},
	};
	size_t cie = builder_cie(&b, unknown[_i].augmentation, unknown[_i].data, unknown[_i].size);

	builder_end(&b);
	builder_begin(&b, (uint32_t)(b.size + 4 - cie));
	builder_u64(&b, 0x1100);
	builder_u64(&b, 0x20);
	builder_u64(&b, 0);
	builder_end(&b);
	add_function(0x1200, 0x20);
	compile();
	ck_assert_uint_eq(table.stats.skipped + table.stats.outside, 1);
	assert_kind(0x1100, EHFRAME_UNKNOWN);
	assert_cfa(0x1200, HA_EXT_RSP, 8);
}
END_TEST

/* ---- the section as a whole */

START_TEST(sorts_fdes)
{
	add_function(0x3000, 0x20);
	add_function(0x1100, 0x20);
	add_function(0x2000, 0x20);
	compile();
	ck_assert_uint_eq(table.stats.fdes, 3);
	assert_cfa(0x1100, HA_EXT_RSP, 8);
	assert_cfa(0x2000, HA_EXT_RSP, 8);
	assert_cfa(0x301f, HA_EXT_RSP, 8);
	assert_kind(0x1120, EHFRAME_UNKNOWN);
	assert_kind(0x2fff, EHFRAME_UNKNOWN);
	assert_kind(0x3020, EHFRAME_UNKNOWN);
}
END_TEST

START_TEST(padding_belongs_to_the_function_before_it)
{
	size_t cie = builder_plain_cie(&b);

	builder_fde(&b, cie, 0x1100, 0x21);
	BUILDER_CODE(&b, 0x0e, 16);
	builder_end(&b);
	builder_fde(&b, cie, 0x1130, 0x20);
	BUILDER_CODE(&b, 0x41, 0x0e, 16, 0x44, 0x0e, 8);
	builder_end(&b);
	builder_fde(&b, cie, 0x1160, 0x20);
	builder_end(&b);
	compile();
	assert_cfa(0x1120, HA_EXT_RSP, 16);
	assert_cfa(0x112f, HA_EXT_RSP, 16); /* 15 bytes */
	assert_cfa(0x1130, HA_EXT_RSP, 8);
	assert_cfa(0x114f, HA_EXT_RSP, 8);
	assert_kind(0x1150, EHFRAME_UNKNOWN); /* 16 bytes */
	assert_kind(0x115f, EHFRAME_UNKNOWN);
}
END_TEST

/* makecontext() makes __start_context a return address, which nothing called. */
START_TEST(byte_before_a_leaf_is_unknown)
{
	size_t cie = builder_plain_cie(&b);

	builder_fde(&b, cie, 0x1100, 0x21);
	BUILDER_CODE(&b, 0x41, 0x0e, 16);
	builder_end(&b);
	builder_fde(&b, cie, 0x1130, 0x20);
	builder_end(&b);
	builder_fde(&b, cie, 0x1150, 0x20);
	builder_end(&b);
	compile();
	assert_cfa(0x112e, HA_EXT_RSP, 16);
	assert_kind(0x112f, EHFRAME_UNKNOWN);
	assert_cfa(0x1130, HA_EXT_RSP, 8);
	assert_cfa(0x114f, HA_EXT_RSP, 8);
	assert_cfa(0x1150, HA_EXT_RSP, 8);
}
END_TEST

/* The call is the last instruction: ra - 1 is looked up, in the same function. */
START_TEST(last_byte_of_a_function_has_its_rule)
{
	size_t cie = builder_plain_cie(&b);

	builder_fde(&b, cie, 0x1100, 0x20);
	BUILDER_CODE(&b, 0x44, 0x0e, 48);
	builder_end(&b);
	builder_fde(&b, cie, 0x1120, 0x20);
	builder_end(&b);
	compile();
	assert_cfa(0x111f, HA_EXT_RSP, 48);
	assert_cfa(0x1120, HA_EXT_RSP, 8);
}
END_TEST

START_TEST(later_start_wins_where_fdes_overlap)
{
	size_t cie = builder_plain_cie(&b);

	builder_fde(&b, cie, 0x1100, 0x100);
	BUILDER_CODE(&b, 0x0e, 16, 0x02, 0xf0, 0x0e, 24);
	builder_end(&b);
	builder_fde(&b, cie, 0x1140, 0x10);
	BUILDER_CODE(&b, 0x0e, 32);
	builder_end(&b);
	builder_fde(&b, cie, 0x1140, 0x40); /* a duplicate: the first of the section counts */
	BUILDER_CODE(&b, 0x0e, 40);
	builder_end(&b);
	compile();
	ck_assert_uint_eq(table.stats.overlaps, 2);
	assert_cfa(0x113f, HA_EXT_RSP, 16);
	assert_cfa(0x1140, HA_EXT_RSP, 32);
	assert_kind(0x1150, EHFRAME_UNKNOWN);
}
END_TEST

START_TEST(drops_empty_fdes_and_those_outside_of_the_code)
{
	add_function(0x1100, 0);
	add_function(0x0, 0x20);
	add_function(BUILDER_TEXT_HIGH - 8, 0x20);
	add_function(UINT64_MAX - 8, 0x20);
	add_function(0x1200, 0x20);
	compile();
	ck_assert_uint_eq(table.stats.fdes, 1);
	ck_assert_uint_eq(table.stats.outside, 2);
	ck_assert_uint_eq(table.stats.skipped, 1);
	assert_kind(0x1100, EHFRAME_UNKNOWN);
	assert_cfa(0x1200, HA_EXT_RSP, 8);
}
END_TEST

START_TEST(stops_at_the_terminator)
{
	add_function(0x1100, 0x20);
	builder_terminator(&b);
	add_function(0x1200, 0x20);
	compile();
	ck_assert(table.stats.terminated);
	assert_cfa(0x1100, HA_EXT_RSP, 8);
	assert_kind(0x1200, EHFRAME_UNKNOWN);
}
END_TEST

START_TEST(keeps_what_stands_before_damage)
{
	add_function(0x1100, 0x20);
	builder_u32(&b, 0x7fffffff);
	builder_u32(&b, 1);
	compile();
	ck_assert(table.stats.damaged);
	ck_assert_uint_eq(table.stats.end, b.size - 8);
	assert_cfa(0x1100, HA_EXT_RSP, 8);
}
END_TEST

START_TEST(stops_behind_the_last_fde)
{
	struct ehframe_input in;
	size_t last;

	add_function(0x1100, 0x20);
	last = b.entry;
	add_function(0x1200, 0x20);
	in = builder_input(&b);
	in.last_fde = in.vaddr + last;
	assert_ok(ehframe_compile(&in, &table));
	ck_assert_uint_eq(table.stats.fdes, 1);
	ck_assert(!table.stats.damaged);
}
END_TEST

static const int malformed[][16] = {
	{0x0e, -1},			       /* the operand is missing */
	{0x0b, -1},			       /* nothing to restore */
	{0x3f, -1},			       /* no such instruction */
	{0x0f, 0x90, 0x4e, -1},		       /* expression longer than the entry */
	{0x01, 0, 0x10, 0, 0, 0, 0, 0, 0, -1}, /* set_loc backwards */
	{0x0f, 1, 0x77, 0x0e, 16, -1},	       /* an offset behind an expression */
	{0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, -1},
};

/* Instructions that end exactly where their FDE does. */
static void builder_code_at_end(struct builder *builder, const int *code)
{
	size_t size = 0;

	while (code[size] != -1)
		size++;
	while ((builder->size + size) % 8 != 4)
		builder_u8(builder, 0);
	builder_code(builder, code);
}

START_TEST(malformed_function_is_unknown_and_the_others_are_not)
{
	size_t cie = builder_plain_cie(&b);
	size_t bad;

	builder_fde(&b, cie, 0x1100, 0x20);
	builder_end(&b);
	builder_fde(&b, cie, 0x1120, 0x20);
	bad = b.entry;
	BUILDER_CODE(&b, 0x44, 0x0e, 16, 0x44);
	builder_code_at_end(&b, malformed[_i]);
	builder_end(&b);
	builder_fde(&b, cie, 0x1140, 0x20);
	builder_end(&b);
	compile();
	ck_assert_uint_eq(table.stats.skipped, 1);
	ck_assert_uint_ge(table.stats.skipped_offset, bad);
	ck_assert_uint_eq(table.stats.fdes, 2);
	assert_cfa(0x111f, HA_EXT_RSP, 8);
	assert_kind(0x1120, EHFRAME_UNKNOWN);
	assert_kind(0x113f, EHFRAME_UNKNOWN);
	assert_cfa(0x1140, HA_EXT_RSP, 8);
}
END_TEST

START_TEST(fde_without_cie_is_left_out)
{
	builder_begin(&b, 0x1000);
	builder_u64(&b, 0x1100);
	builder_u64(&b, 0x20);
	builder_end(&b);
	builder_begin(&b, 8);
	builder_u64(&b, 0x1100);
	builder_u64(&b, 0x20);
	builder_end(&b);
	add_function(0x1200, 0x20);
	compile();
	ck_assert_uint_eq(table.stats.skipped, 2);
	assert_kind(0x1100, EHFRAME_UNKNOWN);
}
END_TEST

START_TEST(nothing_usable_is_an_error_with_the_offset)
{
	struct ehframe_input in;
	struct error *err;

	builder_u32(&b, 0x100);
	in = builder_input(&b);
	err = ehframe_compile(&in, &table);
	ck_assert(error_is(err, ERROR_FORMAT));
	ck_assert_ptr_nonnull(strstr(error_message(err), "offset 0"));
	error_free(err);
	setup();
	builder_terminator(&b);
	in = builder_input(&b);
	assert_fails(ehframe_compile(&in, &table), ERROR_NOT_FOUND);
	in.size = 0;
	assert_fails(ehframe_compile(&in, &table), ERROR_NOT_FOUND);
	in.text_high = in.text_low + 0x100000001;
	assert_fails(ehframe_compile(&in, &table), ERROR_UNSUPPORTED);
}
END_TEST

START_TEST(deep_remembering_is_refused)
{
	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x20);
	for (int i = 0; i < 2000; i++)
		builder_u8(&b, 0x0a);
	builder_end(&b);
	add_function(0x1200, 0x20);
	compile();
	ck_assert_uint_eq(table.stats.skipped, 1);
}
END_TEST

/* ---- the table */

START_TEST(equal_neighbours_merge)
{
	size_t cie = builder_plain_cie(&b);

	for (uint64_t start = 0x1100; start < 0x1200; start += 0x10) {
		builder_fde(&b, cie, start, 0x10);
		BUILDER_CODE(&b, 0x41, 0xc3, 0x41, 0x0e, 8);
		builder_end(&b);
	}
	compile();
	ck_assert_uint_eq(table.table->nrows, 2);
	ck_assert_uint_eq(table.table->base, 0x1100);
	assert_cfa(0x11ff, HA_EXT_RSP, 8);
	assert_kind(0x1200, EHFRAME_UNKNOWN);
}
END_TEST

START_TEST(looks_up_over_empty_blocks)
{
	size_t cie = builder_plain_cie(&b);

	builder_fde(&b, cie, 0x1180, 0x100000);
	BUILDER_CODE(&b, 0x44, 0x0e, 16, 0x04, 0, 0, 8, 0, 0x0e, 24);
	builder_end(&b);
	compile();
	for (uint64_t vaddr = 0x1184; vaddr < 0x81184; vaddr += 0x7f) {
		assert_cfa(vaddr, HA_EXT_RSP, 16);
		ck_assert_uint_eq(at(vaddr).start, 0x1184);
	}
	for (uint64_t vaddr = 0x81184; vaddr < 0x101180; vaddr += 0x7f)
		assert_cfa(vaddr, HA_EXT_RSP, 24);
	assert_kind(0x1100, EHFRAME_UNKNOWN);
	assert_kind(0x117f, EHFRAME_UNKNOWN);
	assert_kind(0x101180, EHFRAME_UNKNOWN);
	assert_kind(UINT64_MAX, EHFRAME_UNKNOWN);
	assert_kind(0, EHFRAME_UNKNOWN);
}
END_TEST

START_TEST(full_tables_tell_callee_saved_registers)
{
	struct ehframe_input in;
	struct ehframe_rule rule;

	builder_fde(&b, builder_plain_cie(&b), 0x1100, 0x20);
	BUILDER_CODE(&b, 0x41, 0x0e, 16, 0x8f, 2); /* push r15 */
	BUILDER_CODE(&b, 0x41, 0x0e, 24, 0x83, 3); /* push rbx */
	BUILDER_CODE(&b, 0x41, 0x09, 12, 0);	   /* r12 in rax: cannot be told */
	BUILDER_CODE(&b, 0x05, 13);
	builder_uleb(&b, 255); /* too far away */
	builder_end(&b);
	in = builder_input(&b);
	in.full = true;
	assert_ok(ehframe_compile(&in, &table));
	assert_ok(ehframe_verify(table.table, table.size));
	rule = at(0x1102);
	ck_assert_int_eq(rule.saved[EHFRAME_R15], EHFRAME_AT_CFA);
	ck_assert_int_eq(rule.saved_offset[EHFRAME_R15], -16);
	ck_assert_int_eq(rule.saved[EHFRAME_RBX], EHFRAME_AT_CFA);
	ck_assert_int_eq(rule.saved_offset[EHFRAME_RBX], -24);
	ck_assert_int_eq(rule.saved[EHFRAME_R12], EHFRAME_SAME);
	rule = at(0x1103);
	ck_assert_int_eq(rule.saved[EHFRAME_R12], EHFRAME_LOST);
	ck_assert_int_eq(rule.saved[EHFRAME_R13], EHFRAME_LOST);
	ck_assert_int_eq(rule.saved[EHFRAME_R14], EHFRAME_SAME);
	assert_cfa(0x1103, HA_EXT_RSP, 24);
}
END_TEST

START_TEST(lookups_in_damaged_tables_stay_inside)
{
	struct ehframe_rule rule;
	uint64_t random = 88172645463325252u;
	uint8_t *copy;

	builder_fde(&b, builder_plain_cie(&b), 0x1180, 0x1000);
	BUILDER_CODE(&b, 0x44, 0x0e, 16, 0x02, 0xff, 0x0c, 3, 24, 0x03, 0, 2, 0x0e, 12);
	builder_end(&b);
	compile();
	/* Exactly as large as said, so that a sanitizer sees each byte read beyond. */
	copy = malloc(table.size);
	ck_assert_ptr_nonnull(copy);
	for (int i = 0; i < 200000; i++) {
		memcpy(copy, table.table, table.size);
		for (int k = 0; k < 3; k++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			copy[(random >> 33) % (k ? table.size : sizeof(struct ha_table))] =
				(uint8_t)(random >> 25);
		}
		ehframe_lookup((struct ha_table *)copy, table.size,
			       0x1100 + (random >> 40) % 0x1200, &rule);
		ck_assert_int_le(rule.kind, EHFRAME_STOP);
	}
	free(copy);
}
END_TEST

START_TEST(verify_finds_damage)
{
	uint8_t *bytes;

	builder_fde(&b, builder_plain_cie(&b), 0x1180, 0x1000);
	BUILDER_CODE(&b, 0x44, 0x0e, 16, 0x02, 0xff, 0x0c, 3, 24);
	builder_end(&b);
	compile();
	assert_fails(ehframe_verify(table.table, table.size - 17), ERROR_FORMAT);
	bytes = (uint8_t *)table.table;
	bytes[table.table->low] = 1;
	assert_fails(ehframe_verify(table.table, table.size), ERROR_FORMAT);
	bytes[table.table->low] = 0;
	bytes[table.table->block + 4]++;
	assert_fails(ehframe_verify(table.table, table.size), ERROR_FORMAT);
	bytes[table.table->block + 4]--;
	bytes[table.table->ext]++;
	assert_fails(ehframe_verify(table.table, table.size), ERROR_FORMAT);
	bytes[table.table->ext]--;
	assert_ok(ehframe_verify(table.table, table.size));
}
END_TEST

/* ---- .eh_frame_hdr */

START_TEST(finds_section_and_last_fde)
{
	struct ehframe_location location;

	BUILDER_CODE(&b, 1, 0x1b, 0x03, 0x3b);
	builder_u32(&b, 0x100 - 4); /* .eh_frame at hdr + 0x100 */
	builder_u32(&b, 2);
	builder_u32(&b, 0x10);
	builder_u32(&b, 0x180);
	builder_u32(&b, 0x20);
	builder_u32(&b, 0x140);
	assert_ok(ehframe_find(b.data, b.size, 0x5000, &location));
	ck_assert_uint_eq(location.vaddr, 0x5100);
	ck_assert_uint_eq(location.last_fde, 0x5180);
	ck_assert_uint_eq(location.fdes, 2);
	/* A table that is cut off says nothing about the last FDE. */
	assert_ok(ehframe_find(b.data, b.size - 4, 0x5000, &location));
	ck_assert_uint_eq(location.vaddr, 0x5100);
	ck_assert_uint_eq(location.last_fde, 0);
}
END_TEST

START_TEST(refuses_malformed_headers)
{
	struct ehframe_location location;

	BUILDER_CODE(&b, 2, 0x1b, 0x03, 0x3b, 1, 1, 1, 1);
	assert_fails(ehframe_find(b.data, b.size, 0x5000, &location), ERROR_FORMAT);
	b.data[0] = 1;
	assert_fails(ehframe_find(b.data, 7, 0x5000, &location), ERROR_FORMAT);
	assert_fails(ehframe_find(b.data, 0, 0x5000, &location), ERROR_FORMAT);
	b.data[1] = 0x9b;
	assert_fails(ehframe_find(b.data, b.size, 0x5000, &location), ERROR_FORMAT);
	b.data[1] = 0xff;
	assert_fails(ehframe_find(b.data, b.size, 0x5000, &location), ERROR_FORMAT);
}
END_TEST

static void add_case(Suite *suite, TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
	suite_add_tcase(suite, tcase);
}

static TCase *rules_case(void)
{
	TCase *tcase = tcase_create("rules");

	tcase_add_test(tcase, follows_a_prologue);
	tcase_add_test(tcase, advances_in_all_encodings);
	tcase_add_test(tcase, remembers_nested_states);
	tcase_add_test(tcase, understands_signed_and_extended_offsets);
	tcase_add_test(tcase, keeps_large_and_odd_offsets);
	tcase_add_test(tcase, refuses_offsets_beyond_32_bits_by_stopping);
	tcase_add_test(tcase, undefined_return_address_ends_the_stack);
	tcase_add_test(tcase, return_address_may_be_in_a_register);
	tcase_add_loop_test(tcase, rules_that_cannot_be_told_stop_the_walk, 0, 12);
	tcase_add_test(tcase, recognises_lazy_plt);
	tcase_add_test(tcase, follows_drap_frames);
	tcase_add_test(tcase, reduces_expressions_to_offsets_where_they_are);
	return tcase;
}

static TCase *section_case(void)
{
	TCase *tcase = tcase_create("section");

	tcase_add_test(tcase, reads_gcc_augmentation);
	tcase_add_test(tcase, signal_cie_makes_signal_rows);
	tcase_add_test(tcase, accepts_old_and_new_versions_of_cies);
	tcase_add_test(tcase, reads_64_bit_lengths);
	tcase_add_loop_test(tcase, leaves_out_fdes_of_cies_that_it_does_not_know, 0, 5);
	tcase_add_test(tcase, sorts_fdes);
	tcase_add_test(tcase, padding_belongs_to_the_function_before_it);
	tcase_add_test(tcase, byte_before_a_leaf_is_unknown);
	tcase_add_test(tcase, last_byte_of_a_function_has_its_rule);
	tcase_add_test(tcase, later_start_wins_where_fdes_overlap);
	tcase_add_test(tcase, drops_empty_fdes_and_those_outside_of_the_code);
	tcase_add_test(tcase, stops_at_the_terminator);
	tcase_add_test(tcase, keeps_what_stands_before_damage);
	tcase_add_test(tcase, stops_behind_the_last_fde);
	tcase_add_loop_test(tcase, malformed_function_is_unknown_and_the_others_are_not, 0,
			    sizeof(malformed) / sizeof(malformed[0]));
	tcase_add_test(tcase, fde_without_cie_is_left_out);
	tcase_add_test(tcase, nothing_usable_is_an_error_with_the_offset);
	tcase_add_test(tcase, deep_remembering_is_refused);
	return tcase;
}

static TCase *table_case(void)
{
	TCase *tcase = tcase_create("table");

	tcase_add_test(tcase, equal_neighbours_merge);
	tcase_add_test(tcase, looks_up_over_empty_blocks);
	tcase_add_test(tcase, full_tables_tell_callee_saved_registers);
	tcase_add_test(tcase, lookups_in_damaged_tables_stay_inside);
	tcase_add_test(tcase, verify_finds_damage);
	tcase_add_test(tcase, finds_section_and_last_fde);
	tcase_add_test(tcase, refuses_malformed_headers);
	tcase_set_timeout(tcase, 60);
	return tcase;
}

Suite *ehframe_suite(void)
{
	Suite *suite = suite_create("ehframe");

	add_case(suite, rules_case());
	add_case(suite, section_case());
	add_case(suite, table_case());
	return suite;
}
