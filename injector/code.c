// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/code.h"

#include <stdlib.h>
#include <string.h>

#include "resolver/cleanup.h"

/* A section larger than this is not read: no real module has one. */
#define EH_FRAME_MAX (512ull << 20)

void code_deinit(struct code *code)
{
	size_t i;

	for (i = 0; i < code->count; i++)
		ehframe_table_deinit(&code->module[i].table);
	free(code->module);
	free(code->range);
	free(code->facts);
	safepoint_context_deinit(&code->context);
	*code = (struct code){0};
}

/* End of the mapped part of the module that contains @address, or 0. */
static uint64_t segment_end(const struct module *module, uint64_t address)
{
	size_t i;

	for (i = 0; i < module->data_count; i++) {
		if (address >= module->data[i].start && address < module->data[i].end)
			return module->data[i].end;
	}
	for (i = 0; i < module->exec_count; i++) {
		if (address >= module->exec[i].start && address < module->exec[i].end)
			return module->exec[i].end;
	}
	return 0;
}

static void text_range(const struct module *module, struct ehframe_input *input)
{
	size_t i;

	input->text_low = UINT64_MAX;
	for (i = 0; i < module->exec_count; i++) {
		if (module->exec[i].start - module->bias < input->text_low)
			input->text_low = module->exec[i].start - module->bias;
		if (module->exec[i].end - module->bias > input->text_high)
			input->text_high = module->exec[i].end - module->bias;
	}
}

/*
 * Read .eh_frame through .eh_frame_hdr and compile it. Any failure leaves the
 * module without a table: frames there are stepped by frame pointer.
 */
static struct error *module_compile(const struct memory_reader *memory, const struct module *module,
				    struct ehframe_table *ret)
{
	CLEANUP(freep) uint8_t *header = NULL;
	CLEANUP(freep) uint8_t *section = NULL;
	struct ehframe_location location;
	struct ehframe_input input = {0};
	struct error *err;
	uint64_t address, end;

	if (!module->eh_frame_hdr || !module->exec_count ||
	    module->eh_frame_hdr_size > EH_FRAME_MAX)
		return error_create(ERROR_NOT_FOUND, "%s has no .eh_frame_hdr", module->name);
	header = malloc(module->eh_frame_hdr_size);
	if (!header)
		return error_memory();
	err = memory_read(memory, module->eh_frame_hdr, header, module->eh_frame_hdr_size);
	if (!err)
		err = ehframe_find(header, module->eh_frame_hdr_size,
				   module->eh_frame_hdr - module->bias, &location);
	if (err)
		return err;
	address = location.vaddr + module->bias;
	end = segment_end(module, address);
	if (end <= address || end - address > EH_FRAME_MAX)
		return error_create(ERROR_FORMAT, "%s: .eh_frame lies outside its segments",
				    module->name);
	section = malloc(end - address);
	if (!section)
		return error_memory();
	err = memory_read(memory, address, section, end - address);
	if (err)
		return err;
	input.data = section;
	input.size = end - address;
	input.vaddr = location.vaddr;
	input.last_fde = location.last_fde;
	input.full = module->is_loader;
	text_range(module, &input);
	return ehframe_compile(&input, ret);
}

static uint32_t module_facts(const struct module *module)
{
	return (module->is_libc ? SAFEPOINT_LIBC : 0) | (module->is_loader ? SAFEPOINT_LOADER : 0) |
	       (module->is_vdso ? SAFEPOINT_VDSO : 0) |
	       (module->is_executable ? SAFEPOINT_EXECUTABLE : 0) |
	       (module->is_entry ? SAFEPOINT_ENTRY : 0) |
	       (module->defines_malloc ? SAFEPOINT_DEFINES_MALLOC : 0) |
	       (module->is_permanent ? SAFEPOINT_PERMANENT : 0) |
	       (safepoint_is_internal(module->path[0] ? module->path : module->name)
			? SAFEPOINT_INTERNAL
			: 0);
}

/* Take the table over from the last list, or compile it. */
static struct error *module_take(struct code *code, const struct memory_reader *memory,
				 const struct module *module, struct code_module *ret)
{
	struct error *err;
	size_t i;

	for (i = 0; i < code->count; i++) {
		if (code->module[i].id == module->id) {
			*ret = code->module[i];
			code->module[i].table = (struct ehframe_table){0};
			return NULL;
		}
	}
	*ret = (struct code_module){.id = module->id};
	err = module_compile(memory, module, &ret->table);
	if (error_is(err, ERROR_MEMORY))
		return err;
	error_free(err);
	return NULL;
}

static int range_compare(const void *a, const void *b)
{
	const struct code_range *x = a, *y = b;

	return x->low < y->low ? -1 : x->low > y->low;
}

/* Sorted, and without the overlaps that a hostile list may claim. */
static size_t ranges_sort(struct code_range *range, size_t count)
{
	size_t kept = 0, i;

	qsort(range, count, sizeof(*range), range_compare);
	for (i = 0; i < count; i++) {
		if (range[i].low < range[i].high && (!kept || range[i].low >= range[kept - 1].high))
			range[kept++] = range[i];
	}
	return kept;
}

static struct error *maps_rebuild(struct code *code, const struct modules *modules)
{
	struct code_range *range;
	struct safepoint_module *facts;
	size_t total = 0, n = 0, i, k;

	for (i = 0; i < modules->count; i++)
		total += modules->module[i]->exec_count;
	range = calloc(total + 1, sizeof(*range));
	facts = calloc(modules->count + 1, sizeof(*facts));
	if (!range || !facts) {
		free(range);
		free(facts);
		return error_memory();
	}
	for (i = 0; i < modules->count; i++) {
		const struct module *module = modules->module[i];

		facts[i].name = module->path[0] ? module->path : module->name;
		facts[i].bias = module->bias;
		facts[i].flags = module_facts(module);
		for (k = 0; k < module->exec_count; k++) {
			range[n].low = module->exec[k].start;
			range[n].high = module->exec[k].end;
			range[n].bias = module->bias;
			range[n].table = code->module[i].table.table;
			range[n].table_size = code->module[i].table.size;
			range[n].module = (uint32_t)i;
			n++;
		}
	}
	free(code->range);
	free(code->facts);
	code->range = range;
	code->facts = facts;
	code->context.code.range = range;
	code->context.code.count = ranges_sort(range, n);
	code->context.modules = facts;
	code->context.module_count = modules->count;
	return NULL;
}

/* As much as can be read: whole, else up to the page boundaries that work. */
static size_t context_read(void *data, uint64_t address, void *buf, size_t size)
{
	return memory_read_some(data, address, buf, size);
}

/* The exported function that contains @pc, for messages. */
static const char *context_symbol(void *data, uint32_t number, uint64_t pc)
{
	const struct code *code = data;
	const struct module *module;
	size_t i;

	if (number >= code->modules->count)
		return NULL;
	module = code->modules->module[number];
	for (i = 0; i < module->tables.symbol_count; i++) {
		const Elf64_Sym *symbol = &module->tables.symbol[i];
		uint64_t start = symbol->st_value + module->bias;

		if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && pc >= start &&
		    pc - start < symbol->st_size)
			return dynamic_symbol_name(&module->tables, i);
	}
	return NULL;
}

static struct error *wrappers_rebuild(struct code *code, const struct modules *modules)
{
	struct error *err;
	size_t i;

	safepoint_context_deinit(&code->context);
	code->context.wrappers = NULL;
	code->context.wrapper_count = 0;
	for (i = 0; i < modules->count; i++) {
		const struct module *module = modules->module[i];

		if (!module->is_libc || module->is_loader)
			continue;
		err = safepoint_add_dynsym(&code->context, module->bias, module->tables.symbol,
					   module->tables.symbol_count, module->tables.string,
					   module->tables.string_size);
		if (err)
			return err;
	}
	return NULL;
}

struct error *code_update(struct code *code, const struct memory_reader *memory,
			  const struct modules *modules)
{
	struct code_module *list = calloc(modules->count + 1, sizeof(*list));
	struct error *err = NULL;
	size_t i;

	if (!list)
		return error_memory();
	for (i = 0; i < modules->count && !err; i++)
		err = module_take(code, memory, modules->module[i], &list[i]);
	for (i = 0; i < code->count; i++)
		ehframe_table_deinit(&code->module[i].table);
	free(code->module);
	code->module = list;
	code->count = modules->count;
	if (err)
		return err;
	code->memory = *memory;
	code->context.read = context_read;
	code->context.read_data = &code->memory;
	code->context.start = modules->entry_point;
	code->modules = modules;
	code->context.symbol = context_symbol;
	code->context.symbol_data = code;
	err = maps_rebuild(code, modules);
	return err ? err : wrappers_rebuild(code, modules);
}

static struct error *table_publish(struct code_module *module, struct shm *shm, uint64_t bias)
{
	if (!module->table.table || module->shm_offset)
		return NULL;
	return shm_add_table(shm, module->table.table, module->table.size, bias,
			     &module->shm_offset);
}

static uint32_t publish_flags(const struct code_module *code, const struct module *module)
{
	return (code->shm_offset ? 0 : HA_MODULE_NO_TABLE) |
	       (module->is_entry ? HA_MODULE_ENTRY : 0) |
	       (module->is_permanent ? HA_MODULE_PERMANENT : 0);
}

struct error *code_publish(struct code *code, struct shm *shm, const struct modules *modules,
			   uint32_t generation, uint64_t loads)
{
	CLEANUP(freep) struct ha_module *list = NULL;
	struct error *err;
	size_t i;

	list = calloc(code->context.code.count + 1, sizeof(*list));
	if (!list)
		return error_memory();
	for (i = 0; i < code->context.code.count; i++) {
		const struct code_range *range = &code->range[i];
		struct code_module *module = &code->module[range->module];

		err = table_publish(module, shm, range->bias);
		if (err)
			return err;
		list[i].low = range->low;
		list[i].high = range->high;
		list[i].table = module->shm_offset;
		list[i].id = module->id;
		list[i].flags = publish_flags(module, modules->module[range->module]);
	}
	return shm_publish_modules(shm, list, (uint32_t)code->context.code.count, generation,
				   loads);
}
