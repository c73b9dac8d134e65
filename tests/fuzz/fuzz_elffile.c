// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Any bytes as an ELF file: open it, read all that there is, ask for symbols
 * and lines. Inputs that libelf and libdw take apart wrongly are ours to
 * survive as well.
 */
#include "resolver/cleanup.h"
#include "resolver/elffile.h"
#include "resolver/lines.h"
#include "resolver/symbols.h"
#include "resolver/xz.h"
#include "resolver/zdebug.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Larger results would only be slow. */
enum { MAX_UNFOLDED = 1 << 20 };

static void read_sections(struct elffile *file)
{
	const struct elffile_section *section;
	size_t count = elffile_sections(file, &section);

	for (size_t i = 0; i < count; i++) {
		CLEANUP(freep) uint8_t *unfolded = NULL;
		struct elffile_bytes bytes;
		size_t unfolded_size;
		struct error *err = elffile_section_bytes(file, &section[i], &bytes);

		if (!err)
			err = xz_decompress(bytes.data, bytes.size, MAX_UNFOLDED, &unfolded,
					    &unfolded_size);
		error_free(err);
	}
}

static void find_symbols(struct elffile *file)
{
	const struct elffile_segment *segment;
	size_t count = elffile_segments(file, &segment);
	struct symbols *symbols;

	if (symbols_create(&symbols))
		return;
	error_free(symbols_add(symbols, file, ELFFILE_SYMTAB));
	error_free(symbols_add(symbols, file, ELFFILE_DYNSYM));
	error_free(symbols_seal(symbols));
	for (size_t i = 0; i < count; i++) {
		uint64_t offset;

		elffile_offset_of_vaddr(file, segment[i].vaddr, &offset);
		symbols_find(symbols, segment[i].vaddr + 1);
	}
	symbols_free(symbols);
}

static void find_lines(struct elffile *file)
{
	const struct elffile_section *section;
	size_t count = elffile_sections(file, &section);
	struct lines_frame frame[LINES_MAX_FRAMES];
	struct lines *lines;
	struct error *err = lines_create(file, NULL, &lines);

	if (err) {
		error_free(err);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		for (uint64_t at = 0; at < section[i].size && at < 256; at += 3)
			lines_find(lines, section[i].address + at, frame);
	}
	lines_free(lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	CLEANUP(elffile_freep) struct elffile *plain = NULL;
	uint8_t *copy = malloc(size + !size);
	struct elffile_bytes build_id;
	uint32_t crc;
	struct error *err;

	memcpy(copy, data, size);
	err = elffile_open_memory(copy, size, "input", &file);
	if (!err) {
		elffile_debuglink(file, &crc);
		elffile_debugaltlink(file, &build_id);
		read_sections(file);
		find_symbols(file);
		find_lines(file);
		if (elffile_is_compressed(file))
			err = zdebug_unfold(file, &plain);
	}
	error_free(err);
	return 0;
}
