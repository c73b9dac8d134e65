/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The dynamic section of one mapped ELF object, parsed from memory alone:
 * symbols, strings, hash table, relocations. No section header is needed and
 * no file is opened, so deleted, replaced and stripped objects are the same.
 *
 * Everything read is untrusted: each table must lie inside the object's
 * mapped range, each count is bounded. Addresses are the target's.
 */
#ifndef INJECTOR_DYNAMIC_H
#define INJECTOR_DYNAMIC_H

#include "injector/memory.h"

#include <elf.h>

/* Bounds on what one object may ask us to copy. */
#define DYNAMIC_SYMBOLS_MAX	(4u << 20)
#define DYNAMIC_STRINGS_MAX	(256u << 20)
#define DYNAMIC_NEEDED_MAX	256u /* libraries; further ones are not kept */
#define DYNAMIC_RELOCATIONS_MAX (32u << 20)

/* A relocation table: DT_JMPREL, DT_RELA or DT_REL. */
struct dynamic_table {
	uint64_t address; /* 0 = absent */
	uint64_t size;	  /* bytes */
	bool rela;	  /* entries have an addend */
};

struct dynamic_relocation {
	uint64_t address; /* of the word that is relocated, in the target */
	uint32_t type;	  /* a number of the machine's own: arch_relocation_kind() */
	uint32_t symbol;  /* index into dynsym; 0 = none */
	int64_t addend;	  /* 0 for DT_REL */
};

struct dynamic {
	uint64_t bias;	    /* added to the object's own addresses */
	uint64_t low, high; /* mapped range of the object */
	Elf64_Sym *symbol;  /* copy of dynsym; owned */
	size_t symbol_count;
	char *string; /* copy of dynstr, NUL after its last byte; owned */
	size_t string_size;
	uint16_t *version; /* copy of versym, symbol_count entries; NULL = none; owned */
	uint32_t *bucket;  /* GNU hash: first symbol of each bucket; NULL = none; owned */
	uint32_t bucket_count;
	uint32_t *chain; /* GNU hash: hashes of the symbols from chain_first on; owned */
	uint32_t chain_count, chain_first;
	struct dynamic_table jmprel, relocations;
	uint64_t debug;			     /* value of DT_DEBUG; 0 = none */
	uint64_t debug_address;		     /* address of the DT_DEBUG word; 0 = none */
	uint64_t pltgot;		     /* DT_PLTGOT; 0 = none */
	const char *soname;		     /* into string; NULL = none */
	uint32_t needed[DYNAMIC_NEEDED_MAX]; /* DT_NEEDED: offsets into string, all inside it */
	size_t needed_count;
	bool has_audit; /* DT_AUDIT or DT_DEPAUDIT */
	bool bind_now;	/* DF_BIND_NOW, DF_1_NOW */
};

/*
 * Parse the dynamic section at @section (target address, @section_size bytes)
 * of the object loaded with @bias over [@low, @high). ERROR_FORMAT if it makes
 * no sense. *ret is to be given to dynamic_deinit().
 */
MUST_CHECK struct error *dynamic_parse(const struct memory_reader *memory, uint64_t section,
				       uint64_t section_size, uint64_t bias, uint64_t low,
				       uint64_t high, struct dynamic *ret);

/* A zeroed struct is fine. */
void dynamic_deinit(struct dynamic *dynamic);

/* Name of symbol @index, "" if there is none. Valid as long as @dynamic is. */
const char *dynamic_symbol_name(const struct dynamic *dynamic, size_t index);

/*
 * Find a defined, visible symbol named @name; of several versions the default
 * one wins. NULL if there is none. A canonical PLT address of an executable
 * (undefined, value set) is no definition.
 */
const Elf64_Sym *dynamic_find(const struct dynamic *dynamic, const char *name);

/*
 * Call @visit for every relocation of both tables; it returns false to stop.
 * Entries outside the object's range are passed over.
 */
MUST_CHECK struct error *dynamic_relocations(
	const struct memory_reader *memory, const struct dynamic *dynamic,
	bool (*visit)(void *ctx, const struct dynamic_relocation *relocation), void *ctx);

#endif
