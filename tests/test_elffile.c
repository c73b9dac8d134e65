// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/elffile.h"

#include "resolver/cleanup.h"
#include "resolver/symbols.h"
#include "resolver/zdebug.h"
#include "tests/tests.h"
#include "tests/workdir.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static const char source[] = "int counter = 3;\n"
			     "static int twice(int n) { return n * 2; }\n"
			     "int main(int argc, char **argv) { return twice(argc) + counter; }\n";

static struct workdir dir;

/* Built once; the tests only read it. */
static void build(void)
{
	workdir_create(&dir);
	workdir_write_text(&dir, "a.c", source);
	workdir_run(&dir, "gcc -g -O0 -Wl,--build-id=0x0123456789abcdef -o a a.c");
}

static void clean(void)
{
	workdir_remove(&dir);
}

static struct elffile *open_file(const char *name)
{
	CLEANUP(closep) int fd = workdir_open(&dir, name);
	struct elffile *file;

	assert_ok(elffile_open_fd(fd, name, &file));
	return file;
}

static uint8_t *read_bytes(const char *name, size_t *size_ret)
{
	CLEANUP(closep) int fd = workdir_open(&dir, name);
	struct stat info;
	uint8_t *data;

	ck_assert_int_eq(fstat(fd, &info), 0);
	data = malloc((size_t)info.st_size);
	ck_assert_int_eq(read(fd, data, (size_t)info.st_size), info.st_size);
	*size_ret = (size_t)info.st_size;
	return data;
}

/* Ask for everything that there is, to its last byte; only not crashing counts. */
static void use_everything(struct elffile *file)
{
	const struct elffile_section *section;
	size_t count = elffile_sections(file, &section);
	struct elffile_bytes bytes;
	volatile uint8_t last;
	struct symbols *symbols;
	uint32_t crc;

	for (size_t i = 0; i < count; i++) {
		struct error *err = elffile_section_bytes(file, &section[i], &bytes);

		if (!err && bytes.size)
			last = bytes.data[bytes.size - 1];
		error_free(err);
	}
	(void)last;
	elffile_debuglink(file, &crc);
	elffile_debugaltlink(file, &bytes);
	assert_ok(symbols_create(&symbols));
	assert_ok(symbols_add(symbols, file, ELFFILE_SYMTAB));
	assert_ok(symbols_add(symbols, file, ELFFILE_DYNSYM));
	assert_ok(symbols_seal(symbols));
	for (uint64_t vaddr = 0; vaddr < 0x4000; vaddr += 16)
		symbols_find(symbols, vaddr);
	symbols_free(symbols);
}

/* Open a copy of @data with @name in messages; an error must name the file. */
static void try_bytes(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + !size);
	struct elffile *file;
	struct error *err;

	memcpy(copy, data, size);
	err = elffile_open_memory(copy, size, "damaged", &file);
	if (err) {
		ck_assert(error_is(err, ERROR_FORMAT) || error_is(err, ERROR_UNSUPPORTED));
		ck_assert_ptr_nonnull(strstr(error_message(err), "damaged"));
		error_free(err);
		return;
	}
	use_everything(file);
	elffile_free(file);
}

START_TEST(tells_type_machine_and_build_id)
{
	CLEANUP(elffile_freep) struct elffile *file = open_file("a");
	const uint8_t *build_id;

	ck_assert_uint_eq(elffile_type(file), ET_DYN);
	ck_assert_uint_eq(elffile_build_id(file, &build_id), 8);
	ck_assert_mem_eq(build_id, "\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
	ck_assert_str_eq(elffile_name(file), "a");
}
END_TEST

START_TEST(finds_the_build_id_without_section_headers)
{
	CLEANUP(freep) uint8_t *data = NULL;
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	const uint8_t *build_id;
	const struct elffile_segment *segment;
	size_t size;

	data = read_bytes("a", &size);
	memset(data + offsetof(Elf64_Ehdr, e_shoff), 0, 8);
	memset(data + offsetof(Elf64_Ehdr, e_shnum), 0, 4);
	assert_ok(elffile_open_memory(take(data), size, "a", &file));
	ck_assert_ptr_null(elffile_section(file, ".text"));
	ck_assert_uint_eq(elffile_build_id(file, &build_id), 8);
	ck_assert_uint_ge(elffile_segments(file, &segment), 4);
	ck_assert_uint_eq(elffile_symbol_count(file, ELFFILE_SYMTAB), 0);
}
END_TEST

START_TEST(converts_between_addresses_and_offsets)
{
	CLEANUP(elffile_freep) struct elffile *file = open_file("a");
	const struct elffile_segment *segment;
	size_t count = elffile_segments(file, &segment);
	uint64_t offset, vaddr;

	ck_assert_uint_ge(count, 4);
	for (size_t i = 0; i < count; i++) {
		uint64_t last = segment[i].filesz - 1;

		ck_assert(elffile_offset_of_vaddr(file, segment[i].vaddr + last, &offset));
		ck_assert_uint_eq(offset, segment[i].offset + last);
		ck_assert(elffile_vaddr_of_offset(file, segment[i].offset, &vaddr));
		ck_assert_uint_eq(vaddr, segment[i].vaddr);
	}
	ck_assert(!elffile_offset_of_vaddr(file, UINT64_MAX, &offset));
	ck_assert(!elffile_vaddr_of_offset(file, elffile_size(file), &vaddr));
}
END_TEST

START_TEST(says_that_zero_filled_memory_has_no_offset)
{
	CLEANUP(elffile_freep) struct elffile *file = open_file("a");
	const struct elffile_section *bss = elffile_section(file, ".bss");
	uint64_t offset;

	ck_assert_ptr_nonnull(bss);
	ck_assert(!elffile_offset_of_vaddr(file, bss->address + bss->size - 1, &offset));
}
END_TEST

START_TEST(reads_symbols)
{
	CLEANUP(elffile_freep) struct elffile *file = open_file("a");
	const struct elffile_section *text = elffile_section(file, ".text");
	size_t count = elffile_symbol_count(file, ELFFILE_SYMTAB);
	struct elffile_symbol symbol;
	int found = 0;

	for (size_t i = 0; i < count; i++) {
		ck_assert(elffile_symbol(file, ELFFILE_SYMTAB, i, &symbol));
		if (strcmp(symbol.name, "twice") != 0)
			continue;
		found++;
		ck_assert_uint_eq(symbol.type, STT_FUNC);
		ck_assert_uint_eq(symbol.bind, STB_LOCAL);
		ck_assert_uint_eq(symbol.section, text->index);
		ck_assert_uint_gt(symbol.size, 0);
	}
	ck_assert_int_eq(found, 1);
	ck_assert(!elffile_symbol(file, ELFFILE_SYMTAB, count, &symbol));
}
END_TEST

START_TEST(reads_a_deleted_file)
{
	CLEANUP(closep) int fd = -1;
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	struct elffile_bytes bytes;

	workdir_run(&dir, "cp a gone");
	fd = workdir_open(&dir, "gone");
	workdir_run(&dir, "rm gone");
	assert_ok(elffile_open_fd(fd, "gone", &file));
	assert_ok(elffile_section_bytes(file, elffile_section(file, ".text"), &bytes));
	ck_assert_uint_gt(bytes.size, 0);
}
END_TEST

START_TEST(reads_a_file_that_others_may_write)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	struct elffile_bytes bytes;

	workdir_run(&dir, "cp a shared && chmod 666 shared");
	file = open_file("shared");
	/* It is copied, so that what was read stays when the file is cut short. */
	assert_ok(elffile_section_bytes(file, elffile_section(file, ".debug_info"), &bytes));
	workdir_run(&dir, "truncate -s 100 shared");
	ck_assert_uint_eq(bytes.data[bytes.size - 1], 0);
	assert_fails(elffile_read(file, 200, (uint8_t[8]){0}, 8), ERROR_FORMAT);
}
END_TEST

static void check_same_section(const char *left, const char *right, const char *name)
{
	CLEANUP(elffile_freep) struct elffile *a = open_file(left);
	CLEANUP(elffile_freep) struct elffile *b = open_file(right);
	struct elffile_bytes x, y;

	assert_ok(elffile_section_bytes(a, elffile_section(a, name), &x));
	/* Twice: the first call leaves it decompressed. */
	assert_ok(elffile_section_bytes(b, elffile_section(b, name), &y));
	assert_ok(elffile_section_bytes(b, elffile_section(b, name), &y));
	ck_assert_uint_eq(x.size, y.size);
	ck_assert_mem_eq(x.data, y.data, x.size);
}

START_TEST(decompresses_zlib_sections)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;

	workdir_run(&dir, "objcopy --compress-debug-sections=zlib-gabi a zlib");
	file = open_file("zlib");
	ck_assert(elffile_section(file, ".debug_info")->compressed);
	check_same_section("a", "zlib", ".debug_info");
}
END_TEST

static const char *const compressions[] = {"zlib-gabi", "zstd"};

START_TEST(unfolds_compressed_sections)
{
	static const char *const names[] = {".debug_info", ".debug_line", ".symtab", ".comment"};
	CLEANUP(elffile_freep) struct elffile *packed = NULL;
	CLEANUP(elffile_freep) struct elffile *plain = NULL;
	CLEANUP(elffile_freep) struct elffile *original = open_file("a");
	struct elffile_bytes expected, bytes;

	workdir_run(&dir, "objcopy --compress-debug-sections=%s a packed", compressions[_i]);
	packed = open_file("packed");
	ck_assert(elffile_is_compressed(packed));
	ck_assert(!elffile_is_compressed(original));
	assert_ok(zdebug_unfold(packed, &plain));
	ck_assert(!elffile_is_compressed(plain));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_ok(elffile_section_bytes(plain, elffile_section(plain, names[i]), &bytes));
		assert_ok(elffile_section_bytes(original, elffile_section(original, names[i]),
						&expected));
		ck_assert_uint_gt(bytes.size, 0);
		ck_assert_uint_eq(bytes.size, expected.size);
		ck_assert_mem_eq(bytes.data, expected.data, bytes.size);
	}
}
END_TEST

START_TEST(does_not_decompress_zstd_by_itself)
{
	CLEANUP(elffile_freep) struct elffile *packed = NULL;
	struct elffile_bytes bytes;

	workdir_run(&dir, "objcopy --compress-debug-sections=zstd a zstd");
	packed = open_file("zstd");
	assert_fails(elffile_section_bytes(packed, elffile_section(packed, ".debug_info"), &bytes),
		     ERROR_UNSUPPORTED);
}
END_TEST

/* Variables' places are a seventh of Debian's debug info. */
START_TEST(leaves_out_what_lines_do_not_need)
{
	CLEANUP(elffile_freep) struct elffile *packed = NULL;
	CLEANUP(elffile_freep) struct elffile *plain = NULL;
	struct elffile_bytes bytes;

	workdir_run(&dir,
		    "dd if=/dev/zero of=zeros bs=4k count=9 2>dd.log && "
		    "objcopy --add-section .debug_loclists=zeros a a.loc && "
		    "objcopy --compress-debug-sections=%s a.loc packed",
		    compressions[_i]);
	packed = open_file("packed");
	ck_assert(elffile_section(packed, ".debug_loclists")->compressed);
	assert_ok(zdebug_unfold(packed, &plain));
	ck_assert(!elffile_is_compressed(plain));
	assert_ok(elffile_section_bytes(plain, elffile_section(plain, ".debug_loclists"), &bytes));
	ck_assert_uint_eq(bytes.size, 0);
}
END_TEST

/* The bytes of a compressed file; where in them .debug_info begins, and its header. */
static uint8_t *read_packed(const char *compression, size_t *size, size_t *at, Elf64_Shdr **header)
{
	CLEANUP(elffile_freep) struct elffile *packed = NULL;
	const struct elffile_section *section;
	uint8_t *data;

	workdir_run(&dir, "objcopy --compress-debug-sections=%s a liar", compression);
	packed = open_file("liar");
	section = elffile_section(packed, ".debug_info");
	data = read_bytes("liar", size);
	*at = section->offset;
	*header = (Elf64_Shdr *)(data + ((Elf64_Ehdr *)data)->e_shoff) + section->index;
	return data;
}

static struct error *unfold_bytes(uint8_t *data, size_t size)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	CLEANUP(elffile_freep) struct elffile *plain = NULL;

	assert_ok(elffile_open_memory(data, size, "liar", &file));
	return zdebug_unfold(file, &plain);
}

/* @change is written @offset bytes into .debug_info. */
static struct error *unfold_changed(const char *compression, size_t offset, const void *change,
				    size_t change_size)
{
	Elf64_Shdr *header;
	size_t size, at;
	uint8_t *data = read_packed(compression, &size, &at, &header);

	memcpy(data + at + offset, change, change_size);
	return unfold_bytes(data, size);
}

START_TEST(refuses_a_compressed_section_that_is_not_within_the_file)
{
	static const uint64_t sizes[] = {0, sizeof(Elf64_Chdr) - 1, 1ull << 50, UINT64_MAX};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		Elf64_Shdr *header;
		size_t size, at;
		uint8_t *data = read_packed(compressions[_i], &size, &at, &header);

		header->sh_size = sizes[i];
		assert_fails(unfold_bytes(data, size), ERROR_FORMAT);
	}
}
END_TEST

START_TEST(refuses_a_compressed_section_that_lies)
{
	static const uint64_t sizes[] = {1ull << 40, UINT64_MAX, UINT64_MAX - 15};
	const uint64_t one_more = 1 << 12;
	const uint32_t type = 77;
	uint8_t garbage[32];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_fails(unfold_changed(compressions[_i], offsetof(Elf64_Chdr, ch_size),
					    &sizes[i], sizeof(sizes[i])),
			     ERROR_UNSUPPORTED);
	assert_fails(unfold_changed(compressions[_i], offsetof(Elf64_Chdr, ch_size), &one_more,
				    sizeof(one_more)),
		     ERROR_FORMAT);
	assert_fails(unfold_changed(compressions[_i], offsetof(Elf64_Chdr, ch_type), &type,
				    sizeof(type)),
		     ERROR_UNSUPPORTED);
	memset(garbage, 0xa5, sizeof(garbage));
	assert_fails(unfold_changed(compressions[_i], sizeof(Elf64_Chdr), garbage, sizeof(garbage)),
		     ERROR_FORMAT);
}
END_TEST

START_TEST(reads_links_to_debug_files)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	CLEANUP(elffile_freep) struct elffile *plain = open_file("a");
	struct elffile_bytes build_id;
	uint32_t crc = 0;

	workdir_run(&dir, "objcopy --only-keep-debug a a.debug && "
			  "objcopy --strip-debug --add-gnu-debuglink=a.debug a linked");
	file = open_file("linked");
	ck_assert_str_eq(elffile_debuglink(file, &crc), "a.debug");
	ck_assert_uint_ne(crc, 0);
	ck_assert_ptr_null(elffile_debugaltlink(file, &build_id));
	ck_assert_ptr_null(elffile_debuglink(plain, &crc));
}
END_TEST

START_TEST(refuses_a_debuglink_that_is_a_path)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	uint32_t crc;

	workdir_write(&dir, "link", "../a.debug\0\0CRC_", 16);
	workdir_run(&dir, "objcopy --add-section .gnu_debuglink=link a pathlink");
	file = open_file("pathlink");
	ck_assert_ptr_nonnull(elffile_section(file, ".gnu_debuglink"));
	ck_assert_ptr_null(elffile_debuglink(file, &crc));
}
END_TEST

START_TEST(refuses_what_is_not_elf)
{
	CLEANUP(closep) int source_fd = workdir_open(&dir, "a.c");
	CLEANUP(closep) int folder = open(dir.path, O_RDONLY | O_CLOEXEC);
	struct elffile *file;

	assert_fails(elffile_open_fd(source_fd, "a.c", &file), ERROR_FORMAT);
	assert_fails(elffile_open_fd(folder, "folder", &file), ERROR_FORMAT);
	assert_fails(elffile_open_memory(calloc(1, 1), 0, "empty", &file), ERROR_FORMAT);
}
END_TEST

START_TEST(refuses_other_kinds_of_elf)
{
	CLEANUP(freep) uint8_t *data = NULL;
	struct elffile *file;
	size_t size;

	data = read_bytes("a", &size);
	data[EI_CLASS] = ELFCLASS32;
	assert_fails(elffile_open_memory(take(data), size, "32 bits", &file), ERROR_UNSUPPORTED);
	data = read_bytes("a", &size);
	data[EI_DATA] = ELFDATA2MSB;
	assert_fails(elffile_open_memory(take(data), size, "big-endian", &file), ERROR_UNSUPPORTED);
}
END_TEST

START_TEST(survives_truncation_at_any_size)
{
	CLEANUP(freep) uint8_t *data = NULL;
	size_t size;

	data = read_bytes("a", &size);
	for (size_t cut = 0; cut < size; cut += cut < 4096 ? 7 : 97)
		try_bytes(data, cut);
}
END_TEST

START_TEST(survives_any_flipped_byte_of_the_headers)
{
	CLEANUP(freep) uint8_t *data = NULL;
	uint64_t section_headers;
	size_t size;

	data = read_bytes("a", &size);
	memcpy(&section_headers, data + offsetof(Elf64_Ehdr, e_shoff), 8);
	for (size_t i = 0; i < size; i++) {
		if (i == 4096 && section_headers > 4096)
			i = section_headers;
		data[i] ^= 0xff;
		try_bytes(data, size);
		data[i] ^= 0xff;
	}
}
END_TEST

START_TEST(survives_any_flipped_byte_of_a_symbol_table)
{
	CLEANUP(freep) uint8_t *data = NULL;
	CLEANUP(elffile_freep) struct elffile *file = open_file("a");
	const struct elffile_section *table = elffile_section(file, ".symtab");
	size_t size;

	data = read_bytes("a", &size);
	for (uint64_t i = table->offset; i < table->offset + table->size; i++) {
		data[i] ^= 0xff;
		try_bytes(data, size);
		data[i] ^= 0xff;
	}
}
END_TEST

Suite *elffile_suite(void)
{
	Suite *suite = suite_create("elffile");
	TCase *tcase = tcase_create("read");

	tcase_add_unchecked_fixture(tcase, build, clean);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, tells_type_machine_and_build_id);
	tcase_add_test(tcase, finds_the_build_id_without_section_headers);
	tcase_add_test(tcase, converts_between_addresses_and_offsets);
	tcase_add_test(tcase, says_that_zero_filled_memory_has_no_offset);
	tcase_add_test(tcase, reads_symbols);
	tcase_add_test(tcase, reads_a_deleted_file);
	tcase_add_test(tcase, reads_a_file_that_others_may_write);
	tcase_add_test(tcase, decompresses_zlib_sections);
	tcase_add_loop_test(tcase, unfolds_compressed_sections, 0, 2);
	tcase_add_test(tcase, does_not_decompress_zstd_by_itself);
	tcase_add_loop_test(tcase, leaves_out_what_lines_do_not_need, 0, 2);
	tcase_add_loop_test(tcase, refuses_a_compressed_section_that_lies, 0, 2);
	tcase_add_loop_test(tcase, refuses_a_compressed_section_that_is_not_within_the_file, 0, 2);
	tcase_add_test(tcase, reads_links_to_debug_files);
	tcase_add_test(tcase, refuses_a_debuglink_that_is_a_path);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("damaged");
	tcase_add_unchecked_fixture(tcase, build, clean);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, refuses_what_is_not_elf);
	tcase_add_test(tcase, refuses_other_kinds_of_elf);
	tcase_add_test(tcase, survives_truncation_at_any_size);
	tcase_add_test(tcase, survives_any_flipped_byte_of_the_headers);
	tcase_add_test(tcase, survives_any_flipped_byte_of_a_symbol_table);
	suite_add_tcase(suite, tcase);
	return suite;
}
