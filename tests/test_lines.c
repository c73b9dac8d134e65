// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/lines.h"

#include "resolver/cleanup.h"
#include "tests/tests.h"
#include "tests/workdir.h"

#include <string.h>

#define INLINE "static inline __attribute__((always_inline)) "
#define APART  "__attribute__((noinline)) "

/* The lines that matter end in a mark, so that no number is written down. */
static const char header[] = INLINE "void *leaf(unsigned long size)\n"
				    "{\n"
				    "	return malloc(size); /* @leaf */\n"
				    "}\n";

static const char source[] = "#include <stdlib.h>\n"
			     "#include \"leaf.h\"\n"
			     "void *volatile sink;\n" INLINE "void *middle(unsigned long size)\n"
			     "{\n"
			     "	return leaf(size + 1); /* @middle */\n"
			     "}\n" APART "void *outer(unsigned long size)\n"
			     "{\n"
			     "	sink = middle(size * 2); /* @outer */\n"
			     "	return sink;\n"
			     "}\n"
			     "int main(int argc, char **argv)\n"
			     "{\n"
			     "	outer((unsigned long)argc); /* @main */\n"
			     "	return 0;\n"
			     "}\n";

static struct workdir dir;
static struct elffile *file, *alt;
static struct lines *lines;

static void set_up(void)
{
	workdir_create(&dir);
	workdir_run(&dir, "mkdir include");
	workdir_write_text(&dir, "include/leaf.h", header);
	workdir_write_text(&dir, "a.c", source);
}

static void tear_down(void)
{
	lines_free(lines);
	elffile_free(file);
	elffile_free(alt);
	workdir_remove(&dir);
}

static struct elffile *open_file(const char *name)
{
	CLEANUP(closep) int fd = workdir_open(&dir, name);
	struct elffile *ret;

	assert_ok(elffile_open_fd(fd, name, &ret));
	return ret;
}

static void load(const char *name)
{
	file = open_file(name);
	assert_ok(lines_create(file, NULL, &lines));
}

/* The line that a mark stands on. */
static unsigned int line_of(const char *text, const char *mark)
{
	const char *at = strstr(text, mark);
	unsigned int line = 1;

	ck_assert_ptr_nonnull(at);
	while (at-- > text)
		line += *at == '\n';
	return line;
}

/* Address of the first call in a function (a pattern), by the disassembler. */
static uint64_t call_in(const char *name, const char *function)
{
	CLEANUP(freep)
	char *text =
		workdir_output(&dir,
			       "objdump -d --no-show-raw-insn %s | awk '/^[0-9a-f]+ <%s>:/{on=1} "
			       "on && /call/{sub(\":\", \"\", $1); print $1; exit}'",
			       name, function);
	uint64_t address = strtoull(text, NULL, 16);

	ck_assert_msg(address != 0, "no call in %s", function);
	return address;
}

static void check_frame(const struct lines_frame *frame, const char *name, const char *base,
			unsigned int line, bool inlined)
{
	const char *slash;

	ck_assert_ptr_nonnull(frame->name);
	ck_assert_str_eq(frame->name, name);
	ck_assert_ptr_nonnull(frame->file);
	slash = strrchr(frame->file, '/');
	ck_assert_str_eq(slash ? slash + 1 : frame->file, base);
	ck_assert_uint_eq(frame->line, line);
	ck_assert_int_eq(frame->inlined, inlined);
}

static void check_three_frames(const char *name)
{
	struct lines_frame frame[LINES_MAX_FRAMES];
	/* With -flto it becomes outer.isra.0. */
	size_t count = lines_find(lines, call_in(name, "outer[.a-z0-9]*"), frame);

	ck_assert_uint_eq(count, 3);
	check_frame(&frame[0], "leaf", "leaf.h", line_of(header, "@leaf"), true);
	check_frame(&frame[1], "middle", "a.c", line_of(source, "@middle"), true);
	check_frame(&frame[2], "outer", "a.c", line_of(source, "@outer"), false);
}

static const char *const builds[] = {
	"gcc -O2 -gdwarf-2 -gno-strict-dwarf -Iinclude -o a a.c",
	"gcc -O2 -gdwarf-3 -Iinclude -o a a.c",
	"gcc -O2 -gdwarf-4 -Iinclude -o a a.c",
	"gcc -O2 -gdwarf-5 -Iinclude -o a a.c",
	"gcc -O2 -gdwarf-5 -gz=zlib -Iinclude -o a a.c",
	"gcc -O2 -gdwarf-4 -gz=zlib-gnu -Iinclude -o a a.c",
	"gcc -O2 -gdwarf-4 -gsplit-dwarf -Iinclude -c a.c && gcc -o a a.o",
	"gcc -O2 -gdwarf-5 -gsplit-dwarf -Iinclude -c a.c && gcc -o a a.o",
	"gcc -O2 -gdwarf-5 -flto -Iinclude -o a a.c",
	"gcc -O2 -gdwarf-5 -ffunction-sections -Wl,--gc-sections -Iinclude -o a a.c",
	"gcc -O2 -gdwarf-5 -no-pie -Iinclude -o a a.c",
	"gcc -O2 -gdwarf-5 -Iinclude -o b a.c && objcopy -R .debug_aranges b a",
	"gcc -O2 -gdwarf-4 -Iinclude -o b a.c && dwz -o a b",
	"gcc -O2 -gdwarf-5 -Iinclude -o bin a.c && objcopy --only-keep-debug bin a",
	"clang -O2 -gdwarf-4 -Iinclude -o a a.c",
	"clang -O2 -gdwarf-5 -Iinclude -o a a.c",
	"clang -O2 -gdwarf-5 -gsplit-dwarf -Iinclude -c a.c && gcc -o a a.o",
};

START_TEST(finds_inlined_calls_of_every_format)
{
	/* A debug file has no code to disassemble. */
	const char *code;

	workdir_run(&dir, "%s", builds[_i]);
	code = strstr(builds[_i], "bin") ? "bin" : "a";
	load("a");
	check_three_frames(code);
}
END_TEST

START_TEST(finds_the_function_without_split_file)
{
	struct lines_frame frame[LINES_MAX_FRAMES];

	workdir_run(&dir, "gcc -O2 -gdwarf-5 -gsplit-dwarf -Iinclude -c a.c && gcc -o a a.o && "
			  "rm *.dwo");
	load("a");
	/* The skeleton has the line of the innermost call and nothing else. */
	ck_assert_uint_eq(lines_find(lines, call_in("a", "outer"), frame), 1);
	ck_assert_uint_eq(frame[0].line, line_of(header, "@leaf"));
	ck_assert_ptr_null(frame[0].name);
}
END_TEST

START_TEST(does_not_open_a_fifo_as_split_file)
{
	struct lines_frame frame[LINES_MAX_FRAMES];

	workdir_run(&dir, "gcc -O2 -gdwarf-5 -gsplit-dwarf -Iinclude -c a.c && gcc -o a a.o && "
			  "rm *.dwo && mkfifo a.dwo");
	load("a");
	ck_assert_uint_eq(lines_find(lines, call_in("a", "outer"), frame), 1);
}
END_TEST

START_TEST(gives_the_directory_of_relative_names)
{
	struct lines_frame frame[LINES_MAX_FRAMES];

	workdir_run(&dir, "gcc -O2 -gdwarf-5 -Iinclude -o a a.c");
	load("a");
	ck_assert_uint_eq(lines_find(lines, call_in("a", "outer"), frame), 3);
	ck_assert_str_eq(frame[0].file, "include/leaf.h");
	ck_assert_str_eq(frame[0].directory, dir.path);
}
END_TEST

START_TEST(finds_calls_inlined_from_another_unit)
{
	struct lines_frame frame[LINES_MAX_FRAMES];
	static const char b[] = "#include <stdlib.h>\n"
				"void *helper(unsigned long size)\n"
				"{\n"
				"	return malloc(size + 8); /* @helper */\n"
				"}\n";
	static const char a[] = "void *helper(unsigned long size);\n"
				"void *volatile sink;\n" APART "int outer(int n)\n"
				"{\n"
				"	sink = helper(n); /* @outer */\n"
				"	return n;\n"
				"}\n"
				"int main(int argc, char **argv) { return outer(argc); }\n";

	workdir_write_text(&dir, "a.c", a);
	workdir_write_text(&dir, "b.c", b);
	workdir_run(&dir, "gcc -O2 -g -flto -c a.c && gcc -O2 -g -flto -c b.c && "
			  "gcc -O2 -g -flto -o a a.o b.o");
	load("a");
	ck_assert_uint_eq(lines_find(lines, call_in("a", "outer"), frame), 2);
	check_frame(&frame[0], "helper", "b.c", line_of(b, "@helper"), true);
	check_frame(&frame[1], "outer", "a.c", line_of(a, "@outer"), false);
}
END_TEST

START_TEST(reads_what_dwz_moved_to_a_common_file)
{
	workdir_run(&dir, "gcc -O2 -gdwarf-4 -Iinclude -o a a.c && cp a b && "
			  "dwz -m common.debug a b");
	file = open_file("a");
	alt = open_file("common.debug");
	assert_ok(lines_create(file, alt, &lines));
	check_three_frames("a");
}
END_TEST

START_TEST(gives_linkage_names_and_scopes)
{
	struct lines_frame frame[LINES_MAX_FRAMES];

	workdir_write_text(
		&dir, "a.cc",
		"#include <cstdlib>\n"
		"void *volatile sink;\n"
		"namespace space { namespace {\n"
		"struct Thing { " APART " void make(int n) { sink = malloc(n); } };\n"
		"} extern \"C\" " APART " void plain(int n) { sink = malloc(n); }\n" APART
		" void linked(int n) { sink = malloc(n); }\n"
		"}\n"
		"int main(int argc, char **argv)\n"
		"{ space::Thing t; t.make(argc); space::plain(argc); space::linked(argc); }\n");
	workdir_run(&dir, "g++ -O1 -g -o a a.cc");
	load("a");
	ck_assert_uint_eq(
		lines_find(lines, call_in("a", "_ZN5space12_GLOBAL__N_15Thing4makeEi"), frame), 1);
	/* Names of an anonymous namespace have no linkage. */
	ck_assert_ptr_null(frame[0].linkage_name);
	ck_assert_str_eq(frame[0].name, "make");
	ck_assert_str_eq(frame[0].scope, "space::(anonymous namespace)::Thing");
	ck_assert_uint_eq(lines_find(lines, call_in("a", "_ZN5space6linkedEi"), frame), 1);
	ck_assert_str_eq(frame[0].linkage_name, "_ZN5space6linkedEi");
	ck_assert_ptr_null(frame[0].scope);
	ck_assert_uint_eq(lines_find(lines, call_in("a", "plain"), frame), 1);
	ck_assert_ptr_null(frame[0].linkage_name);
	ck_assert_str_eq(frame[0].name, "plain");
	ck_assert_str_eq(frame[0].scope, "space");
}
END_TEST

START_TEST(finds_functions_in_functions)
{
	struct lines_frame frame[LINES_MAX_FRAMES];
	static const char nested[] = "#include <stdlib.h>\n"
				     "void *volatile sink;\n"
				     "int main(int argc, char **argv)\n"
				     "{\n"
				     "	" APART "void nested(int n) {\n"
				     "		sink = malloc(n + argc); /* @nested */\n"
				     "	}\n"
				     "	nested(3);\n"
				     "	return 0;\n"
				     "}\n";

	workdir_write_text(&dir, "a.c", nested);
	workdir_run(&dir, "gcc -O1 -g -o a a.c");
	load("a");
	ck_assert_uint_eq(lines_find(lines, call_in("a", "nested[.0-9]*"), frame), 1);
	check_frame(&frame[0], "nested", "a.c", line_of(nested, "@nested"), false);
}
END_TEST

START_TEST(attributes_a_call_over_many_lines_by_its_last_byte)
{
	struct lines_frame frame[LINES_MAX_FRAMES];
	static const char long_call[] = "#include <stdlib.h>\n"
					"void *volatile sink;\n" APART "void *get(int a, int b)\n"
					"{\n"
					"	return malloc(a + b);\n"
					"}\n"
					"int main(int argc, char **argv)\n"
					"{\n"
					"	sink = get( /* @call */\n"
					"		argc * 3,\n"
					"		argc + 7);\n"
					"	sink = 0; /* @next */\n"
					"	return 0;\n"
					"}\n";
	uint64_t call;

	workdir_write_text(&dir, "a.c", long_call);
	workdir_run(&dir, "gcc -O0 -g -o a a.c");
	load("a");
	call = call_in("a", "main");
	/* A call is five bytes long: its return address less 1. */
	ck_assert_uint_eq(lines_find(lines, call + 4, frame), 1);
	ck_assert_uint_eq(frame[0].line, line_of(long_call, "@call"));
}
END_TEST

START_TEST(finds_nothing_outside_the_code)
{
	struct lines_frame frame[LINES_MAX_FRAMES];

	workdir_run(&dir, "gcc -O2 -g -Iinclude -o a a.c");
	load("a");
	ck_assert_uint_eq(lines_find(lines, 0, frame), 0);
	ck_assert_uint_eq(lines_find(lines, 1, frame), 0);
	ck_assert_uint_eq(lines_find(lines, UINT64_MAX, frame), 0);
}
END_TEST

START_TEST(says_when_there_is_no_debug_info)
{
	workdir_run(&dir, "gcc -O2 -g0 -Iinclude -o a a.c");
	file = open_file("a");
	assert_fails(lines_create(file, NULL, &lines), ERROR_NOT_FOUND);
}
END_TEST

static uint8_t *read_bytes(const char *name, size_t *size_ret)
{
	struct elffile *whole = open_file(name);
	uint8_t *data = malloc(elffile_size(whole));

	*size_ret = elffile_size(whole);
	assert_ok(elffile_read(whole, 0, data, *size_ret));
	elffile_free(whole);
	return data;
}

/* One byte in 5 of each section is turned over, one at a time. */
START_TEST(survives_damaged_debug_info)
{
	static const char *const sections[] = {".debug_info", ".debug_abbrev", ".debug_line",
					       ".debug_rnglists", ".debug_line_str"};
	CLEANUP(freep) uint8_t *data = NULL;
	const struct elffile_section *section;
	struct lines_frame frame[LINES_MAX_FRAMES];
	uint64_t call;
	size_t size;

	workdir_run(&dir, "gcc -O2 -gdwarf-5 -ffunction-sections -Iinclude -o a a.c");
	call = call_in("a", "outer");
	data = read_bytes("a", &size);
	file = open_file("a");
	section = elffile_section(file, sections[_i]);
	ck_assert_ptr_nonnull(section);
	for (uint64_t at = section->offset; at < section->offset + section->size; at += 5) {
		uint8_t *copy = malloc(size);
		struct elffile *damaged;
		struct lines *found;
		struct error *err;

		memcpy(copy, data, size);
		copy[at] ^= 0xff;
		assert_ok(elffile_open_memory(copy, size, "damaged", &damaged));
		err = lines_create(damaged, NULL, &found);
		if (!err) {
			ck_assert_uint_le(lines_find(found, call, frame), LINES_MAX_FRAMES);
			lines_free(found);
		}
		error_free(err);
		elffile_free(damaged);
	}
}
END_TEST

Suite *lines_suite(void)
{
	Suite *suite = suite_create("lines");
	TCase *tcase = tcase_create("find");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, finds_inlined_calls_of_every_format, 0,
			    sizeof(builds) / sizeof(builds[0]));
	tcase_add_test(tcase, finds_the_function_without_split_file);
	tcase_add_test(tcase, does_not_open_a_fifo_as_split_file);
	tcase_add_test(tcase, gives_the_directory_of_relative_names);
	tcase_add_test(tcase, finds_calls_inlined_from_another_unit);
	tcase_add_test(tcase, reads_what_dwz_moved_to_a_common_file);
	tcase_add_test(tcase, gives_linkage_names_and_scopes);
	tcase_add_test(tcase, finds_functions_in_functions);
	tcase_add_test(tcase, attributes_a_call_over_many_lines_by_its_last_byte);
	tcase_add_test(tcase, finds_nothing_outside_the_code);
	tcase_add_test(tcase, says_when_there_is_no_debug_info);
	tcase_add_loop_test(tcase, survives_damaged_debug_info, 0, 5);
	suite_add_tcase(suite, tcase);
	return suite;
}
