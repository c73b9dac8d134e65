// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/elffile.h"

#include "resolver/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <libelf.h>
#include <string.h>
#include <sys/stat.h>

enum {
	MAX_SEGMENTS = 1 << 12,
	MAX_SECTIONS = 1 << 20,
	MAX_NOTES_BYTES = 1 << 20,
	/* SHA-1 has 20 bytes, --build-id=0x... may have more. */
	MAX_BUILD_ID_BYTES = 64,
	/* A section of the compressed size may not claim to unfold to more than this many times it.
	 */
	MAX_RATIO = 1100,
};

/* A symbol table with what belongs to it. */
struct table {
	bool loaded;
	const uint8_t *symbols; /* Elf64_Sym, perhaps unaligned */
	size_t count;
	const char *names; /* ends in a zero byte */
	size_t names_size;
};

struct elffile {
	char *name;
	int fd; /* -1: in memory */
	uint8_t *memory;
	uint64_t size;
	Elf *elf;
	GElf_Ehdr header;
	struct elffile_segment *segment;
	size_t segments;
	struct elffile_section *section;
	size_t sections;
	uint8_t build_id[MAX_BUILD_ID_BYTES];
	size_t build_id_size;
	struct table table[2];
};

/* No overflow: @offset and @size are as wild as the file likes. */
static bool is_within(uint64_t offset, uint64_t size, uint64_t limit)
{
	return offset <= limit && size <= limit - offset;
}

struct error *elffile_read(const struct elffile *file, uint64_t offset, void *buf, size_t size)
{
	uint8_t *to = buf;

	if (!is_within(offset, size, file->size))
		return error_create(ERROR_FORMAT,
				    "%s: %zu bytes at offset %#" PRIx64
				    " are beyond the end of the file (%" PRIu64 " bytes)",
				    file->name, size, offset, file->size);
	if (file->memory) {
		memcpy(to, file->memory + offset, size);
		return NULL;
	}
	while (size) {
		ssize_t count = pread(file->fd, to, size, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return error_os(errno, "read %s at offset %#" PRIx64, file->name, offset);
		if (count == 0)
			return error_create(ERROR_FORMAT, "%s: became shorter while it was read",
					    file->name);
		to += count;
		offset += (uint64_t)count;
		size -= (size_t)count;
	}
	return NULL;
}

/* ---- opening */

static struct error *read_header(struct elffile *file)
{
	unsigned char ident[EI_NIDENT];
	struct error *err;

	if (file->size < sizeof(Elf64_Ehdr))
		return error_create(ERROR_FORMAT,
				    "%s: too short for an ELF file (%" PRIu64 " bytes)", file->name,
				    file->size);
	err = elffile_read(file, 0, ident, sizeof(ident));
	if (err)
		return err;
	if (memcmp(ident, ELFMAG, SELFMAG) != 0)
		return error_create(ERROR_FORMAT, "%s: not an ELF file", file->name);
	if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB)
		return error_create(ERROR_UNSUPPORTED,
				    "%s: not a little-endian 64-bit ELF file (class %d, data %d)",
				    file->name, ident[EI_CLASS], ident[EI_DATA]);
	if (!gelf_getehdr(file->elf, &file->header))
		return error_create(ERROR_FORMAT, "%s: bad ELF header: %s", file->name,
				    elf_errmsg(-1));
	return NULL;
}

static struct error *read_segments(struct elffile *file)
{
	size_t count;

	if (elf_getphdrnum(file->elf, &count) < 0 || count > MAX_SEGMENTS ||
	    !is_within(file->header.e_phoff, count * sizeof(Elf64_Phdr), file->size))
		return error_create(ERROR_FORMAT,
				    "%s: program headers at offset %#" PRIx64
				    " are not within the file (%" PRIu64 " bytes)",
				    file->name, file->header.e_phoff, file->size);
	file->segment = calloc(count + 1, sizeof(*file->segment));
	if (!file->segment)
		return error_memory();
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr header;
		uint64_t left;

		if (!gelf_getphdr(file->elf, (int)i, &header) || header.p_type != PT_LOAD)
			continue;
		left = header.p_offset <= file->size ? file->size - header.p_offset : 0;
		file->segment[file->segments++] = (struct elffile_segment){
			.vaddr = header.p_vaddr,
			.offset = header.p_offset,
			.filesz = header.p_filesz < left ? header.p_filesz : left,
			.memsz = header.p_memsz,
			.read = header.p_flags & PF_R,
			.write = header.p_flags & PF_W,
			.exec = header.p_flags & PF_X,
		};
	}
	return NULL;
}

static void describe_section(struct elffile *file, Elf_Scn *scn, size_t strings, size_t index)
{
	struct elffile_section *section = &file->section[index];
	GElf_Shdr header;
	const char *name;

	section->name = "";
	section->index = (uint32_t)index;
	if (!scn || !gelf_getshdr(scn, &header))
		return;
	name = elf_strptr(file->elf, strings, header.sh_name);
	section->name = name ? name : "";
	section->address = header.sh_addr;
	section->offset = header.sh_offset;
	section->size = header.sh_size;
	section->flags = header.sh_flags;
	section->type = header.sh_type;
	section->compressed = header.sh_flags & SHF_COMPRESSED;
}

/*
 * Files that are mapped may have lost their section headers (sstrip, e_shoff
 * 0): no sections then. Headers that point out of the file mean a file cut short.
 */
static struct error *read_sections(struct elffile *file)
{
	size_t count, strings;

	if (!file->header.e_shoff)
		return NULL;
	if (elf_getshdrnum(file->elf, &count) < 0 || count > MAX_SECTIONS ||
	    !is_within(file->header.e_shoff, count * sizeof(Elf64_Shdr), file->size))
		return error_create(ERROR_FORMAT,
				    "%s: section headers at offset %#" PRIx64
				    " are not within the file (%" PRIu64 " bytes)",
				    file->name, file->header.e_shoff, file->size);
	if (elf_getshdrstrndx(file->elf, &strings) < 0)
		strings = SHN_UNDEF;
	file->section = calloc(count + 1, sizeof(*file->section));
	if (!file->section)
		return error_memory();
	file->sections = count;
	for (size_t i = 0; i < count; i++)
		describe_section(file, elf_getscn(file->elf, i), strings, i);
	return NULL;
}

/* A run of notes, whose sizes are each checked against what is left. */
static bool find_build_id(struct elffile *file, const uint8_t *notes, size_t size, size_t align)
{
	while (size >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr note;
		uint64_t name_end, data, end;

		memcpy(&note, notes, sizeof(note));
		name_end = sizeof(note) + (uint64_t)note.n_namesz;
		data = (name_end + align - 1) & ~(uint64_t)(align - 1);
		end = data + note.n_descsz;
		if (end > size)
			return false;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    memcmp(notes + sizeof(note), "GNU", 4) == 0 && note.n_descsz &&
		    note.n_descsz <= MAX_BUILD_ID_BYTES) {
			memcpy(file->build_id, notes + data, note.n_descsz);
			file->build_id_size = note.n_descsz;
			return true;
		}
		end = (end + align - 1) & ~(uint64_t)(align - 1);
		if (end > size)
			return false;
		notes += end;
		size -= end;
	}
	return false;
}

/* Only notes of 8-byte alignment pad to 8; 0 and 1 are seen in the wild and mean 4. */
static bool scan_notes(struct elffile *file, uint64_t offset, uint64_t size, uint64_t align)
{
	CLEANUP(freep) uint8_t *notes = NULL;
	CLEANUP(error_freep) struct error *err = NULL;

	if (size > MAX_NOTES_BYTES || !is_within(offset, size, file->size))
		return false;
	notes = malloc(size + 1);
	if (!notes)
		return false;
	err = elffile_read(file, offset, notes, size);
	return !err && find_build_id(file, notes, size, align == 8 ? 8 : 4);
}

/*
 * Sections first: a debug file keeps its note sections, but its program headers
 * may still have the offsets of the file that it was split from.
 */
static void read_build_id(struct elffile *file)
{
	size_t count;

	for (size_t i = 0; i < file->sections; i++) {
		const struct elffile_section *section = &file->section[i];
		GElf_Shdr header;

		if (section->type == SHT_NOTE && gelf_getshdr(elf_getscn(file->elf, i), &header) &&
		    scan_notes(file, section->offset, section->size, header.sh_addralign))
			return;
	}
	if (elf_getphdrnum(file->elf, &count) < 0)
		return;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr header;

		if (gelf_getphdr(file->elf, (int)i, &header) && header.p_type == PT_NOTE &&
		    scan_notes(file, header.p_offset, header.p_filesz, header.p_align))
			return;
	}
}

static struct error *read_tables(struct elffile *file)
{
	struct error *err;

	if (!file->elf)
		return error_create(ERROR_FORMAT, "%s: not an ELF file: %s", file->name,
				    elf_errmsg(-1));
	err = read_header(file);
	if (!err)
		err = read_segments(file);
	if (!err)
		err = read_sections(file);
	if (!err)
		read_build_id(file);
	return err;
}

static struct elffile *create(const char *name)
{
	struct elffile *file = calloc(1, sizeof(*file));

	elf_version(EV_CURRENT);
	if (!file)
		return NULL;
	file->fd = -1;
	file->name = strdup(name);
	if (!file->name) {
		free(file);
		return NULL;
	}
	return file;
}

/* Nobody but root and us can cut the file short while it is mapped. */
static bool is_safe_to_map(const struct stat *stat)
{
	return (stat->st_uid == 0 || stat->st_uid == geteuid()) &&
	       !(stat->st_mode & (S_IWGRP | S_IWOTH));
}

struct error *elffile_open_fd(int fd, const char *name, struct elffile **ret)
{
	CLEANUP(elffile_freep) struct elffile *file = create(name);
	struct stat stat;
	struct error *err;

	if (!file)
		return error_memory();
	file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (file->fd < 0 || fstat(file->fd, &stat) < 0)
		return error_os(errno, "open %s", name);
	if (!S_ISREG(stat.st_mode))
		return error_create(ERROR_FORMAT, "%s: not a regular file", name);
	file->size = (uint64_t)stat.st_size;
	file->elf = elf_begin(file->fd, is_safe_to_map(&stat) ? ELF_C_READ_MMAP : ELF_C_READ, NULL);
	err = read_tables(file);
	if (err)
		return err;
	*ret = take(file);
	return NULL;
}

struct error *elffile_open_memory(uint8_t *data, size_t size, const char *name,
				  struct elffile **ret)
{
	CLEANUP(elffile_freep) struct elffile *file = create(name);
	struct error *err;

	if (!file) {
		free(data);
		return error_memory();
	}
	file->memory = data;
	file->size = size;
	file->elf = elf_memory((char *)data, size);
	err = read_tables(file);
	if (err)
		return err;
	*ret = take(file);
	return NULL;
}

void elffile_free(struct elffile *file)
{
	if (!file)
		return;
	elf_end(file->elf);
	closep(&file->fd);
	free(file->memory);
	free(file->segment);
	free(file->section);
	free(file->name);
	free(file);
}

void elffile_freep(struct elffile **file)
{
	elffile_free(*file);
}

/* ---- what is in it */

const char *elffile_name(const struct elffile *file)
{
	return file->name;
}

int elffile_fd(const struct elffile *file)
{
	return file->fd;
}

uint64_t elffile_size(const struct elffile *file)
{
	return file->size;
}

uint16_t elffile_type(const struct elffile *file)
{
	return file->header.e_type;
}

uint16_t elffile_machine(const struct elffile *file)
{
	return file->header.e_machine;
}

struct Elf *elffile_libelf(struct elffile *file)
{
	return file->elf;
}

size_t elffile_segments(const struct elffile *file, const struct elffile_segment **ret)
{
	*ret = file->segment;
	return file->segments;
}

size_t elffile_sections(const struct elffile *file, const struct elffile_section **ret)
{
	*ret = file->section;
	return file->sections;
}

bool elffile_offset_of_vaddr(const struct elffile *file, uint64_t vaddr, uint64_t *offset_ret)
{
	for (size_t i = 0; i < file->segments; i++) {
		const struct elffile_segment *segment = &file->segment[i];

		if (vaddr >= segment->vaddr && vaddr - segment->vaddr < segment->filesz) {
			*offset_ret = segment->offset + (vaddr - segment->vaddr);
			return true;
		}
	}
	return false;
}

bool elffile_vaddr_of_offset(const struct elffile *file, uint64_t offset, uint64_t *vaddr_ret)
{
	for (size_t i = 0; i < file->segments; i++) {
		const struct elffile_segment *segment = &file->segment[i];

		if (offset >= segment->offset && offset - segment->offset < segment->filesz) {
			*vaddr_ret = segment->vaddr + (offset - segment->offset);
			return true;
		}
	}
	return false;
}

size_t elffile_build_id(const struct elffile *file, const uint8_t **ret)
{
	*ret = file->build_id;
	return file->build_id_size;
}

const struct elffile_section *elffile_section(const struct elffile *file, const char *name)
{
	for (size_t i = 0; i < file->sections; i++) {
		if (strcmp(file->section[i].name, name) == 0)
			return &file->section[i];
	}
	return NULL;
}

bool elffile_is_compressed(const struct elffile *file)
{
	for (size_t i = 0; i < file->sections; i++) {
		if (file->section[i].compressed)
			return true;
	}
	return false;
}

/* ---- bytes of sections */

static struct error *inflate(struct elffile *file, const struct elffile_section *section,
			     Elf_Scn *scn)
{
	GElf_Chdr header;
	GElf_Shdr now;

	/* Asked for a second time, libelf has it in its inflated form already. */
	if (gelf_getshdr(scn, &now) && !(now.sh_flags & SHF_COMPRESSED))
		return NULL;
	if (!gelf_getchdr(scn, &header))
		return error_create(ERROR_FORMAT, "%s: section %s: bad compression header",
				    file->name, section->name);
	if (header.ch_type != ELFCOMPRESS_ZLIB)
		return error_create(ERROR_UNSUPPORTED, "%s: section %s: compression type %u",
				    file->name, section->name, header.ch_type);
	if (header.ch_size / MAX_RATIO > section->size || elf_compress(scn, 0, 0) < 0)
		return error_create(ERROR_FORMAT, "%s: section %s: cannot be decompressed",
				    file->name, section->name);
	return NULL;
}

struct error *elffile_section_bytes(struct elffile *file, const struct elffile_section *section,
				    struct elffile_bytes *ret)
{
	Elf_Scn *scn = elf_getscn(file->elf, section->index);
	Elf_Data *data;
	struct error *err;

	if (section->type == SHT_NOBITS || !section->size) {
		*ret = (struct elffile_bytes){.data = (const uint8_t *)"", .size = 0};
		return NULL;
	}
	if (!scn || !is_within(section->offset, section->size, file->size))
		return error_create(ERROR_FORMAT,
				    "%s: section %s at offset %#" PRIx64 " with %" PRIu64
				    " bytes is beyond the end of the file",
				    file->name, section->name, section->offset, section->size);
	if (section->compressed) {
		err = inflate(file, section, scn);
		if (err)
			return err;
	}
	data = elf_rawdata(scn, NULL);
	if (!data || !data->d_buf)
		return error_create(ERROR_FORMAT, "%s: section %s at offset %#" PRIx64 ": %s",
				    file->name, section->name, section->offset, elf_errmsg(-1));
	*ret = (struct elffile_bytes){.data = data->d_buf, .size = data->d_size};
	return NULL;
}

bool elffile_optional_bytes(struct elffile *file, const struct elffile_section *section,
			    struct elffile_bytes *ret)
{
	struct error *err;

	*ret = (struct elffile_bytes){.data = (const uint8_t *)"", .size = 0};
	if (!section)
		return false;
	err = elffile_section_bytes(file, section, ret);
	error_free(err);
	return !err && ret->size;
}

/* ---- symbols */

static void load_table(struct elffile *file, enum elffile_table which, struct table *table)
{
	uint32_t type = which == ELFFILE_SYMTAB ? SHT_SYMTAB : SHT_DYNSYM;
	struct elffile_bytes symbols, names;
	GElf_Shdr header;

	table->loaded = true;
	for (size_t i = 0; i < file->sections; i++) {
		if (file->section[i].type != type)
			continue;
		if (!gelf_getshdr(elf_getscn(file->elf, i), &header) ||
		    header.sh_link >= file->sections ||
		    !elffile_optional_bytes(file, &file->section[i], &symbols) ||
		    !elffile_optional_bytes(file, &file->section[header.sh_link], &names) ||
		    names.data[names.size - 1] != '\0')
			continue;
		table->symbols = symbols.data;
		table->count = symbols.size / sizeof(Elf64_Sym);
		table->names = (const char *)names.data;
		table->names_size = names.size;
		return;
	}
}

static struct table *get_table(struct elffile *file, enum elffile_table which)
{
	struct table *table = &file->table[which];

	if (!table->loaded)
		load_table(file, which, table);
	return table;
}

size_t elffile_symbol_count(struct elffile *file, enum elffile_table table)
{
	return get_table(file, table)->count;
}

bool elffile_symbol(struct elffile *file, enum elffile_table which, size_t index,
		    struct elffile_symbol *ret)
{
	const struct table *table = get_table(file, which);
	Elf64_Sym symbol;

	if (index >= table->count)
		return false;
	memcpy(&symbol, table->symbols + index * sizeof(symbol), sizeof(symbol));
	if (symbol.st_name >= table->names_size)
		return false;
	*ret = (struct elffile_symbol){
		.name = table->names + symbol.st_name,
		.value = symbol.st_value,
		.size = symbol.st_size,
		.section = symbol.st_shndx < SHN_LORESERVE ? symbol.st_shndx : UINT32_MAX,
		.type = ELF64_ST_TYPE(symbol.st_info),
		.bind = ELF64_ST_BIND(symbol.st_info),
	};
	return true;
}

/* ---- links to other files */

/* The zero-terminated name at the start of a section; NULL if it does not end within it. */
static const char *leading_name(const struct elffile_bytes *bytes)
{
	if (!bytes->data[0] || !memchr(bytes->data, '\0', bytes->size))
		return NULL;
	return (const char *)bytes->data;
}

const char *elffile_debuglink(struct elffile *file, uint32_t *crc_ret)
{
	struct elffile_bytes bytes;
	const char *name;
	size_t crc_offset;

	if (!elffile_optional_bytes(file, elffile_section(file, ".gnu_debuglink"), &bytes))
		return NULL;
	name = leading_name(&bytes);
	if (!name || strchr(name, '/'))
		return NULL;
	crc_offset = (strlen(name) + 1 + 3) & ~(size_t)3;
	if (!is_within(crc_offset, sizeof(*crc_ret), bytes.size))
		return NULL;
	memcpy(crc_ret, bytes.data + crc_offset, sizeof(*crc_ret));
	return name;
}

const char *elffile_debugaltlink(struct elffile *file, struct elffile_bytes *build_id_ret)
{
	struct elffile_bytes bytes;
	const char *name;
	size_t used;

	if (!elffile_optional_bytes(file, elffile_section(file, ".gnu_debugaltlink"), &bytes))
		return NULL;
	name = leading_name(&bytes);
	if (!name)
		return NULL;
	used = strlen(name) + 1;
	*build_id_ret = (struct elffile_bytes){bytes.data + used, bytes.size - used};
	return name;
}
