// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/modules.h"

#include "injector/linklist.h"
#include "injector/module_read.h"
#include "injector/target.h"
#include "resolver/array.h"
#include "resolver/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define AUXV_MAX 4096u /* bytes of /proc/PID/auxv */

/* What all steps of a reading need. */
struct context {
	const struct memory_reader *memory;
	const struct maps *maps;
	pid_t pid; /* 0 = open no files */
};

/* ---- the auxiliary vector */

struct error *module_auxv_parse(const void *data, size_t size, struct module_auxv *ret)
{
	struct module_auxv auxv = {.pagesz = HA_PAGE};

	for (size_t at = 0; size - at >= 16; at += 16) {
		uint64_t pair[2];

		memcpy(pair, (const char *)data + at, sizeof(pair));
		if (pair[0] == AT_PHDR)
			auxv.phdr = pair[1];
		else if (pair[0] == AT_PHNUM)
			auxv.phnum = pair[1];
		else if (pair[0] == AT_PHENT)
			auxv.phent = pair[1];
		else if (pair[0] == AT_ENTRY)
			auxv.entry = pair[1];
		else if (pair[0] == AT_BASE)
			auxv.base = pair[1];
		else if (pair[0] == AT_SYSINFO_EHDR)
			auxv.vdso = pair[1];
		else if (pair[0] == AT_HWCAP2)
			auxv.hwcap2 = pair[1];
		else if (pair[0] == AT_PAGESZ)
			auxv.pagesz = pair[1];
	}
	if (!auxv.phdr || !auxv.phnum || auxv.phent != sizeof(Elf64_Phdr))
		return error_create(ERROR_FORMAT, "the auxiliary vector has no program headers");
	*ret = auxv;
	return NULL;
}

struct error *module_auxv_read(pid_t pid, struct module_auxv *ret)
{
	char path[32], data[AUXV_MAX];
	CLEANUP(closep) int fd = -1;
	ssize_t size;

	snprintf(path, sizeof(path), "/proc/%d/auxv", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_os(errno, "cannot open %s", path);
	size = read(fd, data, sizeof(data));
	if (size < 0)
		return error_os(errno, "cannot read %s", path);
	return error_prefix(module_auxv_parse(data, (size_t)size, ret), "%s", path);
}

/* ---- adding objects */

static struct error *add_module(const struct context *context, const struct module_hint *hint,
				struct modules *modules, struct module **ret)
{
	CLEANUP(module_freep) struct module *module = NULL;
	struct error *err;

	err = array_grow(&modules->module, modules->count, 1);
	if (!err)
		err = module_read(context->memory, context->maps, hint, &module);
	if (err)
		return err;
	module->id = modules->next_id++;
	if (context->pid)
		module_open(module, context->maps, context->pid);
	if (ret)
		*ret = module;
	modules->module[modules->count++] = take(module);
	return NULL;
}

static struct module *find_same(const struct modules *modules, const struct link_entry *entry)
{
	for (size_t i = 0; i < modules->count; i++) {
		struct module *module = modules->module[i];

		if (module->bias == entry->bias && module->dynamic == entry->dynamic &&
		    module->link_map == entry->map && strcmp(module->name, entry->name) == 0)
			return module;
	}
	return NULL;
}

/* The object of @entry if it was parsed before the loader's list was known; else *ret stays. */
static struct error *adopt(struct modules *modules, const struct link_entry *entry,
			   struct module **ret)
{
	for (size_t i = 0; i < modules->count; i++) {
		struct module *module = modules->module[i];
		char *name;

		if (module->link_map || module->bias != entry->bias ||
		    module->dynamic != entry->dynamic)
			continue;
		name = strdup(entry->name);
		if (!name)
			return error_memory();
		free(module->name);
		module->name = name;
		module->link_map = entry->map;
		module->name_space = entry->name_space;
		*ret = module;
		return NULL;
	}
	return NULL;
}

/* What only the place in the process tells. */
static void place_flags(struct module *module, const struct modules *modules, uint64_t base)
{
	module->is_vdso =
		modules->vdso && module->low == (modules->vdso & ~((uint64_t)HA_PAGE - 1));
	if (base && module->low == base)
		module->is_loader = true;
}

static struct error *add_entries(const struct context *context, const struct link_list *list,
				 uint64_t base, struct modules *modules, size_t *added_ret)
{
	struct error *err;

	for (size_t i = 0; i < list->count; i++) {
		const struct link_entry *entry = &list->entry[i];
		struct module_hint hint = {
			.name = entry->name,
			.bias = entry->bias,
			.dynamic = entry->dynamic,
			.link_map = entry->map,
			.name_space = entry->name_space,
		};
		struct module *module = NULL;

		if (find_same(modules, entry))
			continue;
		err = adopt(modules, entry, &module);
		if (!err && !module)
			err = add_module(context, &hint, modules, &module);
		if (error_is(err, ERROR_NOT_FOUND)) {
			/* Unloaded since the list was read. */
			error_free(err);
			continue;
		}
		if (err)
			return err;
		module->is_executable = i == 0;
		place_flags(module, modules, base);
		(*added_ret)++;
	}
	return NULL;
}

static bool has_object_at(const struct modules *modules, uint64_t address)
{
	return modules_find(modules, address) != NULL;
}

static int by_low(const void *a, const void *b)
{
	const struct module *x = *(struct module *const *)a, *y = *(struct module *const *)b;

	return (x->low > y->low) - (x->low < y->low);
}

static void sort_modules(struct modules *modules)
{
	if (modules->count)
		qsort(modules->module, modules->count, sizeof(modules->module[0]), by_low);
}

/* An object that the loader does not list: the vDSO, the loader in a static-pie. */
static struct error *add_unlisted(const struct context *context, uint64_t start, const char *name,
				  struct modules *modules)
{
	struct module_hint hint = {.name = name, .bias = start};
	struct module *module;
	Elf64_Ehdr ehdr;
	struct error *err;

	if (!start || has_object_at(modules, start) ||
	    !memory_try(context->memory, start, &ehdr, sizeof(ehdr)))
		return NULL;
	hint.phdr = start + ehdr.e_phoff;
	hint.phdr_count = ehdr.e_phnum;
	err = add_module(context, &hint, modules, &module);
	if (error_is(err, ERROR_NOT_FOUND) || error_is(err, ERROR_FORMAT)) {
		error_free(err);
		return NULL;
	}
	if (err)
		return err;
	place_flags(module, modules, 0);
	sort_modules(modules);
	return NULL;
}

/*
 * Our entry object mapped without the loader: one page r-x, then its data
 * rw-, which begins with the magic. The data may have merged with a neighbour.
 */
static struct error *add_entry_object(const struct context *context, struct modules *modules)
{
	for (size_t i = 0; i + 1 < context->maps->count; i++) {
		const struct map *code = &context->maps->map[i];
		const struct map *data = code + 1;
		uint64_t base = code->end - HA_ENTRY_DATA, magic;
		struct error *err;

		if (!code->exec || code->write || code->end != data->start || !data->write ||
		    code->end - code->start < HA_ENTRY_DATA ||
		    data->end - data->start < HA_ENTRY_SIZE - HA_ENTRY_DATA ||
		    has_object_at(modules, base))
			continue;
		if (!memory_try_u64(context->memory, data->start, &magic) || magic != HA_MAGIC)
			continue;
		err = add_unlisted(context, base, "", modules);
		if (err)
			return err;
	}
	return NULL;
}

/*
 * An entry object of our version that was not recognized, because a read
 * failed: a second one must not be loaded beside it.
 */
static struct error *expect_entry(const struct context *context, const struct modules *modules)
{
	if (modules_entry(modules))
		return NULL;
	for (size_t i = 0; i + 1 < context->maps->count; i++) {
		const struct map *code = &context->maps->map[i];
		struct ha_entry entry;

		if (!code->exec || !strstr(code->path, "/memfd:heapattach-entry") ||
		    (memory_try(context->memory, code[1].start, &entry,
				offsetof(struct ha_entry, state)) &&
		     (entry.magic != HA_MAGIC || entry.abi != HA_ABI)))
			continue;
		return error_hint(error_create(ERROR_BUSY,
					       "heapattach's own object at 0x%llx in the target "
					       "could not be read",
					       (unsigned long long)code->start),
				  "try again in a moment");
	}
	return NULL;
}

/* ---- what kind of process */

static uint64_t remote_debug_pointer(const struct memory_reader *memory,
				     const struct module *module)
{
	uint64_t value = 0;

	if (module->tables.debug_address &&
	    memory_try_u64(memory, module->tables.debug_address, &value))
		return value;
	return 0;
}

/*
 * DT_DEBUG of the executable; where the linker left that out, or ld.so was run
 * as a command, the loader's own symbol. What is parsed on the way is kept: the
 * list adopts it.
 */
static struct error *find_r_debug(const struct context *context, const struct module_auxv *auxv,
				  struct modules *modules)
{
	struct module_hint hint = {
		.name = "",
		.phdr = auxv->phdr,
		.phdr_count = auxv->phnum,
	};
	struct module *first = NULL;
	struct error *err;

	err = module_bias(context->memory, context->maps, auxv->phdr, auxv->phnum, &hint.bias);
	if (!err)
		err = add_module(context, &hint, modules, &first);
	if (err)
		return err;
	first->is_executable = true;
	modules->r_debug = remote_debug_pointer(context->memory, first);
	if (!modules->r_debug)
		modules->r_debug = module_symbol_or_0(first, "_r_debug");
	if (modules->r_debug || !auxv->base)
		return NULL;
	err = add_unlisted(context, auxv->base, "", modules);
	for (size_t i = 0; !err && !modules->r_debug && i < modules->count; i++)
		modules->r_debug = module_symbol_or_0(modules->module[i], "_r_debug");
	return err;
}

/* The object that the loader chose for a DT_NEEDED name of a base-namespace object. */
static struct module *find_needed(const struct modules *modules, const char *name)
{
	for (size_t i = 0; i < modules->count; i++) {
		struct module *module = modules->module[i];
		const char *slash = strrchr(module->name, '/');

		if (module->name_space || !module->link_map)
			continue;
		if ((module->tables.soname && strcmp(module->tables.soname, name) == 0) ||
		    strcmp(module->name, name) == 0 || (slash && strcmp(slash + 1, name) == 0))
			return module;
	}
	return NULL;
}

static void mark_needed(const struct modules *modules, struct module *module)
{
	module->is_permanent = true;
	for (size_t i = 0; i < module->tables.needed_count; i++) {
		struct module *needed =
			find_needed(modules, module->tables.string + module->tables.needed[i]);

		if (needed && !needed->is_permanent)
			mark_needed(modules, needed);
	}
}

/* What the program is linked with stays as long as it. musl never unloads anything. */
static void mark_permanent(struct modules *modules)
{
	for (size_t i = 0; i < modules->count; i++) {
		struct module *module = modules->module[i];

		if (module->is_executable)
			mark_needed(modules, module);
		if (module->is_vdso || module->is_loader || module->is_entry ||
		    modules->libc == LIBC_MUSL)
			module->is_permanent = true;
	}
}

static void note_libc(struct modules *modules)
{
	const struct module *libc = modules_libc(modules);

	modules->libc = LIBC_UNKNOWN;
	if (libc)
		modules->libc = libc->is_loader ? LIBC_MUSL : LIBC_GLIBC;
}

static struct error *read_all(const struct context *context, const struct module_auxv *auxv,
			      struct modules *modules)
{
	CLEANUP(linklist_deinit) struct link_list list = {0};
	size_t added = 0;
	struct error *err;

	modules->entry_point = auxv->entry;
	modules->vdso = auxv->vdso;
	modules->hwcap2 = auxv->hwcap2;
	err = find_r_debug(context, auxv, modules);
	if (err)
		return err;
	if (modules->r_debug) {
		err = linklist_read(context->memory, modules->r_debug, &list);
		if (!err)
			err = add_entries(context, &list, auxv->base, modules, &added);
		modules->name_spaces = list.name_spaces;
		if (err)
			return err;
	}
	sort_modules(modules);
	err = add_unlisted(context, auxv->vdso, "linux-vdso.so.1", modules);
	if (!err)
		err = add_unlisted(context, auxv->base, "", modules);
	if (!err)
		err = add_entry_object(context, modules);
	if (!err)
		err = expect_entry(context, modules);
	modules->is_static = !modules_loader(modules);
	note_libc(modules);
	mark_permanent(modules);
	return err;
}

struct error *modules_read_from(const struct memory_reader *memory, const struct module_auxv *auxv,
				const struct maps *maps, pid_t pid, struct modules *ret)
{
	struct context context = {.memory = memory, .maps = maps, .pid = pid};
	struct modules modules = {0};
	struct error *err;

	err = read_all(&context, auxv, &modules);
	if (err) {
		modules_deinit(&modules);
		return err;
	}
	*ret = modules;
	return NULL;
}

struct error *modules_read(struct target *target, const struct maps *maps, struct modules *ret)
{
	struct memory_reader memory = memory_reader_of(target);
	struct module_auxv auxv;
	struct error *err;

	err = module_auxv_read(target_file_tid(target), &auxv);
	if (err)
		return err;
	return modules_read_from(&memory, &auxv, maps, target_file_tid(target), ret);
}

/* ---- reading again */

static const struct link_entry *entry_of(const struct link_list *list, const struct module *module)
{
	return linklist_find(list, module->link_map, module->bias, module->dynamic);
}

static bool is_in_list(const struct module *module, const struct link_list *list)
{
	const struct link_entry *entry = entry_of(list, module);

	return entry && strcmp(module->name, entry->name) == 0;
}

/*
 * An object that the loader never listed stays as long as something is mapped
 * there. One that made no sense may have been read while it was unloaded, and
 * be good by now.
 */
static bool is_still_there(const struct module *module, const struct link_list *list,
			   const struct maps *maps)
{
	if (module->link_map)
		return is_in_list(module, list) && (!module->problem || module->is_permanent);
	return maps_find(maps, module->low) != NULL;
}

static struct error *retire_gone(const struct link_list *list, const struct maps *maps,
				 struct modules *modules, size_t *removed)
{
	size_t kept = 0;
	struct error *err;

	err = array_grow(&modules->gone, modules->gone_count, modules->count);
	if (err)
		return err;
	for (size_t i = 0; i < modules->count; i++) {
		struct module *module = modules->module[i];

		if (is_still_there(module, list, maps)) {
			modules->module[kept++] = module;
		} else {
			modules->gone[modules->gone_count++] = module;
			(*removed)++;
		}
	}
	modules->count = kept;
	return NULL;
}

static uint64_t loader_base(const struct modules *modules)
{
	const struct module *loader = modules_loader(modules);

	return loader ? loader->low : 0;
}

/* Undo an update that failed half-way: new objects stand behind @count. */
static void drop_new(struct modules *modules, size_t count)
{
	while (modules->count > count)
		module_free(modules->module[--modules->count]);
}

struct error *modules_update_from(const struct memory_reader *memory, const struct maps *maps,
				  pid_t pid, struct modules *modules, size_t *added_ret,
				  size_t *removed_ret)
{
	struct context context = {.memory = memory, .maps = maps, .pid = pid};
	CLEANUP(linklist_deinit) struct link_list list = {0};
	size_t added = 0, removed = 0, count = modules->count;
	uint64_t adds = 0;
	struct error *err;

	if (modules->load_adds_address)
		memory_try_u64(memory, modules->load_adds_address, &adds);
	if (modules->r_debug) {
		err = linklist_read(memory, modules->r_debug, &list);
		if (!err)
			err = add_entries(&context, &list, loader_base(modules), modules, &added);
		if (!err)
			err = retire_gone(&list, maps, modules, &removed);
		if (err) {
			drop_new(modules, count);
			return err;
		}
		modules->name_spaces = list.name_spaces;
		sort_modules(modules);
	}
	count = modules->count;
	if (!modules_entry(modules)) {
		err = add_entry_object(&context, modules);
		if (!err)
			err = expect_entry(&context, modules);
		if (err)
			return err;
	}
	mark_permanent(modules);
	modules->load_adds = adds;
	if (added_ret)
		*added_ret = added + (modules->count - count);
	if (removed_ret)
		*removed_ret = removed;
	return NULL;
}

struct error *modules_update(struct target *target, const struct maps *maps,
			     struct modules *modules, size_t *added_ret, size_t *removed_ret)
{
	struct memory_reader memory = memory_reader_of(target);

	return modules_update_from(&memory, maps, target_file_tid(target), modules, added_ret,
				   removed_ret);
}

bool *modules_flags(const struct modules *modules)
{
	return calloc((size_t)modules->next_id + 1, sizeof(bool));
}

static struct error *read_frozen(const struct memory_reader *memory, const struct modules *modules,
				 struct link_list *ret)
{
	CLEANUP(freep) uint64_t *maps = calloc(modules->count + 1, sizeof(*maps));
	size_t count = 0;

	if (!maps)
		return error_memory();
	for (size_t i = 0; i < modules->count; i++) {
		if (modules->module[i]->link_map)
			maps[count++] = modules->module[i]->link_map;
	}
	return linklist_read_frozen(memory, modules->r_debug, maps, count, ret);
}

struct error *modules_still_there(const struct memory_reader *memory, const struct modules *modules,
				  bool *there_ret)
{
	CLEANUP(linklist_deinit) struct link_list list = {0};
	bool all_permanent = true;
	struct error *err = NULL;

	for (size_t i = 0; i < modules->count; i++)
		all_permanent &= modules->module[i]->is_permanent;
	if (!all_permanent)
		err = read_frozen(memory, modules, &list);
	for (size_t i = 0; i < modules->count && !err; i++) {
		const struct module *module = modules->module[i];

		there_ret[module->id] = module->is_permanent || entry_of(&list, module);
	}
	return err;
}

void modules_deinit(struct modules *modules)
{
	for (size_t i = 0; i < modules->count; i++)
		module_free(modules->module[i]);
	for (size_t i = 0; i < modules->gone_count; i++)
		module_free(modules->gone[i]);
	free(modules->module);
	free(modules->gone);
	*modules = (struct modules){0};
}
