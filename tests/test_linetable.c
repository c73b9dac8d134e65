// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The line tables of what compilers make, against libdw, at and around the
 * address of each row; and tables made by hand, of which most are wrong.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <string.h>

#include "resolver/cleanup.h"
#include "resolver/linetable.h"
#include "tests/tests.h"
#include "tests/workdir.h"

static struct workdir dir;
static struct elffile *file;
static struct linetable_sections sections;
static struct linetable *table;

static void set_up(void)
{
	workdir_create(&dir);
}

static void tear_down(void)
{
	linetable_free(table);
	elffile_free(file);
	workdir_remove(&dir);
}

/* ---- against libdw */

static void load(const char *path)
{
	CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	assert_ok(elffile_open_fd(fd, path, &file));
	linetable_sections(file, &sections);
}

/*
 * Behind a sequence whose last row has no length libdw gives that row, up to
 * the next one.
 */
static bool is_behind(Dwarf_Lines *rows, size_t count, uint64_t wanted)
{
	uint64_t last = 0;
	bool behind = false;

	for (size_t i = 0; i < count; i++) {
		Dwarf_Line *row = dwarf_onesrcline(rows, i);
		Dwarf_Addr address = 0;
		bool end = false;

		dwarf_lineaddr(row, &address);
		dwarf_lineendsequence(row, &end);
		if (address > wanted || address < last)
			continue;
		behind = end || (behind && address == last);
		last = address;
	}
	return behind;
}

static void compare_at(Dwarf_Die *unit, Dwarf_Lines *rows, size_t count, uint64_t address)
{
	Dwarf_Line *theirs = dwarf_getsrc_die(unit, address);
	struct linetable_row ours = {0};
	bool found = linetable_find(table, address, &ours);
	const char *name = found ? linetable_file(table, ours.file) : NULL;
	int line = 0;

	if (theirs && !found && is_behind(rows, count, address))
		return;
	ck_assert_msg(found == (theirs != NULL), "0x%lx: %s", address, found ? "ours" : "theirs");
	if (!theirs)
		return;
	ck_assert_int_eq(dwarf_lineno(theirs, &line), 0);
	ck_assert_msg(ours.line == (uint32_t)line, "0x%lx: line %u, not %d", address, ours.line,
		      line);
	ck_assert_msg(name != NULL, "0x%lx: file %u has no name", address, ours.file);
	ck_assert_str_eq(name, dwarf_linesrc(theirs, NULL, NULL));
}

/* Returns the number of rows. */
static size_t compare_unit(Dwarf_Die *unit)
{
	Dwarf_Attribute attribute;
	Dwarf_Lines *rows;
	Dwarf_Word offset;
	size_t count;

	if (dwarf_formudata(dwarf_attr(unit, DW_AT_stmt_list, &attribute), &offset))
		return 0;
	assert_ok(linetable_read(&sections, offset,
				 dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute)),
				 &table));
	ck_assert_int_eq(dwarf_getsrclines(unit, &rows, &count), 0);
	for (size_t i = 0; i < count; i++) {
		Dwarf_Addr address;

		ck_assert_int_eq(dwarf_lineaddr(dwarf_onesrcline(rows, i), &address), 0);
		compare_at(unit, rows, count, address - 1);
		compare_at(unit, rows, count, address);
		compare_at(unit, rows, count, address + 1);
	}
	linetable_free(table);
	table = NULL;
	return count;
}

static size_t compare_file(const char *path)
{
	Dwarf *dwarf;
	Dwarf_CU *cu = NULL;
	Dwarf_Die unit;
	uint8_t type;
	size_t rows = 0;

	load(path);
	dwarf = dwarf_begin_elf(elffile_libelf(file), DWARF_C_READ, NULL);
	ck_assert_ptr_nonnull(dwarf);
	while (dwarf_get_units(dwarf, cu, &cu, NULL, &type, &unit, NULL) == 0) {
		if (type == DW_UT_compile || type == DW_UT_skeleton)
			rows += compare_unit(&unit);
	}
	dwarf_end(dwarf);
	return rows;
}

/* Functions enough for many a checkpoint; every third one is in a header. */
static void write_sources(void)
{
	static const char write[] =
		"mkdir include && for i in $(seq 300); do "
		"[ $((i % 3)) = 0 ] && to=include/h.h || to=a.c; "
		"printf '__attribute__((used)) int f%d(int a)\\n{\\n\\tfor (int i = 0; i < a; "
		"i++)\\n\\t\\ta += i * %d;\\n"
		"\\treturn a;\\n}\\n' $i $i >>$to; done; "
		"{ echo '#include \"h.h\"'; cat a.c; echo 'int main(int c, "
		"char **v) { return f1(c); }'; } "
		">b.c";

	workdir_run(&dir, "%s", write);
}

static const char *const builds[] = {
	"gcc -O2 -gdwarf-2 -gno-strict-dwarf",
	"gcc -O0 -gdwarf-3",
	"gcc -O2 -gdwarf-4",
	"gcc -O2 -gdwarf-5",
	"gcc -O2 -gdwarf64 -gdwarf-5",
	"gcc -O2 -g -gz=zlib",
	"gcc -O2 -g -flto",
	"gcc -O2 -g -gno-as-loc-support",
	"gcc -O2 -gdwarf-5 -ffunction-sections",
	"gcc -O2 -gdwarf-5 -gsplit-dwarf",
	"clang -O2 -gdwarf-2",
	"clang -O2 -gdwarf-4",
	"clang -O2 -gdwarf-5",
	"clang -O2 -gdwarf-5 -ffunction-sections",
};

START_TEST(agrees_with_libdw_on_each_row)
{
	CLEANUP(freep) char *path = NULL;

	write_sources();
	workdir_run(&dir, "%s -Iinclude -o a b.c", builds[_i]);
	ck_assert_int_gt(asprintf(&path, "%s/a", dir.path), 0);
	ck_assert_uint_gt(compare_file(path), 1000);
}
END_TEST

START_TEST(agrees_with_libdw_on_our_own_programs)
{
	static const char *const names[] = {"heapattach", "targets/store", "targets/places"};
	CLEANUP(freep) char *path = tests_build_path("%s", names[_i]);

	ck_assert_uint_gt(compare_file(path), 30);
}
END_TEST

/* ---- by hand */

static uint8_t bytes[512];
static size_t size;

static void put(const void *data, size_t count)
{
	ck_assert_uint_le(size + count, sizeof(bytes));
	memcpy(bytes + size, data, count);
	size += count;
}

#define PUT(...)                                      \
	do {                                          \
		const uint8_t put_[] = {__VA_ARGS__}; \
		put(put_, sizeof(put_));              \
	} while (0)

/* Version 4: one directory, one file; special opcodes 13 on, lines from -5, 14 of them. */
static void begin_table(uint8_t version, uint8_t line_range)
{
	size = 0;
	PUT(0, 0, 0, 0, version, 0);
	PUT(0, 0, 0, 0);
	PUT(1, 1, 1, (uint8_t)-5, line_range, 13);
	PUT(0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1);
	PUT('d', 0, 0, 'f', 0, 1, 0, 0, 0);
	bytes[6] = (uint8_t)(size - 10);
}

static void set_address(uint64_t address)
{
	PUT(0, 9, DW_LNE_set_address);
	put(&address, sizeof(address));
}

static struct error *end_table(void)
{
	uint32_t length = (uint32_t)size - 4;

	memcpy(bytes, &length, sizeof(length));
	sections = (struct linetable_sections){.line = {bytes, size}};
	return linetable_read(&sections, 0, "/c", &table);
}

static void expect_row(uint64_t address, uint32_t line)
{
	struct linetable_row row;

	ck_assert(linetable_find(table, address, &row));
	ck_assert_uint_eq(row.line, line);
	ck_assert_uint_eq(row.file, 1);
}

static void expect_none(uint64_t address)
{
	struct linetable_row row;

	ck_assert(!linetable_find(table, address, &row));
}

START_TEST(finds_the_last_of_rows_with_one_address)
{
	begin_table(4, 14);
	set_address(0x1000);
	/* 200 rows at two addresses, a hundred lines each; each 64th is noted. */
	for (int i = 0; i < 200; i++)
		PUT((uint8_t)(13 + 6 + (i == 100 ? 14 : 0)));
	PUT(DW_LNS_advance_pc, 7, 0, 1, DW_LNE_end_sequence);
	assert_ok(end_table());
	expect_none(0xfff);
	expect_row(0x1000, 101);
	expect_row(0x1001, 201);
	expect_row(0x1007, 201);
	expect_none(0x1008);
	ck_assert_str_eq(linetable_file(table, 1), "d/f");
	ck_assert_ptr_null(linetable_file(table, 0));
	ck_assert_ptr_null(linetable_file(table, 2));
}
END_TEST

START_TEST(keeps_sequences_apart)
{
	begin_table(4, 14);
	set_address(0x2000);
	PUT(DW_LNS_copy, DW_LNS_advance_pc, 16, 0, 1, DW_LNE_end_sequence);
	set_address(0x1000);
	PUT(DW_LNS_advance_line, 9, DW_LNS_copy, DW_LNS_const_add_pc);
	PUT(DW_LNS_fixed_advance_pc, 1, 1, 0, 1, DW_LNE_end_sequence);
	assert_ok(end_table());
	expect_row(0x2000, 1);
	expect_row(0x200f, 1);
	expect_none(0x2010);
	expect_row(0x1000, 10);
	/* 242 / 14 and 257 */
	expect_row(0x1000 + 17 + 256, 10);
	expect_none(0x1000 + 17 + 257);
}
END_TEST

START_TEST(refuses_rows_that_are_not_in_order)
{
	begin_table(4, 14);
	set_address(0x2000);
	PUT(DW_LNS_copy);
	set_address(0x1000);
	PUT(DW_LNS_copy, 0, 1, DW_LNE_end_sequence);
	assert_fails(end_table(), ERROR_UNSUPPORTED);
}
END_TEST

START_TEST(refuses_other_versions)
{
	begin_table((uint8_t[]){0, 1, 6, 255}[_i], 14);
	assert_fails(end_table(), ERROR_UNSUPPORTED);
}
END_TEST

START_TEST(refuses_a_range_of_no_lines)
{
	begin_table(4, 0);
	set_address(0x1000);
	PUT(20, 0, 1, DW_LNE_end_sequence);
	assert_fails(end_table(), ERROR_FORMAT);
}
END_TEST

START_TEST(refuses_files_that_the_program_adds)
{
	begin_table(4, 14);
	PUT(0, 6, DW_LNE_define_file, 'g', 0, 1, 0, 0);
	assert_fails(end_table(), ERROR_FORMAT);
}
END_TEST

START_TEST(refuses_what_ends_too_early)
{
	size_t whole;

	begin_table(4, 14);
	set_address(0x1000);
	PUT(DW_LNS_copy, DW_LNS_advance_pc, 0x80);
	whole = size;
	for (size = 0; size < whole; size++) {
		struct error *err;

		sections = (struct linetable_sections){.line = {bytes, size}};
		err = linetable_read(&sections, 0, "/c", &table);
		ck_assert_ptr_nonnull(err);
		error_free(err);
	}
	assert_fails(end_table(), ERROR_FORMAT);
	assert_fails(linetable_read(&sections, 1000, "/c", &table), ERROR_FORMAT);
}
END_TEST

Suite *linetable_suite(void)
{
	Suite *suite = suite_create("linetable");
	TCase *oracle = tcase_create("oracle"), *hand = tcase_create("hand");

	tcase_add_checked_fixture(oracle, set_up, tear_down);
	tcase_set_timeout(oracle, 120);
	tcase_add_loop_test(oracle, agrees_with_libdw_on_each_row, 0,
			    sizeof(builds) / sizeof(builds[0]));
	tcase_add_loop_test(oracle, agrees_with_libdw_on_our_own_programs, 0, 3);
	suite_add_tcase(suite, oracle);

	tcase_add_checked_fixture(hand, set_up, tear_down);
	tcase_add_test(hand, finds_the_last_of_rows_with_one_address);
	tcase_add_test(hand, keeps_sequences_apart);
	tcase_add_test(hand, refuses_rows_that_are_not_in_order);
	tcase_add_loop_test(hand, refuses_other_versions, 0, 4);
	tcase_add_test(hand, refuses_a_range_of_no_lines);
	tcase_add_test(hand, refuses_files_that_the_program_adds);
	tcase_add_test(hand, refuses_what_ends_too_early);
	suite_add_tcase(suite, hand);
	return suite;
}
