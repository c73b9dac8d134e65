// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/zdebug.h"

#include "resolver/cleanup.h"
#include "resolver/zstream.h"

#include <elf.h>
#include <inttypes.h>
#include <string.h>

static const uint64_t max_bytes = 4ull << 30;

/* Debug info packs to a half or a third; a section that says so much more lies. */
enum { MAX_RATIO = 1000 };

/*
 * The copy is the old file whole, with the plain sections behind it and the
 * section headers changed in place to point there:
 *
 *	[ file as it was, headers changed ][ .debug_info ][ .debug_line ] ...
 */
struct image {
	uint8_t *data;
	uint64_t size;
};

static struct error *append(struct image *image, const uint8_t *data, uint64_t size)
{
	/* Sections keep an alignment that suits all of their contents. */
	uint64_t start = (image->size + 15) & ~15ull;
	uint8_t *grown = realloc(image->data, start + size);

	if (!grown)
		return error_memory();
	memset(grown + image->size, 0, start - image->size);
	memcpy(grown + start, data, size);
	image->data = grown;
	image->size = start + size;
	return NULL;
}

static struct error *unfold_section(struct image *image, const struct elffile *file,
				    const struct elffile_section *section, uint64_t header_offset)
{
	CLEANUP(freep) uint8_t *plain = NULL;
	Elf64_Shdr header;
	Elf64_Chdr compression;
	struct error *err;

	if (section->offset > image->size || section->size > image->size - section->offset ||
	    section->size < sizeof(compression))
		return error_create(ERROR_FORMAT, "%s: section %s is not within the file",
				    elffile_name(file), section->name);
	memcpy(&compression, image->data + section->offset, sizeof(compression));
	if (compression.ch_size > max_bytes - image->size ||
	    compression.ch_size / MAX_RATIO > section->size)
		return error_create(
			ERROR_UNSUPPORTED,
			"%s: section %s unfolds to %" PRIu64 " bytes, which is too much",
			elffile_name(file), section->name, (uint64_t)compression.ch_size);
	err = zstream_decompress(image->data + section->offset + sizeof(compression),
				 section->size - sizeof(compression), compression.ch_size, &plain);
	if (!err)
		err = append(image, plain, compression.ch_size);
	if (err)
		return error_prefix(err, "%s: section %s", elffile_name(file), section->name);
	memcpy(&header, image->data + header_offset, sizeof(header));
	header.sh_offset = image->size - compression.ch_size;
	header.sh_size = compression.ch_size;
	header.sh_addralign = compression.ch_addralign;
	header.sh_flags &= ~(uint64_t)SHF_COMPRESSED;
	memcpy(image->data + header_offset, &header, sizeof(header));
	return NULL;
}

static void image_deinit(struct image *image)
{
	free(image->data);
}

struct error *zdebug_unfold(const struct elffile *file, struct elffile **ret)
{
	CLEANUP(image_deinit) struct image image = {.size = elffile_size(file)};
	const struct elffile_section *section;
	size_t count = elffile_sections(file, &section);
	Elf64_Ehdr header;
	struct error *err;

	if (image.size > max_bytes)
		return error_create(ERROR_UNSUPPORTED, "%s: too large to unfold its zstd sections",
				    elffile_name(file));
	image.data = malloc(image.size);
	if (!image.data)
		return error_memory();
	err = elffile_read(file, 0, image.data, image.size);
	if (err)
		return err;
	memcpy(&header, image.data, sizeof(header));
	for (size_t i = 0; i < count && !err; i++) {
		/* Opening the file checked that all its section headers are in it. */
		if (section[i].zstd)
			err = unfold_section(&image, file, &section[i],
					     header.e_shoff + i * sizeof(Elf64_Shdr));
	}
	if (err)
		return err;
	return elffile_open_memory(take(image.data), image.size, elffile_name(file), ret);
}
