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

/* The objects of all lists, in the order of searching. */
struct order {
	const struct module **module; /* owned; NULL entries are objects that we do not know */
	size_t count;
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
		      uint64_t element, struct order *order)
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
	grown = realloc(order->module, (order->count + scope.count) * sizeof(*grown));
	if (!grown)
		return false;
	order->module = grown;
	for (uint32_t i = 0; i < scope.count; i++)
		order->module[order->count++] = find_link_map(modules, list[i]);
	return true;
}

/* @address: perhaps the value of l_scope, a NULL-terminated array of lists. */
static bool take_scope(const struct memory_reader *memory, const struct modules *modules,
		       uint64_t address, struct order *order)
{
	order->count = 0;
	for (size_t i = 0; i < SCOPES_MAX; i++) {
		uint64_t element;

		if (!memory_try_u64(memory, address + i * 8, &element))
			return false;
		if (!element)
			return order->count != 0;
		if (!take_list(memory, modules, element, order))
			return false;
	}
	return false;
}

static bool read_order(const struct memory_reader *memory, const struct modules *modules,
		       const struct module *module, struct order *order)
{
	uint64_t words[LINK_MAP_WORDS];

	if (!module->link_map || !memory_try(memory, module->link_map, words, sizeof(words)))
		return false;
	for (size_t i = LINK_MAP_FIRST; i < LINK_MAP_WORDS; i++) {
		if (words[i] && words[i] % 8 == 0 && take_scope(memory, modules, words[i], order))
			return true;
	}
	return false;
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

static struct error *find_in_order(const struct order *order, const char *name, uint64_t *ret)
{
	for (size_t i = 0; i < order->count; i++) {
		const struct module *module = order->module[i];
		const Elf64_Sym *symbol = module ? dynamic_find(&module->tables, name) : NULL;

		if (symbol)
			return address_of(module, symbol, name, ret);
	}
	return not_found(name);
}

static struct error *find_only_one(const struct modules *modules, uint32_t name_space,
				   const char *name, uint64_t *ret)
{
	const struct module *definer = NULL;

	for (size_t i = 0; i < modules->count; i++) {
		const struct module *module = modules->module[i];

		if (module->name_space != name_space || module->is_loader ||
		    !dynamic_find(&module->tables, name))
			continue;
		if (definer)
			return not_found(name);
		definer = module;
	}
	if (!definer)
		return not_found(name);
	return address_of(definer, dynamic_find(&definer->tables, name), name, ret);
}

struct error *scope_find(const struct memory_reader *memory, const struct modules *modules,
			 const struct module *module, const char *name, uint64_t *address_ret)
{
	struct order order = {0};
	struct error *err;

	if (read_order(memory, modules, module, &order))
		err = find_in_order(&order, name, address_ret);
	else
		err = find_only_one(modules, module->name_space, name, address_ret);
	free(order.module);
	return err;
}
