/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ELF files: segments, sections, symbols, build ids and links to debug files.
 * The only user of libelf.
 *
 * A file is not trusted: it may belong to the target's user and the reader be
 * root. What these functions return has been checked against the file's size;
 * names always end in a zero byte but may hold any other bytes (see text.h).
 * Little-endian 64-bit files only.
 *
 * A file is read from the descriptor given, never by name, so it may have been
 * deleted. It is mapped where only root or we could shorten it while we read
 * (that would raise SIGBUS), and copied otherwise.
 *
 * One thread at a time per elffile. Everything that is returned by pointer
 * belongs to the elffile and lives until elffile_free().
 */
#ifndef RESOLVER_ELFFILE_H
#define RESOLVER_ELFFILE_H

#include "resolver/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elffile;
struct Elf; /* libelf's handle, for lines.c to hand to libdw */

/* A PT_LOAD header. */
struct elffile_segment {
	uint64_t vaddr;	 /* unrelocated */
	uint64_t offset; /* in the file */
	uint64_t filesz; /* bytes in the file; cut to what the file has (debug files have none) */
	uint64_t memsz;	 /* bytes in memory, >= filesz */
	bool read, write, exec;
};

struct elffile_section {
	const char *name;
	uint64_t address; /* unrelocated; 0 if the section is not loaded */
	uint64_t offset;
	uint64_t size; /* as stored: of the compressed bytes if compressed */
	uint64_t flags;
	uint32_t type; /* SHT_ */
	uint32_t index;
	bool compressed; /* SHF_COMPRESSED */
};

struct elffile_bytes {
	const uint8_t *data;
	size_t size;
};

enum elffile_table {
	ELFFILE_SYMTAB,
	ELFFILE_DYNSYM,
};

struct elffile_symbol {
	const char *name;
	uint64_t value; /* st_value: an unrelocated address in linked files */
	uint64_t size;
	uint32_t section; /* index; 0 if undefined, UINT32_MAX if absolute or common */
	uint8_t type;	  /* STT_ */
	uint8_t bind;	  /* STB_ */
};

/*
 * Open the file behind @fd, which is duplicated and stays the caller's.
 *
 * @name  how messages call the file
 *
 * Errors: ERROR_FORMAT (not ELF, or tables outside the file), ERROR_UNSUPPORTED
 * (32 bits or big-endian), ERROR_OS, ERROR_MEMORY.
 */
MUST_CHECK struct error *elffile_open_fd(int fd, const char *name, struct elffile **ret);

/*
 * Open a file that is in memory. @data comes from malloc() and belongs to the
 * elffile afterwards, on error too.
 */
MUST_CHECK struct error *elffile_open_memory(uint8_t *data, size_t size, const char *name,
					     struct elffile **ret);

/* NULL is fine. */
void elffile_free(struct elffile *file);
/* Scope guard. */
void elffile_freep(struct elffile **file);

const char *elffile_name(const struct elffile *file);
/* The duplicated descriptor; -1 for a file in memory. */
int elffile_fd(const struct elffile *file);
uint64_t elffile_size(const struct elffile *file);
uint16_t elffile_type(const struct elffile *file);    /* ET_ */
uint16_t elffile_machine(const struct elffile *file); /* EM_ */
struct Elf *elffile_libelf(struct elffile *file);

/* The PT_LOAD headers in the file's order; returns their number. */
size_t elffile_segments(const struct elffile *file, const struct elffile_segment **ret);

/* False if no segment has the address, or only its zero-filled tail does. */
bool elffile_offset_of_vaddr(const struct elffile *file, uint64_t vaddr, uint64_t *offset_ret);
bool elffile_vaddr_of_offset(const struct elffile *file, uint64_t offset, uint64_t *vaddr_ret);

/* GNU build id from the notes. Returns its size in bytes, 0 if there is none. */
size_t elffile_build_id(const struct elffile *file, const uint8_t **ret);

/* NULL if there is no such section. With several of a name, the first. */
const struct elffile_section *elffile_section(const struct elffile *file, const char *name);
size_t elffile_sections(const struct elffile *file, const struct elffile_section **ret);

/*
 * A section's bytes; decompressed if they are stored compressed (the result is
 * kept in the elffile). SHT_NOBITS sections are empty.
 *
 * Errors: ERROR_FORMAT naming file and section, ERROR_MEMORY.
 */
MUST_CHECK struct error *elffile_section_bytes(struct elffile *file,
					       const struct elffile_section *section,
					       struct elffile_bytes *ret);

/*
 * The same for a section that is optional: false, and @ret empty but not NULL,
 * if it is NULL, empty or damaged.
 */
bool elffile_optional_bytes(struct elffile *file, const struct elffile_section *section,
			    struct elffile_bytes *ret);

/* True if any section is compressed. */
bool elffile_is_compressed(const struct elffile *file);

/* Bytes of the file as stored. ERROR_FORMAT if the range is not within it. */
MUST_CHECK struct error *elffile_read(const struct elffile *file, uint64_t offset, void *buf,
				      size_t size);

/* Number of symbols in a table, the empty first one included; 0 if there is no table. */
size_t elffile_symbol_count(struct elffile *file, enum elffile_table table);
/* False if @index is out of range or the entry's name is out of its string table. */
bool elffile_symbol(struct elffile *file, enum elffile_table table, size_t index,
		    struct elffile_symbol *ret);

/* .gnu_debuglink: NULL if there is none, or it is malformed. A bare file name by contract: a
 * name with a slash in it is not returned. */
const char *elffile_debuglink(struct elffile *file, uint32_t *crc_ret);

/* .gnu_debugaltlink (dwz): NULL if there is none, or it is malformed. */
const char *elffile_debugaltlink(struct elffile *file, struct elffile_bytes *build_id_ret);

#endif
