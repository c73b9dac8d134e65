// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/symbols.h"

#include "resolver/array.h"
#include "resolver/intervals.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
	struct symbol symbol;
	uint64_t limit;	  /* end of its section */
	uint32_t order;	  /* of adding */
	uint16_t demerit; /* lowest wins among symbols at one address */
	bool sized;
};

struct symbols {
	struct candidate *candidate;
	size_t count;
	struct intervals intervals; /* value: index of the candidate */
};

struct error *symbols_create(struct symbols **ret)
{
	struct symbols *symbols = calloc(1, sizeof(*symbols));

	if (!symbols)
		return error_memory();
	*ret = symbols;
	return NULL;
}

void symbols_free(struct symbols *symbols)
{
	if (!symbols)
		return;
	intervals_deinit(&symbols->intervals);
	free(symbols->candidate);
	free(symbols);
}

static uint16_t leading_underscores(const char *name)
{
	size_t count = strspn(name, "_");

	return count < 15 ? (uint16_t)count : 15;
}

/* The order of preference that the header promises, as one number. */
static uint16_t demerit(const struct elffile_symbol *symbol)
{
	uint16_t untyped = symbol->type == STT_NOTYPE;
	uint16_t unsized = symbol->size == 0;
	uint16_t local = symbol->bind == STB_LOCAL;
	uint16_t weak = symbol->bind == STB_WEAK;

	return (uint16_t)(untyped << 7 | unsized << 6 | local << 5 |
			  leading_underscores(symbol->name) << 1 | weak);
}

/*
 * Untyped symbols in code are labels of assembly files; those that begin with $
 * are marks for disassemblers (where data begins in code).
 */
static bool is_function(const struct elffile_symbol *symbol, const struct elffile_section *section)
{
	if (!symbol->name[0])
		return false;
	if (symbol->type == STT_FUNC || symbol->type == STT_GNU_IFUNC)
		return true;
	return symbol->type == STT_NOTYPE && symbol->name[0] != '$' && section &&
	       (section->flags & SHF_EXECINSTR);
}

static uint64_t section_end(const struct elffile_section *section, uint64_t address)
{
	if (!section || address < section->address || address - section->address >= section->size)
		return UINT64_MAX;
	return section->address + section->size;
}

static struct error *append(struct symbols *symbols, const struct elffile_symbol *symbol,
			    const struct elffile_section *section)
{
	struct candidate *candidate;
	uint64_t limit = section_end(section, symbol->value);
	struct error *err = array_grow(&symbols->candidate, symbols->count, 1);

	if (err)
		return err;
	candidate = &symbols->candidate[symbols->count];
	*candidate = (struct candidate){
		.symbol = {.start = symbol->value,
			   .end = symbol->value + symbol->size,
			   .name = symbol->name},
		.limit = limit,
		.order = (uint32_t)symbols->count++,
		.demerit = demerit(symbol),
		.sized = symbol->size != 0,
	};
	/* A wild size: too large for its section, or for an address. */
	if (candidate->symbol.end > limit || candidate->symbol.end < candidate->symbol.start)
		candidate->symbol.end = limit;
	return NULL;
}

struct error *symbols_add(struct symbols *symbols, struct elffile *file, enum elffile_table table)
{
	size_t count = elffile_symbol_count(file, table);
	const struct elffile_section *sections;
	size_t section_count = elffile_sections(file, &sections);

	for (size_t i = 0; i < count; i++) {
		const struct elffile_section *section = NULL;
		struct elffile_symbol symbol;
		struct error *err;

		if (!elffile_symbol(file, table, i, &symbol) || symbol.section == SHN_UNDEF)
			continue;
		if (symbol.section < section_count)
			section = &sections[symbol.section];
		if (!is_function(&symbol, section))
			continue;
		/* The table lacks the functions in between that would end it. */
		if (table == ELFFILE_DYNSYM && !symbol.size)
			continue;
		err = append(symbols, &symbol, section);
		if (err)
			return err;
	}
	return NULL;
}

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int compare_candidates(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	int order = compare(a->symbol.start, b->symbol.start);

	if (!order)
		order = compare(a->demerit, b->demerit);
	return order ? order : compare(a->order, b->order);
}

/* Keep the first, that is the best, of those that start at one address. */
static void drop_aliases(struct symbols *symbols)
{
	struct candidate *all = symbols->candidate;
	size_t kept = 0;

	for (size_t i = 0; i < symbols->count; i++) {
		if (!kept || all[kept - 1].symbol.start != all[i].symbol.start)
			all[kept++] = all[i];
	}
	symbols->count = kept;
}

/*
 * Give symbols without a size their end. One inside a function that has a size
 * is a label in it, not a function: it stays empty and is never found.
 */
static void end_unsized(struct symbols *symbols)
{
	uint64_t covered = 0; /* the sized ones so far reach up to here */

	for (size_t i = 0; i < symbols->count; i++) {
		struct candidate *candidate = &symbols->candidate[i];
		uint64_t end = candidate->limit;

		if (candidate->sized) {
			if (candidate->symbol.end > covered)
				covered = candidate->symbol.end;
			continue;
		}
		if (candidate->symbol.start < covered)
			continue;
		if (i + 1 < symbols->count && symbols->candidate[i + 1].symbol.start < end)
			end = symbols->candidate[i + 1].symbol.start;
		/* Without a section to end at, the last symbol would reach to the end of memory. */
		candidate->symbol.end = end == UINT64_MAX ? candidate->symbol.start : end;
	}
}

struct error *symbols_seal(struct symbols *symbols)
{
	if (!symbols->count)
		return NULL;
	qsort(symbols->candidate, symbols->count, sizeof(*symbols->candidate), compare_candidates);
	drop_aliases(symbols);
	end_unsized(symbols);
	for (size_t i = 0; i < symbols->count; i++) {
		const struct symbol *symbol = &symbols->candidate[i].symbol;
		struct error *err =
			intervals_add(&symbols->intervals, symbol->start, symbol->end, (uint32_t)i);

		if (err)
			return err;
	}
	intervals_seal(&symbols->intervals);
	return NULL;
}

size_t symbols_count(const struct symbols *symbols)
{
	return symbols->intervals.count;
}

const struct symbol *symbols_find(const struct symbols *symbols, uint64_t vaddr)
{
	const struct interval *interval = intervals_find(&symbols->intervals, vaddr);

	return interval ? &symbols->candidate[interval->value].symbol : NULL;
}
