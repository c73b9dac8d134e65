/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Source lines and inlined calls of an address, from DWARF 2 to 5. The only
 * user of libdw.
 *
 * libdw's own searches are linear or need .debug_aranges, so this module keeps
 * its own indexes: the address ranges of all compilation units (made when the
 * file is opened), and those of the functions of each unit that is hit.
 * A unit's split .dwo file is read if it is where the unit says, in our root.
 *
 * One thread at a time per struct lines.
 */
#ifndef RESOLVER_LINES_H
#define RESOLVER_LINES_H

#include "resolver/elffile.h"
#include "resolver/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lines;

/* Of inlined calls deeper than this the innermost are left out. */
enum { LINES_MAX_FRAMES = 64 };

struct lines_frame {
	const char *linkage_name; /* mangled; NULL if the source language has none */
	const char *name;	  /* not qualified; NULL unknown */
	const char *scope;	  /* a::B, set only without linkage_name; NULL if there is none */
	const char *directory;	  /* what a relative file is relative to; NULL: file is whole */
	const char *file;	  /* NULL unknown */
	uint32_t line;		  /* 0 unknown */
	bool inlined;
};

/*
 * Read the DWARF data of @file.
 *
 * @alt   the file that .gnu_debugaltlink names, or NULL
 *
 * Errors: ERROR_NOT_FOUND (no debug info in it), ERROR_UNSUPPORTED,
 * ERROR_FORMAT. @file and @alt must live as long as the result.
 */
MUST_CHECK struct error *lines_create(struct elffile *file, struct elffile *alt,
				      struct lines **ret);
/* NULL is fine. */
void lines_free(struct lines *lines);

/*
 * The frames at an address, innermost first; the last one is the physical
 * function. Strings live as long as @lines.
 *
 * @vaddr  unrelocated address in the call instruction, not behind it
 *
 * Returns the number of frames, 0 if no unit has the address. Damaged debug
 * info yields fewer frames or fields, never an error.
 */
size_t lines_find(struct lines *lines, uint64_t vaddr, struct lines_frame ret[LINES_MAX_FRAMES]);

#endif
