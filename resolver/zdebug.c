// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/zdebug.h"

#include "resolver/cleanup.h"
#include "resolver/inflate.h"
#include "resolver/zstream.h"

#include <elf.h>
#include <inttypes.h>
#include <string.h>

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2 /* gABI; elf.h has it since glibc 2.37 */
#endif

static const uint64_t max_bytes = 4ull << 30;

/* Debug info packs to a half or a third; a section that says so much more lies. */
enum { MAX_RATIO = 1000 };

/* Sections keep an alignment that suits all of their contents. */
enum { ALIGNMENT = 16 };

/*
 * The copy is the old file without what was compressed, with the plain sections
 * behind it and the section headers changed to point there. The holes are never
 * touched, and take no memory.
 *
 *	[ file as it was, headers changed, with holes ][ .debug_info ][ .debug_line ] ...
 */
struct image {
	uint8_t *data;
	uint64_t size; /* of what is filled */
	uint64_t room;
};

static void image_deinit(struct image *image)
{
	free(image->data);
}

static uint64_t aligned(uint64_t offset)
{
	return (offset + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

/* Variables' places, macros and old indexes: neither functions nor lines. */
static bool is_needed(const struct elffile_section *section)
{
	static const char *const unneeded[] = {
		".debug_loc",	   ".debug_loclists",	  ".debug_macro",
		".debug_macinfo",  ".debug_frame",	  ".debug_pubnames",
		".debug_pubtypes", ".debug_gnu_pubnames", ".debug_gnu_pubtypes",
	};

	for (size_t i = 0; i < sizeof(unneeded) / sizeof(unneeded[0]); i++) {
		if (!strcmp(section->name, unneeded[i]))
			return false;
	}
	return true;
}

static bool is_within(const struct elffile_section *section, uint64_t size)
{
	return section->offset <= size && section->size <= size - section->offset;
}

static struct error *read_compression(const struct elffile *file,
				      const struct elffile_section *section, Elf64_Chdr *ret)
{
	if (!is_within(section, elffile_size(file)) || section->size < sizeof(*ret))
		return error_create(ERROR_FORMAT,
				    "%s: section %s at offset %#" PRIx64 " with %" PRIu64
				    " bytes: not within the file, or without a compression header",
				    elffile_name(file), section->name, section->offset,
				    section->size);
	return elffile_read(file, section->offset, ret, sizeof(*ret));
}

/* How large the image becomes. */
static struct error *measure(const struct elffile *file, uint64_t *ret)
{
	const struct elffile_section *section;
	size_t count = elffile_sections(file, &section);
	uint64_t room = elffile_size(file);

	for (size_t i = 0; i < count; i++) {
		Elf64_Chdr compression;
		struct error *err;

		if (!section[i].compressed || !is_needed(&section[i]))
			continue;
		err = read_compression(file, &section[i], &compression);
		if (err)
			return err;
		room = aligned(room);
		if (room > max_bytes || compression.ch_size > max_bytes - room ||
		    compression.ch_size / MAX_RATIO > section[i].size)
			return error_create(
				ERROR_UNSUPPORTED,
				"%s: section %s unfolds to %" PRIu64 " bytes, which is too much",
				elffile_name(file), section[i].name, (uint64_t)compression.ch_size);
		room += compression.ch_size;
	}
	*ret = room;
	return NULL;
}

/* All of the file but what is compressed. (Sections in another order are copied, too.) */
static struct error *copy_plain(struct image *image, const struct elffile *file)
{
	const struct elffile_section *section;
	size_t count = elffile_sections(file, &section);
	uint64_t at = 0, size = elffile_size(file);
	struct error *err = NULL;

	for (size_t i = 0; i < count && !err; i++) {
		if (!section[i].compressed || section[i].offset < at ||
		    !is_within(&section[i], size))
			continue;
		err = elffile_read(file, at, image->data + at, section[i].offset - at);
		at = section[i].offset + section[i].size;
	}
	image->size = size;
	return err ? err : elffile_read(file, at, image->data + at, size - at);
}

static struct error *decompress(const Elf64_Chdr *compression, const uint8_t *data, size_t size,
				uint8_t *out)
{
	switch (compression->ch_type) {
	case ELFCOMPRESS_ZLIB:
		return inflate_zlib(data, size, out, compression->ch_size);
	case ELFCOMPRESS_ZSTD:
		return zstream_decompress_to(data, size, out, compression->ch_size);
	default:
		return error_create(ERROR_UNSUPPORTED, "compression type %u", compression->ch_type);
	}
}

static struct error *unfold_section(struct image *image, const struct elffile *file,
				    const struct elffile_section *section, Elf64_Shdr *header)
{
	CLEANUP(freep) uint8_t *packed = malloc(section->size);
	uint64_t at = aligned(image->size);
	Elf64_Chdr compression;
	struct error *err;

	if (!packed)
		return error_memory();
	err = elffile_read(file, section->offset, packed, section->size);
	if (err)
		return err;
	memcpy(&compression, packed, sizeof(compression));
	/* The file may have changed since it was measured. */
	if (at > image->room || compression.ch_size > image->room - at)
		return error_create(ERROR_FORMAT, "changes while it is read");
	err = decompress(&compression, packed + sizeof(compression),
			 section->size - sizeof(compression), image->data + at);
	if (err)
		return err;
	image->size = at + compression.ch_size;
	header->sh_offset = at;
	header->sh_size = compression.ch_size;
	header->sh_addralign = compression.ch_addralign;
	return NULL;
}

/* Its header stands at @header_offset of the image. */
static struct error *replace_section(struct image *image, const struct elffile *file,
				     const struct elffile_section *section, uint64_t header_offset)
{
	struct error *err = NULL;
	Elf64_Shdr header;

	/* Opening the file checked it, but it may have changed since. */
	if (header_offset > image->room || sizeof(header) > image->room - header_offset)
		return error_create(ERROR_FORMAT, "%s: changes while it is read",
				    elffile_name(file));
	memcpy(&header, image->data + header_offset, sizeof(header));
	if (is_needed(section))
		err = unfold_section(image, file, section, &header);
	else
		header.sh_type = SHT_NOBITS;
	if (err)
		return error_prefix(err, "%s: section %s", elffile_name(file), section->name);
	header.sh_flags &= ~(uint64_t)SHF_COMPRESSED;
	memcpy(image->data + header_offset, &header, sizeof(header));
	return NULL;
}

struct error *zdebug_unfold(const struct elffile *file, struct elffile **ret)
{
	CLEANUP(image_deinit) struct image image = {0};
	const struct elffile_section *section;
	size_t count = elffile_sections(file, &section);
	Elf64_Ehdr header;
	struct error *err = measure(file, &image.room);

	if (err)
		return err;
	image.data = calloc(1, image.room);
	if (!image.data)
		return error_memory();
	err = copy_plain(&image, file);
	if (!err)
		err = elffile_read(file, 0, &header, sizeof(header));
	for (size_t i = 0; i < count && !err; i++) {
		if (section[i].compressed)
			err = replace_section(&image, file, &section[i],
					      header.e_shoff + i * sizeof(Elf64_Shdr));
	}
	if (err)
		return err;
	return elffile_open_memory(take(image.data), image.size, elffile_name(file), ret);
}
