// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/module_read.h"

#include "injector/arch.h"
#include "injector/functions.h"
#include "resolver/array.h"
#include "resolver/cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define PAGE_MASK     ((uint64_t)HA_PAGE - 1)
#define USER_END      (1ull << 47)  /* x86-64 user addresses end here */
#define OBJECT_MAX    (1ull << 40)  /* bytes of address space of one object */
#define NOTES_MAX     (64u * 1024u) /* bytes of one PT_NOTE that are looked at */
#define DYNAMIC_MAX   (64u * 1024u) /* bytes of a dynamic section */
#define BACKWARD_MAPS 64	    /* mappings before l_ld's among which the header is sought */

struct headers {
	Elf64_Phdr phdr[MODULE_SEGMENTS];
	size_t count;
};

static struct error *read_phdrs(const struct memory_reader *memory, uint64_t address,
				uint64_t count, struct headers *ret)
{
	ret->count = count < MODULE_SEGMENTS ? count : MODULE_SEGMENTS;
	return memory_read(memory, address, ret->phdr, ret->count * sizeof(ret->phdr[0]));
}

static bool ehdr_is_good(const Elf64_Ehdr *ehdr)
{
	return memcmp(ehdr->e_ident, ELFMAG, SELFMAG) == 0 &&
	       ehdr->e_ident[EI_CLASS] == ELFCLASS64 && ehdr->e_ident[EI_DATA] == ELFDATA2LSB &&
	       ehdr->e_phentsize == sizeof(Elf64_Phdr) && ehdr->e_phnum != 0;
}

static const Elf64_Phdr *find_phdr(const struct headers *headers, uint32_t type)
{
	for (size_t i = 0; i < headers->count; i++) {
		if (headers->phdr[i].p_type == type)
			return &headers->phdr[i];
	}
	return NULL;
}

/* True if an object with this bias and dynamic section begins at @base. */
static bool headers_at(const struct memory_reader *memory, uint64_t base,
		       const struct module_hint *hint, struct headers *ret)
{
	CLEANUP(error_freep) struct error *err = NULL;
	const Elf64_Phdr *dynamic;
	Elf64_Ehdr ehdr;

	if (!memory_try(memory, base, &ehdr, sizeof(ehdr)) || !ehdr_is_good(&ehdr))
		return false;
	err = read_phdrs(memory, base + ehdr.e_phoff, ehdr.e_phnum, ret);
	if (err)
		return false;
	dynamic = find_phdr(ret, PT_DYNAMIC);
	return !hint->dynamic || (dynamic && dynamic->p_vaddr + hint->bias == hint->dynamic);
}

static size_t map_index(const struct maps *maps, uint64_t address)
{
	const struct map *map = maps_find(maps, address);

	return map ? (size_t)(map - maps->map) : maps->count;
}

/*
 * The ELF header is at the bias of most objects. One linked at a fixed address
 * has it at the first page of its file, mapped shortly before its dynamic section.
 */
static struct error *find_headers(const struct memory_reader *memory, const struct maps *maps,
				  const struct module_hint *hint, struct headers *ret)
{
	size_t index;

	if (hint->phdr)
		return read_phdrs(memory, hint->phdr, hint->phdr_count, ret);
	if (headers_at(memory, hint->bias, hint, ret))
		return NULL;
	index = map_index(maps, hint->dynamic);
	if (index == maps->count)
		return error_create(ERROR_NOT_FOUND, "nothing is mapped at 0x%llx",
				    (unsigned long long)hint->dynamic);
	for (int i = 0; i < BACKWARD_MAPS && index < maps->count; i++, index--) {
		if (maps->map[index].offset == 0 &&
		    headers_at(memory, maps->map[index].start, hint, ret))
			return NULL;
	}
	return error_create(ERROR_FORMAT, "no ELF header belongs to the dynamic section at 0x%llx",
			    (unsigned long long)hint->dynamic);
}

struct error *module_bias(const struct memory_reader *memory, const struct maps *maps,
			  uint64_t phdr, uint64_t phdr_count, uint64_t *ret)
{
	const Elf64_Phdr *self;
	struct headers headers;
	const struct map *map;
	struct error *err;

	err = read_phdrs(memory, phdr, phdr_count, &headers);
	if (err)
		return error_prefix(err, "program headers of the executable");
	self = find_phdr(&headers, PT_PHDR);
	if (self) {
		*ret = phdr - self->p_vaddr;
		return NULL;
	}
	map = maps_find(maps, phdr);
	for (size_t i = 0; map && i < headers.count; i++) {
		if (headers.phdr[i].p_type == PT_LOAD) {
			*ret = map->start - map->offset -
			       (headers.phdr[i].p_vaddr - headers.phdr[i].p_offset);
			return NULL;
		}
	}
	return error_create(ERROR_FORMAT, "the executable has no loaded segment");
}

/* ---- segments */

static struct error *take_segments(struct module *module, const struct headers *headers)
{
	uint64_t low = UINT64_MAX, high = 0;

	for (size_t i = 0; i < headers->count; i++) {
		const Elf64_Phdr *phdr = &headers->phdr[i];
		struct module_range range;

		if (phdr->p_type != PT_LOAD || !phdr->p_memsz)
			continue;
		range.start = (phdr->p_vaddr + module->bias) & ~PAGE_MASK;
		range.end = (phdr->p_vaddr + module->bias + phdr->p_memsz + PAGE_MASK) & ~PAGE_MASK;
		if (range.end <= range.start || range.end > USER_END ||
		    range.end - range.start > OBJECT_MAX)
			return error_create(ERROR_FORMAT, "segment %zu has impossible bounds", i);
		if (phdr->p_flags & PF_X)
			module->exec[module->exec_count++] = range;
		else
			module->data[module->data_count++] = range;
		low = range.start < low ? range.start : low;
		high = range.end > high ? range.end : high;
	}
	if (low >= high || high - low > OBJECT_MAX)
		return error_create(ERROR_FORMAT, "it has no loaded segment");
	module->low = low;
	module->high = high;
	return NULL;
}

static bool in_module(const struct module *module, uint64_t address, uint64_t size)
{
	return address >= module->low && address < module->high && size <= module->high - address;
}

static void parse_notes(struct module *module, const uint8_t *data, size_t size, size_t align)
{
	size_t at = 0;

	while (size - at >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr note;
		uint64_t desc, end;

		memcpy(&note, data + at, sizeof(note));
		desc = (at + sizeof(note) + (uint64_t)note.n_namesz + align - 1) & ~(align - 1);
		end = desc + note.n_descsz;
		if (end > size)
			return;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    memcmp(data + at + sizeof(note), "GNU", 4) == 0) {
			module->build_id_size =
				note.n_descsz < MODULE_BUILD_ID ? note.n_descsz : MODULE_BUILD_ID;
			memcpy(module->build_id, data + desc, module->build_id_size);
			return;
		}
		end = (end + align - 1) & ~(align - 1);
		if (end > size)
			return;
		at = end;
	}
}

static void take_note(const struct memory_reader *memory, struct module *module,
		      const Elf64_Phdr *phdr)
{
	uint64_t address = phdr->p_vaddr + module->bias;
	size_t size = phdr->p_memsz < NOTES_MAX ? phdr->p_memsz : NOTES_MAX;
	CLEANUP(freep) uint8_t *data = NULL;

	if (module->build_id_size || !size || !in_module(module, address, size))
		return;
	data = malloc(size);
	if (data && memory_try(memory, address, data, size))
		parse_notes(module, data, size, phdr->p_align == 8 ? 8 : 4);
}

/* ---- what the object says about itself */

static bool kind_of_relocation(const struct dynamic_relocation *relocation, uint8_t *ret)
{
	switch (arch_relocation_kind(relocation->type)) {
	case ARCH_RELOCATION_JUMP_SLOT:
		*ret = REFERENCE_JUMP_SLOT;
		return true;
	case ARCH_RELOCATION_GLOB_DAT:
		*ret = REFERENCE_GLOB_DAT;
		return true;
	case ARCH_RELOCATION_ADDRESS:
		*ret = REFERENCE_ADDRESS;
		return relocation->addend == 0;
	default:
		return false;
	}
}

struct collect {
	struct module *module;
	struct error *err;
};

static bool collect_reference(void *ctx, const struct dynamic_relocation *relocation)
{
	struct collect *collect = ctx;
	struct module *module = collect->module;
	uint8_t kind, type;
	int function;

	if (!relocation->symbol || !kind_of_relocation(relocation, &kind) ||
	    relocation->address % 8 != 0)
		return true;
	function = functions_find(dynamic_symbol_name(&module->tables, relocation->symbol));
	if (function < 0)
		return true;
	collect->err = array_grow(&module->reference, module->reference_count, 1);
	if (collect->err)
		return false;
	type = ELF64_ST_TYPE(module->tables.symbol[relocation->symbol].st_info);
	module->reference[module->reference_count++] = (struct reference){
		.address = relocation->address,
		.function = (uint16_t)function,
		.kind = kind,
		.ifunc = type == STT_GNU_IFUNC || type == STT_TLS,
	};
	return true;
}

static int reference_compare(const void *a, const void *b)
{
	const struct reference *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

/* DT_RELA may include DT_JMPREL: one word, one reference. */
static void unique_references(struct module *module)
{
	size_t kept = 0;

	if (!module->reference_count)
		return;
	qsort(module->reference, module->reference_count, sizeof(module->reference[0]),
	      reference_compare);
	for (size_t i = 0; i < module->reference_count; i++) {
		if (!kept || module->reference[kept - 1].address != module->reference[i].address)
			module->reference[kept++] = module->reference[i];
	}
	module->reference_count = kept;
}

static struct error *take_tables(const struct memory_reader *memory, struct module *module,
				 uint64_t size)
{
	struct collect collect = {.module = module};
	struct error *err;

	err = dynamic_parse(memory, module->dynamic, size < DYNAMIC_MAX ? size : DYNAMIC_MAX,
			    module->bias, module->low, module->high, &module->tables);
	if (err)
		return err;
	err = dynamic_relocations(memory, &module->tables, collect_reference, &collect);
	if (err)
		return err;
	if (collect.err)
		return collect.err;
	unique_references(module);
	return NULL;
}

static void take_path(struct module *module, const struct maps *maps)
{
	for (size_t i = map_index(maps, module->low); i < maps->count; i++) {
		const struct map *map = &maps->map[i];

		if (map->start >= module->high)
			break;
		if (!map->inode)
			continue;
		module->path = strdup(map->path);
		module->inode = map->inode;
		module->deleted = map->deleted;
		break;
	}
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool begins_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* What it is, as far as it can be told from the object alone. */
static void take_flags(const struct memory_reader *memory, struct module *module)
{
	const char *soname = module->tables.soname ? module->tables.soname : "";
	const char *file = base_name(module->path);
	const Elf64_Sym *symbol = dynamic_find(&module->tables, "malloc");
	struct {
		uint64_t magic;
		uint32_t abi;
	} head;

	module->defines_malloc = symbol && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
	module->is_loader = begins_with(soname, "ld-linux") || begins_with(file, "ld-linux") ||
			    begins_with(base_name(module->name), "ld-musl");
	/* musl's loader is its C library; some glibc loaders have a malloc, none has fopen. */
	module->is_libc = strcmp(soname, "libc.so.6") == 0 ||
			  (module->is_loader && dynamic_find(&module->tables, "fopen"));
	module->is_entry = module->high - module->low == HA_ENTRY_SIZE &&
			   memory_try(memory, module->low + HA_ENTRY_DATA, &head, sizeof(head)) &&
			   head.magic == HA_MAGIC;
	module->is_our_entry = module->is_entry && head.abi == HA_ABI;
}

static struct error *read_object(const struct memory_reader *memory, const struct maps *maps,
				 const struct module_hint *hint, struct module *module)
{
	uint64_t size = DYNAMIC_MAX;
	struct headers headers;
	struct error *err;

	err = find_headers(memory, maps, hint, &headers);
	if (err)
		return err;
	err = take_segments(module, &headers);
	if (err)
		return err;
	for (size_t i = 0; i < headers.count; i++) {
		const Elf64_Phdr *phdr = &headers.phdr[i];
		uint64_t address = phdr->p_vaddr + module->bias;

		if (phdr->p_type == PT_NOTE)
			take_note(memory, module, phdr);
		if (phdr->p_type == PT_GNU_EH_FRAME && in_module(module, address, phdr->p_memsz)) {
			module->eh_frame_hdr = address;
			module->eh_frame_hdr_size = phdr->p_memsz;
		}
		if (phdr->p_type == PT_DYNAMIC) {
			module->dynamic = module->dynamic ? module->dynamic : address;
			size = phdr->p_memsz;
		}
	}
	return module->dynamic ? take_tables(memory, module, size) : NULL;
}

/*
 * An object with bad headers still covers some addresses: those mapped around
 * l_ld. If nothing is, it came after the maps were read, or is gone again.
 */
static struct error *keep_problem(struct module *module, const struct maps *maps,
				  const struct module_hint *hint, struct error *err)
{
	const struct map *map = maps_find(maps, hint->dynamic ? hint->dynamic : hint->phdr);

	if (error_is(err, ERROR_MEMORY) || error_is(err, ERROR_GONE))
		return err;
	if (!map) {
		error_free(err);
		return error_hint(
			error_create(ERROR_BUSY,
				     "the target's loader is changing its list of objects"),
			"try again in a moment");
	}
	module->problem = strdup(error_message(err));
	error_free(err);
	if (!module->problem)
		return error_memory();
	dynamic_deinit(&module->tables);
	free(module->reference);
	module->reference = NULL;
	module->reference_count = 0;
	if (!module->high) {
		module->exec_count = module->data_count = 0;
		module->low = map->start;
		module->high = map->end;
	}
	return NULL;
}

struct error *module_read(const struct memory_reader *memory, const struct maps *maps,
			  const struct module_hint *hint, struct module **ret)
{
	CLEANUP(module_freep) struct module *module = calloc(1, sizeof(*module));
	struct error *err;

	if (!module)
		return error_memory();
	module->fd = -1;
	module->bias = hint->bias;
	module->dynamic = hint->dynamic;
	module->link_map = hint->link_map;
	module->name_space = hint->name_space;
	module->name = strdup(hint->name);
	if (!module->name)
		return error_memory();
	err = read_object(memory, maps, hint, module);
	if (err) {
		err = keep_problem(module, maps, hint, err);
		if (err)
			return err;
	}
	take_path(module, maps);
	if (!module->path)
		module->path = strdup("");
	if (!module->path)
		return error_memory();
	take_flags(memory, module);
	*ret = take(module);
	return NULL;
}

void module_free(struct module *module)
{
	if (!module)
		return;
	if (module->fd >= 0)
		close(module->fd);
	dynamic_deinit(&module->tables);
	free(module->reference);
	free(module->problem);
	free(module->name);
	free(module->path);
	free(module);
}

void module_freep(struct module **module)
{
	module_free(*module);
}

/* ---- the file */

static int open_map_file(const struct map *map, pid_t pid)
{
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", pid,
		 (unsigned long long)map->start, (unsigned long long)map->end);
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Without privileges map_files is closed: by path in the target's root, if it is the same file. */
static int open_by_path(const struct map *map, pid_t pid)
{
	CLEANUP(freep) char *path = NULL;
	CLEANUP(closep) int fd = -1;
	struct stat st;

	if (map->path[0] != '/' || asprintf(&path, "/proc/%d/root%s", pid, map->path) < 0) {
		path = NULL;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_ino != map->inode ||
	    major(st.st_dev) != map->major || minor(st.st_dev) != map->minor)
		return -1;
	return take_fd(&fd);
}

void module_open(struct module *module, const struct maps *maps, pid_t pid)
{
	struct stat st;

	for (size_t i = map_index(maps, module->low); i < maps->count; i++) {
		const struct map *map = &maps->map[i];

		if (map->start >= module->high)
			return;
		if (!map->inode)
			continue;
		module->fd = open_map_file(map, pid);
		if (module->fd >= 0 && (fstat(module->fd, &st) != 0 || !S_ISREG(st.st_mode))) {
			close(module->fd);
			module->fd = -1;
		}
		if (module->fd < 0)
			module->fd = open_by_path(map, pid);
		return;
	}
}
