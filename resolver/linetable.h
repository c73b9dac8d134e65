/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The line table of one unit (DWARF 5, section 6.2, and 2 to 4 before it):
 * which file and line has an address?
 *
 * It is stored as a program that makes a row for each change of the line. libdw
 * keeps all rows, sorted, 60 bytes each: of a large C++ program they are most of
 * the time and memory that its symbols take. Here the program is run once and
 * every 64th row is noted; a lookup runs on from there.
 *
 * One thread at a time per table.
 */
#ifndef RESOLVER_LINETABLE_H
#define RESOLVER_LINETABLE_H

#include "resolver/elffile.h"
#include "resolver/error.h"

#include <stdbool.h>
#include <stdint.h>

struct linetable;

/* Contents of .debug_line, .debug_line_str and .debug_str; size 0 for none. */
struct linetable_sections {
	struct elffile_bytes line, line_str, str;
};

/* Those of @file, for as long as it lives; one that is missing or damaged is empty. */
void linetable_sections(struct elffile *file, struct linetable_sections *ret);

struct linetable_row {
	uint32_t file; /* for linetable_file() */
	uint32_t line; /* 0: of no line */
};

/*
 * Read the table at @offset in .debug_line.
 *
 * @directory  of the compilation (DW_AT_comp_dir), or NULL
 *
 * Errors: ERROR_FORMAT; ERROR_UNSUPPORTED (rows that are not in order, or what
 * compilers do not use). Sections and @directory must live as long as the result.
 */
MUST_CHECK struct error *linetable_read(const struct linetable_sections *sections, uint64_t offset,
					const char *directory, struct linetable **ret);
/* NULL is fine. */
void linetable_free(struct linetable *table);

/* The last row at or before @address, an unrelocated one, in its sequence. False: there is none. */
bool linetable_find(const struct linetable *table, uint64_t address, struct linetable_row *ret);

/*
 * The name of a file, behind the directory that the table has for it: relative
 * if both are. Lives as long as the table; NULL if there is no such file.
 */
const char *linetable_file(struct linetable *table, uint64_t file);

#endif
