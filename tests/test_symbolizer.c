// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/symbolizer.h"

#include "resolver/cleanup.h"
#include "resolver/elffile.h"
#include "tests/tests.h"
#include "tests/workdir.h"

#include <fcntl.h>
#include <string.h>

static const char source[] = "#include <stdlib.h>\n"
			     "void *volatile sink;\n"
			     "static inline __attribute__((always_inline)) void leaf(int n)\n"
			     "{ sink = malloc(n); }\n"
			     "__attribute__((noinline)) void outer(int n)\n"
			     "{ leaf(n); }\n"
			     "int main(int argc, char **argv) { outer(argc); return 0; }\n";

static struct workdir dir;
static struct symbolizer *symbolizer;

static void set_up(void)
{
	workdir_create(&dir);
	workdir_write_text(&dir, "a.c", source);
	workdir_run(&dir, "gcc -O2 -g -Wl,--build-id=0x0123456789 -o a a.c && mkdir bin "
			  "empty && cp a bin");
	assert_ok(symbolizer_create(NULL, &symbolizer));
}

static void tear_down(void)
{
	symbolizer_free(symbolizer);
	workdir_remove(&dir);
}

static uint32_t add(const struct symbolizer_module *module)
{
	uint32_t ret;

	assert_ok(symbolizer_add(symbolizer, module, &ret));
	return ret;
}

/* A file in the directory, which is the target's root. */
static uint32_t add_path(const char *path)
{
	return add(&(struct symbolizer_module){.path = path, .fd = -1, .root = dir.path});
}

static struct symbolizer_info info_of(uint32_t module)
{
	struct symbolizer_info info;

	assert_ok(symbolizer_module_info(symbolizer, module, &info));
	return info;
}

/* The address of the first call in a function of the unstripped file. */
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

static size_t resolve(uint32_t module, uint64_t vaddr, const struct symbolizer_frame **ret)
{
	size_t count;

	assert_ok(symbolizer_resolve(symbolizer, module, vaddr, ret, &count));
	ck_assert_uint_ge(count, 1);
	return count;
}

static void check_both_frames(uint32_t module)
{
	const struct symbolizer_frame *frame;

	ck_assert_uint_eq(resolve(module, call_in("a", "outer"), &frame), 2);
	ck_assert_str_eq(frame[0].function, "leaf");
	ck_assert_uint_eq(frame[0].line, 4);
	ck_assert(frame[0].inlined);
	ck_assert_str_eq(frame[1].function, "outer");
	ck_assert_uint_eq(frame[1].line, 6);
	ck_assert(!frame[1].inlined);
	ck_assert_ptr_eq(frame[0].file, frame[1].file);
}

START_TEST(names_functions_files_and_inlined_calls)
{
	uint32_t module = add_path("/a");
	struct symbolizer_info info = info_of(module);

	check_both_frames(module);
	ck_assert_str_eq(info.path, "/a");
	ck_assert_str_eq(info.build_id, "0123456789");
	ck_assert_int_eq(info.source, SYMBOLIZER_SYMTAB);
	ck_assert(info.lines);
	ck_assert_ptr_null(info.why_no_lines);
	ck_assert_ptr_null(info.why_no_names);
	ck_assert_ptr_null(info.debug_file);
}
END_TEST

START_TEST(gives_whole_file_names)
{
	CLEANUP(freep) char *expected = NULL;
	const struct symbolizer_frame *frame;

	ck_assert_int_gt(asprintf(&expected, "%s/a.c", dir.path), 0);
	resolve(add_path("/a"), call_in("a", "outer"), &frame);
	ck_assert_str_eq(frame[0].file, expected);
}
END_TEST

START_TEST(keeps_its_answers)
{
	uint32_t module = add_path("/a");
	const struct symbolizer_frame *first, *again;
	uint64_t call = call_in("a", "outer");

	resolve(module, call, &first);
	resolve(module, call, &again);
	ck_assert_ptr_eq(first, again);
}
END_TEST

START_TEST(reads_a_file_that_was_deleted)
{
	CLEANUP(closep) int fd = workdir_open(&dir, "bin/a");
	uint32_t module;

	workdir_run(&dir, "rm bin/a");
	module = add(&(struct symbolizer_module){.path = "/bin/a", .fd = fd, .root = dir.path});
	check_both_frames(module);
}
END_TEST

START_TEST(refuses_a_file_that_was_replaced)
{
	static const uint8_t loaded[] = {0xaa, 0xbb};
	const struct symbolizer_frame *frame;
	struct symbolizer_info info;
	uint32_t module = add(&(struct symbolizer_module){.path = "/a",
							  .fd = -1,
							  .root = dir.path,
							  .build_id = loaded,
							  .build_id_size = sizeof(loaded)});

	ck_assert_uint_eq(resolve(module, call_in("a", "outer"), &frame), 1);
	ck_assert_ptr_null(frame[0].function);
	info = info_of(module);
	ck_assert_int_eq(info.source, SYMBOLIZER_NONE);
	ck_assert_str_eq(info.build_id, "aabb");
	ck_assert_ptr_nonnull(strstr(info.why_no_names, "replaced"));
	ck_assert_ptr_nonnull(strstr(info.why_no_lines, "0123456789"));
}
END_TEST

START_TEST(accepts_the_build_id_that_the_file_has)
{
	static const uint8_t loaded[] = {0x01, 0x23, 0x45, 0x67, 0x89};

	check_both_frames(add(&(struct symbolizer_module){.path = "/a",
							  .fd = -1,
							  .root = dir.path,
							  .build_id = loaded,
							  .build_id_size = sizeof(loaded)}));
}
END_TEST

START_TEST(explains_a_file_that_is_missing)
{
	const struct symbolizer_frame *frame;
	uint32_t module = add_path("/nowhere/a");
	struct symbolizer_info info = info_of(module);

	ck_assert_int_eq(info.source, SYMBOLIZER_NONE);
	ck_assert_ptr_nonnull(strstr(info.why_no_names, "/nowhere/a"));
	ck_assert_ptr_nonnull(strstr(info.why_no_lines, "/nowhere/a"));
	ck_assert_uint_eq(resolve(module, 0x1234, &frame), 1);
	ck_assert_ptr_null(frame[0].function);
	ck_assert_ptr_null(frame[0].file);
}
END_TEST

START_TEST(explains_a_file_that_is_not_elf)
{
	struct symbolizer_info info = info_of(add_path("/a.c"));

	ck_assert_int_eq(info.source, SYMBOLIZER_NONE);
	ck_assert_ptr_nonnull(strstr(info.why_no_names, "ELF"));
}
END_TEST

START_TEST(uses_the_debug_file_of_a_stripped_file)
{
	struct symbolizer_info info;
	uint32_t module;

	workdir_run(&dir, "mkdir -p usr/lib/debug/.build-id/01 && objcopy --only-keep-debug a "
			  "usr/lib/debug/.build-id/01/23456789.debug && strip bin/a");
	module = add_path("/bin/a");
	check_both_frames(module);
	info = info_of(module);
	ck_assert_int_eq(info.source, SYMBOLIZER_DEBUGFILE);
	ck_assert_str_eq(info.debug_file, "/usr/lib/debug/.build-id/01/23456789.debug");
}
END_TEST

START_TEST(does_without_debug_files_and_lines_when_told)
{
	struct symbolizer_options options = {.no_debug_files = true, .no_lines = true};
	const struct symbolizer_frame *frame;
	uint32_t module;

	symbolizer_free(symbolizer);
	assert_ok(symbolizer_create(&options, &symbolizer));
	module = add_path("/a");
	ck_assert_uint_eq(resolve(module, call_in("a", "outer"), &frame), 1);
	ck_assert_str_eq(frame[0].function, "outer");
	ck_assert_ptr_null(frame[0].file);
	ck_assert_ptr_nonnull(info_of(module).why_no_lines);
}
END_TEST

START_TEST(explains_a_stripped_file)
{
	const struct symbolizer_frame *frame;
	struct symbolizer_info info;
	uint32_t module;

	workdir_run(&dir, "strip bin/a");
	module = add_path("/bin/a");
	resolve(module, call_in("a", "outer"), &frame);
	ck_assert_ptr_null(frame[0].function);
	info = info_of(module);
	ck_assert_ptr_nonnull(strstr(info.why_no_names, "no debug file found"));
	ck_assert_ptr_nonnull(info.why_no_lines);
}
END_TEST

START_TEST(reads_symbols_embedded_in_debugdata)
{
	const struct symbolizer_frame *frame;
	uint32_t module;

	/* As Fedora's packages have it: the symbol table alone, packed by xz. */
	workdir_run(&dir, "objcopy -S --keep-symbol=outer a mini && "
			  "objcopy --only-keep-debug mini && xz -k mini && strip bin/a && "
			  "objcopy --add-section .gnu_debugdata=mini.xz bin/a");
	module = add_path("/bin/a");
	ck_assert_uint_eq(resolve(module, call_in("a", "outer"), &frame), 1);
	ck_assert_str_eq(frame[0].function, "outer");
	ck_assert_int_eq(info_of(module).source, SYMBOLIZER_DEBUGDATA);
	ck_assert_ptr_null(info_of(module).why_no_names);
}
END_TEST

START_TEST(survives_damaged_debugdata)
{
	struct symbolizer_info info;

	workdir_run(&dir, "head -c 1000 /dev/zero > zeros && xz -k zeros && "
			  "head -c 60 zeros.xz > cut && strip bin/a && "
			  "objcopy --add-section .gnu_debugdata=cut bin/a");
	info = info_of(add_path("/bin/a"));
	ck_assert_ptr_nonnull(strstr(info.why_no_names, ".gnu_debugdata"));
}
END_TEST

START_TEST(reads_sections_packed_by_zstd)
{
	workdir_run(&dir, "objcopy --compress-debug-sections=zstd bin/a");
	check_both_frames(add_path("/bin/a"));
}
END_TEST

START_TEST(demangles_rust_of_both_manglings)
{
	static const struct {
		const char *command, *function;
	} mangling[] = {
		{"RUSTC_BOOTSTRAP=1 rustc -Z unstable-options -C symbol-mangling-version=legacy",
		 "r::Thing::fill"},
		{"rustc -C symbol-mangling-version=v0", "<r::Thing>::fill"},
	};
	const struct symbolizer_frame *frame;
	size_t count;
	uint32_t module;

	workdir_write_text(&dir, "r.rs",
			   "pub struct Thing { v: Vec<u64> }\n"
			   "impl Thing {\n"
			   "    #[inline(never)] pub fn fill(&mut self, n: u64) {\n"
			   "        self.v.push(std::hint::black_box(n));\n"
			   "    }\n"
			   "}\n"
			   "fn main() {\n"
			   "    let mut t = Thing { v: Vec::new() };\n"
			   "    t.fill(std::env::args().count() as u64);\n"
			   "    std::hint::black_box(&t.v);\n"
			   "}\n");
	workdir_run(&dir, "%s -O -g -o r r.rs", mangling[_i].command);
	module = add_path("/r");
	count = resolve(module, call_in("r", "[^>]*4fill[^>]*"), &frame);
	ck_assert_str_eq(frame[count - 1].function, mangling[_i].function);
	ck_assert_ptr_nonnull(frame[count - 1].file);
	ck_assert_uint_eq(frame[count - 1].line, 4);
	ck_assert_uint_ge(count, 2);
	ck_assert_ptr_nonnull(strstr(frame[count - 2].function, "Vec"));
	ck_assert_ptr_nonnull(strstr(frame[count - 2].function, "push"));
}
END_TEST

START_TEST(demangles_cxx)
{
	const struct symbolizer_frame *frame;

	workdir_write_text(
		&dir, "c.cc",
		"#include <vector>\n"
		"namespace space { __attribute__((noinline)) void fill(std::vector<int> "
		"&v, int n) { v.push_back(n); } }\n"
		"int main(int argc, char **) { std::vector<int> v; space::fill(v, argc); "
		"return v.size(); }\n");
	workdir_run(&dir, "g++ -O0 -g -o c c.cc");
	ck_assert_uint_eq(
		resolve(add_path("/c"), call_in("c", "_ZN5space4fillERSt6vectorIiSaIiEEi"), &frame),
		1);
	ck_assert_str_eq(frame[0].function,
			 "space::fill(std::vector<int, std::allocator<int> >&, int)");
	ck_assert_str_eq(frame[0].linkage_name, "_ZN5space4fillERSt6vectorIiSaIiEEi");
	ck_assert_uint_eq(frame[0].line, 2);
}
END_TEST

START_TEST(prefers_the_name_that_everybody_calls)
{
	const struct symbolizer_frame *frame;

	workdir_write_text(&dir, "b.c",
			   "#include <stdlib.h>\n"
			   "void *volatile sink;\n"
			   "void __internal(int n) { sink = malloc(n); sink = malloc(n); }\n"
			   "void called(int n) __attribute__((alias(\"__internal\")));\n"
			   "__asm__(\".symver called, called@VERSION_1.0\");\n");
	workdir_write_text(&dir, "b.map", "VERSION_1.0 { global: called; local: *; };\n");
	workdir_run(&dir, "gcc -O2 -g -fPIC -shared -Wl,--version-script=b.map -o b b.c");
	resolve(add_path("/b"), call_in("b", "[^>]*(internal|called)[^>]*"), &frame);
	ck_assert_str_eq(frame[0].function, "called");
	ck_assert_str_eq(frame[0].linkage_name, "called");
}
END_TEST

START_TEST(rejects_a_module_that_was_never_added)
{
	const struct symbolizer_frame *frame;
	struct symbolizer_info info;
	size_t count;

	assert_fails(symbolizer_resolve(symbolizer, 7, 0, &frame, &count), ERROR_NOT_FOUND);
	assert_fails(symbolizer_module_info(symbolizer, 7, &info), ERROR_NOT_FOUND);
}
END_TEST

START_TEST(names_every_source)
{
	for (int i = SYMBOLIZER_NONE; i <= SYMBOLIZER_DEBUGFILE; i++)
		ck_assert_uint_gt(strlen(symbolizer_source_name(i)), 0);
}
END_TEST

/* ---- against addr2line */

struct comparison {
	struct elffile *names; /* the file with the symbols, for aliases */
	uint32_t module;
	size_t addresses, differences;
};

/* Whether a symbol of that name, whatever its version, is at @value; any value if 0. */
static uint64_t find_value(struct elffile *file, const char *name, uint64_t value)
{
	size_t count = elffile_symbol_count(file, ELFFILE_SYMTAB), size = strlen(name);
	struct elffile_symbol symbol;

	for (size_t i = 0; i < count; i++) {
		if (elffile_symbol(file, ELFFILE_SYMTAB, i, &symbol) &&
		    strncmp(symbol.name, name, size) == 0 &&
		    (symbol.name[size] == '\0' || symbol.name[size] == '@') &&
		    (!value || symbol.value == value))
			return symbol.value;
	}
	return 0;
}

/* Where a file has several names for one address either is right. */
static bool same_function(struct elffile *file, const char *theirs,
			  const struct symbolizer_frame *ours)
{
	uint64_t value;

	if (!ours->function)
		return strcmp(theirs, "??") == 0;
	if (strcmp(theirs, ours->function) == 0 ||
	    (ours->linkage_name && strcmp(theirs, ours->linkage_name) == 0))
		return true;
	value = find_value(file, theirs, 0);
	return value && (find_value(file, ours->function, value) ||
			 (ours->linkage_name && find_value(file, ours->linkage_name, value)));
}

/*
 * FILE:LINE or FILE:LINE (discriminator N); LINE is ? where it is unknown. Files
 * are not compared: addr2line 2.40 takes file 1 of DWARF 5 for the unit's main
 * file, which it need not be.
 */
static bool same_line(const char *theirs, const struct symbolizer_frame *ours)
{
	const char *colon = strrchr(theirs, ':');

	ck_assert_ptr_nonnull(colon);
	return strtoul(colon + 1, NULL, 10) == ours->line;
}

/* The frames of one address: pairs of lines up to the next address. */
static char *compare_address(struct comparison *comparison, uint64_t vaddr, char *at)
{
	const struct symbolizer_frame *frame;
	size_t count = resolve(comparison->module, vaddr, &frame), seen = 0;
	bool same = true;

	while (at && strncmp(at, "0x", 2) != 0) {
		char *function = strsep(&at, "\n"), *place = strsep(&at, "\n");

		if (!place)
			break;
		same = same && seen < count &&
		       same_function(comparison->names, function, &frame[seen]) &&
		       same_line(place, &frame[seen]);
		seen++;
	}
	comparison->addresses++;
	if (!same || seen != count) {
		comparison->differences++;
		fprintf(stderr, "%#lx: %zu frames, addr2line has %zu; ours: %s %s:%u\n",
			(unsigned long)vaddr, count, seen, frame[0].function, frame[0].file,
			frame[0].line);
	}
	return at;
}

/*
 * Ask addr2line and the symbolizer about every @step-th call of @code; @debug
 * is the file that has the debug info.
 */
static struct comparison compare(const char *code, const char *debug, int step)
{
	CLEANUP(freep)
	char *text =
		workdir_output(&dir,
			       "objdump -d --no-show-raw-insn -j .text '%s' | awk -F: "
			       "'/^ +[0-9a-f]+:.*call/ && n++ %% %d == 0 {print $1}' > calls && "
			       "addr2line -a -f -i -e '%s' < calls",
			       code, step, debug);
	struct comparison comparison = {0};
	int fd = open(debug, O_RDONLY | O_CLOEXEC);
	char *at = text;

	assert_ok(elffile_open_fd(fd, debug, &comparison.names));
	close(fd);
	comparison.module = add(&(struct symbolizer_module){.path = code, .fd = -1});
	while (at && strncmp(at, "0x", 2) == 0) {
		uint64_t vaddr = strtoull(strsep(&at, "\n"), NULL, 16);

		at = compare_address(&comparison, vaddr, at);
	}
	elffile_free(comparison.names);
	return comparison;
}

START_TEST(agrees_with_addr2line_on_this_program)
{
	CLEANUP(freep) char *path = tests_build_path("tests/run");
	struct comparison comparison = compare(path, path, 2);

	ck_assert_uint_ge(comparison.addresses, 1000);
	ck_assert_uint_eq(comparison.differences, 0);
}
END_TEST

/* A debug file of a distribution. */
START_TEST(agrees_with_addr2line_on_libc)
{
	static const char libc[] = "/lib/x86_64-linux-gnu/libc.so.6";
	uint32_t module = add(&(struct symbolizer_module){.path = libc, .fd = -1});
	struct symbolizer_info info = info_of(module);
	struct comparison comparison;

	ck_assert_msg(info.debug_file != NULL, "libc6-dbg is not installed: %s", info.why_no_lines);
	comparison = compare(libc, info.debug_file, 5);
	ck_assert_uint_ge(comparison.addresses, 1000);
	ck_assert_uint_eq(comparison.differences, 0);
}
END_TEST

Suite *symbolizer_suite(void)
{
	Suite *suite = suite_create("symbolizer");
	TCase *tcase = tcase_create("resolve");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, names_functions_files_and_inlined_calls);
	tcase_add_test(tcase, gives_whole_file_names);
	tcase_add_test(tcase, keeps_its_answers);
	tcase_add_test(tcase, reads_a_file_that_was_deleted);
	tcase_add_test(tcase, refuses_a_file_that_was_replaced);
	tcase_add_test(tcase, accepts_the_build_id_that_the_file_has);
	tcase_add_test(tcase, explains_a_file_that_is_missing);
	tcase_add_test(tcase, explains_a_file_that_is_not_elf);
	tcase_add_test(tcase, uses_the_debug_file_of_a_stripped_file);
	tcase_add_test(tcase, does_without_debug_files_and_lines_when_told);
	tcase_add_test(tcase, explains_a_stripped_file);
	tcase_add_test(tcase, reads_symbols_embedded_in_debugdata);
	tcase_add_test(tcase, survives_damaged_debugdata);
	tcase_add_test(tcase, reads_sections_packed_by_zstd);
	tcase_add_loop_test(tcase, demangles_rust_of_both_manglings, 0, 2);
	tcase_add_test(tcase, demangles_cxx);
	tcase_add_test(tcase, prefers_the_name_that_everybody_calls);
	tcase_add_test(tcase, rejects_a_module_that_was_never_added);
	tcase_add_test(tcase, names_every_source);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("addr2line");
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, agrees_with_addr2line_on_this_program);
	tcase_add_test(tcase, agrees_with_addr2line_on_libc);
	suite_add_tcase(suite, tcase);
	return suite;
}
