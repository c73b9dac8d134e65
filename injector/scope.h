/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which definition the loader would bind a name to, for an object whose slot
 * is not bound yet: the loader's own search order, read from its memory.
 */
#ifndef INJECTOR_SCOPE_H
#define INJECTOR_SCOPE_H

#include "injector/modules.h"

/*
 * The objects that are searched for a name that @module uses, in order.
 * glibc's l_scope is recognised by its shape in struct link_map (lists of
 * pointers to listed link maps), so RTLD_LOCAL, RTLD_DEEPBIND, DT_SYMBOLIC and
 * dlmopen are what they are. Where it is not found (musl), order is NULL and
 * an answer is only certain if one object of the namespace defines the name.
 */
struct scope {
	const struct modules *modules;
	uint32_t name_space;
	const struct module **order; /* owned; a NULL among them is an object that is not listed */
	size_t count;
};

/* @modules must outlive the scope, which is to be given to scope_deinit(). */
void scope_read(const struct memory_reader *memory, const struct modules *modules,
		const struct module *module, struct scope *ret);
/* A zeroed struct is fine. */
void scope_deinit(struct scope *scope);

/*
 * ERROR_NOT_FOUND: nobody defines @name, or it is not certain which definition
 * is meant. ERROR_UNSUPPORTED: the definition is an IFUNC or a TLS symbol.
 */
MUST_CHECK struct error *scope_find(const struct scope *scope, const char *name,
				    uint64_t *address_ret);

#endif
