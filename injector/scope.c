// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/scope.h"

#include "resolver/cleanup.h"

#include <string.h>

#define LINK_MAP_WORDS 160u /* of struct link_map that are looked at; 2.36 has 146 */
#define LINK_MAP_FIRST 5u   /* l_scope lies behind the public words */
#define SCOPES_MAX     32u  /* lists in one scope */
#define LIST_MAX       4096u

/* struct r_scope_elem */
struct remote_scope {
	uint64_t list; /* struct link_map ** */
	uint32_t count, pad;
};

static const struct module *find_link_map(const struct modules *modules, uint64_t link_map)
{
	for (size_t i = 0; link_map && i < modules->count; i++) {
		if (modules->module[i]->link_map == link_map)
			return modules->module[i];
	}
	return NULL;
}

/*
 * The loader's proxy in a dlmopen namespace is a link map of its own that the
 * base one stands for, so the names of one list need not all be known: but the
 * first must be.
 */
static bool take_list(const struct memory_reader *memory, const struct modules *modules,
		      uint64_t element, struct scope *ret)
{
	CLEANUP(freep) uint64_t *list = NULL;
	const struct module **grown;
	struct remote_scope scope;

	if (element % 8 != 0 || !memory_try(memory, element, &scope, sizeof(scope)) ||
	    scope.count > LIST_MAX || scope.list % 8 != 0)
		return false;
	if (!scope.count) /* an empty list is legal */
		return true;
	list = calloc(scope.count, 8);
	if (!list || !memory_try(memory, scope.list, list, (size_t)scope.count * 8) ||
	    !find_link_map(modules, list[0]))
		return false;
	grown = realloc(ret->order, (ret->count + scope.count) * sizeof(*grown));
	if (!grown)
		return false;
	ret->order = grown;
	for (uint32_t i = 0; i < scope.count; i++)
		ret->order[ret->count++] = find_link_map(modules, list[i]);
	return true;
}

/* @address: perhaps the value of l_scope, a NULL-terminated array of lists. */
static bool take_scope(const struct memory_reader *memory, const struct modules *modules,
		       uint64_t address, struct scope *ret)
{
	ret->count = 0;
	for (size_t i = 0; i < SCOPES_MAX; i++) {
		uint64_t element;

		if (!memory_try_u64(memory, address + i * 8, &element))
			return false;
		if (!element)
			return ret->count != 0;
		if (!take_list(memory, modules, element, ret))
			return false;
	}
	return false;
}

/* With up to four lists, l_scope points into its own struct link_map: tried first. */
void scope_read(const struct memory_reader *memory, const struct modules *modules,
		const struct module *module, struct scope *ret)
{
	uint64_t words[LINK_MAP_WORDS];

	*ret = (struct scope){.modules = modules, .name_space = module->name_space};
	if (!module->link_map || !memory_try(memory, module->link_map, words, sizeof(words)))
		return;
	for (int inside = 1; inside >= 0; inside--) {
		for (size_t i = LINK_MAP_FIRST; i < LINK_MAP_WORDS; i++) {
			bool is_inside = words[i] - module->link_map < sizeof(words);

			if (words[i] && words[i] % 8 == 0 && is_inside == (bool)inside &&
			    take_scope(memory, modules, words[i], ret))
				return;
		}
	}
	scope_deinit(ret);
	*ret = (struct scope){.modules = modules, .name_space = module->name_space};
}

void scope_deinit(struct scope *scope)
{
	free(scope->order);
	*scope = (struct scope){0};
}

static struct error *not_found(const char *name)
{
	return error_create(ERROR_NOT_FOUND, "no certain definition of %s", name);
}

static struct error *address_of(const struct module *module, const Elf64_Sym *symbol,
				const char *name, uint64_t *ret)
{
	unsigned int type = ELF64_ST_TYPE(symbol->st_info);

	if (type == STT_GNU_IFUNC || type == STT_TLS)
		return error_create(ERROR_UNSUPPORTED, "%s is an indirect function", name);
	*ret = symbol->st_value + module->bias;
	return NULL;
}

static struct error *find_in_order(const struct scope *scope, const char *name, uint64_t *ret)
{
	for (size_t i = 0; i < scope->count; i++) {
		const struct module *module = scope->order[i];
		const Elf64_Sym *symbol = module ? dynamic_find(&module->tables, name) : NULL;

		if (symbol)
			return address_of(module, symbol, name, ret);
	}
	return not_found(name);
}

static struct error *find_only_one(const struct scope *scope, const char *name, uint64_t *ret)
{
	const struct module *definer = NULL;

	for (size_t i = 0; i < scope->modules->count; i++) {
		const struct module *module = scope->modules->module[i];

		if (module->name_space != scope->name_space ||
		    (module->is_loader && !module->is_libc) || !dynamic_find(&module->tables, name))
			continue;
		if (definer)
			return not_found(name);
		definer = module;
	}
	if (!definer)
		return not_found(name);
	return address_of(definer, dynamic_find(&definer->tables, name), name, ret);
}

struct error *scope_find(const struct scope *scope, const char *name, uint64_t *address_ret)
{
	if (scope->order)
		return find_in_order(scope, name, address_ret);
	return find_only_one(scope, name, address_ret);
}
