/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One mapped ELF object turned into a struct module; used by modules.c alone.
 */
#ifndef INJECTOR_MODULE_READ_H
#define INJECTOR_MODULE_READ_H

#include "injector/modules.h"

/* What is known of an object before its memory is looked at. */
struct module_hint {
	const char *name;
	uint64_t bias;
	uint64_t dynamic;	   /* 0 = take the one that PT_DYNAMIC names */
	uint64_t link_map;	   /* 0 = none */
	uint64_t phdr, phdr_count; /* program headers; 0 = find them through the ELF header */
	uint32_t name_space;
};

/*
 * Parse the object. Headers or tables that make no sense leave a module with
 * ->problem set and without tables; only running out of memory, or nothing
 * being mapped there (ERROR_NOT_FOUND), is an error.
 */
MUST_CHECK struct error *module_read(const struct memory_reader *memory, const struct maps *maps,
				     const struct module_hint *hint, struct module **ret);

/* NULL is fine. */
void module_free(struct module *module);
void module_freep(struct module **module);

/* Open the mapped file through /proc/@pid; leaves ->fd at -1 if that fails. */
void module_open(struct module *module, const struct maps *maps, pid_t pid);

/*
 * Bias of an object whose program headers are at @phdr: from PT_PHDR, else
 * from where its first page is mapped.
 */
MUST_CHECK struct error *module_bias(const struct memory_reader *memory, const struct maps *maps,
				     uint64_t phdr, uint64_t phdr_count, uint64_t *ret);

#endif
