/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Addresses to functions, files and lines: the front over symbol tables, debug
 * files and DWARF of all modules.
 *
 * Modules are added while the target lives, which costs next to nothing; a file
 * is read when the first address in it is asked for. Answers are kept. No
 * broken or missing file is an error here: its addresses resolve to less, and
 * symbolizer_module_info() says why.
 *
 * One thread at a time per symbolizer. All strings belong to the symbolizer,
 * are interned (equal text is the same pointer) and live as long as it does.
 * They are as in the files: print them through text.h.
 */
#ifndef RESOLVER_SYMBOLIZER_H
#define RESOLVER_SYMBOLIZER_H

#include "resolver/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbolizer;

struct symbolizer_options {
	bool no_debug_files; /* do not look for separate debug files */
	bool no_lines;	     /* symbols only: no files, lines or inlined frames */
};

struct symbolizer_module {
	const char *path; /* as the target names it */
	int fd; /* the mapped file, kept by the caller only during the call; -1: open path below
		   root */
	const char *root; /* root directory of the target, e.g. "/proc/123/root"; NULL for ours */
	const uint8_t *build_id; /* found in the target's memory; the file must have the same one */
	size_t build_id_size;	 /* 0 if unknown: the file is then taken as it is */
};

struct symbolizer_frame {
	const char *function;	  /* demangled; NULL unknown */
	const char *linkage_name; /* as in the symbol table; NULL unknown */
	const char *file;	  /* NULL unknown */
	uint32_t line;		  /* 0 unknown */
	bool inlined;
};

enum symbolizer_source {
	SYMBOLIZER_NONE,
	SYMBOLIZER_DYNSYM,    /* exported functions only: many addresses have no name */
	SYMBOLIZER_DEBUGDATA, /* .gnu_debugdata */
	SYMBOLIZER_SYMTAB,    /* the file's own full table */
	SYMBOLIZER_DEBUGFILE, /* a separate debug file's full table */
};

struct symbolizer_info {
	const char *path;
	const char *build_id; /* lower-case hex; "" if there is none */
	enum symbolizer_source source;
	const char *debug_file;	  /* path of the separate debug file that is used, or NULL */
	size_t symbols;		  /* functions in the index */
	bool lines;		  /* files and lines are known */
	const char *why_no_names; /* one sentence; NULL if source is a full table */
	const char *why_no_lines; /* one sentence; NULL if lines */
};

/* @options may be NULL. */
MUST_CHECK struct error *symbolizer_create(const struct symbolizer_options *options,
					   struct symbolizer **ret);
/* NULL is fine. */
void symbolizer_free(struct symbolizer *symbolizer);

/*
 * Add a module; strings and build id are copied, the descriptor is duplicated.
 * With fd -1 the path is opened now. A file that cannot be opened is no error.
 *
 * Returns ERROR_MEMORY only. *module_ret numbers the modules from 0.
 */
MUST_CHECK struct error *symbolizer_add(struct symbolizer *symbolizer,
					const struct symbolizer_module *module,
					uint32_t *module_ret);

/*
 * The frames at an address, innermost (inlined) first; the last one is the
 * physical function. There is always at least one; all its fields may be unknown.
 *
 * @vaddr  unrelocated; for a return address pass it less 1, so that it is in the call
 *
 * Errors: ERROR_MEMORY; ERROR_NOT_FOUND for a module number never given out.
 */
MUST_CHECK struct error *symbolizer_resolve(struct symbolizer *symbolizer, uint32_t module,
					    uint64_t vaddr,
					    const struct symbolizer_frame **frames_ret,
					    size_t *count_ret);

/* Reads the module's files if that has not happened yet. */
MUST_CHECK struct error *symbolizer_module_info(struct symbolizer *symbolizer, uint32_t module,
						struct symbolizer_info *ret);

/* "symbol table", "debug file", ...: for reports. */
const char *symbolizer_source_name(enum symbolizer_source source);

#endif
