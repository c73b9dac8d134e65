// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/dynamic.h"

#include "resolver/cleanup.h"

#include <string.h>

#define ENTRIES_MAX 1024u      /* of a dynamic section; real ones have about 30 */
#define HASH_MAX    (4u << 20) /* buckets */
#define CHUNK	    4096u      /* words of a chain, or relocations, read at once */

/* The raw values that dynamic_parse() works from, before they are placed. */
struct raw {
	uint64_t symtab, strtab, strsz, hash, gnu_hash, versym, soname;
	uint64_t jmprel, pltrelsz, pltrel, rela, relasz, rel, relsz, pltgot;
	bool has_soname;
};

static struct error *format_error(const struct dynamic *dynamic, const char *what, uint64_t value)
{
	return error_create(ERROR_FORMAT, "object at 0x%llx: %s (0x%llx) is out of bounds",
			    (unsigned long long)dynamic->low, what, (unsigned long long)value);
}

/*
 * glibc relocates the addresses in the section in place; musl, the vDSO and
 * read-only sections keep the file's. Whichever lies in the object is meant.
 */
static bool place(const struct dynamic *dynamic, uint64_t value, uint64_t size, uint64_t *ret)
{
	const uint64_t tries[2] = {value, value + dynamic->bias};

	for (int i = 0; i < 2; i++) {
		if (tries[i] >= dynamic->low && tries[i] < dynamic->high &&
		    size <= dynamic->high - tries[i]) {
			*ret = tries[i];
			return true;
		}
	}
	return false;
}

static void take_entry(struct dynamic *dynamic, struct raw *raw, const Elf64_Dyn *entry,
		       uint64_t address)
{
	uint64_t value = entry->d_un.d_val;

	switch (entry->d_tag) {
	case DT_SYMTAB:
		raw->symtab = value;
		break;
	case DT_STRTAB:
		raw->strtab = value;
		break;
	case DT_STRSZ:
		raw->strsz = value;
		break;
	case DT_HASH:
		raw->hash = value;
		break;
	case DT_GNU_HASH:
		raw->gnu_hash = value;
		break;
	case DT_VERSYM:
		raw->versym = value;
		break;
	case DT_SONAME:
		raw->soname = value;
		raw->has_soname = true;
		break;
	case DT_NEEDED:
		if (dynamic->needed_count < DYNAMIC_NEEDED_MAX && value <= UINT32_MAX)
			dynamic->needed[dynamic->needed_count++] = (uint32_t)value;
		break;
	case DT_JMPREL:
		raw->jmprel = value;
		break;
	case DT_PLTRELSZ:
		raw->pltrelsz = value;
		break;
	case DT_PLTREL:
		raw->pltrel = value;
		break;
	case DT_RELA:
		raw->rela = value;
		break;
	case DT_RELASZ:
		raw->relasz = value;
		break;
	case DT_REL:
		raw->rel = value;
		break;
	case DT_RELSZ:
		raw->relsz = value;
		break;
	case DT_PLTGOT:
		raw->pltgot = value;
		break;
	case DT_DEBUG:
		dynamic->debug = value;
		dynamic->debug_address = address + offsetof(Elf64_Dyn, d_un);
		break;
	case DT_AUDIT:
	case DT_DEPAUDIT:
		dynamic->has_audit = true;
		break;
	case DT_FLAGS:
		dynamic->bind_now |= value & DF_BIND_NOW;
		break;
	case DT_FLAGS_1:
		dynamic->bind_now |= value & DF_1_NOW;
		break;
	default:
		break;
	}
}

static struct error *read_section(const struct memory_reader *memory, uint64_t section,
				  uint64_t size, struct dynamic *dynamic, struct raw *raw)
{
	size_t count = size / sizeof(Elf64_Dyn);
	CLEANUP(freep) Elf64_Dyn *entries = NULL;
	struct error *err;

	if (section < dynamic->low || section >= dynamic->high || size > dynamic->high - section)
		return format_error(dynamic, "the dynamic section", section);
	if (count > ENTRIES_MAX)
		count = ENTRIES_MAX;
	entries = calloc(count ? count : 1, sizeof(*entries));
	if (!entries)
		return error_memory();
	err = memory_read(memory, section, entries, count * sizeof(*entries));
	if (err)
		return err;
	for (size_t i = 0; i < count && entries[i].d_tag != DT_NULL; i++)
		take_entry(dynamic, raw, &entries[i], section + i * sizeof(*entries));
	return NULL;
}

static bool table_place(const struct dynamic *dynamic, uint64_t address, uint64_t size, bool rela,
			struct dynamic_table *ret)
{
	size_t entry = rela ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);

	if (!address || !size)
		return true;
	if (size / entry > DYNAMIC_RELOCATIONS_MAX || !place(dynamic, address, size, &ret->address))
		return false;
	ret->size = size - size % entry;
	ret->rela = rela;
	return true;
}

static struct error *place_relocations(struct dynamic *dynamic, const struct raw *raw)
{
	bool rela = raw->rela && raw->relasz;

	if (!table_place(dynamic, raw->jmprel, raw->pltrelsz, raw->pltrel != DT_REL,
			 &dynamic->jmprel))
		return format_error(dynamic, "DT_JMPREL", raw->jmprel);
	if (!table_place(dynamic, rela ? raw->rela : raw->rel, rela ? raw->relasz : raw->relsz,
			 rela, &dynamic->relocations))
		return format_error(dynamic, "DT_RELA", rela ? raw->rela : raw->rel);
	return NULL;
}

/* Words of a chain up to the end mark of the bucket that begins last. */
static struct error *read_chain(const struct memory_reader *memory, uint64_t address, uint32_t last,
				struct dynamic *dynamic)
{
	uint32_t count = last;
	uint32_t piece[256];
	uint64_t room;
	struct error *err;

	for (;;) {
		size_t words = sizeof(piece) / sizeof(piece[0]), i = 0;
		uint64_t at = address + (uint64_t)count * 4;

		room = at < dynamic->high ? (dynamic->high - at) / 4 : 0;
		if (words > room)
			words = room;
		if (!words || count > DYNAMIC_SYMBOLS_MAX)
			return format_error(dynamic, "a hash chain", at);
		err = memory_read(memory, at, piece, words * 4);
		if (err)
			return err;
		while (i < words && !(piece[i] & 1))
			i++;
		count += i;
		if (i < words)
			break;
	}
	dynamic->chain_count = count + 1;
	dynamic->chain = calloc(dynamic->chain_count, 4);
	if (!dynamic->chain)
		return error_memory();
	return memory_read(memory, address, dynamic->chain, (size_t)dynamic->chain_count * 4);
}

/* struct: nbuckets, symoffset, bloom words, shift; u64 bloom[]; u32 bucket[]; u32 chain[] */
static struct error *read_gnu_hash(const struct memory_reader *memory, uint64_t raw,
				   struct dynamic *dynamic)
{
	uint32_t header[4], last = 0;
	uint64_t address, buckets;
	struct error *err;

	if (!place(dynamic, raw, sizeof(header), &address))
		return format_error(dynamic, "DT_GNU_HASH", raw);
	err = memory_read(memory, address, header, sizeof(header));
	if (err)
		return err;
	buckets = address + sizeof(header) + (uint64_t)header[2] * 8;
	if (!header[0] || header[0] > HASH_MAX || buckets >= dynamic->high ||
	    (uint64_t)header[0] * 4 > dynamic->high - buckets)
		return format_error(dynamic, "the number of hash buckets", header[0]);
	dynamic->bucket = calloc(header[0], 4);
	if (!dynamic->bucket)
		return error_memory();
	dynamic->bucket_count = header[0];
	dynamic->chain_first = header[1];
	err = memory_read(memory, buckets, dynamic->bucket, (size_t)header[0] * 4);
	if (err)
		return err;
	for (uint32_t i = 0; i < header[0]; i++) {
		if (dynamic->bucket[i] > last)
			last = dynamic->bucket[i];
	}
	if (last < dynamic->chain_first) /* nothing is exported */
		return NULL;
	return read_chain(memory, buckets + (uint64_t)header[0] * 4, last - dynamic->chain_first,
			  dynamic);
}

static bool note_highest_symbol(void *ctx, const struct dynamic_relocation *relocation)
{
	uint32_t *highest = ctx;

	if (relocation->symbol > *highest)
		*highest = relocation->symbol;
	return true;
}

/* No table says how many symbols there are. */
static struct error *count_symbols(const struct memory_reader *memory, const struct raw *raw,
				   struct dynamic *dynamic, uint64_t *ret)
{
	uint32_t words[2], highest = 0;
	uint64_t address;
	struct error *err;

	if (raw->hash && place(dynamic, raw->hash, sizeof(words), &address)) {
		err = memory_read(memory, address, words, sizeof(words));
		if (err)
			return err;
		*ret = words[1];
		return NULL;
	}
	if (dynamic->chain_count) {
		*ret = (uint64_t)dynamic->chain_first + dynamic->chain_count;
		return NULL;
	}
	/* Undefined symbols are in no GNU hash: only the relocations name them. */
	err = dynamic_relocations(memory, dynamic, note_highest_symbol, &highest);
	if (err)
		return err;
	*ret = (uint64_t)highest + 1;
	return NULL;
}

static struct error *read_symbols(const struct memory_reader *memory, const struct raw *raw,
				  struct dynamic *dynamic)
{
	uint64_t count, address;
	struct error *err;

	err = count_symbols(memory, raw, dynamic, &count);
	if (err)
		return err;
	if (count > DYNAMIC_SYMBOLS_MAX)
		return format_error(dynamic, "the number of symbols", count);
	if (!place(dynamic, raw->symtab, count * sizeof(Elf64_Sym), &address))
		return format_error(dynamic, "DT_SYMTAB", raw->symtab);
	dynamic->symbol = calloc(count ? count : 1, sizeof(Elf64_Sym));
	if (!dynamic->symbol)
		return error_memory();
	err = memory_read(memory, address, dynamic->symbol, count * sizeof(Elf64_Sym));
	if (err)
		return err;
	dynamic->symbol_count = count;
	if (!raw->versym || !place(dynamic, raw->versym, count * 2, &address))
		return NULL;
	dynamic->version = calloc(count ? count : 1, 2);
	if (!dynamic->version)
		return error_memory();
	return memory_read(memory, address, dynamic->version, count * 2);
}

static void drop_bad_needed(struct dynamic *dynamic)
{
	size_t kept = 0;

	for (size_t i = 0; i < dynamic->needed_count; i++) {
		if (dynamic->needed[i] < dynamic->string_size)
			dynamic->needed[kept++] = dynamic->needed[i];
	}
	dynamic->needed_count = kept;
}

static struct error *read_strings(const struct memory_reader *memory, const struct raw *raw,
				  struct dynamic *dynamic)
{
	uint64_t address;
	struct error *err;

	if (raw->strsz > DYNAMIC_STRINGS_MAX || !place(dynamic, raw->strtab, raw->strsz, &address))
		return format_error(dynamic, "DT_STRTAB", raw->strtab);
	dynamic->string = malloc(raw->strsz + 1);
	if (!dynamic->string)
		return error_memory();
	err = memory_read(memory, address, dynamic->string, raw->strsz);
	if (err)
		return err;
	dynamic->string[raw->strsz] = '\0';
	dynamic->string_size = raw->strsz;
	if (raw->has_soname && raw->soname < raw->strsz)
		dynamic->soname = dynamic->string + raw->soname;
	drop_bad_needed(dynamic);
	return NULL;
}

static struct error *parse(const struct memory_reader *memory, uint64_t section,
			   uint64_t section_size, struct dynamic *dynamic)
{
	struct raw raw = {0};
	struct error *err;

	err = read_section(memory, section, section_size, dynamic, &raw);
	if (err)
		return err;
	if (raw.pltgot && !place(dynamic, raw.pltgot, 8, &dynamic->pltgot))
		dynamic->pltgot = 0;
	err = place_relocations(dynamic, &raw);
	if (err)
		return err;
	if (!raw.symtab || !raw.strtab) { /* nothing has a name here */
		dynamic->needed_count = 0;
		return NULL;
	}
	err = read_strings(memory, &raw, dynamic);
	if (!err && raw.gnu_hash)
		err = read_gnu_hash(memory, raw.gnu_hash, dynamic);
	if (!err)
		err = read_symbols(memory, &raw, dynamic);
	return err;
}

struct error *dynamic_parse(const struct memory_reader *memory, uint64_t section,
			    uint64_t section_size, uint64_t bias, uint64_t low, uint64_t high,
			    struct dynamic *ret)
{
	struct dynamic dynamic = {.bias = bias, .low = low, .high = high};
	struct error *err;

	err = parse(memory, section, section_size, &dynamic);
	if (err) {
		dynamic_deinit(&dynamic);
		return err;
	}
	*ret = dynamic;
	return NULL;
}

void dynamic_deinit(struct dynamic *dynamic)
{
	free(dynamic->symbol);
	free(dynamic->string);
	free(dynamic->version);
	free(dynamic->bucket);
	free(dynamic->chain);
	*dynamic = (struct dynamic){0};
}

const char *dynamic_symbol_name(const struct dynamic *dynamic, size_t index)
{
	if (index >= dynamic->symbol_count ||
	    dynamic->symbol[index].st_name >= dynamic->string_size)
		return "";
	return dynamic->string + dynamic->symbol[index].st_name;
}

static bool symbol_is_definition(const Elf64_Sym *symbol)
{
	unsigned int bind = ELF64_ST_BIND(symbol->st_info);
	unsigned int visibility = ELF64_ST_VISIBILITY(symbol->st_other);

	return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
	       (bind == STB_GLOBAL || bind == STB_WEAK || bind == STB_GNU_UNIQUE) &&
	       (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
}

/* Bit 15 of a version marks a definition that new links do not choose. */
static bool version_is_default(const struct dynamic *dynamic, size_t index)
{
	return !dynamic->version || !(dynamic->version[index] & 0x8000);
}

/* @ret keeps the best so far; true if there can be no better one. */
static bool consider(const struct dynamic *dynamic, size_t index, const char *name,
		     const Elf64_Sym **ret)
{
	const Elf64_Sym *symbol = &dynamic->symbol[index];

	if (!symbol_is_definition(symbol) || strcmp(dynamic_symbol_name(dynamic, index), name) != 0)
		return false;
	if (!version_is_default(dynamic, index)) {
		if (!*ret)
			*ret = symbol;
		return false;
	}
	*ret = symbol;
	return true;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

static const Elf64_Sym *find_hashed(const struct dynamic *dynamic, const char *name)
{
	uint32_t hash = gnu_hash(name);
	uint32_t index = dynamic->bucket[hash % dynamic->bucket_count];
	const Elf64_Sym *found = NULL;

	if (index < dynamic->chain_first)
		return NULL;
	for (uint32_t i = index - dynamic->chain_first; i < dynamic->chain_count; i++) {
		size_t symbol = (size_t)dynamic->chain_first + i;

		if (symbol >= dynamic->symbol_count)
			break;
		if ((dynamic->chain[i] | 1) == (hash | 1) &&
		    consider(dynamic, symbol, name, &found))
			break;
		if (dynamic->chain[i] & 1)
			break;
	}
	return found;
}

const Elf64_Sym *dynamic_find(const struct dynamic *dynamic, const char *name)
{
	const Elf64_Sym *found = NULL;

	if (dynamic->bucket)
		return dynamic->chain ? find_hashed(dynamic, name) : NULL;
	for (size_t i = 0; i < dynamic->symbol_count; i++) {
		if (consider(dynamic, i, name, &found))
			break;
	}
	return found;
}

static void relocation_take(const struct dynamic *dynamic, const Elf64_Rela *rela,
			    struct dynamic_relocation *ret)
{
	*ret = (struct dynamic_relocation){
		.address = rela->r_offset + dynamic->bias,
		.type = (uint32_t)ELF64_R_TYPE(rela->r_info),
		.symbol = (uint32_t)ELF64_R_SYM(rela->r_info),
		.addend = rela->r_addend,
	};
}

static struct error *visit_table(const struct memory_reader *memory, const struct dynamic *dynamic,
				 const struct dynamic_table *table,
				 bool (*visit)(void *ctx,
					       const struct dynamic_relocation *relocation),
				 void *ctx, bool *go_on)
{
	size_t entry = table->rela ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
	CLEANUP(freep) unsigned char *buf = malloc(CHUNK * entry);
	struct error *err;

	if (!buf)
		return error_memory();
	for (uint64_t done = 0; *go_on && done < table->size;) {
		size_t size = CHUNK * entry;

		if (size > table->size - done)
			size = table->size - done;
		err = memory_read(memory, table->address + done, buf, size);
		if (err)
			return err;
		done += size;
		for (size_t at = 0; *go_on && at + entry <= size; at += entry) {
			struct dynamic_relocation relocation;
			Elf64_Rela rela = {0};

			memcpy(&rela, buf + at, entry);
			relocation_take(dynamic, &rela, &relocation);
			if (relocation.address >= dynamic->low &&
			    relocation.address < dynamic->high &&
			    dynamic->high - relocation.address >= 8)
				*go_on = visit(ctx, &relocation);
		}
	}
	return NULL;
}

struct error *dynamic_relocations(const struct memory_reader *memory, const struct dynamic *dynamic,
				  bool (*visit)(void *ctx,
						const struct dynamic_relocation *relocation),
				  void *ctx)
{
	bool go_on = true;
	struct error *err = NULL;

	if (dynamic->jmprel.address)
		err = visit_table(memory, dynamic, &dynamic->jmprel, visit, ctx, &go_on);
	if (!err && dynamic->relocations.address)
		err = visit_table(memory, dynamic, &dynamic->relocations, visit, ctx, &go_on);
	return err;
}
