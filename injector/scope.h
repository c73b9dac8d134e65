/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which definition the loader would bind a name to, for an object whose slot
 * is not bound yet: the loader's own search order, read from its memory.
 */
#ifndef INJECTOR_SCOPE_H
#define INJECTOR_SCOPE_H

#include "injector/modules.h"

/*
 * Find @name as the loader would for @module. glibc's l_scope is recognised by
 * its shape in struct link_map (lists of pointers to listed link maps), so
 * RTLD_LOCAL, RTLD_DEEPBIND, DT_SYMBOLIC and dlmopen are what they are. Without
 * it the answer is only certain if one object of the namespace defines @name.
 *
 * ERROR_NOT_FOUND: nobody defines it, or it is not certain which definition is
 * meant. ERROR_UNSUPPORTED: the definition is an IFUNC or a TLS symbol.
 */
MUST_CHECK struct error *scope_find(const struct memory_reader *memory,
				    const struct modules *modules, const struct module *module,
				    const char *name, uint64_t *address_ret);

#endif
