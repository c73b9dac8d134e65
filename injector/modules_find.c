// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/modules.h"

const struct module *modules_find(const struct modules *modules, uint64_t address)
{
	size_t low = 0, high = modules->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (modules->module[middle]->high <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < modules->count && modules->module[low]->low <= address)
		return modules->module[low];
	return NULL;
}

bool module_has_code(const struct module *module, uint64_t address)
{
	for (size_t i = 0; i < module->exec_count; i++) {
		if (address >= module->exec[i].start && address < module->exec[i].end)
			return true;
	}
	return false;
}

const struct module *modules_find_code(const struct modules *modules, uint64_t address)
{
	const struct module *module = modules_find(modules, address);

	return module && module_has_code(module, address) ? module : NULL;
}

const struct module *modules_find_id(const struct modules *modules, uint32_t id)
{
	for (size_t i = 0; i < modules->count; i++) {
		if (modules->module[i]->id == id)
			return modules->module[i];
	}
	for (size_t i = 0; i < modules->gone_count; i++) {
		if (modules->gone[i]->id == id)
			return modules->gone[i];
	}
	return NULL;
}

/* The first one of the base namespace, else the first one at all, for which @flag holds. */
#define FIRST_WITH(modules, flag)                                                  \
	({                                                                         \
		const struct module *found_ = NULL;                                \
		for (size_t i_ = 0; i_ < (modules)->count; i_++) {                 \
			const struct module *module_ = (modules)->module[i_];      \
			if (module_->flag &&                                       \
			    (!found_ || module_->name_space < found_->name_space)) \
				found_ = module_;                                  \
		}                                                                  \
		found_;                                                            \
	})

const struct module *modules_executable(const struct modules *modules)
{
	return FIRST_WITH(modules, is_executable);
}

const struct module *modules_libc(const struct modules *modules)
{
	return FIRST_WITH(modules, is_libc);
}

const struct module *modules_loader(const struct modules *modules)
{
	return FIRST_WITH(modules, is_loader);
}

const struct module *modules_entry(const struct modules *modules)
{
	return FIRST_WITH(modules, is_our_entry);
}

const struct module *modules_other_entry(const struct modules *modules)
{
	for (size_t i = 0; i < modules->count; i++) {
		const struct module *module = modules->module[i];

		if (module->is_entry && !module->is_our_entry)
			return module;
	}
	return NULL;
}

uint64_t module_symbol_or_0(const struct module *module, const char *name)
{
	const Elf64_Sym *symbol = dynamic_find(&module->tables, name);
	unsigned int type;

	if (!symbol)
		return 0;
	type = ELF64_ST_TYPE(symbol->st_info);
	if (type == STT_TLS || type == STT_GNU_IFUNC)
		return 0;
	return symbol->st_value + module->bias;
}

struct error *module_symbol(const struct module *module, const char *name, uint64_t *address_ret)
{
	uint64_t address = module_symbol_or_0(module, name);

	if (!address)
		return error_create(ERROR_NOT_FOUND, "%s defines no %s",
				    module->path[0] ? module->path : module->name, name);
	*address_ret = address;
	return NULL;
}
