// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/symbols.h"

#include "resolver/cleanup.h"
#include "tests/tests.h"
#include "tests/workdir.h"

#include <string.h>

/* Every kind of symbol that the rules tell apart; 16 bytes each. */
static const char source[] =
	".text\n"
	".globl sized, strong, __under, unsized, unsized2\n"
	".weak weak\n"
	".type sized, @function\n"
	"sized: nop\n"
	"label_inside: .skip 15, 0x90\n"
	".size sized, 16\n"
	".skip 16, 0x90\n" /* padding: nobody's */
	".type strong, @function\n"
	".type weak, @function\n"
	".type __under, @function\n"
	".type local, @function\n"
	"local: __under: weak: strong: .skip 16, 0x90\n"
	".size local, 16\n.size __under, 16\n.size weak, 16\n.size strong, 16\n"
	".type unsized, @function\n"
	"unsized: .skip 16, 0x90\n"
	".type unsized2, @function\n"
	"unsized2: .skip 16, 0x90\n"
	".section .text.other, \"ax\"\n"
	".type outer, @function\n"
	"outer: .skip 8, 0x90\n"
	".type inner, @function\n"
	"inner: .skip 4, 0x90\n"
	".size inner, 4\n"
	".skip 4, 0x90\n"
	".size outer, 16\n"
	".data\n"
	".type data, @object\n"
	"data: .quad 1\n"
	".size data, 8\n";

static struct workdir dir;
static struct elffile *file;
static struct symbols *symbols;

static void load(const char *name, enum elffile_table table)
{
	CLEANUP(closep) int fd = workdir_open(&dir, name);

	assert_ok(elffile_open_fd(fd, name, &file));
	assert_ok(symbols_create(&symbols));
	assert_ok(symbols_add(symbols, file, table));
	assert_ok(symbols_seal(symbols));
}

static void set_up(void)
{
	workdir_create(&dir);
	workdir_write_text(&dir, "a.s", source);
	workdir_run(&dir, "gcc -nostdlib -shared -Wl,-z,norelro -o a a.s");
	load("a", ELFFILE_SYMTAB);
}

static void tear_down(void)
{
	symbols_free(symbols);
	elffile_free(file);
	workdir_remove(&dir);
}

static uint64_t address_of(const char *name)
{
	size_t count = elffile_symbol_count(file, ELFFILE_SYMTAB);
	struct elffile_symbol symbol;

	for (size_t i = 0; i < count; i++) {
		if (elffile_symbol(file, ELFFILE_SYMTAB, i, &symbol) &&
		    strcmp(symbol.name, name) == 0)
			return symbol.value;
	}
	ck_abort_msg("no symbol %s", name);
}

static void check_found(uint64_t vaddr, const char *expected)
{
	const struct symbol *symbol = symbols_find(symbols, vaddr);

	ck_assert_str_eq(symbol ? symbol->name : "(none)", expected ? expected : "(none)");
}

START_TEST(finds_first_and_last_byte_of_a_function)
{
	check_found(address_of("sized"), "sized");
	check_found(address_of("sized") + 15, "sized");
}
END_TEST

START_TEST(names_nothing_between_functions)
{
	check_found(address_of("sized") - 1, NULL);
	check_found(address_of("sized") + 16, NULL);
	check_found(address_of("sized") + 31, NULL);
	check_found(0, NULL);
	check_found(UINT64_MAX, NULL);
}
END_TEST

START_TEST(passes_over_labels_in_functions)
{
	check_found(address_of("label_inside"), "sized");
	check_found(address_of("label_inside") + 5, "sized");
}
END_TEST

START_TEST(prefers_global_names_without_underscores)
{
	check_found(address_of("strong"), "strong");
	check_found(address_of("strong") + 15, "strong");
}
END_TEST

START_TEST(ends_unsized_functions_at_the_next_and_at_the_section_end)
{
	check_found(address_of("unsized") + 15, "unsized");
	check_found(address_of("unsized2"), "unsized2");
	check_found(address_of("unsized2") + 15, "unsized2");
	check_found(address_of("outer"), "outer");
}
END_TEST

START_TEST(finds_the_inner_of_nested_functions)
{
	check_found(address_of("inner"), "inner");
	check_found(address_of("inner") + 3, "inner");
	check_found(address_of("inner") + 4, "outer");
	check_found(address_of("outer") + 15, "outer");
}
END_TEST

START_TEST(leaves_data_out)
{
	check_found(address_of("data"), NULL);
}
END_TEST

START_TEST(finds_only_exported_functions_in_the_dynamic_table)
{
	uint64_t inner = address_of("inner"), strong = address_of("strong");

	symbols_free(symbols);
	elffile_free(file);
	workdir_run(&dir, "strip -o stripped a");
	load("stripped", ELFFILE_DYNSYM);
	check_found(inner, NULL);
	check_found(strong, "strong");
}
END_TEST

START_TEST(holds_nothing_when_nothing_was_added)
{
	struct symbols *empty;

	assert_ok(symbols_create(&empty));
	assert_ok(symbols_seal(empty));
	ck_assert_uint_eq(symbols_count(empty), 0);
	ck_assert_ptr_null(symbols_find(empty, 0x1000));
	symbols_free(empty);
	symbols_free(NULL);
}
END_TEST

Suite *symbols_suite(void)
{
	Suite *suite = suite_create("symbols");
	TCase *tcase = tcase_create("find");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 30);
	tcase_add_test(tcase, finds_first_and_last_byte_of_a_function);
	tcase_add_test(tcase, names_nothing_between_functions);
	tcase_add_test(tcase, passes_over_labels_in_functions);
	tcase_add_test(tcase, prefers_global_names_without_underscores);
	tcase_add_test(tcase, ends_unsized_functions_at_the_next_and_at_the_section_end);
	tcase_add_test(tcase, finds_the_inner_of_nested_functions);
	tcase_add_test(tcase, leaves_data_out);
	tcase_add_test(tcase, finds_only_exported_functions_in_the_dynamic_table);
	tcase_add_test(tcase, holds_nothing_when_nothing_was_added);
	suite_add_tcase(suite, tcase);
	return suite;
}
